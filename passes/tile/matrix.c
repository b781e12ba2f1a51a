// The equations of one chunk for matrix units (part of the pass `tile`): the
// factors that a step has are taken off its vectors, so that products multiply
// tiles as they lie in memory, in 16 bits.
//
//   before  P = ((fq q) (fb b)^T) * 2 ** (G_t - G_s)    O = P (fw w) + ..
//   after   P = (q b^T) * 2 ** (G_t - G_s) * fb * fw    O = fq (P w + ..)
//
// For states with columns. Operands that are computed are rounded to the
// inputs' 16-bit type, as weights are; sums of decays are differences then,
// which is far more exact than that. Programs of f32 keep the sums of
// step.c, and so does a decay per row on a CPU. On sm_90a a state without
// columns, a normalizer, has sums of P's rows and of the keys in place of the
// products with w:
//
//   O = fq (sum of P's rows + ..)    S = 2 ** G_C S + sum of (fb fw) b
//
// A decay per row has no matrix of factors. Both sides of P are scaled relative
// to half of the chunk's decay, and the state with them; the sums are a product
// with a matrix of halves:
//
//   D_t = G_t - G_C / 2 = sum of h_ts g_s,  h = 1/2 where s <= t, else -1/2
// A decay per column is in the values in place of the vectors: w and what was
// read, P (w * 2 ** -D) + q T, are scaled.
//
//   P = (q * 2 ** D) (b * 2 ** -D)^T        T = 2 ** (G_C / 2) S
//   O = P w + (q * 2 ** D) T                S = 2 ** (G_C / 2) (T + (b 2 ** -D)^T w)
#include "passes/support/cost.h"
#include "passes/tile/step.h"

#include <math.h>

// Below this a decay is 0 in f32: sums of a chunk stay finite.
static const double none_left = -COST_DECAY_NONE;

// ---------------------------------------------------------------- vectors
static Value times(Builder *b, Value x, Value y) {
  return !x ? y : !y ? x : ir_2(b, OP_MUL, x, y);
}

static Value factor(Steps *s, Builder *b, Side *side, Value v) {
  return ir_cast(b, DT_F32, tile_step_along(s, b, side, v));
}

// v without its last cast, or its last factor: that, or 0. False: it has none.
static bool strip(const Func *f, Value *v, uint32_t axis, Value *factor) {
  const Op *op = ir_def(f, *v);
  DType t = ir_type(f, *v)->dtype;
  *factor = 0;
  if (!op) return false;
  if (op->code == OP_CAST && dtype_is_float(t) &&
      dtype_size(ir_type(f, op->args[0])->dtype) <= dtype_size(t) &&
      dtype_is_float(ir_type(f, op->args[0])->dtype)) {
    *v = op->args[0];
    return true;
  }
  int one = op->code != OP_MUL                              ? -1
            : !type_has_axis(ir_type(f, op->args[0]), axis) ? 0
            : !type_has_axis(ir_type(f, op->args[1]), axis) ? 1
                                                            : -1;
  if (one < 0) return false;
  *factor = op->args[one];
  *v = op->args[1 - one];
  return true;
}

static Vector vector(Steps *s, Builder *b, Side *side, Value v, uint32_t axis) {
  Vector x = {0};
  for (Value one; strip(s->t->from, &v, axis, &one);)
    if (one) x.f = times(b, x.f, factor(s, b, side, one));
  x.v = tile_step_spread(b, tile_step_along(s, b, side, v), side);
  return x;
}

bool tile_matrix_is_decay(const Steps *s, uint32_t i, Value f) {
  const Op *op = ir_def(s->t->from, f);
  return op && op->code == OP_EXP2 && op->args[0] == s->affine[i].decay;
}

Vector tile_matrix_undecayed(Steps *s, Builder *b, uint32_t i, Side *side,
                             Value v, bool *decayed) {
  Vector x = {0};
  *decayed = false;
  for (Value one; strip(s->t->from, &v, s->affine[i].row, &one);) {
    if (one && !*decayed && tile_matrix_is_decay(s, i, one)) *decayed = true;
    else if (one) x.f = times(b, x.f, factor(s, b, side, one));
  }
  x.v = tile_step_spread(b, tile_step_along(s, b, side, v), side);
  return x;
}

Value tile_matrix_base(const Steps *s, Value v, uint32_t axis) {
  Value one;
  while (strip(s->t->from, &v, axis, &one)) continue;
  return v;
}

// ---------------------------------------------------------------- decays
// Sums are those of the other walk then, so that its inverse is the same.
static bool counts_from_memory(const Steps *s, uint32_t i) {
  return s->turned && s->narrow && !s->decay[i].fixed && tile_erase_fits(s, i);
}

