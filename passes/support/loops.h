// Loops of GPU programs at level frag.
#ifndef ATTNC_PASSES_SUPPORT_LOOPS_H
#define ATTNC_PASSES_SUPPORT_LOOPS_H

#include "ir/ir.h"

// Is the op an sfill, or has one in its regions?
bool loop_has_fill(const Op *op);
// The branch of a loop over chunks: a whole chunk, or its steps one by one;
// NULL if there is none.
Op *loop_chunk(const Op *loop);
// The loop again, in front of itself, with n more values that it carries, which
// are `start` at first. Its body is empty.
Op *loop_longer(Func *f, Op *old, const Value *start, uint32_t n);
// The body of `old` goes behind what `loop` has, and yields `next` too; `old`
// goes.
void loop_replace(Func *f, Op *old, Op *loop, const Value *next, uint32_t n);

#endif
