// What copies of a loop's next step have in common: pass prefetch loads it into
// registers, pass lds_dma into shared memory.
#ifndef ATTNC_PASSES_GPU_PREFETCH_H
#define ATTNC_PASSES_GPU_PREFETCH_H

#include "passes/pass.h"

// Is v made of the loop's coordinate and of what is outside?
bool prefetch_follows(const Func *f, const Op *loop, Value v);
// A load in the loop's body that may be done a step ahead: of what the program
// only reads, used once, at indices that follow the loop's coordinate.
bool prefetch_is_tile(const Func *f, const Op *loop, const Op *load);
// v as it is for the coordinate that `m` has.
Value prefetch_copy(Builder *b, const Op *loop, Value v, ValueMap *m);
// lo, or of a loop that runs backwards the last of lo, lo + s, .. below hi.
Value prefetch_first(Builder *b, const Op *loop);
Value prefetch_next(Builder *b, const Op *loop, Value at);

#endif
