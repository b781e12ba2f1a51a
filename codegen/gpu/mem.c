// Tensors in device memory: gload and gstore of scalars and fragments. Every
// access is predicated by its bounds.
#include "codegen/gpu/gpu.h"
#include "codegen/gpu/runs.h"

#include "ir/pressure.h"

// The part of an address that one index gives, and whether it is in range.
typedef struct Part {
  V off, ok;  // bytes (i64); i1 or NULL
} Part;

typedef struct Access {
  const Op *op;
  uint32_t lo, rank;  // indices are operands lo .. lo + rank - 1
  Value tensor;
  bool inbounds;
  bool rows;          // of `quads`, as if rows were: see fills_blocks
  V base;             // address of element 0, i64
  V *shape, *stride;  // i32; bytes, i64
  Part **part;        // per index: one, or one per register of its slice
} Access;

// Coordinates of a tile that the tensor has whatever its dims: no comparison,
// which would keep each of them in a register.
static bool is_within(const Gpu *n, const Access *a, uint32_t axis) {
  Value v = a->op->args[a->lo + axis];
  const Op *coord = ir_def(n->f, v);
  const Type *t = ir_type(n->f, v);
  int64_t size;
  bool asked = n->leanest || ir_type(n->f, a->tensor)->quads;
  return asked && coord && coord->code == OP_COORD &&
         dim_is_const(&n->f->mod->dims, ir_type(n->f, a->tensor)->size[axis],
                      &size) &&
         t->ext[0] <= size;
}

static V bits_at(Gpu *n, V x, uint32_t from, int64_t mask, int64_t times) {
  V b = e_and(n->g, e_shr(n->g, x, from), gpu_i32(n, mask));
  return gpu_mul(n, b, times);
}

// Workspace in `quads`: of each 16 rows, 8 columns after 8, a thread of an
// `acc` tile after the other has its two columns of two rows. Elements in front
// of those of that row or column.
static V quad_offset(Gpu *n, const Access *a, bool row, V index) {
  enum { BLOCK = 16, STRIP = 8, QUAD = 4, PAIR_OF = 2 };
  Cg *g = n->g;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc);
  const Type *t = ir_type(n->f, a->tensor);
  int64_t cols = 0;
  dim_is_const(&n->f->mod->dims, t->size[t->n - 1], &cols);
  if (!row) {
    V pair = bits_at(n, index, 1, 3, QUAD), one = bits_at(n, index, 0, 1, 1);
    V far = gpu_mul(n, e_shr(g, index, 3), BLOCK * STRIP);
    V in = gpu_add(n, pair, one);
    return LLVMBuildSExt(g->b, gpu_add(n, far, in), i64, "");
  }
  V low = bits_at(n, index, 0, 7, STRIP * PAIR_OF);
  V high = bits_at(n, index, 3, 1, PAIR_OF), in = gpu_add(n, low, high);
  V far = LLVMBuildSExt(g->b, e_shr(g, index, 4), i64, "");
  far = gpu_mul(n, far, BLOCK * cols);
  in = LLVMBuildSExt(g->b, in, i64, "");
  return gpu_add(n, far, in);
}

static Part part_of(Gpu *n, const Access *a, uint32_t axis, V index) {
  Cg *g = n->g;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc);
  Part p = {0};
  const Type *t = ir_type(n->f, a->tensor);
  if (t->quads && !a->rows && axis + 2 >= t->n) {
    V at = quad_offset(n, a, axis + 2 == t->n, index);
    p.off = gpu_mul(n, at, (int64_t)dtype_size(t->dtype));
  } else {
    V wide = LLVMBuildSExt(g->b, index, i64, "");
    p.off = LLVMBuildMul(g->b, wide, a->stride[axis], "");
  }
  // One unsigned comparison: a negative index is large.
  if (!a->inbounds && !is_within(n, a, axis))
    p.ok = e_icmp(g, LLVMIntULT, index, a->shape[axis]);
  return p;
}

// What is written back at the end of a task was read at its start. Addresses
// that both have in common would lie in registers all the time between; so
// would those of tiles that a task hands on one after the other.
static V apart(Gpu *n, const Op *op, V stride) {
  bool back = op->code == OP_GSTORE && n->multiplies && !n->gpu.hopper &&
              gpu_is_shared(n, op->args[0]);
  for (uint32_t i = 0; op->code == OP_GSTORE && i < n->f->params.n; i++)
    back |= n->f->params.at[i].v == op->args[0] &&
            n->f->params.at[i].role == PR_INOUT;
  return back && n->vendor->anew ? n->vendor->anew(n, stride) : stride;
}

// What groups with a producer read of a recurrence as tiles of few registers is
// inside whatever the launch is: else ptxas has so many in flight with one
// predicate that it spills, as with stores, and single steps take longer
// (docs/lab/2026-11-registers.md).
static bool has_one_predicate(const Gpu *n, const Op *op) {
  enum { FEW = 64 };
  bool producer = n->grp.threads != n->out->threads;
  return producer && ir_has_steps(n->f) && op->code == OP_GLOAD &&
         pressure_of(gpu_res_type(n, op), n->grp.threads) <= FEW;
}

// The extent that an index along `axis` is compared with. What is not given has
// extents of 0: some index is compared with the launch's, coordinates of a tile
// with what all launches have in common.
static V extent(Gpu *n, const Access *a, uint32_t axis) {
  const Type *t = ir_type(n->f, a->tensor);
  const Value *index = a->op->args + a->lo;
  bool tile = ir_type(n->f, index[axis])->kind == TK_FRAG, launch = false;
  for (uint32_t i = 0; i < a->rank; i++)
    launch |= ir_type(n->f, index[i])->kind != TK_FRAG;
  int64_t size;
  if (tile && launch && has_one_predicate(n, a->op) &&
      dim_is_const(&n->f->mod->dims, t->size[axis], &size))
    return gpu_i32(n, size);
  return LLVMBuildTrunc(n->g->b, gpu_tensor(n, a->tensor, 1 + axis),
                        gpu_i32t(n), "");
}

