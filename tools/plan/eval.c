// Numbers that are known without running anything: scalar defaults, arguments
// and tolerances of checks.
#include "frontend/check.h"
#include "tools/driver/driver.h"

#include <math.h>

static double unary_math(int builtin, double x, bool *ok) {
  switch (builtin) {
  case BI_exp: return exp(x);
  case BI_exp2: return exp2(x);
  case BI_log: return log(x);
  case BI_log2: return log2(x);
  case BI_sqrt: return sqrt(x);
  case BI_rsqrt: return 1 / sqrt(x);
  case BI_abs: return fabs(x);
  case BI_floor: return floor(x);
  case BI_tanh: return tanh(x);
  default: *ok = false; return 0;
  }
}

static double binary(int op, double a, double b, bool *ok) {
  switch (op) {
  case BO_ADD: return a + b;
  case BO_SUB: return a - b;
  case BO_MUL: return a * b;
  case BO_DIV: return a / b;
  case BO_POW: return pow(a, b);
  case BO_FLOORDIV: return floor(a / b);
  case BO_MOD: return a - b * floor(a / b);
  default: *ok = false; return 0;
  }
}

static double eval(const DimTab *t, const int64_t *dims, const Expr *e,
                   bool *ok);

static double call(const DimTab *t, const int64_t *dims, const Expr *e,
                   bool *ok) {
  bool one = e->sym && e->sym->kind == SY_BUILTIN && e->args.n == 1;
  if (!one) *ok = false;
  if (!*ok) return 0;
  double x = eval(t, dims, e->args.at[0].value, ok);
  return *ok ? unary_math(e->sym->builtin, x, ok) : 0;
}

static double name(const DimTab *t, const int64_t *dims, const Expr *e,
                   bool *ok) {
  int64_t v = 0;
  const Sym *s = e->sym;
  if (s && s->kind == SY_LET && s->value && !s->is_tuple)
    return eval(t, dims, s->value, ok);
  bool known = s && s->kind == SY_DIM && t;
  if (known && dim_is_const(t, s->dim, &v)) return (double)v;
  if (!known || !dims || !dim_eval(t, s->dim, dims, &v)) *ok = false;
  return (double)v;
}

static double eval(const DimTab *t, const int64_t *dims, const Expr *e,
                   bool *ok) {
  double a, b;
  switch (e->kind) {
  case EX_INT:
  case EX_BOOL: return (double)e->ival;
  case EX_FLOAT: return e->fval;
  case EX_INF: return INFINITY;
  case EX_NAME: return name(t, dims, e, ok);
  case EX_CALL: return call(t, dims, e, ok);
  case EX_UNARY: a = eval(t, dims, e->a, ok); return e->op == UO_NEG ? -a : !a;
  case EX_BINARY:
    a = eval(t, dims, e->a, ok);
    b = eval(t, dims, e->b, ok);
    return *ok ? binary(e->op, a, b, ok) : 0;
  case EX_CAST:
    a = eval(t, dims, e->a, ok);
    return *ok ? dtype_round(e->dtype, a) : 0;
  default: *ok = false; return 0;
  }
}

bool drv_eval(const DimTab *t, const int64_t *dims, const Expr *e, double *v) {
  bool ok = true;
  *v = eval(t, dims, e, &ok);
  return ok;
}
