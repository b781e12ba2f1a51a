// Copies from device to shared memory by the group's threads: boxes of tensors
// in chunks of 16 bytes.
#include "codegen/gpu/gpu.h"
#include "ir/box.h"

static V wide(Gpu *n, V x) {
  return LLVMBuildSExt(n->g->b, x, LLVMInt64TypeInContext(n->g->lc), "");
}

static V narrow(Gpu *n, V x) {
  return LLVMBuildIntCast2(n->g->b, x, gpu_i32t(n), 1, "");
}

// A box of a tensor: indices are operands lo .. of op. Of one in pieces those
// of all but the first follow, along axis `along`.
typedef struct Box {
  const Op *op;
  Value tensor;
  uint32_t lo, rank, row, col, size;
  uint32_t pieces, along, rows;  // rows of a piece
  uint32_t turns;                // of a row, along axis `along`
  V base, rows_ok;  // address of the box's origin (i64); other axes in range
  V row0, col0, nrows, ncols, row_stride, col_stride;  // strides in bytes, i64
} Box;

static V field(Gpu *n, const Box *b, uint32_t i) {
  return gpu_tensor(n, b->tensor, i);
}

static V index_of(Gpu *n, const Box *b, uint32_t axis) {
  return narrow(n, n->g->val[b->op->args[b->lo + axis]]);
}

static V stride_of(Gpu *n, const Box *b, uint32_t axis) {
  return gpu_mul(n, field(n, b, 1 + b->rank + axis), b->size);
}

