// What is changed of a shared tile where it lies: `sfill` with attr flip, its
// sign; with attr clean, rows that are zeros.
#ifndef ATTNC_PASSES_SUPPORT_FILL_H
#define ATTNC_PASSES_SUPPORT_FILL_H

#include "ir/target.h"

// Operands of an sfill that say what is copied.
uint32_t fill_args(const Op *op);
// Attributes of a copy that say how: tile, pieces. Returns their number.
enum { FILL_ATTRS = 2 };
uint32_t fill_attrs(const Op *op, IrAttr *out);
// Is each row where slices of indices say?
bool fill_told(const Func *f, const Op *op);
// Are 8-bit floats of the tensor 16-bit ones of the tile?
bool fill_wide(const Func *f, const Op *op);
// Is it changed when it is there? By that operand, or 0.
bool fill_mended(const Op *op);
Value fill_by(const Op *op);
// Is nothing changed, whatever `by` says otherwise?
bool fill_stays(const Func *f, const Op *op, Value by);

// Who waits for the tile: one group, or several, of which the first changes it.
typedef struct FillGroups {
  Value group;      // the executing one of several, or 0
  int64_t threads;  // of all
  bool proxies;     // products read it through another proxy
} FillGroups;

// Changes a tile that all have waited for, if `by` says so: a branch that is
// the same for all.
void fill_mend(Builder *b, const Op *fill, Value tile, Value by,
               const FillGroups *all);

#endif
