// skew: rows of an `acc` tile, each moved by its number, in the group's
// scratch.
//
// A warp has 16 rows of each block of rows that the group's warps share, of
// which it needs the columns of its own diagonals alone: as many as the result
// has, and 15. It writes these, in pairs
// of columns, and reads a number of each pair at another column of the same
// row. The pitch, 8 or 24 words more than a multiple of 32, brings the pairs of
// four rows to different banks. No other warp reads or writes there.
#include "codegen/gpu/gpu.h"

enum { BLOCK = 8, WORD = 4 };

typedef struct Skew {
  Gpu *n;
  uint32_t cols, pitch;  // of the result; in words
  V row, col;            // the thread's first, of its warp's rows
  V at;                  // byte of the warp's rows, of this block
  V first;               // column of the operand that these begin with
  int64_t pos;
  bool back;
  uint32_t in_cols;  // of the operand
  bool pads;         // some diagonals lie outside of it: 0
} Skew;

static void warp_sync(Gpu *n) {
  V all = gpu_i32(n, -1);
  gpu_call(n, "llvm.nvvm.bar.warp.sync", &all, 1);
}

// Rows of a block: those that the group's warps have of a register.
static uint32_t block_rows(const Gpu *n) {
  return SKEW_ROWS * (n->grp.threads / 32);
}

