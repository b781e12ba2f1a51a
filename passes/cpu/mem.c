// Tensors of the caller: addresses, range checks, lanes.
//
// A load reads 0 where an index is out of range, a store is dropped there. Two
// kinds of check: `ok`, the same for all lanes, becomes a branch; `mask` is
// per lane. Lanes whose offsets grow by a constant are one vector access if
// that constant is 1 (known at run time only), else a gather.
#include "passes/cpu/cpu.h"

#include <assert.h>

typedef struct Access {
  Value base;   // address of lane 0, or of the scalar
  Value step;   // offset between lanes, 0: lanes vary irregularly
  Value index;  // then: offsets of the lanes from base
  bool lanes;   // varies with the lanes
  bool unit;    // step may be 1
  bool pad;     // an index is not checked: lanes past the tile must be off
  Value ok;     // scalar bool, 0: always
  Value mask;   // lanes, 0: all
} Access;

static void both(Assign *as, Value *all, Value p) {
  int64_t n;
  if (cpu_is_int(as, p, &n) && n) return;
  *all = *all ? cpu_2(as, OP_AND, *all, p) : p;
}

// ---------------------------------------------------------------- lane shape
static bool lane_in(const Assign *as, Value v) {
  return as->pt.lane >= 0 &&
         type_has_axis(ir_type(as->f, v), (uint32_t)as->pt.lane);
}

bool cpu_affine_in_lane(const Assign *as, Value v) {
  if (!lane_in(as, v)) return true;
  if (as->forms[v] || !cpu_is_inline(as, v)) return false;
  const Op *op = ir_def(as->f, v);
  switch (op->code) {
  case OP_IOTA: return true;
  case OP_ADD:
  case OP_SUB:
    return cpu_affine_in_lane(as, op->args[0]) &&
           cpu_affine_in_lane(as, op->args[1]);
  case OP_MUL:
    return cpu_affine_in_lane(as, op->args[0]) &&
           cpu_affine_in_lane(as, op->args[1]) &&
           (!lane_in(as, op->args[0]) || !lane_in(as, op->args[1]));
  default: return false;
  }
}

// v = *base + lane * *coef.
static void affine(Assign *as, Value v, uint32_t c, Value *base, Value *coef) {
  if (!lane_in(as, v)) {
    *base = cpu_eval_as(as, v, 0, DT_I64);
    *coef = cpu_int(as, 0);
    return;
  }
  const Op *op = ir_def(as->f, v);
  if (op->code == OP_IOTA) {
    *base = cpu_2(as, OP_ADD, as->pt.x0, cpu_int(as, (int64_t)c * as->lanes));
    *coef = cpu_int(as, 1);
    return;
  }
  Value b[2], k[2];
  affine(as, op->args[0], c, &b[0], &k[0]);
  affine(as, op->args[1], c, &b[1], &k[1]);
  *base = cpu_2(as, op->code, b[0], b[1]);
  if (op->code == OP_MUL)
    *coef = lane_in(as, op->args[0]) ? cpu_2(as, OP_MUL, k[0], b[1])
                                     : cpu_2(as, OP_MUL, k[1], b[0]);
  else *coef = cpu_2(as, op->code, k[0], k[1]);
}

// ---------------------------------------------------------------- ranges
// Is v < n, whatever the lane within the axis?
bool cpu_index_below(const Assign *as, Value v, Dim n) {
  const Op *op = ir_def(as->f, v);
  double x;
  int64_t lo, hi;
  if (!op) return false;
  dim_bounds(&as->m->dims, n, &lo, &hi);
  if (ir_const_value(as->f, v, &x)) return x < (double)lo;
  if (op->code == OP_IOTA) {
    Dim size = ir_type(as->f, v)->size[0];
    int64_t slo, shi;
    dim_bounds(&as->m->dims, size, &slo, &shi);
    return size == n || shi <= lo;
  }
  if (op->code == OP_ORIGIN) {
    uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
    return as->f->axes.at[axis].extent == n && (int)axis != as->par;
  }
  return false;
}

// An index: lanes b + k * i, or x.
typedef struct Index {
  Value b, k, x;
} Index;

