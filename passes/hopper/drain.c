// Stores of fragments that TMA can do.
#include "passes/hopper/drain.h"

#include "ir/layout.h"
#include "passes/gpu/gpu.h"

// v = coord + scalars, along axis `pos` of a tile.
static bool origin(const Func *f, Value v, uint32_t pos, Value *parts,
                   uint32_t *n, bool *coord) {
  const Op *op = ir_def(f, v);
  if (!op) return false;
  if (op->code == OP_COORD && (uint32_t)ir_attr_i(op, AT_POS, 0) == pos)
    return !*coord && (*coord = true);
  if (op->code == OP_SPLAT && *n < MAX_ORIGIN) {
    parts[(*n)++] = op->args[0];
    return true;
  }
  return op->code == OP_ADD && origin(f, op->args[0], pos, parts, n, coord) &&
         origin(f, op->args[1], pos, parts, n, coord);
}

bool hop_drain_of(const Func *f, const Op *op, Drain *out) {
  if (op->code != OP_GSTORE || ir_attr_i(op, AT_MASKED, 0)) return false;
  const Type *t = ir_type(f, op->args[1]), *to = ir_type(f, op->args[0]);
  if (t->kind != TK_FRAG || t->slice != SLICE_NONE || t->layout != LY_ACC)
    return false;
  if (dtype_size(t->dtype) != 2 || t->dtype != to->dtype || to->n > HW_MAP_AXES)
    return false;
  *out = (Drain){.op = op,
                 .tile = lower_smem_type(t->dtype, t->ext[0], t->ext[1])};
  bool row = false, col = false;
  for (uint32_t i = 0; i < to->n; i++) {
    Value v = op->args[2 + i];
    const Type *x = ir_type(f, v);
    if (x->kind != TK_FRAG) continue;
    if (x->slice == SLICE_ROW && !row) {
      out->row = i;
      if (!origin(f, v, AXIS_ROW, out->rows, &out->nrow, &row)) return false;
    } else if (x->slice == SLICE_COL && !col) {
      out->col = i;
      if (!origin(f, v, AXIS_COL, out->cols, &out->ncol, &col)) return false;
    } else {
      return false;
    }
  }
  // A map's innermost axis is contiguous, in most arrays the last one.
  out->trans = row && out->row + 1 == to->n;
  if (out->trans) out->tile = lower_smem_type(t->dtype, t->ext[1], t->ext[0]);
  return row && col && (out->trans || out->col + 1 == to->n) &&
         out->tile.layout != LY_ROW;
}
