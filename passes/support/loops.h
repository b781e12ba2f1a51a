// Loops of GPU programs at level frag.
#ifndef ATTNC_PASSES_SUPPORT_LOOPS_H
#define ATTNC_PASSES_SUPPORT_LOOPS_H

#include "ir/ir.h"

// Is the op an sfill, or has one in its regions?
bool loop_has_fill(const Op *op);
// The branch of a loop over chunks: a whole chunk, or its steps one by one;
// NULL if there is none.
Op *loop_chunk(const Op *loop);

#endif
