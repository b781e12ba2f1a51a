// Ranges of values, from their ops alone: sigmoid(x) is in [0, 1] whatever x
// is. NaN is not excluded; bools are 0 and 1.
#ifndef ATTNC_PASSES_SUPPORT_RANGE_H
#define ATTNC_PASSES_SUPPORT_RANGE_H

#include "ir/ir.h"

typedef struct Range {
  double lo, hi;
} Range;

typedef struct Ranges {
  const Func *f;
  Arena *arena;
  Map index;  // Value -> entry in all
  Vec(Range) all;
} Ranges;

void range_init(Ranges *r, const Func *f, Arena *a);
Range range_of(Ranges *r, Value v);
Range range_dtype(DType t);  // of every number of a type

#endif
