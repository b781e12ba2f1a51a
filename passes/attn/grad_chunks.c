// grad, part 5: the adjoint of a walk, by chunks. Of S, the state in front of a
// chunk, and D, the cotangent of the state behind it, all else of the chunk is
// products of matrices, without an order between chunks:
//
//   T_ij = 2 ** (decays behind j, to i) y_i . e_j     where read i sees write j
//   dx_i = 2 ** (decays up to i) S y_i   + sum over j of T_ij b_j
//   db_j = 2 ** (decays behind j) D e_j  + sum over i of T_ij x_i
//   z_j  = 2 ** (decays behind j) D^T b_j + sum over i of P_ij y_i
//
// with y_i the cotangent of what a read gives, e_j what is written, and P_ij as
// T_ij but of x_i . b_j: the gradient of what is written, which the walk of the
// cotangents has found already where writes erase (grad_walk.c): all else is of
// these writes as of any. Two walks over the borders of chunks find S and D;
// where one write of a step erases, those over the steps store them. A
// decay's logarithm has the gradient that grad_gates.c derives, of the same
// tiles:
//
//   phi_t = sum over i >= t of (U_i + sum over j < t of T_ij x_i . b_j)
//           + sum over j < t of V_j + 2 ** (all decays) sum of S D
//
// U_i and V_j are x_i times the first term of dx_i, b_j times that of db_j.
// Where a gradient has a point for each step, the chunk's kernel stores it. Of
// vectors that are too long for one kernel each gradient has its own. Those
// along the rows are made of parts of these, which sum U, V and S D beside them
// (grad_views.c); pass split_vec cuts those along the columns into parts. What
// is a tile of steps is made before, once for all parts.
#include "passes/attn/grad_chunks.h"
#include "passes/support/cost.h"

#include <math.h>

// ---------------------------------------------------------------- what fits
static int64_t elements(const Grad *g, uint64_t axes) {
  int64_t n = 1, lo, hi;
  for (uint32_t i = 0; i < g->axes.n; i++) {
    if (!(axes & grad_bit(i))) continue;
    dim_bounds(&g->m->dims, g->axes.at[i].axis.extent, &lo, &hi);
    n *= lo == hi ? lo : 0;
  }
  return n;
}

// Tiles of 64 of them lie in shared memory. Normalizers have no columns.
static bool is_short(const Grad *g, uint64_t axes, int64_t most) {
  int64_t n = elements(g, axes);
  return !axes || (n > 0 && n % HW_BLOCK == 0 && n <= most);
}

bool grad_chunks_long(const Grad *g, const GradWalk *w) {
  return !is_short(g, w->row, COST_GRAD_CHUNK_VECTOR) ||
         !is_short(g, w->col, COST_GRAD_CHUNK_VECTOR);
}

// Vectors, and those of which kernels of their own make parts.
static bool have_room(const Grad *g, const GradWalk *w) {
  int64_t all = elements(g, w->row) + elements(g, w->col);
  if (!grad_chunks_long(g, w)) return true;
  return is_short(g, w->row, COST_GRAD_CHUNK_ROWS) &&
         elements(g, w->row) % COST_GRAD_CHUNK == 0 &&
         elements(g, w->col) % COST_GRAD_CHUNK == 0 &&
         all <= COST_GRAD_CHUNK_BOTH;
}

// A decay for each row: of short vectors.
static bool fit_halves(const GradAdjoint *a) {
  if (!a->w->col) return false;
  return !grad_chunks_long(a->g, a->w) && a->w->n - 1 <= COST_GRAD_ROWS_ITEMS;
}

bool grad_chunks_fit(const GradAdjoint *a) {
  const Grad *g = a->g;
  const GradWalk *w = a->w;
  const Target *t = g->opt->target;
  uint32_t decays = 0;
  if (t->kind != TARGET_GPU || !t->gpu.hopper || w->limit || !w->row)
    return false;
  if (grad_vectors(g, w->node) != DT_BF16 || !have_room(g, w) ||
      !is_short(g, w->col, COST_GRAD_CHUNK_BOTH))
    return false;
  for (uint32_t i = 0; i < w->n; i++) {
    if (w->item[i].kind != GI_DECAY) continue;
    decays++;
    uint64_t axes = grad_at(g, w->item[i].x)->axes;
    if ((axes & w->col) || ((axes & w->row) && !fit_halves(a))) return false;
  }
  return decays <= 1;
}

// The items of a scalar walk by chunks: of a read in front of the step, a decay
// and what is added.
enum { SCALAR_READ, SCALAR_DECAY, SCALAR_WRITE };

// ---------------------------------------------------------------- steps
Gid grad_chunk_at(const Chunks *c, uint32_t axis) {
  return grad_index(c->g, axis);
}

Gid grad_chunk_product(Grad *g, Gid v, Gid w) {
  return v && w ? grad_2(g, OP_MUL, v, w) : v + w;
}

