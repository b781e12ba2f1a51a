// From programs to bytes: LLVM modules, a short list of passes, LLVM's code
// generator.
//
// Text is one module. An object with several variants is made in parts, one
// for each variant and one for the rest, by as many threads as there are CPUs,
// each part in an LLVM context of its own; elf.c makes one object of them. The
// parts and their order depend on the programs only.
#include "codegen/cg.h"
#include "codegen/codegen.h"
#include "codegen/object/elf.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

// What mach leaves to do: repeated loads of arguments, address arithmetic,
// constants. Rotated loops let invariant loads and products leave them; that
// makes row loops a fifth shorter. Block loops need none of it. GVN, SROA and
// a second round change nothing.
static const char pipeline[] =
    "function(early-cse,loop-mssa(licm<no-allowspeculation>),simplifycfg)";

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

static bool write_out(Cg *g, LLVMTargetMachineRef tm, CgEmit what, Buf *out) {
  if (what == CG_LLVM_RAW || what == CG_LLVM) {
    cg_write_text(g, out);
    return true;
  }
  LLVMCodeGenFileType t = what == CG_ASM ? LLVMAssemblyFile : LLVMObjectFile;
  return cg_write_code(g, tm, t, out);
}

static void layout(Cg *g, LLVMTargetMachineRef tm, const char *triple) {
  LLVMTargetDataRef td = LLVMCreateTargetDataLayout(tm);
  LLVMSetModuleDataLayout(g->mod, td);
  LLVMDisposeTargetData(td);
  LLVMSetTarget(g->mod, triple);
}

// What one module is made of.
typedef struct Job {
  const CgProgram *progs;
  uint32_t n;
  CgEmit what;
  CgShare share;
  uint32_t prog, variant;  // CG_UNIT
  const char *triple;
} Job;

static bool emit(Cg *g, LLVMTargetMachineRef tm, const Job *j, Buf *out) {
  if (j->share == CG_UNIT) {
    cg_unit(g, &j->progs[j->prog], j->variant);
  } else {
    LLVMValueRef box = j->n ? container(g, j->progs, j->n) : NULL;
    if (j->n && !box) return false;
    for (uint32_t i = 0; i < j->n; i++) cg_program(g, &j->progs[i], box);
  }
  if (g->failed || !verify(g)) return false;
  if (j->what != CG_LLVM_RAW && !optimize(g, tm)) return false;
  return write_out(g, tm, j->what, out) && !g->failed;
}

static bool compile(Ctx *cx, const Job *j, Buf *out) {
  LLVMTargetMachineRef tm = cg_machine(cx, j->triple);
  if (!tm) return false;
  if (j->n) work_place(cx, j->progs[j->prog].at);
  work_say(cx, "machine code by LLVM");
  ArenaMark mark = arena_mark(&cx->scratch);
  Cg g = {.cx = cx, .share = j->share, .lc = LLVMContextCreate()};
  LLVMContextSetDiscardValueNames(g.lc, 0);
  cg_catch(&g);
  g.mod = LLVMModuleCreateWithNameInContext("attn", g.lc);
  g.b = LLVMCreateBuilderInContext(g.lc);
  layout(&g, tm, j->triple);
  bool ok = emit(&g, tm, j, out);
  cg_end(&g, tm);
  if (out->arena != &cx->scratch) arena_reset(&cx->scratch, mark);
  return ok;
}

// ---------------------------------------------------------------- parts
// jobs[0..n) are taken in order, by whoever is free.
typedef struct Crew {
  const Job *jobs;
  uint32_t n;
  atomic_uint next;
  Buf *parts;  // of each job; empty: it failed
} Crew;

typedef struct Worker {
  Crew *crew;
  Ctx cx;  // owns the bytes of its parts
  pthread_t thread;
  bool started;
  bool full;  // memory ran out
} Worker;

