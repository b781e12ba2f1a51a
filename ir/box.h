// Rows of a box that are turns of a tensor's rows: attr tile of sfill, cp_async
// and tma_load is [row, col], or [row, col, turn, n], where row r of the tile
// is row r / n of the box and coordinate r % n along axis `turn`, which lies
// behind the rows and in front of the columns.
#ifndef ATTNC_IR_BOX_H
#define ATTNC_IR_BOX_H

#include "ir/ir.h"

enum { BOX_TURN = 2, BOX_TURNS, BOX_ATTRS };

// How many turns a row has: 1, it is one.
static inline uint32_t box_turns(const Op *op) {
  const IrAttr *at = ir_attr(op, AT_TILE);
  return at->n == BOX_ATTRS ? (uint32_t)at->list[BOX_TURNS] : 1;
}

#endif
