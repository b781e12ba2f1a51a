// Copies between device and shared memory: cp.async by the group's threads,
// boxes by the tensor memory accelerator; the barriers they complete on.
#include "codegen/nv.h"

#include <stdio.h>

static V wide(Nv *n, V x) {
  return LLVMBuildSExt(n->g->b, x, LLVMInt64TypeInContext(n->g->lc), "");
}

static V narrow(Nv *n, V x) {
  return LLVMBuildIntCast2(n->g->b, x, nv_i32t(n), 1, "");
}

// ---------------------------------------------------------------- cp.async
// A box of a tensor: indices are operands lo .. of op.
typedef struct Box {
  const Op *op;
  Value tensor;
  uint32_t lo, rank, row, col, size;
  V base, rows_ok;       // address of the box's origin (i64); other axes in range
  V row0, col0, nrows, ncols, row_stride, col_stride;   // strides in bytes, i64
} Box;

static V field(Nv *n, const Box *b, uint32_t i) {
  return nv_param(n, n->tensor_at[b->tensor] + 8 * (uint64_t)i,
                  LLVMInt64TypeInContext(n->g->lc));
}

static V index_of(Nv *n, const Box *b, uint32_t axis) {
  return narrow(n, n->g->val[b->op->args[b->lo + axis]]);
}

static V stride_of(Nv *n, const Box *b, uint32_t axis) {
  return nv_mul(n, field(n, b, 1 + b->rank + axis), b->size);
}

static Box box_of(Nv *n, const Op *op, Value tensor, uint32_t lo) {
  Cg *g = n->g;
  const Type *t = ir_type(n->f, tensor);
  const IrAttr *tile = ir_attr(op, AT_TILE);
  Box b = {.op = op, .tensor = tensor, .lo = lo, .rank = t->n,
           .row = (uint32_t)tile->list[0], .col = (uint32_t)tile->list[1],
           .size = (uint32_t)dtype_size(t->dtype)};
  b.base = field(n, &b, 0);
  b.rows_ok = LLVMConstInt(LLVMInt1TypeInContext(g->lc), 1, 0);
  for (uint32_t i = 0; i < b.rank; i++) {
    V at = index_of(n, &b, i), extent = narrow(n, field(n, &b, 1 + i));
    V off = LLVMBuildMul(g->b, wide(n, at), stride_of(n, &b, i), "");
    b.base = e_iadd(g, b.base, off);
    if (i == b.row) {
      b.row0 = at, b.nrows = extent, b.row_stride = stride_of(n, &b, i);
    } else if (i == b.col) {
      b.col0 = at, b.ncols = extent, b.col_stride = stride_of(n, &b, i);
    } else {
      b.rows_ok = e_and(g, b.rows_ok, e_icmp(g, LLVMIntULT, at, extent));
    }
  }
  return b;
}

// Chunks of 16 bytes can be copied: columns are dense, everything is aligned.
static V chunks_ok(Nv *n, const Box *b) {
  Cg *g = n->g;
  V bits = b->base;
  for (uint32_t i = 0; i < b->rank; i++)
    if (i != b->col) bits = e_or(g, bits, stride_of(n, b, i));
  V aligned = e_icmp(g, LLVMIntEQ, e_and(g, bits, nv_i64(n, 15)), nv_i64(n, 0));
  V dense = e_icmp(g, LLVMIntEQ, b->col_stride, nv_i64(n, b->size));
  V inside = e_icmp(g, LLVMIntSGE, b->col0, nv_i32(n, 0));
  return e_and(g, e_and(g, aligned, dense), inside);
}

static V pointer(Nv *n, V address, unsigned space) {
  LLVMTypeRef t = LLVMPointerTypeInContext(n->g->lc, space);
  return LLVMBuildIntToPtr(n->g->b, address, t, "");
}

