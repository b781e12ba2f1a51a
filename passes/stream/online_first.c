// online, part 6: which key has the maximum, found in the pass that finds it.
//
//   %m = reduce(%x) {kind = max, over = [k]}
//   %f = reduce(select(eq(%x, %m), %c, inf)) {kind = min, over = [k]}
//
// A pass behind, which makes x again, may round it otherwise and then find no
// key at all. So f is an accumulator beside that of m, in the form of all
// others: its term is the coordinate where x is the maximum so far, and its
// factor is 1, or inf where the maximum moved: what was found is forgotten. As
// a coordinate times inf is to be inf, coordinates are carried from 1 on.
#include "passes/stream/online.h"

#include <math.h>

static bool is_inf(const Func *f, Value v) {
  double c;
  return ir_const_value(f, v, &c) && isinf(c) && c > 0;
}

// A coordinate of the axis, as a float.
static bool is_coordinate(const Func *f, Value v, uint32_t axis) {
  const Op *op = ir_def(f, v);
  if (!op || op->code != OP_CAST || ir_type(f, v)->dtype != DT_F32)
    return false;
  return ir_index_axis(f, op->args[0]) == (int)axis;
}

// The maximum or minimum over the same keys that v, of eq(x, v), is; else NULL.
static Red *extreme_of(const Online *o, const Red *r, Value v, Value x) {
  Red *d = online_red(o, v);
  bool same = d && !d->scan && !d->dot && !d->of && d->axis == r->axis &&
              d->outer == r->outer && d->op->args[0] == x;
  return same && (d->kind == RK_MAX || d->kind == RK_MIN) ? d : NULL;
}

Red *online_first_of(const Online *o, const Red *r, Value *at) {
  const Func *f = o->f;
  if (r->scan || r->dot || r->kind != RK_MIN) return NULL;
  const Op *pick = ir_def(f, r->op->args[0]);
  if (!pick || pick->code != OP_SELECT || !is_inf(f, pick->args[2]))
    return NULL;
  const Op *hit = ir_def(f, pick->args[0]);
  *at = pick->args[1];
  if (!hit || hit->code != OP_EQ || !is_coordinate(f, *at, r->axis))
    return NULL;
  for (uint32_t i = 0; i < 2; i++) {
    Red *d = extreme_of(o, r, hit->args[1 - i], hit->args[i]);
    if (d && d->terms.n == 1) return d;
  }
  return NULL;
}

Value online_first_term(Builder *b, Value x, Value extreme, Value at) {
  Value one = ir_const_f(b, DT_F32, 1), none = ir_const_f(b, DT_F32, INFINITY);
  Value hit = ir_2(b, OP_EQ, x, extreme);
  return ir_3(b, OP_SELECT, hit, ir_2(b, OP_ADD, at, one), none);
}

Value online_first_factor(Builder *b, Value old, Value now) {
  Value one = ir_const_f(b, DT_F32, 1), none = ir_const_f(b, DT_F32, INFINITY);
  return ir_3(b, OP_SELECT, ir_2(b, OP_EQ, old, now), one, none);
}
