// Rings whose slots serve stores: boxes go from registers through shared tiles,
// and one that has been read has room for them.
#include "ir/layout.h"
#include "passes/hopper/rings.h"

// The largest tile that the program stores as a box.
void hop_rings_find_drains(Rings *w, const Region *r) {
  Drain d;
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++)
      hop_rings_find_drains(w, op->regions[i]);
    if (!hop_drain_of(w->f, op, &d)) continue;
    if (!w->drains || smem_bytes(&d.tile) > smem_bytes(&w->drain))
      w->drain = d.tile;
    w->whole |= d.trans;
    w->drains = true;
  }
}

static void find_half(const Rings *w, const Region *r, bool *found) {
  Drain d;
  Type half = w->drain;
  half.ext[0] /= 2;
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++)
      find_half(w, op->regions[i], found);
    *found |= hop_drain_of(w->f, op, &d) && type_eq(&half, &d.tile);
  }
}

// Tiles of half of its rows go through the halves in turn: none waits until the
// one in front has been read.
void hop_rings_find_halves(Rings *w) {
  bool found = false;
  if (w->split) return;
  if (w->drains && w->lent < 0) find_half(w, w->f->body, &found);
  w->pieces = found ? 2 : 1;
  w->piece = w->drain;
  w->piece.ext[0] /= 2;
}

bool hop_rings_drains_piece(const Rings *w, const Drain *d) {
  return w->pieces > 1 && (w->split || type_eq(&w->piece, &d->tile));
}

int64_t hop_rings_drain_bytes(const Rings *w) {
  if (!w->drains || w->lent >= 0) return 0;
  int64_t bytes = w->split ? (int64_t)smem_bytes(&w->piece) * w->pieces
                           : (int64_t)smem_bytes(&w->drain);
  return bytes * w->groups;
}

// The most bytes that the ops of one region store; -1: not all in pieces.
static int64_t stored(const Rings *w, const Region *r, const Type *piece) {
  Drain d;
  int64_t sum = 0, most = 0;
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) {
      int64_t in = stored(w, op->regions[i], piece);
      if (in < 0) return -1;
      most = in > most ? in : most;
    }
    if (!hop_drain_of(w->f, op, &d)) continue;
    Type part = d.tile;
    if (!d.trans && part.ext[1] % piece->ext[1] == 0)
      part.ext[1] = piece->ext[1];
    if (!type_eq(&part, piece)) return -1;
    sum += smem_bytes(&d.tile);
  }
  return sum > most ? sum : most;
}

// Stores of a region one behind the other go through panels in turn, as many as
// there is room for.
void hop_rings_find_pieces(Rings *w, int64_t room) {
  Type piece = w->drain;
  if (!w->drains || w->lent >= 0 || piece.ext[1] % (2 * HW_PANEL)) return;
  piece.ext[1] = HW_PANEL;
  int64_t bytes = smem_bytes(&piece), all = smem_bytes(&w->drain);
  if (stored(w, w->f->body, &piece) < COST_STORED_PIECES * all) return;
  w->split = true;
  w->piece = piece;
  w->pieces = piece.ext[1] ? w->drain.ext[1] / piece.ext[1] : 1;
  for (; room >= bytes * w->groups && w->pieces < COST_MOST_PIECES;
       room -= bytes * w->groups)
    w->pieces++;
}

// Does op, or what is in it, store a box?
static bool stores_box(const Rings *w, const Op *op) {
  Drain d;
  if (hop_drain_of(w->f, op, &d)) return true;
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next)
      if (stores_box(w, o)) return true;
  return false;
}

// The tile of a fill is read before anything is stored, in its region or
// behind.
static bool read_first(const Rings *w, const Op *fill) {
  const Op *last = hop_rings_last_read(w, fill, fill->res[0]);
  for (const Op *op = fill->parent->first; op != last; op = op->next)
    if (stores_box(w, op)) return false;
  return !last->nregions;
}