// Whole blocks of columns of `quads` from a scalar on: where it is, or 0.
static Value first_column(const Gpu *n, const Access *a, uint32_t axis) {
  const Type *t = ir_type(n->f, a->tensor);
  const Op *op = ir_def(n->f, a->op->args[a->lo + axis]);
  int64_t size;
  if (!t->quads || a->rows || axis + 1 != t->n || !op || op->code != OP_ADD)
    return 0;
  const Op *coord = ir_def(n->f, op->args[0]);
  const Op *from = ir_def(n->f, op->args[1]);
  uint32_t cols = ir_type(n->f, op->args[0])->ext[0];
  bool whole = coord && coord->code == OP_COORD && from &&
               from->code == OP_SPLAT &&
               dim_is_const(&n->f->mod->dims, t->size[axis], &size) &&
               cols % HW_BLOCK == 0 && size % cols == 0 &&
               gpu_is_multiple(n, from->args[0], cols);
  return whole ? from->args[0] : 0;
}

// What a scalar adds to the addresses of columns, and whether these are there,
// is the same for all.
static void add_first(Gpu *n, const Access *a, uint32_t axis, Value from,
                      Part *p, uint32_t count) {
  Cg *g = n->g;
  const Type *t = ir_type(n->f, a->tensor);
  V x = g->val[from], in = e_icmp(g, LLVMIntULT, x, a->shape[axis]);
  V off = quad_offset(n, a, false, x);
  off = gpu_mul(n, off, (int64_t)dtype_size(t->dtype));
  for (uint32_t i = 0; i < count; i++)
    p[i] = (Part){.off = gpu_add(n, p[i].off, off), .ok = in};
}

static void parts(Gpu *n, Access *a, uint32_t axis) {
  Value v = a->op->args[a->lo + axis], from = first_column(n, a, axis);
  bool frag = ir_type(n->f, v)->kind == TK_FRAG;
  Frag f = {.n = 1, .w = &n->g->val[v]};
  if (frag) f = gpu_index_of(n, a->op, from ? ir_def(n->f, v)->args[0] : v);
  a->part[axis] = NEWN(&n->g->cx->scratch, Part, f.n);
  for (uint32_t i = 0; i < f.n; i++)
    a->part[axis][i] = part_of(n, a, axis, f.w[i]);
  if (from) add_first(n, a, axis, from, a->part[axis], f.n);
}

// One number for all of whole blocks of `quads`: in which order is all the
// same.
static bool fills_blocks(const Gpu *n, const Op *op, const Type *t) {
  enum { BLOCK = 16 };
  const Op *x = op->code == OP_GSTORE ? ir_def(n->f, op->args[1]) : NULL;
  if (!t->quads || !x || x->code != OP_CONST || ir_attr_i(op, AT_ADD, 0) ||
      ir_attr_i(op, AT_MASKED, 0))
    return false;
  const Type *v = ir_type(n->f, op->args[1]);
  Value row = op->args[t->n], col = op->args[1 + t->n];
  int64_t cols;
  return v->kind == TK_FRAG && v->ext[0] % BLOCK == 0 &&
         ir_type(n->f, row)->slice == SLICE_ROW &&
         gpu_is_multiple(n, row, BLOCK) && gpu_is_multiple(n, col, v->ext[1]) &&
         dim_is_const(&n->f->mod->dims, t->size[t->n - 1], &cols) &&
         cols == v->ext[1];
}

static Access access(Gpu *n, const Op *op, uint32_t lo) {
  Arena *ar = &n->g->cx->scratch;
  Access a = {.op = op, .lo = lo, .tensor = op->args[0]};
  const Type *t = ir_type(n->f, a.tensor);
  a.rank = t->n;
  a.rows = fills_blocks(n, op, t);
  a.inbounds = ir_attr_i(op, AT_INBOUNDS, 0);
  a.base = gpu_tensor(n, a.tensor, 0);
  a.shape = NEWN(ar, V, a.rank + 1);
  a.stride = NEWN(ar, V, a.rank + 1);
  a.part = NEWN(ar, Part *, a.rank + 1);
  for (uint32_t i = 0; i < a.rank; i++) {
    a.shape[i] = extent(n, &a, i);
    a.stride[i] = gpu_mul(n, gpu_tensor(n, a.tensor, 1 + a.rank + i),
                          dtype_size(t->dtype));
    a.stride[i] = apart(n, op, a.stride[i]);
    parts(n, &a, i);
  }
  return a;
}

// Which register of index `axis` belongs to register reg of the value.
static uint32_t reg_of(Gpu *n, const Access *a, uint32_t axis,
                       const FragMap *whole, uint32_t reg) {
  Value v = a->op->args[a->lo + axis];
  if (ir_type(n->f, v)->kind != TK_FRAG) return 0;
  const Frag *f = gpu_frag(n, v);
  FragSlice s = ir_type(n->f, v)->slice;
  uint32_t at[2], thread, r;
  frag_at(whole, reg, 0, at);
  if (s == SLICE_ROW) at[1] = 0;
  if (s == SLICE_COL) at[0] = 0;
  frag_find(&f->map, at, &thread, &r);
  return r;
}

// Address and predicate of one register of the value (NULL: a scalar).
static Part place(Gpu *n, const Access *a, const FragMap *whole, uint32_t reg) {
  Part all = {.off = a->base};
  for (uint32_t i = 0; i < a->rank; i++) {
    Part p = a->part[i][whole ? reg_of(n, a, i, whole, reg) : 0];
    all.off = gpu_add(n, all.off, p.off);
    if (p.ok) all.ok = all.ok ? e_and(n->g, all.ok, p.ok) : p.ok;
  }
  if (!all.ok) all.ok = LLVMConstInt(LLVMInt1TypeInContext(n->g->lc), 1, 0);
  return all;
}

// ---------------------------------------------------------------- instructions
// Bytes travel in 16-bit registers.
static uint32_t bits_of(DType t) {
  return dtype_size(t) == 1 ? 16 : 8 * (uint32_t)dtype_size(t);
}

static V to_bits(Gpu *n, V v, DType t) {
  Cg *g = n->g;
  LLVMTypeRef want = LLVMIntTypeInContext(g->lc, bits_of(t));
  if (t == DT_F32 || t == DT_TF32 || t == DT_F64)
    return LLVMBuildBitCast(g->b, v, want, "");
  return dtype_size(t) == 1 ? LLVMBuildZExt(g->b, v, want, "") : v;
}

