// The equations of one chunk of a recurrence (see chunk.c).
#include "passes/support/cost.h"
#include "passes/tile/step.h"

#include "ir/target.h"

#include <float.h>
#include <math.h>

bool tile_step_erases(const Affine *a) {
  for (uint32_t i = 0; i < a->nwrites; i++)
    if (a->write[i].a) return true;
  return false;
}

int tile_step_column(const Steps *s, uint32_t i) {
  const Affine *a = &s->affine[i];
  const Type *t = a->decay ? ir_type(s->t->from, a->decay) : NULL;
  for (uint32_t k = 0; t && k < t->n; k++)
    if (t->axis[k] != a->row && t->axis[k] != s->axis &&
        s->t->from->axes.at[t->axis[k]].role != AX_PAR)
      return (int)t->axis[k];
  return s->t->plan.lane >= 0 && t &&
                 type_has_axis(t, (uint32_t)s->t->plan.lane) &&
                 (uint32_t)s->t->plan.lane != a->row
             ? s->t->plan.lane
             : -1;
}

// Of several writes in one step only the first may read the state before it.
static bool can_chunk(const Affine *a) {
  for (uint32_t i = 1; i < a->nwrites; i++)
    if (a->write[i].from == AFFINE_PRE && a->decay) return false;
  return true;
}

// Do the operands of a chunk's products fit into shared memory? f32 has three
// parts (passes/gpu/dot.c).
static bool tiles_fit(const Steps *s, int64_t side) {
  const Target *tg = s->t->target;
  int64_t n = 0, rows = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    const Affine *a = &s->affine[i];
    Dim d = s->t->from->axes.at[a->row].extent;
    if (!dim_is_const(&s->t->from->mod->dims, d, &rows)) return false;
    n += side * rows * (a->nwrites + (i == 0));
    if (s->type[i].n > 1) n += side * side * (1 + a->nwrites) + side * rows;
  }
  n *= s->narrow != DT_NONE ? 2 : 6;
  return n + COST_STEP_SMEM <= (int64_t)tg->gpu.smem;
}

// Where several writes a step erase and rows decay group_bounds, the triangular
// system and the scaled sides cost a CPU more than the steps do.
static bool steps_are_faster(const Steps *s) {
  const Func *f = s->t->from;
  for (uint32_t i = 0; i < s->n; i++) {
    const Affine *a = &s->affine[i];
    if (a->nwrites > 1 && tile_step_erases(a) && a->decay &&
        type_has_axis(ir_type(f, a->decay), a->row))
      return true;
  }
  return false;
}

int64_t tile_step_choose(const Steps *s) {
  for (uint32_t i = 0; i < s->n; i++)
    if (tile_step_column(s, i) >= 0 && !tile_matrix_fits(s, i)) return 1;
  for (uint32_t i = 0; i < s->n; i++)
    if (!tile_erase_fits(s, i) &&
        (!can_chunk(&s->affine[i]) ||
         (s->t->gpu && tile_step_erases(&s->affine[i]))))
      return 1;
  const TilePlan *p = &s->t->plan;
  if (!s->t->gpu)
    return p->chunk ? p->chunk : steps_are_faster(s) ? 1 : COST_STEP_CHUNK;
  int64_t n = p->most_chunk;
  while (n > p->least_chunk && !tiles_fit(s, n)) n /= 2;
  if (!tiles_fit(s, n)) return 1;
  return p->chunk ? p->chunk : n;
}

// ---------------------------------------------------------------- helpers
Value tile_step_spread(Builder *b, Value v, const Side *side) {
  if (type_has_axis(ir_type(b->fn, v), side->axis)) return v;
  Type t = type_with(*ir_type(b->fn, v), side->axis, side->size);
  Value zero = tile_const(b, t, 0);
  return ir_3(b, OP_SELECT, ir_const_i(b, DT_BOOL, 1), v, zero);
}

// Is v of 16 bits, as inputs are?
static bool is_narrow(const Steps *s, const Builder *b, Value v) {
  const Op *op = ir_def(b->fn, v);
  if (op && op->code == OP_CAST) v = op->args[0];
  return ir_type(b->fn, v)->dtype == s->narrow;
}

// An operand of a product of matrices, in 16 bits if inputs are.
static Value narrow(const Steps *s, Builder *b, Value v) {
  const Op *op = ir_def(b->fn, v);
  if (op && op->code == OP_CAST &&
      ir_type(b->fn, op->args[0])->dtype == s->narrow)
    return op->args[0];
  return dtype_size(ir_type(b->fn, v)->dtype) > 2 ? ir_cast(b, s->narrow, v)
                                                  : v;
}

