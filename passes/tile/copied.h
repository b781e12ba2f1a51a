// Which operands of products are copied as they lie in memory.
#ifndef ATTNC_PASSES_TILE_COPIED_H
#define ATTNC_PASSES_TILE_COPIED_H

#include "ir/ir.h"

// Is idx a coordinate of one axis plus scalars?
bool tile_steps_by_one(const Func *f, Value idx);
int64_t tile_common(int64_t a, int64_t b);
// The largest size that divides all pages an index of keys is made of, 0: none.
int64_t tile_page_of(const Func *f, Value idx);
// Is what is left of a division a part of idx, not all of it?
bool tile_has_slot(const Func *f, Value idx, bool part);

// Does memory tell the load's rows of keys one by one, for all of that lane? In
// pages only where these are no boxes.
bool tile_told_keys(const Func *f, const Op *op, uint32_t lane, bool boxes);

// What the copy engine takes: keys by such an index.
typedef struct Copied {
  const Func *f;
  bool (*copied)(void *data, Value idx);
  void *data;
} Copied;

// Bytes of a key that v is computed of, element by element; 0: not of copies.
int64_t tile_made_of(const Copied *c, Value v);

#endif
