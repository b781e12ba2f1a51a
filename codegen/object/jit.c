// Loads an object of cg_compile into this process through LLVM's ORC: the very
// bytes that a linker would get, so no linker is needed. The library calls of
// an object are resolved to this process's libattn.
#include "codegen/cg.h"
#include "codegen/codegen.h"

#include <llvm-c/LLJIT.h>
#include <stdlib.h>
#include <string.h>

struct CgJit {
  Ctx *cx;
  LLVMOrcLLJITRef jit;
};

static bool failed(Ctx *cx, LLVMErrorRef e) {
  if (!e) return false;
  char *message = LLVMGetErrorMessage(e);
  diag_add(cx, DIAG_cg_failed, NOWHERE, "loading", message);
  LLVMDisposeErrorMessage(message);
  return true;
}

typedef struct Known {
  const char *name;
  uint64_t at;
} Known;

#define KNOWN(f) {#f, (uint64_t)(uintptr_t)(f)}

static bool define(CgJit *j, LLVMOrcJITDylibRef lib) {
  const Known known[] = {
      KNOWN(attn_call),    KNOWN(attn_args_init), KNOWN(attn_args_workspace),
      KNOWN(attn_tvm_ffi), KNOWN(memcpy),         KNOWN(memset)};
  enum { N = sizeof known / sizeof *known };
  LLVMOrcCSymbolMapPair pairs[N];
  for (int i = 0; i < N; i++)
    pairs[i] = (LLVMOrcCSymbolMapPair){
        LLVMOrcLLJITMangleAndIntern(j->jit, known[i].name),
        {known[i].at,
         {LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable,
          0}}};
  return !failed(j->cx,
                 LLVMOrcJITDylibDefine(lib, LLVMOrcAbsoluteSymbols(pairs, N)));
}

static bool load(CgJit *j, const void *object, size_t n) {
  LLVMOrcJITDylibRef lib = LLVMOrcLLJITGetMainJITDylib(j->jit);
  LLVMMemoryBufferRef m =
      LLVMCreateMemoryBufferWithMemoryRangeCopy(object, n, "attn");
  return define(j, lib) &&
         !failed(j->cx, LLVMOrcLLJITAddObjectFile(j->jit, lib, m));
}

CgJit *cg_jit_load(Ctx *cx, const void *object, size_t n) {
  // Registers the targets if nobody has.
  LLVMTargetMachineRef tm = cg_machine(cx, cg_triple(target_by_name("cpu")));
  if (!tm) return NULL;
  LLVMDisposeTargetMachine(tm);
  CgJit *j = calloc(1, sizeof *j);
  if (!j) return NULL;
  j->cx = cx;
  if (!failed(cx, LLVMOrcCreateLLJIT(&j->jit, NULL)) && load(j, object, n))
    return j;
  cg_jit_drop(j);
  return NULL;
}

const attn_program *cg_jit_program(CgJit *j, const char *prefix,
                                   const char *name) {
  LLVMOrcExecutorAddress at = 0;
  const char *symbol =
      arena_printf(&j->cx->session, "%s_%s_program", prefix, name);
  if (failed(j->cx, LLVMOrcLLJITLookup(j->jit, &at, symbol))) return NULL;
  return (const attn_program *)(uintptr_t)at;
}

void cg_jit_drop(CgJit *j) {
  if (!j) return;
  if (j->jit) failed(j->cx, LLVMOrcDisposeLLJIT(j->jit));
  free(j);
}

uint32_t cg_host_targets(const char **names, uint32_t max) {
  uint32_t n, found = 0;
  const Target *t = target_list(&n);
  int isa = attn_cpu_isa();
  for (uint32_t i = n; i-- > 0;)
    if (t[i].kind == TARGET_CPU && (int)cg_isa(&t[i]) >> 8 == isa >> 8 &&
        (int)cg_isa(&t[i]) <= isa && found < max)
      names[found++] = t[i].name;
  return found;
}
