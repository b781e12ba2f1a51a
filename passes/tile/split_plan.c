// The plan of a batch whose keys are split among tasks (part of `tile`).
//
//   func @p.plan(.., %plan: tensor<i32[B * parts + 1, 4]> shared) grid(b:1, plan:1) {
//     keys of all sequences, 32 at a time: how long parts are to be
//     %k = parts of this sequence
//     %rank, %first = how many sequences and parts come before it: those
//                     with longer parts
//     store(%plan, ..)
//   }
//   func @p(..) grid(b:1, q:64, h:1, part:1) {
//     %n = planned(%plan, load(%plan, %b + 1, 2), ..) {axes = [b, part], dim ..}
//
//   plan[0, 0]      tasks of all parts
//   plan[1 + i, 0]  the sequence of part i of all
//   plan[1 + i, 1]  which of its parts that is
//   plan[1 + b, 2]  parts of sequence b
//
// The shape says how many parts a sequence may have, memory how many keys it
// has: of 64 sequences, one of them long, nearly all parts that there is room
// for have no keys. A task that finds none costs microseconds. So the parts
// that there are are listed, and tasks are those of the list
// (passes/gpu/task.c). Those with most keys come first: tasks are claimed, and
// what comes last is short.
//
// A part's length is what the batch as a whole has for each task that runs at a
// time, or a half or a quarter of that: the one by which the last task ends
// first, if a task costs as much as some keys beside its own. With @split(own)
// it depends on the sequence alone. Where the shape leaves no room for tasks
// without keys the phase has no tasks, and the main phase counts as it did.
//
// Every sequence's task looks at all others: nothing is waited for between
// them, and a batch has hundreds.
#include "passes/support/cost.h"
#include "passes/support/outline.h"
#include "passes/tile/loop.h"

enum { WHICH, PART, PARTS, NOTHING, COLUMNS };  // of the plan
enum { MAX_TOGETHER = 32 };  // sequences that a task looks at together
enum { CHOICES = COST_SPLIT_CHOICES };

// ---------------------------------------------------------------- which
// Is y made of hi as x is of lo?
static bool mirrors(const Func *f, Value x, Value y, Value lo, Value hi) {
  if (x == lo || y == hi) return x == lo && y == hi;
  const Op *a = ir_def(f, x), *b = ir_def(f, y);
  if (x == y && (!a || !a->nargs)) return true;
  if (!a || !b || a->code != b->code || a->nargs != b->nargs || a->nattrs ||
      b->nattrs || a->nregions)
    return false;
  for (uint32_t i = 0; i < a->nargs; i++)
    if (!mirrors(f, a->args[i], b->args[i], lo, hi)) return false;
  return true;
}

// Are all tables in the bounds read at one coordinate of that axis, or at one
// beside it, as offsets are?
static bool reads_one(const Func *f, const Region *r, Value lo, Value hi) {
  for (const Op *op = r->first; op; op = op->next) {
    bool span = op->code == OP_SPAN_MIN || op->code == OP_SPAN_MAX;
    if (op->nregions || (span && !mirrors(f, op->args[1], op->args[2], lo, hi)))
      return false;
  }
  return true;
}

// Tasks of packed rows find their sequences themselves (passes/gpu/task.c).
static bool is_packed(const Func *f, int axis) {
  const DimTab *d = &f->mod->dims;
  const DimExpr *e = &d->exprs.at[f->axes.at[axis].extent];
  return e->op == DIM_SYM && d->syms.at[e->value].kind == DIM_RAGGED;
}

// Bounds may vary with the tiled axis beside it.
int tile_plan_axis(const Func *f, const Op *pass, const TilePlan *p) {
  enum { BOUNDS = 3 };
  const IrAttr *box = ir_attr(pass, AT_BOX);
  const Region *r = pass->nregions > BOUNDS ? pass->regions[BOUNDS] : NULL;
  int axis = -1;
  if (!box || !r || !r->last || p->part >= 0) return -1;
  for (uint32_t i = 0; i < box->n; i++) {
    int at = (int)box->list[i];
    if (at == p->lane && is_packed(f, at)) return -1;
    if (at == p->lane) continue;
    if (axis >= 0 || f->axes.at[at].role != AX_PAR ||
        !reads_one(f, r, r->params.at[2 * i], r->params.at[2 * i + 1]))
      return -1;
    axis = at;
  }
  return axis;
}

