// Small emission helpers of the GPU's code generation.
#include "codegen/gpu/gpu.h"
#include "runtime/attn_abi.h"

#include <string.h>

V gpu_i32(Gpu *n, int64_t v) {
  return cg_i32(n->g, (int32_t)v);
}
V gpu_i64(Gpu *n, int64_t v) {
  return cg_i64(n->g, v);
}
LLVMTypeRef gpu_i32t(Gpu *n) {
  return LLVMInt32TypeInContext(n->g->lc);
}

V gpu_call_over(Gpu *n, const char *name, LLVMTypeRef over, V *args,
                uint32_t count) {
  return cg_intrinsic(n->g, name, over, args, count);
}

V gpu_call(Gpu *n, const char *name, V *args, uint32_t count) {
  return cg_intrinsic(n->g, name, NULL, args, count);
}

typedef struct Asm {
  const char *text, *cons;
  bool effects;
} Asm;

static V inline_asm(Gpu *n, LLVMTypeRef ret, Asm s, V *args, uint32_t count) {
  Cg *g = n->g;
  LLVMTypeRef *types = NEWN(&g->cx->scratch, LLVMTypeRef, count + 1);
  for (uint32_t i = 0; i < count; i++) types[i] = cg_of(args[i]);
  LLVMTypeRef t = LLVMFunctionType(ret, types, count, 0);
  V a = LLVMGetInlineAsm(t, s.text, strlen(s.text), s.cons, strlen(s.cons),
                         s.effects, 0, LLVMInlineAsmDialectATT, 0);
  V call = LLVMBuildCall2(g->b, t, a, args, count, "");
  if (!s.effects) return call;
  // Convergent: not duplicated, not moved into or out of branches.
  unsigned id = LLVMGetEnumAttributeKindForName("convergent", 10);
  LLVMAddCallSiteAttribute(call, LLVMAttributeFunctionIndex,
                           LLVMCreateEnumAttribute(g->lc, id, 0));
  return call;
}

V gpu_asm(Gpu *n, LLVMTypeRef ret, const char *text, const char *cons, V *args,
          uint32_t count) {
  return inline_asm(n, ret, (Asm){text, cons, true}, args, count);
}

V gpu_asm_pure(Gpu *n, LLVMTypeRef ret, const char *text, const char *cons,
               V *args, uint32_t count) {
  return inline_asm(n, ret, (Asm){text, cons, false}, args, count);
}

V gpu_add(Gpu *n, V a, V b) {
  if (!a) return b;
  return b ? LLVMBuildAdd(n->g->b, a, b, "") : a;
}

V gpu_mul(Gpu *n, V a, int64_t k) {
  return LLVMBuildMul(n->g->b, a, cg_iconst(n->g, cg_of(a), k), "");
}

bool gpu_lean(const Gpu *n) {
  return n->grp.threads == n->out->threads &&
         ir_attr_i(ir_launch(n->f), AT_LEAN, 0);
}

// ---------------------------------------------------------------- parameters
V gpu_block_at(Gpu *n, uint64_t at) {
  V off = gpu_i32(n, (int64_t)at);
  LLVMTypeRef i8 = LLVMInt8TypeInContext(n->g->lc);
  return LLVMBuildInBoundsGEP2(n->g->b, i8, n->block, &off, 1, "");
}

V gpu_param(Gpu *n, uint64_t at, LLVMTypeRef t) {
  Cg *g = n->g;
  LLVMTypeRef space = LLVMPointerTypeInContext(g->lc, n->vendor->param_space);
  V p = gpu_block_at(n, at);
  if (cg_of(p) != space) p = LLVMBuildAddrSpaceCast(g->b, p, space, "");
  V v = LLVMBuildLoad2(g->b, t, p, "");
  LLVMSetAlignment(v, 8);
  unsigned kind = LLVMGetMDKindIDInContext(g->lc, "invariant.load", 14);
  LLVMSetMetadata(v, kind,
                  LLVMMetadataAsValue(g->lc,
                                      LLVMMDNodeInContext2(g->lc, NULL, 0)));
  return v;
}

// Elements along axis k of a tensor in workspace as it lies.
static V room(Gpu *n, const Type *t, uint32_t k) {
  V size = cg_dim(n->g, t->size[k]);
  if (!t->padded || k + 1 < t->n) return size;
  int64_t grain = ATTN_MAP_ROW / (int64_t)dtype_size(t->dtype);
  size = e_iadd(n->g, size, gpu_i64(n, grain - 1));
  return e_and(n->g, size, gpu_i64(n, -grain));
}

