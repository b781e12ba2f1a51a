// Workspaces of a program's phases (part of the pass `tile`): all phases have
// them in one order.
//
//   before  @p.maxima(.., %g shared, %states0 shared)
//           @p.aside(.., %g, %n shared, %states1 shared)
//           @p(.., %g, %n, %states2 shared)
//   after   @p.maxima(.., %g, %n, %states0)
//           @p.aside(.., %g, %n, %states0, %states1)
//           @p(.., %g, %n, %states0, %states1, %states2)
//
// Workspaces lie one behind the other, in the order of a phase's parameters, so
// what one phase has at some place another must have too. `tile` gives
// functions made of one stream function the workspaces that these alone need
// (states of parts, bounds of keys): they come behind those of all stream
// functions, and behind those of the phases before. A phase may lack the last
// ones.
#include "passes/tile/tile.h"

// Adds a workspace of another function.
static void add(Func *f, const Func *other, Value v) {
  const ValueInfo *x = ir_info(other, v);
  ir_param(f, x->hint, PR_SHARED, x->type);
}

// f's own workspaces, from number `own` on, go behind those of others.
static void put_last(Func *f, uint32_t own, uint32_t end) {
  Vec(FuncParam) all = {0};
  Arena *a = f->mod->arena;
  for (uint32_t i = 0; i < own; i++) vec_push(a, &all, f->params.at[i]);
  for (uint32_t i = end; i < f->params.n; i++)
    vec_push(a, &all, f->params.at[i]);
  for (uint32_t i = own; i < end; i++) vec_push(a, &all, f->params.at[i]);
  for (uint32_t i = 0; i < all.n; i++) f->params.at[i] = all.at[i];
}

// Do stream functions in front of the last have workspaces of their own?
static bool several(const Tiled *all, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (all[i].from != all[n - 1].from &&
        all[i].to->params.n > all[i].from->params.n)
      return true;
  return false;
}

static void complete(const Tiled *all, uint32_t n, uint32_t i,
                     const uint32_t *had) {
  const Func *from = all[i].from, *last = all[n - 1].from;
  Func *f = all[i].to;
  uint32_t own = from->params.n, end = f->params.n;
  // Stream functions have the first of the last one's.
  for (uint32_t k = own; k < last->params.n; k++)
    add(f, last, last->params.at[k].v);
  for (uint32_t k = 0; k < i && all[k].from != from; k++) {
    bool again = k && all[k].from == all[k - 1].from;
    for (uint32_t p = all[k].from->params.n; !again && p < had[k]; p++)
      add(f, all[k].to, all[k].own[p - all[k].from->params.n]);
  }
  put_last(f, own, end);
}

void tile_work_share(Arena *a, Tiled *all, uint32_t n) {
  if (!n || !several(all, n)) return;
  uint32_t *had = NEWN(a, uint32_t, n);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t own = all[i].from->params.n;
    had[i] = all[i].to->params.n;
    all[i].own = NEWN(a, Value, had[i] - own + 1);
    for (uint32_t p = own; p < had[i]; p++)
      all[i].own[p - own] = all[i].to->params.at[p].v;
  }
  for (uint32_t i = 0; i < n; i++) complete(all, n, i, had);
}