static V from_bits(Gpu *n, V v, DType t) {
  Cg *g = n->g;
  if (t == DT_BOOL) return e_icmp(g, LLVMIntNE, v, e_i(g, v, 0));
  LLVMTypeRef want = cg_scalar(g, t);
  if (t == DT_F32 || t == DT_TF32 || t == DT_F64)
    return LLVMBuildBitCast(g->b, v, want, "");
  return dtype_size(t) == 1 ? LLVMBuildTrunc(g->b, v, want, "") : v;
}

static V load_bits(Gpu *n, Part p, DType t) {
  return n->vendor->load(n, p.off, p.ok, (uint32_t)dtype_size(t));
}

static V load(Gpu *n, Part p, DType t) {
  return from_bits(n, load_bits(n, p, t), t);
}

static void store(Gpu *n, Part p, V v, DType t) {
  n->vendor->store(n, p.off, p.ok, to_bits(n, v, t), (uint32_t)dtype_size(t));
}

// ---------------------------------------------------------------- columns
// A slice along the columns of `acc` is the same in the eight threads of a warp
// that have rows in common with it: each loads an eighth of a thread's
// registers, rounded up, and they hand them round. Threads 4 r + p have the
// columns 8 (j / 2) + 2 p + j % 2 in registers j.
enum { ROWS = 8, PAIR = 2, ROW_THREADS = 4, MOST_SHARE = 64, WORD = 4 };

static uint32_t share_of(uint32_t regs) {
  return (regs + ROWS - 1) / ROWS;
}

// The index that is a run, if all others are scalars; -1: none.
static int run_of(const Gpu *n, const Access *a, const Type *t) {
  int at = -1;
  // What a phase before has found is near: loads that nothing waits for yet.
  if (gpu_is_shared(n, a->tensor)) return -1;
  for (uint32_t i = 0; i < a->rank; i++) {
    Value v = a->op->args[a->lo + i];
    if (ir_type(n->f, v)->kind != TK_FRAG) continue;
    if (at >= 0 || !gpu_is_run(n, v)) return -1;
    at = (int)i;
  }
  bool ok = n->vendor->from_lane && t->slice == SLICE_COL && !t->partial &&
            t->layout == LY_ACC && n->grp.threads % 32 == 0 &&
            dtype_size(t->dtype) <= 4;
  return ok ? at : -1;
}

// The column that is `col` behind the thread's first one.
static V column_load(Gpu *n, const Access *a, uint32_t axis, DType t, V col) {
  Cg *g = n->g;
  V first = gpu_frag(n, a->op->args[a->lo + axis])->w[0];
  Part p = part_of(n, a, axis, gpu_add(n, first, col));
  for (uint32_t k = 0; k < a->rank; k++) {
    if (k == axis) continue;
    p.off = gpu_add(n, p.off, a->part[k][0].off);
    V ok = a->part[k][0].ok;
    if (ok) p.ok = p.ok ? e_and(g, p.ok, ok) : ok;
  }
  p.off = gpu_add(n, p.off, a->base);
  if (!p.ok) p.ok = LLVMConstInt(LLVMInt1TypeInContext(g->lc), 1, 0);
  V x = load_bits(n, p, t);
  return LLVMBuildZExt(g->b, x, gpu_i32t(n), "");
}

// The column that this thread loads as number i of its share. Where shares are
// more than there is, the last threads load the last column again.
static V shared_column(Gpu *n, V row, uint32_t regs, uint32_t i) {
  Cg *g = n->g;
  uint32_t share = share_of(regs);
  if (share % PAIR == 0 && share * ROWS == regs) {
    V col = gpu_mul(n, row, (int64_t)(share / PAIR) * ROWS);
    col = gpu_add(n, col, gpu_i32(n, i / PAIR * ROWS + i % PAIR));
    return col;
  }
  V of[2] = {gpu_add(n, gpu_mul(n, row, share), gpu_i32(n, i)),
             gpu_i32(n, regs - 1)};
  V reg = gpu_call_over(n, "llvm.smin", gpu_i32t(n), of, 2);
  V col = gpu_mul(n, e_shr(g, reg, 1), ROWS);
  return gpu_add(n, col, e_and(g, reg, gpu_i32(n, PAIR - 1)));
}

// Columns that are only compared with values of rows become words of bits: lane
// 8 p + e has register e, e + 8 .. of threads 4 r + p.
static bool load_words(Gpu *n, const Access *a, uint32_t axis, DType t,
                       Frag *r) {
  Cg *g = n->g;
  uint32_t share = share_of(r->map.regs);
  V lane = n->grp.lane, x[4];
  bool even = share % PAIR == 0 && share * ROWS == r->map.regs;
  Value rows = even && share <= 4 ? gpu_compared_rows(n, a->op) : 0;
  if (!rows) return false;
  V to = gpu_mul(n, e_shr(g, lane, 3), PAIR),
    e = e_and(g, lane, gpu_i32(n, ROWS - 1));
  V from = gpu_mul(n, e_and(g, lane, gpu_i32(n, ROW_THREADS - 1)), PAIR);
  to = gpu_add(n, to, gpu_mul(n, e_shr(g, e, 1), ROWS));
  to = gpu_add(n, to, e_and(g, e, gpu_i32(n, 1)));
  V col = e_isub(g, to, from);
  for (uint32_t i = 0; i < share; i++)
    x[i] = column_load(n, a, axis, t,
                       gpu_add(n, col, gpu_i32(n, i * ROWS * ROWS / PAIR)));
  gpu_bits_of_equal(n, x, share, rows, r);
  return true;
}

static void load_columns(Gpu *n, const Access *a, uint32_t axis, DType t,
                         uint32_t regs, V *e) {
  Cg *g = n->g;
  uint32_t share = share_of(regs);
  V lane = n->grp.lane, x[MOST_SHARE];
  V row = e_shr(g, lane, 2), pos = e_and(g, lane, gpu_i32(n, ROW_THREADS - 1));
  for (uint32_t i = 0; i < share; i++)
    x[i] = column_load(n, a, axis, t, shared_column(n, row, regs, i));
  for (uint32_t j = 0; j < regs; j++) {
    uint32_t rest = j / share * ROW_THREADS;
    FromLane from = {gpu_add(n, pos, gpu_i32(n, rest)), ROW_THREADS - 1, rest};
    V v = n->vendor->from_lane(n, x[j % share], from);
    LLVMTypeRef bits = LLVMIntTypeInContext(g->lc, bits_of(t));
    e[j] = from_bits(n, LLVMBuildTrunc(g->b, v, bits, ""), t);
  }
}

