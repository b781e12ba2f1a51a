// Sums that a factor of each row corrects, which is mostly 1.
#include "passes/hopper/scaled.h"

Value hop_unless_one(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (op && op->code == OP_BCAST) op = ir_def(f, op->args[0]);
  double k;
  bool lazy = op && op->code == OP_SELECT &&
              ir_const_value(f, op->args[2], &k) && k == 1;
  return lazy ? op->args[0] : 0;
}

Value hop_scaled(Builder *b, Value v, Value x, Value some) {
  IrAttr how[] = {{.id = AT_KIND, .i = RK_ANY}, attr_i(AT_WARP, 1)};
  Type bit = type_scalar(DT_BOOL);
  some = ir_op(b, OP_VOTE, &some, 1, how, 2, &bit, 1, 0)->res[0];
  Op *branch = ir_op(b, OP_IF, &some, 1, NULL, 0, ir_type(b->fn, v), 1, 2);
  Builder in = {.fn = b->fn, .region = branch->regions[0], .span = b->span};
  Value y = ir_2(&in, OP_MUL, v, x);
  ir_yield(&in, &y, 1);
  in.region = branch->regions[1];
  ir_yield(&in, &v, 1);
  return branch->res[0];
}
