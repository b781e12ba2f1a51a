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
//
// So is what flows to vectors that a matrix has multiplied: its gradient sums,
// over all rows, products of two vectors. One index of it then counts rows, for
// a product of matrices over what are keys.
//
//   before  g_W[m, d] = sum over q of X[q, d] * (sum over k of ds * K[k, m])
//   after   rows: a.made[q, m] = sum over k of ds * K[k, m]
//           g_W[r, d] = sum over q of a.made[q, r] * X[q, d]
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

// ---------------------------------------------------------------- matrices
// A sum over rows of products of a flow and another vector.
static bool is_outer(const Flow *w, Gid x) {
  const GradNode *n = grad_at(w->g, x);
  uint64_t vecs = n->axes & w->vecs;
  return x >= w->g->forward && n->code == OP_REDUCE && n->attr == RK_SUM &&
         (n->over & ~w->vecs) && (vecs & (vecs - 1)) && w->sums[n->arg[0]];
}

// The axis of vectors of a sum in x.
static uint64_t flow_axis(const Flow *w, Gid x) {
  const GradNode *n = grad_at(w->g, x);
  if (!w->sums[x]) return 0;
  if (w->is[x]) return n->axes & w->vecs;
  uint64_t found = 0;
  for (uint32_t i = 0; i < n->n && !found; i++) found = flow_axis(w, n->arg[i]);
  return found;
}

// The products that are summed in x: 0, none.
static Gid outer_in(const Flow *w, Gid x) {
  const GradNode *n = grad_at(w->g, x);
  if (x < w->g->forward) return 0;
  if (is_outer(w, x)) return n->arg[0];
  Gid found = 0;
  for (uint32_t i = 0; i < n->n && !found && n->code != OP_LOAD; i++)
    found = outer_in(w, n->arg[i]);
  return found;
}

// The axis that s, whose indices are axes of vectors alone, has in common with
// a flow that it multiplies; UINT32_MAX: none.
static uint32_t matrix_axis(const Flow *w, const GradStore *s, Gid products) {
  const Grad *g = w->g;
  uint64_t axes = 0, flow = flow_axis(w, products);
  for (uint32_t i = 0; i < s->n; i++) {
    if (grad_at(g, s->index[i])->code != OP_INDEX) return UINT32_MAX;
    axes |= grad_at(g, s->index[i])->axes;
  }
  if ((axes & ~w->vecs) || (flow & (flow - 1))) return UINT32_MAX;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (axes & flow & grad_bit(i)) return i;
  return UINT32_MAX;
}

// One axis of the matrix that s stores counts rows.
static void use_rows(Grad *g, GradStore *s, uint32_t axis) {
  const Axis a = g->axes.at[axis].axis;
  const char *name = arena_printf(&g->cx->scratch, "%s_row", a.name);
  uint32_t row = grad_axis(g, name, AX_PAR, a.extent);
  Gid to = grad_index(g, row);
  g->turned |= grad_bit(row);
  s->v = grad_moved(g, s->v, axis, to);
  for (uint32_t i = 0; i < s->n; i++)
    s->index[i] = grad_moved(g, s->index[i], axis, to);
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
  uint32_t *axis = NEWN(g->arena, uint32_t, g->grads.n + 1);
  for (uint32_t i = 0; i < g->grads.n; i++) {
    Gid products = outer_in(&w, g->grads.at[i].v);
    axis[i] =
        products ? matrix_axis(&w, &g->grads.at[i], products) : UINT32_MAX;
    if (axis[i] != UINT32_MAX) find(&w, products, seen);
  }
  for (uint32_t i = 0; i < g->grads.n; i++)
    g->grads.at[i].v = of_made(&w, g->grads.at[i].v);
  for (uint32_t i = 0; i < g->grads.n; i++)
    if (axis[i] != UINT32_MAX) use_rows(g, &g->grads.at[i], axis[i]);
}
