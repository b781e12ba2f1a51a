// Expressions other than calls: names, operators, indexing.
#include "frontend/checker.h"

void ck_fail(Expr *e) {
  e->ty = ty_error();
  e->vary = 0;
}

static void value(Expr *e, Ty t, uint64_t vary) {
  e->ty = t;
  e->vary = vary;
}

bool ck_single(Check *c, Expr *e) {
  ck_expr(c, e);
  if (!ck_value(c, e)) {
    ck_fail(e);
    return false;
  }
  return true;
}

// --- names -----------------------------------------------------------------

const char *ck_kind(const Sym *s) {
  static const char *const syms[] = {
      "a dim",   "a dtype", "a parameter", "an output",          "an index",
      "a value", "a state", NULL,          "a builtin function", "a module"};
  static const char *const decls[] = {NULL,         NULL,     "a constant",
                                      "a function", "a mask", "a mod",
                                      "a row",      "a row",  "a recurrence",
                                      "a schedule", "a check"};
  if (s->kind != SY_DECL) return syms[s->kind];
  if (s->decl->kind == DE_ROW) return "a row function";
  if (is_program(s->decl)) return "a program";
  return decls[s->decl->kind];
}

static bool is_module(const Decl *d, const char *module) {
  for (uint32_t i = 0; i < d->path.n; i++) {
    size_t n = strlen(d->path.at[i].name);
    char end = i + 1 < d->path.n ? '.' : 0;
    if (strncmp(module, d->path.at[i].name, n) != 0 || module[n] != end)
      return false;
    module += n + 1;
  }
  return d->path.n > 0;
}

// The last name that is imported from a module, or NULL.
static const NameRef *imported_from(const Check *c, const char *module) {
  const Unit *u = c->unit;
  for (uint32_t i = 0; i < u->decls.n; i++) {
    const Decl *d = u->decls.at[i];
    if (d->kind == DE_IMPORT && d->names.n && is_module(d, module))
      return &d->names.at[d->names.n - 1];
  }
  return NULL;
}

// A function of the library that was not imported.
static bool offer_import(Check *c, Diag *d, const char *name) {
  const char *path = fe_stdlib_with(name);
  if (!path || !c->unit->source) return false;
  const char *module = ck_module_of(c, path);
  const NameRef *last = imported_from(c, module);
  Span at = {c->unit->source->id, 0, 0};
  const char *line = arena_printf(c->a, "import %s { %s }\n", module, name);
  if (last) {
    at = (Span){last->span.src, last->span.hi, last->span.hi};
    line = arena_printf(c->a, ", %s", name);
  }
  diag_fix(c->cx, d, at, line, "import it: import %s { %s }", module, name)
      ->sure = true;
  return true;
}

// A name of the library that is nearer than any in scope.
static bool guess_library(Check *c, Guess *g, const char **module) {
  bool any = false;
  for (FeLibrary at = {0}; fe_stdlib_next(&at);) {
    const char *name = arena_strndup(c->a, at.name, at.n);
    guess_try(g, name);
    if (g->best != name) continue;
    *module = ck_module_of(c, at.path);
    any = true;
  }
  return any;
}

// Names in scope, then those of the library, which are to be imported.
static bool offer_names(Check *c, Diag *d, const char *name, Span at) {
  Guess g = guess_start(name);
  const char *module = NULL;
  guess_scope(&g, c->scope);
  bool library = guess_library(c, &g, &module);
  if (!g.best) return false;
  diag_fix(c->cx, d, at, g.best, "did you mean '%s'?", g.best);
  if (library)
    diag_note(c->cx, d, NOWHERE, "'%s' is in the library: import %s { %s }",
              g.best, module, g.best);
  return true;
}

static void list_generators(Check *c, Diag *d) {
  Buf b = {.arena = c->a};
  for (int i = 0; i < BI_COUNT; i++)
    if (fe_builtins[i].kind == BK_GEN)
      buf_printf(&b, " %s", fe_builtins[i].name);
  diag_note(c->cx, d, NOWHERE, "generators:%s", b.at);
}

