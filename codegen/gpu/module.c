// A module of GPU programs as assembly.
#include "codegen/gpu/gpu.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Support.h>
#include <llvm-c/Transforms/PassBuilder.h>

static const GpuVendor *vendor_of(const Target *t) {
  static const GpuVendor *const all[] = {[VENDOR_NVIDIA] = &nv_vendor,
                                         [VENDOR_AMD] = &amd_vendor};
  return all[t->gpu.vendor];
}

// The guard against reuse of poison in straight-line strength reduction takes
// up to nine tenths of the time (docs/lab/2026-11-compile-time.md). Nothing
// here is poison where it is made: flags come from what LLVM has proved itself.
// AMD's branches that all threads take alike stay as they are: made one path
// behind the other, both would hold what either needs.
static void set_options(void) {
  static const char *const args[] = {"attnc",
                                     "-enable-poison-reuse-guard=false",
                                     "-structurizecfg-skip-uniform-regions"};
  LLVMParseCommandLineOptions(sizeof args / sizeof *args, args, NULL);
}

static LLVMTargetMachineRef machine(Ctx *cx, const Target *t, const Module *m) {
  const GpuVendor *vendor = vendor_of(t);
  const char *triple = vendor->triple;
  LLVMTargetRef target = NULL;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) {
    LLVMDisposeMessage(message);
    set_options();
    vendor->init();
    if (LLVMGetTargetFromTriple(triple, &target, &message)) {
      cg_fail(cx, triple, message);
      return NULL;
    }
  }
  // Never level 0: it leaves moves of registers that products are using.
  const char *features = vendor->features ? vendor->features(m) : NULL;
  return LLVMCreateTargetMachine(target, triple, t->cpu,
                                 features ? features : t->features,
                                 LLVMCodeGenLevelDefault, LLVMRelocDefault,
                                 LLVMCodeModelDefault);
}

static void begin(Cg *g, LLVMTargetMachineRef tm) {
  LLVMContextSetDiscardValueNames(g->lc, 0);
  cg_catch(g);
  g->mod = LLVMModuleCreateWithNameInContext("attn", g->lc);
  g->b = LLVMCreateBuilderInContext(g->lc);
  LLVMTargetDataRef td = LLVMCreateTargetDataLayout(tm);
  LLVMSetModuleDataLayout(g->mod, td);
  LLVMDisposeTargetData(td);
  LLVMSetTarget(g->mod, vendor_of(g->target)->triple);
  if (vendor_of(g->target)->module) vendor_of(g->target)->module(g);
}

static bool finish(Cg *g, LLVMTargetMachineRef tm, CgEmit what, Buf *out) {
  char *message = NULL;
  if (LLVMVerifyModule(g->mod, LLVMReturnStatusAction, &message)) {
    cg_fail(g->cx, "invalid LLVM IR", message);
    return false;
  }
  LLVMDisposeMessage(message);
  if (what != CG_LLVM_RAW) {
    LLVMPassBuilderOptionsRef o = LLVMCreatePassBuilderOptions();
    LLVMErrorRef e =
        LLVMRunPasses(g->mod, vendor_of(g->target)->pipeline, tm, o);
    LLVMDisposePassBuilderOptions(o);
    if (e) {
      cg_fail(g->cx, "passes", LLVMCreateMessage(LLVMGetErrorMessage(e)));
      return false;
    }
  }
  bool nvidia = g->target->gpu.vendor == VENDOR_NVIDIA;
  if (what != CG_LLVM_RAW && nvidia) gpu_order(g);
  if (what == CG_LLVM_RAW || what == CG_LLVM) {
    cg_write_text(g, out);
    return true;
  }
  LLVMCodeGenFileType type =
      what == CG_OBJECT ? LLVMObjectFile : LLVMAssemblyFile;
  return cg_write_code(g, tm, type, out) && !g->failed;
}

static void find_angle(void *data, Op *op) {
  *(bool *)data |= op->code == OP_SIN || op->code == OP_COS;
}

