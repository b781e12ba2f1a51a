// Casts between dtypes, exact to the bit and without library calls: narrow
// floats are integers of their bits, rounded to nearest even by hand unless
// the target has the instruction.
#include "codegen/math/emit.h"

#include <math.h>

#define B g->b

static LLVMTypeRef like(Cg *g, LLVMValueRef v, DType t) {
  return cg_like(g, cg_of(v), cg_scalar(g, t));
}

static LLVMValueRef bits(Cg *g, LLVMValueRef v) {
  return LLVMBuildBitCast(B, v, like(g, v, DT_I32), "");
}

static LLVMValueRef real(Cg *g, LLVMValueRef v) {
  return LLVMBuildBitCast(B, v, like(g, v, DT_F32), "");
}

static LLVMValueRef shl(Cg *g, LLVMValueRef v, int n) {
  return LLVMBuildShl(B, v, cg_iconst(g, cg_of(v), n), "");
}
static LLVMValueRef shr(Cg *g, LLVMValueRef v, int n) {
  return LLVMBuildLShr(B, v, cg_iconst(g, cg_of(v), n), "");
}
static LLVMValueRef and_(Cg *g, LLVMValueRef v, int64_t m) {
  return LLVMBuildAnd(B, v, cg_iconst(g, cg_of(v), m), "");
}
static LLVMValueRef is_nan(Cg *g, LLVMValueRef f) {
  return LLVMBuildFCmp(B, LLVMRealUNO, f, f, "");
}

// ---------------------------------------------------------------- bf16
static LLVMValueRef bf16_to_f32(Cg *g, LLVMValueRef v) {
  return real(g, shl(g, LLVMBuildZExt(B, v, like(g, v, DT_I32), ""), 16));
}

// Round to nearest even on the bits: add 0x7fff plus the last kept bit. x86's
// instruction differs in one thing: denormals become zero, as in dpbf16.
static LLVMValueRef f32_to_bf16(Cg *g, LLVMValueRef v) {
  LLVMTypeRef i16 = like(g, v, DT_I16);
  if (g->has.bf16 && cg_lanes_of(i16) >= 4) {
    LLVMTypeRef bf = cg_like(g, i16, LLVMBFloatTypeInContext(g->lc));
    return LLVMBuildBitCast(B, LLVMBuildFPTrunc(B, v, bf, ""), i16, "");
  }
  LLVMValueRef x = bits(g, v);
  LLVMValueRef odd = and_(g, shr(g, x, 16), 1);
  LLVMValueRef up = LLVMBuildAdd(B, odd, cg_iconst(g, cg_of(x), 0x7fff), "");
  LLVMValueRef r = shr(g, LLVMBuildAdd(B, x, up, ""), 16);
  LLVMValueRef quiet =
      LLVMBuildOr(B, shr(g, x, 16), cg_iconst(g, cg_of(x), 0x40), "");
  r = LLVMBuildSelect(B, is_nan(g, v), quiet, r, "");
  return LLVMBuildTrunc(B, r, i16, "");
}

// ---------------------------------------------------------------- small floats
// A format of `exp` exponent and `man` mantissa bits with exponent bias 2 **
// (exp - 1) - 1. `ieee`: the top exponent is inf and NaN (f16, f8e5m2), else
// only all ones is NaN (f8e4m3, OCP OFP8).
typedef struct Format {
  int exp, man;
  bool ieee;
} Format;

static Format format(DType t) {
  if (t == DT_F16) return (Format){5, 10, true};
  if (t == DT_F8E5M2) return (Format){5, 2, true};
  return (Format){4, 3, false};
}

