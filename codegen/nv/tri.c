// ftrinv: the inverse of 1 + a strictly triangular matrix, in blocks of 16 x 16
// on the diagonal of an `acc` tile. A warp holds the block of its own rows: it
// is solved there by substitution, with shuffles only.
//
// A thread has rows g and g + 8 of the block (g = lane / 4) and of each the
// columns 2c, 2c + 1, 8 + 2c, 9 + 2c (c = lane % 4). Step i takes L[r][i] times
// row i off each row r that is behind it.
#include "codegen/gpu/gpu.h"

enum { BLOCK = 16, BLOCK_REGS = 8 };

// Elements of a thread in a block, by [8 col][8 row][1 col] in bits 2, 1, 0.
typedef struct Block {
  V x[BLOCK_REGS];
} Block;

// The block of warp w in a tile with `cols` columns, rows from `row`.
static uint32_t reg_of(uint32_t cols, uint32_t m, uint32_t col, uint32_t k) {
  return m * cols / 2 + (col + 8 * (k >> 2)) / 2 + (k & 3);
}

static V is_warp(Gpu *n, uint32_t w) {
  return e_icmp(n->g, LLVMIntEQ, n->grp.warp, gpu_i32(n, w));
}

static Block own_block(Gpu *n, const Frag *f, uint32_t cols, uint32_t m) {
  uint32_t warps = n->grp.threads / 32;
  Block b;
  for (uint32_t k = 0; k < BLOCK_REGS; k++)
    for (uint32_t w = 0; w < warps; w++) {
      V x = gpu_elem(n, f, reg_of(cols, m, BLOCK * (m * warps + w), k));
      b.x[k] = w ? LLVMBuildSelect(n->g->b, is_warp(n, w), x, b.x[k], "") : x;
    }
  return b;
}

static V row_of(Gpu *n, uint32_t k) {
  return gpu_add(n, e_shr(n->g, n->grp.lane, 2), gpu_i32(n, 8 * (k >> 1 & 1)));
}

static V col_of(Gpu *n, uint32_t k) {
  V c = gpu_mul(n, e_and(n->g, n->grp.lane, gpu_i32(n, 3)), 2);
  return gpu_add(n, c, gpu_i32(n, 8 * (k >> 2) + (k & 1)));
}

static V from(Gpu *n, V x, FromLane lane) {
  Cg *g = n->g;
  V bits = LLVMBuildBitCast(g->b, x, gpu_i32t(n), "");
  bits = n->vendor->from_lane(n, bits, lane);
  return LLVMBuildBitCast(g->b, bits, cg_of(x), "");
}

// Takes L[r][i] * row i off the rows r. Row i is 0 beyond the diagonal.
static void eliminate(Gpu *n, const Block *l, Block *x, uint32_t i,
                      bool upper) {
  Cg *g = n->g;
  V quad = e_and(g, n->grp.lane, gpu_i32(n, ~3));
  uint32_t l_at = i % 8 / 2, x_at = i % 8 * 4;
  FromLane of_l = {gpu_add(n, quad, gpu_i32(n, l_at)), 31 & ~3, l_at};
  V pos = e_and(g, n->grp.lane, gpu_i32(n, 3));
  FromLane of_x = {gpu_add(n, pos, gpu_i32(n, x_at)), 3, x_at};
  V factor[2] = {NULL, NULL};
  for (uint32_t r = 0; r < 2; r++) {
    bool none = upper ? r == 1 && i < 8 : r == 0 && i >= 8;
    uint32_t k = i / 8 << 2 | r << 1 | (i & 1);
    if (!none) factor[r] = LLVMBuildFNeg(g->b, from(n, l->x[k], of_l), "");
  }
  for (uint32_t c = 0; c < 4; c++) {
    uint32_t col = (c & 2) << 1 | (c & 1);
    if (upper ? !(c & 2) && i >= 8 : (c & 2) && i < 8) continue;
    V y = from(n, x->x[col | i / 8 << 1], of_x);
    for (uint32_t r = 0; r < 2; r++) {
      V a[3] = {factor[r], y, x->x[col | r << 1]};
      if (a[0])
        x->x[col | r << 1] = cg_intrinsic(g, "llvm.fma", cg_of(y), a, 3);
    }
  }
}

static Block invert(Gpu *n, const Block *l, bool upper) {
  Cg *g = n->g;
  Block x, m;
  V zero = e_f(g, l->x[0], 0), one = e_f(g, l->x[0], 1);
  for (uint32_t k = 0; k < BLOCK_REGS; k++) {
    V row = row_of(n, k), col = col_of(n, k);
    V in = e_icmp(g, upper ? LLVMIntULT : LLVMIntUGT, row, col);
    m.x[k] = LLVMBuildSelect(g->b, in, l->x[k], zero, "");
    x.x[k] =
        LLVMBuildSelect(g->b, e_icmp(g, LLVMIntEQ, row, col), one, zero, "");
  }
  for (uint32_t k = 0; k + 1 < BLOCK; k++)
    eliminate(n, &m, &x, upper ? BLOCK - 1 - k : k, upper);
  return x;
}

void nv_ftrinv(Gpu *n, const Op *op) {
  const Frag *f = gpu_frag(n, op->args[0]);
  const Type *t = gpu_res_type(n, op);
  Frag r = gpu_new(n, t);
  bool upper = ir_attr_i(op, AT_TRANS, 0) != 0;
  uint32_t warps = n->grp.threads / 32, rows = BLOCK * warps, cols = t->ext[1];
  V zero = e_f(n->g, f->w[0], 0);
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  for (uint32_t i = 0; i < r.map.regs; i++) e[i] = zero;
  for (uint32_t m = 0; m < t->ext[0] / rows; m++) {
    Block b = own_block(n, f, cols, m);
    b = invert(n, &b, upper);
    for (uint32_t w = 0; w < warps; w++)
      for (uint32_t k = 0; k < BLOCK_REGS; k++)
        e[reg_of(cols, m, BLOCK * (m * warps + w), k)] =
            LLVMBuildSelect(n->g->b, is_warp(n, w), b.x[k], zero, "");
  }
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}
