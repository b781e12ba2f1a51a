// Lowering of topk: the largest of a row's scores, whose number is given.
//
// The bits of an f32 as an integer, those of negative numbers turned over, are
// its place among all f32 numbers. The place of the n-th largest score is found
// digit by digit: each pass over the keys counts the scores that are at least
// as large as the numbers of all places that the digit tells but the first. Of
// the scores at that place those of the first keys are chosen. All of it are
// sums of comparisons, which any target streams, and through which no gradient
// flows. Counts are floats, a comparison and a sum each: exact below 2^24.
//
// Who chooses compares with limits in the middle between the n-th largest score
// and those beside it, not with that score: kernels that make scores anew, as a
// gradient's, may round them otherwise and still choose the same keys.
//
// A digit of n bits takes 2^n - 1 counts and a score, so one of two bits takes
// the least time where a score is one product, and one of four where it is more
// than ten counts: a sum over keys, or keys that few rows wait for.
#include "frontend/lower.h"

#include <float.h>
#include <string.h>

enum { DIGIT = 2, LONG_DIGIT = 4, WORD = 32 };
#define FIRST (-INT64_C(0x80000000))
#define INF_PLACE INT64_C(0x7f800000)  // that of -inf: -1 - INF_PLACE

// The number at a place; behind that of inf NaN, in front of -inf that.
static Value number_at(Builder *b, Value place) {
  place = ir_2(b, OP_MAX, place, ir_int(b, -1 - INF_PLACE));
  Value below = ir_2(b, OP_LT, place, ir_int(b, 0));
  Value turned = ir_2(b, OP_SUB, ir_int(b, FIRST - 1), place);
  Value bits = ir_3(b, OP_SELECT, below, turned, place);
  return ir_1(b, OP_FROM_BITS, bits);
}

static Value is_least(Builder *b, Value score, Value place) {
  Value number = number_at(b, place);
  return ir_2(b, OP_LE, number, score);
}

static Value count(Fx *x, Value on, uint32_t axis) {
  Value v = ir_cast(&x->b, DT_F32, on);
  return ir_reduce(&x->b, RK_SUM, low_operand(x, v, axis), &axis, 1);
}

// Does v have a sum over keys?
static bool sums_keys(const Func *f, Value v, Map *seen) {
  const Op *op = ir_def(f, v);
  uint64_t known;
  if (!op || map_get(seen, v, &known)) return false;
  map_put(seen, v, 1);
  const IrAttr *over = ir_attr(op, AT_OVER);
  for (uint32_t i = 0; over && i < over->n; i++)
    if (f->axes.at[over->list[i]].role == AX_KEY) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (sums_keys(f, op->args[i], seen)) return true;
  return false;
}

static uint32_t digit_bits(const Fx *x, Value score) {
  const Attr *a = low_attr(x, "kernel");
  const Expr *e = a && a->args.n ? a->args.at[0].value : NULL;
  bool few = e && e->name && strcmp(e->name, "decode") == 0;
  Map seen = {.arena = x->f->mod->arena};
  return few || sums_keys(x->f, score, &seen) ? LONG_DIGIT : DIGIT;
}

typedef struct Search {
  Value score, n;  // f32: how many are chosen
  uint32_t axis, bits;
  Value place;  // i64: the n-th largest score has it, or one less than the next
  Value above;  // f32: scores beyond it
} Search;

// One digit more of the place, of which steps are 1 << shift.
static void digit(Fx *x, Search *f, uint32_t shift) {
  Builder *b = &x->b;
  Value steps = 0, above = f->above, zero = ir_const_f(b, DT_F32, 0);
  for (int64_t i = 1; i < INT64_C(1) << f->bits; i++) {
    Value at = ir_2(b, OP_ADD, f->place, ir_int(b, i << shift));
    Value have = count(x, is_least(b, f->score, at), f->axis);
    Value enough = ir_2(b, OP_LE, f->n, have);
    Value rest = ir_3(b, OP_SELECT, enough, zero, have);
    above = ir_2(b, OP_MAX, above, rest);
    Value one = ir_cast(b, DT_I64, enough);
    steps = steps ? ir_2(b, OP_ADD, steps, one) : one;
  }
  Value far = ir_2(b, OP_MUL, steps, ir_int(b, INT64_C(1) << shift));
  f->place = ir_2(b, OP_ADD, f->place, far);
  f->above = above;
}

// How many keys in front of this one hold, too.
static Value in_front(Fx *x, Value on, uint32_t axis) {
  IrAttr attrs[] = {attr_i(AT_KIND, RK_SUM), attr_i(AT_AXIS, axis),
                    attr_i(AT_DIR, DIR_PREFIX), attr_i(AT_EXCLUSIVE, 1)};
  Value v = ir_cast(&x->b, DT_I64, on);
  v = low_operand(x, v, axis);
  return ir_op(&x->b, OP_SCAN, &v, 1, attrs, 4, NULL, 1, 0)->res[0];
}

