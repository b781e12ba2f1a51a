// Values at a point: the ops of one element (or of one vector of lanes).
#include "passes/cpu/cpu.h"

#include "ir/facts.h"

#include <assert.h>

static bool has_lane(const Assign *as, Value v) {
  return as->pt.lane >= 0 &&
         type_has_axis(ir_type(as->f, v), (uint32_t)as->pt.lane);
}

Value cpu_eval_as(Assign *as, Value v, uint32_t c, DType t) {
  return cpu_cast(as, t, cpu_eval(as, v, c));
}

// ---------------------------------------------------------------- ops
static Value eval_const(Assign *as, const Op *op) {
  DType t = ir_type(as->f, op->res[0])->dtype;
  const IrAttr *a = ir_attr(op, AT_VALUE);
  int64_t i = ir_attr_i(op, AT_IVALUE, 0);
  if (dtype_is_float(t))
    return cpu_float(as, cpu_reg_dtype(t), a ? a->f : (double)i);
  return t == DT_BOOL ? cpu_bool(as, i != 0) : cpu_int(as, i);
}

static Value eval_iota(Assign *as, const Op *op, uint32_t c) {
  uint32_t axis = ir_type(as->f, op->res[0])->axis[0];
  if ((int)axis != as->pt.lane) {
    assert(as->pt.idx[axis]);
    return as->pt.idx[axis];
  }
  Value x = cpu_2(as, OP_ADD, as->pt.x0, cpu_int(as, (int64_t)c * as->lanes));
  Value lanes = cpu_iota(as);
  return cpu_2(as, OP_ADD, cpu_vec(as, x), lanes);
}

static Value eval_origin(Assign *as, const Op *op) {
  return ir_origin(&as->top, (uint32_t)ir_attr_i(op, AT_AXIS, 0));
}

// The smallest (largest) element of a tensor over an index range.
static Value eval_span(Assign *as, const Op *op) {
  Value t = op->args[0], off = cpu_int(as, 0);
  RKind k = op->code == OP_SPAN_MIN ? RK_MIN : RK_MAX;
  int rank = (int)ir_type(as->f, t)->n;
  for (int i = 0; i + 1 < rank; i++) {
    Value x = cpu_eval_as(as, op->args[3 + i], 0, DT_I64);
    Value s = cpu_tensor(as, OP_TSTRIDE, t, i);
    off = cpu_2(as, OP_ADD, off, cpu_2(as, OP_MUL, x, s));
  }
  Value zero = cpu_int(as, 0);
  Value lo = cpu_2(as, OP_MAX, cpu_eval_as(as, op->args[1], 0, DT_I64), zero);
  Value n = cpu_dim(as, ir_type(as->f, t)->size[rank - 1]);
  Value one = cpu_int(as, 1);
  Value hi = cpu_2(as, OP_ADD, cpu_eval_as(as, op->args[2], 0, DT_I64), one);
  hi = cpu_2(as, OP_MIN, hi, n);
  DType dt = cpu_reg_dtype(ir_type(as->f, t)->dtype);
  Value acc = cpu_identity(as, k, dt);
  Value base = cpu_padd(as, cpu_tensor(as, OP_TPTR, t, -1), off);
  Loop l = cpu_loop_open(as, (LoopCount){lo, hi, 1, "i"}, &acc, 1);
  Value at = cpu_2(as, OP_MUL, l.iv, cpu_tensor(as, OP_TSTRIDE, t, rank - 1));
  acc = cpu_combine(as, k, acc, cpu_cast(as, dt, cpu_ld(as, base, at)));
  cpu_loop_close(as, &l, &acc);
  return acc;
}

// A divisor that cannot fault where the quotient is not wanted.
static Value divisor(Assign *as, Value y) {
  int64_t n;
  if (cpu_is_int(as, y, &n) && n != 0) return y;
  Value zero = cpu_int(as, 0), one = cpu_int(as, 1);
  return cpu_select(as, cpu_2(as, OP_EQ, y, zero), one, y);
}

// The dtype in which an elementwise op works.
static DType work_dtype(const Assign *as, const Op *op) {
  DType t = DT_BOOL;
  for (uint32_t i = op->code == OP_SELECT; i < op->nargs; i++) {
    DType a = cpu_reg_dtype(ir_type(as->f, op->args[i])->dtype);
    if (a == DT_BOOL || a == t) continue;
    bool wider = t == DT_BOOL || a == DT_F64 || (a == DT_F32 && t == DT_I64);
    if (wider) t = a;
  }
  return t;
}

