// Columns of a tensor that several boxes have in common, and vectors that are
// cut into parts.
#ifndef ATTNC_PASSES_SUPPORT_COLUMNS_H
#define ATTNC_PASSES_SUPPORT_COLUMNS_H

#include "ir/ir.h"

// The columns that a load reads along a vector axis: n from `at` on, and of
// the parts of a vector (passes/attn/split_vec.c) each `step` behind the one
// before.
typedef struct Columns {
  uint32_t pos;  // the operand that says so
  uint32_t vec;  // axis of the vector
  int part;      // axis of the parts, or -1
  int64_t at, step, n;
} Columns;

// Of a load, or of an operand that widens one (widened.h). False: it reads
// something else. Levels stream and tile.
bool columns_of(const Func *f, const Op *op, Columns *c);
// Columns of all parts.
int64_t columns_all(const Func *f, const Columns *c);
// A load in the same region of the same rows, of columns which have all of
// those; whole panels of a swizzled tile are in front of them. NULL: none.
const Op *columns_host(const Func *f, const Op *load, const Columns *c);
// The axis of a vector's parts of which each needs the same but its own columns
// of sums over keys; -1: there is none. Level stream.
int columns_part(const Func *f);
// Does memory tell each key's row of the load, or of one that is widened, the
// same for all of that lane? Whole lines of 128 bytes, of 16-bit numbers. Level
// stream.
bool columns_told(const Func *f, const Op *op, uint32_t lane);
// Are the operands of all products copied from memory, or made of scores, and
// keys hidden from all rows of that lane behind others, or told one by one?
// Level stream.
bool columns_suit(const Func *f, uint32_t lane);

#endif
