// Lowering of contractions, and where their operands round:
//   - the computed weights of sum(k: p * V[..]), or of sum(k: p * bf16(..)),
//     round to V's type if that has 16 or more bits, else to Q's, if that is of 8 bits too to bf16,
//     unless @p_type says otherwise;
//   - other computed operands, also the vectors that weights multiply, round to
//     the 16-bit type of the tensor they came from, if there is one; what
//     depends on a state does not round, nor vectors beside @p_type.
#include "frontend/lower.h"

// ---------------------------------------------------------------- sources
typedef struct Source16 {
  const Fx *x;
  Map seen;
  int max_size;  // bytes of the widest type looked for
  DType found;   // first tensor read, DT_NONE if none
  bool state;    // depends on a state
} Source16;

static void search(Source16 *s, Value v) {
  uint64_t dummy;
  if (map_get(&s->seen, v, &dummy)) return;
  map_put(&s->seen, v, 1);
  const Func *f = s->x->f;
  const Op *op = ir_def(f, v);
  if (!op) {
    if (ir_info(f, v)->region != f->body) s->state = true;
    return;
  }
  if (op->code == OP_RECUR) s->state = true;
  if (op->code == OP_LOAD) {
    DType t = ir_type(f, v)->dtype;
    if (dtype_is_float(t) && dtype_size(t) <= s->max_size &&
        s->found == DT_NONE)
      s->found = t;
    return;  // what an index depends on is not data
  }
  for (uint32_t i = 0; i < op->nargs; i++) search(s, op->args[i]);
}

static Source16 source_of(const Fx *x, Value v, int max_size) {
  Source16 s = {.x = x, .found = DT_NONE, .max_size = max_size};
  s.seen.arena = x->low->a;
  search(&s, v);
  return s;
}

bool low_has_state(const Fx *x, Value v) {
  return x->states.n && source_of(x, v, 2).state;
}

// v without a widening cast that this lowering put there.
static Value peel(const Fx *x, Value v) {
  const Op *op = ir_def(x->f, v);
  uint64_t dummy;
  if (!op || op->code != OP_CAST || map_get(&x->explicit_casts, v, &dummy))
    return v;
  DType from = ir_type(x->f, op->args[0])->dtype;
  DType to = ir_type(x->f, v)->dtype;
  bool widens = dtype_is_float(from) && dtype_is_float(to) &&
                dtype_size(from) < dtype_size(to);
  return widens ? op->args[0] : v;
}

static bool is_load(const Fx *x, Value v) {
  const Op *op = ir_def(x->f, v);
  return op && op->code == OP_LOAD;
}

static Val rounded(Fx *x, Val v) {
  v.v = peel(x, v.v);
  if (v.weak) v = val_cast(x, v, DT_F32);
  DType t = low_dtype_of(x, v);
  if (!dtype_is_float(t)) return val_cast(x, v, DT_F32);
  if (dtype_size(t) <= 2 || is_load(x, v.v)) return v;
  Source16 s = source_of(x, v.v, 2);
  if (s.found == DT_NONE || s.state || dtype_size(s.found) < 2) return v;
  v.v = ir_cast(&x->b, s.found, v.v);
  return v;
}

// ---------------------------------------------------------------- products
// v with `over` for axis p, and others for those that are used.
static Val apart(Fx *x, Val v, uint32_t p, uint32_t over, uint64_t used) {
  uint32_t to[MAX_RANK];
  for (uint32_t i = 0; i < v.rank; i++) {
    to[i] = i == p ? over : v.axis[i];
    if (i == p || to[i] == NO_AXIS) continue;
    if (used & (uint64_t)1 << to[i]) to[i] = low_vec_axis(x, v.dim[i], used);
    used |= (uint64_t)1 << to[i];
  }
  return val_rename(x, v, to);
}

static uint64_t own_axes(const Val *v) {
  uint64_t used = 0;
  for (uint32_t i = 0; i < v->rank; i++)
    if (v->axis[i] != NO_AXIS) used |= (uint64_t)1 << v->axis[i];
  return used;
}

