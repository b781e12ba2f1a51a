// grad, part 5: gradients of decays. With S the state behind the decay of step
// t and D the cotangent of all its uses, the decay's logarithm has the gradient
//
//   phi_t = sum over the columns of S D
//
// for each row. S and D are walked in opposite directions; both are kept at the
// borders of chunks, and phi is the sum of what flows from in front of the
// decay to behind it, of a chunk's writes and the state in front of the chunk
// to its reads and the cotangent behind it:
//
//   phi_t = sum over i of R_ti (sum over j of X_ij B_tj + A_t Y_i)
//           + C_t (sum over j of B_tj Z_j + A_t SD)
//
//   R_ti = 2 ** (decays behind t, to i) x_i     x: what a read at i >= t reads by
//   B_tj = 2 ** (decays behind j, to t) b_j     b: where a write at j < t goes
//   X_ij = y_i . e_j                            y: its cotangent; e: what it is
//   Y_i = S y_i,  Z_j = D e_j,  SD = sum of S D     S, D: at the chunk's borders
//   A_t, C_t = 2 ** (decays of the chunk up to t, behind t)
//
// Nothing is subtracted, and no exponent is that of anything else than a decay
// between two steps: strong decays are as exact as weak ones. Of a decay that
// rows have in common the sum over the rows is taken inside, and what flows
// from one step to another is the same for all decays that it crosses:
//
//   phi_t = sum over i >= t of (U_i + sum over j < t of F_ij)
//           + sum over j < t of V_j + W
//
//   F_ij = 2 ** (decays behind j, to i) (x_i . b_j) X_ij
//   U_i = 2 ** (decays up to i) x_i . Y_i,  V_j = 2 ** (decays behind j) b_j . Z_j
//
// Of a decay that each column has, rows and columns change places in all of
// this: x and b are y and e then, and y and e are x and b.
//
// Where rows have their own, in programs of bf16, what flows over the decays of
// a chunk is walked along them, for all chunks and reads at once:
//
//   U = 2 ** (decay of t) U;  phi_t = sum over i of R_ti U_i;  U_i = U_i + X_it b_t
//   V = 2 ** (decay of t) V;  phi_t = phi_t + C_t V;           V = V + b_t Z_t
//
// from U = Y, V = SD; exponents of R are differences of sums of a chunk then.
#include "passes/attn/grad_walk.h"
#include "passes/support/cost.h"
#include "passes/support/relief.h"

#include <math.h>

typedef struct Gates {
  Grad *g;
  GradAdjoint *a;
  const GradWalk *w;  // rows are what the decay varies with, if with anything;
                      // the items' vectors are along them
  Gid along[MAX_ITEMS];  // what reads, and writes, have along the columns, or 0
  uint32_t decay;        // the item
  bool rows;             // each row has its own
  Dim size;              // of a chunk
  DType narrow;    // operands of products are rounded to it; 0: they are not
  uint32_t chunk;  // axes: of chunks; of steps in one: that of the decay, of
  uint32_t at, use, write, sum;  // reads, of writes, of decays that are summed
  GradWalk forth, back;          // states, cotangents, from chunk to chunk
  GradWalk sums;                 // decays behind each step of the chunk
  Gid state;
  uint32_t use_read[MAX_ITEMS], write_read[MAX_ITEMS], both;  // results
} Gates;

// ---------------------------------------------------------------- steps
static Gid at(const Gates *x, uint32_t axis) {
  return grad_index(x->g, axis);
}

static Gid size_node(const Gates *x) {
  int64_t n = 0;
  dim_is_const(&x->g->m->dims, x->size, &n);
  return grad_int(x->g, n);
}

// Step number `local` of the chunk.
static Gid step_at(const Gates *x, uint32_t local) {
  Gid size = size_node(x);
  Gid first = grad_2(x->g, OP_MUL, at(x, x->chunk), size);
  return grad_2(x->g, OP_ADD, first, at(x, local));
}

static Gid end_of(const Gates *x) {
  Grad *g = x->g;
  Gid end = grad_dim(g, g->axes.at[x->w->axis].axis.extent);
  return x->w->limit ? grad_2(g, OP_MIN, end, x->w->limit) : end;
}

static Gid is_step(const Gates *x, uint32_t local) {
  Gid end = end_of(x);
  return grad_2(x->g, OP_LT, step_at(x, local), end);
}

