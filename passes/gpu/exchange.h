// What groups of one task tell each other (ops exchange, gjoin).
#ifndef ATTNC_PASSES_GPU_EXCHANGE_H
#define ATTNC_PASSES_GPU_EXCHANGE_H

#include "ir/ir.h"

bool gpu_exchanges(const Region *r);
// Gives those in the roles memory and barriers.
void gpu_lower_exchanges(Func *f, Op *roles);

#endif
