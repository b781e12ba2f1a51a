// Tensors in device memory, on AMD: gload and gstore whose indices are scalars,
// and at most one coordinate of rows and one of columns. They are accesses of
// buffers: offsets of 32 bits from a base that is the same for all threads; out
// of range they read 0 and write nothing, without branch or comparison. All
// else is done as on every GPU (codegen/gpu/mem.c). Boxes that are copied to
// shared memory directly are the same accesses, without registers.
#include "codegen/amd/amd.h"

enum {
  MOST = 0x70000000,          // bytes that offsets reach
  FEW = 8,                    // offsets of a load that may be kept
  LONG = 32,                  // registers of a slice
  SPARE = 1 << 12,            // coordinates that a tile is beyond an extent
  OUTSIDE = -0x7fffffff - 1,  // an offset that is out of range
  // Of a descriptor: offsets are bytes, compared with the size.
  RAW = 0x27000,
  RAW_RDNA = 0x31004000,
};

// The index along an axis of the tensor: uniform plus the coordinate of a
// slice.
typedef struct Index {
  int pos;    // axis of the tensor, -1: none
  V uniform;  // i32 or NULL
  const FragMap *map;
} Index;

typedef struct Access {
  const Op *op;
  Value of;           // the tensor
  uint32_t lo, rank;  // indices are operands lo ..
  const Type *tensor, *value;
  FragMap map;       // of the value
  Index at[2];       // along rows and columns of the value
  uint32_t k, step;  // elements of an access, registers apart
  bool unit;         // columns lie one behind the other
  V base;            // pointer to global memory, or a descriptor
  V shift, size[2];  // i32: uniform bytes; bytes of a step along axes
  V bytes;           // i32: of what is in range
  V thread;          // i32: bytes of this thread
} Access;

// ---------------------------------------------------------------- form
static bool split(Gpu *n, Value v, V *uniform) {
  const Op *op = ir_def(n->f, v);
  if (!op) return false;
  if (op->code == OP_COORD) return true;
  if (op->code != OP_ADD && op->code != OP_SUB) return false;
  for (uint32_t i = 0; i < 2; i++) {
    const Op *s = ir_def(n->f, op->args[1 - i]);
    if (!s || s->code != OP_SPLAT || (op->code == OP_SUB && i)) continue;
    if (!split(n, op->args[i], uniform)) return false;
    V x = n->g->val[s->args[0]];
    if (!x) return true;  // not printed yet: only the form is asked for
    if (op->code == OP_SUB) x = LLVMBuildNeg(n->g->b, x, "");
    *uniform = gpu_add(n, *uniform, x);
    return true;
  }
  return false;
}

static int64_t extent(const Gpu *n, const Access *a, int pos) {
  int64_t e = 0;
  dim_is_const(&n->f->mod->dims, a->tensor->size[pos], &e);
  return e;
}

static void choose_run(Gpu *n, Access *a) {
  uint32_t size = (uint32_t)dtype_size(a->value->dtype);
  int pos = a->at[1].pos;
  a->k = a->step = 1;
  a->unit = pos >= 0 && pos == (int)a->rank - 1 && a->map.regs > 1;
  if (pos < 0 || pos != (int)a->rank - 1 || a->value->dtype == DT_BOOL) return;
  const Op *op = ir_def(n->f, a->op->args[a->lo + pos]);
  if (!op || op->code != OP_COORD) return;
  a->k = gpu_run(&a->map, AXIS_COL, &a->step);
  int64_t e = extent(n, a, pos);
  while (a->k > 1 && (a->k * size > 16 || !e || e % a->k)) a->k /= 2;
}

// Whole rows of a tensor, to shared memory.
static bool box_form(Gpu *n, const Op *op, Access *a) {
  const int64_t *axis = ir_attr(op, AT_TILE)->list;
  *a = (Access){.op = op,
                .of = op->args[1],
                .lo = 2,
                .unit = true,
                .tensor = gpu_arg_type(n, op, 1),
                .value = gpu_arg_type(n, op, 0)};
  a->rank = a->tensor->n;
  for (uint32_t i = 0; i < 2; i++)
    a->at[i] = (Index){.pos = (int)axis[i],
                       .uniform = n->g->val[op->args[2 + axis[i]]]};
  return true;
}

