// Tasks of few rows: the rows are walked one after the other, and lanes run
// along the vectors, which are read as they lie in memory.
//
//   before  %s = dot(%q, %k) {over = [d]} : f32{q:16,k:64}
//   after   for row of the task { for k0 step N { N sums of vectors along d;
//             log2 N stages of vswap and add; S[row][k0 ..] = N scores } }
//
// With lanes along the rows of a task (dot.c) a decoding step multiplies each
// element of a key by a vector of one row and of lanes that nobody wants. Here
// a vector of a key's elements is multiplied at once; weights times values have
// the blocks of dot.c, with lanes along the values.
#include "passes/cpu/cpu.h"
#include "passes/support/cost.h"

#include <assert.h>

// ---------------------------------------------------------------- conditions
static bool along(const Assign *as, Value v, uint32_t axis) {
  const Type *t = ir_type(as->f, v);
  int64_t n;
  int at = type_axis_at(t, axis);
  return at >= 0 && at + 1 == (int)t->n &&
         dim_known(&as->m->dims, t->size[at], &n) && n % as->lanes == 0;
}

// Two axes: `first` and another one.
static bool is_matrix(const Assign *as, Value v, uint32_t first) {
  const Type *t = ir_type(as->f, v);
  return t->n == 2 && type_has_axis(t, first);
}

static int over_one(const Op *op) {
  const IrAttr *a = ir_attr(op, AT_OVER);
  return a->n == 1 ? (int)a->list[0] : -1;
}

// Rows times keys, both along the sums: 1 + which operand has the rows, or 0.
static uint32_t is_across(const Assign *as, const Op *op, uint32_t rows) {
  int over = over_one(op);
  int64_t n;
  if (over < 0 || op->nargs != 2) return 0;
  for (uint32_t i = 0; i < 2; i++) {
    Value q = op->args[i], k = op->args[1 - i];
    const Type *t = ir_type(as->f, op->res[0]);
    if (!is_matrix(as, q, rows) || !is_matrix(as, k, (uint32_t)over) ||
        type_has_axis(ir_type(as->f, k), rows) || t->n != 2 ||
        t->axis[0] != rows || t->dtype != DT_F32 ||
        !along(as, q, (uint32_t)over) || !along(as, k, (uint32_t)over))
      continue;
    if (dim_known(&as->m->dims, t->size[1], &n) && n % as->lanes == 0)
      return 1 + i;
  }
  return 0;
}

// Weights of rows times values that lie along the result.
static bool is_weighted(const Assign *as, const Op *op, uint32_t rows) {
  int over = over_one(op);
  const Type *t = ir_type(as->f, op->res[0]);
  if (over < 0 || t->n != 2 || t->axis[0] != rows) return false;
  for (uint32_t i = 0; i < 2; i++) {
    Value w = op->args[i], v = op->args[1 - i];
    if (is_matrix(as, w, rows) && type_has_axis(ir_type(as->f, w), over) &&
        is_matrix(as, v, (uint32_t)over) && along(as, v, t->axis[1]))
      return true;
  }
  return false;
}

typedef struct Fit {
  const Assign *as;
  uint32_t rows;
  uint32_t scores;  // products of rows and keys
  bool ok;
} Fit;

static void fits(void *data, Op *op) {
  Fit *f = data;
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(f->as->f, op->res[i]);
    bool tile = t->kind == TK_ELEM && t->n;
    f->ok &= !tile || t->dtype != DT_F64;
    // Rows in front: what is between rows and keys runs along the keys.
    if (tile && type_has_axis(t, f->rows)) f->ok &= t->axis[0] == f->rows;
    if (tile && type_has_axis(t, f->rows)) f->ok &= t->n <= 2;
  }
  if (op->code == OP_SCAN || op->code == OP_TRINV) f->ok = false;
  if (op->code != OP_DOT ||
      !type_has_axis(ir_type(f->as->f, op->res[0]), f->rows))
    return;
  bool across = is_across(f->as, op, f->rows);
  f->scores += across;
  f->ok &= across || is_weighted(f->as, op, f->rows);
}

void cpu_walk_plan(Assign *as) {
  as->walked = -1;
  if (as->par < 0 || as->f->axes.at[as->par].extent != as->few) return;
  Fit fit = {.as = as, .rows = (uint32_t)as->par, .ok = true};
  for (uint32_t i = 0; i < as->f->grid.n; i++)
    if ((int)as->f->grid.at[i].axis == as->par)
      fit.ok &= as->f->grid.at[i].tile <= COST_CPU_FEW;
  if (!fit.ok) return;
  ir_walk(as->f->body, fits, &fit);
  if (!fit.ok || !fit.scores) return;
  as->walked = as->par;
  as->par = -1;
}