// Checks 0 <= v < n, of which `at` is what the lanes have.
static void check(Assign *as, Access *a, Value v, Dim n, const Index *at) {
  Value x = at->x, b = at->b, k = at->k;
  bool low = cpu_is_nonneg(as, v), high = cpu_index_below(as, v, n);
  int64_t unit = 0;
  if (low && high) {
    a->pad |= lane_in(as, v);
    return;
  }
  if (!lane_in(as, v)) {
    Value zero = cpu_int(as, 0);
    if (!low) both(as, &a->ok, cpu_2(as, OP_LE, zero, b));
    if (!high) both(as, &a->ok, cpu_2(as, OP_LT, b, cpu_dim(as, n)));
    return;
  }
  bool step1 = !x && cpu_is_int(as, k, &unit) && unit == 1;
  if (step1 && low) {
    both(as, &a->mask, cpu_vmask(as, cpu_2(as, OP_SUB, cpu_dim(as, n), b)));
    return;
  }
  if (!x) x = cpu_2(as, OP_ADD, cpu_2(as, OP_MUL, cpu_iota(as), k), b);
  if (!low) both(as, &a->mask, cpu_2(as, OP_LE, cpu_int(as, 0), x));
  if (!high) both(as, &a->mask, cpu_2(as, OP_LT, x, cpu_dim(as, n)));
}

// Lanes that are padding of the tile.
static void pad_mask(Assign *as, Access *a, uint32_t c) {
  if (dim_divisor(&as->m->dims, as->pt.lane_size) % as->pt.width == 0) return;
  Value x = cpu_2(as, OP_ADD, as->pt.x0, cpu_int(as, (int64_t)c * as->lanes));
  both(as, &a->mask,
       cpu_vmask(as, cpu_2(as, OP_SUB, cpu_dim(as, as->pt.lane_size), x)));
}

static Access access(Assign *as, const Op *op, uint32_t first, uint32_t c) {
  Value t = op->args[0];
  const Type *type = ir_type(as->f, t);
  Access a = {.step = cpu_int(as, 0), .index = 0};
  Value off = cpu_int(as, 0);
  bool checked = !ir_attr_i(op, AT_INBOUNDS, 0) && op != as->dense;
  for (uint32_t i = 0; i < type->n; i++) {
    Value v = op->args[first + i];
    Index at = {0};
    Value s = cpu_tensor(as, OP_TSTRIDE, t, (int)i);
    bool lane = lane_in(as, v);
    a.lanes |= lane;
    if (cpu_affine_in_lane(as, v)) {
      affine(as, v, c, &at.b, &at.k);
      off = cpu_2(as, OP_ADD, off, cpu_2(as, OP_MUL, at.b, s));
      a.step = cpu_2(as, OP_ADD, a.step, cpu_2(as, OP_MUL, at.k, s));
      a.unit |= lane && i + 1 == type->n;
    } else {
      at.x = cpu_vec(as, cpu_eval_as(as, v, c, DT_I64));
      Value o = cpu_2(as, OP_MUL, at.x, s);
      a.index = a.index ? cpu_2(as, OP_ADD, a.index, o) : o;
    }
    if (checked) check(as, &a, v, type->size[i], &at);
    else a.pad |= lane;
  }
  a.base = cpu_padd(as, cpu_tensor(as, OP_TPTR, t, -1), off);
  if (op == as->dense) a.step = cpu_int(as, 1);
  if (a.lanes && !a.index && !a.unit) {
    a.index = cpu_2(as, OP_MUL, cpu_iota(as), a.step);
  } else if (a.index) {
    Value o = cpu_2(as, OP_MUL, cpu_iota(as), a.step);
    a.index = cpu_2(as, OP_ADD, a.index, o);
  }
  return a;
}

// ---------------------------------------------------------------- loads
// Is it known that lanes are neighbours?
static bool is_dense(const Assign *as, const Access *a) {
  int64_t n;
  return cpu_is_int(as, a->step, &n) && n == 1;
}

// The lanes of n neighbouring vectors, one test for all of them.
static void load_lanes(Assign *as, const Access *a, uint32_t n, Value *v) {
  Value zero = cpu_int(as, 0);
  if (!a->lanes) {
    v[0] = cpu_ld(as, a->base, zero);
    return;
  }
  for (uint32_t c = 0; a->index && c < n; c++)
    v[c] = cpu_gather(as, a[c].base, a[c].index, a[c].mask);
  if (a->index) return;
  if (is_dense(as, a)) {
    for (uint32_t c = 0; c < n; c++)
      v[c] = cpu_vld(as, a[c].base, zero, a[c].mask);
    return;
  }
  Value dense = cpu_2(as, OP_EQ, a->step, cpu_int(as, 1)), w[MAX_COLS];
  Type t[MAX_COLS];
  for (uint32_t c = 0; c < n; c++)
    t[c] = type_vec(mty(as, a->base)->dtype, as->lanes);
  Branch br = cpu_if_open(as, dense, t, n);
  for (uint32_t c = 0; c < n; c++)
    w[c] = cpu_vld(as, a[c].base, zero, a[c].mask);
  cpu_if_else(as, &br, w);
  Value index = cpu_2(as, OP_MUL, cpu_iota(as), a->step);
  for (uint32_t c = 0; c < n; c++)
    w[c] = cpu_gather(as, a[c].base, index, a[c].mask);
  cpu_if_close(as, &br, w, v);
}

