// Which rows of a tile are none: those behind the end of the tiled axis.
//
//   before  axes(g par Hk, j par R)   store(%T, %x, g * R + j)
//   after   store(%T, %x, g * R + j, lt(j, R)) {masked}
//
// What is out of a tensor's range is dropped by itself. Where the tiled axis is
// an axis of the tensor, or is one divided by a size (rows of several heads),
// that is all rows behind its end. A sum of it and of another coordinate may
// still lie in the tensor, in a place that belongs to another task.
// Tests: test/passes/tile/row-ends.tir.
#include "passes/tile/loop.h"

static Dim dim_of(const Func *f, Value v) {
  DimTab *d = &f->mod->dims;
  const Op *op = ir_def(f, v);
  double n;
  if (ir_const_value(f, v, &n)) return dim_const(d, (int64_t)n);
  if (op && op->code == OP_DIM) return (Dim)ir_attr_i(op, AT_DIM, DIM_NONE);
  if (!op || op->code != OP_FLOORDIV) return DIM_NONE;
  return dim_bin(d, DIM_FLOORDIV, dim_of(f, op->args[0]),
                 dim_of(f, op->args[1]));
}

// A coordinate, or a multiple of one.
static bool is_natural(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  double n;
  if (ir_const_value(f, v, &n)) return n >= 0;
  if (op && op->code == OP_MUL)
    return is_natural(f, op->args[0]) && is_natural(f, op->args[1]);
  return op && (op->code == OP_INDEX || op->code == OP_DIM);
}

// Is index v of an axis of the tensor out of its range, `size`, for all rows
// behind the end of the lane axis?
static bool ends_with(const Tiler *t, Value v, Dim size) {
  const Func *f = t->from;
  DimTab *d = &f->mod->dims;
  const Op *op = ir_def(f, v);
  uint32_t lane = (uint32_t)t->plan.lane;
  if (!op) return false;
  if (op->code == OP_INDEX)
    return (uint32_t)ir_attr_i(op, AT_AXIS, 0) == lane &&
           size == f->axes.at[lane].extent;
  if (op->code == OP_ADD)
    for (uint32_t i = 0; i < 2; i++)
      if (is_natural(f, op->args[1 - i]) && ends_with(t, op->args[i], size))
        return true;
  Dim by = op->nargs == 2 ? dim_of(f, op->args[1]) : DIM_NONE;
  if (by == DIM_NONE) return false;
  Dim scaled = dim_bin(d, DIM_MUL, size, by);
  if (op->code == OP_FLOORDIV) return ends_with(t, op->args[0], scaled);
  Dim part = dim_bin(d, DIM_FLOORDIV, size, by);
  return op->code == OP_MUL && dim_bin(d, DIM_MUL, part, by) == size &&
         ends_with(t, op->args[0], part);
}

// Does a store reach behind the end of the lane axis, into the tensor?
static bool reaches_behind(const Tiler *t, const Op *op) {
  const Func *f = t->from;
  const Type *to = ir_type(f, op->args[0]);
  uint32_t lane = (uint32_t)t->plan.lane;
  int64_t n;
  if (dim_is_const(&f->mod->dims, f->axes.at[lane].extent, &n) &&
      n % t->plan.tile_q == 0)
    return false;
  bool varies = false;
  for (uint32_t i = 0; i < to->n; i++) {
    Value v = op->args[2 + i];
    varies |= type_has_axis(ir_type(f, v), lane);
    if (ends_with(t, v, to->size[i])) return false;
    // Rows up to the next multiple of 16 are nobody's.
    const Op *at = ir_def(f, v);
    if (to->quads && i + 2 == to->n && at && at->code == OP_INDEX &&
        (uint32_t)ir_attr_i(at, AT_AXIS, 0) == lane)
      return false;
  }
  return varies;
}

Value tile_row_ends(Tiler *t, Builder *b, const Op *op) {
  // Rows that a domain leaves out are none already.
  if (t->plan.lane < 0 || t->rows || !reaches_behind(t, op)) return 0;
  uint32_t lane = (uint32_t)t->plan.lane;
  return ir_2(b, OP_LT, t->coord[lane],
              ir_dim(b, t->from->axes.at[lane].extent));
}

// Keys behind the end of their axis are out of the tensor too.
bool tile_ends_with_keys(const KeyLoop *l, const Op *op, const ValueMap *m) {
  const Type *t = ir_type(l->t->from, op->args[0]);
  uint32_t first = op->code == OP_STORE ? 2 : 1;
  if (ir_attr_i(op, AT_INBOUNDS, 0)) return false;
  for (uint32_t i = 0; i < t->n; i++)
    if (t->size[i] == l->t->from->axes.at[l->axis].extent &&
        vmap_get(m, op->args[first + i]) == l->t->coord[l->axis])
      return true;
  return false;
}