// False: the access has another form.
static bool form(Gpu *n, const Op *op, Access *a) {
  bool load = op->code == OP_GLOAD;
  if (op->code == OP_CP_ASYNC) return box_form(n, op, a);
  *a = (Access){.op = op,
                .of = op->args[0],
                .lo = load ? 1 : 2,
                .at = {{.pos = -1}, {.pos = -1}}};
  a->tensor = gpu_arg_type(n, op, 0);
  a->value = load ? gpu_res_type(n, op) : gpu_arg_type(n, op, 1);
  a->rank = a->tensor->n;
  if (a->value->kind != TK_FRAG || frag_map(a->value, n->grp.threads, &a->map))
    return false;
  for (uint32_t i = 0; i < a->rank; i++) {
    Value v = op->args[a->lo + i];
    const Type *t = ir_type(n->f, v);
    if (t->kind != TK_FRAG) continue;
    Index *x = &a->at[t->slice == SLICE_COL];
    if (t->slice == SLICE_NONE || x->pos >= 0 || !split(n, v, &x->uniform))
      return false;
    x->pos = (int)i;
  }
  choose_run(n, a);
  return a->at[0].pos >= 0 || a->at[1].pos >= 0;
}

// ---------------------------------------------------------------- conditions
static V field(Gpu *n, const Access *a, uint32_t i) {
  return gpu_tensor(n, a->of, i);
}
static V shape(Gpu *n, const Access *a, int i) {
  return field(n, a, 1 + (uint32_t)i);
}
static V stride(Gpu *n, const Access *a, int i) {
  return gpu_mul(n, field(n, a, 1 + a->rank + (uint32_t)i),
                 dtype_size(a->tensor->dtype));
}

// Which of rows and columns is the outer axis of the tensor, whose extent
// bounds offsets; and the other's axis, -1: there is none.
static uint32_t outer(const Access *a) {
  int r = a->at[0].pos, c = a->at[1].pos;
  return r < 0 || (c >= 0 && c < r);
}
static int inner(const Access *a) {
  return a->at[1 - outer(a)].pos;
}

// ---- the same where kernels are launched
typedef struct Dense {
  Gpu *n;
  CgExpr all;
} Dense;

static CgExpr bin(const Dense *d, CgExpr x, attn_xop op, CgExpr y) {
  return cg_expr_bin(d->n->g->cx, x, op, y);
}
static CgExpr number(const Dense *d, int64_t v) {
  return cg_expr_const(d->n->g->cx, v);
}

// Of the workspace, over the module's dims.
static CgExpr own_word(const Dense *d, const Type *t, bool extent, int axis) {
  const DimTab *dims = &d->n->f->mod->dims;
  if (extent) return cg_expr_dim(d->n->g->cx, dims, t->size[axis]);
  CgExpr x = number(d, 1);
  for (uint32_t k = (uint32_t)axis + 1; k < t->n; k++)
    x = bin(d, x, ATTN_X_MUL, cg_expr_dim(d->n->g->cx, dims, t->size[k]));
  return x;
}

static CgExpr word_of(const Dense *d, const Access *a, attn_xop op, int axis) {
  uint32_t nth = 0;
  if (gpu_is_shared(d->n, a->of))
    return own_word(d, a->tensor, op == ATTN_X_SHAPE, axis);
  for (uint32_t i = 0; i < d->n->f->params.n; i++) {
    Value v = d->n->f->params.at[i].v;
    if (v == a->of) break;
    nth += ir_type(d->n->f, v)->kind == TK_TENSOR &&
           d->n->f->params.at[i].role != PR_SHARED;
  }
  return cg_expr_axis(d->n->g->cx, op, nth, (uint32_t)axis);
}

static CgExpr both(const Dense *d, CgExpr x, CgExpr y) {
  return x.n ? bin(d, x, ATTN_X_AND, y) : y;
}

