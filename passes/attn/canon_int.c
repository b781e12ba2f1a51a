// Integers: sums are kept as  c1*x1 + .. + dim, in one order; quotients and
// remainders by constants are split; comparisons that the bounds of dims and
// axes decide become constants.
#include "passes/attn/canon.h"

enum { MAX_DEPTH = 24 };

typedef CanonTerm Term;
typedef CanonLin Lin;

static DimTab *dims(const Canon *c) {
  return &c->m->dims;
}

static bool lin(const Canon *c, Value v, int64_t k, Lin *out, int depth);

static bool add_dim(const Canon *c, Lin *out, Dim d, int64_t k) {
  Dim scaled = dim_bin(dims(c), DIM_MUL, dim_const(dims(c), k), d);
  out->dim = dim_bin(dims(c), DIM_ADD, out->dim, scaled);
  return out->dim != DIM_NONE;
}

static bool add_term(Lin *out, Value v, int64_t k) {
  if (k == INT64_MIN) return false;
  if (k == 0) return true;
  for (uint32_t i = 0; i < out->n; i++) {
    if (out->t[i].v != v) continue;
    if (__builtin_add_overflow(out->t[i].c, k, &out->t[i].c) ||
        out->t[i].c == INT64_MIN)
      return false;
    if (out->t[i].c) return true;
    for (uint32_t j = i; j + 1 < out->n; j++) out->t[j] = out->t[j + 1];
    out->n--;
    return true;
  }
  if (out->n == MAX_TERMS) return false;
  out->t[out->n++] = (Term){v, k};
  return true;
}

static bool const_int(const Canon *c, Value v, int64_t *k) {
  const Op *op = ir_def(c->f, v);
  if (!op || op->code != OP_CONST || !ir_attr(op, AT_IVALUE)) return false;
  *k = ir_attr_i(op, AT_IVALUE, 0);
  return ir_type(c->f, v)->dtype != DT_BOOL;
}

static bool lin_mul(const Canon *c, const Op *op, int64_t k, Lin *out,
                    int depth) {
  int64_t f;
  for (int i = 0; i < 2; i++)
    if (const_int(c, op->args[i], &f))
      return !__builtin_mul_overflow(k, f, &f) &&
             lin(c, op->args[1 - i], f, out, depth + 1);
  return add_term(out, op->res[0], k);
}

// out += k * v.
static bool lin(const Canon *c, Value v, int64_t k, Lin *out, int depth) {
  const Op *op = ir_def(c->f, v);
  int64_t f;
  if (ir_type(c->f, v)->dtype != DT_I64 || depth > MAX_DEPTH) return false;
  if (!op) return add_term(out, v, k);
  switch (op->code) {
  case OP_CONST:
    return const_int(c, v, &f) && add_dim(c, out, dim_const(dims(c), f), k);
  case OP_DIM: return add_dim(c, out, (Dim)ir_attr_i(op, AT_DIM, 0), k);
  case OP_ADD:
    return lin(c, op->args[0], k, out, depth + 1) &&
           lin(c, op->args[1], k, out, depth + 1);
  case OP_SUB:
    return k != INT64_MIN && lin(c, op->args[0], k, out, depth + 1) &&
           lin(c, op->args[1], -k, out, depth + 1);
  case OP_NEG: return k != INT64_MIN && lin(c, op->args[0], -k, out, depth + 1);
  case OP_MUL: return lin_mul(c, op, k, out, depth);
  default: return add_term(out, v, k);
  }
}

static bool lin_of(const Canon *c, Value v, Lin *out) {
  *out = (Lin){.dim = dim_const(dims(c), 0)};
  return lin(c, v, 1, out, 0);
}

// ---------------------------------------------------------------- code
static Value dim_value(Canon *c, Dim d) {
  int64_t k;
  if (dim_is_const(dims(c), d, &k)) return canon_int(c, k);
  IrAttr attr = attr_i(AT_DIM, d);
  Type t = type_scalar(DT_I64);
  return canon_emit(c, (CanonOp){OP_DIM, NULL, 0, &attr, 1, &t});
}

static Value op2(Canon *c, OpCode op, Value x, Value y) {
  Value args[] = {x, y};
  return canon_emit(c, (CanonOp){.code = op, .args = args, .nargs = 2});
}

static Value scaled(Canon *c, Value v, int64_t k) {
  return k == 1 ? v : op2(c, OP_MUL, v, canon_int(c, k));
}

static bool is_index(const Canon *c, Value v) {
  const Op *op = ir_def(c->f, v);
  return op && op->code == OP_INDEX;
}

