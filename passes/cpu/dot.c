// Products of matrices: register blocks of R rows by the panel's C vectors.
//
//   before  %s = dot(%q, %k) {over = [d]} : f32{q:128,k:64}
//   after   for k0 step R { acc[R][C] = 0;
//             for d { acc[r][c] += K[k0 + r][d] * Q[d][c] }; store }
//
// The lane operand is read as vectors, the other one element by element and
// spread. With bf16 pairs d runs over pairs and an element is two bf16.
//
// dot(a, b, c, or(ok, mask)) has a second version for the case that ok is
// false, where the spread elements are masked too: short code, small blocks.
#include "ir/target.h"
#include "passes/cpu/cpu.h"
#include "passes/support/cost.h"

#include <assert.h>

typedef struct Block {
  Assign *as;
  Root *r;
  uint32_t rows;  // R
  uint32_t axis;  // whose coordinates are the rows
  Value first;    // coordinate of the first row
  bool careful;   // products are left out where args[3] is false
  DType acc;
} Block;

static Dim size_of(const Assign *as, const Root *r, uint32_t axis) {
  Dim d = cpu_axis_size_in(as, r->va, axis);
  return d ? d : cpu_axis_size_in(as, r->vb, axis);
}

static void set_row(Block *b, uint32_t row) {
  Assign *as = b->as;
  as->pt.idx[b->axis] = cpu_2(as, OP_ADD, b->first, cpu_int(as, row));
}

// ---------------------------------------------------------------- innermost
// One element of the other operand, in all lanes.
static Value row_element(Block *b) {
  Assign *as = b->as;
  Form *f = b->r->b;
  if (!b->r->dp)
    return cpu_vec(as, cpu_cast(as, b->acc, cpu_form_load_apart(as, f, 0)));
  if (f->dt == DT_I32) return cpu_vec(as, cpu_form_load(as, f, 0));
  Value i, step, p = cpu_form_pairs_at(as, f, 0, &i, &step);
  return cpu_vec(as, cpu_ld(as, p, i));
}

// x, or what is taken where the product does not count.
static Value chosen(Block *b, Value x, Value other, uint32_t c) {
  Assign *as = b->as;
  Value keep = cpu_eval_as(as, b->r->op->args[3], c, DT_BOOL);
  other = cpu_vec(as, other);
  x = cpu_vec(as, x);
  return cpu_select(as, cpu_vec(as, keep), x, other);
}

static Value kept(Block *b, Value x, uint32_t c) {
  return chosen(b, x, cpu_float(b->as, mty(b->as, x)->dtype, 0), c);
}

// Pairs, from what `keep` lets through of their two elements.
static void kept_pairs(Block *b, Value *out) {
  Assign *as = b->as;
  uint32_t axis = (uint32_t)__builtin_ctzll(b->r->inner);
  Value even = as->pt.idx[axis], x[MAX_COLS][2];
  for (uint32_t i = 0; i < 2; i++) {
    uint32_t mark = cpu_scope_open(as);
    as->pt.idx[axis] = cpu_2(as, OP_ADD, even, cpu_int(as, i));
    for (uint32_t c = 0; c < as->pt.cols; c++)
      x[c][i] = kept(b, cpu_eval_as(as, b->r->vb, c, DT_BF16), c);
    cpu_scope_close(as, mark);
  }
  as->pt.idx[axis] = even;
  for (uint32_t c = 0; c < as->pt.cols; c++)
    out[c] =
        cpu_op(as, OP_PACK2, x[c], 2, type_vec(DT_I32, as->lanes), NULL, 0);
}

// The other operand's element for each vector, 0 where it does not count.
static void careful_elements(Block *b, Value *out) {
  Assign *as = b->as;
  for (uint32_t c = 0; c < as->pt.cols && !b->r->dp; c++)
    out[c] = kept(b, cpu_cast(as, b->acc, cpu_form_load(as, b->r->b, 0)), c);
  if (b->r->dp) kept_pairs(b, out);
}