static Box box_of(Gpu *n, const Op *op, Value tensor, uint32_t lo) {
  Cg *g = n->g;
  const Type *t = ir_type(n->f, tensor);
  const IrAttr *tile = ir_attr(op, AT_TILE);
  Box b = {.op = op,
           .tensor = tensor,
           .lo = lo,
           .rank = t->n,
           .row = (uint32_t)tile->list[0],
           .col = (uint32_t)tile->list[1],
           .size = (uint32_t)dtype_size(t->dtype),
           .pieces = ir_pieces(op)};
  const IrAttr *pieces = ir_attr(op, AT_PIECES);
  if (pieces) b.along = (uint32_t)pieces->list[0];
  b.turns = box_turns(op);
  if (b.turns > 1) b.along = (uint32_t)tile->list[BOX_TURN];
  b.rows = gpu_arg_type(n, op, 0)->ext[0] / b.pieces;
  b.base = field(n, &b, 0);
  b.rows_ok = LLVMConstInt(LLVMInt1TypeInContext(g->lc), 1, 0);
  for (uint32_t i = 0; i < b.rank; i++) {
    V at = index_of(n, &b, i), extent = narrow(n, field(n, &b, 1 + i));
    V step = stride_of(n, &b, i);
    V off = LLVMBuildMul(g->b, wide(n, at), step, "");
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
static V chunks_ok(Gpu *n, const Box *b) {
  Cg *g = n->g;
  V bits = b->base;
  for (uint32_t i = 0; i < b->rank; i++)
    if (i != b->col) bits = e_or(g, bits, stride_of(n, b, i));
  V aligned =
      e_icmp(g, LLVMIntEQ, e_and(g, bits, gpu_i64(n, 15)), gpu_i64(n, 0));
  V dense = e_icmp(g, LLVMIntEQ, b->col_stride, gpu_i64(n, b->size));
  V inside = e_icmp(g, LLVMIntSGE, b->col0, gpu_i32(n, 0));
  return e_and(g, e_and(g, aligned, dense), inside);
}

// The box with the turn that the tile's row `row` is; *row: in it.
static Box turn_of(Gpu *n, const Box *b, V *row) {
  Cg *g = n->g;
  Box p = *b;
  V turns = gpu_i32(n, b->turns), turn = LLVMBuildURem(g->b, *row, turns, "");
  V step = stride_of(n, b, b->along);
  p.base = e_iadd(g, b->base, LLVMBuildMul(g->b, wide(n, turn), step, ""));
  *row = LLVMBuildUDiv(g->b, *row, turns, "");
  return p;
}

// The piece that the tile's row `row` is in, as a box of its own; *row: in it.
static Box piece_of(Gpu *n, const Box *b, V *row) {
  Cg *g = n->g;
  Box p = *b;
  if (b->turns > 1) return turn_of(n, b, row);
  if (b->pieces == 1) return p;
  V first = index_of(n, b, b->along), at = first;
  V rows = gpu_i32(n, b->rows), piece = LLVMBuildUDiv(g->b, *row, rows, "");
  V extent = narrow(n, field(n, b, 1 + b->along));
  for (uint32_t i = 1; i < b->pieces; i++) {
    V index = index_of(n, b, b->rank + i - 1);
    at = e_sel(g, e_icmp(g, LLVMIntEQ, piece, gpu_i32(n, i)), index, at);
  }
  V step = stride_of(n, b, b->along);
  V more = LLVMBuildMul(g->b, wide(n, e_isub(g, at, first)), step, "");
  p.base = e_iadd(g, b->base, more);
  p.rows_ok = e_and(g, b->rows_ok, e_icmp(g, LLVMIntULT, at, extent));
  *row = LLVMBuildURem(g->b, *row, rows, "");
  return p;
}

// A chunk of the tile.
typedef struct At {
  V row, chunk;
  V off;  // bytes from the box's origin (i64), or NULL: not known
} At;

static V offset_of(Gpu *n, const Box *b, V row, V chunk) {
  V line = LLVMBuildMul(n->g->b, wide(n, row), b->row_stride, "");
  return e_iadd(n->g, line, wide(n, gpu_mul(n, chunk, 16)));
}

// What lies outside the tensor is 0.
static void copy_chunk(Gpu *n, const Box *whole, Tile s, const Type *t, At at) {
  Cg *g = n->g;
  V row = at.row;
  Box piece = piece_of(n, whole, &row), *b = &piece;
  uint32_t elems = 16 / b->size;
  V col = gpu_mul(n, at.chunk, elems);
  V r = e_icmp(g, LLVMIntULT, gpu_add(n, b->row0, row), b->nrows);
  V left = e_isub(g, b->ncols, gpu_add(n, b->col0, col));
  V some = e_icmp(g, LLVMIntSGT, left, gpu_i32(n, 0));
  V ok = e_and(g, e_and(g, r, b->rows_ok), some);
  V many = e_sel(g, e_icmp(g, LLVMIntSLT, left, gpu_i32(n, elems)), left,
                 gpu_i32(n, elems));
  many = e_sel(g, ok, gpu_mul(n, many, b->size), gpu_i32(n, 0));
  V off = at.off ? at.off : offset_of(n, b, row, at.chunk);
  V from = e_iadd(g, b->base, e_sel(g, ok, off, gpu_i64(n, 0)));
  Chunk c = {gpu_element(n, s, t, at.row, col), from, many};
  n->vendor->copy(n, &c);
}

// The same by elements, for any strides.
static void copy_elements(Gpu *n, const Box *whole, Tile s, const Type *t,
                          At to) {
  Cg *g = n->g;
  V row = to.row;
  Box piece = piece_of(n, whole, &row), *b = &piece;
  uint32_t elems = 16 / b->size;
  LLVMTypeRef et = LLVMIntTypeInContext(g->lc, 8 * b->size);
  V zero = LLVMConstNull(et);
  V r = e_icmp(g, LLVMIntULT, gpu_add(n, b->row0, row), b->nrows);
  r = e_and(g, r, b->rows_ok);
  V line =
      e_iadd(g, b->base, LLVMBuildMul(g->b, wide(n, row), b->row_stride, ""));
  for (uint32_t i = 0; i < elems; i++) {
    V col = gpu_add(n, gpu_mul(n, to.chunk, elems), gpu_i32(n, i));
    V c = e_icmp(g, LLVMIntULT, gpu_add(n, b->col0, col), b->ncols);
    LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b), end;
    end = gpu_if(n, e_and(g, r, c));
    V at = LLVMBuildMul(g->b, wide(n, col), b->col_stride, "");
    V x = LLVMBuildLoad2(g->b, et, gpu_global(n, e_iadd(g, line, at)), "");
    LLVMBasicBlockRef in = LLVMGetInsertBlock(g->b);
    gpu_end(n, end);
    V phi = LLVMBuildPhi(g->b, et, ""), v[2] = {zero, x};
    LLVMBasicBlockRef at_[2] = {from, in};
    LLVMAddIncoming(phi, v, at_, 2);
    LLVMBuildStore(g->b, phi, gpu_element(n, s, t, to.row, col));
  }
}

typedef void CopyFn(Gpu *n, const Box *b, Tile s, const Type *t, At at);

enum { MOST_STEPS = 32 };  // of a copy that is not a loop

// A row's chunks are copied by so many threads, of which each keeps its column
// in all rows: the least divisor of all that is enough. 0: they are too few.
//   14 chunks a row, 128 threads: 16, of which 14 copy; 8 rows at once
static uint32_t threads_of_row(uint32_t per_row, uint32_t threads) {
  for (uint32_t i = per_row; i <= threads; i++)
    if (threads % i == 0) return i;
  return 0;
}

// Rows are one behind the other, all of their addresses the first and a
// constant. False: a row is more than the threads, or there are too many rows.
static bool copy_rows(Gpu *n, const Box *b, Tile s, const Type *t) {
  Cg *g = n->g;
  uint32_t per_row = t->ext[1] * b->size / 16, rows = t->ext[0];
  uint32_t of_row = threads_of_row(per_row, n->grp.threads);
  uint32_t each = of_row ? n->grp.threads / of_row : 1;
  if (!of_row || (rows + each - 1) / each > MOST_STEPS) return false;
  V tid = n->grp.tid, by = gpu_i32(n, of_row);
  V first = LLVMBuildUDiv(g->b, tid, by, "");
  At at = {.chunk = LLVMBuildURem(g->b, tid, by, "")};
  V mine = e_icmp(g, LLVMIntULT, at.chunk, gpu_i32(n, per_row));
  V step = LLVMBuildMul(g->b, b->row_stride, gpu_i64(n, each), "");
  LLVMBasicBlockRef end = of_row > per_row ? gpu_if(n, mine) : NULL;
  bool lines = b->pieces == 1 && b->turns <= 1;
  for (uint32_t i = 0; i < rows; i += each) {
    at.row = gpu_add(n, first, gpu_i32(n, i));
    if (lines && i) at.off = e_iadd(g, at.off, step);
    else if (lines) at.off = offset_of(n, b, first, at.chunk);
    V there = e_icmp(g, LLVMIntULT, at.row, gpu_i32(n, rows));
    LLVMBasicBlockRef last = i + each > rows ? gpu_if(n, there) : NULL;
    copy_chunk(n, b, s, t, at);
    if (last) gpu_end(n, last);
  }
  if (end) gpu_end(n, end);
  return true;
}

// for (id = thread; id < chunks; id += threads) fn(row, chunk)
static void each_chunk(Gpu *n, const Box *b, Tile s, const Type *t,
                       CopyFn *fn) {
  Cg *g = n->g;
  uint32_t per_row = t->ext[1] * b->size / 16, all = per_row * t->ext[0];
  uint32_t threads = n->grp.threads;
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b), head = cg_block(g, "copy");
  LLVMBasicBlockRef body = cg_block(g, "chunk"), done = cg_block(g, "copied");
  LLVMBuildBr(g->b, head);
  LLVMPositionBuilderAtEnd(g->b, head);
  V id = LLVMBuildPhi(g->b, gpu_i32t(n), "");
  LLVMAddIncoming(id, &n->grp.tid, &from, 1);
  LLVMBuildCondBr(g->b, e_icmp(g, LLVMIntULT, id, gpu_i32(n, all)), body, done);
  LLVMPositionBuilderAtEnd(g->b, body);
  At at = {.row = LLVMBuildUDiv(g->b, id, gpu_i32(n, per_row), ""),
           .chunk = LLVMBuildURem(g->b, id, gpu_i32(n, per_row), "")};
  fn(n, b, s, t, at);
  V next = gpu_add(n, id, gpu_i32(n, threads));
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
  LLVMAddIncoming(id, &next, &latch, 1);
  LLVMBuildBr(g->b, head);
  LLVMPositionBuilderAtEnd(g->b, done);
}

void gpu_cp_async(Gpu *n, const Op *op) {
  Cg *g = n->g;
  if (gpu_is_told(n, op)) {
    gpu_copy_told(n, op);
    return;
  }
  Tile s = gpu_tile(n, op->args[0]);
  const Type *t = gpu_arg_type(n, op, 0);
  Box b = box_of(n, op, op->args[1], 2);
  LLVMBasicBlockRef fast = cg_block(g, "chunks"),
                    slow = cg_block(g, "elements");
  LLVMBasicBlockRef done = cg_block(g, "filled");
  LLVMBuildCondBr(g->b, chunks_ok(n, &b), fast, slow);
  LLVMPositionBuilderAtEnd(g->b, fast);
  if (!copy_rows(n, &b, s, t)) each_chunk(n, &b, s, t, copy_chunk);
  LLVMBuildBr(g->b, done);
  LLVMPositionBuilderAtEnd(g->b, slow);
  each_chunk(n, &b, s, t, copy_elements);
  LLVMBuildBr(g->b, done);
  LLVMPositionBuilderAtEnd(g->b, done);
}
