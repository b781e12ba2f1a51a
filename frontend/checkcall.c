// Calls of mask, mod, row and fn: how arguments reach parameters.
//
//   causal                  q and k are bound by name from the scope
//   causal(off = Sk - Sq)   the same, off is given
//   causal(q, c)            a bare index name binds the next index parameter
//   causal(k = 16 * c)      other index expressions only by name
//   s |> softcap(cap)       the piped value is the first typed argument
#include "frontend/checker.h"

typedef struct Call {
  Check *c;
  Expr *e;
  Decl *callee;
  Sym *key;       // index that the row binds
  uint64_t vary;  // of all arguments
  bool ok;
} Call;

static bool taken(const Bound *b) {
  return b->value || b->index;
}

// First parameter without argument; indices or typed ones. -1: none.
static int next_param(const Call *k, bool index) {
  for (uint32_t i = 0; i < k->callee->params.n; i++)
    if (!k->callee->params.at[i].type == index && !taken(&k->e->bound[i]))
      return (int)i;
  return -1;
}

static void give(Call *k, int i, Expr *value) {
  Bound *b = &k->e->bound[i];
  const Param *p = &k->callee->params.at[i];
  b->value = value;
  if (!ck_single(k->c, value)) {
    k->ok = false;
    return;
  }
  if (p->type || (ty_is_int(&value->ty) && !value->ty.rank)) return;
  diag_add(k->c->cx, DIAG_index_type, value->span, ty_text(k->c, &value->ty));
  k->ok = false;
}

static void give_index(Call *k, int i, Expr *name, Sym *index) {
  k->e->bound[i].index = index;
  ck_single(k->c, name);
}

static void too_many(Call *k, Span at) {
  diag_add(k->c->cx, DIAG_arg_extra, at, k->callee->name);
  k->ok = false;
}

static void positional(Call *k, Expr *value) {
  Sym *index = ck_bare_index(k->c, value);
  int i = index ? next_param(k, true) : -1;
  if (i >= 0) {
    give_index(k, i, value, index);
    return;
  }
  i = next_param(k, false);
  if (i >= 0) give(k, i, value);
  else too_many(k, value->span);
}

static int find_param(const Decl *d, const char *name) {
  for (uint32_t i = 0; i < d->params.n; i++)
    if (d->params.at[i].name == name) return (int)i;
  return -1;
}

static const char *parameters(const Call *k) {
  Buf b = {.arena = k->c->a};
  for (uint32_t i = 0; i < k->callee->params.n; i++)
    buf_printf(&b, "%s'%s'", i ? ", " : "", k->callee->params.at[i].name);
  return b.n ? b.at : "none";
}

static void named(Call *k, Arg *a) {
  int i = find_param(k->callee, a->name);
  if (i < 0) {
    Diag *d = diag_add(k->c->cx, DIAG_arg_unknown, a->name_span,
                       k->callee->name, a->name);
    Guess g = guess_start(a->name);
    for (uint32_t j = 0; j < k->callee->params.n; j++)
      guess_try(&g, k->callee->params.at[j].name);
    if (g.best)
      diag_fix(k->c->cx, d, a->name_span, g.best, "did you mean '%s'?", g.best);
    else
      diag_note(k->c->cx, d, k->callee->name_span, "its parameters are %s",
                parameters(k));
    k->ok = false;
  } else if (taken(&k->e->bound[i])) {
    diag_add(k->c->cx, DIAG_arg_twice, a->name_span, a->name);
    k->ok = false;
  } else {
    Sym *index = ck_bare_index(k->c, a->value);
    if (index && !k->callee->params.at[i].type)
      give_index(k, i, a->value, index);
    else give(k, i, a->value);
  }
}

// softmax(k: s) names the key.
static void with_binder(Call *k, Arg *a) {
  Sym *s = scope_find(k->c->scope, a->name);
  if (k->callee->kind != DE_ROW || !s || s->kind != SY_INDEX) {
    diag_add(k->c->cx, DIAG_bad_binder, a->name_span, a->name, k->callee->name);
    k->ok = false;
    return;
  }
  s->nuses++;
  k->key = s;
  positional(k, a->value);
}

static void bind_args(Call *k) {
  if (k->e->kind == EX_PIPE) {
    int i = next_param(k, false);
    if (i >= 0) give(k, i, k->e->a);
    else too_many(k, k->e->a->span);
  }
  for (uint32_t i = 0; i < k->e->args.n; i++) {
    Arg *a = &k->e->args.at[i];
    if (a->kind == ARG_NAMED) named(k, a);
    else if (a->kind == ARG_BINDER) with_binder(k, a);
    else positional(k, a->value);
  }
}

