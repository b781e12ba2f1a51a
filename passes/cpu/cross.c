// Loads whose memory runs across the lanes: turned by vector shuffles.
//
//   before  %t = load(%T, %b, %q0 + iota, %k0 + iota) : f32{q:128,k:64}
//   after   if the panel's rows are in range and the last stride is 1
//             for k0 step N { N rows of N neighbours; log2 N stages of vswap,
//                             four rows at a time; N vectors of lanes }
//           else gathers, as of any load
//
// What is loaded lies in scratch as any kept value: [..][k][lane].
#include "passes/cpu/cpu.h"
#include "passes/support/cost.h"

#include <assert.h>

// ---------------------------------------------------------------- conditions
// Does exactly one index count along the lanes, the last along another axis?
bool cpu_cross_possible(const Assign *as, Value v, int lane) {
  const Op *op = ir_def(as->f, v);
  if (!op || op->code != OP_LOAD || op->nargs < 3 || lane < 0) return false;
  AxisSet seen = 0;
  int last = -1;
  for (uint32_t i = 1; i < op->nargs; i++) {
    last = cpu_direct_axis(as, op->args[i]);
    if (last == -2 || (last >= 0 && seen >> last & 1)) return false;
    if (last >= 0) seen |= (AxisSet)1 << last;
  }
  if (last < 0 || last == lane || !(seen >> lane & 1)) return false;
  int64_t n;
  return seen == cpu_axes_of(as, v) &&
         dim_known(&as->m->dims, cpu_axis_size_in(as, v, (uint32_t)last), &n) &&
         n % as->lanes == 0;
}

// Shuffles take 32 bits as fast as less: narrow elements become wide first.
DType cpu_cross_dtype(DType t) {
  if (dtype_size(t) >= 4) return t;
  return dtype_is_float(t) ? DT_F32 : DT_I32;
}

// ---------------------------------------------------------------- addresses
// Index v at the first lane of the panel, at the loops' coordinates.
static Value start_of(Assign *as, Value v) {
  int axis = cpu_direct_axis(as, v);
  Value x = cpu_direct_first(as, v);
  if (axis < 0) return x;
  Value at = axis == as->pt.lane ? as->pt.x0 : as->pt.idx[axis];
  return at ? cpu_2(as, OP_ADD, x, at) : x;
}

static void all_of(Assign *as, Value *all, Value p) {
  *all = *all ? cpu_2(as, OP_AND, *all, p) : p;
}

// Is all that the panel reads of index v in range?
static void check_range(Assign *as, Value *ok, Value v, Dim n) {
  int axis = cpu_direct_axis(as, v);
  Value x = start_of(as, v), size = cpu_int(as, 1);
  if (axis < 0 && cpu_index_below(as, v, n) && cpu_is_nonneg(as, v)) return;
  if (axis >= 0 && axis != as->pt.lane)
    size = cpu_dim(as, cpu_axis_size_in(as, v, (uint32_t)axis));
  if (axis == as->pt.lane) size = cpu_int(as, as->pt.width);
  if (!cpu_is_nonneg(as, v))
    all_of(as, ok, cpu_2(as, OP_LE, cpu_int(as, 0), x));
  Value extent = cpu_dim(as, n);
  all_of(as, ok, cpu_2(as, OP_LE, cpu_2(as, OP_ADD, x, size), extent));
}

Value cpu_cross_ok(Assign *as, const Root *r) {
  const Op *op = ir_def(as->f, r->v);
  const Type *t = ir_type(as->f, op->args[0]);
  Value s = cpu_tensor(as, OP_TSTRIDE, op->args[0], t->n - 1);
  Value ok = cpu_2(as, OP_EQ, s, cpu_int(as, 1));
  for (uint32_t i = 0; i < t->n && !ir_attr_i(op, AT_INBOUNDS, 0); i++)
    check_range(as, &ok, op->args[i + 1], t->size[i]);
  return ok;
}