// Offsets fit, rows do not overlap, columns are dense where it matters: of
// strides in elements, which are 1 where there is but one (as in `prepare`).
static CgExpr allowed(const Dense *d, const Access *a) {
  int o = a->at[outer(a)].pos, c = inner(a);
  CgExpr one = number(d, 1), all = {0}, least = one;
  CgExpr rows = word_of(d, a, ATTN_X_SHAPE, o);
  CgExpr by = word_of(d, a, ATTN_X_STRIDE, o);
  if (c >= 0) {
    CgExpr cols = word_of(d, a, ATTN_X_SHAPE, c);
    CgExpr step = word_of(d, a, ATTN_X_STRIDE, c);
    all = bin(d, number(d, 0), ATTN_X_LE, step);
    least = bin(d, bin(d, cols, ATTN_X_MUL, step), ATTN_X_MAX, one);
  }
  CgExpr reach = bin(d, rows, ATTN_X_ADD, number(d, SPARE));
  reach = bin(d, reach, ATTN_X_MUL, bin(d, by, ATTN_X_MAX, least));
  int64_t most = MOST / (int64_t)dtype_size(a->tensor->dtype);
  all = both(d, all, bin(d, reach, ATTN_X_LT, number(d, most)));
  CgExpr apart = bin(d, bin(d, rows, ATTN_X_LE, one), ATTN_X_OR,
                     bin(d, least, ATTN_X_LE, by));
  all = both(d, all, apart);
  if (!a->unit) return all;
  CgExpr step = word_of(d, a, ATTN_X_STRIDE, a->at[1].pos);
  return both(d, all, bin(d, step, ATTN_X_EQ, one));
}

// The conditions of many accesses are the same.
static bool has(const Dense *d, CgExpr x) {
  for (uint32_t i = 0; i + x.n <= d->all.n; i++)
    if (!memcmp(d->all.at + i, x.at, x.n * sizeof *x.at)) return true;
  return false;
}

static void note_access(void *data, Op *op) {
  Dense *d = data;
  Access a;
  if (op->code != OP_GLOAD && op->code != OP_GSTORE && op->code != OP_CP_ASYNC)
    return;
  if (!form(d->n, op, &a)) return;
  CgExpr x = allowed(d, &a);
  if (!has(d, x)) d->all = both(d, d->all, x);
}

CgExpr amd_dense(Gpu *n) {
  Dense d = {.n = n};
  ir_walk(n->f->body, note_access, &d);
  return d.all;
}

// ---------------------------------------------------------------- addresses
static V narrow(Gpu *n, V x) {
  return LLVMBuildIntCast2(n->g->b, x, gpu_i32t(n), 1, "");
}

static void make_base(Gpu *n, Access *a, V at) {
  Cg *g = n->g;
  LLVMTypeRef p8 = LLVMPointerTypeInContext(g->lc, 8);
  LLVMTypeRef over[2] = {p8, LLVMPointerTypeInContext(g->lc, 1)};
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc);
  V x[4] = {gpu_global(n, at),
            LLVMConstInt(LLVMInt16TypeInContext(g->lc), 0, 0),
            LLVMBuildZExt(g->b, a->bytes, i64, ""),
            gpu_i32(n, n->gpu.wave == 64 ? RAW : RAW_RDNA)};
  static const char name[] = "llvm.amdgcn.make.buffer.rsrc";
  unsigned id = LLVMLookupIntrinsicID(name, sizeof name - 1);
  V f = LLVMGetIntrinsicDeclaration(g->mod, id, over, 2);
  LLVMTypeRef t = LLVMIntrinsicGetType(g->lc, id, over, 2);
  a->base = LLVMBuildCall2(g->b, t, f, x, 4, "");
}

