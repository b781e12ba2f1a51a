// Parts of a recurrence whose writes erase (part of the pass `tile`; the tasks
// are those of parts.c).
//
//   func @p.states(.., %M: tensor<f32[P, .., D, Dv + D]> shared)
//       grid(.., v:64, part:1)             the axis v is D columns longer
//     part 0      %S = M[1] from the first state, which is M[0]
//     part p > 0  %S = from 0, and behind column Dv from the matrix of ones
//                      without w: what the part makes of a state, as a matrix
//   func @p.joins(..) grid(.., v:64)
//     for(p) { M[p + 1, v < Dv] = M[p + 1, v >= Dv] M[p, v < Dv] + M[p + 1, v < Dv] }
//   func @p(..) grid(.., v:64, part:1)
//     %S = M[part]
//
// Columns of a state do not know of each other, so the linear map of a part is
// found by the same code as what it writes, as more columns. Its first part
// needs none. In the product that joins, rows that are summed over and rows
// that come out have to be two axes: op renamed makes these those of the next.
// Parts pay from three on.
#include "passes/support/cost.h"
#include "passes/tile/step.h"

static const Type *state_type(const Tiler *t) {
  return ir_type(t->from, t->plan.walk->res[0]);
}

static uint32_t row_of(const Tiler *t) {
  Affine a;
  affine_parts(t->plan.walk, &a);
  return a.row;
}

static Dim columns(const Tiler *t) {
  return t->from->axes.at[t->plan.lane].extent;
}

static Dim rows(const Tiler *t) {
  return t->from->axes.at[row_of(t)].extent;
}

// As many parts as the states of all but the last, and the maps of all but
// that and the first, have room at a time. From three on, else one.
Dim tile_linear_parts(DimTab *d, Dim tasks, Dim maps, Dim most, int64_t room) {
  Dim n =
      dim_bin(d, DIM_ADD, tasks, dim_bin(d, DIM_MUL, maps, dim_const(d, 2)));
  n = dim_bin(d, DIM_ADD, n, dim_const(d, room));
  n = dim_bin(d, DIM_FLOORDIV, n, dim_bin(d, DIM_ADD, tasks, maps));
  Dim parts =
      dim_bin(d, DIM_MAX, dim_bin(d, DIM_MIN, n, most), dim_const(d, 1));
  Dim two = dim_const(d, 2), three = dim_const(d, 3);
  Dim lost = dim_bin(d, DIM_FLOORDIV, dim_bin(d, DIM_MIN, parts, two), two);
  Dim back = dim_bin(d, DIM_FLOORDIV, dim_bin(d, DIM_MIN, parts, three), three);
  Dim minus = dim_bin(d, DIM_MUL, lost, dim_const(d, -1));
  return dim_bin(d, DIM_ADD, dim_bin(d, DIM_ADD, parts, minus), back);
}

Dim tile_linear_extent(const Tiler *t, uint32_t axis) {
  Dim n = t->from->axes.at[axis].extent;
  bool longer = t->plan.linear && (int)axis == t->plan.lane;
  return longer ? dim_bin(&t->to->mod->dims, DIM_ADD, n, rows(t)) : n;
}

// ---------------------------------------------------------------- states
// Which columns of the task are a state's.
static Value is_column(const Tiler *t, Builder *b) {
  return ir_2(b, OP_LT, t->coord[t->plan.lane], ir_dim(b, columns(t)));
}

// Beyond its tensor w is 0.
static bool is_bounded(const Tiler *t, const Func *f, Value v) {
  const Op *op = v ? ir_def(f, v) : NULL;
  for (uint32_t i = 1; op && op->code == OP_LOAD && i < op->nargs; i++)
    if (op->args[i] == t->coord[t->plan.lane] &&
        ir_type(f, op->args[0])->size[i - 1] == columns(t))
      return true;
  return false;
}

Value tile_linear_written(const Tiler *t, Builder *b, Value w, Value vector) {
  if (!t->plan.linear || t->share != SHARE_STATES ||
      is_bounded(t, b->fn, vector))
    return w;
  Value zero = ir_const_f(b, ir_type(b->fn, w)->dtype, 0);
  return ir_3(b, OP_SELECT, is_column(t, b), w, zero);
}

static Value is_first(const Tiler *t, Builder *b) {
  return ir_2(b, OP_EQ, t->part, ir_int(b, 0));
}

// Columns of the first part's map are not wanted.
Value tile_linear_stop(const Tiler *t, Builder *b, Value lo, Value stop) {
  Value beyond = ir_2(b, OP_LE, ir_dim(b, columns(t)), t->origin[t->plan.lane]);
  Value none = ir_2(b, OP_AND, is_first(t, b), beyond);
  return ir_3(b, OP_SELECT, none, lo, stop);
}

Value tile_linear_first(const Tiler *t, Builder *b, Value state) {
  Value one = ir_2(b, OP_ADD, t->coord[row_of(t)], ir_dim(b, columns(t)));
  one = ir_2(b, OP_EQ, one, t->coord[t->plan.lane]);
  Value zero = ir_const_f(b, DT_F32, 0);
  one = ir_3(b, OP_SELECT, one, ir_const_f(b, DT_F32, 1), zero);
  return ir_3(b, OP_SELECT, is_first(t, b), state, one);
}

// Indices of a state: the first one, then that behind each part.
static uint32_t place(const Tiler *t, Value slot, Value row, Value column,
                      Value *at) {
  const Type *s = state_type(t);
  uint32_t n = 0;
  at[n++] = slot;
  for (uint32_t k = 0; k < s->n; k++)
    at[n++] = s->axis[k] == row_of(t)           ? row
              : (int)s->axis[k] == t->plan.lane ? column
                                                : t->coord[s->axis[k]];
  return n;
}