Value tile_step_dot(const Steps *s, Builder *b, Value x, Value y, Value plus,
                    uint32_t over) {
  bool tiles = ir_type(b->fn, x)->n == 2 && ir_type(b->fn, y)->n == 2;
  // A CPU rounds one operand of a product at most: f32 costs it twice the time,
  // not six times.
  tiles &= s->t->gpu || is_narrow(s, b, x) || is_narrow(s, b, y);
  if (s->narrow != DT_NONE && tiles) {
    x = narrow(s, b, x);
    y = narrow(s, b, y);
  }
  if (!plus) return ir_dot(b, x, y, &over, 1);
  Value args[3] = {x, y, plus};
  IrAttr a = attr_axes(b->fn->mod->arena, AT_OVER, &over, 1);
  return ir_op(b, OP_DOT, args, 3, &a, 1, NULL, 1, 0)->res[0];
}

Value tile_step_scan(Builder *b, Value v, uint32_t axis, ScanDir dir,
                     bool exclusive) {
  IrAttr a[4] = {attr_i(AT_KIND, RK_SUM), attr_i(AT_AXIS, axis),
                 attr_i(AT_DIR, dir), attr_i(AT_EXCLUSIVE, 1)};
  return ir_op(b, OP_SCAN, &v, 1, a, exclusive ? 4 : 3, NULL, 1, 0)->res[0];
}

// In the order of the walk.
static Value scan(const Steps *s, Builder *b, Value v, uint32_t axis,
                  ScanDir dir, bool exclusive) {
  ScanDir back = dir == DIR_PREFIX ? DIR_SUFFIX : DIR_PREFIX;
  return tile_step_scan(b, v, axis, s->turned ? back : dir, exclusive);
}

static Value zero_f(Builder *b) {
  return ir_const_f(b, DT_F32, 0);
}

static Value exp2_of(Builder *b, Value v) {
  return ir_1(b, OP_EXP2, v);
}

// g times a count of steps. A decay to 0 is one of -inf, which no step is 0 of.
static Value steps_of(Builder *b, Value g, Value count) {
  g = ir_2(b, OP_MAX, g, ir_const_f(b, DT_F32, -FLT_MAX / (1 << 20)));
  return ir_2(b, OP_MUL, ir_cast(b, DT_F32, count), g);
}

static Value plus_one(Builder *b, Value n) {
  return ir_2(b, OP_ADD, n, ir_const_i(b, DT_I64, 1));
}

// ---------------------------------------------------------------- decays
// The decay of each element: that of its step, at the first of its writes.
Value tile_step_own_decay(Steps *s, Builder *b, uint32_t i, Side *side) {
  Value g = tile_step_spread(b, tile_step_along(s, b, side, s->affine[i].decay),
                             side);
  if (s->narrow != DT_NONE) g = tile_matrix_decay(b, g);
  if (side->each == 1) return g;
  Value first = ir_2(b, OP_EQ, side->slot, ir_const_i(b, DT_I64, 0));
  return ir_3(b, OP_SELECT, first, g, zero_f(b));
}

Run tile_step_run(Steps *s, Builder *b, uint32_t i, Side *side) {
  Run r = {0};
  if (s->decay[i].fixed) {
    Value g = tile_step_along(s, b, side, s->affine[i].decay);
    Value n = plus_one(b, side->step);
    Value left = ir_2(b, OP_SUB, ir_const_i(b, DT_I64, s->chunk), n);
    r.upto = steps_of(b, g, n);
    r.before = steps_of(b, g, side->step);
    r.rest = steps_of(b, g, left);
    return r;
  }
  r.own = tile_step_own_decay(s, b, i, side);
  r.upto = scan(s, b, r.own, side->axis, DIR_PREFIX, false);
  r.before = scan(s, b, r.own, side->axis, DIR_PREFIX, true);
  r.rest = scan(s, b, r.own, side->axis, DIR_SUFFIX, true);
  return r;
}

