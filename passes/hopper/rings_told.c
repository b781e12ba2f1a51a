// Tiles of which each row is where an index says, as lists of keys and small
// pages have them.
//
//   %i = gload(%at, %b, coord() + %k) : frag<64xi32,lin.0:64>
//   %t = sfill(%C, %i, %zero) {tile = [0, 1]} : smem<64x576xbf16,sw128>
//
// The copy engine has boxes only. The producer is then a group of 128 threads,
// not one: eight threads have a row, and copy 16 bytes of each 128 of it
// (`cp_async`); one of them does what a producer does otherwise. Nobody waits
// for the copies: each thread arrives at the tile's barrier when its own are
// there (`mbar_arrive` with `copies`). What is no row is zeros. Indices are the
// producer's: anything elementwise of what memory has, nothing that products
// have made.
#include "passes/hopper/rings.h"
#include "passes/support/fill.h"

static bool any_told(const Func *f, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    if (fill_told(f, op)) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (any_told(f, op->regions[i])) return true;
  }
  return false;
}

bool hop_rings_has_told(const Func *f) {
  return any_told(f, f->body);
}

static bool is_plain(const Op *op) {
  switch (op->code) {
  case OP_SPLAT:
  case OP_COORD:
  case OP_COORD_THREAD:
  case OP_COORD_REG:
  case OP_GLOAD: return true;
  default: return op_info(op->code)->flags & OPF_ELEM;
  }
}

bool hop_rings_tells(const Rings *w, Value v) {
  const Op *op = ir_def(w->f, v);
  const Type *t = ir_type(w->f, v);
  return w->lists && op && !op->nregions && t->kind == TK_FRAG &&
         t->slice == SLICE_ROW && is_plain(op);
}

// Backwards: slices that tell rows, and what only these are made of.
static void find_spare(Rings *w, bool *used, const Region *r) {
  for (const Op *op = r->last; op; op = op->prev) {
    for (uint32_t i = 0; i < op->nregions; i++)
      find_spare(w, used, op->regions[i]);
    bool frag = op->nres == 1 && ir_type(w->f, op->res[0])->kind == TK_FRAG;
    if (fill_told(w->f, op)) continue;
    if (frag && !used[op->res[0]] && hop_rings_tells(w, op->res[0])) {
      w->spare[op->res[0]] = true;
      continue;
    }
    for (uint32_t i = 0; i < op->nargs; i++) used[op->args[i]] = true;
  }
}

void hop_rings_spare_told(Rings *w) {
  uint32_t n = w->f->values.n;
  if (!w->spare) w->spare = NEWN(w->arena, bool, n);
  find_spare(w, NEWN(w->arena, bool, n), w->f->body);
}
