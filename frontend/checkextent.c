// Indices and the axes they stand in: an index that may pass the end of its
// axis is an error, unless bounds, the constraints of the program, the index's
// own domain or a condition around it say that it does not.
//   index k in Sk;  V: f32[B, Sk, D]    V[b, k]              fits
//   index k in Sk where k < n;  V: f32[n]   V[k]             its domain
//   if k < n then V[k] else 0.0                              a condition
// What a function cannot tell, since its dims are those of its arguments, each
// call of it does.
#include "frontend/checker.h"

static bool fits_in(const DimTab *t, Dim a, Dim b);

// b is a sum, as B + 1, of what a fits in and of what is not below 0.
static bool fits_in_sum(const DimTab *t, Dim a, Dim b) {
  DimExpr e = t->exprs.at[b];
  int64_t x, y, hi;
  if (e.op != DIM_ADD) return false;
  dim_bounds(t, e.a, &x, &hi);
  dim_bounds(t, e.b, &y, &hi);
  return (y >= 0 && fits_in(t, a, e.a)) || (x >= 0 && fits_in(t, a, e.b));
}

// a <= b is known: equal, by bounds, or a is a part of b as in D // 2.
static bool fits_in(const DimTab *t, Dim a, Dim b) {
  if (fe_dims_equal(t, a, b) || fits_in_sum(t, a, b)) return true;
  DimExpr e = t->exprs.at[a];
  if (e.op == DIM_FLOORDIV && fits_in(t, e.a, b)) return true;
  if (e.op == DIM_MIN && (fits_in(t, e.a, b) || fits_in(t, e.b, b)))
    return true;
  int64_t lo, hi, b_lo, b_hi;
  dim_bounds(t, a, &lo, &hi);
  dim_bounds(t, b, &b_lo, &b_hi);
  return hi <= b_lo;
}

// What a condition is asked about: is it known, where it holds, that the index
// is below the axis, or that the extent is at most the axis?
typedef struct Question {
  Check *c;
  const Sym *index;  // NULL: about the extent
  Dim extent, axis;
} Question;

// a < b + more holds.
static bool below(const Question *q, const Expr *a, const Expr *b, int more) {
  Dim limit = fe_dim_of(q->c->decl, b);
  DimTab *t = q->c->dims;
  if (limit == DIM_NONE) return false;
  if (q->index) {
    if (a->kind != EX_NAME || a->sym != q->index) return false;
    limit = dim_bin(t, DIM_ADD, limit, dim_const(t, more));
    return fits_in(t, limit, q->axis);
  }
  Dim least = fe_dim_of(q->c->decl, a);
  return least != DIM_NONE && fe_dims_equal(t, least, q->extent) &&
         fits_in(t, limit, q->axis);
}

static bool tells(const Question *q, const Expr *a, BinOp op, const Expr *b) {
  switch (op) {
  case BO_LT: return below(q, a, b, 0);
  case BO_LE: return below(q, a, b, 1);
  case BO_GT: return below(q, b, a, 0);
  case BO_GE: return below(q, b, a, 1);
  case BO_EQ: return below(q, a, b, 1) || below(q, b, a, 1);
  default: return false;
  }
}

static bool holds(const Question *q, const Expr *e) {
  if (e->kind == EX_BINARY && e->op == BO_AND)
    return holds(q, e->a) || holds(q, e->b);
  if (e->kind == EX_BINARY) return tells(q, e->a, (BinOp)e->op, e->b);
  if (e->kind == EX_NAME && e->sym && e->sym->kind == SY_LET && e->sym->value)
    return holds(q, e->sym->value);
  for (uint32_t i = 0; e->kind == EX_CHAIN && i < e->ops.n; i++)
    if (tells(q, e->list.at[i], e->ops.at[i], e->list.at[i + 1])) return true;
  return false;
}

static bool by_constraint(const Question *q) {
  Question about = {q->c, NULL, q->extent, q->axis};
  const Decl *d = q->c->decl;
  for (uint32_t i = 0; d && i < d->where.n; i++)
    if (holds(&about, d->where.at[i])) return true;
  return false;
}

static Diag *past_the_end(Check *c, const ExtentNeed *n, Span at) {
  return diag_add(c->cx, DIAG_index_extent, at, n->index,
                  dim_text(c, n->extent), n->tensor, dim_text(c, n->axis));
}

void ck_index_extent(Check *c, const Expr *e, const Item *it, Dim axis) {
  const Expr *x = it->lo;
  if (x->kind != EX_NAME || !x->sym || x->sym->kind != SY_INDEX) return;
  Question q = {c, x->sym, x->sym->dim, axis};
  bool guarded = c->guarded & index_bit(x->sym);
  if (q.extent == DIM_NONE || guarded || fits_in(c->dims, q.extent, axis))
    return;
  if (by_constraint(&q) || (x->sym->domain && holds(&q, x->sym->domain)))
    return;
  const Sym *tensor = e->a->kind == EX_NAME ? e->a->sym : NULL;
  ExtentNeed n = {x->span, x->name, fe_span_text(c, e->a->span), q.extent,
                  axis};
  if (c->decl && is_function(c->decl)) {
    vec_push(c->a, &c->decl->needs, n);
    return;
  }
  Diag *d = past_the_end(c, &n, x->span);
  if (tensor && span_known(tensor->span))
    diag_note(c->cx, d, tensor->span, "'%s' has the shape %s", tensor->name,
              fe_shape_text(c, &e->a->ty));
  diag_note(c->cx, d, NOWHERE,
            "if no call passes the end, say so: `where %s <= %s` behind the "
            "outputs, or an expression, `%s + 0`",
            dim_text(c, q.extent), dim_text(c, axis), x->name);
}

bool ck_call_extents(Check *c, const Expr *call, const Decl *callee) {
  for (uint32_t i = 0; i < callee->needs.n; i++) {
    ExtentNeed n = callee->needs.at[i];
    n.extent = dim_subst(callee->dims, c->dims, n.extent, call->dims);
    n.axis = dim_subst(callee->dims, c->dims, n.axis, call->dims);
    Question q = {c, NULL, n.extent, n.axis};
    if (fits_in(c->dims, n.extent, n.axis) || by_constraint(&q)) continue;
    if (c->decl && is_function(c->decl)) {
      vec_push(c->a, &c->decl->needs, n);
      continue;
    }
    Diag *d = past_the_end(c, &n, call->span);
    diag_note(c->cx, d, n.span, "there, in '%s'", callee->name);
    return false;
  }
  return true;
}
