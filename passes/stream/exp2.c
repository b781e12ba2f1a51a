// exp2: exponentials become powers of two, with the scale in one fma.
//
//   %s = mul(%c, %a)                       yield %a as the term of the max
//   max of %s, %r = ref(%m)          ->    %r = ref(%m)
//   %e = exp(sub(%s, %r))                  %e = exp2(fma(%a, %c2, neg(mul(%r, %c2))))
//
// with %c2 = %c * log2(e) computed before the pass. The maximum is taken of
// the unscaled scores if the scale is provably positive (max commutes with
// it); its uses are scaled instead. Otherwise the scaled scores stay, and only
// log2(e) goes into the fma. Corrections become exp2 as well.
//
// What a column has in common, as the row's sum in a gradient of keys, is such
// a term too: exp2(fma(%a, %c2, neg(mul(%col, log2e)))).
//
// The fma rounds once and its row's term before, which is as good as a
// reference while scores are modest. Where a mask may be added to them, of
// -1e10 or the least f32, the difference comes first: exp2(mul(sub(%s, %r),
// log2e)).
//
// Works on f32; f64 keeps exp. Needs: online. Run dce afterwards. Tests:
// test/passes/exp2/.
#include "passes/pass.h"
#include "passes/support/range.h"
#include "passes/support/lane.h"

#include <math.h>

static const double log2e = 1.4426950408889634;
static const double modest = 0x1p16;  // scores below are off by 2^-8 at most

typedef struct Exp2 {
  Ctx *cx;
  Func *f;
  Arena *arena;
  Ranges ranges;
  Op *pass;
  uint32_t axis;
  int lane;    // the axis of a tile's rows, or -1
  Map folded;  // row value c -> c * log2(e), before the pass
  Map wide;    // Value -> 0, 1: see is_wide
} Exp2;

static bool keyed(const Exp2 *x, Value v) {
  return type_has_axis(ir_type(x->f, v), x->axis);
}

static bool by_row(const Exp2 *x, Value v) {
  return x->lane < 0 || type_has_axis(ir_type(x->f, v), (uint32_t)x->lane);
}

static bool is_f32(const Exp2 *x, Value v) {
  return ir_type(x->f, v)->dtype == DT_F32;
}

static bool outside(const Exp2 *x, Value v) {
  for (const Region *r = ir_info(x->f, v)->region; r;
       r = r->parent ? r->parent->parent : NULL)
    if (r->parent == x->pass) return false;
  return true;
}

// v = mul(c, a), c a row value from before the pass. A score is not looked
// into by exponentials: masked keys replace its value.
static bool split_scale(const Exp2 *x, Value v, Value *a, Value *c) {
  const Op *op = ir_def(x->f, v);
  if (!op || op->code != OP_MUL) return false;
  for (uint32_t i = 0; i < 2; i++) {
    *c = op->args[i];
    *a = op->args[1 - i];
    if (outside(x, *c) && !keyed(x, *c) && !outside(x, *a)) return true;
  }
  return false;
}

static Builder before(const Exp2 *x, Op *op) {
  return (Builder){.fn = x->f,
                   .region = op->parent,
                   .before = op,
                   .span = op->span};
}

// c * log2(e), made once before the pass.
static Value scaled_row(Exp2 *x, Value c) {
  uint64_t v;
  if (map_get(&x->folded, c, &v)) return (Value)v;
  Builder b = before(x, x->pass);
  double k;
  bool one = c == 0, fold = !one && ir_const_value(x->f, c, &k);
  Value r = ir_const_f(&b, DT_F32, fold ? k * log2e : log2e);
  if (!one && !fold) r = ir_2(&b, OP_MUL, c, r);
  map_put(&x->folded, c, r);
  return r;
}

// ---------------------------------------------------------------- exponentials
// c * a with c = 0 standing for 1.
typedef struct Scaled {
  Value a, c;
} Scaled;

static Scaled scaled_of(const Exp2 *x, Value v) {
  Scaled s;
  const Op *op = ir_def(x->f, v);
  bool score = op && ir_attr(op, AT_NOTE);
  return !score && split_scale(x, v, &s.a, &s.c) ? s : (Scaled){v, 0};
}

static Value times(Exp2 *x, Builder *b, Value v) {
  double k;
  if (ir_const_value(x->f, v, &k)) return ir_const_f(b, DT_F32, k * log2e);
  Scaled s = scaled_of(x, v);
  return ir_2(b, OP_MUL, s.a, scaled_row(x, s.c));
}

