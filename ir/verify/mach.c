// The rules of single ops at level mach of a CPU: scalars, vectors and
// pointers, with nothing implicit; elementwise ops of GPUs too.
#include "ir/target.h"
#include "ir/verify/rule.h"

static bool is(const Type *t, TypeKind kind, DType dtype) {
  return t->kind == kind && t->dtype == dtype;
}

// ---------------------------------------------------------------- elementwise
static bool computes_in(DType t) {
  return t == DT_F32 || t == DT_F64 || t == DT_I64 || t == DT_I32 ||
         t == DT_BOOL;
}

// A tile's signs are bits.
static bool is_sign(const Op *op, const Type *t) {
  return op->code == OP_NEG && t->kind == TK_FRAG && dtype_is_float16(t->dtype);
}

static bool check_select(Verifier *v, const Op *op) {
  const Type *c = arg_type(v, op, 0), *a = arg_type(v, op, 1);
  if (!type_eq(a, arg_type(v, op, 2))) return wrong_operand(v, op, 2);
  Type want = *a;
  want.dtype = DT_BOOL;
  return type_eq(c, &want) || wrong_operand(v, op, 0);
}

// Equal types; of fragments, some may be partial.
static bool same_type(const Type *a, const Type *b) {
  if (a->kind != TK_FRAG || b->kind != TK_FRAG) return type_eq(a, b);
  return a->dtype == b->dtype && frag_join(a, b, a->dtype).kind != TK_NONE;
}

static bool check_elementwise(Verifier *v, const Op *op) {
  if (op->code == OP_CAST || op->code == OP_CONST || op->code == OP_DIM)
    return true;
  if (op->code == OP_SELECT) return check_select(v, op);
  for (uint32_t i = 0; i < op->nargs; i++) {
    if (!same_type(arg_type(v, op, i), arg_type(v, op, 0)))
      return verify_fail(v, op, "operands have different types");
    if (!computes_in(arg_type(v, op, i)->dtype) &&
        !is_sign(op, arg_type(v, op, i)))
      return verify_fail(v, op, "no arithmetic in %s",
                         dtype_name(arg_type(v, op, i)->dtype));
  }
  return true;
}

// ---------------------------------------------------------------- memory
static bool check_alloc(Verifier *v, const Op *op) {
  if (op->parent != v->f->body)
    return verify_fail(v, op, "stands inside a region");
  return res_type(v, op)->kind == TK_PTR || wrong_result(v, op);
}

static bool check_tensor(Verifier *v, const Op *op) {
  const Type *t = arg_type(v, op, 0);
  if (op->code == OP_TPTR)
    return is(res_type(v, op), TK_PTR, t->dtype) || wrong_result(v, op);
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  if (pos >= 0 && pos < t->n) return true;
  return verify_fail(v, op, "the tensor has no axis %lld", (long long)pos);
}

static bool check_pointer(Verifier *v, const Op *op) {
  bool ok = op->code == OP_PADD ? type_eq(res_type(v, op), arg_type(v, op, 0))
                                : res_type(v, op)->kind == TK_PTR;
  return ok || wrong_result(v, op);
}

// A mask, if operand i is there, has a bool for each lane.
static bool check_mask(Verifier *v, const Op *op, uint32_t i, uint32_t lanes) {
  if (i >= op->nargs) return true;
  const Type *m = arg_type(v, op, i);
  return (m->n == lanes && is(m, TK_VEC, DT_BOOL)) || wrong_operand(v, op, i);
}

static bool check_load(Verifier *v, const Op *op) {
  const Type *p = arg_type(v, op, 0), *r = res_type(v, op);
  if (op->code == OP_LD)
    return (is(r, TK_ELEM, p->dtype) && !r->n) || wrong_result(v, op);
  if (!is(r, TK_VEC, p->dtype)) return wrong_result(v, op);
  const Type *i = arg_type(v, op, 1);
  if (op->code == OP_VGATHER && !(i->n == r->n && is(i, TK_VEC, DT_I64)))
    return wrong_operand(v, op, 1);
  return check_mask(v, op, 2, r->n);
}

static bool check_store(Verifier *v, const Op *op) {
  const Type *p = arg_type(v, op, 0), *x = arg_type(v, op, 2);
  if (x->dtype != p->dtype) return wrong_operand(v, op, 2);
  if (op->code == OP_ST) return true;
  const Type *i = arg_type(v, op, 1);
  if (op->code == OP_VSCATTER && !(i->n == x->n && is(i, TK_VEC, DT_I64)))
    return wrong_operand(v, op, 1);
  return check_mask(v, op, 3, x->n);
}

// ---------------------------------------------------------------- vectors
static bool check_to_vector(Verifier *v, const Op *op) {
  const Type *r = res_type(v, op);
  char k = dtype_kind(r->dtype);
  bool ok = r->kind == TK_VEC;
  if (op->code == OP_SPLAT) ok = ok && r->dtype == arg_type(v, op, 0)->dtype;
  if (op->code == OP_VIOTA) ok = ok && (k == 'i' || k == 'u');
  if (op->code == OP_VMASK) ok = ok && k == 'b';
  return ok || wrong_result(v, op);
}

