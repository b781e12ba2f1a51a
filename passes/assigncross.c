// Loads whose memory runs across the lanes: turned by vector shuffles.
//
//   before  %t = load(%T, %b, %q0 + iota, %k0 + iota) : f32{q:128,k:64}
//   after   if the panel's rows are in range and the last stride is 1
//             for k0 step N { N rows of N neighbours; log2 N stages of vswap;
//                             N vectors of lanes to scratch }
//           else gathers, as of any load
//
// What is loaded lies in scratch as any kept value: [..][k][lane].
#include "passes/assign.h"

#include <assert.h>

// ---------------------------------------------------------------- conditions
// Does exactly one index count along the lanes, the last along another axis?
bool cross_possible(const Assign *as, Value v, int lane) {
  const Op *op = ir_def(as->f, v);
  if (!op || op->code != OP_LOAD || op->nargs < 3 || lane < 0) return false;
  AxisSet seen = 0;
  int last = -1;
  for (uint32_t i = 1; i < op->nargs; i++) {
    last = direct_axis(as, op->args[i]);
    if (last == -2 || (last >= 0 && seen >> last & 1)) return false;
    if (last >= 0) seen |= (AxisSet)1 << last;
  }
  if (last < 0 || last == lane || !(seen >> lane & 1)) return false;
  int64_t n;
  return seen == axes_of(as, v) &&
         dim_known(&as->m->dims, axis_size_in(as, v, (uint32_t)last), &n) &&
         n % as->lanes == 0;
}

// Shuffles take 32 bits as fast as less: narrow elements become wide first.
DType cross_dtype(DType t) {
  if (dtype_size(t) >= 4) return t;
  return dtype_is_float(t) ? DT_F32 : DT_I32;
}

// ---------------------------------------------------------------- addresses
// Index v at the first lane of the panel, at the loops' coordinates.
static Value start_of(Assign *as, Value v) {
  int axis = direct_axis(as, v);
  Value x = direct_first(as, v);
  if (axis < 0) return x;
  Value at = axis == as->pt.lane ? as->pt.x0 : as->pt.idx[axis];
  return at ? em_2(as, OP_ADD, x, at) : x;
}

static void all_of(Assign *as, Value *all, Value p) {
  *all = *all ? em_2(as, OP_AND, *all, p) : p;
}

// Is all that the panel reads of index v in range?
static void check_range(Assign *as, Value *ok, Value v, Dim n) {
  int axis = direct_axis(as, v);
  Value x = start_of(as, v), size = em_int(as, 1);
  if (axis < 0 && index_below(as, v, n) && is_nonneg(as, v)) return;
  if (axis >= 0 && axis != as->pt.lane)
    size = em_dim(as, axis_size_in(as, v, (uint32_t)axis));
  if (axis == as->pt.lane) size = em_int(as, as->pt.width);
  if (!is_nonneg(as, v)) all_of(as, ok, em_2(as, OP_LE, em_int(as, 0), x));
  all_of(as, ok, em_2(as, OP_LE, em_2(as, OP_ADD, x, size), em_dim(as, n)));
}

Value cross_ok(Assign *as, const Root *r) {
  const Op *op = ir_def(as->f, r->v);
  const Type *t = ir_type(as->f, op->args[0]);
  Value s = em_tensor(as, OP_TSTRIDE, op->args[0], t->n - 1);
  Value ok = em_2(as, OP_EQ, s, em_int(as, 1));
  for (uint32_t i = 0; i < t->n && !ir_attr_i(op, AT_INBOUNDS, 0); i++)
    check_range(as, &ok, op->args[i + 1], t->size[i]);
  return ok;
}

// ---------------------------------------------------------------- a block
static Value swap_lanes(Assign *as, Value a, Value b, uint32_t m, bool back) {
  IrAttr at[2] = {attr_i(AT_POS, m), attr_i(AT_REVERSE, 1)};
  return em_op(as, OP_VSWAP, (Value[]){a, b}, 2, *mty(as, a), at, 1 + back);
}

