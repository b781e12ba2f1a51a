// Slices along columns as rows.
#include "passes/support/thin.h"

#include "ir/layout.h"
#include "passes/support/cost.h"

bool thin_type(const Type *t, uint32_t threads, Type *out) {
  Type tile = type_frag(t->dtype, t->ext[0], COST_PIECE, LY_LIN);
  FragMap to, from;
  *out = frag_slice(&tile, 0, false);
  return !frag_map(out, threads, &to) && !frag_map(t, threads, &from) &&
         2 * to.regs <= from.regs;
}

Value thin_op(Builder *b, const Op *op, const Value *args, Type t) {
  Op *r = ir_op(b, op->code, args, op->nargs, op->attrs, op->nattrs, &t, 1, 0);
  if (op->code == OP_COORD) ir_set_attr(b->fn, r, attr_i(AT_POS, 0));
  return r->res[0];
}