Sym *ck_lookup(Check *c, const char *name, Span at) {
  Sym *s = scope_find(c->scope, name);
  if (s) {
    s->nuses++;
    return s;
  }
  // Its declaration may stand in the text that could not be read.
  if (!c->unit->syntax_ok) return NULL;
  Diag *d = diag_add(c->cx, DIAG_unknown_name, at, name);
  if (offer_import(c, d, name)) return NULL;
  bool near =
      c->cx->nerrors <= c->cx->max_errors && offer_names(c, d, name, at);
  if (!near && c->in_input) list_generators(c, d);
  return NULL;
}

// Where a statement can be put at the start of the body.
static Span body_start(const Decl *d) {
  if (!d || !d->body.n) return NOWHERE;
  Span s = d->body.at[0]->span;
  s.hi = s.lo;
  return s;
}

// A name that is used as an index without declaration. It is reported once.
void ck_undeclared_index(Check *c, const char *name, Span at) {
  if (!c->unit->syntax_ok) return;
  Diag *d = diag_add(c->cx, DIAG_index_undeclared, at, name);
  Span start = body_start(c->decl);
  Dim axis = c->decl ? ck_axis_of_name(c, name) : DIM_NONE;
  if (axis != DIM_NONE && span_known(start))
    diag_fix(c->cx, d, start,
             arena_printf(c->a, "index %s in %s; ", name, dim_text(c, axis)),
             "declare index %s", name);
  Sym *s = ck_sym(c, SY_LET, name, at);
  s->ty = ty_error();
  scope_add(c->a, c->scope, s);
}

static bool unknown_index(Check *c, const Expr *e) {
  if (e->kind != EX_NAME || scope_find(c->scope, e->name)) return false;
  ck_undeclared_index(c, e->name, e->span);
  return true;
}

void ck_bad_target(Check *c, Item *it, const char *output) {
  bool known = it->kind != ITEM_EXPR || !unknown_index(c, it->lo);
  Sym *s = known && it->kind == ITEM_EXPR && it->lo->kind == EX_NAME
               ? scope_find(c->scope, it->lo->name)
               : NULL;
  if (known && !(s && bad(&s->ty)))
    diag_add(c->cx, DIAG_output_index, it->span, output);
}

static void name_of_dim(Check *c, Expr *e, Sym *s) {
  value(e, ty_scalar(DT_I64, true), 0);
  e->binder = c->decl ? fe_batch_index(c->decl, s->dim) : NULL;
  if (e->binder) e->vary = index_bit(e->binder);
  else if (c->in_body) ck_ragged_index(c, s->dim, e->span);
}

// A name that stands for a value of kind s.
static void name_value(Check *c, Expr *e, Sym *s) {
  switch (s->kind) {
  case SY_DIM: name_of_dim(c, e, s); return;
  case SY_INDEX: value(e, ty_scalar(DT_I64, false), index_bit(s)); return;
  case SY_LET:
    if (s->decl && !ck_decl(c, s->decl)) break;
    value(e, s->ty, s->vary);
    return;
  case SY_PARAM:
  case SY_STATE: value(e, s->ty, s->vary); return;
  case SY_OUT:
    if (c->in_check) {
      value(e, s->ty, 0);
      return;
    }
    diag_add(c->cx, DIAG_read_output, e->span, s->name);
    break;
  case SY_DECL:
    if (is_function(s->decl)) {
      ck_named_call(c, e, s);
      return;
    }
    // fall through
  default: diag_add(c->cx, DIAG_not_value, e->span, s->name, ck_kind(s)); break;
  }
  ck_fail(e);
}

static void name(Check *c, Expr *e) {
  e->sym = ck_lookup(c, e->name, e->span);
  if (e->sym) name_value(c, e, e->sym);
  else ck_fail(e);
}

// Resolves module.name; NULL if reported. e->a->sym is the module.
Sym *ck_member(Check *c, Expr *e) {
  if (e->a->kind != EX_NAME) {
    diag_add(c->cx, DIAG_no_member, e->name_span, "this value", e->name);
    return NULL;
  }
  Sym *unit = ck_lookup(c, e->a->name, e->a->span);
  e->a->sym = unit;
  e->a->ty = (Ty){0};
  if (!unit) return NULL;
  if (unit->kind != SY_UNIT) {
    diag_add(c->cx, DIAG_no_member, e->name_span,
             arena_printf(c->a, "'%s'", unit->name), e->name);
    return NULL;
  }
  e->sym = unit->unit ? ck_unit_find(unit->unit, e->name) : NULL;
  if (!e->sym && unit->unit && unit->unit->syntax_ok) {
    Diag *d =
        diag_add(c->cx, DIAG_import_name, e->name_span, unit->name, e->name);
    Guess g = guess_start(e->name);
    for (uint32_t i = 0; i < unit->unit->decls.n; i++)
      if (unit->unit->decls.at[i]->sym)
        guess_try(&g, unit->unit->decls.at[i]->name);
    if (g.best)
      diag_fix(c->cx, d, e->name_span, g.best, "did you mean '%s'?", g.best);
  }
  if (e->sym) e->sym->nuses++;
  return e->sym;
}

