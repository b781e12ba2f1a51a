// grad, part 7: sums over keys in the kernel of the keys.
//
//   before  keys:    g_K[k] = sum over q of ds * Q[q], ..
//           queries: g_Q[q] = scale * sum over k of ds * K[k]
//   after   rows:    sum.part[q] = 0
//           keys:    g_K[k] = sum over q of ds * Q[q], ..
//                    sum.part[q] += sum over k of ds * K[k]
//           queries: g_Q[q] = scale * sum.part[q]
//
// Both kernels make all points; now one does: five products of matrices in
// place of seven. What is added up is workspace of f32. One task has all keys
// of its rows (passes/tile/adds.c), so sums have one order.
#include "passes/attn/grad.h"

// What a kernel stores, or hands to others.
typedef struct Made {
  Gid v;
  uint64_t outer;  // the axes that its kernel has outside
  GradStore *s;    // a gradient, or NULL: node's
  Gid node;        // GRAD_MADE
  const char *name;
  Span span;
} Made;

typedef struct Fuse {
  Grad *g;
  Vec(Made) made;
  uint64_t keys, vecs;
  uint64_t outer, all;  // of a kernel of keys: outside; its points' axes
  Map done;             // by Gid: what is read in its place
  Map sums;             // by Gid: summed()
} Fuse;

// Is x a vector that is summed over keys or rows? Sums that are numbers are
// rows, which other kernels make; what the program has, it stores.
static bool is_sum(const Fuse *f, Gid x) {
  const GradNode *n = grad_at(f->g, x);
  return x >= f->g->forward && n->code == OP_REDUCE && (n->over & ~f->vecs) &&
         (n->axes & f->vecs);
}

// The axes that x is summed over last.
static uint64_t summed(Fuse *f, Gid x) {
  const GradNode *n = grad_at(f->g, x);
  uint64_t all = 0;
  if (is_sum(f, x)) return n->over & ~f->vecs;
  if (x < f->g->forward || n->code == OP_REDUCE) return 0;
  if (map_get(&f->sums, x, &all)) return all;
  for (uint32_t i = 0; i < n->n; i++) all |= summed(f, n->arg[i]);
  map_put(&f->sums, x, all);
  return all;
}

// Does the kernel of the keys that `of` has outside make all points of x, which
// sums over these keys?
static bool has_points(Fuse *f, const Made *of, const Made *x) {
  uint64_t over = summed(f, x->v), inner = summed(f, of->v);
  f->outer = of->outer;
  f->all = of->outer | inner;
  bool keys = (of->outer & f->keys) && !(over & ~of->outer);
  return keys && inner && !(over & (over - 1)) && (over & f->keys) &&
         (x->outer | over) == f->all;
}

// Is x made of such sums, and of what a row knows?
static bool is_made_of(const Fuse *f, Gid x, uint64_t at) {
  const GradNode *n = grad_at(f->g, x);
  if (is_sum(f, x)) {
    uint64_t over = n->over & ~f->vecs, own = n->axes & ~f->vecs;
    return n->attr == RK_SUM && (own | over) == f->all;
  }
  if (n->axes & f->keys & ~at) return false;
  if (x < f->g->forward || n->code == OP_REDUCE) return true;
  if (n->code == GRAD_RESULT || n->code == GRAD_MADE || n->code == OP_SCAN)
    return false;
  for (uint32_t i = 0; i < n->n; i++)
    if (!is_made_of(f, n->arg[i], at)) return false;
  return true;
}

// Is x made of sums over the kernel's keys that no row of the program has, as
// for each of other keys? The kernel cannot make them beside its own.
static bool has_own_sums(const Fuse *f, Gid x, uint64_t keys, bool *seen) {
  const GradNode *n = grad_at(f->g, x);
  if (seen[x]) return false;
  seen[x] = true;
  if (n->code == OP_REDUCE && !(n->axes & f->keys)) return false;
  if (n->code == OP_REDUCE && (n->over & keys)) return true;
  for (uint32_t i = 0; i < n->n; i++)
    if (has_own_sums(f, n->arg[i], keys, seen)) return true;
  return false;
}

static bool sums_have_own(const Fuse *f, Gid x, uint64_t keys) {
  bool *seen = NEWN(f->g->arena, bool, f->g->nodes.n);
  const GradNode *n = grad_at(f->g, x);
  if (is_sum(f, x)) return has_own_sums(f, n->arg[0], keys, seen);
  if (x < f->g->forward || n->code == OP_REDUCE) return false;
  for (uint32_t i = 0; i < n->n; i++)
    if (sums_have_own(f, n->arg[i], keys)) return true;
  return false;
}