Gid grad_chunk_plus(Grad *g, Gid v, Gid w) {
  return v && w ? grad_2(g, OP_ADD, v, w) : v + w;
}

static Gid step_at(const Chunks *c, uint32_t local) {
  Grad *g = c->g;
  Gid size = grad_int(g, COST_GRAD_CHUNK);
  Gid in = grad_chunk_at(c, local);
  Gid first = grad_2(g, OP_MUL, grad_chunk_at(c, c->chunk), size);
  return grad_2(g, OP_ADD, first, in);
}

static Gid is_step(const Chunks *c, uint32_t local) {
  Gid end = grad_dim(c->g, c->g->axes.at[c->w->axis].axis.extent);
  return grad_2(c->g, OP_LT, step_at(c, local), end);
}

Gid grad_chunk_as(Grad *g, DType t, Gid v) {
  GradNode n = {.code = OP_CAST, .dtype = t, .n = 1};
  n.axes = grad_at(g, v)->axes;
  return grad_at(g, v)->dtype == t ? v : grad_put(g, n, &v);
}

Gid grad_chunk_narrowed(Grad *g, Gid v) {
  const GradNode *n = grad_at(g, v);
  if (n->code == OP_CAST && grad_at(g, n->arg[0])->dtype == DT_BF16)
    return n->arg[0];
  return grad_chunk_as(g, DT_BF16, v);
}

Gid grad_masked(Grad *g, Gid v, uint32_t local, Gid in) {
  GradNode n = *grad_at(g, v);
  if (!(n.axes & grad_bit(local))) return v;
  if (n.code == OP_LOAD && n.dtype == DT_BF16) {
    Gid zero = grad_chunk_narrowed(g, grad_num(g, 0));
    Gid args[3] = {in, v, zero};
    n = (GradNode){.code = OP_SELECT, .dtype = DT_BF16, .axes = n.axes, .n = 3};
    return grad_put(g, n, args);
  }
  if (n.code == OP_CAST)
    return grad_chunk_as(g, n.dtype, grad_masked(g, n.arg[0], local, in));
  bool sum = n.code == OP_ADD || n.code == OP_SUB, turned = n.code == OP_NEG;
  if (!sum && !turned && n.code != OP_MUL) return grad_or_0(g, in, v);
  Gid first = grad_masked(g, n.arg[0], local, in);
  if (turned) return grad_1(g, n.code, first);
  bool both = sum || first == n.arg[0];
  Gid second = both ? grad_masked(g, n.arg[1], local, in) : n.arg[1];
  // A term that is the same everywhere is not 0 where the other one is.
  if (sum && (first == n.arg[0] || second == n.arg[1]))
    return grad_or_0(g, in, v);
  return grad_2(g, n.code, first, second);
}

static Gid moved(const Chunks *c, Gid v, uint32_t local) {
  v = grad_moved(c->g, v, c->w->axis, step_at(c, local));
  return grad_masked(c->g, v, local, is_step(c, local));
}

static void take_apart(const Chunks *c, Gid x, Scaled *s) {
  Grad *g = c->g;
  const GradNode n = *grad_at(g, x);
  uint64_t vecs = c->w->row | c->w->col;
  if (!(n.axes & vecs)) s->f = grad_chunk_product(g, s->f, x);
  else if (n.code == OP_DIV && !(grad_at(g, n.arg[1])->axes & vecs)) {
    take_apart(c, n.arg[0], s);
    Gid by = grad_2(g, OP_DIV, grad_num(g, 1), n.arg[1]);
    s->f = grad_chunk_product(g, s->f, by);
  } else if (n.code == OP_MUL) {
    take_apart(c, n.arg[0], s);
    take_apart(c, n.arg[1], s);
  } else if (n.code == OP_NEG) {
    take_apart(c, n.arg[0], s);
    s->f = grad_chunk_product(g, s->f, grad_num(g, -1));
  } else s->v = grad_chunk_product(g, s->v, x);
}

// v at the steps of a chunk.
static Scaled vector(const Chunks *c, Gid v, uint32_t local) {
  Scaled s = {0, 0};
  if (!v) return s;
  take_apart(c, v, &s);
  if (!s.v) s.v = grad_num(c->g, 1);
  s.v = moved(c, s.v, local);
  if (s.f) s.f = moved(c, s.f, local);
  return s;
}

// An end: nothing where there is no step, also of what is the same at all of
// them.
Scaled grad_chunk_vector(const Chunks *c, Gid v, uint32_t local, bool ends) {
  Scaled s = vector(c, v, local);
  Grad *g = c->g;
  if (!s.v || !ends) return s;
  uint64_t axes = grad_at(g, s.v)->axes | (s.f ? grad_at(g, s.f)->axes : 0);
  if (axes & grad_bit(local)) return s;
  if (!s.f) s.f = grad_num(g, 1);
  s.f = grad_or_0(g, is_step(c, local), s.f);
  return s;
}

