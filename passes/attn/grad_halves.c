// grad, part 5: the adjoint of a chunk whose rows have decays of their own.
//
// Decays of rows are no factors of a tile of products. They are taken to the
// vectors, relative to a border between two halves of the chunk:
//
//   2 ** (decays behind j, to i) = 2 ** (decays behind the border, to i)
//                                * 2 ** (decays behind j, to the border)
//
// for all i behind the border and all j in front of it; then the same in each
// half, and so on: all pairs of steps but a step with itself, which has no
// decay between. No exponent is that of anything else than decays between two
// steps, so strong ones are as exact as weak ones, and no chunk is walked. With
// E_t the factor of step t of a level, the one to or from its border, T_ij =
// y_i . e_j where i is behind the border of both and j in front of it:
//
//   dx_i = E_i sum over j of T_ij (E_j b_j)
//   db_j = E_j sum over i of T_ij (E_i x_i)
//   de_j = sum over i of ((E_i x_i) . (E_j b_j)) y_i
//
// summed over the levels. A decay's gradient is the sum of what crosses it,
// from steps in front of the border to those behind: for each row
//
//   phi_t = sum over levels and i >= t, in t's half, of x_i dx_i
//           or sum over j < t, in t's half, of b_j db_j
//
// of that level: t is behind the border or in front of it. The state and the
// cotangent at the chunk's borders are one more level, of which the whole chunk
// is both halves. All sums along steps are products with matrices of ones.
//
// Where all decays of a chunk are weak, there are no levels: all steps are
// scaled relative to the chunk's middle at once, reads by 2 ** D_i, what is
// written by 2 ** -D_j, with D_t the decays between the middle and t. Whether
// they are is made for each chunk in front, and a choice of both ways is a
// branch (passes/gpu/branch_arms.c). No single border is crossed then, so
//
//   phi_t = sum over i >= t of x_i dx_i - sum over j >= t of b_j db_j
//
// whose terms of pairs behind t cancel: as the very operands of the products
// are multiplied to their sums, and these are two numbers of 16 bits, what is
// left of them is 2 ** -17; a weak decay takes no more than a few bits of what
// crosses it.
//
// Several pairs of reads and writes, as erasures make them, are more than one
// kernel has registers for: what reads get is one's, what writes get another's.
// Either has what crosses decays at its vectors; the first stores that in f32,
// as it cancels where decays are weak.
//
// All tiles of a level are along two axes of steps only, `use` and `write`.
// What reads and writes get is of one tile, as it is and turned round, and
// factors are the same along both axes: code has each once.
#include "passes/attn/grad_chunks.h"
#include "passes/support/cost.h"

#include <math.h>
#include <string.h>

enum { MAX_LEVELS = 8 };

// Of a level: its halves have so many steps; the chunk's borders: 0.
typedef int64_t Half;

// Of several reads or writes what reads get, and what writes get, are kernels
// of their own, each of which has the flows of its vectors.
typedef enum Side { BOTH, READS, WRITES } Side;

typedef struct Halves {
  Chunks *c;
  Grad *g;
  Side side;
  Gid dx[MAX_ITEMS], db[MAX_ITEMS];  // by item: sums so far
  Gid phi;
  Gid weak;  // are all decays of the chunk? 0: always
  bool gates;
  Gid first;                              // what is made in this order
  Gid order[4 * MAX_ITEMS * MAX_LEVELS];  // in which values are made
  uint32_t n;
} Halves;

// ---------------------------------------------------------------- halves
// As an operand, where `in` holds.
static Gid operand(Grad *g, Gid in, Gid v) {
  v = grad_chunk_narrowed(g, v);
  Gid zero = grad_chunk_narrowed(g, grad_num(g, 0));
  Gid args[3] = {in, v, zero};
  GradNode n = {.code = OP_SELECT, .dtype = DT_BF16, .n = 3};
  n.axes = grad_at(g, in)->axes | grad_at(g, v)->axes;
  return grad_put(g, n, args);
}

static Gid count(Grad *g, Gid c) {
  return operand(g, c, grad_num(g, 1));
}

// Steps and borders are counted twice, 2 t + 1 being the middle of step t, and
// no number is 1: all levels have the same ops, which code has once
// (passes/gpu/reroll.c).
static Gid middle(const Chunks *c, uint32_t axis) {
  Grad *g = c->g;
  Gid at = grad_chunk_at(c, axis);
  Gid one = grad_int(g, 1);
  return grad_2(g, OP_ADD, grad_2(g, OP_ADD, at, at), one);
}

