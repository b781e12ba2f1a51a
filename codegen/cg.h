// Shared by the files of codegen: LLVM handles and small emission helpers.
// The only users of llvm-c. mach values map one to one to LLVM values:
//   f64 double, f32 and tf32 float, integers iN, bool i1 (i8 in memory),
//   bf16 f16 f8* as the integer of their bits (casts are explicit code, so no
//   compiler-rt call can appear), vec<N x T> as <N x T>, ptr<T> as ptr.
#ifndef ATTNC_CODEGEN_CG_H
#define ATTNC_CODEGEN_CG_H

#include "ir/ir.h"
#include "ir/target.h"

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

// Instruction sets the target row allows.
typedef struct CgFeatures {
  bool fma, floor, f16, masked, avx512;
  bool bf16;   // rounds to bf16, and adds products of pairs of it
  bool flush;  // f32 denormals are zero
} CgFeatures;

// What of a program goes to a module.
typedef enum CgShare {
  CG_WHOLE,  // everything
  CG_SHELL,  // everything but the kernels, which are declared
  CG_UNIT,   // the kernels of one variant
} CgShare;

typedef struct Cg {
  Ctx *cx;
  CgShare share;
  LLVMContextRef lc;
  LLVMModuleRef mod;
  LLVMBuilderRef b;
  const Target *target;
  CgFeatures has;
  bool failed;  // LLVM reported an error

  // of the function being printed
  const Func *fn;
  const uint32_t *dim_at;  // index in kargs.dims of each dim symbol
  LLVMValueRef llfn;
  LLVMValueRef *val;     // LLVM value of each IR value
  LLVMValueRef *dim;     // LLVM value of each dim symbol
  LLVMValueRef *number;  // by Dim: what a launch says of it; or NULL
  LLVMValueRef kargs;    // const attn_kargs *
  LLVMValueRef scratch;  // next free byte of this thread's scratch
  LLVMValueRef task;     // task number, i64
} Cg;

// ---- targets (target.c) ------------------------------------------------------
CgFeatures cg_features(const Target *t);
uint32_t cg_isa(const Target *t);  // attn_isa
const char *cg_triple(const Target *t);
// For the triple; NULL with a diagnostic. The caller disposes of it.
LLVMTargetMachineRef cg_machine(Ctx *cx, const char *triple);

// ---- types and constants (types.c) -----------------------------------------
LLVMTypeRef cg_scalar(const Cg *g, DType t);  // in registers
LLVMTypeRef cg_memory(const Cg *g, DType t);  // in memory (bool: i8)
LLVMTypeRef cg_ptr(const Cg *g);
LLVMTypeRef cg_vec(LLVMTypeRef t, uint32_t n);  // t itself if n == 0
LLVMTypeRef cg_type(const Cg *g, const Type *t);
uint32_t cg_lanes(const Type *t);  // 0: scalar
uint32_t cg_lanes_of(LLVMTypeRef t);
LLVMValueRef cg_i64(const Cg *g, int64_t v);
LLVMValueRef cg_i32(const Cg *g, int32_t v);
// v in each of n lanes (v itself if n == 0).
LLVMValueRef cg_splat(Cg *g, LLVMValueRef v, uint32_t n);
LLVMValueRef cg_fconst(Cg *g, LLVMTypeRef like, double v);  // splat as needed
LLVMValueRef cg_iconst(Cg *g, LLVMTypeRef like, int64_t v);
LLVMTypeRef cg_of(LLVMValueRef v);  // LLVMTypeOf
LLVMTypeRef cg_like(const Cg *g, LLVMTypeRef shape, LLVMTypeRef elem);
// The intrinsic `name` overloaded on `over` (may be NULL), called.
LLVMValueRef cg_intrinsic(Cg *g, const char *name, LLVMTypeRef over,
                          LLVMValueRef *args, uint32_t n);

