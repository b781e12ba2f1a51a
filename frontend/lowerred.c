// Lowering of the builtin functions, reductions and scans, and division.
#include "frontend/lower.h"

#include <assert.h>

// ---------------------------------------------------------------- arguments
enum { MAX_ARGS = 256 };

// Operand i of a builtin call: a pipe's value comes first.
static const Expr *operand(const Expr *e, uint32_t i) {
  if (e->kind == EX_PIPE) {
    if (i == 0) return e->a;
    i--;
  }
  for (uint32_t j = 0; j < e->args.n; j++) {
    if (e->args.at[j].kind == ARG_NAMED) continue;
    if (i-- == 0) return e->args.at[j].value;
  }
  return NULL;
}

static uint32_t operands(Fx *x, const Expr *e, Val *out) {
  uint32_t n = 0;
  for (const Expr *o; n < MAX_ARGS && (o = operand(e, n)); n++)
    out[n] = low_expr(x, o);
  return n;
}

static void join_all(Fx *x, Val *v, uint32_t n) {
  DType t = low_join(x, v, n);
  for (uint32_t i = 0; i < n; i++) v[i] = val_cast(x, v[i], t);
}

// ---------------------------------------------------------------- division
// A quotient that depends on a reduction over keys is 0 / 0 = 0 where there
// are no keys; of several reductions, one within another, the outer one's.
Val low_divide(Fx *x, Val a, Val b) {
  Val v[2] = {a, b}, shape;
  DType t = low_join(x, v, 2);
  if (!dtype_is_float(t)) t = a.weak && b.weak ? DT_F64 : DT_F32;
  for (int i = 0; i < 2; i++) v[i] = val_cast(x, v[i], t);
  int key = ir_quotient_key(&x->deps, v[0].v, v[1].v, b.weak);
  if (key < 0) return val_op(x, OP_DIV, v, 2);
  val_align(x, v, 2, &shape);
  IrAttr axis = attr_i(AT_AXIS, key);
  Value args[] = {v[0].v, v[1].v};
  shape.v = ir_op(&x->b, OP_DIVK, args, 2, &axis, 1, NULL, 1, 0)->res[0];
  shape.weak = false;
  return shape;
}

// ---------------------------------------------------------------- reductions
static Val no_reduce(Fx *x, Span at, const char *what) {
  low_error(x->low, at, "%s", what);
  return val_fail(x);
}

Value low_operand(Fx *x, Value v, uint32_t axis) {
  v = ir_spread(&x->b, v, axis);
  return axis < 64 ? ir_cover(&x->b, v, x->domains.of[axis]) : v;
}

static Val reduce(Fx *x, RKind k, Val v, uint32_t axis) {
  bool logic = k == RK_ANY || k == RK_ALL;
  AxisRole role = x->f->axes.at[axis].role;
  if (!logic) join_all(x, &v, 1);
  if (v.weak)
    v = val_cast(x, v, low_dtype_of(x, v) == DT_F64 ? DT_F32 : DT_I64);
  if (role != AX_KEY && role != AX_VEC)
    return no_reduce(x, x->b.span, "only key and vector indices are reduced");
  if (k == RK_SUM && role == AX_KEY && low_weighted_sum(x, &v, axis)) return v;
  v.v = ir_reduce(&x->b, k, low_operand(x, v.v, axis), &axis, 1);
  v.weak = false;
  return v;
}

static uint32_t binder_axis(Fx *x, const Expr *e) {
  if (e->binder) return low_axis(x, e->binder);
  low_error(x->low, e->span, "this reduction has no index");
  return NO_AXIS;
}

static Val count(Fx *x, Val v, uint32_t axis) {
  v.v = ir_cast(&x->b, DT_I64, v.v);
  return reduce(x, RK_SUM, v, axis);
}

static Val mean(Fx *x, Val v, uint32_t axis) {
  Val one = val_scalar(ir_const_f(&x->b, DT_F32, 1.0));
  Val total = reduce(x, RK_SUM, val_float(x, v), axis);
  return low_divide(x, total, reduce(x, RK_SUM, one, axis));
}

