// The equations of one chunk for matrix units where writes erase (part of the
// pass `tile`): a step writes b (w - S^T a), with the S that the steps before
// it have left.
//
//   L = (a b^T) * 2 ** (G_t - G_s) below the diagonal,  T = (1 + L)^-1
//   E = T w - (T (a * 2 ** G)) S                what the chunk really writes
//   O = ((q b^T) * 2 ** (G_t - G_s)) E + (q * 2 ** G) S
//   S = 2 ** G_C S + (b * 2 ** (G_C - G_s))^T E
//
// Writes beside the one that erases are plain, w of b: the erasure takes off
// what they wrote, w - P_a W for w with P_a as P of a, and reads and the state
// get them as they are.
//
// In bf16 E is decayed to the chunk's end before it is rounded, once for O and
// S. As in matrix.c vectors are multiplied as they lie in memory and their
// factors taken off. T and what the chunk takes from the state do not depend
// on it: the pass `outline_chunks` finds them beforehand. Keys that repeat make
// writes of changing sign whose sum is small: where T and E are multiplied,
// each is the sum of two values of the inputs' type.
#include "passes/support/cost.h"
#include "passes/tile/step.h"

#include "ir/target.h"

#include <math.h>

static bool has_axis(const Func *f, Value v, uint32_t axis) {
  return type_has_axis(ir_type(f, v), axis);
}

// The write that erases.
static const AffineWrite *eraser(const Affine *a) {
  const AffineWrite *w = a->write;
  while (!w->a) w++;
  return w;
}

static bool one_erases(const Affine *a) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < a->nwrites; k++) n += a->write[k].a != 0;
  return n == 1;
}

bool tile_erase_only(const Func *f, const AffineWrite *w) {
  double k;
  return w->a && ir_const_value(f, w->w, &k) && k == 0;
}

bool tile_erase_suits(const Func *f, const Affine *a, const TilePlan *p,
                      const Target *tg) {
  int col = p->lane;
  if (!one_erases(a) || tg->gpu.vendor != VENDOR_NVIDIA || col < 0 ||
      (p->chunk && p->chunk != COST_GPU_CHUNK))
    return false;
  for (uint32_t k = 0; k < a->nwrites; k++) {
    const AffineWrite *w = &a->write[k];
    if (!has_axis(f, w->b, a->row) || (w->a && !has_axis(f, w->a, a->row)) ||
        (!has_axis(f, w->w, (uint32_t)col) && !tile_erase_only(f, w)))
      return false;
  }
  for (uint32_t k = 0; k < a->nreads; k++)
    if (!has_axis(f, a->read[k].q, a->row)) return false;
  return true;
}

bool tile_erase_fits(const Steps *s, uint32_t i) {
  return s->t->gpu && s->narrow != DT_NONE && s->n == 1 && !s->nmax &&
         type_has_axis(&s->type[i], (uint32_t)s->t->plan.lane) &&
         tile_erase_suits(s->t->from, &s->affine[i], &s->t->plan, s->t->target);
}

static Value times(Builder *b, Value x, Value f) {
  return f ? ir_2(b, OP_MUL, x, f) : x;
}

// ---------------------------------------------------------------- memory
// b without a factor 2 ** (the decay of its step), or 0.
static Value undecayed(const Steps *s, uint32_t i, Value v) {
  const Op *op = ir_def(s->t->from, v);
  for (uint32_t k = 0; op && op->code == OP_MUL && k < 2; k++)
    if (tile_matrix_is_decay(s, i, op->args[k])) return op->args[1 - k];
  return 0;
}

// Does it walk against the order of memory, with decays of rows? What it reads
// in front of a step's decay is scaled as the walk in that order scales what it
// writes, and the other way round: recurrence and adjoint have the same tiles.
static bool turns(const Steps *s, uint32_t i) {
  const Decay *d = &s->decay[i];
  return s->turned && d->vector && !d->columns && !d->fixed;
}

enum { MAX_SIDES = 4 };

