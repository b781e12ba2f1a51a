// Fragments: elementwise ops, constants, coordinates, broadcasts, reductions.
#include "codegen/gpu/gpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// ---------------------------------------------------------------- words
// 16-bit elements in pairs, 8-bit ones in fours, if there are enough.
static uint32_t per_word(DType t, uint32_t regs) {
  if (t == DT_BOOL || dtype_size(t) > 2) return 1;
  uint32_t per = 4 / (uint32_t)dtype_size(t);
  return regs % per ? 1 : per;
}

Frag gpu_new(Gpu *n, const Type *t) {
  Frag f = {.dtype = t->dtype};
  const char *err = frag_map(t, n->grp.threads, &f.map);
  assert(!err && "verified");
  (void)err;
  f.per = per_word(t->dtype, f.map.regs);
  f.n = f.map.regs / f.per;
  f.w = NEWN(&n->g->cx->scratch, V, f.n);
  return f;
}

V gpu_elem(Gpu *n, const Frag *f, uint32_t reg) {
  Cg *g = n->g;
  V w = f->w[reg / f->per];
  if (f->per == 1) return w;
  uint32_t bits = 32 / f->per;
  if (reg % f->per) w = e_shr(g, w, (int)(bits * (reg % f->per)));
  return LLVMBuildTrunc(g->b, w, cg_scalar(g, f->dtype), "");
}

void gpu_pack(Gpu *n, Frag *f, V *elems) {
  Cg *g = n->g;
  for (uint32_t i = 0; i < f->n; i++) {
    V w = elems[i * f->per];
    for (uint32_t k = 0; f->per > 1 && k < f->per; k++) {
      V e = LLVMBuildZExt(g->b, elems[i * f->per + k], gpu_i32t(n), "");
      w = k ? e_or(g, w, e_shl(g, e, (int)(32 / f->per * k))) : e;
    }
    f->w[i] = w;
  }
}

void gpu_pack_loaded(Gpu *n, Frag *f, V *elems) {
  enum { PAIR = 2 };
  Cg *g = n->g;
  if (!n->multiplies || n->gpu.hopper || !n->vendor->anew || f->per != PAIR) {
    gpu_pack(n, f, elems);
    return;
  }
  LLVMTypeRef two = LLVMVectorType(cg_of(elems[0]), PAIR);
  for (uint32_t i = 0; i < f->n; i++) {
    V w = LLVMGetUndef(two);
    for (uint32_t k = 0; k < PAIR; k++)
      w = LLVMBuildInsertElement(g->b, w, elems[i * PAIR + k], gpu_i32(n, k),
                                 "");
    w = LLVMBuildBitCast(g->b, w, gpu_i32t(n), "");
    f->w[i] = n->vendor->anew(n, w);
  }
}

void gpu_define(Gpu *n, Value v, Frag f) {
  n->frag[v] = f;
}

// ---------------------------------------------------------------- elementwise
// Narrow floats are made in pairs where there is an instruction.
static bool cast_pairs(Gpu *n, const Frag *x, Frag *r, bool within) {
  if (x->dtype != DT_F32 || r->per < 2) return false;
  for (uint32_t i = 0; i < r->n * r->per / 2; i++) {
    V two = n->vendor->pair(n, r->dtype, x->w[2 * i], x->w[2 * i + 1], within);
    if (!two) return false;
    if (r->per == 2) r->w[i] = two;
    else if (i % 2 == 0) r->w[i / 2] = two;
    else r->w[i / 2] = e_or(n->g, r->w[i / 2], e_shl(n->g, two, 16));
  }
  return true;
}

// The signs of 16-bit floats are those of pairs: no sums to round.
static bool flip_pairs(Gpu *n, const Op *op, Frag *r) {
  bool half = r->dtype == DT_BF16 || r->dtype == DT_F16;
  if (op->code != OP_NEG || !half || r->per != 2) return false;
  const Frag *x = gpu_frag(n, op->args[0]);
  for (uint32_t i = 0; i < r->n; i++)
    r->w[i] = e_xor(n->g, x->w[i], gpu_i32(n, (int32_t)0x80008000));
  return true;
}

// Does each word have one condition, as where rows are selected?
static bool agree(const Frag *c, const Frag *r) {
  if (c->per != 1) return false;
  for (uint32_t i = 0; i < r->n; i++)
    for (uint32_t k = 1; k < r->per; k++)
      if (c->w[i * r->per + k] != c->w[i * r->per]) return false;
  return true;
}

