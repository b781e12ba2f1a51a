// Dtypes and shapes: promotion, alignment by dim, what converts to what.
#include "frontend/checker.h"

Ty ty_error(void) {
  return (Ty){.kind = TY_ERROR};
}

Ty ty_scalar(DType t, bool weak) {
  return (Ty){.kind = TY_VALUE, .dtype = t, .weak = weak};
}

static bool has_kind(const Ty *t, const char *kinds) {
  return t->kind == TY_VALUE && strchr(kinds, dtype_kind(t->dtype)) != NULL;
}
bool ty_is_float(const Ty *t) {
  return has_kind(t, "f");
}
bool ty_is_int(const Ty *t) {
  return has_kind(t, "iu");
}
bool ty_is_bool(const Ty *t) {
  return has_kind(t, "b");
}

DType ty_arith(DType a, DType b) {
  if (a == DT_BOOL && b == DT_BOOL) return DT_BOOL;
  if (!dtype_is_float(a) && !dtype_is_float(b)) return DT_I64;
  return a == DT_F64 || b == DT_F64 ? DT_F64 : DT_F32;
}

DType ty_join(DType a, DType b) {
  return a == b ? a : ty_arith(a, b);
}

// --- dims ------------------------------------------------------------------

enum { MAX_CHOICES = 4096 };

static bool fixed_choices(const DimTab *t, const uint32_t *sym, uint32_t n) {
  uint64_t all = 1;
  for (uint32_t i = 0; i < n; i++) {
    const DimSym *s = &t->syms.at[sym[i]];
    if (s->kind != DIM_SPEC || s->values.n == 0 || s->open) return false;
    all *= s->values.n;
    if (all > MAX_CHOICES) return false;
  }
  return true;
}

// Compares for each combination of values of the symbols sym[0..n).
static bool equal_by_values(const DimTab *t, Dim a, Dim b, const uint32_t *sym,
                            uint32_t n, int64_t *env) {
  uint32_t at[8] = {0};
  for (;;) {
    for (uint32_t i = 0; i < n; i++)
      env[sym[i]] = t->syms.at[sym[i]].values.at[at[i]];
    int64_t va, vb;
    if (!dim_eval(t, a, env, &va) || !dim_eval(t, b, env, &vb) || va != vb)
      return false;
    uint32_t i = 0;
    while (i < n && ++at[i] == t->syms.at[sym[i]].values.n) at[i++] = 0;
    if (i == n) return true;
  }
}

bool fe_dims_equal(const DimTab *t, Dim a, Dim b) {
  if (a == b) return true;
  if (a == DIM_NONE || b == DIM_NONE) return false;
  uint32_t sym[8], n = 0;
  for (uint32_t i = 0; i < t->syms.n; i++) {
    bool in_a = dim_uses(t, a, i);
    if (in_a != dim_uses(t, b, i)) return false;
    if (!in_a) continue;
    if (n == 8) return false;
    sym[n++] = i;
  }
  if (n == 0 || !fixed_choices(t, sym, n)) return false;
  ArenaMark m = arena_mark(t->arena);
  int64_t *env = NEWN(t->arena, int64_t, t->syms.n);
  bool same = equal_by_values(t, a, b, sym, n, env);
  arena_reset(t->arena, m);
  return same;
}

static bool is_one(const DimTab *t, Dim d) {
  int64_t v;
  return d != DIM_NONE && dim_is_const(t, d, &v) && v == 1;
}

// --- alignment -------------------------------------------------------------

// Number of ways (at most 2) to place axes from[i..] in order among to[j..];
// map is the first of them.
static int place(const DimTab *t, const Ty *from, int i, const Ty *to, int j,
                 uint8_t *map) {
  if (i == from->rank) return 1;
  int ways = 0;
  for (; j < to->rank && ways < 2; j++) {
    Dim d = from->shape[i];
    if (!fe_dims_equal(t, d, to->shape[j]) && !is_one(t, d)) continue;
    uint8_t rest[MAX_RANK];
    memcpy(rest, map, sizeof rest);
    int found = place(t, from, i + 1, to, j + 1, rest);
    if (found && !ways) {
      memcpy(map, rest, sizeof rest);
      map[i] = (uint8_t)j;
    }
    ways += found;
  }
  return ways > 2 ? 2 : ways;
}

