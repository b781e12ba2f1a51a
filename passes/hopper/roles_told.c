// A producer that is a group: rows that are told one by one (rings_told.c).
#include "passes/hopper/roles.h"
#include "passes/support/fill.h"

static Value i32(Builder *b, int64_t v) {
  return ir_const_i(b, DT_I32, v);
}

static void copy(Builder *b, const Op *fill, const Value *args) {
  IrAttr how[FILL_ATTRS];
  ir_op(b, OP_CP_ASYNC, args, fill_args(fill) + 1, how, fill_attrs(fill, how),
        NULL, 0, 0);
}

void hop_role_soon(Builder *b, Value tensor, const Value *at, uint32_t n,
                   int64_t bytes) {
  Value args[MAX_AXES + 1] = {tensor};
  for (uint32_t i = 0; i < n; i++) args[1 + i] = at[i];
  IrAttr size = attr_i(AT_BYTES, bytes);
  ir_op(b, OP_GSOON, args, 1 + n, &size, 1, NULL, 0, 0);
}

void hop_role_copy_told(const Role *r, Builder *b, const Op *fill, Value at,
                        Value *args) {
  const Ring *ring = &r->w->rings[hop_rings_of(r->w, fill)];
  uint32_t col = 2 + (uint32_t)ir_attr(fill, AT_TILE)->list[1];
  IrAttr copies = attr_i(AT_COPIES, 1);
  Value first = args[col];
  for (uint32_t i = 0; i < ring->panels; i++) {
    bool cut = ring->panels > 1;
    Value n = cut ? hop_rings_panel(b, ring, at, i) : at;
    args[0] = cut ? hop_rings_panel_of(b, ring->cut, n)
                  : hop_rings_slot(r->w, b, ring, at);
    if (cut) args[col] = ir_2(b, OP_ADD, first, i32(b, (int64_t)i * HW_PANEL));
    copy(b, fill, args);
    if (hop_rings_has_barrier(ring, i))
      hop_role_arrive(b, ring->full, n, &copies);
  }
}

Value hop_role_claimed(Role *r, Builder *b) {
  const Ring *ring = &r->w->rings[r->w->claims];
  Turn t = hop_role_turn(r, b, (uint32_t)r->w->claims);
  IrAttr each = attr_i(AT_EACH, 1);
  Type i = type_scalar(DT_I32);
  Value at[] = {ring->smem, t.slot};
  hop_role_wait(b, ring->full, t.slot, t.parity);
  Value x = ir_op(b, OP_SGET, at, 2, NULL, 0, &i, 1, 0)->res[0];
  x = ir_op(b, OP_UNIFORM, &x, 1, NULL, 0, &i, 1, 0)->res[0];
  hop_role_arrive(b, ring->empty, t.slot, &each);
  return x;
}

// A fence takes some sixty cycles, in which no product is asked for: half of
// the panels have one.
void hop_role_await_told(Builder *b, const Ring *ring, Value slot, Value parity,
                         uint32_t i) {
  uint32_t half = (ring->panels + 1) / 2;
  half = (half + ring->joined - 1) / ring->joined * ring->joined;
  if (i % half) return;
  for (uint32_t k = i; k < i + half && k < ring->panels; k++) {
    if (!hop_rings_has_barrier(ring, k)) continue;
    Value at = hop_rings_panel(b, ring, slot, k);
    hop_role_wait(b, ring->full, at, parity);
  }
  ir_bare(b, OP_FENCE_ASYNC);
}
