// Limits: which keys of a tile any lane of a panel can see.
//
//   before  for k in 64 { s = select(k <= q, S[k], -inf); m = max(m, s) } ..
//   after   lo, hi = blocks of keys where k <= q holds for some lane
//           for k in lo .. hi { .. }
//
// A loop over an axis may leave out the points where a mask is false in all
// lanes if they change nothing: each reduction over the axis then meets its
// own neutral value there, and nothing else leaves the stage.
#include "ir/eval.h"
#include "passes/cpu/cpu.h"
#include "passes/support/cost.h"

#include <math.h>

typedef struct Limit {
  Assign *as;
  Value mask;
  uint32_t axis;
} Limit;

// ---------------------------------------------------------------- analysis
static bool implies_off(const Limit *l, Value cond) {
  const Op *op = ir_def(l->as->f, cond);
  if (cond == l->mask) return true;
  return op && op->code == OP_AND &&
         (implies_off(l, op->args[0]) || implies_off(l, op->args[1]));
}

static bool off_value(const Limit *l, Value v, int depth, double *out);

static bool is_above_zero(const Limit *l, Value v) {
  double c;
  return ir_const_value(l->as->f, v, &c) && c > 0 && c < INFINITY;
}

// Ops with one operand known where the mask is off.
static bool absorbs(const Limit *l, const Op *op, int depth, double *out) {
  double x;
  for (uint32_t i = 0; i < op->nargs && i < 2; i++) {
    Value other = op->args[1 - i];
    if (!off_value(l, op->args[i], depth, &x)) continue;
    *out = x;
    if (op->code == OP_MUL && x == 0) return true;
    if (x != -INFINITY) continue;
    if (op->code == OP_ADD || (op->code == OP_SUB && i == 0)) return true;
    if ((op->code == OP_MUL || op->code == OP_FMA) && is_above_zero(l, other))
      return true;
  }
  return false;
}

// The value of v where the mask is false, if it is known.
static bool off_value(const Limit *l, Value v, int depth, double *out) {
  const Assign *as = l->as;
  const Op *op = ir_def(as->f, v);
  if (ir_const_value(as->f, v, out)) return true;
  if (!op || !cpu_is_inline(as, v) || depth > COST_DEEP_LIMIT) return false;
  depth++;
  if (v == l->mask) {
    *out = 0;
    return true;
  }
  if (op->code == OP_SELECT && implies_off(l, op->args[0]))
    return off_value(l, op->args[2], depth, out);
  if (op->code == OP_AND && implies_off(l, v)) {
    *out = 0;
    return true;
  }
  if (op->code == OP_CAST) {
    DType t = (DType)ir_attr_i(op, AT_TO, DT_F32);
    if (!off_value(l, op->args[0], depth, out)) return false;
    *out = dtype_round(t, *out);
    return true;
  }
  if (!(op_info(op->code)->flags & OPF_ELEM) || op->nargs == 0) return false;
  double x[ELEM_ARGS] = {0};
  bool all = op->code != OP_SELECT;
  for (uint32_t i = 0; all && i < op->nargs; i++)
    all = off_value(l, op->args[i], depth, &x[i]);
  if (!all) return op->nargs > 1 && absorbs(l, op, depth, out);
  *out = eval_op(op->code, x);
  return true;
}

static bool has(AxisSet s, uint32_t axis) {
  return s >> axis & 1;
}

static bool reduces_neutral(const Limit *l, const Root *r) {
  double x;
  if (r->op->code == OP_DOT)
    return (off_value(l, r->op->args[0], 0, &x) && x == 0) ||
           (off_value(l, r->op->args[1], 0, &x) && x == 0);
  if (r->op->code != OP_REDUCE) return false;
  RKind k = (RKind)ir_attr_i(r->op, AT_KIND, RK_SUM);
  DType t = ir_type(l->as->f, r->op->args[0])->dtype;
  return off_value(l, r->op->args[0], 0, &x) && x == eval_identity(k, t);
}

static bool stays(const Root *r) {
  return r->dst && r->dst->local && !r->early && !r->last;
}

// Does leaving out points of the axis change nothing for r?
static bool allows(const Limit *l, const Root *r) {
  if (!has(r->space, l->axis)) return true;
  switch (r->kind) {
  case ROOT_KEEP:
  case ROOT_TURN: return stays(r);
  case ROOT_REDUCE:
  case ROOT_DOT:
    return has(r->inner, l->axis) ? reduces_neutral(l, r) : stays(r);
  default: return false;
  }
}

