// The gradient of a table that is read at a function of the distance of a row
// and a key, as a bucket of distances or a relative position:
//
//   before  g_table[h, t] =
//             sum over b, q, k of (at(q - k) == t ? x(b, h, q, k) : 0)
//   after   pairs[b, h, n, r, c] = sum over i of x(b, h, q, k)
//             where q = 128 i + r, k = 128 i - 64 (n - blocks of keys) + c
//           gaps[h, u] = sum over b, r of pairs[b, h, n, r, c]
//             where u = q - k + 64 (1 + blocks of keys) = 64 (1 + n) + r - c
//           g_table[h, t] = sum over u of (at(u - ..) == t ? gaps[h, u] : 0)
//
// All tiles of 128 rows and 64 keys along a band of the matrix of scores have
// the same distances: they are summed as they are, in the registers of a
// product of matrices, and what is stored are bands, not pairs. Each row of a
// band has a distance once or not at all, in 128 rows of three bands. Places
// look at distances. What a mask says of distances is a condition on what bands
// store: those without any pair are not made. Others are conditions on pairs.
#include "passes/attn/grad.h"
#include "passes/support/cost.h"

#include "ir/facts.h"

enum { SIDE = HW_GROUP_ROWS, ROWS = 2 * SIDE };  // keys and rows of tiles

typedef struct Gaps {
  Grad *g;
  uint32_t row, key;
} Gaps;

static Gid sum_of(Grad *g, Gid x, Gid y) {
  return grad_2(g, OP_ADD, x, y);
}

static Gid minus(Grad *g, Gid x, Gid y) {
  return grad_2(g, OP_SUB, x, y);
}

static Gid plus(Grad *g, Gid x, int64_t n) {
  return sum_of(g, x, grad_int(g, n));
}

static Gid by(Grad *g, OpCode code, Gid x, int64_t n) {
  return grad_2(g, code, x, grad_int(g, n));
}

// a x + y
static Gid add_times(Grad *g, int64_t a, Gid x, Gid y) {
  return sum_of(g, by(g, OP_MUL, x, a), y);
}

static Gid extent(Grad *g, uint32_t axis) {
  return grad_dim(g, g->axes.at[axis].axis.extent);
}

static Gid both(Grad *g, Gid a, Gid b) {
  return a && b ? grad_2(g, OP_AND, a, b) : a + b;
}

static Gid within(Grad *g, Gid x, Gid end) {
  Gid to = grad_2(g, OP_LT, x, end);
  Gid from = grad_2(g, OP_LE, grad_int(g, 0), x);
  return both(g, from, to);
}

// ---------------------------------------------------------------- distances
// How often x, a sum of coordinates and of what does not vary with them, has
// the row's and the key's. False: it is something else.
static bool is_linear(const Gaps *p, Gid x, int *row, int *key) {
  const GradNode *n = grad_at(p->g, x);
  int r[2] = {0}, k[2] = {0};
  *row = *key = 0;
  if (dtype_is_float(n->dtype)) return false;
  if (!n->axes) return true;
  if (n->code == OP_INDEX) {
    *row = n->attr == p->row, *key = n->attr == p->key;
    return *row || *key;
  }
  if ((n->code != OP_ADD && n->code != OP_SUB) ||
      !is_linear(p, n->arg[0], &r[0], &k[0]) ||
      !is_linear(p, n->arg[1], &r[1], &k[1]))
    return false;
  int sign = n->code == OP_ADD ? 1 : -1;
  *row = r[0] + sign * r[1], *key = k[0] + sign * k[1];
  return true;
}