// From each write of side y to each element of side x that reads: sums of what
// lies between, never differences of long sums.
static Value pair_exponent(Steps *s, Builder *b, uint32_t i, Side *x, Side *y,
                           bool before) {
  const Decay *d = &s->decay[i];
  if (d->fixed) {
    Value n = ir_2(b, OP_SUB, x->step, y->step);
    if (before) n = ir_2(b, OP_SUB, n, ir_const_i(b, DT_I64, 1));
    return steps_of(b, tile_step_along(s, b, x, s->affine[i].decay), n);
  }
  Value later = x->each > 1 ? ir_2(b, OP_LT, y->at, x->at)
                            : ir_2(b, OP_LT, y->step, x->step);
  Value zero = zero_f(b);
  Value g = ir_3(b, OP_SELECT, later, tile_step_own_decay(s, b, i, x), zero);
  return scan(s, b, g, x->axis, DIR_PREFIX, before);
}

Value tile_step_sees(Builder *b, const Sight *at) {
  const Side *x = at->x, *y = at->y;
  OpCode less = at->sees == SEES_SELF ? OP_LE : OP_LT;
  if (!at->from && x->turned && y->turned) return ir_2(b, less, x->at, y->at);
  if (!at->from) return ir_2(b, less, y->step, x->step);
  Value same = ir_2(b, OP_EQ, y->step, x->step);
  same = ir_2(b, OP_AND, same, ir_2(b, OP_LT, y->slot, at->from));
  return ir_2(b, OP_OR, same, ir_2(b, OP_LT, y->step, x->step));
}

static Value largest(Builder *b, const Side *x, RKind k, Value v) {
  v = ir_reduce(b, k, v, &x->axis, 1);
  return ir_2(b, k == RK_MAX ? OP_MAX : OP_MIN, v, zero_f(b));
}

// No course goes further than the whole decay and what growth adds to it.
Value tile_step_growth(Steps *s, Builder *b, uint32_t i) {
  Value g = tile_step_own_decay(s, b, i, &s->rows);
  int col = tile_step_column(s, i);
  uint32_t each = col < 0 ? s->affine[i].row : (uint32_t)col;
  g = ir_reduce(b, RK_MAX, g, (uint32_t[]){each, s->rows.axis}, 2);
  g = ir_2(b, OP_MAX, g, zero_f(b));
  return ir_2(b, OP_MUL, g, ir_const_f(b, DT_F32, 2.0 * (double)s->chunk));
}

// The middle of the decay's course; whether it goes no further than
// COST_CHUNK_SPAN.
static Value set_anchor(Steps *s, Builder *b, uint32_t i) {
  Decay *d = &s->decay[i];
  Value half = ir_const_f(b, DT_F32, 0.5), span;
  bool matrix = tile_matrix_fits(s, i) || tile_erase_fits(s, i);
  if (s->affine[i].falling || matrix) {
    d->anchor = ir_2(b, OP_MUL, d->total, half);
    span = ir_1(b, OP_NEG, d->total);
    if (!s->affine[i].falling)
      span = ir_2(b, OP_ADD, span, tile_step_growth(s, b, i));
  } else {
    Run r = tile_step_run(s, b, i, &s->rows);
    Value hi = largest(b, &s->rows, RK_MAX, r.upto);
    Value lo = largest(b, &s->rows, RK_MIN, r.upto);
    d->anchor = ir_2(b, OP_MUL, ir_2(b, OP_ADD, hi, lo), half);
    span = ir_2(b, OP_SUB, hi, lo);
  }
  bool wide = tile_matrix_fits(s, i) && s->narrow == DT_BF16;
  double most = wide ? COST_CHUNK_WIDE_SPAN : COST_CHUNK_SPAN;
  Value ok = ir_2(b, OP_LE, span, ir_const_f(b, DT_F32, most));
  Type t = type_scalar(DT_BOOL);
  return ir_op(b, OP_ALL_OF, &ok, 1, NULL, 0, &t, 1, 0)->res[0];
}

Value tile_step_pair(Steps *s, Builder *b, uint32_t i, const Sight *at) {
  bool steps = at->x == &s->rows && at->y == &s->cols && !at->from;
  Value known = s->decay[i].pair[at->sees];
  if (steps && known) return known;
  Value e = pair_exponent(s, b, i, at->x, at->y, at->sees == SEES_BEFORE);
  Value none = ir_const_f(b, DT_F32, -INFINITY);
  return exp2_of(b, ir_3(b, OP_SELECT, tile_step_sees(b, at), e, none));
}