// Words where all elements have one condition.
static bool select_words(Gpu *n, const Op *op, Frag *r) {
  if (op->code != OP_SELECT || r->per < 2) return false;
  const Op *one = ir_def(n->f, op->args[0]);
  bool all = one && one->code == OP_SPLAT;
  if (!all && gpu_arg_type(n, op, 0)->kind != TK_FRAG) return false;
  const Frag *c = all ? NULL : gpu_frag(n, op->args[0]);
  if (c && !agree(c, r)) return false;
  const Frag *x = gpu_frag(n, op->args[1]), *y = gpu_frag(n, op->args[2]);
  for (uint32_t i = 0; i < r->n; i++)
    r->w[i] = e_sel(n->g, c ? c->w[i * r->per] : n->g->val[one->args[0]],
                    x->w[i], y->w[i]);
  return true;
}

// Selecting words is selecting pairs only where the conditions agree. Element
// `at` of a quotient may be one that special units compute.
static V element(Gpu *n, const Op *op, uint32_t at) {
  enum { EXACT = 24 };
  V x = op->nargs == 1 ? n->g->val[op->args[0]] : NULL;
  const Type *t = gpu_arg_type(n, op, 0);
  int64_t bits = ir_attr_i(op, AT_APPROX, 0);
  if (op->code == OP_TANH && bits) return gpu_tanh_approx(n, x);
  V r = x && t->dtype == DT_F32 ? gpu_math(n, op->code, x) : NULL;
  int64_t every = ir_attr_i(op, AT_EVERY, 0);
  if (every && at % (uint64_t)every == 0) bits = EXACT;
  if (bits) r = gpu_reciprocal(n, n->g->val[op->args[1]], bits);
  if (r) return r;
  cg_op(n->g, op);
  return n->g->val[op->res[0]];
}

static bool is_frag(const Gpu *n, Value v) {
  return ir_type(n->f, v)->kind == TK_FRAG;
}

// Division has no uniform instruction: what it gives is made uniform again, or
// loop bounds, slots and descriptors that depend on it leave uniform registers.
static V quotient(Gpu *n, const Op *op, V x) {
  double c;
  bool divides = op->code == OP_FLOORDIV || op->code == OP_MOD;
  if (!divides || n->grp.threads == 1 || cg_of(x) != gpu_i32t(n) ||
      ir_const_value(n->f, op->args[1], &c))
    return x;
  return n->vendor->uniform(n, x);
}

// Scores that are capped are small beside the cap, as a rule: a warp all of
// whose elements are does without reciprocals and clamps.
static bool tanh_tile(Gpu *n, const Op *op, Frag *r) {
  enum { MANY = 16 };
  Cg *g = n->g;
  if (op->code != OP_TANH || r->dtype != DT_F32 || r->n < MANY ||
      n->grp.threads < 32 || ir_attr_i(op, AT_MIXED, 0))
    return false;
  const Frag *x = gpu_frag(n, op->args[0]);
  V most = e_abs(g, x->w[0]);
  for (uint32_t i = 1; i < x->n; i++) {
    V a[2] = {most, e_abs(g, x->w[i])};
    most = cg_intrinsic(g, "llvm.maxnum", cg_of(most), a, 2);
  }
  V large = e_cmp(g, LLVMRealOGT, most, e_f(g, most, TANH_SMALL));
  LLVMBasicBlockRef side[2] = {cg_block(g, "tanh"), cg_block(g, "small")};
  LLVMBasicBlockRef join = cg_block(g, "tanhs");
  LLVMBuildCondBr(g->b, n->vendor->vote(n, true, large), side[0], side[1]);
  V *e[2];
  for (uint32_t s = 0; s < 2; s++) {
    e[s] = NEWN(&g->cx->scratch, V, r->n);
    LLVMPositionBuilderAtEnd(g->b, side[s]);
    for (uint32_t i = 0; i < r->n; i++)
      e[s][i] = s ? gpu_tanh_small(n, x->w[i]) : gpu_math(n, OP_TANH, x->w[i]);
    LLVMBuildBr(g->b, join);
  }
  LLVMPositionBuilderAtEnd(g->b, join);
  for (uint32_t i = 0; i < r->n; i++) {
    r->w[i] = LLVMBuildPhi(g->b, cg_of(most), "");
    V from[2] = {e[0][i], e[1][i]};
    LLVMAddIncoming(r->w[i], from, side, 2);
  }
  return true;
}

