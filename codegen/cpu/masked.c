// Masked loads and stores, gathers and scatters. What the target has no
// instruction for becomes a branch or some instructions per lane: that code
// stands once in a function of the module, not at every use.
//   %v = vgather(%p, %i, %m) : vec<16xbf16>
//   -> call @attn.gather.16xi16.x86-64-v4(<16 x ptr>, <16 x i1>)
// Lanes that are a scalar step apart are counted there, too:
//   -> call @attn.gather.16xi16.by.x86-64-v4(ptr, i64, <16 x i1>)
#include "codegen/math/emit.h"

#include <string.h>

typedef struct Kind {
  const char *intrinsic, *name;
  bool store, wide;  // wide: a vector of pointers
} Kind;

static const Kind kinds[] = {
    [CG_LOAD] = {"llvm.masked.load", "load", false, false},
    [CG_STORE] = {"llvm.masked.store", "store", true, false},
    [CG_GATHER] = {"llvm.masked.gather", "gather", false, true},
    [CG_SCATTER] = {"llvm.masked.scatter", "scatter", true, true},
};

// value: what to store, NULL for loads. step: pointer is that of the first
// lane, the others follow so many elements apart; NULL: it is a vector.
typedef struct Access {
  const Kind *kind;
  LLVMTypeRef type;
  V value, pointer, step, mask;
  uint64_t align;
} Access;

static V pointers(Cg *g, const Access *x) {
  if (!x->step) return x->pointer;
  uint32_t n = LLVMGetVectorSize(x->type);
  V lane = cg_iota(g, cg_vec(cg_of(x->step), n));
  V at = LLVMBuildMul(g->b, lane, cg_splat(g, x->step, n), "");
  LLVMTypeRef e = LLVMGetElementType(x->type);
  return LLVMBuildGEP2(g->b, e, x->pointer, &at, 1, "");
}

static V call(Cg *g, const Access *x) {
  V p = pointers(g, x);
  V load[3] = {p, x->mask, LLVMConstNull(x->type)};
  V store[3] = {x->value, p, x->mask};
  const char *name = x->kind->intrinsic;
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMTypeRef over[2] = {x->type, cg_of(p)};
  V f = LLVMGetIntrinsicDeclaration(g->mod, id, over, 2);
  LLVMTypeRef ft = LLVMIntrinsicGetType(g->lc, id, over, 2);
  V c = LLVMBuildCall2(g->b, ft, f, x->kind->store ? store : load, 3, "");
  unsigned kind = LLVMGetEnumAttributeKindForName("align", 5);
  LLVMAddCallSiteAttribute(c, x->kind->store ? 2 : 1,
                           LLVMCreateEnumAttribute(g->lc, kind, x->align));
  return c;
}

static const char *name_of(Cg *g, const Access *x, bool all) {
  LLVMTypeRef e = LLVMGetElementType(x->type);
  bool f = LLVMGetTypeKind(e) != LLVMIntegerTypeKind;
  unsigned bits = (unsigned)(8 * x->align);
  return arena_printf(&g->cx->scratch, "attn.%s.%ux%c%u%s%s.%s", x->kind->name,
                      LLVMGetVectorSize(x->type), f ? 'f' : 'i', bits,
                      x->step ? ".by" : "", all ? ".all" : "",
                      strchr(g->target->name, ':') + 1);
}

// The function for accesses like x; its parameters are those of *args.
static V function(Cg *g, const Access *x, bool all, LLVMTypeRef ft) {
  const char *name = name_of(g, x, all);
  V f = LLVMGetNamedFunction(g->mod, name);
  if (f) return f;
  LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
  f = LLVMAddFunction(g->mod, name, ft);
  LLVMSetLinkage(f, LLVMInternalLinkage);
  cg_fn_attr(g, f, "noinline");
  cg_target_attrs(g, f);
  LLVMPositionBuilderAtEnd(g->b, LLVMAppendBasicBlockInContext(g->lc, f, ""));
  Access in = *x;
  unsigned k = 0;
  in.pointer = LLVMGetParam(f, k++);
  if (x->step) in.step = LLVMGetParam(f, k++);
  if (!all) in.mask = LLVMGetParam(f, k++);
  if (x->value) in.value = LLVMGetParam(f, k);
  V r = call(g, &in);
  if (x->kind->store) LLVMBuildRetVoid(g->b);
  else LLVMBuildRet(g->b, r);
  LLVMPositionBuilderAtEnd(g->b, here);
  return f;
}

static V outlined(Cg *g, const Access *x, bool all) {
  LLVMTypeRef t[4];
  V args[4];
  unsigned n = 0;
  args[n++] = x->pointer;
  if (x->step) args[n++] = x->step;
  if (!all) args[n++] = x->mask;
  if (x->value) args[n++] = x->value;
  for (unsigned i = 0; i < n; i++) t[i] = cg_of(args[i]);
  LLVMTypeRef ret = x->kind->store ? LLVMVoidTypeInContext(g->lc) : x->type;
  LLVMTypeRef ft = LLVMFunctionType(ret, t, n, 0);
  return LLVMBuildCall2(g->b, ft, function(g, x, all, ft), args, n, "");
}

static bool native(const Cg *g, const Kind *k, unsigned lanes, uint64_t size) {
  if (lanes < 8) return true;  // short enough
  if (g->has.avx512) return size >= 4 || !k->wide;
  return g->has.masked && size >= 4 && !k->wide;
}

LLVMValueRef cg_masked(Cg *g, const CgMasked *a) {
  LLVMTypeRef i1 = LLVMInt1TypeInContext(g->lc);
  Access x = {&kinds[a->what],
              a->type,
              a->value,
              a->pointer,
              a->step,
              a->mask,
              (uint64_t)dtype_size(a->elem)};
  if (!x.mask) x.mask = LLVMConstAllOnes(cg_like(g, a->type, i1));
  if (native(g, x.kind, LLVMGetVectorSize(a->type), x.align))
    return call(g, &x);
  return outlined(g, &x, !a->mask);
}
