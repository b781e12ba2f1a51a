// What the steps of a chunk see of each other where rows have decays of their
// own and writes erase (part of the pass `tile`, for matrix units).
//
//   P = (q 2 ** G_t) (b 2 ** - G_s)^T                     the decays are weak
//   P = sum over borders of                               else
//       (q 2 ** (G_t - G_m)) (b 2 ** (G_m - G_s))^T       t behind m, s in front
//
// Borders are the chunk's middle, then the middles of its halves, and so on
// down to neighbours: each pair of steps has one between, and no exponent is
// that of more than decays between two steps. So it is positive nowhere, and
// decays of any strength are as exact as weak ones. A step that sees itself has
// no decay between. Both are made, and a branch takes one
// (passes/gpu/branch_arms.c); levels are a loop (passes/gpu/reroll.c), for
// which no number of theirs is 1.
//
// Reads of the state in front of the chunk and what is left of writes behind it
// have decays from the chunk's begin and to its end, 2 ** G_t and
// 2 ** (G_C - G_s): of any strength too. Exponents are sums of gates that are
// two numbers of 16 bits: that leaves 2^-16 of a gate out. G_C is the sum of
// the same numbers, so that G_C - G_s has no more than an f32's rounding. Of
// gates that are positive, what a step lets grow beyond 2 ** 96 until a border
// is kept at that.
#include "passes/support/cost.h"
#include "passes/support/range.h"
#include "passes/tile/step.h"

#include <math.h>

static Value num(Builder *b, double x) {
  return ir_const_f(b, DT_F32, x);
}

// Gates that are weak in any chunk.
static bool always_weak(const Steps *s, uint32_t i, double most) {
  Ranges known;
  range_init(&known, s->t->from, s->t->from->mod->arena);
  double least = range_of(&known, s->affine[i].decay).lo;
  return s->affine[i].falling && least * (double)s->chunk >= -most;
}

static double most_weak(const Steps *s) {
  return s->narrow == DT_BF16 ? COST_CHUNK_HALVES_SPAN : COST_CHUNK_SPAN;
}

static bool suits(const Steps *s, uint32_t i) {
  const Affine *a = &s->affine[i];
  return a->decay && !a->limit && s->t->target->gpu.hopper &&
         (a->falling || s->narrow == DT_BF16) && tile_erase_fits(s, i) &&
         type_has_axis(ir_type(s->t->from, a->decay), a->row) &&
         tile_step_column(s, i) < 0;
}

bool tile_halves_fit(const Steps *s, uint32_t i) {
  return suits(s, i) && !always_weak(s, i, most_weak(s));
}

bool tile_halves_never(const Steps *s, uint32_t i) {
  return suits(s, i) && always_weak(s, i, most_weak(s));
}

Value tile_halves_weak(Steps *s, Builder *b, uint32_t i) {
  Value span = ir_1(b, OP_NEG, s->decay[i].total);
  if (!s->affine[i].falling)
    span = ir_2(b, OP_ADD, span, tile_step_growth(s, b, i));
  Value ok = ir_2(b, OP_LE, span, num(b, most_weak(s)));
  Type t = type_scalar(DT_BOOL);
  return ir_op(b, OP_ALL_OF, &ok, 1, NULL, 0, &t, 1, 0)->res[0];
}

// ---------------------------------------------------------------- factors
// Gates as two numbers of 16 bits.
typedef struct Gates {
  Value hi, lo;
} Gates;

static Gates gates(Steps *s, Builder *b, uint32_t i, Side *side) {
  Value g = tile_step_own_decay(s, b, i, side);
  Gates x = {.hi = ir_cast(b, s->narrow, g)};
  Value lo = ir_2(b, OP_SUB, g, ir_cast(b, DT_F32, x.hi));
  x.lo = ir_cast(b, s->narrow, lo);
  return x;
}

// The sum of the same numbers, along the axis that is the rows' of the walk in
// the order of memory.
Value tile_halves_total(Steps *s, Builder *b, uint32_t i) {
  Side *side = s->turned ? &s->cols : &s->rows;
  Gates g = gates(s, b, i, side);
  Value hi = ir_cast(b, DT_F32, g.hi), lo = ir_cast(b, DT_F32, g.lo);
  Value v = ir_2(b, OP_ADD, hi, lo);
  return ir_reduce(b, RK_SUM, v, &side->axis, 1);
}

// The sum of the gates of the steps where `in` holds, along s->sums.
static Value sum(Steps *s, Builder *b, uint32_t i, Value in) {
  Gates g = gates(s, b, i, &s->sums);
  Value one = num(b, 1), zero = num(b, 0);
  Value h = ir_3(b, OP_SELECT, in, one, zero);
  h = ir_cast(b, s->narrow, h);
  Value d = tile_step_dot(s, b, h, g.lo, 0, s->sums.axis);
  return tile_step_dot(s, b, h, g.hi, d, s->sums.axis);
}

static Value scaled(Steps *s, Builder *b, uint32_t i, Value v, Value d) {
  if (!s->affine[i].falling)
    d = ir_2(b, OP_MIN, d, num(b, COST_CHUNK_HALVES_SPAN));
  v = ir_cast(b, DT_F32, v);
  return ir_2(b, OP_MUL, v, ir_1(b, OP_EXP2, d));
}

static Value since(Steps *s, Builder *b, uint32_t i, const Side *side,
                   bool before) {
  OpCode upto = before ? OP_LT : OP_LE;
  return sum(s, b, i, ir_2(b, upto, s->sums.step, side->step));
}

