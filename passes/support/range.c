// Interval analysis of IR values (see range.h). One rule per op; results of
// tensors' loads are only bounded by their dtype.
#include "passes/support/range.h"

#include "ir/eval.h"
#include "ir/facts.h"

#include <math.h>

static const Range all_reals = {-INFINITY, INFINITY};
static const Range unit = {0, 1};

void range_init(Ranges *r, const Func *f, Arena *a) {
  *r = (Ranges){.f = f, .arena = a, .index = {.arena = a}};
}

static Range hull(Range a, Range b) {
  return (Range){fmin(a.lo, b.lo), fmax(a.hi, b.hi)};
}

// 0 * inf counts as 0: the bound of a product with an unbounded factor.
static double times(double a, double b) {
  return a == 0 || b == 0 ? 0 : a * b;
}

static Range range_mul(Range a, Range b) {
  double p[] = {times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo),
                times(a.hi, b.hi)};
  Range r = {p[0], p[0]};
  for (int i = 1; i < 4; i++) r = hull(r, (Range){p[i], p[i]});
  return r;
}

static Range range_inverse(Range a) {
  if (a.lo > 0 || a.hi < 0) return (Range){1 / a.hi, 1 / a.lo};
  if (a.lo == 0) return (Range){a.hi > 0 ? 1 / a.hi : 0, INFINITY};
  return all_reals;
}

static Range range_add(Range a, Range b) {
  double lo = a.lo + b.lo, hi = a.hi + b.hi;
  return (Range){isnan(lo) ? -INFINITY : lo, isnan(hi) ? INFINITY : hi};
}

static Range range_neg(Range a) {
  return (Range){-a.hi, -a.lo};
}

static Range range_pow(const Func *f, const Op *op, Range a) {
  double p;
  if (!ir_const_value(f, op->args[1], &p))
    return a.lo >= 0 ? (Range){0, INFINITY} : all_reals;
  bool even = p == floor(p) && fmod(p, 2) == 0;
  if (even && p > 0) {
    double m = fmax(fabs(a.lo), fabs(a.hi));
    return (Range){a.lo > 0 ? pow(a.lo, p) : 0, pow(m, p)};
  }
  if (a.lo < 0) return all_reals;
  return p > 0 ? (Range){pow(a.lo, p), pow(a.hi, p)}
               : (Range){pow(a.hi, p), pow(a.lo, p)};
}

static double at(OpCode code, double x) {
  return eval_op(code, &x);
}

static Range magnitude(Range a) {
  return (Range){a.lo > 0   ? a.lo
                 : a.hi < 0 ? -a.hi
                            : 0,
                 fmax(fabs(a.lo), fabs(a.hi))};
}

static Range range_facts(OpCode code) {
  const OpFacts *f = op_facts(code);
  return f->range.lo < f->range.hi ? (Range){f->range.lo, f->range.hi}
                                   : all_reals;
}

// Of an op that moves one way with its operand, or with its size.
static Range range_shape(OpCode code, const OpFacts *f, Range a) {
  Range all = range_facts(code);
  bool partial = f->domain.lo < f->domain.hi;
  if (f->shape == FS_NONE || (partial && a.hi <= f->domain.lo)) return all;
  if (partial) a = (Range){fmax(a.lo, f->domain.lo), fmin(a.hi, f->domain.hi)};
  if (f->shape == FS_BOWL) a = magnitude(a);
  if (f->shape == FS_FALLS) return (Range){at(code, a.hi), at(code, a.lo)};
  return (Range){at(code, a.lo), at(code, a.hi)};
}

static Range range_unary(OpCode code, Range a) {
  if (code == OP_REF) return hull(a, (Range){0, 0});
  return range_shape(code, op_facts(code), a);
}

