// A recurrence as a loop over its steps (part of the pass `tile`).
//
//   before  %R = recur(%S0) {axis = t} ({ ^(%S): .. yield(%next) })
//   after   %R = for(0, T, 1, %S0) ({ ^(%t, %S): .. yield(%next) })
//
// States whose next one is 2 ** g times it and a sum that does not know it, as
// those of the borders of chunks, are split into parts of the steps (parts.c):
// the first phase walks them from zero, with the sum of g, and stores nothing
// of a step.
#include "passes/tile/step.h"

// ---------------------------------------------------------------- sums
// Is v made of the state?
static bool knows(const Func *f, Value v, const Region *r, uint32_t depth) {
  enum { MAX_DEPTH = 64 };
  const Op *def = ir_def(f, v);
  if (v == r->params.at[0]) return true;
  if (!def || def->parent != r) return false;
  if (def->nregions || depth == MAX_DEPTH) return true;
  for (uint32_t i = 0; i < def->nargs; i++)
    if (knows(f, def->args[i], r, depth + 1)) return true;
  return false;
}

// Is v the state, or 2 ** g times it?
static bool is_decayed(const Func *f, Value v, Value state, Value *g) {
  const Op *mul = ir_def(f, v);
  *g = 0;
  if (v == state) return true;
  if (!mul || mul->code != OP_MUL) return false;
  bool first = mul->args[0] == state;
  const Op *power = ir_def(f, mul->args[first ? 1 : 0]);
  if (!power || power->code != OP_EXP2 || mul->args[first ? 0 : 1] != state)
    return false;
  *g = power->args[0];
  return true;
}

static bool has_domain(const Func *f, int64_t axis) {
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_DOMAIN && ir_attr_i(op, AT_AXIS, -1) == axis)
      return true;
  return false;
}

// Of the terms of v one is the decayed state, and no other knows it.
static bool is_sum(const Func *f, Value v, const Region *r, Value *g) {
  const Op *sum = ir_def(f, v);
  if (is_decayed(f, v, r->params.at[0], g)) return !*g || !knows(f, *g, r, 0);
  if (!sum || sum->code != OP_ADD || sum->parent != r) return false;
  for (uint32_t i = 0; i < 2; i++)
    if (!knows(f, sum->args[1 - i], r, 0)) return is_sum(f, sum->args[i], r, g);
  return false;
}

bool tile_recur_sums(const Func *f, const Op *op, Value *g) {
  if (op->code != OP_RECUR || op->nres != 1 || op->parent != f->body ||
      ir_type(f, op->res[0])->dtype != DT_F32 ||
      has_domain(f, ir_attr_i(op, AT_AXIS, -1)))
    return false;
  const Region *r = op->regions[0];
  return is_sum(f, tile_yield(r)->args[0], r, g);
}

// ---------------------------------------------------------------- the loop
typedef struct Walk {
  Tiler *t;
  const Op *op;
  uint32_t axis, n;  // states; one more of a part is the sum of g
  Value lo, hi;      // its steps, as they are numbered
  Value g;           // of a part that is walked from zero; or 0
  Type *type;
  Value *first;
} Walk;

// A state that starts narrower than its type is spread over it.
static Value spread(Builder *b, Value v, Type type) {
  if (type_eq(ir_type(b->fn, v), &type)) return v;
  Value zero = tile_const(b, type, 0), one = ir_const_i(b, DT_BOOL, 1);
  return ir_3(b, OP_SELECT, one, v, zero);
}

static Op *open_loop(Walk *w, Builder *b, uint32_t n) {
  Value *args = NEWN(w->t->to->mod->arena, Value, n + 3);
  args[0] = w->lo, args[1] = w->hi, args[2] = ir_const_i(b, DT_I64, 1);
  for (uint32_t i = 0; i < n; i++) args[3 + i] = w->first[i];
  IrAttr rev = attr_i(AT_REVERSE, 1);
  bool reverse = ir_attr_i(w->op, AT_REVERSE, 0);
  return ir_op(b, OP_FOR, args, n + 3, &rev, reverse, w->type, n, 1);
}

