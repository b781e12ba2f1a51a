// Calls of builtin functions: rows of builtins.def.
#include "frontend/checker.h"

typedef struct Args {
  Expr *at[MAX_RANK * 4];
  uint32_t n;
  Sym *binder;  // sum(k: e)
  bool exclusive;
} Args;

static uint64_t vary_of(const Args *a) {
  uint64_t v = 0;
  for (uint32_t i = 0; i < a->n; i++) v |= a->at[i]->vary;
  return v;
}

// --- reading the arguments -------------------------------------------------

static bool binder_arg(Check *c, const Builtin *b, const Arg *arg, Args *out) {
  Sym *s = scope_find(c->scope, arg->name);
  bool takes = b->kind == BK_REDUCE || b->kind == BK_SCAN ||
               b->kind == BK_TOPK || b->kind == BK_VEC;
  if (!s && takes) {
    ck_undeclared_index(c, arg->name, arg->name_span);
    return false;
  }
  if (!takes || s->kind != SY_INDEX) {
    if (!takes || !bad(&s->ty))
      diag_add(c->cx, DIAG_bad_binder, arg->name_span, arg->name, b->name);
    return false;
  }
  s->nuses++;
  out->binder = s;
  return true;
}

static bool named_arg(Check *c, const Builtin *b, const Arg *arg, Args *out) {
  if (b->kind == BK_SCAN && !strcmp(arg->name, "exclusive") &&
      arg->value->kind == EX_BOOL) {
    ck_expr(c, arg->value);
    out->exclusive = arg->value->ival != 0;
    return true;
  }
  if (b->kind == BK_SCAN && !strcmp(arg->name, "exclusive"))
    diag_add(c->cx, DIAG_type_mismatch, arg->span, "true or false",
             "an expression");
  else diag_add(c->cx, DIAG_arg_unknown, arg->name_span, b->name, arg->name);
  return false;
}

static bool read_args(Check *c, Expr *e, const Builtin *b, Args *out) {
  bool ok = true;
  uint32_t room = sizeof out->at / sizeof *out->at;
  if (e->kind == EX_PIPE) out->at[out->n++] = e->a;
  for (uint32_t i = 0; i < e->args.n; i++) {
    const Arg *a = &e->args.at[i];
    if (a->kind == ARG_NAMED) {
      ok = named_arg(c, b, a, out) && ok;
      continue;
    }
    if (a->kind == ARG_BINDER) ok = binder_arg(c, b, a, out) && ok;
    if (out->n < room) out->at[out->n] = a->value;
    out->n++;
  }
  bool count_ok =
      out->n >= b->min && (b->max == 255 || out->n <= b->max) && out->n <= room;
  if (!count_ok) {
    Diag *d = diag_add(c->cx, DIAG_arg_count, e->span, b->name, out->n);
    diag_note(c->cx, d, NOWHERE, "use it as %s", b->sig);
    out->n = out->n < room ? out->n : room;
    ok = false;
  }
  for (uint32_t i = 0; i < out->n; i++) ok = ck_single(c, out->at[i]) && ok;
  return ok;
}

// --- binders ---------------------------------------------------------------

uint64_t ck_domain_vary(const Check *c, const Sym *index) {
  uint64_t v = index->domain ? index->domain->vary : 0;
  Sym *batch = c->decl ? fe_batch_index(c->decl, index->dim) : NULL;
  if (batch) v |= index_bit(batch);
  return v & ~index_bit(index);
}

bool ck_may_bind(Check *c, Expr *e, const Sym *s) {
  if (s->role == IX_KEY || s->role == IX_VEC) return true;
  if (s->role == IX_PARALLEL)
    diag_add(c->cx, DIAG_reduce_parallel, e->span, s->name);
  else
    diag_add(c->cx, DIAG_bad_binder, e->span, s->name,
             e->sym ? e->sym->name : "");
  return false;
}

static Sym *only(const Check *c, uint64_t vary, IndexRole role, uint32_t *n) {
  Sym *found = NULL;
  *n = 0;
  for (uint32_t i = 0; i < c->decl->indices.n; i++) {
    Sym *s = c->decl->indices.at[i];
    if (s->role != role || !(vary & index_bit(s))) continue;
    found = s;
    ++*n;
  }
  return found;
}