// May the operand in the lanes be no number where a product does not count? So
// are walked rows' keys, and what a product over the grid's lanes sums.
static bool lanes_open(const Block *b) {
  const Assign *as = b->as;
  return as->walked >= 0 || (as->par >= 0 && (b->r->inner >> as->par & 1));
}

// Pairs of one row, one product of the two after the other.
static void multiply_seen_pairs(Block *b, Value *acc) {
  Assign *as = b->as;
  uint32_t axis = (uint32_t)__builtin_ctzll(b->r->inner);
  Value even = as->pt.idx[axis], zero = cpu_float(as, DT_BF16, 0);
  Type pairs = type_vec(DT_I32, as->lanes), sums = type_vec(DT_F32, as->lanes);
  set_row(b, 0);
  Value y = row_element(b);
  for (uint32_t i = 0; i < 2; i++) {
    uint32_t mark = cpu_scope_open(as);
    as->pt.idx[axis] = cpu_2(as, OP_ADD, even, cpu_int(as, i));
    for (uint32_t c = 0; c < as->pt.cols; c++) {
      Value two[2] = {cpu_vec(as, zero), cpu_vec(as, zero)};
      two[i] = cpu_vec(as, cpu_eval_as(as, b->r->va, c, DT_BF16));
      Value a = cpu_op(as, OP_PACK2, two, 2, pairs, NULL, 0), old = acc[c];
      Value args[] = {old, a, y};
      Value sum = cpu_op(as, OP_DPBF16, args, 3, sums, NULL, 0);
      acc[c] = chosen(b, sum, old, c);
    }
    cpu_scope_close(as, mark);
  }
  as->pt.idx[axis] = even;
}

static void multiply(Block *b, Value *acc) {
  Assign *as = b->as;
  if (b->careful && b->r->dp && lanes_open(b)) {
    multiply_seen_pairs(b, acc);
    return;
  }
  uint32_t cols = as->pt.cols;
  bool masked = b->careful && !lanes_open(b);
  Value a[MAX_COLS];
  for (uint32_t c = 0; c < cols; c++) {
    a[c] = cpu_form_load_apart(as, b->r->a, c);
    if (!b->r->dp) a[c] = cpu_vec(as, cpu_cast(as, b->acc, a[c]));
  }
  for (uint32_t row = 0; row < b->rows; row++) {
    set_row(b, row);
    Value x[MAX_COLS];
    if (masked) careful_elements(b, x);
    else x[0] = row_element(b);
    for (uint32_t c = 0; c < cols; c++, acc++) {
      Value y = x[masked ? c : 0], old = *acc;
      *acc = b->r->dp ? cpu_op(as, OP_DPBF16, (Value[]){*acc, a[c], y}, 3,
                               type_vec(DT_F32, as->lanes), NULL, 0)
                      : cpu_3(as, OP_FMA, a[c], y, *acc);
      if (b->careful && !masked) *acc = chosen(b, *acc, old, c);
    }
  }
}

// ---------------------------------------------------------------- few lanes
// Products of one vector of lanes wait for memory: the rows of a block are
// streams that hardware does not follow. So each step asks for a line of the
// next key tile, whose address is that of this one, a tile further.
static int64_t key_tile(const Block *b, uint32_t axis) {
  const Assign *as = b->as;
  int64_t n;
  bool key = as->f->axes.at[axis].role == AX_KEY;
  return key && dim_known(&as->m->dims, size_of(as, b->r, axis), &n) ? n : 0;
}

