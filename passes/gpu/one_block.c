// Loads at the number of a block of rows or keys, where a group's tile is one
// block: all of its rows, or columns, read the same (part of `lower_gpu`).
//
//   before  %n = floordiv(%origin + iota, 64) : i64{k:128}
//           load(%T, %n, %q) : f32{k:128,q:32}
//   after   gload(%T, (%origin + group) / 64, %q) : frag<32xf32,acc.1>, bcast
//
// What running sums have in front of blocks is read so (grad_scan.c). Test:
// test/passes/lower_gpu/one-block.tir.
#include "ir/multiple.h"
#include "passes/gpu/gpu.h"

typedef struct Number {
  uint32_t axis;
  Value first;   // coordinate of the tile
  int64_t size;  // of a block
} Number;

// Is v the number of the block that a group's tile is?
static bool is_number(const Place *p, Value v, Number *n) {
  const Op *op = ir_def(p->f, v);
  const Type *t = ir_type(p->f, v);
  double size;
  if (!op || op->code != OP_FLOORDIV || t->n != 1 ||
      !ir_const_value(p->f, op->args[1], &size))
    return false;
  const Op *sum = ir_def(p->f, op->args[0]);
  if (!sum || sum->code != OP_ADD) return false;
  int64_t tile = 0;
  bool rows = (int)t->axis[0] == p->lane;
  *n = (Number){.axis = t->axis[0], .size = (int64_t)size};
  for (uint32_t i = 0; i < 2; i++) {
    const Op *iota = ir_def(p->f, sum->args[i]);
    if (iota && iota->code == OP_IOTA) n->first = sum->args[!i];
  }
  if (rows) tile = p->share.on ? 0 : p->rows;
  else if (!dim_is_const(&p->m->dims, t->size[0], &tile)) return false;
  return n->first && !ir_type(p->f, n->first)->n && tile == n->size &&
         ir_multiple(p->f, n->first) % tile == 0;
}

// The index of op that is a number, of one of the axes of the tile, and no
// other index has; or 0.
static uint32_t number_of(const Place *p, const Op *op, const View *v,
                          Number *n) {
  uint32_t found = 0, with = 0;
  for (uint32_t i = 1; i < op->nargs && !found; i++)
    if (is_number(p, op->args[i], n) &&
        ((int)n->axis == v->row || (int)n->axis == v->col))
      found = i;
  for (uint32_t i = 1; i < op->nargs && found; i++)
    with += type_has_axis(ir_type(p->f, op->args[i]), n->axis);
  return with == 1 ? found : 0;
}

static Value number_value(Place *p, Builder *b, const Number *n) {
  Value first = lower_index(b, lower_scalar(p, n->first));
  Value by = p->failed ? 0 : lower_moved(p, b, n->axis);
  if (p->failed) return 0;
  if (by) first = ir_2(b, OP_ADD, first, by);
  return ir_2(b, OP_FLOORDIV, first, lower_int(b, n->size));
}

Value lower_block_load(Place *p, Builder *b, const Op *op, const View *v,
                       Type tile) {
  Number n;
  Value args[MAX_AXES + 1] = {p->memo[op->args[0]][0]};
  uint32_t at = v->col >= 0 ? number_of(p, op, v, &n) : 0;
  if (!at) return 0;
  bool row = (int)n.axis == v->row;
  for (uint32_t i = 1; i < op->nargs && !p->failed; i++)
    args[i] =
        i == at ? number_value(p, b, &n) : lower_index_of(p, op->args[i], v);
  if (p->failed) return 0;
  DType dt = ir_type(p->f, op->args[0])->dtype;
  Type slice = lower_slice_type(p, dt, (uint32_t)(row ? v->col : v->row),
                                2 * v->frag + (row ? ROLE_COL : ROLE_ROW));
  tile.dtype = dt;
  return lower_as(b, lower_op(b, OP_GLOAD, args, op->nargs, slice, NULL, 0),
                  tile);
}
