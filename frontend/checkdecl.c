// Declarations: parameters, defaults, what is never used.
#include "frontend/checker.h"

// --- parameters ------------------------------------------------------------

static void index_param(Check *c, Decl *d, Param *p) {
  if (is_program(d) || d->kind == DE_ROW || d->kind == DE_FN) {
    diag_add(c->cx, DIAG_param_type, p->span, p->name, d->name);
    p->sym = ck_sym(c, SY_PARAM, p->name, p->name_span);
    p->sym->ty = ty_error();
    ck_declare(c, p->sym);
    return;
  }
  NameRef n = {p->name, p->name_span, NULL};
  p->sym = ck_new_index(c, &n, IX_PARAM, DIM_NONE);
}

static void row_param(Check *c, Decl *d, Param *p) {
  if (!p->type->row) return;
  if (d->kind != DE_ROW) diag_add(c->cx, DIAG_row_type, p->type->span);
  else p->sym->vary = index_bit(d->key);
}

static void typed_param(Check *c, Decl *d, Param *p, SymKind kind) {
  Ty t;
  if (!ck_type(c, p->type, &t)) t = ty_error();
  p->sym = ck_sym(c, kind, p->name, p->name_span);
  p->sym->ty = t;
  p->sym->ty.row = false;
  row_param(c, d, p);
  if (p->qual != PQ_NONE && !is_program(d))
    diag_add(c->cx, DIAG_param_qual, p->span,
             p->qual == PQ_INOUT ? "inout" : "nograd");
}

static void first_param(Check *c, const Decl *d) {
  if (d->kind != DE_MOD && d->kind != DE_ROW) return;
  const Param *p = d->params.n ? &d->params.at[0] : NULL;
  bool ok = p && p->type && (d->kind == DE_MOD || p->type->row);
  if (!ok)
    diag_add(c->cx, DIAG_first_param, p ? p->span : d->name_span, d->name,
             d->kind == DE_MOD ? "a typed one, the score" : "a `row`");
}

static void params(Check *c, Decl *d) {
  for (uint32_t i = 0; i < d->params.n; i++) {
    Param *p = &d->params.at[i];
    if (!p->type) index_param(c, d, p);
    else typed_param(c, d, p, SY_PARAM);
    p->sym->param = i;
  }
  for (uint32_t i = 0; i < d->outs.n; i++) {
    Param *p = &d->outs.at[i];
    if (!p->type) {
      index_param(c, d, p);
      p->sym->kind = SY_OUT;
    } else {
      typed_param(c, d, p, SY_OUT);
    }
    p->sym->param = i;
    if (p->deflt || p->qual != PQ_NONE)
      diag_add(c->cx, DIAG_param_qual, p->span,
               p->deflt ? "a default" : "nograd or inout");
  }
  first_param(c, d);
}

// Parameters become visible after all types are read: a dim may be named like
// a later parameter only by mistake.
static void declare_params(Check *c, Decl *d) {
  for (uint32_t i = 0; i < d->params.n; i++)
    if (d->params.at[i].type) ck_declare(c, d->params.at[i].sym);
  for (uint32_t i = 0; i < d->outs.n; i++)
    if (d->outs.at[i].type) ck_declare(c, d->outs.at[i].sym);
}

// A default may name dims and constants only.
static const Expr *not_constant(const Expr *e) {
  if (e->kind == EX_NAME && e->sym &&
      (e->sym->kind == SY_PARAM || e->sym->kind == SY_INDEX ||
       e->sym->kind == SY_OUT))
    return e;
  const Expr *kids[] = {e->a, e->b, e->c}, *found = NULL;
  for (int i = 0; i < 3 && !found; i++)
    if (kids[i]) found = not_constant(kids[i]);
  for (uint32_t i = 0; i < e->args.n && !found; i++)
    found = not_constant(e->args.at[i].value);
  for (uint32_t i = 0; i < e->list.n && !found; i++)
    found = not_constant(e->list.at[i]);
  return found;
}

static void default_of(Check *c, Param *p) {
  if (!ck_single(c, p->deflt) || bad(&p->sym->ty)) return;
  const Expr *odd = not_constant(p->deflt);
  if (odd || p->deflt->vary || p->deflt->ty.rank || p->sym->ty.rank) {
    diag_add(c->cx, DIAG_default_constant, odd ? odd->span : p->deflt->span,
             p->name);
    return;
  }
  ck_fits(c, p->deflt, &p->sym->ty, true, p->name);
}

