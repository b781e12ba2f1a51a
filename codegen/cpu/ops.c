// mach ops as LLVM instructions, one small function per kind, found by a
// table. Masks and layouts were decided before: nothing is chosen here.
#include "codegen/math/emit.h"
#include "codegen/math/random.h"

#include "ir/facts.h"
#include "runtime/attn_abi.h"

#include <assert.h>
#include <stddef.h>

#define B g->b

typedef LLVMValueRef Emit(Cg *g, const Op *op);

static LLVMValueRef arg(const Cg *g, const Op *op, uint32_t i) {
  return g->val[op->args[i]];
}
static const Type *arg_type(const Cg *g, const Op *op, uint32_t i) {
  return ir_type(g->fn, op->args[i]);
}
static const Type *res_type(const Cg *g, const Op *op) {
  return ir_type(g->fn, op->res[0]);
}
static bool is_float(const Cg *g, const Op *op, uint32_t i) {
  return dtype_is_float(arg_type(g, op, i)->dtype);
}

// ---------------------------------------------------------------- scalars
static LLVMValueRef emit_const(Cg *g, const Op *op) {
  const Type *t = res_type(g, op);
  LLVMTypeRef lt = cg_type(g, t);
  const IrAttr *f = ir_attr(op, AT_VALUE);
  if (t->dtype == DT_F64 || t->dtype == DT_F32 || t->dtype == DT_TF32)
    return cg_fconst(g, lt, f ? f->f : (double)ir_attr_i(op, AT_IVALUE, 0));
  if (!dtype_is_float(t->dtype))
    return cg_iconst(g, lt, f ? (int64_t)f->f : ir_attr_i(op, AT_IVALUE, 0));
  uint16_t raw = 0;
  dtype_store(t->dtype, &raw, f ? f->f : 0);
  return cg_iconst(g, lt, raw);
}

static LLVMValueRef emit_dim(Cg *g, const Op *op) {
  return cg_dim(g, (Dim)ir_attr_i(op, AT_DIM, 0));
}

static uint32_t scalar_position(const Cg *g, Value v) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->fn->params.n; i++) {
    if (g->fn->params.at[i].v == v) break;
    n += ir_type(g->fn, g->fn->params.at[i].v)->kind != TK_TENSOR;
  }
  return n;
}

// A tensor is given if its data is not NULL; a scalar if the launch says so.
static LLVMValueRef emit_given(Cg *g, const Op *op) {
  LLVMTypeRef p = cg_ptr(g);
  if (arg_type(g, op, 0)->kind == TK_TENSOR) {
    LLVMValueRef d = cg_field(g, arg(g, op, 0), offsetof(attn_tensor, data), p);
    return LLVMBuildICmp(B, LLVMIntNE, d, LLVMConstNull(p), "");
  }
  LLVMValueRef set = cg_field(g, g->kargs, offsetof(attn_kargs, given),
                              LLVMInt64TypeInContext(g->lc));
  int64_t bit = (int64_t)1 << scalar_position(g, op->args[0]);
  LLVMValueRef on = LLVMBuildAnd(B, set, cg_i64(g, bit), "");
  return LLVMBuildICmp(B, LLVMIntNE, on, cg_i64(g, 0), "");
}

// ---------------------------------------------------------------- arithmetic
static LLVMValueRef emit_add(Cg *g, const Op *op) {
  LLVMValueRef x = arg(g, op, 0), y = arg(g, op, 1);
  return is_float(g, op, 0) ? LLVMBuildFAdd(B, x, y, "")
                            : LLVMBuildAdd(B, x, y, "");
}
static LLVMValueRef emit_sub(Cg *g, const Op *op) {
  LLVMValueRef x = arg(g, op, 0), y = arg(g, op, 1);
  return is_float(g, op, 0) ? LLVMBuildFSub(B, x, y, "")
                            : LLVMBuildSub(B, x, y, "");
}
static LLVMValueRef emit_mul(Cg *g, const Op *op) {
  LLVMValueRef x = arg(g, op, 0), y = arg(g, op, 1);
  return is_float(g, op, 0) ? LLVMBuildFMul(B, x, y, "")
                            : LLVMBuildMul(B, x, y, "");
}
static LLVMValueRef emit_div(Cg *g, const Op *op) {
  return LLVMBuildFDiv(B, arg(g, op, 0), arg(g, op, 1), "");
}