// A tensor over rows and keys, as masks that are added are. Not a table of
// distances, whose index varies with both, nor f16, which is modest.
static bool reads_pairs(const Exp2 *x, const Op *op) {
  DType t = ir_type(x->f, op->res[0])->dtype;
  if (t == DT_F16 || dtype_size(t) == 1) return false;
  for (uint32_t i = 1; i < op->nargs; i++)
    if (keyed(x, op->args[i]) && by_row(x, op->args[i])) return false;
  return keyed(x, op->res[0]) && by_row(x, op->res[0]);
}

// Whether scores may be so large that m * c, rounded, is no reference for
// s * c, which is not: 2^-24 |m c| is the exponent of a weight that should
// be 1. Those are made of what is read for each pair, or of large constants.
// Products of 16-bit vectors are not.
static bool is_wide(Exp2 *x, Value v) {
  uint64_t known;
  if (map_get(&x->wide, v, &known)) return known != 0;
  map_put(&x->wide, v, 0);
  const Op *op = ir_def(x->f, v);
  Range r = range_of(&x->ranges, v);
  double most = fmax(fabs(r.lo), fabs(r.hi)), k;
  bool wide = false;
  bool whole = !dtype_is_float(ir_type(x->f, v)->dtype);
  if (!op || most < modest || (whole && op->code != OP_LOAD)) return false;
  if (ir_const_value(x->f, v, &k)) wide = isfinite(k);
  else if (!keyed(x, v)) return false;
  else if (op->code == OP_LOAD) wide = reads_pairs(x, op);
  else if (op_info(op->code)->flags & OPF_ELEM)
    for (uint32_t i = 0; i < op->nargs && !wide; i++)
      wide = is_wide(x, op->args[i]);
  map_put(&x->wide, v, wide);
  return wide;
}

// Which of two terms is the score: that of keys beside a row's, or that of
// pairs beside a column's, as where a gradient of keys has sums of rows.
static bool is_first(const Exp2 *x, Value p, Value q, bool *first) {
  *first = keyed(x, p);
  if (keyed(x, p) != keyed(x, q)) return true;
  *first = by_row(x, p);
  return keyed(x, p) && by_row(x, p) != by_row(x, q);
}

// A score that is a sum is looked into where nothing else needs it: what masked
// keys have in its place, 0 or -inf, they have in that of the fma.
static bool may_replace(const Exp2 *x, const Builder *b, const Op *op) {
  return !ir_attr(op, AT_NOTE) ||
         (ir_count_uses(x->f, op->res[0]) == 1 && op->parent == b->region);
}

static void take_note(const Exp2 *x, Op *from, Value to) {
  const IrAttr *note = ir_attr(from, AT_NOTE);
  if (!note) return;
  ir_set_attr(x->f, ir_def(x->f, to), *note);
  ir_del_attr(from, AT_NOTE);
}

// The argument of exp, times log2(e).
static Value argument(Exp2 *x, Builder *b, Value arg) {
  Op *op = ir_def(x->f, arg);
  bool sum = op && (op->code == OP_SUB || op->code == OP_ADD);
  if (!sum || !may_replace(x, b, op)) return times(x, b, arg);
  Value p = op->args[0], q = op->args[1];
  if (!keyed(x, p) && !keyed(x, q)) {  // a correction: both of one scale
    Scaled s = scaled_of(x, p), t = scaled_of(x, q);
    if (s.c != t.c) return times(x, b, arg);
    Value row = scaled_row(x, s.c);
    return ir_2(b, OP_MUL, ir_2(b, op->code, s.a, t.a), row);
  }
  bool first;  // p is the score
  if (!is_first(x, p, q, &first)) return times(x, b, arg);
  Value pair = first ? p : q, other = first ? q : p;
  bool minus = op->code == OP_SUB;
  if ((minus && !first) || is_wide(x, pair)) return times(x, b, arg);
  Scaled s = scaled_of(x, pair);
  Value row = times(x, b, other);
  double k;
  bool fold = ir_const_value(x->f, row, &k);
  if (minus) row = fold ? ir_const_f(b, DT_F32, -k) : ir_1(b, OP_NEG, row);
  Value y = ir_3(b, OP_FMA, s.a, scaled_row(x, s.c), row);
  take_note(x, op, y);
  return y;
}