// The line that step i of the reduced axis asks for: of the rows one after the
// other, or, if the keys are reduced, of this row.
static void ask(Block *b, uint32_t over, Value i) {
  Assign *as = b->as;
  Form *f = b->r->b;
  int64_t rows = key_tile(b, b->axis), keys = key_tile(b, over), n;
  bool few = as->pt.lane == as->par && as->pt.cols == 1 && !b->careful;
  if (!few || !f->stride || !(rows || keys)) return;
  Value row = as->pt.idx[b->axis], at = as->pt.idx[over];
  if (rows) {
    if (!dim_known(&as->m->dims, size_of(as, b->r, over), &n)) return;
    int64_t elements = HW_LINE / dtype_size(f->dt), lines = n / elements;
    if (lines < 1 || n % elements) return;
    Value of = cpu_int(as, lines);
    Value first = cpu_int(as, rows);
    Value down = cpu_2(as, OP_ADD, cpu_2(as, OP_FLOORDIV, i, of), first);
    as->pt.idx[b->axis] = cpu_2(as, OP_ADD, b->first, down);
    Value size = cpu_int(as, elements);
    as->pt.idx[over] = cpu_2(as, OP_MUL, cpu_2(as, OP_MOD, i, of), size);
  } else {
    as->pt.idx[b->axis] = b->first;
    as->pt.idx[over] = cpu_2(as, OP_ADD, at, cpu_int(as, keys));
  }
  Value step, x = cpu_form_index(as, f, 0, &step);
  ir_op(&as->b, OP_PREFETCH, (Value[]){cpu_form_base(as, f), x}, 2, NULL, 0,
        NULL, 0, 0);
  as->pt.idx[b->axis] = row;
  as->pt.idx[over] = at;
}

// Steps of the reduced axis that stand behind each other in the loop of a whole
// block, so that addresses are counted seldom. Those of a panel are blocks of
// rows.
static int64_t repeats(const Block *b, uint32_t axis) {
  const Assign *as = b->as;
  int64_t n, by = cpu_block_rows(as);
  if (b->careful || b->r->dp || (int)axis == as->walked ||
      (b->rows != by && (int)b->axis != as->walked) ||
      !dim_known(&as->m->dims, size_of(as, b->r, axis), &n))
    return 1;
  if (as->pt.to[axis]) n = by;
  for (by = COST_BLOCK_STEPS; n % by;) by /= 2;
  return by;
}

// Rows in memory whose distance is a power of two share few sets of the
// first-level cache: what a block wants of a row further on is asked for.
static void ask_row(Block *b, uint32_t over, Value at) {
  Assign *as = b->as;
  Form *f = b->r->b;
  if (!f->stride || f->lane == (int)over) return;
  Value row = as->pt.idx[b->axis], now = as->pt.idx[over], step;
  as->pt.idx[b->axis] = b->first;
  as->pt.idx[over] = cpu_2(as, OP_ADD, at, cpu_int(as, COST_ROWS_AHEAD));
  Value x = cpu_form_index(as, f, 0, &step);
  ir_op(&as->b, OP_PREFETCH, (Value[]){cpu_form_base(as, f), x}, 2, NULL, 0,
        NULL, 0, 0);
  as->pt.idx[b->axis] = row;
  as->pt.idx[over] = now;
}

// Where rows are walked: the same value of the next key tile.
static void ask_values(Block *b, uint32_t over, Value at) {
  Assign *as = b->as;
  Form *f = b->r->a;
  int64_t tile = key_tile(b, over);
  if (!f->stride || !tile) return;
  Value now = as->pt.idx[over], step;
  as->pt.idx[over] = cpu_2(as, OP_ADD, at, cpu_int(as, tile));
  for (uint32_t c = 0; c < as->pt.cols; c++) {
    if (c * as->lanes * dtype_size(f->dt) % HW_LINE) continue;
    Value index = cpu_form_index(as, f, c, &step);
    cpu_ask_far(as, cpu_form_base(as, f), index);
  }
  as->pt.idx[over] = now;
}

