// Elementwise ops on single numbers.
#include "ir/eval.h"

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

double eval_op(OpCode c, DType in, const double *x) {
  bool fp = dtype_is_float(in);
  switch (c) {
  case OP_ADD: return x[0] + x[1];
  case OP_SUB: return x[0] - x[1];
  case OP_MUL: return x[0] * x[1];
  case OP_DIV:
  case OP_DIVK: return x[0] / x[1];
  case OP_FLOORDIV: return floor_div(x[0], x[1]);
  case OP_MOD: return x[0] - x[1] * floor_div(x[0], x[1]);
  case OP_MIN: return nan_min(x[0], x[1]);
  case OP_MAX: return nan_max(x[0], x[1]);
  case OP_NEG: return -x[0];
  case OP_ABS: return fabs(x[0]);
  case OP_POW: return pow(x[0], x[1]);
  case OP_FMA: return fma(x[0], x[1], x[2]);
  case OP_EQ: return x[0] == x[1];
  case OP_NE: return x[0] != x[1];
  case OP_LT: return x[0] < x[1];
  case OP_LE: return x[0] <= x[1];
  case OP_AND: return x[0] != 0 && x[1] != 0;
  case OP_OR: return x[0] != 0 || x[1] != 0;
  case OP_NOT: return x[0] == 0;
  case OP_SELECT: return x[0] != 0 ? x[1] : x[2];
  case OP_EXP: return exp(x[0]);
  case OP_EXP2: return exp2(x[0]);
  case OP_LOG: return log(x[0]);
  case OP_LOG2: return log2(x[0]);
  case OP_SQRT: return sqrt(x[0]);
  case OP_RSQRT: return 1 / sqrt(x[0]);
  case OP_TANH: return tanh(x[0]);
  case OP_SIGMOID: return sigmoid(x[0]);
  case OP_SOFTPLUS: return softplus(x[0]);
  case OP_RELU: return x[0] < 0 ? 0 : x[0];
  case OP_ERF: return erf(x[0]);
  case OP_SIN: return sin(x[0]);
  case OP_COS: return cos(x[0]);
  case OP_FLOOR: return fp ? floor(x[0]) : x[0];
  case OP_REF: return x[0] == -INFINITY ? 0 : x[0];
  case OP_STOP_GRAD: return x[0];
  default: return NAN;
  }
}

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
