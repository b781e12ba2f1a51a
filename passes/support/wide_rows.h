// Rows of 8-bit floats that indices tell, as 16-bit ones of a shared tile.
#ifndef ATTNC_PASSES_SUPPORT_WIDE_ROWS_H
#define ATTNC_PASSES_SUPPORT_WIDE_ROWS_H

#include "ir/target.h"

enum { MAX_WIDE_PANELS = 32 };

typedef struct WideRows {
  Builder *b;
  const Op *fill;
  const Value *args;  // the tensor, its indices, that of scales
  uint32_t col, n;    // the columns' index; panels
  int64_t block;
  Type tile;                                         // of a panel, in 8 bits
  Value x[MAX_WIDE_PANELS], scale[MAX_WIDE_PANELS];  // asked for
} WideRows;

// Of a fill (fill_wide), whose operands are args here.
WideRows wide_rows(Builder *b, const Op *fill, const Value *args);
// Asks memory for panel i, if there is one, and for its scales, if there are
// none.
void wide_rows_ask(WideRows *x, uint32_t i);
// Puts it into the tile: of that panel alone, or of all.
void wide_rows_put(const WideRows *x, uint32_t i, Value tile);

#endif