// Contracts axis pa of a with axis pb of b. A state keeps its axes: at other
// coordinates it is a sum.
static Val contract(Fx *x, Val a, uint32_t pa, Val b, uint32_t pb, Span at) {
  bool state = low_has_state(x, b.v) && !low_has_state(x, a.v);
  a = rounded(x, a);
  b = rounded(x, b);
  uint32_t over = state ? b.axis[pb] : a.axis[pa];
  if (a.axis[pa] == NO_AXIS || b.axis[pb] == NO_AXIS) {
    low_error(x->low, at, "an axis of extent 1 cannot be contracted");
    return val_fail(x);
  }
  if (state) a = apart(x, a, pa, over, own_axes(&b));
  else b = apart(x, b, pb, over, own_axes(&a));
  a.v = ir_spread(&x->b, a.v, over);
  Val r = {.v = ir_dot(&x->b, a.v, b.v, &over, 1)};
  for (int side = 0; side < 2; side++) {
    const Val *v = side ? &b : &a;
    for (uint32_t i = 0; i < v->rank; i++) {
      if (i == (side ? pb : pa)) continue;
      r.dim[r.rank] = v->dim[i];
      r.axis[r.rank++] = v->axis[i];
    }
  }
  return r;
}

// Last axis of a with the first of b; dot of two vectors is a case of it.
Val low_matmul(Fx *x, Val a, Val b, Span at) {
  if (!a.rank || !b.rank) {
    low_error(x->low, at, "a contraction needs vectors");
    return val_fail(x);
  }
  return contract(x, a, a.rank - 1u, b, 0, at);
}

Val low_outer(Fx *x, Val a, Val b) {
  a = val_float(x, rounded(x, a));
  b = val_float(x, rounded(x, b));
  Val v[2] = {a, b};
  DType t = low_join(x, v, 2);
  a = val_cast(x, a, t);
  b = val_cast(x, b, t);
  if (a.axis[0] == b.axis[0]) {
    uint32_t to = low_vec_axis(x, b.dim[0], val_axes(x, a.v));
    b = val_rename(x, b, &to);
  }
  Val r = {.v = ir_2(&x->b, OP_MUL, a.v, b.v), .rank = 2};
  r.dim[0] = a.dim[0], r.axis[0] = a.axis[0];
  r.dim[1] = b.dim[0], r.axis[1] = b.axis[0];
  return r;
}

// ---------------------------------------------------------------- sums
enum { MAX_FACTORS = 16 };

static uint32_t factors(const Fx *x, Value v, Value *out, uint32_t n) {
  const Op *op = ir_def(x->f, v);
  if (n && op && op->code == OP_MUL && n < MAX_FACTORS) {
    n = factors(x, op->args[0], out, n);
    return n ? factors(x, op->args[1], out, n) : 0;
  }
  if (!n || n > MAX_FACTORS) return 0;
  out[n - 1] = v;
  return n + 1;
}

// The factor over `axis` that is a tensor load, or of 16 bits as its program
// says, with a vec axis that no other factor has; n if there is none.
static uint32_t matrix_factor(const Fx *x, const Value *v, uint32_t n,
                              uint32_t axis) {
  for (uint32_t i = 0; i < n; i++) {
    Value load = peel(x, v[i]);
    const Type *t = ir_type(x->f, load);
    bool stated = is_load(x, load) || dtype_is_float16(t->dtype);
    if (!stated || !dtype_is_float(t->dtype) || !type_has_axis(t, axis))
      continue;
    uint64_t others = 0;
    for (uint32_t j = 0; j < n; j++)
      if (j != i) others |= val_axes(x, v[j]);
    for (uint32_t j = 0; j < t->n; j++)
      if (x->f->axes.at[t->axis[j]].role == AX_VEC &&
          !(others & (uint64_t)1 << t->axis[j]))
        return i;
  }
  return n;
}

// @p_type(f32) and the like; DT_NONE: not given.
static DType p_type(const Fx *x) {
  const Attr *a = low_attr(x, "p_type");
  const Expr *e = a && a->args.n ? a->args.at[0].value : NULL;
  DType t = DT_NONE;
  if (!e || !e->name) return DT_NONE;
  return dtype_by_name(e->name, (uint32_t)strlen(e->name), &t) ? t : DT_NONE;
}

static Value round_weights(Fx *x, Value p, DType v_type) {
  DType t = p_type(x), now = ir_type(x->f, p)->dtype;
  if (t == DT_NONE) {
    t = v_type;
    if (dtype_size(t) < 2) t = source_of(x, p, 2).found;
    if (dtype_size(t) == 1) t = DT_BF16;
  }
  if (t == DT_NONE || dtype_size(t) >= dtype_size(now)) return p;
  return ir_cast(&x->b, t, p);
}

