// Units and the version.
#include "tools/driver/driver.h"

#include <llvm-c/Core.h>

Unit *drv_unit(Ctx *cx, Source *src) {
  Unit *u = fe_parse(cx, src);
  // A tree with syntax errors would only report what follows from them.
  if (!u->syntax_ok) return NULL;
  return fe_check(cx, u) ? u : NULL;
}

const char *drv_version(void) {
  return DRV_VERSION;
}

void drv_print_version(FILE *f) {
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  fprintf(f, "attnc %s (LLVM %u.%u.%u)\n", DRV_VERSION, major, minor, patch);
}
