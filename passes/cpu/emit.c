// Mach ops: constructors that fold what index arithmetic leaves behind, loops
// and branches, and the memory of values by scope.
#include "ir/target.h"
#include "passes/cpu/cpu.h"

#include "ir/eval.h"
#include <assert.h>
#include <math.h>
#include <string.h>

// ---------------------------------------------------------------- constants
static Value cached(Map *m, uint64_t key) {
  uint64_t v;
  return map_get(m, key, &v) ? (Value)v : 0;
}

Value cpu_int(Assign *as, int64_t n) {
  Value v = cached(&as->ints, (uint64_t)n);
  if (v) return v;
  v = ir_const_i(&as->top, DT_I64, n);
  map_put(&as->ints, (uint64_t)n, v);
  return v;
}

Value cpu_float(Assign *as, DType t, double x) {
  if (t != DT_F32) return ir_const_f(&as->top, t, x);
  uint64_t key;
  memcpy(&key, &x, sizeof key);
  Value v = cached(&as->floats, key);
  if (v) return v;
  v = ir_const_f(&as->top, t, x);
  map_put(&as->floats, key, v);
  return v;
}

Value cpu_bool(Assign *as, bool v) {
  return ir_const_i(&as->top, DT_BOOL, v);
}

Value cpu_dim(Assign *as, Dim d) {
  int64_t n;
  if (dim_known(&as->m->dims, d, &n)) return cpu_int(as, n);
  Value v = cached(&as->dims, d);
  if (v) return v;
  v = ir_dim(&as->top, d);
  map_put(&as->dims, d, v);
  return v;
}

// A shared workspace lies densely.
static Value dense_stride(Assign *as, Value tensor, int pos) {
  DimTab *d = &as->m->dims;
  const Type *t = ir_type(as->f, tensor);
  Dim n = dim_const(d, 1);
  for (uint32_t i = (uint32_t)pos + 1; i < t->n; i++)
    n = dim_bin(d, DIM_MUL, n, t->size[i]);
  return cpu_dim(as, n);
}

// A fact of a tensor parameter (of f).
Value cpu_tensor(Assign *as, OpCode c, Value tensor, int pos) {
  if (c == OP_TSTRIDE && cpu_is_shared(as, tensor))
    return dense_stride(as, tensor, pos);
  uint64_t key =
      (uint64_t)tensor << 16 | (uint64_t)(pos + 1) << 12 | (uint64_t)c;
  Value v = cached(&as->facts, key);
  if (v) return v;
  Value arg = cpu_memo_get(as, tensor, 0);
  Type t = type_scalar(DT_I64);
  if (c == OP_TPTR) t = type_ptr(ir_type(as->f, tensor)->dtype);
  if (c == OP_GIVEN) t = type_scalar(DT_BOOL);
  IrAttr at = attr_i(AT_POS, pos);
  Op *op = ir_op(&as->top, c, &arg, 1, &at, pos >= 0, &t, 1, 0);
  map_put(&as->facts, key, op->res[0]);
  return op->res[0];
}

bool cpu_is_int(const Assign *as, Value v, int64_t *n) {
  const Op *op = ir_def(as->g, v);
  if (!op || op->code != OP_CONST) return false;
  const IrAttr *a = ir_attr(op, AT_IVALUE);
  if (a) *n = a->i;
  return a != NULL;
}

static bool is_int(const Assign *as, Value v, int64_t want) {
  int64_t n;
  return cpu_is_int(as, v, &n) && n == want;
}

// ---------------------------------------------------------------- arithmetic
Value cpu_op(Assign *as, OpCode c, const Value *args, uint32_t n, Type t,
             const IrAttr *attrs, uint32_t nattrs) {
  return ir_op(&as->b, c, args, n, attrs, nattrs, &t, 1, 0)->res[0];
}

// ---------------------------------------------------------------- scopes
uint32_t cpu_scope_open(const Assign *as) {
  return as->undo.n;
}