// v at step `local` of the chunk; where there is none, 0 or what it is at all
// steps.
static Gid moved(const Gates *x, Gid v, uint32_t local) {
  v = grad_moved(x->g, v, x->w->axis, step_at(x, local));
  return x->narrow ? grad_masked(x->g, v, local, is_step(x, local))
                   : grad_or_0(x->g, is_step(x, local), v);
}

// As moved(); also if v is the same at all steps.
static Gid ending(const Gates *x, Gid v, uint32_t local) {
  v = moved(x, v, local);
  bool ends = grad_at(x->g, v)->axes & grad_bit(local);
  return ends ? v : grad_or_0(x->g, is_step(x, local), v);
}

static Gid product(Grad *g, Gid v, Gid w) {
  return grad_2(g, OP_MUL, v, w);
}

static Gid plus(Grad *g, Gid v, Gid w) {
  return v && w ? grad_2(g, OP_ADD, v, w) : v + w;
}

// ---------------------------------------------------------------- decays
// Before which coordinate, or behind which, decays are summed.
typedef enum Bound { FROM_FIRST, BEHIND } Bound;
typedef enum Until { TO_LAST, TO, BEFORE } Until;

// The decays of the chunk's steps behind `lo`, up to `hi`, as a factor. In the
// order of the walk.
static Gid decays(const Gates *x, Bound from, uint32_t lo, Until until,
                  uint32_t hi) {
  Grad *g = x->g;
  bool back = x->w->reverse;
  Gid s = at(x, x->sum), in = 0;
  if (from == BEHIND) {
    Gid l = at(x, lo);
    in = grad_2(g, OP_LT, back ? s : l, back ? l : s);
  }
  if (until != TO_LAST) {
    Gid h = at(x, hi);
    OpCode c = until == TO ? OP_LE : OP_LT;
    Gid to = grad_2(g, c, back ? h : s, back ? s : h);
    in = in ? grad_2(g, OP_AND, in, to) : to;
  }
  Gid least = grad_num(g, -COST_GRAD_LEAST_DECAY);
  Gid d = ending(x, x->w->item[x->decay].x, x->sum);
  d = grad_2(g, OP_MAX, d, least);
  Gid one = in ? grad_or_0(g, in, grad_num(g, 1)) : grad_num(g, 1);
  Gid all = grad_sum_all(g, product(g, one, d), grad_bit(x->sum));
  return grad_1(g, OP_EXP2, all);
}

// ---------------------------------------------------------------- flows
// Does item i read the state in front of the decay?
static bool is_early(const Gates *x, uint32_t i) {
  return i < x->decay;
}

static Gid used_by(const Gates *x, uint32_t i) {
  return x->w->item[i].kind == GI_READ ? x->along[i] : 0;
}

static bool writes(const Gates *x, uint32_t i) {
  return x->w->item[i].kind == GI_WRITE;
}

// State and axes of a walk over chunks.
static GradWalk over_chunks(const Gates *x, bool reverse, Gid init) {
  GradWalk w = grad_walk_like(x->w, reverse, init);
  w.axis = x->chunk;
  w.limit = 0;
  w.narrow = x->narrow;
  return w;
}

static void put_decay(const Gates *x, GradWalk *w) {
  GradItem item = {GI_DECAY, .x = 0};
  Gid all = ending(x, x->w->item[x->decay].x, x->sum);
  item.x = grad_sum_all(x->g, all, grad_bit(x->sum));
  grad_walk_put(w, item);
}

// The states at the chunks' first steps: themselves, and read by cotangents.
static void walk_states(Gates *x) {
  Grad *g = x->g;
  GradWalk *w = &x->forth;
  *w = over_chunks(x, x->w->reverse, x->w->init);
  grad_walk_put(w, (GradItem){GI_READ, .x = grad_num(g, 1)});
  for (uint32_t i = 0; i < x->w->n; i++) {
    Gid y = used_by(x, i);
    if (!y) continue;
    GradItem item = {GI_READ, .x = ending(x, y, x->use), .over = x->w->col};
    grad_walk_put(w, item);
    x->use_read[i] = w->nreads;
  }
  put_decay(x, w);
  for (uint32_t i = 0; i < x->w->n; i++) {
    if (!writes(x, i)) continue;
    Gid b = moved(x, x->w->item[i].x, x->write);
    b = product(g, b, decays(x, BEHIND, x->write, TO_LAST, 0));
    Gid e = ending(x, x->along[i], x->write);
    grad_walk_put(w, (GradItem){GI_WRITE, b, e, 0, grad_bit(x->write)});
  }
  grad_walk_close(g, w);
  x->state = grad_walk_read(g, w, 1, w->state);
}

