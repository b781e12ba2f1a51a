// Functions of one float as branch-free code: range reduction and a polynomial
// or rational. Coefficients, measured cost and error of the f32 functions:
// docs/cpu-schedule.md; the bounds here are with FMA, add 0.8 ulp without.
//   exp2 0.93 ulp (1.4 with scalef, AVX-512), exp 0.87: results below 2^-126
//   have an absolute error of 2^-126; log 1.2, log2 1.7, sigmoid 2.3,
//   softplus 2.3, tanh 4.7, erf 5.1, sin, cos 1.5, pow 0.6 ulp.
// All have the limits of libm at inf, NaN and zeros.
#include "codegen/math/emit.h"

#include <assert.h>
#include <math.h>

#define MAGIC 0x1.8p23  // t + MAGIC rounds t to an integer in the low bits

V cg_mad(Cg *g, V x, V y, V c) {
  V a[3] = {x, y, c};
  if (g->has.fma) return cg_intrinsic(g, "llvm.fma", cg_of(x), a, 3);
  return e_add(g, e_mul(g, x, y), c);
}

V cg_poly(Cg *g, V x, const double *k, int n) {
  V r = e_f(g, x, k[n - 1]);
  for (int i = n - 1; i-- > 0;) r = cg_mad(g, x, r, e_f(g, x, k[i]));
  return r;
}

V cg_copysign(Cg *g, V x, V sign) {
  V a[2] = {x, sign};
  return cg_intrinsic(g, "llvm.copysign", cg_of(x), a, 2);
}

// ---------------------------------------------------------------- exponentials
static const double exp2_p[] = {1,
                                0x1.62e430p-1,
                                0x1.ebfbdcp-3,
                                0x1.c6aee8p-5,
                                0x1.3b2d4cp-7,
                                0x1.5f3e54p-10,
                                0x1.41fbbcp-13};
static const double exp2_unit_p[] = {1,
                                     0x1.62e42cp-1,
                                     0x1.ebfd58p-3,
                                     0x1.c68912p-5,
                                     0x1.3d0b92p-7,
                                     0x1.46d64cp-10,
                                     0x1.c54174p-13};
static const double exp_p[] = {1,
                               1,
                               0x1.fffffcp-2,
                               0x1.555492p-3,
                               0x1.5558f2p-5,
                               0x1.1239d4p-7,
                               0x1.6a244cp-10};

// p * 2 ** (integer in the low bits of z). The bits of a NaN in p may change in
// the addition; f is NaN where p is and brings it back.
static V scale(Cg *g, V p, V z, V f) {
  V scale = e_shl(g, e_as(g, z, DT_I32), 23);
  V r = e_iadd(g, e_as(g, p, DT_I32), scale);
  return cg_mad(g, f, e_f(g, f, 0), e_as(g, r, DT_F32));
}

static V exp2_any(Cg *g, V x) {
  V t = e_min(g, e_f(g, x, 128), e_max(g, e_f(g, x, -127), x));
  V z = e_add(g, t, e_f(g, x, MAGIC));
  V f = e_sub(g, t, e_sub(g, z, e_f(g, x, MAGIC)));
  return scale(g, cg_poly(g, f, exp2_p, 7), z, f);
}

static V part(Cg *g, V x, unsigned from, unsigned n) {
  V *at = NEWN(&g->cx->scratch, V, n);
  for (unsigned i = 0; i < n; i++) at[i] = cg_i32(g, (int32_t)(from + i));
  return LLVMBuildShuffleVector(g->b, x, LLVMGetPoison(cg_of(x)),
                                LLVMConstVector(at, n), "");
}

static V join(Cg *g, V lo, V hi, unsigned n) {
  V *at = NEWN(&g->cx->scratch, V, n);
  for (unsigned i = 0; i < n; i++) at[i] = cg_i32(g, (int32_t)i);
  return LLVMBuildShuffleVector(g->b, lo, hi, LLVMConstVector(at, n), "");
}

