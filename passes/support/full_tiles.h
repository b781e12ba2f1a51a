// The question whether a step of a key loop needs no mask.
#ifndef ATTNC_PASSES_SUPPORT_FULL_TILES_H
#define ATTNC_PASSES_SUPPORT_FULL_TILES_H

#include "passes/pass.h"

// In the body of a loop over %i: value = and(le(from, %i), lt(%i, to)), with
// from and to made outside of the loop.
typedef struct FullTiles {
  Value value, from, to;
} FullTiles;

// False if the loop does not ask.
bool full_tiles(const Func *f, const Op *loop, FullTiles *out);
// Has the body a branch on the question (pass mask_branch)?
bool full_tiles_branch(const Op *loop, Value full);
// Is t that of a tile, at whichever level?
bool full_tiles_is(const Type *t);
// Is the text of a step worth more than a branch in it? NVIDIA's code for
// tensors of any strides, which stands beside faster code or is slow already.
bool full_tiles_short(const PassOpt *opt);
// Does a step of sm_90a do so much for pairs that a mask is little of it?
bool full_tiles_long_pairs(const Func *f, const Region *step);

#endif