typedef struct Place {
  Gid own, start, size;  // of a step, its half
  Gid odd;               // is that the second half of a block?
} Place;

static Place place_of(const Chunks *c, uint32_t axis, Half h) {
  Grad *g = c->g;
  Place p = {.size = grad_num(g, 2 * (double)h)};
  p.own = grad_chunk_as(g, DT_F32, middle(c, axis));
  Gid half = grad_2(g, OP_MUL, p.own, grad_num(g, 0.5 / (double)h));
  Gid block = grad_2(g, OP_MUL, p.own, grad_num(g, 0.25 / (double)h));
  half = grad_1(g, OP_FLOOR, half);
  block = grad_1(g, OP_FLOOR, block);
  p.start = grad_2(g, OP_MUL, half, p.size);
  p.odd = grad_2(g, OP_NE, half, grad_2(g, OP_ADD, block, block));
  return p;
}

static Gid is_within(const Chunks *c, uint32_t axis, Gid lo, Gid hi) {
  Grad *g = c->g;
  Gid at = middle(c, axis);
  lo = grad_2(g, OP_LT, grad_chunk_as(g, DT_I64, lo), at);
  return grad_2(g, OP_AND, lo,
                grad_2(g, OP_LT, at, grad_chunk_as(g, DT_I64, hi)));
}

// Is step `i` in the half behind the border, `k` in that in front of it? One
// of them is `use`: of that the other's half is found.
static Gid is_pair(const Chunks *c, uint32_t i, uint32_t k, Half h) {
  Grad *g = c->g;
  Place p = place_of(c, c->use, h);
  bool second = (i == c->use) != c->w->reverse;
  Gid lo = grad_2(g, second ? OP_SUB : OP_ADD, p.start, p.size);
  Gid end = grad_2(g, OP_ADD, lo, p.size);
  Gid hi = grad_3(g, OP_SELECT, p.odd, second ? end : lo, second ? lo : end);
  return is_within(c, i == c->use ? k : i, lo, hi);
}

// Is the decay of step `at` between step `t` and the border, of which t is
// behind? A read in front of its own decay: early.
static Gid is_crossed(const Chunks *c, uint32_t t, bool early) {
  return early ? grad_chunk_before(c, c->at, t)
               : grad_1(c->g, OP_NOT, grad_chunk_before(c, t, c->at));
}

// The same of either side of a border.
static Gid crossed(const Chunks *c, uint32_t t, Half h, bool early) {
  Grad *g = c->g;
  Place p = place_of(c, t, h);
  bool back = c->w->reverse;
  Gid from = p.own, to = p.own, one = grad_num(g, 1);
  if (!early && back) from = grad_2(g, OP_SUB, from, one);
  if (!early && !back) to = grad_2(g, OP_ADD, to, one);
  Gid lo = grad_3(g, OP_SELECT, p.odd, p.start, from);
  Gid hi = grad_3(g, OP_SELECT, p.odd, to, grad_2(g, OP_ADD, p.start, p.size));
  return is_within(c, c->at, lo, hi);
}

// ---------------------------------------------------------------- factors
// The sum of v times `one` along a local axis, in two parts: v is two numbers
// of 16 bits, which leaves 2^-17 of it out.
static void exact_sums(Grad *g, Gid v, Gid one, uint32_t local, Gid *sum) {
  Gid hi = grad_chunk_narrowed(g, v);
  Gid lo = grad_2(g, OP_SUB, v, grad_chunk_as(g, DT_F32, hi));
  lo = grad_chunk_narrowed(g, lo);
  uint64_t over = grad_bit(local);
  sum[0] = grad_sum_all(g, grad_2(g, OP_MUL, one, hi), over);
  sum[1] = grad_sum_all(g, grad_2(g, OP_MUL, one, lo), over);
}

static Gid exact_sum(Grad *g, Gid v, Gid one, uint32_t local) {
  Gid sum[2];
  exact_sums(g, v, one, local, sum);
  return grad_2(g, OP_ADD, sum[1], sum[0]);
}

static Gid power(Grad *g, Gid all) {
  all = grad_2(g, OP_MIN, all, grad_num(g, COST_GRAD_MOST_GROWTH));
  return grad_1(g, OP_EXP2, all);
}