static Skew skew_of(Gpu *n, const Op *op, uint32_t block) {
  const Type *t = gpu_res_type(n, op);
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  const Type *x = gpu_arg_type(n, op, 0);
  bool turned = ir_attr_i(op, AT_TRANS, 0) != 0;
  Skew s = {.n = n,
            .cols = t->ext[1],
            .pitch = t->ext[1] + SKEW_MORE,
            .pos = pos,
            .back = ir_attr_i(op, AT_REVERSE, 0) != 0,
            .in_cols = x->ext[1]};
  s.pads = !skew_inside(op, x->ext[0], t->ext[!turned], x->ext[1]);
  V rows = gpu_mul(n, n->grp.warp, SKEW_ROWS);
  if (block) rows = gpu_add(n, rows, gpu_i32(n, block * block_rows(n)));
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

// The pair from the block's register k on, where the warp needs it.
static void write_pair(const Skew *s, const Frag *x, uint32_t reg, uint32_t k,
                       V at) {
  Cg *g = s->n->g;
  LLVMTypeRef pair = LLVMVectorType(LLVMFloatTypeInContext(g->lc), 2);
  V v = LLVMGetPoison(pair);
  for (uint32_t i = 0; i < 2; i++)
    v = LLVMBuildInsertElement(g->b, v, gpu_elem(s->n, x, reg + k + i),
                               gpu_i32(s->n, i), "");
  V byte =
      gpu_add(s->n, at,
              gpu_i32(s->n, (row_part(k) * s->pitch + col_part(k)) * WORD));
  LLVMSetAlignment(LLVMBuildStore(g->b, v, gpu_shared(s->n, byte)), 2 * WORD);
}

// The block's registers begin with `reg`.
static void write(const Skew *s, const Frag *x, uint32_t reg, uint32_t regs) {
  Gpu *n = s->n;
  V in_row = e_isub(n->g, s->col, s->first);
  V at = gpu_add(n, gpu_mul(n, s->row, s->pitch), in_row);
  at = gpu_add(n, s->at, gpu_mul(n, at, WORD));
  uint32_t wide = s->cols + SKEW_ROWS - 1;
  for (uint32_t k = 0; k < regs; k += 4) {
    V first = e_isub(n->g, gpu_i32(n, k / 4 * BLOCK), s->first);
    V some = e_icmp(n->g, LLVMIntULT, gpu_add(n, first, gpu_i32(n, BLOCK - 1)),
                    gpu_i32(n, wide + BLOCK - 1));
    LLVMBasicBlockRef end = gpu_if(n, some);
    write_pair(s, x, reg, k, at);
    write_pair(s, x, reg, k + 2, at);
    gpu_end(n, end);
  }
}

// Element k of the result from what lies `at`; column r of the operand where it
// may have none: then it is 0.
static V read_elem(const Skew *s, V byte, V r) {
  Gpu *n = s->n;
  LLVMTypeRef f32 = LLVMFloatTypeInContext(n->g->lc);
  V x = LLVMBuildLoad2(n->g->b, f32, gpu_shared(n, byte), "");
  if (!s->pads) return x;
  V inside = e_icmp(n->g, LLVMIntULT, r, gpu_i32(n, s->in_cols));
  return LLVMBuildSelect(n->g->b, inside, x, LLVMConstReal(f32, 0), "");
}

// Column of the operand that is wanted where the result's coordinate is `by`
// more than the one that both have.
static V diagonal(const Skew *s, V by) {
  V pos = gpu_i32(s->n, s->pos);
  return s->back ? e_isub(s->n->g, pos, by) : gpu_add(s->n, pos, by);
}

// Turned: row j of the operand is column j of the result. All warps write where
// the numbers of their rows are in it, a row of 4 words more than a multiple of
// 32, and read their own rows.
enum { TURNED_MORE = 4 };

static void write_turned(const Skew *s, const Frag *x, uint32_t rows) {
  Gpu *n = s->n;
  for (uint32_t k = 0; k < x->map.regs; k++) {
    V j = gpu_add(n, s->row, gpu_i32(n, row_part(k)));
    V r = gpu_add(n, s->col, gpu_i32(n, col_part(k) - s->pos));
    V i = s->back ? e_isub(n->g, j, r) : gpu_add(n, j, r);
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
  Skew s = skew_of(n, op, 0);
  s.pitch = t->ext[1] + TURNED_MORE;
  s.row = gpu_add(n, s.row, gpu_mul(n, n->grp.warp, SKEW_ROWS));
  s.at = gpu_scratch(n, smem_skew_bytes(t));
  gpu_sync(n);
  write_turned(&s, gpu_frag(n, op->args[0]), t->ext[0]);
  gpu_sync(n);
  Frag r = gpu_new(n, t);
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  V at = gpu_add(n, gpu_mul(n, s.row, s.pitch), s.col);
  at = gpu_add(n, s.at, gpu_mul(n, at, WORD));
  for (uint32_t k = 0; k < r.map.regs; k++) {
    int64_t i = row_part(k), j = col_part(k);
    V byte = gpu_add(n, at, gpu_i32(n, (i * s.pitch + j) * WORD));
    V more = e_isub(n->g, s.row, gpu_add(n, s.col, gpu_i32(n, j - i)));
    e[k] = read_elem(&s, byte, diagonal(&s, more));
  }
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}

static void read(const Skew *s, V *e, uint32_t regs) {
  Gpu *n = s->n;
  // Column j of row i is at i - j + cols - 1, or at j - i + 15.
  V by = s->back ? e_isub(n->g, s->row, s->col) : e_isub(n->g, s->col, s->row);
  V at = gpu_add(n, gpu_mul(n, s->row, s->pitch), by);
  at = gpu_add(n, s->at, gpu_mul(n, at, WORD));
  for (uint32_t k = 0; k < regs; k++) {
    int64_t i = row_part(k), j = col_part(k);
    int64_t col = s->back ? i - j + s->cols - 1 : j - i + SKEW_ROWS - 1;
    V byte = gpu_add(n, at, gpu_i32(n, (i * s->pitch + col) * WORD));
    V in_part = gpu_add(n, by, gpu_i32(n, col));
    e[k] = read_elem(s, byte, gpu_add(n, s->first, in_part));
  }
}

void nv_skew(Gpu *n, const Op *op) {
  if (ir_attr_i(op, AT_TRANS, 0)) {
    skew_turned(n, op);
    return;
  }
  const Frag *x = gpu_frag(n, op->args[0]);
  Frag r = gpu_new(n, gpu_res_type(n, op));
  uint32_t rows = gpu_res_type(n, op)->ext[0];
  uint32_t blocks = rows / block_rows(n);
  uint32_t from = x->map.regs / blocks, regs = r.map.regs / blocks;
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  Skew *s = NEWN(&n->g->cx->scratch, Skew, blocks);
  warp_sync(n);
  for (uint32_t i = 0; i < blocks; i++) {
    s[i] = skew_of(n, op, i);
    write(&s[i], x, i * from, from);
  }
  warp_sync(n);
  for (uint32_t i = 0; i < blocks; i++) read(&s[i], e + i * regs, regs);
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}
