// The gradient of what each row and key have for themselves, as a bias of
// pairs:
//
//   before  axes(q par Sq, k par Sk, d vec 64)
//           %s = dot(load(%Q, %q, %d), load(%K, %k, %d)) : f32{q,k}
//           store(%g_pair, %s, %q, %k)
//   after   axes(q par Sq, block par (Sk + 63) // 64, in vec 64, d vec 64)
//           %k = add(mul(%block, 64), %in)
//           %y = load(%K, min(%k, Sk - 1), %d) : bf16{block,in,d}
//           %s = dot(load(%Q, %q, %d), %y) : f32{q,block,in}
//           store(%g_pair, %s, %q, %k, lt(%k, Sk)) {masked}
//
// No sum over keys is there, whose tiles would be products of matrices: a task
// would have one row, and read all of its keys' vectors for it. A block of keys
// is a matrix that a tile of rows is multiplied by. Axes that are summed
// together, as batches and windows, are one, so that parts of it are tasks
// where there are few. Not where running sums go along the keys, and not where
// what shows them differs in what is summed, as lists of each head do. GPUs.
#include "passes/attn/grad.h"
#include "passes/attn/grad_emit.h"
#include "passes/support/cost.h"

typedef struct Pairs {
  Grad *g;
  uint64_t vecs, keys;
  bool *seen;
} Pairs;

static bool one(uint64_t set) {
  return set && !(set & (set - 1));
}

static uint32_t first_of(uint64_t set) {
  uint32_t i = 0;
  while (!(set >> i & 1)) i++;
  return i;
}

// Is x made of a sum over vectors of products of what has that key and no row
// by what has rows and not the key?
static bool multiplies(const Pairs *p, Gid x, uint64_t key, uint64_t rows) {
  const GradNode *n = grad_at(p->g, x);
  if (p->seen[x] || !(n->axes & key)) return false;
  p->seen[x] = true;
  const GradNode *by = n->n ? grad_at(p->g, n->arg[0]) : NULL;
  if (n->code == OP_REDUCE && one(n->over & p->vecs) && by->code == OP_MUL) {
    uint64_t a = grad_at(p->g, by->arg[0])->axes,
             b = grad_at(p->g, by->arg[1])->axes;
    uint64_t of = a & key ? b : a, to = a & key ? a : b;
    if (!(of & key) && (of & rows & ~to)) return true;
  }
  for (uint32_t i = 0; i < n->n; i++)
    if (multiplies(p, grad_at(p->g, x)->arg[i], key, rows)) return true;
  return false;
}

// Is x made of a running sum along that key? Its block has one of its own.
static bool runs(const Pairs *p, Gid x, uint64_t key) {
  const GradNode *n = grad_at(p->g, x);
  if (p->seen[x] || !(n->axes & key)) return false;
  p->seen[x] = true;
  if (n->code == OP_SCAN && (n->over & key)) return true;
  for (uint32_t i = 0; i < n->n; i++)
    if (runs(p, grad_at(p->g, x)->arg[i], key)) return true;
  return false;
}

// Is what shows a key the same wherever a pair is summed?
static bool shows_alike(const Grad *g, uint64_t key, uint64_t axes) {
  Gid seen = g->domain[first_of(key)];
  return !seen || !(grad_at(g, seen)->axes & ~axes);
}

// The axis of keys of the pairs that s stores, or UINT32_MAX.
static uint32_t key_of(const Pairs *p, const GradStore *s) {
  const Grad *g = p->g;
  uint64_t axes = grad_store_axes(g, s) & ~p->vecs, key = axes & p->keys;
  bool plain = false;
  if (!one(key) || (grad_at(g, s->v)->axes & p->vecs) || s->mask ||
      s->physical || s->outer || !shows_alike(g, key, axes))
    return UINT32_MAX;
  for (uint32_t i = 0; i < s->n; i++) {
    const GradNode *x = grad_at(g, s->index[i]);
    if (!(x->axes & key)) continue;
    if (plain || x->code != OP_INDEX) return UINT32_MAX;
    plain = true;
  }
  memset(p->seen, 0, g->nodes.n * sizeof *p->seen);
  bool found = plain && multiplies(p, s->v, key, axes & ~key);
  memset(p->seen, 0, g->nodes.n * sizeof *p->seen);
  found = found && !runs(p, s->v, key);
  return found ? first_of(key) : UINT32_MAX;
}