// ---------------------------------------------------------------- decays
Gid grad_chunk_decay(const Chunks *c, uint32_t local) {
  Grad *g = c->g;
  Gid d = grad_moved(g, c->w->item[c->decay].x, c->w->axis, step_at(c, local));
  d = grad_2(g, OP_MAX, d, grad_num(g, -COST_GRAD_LEAST_STEP));
  return grad_or_0(g, is_step(c, local), d);
}

// Is step i in front of k, in the order of the walk?
Gid grad_chunk_before(const Chunks *c, uint32_t i, uint32_t k) {
  bool back = c->w->reverse;
  Gid later = grad_chunk_at(c, back ? i : k);
  return grad_2(c->g, OP_LT, grad_chunk_at(c, back ? k : i), later);
}

static Gid all_decays(const Chunks *c) {
  return grad_sum_all(c->g, grad_chunk_decay(c, c->sum), grad_bit(c->sum));
}

// The decays of the chunk up to step `local`, or those in front of its own.
static Gid upto(const Chunks *c, uint32_t local, bool before) {
  Grad *g = c->g;
  Gid in = before ? grad_chunk_before(c, c->sum, local)
                  : grad_1(g, OP_NOT, grad_chunk_before(c, local, c->sum));
  Gid one = grad_or_0(g, in, grad_num(g, 1));
  return grad_sum_all(g, grad_2(g, OP_MUL, one, grad_chunk_decay(c, c->sum)),
                      grad_bit(c->sum));
}

// As factors; 0: 1.
static Gid decayed(const Chunks *c, uint32_t local, bool before) {
  if (c->rows) return grad_halves_upto(c, local, before);
  return c->decays ? grad_1(c->g, OP_EXP2, upto(c, local, before)) : 0;
}

static Gid behind(const Chunks *c, uint32_t local) {
  if (!c->decays) return 0;
  if (c->rows) return grad_halves_behind(c, local);
  Gid rest = upto(c, local, false);
  rest = grad_2(c->g, OP_SUB, all_decays(c), rest);
  return grad_1(c->g, OP_EXP2, rest);
}

// Does item i read what is in front of the step's decay?
bool grad_chunk_early(const Chunks *c, uint32_t i) {
  return c->decays && i < c->decay;
}

// v where read i sees write k, times the decays in between; else 0.
static Gid seen(const Chunks *c, uint32_t i, uint32_t k, Gid v) {
  Grad *g = c->g;
  Gid sees = k < i ? grad_1(g, OP_NOT, grad_chunk_before(c, c->use, c->write))
                   : grad_chunk_before(c, c->write, c->use);
  if (!c->decays) return grad_or_0(g, sees, v);
  Gid d = upto(c, c->write, false);
  d = grad_2(g, OP_SUB, upto(c, c->use, grad_chunk_early(c, i)), d);
  d = grad_3(g, OP_SELECT, sees, d, grad_num(g, -INFINITY));
  return grad_2(g, OP_MUL, v, grad_1(g, OP_EXP2, d));
}

// ---------------------------------------------------------------- borders
// A walk has few tasks and many chunks. What each row has of decays is made for
// all chunks before.
static Gid made_before(const Chunks *c, Gid v, int64_t attr, const char *name) {
  GradNode made = {.code = GRAD_MADE,
                   .dtype = DT_F32,
                   .axes = grad_at(c->g, v)->axes,
                   .attr = attr,
                   .hint = name,
                   .n = 1};
  return c->rows ? grad_put(c->g, made, &v) : v;
}

static GradWalk over_borders(const Chunks *c, bool reverse, Gid init) {
  GradWalk w = grad_walk_like(c->w, reverse, init);
  w.axis = c->chunk;
  w.limit = 0;
  w.narrow = DT_BF16;
  grad_walk_put(&w, (GradItem){GI_READ, .x = grad_num(c->g, 1)});
  if (!c->decays) return w;
  Gid all = made_before(c, all_decays(c), 0, "decays");
  grad_walk_put(&w, (GradItem){GI_DECAY, .x = all});
  return w;
}

// A write of x e^T by the steps along `local`: all factors are x's.
static Gid put_write(const Chunks *c, GradWalk *w, Scaled x, Scaled e, Gid f,
                     uint32_t local) {
  Grad *g = c->g;
  f = grad_chunk_product(g, grad_chunk_product(g, f, x.f), e.f);
  Gid v = made_before(c, grad_chunk_product(g, x.v, f), GRAD_NARROW, "scaled");
  grad_walk_put(w, (GradItem){GI_WRITE, v, e.v, 0, grad_bit(local)});
  return c->rows && !e.f ? v : 0;
}

static Gid border(const Chunks *c, GradWalk *w) {
  grad_walk_close(c->g, w);
  return grad_walk_read(c->g, w, 1, w->state);
}

