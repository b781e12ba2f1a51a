// Products by mma.sync on sm_80 and later: 16-bit operands by ldmatrix, A from
// registers or shared memory.
#include "codegen/gpu/gpu.h"

void nv_ldmatrix(Gpu *n, V at, bool trans, V out[4]) {
  LLVMTypeRef p3 = LLVMPointerTypeInContext(n->g->lc, 3);
  V s =
      gpu_call_over(n,
                    trans ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16"
                          : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16",
                    p3, &at, 1);
  for (uint32_t i = 0; i < 4; i++)
    out[i] = LLVMBuildExtractValue(n->g->b, s, i, "");
}

static V lane_bits(Gpu *n, int shift, int64_t mask) {
  V x = shift ? e_shr(n->g, n->grp.lane, shift) : n->grp.lane;
  return e_and(n->g, x, gpu_i32(n, mask));
}

// The first row of the thread's warp: where there are fewer rows than warps
// have, several do the same.
static V first_row(Gpu *n, const Product *p) {
  V warp = n->grp.warp;
  if (p->dealt) return gpu_i32(n, 0);
  uint32_t rows = n->grp.threads / n->gpu.wave * n->gpu.rows;
  if (p->rows < rows)
    warp = e_and(n->g, warp, gpu_i32(n, p->rows / n->gpu.rows - 1));
  return gpu_mul(n, warp, n->gpu.rows);
}

// A of row block i, k step s: rows g and g + 8, k and k + 8. Stored {m, k}:
// lane l has row l % 16, chunk l / 16; {k, m}, transposed: row l / 16 * 8 + l %
// 8, chunk l / 8 % 2.
static void load_a(Gpu *n, const Product *p, uint32_t i, uint32_t s, V out[4]) {
  V row0 = gpu_add(n, first_row(n, p), gpu_i32(n, i * p->rows));
  if (!p->ta) {
    V row = gpu_add(n, row0, lane_bits(n, 0, 15));
    nv_ldmatrix(n, gpu_chunk(n, p->a, p->at, row, 2 * s, lane_bits(n, 4, 1)),
                false, out);
    return;
  }
  V row = lane_bits(n, 0, 7);
  row = gpu_add(n, gpu_mul(n, lane_bits(n, 4, 1), 8), row);
  row = gpu_add(n, row, gpu_i32(n, 16 * s));
  V col = gpu_add(n, row0, gpu_mul(n, lane_bits(n, 3, 1), 8));
  nv_ldmatrix(n, gpu_element(n, p->a, p->at, row, col), true, out);
}

// B of columns n0 .. n0 + 15, k step s, as two operands.
static void load_b(Gpu *n, const Product *p, uint32_t n0, uint32_t s,
                   V out[4]) {
  if (p->tb) {  // {k, n}: row k, transposed on the way
    V row = gpu_add(n, lane_bits(n, 0, 15), gpu_i32(n, 16 * s));
    nv_ldmatrix(n, gpu_chunk(n, p->b, p->bt, row, n0 / 8, lane_bits(n, 4, 1)),
                true, out);
    return;
  }
  V row = lane_bits(n, 0, 7);
  row = gpu_add(n, gpu_mul(n, lane_bits(n, 4, 1), 8), row);
  row = gpu_add(n, row, gpu_i32(n, n0));
  nv_ldmatrix(n, gpu_chunk(n, p->b, p->bt, row, 2 * s, lane_bits(n, 3, 1)),
              false, out);
}

void nv_mma16(Gpu *n, DType t, const V *a, V b0, V b1, V *c) {
  Cg *g = n->g;
  V x[10] = {a[0], a[1], a[2], a[3], b0, b1, c[0], c[1], c[2], c[3]};
  LLVMTypeRef half = LLVMVectorType(LLVMHalfTypeInContext(g->lc), 2);
  for (uint32_t i = 0; t == DT_F16 && i < 6; i++)
    x[i] = LLVMBuildBitCast(g->b, x[i], half, "");
  V r = gpu_call(n,
                 t == DT_F16 ? "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"
                             : "llvm.nvvm.mma.m16n8k16.row.col.bf16",
                 x, 10);
  for (uint32_t i = 0; i < 4; i++) c[i] = LLVMBuildExtractValue(g->b, r, i, "");
}