// ---------------------------------------------------------------- a block
static Value swap_lanes(Assign *as, Value a, Value b, uint32_t m, bool back) {
  IrAttr at[2] = {attr_i(AT_POS, m), attr_i(AT_REVERSE, 1)};
  return cpu_op(as, OP_VSWAP, (Value[]){a, b}, 2, *mty(as, a), at, 1 + back);
}

// Some stages of turning a square, on n rows that are `from` apart.
static void stages(Assign *as, Value *v, uint32_t n, uint32_t from) {
  for (uint32_t m = 1; m < n; m *= 2)
    for (uint32_t i = 0; i < n; i++) {
      if (i & m) continue;
      Value a = v[i], b = v[i + m];
      v[i] = swap_lanes(as, a, b, m * from, false);
      v[i + m] = swap_lanes(as, a, b, m * from, true);
    }
}

void cpu_turn_square(Assign *as, Value *v) {
  stages(as, v, as->lanes, 1);
}

void cpu_lane_sums(Assign *as, Value *v) {
  for (uint32_t m = as->lanes / 2; m; m /= 2)
    for (uint32_t i = 0; i < m; i++) {
      Value a = v[i], b = v[i + m];
      Value upper = swap_lanes(as, a, b, m, true);
      v[i] = cpu_2(as, OP_ADD, swap_lanes(as, a, b, m, false), upper);
    }
}

// A square of N coordinates from `x` and N lanes from `first` on.
typedef struct Square {
  Assign *as;
  Root *r;
  uint32_t axis;
  Value x, first;
  Value base, row;  // the first row in memory, the distance of rows
  Value part;       // scratch between the two halves of the work
} Square;

static void locate(Square *s) {
  Assign *as = s->as;
  const Op *op = ir_def(as->f, s->r->v);
  Value t = op->args[0], off = cpu_int(as, 0);
  as->pt.idx[s->axis] = s->x;
  for (uint32_t i = 1; i < op->nargs; i++) {
    Value d = cpu_tensor(as, OP_TSTRIDE, t, (int)i - 1);
    if (cpu_direct_axis(as, op->args[i]) == as->pt.lane) s->row = d;
    if (i + 1 == op->nargs) d = cpu_int(as, 1);
    Value at = start_of(as, op->args[i]);
    off = cpu_2(as, OP_ADD, off, cpu_2(as, OP_MUL, at, d));
  }
  off = cpu_2(as, OP_ADD, off, cpu_2(as, OP_MUL, s->row, s->first));
  s->base = cpu_padd(as, cpu_tensor(as, OP_TPTR, t, -1), off);
}

static void put_row(Square *s, Value l, Value v) {
  Assign *as = s->as;
  Form *f = s->r->dst;
  as->pt.idx[s->axis] = cpu_2(as, OP_ADD, s->x, l);
  Value step, at = cpu_form_index(as, f, 0, &step);
  int64_t n;
  assert(cpu_is_int(as, step, &n) && n == 1);
  v = cpu_cast(as, f->dt, v);
  at = cpu_2(as, OP_ADD, at, s->first);
  cpu_vst(as, cpu_form_base(as, f), at, v, 0);
}

static Value part_at(Square *s, Value l) {
  return cpu_2(s->as, OP_MUL, l, cpu_int(s->as, s->as->lanes));
}

// Neighbouring rows, the first stages.
static void turn_near(Square *s, Value first, bool only) {
  Assign *as = s->as;
  DType wide = cpu_cross_dtype(mty(as, s->base)->dtype);
  uint32_t n = as->lanes < COST_TURN_ROWS ? as->lanes : COST_TURN_ROWS;
  Value v[COST_TURN_ROWS], l[COST_TURN_ROWS];
  for (uint32_t i = 0; i < n; i++) {
    l[i] = cpu_2(as, OP_ADD, first, cpu_int(as, i));
    v[i] = cpu_vld(as, s->base, cpu_2(as, OP_MUL, s->row, l[i]), 0);
    v[i] = cpu_cast(as, wide, v[i]);
  }
  stages(as, v, n, 1);
  for (uint32_t i = 0; i < n; i++)
    if (only) put_row(s, l[i], v[i]);
    else cpu_vst(as, s->part, part_at(s, l[i]), v[i], 0);
}

