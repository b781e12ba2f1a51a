// `affine` as loops over chunks of steps (part of the pass `tile`).
//
//   for(%c0 = 0, end, C, %S) {            G_t = sum of g over s <= t
//     if (%c0 + C <= end) {
//       P = (q b^T) * 2 ** (G_t - G_s), where s <= t
//       O = P w + (q * 2 ** G_t) S
//       S = 2 ** G_C * S + (b * 2 ** (G_C - G_s))^T w
//     } else { for(%j) { the steps themselves } }
//   }
//
// Rows of P are the steps that read, columns those that write: two axes over
// the same steps. No exponent is formed that is not that of a decay from one
// step to a later one, so nothing overflows. A decay per row of the state has
// no such matrix: both sides are scaled relative to the middle of the chunk,
// as long as the decay over the whole chunk is small enough; chunks where it
// is not are done step by step.
//
// Writes that erase (e = w - S^T a, with the S that earlier writes of the same
// chunk have changed) are the solution of a triangular system:
// (I + L) E = W - (a * 2 ** G) S, L = (a b^T) * 2 ** (G_t - G_s) below the
// diagonal.
#include "ir/target.h"
#include "passes/tile/tile.h"
#include "passes/tile/step.h"

#include <math.h>

// ---------------------------------------------------------------- values
static bool mapped(const ValueMap *m, Value v) {
  return v < m->n && m->to[v];
}

Value tile_step_value(Steps *s, Builder *b, Value v, ValueMap *m) {
  if (mapped(m, v)) return vmap_get(m, v);
  const Op *op = ir_def(s->t->from, v);
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(s->t->from, op->args[i])->kind == TK_ELEM)
      tile_step_value(s, b, op->args[i], m);
  tile_op(s->t, b, op, m);
  return vmap_get(m, v);
}

// Step number j counts in the order of the walk.
Value tile_step_coordinate(const Steps *s, Builder *b, Value j) {
  if (!s->reverse) return j;
  Value last = ir_2(b, OP_SUB, s->end, ir_const_i(b, DT_I64, 1));
  return ir_2(b, OP_SUB, last, j);
}

static bool uses_axis(const Steps *s, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Type *t = ir_type(s->t->from, op->args[i]);
    if (t->kind == TK_ELEM && type_has_axis(t, s->axis)) return true;
  }
  return false;
}

// Where the recurrence ends, or 0: at the end of its axis.
static Value limit_of(const Steps *s) {
  bool maxima = !s->n && ir_attr_i(s->max[0], AT_LIMIT, 0);
  return s->n ? s->affine[0].limit : maxima ? s->max[0]->args[3] : 0;
}

// The mask says that the step is in front of the recurrence's end, as all are
// that are walked. AMD's compiler spills more without it (packed GLA).
static bool always_holds(const Steps *s, Value mask) {
  if (s->t->target->gpu.vendor == VENDOR_AMD) return false;
  const Func *f = s->t->from;
  const Op *lt = ir_def(f, mask);
  const Op *t = lt && lt->code == OP_LT ? ir_def(f, lt->args[0]) : NULL;
  return t && t->code == OP_INDEX && ir_attr_i(t, AT_AXIS, -1) == s->axis &&
         lt->args[1] == limit_of(s);
}

static void store(Steps *s, Builder *b, const Op *op, ValueMap *m) {
  for (uint32_t i = 1; i < op->nargs; i++)
    tile_step_value(s, b, op->args[i], m);
  Value last = op->args[op->nargs - 1];
  s->t->holds = always_holds(s, last) ? last : 0;
  tile_op(s->t, b, op, m);
  s->t->holds = 0;
}

// Does v, which is stored, take what a write writes?
static bool takes_written(const Steps *s, Value v) {
  const Op *op = ir_def(s->t->from, v);
  for (uint32_t i = 0; i < s->n; i++)
    if (s->affine[i].written && op == s->op[i])
      return v == op->res[affine_written_at(&s->affine[i])];
  for (uint32_t i = 0; op && !op->nregions && i < op->nargs; i++)
    if (type_has_axis(ir_type(s->t->from, op->args[i]), s->axis) &&
        takes_written(s, op->args[i]))
      return true;
  return false;
}

