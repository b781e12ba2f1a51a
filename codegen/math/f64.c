// The functions of f32.c for f64, plainer: series instead of fitted
// polynomials, f64 is the exception. Bounds: exp2, exp 1.5 ulp (results below
// 2^-1022: absolute 2^-1022), log 1, log2 0.6, sigmoid, softplus, tanh,
// erf 3.5, sin, cos 2.6, pow 2 ulp. Here also: the reduction of huge angles.
#include "codegen/math/emit.h"

#include <assert.h>

#define MAGIC 0x1.8p52
#define LN2_HI 0x1.62e42fefa3800p-1  // k * LN2_HI is exact
#define LN2_LO 0x1.ef35793c76730p-45
#define LOG2E 0x1.71547652b82fep+0
#define LOG2E_LO 0x1.777d0ffda0d24p-56

// ---------------------------------------------------------------- exponentials
static const double inverse_factorial[] = {1,
                                           1,
                                           1.0 / 2,
                                           1.0 / 6,
                                           1.0 / 24,
                                           1.0 / 120,
                                           1.0 / 720,
                                           1.0 / 5040,
                                           1.0 / 40320,
                                           1.0 / 362880,
                                           1.0 / 3628800,
                                           1.0 / 39916800,
                                           1.0 / 479001600,
                                           1.0 / 6227020800};

static V scale(Cg *g, V p, V z, V f) {  // as in f32.c
  V scale = e_shl(g, e_as(g, z, DT_I64), 52);
  V r = e_iadd(g, e_as(g, p, DT_I64), scale);
  return cg_mad(g, f, e_f(g, f, 0), e_as(g, r, DT_F64));
}

// 2 ** (x + low), low tiny. `terms`: 14 for f64, 11 for 42 bits.
static V exp2_sum(Cg *g, V x, V low, int terms) {
  V t = e_min(g, e_f(g, x, 1024), e_max(g, e_f(g, x, -1023), x));
  V z = e_add(g, t, e_f(g, x, MAGIC));
  V f = e_sub(g, t, e_sub(g, z, e_f(g, x, MAGIC)));
  V r = e_mul(g, low ? e_add(g, f, low) : f, e_f(g, x, 0x1.62e42fefa39efp-1));
  return scale(g, cg_poly(g, r, inverse_factorial, terms), z, f);
}

static V exp2_64(Cg *g, V x) {
  return exp2_sum(g, x, NULL, 14);
}

typedef struct Reduced {
  V z, r;  // x = k ln 2 + r, k in the low bits of z
} Reduced;

static Reduced reduce(Cg *g, V x) {
  V z = cg_mad(g, x, e_f(g, x, LOG2E), e_f(g, x, MAGIC));
  V k = e_sub(g, z, e_f(g, x, MAGIC));
  V r = cg_mad(g, k, e_f(g, x, -LN2_HI), x);
  return (Reduced){z, cg_mad(g, k, e_f(g, x, -LN2_LO), r)};
}

static V exp_64(Cg *g, V x0) {
  // Above -1023 ln 2, so that the remainder is >= 0 there.
  V low = e_max(g, e_f(g, x0, -0x1.628b76e3a7b60p9), x0);
  Reduced d = reduce(g, e_min(g, e_f(g, x0, 710), low));
  V y = scale(g, cg_poly(g, d.r, inverse_factorial, 14), d.z, d.r);
  V tiny = e_cmp(g, LLVMRealOLT, x0, e_f(g, x0, -0x1.6232bdd7abcd2p9));
  y = e_sel(g, tiny, e_f(g, x0, 0), y);
  V big = e_cmp(g, LLVMRealOGT, x0, e_f(g, x0, 0x1.62e42fefa39efp9));
  return e_sel(g, big, e_f(g, x0, __builtin_inf()), y);
}

static V sigmoid_64(Cg *g, V x) {
  V one = e_f(g, x, 1);
  return e_div(g, one, e_add(g, one, exp_64(g, e_neg(g, x))));
}

// 1/(2n+1): log((1 + s) / (1 - s)) = 2 s (1 + s^2 / 3 + s^4 / 5 + ..).
static const double odd_inverse[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,
                                     1.0 / 9,  1.0 / 11, 1.0 / 13, 1.0 / 15,
                                     1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23,
                                     1.0 / 25, 1.0 / 27, 1.0 / 29, 1.0 / 31,
                                     1.0 / 33};

static V softplus_64(Cg *g, V x) {
  V y = exp_64(g, e_neg(g, e_abs(g, x)));
  V s = e_div(g, y, e_add(g, y, e_f(g, x, 2)));
  V l = cg_poly(g, e_mul(g, s, s), odd_inverse, 17);
  l = e_mul(g, e_add(g, s, s), l);
  return e_add(g, e_max(g, e_f(g, x, 0), x), l);
}