// Rounding moves a bound by at most one unit in the last place.
static Range range_cast(const Op *op, Range a) {
  DType to = (DType)ir_attr_i(op, AT_TO, DT_F32);
  if (to == DT_BOOL) return unit;
  if (!dtype_is_float(to)) return (Range){floor(a.lo), floor(a.hi)};
  double u = to == DT_F64 ? 0 : to == DT_F32 ? 0x1p-23 : 0x1p-2;
  if (to == DT_BF16) u = 0x1p-7;
  if (to == DT_F16 || to == DT_TF32) u = 0x1p-10;
  return (Range){a.lo - u * fabs(a.lo), a.hi + u * fabs(a.hi)};
}

static Range range_sum(Range a) {
  return (Range){a.lo >= 0 ? 0 : -INFINITY, a.hi <= 0 ? 0 : INFINITY};
}

static Range range_kind(RKind k, Range a) {
  switch (k) {
  case RK_SUM: return range_sum(a);
  case RK_PROD:
    if (a.lo < 0) return all_reals;
    return (Range){0, a.hi <= 1 ? 1 : INFINITY};
  case RK_MAX: return (Range){-INFINITY, a.hi};
  case RK_MIN: return (Range){a.lo, INFINITY};
  default: return unit;
  }
}

static Range range_const(const Op *op) {
  const IrAttr *a = ir_attr(op, AT_VALUE);
  double v = a ? a->f : (double)ir_attr_i(op, AT_IVALUE, 0);
  return isnan(v) ? all_reals : (Range){v, v};
}

static Range range_dim(const Func *f, Dim d) {
  int64_t lo, hi;
  dim_bounds(&f->mod->dims, d, &lo, &hi);
  return (Range){(double)lo, (double)hi};
}

static Range range_index(const Func *f, const Op *op) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  Range r = range_dim(f, f->axes.at[axis].extent);
  return (Range){0, fmax(r.hi - 1, 0)};
}

Range range_dtype(DType t) {
  if (t == DT_BOOL) return unit;
  int bits = dtype_size(t) * 8;
  if (dtype_kind(t) == 'u') return (Range){0, ldexp(1, bits) - 1};
  if (dtype_kind(t) == 'i')
    return (Range){-ldexp(1, bits - 1), ldexp(1, bits - 1)};
  return all_reals;
}

static Range range_pass(Ranges *r, const Op *op, Value v) {
  const Op *yield = op->regions[1]->last;
  const IrAttr *kinds = ir_attr(op, AT_KINDS);
  for (uint32_t i = 0; i < op->nres; i++)
    if (op->res[i] == v)
      return range_kind((RKind)kinds->list[i], range_of(r, yield->args[i]));
  return all_reals;
}

// Nearer to 0 than the divisor. By 0 it is the dividend, where the divisor may
// be negative.
static Range range_mod(Range a, Range b) {
  if (b.lo >= 0) return (Range){0, b.hi};
  return hull(b.hi >= 0 ? a : (Range){0, 0},
              (Range){b.lo + 1, fmax(b.hi - 1, 0)});
}

// Divisors are not 0, which of negative ones gives some number.
static Range range_floordiv(Range a, Range b) {
  double far = fmax(fabs(a.lo), fabs(a.hi)) + 1;
  if (b.lo < 0) return (Range){-far, far};
  double least = fmax(b.lo, 1);
  Range most = {floor(a.lo / least), floor(a.hi / least)};
  double lo = a.lo < 0 ? -1 : 0, hi = a.hi < 0 ? -1 : 0;
  if (isfinite(b.hi)) {
    lo = floor(a.lo / b.hi);
    hi = floor(a.hi / b.hi);
  }
  return hull(most, (Range){lo, hi});
}

