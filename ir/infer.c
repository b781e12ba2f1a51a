// Type inference: one rule per value of the `infer` column of ops.def.
#include "ir/infer.h"
#include "ir/layout.h"

#include <string.h>

DType infer_widen(DType a, DType b) {
  if (a == b) return a;
  bool fa = dtype_is_float(a), fb = dtype_is_float(b);
  if (fa != fb) return fa ? a : b;
  if (a == DT_BOOL) return b;
  if (b == DT_BOOL) return a;
  int sa = dtype_size(a), sb = dtype_size(b);
  if (sa != sb && (fa || dtype_kind(a) == dtype_kind(b)))
    return sa > sb ? a : b;
  // Same size, or signed with unsigned: neither holds the other's values.
  if (fa) return sa == 1 ? DT_F16 : DT_F32;
  return DT_I64;
}

const char *infer_union(const Type *a, const Type *b, DType dtype, Type *out) {
  if (a->kind == TK_ELEM && b->kind == TK_ELEM) {
    uint32_t n = a->n;
    for (uint32_t i = 0; i < b->n; i++) {
      int at = type_axis_at(a, b->axis[i]);
      if (at < 0) n++;
      else if (a->size[at] != b->size[i]) return "tile sizes of an axis differ";
    }
    if (n > MAX_AXES) return "more than 10 axes";
  } else if (a->kind == TK_VEC && b->kind == TK_VEC && a->n != b->n) {
    return "numbers of lanes differ";
  } else if (a->kind == TK_FRAG && b->kind == TK_FRAG &&
             frag_join(a, b, dtype).kind == TK_NONE) {
    return "fragments differ in shape or layout";
  }
  *out = type_union(a, b, dtype);
  return NULL;
}

// The union of the axes of operands lo .. n-1.
static const char *union_from(const Func *f, const Op *op, uint32_t lo,
                              DType dtype, Type *out) {
  Type t = type_scalar(dtype);
  for (uint32_t i = lo; i < op->nargs; i++) {
    const Type *a = ir_type(f, op->args[i]);
    if (a->kind != TK_ELEM && a->kind != TK_VEC && a->kind != TK_FRAG)
      return "operand is memory, not a value";
    const char *err = infer_union(&t, a, dtype, &t);
    if (err) return err;
  }
  *out = t;
  return NULL;
}

static const char *drop_over(const Op *op, Type *t) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  if (!over) return "attribute 'over' is missing";
  for (uint32_t i = 0; i < over->n; i++)
    *t = type_without(*t, (uint32_t)over->list[i]);
  return NULL;
}

static const char *infer_wide(const Func *f, const Op *op, Type *out) {
  DType d = ir_type(f, op->args[0])->dtype;
  for (uint32_t i = 1; i < op->nargs; i++)
    d = infer_widen(d, ir_type(f, op->args[i])->dtype);
  return union_from(f, op, 0, d, out);
}

static const char *infer_dot(const Func *f, const Op *op, Type *out) {
  DType d = DT_F32;
  for (uint32_t i = 0; i < op->nargs && i < 3; i++)
    if (ir_type(f, op->args[i])->dtype == DT_F64) d = DT_F64;
  // The addend, operand 2, has the result's axes: its own stay.
  Op product = *op;
  if (product.nargs > 2) product.nargs = 2;
  const char *err = union_from(f, &product, 0, d, out);
  if (!err) err = drop_over(op, out);
  if (err || op->nargs < 3) return err;
  if (op->nargs > 3 && ir_type(f, op->args[3])->dtype != DT_BOOL)
    return "operand 3 is not a bool";
  const Type *addend = ir_type(f, op->args[2]);
  if (addend->kind != TK_ELEM) return "operand is memory, not a value";
  return infer_union(out, addend, d, out);
}

static const char *infer_load(const Func *f, const Op *op, Type *out) {
  const Type *t = ir_type(f, op->args[0]);
  if (t->kind != TK_TENSOR) return "operand 0 is not a tensor";
  if (op->nargs - 1 != t->n) return "needs one index per axis of the tensor";
  return union_from(f, op, 1, t->dtype, out);
}

static const char *infer_index(const Op *op, Type *out) {
  const IrAttr *axis = ir_attr(op, AT_AXIS);
  if (!axis) return "attribute 'axis' is missing";
  *out = type_with(type_scalar(DT_I64), (uint32_t)axis->i, DIM_NONE);
  return NULL;
}

static const char *infer_cast(const Func *f, const Op *op, Type *out) {
  const IrAttr *to = ir_attr(op, AT_TO);
  if (!to) return "attribute 'to' is missing";
  return union_from(f, op, 0, (DType)to->i, out);
}

const char *infer_type(const Func *f, const Op *op, Type *out) {
  DType first = op->nargs ? ir_type(f, op->args[0])->dtype : DT_F32;
  const char *err = NULL;
  switch (op_info(op->code)->infer) {
  case INF_SAME: return union_from(f, op, 0, first, out);
  case INF_WIDE: return infer_wide(f, op, out);
  case INF_BOOL: return union_from(f, op, 0, DT_BOOL, out);
  case INF_SEL:
    return union_from(f, op, 0, ir_type(f, op->args[1])->dtype, out);
  case INF_CAST: return infer_cast(f, op, out);
  case INF_REAL: return union_from(f, op, 0, DT_F32, out);
  case INF_RED:
    err = union_from(f, op, 0, first, out);
    return err ? err : drop_over(op, out);
  case INF_DOT: return infer_dot(f, op, out);
  case INF_LOAD: return infer_load(f, op, out);
  case INF_INDEX: return infer_index(op, out);
  case INF_GIVEN:
  case INF_NONE: break;
  }
  return "has no inferred type";
}