// expm1(2 |x|) / (expm1(2 |x|) + 2); 1 from |x| = 20 on.
static V tanh_64(Cg *g, V x) {
  V a = e_abs(g, x);
  Reduced d = reduce(g, e_min(g, e_f(g, x, 40), e_add(g, a, a)));
  V r2 = e_mul(g, d.r, d.r);
  V em = cg_mad(g, r2, cg_poly(g, d.r, inverse_factorial + 2, 12), d.r);
  V bias = e_i(g, e_as(g, d.z, DT_I64), 0x3ff0000000000000);
  V s = e_iadd(g, e_shl(g, e_as(g, d.z, DT_I64), 52), bias);
  s = e_as(g, s, DT_F64);
  em = cg_mad(g, s, em, e_sub(g, s, e_f(g, x, 1)));
  V t = e_div(g, em, e_add(g, em, e_f(g, x, 2)));
  // NaN may have become any number of 2 ** k.
  return cg_copysign(g, e_sel(g, e_is_nan(g, x), x, t), x);
}

// ---------------------------------------------------------------- logarithms
// log(1 + t) = t - (t^2/2 - s (t^2/2 + R)), s = t / (2 + t): little is lost.
static V log_64(Cg *g, V x) {
  CgSplit p = cg_split(g, x);
  V s = e_div(g, p.t, e_add(g, p.t, e_f(g, x, 2))), s2 = e_mul(g, s, s);
  V h = e_mul(g, e_mul(g, p.t, p.t), e_f(g, x, 0.5));
  V q = cg_poly(g, s2, odd_inverse + 1, 10);
  q = e_mul(g, e_add(g, s2, s2), q);
  V low = cg_mad(g, p.e, e_f(g, x, LN2_LO), e_mul(g, s, e_add(g, h, q)));
  V r = e_sub(g, e_sub(g, h, low), p.t);
  return cg_log_limits(g, x, e_sub(g, e_mul(g, p.e, e_f(g, x, LN2_HI)), r));
}

// ---------------------------------------------------------------- double-double
typedef struct Two {
  V hi, lo;  // hi + lo
} Two;

static Two two_sum(Cg *g, V a, V b) {  // |a| >= |b| or a = 0
  V s = e_add(g, a, b);
  return (Two){s, e_sub(g, b, e_sub(g, s, a))};
}

static V upper_half(Cg *g, V a) {  // 26 bits; a below 2^990
  V c = e_mul(g, a, e_f(g, a, 0x1.0000002p27));
  return e_sub(g, c, e_sub(g, c, a));
}

static Two two_prod(Cg *g, V a, V b) {
  V p = e_mul(g, a, b);
  if (g->has.fma) return (Two){p, cg_mad(g, a, b, e_neg(g, p))};
  V ah = upper_half(g, a), bh = upper_half(g, b);
  V al = e_sub(g, a, ah), bl = e_sub(g, b, bh);
  V e = e_sub(g, e_mul(g, ah, bh), p);
  V last = e_mul(g, al, bh);
  e = e_add(g, e_add(g, e, e_mul(g, ah, bl)), last);
  return (Two){p, e_add(g, e, e_mul(g, al, bl))};
}

static Two two_mul(Cg *g, Two a, Two b) {
  Two p = two_prod(g, a.hi, b.hi);
  V cross = e_mul(g, a.lo, b.hi);
  cross = e_add(g, e_mul(g, a.hi, b.lo), cross);
  return two_sum(g, p.hi, e_add(g, p.lo, cross));
}

static Two two_const(Cg *g, V like, double hi, double lo) {
  return (Two){e_f(g, like, hi), e_f(g, like, lo)};
}

// log2 of positive finite x to about 65 bits.
static Two log2_two(Cg *g, V x) {
  CgSplit p = cg_split(g, x);
  V two = e_f(g, x, 2), dh = e_add(g, two, p.t);
  V dl = e_sub(g, p.t, e_sub(g, dh, two));
  Two s = {e_div(g, p.t, dh), NULL}, back = two_prod(g, s.hi, dh);
  V rest = e_sub(g, e_sub(g, p.t, back.hi), back.lo);
  rest = e_sub(g, rest, e_mul(g, s.hi, dl));
  s.lo = e_div(g, rest, dh);
  Two s2 = two_mul(g, s, s);
  Two c = two_mul(g, s2, two_const(g, x, 1.0 / 3, 0x1.5555555555555p-56));
  V tail = cg_poly(g, s2.hi, odd_inverse + 2, 9);
  tail = e_mul(g, e_mul(g, s2.hi, s2.hi), tail);
  Two u = two_sum(g, e_f(g, x, 1), c.hi);
  u.lo = e_add(g, e_add(g, u.lo, c.lo), tail);
  Two l = two_mul(g, s, u);
  l = two_mul(g, l, two_const(g, x, 2 * LOG2E, 2 * LOG2E_LO));
  Two r = two_sum(g, p.e, l.hi);
  r.lo = e_add(g, r.lo, l.lo);
  return r;
}