static Val reduction(Fx *x, const Expr *e, int id) {
  static const RKind kinds[BI_COUNT] = {
      [BI_sum] = RK_SUM, [BI_prod] = RK_PROD, [BI_max] = RK_MAX,
      [BI_min] = RK_MIN, [BI_any] = RK_ANY,   [BI_all] = RK_ALL,
  };
  uint32_t axis = binder_axis(x, e);
  Val v = low_expr(x, operand(e, 0));
  if (axis == NO_AXIS) return val_fail(x);
  if (id == BI_count) return count(x, v, axis);
  if (id == BI_mean) return mean(x, v, axis);
  return reduce(x, kinds[id], v, axis);
}

static Val scan(Fx *x, const Expr *e, int id) {
  uint32_t axis = binder_axis(x, e);
  Val v = low_expr(x, operand(e, 0));
  if (axis == NO_AXIS) return val_fail(x);
  join_all(x, &v, 1);
  if (v.weak) v = val_cast(x, v, DT_F32);
  IrAttr attrs[4] = {attr_i(AT_KIND, RK_SUM), attr_i(AT_AXIS, axis),
                     attr_i(AT_DIR, id == BI_cumsum ? DIR_PREFIX : DIR_SUFFIX),
                     attr_i(AT_EXCLUSIVE, 1)};
  Value in = low_operand(x, v.v, axis);
  v.v =
      ir_op(&x->b, OP_SCAN, &in, 1, attrs, fe_exclusive(e) ? 4 : 3, NULL, 1, 0)
          ->res[0];
  v.weak = false;
  return v;
}

// ---------------------------------------------------------------- vectors
static void push_axis(Val *v, Dim d, uint32_t axis) {
  for (uint32_t i = v->rank; i; i--) {
    v->dim[i] = v->dim[i - 1];
    v->axis[i] = v->axis[i - 1];
  }
  v->dim[0] = d;
  v->axis[0] = axis;
  v->rank++;
}

static Val vec(Fx *x, const Expr *e) {
  uint32_t from = binder_axis(x, e);
  Val v = low_expr(x, operand(e, 0));
  if (from == NO_AXIS) return val_fail(x);
  Dim d = e->binder->dim;
  uint32_t to = low_vec_axis(x, d, val_axes(x, v.v));
  Value at = low_coord(x, to);
  if (type_has_axis(ir_type(x->f, v.v), from))
    v.v = low_at(x, v.v, 1, &from, &at);
  push_axis(&v, d, to);
  v.weak = false;
  return v;
}

// Value of v with its first axis at coordinate i.
static Value pick(Fx *x, const Val *v, Value i) {
  if (!type_has_axis(ir_type(x->f, v->v), v->axis[0])) return v->v;
  return low_at(x, v->v, 1, &v->axis[0], &i);
}

static Val concat(Fx *x, const Expr *e) {
  Val v[MAX_ARGS], shape;
  uint32_t n = operands(x, e, v);
  Builder *b = &x->b;
  DType t = low_dtype_of(x, v[0]);
  bool same = true;
  uint64_t used = 0;
  for (uint32_t i = 0; i < n; i++) {
    same = same && low_dtype_of(x, v[i]) == t;
    used |= val_axes(x, v[i].v);
  }
  if (!same) join_all(x, v, n);
  shape = v[0];
  for (uint32_t i = 1; i < n; i++) {
    uint32_t to[MAX_RANK] = {v[i].axis[0]};
    for (uint32_t j = 1; j < v[i].rank; j++) to[j] = shape.axis[j];
    v[i] = val_rename(x, v[i], to);
  }
  shape.dim[0] = e->ty.shape[0];
  shape.axis[0] = low_vec_axis(x, shape.dim[0], used);
  Value at = ir_index(b, shape.axis[0]), r = 0;
  DimTab *dims = x->decl->dims;
  Dim end = shape.dim[0];
  for (uint32_t i = n; i-- > 0;) {
    Dim begin = dim_sub(dims, end, v[i].dim[0]);
    Value from = ir_dim(b, low_dim(x, begin));
    Value one = pick(x, &v[i], ir_2(b, OP_SUB, at, from));
    Value before = ir_2(b, OP_LT, at, ir_dim(b, low_dim(x, end)));
    r = r ? ir_3(b, OP_SELECT, before, one, r) : one;
    end = begin;
  }
  shape.v = r;
  shape.weak = false;
  return shape;
}