static void walk_states(Chunks *c) {
  if (grad_walk_stores(c->a)) {
    c->state = grad_walk_front(c->g, c->w, c->chunk);
    return;
  }
  GradWalk w = over_borders(c, c->w->reverse, c->w->init);
  for (uint32_t k = 0; k < c->w->n; k++)
    if (c->b[k].v)
      c->scaled[k] =
          put_write(c, &w, c->b[k], c->e[k], behind(c, c->write), c->write);
  c->state = border(c, &w);
}

static void walk_cotangents(Chunks *c) {
  Grad *g = c->g;
  if (grad_walk_stores(c->a)) {
    c->cotangent = grad_walk_front(g, &c->a->mirror, c->chunk);
    return;
  }
  GradWalk w = over_borders(c, !c->w->reverse, g->adjoint[c->w->result[0]]);
  for (uint32_t i = 0; i < c->w->n; i++)
    if (c->y[i].v)
      put_write(c, &w, c->x[i], c->y[i],
                decayed(c, c->use, grad_chunk_early(c, i)), c->use);
  c->cotangent = border(c, &w);
  if (c->erases || !grad_needs_init(g, c->w)) return;
  grad_give_init(g, c->w, grad_walk_last(g, &w));
}

// ---------------------------------------------------------------- parts
static uint32_t row_of(const Chunks *c) {
  uint32_t row = 0;
  while (!(c->w->row & grad_bit(row))) row++;
  return row;
}

// v at the rows of a part.
static Gid along_part(const Chunks *c, Gid v, uint32_t part) {
  Grad *g = c->g;
  Gid size = grad_int(g, COST_GRAD_CHUNK);
  Gid first = grad_2(g, OP_MUL, grad_chunk_at(c, part), size);
  return grad_moved(g, v, row_of(c),
                    grad_2(g, OP_ADD, first, grad_chunk_at(c, c->in_part)));
}

// A tile of steps that kernels of all parts multiply is made once.
static Gid once(const Chunks *c, Gid v, const char *name) {
  GradNode made = {.code = GRAD_MADE,
                   .dtype = DT_F32,
                   .axes = grad_at(c->g, v)->axes,
                   .attr = GRAD_NARROW,
                   .hint = name,
                   .n = 1};
  return c->apart ? grad_put(c->g, made, &v) : v;
}

// ---------------------------------------------------------------- products
Gid grad_chunk_dot(const Chunks *c, Gid v, Gid w, uint64_t over) {
  Grad *g = c->g;
  w = grad_chunk_narrowed(g, w);
  v = grad_chunk_narrowed(g, v);
  return grad_sum_all(g, grad_chunk_product(g, v, w), over);
}

// x . v over the columns, if there are any: a normalizer's vectors along them
// are numbers, which are factors.
static Gid over_columns(const Chunks *c, Scaled x, Gid v) {
  if (c->w->col) return grad_chunk_dot(c, x.v, v, c->w->col);
  return grad_is_number(c->g, x.v, 1) ? v : grad_chunk_product(c->g, x.v, v);
}

// A tile {use, write}, times a vector along one of them.
static Gid times(const Chunks *c, Gid tile, Scaled x, uint32_t over) {
  if (grad_is_number(c->g, x.v, 1))
    return grad_sum_all(c->g, grad_chunk_product(c->g, tile, x.f),
                        grad_bit(over));
  return grad_chunk_dot(c, grad_chunk_product(c->g, tile, x.f), x.v,
                        grad_bit(over));
}

static Gid products(const Chunks *c, uint32_t i, uint32_t k) {
  Gid v = over_columns(c, c->y[i], c->e[k].v);
  v = grad_chunk_product(c->g, v, c->y[i].f);
  return grad_chunk_product(c->g, v, c->e[k].f);
}

// y_i . e_k, where it is seen.
static Gid tile(const Chunks *c, uint32_t i, uint32_t k) {
  Gid v = products(c, i, k);
  if (c->beside) v = grad_chunk_plus(c->g, v, products(c->beside, i, k));
  return seen(c, i, k, v);
}

// x_i . b_k
static Gid paths(const Chunks *c, uint32_t i, uint32_t k) {
  Gid v = grad_chunk_dot(c, c->x[i].v, c->b[k].v, c->w->row);
  return grad_chunk_product(c->g, grad_chunk_product(c->g, v, c->x[i].f),
                            c->b[k].f);
}

// The same of a normalizer's, times f.
static Gid of_border(const Chunks *c, Scaled x, Gid state, Gid f) {
  f = grad_chunk_product(c->g, x.f, f);
  return grad_chunk_product(c->g, over_columns(c, x, state), f);
}

