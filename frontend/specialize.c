// Programs of a unit, and the combinations of const dims and dtypes that a
// program is compiled for.
#include "frontend/checker.h"

uint32_t fe_programs(const Unit *unit, Decl **out, uint32_t max) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < unit->decls.n; i++) {
    if (!is_program(unit->decls.at[i])) continue;
    if (n < max) out[n] = unit->decls.at[i];
    n++;
  }
  return n < max ? n : max;
}

Decl *fe_program(const Unit *unit, const char *name) {
  for (uint32_t i = 0; i < unit->decls.n; i++) {
    Decl *d = unit->decls.at[i];
    if (is_program(d) && !strcmp(d->name, name)) return d;
  }
  return NULL;
}

void fe_bad_dim(Ctx *cx, Span at, const DimSym *s, int64_t v) {
  Diag *d = diag_add(cx, DIAG_dim_value, at, s->name, (long long)v);
  bool closed = s->values.n && !s->open;
  Buf set = {.arena = &cx->session};
  for (uint32_t i = 0; closed && i < s->values.n; i++)
    buf_printf(&set, "%s%lld", i ? ", " : "", (long long)s->values.at[i]);
  if (closed)
    diag_note(cx, d, NOWHERE, "it must be %s%s",
              s->values.n > 1 ? "one of " : "", set.at);
  else if (s->hi < DIM_UNBOUNDED)
    diag_note(cx, d, NOWHERE, "it must be in %lld .. %lld", (long long)s->lo,
              (long long)s->hi);
  else if (s->lo > 0)
    diag_note(cx, d, NOWHERE, "it must be at least %lld", (long long)s->lo);
  if (!closed && s->divisor > 1)
    diag_note(cx, d, NOWHERE, "it must be a multiple of %lld",
              (long long)s->divisor);
}

// --- constraints -----------------------------------------------------------

typedef struct Values {
  const Decl *decl;
  const int64_t *sym;
  const bool *known;
} Values;

static bool eval(const Values *v, const Expr *e, int64_t *out);

// The tree is evaluated, not its Dim: facts learned from this very constraint
// would fold it away.
static bool integer_name(const Values *v, const Expr *e, int64_t *out) {
  const Sym *s = e->sym;
  if (s && s->kind == SY_LET && s->decl && s->dim != DIM_NONE)
    return dim_is_const(s->decl->dims, s->dim, out);
  if (!s || s->kind != SY_DIM) return false;
  const DimExpr *x = &v->decl->dims->exprs.at[s->dim];
  if (x->op != DIM_SYM || !v->known[x->value]) return false;
  *out = v->sym[x->value];
  return true;
}

static bool arithmetic(BinOp op, int64_t a, int64_t b, int64_t *out) {
  switch (op) {
  case BO_ADD: return !__builtin_add_overflow(a, b, out);
  case BO_SUB: return !__builtin_sub_overflow(a, b, out);
  case BO_MUL: return !__builtin_mul_overflow(a, b, out);
  case BO_FLOORDIV:
  case BO_MOD: {
    if (b <= 0) return false;
    int64_t q = dim_floordiv(a, b);
    *out = op == BO_MOD ? a - q * b : q;
    return true;
  }
  default: return false;
  }
}

static bool integer(const Values *v, const Expr *e, int64_t *out) {
  int64_t a, b;
  switch (e->kind) {
  case EX_INT: *out = e->ival; return true;
  case EX_NAME: return integer_name(v, e, out);
  case EX_UNARY: return eval(v, e->a, &a) && !__builtin_sub_overflow(0, a, out);
  case EX_BINARY:
    return eval(v, e->a, &a) && eval(v, e->b, &b) &&
           arithmetic((BinOp)e->op, a, b, out);
  case EX_CALL:
    if (!e->elementwise || !eval(v, e->args.at[0].value, out)) return false;
    for (uint32_t i = 1; i < e->args.n; i++) {
      if (!eval(v, e->args.at[i].value, &a)) return false;
      if ((e->sym->builtin == BI_min) == (a < *out)) *out = a;
    }
    return true;
  default: return false;
  }
}

static bool relation(BinOp op, int64_t a, int64_t b) {
  switch (op) {
  case BO_LT: return a < b;
  case BO_GT: return a > b;
  case BO_LE: return a <= b;
  case BO_GE: return a >= b;
  case BO_EQ: return a == b;
  default: return a != b;
  }
}