static void defaults(Check *c, Decl *d) {
  for (uint32_t i = 0; i < d->params.n; i++) {
    Param *p = &d->params.at[i];
    if (p->deflt && p->type) default_of(c, p);
  }
}

// --- unused and misspelled names -------------------------------------------

bool fe_dim_in_types(const Decl *d, uint32_t sym) {
  for (uint32_t i = 0; i < d->params.n + d->outs.n; i++) {
    const Param *p =
        i < d->params.n ? &d->params.at[i] : &d->outs.at[i - d->params.n];
    if (!p->sym) continue;
    for (int k = 0; k < p->sym->ty.rank; k++)
      if (dim_uses(d->dims, p->sym->ty.shape[k], sym)) return true;
    if (p->layout && p->layout->page != DIM_NONE &&
        dim_uses(d->dims, p->layout->page, sym))
      return true;
  }
  return false;
}

static void unused_dims(Check *c, const Decl *d) {
  for (uint32_t i = 0; i < d->generics.n; i++) {
    const Generic *g = &d->generics.at[i];
    uint32_t sym;
    if (g->kind == GEN_DTYPE || !dim_find_sym(d->dims, g->name, &sym)) continue;
    bool used = g->kind == GEN_CONST && g->sym->nuses;
    if (fe_dim_in_types(d, sym) || (used && g->values.n < 2)) continue;
    Diag *x = diag_add(c->cx, DIAG_unused_dim, g->span, g->name);
    if (used)
      diag_note(c->cx, x, NOWHERE, "code for one of its values: --dim %s=N",
                g->name);
    else if (g->sym->nuses)
      diag_note(c->cx, x, NOWHERE,
                "make it a scalar: take it out of <..> and add a parameter, "
                "`%s: i32`",
                g->name);
  }
}

static bool is_generic(const Decl *d, const char *name) {
  for (uint32_t i = 0; i < d->generics.n; i++)
    if (d->generics.at[i].name == name) return true;
  return false;
}

// A dim that is not in <..>, stands in the types once and looks like another.
static void strange_dims(Check *c, const Decl *d) {
  for (uint32_t i = 0; i < c->scope->syms.n; i++) {
    const Sym *s = c->scope->syms.at[i];
    if (s->kind != SY_DIM || is_generic(d, s->name) || s->nuses > 1) continue;
    Guess g = guess_start(s->name);
    for (uint32_t k = 0; k < d->generics.n; k++)
      guess_try(&g, d->generics.at[k].name);
    if (!g.best) continue;
    Diag *w = diag_add(c->cx, DIAG_undeclared_dim, s->span, s->name, g.best);
    diag_fix(c->cx, w, s->span, g.best, "use %s", g.best);
  }
}

static void unused_params(Check *c, const Decl *d) {
  if (c->cx->nerrors != c->errors) return;
  for (uint32_t i = 0; i < d->params.n; i++) {
    const Param *p = &d->params.at[i];
    if (!p->type || p->sym->nuses || p->name[0] == '_') continue;
    diag_add(c->cx, DIAG_unused_param, p->name_span, p->name);
  }
}

// --- whole declarations ----------------------------------------------------

static void signature(Check *c, Decl *d) {
  if (d->kind == DE_ROW) {
    Sym *key =
        ck_sym(c, SY_INDEX, intern(&c->cx->names, "(key)"), d->name_span);
    key->ty = ty_scalar(DT_I64, false);
    key->role = IX_KEY;
    key->vary = 1;
    vec_push(c->a, &d->indices, key);
    d->key = key;
  }
  ck_generics(c, d);
  params(c, d);
  strange_dims(c, d);
  declare_params(c, d);
  ck_where(c, d);
  defaults(c, d);
  ck_layouts(c, d);
  ck_attrs(c, d);
}

// What many are told of would be said of each.
static bool too_many(Check *c, const Decl *d) {
  const struct {
    uint32_t n;
    int most;
    const char *what;
  } all[] = {{d->generics.n, MAX_GENERICS, "dims"},
             {d->params.n, MAX_PARAMS, "parameters"},
             {d->outs.n, MAX_PARAMS, "outputs"}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (all[i].n <= (uint32_t)all[i].most) continue;
    diag_add(c->cx, DIAG_too_many, d->name_span, d->name, all[i].most,
             all[i].what);
    return true;
  }
  return false;
}

static void code(Check *c, Decl *d) {
  if (too_many(c, d)) return;
  d->indices.n = 0;
  d->results.n = 0;
  d->needs.n = 0;
  c->roles_unsure = false;
  signature(c, d);
  if (is_program(d)) ck_program_body(c, d);
  else ck_function_body(c, d);
  unused_dims(c, d);
  unused_params(c, d);
  bool imported = c->ses->open.n > 1;
  if (c->cx->nerrors == c->errors && !imported) ck_normalizers(c, d);
}