// ---------------------------------------------------------------- pieces
// Eight columns of `lin` that lie together in memory, at an address that is a
// multiple of 16, and inside, travel 16 bytes at a time. Whether they do is
// known when it runs, but for workspace (`laid`). Where there are products too
// they wait in registers, of which both ways take too many.
enum { WIDE = 16 };

// The index along which registers of a piece follow one another, or -1.
static bool has_pieces(DType t) {
  int64_t size = (int64_t)dtype_size(t);
  return t != DT_BOOL && (size == 1 || size == 2 || size == 4);
}

static int piece_axis(const Gpu *n, const Access *a, const Type *t,
                      uint32_t regs) {
  int at = -1;
  if (ir_type(n->f, a->tensor)->quads && !a->rows) return -1;
  if (t->layout != LY_LIN || t->slice == SLICE_ROW || t->partial ||
      regs % GPU_PIECE || !has_pieces(t->dtype))
    return -1;
  for (uint32_t i = 0; i < a->rank; i++) {
    Value v = a->op->args[a->lo + i];
    const Type *s = ir_type(n->f, v);
    if (s->kind != TK_FRAG || s->slice == SLICE_ROW) continue;
    Going way = gpu_going(n, v);
    if (at >= 0 || (way != GO_NEXT && way != GO_CUT)) return -1;
    at = (int)i;
  }
  return at;
}

// Bytes that travel at once: a piece of bytes is half of the widest access.
static uint32_t wide(DType t) {
  uint32_t n = GPU_PIECE * (uint32_t)dtype_size(t);
  return n < WIDE ? n : WIDE;
}

// No bound has cut the piece that begins at register reg. NULL: there is none.
static V is_whole(Gpu *n, const Access *a, int axis, const FragMap *m,
                  uint32_t reg) {
  Value v = a->op->args[a->lo + (uint32_t)axis];
  if (ir_type(n->f, v)->slice != SLICE_NONE) return NULL;
  const Frag *f = gpu_frag(n, v);
  V first = f->w[reg_of(n, a, (uint32_t)axis, m, reg)];
  V last = f->w[reg_of(n, a, (uint32_t)axis, m, reg + GPU_PIECE - 1)];
  return e_icmp(n->g, LLVMIntEQ, last,
                gpu_add(n, first, gpu_i32(n, GPU_PIECE - 1)));
}

// Is a piece of the load inside or outside of the tensor as a whole?
static bool is_sure(const Gpu *n, const Access *a, int axis) {
  Value v = a->op->args[a->lo + (uint32_t)axis];
  const Type *t = ir_type(n->f, a->tensor);
  int64_t size;
  return n->vendor->load4 && a->op->code == OP_GLOAD &&
         wide(t->dtype) == WIDE && gpu_going(n, v) == GO_NEXT &&
         dim_is_const(&n->f->mod->dims, t->size[axis], &size) &&
         size % GPU_PIECE == 0 && gpu_begins_pieces(n, v);
}

typedef struct Piece {
  const Access *a;
  const FragMap *map;
  uint32_t reg;  // its first one
  int axis;
  Part first;
  V near;      // its address, where they lie side by side
  V together;  // they can travel so
  V in;        // NULL, or: all of it is inside, else nothing
  V index;     // of the first along the axis; NULL: bounds may cut pieces
  V others;    // other indices are in range
} Piece;

static V and_of(Gpu *n, V x, V y) {
  return x && y ? e_and(n->g, x, y) : x ? x : y;
}

// Element i of the piece. Its address and its bound are made of the first one's
// where it travels alone: elsewhere they would only keep registers.
static Part element(Gpu *n, const Piece *p, uint32_t i) {
  Cg *g = n->g;
  if (!p->index) return place(n, p->a, p->map, p->reg + i);
  if (i == 0) return p->first;
  V stride = p->a->stride[p->axis];
  Part e = {.off = gpu_add(n, p->first.off, gpu_mul(n, stride, i)),
            .ok = p->in};
  if (e.ok) return e;
  V at = gpu_add(n, p->index, gpu_i32(n, i));
  if (p->a->part[p->axis][0].ok)
    e.ok = e_icmp(g, LLVMIntULT, at, p->a->shape[p->axis]);
  e.ok = and_of(n, e.ok, p->others);
  if (!e.ok) e.ok = LLVMConstInt(LLVMInt1TypeInContext(g->lc), 1, 0);
  return e;
}

static V others_in(Gpu *n, const Access *a, const FragMap *m, uint32_t reg,
                   int axis) {
  V ok = NULL;
  for (uint32_t i = 0; i < a->rank; i++)
    if ((int)i != axis)
      ok = and_of(n, ok, a->part[i][reg_of(n, a, i, m, reg)].ok);
  return ok;
}

// Address of the piece's other indices.
static V row_of(Gpu *n, const Piece *p) {
  V off = p->a->base;
  for (uint32_t i = 0; i < p->a->rank; i++) {
    uint32_t reg = reg_of(n, p->a, i, p->map, p->reg);
    if ((int)i != p->axis) off = gpu_add(n, off, p->a->part[i][reg].off);
  }
  return off;
}

// Its address with that stride along the axis: a product for whoever goes that
// way.
static V at_stride(Gpu *n, const Piece *p, V stride) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(n->g->lc);
  V wide = LLVMBuildSExt(n->g->b, p->index, i64, "");
  V far = LLVMBuildMul(n->g->b, wide, stride, "");
  return gpu_add(n, row_of(n, p), far);
}

static V beside(Gpu *n, const Piece *p) {
  DType t = ir_type(n->f, p->a->tensor)->dtype;
  return at_stride(n, p, gpu_i64(n, (int64_t)dtype_size(t)));
}

// On the side where the elements travel alone.
static void part_ways(Gpu *n, Piece *p) {
  if (p->index) p->first.off = at_stride(n, p, p->a->stride[p->axis]);
}