static Course course_in_memory(Steps *s, Builder *b, uint32_t i, Side *side,
                               Value own) {
  Course c = {0};
  Value all = s->decay[i].total;
  c.above = tile_step_scan(b, own, side->axis, DIR_PREFIX, false);
  c.below = ir_2(b, OP_SUB, c.above, own);
  c.before = ir_2(b, OP_SUB, all, c.above);
  c.upto = ir_2(b, OP_SUB, all, c.below);
  c.rest = c.below;
  return c;
}

static Course course(Steps *s, Builder *b, uint32_t i, Side *side) {
  uint32_t at = side == &s->cols ? 1 : side == &s->front_writes ? 2 : 0;
  Run *known = &s->decay[i].run[at], r = *known;
  if (!r.upto) r = *known = tile_step_run(s, b, i, side);
  Course c = {.upto = r.upto, .before = r.before, .rest = r.rest};
  if (s->decay[i].fixed || !s->narrow) return c;
  if (counts_from_memory(s, i)) return course_in_memory(s, b, i, side, r.own);
  c.before = ir_2(b, OP_SUB, r.upto, r.own);
  c.rest = ir_2(b, OP_SUB, s->decay[i].total, r.upto);
  return c;
}

Value tile_matrix_decay(Builder *b, Value g) {
  return ir_2(b, OP_MAX, g, ir_const_f(b, DT_F32, none_left));
}

// 2 ** (decay from a step of y to one of x), 0 where that is not seen.
static Value pair(Steps *s, Builder *b, uint32_t i, const Sight *at) {
  if (!s->narrow || s->decay[i].fixed) return tile_step_pair(s, b, i, at);
  Course cx = course(s, b, i, at->x), cy = course(s, b, i, at->y);
  bool before = at->sees == SEES_BEFORE;
  Value to = before ? cx.before : cx.upto;
  Value from = at->decayed ? cy.before : cy.upto;
  if (cx.above) {
    from = before ? cx.above : cx.below;
    to = at->decayed ? cy.above : cy.below;
  }
  Value e = ir_2(b, OP_SUB, to, from);
  Value none = ir_const_f(b, DT_F32, -INFINITY);
  e = ir_3(b, OP_SELECT, tile_step_sees(b, at), e, none);
  return ir_1(b, OP_EXP2, e);
}

// What vectors v along x see of vectors w along y, but for their factors.
static Value seen(Steps *s, Builder *b, uint32_t i, const Sight *at, Value v,
                  Value w) {
  Value p = tile_step_dot(s, b, v, w, 0, s->affine[i].row);
  if (s->decay[i].has && !s->decay[i].vector)
    return ir_2(b, OP_MUL, p, pair(s, b, i, at));
  Value zero = ir_const_f(b, DT_F32, 0);
  return ir_3(b, OP_SELECT, tile_step_sees(b, at), p, zero);
}

// What rows' vectors v see of the state before the chunk, but for v's factor.
static Value from_state(Steps *s, Builder *b, uint32_t i, Vector v, Value state,
                        bool before) {
  Value o = tile_step_dot(s, b, v.v, state, 0, s->affine[i].row);
  if (!s->decay[i].has || s->decay[i].vector) return o;
  Course c = course(s, b, i, &s->rows);
  Value f = ir_1(b, OP_EXP2, before ? c.before : c.upto);
  return ir_2(b, OP_MUL, o, f);
}

// ---------------------------------------------------------------- decay per row
// h_ts g_s summed over s, which runs along s->sums; before: without g_t, as h
// has
// -1/2 on its diagonal then. g is rounded to two numbers of 16 bits: that leaves
// 2^-16 of it out.
static Value course_rows(Steps *s, Builder *b, uint32_t i, Side *side,
                         bool before) {
  Value g =
      tile_step_spread(b, tile_step_along(s, b, &s->sums, s->affine[i].decay),
                       &s->sums);
  g = tile_matrix_decay(b, g);
  Value hi = ir_cast(b, s->narrow, g);
  Value lo = ir_2(b, OP_SUB, g, ir_cast(b, DT_F32, hi));
  lo = ir_cast(b, s->narrow, lo);
  OpCode upto = before ? OP_LT : OP_LE;
  Value below = ir_const_f(b, DT_F32, -0.5), above = ir_const_f(b, DT_F32, 0.5);
  Value h = ir_2(b, upto, s->sums.step, side->step);
  h = ir_3(b, OP_SELECT, h, above, below);
  h = ir_cast(b, s->narrow, h);
  Value d = tile_step_dot(s, b, h, lo, 0, s->sums.axis);
  return tile_step_dot(s, b, h, hi, d, s->sums.axis);
}

