// How many different weights keys are multiplied with.
#include "passes/tile/tile.h"

// What has a value for each pair of a row and a key, and multiplies keys.
typedef struct Weights {
  const Func *f;
  uint32_t lane;
  Map seen;
  int64_t n;
} Weights;

static void note(void *data, Op *op) {
  Weights *w = data;
  uint64_t known;
  if (op->code != OP_DOT || lane_has_key(w->f, ir_type(w->f, op->res[0])))
    return;
  for (uint32_t i = 0; i < 2; i++) {
    const Type *t = ir_type(w->f, op->args[i]);
    if (!lane_has_key(w->f, t) || !type_has_axis(t, w->lane) ||
        map_get(&w->seen, op->args[i], &known))
      continue;
    map_put(&w->seen, op->args[i], 1);
    w->n++;
  }
}

int64_t tile_weights(const Func *f, int lane, Op *pass, Arena *a) {
  Weights w = {.f = f, .lane = (uint32_t)lane, .seen = {.arena = a}};
  for (uint32_t i = 0; i < pass->nregions; i++)
    ir_walk(pass->regions[i], note, &w);
  return w.n;
}
