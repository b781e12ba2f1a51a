// The generators of test inputs: check's `input Q = normal(0, 1, seed = 1)`
// and `attnc run --random`.
#ifndef ATTNC_DRIVER_RUN_GEN_H
#define ATTNC_DRIVER_RUN_GEN_H

#include "ir/core/arena.h"
#include "ir/core/dtype.h"

typedef enum GenKind {
  GK_NORMAL,   // mean = 0, deviation = 1
  GK_UNIFORM,  // lo = 0, hi = 1, half open
  GK_RANDINT,  // lo, hi: integers in [lo, hi)
  GK_IOTA,     // start = 0, step = 1
  GK_CONST,    // value
  GK_LENGTHS,  // lo, hi: integers in [lo, hi], the first is hi
  GK_OFFSETS,  // lo, hi: sums of such lengths from 0; or total: ascending
               // from 0 to total, some may be equal
  GK_DOCS,     // mean: ascending document ids 0, 1, .. of that mean length
  GK_PERM,     // a permutation of 0 .. n-1
  GK_BROKEN,  // every: normal ones, of which about one in so many is NaN or inf
  GK_COUNT
} GenKind;

typedef struct Gen {
  GenKind kind;
  double arg[2];
  uint64_t seed;
} Gen;

bool gen_by_name(const char *name, uint32_t len, GenKind *kind);
const char *gen_name(GenKind kind);
int gen_min_args(GenKind kind);  // positional arguments
int gen_max_args(GenKind kind);
// The generator with its defaults (an argument without one is NaN) and seed 0.
Gen gen_default(GenKind kind);
// What is wrong with g for n elements, or NULL.
const char *gen_check(const Gen *g, int64_t n);
// Writes n elements of type t, each rounded once; gen_check must have passed.
// The stream is that of (g->seed, name).
void gen_fill(Arena *scratch, const Gen *g, const char *name, DType t,
              int64_t n, void *out);

#endif
