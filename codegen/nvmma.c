// mma: matrix products of a group that are finished when the op is. 16-bit
// operands: mma.sync with operands by ldmatrix. All others: fused
// multiply-adds on values read from shared memory, in f32.
#include "codegen/nv.h"

#include <assert.h>

typedef struct Product {
  const Op *op;
  const Type *at, *bt, *ct;
  bool ta, tb;
  Tile a, b;
  const Frag *areg;      // NULL: A is the shared tile a
  uint32_t rows, k;      // rows of all warps together (16 each), k extent
} Product;

// ---------------------------------------------------------------- ldmatrix
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

// ---------------------------------------------------------------- by elements
static V value_at(Nv *n, Tile s, const Type *t, V row, V col) {
  V p = nv_element(n, s, t, row, col);
  V v = LLVMBuildLoad2(n->g->b, cg_memory(n->g, t->dtype), p, "");
  return cg_cast(n->g, v, t->dtype, DT_F32);
}

static V operand(Nv *n, Tile s, const Type *t, bool trans, V at, V k) {
  return trans ? value_at(n, s, t, k, at) : value_at(n, s, t, at, k);
}

// Adds a column of A times a row of B to c.
static void rank_one(Nv *n, const Product *p, const FragMap *m, V k, V *c) {
  V *col = NEWN(&n->g->cx->scratch, V, p->ct->ext[1]);
  V *row = NEWN(&n->g->cx->scratch, V, p->ct->ext[0]);
  for (uint32_t r = 0; r < m->regs; r++) {
    uint32_t at[2];
    frag_at(m, r, 0, at);
    if (!row[at[0]])
      row[at[0]] = operand(n, p->a, p->at, p->ta,
                           nv_coord(n, m, AXIS_ROW, r), k);
    if (!col[at[1]])
      col[at[1]] = operand(n, p->b, p->bt, p->tb,
                           nv_coord(n, m, AXIS_COL, r), k);
    c[r] = cg_mad(n->g, row[at[0]], col[at[1]], c[r]);
  }
}

static void by_elements(Nv *n, const Product *p, Frag *r) {
  Cg *g = n->g;
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b), body = cg_block(g, "k");
  LLVMBasicBlockRef done = cg_block(g, "product");
  LLVMBuildBr(g->b, body);
  LLVMPositionBuilderAtEnd(g->b, body);
  V k = LLVMBuildPhi(g->b, nv_i32t(n), ""), zero = nv_i32(n, 0);
  V *phi = NEWN(&g->cx->scratch, V, r->n), *c = NEWN(&g->cx->scratch, V, r->n);
  LLVMAddIncoming(k, &zero, &from, 1);
  for (uint32_t i = 0; i < r->n; i++) {
    c[i] = phi[i] = LLVMBuildPhi(g->b, cg_of(r->w[i]), "");
    LLVMAddIncoming(phi[i], &r->w[i], &from, 1);
  }
  rank_one(n, p, &r->map, k, c);
  V next = nv_add(n, k, nv_i32(n, 1));
  LLVMAddIncoming(k, &next, &body, 1);
  for (uint32_t i = 0; i < r->n; i++) LLVMAddIncoming(phi[i], &c[i], &body, 1);
  LLVMBuildCondBr(g->b, e_icmp(g, LLVMIntULT, next, nv_i32(n, p->k)), body,
                  done);
  LLVMPositionBuilderAtEnd(g->b, done);
  memcpy(r->w, c, r->n * sizeof *c);
}

// A fragment that no instruction takes goes through the group's scratch.
static void spill_a(Nv *n, Product *p, Type *t) {
  *t = type_smem(p->at->dtype, 1, p->at->ext[0], p->at->ext[1], LY_ROW);
  V at = nv_scratch(n, smem_bytes(t));
  p->a = LLVMIsConstant(at)
             ? (Tile){.base = (uint32_t)LLVMConstIntGetZExtValue(at)}
             : (Tile){.var = e_shr(n->g, at, 4)};
  nv_sync(n);
  nv_store_frag(n, p->a, t, p->areg);
  nv_sync(n);
  p->at = t;
}

// ---------------------------------------------------------------- op
void nv_mma(Nv *n, const Op *op) {
  Product p = {.op = op, .at = nv_arg_type(n, op, 0),
               .bt = nv_arg_type(n, op, 1), .ct = nv_res_type(n, op),
               .ta = ir_attr_i(op, AT_TRANSA, 0),
               .tb = ir_attr_i(op, AT_TRANS, 0)};
  Frag r = nv_new(n, p.ct);
  V zero = cg_fconst(n->g, LLVMFloatTypeInContext(n->g->lc), 0);
  for (uint32_t i = 0; i < r.n; i++)
    r.w[i] = op->nargs > 2 ? nv_frag(n, op->args[2])->w[i] : zero;
  p.k = p.at->ext[p.ta ? 0 : 1];
  p.rows = n->grp.threads / 2;
  p.b = nv_tile(n, op->args[1]);
  if (p.at->kind == TK_FRAG) p.areg = nv_frag(n, op->args[0]);
  else p.a = nv_tile(n, op->args[0]);
  uint32_t blocks = p.ct->ext[0] / p.rows;
  bool fast = (p.at->dtype == DT_BF16 || p.at->dtype == DT_F16) &&
              p.k % 16 == 0 && p.ct->ext[1] % 16 == 0 &&
              p.ct->ext[0] % p.rows == 0;
  if (!fast) {
    Type t;
    if (p.areg) spill_a(n, &p, &t);
    by_elements(n, &p, &r);
  }
  for (uint32_t i = 0; fast && i < blocks; i++)
    row_block(n, &p, i, r.w + i * p.ct->ext[1] / 2);
  nv_define(n, op->res[0], r);
}
