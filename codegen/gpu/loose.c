// Tiles of distances: gload of a tile along an index that is made of
// coordinates, added up and subtracted, where elements out of range may be any
// (`loose`).
//
//   %n = sub(bcast(%rows), bcast(%cols))      %x = gload(%X, %h, %n) {loose}
//   before  an address and a comparison for each element
//   after   one address for all of a thread's elements, moved so that all of them lie
//           in the tensor; others are a constant behind it, and equal ones (a row
//           and a column on) are loaded once
//
// Where rows and columns add other numbers, all of them in range, a row has an
// address, and an element is a column's number behind it: one instruction.
#include "codegen/gpu/gpu.h"

// How far such an index goes with the row and with the column; false: it is
// none.
static bool is_linear(const Gpu *n, Value v, int64_t step[2]) {
  const Op *op = ir_def(n->f, v);
  int64_t x[2], y[2];
  step[0] = step[1] = 0;
  switch (op ? op->code : OP_YIELD) {
  case OP_SPLAT:
  case OP_CONST: return true;
  case OP_COORD: step[ir_attr_i(op, AT_POS, 0)] = 1; return true;
  case OP_BCAST: return is_linear(n, op->args[0], step);
  case OP_ADD:
  case OP_SUB:
    if (!is_linear(n, op->args[0], x) || !is_linear(n, op->args[1], y))
      return false;
    for (uint32_t i = 0; i < 2; i++)
      step[i] = op->code == OP_ADD ? x[i] + y[i] : x[i] - y[i];
    return true;
  default: return false;
  }
}

// The index of the load that is one, or 0: all others are scalars.
static uint32_t linear_index(const Gpu *n, const Op *op, int64_t step[2]) {
  uint32_t at = 0;
  for (uint32_t i = 1; i < op->nargs; i++) {
    if (ir_type(n->f, op->args[i])->kind != TK_FRAG) continue;
    if (at || !is_linear(n, op->args[i], step)) return 0;
    at = i;
  }
  return at;
}

// How far register reg's index is from the first one's.
static int64_t apart_by(const FragMap *m, const int64_t step[2], uint32_t reg) {
  uint32_t at[2], first[2];
  frag_at(m, reg, 0, at);
  frag_at(m, 0, 0, first);
  return step[0] * ((int64_t)at[0] - first[0]) +
         step[1] * ((int64_t)at[1] - first[1]);
}

static V clamped(Gpu *n, V x, int64_t lo, V hi) {
  V most[2] = {x, hi};
  V least[2] = {gpu_call_over(n, "llvm.smin", gpu_i32t(n), most, 2),
                gpu_i32(n, lo)};
  return gpu_call_over(n, "llvm.smax", gpu_i32t(n), least, 2);
}

static V load_at(Gpu *n, V at, DType t) {
  LLVMTypeRef p = LLVMPointerTypeInContext(n->g->lc, 1);
  V x = LLVMBuildLoad2(n->g->b, cg_scalar(n->g, t),
                       LLVMBuildIntToPtr(n->g->b, at, p, ""), "");
  LLVMSetAlignment(x, (uint32_t)dtype_size(t));
  return x;
}

// ---------------------------------------------------------------- apart
// Is the index a sum of what rows and what columns have?
static bool is_apart(const Gpu *n, Value v) {
  const Op *op = ir_def(n->f, v);
  switch (op ? op->code : OP_YIELD) {
  case OP_SPLAT: return true;
  case OP_BCAST: return ir_type(n->f, op->args[0])->slice != SLICE_NONE;
  case OP_ADD:
  case OP_SUB: return is_apart(n, op->args[0]) && is_apart(n, op->args[1]);
  default: return false;
  }
}

// The register of a slice that an element of the tile has.
static V of_slice(Gpu *n, Value v, const FragMap *m, uint32_t reg) {
  const Frag *f = gpu_frag(n, v);
  uint32_t at[2], thread, r;
  frag_at(m, reg, 0, at);
  at[ir_type(n->f, v)->slice == SLICE_ROW] = 0;
  frag_find(&f->map, at, &thread, &r);
  return f->w[r];
}

// What rows, and what is the same for all, or what columns add to the index of
// an element; NULL: nothing.
static V part_of(Gpu *n, Value v, bool columns, const FragMap *m,
                 uint32_t reg) {
  const Op *op = ir_def(n->f, v);
  if (op->code == OP_SPLAT) return columns ? NULL : n->g->val[op->args[0]];
  if (op->code == OP_BCAST) {
    bool column = ir_type(n->f, op->args[0])->slice == SLICE_COL;
    return column == columns ? of_slice(n, op->args[0], m, reg) : NULL;
  }
  V x = part_of(n, op->args[0], columns, m, reg);
  V y = part_of(n, op->args[1], columns, m, reg);
  if (!y) return x;
  if (op->code == OP_ADD) return x ? gpu_add(n, x, y) : y;
  return e_isub(n->g, x ? x : gpu_i32(n, 0), y);
}

