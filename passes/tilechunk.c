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
#include "passes/tile.h"
#include "passes/tilestep.h"

#include <math.h>

// ---------------------------------------------------------------- values
static bool mapped(const ValueMap *m, Value v) {
  return v < m->n && m->to[v];
}

Value step_value(Steps *s, Builder *b, Value v, ValueMap *m) {
  if (mapped(m, v)) return vmap_get(m, v);
  const Op *op = ir_def(s->t->from, v);
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(s->t->from, op->args[i])->kind == TK_ELEM)
      step_value(s, b, op->args[i], m);
  tile_op(s->t, b, op, m);
  return vmap_get(m, v);
}

// Step number j counts in the order of the walk.
static Value coordinate(const Steps *s, Builder *b, Value j) {
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

// What the walk stores of its reads, at the steps whose values m has.
static void stores(Steps *s, Builder *b, ValueMap *m) {
  for (const Op *op = s->first; op; op = op->next) {
    if (op->code != OP_STORE || !uses_axis(s, op)) continue;
    for (uint32_t i = 1; i < op->nargs; i++) step_value(s, b, op->args[i], m);
    tile_op(s->t, b, op, m);
  }
}

// ---------------------------------------------------------------- one step
static Value version(const Value *v, int from) { return v[from + 1]; }

// The state after step j; its reads go to the map.
static Value one_state(Steps *s, Builder *b, uint32_t i, Value state,
                       ValueMap *m) {
  const Affine *a = &s->affine[i];
  uint32_t row = a->row;
  Value at[AFFINE_MAX + 2];
  at[0] = at[1] = state;
  if (a->decay) {
    Value g = step_value(s, b, a->decay, m);
    at[1] = ir_2(b, OP_MUL, ir_1(b, OP_EXP2, g), state);
  }
  for (uint32_t k = 0; k < a->nwrites; k++) {
    const AffineWrite *w = &a->write[k];
    Value e = step_value(s, b, w->w, m);
    if (w->a) {
      Value x = step_value(s, b, w->a, m);
      e = ir_2(b, OP_SUB, e, ir_dot(b, x, version(at, w->from), &row, 1));
    }
    Value add = ir_2(b, OP_MUL, step_value(s, b, w->b, m), e);
    at[k + 2] = ir_2(b, OP_ADD, at[k + 1], add);
  }
  for (uint32_t k = 0; k < a->nreads; k++) {
    Value q = step_value(s, b, a->read[k].q, m);
    Value o = ir_dot(b, q, version(at, a->read[k].from), &row, 1);
    vmap_put(m, s->op[i]->res[k + 1], o);
  }
  return at[a->nwrites + 1];
}

// Steps lo .. hi, one after the other.
static void walk_steps(Steps *s, Builder *b, Value lo, Value hi,
                       const ValueMap *pre, Value *state) {
  Value args[3 + MAX_WALK] = {lo, hi, ir_const_i(b, DT_I64, 1)};
  for (uint32_t i = 0; i < s->n; i++) args[i + 3] = state[i];
  Op *loop = ir_op(b, OP_FOR, args, s->n + 3, NULL, 0, s->type, s->n, 1);
  Region *body = loop->regions[0];
  Builder in = {.fn = b->fn, .region = body, .span = b->span};
  Value j = ir_region_param(body, type_scalar(DT_I64), "t");
  Value old[MAX_WALK];
  for (uint32_t i = 0; i < s->n; i++)
    old[i] = ir_region_param(body, s->type[i], "state");
  ValueMap m = tile_map_copy(s->t, pre);
  s->t->coord[s->axis] = coordinate(s, &in, j);
  for (uint32_t i = 0; i < s->n; i++)
    old[i] = one_state(s, &in, i, old[i], &m);
  stores(s, &in, &m);
  ir_yield(&in, old, s->n);
  s->t->coord[s->axis] = 0;
  for (uint32_t i = 0; i < s->n; i++) state[i] = loop->res[i];
}

// ---------------------------------------------------------------- chunks
static Value iota(Steps *s, Builder *b, uint32_t axis) {
  Type type = type_with(type_scalar(DT_I64), axis, s->size);
  return ir_op(b, OP_IOTA, NULL, 0, NULL, 0, &type, 1, 0)->res[0];
}

// The values of a chunk along one of its two axes.
static ValueMap side_map(Steps *s, Builder *b, Value base, uint32_t axis,
                         const ValueMap *pre, Value *coord) {
  *coord = coordinate(s, b, ir_2(b, OP_ADD, base, iota(s, b, axis)));
  return tile_map_copy(s->t, pre);
}

Value step_row(Steps *s, Builder *b, Value v) {
  s->t->coord[s->axis] = s->row_coord;
  v = step_value(s, b, v, &s->rows);
  s->t->coord[s->axis] = 0;
  return v;
}

Value step_col(Steps *s, Builder *b, Value v) {
  s->t->coord[s->axis] = s->col_coord;
  v = step_value(s, b, v, &s->cols);
  s->t->coord[s->axis] = 0;
  return v;
}

static void open_chunk(Steps *s, Builder *b, Value base, const ValueMap *pre) {
  s->rows = side_map(s, b, base, s->axis, pre, &s->row_coord);
  s->cols = side_map(s, b, base, s->col_axis, pre, &s->col_coord);
}

static void do_chunk(Steps *s, Builder *b, Value *state) {
  for (uint32_t i = 0; i < s->n; i++) {
    Value read[AFFINE_MAX];
    state[i] = step_chunk(s, b, i, state[i], read);
    for (uint32_t k = 0; k < s->affine[i].nreads; k++)
      vmap_put(&s->rows, s->op[i]->res[k + 1], read[k]);
  }
  s->t->coord[s->axis] = s->row_coord;
  stores(s, b, &s->rows);
  s->t->coord[s->axis] = 0;
}

// One turn of the loop over chunks: all of C steps at once, or what is left.
static void turn(Steps *s, Builder *b, Value base, const ValueMap *pre,
                 Value *state) {
  Value top = ir_2(b, OP_ADD, base, ir_const_i(b, DT_I64, s->chunk));
  Value ok = ir_2(b, OP_LE, top, s->end);
  open_chunk(s, b, base, pre);
  for (uint32_t i = 0; i < s->n; i++) {
    Value fits = step_prepare(s, b, i);
    if (fits) ok = ir_2(b, OP_AND, ok, fits);
  }
  Op *br = ir_op(b, OP_IF, &ok, 1, NULL, 0, s->type, s->n, 2);
  Value other[MAX_WALK];
  for (uint32_t i = 0; i < s->n; i++) other[i] = state[i];
  Builder in = {.fn = b->fn, .region = br->regions[0], .span = b->span};
  do_chunk(s, &in, state);
  ir_yield(&in, state, s->n);
  in.region = br->regions[1];
  walk_steps(s, &in, base, ir_2(&in, OP_MIN, top, s->end), pre, other);
  ir_yield(&in, other, s->n);
  for (uint32_t i = 0; i < s->n; i++) state[i] = br->res[i];
}

static void walk_chunks(Steps *s, Builder *b, const ValueMap *pre,
                        Value *state) {
  Value args[3 + MAX_WALK] = {ir_const_i(b, DT_I64, 0), s->end,
                              ir_const_i(b, DT_I64, s->chunk)};
  for (uint32_t i = 0; i < s->n; i++) args[i + 3] = state[i];
  Op *loop = ir_op(b, OP_FOR, args, s->n + 3, NULL, 0, s->type, s->n, 1);
  Region *body = loop->regions[0];
  Builder in = {.fn = b->fn, .region = body, .span = b->span};
  Value base = ir_region_param(body, type_scalar(DT_I64), "c0");
  Value old[MAX_WALK];
  for (uint32_t i = 0; i < s->n; i++)
    old[i] = ir_region_param(body, s->type[i], "state");
  turn(s, &in, base, pre, old);
  ir_yield(&in, old, s->n);
  for (uint32_t i = 0; i < s->n; i++) state[i] = loop->res[i];
}

// ---------------------------------------------------------------- all
// The state, spread over its axes if it starts with fewer.
static Value initial(Steps *s, Builder *b, uint32_t i, ValueMap *m) {
  Value v = step_value(s, b, s->affine[i].state, m);
  if (type_eq(ir_type(b->fn, v), &s->type[i])) return v;
  Value zero = tile_const(b, s->type[i], 0);
  return ir_3(b, OP_SELECT, ir_const_i(b, DT_BOOL, 1), v, zero);
}

static void find_walk(Steps *s, const Op *op) {
  for (; op; op = op->next) {
    if (op->code != OP_AFFINE || ir_attr_i(op, AT_AXIS, -1) != s->axis)
      continue;
    if (s->n == MAX_WALK) break;
    affine_parts(op, &s->affine[s->n]);
    s->type[s->n] = tile_type(s->t, ir_type(s->t->from, op->res[0]));
    s->op[s->n++] = op;
  }
  s->reverse = s->affine[0].reverse;
}

static Value end_of(Steps *s, Builder *b, ValueMap *m) {
  Value n = ir_dim(b, s->t->from->axes.at[s->axis].extent);
  if (!s->affine[0].limit) return n;
  return ir_2(b, OP_MIN, n, step_value(s, b, s->affine[0].limit, m));
}

bool tile_affine(Tiler *t, Builder *b, const Op *op, ValueMap *m) {
  Steps s = {.t = t, .first = op};
  s.axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  find_walk(&s, op);
  s.chunk = step_choose(&s);
  s.size = dim_const(&t->to->mod->dims, s.chunk);
  const Axis *a = &t->from->axes.at[s.axis];
  s.col_axis = ir_axis(t->to, a->name, AX_STEP, a->extent);
  s.end = end_of(&s, b, m);
  Value state[MAX_WALK];
  for (uint32_t i = 0; i < s.n; i++) state[i] = initial(&s, b, i, m);
  s.row_at = iota(&s, b, s.axis);
  s.col_at = iota(&s, b, s.col_axis);
  step_constants(&s, b, m);
  if (s.chunk > 1)
    walk_chunks(&s, b, m, state);
  else
    walk_steps(&s, b, ir_const_i(b, DT_I64, 0), s.end, m, state);
  for (uint32_t i = 0; i < s.n; i++) vmap_put(m, s.op[i]->res[0], state[i]);
  t->walked[s.axis] = true;
  return true;
}