// In the domain of an index: what the parameter may be. Where that index is
// itself one of the parameters, the other is the query, of which a program of
// one query has none; it stands at the last key.
static const char *meant_index(const Call *k, const Param *p) {
  const Sym *x = k->c->declaring;
  if (!x) return NULL;
  int own = find_param(k->callee, x->name);
  bool is_own = own >= 0 && !k->callee->params.at[own].type;
  if (!is_own) return arena_printf(k->c->a, "%s = %s", p->name, x->name);
  if (x->dim == DIM_NONE) return NULL;
  return arena_printf(k->c->a, "%s = %s - 1", p->name, dim_text(k->c, x->dim));
}

static void offer_index(const Call *k, Diag *d, const Param *p) {
  Check *c = k->c;
  const char *arg = meant_index(k, p), *text = fe_span_text(c, k->e->span);
  const char *open = strchr(text, '(');
  diag_note(c->cx, d, NOWHERE,
            "declare `index %s in ..`, or give the call its place, `%s = ..`",
            p->name, p->name);
  if (!arg || k->e->kind == EX_PIPE) return;
  int n = open ? (int)(open - text) : (int)strlen(text);
  const char *rest = open ? open + 1 : ")";
  while (*rest == ' ') rest++;
  diag_fix(c->cx, d, k->e->span,
           arena_printf(c->a, "%.*s(%s%s%s", n, text, arg,
                        *rest == ')' ? "" : ", ", rest),
           "give it: %s", arg);
}

static void default_index(Call *k, int i) {
  const Param *p = &k->callee->params.at[i];
  Sym *s = scope_find(k->c->scope, p->name);
  if (s && s->kind == SY_INDEX) {
    s->nuses++;
    k->e->bound[i] = (Bound){.index = s, .by_name = true};
    return;
  }
  Diag *d = diag_add(k->c->cx, DIAG_index_unbound, k->e->span, p->name,
                     k->callee->name, p->name);
  diag_note(k->c->cx, d, p->name_span, "the index parameter");
  offer_index(k, d, p);
  k->ok = false;
}

static void defaults(Call *k) {
  for (uint32_t i = 0; i < k->callee->params.n; i++) {
    const Param *p = &k->callee->params.at[i];
    if (taken(&k->e->bound[i])) continue;
    if (!p->type) {
      default_index(k, (int)i);
    } else if (p->deflt) {
      k->e->bound[i].value = p->deflt;
    } else {
      Diag *d = diag_add(k->c->cx, DIAG_arg_missing, k->e->span, p->name,
                         k->callee->name);
      diag_note(k->c->cx, d, p->span, "the parameter");
      k->ok = false;
    }
  }
}

// Types and the set of indices the arguments vary with.
static void convert(Call *k) {
  for (uint32_t i = 0; i < k->callee->params.n; i++) {
    const Param *p = &k->callee->params.at[i];
    const Bound *b = &k->e->bound[i];
    if (b->index) k->vary |= index_bit(b->index);
    if (!b->value || b->value == p->deflt) continue;
    k->vary |= b->value->vary;
    if (!p->type || !p->sym) continue;
    const char *what = arena_printf(k->c->a, "parameter '%s'", p->name);
    k->ok = ck_fits(k->c, b->value, &p->sym->ty, false, what) && k->ok;
  }
}

// --- the key of a row ------------------------------------------------------

static uint64_t row_args_vary(const Call *k, bool rows) {
  uint64_t v = 0;
  for (uint32_t i = 0; i < k->callee->params.n; i++) {
    const Param *p = &k->callee->params.at[i];
    const Bound *b = &k->e->bound[i];
    if (p->type && p->type->row == rows && b->value && b->value != p->deflt)
      v |= b->value->vary;
  }
  return v;
}

static bool scalar_args(Call *k) {
  bool ok = true;
  for (uint32_t i = 0; i < k->callee->params.n; i++) {
    const Param *p = &k->callee->params.at[i];
    const Bound *b = &k->e->bound[i];
    if (!p->type || p->type->row || !b->value || b->value == p->deflt) continue;
    if (!(b->value->vary & index_bit(k->key))) continue;
    diag_add(k->c->cx, DIAG_row_scalar_arg, b->value->span, p->name,
             k->callee->name, k->key->name);
    ok = false;
  }
  return ok;
}

static void find_key(Call *k) {
  if (!k->key)
    k->key =
        ck_find_binder(k->c, k->e, row_args_vary(k, true), k->callee->name);
  if (!k->key || !ck_may_bind(k->c, k->e, k->key) || !scalar_args(k)) {
    k->ok = false;
    return;
  }
  k->e->binder = k->key;
}

