// Dims: expressions as dims, generics and their facts, written types, and the
// dims of a function solved at a call.
#include "frontend/checker.h"

// --- expressions as dims ---------------------------------------------------

static Dim dim_of(DimTab *t, const Expr *e);

static Dim dim_of_binary(DimTab *t, const Expr *e) {
  Dim a = dim_of(t, e->a), b = dim_of(t, e->b);
  int64_t v;
  if (a == DIM_NONE || b == DIM_NONE) return DIM_NONE;
  switch ((BinOp)e->op) {
  case BO_ADD: return dim_bin(t, DIM_ADD, a, b);
  case BO_SUB: return dim_sub(t, a, b);
  case BO_MUL: return dim_bin(t, DIM_MUL, a, b);
  case BO_FLOORDIV:
  case BO_MOD:
    if (dim_is_const(t, b, &v) && v <= 0) return DIM_NONE;
    return dim_bin(t, e->op == BO_MOD ? DIM_MOD : DIM_FLOORDIV, a, b);
  default: return DIM_NONE;
  }
}

static Dim dim_of_call(DimTab *t, const Expr *e) {
  if (!e->sym || e->sym->kind != SY_BUILTIN || !e->elementwise) return DIM_NONE;
  DimOp op = e->sym->builtin == BI_min ? DIM_MIN : DIM_MAX;
  Dim d = DIM_NONE;
  for (uint32_t i = 0; i < e->args.n; i++) {
    Dim x = dim_of(t, e->args.at[i].value);
    if (x == DIM_NONE) return DIM_NONE;
    d = i ? dim_bin(t, op, d, x) : x;
  }
  return d;
}

// A constant of the file has a table of its own.
static Dim dim_of_let(DimTab *t, const Sym *let) {
  int64_t v;
  if (!let->decl || let->dim == DIM_NONE) return let->dim;
  return dim_is_const(let->decl->dims, let->dim, &v) ? dim_const(t, v)
                                                     : DIM_NONE;
}

static Dim dim_of(DimTab *t, const Expr *e) {
  switch (e->kind) {
  case EX_INT: return dim_const(t, e->ival);
  case EX_NAME:
    if (!e->sym) return DIM_NONE;
    if (e->sym->kind == SY_DIM) return e->sym->dim;
    return e->sym->kind == SY_LET ? dim_of_let(t, e->sym) : DIM_NONE;
  case EX_UNARY: {
    Dim a = e->op == UO_NEG ? dim_of(t, e->a) : DIM_NONE;
    return a == DIM_NONE ? a : dim_sub(t, dim_const(t, 0), a);
  }
  case EX_BINARY: return dim_of_binary(t, e);
  case EX_CALL: return dim_of_call(t, e);
  default: return DIM_NONE;
  }
}

Dim fe_dim_of(const Decl *d, const Expr *e) {
  return ty_is_int(&e->ty) && e->ty.weak ? dim_of(d->dims, e) : DIM_NONE;
}

// Unknown names in a written shape are dims of their own.
static void declare_dims(Check *c, const Expr *e) {
  if (e->kind == EX_NAME && !scope_find(c->scope, e->name)) {
    Sym *sym = ck_sym(c, SY_DIM, e->name, e->span);
    sym->dim = dim_sym(c->dims, dim_add_sym(c->dims, e->name, DIM_DYN));
    sym->ty = ty_scalar(DT_I64, true);
    scope_add(c->a, c->scope, sym);
  }
  if (e->a && e->kind != EX_CALL) declare_dims(c, e->a);
  if (e->b) declare_dims(c, e->b);
  for (uint32_t i = 0; i < e->args.n; i++) declare_dims(c, e->args.at[i].value);
}

// The first `/` of e, or NULL.
static const Expr *find_quotient(const Expr *e) {
  if (!e || e->kind != EX_BINARY) return NULL;
  if (e->op == BO_DIV) return e;
  const Expr *q = find_quotient(e->a);
  return q ? q : find_quotient(e->b);
}

static void not_dim(Check *c, const Expr *e) {
  Diag *d = diag_add(c->cx, DIAG_not_dim, e->span);
  const Expr *q = find_quotient(e);
  if (q) {
    Span between = {e->span.src, q->a->span.hi, q->b->span.lo};
    diag_fix(c->cx, d, between, " // ", "lengths are whole, `//` divides them");
  }
  const Sym *s = e->kind == EX_NAME ? e->sym : NULL;
  if (!s || s->kind != SY_PARAM) return;
  diag_note(c->cx, d, s->span,
            "'%s' is a value: lengths are dims, `%s` or `%s: const` in <..>, "
            "not parameters",
            s->name, s->name, s->name);
}

