// Reductions and dots.
//   reduce sum (mul(a, b)), free axes of each that the other lacks -> dot(a, b)
//   dot(cast(a: bf16 -> f32), b) -> dot(a, b)      products are exact anyway
//   sum over a vec axis of what does not vary with it -> a product
//   sum over keys of dot(matrix of each key, y) -> dot(sum of matrices, y)
//   a vector that is named by another axis, and back -> the vector
//     y = sum over i of (i == j ? x : 0)   sum over j of (i == j ? y : 0)  -> x
#include "passes/attn/canon.h"

enum { MAX_FACTORS = 16 };

static uint64_t axes_of(const Canon *c, Value v) {
  return ir_axes_of(c->f, v);
}

static uint64_t over_set(const IrAttr *over) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < over->n; i++)
    set |= (uint64_t)1 << (over->list[i] & 63);
  return set;
}

// v without widening casts of a 16-bit or smaller float.
static Value peel(const Canon *c, Value v) {
  const Op *op = ir_def(c->f, v);
  if (!op || op->code != OP_CAST) return v;
  DType from = ir_type(c->f, op->args[0])->dtype;
  DType to = ir_type(c->f, v)->dtype;
  bool small = dtype_is_float(from) && dtype_size(from) <= 2;
  return small && to == DT_F32 && canon_exact(from, to) ? op->args[0] : v;
}

// ---------------------------------------------------------------- dot
Value canon_dot(Canon *c, const Value *args, const IrAttr *attrs, uint32_t n) {
  const IrAttr *over = canon_attr(attrs, n, AT_OVER);
  Value in[2] = {peel(c, args[0]), peel(c, args[1])};
  uint64_t lost = over_set(over) & ~axes_of(c, in[0]) & ~axes_of(c, in[1]);
  for (uint32_t i = 0; i < over->n; i++) {
    uint32_t axis = (uint32_t)over->list[i];
    bool none = lost & (uint64_t)1 << axis;
    in[0] =
        none ? canon_spread(c, in[0], axis)
             : ir_cover(c->b, in[0], c->domains.of[axis] & ~axes_of(c, in[1]));
  }
  if (in[0] == args[0] && in[1] == args[1]) return 0;
  return canon_emit(c, (CanonOp){OP_DOT, in, 2, attrs, n, NULL});
}

// ---------------------------------------------------------------- products
static uint32_t factors(const Canon *c, Value v, Value *out, uint32_t n) {
  const Op *op = ir_def(c->f, v);
  if (!op || op->code != OP_MUL || n + 1 >= MAX_FACTORS) {
    if (n < MAX_FACTORS) out[n] = v;
    return n + 1;
  }
  n = factors(c, op->args[0], out, n);
  return factors(c, op->args[1], out, n);
}

static Value product(Canon *c, const Value *f, uint32_t n, uint32_t skip) {
  Value r = 0;
  for (uint32_t i = 0; i < n; i++)
    if (i != skip) r = r ? canon_2(c, OP_MUL, r, f[i]) : f[i];
  return r;
}

// The factor to stand alone: it and the product of the others have free axes
// that the other lacks. n if there is none.
static uint32_t lone_factor(const Canon *c, const Value *f, uint32_t n,
                            uint64_t over) {
  for (uint32_t i = n; i-- > 0;) {
    uint64_t rest = 0, own = axes_of(c, f[i]) & ~over;
    for (uint32_t j = 0; j < n; j++)
      if (j != i) rest |= axes_of(c, f[j]) & ~over;
    if ((own & ~rest) && (rest & ~own)) return i;
  }
  return n;
}

static bool vec_axes_only(const Canon *c, const IrAttr *over) {
  for (uint32_t i = 0; i < over->n; i++)
    if (c->f->axes.at[over->list[i]].role != AX_VEC) return false;
  return true;
}

// Takes factors without any of the axes out of a sum over vec axes.
static Value take_out(Canon *c, Value *f, uint32_t *n, uint64_t over) {
  Value out = 0;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < *n; i++) {
    if (axes_of(c, f[i]) & over) f[kept++] = f[i];
    else out = out ? canon_2(c, OP_MUL, out, f[i]) : f[i];
  }
  *n = kept;
  return out;
}