static Piece piece_of(Gpu *n, const Access *a, const FragMap *m, uint32_t reg,
                      int axis) {
  Cg *g = n->g;
  Piece p = {.a = a, .map = m, .reg = reg, .axis = axis};
  Value v = a->op->args[a->lo + (uint32_t)axis];
  DType t = ir_type(n->f, a->tensor)->dtype;
  p.first = place(n, a, m, reg);
  p.near = p.first.off;
  if (gpu_going(n, v) == GO_NEXT) {
    p.index = gpu_frag(n, v)->w[reg_of(n, a, (uint32_t)axis, m, reg)];
    p.others = others_in(n, a, m, reg, axis);
    p.near = beside(n, &p);
  }
  V size = gpu_i64(n, (int64_t)dtype_size(t)), last = gpu_i64(n, wide(t) - 1);
  V unit = e_icmp(g, LLVMIntEQ, a->stride[axis], size);
  V low = e_icmp(g, LLVMIntEQ, e_and(g, p.near, last), gpu_i64(n, 0));
  p.together = e_and(g, unit, low);
  if (is_sure(n, a, axis)) {
    p.in = p.first.ok;
    return p;
  }
  p.together = e_and(g, p.together,
                     e_and(g, p.first.ok, element(n, &p, GPU_PIECE - 1).ok));
  V whole = is_whole(n, a, axis, m, reg);
  if (whole) p.together = e_and(g, p.together, whole);
  return p;
}

typedef struct Fork {
  LLVMBasicBlockRef yes, no, done;
} Fork;

static Fork fork_at(Gpu *n, V c) {
  Cg *g = n->g;
  LLVMValueRef f = LLVMGetBasicBlockParent(LLVMGetInsertBlock(g->b));
  Fork k = {LLVMAppendBasicBlockInContext(g->lc, f, ""),
            LLVMAppendBasicBlockInContext(g->lc, f, ""),
            LLVMAppendBasicBlockInContext(g->lc, f, "")};
  LLVMBuildCondBr(g->b, c, k.yes, k.no);
  LLVMPositionBuilderAtEnd(g->b, k.yes);
  return k;
}

// Ends one side of the fork; the builder goes to `next`.
static LLVMBasicBlockRef side(Gpu *n, const Fork *k, LLVMBasicBlockRef next) {
  LLVMBasicBlockRef end = LLVMGetInsertBlock(n->g->b);
  LLVMBuildBr(n->g->b, k->done);
  LLVMPositionBuilderAtEnd(n->g->b, next);
  return end;
}

static V wide_address(Gpu *n, V off, uint32_t i) {
  LLVMTypeRef p = LLVMPointerTypeInContext(n->g->lc, 1);
  V at = gpu_add(n, off, gpu_i64(n, (int64_t)i * WIDE));
  return LLVMBuildIntToPtr(n->g->b, at, p, "");
}

static LLVMTypeRef wide_type(Gpu *n, DType t) {
  return LLVMVectorType(gpu_i32t(n), wide(t) / 4);
}

// An element in memory, and in a register of its own.
static LLVMTypeRef memory_type(Gpu *n, DType t) {
  return LLVMIntTypeInContext(n->g->lc, 8 * (uint32_t)dtype_size(t));
}

static V as_memory(Gpu *n, V bits, DType t) {
  return LLVMBuildTruncOrBitCast(n->g->b, bits, memory_type(n, t), "");
}

static V as_register(Gpu *n, V x, DType t) {
  LLVMTypeRef bits = LLVMIntTypeInContext(n->g->lc, bits_of(t));
  return LLVMBuildZExtOrBitCast(n->g->b, x, bits, "");
}

static LLVMTypeRef piece_type(Gpu *n, DType t) {
  LLVMTypeRef e = memory_type(n, t);
  return LLVMVectorType(e, wide(t) / (uint32_t)dtype_size(t));
}

// 16 bytes, or none of a piece that is outside.
static V load_wide(Gpu *n, V off, V in, DType t) {
  Cg *g = n->g;
  V x[4], v = LLVMGetUndef(wide_type(n, t));
  n->vendor->load4(n, off, in, x);
  for (uint32_t k = 0; k < 4; k++)
    v = LLVMBuildInsertElement(g->b, v, x[k], gpu_i32(n, k), "");
  return LLVMBuildBitCast(g->b, v, piece_type(n, t), "");
}

// Part i of a piece that travels together.
static V load_together(Gpu *n, const Piece *p, uint32_t i, DType t) {
  Cg *g = n->g;
  V off = p->near;
  if (p->in)
    return load_wide(n, gpu_add(n, off, gpu_i64(n, (int64_t)i * WIDE)), p->in,
                     t);
  V v = LLVMBuildLoad2(g->b, wide_type(n, t), wide_address(n, off, i), "");
  LLVMSetAlignment(v, wide(t));
  return LLVMBuildBitCast(g->b, v, piece_type(n, t), "");
}

// `count` pieces, all of them together or element by element.
static void load_pieces(Gpu *n, Piece *p, uint32_t count, DType t, V *e) {
  Cg *g = n->g;
  uint32_t of = wide(t) / (uint32_t)dtype_size(t),
           parts = count * (GPU_PIECE / of);
  V *yes = NEWN(&g->cx->scratch, V, parts),
    *no = NEWN(&g->cx->scratch, V, parts);
  V together = p->together;
  for (uint32_t i = 1; i < count; i++)
    together = e_and(g, together, p[i].together);
  Fork k = fork_at(n, together);
  for (uint32_t i = 0; i < parts; i++)
    yes[i] = load_together(n, p + i * of / GPU_PIECE, i % (GPU_PIECE / of), t);
  LLVMBasicBlockRef from[2] = {side(n, &k, k.no)};
  for (uint32_t i = 0; i < count; i++) part_ways(n, p + i);
  for (uint32_t i = 0; i < parts; i++) {
    no[i] = LLVMGetUndef(piece_type(n, t));
    for (uint32_t j = 0; j < of; j++) {
      uint32_t at = i * of + j;
      V x = load_bits(n, element(n, p + at / GPU_PIECE, at % GPU_PIECE), t);
      no[i] = LLVMBuildInsertElement(g->b, no[i], as_memory(n, x, t),
                                     gpu_i32(n, j), "");
    }
  }
  from[1] = side(n, &k, k.done);
  for (uint32_t i = 0; i < parts; i++) {
    V x[2] = {yes[i], no[i]};
    yes[i] = LLVMBuildPhi(g->b, piece_type(n, t), "");
    LLVMAddIncoming(yes[i], x, from, 2);
  }
  for (uint32_t i = 0; i < count * GPU_PIECE; i++) {
    V x = LLVMBuildExtractElement(g->b, yes[i / of], gpu_i32(n, i % of), "");
    e[i] = from_bits(n, as_register(n, x, t), t);
  }
}

