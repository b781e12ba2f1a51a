// The gradient of a table that is read at an index of rows and keys, as one of
// relative positions or of buckets of distances:
//
//   before  g_table[t] = sum over b, q, k of (at(q, k) == t ? x(b, q, k) : 0)
//   after   pairs[q, k] = sum over b of x(b, q, k)        a kernel of its own
//           g_table[t] = sum over q, k of (at(q, k) == t ? pairs[q, k] : 0)
//
// Each place looks at all points. What the index does not vary with is summed
// before, once for all places, in tiles as a bias of pairs is (grad_pairs.c):
// places read a number for each pair and make no scores. Not where running sums
// go along the keys, of which no kernel has tiles of rows and keys. An index
// that takes functions of each pair, as a bucket's logarithm, is made once,
// too.
#include "passes/attn/grad.h"

#include "ir/facts.h"

uint64_t grad_places_of(const Grad *g, uint64_t axes) {
  uint64_t own = 0;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if ((axes & grad_bit(i)) && g->axes.at[i].of == UINT32_MAX)
      own |= grad_bit(i);
  return own;
}

static bool is_dear(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  if (op_is_function(n->code)) return true;
  for (uint32_t i = 0; i < n->n; i++)
    if (is_dear(g, n->arg[i])) return true;
  return false;
}

Gid grad_place_once(Grad *g, Gid x) {
  const GradNode n = *grad_at(g, x);
  uint64_t keys = grad_role(g, AX_KEY), vecs = grad_role(g, AX_VEC);
  bool pairs = (n.axes & keys) && (n.axes & ~keys) && !(n.axes & vecs) &&
               __builtin_popcountll(n.axes) == 2;
  if (!pairs || g->walks.n || !is_dear(g, x)) return x;
  GradNode narrow = {.code = OP_CAST, .dtype = DT_I32, .n = 1},
           wide = {.code = OP_CAST, .dtype = n.dtype, .n = 1};
  narrow.axes = wide.axes = n.axes;
  x = grad_made(g, grad_put(g, narrow, &x), n.axes, "place");
  return grad_put(g, wide, &x);
}

static bool runs(const Grad *g, Gid x, bool *seen) {
  const GradNode *n = grad_at(g, x);
  bool found = n->code == OP_SCAN;
  if (seen[x]) return false;
  seen[x] = true;
  for (uint32_t i = 0; i < n->n && !found; i++)
    found = runs(g, n->arg[i], seen);
  return found;
}

bool grad_runs(const Grad *g, Gid x) {
  return runs(g, x, NEWN(g->arena, bool, g->nodes.n));
}

Gid grad_sum_first(Grad *g, Gid x, Gid same, uint64_t *over, uint64_t *points) {
  uint64_t of = grad_at(g, same)->axes, rest = *over & ~of,
           vecs = grad_role(g, AX_VEC);
  bool numbers = !((grad_at(g, x)->axes | of | *over) & vecs);
  if (!rest || !(*over & of) || !(*over & grad_role(g, AX_KEY)) || !numbers ||
      g->walks.n || grad_runs(g, x))
    return x;
  uint64_t all = (*points | grad_at(g, x)->axes) & ~grad_places_of(g, of);
  x = grad_sum(g, x, rest, all);
  GradNode made = {.code = GRAD_MADE,
                   .dtype = grad_kept(g, x),
                   .axes = grad_at(g, x)->axes,
                   .attr = GRAD_PAIRED,
                   .hint = "pairs",
                   .n = 1};
  x = grad_put(g, made, &x);
  *over &= ~rest;
  *points = grad_at(g, x)->axes | of;
  return x;
}
