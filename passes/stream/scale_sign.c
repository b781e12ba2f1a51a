// scale_sign: the sign of a scale goes from the scores to the vectors of the
// query.
//
//   %a = dot(%q, %k) {over = [d]}          %n = lt(%c, 0.0)
//   %s = mul(%c, %a)                       %f = select(%n, neg(%q), %q)
//   max of %s                       ->     %a = dot(%f, %k) {over = [d]}
//                                          %c1 = max(abs(%c), 2^-126)
//                                          %s = mul(%c1, %a); max of %s
//
// c (q . k) = |c| (sgn(c) q . k), exactly. A factor that is known to be
// positive commutes with the maximum, so exp2 then takes the maximum of
// unscaled scores and the factor goes into the exponent's fma. It is at least
// the smallest normal f32, so that -inf, a masked score, stays -inf times it:
// scores change by at most 2^-126 |q . k|. An infinite or NaN c gives NaN as
// before.
//
// A cap, c f(y / c) with an odd f, has no sign: |c| f(y / |c|), with the same
// least |c|, which is what a cap of 0 becomes. The sign of y's scale goes to
// the query.
//
// For GPUs, where a score costs about as much as a product's D multiplications
// by 16-bit numbers. The factor must be a scalar in a task: no value of the
// axis that is tiled. Needs: online; exp2 behind it. Tests:
// test/passes/scale_sign/.
#include "ir/facts.h"
#include "passes/support/range.h"
#include "passes/pass.h"
#include "passes/support/lane.h"

typedef struct Sign {
  Func *f;
  Ranges ranges;
  Op *pass;
  uint32_t axis;  // of the keys
  int lane;       // the axis that is tiled, or -1
} Sign;

static bool keyed(const Sign *x, Value v) {
  return type_has_axis(ir_type(x->f, v), x->axis);
}

static bool outside(const Sign *x, Value v) {
  return ir_defined_outside(x->f, v, x->pass->regions[1]);
}

static bool is_factor(Sign *x, Value c) {
  const Type *t = ir_type(x->f, c);
  if (t->kind != TK_ELEM || t->dtype != DT_F32 || !outside(x, c)) return false;
  if (x->lane >= 0 && type_has_axis(t, (uint32_t)x->lane)) return false;
  return !keyed(x, c) && range_of(&x->ranges, c).lo <= 0;
}

// The operand of a product that is the same for all keys, and its place.
static bool query_of(const Sign *x, const Op *dot, uint32_t *at) {
  if (!dot || dot->code != OP_DOT || dot->nargs != 2 || !dot->res[0])
    return false;
  for (*at = 0; *at < 2; ++*at) {
    Value q = dot->args[*at];
    if (!keyed(x, q) && outside(x, q)) return keyed(x, dot->args[1 - *at]);
  }
  return false;
}

static Value flipped(Builder *b, Value q, Value sign) {
  Value args[] = {sign, ir_1(b, OP_NEG, q), q};
  return ir_op(b, OP_SELECT, args, 3, NULL, 0, NULL, 1, 0)->res[0];
}

static Builder before_pass(const Sign *x, const Op *mul) {
  return (Builder){.fn = x->f,
                   .region = x->pass->parent,
                   .before = x->pass,
                   .span = mul->span};
}

static Value size_of(Builder *b, Value c) {
  Value least = ir_const_f(b, DT_F32, 0x1p-126);
  return ir_2(b, OP_MAX, ir_1(b, OP_ABS, c), least);
}

static void move_sign(Sign *x, Op *mul, uint32_t i, Op *dot, uint32_t at) {
  Builder b = before_pass(x, mul);
  Value c = mul->args[i];
  Value sign = ir_2(&b, OP_LT, c, ir_const_f(&b, DT_F32, 0));
  mul->args[i] = size_of(&b, c);
  dot->args[at] = flipped(&b, dot->args[at], sign);
}

// The division of v = f(y / c), f odd and used here only, or NULL.
static Op *odd_in(const Sign *x, Value v, Value c) {
  Op *op = ir_def(x->f, v);
  while (op && op_facts(op->code)->parity == FP_ODD &&
         ir_count_uses(x->f, op->res[0]) == 1)
    op = ir_def(x->f, op->args[0]);
  bool divides = op && op->code == OP_DIV && op->args[1] == c &&
                 ir_count_uses(x->f, op->res[0]) == 1;
  return divides ? op : NULL;
}

static void try_score(Sign *x, Value score);

// c f(y / c) = |c| f(y / |c|).
static bool drop_sign(Sign *x, Op *mul, uint32_t i) {
  Op *div = odd_in(x, mul->args[1 - i], mul->args[i]);
  if (!div) return false;
  Builder b = before_pass(x, mul);
  mul->args[i] = div->args[1] = size_of(&b, mul->args[i]);
  try_score(x, div->args[0]);
  return true;
}

static void try_score(Sign *x, Value score) {
  Op *mul = ir_def(x->f, score);
  if (!mul || mul->code != OP_MUL || outside(x, score)) return;
  for (uint32_t i = 0; i < 2; i++) {
    Op *dot = ir_def(x->f, mul->args[1 - i]);
    uint32_t at;
    if (!is_factor(x, mul->args[i])) continue;
    if (drop_sign(x, mul, i)) return;
    if (!query_of(x, dot, &at)) continue;
    if (ir_count_uses(x->f, dot->res[0]) != 1) continue;
    move_sign(x, mul, i, dot, at);
    return;
  }
}

static void visit(void *data, Op *op) {
  Sign *x = data;
  if (op->code != OP_KREDUCE) return;
  const IrAttr *kinds = ir_attr(op, AT_KINDS);
  x->pass = op;
  x->axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  for (uint32_t i = 0; i < op->nres; i++)
    if (kinds->list[i] == RK_MAX) try_score(x, op->regions[1]->last->args[i]);
}

bool pass_scale_sign(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Sign x = {.f = m->funcs.at[i]};
    x.lane = lane_axis(x.f);
    range_init(&x.ranges, x.f, &cx->scratch);
    ir_walk(x.f->body, visit, &x);
  }
  return true;
}