static Dim sequences(const Tiler *t) {
  return t->from->axes.at[t->plan.by].extent;
}

void tile_plan_params(Tiler *t) {
  DimTab *d = &t->to->mod->dims;
  Dim rows = dim_bin(d, DIM_MUL, sequences(t), t->plan.parts);
  Dim shape[] = {dim_bin(d, DIM_ADD, rows, dim_const(d, 1)),
                 dim_const(d, COLUMNS)};
  t->planned =
      outline_tensor(t->to, "plan", "part", type_tensor(DT_I32, 2, shape));
}

// ---------------------------------------------------------------- its reader
Value tile_plan_parts(const Tiler *t, Builder *b, Value otherwise) {
  uint32_t axes[] = {(uint32_t)t->plan.by, t->part_axis};
  IrAttr at[] = {attr_axes(t->to->mod->arena, AT_AXES, axes, 2),
                 attr_i(AT_DIM, t->plan.planned)};
  Value row = ir_2(b, OP_ADD, t->coord[t->plan.by], ir_const_i(b, DT_I64, 1));
  Value on = ir_dim(b, t->plan.planned);
  on = ir_2(b, OP_LT, ir_const_i(b, DT_I64, 0), on);
  row = ir_3(b, OP_SELECT, on, row, ir_const_i(b, DT_I64, -1));
  Value place[] = {row, ir_const_i(b, DT_I64, PARTS)};
  Value told = ir_cast(b, DT_I64, ir_load(b, t->planned, place, 2));
  Value args[] = {t->planned, told, otherwise};
  Type n = type_scalar(DT_I64);
  return ir_op(b, OP_PLANNED, args, 3, at, 2, &n, 1, 0)->res[0];
}

// ---------------------------------------------------------------- keys
typedef struct Planner {
  Tiler *t;
  const ValueMap *params;
  Value others;    // i32: tasks of each part
  Value places;    // i32: tasks that run at a time
  Value parts;     // i32: the most of a sequence
  Value all;       // i64: sequences
  uint32_t lanes;  // axis of those looked at together
  int64_t step;    // keys of a tile
  Value length;    // i32: tiles of a part, 0: its own sequence tells
} Planner;

// What a sequence's rows see, from where their first tile begins.
typedef struct Seen {
  Value keys;   // i64
  Value tiles;  // i32
} Seen;

// All but coordinates is counted in 32 bits, in tiles of keys.
static Value num(Builder *b, int64_t n) {
  return ir_const_i(b, DT_I32, n);
}

static Value wide(Builder *b, int64_t n) {
  return ir_const_i(b, DT_I64, n);
}

static Value dim_of(Builder *b, Dim d) {
  return ir_cast(b, DT_I32, ir_dim(b, d));
}

static Value up_div(Builder *b, Value n, Value by) {
  Value up = ir_2(b, OP_SUB, by, num(b, 1));
  return ir_2(b, OP_FLOORDIV, ir_2(b, OP_ADD, n, up), by);
}

static Value clamped(Builder *b, Value n, Value lo, Value hi) {
  return ir_2(b, OP_MIN, ir_2(b, OP_MAX, n, lo), hi);
}

// Maps the arguments of the bounds: all rows of sequence `at`.
static void map_rows(const Planner *p, Builder *b, const KeyLoop *l, Value at,
                     ValueMap *m) {
  const IrAttr *box = ir_attr(l->op, AT_BOX);
  const Value *params = l->bounds->params.at;
  for (uint32_t i = 0; i < box->n; i++) {
    bool by = box->list[i] == p->t->plan.by;
    Value n = ir_dim(b, p->t->from->axes.at[box->list[i]].extent);
    Value first = wide(b, 0), last = ir_2(b, OP_SUB, n, wide(b, 1));
    vmap_put(m, params[2 * i], by ? at : first);
    vmap_put(m, params[2 * i + 1], by ? at : last);
  }
}

