// A module as bytes: LLVM's text, or what a target machine makes of it.
#include "codegen/cg.h"

#include <string.h>

// LLVM answers NULL where memory ran out.
static void take(Cg *g, const char *at, size_t n, Buf *out) {
  if (!at) ctx_no_memory(g->cx);
  buf_add(out, at, n);
}

void cg_write_text(Cg *g, Buf *out) {
  char *s = LLVMPrintModuleToString(g->mod);
  take(g, s, s ? strlen(s) : 0, out);
  LLVMDisposeMessage(s);
}

bool cg_write_code(Cg *g, LLVMTargetMachineRef tm, LLVMCodeGenFileType type,
                   Buf *out) {
  char *message = NULL;
  LLVMMemoryBufferRef m = NULL;
  if (LLVMTargetMachineEmitToMemoryBuffer(tm, g->mod, type, &message, &m)) {
    cg_fail(g->cx, "machine code", message);
    return false;
  }
  take(g, m ? LLVMGetBufferStart(m) : NULL, m ? LLVMGetBufferSize(m) : 0, out);
  LLVMDisposeMemoryBuffer(m);
  return true;
}