// A result in a narrow type of an op that is not exact.
static Value narrow(Assign *as, const Op *op, Value r) {
  DType t = ir_type(as->f, op->res[0])->dtype;
  bool exact = op_facts(op->code)->exact;
  if (t == cpu_reg_dtype(t) || (exact && dtype_is_float(t))) return r;
  return cpu_cast(as, t, r);
}

Value cpu_side_taken(const Assign *as, const Op *op, uint32_t c) {
  if (op->code != OP_SELECT) return 0;
  Value p = cpu_memo_get(as, op->args[0], has_lane(as, op->args[0]) ? c : 0);
  bool b;
  return p && cpu_is_bool(as, p, &b) ? op->args[b ? 1 : 2] : 0;
}

static Value eval_elementwise(Assign *as, const Op *op, uint32_t c) {
  DType t = work_dtype(as, op);
  Value side = cpu_side_taken(as, op, c);
  if (side) return narrow(as, op, cpu_eval_as(as, side, c, t));
  if (t == DT_BOOL && op_info(op->code)->infer != INF_BOOL &&
      op->code != OP_SELECT && op->code != OP_MAX && op->code != OP_MIN)
    t = DT_I64;  // sums of bools
  Value x[3];
  bool sel = op->code == OP_SELECT;
  for (uint32_t i = 0; i < op->nargs; i++)
    x[i] = cpu_eval_as(as, op->args[i], c, sel && i == 0 ? DT_BOOL : t);
  if (sel) return narrow(as, op, cpu_select(as, x[0], x[1], x[2]));
  OpCode code = op->code;
  if (code == OP_FLOORDIV || code == OP_MOD) x[1] = divisor(as, x[1]);
  if (t == DT_BOOL && code == OP_MAX) code = OP_OR;
  if (t == DT_BOOL && code == OP_MIN) code = OP_AND;
  Value r = op->nargs == 1   ? cpu_1(as, code, x[0])
            : op->nargs == 2 ? cpu_2(as, code, x[0], x[1])
                             : cpu_3(as, code, x[0], x[1], x[2]);
  return op_info(op->code)->infer == INF_BOOL ? r : narrow(as, op, r);
}

// If v is x or u, u a scalar that is made by now: u, else 0.
Value cpu_switch_of(const Assign *as, Value v) {
  const Op *op = ir_def(as->f, v);
  bool known;
  for (uint32_t i = 0; op && op->code == OP_OR && i < 2; i++) {
    Value u = op->args[i],
          x = cpu_is_scalar(as, u) ? cpu_memo_get(as, u, 0) : 0;
    if (x && !cpu_is_bool(as, x, &known)) return u;
  }
  return 0;
}

// A scalar operand of `or` that is known to hold: nothing else is evaluated.
static bool decided(Assign *as, const Op *op) {
  bool b;
  for (uint32_t i = 0; op->code == OP_OR && i < 2; i++) {
    Value x =
        cpu_is_scalar(as, op->args[i]) ? cpu_memo_get(as, op->args[i], 0) : 0;
    if (x && cpu_is_bool(as, x, &b) && b) return true;
  }
  return false;
}

static Value eval_random(Assign *as, const Op *op, uint32_t c) {
  Value x[ELEM_ARGS];
  bool lanes = false;
  for (uint32_t i = 0; i < op->nargs; i++) {
    x[i] = cpu_eval_as(as, op->args[i], c, DT_I64);
    lanes = lanes || is_vec(as, x[i]);
  }
  for (uint32_t i = 0; lanes && i < op->nargs; i++) x[i] = cpu_vec(as, x[i]);
  return ir_op(&as->b, OP_RANDOM, x, op->nargs, NULL, 0, NULL, 1, 0)->res[0];
}

static Value eval_bits(Assign *as, const Op *op, uint32_t c) {
  Value x = cpu_eval_as(as, op->args[0], c, DT_I64);
  return ir_1(&as->b, OP_FROM_BITS, x);
}