// AVX-512: vreduceps gives t - floor(t), vscalefps multiplies by 2 ** floor(t);
// both treat inf, NaN and subnormal results as wanted.
static V exp2_scalef(Cg *g, V x, unsigned lanes) {
  if (lanes > 16) {
    V upper = exp2_scalef(g, part(g, x, lanes / 2, lanes / 2), lanes / 2);
    V lower = exp2_scalef(g, part(g, x, 0, lanes / 2), lanes / 2);
    return join(g, lower, upper, lanes);
  }
  static const char *const names[2][3] = {
      {"llvm.x86.avx512.mask.reduce.ps.128",
       "llvm.x86.avx512.mask.reduce.ps.256",
       "llvm.x86.avx512.mask.reduce.ps.512"},
      {"llvm.x86.avx512.mask.scalef.ps.128",
       "llvm.x86.avx512.mask.scalef.ps.256",
       "llvm.x86.avx512.mask.scalef.ps.512"}};
  int w = lanes == 16 ? 2 : lanes == 8 ? 1 : 0;
  LLVMTypeRef mt = LLVMIntTypeInContext(g->lc, w == 2 ? 16 : 8);
  V all = LLVMConstAllOnes(mt), none = LLVMGetPoison(cg_of(x));
  V ra[5] = {x, cg_i32(g, 1), none, all, cg_i32(g, 4)};
  V f = cg_intrinsic(g, names[0][w], NULL, ra, w == 2 ? 5 : 4);
  V sa[5] = {cg_poly(g, f, exp2_unit_p, 7), x, none, all, cg_i32(g, 4)};
  return cg_intrinsic(g, names[1][w], NULL, sa, w == 2 ? 5 : 4);
}

static V exp2_32(Cg *g, V x) {
  LLVMTypeRef t = cg_of(x);
  unsigned n = cg_lanes_of(t);
  return g->has.avx512 && n >= 4 ? exp2_scalef(g, x, n) : exp2_any(g, x);
}

// The clamp at -127 ln 2 leaves a remainder >= 0 there, so that the exponent
// does not wrap. That subnormal is 0 (GPUs flush it): what is masked by -inf
// adds nothing.
static V exp_32(Cg *g, V x0) {
  V x = e_min(g, e_f(g, x0, 89), e_max(g, e_f(g, x0, -0x1.601678p6), x0));
  V z = cg_mad(g, x, e_f(g, x, 0x1.715476p0), e_f(g, x, MAGIC));
  V k = e_sub(g, z, e_f(g, x, MAGIC));
  V r = cg_mad(g, k, e_f(g, x, -0x1.63p-1), x);
  r = cg_mad(g, k, e_f(g, x, 0x1.bd0106p-13), r);
  V y = scale(g, cg_poly(g, r, exp_p, 7), z, r);
  if (g->target->kind != TARGET_GPU) {
    V tiny = e_cmp(g, LLVMRealOLT, x0, e_f(g, x0, -0x1.5d589ep6));
    y = e_sel(g, tiny, e_f(g, x0, 0), y);
  }
  V big = e_cmp(g, LLVMRealOGT, x0, e_f(g, x0, 0x1.62e42ep6));
  return e_sel(g, big, e_f(g, x0, __builtin_inf()), y);
}

static V sigmoid_32(Cg *g, V x) {
  V one = e_f(g, x, 1);
  return e_div(g, one, e_add(g, one, exp_32(g, e_neg(g, x))));
}

V cg_log1p_unit(Cg *g, V y) {
  static const double q[] = {-0x1.ffff14p-2, 0x1.5535dap-2,  -0x1.fd1320p-3,
                             0x1.88444ep-3,  -0x1.19ad84p-3, 0x1.446bf0p-4,
                             -0x1.ec98f8p-6, 0x1.5f96b8p-8};
  V p = cg_poly(g, y, q, 8);
  return cg_mad(g, e_mul(g, y, y), p, y);
}

static V softplus_32(Cg *g, V x) {
  V y = exp_32(g, e_neg(g, e_abs(g, x)));
  y = cg_log1p_unit(g, y);
  return e_add(g, e_max(g, e_f(g, x, 0), x), y);
}

// ---------------------------------------------------------------- logarithms
// What takes a float of a type apart: bits of the mantissa, the smallest normal
// number, the bits of sqrt(1/2), a mask of exponent and sign.
typedef struct Layout {
  DType f, i;
  int bits, up;  // 2 ** up makes subnormals normal
  double least;
  int64_t root, top;
} Layout;