bool cpu_dot_across(const Assign *as, const Op *op, uint32_t *rows) {
  if (as->walked < 0 || op->code != OP_DOT) return false;
  uint32_t i = is_across(as, op, (uint32_t)as->walked);
  if (i) *rows = i - 1;
  return i != 0;
}

// ---------------------------------------------------------------- emission
typedef struct Across {
  Assign *as;
  Root *r;
  uint32_t keys, over;
  Value row, k0;        // the first ones of a block
  uint32_t rows, each;  // of a block, and the keys of each: `lanes` scores, or
                        // for three rows as many as for four
} Across;

// n keys of the next tile, which hardware does not follow from row to row. pt
// is left without a place on both axes.
void cpu_across_ask(Assign *as, Root *r, Value k0, int64_t n) {
  Form *f = r->b;
  uint32_t keys = ir_type(as->f, r->v)->axis[1], over = (uint32_t)r->lane;
  int64_t tile, size, line = HW_LINE / dtype_size(f->dt);
  if (!f->stride) return;
  dim_known(&as->m->dims, r->lane_size, &size);
  dim_known(&as->m->dims, cpu_axis_size_in(as, r->vb, keys), &tile);
  Value step;
  Loop l = cpu_loop_upto(as, cpu_int(as, n), 1, "i");
  Value key = cpu_2(as, OP_ADD, k0, l.iv);
  as->pt.idx[keys] = cpu_2(as, OP_ADD, key, cpu_int(as, tile));
  for (int64_t i = 0; i < size; i += line) {
    as->pt.idx[over] = cpu_int(as, i);
    Value at = cpu_form_index(as, f, 0, &step);
    cpu_ask_far(as, cpu_form_base(as, f), at);
  }
  as->pt.idx[over] = as->pt.idx[keys] = 0;
  cpu_loop_close(as, &l, NULL);
}

// Once, by the first rows.
static void ask(Across *x) {
  Assign *as = x->as;
  if (!x->r->b->stride) return;
  Value first = cpu_2(as, OP_LE, x->row, cpu_int(as, 0));
  Branch br = cpu_if_open(as, first, NULL, 0);
  cpu_across_ask(as, x->r, x->k0, x->each);
  cpu_if_else(as, &br, NULL);
  cpu_if_close(as, &br, NULL, NULL);
}

static Value operand(Assign *as, Form *f) {
  return cpu_vec(as, cpu_cast(as, DT_F32, cpu_form_load_apart(as, f, 0)));
}

// One vector of `n` keys from `first` on, times that of each row.
static void multiply(Across *x, uint32_t first, uint32_t n, Value *acc) {
  Assign *as = x->as;
  uint32_t rows = (uint32_t)as->walked;
  Value q[COST_WALK_ROWS_AT_ONCE];
  for (uint32_t i = 0; i < x->rows; i++) {
    as->pt.idx[rows] = cpu_2(as, OP_ADD, x->row, cpu_int(as, i));
    q[i] = operand(as, x->r->a);
  }
  for (uint32_t i = 0; i < n; i++) {
    as->pt.idx[x->keys] = cpu_2(as, OP_ADD, x->k0, cpu_int(as, first + i));
    Value k = operand(as, x->r->b);
    for (uint32_t r = 0; r < x->rows; r++)
      acc[r * n + i] = cpu_3(as, OP_FMA, q[r], k, acc[r * n + i]);
  }
}

// Sums of so many keys, for each row of the block, still spread over the lanes.
static void sums(Across *x, uint32_t first, uint32_t n, Value *acc) {
  Assign *as = x->as;
  int64_t size, unit = as->lanes, by = COST_BLOCK_STEPS * unit;
  dim_known(&as->m->dims, x->r->lane_size, &size);
  for (uint32_t i = 0; i < n * x->rows; i++)
    acc[i] = cpu_vec(as, cpu_float(as, DT_F32, 0));
  while (size % by) by /= 2;
  LoopCount count = {cpu_int(as, 0), cpu_int(as, size), by, "d"};
  Loop l = cpu_loop_open(as, count, acc, n * x->rows);
  for (int64_t u = 0; u < by; u += unit) {
    as->pt.x0 = cpu_2(as, OP_ADD, l.iv, cpu_int(as, u));
    multiply(x, first, n, acc);
  }
  cpu_loop_close(as, &l, acc);
}