// The sum of the decays where `in` holds, as a factor.
static Gid factor(const Chunks *c, Gid in) {
  Grad *g = c->g;
  Gid d = grad_chunk_decay(c, c->at);
  return power(g, exact_sum(g, d, count(g, in), c->at));
}

Gid grad_halves_upto(const Chunks *c, uint32_t local, bool early) {
  return factor(c, is_crossed(c, local, early));
}

Gid grad_halves_behind(const Chunks *c, uint32_t local) {
  return factor(c, grad_chunk_before(c, local, c->at));
}

// E
static Gid level(const Chunks *c, uint32_t local, Half h, bool early) {
  return factor(c, crossed(c, local, h, early));
}

// ---------------------------------------------------------------- products
static bool is_early(const Halves *x, uint32_t i) {
  return grad_chunk_early(x->c, i);
}

// Along the rows: what is read by, or written. As an operand, as it is scaled
// for each level anew.
static Scaled own_vector(const Halves *x, uint32_t item, uint32_t local) {
  Scaled s = grad_chunk_vector(x->c, x->c->w->item[item].x, local, false);
  s.v = grad_chunk_narrowed(x->g, s.v);
  return s;
}

static Scaled cotangent(const Halves *x, uint32_t i, uint32_t local) {
  return grad_chunk_vector(x->c, grad_read_by(x->c->a, i), local, true);
}

static Scaled written(const Halves *x, uint32_t k, uint32_t local) {
  return grad_chunk_vector(x->c, grad_chunk_written(x->c, k), local, true);
}

// The products of v along `use` and w along `write`.
static Gid tile(const Halves *x, Scaled v, Scaled w, uint64_t over) {
  Gid p = grad_chunk_dot(x->c, v.v, w.v, over);
  return grad_chunk_product(x->g, grad_chunk_product(x->g, p, v.f), w.f);
}

// f v E, as an operand.
static Gid scaled(const Halves *x, Scaled v, uint32_t local, Half h,
                  bool early) {
  Gid e = level(x->c, local, h, early);
  e = grad_2(x->g, OP_MUL, grad_chunk_as(x->g, DT_F32, v.v), e);
  return grad_chunk_narrowed(x->g, grad_chunk_product(x->g, e, v.f));
}

// What needs the columns is made by a kernel in front: levels are of rows and
// steps only.
static Gid made_before(const Halves *x, Gid v, const char *name) {
  GradNode made = {.code = GRAD_MADE,
                   .dtype = DT_F32,
                   .axes = grad_at(x->g, v)->axes,
                   .attr = GRAD_NARROW,
                   .hint = name,
                   .n = 1};
  return grad_put(x->g, made, &v);
}

// ---------------------------------------------------------------- a level
typedef struct Pair {
  uint32_t i, k;  // a read, a write
} Pair;

static Gid same_step(const Halves *x) {
  const Chunks *c = x->c;
  Gid write = grad_chunk_at(c, c->write);
  return grad_2(x->g, OP_EQ, grad_chunk_at(c, c->use), write);
}

// y_i . e_k of those that are behind the border and in front of it, or of the
// same step, as an operand.
static Gid seen(const Halves *x, Pair p, Half h) {
  const Chunks *c = x->c;
  Scaled e = written(x, p.k, c->write), y = cotangent(x, p.i, c->use);
  Gid in = h ? is_pair(c, c->use, c->write, h) : same_step(x);
  return operand(x->g, in, made_before(x, tile(x, y, e, c->w->col), "tile"));
}

// The sum of v, along `local`, by that tile.
static Gid sum_of(const Halves *x, Pair p, Scaled v, uint32_t local, Half h) {
  Grad *g = x->g;
  Gid t = seen(x, p, h), y = v.v;
  if (h) y = scaled(x, v, local, h, is_early(x, p.i));
  else if (v.f) t = grad_chunk_narrowed(g, grad_2(g, OP_MUL, t, v.f));
  return grad_sum_all(g, grad_2(g, OP_MUL, y, t), grad_bit(local));
}

// What of write k of some steps reads i of others get; of the same step.
static Gid to_read(const Halves *x, Pair p, Half h) {
  uint32_t write = x->c->write;
  return sum_of(x, p, own_vector(x, p.k, write), write, h);
}

static Gid to_write(const Halves *x, Pair p, Half h) {
  uint32_t use = x->c->use;
  return sum_of(x, p, own_vector(x, p.i, use), use, h);
}