static bool fits_plain(const DimTab *t, const Ty *a, const Ty *to) {
  for (int i = 0; i < a->rank; i++)
    if (!fe_dims_equal(t, a->shape[i], to->shape[i]) && !is_one(t, a->shape[i]))
      return false;
  return true;
}

bool fe_align(const DimTab *t, const Ty *from, const Ty *to,
              uint8_t map[MAX_RANK]) {
  for (int i = 0; i < MAX_RANK; i++) map[i] = (uint8_t)i;
  if (from->rank == to->rank) return fits_plain(t, from, to);
  return from->rank < to->rank && place(t, from, 0, to, 0, map) == 1;
}

// --- texts -----------------------------------------------------------------

const char *dim_text(Check *c, Dim d) {
  Buf b = {.arena = c->a};
  if (d == DIM_NONE) buf_str(&b, "?");
  else dim_print(c->dims, d, &b);
  return b.at;
}

static void add_shape(Check *c, const Ty *t, Buf *b) {
  for (int i = 0; i < t->rank; i++) {
    buf_str(b, i ? ", " : "[");
    buf_str(b, dim_text(c, t->shape[i]));
  }
  if (t->rank) buf_char(b, ']');
}

const char *fe_shape_text(Check *c, const Ty *t) {
  Buf b = {.arena = c->a};
  buf_str(&b, t->rank ? "" : "a scalar");
  add_shape(c, t, &b);
  return b.at;
}

const char *ty_text(Check *c, const Ty *t) {
  Buf b = {.arena = c->a};
  switch (t->kind) {
  case TY_VALUE:
    buf_str(&b, t->row ? "row " : "");
    buf_str(&b, t->dtype == DT_I64 ? "int" : dtype_name(t->dtype));
    add_shape(c, t, &b);
    break;
  case TY_TUPLE: buf_printf(&b, "%u results", t->nelems); break;
  case TY_STRING: buf_str(&b, "a string"); break;
  default: buf_str(&b, "no value"); break;
  }
  return b.at;
}

const char *fe_span_text(Check *c, Span s) {
  if (!span_known(s) || s.src >= c->cx->sources.n) return "";
  const Source *src = c->cx->sources.at[s.src];
  return arena_strndup(c->a, src->text + s.lo, s.hi - s.lo);
}

// --- elementwise shapes ----------------------------------------------------

static bool is_postfix(const Expr *e) {
  return e->kind == EX_NAME || e->kind == EX_INDEX || e->kind == EX_CALL ||
         e->kind == EX_MEMBER;
}

// x[:, 1] and x[1, :] for a vector that fits a matrix in two ways.
static void fix_axes(Check *c, Diag *d, const Expr *e) {
  const char *text = fe_span_text(c, e->span);
  const char *open = is_postfix(e) ? "" : "(";
  const char *close = is_postfix(e) ? "" : ")";
  static const char *const items[] = {"[:, 1]", "[1, :]"};
  static const char *const titles[] = {"scale rows", "scale columns"};
  for (int i = 0; i < 2; i++)
    diag_fix(c->cx, d, e->span,
             arena_printf(c->a, "%s%s%s%s", open, text, close, items[i]), "%s",
             titles[i]);
}

// Reports that e does not align with the merged shape of earlier operands, of
// which `other` set the rank.
static void misaligned(Check *c, const Expr *e, const Expr *other,
                       const Ty *merged) {
  const Expr *thin = e->ty.rank <= merged->rank ? e : other;
  const Ty *small = thin == e ? &e->ty : merged;
  const Ty *large = thin == e ? merged : &e->ty;
  uint8_t map[MAX_RANK] = {0};
  bool many =
      small->rank != large->rank && place(c->dims, small, 0, large, 0, map) > 1;
  Diag *d = diag_add(c->cx, many ? DIAG_shape_ambiguous : DIAG_shape_mismatch,
                     e->span, fe_shape_text(c, small), fe_shape_text(c, large));
  diag_note(c->cx, d, other->span, "this is %s", fe_shape_text(c, merged));
  if (many && small->rank == 1 && large->rank == 2) fix_axes(c, d, thin);
  for (int i = 0; small->rank == large->rank && i < small->rank; i++)
    ck_advise_multiple(c, d, small->shape[i], large->shape[i]);
}