// Steps as the walk in the order of memory counts them, until `turn_back`.
static void turn(Steps *s, Value *was) {
  Side *side[MAX_SIDES] = {&s->rows, &s->cols, &s->sums, &s->front_writes};
  s->turned = false;
  for (uint32_t k = 0; k < MAX_SIDES; k++) {
    was[k] = side[k]->step;
    side[k]->step = side[k]->at;
    side[k]->turned = false;
  }
}

static void turn_back(Steps *s, const Value *was) {
  Side *side[MAX_SIDES] = {&s->rows, &s->cols, &s->sums, &s->front_writes};
  s->turned = true;
  for (uint32_t k = 0; k < MAX_SIDES; k++) {
    side[k]->step = was[k];
    side[k]->turned = true;
  }
}

// ---------------------------------------------------------------- vectors
static Value since(Steps *s, Builder *b, uint32_t i, Side *side, Value v,
                   bool before) {
  if (s->decay[i].halves) return tile_halves_since(s, b, i, side, v, before);
  return tile_matrix_read_scaled(s, b, i, side, v, before);
}

static Value until(Steps *s, Builder *b, uint32_t i, Side *side, Vector x) {
  if (s->decay[i].halves) return tile_halves_until(s, b, i, side, x);
  return tile_matrix_write_scaled(s, b, i, side, x, 0);
}

// A decay per row is in the vectors themselves.
static Vector reader(Steps *s, Builder *b, uint32_t i, Side *side, Value v,
                     bool before) {
  Vector x = tile_matrix_vector(s, b, side, v, s->affine[i].row);
  Value was[MAX_SIDES];
  if (!s->decay[i].vector) return x;
  if (!before || !turns(s, i)) {
    x.v = since(s, b, i, side, x.v, before);
    return x;
  }
  turn(s, was);
  x.v = until(s, b, i, side, (Vector){.v = x.v});
  turn_back(s, was);
  return x;
}

static Vector writer(Steps *s, Builder *b, uint32_t i, Side *side,
                     const AffineWrite *w) {
  Value was[MAX_SIDES], q = turns(s, i) ? undecayed(s, i, w->b) : 0;
  Vector x = tile_matrix_vector(s, b, side, q ? q : w->b, s->affine[i].row);
  if (!s->decay[i].vector) return x;
  if (!turns(s, i)) return (Vector){.v = until(s, b, i, side, x)};
  turn(s, was);
  x.v = since(s, b, i, side, x.v, !q);
  turn_back(s, was);
  return (Vector){.v = times(b, x.v, x.f)};
}

static Value in_memory(Steps *s, Builder *b, uint32_t i, const Sight *at,
                       Value q, const AffineWrite *w);

// What vectors q along x see of those that w writes along y, but for q's
// factor.
static Value seen_of(Steps *s, Builder *b, uint32_t i, const Sight *at, Value q,
                     const AffineWrite *w) {
  if (at->sees == SEES_BEFORE && turns(s, i) &&
      !tile_matrix_vector(s, b, at->x, q, s->affine[i].row).f)
    return in_memory(s, b, i, at, q, w);
  if (s->decay[i].halves) return tile_halves_seen(s, b, i, at, q, w->b);
  Vector x = reader(s, b, i, at->x, q, at->sees == SEES_BEFORE);
  Vector y = writer(s, b, i, at->y, w);
  return tile_matrix_seen(s, b, i, at, x, y);
}

// The same of a walk that turns, as the walk in the order of memory has it:
// vectors change places, and sums of decays are those between the two.
static Value in_memory(Steps *s, Builder *b, uint32_t i, const Sight *at,
                       Value q, const AffineWrite *w) {
  Value was[MAX_SIDES], x = undecayed(s, i, w->b);
  Sight back = {.x = at->y, .y = at->x};
  AffineWrite y = {.b = q};
  back.sees = x ? SEES_EARLIER : SEES_BEFORE;
  if (!x) x = w->b;
  turn(s, was);
  Value p = seen_of(s, b, i, &back, x, &y);
  turn_back(s, was);
  return times(b, p, tile_matrix_vector(s, b, at->y, x, s->affine[i].row).f);
}

