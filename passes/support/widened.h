// Operands of products that are 8-bit floats of memory times a scale.
#ifndef ATTNC_PASSES_SUPPORT_WIDENED_H
#define ATTNC_PASSES_SUPPORT_WIDENED_H

#include "ir/ir.h"

typedef struct Widened {
  const Op *load;   // of the 8-bit floats
  const Op *scale;  // of the scales, or NULL: they are what they are
  int64_t block;    // so many of a row have one scale, 0: all of it
  Value mask;       // what is hidden is 0, or 0: all is seen
} Widened;

// Is v such, in 16 bits? Levels stream and tile.
bool widened_of(const Func *f, Value v, Widened *w);
// The load of what op has: itself, or what it widens; or NULL.
const Op *widened_load(const Func *f, const Op *op);
// Does a product multiply rows of 8 bits along that axis of keys as they are?
// Warps widen them then, where rows are few.
bool widened_keys(const Func *f, uint32_t axis);

#endif