// log2 of a constant divisor that is a power of two, else -1.
static int shift_of(const Cg *g, Value d) {
  double c;
  const Op *def = ir_def(g->fn, d);
  if (def && def->code == OP_SPLAT) d = def->args[0];
  if (!ir_const_value(g->fn, d, &c) || c <= 0) return -1;
  uint64_t n = (uint64_t)c;
  return (n & (n - 1)) == 0 ? __builtin_ctzll(n) : -1;
}

static LLVMValueRef emit_floordiv(Cg *g, const Op *op) {
  LLVMValueRef x = arg(g, op, 0), y = arg(g, op, 1), z;
  z = cg_iconst(g, cg_of(x), 0);
  int shift = shift_of(g, op->args[1]);
  if (shift >= 0) return LLVMBuildAShr(B, x, cg_iconst(g, cg_of(x), shift), "");
  double n;
  if (ir_const_value(g->fn, op->args[1], &n) && n > 0 &&
      arg_type(g, op, 0)->kind != TK_VEC) {
    // x < 0 ? ~(~x / n) : x / n
    unsigned top = LLVMGetIntTypeWidth(cg_of(x)) - 1;
    LLVMValueRef sign = LLVMBuildAShr(B, x, cg_iconst(g, cg_of(x), top), "");
    LLVMValueRef q = LLVMBuildUDiv(B, LLVMBuildXor(B, x, sign, ""), y, "");
    return LLVMBuildXor(B, q, sign, "");
  }
  LLVMValueRef q = LLVMBuildSDiv(B, x, y, ""), r = LLVMBuildSRem(B, x, y, "");
  LLVMValueRef differ =
      LLVMBuildICmp(B, LLVMIntSLT, LLVMBuildXor(B, r, y, ""), z, "");
  LLVMValueRef rest = LLVMBuildICmp(B, LLVMIntNE, r, z, "");
  LLVMValueRef down = LLVMBuildAnd(B, differ, rest, "");
  return LLVMBuildSub(B, q, LLVMBuildZExt(B, down, cg_of(q), ""), "");
}

static LLVMValueRef emit_mod(Cg *g, const Op *op) {
  LLVMValueRef x = arg(g, op, 0);
  int shift = shift_of(g, op->args[1]);
  if (shift >= 0) {
    LLVMValueRef low = cg_iconst(g, cg_of(x), ((int64_t)1 << shift) - 1);
    return LLVMBuildAnd(B, x, low, "");
  }
  LLVMValueRef q = emit_floordiv(g, op);
  LLVMValueRef m = LLVMBuildMul(B, q, arg(g, op, 1), "");
  return LLVMBuildSub(B, x, m, "");
}

// The larger (or smaller), NaN if either is; of zeros any. One instruction on
// AArch64, three on x86.
static LLVMValueRef extreme(Cg *g, LLVMValueRef x, LLVMValueRef y,
                            bool larger) {
  V a[2] = {x, y};
  V r =
      cg_intrinsic(g, larger ? "llvm.maximum" : "llvm.minimum", cg_of(x), a, 2);
  LLVMSetFastMathFlags(r, LLVMFastMathNoSignedZeros);
  return r;
}

static LLVMValueRef choose(Cg *g, const Op *op, bool larger) {
  LLVMValueRef x = arg(g, op, 0), y = arg(g, op, 1), a[2] = {x, y};
  if (is_float(g, op, 0)) return extreme(g, x, y, larger);
  if (arg_type(g, op, 0)->dtype == DT_BOOL)
    return larger ? LLVMBuildOr(B, x, y, "") : LLVMBuildAnd(B, x, y, "");
  return cg_intrinsic(g, larger ? "llvm.smax" : "llvm.smin", cg_of(x), a, 2);
}
static LLVMValueRef emit_max(Cg *g, const Op *op) {
  return choose(g, op, true);
}
static LLVMValueRef emit_min(Cg *g, const Op *op) {
  return choose(g, op, false);
}

