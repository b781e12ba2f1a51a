// Sine and cosine of tiles. Angles too large for three multiples of pi/2
// (codegen/math/angle.c) are rare: a warp that has one goes another way, in
// which a loop takes the tile's numbers one by one.
//
//   if any |x| is large:  for e in 0 .. n: x[e] = sin(x[e]), of any x[e]
//   else:                 x[0] = sin(x[0]), .., without a branch
//
// So the call for large angles is there once for a tile. One for each number
// makes ptxas keep what lives across it in memory: 10 KB, and 15 s of it, in a
// kernel with rotations of 12 channels; none and 4 s so.
#include "codegen/gpu/gpu.h"

// Both functions of an angle, if both are wanted: most of the work is common.
enum { SINE, COSINE };

typedef struct Wave {
  const Op *op[2];  // NULL: not wanted
  const Frag *x;
} Wave;

// Element i of both results.
static void put(SinCos v, V *const y[2], uint32_t i) {
  y[SINE][i] = v.sine;
  y[COSINE][i] = v.cosine;
}

// 1 where |x| may be large, in any thread of the warp where there are warps.
static V any_large(Gpu *n, const Frag *x) {
  Cg *g = n->g;
  V most = e_abs(g, x->w[0]);
  for (uint32_t i = 1; i < x->n; i++) {
    V a[2] = {most, e_abs(g, x->w[i])};
    most = cg_intrinsic(g, "llvm.maxnum", cg_of(most), a, 2);
  }
  V large = e_cmp(g, LLVMRealOGT, most, e_f(g, most, cg_wave_limit(g)));
  return n->grp.threads < 32 ? large : n->vendor->vote(n, true, large);
}

// In registers, which have no numbers: element i is the one chosen of all.
static V chosen(Gpu *n, V at, V *x, uint32_t count) {
  V one = x[0];
  for (uint32_t i = 1; i < count; i++)
    one = e_sel(n->g, e_icmp(n->g, LLVMIntEQ, at, gpu_i32(n, i)), x[i], one);
  return one;
}

// y[s] are x, and then the function's values, one more each time. Each has
// its own copy: what is done is wanted no more.
static void one_by_one(Gpu *n, const Wave *w, V *const y[2]) {
  Cg *g = n->g;
  uint32_t count = w->x->n;
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b);
  LLVMBasicBlockRef body = cg_block(g, "one"), done = cg_block(g, "all");
  V *phi[2], at, first = gpu_i32(n, 0);
  LLVMBuildBr(g->b, body);
  LLVMPositionBuilderAtEnd(g->b, body);
  at = LLVMBuildPhi(g->b, cg_of(first), "");
  LLVMAddIncoming(at, &first, &from, 1);
  for (uint32_t s = 0; s < 2; s++) {
    phi[s] = NEWN(&g->cx->scratch, V, count);
    for (uint32_t i = 0; i < count; i++) {
      phi[s][i] = LLVMBuildPhi(g->b, cg_of(w->x->w[i]), "");
      LLVMAddIncoming(phi[s][i], &w->x->w[i], &from, 1);
    }
  }
  V x = chosen(n, at, phi[w->op[SINE] ? SINE : COSINE], count);
  SinCos v = cg_wave32(g, x, true);
  for (uint32_t i = 0; i < count; i++) {
    V here = e_icmp(g, LLVMIntEQ, at, gpu_i32(n, i));
    put((SinCos){e_sel(g, here, v.sine, phi[SINE][i]),
                 e_sel(g, here, v.cosine, phi[COSINE][i])},
        y, i);
  }
  V next = e_iadd(g, at, gpu_i32(n, 1));
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
  LLVMAddIncoming(at, &next, &latch, 1);
  for (uint32_t s = 0; s < 2; s++)
    for (uint32_t i = 0; i < count; i++)
      LLVMAddIncoming(phi[s][i], &y[s][i], &latch, 1);
  V more = e_icmp(g, LLVMIntULT, next, gpu_i32(n, count));
  LLVMBuildCondBr(g->b, more, body, done);
  LLVMPositionBuilderAtEnd(g->b, done);
}

static const Op *like(const Op *op, const Op *o, bool down) {
  OpCode other = op->code == OP_SIN ? OP_COS : OP_SIN;
  while (o && !(o->code == other && o->args[0] == op->args[0]))
    o = down ? o->next : o->prev;
  return o;
}

static void joined(Gpu *n, const Op *op, V *const y[2],
                   LLVMBasicBlockRef *side) {
  Frag r = gpu_new(n, gpu_res_type(n, op));
  for (uint32_t i = 0; i < r.n; i++) {
    r.w[i] = LLVMBuildPhi(n->g->b, cg_of(y[0][i]), "");
    V from[2] = {y[0][i], y[1][i]};
    LLVMAddIncoming(r.w[i], from, side, 2);
  }
  gpu_define(n, op->res[0], r);
}

bool gpu_wave_tile(Gpu *n, const Op *op) {
  Cg *g = n->g;
  if ((op->code != OP_SIN && op->code != OP_COS) ||
      gpu_res_type(n, op)->dtype != DT_F32)
    return false;
  if (like(op, op->prev, false)) return true;  // made with the other one
  Wave w = {.x = gpu_frag(n, op->args[0])};
  w.op[op->code == OP_COS] = op;
  w.op[op->code == OP_SIN] = like(op, op->next, true);
  V large = any_large(n, w.x), *y[2][2];
  LLVMBasicBlockRef side[2] = {cg_block(g, "large"), cg_block(g, "near")};
  LLVMBasicBlockRef join = cg_block(g, "waves");
  LLVMBuildCondBr(g->b, large, side[0], side[1]);
  for (uint32_t s = 0; s < 2; s++) {
    for (int k = 0; k < 2; k++) y[s][k] = NEWN(&g->cx->scratch, V, w.x->n);
    LLVMPositionBuilderAtEnd(g->b, side[s]);
    if (s == 0) one_by_one(n, &w, y[s]);
    for (uint32_t i = 0; s == 1 && i < w.x->n; i++)
      put(cg_wave32(g, w.x->w[i], false), y[s], i);
    side[s] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, join);
  }
  LLVMPositionBuilderAtEnd(g->b, join);
  for (int k = 0; k < 2; k++)
    if (w.op[k]) joined(n, w.op[k], (V *const[2]){y[0][k], y[1][k]}, side);
  return true;
}