// Is x the same at all points of one distance, and at all other coordinates?
static bool is_of_gaps(const Gaps *p, Gid x) {
  const Grad *g = p->g;
  const GradNode *n = grad_at(g, x);
  int row, key, other[2];
  uint64_t pair = grad_bit(p->row) | grad_bit(p->key);
  if (n->axes & ~pair & ~grad_places_of(g, n->axes)) return false;
  if (!(n->axes & pair)) return true;
  if (is_linear(p, x, &row, &key) && row + key == 0) return true;
  bool compares = op_info(n->code)->infer == INF_BOOL && n->n == 2;
  if (compares && is_linear(p, n->arg[0], &row, &key) &&
      is_linear(p, n->arg[1], &other[0], &other[1]) &&
      row - other[0] + key - other[1] == 0)
    return true;
  if (n->code == OP_INDEX || !(op_info(n->code)->flags & OPF_ELEM))
    return false;
  for (uint32_t i = 0; i < n->n; i++)
    if (!is_of_gaps(p, n->arg[i])) return false;
  return true;
}

// x at the distance `gap`.
static Gid at_gap(const Gaps *p, Gid x, Gid gap) {
  x = grad_moved(p->g, x, p->row, gap);
  return grad_moved(p->g, x, p->key, grad_int(p->g, 0));
}

// Of the conditions that c joins those that distances tell, or the others; 0:
// there are none.
static Gid conditions(const Gaps *p, Gid c, bool of_gaps) {
  const GradNode n = *grad_at(p->g, c);
  if (!c) return 0;
  if (is_of_gaps(p, c)) return of_gaps ? c : 0;
  if (n.code != OP_AND) return of_gaps ? 0 : c;
  Gid a = conditions(p, n.arg[0], of_gaps),
      b = conditions(p, n.arg[1], of_gaps);
  return both(p->g, a, b);
}

// The pairs that exist.
static Gid seen_by(const Gaps *p, bool of_gaps) {
  Gid rows = conditions(p, p->g->domain[p->row], of_gaps);
  Gid keys = conditions(p, p->g->domain[p->key], of_gaps);
  return both(p->g, rows, keys);
}

// ---------------------------------------------------------------- sizes
static Dim blocks_of(const Gaps *p) {
  Grad *g = p->g;
  return dim_ceildiv(&g->m->dims, g->axes.at[p->key].axis.extent, SIDE);
}

static Dim row_blocks(const Gaps *p) {
  Grad *g = p->g;
  return dim_ceildiv(&g->m->dims, g->axes.at[p->row].axis.extent, ROWS);
}

static Dim times(Grad *g, Dim d, int64_t n) {
  return dim_bin(&g->m->dims, DIM_MUL, d, dim_const(&g->m->dims, n));
}

// Distances are from - SIDE * blocks_of on.
static Dim bands_of(const Gaps *p) {
  Dim rows = times(p->g, row_blocks(p), ROWS / SIDE);
  return dim_bin(&p->g->m->dims, DIM_ADD, blocks_of(p), rows);
}

// ---------------------------------------------------------------- bands
// x, of pairs, as a kernel sums it along bands.
static const GradBand *put_bands(const Gaps *p, Gid x, uint64_t axes) {
  Grad *g = p->g;
  DimTab *d = &g->m->dims;
  GradBand b = {.of_row = p->row, .of_key = p->key};
  b.band = grad_axis(g, "band", AX_PAR, bands_of(p));
  b.row = grad_axis(g, "row", AX_PAR, dim_const(d, ROWS));
  b.column = grad_axis(g, "column", AX_PAR, dim_const(d, SIDE));
  GradNode made = {.code = GRAD_MADE,
                   .dtype = grad_kept(g, x),
                   .attr = GRAD_BANDED,
                   .hint = "pairs",
                   .n = 1};
  made.axes = axes | grad_bit(b.band) | grad_bit(b.row) | grad_bit(b.column);
  b.made = grad_put(g, made, &x);
  vec_push(g->arena, &g->bands, b);
  return &g->bands.at[g->bands.n - 1];
}