static bool reads(const Halves *x, uint32_t i) {
  return x->c->w->item[i].kind == GI_READ && x->c->y[i].v;
}

// Has item i a gradient, or do decays need it?
static bool is_wanted(const Halves *x, uint32_t i) {
  return x->gates || x->g->active[x->c->a->of->item[i].x];
}

static bool writes(const Halves *x, uint32_t k) {
  return x->c->w->item[k].kind == GI_WRITE;
}

// Is it made on this side?
static bool has_gradient(const Halves *x, uint32_t i) {
  Side other = writes(x, i) ? READS : WRITES;
  return is_wanted(x, i) && x->side != other;
}

static void make(Halves *x, Gid v) {
  if (v) x->order[x->n++] = v;
}

static Gid add_to(Halves *x, Gid *sum, Gid v) {
  *sum = grad_chunk_plus(x->g, *sum, v);
  make(x, *sum);
  return v;
}

// What crosses decays, along `local`, times the ones.
static void add_flows(Halves *x, Gid flow, Gid in, uint32_t local) {
  if (!flow || !x->gates) return;
  Gid v = grad_chunk_dot(x->c, flow, count(x->g, in), grad_bit(local));
  add_to(x, &x->phi, v);
}

// v, a gradient, times its vector.
static Gid flow(const Halves *x, Scaled s, Gid v) {
  Grad *g = x->g;
  v = grad_2(g, OP_MUL, grad_chunk_as(g, DT_F32, s.v), v);
  return grad_chunk_product(g, v, s.f);
}

// Reads in front of their step's decay, or those behind, of a level; with the
// writes where `both`.
static void add_reads(Halves *x, Half h, bool early, Gid *flows) {
  Grad *g = x->g;
  const Chunks *c = x->c;
  for (uint32_t i = 0; i < c->w->n && x->side != WRITES; i++) {
    if (!reads(x, i) || !is_wanted(x, i) || is_early(x, i) != early) continue;
    Gid v = 0;
    for (uint32_t k = 0; k < c->w->n; k++)
      if (writes(x, k)) v = grad_chunk_plus(g, v, to_read(x, (Pair){i, k}, h));
    if (!v) continue;
    Gid q = scaled(x, own_vector(x, i, c->use), c->use, h, early);
    *flows = grad_chunk_plus(g, *flows, flow(x, (Scaled){q, 0}, v));
    add_to(x, &x->dx[i], grad_2(g, OP_MUL, v, level(c, c->use, h, early)));
  }
}

static void add_writes(Halves *x, Half h, bool early, Gid *flows) {
  Grad *g = x->g;
  const Chunks *c = x->c;
  for (uint32_t k = 0; k < c->w->n && x->side != READS; k++) {
    if (!writes(x, k) || !is_wanted(x, k)) continue;
    Gid v = 0;
    for (uint32_t i = 0; i < c->w->n; i++)
      if (reads(x, i)) v = grad_chunk_plus(g, v, to_write(x, (Pair){i, k}, h));
    if (!v) continue;
    Gid b = scaled(x, own_vector(x, k, c->write), c->write, h, early);
    *flows = grad_chunk_plus(g, *flows, flow(x, (Scaled){b, 0}, v));
    add_to(x, &x->db[k], grad_2(g, OP_MUL, v, level(c, c->write, h, early)));
  }
}

static bool has_reads(const Halves *x, bool early) {
  for (uint32_t i = 0; i < x->c->w->n; i++)
    if (reads(x, i) && is_early(x, i) == early) return true;
  return false;
}

static void add_level(Halves *x, Half h) {
  const Chunks *c = x->c;
  bool first = !has_reads(x, false);
  for (int k = 0; k < 2; k++) {
    bool early = k ? !first : first;
    Gid read = 0, written = 0;
    if (!has_reads(x, early)) continue;
    add_reads(x, h, early, &read);
    add_flows(x, read, crossed(c, c->use, h, early), c->use);
    if (!k) add_writes(x, h, early, &written);
    add_flows(x, written, crossed(c, c->write, h, early), c->write);
  }
}

// ---------------------------------------------------------------- borders
// What read i has of the state, and write k of the cotangent, without decays.
static Gid of_state(const Halves *x, uint32_t i) {
  const Chunks *c = x->c;
  Scaled y = cotangent(x, i, c->use);
  Gid v = grad_chunk_dot(c, y.v, c->state, c->w->col);
  return made_before(x, grad_chunk_product(x->g, v, y.f), "read");
}

