// Bands: values that vary with the difference of the lane's coordinate and a
// key's only, such as a bias by distance.
//
//   before  for k in 64 { table[clamp(q - k, 0, 9)] .. }     gathers
//   after   for j in 96 step 16 { band[j] = table[clamp(..)] }
//           for k in 64 { band[q - x0 + 63 - k] .. }         plain loads
//
// A panel of W lanes and a tile of K keys have W + K - 1 differences: each is
// evaluated once, with the lanes along the diagonals (the last key is held,
// the lane's coordinate goes on past the panel). Only what reads nothing but
// coordinates, scalars and inputs can be evaluated there.
#include "passes/cpu/cpu.h"
#include "passes/support/cost.h"

typedef struct Band {
  Assign *as;
  uint32_t axis;  // of the keys
  int64_t keys;
  uint8_t *state;  // per value: 0 unknown, else 1 + answer of on_band
} Band;

// ---------------------------------------------------------------- analysis
static AxisSet plane(const Band *b) {
  return (AxisSet)1 << b->as->pt.lane | (AxisSet)1 << b->axis;
}

static bool in_plane(const Band *b, Value v) {
  return !(cpu_axes_of(b->as, v) & ~plane(b)) && !b->as->forms[v] &&
         !b->as->eager[v] && cpu_is_inline(b->as, v);
}

typedef struct Slope {
  int64_t lane, key;
} Slope;

// How an integer grows with both coordinates, if it is affine in them.
static bool slope(const Band *b, Value v, int depth, Slope *s) {
  const Assign *as = b->as;
  *s = (Slope){0, 0};
  if (!cpu_axes_of(as, v)) return true;
  const Op *op = ir_def(as->f, v);
  if (!op || depth > COST_DEEP_BAND || !in_plane(b, v)) return false;
  Slope y;
  int64_t n;
  switch (op->code) {
  case OP_IOTA:
    s->lane = ir_type(as->f, v)->axis[0] == (uint32_t)as->pt.lane;
    s->key = !s->lane;
    return true;
  case OP_ADD:
  case OP_SUB:
    if (!slope(b, op->args[0], depth + 1, s) ||
        !slope(b, op->args[1], depth + 1, &y))
      return false;
    n = op->code == OP_ADD ? 1 : -1;
    break;
  case OP_MUL: {
    bool first = ir_const_whole(as->f, op->args[0], &n);
    if (!first && !ir_const_whole(as->f, op->args[1], &n)) return false;
    if (n > 1 << 20 || n < -(1 << 20) ||
        !slope(b, op->args[first], depth + 1, &y))
      return false;
    break;
  }
  default: return false;
  }
  s->lane += n * y.lane;
  s->key += n * y.key;
  return s->lane < 1 << 24 && s->lane > -(1 << 24) && s->key < 1 << 24 &&
         s->key > -(1 << 24);
}

static bool compares(OpCode c) {
  return c == OP_LT || c == OP_LE || c == OP_EQ || c == OP_NE;
}

static bool on_band(Band *b, Value v);

static bool find_on_band(Band *b, Value v) {
  const Assign *as = b->as;
  const Op *op = ir_def(as->f, v);
  Slope s, t;
  if (!cpu_axes_of(as, v)) return true;
  if (!op || !in_plane(b, v)) return false;
  if (op->code == OP_CONST) return true;
  if (slope(b, v, 0, &s) && s.lane + s.key == 0) return true;
  if (compares(op->code) && slope(b, op->args[0], 0, &s) &&
      slope(b, op->args[1], 0, &t))
    return s.lane - t.lane + s.key - t.key == 0;
  bool load = op->code == OP_LOAD;
  bool pure = op->code == OP_CAST || op->code == OP_SELECT ||
              (op_info(op->code)->flags & OPF_ELEM);
  if (load ? !ir_is_input(as->f, op->args[0]) : !pure) return false;
  for (uint32_t i = load; i < op->nargs; i++)
    if (!on_band(b, op->args[i])) return false;
  return op->nargs > 0;
}

static bool on_band(Band *b, Value v) {
  if (!b->state[v]) b->state[v] = 1 + find_on_band(b, v);
  return b->state[v] == 2;
}

// ---------------------------------------------------------------- emission
// Forgets what depends on the lanes of the panel.
static void forget(Band *b, Value v) {
  Assign *as = b->as;
  if (as->seen[v] == as->stamp || cpu_is_memory(as, v) || !cpu_axes_of(as, v))
    return;
  as->seen[v] = as->stamp;
  cpu_memo_put(as, v, 0, 0);
  const Op *op = ir_def(as->f, v);
  for (uint32_t i = 0; i < op->nargs; i++) forget(b, op->args[i]);
}