// Remainders of one divisor have its sign, and are nearer to 0.
static Range range_difference(Ranges *r, const Op *op) {
  const Op *x = ir_def(r->f, op->args[0]), *y = ir_def(r->f, op->args[1]);
  Range d =
      range_add(range_of(r, op->args[0]), range_neg(range_of(r, op->args[1])));
  if (!x || !y || x->code != OP_MOD || y->code != OP_MOD ||
      x->args[1] != y->args[1])
    return d;
  Range b = range_of(r, x->args[1]);
  double most = fmax(fmax(-b.lo, b.hi) - 1, 0);
  Range none =
      range_add(range_of(r, x->args[0]), range_neg(range_of(r, y->args[0])));
  Range by = hull((Range){-most, most}, b.lo < 0 ? none : (Range){0, 0});
  return (Range){fmax(d.lo, by.lo), fmin(d.hi, by.hi)};
}

static Range range_two(Ranges *r, const Op *op) {
  Range a = range_of(r, op->args[0]), b = range_of(r, op->args[1]);
  bool same = op->args[0] == op->args[1];
  switch (op->code) {
  case OP_ADD: return range_add(a, b);
  case OP_SUB: return range_difference(r, op);
  case OP_MUL:
  case OP_DOT: {
    Range m = same ? range_unary(OP_ABS, a) : a;
    m = range_mul(m, same ? m : b);
    return op->code == OP_DOT ? range_sum(m) : m;
  }
  case OP_DIV: return range_mul(a, range_inverse(b));
  case OP_DIVK: return hull(range_mul(a, range_inverse(b)), (Range){0, 0});
  case OP_MIN: return (Range){fmin(a.lo, b.lo), fmin(a.hi, b.hi)};
  case OP_MAX: return (Range){fmax(a.lo, b.lo), fmax(a.hi, b.hi)};
  case OP_MOD: return range_mod(a, b);
  case OP_FLOORDIV: return range_floordiv(a, b);
  case OP_POW: return range_pow(r->f, op, a);
  default: return unit;  // comparisons and logic
  }
}

static Range range_op(Ranges *r, const Op *op, Value v) {
  const Func *f = r->f;
  switch (op->code) {
  case OP_CONST: return range_const(op);
  case OP_DIM: return range_dim(f, (Dim)ir_attr_i(op, AT_DIM, 0));
  case OP_INDEX: return range_index(f, op);
  case OP_CAST: return range_cast(op, range_of(r, op->args[0]));
  case OP_SELECT:
    return hull(range_of(r, op->args[1]), range_of(r, op->args[2]));
  case OP_REDUCE:
    return range_kind((RKind)ir_attr_i(op, AT_KIND, RK_SUM),
                      range_of(r, op->args[0]));
  case OP_FMA: {
    Range p = range_mul(range_of(r, op->args[0]), range_of(r, op->args[1]));
    return range_add(p, range_of(r, op->args[2]));
  }
  case OP_DOT: return op->nargs == 2 ? range_two(r, op) : all_reals;
  case OP_KREDUCE: return range_pass(r, op, v);
  case OP_GROUP_BOUND:
  case OP_GROUP_SELECT: {
    Range all = range_of(r, op->args[0]);
    for (uint32_t i = 1; i < op->nargs; i++)
      all = hull(all, range_of(r, op->args[i]));
    return all;
  }
  case OP_LOAD:
  case OP_GIVEN: return range_dtype(ir_type(f, v)->dtype);
  default: break;
  }
  if (!(op_info(op->code)->flags & OPF_ELEM)) return all_reals;
  if (op->nargs == 1) return range_unary(op->code, range_of(r, op->args[0]));
  return op->nargs == 2 ? range_two(r, op) : range_facts(op->code);
}

Range range_of(Ranges *r, Value v) {
  uint64_t at;
  if (map_get(&r->index, v, &at)) return r->all.at[at];
  const Op *op = ir_def(r->f, v);
  Range res = op ? range_op(r, op, v) : range_dtype(ir_type(r->f, v)->dtype);
  if (isnan(res.lo)) res.lo = -INFINITY;
  if (isnan(res.hi)) res.hi = INFINITY;
  map_put(&r->index, v, r->all.n);
  vec_push(r->arena, &r->all, res);
  return res;
}
