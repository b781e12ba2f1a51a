// Short names for LLVM arithmetic on scalars and vectors alike, for the files
// that write formulas (cast.c, f32.c, f64.c).
#ifndef ATTNC_CODEGEN_MATH_EMIT_H
#define ATTNC_CODEGEN_MATH_EMIT_H

#include "codegen/cg.h"

typedef LLVMValueRef V;

static inline V e_f(Cg *g, V like, double c) {
  return cg_fconst(g, cg_of(like), c);
}
static inline V e_i(Cg *g, V like, int64_t c) {
  return cg_iconst(g, cg_of(like), c);
}
static inline V e_add(Cg *g, V x, V y) {
  return LLVMBuildFAdd(g->b, x, y, "");
}
static inline V e_sub(Cg *g, V x, V y) {
  return LLVMBuildFSub(g->b, x, y, "");
}
static inline V e_mul(Cg *g, V x, V y) {
  return LLVMBuildFMul(g->b, x, y, "");
}
static inline V e_div(Cg *g, V x, V y) {
  return LLVMBuildFDiv(g->b, x, y, "");
}
static inline V e_neg(Cg *g, V x) {
  return LLVMBuildFNeg(g->b, x, "");
}
static inline V e_abs(Cg *g, V x) {
  return cg_intrinsic(g, "llvm.fabs", cg_of(x), &x, 1);
}
static inline V e_sel(Cg *g, V c, V x, V y) {
  return LLVMBuildSelect(g->b, c, x, y, "");
}
static inline V e_cmp(Cg *g, LLVMRealPredicate p, V x, V y) {
  return LLVMBuildFCmp(g->b, p, x, y, "");
}
static inline V e_icmp(Cg *g, LLVMIntPredicate p, V x, V y) {
  return LLVMBuildICmp(g->b, p, x, y, "");
}
static inline V e_iadd(Cg *g, V x, V y) {
  return LLVMBuildAdd(g->b, x, y, "");
}
static inline V e_isub(Cg *g, V x, V y) {
  return LLVMBuildSub(g->b, x, y, "");
}
static inline V e_and(Cg *g, V x, V y) {
  return LLVMBuildAnd(g->b, x, y, "");
}
static inline V e_or(Cg *g, V x, V y) {
  return LLVMBuildOr(g->b, x, y, "");
}
static inline V e_xor(Cg *g, V x, V y) {
  return LLVMBuildXor(g->b, x, y, "");
}
static inline V e_shl(Cg *g, V x, int n) {
  return LLVMBuildShl(g->b, x, e_i(g, x, n), "");
}
static inline V e_shr(Cg *g, V x, int n) {
  return LLVMBuildLShr(g->b, x, e_i(g, x, n), "");
}
static inline V e_sar(Cg *g, V x, int n) {
  return LLVMBuildAShr(g->b, x, e_i(g, x, n), "");
}
// The shape of v with elements of type t.
static inline LLVMTypeRef e_like(Cg *g, V v, DType t) {
  return cg_like(g, cg_of(v), cg_scalar(g, t));
}
static inline V e_as(Cg *g, V v, DType t) {
  return LLVMBuildBitCast(g->b, v, e_like(g, v, t), "");
}
// c > x ? c : x is one instruction and gives x if x is NaN.
static inline V e_max(Cg *g, V c, V x) {
  return e_sel(g, e_cmp(g, LLVMRealOGT, c, x), c, x);
}
static inline V e_min(Cg *g, V c, V x) {
  return e_sel(g, e_cmp(g, LLVMRealOLT, c, x), c, x);
}
static inline V e_is_nan(Cg *g, V x) {
  return e_cmp(g, LLVMRealUNO, x, x);
}

// x * y + c: one rounding where the target has the instruction.
V cg_mad(Cg *g, V x, V y, V c);
// k[0] + x * (k[1] + ..), Horner.
V cg_poly(Cg *g, V x, const double *k, int n);
// log(1 + y) of y in [0, 1], f32.
V cg_log1p_unit(Cg *g, V y);
V cg_copysign(Cg *g, V x, V sign);

// r and *n (octant and rest of the angle x) right also where |x| > limit.
V cg_angle(Cg *g, V x, V r, V *n, double limit);
// Calls what that calls of huge angles, for nothing.
void cg_angle_called(Cg *g);

// x = 2 ** e * (1 + t), 1 + t in [sqrt(1/2), sqrt(2)); x positive.
typedef struct CgSplit {
  V e, t;
} CgSplit;
CgSplit cg_split(Cg *g, V x);
// The limits of a logarithm: inf at inf, -inf at 0, NaN below 0 and at NaN.
V cg_log_limits(Cg *g, V x, V r);
// sin and cos of an angle.
typedef struct SinCos {
  V sine, cosine;
} SinCos;
// From the octant n and both functions of the rest.
SinCos cg_octant(Cg *g, V n, V sine, V cosi);

// The functions for f64; the same set as cg_math.
V cg_math64(Cg *g, OpCode op, V x, V y);
V cg_pow_near(Cg *g, V x, V y);  // of f32 numbers, for an f32
SinCos cg_wave64(Cg *g, V x);
// Of f32: of any angle, or of |x| <= cg_wave_limit without a branch.
SinCos cg_wave32(Cg *g, V x, bool any);
double cg_wave_limit(const Cg *g);

#endif
