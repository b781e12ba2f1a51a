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
// a product of matrices over what are keys: on GPUs of any such sum, also for a
// matrix of each head or behind the sum over keys.
//
//   before  g_W[m, d] = sum over q of X[q, d] * (sum over k of ds * K[k, m])
//   after   rows: a.made[q, m] = sum over k of ds * K[k, m]
//           g_W[r, d] = sum over q of a.made[q, r] * X[q, d]
//
// A longer sum whose products are those of a sum that is made, times others, is
// one of what is made: so the gradients of a norm, and of weights behind it,
// have no products of their own.
//
//   before  g_w[d] = sum over q, k of ds * K[k, d] * Q[q, d]
//   after   g_w[d] = sum over q of a.made[q, d] * Q[q, d]
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

// What x is made of, is made: of a multiple, what that is one of.
static void find(Flow *w, Gid x, bool *seen) {
  if (!w->sums[x] || seen[x]) return;
  seen[x] = true;
  const GradNode n = *grad_at(w->g, x);
  w->made[x] = w->is[x] && n.code != OP_MUL && n.code != OP_NEG;
  for (uint32_t i = 0; i < n.n && !w->made[x]; i++) find(w, n.arg[i], seen);
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
  for (uint32_t i = 0; i < n.n && !w->made[x]; i++) {
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

static bool is_gpu(const Grad *g) {
  return g->opt->target->kind == TARGET_GPU;
}

// The axes that the indices of s are, one each; 0: they are others. On a CPU,
// where a task walks all queries of a head, also if a matrix is a head's.
static uint64_t plain_axes(const Grad *g, const GradStore *s) {
  uint64_t axes = 0, vecs = grad_role(g, AX_VEC);
  for (uint32_t i = 0; i < s->n; i++) {
    const GradNode *n = grad_at(g, s->index[i]);
    if (n->code != OP_INDEX || (axes & n->axes)) return 0;
    axes |= n->axes;
  }
  return is_gpu(g) || !(axes & ~vecs) ? axes : 0;
}

// Has s, whose indices are axes, one in common with a flow that it multiplies?
static bool is_matrix(const Flow *w, const GradStore *s, Gid products) {
  uint64_t axes = plain_axes(w->g, s), flow = flow_axis(w, products);
  return !(flow & (flow - 1)) && (axes & flow);
}

// ---------------------------------------------------------------- rows
// A vector that is loaded as it is.
static bool is_plain(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  while (n->code == OP_CAST) n = grad_at(g, n->arg[0]);
  return n->code == OP_LOAD;
}

// The axis, of these, of a factor of x that is not loaded as it is.
static uint64_t axes_made(const Grad *g, Gid x, uint64_t axes) {
  const GradNode *n = grad_at(g, x);
  if (n->code == OP_MUL)
    return axes_made(g, n->arg[0], axes) | axes_made(g, n->arg[1], axes);
  return is_plain(g, x) ? 0 : n->axes & axes;
}

// The sum over rows or keys that x is, but for what is done to each element.
static Gid sum_in(const Grad *g, Gid x, uint64_t vecs) {
  const GradNode *n = grad_at(g, x);
  if (n->code == OP_REDUCE)
    return n->attr == RK_SUM && (n->over & ~vecs) ? x : 0;
  Gid found = 0;
  for (uint32_t i = 0; i < n->n && !found && n->code != OP_LOAD; i++)
    found = sum_in(g, n->arg[i], vecs);
  return found;
}

uint32_t grad_row_axis(Grad *g, uint32_t axis) {
  const Axis a = g->axes.at[axis].axis;
  const char *name = arena_printf(&g->cx->scratch, "%s_row", a.name);
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (g->axes.at[i].of == UINT32_MAX &&
        !strcmp(g->axes.at[i].axis.name, name))
      return i;
  return grad_axis(g, name, AX_PAR, a.extent);
}

// The axes of vectors that indices of s are, one each, whatever others are made
// of, as heads of groups are.
static uint64_t vector_axes(const Grad *g, const GradStore *s) {
  GradStore own = {0};
  uint64_t vecs = grad_role(g, AX_VEC), others = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    uint64_t axes = grad_at(g, s->index[i])->axes;
    if (axes & vecs) own.index[own.n++] = s->index[i];
    else others |= axes;
  }
  return is_gpu(g) || !others ? plain_axes(g, &own) : 0;
}

// Of a matrix that sums products of vectors one axis counts rows, as they do
// where they are made: a product of matrices, whose rows are tasks.
void grad_use_rows(Grad *g, GradStore *s) {
  uint64_t vecs = grad_role(g, AX_VEC), axes = vector_axes(g, s);
  Gid sum = axes & (axes - 1) && !(axes & g->local) ? sum_in(g, s->v, vecs) : 0;
  if (!sum || (axes & ~grad_at(g, sum)->axes)) return;
  uint64_t made = axes_made(g, grad_at(g, sum)->arg[0], axes);
  if (made && made != axes) axes = made;
  else if (!is_gpu(g)) return;
  uint32_t axis = 0;
  while (!(axes >> axis & 1)) axis++;
  Gid to = grad_index(g, grad_row_axis(g, axis));
  s->v = grad_moved(g, s->v, axis, to);
  for (uint32_t i = 0; i < s->n; i++)
    s->index[i] = grad_moved(g, s->index[i], axis, to);
}

// ---------------------------------------------------------------- longer sums
enum { MAX_LONGER = 16 };

typedef struct Longer {
  Grad *g;
  Vec(Gid) flows;  // sums that are made
  Map done;
} Longer;

typedef struct Product {
  uint32_t n;
  Gid at[MAX_LONGER];
  bool minus, fails;
} Product;

static void factors_of(const Grad *g, Gid x, Product *p) {
  const GradNode *n = grad_at(g, x);
  if (p->fails) return;
  if (n->code == OP_MUL || n->code == OP_NEG) {
    p->minus ^= n->code == OP_NEG;
    for (uint32_t i = 0; i < n->n; i++) factors_of(g, n->arg[i], p);
    return;
  }
  p->fails |= p->n == MAX_LONGER;
  if (!p->fails) p->at[p->n++] = x;
}

// p without the factors of `part`; false: it has not all of them.
static bool take_out(Product *p, const Product *part) {
  for (uint32_t i = 0; i < part->n; i++) {
    uint32_t k = 0;
    while (k < p->n && p->at[k] != part->at[i]) k++;
    if (k == p->n) return false;
    p->at[k] = p->at[--p->n];
  }
  p->minus ^= part->minus;
  return !p->fails && !part->fails;
}

// The sum x as one of a sum that is made; 0: it is none.
static Gid sum_of_flow(Longer *l, Gid x, Gid flow) {
  Grad *g = l->g;
  GradNode n = *grad_at(g, x);
  const GradNode f = *grad_at(g, flow);
  Product all = {0}, part = {0};
  factors_of(g, n.arg[0], &all);
  factors_of(g, f.arg[0], &part);
  if ((f.over & ~n.over) || f.over == n.over || (f.axes & ~n.points) ||
      !take_out(&all, &part))
    return 0;
  Gid y = flow;
  for (uint32_t i = 0; i < all.n; i++) {
    if (grad_at(g, all.at[i])->axes & f.over) return 0;
    y = grad_2(g, OP_MUL, y, all.at[i]);
  }
  if (all.minus) y = grad_1(g, OP_NEG, y);
  n.over &= ~f.over, n.points &= ~f.over;
  return grad_put(g, n, &y);
}

static Gid of_flows(Longer *l, Gid x) {
  Grad *g = l->g;
  const GradNode n = *grad_at(g, x);
  uint64_t known;
  if (x < g->forward || !n.n || grad_is_made(n.code)) return x;
  if (map_get(&l->done, x, &known)) return (Gid)known;
  Gid y = 0, *arg = NEWN(g->arena, Gid, n.n);
  bool sum = n.code == OP_REDUCE && n.attr == RK_SUM, same = true;
  for (uint32_t i = 0; i < l->flows.n && sum && !y; i++)
    y = sum_of_flow(l, x, l->flows.at[i]);
  for (uint32_t i = 0; i < n.n && !y; i++) {
    arg[i] = of_flows(l, n.arg[i]);
    same &= arg[i] == n.arg[i];
  }
  if (!y) y = same ? x : grad_put(g, n, arg);
  map_put(&l->done, x, y);
  return y;
}

// ---------------------------------------------------------------- all
static Flow marked(Grad *g) {
  uint32_t n = g->nodes.n;
  Flow w = {.g = g, .vecs = grad_role(g, AX_VEC), .done.arena = g->arena};
  w.sums = NEWN(g->arena, bool, n);
  w.is = NEWN(g->arena, bool, n);
  w.made = NEWN(g->arena, bool, n);
  mark(&w);
  return w;
}

// What flows to vectors that are loaded at several coordinates.
static void find_turned(Flow *w) {
  Grad *g = w->g;
  bool *seen = NEWN(g->arena, bool, g->nodes.n), steps = grad_has_steps(g);
  for (uint32_t i = 0; i < g->grads.n; i++)
    for (uint32_t k = 0; k < g->grads.n; k++)
      if (!steps && is_turned(w, &g->grads.at[i], &g->grads.at[k]))
        find(w, g->grads.at[i].v, seen);
}

static void use_flows(Grad *g) {
  Flow w = marked(g);
  Longer l = {.g = g, .done.arena = g->arena};
  find_turned(&w);
  for (Gid x = g->forward, n = g->nodes.n; x < n; x++)
    if (w.made[x] && grad_at(g, x)->code == OP_REDUCE)
      vec_push(g->arena, &l.flows, x);
  for (uint32_t i = 0; i < g->grads.n && l.flows.n; i++)
    g->grads.at[i].v = of_flows(&l, g->grads.at[i].v);
}

void grad_flow(Grad *g) {
  use_flows(g);
  Flow w = marked(g);
  find_turned(&w);
  bool *seen = NEWN(g->arena, bool, g->nodes.n);
  for (uint32_t i = 0; i < g->grads.n; i++) {
    Gid products = outer_in(&w, g->grads.at[i].v);
    if (products && is_matrix(&w, &g->grads.at[i], products))
      find(&w, products, seen);
  }
  for (uint32_t i = 0; i < g->grads.n; i++)
    g->grads.at[i].v = of_made(&w, g->grads.at[i].v);
}