// gqa(Q, K, V).LSE in a check.
static bool output_member(Check *c, Expr *e) {
  if (!c->in_check || (e->a->kind != EX_CALL && e->a->kind != EX_PIPE))
    return false;
  ck_expr(c, e->a);
  Sym *s = e->a->sym;
  if (bad(&e->a->ty) || !s || s->kind != SY_DECL || !is_program(s->decl))
    return false;
  const Decl *d = s->decl;
  for (uint32_t i = 0; i < d->outs.n; i++) {
    if (d->outs.at[i].name != e->name) continue;
    e->sym = d->outs.at[i].sym;
    value(e, e->a->ty.kind == TY_TUPLE ? e->a->ty.elems[i] : e->a->ty, 0);
    return true;
  }
  return false;
}

static void member(Check *c, Expr *e) {
  if (output_member(c, e)) return;
  if (e->a->kind == EX_CALL && bad(&e->a->ty)) {
    ck_fail(e);
    return;
  }
  Sym *s = ck_member(c, e);
  if (s) name_value(c, e, s);
  else ck_fail(e);
}

// --- operators -------------------------------------------------------------

// Dtypes of an arithmetic pair. False if reported.
static bool numbers(Check *c, Expr *a, Expr *b, Ty *out) {
  Expr *both[] = {a, b};
  for (int i = 0; i < 2; i++) {
    if (!ty_is_bool(&both[i]->ty)) continue;
    ck_wrong_type(c, both[i], "a number");
    return false;
  }
  bool fa = ty_is_float(&a->ty), fb = ty_is_float(&b->ty);
  if (fa != fb && !ck_as_float(c, fa ? b : a)) return false;
  const Ty *x = &a->ty, *y = &b->ty;
  *out = ty_scalar(ty_arith(x->dtype, y->dtype), x->weak && y->weak);
  return true;
}

static bool floats(Check *c, Expr *a, Expr *b, Ty *out) {
  if (!ty_is_float(&a->ty) && !ty_is_float(&b->ty)) {
    if (!ck_as_float(c, a) || !ck_as_float(c, b)) return false;
    *out = ty_scalar(DT_F32, true);
    return true;
  }
  return numbers(c, a, b, out);
}

// The one-character operator between two operands; NOWHERE if a comment is in
// the way. Spans leave out parentheses.
static Span operator_span(Check *c, const Expr *e, char op) {
  Span s = {e->span.src, e->a->span.hi, e->b->span.lo};
  const char *text = fe_span_text(c, s), *at = strchr(text, op);
  if (!at || strchr(text, '#')) return NOWHERE;
  s.lo += (uint32_t)(at - text);
  s.hi = s.lo + 1;
  return s;
}

// `a / b` of integers: real division wants floats, floor division is //.
static bool division(Check *c, Expr *e, Ty *out) {
  bool ints = ty_is_int(&e->a->ty) && ty_is_int(&e->b->ty);
  if (!ints || (e->a->ty.weak && e->b->ty.weak))
    return floats(c, e->a, e->b, out);
  Diag *d = diag_add(c->cx, DIAG_int_division, e->span);
  const char *a = fe_span_text(c, e->a->span), *b = fe_span_text(c, e->b->span);
  Span op = operator_span(c, e, '/');
  if (span_known(op)) diag_fix(c->cx, d, op, "//", "round down with //");
  diag_fix(c->cx, d, e->span, arena_printf(c->a, "f32(%s) / f32(%s)", a, b),
           "divide as floats");
  return false;
}

static bool integers(Check *c, Expr *e, Ty *out) {
  Expr *both[] = {e->a, e->b};
  for (int i = 0; i < 2; i++) {
    if (ty_is_int(&both[i]->ty)) continue;
    diag_add(c->cx, DIAG_float_floordiv, both[i]->span,
             fe_binop_text((BinOp)e->op));
    return false;
  }
  return numbers(c, e->a, e->b, out);
}

