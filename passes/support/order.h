// Putting a region in order again: for passes that add ops at the end, or
// whose new values have other axes than those they replace.
#ifndef ATTNC_PASSES_SUPPORT_ORDER_H
#define ATTNC_PASSES_SUPPORT_ORDER_H

#include "ir/ir.h"

// Sorts the ops of r; ops that are in order already keep their order.
void order_region(Func *f, Region *r, Arena *a);
// Infers types again, in order; ops whose type changes are replaced.
void order_infer(Func *f, Region *r, Arena *a);

#endif