// ---- casts (cast.c), math (codegen/math/f32.c), ops (ops.c), functions (func.c) ----------
LLVMValueRef cg_cast(Cg *g, LLVMValueRef v, DType from, DType to);
// exp2, exp, log2, log, tanh, sigmoid, softplus, erf, sin, cos, pow of f32/f64
// scalars and vectors, as branch-free code.
LLVMValueRef cg_math(Cg *g, OpCode op, LLVMValueRef x, LLVMValueRef y);
// Both of one angle for little more than one (CPUs).
void cg_sincos(Cg *g, LLVMValueRef x, LLVMValueRef *sine, LLVMValueRef *cosine);
LLVMValueRef cg_dim(Cg *g, Dim d);  // i64 value of a dim
// A field of constant memory, `offset` bytes behind base.
LLVMValueRef cg_field(Cg *g, LLVMValueRef base, uint64_t offset, LLVMTypeRef t);
LLVMBasicBlockRef cg_block(Cg *g, const char *name);
void cg_target_attrs(Cg *g, LLVMValueRef f);  // CPU, features, nounwind
void cg_fn_attr(Cg *g, LLVMValueRef f, const char *enum_attr);
// Vector memory accesses (masked.c). mask NULL: all lanes; gather and scatter
// take a vector of pointers, or one and the distance of the lanes in elements;
// value: what to store.
typedef enum CgAccess { CG_LOAD, CG_STORE, CG_GATHER, CG_SCATTER } CgAccess;
typedef struct CgMasked {
  CgAccess what;
  LLVMTypeRef type;
  DType elem;
  LLVMValueRef pointer, step, mask, value;
} CgMasked;
LLVMValueRef cg_masked(Cg *g, const CgMasked *a);
LLVMValueRef cg_iota(Cg *g, LLVMTypeRef vec);
// The address of element operand 1 behind the pointer operand 0.
LLVMValueRef cg_address(Cg *g, const Op *op);
// Tile registers (mat.c): the ops, whose values are the registers' numbers; the
// shapes of a kernel that has some, and their end.
LLVMValueRef cg_mat(Cg *g, const Op *op);
bool cg_is_mat(const Cg *g, Value v);
bool cg_mat_begin(Cg *g);
void cg_mat_end(Cg *g);
void cg_op(Cg *g, const Op *op);
bool cg_control(Cg *g, const Op *op);    // for if origin alloc
void cg_region(Cg *g, const Region *r);  // all ops but the yield
// The three functions of a phase (attn_phase): internal if the module is whole.
typedef struct CgKernel {
  LLVMValueRef kernel, ntasks, scratch;
} CgKernel;
// f as `name`, `name`.ntasks, `name`.scratch; dim_at as in Cg.
CgKernel cg_kernel(Cg *g, const Func *f, const uint32_t *dim_at,
                   const char *name);

// The function that tells the bytes of shared workspace of f's program, or a
// null pointer if it needs none.
LLVMValueRef cg_shared(Cg *g, const Func *f, const uint32_t *dim_at,
                       const char *name);

// ---- a module as bytes (write.c) ---------------------------------------------
// Each appends to out. Where LLVM finds no memory they leave as arenas do.
void cg_write_text(Cg *g, Buf *out);
// False: a diagnostic was added (A0801).
bool cg_write_code(Cg *g, LLVMTargetMachineRef tm, LLVMCodeGenFileType type,
                   Buf *out);

// ---- the end of a module (target.c) -----------------------------------------
// Frees what g holds of LLVM, and the machine.
void cg_end(Cg *g, LLVMTargetMachineRef tm);

// ---- programs (program.c, header.c), LLVM's errors (fatal.c) -----------------
struct CgProgram;
void cg_program(Cg *g, const struct CgProgram *p, LLVMValueRef container);
// The kernels of variant i alone; other modules see them.
void cg_unit(Cg *g, const struct CgProgram *p, uint32_t i);
// LLVM's diagnostics of this context go to cx.
void cg_catch(Cg *g);
// Adds A0801 with LLVM's message, which is disposed of.
void cg_fail(Ctx *cx, const char *what, char *message);

#endif
