// Products of 8-bit floats that matrix units of sm_90a multiply as they are.
#ifndef ATTNC_PASSES_SUPPORT_BYTES_H
#define ATTNC_PASSES_SUPPORT_BYTES_H

#include "ir/ir.h"
#include "ir/target.h"

// Is dot a product of two 8-bit tensors, by columns of both, whose rows no
// other product reads with more bits? Levels attn to tile. gpu NULL: there is
// no such.
bool bytes_multiply(const Func *f, const Op *dot, const GpuFacts *gpu);
// Bytes that an element of that operand has where it is multiplied: those of
// its parts of 16 bits (passes/gpu/dot.c), or its one.
int64_t bytes_of_operand(const Func *f, const Op *dot, uint32_t side,
                         const GpuFacts *gpu);

#endif