static Gid of_end(const Halves *x, uint32_t k) {
  const Chunks *c = x->c;
  Scaled e = written(x, k, c->write);
  Gid v = grad_chunk_dot(c, e.v, c->cotangent, c->w->col);
  return made_before(x, grad_chunk_product(x->g, v, e.f), "write");
}

static void add_state(Halves *x, uint32_t i) {
  const Chunks *c = x->c;
  Gid v = of_state(x, i);
  v = grad_2(x->g, OP_MUL, v, grad_halves_upto(c, c->use, is_early(x, i)));
  add_to(x, &x->dx[i], v);
  Gid crossed = is_crossed(c, c->use, is_early(x, i));
  add_flows(x, flow(x, own_vector(x, i, c->use), v), crossed, c->use);
}

static void add_cotangent(Halves *x, uint32_t k) {
  const Chunks *c = x->c;
  uint32_t write = c->write;
  Gid v = of_end(x, k);
  v = grad_2(x->g, OP_MUL, v, grad_halves_behind(c, write));
  add_to(x, &x->db[k], v);
  Gid before = grad_chunk_before(c, write, c->at);
  add_flows(x, flow(x, own_vector(x, k, write), v), before, write);
}

// What flows through the whole chunk.
static void add_through(Halves *x) {
  Grad *g = x->g;
  const Chunks *c = x->c;
  Gid both = grad_2(g, OP_MUL, c->state, c->cotangent);
  both = grad_sum_all(g, both, c->w->col);
  both = grad_made(g, both, grad_at(g, both)->axes, "both");
  Gid all = grad_sum_all(g, grad_chunk_decay(c, c->at), grad_bit(c->at));
  if (x->gates) x->phi = grad_2(g, OP_MUL, both, grad_1(g, OP_EXP2, all));
  make(x, x->phi);
}

static void add_borders(Halves *x) {
  for (uint32_t i = 0; i < x->c->w->n; i++) {
    if (has_gradient(x, i) && reads(x, i)) add_state(x, i);
    if (has_gradient(x, i) && writes(x, i)) add_cotangent(x, i);
  }
}

// ---------------------------------------------------------------- whole
// Of any chunk, whatever the gates are?
static bool always_weak(const GradWalk *w) {
  return w->falling && w->least >= -COST_GRAD_WEAK_STEP &&
         w->least * COST_GRAD_CHUNK >= -COST_GRAD_MOST_GROWTH;
}

// The decays of each row, of which one that is too strong is more than all may
// be; then rows that have more. 0: none ever has.
static Gid is_weak(const Chunks *c) {
  Grad *g = c->g;
  if (always_weak(c->w)) return 0;
  Gid d = grad_chunk_decay(c, c->at), one = grad_num(g, 1);
  Gid size = grad_2(g, OP_MAX, d, grad_1(g, OP_NEG, d));
  Gid strong = grad_2(g, OP_LT, grad_num(g, COST_GRAD_WEAK_STEP), size);
  Gid most = grad_num(g, COST_GRAD_MOST_GROWTH);
  size = grad_3(g, OP_SELECT, strong, grad_2(g, OP_ADD, most, most), size);
  Gid row = grad_sum_all(g, size, grad_bit(c->at));
  row = grad_made(g, row, grad_at(g, row)->axes, "course");
  Gid all = grad_or_0(g, grad_2(g, OP_LT, most, row), one);
  all = grad_sum_all(g, all, c->w->row);
  GradNode made = {.code = GRAD_MADE,
                   .dtype = DT_F32,
                   .axes = grad_at(g, all)->axes,
                   .attr = GRAD_ALONE,
                   .hint = "strong",
                   .n = 1};
  return grad_2(g, OP_LT, grad_put(g, made, &all), one);
}

// Is step `local` in the chunk's second half, in the order of the walk?
static Gid is_later(const Chunks *c, uint32_t local) {
  Grad *g = c->g;
  Gid half = grad_int(g, COST_GRAD_CHUNK / 2);
  Gid first = grad_2(g, OP_LT, grad_chunk_at(c, local), half);
  return c->w->reverse ? first : grad_1(g, OP_NOT, first);
}