// Row `row`, chunk `chunk` of the tile; what lies outside the tensor is 0.
static void copy_chunk(Nv *n, const Box *b, Tile s, const Type *t, V row,
                       V chunk) {
  Cg *g = n->g;
  uint32_t elems = 16 / b->size;
  V col = nv_mul(n, chunk, elems);
  V r = e_icmp(g, LLVMIntULT, nv_add(n, b->row0, row), b->nrows);
  V left = e_isub(g, b->ncols, nv_add(n, b->col0, col));
  V ok = e_and(g, e_and(g, r, b->rows_ok),
               e_icmp(g, LLVMIntSGT, left, nv_i32(n, 0)));
  V many = e_sel(g, e_icmp(g, LLVMIntSLT, left, nv_i32(n, elems)), left,
                 nv_i32(n, elems));
  many = e_sel(g, ok, nv_mul(n, many, b->size), nv_i32(n, 0));
  V off = e_iadd(g, LLVMBuildMul(g->b, wide(n, row), b->row_stride, ""),
                 wide(n, nv_mul(n, chunk, 16)));
  V from = e_iadd(g, b->base, e_sel(g, ok, off, nv_i64(n, 0)));
  V a[3] = {nv_element(n, s, t, row, col), pointer(n, from, 1), many};
  nv_call(n, "llvm.nvvm.cp.async.cg.shared.global.16.s", a, 3);
}

// The same by elements, for any strides.
static void copy_elements(Nv *n, const Box *b, Tile s, const Type *t, V row,
                          V chunk) {
  Cg *g = n->g;
  uint32_t elems = 16 / b->size;
  LLVMTypeRef et = LLVMIntTypeInContext(g->lc, 8 * b->size);
  V zero = LLVMConstNull(et);
  V r = e_icmp(g, LLVMIntULT, nv_add(n, b->row0, row), b->nrows);
  r = e_and(g, r, b->rows_ok);
  V line = e_iadd(g, b->base,
                  LLVMBuildMul(g->b, wide(n, row), b->row_stride, ""));
  for (uint32_t i = 0; i < elems; i++) {
    V col = nv_add(n, nv_mul(n, chunk, elems), nv_i32(n, i));
    V c = e_icmp(g, LLVMIntULT, nv_add(n, b->col0, col), b->ncols);
    LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b), end;
    end = nv_if(n, e_and(g, r, c));
    V at = LLVMBuildMul(g->b, wide(n, col), b->col_stride, "");
    V x = LLVMBuildLoad2(g->b, et, pointer(n, e_iadd(g, line, at), 1), "");
    LLVMBasicBlockRef in = LLVMGetInsertBlock(g->b);
    nv_end(n, end);
    V phi = LLVMBuildPhi(g->b, et, ""), v[2] = {zero, x};
    LLVMBasicBlockRef at_[2] = {from, in};
    LLVMAddIncoming(phi, v, at_, 2);
    LLVMBuildStore(g->b, phi, nv_element(n, s, t, row, col));
  }
}

typedef void CopyFn(Nv *n, const Box *b, Tile s, const Type *t, V row, V chunk);