static void open_wide(Steps *s, Builder *b, uint32_t i) {
  const Affine *a = &s->affine[i];
  if (!tile_step_erases(a) || a->nwrites == 1) return;
  for (int k = 0; k < 2; k++) {
    DimTab *d = &s->t->to->mod->dims;
    Dim all = dim_const(d, s->chunk * a->nwrites);
    uint32_t axis = ir_axis(s->t->to, "write", AX_STEP, all);
    s->wide[i][k] = tile_step_side(s, b, axis, a->nwrites);
  }
}

// Steps as what a sum of decays is over, where sums are products.
static void open_sums(Steps *s, Builder *b, uint32_t i) {
  const Affine *a = &s->affine[i];
  bool rows = a->decay && type_has_axis(ir_type(s->t->from, a->decay), a->row);
  if ((!rows && tile_step_column(s, i) < 0) || s->sums.each ||
      (!tile_matrix_fits(s, i) && !tile_erase_fits(s, i)))
    return;
  const Axis *x = &s->t->from->axes.at[s->axis];
  uint32_t axis = ir_axis(s->t->to, x->name, AX_STEP, x->extent);
  s->sums = tile_step_side(s, b, axis, 1);
}

// Steps as those of plain writes, which another one takes off.
static void open_front(Steps *s, Builder *b, uint32_t i) {
  const Affine *a = &s->affine[i];
  if (a->nwrites < 2 || !tile_erase_fits(s, i)) return;
  const Axis *x = &s->t->from->axes.at[s->axis];
  uint32_t axis = ir_axis(s->t->to, x->name, AX_STEP, x->extent);
  s->front_writes = tile_step_side(s, b, axis, 1);
}

void tile_step_constants(Steps *s, Builder *b, ValueMap *m) {
  for (uint32_t i = 0; i < s->n; i++) {
    const Affine *a = &s->affine[i];
    Decay *d = &s->decay[i];
    open_wide(s, b, i);
    open_sums(s, b, i);
    open_front(s, b, i);
    if (!a->decay) continue;
    const Type *t = ir_type(s->t->from, a->decay);
    *d = (Decay){.has = true,
                 .vector = type_has_axis(t, a->row),
                 .columns = tile_step_column(s, i) >= 0,
                 .fixed = !type_has_axis(t, s->axis) && !s->wide[i][0].each};
    d->vector |= d->columns;
    d->halves = !d->fixed && tile_halves_fit(s, i);
    if (!d->fixed) continue;
    s->rows.map = s->cols.map = *m;
    Value g = tile_step_value(s, b, a->decay, m);
    d->total = steps_of(b, g, ir_const_i(b, DT_I64, s->chunk));
    // A GPU has no registers for these.
    for (int k = 0; k < 3 && !d->vector && !s->t->gpu; k++) {
      Sight at = {.x = &s->rows, .y = &s->cols, .sees = (Sees)k};
      d->pair[k] = tile_step_pair(s, b, i, &at);
    }
  }
}

Value tile_step_prepare(Steps *s, Builder *b, uint32_t i) {
  Decay *d = &s->decay[i];
  if (!d->has) return 0;
  // Along the rows of the walk in the order of memory (erase.c).
  bool turns = s->turned && d->vector && tile_erase_fits(s, i);
  Side *side = turns ? &s->cols : &s->rows;
  if (!d->fixed)
    d->total = d->halves
                   ? tile_halves_total(s, b, i)
                   : ir_reduce(b, RK_SUM, tile_step_own_decay(s, b, i, side),
                               &side->axis, 1);
  if (d->halves) d->weak = tile_halves_weak(s, b, i);
  bool any = d->halves || tile_halves_never(s, i);
  return d->vector && !any ? set_anchor(s, b, i) : 0;
}

// ---------------------------------------------------------------- products
// 2 ** (the decay up to the element - anchor).
static Value row_scale(Steps *s, Builder *b, uint32_t i, Side *x, bool before) {
  Run r = tile_step_run(s, b, i, x);
  return exp2_of(b, ir_2(b, OP_SUB, before ? r.before : r.upto,
                         s->decay[i].anchor));
}

// 2 ** (anchor - the decay up to the element).
static Value col_scale(Steps *s, Builder *b, uint32_t i, Side *y) {
  const Decay *d = &s->decay[i];
  Value rest = ir_2(b, OP_SUB, d->total, d->anchor);
  return exp2_of(b, ir_2(b, OP_SUB, tile_step_run(s, b, i, y).rest, rest));
}

