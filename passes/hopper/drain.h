// Stores of fragments that TMA can do: through a shared tile, as a box.
#ifndef ATTNC_PASSES_HOPPER_DRAIN_H
#define ATTNC_PASSES_HOPPER_DRAIN_H

#include "ir/ir.h"

enum { MAX_ORIGIN = 8 };

// A gstore of a tile: operand row and operand col of its indices run along the
// rows and columns from the sums of scalars; the others are scalars.
typedef struct Drain {
  const Op *op;
  Type tile;          // shared tile of one group
  uint32_t row, col;  // axes of the tensor
  bool trans;         // rows of the tile are the tensor's columns
  uint32_t nrow, ncol;
  Value rows[MAX_ORIGIN], cols[MAX_ORIGIN];
} Drain;

// False if op is no such store.
bool hop_drain_of(const Func *f, const Op *op, Drain *out);

#endif
