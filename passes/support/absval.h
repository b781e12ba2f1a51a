// What a value can be: an interval, and whether infinities and NaN are
// possible. Loads and scalars are taken to be finite, sums not to overflow.
#ifndef ATTNC_PASSES_SUPPORT_ABSVAL_H
#define ATTNC_PASSES_SUPPORT_ABSVAL_H

#include "passes/support/range.h"

typedef struct Abs {
  double lo, hi;         // infinite bounds of a finite value are open
  bool ninf, pinf, nan;  // -inf, +inf, NaN possible
} Abs;

Abs absval_exactly(double v);
Abs absval_finite(Range r);
bool absval_is(Abs a, double v);  // exactly v
// The value of an elementwise op.
Abs absval_op(OpCode code, const Abs *a, uint32_t n);

typedef struct AbsEntry {
  Abs abs;
  bool replaced;  // the value is, or is made of values that are
} AbsEntry;

enum { ABS_ALL_AXES = MAX_AXES };  // AbsMap.axis: for all keys

// Values of IR, some of them replaced: what is found without them replaced,
// such as a range, says nothing of those that are made of them.
typedef struct AbsMap {
  const Func *f;
  Arena *arena;
  Ranges *ranges;
  uint32_t axis;  // of the keys whose values are replaced
  Map index;      // Value -> entry in all
  Vec(AbsEntry) all;
} AbsMap;

void absval_put(AbsMap *m, Value v, Abs a);
Abs absval_value(AbsMap *m, Value v);

#endif