Dim ck_dim(Check *c, Expr *e, bool implicit) {
  if (implicit) declare_dims(c, e);
  if (!ck_single(c, e)) return DIM_NONE;
  Dim d = ty_is_int(&e->ty) && e->ty.weak ? dim_of(c->dims, e) : DIM_NONE;
  if (d == DIM_NONE && e->kind == EX_INT)
    diag_add(c->cx, DIAG_dim_range, e->span, (long long)e->ival);
  else if (d == DIM_NONE) not_dim(c, e);
  return d;
}

bool ck_const_int(Check *c, Expr *e, int64_t *v) {
  Dim d = ck_dim(c, e, false);
  if (d == DIM_NONE) return false;
  if (dim_is_const(c->dims, d, v)) return true;
  diag_add(c->cx, DIAG_not_constant, e->span);
  return false;
}

// --- generics --------------------------------------------------------------

static void add_value(Arena *a, DimSym *s, int64_t v) {
  uint32_t i = 0;
  while (i < s->values.n && s->values.at[i] < v) i++;
  if (i < s->values.n && s->values.at[i] == v) return;
  vec_push(a, &s->values, v);
  for (uint32_t j = s->values.n - 1; j > i; j--)
    s->values.at[j] = s->values.at[j - 1];
  s->values.at[i] = v;
}

static int64_t gcd(int64_t a, int64_t b) {
  return b ? gcd(b, a % b) : a;
}

// The same dim, if the symbol i is a multiple of n.
static bool equal_if_multiple(DimTab *t, Dim a, Dim b, uint32_t i, int64_t n) {
  int64_t was = t->syms.at[i].divisor;
  t->syms.at[i].divisor = was / gcd(was, n) * n;
  Dim *same = NEWN(t->arena, Dim, t->syms.n);
  for (uint32_t k = 0; k < t->syms.n; k++) same[k] = dim_sym(t, k);
  bool equal = dim_subst(t, t, a, same) == dim_subst(t, t, b, same);
  t->syms.at[i].divisor = was;
  return equal;
}

// Says which multiple of a symbol makes two dims one: halves of vectors that
// are joined again are as long as the vector only if that is even.
void ck_advise_multiple(Check *c, Diag *d, Dim a, Dim b) {
  enum { MOST = 16 };
  DimTab *t = c->dims;
  if (fe_dims_equal(t, a, b)) return;
  for (uint32_t i = 0; i < t->syms.n; i++)
    for (int64_t n = 2; n <= MOST; n++)
      if (equal_if_multiple(t, a, b, i, n)) {
        diag_note(c->cx, d, NOWHERE, "they are equal `where %s %% %lld == 0`",
                  t->syms.at[i].name, (long long)n);
        return;
      }
}

static void generic_values(Check *c, Generic *g, uint32_t id) {
  int64_t v, div = 0;
  if (g->values.n > MAX_VALUES) {
    diag_add(c->cx, DIAG_too_many, g->span, g->name, MAX_VALUES, "values");
    return;
  }
  for (uint32_t i = 0; i < g->values.n; i++) {
    if (!ck_const_int(c, g->values.at[i], &v)) continue;
    if (v < 1 || v > DIM_UNBOUNDED) {
      diag_add(c->cx, DIAG_dim_range, g->values.at[i]->span, (long long)v);
      continue;
    }
    add_value(c->a, &c->dims->syms.at[id], v);
    div = gcd(v, div);
  }
  DimSym *s = &c->dims->syms.at[id];
  if (!s->values.n) return;
  s->lo = s->values.at[0];
  s->hi = s->values.at[s->values.n - 1];
  s->divisor = div;
}

static void generic_range(Check *c, Generic *g, uint32_t id) {
  int64_t lo, hi;
  if (!ck_const_int(c, g->lo, &lo) || !ck_const_int(c, g->hi, &hi)) return;
  if (lo < 0 || hi < lo || hi > DIM_UNBOUNDED) {
    diag_add(c->cx, DIAG_bad_range, g->lo->span, (long long)lo, (long long)hi);
    return;
  }
  DimSym *s = &c->dims->syms.at[id];
  s->lo = lo;
  s->hi = hi;
  s->divisor = 1;
  s->open = s->values.n > 0;
  for (uint32_t i = 0; i < s->values.n; i++)
    if (s->values.at[i] < lo || s->values.at[i] > hi)
      fe_bad_dim(c->cx, g->span, s, s->values.at[i]);
}

