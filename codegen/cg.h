// Shared by the files of codegen: LLVM handles and small emission helpers.
// The only users of llvm-c. mach values map one to one to LLVM values:
//   f64 double, f32 and tf32 float, integers iN, bool i1 (i8 in memory),
//   bf16 f16 f8* as the integer of their bits (casts are explicit code, so no
//   compiler-rt call can appear), vec<N x T> as <N x T>, ptr<T> as ptr.
#ifndef ATTNC_CODEGEN_CG_H
#define ATTNC_CODEGEN_CG_H

#include "ir/ir.h"

#include <llvm-c/Core.h>

// Instruction sets the target row allows.
typedef struct CgFeatures {
  bool avx2, avx512, avx512bf16, f16c, neon;
} CgFeatures;

typedef struct Cg {
  Ctx *cx;
  LLVMContextRef lc;
  LLVMModuleRef mod;
  LLVMBuilderRef b;
  const char *cpu, *features;  // LLVM's names for the row
  CgFeatures has;

  // of the function being printed
  const Func *fn;
  LLVMValueRef llfn;
  LLVMValueRef *val;       // LLVM value of each IR value
  LLVMValueRef kargs;      // const attn_kargs *
  LLVMValueRef scratch;    // next free byte of this thread's scratch
  LLVMValueRef task;       // task number, i64
} Cg;

// ---- types and constants (types.c) -----------------------------------------
LLVMTypeRef cg_scalar(const Cg *g, DType t);           // in registers
LLVMTypeRef cg_memory(const Cg *g, DType t);           // in memory (bool: i8)
LLVMTypeRef cg_vec(LLVMTypeRef t, uint32_t n);         // t itself if n == 0
LLVMTypeRef cg_type(const Cg *g, const Type *t);
uint32_t cg_lanes(const Type *t);                      // 0: scalar
LLVMValueRef cg_i64(const Cg *g, int64_t v);
LLVMValueRef cg_i32(const Cg *g, int32_t v);
// v in each of n lanes (v itself if n == 0).
LLVMValueRef cg_splat(Cg *g, LLVMValueRef v, uint32_t n);
LLVMValueRef cg_fconst(Cg *g, LLVMTypeRef like, double v);  // splat as needed
LLVMValueRef cg_iconst(Cg *g, LLVMTypeRef like, int64_t v);
LLVMTypeRef cg_of(LLVMValueRef v);                     // LLVMTypeOf
LLVMTypeRef cg_like(const Cg *g, LLVMTypeRef shape, LLVMTypeRef elem);
// The intrinsic `name` overloaded on `over` (may be NULL), called.
LLVMValueRef cg_intrinsic(Cg *g, const char *name, LLVMTypeRef over,
                          LLVMValueRef *args, uint32_t n);

// ---- casts (cast.c), math (math.c), ops (ops.c), functions (func.c) ----------
LLVMValueRef cg_cast(Cg *g, LLVMValueRef v, DType from, DType to);
// exp2, exp, log2, log, tanh, sigmoid, softplus, erf, sin, cos, pow of f32/f64
// scalars and vectors, as branch-free code.
LLVMValueRef cg_math(Cg *g, OpCode op, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef cg_dim(Cg *g, Dim d);                     // i64 value of a dim
void cg_op(Cg *g, const Op *op);
bool cg_control(Cg *g, const Op *op);                 // for if origin alloc
void cg_region(Cg *g, const Region *r);                // all ops but the yield
// A kernel `name` (attn_kernel of runtime/attn_abi.h), with `name`_ntasks and
// `name`_scratch (attn_count) beside it, all internal.
LLVMValueRef cg_kernel(Cg *g, const Func *f, const char *name);

#endif
