// Lowering of expressions: names, arithmetic, comparisons, choices.
#include "frontend/lower.h"

#include <math.h>

// ---------------------------------------------------------------- arithmetic
static Val joined(Fx *x, OpCode c, Val a, Val b) {
  Val v[2] = {a, b};
  DType t = low_join(x, v, 2);
  if (t == DT_BOOL && c != OP_AND && c != OP_OR) t = DT_I64;
  for (int i = 0; i < 2; i++) v[i] = val_cast(x, v[i], t);
  return val_op(x, c, v, 2);
}

// Powers are of floats; weak integers become exact ones.
static Val power(Fx *x, Val a, Val b) {
  Val v[2] = {a, b};
  for (int i = 0; i < 2; i++) v[i] = val_float(x, v[i]);
  DType t = low_join(x, v, 2);
  for (int i = 0; i < 2; i++) v[i] = val_cast(x, v[i], t);
  return val_op(x, OP_POW, v, 2);
}

Val low_compare(Fx *x, BinOp op, Val a, Val b) {
  static const struct {
    OpCode op;
    bool swap;
  } rows[] = {
      [BO_LT] = {OP_LT, false}, [BO_GT] = {OP_LT, true},
      [BO_LE] = {OP_LE, false}, [BO_GE] = {OP_LE, true},
      [BO_EQ] = {OP_EQ, false}, [BO_NE] = {OP_NE, false},
  };
  Val v[2] = {rows[op].swap ? b : a, rows[op].swap ? a : b};
  DType t = low_dtype_of(x, v[0]);
  if (t != low_dtype_of(x, v[1]) || dtype_is_float(t)) {
    t = low_join(x, v, 2);
    for (int i = 0; i < 2; i++) v[i] = val_cast(x, v[i], t);
  }
  return val_op(x, rows[op].op, v, 2);
}

Val low_binary(Fx *x, BinOp op, Val a, Val b) {
  switch (op) {
  case BO_ADD: return joined(x, OP_ADD, a, b);
  case BO_SUB: return joined(x, OP_SUB, a, b);
  case BO_MUL: return joined(x, OP_MUL, a, b);
  case BO_AND: return joined(x, OP_AND, a, b);
  case BO_OR: return joined(x, OP_OR, a, b);
  case BO_DIV: return low_divide(x, a, b);
  case BO_FLOORDIV: return joined(x, OP_FLOORDIV, a, b);
  case BO_MOD: return joined(x, OP_MOD, a, b);
  case BO_POW: return power(x, a, b);
  case BO_MATMUL: return low_matmul(x, a, b, x->b.span);
  default: return low_compare(x, op, a, b);
  }
}

static Val chain(Fx *x, const Expr *e) {
  Val left = low_expr(x, e->list.at[0]), all = {0};
  for (uint32_t i = 0; i < e->ops.n; i++) {
    Val right = low_expr(x, e->list.at[i + 1]);
    Val one = low_compare(x, e->ops.at[i], left, right);
    all = i ? joined(x, OP_AND, all, one) : one;
    left = right;
  }
  return all;
}

static Val unary(Fx *x, const Expr *e) {
  Val a = low_expr(x, e->a);
  if (e->op == UO_NOT) return val_op(x, OP_NOT, &a, 1);
  a = val_cast(x, a, low_join(x, &a, 1));
  return val_op(x, OP_NEG, &a, 1);
}

static Val choice(Fx *x, const Expr *e) {
  const Expr *parts[3] = {e->a, e->b, e->c};
  Val v[3];
  for (int i = 0; i < 3; i++) v[i] = low_expr(x, parts[i]);
  return low_select(x, v);
}

static Val cast(Fx *x, const Expr *e) {
  Val a = low_expr(x, e->a);
  Val r = val_cast(x, a, e->dtype);
  r.weak = false;
  if (r.v != a.v) map_put(&x->explicit_casts, r.v, 1);
  return r;
}

// ---------------------------------------------------------------- names
static Val name(Fx *x, const Expr *e) {
  const Sym *s = e->sym;
  Val v;
  if (s && low_bound(x, s, &v)) return v;
  switch (s ? s->kind : SY_UNIT) {
  case SY_DIM: return low_dim_value(x, s->dim, e->span);
  case SY_PARAM: return low_tensor(x, s, NULL, 0, &e->ty, e->span);
  case SY_INDEX: return val_scalar(low_coord(x, low_axis(x, s)));
  case SY_LET: return low_expr(x, s->value);  // of the file: a constant
  case SY_DECL: {
    Vals r = low_call(x, e, s);
    return r.n ? r.at[0] : val_fail(x);
  }
  default:
    low_error(x->low, e->span, "'%s' has no value here",
              e->name ? e->name : "this");
    return val_fail(x);
  }
}

static Val one_of(Fx *x, const Expr *e) {
  Vals r = low_exprs(x, e);
  if (r.n == 1) return r.at[0];
  low_error(x->low, e->span, "a tuple is not a value");
  return val_fail(x);
}

static Val expr(Fx *x, const Expr *e) {
  switch (e->kind) {
  case EX_NAME:
  case EX_MEMBER: return name(x, e);
  case EX_INT: return val_int(x, e->ival);
  case EX_FLOAT: return val_const(x, e->fval);
  case EX_INF: return val_const(x, (double)INFINITY);
  case EX_BOOL: return val_scalar(ir_const_i(&x->b, DT_BOOL, e->ival != 0));
  case EX_UNARY: return unary(x, e);
  case EX_BINARY: {
    Val a = low_expr(x, e->a), b = low_expr(x, e->b);
    return low_binary(x, (BinOp)e->op, a, b);
  }
  case EX_CHAIN: return chain(x, e);
  case EX_INDEX: return low_index(x, e);
  case EX_CAST: return cast(x, e);
  case EX_IF: return choice(x, e);
  case EX_CALL:
  case EX_PIPE:
  case EX_TUPLE: return one_of(x, e);
  case EX_STRING:
  case EX_ERROR: break;
  }
  low_error(x->low, e->span, "this has no value here");
  return val_fail(x);
}

Val low_expr(Fx *x, const Expr *e) {
  Span outer = x->b.span;
  x->b.span = e->span;
  Val v = expr(x, e);
  x->b.span = outer;
  return v;
}

static Vals single(Fx *x, Val v) {
  Vals r = {.at = NEW(x->low->a, Val), .n = 1};
  r.at[0] = v;
  return r;
}

// The results of e: several for tuples and for rows that return several.
Vals low_exprs(Fx *x, const Expr *e) {
  if (e->kind == EX_TUPLE) {
    Vals r = {.at = NEWN(x->low->a, Val, e->list.n), .n = e->list.n};
    for (uint32_t i = 0; i < r.n; i++) r.at[i] = low_expr(x, e->list.at[i]);
    return r;
  }
  if (e->kind != EX_CALL && e->kind != EX_PIPE)
    return single(x, low_expr(x, e));
  Span outer = x->b.span;
  x->b.span = e->span;
  const Sym *s = e->sym;
  if (s && s->kind == SY_LET) s = s->value->sym;
  Vals r = {0};
  if (s && s->kind == SY_DECL) r = low_call(x, e, s);
  else if (s && s->kind == SY_BUILTIN) r = single(x, low_builtin(x, e, s));
  else low_error(x->low, e->span, "this cannot be called");
  if (!r.n) r = single(x, val_fail(x));
  x->b.span = outer;
  return r;
}
