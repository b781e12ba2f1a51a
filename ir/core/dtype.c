// Exact conversions of element types.
#include "ir/core/dtype.h"

#include <math.h>
#include <string.h>

typedef struct Row {
  const char *name;
  int bytes;
  char kind;
  int mant;  // significand bits with the hidden one; value bits of integers
} Row;

static const Row rows[] = {
#define DTYPE(name, id, bytes, kind, mant) {name, bytes, kind, mant},
#include "ir/dtype.def"
};

// Small floats: 2^emin is the smallest normal number, `top` the largest finite
// one, emax its exponent, exp_bits the width of the field, least the smallest
// number at all.
typedef struct Small {
  int emin, emax, exp_bits;
  double top, least;
} Small;

static const Small smalls[DT_COUNT] = {
    [DT_TF32] = {-126, 127, 8, 0x1.ffcp127, 0x1p-136},
    [DT_BF16] = {-126, 127, 8, 0x1.fep127, 0x1p-133},
    [DT_F16] = {-14, 15, 5, 65504.0, 0x1p-24},
    [DT_F8E4M3] = {-6, 8, 4, 448.0, 0x1p-9},
    [DT_F8E5M2] = {-14, 15, 5, 57344.0, 0x1p-16},
};

static const Small *small_of(DType t) {
  return smalls[t].exp_bits ? &smalls[t] : NULL;
}

const char *dtype_name(DType t) {
  return t < DT_COUNT ? rows[t].name : "none";
}
int dtype_size(DType t) {
  return t < DT_COUNT ? rows[t].bytes : 0;
}
char dtype_kind(DType t) {
  return t < DT_COUNT ? rows[t].kind : '?';
}

bool dtype_by_name(const char *name, uint32_t len, DType *t) {
  for (int i = 0; i < DT_COUNT; i++) {
    if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0) {
      *t = (DType)i;
      return true;
    }
  }
  return false;
}

// x rounded to a whole number, ties to even, whatever the rounding mode of
// the thread is.
static double round_even(double x) {
  double lo = floor(x), d = x - lo;
  if (d < 0.5) return lo;
  if (d > 0.5) return lo + 1;
  return fmod(lo, 2) == 0 ? lo : lo + 1;
}

// A number of a float of 64 bits in parts: sign, exponent, the bits behind the
// point.
enum { F64_BITS = 52, F64_BIAS = 1023, F64_EXPONENTS = 2047 };

static int exponent_of(uint64_t bits) {
  return (int)(bits >> F64_BITS & F64_EXPONENTS) - F64_BIAS;
}

