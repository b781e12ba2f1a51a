// The table of builtin functions, for checker, lowering, oracle, completion.
#ifndef ATTNC_FRONTEND_BUILTINS_H
#define ATTNC_FRONTEND_BUILTINS_H

#include "ir/ir.h"

typedef enum BuiltinId {  // Sym.builtin
#define BUILTIN(name, kind, lo, hi, sig, doc) BI_##name,
#include "frontend/builtins.def"
  BI_COUNT
} BuiltinId;

typedef enum BuiltinKind {
  BK_MATH,
  BK_NUM,
  BK_SELECT,
  BK_STOP,
  BK_RANDOM,
  BK_DOT,
  BK_OUTER,
  BK_VEC,
  BK_CONCAT,
  BK_REDUCE,
  BK_SCAN,
  BK_TOPK,
  BK_GEN,
  BK_CHECK,
} BuiltinKind;

typedef struct Builtin {
  const char *name;
  BuiltinKind kind;
  uint8_t min, max;       // arguments; max 255: any number
  const char *sig, *doc;  // for editors
} Builtin;

extern const Builtin fe_builtins[BI_COUNT];

// The op of a FUNCTION, `abs` or `stop_grad`; OP_COUNT: it is no one op.
OpCode fe_builtin_op(int id);

#endif