void cpu_scope_close(Assign *as, uint32_t mark) {
  while (as->undo.n > mark) {
    Undo u = as->undo.at[--as->undo.n];
    map_put(u.map, u.key, u.old);
  }
}

static Value remembered(const Map *m, uint64_t key) {
  uint64_t x;
  return map_get(m, key, &x) ? (Value)x : 0;
}

static void remember(Assign *as, Map *m, uint64_t key, Value x) {
  Undo u = {m, key, remembered(m, key)};
  vec_push(as->arena, &as->undo, u);
  map_put(m, key, x);
}

static uint64_t memo_key(Value v, uint32_t c) {
  return (uint64_t)v * MAX_COLS + c;
}

Value cpu_memo_get(const Assign *as, Value v, uint32_t c) {
  return remembered(&as->memo, memo_key(v, c));
}

void cpu_memo_put(Assign *as, Value v, uint32_t c, Value x) {
  remember(as, &as->memo, memo_key(v, c), x);
}

// x op y, made once in a scope: addresses repeat themselves.
static Value shared(Assign *as, OpCode c, Value x, Value y) {
  if ((x | y) >> HW_INDEX_BITS || c > UINT8_MAX) return ir_2(&as->b, c, x, y);
  uint64_t key =
      (uint64_t)c << 2 * HW_INDEX_BITS | (uint64_t)x << HW_INDEX_BITS | y;
  Value v = remembered(&as->known, key);
  if (v) return v;
  v = ir_2(&as->b, c, x, y);
  remember(as, &as->known, key, v);
  return v;
}

// ---------------------------------------------------------------- arithmetic
Value cpu_vec(Assign *as, Value x) {
  if (is_vec(as, x)) return x;
  Type t = type_vec(mty(as, x)->dtype, as->lanes);
  uint64_t key = (uint64_t)OP_SPLAT << 56 | x;
  Value v = remembered(&as->known, key);
  if (v) return v;
  v = cpu_op(as, OP_SPLAT, &x, 1, t, NULL, 0);
  remember(as, &as->known, key, v);
  return v;
}

Value cpu_1(Assign *as, OpCode c, Value x) {
  return ir_1(&as->b, c, x);
}

static bool fold(OpCode c, int64_t a, int64_t b, int64_t *r) {
  switch (c) {
  case OP_ADD: return !__builtin_add_overflow(a, b, r);
  case OP_SUB: return !__builtin_sub_overflow(a, b, r);
  case OP_MUL: return !__builtin_mul_overflow(a, b, r);
  case OP_MIN: *r = a < b ? a : b; return true;
  case OP_MAX: *r = a > b ? a : b; return true;
  case OP_FLOORDIV:
    if (b <= 0) return false;
    *r = dim_floordiv(a, b);
    return true;
  case OP_MOD:
    if (b <= 0) return false;
    *r = a - b * dim_floordiv(a, b);
    return true;
  default: return false;
  }
}

// The neutral cases of integer arithmetic, 0 if none applies.
static Value neutral(Assign *as, OpCode c, Value x, Value y) {
  if (c == OP_ADD && is_int(as, x, 0)) return y;
  if ((c == OP_ADD || c == OP_SUB) && is_int(as, y, 0)) return x;
  if (c == OP_MUL && (is_int(as, x, 0) || is_int(as, y, 1))) return x;
  if (c == OP_MUL && (is_int(as, y, 0) || is_int(as, x, 1))) return y;
  if (c == OP_FLOORDIV && is_int(as, y, 1)) return x;
  if (c == OP_MOD && is_int(as, y, 1)) return cpu_int(as, 0);
  return 0;
}

