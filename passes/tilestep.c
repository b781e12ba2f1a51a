// The equations of one chunk of a recurrence (see tilechunk.c).
#include "passes/tilestep.h"

#include "ir/target.h"
#include <math.h>

enum {
  // Largest log2 of the decay over a chunk that both sides of a product are
  // scaled by: its half has an error of 2^-20 in f32.
  SPAN = 48,
};

static bool erases(const Affine *a) {
  for (uint32_t i = 0; i < a->nwrites; i++)
    if (a->write[i].a) return true;
  return false;
}

int64_t step_choose(const Steps *s) {
  for (uint32_t i = 0; i < s->n; i++)
    if (erases(&s->affine[i])) return 1;
  return s->t->plan.chunk ? s->t->plan.chunk : 1;
}

// ---------------------------------------------------------------- helpers
static bool has_axis(const Builder *b, Value v, uint32_t axis) {
  return type_has_axis(ir_type(b->fn, v), axis);
}

static Value spread(const Steps *s, Builder *b, Value v, uint32_t axis) {
  if (has_axis(b, v, axis)) return v;
  Type t = type_with(*ir_type(b->fn, v), axis, s->size);
  Value zero = tile_const(b, t, 0);
  return ir_3(b, OP_SELECT, ir_const_i(b, DT_BOOL, 1), v, zero);
}

static Value dot(Builder *b, Value x, Value y, Value plus, uint32_t over) {
  if (!plus) return ir_dot(b, x, y, &over, 1);
  Value args[3] = {x, y, plus};
  IrAttr a = attr_axes(b->fn->mod->arena, AT_OVER, &over, 1);
  return ir_op(b, OP_DOT, args, 3, &a, 1, NULL, 1, 0)->res[0];
}

static Value scan(Builder *b, Value v, uint32_t axis, ScanDir dir,
                  bool exclusive) {
  IrAttr a[4] = {attr_i(AT_KIND, RK_SUM), attr_i(AT_AXIS, axis),
                 attr_i(AT_DIR, dir), attr_i(AT_EXCLUSIVE, 1)};
  return ir_op(b, OP_SCAN, &v, 1, a, exclusive ? 4 : 3, NULL, 1, 0)->res[0];
}

// g times the number of steps in `count`.
static Value steps_of(Builder *b, Value g, Value count, int64_t more) {
  if (more) count = ir_2(b, OP_ADD, count, ir_const_i(b, DT_I64, more));
  return ir_2(b, OP_MUL, ir_cast(b, DT_F32, count), g);
}

static Value exp2_of(Builder *b, Value v) { return ir_1(b, OP_EXP2, v); }

// ---------------------------------------------------------------- decays
static void fixed_decay(const Steps *s, Builder *b, Decay *d, Value g) {
  Value n = ir_const_i(b, DT_I64, s->chunk);
  Value left = ir_2(b, OP_SUB, n, s->col_at);
  d->rows = steps_of(b, g, s->row_at, 1);
  d->before = steps_of(b, g, s->row_at, 0);
  d->rest = steps_of(b, g, left, -1);
  d->total = steps_of(b, g, n, 0);
}

static void moving_decay(Steps *s, Builder *b, Decay *d, Value g) {
  Value row = step_row(s, b, g), col = step_col(s, b, g);
  d->rows = scan(b, row, s->axis, DIR_PREFIX, false);
  d->before = scan(b, row, s->axis, DIR_PREFIX, true);
  d->rest = scan(b, col, s->col_axis, DIR_SUFFIX, true);
  d->total = ir_reduce(b, RK_SUM, row, &s->axis, 1);
}

// From each column to each row: sums of what lies between, never differences
// of long sums.
static Value pair_exponent(Steps *s, Builder *b, const Decay *d, Value g,
                           bool before) {
  if (d->fixed) {
    Value n = ir_2(b, OP_SUB, s->row_at, s->col_at);
    return steps_of(b, step_row(s, b, g), n, before ? -1 : 0);
  }
  Value row = step_row(s, b, g);
  Value later = ir_2(b, OP_LT, s->col_at, s->row_at);
  Value zero = ir_const_f(b, DT_F32, 0);
  Value x = ir_3(b, OP_SELECT, later, row, zero);
  return scan(b, x, s->axis, DIR_PREFIX, before);
}

