// check blocks: dims, inputs, expectations. All dims are numbers here.
//
//   dims B = 2, D = 64;                   SY_DIM
//   input Q, K = normal(0, 1, seed = 1);  SY_LET; typed by its first use
//   expect f(Q, K) ~= reference tol 1e-3;
#include "frontend/checker.h"

#include <math.h>

// --- the dims of a program in this block -----------------------------------

static Dim given_dim(Check *c, const char *name) {
  Sym *s = scope_here(c->scope, intern(&c->cx->names, name));
  if (!s || s->kind != SY_DIM) return DIM_NONE;
  s->nuses++;
  return s->dim;
}

static void no_value(Check *c, const Expr *e, const DimSym *d, const Decl *p) {
  Diag *g = diag_add(c->cx, DIAG_check_dim, e->span, d->name, p->name);
  for (uint32_t i = 0; i < e->args.n; i++)
    if (e->args.at[i].kind == ARG_NAMED &&
        strcmp(e->args.at[i].name, d->name) == 0)
      diag_note(c->cx, g, e->args.at[i].name_span,
                "a dim is no parameter: `dims %s = %s;` gives it", d->name,
                fe_span_text(c, e->args.at[i].value->span));
  Guess near = guess_start(d->name);
  for (uint32_t i = 0; i < c->scope->syms.n; i++)
    if (c->scope->syms.at[i]->kind == SY_DIM)
      guess_try(&near, c->scope->syms.at[i]->name);
  const Sym *s =
      near.best ? scope_here(c->scope, intern(&c->cx->names, near.best)) : NULL;
  if (s)
    diag_fix(c->cx, g, s->span, d->name, "did you mean '%s' for '%s'?", d->name,
             s->name);
}

// A ragged dim counts with its longest entry.
static bool solve_sym(Check *c, const Expr *e, const Decl *p, uint32_t i,
                      int64_t *v) {
  const DimSym *d = &p->dims->syms.at[i];
  Dim here = given_dim(c, d->name);
  if (here == DIM_NONE && d->values.n == 1)
    here = dim_const(c->dims, d->values.at[0]);
  if (here == DIM_NONE || !dim_is_const(c->dims, here, v)) {
    no_value(c, e, d, p);
    return false;
  }
  if (d->values.n && !dim_takes(d, *v)) {
    Sym *at = scope_here(c->scope, intern(&c->cx->names, d->name));
    fe_bad_dim(c->cx, at ? at->span : e->span, d, *v);
    return false;
  }
  e->dims[i] = here;
  return true;
}

static bool in_bounds(Check *c, const Expr *e, const Decl *p,
                      const int64_t *sym) {
  for (uint32_t i = 0; i < p->dims->syms.n; i++) {
    const DimSym *d = &p->dims->syms.at[i];
    if (sym[i] >= d->lo && sym[i] <= d->hi && sym[i] % d->divisor == 0)
      continue;
    fe_bad_dim(c->cx, e->span, d, sym[i]);
    return false;
  }
  return true;
}

static bool constraints(Check *c, const Expr *e, const Decl *p,
                        const int64_t *sym, const bool *known) {
  for (uint32_t i = 0; i < p->where.n; i++) {
    int64_t v;
    if (!ck_constraint(p, p->where.at[i], sym, known, &v) || v) continue;
    Diag *d = diag_add(c->cx, DIAG_check_where, e->span, p->name,
                       fe_span_text(c, p->where.at[i]->span));
    diag_note(c->cx, d, p->where.at[i]->span, "the constraint");
    return false;
  }
  return true;
}

static bool program_dims(Check *c, Expr *e, const Decl *p) {
  uint32_t n = p->dims->syms.n;
  bool ok = true;
  int64_t *sym = NEWN(c->a, int64_t, n + 1);
  bool *known = NEWN(c->a, bool, n + 1);
  e->dims = NEWN(c->a, Dim, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    known[i] = solve_sym(c, e, p, i, &sym[i]);
    ok = known[i] && ok;
  }
  return ok && constraints(c, e, p, sym, known) && in_bounds(c, e, p, sym);
}