// x / c if x is known to be a multiple of it, else 0.
static Value exact(Assign *as, Value x, int64_t c) {
  int64_t n;
  if (cpu_is_int(as, x, &n)) return n % c ? 0 : cpu_int(as, n / c);
  const Op *op = ir_def(as->g, x);
  if (!op || op->nargs != 2) return 0;
  if (op->code == OP_MUL && cpu_is_int(as, op->args[1], &n) && n % c == 0)
    return cpu_2(as, OP_MUL, op->args[0], cpu_int(as, n / c));
  if (op->code != OP_ADD) return 0;
  Value a = exact(as, op->args[0], c);
  Value b = a ? exact(as, op->args[1], c) : 0;
  return b ? cpu_2(as, OP_ADD, a, b) : 0;
}

// floor(x / c), c > 0, where x is a sum of a multiple of c and a constant.
static Value quotient(Assign *as, Value x, int64_t c) {
  Value q = exact(as, x, c);
  const Op *op = ir_def(as->g, x);
  int64_t n;
  if (q || !op || op->code != OP_ADD || !cpu_is_int(as, op->args[1], &n))
    return q;
  q = exact(as, op->args[0], c);
  return q ? cpu_2(as, OP_ADD, q, cpu_int(as, dim_floordiv(n, c))) : 0;
}

bool cpu_is_bool(const Assign *as, Value v, bool *b) {
  const Op *op = ir_def(as->g, v);
  if (op && op->code == OP_SPLAT) op = ir_def(as->g, op->args[0]);
  if (!op || op->code != OP_CONST ||
      ir_type(as->g, op->res[0])->dtype != DT_BOOL)
    return false;
  *b = ir_attr_i(op, AT_IVALUE, 0) != 0;
  return true;
}

// x and y, x or y where one is known; 0 if none is.
static Value known_bool(Assign *as, OpCode c, Value x, Value y) {
  bool b;
  if (c != OP_AND && c != OP_OR) return 0;
  if (cpu_is_bool(as, x, &b)) return b == (c == OP_OR) ? x : y;
  if (cpu_is_bool(as, y, &b)) return b == (c == OP_OR) ? y : x;
  return 0;
}

static void balance(Assign *as, Value *x, Value *y) {
  if (is_vec(as, *x)) *y = cpu_vec(as, *y);
  if (is_vec(as, *y)) *x = cpu_vec(as, *x);
}

// v = *x + *n with a constant n, if it is such a sum.
static bool split_sum(const Assign *as, Value v, Value *x, int64_t *n) {
  const Op *op = ir_def(as->g, v);
  if (!op || op->code != OP_ADD || !cpu_is_int(as, op->args[1], n))
    return false;
  *x = op->args[0];
  return true;
}

// Constants move outwards, so that addresses of a block differ by them only:
// (a + 1) * 8 + b is (a * 8 + b) + 8. 0 if there is nothing to move.
static Value outwards(Assign *as, OpCode c, Value x, Value y) {
  Value a, b;
  int64_t m, n, r;
  if (!split_sum(as, x, &a, &m)) {
    if (c != OP_ADD || !split_sum(as, y, &b, &n)) return 0;
    Value out = cpu_int(as, n);
    return cpu_2(as, c, cpu_2(as, c, x, b), out);
  }
  if (c == OP_MUL && cpu_is_int(as, y, &n) && fold(c, m, n, &r)) {
    Value out = cpu_int(as, r);
    return cpu_2(as, OP_ADD, cpu_2(as, c, a, y), out);
  }
  if (c != OP_ADD) return 0;
  if (!cpu_is_int(as, y, &n)) {
    Value out = cpu_int(as, m);
    return cpu_2(as, c, cpu_2(as, c, a, y), out);
  }
  return fold(c, m, n, &r) ? cpu_2(as, c, a, cpu_int(as, r)) : 0;
}

