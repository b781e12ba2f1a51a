// Types and constants.
#include "codegen/cg.h"

#include <string.h>

LLVMTypeRef cg_scalar(const Cg *g, DType t) {
  switch (t) {
  case DT_F64: return LLVMDoubleTypeInContext(g->lc);
  case DT_F32:
  case DT_TF32: return LLVMFloatTypeInContext(g->lc);
  case DT_BOOL: return LLVMInt1TypeInContext(g->lc);
  default: return LLVMIntTypeInContext(g->lc, 8u * (unsigned)dtype_size(t));
  }
}

LLVMTypeRef cg_memory(const Cg *g, DType t) {
  return t == DT_BOOL ? LLVMInt8TypeInContext(g->lc) : cg_scalar(g, t);
}

LLVMTypeRef cg_ptr(const Cg *g) {
  return LLVMPointerTypeInContext(g->lc, 0);
}

LLVMTypeRef cg_vec(LLVMTypeRef t, uint32_t n) {
  return n ? LLVMVectorType(t, n) : t;
}

uint32_t cg_lanes(const Type *t) {
  return t->kind == TK_VEC ? t->n : 0;
}

LLVMTypeRef cg_type(const Cg *g, const Type *t) {
  if (t->kind == TK_PTR || t->kind == TK_TENSOR) return cg_ptr(g);
  return cg_vec(cg_scalar(g, t->dtype), cg_lanes(t));
}

LLVMValueRef cg_i64(const Cg *g, int64_t v) {
  return LLVMConstInt(LLVMInt64TypeInContext(g->lc), (uint64_t)v, 1);
}

LLVMValueRef cg_i32(const Cg *g, int32_t v) {
  return LLVMConstInt(LLVMInt32TypeInContext(g->lc), (uint64_t)(int64_t)v, 1);
}

LLVMTypeRef cg_of(LLVMValueRef v) {
  return LLVMTypeOf(v);
}

uint32_t cg_lanes_of(LLVMTypeRef t) {
  return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? LLVMGetVectorSize(t) : 0;
}

LLVMTypeRef cg_like(const Cg *g, LLVMTypeRef shape, LLVMTypeRef elem) {
  (void)g;
  return cg_vec(elem, cg_lanes_of(shape));
}

LLVMValueRef cg_splat(Cg *g, LLVMValueRef v, uint32_t n) {
  if (!n) return v;
  LLVMTypeRef t = cg_vec(cg_of(v), n);
  LLVMValueRef one =
      LLVMBuildInsertElement(g->b, LLVMGetPoison(t), v, cg_i64(g, 0), "");
  LLVMTypeRef mask = cg_vec(LLVMInt32TypeInContext(g->lc), n);
  return LLVMBuildShuffleVector(g->b, one, LLVMGetPoison(t),
                                LLVMConstNull(mask), "");
}

static LLVMValueRef spread(Cg *g, LLVMTypeRef like, LLVMValueRef c) {
  uint32_t n = cg_lanes_of(like);
  if (!n) return c;
  LLVMValueRef *at = NEWN(&g->cx->scratch, LLVMValueRef, n);
  for (uint32_t i = 0; i < n; i++) at[i] = c;
  return LLVMConstVector(at, n);
}

static LLVMTypeRef elem_of(LLVMTypeRef t) {
  return cg_lanes_of(t) ? LLVMGetElementType(t) : t;
}

LLVMValueRef cg_fconst(Cg *g, LLVMTypeRef like, double v) {
  return spread(g, like, LLVMConstReal(elem_of(like), v));
}

LLVMValueRef cg_iconst(Cg *g, LLVMTypeRef like, int64_t v) {
  return spread(g, like, LLVMConstInt(elem_of(like), (uint64_t)v, 1));
}

LLVMValueRef cg_intrinsic(Cg *g, const char *name, LLVMTypeRef over,
                          LLVMValueRef *args, uint32_t n) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMTypeRef types[1] = {over};
  size_t nt = over ? 1 : 0;
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(g->mod, id, types, nt);
  LLVMTypeRef ft = LLVMIntrinsicGetType(g->lc, id, types, nt);
  return LLVMBuildCall2(g->b, ft, f, args, n, "");
}