static LLVMValueRef emit_neg(Cg *g, const Op *op) {
  return is_float(g, op, 0) ? LLVMBuildFNeg(B, arg(g, op, 0), "")
                            : LLVMBuildNeg(B, arg(g, op, 0), "");
}

static LLVMValueRef emit_abs(Cg *g, const Op *op) {
  LLVMValueRef a[2] = {arg(g, op, 0),
                       LLVMConstNull(LLVMInt1TypeInContext(g->lc))};
  if (is_float(g, op, 0))
    return cg_intrinsic(g, "llvm.fabs", cg_of(a[0]), a, 1);
  return cg_intrinsic(g, "llvm.abs", cg_of(a[0]), a, 2);
}

static LLVMValueRef emit_fma(Cg *g, const Op *op) {
  return cg_mad(g, arg(g, op, 0), arg(g, op, 1), arg(g, op, 2));
}

// ---------------------------------------------------------------- logic
static LLVMValueRef compare(Cg *g, const Op *op, LLVMRealPredicate f,
                            LLVMIntPredicate i) {
  LLVMValueRef x = arg(g, op, 0), y = arg(g, op, 1);
  return is_float(g, op, 0) ? LLVMBuildFCmp(B, f, x, y, "")
                            : LLVMBuildICmp(B, i, x, y, "");
}
static LLVMValueRef emit_eq(Cg *g, const Op *op) {
  return compare(g, op, LLVMRealOEQ, LLVMIntEQ);
}
static LLVMValueRef emit_ne(Cg *g, const Op *op) {
  return compare(g, op, LLVMRealUNE, LLVMIntNE);
}
static LLVMValueRef emit_lt(Cg *g, const Op *op) {
  return compare(g, op, LLVMRealOLT, LLVMIntSLT);
}
static LLVMValueRef emit_le(Cg *g, const Op *op) {
  return compare(g, op, LLVMRealOLE, LLVMIntSLE);
}
static LLVMValueRef emit_and(Cg *g, const Op *op) {
  return LLVMBuildAnd(B, arg(g, op, 0), arg(g, op, 1), "");
}
static LLVMValueRef emit_or(Cg *g, const Op *op) {
  return LLVMBuildOr(B, arg(g, op, 0), arg(g, op, 1), "");
}
static LLVMValueRef emit_not(Cg *g, const Op *op) {
  return LLVMBuildNot(B, arg(g, op, 0), "");
}
static LLVMValueRef emit_select(Cg *g, const Op *op) {
  return LLVMBuildSelect(B, arg(g, op, 0), arg(g, op, 1), arg(g, op, 2), "");
}

// ---------------------------------------------------------------- functions
static LLVMValueRef emit_math(Cg *g, const Op *op) {
  return cg_math(g, op->code, arg(g, op, 0),
                 op->nargs > 1 ? arg(g, op, 1) : NULL);
}
// The other one of sin and cos of the same angle, further down the region.
static const Op *other_wave(const Op *op) {
  OpCode other = op->code == OP_SIN ? OP_COS : OP_SIN;
  const Op *o = op->next;
  while (o && !(o->code == other && o->args[0] == op->args[0])) o = o->next;
  return o;
}
static LLVMValueRef emit_wave(Cg *g, const Op *op) {
  V wave[2], *own = &g->val[op->res[0]];
  // GPUs emit an op once for each element of a fragment.
  if (g->target->kind == TARGET_GPU) return emit_math(g, op);
  if (*own) return *own;  // with the other one
  const Op *other = other_wave(op);
  if (!other) return emit_math(g, op);
  cg_sincos(g, arg(g, op, 0), &wave[0], &wave[1]);
  g->val[other->res[0]] = wave[other->code == OP_COS];
  return wave[op->code == OP_COS];
}
static LLVMValueRef emit_sqrt(Cg *g, const Op *op) {
  LLVMValueRef x = arg(g, op, 0);
  LLVMValueRef r = cg_intrinsic(g, "llvm.sqrt", cg_of(x), &x, 1);
  if (op->code == OP_SQRT) return r;
  return LLVMBuildFDiv(B, cg_fconst(g, cg_of(x), 1), r, "");
}
// Without the instruction: adding 2 ** 23 (2 ** 52) rounds to an integer.
static LLVMValueRef emit_floor(Cg *g, const Op *op) {
  V x = arg(g, op, 0);
  if (g->has.floor) return cg_intrinsic(g, "llvm.floor", cg_of(x), &x, 1);
  V big = e_f(g, x, arg_type(g, op, 0)->dtype == DT_F64 ? 0x1p52 : 0x1p23);
  V a = e_abs(g, x), r = e_sub(g, e_add(g, a, big), big);
  r = cg_copysign(g, r, x);
  V above = e_cmp(g, LLVMRealOGT, r, x);
  r = e_sel(g, above, e_sub(g, r, e_f(g, x, 1)), r);
  return e_sel(g, e_cmp(g, LLVMRealOLT, a, big), r, x);
}
static LLVMValueRef emit_relu(Cg *g, const Op *op) {
  LLVMValueRef x = arg(g, op, 0), z = cg_fconst(g, cg_of(x), 0);
  LLVMValueRef c = LLVMBuildFCmp(B, LLVMRealOLT, x, z, "");
  return LLVMBuildSelect(B, c, z, x, "");
}
static LLVMValueRef emit_ref(Cg *g, const Op *op) {
  LLVMValueRef x = arg(g, op, 0);
  LLVMValueRef c = LLVMBuildFCmp(B, LLVMRealOEQ, x,
                                 cg_fconst(g, cg_of(x), -__builtin_inf()), "");
  return LLVMBuildSelect(B, c, cg_fconst(g, cg_of(x), 0), x, "");
}
static LLVMValueRef emit_cast(Cg *g, const Op *op) {
  return cg_cast(g, arg(g, op, 0), arg_type(g, op, 0)->dtype,
                 res_type(g, op)->dtype);
}

