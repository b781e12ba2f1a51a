// Constraints over dims as postfix code of the descriptor.
//   Hq % Hk == 0   ->   DIM Hq  DIM Hk  MOD  CONST 0  EQ
#include "frontend/check.h"
#include "tools/driver/compile/compile.h"

typedef struct Where {
  Ctx *cx;
  const Decl *prog;
  DimTab *to;  // the descriptor's dims
  bool ok;
} Where;

static CgExpr constant(Where *w, int64_t v) {
  return cg_expr_dim(w->cx, w->to, dim_const(w->to, v));
}

// The dims of a program are found again by name in the descriptor's table.
static CgExpr dim_of(Where *w, const Expr *e) {
  Dim d = fe_dim_of(w->prog, e);
  if (d == DIM_NONE) {
    w->ok = false;
    return constant(w, 0);
  }
  const DimTab *t = w->prog->dims;
  Dim *keep = NEWN(&w->cx->session, Dim, t->syms.n + 1);
  return cg_expr_dim(w->cx, w->to, dim_subst(t, w->to, d, keep));
}

static CgExpr relation(Where *w, BinOp op, CgExpr a, CgExpr b) {
  switch (op) {
  case BO_LT: return cg_expr_bin(w->cx, a, ATTN_X_LT, b);
  case BO_GT: return cg_expr_bin(w->cx, b, ATTN_X_LT, a);
  case BO_LE: return cg_expr_bin(w->cx, a, ATTN_X_LE, b);
  case BO_GE: return cg_expr_bin(w->cx, b, ATTN_X_LE, a);
  case BO_EQ: return cg_expr_bin(w->cx, a, ATTN_X_EQ, b);
  case BO_NE: return cg_expr_bin(w->cx, a, ATTN_X_NE, b);
  default: w->ok = false; return a;
  }
}

static CgExpr condition(Where *w, const Expr *e) {
  switch (e->kind) {
  case EX_BOOL: return constant(w, e->ival);
  case EX_UNARY:
    return cg_expr_bin(w->cx, condition(w, e->a), ATTN_X_EQ, constant(w, 0));
  case EX_BINARY: {
    if (e->op == BO_AND || e->op == BO_OR) {
      CgExpr other = condition(w, e->b);
      return cg_expr_bin(w->cx, condition(w, e->a),
                         e->op == BO_AND ? ATTN_X_AND : ATTN_X_OR, other);
    }
    CgExpr y = dim_of(w, e->b);
    return relation(w, (BinOp)e->op, dim_of(w, e->a), y);
  }
  case EX_CHAIN: break;
  default: w->ok = false; return constant(w, 1);
  }
  CgExpr all = {0};
  for (uint32_t i = 0; i < e->ops.n; i++) {
    CgExpr y = dim_of(w, e->list.at[i + 1]);
    CgExpr one = relation(w, e->ops.at[i], dim_of(w, e->list.at[i]), y);
    all = i ? cg_expr_bin(w->cx, all, ATTN_X_AND, one) : one;
  }
  return all;
}

bool drv_where(Ctx *cx, const Decl *prog, DimTab *to, CgProgram *out) {
  CgExpr *at = NEWN(&cx->session, CgExpr, prog->where.n + 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < prog->where.n; i++) {
    Where w = {cx, prog, to, true};
    CgExpr e = condition(&w, prog->where.at[i]);
    if (w.ok) {
      at[n++] = e;
      continue;
    }
    diag_add(cx, DIAG_where_form, prog->where.at[i]->span);
    return false;
  }
  out->checks = at;
  out->nchecks = n;
  return true;
}