// The sum of the bands at a distance, along these axes too.
static Gid put_gaps(const Gaps *p, const GradBand *b, Gid gap, uint64_t rest) {
  Grad *g = p->g;
  Gid zero = grad_int(g, 0), x = b->made;
  Dim size = dim_const(&g->m->dims, ROWS);
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (rest & grad_bit(i))
      size = dim_bin(&g->m->dims, DIM_MUL, size, g->axes.at[i].axis.extent);
  uint32_t all = grad_axis(g, "all", AX_PAR, size);
  Gid point = grad_index(g, all), row = by(g, OP_MOD, point, ROWS);
  Gid rest_at = by(g, OP_FLOORDIV, point, ROWS);
  Gid left = minus(g, plus(g, gap, -SIDE), row);
  Gid band = by(g, OP_FLOORDIV, plus(g, left, SIDE - 1), SIDE);
  Gid column = minus(g, by(g, OP_MUL, band, SIDE), left);
  Gid some = within(g, band, extent(g, b->band));
  x = grad_moved(g, x, b->band, grad_3(g, OP_SELECT, some, band, zero));
  x = grad_moved(g, x, b->row, row);
  x = grad_moved(g, x, b->column, column);
  for (uint32_t i = g->axes.n; i-- > 0;) {
    if (!(rest & grad_bit(i))) continue;
    Gid many = extent(g, i);
    x = grad_moved(g, x, i, grad_2(g, OP_MOD, rest_at, many));
    rest_at = grad_2(g, OP_FLOORDIV, rest_at, many);
  }
  return grad_sum_all(g, grad_or_0(g, some, x), grad_bit(all));
}

// ---------------------------------------------------------------- terms
// Is x, of whatever axes, made of inputs at places that distances tell, and of
// distances?
static bool is_term(const Gaps *p, Gid x) {
  const Grad *g = p->g;
  const GradNode *n = grad_at(g, x);
  uint64_t pair = grad_bit(p->row) | grad_bit(p->key);
  bool input = n->code == OP_LOAD && g->tensors.at[n->tensor].from == GF_INPUT;
  if (!(n->axes & pair) && !n->n) return true;
  if (is_of_gaps(p, x)) return true;
  if (!input && !(op_info(n->code)->flags & OPF_ELEM)) return false;
  for (uint32_t i = 0; i < n->n; i++)
    if (!is_term(p, n->arg[i])) return false;
  return true;
}

static bool is_dear(const Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  if (n->code == OP_LOAD || op_is_function(n->code)) return true;
  for (uint32_t i = 0; i < n->n; i++)
    if (is_dear(g, n->arg[i])) return true;
  return false;
}

// x, whose terms of distances are made once for each.
static Gid with_terms(const Gaps *p, Gid x, uint32_t gaps, Gid zero) {
  Grad *g = p->g;
  const GradNode n = *grad_at(g, x);
  uint64_t pair = grad_bit(p->row) | grad_bit(p->key);
  if (!(n.axes & pair)) return x;
  if (dtype_is_float(n.dtype) && is_term(p, x) && is_dear(g, x)) {
    Gid at = minus(g, grad_index(g, gaps), zero);
    Gid term = at_gap(p, x, at), row = grad_index(g, p->row);
    Gid to = minus(g, row, grad_index(g, p->key));
    term = grad_made(g, term, grad_at(g, term)->axes, "term");
    return grad_moved(g, term, gaps, sum_of(g, to, zero));
  }
  if (n.code == OP_LOAD || !(op_info(n.code)->flags & OPF_ELEM)) return x;
  Gid *args = NEWN(g->arena, Gid, n.n + 1);
  for (uint32_t i = 0; i < n.n; i++)
    args[i] = with_terms(p, n.arg[i], gaps, zero);
  return memcmp(args, n.arg, n.n * sizeof *args) ? grad_put(g, n, args) : x;
}

