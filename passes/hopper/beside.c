// Products of what groups put together: half the sums to add to memory.
#include "passes/hopper/beside.h"

#include "ir/layout.h"

// v of group 0.
static Value of_first(const Rings *w, Builder *b, Value v) {
  const Op *op = ir_def(w->f, v);
  if (!w->grouped[v]) return v;
  if (op->code == OP_GROUP) return ir_const_i(b, DT_I32, 0);
  Value args[4];
  for (uint32_t i = 0; i < op->nargs; i++)
    args[i] = of_first(w, b, op->args[i]);
  return ir_op(b, op->code, args, op->nargs, op->attrs, op->nattrs,
               ir_type(w->f, v), 1, 0)
      ->res[0];
}

// Is v a number of all groups, and so many for each group in front?
static bool is_of_rows(const Rings *w, Value v, double rows) {
  const Op *op = ir_def(w->f, v);
  double k;
  if (!op || op->nargs != 2) return false;
  const Op *x = ir_def(w->f, op->args[0]);
  if (op->code == OP_MUL)
    return x && x->code == OP_GROUP && ir_const_value(w->f, op->args[1], &k) &&
           k == rows;
  if (op->code != OP_ADD) return false;
  bool first = w->grouped[op->args[0]];
  return first != w->grouped[op->args[1]] &&
         is_of_rows(w, op->args[!first], rows);
}

bool hop_beside_of_groups(const Rings *w, const Op *mma) {
  const Op *fill = ir_def(w->f, mma->args[1]);
  const Type *t = ir_type(w->f, mma->args[1]);
  const Type *put = ir_type(w->f, mma->args[0]);
  const IrAttr *tile = fill ? ir_attr(fill, AT_TILE) : NULL;
  bool rows = ir_attr_i(mma, AT_TRANS, 0) && ir_attr_i(mma, AT_TRANSA, 0);
  if (!tile || tile->n != 2 || fill->code != OP_SFILL || fill->nattrs != 1 ||
      !rows || !smem_has_whole_panels(put))
    return false;
  for (uint32_t i = 1; i < fill->nargs; i++) {
    bool row = (int64_t)i - 1 == tile->list[0];
    if (w->grouped[fill->args[i]] != row) return false;
    if (row && !is_of_rows(w, fill->args[i], t->ext[0])) return false;
  }
  return true;
}

Value hop_beside_all(const Rings *w, Builder *b, const Op *mma) {
  const Op *fill = ir_def(w->f, mma->args[1]);
  Value args[MAX_AXES + 1];
  Type t = *ir_type(w->f, fill->res[0]);
  t.ext[0] *= w->groups;
  for (uint32_t k = 0; k < fill->nargs; k++)
    args[k] = of_first(w, b, fill->args[k]);
  return ir_op(b, OP_SFILL, args, fill->nargs, fill->attrs, fill->nattrs, &t, 1,
               0)
      ->res[0];
}

Type hop_beside_put(const Rings *w, const Op *mma) {
  Type t = *ir_type(w->f, mma->args[0]);
  t.ext[0] *= w->groups;
  return t;
}

Value hop_beside_gathered(Builder *b, Type all, Value words, int64_t visit) {
  IrAttr at = attr_i(AT_VISIT, visit);
  return ir_op(b, OP_GTILE, &words, 1, &at, 1, &all, 1, 0)->res[0];
}
