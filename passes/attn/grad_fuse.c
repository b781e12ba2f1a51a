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
// place of seven. What is added up is workspace of f32. On a CPU one task has
// all keys of its rows (passes/tile/adds.c), so sums have one order. On sm_90a
// tasks add in any order, where that is allowed (`--any-order`): products of
// 16-bit floats whose sums are in registers, beside scores of a step.
#include "passes/attn/grad.h"
#include "passes/support/cost.h"

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

// Do rows of x lie in `quads`, whole blocks of them? Its last axes are then
// those of rows and vectors.
static bool lie_in_quads(const Fuse *f, Gid x, Dim *shape, uint32_t n) {
  DimTab *d = &f->g->m->dims;
  uint64_t axes = grad_at(f->g, x)->axes & f->all & ~f->outer;
  uint32_t last = 0, row = 0;
  int64_t cols;
  for (uint32_t i = 0; i < f->g->axes.n; i++) {
    if (!(grad_at(f->g, x)->axes & grad_bit(i))) continue;
    if (grad_bit(i) & f->vecs) last = i;
    else row = i;
  }
  if (n < 2 || last < row || !(axes & grad_bit(row)) ||
      !dim_is_const(d, shape[n - 1], &cols) || cols % (HW_BLOCK / 2))
    return false;
  Dim blocks = dim_ceildiv(d, shape[n - 2], HW_BLOCK);
  shape[n - 2] = dim_bin(d, DIM_MUL, blocks, dim_const(d, HW_BLOCK));
  return true;
}

// The sum x, added up in workspace: its load.
static Gid added(Fuse *f, const Made *of, Gid x) {
  Grad *g = f->g;
  uint64_t known;
  if (map_get(&f->done, x, &known)) return (Gid)known;
  Dim shape[8];
  GradStore s = {.v = x, .outer = f->outer, .span = of->span};
  s.n = grad_coordinates(g, grad_at(g, x)->axes, s.index, shape);
  bool quads =
      g->opt->target->kind == TARGET_GPU && lie_in_quads(f, x, shape, s.n);
  const char *name =
      arena_printf(g->m->arena, "%s.sum%u", of->name, g->tensors.n);
  GradTensor t = {.name = intern(&g->cx->names, name),
                  .from = GF_MADE,
                  .read = true,
                  .type = type_tensor(grad_kept(g, x), s.n, shape)};
  t.type.quads = quads;
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

// Registers of a thread that hold vectors of v in a tile of a group's rows; too
// many where the extents are open.
static int64_t regs_of(const Fuse *f, Gid v) {
  const Grad *g = f->g;
  uint64_t axes = grad_at(g, v)->axes & f->vecs;
  int64_t n = HW_GROUP_ROWS / 2, lo, hi;
  for (uint32_t i = 0; i < g->axes.n; i++) {
    if (!(axes & grad_bit(i))) continue;
    dim_bounds(&g->m->dims, g->axes.at[i].axis.extent, &lo, &hi);
    n *= lo == hi ? hi : 2 * HW_GROUP_THREADS;
  }
  return n / HW_GROUP_ROWS;
}

static bool is_of_16_bits(const Fuse *f, Gid x) {
  const GradNode *n = grad_at(f->g, x);
  bool vec = n->code == OP_LOAD && (n->axes & f->vecs);
  if (vec) return dtype_is_float16(n->dtype);
  for (uint32_t i = 0; i < n->n; i++)
    if (!is_of_16_bits(f, n->arg[i])) return false;
  return true;
}

// Has each of two groups half of the columns of x, whole panels of a tile?
static bool is_halved(const Fuse *f, Gid x) {
  const Grad *g = f->g;
  uint64_t axes = grad_at(g, x)->axes & f->vecs;
  int64_t n = 1, lo, hi;
  for (uint32_t i = 0; i < g->axes.n; i++) {
    if (!(axes & grad_bit(i))) continue;
    dim_bounds(&g->m->dims, g->axes.at[i].axis.extent, &lo, &hi);
    n *= lo == hi ? lo : 1;
  }
  return n % (2 * HW_PANEL) == 0;
}

// Has a GPU's thread room for the sums of the kernel `of` beside scores of a
// step of 128 rows, or of 64 rows where groups have halves of x's columns
// (passes/hopper/step_halves.c)?
static bool has_room(const Fuse *f, const Made *of, const Made *x) {
  const Target *t = f->g->opt->target;
  int64_t regs = COST_TILE_OTHER_REGS;
  if (t->kind == TARGET_CPU) return true;
  for (uint32_t i = 0; i < f->made.n; i++) {
    const Made *y = &f->made.at[i];
    if (y != x && y->outer == of->outer) regs += regs_of(f, y->v);
  }
  int64_t left = target_team(2, 6)->computes - regs;
  bool room = left >= 2 * COST_FUSED_STEP_REGS ||
              (left >= COST_FUSED_STEP_REGS && is_halved(f, x->v));
  return room && is_of_16_bits(f, x->v);
}

static void fuse(Fuse *f, const Made *x) {
  Grad *g = f->g;
  if (!summed(f, x->v)) return;
  for (uint32_t i = 0; i < f->made.n; i++) {
    const Made *of = &f->made.at[i];
    if (of == x || !has_points(f, of, x) || !is_made_of(f, x->v, x->outer) ||
        sums_have_own(f, x->v, summed(f, x->v)) || !has_room(f, of, x))
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

// A CPU's task has all keys of its rows. Tasks of a GPU add in any order.
static bool takes_adds(const Grad *g) {
  const Target *t = g->opt->target;
  return t->kind == TARGET_CPU || (t->gpu.hopper && g->opt->any_order);
}

void grad_fuse(Grad *g) {
  Fuse f = {.g = g, .keys = grad_role(g, AX_KEY), .vecs = grad_role(g, AX_VEC)};
  bool *seen = NEWN(g->arena, bool, g->nodes.n);
  f.done.arena = f.sums.arena = g->arena;
  if (!takes_adds(g) || g->walks.n) return;
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
