// Products with a row of a table for each difference of a row and a key.
#ifndef ATTNC_PASSES_SUPPORT_BAND_H
#define ATTNC_PASSES_SUPPORT_BAND_H

#include "ir/ir.h"

// dot(x, T[.., i, .., d]) over d, where i is a number of the difference of two
// coordinates, and x varies with one of them: of a tile of n rows and m keys
// all i are n + m - 1 neighbours.
typedef struct Band {
  uint32_t table;        // operand of the product
  uint32_t pos;          // operand of the load: the index
  uint32_t same, other;  // axes: that x has too, that it has not
  bool back;             // the index falls with `other`
} Band;

// At levels attn, stream, tile.
bool band_of(const Func *f, const Op *dot, Band *b);

#endif
