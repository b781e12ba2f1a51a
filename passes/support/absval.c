// Abstract values with infinities (see absval.h). Used to prove what a masked
// key adds: exp(-inf - finite) is 0, but -inf * unknown may be anything.
#include "passes/support/absval.h"

#include "ir/eval.h"
#include "ir/facts.h"
#include "passes/support/sym.h"
#include <math.h>

static const Abs anything = {-INFINITY, INFINITY, true, true, true};

Abs absval_exactly(double v) {
  return (Abs){v, v, v == -INFINITY, v == INFINITY, isnan(v)};
}

Abs absval_finite(Range r) {
  return (Abs){.lo = r.lo, .hi = r.hi};
}

bool absval_is(Abs a, double v) {
  return !a.nan && a.lo == v && a.hi == v;
}

static bool bounded(Abs a) {
  return !a.nan && !a.ninf && !a.pinf;
}

static bool exact(Abs a) {
  return !a.nan && a.lo == a.hi && (bounded(a) ? isfinite(a.lo) : true);
}

static Abs negate(Abs a) {
  return (Abs){-a.hi, -a.lo, a.pinf, a.ninf, a.nan};
}

static Abs sum(Abs a, Abs b) {
  bool nan = a.nan || b.nan || (a.ninf && b.pinf) || (a.pinf && b.ninf);
  if (!nan && (absval_is(a, -INFINITY) || absval_is(b, -INFINITY)))
    return absval_exactly(-INFINITY);
  if (!nan && (absval_is(a, INFINITY) || absval_is(b, INFINITY)))
    return absval_exactly(INFINITY);
  double lo = a.lo + b.lo, hi = a.hi + b.hi;
  return (Abs){isnan(lo) ? -INFINITY : lo, isnan(hi) ? INFINITY : hi,
               a.ninf || b.ninf, a.pinf || b.pinf, nan};
}

static double times(double a, double b) {
  return a == 0 || b == 0 ? 0 : a * b;
}

static Abs product(Abs a, Abs b) {
  if (bounded(a) && bounded(b)) {
    double p[] = {times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo),
                  times(a.hi, b.hi)};
    Abs r = {p[0], p[0], false, false, false};
    for (int i = 1; i < 4; i++) {
      r.lo = fmin(r.lo, p[i]);
      r.hi = fmax(r.hi, p[i]);
    }
    return r;
  }
  if (bounded(a)) return product(b, a);
  bool infinite = !a.nan && a.lo == a.hi;  // one infinity, exactly
  if (infinite && !b.nan && b.lo > 0) return a;
  if (infinite && !b.nan && b.hi < 0) return negate(a);
  return anything;
}

static Abs larger(Abs a, Abs b) {
  bool lifts = a.ninf && b.ninf;
  return (Abs){fmax(a.lo, b.lo), fmax(a.hi, b.hi), lifts, a.pinf || b.pinf,
               a.nan || b.nan};
}

static Abs smaller(Abs a, Abs b) {
  return negate(larger(negate(a), negate(b)));
}

static Abs either(Abs a, Abs b) {
  return (Abs){fmin(a.lo, b.lo), fmax(a.hi, b.hi), a.ninf || b.ninf,
               a.pinf || b.pinf, a.nan || b.nan};
}

static Abs inverse(Abs a) {
  if (a.nan || (a.lo <= 0 && a.hi >= 0)) return anything;
  return (Abs){1 / a.hi, 1 / a.lo, false, false, false};
}

static double at(OpCode code, double x) {
  return eval_op(code, &x);
}

// Is a outside of the domain in part, or at an end where the op is infinite?
static bool leaves_domain(OpCode code, const OpFacts *f, Abs a) {
  double lo = f->domain.lo;
  if (f->domain.lo >= f->domain.hi) return false;
  return a.nan || a.lo < lo || a.hi > f->domain.hi ||
         (a.lo == lo && !isfinite(at(code, lo)));
}

static Abs magnitude(Abs a) {
  if (a.lo >= 0 || a.hi <= 0) return a.lo >= 0 ? a : negate(a);
  return (Abs){0, fmax(-a.lo, a.hi), false, a.ninf || a.pinf, a.nan};
}

