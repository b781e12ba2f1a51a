// Pieces of an axis: ranges in which conditions that depend on nothing but
// the coordinate are constant.
//
//   before  for x in 128 { select(x < 64, a(x), b(x)) }
//   after   for x in 0 .. 64 { a(x) }  for x in 64 .. 128 { b(x) }
//
// What a concatenation of vectors becomes, and any other `select` over a
// coordinate: only the side that is taken is computed. Of the lanes a piece
// is a number of panels, of which each vector knows its side.
#include "ir/eval.h"
#include "passes/cpu/cpu.h"
#include "passes/support/cost.h"

enum { MAX_EXTENT = 1024, UNKNOWN = 2 };

// ---------------------------------------------------------------- conditions
// The value of v at coordinate x of the axis, if nothing else decides it.
static bool value_at(const Assign *as, Value v, int64_t x, int depth,
                     double *out) {
  const Op *op = ir_def(as->f, v);
  if (ir_const_value(as->f, v, out)) return true;
  if (!op || !cpu_is_inline(as, v) || depth > COST_DEEP_SIDE) return false;
  if (op->code == OP_IOTA) {
    *out = (double)x;
    return true;
  }
  if (op->code == OP_CAST || op->nargs == 0 ||
      !(op_info(op->code)->flags & OPF_ELEM))
    return false;
  double a[ELEM_ARGS];
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!value_at(as, op->args[i], x, depth + 1, &a[i])) return false;
  *out = eval_op(op->code, a);
  return true;
}

static bool along(const Assign *as, Value cond, uint32_t axis) {
  double x;
  return cpu_axes_of(as, cond) == (AxisSet)1 << axis &&
         cpu_is_inline(as, cond) && value_at(as, cond, 0, 0, &x);
}

static void find_conds(Assign *as, Value v, uint32_t axis, Pieces *p) {
  if (as->seen[v] == as->stamp || cpu_is_memory(as, v)) return;
  as->seen[v] = as->stamp;
  const Op *op = ir_def(as->f, v);
  if (!op || as->ready[v] || !cpu_is_inline(as, v)) return;
  if (op->code == OP_SELECT && p->nconds < MAX_CONDS &&
      along(as, op->args[0], axis) &&
      cpu_value_cost(as, v) >= COST_PIECE_WORTH) {
    bool known = false;
    for (uint32_t i = 0; i < p->nconds; i++) known |= p->cond[i] == op->args[0];
    if (!known) p->cond[p->nconds++] = op->args[0];
  }
  for (uint32_t i = 0; i < op->nargs; i++) find_conds(as, op->args[i], axis, p);
}

// ---------------------------------------------------------------- pieces
// Condition i in `n` coordinates from x on: 0, 1, or UNKNOWN if it varies.
static uint8_t over_range(const Assign *as, const Pieces *p, uint32_t i,
                          int64_t x, int64_t n) {
  uint8_t all = UNKNOWN;
  for (int64_t k = x; k < x + n && k < p->size; k++) {
    double v = 0;
    value_at(as, p->cond[i], k, 0, &v);
    if (all != UNKNOWN && all != (v != 0)) return UNKNOWN;
    all = v != 0;
  }
  return all;
}

static bool same_side(const Pieces *p, const uint8_t *a, const uint8_t *b) {
  for (uint32_t i = 0; i < p->nconds * p->cols; i++)
    if (a[i] != b[i]) return false;
  return true;
}

// Units of `unit` coordinates, of vectors of `by`, joined while they agree.
static bool cut(const Assign *as, Pieces *p, int64_t unit, int64_t by) {
  uint8_t side[MAX_CONDS * MAX_COLS];
  p->n = 0;
  for (int64_t x = 0; x < p->size; x += unit) {
    for (uint32_t i = 0; i < p->nconds; i++)
      for (uint32_t c = 0; c < p->cols; c++)
        side[i * p->cols + c] = over_range(as, p, i, x + c * by, by);
    if (p->n && same_side(p, side, p->side[p->n - 1])) continue;
    if (p->n == MAX_PIECES) return false;
    for (uint32_t i = 0; i < p->nconds * p->cols; i++)
      p->side[p->n][i] = side[i];
    p->at[p->n++] = x / unit;
  }
  p->at[p->n] = (p->size + unit - 1) / unit;
  return true;
}

void cpu_pieces_find(Assign *as, Root *const *r, uint32_t n, uint32_t axis,
                     Dim size, Pieces *p) {
  bool lanes = (int)axis == as->pt.lane;
  *p = (Pieces){.n = 1, .cols = lanes ? as->pt.cols : 1};
  if (!dim_known(&as->m->dims, size, &p->size) || p->size > MAX_EXTENT) return;
  as->stamp++;
  for (uint32_t i = 0; i < n; i++) {
    if (r[i]->kind == ROOT_KEEP && !r[i]->src) find_conds(as, r[i]->v, axis, p);
    for (uint32_t k = 0; r[i]->op && k < r[i]->op->nargs; k++)
      find_conds(as, r[i]->op->args[k], axis, p);
  }
  bool ok = p->nconds &&
            (lanes ? cut(as, p, as->pt.width, as->lanes) : cut(as, p, 1, 1));
  if (!ok) *p = (Pieces){.n = 1};
}

void cpu_pieces_set(Assign *as, const Pieces *p, uint32_t piece) {
  for (uint32_t i = 0; i < p->nconds; i++)
    for (uint32_t c = 0; c < p->cols; c++) {
      uint8_t side = p->side[piece][i * p->cols + c];
      if (side != UNKNOWN) cpu_memo_put(as, p->cond[i], c, cpu_bool(as, side));
    }
}