// Fix-its that write the binder: sum(k: e) for each candidate.
static void fix_binder(Check *c, Diag *d, const Expr *e, uint64_t vary) {
  const Expr *arg =
      e->kind == EX_PIPE || !e->args.n ? NULL : e->args.at[0].value;
  if (!arg) return;
  Span at = {arg->span.src, arg->span.lo, arg->span.lo};
  for (uint32_t i = 0; i < c->decl->indices.n; i++) {
    const Sym *s = c->decl->indices.at[i];
    if (s->role != IX_KEY && s->role != IX_VEC) continue;
    if (s == c->decl->key || (vary && !(vary & index_bit(s)))) continue;
    diag_fix(c->cx, d, at, arena_printf(c->a, "%s: ", s->name), "bind %s",
             s->name);
  }
}

// Several key indices are reduced together as one: its points are the pairs.
static void note_pairs(Check *c, Diag *d, uint64_t vary) {
  const Sym *outer = NULL, *inner = NULL;
  for (uint32_t i = 0; i < c->decl->indices.n; i++) {
    const Sym *s = c->decl->indices.at[i];
    if (s->role != IX_KEY || !(vary & index_bit(s))) continue;
    outer = inner;
    inner = s;
  }
  if (!outer) return;
  const char *y = outer->name, *x = inner->name, *n = dim_text(c, inner->dim);
  diag_note(c->cx, d, NOWHERE,
            "both are reduced as one index over the pairs: `index %s%s in "
            "(%s) * (%s)`, `let %s = %s%s // (%s)`, `let %s = %s%s %% (%s)`",
            y, x, dim_text(c, outer->dim), n, y, y, x, n, x, y, x, n);
}

// Elements of a vector are reduced over an index of its dim.
static void note_vector(Check *c, Diag *d, const Expr *e, const char *what) {
  const Expr *x = e->kind == EX_CALL && e->args.n ? e->args.at[0].value : NULL;
  if (!x || x->ty.kind != TY_VALUE || x->ty.rank != 1) return;
  diag_note(c->cx, d, x->span,
            "the elements of a vector are reduced over an index of its dim: "
            "`index n in %s;` and `%s(n: %s[n])`",
            dim_text(c, x->ty.shape[0]), what,
            x->kind == EX_NAME ? x->name : "(..)");
}

Sym *ck_find_binder(Check *c, Expr *e, uint64_t vary, const char *what) {
  uint32_t keys, vecs;
  if (!c->decl) return NULL;
  Sym *key = only(c, vary, IX_KEY, &keys);
  Sym *vector = only(c, vary, IX_VEC, &vecs);
  if (keys == 1) return key;
  if (!keys && vecs == 1) return vector;
  Diag *d;
  if (c->roles_unsure) return NULL;
  if (keys || vecs) {
    d = diag_add(c->cx, DIAG_many_keys, e->span, what);
    note_pairs(c, d, vary);
  } else if (is_function(c->decl) && c->decl->kind != DE_ROW) {
    d = diag_add(c->cx, DIAG_reduction_in_fn, e->span, what, c->decl->name);
    return NULL;
  } else {
    d = diag_add(c->cx, DIAG_no_key, e->span, what);
    note_vector(c, d, e, what);
  }
  fix_binder(c, d, e, vary & -(uint64_t)(keys || vecs));
  return NULL;
}

static bool bind(Check *c, Expr *e, const Builtin *b, Args *a) {
  if (!a->binder) a->binder = ck_find_binder(c, e, a->at[0]->vary, b->name);
  else if (!ck_may_bind(c, e, a->binder)) return false;
  e->binder = a->binder;
  return a->binder != NULL;
}

// --- families --------------------------------------------------------------

static bool same_class(Check *c, const Args *a, uint32_t from, Ty *out) {
  bool any_float = false, weak = true, all_bool = true;
  for (uint32_t i = from; i < a->n; i++) {
    any_float |= ty_is_float(&a->at[i]->ty);
    all_bool &= ty_is_bool(&a->at[i]->ty);
  }
  DType t = a->at[from]->ty.dtype;
  for (uint32_t i = from; i < a->n; i++) {
    Expr *e = a->at[i];
    if (!all_bool && ty_is_bool(&e->ty)) {
      ck_wrong_type(c, e, "a number");
      return false;
    }
    if (any_float && !ck_as_float(c, e)) return false;
    t = ty_join(t, e->ty.dtype);
    weak &= e->ty.weak;
  }
  *out = ty_scalar(t, weak);
  return true;
}

static bool elementwise(Check *c, const Args *a, Ty *out) {
  if (!same_class(c, a, 0, out)) return false;
  if (out->dtype == DT_BOOL) {
    ck_wrong_type(c, a->at[0], "a number");
    return false;
  }
  out->dtype = ty_arith(out->dtype, out->dtype);
  return ty_unify_shape(c, a->at, a->n, out);
}