static bool bools(Check *c, Expr *a, Expr *b, Ty *out) {
  Expr *both[] = {a, b};
  for (int i = 0; i < 2; i++) {
    if (ty_is_bool(&both[i]->ty)) continue;
    ck_wrong_type(c, both[i], "a bool");
    return false;
  }
  *out = ty_scalar(DT_BOOL, false);
  return true;
}

static bool comparison(Check *c, Expr *a, BinOp op, Expr *b, Ty *out) {
  Ty ignored;
  bool same_bools =
      (op == BO_EQ || op == BO_NE) && ty_is_bool(&a->ty) && ty_is_bool(&b->ty);
  if (!same_bools && !numbers(c, a, b, &ignored)) return false;
  *out = ty_scalar(DT_BOOL, false);
  return true;
}

// Shapes of [K]@@[K,N], [M,K]@@[K], [M,K]@@[K,N], [K]@@[K].
static bool matmul(Check *c, Expr *e, Ty *out) {
  const Ty *a = &e->a->ty, *b = &e->b->ty;
  if (a->rank < 1 || a->rank > 2 || b->rank < 1 || b->rank > 2) {
    diag_add(c->cx, DIAG_contraction, e->span, "@@",
             "a vector or matrix on each side", fe_shape_text(c, a),
             fe_shape_text(c, b));
    return false;
  }
  if (!ck_as_float(c, e->a) || !ck_as_float(c, e->b)) return false;
  if (!fe_dims_equal(c->dims, a->shape[a->rank - 1], b->shape[0])) {
    diag_add(c->cx, DIAG_dot_dims, e->span, "@@",
             dim_text(c, a->shape[a->rank - 1]), dim_text(c, b->shape[0]));
    return false;
  }
  *out = ty_scalar(ty_arith(a->dtype, b->dtype), false);
  for (int i = 0; i + 1 < a->rank; i++) out->shape[out->rank++] = a->shape[i];
  for (int i = 1; i < b->rank; i++) out->shape[out->rank++] = b->shape[i];
  return true;
}

static bool binary_type(Check *c, Expr *e, Ty *out) {
  switch ((BinOp)e->op) {
  case BO_MATMUL: return matmul(c, e, out);
  case BO_AND:
  case BO_OR: return bools(c, e->a, e->b, out);
  case BO_FLOORDIV:
  case BO_MOD: return integers(c, e, out);
  case BO_DIV: return division(c, e, out);
  case BO_POW: return floats(c, e->a, e->b, out);
  case BO_ADD:
  case BO_SUB:
  case BO_MUL: return numbers(c, e->a, e->b, out);
  default: return comparison(c, e->a, (BinOp)e->op, e->b, out);
  }
}

// What is evaluated only where the condition holds, or only where it does not.
static bool guarded(Check *c, const Expr *condition, Expr *e) {
  uint64_t outer = c->guarded;
  c->guarded |= condition->vary;
  bool ok = ck_single(c, e);
  c->guarded = outer;
  return ok;
}

static void binary(Check *c, Expr *e) {
  Ty out;
  bool ok = ck_single(c, e->a);
  bool guards = e->op == BO_AND || e->op == BO_OR;
  ok = (guards ? guarded(c, e->a, e->b) : ck_single(c, e->b)) && ok;
  Expr *both[] = {e->a, e->b};
  ok = ok && binary_type(c, e, &out) &&
       (e->op == BO_MATMUL || ty_unify_shape(c, both, 2, &out));
  if (ok) value(e, out, e->a->vary | e->b->vary);
  else ck_fail(e);
}

static void chain(Check *c, Expr *e) {
  Ty out = ty_scalar(DT_BOOL, false);
  uint64_t vary = 0;
  bool ok = true;
  for (uint32_t i = 0; i < e->list.n; i++) {
    ok = ck_single(c, e->list.at[i]) && ok;
    vary |= e->list.at[i]->vary;
  }
  for (uint32_t i = 0; ok && i < e->ops.n; i++)
    ok = comparison(c, e->list.at[i], e->ops.at[i], e->list.at[i + 1], &out);
  ok = ok && ty_unify_shape(c, e->list.at, e->list.n, &out);
  if (ok) value(e, out, vary);
  else ck_fail(e);
}

