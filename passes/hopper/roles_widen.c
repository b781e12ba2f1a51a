// A producer that is a group widens 8-bit rows that are told one by one on
// their way to shared memory (passes/support/wide_rows.c).
//
//   %t = sfill(%C, %i, %zero, %S)      %x = gload(%C, %i, coord())  (of a panel)
//     {tile = [0, 1], block = 128} ->  %s = gload(%S, %i, %block)
//                                      mbar_wait(%empty, ..)
//                                      sstore(%panel, cast(mul(cast(%x), %s)))
//                                      mbar_arrive(%full, ..) {each}
//
// The first panels are asked for before the slot is there, and each of the
// others while those in front of it are widened: memory has some panels to
// bring at any time, as many as the producer's registers hold.
#include "passes/hopper/roles.h"
#include "passes/support/cost.h"
#include "passes/support/wide_rows.h"

static void put(const Role *r, const WideRows *x, uint32_t i, Value slot) {
  Builder *b = x->b;
  const Ring *ring = &r->w->rings[hop_rings_of(r->w, x->fill)];
  bool cut = ring->panels > 1;
  Value at = cut ? hop_rings_panel(b, ring, slot, i) : slot;
  wide_rows_put(x, i,
                cut ? hop_rings_panel_of(b, ring->cut, at)
                    : hop_rings_slot(r->w, b, ring, slot));
  IrAttr each = attr_i(AT_EACH, 1);
  if (cut || i + 1 == x->n) hop_role_arrive(b, ring->full, at, &each);
}

void hop_role_widen(const Role *r, Builder *b, const Op *fill, Turn t,
                    const Value *args) {
  const Ring *ring = &r->w->rings[hop_rings_of(r->w, fill)];
  WideRows x = wide_rows(b, fill, args);
  for (uint32_t i = 0; i < COST_PANELS_ASKED; i++) wide_rows_ask(&x, i);
  hop_role_wait(b, ring->empty, t.slot,
                ir_2(b, OP_SUB, ir_const_i(b, DT_I32, 1), t.parity));
  for (uint32_t i = 0; i < x.n; i++) {
    put(r, &x, i, t.slot);
    wide_rows_ask(&x, i + COST_PANELS_ASKED);
  }
}