static void constant(Check *c, Decl *d) {
  d->sym->value = d->value;
  d->sym->ty = ty_error();
  if (!ck_single(c, d->value)) return;
  if (d->value->ty.rank) return;
  d->sym->ty = d->value->ty;
  d->sym->dim = fe_dim_of(d, d->value);
  d->sym->facts = ck_facts(d->value);
}

static bool recursive(Check *c, const Decl *d) {
  const Session *s = c->ses;
  for (uint32_t i = 0; i < s->decls.n; i++)
    if (s->decls.at[i] == d) return true;
  return false;
}

// The dtype generics of d take each combination in turn, the first one last:
// its annotations stay.
static uint32_t dtype_choices(const Decl *d) {
  uint64_t n = 1;
  for (uint32_t i = 0; i < d->generics.n; i++) {
    const Generic *g = &d->generics.at[i];
    if (g->kind == GEN_DTYPE && g->dtypes.n) n *= g->dtypes.n;
    if (n > 256) return 256;
  }
  return (uint32_t)n;
}

static uint32_t choose_dtypes(const Decl *d, uint32_t choice, FeBind *out) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < d->generics.n; i++) {
    const Generic *g = &d->generics.at[i];
    if (g->kind != GEN_DTYPE || !g->dtypes.n) continue;
    out[n++] = (FeBind){g->name, 0, g->dtypes.at[choice % g->dtypes.n]};
    choice /= g->dtypes.n;
  }
  return n;
}

static void each_dtype(Check *c, Decl *d) {
  FeBind *binds = NEWN(c->a, FeBind, d->generics.n + 1);
  Scope *outer = c->scope;
  for (uint32_t i = dtype_choices(d); i-- > 0;) {
    uint32_t diags = c->cx->diags.n;
    c->binds = binds;
    c->nbinds = choose_dtypes(d, i, binds);
    c->scope = scope_new(c->a, outer);
    c->stepped = c->in_body = false;
    c->returned = NULL;
    code(c, d);
    c->scope = outer;
    if (c->cx->nerrors != c->errors) return;
    if (i) c->cx->diags.n = diags;  // warnings come with the last round
  }
}

static void run(Check *c, Decl *d) {
  switch (d->kind) {
  case DE_LET: constant(c, d); break;
  case DE_SCHEDULE: ck_schedule(c, d); break;
  case DE_CHECK: ck_check_block(c, d); break;
  default: each_dtype(c, d); break;
  }
}

// A fresh state for d in the unit of c.
static Check enter(Check *c, Decl *d) {
  Check k = {.cx = c->cx,
             .a = c->a,
             .ses = c->ses,
             .unit = c->unit,
             .top = c->top,
             .decl = d,
             .errors = c->cx->nerrors};
  if (!d->dims) {
    d->dims = NEW(c->a, DimTab);
    dim_init(d->dims, c->a);
  }
  k.dims = d->dims;
  k.scope = c->top;
  return k;
}

bool ck_decl(Check *c, Decl *d) {
  if (d->checked) return !d->failed;
  if (recursive(c, d)) {
    diag_add(c->cx, DIAG_recursion, d->name_span, d->name);
    return false;
  }
  if (c->ses->decls.n >= MAX_CALLS) {
    diag_add(c->cx, DIAG_too_deep, d->name_span, MAX_CALLS);
    return false;
  }
  vec_push(c->a, &c->ses->decls, d);
  Check k = enter(c, d);
  run(&k, d);
  d->checked = true;
  d->failed = k.cx->nerrors != k.errors;
  if (is_function(d) && !d->failed) d->sym->facts = ck_function_facts(d);
  c->ses->decls.n--;
  return !d->failed;
}

bool fe_retype(Ctx *cx, Decl *prog, const FeBind *binds, uint32_t nbinds) {
  Session ses = {.cx = cx, .builtins = scope_builtins(cx)};
  Check c = {.cx = cx, .a = &cx->session, .ses = &ses, .unit = prog->unit};
  c.top = ck_unit_scope(&c, prog->unit, false);
  Check k = enter(&c, prog);
  uint32_t diags = cx->diags.n;
  k.binds = binds;
  k.nbinds = nbinds;
  k.scope = scope_new(k.a, c.top);
  code(&k, prog);
  if (cx->nerrors != k.errors) return false;
  cx->diags.n = diags;
  return true;
}
