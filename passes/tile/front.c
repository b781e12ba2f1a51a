// What recurrences store of the state in front of blocks of steps (part of the
// pass `tile`), as their gradients ask for. Chunks begin where blocks do, and
// the state is stored as it is there.
//
//   %M, %S = affine(..) {.., front = 64}          for(%c0 = 0, end, 64, %S) {
//   store(%border, %S, t // 64, .., at blocks) ->   store(%border, %S, %c0 // 64, ..)
//                                                   ..
//
// Blocks are counted from the first step of the sequence. So a walk against
// their order first does what the last block has, step by step.
#include "passes/tile/step.h"

// The state whose steps the value v is in front of, or -1.
static int state_of(const Steps *s, Value v) {
  const Op *op = ir_def(s->t->from, v);
  while (op && op->code == OP_CAST) {
    v = op->args[0];
    op = ir_def(s->t->from, v);
  }
  for (uint32_t i = 0; i < s->n; i++)
    if (s->affine[i].front &&
        s->op[i]->res[affine_front_at(&s->affine[i])] == v)
      return (int)i;
  return -1;
}

bool tile_front_takes(const Steps *s, const Op *store) {
  return store->code == OP_STORE && state_of(s, store->args[1]) >= 0;
}

void tile_front_step(const Steps *s, uint32_t i, Value state, ValueMap *m) {
  const Affine *a = &s->affine[i];
  if (a->front) vmap_put(m, s->op[i]->res[affine_front_at(a)], state);
}

int64_t tile_front_chunk(Steps *s, int64_t chunk) {
  for (uint32_t i = 0; i < s->n; i++) {
    int64_t n = s->affine[i].front;
    if (!n) continue;
    bool other = s->front && s->front != n;
    if (other || s->nmax || n != chunk) return 1;
    s->front = n;
  }
  return chunk;
}

void tile_front_store(Steps *s, Builder *b, Value j, const ValueMap *pre,
                      const Value *state) {
  if (!s->front || s->t->share == SHARE_STATES) return;
  ValueMap m = tile_map_copy(s->t, pre);
  s->t->coord[s->axis] = tile_step_coordinate(s, b, j);
  for (uint32_t i = 0; i < s->n; i++) tile_front_step(s, i, state[i], &m);
  for (const Op *op = s->first; op; op = op->next) {
    if (!tile_front_takes(s, op)) continue;
    for (uint32_t i = 1; i + 1 < op->nargs; i++)
      tile_step_value(s, b, op->args[i], &m);
    s->t->holds = op->args[op->nargs - 1];
    tile_op(s->t, b, op, &m);
    s->t->holds = 0;
  }
  s->t->coord[s->axis] = 0;
}