// A decay that is one number a step.
static bool has_course(const Steps *s, uint32_t i) {
  return s->decay[i].has && !s->decay[i].vector;
}

// What a step's own decay multiplies may be left to sums of decays.
static bool sums_decays(const Steps *s, uint32_t i) {
  return has_course(s, i) && !s->decay[i].fixed;
}

// ---------------------------------------------------------------- writes
// T, its rows along the columns' side: what it makes of values along the rows'
// side is along the columns'. Where elements lie against the order of the walk
// its transpose is solved, which is below the diagonal then.
static Value inverse(Steps *s, Builder *b, uint32_t i, bool before) {
  const AffineWrite *w = eraser(&s->affine[i]);
  Vector x = tile_matrix_vector(s, b, &s->cols, w->a, s->affine[i].row), y;
  Sight sight = {.x = &s->cols, .y = &s->rows};
  sight.sees = before ? SEES_BEFORE : SEES_EARLIER;
  Value l;
  if (sums_decays(s, i)) {
    y = tile_matrix_undecayed(s, b, i, &s->rows, w->b, &sight.decayed);
    l = tile_matrix_seen(s, b, i, &sight, x, y);
  } else l = seen_of(s, b, i, &sight, w->a, w);
  l = times(b, l, x.f);
  uint32_t rows = s->rows.axis, cols = s->cols.axis;
  uint32_t axes[] = {s->turned ? rows : cols, s->turned ? cols : rows};
  IrAttr at = attr_axes(b->fn->mod->arena, AT_AXES, axes, 2);
  return ir_op(b, OP_TRINV, &l, 1, &at, 1, NULL, 1, 0)->res[0];
}

static Value rest_of(Builder *b, Value x, Value part) {
  return ir_2(b, OP_SUB, x, ir_cast(b, DT_F32, part));
}

Pair tile_erase_split(const Steps *s, Builder *b, Value x) {
  Pair p = {.hi = ir_cast(b, s->narrow, x)};
  p.lo = ir_cast(b, s->narrow, rest_of(b, x, p.hi));
  return p;
}

static Value pair_dot(const Steps *s, Builder *b, Pair x, Value y, Value plus,
                      uint32_t over) {
  return tile_step_dot(s, b, x.lo, y, tile_step_dot(s, b, x.hi, y, plus, over),
                       over);
}

// -T (a * 2 ** G): what the chunk's writes take from each row of the state.
static Value taken(Steps *s, Builder *b, uint32_t i, Value t, bool before) {
  Vector x = reader(s, b, i, &s->rows, eraser(&s->affine[i])->a, before);
  t = times(b, t, x.f);
  if (has_course(s, i)) {
    Course c = tile_matrix_course(s, b, i, &s->rows);
    t = ir_2(b, OP_MUL, t, ir_1(b, OP_EXP2, before ? c.before : c.upto));
  }
  Pair p = tile_erase_split(s, b, t);
  Value w = 0;
  if (s->narrow == DT_BF16) {
    Value rest = rest_of(b, rest_of(b, t, p.hi), p.lo);
    w = tile_step_dot(s, b, ir_cast(b, s->narrow, rest), x.v, 0, s->rows.axis);
  }
  return ir_1(b, OP_NEG, pair_dot(s, b, p, x.v, w, s->rows.axis));
}

// Does what rounding the state leaves stay, and is it much?
static bool keeps_errors(const Steps *s, uint32_t i) {
  return s->narrow == DT_BF16 && !s->affine[i].decay;
}

const char *tile_erase_parts(const Steps *s) {
  return keeps_errors(s, 0)
             ? "what chunks take from a state is found of two values each, its "
               "factors and the state: without a decay errors stay"
             : "what chunks take from a state has factors of two values: keys "
               "that repeat make the same errors again";
}