// Workspaces lie one behind the other, each at a multiple of 64 bytes.
static V workspace(Gpu *n, Value tensor) {
  Cg *g = n->g;
  V at = gpu_param(n, n->workspace_at, LLVMInt64TypeInContext(g->lc));
  for (uint32_t i = 0; i < n->f->params.n; i++) {
    Value v = n->f->params.at[i].v;
    if (v == tensor) break;
    if (n->f->params.at[i].role != PR_SHARED) continue;
    const Type *t = ir_type(n->f, v);
    V bytes = gpu_i64(n, (int64_t)dtype_size(t->dtype));
    for (uint32_t k = 0; k < t->n; k++)
      bytes = LLVMBuildMul(g->b, bytes, room(n, t, k), "");
    bytes = e_and(g, e_iadd(g, bytes, gpu_i64(n, ATTN_ALIGN - 1)),
                  gpu_i64(n, -ATTN_ALIGN));
    at = e_iadd(g, at, bytes);
  }
  return at;
}

bool gpu_is_shared(const Gpu *n, Value tensor) {
  for (uint32_t i = 0; i < n->f->params.n; i++)
    if (n->f->params.at[i].v == tensor)
      return n->f->params.at[i].role == PR_SHARED;
  return false;
}

V gpu_tensor(Gpu *n, Value tensor, uint32_t i) {
  Cg *g = n->g;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc);
  const Type *t = ir_type(n->f, tensor);
  if (!gpu_is_shared(n, tensor))
    return gpu_param(n, n->tensor_at[tensor] + 8 * (uint64_t)i, i64);
  if (i == 0) return workspace(n, tensor);
  if (i <= t->n) return cg_dim(g, t->size[i - 1]);
  V stride = gpu_i64(n, 1);
  for (uint32_t k = i - t->n; k < t->n; k++)
    stride = LLVMBuildMul(g->b, stride, room(n, t, k), "");
  return stride;
}

// ---------------------------------------------------------------- threads
V gpu_shuffle(Gpu *n, V x, uint32_t lanes) {
  Cg *g = n->g;
  LLVMTypeRef t = cg_of(x), i32 = gpu_i32t(n);
  V bits = x;
  if (t == LLVMFloatTypeInContext(g->lc)) {
    bits = LLVMBuildBitCast(g->b, x, i32, "");
  } else if (t == LLVMDoubleTypeInContext(g->lc) ||
             t == LLVMInt64TypeInContext(g->lc)) {
    LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc);
    bits = LLVMBuildBitCast(g->b, x, i64, "");
    V lo = gpu_shuffle(n, LLVMBuildTrunc(g->b, bits, i32, ""), lanes);
    V hi = LLVMBuildTrunc(g->b, e_shr(g, bits, 32), i32, "");
    hi = LLVMBuildZExt(g->b, gpu_shuffle(n, hi, lanes), i64, "");
    hi = e_shl(g, hi, 32);
    bits = e_or(g, LLVMBuildZExt(g->b, lo, i64, ""), hi);
    return LLVMBuildBitCast(g->b, bits, t, "");
  } else if (t != i32) {
    bits = LLVMBuildZExt(g->b, x, i32, "");
  }
  V r = n->vendor->exchange(n, bits, lanes);
  if (t == LLVMFloatTypeInContext(g->lc))
    return LLVMBuildBitCast(g->b, r, t, "");
  return t == i32 ? r : LLVMBuildTrunc(g->b, r, t, "");
}

LLVMBasicBlockRef gpu_if(Gpu *n, V c) {
  LLVMBasicBlockRef yes = cg_block(n->g, "one"), end = cg_block(n->g, "all");
  LLVMBuildCondBr(n->g->b, c, yes, end);
  LLVMPositionBuilderAtEnd(n->g->b, yes);
  return end;
}

void gpu_end(Gpu *n, LLVMBasicBlockRef end) {
  LLVMBuildBr(n->g->b, end);
  LLVMPositionBuilderAtEnd(n->g->b, end);
}

// ---------------------------------------------------------------- values
const Type *gpu_arg_type(const Gpu *n, const Op *op, uint32_t i) {
  return ir_type(n->f, op->args[i]);
}
const Type *gpu_res_type(const Gpu *n, const Op *op) {
  return ir_type(n->f, op->res[0]);
}
V gpu_arg(const Gpu *n, const Op *op, uint32_t i) {
  return n->g->val[op->args[i]];
}
Frag *gpu_frag(Gpu *n, Value v) {
  return n->stays[v] ? gpu_stayed(n, v) : &n->frag[v];
}
Tile gpu_tile(Gpu *n, Value v) {
  return n->tile[v];
}

void gpu_string_attr(Gpu *n, unsigned at, const char *k, const char *v) {
  LLVMAddAttributeAtIndex(n->g->llfn, at,
                          LLVMCreateStringAttribute(n->g->lc, k,
                                                    (unsigned)strlen(k), v,
                                                    (unsigned)strlen(v)));
}

V gpu_global(Gpu *n, V address) {
  LLVMTypeRef t = LLVMPointerTypeInContext(n->g->lc, 1);
  return LLVMBuildIntToPtr(n->g->b, address, t, "");
}
