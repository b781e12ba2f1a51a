// Tasks of several heads' rows.
//
//   grid(b:1, h:1, q:192)                  grid(b:1, h.keys:1, h.blocks:3)
//   %q = origin() {axis = q}               %p = block of 64 rows, head for each
//   %h = origin() {axis = h}         ->         of three (block, head) that
//   %g = floordiv(%h, %n)                       follow one another
//   load(%Q, %h, %q + ..)                  %q = group_select(%q0, %q1 - 64, %q2 - 128)
//   load(%K, %g, ..)                       %h = group_select(%h0, %h1, %h2)
//
// Heads that share keys see the same of them where no mask is the heads' own.
// Groups of warps with bounds of their own (passes/tile/group_bounds.c) then do
// as many steps, and need the same tiles, if they have the same rows of several
// heads, not rows that follow one another: the heads' blocks are counted
// together, block by block, and a task has as many as it has groups. What a
// head has of its own (queries, results, tables) follows from the group's
// coordinates; keys must not depend on them. Where no keys are shared (%n is 1)
// a task has the blocks that it had. Heads behind the last one are the last one
// again: the same is computed and stored twice.
//
// Done where the bounds of each group were read for that group's coordinates
// (`origin() {row}`), so that none is of the whole tile.
// Tests: test/passes/lower_gpu/shared-keys.test, test/wave/shared-keys.test.
#include "passes/support/groups.h"
#include "passes/gpu/gpu.h"

typedef struct Share {
  Place *p;
  uint32_t axis;     // of the heads
  bool *seen, *own;  // by value of f: depends on the head
  bool told, ok;
} Share;

// ---------------------------------------------------------------- analysis
static bool is_origin(const Place *p, Value v, uint32_t axis) {
  const Op *op = ir_def(p->f, v);
  return op && op->code == OP_ORIGIN && !ir_attr(op, AT_ROW) &&
         ir_attr_i(op, AT_AXIS, 0) == axis;
}

// v = the head, divided by how many share keys.
static bool is_shared(const Place *p, uint32_t axis, Value v, Dim *each) {
  const Op *op = ir_def(p->f, v);
  return op && op->code == OP_FLOORDIV && is_origin(p, op->args[0], axis) &&
         group_dim(p->f, op->args[1], each);
}

static bool has_rows(const Place *p, Value v) {
  const Type *t = ir_type(p->f, v);
  return t->kind == TK_ELEM && type_has_axis(t, (uint32_t)p->lane);
}

// Is v, which is of no row, one head's or one block's? What loops carry may be.
static bool is_own(Share *s, Value v) {
  const Place *p = s->p;
  const Op *op = ir_def(p->f, v);
  Dim each;
  if (s->seen[v]) return s->own[v];
  s->seen[v] = true;
  if (!op) {
    const Op *loop = ir_info(p->f, v)->region->parent;
    bool first = loop && loop->regions[0]->params.at[0] == v;
    return s->own[v] = loop && !first && !has_rows(p, v);
  }
  if (is_shared(p, s->axis, v, &each) && each == p->share.each) return false;
  bool own = is_origin(p, v, s->axis) || is_origin(p, v, (uint32_t)p->lane);
  uint32_t n = op->code == OP_GROUP_BOUND ? 1 : op->nargs;
  for (uint32_t i = 0; i < n && !own; i++) own = is_own(s, op->args[i]);
  return s->own[v] = own;
}

// The number of a block is no row's coordinate: it makes one only.
static bool in_rows(const Share *s, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_origin(s->p, op->args[i], (uint32_t)s->p->lane) &&
        (op->code != OP_ADD || !has_rows(s->p, op->res[0])))
      return false;
  return true;
}

// Products have operands in common, control flow is, and so are tiles that
// have no rows.
static void check(void *data, Op *op) {
  Share *s = data;
  s->told |= op->code == OP_ORIGIN && ir_attr(op, AT_ROW);
  uint32_t common = op->code == OP_FOR ? 3 : op->code == OP_IF ? 1 : 0;
  if (op->code == OP_DOT) common = op->nargs;
  for (uint32_t i = 0; i < common; i++)
    s->ok &= has_rows(s->p, op->args[i]) || !is_own(s, op->args[i]);
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(s->p->f, op->res[i]);
    if (t->kind == TK_ELEM && t->n > 1 && !has_rows(s->p, op->res[i]))
      s->ok &= !is_own(s, op->res[i]);
  }
  s->ok &= in_rows(s, op);
}

typedef struct Divided {
  Place *p;
  uint32_t axis;
  Dim each;
  Value by;
} Divided;

static void find_divided(void *data, Op *op) {
  Divided *d = data;
  Dim each;
  if (d->each || op->nres != 1 || !is_shared(d->p, d->axis, op->res[0], &each))
    return;
  d->each = each;
  d->by = op->args[1];
}

// Heads of which so many share keys, all if keys are no head's.
static void sharers(Place *p, uint32_t axis) {
  DimTab *d = &p->m->dims;
  Divided x = {.p = p, .axis = axis};
  ir_walk(p->f->body, find_divided, &x);
  Dim all = p->f->axes.at[axis].extent;
  p->share.axis = axis;
  p->share.by = x.by;
  p->share.each = x.each ? x.each : dim_bin(d, DIM_MAX, all, dim_const(d, 1));
}

static bool can_share(Place *p, uint32_t axis) {
  uint32_t n = p->f->values.n;
  Share s = {.p = p,
             .axis = axis,
             .ok = true,
             .seen = NEWN(p->arena, bool, n),
             .own = NEWN(p->arena, bool, n)};
  sharers(p, axis);
  ir_walk(p->f->body, check, &s);
  return s.told && s.ok;
}

