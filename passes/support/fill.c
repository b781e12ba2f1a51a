// The sign of a shared tile.
#include "passes/support/fill.h"

uint32_t fill_args(const Op *op) {
  return op->nargs - (ir_attr_i(op, AT_FLIP, 0) != 0);
}

uint32_t fill_attrs(const Op *op, IrAttr *out) {
  const IrAttr *pieces = ir_attr(op, AT_PIECES);
  out[0] = *ir_attr(op, AT_TILE);
  if (pieces) out[1] = *pieces;
  return pieces ? 2 : 1;
}

Value fill_sign(const Op *op) {
  uint32_t n = fill_args(op);
  return n < op->nargs ? op->args[n] : 0;
}

void fill_flip(Builder *b, const Target *t, Value tile, Value sign) {
  Op *branch = ir_op(b, OP_IF, &sign, 1, NULL, 0, NULL, 0, 2);
  Builder in = {.fn = b->fn, .region = branch->regions[0], .span = b->span};
  ir_bare(&in, OP_GSYNC);  // all have waited
  ir_op(&in, OP_SFLIP, &tile, 1, NULL, 0, NULL, 0, 0);
  if (t->gpu.hopper) ir_bare(&in, OP_FENCE_ASYNC);
  ir_bare(&in, OP_GSYNC);
  ir_yield(&in, NULL, 0);
  in.region = branch->regions[1];
  ir_yield(&in, NULL, 0);
}
