// Outputs of a program that have other parallel axes than the rest: each group
// of outputs with the same axes is a phase of its own.
#ifndef ATTNC_PASSES_SUPPORT_OUTPUTS_H
#define ATTNC_PASSES_SUPPORT_OUTPUTS_H

#include "ir/ir.h"

// Splits f, a program of level attn without regions. Phases go in front of f,
// and what takes f's place, in the module's list, has the group with the most
// axes. A row value that sums or maxima over keys make is stored by the phase
// whose axes it has, for those with more. Returns the number of phases in
// front, 0: f stays as it is.
uint32_t outputs_split(Ctx *cx, Func *f);

#endif