static bool suits(const Gaps *p, Gid x, Gid same, uint64_t over) {
  const Grad *g = p->g;
  uint64_t pair = grad_bit(p->row) | grad_bit(p->key), rest = over & ~pair;
  if ((over & pair) != pair || !is_of_gaps(p, same) || g->walks.n ||
      ((grad_at(g, x)->axes | over) & grad_role(g, AX_VEC)) ||
      (rest & grad_role(g, AX_KEY)) || grad_runs(g, x))
    return false;
  for (uint32_t i = 0; i < g->axes.n; i++)
    if ((rest & grad_bit(i)) && g->domain[i]) return false;
  return g->opt->target->kind == TARGET_GPU;
}

// The sum of what distances have where `same` holds: by blocks of distances
// first, of which a task has the places.
static Gid sum_places(const Gaps *p, Gid gaps, uint32_t axis, Gid same) {
  Grad *g = p->g;
  DimTab *d = &g->m->dims;
  Dim blocks = dim_ceildiv(d, g->axes.at[axis].axis.extent, SIDE);
  uint32_t block = grad_axis(g, "block", AX_PAR, blocks),
           in = grad_axis(g, "of", AX_VEC, dim_const(d, SIDE));
  g->front |= grad_bit(block);  // a task's rows are places
  Gid first = grad_index(g, block);
  Gid at = add_times(g, SIDE, first, grad_index(g, in));
  Gid x = grad_or_0(g, same, gaps);
  x = grad_sum_all(g, grad_moved(g, x, axis, at), grad_bit(in));
  x = grad_made(g, x, grad_at(g, x)->axes, "places");
  return grad_sum_all(g, x, grad_bit(block));
}

// The axes of the row and of the key that distances are of.
static bool find_pair(Gaps *p, uint64_t of) {
  uint64_t key = of & grad_role(p->g, AX_KEY), row = of & ~key;
  if (!key || !row || (key & (key - 1)) || (row & (row - 1))) return false;
  while (!(row >> p->row & 1)) p->row++;
  while (!(key >> p->key & 1)) p->key++;
  return true;
}

Gid grad_gaps(Grad *g, Gid x, Gid same, uint64_t over, uint64_t points) {
  DimTab *d = &g->m->dims;
  uint64_t of = grad_at(g, same)->axes, places = grad_places_of(g, of);
  Gaps p = {g, 0, 0};
  of &= ~places;
  if (!find_pair(&p, of) || !suits(&p, x, same, over)) return 0;
  uint64_t axes = (points | grad_at(g, x)->axes) & ~of & ~places;
  Dim sides = dim_bin(d, DIM_ADD, bands_of(&p), dim_const(d, 2)),
      before = dim_bin(d, DIM_ADD, blocks_of(&p), dim_const(d, 1));
  uint32_t all = grad_axis(g, "gap", AX_PAR, times(g, sides, SIDE));
  Gid index = grad_index(g, all), zero = grad_dim(g, times(g, before, SIDE));
  Gid gap = minus(g, index, zero), seen = seen_by(&p, true);
  const GradBand b = *put_bands(&p, with_terms(&p, x, all, zero), axes);
  Gid sum = put_gaps(&p, &b, index, over & ~of & axes);
  sum = seen ? grad_or_0(g, at_gap(&p, seen, gap), sum) : sum;
  sum = grad_made(g, sum, grad_at(g, sum)->axes, "gaps");
  return sum_places(&p, sum, all, at_gap(&p, same, gap));
}

// ---------------------------------------------------------------- tiles
// x, where what distances tell is of the distance `gap`: no step changes it.
static Gid by_gap(const Gaps *p, Gid x, Gid gap) {
  Grad *g = p->g;
  GradNode n = *grad_at(g, x);
  uint64_t pair = grad_bit(p->row) | grad_bit(p->key), before = n.axes;
  if (!(n.axes & pair) || n.code == OP_INDEX || grad_read_of(g, x)) return x;
  if (is_of_gaps(p, x)) return at_gap(p, x, gap);
  bool goes = n.code == OP_LOAD || (op_info(n.code)->flags & OPF_ELEM);
  Gid *args = NEWN(g->arena, Gid, n.n + 1);
  if (!goes) return x;
  n.axes = 0;
  for (uint32_t i = 0; i < n.n; i++) {
    args[i] = by_gap(p, n.arg[i], gap);
    n.axes |= grad_at(g, args[i])->axes;
  }
  bool same = n.axes == before && !memcmp(args, n.arg, n.n * sizeof *args);
  return same ? x : grad_put(g, n, args);
}

