// Rows of builtins.def.
#include "frontend/builtins.h"

const Builtin fe_builtins[BI_COUNT] = {
#define BUILTIN(name, kind, lo, hi, sig, doc) \
  {#name, BK_##kind, lo, hi, sig, doc},
#include "frontend/builtins.def"
};

OpCode fe_builtin_op(int id) {
  switch (id) {
#define FUNCTION(name, op, value, slope, sig, doc) \
  case BI_##name: return OP_##op;
#include "frontend/builtins.def"
  case BI_abs: return OP_ABS;
  case BI_stop_grad: return OP_STOP_GRAD;
  default: return OP_COUNT;
  }
}
