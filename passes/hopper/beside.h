// Products of what groups put in shared memory together and of the tiles of all
// groups' rows, added to memory (pipeline_loop.c, step_halves.c).
#ifndef ATTNC_PASSES_HOPPER_BESIDE_H
#define ATTNC_PASSES_HOPPER_BESIDE_H

#include "passes/hopper/rings.h"

// Are the tiles that mma, of what a group puts, multiplies those of all groups'
// rows, one below the other?
bool hop_beside_of_groups(const Rings *w, const Op *mma);
// Those of all groups.
Value hop_beside_all(const Rings *w, Builder *b, const Op *mma);
// What all groups put.
Type hop_beside_put(const Rings *w, const Op *mma);
// words, the group's part of it; a step later (visit 2) of which others read
// all.
Value hop_beside_gathered(Builder *b, Type all, Value words, int64_t visit);

#endif