Value tile_matrix_read_scaled(Steps *s, Builder *b, uint32_t i, Side *side,
                              Value q, bool before) {
  // A second matrix, where products cost little: the gates need not be kept.
  bool cheap = s->t->target->gpu.hopper;
  Value d = course_rows(s, b, i, side, before && cheap);
  if (before && !cheap)
    d = ir_2(b, OP_SUB, d, tile_step_own_decay(s, b, i, side));
  Value decay = ir_1(b, OP_EXP2, d);
  return ir_2(b, OP_MUL, ir_cast(b, DT_F32, q), decay);
}

Value tile_matrix_write_scaled(Steps *s, Builder *b, uint32_t i, Side *side,
                               Vector x, Value f) {
  Value d = ir_1(b, OP_NEG, course_rows(s, b, i, side, false));
  Value decay = ir_1(b, OP_EXP2, d);
  Value v = ir_2(b, OP_MUL, ir_cast(b, DT_F32, x.v), decay);
  f = times(b, x.f, f);
  return f ? ir_2(b, OP_MUL, v, f) : v;
}

Value tile_matrix_half_decayed(Steps *s, Builder *b, uint32_t i, Value state) {
  if (!s->decay[i].vector || s->decay[i].halves) return state;
  Value half = ir_const_f(b, DT_F32, 0.5);
  half = ir_2(b, OP_MUL, s->decay[i].total, half);
  return ir_2(b, OP_MUL, state, ir_1(b, OP_EXP2, half));
}

// ---------------------------------------------------------------- a chunk
typedef struct Written {
  uint32_t n;
  Vector b[AFFINE_MAX], w[AFFINE_MAX];  // w.v is 0 where there are no columns
} Written;

static Value plus(Builder *b, Value x, Value y) {
  return ir_2(b, OP_ADD, x, y);
}

static Value read_one(Steps *s, Builder *b, uint32_t i, uint32_t r, Value state,
                      const Written *w) {
  const Affine *a = &s->affine[i];
  int from = a->read[r].from;
  bool before = from == AFFINE_PRE;
  Vector q = vector(s, b, &s->rows, a->read[r].q, a->row);
  if (s->decay[i].vector && !s->decay[i].columns)
    q.v = tile_matrix_read_scaled(s, b, i, &s->rows, q.v, before);
  Value o = from_state(s, b, i, q, state, before);
  for (uint32_t k = 0; k < w->n; k++) {
    Sight at = {.x = &s->rows, .y = &s->cols, .sees = SEES_EARLIER};
    if ((int)k < from) at.sees = SEES_SELF;
    if (before) at.sees = SEES_BEFORE;
    Value p = seen(s, b, i, &at, q.v, w->b[k].v);
    p = times(b, p, times(b, w->b[k].f, w->w[k].f));
    if (w->w[k].v) o = tile_step_dot(s, b, p, w->w[k].v, o, s->cols.axis);
    else o = plus(b, o, ir_reduce(b, RK_SUM, p, &s->cols.axis, 1));
  }
  if (s->decay[i].columns)
    o = tile_matrix_read_scaled(s, b, i, &s->rows, o, before);
  return q.f ? ir_2(b, OP_MUL, o, q.f) : o;
}

static Value next_state(Steps *s, Builder *b, uint32_t i, Value state,
                        const Written *w) {
  const Decay *d = &s->decay[i];
  Value v = state, left = 0;
  if (d->has && !d->vector) {
    v = ir_2(b, OP_MUL, v, ir_1(b, OP_EXP2, d->total));
    left = ir_1(b, OP_EXP2, course(s, b, i, &s->cols).rest);
  }
  for (uint32_t k = 0; k < w->n; k++) {
    Value f = times(b, times(b, left, w->b[k].f), w->w[k].f);
    Value e = w->w[k].v;
    if (!e) e = tile_step_spread(b, f, &s->cols);
    else if (f) e = ir_2(b, OP_MUL, ir_cast(b, DT_F32, e), f);
    v = tile_step_dot(s, b, e, w->b[k].v, v, s->cols.axis);
  }
  return d->vector ? tile_matrix_half_decayed(s, b, i, v) : v;
}

static bool has_axis(const Func *f, Value v, uint32_t axis) {
  return type_has_axis(ir_type(f, v), axis);
}

// The axis of the columns; -1: the state has none.
static int column(const Steps *s, uint32_t i) {
  const Type *t = &s->type[i];
  if (s->t->gpu) return s->t->plan.lane;
  for (uint32_t k = 0; k < t->n; k++)
    if (t->axis[k] != s->affine[i].row) return (int)t->axis[k];
  return -1;
}