// ---------------------------------------------------------------- memory
// Facts of a shared workspace, which lies densely, in order.
static bool is_shared(const Cg *g, const Op *op) {
  for (uint32_t i = 0; i < g->fn->params.n; i++)
    if (g->fn->params.at[i].v == op->args[0])
      return g->fn->params.at[i].role == PR_SHARED;
  return false;
}
static LLVMValueRef dense_stride(Cg *g, const Op *op) {
  const Type *t = arg_type(g, op, 0);
  LLVMValueRef n = cg_i64(g, 1);
  for (uint32_t i = t->n - 1; i > (uint32_t)ir_attr_i(op, AT_POS, 0); i--)
    n = LLVMBuildMul(B, n, cg_dim(g, t->size[i]), "");
  return n;
}
static LLVMValueRef tensor_field(Cg *g, const Op *op, size_t base) {
  uint64_t at = base + 8 * (uint64_t)ir_attr_i(op, AT_POS, 0);
  return cg_field(g, arg(g, op, 0), at, LLVMInt64TypeInContext(g->lc));
}
static LLVMValueRef emit_tptr(Cg *g, const Op *op) {
  if (is_shared(g, op)) return arg(g, op, 0);
  return cg_field(g, arg(g, op, 0), offsetof(attn_tensor, data), cg_ptr(g));
}
static LLVMValueRef emit_tshape(Cg *g, const Op *op) {
  if (is_shared(g, op))
    return cg_dim(g, arg_type(g, op, 0)->size[ir_attr_i(op, AT_POS, 0)]);
  return tensor_field(g, op, offsetof(attn_tensor, shape));
}
static LLVMValueRef emit_tstride(Cg *g, const Op *op) {
  if (is_shared(g, op)) return dense_stride(g, op);
  return tensor_field(g, op, offsetof(attn_tensor, stride));
}

// How many loops and branches stand around v; constants are innermost.
static uint32_t depth_of(const Cg *g, Value v) {
  double c;
  uint32_t n = 0;
  if (ir_const_value(g->fn, v, &c)) return UINT32_MAX;
  for (const Region *r = ir_info(g->fn, v)->region; r && r->parent;
       r = r->parent->parent)
    n++;
  return n;
}

