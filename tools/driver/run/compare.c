// How far results are from a reference.
#include "tools/driver/driver.h"

#include <math.h>

static double load(const NpyArray *x, int64_t i) {
  int size = dtype_size(x->dtype);
  return dtype_load(x->dtype, (const char *)x->data + i * size);
}

// What a type makes of the reference: beyond the largest f16 it is inf. A
// result that is equal to it is right; how far others are is told from the
// reference.
static double rounded(DType t, double v) {
  return dtype_is_float(t) ? dtype_round(t, v) : v;
}

static double rms_of(DType t, const double *v, int64_t n) {
  double sq = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < n; i++) {
    double x = rounded(t, v[i]);
    if (!isfinite(x)) continue;
    sq += x * x;
    finite++;
  }
  return finite ? sqrt(sq / (double)finite) : 0;
}

static bool same_nonfinite(double a, double b) {
  return isnan(a) ? isnan(b) : a == b;
}

DrvError drv_compare(const NpyArray *x, const double *want, const int64_t *at,
                     int64_t n) {
  DrvError e = {.n = n};
  double scale = rms_of(x->dtype, want, n), sq = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t where = at ? at[i] : i;
    double a = load(x, where), b = want[i], near = rounded(x->dtype, b);
    if (!isfinite(a) || !isfinite(near)) {
      b = near;
      if (same_nonfinite(a, b)) continue;
      if (!e.nonfinite++) e.at = where, e.got = a, e.want = b;
      continue;
    }
    double d = a == near ? 0 : fabs(a - b), base = fabs(b) + scale;
    double rel = d == 0 ? 0 : base > 0 ? d / base : INFINITY;
    sq += d * d;
    if (d > e.max_abs) e.max_abs = d;
    if (rel <= e.rel) continue;
    e.rel = rel;
    if (!e.nonfinite) e.at = where, e.got = a, e.want = b;
  }
  e.rms = n ? sqrt(sq / (double)n) : 0;
  return e;
}

bool drv_within(const DrvError *e, double tol) {
  return !e->nonfinite && e->rel <= tol;
}

// A few roundings of the coarsest type that results or row weights have.
double drv_tolerance(const DrvCall *c) {
  double t = 1e-9;
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *a = &c->args[i];
    double u = 0;
    if (a->scalar && !a->out) continue;
    switch (a->dtype) {
    case DT_F64: u = 1e-9; break;
    case DT_F32: u = 1e-4; break;
    case DT_TF32:
    case DT_F16: u = 4e-3; break;
    case DT_BF16: u = 2e-2; break;
    // f8 inputs are exact; weights are rounded to 16 bits.
    case DT_F8E4M3: u = a->out ? 0.15 : 2e-2; break;
    case DT_F8E5M2: u = a->out ? 0.3 : 2e-2; break;
    default: break;
    }
    if (u > t) t = u;
  }
  return t;
}
