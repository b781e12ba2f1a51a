// Where a task is: its coordinates on the axes of the grid.
//
//   grid(b:1, h:1, q:128)                    grid(h:1, slot:1)
//   %q over Sq ragged(cu)           ->       slots: Sq_total // 128 + B
//
// A ragged axis whose sequences lie one behind the other has no tasks for each
// sequence as if it were the longest one, most of which would find nothing to
// do. The tiles of all sequences are in one row of slots: sequence b begins at
// slot (cu[b] - cu[0]) // 128 + b, which leaves each enough of them and at most
// one too many. A binary search in the offsets finds the sequence of a slot.
//
//   planned(%plan, ..) {axes = [b, part]}    task_plan(%n)
//
// Parts that a phase in front has listed (passes/tile/split_plan.c) are looked
// up: a task is one of those that a part has. Where it has listed nothing each
// sequence has all parts.
#include "passes/gpu/gpu.h"

#include <string.h>

// Rows of the tiled axis lie in a tensor at `offsets`[sequence].
typedef struct Packed {
  Place *p;
  const char *by;
  Value offsets;   // tensor, 0: not found
  uint32_t batch;  // axis of the sequences
  Dim total;       // rows of all sequences
} Packed;

static const Op *def_of(const Place *p, Value v) {
  const Op *op = ir_def(p->f, v);
  while (op && op->code == OP_CAST) op = ir_def(p->f, op->args[0]);
  return op;
}

// v = load(offsets, origin of the sequence)
static bool is_offset(Packed *k, Value v) {
  const Op *load = def_of(k->p, v), *at;
  if (!load || load->code != OP_LOAD || load->nargs != 2) return false;
  const char *name = ir_info(k->p->f, load->args[0])->hint;
  at = def_of(k->p, load->args[1]);
  if (!at || at->code != OP_ORIGIN || !name || strcmp(name, k->by))
    return false;
  k->offsets = load->args[0];
  k->batch = (uint32_t)ir_attr_i(at, AT_AXIS, 0);
  return true;
}

// Is one of op's indices offset + coordinate of the tiled axis?
static void find_packed(void *data, Op *op) {
  Packed *k = data;
  const Func *f = k->p->f;
  bool store = op->code == OP_STORE;
  if (k->offsets || (!store && op->code != OP_LOAD)) return;
  for (uint32_t i = 1 + store; i < op->nargs && !k->offsets; i++) {
    const Op *sum = ir_def(f, op->args[i]);
    if (!sum || sum->code != OP_ADD ||
        !type_has_axis(ir_type(f, op->args[i]), (uint32_t)k->p->lane))
      continue;
    if (is_offset(k, sum->args[0]) || is_offset(k, sum->args[1]))
      k->total = ir_type(f, op->args[0])->size[i - 1 - store];
  }
}

static bool in_grid(const Place *p, uint32_t axis) {
  for (uint32_t i = 0; i < p->f->grid.n; i++)
    if (p->f->grid.at[i].axis == axis) return p->f->grid.at[i].tile == 1;
  return false;
}

static bool packed_lane(Place *p, Packed *k) {
  *k = (Packed){.p = p};
  if (p->lane < 0) return false;
  const DimTab *t = &p->m->dims;
  const DimExpr *e = &t->exprs.at[p->f->axes.at[p->lane].extent];
  if (e->op != DIM_SYM || t->syms.at[e->value].kind != DIM_RAGGED) return false;
  k->by = t->syms.at[e->value].by;
  ir_walk(p->f->body, find_packed, k);
  return k->offsets && in_grid(p, k->batch);
}

// ---------------------------------------------------------------- search
static Value uniform(Builder *b, Value v) {
  return lower_op(b, OP_UNIFORM, &v, 1, type_scalar(DT_I32), NULL, 0);
}

typedef struct Search {
  Value offsets, first, slot;
  int64_t tile;
} Search;

// The first slot of sequence i.
static Value first_slot(const Search *s, Builder *b, Value i) {
  Value args[] = {s->offsets, i};
  Value at = lower_op(b, OP_GLOAD, args, 2, type_scalar(DT_I32), NULL, 0);
  at = ir_2(b, OP_SUB, at, s->first);
  return ir_2(b, OP_ADD, ir_2(b, OP_FLOORDIV, at, lower_int(b, s->tile)), i);
}

// At least as many steps as halve n down to 1.
static Value steps(Builder *b, Value n) {
  Value x = lower_cast(b, DT_F32, ir_2(b, OP_MAX, n, lower_int(b, 1)));
  x = lower_op(b, OP_LOG2, &x, 1, type_scalar(DT_F32), NULL, 0);
  Value two = lower_int(b, 2);
  return ir_2(b, OP_ADD, lower_cast(b, DT_I32, x), two);
}