// p + (a + b) is (p + a) + b, where b is what varies more: p + a can leave a
// loop, and constants become part of the instruction.
LLVMValueRef cg_address(Cg *g, const Op *op) {
  LLVMTypeRef t = cg_memory(g, arg_type(g, op, 0)->dtype);
  LLVMValueRef p = arg(g, op, 0), i = arg(g, op, 1);
  const Op *sum = ir_def(g->fn, op->args[1]);
  if (sum && sum->code == OP_ADD && res_type(g, sum)->kind != TK_VEC) {
    bool swap = depth_of(g, sum->args[0]) > depth_of(g, sum->args[1]);
    LLVMValueRef first = arg(g, sum, swap);
    p = LLVMBuildGEP2(B, t, p, &first, 1, "");
    i = arg(g, sum, !swap);
  }
  return LLVMBuildGEP2(B, t, p, &i, 1, "");
}
static LLVMValueRef emit_padd(Cg *g, const Op *op) {
  return cg_address(g, op);
}
static LLVMValueRef emit_pview(Cg *g, const Op *op) {
  return arg(g, op, 0);
}

static LLVMValueRef to_memory(Cg *g, LLVMValueRef v, DType t) {
  if (t != DT_BOOL) return v;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(g->lc);
  return LLVMBuildZExt(B, v, cg_like(g, cg_of(v), i8), "");
}
static LLVMValueRef from_memory(Cg *g, LLVMValueRef v, DType t) {
  if (t != DT_BOOL) return v;
  return LLVMBuildICmp(B, LLVMIntNE, v, cg_iconst(g, cg_of(v), 0), "");
}

static LLVMValueRef emit_ld(Cg *g, const Op *op) {
  DType t = arg_type(g, op, 0)->dtype;
  LLVMValueRef v = LLVMBuildLoad2(B, cg_memory(g, t), cg_address(g, op), "");
  LLVMSetAlignment(v, (unsigned)dtype_size(t));
  return from_memory(g, v, t);
}
// To the second-level cache and the first; what is far, to the second only.
static LLVMValueRef emit_prefetch(Cg *g, const Op *op) {
  LLVMValueRef near = cg_i32(g, op->code == OP_PREFETCH_FAR ? 2 : 3);
  LLVMValueRef args[] = {cg_address(g, op), cg_i32(g, 0), near, cg_i32(g, 1)};
  return cg_intrinsic(g, "llvm.prefetch", cg_ptr(g), args, 4);
}

static LLVMValueRef emit_st(Cg *g, const Op *op) {
  DType t = arg_type(g, op, 0)->dtype;
  LLVMValueRef at = cg_address(g, op);
  LLVMValueRef s = LLVMBuildStore(B, to_memory(g, arg(g, op, 2), t), at);
  LLVMSetAlignment(s, (unsigned)dtype_size(t));
  return NULL;
}

static LLVMValueRef emit_vld(Cg *g, const Op *op) {
  const Type *t = res_type(g, op);
  LLVMTypeRef lt = cg_vec(cg_memory(g, t->dtype), t->n);
  LLVMValueRef p = cg_address(g, op), v;
  if (op->nargs == 2) {
    v = LLVMBuildLoad2(B, lt, p, "");
    LLVMSetAlignment(v, (unsigned)dtype_size(t->dtype));
  } else {
    CgMasked a = {CG_LOAD, lt, t->dtype, p, .mask = arg(g, op, 2)};
    v = cg_masked(g, &a);
  }
  return from_memory(g, v, t->dtype);
}

static LLVMValueRef emit_vst(Cg *g, const Op *op) {
  const Type *t = arg_type(g, op, 2);
  LLVMValueRef v = to_memory(g, arg(g, op, 2), t->dtype), p = cg_address(g, op);
  if (op->nargs == 3) {
    LLVMValueRef s = LLVMBuildStore(B, v, p);
    LLVMSetAlignment(s, (unsigned)dtype_size(t->dtype));
    return NULL;
  }
  CgMasked a = {CG_STORE, cg_of(v), t->dtype, p, .value = v};
  a.mask = arg(g, op, 3);
  cg_masked(g, &a);
  return NULL;
}

// The s of an index viota * s (+ x), x into *from; 0: it is none.
static Value step_of(const Cg *g, Value index, Value *from) {
  const Op *op = ir_def(g->fn, index), *x;
  *from = 0;
  for (uint32_t i = 0; op && op->code == OP_ADD && i < 2; i++)
    if ((x = ir_def(g->fn, op->args[i])) && x->code == OP_SPLAT) {
      *from = x->args[0];
      op = ir_def(g->fn, op->args[1 - i]);
    }
  for (uint32_t i = 0; op && op->code == OP_MUL && i < 2; i++) {
    const Op *a = ir_def(g->fn, op->args[i]), *b = ir_def(g->fn, op->args[!i]);
    if (a && b && a->code == OP_VIOTA && b->code == OP_SPLAT) return b->args[0];
  }
  return 0;
}

