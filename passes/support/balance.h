// What a step waits for: products of matrices, special functions, arithmetic,
// memory. Counts of what a multiprocessor does for the tiles of a step, and the
// clocks that each of its units takes for them.
#ifndef ATTNC_PASSES_SUPPORT_BALANCE_H
#define ATTNC_PASSES_SUPPORT_BALANCE_H

#include "ir/target.h"

typedef enum BalanceUnit {
  UNIT_PRODUCTS,    // matrix units
  UNIT_FUNCTIONS,   // special functions
  UNIT_ARITHMETIC,  // other elementwise ops
  UNIT_MEMORY,      // of the device, a multiprocessor's share
  UNIT_COUNT,
} BalanceUnit;

// In flops, elements, elements, bytes.
typedef struct Balance {
  uint64_t of[UNIT_COUNT];
} Balance;

// Special functions that an element of op takes; 0: none.
uint32_t balance_functions(OpCode code);
// Instructions of a thread for an element of op, whatever unit has them.
uint32_t balance_instrs(OpCode code);

// Adds what op does for whole tiles, level mach, without its regions.
void balance_add(Balance *b, const Func *f, const Op *op);
// What the ops of r do, without theirs.
Balance balance_of(const Func *f, const Region *r);
// A pair of a row and a key that multiplies vectors of so many elements and has
// one exponential.
Balance balance_pair(int64_t elements);

// Instructions of a thread for the whole tiles of r, which a group shares.
uint64_t balance_code(const Func *f, const Region *r);
// Instructions of a thread for all of r and of the regions in it, products and
// loads too, level tile or frag: how long its text is, roughly.
uint64_t balance_text(const Func *f, const Region *r);
// The same of what makes tiles of t's rows and columns, without products.
uint64_t balance_pairs(const Func *f, const Region *r, const Type *t);

// Clocks of a multiprocessor of that kind.
double balance_clocks(const Balance *b, const GpuFacts *gpu, BalanceUnit unit);
// Seconds of the whole device, one unit after the other.
double balance_seconds(const Balance *b, const GpuFacts *gpu);
// The unit that takes most.
BalanceUnit balance_bound(const Balance *b, const GpuFacts *gpu);
// Do products take at least `times` the clocks of functions?
bool balance_products(const Balance *b, const GpuFacts *gpu, uint32_t times);

#endif
