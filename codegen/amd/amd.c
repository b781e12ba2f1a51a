// What is AMD's in the code of GPUs: hooks for AMDGCN (docs/amd.md).
#include "codegen/amd/amd.h"

#include <llvm-c/Target.h>
#include <stdio.h>

enum {
  KERNEL = 91,       // LLVM's calling convention
  NO_LOADS = 0xf70,  // s_waitcnt vmcnt(0), in gfx9's bits
};

// Loops are made to test at their end: LLVM's code generation for divergent
// branches, which all loops pass through, would copy what others carry in each
// step. Sums are rescaled in pairs (slp-vectorizer).
static const char pipeline[] =
    "function(early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,"
    "simplifycfg,loop-simplify,lcssa,loop(loop-rotate),loop-mssa(licm),"
    "early-cse<memssa>,slp-vectorizer,simplifycfg,"
    "instcombine<no-verify-fixpoint>,early-cse<memssa>)";

static void init(void) {
  LLVMInitializeAMDGPUTargetInfo();
  LLVMInitializeAMDGPUTarget();
  LLVMInitializeAMDGPUTargetMC();
  LLVMInitializeAMDGPUAsmPrinter();
}

// Version 5 of code objects is what most run times read.
static void module(Cg *g) {
  LLVMMetadataRef v = LLVMValueAsMetadata(cg_i32(g, 500));
  static const char name[] = "amdhsa_code_object_version";
  LLVMAddModuleFlag(g->mod, LLVMModuleFlagBehaviorError, name, sizeof name - 1,
                    v);
}

// ---------------------------------------------------------------- kernels
// What a kernel gets besides its block: the number of its workgroup in x and of
// its thread in x.
static const char *const absent[] = {
    "amdgpu-no-dispatch-ptr",      "amdgpu-no-queue-ptr",
    "amdgpu-no-dispatch-id",       "amdgpu-no-implicitarg-ptr",
    "amdgpu-no-workgroup-id-y",    "amdgpu-no-workgroup-id-z",
    "amdgpu-no-workitem-id-y",     "amdgpu-no-workitem-id-z",
    "amdgpu-no-cluster-id-x",      "amdgpu-no-cluster-id-y",
    "amdgpu-no-cluster-id-z",      "amdgpu-no-lds-kernel-id",
    "amdgpu-no-hostcall-ptr",      "amdgpu-no-multigrid-sync-arg",
    "amdgpu-no-heap-ptr",          "amdgpu-no-default-queue",
    "amdgpu-no-completion-action", "amdgpu-no-flat-scratch-init",
};

static void declare(Gpu *n, const char *symbol) {
  Cg *g = n->g;
  char text[32];
  LLVMTypeRef p4 = LLVMPointerTypeInContext(g->lc, 4);
  LLVMTypeRef t = LLVMFunctionType(LLVMVoidTypeInContext(g->lc), &p4, 1, 0);
  g->llfn = LLVMAddFunction(g->mod, symbol, t);
  LLVMSetFunctionCallConv(g->llfn, KERNEL);
  LLVMSetVisibility(g->llfn, LLVMProtectedVisibility);
  cg_target_attrs(g, g->llfn);
  unsigned fn = (unsigned)LLVMAttributeFunctionIndex;
  snprintf(text, sizeof text, "%u,%u", n->out->threads, n->out->threads);
  gpu_string_attr(n, fn, "amdgpu-flat-work-group-size", text);
  // Sums are rescaled, which AGPRs do not allow: products leave them elsewhere.
  // A workgroup that is alone on its CU has AGPRs too, for what only products
  // and loads touch.
  bool alone = ir_attr_i(ir_launch(n->f), AT_OCCUPANCY, 2) == 1;
  if (n->gpu.wave == 64)
    gpu_string_attr(n, fn, "amdgpu-waves-per-eu", alone ? "1,1" : "2,2");
  gpu_string_attr(n, fn, "amdgpu-agpr-alloc", "0");
  if (alone && n->gpu.wave == 32)  // there are no more: as few as may be
    gpu_string_attr(n, fn, "amdgpu-sched-strategy", "iterative-minreg");
  gpu_string_attr(n, fn, "uniform-work-group-size", "true");
  gpu_string_attr(n, fn, "denormal-fp-math-f32", "preserve-sign,preserve-sign");
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
    gpu_string_attr(n, fn, absent[i], "");
  LLVMTypeRef block =
      LLVMArrayType2(LLVMInt8TypeInContext(g->lc), n->out->block_bytes);
  unsigned byref = LLVMGetEnumAttributeKindForName("byref", 5);
  LLVMAddAttributeAtIndex(g->llfn, 1,
                          LLVMCreateTypeAttribute(g->lc, byref, block));
  n->block = LLVMGetParam(g->llfn, 0);
  LLVMSetParamAlignment(n->block, 64);
  LLVMPositionBuilderAtEnd(g->b, cg_block(g, "entry"));
}

