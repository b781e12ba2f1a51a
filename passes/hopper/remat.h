// What passes that keep fewer registers share (passes/support/relief.h).
#ifndef ATTNC_PASSES_HOPPER_REMAT_H
#define ATTNC_PASSES_HOPPER_REMAT_H

#include "passes/support/relief.h"

// Coordinates of what is stored from op on are made remat, else they live
// through what is in front of it: of numbers made anew and, with `threads`,
// rows of the thread's number read again.
void hop_remat_stores(Func *f, Op *op, bool threads);

#endif