// What vectors v along x see of vectors w along y: a tile {x, y}.
static Value seen(Steps *s, Builder *b, uint32_t i, const Sight *at, Value v,
                  Value w) {
  const Decay *d = &s->decay[i];
  if (d->vector) {
    bool before = at->sees == SEES_BEFORE;
    v = ir_2(b, OP_MUL, v, row_scale(s, b, i, at->x, before));
    w = ir_2(b, OP_MUL, w, col_scale(s, b, i, at->y));
  }
  Value p = tile_step_dot(s, b, v, w, 0, s->affine[i].row);
  p = tile_step_spread(b, tile_step_spread(b, p, at->x), at->y);
  if (d->has && !d->vector)
    return ir_2(b, OP_MUL, p, tile_step_pair(s, b, i, at));
  Value zero = zero_f(b);
  return ir_3(b, OP_SELECT, tile_step_sees(b, at), p, zero);
}

// v along x, decayed since the start of the chunk.
static Value since_start(Steps *s, Builder *b, uint32_t i, Side *x, Value v,
                         bool before) {
  const Decay *d = &s->decay[i];
  if (!d->has) return v;
  if (d->vector) {
    v = ir_2(b, OP_MUL, v, row_scale(s, b, i, x, before));
    return ir_2(b, OP_MUL, v, exp2_of(b, d->anchor));
  }
  Run r = tile_step_run(s, b, i, x);
  return ir_2(b, OP_MUL, v, exp2_of(b, before ? r.before : r.upto));
}

// w along y, decayed to the end of the chunk.
static Value until_end(Steps *s, Builder *b, uint32_t i, Side *y, Value w) {
  const Decay *d = &s->decay[i];
  if (!d->has) return w;
  if (!d->vector)
    return ir_2(b, OP_MUL, w, exp2_of(b, tile_step_run(s, b, i, y).rest));
  w = ir_2(b, OP_MUL, w, col_scale(s, b, i, y));
  return ir_2(b, OP_MUL, w, exp2_of(b, ir_2(b, OP_SUB, d->total, d->anchor)));
}

// ---------------------------------------------------------------- writes
// The writes of a state as vectors along one side of the chunk: several of a
// step are told apart by their slot.
typedef enum Part { PART_B, PART_W, PART_A } Part;

static Value part_of(const AffineWrite *w, Part p) {
  return p == PART_B ? w->b : p == PART_W ? w->w : w->a;
}

static Value written(Steps *s, Builder *b, uint32_t i, Side *side, Part p) {
  const Affine *a = &s->affine[i];
  Value v = 0;
  for (uint32_t k = 0; k < a->nwrites; k++) {
    Value x = part_of(&a->write[k], p);
    x = x ? ir_cast(b, DT_F32, tile_step_along(s, b, side, x)) : zero_f(b);
    if (side->each == 1) return tile_step_spread(b, x, side);
    Value here = ir_2(b, OP_EQ, side->slot, ir_const_i(b, DT_I64, k));
    v = v ? v : zero_f(b);
    v = ir_3(b, OP_SELECT, here, tile_step_spread(b, x, side), v);
  }
  return v;
}

// The version that each element's `a` reads, as a value of its side.
static Value version_of(Steps *s, Builder *b, uint32_t i, const Side *side) {
  const Affine *a = &s->affine[i];
  if (side->each == 1) return 0;
  Value v = ir_const_i(b, DT_I64, 0);
  for (uint32_t k = 1; k < a->nwrites; k++) {
    if (a->write[k].from <= 0) continue;
    Value here = ir_2(b, OP_EQ, side->slot, ir_const_i(b, DT_I64, k));
    v = ir_3(b, OP_SELECT, here, ir_const_i(b, DT_I64, a->write[k].from), v);
  }
  return v;
}

// E of (1 + L) E = W - (a decayed) S: what each write really adds, along y.
static Value solved(Steps *s, Builder *b, uint32_t i, Side *x, Side *y,
                    Value state) {
  const Affine *a = &s->affine[i];
  bool before = a->write[0].from == AFFINE_PRE;
  // Without its own step's decay: later writes of a step have none.
  Sight at = {.x = y, .y = x, .sees = before ? SEES_BEFORE : SEES_EARLIER};
  Value erase = written(s, b, i, y, PART_A);
  // Rows of L are along y, so that its inverse ends there.
  at.from = version_of(s, b, i, y);
  Value l = seen(s, b, i, &at, erase, written(s, b, i, x, PART_B));
  IrAttr axes =
      attr_axes(b->fn->mod->arena, AT_AXES, (uint32_t[]){y->axis, x->axis}, 2);
  Value inv = ir_op(b, OP_TRINV, &l, 1, &axes, 1, NULL, 1, 0)->res[0];
  Value r = since_start(s, b, i, x, written(s, b, i, x, PART_A), before);
  r = tile_step_dot(s, b, r, state, 0, a->row);
  r = ir_2(b, OP_SUB, written(s, b, i, x, PART_W), r);
  return tile_step_dot(s, b, inv, r, 0, x->axis);
}

