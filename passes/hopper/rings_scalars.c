// Numbers of a launch that a producer keeps in shared memory: it has 32
// registers, and what says which task is the n-th would take one each from the
// launch's begin to its end, though only a task's begin needs them.
//
//   %n = floordiv(%all, %rows)             sset(%facts, %c20, %n)
//   while(%all, %first) ({                 while(%all, %first) ({
//     ^(%u: i32):                   ->       ^(%u: i32):
//     %head = floordiv(%u, %n)               %n1 = sget(%facts, %c20)
//                                            %head = floordiv(%u, %n1)
//
// Four are no burden (heads in turn by the L2 cache, causal masks); windows,
// whose order has parts, and four groups of warps have more in registers.
#include "passes/support/cost.h"
#include "passes/hopper/rings.h"

// Ops that v is made of, as far as these are few.
static uint32_t ops_of(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (!op || !op->nargs) return 0;
  uint32_t n = 1;
  for (uint32_t i = 0; i < op->nargs && n <= COST_KEPT_CHEAP; i++)
    n += ops_of(f, op->args[i]);
  return n;
}

static bool is_number(const Rings *w, Value v) {
  const Op *op = ir_def(w->f, v);
  const Type *t = ir_type(w->f, v);
  return op && op->parent == w->body && w->wanted[v] && t->kind == TK_ELEM &&
         t->dtype == DT_I32 && ops_of(w->f, v) > COST_KEPT_CHEAP;
}

static bool is_kept(const Rings *w, Value v) {
  for (uint32_t i = 0; i < w->nkept; i++)
    if (w->kept[i] == v) return true;
  return false;
}

static bool used_from(const Op *op, Value v) {
  while (op && !ir_mentions(op, v)) op = op->next;
  return op != NULL;
}

void hop_rings_keep(Rings *w, const Op *loop) {
  const Op *first = loop->regions[0]->first, *end = first;
  while (end && end->code != OP_SFILL && !end->nregions) end = end->next;
  for (const Op *op = first; op != end; op = op->next)
    for (uint32_t i = 0; i < op->nargs && hop_rings_wanted(w, op); i++) {
      Value v = op->args[i];
      bool number = is_number(w, v) && !is_kept(w, v) && !used_from(end, v);
      if (number && w->nkept < MAX_FACTS) w->kept[w->nkept++] = v;
    }
  if (w->nkept <= COST_KEPT_FEW && w->groups <= COST_KEPT_GROUPS) w->nkept = 0;
}

// ---------------------------------------------------------------- registers
int64_t hop_rings_added(const Func *f, const Region *r) {
  int64_t most = 0;
  for (const Op *op = r->first; op; op = op->next) {
    const Type *t = op->code == OP_WGMMA ? ir_type(f, op->res[0]) : NULL;
    int64_t n = t ? t->ext[1] : 0;
    n = (n < HW_PRODUCT_COLUMNS ? n : HW_PRODUCT_COLUMNS) / 2;
    for (uint32_t i = 0; i < op->nregions; i++) {
      int64_t in = hop_rings_added(f, op->regions[i]);
      if (in > n) n = in;
    }
    if (n > most) most = n;
  }
  return most;
}

int64_t hop_rings_carried(const Func *f, const Region *r) {
  int64_t most = 0;
  for (const Op *op = r->first; op; op = op->next) {
    int64_t n = 0;
    for (uint32_t i = 0; op->code == OP_FOR && i < op->nres; i++) {
      const Type *t = ir_type(f, op->res[i]);
      if (t->kind == TK_FRAG && t->slice == SLICE_NONE)
        n += (int64_t)t->ext[0] * t->ext[1] / HW_GROUP_THREADS;
    }
    for (uint32_t i = 0; i < op->nregions; i++) {
      int64_t in = hop_rings_carried(f, op->regions[i]);
      if (in > n) n = in;
    }
    if (n > most) most = n;
  }
  return most;
}