static const Layout layouts[] = {{DT_F32, DT_I32, 23, 23, 0x1p-126, 0x3f3504f3,
                                  0xff800000},
                                 {DT_F64, DT_I64, 52, 54, 0x1p-1022,
                                  0x3fe6a09e667f3bcd,
                                  (int64_t)0xfff0000000000000}};

static const Layout *layout_of(V x) {
  LLVMTypeRef t = cg_of(x);
  if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) t = LLVMGetElementType(t);
  return &layouts[LLVMGetTypeKind(t) == LLVMDoubleTypeKind];
}

CgSplit cg_split(Cg *g, V x) {
  const Layout *l = layout_of(x);
  V small = e_cmp(g, LLVMRealOLT, x, e_f(g, x, l->least));
  V up = e_mul(g, x, e_f(g, x, ldexp(1, l->up)));
  V b = e_as(g, e_sel(g, small, up, x), l->i);
  V d = e_isub(g, b, e_i(g, b, l->root));
  V e = LLVMBuildSIToFP(g->b, e_sar(g, d, l->bits), cg_of(x), "");
  e = e_add(g, e, e_sel(g, small, e_f(g, x, -l->up), e_f(g, x, 0)));
  V m = e_isub(g, b, e_and(g, d, e_i(g, b, l->top)));
  return (CgSplit){e, e_sub(g, e_as(g, m, l->f), e_f(g, x, 1))};
}

V cg_log_limits(Cg *g, V x, V r) {
  double inf = __builtin_inf();
  V at_inf = e_cmp(g, LLVMRealOEQ, x, e_f(g, x, inf));
  V at_0 = e_cmp(g, LLVMRealOEQ, x, e_f(g, x, 0));
  V bad = e_cmp(g, LLVMRealULT, x, e_f(g, x, 0));
  r = e_sel(g, at_inf, x, r);
  r = e_sel(g, at_0, e_f(g, x, -inf), r);
  return e_sel(g, bad, e_f(g, x, __builtin_nan("")), r);
}

static V log_32(Cg *g, V x) {
  static const double q[] = {-0x1.fffffap-2, 0x1.5556f4p-2,  -0x1.00049ap-2,
                             0x1.98d2c0p-3,  -0x1.535d30p-3, 0x1.318526p-3,
                             -0x1.25049ap-3, 0x1.65c766p-4};
  CgSplit s = cg_split(g, x);
  V low = e_mul(g, s.e, e_f(g, x, -0x1.bd0106p-13));
  V p = cg_poly(g, s.t, q, 8);
  V r = cg_mad(g, e_mul(g, s.t, s.t), p, low);
  r = cg_mad(g, s.e, e_f(g, x, 0x1.63p-1), e_add(g, s.t, r));
  return cg_log_limits(g, x, r);
}

static V log2_32(Cg *g, V x) {
  static const double p[] = {-0x1.715470p-1, 0x1.ec73d6p-2,  -0x1.715c4ep-2,
                             0x1.26d384p-2,  -0x1.e95be8p-3, 0x1.b9c91cp-3,
                             -0x1.a87d02p-3, 0x1.01b6c6p-3};
  CgSplit s = cg_split(g, x);
  V q = cg_mad(g, cg_poly(g, s.t, p, 8), s.t, e_f(g, x, 0x1.4ae0cp-26));
  V r = cg_mad(g, s.t, e_f(g, x, 0x1.715476p0), e_mul(g, s.t, q));
  return cg_log_limits(g, x, e_add(g, r, s.e));
}

// ---------------------------------------------------------------- rationals
typedef struct Rational {
  double edge;  // the function is 1 to the last bit from here on
  int np, nq;
  double p[6], q[6];
} Rational;

static V rational(Cg *g, V x, const Rational *c) {
  V y = e_min(g, e_f(g, x, c->edge), e_max(g, e_f(g, x, -c->edge), x));
  V z = e_mul(g, y, y);
  V p = e_mul(g, y, cg_poly(g, z, c->p, c->np));
  V r = e_div(g, p, cg_poly(g, z, c->q, c->nq));
  return e_min(g, e_f(g, x, 1), e_max(g, e_f(g, x, -1), r));
}