// ---------------------------------------------------------------- a chunk
typedef struct Writes {
  uint32_t n;  // groups of writes, each along a side
  Side *side;
  Value b[AFFINE_MAX], e[AFFINE_MAX];
} Writes;

static Writes all_writes(Steps *s, Builder *b, uint32_t i, Value state) {
  const Affine *a = &s->affine[i];
  Writes w = {.n = a->nwrites, .side = &s->cols};
  if (tile_step_erases(a)) {
    bool wide = a->nwrites > 1;
    w.n = 1;
    w.side = wide ? &s->wide[i][1] : &s->cols;
    Side *x = wide ? &s->wide[i][0] : &s->rows;
    w.e[0] = solved(s, b, i, x, w.side, state);
    w.b[0] = written(s, b, i, w.side, PART_B);
    return w;
  }
  for (uint32_t k = 0; k < w.n; k++) {
    w.b[k] = tile_step_along(s, b, &s->cols, a->write[k].b);
    w.e[k] = tile_step_along(s, b, &s->cols, a->write[k].w);
  }
  return w;
}

static Value read_chunk(Steps *s, Builder *b, uint32_t i, const AffineRead *r,
                        Value state, const Writes *w) {
  const Affine *a = &s->affine[i];
  int from = r->from;
  Value q = tile_step_along(s, b, &s->rows, r->q), o = 0;
  for (uint32_t k = 0; k < w->n; k++) {
    Sight at = {.x = &s->rows, .y = w->side};
    at.sees = from == AFFINE_PRE ? SEES_BEFORE
              : (int)k < from    ? SEES_SELF
                                 : SEES_EARLIER;
    // It sees a part of the writes of its own step.
    if (w->side->each > 1 && from > 0 && from < (int)a->nwrites)
      at.from = ir_const_i(b, DT_I64, from);
    Value p = seen(s, b, i, &at, q, w->b[k]);
    o = tile_step_dot(s, b, p, w->e[k], o, w->side->axis);
  }
  q = tile_step_spread(b, q, &s->rows);
  q = since_start(s, b, i, &s->rows, q, from == AFFINE_PRE);
  return tile_step_dot(s, b, q, state, o, a->row);
}

// What the only write that erases writes: where writes are told apart by their
// slot, w less what it finds in each step.
static Value written_chunk(Steps *s, Builder *b, uint32_t i, Value state,
                           const Writes *w) {
  const AffineWrite *x = s->affine[i].write;
  if (w->side->each == 1) return w->e[0];
  while (!x->a) x++;
  AffineRead r = {.q = x->a, .from = x->from};
  Value e = ir_cast(b, DT_F32, tile_step_along(s, b, &s->rows, x->w));
  Value old = read_chunk(s, b, i, &r, state, w);
  return ir_2(b, OP_SUB, e, old);
}

static Value next_state(Steps *s, Builder *b, uint32_t i, Value state,
                        const Writes *w) {
  const Decay *d = &s->decay[i];
  Value v = state;
  if (d->has) v = ir_2(b, OP_MUL, v, exp2_of(b, d->total));
  for (uint32_t k = 0; k < w->n; k++) {
    Value y =
        until_end(s, b, i, w->side, tile_step_spread(b, w->b[k], w->side));
    v = tile_step_dot(s, b, y, w->e[k], v, w->side->axis);
  }
  return v;
}

Value tile_step_chunk(Steps *s, Builder *b, uint32_t i, Value state,
                      Value *read) {
  const Affine *a = &s->affine[i];
  if (tile_erase_fits(s, i)) return tile_erase_chunk(s, b, i, state, read);
  if (tile_matrix_fits(s, i)) return tile_matrix_chunk(s, b, i, state, read);
  Writes w = all_writes(s, b, i, state);
  for (uint32_t r = 0; r < a->nreads; r++)
    read[r] = read_chunk(s, b, i, &a->read[r], state, &w);
  if (a->written) read[a->nreads] = written_chunk(s, b, i, state, &w);
  return next_state(s, b, i, state, &w);
}
