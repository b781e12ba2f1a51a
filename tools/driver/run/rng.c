// Philox streams. Only + - * / and sqrt on doubles, whose results IEEE 754
// fixes: the C library's log differs from host to host in the last bit.
#include "tools/driver/run/rng.h"

#include "ir/core/philox.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

// FNV-1a.
static uint64_t hash(const char *s) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
  return h;
}

static void load(Rng *r, uint64_t block) {
  const uint32_t ctr[4] = {(uint32_t)block, (uint32_t)(block >> 32), r->name[0],
                           r->name[1]};
  philox(ctr, r->key, r->out);
  r->block = block;
}

void rng_init(Rng *r, uint64_t seed, const char *name) {
  uint64_t h = hash(name);
  *r = (Rng){.key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
             .name = {(uint32_t)h, (uint32_t)(h >> 32)}};
  load(r, 0);
}

uint64_t rng_bits(Rng *r, uint64_t i) {
  if (r->block != i / 2) load(r, i / 2);
  const uint32_t *w = r->out + i % 2 * 2;
  return w[0] | (uint64_t)w[1] << 32;
}

double rng_uniform(Rng *r, uint64_t i) {
  return ((double)(rng_bits(r, i) >> 12) + 0.5) * 0x1p-52;
}

int64_t rng_int(Rng *r, uint64_t i, int64_t lo, int64_t hi) {
  // High word of bits * n; off uniform by less than n / 2^64.
  uint64_t x = rng_bits(r, i), n = (uint64_t)hi - (uint64_t)lo;
  uint64_t x1 = x >> 32, x0 = x & UINT32_MAX;
  uint64_t n1 = n >> 32, n0 = n & UINT32_MAX;
  uint64_t mid = x1 * n0 + (x0 * n0 >> 32);
  uint64_t low = x0 * n1 + (mid & UINT32_MAX);
  uint64_t high = x1 * n1 + (mid >> 32) + (low >> 32);
  return (int64_t)((uint64_t)lo + high);
}

// ---- normal: the inverse of its distribution function, Wichura's AS 241

static const double mid_num[8] = {
    2.5090809287301226727e+3, 3.3430575583588128105e+4,
    6.7265770927008700853e+4, 4.5921953931549871457e+4,
    1.3731693765509461125e+4, 1.9715909503065514427e+3,
    1.3314166789178437745e+2, 3.3871328727963666080e+0};
static const double mid_den[8] = {
    5.2264952788528545610e+3, 2.8729085735721942674e+4,
    3.9307895800092710610e+4, 2.1213794301586595867e+4,
    5.3941960214247511077e+3, 6.8718700749205790830e+2,
    4.2313330701600911252e+1, 1.0};
static const double tail_num[8] = {
    7.74545014278341407640e-4, 2.27238449892691845833e-2,
    2.41780725177450611770e-1, 1.27045825245236838258e+0,
    3.64784832476320460504e+0, 5.76949722146069140550e+0,
    4.63033784615654529590e+0, 1.42343711074968357734e+0};
static const double tail_den[8] = {
    1.05075007164441684324e-9, 5.47593808499534494600e-4,
    1.51986665636164571966e-2, 1.48103976427480074590e-1,
    6.89767334985100004550e-1, 1.67638483018380384940e+0,
    2.05319162663775882187e+0, 1.0};
static const double far_num[8] = {
    2.01033439929228813265e-7, 2.71155556874348757815e-5,
    1.24266094738807843860e-3, 2.65321895265761230930e-2,
    2.96560571828504891230e-1, 1.78482653991729133580e+0,
    5.46378491116411436990e+0, 6.65790464350110377720e+0};
static const double far_den[8] = {
    2.04426310338993978564e-15, 1.42151175831644588870e-7,
    1.84631831751005468180e-5,  7.86869131145613259100e-4,
    1.48753612908506148525e-2,  1.36929880922735805310e-1,
    5.99832206555887937690e-1,  1.0};

// A chain without a loop, so that loops over many x become vectors.
static inline double poly(const double c[8], double x) {
  double v = (((c[0] * x + c[1]) * x + c[2]) * x + c[3]) * x + c[4];
  return ((v * x + c[5]) * x + c[6]) * x + c[7];
}

