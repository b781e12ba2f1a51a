// Copies of rows that are told one by one to a shared tile: slices of indices
// say where each is. Eight threads have a row, and copy 16 bytes of each 128 of
// it; a row that lies outside the tensor is zeros.
//
//   cp_async(%tile, %C, %i, %zero)         row = base + i * stride + 16 * (t % 8)
//     {tile = [0, 1]}               ->     cp.async [slot], [row], 16, i in range ? 16 : 0
//                                          cp.async [slot + 8192], [row + 128], ..
//
// That rows begin at multiples of 16 bytes, and columns are dense, is what a
// map of the tensor asks for (codegen/nv/tma.c): the kernel has one, which it
// does not use.
#include "codegen/gpu/gpu.h"

#include <assert.h>

enum { EACH = 8, CHUNK = 16, LINE = EACH * CHUNK };

typedef struct Told {
  const Op *op;
  Value tensor;
  uint32_t lo;  // operand of the first index
  uint32_t rank, row, col, size;
  const Frag *at[MAX_AXES];  // by axis of the tensor, or NULL
  FragMap map;
  Tile s;
  const Type *t;
  V chunk, base, in_range;  // of the indices that are numbers
} Told;

bool gpu_is_told(const Gpu *n, const Op *op) {
  if (op->code != OP_CP_ASYNC) return false;
  Value row = op->args[2 + ir_attr(op, AT_TILE)->list[0]];
  return ir_type(n->f, row)->kind == TK_FRAG;
}

static V wide(Gpu *n, V x) {
  return LLVMBuildSExt(n->g->b, x, LLVMInt64TypeInContext(n->g->lc), "");
}

static V narrow(Gpu *n, V x) {
  return LLVMBuildIntCast2(n->g->b, x, gpu_i32t(n), 1, "");
}

static V extent_of(Gpu *n, const Told *x, uint32_t axis) {
  return narrow(n, gpu_tensor(n, x->tensor, 1 + axis));
}

// Bytes from the first element along the axis to that index.
static V offset_of(Gpu *n, const Told *x, uint32_t axis, V at) {
  V stride = gpu_tensor(n, x->tensor, 1 + x->rank + axis);
  V bytes = gpu_mul(n, stride, x->size);
  return LLVMBuildMul(n->g->b, wide(n, at), bytes, "");
}

static V is_in(Gpu *n, const Told *x, uint32_t axis, V at) {
  V extent = extent_of(n, x, axis);
  return e_icmp(n->g, LLVMIntULT, at, extent);
}

static void add_index(Gpu *n, Told *x, uint32_t axis) {
  Value v = x->op->args[x->lo + axis];
  const Type *t = ir_type(n->f, v);
  if (t->kind == TK_FRAG && t->slice == SLICE_COL) return;
  if (t->kind == TK_FRAG) {
    x->at[axis] = gpu_frag(n, v);
    x->map = x->at[axis]->map;
    return;
  }
  V at = narrow(n, n->g->val[v]);
  x->base = e_iadd(n->g, x->base, offset_of(n, x, axis, at));
  if (axis == x->col) return;
  x->in_range = e_and(n->g, x->in_range, is_in(n, x, axis, at));
}

static Told told_of(Gpu *n, const Op *op) {
  LLVMTypeRef bit = LLVMInt1TypeInContext(n->g->lc);
  bool load = op->code != OP_CP_ASYNC;
  const Type *t = gpu_arg_type(n, op, !load);
  Told x = {.op = op,
            .tensor = op->args[!load],
            .lo = load ? 1 : 2,
            .rank = t->n,
            .col = load ? t->n - 1 : (uint32_t)ir_attr(op, AT_TILE)->list[1],
            .size = (uint32_t)dtype_size(t->dtype),
            .in_range = LLVMConstInt(bit, 1, 0)};
  if (!load) x.s = gpu_tile(n, op->args[0]), x.t = gpu_arg_type(n, op, 0);
  x.base = gpu_tensor(n, x.tensor, 0);
  x.chunk = LLVMBuildURem(n->g->b, n->grp.tid, gpu_i32(n, EACH), "");
  for (uint32_t i = 0; i < t->n; i++) add_index(n, &x, i);
  return x;
}

// Where the row of register i would begin, and whether it lies in the tensor.
static V row_of(Gpu *n, const Told *x, uint32_t i, V *in) {
  V at = x->base;
  *in = x->in_range;
  for (uint32_t k = 0; k < x->rank; k++) {
    if (!x->at[k]) continue;
    V row = x->at[k]->w[i];
    *in = e_and(n->g, *in, is_in(n, x, k, row));
    at = e_iadd(n->g, at, offset_of(n, x, k, row));
  }
  return at;
}

static V row_at(Gpu *n, const Told *x, uint32_t i, V *in) {
  V at = row_of(n, x, i, in);
  return e_sel(n->g, *in, at, gpu_tensor(n, x->tensor, 0));
}

// The thread's chunk in its first row of the tile, and how far behind it that
// of register i is: rows of one thread have the same place in the swizzle.
static V first_slot(Gpu *n, const Told *x) {
  V row = LLVMBuildUDiv(n->g->b, n->grp.tid, gpu_i32(n, EACH), "");
  V col = gpu_mul(n, x->chunk, CHUNK / x->size);
  return gpu_element(n, x->s, x->t, row, col);
}