// The f16 of an 8-bit float; of f16 no target makes denormals zero.
static LLVMValueRef byte_as_half(Cg *g, LLVMValueRef v, Format f) {
  LLVMTypeRef h = cg_like(g, cg_of(v), LLVMHalfTypeInContext(g->lc));
  LLVMValueRef x = LLVMBuildZExt(B, v, like(g, v, DT_I16), "");
  if (f.ieee) return LLVMBuildBitCast(B, shl(g, x, 8), h, "");
  LLVMValueRef mag = and_(g, x, 0x7f);
  LLVMValueRef r = LLVMBuildBitCast(B, shl(g, mag, 7), h, "");
  r = LLVMBuildFMul(B, r, cg_fconst(g, h, 256), "");
  LLVMValueRef nan =
      LLVMBuildICmp(B, LLVMIntEQ, mag, cg_iconst(g, cg_of(x), 0x7f), "");
  r = LLVMBuildSelect(B, nan, cg_fconst(g, h, NAN), r, "");
  r = LLVMBuildBitCast(B, r, cg_of(x), "");
  LLVMValueRef sign = shl(g, and_(g, x, 0x80), 8);
  return LLVMBuildBitCast(B, LLVMBuildOr(B, r, sign, ""), h, "");
}

// Scaling by 2 ** (127 - bias) turns the shifted bits, denormals too, into the
// f32 of the same value.
static LLVMValueRef small_to_f32(Cg *g, LLVMValueRef v, Format f) {
  int width = 1 + f.exp + f.man, bias = (1 << (f.exp - 1)) - 1;
  if (g->has.flush)
    return LLVMBuildFPExt(B, byte_as_half(g, v, f), like(g, v, DT_F32), "");
  LLVMValueRef x = LLVMBuildZExt(B, v, like(g, v, DT_I32), "");
  LLVMTypeRef t = cg_of(x);
  LLVMValueRef mag = and_(g, x, (1 << (width - 1)) - 1);
  LLVMValueRef sign = shl(g, shr(g, x, width - 1), 31);
  LLVMValueRef s = real(g, shl(g, mag, 23 - f.man));
  double scale = 1;
  for (int i = 0; i < 127 - bias; i++) scale *= 2;
  LLVMValueRef r = LLVMBuildFMul(B, s, cg_fconst(g, cg_of(s), scale), "");
  int64_t top = f.ieee ? ((int64_t)1 << (f.exp + f.man)) - (1 << f.man)
                       : ((int64_t)1 << (f.exp + f.man)) - 1;
  LLVMValueRef odd =
      LLVMBuildICmp(B, LLVMIntUGE, mag, cg_iconst(g, t, top), "");
  int64_t nan = 0x7fc00000, inf = 0x7f800000;
  LLVMValueRef special = cg_iconst(g, t, nan);
  if (f.ieee) {
    LLVMValueRef is_inf =
        LLVMBuildICmp(B, LLVMIntEQ, mag, cg_iconst(g, t, top), "");
    special = LLVMBuildSelect(B, is_inf, cg_iconst(g, t, inf), special, "");
  }
  LLVMValueRef out = LLVMBuildSelect(B, odd, special, bits(g, r), "");
  return real(g, LLVMBuildOr(B, out, sign, ""));
}