static Gid of_read(Chunks *c, uint32_t i) {
  Grad *g = c->g;
  const Chunks *n = c->beside;
  Gid v = over_columns(c, c->y[i], c->state);
  Gid f = decayed(c, c->use, grad_chunk_early(c, i));
  v = grad_chunk_product(g, v, grad_chunk_product(g, c->y[i].f, f));
  if (n) v = grad_chunk_plus(g, v, of_border(n, n->y[i], n->state, f));
  c->from_state[i] = v;
  for (uint32_t k = 0; k < c->w->n; k++)
    if (c->b[k].v)
      v = grad_chunk_plus(g, v,
                          times(c, once(c, tile(c, i, k), "tile"), c->b[k],
                                c->write));
  return v;
}

static Gid of_write(Chunks *c, uint32_t k) {
  Grad *g = c->g;
  const Chunks *n = c->beside;
  Gid v = over_columns(c, c->e[k], c->cotangent);
  Gid f = behind(c, c->write);
  v = grad_chunk_product(g, v, grad_chunk_product(g, c->e[k].f, f));
  if (n) v = grad_chunk_plus(g, v, of_border(n, n->e[k], n->cotangent, f));
  c->from_state[k] = v;
  for (uint32_t i = 0; i < c->w->n; i++)
    if (c->y[i].v)
      v = grad_chunk_plus(g, v,
                          times(c, once(c, tile(c, i, k), "tile"), c->x[i],
                                c->use));
  return v;
}

// The gradient of what write k writes.
static Gid of_written(Chunks *c, uint32_t k) {
  Grad *g = c->g;
  Gid v = grad_chunk_dot(c, c->b[k].v, c->cotangent, c->w->row);
  v = grad_chunk_product(g, v,
                         grad_chunk_product(g, c->b[k].f, behind(c, c->write)));
  for (uint32_t i = 0; i < c->w->n; i++)
    if (c->y[i].v)
      v = grad_chunk_plus(g, v,
                          times(c,
                                once(c, seen(c, i, k, paths(c, i, k)), "path"),
                                c->y[i], c->use));
  return v;
}

// ---------------------------------------------------------------- decays'
// The sum over the rows of v. Of many, so many at a time are a kernel's.
static Gid by_parts(const Chunks *c, Gid v, uint32_t part) {
  Grad *g = c->g;
  v = grad_sum_all(g, along_part(c, v, part), grad_bit(c->in_part));
  v = grad_made(g, v, grad_at(g, v)->axes, "part");
  v = grad_moved(g, v, part, grad_chunk_at(c, c->all_parts));
  return grad_sum_all(g, v, grad_bit(c->all_parts));
}

static Gid sum_of_rows(const Chunks *c, Gid v, uint32_t part) {
  return c->apart ? by_parts(c, v, part) : grad_sum_all(c->g, v, c->w->row);
}

static Gid along_rows(const Chunks *c, Scaled x, Gid v, uint32_t part) {
  Grad *g = c->g;
  Gid y = grad_chunk_as(g, DT_F32, x.v);
  return grad_chunk_product(g, sum_of_rows(c, grad_2(g, OP_MUL, y, v), part),
                            x.f);
}

// x_i . b_k times y_i . e_k of all writes in front of read i.
static Gid pairs(const Chunks *c, uint32_t i) {
  Grad *g = c->g;
  Gid all = 0;
  for (uint32_t k = 0; k < c->w->n; k++) {
    if (!c->b[k].v) continue;
    Gid f = paths(c, i, k);
    all = grad_chunk_plus(g, all, grad_2(g, OP_MUL, tile(c, i, k), f));
  }
  return all;
}

// What flows to reads behind a step's decay.
static Gid sum_behind(const Chunks *c, bool early, Gid v) {
  Grad *g = c->g;
  Gid is = early ? grad_chunk_before(c, c->at, c->use)
                 : grad_1(g, OP_NOT, grad_chunk_before(c, c->use, c->at));
  return grad_sum_all(g, grad_or_0(g, is, v), grad_bit(c->use));
}

// What flows over the decay of a step to the reads that are early, or to the
// others. Their tiles are one: it is summed once.
static Gid to_reads(const Chunks *c, bool early, Gid *first) {
  Grad *g = c->g;
  Gid all = 0, tiles = 0, before = grad_num(g, 1);
  for (uint32_t i = 0; i < c->w->n; i++) {
    if (!c->y[i].v || grad_chunk_early(c, i) != early) continue;
    all =
        grad_chunk_plus(g, all,
                        along_rows(c, c->x[i], c->from_state[i], c->read_part));
    tiles = grad_chunk_plus(g, tiles, pairs(c, i));
  }
  if (!all) return 0;
  if (tiles) {
    Gid front = grad_chunk_before(c, c->write, c->use);
    before = grad_or_0(g, grad_chunk_before(c, c->write, c->at), before);
    tiles = grad_chunk_dot(c, grad_or_0(g, front, tiles), before,
                           grad_bit(c->write));
    if (!c->apart) all = grad_chunk_plus(g, all, tiles);
    *first = tiles;
  }
  Gid sum = sum_behind(c, early, all);
  if (!tiles || !c->apart) return sum;
  tiles = sum_behind(c, early, tiles);
  tiles = grad_made(g, tiles, grad_at(g, tiles)->axes, "pairs");
  return grad_chunk_plus(g, sum, tiles);
}