static bool math(Check *c, const Args *a, Ty *out) {
  Expr *x = a->at[0];
  if (!ck_as_float(c, x)) return false;
  *out = x->ty;
  out->row = false;
  out->dtype =
      ty_is_float(&x->ty) ? ty_arith(x->ty.dtype, x->ty.dtype) : DT_F32;
  return true;
}

static bool selection(Check *c, const Args *a, Ty *out) {
  if (!ty_is_bool(&a->at[0]->ty)) {
    ck_wrong_type(c, a->at[0], "a bool");
    return false;
  }
  if (!same_class(c, a, 1, out)) return false;
  return ty_unify_shape(c, a->at, a->n, out);
}

// Of integers.
static bool random_number(Check *c, const Args *a, Ty *out) {
  for (uint32_t i = 0; i < a->n; i++) {
    if (ty_is_int(&a->at[i]->ty)) continue;
    ck_wrong_type(c, a->at[i], "an integer");
    return false;
  }
  *out = ty_scalar(DT_F32, false);
  return ty_unify_shape(c, a->at, a->n, out);
}

static bool vectors(Check *c, Expr *e, const Builtin *b, const Args *a) {
  const Ty *x = &a->at[0]->ty, *y = &a->at[1]->ty;
  if (!ck_as_float(c, a->at[0]) || !ck_as_float(c, a->at[1])) return false;
  if (x->rank == 1 && y->rank == 1) return true;
  Diag *d = diag_add(c->cx, DIAG_contraction, e->span, b->name, "two vectors",
                     fe_shape_text(c, x), fe_shape_text(c, y));
  if (b->kind == BK_DOT && x->rank && y->rank)
    diag_note(c->cx, d, NOWHERE, "the product with a matrix is written @@");
  return false;
}

static bool dot(Check *c, Expr *e, const Builtin *b, const Args *a, Ty *out) {
  if (!vectors(c, e, b, a)) return false;
  const Ty *x = &a->at[0]->ty, *y = &a->at[1]->ty;
  *out = ty_scalar(ty_arith(x->dtype, y->dtype), false);
  if (b->kind == BK_OUTER) {
    out->rank = 2;
    out->shape[0] = x->shape[0];
    out->shape[1] = y->shape[0];
    return true;
  }
  if (fe_dims_equal(c->dims, x->shape[0], y->shape[0])) return true;
  Diag *d = diag_add(c->cx, DIAG_dot_dims, e->span, "dot",
                     dim_text(c, x->shape[0]), dim_text(c, y->shape[0]));
  diag_note(c->cx, d, a->at[0]->span, "a vector of %s",
            dim_text(c, x->shape[0]));
  diag_note(c->cx, d, a->at[1]->span, "a vector of %s",
            dim_text(c, y->shape[0]));
  ck_advise_multiple(c, d, x->shape[0], y->shape[0]);
  return false;
}

static bool concat(Check *c, Expr *e, const Args *a, Ty *out) {
  if (!same_class(c, a, 0, out)) return false;
  const Ty *first = &a->at[0]->ty;
  out->weak = false;
  out->rank = first->rank;
  memcpy(out->shape, first->shape, sizeof out->shape);
  for (uint32_t i = 0; i < a->n; i++) {
    const Ty *t = &a->at[i]->ty;
    bool fits = t->rank && t->rank == first->rank;
    for (int k = 1; fits && k < t->rank; k++)
      fits = fe_dims_equal(c->dims, t->shape[k], first->shape[k]);
    if (!fits) {
      diag_add(c->cx, DIAG_contraction, e->span, "concat",
               "vectors that agree in all axes but the first",
               fe_shape_text(c, first), fe_shape_text(c, t));
      return false;
    }
    if (i)
      out->shape[0] = dim_bin(c->dims, DIM_ADD, out->shape[0], t->shape[0]);
  }
  return true;
}

static bool vec(Check *c, Expr *e, const Args *a, Ty *out) {
  const Ty *t = &a->at[0]->ty;
  if (!a->binder || a->binder->role != IX_VEC) {
    diag_add(c->cx, DIAG_vec_binder, e->span, a->binder ? a->binder->name : "");
    return false;
  }
  if (a->binder->dim == DIM_NONE) return false;  // reported there
  e->binder = a->binder;
  if (t->rank >= MAX_RANK) {
    diag_add(c->cx, DIAG_too_many_axes, e->span, MAX_RANK);
    return false;
  }
  *out = *t;
  out->weak = out->row = false;
  out->rank = (uint8_t)(t->rank + 1);
  out->shape[0] = a->binder->dim;
  memcpy(out->shape + 1, t->shape, sizeof *t->shape * t->rank);
  return true;
}