// Normal results are rounded on the bits; results below the smallest normal
// by adding a power of two that pushes the kept bits to the end (the FPU
// rounds to nearest even).
static LLVMValueRef f32_to_small(Cg *g, LLVMValueRef v, Format f) {
  int width = 1 + f.exp + f.man, bias = (1 << (f.exp - 1)) - 1;
  LLVMValueRef x = bits(g, v);
  LLVMTypeRef t = cg_of(x);
  LLVMValueRef mag = and_(g, x, 0x7fffffff);
  LLVMValueRef sign = shr(g, and_(g, x, 0x80000000LL), 32 - width);
  int drop = 23 - f.man;
  LLVMValueRef odd = and_(g, shr(g, mag, drop), 1);
  LLVMValueRef up =
      LLVMBuildAdd(B, odd, cg_iconst(g, t, (1 << (drop - 1)) - 1), "");
  LLVMValueRef n = shr(g, LLVMBuildAdd(B, mag, up, ""), drop);
  n = LLVMBuildSub(B, n, cg_iconst(g, t, (int64_t)(127 - bias) << f.man), "");
  int magic_exp = 127 - bias + 1 + drop;
  LLVMValueRef magic = cg_iconst(g, t, (int64_t)magic_exp << 23);
  LLVMValueRef d = real(g, magic);
  d = LLVMBuildFAdd(B, real(g, mag), d, "");
  d = LLVMBuildSub(B, bits(g, d), magic, "");
  LLVMValueRef low =
      LLVMBuildICmp(B, LLVMIntULT, mag,
                    cg_iconst(g, t, (int64_t)(127 - bias + 1) << 23), "");
  LLVMValueRef r = LLVMBuildSelect(B, low, d, n, "");
  int64_t inf = ((1 << f.exp) - 1) << f.man;
  int64_t nan =
      f.ieee ? inf | (1 << (f.man - 1)) : ((int64_t)1 << (f.exp + f.man)) - 1;
  int64_t over = f.ieee ? inf : nan;
  LLVMValueRef big =
      LLVMBuildICmp(B, LLVMIntSGT, r, cg_iconst(g, t, over - 1), "");
  r = LLVMBuildSelect(B, big, cg_iconst(g, t, over), r, "");
  r = LLVMBuildSelect(B, is_nan(g, v), cg_iconst(g, t, nan), r, "");
  r = LLVMBuildOr(B, r, sign, "");
  return LLVMBuildTrunc(B, r, like(g, v, width == 16 ? DT_I16 : DT_I8), "");
}

static LLVMValueRef f32_to_f16(Cg *g, LLVMValueRef v) {
  if (!g->has.f16) return f32_to_small(g, v, format(DT_F16));
  LLVMTypeRef h = cg_like(g, cg_of(v), LLVMHalfTypeInContext(g->lc));
  return LLVMBuildBitCast(B, LLVMBuildFPTrunc(B, v, h, ""), like(g, v, DT_I16),
                          "");
}

static LLVMValueRef f16_to_f32(Cg *g, LLVMValueRef v) {
  if (!g->has.f16) return small_to_f32(g, v, format(DT_F16));
  LLVMTypeRef h = cg_like(g, cg_of(v), LLVMHalfTypeInContext(g->lc));
  return LLVMBuildFPExt(B, LLVMBuildBitCast(B, v, h, ""), like(g, v, DT_F32),
                        "");
}

// Keeps 10 mantissa bits, nearest even.
static LLVMValueRef f32_to_tf32(Cg *g, LLVMValueRef v) {
  LLVMValueRef x = bits(g, v), odd = and_(g, shr(g, x, 13), 1);
  LLVMValueRef up = LLVMBuildAdd(B, odd, cg_iconst(g, cg_of(x), 0xfff), "");
  LLVMValueRef r = and_(g, LLVMBuildAdd(B, x, up, ""), ~(int64_t)0x1fff);
  r = real(g, r);
  return LLVMBuildSelect(B, is_nan(g, v), v, r, "");
}

// ---------------------------------------------------------------- dispatch
static LLVMValueRef widen(Cg *g, LLVMValueRef v, DType from) {
  switch (from) {
  case DT_BF16: return bf16_to_f32(g, v);
  case DT_F16: return f16_to_f32(g, v);
  case DT_F8E4M3:
  case DT_F8E5M2: return small_to_f32(g, v, format(from));
  default: return v;
  }
}

static LLVMValueRef narrow(Cg *g, LLVMValueRef v, DType to) {
  switch (to) {
  case DT_BF16: return f32_to_bf16(g, v);
  case DT_F16: return f32_to_f16(g, v);
  case DT_F8E4M3:
  case DT_F8E5M2: return f32_to_small(g, v, format(to));
  case DT_TF32: return f32_to_tf32(g, v);
  default: return v;
  }
}