static uint64_t vec_axes(const Fx *x, Value v) {
  return val_axes(x, v) & ir_axes_with(x->f, AX_VEC);
}

// Is op a vector's elements by another axis of vectors?
static bool is_renaming(const Fx *x, const Op *op) {
  if (!op || op->code != OP_AT) return false;
  for (uint32_t i = 1; i < op->nargs; i++)
    if (!vec_axes(x, op->args[i])) return false;
  return true;
}

// v at the coordinates of op, as far as it varies with their axes.
static Value renamed(Fx *x, const Op *op, Value v) {
  const IrAttr *axes = ir_attr(op, AT_AXES);
  uint32_t from[MAX_RANK], n = 0;
  Value at[MAX_RANK];
  for (uint32_t i = 0; i < axes->n; i++)
    if (type_has_axis(ir_type(x->f, v), (uint32_t)axes->list[i])) {
      from[n] = (uint32_t)axes->list[i];
      at[n++] = op->args[i + 1];
    }
  return n ? low_at(x, v, n, from, at) : v;
}

// The product of the factors of v that are vectors, or of those that are none;
// 0 if there is none. What has factors of one kind stays the value it is.
static Value product_of(Fx *x, Value v, bool vectors) {
  const Op *op = ir_def(x->f, v);
  Value in[2] = {0};
  if (is_renaming(x, op)) {
    in[0] = product_of(x, op->args[0], vectors);
    return in[0] == op->args[0] ? v : in[0] ? renamed(x, op, in[0]) : 0;
  }
  if (!op || op->code != OP_MUL)
    return (vec_axes(x, v) != 0) == vectors ? v : 0;
  for (int i = 0; i < 2; i++) in[i] = product_of(x, op->args[i], vectors);
  if (in[0] == op->args[0] && in[1] == op->args[1]) return v;
  return in[0] && in[1] ? ir_2(&x->b, OP_MUL, in[0], in[1])
                        : (in[0] ? in[0] : in[1]);
}

// sum over `axis` of weights times vectors that are computed of 16-bit tensors:
// both round to their type.
static bool computed_vectors(Fx *x, Val *body, uint32_t axis) {
  if (!vec_axes(x, body->v) || p_type(x) != DT_NONE) return false;
  Value rest = product_of(x, body->v, false);
  if (!rest || !type_has_axis(ir_type(x->f, rest), axis)) return false;
  Value made = product_of(x, body->v, true);
  if (!type_has_axis(ir_type(x->f, made), axis)) return false;
  Source16 s = source_of(x, made, 2);
  if (s.state || low_has_state(x, rest) || !dtype_is_float16(s.found))
    return false;
  if (is_load(x, peel(x, rest))) rest = peel(x, rest);
  else rest = round_weights(x, rest, s.found);
  if (dtype_size(ir_type(x->f, rest)->dtype) > 2) return false;
  made = ir_cast(&x->b, s.found, made);
  rest = ir_cover(&x->b, rest, x->domains.of[axis] & ~val_axes(x, made));
  body->v = ir_dot(&x->b, rest, made, &axis, 1);
  body->weak = false;
  return true;
}

// sum over key axis `axis` of body, if it is weights times a matrix; else
// false.
bool low_weighted_sum(Fx *x, Val *body, uint32_t axis) {
  Value f[MAX_FACTORS + 1], rest = 0;
  uint32_t n = factors(x, body->v, f, 1);
  if (n < 3) return false;
  n--;
  uint32_t m = matrix_factor(x, f, n, axis);
  if (m == n) return computed_vectors(x, body, axis);
  Value load = peel(x, f[m]);
  if (n == 2 && is_load(x, peel(x, f[1 - m]))) {
    rest = peel(x, f[1 - m]);
  } else {
    for (uint32_t i = 0; i < n; i++)
      if (i != m) rest = rest ? ir_2(&x->b, OP_MUL, rest, f[i]) : f[i];
    rest = round_weights(x, rest, ir_type(x->f, load)->dtype);
  }
  uint64_t missing = x->domains.of[axis] & ~val_axes(x, load);
  rest = ir_cover(&x->b, rest, missing);
  body->v = ir_dot(&x->b, rest, load, &axis, 1);
  body->weak = false;
  return true;
}
