// Rows of builtins.def.
#include "frontend/builtins.h"

const Builtin builtins[BI_COUNT] = {
#define BUILTIN(name, kind, lo, hi, sig, doc) \
  {#name, BK_##kind, lo, hi, sig, doc},
#include "frontend/builtins.def"
};
