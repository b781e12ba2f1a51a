// Rebuilding of function bodies, for passes that replace values by values with
// other axes: each op is created again, in order, from the new operands, and
// its type is inferred again. And what passes that make a new body share.
#ifndef ATTNC_PASSES_SUPPORT_REBUILD_H
#define ATTNC_PASSES_SUPPORT_REBUILD_H

#include "ir/ir.h"

typedef struct Rebuild Rebuild;
// Maps op's results with rebuild_put and returns true, or returns false: op is
// created again as it is.
typedef bool RebuildFn(Rebuild *r, const Op *op);

struct Rebuild {
  Func *f;
  Builder b;     // where new ops go
  ValueMap map;  // old values -> new values
  RebuildFn *visit;
  void *data;
};

void rebuild_func(Func *f, RebuildFn *visit, void *data);
// The new values of op's operands, in the module's arena.
Value *rebuild_args(Rebuild *r, const Op *op);
// The ops of `from` again, where the builder is; its parameters are mapped.
void rebuild_ops(Rebuild *r, const Region *from);
void rebuild_put(Rebuild *r, Value from, Value to);
// A function without a body that has f's name, axes, grid and parameters; it
// is not in m's list: the caller puts it where f stood.
Func *rebuild_signature(Module *m, const Func *f);
// The same without axes and grid.
Func *rebuild_params(Module *m, const Func *f);
// At most 64 axes, of which one is tiled; else a diagnostic about `who`.
bool rebuild_one_tiled(Ctx *cx, const Func *f, const char *who);
// Drops the last axes as long as nothing varies with them.
void rebuild_trim(Func *f);

#endif