static Value eval_op(Assign *as, const Op *op, uint32_t c) {
  if (decided(as, op)) return cpu_bool(as, true);
  switch (op->code) {
  case OP_CONST: return eval_const(as, op);
  case OP_DIM: return cpu_dim(as, (Dim)ir_attr_i(op, AT_DIM, 0));
  case OP_IOTA: return eval_iota(as, op, c);
  case OP_ORIGIN: return eval_origin(as, op);
  case OP_GIVEN: return cpu_tensor(as, OP_GIVEN, op->args[0], -1);
  case OP_LOAD: return cpu_tensor_load(as, op, c);
  case OP_RANDOM: return eval_random(as, op, c);
  case OP_FROM_BITS: return eval_bits(as, op, c);
  case OP_SPAN_MIN:
  case OP_SPAN_MAX: return eval_span(as, op);
  case OP_CAST: {
    DType to = (DType)ir_attr_i(op, AT_TO, 0);
    Value x = cpu_eval(as, op->args[0], c);
    // An integer held in 64 bits has its own value already.
    if (to == DT_I64 && mty(as, x)->dtype == DT_I64) return x;
    return cpu_cast(as, to, x);
  }
  default: return eval_elementwise(as, op, c);
  }
}

static Form *find_form(const Assign *as, Value v) {
  Form *f = as->vec_ready[v] ? as->vec_form[v] : NULL;
  if (f && f->lane == as->pt.lane) return f;
  return as->ready[v] ? as->forms[v] : f;
}

Value cpu_eval(Assign *as, Value v, uint32_t c) {
  assert(!cpu_is_memory(as, v));
  if (!has_lane(as, v)) c = 0;
  Value x = cpu_memo_get(as, v, c);
  if (x) return x;
  Form *f = find_form(as, v);
  if (as->band[v]) {
    x = cpu_band_load(as, v, c);
  } else if (f) {
    x = cpu_form_load(as, f, c);
  } else {
    assert(cpu_is_inline(as, v) && "value is used before it is made");
    x = eval_op(as, ir_def(as->f, v), c);
  }
  if (!ir_info(as->g, x)->hint)
    ir_info(as->g, x)->hint = ir_info(as->f, v)->hint;
  cpu_memo_put(as, v, c, x);
  return x;
}

// ---------------------------------------------------------------- hoisting
static bool bound(const Assign *as, Value v) {
  const Type *t = ir_type(as->f, v);
  for (uint32_t i = 0; i < t->n; i++) {
    bool lane = (int)t->axis[i] == as->pt.lane;
    if (lane ? !as->pt.bound : !as->pt.idx[t->axis[i]]) return false;
  }
  return true;
}

static void hoist_args(Assign *as, const Op *op);

static void hoist_walk(Assign *as, Value v) {
  if (as->seen[v] == as->stamp || cpu_is_memory(as, v)) return;
  as->seen[v] = as->stamp;
  if (bound(as, v)) {
    uint32_t n = has_lane(as, v) ? as->pt.cols : 1;
    for (uint32_t c = 0; c < n; c++) cpu_eval(as, v, c);
    return;
  }
  if (find_form(as, v) || as->band[v] || !cpu_is_inline(as, v)) return;
  if (decided(as, ir_def(as->f, v))) return;
  hoist_args(as, ir_def(as->f, v));
}

// The side of a select that all vectors of the panel take, else 0.
static Value one_side(const Assign *as, const Op *op) {
  Value v = cpu_side_taken(as, op, 0);
  for (uint32_t c = 1; v && c < as->pt.cols && has_lane(as, op->args[0]); c++)
    if (cpu_side_taken(as, op, c) != v) return 0;
  return v;
}

// Indices that grow with the lane become part of the address.
static void hoist_args(Assign *as, const Op *op) {
  Value side = one_side(as, op);
  if (side) {
    hoist_walk(as, side);
    return;
  }
  uint32_t first = op->code == OP_STORE ? 2 : 1;
  bool mem = op->code == OP_STORE || op->code == OP_LOAD;
  uint32_t rank = mem ? ir_type(as->f, op->args[0])->n : 0;
  for (uint32_t i = 0; i < op->nargs; i++) {
    bool index = mem && i >= first && i < first + rank;
    if (!index || !has_lane(as, op->args[i]) ||
        !cpu_affine_in_lane(as, op->args[i]))
      hoist_walk(as, op->args[i]);
  }
}

void cpu_hoist(Assign *as, Value v) {
  as->stamp++;
  hoist_walk(as, v);
}

void cpu_hoist_inputs(Assign *as, const Op *op) {
  as->stamp++;
  hoist_args(as, op);
}