// for (id = thread; id < chunks; id += threads) fn(row, chunk)
static void each_chunk(Nv *n, const Box *b, Tile s, const Type *t, CopyFn *fn) {
  Cg *g = n->g;
  uint32_t per_row = t->ext[1] * b->size / 16, all = per_row * t->ext[0];
  uint32_t threads = n->grp.threads;
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b), head = cg_block(g, "copy");
  LLVMBasicBlockRef body = cg_block(g, "chunk"), done = cg_block(g, "copied");
  bool unroll = fn == copy_chunk && all % threads == 0 && all / threads <= 32;
  for (uint32_t i = 0; unroll && i < all / threads; i++) {
    V id = nv_add(n, n->grp.tid, nv_i32(n, i * threads)), row;
    if (threads % per_row == 0)   // the chunk does not change
      row = nv_add(n, LLVMBuildUDiv(g->b, n->grp.tid, nv_i32(n, per_row), ""),
                   nv_i32(n, i * threads / per_row));
    else row = LLVMBuildUDiv(g->b, id, nv_i32(n, per_row), "");
    V base = threads % per_row ? id : n->grp.tid;
    fn(n, b, s, t, row, LLVMBuildURem(g->b, base, nv_i32(n, per_row), ""));
  }
  if (unroll) {
    LLVMDeleteBasicBlock(head);
    LLVMDeleteBasicBlock(body);
    LLVMDeleteBasicBlock(done);
    return;
  }
  LLVMBuildBr(g->b, head);
  LLVMPositionBuilderAtEnd(g->b, head);
  V id = LLVMBuildPhi(g->b, nv_i32t(n), "");
  LLVMAddIncoming(id, &n->grp.tid, &from, 1);
  LLVMBuildCondBr(g->b, e_icmp(g, LLVMIntULT, id, nv_i32(n, all)), body, done);
  LLVMPositionBuilderAtEnd(g->b, body);
  fn(n, b, s, t, LLVMBuildUDiv(g->b, id, nv_i32(n, per_row), ""),
     LLVMBuildURem(g->b, id, nv_i32(n, per_row), ""));
  V next = nv_add(n, id, nv_i32(n, threads));
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
  LLVMAddIncoming(id, &next, &latch, 1);
  LLVMBuildBr(g->b, head);
  LLVMPositionBuilderAtEnd(g->b, done);
}

void nv_cp_async(Nv *n, const Op *op) {
  Cg *g = n->g;
  Tile s = nv_tile(n, op->args[0]);
  const Type *t = nv_arg_type(n, op, 0);
  Box b = box_of(n, op, op->args[1], 2);
  LLVMBasicBlockRef fast = cg_block(g, "chunks"), slow = cg_block(g, "elements");
  LLVMBasicBlockRef done = cg_block(g, "filled");
  LLVMBuildCondBr(g->b, chunks_ok(n, &b), fast, slow);
  LLVMPositionBuilderAtEnd(g->b, fast);
  each_chunk(n, &b, s, t, copy_chunk);
  LLVMBuildBr(g->b, done);
  LLVMPositionBuilderAtEnd(g->b, slow);
  each_chunk(n, &b, s, t, copy_elements);
  LLVMBuildBr(g->b, done);
  LLVMPositionBuilderAtEnd(g->b, done);
}

void nv_cp_commit(Nv *n, const Op *op) {
  (void)op;
  nv_call(n, "llvm.nvvm.cp.async.commit.group", NULL, 0);
}

void nv_cp_wait(Nv *n, const Op *op) {
  V k = nv_i32(n, ir_attr_i(op, AT_PENDING, 0));
  nv_call(n, "llvm.nvvm.cp.async.wait.group", &k, 1);
}

// ---------------------------------------------------------------- TMA
// The map of a box: one per distinct record of the kernel.
uint32_t nv_map_of(Nv *n, const Op *op) {
  bool load = op->code == OP_TMA_LOAD;
  Value tensor = op->args[load ? 3 : 0];
  const Type *tile = nv_arg_type(n, op, load ? 0 : 1);
  CgMapRecord m = {0};
  const Type *t = ir_type(n->f, tensor);
  const IrAttr *axes = ir_attr(op, AT_TILE);
  for (uint32_t i = 0; n->f->params.at[i].v != tensor; i++)
    m.tensor += ir_type(n->f, n->f->params.at[i].v)->kind == TK_TENSOR;
  m.axis[m.rank++] = (uint8_t)axes->list[1];
  m.axis[m.rank++] = (uint8_t)axes->list[0];
  for (uint32_t i = t->n; i-- > 0;)
    if (i != axes->list[0] && i != axes->list[1]) m.axis[m.rank++] = (uint8_t)i;
  bool swizzled = tile->layout != LY_ROW;
  uint32_t panel = smem_panel_bytes(tile);
  m.swizzle = swizzled ? panel : 0;
  m.box[0] = (uint16_t)(panel / (uint32_t)dtype_size(t->dtype));
  m.box[1] = (uint16_t)(tile->ext[0] < 256 ? tile->ext[0] : 256);
  for (uint32_t i = 2; i < m.rank; i++) m.box[i] = 1;
  for (uint32_t i = 0; i < n->out->maps.n; i++)
    if (memcmp(&n->out->maps.at[i], &m, sizeof m) == 0) return i;
  vec_push(&n->g->cx->session, &n->out->maps, m);
  return n->out->maps.n - 1;
}