// Lanes i * n .. of v are the scores of row i: each goes to its own place.
static void put_scores(Across *x, uint32_t n, Value v) {
  Assign *as = x->as;
  Form *f = x->r->dst;
  for (uint32_t i = 0; i < x->rows; i++) {
    Value mask = 0, step;
    as->pt.idx[as->walked] = cpu_2(as, OP_ADD, x->row, cpu_int(as, i));
    Value at = cpu_form_index(as, f, 0, &step);
    if (x->rows > 1) {
      Value lo = cpu_vmask(as, cpu_int(as, i * n));
      mask = cpu_vmask(as, cpu_int(as, (i + 1) * n));
      mask = cpu_2(as, OP_AND, mask, cpu_1(as, OP_NOT, lo));
      at = cpu_2(as, OP_ADD, at, cpu_int(as, -(int64_t)(i * n)));
    }
    cpu_vst(as, cpu_form_base(as, f), at, v, mask);
  }
}

static void block(Across *x) {
  Assign *as = x->as;
  Value v[HW_MAT_COLS];
  uint32_t n = x->each, by = n < COST_WALK_KEYS ? n : COST_WALK_KEYS;
  assert(as->lanes <= HW_MAT_COLS);
  for (uint32_t i = x->rows * n; i < as->lanes; i++)
    v[i] = cpu_vec(as, cpu_float(as, DT_F32, 0));
  as->pt.lane = (int)x->over;
  as->pt.lane_size = x->r->lane_size;
  as->pt.cols = 1;
  as->pt.width = as->lanes;
  as->pt.bound = true;
  as->pt.panel = 0;
  for (uint32_t i = 0; i < n; i += by) sums(x, i, by, v + i);
  cpu_lane_sums(as, v);
  as->pt.lane = (int)x->keys;
  as->pt.lane_size = cpu_axis_size_in(as, x->r->v, x->keys);
  as->pt.x0 = x->k0;
  as->pt.idx[x->keys] = 0;
  put_scores(x, n, v[0]);
  as->pt.lane = -1;
  as->pt.bound = false;
}

Value cpu_few_walked(Assign *as, Value n) {
  return cpu_2(as, OP_LE, n, cpu_int(as, COST_WALK_ROWS_AT_ONCE));
}

Value cpu_whole_blocks(Assign *as, Value from, Value n, uint32_t rows) {
  Value by = cpu_int(as, rows), left = cpu_2(as, OP_SUB, n, from);
  if (rows == 1) return n;
  left = cpu_2(as, OP_MUL, cpu_2(as, OP_FLOORDIV, left, by), by);
  return cpu_2(as, OP_ADD, from, left);
}

// Blocks of so many rows, lo .. hi.
static void row_blocks(Across *x, Value lo, Value hi, uint32_t rows) {
  Assign *as = x->as;
  const Type *t = ir_type(as->f, x->r->v);
  LoopCount count = {lo, hi, rows, as->f->axes.at[as->walked].name};
  x->rows = rows;
  for (x->each = as->lanes; x->each * rows > as->lanes;) x->each /= 2;
  Loop row = cpu_loop_open(as, count, NULL, 0);
  x->row = row.iv;
  Loop key = cpu_loop_upto(as, cpu_dim(as, t->size[1]), x->each,
                           as->f->axes.at[x->keys].name);
  x->k0 = key.iv;
  ask(x);
  block(x);
  cpu_loop_close(as, &key, NULL);
  cpu_loop_close(as, &row, NULL);
  as->pt.idx[as->walked] = 0;
}

static void all_blocks(Across *x, Value n) {
  Value at = cpu_int(x->as, 0);
  for (uint32_t rows = COST_WALK_ROWS_AT_ONCE; rows; rows--) {
    Value end = cpu_whole_blocks(x->as, at, n, rows);
    row_blocks(x, at, end, rows);
    at = end;
  }
}

void cpu_across_emit(Assign *as, Root *r) {
  const Type *t = ir_type(as->f, r->v);
  Across x = {.as = as, .r = r, .keys = t->axis[1], .over = (uint32_t)r->lane};
  uint32_t mark = cpu_scope_open(as);
  Value n = cpu_rows_inside(as, t->size[0]);
  bool tiles = cpu_across_mats(as, r);
  Branch br;
  if (tiles) br = cpu_if_open(as, cpu_few_walked(as, n), NULL, 0);
  all_blocks(&x, n);
  if (tiles) {
    cpu_if_else(as, &br, NULL);
    cpu_across_mats_emit(as, r);
    cpu_if_close(as, &br, NULL, NULL);
  }
  cpu_scope_close(as, mark);
}