// What the walk stores of its reads, at the steps whose values m has; of a
// chunk, what it writes is at those of cols.
static void stores(Steps *s, Builder *b, ValueMap *m, ValueMap *cols) {
  Value rows = s->t->coord[s->axis];
  if (s->t->share == SHARE_STATES) return;
  for (const Op *op = s->first; op; op = op->next) {
    if (op->code != OP_STORE || !uses_axis(s, op)) continue;
    if (s->chunk > 1 && tile_front_takes(s, op)) continue;
    bool by_cols = cols && s->on_cols && takes_written(s, op->args[1]);
    if (by_cols) s->t->coord[s->axis] = s->cols.coord;
    store(s, b, op, by_cols ? cols : m);
    s->t->coord[s->axis] = rows;
  }
}

// ---------------------------------------------------------------- one step
static Value version(const Value *v, int from) {
  return v[from + 1];
}

// The state after step j; its reads go to the map.
static Value one_state(Steps *s, Builder *b, uint32_t i, Value state,
                       ValueMap *m) {
  const Affine *a = &s->affine[i];
  uint32_t row = a->row;
  Value at[AFFINE_MAX + 2];
  at[0] = at[1] = state;
  tile_front_step(s, i, state, m);
  if (a->decay) {
    Value g = tile_step_value(s, b, a->decay, m);
    at[1] = ir_2(b, OP_MUL, ir_1(b, OP_EXP2, g), state);
  }
  for (uint32_t k = 0; k < a->nwrites; k++) {
    const AffineWrite *w = &a->write[k];
    Value e = tile_step_value(s, b, w->w, m);
    e = tile_linear_written(s->t, b, e, 0);
    if (w->a) {
      Value x = tile_step_value(s, b, w->a, m);
      e = ir_2(b, OP_SUB, e, ir_dot(b, x, version(at, w->from), &row, 1));
      if (a->written) vmap_put(m, s->op[i]->res[affine_written_at(a)], e);
    }
    Value add = ir_2(b, OP_MUL, tile_step_value(s, b, w->b, m), e);
    at[k + 2] = ir_2(b, OP_ADD, at[k + 1], add);
  }
  for (uint32_t k = 0; k < a->nreads; k++) {
    Value q = tile_step_value(s, b, a->read[k].q, m);
    Value o = ir_dot(b, q, version(at, a->read[k].from), &row, 1);
    vmap_put(m, s->op[i]->res[k + 1], o);
  }
  return at[a->nwrites + 1];
}

static uint32_t carried(const Steps *s) {
  return s->n + s->nmax;
}

void tile_step_max(Steps *s, Builder *b, uint32_t i, Value *m_now,
                   ValueMap *m) {
  const Op *op = s->max[i];
  vmap_put(m, op->res[1], *m_now);
  Value x = ir_2(b, OP_ADD, *m_now, tile_step_value(s, b, op->args[1], m));
  *m_now = ir_2(b, OP_MAX, x, tile_step_value(s, b, op->args[2], m));
}

Op *tile_step_loop(Builder *b, const StepLoop *l, Value *old) {
  Value args[3 + 4 * MAX_WALK] = {l->lo, l->hi, l->step};
  uint32_t n = l->n;
  for (uint32_t i = 0; i < n; i++) args[i + 3] = l->all[i];
  Op *loop = ir_op(b, OP_FOR, args, n + 3, NULL, 0, l->type, n, 1);
  ir_region_param(loop->regions[0], type_scalar(DT_I64), l->hint);
  for (uint32_t i = 0; i < n; i++)
    old[i] = ir_region_param(loop->regions[0], l->type[i], "state");
  return loop;
}

// A loop that carries all that the walk does.
static Op *walk_loop(Steps *s, Builder *b, StepLoop l, Value *old) {
  l.n = carried(s);
  l.type = s->type;
  return tile_step_loop(b, &l, old);
}

