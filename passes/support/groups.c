// Heads in groups that share keys.
#include "passes/support/groups.h"

// Of quotients only divisors are kept from 0.
static bool whole_dim(const Func *f, Value v, Dim *out) {
  DimTab *d = &f->mod->dims;
  const Op *op = ir_def(f, v);
  int64_t c;
  Dim x, y;
  if (ir_const_whole(f, v, &c)) *out = dim_const(d, c);
  else if (op && op->code == OP_DIM) *out = (Dim)ir_attr_i(op, AT_DIM, 0);
  else if (op && op->code == OP_FLOORDIV && whole_dim(f, op->args[0], &x) &&
           group_dim(f, op->args[1], &y))
    *out = dim_bin(d, DIM_FLOORDIV, x, y);
  else return false;
  return true;
}

bool group_dim(const Func *f, Value v, Dim *out) {
  DimTab *d = &f->mod->dims;
  if (!whole_dim(f, v, out)) return false;
  *out = dim_bin(d, DIM_MAX, *out, dim_const(d, 1));
  return true;
}

bool group_of(const Func *f, Value v, uint32_t *axis, Dim *size) {
  const Op *op = ir_def(f, v);
  if (!op || op->code != OP_FLOORDIV) return false;
  const Op *i = ir_def(f, op->args[0]);
  if (!i || i->code != OP_INDEX) return false;
  *axis = (uint32_t)ir_attr_i(i, AT_AXIS, 0);
  return f->axes.at[*axis].role == AX_PAR && group_dim(f, op->args[1], size);
}

Dim group_count(DimTab *d, Dim extent, Dim size) {
  Dim up = dim_bin(d, DIM_ADD, size, dim_const(d, -1));
  return dim_bin(d, DIM_FLOORDIV, dim_bin(d, DIM_ADD, extent, up), size);
}

bool groups_few(const PassOpt *opt) {
  const Target *t = opt->target;
  bool mostly = opt->decode && t->kind == TARGET_GPU && !t->gpu.hopper;
  return opt->few || opt->group || mostly;
}
