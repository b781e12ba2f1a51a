// How indices of a tile go on from register to register: what loads and stores
// ask before they take several elements at once.
#include "codegen/gpu/runs.h"

#include <math.h>

// Is v a multiple of k, but for a tile's own coordinates?
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

// Consecutive numbers: the coordinate plus what is the same for all.
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

// The same choice for all of a piece: of what is on one side of its beginning.
static bool is_choice_of_pieces(const Gpu *n, Value v) {
  const Op *op = ir_def(n->f, v);
  const Op *x = op && op->code == OP_LT ? ir_def(n->f, op->args[0]) : NULL;
  double k;
  return x && x->code == OP_COORD && ir_const_value(n->f, op->args[1], &k) &&
         fmod(k, GPU_PIECE) == 0;
}

// Consecutive numbers in each piece.
static bool is_run_of_pieces(const Gpu *n, Value v) {
  const Op *op = ir_def(n->f, v);
  if (!op || op->code != OP_SELECT) return gpu_is_run(n, v);
  return is_choice_of_pieces(n, op->args[0]) &&
         is_run_of_pieces(n, op->args[1]) && is_run_of_pieces(n, op->args[2]);
}

// Consecutive numbers up to a bound (`GO_CUT`): they may be told by their ends.
Going gpu_going(const Gpu *n, Value v) {
  const Op *op = ir_def(n->f, v);
  const Type *t = ir_type(n->f, v);
  if (t->kind != TK_FRAG || t->slice == SLICE_ROW) return GO_SAME;
  if (t->slice == SLICE_COL) return is_run_of_pieces(n, v) ? GO_NEXT : GO_ANY;
  if (!op || op->nargs > 2) return GO_ANY;
  if (op->code == OP_SPLAT) return GO_SAME;
  if (op->code == OP_BCAST) return gpu_going(n, op->args[0]);
  if (op->code != OP_ADD && op->code != OP_MIN) return GO_ANY;
  Going x = gpu_going(n, op->args[0]), y = gpu_going(n, op->args[1]);
  if (x == GO_SAME) x = y, y = GO_SAME;
  if (y != GO_SAME || x == GO_ANY) return GO_ANY;
  return op->code == OP_MIN && x == GO_NEXT ? GO_CUT : x;
}

// Is v a multiple of GPU_PIECE where a piece of `lin` begins?
bool gpu_begins_pieces(const Gpu *n, Value v) {
  const Op *op = ir_def(n->f, v);
  double x;
  int64_t k;
  if (!op) return false;
  if (op->code == OP_DIM)
    return dim_is_const(&n->f->mod->dims, (Dim)ir_attr_i(op, AT_DIM, 0), &k) &&
           k % GPU_PIECE == 0;
  if (ir_const_value(n->f, v, &x)) return fmod(x, GPU_PIECE) == 0;
  if (op->code == OP_COORD) return true;
  if (op->code == OP_SPLAT || op->code == OP_BCAST)
    return gpu_begins_pieces(n, op->args[0]);
  if (op->code == OP_SELECT)
    return gpu_begins_pieces(n, op->args[1]) &&
           gpu_begins_pieces(n, op->args[2]);
  if (op->code != OP_ADD && op->code != OP_SUB && op->code != OP_MUL)
    return false;
  bool a = gpu_begins_pieces(n, op->args[0]),
       b = gpu_begins_pieces(n, op->args[1]);
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