// Steps lo .. hi, one after the other.
static void walk_steps(Steps *s, Builder *b, Value lo, Value hi,
                       const ValueMap *pre, Value *state) {
  Value old[2 * MAX_WALK];
  StepLoop l = {lo, hi, ir_const_i(b, DT_I64, 1), "t", .all = state};
  Op *loop = walk_loop(s, b, l, old);
  Region *body = loop->regions[0];
  Builder in = {.fn = b->fn, .region = body, .span = b->span};
  ValueMap m = tile_map_copy(s->t, pre);
  s->t->coord[s->axis] = tile_step_coordinate(s, &in, body->params.at[0]);
  for (uint32_t i = 0; i < s->nmax; i++)
    tile_step_max(s, &in, i, &old[s->n + i], &m);
  for (uint32_t i = 0; i < s->n; i++) old[i] = one_state(s, &in, i, old[i], &m);
  stores(s, &in, &m, NULL);
  ir_yield(&in, old, carried(s));
  s->t->coord[s->axis] = 0;
  for (uint32_t i = 0; i < carried(s); i++) state[i] = loop->res[i];
}

// ---------------------------------------------------------------- chunks
Side tile_step_side(Steps *s, Builder *b, uint32_t axis, uint32_t each) {
  Side x = {.axis = axis, .each = each, .turned = s->turned};
  x.size = dim_const(&b->fn->mod->dims, s->chunk * each);
  x.at = ir_iota(b, axis, x.size);
  x.step = x.at;
  if (s->turned) {
    Value last = ir_const_i(b, DT_I64, s->chunk - 1);
    x.step = ir_2(b, OP_SUB, last, x.at);
  }
  if (each == 1) return x;
  Value n = ir_const_i(b, DT_I64, each);
  x.step = ir_2(b, OP_FLOORDIV, x.at, n);
  x.slot = ir_2(b, OP_MOD, x.at, n);
  return x;
}

void tile_step_open(Steps *s, Builder *b, Side *side, Value base,
                    const ValueMap *pre) {
  if (s->turned) {
    Value top = ir_2(b, OP_ADD, base, ir_const_i(b, DT_I64, s->chunk));
    side->coord = ir_2(b, OP_ADD, ir_2(b, OP_SUB, s->end, top), side->at);
  } else {
    side->coord = tile_step_coordinate(s, b, ir_2(b, OP_ADD, base, side->step));
  }
  side->map = tile_map_copy(s->t, pre);
}

Value tile_step_along(Steps *s, Builder *b, Side *side, Value v) {
  Value saved = s->t->coord[s->axis];
  s->t->coord[s->axis] = side->coord;
  v = tile_step_value(s, b, v, &side->map);
  s->t->coord[s->axis] = saved;
  return v;
}

static void open_chunk(Steps *s, Builder *b, Value base, const ValueMap *pre) {
  tile_step_open(s, b, &s->rows, base, pre);
  tile_step_open(s, b, &s->cols, base, pre);
  if (s->sums.each) tile_step_open(s, b, &s->sums, base, pre);
  if (s->front_writes.each) tile_step_open(s, b, &s->front_writes, base, pre);
  for (uint32_t i = 0; i < s->n; i++)
    for (int k = 0; k < 2 && s->wide[i][k].each; k++)
      tile_step_open(s, b, &s->wide[i][k], base, pre);
}

static void do_chunk(Steps *s, Builder *b, Value *state) {
  for (uint32_t i = 0; i < s->n; i++) {
    Value read[AFFINE_MAX + 1];
    const Affine *a = &s->affine[i];
    state[i] = tile_step_chunk(s, b, i, state[i], read);
    s->on_cols = a->written &&
                 type_has_axis(ir_type(b->fn, read[a->nreads]), s->cols.axis);
    for (uint32_t k = 0; k < a->nreads + a->written; k++) {
      bool cols = k == a->nreads && s->on_cols;
      vmap_put(cols ? &s->cols.map : &s->rows.map, s->op[i]->res[k + 1],
               read[k]);
    }
  }
  s->t->coord[s->axis] = s->rows.coord;
  stores(s, b, &s->rows.map, &s->cols.map);
  s->t->coord[s->axis] = 0;
}

// Running maxima and decays of the chunk; a bool if it can only be done where
// that holds, or 0.
static Value prepare(Steps *s, Builder *b, Value base, const ValueMap *pre,
                     Value *state) {
  Value ok = 0;
  if (s->nmax) tile_step_maxima(s, b, base, pre, state);
  for (uint32_t i = 0; i < s->n; i++) {
    Value fits = tile_step_prepare(s, b, i);
    ok = !fits ? ok : ok ? ir_2(b, OP_AND, ok, fits) : fits;
  }
  return ok;
}

