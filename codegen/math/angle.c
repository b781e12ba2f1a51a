// Angles too large for three multiples of pi/2 (sin, cos). Taken rarely: lanes
// beyond the limit call a function of the module, one by one, that multiplies
// by as many bits of 2/pi as matter (Payne and Hanek, SIGNUM 1983).
#include "codegen/math/emit.h"

// 2/pi behind 64 zero bits, most significant word first.
static const uint64_t two_over_pi[] = {0,
                                       0xa2f9836e4e441529,
                                       0xfc2757d1f534ddc0,
                                       0xdb6295993c439041,
                                       0xfe5163abdebbc561,
                                       0xb7246e3a424dd2e0,
                                       0x06492eea09d1921c,
                                       0xfe1deb1cb129a73e,
                                       0xe88235f52ebb4484,
                                       0xe99c7026b45f7e41,
                                       0x3991d639835339f4,
                                       0x9c845f8bbdf9283b,
                                       0x1ff897ffde05980f,
                                       0xef2f118b5a0a6d1f,
                                       0x6d367ecf27cb09b7,
                                       0x4f463f669e5fea2d,
                                       0x7527bac7ebe5f17b,
                                       0x3d0739f78a5292ea,
                                       0x6bfb5fb11f8d5d08,
                                       0x56033046fc7b6bab,
                                       0xf0cfbc209af4361d};
enum { WORDS = sizeof two_over_pi / sizeof *two_over_pi };

static V bits_table(Cg *g) {
  V at[WORDS];
  for (int i = 0; i < WORDS; i++) at[i] = cg_i64(g, (int64_t)two_over_pi[i]);
  V c = LLVMConstArray2(cg_of(at[0]), at, WORDS);
  V t = LLVMAddGlobal(g->mod, cg_of(c), "attn.two_over_pi");
  LLVMSetInitializer(t, c);
  LLVMSetGlobalConstant(t, 1);
  LLVMSetLinkage(t, LLVMInternalLinkage);
  return t;
}

// i128 arithmetic: add, multiply and shift by constants need no library.
static V wide(Cg *g, V x) {
  LLVMTypeRef t = LLVMIntTypeInContext(g->lc, 128);
  return LLVMBuildZExt(g->b, x, t, "");
}

static V low64(Cg *g, V x) {
  return LLVMBuildTrunc(g->b, x, cg_scalar(g, DT_I64), "");
}

// The low 128 bits of m * (192 bits of 2/pi from bit `at`), top 64 + 64.
static V product(Cg *g, V m, V at) {
  V table = bits_table(g), w[4], f[3];
  V q = e_shr(g, at, 6), sh = e_and(g, at, cg_i64(g, 63));
  for (int i = 0; i < 4; i++) {
    V k = e_iadd(g, q, cg_i64(g, i));
    V p = LLVMBuildInBoundsGEP2(g->b, cg_of(q), table, &k, 1, "");
    w[i] = LLVMBuildLoad2(g->b, cg_of(q), p, "");
  }
  for (int i = 0; i < 3; i++) {
    V a[3] = {w[i], w[i + 1], sh};
    f[i] = cg_intrinsic(g, "llvm.fshl", cg_of(q), a, 3);
  }
  V top = LLVMBuildMul(g->b, m, f[0], "");
  V p = e_shl(g, wide(g, top), 64);
  V mid = wide(g, f[1]);
  p = e_iadd(g, p, LLVMBuildMul(g->b, wide(g, m), mid, ""));
  V low = wide(g, f[2]);
  low = LLVMBuildMul(g->b, wide(g, m), low, "");
  return e_iadd(g, p, e_shr(g, low, 64));
}

// {r, n} of a double with |x| >= 2^10: p / 2^128 is the angle in turns.
static void body(Cg *g, V x) {
  V b = e_as(g, x, DT_I64);
  V exponent = e_and(g, e_shr(g, b, 52), cg_i64(g, 2047));
  V m = e_or(g, e_and(g, b, cg_i64(g, ((int64_t)1 << 52) - 1)),
             cg_i64(g, (int64_t)1 << 52));
  V special = e_icmp(g, LLVMIntEQ, exponent, cg_i64(g, 2047));
  // x = m * 2^e, e = exponent - 1075; bits up to e - 2 of 2/pi make whole
  // turns; 64 zero bits stand before them.
  V at = e_isub(g, exponent, cg_i64(g, 1075 + 2 - 64));
  // Of small angles and inf the result is not used.
  V unused = e_or(g, special, e_icmp(g, LLVMIntSLT, at, cg_i64(g, 0)));
  at = e_sel(g, unused, cg_i64(g, 0), at);
  V p = product(g, m, at);
  V eighth = e_shl(g, wide(g, cg_i64(g, 1)), 125);
  V n = e_shr(g, e_iadd(g, p, eighth), 126);
  V rest = e_isub(g, p, LLVMBuildShl(g->b, n, e_i(g, n, 126), ""));
  V hi = LLVMBuildSIToFP(g->b, low64(g, e_sar(g, rest, 64)), cg_of(x), "");
  V lo = LLVMBuildUIToFP(g->b, low64(g, rest), cg_of(x), "");
  lo = e_mul(g, lo, e_f(g, x, 0x1p-126));
  V r = e_add(g, e_mul(g, hi, e_f(g, x, 0x1p-62)), lo);
  r = e_mul(g, r, e_f(g, x, 0x1.921fb54442d18p0));
  V minus = e_icmp(g, LLVMIntSLT, b, cg_i64(g, 0));
  n = low64(g, n);
  n = e_sel(g, minus, LLVMBuildNeg(g->b, n, ""), n);
  r = e_sel(g, minus, e_neg(g, r), r);
  V out[2] = {e_sel(g, special, e_sub(g, x, x), r), n};
  LLVMBuildAggregateRet(g->b, out, 2);
}

