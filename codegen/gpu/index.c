// What indices and masks of accesses are, by the ops that make them.
#include "codegen/gpu/gpu.h"

#include <math.h>

bool gpu_is_multiple(const Gpu *n, Value v, int64_t k) {
  const Op *op = ir_def(n->f, v);
  double x;
  if (ir_const_value(n->f, v, &x)) return fmod(x, (double)k) == 0;
  if (!op) {  // a loop's coordinate
    const Region *r = ir_info(n->f, v)->region;
    const Op *loop = r ? r->parent : NULL;
    return loop && loop->code == OP_FOR && r->params.at[0] == v &&
           gpu_is_multiple(n, loop->args[0], k) &&
           gpu_is_multiple(n, loop->args[2], k);
  }
  if (op->code == OP_COORD) return true;
  if (op->code == OP_SPLAT || op->code == OP_UNIFORM)
    return gpu_is_multiple(n, op->args[0], k);
  bool all = op->code == OP_ADD || op->code == OP_SUB || op->code == OP_MAX ||
             op->code == OP_MIN;
  if (!all && op->code != OP_MUL) return false;
  bool a = gpu_is_multiple(n, op->args[0], k),
       b = gpu_is_multiple(n, op->args[1], k);
  return all ? a && b : a || b;
}

bool gpu_is_run(const Gpu *n, Value v) {
  const Op *op = ir_def(n->f, v);
  if (!op || op->code == OP_COORD) return op != NULL;
  const Op *x = op->nargs == 2 ? ir_def(n->f, op->args[0]) : NULL;
  const Op *y = op->nargs == 2 ? ir_def(n->f, op->args[1]) : NULL;
  if (!x || !y || (op->code != OP_ADD && op->code != OP_SUB)) return false;
  if (y->code == OP_SPLAT || y->code == OP_CONST)
    return gpu_is_run(n, op->args[0]);
  return op->code == OP_ADD && x->code == OP_SPLAT &&
         gpu_is_run(n, op->args[1]);
}

bool gpu_begins(const Gpu *n, Value v, int64_t of) {
  const Op *op = ir_def(n->f, v);
  double x;
  int64_t k;
  if (!op) return false;
  if (op->code == OP_DIM)
    return dim_is_const(&n->f->mod->dims, (Dim)ir_attr_i(op, AT_DIM, 0), &k) &&
           k % of == 0;
  if (ir_const_value(n->f, v, &x)) return fmod(x, (double)of) == 0;
  if (op->code == OP_COORD) return true;
  if (op->code == OP_SPLAT || op->code == OP_BCAST)
    return gpu_begins(n, op->args[0], of);
  if (op->code == OP_SELECT)
    return gpu_begins(n, op->args[1], of) && gpu_begins(n, op->args[2], of);
  if (op->code != OP_ADD && op->code != OP_SUB && op->code != OP_MUL)
    return false;
  bool a = gpu_begins(n, op->args[0], of), b = gpu_begins(n, op->args[1], of);
  return op->code == OP_MUL ? a || b : a && b;
}

bool gpu_is_of_rows(const Gpu *n, Value v) {
  const Op *op = ir_def(n->f, v);
  if (!op) return false;
  if (op->code == OP_AND)
    return gpu_is_of_rows(n, op->args[0]) && gpu_is_of_rows(n, op->args[1]);
  return op->code == OP_SPLAT ||
         (op->code == OP_BCAST &&
          ir_type(n->f, op->args[0])->slice == SLICE_ROW);
}