// Bounds cut few pieces, mostly none of a task's: one branch for all. Beside
// products there is no room for more.
static void load_all(Gpu *n, const Access *a, const FragMap *m, int axis,
                     DType t, V *e) {
  Value index = a->op->args[a->lo + (uint32_t)axis];
  bool cut = ir_type(n->f, index)->slice == SLICE_NONE;
  uint32_t count = m->regs / GPU_PIECE;
  uint32_t each = cut || n->multiplies ? count : 1;
  Piece *p = NEWN(&n->g->cx->scratch, Piece, each);
  for (uint32_t i = 0; i < count; i++) {
    p[i % each] = piece_of(n, a, m, i * GPU_PIECE, axis);
    if ((i + 1) % each == 0)
      load_pieces(n, p, each, t, e + (i + 1 - each) * GPU_PIECE);
  }
}

// ---------------------------------------------------------------- laid
// Workspace begins at multiples of 64 bytes. Rows of whole pieces do at
// multiples of 16, and a piece is inside or outside of them. Code that keeps
// few registers loads what it needs, one by one.
static bool is_laid(const Gpu *n, const Access *a, int axis) {
  bool lean = n->multiplies && ir_attr_i(ir_launch(n->f), AT_LEANER, 0);
  return !lean && gpu_is_shared(n, a->tensor) &&
         (uint32_t)axis == a->rank - 1 && is_sure(n, a, axis);
}

static void load_laid(Gpu *n, const Access *a, const FragMap *m, DType t,
                      V *e) {
  Cg *g = n->g;
  uint32_t of = WIDE / (uint32_t)dtype_size(t);
  for (uint32_t i = 0; i < m->regs; i += of) {
    Part p = place(n, a, m, i / GPU_PIECE * GPU_PIECE);
    V at = gpu_add(n, p.off, gpu_i64(n, (int64_t)(i % GPU_PIECE / of) * WIDE));
    V v = load_wide(n, at, p.ok, t);
    for (uint32_t k = 0; k < of; k++)
      e[i + k] =
          from_bits(n, LLVMBuildExtractElement(g->b, v, gpu_i32(n, k), ""), t);
  }
}

// ---------------------------------------------------------------- quads
// Do registers of a tile lie in pairs there? Both are inside, or none.
static bool in_pairs(const Gpu *n, const Access *a, const Type *t,
                     uint32_t regs) {
  Value col = a->op->args[a->lo + a->rank - 1];
  return ir_type(n->f, a->tensor)->quads && t->layout == LY_LIN && !t->slice &&
         !t->partial && regs % GPU_PIECE == 0 &&
         ir_type(n->f, col)->slice == SLICE_COL &&
         gpu_going(n, col) == GO_NEXT && gpu_begins_pieces(n, col);
}

// ---------------------------------------------------------------- ops
// May a tile be loaded in pieces? Code for those that travel together and for
// those that do not is twice as much: beside products where keys are read once,
// and a task waits for its rows, which are few words of a thread.
static bool in_pieces(const Gpu *n, const Access *a, int axis,
                      const FragMap *m) {
  enum { MOST_WORDS = 32 };
  if (axis < 0) return false;
  uint32_t bytes =
      m->regs * (uint32_t)dtype_size(ir_type(n->f, a->tensor)->dtype);
  return !n->multiplies || (ir_attr_i(ir_launch(n->f), AT_ONCE, 0) &&
                            is_sure(n, a, axis) && bytes <= 4 * MOST_WORDS);
}

// Is element i stored by this thread?
typedef struct Kept {
  V mine;          // or NULL: always
  const Frag *by;  // or NULL:
  V all;           // the same for all elements, or NULL
} Kept;

static V kept(Gpu *n, const Kept *k, uint32_t i, V ok) {
  Cg *g = n->g;
  if (k->by) ok = e_and(g, ok, gpu_elem(n, k->by, i));
  if (k->all) ok = e_and(g, ok, k->all);
  return k->mine ? e_and(g, ok, k->mine) : ok;
}

// What travels i-th, as words: registers are such where they have several
// elements.
static V stored(Gpu *n, const Piece *p, const Frag *x, uint32_t i) {
  Cg *g = n->g;
  DType t = ir_type(n->f, p->a->tensor)->dtype;
  uint32_t of = wide(t) / (uint32_t)dtype_size(t);
  bool words = x->per > 1 && x->per * dtype_size(t) == 4;
  uint32_t each = words ? x->per : 1;
  V v = LLVMGetUndef(words ? wide_type(n, t) : piece_type(n, t));
  for (uint32_t j = 0; j < of / each; j++) {
    uint32_t reg = p->reg + i * of + j * each;
    V b = words ? x->w[reg / each]
                : as_memory(n, to_bits(n, gpu_elem(n, x, reg), t), t);
    v = LLVMBuildInsertElement(g->b, v, b, gpu_i32(n, j), "");
  }
  return LLVMBuildBitCast(g->b, v, wide_type(n, t), "");
}

// `together` is of all that is kept.
static void store_piece(Gpu *n, Piece *p, const Frag *x, const Kept *k) {
  Cg *g = n->g;
  DType t = ir_type(n->f, p->a->tensor)->dtype;
  uint32_t of = wide(t) / (uint32_t)dtype_size(t);
  Fork f = fork_at(n, p->together);
  for (uint32_t i = 0; i < GPU_PIECE / of; i++) {
    V at = wide_address(n, p->near, i);
    V s = LLVMBuildStore(g->b, stored(n, p, x, i), at);
    LLVMSetAlignment(s, wide(t));
  }
  side(n, &f, f.no);
  part_ways(n, p);
  for (uint32_t i = 0; i < GPU_PIECE; i++) {
    Part one = element(n, p, i);
    one.ok = kept(n, k, p->reg + i, one.ok);
    store(n, one, gpu_elem(n, x, p->reg + i), t);
  }
  side(n, &f, f.done);
}

