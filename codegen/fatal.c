// What LLVM has to say: errors of a context become diagnostics. LLVM calls the
// fatal error handler and then ends the process; only a main function may ask
// for it.
#include "codegen/cg.h"
#include "codegen/codegen.h"

#include <llvm-c/ErrorHandling.h>

void cg_on_fatal(void (*fn)(const char *reason)) {
  LLVMResetFatalErrorHandler();
  if (fn) LLVMInstallFatalErrorHandler(fn);
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