// The cotangents behind the chunks' last steps, read by what was written and by
// the states.
static void walk_cotangents(Gates *x) {
  Grad *g = x->g;
  GradWalk *w = &x->back;
  *w = over_chunks(x, !x->w->reverse, x->a->mirror.init);
  for (uint32_t i = 0; i < x->w->n; i++) {
    if (!writes(x, i)) continue;
    Gid e = ending(x, x->along[i], x->write);
    grad_walk_put(w, (GradItem){GI_READ, .x = e, .over = x->w->col});
    x->write_read[i] = w->nreads;
  }
  grad_walk_put(w, (GradItem){GI_READ, .x = x->state, .over = x->w->col});
  x->both = w->nreads;
  put_decay(x, w);
  for (uint32_t i = 0; i < x->w->n; i++) {
    Gid y = used_by(x, i);
    if (!y) continue;
    Until until = is_early(x, i) ? BEFORE : TO;
    Gid v = moved(x, x->w->item[i].x, x->use);
    v = product(g, v, decays(x, FROM_FIRST, 0, until, x->use));
    y = ending(x, y, x->use);
    grad_walk_put(w, (GradItem){GI_WRITE, v, y, 0, grad_bit(x->use)});
  }
  grad_walk_close(g, w);
}

// ---------------------------------------------------------------- phi
static Gid made(Grad *g, Gid v, const char *name) {
  return grad_made(g, v, grad_at(g, v)->axes, name);
}

// An operand of a product of matrices.
static Gid operand(const Gates *x, Gid v) {
  if (grad_at(x->g, v)->dtype == x->narrow) return v;
  GradNode n = {.code = OP_CAST,
                .dtype = x->narrow,
                .axes = grad_at(x->g, v)->axes,
                .n = 1};
  return x->narrow ? grad_put(x->g, n, &v) : v;
}

static Gid dot(const Gates *x, Gid v, Gid w, uint64_t over) {
  w = operand(x, w);
  return grad_sum_all(x->g, product(x->g, operand(x, v), w), over);
}

// v for each row, times the vector f along the rows; their sum if the rows have
// a decay in common.
static Gid by_rows(const Gates *x, Gid v, Gid f) {
  if (x->rows) return v;
  return grad_sum_all(x->g, product(x->g, f, v), x->w->row);
}

static Gid vector_of_use(const Gates *x, uint32_t i) {
  return moved(x, x->w->item[i].x, x->use);
}

static Gid vector_of_write(const Gates *x, uint32_t i) {
  return moved(x, x->w->item[i].x, x->write);
}

// What write k of each step gives read i of each.
static Gid cross(const Gates *x, uint32_t i, uint32_t k) {
  Grad *g = x->g;
  Gid y = ending(x, used_by(x, i), x->use);
  Gid e = ending(x, x->along[k], x->write);
  Gid v = dot(x, y, e, x->w->col);
  if (!x->rows) {
    Gid b = vector_of_write(x, k), q = vector_of_use(x, i);
    v = product(g, v, dot(x, q, b, x->w->row));
  }
  return x->rows ? made(g, v, "cross") : v;
}

// Of a chunk's result, for each step in it.
static Gid border(const Gates *x, const GradWalk *w, uint32_t k, Gid f,
                  uint32_t local) {
  uint64_t axes = (w->state & ~x->w->col) | grad_bit(local);
  return by_rows(x, grad_walk_read(x->g, w, k, axes), f);
}

static Gid both_borders(const Gates *x) {
  uint64_t axes = x->w->state & ~x->w->col;
  return grad_walk_read(x->g, &x->back, x->both, axes);
}

// Is step a in front of b, in the order of the walk?
static Gid is_before(const Gates *x, uint32_t a, uint32_t b) {
  Gid i = at(x, a), k = at(x, b);
  bool back = x->w->reverse;
  return grad_2(x->g, OP_LT, back ? k : i, back ? i : k);
}

// Does read i of step `use` read what is behind the decay of step `at`?
static Gid is_behind(const Gates *x, uint32_t i) {
  Gid before = is_before(x, x->use, x->at);
  return is_early(x, i) ? is_before(x, x->at, x->use)
                        : grad_1(x->g, OP_NOT, before);
}

static Gid count(Grad *g, Gid c) {
  return grad_or_0(g, c, grad_num(g, 1));
}

