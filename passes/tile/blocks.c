// Blocks of an axis of which each is in one tile (part of the pass `tile`).
//
//   scan(%x) {axis = k, block = 64}           a sum within a block
//   store(%T, %sum, ..) {axis = k, block = 64}  one for each block of keys
//
// A step has one block of keys, a task whole blocks of rows: none has a sum of
// another tile. Tests: test/passes/tile/fronts.tir.
#include "passes/tile/loop.h"

int64_t tile_blocks_of(const Op *op, int lane) {
  bool keys = ir_attr(op, AT_BLOCK) && ir_attr_i(op, AT_AXIS, -1) != lane;
  return keys ? ir_attr_i(op, AT_BLOCK, 0) : 0;
}

void tile_note_block(const Op *op, int lane, bool *keys, int64_t *down) {
  *keys |= tile_blocks_of(op, lane) != 0;
  *down += op->code == OP_SCAN && ir_attr(op, AT_BLOCK) &&
           ir_attr_i(op, AT_AXIS, -1) == lane;
}

typedef struct Blocks {
  int lane;
  int64_t rows, keys;
} Blocks;

static void note(void *data, Op *op) {
  Blocks *s = data;
  if (!ir_attr(op, AT_BLOCK)) return;
  int64_t keys = tile_blocks_of(op, s->lane);
  if (keys) s->keys = keys;
  else s->rows = ir_attr_i(op, AT_BLOCK, 0);
}

void tile_whole_blocks(const Func *f, TilePlan *p) {
  Blocks s = {.lane = p->lane};
  ir_walk(f->body, note, &s);
  if (s.keys) p->tile_k = s.keys;
  if (s.rows && p->tile_q % s.rows) p->tile_q = s.rows;
}

bool tile_end_block(const Tiler *t, Builder *b, const Op *op, ValueMap *m) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  if (!ir_attr(op, AT_BLOCK)) return true;
  if ((int)axis != t->plan.lane && t->from->axes.at[axis].role == AX_PAR) {
    diag_add(t->cx, DIAG_pass_unsupported, op->span,
             "a sum in blocks of an axis that has no tile");
    return false;
  }
  Dim extent = t->from->axes.at[axis].extent;
  bool rows = (int)axis == t->plan.lane,
       suffix = ir_attr_i(op, AT_DIR, DIR_PREFIX) == DIR_SUFFIX;
  int64_t whole = dim_divisor(&t->to->mod->dims, extent) % t->plan.tile_q;
  if (!rows || !suffix || !whole) return true;
  Value in = ir_2(b, OP_LT, t->coord[axis], ir_dim(b, extent));
  vmap_put(m, op->args[0], tile_keep_if(b, in, vmap_get(m, op->args[0]), 0));
  return true;
}