// As a float, which a gradient keeps of a row and need not find again: exact
// below 2^24.
static Value kept(Builder *b, Value n) {
  return ir_cast(b, DT_I64, ir_cast(b, DT_F32, n));
}

// The last of the first `most` keys that hold, -1 if there is none.
static Value last_of(Fx *x, Value on, Value most, uint32_t axis) {
  Builder *b = &x->b;
  Value before = in_front(x, on, axis);
  Value is = ir_2(b, OP_LT, before, most);
  is = ir_2(b, OP_AND, on, is);
  Value none = ir_int(b, -1), at = low_coord(x, axis);
  Value key = ir_3(b, OP_SELECT, is, at, none);
  key = ir_reduce(b, RK_MAX, low_operand(x, key, axis), &axis, 1);
  return kept(b, ir_2(b, OP_MAX, none, key));
}

static Value half_way(Builder *b, Value v, Value w) {
  Value half = ir_const_f(b, DT_F32, 0.5);
  v = ir_2(b, OP_MUL, v, half);
  return ir_2(b, OP_ADD, v, ir_2(b, OP_MUL, w, half));
}

// The extreme one of the scores that are `on`, or `none`.
static Value extreme(Fx *x, const Search *f, RKind kind, Value on,
                     double none) {
  Builder *b = &x->b;
  Value end = ir_const_f(b, DT_F32, none);
  Value v = ir_3(b, OP_SELECT, on, f->score, end);
  v = ir_reduce(b, kind, low_operand(x, v, f->axis), &f->axis, 1);
  return ir_2(b, kind == RK_MAX ? OP_MAX : OP_MIN, v, end);
}

// Is a score larger than the n-th largest, of which `beyond` tells? So is one
// that is nearer to the least of these. Where nothing is between the two it is
// the next number, NaN behind inf.
static Value is_beyond(Fx *x, const Search *f, Value nth, Value next,
                       Value beyond) {
  Builder *b = &x->b;
  Value least = extreme(x, f, RK_MIN, beyond, FLT_MAX);
  Value middle = half_way(b, nth, least);
  Value between = ir_2(b, OP_LT, nth, middle);
  Value limit = ir_3(b, OP_SELECT, between, middle, next);
  return ir_2(b, OP_LE, limit, f->score);
}

// Is a score as large as the n-th largest? So is one that is nearer to it than
// to the largest of those below.
static Value is_there(Fx *x, const Search *f, Value nth) {
  Builder *b = &x->b;
  Value below = ir_2(b, OP_LT, f->score, nth);
  Value most = extreme(x, f, RK_MAX, below, -FLT_MAX);
  Value middle = half_way(b, nth, most);
  Value between = ir_2(b, OP_LT, most, middle);
  Value limit = ir_3(b, OP_SELECT, between, middle, nth);
  return ir_2(b, OP_LE, limit, f->score);
}

static Value without(Builder *b, Value v, Value less) {
  return ir_2(b, OP_AND, v, ir_1(b, OP_NOT, less));
}

// Of the scores at the place that was found, which are beyond it, and which of
// those that are there are the first.
static Value chosen(Fx *x, const Search *f) {
  Builder *b = &x->b;
  Value place = ir_2(b, OP_MIN, f->place, ir_int(b, INF_PLACE));
  Value nth = number_at(b, place);
  Value next = number_at(b, ir_2(b, OP_ADD, place, ir_int(b, 1)));
  Value beyond = ir_2(b, OP_LE, next, f->score);
  Value there = ir_2(b, OP_LE, nth, f->score);
  Value left = ir_2(b, OP_SUB, f->n, f->above);
  left = ir_cast(b, DT_I64, left);
  Value last = last_of(x, without(b, there, beyond), left, f->axis);
  beyond = is_beyond(x, f, nth, next, beyond);
  there = without(b, is_there(x, f, nth), beyond);
  Value early = ir_2(b, OP_LE, low_coord(x, f->axis), last);
  return ir_2(b, OP_OR, beyond, ir_2(b, OP_AND, there, early));
}

Val low_topk(Fx *x, const Expr *e, const Expr *score, const Expr *n) {
  Builder *b = &x->b;
  uint32_t axis = low_axis(x, e->binder);
  Val s = val_cast(x, low_expr(x, score), DT_F32);
  Value most = low_i64(x, low_expr(x, n));
  if (axis == NO_AXIS) return val_fail(x);
  Search f = {.score = s.v,
              .n = ir_cast(b, DT_F32, most),
              .axis = axis,
              .bits = digit_bits(x, s.v),
              .place = ir_int(b, FIRST),
              .above = ir_const_f(b, DT_F32, 0)};
  for (uint32_t shift = WORD; shift; shift -= f.bits)
    digit(x, &f, shift - f.bits);
  return val_scalar(chosen(x, &f));
}