static void take_jobs(void *data) {
  Worker *w = data;
  Crew *c = w->crew;
  for (;;) {
    uint32_t i = atomic_fetch_add(&c->next, 1);
    if (i >= c->n) return;
    Buf b = {.arena = &w->cx.session};
    if (compile(&w->cx, &c->jobs[i], &b)) c->parts[i] = b;
  }
}

static void *work(void *data) {
  Worker *w = data;
  w->full = !ctx_try(&w->cx, take_jobs, w);
  work_rest(&w->cx);
  return NULL;
}

// Diagnostics are those of the first job that fails, made again in cx.
static bool gather(Ctx *cx, const Crew *c, Buf *out) {
  CgPart *parts = NEWN(&cx->scratch, CgPart, c->n);
  for (uint32_t i = 0; i < c->n; i++) {
    Buf again = {.arena = &cx->scratch};
    if (!c->parts[i].n && !compile(cx, &c->jobs[i], &again)) return false;
    const Buf *b = c->parts[i].n ? &c->parts[i] : &again;
    parts[i] = (CgPart){b->at, b->n};
  }
  cg_elf_merge(&cx->scratch, parts, c->n, NULL, out);
  return true;
}

static bool in_parts(Ctx *cx, const Job *jobs, uint32_t n, uint32_t threads,
                     Buf *out) {
  enum { MOST = 64 };
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  if (!threads) threads = cpus > 1 ? (uint32_t)cpus : 1;
  if (threads > n) threads = n;
  if (threads > MOST) threads = MOST;
  ArenaMark mark = arena_mark(&cx->scratch);
  Crew c = {.jobs = jobs, .n = n, .parts = NEWN(&cx->scratch, Buf, n)};
  Worker *w = NEWN(&cx->scratch, Worker, threads);
  work_rest(cx);
  for (uint32_t i = 0; i < threads; i++) {
    w[i].crew = &c;
    ctx_init_helper(&w[i].cx, cx);
    w[i].started = i && !pthread_create(&w[i].thread, NULL, work, &w[i]);
  }
  work(&w[0]);
  for (uint32_t i = 0; i < threads; i++)
    if (w[i].started) pthread_join(w[i].thread, NULL);
  bool full = false, ok;
  for (uint32_t i = 0; i < threads; i++) full |= w[i].full;
  ok = !full && gather(cx, &c, out);
  for (uint32_t i = 0; i < threads; i++) ctx_drop(&w[i].cx);
  if (full) ctx_no_memory(cx);
  if (out->arena != &cx->scratch) arena_reset(&cx->scratch, mark);
  return ok;
}

// ---------------------------------------------------------------- entry
bool cg_compile_on(Ctx *cx, uint32_t threads, const CgProgram *progs,
                   uint32_t n, CgEmit what, Buf *out) {
  Job whole = {.progs = progs,
               .n = n,
               .what = what,
               .triple = check(cx, progs, n)};
  uint32_t njobs = 1;
  if (!whole.triple) return false;
  for (uint32_t i = 0; i < n; i++) njobs += progs[i].nvariants;
  if (what != CG_OBJECT || njobs <= 2) return compile(cx, &whole, out);
  // Registers the targets: not while other threads look for one.
  LLVMTargetMachineRef tm = cg_machine(cx, whole.triple);
  if (!tm) return false;
  LLVMDisposeTargetMachine(tm);
  Job *jobs = NEWN(&cx->session, Job, njobs);
  whole.share = CG_SHELL;
  jobs[0] = whole;
  whole.share = CG_UNIT;
  for (uint32_t i = 0, k = 1; i < n; i++)
    for (uint32_t v = 0; v < progs[i].nvariants; v++, k++) {
      jobs[k] = whole;
      jobs[k].prog = i;
      jobs[k].variant = v;
    }
  return in_parts(cx, jobs, njobs, threads, out);
}

bool cg_compile(Ctx *cx, const CgProgram *progs, uint32_t n, CgEmit what,
                Buf *out) {
  return cg_compile_on(cx, 0, progs, n, what, out);
}