// Rows that are COST_TURN_ROWS group_bounds, the other stages.
static void turn_far(Square *s, Value first) {
  Assign *as = s->as;
  uint32_t n = as->lanes / COST_TURN_ROWS;
  enum { MAX_FAR = 16 };
  Value v[MAX_FAR], l[MAX_FAR];
  assert(n <= MAX_FAR);
  for (uint32_t i = 0; i < n; i++) {
    l[i] = cpu_2(as, OP_ADD, first, cpu_int(as, i * COST_TURN_ROWS));
    v[i] = cpu_vld(as, s->part, part_at(s, l[i]), 0);
  }
  stages(as, v, n, COST_TURN_ROWS);
  for (uint32_t i = 0; i < n; i++) put_row(s, l[i], v[i]);
}

static Value scratch(Assign *as, DType t) {
  IrAttr at = attr_i(AT_DIM, dim_const(&as->m->dims, as->lanes * as->lanes));
  Type p = type_ptr(t);
  return ir_op(&as->top, OP_ALLOC, NULL, 0, &at, 1, &p, 1, 0)->res[0];
}

static void square(Square *s) {
  Assign *as = s->as;
  locate(s);
  bool only = as->lanes <= COST_TURN_ROWS;
  Value n = cpu_int(as, as->lanes);
  if (!only) s->part = scratch(as, cpu_cross_dtype(mty(as, s->base)->dtype));
  Loop near = cpu_loop_upto(as, n, COST_TURN_ROWS, "row");
  turn_near(s, near.iv, only);
  cpu_loop_close(as, &near, NULL);
  if (!only) {
    Loop far = cpu_loop_upto(as, cpu_int(as, COST_TURN_ROWS), 1, "row");
    turn_far(s, far.iv);
    cpu_loop_close(as, &far, NULL);
  }
  as->pt.idx[s->axis] = 0;
}

static void blocks(Assign *as, Root *r, uint32_t axis) {
  Dim size = cpu_axis_size_in(as, r->v, axis);
  Value lo = cpu_limit_lo(as, axis), n = cpu_int(as, as->lanes);
  lo = cpu_2(as, OP_MUL, cpu_2(as, OP_FLOORDIV, lo, n), n);
  LoopCount count = {lo, cpu_limit_hi(as, axis, size), as->lanes,
                     as->f->axes.at[axis].name};
  Loop l = cpu_loop_open(as, count, NULL, 0);
  // A loop, not copies: shuffles are many.
  Loop c = cpu_loop_upto(as, cpu_int(as, as->pt.width), as->lanes, "lane");
  Square s = {.as = as, .r = r, .axis = axis, .x = l.iv, .first = c.iv};
  square(&s);
  cpu_loop_close(as, &c, NULL);
  cpu_loop_close(as, &l, NULL);
}

// Loops over the axes besides the lanes and the memory's own.
static void outer(Assign *as, Root *r, uint32_t axis, AxisSet rest) {
  if (!rest) {
    blocks(as, r, axis);
    return;
  }
  uint32_t a = (uint32_t)__builtin_ctzll(rest);
  Dim size = cpu_axis_size_in(as, r->v, a);
  Value hi = cpu_limit_hi(as, a, size), lo = cpu_limit_lo(as, a);
  LoopCount count = {lo, hi, 1, as->f->axes.at[a].name};
  Loop l = cpu_loop_open(as, count, NULL, 0);
  as->pt.idx[a] = l.iv;
  outer(as, r, axis, rest & (rest - 1));
  cpu_loop_close(as, &l, NULL);
  as->pt.idx[a] = 0;
}

void cpu_cross_emit(Assign *as, Root *r) {
  const Op *op = ir_def(as->f, r->v);
  uint32_t axis = (uint32_t)cpu_direct_axis(as, op->args[op->nargs - 1]);
  AxisSet mine = (AxisSet)1 << axis | (AxisSet)1 << r->lane;
  assert(r->dst && r->dst->lane == r->lane && as->pt.bound);
  outer(as, r, axis, r->space & ~mine);
}
