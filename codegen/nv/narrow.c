// Products by mma.sync of a shared tile of 8-bit floats, which warps widen as
// they read it: nobody puts 16-bit ones back.
//
// ldmatrix moves pairs of bytes as it does 16-bit elements. Of rows that are
// columns of the product (scores: keys) a lane so has four neighbours along the
// summed axis where an operand of 16 bits has two and two 8 on. A sum's order
// is free: A is read with its columns in that order,
//
//   operand, k   2t  2t+1  2t+8  2t+9           of 16, thread t of four
//   memory       4t  4t+1  4t+2  4t+3
//
// Rows that stay through a loop over keys are read in front of it, and lie in
// registers: their order would cost as much again in each step.
//
// Of rows that are summed over (values of keys), read transposed, lane 4 g + t
// has columns 2g, 2g + 1 of keys 2t, 2t + 1, and should have column g of one
// instruction and 8 + g of the next. Two exchanges do that: each lane gives the
// even columns first, or the odd ones, so that all lanes get one of their two.
#include "codegen/gpu/gpu.h"

static V lane_bits(Gpu *n, int shift, int64_t mask) {
  V x = shift ? e_shr(n->g, n->grp.lane, shift) : n->grp.lane;
  return e_and(n->g, x, gpu_i32(n, mask));
}

// Both words of A of a row, k step s.
static void row_of_a(Gpu *n, const Product *p, V row, uint32_t s, V *lo,
                     V *hi) {
  Cg *g = n->g;
  V col = gpu_add(n, gpu_mul(n, lane_bits(n, 0, 3), 4), gpu_i32(n, 16 * s));
  V at = gpu_element(n, p->a, p->at, row, col);
  V two = LLVMBuildLoad2(g->b, LLVMVectorType(gpu_i32t(n), 2), at, "");
  LLVMSetAlignment(two, 8);
  *lo = LLVMBuildExtractElement(g->b, two, gpu_i32(n, 0), "");
  *hi = LLVMBuildExtractElement(g->b, two, gpu_i32(n, 1), "");
}

static void load_a(Gpu *n, const Product *p, V row0, uint32_t s, V out[4]) {
  V row = gpu_add(n, row0, lane_bits(n, 2, 7));
  row_of_a(n, p, row, s, &out[0], &out[2]);
  row_of_a(n, p, gpu_add(n, row, gpu_i32(n, 8)), s, &out[1], &out[3]);
}

// The pair of f16 x, exact in bf16, as bf16: what is cut off is 0. Here
// ptxas does not find that shifts and masks are one permutation of bytes.
static V halves_to_bf16(Gpu *n, V x) {
  Cg *g = n->g;
  LLVMTypeRef f32 = LLVMFloatTypeInContext(g->lc);
  LLVMTypeRef halves = LLVMVectorType(LLVMHalfTypeInContext(g->lc), 2);
  V a[3] = {NULL, NULL, gpu_i32(n, 0x7632)};  // the upper 16 bits of both
  x = LLVMBuildFPExt(g->b, LLVMBuildBitCast(g->b, x, halves, ""),
                     LLVMVectorType(f32, 2), "");
  for (unsigned i = 0; i < 2; i++) {
    a[i] = LLVMBuildExtractElement(g->b, x, gpu_i32(n, i), "");
    a[i] = LLVMBuildBitCast(g->b, a[i], gpu_i32t(n), "");
  }
  return gpu_call(n, "llvm.nvvm.prmt", a, 3);
}

static void widened(Gpu *n, const Product *p, V word, V out[2]) {
  n->vendor->widen(n, p->bt->dtype, word, DT_F16, out);
  for (uint32_t i = 0; i < 2 && p->at->dtype == DT_BF16; i++)
    out[i] = halves_to_bf16(n, out[i]);
}

// Columns n0 .. n0 + 15 of k steps s and s + 1: words of a step's two operands.
static void load_rows(Gpu *n, const Product *p, uint32_t n0, uint32_t s,
                      V out[4]) {
  V row = gpu_add(n, lane_bits(n, 0, 15), gpu_i32(n, n0));
  nv_ldmatrix(n, gpu_chunk(n, p->b, p->bt, row, s, lane_bits(n, 4, 1)), false,
              out);
}

static void score_rows(Gpu *n, const Product *p, V row0, V *c) {
  uint32_t cols = p->ct->ext[1];
  const RowsKept *k =
      n->kept && n->kept->tile == p->op->args[0] ? n->kept : NULL;
  for (uint32_t s = 0; s < p->k / 16; s += 2) {
    V a[2][4];
    for (uint32_t i = 0; i < 2; i++)
      if (k) memcpy(a[i], k->w + 4 * (s + i), sizeof a[i]);
      else load_a(n, p, row0, s + i, a[i]);
    for (uint32_t j = 0; j < cols; j += 16) {
      V raw[4], b[2];
      load_rows(n, p, j, s, raw);
      for (uint32_t i = 0; i < 4; i++) {
        widened(n, p, raw[i], b);
        nv_mma16(n, p->at->dtype, a[i / 2], b[0], b[1], c + j / 2 + i % 2 * 4);
      }
    }
  }
}

// What a lane gives and takes of columns 0 .. 15.
typedef struct Trade {
  V gives[2], from[2];  // bytes of both words; lanes
  V even;               // is g even?
} Trade;