// --- types of a program's parameters in this block -------------------------

static DType param_dtype(Check *c, const Param *x) {
  const Sym *s =
      x->type->generic ? scope_here(c->scope, x->type->generic) : NULL;
  return s && s->kind == SY_DTYPE ? s->ty.dtype : x->sym->ty.dtype;
}

static Ty param_ty(Check *c, const Expr *e, const Decl *p, const Param *x) {
  Ty t = x->sym->ty;
  t.dtype = param_dtype(c, x);
  for (int i = 0; i < t.rank; i++)
    t.shape[i] = dim_subst(p->dims, c->dims, t.shape[i], e->dims);
  return t;
}

static bool same_shape(const Check *c, const Ty *a, const Ty *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (!fe_dims_equal(c->dims, a->shape[i], b->shape[i])) return false;
  return true;
}

// --- arguments -------------------------------------------------------------

static Sym *untyped_input(Check *c, const Expr *e) {
  Sym *s = e->kind == EX_NAME ? scope_find(c->scope, e->name) : NULL;
  return s && s->kind == SY_LET && s->ty.kind == TY_NONE ? s : NULL;
}

static bool argument(Check *c, Expr *value, const Ty *want, const Param *p) {
  Sym *input = untyped_input(c, value);
  if (input) input->ty = *want;
  if (!ck_single(c, value)) return false;
  if (!same_shape(c, &value->ty, want)) {
    diag_add(c->cx, DIAG_shape_mismatch, value->span,
             fe_shape_text(c, &value->ty), fe_shape_text(c, want));
    return false;
  }
  return ck_fits(c, value, want, true, p->name);
}

static int param_for(Check *c, const Expr *e, const Decl *p, const Arg *a,
                     uint32_t *next) {
  int at = -1;
  if (a->kind == ARG_POS) {
    while (*next < p->params.n && e->bound[*next].value) ++*next;
    at = *next < p->params.n ? (int)(*next)++ : -1;
    if (at < 0) diag_add(c->cx, DIAG_arg_extra, a->span, p->name);
    return at;
  }
  for (uint32_t i = 0; i < p->params.n; i++)
    if (p->params.at[i].name == a->name) at = (int)i;
  if (at < 0 || a->kind == ARG_BINDER)
    diag_add(c->cx, DIAG_arg_unknown, a->name_span, p->name, a->name);
  else if (e->bound[at].value)
    diag_add(c->cx, DIAG_arg_twice, a->name_span, a->name);
  else return at;
  return -1;
}

static bool by_name(Check *c, Expr *e, const Decl *p, uint32_t i) {
  const Param *x = &p->params.at[i];
  Sym *s = scope_here(c->scope, x->name);
  if (s && s->kind == SY_LET) {
    Ty want = param_ty(c, e, p, x);
    if (s->ty.kind == TY_NONE) s->ty = want;
    s->nuses++;
    e->bound[i] = (Bound){.index = s, .by_name = true};
    if (bad(&s->ty) || same_shape(c, &s->ty, &want)) return true;
    diag_add(c->cx, DIAG_shape_mismatch, s->span, fe_shape_text(c, &s->ty),
             fe_shape_text(c, &want));
    return false;
  }
  e->bound[i].value = x->deflt;
  if (x->deflt) return true;
  Diag *d = diag_add(c->cx, DIAG_arg_missing, e->span, x->name, p->name);
  diag_note(c->cx, d, NOWHERE, "declare `input %s = ..` or pass it", x->name);
  return false;
}

static Ty results(Check *c, const Expr *e, const Decl *p) {
  Ty *elems = NEWN(c->a, Ty, p->outs.n + 1);
  for (uint32_t i = 0; i < p->outs.n; i++)
    elems[i] = param_ty(c, e, p, &p->outs.at[i]);
  if (p->outs.n == 1) return elems[0];
  return (Ty){.kind = TY_TUPLE, .nelems = p->outs.n, .elems = elems};
}