static Value both(Builder *b, Value x, Value y) {
  return x && y ? ir_2(b, OP_AND, x, y) : x ? x : y;
}

// One turn of the loop over chunks: all of C steps at once, or what is left.
static void turn(Steps *s, Builder *b, Value base, const ValueMap *pre,
                 Value *state) {
  Value top = ir_2(b, OP_ADD, base, ir_const_i(b, DT_I64, s->chunk));
  Value ok = 0, other[2 * MAX_WALK];
  bool early = false;  // decays decide
  for (uint32_t i = 0; i < carried(s); i++) other[i] = state[i];
  for (uint32_t i = 0; i < s->n; i++) early |= s->decay[i].vector;
  tile_front_store(s, b, base, pre, state);
  open_chunk(s, b, base, pre);
  if (!s->whole) ok = ir_2(b, OP_LE, top, s->stop);
  ok = both(b, ok, early ? prepare(s, b, base, pre, state) : 0);
  if (!ok) {
    prepare(s, b, base, pre, state);
    do_chunk(s, b, state);
    return;
  }
  uint32_t n = carried(s);
  Op *br = ir_op(b, OP_IF, &ok, 1, NULL, 0, s->type, n, 2);
  Builder in = {.fn = b->fn, .region = br->regions[0], .span = b->span};
  if (!early) prepare(s, &in, base, pre, state);
  do_chunk(s, &in, state);
  ir_yield(&in, state, n);
  in.region = br->regions[1];
  walk_steps(s, &in, base, ir_2(&in, OP_MIN, top, s->stop), pre, other);
  ir_yield(&in, other, n);
  for (uint32_t i = 0; i < n; i++) state[i] = br->res[i];
}

// The steps of a chunk that are left are as good as all.
static void maxima_turn(Steps *s, Builder *b, Value base, const ValueMap *pre,
                        Value *state) {
  tile_max_chunk(s, b, base, pre, state);
  s->t->coord[s->axis] = s->rows.coord;
  stores(s, b, &s->rows.map, NULL);
  s->t->coord[s->axis] = 0;
}

// Blocks whose state is kept are chunks, counted from the first step. Walked
// from the last, the steps that make no whole one are done in front.
static void align(Steps *s, Builder *b) {
  if (!s->front || !s->reverse) return;
  Value n = s->end, size = ir_int(b, s->chunk);
  Value up = ir_2(b, OP_ADD, n, ir_int(b, s->chunk - 1));
  s->end = ir_2(b, OP_MUL, ir_2(b, OP_FLOORDIV, up, size), size);
  s->pad = ir_2(b, OP_SUB, s->end, n);
  s->whole = true;
}

static void walk_head(Steps *s, Builder *b, const ValueMap *pre, Value *state) {
  if (!s->pad) return;
  Value zero = ir_int(b, 0), size = ir_int(b, s->chunk);
  Value some = ir_2(b, OP_LT, s->from, s->pad);
  uint32_t n = carried(s);
  Op *br = ir_op(b, OP_IF, &some, 1, NULL, 0, s->type, n, 2);
  Builder in = {.fn = b->fn, .region = br->regions[1], .span = b->span};
  ir_yield(&in, state, n);
  in.region = br->regions[0];
  tile_front_store(s, &in, s->pad, pre, state);
  walk_steps(s, &in, s->pad, size, pre, state);
  ir_yield(&in, state, n);
  for (uint32_t i = 0; i < n; i++) state[i] = br->res[i];
  Value done = ir_3(b, OP_SELECT, some, size, zero);
  s->from = ir_2(b, OP_ADD, s->from, done);
}

static void walk_chunks(Steps *s, Builder *b, const ValueMap *pre,
                        Value *state) {
  Value old[2 * MAX_WALK];
  walk_head(s, b, pre, state);
  Value step = ir_const_i(b, DT_I64, s->chunk);
  StepLoop l = {s->from, s->stop, step, "c0", .all = state};
  Op *loop = walk_loop(s, b, l, old);
  Builder in = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  (tile_max_fit(s) ? maxima_turn : turn)(s, &in, in.region->params.at[0], pre,
                                         old);
  ir_yield(&in, old, carried(s));
  for (uint32_t i = 0; i < carried(s); i++) state[i] = loop->res[i];
}