// ---------------------------------------------------------------- each row
// B: where write k goes, at the decay.
static Gid write_factor(const Gates *x, uint32_t k) {
  Grad *g = x->g;
  Gid b = decays(x, BEHIND, x->write, TO, x->at);
  b = product(g, b, vector_of_write(x, k));
  return grad_or_0(g, is_before(x, x->write, x->at), b);
}

// R: what reads the decayed.
static Gid use_factor(const Gates *x, uint32_t i) {
  Gid r = decays(x, BEHIND, x->at, is_early(x, i) ? BEFORE : TO, x->use);
  r = product(x->g, r, vector_of_use(x, i));
  return grad_or_0(x->g, is_behind(x, i), r);
}

// What flows over the decay to read i of the chunk's steps.
static Gid to_use(const Gates *x, uint32_t i) {
  Grad *g = x->g;
  Gid before = decays(x, FROM_FIRST, 0, TO, x->at);
  Gid all = border(x, &x->forth, x->use_read[i], 0, x->use);
  all = product(g, before, all);
  for (uint32_t k = 0; k < x->w->n; k++)
    if (writes(x, k)) {
      Gid c = write_factor(x, k);
      c = product(g, cross(x, i, k), c);
      all = plus(g, all, grad_sum_all(g, c, grad_bit(x->write)));
    }
  return grad_sum_all(g, product(g, use_factor(x, i), all), grad_bit(x->use));
}

// What flows over the decay and out of the chunk.
static Gid to_end(const Gates *x) {
  Grad *g = x->g;
  Gid before = decays(x, FROM_FIRST, 0, TO, x->at);
  Gid all = product(g, before, both_borders(x));
  for (uint32_t k = 0; k < x->w->n; k++)
    if (writes(x, k)) {
      Gid z = border(x, &x->back, x->write_read[k], 0, x->write);
      z = product(g, z, write_factor(x, k));
      all = plus(g, all, grad_sum_all(g, z, grad_bit(x->write)));
    }
  return product(g, decays(x, BEHIND, x->at, TO_LAST, 0), all);
}

// ---------------------------------------------------------------- along a chunk
// A walk along the steps of each chunk.
static GradWalk in_chunks(const Gates *x, uint32_t axis, Gid init) {
  GradWalk w = grad_walk_like(x->w, x->w->reverse, init);
  w.axis = axis;
  w.limit = 0;
  w.exact = true;
  w.state = (w.state & ~(w.row | w.col)) | grad_bit(x->chunk);
  return w;
}

// For each step of a chunk the decays of the chunk up to it, of each row; or
// those behind each step of it. The first read is in front of its own decay,
// the second behind.
static void walk_sums(Gates *x) {
  Grad *g = x->g;
  GradWalk *w = &x->sums;
  Gid one = grad_num(g, 1);
  *w = in_chunks(x, x->use, 0);
  w->name = "decays";
  w->state |= x->rows ? x->w->row : grad_bit(x->write);
  Gid part = x->rows ? one : count(g, is_before(x, x->write, x->use));
  Gid by = ending(x, x->w->item[x->decay].x, x->use);
  by = grad_2(g, OP_MAX, by, grad_num(g, -COST_GRAD_LEAST_DECAY));
  grad_walk_put(w, (GradItem){GI_READ, one, 0, 0, 0});
  grad_walk_put(w, (GradItem){GI_WRITE, part, by, 0, 0});
  grad_walk_put(w, (GradItem){GI_READ, one, 0, 0, 0});
  grad_walk_close(g, w);
}

// ---------------------------------------------------------------- rows, walked
static Gid own_decay(const Gates *x) {
  return ending(x, x->w->item[x->decay].x, x->at);
}

// The decays of a chunk up to step `local`.
static Gid upto(const Gates *x, uint32_t local, bool before) {
  Gid d = grad_walk_read(x->g, &x->sums, before ? 1 : 2, x->sums.state);
  return local == x->use ? d : grad_moved(x->g, d, x->use, at(x, local));
}

// R: what read i of step `use` reads the state behind step `at` by.
static Gid walked_factor(const Gates *x, uint32_t i) {
  Grad *g = x->g;
  Gid until = upto(x, x->use, is_early(x, i)), from = upto(x, x->at, false);
  Gid r = grad_1(g, OP_EXP2, grad_2(g, OP_SUB, until, from));
  r = product(g, r, vector_of_use(x, i));
  return grad_or_0(g, is_behind(x, i), r);
}