// Binds the parameters of program p in e; args may be fewer than needed.
static bool bind(Check *c, Expr *e, Decl *p, Arg *args, uint32_t n) {
  e->nbound = p->params.n;
  e->bound = NEWN(c->a, Bound, p->params.n + 1);
  if (!ck_decl(c, p) || !program_dims(c, e, p)) return false;
  uint32_t next = 0;
  bool ok = true;
  for (uint32_t i = 0; i < n; i++) {
    int at = param_for(c, e, p, &args[i], &next);
    if (at < 0) {
      ok = false;
      continue;
    }
    Ty want = param_ty(c, e, p, &p->params.at[at]);
    e->bound[at].value = args[i].value;
    ok = argument(c, args[i].value, &want, &p->params.at[at]) && ok;
  }
  for (uint32_t i = 0; i < p->params.n; i++)
    if (!e->bound[i].value) ok = by_name(c, e, p, i) && ok;
  return ok;
}

void ck_check_call(Check *c, Expr *e, Decl *p) {
  ck_fail(e);
  if (e->kind == EX_PIPE) {
    diag_add(c->cx, DIAG_check_form, e->span, "a call f(x, ..)");
    return;
  }
  if (bind(c, e, p, e->args.at, e->args.n)) e->ty = results(c, e, p);
}

// --- grad, online, direct --------------------------------------------------

// The program that an argument names; its inputs are bound by name.
static Decl *program_arg(Check *c, Expr *e) {
  Sym *s = NULL;
  if (e->kind == EX_NAME) s = ck_lookup(c, e->name, e->span);
  else if (e->kind == EX_MEMBER) s = ck_member(c, e);
  else diag_add(c->cx, DIAG_check_form, e->span, "the name of a program");
  e->sym = s;
  e->ty = (Ty){0};
  if (!s) return NULL;
  if (s->kind == SY_DECL && is_program(s->decl)) return s->decl;
  diag_add(c->cx, DIAG_schedule_program, e->span, s->name, ck_kind(s));
  return NULL;
}

static bool differentiable(Check *c, const Expr *x, const Decl *p, Ty *out) {
  for (uint32_t i = 0; i < p->params.n; i++) {
    const Param *q = &p->params.at[i];
    if (x->kind != EX_NAME || q->name != x->name) continue;
    *out = q->sym->ty;
    if (ty_is_float(&q->sym->ty) && q->qual != PQ_NOGRAD) return true;
    diag_add(c->cx, DIAG_grad_integer, x->span, q->name,
             q->qual == PQ_NOGRAD ? "it is nograd" : "it is not a float");
    return false;
  }
  diag_add(c->cx, DIAG_grad_input, x->span, p->name);
  return false;
}

static void gradient(Check *c, Expr *e) {
  Decl *p = program_arg(c, e->args.at[0].value);
  if (!p || !bind(c, e->args.at[0].value, p, NULL, 0)) return;
  uint32_t n = e->args.n - 1;
  Ty *elems = NEWN(c->a, Ty, n);
  bool ok = true;
  for (uint32_t i = 0; i < n; i++) {
    Expr *x = e->args.at[i + 1].value;
    ok = differentiable(c, x, p, &elems[i]) && ok;
    ck_expr(c, x);
    if (ok) elems[i] = x->ty;
  }
  if (!ok) return;
  e->ty =
      n == 1 ? elems[0] : (Ty){.kind = TY_TUPLE, .nelems = n, .elems = elems};
}

static void form_of(Check *c, Expr *e) {
  Expr *x = e->args.at[0].value;
  Decl *p = program_arg(c, x);
  if (!p || !bind(c, x, p, NULL, 0)) return;
  e->ty = results(c, x, p);
}

// --- generators ------------------------------------------------------------

// Whether the signature "normal(mean = 0, ..)" has that parameter.
static bool has_param(const char *sig, const char *name) {
  size_t n = strlen(name);
  for (const char *p = strchr(sig, '('); p; p = strchr(p + 1, ',')) {
    const char *at = p + 1;
    while (*at == ' ') at++;
    if (!strncmp(at, name, n) && strchr(" ,)", at[n])) return true;
  }
  return false;
}

