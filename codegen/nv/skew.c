// skew: rows of an `acc` tile, each moved by its number, in the group's
// scratch.
//
// A warp has 16 rows of the operand, of which it needs the columns of its own
// diagonals alone: as many as the result has, and 15. It writes these, in pairs
// of columns, and reads a number of each pair at another column of the same
// row. The pitch, 8 or 24 words more than a multiple of 32, brings the pairs of
// four rows to different banks. No other warp reads or writes there.
#include "codegen/gpu/gpu.h"

enum { BLOCK = 8, WORD = 4 };

typedef struct Skew {
  Gpu *n;
  uint32_t cols, pitch;  // of the result; in words
  V row, col;            // the thread's first, of its warp's rows
  V at;                  // byte of the warp's rows
  V first;               // column of the operand that these begin with
} Skew;

static void warp_sync(Gpu *n) {
  V all = gpu_i32(n, -1);
  gpu_call(n, "llvm.nvvm.bar.warp.sync", &all, 1);
}

static Skew skew_of(Gpu *n, const Op *op) {
  const Type *t = gpu_res_type(n, op);
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  Skew s = {.n = n, .cols = t->ext[1], .pitch = t->ext[1] + SKEW_MORE};
  V rows = gpu_mul(n, n->grp.warp, SKEW_ROWS);
  s.row = e_shr(n->g, n->grp.lane, 2);
  s.col = gpu_mul(n, e_and(n->g, n->grp.lane, gpu_i32(n, 3)), 2);
  V from = gpu_mul(n, rows, s.pitch * WORD);
  s.at = gpu_add(n, gpu_scratch(n, smem_skew_bytes(t)), from);
  s.first = ir_attr_i(op, AT_REVERSE, 0)
                ? gpu_add(n, rows, gpu_i32(n, pos + 1 - s.cols))
                : e_isub(n->g, gpu_i32(n, pos + 1 - SKEW_ROWS), rows);
  return s;
}

// Register k of a tile in blocks of 8 columns: of block k / 4, columns 0 and 1,
// rows 0 and 8.
static uint32_t row_part(uint32_t k) {
  return k / 2 % 2 * BLOCK;
}

static uint32_t col_part(uint32_t k) {
  return k / 4 * BLOCK + k % 2;
}

// The pair from register k on, where the warp needs its block.
static void write_pair(const Skew *s, const Frag *x, uint32_t k, V at) {
  Cg *g = s->n->g;
  LLVMTypeRef pair = LLVMVectorType(LLVMFloatTypeInContext(g->lc), 2);
  V v = LLVMGetPoison(pair);
  for (uint32_t i = 0; i < 2; i++)
    v = LLVMBuildInsertElement(g->b, v, gpu_elem(s->n, x, k + i),
                               gpu_i32(s->n, i), "");
  V byte =
      gpu_add(s->n, at,
              gpu_i32(s->n, (row_part(k) * s->pitch + col_part(k)) * WORD));
  LLVMSetAlignment(LLVMBuildStore(g->b, v, gpu_shared(s->n, byte)), 2 * WORD);
}

static void write(const Skew *s, const Frag *x) {
  Gpu *n = s->n;
  V in_row = e_isub(n->g, s->col, s->first);
  V at = gpu_add(n, gpu_mul(n, s->row, s->pitch), in_row);
  at = gpu_add(n, s->at, gpu_mul(n, at, WORD));
  uint32_t wide = s->cols + SKEW_ROWS - 1;
  for (uint32_t k = 0; k < x->map.regs; k += 4) {
    V first = e_isub(n->g, gpu_i32(n, k / 4 * BLOCK), s->first);
    V some = e_icmp(n->g, LLVMIntULT, gpu_add(n, first, gpu_i32(n, BLOCK - 1)),
                    gpu_i32(n, wide + BLOCK - 1));
    LLVMBasicBlockRef end = gpu_if(n, some);
    write_pair(s, x, k, at);
    write_pair(s, x, k + 2, at);
    gpu_end(n, end);
  }
}