static bool updates(const Func *f) {
  for (uint32_t i = 0; i < f->params.n; i++)
    if (f->params.at[i].role == PR_INOUT) return true;
  return false;
}

// ---------------------------------------------------------------- grid
// Groups of heads take the place of heads, their blocks that of rows.
static void in_grid(Place *p) {
  DimTab *d = &p->m->dims;
  Func *g = p->g;
  uint32_t a = p->share.axis;
  Dim rows = g->axes.at[p->lane].extent, each = p->share.each;
  Dim blocks = dim_bin(d, DIM_MUL, dim_ceildiv(d, rows, p->rows), each);
  Dim shared = group_count(d, g->axes.at[a].extent, each);
  const char *name = g->axes.at[a].name;
  p->share.keys =
      ir_axis(g, arena_printf(p->m->arena, "%s.keys", name), AX_PAR, shared);
  p->share.blocks =
      ir_axis(g, arena_printf(p->m->arena, "%s.blocks", name), AX_PAR, blocks);
  for (uint32_t i = 0; i < g->grid.n; i++) {
    GridDim *e = &g->grid.at[i];
    if (e->axis == a) *e = (GridDim){.axis = p->share.keys, .tile = 1};
    else if ((int)e->axis == p->lane)
      *e = (GridDim){.axis = p->share.blocks, .tile = p->groups};
  }
}

void lower_plan_share(Place *p) {
  if (p->groups < 2 || updates(p->f)) return;
  for (uint32_t i = p->f->grid.n; i-- > 0 && !p->share.on;) {
    const GridDim *g = &p->f->grid.at[i];
    p->share.on = g->tile == 1 && can_share(p, g->axis);
  }
  if (p->share.on) in_grid(p);
}

// ---------------------------------------------------------------- coordinates
typedef struct Pair {
  Value block, head;  // head: among those that share keys
} Pair;

static Pair next_pair(Builder *b, Pair x, Value each) {
  Value one = lower_int(b, 1), head = ir_2(b, OP_ADD, x.head, one);
  Value over = ir_2(b, OP_LE, each, head);
  Value block = ir_2(b, OP_ADD, x.block, one);
  return (Pair){ir_3(b, OP_SELECT, over, block, x.block),
                ir_3(b, OP_SELECT, over, lower_int(b, 0), head)};
}

// The executing group's: the producer hands it over (warps).
static Value mine(Place *p, Builder *b, const Value *v) {
  Value x[HW_MOST_GROUPS];
  Type t = type_scalar(DT_I32);
  for (uint32_t g = 0; g < p->groups; g++)
    x[g] = lower_op(b, OP_UNIFORM, &v[g], 1, t, NULL, 0);
  return lower_op(b, OP_GROUP_SELECT, x, p->groups, t, NULL, 0);
}

static void set_shared(void *data, Op *op) {
  Divided *d = data;
  Dim each;
  if (op->nres == 1 && is_shared(d->p, d->axis, op->res[0], &each) &&
      each == d->p->share.each)
    d->p->memo[op->res[0]][0] = d->p->share.shared;
}

static Value heads(Place *p, Builder *b) {
  return lower_dim(b, p->f->axes.at[p->share.axis].extent);
}

// In 32 bits, as the program itself has it.
static Value each_of(Place *p, Builder *b) {
  Value x = p->share.by ? lower_scalar(p, p->share.by) : heads(p, b);
  Value one = lower_int(b, 1);
  return ir_2(b, OP_MAX, lower_cast(b, DT_I32, x), one);
}

Value lower_share_count(Place *p, Builder *b) {
  if (!p->share.by) return lower_int(b, 1);
  Value each = each_of(p, b), up = ir_2(b, OP_SUB, each, lower_int(b, 1));
  return ir_2(b, OP_FLOORDIV, ir_2(b, OP_ADD, heads(p, b), up), each);
}

void lower_share(Place *p, Builder *b, Value keys, Value first) {
  PlaceShare *s = &p->share;
  Value each = each_of(p, b), from[HW_MOST_GROUPS];
  Value one = lower_int(b, 1);
  Value last = ir_2(b, OP_SUB, heads(p, b), one);
  Pair x = {.block = ir_2(b, OP_FLOORDIV, first, each)};
  x.head = ir_2(b, OP_SUB, first, ir_2(b, OP_MUL, x.block, each));
  Value base = ir_2(b, OP_MUL, keys, each);
  for (uint32_t g = 0; g < p->groups; g++) {
    if (g) x = next_pair(b, x, each);
    s->head[g] = ir_2(b, OP_MIN, ir_2(b, OP_ADD, base, x.head), last);
    s->row[g] = ir_2(b, OP_MUL, x.block, lower_int(b, p->rows));
    from[g] = ir_2(b, OP_SUB, s->row[g], lower_int(b, g * p->rows));
  }
  p->origin[s->axis] = mine(p, b, s->head);
  p->origin[p->lane] = mine(p, b, from);
  s->shared = keys;
  Divided d = {.p = p, .axis = s->axis};
  ir_walk(p->f->body, set_shared, &d);
}

Value lower_origin(Place *p, const Op *op) {
  const PlaceShare *s = &p->share;
  uint32_t a = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  int64_t row = ir_attr_i(op, AT_ROW, -1), rows = p->rows;
  if (row < 0) return p->origin[a];
  if (s->on && a == s->axis) return s->head[row / rows];
  if ((int)a != p->lane) return p->origin[a];
  Value from = s->on ? s->row[row / rows] : p->origin[a];
  if (s->on) row %= rows;
  Builder *b = lower_at(p, 0);
  return row ? ir_2(b, OP_ADD, from, lower_int(b, row)) : from;
}
