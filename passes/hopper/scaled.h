// Sums that a factor of each row corrects, which is mostly 1.
#ifndef ATTNC_PASSES_HOPPER_SCALED_H
#define ATTNC_PASSES_HOPPER_SCALED_H

#include "ir/ir.h"

// The condition under which factor v, bcast(select(%c, .., 1)), is not 1; 0: it
// has another form.
Value hop_unless_one(const Func *f, Value v);
// v * x, but not by warps none of whose rows has `some`.
Value hop_scaled(Builder *b, Value v, Value x, Value some);

#endif
