// What LLVM has to say: errors of a context become diagnostics. LLVM calls the
// fatal error handler and then ends the process; only a main function may ask
// for it.
#include "codegen/cg.h"
#include "codegen/codegen.h"

#include <llvm-c/ErrorHandling.h>
#include <string.h>

void cg_on_fatal(void (*fn)(const char *reason)) {
  LLVMResetFatalErrorHandler();
  if (fn) LLVMInstallFatalErrorHandler(fn);
}

// The C interface has no hook for memory that runs out: these are taken by
// their names of C++, where they are there. What they are given must not
// return.
typedef void NewHandler(void);
typedef void BadAlloc(void *data, const char *reason, bool crash);
extern NewHandler *
set_new_handler(NewHandler *fn) __asm__("_ZSt15set_new_handlerPFvvE")
    __attribute__((weak));
extern void install_bad_alloc(BadAlloc *fn, void *data) __asm__(
    "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_")
    __attribute__((weak));

static void on_bad_alloc(void *fn, const char *reason, bool crash) {
  void (*no_memory)(void);
  (void)reason;
  (void)crash;
  memcpy(&no_memory, &fn, sizeof no_memory);
  no_memory();
}

void cg_on_no_memory(void (*fn)(void)) {
  void *data;
  memcpy(&data, &fn, sizeof data);
  if (set_new_handler) set_new_handler(fn);
  if (install_bad_alloc) install_bad_alloc(on_bad_alloc, data);
}

void cg_fail(Ctx *cx, const char *what, char *message) {
  diag_add(cx, DIAG_cg_failed, NOWHERE, what, message ? message : "failed");
  if (message) LLVMDisposeMessage(message);
}

static void on_diagnostic(LLVMDiagnosticInfoRef info, void *data) {
  Cg *g = data;
  if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
  g->failed = true;
  cg_fail(g->cx, "LLVM", LLVMGetDiagInfoDescription(info));
}

void cg_catch(Cg *g) {
  LLVMContextSetDiagnosticHandler(g->lc, on_diagnostic, g);
}