static V log2_64(Cg *g, V x) {
  Two l = log2_two(g, x);
  return cg_log_limits(g, x, e_add(g, l.hi, l.lo));
}

typedef struct Parity {
  V integer, odd;
} Parity;

static Parity parity(Cg *g, V y) {
  V i = cg_cast(g, y, DT_F64, DT_I64);
  V back = LLVMBuildSIToFP(g->b, i, cg_of(y), "");
  V huge = e_cmp(g, LLVMRealOGE, e_abs(g, y), e_f(g, y, 0x1p53));
  V same = e_cmp(g, LLVMRealOEQ, back, y);
  V bit = e_icmp(g, LLVMIntNE, e_and(g, i, e_i(g, i, 1)), e_i(g, i, 0));
  V odd = LLVMBuildNot(g->b, huge, "");
  odd = e_and(g, e_and(g, same, bit), odd);
  return (Parity){e_or(g, same, huge), odd};
}

static V negative(Cg *g, V x) {  // -0 too
  V b = e_as(g, x, DT_I64);
  return e_icmp(g, LLVMIntSLT, b, e_i(g, b, 0));
}

// r = |x| ** y, but for signs, ones and what is no number.
static V signed_power(Cg *g, V x, V y, V r) {
  V a = e_abs(g, x), one = e_f(g, x, 1), zero = e_f(g, x, 0);
  V unit = e_cmp(g, LLVMRealORD, y, y);
  unit = e_and(g, e_cmp(g, LLVMRealOEQ, a, one), unit);
  r = e_sel(g, unit, one, r);
  Parity p = parity(g, y);
  V minus = e_neg(g, r);
  r = e_sel(g, e_and(g, negative(g, x), p.odd), minus, r);
  V below = e_cmp(g, LLVMRealOGT, x, e_f(g, x, -__builtin_inf()));
  below = e_and(g, e_cmp(g, LLVMRealOLT, x, zero), below);
  V bad = e_and(g, below, LLVMBuildNot(g->b, p.integer, ""));
  // Only non-integers, not NaN: a NaN y gives NaN anyway.
  r = e_sel(g, bad, e_f(g, x, __builtin_nan("")), r);
  V always = e_cmp(g, LLVMRealOEQ, y, zero);
  always = e_or(g, e_cmp(g, LLVMRealOEQ, x, one), always);
  return e_sel(g, always, one, r);
}

static V pow_64(Cg *g, V x, V y) {
  V a = e_abs(g, x);
  Two l = log2_two(g, a);
  l.hi = cg_log_limits(g, a, l.hi);
  Two z = two_prod(g, y, l.hi);
  V low = cg_mad(g, y, l.lo, z.lo);
  // Where exp2 does not clamp.
  V usual = e_cmp(g, LLVMRealOGT, z.hi, e_f(g, x, -1023));
  usual = e_and(g, e_cmp(g, LLVMRealOLT, z.hi, e_f(g, x, 1024)), usual);
  low = e_sel(g, usual, low, e_f(g, x, 0));
  return signed_power(g, x, y, exp2_sum(g, z.hi, low, 14));
}

// y * log2(x) needs 7 bits more than f32 has, of which f64 has 29: of numbers
// that are f32 the result has 42 bits.
V cg_pow_near(Cg *g, V x, V y) {
  V a = e_abs(g, x);
  CgSplit p = cg_split(g, a);
  V s = e_div(g, p.t, e_add(g, p.t, e_f(g, x, 2)));
  V l = cg_poly(g, e_mul(g, s, s), odd_inverse, 9);
  l = e_add(g, p.e, e_mul(g, e_mul(g, s, e_f(g, x, 2 * LOG2E)), l));
  V z = e_mul(g, y, cg_log_limits(g, a, l));
  return signed_power(g, x, y, exp2_sum(g, z, NULL, 11));
}