static Value sum_of_product(Canon *c, Value x, const IrAttr *over) {
  Value f[MAX_FACTORS], out = 0, r;
  DType t = ir_type(c->f, x)->dtype;
  uint32_t n = factors(c, x, f, 0);
  uint64_t set = over_set(over);
  if (!dtype_is_float(t) || n < 2 || n > MAX_FACTORS) return 0;
  if (vec_axes_only(c, over)) out = take_out(c, f, &n, set);
  uint32_t alone = n > 1 ? lone_factor(c, f, n, set) : n;
  if (alone < n && t == DT_F32) {
    Value in[2] = {product(c, f, n, alone), f[alone]};
    if (alone == 0) in[0] = f[0], in[1] = product(c, f, n, 0);
    r = canon_make(c, OP_DOT, in, 2, over, 1);
  } else {
    if (!out || !n) return 0;
    IrAttr attrs[] = {attr_i(AT_KIND, RK_SUM), *over};
    Value in = product(c, f, n, n);
    r = canon_make(c, OP_REDUCE, &in, 1, attrs, 2);
  }
  return out ? canon_2(c, OP_MUL, out, r) : r;
}

// ---------------------------------------------------------------- matrices
static bool is_matrix(const Canon *c, Value v) {
  uint64_t vecs = axes_of(c, v) & ir_axes_with(c->f, AX_VEC);
  return vecs & (vecs - 1);
}

// Has each task the same of these keys, whatever it has but v?
static bool goes_over(const Canon *c, uint64_t keys, Value v) {
  for (uint64_t left = keys; left; left &= left - 1)
    if (c->domains.of[__builtin_ctzll(left)] & ~axes_of(c, v)) return false;
  return !(keys & ~axes_of(c, v)) && !(keys & ~ir_axes_with(c->f, AX_KEY));
}

// A product that was rounded to t, of factors that are.
static Value of_rounded(Canon *c, Value x, DType t) {
  const Op *op = ir_def(c->f, x);
  if (!op || op->code != OP_MUL)
    return canon_cast(c, canon_cast(c, x, t), ir_type(c->f, x)->dtype);
  Value in[2] = {op->args[0], op->args[1]};
  Value first = of_rounded(c, in[0], t), second = of_rounded(c, in[1], t);
  return canon_2(c, OP_MUL, first, second);
}

// sum of dot(m, y) over keys that y does not vary with: m is a matrix of each,
// as the gradient of one that is a sum over other keys, and rounded before y
// multiplies it; so is the sum of all.
static Value sum_of_matrices(Canon *c, Value x, const IrAttr *attrs,
                             uint32_t n) {
  const Op *dot = ir_def(c->f, x);
  uint64_t keys = over_set(canon_attr(attrs, n, AT_OVER));
  for (uint32_t i = 0; dot && dot->code == OP_DOT && i < 2; i++) {
    Value in[2] = {dot->args[0], dot->args[1]}, m = in[i];
    if (keys & axes_of(c, in[1 - i]) || !is_matrix(c, m) ||
        !goes_over(c, keys, m))
      continue;
    DType t = ir_type(c->f, m)->dtype;
    const Op *cast = t == DT_F32 ? NULL : ir_def(c->f, m);
    if (t != DT_F32 && (!cast || cast->code != OP_CAST)) continue;
    if (cast) m = of_rounded(c, cast->args[0], t);
    in[i] = canon_cast(c, canon_make(c, OP_REDUCE, &m, 1, attrs, n), t);
    return canon_make(c, OP_DOT, in, 2, dot->attrs, dot->nattrs);
  }
  return 0;
}

