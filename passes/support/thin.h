// Slices along columns that threads hold again and again, as rows of a tile of
// which each thread has as few as may be.
#ifndef ATTNC_PASSES_SUPPORT_THIN_H
#define ATTNC_PASSES_SUPPORT_THIN_H

#include "ir/ir.h"

// The type of a slice along rows with t's elements, if a thread of that many
// then has at most half of t's registers.
bool thin_type(const Type *t, uint32_t threads, Type *out);
// An op of that type with these operands: what columns are coordinates of are
// rows.
Value thin_op(Builder *b, const Op *op, const Value *args, Type t);

#endif