// Does step s add something else than zeros to columns j .. j + 15?
static bool adds_to(const Product *p, uint32_t s, uint32_t j) {
  const IrAttr *at = ir_attr(p->op, AT_SPANS);
  return !at || (at->list[2 * s] < j + 16 && j < at->list[2 * s + 1]);
}

static bool adds_some(const Product *p, uint32_t s) {
  const IrAttr *at = ir_attr(p->op, AT_SPANS);
  return !at || at->list[2 * s] < at->list[2 * s + 1];
}

static void row_block(Gpu *n, const Product *p, uint32_t i, V *c) {
  uint32_t cols = p->ct->ext[1], steps = p->k / 16;
  for (uint32_t s = 0; s < steps; s++) {
    V a[4], b[4];
    if (!adds_some(p, s)) continue;
    if (p->areg) memcpy(a, p->areg->w + (i * steps + s) * 4, sizeof a);
    else load_a(n, p, i, s, a);
    for (uint32_t j = 0; j < cols; j += 16) {
      if (!adds_to(p, s, j)) continue;
      load_b(n, p, j, s, b);
      nv_mma16(n, p->at->dtype, a, b[0], b[1], c + j / 2);
      if (j + 8 < cols) nv_mma16(n, p->at->dtype, a, b[2], b[3], c + j / 2 + 4);
    }
  }
}

bool nv_mma_sync(Gpu *n, const Product *p, Frag *r) {
  DType t = p->at->dtype;
  if (t != DT_BF16 && t != DT_F16) return false;
  if (dtype_size(p->bt->dtype) == 1)
    return nv_mma_narrow(n, p, first_row(n, p), r);
  for (uint32_t i = 0; i < p->ct->ext[0] / p->rows; i++)
    row_block(n, p, i, r->w + i * p->ct->ext[1] / 2);
  r->by = 4;
  return true;
}

// ---------------------------------------------------------------- sums
// Four matrices from chunk c0 on (or the one behind it, by `bit`) of the rows
// `row` plus row0, of which only what a lane's part makes is computed: the
// rest is in the instruction, which stays where it is. LLVM would keep
// addresses of all tiles in registers, and what it has read of them once.
typedef struct Matrices {
  Tile tile;
  const Type *t;
  V row, bit;
  uint32_t row0, c0;
  bool trans;
} Matrices;

static void load4_here(Gpu *n, const Matrices *m, V out[4]) {
  Cg *g = n->g;
  uint32_t panel = smem_panel_bytes(m->t), chunks = panel / 16;
  Tile own = m->tile;
  own.base = 0;
  V at = gpu_chunk(n, own, m->t, m->row, m->c0 % chunks, m->bit);
  at = LLVMBuildPtrToInt(g->b, at, gpu_i32t(n), "");
  uint32_t byte =
      m->tile.base + m->row0 * panel + m->c0 / chunks * panel * m->t->ext[0];
  const char *text = arena_printf(&g->cx->scratch,
                                  "ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 "
                                  "{$0, $1, $2, $3}, [$4+%u];",
                                  m->trans ? ".trans" : "", byte);
  LLVMTypeRef i = gpu_i32t(n), four[4] = {i, i, i, i};
  V r = gpu_asm(n, LLVMStructTypeInContext(g->lc, four, 4, 0), text,
                "=r,=r,=r,=r,r,~{memory}", &at, 1);
  for (unsigned k = 0; k < 4; k++)
    out[k] = LLVMBuildExtractValue(g->b, r, k, "");
}

