// Functions of f32 that the hardware computes. Others are the CPU's branch-free
// code (math.c). All flush denormals. Bounds: docs/gpu.md, "Functions".
#include "codegen/gpu.h"

#define LOG2E 1.4426950408889634

// 2 ulp or better, exact limits.
static V ex2(Nv *n, V x) { return n->vendor->ex2(n, x); }

// e ** x = 2 ** t * (1 + r ln 2), t = x log2 e rounded, r what it lost. The
// clamp keeps r finite; t has the limits.
static V exp_(Nv *n, V x) {
  Cg *g = n->g;
  V l = e_f(g, x, LOG2E), t = e_mul(g, x, l);
  V c = e_min(g, e_f(g, x, 200), e_max(g, e_f(g, x, -200), x));
  V r = cg_mad(g, c, l, e_neg(g, e_mul(g, c, l)));
  r = cg_mad(g, c, e_f(g, x, LOG2E - (double)(float)LOG2E), r);
  V w = cg_mad(g, r, e_f(g, x, 0.6931471805599453), e_f(g, x, 1));
  return e_mul(g, ex2(n, t), w);
}

static V rcp(Nv *n, V x) {
  return n->vendor->rcp(n, x);
}

// 1 / (1 + e ** -x); e ** -x overflows to inf, whose reciprocal is 0.
static V sigmoid(Nv *n, V x) {
  Cg *g = n->g;
  V e = exp_(n, e_neg(g, x));
  return rcp(n, e_add(g, e, e_f(g, x, 1)));
}

// sign(x) (1 - 2 / (e ** 2|x| + 1)); near 0 a polynomial.
static V tanh_(Nv *n, V x) {
  static const double k[] = {-0x1.555554p-2, 0x1.110fc0p-3, -0x1.b99384p-5,
                             0x1.5c8860p-6, -0x1.acc5a4p-8};
  Cg *g = n->g;
  V a = e_abs(g, x), s = e_mul(g, x, x);
  V e = ex2(n, e_mul(g, a, e_f(g, x, 2 * LOG2E)));
  V big = cg_mad(g, rcp(n, e_add(g, e, e_f(g, x, 1))), e_f(g, x, -2),
                 e_f(g, x, 1));
  V small = cg_mad(g, e_mul(g, x, s), cg_poly(g, s, k, 5), x);
  V low = e_cmp(g, LLVMRealOLT, a, e_f(g, x, 0.55));
  return e_sel(g, low, small, cg_copysign(g, big, x));
}

static V rsqrt(Nv *n, V x) {
  return n->vendor->rsqrt(n, x);
}

typedef V Fn(Nv *n, V x);
static Fn *const table[OP_COUNT] = {
    [OP_EXP2] = ex2,     [OP_EXP] = exp_,   [OP_SIGMOID] = sigmoid,
    [OP_TANH] = tanh_,   [OP_RSQRT] = rsqrt,
};

V nv_math(Nv *n, OpCode op, V x) {
  return table[op] ? table[op](n, x) : NULL;
}