// Operand and result dtype of a reduction.
static bool reduced(Check *c, int id, Expr *x, Ty *out) {
  *out = x->ty;
  out->weak = out->row = false;
  if (id == BI_any || id == BI_all || id == BI_count) {
    if (!ty_is_bool(&x->ty)) {
      ck_wrong_type(c, x, "a bool");
      return false;
    }
    out->dtype = id == BI_count ? DT_I64 : DT_BOOL;
    return true;
  }
  if (ty_is_bool(&x->ty)) {
    ck_wrong_type(c, x,
                  id == BI_sum ? "a number; count(..) counts" : "a number");
    return false;
  }
  if (id == BI_mean) {
    if (!ck_as_float(c, x)) return false;
    if (!ty_is_float(&x->ty)) out->dtype = DT_F32;
  }
  out->dtype = ty_arith(out->dtype, out->dtype);
  return true;
}

static bool reduction(Check *c, Expr *e, const Builtin *b, Args *a, Ty *out,
                      uint64_t *vary) {
  int id = e->sym->builtin;
  if (a->n > 1) {
    if (a->binder) {
      diag_add(c->cx, DIAG_bad_binder, e->span, a->binder->name, b->name);
      return false;
    }
    e->elementwise = true;
    return elementwise(c, a, out);
  }
  if (!bind(c, e, b, a) || !reduced(c, id, a->at[0], out)) return false;
  *vary = (*vary | ck_domain_vary(c, a->binder)) & ~index_bit(a->binder);
  return true;
}

static bool scan(Check *c, Expr *e, const Builtin *b, Args *a, Ty *out,
                 uint64_t *vary) {
  if (!bind(c, e, b, a) || !reduced(c, BI_sum, a->at[0], out)) return false;
  *vary |= ck_domain_vary(c, a->binder) | index_bit(a->binder);
  return true;
}

// A score of each key and how many are wanted, which is the same for all.
static bool topk(Check *c, Expr *e, const Builtin *b, Args *a, Ty *out,
                 uint64_t *vary) {
  Expr *s = a->at[0], *n = a->at[1];
  if (!bind(c, e, b, a) || !ck_as_float(c, s)) return false;
  bool same = !(n->vary & index_bit(a->binder));
  if (!ty_is_int(&n->ty) || n->ty.rank || !same) {
    ck_wrong_type(c, n, "an integer that is the same for all keys");
    return false;
  }
  if (s->ty.rank || ty_is_bool(&s->ty)) {
    ck_wrong_type(c, s, "a number");
    return false;
  }
  *out = ty_scalar(DT_BOOL, false);
  *vary |= ck_domain_vary(c, a->binder) | index_bit(a->binder);
  return true;
}

static bool family(Check *c, Expr *e, const Builtin *b, Args *a, Ty *out,
                   uint64_t *vary) {
  switch (b->kind) {
  case BK_MATH: return math(c, a, out);
  case BK_NUM: return elementwise(c, a, out);
  case BK_SELECT: return selection(c, a, out);
  case BK_STOP: *out = a->at[0]->ty; return true;
  case BK_RANDOM: return random_number(c, a, out);
  case BK_DOT:
  case BK_OUTER: return dot(c, e, b, a, out);
  case BK_VEC:
    if (!vec(c, e, a, out)) return false;
    *vary &= ~index_bit(a->binder);
    return true;
  case BK_CONCAT: return concat(c, e, a, out);
  case BK_REDUCE: return reduction(c, e, b, a, out, vary);
  case BK_SCAN: return scan(c, e, b, a, out, vary);
  case BK_TOPK: return topk(c, e, b, a, out, vary);
  case BK_GEN:
  case BK_CHECK: break;
  }
  return false;
}

bool fe_exclusive(const Expr *e) {
  for (uint32_t i = 0; i < e->args.n; i++)
    if (e->args.at[i].kind == ARG_NAMED && e->args.at[i].value->ival)
      return true;
  return false;
}

void ck_builtin(Check *c, Expr *e, Sym *sym) {
  const Builtin *b = &fe_builtins[sym->builtin];
  Args a = {0};
  Ty out;
  e->elementwise = false;
  e->binder = NULL;
  if (b->kind == BK_GEN || b->kind == BK_CHECK) {
    ck_check_builtin(c, e, sym);
    return;
  }
  if (!read_args(c, e, b, &a)) return;
  uint64_t vary = vary_of(&a);
  if (!family(c, e, b, &a, &out, &vary)) return;
  e->ty = out;
  e->vary = vary;
}