static void a_here(Gpu *n, const Product *p, uint32_t i, uint32_t s, V out[4]) {
  V row = lane_bits(n, 0, 15);
  row = gpu_add(n, first_row(n, p), row);
  Matrices m = {p->a,        p->at, row,  lane_bits(n, 4, 1),
                i * p->rows, 2 * s, false};
  if (p->areg)
    memcpy(out, p->areg->w + (i * (p->k / 16) + s) * 4, 4 * sizeof *out);
  else if (p->ta) load_a(n, p, i, s, out);
  else load4_here(n, &m, out);
}

static void b_here(Gpu *n, const Product *p, uint32_t s, uint32_t j, V out[4]) {
  V row = lane_bits(n, 0, 7);
  row = gpu_add(n, gpu_mul(n, lane_bits(n, 4, 1), 8), row);
  Matrices m = {p->b, p->bt, row, lane_bits(n, 3, 1), j, 2 * s, false};
  if (p->tb)
    m = (Matrices){
        p->b,  p->bt, lane_bits(n, 0, 15), lane_bits(n, 4, 1), 16 * s,
        j / 8, true};
  load4_here(n, &m, out);
}

// What was read for the product with number q, if one in front of it has the
// same operand.
typedef V Operands[MOST_SUMMED][4];

static const V *known(const Product *p, uint32_t q, uint32_t side, Operands x) {
  for (uint32_t i = 0; i < q; i++)
    if (p[i].op->args[side] == p[q].op->args[side]) return x[i];
  return NULL;
}

static void columns(Gpu *n, const Product *p, uint32_t j, V *a, const V *b,
                    V *c) {
  nv_mma16(n, p->at->dtype, a, b[0], b[1], c + j / 2);
  if (j + 8 < p->ct->ext[1])
    nv_mma16(n, p->at->dtype, a, b[2], b[3], c + j / 2 + 4);
}

// Every tile is read once, and only what a step, or a few columns in one, need
// of it lies in registers. Of sums that begin at 0 the products in front of the
// last are small beside it (passes/gpu/dot.c): they have sums of their own, or
// their bits would be lost in each step. All add to the same columns.
static void sum_rows(Gpu *n, const Product *p, uint32_t products, uint32_t i,
                     V *c, V *last) {
  uint32_t cols = p->ct->ext[1];
  Operands a, b;
  for (uint32_t s = 0; s < p->k / 16; s++)
    for (uint32_t j = 0, first = 1; j < cols; j += 16) {
      if (!adds_to(p, s, j)) continue;
      for (uint32_t q = 0; q < products; q++) {
        const V *x = known(p, q, 0, a), *y = known(p, q, 1, b);
        if (x) memcpy(a[q], x, sizeof a[q]);
        else if (first) a_here(n, p + q, i, s, a[q]);
        if (y) memcpy(b[q], y, sizeof b[q]);
        else b_here(n, p + q, s, j, b[q]);
        columns(n, p + q, j, a[q], b[q], q + 1 < products ? c : last);
      }
      first = 0;
    }
}

void nv_mma_sum(Gpu *n, const Product *p, uint32_t products, bool fresh,
                Frag *r) {
  uint32_t words = p->ct->ext[1] / 2;
  Frag last = *r;
  if (fresh) {
    last = gpu_new(n, p->ct);
    memcpy(last.w, r->w, r->n * sizeof *r->w);
  }
  for (uint32_t i = 0; i < p->ct->ext[0] / p->rows; i++)
    sum_rows(n, p, products, i, r->w + i * words, last.w + i * words);
  for (uint32_t i = 0; fresh && i < r->n; i++)
    r->w[i] = e_add(n->g, r->w[i], last.w[i]);
  r->by = 4;
}

// ---------------------------------------------------------------- tiles
bool nv_load_a(Gpu *n, Tile s, const Type *t, bool trans, const Type *ft,
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
  f->by = 4;
  return true;
}
