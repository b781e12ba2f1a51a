// Functions of f32 that the hardware computes. Others are the CPU's branch-free
// code (codegen/math/f32.c). All flush denormals. Bounds: docs/codegen.md.
#include "codegen/gpu/gpu.h"

#define LOG2E 1.4426950408889634

// 2 ulp or better, exact limits.
static V ex2(Gpu *n, V x) {
  return n->vendor->ex2(n, x);
}

// e ** x = 2 ** t * (1 + r ln 2), t = x log2 e rounded, r what it lost. c is x,
// but finite, so that r is.
static V exp_of(Gpu *n, V t, V c) {
  Cg *g = n->g;
  V x = c, l = e_f(g, x, LOG2E);
  V r = cg_mad(g, c, l, e_neg(g, e_mul(g, c, l)));
  r = cg_mad(g, c, e_f(g, x, LOG2E - (double)(float)LOG2E), r);
  V w = cg_mad(g, r, e_f(g, x, 0.6931471805599453), e_f(g, x, 1));
  return e_mul(g, ex2(n, t), w);
}

// t has the limits.
static V exp_(Gpu *n, V x) {
  Cg *g = n->g;
  V t = e_mul(g, x, e_f(g, x, LOG2E));
  V c = e_max(g, e_f(g, x, -200), x);
  return exp_of(n, t, e_min(g, e_f(g, x, 200), c));
}

static V rcp(Gpu *n, V x) {
  return n->vendor->rcp(n, x);
}

// 1 / (1 + e ** -x); e ** -x overflows to inf, whose reciprocal is 0.
static V sigmoid(Gpu *n, V x) {
  Cg *g = n->g;
  V e = exp_(n, e_neg(g, x));
  return rcp(n, e_add(g, e, e_f(g, x, 1)));
}

// max(x, 0) + log(1 + e ** -|x|), whose exponential is 0 from NOTHING on. NaN
// stays NaN: a join is one instruction. On AMD the CPU's, which takes fewer
// registers: phases of recurrences spilled there.
static V softplus(Gpu *n, V x) {
  enum { NOTHING = 104 };
  Cg *g = n->g;
  if (n->gpu.vendor == VENDOR_AMD) return NULL;
  V c = gpu_join(n, RK_MAX, e_neg(g, e_abs(g, x)), e_f(g, x, -NOTHING));
  V y = exp_of(n, e_mul(g, c, e_f(g, x, LOG2E)), c);
  y = cg_log1p_unit(g, y);
  return e_add(g, gpu_join(n, RK_MAX, x, e_f(g, x, 0)), y);
}

// NaN stays NaN: one instruction each on NVIDIA's.
static V clamp(Gpu *n, V x, double most) {
  Cg *g = n->g;
  if (n->gpu.vendor == VENDOR_AMD)
    return e_min(g, e_f(g, x, most), e_max(g, e_f(g, x, -most), x));
  return gpu_join(n, RK_MIN, gpu_join(n, RK_MAX, x, e_f(g, x, -most)),
                  e_f(g, x, most));
}

// x P(x^2) / Q(x^2), fitted for |x| < 9.02 (relative error 2^-25.5); beyond,
// tanh rounds to 1.
static V tanh_(Gpu *n, V x) {
  static const double p[] = {1, 0x1.120442p-3, 0x1.c9f856p-9, 0x1.595558p-16,
                             0x1.c9a3a2p-27};
  static const double q[] = {1, 0x1.de576ap-2, 0x1.a7df24p-6, 0x1.5841d6p-12,
                             0x1.a0b84cp-21};
  Cg *g = n->g;
  V c = clamp(n, x, 9.02), s = e_mul(g, c, c);
  V top = e_mul(g, c, cg_poly(g, s, p, 5));
  return e_mul(g, top, rcp(n, cg_poly(g, s, q, 5)));
}

// The same to 2^-16.4, for |x| < 6 and beyond.
V gpu_tanh_approx(Gpu *n, V x) {
  static const double p[] = {0x1.fffee2p-1, 0x1.d53b86p-4, 0x1.886b5ap-10};
  static const double q[] = {1, 0x1.ca952ep-2, 0x1.1ed988p-6, 0x1.cea57ap-15};
  Cg *g = n->g;
  V c = clamp(n, x, 6), s = e_mul(g, c, c);
  V top = e_mul(g, c, cg_poly(g, s, p, 3));
  return e_mul(g, top, rcp(n, cg_poly(g, s, q, 4)));
}

// x P(x^2) for |x| < TANH_SMALL: 3.2 ulp.
V gpu_tanh_small(Gpu *n, V x) {
  static const double k[] = {0x1.fffffcp-1, -0x1.554e80p-2, 0x1.0f883ap-3,
                             -0x1.80ab90p-5};
  Cg *g = n->g;
  return e_mul(g, x, cg_poly(g, e_mul(g, x, x), k, 4));
}

static V relu(Gpu *n, V x) {
  return e_max(n->g, x, e_f(n->g, x, 0));
}

// A guess from the exponent, exact to 5.1 %, e what it lacks: 1 + e + e^2
// (2^-12.9) or its best fit (2^-14.9). Without special units: those have
// exponentials to do. A divisor whose reciprocal is not normal gives 0; NaN
// stays NaN.
V gpu_reciprocal(Gpu *n, V x, int64_t bits) {
  enum { MAGIC = 0x7EF30000, CUBIC = 12, FITTED = 14 };
  Cg *g = n->g;
  if (bits > FITTED) return rcp(n, x);
  V i = LLVMBuildBitCast(g->b, x, gpu_i32t(n), "");
  V y = LLVMBuildSub(g->b, gpu_i32(n, MAGIC), i, "");
  y = LLVMBuildBitCast(g->b, y, cg_of(x), "");
  V e = cg_mad(g, e_neg(g, x), y, e_f(g, x, 1));
  if (bits <= CUBIC) return cg_mad(g, y, cg_mad(g, e, e, e), y);
  V c = cg_mad(g, e, e_f(g, x, 1.00291221), e_f(g, x, 1.00191373));
  return e_mul(g, y, cg_mad(g, e, c, e_f(g, x, 0.99999936)));
}

static V rsqrt(Gpu *n, V x) {
  return n->vendor->rsqrt(n, x);
}

typedef V Fn(Gpu *n, V x);
static Fn *const table[OP_COUNT] = {
    [OP_EXP2] = ex2,          [OP_EXP] = exp_,    [OP_SIGMOID] = sigmoid,
    [OP_TANH] = tanh_,        [OP_RSQRT] = rsqrt, [OP_RELU] = relu,
    [OP_SOFTPLUS] = softplus,
};

V gpu_math(Gpu *n, OpCode op, V x) {
  return table[op] ? table[op](n, x) : NULL;
}