static V shared(Gpu *n) {
  Cg *g = n->g;
  uint32_t bytes = n->out->shared_bytes ? n->out->shared_bytes : 16;
  LLVMTypeRef t = LLVMArrayType2(LLVMInt8TypeInContext(g->lc), bytes);
  V v = LLVMAddGlobalInAddressSpace(g->mod, t, "shared", 3);
  LLVMSetAlignment(v, 1024);
  LLVMSetLinkage(v, LLVMInternalLinkage);
  LLVMSetInitializer(v, LLVMGetPoison(t));
  return v;
}

static void threads(Gpu *n) {
  uint32_t wave = n->gpu.wave;
  n->tid = gpu_call(n, "llvm.amdgcn.workitem.id.x", NULL, 0);
  n->lane = e_and(n->g, n->tid, gpu_i32(n, wave - 1));
  n->warp = n->vendor->uniform(n, e_shr(n->g, n->tid, wave == 64 ? 6 : 5));
}

static void nothing(Gpu *n) {
  (void)n;
}

static V cta(Gpu *n) {
  return gpu_call(n, "llvm.amdgcn.workgroup.id.x", NULL, 0);
}

// Every task has its workgroup.
static V ctas(Gpu *n) {
  V v = gpu_param(n, n->ntasks_at, LLVMInt64TypeInContext(n->g->lc));
  return LLVMBuildTrunc(n->g->b, v, gpu_i32t(n), "");
}

// ---------------------------------------------------------------- threads
static V exchange(Gpu *n, V x, uint32_t lanes) {
  Cg *g = n->g;
  LLVMTypeRef i1 = LLVMInt1TypeInContext(g->lc);
  if (lanes == 16 && n->gpu.wave == 32) {
    V no = LLVMConstInt(i1, 0, 0);
    V a[6] = {x,  x, gpu_i32(n, 0x76543210), gpu_i32(n, (int32_t)0xfedcba98),
              no, no};
    return gpu_call_over(n, "llvm.amdgcn.permlanex16", gpu_i32t(n), a, 6);
  }
  V other = e_xor(g, n->lane, gpu_i32(n, lanes));
  V a[2] = {e_shl(g, other, 2), x};
  return gpu_call(n, "llvm.amdgcn.ds.bpermute", a, 2);
}

static V first_lane(Gpu *n, V x) {
  return gpu_call_over(n, "llvm.amdgcn.readfirstlane", gpu_i32t(n), &x, 1);
}

static V vote(Gpu *n, bool any, V x) {
  Cg *g = n->g;
  LLVMTypeRef mask = LLVMIntTypeInContext(g->lc, n->gpu.wave);
  if (!any) x = LLVMBuildNot(g->b, x, "");
  V m = gpu_call_over(n, "llvm.amdgcn.ballot", mask, &x, 1);
  return e_icmp(g, any ? LLVMIntNE : LLVMIntEQ, m, LLVMConstNull(mask));
}

// Other threads' writes to shared memory, or to all memory, are seen behind it.
static void fence(Gpu *n, LLVMAtomicOrdering order, bool all) {
  Cg *g = n->g;
  unsigned scope = LLVMGetSyncScopeID(g->lc, "workgroup", 9);
  V f = LLVMBuildFenceSyncScope(g->b, order, scope, "");
  if (all) return;
  LLVMMetadataRef m[2] = {LLVMMDStringInContext2(g->lc, "amdgpu-synchronize-as",
                                                 21),
                          LLVMMDStringInContext2(g->lc, "local", 5)};
  LLVMMetadataRef node = LLVMMDNodeInContext2(g->lc, m, 2);
  LLVMSetMetadata(f, LLVMGetMDKindIDInContext(g->lc, "mmra", 4),
                  LLVMMetadataAsValue(g->lc, node));
}