// Calls fn for each box of the tile: coordinates, innermost first.
typedef void BoxFn(Nv *n, V shared, V map, V *coords, uint32_t rank, V bar);

static void each_box(Nv *n, const Op *op, uint32_t lo, Tile s,
                     const Type *tile, V bar, BoxFn *fn) {
  uint32_t id = nv_map_of(n, op);
  CgMapRecord m = n->out->maps.at[id];
  uint32_t panel = smem_panel_bytes(tile);
  uint32_t row = tile->ext[1] * (uint32_t)dtype_size(tile->dtype);
  V map = nv_map(n, id);
  for (uint32_t side = 0; side < row / panel; side++)
    for (uint32_t r = 0; r < tile->ext[0]; r += m.box[1]) {
      V c[8];
      for (uint32_t i = 0; i < m.rank; i++)
        c[i] = narrow(n, n->g->val[op->args[lo + m.axis[i]]]);
      c[0] = nv_add(n, c[0], nv_i32(n, side * m.box[0]));
      c[1] = nv_add(n, c[1], nv_i32(n, r));
      V at = nv_tile_at(n, s, (side * tile->ext[0] + r) * panel);
      fn(n, at, map, c, m.rank, bar);
    }
}

static void load_box(Nv *n, V shared, V map, V *c, uint32_t rank, V bar) {
  Cg *g = n->g;
  char name[64];
  V a[16], no = LLVMConstInt(LLVMInt1TypeInContext(g->lc), 0, 0);
  uint32_t k = 0;
  LLVMTypeRef cluster = LLVMPointerTypeInContext(g->lc, 7);
  a[k++] = LLVMBuildAddrSpaceCast(g->b, shared, cluster, "");
  a[k++] = bar;
  a[k++] = map;
  for (uint32_t i = 0; i < rank; i++) a[k++] = c[i];
  a[k++] = LLVMConstInt(LLVMInt16TypeInContext(g->lc), 0, 0);
  a[k++] = nv_i64(n, 0);
  a[k++] = no;
  a[k++] = no;
  a[k++] = nv_i32(n, 0);
  snprintf(name, sizeof name, "llvm.nvvm.cp.async.bulk.tensor.g2s.tile.%ud",
           rank);
  nv_call(n, name, a, k);
}

static void store_box(Nv *n, V shared, V map, V *c, uint32_t rank, V bar) {
  char name[64];
  V a[16];
  uint32_t k = 0;
  (void)bar;
  a[k++] = shared;
  a[k++] = map;
  for (uint32_t i = 0; i < rank; i++) a[k++] = c[i];
  a[k++] = nv_i64(n, 0);
  a[k++] = LLVMConstInt(LLVMInt1TypeInContext(n->g->lc), 0, 0);
  snprintf(name, sizeof name, "llvm.nvvm.cp.async.bulk.tensor.s2g.tile.%ud",
           rank);
  nv_call(n, name, a, k);
}

static V mbar_at(Nv *n, const Op *op, uint32_t i) {
  V slot = narrow(n, nv_arg(n, op, i + 1));
  V at = nv_add(n, nv_mul(n, slot, 8), nv_i32(n, nv_tile(n, op->args[i]).base));
  return nv_shared(n, at);
}