static V thread_part(Gpu *n, const FragMap *m, uint32_t axis);
static uint32_t reg_part(const FragMap *m, uint32_t axis, uint32_t reg);

// A coordinate spread over a tile.
static const Op *spread_coord(const Gpu *n, Value v) {
  const Op *op = ir_def(n->f, v);
  op = op && op->code == OP_BCAST ? ir_def(n->f, op->args[0]) : NULL;
  return op && op->code == OP_COORD ? op : NULL;
}

// A lower bound that all coordinates are above may be the least integer.
static V not_least(Gpu *n, V bound) {
  V a[2] = {bound, gpu_i32(n, -(INT64_C(1) << 30))};
  return gpu_call_over(n, "llvm.smax", gpu_i32t(n), a, 2);
}

// Coordinates are compared as constants, with the other side less the thread's
// part: LLVM would keep all of them in registers, outside of the loop.
static bool compare_coord(Gpu *n, const Op *op, const FragMap *m, V *e) {
  Cg *g = n->g;
  if ((op->code != OP_LT && op->code != OP_LE) ||
      gpu_arg_type(n, op, 0)->dtype != DT_I32)
    return false;
  uint32_t side = spread_coord(n, op->args[0]) ? 0 : 1;
  const Op *coord = spread_coord(n, op->args[side]);
  if (!coord) return false;
  uint32_t axis = (uint32_t)ir_attr_i(coord, AT_POS, 0);
  V part = thread_part(n, m, axis);
  const Frag *f = gpu_frag(n, op->args[1 - side]);
  LLVMIntPredicate p = op->code == OP_LT ? LLVMIntSLT : LLVMIntSLE;
  for (uint32_t i = 0; i < m->regs; i++) {
    V k = gpu_i32(n, reg_part(m, axis, i));
    V y = gpu_elem(n, f, i);
    if (side) y = not_least(n, y);
    y = e_isub(g, y, part);
    e[i] = side ? e_icmp(g, p, y, k) : e_icmp(g, p, k, y);
  }
  return true;
}

// Two masks of a tile.
static bool conjunction(Gpu *n, const Op *op, Frag *r, V *e) {
  const Type *t = gpu_res_type(n, op);
  if (op->code != OP_AND || t->dtype != DT_BOOL || t->slice != SLICE_NONE ||
      !n->vendor->both)
    return false;
  const Frag *a = gpu_frag(n, op->args[0]), *b = gpu_frag(n, op->args[1]);
  if (gpu_bits_of_both(n, a, b, r)) return true;
  for (uint32_t i = 0; i < r->map.regs; i++) {
    V y = gpu_elem(n, b, i);
    e[i] = n->vendor->both(n, gpu_elem(n, a, i), y);
  }
  return true;
}

void gpu_elementwise(Gpu *n, const Op *op) {
  Cg *g = n->g;
  const Type *t = gpu_res_type(n, op);
  if (t->kind != TK_FRAG) {
    g->val[op->res[0]] = quotient(n, op, element(n, op, 1));
    return;
  }
  if (gpu_wave_tile(n, op)) return;
  Frag r = gpu_new(n, t);
  bool cast = op->code == OP_CAST;
  const Frag *from = cast ? gpu_frag(n, op->args[0]) : NULL;
  bool within = ir_attr_i(op, AT_INBOUNDS, 0);
  if ((cast && (cast_pairs(n, from, &r, within) || gpu_widen(n, from, &r))) ||
      flip_pairs(n, op, &r) || select_words(n, op, &r) ||
      tanh_tile(n, op, &r)) {
    gpu_define(n, op->res[0], r);
    return;
  }
  V *e = NEWN(&g->cx->scratch, V, r.map.regs);
  bool done = gpu_bits_of_limit(n, op, &r) || gpu_bits_of_table(n, op, &r) ||
              compare_coord(n, op, &r.map, e) || conjunction(n, op, &r, e);
  for (uint32_t i = 0; !done && i < r.map.regs; i++) {
    for (uint32_t k = 0; k < op->nargs; k++)
      if (is_frag(n, op->args[k]))
        g->val[op->args[k]] = gpu_elem(n, gpu_frag(n, op->args[k]), i);
    e[i] = element(n, op, i);
  }
  if (!r.bits) gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}

