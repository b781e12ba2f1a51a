// Philox4x32-10 as LLVM code: no call, no branch.
//
// Vectors of i64 have a word in the low half of each element, where the
// hardware's products of 32 bits want it; what the high half has is cut where a
// product reads it.
#include "codegen/math/random.h"

#include "ir/core/philox.h"

enum { PAIRS = 2, WORDS = 4, HALF = 32 };

static unsigned width_of(V x) {
  LLVMTypeRef t = cg_of(x);
  if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) t = LLVMGetElementType(t);
  return LLVMGetIntTypeWidth(t);
}

// The halves of x * by.
static void product(Cg *g, V x, uint32_t by, V *lo, V *hi) {
  if (width_of(x) > HALF) {
    x = e_and(g, x, e_i(g, x, UINT32_MAX));
    *lo = LLVMBuildMul(g->b, x, e_i(g, x, by), "");
    *hi = e_shr(g, *lo, HALF);
    return;
  }
  LLVMTypeRef t = cg_of(x);
  V p = LLVMBuildZExt(g->b, x, e_like(g, x, DT_I64), "");
  p = LLVMBuildMul(g->b, p, e_i(g, p, by), "");
  *lo = LLVMBuildTrunc(g->b, p, t, "");
  *hi = LLVMBuildTrunc(g->b, e_shr(g, p, HALF), t, "");
}

void cg_random_words(Cg *g, const CgBlock *x, V words[4]) {
  static const uint32_t grows[PAIRS] = {PHILOX_W0, PHILOX_W1};
  V key[PAIRS] = {x->key[0], x->key[1]}, lo[PAIRS], hi[PAIRS];
  for (int i = 0; i < WORDS; i++) words[i] = x->at[i];
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    for (int i = 0; round && x->anew && i < WORDS; i += PAIRS)
      words[i] = x->anew(x->data, words[i]);
    product(g, words[2], PHILOX_M1, &lo[0], &hi[0]);
    product(g, words[0], PHILOX_M0, &lo[1], &hi[1]);
    for (int i = 0; i < PAIRS; i++) {
      words[2 * i] = e_xor(g, e_xor(g, hi[i], words[2 * i + 1]), key[i]);
      words[2 * i + 1] = lo[i];
      key[i] = e_iadd(g, key[i], e_i(g, key[i], grows[i]));
    }
  }
}

V cg_random_pick(Cg *g, V n, const V words[4]) {
  V zero = e_i(g, n, 0), two[PAIRS];
  V odd = e_icmp(g, LLVMIntNE, e_and(g, n, e_i(g, n, 1)), zero);
  for (int i = 0; i < PAIRS; i++)
    two[i] = e_sel(g, odd, words[2 * i + 1], words[2 * i]);
  V late = e_icmp(g, LLVMIntNE, e_and(g, n, e_i(g, n, 2)), zero);
  return e_sel(g, late, two[1], two[0]);
}

V cg_random_fraction(Cg *g, V word) {
  enum { DROPPED = 8 };
  if (width_of(word) > HALF)
    word = LLVMBuildTrunc(g->b, word, e_like(g, word, DT_I32), "");
  word = e_shr(g, word, DROPPED);
  V f = LLVMBuildSIToFP(g->b, word, e_like(g, word, DT_F32), "");
  return e_mul(g, f, e_f(g, f, 0x1p-24));
}

// ---------------------------------------------------------------- neighbours
// even, odd, even, odd ..
static V alternate(Cg *g, V even, V odd, uint32_t n) {
  V *at = NEWN(&g->cx->scratch, V, n);
  for (uint32_t i = 0; i < n; i++) at[i] = cg_i32(g, (int32_t)(i % 2 ? n : 0));
  V y = cg_splat(g, odd, n), x = cg_splat(g, even, n);
  return LLVMBuildShuffleVector(g->b, x, y, LLVMConstVector(at, n), "");
}

static V numbers(Cg *g, uint32_t even, uint32_t odd, uint32_t n) {
  V *at = NEWN(&g->cx->scratch, V, n);
  for (uint32_t i = 0; i < n; i++) at[i] = cg_i64(g, i % 2 ? odd : even);
  return LLVMConstVector(at, n);
}

static V neighbours_swapped(Cg *g, V x, uint32_t n) {
  V *at = NEWN(&g->cx->scratch, V, n);
  for (uint32_t i = 0; i < n; i++) at[i] = cg_i32(g, (int32_t)(i ^ 1));
  return LLVMBuildShuffleVector(g->b, x, x, LLVMConstVector(at, n), "");
}

// An element is half a block: words 0 and 2 of it in `even`, 1 and 3 in `odd`,
// so that both products of a block are one instruction, and the words of
// neighbours lie in order when the two are put together.
V cg_random_row(Cg *g, const CgBlock *x, uint32_t lanes) {
  uint32_t n = lanes / 2;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(g->lc);
  V at[WORDS], key[PAIRS], count = NULL, *step = NEWN(&g->cx->scratch, V, n);
  for (int i = 0; i < WORDS; i++)
    at[i] = LLVMBuildZExt(g->b, x->at[i], i64, "");
  for (int i = 0; i < PAIRS; i++)
    key[i] = LLVMBuildZExt(g->b, x->key[i], i64, "");
  for (uint32_t i = 0; i < n; i++) step[i] = cg_i64(g, i % 2 ? 0 : i / 2);
  count = LLVMConstVector(step, n);
  V even = e_iadd(g, alternate(g, at[0], at[2], n), count);
  V odd = alternate(g, at[1], at[3], n), k = alternate(g, key[0], key[1], n);
  V by = numbers(g, PHILOX_M0, PHILOX_M1, n);
  V grows = numbers(g, PHILOX_W0, PHILOX_W1, n);
  V low = e_i(g, even, UINT32_MAX);
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    V p = LLVMBuildMul(g->b, e_and(g, even, low), by, "");
    p = neighbours_swapped(g, p, n);
    even = e_xor(g, e_xor(g, e_shr(g, p, HALF), odd), k);
    odd = p;
    k = e_iadd(g, k, grows);
  }
  V words = e_shl(g, odd, HALF);
  words = e_or(g, e_and(g, even, low), words);
  LLVMTypeRef t = LLVMVectorType(LLVMInt32TypeInContext(g->lc), lanes);
  return LLVMBuildBitCast(g->b, words, t, "");
}