// A gather, or a scatter of `value`.
static LLVMValueRef scattered(Cg *g, const Op *op, LLVMTypeRef lt, DType t,
                              LLVMValueRef mask, LLVMValueRef value) {
  CgAccess what = value ? CG_SCATTER : CG_GATHER;
  Value from, step = step_of(g, op->args[1], &from);
  CgMasked a = {what, lt, t, .mask = mask, .value = value};
  if (!step) {
    a.pointer = cg_address(g, op);
    return cg_masked(g, &a);
  }
  LLVMValueRef p = arg(g, op, 0), i = from ? g->val[from] : NULL;
  if (i) p = LLVMBuildGEP2(B, cg_memory(g, t), p, &i, 1, "");
  a.pointer = p;
  a.step = g->val[step];
  return cg_masked(g, &a);
}

static LLVMValueRef emit_vgather(Cg *g, const Op *op) {
  const Type *t = res_type(g, op);
  LLVMTypeRef lt = cg_vec(cg_memory(g, t->dtype), t->n);
  LLVMValueRef m = op->nargs > 2 ? arg(g, op, 2) : NULL;
  return from_memory(g, scattered(g, op, lt, t->dtype, m, NULL), t->dtype);
}

static LLVMValueRef emit_vscatter(Cg *g, const Op *op) {
  const Type *t = arg_type(g, op, 2);
  LLVMValueRef v = to_memory(g, arg(g, op, 2), t->dtype);
  LLVMValueRef m = op->nargs > 3 ? arg(g, op, 3) : NULL;
  scattered(g, op, cg_of(v), t->dtype, m, v);
  return NULL;
}

// ---------------------------------------------------------------- vectors
LLVMValueRef cg_iota(Cg *g, LLVMTypeRef vec) {
  uint32_t n = LLVMGetVectorSize(vec);
  LLVMValueRef *at = NEWN(&g->cx->scratch, LLVMValueRef, n);
  for (uint32_t i = 0; i < n; i++)
    at[i] = LLVMConstInt(LLVMGetElementType(vec), i, 0);
  return LLVMConstVector(at, n);
}

static LLVMValueRef emit_splat(Cg *g, const Op *op) {
  return cg_splat(g, arg(g, op, 0), res_type(g, op)->n);
}

static LLVMValueRef emit_viota(Cg *g, const Op *op) {
  return cg_iota(g, cg_type(g, res_type(g, op)));
}
static LLVMValueRef emit_vmask(Cg *g, const Op *op) {
  uint32_t n = res_type(g, op)->n;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(g->lc);
  // Clamped to [0, n] so that 32-bit lanes compare right.
  LLVMValueRef lo[2] = {arg(g, op, 0), cg_i64(g, 0)};
  LLVMTypeRef i64 = cg_of(lo[1]);
  LLVMValueRef hi[2] = {cg_intrinsic(g, "llvm.smax", i64, lo, 2), cg_i64(g, n)};
  LLVMValueRef left = cg_intrinsic(g, "llvm.smin", i64, hi, 2);
  left = cg_splat(g, LLVMBuildTrunc(B, left, i32, ""), n);
  return LLVMBuildICmp(B, LLVMIntULT, cg_iota(g, cg_vec(i32, n)), left, "");
}

static LLVMValueRef join(Cg *g, RKind k, LLVMValueRef x, LLVMValueRef y,
                         bool fp) {
  LLVMValueRef a[2] = {x, y};
  switch (k) {
  case RK_SUM:
  case RK_COUNT:
    return fp ? LLVMBuildFAdd(B, x, y, "") : LLVMBuildAdd(B, x, y, "");
  case RK_PROD:
    return fp ? LLVMBuildFMul(B, x, y, "") : LLVMBuildMul(B, x, y, "");
  case RK_ANY: return LLVMBuildOr(B, x, y, "");
  case RK_ALL: return LLVMBuildAnd(B, x, y, "");
  default: break;
  }
  bool larger = k == RK_MAX;
  if (fp) return extreme(g, x, y, larger);
  return cg_intrinsic(g, larger ? "llvm.smax" : "llvm.smin", cg_of(x), a, 2);
}