static V angle_fn(Cg *g, LLVMTypeRef *type) {
  LLVMTypeRef parts[2] = {cg_scalar(g, DT_F64), cg_scalar(g, DT_I64)};
  LLVMTypeRef ret = LLVMStructTypeInContext(g->lc, parts, 2, 0);
  *type = LLVMFunctionType(ret, parts, 1, 0);
  V f = LLVMGetNamedFunction(g->mod, "attn.angle");
  if (f) return f;
  LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
  f = LLVMAddFunction(g->mod, "attn.angle", *type);
  LLVMSetLinkage(f, LLVMInternalLinkage);
  cg_fn_attr(g, f, "nounwind");
  cg_fn_attr(g, f, "noinline");
  LLVMBasicBlockRef bb = LLVMAppendBasicBlockInContext(g->lc, f, "");
  LLVMPositionBuilderAtEnd(g->b, bb);
  body(g, LLVMGetParam(f, 0));
  LLVMPositionBuilderAtEnd(g->b, here);
  return f;
}

// One lane's {r, n}, converted to the types of r and n.
static void lane(Cg *g, V x, LLVMTypeRef rt, LLVMTypeRef nt, V *r, V *n) {
  LLVMTypeRef ft;
  V f = angle_fn(g, &ft), d = x;
  if (cg_of(d) != cg_scalar(g, DT_F64))
    d = LLVMBuildFPExt(g->b, d, cg_scalar(g, DT_F64), "");
  V both = LLVMBuildCall2(g->b, ft, f, &d, 1, "");
  *r = LLVMBuildFPCast(g->b, LLVMBuildExtractValue(g->b, both, 0, ""), rt, "");
  *n = LLVMBuildIntCast2(g->b, LLVMBuildExtractValue(g->b, both, 1, ""), nt, 1,
                         "");
}

void cg_angle_called(Cg *g) {
  LLVMTypeRef ft;
  V f = angle_fn(g, &ft), x = cg_fconst(g, cg_scalar(g, DT_F64), 0);
  LLVMBuildCall2(g->b, ft, f, &x, 1, "");
}

static void lanes(Cg *g, V x, V *r, V *n) {
  unsigned count = cg_lanes_of(cg_of(x));
  if (!count) {
    lane(g, x, cg_of(*r), cg_of(*n), r, n);
    return;
  }
  LLVMTypeRef rt = LLVMGetElementType(cg_of(*r));
  LLVMTypeRef nt = LLVMGetElementType(cg_of(*n));
  for (unsigned i = 0; i < count; i++) {
    V at = cg_i64(g, i), lr, ln;
    lane(g, LLVMBuildExtractElement(g->b, x, at, ""), rt, nt, &lr, &ln);
    *r = LLVMBuildInsertElement(g->b, *r, lr, at, "");
    *n = LLVMBuildInsertElement(g->b, *n, ln, at, "");
  }
}

static V join(Cg *g, V a, LLVMBasicBlockRef from_a, V b,
              LLVMBasicBlockRef from_b) {
  V phi = LLVMBuildPhi(g->b, cg_of(a), "");
  LLVMAddIncoming(phi, &a, &from_a, 1);
  LLVMAddIncoming(phi, &b, &from_b, 1);
  return phi;
}

V cg_angle(Cg *g, V x, V r, V *n, double limit) {
  V big = e_cmp(g, LLVMRealOGT, e_abs(g, x), e_f(g, x, limit)), any = big;
  if (cg_lanes_of(cg_of(x)))
    any = cg_intrinsic(g, "llvm.vector.reduce.or", cg_of(big), &big, 1);
  LLVMBasicBlockRef fast = LLVMGetInsertBlock(g->b);
  LLVMBasicBlockRef slow = cg_block(g, "huge"), done = cg_block(g, "angle");
  LLVMBuildCondBr(g->b, any, slow, done);
  LLVMPositionBuilderAtEnd(g->b, slow);
  V sr = r, sn = *n;
  lanes(g, x, &sr, &sn);
  sr = e_sel(g, big, sr, r);
  sn = e_sel(g, big, sn, *n);
  LLVMBuildBr(g->b, done);
  slow = LLVMGetInsertBlock(g->b);
  LLVMPositionBuilderAtEnd(g->b, done);
  V out = join(g, r, fast, sr, slow);
  *n = join(g, *n, fast, sn, slow);
  return out;
}