// Steps outside the axis' domain leave the states as they are and store
// nothing.
static Op *walk(Walk *w, Builder *b, ValueMap *m) {
  Tiler *t = w->t;
  uint32_t all = w->n + (w->g != 0);
  Op *loop = open_loop(w, b, all);
  Region *body = loop->regions[0];
  ValueMap in = tile_map_copy(t, m);
  Value saved = t->coord[w->axis], saved_keep = t->keep[w->axis];
  t->coord[w->axis] = ir_region_param(body, type_scalar(DT_I64), "t");
  Value *old = NEWN(m->arena, Value, all + 1);
  for (uint32_t i = 0; i < all; i++)
    old[i] = ir_region_param(body, w->type[i], i < w->n ? "state" : "decay");
  for (uint32_t i = 0; i < w->n; i++)
    vmap_put(&in, w->op->regions[0]->params.at[i], old[i]);
  Builder lb = {.fn = t->to, .region = body, .span = w->op->span};
  if (!tile_region(t, &lb, w->op->regions[0], &in)) return NULL;
  const Op *y = tile_yield(w->op->regions[0]);
  if (!tile_demand(t, &lb, y, &in)) return NULL;
  Value *out = NEWN(m->arena, Value, all + 1);
  for (uint32_t i = 0; i < w->n; i++) {
    out[i] = vmap_get(&in, y->args[i]);
    if (t->keep[w->axis])
      out[i] = ir_3(&lb, OP_SELECT, t->keep[w->axis], out[i], old[i]);
  }
  if (w->g) out[w->n] = ir_2(&lb, OP_ADD, old[w->n], vmap_get(&in, w->g));
  ir_yield(&lb, out, all);
  t->coord[w->axis] = saved;
  t->keep[w->axis] = saved_keep;
  return loop;
}

// ---------------------------------------------------------------- parts
// The first state, loaded where it is needed: it takes many registers.
static Value first_state(const Walk *w, Builder *b, const ValueMap *m) {
  ValueMap in = tile_map_copy(w->t, m);
  Value v = w->op->args[0];
  const Op *def = ir_def(w->t->from, v);
  if (def) {
    vmap_put(&in, v, 0);
    tile_op(w->t, b, def, &in);
  }
  return spread(b, vmap_get(&in, v), w->type[0]);
}

// Of a walk against the steps' order the first part is the last one.
static void bounds(Walk *w, Builder *b) {
  Value n = ir_dim(b, w->t->from->axes.at[w->axis].extent);
  tile_parts_bounds(w->t, b, n, &w->lo, &w->hi);
  if (!ir_attr_i(w->op, AT_REVERSE, 0)) return;
  Value lo = ir_2(b, OP_SUB, n, w->hi);
  w->hi = ir_2(b, OP_SUB, n, w->lo);
  w->lo = lo;
}

static Op *walk_part(Walk *w, Builder *b, ValueMap *m) {
  Tiler *t = w->t;
  tile_recur_sums(t->from, w->op, &w->g);
  w->type[1] = tile_parts_decay(t);
  Value none = tile_const(b, w->type[1], 0);
  w->first[0] = tile_const(b, w->type[0], 0);
  w->first[1] = none;
  Op *loop = walk(w, b, m);
  if (!loop) return NULL;
  tile_parts_store(t, b, loop->res[0], w->g ? loop->res[1] : none);
  Builder in = {.fn = b->fn,
                .region = tile_parts_copy(t, b)->regions[0],
                .span = b->span};
  tile_parts_store_first(t, &in, first_state(w, &in, m));
  return loop;
}

static Op *walk_joined(Walk *w, Builder *b, ValueMap *m) {
  Op *br = tile_parts_join(w->t, b, w->type[0]);
  Builder in = {.fn = b->fn, .region = br->regions[1], .span = b->span};
  Value first = first_state(w, &in, m);
  ir_yield(&in, &first, 1);
  w->first[0] = br->res[0];
  return walk(w, b, m);
}

static Op *walk_all(Walk *w, Builder *b, ValueMap *m) {
  w->lo = ir_const_i(b, DT_I64, 0);
  w->hi = ir_dim(b, w->t->from->axes.at[w->axis].extent);
  for (uint32_t i = 0; i < w->n; i++)
    w->first[i] = spread(b, vmap_get(m, w->op->args[i]), w->type[i]);
  return walk(w, b, m);
}

bool tile_recur(Tiler *t, Builder *b, const Op *op, ValueMap *m) {
  Walk w = {.t = t,
            .op = op,
            .axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0),
            .n = op->nargs,
            .type = NEWN(m->arena, Type, op->nargs + 2),
            .first = NEWN(m->arena, Value, op->nargs + 2)};
  if (!tile_demand(t, b, op, m)) return false;
  for (uint32_t i = 0; i < w.n; i++)
    w.type[i] = tile_type(t, ir_type(t->from, op->res[i]));
  Op *loop;
  if (t->plan.walk == op) {
    bounds(&w, b);
    loop = (t->share == SHARE_STATES ? walk_part : walk_joined)(&w, b, m);
  } else loop = walk_all(&w, b, m);
  for (uint32_t i = 0; loop && i < w.n; i++)
    vmap_put(m, op->res[i], loop->res[i]);
  return loop != NULL;
}