// ---------------------------------------------------------------- sums
static bool is_one_sum(const Pairs *p, const GradNode *n, uint64_t *axes) {
  const Grad *g = p->g;
  *axes = n->over & ~p->vecs;
  bool several = *axes & (*axes - 1);
  if (n->code != OP_REDUCE || n->attr != RK_SUM || !several ||
      (*axes & p->keys) || (n->over & p->vecs))
    return false;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if ((*axes & grad_bit(i)) && g->domain[i]) return false;
  return true;
}

// The axes of a sum as one, of which parts may be tasks of their own.
static Gid one_axis(Pairs *p, GradNode n, uint64_t axes) {
  Grad *g = p->g;
  DimTab *d = &g->m->dims;
  Dim size = dim_const(d, 1);
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (axes & grad_bit(i))
      size = dim_bin(d, DIM_MUL, size, g->axes.at[i].axis.extent);
  uint32_t all = grad_axis(g, "all", AX_PAR, size);
  Gid x = n.arg[0], at = grad_index(g, all);
  for (uint32_t i = g->axes.n; i-- > 0;) {
    if (!(axes & grad_bit(i))) continue;
    Gid many = grad_dim(g, g->axes.at[i].axis.extent);
    bool first = !(axes & (grad_bit(i) - 1));
    x = grad_moved(g, x, i, first ? at : grad_2(g, OP_MOD, at, many));
    at = grad_2(g, OP_FLOORDIV, at, many);
  }
  return grad_sum(g, x, grad_bit(all), (n.points & ~axes) | grad_bit(all));
}

// x, whose sums are over one axis each, of points where `seen` holds; 0: all.
static Gid sums_of(Pairs *p, Gid x, Gid seen) {
  Grad *g = p->g;
  GradNode n = *grad_at(g, x);
  uint64_t axes;
  if (x < g->forward || n.code == OP_LOAD || grad_read_of(g, x)) return x;
  Gid *args = NEWN(g->arena, Gid, n.n + 1);
  if (n.code == OP_REDUCE && (n.over & ~p->vecs)) {
    args[0] = seen ? grad_or_0(g, seen, n.arg[0]) : n.arg[0];
    n.arg = args;
    return is_one_sum(p, &n, &axes) ? one_axis(p, n, axes)
                                    : grad_put(g, n, args);
  }
  if (!(op_info(n.code)->flags & OPF_ELEM)) return x;
  for (uint32_t i = 0; i < n.n; i++) args[i] = sums_of(p, n.arg[i], seen);
  return grad_put(g, n, args);
}

// ---------------------------------------------------------------- blocks
static void in_blocks(Pairs *p, GradStore *s, uint32_t key) {
  Grad *g = p->g;
  DimTab *d = &g->m->dims;
  Dim extent = g->axes.at[key].axis.extent;
  Dim many = dim_ceildiv(d, extent, HW_GROUP_ROWS);
  uint32_t block = grad_axis(g, "block", AX_PAR, many);
  g->front |= grad_bit(block);
  uint32_t in = grad_axis(g, "in", AX_VEC, dim_const(d, HW_GROUP_ROWS));
  g->front |= grad_bit(in);  // of a block's vectors keys are rows, as in memory
  Gid which = grad_index(g, block), column = grad_index(g, in);
  Gid many_keys = grad_int(g, HW_GROUP_ROWS);
  Gid at = grad_2(g, OP_ADD, grad_2(g, OP_MUL, which, many_keys), column);
  Gid end = grad_dim(g, extent);
  Gid last = grad_2(g, OP_SUB, end, grad_int(g, 1));
  Gid inside = grad_2(g, OP_MIN, at, last);
  Gid seen = g->domain[key] ? grad_moved(g, g->domain[key], key, inside) : 0;
  const GradNode *made = grad_at(g, s->v);
  s->v = made->code == GRAD_MADE ? made->arg[0] : s->v;
  s->v = grad_moved(g, s->v, key, inside);
  bool outside = seen && !(grad_at(g, seen)->axes & ~grad_at(g, s->v)->axes);
  if (outside) s->v = grad_or_0(g, seen, s->v);
  s->v = sums_of(p, s->v, outside ? 0 : seen);
  s->mask = grad_2(g, OP_LT, at, end);
  for (uint32_t i = 0; i < s->n; i++)
    s->index[i] = grad_moved(g, s->index[i], key, at);
}

void grad_pairs(Grad *g, GradStore *s) {
  Pairs p = {g, grad_role(g, AX_VEC), grad_role(g, AX_KEY), NULL};
  if (g->walks.n) return;
  p.seen = NEWN(g->arena, bool, g->nodes.n);
  uint32_t key = key_of(&p, s);
  if (key != UINT32_MAX) in_blocks(&p, s, key);
}