// ---------------------------------------------------------------- candidates
// Can v be had before the stage runs? Not if its own dots decide it.
static bool known_before(const Assign *as, Value v, int depth) {
  const Op *op = ir_def(as->f, v);
  if (!op || cpu_is_memory(as, v) || as->ready[v] || as->vec_ready[v])
    return true;
  if (!cpu_is_inline(as, v) || depth > COST_DEEP_LIMIT) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!known_before(as, op->args[i], depth + 1)) return false;
  return true;
}

static Value find_mask(Assign *as, Value v, uint32_t axis, int depth) {
  const Op *op = ir_def(as->f, v);
  if (!op || cpu_is_memory(as, v) || !cpu_is_inline(as, v) ||
      depth > COST_DEEP_LIMIT)
    return 0;
  if (as->seen[v] == as->stamp) return 0;
  as->seen[v] = as->stamp;
  if (op->code == OP_SELECT && has(cpu_axes_of(as, op->args[0]), axis) &&
      has(cpu_axes_of(as, op->args[0]), (uint32_t)as->pt.lane) &&
      cpu_is_inline(as, op->args[0]) && known_before(as, op->args[0], 0))
    return op->args[0];
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value m = find_mask(as, op->args[i], axis, depth + 1);
    if (m) return m;
  }
  return 0;
}

// Conjuncts that hold for all lanes or none cost as much and cut nothing more.
static Value lane_part(const Assign *as, Value mask) {
  const Op *op = ir_def(as->f, mask);
  if (op->code != OP_AND) return mask;
  for (uint32_t i = 0; i < 2; i++) {
    AxisSet other = cpu_axes_of(as, op->args[1 - i]);
    if (!has(other, (uint32_t)as->pt.lane)) return lane_part(as, op->args[i]);
  }
  return mask;
}

// A mask over the lanes and the axis that all roots of the stage respect.
static Value stage_mask(Assign *as, Root *const *r, uint32_t n, uint32_t axis) {
  Value m = 0;
  as->stamp++;
  for (uint32_t i = 0; i < n && !m; i++)
    for (uint32_t k = 0; r[i]->op && k < r[i]->op->nargs && !m; k++)
      m = find_mask(as, r[i]->op->args[k], axis, 0);
  if (!m) return 0;
  Limit l = {as, lane_part(as, m), axis};
  uint32_t found = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!allows(&l, r[i])) return 0;
    found += r[i]->kind == ROOT_DOT && has(r[i]->space, axis);
  }
  return found ? l.mask : 0;
}

// ---------------------------------------------------------------- emission
// Whether the mask holds anywhere in `unit` coordinates from lo on.
static Value any_in_block(Assign *as, Value mask, uint32_t axis, Value lo,
                          uint32_t unit, Form *keep) {
  Value all = cpu_vec(as, cpu_bool(as, false));
  LoopCount count = {.hi = cpu_int(as, unit), .step = 1, .hint = "i"};
  count.lo = cpu_int(as, 0);
  Loop l = cpu_loop_open(as, count, &all, 1);
  as->pt.idx[axis] = cpu_2(as, OP_ADD, lo, l.iv);
  for (uint32_t c = 0; c < as->pt.cols; c++) {
    Value x = cpu_vec(as, cpu_eval_as(as, mask, c, DT_BOOL));
    if (keep) cpu_form_store(as, keep, c, x);
    all = cpu_2(as, OP_OR, all, x);
  }
  cpu_loop_close(as, &l, &all);
  as->pt.idx[axis] = 0;
  return cpu_vreduce(as, RK_ANY, all);
}

static void scan_blocks(Assign *as, Value mask, uint32_t axis, int64_t size,
                        uint32_t unit, Value v[2]) {
  // What was dear to find out is kept for the rows of this panel.
  Form *keep = NULL;
  if (cpu_value_cost(as, mask) >= COST_MASK_KEEP && !as->forms[mask]) {
    keep = cpu_form_new(as, mask, as->pt.lane, as->pt.lane_size, true);
    keep->local = true;
  }
  cpu_hoist(as, mask);
  v[0] = cpu_int(as, size);
  v[1] = cpu_int(as, 0);
  LoopCount count = {v[1], v[0], unit, as->f->axes.at[axis].name};
  Loop l = cpu_loop_open(as, count, v, 2);
  Value any = any_in_block(as, mask, axis, l.iv, unit, keep);
  Value end = cpu_2(as, OP_ADD, l.iv, cpu_int(as, unit));
  v[0] = cpu_select(as, any, cpu_2(as, OP_MIN, v[0], l.iv), v[0]);
  v[1] = cpu_select(as, any, end, v[1]);
  cpu_loop_close(as, &l, v);
  if (!keep) return;
  as->forms[mask] = keep;
  as->ready[mask] = true;
  as->pt.kept = mask;
}