typedef enum Sees { SEES_SELF, SEES_EARLIER, SEES_BEFORE } Sees;

static Value sees_mask(const Steps *s, Builder *b, Sees k) {
  return ir_2(b, k == SEES_SELF ? OP_LE : OP_LT, s->col_at, s->row_at);
}

static Value pair_factor(Steps *s, Builder *b, uint32_t i, Sees k) {
  Decay *d = &s->decay[i];
  if (d->pair[k]) return d->pair[k];
  Value x = pair_exponent(s, b, d, s->affine[i].decay, k == SEES_BEFORE);
  Value none = ir_const_f(b, DT_F32, -INFINITY);
  x = ir_3(b, OP_SELECT, sees_mask(s, b, k), x, none);
  return d->pair[k] = exp2_of(b, x);
}

static Value largest(Builder *b, const Steps *s, RKind k, Value v) {
  Value zero = ir_const_f(b, DT_F32, 0);
  v = ir_reduce(b, k, v, &s->axis, 1);
  return ir_2(b, k == RK_MAX ? OP_MAX : OP_MIN, v, zero);
}

// The middle of the decay's course, and how far it goes.
static Value set_anchor(const Steps *s, Builder *b, Decay *d, bool falling) {
  Value half = ir_const_f(b, DT_F32, 0.5), span;
  if (falling) {
    d->anchor = ir_2(b, OP_MUL, d->total, half);
    span = ir_1(b, OP_NEG, d->total);
  } else {
    Value hi = largest(b, s, RK_MAX, d->rows);
    Value lo = largest(b, s, RK_MIN, d->rows);
    d->anchor = ir_2(b, OP_MUL, ir_2(b, OP_ADD, hi, lo), half);
    span = ir_2(b, OP_SUB, hi, lo);
  }
  Value ok = ir_2(b, OP_LE, span, ir_const_f(b, DT_F32, SPAN));
  Type t = type_scalar(DT_BOOL);
  return ir_op(b, OP_ALL_OF, &ok, 1, NULL, 0, &t, 1, 0)->res[0];
}

static bool varies(const Steps *s, Value v) {
  return type_has_axis(ir_type(s->t->from, v), s->axis);
}

void step_constants(Steps *s, Builder *b, ValueMap *m) {
  for (uint32_t i = 0; i < s->n; i++) {
    const Affine *a = &s->affine[i];
    Decay *d = &s->decay[i];
    if (!a->decay) continue;
    d->has = true;
    d->vector = type_has_axis(ir_type(s->t->from, a->decay), a->row);
    d->fixed = !varies(s, a->decay);
    if (!d->fixed || s->chunk == 1) continue;
    s->rows = s->cols = *m;
    fixed_decay(s, b, d, step_value(s, b, a->decay, m));
    s->rows = s->cols = *m;
    for (int k = 0; k < 3 && !d->vector; k++)
      pair_factor(s, b, i, (Sees)k);
  }
}

Value step_prepare(Steps *s, Builder *b, uint32_t i) {
  Decay *d = &s->decay[i];
  if (!d->has || (d->fixed && !d->vector)) return 0;
  if (!d->fixed) {
    d->pair[0] = d->pair[1] = d->pair[2] = 0;
    moving_decay(s, b, d, s->affine[i].decay);
  }
  return d->vector ? set_anchor(s, b, d, s->affine[i].falling) : 0;
}

// ---------------------------------------------------------------- products
// 2 ** (row's decay - anchor), and its inverse at the columns.
static Value row_scale(const Steps *s, Builder *b, uint32_t i, bool before) {
  const Decay *d = &s->decay[i];
  return exp2_of(b, ir_2(b, OP_SUB, before ? d->before : d->rows, d->anchor));
}