// What flows over the decays to read i.
static Gid walked_to_use(const Gates *x, uint32_t i) {
  Grad *g = x->g;
  Gid init = border(x, &x->forth, x->use_read[i], 0, x->use);
  GradWalk w = in_chunks(x, x->at, init);
  w.name = "flows";
  w.row = grad_bit(x->use);
  w.col = x->w->row;
  w.state |= w.row | w.col;
  grad_walk_put(&w, (GradItem){GI_DECAY, own_decay(x), 0, 0, 0});
  grad_walk_put(&w, (GradItem){GI_READ, walked_factor(x, i), 0, 0, w.row});
  for (uint32_t k = 0; k < x->w->n; k++) {
    if (!writes(x, k)) continue;
    Gid to = at(x, x->at);
    Gid c = grad_moved(g, cross(x, i, k), x->write, to);
    Gid b = moved(x, x->w->item[k].x, x->at);
    grad_walk_put(&w, (GradItem){GI_WRITE, c, b, 0, 0});
  }
  grad_walk_close(g, &w);
  return grad_walk_read(g, &w, 1, w.state & ~w.row);
}

// What flows over the decays and out of the chunk.
static Gid walked_to_end(const Gates *x) {
  Grad *g = x->g;
  GradWalk w = in_chunks(x, x->at, both_borders(x));
  w.name = "flows";
  w.state |= x->w->row;
  w.col = x->w->row, w.row = 0;
  grad_walk_put(&w, (GradItem){GI_DECAY, own_decay(x), 0, 0, 0});
  grad_walk_put(&w, (GradItem){GI_READ, grad_num(g, 1), 0, 0, 0});
  for (uint32_t k = 0; k < x->w->n; k++) {
    if (!writes(x, k)) continue;
    Gid z = border(x, &x->back, x->write_read[k], 0, x->write);
    z = grad_moved(g, z, x->write, at(x, x->at));
    Gid b = moved(x, x->w->item[k].x, x->at);
    grad_walk_put(&w, (GradItem){GI_WRITE, b, z, 0, 0});
  }
  grad_walk_close(g, &w);
  Gid all = ending(x, x->w->item[x->decay].x, x->sum);
  all = grad_sum_all(g, all, grad_bit(x->sum));
  Gid left = grad_2(g, OP_SUB, all, upto(x, x->at, false));
  Gid state = grad_walk_read(g, &w, 1, w.state);
  return product(g, grad_1(g, OP_EXP2, left), state);
}

// ---------------------------------------------------------------- in common
// F: what flows from write k to read i.
static Gid flow(const Gates *x, uint32_t i, uint32_t k) {
  Grad *g = x->g;
  Gid d = grad_walk_read(g, &x->sums, is_early(x, i) ? 1 : 2, x->sums.state);
  d = grad_1(g, OP_EXP2, d);
  Gid f = product(g, d, cross(x, i, k));
  f = grad_or_0(g, is_before(x, x->write, x->use), f);
  return made(g, f, "flow");
}

// All that flows over the decay to read i.
static Gid flows_to_use(const Gates *x, uint32_t i) {
  Grad *g = x->g;
  Gid all = border(x, &x->forth, x->use_read[i], vector_of_use(x, i), x->use);
  Until until = is_early(x, i) ? BEFORE : TO;
  all = product(g, all, decays(x, FROM_FIRST, 0, until, x->use));
  all = made(g, all, "flow");
  Gid before = count(g, is_before(x, x->write, x->at));
  for (uint32_t k = 0; k < x->w->n; k++)
    if (writes(x, k)) {
      Gid f = dot(x, before, flow(x, i, k), grad_bit(x->write));
      all = plus(g, all, f);
    }
  return grad_sum_all(g, grad_or_0(g, is_behind(x, i), all), grad_bit(x->use));
}

static Gid flows_to_end(const Gates *x) {
  Grad *g = x->g;
  Gid whole = decays(x, FROM_FIRST, 0, TO_LAST, 0);
  Gid all = product(g, whole, grad_sum_all(g, both_borders(x), x->w->row));
  Gid before = count(g, is_before(x, x->write, x->at));
  all = made(g, all, "flow");
  for (uint32_t k = 0; k < x->w->n; k++)
    if (writes(x, k)) {
      Gid z = border(x, &x->back, x->write_read[k], vector_of_write(x, k),
                     x->write);
      z = product(g, z, decays(x, BEHIND, x->write, TO_LAST, 0));
      z = product(g, before, made(g, z, "flow"));
      all = plus(g, all, grad_sum_all(g, z, grad_bit(x->write)));
    }
  return all;
}