static Value zero_of(Assign *as, const Type *t) {
  Value z = dtype_is_float(t->dtype) ? cpu_float(as, t->dtype, 0)
                                     : ir_const_i(&as->top, t->dtype, 0);
  return t->kind == TK_VEC ? cpu_vec(as, z) : z;
}

// What is checked for all lanes is the same in all vectors of a panel.
static void load_checked(Assign *as, const Access *a, uint32_t n, Value *v) {
  if (!a->ok) {
    load_lanes(as, a, n, v);
    return;
  }
  DType dt = mty(as, a->base)->dtype;
  Type t[MAX_COLS];
  Value w[MAX_COLS];
  for (uint32_t c = 0; c < n; c++)
    t[c] = a->lanes ? type_vec(dt, as->lanes) : type_scalar(dt);
  Branch br = cpu_if_open(as, a->ok, t, n);
  load_lanes(as, a, n, w);
  cpu_if_else(as, &br, w);
  for (uint32_t c = 0; c < n; c++) w[c] = zero_of(as, &t[c]);
  cpu_if_close(as, &br, w, v);
}

static bool any_lane(const Assign *as, const Op *op) {
  for (uint32_t i = 1; i < op->nargs; i++)
    if (lane_in(as, op->args[i])) return true;
  return false;
}

// Vector c; the panel's others are remembered.
Value cpu_tensor_load(Assign *as, const Op *op, uint32_t c) {
  uint32_t n = any_lane(as, op) ? as->pt.cols : 1;
  Access a[MAX_COLS] = {0};
  Value v[MAX_COLS] = {0};
  for (uint32_t i = 0; i < n; i++) {
    a[i] = access(as, op, 1, i);
    if (a[i].pad) pad_mask(as, &a[i], i);
  }
  load_checked(as, a, n, v);
  for (uint32_t i = 0; i < n && n > 1; i++)
    if (i != c) cpu_memo_put(as, op->res[0], i, v[i]);
  return v[n > 1 ? c : 0];
}

// ---------------------------------------------------------------- stores
static void store_lanes(Assign *as, const Access *a, uint32_t n,
                        const Value *v) {
  Value zero = cpu_int(as, 0);
  if (!a->lanes) {
    cpu_st(as, a->base, zero, v[0]);
    return;
  }
  for (uint32_t c = 0; a->index && c < n; c++)
    cpu_scatter(as, a[c].base, a[c].index, v[c], a[c].mask);
  if (a->index) return;
  if (is_dense(as, a)) {
    for (uint32_t c = 0; c < n; c++)
      cpu_vst(as, a[c].base, zero, v[c], a[c].mask);
    return;
  }
  Value dense = cpu_2(as, OP_EQ, a->step, cpu_int(as, 1));
  Branch br = cpu_if_open(as, dense, NULL, 0);
  for (uint32_t c = 0; c < n; c++)
    cpu_vst(as, a[c].base, zero, v[c], a[c].mask);
  cpu_if_else(as, &br, NULL);
  Value index = cpu_2(as, OP_MUL, cpu_iota(as), a->step);
  for (uint32_t c = 0; c < n; c++)
    cpu_scatter(as, a[c].base, index, v[c], a[c].mask);
  cpu_if_close(as, &br, NULL, NULL);
}

static bool may_be_absent(const Assign *as, Value tensor) {
  for (uint32_t i = 0; i < as->f->params.n; i++)
    if (as->f->params.at[i].v == tensor)
      return as->f->params.at[i].role == PR_OUT;
  return false;
}

// All vectors of the panel.
void cpu_tensor_store(Assign *as, const Op *op) {
  uint32_t n = as->pt.cols;
  Access a[MAX_COLS] = {0};
  Value v[MAX_COLS] = {0};
  for (uint32_t c = 0; c < n; c++) {
    a[c] = access(as, op, 2, c);
    if (a[c].lanes) pad_mask(as, &a[c], c);
    if (ir_attr_i(op, AT_MASKED, 0)) {
      Value x = cpu_eval_as(as, op->args[op->nargs - 1], c, DT_BOOL);
      both(as, is_vec(as, x) ? &a[c].mask : &a[c].ok, x);
    }
    v[c] = cpu_eval_as(as, op->args[1], c, mty(as, a[c].base)->dtype);
    if (a[c].lanes) v[c] = cpu_vec(as, v[c]);
  }
  if (may_be_absent(as, op->args[0]))
    both(as, &a->ok, cpu_tensor(as, OP_GIVEN, op->args[0], -1));
  if (!a->ok) {
    store_lanes(as, a, n, v);
    return;
  }
  Branch br = cpu_if_open(as, a->ok, NULL, 0);
  store_lanes(as, a, n, v);
  cpu_if_else(as, &br, NULL);
  cpu_if_close(as, &br, NULL, NULL);
}