static void generator(Check *c, Expr *e, const Builtin *b) {
  uint32_t plain = 0;
  bool ok = true;
  for (uint32_t i = 0; i < e->args.n; i++) {
    Arg *a = &e->args.at[i];
    plain += a->kind == ARG_POS;
    if (a->kind == ARG_BINDER ||
        (a->kind == ARG_NAMED && !has_param(b->sig, a->name))) {
      diag_add(c->cx, DIAG_arg_unknown, a->name_span, b->name, a->name);
      ok = false;
    }
    if (ck_single(c, a->value) && !a->value->ty.weak &&
        !ty_is_bool(&a->value->ty)) {
      diag_add(c->cx, DIAG_not_constant, a->value->span);
      ok = false;
    }
  }
  if (plain > b->max) {
    Diag *d = diag_add(c->cx, DIAG_arg_count, e->span, b->name, plain);
    diag_note(c->cx, d, NOWHERE, "use it as %s", b->sig);
    ok = false;
  }
  if (ok) e->ty = (Ty){.kind = TY_AUTO};
}

void ck_check_builtin(Check *c, Expr *e, Sym *sym) {
  const Builtin *b = &fe_builtins[sym->builtin];
  ck_fail(e);
  if (b->kind == BK_GEN && c->in_input) {
    generator(c, e, b);
    return;
  }
  bool here =
      b->kind == BK_CHECK && c->in_check && sym->builtin != BI_reference;
  if (!here || e->kind == EX_PIPE) {
    diag_add(c->cx, DIAG_check_only, e->span, b->name,
             b->kind == BK_GEN ? "`input`" : "`expect`");
    return;
  }
  if (e->args.n < b->min || (b->max != 255 && e->args.n > b->max)) {
    Diag *d = diag_add(c->cx, DIAG_arg_count, e->span, b->name, e->args.n);
    diag_note(c->cx, d, NOWHERE, "use it as %s", b->sig);
    return;
  }
  if (sym->builtin == BI_grad) gradient(c, e);
  else form_of(c, e);
}

// --- statements ------------------------------------------------------------

static Sym *declare(Check *c, SymKind kind, NameRef *n, Ty ty) {
  Sym *s = ck_sym(c, kind, n->name, n->span);
  s->ty = ty;
  n->sym = s;
  ck_declare(c, s);
  return s;
}

static void dims(Check *c, CheckStmt *s) {
  for (uint32_t i = 0; i < s->names.n; i++) {
    Expr *e = s->exprs.at[i];
    DType t;
    int64_t v;
    if (e->kind == EX_NAME &&
        dtype_by_name(e->name, (uint32_t)strlen(e->name), &t)) {
      e->ty = (Ty){.kind = TY_AUTO};
      declare(c, SY_DTYPE, &s->names.at[i], ty_scalar(t, false));
      continue;
    }
    if (!ck_const_int(c, e, &v)) v = 1;
    if (v < 0 || v > DIM_UNBOUNDED) {
      diag_add(c->cx, DIAG_dim_range, e->span, (long long)v);
      v = 1;
    }
    Sym *d = declare(c, SY_DIM, &s->names.at[i], ty_scalar(DT_I64, true));
    d->dim = dim_const(c->dims, v);
  }
}

static void input(Check *c, CheckStmt *s) {
  Expr *e = s->exprs.at[0];
  c->in_input = true;
  ck_expr(c, e);
  c->in_input = false;
  if (!bad(&e->ty) && e->ty.kind != TY_AUTO && !e->ty.weak)
    diag_add(c->cx, DIAG_check_form, e->span, "a generator or a number");
  for (uint32_t i = 0; i < s->names.n; i++) {
    Ty none = {.kind = bad(&e->ty) ? TY_ERROR : TY_NONE};
    declare(c, SY_LET, &s->names.at[i], none)->value = e;
  }
}