// D: the decays from the chunk's middle to step t; of those in front of it less
// those from it to the middle. Early: its own is behind it.
static Gid from_middle(const Chunks *c, uint32_t t, bool early) {
  Grad *g = c->g;
  Gid upto = is_crossed(c, t, early);
  Gid later = is_later(c, c->at), zero = grad_num(g, 0);
  Gid plus = grad_chunk_narrowed(g, grad_num(g, 1));
  Gid minus = grad_chunk_narrowed(g, grad_num(g, -1));
  Gid none = grad_chunk_narrowed(g, zero);
  uint64_t axes = grad_at(g, upto)->axes | grad_at(g, later)->axes;
  GradNode n = {.code = OP_SELECT, .dtype = DT_BF16, .axes = axes, .n = 3};
  Gid in = grad_2(g, OP_AND, upto, later);
  Gid out = grad_1(g, OP_NOT, grad_2(g, OP_OR, upto, later));
  Gid less = grad_put(g, n, (Gid[]){out, minus, none});
  Gid one = grad_put(g, n, (Gid[]){in, plus, less});
  return exact_sum(g, grad_chunk_decay(c, c->at), one, c->at);
}

static Gid of_reads(const Halves *x, uint32_t local, bool early) {
  return power(x->g, from_middle(x->c, local, early));
}

static Gid of_writes(const Halves *x, uint32_t local) {
  Grad *g = x->g;
  return power(g, grad_1(g, OP_NEG, from_middle(x->c, local, false)));
}

// f v, as an operand.
static Gid times(const Halves *x, Scaled v, Gid f) {
  Grad *g = x->g;
  f = grad_2(g, OP_MUL, grad_chunk_as(g, DT_F32, v.v), f);
  return grad_chunk_narrowed(g, grad_chunk_product(g, f, v.f));
}

// y_i . e_k of all steps that see each other, as an operand.
static Gid all_seen(const Halves *x, Pair p) {
  const Chunks *c = x->c;
  Scaled e = written(x, p.k, c->write), y = cotangent(x, p.i, c->use);
  Gid in = grad_chunk_before(c, c->write, c->use);
  return operand(x->g, in, made_before(x, tile(x, y, e, c->w->col), "tile"));
}

// The decays of the chunk's first half, in the order of the walk, or of the
// other, as a factor.
static Gid half_course(const Chunks *c, bool later) {
  Grad *g = c->g;
  uint64_t at = grad_bit(c->at);
  Gid d = grad_chunk_decay(c, c->at), all = grad_sum_all(g, d, at);
  Gid first = grad_or_0(g, grad_1(g, OP_NOT, is_later(c, c->at)), d);
  first = grad_sum_all(g, first, at);
  return grad_1(g, OP_EXP2, later ? grad_2(g, OP_SUB, all, first) : first);
}

// What flows from step `local` on, to all decays in front.
static void add_course(Halves *x, Gid flow, uint32_t local, bool early) {
  Gid sum[2], in = is_crossed(x->c, local, early);
  if (!x->gates) return;
  exact_sums(x->g, flow, count(x->g, in), local, sum);
  for (uint32_t i = 0; i < 2; i++) add_to(x, &x->phi, sum[i]);
}

// The state in front is scaled by the first half's decays, D is from there on.
static void add_all_reads(Halves *x, uint32_t i) {
  Grad *g = x->g;
  const Chunks *c = x->c;
  Gid power = of_reads(x, c->use, is_early(x, i));
  Gid first = half_course(c, false), others = of_writes(x, c->write);
  Gid v = grad_2(g, OP_MUL, of_state(x, i), first);
  for (uint32_t k = 0; k < c->w->n; k++) {
    if (!writes(x, k)) continue;
    Gid b = times(x, own_vector(x, k, c->write), others);
    b = grad_2(g, OP_MUL, b, all_seen(x, (Pair){i, k}));
    b = grad_sum_all(g, b, grad_bit(c->write));
    v = grad_2(g, OP_ADD, v, b);
  }
  Gid q = times(x, own_vector(x, i, c->use), power);
  add_to(x, &x->dx[i], grad_2(g, OP_MUL, v, power));
  add_course(x, flow(x, (Scaled){q, 0}, v), c->use, is_early(x, i));
}

