// Rows of 8-bit floats that indices tell, as 16-bit ones of a shared tile,
// panel by panel.
//
//   %x = gload(%C, %i, add(%first, coord())) {aligned} : frag<64x64xf8e4m3,lin>
//   %s = gload(%S, %i, floordiv(%first, 128)) : frag<64xf32,lin.0:64>
//   sstore(%panel, cast(mul(cast(%x), bcast(%s))))
#include "passes/support/wide_rows.h"

#include "ir/layout.h"
#include "passes/support/fill.h"

static Value i32(Builder *b, int64_t v) {
  return ir_const_i(b, DT_I32, v);
}

static Value one(Builder *b, OpCode c, Value x, Type t) {
  return ir_op(b, c, &x, 1, NULL, 0, &t, 1, 0)->res[0];
}

static Value cast(Builder *b, DType to, Value x) {
  IrAttr at = attr_i(AT_TO, to);
  Type t = *ir_type(b->fn, x);
  t.dtype = to;
  return ir_op(b, OP_CAST, &x, 1, &at, 1, &t, 1, 0)->res[0];
}

static Value first_of(const WideRows *x, uint32_t i) {
  return ir_2(x->b, OP_ADD, x->args[x->col], i32(x->b, (int64_t)i * HW_PANEL));
}

static Value columns(const WideRows *x, uint32_t i) {
  Type t = x->tile;
  t.dtype = DT_I32;
  t = frag_slice(&t, true, false);
  IrAttr pos = attr_i(AT_POS, 1);
  Value at = ir_op(x->b, OP_COORD, NULL, 0, &pos, 1, &t, 1, 0)->res[0];
  return ir_2(x->b, OP_ADD, one(x->b, OP_SPLAT, first_of(x, i), t), at);
}

// Blocks are whole panels: the first panel of one asks for its scales.
static bool is_same_block(const WideRows *x, uint32_t i) {
  double first;
  if (!x->block) return i > 0;
  return i && (int64_t)i * HW_PANEL % x->block &&
         ir_const_value(x->b->fn, x->args[x->col], &first) &&
         (int64_t)first % x->block == 0;
}

static Value scales(const WideRows *x, uint32_t i) {
  Value args[MAX_AXES + 1];
  if (is_same_block(x, i)) return x->scale[i - 1];
  for (uint32_t k = 1; k < x->col; k++) args[k] = x->args[k];
  args[0] = x->args[x->col + 1];
  Value first = x->block ? first_of(x, i) : 0;
  if (first) args[x->col] = ir_2(x->b, OP_FLOORDIV, first, i32(x->b, x->block));
  Type t = x->tile;
  t.dtype = DT_F32;
  t = frag_slice(&t, false, false);
  return ir_op(x->b, OP_GLOAD, args, x->col + (x->block != 0), NULL, 0, &t, 1,
               0)
      ->res[0];
}

WideRows wide_rows(Builder *b, const Op *fill, const Value *args) {
  const Type *tile = ir_type(b->fn, fill->res[0]);
  DType t = ir_type(b->fn, args[0])->dtype;
  return (WideRows){.b = b,
                    .fill = fill,
                    .args = args,
                    .col = 1 + (uint32_t)ir_attr(fill, AT_TILE)->list[1],
                    .n = tile->ext[1] / HW_PANEL,
                    .block = ir_attr_i(fill, AT_BLOCK, 0),
                    .tile = type_frag(t, tile->ext[0], HW_PANEL, LY_LIN)};
}

void wide_rows_ask(WideRows *x, uint32_t i) {
  Value args[MAX_AXES + 1];
  if (i >= x->n) return;
  for (uint32_t k = 0; k < x->col; k++) args[k] = x->args[k];
  args[x->col] = columns(x, i);
  IrAttr aligned = attr_i(AT_ALIGNED, 1);
  x->x[i] = ir_op(x->b, OP_GLOAD, args, x->col + 1, &aligned, 1, &x->tile, 1, 0)
                ->res[0];
  bool scaled = fill_args(x->fill) > x->col + 1 && !x->scale[i];
  if (scaled) x->scale[i] = scales(x, i);
}

void wide_rows_put(const WideRows *x, uint32_t i, Value tile) {
  Builder *b = x->b;
  Value v = x->x[i];
  if (x->scale[i]) {
    Type t = x->tile;
    t.dtype = DT_F32;
    v = cast(b, DT_F32, cast(b, DT_F16, v));  // exact, two at a time
    v = ir_2(b, OP_MUL, v, one(b, OP_BCAST, x->scale[i], t));
  }
  v = cast(b, ir_type(b->fn, x->fill->res[0])->dtype, v);
  bool whole = ir_type(b->fn, tile)->ext[1] > HW_PANEL;
  Value args[] = {tile, v, whole ? i32(b, (int64_t)i * HW_PANEL) : 0};
  ir_op(b, OP_SSTORE, args, whole ? 3 : 2, NULL, 0, NULL, 0, 0);
}