// What a plain write writes, along a side; of a part's map nothing.
static Vector plain(Steps *s, Builder *b, Side *side, const AffineWrite *w) {
  uint32_t col = (uint32_t)s->t->plan.lane;
  Vector x = tile_matrix_vector(s, b, side, w->w, col);
  x.v = tile_linear_written(s->t, b, x.v, x.v);
  return x;
}

static Sees sees_write(const AffineWrite *w, const Affine *a, int from) {
  return from == AFFINE_PRE    ? SEES_BEFORE
         : w - a->write < from ? SEES_SELF
                               : SEES_EARLIER;
}

// Less what the erasure finds of the plain write w in each step.
static Value less_plain(Steps *s, Builder *b, uint32_t i, const AffineWrite *w,
                        Value f) {
  const Affine *a = &s->affine[i];
  const AffineWrite *e = eraser(a);
  Sight at = {.x = &s->rows, .y = &s->front_writes};
  at.sees = sees_write(w, a, e->from);
  Vector x = tile_matrix_vector(s, b, &s->rows, e->a, a->row);
  Value p = seen_of(s, b, i, &at, e->a, w);
  return ir_1(b, OP_NEG, times(b, times(b, p, f), x.f));
}

// What the erasing write writes is a factor times v in each step: that, on the
// diagonal of a tile. 0: it is not.
static Value on_diagonal(Steps *s, Builder *b, uint32_t i, Value v) {
  const Func *from = s->t->from;
  uint32_t col = (uint32_t)s->t->plan.lane;
  Value w = eraser(&s->affine[i])->w;
  const Op *neg = ir_def(from, w);
  bool turned = neg && neg->code == OP_NEG;
  if (turned) w = neg->args[0];
  if (tile_matrix_base(s, w, col) != tile_matrix_base(s, v, col)) return 0;
  Value one = ir_const_f(b, DT_F32, 1), zero = ir_const_f(b, DT_F32, 0);
  Value f = tile_matrix_vector(s, b, &s->rows, w, col).f;
  if (!f) f = one;
  if (turned) f = ir_1(b, OP_NEG, f);
  Value same = ir_2(b, OP_EQ, s->rows.step, s->front_writes.step);
  return ir_3(b, OP_SELECT, same, f, zero);
}

// T x, as the sum of two values.
static Pair inverse_times(const Steps *s, Builder *b, Value t, Value x) {
  Pair p = tile_erase_split(s, b, t), y = tile_erase_split(s, b, x);
  Value m = tile_step_dot(s, b, p.hi, y.lo, 0, s->rows.axis);
  m = pair_dot(s, b, p, y.hi, m, s->rows.axis);
  return tile_erase_split(s, b, m);
}

// T w, less T of what plain writes have put there. Where both are of one vector
// T is multiplied by the sum of what it is multiplied by.
static Value own(Steps *s, Builder *b, uint32_t i, Value t) {
  const Affine *a = &s->affine[i];
  const AffineWrite *w = eraser(a);
  bool done = tile_erase_only(s->t->from, w);
  Value e = 0;
  for (uint32_t k = 0; k < a->nwrites; k++) {
    if (a->write[k].a) continue;
    Vector y = plain(s, b, &s->front_writes, &a->write[k]);
    Value x = less_plain(s, b, i, &a->write[k], y.f);
    Value too = done ? 0 : on_diagonal(s, b, i, a->write[k].w);
    if (too) x = ir_2(b, OP_ADD, x, too), done = true;
    Pair p = inverse_times(s, b, t, x);
    e = pair_dot(s, b, p, y.v, e, s->front_writes.axis);
  }
  if (done) return e;
  Vector y =
      tile_matrix_vector(s, b, &s->rows, w->w, (uint32_t)s->t->plan.lane);
  Pair p = tile_erase_split(s, b, times(b, t, y.f));
  Value f = pair_dot(s, b, p, y.v, 0, s->rows.axis);
  f = tile_linear_written(s->t, b, f, y.v);
  return e ? ir_2(b, OP_ADD, e, f) : f;
}