static V bytes_of(Gpu *n, V index, uint32_t size) {
  V x = LLVMBuildSExt(n->g->b, index, LLVMInt64TypeInContext(n->g->lc), "");
  return gpu_mul(n, x, size);
}

// The index of the load that is such a sum, or 0: the last one of workspace,
// whose elements lie side by side, in range; all others are scalars.
static uint32_t apart_index(const Gpu *n, const Op *op) {
  if (!ir_attr_i(op, AT_INBOUNDS, 0) || !gpu_is_shared(n, op->args[0]))
    return 0;
  for (uint32_t i = 1; i + 1 < op->nargs; i++)
    if (ir_type(n->f, op->args[i])->kind == TK_FRAG) return 0;
  const Type *t = ir_type(n->f, op->args[op->nargs - 1]);
  bool tile = t->kind == TK_FRAG && t->slice == SLICE_NONE;
  return tile && is_apart(n, op->args[op->nargs - 1]) ? op->nargs - 1u : 0;
}

static bool load_apart(Gpu *n, const Op *op, const FragMap *m, V *e) {
  const Type *t = ir_type(n->f, op->args[0]);
  uint32_t at = apart_index(n, op), size = (uint32_t)dtype_size(t->dtype);
  if (!at || size < 2) return false;
  V off = gpu_tensor(n, op->args[0], 0);
  for (uint32_t i = 1; i < at; i++) {
    V by = gpu_mul(n, gpu_tensor(n, op->args[0], i + t->n), size);
    V x = LLVMBuildSExt(n->g->b, n->g->val[op->args[i]],
                        LLVMInt64TypeInContext(n->g->lc), "");
    off = gpu_add(n, off, LLVMBuildMul(n->g->b, x, by, ""));
  }
  for (uint32_t r = 0; r < m->regs; r++) {
    V row = part_of(n, op->args[at], false, m, r);
    V col = part_of(n, op->args[at], true, m, r);
    V x = row ? gpu_add(n, off, bytes_of(n, row, size)) : off;
    e[r] =
        load_at(n, col ? gpu_add(n, x, bytes_of(n, col, size)) : x, t->dtype);
  }
  return true;
}

bool gpu_load_loose(Gpu *n, const Op *op, const FragMap *m, V *e) {
  const Type *t = ir_type(n->f, op->args[0]);
  int64_t step[2] = {0}, lo = 0, hi = 0;
  if (!ir_attr_i(op, AT_LOOSE, 0)) return false;
  uint32_t at = linear_index(n, op, step);
  if (!at) return load_apart(n, op, m, e);
  if (dtype_size(t->dtype) < 2) return false;
  for (uint32_t r = 0; r < m->regs; r++) {
    int64_t d = apart_by(m, step, r);
    lo = d < lo ? d : lo;
    hi = d > hi ? d : hi;
  }
  V off = gpu_tensor(n, op->args[0], 0), stride = NULL;
  for (uint32_t i = 1; i < op->nargs; i++) {
    Value v = op->args[i];
    V x = i == at ? gpu_frag(n, v)->w[0] : n->g->val[v];
    V shape =
        LLVMBuildTrunc(n->g->b, gpu_tensor(n, op->args[0], i), gpu_i32t(n), "");
    x = clamped(n, x, i == at ? -lo : 0,
                gpu_add(n, shape, gpu_i32(n, i == at ? -1 - hi : -1)));
    V by =
        gpu_mul(n, gpu_tensor(n, op->args[0], i + t->n), dtype_size(t->dtype));
    x = LLVMBuildSExt(n->g->b, x, LLVMInt64TypeInContext(n->g->lc), "");
    off = gpu_add(n, off, LLVMBuildMul(n->g->b, x, by, ""));
    if (i == at) stride = by;
  }
  for (uint32_t r = 0; r < m->regs; r++) {
    int64_t d = apart_by(m, step, r);
    uint32_t same = 0;
    while (apart_by(m, step, same) != d) same++;
    e[r] = same < r
               ? e[same]
               : load_at(n, gpu_add(n, off, gpu_mul(n, stride, d)), t->dtype);
  }
  return true;
}