static void store_pieces(Gpu *n, const Access *a, const Frag *x, int axis,
                         const Kept *k) {
  for (uint32_t i = 0; i < x->map.regs; i += GPU_PIECE) {
    Piece p = piece_of(n, a, &x->map, i, axis);
    for (uint32_t j = 0; j < GPU_PIECE; j++)
      p.together = kept(n, k, i + j, p.together);
    store_piece(n, &p, x, k);
  }
}

static Kept kept_by(Gpu *n, const Op *op, const Frag *x) {
  Kept k = {.mine = x ? gpu_owner(n, &x->map) : n->grp.first};
  if (!ir_attr_i(op, AT_MASKED, 0)) return k;
  Value mask = op->args[op->nargs - 1];
  if (ir_type(n->f, mask)->kind == TK_FRAG) k.by = gpu_frag(n, mask);
  else k.all = n->g->val[mask];
  return k;
}

// How many registers of a tile, from each multiple of so many on, lie side by
// side in workspace, at a multiple of their size.
static uint32_t beside_each_other(const Gpu *n, const Access *a,
                                  const Type *t) {
  const Type *to = ir_type(n->f, a->tensor);
  if (!n->vendor->store_words || t->kind != TK_FRAG || t->layout != LY_ACC ||
      t->slice || !gpu_is_shared(n, a->tensor) || a->rank < 2)
    return 1;
  const Value *at = a->op->args + a->lo + a->rank - 2;
  const Type *row = ir_type(n->f, at[0]), *col = ir_type(n->f, at[1]);
  int64_t cols;
  if (col->kind != TK_FRAG || col->slice != SLICE_COL ||
      !gpu_is_run(n, at[1]) || !gpu_is_multiple(n, at[1], GPU_PIECE) ||
      !dim_is_const(&n->f->mod->dims, to->size[a->rank - 1], &cols) ||
      cols % GPU_PIECE)
    return 1;
  bool quads = to->quads && row->kind == TK_FRAG && row->slice == SLICE_ROW &&
               gpu_is_run(n, at[0]) && gpu_is_multiple(n, at[0], 2 * GPU_PIECE);
  return quads ? 2 * PAIR : PAIR;
}

// Is it known by the same comparisons that registers i and 0 are in range?
static bool same_range(Gpu *n, const Access *a, const FragMap *m, uint32_t i) {
  for (uint32_t k = 0; k < a->rank; k++) {
    V x = a->part[k][m ? reg_of(n, a, k, m, i) : 0].ok;
    if (x != a->part[k][m ? reg_of(n, a, k, m, 0) : 0].ok) return false;
  }
  return true;
}

// One branch where all are added or none.
static void add_up(Gpu *n, const Access *a, const Frag *x, const Kept *k) {
  const Type *t = gpu_arg_type(n, a->op, 1);
  uint32_t count = x ? x->map.regs : 1;
  uint32_t width = k->by || !n->gpu.hopper ? 1 : beside_each_other(n, a, t);
  Part *p = NEWN(&n->g->cx->scratch, Part, count);
  bool same = !k->by;
  for (uint32_t i = 0; i < count; i += width) {
    p[i] = place(n, a, x ? &x->map : NULL, i);
    p[i].ok = kept(n, k, i, p[i].ok);
    same &= same_range(n, a, x ? &x->map : NULL, i);
  }
  LLVMBasicBlockRef end = same ? gpu_if(n, p[0].ok) : NULL;
  for (uint32_t i = 0; i < count; i += width) {
    V v[2 * PAIR];
    for (uint32_t j = 0; j < width; j++)
      v[j] = x ? gpu_elem(n, x, i + j) : gpu_arg(n, a->op, 1);
    n->vendor->add(n, p[i].off, same ? NULL : p[i].ok, v, width);
  }
  if (same) gpu_end(n, end);
}

// How many registers are loaded at once. Beside products there is no time to
// wait for the registers of both.
static uint32_t loaded_at_once(const Gpu *n, const Access *a, const Type *t) {
  uint32_t size = (uint32_t)dtype_size(t->dtype);
  bool pairs = !n->multiplies && (size == WORD || size == WORD / PAIR) &&
               beside_each_other(n, a, t) == PAIR;
  return pairs ? PAIR : 1;
}

static void load_some(Gpu *n, Part p, DType t, uint32_t count, V *e) {
  Cg *g = n->g;
  uint32_t size = (uint32_t)dtype_size(t);
  V x = n->vendor->load(n, p.off, p.ok, count * size);
  LLVMTypeRef bits = LLVMIntTypeInContext(g->lc, bits_of(t));
  for (uint32_t i = 0; i < count; i++)
    e[i] = from_bits(n,
                     LLVMBuildTrunc(g->b, i ? e_shr(g, x, 8 * size * i) : x,
                                    bits, ""),
                     t);
}

void gpu_gload(Gpu *n, const Op *op) {
  Access a = access(n, op, 1);
  const Type *t = gpu_res_type(n, op);
  if (t->kind != TK_FRAG) {
    n->g->val[op->res[0]] = load(n, place(n, &a, NULL, 0), t->dtype);
    return;
  }
  Frag r = gpu_new(n, t);
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  bool many = r.map.regs > ROWS && share_of(r.map.regs) <= MOST_SHARE;
  int run = many ? run_of(n, &a, t) : -1;
  int piece = piece_axis(n, &a, t, r.map.regs);
  if (gpu_load_told(n, op, &r) ||
      (run >= 0 && load_words(n, &a, (uint32_t)run, t->dtype, &r))) {
    gpu_define(n, op->res[0], r);
    return;
  }
  if (run >= 0) load_columns(n, &a, (uint32_t)run, t->dtype, r.map.regs, e);
  bool laid = piece >= 0 && is_laid(n, &a, piece);
  bool pieces = !laid && in_pieces(n, &a, piece, &r.map);
  if (laid) load_laid(n, &a, &r.map, t->dtype, e);
  if (pieces) load_all(n, &a, &r.map, piece, t->dtype, e);
  bool pairs = in_pairs(n, &a, t, r.map.regs);
  bool done = run >= 0 || laid || pieces ||
              (!pairs && gpu_load_loose(n, op, &r.map, e));
  uint32_t each = pairs ? PAIR : loaded_at_once(n, &a, t);
  for (uint32_t i = 0; !done && i < r.map.regs; i += each)
    load_some(n, place(n, &a, &r.map, i), t->dtype, each, e + i);
  gpu_pack_loaded(n, &r, e);
  gpu_define(n, op->res[0], r);
}