// `&` and `|` may be decided by one side.
static bool logic(const Values *v, const Expr *e, int64_t *out) {
  int64_t a, b;
  bool ka = eval(v, e->a, &a), kb = eval(v, e->b, &b);
  bool is_and = e->op == BO_AND;
  if ((ka && !a == is_and) || (kb && !b == is_and)) {
    *out = !is_and;
    return true;
  }
  *out = is_and;
  return ka && kb;
}

static bool eval(const Values *v, const Expr *e, int64_t *out) {
  int64_t a, b;
  if (!ty_is_bool(&e->ty)) return integer(v, e, out);
  if (e->kind == EX_BOOL) *out = e->ival;
  if (e->kind == EX_BOOL) return true;
  if (e->kind == EX_UNARY) {
    if (!eval(v, e->a, &a)) return false;
    *out = !a;
    return true;
  }
  if (e->kind == EX_BINARY) {
    if (e->op == BO_AND || e->op == BO_OR) return logic(v, e, out);
    if (!eval(v, e->a, &a) || !eval(v, e->b, &b)) return false;
    *out = relation((BinOp)e->op, a, b);
    return true;
  }
  if (e->kind != EX_CHAIN) return false;
  *out = 1;
  for (uint32_t i = 0; i < e->ops.n; i++) {
    if (!eval(v, e->list.at[i], &a) || !eval(v, e->list.at[i + 1], &b))
      return false;
    *out &= relation(e->ops.at[i], a, b);
  }
  return true;
}

bool ck_constraint(const Decl *d, const Expr *e, const int64_t *sym,
                   const bool *known, int64_t *v) {
  Values values = {d, sym, known};
  return eval(&values, e, v);
}

// --- combinations ----------------------------------------------------------

typedef struct Spec {
  Ctx *cx;
  const Decl *decl;
  const FeBind *fixed;
  uint32_t nfixed;
  const Generic **free;  // generics to choose, in order
  uint32_t nfree;
  uint32_t width;  // nfree + fixed dims that are not const
  int64_t *sym;
  bool *known;
  FeBind *out;  // n rows of width binds
  uint32_t n, cap;
  FeBind *row;     // being built
  uint32_t tried;  // rows, `where` or not
  bool full;
} Spec;

enum { MAX_SPECIALIZATIONS = 4096, MAX_CHOICES = 1 << 20 };

static const FeBind *fixed_as(const Spec *s, const char *name) {
  for (uint32_t i = 0; i < s->nfixed; i++)
    if (!strcmp(s->fixed[i].name, name)) return &s->fixed[i];
  return NULL;
}

static bool allowed(const Spec *s) {
  for (uint32_t i = 0; i < s->decl->where.n; i++) {
    int64_t v;
    if (ck_constraint(s->decl, s->decl->where.at[i], s->sym, s->known, &v) &&
        !v)
      return false;
  }
  return true;
}

static void emit(Spec *s) {
  s->full |= s->n == MAX_SPECIALIZATIONS || s->tried++ == MAX_CHOICES;
  if (s->full || !allowed(s)) return;
  if (s->n == s->cap) {
    uint32_t cap = s->cap ? s->cap * 2 : 8;
    FeBind *more = NEWN(&s->cx->session, FeBind, cap * (s->width + 1));
    if (s->n) memcpy(more, s->out, sizeof *more * s->n * s->width);
    s->out = more;
    s->cap = cap;
  }
  memcpy(s->out + (size_t)s->n * s->width, s->row, sizeof *s->row * s->width);
  s->n++;
}

static void choose(Spec *s, uint32_t i);

static void choose_dim(Spec *s, uint32_t i, uint32_t sym, int64_t v) {
  s->row[i] = (FeBind){s->free[i]->name, v, DT_NONE};
  s->sym[sym] = v;
  s->known[sym] = true;
  choose(s, i + 1);
  s->known[sym] = false;
}

static void choose_dtype(Spec *s, uint32_t i, DType t) {
  s->row[i] = (FeBind){s->free[i]->name, 0, t};
  choose(s, i + 1);
}

static void choose(Spec *s, uint32_t i) {
  if (s->full) return;
  if (i == s->nfree) {
    emit(s);
    return;
  }
  const Generic *g = s->free[i];
  const FeBind *f = fixed_as(s, g->name);
  if (g->kind == GEN_DTYPE) {
    for (uint32_t k = 0; k < g->dtypes.n; k++)
      if (!f || f->dtype == g->dtypes.at[k])
        choose_dtype(s, i, g->dtypes.at[k]);
    return;
  }
  uint32_t sym;
  if (!dim_find_sym(s->decl->dims, g->name, &sym)) return;
  const DimSym *d = &s->decl->dims->syms.at[sym];
  if (f && dim_takes(d, f->value)) choose_dim(s, i, sym, f->value);
  for (uint32_t k = 0; !f && k < d->values.n; k++)
    choose_dim(s, i, sym, d->values.at[k]);
}