static Trade trade_of(Gpu *n) {
  Cg *g = n->g;
  V even = gpu_i32(n, 0x6420), odd = gpu_i32(n, 0x7531), zero = gpu_i32(n, 0);
  V low = e_icmp(g, LLVMIntEQ, lane_bits(n, 4, 1), zero);
  V at = gpu_mul(n, lane_bits(n, 3, 3), 4);
  at = gpu_add(n, at, lane_bits(n, 0, 3));
  V bit = lane_bits(n, 2, 1);
  Trade t = {.gives = {e_sel(g, low, even, odd), e_sel(g, low, odd, even)},
             .even = e_icmp(g, LLVMIntEQ, bit, zero)};
  t.from[0] = gpu_add(n, at, gpu_mul(n, bit, 16));
  t.from[1] = e_xor(g, t.from[0], gpu_i32(n, 16));
  return t;
}

// Words of keys 2t, 2t + 1, 2t + 8, 2t + 9 of column g, and of column g + 8.
static void trade(Gpu *n, const Trade *t, V lo, V hi, V out[2]) {
  V x[2];
  for (uint32_t i = 0; i < 2; i++) {
    V a[3] = {lo, hi, t->gives[i]};
    x[i] = gpu_call(n, "llvm.nvvm.prmt", a, 3);
    x[i] = n->vendor->lane_of(n, x[i], t->from[i]);
  }
  for (uint32_t i = 0; i < 2; i++)
    out[i] = e_sel(n->g, t->even, x[i], x[1 - i]);
}

static void sum_rows(Gpu *n, const Product *p, const V *words, V *c) {
  Trade t = trade_of(n);
  for (uint32_t s = 0; s < p->k / 16; s++)
    for (uint32_t j = 0; j < p->ct->ext[1]; j += 32) {
      V raw[4], col[2], b[2];
      V row = gpu_add(n, lane_bits(n, 0, 15), gpu_i32(n, 16 * s));
      nv_ldmatrix(n, gpu_chunk(n, p->b, p->bt, row, j / 16, lane_bits(n, 4, 1)),
                  true, raw);
      for (uint32_t i = 0; i < 4; i++) {
        if (i % 2 == 0) trade(n, &t, raw[i], raw[i + 1], col);
        widened(n, p, col[i % 2], b);
        nv_mma16(n, p->at->dtype, words + 4 * s, b[0], b[1], c + j / 2 + 4 * i);
      }
    }
}

// ---------------------------------------------------------------- loops
static bool is_score(const Gpu *n, const Op *op) {
  return op->code == OP_MMA && ir_attr_i(op, AT_DEALT, 0) &&
         !ir_attr_i(op, AT_TRANS, 0) && !ir_attr_i(op, AT_TRANSA, 0) &&
         gpu_arg_type(n, op, 0)->kind == TK_SMEM &&
         dtype_size(gpu_arg_type(n, op, 0)->dtype) == 2 &&
         dtype_size(gpu_arg_type(n, op, 1)->dtype) == 1;
}

static bool writes(const Op *op, Value tile) {
  return ir_mentions(op, tile) && op->code != OP_MMA;
}

// The op in front of the loop that wrote the tile last, if all threads have met
// behind it and the loop only multiplies by it; or NULL.
static const Op *written(const Op *loop, Value tile) {
  bool met = false;
  for (const Op *op = loop->regions[0]->first; op; op = op->next)
    if (writes(op, tile)) return NULL;
  for (const Op *op = loop->prev; op; op = op->prev) {
    met |= op->code == OP_GSYNC;
    if (op->code == OP_SSTORE && op->args[0] == tile) return met ? op : NULL;
    if (op->code != OP_FOR && ir_mentions(op, tile)) return NULL;
  }
  return NULL;
}

void nv_enter_loop(Gpu *n, const Op *loop) {
  const Op *op = loop->regions[0]->first;
  while (op && !is_score(n, op)) op = op->next;
  const Op *by = op ? written(loop, op->args[0]) : NULL;
  if (!by || (n->kept && n->kept->by == by)) return;
  Product p = {.at = gpu_arg_type(n, op, 0), .a = gpu_tile(n, op->args[0])};
  uint32_t steps = p.at->ext[1] / 16;
  RowsKept *k = arena_alloc(&n->g->cx->scratch, sizeof *k);
  *k = (RowsKept){op->args[0], by, NEWN(&n->g->cx->scratch, V, 4 * steps)};
  // Words that ptxas knows to be of one read stay neighbours, and are copied in
  // front of every product, which has them in another order. A word of the own
  // lane is one of its own.
  for (uint32_t s = 0; s < steps; s++) {
    load_a(n, &p, gpu_i32(n, 0), s, k->w + 4 * s);
    for (uint32_t i = 4 * s; i < 4 * s + 4; i++)
      k->w[i] = n->vendor->lane_of(n, k->w[i], n->grp.lane);
  }
  n->kept = k;
}

bool nv_mma_narrow(Gpu *n, const Product *p, V row0, Frag *r) {
  uint32_t words = p->ct->ext[1] / 2, steps = p->k / 16;
  bool sums = p->tb && p->areg && p->ct->ext[1] % 32 == 0;
  bool scores =
      !p->tb && !p->ta && !p->areg && p->k % 32 == 0 && p->ct->ext[1] % 16 == 0;
  if (!sums && !scores) return false;
  for (uint32_t i = 0; i < p->ct->ext[0] / p->rows; i++) {
    V *c = r->w + i * words;
    V row = gpu_add(n, row0, gpu_i32(n, i * p->rows));
    if (sums) sum_rows(n, p, p->areg->w + i * steps * 4, c);
    else score_rows(n, p, row, c);
  }
  r->by = 4;
  return true;
}