// Bytes from a row, or column, to the next. That of a single row may be
// anything: it becomes the row's own.
static V step_of(Gpu *n, const Access *a, uint32_t i) {
  Cg *g = n->g;
  int64_t size = (int64_t)dtype_size(a->tensor->dtype);
  if (i == AXIS_COL && a->unit) return gpu_i32(n, size);
  V by = narrow(n, stride(n, a, a->at[i].pos));
  if (i != outer(a)) return by;
  V row = gpu_i32(n, size), one = gpu_i64(n, 1);
  if (inner(a) >= 0) {
    V cols = shape(n, a, inner(a));
    V step = narrow(n, stride(n, a, inner(a)));
    V wide = LLVMBuildMul(g->b, narrow(n, cols), step, "");
    row = e_sel(g, e_icmp(g, LLVMIntSGT, cols, one), wide, row);
  }
  V many = e_icmp(g, LLVMIntSGT, shape(n, a, a->at[i].pos), one);
  return e_sel(g, many, by, row);
}

static void prepare(Gpu *n, Access *a) {
  Cg *g = n->g;
  V at = field(n, a, 0), ok = NULL;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc);
  for (int i = 0; i < (int)a->rank; i++) {
    if (i == a->at[0].pos || i == a->at[1].pos) continue;
    V x = n->g->val[a->op->args[a->lo + (uint32_t)i]];
    V wide = LLVMBuildSExt(g->b, x, i64, "");
    at = e_iadd(g, at, LLVMBuildMul(g->b, wide, stride(n, a, i), ""));
    V in = e_icmp(g, LLVMIntULT, x, narrow(n, shape(n, a, i)));
    ok = ok ? e_and(g, ok, in) : in;
  }
  for (uint32_t i = 0; i < 2; i++) {
    if (a->at[i].pos < 0) continue;
    a->size[i] = step_of(n, a, i);
    if (!a->at[i].uniform) continue;
    a->shift = gpu_add(n, a->shift,
                       LLVMBuildMul(g->b, a->at[i].uniform, a->size[i], ""));
  }
  uint32_t o = outer(a);
  a->bytes =
      LLVMBuildMul(g->b, narrow(n, shape(n, a, a->at[o].pos)), a->size[o], "");
  if (ok) a->bytes = e_sel(g, ok, a->bytes, gpu_i32(n, 0));
  make_base(n, a, at);
}

// This thread's first element.
static void own(Gpu *n, Access *a) {
  for (uint32_t i = 0; i < 2; i++) {
    if (a->at[i].pos < 0) continue;
    V x = gpu_coord(n, &a->map, i ? AXIS_COL : AXIS_ROW, 0);
    a->thread = gpu_add(n, a->thread, LLVMBuildMul(n->g->b, x, a->size[i], ""));
  }
}

// Where the inner axis may be beyond its extent: whether that of a register is
// not.
static V inside(Gpu *n, const Access *a, uint32_t reg) {
  uint32_t i = 1 - outer(a);
  const Index *c = &a->at[i];
  const Type *t = a->value;
  if (c->pos < 0) return NULL;
  int64_t wide = t->ext[t->slice ? 0 : i], known = extent(n, a, c->pos);
  if (!c->uniform && known >= wide) return NULL;
  V x = gpu_coord(n, &a->map, i ? AXIS_COL : AXIS_ROW, reg);
  V end = narrow(n, shape(n, a, c->pos));
  return e_icmp(n->g, LLVMIntULT, gpu_add(n, x, c->uniform), end);
}

// Offset of a register; OUTSIDE where it is not in range or not `ok`.
static V offset(Gpu *n, const Access *a, uint32_t reg, V ok) {
  Cg *g = n->g;
  uint32_t at[2];
  frag_at(&a->map, reg, 0, at);
  V shift = a->shift;
  for (uint32_t i = 0; i < 2; i++)
    if (a->at[i].pos >= 0 && at[i])
      shift = gpu_add(n, shift, gpu_mul(n, a->size[i], at[i]));
  V x = gpu_add(n, a->thread, shift), in = inside(n, a, reg);
  if (in) ok = ok ? e_and(g, ok, in) : in;
  return ok ? e_sel(g, ok, x, gpu_i32(n, OUTSIDE)) : x;
}

// ---------------------------------------------------------------- accesses
static LLVMTypeRef bits(Gpu *n, uint32_t bytes) {
  LLVMTypeRef i32 = gpu_i32t(n);
  if (bytes > 4) return LLVMVectorType(i32, bytes / 4);
  return LLVMIntTypeInContext(n->g->lc, 8 * bytes);
}

