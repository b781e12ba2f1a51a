// Rings of tiles whose panels have a barrier each.
#include "passes/hopper/rings.h"
#include "passes/support/fill.h"

// Tiles of which a product of all columns is the first reader, by whole panels
// of both operands.
static bool reads_panels(Rings *w, const Op *fill) {
  const Op *op = fill->next;
  while (op && !ir_mentions(op, fill->res[0])) op = op->next;
  bool product = op && op->code == OP_WGMMA && op->nargs > 3 &&
                 op->args[1] == fill->res[0] && !ir_attr_i(op, AT_TRANS, 0) &&
                 !ir_attr_i(op, AT_TRANSA, 0);
  const Type *a = product ? ir_type(w->f, op->args[0]) : NULL;
  const Type *b = ir_type(w->f, fill->res[0]);
  const Op *left = product ? ir_def(w->f, op->args[0]) : NULL;
  double zero;
  bool ok = a && left && left->code == OP_SFILL && a->layout == LY_SW128 &&
            b->layout == LY_SW128 && a->ext[1] % HW_PANEL == 0 &&
            b->ext[1] % HW_PANEL == 0 && !ir_attr(fill, AT_PIECES) &&
            ir_const_value(w->f, op->args[2], &zero) && zero == 0;
  if (ok) w->rings[hop_rings_of(w, left)].cuts = true;
  return ok;
}

static void find_panels(Rings *w, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) find_panels(w, op->regions[i]);
    if (op->code != OP_SFILL) continue;
    Ring *ring = &w->rings[hop_rings_of(w, op)];
    if (!ring->streams || !reads_panels(w, op)) ring->panels = 1;
  }
}

// An arrival is one of each thread: where rows are told one by one products
// begin with halves (hop_role_await_told), and what is widened comes in pairs.
static uint32_t joins(const Rings *w, uint32_t i) {
  const Ring *r = &w->rings[i];
  if (!r->told || r->panels < 2) return 1;
  return fill_wide(w->f, r->site) ? 2 : (r->panels + 1) / 2;
}

// Where there are two tiles of a ring, what is left of a step's time for the
// copy of the next one is less than that takes: products begin before it ends.
void hop_rings_panels(Rings *w) {
  for (uint32_t i = 0; i < w->nrings; i++) {
    Ring *r = &w->rings[i];
    r->panels =
        r->site && !r->made && !r->own && r->visits < 0 && !r->kept && !w->apart
            ? ir_type(w->f, r->site->res[0])->ext[1] / HW_PANEL
            : 1;
  }
  find_panels(w, w->body);
  for (uint32_t i = 0; i < w->nrings; i++)
    if (w->rings[i].with >= 0) w->rings[w->rings[i].with].panels = 1;
  for (uint32_t i = 0; i < w->nrings; i++)
    if (!w->rings[i].panels || w->rings[i].with >= 0 || w->rings[i].strip)
      w->rings[i].panels = 1;
  for (uint32_t i = 0; i < w->nrings; i++) w->rings[i].joined = joins(w, i);
}