// What flows through the whole chunk.
static Gid through(const Chunks *c) {
  Grad *g = c->g;
  const Chunks *n = c->beside;
  Gid v = grad_2(g, OP_MUL, c->state, c->cotangent);
  v = grad_sum_all(g, v, c->w->col);
  if (n) v = grad_chunk_plus(g, v, grad_2(g, OP_MUL, n->state, n->cotangent));
  v = sum_of_rows(c, v, c->read_part);
  return grad_chunk_product(g, v, grad_1(g, OP_EXP2, all_decays(c)));
}

// Tiles are summed first, before vectors along the rows are made; then what
// flows to reads that are taken off, of the same ones as their gradients.
static Gid phi(Chunks *c, Gid *first) {
  Grad *g = c->g;
  Gid all = through(c), order[2 + 2 * MAX_ITEMS];
  uint32_t n = 0;
  for (int early = 0; early < 2; early++) {
    order[n] = 0;
    all = grad_chunk_plus(g, all, to_reads(c, early, &order[n]));
    n += order[n] != 0;
  }
  for (uint32_t i = 0; i < c->w->n; i++) {
    if (!c->y[i].v || !c->a->eraser[i]) continue;
    order[n++] = along_rows(c, c->x[i], c->from_state[i], c->read_part);
    order[n++] = of_read(c, i);
  }
  *first = n ? grad_list(g, order, n) : 0;
  for (uint32_t k = 0; k < c->w->n; k++) {
    if (!c->b[k].v) continue;
    Gid v = along_rows(c, c->b[k], c->from_state[k], c->write_part);
    v = grad_or_0(g, grad_chunk_before(c, c->write, c->at), v);
    all = grad_chunk_plus(g, all, grad_sum_all(g, v, grad_bit(c->write)));
  }
  return all;
}

// ---------------------------------------------------------------- all
static void find_decay(Chunks *c) {
  for (uint32_t i = 0; i < c->w->n; i++) {
    if (c->w->item[i].kind != GI_DECAY) continue;
    c->decays = true;
    c->decay = i;
    c->rows = grad_at(c->g, c->w->item[i].x)->axes & c->w->row;
  }
}

// Decays of rows are summed where gradients of decays are, and read and written
// vectors have the same tiles then: rows of tiles are along the first axis.
static void put_axes(Chunks *c) {
  Grad *g = c->g;
  DimTab *d = &g->m->dims;
  Dim size = dim_const(d, COST_GRAD_CHUNK);
  Dim n = dim_ceildiv(d, g->axes.at[c->w->axis].axis.extent, COST_GRAD_CHUNK);
  c->chunk = grad_axis(g, "chunk", AX_PAR, n);
  uint32_t *local[] = {&c->use, &c->at, &c->write, &c->sum};
  uint32_t *of_rows[] = {&c->use, &c->write, &c->at};
  static const char *const name[] = {"use", "at", "write", "sum"};
  static const char *const rows[] = {"use", "write", "at"};
  for (uint32_t i = 0; i < (c->rows ? 3 : 4); i++) {
    uint32_t axis = grad_axis(g, c->rows ? rows[i] : name[i], AX_VEC, size);
    *(c->rows ? of_rows : local)[i] = axis;
    g->local |= grad_bit(axis);
  }
  if (c->rows) c->sum = c->at;
  else g->last |= grad_bit(c->sum);
}

// More than one kernel holds: each gradient has its own.
static void put_parts(Chunks *c) {
  Grad *g = c->g;
  DimTab *d = &g->m->dims;
  Dim size = dim_const(d, COST_GRAD_CHUNK);
  Dim n = dim_const(d, elements(g, c->w->row) / COST_GRAD_CHUNK);
  c->apart = true;
  c->read_part = grad_axis(g, "part", AX_PAR, n);
  c->write_part = grad_axis(g, "part", AX_PAR, n);
  c->all_parts = grad_axis(g, "parts", AX_VEC, n);
  c->in_part = grad_axis(g, "row", AX_VEC, size);
  g->local |= grad_bit(c->in_part);
}

// What several kernels read is made once, if it is more than a load and
// factors.
static Gid plain(const Chunks *c, Gid v) {
  Grad *g = c->g;
  Scaled s = {0, 0};
  take_apart(c, v, &s);
  if (!s.v) return v;
  const GradNode *n = grad_at(g, s.v);
  while (n->code == OP_CAST) n = grad_at(g, n->arg[0]);
  if (n->code == OP_LOAD || n->code == GRAD_RESULT || !n->axes) return v;
  GradNode made = {.code = GRAD_MADE,
                   .dtype = DT_F32,
                   .axes = grad_at(g, s.v)->axes,
                   .attr = GRAD_NARROW,
                   .hint = "written",
                   .n = 1};
  return grad_chunk_product(g, grad_put(g, made, &s.v), s.f);
}