// r plus the terms that are indices, or plus those that are not; positive ones
// first. 0 if there are none.
static Value terms_value(Canon *c, const Lin *l, bool index, Value r) {
  for (int neg = 0; neg < 2; neg++)
    for (uint32_t i = 0; i < l->n; i++) {
      int64_t k = l->t[i].c;
      if (is_index(c, l->t[i].v) != index || (k < 0) != neg) continue;
      Value x = scaled(c, l->t[i].v, neg ? -k : k);
      if (!r && neg) r = canon_int(c, 0);
      r = r ? op2(c, neg ? OP_SUB : OP_ADD, r, x) : x;
    }
  return r;
}

static Value add_offset(Canon *c, Value r, Dim d) {
  int64_t lo, hi, k;
  if (dim_is_const(dims(c), d, &k) && k == 0) return r;
  dim_bounds(dims(c), d, &lo, &hi);
  if (hi > 0) return op2(c, OP_ADD, r, dim_value(c, d));
  Dim minus = dim_sub(dims(c), dim_const(dims(c), 0), d);
  return op2(c, OP_SUB, r, dim_value(c, minus));
}

static bool any_positive(const Canon *c, const Lin *l, bool index) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->t[i].c > 0 && is_index(c, l->t[i].v) == index) return true;
  return false;
}

// (indices) + (other terms + dim): what does not vary with the indices stays
// together.
static Value lin_value(Canon *c, const Lin *l) {
  Value rest = 0;
  if (!l->n) return dim_value(c, l->dim);
  bool others = false;
  for (uint32_t i = 0; i < l->n; i++)
    others = others || !is_index(c, l->t[i].v);
  if (others && any_positive(c, l, false)) {
    rest = terms_value(c, l, false, 0);
    rest = add_offset(c, rest, l->dim);
  } else if (others) {
    rest = terms_value(c, l, false, dim_value(c, l->dim));
  }
  if (any_positive(c, l, true)) {
    Value r = terms_value(c, l, true, 0);
    return others ? op2(c, OP_ADD, r, rest) : add_offset(c, r, l->dim);
  }
  if (!others) rest = dim_value(c, l->dim);
  return terms_value(c, l, true, rest);
}

// ---------------------------------------------------------------- bounds
typedef struct Range {
  int64_t lo, hi;  // hi >= DIM_UNBOUNDED or lo <= -that: unknown
} Range;

#define FAR ((int64_t)1 << 60)

static bool bounded(Range r) {
  return r.lo > -DIM_UNBOUNDED && r.hi < DIM_UNBOUNDED;
}

static Range range(const Canon *c, Value v, int depth);

static Range lin_range(const Canon *c, const Lin *l, int depth);

static Range op_range(const Canon *c, const Op *op, int depth) {
  Range unknown = {-FAR, FAR}, a, b;
  int64_t k;
  switch (op->code) {
  case OP_MOD:
    if (!const_int(c, op->args[1], &k) || k <= 0) return unknown;
    return (Range){0, k - 1};
  case OP_FLOORDIV:
    a = range(c, op->args[0], depth);
    if (!const_int(c, op->args[1], &k) || k <= 0 || !bounded(a)) return unknown;
    return (Range){dim_floordiv(a.lo, k), dim_floordiv(a.hi, k)};
  case OP_MIN:
  case OP_MAX:
  case OP_SELECT: break;
  case OP_CAST:
    switch (ir_type(c->f, op->args[0])->dtype) {
    case DT_U8: return (Range){0, 255};
    case DT_I8: return (Range){-128, 127};
    case DT_U16: return (Range){0, 65535};
    case DT_I16: return (Range){-32768, 32767};
    case DT_U32: return (Range){0, UINT32_MAX};
    case DT_I32: return (Range){INT32_MIN, INT32_MAX};
    case DT_BOOL: return (Range){0, 1};
    default: return unknown;
    }
  default: return unknown;
  }
  bool choose = op->code == OP_SELECT;
  a = range(c, op->args[choose], depth);
  b = range(c, op->args[choose + 1], depth);
  bool low = choose || op->code == OP_MIN, high = choose || op->code == OP_MAX;
  Range r;
  r.lo = low == (a.lo < b.lo) ? a.lo : b.lo;
  r.hi = high == (a.hi > b.hi) ? a.hi : b.hi;
  return r;
}