// The sum x, added up in workspace: its load.
static Gid added(Fuse *f, const Made *of, Gid x) {
  Grad *g = f->g;
  uint64_t known;
  if (map_get(&f->done, x, &known)) return (Gid)known;
  Dim shape[8];
  GradStore s = {.v = x, .outer = f->outer, .span = of->span};
  s.n = grad_coordinates(g, grad_at(g, x)->axes, s.index, shape);
  const char *name =
      arena_printf(g->m->arena, "%s.sum%u", of->name, g->tensors.n);
  GradTensor t = {.name = intern(&g->cx->names, name),
                  .from = GF_MADE,
                  .read = true,
                  .type = type_tensor(grad_kept(g, x), s.n, shape)};
  s.tensor = grad_tensor(g, t);
  GradStore zero = s;
  zero.v = grad_num(g, 0);
  zero.outer = 0;
  vec_push(g->arena, &g->adds, zero);
  vec_push(g->arena, &g->adds, s);
  Gid y = grad_load(g, s.tensor, s.index, s.n);
  map_put(&f->done, x, y);
  return y;
}

// x with loads in place of its sums.
static Gid of_added(Fuse *f, const Made *of, Gid x) {
  const GradNode n = *grad_at(f->g, x);
  if (is_sum(f, x)) return added(f, of, x);
  if (!n.n || !summed(f, x)) return x;
  Gid *arg = NEWN(f->g->arena, Gid, n.n);
  for (uint32_t i = 0; i < n.n; i++) arg[i] = of_added(f, of, n.arg[i]);
  return grad_put(f->g, n, arg);
}

static void fuse(Fuse *f, const Made *x) {
  Grad *g = f->g;
  if (!summed(f, x->v)) return;
  for (uint32_t i = 0; i < f->made.n; i++) {
    const Made *of = &f->made.at[i];
    if (of == x || !has_points(f, of, x) || !is_made_of(f, x->v, x->outer) ||
        sums_have_own(f, x->v, summed(f, x->v)))
      continue;
    Gid v = of_added(f, x, x->v);
    if (x->s) x->s->v = v;
    else map_put(&g->values, x->node, v);
    return;
  }
}

// ---------------------------------------------------------------- what is made
static void find_made(Fuse *f, Gid x, bool *seen);

// What is made at other coordinates is loaded.
static void find_loaded(Fuse *f, const GradNode *n, bool *seen) {
  const Grad *g = f->g;
  for (uint32_t i = 0; n->code == OP_LOAD && i < g->reads.n; i++)
    if (g->reads.at[i].tensor == n->tensor)
      find_made(f, g->reads.at[i].node, seen);
}

static void find_made(Fuse *f, Gid x, bool *seen) {
  const Grad *g = f->g;
  const GradNode n = *grad_at(g, x);
  if (x < g->forward || seen[x]) return;
  seen[x] = true;
  if (n.code == GRAD_MADE && !n.attr)
    vec_push(g->arena, &f->made,
             ((Made){.v = n.arg[0],
                     .outer = n.axes & ~f->vecs,
                     .node = x,
                     .name = n.hint ? n.hint : "flow",
                     .span = g->f->span}));
  find_loaded(f, &n, seen);
  for (uint32_t i = 0; i < n.n; i++) find_made(f, n.arg[i], seen);
}

static bool is_plain(const GradStore *s) {
  return !s->physical && !s->mask && !s->rank && !s->first && !s->alone;
}

void grad_fuse(Grad *g) {
  Fuse f = {.g = g, .keys = grad_role(g, AX_KEY), .vecs = grad_role(g, AX_VEC)};
  bool *seen = NEWN(g->arena, bool, g->nodes.n);
  f.done.arena = f.sums.arena = g->arena;
  if (g->opt->target->kind != TARGET_CPU || g->walks.n) return;
  for (uint32_t i = 0; i < g->grads.n; i++) {
    GradStore *s = &g->grads.at[i];
    find_made(&f, s->v, seen);
    if (is_plain(s))
      vec_push(g->arena, &f.made,
               ((Made){.v = s->v,
                       .outer = grad_store_axes(g, s) & ~f.vecs,
                       .s = s,
                       .name = g->tensors.at[s->tensor].name,
                       .span = s->span}));
  }
  for (uint32_t i = 0; i < f.made.n; i++) fuse(&f, &f.made.at[i]);
}
