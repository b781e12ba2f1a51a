// Comparisons of quotients of keys are limits of the keys:
//
//   %a = floordiv(%k, %n)   %b = floordiv(%q, %n)   %p = eq(%a, %b)
// ->
//   %l = mul(%b, %n)   %h = add(%l, sub(%n, 1))
//   %p = and(le(%l, %k), le(%k, %h))
//
// and so for < and <=, for differences such as  |k // X - y| <= r,  and for
// numerators k - s. The limits vary with rows only: a row has a quotient
// where each pair of row and key had one, and bounds of keys are affine.
// A divisor whose sign is not known chooses limits by it.
#include "passes/attn/canon.h"

#include "ir/facts.h"

// Numerators are below FAR, so quotients are at most FAR / |n| + 1: limits of
// more say nothing else, and no product of one with a divisor overflows.
#define FAR ((int64_t)1 << 60)

// first <= x // n <= last, either 0 where there is no such limit.
typedef struct Limits {
  Value x, by, n;  // n is `by`, or nearer to 0
  Value first, last;
} Limits;

static Value at_least(Canon *c, Value x, int64_t k) {
  int64_t lo, hi;
  canon_bounds(c, x, &lo, &hi);
  return lo >= k ? x : canon_2(c, OP_MAX, x, canon_int(c, k));
}

static Value at_most(Canon *c, Value x, int64_t k) {
  int64_t lo, hi;
  canon_bounds(c, x, &lo, &hi);
  return hi <= k ? x : canon_2(c, OP_MIN, x, canon_int(c, k));
}

// The axis of keys that v varies with, or -1.
static int key_axis(const Canon *c, Value v) {
  const Type *t = ir_type(c->f, v);
  for (uint32_t i = 0; i < t->n; i++)
    if (c->f->axes.at[t->axis[i]].role == AX_KEY) return (int)t->axis[i];
  return -1;
}

// The only term of d that varies with an axis of keys, if it is a quotient by
// what does not, taken once; else -1.
static int quotient_of_keys(const Canon *c, const CanonLin *d) {
  int found = -1;
  for (uint32_t i = 0; i < d->n; i++) {
    const Op *op = ir_def(c->f, d->t[i].v);
    if (key_axis(c, d->t[i].v) < 0) continue;
    if (found >= 0 || !op || op->code != OP_FLOORDIV ||
        (d->t[i].c != 1 && d->t[i].c != -1) || key_axis(c, op->args[1]) >= 0)
      return -1;
    found = (int)i;
  }
  return found;
}

// d without term i, times -1 where `minus`.
static CanonLin without(const Canon *c, const CanonLin *d, int i, bool minus) {
  DimTab *t = &c->m->dims;
  CanonLin r = {.dim = minus ? dim_sub(t, dim_const(t, 0), d->dim) : d->dim};
  for (int j = 0; j < (int)d->n; j++)
    if (j != i)
      r.t[r.n++] = (CanonTerm){d->t[j].v, (minus ? -1 : 1) * d->t[j].c};
  return r;
}

// A number that x // n is compared with: as it is, or the nearest with the
// same answer whose product with n does not overflow.
static Value comparable(Canon *c, Value q, const Limits *l) {
  const Op *op = ir_def(c->f, q);
  int64_t lo, hi, nlo, nhi;
  canon_bounds(c, q, &lo, &hi);
  canon_bounds(c, l->n, &nlo, &nhi);
  if (op && op->code == OP_FLOORDIV && op->args[1] == l->by) return q;
  if (lo > -INT32_MAX && hi < INT32_MAX && nlo > -INT32_MAX && nhi < INT32_MAX)
    return q;
  Value size = nlo > 0 ? l->n : canon_1(c, OP_ABS, l->n);
  Value most = canon_2(c, OP_FLOORDIV, canon_int(c, FAR), size);
  most = canon_2(c, OP_ADD, most, canon_int(c, 2));
  Value least = canon_2(c, OP_SUB, canon_int(c, 0), most);
  return canon_2(c, OP_MAX, least, canon_2(c, OP_MIN, q, most));
}

// v as a limit of index k, which is in 0 .. extent: one beyond says as much
// as anything farther, and is as small as k is.
static Value near(Canon *c, Value v, Value k, bool least) {
  const Op *op = ir_def(c->f, k);
  if (!op || op->code != OP_INDEX) return v;
  Dim end = c->f->axes.at[ir_attr_i(op, AT_AXIS, 0)].extent;
  Type t = type_scalar(DT_I64);
  IrAttr dim = attr_i(AT_DIM, end);
  CanonOp last = {OP_DIM, NULL, 0, &dim, 1, &t};
  int64_t lo, hi, n = INT64_MAX;
  canon_bounds(c, v, &lo, &hi);
  if (hi == INT64_MAX && dim_is_const(&c->m->dims, end, &n))
    v = canon_2(c, OP_MIN, v, canon_int(c, n));
  else if (hi == INT64_MAX) v = canon_2(c, OP_MIN, v, canon_emit(c, last));
  return at_least(c, v, least ? 0 : -1);
}

