// Which operands of products are copied as they lie in memory, and what others
// are computed of.
#include "passes/tile/copied.h"

#include "passes/support/columns.h"
#include "passes/support/lane.h"
#include "passes/support/widened.h"

bool tile_steps_by_one(const Func *f, Value idx) {
  const Op *op = ir_def(f, idx);
  if (!op || op->code == OP_INDEX) return true;
  if (op->code != OP_ADD && op->code != OP_SUB) return false;
  const Type *x = ir_type(f, op->args[0]), *y = ir_type(f, op->args[1]);
  bool keys_x = lane_has_key(f, x), keys_y = lane_has_key(f, y);
  if (keys_x && keys_y) return false;
  return !keys_y ? tile_steps_by_one(f, op->args[0])
                 : op->code == OP_ADD && tile_steps_by_one(f, op->args[1]);
}

int64_t tile_common(int64_t a, int64_t b) {
  while (a) {
    int64_t r = b % a;
    b = a;
    a = r;
  }
  return b;
}

int64_t tile_page_of(const Func *f, Value idx) {
  const Op *op = ir_def(f, idx);
  double page;
  int64_t all = 0;
  if (!op || !lane_has_key(f, ir_type(f, idx))) return 0;
  if ((op->code == OP_FLOORDIV || op->code == OP_MOD) &&
      ir_const_value(f, op->args[1], &page) && page >= 1)
    return (int64_t)page;
  for (uint32_t i = 0; i < op->nargs; i++)
    all = tile_common(all, tile_page_of(f, op->args[i]));
  return all;
}

bool tile_has_slot(const Func *f, Value idx, bool part) {
  const Op *op = ir_def(f, idx);
  bool any =
      op && part && op->code == OP_MOD && lane_has_key(f, ir_type(f, idx));
  for (uint32_t i = 0; op && i < op->nargs && !any; i++)
    any = op->code != OP_MOD && tile_has_slot(f, op->args[i], true);
  return any;
}

bool tile_told_keys(const Func *f, const Op *op, uint32_t lane, bool boxes) {
  const Op *load = widened_load(f, op);
  for (uint32_t i = 1; boxes && i < load->nargs; i++)
    if (tile_page_of(f, load->args[i])) return false;
  return columns_told(f, op, lane);
}

// Bytes of the load op, whose keys' indices are copied.
static int64_t loaded(const Copied *c, const Op *op) {
  const Type *t = ir_type(c->f, op->res[0]);
  for (uint32_t i = 1; i < op->nargs; i++)
    if (lane_has_key(c->f, ir_type(c->f, op->args[i])) &&
        !c->copied(c->data, op->args[i]))
      return 0;
  return lane_elements(c->f, t) * dtype_size(t->dtype);
}

int64_t tile_made_of(const Copied *c, Value v) {
  const Op *op = ir_def(c->f, v);
  int64_t sum = 0;
  if (!op || op->nregions || lane_elements(c->f, ir_type(c->f, v)) == 1)
    return 0;
  if (op->code == OP_LOAD) return loaded(c, op);
  for (uint32_t i = 0; i < op->nargs; i++) sum += tile_made_of(c, op->args[i]);
  return op_info(op->code)->flags & OPF_ELEM ? sum : 0;
}