// Takes the place of a kernel: labels count functions, that of huge angles too,
// and what kernels share stands in the order in which they first need it.
static void empty(Gpu *n, const char *symbol) {
  Cg *g = n->g;
  LLVMTypeRef t = LLVMFunctionType(LLVMVoidTypeInContext(g->lc), NULL, 0, 0);
  bool angles = false;
  g->llfn = LLVMAddFunction(g->mod, symbol, t);
  LLVMSetFunctionCallConv(g->llfn, PTX_KERNEL);
  LLVMPositionBuilderAtEnd(g->b, cg_block(g, "entry"));
  n->vendor->shared(n);
  ir_walk(n->f->body, find_angle, &angles);
  if (angles) cg_angle_called(g);
  LLVMBuildRetVoid(g->b);
}

static const char *symbol_of(Cg *g, const Func *f, const char *prefix) {
  const char *s = arena_printf(&g->cx->session, "%s_%s", prefix, f->name);
  for (char *p = (char *)s; *p; p++)
    if (*p == '.') *p = '_';
  return s;
}

// known: as of cg_gpu_rest, or NULL.
static void kernels(Cg *g, const Module *m, const char *prefix,
                    const CgKernelRecord *const *known, CgKernels *all) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    const Func *f = m->funcs.at[i];
    if (f->kind != FK_PROGRAM) continue;
    CgKernelRecord r = {.symbol = symbol_of(g, f, prefix)};
    const CgKernelRecord *have = known ? known[at++] : NULL;
    const char *symbol = r.symbol;
    if (have) r = *have;
    r.symbol = symbol;
    r.func = f;
    Gpu n = {.g = g,
             .vendor = vendor_of(g->target),
             .f = f,
             .gpu = g->target->gpu,
             .out = &r};
    if (have) empty(&n, r.symbol);
    else gpu_kernel(&n, r.symbol);
    vec_push(&g->cx->session, all, r);
  }
}

static const Target *target_of(Ctx *cx, const Module *m) {
  const Target *t = m->target ? target_by_name(m->target) : NULL;
  if (t && t->kind == TARGET_GPU && m->level == LV_MACH) return t;
  const char *name = m->funcs.n ? m->funcs.at[0]->name : "";
  diag_add(cx, DIAG_cg_input, NOWHERE, name,
           "its module is not at level mach of a GPU");
  return NULL;
}

// What is made of a module.
typedef struct Wanted {
  const char *prefix;
  CgEmit what;
  const CgKernelRecord *const *known;  // as of cg_gpu_rest, or NULL
} Wanted;

static bool make(Ctx *cx, const Module *m, Wanted w, Buf *out, CgKernels *all) {
  CgKernels own = {0};
  const Target *t = target_of(cx, m);
  LLVMTargetMachineRef tm = t ? machine(cx, t, m) : NULL;
  if (!tm) return false;
  work_say(cx, "code for %s by LLVM", t->name);
  ArenaMark mark = arena_mark(&cx->scratch);
  Cg g = {.cx = cx,
          .target = t,
          .lc = LLVMContextCreate(),
          .has = {.fma = true, .floor = true, .f16 = true, .flush = true}};
  begin(&g, tm);
  kernels(&g, m, w.prefix, w.known, all ? all : &own);
  bool ok = !g.failed && finish(&g, tm, w.what, out);
  cg_end(&g, tm);
  if (out->arena != &cx->scratch) arena_reset(&cx->scratch, mark);
  return ok;
}

bool cg_gpu(Ctx *cx, const Module *m, const char *prefix, CgEmit what, Buf *out,
            CgKernels *all) {
  return make(cx, m, (Wanted){prefix, what, NULL}, out, all);
}

bool cg_gpu_rest(Ctx *cx, const Module *m, const char *prefix,
                 const CgKernelRecord *const *known, Buf *out, CgKernels *all) {
  return make(cx, m, (Wanted){prefix, CG_ASM, known}, out, all);
}

bool cg_gpu_ready(Ctx *cx, const Module *m) {
  const Target *t = target_of(cx, m);
  LLVMTargetMachineRef tm = t ? machine(cx, t, m) : NULL;
  if (tm) LLVMDisposeTargetMachine(tm);
  return tm != NULL;
}
