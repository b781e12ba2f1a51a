// What groups of one task tell each other (op gjoin).
#ifndef ATTNC_PASSES_GPU_EXCHANGE_H
#define ATTNC_PASSES_GPU_EXCHANGE_H

#include "ir/ir.h"

bool exchange_some(const Region *r);
// Gives those in the roles memory and barriers.
void exchange_lower(Func *f, Op *roles);

#endif