Value cpu_2(Assign *as, OpCode c, Value x, Value y) {
  int64_t a, b, r;
  if (mty(as, x)->dtype == DT_I64) {
    if (cpu_is_int(as, x, &a) && cpu_is_int(as, y, &b) && fold(c, a, b, &r))
      return cpu_int(as, r);
    bool lanes = is_vec(as, x) || is_vec(as, y);
    if ((c == OP_ADD || c == OP_MUL) && !lanes && cpu_is_int(as, x, &a)) {
      Value t = x;
      x = y;
      y = t;
    }
    Value n = lanes ? cpu_compare_lanes(as, c, x, y) : neutral(as, c, x, y);
    if (!n && !lanes && c == OP_FLOORDIV && cpu_is_int(as, y, &b) && b > 0)
      n = quotient(as, x, b);
    if (!n && !lanes) n = outwards(as, c, x, y);
    if (n) return n;
  }
  if (mty(as, x)->dtype == DT_BOOL) {
    Value n = known_bool(as, c, x, y);
    if (n) return n;
  }
  balance(as, &x, &y);
  if (dtype_is_float(mty(as, x)->dtype)) return ir_2(&as->b, c, x, y);
  return shared(as, c, x, y);
}

Value cpu_3(Assign *as, OpCode c, Value x, Value y, Value z) {
  balance(as, &x, &y);
  balance(as, &y, &z);
  balance(as, &x, &y);
  return ir_3(&as->b, c, x, y, z);
}

Value cpu_select(Assign *as, Value c, Value x, Value y) {
  bool b;
  if (x == y) return x;
  if (cpu_is_bool(as, c, &b)) return b ? x : y;
  return cpu_3(as, OP_SELECT, c, x, y);
}

Value cpu_cast(Assign *as, DType to, Value x) {
  int64_t n;
  if (mty(as, x)->dtype == to) return x;
  if (to == DT_F32 && cpu_is_int(as, x, &n) && mty(as, x)->dtype == DT_I64 &&
      n > -(1 << 24) && n < 1 << 24)
    return cpu_float(as, DT_F32, (double)n);
  return ir_cast(&as->b, to, x);
}

Value cpu_iota(Assign *as) {
  uint64_t key = (uint64_t)OP_VIOTA << 56;
  Value v = remembered(&as->known, key);
  if (v) return v;
  v = cpu_op(as, OP_VIOTA, NULL, 0, type_vec(DT_I64, as->lanes), NULL, 0);
  remember(as, &as->known, key, v);
  return v;
}

Value cpu_vmask(Assign *as, Value n) {
  return cpu_op(as, OP_VMASK, &n, 1, type_vec(DT_BOOL, as->lanes), NULL, 0);
}

Value cpu_vreduce(Assign *as, RKind k, Value v) {
  IrAttr at = attr_i(AT_KIND, k);
  return cpu_op(as, OP_VREDUCE, &v, 1, type_scalar(mty(as, v)->dtype), &at, 1);
}

Value cpu_combine(Assign *as, RKind k, Value x, Value y) {
  return cpu_2(as, ir_combining(k), x, y);
}

Value cpu_identity(Assign *as, RKind k, DType t) {
  double id = eval_identity(k, t);
  if (dtype_is_float(t)) return cpu_float(as, t, id);
  return t == DT_BOOL ? cpu_bool(as, id != 0) : cpu_int(as, dtype_int(id));
}

// ---------------------------------------------------------------- memory
Value cpu_padd(Assign *as, Value p, Value i) {
  if (is_int(as, i, 0)) return p;
  return cpu_op(as, OP_PADD, (Value[]){p, i}, 2, *mty(as, p), NULL, 0);
}

Value cpu_ld(Assign *as, Value p, Value i) {
  return cpu_op(as, OP_LD, (Value[]){p, i}, 2, type_scalar(mty(as, p)->dtype),
                NULL, 0);
}

void cpu_st(Assign *as, Value p, Value i, Value v) {
  ir_op(&as->b, OP_ST, (Value[]){p, i, v}, 3, NULL, 0, NULL, 0, 0);
}

Value cpu_vld(Assign *as, Value p, Value i, Value mask) {
  return cpu_op(as, OP_VLD, (Value[]){p, i, mask}, mask ? 3 : 2,
                type_vec(mty(as, p)->dtype, as->lanes), NULL, 0);
}