static Range range(const Canon *c, Value v, int depth) {
  const Op *op = ir_def(c->f, v);
  Lin l;
  int64_t lo, hi;
  if (!op || depth > MAX_DEPTH) return (Range){-FAR, FAR};
  if (op->code == OP_INDEX) {
    dim_bounds(dims(c), c->f->axes.at[ir_attr_i(op, AT_AXIS, 0)].extent, &lo,
               &hi);
    return (Range){0, hi - 1};
  }
  if (lin_of(c, v, &l) && !(l.n == 1 && l.t[0].v == v))
    return lin_range(c, &l, depth + 1);
  return op_range(c, op, depth + 1);
}

// Bounds of l as dims, with indices at their ends; false if unknown.
static bool lin_bound(const Canon *c, const Lin *l, bool upper, int depth,
                      int64_t *out) {
  Lin end = {.dim = l->dim};
  for (uint32_t i = 0; i < l->n; i++) {
    const Op *op = ir_def(c->f, l->t[i].v);
    bool high = (l->t[i].c > 0) == upper;
    if (op && op->code == OP_INDEX) {
      Dim e = c->f->axes.at[ir_attr_i(op, AT_AXIS, 0)].extent;
      Dim last = dim_sub(dims(c), e, dim_const(dims(c), 1));
      if (high && !add_dim(c, &end, last, l->t[i].c)) return false;
      continue;
    }
    Range r = range(c, l->t[i].v, depth + 1);
    int64_t k = high ? r.hi : r.lo;
    if (k >= DIM_UNBOUNDED || k <= -DIM_UNBOUNDED) return false;
    if (__builtin_mul_overflow(k, l->t[i].c, &k)) return false;
    if (!add_dim(c, &end, dim_const(dims(c), k), 1)) return false;
  }
  int64_t lo, hi;
  dim_bounds(dims(c), end.dim, &lo, &hi);
  *out = upper ? hi : lo;
  return true;
}

static Range lin_range(const Canon *c, const Lin *l, int depth) {
  Range r = {-FAR, FAR};
  int64_t v;
  if (depth > MAX_DEPTH) return r;
  if (lin_bound(c, l, false, depth, &v)) r.lo = v;
  if (lin_bound(c, l, true, depth, &v)) r.hi = v;
  return r;
}

bool canon_lin(const Canon *c, Value x, Value y, CanonLin *out) {
  *out = (Lin){.dim = dim_const(dims(c), 0)};
  return lin(c, x, 1, out, 0) && (!y || lin(c, y, -1, out, 0));
}

Value canon_lin_value(Canon *c, const CanonLin *l) {
  return lin_value(c, l);
}

void canon_bounds(const Canon *c, Value v, int64_t *lo, int64_t *hi) {
  Range r = range(c, v, 0);
  *lo = r.lo > -DIM_UNBOUNDED ? r.lo : INT64_MIN;
  *hi = r.hi < DIM_UNBOUNDED ? r.hi : INT64_MAX;
}

// ---------------------------------------------------------------- division
// l = k * *quot + *rest, each term in one of them.
static bool split(const Canon *c, const Lin *l, int64_t k, Lin *quot,
                  Lin *rest) {
  Dim zero = dim_const(dims(c), 0);
  *quot = (Lin){.dim = zero};
  *rest = (Lin){.dim = zero};
  for (uint32_t i = 0; i < l->n; i++) {
    bool whole = l->t[i].c % k == 0;
    Lin *to = whole ? quot : rest;
    to->t[to->n++] = (Term){l->t[i].v, whole ? l->t[i].c / k : l->t[i].c};
  }
  Dim kd = dim_const(dims(c), k);
  int64_t v, d = dim_divisor(dims(c), l->dim);
  if (dim_is_const(dims(c), l->dim, &v)) {
    int64_t r = v % k < 0 ? v % k + k : v % k;
    quot->dim = dim_const(dims(c), (v - r) / k);
    rest->dim = dim_const(dims(c), r);
  } else if (d % k == 0) {
    quot->dim = dim_bin(dims(c), DIM_FLOORDIV, l->dim, kd);
  } else {
    rest->dim = l->dim;
  }
  return quot->dim && rest->dim;
}

static bool nothing(const Canon *c, const Lin *l) {
  int64_t v;
  return !l->n && dim_is_const(dims(c), l->dim, &v) && v == 0;
}

static Value dims_only(Canon *c, OpCode op, const Lin *a, const Lin *b) {
  static const struct {
    OpCode op;
    DimOp dim;
  } ops[] = {
      {OP_FLOORDIV, DIM_FLOORDIV}, {OP_MOD, DIM_MOD}, {OP_MIN, DIM_MIN},
      {OP_MAX, DIM_MAX},           {OP_MUL, DIM_MUL},
  };
  int64_t lo, hi;
  if (a->n || b->n) return 0;
  dim_bounds(dims(c), b->dim, &lo, &hi);
  if ((op == OP_FLOORDIV || op == OP_MOD) && lo < 1) return 0;
  for (uint32_t i = 0; i < sizeof ops / sizeof *ops; i++)
    if (ops[i].op == op) {
      Dim d = dim_bin(dims(c), ops[i].dim, a->dim, b->dim);
      return d ? dim_value(c, d) : 0;
    }
  return 0;
}