static void generic_dim(Check *c, Generic *g) {
  static const DimKind kinds[] = {DIM_DYN, DIM_SPEC, DIM_RAGGED};
  Sym *sym = ck_sym(c, SY_DIM, g->name, g->span);
  sym->ty = ty_scalar(DT_I64, true);
  g->sym = sym;
  if (!ck_declare(c, sym)) return;
  uint32_t id = dim_add_sym(c->dims, g->name, kinds[g->kind]);
  c->dims->syms.at[id].by = g->by;
  sym->dim = dim_sym(c->dims, id);
  if (g->values.n) generic_values(c, g, id);
  if (g->has_range) generic_range(c, g, id);
}

static DType bound_dtype(const Check *c, const Generic *g) {
  for (uint32_t i = 0; i < c->nbinds; i++)
    if (!strcmp(c->binds[i].name, g->name) && c->binds[i].dtype != DT_NONE)
      return c->binds[i].dtype;
  return g->dtypes.n ? g->dtypes.at[0] : DT_F32;
}

static void generic_dtype(Check *c, Generic *g) {
  Sym *sym = ck_sym(c, SY_DTYPE, g->name, g->span);
  sym->ty = ty_scalar(bound_dtype(c, g), false);
  g->sym = sym;
  ck_declare(c, sym);
  if (is_function(c->decl))
    diag_add(c->cx, DIAG_dtype_generic, g->span, g->name);
}

void ck_generics(Check *c, Decl *d) {
  for (uint32_t i = 0; i < d->generics.n; i++) {
    Generic *g = &d->generics.at[i];
    if (g->kind == GEN_DTYPE) generic_dtype(c, g);
    else if (g->kind == GEN_RAGGED && !is_program(d))
      diag_add(c->cx, DIAG_ragged_by, g->by_span, g->name);
    else generic_dim(c, g);
  }
}

// --- where -----------------------------------------------------------------

// A name other than of a dim or constant in a constraint.
static const Expr *not_of_dims(const Expr *e) {
  if (e->kind == EX_NAME && e->sym && e->sym->kind != SY_DIM &&
      e->sym->kind != SY_LET && e->sym->kind != SY_BUILTIN)
    return e;
  const Expr *kids[] = {e->a, e->b, e->c}, *found = NULL;
  for (int i = 0; i < 3 && !found; i++)
    if (kids[i]) found = not_of_dims(kids[i]);
  for (uint32_t i = 0; i < e->list.n && !found; i++)
    found = not_of_dims(e->list.at[i]);
  for (uint32_t i = 0; i < e->args.n && !found; i++)
    found = not_of_dims(e->args.at[i].value);
  for (uint32_t i = 0; i < e->items.n && !found; i++)
    if (e->items.at[i].lo) found = not_of_dims(e->items.at[i].lo);
  return found;
}

static DimSym *plain_sym(Check *c, const Expr *e) {
  Dim d = dim_of(c->dims, e);
  if (d == DIM_NONE || c->dims->exprs.at[d].op != DIM_SYM) return NULL;
  return &c->dims->syms.at[c->dims->exprs.at[d].value];
}

// `a op b`, one side a symbol and the other a constant.
static void bound_fact(Check *c, const Expr *a, BinOp op, const Expr *b) {
  DimSym *s = plain_sym(c, a);
  int64_t v;
  Dim d = dim_of(c->dims, b);
  if (!s || d == DIM_NONE || !dim_is_const(c->dims, d, &v)) return;
  if ((op == BO_LE || op == BO_EQ) && v < s->hi) s->hi = v;
  if (op == BO_LT && v - 1 < s->hi) s->hi = v - 1;
  if ((op == BO_GE || op == BO_EQ) && v > s->lo) s->lo = v;
  if (op == BO_GT && v + 1 > s->lo) s->lo = v + 1;
}

static BinOp mirrored(BinOp op) {
  switch (op) {
  case BO_LT: return BO_GT;
  case BO_GT: return BO_LT;
  case BO_LE: return BO_GE;
  case BO_GE: return BO_LE;
  default: return op;
  }
}

