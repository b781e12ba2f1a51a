// Numbers that are known without running anything: scalar defaults, arguments
// and tolerances of checks.
#include "frontend/check.h"
#include "frontend/oracle.h"
#include "tools/driver/driver.h"

#include <math.h>

// Of numbers; not ok for logic and comparisons.
static double binary(int op, double a, double b, bool *ok) {
  switch (op) {
  case BO_ADD:
  case BO_SUB:
  case BO_MUL:
  case BO_DIV:
  case BO_POW:
  case BO_FLOORDIV:
  case BO_MOD: return oracle_binary(op, a, b);
  default: *ok = false; return 0;
  }
}

static double eval(const DimTab *t, const int64_t *dims, const Expr *e,
                   bool *ok);

static double call(const DimTab *t, const int64_t *dims, const Expr *e,
                   bool *ok) {
  int b = e->sym && e->sym->kind == SY_BUILTIN ? e->sym->builtin : BI_COUNT;
  bool one = b < BI_COUNT && e->args.n == 1 &&
             (fe_builtins[b].kind == BK_MATH || b == BI_abs);
  if (!one) *ok = false;
  if (!*ok) return 0;
  double x = eval(t, dims, e->args.at[0].value, ok);
  return *ok ? oracle_function(b, x) : 0;
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