static Value get(const Tiler *t, Builder *b, Value slot, Value row,
                 Value column) {
  Value at[MAX_AXES];
  uint32_t n = place(t, slot, row, column, at);
  return ir_load(b, t->partial[0], at, n);
}

static void put(const Tiler *t, Builder *b, Value v, Value slot, Value row) {
  Value at[MAX_AXES];
  uint32_t n = place(t, slot, row, t->coord[t->plan.lane], at);
  ir_store(b, t->partial[0], v, at, n);
}

static Value behind(Builder *b, Value part) {
  return ir_2(b, OP_ADD, part, ir_int(b, 1));
}

void tile_linear_store(const Tiler *t, Builder *b, Value state) {
  put(t, b, state, behind(b, t->part), t->coord[row_of(t)]);
}

// ---------------------------------------------------------------- joins
enum { MAX_PIECES = 4 };

// Rows of a state, in pieces: a thread has registers for some of a map's, and
// shared memory is for some. Of the last piece there may be fewer.
typedef struct Rows {
  uint32_t axis, n;
  Value at[MAX_PIECES];
} Rows;

static Rows open_rows(Tiler *t, Builder *b) {
  DimTab *d = &t->to->mod->dims;
  int64_t all = COST_JOIN_ROWS;
  dim_is_const(d, rows(t), &all);
  Rows r = {.n = (uint32_t)((all + COST_JOIN_ROWS - 1) / COST_JOIN_ROWS)};
  int64_t each = (all + r.n - 1) / r.n;
  Dim size = dim_const(d, each);
  r.axis = ir_axis(t->to, "row", AX_VEC, size);
  Value x = ir_iota(b, r.axis, size);
  for (uint32_t i = 0; i < r.n; i++)
    r.at[i] = i ? ir_2(b, OP_ADD, x, ir_int(b, each * i)) : x;
  return r;
}

// The state behind a part, its rows along `to`, of that before along `from`.
// Factors are sums of two values of the inputs' type: 2^-16 is left out.
static void join(Tiler *t, Builder *b, Value part, const Rows *from,
                 const Rows *to, Value *state) {
  Affine a;
  affine_parts(t->plan.walk, &a);
  Steps n = {.t = t, .narrow = lane_narrow(t->from, &a)};
  Value column = t->coord[t->plan.lane];
  Pair y[MAX_PIECES];
  Value slot = behind(b, part);
  for (uint32_t k = 0; k < from->n; k++)
    y[k] = tile_erase_split(&n, b, state[k]);
  for (uint32_t i = 0; i < to->n; i++) {
    Value s = get(t, b, slot, to->at[i], column);
    for (uint32_t k = 0; k < from->n; k++) {
      Value c = ir_2(b, OP_ADD, from->at[k], ir_dim(b, columns(t)));
      Pair x = tile_erase_split(&n, b, get(t, b, slot, to->at[i], c));
      s = tile_step_dot(&n, b, x.lo, y[k].hi, s, from->axis);
      s = tile_step_dot(&n, b, x.hi, y[k].lo, s, from->axis);
      s = tile_step_dot(&n, b, x.hi, y[k].hi, s, from->axis);
    }
    put(t, b, s, slot, to->at[i]);
    state[i] = s;
  }
}

// Rows that came out are those that the next turn sums over.
static Value renamed(Builder *b, Value v, Type t) {
  return ir_op(b, OP_RENAMED, &v, 1, NULL, 0, &t, 1, 0)->res[0];
}

// A part a turn.
void tile_linear_joins(Tiler *t, Builder *b) {
  DimTab *d = &t->to->mod->dims;
  Rows x = open_rows(t, b), y = open_rows(t, b);
  Dim last = dim_bin(d, DIM_ADD, t->plan.parts, dim_const(d, -1));
  Value args[3 + MAX_PIECES] = {ir_int(b, 1), ir_dim(b, last), ir_int(b, 1)};
  Type type[MAX_PIECES];
  for (uint32_t i = 0; i < x.n; i++) {
    args[3 + i] = get(t, b, args[0], x.at[i], t->coord[t->plan.lane]);
    type[i] = *ir_type(t->to, args[3 + i]);
  }
  Op *loop = ir_op(b, OP_FOR, args, 3 + x.n, NULL, 0, type, x.n, 1);
  Builder in = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  Value part = ir_region_param(in.region, type_scalar(DT_I64), "part");
  Value s[MAX_PIECES];
  for (uint32_t k = 0; k < x.n; k++)
    s[k] = ir_region_param(in.region, type[k], "state");
  join(t, &in, part, &x, &y, s);
  for (uint32_t k = 0; k < x.n; k++) s[k] = renamed(&in, s[k], type[k]);
  ir_yield(&in, s, x.n);
}

// The state that a part of the program begins with. Region 1 is for one part
// only: with several the last may write the first state back, in place, before
// the first part has read it.
Op *tile_linear_begin(const Tiler *t, Builder *b, Type type) {
  Value parts = ir_dim(b, t->plan.parts);
  Value several = ir_2(b, OP_LT, ir_int(b, 1), parts);
  Op *br = ir_op(b, OP_IF, &several, 1, NULL, 0, &type, 1, 2);
  Builder in = {.fn = b->fn, .region = br->regions[0], .span = b->span};
  Value s = get(t, &in, t->part, t->coord[row_of(t)], t->coord[t->plan.lane]);
  ir_yield(&in, &s, 1);
  return br;
}