// Is there such a pair?
static Gid is_pair(const Gaps *p, Gid row, Gid key) {
  Grad *g = p->g;
  Gid is_key = grad_2(g, OP_LT, key, extent(g, p->key));
  Gid is_row = grad_2(g, OP_LT, row, extent(g, p->row));
  return both(g, is_key, is_row);
}

// x of pairs at that row and key, or at the last ones.
static Gid at_pair(const Gaps *p, Gid x, Gid row, Gid key) {
  Grad *g = p->g;
  uint32_t axis[] = {p->row, p->key};
  Gid at[] = {row, key};
  for (uint32_t i = 0; i < 2; i++) {
    Gid last = plus(g, extent(g, axis[i]), -1);
    x = grad_moved(g, x, axis[i], grad_2(g, OP_MIN, at[i], last));
  }
  return x;
}

// Where some distance from `from` to `to` may have the condition c; 0:
// everywhere.
static Gid some_gap(const Gaps *p, Gid c, Gid from, Gid to) {
  Grad *g = p->g;
  const GradNode n = *grad_at(g, c);
  int row[2], key;
  if (n.code == OP_AND) {
    Gid a = some_gap(p, n.arg[0], from, to);
    return both(g, a, some_gap(p, n.arg[1], from, to));
  }
  if ((n.code != OP_LT && n.code != OP_LE) ||
      !is_linear(p, n.arg[0], &row[0], &key) ||
      !is_linear(p, n.arg[1], &row[1], &key) || row[0] == row[1])
    return 0;
  return at_gap(p, c, row[0] > row[1] ? from : to);
}

void grad_bands(Grad *g, Gid node, GradStore *s) {
  uint32_t i = 0;
  while (g->bands.at[i].made != node) i++;
  const GradBand b = g->bands.at[i];
  Gaps p = {g, b.of_row, b.of_key};
  uint32_t step = grad_axis(g, "step", AX_PAR, row_blocks(&p));
  uint32_t in = grad_axis(g, "in", AX_VEC, dim_const(&g->m->dims, SIDE));
  g->front |= grad_bit(in) | grad_bit(b.band);
  Gid r = grad_index(g, b.row), c = grad_index(g, in);
  Gid blocks = grad_dim(g, blocks_of(&p));
  Gid shift = minus(g, grad_index(g, b.band), blocks);
  Gid gap = add_times(g, SIDE, shift, minus(g, r, c));
  Gid block = minus(g, by(g, OP_MUL, grad_index(g, step), ROWS / SIDE), shift);
  g->domain[step] = within(g, block, blocks);
  Gid row = add_times(g, ROWS, grad_index(g, step), r);
  Gid key = add_times(g, SIDE, block, c);
  Gid is = is_pair(&p, row, key);
  Gid seen = seen_by(&p, false), told = seen_by(&p, true);
  Gid x = by_gap(&p, grad_at(g, s->v)->arg[0], gap);
  if (seen) is = grad_2(g, OP_AND, is, at_pair(&p, seen, row, key));
  x = grad_or_0(g, is, at_pair(&p, x, row, key));
  s->v = grad_sum_all(g, x, grad_bit(step));
  if (told) {
    Gid first = by(g, OP_MUL, shift, SIDE), last = plus(g, first, ROWS - 1);
    first = plus(g, first, 1 - SIDE);
    Gid some = some_gap(&p, told, first, last);
    g->domain[step] = both(g, g->domain[step], some);
  }
  s->mask = told ? at_gap(&p, told, gap) : 0;
  for (i = 0; i < s->n; i++)
    s->index[i] = grad_moved(g, s->index[i], b.column, c);
}
