// Gauges that may keep their value (part of the pass `tile`): whether -inf, the
// value before any key, may be kept as others are.
//
//   exp(m - ref(m'))                    0 where m is -inf: m' is taken
//   exp(max(m, x) - max(ref(m'), x))    not 0, and m would stay: its reference
//                                       is max(x, 0) then, not x
//   max(m, x) / max(m', x)              not 0, but no ref: m is as good
#include "passes/support/absval.h"
#include "passes/tile/tile.h"

#include <math.h>

static bool has_ref(const Region *r, Value v) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_REF && op->args[0] == v) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (has_ref(op->regions[i], v)) return true;
  }
  return false;
}

static bool vanishes(const Tiler *t, Value factor, Value gauge) {
  Ranges ranges;
  AbsMap m = {.f = t->from,
              .arena = &t->cx->scratch,
              .ranges = &ranges,
              .axis = ABS_ALL_AXES,
              .index.arena = &t->cx->scratch};
  range_init(&ranges, m.f, m.arena);
  absval_put(&m, gauge, absval_exactly(-INFINITY));
  return absval_is(absval_value(&m, factor), 0);
}

bool tile_keeps_empty(const Tiler *t, const Op *pass, uint32_t i) {
  const Region *local = pass->regions[1], *correct = pass->regions[2];
  if (!has_ref(local, local->params.at[i])) return true;
  for (uint32_t j = i + 1; j < pass->nres; j++)
    if (vanishes(t, correct->last->args[j], correct->params.at[i])) return true;
  return false;
}