// The last of n sequences that begins at the slot or before it.
static Value sequence_of(const Search *s, Builder *b, Value n) {
  Type i32 = type_scalar(DT_I32), types[] = {i32, i32};
  Value zero = lower_int(b, 0);
  Value args[] = {zero, steps(b, n), lower_int(b, 1), zero, n};
  Op *loop = ir_op(b, OP_FOR, args, 5, NULL, 0, types, 2, 1);
  Builder in = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  ir_region_param(in.region, i32, "i");
  Value lo = ir_region_param(in.region, i32, "lo");
  Value hi = ir_region_param(in.region, i32, "hi");
  Value mid = ir_2(&in, OP_ADD, lo, hi);
  mid = ir_2(&in, OP_FLOORDIV, mid, lower_int(&in, 2));
  Value go = ir_2(&in, OP_LE, first_slot(s, &in, mid), s->slot);
  Value next[] = {ir_3(&in, OP_SELECT, go, mid, lo),
                  ir_3(&in, OP_SELECT, go, hi, mid)};
  ir_yield(&in, next, 2);
  return uniform(b, loop->res[0]);
}

// Slots behind a sequence's last tile are tiles behind its end.
static void find_sequence(Place *p, Builder *b, const Packed *k, Value slot,
                          int64_t tile) {
  Value zero = lower_int(b, 0), args[] = {p->memo[k->offsets][0], zero};
  Search s = {.offsets = args[0], .slot = slot, .tile = tile};
  s.first = lower_op(b, OP_GLOAD, args, 2, type_scalar(DT_I32), NULL, 0);
  Value n = lower_dim(b, p->f->axes.at[k->batch].extent);
  Value at = sequence_of(&s, b, n);
  Value row = ir_2(b, OP_SUB, slot, first_slot(&s, b, at));
  Dim all = dim_ceildiv(&p->m->dims, p->f->axes.at[p->lane].extent, tile);
  row = uniform(b, ir_2(b, OP_MIN, row, lower_dim(b, all)));
  p->origin[k->batch] = at;
  p->origin[p->lane] = ir_2(b, OP_MUL, row, lower_int(b, tile));
}

// ---------------------------------------------------------------- plan
// Parts that a phase in front has planned, if it has tasks.
typedef struct Planned {
  Place *p;
  const Op *op;  // NULL: none
  Value on;      // bool: it has
  Value others;  // tasks of each part
} Planned;

enum { WHICH, PART };  // columns of the plan (passes/tile/split_plan.c)

static void find_planned(void *data, Op *op) {
  Planned *x = data;
  if (op->code == OP_PLANNED) x->op = op;
}

// Nothing is asked of memory where nothing is planned: no row.
static Value from_plan(const Planned *x, Builder *b, Value row, int column) {
  row = ir_3(b, OP_SELECT, x->on, row, lower_int(b, -1));
  Value args[] = {x->p->memo[x->op->args[0]][0], row, lower_int(b, column)};
  return lower_op(b, OP_GLOAD, args, 3, type_scalar(DT_I32), NULL, 0);
}

static uint32_t planned_axis(const Planned *x, bool part) {
  return (uint32_t)ir_attr(x->op, AT_AXES)->list[part];
}

static bool is_planned(const Planned *x, const GridDim *g) {
  return x->op &&
         (g->axis == planned_axis(x, 0) || g->axis == planned_axis(x, 1));
}

// There is one tile at most along it, as in bodies for few rows: tasks have no
// number of it.
static bool is_single(const Place *p, const GridDim *g) {
  DimTab *d = &p->m->dims;
  Dim extent = p->g->axes.at[g->axis].extent;
  int64_t lo, hi;
  dim_bounds(d, dim_ceildiv(d, extent, g->tile), &lo, &hi);
  return hi <= 1 || (lower_is_few(p, extent) && g->tile >= p->most);
}

static Value tiles_along(const Place *p, Builder *b, const GridDim *g) {
  Dim e = p->g->axes.at[g->axis].extent;
  return lower_dim(b, dim_ceildiv(&p->m->dims, e, g->tile));
}

// What tasks have in common; how many there are.
static void count_planned(Planned *x, Builder *b) {
  Place *p = x->p;
  Value all = lower_op(b, OP_NTASKS, NULL, 0, type_scalar(DT_I32), NULL, 0);
  x->others = lower_int(b, 1);
  for (uint32_t i = 0; i < p->g->grid.n; i++) {
    const GridDim *g = &p->g->grid.at[i];
    if (!is_planned(x, g) && !is_single(p, g))
      x->others = ir_2(b, OP_MUL, x->others, tiles_along(p, b, g));
  }
  x->others = ir_2(b, OP_MAX, x->others, lower_int(b, 1));
  Value on = lower_dim(b, (Dim)ir_attr_i(x->op, AT_DIM, 0));
  x->on = ir_2(b, OP_LT, lower_int(b, 0), on);
  Value some = from_plan(x, b, lower_int(b, 0), 0);
  some = ir_3(b, OP_SELECT, x->on, some, all);
  ir_op(b, OP_TASK_PLAN, &some, 1, NULL, 0, NULL, 0, 0);
}