static bool check_to_scalar(Verifier *v, const Op *op) {
  const Type *r = res_type(v, op);
  DType t = arg_type(v, op, 0)->dtype;
  if (!is(r, TK_ELEM, t) || r->n) return wrong_result(v, op);
  if (op->code != OP_VREDUCE) return true;
  int64_t kind = ir_attr_i(op, AT_KIND, 0);
  bool logic = kind == RK_ANY || kind == RK_ALL;
  if (logic == (t == DT_BOOL)) return true;
  return verify_fail(v, op, "%s of %s", rkind_name((RKind)kind), dtype_name(t));
}

static bool check_insert(Verifier *v, const Op *op) {
  const Type *t = arg_type(v, op, 0);
  if (arg_type(v, op, 2)->dtype != t->dtype) return wrong_operand(v, op, 2);
  return type_eq(res_type(v, op), t) || wrong_result(v, op);
}

static bool check_pack2(Verifier *v, const Op *op) {
  const Type *a = arg_type(v, op, 0), *r = res_type(v, op);
  if (dtype_size(a->dtype) != 2) return wrong_operand(v, op, 0);
  if (!type_eq(a, arg_type(v, op, 1))) return wrong_operand(v, op, 1);
  return (is(r, TK_VEC, DT_I32) && r->n == a->n) || wrong_result(v, op);
}

static bool check_vswap(Verifier *v, const Op *op) {
  const Type *a = arg_type(v, op, 0);
  int64_t m = ir_attr_i(op, AT_POS, 0);
  if (!type_eq(a, arg_type(v, op, 1))) return wrong_operand(v, op, 1);
  if (!type_eq(res_type(v, op), a)) return wrong_result(v, op);
  if (m > 0 && m < a->n && (m & (m - 1)) == 0) return true;
  return verify_fail(v, op, "no blocks of %lld lanes", (long long)m);
}

static bool check_dpbf16(Verifier *v, const Op *op) {
  const Type *acc = arg_type(v, op, 0);
  if (acc->dtype != DT_F32) return wrong_operand(v, op, 0);
  for (uint32_t i = 1; i < 3; i++) {
    const Type *t = arg_type(v, op, i);
    if (t->dtype != DT_I32 || t->n != acc->n) return wrong_operand(v, op, i);
  }
  return type_eq(res_type(v, op), acc) || wrong_result(v, op);
}

static bool is_mat(const Type *t, DType dtype) {
  return is(t, TK_VEC, dtype) && t->n == HW_MAT_ROWS * HW_MAT_COLS;
}

static bool check_mat_load(Verifier *v, const Op *op) {
  DType t = arg_type(v, op, 0)->dtype;
  if (dtype_size(t) != 4) return wrong_operand(v, op, 0);
  return is_mat(res_type(v, op), t) || wrong_result(v, op);
}

static bool check_mat_store(Verifier *v, const Op *op) {
  DType t = arg_type(v, op, 0)->dtype;
  if (dtype_size(t) != 4) return wrong_operand(v, op, 0);
  return is_mat(arg_type(v, op, 3), t) || wrong_operand(v, op, 3);
}

static bool check_mat_zero(Verifier *v, const Op *op) {
  return is_mat(res_type(v, op), DT_F32) || wrong_result(v, op);
}

static bool check_mat_dpbf16(Verifier *v, const Op *op) {
  if (!is_mat(arg_type(v, op, 0), DT_F32)) return wrong_operand(v, op, 0);
  return check_dpbf16(v, op);
}

// ---------------------------------------------------------------- all
typedef bool CheckFn(Verifier *v, const Op *op);

static CheckFn *const checks[OP_COUNT] = {
    [OP_ALLOC] = check_alloc,
    [OP_TPTR] = check_tensor,
    [OP_TSHAPE] = check_tensor,
    [OP_TSTRIDE] = check_tensor,
    [OP_PADD] = check_pointer,
    [OP_PVIEW] = check_pointer,
    [OP_LD] = check_load,
    [OP_VLD] = check_load,
    [OP_VGATHER] = check_load,
    [OP_ST] = check_store,
    [OP_VST] = check_store,
    [OP_VSCATTER] = check_store,
    [OP_SPLAT] = check_to_vector,
    [OP_VIOTA] = check_to_vector,
    [OP_VMASK] = check_to_vector,
    [OP_VREDUCE] = check_to_scalar,
    [OP_EXTRACT] = check_to_scalar,
    [OP_INSERT] = check_insert,
    [OP_PACK2] = check_pack2,
    [OP_DPBF16] = check_dpbf16,
    [OP_VSWAP] = check_vswap,
    [OP_MAT_ZERO] = check_mat_zero,
    [OP_MAT_LD] = check_mat_load,
    [OP_MAT_ST] = check_mat_store,
    [OP_MAT_DPBF16] = check_mat_dpbf16,
};

bool verify_machine_op(Verifier *v, const Op *op) {
  if (op_info(op->code)->flags & OPF_ELEM) return check_elementwise(v, op);
  if (target_is_gpu(v->m->target)) return verify_gpu_op(v, op);
  return !checks[op->code] || checks[op->code](v, op);
}
