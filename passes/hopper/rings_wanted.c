// What roles run of a program. The producer has the scalar part that says which
// tiles are wanted: loops, their bounds, coordinates; `wanted` is that part,
// found backwards from the sfills. A group that computes tiles has what these
// are made of: `making`, found backwards from their sputs.
#include "passes/hopper/rings.h"
#include "passes/support/fill.h"

static void mark_grouped(Rings *w, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    bool g = op->code == OP_GROUP || op->code == OP_GROUP_SELECT;
    for (uint32_t i = 0; i < op->nargs; i++) g = g || w->grouped[op->args[i]];
    g = g && op->code != OP_GROUP_BOUND;
    for (uint32_t i = 0; i < op->nres; i++) w->grouped[op->res[i]] = g;
    for (uint32_t i = 0; i < op->nregions; i++) mark_grouped(w, op->regions[i]);
  }
}

static void want(Rings *w, Value v) {
  if (w->wanted[v] || w->grouped[v]) return;
  if (ir_type(w->f, v)->kind == TK_TENSOR) return;
  bool tile = ir_type(w->f, v)->kind != TK_ELEM;
  if (tile && !(w->looked >= 0 && ir_def(w->f, v)) && !hop_rings_tells(w, v))
    w->fails = true;
  w->wanted[v] = w->changed = true;
}

// Loops and branches are the same for all groups.
static void want_same(Rings *w, Value v) {
  if (w->grouped[v]) w->fails = true;
  want(w, v);
}

bool hop_rings_wanted(const Rings *w, const Op *op) {
  for (uint32_t i = 0; i < op->nres; i++)
    if (w->wanted[op->res[i]]) return true;
  return false;
}

static void want_for(Rings *w, const Op *op) {
  const Region *r = op->regions[0];
  if (!loop_has_fill(op) && !hop_rings_wanted(w, op)) return;
  for (uint32_t i = 0; i < 3; i++) want_same(w, op->args[i]);
  for (uint32_t i = 0; i < op->nres; i++) {
    if (w->wanted[op->res[i]]) want(w, r->params.at[1 + i]);
    if (!w->wanted[r->params.at[1 + i]]) continue;
    want_same(w, op->args[3 + i]);
    want_same(w, r->last->args[i]);
  }
}

// A loop over tasks: bound, first.
static void want_while(Rings *w, const Op *op) {
  if (op->nres != 1) w->fails = true;
  want_same(w, op->args[0]);
  want_same(w, op->args[1]);
  want_same(w, op->regions[0]->last->args[0]);
}

static void want_if(Rings *w, const Op *op) {
  if (!loop_has_fill(op) && !hop_rings_wanted(w, op)) return;
  want_same(w, op->args[0]);
  for (uint32_t i = 0; i < op->nres; i++)
    for (uint32_t k = 0; k < 2 && w->wanted[op->res[i]]; k++)
      want_same(w, op->regions[k]->last->args[i]);
}

// What a coordinate of one group's tile is made of.
static void want_parts(Rings *w, Value v) {
  const Op *op = ir_def(w->f, v);
  if (!w->grouped[v]) {
    want(w, v);
    return;
  }
  if (!op || op->nregions) {
    w->fails = true;
    return;
  }
  for (uint32_t i = 0; i < op->nargs; i++) want_parts(w, op->args[i]);
}

// What a role does at a tile of its own.
static void want_tile(Rings *w, const Op *op) {
  if (w->looked >= 0) {
    bool own =
        hop_rings_made(w, op) && w->maker[op->res[0]] == (uint32_t)w->looked;
    if (own) want(w, op->args[0]);
    return;
  }
  for (uint32_t i = 1; op->code == OP_SFILL && i < fill_args(op); i++)
    want_parts(w, op->args[i]);
}

static void want_region(Rings *w, const Region *r) {
  for (const Op *op = r->last; op; op = op->prev) {
    for (uint32_t i = 0; i < op->nregions; i++) want_region(w, op->regions[i]);
    if (op->code == OP_FOR) want_for(w, op);
    else if (op->code == OP_IF) want_if(w, op);
    else if (op->code == OP_WHILE) want_while(w, op);
    else if (hop_rings_fills(w, op)) want_tile(w, op);
    else if (hop_rings_wanted(w, op) || op->code == OP_GROUP_SELECT)
      for (uint32_t i = 0; i < op->nargs; i++) want(w, op->args[i]);
  }
}

static void want_all(Rings *w) {
  do {
    w->changed = false;
    want_region(w, w->f->body);
  } while (w->changed && !w->fails);
}

void hop_rings_analyse(Rings *w) {
  w->wanted = NEWN(w->arena, bool, w->f->values.n);
  w->grouped = NEWN(w->arena, bool, w->f->values.n);
  mark_grouped(w, w->f->body);
  want_all(w);
}

void hop_rings_want_made(Rings *w, uint32_t i) {
  bool *wanted = w->wanted;
  w->making[i] = w->wanted = NEWN(w->arena, bool, w->f->values.n);
  w->looked = (int)i;
  want_all(w);
  w->looked = -1;
  w->wanted = wanted;
}
