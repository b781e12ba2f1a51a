// grad, part 5: what a recurrence that goes by chunks has made in front.
//
//   before  the walks, and kernels of chunks, read k = K / |K|, exp(..) * M
//   after   a kernel in front makes k, and the logarithms of decays; all others
//           read these as they lie in memory
//
// Where each row has a decay and writes erase, two walks of the steps, phases
// in front of these and the kernels of chunks compute such vectors, each along
// rows and along columns of tiles. Norms need all rows of a step, of which
// kernels of chunks have some; three norms are more than one kernel has
// registers for. Of steps whose turns are steps (pass join_turns) a step's own
// vectors, and what flows to its reads, are made for each turn, and norms
// beside them: no box has such rows. Vectors have 16 bits, as the products that
// read them.
#include "passes/attn/grad_walk.h"
#include "passes/support/cost.h"

#include <math.h>

// What a number of a step multiplies, or what was rounded: a load, or more.
static Gid bare(const GradAdjoint *a, Gid x) {
  const Grad *g = a->g;
  const GradNode *n = grad_at(g, x);
  uint64_t vectors = a->w->row | a->w->col;
  if (n->code == OP_CAST || n->code == OP_NEG) return bare(a, n->arg[0]);
  for (uint32_t i = 0; n->code == OP_MUL && i < 2; i++)
    if (!(grad_at(g, n->arg[i])->axes & vectors)) return bare(a, n->arg[!i]);
  return x;
}

// Does x sum vectors, as a norm does?
static bool sums_vectors(const GradAdjoint *a, Gid x) {
  const GradNode *n = grad_at(a->g, x);
  if (n->code == OP_REDUCE) return n->over & (a->w->row | a->w->col);
  bool some = false;
  for (uint32_t i = 0; i < n->n && n->code != GRAD_RESULT; i++)
    some |= sums_vectors(a, n->arg[i]);
  return some;
}

// How many vectors are divided by their lengths.
static uint32_t norms_of(const GradAdjoint *a) {
  Gid found[MAX_ITEMS];
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->w->n; i++) {
    Gid x = a->w->item[i].x;
    bool is_new = a->w->item[i].kind != GI_DECAY && sums_vectors(a, x);
    x = bare(a, x);
    for (uint32_t k = 0; k < n; k++) is_new &= found[k] != x;
    if (is_new) found[n++] = x;
  }
  return n;
}

static Gid put_made(Grad *g, Gid x, int64_t attr, const char *name) {
  GradNode n = {.code = GRAD_MADE,
                .dtype = DT_F32,
                .axes = grad_at(g, x)->axes,
                .attr = attr,
                .hint = name,
                .n = 1};
  return grad_put(g, n, &x);
}

// However it was rounded: by reads and writes alike.
static Gid made(const GradAdjoint *a, Gid x) {
  while (grad_at(a->g, x)->code == OP_CAST) x = grad_at(a->g, x)->arg[0];
  return put_made(a->g, x, GRAD_NARROW, "vector");
}

// What is known of it stays known.
static Gid made_decay(const GradAdjoint *a, Gid x) {
  Grad *g = a->g;
  Gid v = put_made(g, x, 0, "decay");
  if (isfinite(a->w->least)) v = grad_2(g, OP_MAX, v, grad_num(g, a->w->least));
  return a->w->falling ? grad_2(g, OP_MIN, v, grad_num(g, 0)) : v;
}

// Is x made of a vector that each turn of a step reads again (pass join_turns),
// whose rows no box has?
static bool is_spread(const GradAdjoint *a, Gid x) {
  const Grad *g = a->g;
  const GradNode *n = grad_at(g, x);
  uint32_t axis;
  int64_t turns;
  bool steps = false, each = false;
  for (uint32_t i = 0; n->code == OP_LOAD && i < n->n; i++) {
    const GradNode *at = grad_at(g, n->arg[i]);
    if (!grad_turns_of(g, at, &axis, &turns)) continue;
    steps = true;
    each |= at->code == OP_MOD;
  }
  if (n->code == OP_LOAD)
    return steps && !each && (n->axes & (a->w->row | a->w->col));
  for (uint32_t i = 0; i < n->n && n->code != GRAD_RESULT; i++)
    if (is_spread(a, n->arg[i])) return true;
  return false;
}

// x, of `to` in place of `in`, what numbers of a step multiply.
static Gid dressed(const GradAdjoint *a, Gid x, Gid in, Gid to) {
  Grad *g = a->g;
  const GradNode n = *grad_at(g, x);
  if (x == in) return to;
  if (n.code != OP_MUL)
    return n.code == OP_NEG ? grad_1(g, OP_NEG, dressed(a, n.arg[0], in, to))
                            : dressed(a, n.arg[0], in, to);
  uint64_t vectors = a->w->row | a->w->col;
  uint32_t i = (grad_at(g, n.arg[0])->axes & vectors) != 0;
  return grad_2(g, OP_MUL, dressed(a, n.arg[!i], in, to), n.arg[i]);
}

// What flows to reads, of such vectors.
static void make_cotangents(const GradAdjoint *a) {
  Grad *g = a->g;
  for (uint32_t k = 1; k <= a->w->nreads; k++) {
    Gid *c = &g->adjoint[a->w->result[k]];
    if (!*c || !is_spread(a, *c)) continue;
    *c = dressed(a, *c, bare(a, *c), made(a, bare(a, *c)));
  }
}

void grad_make_front(GradAdjoint *a) {
  Grad *g = a->g;
  GradWalk *w = NEW(g->arena, GradWalk);
  bool rows = false, erases = false, some = false, spread = false;
  *w = *a->w;
  for (uint32_t i = 0; i < w->n; i++) {
    erases |= a->eraser[i] != 0;
    spread |= is_spread(a, w->item[i].x);
    rows |= w->item[i].kind == GI_DECAY &&
            (grad_at(g, w->item[i].x)->axes & w->row);
  }
  a->norms = norms_of(a) > COST_GRAD_NORMS && !grad_chunks_long(g, w) &&
             w->n - 1 <= COST_GRAD_ROWS_ITEMS;
  for (uint32_t i = 0; i < w->n; i++) {
    GradItem *item = &w->item[i];
    if (!(grad_at(g, item->x)->axes & w->row)) continue;
    bool is_load = grad_at(g, bare(a, item->x))->code == OP_LOAD;
    bool norm = sums_vectors(a, item->x);
    if (!((rows || a->norms || spread) && norm) &&
        !(rows && erases && !is_load) && !is_spread(a, item->x))
      continue;
    item->x =
        item->kind == GI_DECAY ? made_decay(a, item->x) : made(a, item->x);
    some = true;
  }
  make_cotangents(a);
  if (!some) return;
  if (erases) grad_walk_close(g, w);
  a->w = w;
}