// Copies that are waited for are this wave's: all.
static void cp_wait(Gpu *n, const Op *op) {
  (void)op;
  V none = gpu_i32(n, NO_LOADS);
  gpu_call(n, "llvm.amdgcn.s.waitcnt", &none, 1);
}

static void cp_commit(Gpu *n, const Op *op) {
  (void)n;
  (void)op;
}

static bool writes_what_it_reads(const Gpu *n) {
  for (uint32_t i = 0; i < n->f->params.n; i++)
    if (n->f->params.at[i].role == PR_INOUT) return true;
  return false;
}

static void sync(Gpu *n) {
  bool all = writes_what_it_reads(n);
  fence(n, LLVMAtomicOrderingRelease, all);
  if (n->grp.threads > n->gpu.wave)
    gpu_call(n, "llvm.amdgcn.s.barrier", NULL, 0);
  fence(n, LLVMAtomicOrderingAcquire, all);
}

// ---------------------------------------------------------------- values
static V pair(Gpu *n, DType to, V lo, V hi, bool within) {
  (void)within;
  Cg *g = n->g;
  LLVMTypeRef f32 = LLVMFloatTypeInContext(g->lc), e = NULL;
  if (to == DT_F16) e = LLVMHalfTypeInContext(g->lc);
  if (to == DT_BF16) e = LLVMBFloatTypeInContext(g->lc);
  if (!e) return NULL;
  V v = LLVMGetPoison(LLVMVectorType(f32, 2));
  v = LLVMBuildInsertElement(g->b, v, lo, gpu_i32(n, 0), "");
  v = LLVMBuildInsertElement(g->b, v, hi, gpu_i32(n, 1), "");
  v = LLVMBuildFPTrunc(g->b, v, LLVMVectorType(e, 2), "");
  return LLVMBuildBitCast(g->b, v, gpu_i32t(n), "");
}

// What these instructions mean by 8 bits is OCP's on some targets only; on RDNA
// no emulator at hand has them.
static bool widen(Gpu *n, DType from, V word, DType to, V out[2]) {
  if (n->gpu.f8 != F8_OCP || n->gpu.wave != 64) return false;
  Cg *g = n->g;
  V x[2];
  for (uint32_t i = 0; i < 2; i++) {
    V a[2] = {word, LLVMConstInt(LLVMInt1TypeInContext(g->lc), i, 0)};
    V v = gpu_call(n,
                   from == DT_F8E4M3 ? "llvm.amdgcn.cvt.pk.f32.fp8"
                                     : "llvm.amdgcn.cvt.pk.f32.bf8",
                   a, 2);
    for (int k = 0; k < 2; k++)
      x[k] = LLVMBuildExtractElement(g->b, v, gpu_i32(n, k), "");
    out[i] = to == DT_BF16 ? gpu_uppers(n, x[0], x[1])
                           : pair(n, to, x[0], x[1], false);
  }
  return true;
}

static V ex2(Gpu *n, V x) {
  return gpu_call_over(n, "llvm.amdgcn.exp2", cg_of(x), &x, 1);
}
static V rcp(Gpu *n, V x) {
  return gpu_call_over(n, "llvm.amdgcn.rcp", cg_of(x), &x, 1);
}
static V rsqrt(Gpu *n, V x) {
  return gpu_call_over(n, "llvm.amdgcn.rsq", cg_of(x), &x, 1);
}

