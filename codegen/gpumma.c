// mma: matrix products of a group that are finished when the op is: on matrix
// units, or where they do not take it by fused multiply-adds on values read from
// shared memory, in f32.
#include "codegen/gpu.h"

#include <assert.h>

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
  p.rows = n->grp.threads / n->gpu.wave * n->gpu.rows;
  p.b = nv_tile(n, op->args[1]);
  if (p.at->kind == TK_FRAG) p.areg = nv_frag(n, op->args[0]);
  else p.a = nv_tile(n, op->args[0]);
  bool fast = dtype_size(p.at->dtype) <= 2 && p.k % 16 == 0 &&
              p.ct->ext[1] % n->gpu.cols == 0 && p.ct->ext[0] % p.rows == 0;
  if (!fast || !n->vendor->mma(n, &p, &r)) {
    Type t;
    if (p.areg) spill_a(n, &p, &t);
    by_elements(n, &p, &r);
  }
  nv_define(n, op->res[0], r);
}