// Turned: row j of the operand is column j of the result. All warps write where
// the numbers of their rows are in it, a row of 4 words more than a multiple of
// 32, and read their own rows.
enum { TURNED_MORE = 4 };

static void write_turned(const Skew *s, const Op *op, const Frag *x,
                         uint32_t rows) {
  Gpu *n = s->n;
  bool back = ir_attr_i(op, AT_REVERSE, 0) != 0;
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  for (uint32_t k = 0; k < x->map.regs; k++) {
    V j = gpu_add(n, s->row, gpu_i32(n, row_part(k)));
    V r = gpu_add(n, s->col, gpu_i32(n, col_part(k) - pos));
    V i = back ? e_isub(n->g, j, r) : gpu_add(n, j, r);
    V at = gpu_add(n, gpu_mul(n, i, s->pitch), j);
    V byte = gpu_add(n, s->at, gpu_mul(n, at, WORD));
    V inside = e_icmp(n->g, LLVMIntULT, i, gpu_i32(n, rows));
    LLVMBasicBlockRef end = gpu_if(n, inside);
    V to = gpu_shared(n, byte);
    LLVMBuildStore(n->g->b, gpu_elem(n, x, k), to);
    gpu_end(n, end);
  }
}

static void skew_turned(Gpu *n, const Op *op) {
  const Type *t = gpu_res_type(n, op);
  LLVMTypeRef f32 = LLVMFloatTypeInContext(n->g->lc);
  Skew s = skew_of(n, op);
  s.pitch = t->ext[1] + TURNED_MORE;
  s.row = gpu_add(n, s.row, gpu_mul(n, n->grp.warp, SKEW_ROWS));
  s.at = gpu_scratch(n, smem_skew_bytes(t));
  gpu_sync(n);
  write_turned(&s, op, gpu_frag(n, op->args[0]), t->ext[0]);
  gpu_sync(n);
  Frag r = gpu_new(n, t);
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  V at = gpu_add(n, gpu_mul(n, s.row, s.pitch), s.col);
  at = gpu_add(n, s.at, gpu_mul(n, at, WORD));
  for (uint32_t k = 0; k < r.map.regs; k++) {
    V byte = gpu_add(n, at,
                     gpu_i32(n, (row_part(k) * s.pitch + col_part(k)) * WORD));
    e[k] = LLVMBuildLoad2(n->g->b, f32, gpu_shared(n, byte), "");
  }
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}

void nv_skew(Gpu *n, const Op *op) {
  if (ir_attr_i(op, AT_TRANS, 0)) {
    skew_turned(n, op);
    return;
  }
  Skew s = skew_of(n, op);
  bool back = ir_attr_i(op, AT_REVERSE, 0) != 0;
  LLVMTypeRef f32 = LLVMFloatTypeInContext(n->g->lc);
  Frag r = gpu_new(n, gpu_res_type(n, op));
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  warp_sync(n);
  write(&s, gpu_frag(n, op->args[0]));
  warp_sync(n);
  // Column j of row i is at i - j + cols - 1, or at j - i + 15.
  V by = back ? e_isub(n->g, s.row, s.col) : e_isub(n->g, s.col, s.row);
  V at = gpu_add(n, gpu_mul(n, s.row, s.pitch), by);
  at = gpu_add(n, s.at, gpu_mul(n, at, WORD));
  for (uint32_t k = 0; k < r.map.regs; k++) {
    int64_t i = row_part(k), j = col_part(k);
    int64_t col = back ? i - j + s.cols - 1 : j - i + SKEW_ROWS - 1;
    V byte = gpu_add(n, at, gpu_i32(n, (i * s.pitch + col) * WORD));
    e[k] = LLVMBuildLoad2(n->g->b, f32, gpu_shared(n, byte), "");
  }
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}
