// Which power of two divides an integer: what makes neighbours share a block.
#ifndef ATTNC_IR_MULTIPLE_H
#define ATTNC_IR_MULTIPLE_H

#include "ir/ir.h"

enum { MULTIPLE_MOST = 64 };

// The largest power of two up to MULTIPLE_MOST that is known to divide v, a
// scalar, or a tile or vector of one number: levels tile to mach.
int64_t ir_multiple(const Func *f, Value v);

#endif