// --- results ---------------------------------------------------------------

static Ty here(Call *k, const Ty *t) {
  Ty r = *t;
  for (int i = 0; i < r.rank; i++)
    r.shape[i] =
        dim_subst(k->callee->dims, k->c->dims, t->shape[i], k->e->dims);
  return r;
}

static void results(Call *k) {
  const Decl *d = k->callee;
  Expr *e = k->e;
  e->vary = k->vary;
  if (k->key)
    e->vary = (k->vary | ck_domain_vary(k->c, k->key)) & ~index_bit(k->key);
  if (d->results.n == 1) {
    e->ty = here(k, &d->results.at[0]);
    if (e->ty.row) e->vary |= index_bit(k->key);
    e->ty.row = false;
    return;
  }
  e->ty = (Ty){.kind = TY_TUPLE, .nelems = d->results.n};
  e->ty.elems = NEWN(k->c->a, Ty, d->results.n);
  for (uint32_t i = 0; i < d->results.n; i++) {
    e->ty.elems[i] = here(k, &d->results.at[i]);
    if (e->ty.elems[i].row) e->vary |= index_bit(k->key);
  }
}

void ck_bind(Check *c, Expr *e, Decl *callee) {
  Call k = {.c = c, .e = e, .callee = callee, .ok = true};
  e->nbound = callee->params.n;
  e->bound = NEWN(c->a, Bound, callee->params.n + 1);
  e->binder = NULL;
  uint32_t before = c->cx->nerrors;
  bind_args(&k);
  if (k.ok) defaults(&k);
  if (k.ok) convert(&k);
  bool sound = ck_decl(c, callee) && callee->results.n;
  if (k.ok && sound)
    k.ok = ck_solve(c, e, callee) && ck_call_extents(c, e, callee);
  if (k.ok && sound && callee->kind == DE_ROW) find_key(&k);
  if (k.ok && sound) results(&k);
  else ck_fail(e);
  if (!k.ok && c->cx->nerrors == before && sound) ck_fail(e);
}

void ck_named_call(Check *c, Expr *e, Sym *sym) {
  if (sym->decl->kind == DE_MASK) {
    if (ck_decl(c, sym->decl)) ck_bind(c, e, sym->decl);
    else ck_fail(e);
    return;
  }
  diag_add(c->cx, DIAG_not_value, e->span, sym->name, ck_kind(sym));
  ck_fail(e);
}

// --- callee ----------------------------------------------------------------

static Sym *callee_sym(Check *c, Expr *callee) {
  if (callee->kind == EX_NAME)
    callee->sym = ck_lookup(c, callee->name, callee->span);
  else if (callee->kind == EX_MEMBER) callee->sym = ck_member(c, callee);
  else {
    diag_add(c->cx, DIAG_not_function, callee->span, "this expression",
             "a value");
    return NULL;
  }
  callee->ty = (Ty){0};  // a function has no type
  return callee->sym;
}

// Checks arguments whose callee is unknown, so that their names count as used
// and their own errors are seen.
static void check_args_only(Check *c, Expr *e) {
  if (e->kind == EX_PIPE) ck_expr(c, e->a);
  for (uint32_t i = 0; i < e->args.n; i++) ck_expr(c, e->args.at[i].value);
}

static void call_of_decl(Check *c, Expr *e, Sym *s) {
  if (is_program(s->decl) && c->in_check) {
    ck_check_call(c, e, s->decl);
  } else if (is_program(s->decl)) {
    diag_add(c->cx, DIAG_call_program, e->span, s->name);
    ck_fail(e);
  } else if (ck_decl(c, s->decl)) {
    ck_bind(c, e, s->decl);
  } else {
    check_args_only(c, e);
    ck_fail(e);
  }
}

void ck_call(Check *c, Expr *e) {
  Expr *callee = e->kind == EX_PIPE ? e->b : e->a;
  ck_fail(e);
  e->sym = callee_sym(c, callee);
  if (!e->sym) {
    check_args_only(c, e);
  } else if (e->sym->kind == SY_BUILTIN) {
    ck_builtin(c, e, e->sym);
  } else if (e->sym->kind == SY_DECL &&
             (is_function(e->sym->decl) || is_program(e->sym->decl))) {
    call_of_decl(c, e, e->sym);
  } else {
    bool silent = e->sym->kind == SY_LET && bad(&e->sym->ty);
    if (!silent)
      diag_add(c->cx, DIAG_not_function, callee->span,
               arena_printf(c->a, "'%s'", e->sym->name), ck_kind(e->sym));
    check_args_only(c, e);
  }
}