static V load(Gpu *n, const Access *a, V off, uint32_t bytes) {
  V zero = gpu_i32(n, 0), x[4] = {a->base, off, zero, zero};
  return gpu_call_over(n, "llvm.amdgcn.raw.ptr.buffer.load", bits(n, bytes), x,
                       4);
}

static void store(Gpu *n, const Access *a, V off, V v) {
  V zero = gpu_i32(n, 0), x[5] = {v, a->base, off, zero, zero};
  gpu_call_over(n, "llvm.amdgcn.raw.ptr.buffer.store", cg_of(v), x, 5);
}

// The elements of k registers as one value and back; a bool is a byte.
static V pack(Gpu *n, const Frag *x, uint32_t reg, const Access *a) {
  Cg *g = n->g;
  uint32_t size = (uint32_t)dtype_size(x->dtype);
  LLVMTypeRef e = LLVMIntTypeInContext(g->lc, 8 * size);
  V v = LLVMGetPoison(LLVMVectorType(e, a->k));
  for (uint32_t j = 0; j < a->k; j++) {
    V y = gpu_elem(n, x, reg + j * a->step);
    y = x->dtype == DT_BOOL ? LLVMBuildZExt(g->b, y, e, "")
                            : LLVMBuildBitCast(g->b, y, e, "");
    if (a->k == 1) return LLVMBuildBitCast(g->b, y, bits(n, size), "");
    v = LLVMBuildInsertElement(g->b, v, y, gpu_i32(n, j), "");
  }
  return LLVMBuildBitCast(g->b, v, bits(n, a->k * size), "");
}

static void unpack(Gpu *n, V v, DType t, const Access *a, V *e) {
  Cg *g = n->g;
  LLVMTypeRef i = LLVMIntTypeInContext(g->lc, 8 * (uint32_t)dtype_size(t));
  if (a->k > 1 || dtype_size(t) == 8)
    v = LLVMBuildBitCast(g->b, v, a->k > 1 ? LLVMVectorType(i, a->k) : i, "");
  for (uint32_t j = 0; j < a->k; j++) {
    V x = a->k > 1 ? LLVMBuildExtractElement(g->b, v, gpu_i32(n, j), "") : v;
    e[j * a->step] = t == DT_BOOL
                         ? e_icmp(g, LLVMIntNE, x, e_i(g, x, 0))
                         : LLVMBuildBitCast(g->b, x, cg_scalar(g, t), "");
  }
}

// ---------------------------------------------------------------- ops
// Any form: indices are hidden from LLVM, which would hoist the address of
// every element out of loops.
static void generally(Gpu *n, const Op *op, uint32_t lo, GpuEmit *emit) {
  Frag *saved = NEWN(&n->g->cx->scratch, Frag, op->nargs + 1);
  for (uint32_t i = lo; i < op->nargs; i++) {
    Frag *x = gpu_frag(n, op->args[i]);
    saved[i] = *x;
    if (gpu_arg_type(n, op, i)->dtype != DT_I32 ||
        gpu_arg_type(n, op, i)->kind != TK_FRAG)
      continue;
    x->w = NEWN(&n->g->cx->scratch, V, x->n + 1);
    for (uint32_t k = 0; k < x->n; k++)
      x->w[k] = gpu_asm(n, gpu_i32t(n), "", "=v,0", &saved[i].w[k], 1);
  }
  emit(n, op);
  for (uint32_t i = op->nargs; i-- > lo;) *gpu_frag(n, op->args[i]) = saved[i];
}

// Offsets are found here: those that an access in front of a loop has too, or
// many that do not vary with the loop, would lie in registers all the time.
static void anew(Gpu *n, Access *a) {
  a->thread = gpu_asm(n, gpu_i32t(n), "", "=v,0", &a->thread, 1);
}

// Where registers are scarce long slices are not asked for ahead.
static void in_turn(Gpu *n, const Access *a) {
  bool scarce =
      n->gpu.wave == 32 && ir_attr_i(ir_launch(n->f), AT_OCCUPANCY, 0) == 1;
  if (!scarce || a->value->slice != SLICE_COL || a->map.regs < LONG) return;
  V none = gpu_i32(n, 0);
  gpu_call(n, "llvm.amdgcn.sched.barrier", &none, 1);
}

