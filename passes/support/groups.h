// Heads in groups that share keys, as programs write them: h // R.
#ifndef ATTNC_PASSES_SUPPORT_GROUPS_H
#define ATTNC_PASSES_SUPPORT_GROUPS_H

#include "ir/ir.h"
#include "passes/pass.h"

// Is v the index of a parallel axis divided by a size that dims give?
bool group_of(const Func *f, Value v, uint32_t *axis, Dim *size);
// The size of a group as a dim of at least 1; false: it is not one.
bool group_dim(const Func *f, Value v, Dim *out);
// Groups of that size among `extent`.
Dim group_count(DimTab *d, Dim extent, Dim size);
// Has a task few rows of its own? Targets without bodies for few rows: are they
// few mostly?
bool groups_few(const PassOpt *opt);

#endif