// Of what flows to the end from steps in front of a decay: all of it less that
// of those behind.
static void add_all_writes(Halves *x, uint32_t k) {
  Grad *g = x->g;
  const Chunks *c = x->c;
  Gid power = of_writes(x, c->write);
  Gid last = half_course(c, true);
  Gid end = grad_2(g, OP_MUL, of_end(x, k), last), v = end;
  for (uint32_t i = 0; i < c->w->n; i++) {
    if (!reads(x, i)) continue;
    Gid others = of_reads(x, c->use, is_early(x, i));
    Gid q = times(x, own_vector(x, i, c->use), others);
    q = grad_2(g, OP_MUL, q, all_seen(x, (Pair){i, k}));
    q = grad_sum_all(g, q, grad_bit(c->use));
    v = grad_2(g, OP_ADD, v, q);
  }
  Scaled own = own_vector(x, k, c->write), b = {times(x, own, power), 0};
  add_to(x, &x->db[k], grad_2(g, OP_MUL, v, power));
  Gid all = grad_sum_all(g, flow(x, b, end), grad_bit(c->write));
  if (x->gates) add_to(x, &x->phi, all);
  add_course(x, grad_1(g, OP_NEG, flow(x, b, v)), c->write, false);
}

static void add_whole(Halves *x) {
  const Chunks *c = x->c;
  for (uint32_t i = 0; i < c->w->n; i++) {
    if (has_gradient(x, i) && reads(x, i)) add_all_reads(x, i);
    if (has_gradient(x, i) && writes(x, i)) add_all_writes(x, i);
  }
}

// Both ways have made it.
static void choose(Halves *x, const Halves *one, Gid *v, Gid other) {
  if (*v && *v != other) *v = grad_3(x->g, OP_SELECT, one->weak, other, *v);
}

static void add_pairs(Halves *x) {
  if (!x->weak) {
    add_whole(x);
    return;
  }
  Halves *one = NEW(x->g->arena, Halves);
  *one = *x;
  add_whole(one);
  memcpy(x->order, one->order, sizeof x->order);
  x->n = one->n;
  add_borders(x);
  for (Half h = COST_GRAD_CHUNK / 2; h; h /= 2) add_level(x, h);
  for (uint32_t i = 0; i < x->c->w->n; i++) {
    choose(x, one, &x->dx[i], one->dx[i]);
    choose(x, one, &x->db[i], one->db[i]);
  }
  choose(x, one, &x->phi, one->phi);
}

// ---------------------------------------------------------------- written
// x_i . b_k of those along `write` and `use`, with the decays between.
static Gid paths(const Halves *x, Pair p) {
  Grad *g = x->g;
  const Chunks *c = x->c;
  Scaled b = own_vector(x, p.k, c->use), q = own_vector(x, p.i, c->write);
  bool early = is_early(x, p.i);
  Gid all = 0;
  Gid of_b = of_writes(x, c->use), of_q = of_reads(x, c->write, early);
  of_b = times(x, b, of_b), of_q = times(x, q, of_q);
  Gid whole = grad_2(g, OP_MUL, of_b, of_q);
  whole = grad_sum_all(g, whole, c->w->row);
  whole = grad_or_0(g, grad_chunk_before(c, c->use, c->write), whole);
  for (Half h = COST_GRAD_CHUNK / 2; x->weak && h; h /= 2) {
    Gid other = scaled(x, q, c->write, h, early);
    Gid both = grad_2(g, OP_MUL, scaled(x, b, c->use, h, early), other);
    Gid t = grad_sum_all(g, both, c->w->row);
    t = grad_or_0(g, is_pair(c, c->write, c->use, h), t);
    all = grad_chunk_plus(g, all, t);
  }
  all = x->weak ? grad_3(g, OP_SELECT, x->weak, whole, all) : whole;
  if (p.k < p.i) {
    Gid same = grad_chunk_dot(c, b.v, q.v, c->w->row);
    same = grad_chunk_product(g, grad_chunk_product(g, same, q.f), b.f);
    all = grad_chunk_plus(g, all, grad_or_0(g, same_step(x), same));
  }
  return all;
}

// Of the cotangent behind the chunk, by what the walk of the states writes.
static Gid of_cotangent(const Halves *x, uint32_t k) {
  Grad *g = x->g;
  const Chunks *c = x->c;
  if (c->scaled[k]) {
    Gid v = grad_moved(g, c->scaled[k], c->write, grad_chunk_at(c, c->use));
    return grad_chunk_dot(c, v, c->cotangent, c->w->row);
  }
  Scaled b = own_vector(x, k, c->use);
  Gid behind = grad_halves_behind(c, c->use);
  Gid v = grad_2(g, OP_MUL, grad_chunk_as(g, DT_F32, b.v), behind);
  v = grad_chunk_dot(c, v, c->cotangent, c->w->row);
  return grad_chunk_product(g, v, b.f);
}

