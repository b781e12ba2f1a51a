// Products by mma.sync on sm_80 and later: 16-bit operands by ldmatrix, A from
// registers or shared memory.
#include "codegen/gpu.h"

static void load4(Nv *n, V at, bool trans, V out[4]) {
  LLVMTypeRef p3 = LLVMPointerTypeInContext(n->g->lc, 3);
  V s = nv_call_over(n, trans
                            ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16"
                            : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16",
                     p3, &at, 1);
  for (uint32_t i = 0; i < 4; i++)
    out[i] = LLVMBuildExtractValue(n->g->b, s, i, "");
}

static V lane_bits(Nv *n, int shift, int64_t mask) {
  V x = shift ? e_shr(n->g, n->grp.lane, shift) : n->grp.lane;
  return e_and(n->g, x, nv_i32(n, mask));
}

// A of row block i, k step s: rows g and g + 8, k and k + 8. Stored {m, k}:
// lane l has row l % 16, chunk l / 16; {k, m}, transposed: row l / 16 * 8 + l %
// 8, chunk l / 8 % 2.
static void load_a(Nv *n, const Product *p, uint32_t i, uint32_t s, V out[4]) {
  V row0 = nv_add(n, nv_mul(n, n->grp.warp, 16), nv_i32(n, i * p->rows));
  if (!p->ta) {
    V row = nv_add(n, row0, lane_bits(n, 0, 15));
    load4(n, nv_chunk(n, p->a, p->at, row, 2 * s, lane_bits(n, 4, 1)), false,
          out);
    return;
  }
  V row = nv_add(n, nv_mul(n, lane_bits(n, 4, 1), 8), lane_bits(n, 0, 7));
  row = nv_add(n, row, nv_i32(n, 16 * s));
  V col = nv_add(n, row0, nv_mul(n, lane_bits(n, 3, 1), 8));
  load4(n, nv_element(n, p->a, p->at, row, col), true, out);
}

// B of columns n0 .. n0 + 15, k step s, as two operands.
static void load_b(Nv *n, const Product *p, uint32_t n0, uint32_t s, V out[4]) {
  if (p->tb) {           // {k, n}: row k, transposed on the way
    V row = nv_add(n, lane_bits(n, 0, 15), nv_i32(n, 16 * s));
    load4(n, nv_chunk(n, p->b, p->bt, row, n0 / 8, lane_bits(n, 4, 1)), true,
          out);
    return;
  }
  V row = nv_add(n, nv_mul(n, lane_bits(n, 4, 1), 8), lane_bits(n, 0, 7));
  row = nv_add(n, row, nv_i32(n, n0));
  load4(n, nv_chunk(n, p->b, p->bt, row, 2 * s, lane_bits(n, 3, 1)), false,
        out);
}

static void mma16(Nv *n, DType t, const V *a, V b0, V b1, V *c) {
  Cg *g = n->g;
  V x[10] = {a[0], a[1], a[2], a[3], b0, b1, c[0], c[1], c[2], c[3]};
  LLVMTypeRef half = LLVMVectorType(LLVMHalfTypeInContext(g->lc), 2);
  for (uint32_t i = 0; t == DT_F16 && i < 6; i++)
    x[i] = LLVMBuildBitCast(g->b, x[i], half, "");
  V r = nv_call(n, t == DT_F16 ? "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"
                               : "llvm.nvvm.mma.m16n8k16.row.col.bf16",
                x, 10);
  for (uint32_t i = 0; i < 4; i++) c[i] = LLVMBuildExtractValue(g->b, r, i, "");
}

static void row_block(Nv *n, const Product *p, uint32_t i, V *c) {
  uint32_t cols = p->ct->ext[1], steps = p->k / 16;
  for (uint32_t s = 0; s < steps; s++) {
    V a[4], b[4];
    if (p->areg) memcpy(a, p->areg->w + (i * steps + s) * 4, sizeof a);
    else load_a(n, p, i, s, a);
    for (uint32_t j = 0; j < cols; j += 16) {
      load_b(n, p, j, s, b);
      mma16(n, p->at->dtype, a, b[0], b[1], c + j / 2);
      if (j + 8 < cols) mma16(n, p->at->dtype, a, b[2], b[3], c + j / 2 + 4);
    }
  }
}

bool nv_mma_sync(Nv *n, const Product *p, Frag *r) {
  DType t = p->at->dtype;
  if (t != DT_BF16 && t != DT_F16) return false;
  for (uint32_t i = 0; i < p->ct->ext[0] / p->rows; i++)
    row_block(n, p, i, r->w + i * p->ct->ext[1] / 2);
  return true;
}

bool nv_load_a(Nv *n, Tile s, const Type *t, bool trans, const Type *ft,
               Frag *f) {
  Product p = {.at = t, .a = s, .ta = trans};
  p.rows = n->grp.threads / n->gpu.wave * n->gpu.rows;
  if (dtype_size(t->dtype) != 2 || ft->layout != LY_ACC ||
      ft->ext[0] % p.rows || ft->ext[1] % 16)
    return false;
  uint32_t steps = ft->ext[1] / 16;
  for (uint32_t i = 0; i < ft->ext[0] / p.rows; i++)
    for (uint32_t k = 0; k < steps; k++)
      load_a(n, &p, i, k, f->w + (i * steps + k) * 4);
  return true;
}