static uint32_t behind(const Told *x, uint32_t i) {
  enum { SWIZZLE_ROWS = 8 };
  uint32_t at[2];
  frag_at(&x->map, i, 0, at);
  assert(at[0] % SWIZZLE_ROWS == 0);
  return at[0] * LINE;
}

// Are all of the tile's columns known to be the tensor's?
static bool has_columns(const Gpu *n, const Told *x) {
  double first;
  int64_t all;
  return ir_const_value(n->f, x->op->args[x->lo + x->col], &first) &&
         first >= 0 &&
         dim_is_const(&n->f->mod->dims, ir_type(n->f, x->tensor)->size[x->col],
                      &all) &&
         (int64_t)first + x->t->ext[1] <= all;
}

// Bytes of the thread's chunk of a line that are columns of the tensor.
static V bytes_of(Gpu *n, const Told *x, uint32_t line) {
  Cg *g = n->g;
  uint32_t elems = CHUNK / x->size;
  V none = gpu_i32(n, 0), most = gpu_i32(n, elems);
  if (has_columns(n, x)) return gpu_i32(n, CHUNK);
  V first = narrow(n, g->val[x->op->args[x->lo + x->col]]);
  V col =
      gpu_add(n, gpu_mul(n, x->chunk, elems), gpu_i32(n, line * EACH * elems));
  V extent = extent_of(n, x, x->col), at = gpu_add(n, first, col);
  V left = e_isub(g, extent, at);
  left = e_sel(g, e_icmp(g, LLVMIntSLT, left, most), left, most);
  left = e_sel(g, e_icmp(g, LLVMIntSLT, left, none), none, left);
  return gpu_mul(n, left, x->size);
}

void gpu_copy_told(Gpu *n, const Op *op) {
  Cg *g = n->g;
  Told x = told_of(n, op);
  LLVMTypeRef byte = LLVMInt8TypeInContext(g->lc);
  V none = gpu_i32(n, 0), slot = first_slot(n, &x);
  V chunk = wide(n, gpu_mul(n, x.chunk, CHUNK));
  for (uint32_t i = 0; i < x.map.regs; i++) {
    V in, row = row_at(n, &x, i, &in);
    V from = e_iadd(g, row, chunk);
    for (uint32_t k = 0; k < x.t->ext[1] * x.size / LINE; k++) {
      V more = gpu_i32(n, k * LINE * x.t->ext[0] + behind(&x, i)),
        bytes = bytes_of(n, &x, k);
      V at = LLVMBuildGEP2(g->b, byte, slot, &more, 1, "");
      Chunk c = {at, e_iadd(g, from, gpu_i64(n, k * LINE)),
                 e_sel(g, in, bytes, none)};
      n->vendor->copy(n, &c);
    }
  }
}

// 8-bit floats that the group's threads widen on their way: of each row that a
// thread has eight columns, two words of a register each. The tensor has all
// columns, and rows as copies have them.
bool gpu_load_told(Gpu *n, const Op *op, Frag *r) {
  enum { BYTES = 8 };
  Cg *g = n->g;
  if (!ir_attr_i(op, AT_ALIGNED, 0)) return false;
  Told x = told_of(n, op);
  const Frag *cols = gpu_frag(n, op->args[x.lo + x.col]);
  for (uint32_t i = 0; i < r->map.regs; i += BYTES) {
    uint32_t at[2], thread, reg;
    frag_at(&r->map, i, 0, at);
    uint32_t row[] = {at[0], 0}, col[] = {0, at[1]};
    frag_find(&x.map, row, &thread, &reg);
    V in, from = row_at(n, &x, reg, &in);
    frag_find(&cols->map, col, &thread, &reg);
    from = e_iadd(g, from, wide(n, cols->w[reg]));
    V two = n->vendor->load(n, from, in, BYTES);
    r->w[i / 4] = LLVMBuildTrunc(g->b, two, gpu_i32t(n), "");
    r->w[i / 4 + 1] =
        LLVMBuildTrunc(g->b, LLVMBuildLShr(g->b, two, gpu_i64(n, 32), ""),
                       gpu_i32t(n), "");
  }
  return true;
}

// Of eight threads that have a row each asks for every eighth sector of it.
void gpu_soon(Gpu *n, const Op *op) {
  enum { SECTOR = 32 };
  Cg *g = n->g;
  Told x = told_of(n, op);
  int64_t bytes = ir_attr_i(op, AT_BYTES, 0);
  V first = gpu_mul(n, x.chunk, SECTOR);
  for (uint32_t i = 0; i < x.map.regs; i++) {
    V in, row = row_of(n, &x, i, &in);
    for (int64_t k = 0; k < bytes; k += EACH * SECTOR) {
      V at = gpu_add(n, first, gpu_i32(n, k)), last = gpu_i32(n, bytes - 1);
      if (k + EACH * SECTOR > bytes)
        at = e_sel(g, e_icmp(g, LLVMIntSLT, at, last), at, last);
      n->vendor->soon(n, e_iadd(g, row, wide(n, at)), in);
    }
  }
}