// E, along the columns' side.
static Value solved(Steps *s, Builder *b, uint32_t i, Value state) {
  const Affine *a = &s->affine[i];
  bool before = eraser(a)->from == AFFINE_PRE;
  Value t = inverse(s, b, i, before);
  Value e = own(s, b, i, t);
  Pair from = tile_erase_split(s, b, taken(s, b, i, t, before));
  if (!keeps_errors(s, i)) return pair_dot(s, b, from, state, e, a->row);
  Pair of = tile_erase_split(s, b, state);
  e = pair_dot(s, b, from, of.hi, e, a->row);
  return tile_step_dot(s, b, from.hi, of.lo, e, a->row);
}

// ---------------------------------------------------------------- a chunk
// A read: its vectors, and what they find of the state before the chunk.
typedef struct Read {
  Vector q;
  Value of;  // the program's
  int from;
  bool before;
  Sight at;
  Value found;
} Read;

// What a chunk writes along the vectors y: e, and as the sum of two values.
typedef struct Writes {
  Value e;
  Pair pair;
  Vector y;
} Writes;

static Read open_read(Steps *s, Builder *b, uint32_t i, const AffineRead *r,
                      Value state) {
  const Affine *a = &s->affine[i];
  Read x = {.of = r->q, .from = r->from, .before = r->from == AFFINE_PRE};
  x.at = (Sight){.x = &s->rows, .y = &s->cols};
  x.at.sees = sees_write(eraser(a), a, r->from);
  x.q = reader(s, b, i, &s->rows, r->q, x.before);
  x.found = tile_step_dot(s, b, x.q.v, state, 0, s->affine[i].row);
  return x;
}

// Where its type has an f32's exponents what a chunk writes is kept as the
// chunk's end finds it: for the state, and for reads, whose P has the rest of
// the decay.
static bool is_at_end(const Steps *s, uint32_t i) {
  return has_course(s, i) && s->narrow == DT_BF16;
}

// But for what is beyond COST_ERASE_SPAN, where nothing is left of it.
static Value written(Steps *s, Builder *b, uint32_t i, Value e) {
  if (!is_at_end(s, i)) return e;
  Value least = ir_const_f(b, DT_F32, -COST_ERASE_SPAN);
  Value rest = tile_matrix_course(s, b, i, &s->cols).rest;
  Value left = ir_2(b, OP_MAX, rest, least);
  return ir_2(b, OP_MUL, e, ir_1(b, OP_EXP2, left));
}

// P of that. Where all keys are one its rows have one value, so that rounding
// it is as wrong for all writes, and their small sum right.
static Value seen_at_end(Steps *s, Builder *b, uint32_t i, const Read *x,
                         Value upto, Vector y) {
  Value p = tile_step_dot(s, b, x->q.v, y.v, 0, s->affine[i].row);
  Value span = ir_const_f(b, DT_F32, COST_ERASE_SPAN);
  Value first = tile_matrix_course(s, b, i, &s->cols).upto;
  Value most = ir_2(b, OP_SUB, first, span);
  Value end = ir_2(b, OP_MAX, s->decay[i].total, most);
  Value none = ir_const_f(b, DT_F32, -INFINITY);
  Value rest = ir_2(b, OP_SUB, upto, end);
  rest = ir_3(b, OP_SELECT, tile_step_sees(b, &x->at), rest, none);
  return times(b, ir_2(b, OP_MUL, p, ir_1(b, OP_EXP2, rest)), y.f);
}