static void relation_fact(Check *c, const Expr *a, BinOp op, const Expr *b) {
  bound_fact(c, a, op, b);
  bound_fact(c, b, mirrored(op), a);
  int64_t n, zero;
  if (op != BO_EQ || a->kind != EX_BINARY || a->op != BO_MOD) return;
  DimSym *s = plain_sym(c, a->a);
  Dim dn = dim_of(c->dims, a->b), dz = dim_of(c->dims, b);
  if (!s || dn == DIM_NONE || !dim_is_const(c->dims, dn, &n)) return;
  if (dz == DIM_NONE || !dim_is_const(c->dims, dz, &zero) || zero) return;
  if (n > 0) s->divisor = s->divisor / gcd(s->divisor, n) * n;
}

static void learn(Check *c, const Expr *e) {
  if (e->kind == EX_BINARY && e->op == BO_AND) {
    learn(c, e->a);
    learn(c, e->b);
  } else if (e->kind == EX_BINARY) {
    relation_fact(c, e->a, (BinOp)e->op, e->b);
  } else if (e->kind == EX_CHAIN) {
    for (uint32_t i = 0; i < e->ops.n; i++)
      relation_fact(c, e->list.at[i], e->ops.at[i], e->list.at[i + 1]);
  }
}

void ck_where(Check *c, Decl *d) {
  for (uint32_t i = 0; i < d->where.n; i++) {
    Expr *e = d->where.at[i];
    if (!ck_single(c, e)) continue;
    const Expr *odd = not_of_dims(e);
    if (odd) diag_add(c->cx, DIAG_where_form, odd->span);
    else if (!ty_is_bool(&e->ty)) ck_wrong_type(c, e, "a bool");
    else learn(c, e);
  }
}

// --- written types ---------------------------------------------------------

// What other languages call the types.
static const char *const foreign[][2] = {
    {"float", "f32"},  {"float32", "f32"}, {"fp32", "f32"},
    {"half", "f16"},   {"float16", "f16"}, {"fp16", "f16"},
    {"double", "f64"}, {"float64", "f64"}, {"bfloat16", "bf16"},
    {"int64", "i64"},  {"long", "i64"},    {"int32", "i32"},
    {"int16", "i16"},  {"int8", "i8"},     {"uint8", "u8"},
    {"uint16", "u16"}, {"uint32", "u32"},  {"boolean", "bool"},
    {"fp8", "f8e4m3"}, {"e4m3", "f8e4m3"}, {"e5m2", "f8e5m2"},
};

static void unknown_type(Check *c, const TypeExpr *t) {
  Diag *d = diag_add(c->cx, DIAG_unknown_type, t->span, t->generic);
  Guess g = guess_start(t->generic);
  for (int i = 0; i < DT_COUNT; i++) guess_try(&g, dtype_name((DType)i));
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
    if (!strcmp(t->generic, foreign[i][0])) g.best = foreign[i][1];
  if (!g.best) return;
  Span name = t->span;
  name.lo = t->row ? t->span.hi - (uint32_t)strlen(t->generic) : t->span.lo;
  name.hi = name.lo + (uint32_t)strlen(t->generic);
  diag_fix(c->cx, d, name, g.best, "did you mean '%s'?", g.best);
}

static bool elem_type(Check *c, TypeExpr *t, Ty *out) {
  if (t->is_int) out->dtype = DT_I64;
  else if (!t->generic) out->dtype = t->dtype;
  else {
    Sym *s = scope_find(c->scope, t->generic);
    if (!s || s->kind != SY_DTYPE) {
      unknown_type(c, t);
      return false;
    }
    s->nuses++;
    out->dtype = s->ty.dtype;
  }
  return true;
}

bool ck_type(Check *c, TypeExpr *t, Ty *out) {
  *out = ty_scalar(DT_F32, false);
  bool ok = elem_type(c, t, out);
  out->row = t->row;
  if (t->shape.n > MAX_RANK) {
    diag_add(c->cx, DIAG_too_many_axes, t->span, MAX_RANK);
    ok = false;
  }
  for (uint32_t i = 0; ok && i < t->shape.n; i++) {
    Dim d = ck_dim(c, t->shape.at[i], true);
    if (d == DIM_NONE) ok = false;
    else out->shape[out->rank++] = d;
  }
  if (!ok) *out = ty_error();
  return ok;
}

// --- solving a function's dims ---------------------------------------------

typedef struct Solve {
  Check *c;
  const Expr *call;
  const Decl *callee;
  Dim *map;  // callee symbol -> dim here
  bool ok;
} Solve;

static void conflict(Solve *s, const Expr *arg, uint32_t sym, Dim got) {
  const char *name = s->callee->dims->syms.at[sym].name;
  Diag *d =
      diag_add(s->c->cx, DIAG_dim_conflict, arg->span, name, s->callee->name,
               dim_text(s->c, s->map[sym]), dim_text(s->c, got));
  ck_advise_multiple(s->c, d, s->map[sym], got);
  s->ok = false;
}

