// mma: matrix products of a group that are finished when the op is: on matrix
// units, or where they do not take it by fused multiply-adds on values read
// from shared memory, in f32.
#include "codegen/gpu/gpu.h"

#include <assert.h>

// ---------------------------------------------------------------- by elements
static V value_at(Gpu *n, Tile s, const Type *t, V row, V col) {
  V p = gpu_element(n, s, t, row, col);
  V v = LLVMBuildLoad2(n->g->b, cg_memory(n->g, t->dtype), p, "");
  return cg_cast(n->g, v, t->dtype, DT_F32);
}

static V operand(Gpu *n, Tile s, const Type *t, bool trans, V at, V k) {
  return trans ? value_at(n, s, t, k, at) : value_at(n, s, t, at, k);
}

// Adds a column of A times a row of B to c.
static void rank_one(Gpu *n, const Product *p, const FragMap *m, V k, V *c) {
  V *col = NEWN(&n->g->cx->scratch, V, p->ct->ext[1]);
  V *row = NEWN(&n->g->cx->scratch, V, p->ct->ext[0]);
  for (uint32_t r = 0; r < m->regs; r++) {
    uint32_t at[2];
    frag_at(m, r, 0, at);
    if (!row[at[0]])
      row[at[0]] =
          operand(n, p->a, p->at, p->ta, gpu_coord(n, m, AXIS_ROW, r), k);
    if (!col[at[1]])
      col[at[1]] =
          operand(n, p->b, p->bt, p->tb, gpu_coord(n, m, AXIS_COL, r), k);
    c[r] = cg_mad(n->g, row[at[0]], col[at[1]], c[r]);
  }
}

static void by_elements(Gpu *n, const Product *p, Frag *r) {
  Cg *g = n->g;
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b), body = cg_block(g, "k");
  LLVMBasicBlockRef done = cg_block(g, "product");
  LLVMBuildBr(g->b, body);
  LLVMPositionBuilderAtEnd(g->b, body);
  V k = LLVMBuildPhi(g->b, gpu_i32t(n), ""), zero = gpu_i32(n, 0);
  V *phi = NEWN(&g->cx->scratch, V, r->n), *c = NEWN(&g->cx->scratch, V, r->n);
  LLVMAddIncoming(k, &zero, &from, 1);
  for (uint32_t i = 0; i < r->n; i++) {
    c[i] = phi[i] = LLVMBuildPhi(g->b, cg_of(r->w[i]), "");
    LLVMAddIncoming(phi[i], &r->w[i], &from, 1);
  }
  rank_one(n, p, &r->map, k, c);
  V next = gpu_add(n, k, gpu_i32(n, 1));
  LLVMAddIncoming(k, &next, &body, 1);
  for (uint32_t i = 0; i < r->n; i++) LLVMAddIncoming(phi[i], &c[i], &body, 1);
  LLVMBuildCondBr(g->b, e_icmp(g, LLVMIntULT, next, gpu_i32(n, p->k)), body,
                  done);
  LLVMPositionBuilderAtEnd(g->b, done);
  memcpy(r->w, c, r->n * sizeof *c);
}

// A fragment that no instruction takes goes through the group's scratch.
static void spill_a(Gpu *n, Product *p, Type *t) {
  *t = type_smem(p->at->dtype, 1, p->at->ext[0], p->at->ext[1], LY_ROW);
  V at = gpu_scratch(n, smem_bytes(t));
  p->a = LLVMIsConstant(at)
             ? (Tile){.base = (uint32_t)LLVMConstIntGetZExtValue(at)}
             : (Tile){.var = e_shr(n->g, at, 4)};
  gpu_sync(n);
  gpu_store_frag(n, p->a, t, p->areg);
  gpu_sync(n);
  p->at = t;
}

// ---------------------------------------------------------------- sums
// Of fewer products what LLVM keeps from one for the next is little.
enum { LEAST_SUMMED = 4 };

// Is the result of op only what the next product is added to?
static bool goes_on(const Gpu *n, const Op *op) {
  const Op *next = op->next;
  return next && next->code == OP_MMA && next->nargs > 2 &&
         next->args[2] == op->res[0] && ir_count_uses(n->f, op->res[0]) == 1;
}