void amd_gload(Gpu *n, const Op *op) {
  Access a;
  if (!n->dense || !form(n, op, &a)) {
    generally(n, op, 1, gpu_gload);
    return;
  }
  prepare(n, &a);
  own(n, &a);
  in_turn(n, &a);
  if (a.map.regs / a.k > FEW) anew(n, &a);
  Frag r = gpu_new(n, a.value);
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  uint32_t bytes = a.k * (uint32_t)dtype_size(r.dtype);
  for (uint32_t i = 0; i < r.map.regs; i++)
    if (i / a.step % a.k == 0)
      unpack(n, load(n, &a, offset(n, &a, i, NULL), bytes), r.dtype, &a, e + i);
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}

void amd_gstore(Gpu *n, const Op *op) {
  Access a;
  bool masked = ir_attr_i(op, AT_MASKED, 0);
  if (ir_attr_i(op, AT_ADD, 0) || !n->dense || !form(n, op, &a)) {
    generally(n, op, 2, gpu_gstore);
    return;
  }
  if (masked) a.k = a.step = 1;
  prepare(n, &a);
  own(n, &a);
  anew(n, &a);
  const Frag *x = gpu_frag(n, op->args[1]);
  V mine = gpu_owner(n, &x->map);
  for (uint32_t i = 0; i < x->map.regs; i++) {
    if (i / a.step % a.k) continue;
    V ok = mine;
    if (masked) {
      V m = gpu_elem(n, gpu_frag(n, op->args[op->nargs - 1]), i);
      ok = ok ? e_and(n->g, ok, m) : m;
    }
    V word = pack(n, x, i, &a);
    store(n, &a, offset(n, &a, i, ok), word);
  }
}

// ---------------------------------------------------------------- copies
// A wave's loads lie in shared memory as its lanes do: where the tile swizzles
// its chunks, lanes ask for them in that order. Rows outside become 0.
void amd_cp_async(Gpu *n, const Op *op) {
  Cg *g = n->g;
  Access a;
  if (!n->dense) {
    diag_add(g->cx, DIAG_cg_input, op->span, n->f->name,
             "cp_async needs a launch with dense = true");
    g->failed = true;
    return;
  }
  form(n, op, &a);
  prepare(n, &a);
  const Type *t = a.value;
  Tile s = gpu_tile(n, op->args[0]);
  uint32_t pitch = smem_panel_bytes(t), panel = pitch * t->ext[0];
  uint32_t lane = n->gpu.direct, all = lane * n->grp.threads,
           per = pitch / lane;
  V row = LLVMBuildUDiv(g->b, n->grp.tid, gpu_i32(n, per), "");
  V place = LLVMBuildURem(g->b, n->grp.tid, gpu_i32(n, per), "");
  V chunk =
      gpu_offset(n, t, row, gpu_mul(n, place, lane / dtype_size(t->dtype)));
  chunk = e_isub(g, chunk, gpu_mul(n, row, pitch));
  a.thread = gpu_add(n, LLVMBuildMul(g->b, row, a.size[0], ""), chunk);
  anew(n, &a);
  V wave = gpu_mul(n, n->warp, (int64_t)lane * n->gpu.wave),
    zero = gpu_i32(n, 0);
  for (uint32_t at = 0; at < smem_slot_bytes(t); at += all) {
    V off = gpu_add(n, a.thread, a.shift);
    off = gpu_add(n, off, gpu_mul(n, a.size[0], at % panel / pitch));
    off = gpu_add(n, off, gpu_i32(n, at / panel * pitch));
    V to = gpu_tile_byte(n, s, gpu_add(n, wave, gpu_i32(n, at)));
    V x[7] = {a.base, to, gpu_i32(n, lane), off, zero, zero, zero};
    V load = gpu_call(n, "llvm.amdgcn.raw.ptr.buffer.load.lds", x, 7);
    amd_apart(n, load, "alias.scope");
  }
}