static void no_such_dim(const Spec *s, const char *name) {
  const DimTab *t = s->decl->dims;
  Diag *d = diag_add(s->cx, DIAG_no_such_dim, s->decl->name_span, s->decl->name,
                     name);
  for (uint32_t k = 0; k < s->decl->params.n; k++)
    if (!strcmp(s->decl->params.at[k].name, name))
      diag_note(s->cx, d, s->decl->params.at[k].name_span,
                "it is a parameter: a call gives its value");
  Guess g = guess_start(name);
  for (uint32_t k = 0; k < t->syms.n; k++) guess_try(&g, t->syms.at[k].name);
  if (g.best) diag_note(s->cx, d, NOWHERE, "did you mean '%s'?", g.best);
}

// Dims that are fixed but not const: taken as given. False if reported.
static bool take_fixed(Spec *s) {
  const DimTab *t = s->decl->dims;
  bool ok = true;
  for (uint32_t i = 0; i < s->nfixed; i++) {
    uint32_t sym;
    const FeBind *f = &s->fixed[i];
    if (f->dtype != DT_NONE) continue;
    if (!dim_find_sym(t, intern(&s->cx->names, f->name), &sym)) {
      no_such_dim(s, f->name);
      ok = false;
      continue;
    }
    const DimSym *d = &t->syms.at[sym];
    if (d->kind == DIM_SPEC) continue;
    if (f->value < d->lo || f->value > d->hi) {
      fe_bad_dim(s->cx, s->decl->name_span, d, f->value);
      ok = false;
      continue;
    }
    s->sym[sym] = f->value;
    s->known[sym] = true;
    s->row[s->width++] = (FeBind){d->name, f->value, DT_NONE};
  }
  return ok;
}

static void no_choice(const Spec *s) {
  for (uint32_t i = 0; i < s->decl->generics.n; i++) {
    const Generic *g = &s->decl->generics.at[i];
    const FeBind *f = fixed_as(s, g->name);
    uint32_t sym;
    if (g->kind != GEN_CONST || !dim_find_sym(s->decl->dims, g->name, &sym))
      continue;
    if (!f && !g->values.n)
      diag_add(s->cx, DIAG_dim_needed, g->span, g->name, g->name);
    else if (f && !dim_takes(&s->decl->dims->syms.at[sym], f->value))
      fe_bad_dim(s->cx, g->span, &s->decl->dims->syms.at[sym], f->value);
    else continue;
    return;
  }
  diag_add(s->cx, DIAG_where_false, s->decl->name_span, s->decl->name);
}

static void too_many(Spec *s) {
  Diag *d = diag_add(s->cx, DIAG_too_many, s->decl->name_span, s->decl->name,
                     MAX_SPECIALIZATIONS, "specializations");
  diag_note(s->cx, d, NOWHERE,
            "each choice of its const dims and dtypes is one; --dim D=64 and "
            "the like fix some");
  s->n = 0;
}

uint32_t fe_specializations(Ctx *cx, const Decl *prog, const FeBind *fixed,
                            uint32_t nfixed, FeBind **binds, uint32_t *nbinds) {
  Spec s = {.cx = cx, .decl = prog, .fixed = fixed, .nfixed = nfixed};
  uint32_t nsyms = prog->dims->syms.n, room = prog->generics.n + nfixed + 1;
  s.sym = NEWN(&cx->session, int64_t, nsyms + 1);
  s.known = NEWN(&cx->session, bool, nsyms + 1);
  s.row = NEWN(&cx->session, FeBind, room);
  s.free = NEWN(&cx->session, const Generic *, room);
  for (uint32_t i = 0; i < prog->generics.n; i++) {
    const Generic *g = &prog->generics.at[i];
    if (g->kind == GEN_CONST || g->kind == GEN_DTYPE) s.free[s.nfree++] = g;
  }
  s.width = s.nfree;
  if (take_fixed(&s)) {
    choose(&s, 0);
    if (s.full) too_many(&s);
    else if (!s.n) no_choice(&s);
  }
  *binds = s.out;
  *nbinds = s.width;
  return s.n;
}