// How many registers are stored at once: words, or pairs of 16 bits.
static uint32_t stored_at_once(const Gpu *n, const Access *a, const Type *t) {
  uint32_t size = (uint32_t)dtype_size(t->dtype);
  if (t->kind != TK_FRAG || (size != WORD && size != WORD / PAIR)) return 1;
  const Op *op = a->op;
  uint32_t width = beside_each_other(n, a, t);
  if (size < WORD && width > PAIR) width = PAIR;
  if (!ir_attr_i(op, AT_MASKED, 0)) return width;
  bool pairs = width > 1 && gpu_is_of_rows(n, op->args[op->nargs - 1]);
  return pairs ? PAIR : 1;
}

static V pair_of(Gpu *n, const Frag *x, uint32_t reg) {
  if (x->per == PAIR) return x->w[reg / PAIR];
  V v[PAIR];
  for (uint32_t i = 0; i < PAIR; i++) {
    V b = as_memory(n, to_bits(n, gpu_elem(n, x, reg + i), x->dtype), x->dtype);
    v[i] = LLVMBuildZExt(n->g->b, b, gpu_i32t(n), "");
  }
  return e_or(n->g, v[0], e_shl(n->g, v[1], 16));
}

static void store_words(Gpu *n, Part p, const Frag *x, uint32_t reg,
                        uint32_t count) {
  V v[2 * PAIR];
  if (dtype_size(x->dtype) < WORD) {
    n->vendor->store(n, p.off, p.ok, pair_of(n, x, reg), WORD);
    return;
  }
  for (uint32_t i = 0; i < count; i++)
    v[i] = to_bits(n, gpu_elem(n, x, reg + i), x->dtype);
  n->vendor->store_words(n, p.off, p.ok, v, count);
}

// ---------------------------------------------------------------- twos
// Two columns of a product's tile that a thread has beside each other, of 16
// bits: one store where memory has them so. What keys are read once for ends
// with its stores, so there is code for both.
static bool in_twos(const Gpu *n, const Access *a, const Type *t) {
  const Op *op = a->op;
  const Value *at = op->args + a->lo;
  uint32_t last = a->rank - 1;
  if (t->kind != TK_FRAG || t->layout != LY_ACC || t->slice ||
      dtype_size(t->dtype) != WORD / PAIR || !n->gpu.hopper ||
      !ir_attr_i(ir_launch(n->f), AT_ONCE, 0) || gpu_is_shared(n, a->tensor))
    return false;
  if (ir_attr_i(op, AT_MASKED, 0) &&
      !gpu_is_of_rows(n, op->args[op->nargs - 1]))
    return false;
  for (uint32_t i = 0; i < last; i++) {
    const Type *s = ir_type(n->f, at[i]);
    if (s->kind == TK_FRAG && s->slice != SLICE_ROW) return false;
  }
  int64_t cols;
  const Op *col = ir_def(n->f, at[last]);
  return col && col->code == OP_COORD &&
         dim_is_const(&n->f->mod->dims, ir_type(n->f, a->tensor)->size[last],
                      &cols) &&
         t->ext[1] <= cols;
}

static void store_alone(Gpu *n, const Access *a, const Frag *x, const Kept *k,
                        uint32_t width) {
  for (uint32_t i = 0; i < x->map.regs; i += width) {
    Part p = place(n, a, &x->map, i);
    p.ok = kept(n, k, i, p.ok);
    if (width > 1) store_words(n, p, x, i, width);
    else store(n, p, gpu_elem(n, x, i), x->dtype);
  }
}

static void store_twos(Gpu *n, const Access *a, const Frag *x, const Kept *k) {
  enum { OWN = 2, BYTES = 16 };  // rows; of the columns of a block
  Cg *g = n->g;
  uint32_t last = a->rank - 1;
  Part row[OWN];
  V two = e_icmp(g, LLVMIntEQ, a->stride[last], gpu_i64(n, WORD / PAIR));
  for (uint32_t r = 0; r < OWN; r++) {
    row[r] = place(n, a, &x->map, r * PAIR);
    V ok = others_in(n, a, &x->map, r * PAIR, (int)last);
    row[r].ok =
        kept(n, k, r * PAIR,
             ok ? ok : LLVMConstInt(LLVMInt1TypeInContext(g->lc), 1, 0));
    V low = e_and(g, row[r].off, gpu_i64(n, WORD - 1));
    two = e_and(g, two, e_icmp(g, LLVMIntEQ, low, gpu_i64(n, 0)));
  }
  Fork f = fork_at(n, two);
  for (uint32_t i = 0; i < x->map.regs; i += PAIR) {
    Part p = row[i / PAIR % OWN];
    p.off = gpu_add(n, p.off, gpu_i64(n, i / (PAIR * OWN) * BYTES));
    store_words(n, p, x, i, PAIR);
  }
  side(n, &f, f.no);
  store_alone(n, a, x, k, 1);
  side(n, &f, f.done);
}

void gpu_gstore(Gpu *n, const Op *op) {
  Access a = access(n, op, 2);
  const Type *t = gpu_arg_type(n, op, 1);
  const Frag *x = t->kind == TK_FRAG ? gpu_frag(n, op->args[1]) : NULL;
  Kept k = kept_by(n, op, x);
  if (ir_attr_i(op, AT_ADD, 0)) {
    add_up(n, &a, x, &k);
    return;
  }
  if (!x) {
    Part p = place(n, &a, NULL, 0);
    p.ok = kept(n, &k, 0, p.ok);
    store(n, p, gpu_arg(n, op, 1), t->dtype);
    return;
  }
  int piece = !n->multiplies ? piece_axis(n, &a, t, x->map.regs) : -1;
  if (piece >= 0) store_pieces(n, &a, x, piece, &k);
  else if (in_twos(n, &a, t)) store_twos(n, &a, x, &k);
  else store_alone(n, &a, x, &k, stored_at_once(n, &a, t));
}