// Merges the shape t into *out.
static bool merge(const DimTab *dims, const Ty *t, Ty *out) {
  uint8_t map[MAX_RANK];
  if (t->rank == 0) return true;
  if (t->rank < out->rank) return fe_align(dims, t, out, map);
  if (t->rank > out->rank) {
    if (out->rank && !fe_align(dims, out, t, map)) return false;
    out->rank = t->rank;
    memcpy(out->shape, t->shape, sizeof out->shape);
    return true;
  }
  for (int i = 0; i < t->rank; i++) {
    if (is_one(dims, out->shape[i])) out->shape[i] = t->shape[i];
    else if (!is_one(dims, t->shape[i]) &&
             !fe_dims_equal(dims, t->shape[i], out->shape[i]))
      return false;
  }
  return true;
}

bool ty_unify_shape(Check *c, Expr *const *at, uint32_t n, Ty *out) {
  const Expr *rank_from = at[0];
  out->rank = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (!merge(c->dims, &at[i]->ty, out)) {
      misaligned(c, at[i], rank_from, out);
      return false;
    }
    if (rank_from->ty.rank < at[i]->ty.rank) rank_from = at[i];
  }
  return true;
}

// --- conversions -----------------------------------------------------------

static FixIt *fix_cast(Check *c, Diag *d, const Expr *e, const char *to) {
  return diag_fix(c->cx, d, e->span,
                  arena_printf(c->a, "%s(%s)", to, fe_span_text(c, e->span)),
                  "convert with %s(..)", to);
}

void ck_wrong_type(Check *c, const Expr *e, const char *want) {
  diag_add(c->cx, DIAG_type_mismatch, e->span, want, ty_text(c, &e->ty));
}

bool ck_value(Check *c, Expr *e) {
  if (e->ty.kind == TY_VALUE) return true;
  if (e->ty.kind == TY_TUPLE)
    diag_add(c->cx, DIAG_tuple_value, e->span, e->ty.nelems);
  else if (e->ty.kind != TY_ERROR) ck_wrong_type(c, e, "a value");
  return false;
}

bool ck_as_float(Check *c, Expr *e) {
  if (ty_is_float(&e->ty)) return true;
  if (ty_is_int(&e->ty)) {
    if (e->ty.weak) return true;
    Diag *d = diag_add(c->cx, DIAG_int_as_float, e->span);
    fix_cast(c, d, e, "f32")->sure = true;
  } else {
    ck_wrong_type(c, e, "a float");
  }
  return false;
}

static bool fits_dtype(Check *c, Expr *e, const Ty *want, bool store,
                       const char *what) {
  const Ty *t = &e->ty;
  const char *to = want->dtype == DT_I64 ? "int" : dtype_name(want->dtype);
  if (ty_is_bool(want) || ty_is_bool(t)) {
    if (ty_is_bool(want) && ty_is_bool(t)) return true;
    ck_wrong_type(c, e, ty_is_bool(want) ? "a bool" : "a number");
    return false;
  }
  if (ty_is_float(want)) {
    if (!ck_as_float(c, e)) return false;
  } else if (ty_is_float(t)) {
    Diag *d = diag_add(c->cx, DIAG_float_as_int, e->span);
    fix_cast(c, d, e, to);
    return false;
  }
  bool wide =
      want->dtype == DT_I64 || (ty_is_float(want) && ty_is_float(t) &&
                                ty_join(t->dtype, want->dtype) == want->dtype);
  if (store || t->weak || t->dtype == want->dtype || wide) return true;
  Diag *d = diag_add(c->cx, DIAG_narrowing, e->span, ty_text(c, t), what, to);
  fix_cast(c, d, e, to);
  return false;
}

bool ck_fits(Check *c, Expr *e, const Ty *want, bool store, const char *what) {
  if (bad(&e->ty) || bad(want)) return false;
  return ck_value(c, e) && fits_dtype(c, e, want, store, what);
}