static Gid of_written(const Halves *x, uint32_t k) {
  Grad *g = x->g;
  const Chunks *c = x->c;
  Gid v = 0;
  for (uint32_t i = 0; i < c->w->n; i++) {
    if (!reads(x, i)) continue;
    Scaled y = cotangent(x, i, c->write);
    Gid p = grad_chunk_product(g, paths(x, (Pair){i, k}), y.f);
    v = grad_chunk_plus(g, v, grad_chunk_dot(c, y.v, p, grad_bit(c->write)));
  }
  return grad_chunk_plus(g, v, of_cotangent(x, k));
}

// ---------------------------------------------------------------- all
static void add_same_steps(Halves *x) {
  const Chunks *c = x->c;
  for (uint32_t i = 0; i < c->w->n; i++)
    for (uint32_t k = 0; k < i; k++) {
      if (!reads(x, i) || !writes(x, k)) continue;
      if (has_gradient(x, i)) add_to(x, &x->dx[i], to_read(x, (Pair){i, k}, 0));
      if (has_gradient(x, k))
        add_to(x, &x->db[k], to_write(x, (Pair){i, k}, 0));
    }
}

static Halves *put_side(Chunks *c, bool gates, Side side, Gid weak) {
  Halves *x = NEW(c->g->arena, Halves);
  *x = (Halves){.c = c, .g = c->g, .side = side, .gates = gates, .weak = weak};
  if (side != WRITES) add_through(x);
  add_pairs(x);
  add_same_steps(x);
  Gid first = grad_list(c->g, x->order, x->n);
  for (uint32_t i = 0; i < c->w->n; i++) {
    Gid of = c->a->of->item[i].x;
    ChunkMade dx = {x->dx[i], first, OF_READ, .side = side};
    ChunkMade db = {x->db[i], first, OF_WRITE, .side = side};
    if (reads(x, i) && x->dx[i]) grad_chunk_give(c, of, dx);
    if (writes(x, i) && x->db[i]) grad_chunk_give(c, of, db);
  }
  x->first = first;
  return x;
}

static uint32_t pairs_of(const Halves *x) {
  uint32_t r = 0, w = 0;
  for (uint32_t i = 0; i < x->c->w->n; i++) {
    r += reads(x, i);
    w += writes(x, i);
  }
  return r * w;
}

// What flows to reads, stored in f32: of weak decays most of it cancels what
// flows from writes.
static Gid stored_flows(const Halves *x) {
  Grad *g = x->g;
  Dim shape[8];
  GradStore s = {.v = x->phi,
                 .rank = OF_DECAY,
                 .first = x->first,
                 .side = x->side,
                 .span = g->f->span};
  s.n = grad_coordinates(g, grad_at(g, x->phi)->axes, s.index, shape);
  const char *name = arena_printf(g->m->arena, "flows.part%u", g->tensors.n);
  GradTensor t = {.name = intern(&g->cx->names, name),
                  .from = GF_MADE,
                  .read = true,
                  .type = type_tensor(DT_F32, s.n, shape)};
  s.tensor = grad_tensor(g, t);
  vec_push(g->arena, &g->adds, s);
  return grad_load(g, s.tensor, s.index, s.n);
}

void grad_halves(Chunks *c, bool gates) {
  Gid weak = is_weak(c);
  Halves all = {.c = c, .g = c->g};
  bool split = pairs_of(&all) > 1;
  Halves *r = put_side(c, gates, split ? READS : BOTH, weak), *w = r;
  if (split) w = put_side(c, gates, WRITES, weak);
  for (uint32_t i = 0; i < c->w->n; i++) {
    Gid of = c->a->of->item[i].w;
    if (writes(w, i) && of && !c->erases)
      grad_chunk_give(c, of,
                      (ChunkMade){of_written(w, i), 0, OF_WRITTEN, true, 0});
  }
  if (!gates) return;
  Gid phi = w->phi;
  if (split) phi = grad_2(c->g, OP_ADD, stored_flows(r), phi);
  grad_chunk_give_decay(c, phi, w->first, w->side);
}