// The innermost loop.
static void steps(Block *b, uint32_t a, LoopCount count, Value *acc) {
  Assign *as = b->as;
  bool dp = b->r->dp;
  uint32_t mark = cpu_scope_open(as);
  count.step = repeats(b, a);
  Loop l = cpu_loop_open(as, count, acc, b->rows * as->pt.cols);
  for (int64_t i = 0; i < count.step; i++) {
    cpu_scope_close(as, mark);
    Value at = cpu_2(as, OP_ADD, l.iv, cpu_int(as, i));
    as->pt.idx[a] = dp ? cpu_2(as, OP_MUL, at, cpu_int(as, 2)) : at;
    ask(b, a, at);
    if (count.step > 1) ask_row(b, a, at);
    if ((int)b->axis == as->walked && !b->careful) ask_values(b, a, at);
    multiply(b, acc);
  }
  cpu_loop_close(as, &l, acc);
  as->pt.idx[a] = 0;
}

// Of the lanes of a tile those in panels that are computed, by `unit`: a
// product over the grid's lanes has no others. 0: all, or these are not the
// lanes.
Value cpu_lanes_made(Assign *as, uint32_t axis, Dim size, int64_t unit) {
  int64_t n, by = (int64_t)cpu_panel_cols(as, as->par, size) * as->lanes;
  if ((int)axis != as->par || !dim_known(&as->m->dims, size, &n)) return 0;
  Value panels = n > by ? cpu_inside_axis(as, size, by) : 0;
  if (!panels) return 0;
  Value made = cpu_2(as, OP_MUL, panels, cpu_int(as, by / unit));
  return n % by ? cpu_2(as, OP_MIN, made, cpu_int(as, n / unit)) : made;
}

// Loops over the reduced axes from the i-th on.
static void contract(Block *b, AxisSet over, Value *acc) {
  Assign *as = b->as;
  uint32_t a = (uint32_t)__builtin_ctzll(over);
  Dim n = size_of(as, b->r, a);
  bool dp = b->r->dp;
  Value lo = dp ? cpu_limit_lo2(as, a) : cpu_limit_lo(as, a);
  Value hi = dp ? cpu_limit_hi2(as, a, n) : cpu_limit_hi(as, a, n);
  Value lanes = cpu_lanes_made(as, a, n, dp ? 2 : 1);
  LoopCount count = {lo, lanes ? lanes : hi, 1, as->f->axes.at[a].name};
  if (!(over & (over - 1))) {
    steps(b, a, count, acc);
    return;
  }
  Loop l = cpu_loop_open(as, count, acc, b->rows * as->pt.cols);
  as->pt.idx[a] = dp ? cpu_2(as, OP_MUL, l.iv, cpu_int(as, 2)) : l.iv;
  contract(b, over & (over - 1), acc);
  cpu_loop_close(as, &l, acc);
  as->pt.idx[a] = 0;
}

// ---------------------------------------------------------------- a block
static void block(Block *b) {
  Assign *as = b->as;
  uint32_t cols = as->pt.cols, n = b->rows * cols;
  uint32_t mark = cpu_scope_open(as);
  Value *acc = NEWN(as->arena, Value, n);
  const Op *op = b->r->op;
  for (uint32_t i = 0; i < n; i++) {
    if (i % cols == 0) cpu_scope_close(as, mark);
    set_row(b, i / cols);
    acc[i] = op->nargs >= 3 ? cpu_eval_as(as, op->args[2], i % cols, b->acc)
                            : cpu_float(as, b->acc, 0);
    acc[i] = cpu_vec(as, acc[i]);
  }
  cpu_scope_close(as, mark);
  contract(b, b->r->inner, acc);
  for (uint32_t i = 0; i < n; i++) {
    set_row(b, i / cols);
    cpu_form_store(as, b->r->dst, i % cols, acc[i]);
  }
  as->pt.idx[b->axis] = 0;
}

static void blocks(Block *b, Value lo, Value hi, uint32_t rows) {
  Assign *as = b->as;
  LoopCount count = {lo, hi, rows, as->f->axes.at[b->axis].name};
  Loop l = cpu_loop_open(as, count, NULL, 0);
  b->first = l.iv;
  b->rows = rows;
  block(b);
  cpu_loop_close(as, &l, NULL);
}

