// The oracle's roundings: every value that arithmetic makes, each operand of an
// operation, each derivative and each contribution to one is wrong by up to a
// part of itself. What results change by is what code may be wrong by that
// rounds each value when it makes it and when it reads it. It shows what inputs
// that are wrong do not, as terms that cancel whatever the inputs are: sum(k:
// p) of a softmax has no derivative but that of roundings.
#include "frontend/oraclecore.h"

// In [-1, 1), another one each time.
static double next(Oracle *o) {
  uint64_t key[] = {o->dual->draw, o->rounded++};
  return (double)(map_hash(key, sizeof key, 3) >> 11) * 0x1p-52 - 1;
}

double oracle_round(Oracle *o, double x) {
  double u = o->dual ? o->dual->rounding : 0;
  return u == 0 ? x : x * (1 + u * next(o));
}

// Makes e new numbers, rounded ones: what picks or moves numbers does not.
static bool rounds(const Expr *e) {
  bool call = e->kind == EX_CALL || e->kind == EX_PIPE;
  if (!dtype_is_float(e->ty.dtype) || e->elementwise) return false;
  if (e->kind == EX_BINARY) return true;
  if (!call || e->sym->kind != SY_BUILTIN) return false;
  int b = e->sym->builtin;
  switch (fe_builtins[b].kind) {
  case BK_MATH:
  case BK_DOT:
  case BK_OUTER: return true;
  case BK_REDUCE: return b != BI_max && b != BI_min;
  default: return false;
  }
}

void oracle_round_made(Oracle *o, const Expr *e, Val *v) {
  if (!o->dual || o->dual->rounding == 0 || o->failed || !rounds(e)) return;
  for (int64_t i = 0; i < v->n; i++) v->at[i] = oracle_round(o, v->at[i]);
  for (int64_t i = 0; v->dx && i < v->n; i++) {
    double *dx = v->dx[i];
    if (!dx) o->rounded += o->lanes;  // zeros, which stay
    for (uint32_t l = 0; dx && l < o->lanes; l++)
      dx[l] = oracle_round(o, dx[l]);
  }
}
