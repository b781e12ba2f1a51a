// Programs whose products tile registers of a CPU do (passes/cpu/mat.c).
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/tile/tile.h"

typedef struct Search {
  const Func *f;
  bool found;
} Search;

static void find(void *data, Op *op) {
  Search *s = data;
  bool all = op->code == OP_DOT;
  for (uint32_t i = 0; all && i < 2; i++)
    all = ir_type(s->f, op->args[i])->dtype == DT_BF16;
  s->found |= all;
}

void tile_mats_plan(const Func *f, const PassOpt *opt, TilePlan *p) {
  Search s = {.f = f};
  if (opt->target->amx && !opt->walk) ir_walk(f->body, find, &s);
  p->mats = s.found;
  if (p->mats) p->tile_q = p->tile_k = COST_MAT_TILE;
}