static void tiles(Block *b, Value lo, Value hi, uint32_t rows) {
  LoopCount count = {lo, hi, rows, b->as->f->axes.at[b->axis].name};
  cpu_mat_emit(b->as, b->r, b->axis, count);
}

// Rows that tile registers do; the others begin at the result.
static int64_t tiled_rows(Block *b, Dim size) {
  Assign *as = b->as;
  int64_t n, by = cpu_mat_rows(as);
  if (b->careful || !cpu_mat_possible(as, b->r, b->axis) ||
      !dim_known(&as->m->dims, size, &n))
    return 0;
  if (as->pt.to[b->axis]) {
    if (n % (2 * HW_MAT_ROWS)) return 0;
    tiles(b, as->pt.from[b->axis], as->pt.to[b->axis], (uint32_t)by);
    return n;
  }
  int64_t whole = n / by * by, rest = n - whole;
  rest -= rest % HW_MAT_ROWS;
  if (whole) {
    Value end = cpu_int(as, whole);
    tiles(b, cpu_int(as, 0), end, (uint32_t)by);
  }
  if (rest) {
    Value end = cpu_int(as, whole + rest);
    tiles(b, cpu_int(as, whole), end, (uint32_t)rest);
  }
  return whole + rest;
}

// n rows that are walked, by r and then by fewer: their number is not known.
static void walked_blocks(Block *b, Value n, uint32_t r) {
  Value at = cpu_int(b->as, 0);
  for (uint32_t rows = r; rows;) {
    Value end = cpu_whole_blocks(b->as, at, n, rows);
    blocks(b, at, end, rows);
    at = end;
    rows = rows > COST_WALK_ROWS_AT_ONCE ? COST_WALK_ROWS_AT_ONCE : rows - 1;
  }
}

static void walked_rows(Block *b, Dim size, uint32_t r) {
  Assign *as = b->as;
  Value n = cpu_rows_inside(as, size);
  bool tiles = !b->careful && cpu_weighted_mats(as, b->r);
  Branch br;
  if (tiles) br = cpu_if_open(as, cpu_few_walked(as, n), NULL, 0);
  walked_blocks(b, n, r);
  if (!tiles) return;
  cpu_if_else(as, &br, NULL);
  cpu_weighted_mats_emit(as, b->r);
  cpu_if_close(as, &br, NULL, NULL);
}

// Whole blocks, then what is left.
static void all_rows(Block *b, Dim size) {
  Assign *as = b->as;
  uint32_t r = cpu_block_rows(as);
  if (b->careful) r = 1;
  DimTab *d = &as->m->dims;
  int64_t n, done = tiled_rows(b, size);
  if ((int)b->axis == as->walked) {
    walked_rows(b, size, r);
    return;
  }
  if (as->pt.to[b->axis]) {  // whole blocks
    if (done) return;
    blocks(b, as->pt.from[b->axis], as->pt.to[b->axis], r);
    return;
  }
  if (dim_known(d, size, &n)) {
    int64_t whole = done + (n - done) / r * r;
    if (whole > done) {
      Value end = cpu_int(as, whole);
      blocks(b, cpu_int(as, done), end, r);
    }
    if (n > whole) {
      Value end = cpu_int(as, n);
      blocks(b, cpu_int(as, whole), end, (uint32_t)(n - whole));
    }
    return;
  }
  Value hi = cpu_dim(as, size), by = cpu_int(as, r);
  Value whole = hi;
  bool even = dim_divisor(d, size) % r == 0;
  if (!even) whole = cpu_2(as, OP_MUL, cpu_2(as, OP_FLOORDIV, hi, by), by);
  blocks(b, cpu_int(as, 0), whole, r);
  if (!even) blocks(b, whole, hi, 1);
}

// ---------------------------------------------------------------- the nest
static void hoist_addend(Assign *as, const Root *r) {
  if (r->op->nargs >= 3) cpu_hoist(as, r->op->args[2]);
}