void cpu_vst(Assign *as, Value p, Value i, Value v, Value mask) {
  ir_op(&as->b, OP_VST, (Value[]){p, i, v, mask}, mask ? 4 : 3, NULL, 0, NULL,
        0, 0);
}

void cpu_ask_far(Assign *as, Value p, Value i) {
  ir_op(&as->b, OP_PREFETCH_FAR, (Value[]){p, i}, 2, NULL, 0, NULL, 0, 0);
}

Value cpu_gather(Assign *as, Value p, Value idx, Value mask) {
  return cpu_op(as, OP_VGATHER, (Value[]){p, idx, mask}, mask ? 3 : 2,
                type_vec(mty(as, p)->dtype, as->lanes), NULL, 0);
}

void cpu_scatter(Assign *as, Value p, Value idx, Value v, Value mask) {
  ir_op(&as->b, OP_VSCATTER, (Value[]){p, idx, v, mask}, mask ? 4 : 3, NULL, 0,
        NULL, 0, 0);
}

// ---------------------------------------------------------------- control
static bool runs_once(const Assign *as, Value lo, Value hi, int64_t step) {
  int64_t a, b;
  return cpu_is_int(as, lo, &a) && cpu_is_int(as, hi, &b) && a < b &&
         b - a <= step;
}

Loop cpu_loop_upto(Assign *as, Value n, int64_t step, const char *hint) {
  return cpu_loop_open(as, (LoopCount){cpu_int(as, 0), n, step, hint}, NULL, 0);
}

Loop cpu_loop_open(Assign *as, LoopCount c, Value *vals, uint32_t n) {
  Loop l = {.outer = as->b, .mark = cpu_scope_open(as), .n = n, .iv = c.lo};
  if (runs_once(as, c.lo, c.hi, c.step)) return l;
  Value *args = NEWN(as->arena, Value, n + 3);
  Type *types = NEWN(as->arena, Type, n + 1);
  args[0] = c.lo;
  args[1] = c.hi;
  args[2] = cpu_int(as, c.step);
  for (uint32_t i = 0; i < n; i++) {
    args[i + 3] = vals[i];
    types[i] = *mty(as, vals[i]);
  }
  l.op = ir_op(&as->b, OP_FOR, args, n + 3, NULL, 0, types, n, 1);
  Region *r = l.op->regions[0];
  l.iv = ir_region_param(r, type_scalar(DT_I64), c.hint);
  for (uint32_t i = 0; i < n; i++)
    vals[i] = ir_region_param(r, types[i], "acc");
  as->b.region = r;
  as->b.before = NULL;
  return l;
}

void cpu_loop_close(Assign *as, Loop *l, Value *vals) {
  cpu_scope_close(as, l->mark);
  if (!l->op) return;
  ir_yield(&as->b, vals, l->n);
  as->b = l->outer;
  for (uint32_t i = 0; i < l->n; i++) vals[i] = l->op->res[i];
}

Branch cpu_if_open(Assign *as, Value cond, const Type *t, uint32_t n) {
  Branch b = {.outer = as->b, .mark = cpu_scope_open(as)};
  b.op = ir_op(&as->b, OP_IF, &cond, 1, NULL, 0, t, n, 2);
  as->b.region = b.op->regions[0];
  as->b.before = NULL;
  return b;
}

void cpu_if_else(Assign *as, Branch *b, const Value *then) {
  cpu_scope_close(as, b->mark);
  ir_yield(&as->b, then, b->op->nres);
  as->b.region = b->op->regions[1];
}

void cpu_if_close(Assign *as, Branch *b, const Value *other, Value *res) {
  cpu_scope_close(as, b->mark);
  ir_yield(&as->b, other, b->op->nres);
  as->b = b->outer;
  for (uint32_t i = 0; i < b->op->nres; i++) res[i] = b->op->res[i];
}