static V tanh_32(Cg *g, V x) {
  static const Rational c = {9.02,
                             5,
                             5,
                             {1, 0x1.12042cp-3, 0x1.c9f7f8p-9, 0x1.59541cp-16,
                              0x1.c9b524p-27},
                             {1, 0x1.de575ep-2, 0x1.a7defp-6, 0x1.584128p-12,
                              0x1.a0b902p-21}};
  return rational(g, x, &c);
}

static V erf_32(Cg *g, V x) {
  static const Rational c = {4,
                             6,
                             6,
                             {0x1.20dd76p+0, 0x1.8655e0p-3, 0x1.b04918p-5,
                              0x1.ee79b8p-9, 0x1.2aadccp-12, 0x1.129d8ap-19},
                             {1, 0x1.0125d6p-1, 0x1.d3b11cp-4, 0x1.eaf80ap-7,
                              0x1.3118fep-10, 0x1.3f2ad6p-15}};
  return rational(g, x, &c);
}

// ---------------------------------------------------------------- trigonometry
static V octant(Cg *g, V n, V sine, V cosi) {
  const Layout *l = layout_of(sine);
  V odd = e_icmp(g, LLVMIntNE, e_and(g, n, e_i(g, n, 1)), e_i(g, n, 0));
  V v = e_as(g, e_sel(g, odd, cosi, sine), l->i);
  V sign = e_shl(g, e_and(g, n, e_i(g, n, 2)), l->i == DT_I64 ? 62 : 30);
  return e_as(g, e_xor(g, v, sign), l->f);
}

SinCos cg_octant(Cg *g, V n, V sine, V cosi) {
  return (SinCos){octant(g, n, sine, cosi),
                  octant(g, e_iadd(g, n, e_i(g, n, 1)), sine, cosi)};
}

double cg_wave_limit(const Cg *g) {
  return g->has.fma ? 0x1p19 : 0x1p13;
}

// From the octant: n = round(x * 2 / pi), r = x - n * pi / 2.
SinCos cg_wave32(Cg *g, V x, bool any) {
  static const double ps[] = {-0x1.555546p-3, 0x1.11072ep-7, -0x1.993f6ep-13};
  static const double pc[] = {1, -0.5, 0x1.55554ap-5, -0x1.6c0c26p-10,
                              0x1.99e78ap-16};
  static const double half_pi[2][3] = {{-0x1.92p0, -0x1.fb4p-12,
                                        -0x1.4442d2p-24},
                                       {-0x1.921fb6p0, 0x1.777a5cp-25,
                                        0x1.ee59dap-50}};
  V z = cg_mad(g, x, e_f(g, x, 0x1.45f306p-1), e_f(g, x, MAGIC));
  V n = e_as(g, z, DT_I32), k = e_sub(g, z, e_f(g, x, MAGIC)), r = x;
  for (int i = 0; i < 3; i++)
    r = cg_mad(g, k, e_f(g, x, half_pi[g->has.fma][i]), r);
  if (any) r = cg_angle(g, x, r, &n, cg_wave_limit(g));
  V s = e_mul(g, r, r);
  V sine = cg_mad(g, e_mul(g, cg_poly(g, s, ps, 3), s), r, r);
  V cosi = cg_poly(g, s, pc, 5);
  return cg_octant(g, n, sine, cosi);
}

// What is not used is dropped.
static V sin_32(Cg *g, V x) {
  return cg_wave32(g, x, true).sine;
}
static V cos_32(Cg *g, V x) {
  return cg_wave32(g, x, true).cosine;
}

// ---------------------------------------------------------------- dispatch
static V pow_32(Cg *g, V x, V y) {
  V dx = LLVMBuildFPExt(g->b, x, e_like(g, x, DT_F64), "");
  V dy = LLVMBuildFPExt(g->b, y, e_like(g, y, DT_F64), "");
  return LLVMBuildFPTrunc(g->b, cg_pow_near(g, dx, dy), cg_of(x), "");
}

