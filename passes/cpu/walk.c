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
  bool scores, ok;
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
  f->scores |= across;
  f->ok &= across || is_weighted(f->as, op, f->rows);
}

void cpu_walk_plan(Assign *as) {
  as->walked = -1;
  if (as->par < 0) return;
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
  Value k0;
} Across;

// A line of the next key tile, whose rows hardware does not follow.
static void ask(Across *x, Value key, int64_t tile) {
  Assign *as = x->as;
  Form *f = x->r->b;
  if (!f->stride) return;
  as->pt.idx[x->keys] = cpu_2(as, OP_ADD, key, cpu_int(as, tile));
  Value step, at = cpu_form_index(as, f, 0, &step);
  ir_op(&as->b, OP_PREFETCH, (Value[]){cpu_form_base(as, f), at}, 2, NULL, 0,
        NULL, 0, 0);
}

static Value operand(Assign *as, Form *f) {
  return cpu_vec(as, cpu_cast(as, DT_F32, cpu_form_load_apart(as, f, 0)));
}

// Sums of `n` keys from `first` on, each still spread over the lanes.
static void sums(Across *x, uint32_t first, uint32_t n, Value *acc) {
  Assign *as = x->as;
  Root *r = x->r;
  int64_t size, tile, unit = as->lanes;
  int64_t line = HW_LINE / dtype_size(r->b->dt);
  dim_known(&as->m->dims, r->lane_size, &size);
  dim_known(&as->m->dims, cpu_axis_size_in(as, r->vb, x->keys), &tile);
  for (uint32_t i = 0; i < n; i++)
    acc[i] = cpu_vec(as, cpu_float(as, DT_F32, 0));
  int64_t by = COST_BLOCK_STEPS * unit;
  while (size % by) by /= 2;
  LoopCount count = {cpu_int(as, 0), cpu_int(as, size), by, "d"};
  Loop l = cpu_loop_open(as, count, acc, n);
  for (int64_t u = 0; u < by; u += unit) {
    as->pt.x0 = cpu_2(as, OP_ADD, l.iv, cpu_int(as, u));
    as->pt.idx[x->keys] = 0;
    Value q = operand(as, r->a);
    for (uint32_t i = 0; i < n; i++) {
      Value key = cpu_2(as, OP_ADD, x->k0, cpu_int(as, first + i));
      if (u % line == 0) ask(x, key, tile);
      as->pt.idx[x->keys] = key;
      acc[i] = cpu_3(as, OP_FMA, q, operand(as, r->b), acc[i]);
    }
  }
  cpu_loop_close(as, &l, acc);
}

static void block(Across *x) {
  Assign *as = x->as;
  Value v[HW_MAT_COLS];
  uint32_t n = as->lanes, by = n < COST_WALK_KEYS ? n : COST_WALK_KEYS;
  assert(n <= HW_MAT_COLS);
  as->pt.lane = (int)x->over;
  as->pt.cols = 1;
  as->pt.width = n;
  as->pt.bound = true;
  for (uint32_t i = 0; i < n; i += by) sums(x, i, by, v + i);
  cpu_lane_sums(as, v);
  as->pt.lane = (int)x->keys;
  as->pt.lane_size = cpu_axis_size_in(as, x->r->v, x->keys);
  as->pt.x0 = x->k0;
  as->pt.idx[x->keys] = 0;
  cpu_form_store(as, x->r->dst, 0, v[0]);
  as->pt.lane_size = x->r->lane_size;
}

void cpu_across_emit(Assign *as, Root *r) {
  uint32_t rows = (uint32_t)as->walked;
  const Type *t = ir_type(as->f, r->v);
  Across x = {.as = as, .r = r, .keys = t->axis[1], .over = (uint32_t)r->lane};
  uint32_t mark = cpu_scope_open(as);
  as->pt.lane_size = r->lane_size;
  Loop row = cpu_loop_upto(as, cpu_rows_inside(as, t->size[0]), 1,
                           as->f->axes.at[rows].name);
  as->pt.idx[rows] = row.iv;
  Loop key = cpu_loop_upto(as, cpu_dim(as, t->size[1]), as->lanes,
                           as->f->axes.at[x.keys].name);
  x.k0 = key.iv;
  block(&x);
  cpu_loop_close(as, &key, NULL);
  cpu_loop_close(as, &row, NULL);
  as->pt.idx[rows] = 0;
  as->pt.lane = -1;
  as->pt.bound = false;
  cpu_scope_close(as, mark);
}