static bool is_reference(Check *c, Expr *e) {
  Sym *s = e->kind == EX_NAME ? scope_find(c->scope, e->name) : NULL;
  if (!s || s->kind != SY_BUILTIN || s->builtin != BI_reference) return false;
  e->sym = s;
  e->ty = (Ty){.kind = TY_AUTO};
  return true;
}

static bool same_results(const Check *c, const Ty *a, const Ty *b) {
  if (a->kind != b->kind) return false;
  if (a->kind == TY_VALUE) return same_shape(c, a, b) || !b->rank;
  if (a->nelems != b->nelems) return false;
  for (uint32_t i = 0; i < a->nelems; i++)
    if (!same_results(c, &a->elems[i], &b->elems[i])) return false;
  return true;
}

// What literals, their names and + - * / make; false: only a run tells.
static bool number(const Expr *e, double *v) {
  double a, b;
  const Sym *s = e->kind == EX_NAME ? e->sym : NULL;
  if (s && s->kind == SY_LET && s->value && !s->is_tuple)
    return number(s->value, v);
  if (e->kind == EX_INT) *v = (double)e->ival;
  else if (e->kind == EX_FLOAT) *v = e->fval;
  else if (e->kind == EX_INF) *v = (double)INFINITY;
  else if (e->kind == EX_UNARY && e->op == UO_NEG && number(e->a, &a)) *v = -a;
  else if (e->kind != EX_BINARY || !number(e->a, &a) || !number(e->b, &b))
    return false;
  else if (e->op == BO_ADD) *v = a + b;
  else if (e->op == BO_SUB) *v = a - b;
  else if (e->op == BO_MUL) *v = a * b;
  else if (e->op == BO_DIV) *v = a / b;
  else return false;
  return true;
}

static bool is_negative(const Expr *e) {
  double v;
  return number(e, &v) && !(v >= 0);
}

static void tolerance(Check *c, Expr *tol) {
  if (ck_single(c, tol) && (!tol->ty.weak || tol->ty.rank))
    diag_add(c->cx, DIAG_not_constant, tol->span);
  else if (is_negative(tol)) diag_add(c->cx, DIAG_tolerance, tol->span);
}

static void expectation(Check *c, CheckStmt *s) {
  ck_expr(c, s->got);
  bool reference = is_reference(c, s->want);
  if (!reference) ck_expr(c, s->want);
  const Ty *a = &s->got->ty, *b = &s->want->ty;
  bool call = (s->got->kind == EX_CALL || s->got->kind == EX_MEMBER);
  if (reference && !bad(a) && !call)
    diag_add(c->cx, DIAG_check_form, s->got->span, "a call f(x, ..)");
  if (!reference && !bad(a) && !bad(b) && !same_results(c, a, b))
    diag_add(c->cx, DIAG_shape_mismatch, s->want->span, ty_text(c, b),
             ty_text(c, a));
  tolerance(c, s->tol);
}

static void let(Check *c, CheckStmt *s) {
  Expr *e = s->exprs.at[0];
  ck_expr(c, e);
  Sym *x = declare(c, SY_LET, &s->names.at[0], e->ty);
  x->value = e;
}

static void unused(Check *c) {
  if (c->cx->nerrors) return;  // what they are for may not have been read
  for (uint32_t i = 0; i < c->scope->syms.n; i++) {
    const Sym *s = c->scope->syms.at[i];
    if (!s->nuses && s->kind != SY_DTYPE)
      diag_add(c->cx, DIAG_check_unused, s->span, s->name);
  }
}

void ck_check_block(Check *c, Decl *d) {
  c->in_check = true;
  c->scope = scope_new(c->a, c->top);
  for (uint32_t i = 0; i < d->checks.n; i++) {
    CheckStmt *s = &d->checks.at[i];
    switch (s->kind) {
    case CK_DIMS: dims(c, s); break;
    case CK_INPUT: input(c, s); break;
    case CK_EXPECT: expectation(c, s); break;
    case CK_LET: let(c, s); break;
    }
  }
  unused(c);
}