static void emit_limit(Assign *as, Value mask, uint32_t axis, int64_t size,
                       uint32_t unit) {
  Value v[2], all[2] = {cpu_int(as, 0), cpu_int(as, size)};
  Value u = cpu_switch_of(as, mask);
  if (u) {
    // Where u holds, nothing is left out.
    const Op *op = ir_def(as->f, mask);
    Type t[2] = {type_scalar(DT_I64), type_scalar(DT_I64)};
    Branch br = cpu_if_open(as, cpu_memo_get(as, u, 0), t, 2);
    cpu_if_else(as, &br, all);
    cpu_memo_put(as, u, 0, cpu_bool(as, false));
    scan_blocks(as, lane_part(as, op->args[op->args[0] == u]), axis, size, unit,
                v);
    cpu_if_close(as, &br, v, v);
  } else {
    scan_blocks(as, mask, axis, size, unit, v);
  }
  as->pt.from[axis] = v[0];
  as->pt.to[axis] = v[1];
}

// Keys are left out in blocks of so many. Tile registers take whole sums of
// theirs.
static uint32_t unit_of(const Assign *as, Root *const *r, uint32_t n,
                        int64_t size) {
  bool tiles = false;
  for (uint32_t i = 0; i < n; i++) tiles |= r[i]->dp && as->target->amx;
  if (tiles && size % (2 * HW_MAT_ROWS) == 0) return 2 * HW_MAT_ROWS;
  return cpu_block_rows(as);
}

void cpu_limit_emit(Assign *as, Root *const *r, uint32_t n) {
  AxisSet axes = 0;
  for (uint32_t i = 0; i < n; i++)
    if (r[i]->kind == ROOT_DOT) axes |= r[i]->inner;
  for (uint32_t a = 0; a < as->f->axes.n; a++) {
    int64_t size = 0;
    if (!has(axes, a) || as->f->axes.at[a].role != AX_KEY) continue;
    for (uint32_t i = 0; i < n && !size; i++) {
      Dim d = r[i]->kind == ROOT_DOT ? cpu_axis_size_in(as, r[i]->va, a) : 0;
      if (d && !dim_known(&as->m->dims, d, &size)) size = 0;
    }
    uint32_t by = unit_of(as, r, n, size);
    if (!size || size % by || by % 2) continue;
    Value mask = stage_mask(as, r, n, a);
    if (mask) emit_limit(as, mask, a, size, by);
  }
}

void cpu_limit_clear(Assign *as) {
  if (as->pt.kept) {
    as->forms[as->pt.kept] = NULL;
    as->ready[as->pt.kept] = false;
    as->pt.kept = 0;
  }
  for (uint32_t a = 0; a < as->f->axes.n; a++)
    as->pt.from[a] = as->pt.to[a] = 0;
}

Value cpu_limit_lo(Assign *as, uint32_t axis) {
  return as->pt.from[axis] ? as->pt.from[axis] : cpu_int(as, 0);
}

Value cpu_limit_hi(Assign *as, uint32_t axis, Dim size) {
  // Nobody wrote what walked rows behind the end have.
  if ((int)axis == as->walked) return cpu_rows_inside(as, size);
  return as->pt.to[axis] ? as->pt.to[axis] : cpu_dim(as, size);
}

static Value halved(Assign *as, Value v) {
  return cpu_2(as, OP_FLOORDIV, v, cpu_int(as, 2));
}

// The same in pairs of coordinates.
Value cpu_limit_lo2(Assign *as, uint32_t axis) {
  return halved(as, cpu_limit_lo(as, axis));
}

Value cpu_limit_hi2(Assign *as, uint32_t axis, Dim size) {
  if (as->pt.to[axis]) return halved(as, as->pt.to[axis]);
  return cpu_dim(as, dim_ceildiv(&as->m->dims, size, 2));
}