// ---------------------------------------------------------------- elementwise
static Val math(Fx *x, OpCode op, Val v) {
  v = val_float(x, v);
  return val_op(x, op, &v, 1);
}

static Val silu(Fx *x, Val v) {
  v = val_float(x, v);
  Val in[2] = {v, val_op(x, OP_SIGMOID, &v, 1)};
  return val_op(x, OP_MUL, in, 2);
}

static Val extremum(Fx *x, OpCode op, Val *v, uint32_t n) {
  join_all(x, v, n);
  Val r = v[0];
  for (uint32_t i = 1; i < n; i++) {
    Val in[2] = {r, v[i]};
    r = val_op(x, op, in, 2);
  }
  return r;
}

static Val clamp(Fx *x, Val *v) {
  join_all(x, v, 3);
  Val lo[2] = {v[0], v[1]};
  Val hi[2] = {val_op(x, OP_MAX, lo, 2), v[2]};
  return val_op(x, OP_MIN, hi, 2);
}

// The words of the seed, then the indices: the last one last, those that are
// not there 0.
static Val random_number(Fx *x, Val *v, uint32_t n) {
  enum { WORDS = 2 };
  Val in[ELEM_ARGS], half = val_int(x, INT64_C(1) << 32);
  for (uint32_t i = 0; i < n; i++) v[i] = val_cast(x, v[i], DT_I64);
  in[0] = v[0];
  in[1] = low_binary(x, BO_FLOORDIV, v[0], half);
  for (uint32_t i = WORDS; i < ELEM_ARGS; i++) {
    uint32_t missing = ELEM_ARGS - WORDS - (n - 1);
    in[i] = i < WORDS + missing ? val_int(x, 0) : v[i - WORDS - missing + 1];
  }
  Val r = val_op(x, OP_RANDOM, in, ELEM_ARGS);
  r.weak = false;
  return r;
}

static Val from_bits(Fx *x, Val v) {
  v = val_cast(x, v, DT_I64);
  v = val_op(x, OP_FROM_BITS, &v, 1);
  v.weak = false;
  return v;
}

Val low_select(Fx *x, Val *v) {
  if (low_dtype_of(x, v[1]) != low_dtype_of(x, v[2]) || v[1].weak)
    join_all(x, v + 1, 2);
  bool weak = v[1].weak && v[2].weak;
  Val r = val_op(x, OP_SELECT, v, 3);
  r.weak = weak;
  return r;
}

static Val simple(Fx *x, const Expr *e, int id) {
  Val v[MAX_ARGS];
  uint32_t n = operands(x, e, v);
  switch (id) {
  case BI_silu: return silu(x, v[0]);
  case BI_clamp: return clamp(x, v);
  case BI_select: return low_select(x, v);
  case BI_stop_grad: return val_op(x, OP_STOP_GRAD, v, 1);
  case BI_random: return random_number(x, v, n);
  case BI_from_bits: return from_bits(x, v[0]);
  case BI_dot: return low_matmul(x, v[0], v[1], e->span);
  case BI_outer: return low_outer(x, v[0], v[1]);
  case BI_max: return extremum(x, OP_MAX, v, n);
  case BI_min: return extremum(x, OP_MIN, v, n);
  case BI_abs: join_all(x, v, 1); return val_op(x, OP_ABS, v, 1);
  default:
    if (fe_builtins[id].kind == BK_MATH)
      return math(x, fe_builtin_op(id), v[0]);
    return no_reduce(x, e->span, "this function has no meaning here");
  }
}

Val low_builtin(Fx *x, const Expr *e, const Sym *callee) {
  int id = callee->builtin;
  BuiltinKind kind = fe_builtins[id].kind;
  if (kind == BK_REDUCE && !e->elementwise) return reduction(x, e, id);
  if (kind == BK_SCAN) return scan(x, e, id);
  if (kind == BK_TOPK) return low_topk(x, e, operand(e, 0), operand(e, 1));
  if (kind == BK_VEC) return vec(x, e);
  if (kind == BK_CONCAT) return concat(x, e);
  return simple(x, e, id);
}