static void rewrite_exps(Exp2 *x, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions && op->code != OP_KREDUCE; i++)
      rewrite_exps(x, op->regions[i]);
    if (op->code != OP_EXP || !is_f32(x, op->res[0])) continue;
    Builder b = before(x, op);
    Value e = ir_1(&b, OP_EXP2, argument(x, &b, op->args[0]));
    ir_replace_uses(x->f, op->res[0], e);
    ir_erase(op);
  }
}

// ---------------------------------------------------------------- maxima
// Uses of v (a maximum of unscaled scores) get c * v; ref(v) becomes
// c * ref(v), which is the same for c > 0.
static void scale_uses(Exp2 *x, Region *r, Value v, Value c) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++)
      scale_uses(x, op->regions[i], v, c);
    bool uses = false;
    for (uint32_t i = 0; i < op->nargs; i++) uses = uses || op->args[i] == v;
    if (!uses) continue;
    Builder b = before(x, op);
    if (op->code == OP_REF) {
      Value ref = ir_1(&b, OP_REF, v);
      ir_replace_uses(x->f, op->res[0], ir_2(&b, OP_MUL, ref, c));
      ir_erase(op);
      continue;
    }
    Value s = ir_2(&b, OP_MUL, v, c);
    for (uint32_t i = 0; i < op->nargs; i++)
      if (op->args[i] == v) op->args[i] = s;
  }
}

static void scale_after(Exp2 *x, Value v, Value c) {
  if (ir_count_uses(x->f, v) == 0) return;
  Builder b = {.fn = x->f,
               .region = x->pass->parent,
               .before = x->pass->next,
               .span = x->pass->span};
  Value s = ir_2(&b, OP_MUL, v, c);
  Op *mul = ir_def(x->f, s);
  ir_replace_uses(x->f, v, s);
  for (uint32_t i = 0; i < mul->nargs; i++)
    if (mul->args[i] == s) mul->args[i] = v;
}

// The fill moves from the scaled score to the unscaled one.
static bool move_note(Exp2 *x, Value scaled, Value a) {
  Op *from = ir_def(x->f, scaled), *to = ir_def(x->f, a);
  const IrAttr *note = ir_attr(from, AT_NOTE);
  if (!note) return true;
  if (!to || outside(x, a) || ir_count_uses(x->f, a) != 1) return false;
  ir_set_attr(x->f, to, *note);
  ir_del_attr(from, AT_NOTE);
  return true;
}

static void unscale_max(Exp2 *x, uint32_t i) {
  Op *pass = x->pass, *yield = pass->regions[1]->last;
  Value t = yield->args[i], a, c;
  RKind k = (RKind)ir_attr(pass, AT_KINDS)->list[i];
  if (k != RK_MAX || !is_f32(x, t) || !split_scale(x, t, &a, &c)) return;
  if (!is_f32(x, a) || !keyed(x, a) || range_of(&x->ranges, c).lo <= 0) return;
  if (!move_note(x, t, a)) return;
  yield->args[i] = a;
  Region *local = pass->regions[1], *correct = pass->regions[2];
  scale_uses(x, local, local->params.at[i], c);
  scale_uses(x, correct, correct->params.at[i], c);
  scale_uses(x, correct, correct->params.at[i + pass->nres], c);
  scale_after(x, pass->res[i], c);
}

// ---------------------------------------------------------------- the pass
static void run_pass(Exp2 *x, Op *pass) {
  x->pass = pass;
  x->axis = (uint32_t)ir_attr_i(pass, AT_AXIS, 0);
  x->folded = (Map){.arena = x->arena};
  for (uint32_t i = 0; i < pass->nres; i++) unscale_max(x, i);
  rewrite_exps(x, pass->regions[1]);
  rewrite_exps(x, pass->regions[2]);
}

static void visit(void *data, Op *op) {
  if (op->code == OP_KREDUCE) run_pass(data, op);
}

bool pass_exp2(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Exp2 x = {.cx = cx,
              .f = m->funcs.at[i],
              .arena = &cx->scratch,
              .wide.arena = &cx->scratch,
              .lane = lane_axis(m->funcs.at[i])};
    range_init(&x.ranges, x.f, x.arena);
    ir_walk(x.f->body, visit, &x);
  }
  return true;
}