// ---------------------------------------------------------------- erf
// |x| <= 1: x P(x^2). Else 1 - exp(-x^2) Q(t), t linear in 2 / (2 + |x|); 1
// from 6 on. P, Q interpolate at Chebyshev nodes.
static V erf_64(Cg *g, V x) {
  static const double p[] = {0x1.20dd750429b6dp+0,  -0x1.812746b0379e6p-2,
                             0x1.ce2f21a042b30p-4,  -0x1.b82ce31284e00p-6,
                             0x1.565bcd0dbaa38p-8,  -0x1.c02db3dac435fp-11,
                             0x1.f9a321d5b8e1ep-14, -0x1.f4d1e3183f7aep-17,
                             0x1.b9df224ca4b97p-20, -0x1.5f1ecb6f0764cp-23,
                             0x1.f7b4bf3b13964p-27, -0x1.389d4f2641625p-30,
                             0x1.05ffd737fb32ep-34};
  static const double q[] = {0x1.c57cd9cd3f3a9p-3,   0x1.4b8edae15a041p-3,
                             0x1.3be3609c853a8p-5,   0x1.6e44c72762eddp-8,
                             0x1.9d6e4a467b08dp-13,  -0x1.52ddf8014affdp-14,
                             -0x1.ec9d23526a800p-18, 0x1.09b139e01e50ap-19,
                             0x1.5f1cbcf43250dp-23,  -0x1.2ce04abf72b09p-24,
                             -0x1.439a8a043b80dp-31, 0x1.68a3e08dfcbb3p-29,
                             -0x1.2767247ad4a5cp-32, -0x1.43b96367207b9p-34,
                             0x1.851410b153c1ep-36,  -0x1.396f93c31951cp-43,
                             -0x1.065ff0aa057ecp-40, 0x1.4669b17eea8dbp-43};
  V a = e_min(g, e_f(g, x, 6), e_abs(g, x)), z = e_mul(g, a, a);
  V small = e_mul(g, a, cg_poly(g, z, p, 13)), two = e_f(g, x, 2);
  V t = e_sub(g, e_div(g, two, e_add(g, two, a)),
              e_f(g, x, 0x1.d555555555555p-2));
  t = e_mul(g, t, e_f(g, x, 0x1.3333333333333p+2));
  V tail = cg_poly(g, t, q, 18);
  tail = e_mul(g, exp_64(g, e_neg(g, z)), tail);
  V large = e_sub(g, e_f(g, x, 1), tail);
  V in = e_cmp(g, LLVMRealOLE, a, e_f(g, x, 1));
  return cg_copysign(g, e_sel(g, in, small, large), x);
}

// ---------------------------------------------------------------- trigonometry
static V series(Cg *g, V s, int first) {  // 1/first! - s/(first + 2)! + ..
  double k[9], f = 1;
  for (int i = 2; i <= first; i++) f /= i;
  for (int i = 0; i < 9; i++) {
    k[i] = i % 2 ? -f : f;
    int n = first + 2 * i;
    f /= (double)(n + 1) * (n + 2);
  }
  return cg_poly(g, s, k, 9);
}

static V fast_angle(Cg *g, V x, V *n) {
  static const double half_pi[2][3] = {
      {-0x1.921fb544p0, -0x1.0b4611a6p-34, -0x1.3198a2e037073p-69},
      {-0x1.921fb54442d18p0, -0x1.1a62633145c07p-54, 0x1.f1976b7ed8fbcp-110}};
  V z = cg_mad(g, x, e_f(g, x, 0x1.45f306dc9c883p-1), e_f(g, x, MAGIC));
  V k = e_sub(g, z, e_f(g, x, MAGIC)), r = x;
  for (int i = 0; i < 3; i++)
    r = cg_mad(g, k, e_f(g, x, half_pi[g->has.fma][i]), r);
  *n = e_as(g, z, DT_I64);
  return r;
}

SinCos cg_wave64(Cg *g, V x) {
  V n, r = fast_angle(g, x, &n);
  r = cg_angle(g, x, r, &n, g->has.fma ? 0x1p50 : 0x1p20);
  V s = e_mul(g, r, r);
  V sine = e_neg(g, series(g, s, 3));
  sine = cg_mad(g, e_mul(g, r, s), sine, r);
  V cosi = e_sub(g, e_f(g, x, 1), e_mul(g, s, series(g, s, 2)));
  return cg_octant(g, n, sine, cosi);
}

static V sin_64(Cg *g, V x) {
  return cg_wave64(g, x).sine;
}
static V cos_64(Cg *g, V x) {
  return cg_wave64(g, x).cosine;
}

// ---------------------------------------------------------------- dispatch
typedef V Fn(Cg *g, V x);
static Fn *const table[OP_COUNT] = {
    [OP_EXP2] = exp2_64,         [OP_EXP] = exp_64,
    [OP_LOG2] = log2_64,         [OP_LOG] = log_64,
    [OP_TANH] = tanh_64,         [OP_SIGMOID] = sigmoid_64,
    [OP_SOFTPLUS] = softplus_64, [OP_ERF] = erf_64,
    [OP_SIN] = sin_64,           [OP_COS] = cos_64};

V cg_math64(Cg *g, OpCode op, V x, V y) {
  if (op == OP_POW) return pow_64(g, x, y);
  assert(table[op]);
  return table[op](g, x);
}
