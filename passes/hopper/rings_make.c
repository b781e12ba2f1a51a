// The buffers and barriers of rings, and what a role takes of them.
#include "ir/layout.h"
#include "passes/hopper/rings.h"

static Value i32(Builder *b, int64_t v) {
  return ir_const_i(b, DT_I32, v);
}

static Value barrier(Builder *b, uint32_t n, int64_t count) {
  IrAttr at = attr_i(AT_ARRIVALS, count);
  Type t = type_mbar(n);
  return ir_op(b, OP_MBAR, NULL, 0, &at, 1, &t, 1, 0)->res[0];
}

// The memory of a tile, or of a ring of tiles, as a ring of its panels.
static Value as_panels(Builder *b, Value smem) {
  Type t = *ir_type(b->fn, smem);
  t.ext[2] *= t.ext[1] / HW_PANEL;
  t.ext[1] = HW_PANEL;
  return ir_op(b, OP_SALLOC, &smem, 1, NULL, 0, &t, 1, 0)->res[0];
}

// The memory of tiles as a ring of so many parts of each.
static Value as_parts(Builder *b, Value smem, uint32_t parts) {
  Type t = *ir_type(b->fn, smem);
  t.ext[2] *= parts;
  t.ext[0] /= parts;
  return ir_op(b, OP_SALLOC, &smem, 1, NULL, 0, &t, 1, 0)->res[0];
}

// The same of tiles of whole panels: each panel has its parts.
static Value as_gathered(Builder *b, Value smem, uint32_t parts) {
  Type t = *ir_type(b->fn, smem);
  uint32_t panels = t.ext[1] > HW_PANEL ? t.ext[1] / HW_PANEL : 1;
  t.ext[2] *= parts * panels;
  t.ext[1] /= panels;
  t.ext[0] /= parts;
  return ir_op(b, OP_SALLOC, &smem, 1, NULL, 0, &t, 1, 0)->res[0];
}

void hop_rings_make(Rings *w, Builder *b, Ring *r) {
  const Ring *first = r->visits >= 0 ? &w->rings[r->visits] : NULL;
  if (first) {
    r->smem = first->smem, r->empty = first->empty;
    if (r->gathered) r->full = first->full;
    return;
  }
  uint32_t slots = r->stages * (r->own ? w->groups : 1);
  uint32_t readers = r->own || r->raw ? 1 : w->groups;
  if (!r->site) readers += w->makers;
  // The producer's threads read which task one of them has claimed.
  bool claims = w->lists && w->claims >= 0 && r == &w->rings[w->claims];
  if (claims) readers += w->loaders;
  bool facts = w->facts >= 0 && r == &w->rings[w->facts];
  uint32_t words = facts ? slots * w->nfacts + w->nkept : slots;
  Type t = type_smem(DT_I32, 1, 1, (words + 3) / 4 * 4, LY_ROW);
  if (r->site) t = *ir_type(w->f, r->site->res[0]);
  if (r->site) t.ext[2] = slots;
  r->smem = ir_op(b, OP_SALLOC, NULL, 0, NULL, 0, &t, 1, 0)->res[0];
  uint32_t writers = r->made                ? HW_GROUP_WARPS
                     : r->gathered          ? HW_GROUP_WARPS * w->groups
                     : r->told              ? HW_GROUP_THREADS * w->loaders
                     : w->lists && !r->site ? HW_GROUP_WARPS * w->loaders
                                            : 1;
  r->full = r->with >= 0 ? w->rings[r->with].full
                         : barrier(b, slots * r->panels, writers);
  if (r->panels > 1 || r->cuts) r->cut = as_panels(b, r->smem);
  if (r->gathered) r->cut = as_gathered(b, r->smem, w->groups);
  uint32_t arrivals = r->site ? HW_GROUP_WARPS : HW_GROUP_THREADS;  // (receive)
  r->empty = r->rides ? 0 : barrier(b, slots, arrivals * readers);
}

Value hop_rings_drain_tile(const Rings *w, Builder *b) {
  Type t = w->split ? w->piece : w->drain;
  t.ext[2] = w->split ? w->groups * w->pieces : w->groups;
  return ir_op(b, OP_SALLOC, NULL, 0, NULL, 0, &t, 1, 0)->res[0];
}

Value hop_rings_drain_pieces(const Rings *w, Builder *b, Value tile) {
  return w->split ? tile : as_parts(b, tile, w->pieces);
}

Value hop_rings_slot(const Rings *w, Builder *b, const Ring *ring, Value at) {
  Value args[] = {ring->smem, at};
  return ir_op(b, OP_SLOT, args, 2, NULL, 0, ir_type(w->f, ring->site->res[0]),
               1, 0)
      ->res[0];
}

// Bytes of a tile and of the strips that come with it.
int64_t hop_rings_bytes(const Rings *w, const Op *fill) {
  int ring = hop_rings_of(w, fill);
  int64_t n = smem_bytes(ir_type(w->f, fill->res[0]));
  for (uint32_t i = 0; i < w->nrings; i++)
    if (w->rings[i].with == ring)
      n += smem_bytes(ir_type(w->f, w->rings[i].site->res[0]));
  return n;
}

Value hop_rings_panel_of(Builder *b, Value panels, Value at) {
  Value args[] = {panels, at};
  Type t = *ir_type(b->fn, panels);
  t.ext[2] = 1;
  return ir_op(b, OP_SLOT, args, 2, NULL, 0, &t, 1, 0)->res[0];
}

// Panel i of a tile in slot `at`.
Value hop_rings_panel(Builder *b, const Ring *ring, Value at, uint32_t i) {
  Value panel = i32(b, i);
  at = ir_2(b, OP_MUL, at, i32(b, ring->panels));
  return ir_2(b, OP_ADD, at, panel);
}

bool hop_rings_has_barrier(const Ring *ring, uint32_t i) {
  return (i + 1) % ring->joined == 0 || i + 1 == ring->panels;
}

// claim() is one thread's work: without a producer the next task is as many
// behind as there are CTAs.
void hop_rings_take_turns(Func *f, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++)
      hop_rings_take_turns(f, op->regions[i]);
    if (op->code != OP_CLAIM) continue;
    Builder b = {.fn = f, .region = r, .before = op, .span = op->span};
    Type i = type_scalar(DT_I32);
    Value all = ir_op(&b, OP_NCTAS, NULL, 0, NULL, 0, &i, 1, 0)->res[0];
    ir_replace_uses(f, op->res[0], ir_2(&b, OP_ADD, r->params.at[0], all));
    ir_erase(op);
  }
}

int64_t hop_rings_for_all(const Rings *w, const Region *r) {
  int64_t n = 0;
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_GPUT) n += smem_bytes(ir_type(w->f, op->res[0]));
    for (uint32_t i = 0; i < op->nregions; i++)
      n += hop_rings_for_all(w, op->regions[i]);
  }
  return n;
}