Gid grad_chunk_written(const Chunks *c, uint32_t k) {
  return plain(c, grad_written(c->a, k));
}

// What flows to a read. A normalizer's is a number of each step, a sum over
// other vectors.
static Gid flowing(const Chunks *c, uint32_t i) {
  Gid y = grad_read_by(c->a, i);
  if (!y || c->w->col) return y;
  return grad_made(c->g, y, grad_at(c->g, y)->axes, "normalizer");
}

static void put_vectors(Chunks *c) {
  const GradWalk *w = c->w;
  for (uint32_t i = 0; i < w->n; i++) {
    if (w->item[i].kind == GI_READ) {
      c->y[i] = grad_chunk_vector(c, flowing(c, i), c->use, true);
      if (c->y[i].v)
        c->x[i] = grad_chunk_vector(c, w->item[i].x, c->use, false);
    } else if (w->item[i].kind == GI_WRITE) {
      c->e[i] = grad_chunk_vector(c, grad_chunk_written(c, i), c->write, true);
      c->b[i] = grad_chunk_vector(c, w->item[i].x, c->write, false);
    }
  }
}

static uint32_t local_of(const Chunks *c, ChunkRank r) {
  if (r == OF_DECAY) return c->at;
  bool use = r == OF_READ || r == OF_ERASED || (r == OF_WRITTEN && c->rows);
  return use ? c->use : c->write;
}

// Is a decay made in front? What that is made of is not in kernels of chunks.
static bool is_far(const Chunks *c, Gid x) {
  Gid own = c->a->of->item[c->decay].x;
  return c->rows && x == own && c->w->item[c->decay].x != own;
}

void grad_chunk_give(Chunks *c, Gid x, ChunkMade v) {
  Grad *g = c->g;
  if (!g->active[x]) return;
  uint32_t local = local_of(c, v.rank);
  uint32_t part = local == c->use ? c->read_part : c->write_part;
  bool parts = c->apart && (grad_at(g, v.v)->axes & c->w->row);
  GradNode made = {.code = GRAD_MADE,
                   .dtype = DT_F32,
                   .axes = grad_at(g, v.v)->axes,
                   .attr = 1 + g->views.n,
                   .n = 1};
  GradView view = {.axis = c->w->axis,
                   .chunk = c->chunk,
                   .local = local,
                   .steps = COST_GRAD_CHUNK,
                   .rank = v.rank,
                   .side = v.side,
                   .first = v.first,
                   .alone = c->apart || v.alone,
                   .apart = c->rows && !v.alone ? c->w->col : 0,
                   .few = c->by_step && !v.alone ? c->w->row : 0,
                   .kept = is_far(c, x),
                   .parts = parts};
  if (parts) view.row = row_of(c), view.part = part, view.in = c->in_part;
  vec_push(g->arena, &g->views, view);
  Gid y = grad_put(g, made, &v.v);
  Gid t = grad_index(g, c->w->axis), size = grad_int(g, COST_GRAD_CHUNK);
  y = grad_moved(g, y, c->chunk, grad_2(g, OP_FLOORDIV, t, size));
  y = grad_moved(g, y, local, grad_2(g, OP_MOD, t, size));
  grad_give(g, x, y, grad_at(g, y)->axes);
}

// Sums of long values are made before these are added to in place.
static void give_reads(Chunks *c, bool gates) {
  Gid all = gates && !c->apart ? through(c) : 0;
  for (uint32_t i = 0; i < c->w->n; i++) {
    if (!c->y[i].v) continue;
    bool erased = c->a->eraser[i] != 0;
    ChunkMade dx = {of_read(c, i), 0, erased ? OF_ERASED : OF_READ, false, 0};
    if (gates && !c->apart) {
      Gid whole = erased ? 0 : all;
      dx.first = grad_chunk_plus(c->g, whole,
                                 along_rows(c, c->x[i], c->from_state[i],
                                            c->read_part));
      if (whole) all = 0;
    }
    grad_chunk_give(c, c->a->of->item[i].x, dx);
  }
}

// One decay of all steps gets a chunk's sum at once.
void grad_chunk_give_decay(Chunks *c, Gid phi, Gid first, uint32_t side) {
  Grad *g = c->g;
  Gid x = c->a->of->item[c->decay].x;
  Gid d = grad_2(g, OP_MUL, grad_num(g, M_LN2), phi);
  if (grad_at(g, x)->axes & grad_bit(c->w->axis)) {
    grad_chunk_give(c, x, (ChunkMade){d, first, OF_DECAY, false, side});
    return;
  }
  d = grad_sum_all(g, grad_or_0(g, is_step(c, c->at), d), grad_bit(c->at));
  d = grad_made(g, d, grad_at(g, d)->axes, "decay");
  grad_give(g, x, d, grad_at(g, d)->axes);
}