bool tile_matrix_bare(const Func *f, const Op *op) {
  Affine a;
  const Type *t = ir_type(f, op->res[0]);
  if (!affine_parts(op, &a) || tile_step_erases(&a)) return false;
  for (uint32_t k = 0; k < t->n; k++)
    if (t->axis[k] != a.row && f->axes.at[t->axis[k]].role != AX_PAR)
      return false;
  if (a.decay && has_axis(f, a.decay, a.row)) return false;
  for (uint32_t k = 0; k < a.nwrites; k++)
    if (!has_axis(f, a.write[k].b, a.row) || has_axis(f, a.write[k].w, a.row))
      return false;
  for (uint32_t k = 0; k < a.nreads; k++)
    if (!has_axis(f, a.read[k].q, a.row)) return false;
  return true;
}

// All that the walk carries has no columns.
static bool all_bare(const Steps *s) {
  for (uint32_t i = 0; i < s->n; i++)
    if (!tile_matrix_bare(s->t->from, s->op[i])) return false;
  return s->t->target->gpu.hopper && s->narrow != DT_NONE;
}

// A CPU has registers for factors in f32; without pairs nothing is gained.
bool tile_matrix_fits(const Steps *s, uint32_t i) {
  if (all_bare(s)) return true;
  const Affine *a = &s->affine[i];
  const Func *f = s->t->from;
  int col = column(s, i);
  bool rows = a->decay && type_has_axis(ir_type(f, a->decay), a->row);
  if (!s->t->gpu && (rows || s->narrow == DT_NONE)) return false;
  int each = tile_step_column(s, i);
  if (each >= 0 && (!s->t->gpu || s->narrow == DT_NONE || each != col))
    return false;
  if (tile_step_erases(a) || col < 0 || (rows && s->narrow == DT_NONE) ||
      !type_has_axis(&s->type[i], (uint32_t)col))
    return false;
  for (uint32_t k = 0; k < a->nwrites; k++)
    if (!has_axis(f, a->write[k].b, a->row) ||
        !has_axis(f, a->write[k].w, (uint32_t)col))
      return false;
  for (uint32_t k = 0; k < a->nreads; k++)
    if (!has_axis(f, a->read[k].q, a->row)) return false;
  return true;
}

static Written written(Steps *s, Builder *b, uint32_t i) {
  const Affine *a = &s->affine[i];
  uint32_t col = (uint32_t)column(s, i);
  Written w = {.n = a->nwrites};
  bool bare = tile_matrix_bare(s->t->from, s->op[i]);
  tile_matrix_open(s, i);
  for (uint32_t k = 0; k < w.n; k++) {
    w.b[k] = vector(s, b, &s->cols, a->write[k].b, a->row);
    w.w[k] = bare ? (Vector){.f = factor(s, b, &s->cols, a->write[k].w)}
                  : vector(s, b, &s->cols, a->write[k].w, col);
    if (!s->decay[i].vector) continue;
    if (s->decay[i].columns) {
      w.w[k] = (Vector){
          .v = tile_matrix_write_scaled(s, b, i, &s->cols, w.w[k], w.b[k].f)};
      w.b[k].f = 0;
      continue;
    }
    w.b[k] = (Vector){
        .v = tile_matrix_write_scaled(s, b, i, &s->cols, w.b[k], w.w[k].f)};
    w.w[k].f = 0;
  }
  return w;
}

Value tile_matrix_state(Steps *s, Builder *b, uint32_t i, Value state) {
  if (tile_erase_fits(s, i)) return tile_erase_chunk(s, b, i, state, NULL);
  Written w = written(s, b, i);
  if (s->decay[i].vector) state = tile_matrix_half_decayed(s, b, i, state);
  return next_state(s, b, i, state, &w);
}

Value tile_matrix_chunk(Steps *s, Builder *b, uint32_t i, Value state,
                        Value *read) {
  Written w = written(s, b, i);
  if (s->decay[i].vector) state = tile_matrix_half_decayed(s, b, i, state);
  for (uint32_t r = 0; r < s->affine[i].nreads; r++)
    read[r] = read_one(s, b, i, r, state, &w);
  return next_state(s, b, i, state, &w);
}

// ---------------------------------------------------------------- shared
void tile_matrix_open(Steps *s, uint32_t i) {
  for (uint32_t k = 0; k < MAX_COURSES; k++) s->decay[i].run[k] = (Run){0};
}

Vector tile_matrix_vector(Steps *s, Builder *b, Side *side, Value v,
                          uint32_t axis) {
  return vector(s, b, side, v, axis);
}

Course tile_matrix_course(Steps *s, Builder *b, uint32_t i, Side *side) {
  return course(s, b, i, side);
}

Value tile_matrix_seen(Steps *s, Builder *b, uint32_t i, const Sight *at,
                       Vector v, Vector w) {
  return times(b, seen(s, b, i, at, v.v, w.v), w.f);
}