// So are the other tiles that the ring is filled with behind `site`, and
// nothing is stored in front of them.
static bool others_first(const Rings *w, const Op *site, const Region *r,
                         bool *stored) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op != site && hop_rings_fills(w, op) &&
        hop_rings_of(w, op) == hop_rings_of(w, site) &&
        (*stored || !read_first(w, op)))
      return false;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (!others_first(w, site, op->regions[i], stored)) return false;
    *stored |= !op->nregions && stores_box(w, op);
  }
  return true;
}

static bool fills_ring(const Rings *w, const Op *op, int ring) {
  if (hop_rings_fills(w, op) && hop_rings_of(w, op) == ring) return true;
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next)
      if (fills_ring(w, o, ring)) return true;
  return false;
}

// Behind the site, as in steps behind the first one: a slot that is held for
// the stores would never be filled again.
static bool is_filled_again(const Rings *w, const Op *site) {
  int ring = hop_rings_of(w, site);
  for (const Op *op = site->next; op; op = op->next)
    if (fills_ring(w, op, ring)) return true;
  return false;
}

// Is all that the ring is filled with read before the stores?
static bool all_read_first(const Rings *w, const Op *site) {
  bool stored = false;
  return read_first(w, site) && !is_filled_again(w, site) &&
         others_first(w, site, site->parent, &stored);
}

// A ring of the groups' own tiles, read before the stores: Q for O. With one
// group all tiles are its own.
int hop_rings_lender(const Rings *w) {
  for (uint32_t i = 0; i < w->nrings; i++) {
    const Ring *r = &w->rings[i];
    bool own = r->own ||
               (w->groups == 1 && r->fills == 1 &&
                hop_rings_in_tasks(w, r->site) && all_read_first(w, r->site));
    if (own && !hop_rings_streams(w, r->site) &&
        hop_rings_holds(ir_type(w->f, r->site->res[0]), &w->drain))
      return (int)i;
  }
  return -1;
}

// A ring that has no room for all columns of what is stored lends its slot for
// a part of them after the other.
int hop_rings_lender_of_parts(Rings *w) {
  Type all = w->drain;
  int lent = hop_rings_lender(w);
  while (lent < 0 && !w->whole && w->drain.ext[1] % (2 * HW_PANEL) == 0) {
    w->drain.ext[1] /= 2;
    lent = hop_rings_lender(w);
  }
  if (lent < 0) w->drain = all;
  return lent;
}

// Nothing is stored until the last read of the tile is over.
static bool read_before(const Rings *w, const Op *fill) {
  const Op *last = hop_rings_last_read(w, fill, fill->res[0]);
  for (const Op *op = fill->parent->first; op; op = op->next) {
    if (stores_box(w, op)) return false;
    if (op == last) return true;
  }
  return false;
}

// Groups that have columns of the sums each read the same queries, and store
// columns each: panels of them, when all groups have read.
int hop_rings_lender_of_all(const Rings *w) {
  const Type *d = &w->drain;
  for (uint32_t i = 0; i < w->nrings && w->groups > 1 && !w->whole; i++) {
    const Ring *r = &w->rings[i];
    if (!r->site || r->own || r->told || r->made || r->streams ||
        r->fills != 1 || r->stages != 1 || w->apart)
      continue;
    const Type *t = ir_type(w->f, r->site->res[0]);
    bool holds = t->layout == LY_SW128 && d->layout == LY_SW128 &&
                 t->dtype == d->dtype && t->ext[0] == d->ext[0] &&
                 d->ext[1] % HW_PANEL == 0 && d->ext[1] <= 4 * HW_PANEL &&
                 t->ext[1] >= w->groups * d->ext[1];
    if (holds && dtype_size(t->dtype) == 2 && hop_rings_in_tasks(w, r->site) &&
        read_before(w, r->site))
      return (int)i;
  }
  return -1;
}