static void fill(Gpu *n, Value v, V x) {
  Frag r = gpu_new(n, ir_type(n->f, v));
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  for (uint32_t i = 0; i < r.map.regs; i++) e[i] = x;
  gpu_pack(n, &r, e);
  gpu_define(n, v, r);
}

void gpu_const(Gpu *n, const Op *op) {
  cg_op(n->g, op);
  if (is_frag(n, op->res[0])) fill(n, op->res[0], n->g->val[op->res[0]]);
}

void gpu_splat(Gpu *n, const Op *op) {
  fill(n, op->res[0], gpu_arg(n, op, 0));
}

// ---------------------------------------------------------------- coordinates
// The part of a coordinate of the thread with that number; digits of powers of
// two are bits.
static V share_of(Gpu *n, const FragMap *m, uint32_t axis, V id) {
  Cg *g = n->g;
  V sum = NULL;
  uint32_t unit = 1;
  for (uint32_t i = 0; i < m->nthr; i++) {
    Factor f = m->thr[i];
    if (f.axis == axis) {
      V d = LLVMBuildUDiv(g->b, id, gpu_i32(n, unit), "");
      if (unit * f.size < n->grp.threads)
        d = LLVMBuildURem(g->b, d, gpu_i32(n, f.size), "");
      sum = gpu_add(n, sum, gpu_mul(n, d, f.stride));
    }
    unit *= f.size;
  }
  return sum ? sum : gpu_i32(n, 0);
}

static V thread_part(Gpu *n, const FragMap *m, uint32_t axis) {
  return share_of(n, m, axis, n->grp.tid);
}

static uint32_t reg_part(const FragMap *m, uint32_t axis, uint32_t reg) {
  uint32_t at[2];
  frag_at(m, reg, 0, at);
  return at[axis];
}

V gpu_coord_thread(Gpu *n, const FragMap *m, uint32_t axis) {
  return thread_part(n, m, axis);
}

uint32_t gpu_coord_reg(const FragMap *m, uint32_t axis, uint32_t reg) {
  return reg_part(m, axis, reg);
}

V gpu_coord(Gpu *n, const FragMap *m, uint32_t axis, uint32_t reg) {
  V part = thread_part(n, m, axis);
  uint32_t k = reg_part(m, axis, reg);
  return k ? gpu_add(n, part, gpu_i32(n, k)) : part;
}

static Frag coordinates(Gpu *n, const Op *op, bool again) {
  Frag r = gpu_new(n, gpu_res_type(n, op));
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_POS, 0);
  bool read = n->vendor->thread_again && ir_attr_i(op, AT_REMAT, 0) &&
              n->grp.threads == n->out->threads;
  V id = read ? n->vendor->thread_again(n) : n->grp.tid;
  V part =
      op->code == OP_COORD_REG ? gpu_i32(n, 0) : share_of(n, &r.map, axis, id);
  if (again) part = n->vendor->anew(n, part);
  if (ir_attr_i(op, AT_ANEW, 0) && n->vendor->found)
    part = n->vendor->found(n, part);
  for (uint32_t i = 0; i < r.n; i++) {
    uint32_t reg = op->code == OP_COORD_THREAD ? 0 : reg_part(&r.map, axis, i);
    r.w[i] = gpu_add(n, part, gpu_i32(n, reg));
  }
  return r;
}

void gpu_coordinates(Gpu *n, const Op *op) {
  gpu_define(n, op->res[0], coordinates(n, op, false));
}

Frag gpu_coordinates_again(Gpu *n, const Op *op) {
  return coordinates(n, op, true);
}

void gpu_bcast(Gpu *n, const Op *op) {
  const Frag *s = gpu_frag(n, op->args[0]);
  uint32_t axis = gpu_arg_type(n, op, 0)->slice == SLICE_COL;
  Frag r = gpu_new(n, gpu_res_type(n, op));
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  for (uint32_t i = 0; i < r.map.regs; i++)
    e[i] = gpu_elem(n, s, frag_slice_reg(&r.map, &s->map, axis, i));
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}