static uint64_t bits_of(double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

// v rounded, to even, if it is as far from the least exponent of the type as
// from the largest.
static bool round_inside(const Small *f, int mant, double v, double *out) {
  uint64_t bits = bits_of(v);
  int e = exponent_of(bits), drop = F64_BITS - (mant - 1);
  if (e < f->emin || e >= f->emax) return false;
  bits += ((uint64_t)1 << (drop - 1)) - 1 + (bits >> drop & 1);
  bits &= ~(((uint64_t)1 << drop) - 1);
  memcpy(out, &bits, sizeof bits);
  return true;
}

static double round_small(DType t, double v) {
  const Small *f = small_of(t);
  double inside;
  if (round_inside(f, rows[t].mant, v, &inside)) return inside;
  if (isnan(v) || v == 0) return v;
  if (isinf(v)) return t == DT_F8E4M3 ? copysign(NAN, v) : v;
  int e;
  frexp(v, &e);  // 2^(e-1) <= |v| < 2^e
  if (e - 1 < f->emin) e = f->emin + 1;
  int ulp = e - rows[t].mant;
  double r = ldexp(round_even(ldexp(v, -ulp)), ulp);
  if (fabs(r) > f->top) r = t == DT_F8E4M3 ? NAN : INFINITY;
  return copysign(r, v);
}

// v truncated and wrapped to `bits` bits, as the unsigned pattern.
static uint64_t wrap(double v, int bits) {
  if (!isfinite(v)) return 0;
  double m = fmod(trunc(v), ldexp(1, bits));  // |m| < 2^bits, exact
  uint64_t u = (uint64_t)fabs(m);
  if (m < 0) u = 0 - u;
  return bits == 64 ? u : u & ((1ull << bits) - 1);
}

static double from_bits(DType t, uint64_t u) {
  int bits = 8 * rows[t].bytes;
  if (rows[t].kind == 'i' && (u >> (bits - 1)) & 1)
    return -(double)((bits == 64 ? 0 : 1ull << bits) - u);
  return (double)u;
}

static double round_integer(DType t, double v) {
  int bits = 8 * rows[t].bytes;
  if (fabs(v) < 0x1p62) {  // false for NaN
    int64_t i = (int64_t)v;
    bool below = rows[t].kind == 'i';
    int64_t most = (int64_t)1 << (bits < 63 ? bits - below : 62);
    if (i < most && i >= (below ? -most : 0)) return (double)i;
  }
  return from_bits(t, wrap(v, bits));
}

double dtype_round(DType t, double v) {
  switch (rows[t].kind) {
  case 'b': return v != 0;
  case 'i':
  case 'u': return round_integer(t, v);
  default:
    if (t == DT_F64) return v;
    if (t == DT_F32) return (double)(float)v;
    return round_small(t, v);
  }
}

void dtype_round_many(DType t, double *v, uint32_t n) {
  switch (t) {
  case DT_F64: return;
  case DT_F32:
    for (uint32_t i = 0; i < n; i++) v[i] = (double)(float)v[i];
    return;
  case DT_BOOL:
    for (uint32_t i = 0; i < n; i++) v[i] = v[i] != 0;
    return;
  default:
    for (uint32_t i = 0; i < n; i++) v[i] = dtype_round(t, v[i]);
  }
}

// The bits of a value that is already representable in a float of one or two
// bytes.
static uint64_t encode_small(DType t, double v) {
  const Small *f = small_of(t);
  int mbits = rows[t].mant - 1;
  uint64_t sign = signbit(v) ? 1ull << (mbits + f->exp_bits) : 0;
  uint64_t ones = ((1ull << f->exp_bits) - 1) << mbits;
  if (isnan(v))
    return sign | ones | (t == DT_F8E4M3 ? 7u : 1ull << (mbits - 1));
  if (isinf(v)) return sign | ones;
  if (v == 0) return sign;
  uint64_t bits = bits_of(v);
  int e = exponent_of(bits);
  if (e < f->emin)  // subnormal: units of the smallest step
    return sign | (uint64_t)ldexp(fabs(v), mbits - f->emin);
  uint64_t m = bits >> (F64_BITS - mbits), biased = (uint64_t)(e - f->emin + 1);
  return sign | (biased << mbits) | (m & ((1ull << mbits) - 1));
}

static double decode_small(DType t, uint64_t u) {
  const Small *f = small_of(t);
  int mbits = rows[t].mant - 1;
  uint64_t m = u & ((1ull << mbits) - 1), top = (1ull << f->exp_bits) - 1;
  uint64_t e = (u >> mbits) & top, sign = u >> (mbits + f->exp_bits) & 1;
  double s = sign ? -1.0 : 1.0, v;
  if (t == DT_F8E4M3 && e == top && m == 7) return copysign(NAN, s);
  if (t != DT_F8E4M3 && e == top) return copysign(m ? NAN : INFINITY, s);
  if (e == 0) return s * (double)m * f->least;
  e += (uint64_t)(f->emin - 1 + F64_BIAS);
  uint64_t bits = sign << 63 | e << F64_BITS | m << (F64_BITS - mbits);
  memcpy(&v, &bits, sizeof v);
  return v;
}

static bool stored_small(DType t) {
  return rows[t].kind == 'f' && rows[t].bytes < 4;
}

int64_t dtype_int(double v) {
  if (isnan(v)) return 0;
  if (v >= 0x1.fffffffffffffp62) return INT64_MAX;
  return v <= -0x1p63 ? INT64_MIN : (int64_t)v;
}

double dtype_number(int64_t v) {
  const double most = 0x1.fffffffffffffp62;
  return v > (int64_t)most ? most : (double)v;
}

// Most are no zeros, and neither subnormal nor infinite.
static double decode_f16(uint64_t u) {
  enum { MANT_BITS = 10, TOP = 31, BIAS = 15 };
  uint64_t e = u >> MANT_BITS & TOP, m = u & ((1u << MANT_BITS) - 1);
  if (e - 1 >= TOP - 1) return decode_small(DT_F16, u);
  uint64_t bits = u >> 15 << 63 | (e + F64_BIAS - BIAS) << F64_BITS |
                  m << (F64_BITS - MANT_BITS);
  double v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

static double load_half(DType t, const void *p) {
  const unsigned char *s = p;
  uint32_t u = (uint32_t)s[0] | (uint32_t)s[1] << 8, wide = u << 16;
  float x;
  if (t != DT_BF16) return decode_f16(u);
  memcpy(&x, &wide, 4);
  return isnan(x) ? (double)copysignf(NAN, x) : (double)x;
}

double dtype_load(DType t, const void *p) {
  if (t == DT_F64) {
    double d;
    memcpy(&d, p, 8);
    return d;
  }
  if (t == DT_F32 || t == DT_TF32) {
    float x;
    memcpy(&x, p, 4);
    return (double)x;
  }
  if (t == DT_BF16 || t == DT_F16) return load_half(t, p);
  const unsigned char *s = p;
  uint64_t u = 0;  // elements in memory are little-endian
  for (int i = rows[t].bytes; i-- > 0;) u = u << 8 | s[i];
  if (t == DT_BOOL) return u != 0;
  return stored_small(t) ? decode_small(t, u) : from_bits(t, u);
}

void dtype_gather(DType t, const void *p, const uint32_t *at, uint32_t n,
                  double *out) {
  const char *from = p;
  switch (t) {
  case DT_F32:
    for (uint32_t i = 0; i < n; i++) {
      float x;
      memcpy(&x, from + at[i], sizeof x);
      out[i] = (double)x;
    }
    return;
  case DT_BF16:
  case DT_F16:
    for (uint32_t i = 0; i < n; i++) out[i] = load_half(t, from + at[i]);
    return;
  default:
    for (uint32_t i = 0; i < n; i++) out[i] = dtype_load(t, from + at[i]);
  }
}

void dtype_store(DType t, void *p, double v) {
  if (t == DT_F64) {
    memcpy(p, &v, 8);
    return;
  }
  if (t == DT_F32 || t == DT_TF32) {
    float x = (float)dtype_round(t, v);
    memcpy(p, &x, 4);
    return;
  }
  uint64_t u = t == DT_BOOL      ? v != 0
               : stored_small(t) ? encode_small(t, round_small(t, v))
                                 : wrap(v, 8 * rows[t].bytes);
  unsigned char *s = p;
  for (int i = 0; i < rows[t].bytes; i++) s[i] = (unsigned char)(u >> 8 * i);
}

enum { TOGETHER = 64 };

// Floats of two bytes: false if one is not inside (round_inside).
static bool store_inside(const Small *f, int mant, const double *v,
                         uint16_t *out) {
  int mbits = mant - 1, drop = F64_BITS - mbits;
  uint64_t low = (uint64_t)(f->emin + F64_BIAS), outside = 0;
  uint64_t count = (uint64_t)(f->emax - f->emin);
  uint64_t half = ((uint64_t)1 << (drop - 1)) - 1;
  for (int i = 0; i < TOGETHER; i++) {
    uint64_t bits = bits_of(v[i]), sign = bits >> 63 << 15;
    uint64_t e = (bits >> F64_BITS & F64_EXPONENTS) - low;
    outside |= (count - 1 - e) | e;  // its sign: e is not in 0 .. count - 1
    bits = (bits << 1 >> 1) + half + (bits >> drop & 1);
    out[i] = (uint16_t)(sign | ((bits >> drop) - ((low - 1) << mbits)));
  }
  return !(outside >> 63);
}

void dtype_store_many(DType t, void *p, const double *v, int64_t n) {
  const Small *f = rows[t].bytes == 2 ? small_of(t) : NULL;
  char *out = p;
  int64_t i = 0, size = dtype_size(t);
  for (; i + TOGETHER <= n && (f || t == DT_F32); i += TOGETHER) {
    uint16_t few[TOGETHER];
    float x[TOGETHER];
    for (int k = 0; k < TOGETHER && !f; k++) x[k] = (float)v[i + k];
    if (!f) memcpy(out + i * size, x, sizeof x);
    else if (store_inside(f, rows[t].mant, v + i, few))
      memcpy(out + i * size, few, sizeof few);
    else
      for (int k = 0; k < TOGETHER; k++)
        dtype_store(t, out + (i + k) * size, v[i + k]);
  }
  for (; i < n; i++) dtype_store(t, out + i * size, v[i]);
}