void nv_tma_load(Nv *n, const Op *op) {
  bool one = n->grp.threads == 1;
  LLVMBasicBlockRef end = one ? NULL : nv_if(n, n->grp.first);
  each_box(n, op, 4, nv_tile(n, op->args[0]),
           nv_arg_type(n, op, 0), mbar_at(n, op, 1), load_box);
  if (!one) nv_end(n, end);
}

void nv_tma_store(Nv *n, const Op *op) {
  bool one = n->grp.threads == 1;
  LLVMBasicBlockRef end = one ? NULL : nv_if(n, n->grp.first);
  each_box(n, op, 2, nv_tile(n, op->args[1]),
           nv_arg_type(n, op, 1), NULL, store_box);
  if (!one) nv_end(n, end);
}

void nv_tma_commit(Nv *n, const Op *op) {
  (void)op;
  nv_call(n, "llvm.nvvm.cp.async.bulk.commit.group", NULL, 0);
}

void nv_tma_wait(Nv *n, const Op *op) {
  V k = nv_i32(n, ir_attr_i(op, AT_PENDING, 0));
  nv_call(n, "llvm.nvvm.cp.async.bulk.wait.group.read", &k, 1);
}

// ---------------------------------------------------------------- barriers
void nv_mbar_wait(Nv *n, const Op *op) {
  Cg *g = n->g;
  V a[2] = {mbar_at(n, op, 0), narrow(n, nv_arg(n, op, 2))};
  LLVMBasicBlockRef spin = cg_block(g, "spin"), ready = cg_block(g, "ready");
  LLVMBuildBr(g->b, spin);
  LLVMPositionBuilderAtEnd(g->b, spin);
  V ok = nv_call(n, "llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta", a,
                 2);
  LLVMBuildCondBr(g->b, ok, ready, spin);
  LLVMPositionBuilderAtEnd(g->b, ready);
  // No access moves above the wait.
  nv_asm(n, LLVMVoidTypeInContext(g->lc), "", "~{memory}", NULL, 0);
}

static void arrive(Nv *n, V who, const char *name, V bar, V count) {
  V a[2] = {bar, count};
  LLVMBasicBlockRef end = who ? nv_if(n, who) : NULL;
  nv_call(n, name, a, 2);
  if (who) nv_end(n, end);
}

void nv_mbar_arrive(Nv *n, const Op *op) {
  V first = NULL;
  if (n->grp.threads > 1)
    first = e_icmp(n->g, LLVMIntEQ, n->grp.lane, nv_i32(n, 0));
  arrive(n, first, "llvm.nvvm.mbarrier.arrive.scope.cta.space.cta",
         mbar_at(n, op, 0), nv_i32(n, 1));
}

void nv_mbar_expect(Nv *n, const Op *op) {
  V bytes = nv_i32(n, ir_attr_i(op, AT_BYTES, 0));
  arrive(n, n->grp.threads > 1 ? n->grp.first : NULL,
         "llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta",
         mbar_at(n, op, 0), bytes);
}

static void named(Nv *n, const Op *op, const char *name) {
  V a[2] = {narrow(n, nv_arg(n, op, 0)),
            nv_i32(n, ir_attr_i(op, AT_THREADS, 0))};
  nv_call(n, name, a, 2);
}

void nv_bar_sync(Nv *n, const Op *op) {
  named(n, op, "llvm.nvvm.barrier.cta.sync.aligned.count");
}

void nv_bar_arrive(Nv *n, const Op *op) {
  named(n, op, "llvm.nvvm.barrier.cta.arrive.aligned.count");
}

void nv_gsync(Nv *n, const Op *op) {
  (void)op;
  nv_sync(n);
}

void nv_fence_async(Nv *n, const Op *op) {
  (void)op;
  nv_call(n, "llvm.nvvm.fence.proxy.async.shared_cta", NULL, 0);
}