static DType stored(const Assign *as, Value v) {
  DType t = ir_type(as->f, v)->dtype;
  return t == DT_BOOL ? t : cpu_reg_dtype(t);
}

static Value room(const Band *b, Value v, int64_t n) {
  Assign *as = b->as;
  IrAttr at = attr_i(AT_DIM, dim_const(&as->m->dims, n));
  Type t = type_ptr(stored(as, v));
  Value p = ir_op(&as->top, OP_ALLOC, NULL, 0, &at, 1, &t, 1, 0)->res[0];
  ir_info(as->g, p)->hint = "band";
  return p;
}

static void fill(Band *b, Value v) {
  Assign *as = b->as;
  Point was = as->pt;
  int64_t n = was.width + b->keys - 1;
  n = (n + as->lanes - 1) / as->lanes * as->lanes;
  Value p = room(b, v, n);
  uint32_t mark = cpu_scope_open(as);
  Loop l = cpu_loop_upto(as, cpu_int(as, n), as->lanes, "diag");
  as->stamp++;
  forget(b, v);
  as->pt.cols = 1;
  as->pt.width = as->lanes;
  as->pt.panel = 0;
  as->pt.x0 = cpu_2(as, OP_ADD, was.x0, l.iv);
  as->pt.idx[b->axis] = cpu_int(as, b->keys - 1);
  as->diag = l.iv;
  Value x = cpu_vec(as, cpu_eval_as(as, v, 0, stored(as, v)));
  cpu_vst(as, p, l.iv, x, 0);
  as->diag = 0;
  as->pt.idx[b->axis] = 0;
  cpu_loop_close(as, &l, NULL);
  cpu_scope_close(as, mark);
  as->pt = was;
  as->band[v] = p;
  as->band_last[v] = b->keys - 1;
}

// Looks for the largest dear values; what a switch decides is not always
// wanted.
static void search(Band *b, Value v) {
  Assign *as = b->as;
  if (as->seen[v] == as->stamp || cpu_is_memory(as, v)) return;
  as->seen[v] = as->stamp;
  const Op *op = ir_def(as->f, v);
  if (!op || as->ready[v] || !cpu_is_inline(as, v) || cpu_switch_of(as, v))
    return;
  if (cpu_axes_of(as, v) == plane(b) && !as->band[v] && on_band(b, v)) {
    if (cpu_value_cost(as, v) < COST_BAND_DEAR) return;
    uint32_t stamp = as->stamp;
    fill(b, v);
    as->stamp = stamp;
    return;
  }
  for (uint32_t i = 0; i < op->nargs; i++) search(b, op->args[i]);
}

// At the start of a panel: bands of what its nests will want.
void cpu_band_emit(Assign *as, Root *const *r, uint32_t n) {
  if (as->pt.lane != as->par ||
      dim_divisor(&as->m->dims, as->pt.lane_size) % as->pt.width != 0)
    return;
  AxisSet axes = 0;
  for (uint32_t i = 0; i < n; i++) axes |= r[i]->space;
  for (uint32_t a = 0; a < as->f->axes.n; a++) {
    Band b = {.as = as, .axis = a};
    if (!(axes >> a & 1) || (int)a == as->pt.lane ||
        as->f->axes.at[a].role != AX_KEY)
      continue;
    for (uint32_t i = 0; i < n && !b.keys; i++)
      for (uint32_t k = 0; r[i]->op && k < r[i]->op->nargs && !b.keys; k++) {
        Dim d = cpu_axis_size_in(as, r[i]->op->args[k], a);
        if (d && !dim_known(&as->m->dims, d, &b.keys)) b.keys = 0;
      }
    if (b.keys < as->lanes) continue;
    b.state = NEWN(as->arena, uint8_t, as->f->values.n);
    as->stamp++;
    for (uint32_t i = 0; i < n; i++) {
      if (!r[i]->op && !r[i]->src) search(&b, r[i]->v);
      for (uint32_t k = 0; r[i]->op && k < r[i]->op->nargs; k++)
        search(&b, r[i]->op->args[k]);
    }
  }
}

void cpu_band_clear(Assign *as) {
  for (Value v = 1; v < as->f->values.n; v++) as->band[v] = 0;
}

// Vector c of v at the open key, or at the diagonal that a band of it is filled
// at: its panel begins there.
Value cpu_band_load(Assign *as, Value v, uint32_t c) {
  AxisSet axes = cpu_axes_of(as, v) & ~((AxisSet)1 << as->pt.lane);
  Value k = as->pt.idx[__builtin_ctzll(axes)];
  int64_t first = as->band_last[v] + (int64_t)c * as->lanes;
  Value at = cpu_2(as, OP_SUB, cpu_int(as, first), k);
  if (as->diag) at = cpu_2(as, OP_ADD, at, as->diag);
  return cpu_vld(as, as->band[v], at, 0);
}