static Value divide(Canon *c, OpCode op, const Lin *a, Value x, Value y) {
  Lin quot, rest;
  int64_t k;
  if (!const_int(c, y, &k) || k <= 0 || !split(c, a, k, &quot, &rest)) return 0;
  Range r = lin_range(c, &rest, 0);
  bool inside = r.lo >= 0 && r.hi < k;
  if (op == OP_FLOORDIV) {
    if (inside) return lin_value(c, &quot);
    if (nothing(c, &quot)) return 0;
    Value part = op2(c, OP_FLOORDIV, lin_value(c, &rest), y);
    Lin sum = quot;
    return add_term(&sum, part, 1) ? lin_value(c, &sum) : 0;
  }
  if (inside) return lin_value(c, &rest);
  Value left = lin_value(c, &rest);
  return left == x ? 0 : op2(c, OP_MOD, left, y);
}

// ---------------------------------------------------------------- compare
static Value compare(Canon *c, OpCode op, const Value *args) {
  Lin d = {.dim = dim_const(dims(c), 0)};
  if (!lin(c, args[0], 1, &d, 0) || !lin(c, args[1], -1, &d, 0)) return 0;
  Range r = lin_range(c, &d, 0);
  switch (op) {
  case OP_LT:
    if (r.hi < 0) return canon_bool(c, true);
    return r.lo >= 0 ? canon_bool(c, false) : 0;
  case OP_LE:
    if (r.hi <= 0) return canon_bool(c, true);
    return r.lo > 0 ? canon_bool(c, false) : 0;
  default:
    if (r.lo == 0 && r.hi == 0) return canon_bool(c, op == OP_EQ);
    return r.lo > 0 || r.hi < 0 ? canon_bool(c, op == OP_NE) : 0;
  }
}

// min(a, b) or max(a, b) that the bounds of a - b decide.
static Value extremum(Canon *c, OpCode op, const Value *args) {
  Lin d = {.dim = dim_const(dims(c), 0)};
  if (!lin(c, args[0], 1, &d, 0) || !lin(c, args[1], -1, &d, 0)) return 0;
  Range r = lin_range(c, &d, 0);
  if (r.hi <= 0) return args[op == OP_MIN ? 0 : 1];
  return r.lo >= 0 ? args[op == OP_MIN ? 1 : 0] : 0;
}

static Value sum(Canon *c, OpCode op, const Value *args) {
  Lin l = {.dim = dim_const(dims(c), 0)};
  int64_t k;
  bool ok = false;
  if (op == OP_NEG) ok = lin(c, args[0], -1, &l, 0);
  else if (op == OP_ADD || op == OP_SUB)
    ok = lin(c, args[0], 1, &l, 0) &&
         lin(c, args[1], op == OP_ADD ? 1 : -1, &l, 0);
  else if (const_int(c, args[1], &k)) ok = lin(c, args[0], k, &l, 0);
  return ok ? lin_value(c, &l) : 0;
}

Value canon_integer(Canon *c, OpCode op, const Value *args, uint32_t n) {
  Lin a, b;
  for (uint32_t i = 0; i < n; i++)
    if (ir_type(c->f, args[i])->dtype != DT_I64) return 0;
  Value r = 0;
  switch (op) {
  case OP_LT:
  case OP_LE:
  case OP_EQ:
  case OP_NE:
    r = compare(c, op, args);
    return r ? r : canon_limits(c, op, args);
  case OP_ADD:
  case OP_SUB:
  case OP_NEG: return sum(c, op, args);
  case OP_MUL:
  case OP_FLOORDIV:
  case OP_MOD:
  case OP_MIN:
  case OP_MAX: break;
  default: return 0;
  }
  if (!lin_of(c, args[0], &a) || !lin_of(c, args[1], &b)) return 0;
  r = dims_only(c, op, &a, &b);
  if (!r && op == OP_MUL) r = sum(c, op, args);
  if (!r && (op == OP_MIN || op == OP_MAX)) r = extremum(c, op, args);
  if (!r && (op == OP_FLOORDIV || op == OP_MOD))
    r = divide(c, op, &a, args[0], args[1]);
  return r;
}
