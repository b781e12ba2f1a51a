// Philox streams. Only + - * / and sqrt on doubles, whose results IEEE 754
// fixes: the C library's log differs from host to host in the last bit.
#include "tools/driver/run/rng.h"

#include "ir/core/philox.h"

#include <math.h>

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

static double poly(const double c[8], double x) {
  double v = c[0];
  for (int i = 1; i < 8; i++) v = v * x + c[i];
  return v;
}

// log(x) for normal x > 0, to about 1e-16: m 2^e with m near 1, then
// log(m) = 2 atanh((m - 1) / (m + 1)).
static double logarithm(double x) {
  int e;
  double m = frexp(x, &e);
  if (m < 0.70710678118654752) {
    m *= 2;
    e--;
  }
  static const double odd[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17,
                               1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,
                               1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
  double s = (m - 1) / (m + 1), sum = 0;
  for (uint32_t k = 0; k < sizeof odd / sizeof *odd; k++)
    sum = sum * s * s + odd[k];
  return 2 * s * sum + e * 0.69314718055994531;
}

double rng_normal(Rng *r, uint64_t i) {
  double p = rng_uniform(r, i), q = p - 0.5;
  if (fabs(q) <= 0.425) {
    double x = 0.180625 - q * q;
    return q * poly(mid_num, x) / poly(mid_den, x);
  }
  double t = sqrt(-logarithm(q < 0 ? p : 1 - p));
  double v = t <= 5 ? poly(tail_num, t - 1.6) / poly(tail_den, t - 1.6)
                    : poly(far_num, t - 5) / poly(far_den, t - 5);
  return q < 0 ? -v : v;
}