static Seen seen_of(const Planner *p, Builder *b, Value at) {
  Tiler *t = p->t;
  KeyLoop l = tile_key_loop(t, t->plan.split);
  ValueMap m = tile_map_copy(t, p->params);
  Value zero = wide(b, 0), step = wide(b, l.step);
  Value extent = ir_dim(b, t->from->axes.at[l.axis].extent);
  t->origin[t->plan.by] = t->coord[t->plan.by] = at;
  map_rows(p, b, &l, at, &m);
  const Op *y = tile_yield(l.bounds);
  Value lo = tile_need(&l, b, y->args[0], &m), hi = zero;
  for (uint32_t i = 1; i < y->nargs; i += 4)
    hi = ir_2(b, OP_MAX, hi, tile_need(&l, b, y->args[i], &m));
  lo = clamped(b, lo, zero, extent);
  lo = ir_2(b, OP_MUL, ir_2(b, OP_FLOORDIV, lo, step), step);
  Value n = ir_2(b, OP_SUB, ir_2(b, OP_MIN, hi, extent), lo);
  n = ir_2(b, OP_MAX, n, zero);
  Value up = ir_2(b, OP_ADD, n, wide(b, l.step - 1));
  up = ir_2(b, OP_FLOORDIV, up, step);
  return (Seen){n, ir_cast(b, DT_I32, up)};
}

// How many parts there are, where parts have about so many tiles.
static Value parts_by(const Planner *p, Builder *b, const Seen *s,
                      Value length) {
  if (!length) return ir_cast(b, DT_I32, tile_split_own(b, s->keys));
  Value n = ir_2(b, OP_FLOORDIV, s->tiles, length);
  return clamped(b, n, num(b, 1), p->parts);
}

// ---------------------------------------------------------------- all sequences
// What a loop over all of them is at: some of them, of which those count that
// there are.
typedef struct Some {
  Value at, there;
  Seen seen;
} Some;

enum { MAX_SUMS = 2 * CHOICES };

typedef void AddFn(const Planner *p, Builder *b, const Some *s, void *data,
                   Value *out);

// What is added up, or of which the largest is taken.
typedef struct Sums {
  uint32_t n;
  RKind kind[MAX_SUMS];
  AddFn *fn;
  void *data;
} Sums;

static void over_all(const Planner *p, Builder *b, const Sums *a, Value *sums) {
  Dim many = dim_const(&p->t->to->mod->dims, MAX_TOGETHER);
  Value args[3 + MAX_SUMS] = {wide(b, 0), p->all, wide(b, MAX_TOGETHER)};
  Type types[MAX_SUMS];
  Value zero = num(b, 0), old[MAX_SUMS], x[MAX_SUMS];
  for (uint32_t i = 0; i < a->n; i++) {
    args[3 + i] = zero;
    types[i] = type_scalar(DT_I32);
  }
  Op *loop = ir_op(b, OP_FOR, args, 3 + a->n, NULL, 0, types, a->n, 1);
  Builder in = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  Value from = ir_region_param(in.region, type_scalar(DT_I64), "from");
  for (uint32_t i = 0; i < a->n; i++)
    old[i] = ir_region_param(in.region, types[i], NULL);
  Some s = {.at = ir_2(&in, OP_ADD, from, ir_iota(&in, p->lanes, many))};
  s.there = ir_2(&in, OP_LT, s.at, p->all);
  Value last = ir_2(&in, OP_SUB, p->all, wide(&in, 1));
  s.seen = seen_of(p, &in, ir_2(&in, OP_MIN, s.at, last));
  a->fn(p, &in, &s, a->data, x);
  for (uint32_t i = 0; i < a->n; i++) {
    x[i] = ir_3(&in, OP_SELECT, s.there, x[i], zero);
    x[i] = ir_reduce(&in, a->kind[i], x[i], &p->lanes, 1);
    x[i] = ir_combine(&in, a->kind[i], old[i], x[i]);
  }
  ir_yield(&in, x, a->n);
  for (uint32_t i = 0; i < a->n; i++) sums[i] = loop->res[i];
}

static void add_tiles(const Planner *p, Builder *b, const Some *s, void *data,
                      Value *out) {
  (void)p, (void)b, (void)data;
  out[0] = s->seen.tiles;
}

// For each length: parts, and the most tiles of one.
static void add_choices(const Planner *p, Builder *b, const Some *s, void *data,
                        Value *out) {
  const Value *length = data;
  for (uint32_t i = 0; i < CHOICES; i++) {
    out[i] = parts_by(p, b, &s->seen, length[i]);
    out[CHOICES + i] = up_div(b, s->seen.tiles, out[i]);
  }
}