// ---------------------------------------------------------------- names
// x of `i == j ? x : 0`, which is summed over axis i: x[j], by the other name.
static Value renamed(const Canon *c, Value v, uint32_t over, uint32_t *to) {
  const Op *op = ir_def(c->f, v);
  double zero;
  if (!op || op->code != OP_SELECT ||
      !ir_const_value(c->f, op->args[2], &zero) || zero != 0)
    return 0;
  const Op *eq = ir_def(c->f, op->args[0]);
  if (!eq || eq->code != OP_EQ) return 0;
  int i = ir_index_axis(c->f, eq->args[0]);
  int j = ir_index_axis(c->f, eq->args[1]);
  if (i < 0 || j < 0 || i == j || (i != (int)over && j != (int)over)) return 0;
  *to = i == (int)over ? (uint32_t)j : (uint32_t)i;
  const Axis *a = &c->f->axes.at[over], *b = &c->f->axes.at[*to];
  bool alike = a->role == AX_VEC && b->role == AX_VEC && a->extent == b->extent;
  return alike ? op->args[1] : 0;
}

// What a vector was before it got another name, which it loses again.
static Value named_back(const Canon *c, Value x, const IrAttr *over) {
  uint32_t i, j;
  if (over->n != 1) return 0;
  Value y = renamed(c, x, (uint32_t)over->list[0], &i);
  const Op *op = y ? ir_def(c->f, y) : NULL;
  if (!op || op->code != OP_REDUCE || ir_attr_i(op, AT_KIND, -1) != RK_SUM)
    return 0;
  const IrAttr *from = ir_attr(op, AT_OVER);
  if (from->n != 1 || from->list[0] != i) return 0;
  Value was = renamed(c, op->args[0], i, &j);
  return was && j == (uint32_t)over->list[0] &&
                 !type_has_axis(ir_type(c->f, was), j)
             ? was
             : 0;
}

// ---------------------------------------------------------------- reduce
// Over axes that x does not vary with.
static Value constant_over(Canon *c, RKind k, Value x, uint32_t axis,
                           Value *times) {
  const Axis *a = &c->f->axes.at[axis];
  int64_t lo, hi;
  dim_bounds(&c->m->dims, a->extent, &lo, &hi);
  if (a->role != AX_VEC || lo < 1 || k == RK_PROD)
    return canon_spread(c, x, axis);
  if (k != RK_SUM) return x;
  IrAttr attr = attr_i(AT_DIM, a->extent);
  Type t = type_scalar(DT_I64);
  Value n = canon_emit(c, (CanonOp){OP_DIM, NULL, 0, &attr, 1, &t});
  if (dim_is_const(&c->m->dims, a->extent, &lo)) n = canon_int(c, lo);
  n = canon_cast(c, n, ir_type(c->f, x)->dtype);
  *times = *times ? canon_2(c, OP_MUL, *times, n) : n;
  return x;
}

Value canon_reduce(Canon *c, Value x, const IrAttr *attrs, uint32_t n) {
  const IrAttr *over = canon_attr(attrs, n, AT_OVER);
  RKind k = (RKind)canon_attr(attrs, n, AT_KIND)->i;
  int64_t list[64];
  uint32_t kept = 0;
  Value times = 0, y = x;
  for (uint32_t i = 0; i < over->n; i++) {
    uint32_t axis = (uint32_t)over->list[i];
    if (!type_has_axis(ir_type(c->f, x), axis))
      y = constant_over(c, k, y, axis, &times);
    else y = ir_cover(c->b, y, c->domains.of[axis]);
    if (type_has_axis(ir_type(c->f, y), axis)) list[kept++] = axis;
  }
  if (kept == over->n && y == x) {
    Value was = k == RK_SUM ? named_back(c, x, over) : 0;
    if (!was && k == RK_SUM) was = sum_of_matrices(c, x, attrs, n);
    if (was) return was;
    return k == RK_SUM ? sum_of_product(c, x, over) : 0;
  }
  if (kept) {
    IrAttr now[] = {attr_i(AT_KIND, k), attr_list(AT_OVER, list, kept)};
    y = canon_make(c, OP_REDUCE, &y, 1, now, 2);
  }
  return times ? canon_2(c, OP_MUL, y, times) : y;
}