// Sequence and part of a task; which of the part's tasks it is.
static Value find_part(Planned *x, Builder *b, Value task) {
  Place *p = x->p;
  uint32_t by = planned_axis(x, 0), axis = planned_axis(x, 1);
  Value one = lower_int(b, 1), slot = ir_2(b, OP_FLOORDIV, task, x->others);
  Value row = ir_2(b, OP_ADD, slot, one);
  Value at = from_plan(x, b, row, WHICH), part = from_plan(x, b, row, PART);
  Value n = lower_dim(b, p->f->axes.at[axis].extent);
  at = ir_3(b, OP_SELECT, x->on, at, ir_2(b, OP_FLOORDIV, slot, n));
  part = ir_3(b, OP_SELECT, x->on, part, ir_2(b, OP_MOD, slot, n));
  p->origin[by] = uniform(b, at);
  p->origin[axis] = uniform(b, part);
  return ir_2(b, OP_SUB, task, ir_2(b, OP_MUL, slot, x->others));
}

// ---------------------------------------------------------------- grid
// Slots take the places of the tiled axis and its sequences.
static void slots_in_grid(Place *p, const Packed *k, int64_t tile) {
  DimTab *d = &p->m->dims;
  Dim n = dim_bin(d, DIM_FLOORDIV, k->total, dim_const(d, tile));
  n = dim_bin(d, DIM_ADD, n, p->f->axes.at[k->batch].extent);
  uint32_t slot = ir_axis(p->g, "slot", AX_PAR, n), at = 0;
  for (uint32_t i = 0; i < p->g->grid.n; i++) {
    GridDim g = p->g->grid.at[i];
    if (g.axis == k->batch) continue;
    bool lane = (int)g.axis == p->lane;
    p->g->grid.at[at++] = lane ? (GridDim){.axis = slot, .tile = 1} : g;
  }
  p->g->grid.n = at;
}

// Groups of one task have the parts.
static void leave_grid(Place *p) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < p->g->grid.n; i++)
    if ((int)p->g->grid.at[i].axis != p->part)
      p->g->grid.at[at++] = p->g->grid.at[i];
  p->g->grid.n = at;
}

static int64_t lane_tile(const Place *p) {
  for (uint32_t i = 0; i < p->f->grid.n; i++)
    if ((int)p->f->grid.at[i].axis == p->lane) return p->f->grid.at[i].tile;
  return 1;
}

// added: of axes that only the grid has, the last ones of g.
static void put_origin(Place *p, const GridDim *g, Value x, Value added[2]) {
  uint32_t own = p->f->axes.n;
  if (g->axis < own) p->origin[g->axis] = x;
  else added[g->axis - own] = x;
}

// The last entry of the grid is the fastest.
void lower_origins(Place *p, Builder *b) {
  Packed k;
  bool packed = packed_lane(p, &k);
  if (p->part >= 0) leave_grid(p);
  if (packed) slots_in_grid(p, &k, lane_tile(p));
  else if (p->part < 0) lower_plan_share(p);
  Value t = lower_op(b, OP_TASK, NULL, 0, type_scalar(DT_I32), NULL, 0);
  Value added[2] = {0};
  Planned plan = {.p = p};
  ir_walk(p->f->body, find_planned, &plan);
  if (packed || p->share.on) plan.op = NULL;
  if (plan.op) {
    count_planned(&plan, b);
    t = find_part(&plan, b, t);
  }
  for (uint32_t i = p->g->grid.n; i-- > 0;) {
    const GridDim *g = &p->g->grid.at[i];
    Value x = t;
    if (is_planned(&plan, g)) continue;
    if (is_single(p, g)) {
      put_origin(p, g, lower_int(b, 0), added);
      continue;
    }
    if (i > 0) {
      bool keys = p->share.on && g->axis == p->share.keys;
      Value n = keys ? lower_share_count(p, b) : tiles_along(p, b, g);
      x = ir_2(b, OP_MOD, t, n);
      t = ir_2(b, OP_FLOORDIV, t, n);
    }
    if (g->tile > 1) x = ir_2(b, OP_MUL, x, lower_int(b, g->tile));
    put_origin(p, g, x, added);
  }
  if (packed) find_sequence(p, b, &k, added[0], lane_tile(p));
  if (p->share.on) lower_share(p, b, added[0], added[1]);
}