static bool shares_tile(const Op *first, const Op *last) {
  for (const Op *a = first; a != last; a = a->next)
    for (const Op *b = a->next; b != last->next; b = b->next)
      for (uint32_t i = 0; i < 2; i++)
        if (a->args[i] == b->args[i]) return true;
  return false;
}

// The first of the products whose sum op is a part of, and their number; 1: op
// is made by itself.
static const Op *sum_of(const Gpu *n, const Op *op, uint32_t *products) {
  const Op *first = op, *last = op;
  *products = 1;
  if (!n->vendor->sum) return op;
  while (first->prev && first->prev->code == OP_MMA && goes_on(n, first->prev))
    first = first->prev;
  while (goes_on(n, last)) last = last->next;
  for (const Op *o = first; o != last; o = o->next) ++*products;
  if (*products >= LEAST_SUMMED && *products <= MOST_SUMMED &&
      shares_tile(first, last))
    return first;
  *products = 1;
  return op;
}

// ---------------------------------------------------------------- op
static Product product_of(Gpu *n, const Op *op) {
  Product p = {.op = op,
               .at = gpu_arg_type(n, op, 0),
               .bt = gpu_arg_type(n, op, 1),
               .ct = gpu_res_type(n, op),
               .ta = ir_attr_i(op, AT_TRANSA, 0),
               .tb = ir_attr_i(op, AT_TRANS, 0)};
  p.k = p.at->ext[p.ta ? 0 : 1];
  p.rows = n->grp.threads / n->gpu.wave * n->gpu.rows;
  if (n->vendor->repeats && p.ct->ext[0] < p.rows) p.rows = p.ct->ext[0];
  p.b = gpu_operand_b(n, op);
  p.dealt = ir_attr_i(op, AT_DEALT, 0);
  if (p.dealt)
    p.b.var =
        gpu_add(n, p.b.var, gpu_mul(n, n->grp.warp, smem_panel_bytes(p.bt)));
  if (p.at->kind == TK_FRAG) p.areg = gpu_frag(n, op->args[0]);
  else p.a = gpu_tile(n, op->args[0]);
  return p;
}

static bool is_fast(const Gpu *n, const Product *p) {
  return dtype_size(p->at->dtype) <= 2 && p->k % 16 == 0 &&
         p->ct->ext[1] % n->gpu.cols == 0 && p->ct->ext[0] % p->rows == 0 &&
         p->rows % n->gpu.rows == 0;
}

static Frag addend(Gpu *n, const Op *op) {
  Frag r = gpu_new(n, gpu_res_type(n, op));
  V zero = cg_fconst(n->g, LLVMFloatTypeInContext(n->g->lc), 0);
  for (uint32_t i = 0; i < r.n; i++)
    r.w[i] = op->nargs > 2 ? gpu_frag(n, op->args[2])->w[i] : zero;
  return r;
}

static bool same_spans(const Op *a, const Op *b) {
  const IrAttr *x = ir_attr(a, AT_SPANS), *y = ir_attr(b, AT_SPANS);
  if (!x || !y) return x == y;
  return x->n == y->n && !memcmp(x->list, y->list, x->n * sizeof *x->list);
}

// All products at the last; false: they are made one after the other.
static bool add_up(Gpu *n, const Op *op) {
  Product p[MOST_SUMMED];
  uint32_t products;
  const Op *first = sum_of(n, op, &products), *o = first;
  if (products == 1) return false;
  for (uint32_t i = 0; i < products; i++, o = o->next) {
    p[i] = product_of(n, o);
    if (!is_fast(n, &p[i]) || dtype_size(p[i].at->dtype) != 2 ||
        dtype_size(p[i].bt->dtype) != 2 || p[i].k != p->k ||
        !p[i].areg != !p->areg || !same_spans(o, first))
      return false;
  }
  if (goes_on(n, op)) return true;
  Frag r = addend(n, first);
  n->vendor->sum(n, p, products, first->nargs == 2, &r);
  gpu_define(n, op->res[0], r);
  return true;
}

void gpu_mma(Gpu *n, const Op *op) {
  if (add_up(n, op)) return;
  Product p = product_of(n, op);
  Frag r = addend(n, op);
  if (!is_fast(n, &p) || !n->vendor->mma(n, &p, &r)) {
    Type t;
    if (p.areg) spill_a(n, &p, &t);
    by_elements(n, &p, &r);
  }
  gpu_define(n, op->res[0], r);
}