typedef struct Flows {
  Gid (*to_end)(const Gates *x);
  Gid (*to_use)(const Gates *x, uint32_t i);
} Flows;

static Gid phi(const Gates *x) {
  static const Flows one = {flows_to_end, flows_to_use},
                     each = {to_end, to_use},
                     walked = {walked_to_end, walked_to_use};
  const Flows *f = !x->rows ? &one : x->narrow ? &walked : &each;
  Gid all = f->to_end(x);
  for (uint32_t i = 0; i < x->w->n; i++)
    if (used_by(x, i)) all = plus(x->g, all, f->to_use(x, i));
  return made(x->g, all, "decay");
}

// ---------------------------------------------------------------- all
// Steps of a chunk; fewer where the driver asks for room in shared memory.
static int64_t steps_of(const Gates *x) {
  const Target *t = x->g->opt->target;
  bool gpu = t->kind == TARGET_GPU;
  bool tiles = gpu && t->gpu.hopper && x->narrow;
  int64_t n = x->rows && !tiles ? COST_GRAD_ROW_CHUNK : COST_GRAD_CHUNK;
  int64_t halves = gpu ? relief_halves(x->g->opt) : 0;
  while (halves-- > 0 && n > HW_BLOCK) n /= 2;
  return n;
}

static void put_axes(Gates *x) {
  Grad *g = x->g;
  DimTab *d = &g->m->dims;
  int64_t steps = steps_of(x);
  bool apart = x->rows && !x->narrow;
  Dim n = g->axes.at[x->w->axis].axis.extent;
  x->size = dim_const(d, steps);
  Dim up = dim_bin(d, DIM_ADD, n, dim_const(d, steps - 1));
  x->chunk =
      grad_axis(g, "chunk", AX_PAR, dim_bin(d, DIM_FLOORDIV, up, x->size));
  x->at = grad_axis(g, "at", AX_PAR, x->size);
  x->use = grad_axis(g, "use", apart ? AX_VEC : AX_PAR, x->size);
  x->write = grad_axis(g, "write", AX_VEC, x->size);
  x->sum = grad_axis(g, "sum", AX_VEC, x->size);
}

// phi as a function of the step.
static Gid by_step(const Gates *x, Gid v) {
  Grad *g = x->g;
  Gid t = at(x, x->w->axis), size = size_node(x);
  v = grad_moved(g, v, x->chunk, grad_2(g, OP_FLOORDIV, t, size));
  return grad_moved(g, v, x->at, grad_2(g, OP_MOD, t, size));
}

static void find_along(Gates *x) {
  for (uint32_t i = 0; i < x->a->w->n; i++) {
    GradItemKind kind = x->a->w->item[i].kind;
    if (kind == GI_READ) x->along[i] = grad_read_by(x->a, i);
    if (kind == GI_WRITE) x->along[i] = grad_written(x->a, i);
  }
}

// Rows and columns change places.
static void turn(Gates *x) {
  GradWalk *w = NEW(x->g->arena, GradWalk);
  *w = *x->w;
  w->row = x->w->col;
  w->col = x->w->row;
  for (uint32_t i = 0; i < w->n; i++) {
    Gid along = x->along[i];
    if (w->item[i].kind == GI_DECAY) continue;
    x->along[i] = along ? w->item[i].x : 0;
    w->item[i].x = along;
  }
  x->w = w;
}

static void gate(GradAdjoint *a, uint32_t i) {
  Grad *g = a->g;
  Gates *x = NEW(g->arena, Gates);
  Gid log2_decay = a->w->item[i].x;
  *x = (Gates){.g = g, .a = a, .w = a->w, .decay = i};
  find_along(x);
  if (grad_at(g, log2_decay)->axes & a->w->col) turn(x);
  x->rows = grad_at(g, log2_decay)->axes & x->w->row;
  DType vectors = grad_vectors(g, a->w->node);
  x->narrow = vectors == DT_BF16 ? vectors : 0;
  put_axes(x);
  walk_states(x);
  walk_cotangents(x);
  if (!x->rows || x->narrow) walk_sums(x);
  Gid d = by_step(x, phi(x));
  d = product(g, grad_num(g, M_LN2), d);
  uint64_t points = grad_at(g, d)->axes | grad_bit(a->w->axis);
  grad_give(g, log2_decay, d, points);
}

bool grad_gates(GradAdjoint *a) {
  for (uint32_t i = 0; i < a->w->n; i++)
    if (a->w->item[i].kind == GI_DECAY && a->g->active[a->w->item[i].x])
      gate(a, i);
  return true;
}