typedef V Fn(Cg *g, V x);
static Fn *const table[OP_COUNT] = {
    [OP_EXP2] = exp2_32,         [OP_EXP] = exp_32,
    [OP_LOG2] = log2_32,         [OP_LOG] = log_32,
    [OP_TANH] = tanh_32,         [OP_SIGMOID] = sigmoid_32,
    [OP_SOFTPLUS] = softplus_32, [OP_ERF] = erf_32,
    [OP_SIN] = sin_32,           [OP_COS] = cos_32};

static bool is_double(V x) {
  LLVMTypeRef t = cg_of(x);
  if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) t = LLVMGetElementType(t);
  return LLVMGetTypeKind(t) == LLVMDoubleTypeKind;
}

static V inline_math(Cg *g, OpCode op, V x, V y) {
  if (is_double(x)) return cg_math64(g, op, x, y);
  if (op == OP_POW) return pow_32(g, x, y);
  assert(table[op]);
  return table[op](g, x);
}

// Long code, many times as dear as a call, stands once for each type.
static bool is_long(OpCode op) {
  return op == OP_SIN || op == OP_COS || op == OP_POW;
}

// {sin(x), cos(x)}: most of the work is the octant of the angle.
static void return_wave(Cg *g, V x) {
  SinCos w = is_double(x) ? cg_wave64(g, x) : cg_wave32(g, x, true);
  V both[2] = {w.sine, w.cosine};
  LLVMBuildAggregateRet(g->b, both, 2);
}

static void return_math(Cg *g, OpCode op, V f) {
  V y = op == OP_POW ? LLVMGetParam(f, 1) : NULL;
  LLVMBuildRet(g->b, inline_math(g, op, LLVMGetParam(f, 0), y));
}

// The function attn.pow.16xf32.x86-64-v4 of numbers like x, called. One of
// `both` returns sin and cos.
static V call_function(Cg *g, OpCode op, bool both, V *args) {
  LLVMTypeRef t[2] = {cg_of(args[0]), cg_of(args[0])};
  LLVMTypeRef ret = both ? LLVMStructTypeInContext(g->lc, t, 2, 0) : t[0];
  unsigned n = op == OP_POW ? 2 : 1, lanes = cg_lanes_of(t[0]);
  LLVMTypeRef ft = LLVMFunctionType(ret, t, n, 0);
  const char *level = strchr(g->target->name, ':');
  const char *name =
      arena_printf(&g->cx->scratch, "attn.%s.%uxf%u.%s",
                   both ? "sincos" : op_info(op)->name, lanes ? lanes : 1,
                   is_double(args[0]) ? 64 : 32,
                   level ? level + 1 : g->target->name);
  V f = LLVMGetNamedFunction(g->mod, name), was = g->llfn;
  if (f) return LLVMBuildCall2(g->b, ft, f, args, n, "");
  LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
  g->llfn = f = LLVMAddFunction(g->mod, name, ft);
  LLVMSetLinkage(f, LLVMInternalLinkage);
  cg_target_attrs(g, f);
  cg_fn_attr(g, f, "memory");  // none
  LLVMPositionBuilderAtEnd(g->b, cg_block(g, ""));
  if (both) return_wave(g, LLVMGetParam(f, 0));
  else return_math(g, op, f);
  LLVMPositionBuilderAtEnd(g->b, here);
  g->llfn = was;
  return LLVMBuildCall2(g->b, ft, f, args, n, "");
}

LLVMValueRef cg_math(Cg *g, OpCode op, LLVMValueRef x, LLVMValueRef y) {
  // Calls cost a GPU's kernel its registers.
  if (!is_long(op) || g->target->kind == TARGET_GPU)
    return inline_math(g, op, x, y);
  V args[2] = {x, y};
  return call_function(g, op, false, args);
}

void cg_sincos(Cg *g, LLVMValueRef x, LLVMValueRef *sine,
               LLVMValueRef *cosine) {
  V both = call_function(g, OP_SIN, true, &x);
  *sine = LLVMBuildExtractValue(g->b, both, 0, "");
  *cosine = LLVMBuildExtractValue(g->b, both, 1, "");
}