// ---------------------------------------------------------------- how long
// When the last of `parts` ends, in keys. Tasks that do not all run at a time
// are claimed: the last ones begin as others end, and are of the usual length.
static Value ends(const Planner *p, Builder *b, Value tiles, Value parts,
                  Value longest) {
  Value all = ir_2(b, OP_MUL, parts, p->others), least = num(b, 1);
  Value n = ir_2(b, OP_MAX, all, least);
  Value waves = up_div(b, n, p->places);
  Value mean = up_div(b, tiles, n), usual = ir_2(b, OP_MUL, mean, waves);
  Value one = ir_2(b, OP_LE, waves, num(b, 1));
  usual = ir_3(b, OP_SELECT, one, longest, ir_2(b, OP_MAX, longest, usual));
  Value keys = ir_2(b, OP_MUL, usual, num(b, p->step));
  Value extra = ir_2(b, OP_MUL, waves, num(b, COST_SPLIT_TASK_KEYS));
  return ir_2(b, OP_ADD, keys, extra);
}

static Value choose_length(const Planner *p, Builder *b) {
  Value tiles, length[CHOICES], sums[MAX_SUMS];
  Sums all = {.n = 1, .kind = {RK_SUM}, .fn = add_tiles};
  over_all(p, b, &all, &tiles);
  tiles = ir_2(b, OP_MUL, tiles, p->others);
  Value share = up_div(b, tiles, p->places);
  for (uint32_t i = 0; i < CHOICES; i++) {
    Value x = i ? up_div(b, share, num(b, 1 << i)) : share;
    int64_t least = (COST_SPLIT_GPU_KEYS + p->step - 1) / p->step;
    length[i] = ir_2(b, OP_MAX, x, num(b, least));
  }
  Sums each = {.n = MAX_SUMS, .fn = add_choices, .data = length};
  for (uint32_t i = 0; i < MAX_SUMS; i++)
    each.kind[i] = i < CHOICES ? RK_SUM : RK_MAX;
  over_all(p, b, &each, sums);
  Value best = length[0], end = ends(p, b, tiles, sums[0], sums[CHOICES]);
  for (uint32_t i = 1; i < CHOICES; i++) {
    Value x = ends(p, b, tiles, sums[i], sums[CHOICES + i]);
    Value less = ir_2(b, OP_LT, x, end);
    best = ir_3(b, OP_SELECT, less, length[i], best);
    end = ir_2(b, OP_MIN, x, end);
  }
  return best;
}

// ---------------------------------------------------------------- order
typedef struct Own {
  Value at, parts, each;
} Own;

// Sequences before this task's, and their parts.
static void add_before(const Planner *p, Builder *b, const Some *s, void *data,
                       Value *out) {
  const Own *own = data;
  Value k = parts_by(p, b, &s->seen, p->length);
  Value each = up_div(b, s->seen.tiles, k);
  Value before = ir_2(b, OP_LT, own->each, each);
  Value same = ir_2(b, OP_EQ, own->each, each);
  Value left = ir_2(b, OP_LT, s->at, own->at);
  before = ir_2(b, OP_OR, before, ir_2(b, OP_AND, same, left));
  out[0] = ir_cast(b, DT_I32, before);
  out[1] = ir_3(b, OP_SELECT, before, k, num(b, 0));
}

static void put(const Planner *p, Builder *b, Value x, Value row, int column,
                Value mask) {
  IrAttr masked = {.id = AT_MASKED, .i = 1};
  Value args[] = {p->t->planned, x, row, wide(b, column), mask};
  ir_op(b, OP_STORE, args, mask ? 5 : 4, &masked, mask != 0, NULL, 0, 0);
}

