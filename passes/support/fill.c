// What is changed of a shared tile where it lies.
#include "passes/support/fill.h"

static bool flips(const Op *op) {
  return ir_attr_i(op, AT_FLIP, 0) != 0;
}

uint32_t fill_args(const Op *op) {
  return op->nargs - flips(op) - (ir_attr_i(op, AT_CLEAN, 0) != 0);
}

uint32_t fill_attrs(const Op *op, IrAttr *out) {
  const IrAttr *pieces = ir_attr(op, AT_PIECES);
  out[0] = *ir_attr(op, AT_TILE);
  if (pieces) out[1] = *pieces;
  return pieces ? 2 : 1;
}

bool fill_told(const Func *f, const Op *op) {
  if (op->code != OP_SFILL) return false;
  Value row = op->args[1 + ir_attr(op, AT_TILE)->list[0]];
  return ir_type(f, row)->kind == TK_FRAG;
}

bool fill_wide(const Func *f, const Op *op) {
  return op->code == OP_SFILL &&
         ir_type(f, op->args[0])->dtype != ir_type(f, op->res[0])->dtype;
}

bool fill_mended(const Op *op) {
  return fill_args(op) < op->nargs;
}

Value fill_by(const Op *op) {
  return fill_mended(op) ? op->args[op->nargs - 1] : 0;
}

bool fill_stays(const Func *f, const Op *op, Value by) {
  double rows;
  if (!fill_mended(op)) return true;
  const Op *cast = ir_def(f, by);
  Value n = cast && cast->code == OP_CAST ? cast->args[0] : by;
  return !flips(op) && ir_const_value(f, n, &rows) &&
         rows >= (double)ir_type(f, op->res[0])->ext[0];
}

// Whether anything is to be done; 0: no.
static Value condition(Builder *b, const Op *fill, Value by) {
  int64_t all = ir_type(b->fn, fill->res[0])->ext[0];
  if (flips(fill)) return by;
  if (fill_stays(b->fn, fill, by)) return 0;
  Value n = ir_const_i(b, ir_type(b->fn, by)->dtype, all);
  return ir_2(b, OP_LT, by, n);
}

static void barrier(Builder *b, const FillGroups *all) {
  IrAttr at = attr_i(AT_THREADS, all->threads);
  Value id = all->group ? ir_const_i(b, DT_I32, HW_TASK_BARRIER) : 0;
  if (id) ir_op(b, OP_BAR_SYNC, &id, 1, &at, 1, NULL, 0, 0);
  else ir_bare(b, OP_GSYNC);
}

static Builder branch(Builder *b, Value cond) {
  Op *op = ir_op(b, OP_IF, &cond, 1, NULL, 0, NULL, 0, 2);
  Builder in = {.fn = b->fn, .region = op->regions[1], .span = b->span};
  ir_yield(&in, NULL, 0);
  in.region = op->regions[0];
  return in;
}

static void change(Builder *b, const Op *fill, Value tile, Value by,
                   const FillGroups *all) {
  Value args[] = {tile, by};
  if (flips(fill)) ir_op(b, OP_SFLIP, args, 1, NULL, 0, NULL, 0, 0);
  else ir_op(b, OP_SCLEAN, args, 2, NULL, 0, NULL, 0, 0);
  if (all->proxies) ir_bare(b, OP_FENCE_ASYNC);
}

void fill_mend(Builder *b, const Op *fill, Value tile, Value by,
               const FillGroups *all) {
  Value cond = condition(b, fill, by);
  if (!cond) return;
  Builder in = branch(b, cond);
  barrier(&in, all);  // all have waited
  if (all->group) {
    Value first = ir_2(&in, OP_EQ, all->group, ir_const_i(&in, DT_I32, 0));
    Builder own = branch(&in, first);
    change(&own, fill, tile, by, all);
    ir_yield(&own, NULL, 0);
  } else {
    change(&in, fill, tile, by, all);
  }
  barrier(&in, all);
  ir_yield(&in, NULL, 0);
}