// Registers have pairs of columns, which stay together.
void gpu_fcols(Gpu *n, const Op *op) {
  const Frag *x = gpu_frag(n, op->args[0]);
  Frag r = gpu_new(n, gpu_res_type(n, op));
  uint32_t at[2], thread, reg;
  for (uint32_t i = 0; i < r.n; i++) {
    frag_at(&r.map, i * r.per, 0, at);
    at[1] += (uint32_t)ir_attr_i(op, AT_POS, 0);
    frag_find(&x->map, at, &thread, &reg);
    r.w[i] = x->w[reg / x->per];
  }
  gpu_define(n, op->res[0], r);
}

// ---------------------------------------------------------------- reductions
V gpu_join(Gpu *n, RKind k, V x, V y) {
  Cg *g = n->g;
  V a[2] = {x, y};
  LLVMTypeRef t = cg_of(x);
  LLVMTypeKind kind = LLVMGetTypeKind(t);
  bool fp = kind == LLVMFloatTypeKind || kind == LLVMDoubleTypeKind;
  switch (k) {
  case RK_SUM: return fp ? e_add(g, x, y) : e_iadd(g, x, y);
  case RK_PROD: return fp ? e_mul(g, x, y) : LLVMBuildMul(g->b, x, y, "");
  case RK_ANY: return e_or(g, x, y);
  case RK_ALL: return e_and(g, x, y);
  default: break;
  }
  bool larger = k == RK_MAX;
  if (!fp) return gpu_call_over(n, larger ? "llvm.smax" : "llvm.smin", t, a, 2);
  V r = gpu_call_over(n, larger ? "llvm.maximum" : "llvm.minimum", t, a, 2);
  LLVMSetFastMathFlags(r, LLVMFastMathNoSignedZeros);
  return r;
}

V gpu_identity(Gpu *n, RKind k, DType t) {
  LLVMTypeRef lt = cg_scalar(n->g, t);
  bool fp = dtype_is_float(t), max = k == RK_MAX;
  if (k == RK_MAX || k == RK_MIN) {
    if (fp) return cg_fconst(n->g, lt, max ? -INFINITY : INFINITY);
    int64_t top = t == DT_I64 ? INT64_MAX : INT32_MAX;
    return cg_iconst(n->g, lt, max ? -top - 1 : top);
  }
  double one = k == RK_PROD || k == RK_ALL;
  return fp ? cg_fconst(n->g, lt, one) : cg_iconst(n->g, lt, (int64_t)one);
}

// Joins over the threads that hold parts: lanes by exchange, warps through
// shared memory.
static V over_lanes(Gpu *n, RKind k, V x, uint32_t unit, uint32_t size) {
  for (uint32_t d = unit; d < unit * size; d *= 2)
    x = gpu_join(n, k, x, gpu_shuffle(n, x, d));
  return x;
}

// Threads that differ in a digit.
typedef struct Digit {
  uint32_t unit, size;
} Digit;

static V digit_of(Gpu *n, Digit d) {
  V q = LLVMBuildUDiv(n->g->b, n->grp.tid, gpu_i32(n, d.unit), "");
  return LLVMBuildURem(n->g->b, q, gpu_i32(n, d.size), "");
}

// The thread's number among those that differ in more than `same`.
static V number_of(Gpu *n, Digit same) {
  V low = LLVMBuildURem(n->g->b, n->grp.tid, gpu_i32(n, same.unit), "");
  V high = LLVMBuildUDiv(n->g->b, n->grp.tid,
                         gpu_i32(n, (int64_t)same.unit * same.size), "");
  return gpu_add(n, low, gpu_mul(n, high, same.unit));
}

// Values next to each other, so that accesses are wide, and a gap against
// conflicts of banks.
enum { GAP = 16 };