// The state after a whole chunk, of which nothing is read.
static Value part_chunk(Steps *s, Builder *b, Value base, const ValueMap *pre,
                        Value state) {
  open_chunk(s, b, base, pre);
  Value fits = tile_step_prepare(s, b, 0), other = state;
  if (!fits) return tile_matrix_state(s, b, 0, state);
  Op *br = ir_op(b, OP_IF, &fits, 1, NULL, 0, s->type, 1, 2);
  Builder in = {.fn = b->fn, .region = br->regions[0], .span = b->span};
  state = tile_matrix_state(s, &in, 0, state);
  ir_yield(&in, &state, 1);
  in.region = br->regions[1];
  Value top = ir_2(&in, OP_ADD, base, ir_const_i(&in, DT_I64, s->chunk));
  walk_steps(s, &in, base, top, pre, &other);
  ir_yield(&in, &other, 1);
  return br->res[0];
}

// ---------------------------------------------------------------- parts
// The state, spread over its axes if it starts with fewer.
static Value initial(Steps *s, Builder *b, uint32_t i, ValueMap *m) {
  const Op *op = i < s->n ? s->op[i] : s->max[i - s->n];
  Value v = tile_step_value(s, b, op->args[0], m);
  if (type_eq(ir_type(b->fn, v), &s->type[i])) return v;
  Value zero = tile_const(b, s->type[i], 0);
  return ir_3(b, OP_SELECT, ir_const_i(b, DT_BOOL, 1), v, zero);
}

// The first state, loaded where it is needed: it takes many registers.
static Value first_state(Steps *s, Builder *b, const ValueMap *pre) {
  ValueMap m = tile_map_copy(s->t, pre);
  vmap_put(&m, (s->n ? s->op[0] : s->max[0])->args[0], 0);
  return initial(s, b, 0, &m);
}

static Value join_parts(Steps *s, Builder *b, const ValueMap *pre) {
  Op *br = s->t->plan.linear ? tile_linear_begin(s->t, b, s->type[0])
                             : tile_parts_join(s->t, b, s->type[0]);
  Builder in = {.fn = b->fn, .region = br->regions[1], .span = b->span};
  Value first = first_state(s, &in, pre);
  ir_yield(&in, &first, 1);
  return br->res[0];
}

// The first part's task copies the first state, which the last part may write.
static void copy_first(Steps *s, Builder *b, const ValueMap *pre) {
  Builder in = {.fn = b->fn,
                .region = tile_parts_copy(s->t, b)->regions[0],
                .span = b->span};
  tile_parts_store_first(s->t, &in, first_state(s, &in, pre));
}

// What a part's chunks, all of them whole, make of a state of zeros.
static void walk_part(Steps *s, Builder *b, const ValueMap *pre) {
  Type type[] = {s->type[0], tile_parts_decay(s->t)};
  Value all[] = {tile_const(b, type[0], s->n ? 0 : -INFINITY),
                 tile_const(b, type[1], 0)},
        old[2];
  bool linear = s->t->plan.linear;
  if (linear) {
    copy_first(s, b, pre);
    all[0] = tile_linear_first(s->t, b, first_state(s, b, pre));
  }
  walk_head(s, b, pre, all);
  Value step = ir_const_i(b, DT_I64, s->chunk);
  StepLoop l = {s->from, s->stop, step, "c0", linear ? 1 : 2, all, type};
  Op *loop = tile_step_loop(b, &l, old);
  Builder in = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  Value base = in.region->params.at[0];
  if (s->n) old[0] = part_chunk(s, &in, base, pre, old[0]);
  else tile_max_part(s, &in, base, pre, &old[0], &old[1]);
  if (s->decay[0].has && !linear)
    old[1] = ir_2(&in, OP_ADD, old[1], s->decay[0].total);
  ir_yield(&in, old, linear ? 1 : 2);
  if (linear) {
    tile_linear_store(s->t, b, loop->res[0]);
    return;
  }
  tile_parts_store(s->t, b, loop->res[0], loop->res[1]);
  copy_first(s, b, pre);
}