// Ops of one operand by their facts: finite, or infinite where the operand is
// and the range has no end.
static Abs by_facts(OpCode code, const OpFacts *f, Abs a) {
  bool ends = f->range.lo < f->range.hi;
  double lo = ends ? f->range.lo : -INFINITY,
         hi = ends ? f->range.hi : INFINITY;
  if (!f->class || leaves_domain(code, f, a)) return anything;
  if (f->shape == FS_NONE)
    return bounded(a) ? (Abs){.lo = lo, .hi = hi} : anything;
  if (f->shape == FS_FALLS)
    return (Abs){at(code, a.hi), at(code, a.lo), lo == -INFINITY && a.pinf,
                 hi == INFINITY && a.ninf, a.nan};
  if (f->shape == FS_BOWL) a = magnitude(a);
  return (Abs){at(code, a.lo), at(code, a.hi), lo == -INFINITY && a.ninf,
               hi == INFINITY && a.pinf, a.nan};
}

static Abs unary(OpCode code, Abs a) {
  if (code == OP_FROM_BITS) return anything;
  if (code == OP_REF)
    return a.nan
               ? a
               : either((Abs){a.lo, a.hi, false, a.pinf, 0}, absval_exactly(0));
  return by_facts(code, op_facts(code), a);
}

static Abs power(Abs a, Abs b) {
  if (exact(a) && exact(b)) return absval_exactly(pow(a.lo, b.lo));
  bool whole = exact(b) && b.lo == floor(b.lo) && b.lo > 0;
  if (!whole || !bounded(a)) return anything;
  bool even = fmod(b.lo, 2) == 0;
  return (Abs){.lo = even ? 0 : -INFINITY, .hi = INFINITY};
}

static Abs binary(OpCode code, Abs a, Abs b) {
  switch (code) {
  case OP_ADD: return sum(a, b);
  case OP_SUB: return sum(a, negate(b));
  case OP_MUL: return product(a, b);
  case OP_DIV: return product(a, inverse(b));
  case OP_DIVK: {  // not finite only where the row is not, keys or none
    Abs q = product(a, inverse(b));
    if (bounded(q) || !bounded(a) || !bounded(b)) return q;
    bool pos = a.lo >= 0 && b.lo >= 0;
    return (Abs){.lo = pos ? 0 : -INFINITY, .hi = INFINITY};
  }
  case OP_MAX: return larger(a, b);
  case OP_MIN: return smaller(a, b);
  case OP_POW: return power(a, b);
  case OP_EQ:
  case OP_NE:
  case OP_LT:
  case OP_LE: {
    double r, x[] = {a.lo, b.lo};
    if (exact(a) && exact(b) && sym_num_op(code, x, &r))
      return absval_exactly(r);
    return (Abs){.lo = 0, .hi = 1};
  }
  case OP_AND: return smaller(a, b);
  case OP_OR: return larger(a, b);
  default: return anything;
  }
}

// Of more operands: the facts' range, of finite ones.
static Abs many(OpCode code, const Abs *a, uint32_t n) {
  const OpFacts *f = op_facts(code);
  bool known = f->range.lo < f->range.hi;
  for (uint32_t i = 0; i < n; i++) known = known && bounded(a[i]);
  return known ? (Abs){.lo = f->range.lo, .hi = f->range.hi} : anything;
}

Abs absval_op(OpCode code, const Abs *a, uint32_t n) {
  if (code == OP_NOT) return sum(absval_exactly(1), negate(a[0]));
  if (code == OP_SELECT) {
    if (absval_is(a[0], 1)) return a[1];
    if (absval_is(a[0], 0)) return a[2];
    return either(a[1], a[2]);
  }
  if (code == OP_FMA) return sum(product(a[0], a[1]), a[2]);
  return n == 1   ? unary(code, a[0])
         : n == 2 ? binary(code, a[0], a[1])
                  : many(code, a, n);
}