// Joins what the values of digit d hold. Threads that differ in `same` hold the
// same, and write it to one place. As many values at a time as there is room.
static void over_warps(Gpu *n, RKind k, V *x, uint32_t count, Digit d,
                       Digit same) {
  Cg *g = n->g;
  LLVMTypeRef t = cg_of(x[0]), i32 = gpu_i32t(n);
  bool bit =
      LLVMGetTypeKind(t) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(t) == 1;
  uint32_t size = bit || t == i32 || t == LLVMFloatTypeInContext(g->lc) ? 4 : 8;
  uint32_t threads = n->grp.threads / same.size, most = count;
  uint32_t gap = count > 1 ? GAP : 0;
  while (threads * (most * size + gap) > n->scratch && most > 1)
    most = (most + 1) / 2;
  assert(threads * (most * size + gap) <= n->scratch);
  uint32_t row = most * size + gap;
  V base = gpu_scratch(n, threads * row), me = number_of(n, same);
  V mine = gpu_add(n, base, gpu_mul(n, me, row));
  V first = LLVMBuildSub(g->b, me,
                         gpu_mul(n, digit_of(n, d), d.unit / same.size), "");
  first = gpu_add(n, base, gpu_mul(n, first, row));
  for (uint32_t at = 0; at < count; at += most) {
    uint32_t end = count - at < most ? count : at + most;
    gpu_sync(n);
    for (uint32_t i = at; i < end; i++) {
      V y = bit ? LLVMBuildZExt(g->b, x[i], i32, "") : x[i];
      V to = gpu_add(n, mine, gpu_i32(n, (i - at) * size));
      LLVMBuildStore(g->b, y, gpu_shared(n, to));
      x[i] = NULL;
    }
    gpu_sync(n);
    for (uint32_t j = 0; j < d.size; j++)
      for (uint32_t i = at; i < end; i++) {
        V from = gpu_add(n, first,
                         gpu_i32(n, j * (d.unit / same.size) * row +
                                        (i - at) * size));
        V y = LLVMBuildLoad2(g->b, bit ? i32 : t, gpu_shared(n, from), "");
        x[i] = x[i] ? gpu_join(n, k, x[i], y) : y;
      }
    for (uint32_t i = at; i < end && bit; i++)
      x[i] = LLVMBuildTrunc(g->b, x[i], t, "");
  }
}

// The tile's thread digits along `axis`: those a slice is replicated over.
static void combine(Gpu *n, RKind k, V *x, uint32_t count, const FragMap *tile,
                    uint32_t axis) {
  uint32_t unit = 1, wave = n->gpu.wave;
  Digit same = {1, 1};
  for (uint32_t i = 0; i < tile->nthr; i++) {
    Factor f = tile->thr[i];
    uint32_t end = unit * f.size, lanes = unit < wave ? unit : wave;
    uint32_t last = end < wave ? end : wave;
    if (f.axis == axis) {
      for (uint32_t j = 0; j < count && last > lanes; j++)
        x[j] = over_lanes(n, k, x[j], lanes, last / lanes);
      if (last > lanes) same = (Digit){lanes, last / lanes};
      uint32_t from = unit > wave ? unit : wave;
      if (end > from)
        over_warps(n, k, x, count, (Digit){from, end / from}, same);
    }
    unit = end;
  }
}

// A tile whose slice this is; any extent along the other axis has the same
// thread digits.
static FragMap tile_of(Gpu *n, const Type *slice) {
  Type t = *slice;
  uint32_t other = slice->ext[1] ? slice->ext[1] : 64;
  bool col = slice->slice == SLICE_COL;
  t.n = 2, t.slice = SLICE_NONE, t.partial = false;
  t.ext[0] = col ? other : slice->ext[0];
  t.ext[1] = col ? slice->ext[0] : other;
  FragMap m;
  // Rows of accumulators spread over all warps.
  if (col && !slice->ext[1])
    t.ext[0] = n->gpu.rows * (n->grp.threads / n->gpu.wave);
  const char *err = frag_map(&t, n->grp.threads, &m);
  assert(!err);
  (void)err;
  return m;
}

static void combine_all(Gpu *n, RKind k, Frag *r, const Type *slice) {
  FragMap tile = tile_of(n, slice);
  uint32_t axis = slice->slice == SLICE_COL ? AXIS_ROW : AXIS_COL;
  V *e = NEWN(&n->g->cx->scratch, V, r->map.regs);
  for (uint32_t i = 0; i < r->map.regs; i++) e[i] = gpu_elem(n, r, i);
  combine(n, k, e, r->map.regs, &tile, axis);
  gpu_pack(n, r, e);
}

// Warps have different parts of the axis.
static bool over_many_warps(const Gpu *n, const FragMap *m, uint32_t axis) {
  uint32_t unit = 1;
  bool many = false;
  for (uint32_t i = 0; i < m->nthr; i++) {
    unit *= m->thr[i].size;
    many |= m->thr[i].axis == axis && unit > n->gpu.wave;
  }
  return many;
}

