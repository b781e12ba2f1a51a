// The equations of one chunk for matrix units where writes erase (part of the
// pass `tile`): a step writes b (w - S^T a), with the S that the steps before
// it have left.
//
//   L = (a b^T) * 2 ** (G_t - G_s) below the diagonal,  T = (1 + L)^-1
//   E = T w - (T (a * 2 ** G)) S                what the chunk really writes
//   O = ((q b^T) * 2 ** (G_t - G_s)) E + (q * 2 ** G) S
//   S = 2 ** G_C S + (b * 2 ** (G_C - G_s))^T E
//
// As in tilematrix.c vectors are multiplied as they lie in memory and their
// factors taken off. T and what the chunk takes from the state do not depend
// on it: the pass `hoist` finds them beforehand. Keys that repeat make writes
// of changing sign whose sum is small: where T and E are multiplied, each is
// the sum of two values of the inputs' type.
#include "passes/tilestep.h"

#include "ir/target.h"

static bool has_axis(const Func *f, Value v, uint32_t axis) {
  return type_has_axis(ir_type(f, v), axis);
}

bool erase_fits(const Steps *s, uint32_t i) {
  const Affine *a = &s->affine[i];
  const Func *f = s->t->from;
  const Target *tg = target_by_name(s->t->to->mod->target);
  int col = s->t->plan.lane;
  const AffineWrite *w = &a->write[0];
  if (!s->t->gpu || !step_erases(a) || tg->gpu.vendor != VENDOR_NVIDIA ||
      s->narrow == DT_NONE || s->n > 1 || s->nmax || a->nwrites > 1 || col < 0 ||
      (s->t->plan.chunk && s->t->plan.chunk != GPU_CHUNK))
    return false;
  if (!has_axis(f, w->b, a->row) || !has_axis(f, w->a, a->row) ||
      !has_axis(f, w->w, (uint32_t)col) ||
      !type_has_axis(&s->type[i], (uint32_t)col))
    return false;
  for (uint32_t k = 0; k < a->nreads; k++)
    if (!has_axis(f, a->read[k].q, a->row)) return false;
  return true;
}

static Value times(Builder *b, Value x, Value f) {
  return f ? ir_2(b, OP_MUL, x, f) : x;
}

// ---------------------------------------------------------------- vectors
// A decay per row is in the vectors themselves.
static Vector reader(Steps *s, Builder *b, uint32_t i, Side *side, Value v,
                     bool before) {
  Vector x = matrix_vector(s, b, side, v, s->affine[i].row);
  if (s->decay[i].vector)
    x.v = matrix_read_scaled(s, b, i, side, x.v, before);
  return x;
}

static Vector writer(Steps *s, Builder *b, uint32_t i, Side *side) {
  const Affine *a = &s->affine[i];
  Vector x = matrix_vector(s, b, side, a->write[0].b, a->row);
  if (!s->decay[i].vector) return x;
  return (Vector){.v = matrix_write_scaled(s, b, i, side, x, 0)};
}

// A decay that is one number a step.
static bool has_course(const Steps *s, uint32_t i) {
  return s->decay[i].has && !s->decay[i].vector;
}

// ---------------------------------------------------------------- writes
// T, its rows along the columns' side: what it makes of values along the rows'
// side is along the columns'.
static Value inverse(Steps *s, Builder *b, uint32_t i, bool before) {
  Vector x = reader(s, b, i, &s->cols, s->affine[i].write[0].a, before);
  Vector y = writer(s, b, i, &s->rows);
  Value l = matrix_seen(s, b, i, &s->cols, x, &s->rows, y,
                        before ? SEES_BEFORE : SEES_EARLIER);
  l = times(b, l, x.f);
  IrAttr at = attr_axes(b->fn->mod->arena, AT_AXES,
                        (uint32_t[]){s->cols.axis, s->rows.axis}, 2);
  return ir_op(b, OP_TRINV, &l, 1, &at, 1, NULL, 1, 0)->res[0];
}

// Two values of the narrow type whose sum has twice its bits.
typedef struct Pair {
  Value hi, lo;
} Pair;

static Pair split(const Steps *s, Builder *b, Value x) {
  Pair p = {.hi = ir_cast(b, s->narrow, x)};
  Value rest = ir_2(b, OP_SUB, x, ir_cast(b, DT_F32, p.hi));
  p.lo = ir_cast(b, s->narrow, rest);
  return p;
}

