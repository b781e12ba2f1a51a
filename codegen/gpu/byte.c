// Fragments of 8-bit floats as 16-bit ones, four at a time. Both OCP formats
// are exact in f16 and in bf16; f16's denormals are kept everywhere, so that
// f16 is what arithmetic goes by:
//   f8e5m2 is the upper half of an f16;
//   f8e4m3 has an exponent that is narrower by a bit and 8 less: times 256. NaN
//   (all ones, 480 by that) is what alone overflows times TOP; inf * 0 is NaN.
// Targets with instructions for it have a hook, GpuVendor.widen.
//
// And as operands of 8-bit products: gfx942's are FNUZ, whose bits mean half of
// what OCP's do; products have what they lack (codegen/amd/mma.c).
#include "codegen/gpu/gpu.h"

enum { TOP = 36000 };  // 1.875 * TOP is inf in f16, 1.75 * TOP is not

static LLVMTypeRef halves_type(Gpu *n) {
  return LLVMVectorType(LLVMHalfTypeInContext(n->g->lc), 2);
}

static V both(Gpu *n, double x) {
  V c = cg_fconst(n->g, LLVMHalfTypeInContext(n->g->lc), x), v[2] = {c, c};
  return LLVMConstVector(v, 2);
}

// Two of the word's bytes, each the upper one of 16 bits.
static V spread(Gpu *n, V word, bool upper) {
  Cg *g = n->g;
  V lo = upper ? e_shr(g, word, 8) : e_shl(g, word, 8);
  V hi = upper ? word : e_shl(g, word, 16);
  hi = e_and(g, hi, gpu_i32(n, 0xff000000));
  return e_or(g, e_and(g, lo, gpu_i32(n, 0xff00)), hi);
}

static V from_e4m3(Gpu *n, V x) {
  Cg *g = n->g;
  V m = e_and(g, e_shr(g, x, 1), gpu_i32(n, 0x3f803f80));
  m = LLVMBuildBitCast(g->b, m, halves_type(n), "");
  V most = LLVMBuildFMul(g->b, m, both(n, TOP), "");
  V r = LLVMBuildFMul(g->b, m, both(n, 256), "");
  V fma[3] = {most, both(n, 0), r};
  r = gpu_call_over(n, "llvm.fma", halves_type(n), fma, 3);
  r = LLVMBuildBitCast(g->b, r, gpu_i32t(n), "");
  return e_or(g, r, e_and(g, x, gpu_i32(n, 0x80008000)));
}

V gpu_uppers(Gpu *n, V lo, V hi) {
  Cg *g = n->g;
  lo = LLVMBuildBitCast(g->b, lo, gpu_i32t(n), "");
  hi = LLVMBuildBitCast(g->b, hi, gpu_i32t(n), "");
  hi = e_and(g, hi, gpu_i32(n, 0xffff0000));
  return e_or(g, e_shr(g, lo, 16), hi);
}

// Both are exact in bf16: what is cut off is 0.
V gpu_halves_to_bf16(Gpu *n, V x) {
  Cg *g = n->g;
  LLVMTypeRef f32 = LLVMFloatTypeInContext(g->lc);
  x = LLVMBuildBitCast(g->b, x, halves_type(n), "");
  x = LLVMBuildFPExt(g->b, x, LLVMVectorType(f32, 2), "");
  V hi = LLVMBuildExtractElement(g->b, x, gpu_i32(n, 1), "");
  V lo = LLVMBuildExtractElement(g->b, x, gpu_i32(n, 0), "");
  return gpu_uppers(n, lo, hi);
}

// ---------------------------------------------------------------- operands
// What FNUZ takes for half of each value: -0 is 0, NaN the sign alone.
static V as_fnuz(Gpu *n, V x) {
  Cg *g = n->g;
  V low = gpu_i32(n, 0x7f7f7f7f), tops = gpu_i32(n, 0x80808080);
  V mag = e_and(g, x, low);
  V some = e_or(g, gpu_add(n, mag, low), low);
  V nan = e_and(g, gpu_add(n, mag, gpu_i32(n, 0x01010101)), tops);
  V keep = e_xor(g, e_isub(g, nan, e_shr(g, nan, 7)), gpu_i32(n, -1));
  return e_or(g, e_and(g, e_and(g, x, some), keep), nan);
}

void gpu_foperand(Gpu *n, const Op *op) {
  Cg *g = n->g;
  const Frag *x = gpu_frag(n, op->args[0]);
  Frag r = gpu_new(n, gpu_res_type(n, op));
  V sign = NULL;
  if (op->nargs > 1)
    sign = e_sel(g, gpu_arg(n, op, 1), gpu_i32(n, 0x80808080), gpu_i32(n, 0));
  for (uint32_t i = 0; i < r.n; i++) {
    V w = sign ? e_xor(g, x->w[i], sign) : x->w[i];
    r.w[i] = n->gpu.f8 == F8_FNUZ ? as_fnuz(n, w) : w;
  }
  gpu_define(n, op->res[0], r);
}

// ---------------------------------------------------------------- wider types
static void widen(Gpu *n, DType from, V word, DType to, V out[2]) {
  if (n->vendor->widen && n->vendor->widen(n, from, word, to, out)) return;
  for (uint32_t i = 0; i < 2; i++) {
    V x = spread(n, word, i);
    if (from == DT_F8E4M3) x = from_e4m3(n, x);
    out[i] = to == DT_F16 ? x : gpu_halves_to_bf16(n, x);
  }
}

bool gpu_widen(Gpu *n, const Frag *x, Frag *r) {
  bool from = x->dtype == DT_F8E4M3 || x->dtype == DT_F8E5M2;
  bool to = r->dtype == DT_F16 || r->dtype == DT_BF16;
  if (!from || !to || x->per != 4 || r->per != 2) return false;
  for (uint32_t i = 0; i < x->n; i++)
    widen(n, x->dtype, x->w[i], r->dtype, r->w + 2 * i);
  return true;
}