// The parts of this task's sequence, behind `first` others.
static void list(const Planner *p, Builder *b, const Own *own, Value first) {
  Dim many = dim_const(&p->t->to->mod->dims, MAX_TOGETHER);
  Value n = ir_cast(b, DT_I64, own->parts);
  Value args[] = {wide(b, 0), n, wide(b, MAX_TOGETHER)};
  Op *loop = ir_op(b, OP_FOR, args, 3, NULL, 0, NULL, 0, 1);
  Builder in = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  Value from = ir_region_param(in.region, type_scalar(DT_I64), "from");
  Value part = ir_2(&in, OP_ADD, from, ir_iota(&in, p->lanes, many));
  Value mask = ir_2(&in, OP_LT, part, n);
  Value head = wide(&in, 1), before = ir_cast(&in, DT_I64, first);
  Value row = ir_2(&in, OP_ADD, ir_2(&in, OP_ADD, before, head), part);
  part = ir_cast(&in, DT_I32, part);
  Value none = ir_2(&in, OP_SUB, part, part);
  Value which = ir_2(&in, OP_ADD, none, ir_cast(&in, DT_I32, own->at));
  put(p, &in, which, row, WHICH, mask);
  put(p, &in, part, row, PART, mask);
  ir_yield(&in, NULL, 0);
}

static void put_in_grid(Tiler *t, uint32_t axis) {
  vec_push(t->to->mod->arena, &t->to->grid,
           ((GridDim){.axis = axis, .tile = 1}));
}

// Tasks of each part: the product of the other axes.
static Value other_tasks(const Tiler *t, Builder *b) {
  DimTab *d = &t->to->mod->dims;
  Dim n = dim_const(d, 1);
  for (uint32_t a = 0; a < t->from->axes.n; a++) {
    if (t->from->axes.at[a].role != AX_PAR || (int)a == t->plan.by) continue;
    Dim e = t->from->axes.at[a].extent;
    if ((int)a == t->plan.lane) e = dim_ceildiv(d, e, t->plan.tile_q);
    n = dim_bin(d, DIM_MUL, n, e);
  }
  return dim_of(b, n);
}

void tile_plan_body(Tiler *t, Builder *b, const ValueMap *params) {
  Dim many = dim_const(&t->to->mod->dims, MAX_TOGETHER);
  uint32_t by = (uint32_t)t->plan.by;
  put_in_grid(t, by);
  put_in_grid(t, ir_axis(t->to, "plan", AX_PAR, t->plan.planned));
  Planner p = {.t = t, .params = params, .step = t->plan.tile_k};
  p.others = other_tasks(t, b);
  p.places = num(b, t->plan.places);
  p.parts = dim_of(b, t->plan.parts);
  p.all = ir_dim(b, sequences(t));
  p.lanes = ir_axis(t->to, "sequences", AX_VEC, many);
  if (!t->plan.own) p.length = choose_length(&p, b);
  Own own = {.at = ir_origin(b, by)};
  Seen seen = seen_of(&p, b, own.at);
  own.parts = parts_by(&p, b, &seen, p.length);
  own.each = up_div(b, seen.tiles, own.parts);
  Value before[2];
  Sums sums = {2, {RK_SUM, RK_SUM}, add_before, &own};
  over_all(&p, b, &sums, before);
  list(&p, b, &own, before[1]);
  Value one = wide(b, 1), zero = wide(b, 0);
  put(&p, b, own.parts, ir_2(b, OP_ADD, own.at, one), PARTS, 0);
  Value all = ir_2(b, OP_MUL, ir_2(b, OP_ADD, before[1], own.parts), p.others);
  Value rank = ir_2(b, OP_ADD, ir_cast(b, DT_I64, before[0]), one);
  put(&p, b, all, zero, 0, ir_2(b, OP_EQ, rank, p.all));
}

// Is d the extent of an axis, or of several together? Groups have another.
bool tile_counts_all(const DimTab *d, Dim of) {
  const DimExpr *e = &d->exprs.at[of];
  if (e->op == DIM_MUL)
    return tile_counts_all(d, e->a) && tile_counts_all(d, e->b);
  return e->op == DIM_SYM;
}

// Are rows elements of vectors, as in a sum of products of two? Of these there
// are as many whatever the sequence's length is, and few tasks. Not rows of
// blocks of a sequence, of which another axis of tasks counts the blocks.
bool tile_has_elements(const Func *f, int lane) {
  const DimTab *d = &f->mod->dims;
  int64_t n;
  if (lane < 0 || !dim_is_const(d, f->axes.at[lane].extent, &n)) return false;
  for (uint32_t i = 0; i < f->axes.n; i++) {
    const Axis *a = &f->axes.at[i];
    if (a->role == AX_PAR && !dim_is_const(d, a->extent, &n) &&
        !tile_counts_all(d, a->extent))
      return false;
  }
  return true;
}
