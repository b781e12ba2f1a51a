// Elementwise ops on single numbers: the column `value` of ops.def.
#include "ir/eval.h"

#include "ir/core/philox.h"

#include <math.h>

static double floor_div(double a, double b) {
  if (b == 0) return 0;
  return floor(a / b);
}

static double nan_max(double a, double b) {
  if (isnan(a) || isnan(b)) return NAN;
  return a > b ? a : b;
}

static double nan_min(double a, double b) {
  if (isnan(a) || isnan(b)) return NAN;
  return a < b ? a : b;
}

static double softplus(double x) {
  return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static double f32_of_bits(double x) {
  union {
    uint32_t bits;
    float x;
  } u = {(uint32_t)dtype_int(x)};
  return u.x;
}

// Integers count modulo 2^32.
static double philox_uniform(const double *x) {
  uint32_t in[ELEM_ARGS], out[4];
  for (int i = 0; i < ELEM_ARGS; i++) in[i] = (uint32_t)dtype_int(x[i]);
  const uint32_t counter[4] = {in[5] >> 2, in[4], in[3], in[2]};
  philox(counter, in, out);
  return (out[in[5] & 3] >> 8) * 0x1p-24;
}

double eval_op(OpCode op, const double *x) {
  switch (op) {
#define ELEM(name, id, levels, n, infer, flags, class, value, doc, ...) \
  case OP_##id: { \
    const double a = x[0], b = n > 1 ? x[1] : 0, c = n > 2 ? x[2] : 0; \
    (void)a, (void)b, (void)c; \
    return value; \
  }
#include "ir/ops.def"
  default: return NAN;
  }
}

#define AT(k, args) ((args) > (k) ? in[k][i * step[k]] : 0)
void eval_many(OpCode op, const double *const *in, const uint32_t *step,
               uint32_t count, double *out) {
  switch (op) {
#define ELEM(name, id, levels, n, infer, flags, class, value, doc, ...) \
  case OP_##id: \
    for (uint32_t i = 0; i < count; i++) { \
      const double x[ELEM_ARGS] = {AT(0, n), AT(1, n), AT(2, n), \
                                   AT(3, n), AT(4, n), AT(5, n)}; \
      const double a = x[0], b = x[1], c = x[2]; \
      (void)a, (void)b, (void)c; \
      out[i] = value; \
    } \
    break;
#include "ir/ops.def"
  default:
    for (uint32_t i = 0; i < count; i++) out[i] = NAN;
  }
}
#undef AT

double eval_identity(RKind k, DType t) {
  bool fp = dtype_is_float(t);
  switch (k) {
  case RK_PROD:
  case RK_ALL: return 1;
  case RK_MAX: return fp ? -INFINITY : t == DT_BOOL ? 0 : -0x1p63;
  case RK_MIN: return fp ? INFINITY : t == DT_BOOL ? 1 : 0x1.fffffffffffffp62;
  default: return 0;
  }
}

double eval_reduce(RKind k, double acc, double x) {
  switch (k) {
  case RK_SUM: return acc + x;
  case RK_PROD: return acc * x;
  case RK_MAX: return nan_max(acc, x);
  case RK_MIN: return nan_min(acc, x);
  case RK_ANY: return acc != 0 || x != 0;
  case RK_ALL: return acc != 0 && x != 0;
  case RK_COUNT: return acc + (x != 0);
  }
  return NAN;
}
