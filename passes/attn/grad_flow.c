// grad, part 5: what flows to a vector that is loaded at several coordinates,
// as a rotation loads it.
//
//   before  g_Q[d] = a(d) * cos(d) + a(d + 1) * sin(d + 1)
//           a(d) = sum over k of ds * K[k, d]
//   after   rows: a.made[d] = a(d)
//           g_Q[d] = a.made[d] * cos(d) + a.made[d + 1] * sin(d + 1)
//
// In each of the two the sum over keys is another one, with products of its
// own: so it is made once, by a kernel of its own, and read where it is wanted.
// Sums of sums and multiples of them are made as one.
#include "passes/attn/grad.h"

typedef struct Flow {
  Grad *g;
  uint64_t vecs;
  // By Gid: it has a sum over keys or rows of vectors in it; it is the
  // innermost such sum, or a sum or multiple of those; it is made.
  bool *sums, *is, *made;
  Map done;
} Flow;

static bool is_vector(const Flow *w, Gid x) {
  return grad_at(w->g, x)->axes & w->vecs;
}

static bool is_sum(const Flow *w, Gid x) {
  const GradNode *n = grad_at(w->g, x);
  return n->code == OP_REDUCE && n->attr == RK_SUM && (n->over & ~w->vecs) &&
         is_vector(w, x);
}

static bool is_flow(const Flow *w, Gid x) {
  const GradNode *n = grad_at(w->g, x);
  const Gid *a = n->arg;
  switch (n->code) {
  case OP_REDUCE: return is_sum(w, x) && !w->sums[a[0]];
  case OP_NEG: return w->is[a[0]];
  case OP_ADD:
  case OP_SUB: return w->is[a[0]] && w->is[a[1]];
  case OP_MUL:
    return (w->is[a[0]] && !is_vector(w, a[1])) ||
           (w->is[a[1]] && !is_vector(w, a[0]));
  default: return false;
  }
}

static void mark(Flow *w) {
  Grad *g = w->g;
  for (Gid x = g->forward; x < g->nodes.n; x++) {
    const GradNode *n = grad_at(g, x);
    for (uint32_t i = 0; i < n->n; i++) w->sums[x] |= w->sums[n->arg[i]];
    w->is[x] = is_flow(w, x);
    w->sums[x] |= w->is[x];
  }
}

// What x is made of, is made.
static void find(Flow *w, Gid x, bool *seen) {
  if (!w->sums[x] || seen[x]) return;
  seen[x] = true;
  w->made[x] = w->is[x];
  const GradNode n = *grad_at(w->g, x);
  for (uint32_t i = 0; i < n.n && !w->is[x]; i++) find(w, n.arg[i], seen);
}

// Do a and b differ in coordinates of vectors alone?
static bool is_turned(const Flow *w, const GradStore *a, const GradStore *b) {
  bool differ = false;
  if (a->tensor != b->tensor || a->n != b->n) return false;
  for (uint32_t i = 0; i < a->n; i++) {
    if (a->index[i] == b->index[i]) continue;
    if (!(grad_at(w->g, a->index[i])->axes & w->vecs)) return false;
    differ = true;
  }
  return differ;
}

// x of what is made.
static Gid of_made(Flow *w, Gid x) {
  Grad *g = w->g;
  uint64_t known;
  if (!w->sums[x]) return x;
  if (map_get(&w->done, x, &known)) return (Gid)known;
  const GradNode n = *grad_at(g, x);
  Gid y = x, *arg = NEWN(g->arena, Gid, n.n + 1);
  bool same = true;
  if (w->made[x]) y = grad_made(g, x, n.axes, "flow");
  for (uint32_t i = 0; i < n.n && !w->is[x]; i++) {
    arg[i] = of_made(w, n.arg[i]);
    same &= arg[i] == n.arg[i];
  }
  if (!same) y = grad_put(g, n, arg);
  map_put(&w->done, x, y);
  return y;
}

void grad_flow(Grad *g) {
  uint32_t n = g->nodes.n;
  Flow w = {.g = g, .vecs = grad_role(g, AX_VEC), .done.arena = g->arena};
  w.sums = NEWN(g->arena, bool, n);
  w.is = NEWN(g->arena, bool, n);
  w.made = NEWN(g->arena, bool, n);
  bool *seen = NEWN(g->arena, bool, n);
  mark(&w);
  for (uint32_t i = 0; i < g->grads.n; i++)
    for (uint32_t k = 0; k < g->grads.n; k++)
      if (is_turned(&w, &g->grads.at[i], &g->grads.at[k]))
        find(&w, g->grads.at[i].v, seen);
  for (uint32_t i = 0; i < g->grads.n; i++)
    g->grads.at[i].v = of_made(&w, g->grads.at[i].v);
}