static Value col_scale(Steps *s, Builder *b, uint32_t i) {
  const Decay *d = &s->decay[i];
  Value rest = ir_2(b, OP_SUB, d->total, d->anchor);
  return exp2_of(b, ir_2(b, OP_SUB, d->rest, rest));
}

// What a vector at the rows sees of one at the columns: {rows, cols}.
static Value seen(Steps *s, Builder *b, uint32_t i, Value x, Value y, Sees k) {
  const Decay *d = &s->decay[i];
  uint32_t row = s->affine[i].row;
  if (d->vector) {
    x = ir_2(b, OP_MUL, x, row_scale(s, b, i, k == SEES_BEFORE));
    y = ir_2(b, OP_MUL, y, col_scale(s, b, i));
  }
  Value p = dot(b, x, y, 0, row);
  p = spread(s, b, spread(s, b, p, s->axis), s->col_axis);
  if (d->has && !d->vector) return ir_2(b, OP_MUL, p, pair_factor(s, b, i, k));
  return ir_3(b, OP_SELECT, sees_mask(s, b, k), p,
              ir_const_f(b, DT_F32, 0));
}

// x at the rows, decayed since the start of the chunk.
static Value since_start(Steps *s, Builder *b, uint32_t i, Value x,
                         bool before) {
  const Decay *d = &s->decay[i];
  if (!d->has) return x;
  if (!d->vector)
    return ir_2(b, OP_MUL, x, exp2_of(b, before ? d->before : d->rows));
  x = ir_2(b, OP_MUL, x, row_scale(s, b, i, before));
  return ir_2(b, OP_MUL, x, exp2_of(b, d->anchor));
}

// y at the columns, decayed to the end of the chunk.
static Value until_end(Steps *s, Builder *b, uint32_t i, Value y) {
  const Decay *d = &s->decay[i];
  if (!d->has) return y;
  if (!d->vector) return ir_2(b, OP_MUL, y, exp2_of(b, d->rest));
  y = ir_2(b, OP_MUL, y, col_scale(s, b, i));
  Value rest = ir_2(b, OP_SUB, d->total, d->anchor);
  return ir_2(b, OP_MUL, y, exp2_of(b, rest));
}

// ---------------------------------------------------------------- a chunk
static Value read_chunk(Steps *s, Builder *b, uint32_t i, uint32_t r,
                        Value state, const Value *e) {
  const Affine *a = &s->affine[i];
  int from = a->read[r].from;
  Value q = step_row(s, b, a->read[r].q), o = 0;
  for (uint32_t k = 0; k < a->nwrites; k++) {
    Sees sees = from == AFFINE_PRE ? SEES_BEFORE
                : (int)k < from    ? SEES_SELF
                                   : SEES_EARLIER;
    Value p = seen(s, b, i, q, step_col(s, b, a->write[k].b), sees);
    o = dot(b, p, e[k], o, s->col_axis);
  }
  q = since_start(s, b, i, spread(s, b, q, s->axis), from == AFFINE_PRE);
  return dot(b, q, state, o, a->row);
}

static Value next_state(Steps *s, Builder *b, uint32_t i, Value state,
                        const Value *e) {
  const Affine *a = &s->affine[i];
  const Decay *d = &s->decay[i];
  Value v = state;
  if (d->has) v = ir_2(b, OP_MUL, v, exp2_of(b, d->total));
  for (uint32_t k = 0; k < a->nwrites; k++) {
    Value y = spread(s, b, step_col(s, b, a->write[k].b), s->col_axis);
    v = dot(b, until_end(s, b, i, y), e[k], v, s->col_axis);
  }
  return v;
}

Value step_chunk(Steps *s, Builder *b, uint32_t i, Value state, Value *read) {
  const Affine *a = &s->affine[i];
  Value e[AFFINE_MAX];
  for (uint32_t k = 0; k < a->nwrites; k++)
    e[k] = step_col(s, b, a->write[k].w);
  for (uint32_t r = 0; r < a->nreads; r++)
    read[r] = read_chunk(s, b, i, r, state, e);
  return next_state(s, b, i, state, e);
}