// ---------------------------------------------------------------- memory
// Where there is nothing to read the block of parameters is read: no branch.
static V load(Gpu *n, V address, V ok, uint32_t bytes) {
  Cg *g = n->g;
  LLVMTypeRef i32 = gpu_i32t(n), t = i32;
  if (bytes > 4) t = LLVMVectorType(i32, bytes / 4);
  if (bytes < 4) t = LLVMIntTypeInContext(g->lc, 8 * bytes);
  V safe = LLVMBuildPtrToInt(g->b, n->block, cg_of(address), "");
  V v = LLVMBuildLoad2(g->b, t, gpu_global(n, e_sel(g, ok, address, safe)), "");
  LLVMSetAlignment(v, bytes < 4 ? bytes : 4);
  v = e_sel(g, ok, v, LLVMConstNull(t));
  // Addresses of many elements at a time would not fit the registers.
  V none = gpu_i32(n, 0);
  gpu_call(n, "llvm.amdgcn.sched.barrier", &none, 1);
  if (bytes == 1) v = LLVMBuildZExt(g->b, v, LLVMInt16TypeInContext(g->lc), "");
  if (bytes == 8)
    v = LLVMBuildBitCast(g->b, v, LLVMInt64TypeInContext(g->lc), "");
  return v;
}

static void store(Gpu *n, V address, V ok, V x, uint32_t bytes) {
  Cg *g = n->g;
  LLVMBasicBlockRef end = gpu_if(n, ok);
  if (bytes == 1) x = LLVMBuildTrunc(g->b, x, LLVMInt8TypeInContext(g->lc), "");
  V st = LLVMBuildStore(g->b, x, gpu_global(n, address));
  LLVMSetAlignment(st, bytes < 4 ? bytes : 4);
  gpu_end(n, end);
}

// ---------------------------------------------------------------- uniform
// An integer that is the same in all threads, but LLVM does not know it.
static V same(Gpu *n, V v) {
  Cg *g = n->g;
  if (cg_of(v) == gpu_i32t(n)) return first_lane(n, v);
  if (cg_of(v) != LLVMInt64TypeInContext(g->lc)) return v;
  V lo = LLVMBuildTrunc(g->b, v, gpu_i32t(n), "");
  V hi = LLVMBuildTrunc(g->b, e_shr(g, v, 32), gpu_i32t(n), "");
  hi = LLVMBuildZExt(g->b, first_lane(n, hi), cg_of(v), "");
  lo = LLVMBuildZExt(g->b, first_lane(n, lo), cg_of(v), "");
  return e_or(g, lo, e_shl(g, hi, 32));
}

// LLVM would make a register of each address that a step changes.
static V step(Gpu *n, V i) {
  i = same(n, i);
  return gpu_asm(n, cg_of(i), "", "=s,0", &i, 1);
}

static V anew(Gpu *n, V x) {
  return gpu_asm_pure(n, cg_of(x), "", "=v,0", &x, 1);
}

// What is read or joined.
static void scalar(Gpu *n, const Op *op, GpuEmit *emit) {
  emit(n, op);
  V *v = &n->g->val[op->res[0]];
  if (gpu_res_type(n, op)->kind != TK_FRAG) *v = same(n, *v);
}

static void gload(Gpu *n, const Op *op) {
  scalar(n, op, amd_gload);
}
static void sget(Gpu *n, const Op *op) {
  scalar(n, op, gpu_sget);
}
static void freduce(Gpu *n, const Op *op) {
  scalar(n, op, gpu_freduce);
}

static GpuEmit *const ops[OP_COUNT] = {
    [OP_GLOAD] = gload,
    [OP_GSTORE] = amd_gstore,
    [OP_SGET] = sget,
    [OP_FREDUCE] = freduce,
    [OP_CP_ASYNC] = amd_cp_async,
    [OP_CP_COMMIT] = cp_commit,
    [OP_CP_WAIT] = cp_wait,
};

const GpuVendor amd_vendor = {
    .triple = "amdgcn-amd-amdhsa",
    .init = init,
    .module = module,
    .pipeline = pipeline,
    .param_space = 4,
    .ops = ops,
    .declare = declare,
    .shared = shared,
    .threads = threads,
    .begin = nothing,
    .dense = amd_dense,
    .end = nothing,
    .cta = cta,
    .ctas = ctas,
    .step = step,
    .anew = anew,
    .exchange = exchange,
    .first_lane = first_lane,
    .uniform = first_lane,
    .vote = vote,
    .sync = sync,
    .pair = pair,
    .widen = widen,
    .ex2 = ex2,
    .rcp = rcp,
    .rsqrt = rsqrt,
    .load = load,
    .store = store,
    .store_tile = amd_store_tile,
    .mma = amd_mma,
};
