// fdeal: numbers of a warp's 16 rows as columns. Lane 4 r has rows r and r + 8
// in its two registers, as the three lanes behind it do; lane 4 r + t wants
// columns 2 t, 2 t + 1, 2 t + 8, 2 t + 9, in all its rows the same.
#include "codegen/gpu/gpu.h"

enum { HALF = 8, PAIR = 2, ROW_LANES = 4 };

// x as a word that lanes exchange, and the word as what x is.
static V handed(Gpu *n, V x, V lane, DType d) {
  Cg *g = n->g;
  LLVMTypeRef t = cg_of(x), word = gpu_i32t(n), bits = t;
  if (LLVMGetTypeKind(t) != LLVMIntegerTypeKind)
    bits = LLVMIntTypeInContext(g->lc, 8 * (unsigned)dtype_size(d));
  x = LLVMBuildBitCast(g->b, x, bits, "");
  x = LLVMBuildZExtOrBitCast(g->b, x, word, "");
  x = n->vendor->lane_of(n, x, lane);
  x = LLVMBuildTruncOrBitCast(g->b, x, bits, "");
  return LLVMBuildBitCast(g->b, x, t, "");
}

void nv_fdeal(Gpu *n, const Op *op) {
  const Frag *x = gpu_frag(n, op->args[0]);
  Frag r = gpu_new(n, gpu_res_type(n, op));
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  V of[2 * HALF] = {0};  // by column less the thread's first one
  V first = e_and(n->g, n->grp.lane, gpu_i32(n, ROW_LANES - 1));
  first = gpu_mul(n, first, PAIR * ROW_LANES);
  DType d = gpu_res_type(n, op)->dtype;
  for (uint32_t i = 0; i < r.map.regs; i++) {
    uint32_t col = gpu_coord_reg(&r.map, 1, i);
    uint32_t in = col % PAIR * ROW_LANES;
    V lane = gpu_add(n, first, gpu_i32(n, in));
    if (!of[col]) of[col] = handed(n, gpu_elem(n, x, col / HALF), lane, d);
    e[i] = of[col];
  }
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}