// Loops over the result's other axes.
static void outer(Block *b, AxisSet rest, Dim size) {
  Assign *as = b->as;
  hoist_addend(as, b->r);
  if (!rest) {
    all_rows(b, size);
    return;
  }
  uint32_t a = (uint32_t)__builtin_ctzll(rest);
  Value n = cpu_dim(as, size_of(as, b->r, a));
  Loop l = cpu_loop_upto(as, n, 1, as->f->axes.at[a].name);
  as->pt.idx[a] = l.iv;
  outer(b, rest & (rest - 1), size);
  cpu_loop_close(as, &l, NULL);
  as->pt.idx[a] = 0;
}

void cpu_dot_emit(Assign *as, Root *r) {
  AxisSet lane = (AxisSet)1 << r->lane;
  AxisSet rows = cpu_axes_of(as, r->vb) & ~cpu_axes_of(as, r->va) & ~r->inner;
  assert(rows && r->dst);
  Block b = {.as = as, .r = r, .acc = ir_type(as->f, r->v)->dtype};
  b.axis = 63 - (uint32_t)__builtin_clzll(rows);
  AxisSet rest = r->space & ~r->inner & ~lane & ~((AxisSet)1 << b.axis);
  Dim size = size_of(as, r, b.axis);
  if (r->op->nargs < 4) {
    outer(&b, rest, size);
    return;
  }
  Value keep = r->op->args[3], u = cpu_switch_of(as, keep);
  Branch br = {0};
  hoist_addend(as, r);  // once for both versions
  if (u) {
    br = cpu_if_open(as, cpu_memo_get(as, u, 0), NULL, 0);
    outer(&b, rest, size);
    cpu_if_else(as, &br, NULL);
    cpu_memo_put(as, u, 0, cpu_bool(as, false));
  }
  b.careful = true;
  cpu_hoist(as, keep);
  outer(&b, rest, size);
  if (u) cpu_if_close(as, &br, NULL, NULL);
}

// ---------------------------------------------------------------- turning
// Pairs of row i become vectors over i: gathers of 32 bits from scratch.
static void turn_pairs(Assign *as, Root *r) {
  Value v[MAX_COLS];
  for (uint32_t c = 0; c < as->pt.cols; c++) {
    Value i, step, p = cpu_form_pairs_at(as, r->a, c, &i, &step);
    Value at = cpu_2(as, OP_MUL, cpu_iota(as), step);
    Value mask = cpu_form_lane_mask(as, r->a, c);
    v[c] = cpu_gather(as, cpu_padd(as, p, i), at, mask);
  }
  for (uint32_t c = 0; c < as->pt.cols; c++)
    cpu_form_store(as, r->dst, c, v[c]);
}

static void turn_loops(Assign *as, Root *r, AxisSet rest) {
  if (!rest) {
    turn_pairs(as, r);
    return;
  }
  uint32_t a = 63 - (uint32_t)__builtin_clzll(rest);
  Dim n = cpu_axis_size_in(as, r->v, a);
  bool pair = r->dst->pair == (int)a;
  if (pair) n = dim_ceildiv(&as->m->dims, n, 2);
  Loop l = cpu_loop_upto(as, cpu_dim(as, n), 1, as->f->axes.at[a].name);
  as->pt.idx[a] = pair ? cpu_2(as, OP_MUL, l.iv, cpu_int(as, 2)) : l.iv;
  turn_loops(as, r, rest & ~((AxisSet)1 << a));
  cpu_loop_close(as, &l, NULL);
  as->pt.idx[a] = 0;
}

void cpu_turn_emit(Assign *as, Root *r) {
  if (r->dst->pair < 0) {
    cpu_turn_panel(as, r);
    return;
  }
  if (r->dst->lane == r->dst->pair) {
    cpu_mat_turn(as, r);
    return;
  }
  turn_loops(as, r, r->space & ~((AxisSet)1 << r->lane));
}
