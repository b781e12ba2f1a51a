// Philox4x32-10 as LLVM code (op `random`).
#ifndef ATTNC_CODEGEN_MATH_RANDOM_H
#define ATTNC_CODEGEN_MATH_RANDOM_H

#include "codegen/math/emit.h"

// A block: the low 32 bits of the op's operands a to e, and of n // 4. All
// have one type, i32 or i64, scalars or vectors.
typedef struct CgBlock {
  V key[2], at[4];
  // The same word, of which LLVM does not know how it was made: it would
  // compute several steps in 64 bits. NULL: not needed.
  V (*anew)(void *data, V word);
  void *data;
} CgBlock;

// The words of the block, of its operands' type; the upper half of an i64 may
// be anything.
void cg_random_words(Cg *g, const CgBlock *x, V words[4]);
// Word n % 4 of them.
V cg_random_pick(Cg *g, V n, const V words[4]);
// The top 24 bits of a word as a fraction of 1, f32.
V cg_random_fraction(Cg *g, V word);
// Words of neighbours, i32: lane l has word l % 4 of the block of quad + l / 4.
// All of x are i32 scalars, at[0] is the first quad.
V cg_random_row(Cg *g, const CgBlock *x, uint32_t lanes);

// The op on a CPU (codegen/cpu/random.c).
V cg_random(Cg *g, const Op *op);

#endif