// x >= v (or <=), what does not vary with keys on one side.
static Value limit(Canon *c, Value x, Value v, bool least) {
  CanonLin d, key = {.dim = dim_const(&c->m->dims, 0)}, rest = key;
  if (!canon_lin(c, x, 0, &d)) return 0;
  rest.dim = d.dim;
  for (uint32_t i = 0; i < d.n; i++) {
    CanonLin *to = key_axis(c, d.t[i].v) >= 0 ? &key : &rest;
    to->t[to->n++] = d.t[i];
  }
  Value k = canon_lin_value(c, &key);
  v = canon_2(c, OP_SUB, v, canon_lin_value(c, &rest));
  v = near(c, v, k, least);
  return least ? canon_2(c, OP_LE, v, k) : canon_2(c, OP_LE, k, v);
}

static Value both(Canon *c, Value x, Value y) {
  return x && y ? canon_2(c, OP_AND, x, y) : x ? x : y;
}

static Value choose(Canon *c, Value up, Value x, Value y) {
  Value args[] = {up, x, y};
  return canon_make(c, OP_SELECT, args, 3, NULL, 0);
}

// first n <= x <= last n + n - 1 where n > 0; where n < 0
// last n + n + 1 <= x <= first n.
static Value limits_of_x(Canon *c, Limits *l) {
  int64_t lo, hi;
  canon_bounds(c, l->n, &lo, &hi);
  Value one = canon_int(c, 1), up = 0, r = 0, a = 0, b = 0, far[2];
  if (lo == INT64_MIN || hi == INT64_MAX)
    l->n = at_most(c, at_least(c, l->n, -FAR), FAR);
  if (lo < 1) up = canon_2(c, OP_LT, canon_int(c, 0), l->n);
  for (int i = 0; i < 2; i++) far[i] = canon_int(c, i ? 2 * FAR : -2 * FAR);
  bool equal = l->first == l->last;
  if (l->first) a = canon_2(c, OP_MUL, comparable(c, l->first, l), l->n);
  if (l->last)
    b = equal ? a : canon_2(c, OP_MUL, comparable(c, l->last, l), l->n);
  Value end = b ? canon_2(c, OP_ADD, b, l->n) : 0;
  Value least = a, most = b ? canon_2(c, OP_SUB, end, one) : 0;
  if (up) {
    Value low = b ? canon_2(c, OP_ADD, end, one) : far[0];
    Value high = a ? a : far[1];
    least = choose(c, up, a ? a : far[0], low);
    most = choose(c, up, b ? most : far[1], high);
  }
  if (least && !(r = limit(c, l->x, least, true))) return 0;
  return most ? both(c, r, limit(c, l->x, most, false)) : r;
}

static Value quotient_limits(Canon *c, OpCode op, const CanonLin *d, int i) {
  const Op *div = ir_def(c->f, d->t[i].v);
  bool minus = d->t[i].c > 0;  // quotient + rest op 0: quotient op -rest
  CanonLin rest = without(c, d, i, minus);
  Limits l = {.x = div->args[0], .by = div->args[1], .n = div->args[1]};
  if (ir_type(c->f, l.n)->dtype != DT_I64 || !rest.dim) return 0;
  int64_t step = op == OP_LT ? minus ? -1 : 1 : 0;
  rest.dim =
      dim_bin(&c->m->dims, DIM_ADD, rest.dim, dim_const(&c->m->dims, step));
  if (!rest.dim) return 0;
  Value at = canon_lin_value(c, &rest);
  if (op == OP_EQ || op == OP_NE || !minus) l.first = at;
  if (op == OP_EQ || op == OP_NE || minus) l.last = at;
  Value r = limits_of_x(c, &l);
  return r && op == OP_NE ? canon_1(c, OP_NOT, r) : r;
}

// |x| <= r where x has a quotient of keys: two comparisons.
static Value distance(Canon *c, OpCode op, const Value *args) {
  const Op *abs = ir_def(c->f, args[0]);
  CanonLin d;
  if ((op != OP_LT && op != OP_LE) || !abs || abs->code != OP_ABS) return 0;
  if (!canon_lin(c, abs->args[0], 0, &d) || quotient_of_keys(c, &d) < 0)
    return 0;
  Value minus = canon_2(c, OP_SUB, canon_int(c, 0), args[1]);
  Value low = op == OP_LT ? canon_2(c, OP_LT, minus, abs->args[0])
                          : canon_2(c, OP_LE, minus, abs->args[0]);
  return canon_2(c, OP_AND, low, canon_2(c, op, abs->args[0], args[1]));
}

Value canon_limits(Canon *c, OpCode op, const Value *args) {
  CanonLin d;
  Value r = distance(c, op, args);
  if (r) return r;
  if (!canon_lin(c, args[0], args[1], &d)) return 0;
  int i = quotient_of_keys(c, &d);
  return i < 0 ? 0 : quotient_limits(c, op, &d, i);
}