static LLVMValueRef half(Cg *g, LLVMValueRef v, uint32_t from, uint32_t n) {
  LLVMValueRef *at = NEWN(&g->cx->scratch, LLVMValueRef, n);
  for (uint32_t i = 0; i < n; i++) at[i] = cg_i32(g, (int32_t)(from + i));
  return LLVMBuildShuffleVector(B, v, LLVMGetPoison(cg_of(v)),
                                LLVMConstVector(at, n), "");
}

static LLVMValueRef emit_from_bits(Cg *g, const Op *op) {
  LLVMTypeRef t = cg_type(g, res_type(g, op));
  LLVMValueRef x = arg(g, op, 0);
  bool vec = LLVMGetTypeKind(t) == LLVMVectorTypeKind;
  LLVMTypeRef word = LLVMInt32TypeInContext(g->lc);
  if (vec) word = LLVMVectorType(word, LLVMGetVectorSize(t));
  if (cg_of(x) != word) x = LLVMBuildTrunc(B, x, word, "");
  return LLVMBuildBitCast(B, x, t, "");
}

static LLVMValueRef emit_vreduce(Cg *g, const Op *op) {
  LLVMValueRef v = arg(g, op, 0);
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  for (uint32_t n = LLVMGetVectorSize(cg_of(v)); n > 1; n /= 2) {
    LLVMValueRef lo = half(g, v, 0, n / 2), hi = half(g, v, n / 2, n / 2);
    v = join(g, k, lo, hi, is_float(g, op, 0));
  }
  return LLVMBuildExtractElement(B, v, cg_i64(g, 0), "");
}

static LLVMValueRef emit_extract(Cg *g, const Op *op) {
  return LLVMBuildExtractElement(B, arg(g, op, 0), arg(g, op, 1), "");
}
static LLVMValueRef emit_insert(Cg *g, const Op *op) {
  return LLVMBuildInsertElement(B, arg(g, op, 0), arg(g, op, 2), arg(g, op, 1),
                                "");
}

static LLVMValueRef emit_pack2(Cg *g, const Op *op) {
  LLVMTypeRef t = cg_type(g, res_type(g, op));
  LLVMValueRef lo = LLVMBuildZExt(B, arg(g, op, 0), t, "");
  LLVMValueRef hi = LLVMBuildZExt(B, arg(g, op, 1), t, "");
  hi = LLVMBuildShl(B, hi, cg_iconst(g, t, 16), "");
  return LLVMBuildOr(B, lo, hi, "");
}

static LLVMValueRef emit_vswap(Cg *g, const Op *op) {
  uint32_t n = res_type(g, op)->n;
  uint32_t m = (uint32_t)ir_attr_i(op, AT_POS, 1);
  bool back = ir_attr_i(op, AT_REVERSE, 0) != 0;
  LLVMValueRef *at = NEWN(&g->cx->scratch, LLVMValueRef, n);
  for (uint32_t l = 0; l < n; l++) {
    uint32_t from = l & m ? n + (back ? l : l - m) : back ? l + m : l;
    at[l] = cg_i32(g, (int32_t)from);
  }
  return LLVMBuildShuffleVector(B, arg(g, op, 0), arg(g, op, 1),
                                LLVMConstVector(at, n), "");
}

// BFDOT: as VDPBF16PS, but for roundings between the two products.
static LLVMValueRef bfdot(Cg *g, LLVMValueRef *a) {
  static const char name[] = "llvm.aarch64.neon.bfdot";
  LLVMTypeRef over[] = {cg_of(a[0]), cg_of(a[1])};
  unsigned id = LLVMLookupIntrinsicID(name, sizeof name - 1);
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(g->mod, id, over, 2);
  LLVMTypeRef t = LLVMIntrinsicGetType(g->lc, id, over, 2);
  return LLVMBuildCall2(B, t, f, a, 3, "");
}