// Row i of v becomes lane i, in place.
static void turn(Assign *as, Value *v) {
  for (uint32_t m = 1; m < as->lanes; m *= 2)
    for (uint32_t i = 0; i < as->lanes; i++) {
      if (i & m) continue;
      Value a = v[i], b = v[i + m];
      v[i] = swap_lanes(as, a, b, m, false);
      v[i + m] = swap_lanes(as, a, b, m, true);
    }
}

// N coordinates from x on of N lanes, the panel's from `first` on.
static void block(Assign *as, Root *r, uint32_t axis, Value x, Value first) {
  const Op *op = ir_def(as->f, r->v);
  Value t = op->args[0], off = em_int(as, 0), row = 0;
  DType wide = cross_dtype(ir_type(as->f, t)->dtype);
  Value *v = NEWN(as->arena, Value, as->lanes);
  as->pt.idx[axis] = x;
  for (uint32_t i = 1; i < op->nargs; i++) {
    Value s = em_tensor(as, OP_TSTRIDE, t, (int)i - 1);
    if (direct_axis(as, op->args[i]) == as->pt.lane) row = s;
    if (i + 1 == op->nargs) s = em_int(as, 1);
    Value at = start_of(as, op->args[i]);
    off = em_2(as, OP_ADD, off, em_2(as, OP_MUL, at, s));
  }
  off = em_2(as, OP_ADD, off, em_2(as, OP_MUL, row, first));
  Value base = em_padd(as, em_tensor(as, OP_TPTR, t, -1), off);
  for (uint32_t l = 0; l < as->lanes; l++) {
    Value i = em_2(as, OP_MUL, row, em_int(as, l));
    v[l] = em_cast(as, wide, em_vld(as, base, i, 0));
  }
  turn(as, v);
  for (uint32_t l = 0; l < as->lanes; l++) {
    as->pt.idx[axis] = em_2(as, OP_ADD, x, em_int(as, l));
    Value step, at = form_index(as, r->dst, 0, &step);
    int64_t n;
    assert(em_is_int(as, step, &n) && n == 1);
    em_vst(as, form_base(as, r->dst), em_2(as, OP_ADD, at, first),
           em_cast(as, r->dst->dt, v[l]), 0);
  }
  as->pt.idx[axis] = 0;
}

static void blocks(Assign *as, Root *r, uint32_t axis) {
  Dim size = axis_size_in(as, r->v, axis);
  Value lo = limit_lo(as, axis), n = em_int(as, as->lanes);
  lo = em_2(as, OP_MUL, em_2(as, OP_FLOORDIV, lo, n), n);
  Loop l = loop_open(as, lo, limit_hi(as, axis, size), as->lanes, NULL, 0,
                     as->f->axes.at[axis].name);
  // A loop, not copies: shuffles are many.
  Loop c = loop_open(as, em_int(as, 0), em_int(as, as->pt.width), as->lanes,
                     NULL, 0, "lane");
  block(as, r, axis, l.iv, c.iv);
  loop_close(as, &c, NULL);
  loop_close(as, &l, NULL);
}

// Loops over the axes besides the lanes and the memory's own.
static void outer(Assign *as, Root *r, uint32_t axis, AxisSet rest) {
  if (!rest) {
    blocks(as, r, axis);
    return;
  }
  uint32_t a = (uint32_t)__builtin_ctzll(rest);
  Dim size = axis_size_in(as, r->v, a);
  Loop l = loop_open(as, limit_lo(as, a), limit_hi(as, a, size), 1, NULL, 0,
                     as->f->axes.at[a].name);
  as->pt.idx[a] = l.iv;
  outer(as, r, axis, rest & (rest - 1));
  loop_close(as, &l, NULL);
  as->pt.idx[a] = 0;
}

void cross_emit(Assign *as, Root *r) {
  const Op *op = ir_def(as->f, r->v);
  uint32_t axis = (uint32_t)direct_axis(as, op->args[op->nargs - 1]);
  AxisSet mine = (AxisSet)1 << axis | (AxisSet)1 << r->lane;
  assert(r->dst && r->dst->lane == r->lane && as->pt.bound);
  outer(as, r, axis, r->space & ~mine);
}