static inline uint64_t bits_of(double x) {
  uint64_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

static inline double of_bits(uint64_t u) {
  double x;
  memcpy(&x, &u, sizeof x);
  return x;
}

// log(x) for normal x > 0, to about 1e-16: m 2^e with m near 1, then
// log(m) = 2 atanh((m - 1) / (m + 1)).
static inline double logarithm(double x) {
  enum { MANTISSA = 52, BIAS = 1022 };  // of m in [0.5, 1)
  const uint64_t ones = ((uint64_t)1 << MANTISSA) - 1;
  uint64_t u = bits_of(x);
  double m = of_bits((u & ones) | (uint64_t)BIAS << MANTISSA);
  // The exponent as the low bits of 2^52 + e: a conversion in vectors.
  double e = of_bits((u >> MANTISSA) | bits_of(0x1p52)) - (0x1p52 + BIAS);
  e = m < 0.70710678118654752 ? e - 1 : e;
  m = m < 0.70710678118654752 ? m * 2 : m;
  double s = (m - 1) / (m + 1), sum = 1.0 / 23;
  sum = sum * s * s + 1.0 / 21;
  sum = sum * s * s + 1.0 / 19;
  sum = sum * s * s + 1.0 / 17;
  sum = sum * s * s + 1.0 / 15;
  sum = sum * s * s + 1.0 / 13;
  sum = sum * s * s + 1.0 / 11;
  sum = sum * s * s + 1.0 / 9;
  sum = sum * s * s + 1.0 / 7;
  sum = sum * s * s + 1.0 / 5;
  sum = sum * s * s + 1.0 / 3;
  sum = sum * s * s + 1.0;
  return 2 * s * sum + e * 0.69314718055994531;
}

#define MIDDLE 0.425  // of |p - 0.5|: beyond are the tails

static inline double middle(double q) {
  double x = 0.180625 - q * q;
  return q * poly(mid_num, x) / poly(mid_den, x);
}

// Of the smaller probability: the square root in which tails are polynomials.
static inline double deep(double p) {
  double q = p - 0.5;
  return -logarithm(q < 0 ? p : 1 - p);
}

static inline double tail(double t) {
  return poly(tail_num, t - 1.6) / poly(tail_den, t - 1.6);
}

static double outside(double p) {
  double t = sqrt(deep(p));
  double v = t <= 5 ? tail(t) : poly(far_num, t - 5) / poly(far_den, t - 5);
  return p < 0.5 ? -v : v;
}

double rng_normal(Rng *r, uint64_t i) {
  double p = rng_uniform(r, i), q = p - 0.5;
  return fabs(q) <= MIDDLE ? middle(q) : outside(p);
}

// ---- many at once: loops of known length, which become vectors

enum { BLOCKS = MAX_DRAWN / 2, TAILS = 16 };

typedef struct Words {
  uint32_t a[BLOCKS], b[BLOCKS], c[BLOCKS], d[BLOCKS];
} Words;

static void rounds(Words *w, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    for (int j = 0; j < BLOCKS; j++) {
      uint64_t p = (uint64_t)PHILOX_M0 * w->a[j];
      uint64_t q = (uint64_t)PHILOX_M1 * w->c[j];
      w->a[j] = (uint32_t)(q >> 32) ^ w->b[j] ^ k0;
      w->b[j] = (uint32_t)q;
      w->c[j] = (uint32_t)(p >> 32) ^ w->d[j] ^ k1;
      w->d[j] = (uint32_t)p;
    }
    k0 += PHILOX_W0;
    k1 += PHILOX_W1;
  }
}

// 52 bits behind the point of 1.x, then exact differences: as rng_uniform.
static inline double fraction(uint32_t low, uint32_t high) {
  uint64_t bits = low | (uint64_t)high << 32;
  return of_bits(bits >> 12 | bits_of(1)) - 1 + 0x1p-53;
}

void rng_uniforms(const Rng *r, uint64_t from, double *out) {
  Words w;
  for (int j = 0; j < BLOCKS; j++) {
    uint64_t block = from / 2 + (uint64_t)j;
    w.a[j] = (uint32_t)block;
    w.b[j] = (uint32_t)(block >> 32);
    w.c[j] = r->name[0];
    w.d[j] = r->name[1];
  }
  rounds(&w, r->key[0], r->key[1]);
  for (int j = 0; j < BLOCKS; j++) {
    out[2 * j] = fraction(w.a[j], w.b[j]);
    out[2 * j + 1] = fraction(w.c[j], w.d[j]);
  }
}

// The tails of p, whose numbers are at[0 .. n-1].
static void tails(const double *p, const uint32_t *at, uint32_t n,
                  double *out) {
  double t[TAILS], v[TAILS];
  for (uint32_t i = 0; i < n; i++) t[i] = p[at[i]];
  for (uint32_t i = n; i < TAILS; i++) t[i] = 0x1p-4;
  for (uint32_t i = 0; i < TAILS; i++) t[i] = deep(t[i]);
  for (uint32_t i = 0; i < TAILS; i++) t[i] = sqrt(t[i]);
  for (uint32_t i = 0; i < TAILS; i++) v[i] = tail(t[i]);
  for (uint32_t i = 0; i < n; i++) {
    bool low = p[at[i]] < 0.5;
    out[at[i]] = t[i] > 5 ? outside(p[at[i]]) : low ? -v[i] : v[i];
  }
}

void rng_normals(const Rng *r, uint64_t from, double *out) {
  double p[MAX_DRAWN];
  uint32_t at[MAX_DRAWN], n = 0;
  rng_uniforms(r, from, p);
  for (int i = 0; i < MAX_DRAWN; i++) out[i] = middle(p[i] - 0.5);
  for (uint32_t i = 0; i < MAX_DRAWN; i++) {
    at[n] = i;
    n += fabs(p[i] - 0.5) > MIDDLE;
  }
  for (uint32_t i = 0; i < n; i += TAILS)
    tails(p, at + i, n - i < TAILS ? n - i : TAILS, out);
}