Value tile_halves_since(Steps *s, Builder *b, uint32_t i, Side *side, Value v,
                        bool before) {
  return scaled(s, b, i, v, since(s, b, i, side, before));
}

Value tile_halves_until(Steps *s, Builder *b, uint32_t i, Side *side,
                        Vector x) {
  Value d = since(s, b, i, side, false);
  Value v = scaled(s, b, i, x.v, ir_2(b, OP_SUB, s->decay[i].total, d));
  return x.f ? ir_2(b, OP_MUL, v, x.f) : v;
}

// ---------------------------------------------------------------- a level
// Steps and borders are counted twice, 2 t + 1 being the middle of step t.
static Value middle(Builder *b, const Side *side) {
  Value t = ir_cast(b, DT_F32, side->step);
  t = ir_2(b, OP_ADD, t, t);
  return ir_2(b, OP_ADD, t, num(b, 1));
}

// Of elements of a side: their half of so many steps; is that the second half
// of a block?
typedef struct Place {
  Value own, start, size, odd;
} Place;

static Place place_of(Builder *b, const Side *side, double half) {
  Place p = {.own = middle(b, side), .size = num(b, 2 * half)};
  Value at = ir_2(b, OP_MUL, p.own, num(b, 0.5 / half));
  Value block = ir_2(b, OP_MUL, p.own, num(b, 0.25 / half));
  at = ir_1(b, OP_FLOOR, at);
  block = ir_1(b, OP_FLOOR, block);
  p.start = ir_2(b, OP_MUL, at, p.size);
  p.odd = ir_2(b, OP_NE, at, ir_2(b, OP_ADD, block, block));
  return p;
}

static Value is_within(Builder *b, const Side *side, Value lo, Value hi) {
  Value at = middle(b, side);
  lo = ir_2(b, OP_LT, lo, at);
  return ir_2(b, OP_AND, lo, ir_2(b, OP_LT, at, hi));
}

// Is an element of y in the first half of a block, of x in its second?
static Value is_pair(Builder *b, const Side *x, const Side *y, double half) {
  Place p = place_of(b, x, half);
  Value lo = ir_2(b, OP_SUB, p.start, p.size);
  return is_within(b, y, lo, ir_3(b, OP_SELECT, p.odd, p.start, lo));
}

// The decays between each element and the border of its block.
static Value to_border(Steps *s, Builder *b, uint32_t i, const Side *side,
                       double half, bool before) {
  Place p = place_of(b, side, half);
  Value to = before ? p.own : ir_2(b, OP_ADD, p.own, num(b, 1));
  Value end = ir_2(b, OP_ADD, p.start, p.size);
  Value lo = ir_3(b, OP_SELECT, p.odd, p.start, p.own);
  Value hi = ir_3(b, OP_SELECT, p.odd, to, end);
  return sum(s, b, i, is_within(b, &s->sums, lo, hi));
}

// ---------------------------------------------------------------- all
static Value or_0(Builder *b, Value in, Value v) {
  return ir_3(b, OP_SELECT, in, v, num(b, 0));
}

// What each step sees of its own write, which has no decay since.
static Value itself(Steps *s, Builder *b, uint32_t i, const Sight *at, Value q,
                    Value w) {
  uint32_t row = s->affine[i].row;
  Value y = tile_matrix_vector(s, b, at->x, w, row).v;
  q = ir_cast(b, DT_F32, q), y = ir_cast(b, DT_F32, y);
  Value p = ir_2(b, OP_MUL, q, y);
  p = ir_reduce(b, RK_SUM, p, &row, 1);
  return or_0(b, ir_2(b, OP_EQ, at->y->step, at->x->step), p);
}

static Value strong(Steps *s, Builder *b, uint32_t i, const Sight *at, Value q,
                    Value w) {
  uint32_t row = s->affine[i].row;
  bool before = at->sees == SEES_BEFORE;
  Value all = 0;
  for (double half = (double)s->chunk / 2; half >= 1; half /= 2) {
    Value x = scaled(s, b, i, q, to_border(s, b, i, at->x, half, before));
    Value y = scaled(s, b, i, w, to_border(s, b, i, at->y, half, false));
    Value p = tile_step_dot(s, b, x, y, 0, row);
    p = or_0(b, is_pair(b, at->x, at->y, half), p);
    all = all ? ir_2(b, OP_ADD, all, p) : p;
  }
  return all;
}

Value tile_halves_seen(Steps *s, Builder *b, uint32_t i, const Sight *at,
                       Value read, Value write) {
  uint32_t row = s->affine[i].row;
  Value q = tile_matrix_vector(s, b, at->x, read, row).v;
  Vector w = tile_matrix_vector(s, b, at->y, write, row);
  bool before = at->sees == SEES_BEFORE;
  const Decay *d = &s->decay[i];
  Value back = ir_1(b, OP_EXP2, ir_1(b, OP_NEG, d->total));
  Value x = tile_halves_since(s, b, i, at->x, q, before);
  Value y = tile_halves_until(s, b, i, at->y, w);
  Value p = tile_step_dot(s, b, x, ir_2(b, OP_MUL, y, back), 0, row);
  p = or_0(b, tile_step_sees(b, at), p);
  Value far = strong(s, b, i, at, q, w.v);
  if (at->sees == SEES_SELF)
    far = ir_2(b, OP_ADD, far, itself(s, b, i, at, q, write));
  if (w.f) far = ir_2(b, OP_MUL, far, w.f);
  return ir_3(b, OP_SELECT, d->weak, p, far);
}