// ---------------------------------------------------------------- IR values
static void put(AbsMap *m, Value v, AbsEntry e) {
  map_put(&m->index, v, m->all.n);
  vec_push(m->arena, &m->all, e);
}

void absval_put(AbsMap *m, Value v, Abs a) {
  put(m, v, (AbsEntry){.abs = a, .replaced = true});
}

static AbsEntry entry(AbsMap *m, Value v);

// Whether v is made of replaced values of its own key. What is reduced over
// the axis of the keys is not: keys that are left out add nothing to it.
static bool made_of_replaced(AbsMap *m, const Op *op, Value v) {
  if (op->code == OP_SCAN && ir_attr_i(op, AT_AXIS, -1) == m->axis)
    return false;
  bool any = false;
  for (uint32_t i = 0; i < op->nargs; i++)
    any |= entry(m, op->args[i]).replaced;
  return any &&
         (m->axis == ABS_ALL_AXES || type_has_axis(ir_type(m->f, v), m->axis));
}

// Reductions of finite values; a maximum of no keys is -inf.
static Abs reduced(const AbsMap *m, RKind k, Value v) {
  Abs a = absval_finite(range_of(m->ranges, v));
  if (k == RK_MAX) a.ninf = true, a.lo = -INFINITY;
  if (k == RK_MIN) a.pinf = true, a.hi = INFINITY;
  return a;
}

static Abs of_elem(AbsMap *m, const Op *op, Value v) {
  Abs a[ELEM_ARGS];
  DType t = ir_type(m->f, v)->dtype;
  for (uint32_t i = 0; i < op->nargs; i++) a[i] = entry(m, op->args[i]).abs;
  if (op->code != OP_CAST || bounded(a[0]))
    return absval_op(op->code, a, op->nargs);
  if (dtype_is_float(t)) return t == DT_F8E4M3 ? anything : a[0];
  return absval_finite(range_dtype(t));  // an integer, whichever it is
}

// The value of an op as its range and its kind have it, nothing replaced.
static Abs unreplaced(AbsMap *m, const Op *op, Value v) {
  if (op->code == OP_REDUCE)
    return reduced(m, (RKind)ir_attr_i(op, AT_KIND, RK_SUM), v);
  for (uint32_t i = 0; op->code == OP_KREDUCE && i < op->nres; i++)
    if (op->res[i] == v)
      return reduced(m, (RKind)ir_attr(op, AT_KINDS)->list[i], v);
  return absval_finite(range_of(m->ranges, v));
}

// Of replaced values, by an op that is not looked into.
static Abs opaque(AbsMap *m, const Op *op) {
  bool finite = true;
  for (uint32_t i = 0; i < op->nargs; i++)
    finite = finite && bounded(entry(m, op->args[i]).abs);
  return finite || op->code == OP_LOAD
             ? absval_finite((Range){-INFINITY, INFINITY})
             : anything;
}

// A range is one of the values that nothing replaced: no bound of others.
static Abs of_op(AbsMap *m, const Op *op, Value v, bool replaced) {
  double c;
  if (op->code == OP_CONST && ir_const_value(m->f, v, &c))
    return absval_exactly(c);
  bool elem = (op_info(op->code)->flags & OPF_ELEM) && op->nargs;
  if (!elem) return replaced ? opaque(m, op) : unreplaced(m, op, v);
  Abs r = of_elem(m, op, v);
  if (replaced) return r;
  Range bound = range_of(m->ranges, v);
  if (r.lo < bound.lo && !r.ninf) r.lo = bound.lo;
  if (r.hi > bound.hi && !r.pinf) r.hi = bound.hi;
  return r;
}

static AbsEntry entry(AbsMap *m, Value v) {
  uint64_t at;
  if (map_get(&m->index, v, &at)) return m->all.at[at];
  const Op *op = ir_def(m->f, v);
  AbsEntry e = {.replaced = op && made_of_replaced(m, op, v)};
  e.abs =
      op ? of_op(m, op, v, e.replaced) : absval_finite(range_of(m->ranges, v));
  put(m, v, e);
  return e;
}

Abs absval_value(AbsMap *m, Value v) {
  return entry(m, v).abs;
}