static Value read_one(Steps *s, Builder *b, uint32_t i, const Read *x,
                      const Writes *w) {
  const Affine *a = &s->affine[i];
  Value o = x->found, p, upto = 0;
  if (has_course(s, i)) {
    Course c = tile_matrix_course(s, b, i, &s->rows);
    upto = x->before ? c.before : c.upto;
    o = ir_2(b, OP_MUL, o, ir_1(b, OP_EXP2, upto));
  }
  if (is_at_end(s, i)) p = seen_at_end(s, b, i, x, upto, w->y);
  else p = seen_of(s, b, i, &x->at, x->of, eraser(a));
  if (upto && !is_at_end(s, i)) {
    // Where all keys are one, P without a decay is as wrong everywhere.
    Pair two = tile_erase_split(s, b, p);
    o = tile_step_dot(s, b, two.lo, w->pair.hi, o, s->cols.axis);
    p = two.hi;
  }
  o = pair_dot(s, b, w->pair, p, o, s->cols.axis);
  for (uint32_t k = 0; k < a->nwrites; k++) {
    if (a->write[k].a) continue;
    Sight at = {.x = &s->rows, .y = &s->cols};
    at.sees = sees_write(&a->write[k], a, x->from);
    Vector y = plain(s, b, &s->cols, &a->write[k]);
    p = seen_of(s, b, i, &at, x->of, &a->write[k]);
    o = tile_step_dot(s, b, times(b, p, y.f), y.v, o, s->cols.axis);
  }
  return times(b, o, x->q.f);
}

// The state with what the plain writes leave at the end of the chunk.
static Value with_plain(Steps *s, Builder *b, uint32_t i, Value state) {
  const Affine *a = &s->affine[i];
  Value left = 0;
  if (has_course(s, i))
    left = ir_1(b, OP_EXP2, tile_matrix_course(s, b, i, &s->cols).rest);
  for (uint32_t k = 0; k < a->nwrites; k++) {
    if (a->write[k].a) continue;
    Vector w = plain(s, b, &s->cols, &a->write[k]);
    Vector x = writer(s, b, i, &s->cols, &a->write[k]);
    Value f = times(b, x.f ? x.f : w.f, x.f ? w.f : 0);
    if (left) f = times(b, left, f);
    Value e = f ? ir_2(b, OP_MUL, ir_cast(b, DT_F32, w.v), f) : w.v;
    state = tile_step_dot(s, b, e, x.v, state, s->cols.axis);
  }
  return state;
}

// The state behind the chunk, of what it writes.
static Value next_state(Steps *s, Builder *b, uint32_t i, Value state,
                        const Writes *w) {
  const Decay *d = &s->decay[i];
  Pair p = w->pair;
  Value f = w->y.f;
  if (d->halves) state = ir_2(b, OP_MUL, state, ir_1(b, OP_EXP2, d->total));
  if (has_course(s, i)) {
    state = ir_2(b, OP_MUL, state, ir_1(b, OP_EXP2, d->total));
    if (!is_at_end(s, i)) {
      Value left = ir_1(b, OP_EXP2, tile_matrix_course(s, b, i, &s->cols).rest);
      f = f ? ir_2(b, OP_MUL, f, left) : left;
    }
  }
  if (f) p = tile_erase_split(s, b, times(b, w->e, f));
  state = pair_dot(s, b, p, w->y.v, state, s->cols.axis);
  state = with_plain(s, b, i, state);
  return tile_matrix_half_decayed(s, b, i, state);
}

Value tile_erase_chunk(Steps *s, Builder *b, uint32_t i, Value state,
                       Value *read) {
  const Affine *a = &s->affine[i];
  tile_matrix_open(s, i);
  state = tile_matrix_half_decayed(s, b, i, state);
  Value e = solved(s, b, i, state);
  Read x[AFFINE_MAX];
  for (uint32_t k = 0; read && k < a->nreads; k++)
    x[k] = open_read(s, b, i, &a->read[k], state);
  Writes w = {.e = written(s, b, i, e)};
  w.pair = tile_erase_split(s, b, w.e);
  w.y = writer(s, b, i, &s->cols, eraser(a));
  for (uint32_t k = 0; read && k < a->nreads; k++)
    read[k] = read_one(s, b, i, &x[k], &w);
  if (read && a->written) read[a->nreads] = e;
  return next_state(s, b, i, state, &w);
}