static void unary(Check *c, Expr *e) {
  if (!ck_single(c, e->a)) {
    ck_fail(e);
    return;
  }
  bool want_bool = e->op == UO_NOT;
  if (ty_is_bool(&e->a->ty) != want_bool) {
    ck_wrong_type(c, e->a, want_bool ? "a bool" : "a number");
    ck_fail(e);
    return;
  }
  Ty t = e->a->ty;
  t.row = false;
  t.dtype = ty_arith(t.dtype, t.dtype);
  value(e, t, e->a->vary);
}

static void conditional(Check *c, Expr *e) {
  Expr *all[] = {e->a, e->b, e->c};
  bool ok = true;
  Ty out;
  ok = ck_single(c, e->a);
  ok = guarded(c, e->a, e->b) && ok;
  ok = guarded(c, e->a, e->c) && ok;
  if (ok && !ty_is_bool(&e->a->ty)) {
    ck_wrong_type(c, e->a, "a bool");
    ok = false;
  }
  if (ok && ty_is_bool(&e->b->ty) && ty_is_bool(&e->c->ty))
    out = ty_scalar(DT_BOOL, false);
  else ok = ok && numbers(c, e->b, e->c, &out);
  if (ok && e->b->ty.dtype == e->c->ty.dtype) out.dtype = e->b->ty.dtype;
  ok = ok && ty_unify_shape(c, all, 3, &out);
  if (!ok) {
    ck_fail(e);
    return;
  }
  value(e, out, e->a->vary | e->b->vary | e->c->vary);
}

static void cast(Check *c, Expr *e) {
  if (!ck_single(c, e->a)) {
    ck_fail(e);
    return;
  }
  Ty t = e->a->ty;
  t.row = t.weak = false;
  t.dtype = e->dtype;
  value(e, t, e->a->vary);
}

static void tuple(Check *c, Expr *e) {
  Ty t = {.kind = TY_TUPLE, .nelems = e->list.n};
  t.elems = NEWN(c->a, Ty, e->list.n);
  e->vary = 0;
  bool ok = true;
  for (uint32_t i = 0; i < e->list.n; i++) {
    ok = ck_single(c, e->list.at[i]) && ok;
    t.elems[i] = e->list.at[i]->ty;
    e->vary |= e->list.at[i]->vary;
  }
  e->ty = ok ? t : ty_error();
}

// --- indexing --------------------------------------------------------------

static bool is_literal_one(const Item *it) {
  return it->kind == ITEM_EXPR && it->lo->kind == EX_INT && it->lo->ival == 1;
}

// More items than axes: the surplus must be 1s, taken from the right.
static bool find_new_axes(Check *c, Expr *e, const Ty *base) {
  uint32_t extra = e->items.n > base->rank ? e->items.n - base->rank : 0;
  for (uint32_t i = 0; i < e->items.n; i++) e->items.at[i].new_axis = false;
  for (uint32_t i = e->items.n; extra && i-- > 0;) {
    if (!is_literal_one(&e->items.at[i])) continue;
    e->items.at[i].new_axis = true;
    extra--;
  }
  if (!extra) return true;
  diag_add(c->cx, DIAG_too_many_items, e->span, fe_span_text(c, e->a->span),
           base->rank, base->rank == 1 ? "is" : "es", e->items.n);
  return false;
}

// t - 1: the step's index plus or minus a constant.
static bool is_shifted(const Check *c, const Expr *e) {
  if (!c->step || e->kind != EX_BINARY) return false;
  if (e->op != BO_ADD && e->op != BO_SUB) return false;
  const Expr *x = e->a, *n = e->b;
  if (e->op == BO_ADD && n->sym == c->step) x = e->b, n = e->a;
  return x->kind == EX_NAME && x->sym == c->step && n->ty.weak;
}