static Value pair_dot(const Steps *s, Builder *b, Pair x, Value y, Value plus,
                      uint32_t over) {
  return step_dot(s, b, x.lo, y, step_dot(s, b, x.hi, y, plus, over), over);
}

// -T (a * 2 ** G): what the chunk's writes take from each row of the state.
static Value taken(Steps *s, Builder *b, uint32_t i, Value t, bool before) {
  const Affine *a = &s->affine[i];
  Vector x = reader(s, b, i, &s->rows, a->write[0].a, before);
  t = times(b, t, x.f);
  if (has_course(s, i)) {
    Course c = matrix_course(s, b, i, &s->rows);
    t = ir_2(b, OP_MUL, t, ir_1(b, OP_EXP2, before ? c.before : c.upto));
  }
  t = pair_dot(s, b, split(s, b, t), x.v, 0, s->rows.axis);
  return ir_1(b, OP_NEG, t);
}

// E, along the columns' side.
static Value solved(Steps *s, Builder *b, uint32_t i, Value state) {
  const Affine *a = &s->affine[i];
  const AffineWrite *w = &a->write[0];
  bool before = w->from == AFFINE_PRE;
  Value t = inverse(s, b, i, before);
  Vector y = matrix_vector(s, b, &s->rows, w->w, (uint32_t)s->t->plan.lane);
  Pair p = split(s, b, times(b, t, y.f));
  Value e = pair_dot(s, b, p, y.v, 0, s->rows.axis);
  return step_dot(s, b, taken(s, b, i, t, before), state, e, a->row);
}

// ---------------------------------------------------------------- a chunk
// What a read finds of the state before the chunk. Its vector is scaled, not
// what it finds: that is found beforehand, and reads add up without a stop.
static Value from_before(Steps *s, Builder *b, uint32_t i, Vector q,
                         Value state, bool before) {
  Value x = q.v;
  if (has_course(s, i)) {
    Course c = matrix_course(s, b, i, &s->rows);
    Value f = ir_1(b, OP_EXP2, before ? c.before : c.upto);
    x = ir_2(b, OP_MUL, ir_cast(b, DT_F32, x), f);
  }
  return step_dot(s, b, x, state, 0, s->affine[i].row);
}

static Value read_one(Steps *s, Builder *b, uint32_t i, const AffineRead *r,
                      Value state, Vector y, Pair e) {
  bool before = r->from == AFFINE_PRE;
  Vector q = reader(s, b, i, &s->rows, r->q, before);
  Sees sees = before ? SEES_BEFORE : r->from > 0 ? SEES_SELF : SEES_EARLIER;
  Value o = from_before(s, b, i, q, state, before);
  Value p = matrix_seen(s, b, i, &s->rows, q, &s->cols, y, sees);
  if (has_course(s, i)) {
    // Where all keys are one, P without a decay is as wrong everywhere.
    Pair two = split(s, b, p);
    o = step_dot(s, b, two.lo, e.hi, o, s->cols.axis);
    p = two.hi;
  }
  return times(b, pair_dot(s, b, e, p, o, s->cols.axis), q.f);
}

Value erase_chunk(Steps *s, Builder *b, uint32_t i, Value state, Value *read) {
  const Affine *a = &s->affine[i];
  const Decay *d = &s->decay[i];
  s->decay[i].run[0] = s->decay[i].run[1] = (Run){0};
  if (d->vector) state = matrix_half_decayed(s, b, i, state);
  Value e = solved(s, b, i, state);
  Pair p = split(s, b, e);
  Vector y = writer(s, b, i, &s->cols);
  for (uint32_t k = 0; k < a->nreads; k++)
    read[k] = read_one(s, b, i, &a->read[k], state, y, p);
  Value f = y.f;
  if (has_course(s, i)) {
    state = ir_2(b, OP_MUL, state, ir_1(b, OP_EXP2, d->total));
    Value left = ir_1(b, OP_EXP2, matrix_course(s, b, i, &s->cols).rest);
    f = f ? ir_2(b, OP_MUL, f, left) : left;
  }
  if (f) p = split(s, b, times(b, e, f));
  state = pair_dot(s, b, p, y.v, state, s->cols.axis);
  return d->vector ? matrix_half_decayed(s, b, i, state) : state;
}