// ---------------------------------------------------------------- all
static bool find_walk(Steps *s, const Op *op) {
  s->reverse = ir_attr_i(op, AT_REVERSE, 0);
  for (; op; op = op->next) {
    bool affine = op->code == OP_AFFINE;
    if ((!affine && op->code != OP_MAXPLUS) ||
        ir_attr_i(op, AT_AXIS, -1) != s->axis)
      continue;
    if (s->n == MAX_WALK || s->nmax == MAX_WALK) return false;
    if (affine && !affine_parts(op, &s->affine[s->n])) return false;
    if (affine) s->op[s->n++] = op;
    else s->max[s->nmax++] = op;
  }
  for (uint32_t i = 0; i < carried(s); i++) {
    op = i < s->n ? s->op[i] : s->max[i - s->n];
    s->type[i] = tile_type(s->t, ir_type(s->t->from, op->res[0]));
  }
  return true;
}

static Value end_of(Steps *s, Builder *b, ValueMap *m) {
  Value n = ir_dim(b, s->t->from->axes.at[s->axis].extent);
  Value limit = limit_of(s);
  return limit ? ir_2(b, OP_MIN, n, tile_step_value(s, b, limit, m)) : n;
}

// The type of operands that are computed: that of matrix units or of products
// of pairs.
static DType narrow_type(const Steps *s) {
  DType t = DT_NONE;
  for (uint32_t i = 0; i < s->n && t == DT_NONE; i++)
    t = lane_narrow(s->t->from, &s->affine[i]);
  if (s->t->gpu) return t;
  bool erases = false;
  for (uint32_t i = 0; i < s->n; i++) erases |= tile_step_erases(&s->affine[i]);
  return s->t->target->dpbf16 && t == DT_BF16 && !erases ? t : DT_NONE;
}

// Maxima are found from the first step on, and so are systems of several
// writes a step solved.
static bool can_turn(const Steps *s) {
  for (uint32_t i = 0; i < s->n; i++)
    if (tile_step_erases(&s->affine[i]) && !tile_erase_fits(s, i)) return false;
  return !s->nmax;
}

bool tile_affine(Tiler *t, Builder *b, const Op *op, ValueMap *m) {
  Steps s = {.t = t, .first = op, .narrow = DT_NONE};
  s.axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  if (!find_walk(&s, op)) {
    diag_add(t->cx, DIAG_pass_unsupported, op->span,
             "a recurrence has too many states");
    return false;
  }
  s.narrow = narrow_type(&s);
  s.chunk = tile_front_chunk(&s, tile_step_choose(&s));
  s.turned = s.reverse && can_turn(&s);
  const Axis *a = &t->from->axes.at[s.axis];
  if (s.chunk > 1)
    ctx_remark(t->cx, "%s: chunks of %lld steps, what is left step by step",
               t->from->name, (long long)s.chunk);
  else ctx_remark(t->cx, "%s: one step after the other", t->from->name);
  if (s.chunk > 1 && tile_erase_fits(&s, 0))
    ctx_remark(t->cx, "%s: %s", t->from->name, tile_erase_parts(&s));
  s.end = end_of(&s, b, m);
  align(&s, b);
  s.stop = s.end;
  s.from = ir_const_i(b, DT_I64, 0);
  if (t->plan.walk) tile_parts_bounds(t, b, s.end, &s.from, &s.stop);
  Value state[2 * MAX_WALK];
  for (uint32_t i = 0; i < carried(&s); i++) state[i] = initial(&s, b, i, m);
  if (t->plan.walk && t->share != SHARE_STATES) state[0] = join_parts(&s, b, m);
  if (s.chunk > 1) {
    uint32_t cols = ir_axis(t->to, a->name, AX_STEP, a->extent);
    s.rows = tile_step_side(&s, b, s.axis, 1);
    s.cols = tile_step_side(&s, b, cols, 1);
    tile_step_constants(&s, b, m);
    if (t->share == SHARE_STATES) walk_part(&s, b, m);
    else walk_chunks(&s, b, m, state);
  } else {
    walk_steps(&s, b, s.from, s.stop, m, state);
  }
  for (uint32_t i = 0; i < s.n; i++) vmap_put(m, s.op[i]->res[0], state[i]);
  for (uint32_t i = 0; i < s.nmax; i++)
    vmap_put(m, s.max[i]->res[0], state[s.n + i]);
  t->walked[s.axis] = true;
  return true;
}