// Extremes of integers are found in a warp by one instruction: lanes that hold
// the same do no harm.
static bool extreme(Gpu *n, RKind k, V *x, const FragMap *m, uint32_t axis) {
  uint32_t wave = n->gpu.wave, warps = n->grp.threads / wave;
  if (!n->vendor->extreme || (k != RK_MIN && k != RK_MAX) ||
      cg_of(*x) != gpu_i32t(n) || !warps)
    return false;
  *x = n->vendor->extreme(n, k == RK_MAX, *x);
  if (over_many_warps(n, m, axis))
    over_warps(n, k, x, 1, (Digit){wave, warps}, (Digit){1, wave});
  return true;
}

// A slice over its axis: a scalar.
static void reduce_slice(Gpu *n, const Op *op) {
  const Frag *x = gpu_frag(n, op->args[0]);
  RKind k = (RKind)ir_attr_i(op, AT_KIND, 0);
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_POS, 0);
  V v = gpu_elem(n, x, 0);
  for (uint32_t i = 1; i < x->map.regs; i++)
    v = gpu_join(n, k, v, gpu_elem(n, x, i));
  if (!extreme(n, k, &v, &x->map, axis)) combine(n, k, &v, 1, &x->map, axis);
  n->g->val[op->res[0]] = v;
}

// A chunk's gradients, of which more lives than a thread has registers: all is
// made element by element.
static bool is_lean_chunk(const Func *f) {
  int64_t n;
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_STEP &&
        dim_is_const(&f->mod->dims, f->axes.at[i].extent, &n))
      return ir_attr_i(ir_launch(f), AT_LEANER, 0);
  return false;
}

// The product whose elements a sum takes, where nothing else does: they need
// not be rounded on the way. NULL: none. Steps keep what they multiply no
// longer than they must.
static const Op *summed(Gpu *n, const Op *op) {
  Value v = op->args[0];
  const Op *mul = ir_def(n->f, v);
  bool free = !n->multiplies && !ir_has_steps(n->f);
  bool ok = mul && mul->code == OP_MUL && (free || is_lean_chunk(n->f)) &&
            ir_attr_i(op, AT_KIND, 0) == RK_SUM &&
            ir_type(n->f, v)->dtype == DT_F32 && ir_count_uses(n->f, v) == 1;
  return ok ? mul : NULL;
}

// With element i of the operand.
static V joined(Gpu *n, const Op *op, const Op *mul, V sum, uint32_t i) {
  const Frag *x = gpu_frag(n, op->args[0]);
  if (!mul)
    return gpu_join(n, (RKind)ir_attr_i(op, AT_KIND, 0), sum,
                    gpu_elem(n, x, i));
  V a[3] = {gpu_elem(n, gpu_frag(n, mul->args[0]), i),
            gpu_elem(n, gpu_frag(n, mul->args[1]), i), sum};
  return cg_intrinsic(n->g, "llvm.fma", cg_of(sum), a, 3);
}

void gpu_freduce(Gpu *n, const Op *op) {
  if (gpu_res_type(n, op)->kind != TK_FRAG) {
    reduce_slice(n, op);
    return;
  }
  const Type *t = gpu_res_type(n, op);
  const Frag *x = gpu_frag(n, op->args[0]);
  RKind k = (RKind)ir_attr_i(op, AT_KIND, 0);
  uint32_t keep = 1 - (uint32_t)ir_attr_i(op, AT_POS, 0);
  Frag r = gpu_new(n, t);
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  const Op *mul = summed(n, op);
  for (uint32_t i = 0; i < x->map.regs; i++) {
    uint32_t at = frag_slice_reg(&x->map, &r.map, keep, i);
    e[at] = e[at] ? joined(n, op, mul, e[at], i) : gpu_elem(n, x, i);
  }
  gpu_pack(n, &r, e);
  if (!t->partial) {
    FragMap tile = x->map;
    combine(n, k, e, r.map.regs, &tile, 1 - keep);
    gpu_pack(n, &r, e);
  }
  gpu_define(n, op->res[0], r);
}

void gpu_fcombine(Gpu *n, const Op *op) {
  const Frag *x = gpu_frag(n, op->args[0]);
  Frag r = gpu_new(n, gpu_res_type(n, op));
  memcpy(r.w, x->w, r.n * sizeof *r.w);
  combine_all(n, (RKind)ir_attr_i(op, AT_KIND, 0), &r, gpu_res_type(n, op));
  gpu_define(n, op->res[0], r);
}