static void check_set(Solve *s, const Expr *arg, uint32_t sym, Dim got) {
  const DimSym *d = &s->callee->dims->syms.at[sym];
  int64_t v;
  if (!d->values.n || !dim_is_const(s->c->dims, got, &v)) return;
  if (dim_takes(d, v)) return;
  fe_bad_dim(s->c->cx, arg->span, d, v);
  s->ok = false;
}

// Plain occurrences first.
static void solve_plain(Solve *s, const Expr *arg, Dim want, Dim got) {
  const DimExpr *x = &s->callee->dims->exprs.at[want];
  if (x->op != DIM_SYM) return;
  uint32_t sym = (uint32_t)x->value;
  if (s->map[sym] == DIM_NONE) {
    s->map[sym] = got;
    check_set(s, arg, sym, got);
  } else if (!fe_dims_equal(s->c->dims, s->map[sym], got)) {
    conflict(s, arg, sym, got);
  }
}

// a * n + b with one unknown n: n = (got - b) // a.
static bool solve_affine(Solve *s, Dim want, Dim got) {
  const DimTab *t = s->callee->dims;
  const DimExpr x = t->exprs.at[want];
  int64_t v;
  if (x.op == DIM_SYM) {
    if (s->map[x.value] == DIM_NONE) s->map[x.value] = got;
    return true;
  }
  if (x.op != DIM_ADD && x.op != DIM_MUL) return false;
  bool left = dim_is_const(t, x.a, &v);
  if (!left && !dim_is_const(t, x.b, &v)) return false;
  Dim part = left ? x.b : x.a, n = dim_const(s->c->dims, v);
  if (x.op == DIM_ADD)
    return solve_affine(s, part, dim_sub(s->c->dims, got, n));
  if (v <= 0 || dim_divisor(s->c->dims, got) % v) return false;
  return solve_affine(s, part, dim_bin(s->c->dims, DIM_FLOORDIV, got, n));
}

static void compare(Solve *s, const Expr *arg, Dim want, Dim got) {
  const DimTab *t = s->callee->dims;
  for (uint32_t i = 0; i < t->syms.n; i++)
    if (dim_uses(t, want, i) && s->map[i] == DIM_NONE) return;
  Dim here = dim_subst(t, s->c->dims, want, s->map);
  if (fe_dims_equal(s->c->dims, here, got)) return;
  Diag *d = diag_add(s->c->cx, DIAG_shape_mismatch, arg->span,
                     dim_text(s->c, got), dim_text(s->c, here));
  ck_advise_multiple(s->c, d, here, got);
  s->ok = false;
}

enum { PLAIN, AFFINE, COMPARE };

static void solve_param(Solve *s, uint32_t i, int phase) {
  const Param *p = &s->callee->params.at[i];
  const Bound *b = &s->call->bound[i];
  if (!b->value || b->value == p->deflt || !p->sym || bad(&p->sym->ty)) return;
  const Ty *want = &p->sym->ty, *got = &b->value->ty;
  if (!p->type || got->kind != TY_VALUE) return;
  if (want->rank != got->rank) {
    if (phase == PLAIN) {
      diag_add(s->c->cx, DIAG_arg_rank, b->value->span, p->name,
               s->callee->name, want->rank, got->rank);
      s->ok = false;
    }
    return;
  }
  for (int k = 0; k < want->rank; k++) {
    if (phase == PLAIN) solve_plain(s, b->value, want->shape[k], got->shape[k]);
    else if (phase == AFFINE) solve_affine(s, want->shape[k], got->shape[k]);
    else compare(s, b->value, want->shape[k], got->shape[k]);
  }
}

bool ck_solve(Check *c, Expr *e, const Decl *callee) {
  uint32_t n = callee->dims ? callee->dims->syms.n : 0;
  e->dims = NEWN(c->a, Dim, n + 1);
  Solve s = {c, e, callee, e->dims, true};
  for (int phase = PLAIN; phase <= COMPARE && s.ok; phase++)
    for (uint32_t i = 0; i < callee->params.n; i++) solve_param(&s, i, phase);
  for (uint32_t i = 0; s.ok && i < n; i++) {
    if (s.map[i] != DIM_NONE) continue;
    diag_add(c->cx, DIAG_dim_unsolved, e->span, callee->dims->syms.at[i].name,
             callee->name);
    s.ok = false;
  }
  return s.ok;
}