static LLVMValueRef emit_dpbf16(Cg *g, const Op *op) {
  uint32_t n = res_type(g, op)->n;
  static const char *const names[] = {"llvm.x86.avx512bf16.dpbf16ps.128",
                                      "llvm.x86.avx512bf16.dpbf16ps.256",
                                      "llvm.x86.avx512bf16.dpbf16ps.512"};
  bool arm = cg_isa(g->target) >> 8 == ATTN_ISA_AARCH64 >> 8;
  LLVMTypeRef bf = LLVMVectorType(LLVMBFloatTypeInContext(g->lc), 2 * n);
  LLVMValueRef a[3] = {arg(g, op, 0),
                       LLVMBuildBitCast(B, arg(g, op, 1), bf, ""),
                       LLVMBuildBitCast(B, arg(g, op, 2), bf, "")};
  assert(n == 4 || (!arm && (n == 8 || n == 16)));
  if (arm) return bfdot(g, a);
  return cg_intrinsic(g, names[n == 16 ? 2 : n == 8 ? 1 : 0], NULL, a, 3);
}

// ---------------------------------------------------------------- table
// Functions without an entry are codegen/math/f32.c's.
static Emit *const table[OP_COUNT] = {
    [OP_CONST] = emit_const,
    [OP_DIM] = emit_dim,
    [OP_GIVEN] = emit_given,
    [OP_ADD] = emit_add,
    [OP_SUB] = emit_sub,
    [OP_MUL] = emit_mul,
    [OP_DIV] = emit_div,
    [OP_FLOORDIV] = emit_floordiv,
    [OP_MOD] = emit_mod,
    [OP_MIN] = emit_min,
    [OP_MAX] = emit_max,
    [OP_NEG] = emit_neg,
    [OP_ABS] = emit_abs,
    [OP_FMA] = emit_fma,
    [OP_EQ] = emit_eq,
    [OP_NE] = emit_ne,
    [OP_LT] = emit_lt,
    [OP_LE] = emit_le,
    [OP_AND] = emit_and,
    [OP_OR] = emit_or,
    [OP_NOT] = emit_not,
    [OP_SELECT] = emit_select,
    [OP_SQRT] = emit_sqrt,
    [OP_RSQRT] = emit_sqrt,
    [OP_RELU] = emit_relu,
    [OP_SIN] = emit_wave,
    [OP_COS] = emit_wave,
    [OP_FLOOR] = emit_floor,
    [OP_REF] = emit_ref,
    [OP_CAST] = emit_cast,
    [OP_TPTR] = emit_tptr,
    [OP_TSHAPE] = emit_tshape,
    [OP_TSTRIDE] = emit_tstride,
    [OP_PADD] = emit_padd,
    [OP_PVIEW] = emit_pview,
    [OP_PREFETCH] = emit_prefetch,
    [OP_PREFETCH_FAR] = emit_prefetch,
    [OP_LD] = emit_ld,
    [OP_ST] = emit_st,
    [OP_VLD] = emit_vld,
    [OP_VST] = emit_vst,
    [OP_VGATHER] = emit_vgather,
    [OP_VSCATTER] = emit_vscatter,
    [OP_SPLAT] = emit_splat,
    [OP_VIOTA] = emit_viota,
    [OP_VMASK] = emit_vmask,
    [OP_VREDUCE] = emit_vreduce,
    [OP_EXTRACT] = emit_extract,
    [OP_INSERT] = emit_insert,
    [OP_PACK2] = emit_pack2,
    [OP_DPBF16] = emit_dpbf16,
    [OP_VSWAP] = emit_vswap,
    [OP_RANDOM] = cg_random,
    [OP_FROM_BITS] = emit_from_bits,
    [OP_MAT_ZERO] = cg_mat,
    [OP_MAT_LD] = cg_mat,
    [OP_MAT_ST] = cg_mat,
    [OP_MAT_DPBF16] = cg_mat,
};

void cg_op(Cg *g, const Op *op) {
  if (cg_control(g, op)) return;
  Emit *emit = table[op->code];
  if (!emit && op_is_function(op->code)) emit = emit_math;
  assert(emit && "op is not legal at level mach of the CPU");
  LLVMValueRef v = emit(g, op);
  if (op->nres) g->val[op->res[0]] = v;
}