static bool item_expr(Check *c, Expr *e, Item *it, Dim axis) {
  if (unknown_index(c, it->lo)) {
    ck_fail(it->lo);
    return false;
  }
  if (!ck_single(c, it->lo)) return false;
  if (!ty_is_int(&it->lo->ty) || it->lo->ty.rank) {
    Diag *d =
        diag_add(c->cx, DIAG_index_type, it->lo->span, ty_text(c, &it->lo->ty));
    if (ty_is_float(&it->lo->ty))
      diag_fix(c->cx, d, it->lo->span,
               arena_printf(c->a, "i32(%s)", fe_span_text(c, it->lo->span)),
               "convert with i32(..)");
    return false;
  }
  int64_t v, n;
  Dim d = it->lo->ty.weak ? fe_dim_of(c->decl, it->lo) : DIM_NONE;
  if (d != DIM_NONE && dim_is_const(c->dims, d, &v)) {
    bool past = dim_is_const(c->dims, axis, &n) && v >= n;
    if (v < 0 || past) {
      diag_add(c->cx, DIAG_index_range, it->lo->span, (long long)v,
               dim_text(c, axis));
      return false;
    }
  }
  it->shifted = is_shifted(c, it->lo);
  ck_index_extent(c, e, it, axis);
  return true;
}

// Extent of axis[lo:hi], DIM_NONE if reported.
static Dim slice(Check *c, Item *it, Dim axis) {
  Dim lo = it->lo ? ck_dim(c, it->lo, false) : dim_const(c->dims, 0);
  Dim hi = it->hi ? ck_dim(c, it->hi, false) : axis;
  if (lo == DIM_NONE || hi == DIM_NONE) return DIM_NONE;
  int64_t a, b, n;
  bool ka = dim_is_const(c->dims, lo, &a), kb = dim_is_const(c->dims, hi, &b);
  bool kn = dim_is_const(c->dims, axis, &n);
  if ((ka && a < 0) || (ka && kb && b < a) || (kn && kb && b > n) ||
      (kn && ka && a > n)) {
    diag_add(c->cx, DIAG_slice_range, it->span, dim_text(c, lo),
             dim_text(c, hi), dim_text(c, axis));
    return DIM_NONE;
  }
  return dim_sub(c->dims, hi, lo);
}

static void add_axis(Ty *t, Dim d) {
  if (t->rank < MAX_RANK) t->shape[t->rank++] = d;
}

static void indexing(Check *c, Expr *e) {
  ck_fail(e);
  if (!ck_single(c, e->a) || !find_new_axes(c, e, &e->a->ty)) return;
  const Ty *base = &e->a->ty;
  Ty out = ty_scalar(base->dtype, false);
  uint64_t vary = e->a->vary;
  int axis = 0;
  bool ok = true;
  for (uint32_t i = 0; i < e->items.n; i++) {
    Item *it = &e->items.at[i];
    if (it->new_axis) {
      ck_single(c, it->lo);
      add_axis(&out, dim_const(c->dims, 1));
      continue;
    }
    Dim d = base->shape[axis++];
    if (it->kind == ITEM_SLICE) {
      d = slice(c, it, d);
      if (d == DIM_NONE) ok = false;
      else add_axis(&out, d);
    } else if (item_expr(c, e, it, d)) {
      vary |= it->lo->vary;
    } else {
      ok = false;
    }
  }
  while (axis < base->rank) add_axis(&out, base->shape[axis++]);
  if (ok) value(e, out, vary);
}

// --- all kinds -------------------------------------------------------------

Sym *ck_bare_index(Check *c, const Expr *e) {
  if (e->kind != EX_NAME) return NULL;
  Sym *s = scope_find(c->scope, e->name);
  return s && s->kind == SY_INDEX ? s : NULL;
}

void ck_expr(Check *c, Expr *e) {
  switch (e->kind) {
  case EX_ERROR: ck_fail(e); break;
  case EX_NAME: name(c, e); break;
  case EX_INT: value(e, ty_scalar(DT_I64, true), 0); break;
  case EX_FLOAT:
  case EX_INF: value(e, ty_scalar(DT_F32, true), 0); break;
  case EX_STRING: value(e, (Ty){.kind = TY_STRING}, 0); break;
  case EX_BOOL: value(e, ty_scalar(DT_BOOL, false), 0); break;
  case EX_UNARY: unary(c, e); break;
  case EX_BINARY: binary(c, e); break;
  case EX_CHAIN: chain(c, e); break;
  case EX_CALL:
  case EX_PIPE: ck_call(c, e); break;
  case EX_INDEX: indexing(c, e); break;
  case EX_MEMBER: member(c, e); break;
  case EX_CAST: cast(c, e); break;
  case EX_IF: conditional(c, e); break;
  case EX_TUPLE: tuple(c, e); break;
  }
}