void gpu_vote(Gpu *n, const Op *op) {
  const Frag *x = gpu_frag(n, op->args[0]);
  RKind k = (RKind)ir_attr_i(op, AT_KIND, 0);
  V r = x->w[0];
  for (uint32_t i = 1; i < x->n; i++) r = gpu_join(n, k, r, x->w[i]);
  r = n->vendor->vote(n, k == RK_ANY, r);
  uint32_t warp = n->gpu.wave, warps = n->grp.threads / warp;
  if (warps > 1 && !ir_attr_i(op, AT_WARP, 0))
    over_warps(n, k, &r, 1, (Digit){warp, warps}, (Digit){1, warp});
  n->g->val[op->res[0]] = r;
}

// Of floats that are not negative the order is that of their bits, and negative
// ones are less as integers, too: a maximum of integers takes three operands.
// Unsigned, the largest is the negative one that is farthest from 0, if any is.
static V beyond(Gpu *n, const Op *op, uint32_t arg) {
  Cg *g = n->g;
  const Frag *x = gpu_frag(n, op->args[0]), *limit = gpu_frag(n, op->args[arg]);
  V *most = NEWN(&g->cx->scratch, V, limit->map.regs), any = NULL;
  LLVMTypeRef i32 = gpu_i32t(n);
  bool above = arg == 1;
  const char *name = above ? "llvm.smax" : "llvm.umax";
  for (uint32_t i = 0; i < x->map.regs; i++) {
    uint32_t at = frag_slice_reg(&x->map, &limit->map, 0, i);
    V a[2] = {most[at], LLVMBuildBitCast(g->b, gpu_elem(n, x, i), i32, "")};
    most[at] = a[0] ? gpu_call_over(n, name, i32, a, 2) : a[1];
  }
  for (uint32_t i = 0; i < limit->map.regs; i++) {
    V l = gpu_elem(n, limit, i);
    V may = e_cmp(g, LLVMRealULT, l, e_f(g, l, 0));
    V bits = LLVMBuildBitCast(g->b, above ? l : e_neg(g, e_abs(g, l)), i32, "");
    LLVMIntPredicate p = above ? LLVMIntSGT : LLVMIntUGT;
    V over = e_or(g, may, e_icmp(g, p, most[i], bits));
    any = any ? e_or(g, any, over) : over;
  }
  return any;
}

void gpu_exceeds(Gpu *n, const Op *op) {
  V any = beyond(n, op, 1);
  if (op->nargs > 2) any = e_or(n->g, any, beyond(n, op, 2));
  n->g->val[op->res[0]] = n->vendor->vote(n, true, any);
}

// Threads that hold the same elements store them once: those whose replicated
// digits are 0.
V gpu_owner(Gpu *n, const FragMap *m) {
  Cg *g = n->g;
  V mine = NULL;
  uint32_t unit = 1;
  for (uint32_t i = 0; i < m->nthr; i++) {
    if (m->thr[i].axis == AXIS_NONE) {
      V d = LLVMBuildUDiv(g->b, n->grp.tid, gpu_i32(n, unit), "");
      d = LLVMBuildURem(g->b, d, gpu_i32(n, m->thr[i].size), "");
      V first = e_icmp(g, LLVMIntEQ, d, gpu_i32(n, 0));
      mine = mine ? e_and(g, mine, first) : first;
    }
    unit *= m->thr[i].size;
  }
  return mine;
}

// Coordinates of what is stored are those of what was loaded first of all: LLVM
// would keep them, and 64 bits wide, through the loops between. So it would
// those of what a loop loads, where nobody says that they are made anew.
static bool is_again(const Gpu *n, const Op *op, const Op *coord) {
  if (!coord || coord->code != OP_COORD || !n->vendor->anew) return false;
  bool store = op->code == OP_GSTORE, alone = n->grp.threads == n->out->threads;
  if (ir_attr_i(coord, AT_REMAT, 0) && (alone || !store)) return true;
  return store && (gpu_lean(n) || ir_attr_i(ir_launch(n->f), AT_LEANER, 0));
}

Frag gpu_index_of(Gpu *n, const Op *op, Value v) {
  const Op *coord = ir_def(n->f, v);
  return is_again(n, op, coord) ? gpu_coordinates_again(n, coord)
                                : *gpu_frag(n, v);
}