static void give_written(Chunks *c, uint32_t k) {
  Gid w = c->w->item[k].w;
  if (w && !c->erases)
    grad_chunk_give(c, w,
                    (ChunkMade){of_written(c, k), 0, OF_WRITTEN, false, 0});
}

static void give_all(Chunks *c, bool gates) {
  const GradWalk *w = c->a->of;
  give_reads(c, gates);
  for (uint32_t i = 0; i < w->n; i++) {
    const GradItem *item = &w->item[i];
    if (!c->b[i].v) continue;
    grad_chunk_give(c, item->x,
                    (ChunkMade){of_write(c, i), 0, OF_WRITE, false, 0});
    give_written(c, i);
    if (c->beside) give_written(c->beside, i);
  }
  if (!gates) return;
  Gid first = 0, all = phi(c, &first);
  grad_chunk_give_decay(c, all, c->erases ? first : 0, 0);
}

static void put_borders(Chunks *c) {
  put_vectors(c);
  walk_states(c);
  walk_cotangents(c);
}

// A normalizer's chunks, along the same axes.
static Chunks *normalizer(const Chunks *of, GradAdjoint *a) {
  Chunks *c = NEW(a->g->arena, Chunks);
  *c = *of;
  c->a = a, c->w = a->w;
  put_borders(c);
  return c;
}

void grad_chunks(GradAdjoint *a, GradAdjoint *beside) {
  Chunks *c = NEW(a->g->arena, Chunks);
  *c = (Chunks){.g = a->g, .a = a, .w = a->w, .erases = a->mirror.n != 0};
  const GradWalk *w = a->w;
  find_decay(c);
  c->by_step = c->rows || a->norms;
  put_axes(c);
  if (grad_chunks_long(a->g, w)) put_parts(c);
  Chunks *n = beside ? normalizer(c, beside) : NULL;
  put_borders(c);
  c->beside = n;
  bool gates = c->decays && a->g->active[a->of->item[c->decay].x];
  if (c->rows) grad_halves(c, gates);
  else give_all(c, gates);
}

// ---------------------------------------------------------------- scalars
// A number of each chunk, made for all of them at once.
static Gid of_chunk(const Chunks *c, Gid v) {
  return grad_made(c->g, v, grad_at(c->g, v)->axes, "chunk");
}

// What is in front of each step, of the state in front of its chunk and of what
// the chunk's steps in front of it write; as a function of the step.
static Gid in_front(const Chunks *c, Gid state, Scaled e) {
  Grad *g = c->g;
  Gid v = grad_sum_all(g, seen(c, SCALAR_READ, SCALAR_WRITE, e.f),
                       grad_bit(c->write));
  v = grad_2(g, OP_ADD, v, grad_2(g, OP_MUL, state, decayed(c, c->use, true)));
  v = grad_made(g, v, grad_at(g, v)->axes, "front");
  Gid t = grad_index(g, c->w->axis), size = grad_int(g, COST_GRAD_CHUNK);
  v = grad_moved(g, v, c->chunk, grad_2(g, OP_FLOORDIV, t, size));
  return grad_moved(g, v, c->use, grad_2(g, OP_MOD, t, size));
}

bool grad_scalar_fits(const Grad *g, const GradWalk *w) {
  const Target *t = g->opt->target;
  bool hopper = t->kind == TARGET_GPU && t->gpu.hopper;
  return hopper && !w->limit && w->n == SCALAR_WRITE + 1;
}

void grad_scalar_chunks(Grad *g, GradWalk *w, Gid *front, Gid *last) {
  Chunks *c = NEW(g->arena, Chunks);
  GradAdjoint *a = NEW(g->arena, GradAdjoint);
  *a = (GradAdjoint){.g = g, .of = w, .w = w};
  *c = (Chunks){.g = g, .a = a, .w = w};
  find_decay(c);
  put_axes(c);
  Scaled e = grad_chunk_vector(c, w->item[SCALAR_WRITE].x, c->write, true);
  e.f = grad_chunk_product(g, e.f, grad_is_number(g, e.v, 1) ? 0 : e.v);
  Gid end = grad_2(g, OP_MUL, e.f, behind(c, c->write));
  Gid sum = of_chunk(c, grad_sum_all(g, end, grad_bit(c->write)));
  GradWalk b = grad_walk_like(w, w->reverse, w->init);
  b.axis = c->chunk;
  grad_walk_put(&b, (GradItem){GI_READ, .x = grad_num(g, 1)});
  grad_walk_put(&b, (GradItem){GI_DECAY, .x = of_chunk(c, all_decays(c))});
  grad_walk_put(&b, (GradItem){GI_WRITE, sum, grad_num(g, 1), 0, 0});
  *front = in_front(c, border(c, &b), e);
  *last = grad_walk_last(g, &b);
}
