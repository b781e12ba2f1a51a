// The sign of a shared tile: `sfill` with attr flip.
#ifndef ATTNC_PASSES_SUPPORT_FILL_H
#define ATTNC_PASSES_SUPPORT_FILL_H

#include "ir/target.h"

// Operands of an sfill that say what is copied: all but the sign.
uint32_t fill_args(const Op *op);
// Attributes of a copy that say how: tile, pieces. Returns their number.
enum { FILL_ATTRS = 2 };
uint32_t fill_attrs(const Op *op, IrAttr *out);
// The sign, or 0.
Value fill_sign(const Op *op);
// Changes the sign of a tile that this group has waited for, if `sign`:
// a branch that is the same for the group.
void fill_flip(Builder *b, const Target *t, Value tile, Value sign);

#endif
