// From programs to bytes: one LLVM module, a short list of passes, LLVM's code
// generator.
#include "codegen/cg.h"
#include "codegen/codegen.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <string.h>

// What mach leaves to do: repeated loads of arguments, address arithmetic,
// constants. Rotated loops let invariant loads and products leave them; that
// makes row loops a fifth shorter. Block loops need none of it. GVN, SROA and
// a second round change nothing.
static const char pipeline[] =
    "function(early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,"
    "loop-mssa(loop-rotate,licm<no-allowspeculation>),simplifycfg)";

// ---------------------------------------------------------------- checks
static bool check_variant(Ctx *cx, const CgProgram *p, const Module *m) {
  const Target *t = m->target ? target_by_name(m->target) : NULL;
  const char *wrong = NULL;
  if (m->level != LV_MACH) wrong = "its module is not at level mach";
  else if (!t || t->kind != TARGET_CPU) wrong = "its module has no CPU target";
  else if (!ir_find(m, p->name)) wrong = "its module has no such function";
  if (wrong) diag_add(cx, DIAG_cg_input, NOWHERE, p->name, wrong);
  return !wrong;
}

static bool check_limits(Ctx *cx, const CgProgram *p) {
  const char *wrong = NULL;
  if (p->nparams > ATTN_MAX_PARAMS) wrong = "it has too many parameters";
  if (p->dims->syms.n > ATTN_MAX_DIMS) wrong = "it has too many dims";
  for (uint32_t i = 0; i < p->nparams; i++)
    if (p->params[i].type.kind == TK_TENSOR &&
        p->params[i].type.n > ATTN_MAX_RANK)
      wrong = "an array has too many axes";
  if (wrong) diag_add(cx, DIAG_cg_input, NOWHERE, p->name, wrong);
  return !wrong;
}

// Where nothing but device code is compiled.
static const Target *host(void) {
  const char *name[1];
  return target_by_name(cg_host_targets(name, 1) ? name[0] : "cpu");
}

// The triple of all variants. NULL with a diagnostic.
static const char *check(Ctx *cx, const CgProgram *progs, uint32_t n) {
  const Target *first = NULL;
  for (uint32_t i = 0; i < n; i++) {
    if (!check_limits(cx, &progs[i])) return NULL;
    for (uint32_t k = 0; k < progs[i].nvariants; k++) {
      const Module *m = progs[i].variants[k].mod;
      if (!check_variant(cx, &progs[i], m)) return NULL;
      const Target *t = target_by_name(m->target);
      if (!first) first = t;
      if (strcmp(cg_triple(t), cg_triple(first))) {
        diag_add(cx, DIAG_cg_family, NOWHERE, first->name, t->name);
        return NULL;
      }
    }
  }
  return cg_triple(first ? first : host());
}

// ---------------------------------------------------------------- container
// The device code of all programs, in section .attn. NULL: it does not fit.
static LLVMValueRef container(Cg *g, const CgProgram *progs, uint32_t n) {
  Buf b = {.arena = &g->cx->scratch};
  if (!cg_container(g->cx, progs, n, &b)) return NULL;
  LLVMValueRef c = LLVMConstStringInContext2(g->lc, b.at, b.n, 1);
  LLVMValueRef v = LLVMAddGlobal(g->mod, cg_of(c), "attn.container");
  LLVMSetInitializer(v, c);
  LLVMSetGlobalConstant(v, 1);
  LLVMSetLinkage(v, LLVMInternalLinkage);
  LLVMSetAlignment(v, 16);
  LLVMSetSection(v, ".attn");
  return v;
}

// ---------------------------------------------------------------- output
static bool verify(Cg *g) {
  char *message = NULL;
  bool bad = LLVMVerifyModule(g->mod, LLVMReturnStatusAction, &message);
  if (bad) cg_fail(g->cx, "invalid LLVM IR", message);
  else LLVMDisposeMessage(message);
  return !bad;
}

static bool optimize(Cg *g, LLVMTargetMachineRef tm) {
  LLVMPassBuilderOptionsRef o = LLVMCreatePassBuilderOptions();
  LLVMErrorRef e = LLVMRunPasses(g->mod, pipeline, tm, o);
  LLVMDisposePassBuilderOptions(o);
  if (!e) return true;
  char *message = LLVMGetErrorMessage(e);
  diag_add(g->cx, DIAG_cg_failed, NOWHERE, "passes", message);
  LLVMDisposeErrorMessage(message);
  return false;
}

static bool write(Cg *g, LLVMTargetMachineRef tm, CgEmit what, Buf *out) {
  if (what == CG_LLVM_RAW || what == CG_LLVM) {
    char *s = LLVMPrintModuleToString(g->mod);
    buf_str(out, s);
    LLVMDisposeMessage(s);
    return true;
  }
  char *message = NULL;
  LLVMMemoryBufferRef m = NULL;
  LLVMCodeGenFileType t = what == CG_ASM ? LLVMAssemblyFile : LLVMObjectFile;
  if (LLVMTargetMachineEmitToMemoryBuffer(tm, g->mod, t, &message, &m)) {
    cg_fail(g->cx, "machine code", message);
    return false;
  }
  buf_add(out, LLVMGetBufferStart(m), LLVMGetBufferSize(m));
  LLVMDisposeMemoryBuffer(m);
  return true;
}

static void layout(Cg *g, LLVMTargetMachineRef tm, const char *triple) {
  LLVMTargetDataRef td = LLVMCreateTargetDataLayout(tm);
  LLVMSetModuleDataLayout(g->mod, td);
  LLVMDisposeTargetData(td);
  LLVMSetTarget(g->mod, triple);
}

static bool emit(Cg *g, LLVMTargetMachineRef tm, const CgProgram *progs,
                 uint32_t n, CgEmit what, Buf *out) {
  LLVMValueRef box = n ? container(g, progs, n) : NULL;
  if (n && !box) return false;
  for (uint32_t i = 0; i < n; i++) cg_program(g, &progs[i], box);
  if (g->failed || !verify(g)) return false;
  if (what != CG_LLVM_RAW && !optimize(g, tm)) return false;
  return write(g, tm, what, out) && !g->failed;
}

bool cg_compile(Ctx *cx, const CgProgram *progs, uint32_t n, CgEmit what,
                Buf *out) {
  const char *triple = check(cx, progs, n);
  LLVMTargetMachineRef tm = triple ? cg_machine(cx, triple) : NULL;
  if (!tm) return false;
  ArenaMark mark = arena_mark(&cx->scratch);
  Cg g = {.cx = cx, .lc = LLVMContextCreate()};
  LLVMContextSetDiscardValueNames(g.lc, 0);
  cg_catch(&g);
  g.mod = LLVMModuleCreateWithNameInContext("attn", g.lc);
  g.b = LLVMCreateBuilderInContext(g.lc);
  layout(&g, tm, triple);
  bool ok = emit(&g, tm, progs, n, what, out);
  LLVMDisposeBuilder(g.b);
  LLVMDisposeModule(g.mod);
  LLVMContextDispose(g.lc);
  LLVMDisposeTargetMachine(tm);
  if (out->arena != &cx->scratch) arena_reset(&cx->scratch, mark);
  return ok;
}