static LLVMValueRef float_to_int(Cg *g, LLVMValueRef v, DType to) {
  LLVMTypeRef t = like(g, v, to), over[2] = {t, cg_of(v)};
  const char *name =
      dtype_kind(to) == 'u' ? "llvm.fptoui.sat" : "llvm.fptosi.sat";
  unsigned id = LLVMLookupIntrinsicID(name, 15);
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(g->mod, id, over, 2);
  return LLVMBuildCall2(B, LLVMIntrinsicGetType(g->lc, id, over, 2), f, &v, 1,
                        "");
}

// f64 -> f32 so that a second rounding to fewer bits is right: toward zero, and
// the last bit set if anything was lost ("round to odd").
static LLVMValueRef f64_to_odd(Cg *g, LLVMValueRef v) {
  V f = LLVMBuildFPTrunc(B, v, like(g, v, DT_F32), "");
  V back = LLVMBuildFPExt(B, f, cg_of(v), "");
  V size = e_abs(g, v);
  V over = e_cmp(g, LLVMRealOGT, e_abs(g, back), size);
  over = LLVMBuildZExt(B, over, like(g, f, DT_I32), "");
  V x = e_isub(g, bits(g, f), over);
  V lost = e_cmp(g, LLVMRealONE, back, v);
  x = e_or(g, x, LLVMBuildZExt(B, lost, cg_of(x), ""));
  return real(g, x);
}

static LLVMValueRef from_int(Cg *g, LLVMValueRef v, DType from, DType to) {
  bool sign = dtype_kind(from) == 'i';
  if (to == DT_BOOL)
    return LLVMBuildICmp(B, LLVMIntNE, v, cg_iconst(g, cg_of(v), 0), "");
  if (!dtype_is_float(to)) {
    if (dtype_size(to) > dtype_size(from) && from != DT_BOOL)
      return sign ? LLVMBuildSExt(B, v, like(g, v, to), "")
                  : LLVMBuildZExt(B, v, like(g, v, to), "");
    if (from == DT_BOOL) return LLVMBuildZExt(B, v, like(g, v, to), "");
    return dtype_size(to) == dtype_size(from)
               ? v
               : LLVMBuildTrunc(B, v, like(g, v, to), "");
  }
  // Narrow floats are rounded from a type that holds the integer (i64: the top
  // 53 bits).
  bool narrow_to = to != DT_F64 && to != DT_F32, big = dtype_size(from) > 2;
  DType via = to == DT_F64 || (narrow_to && big) ? DT_F64 : DT_F32;
  LLVMTypeRef t = like(g, v, via);
  LLVMValueRef f =
      sign ? LLVMBuildSIToFP(B, v, t, "") : LLVMBuildUIToFP(B, v, t, "");
  return cg_cast(g, f, via, to);
}

LLVMValueRef cg_cast(Cg *g, LLVMValueRef v, DType from, DType to) {
  if (from == to) return v;
  if (!dtype_is_float(from)) return from_int(g, v, from, to);
  if (from == DT_F64) {
    if (to == DT_BOOL)
      return LLVMBuildFCmp(B, LLVMRealUNE, v, cg_fconst(g, cg_of(v), 0), "");
    if (!dtype_is_float(to)) return float_to_int(g, v, to);
    if (to == DT_F32) return LLVMBuildFPTrunc(B, v, like(g, v, DT_F32), "");
    return narrow(g, f64_to_odd(g, v), to);
  }
  LLVMValueRef f = widen(g, v, from);
  if (to == DT_F64) return LLVMBuildFPExt(B, f, like(g, f, DT_F64), "");
  if (to == DT_BOOL)
    return LLVMBuildFCmp(B, LLVMRealUNE, f, cg_fconst(g, cg_of(f), 0), "");
  if (!dtype_is_float(to)) return float_to_int(g, f, to);
  return narrow(g, f, to);
}
