// Symbolic dimensions. Every Dim is kept as a polynomial: a left-nested sum of
// terms in one structural order, the constant last; a term is a product of
// atoms (symbols, divisions, remainders, min, max) times a coefficient. The
// order never depends on ids, so a table that is printed and read back prints
// the same. Sums and products that would overflow or grow past MAX_TERMS stay
// as written (DimExpr.value = 1) and act as atoms.
#include "ir/core/dim.h"

#include <assert.h>
#include <string.h>

enum { MAX_TERMS = 64, MAX_ATOMS = 16 };
#define MAX_CONST ((int64_t)1 << 62)

typedef struct Term {
  int64_t c;
  Dim mono;  // product of atoms; DIM_NONE: the constant term
} Term;

typedef struct Poly {
  uint32_t n;
  Term t[MAX_TERMS];
} Poly;

// ---------------------------------------------------------------- tables
void dim_init(DimTab *t, Arena *a) {
  *t = (DimTab){.arena = a, .index = {.arena = a}};
  vec_push(a, &t->exprs, ((DimExpr){0}));
}

bool dim_find_sym(const DimTab *t, const char *name, uint32_t *sym) {
  for (uint32_t i = 0; i < t->syms.n; i++) {
    if (strcmp(t->syms.at[i].name, name) != 0) continue;
    *sym = i;
    return true;
  }
  return false;
}

bool dim_takes(const DimSym *s, int64_t v) {
  for (uint32_t i = 0; i < s->values.n; i++)
    if (s->values.at[i] == v) return true;
  return (!s->values.n || s->open) && v >= s->lo && v <= s->hi;
}

uint32_t dim_add_sym(DimTab *t, const char *name, DimKind kind) {
  uint32_t i;
  if (dim_find_sym(t, name, &i)) return i;
  DimSym s = {.name = arena_strdup(t->arena, name),
              .kind = kind,
              .hi = DIM_UNBOUNDED,
              .divisor = 1};
  vec_push(t->arena, &t->syms, s);
  return t->syms.n - 1;
}

static Dim intern_expr(DimTab *t, DimExpr e) {
  int64_t key[4] = {e.op, e.value, e.a, e.b};
  uint64_t h = map_hash(key, sizeof key, 0), id;
  for (; map_get(&t->index, h, &id); h++) {
    const DimExpr *o = &t->exprs.at[id];
    if (o->op == e.op && o->value == e.value && o->a == e.a && o->b == e.b)
      return (Dim)id;
  }
  vec_push(t->arena, &t->exprs, e);
  map_put(&t->index, h, t->exprs.n - 1);
  return t->exprs.n - 1;
}

static const DimExpr *expr(const DimTab *t, Dim d) {
  assert(d != DIM_NONE && d < t->exprs.n);
  return &t->exprs.at[d];
}

static bool fits(int64_t v) {
  return v >= -MAX_CONST && v <= MAX_CONST;
}

Dim dim_const(DimTab *t, int64_t v) {
  if (!fits(v)) return DIM_NONE;
  return intern_expr(t, (DimExpr){.op = DIM_CONST, .value = v});
}

Dim dim_sym(DimTab *t, uint32_t sym) {
  assert(sym < t->syms.n);
  return intern_expr(t, (DimExpr){.op = DIM_SYM, .value = sym});
}

bool dim_is_total(const DimSym *all, const DimSym *ragged) {
  size_t n = strlen(ragged->name);
  return ragged->kind == DIM_RAGGED && !strncmp(all->name, ragged->name, n) &&
         !strcmp(all->name + n, "_total");
}

bool dim_is_const(const DimTab *t, Dim d, int64_t *v) {
  const DimExpr *e = expr(t, d);
  if (e->op != DIM_CONST) return false;
  if (v) *v = e->value;
  return true;
}

// Structural order, independent of ids.
static int compare(const DimTab *t, Dim a, Dim b) {
  if (a == b) return 0;
  const DimExpr *x = expr(t, a), *y = expr(t, b);
  if (x->op != y->op) {
    // Symbols before the rest, so that sums read naturally.
    if (x->op == DIM_SYM) return -1;
    if (y->op == DIM_SYM) return 1;
    return x->op < y->op ? -1 : 1;
  }
  if (x->value != y->value) return x->value < y->value ? -1 : 1;
  if (x->op == DIM_CONST || x->op == DIM_SYM) return 0;
  int c = compare(t, x->a, y->a);
  return c ? c : compare(t, x->b, y->b);
}

// ---------------------------------------------------------------- polynomials
static bool add_ok(int64_t a, int64_t b, int64_t *r) {
  return !__builtin_add_overflow(a, b, r) && fits(*r);
}

static bool mul_ok(int64_t a, int64_t b, int64_t *r) {
  return !__builtin_mul_overflow(a, b, r) && fits(*r);
}

static int64_t floormod(int64_t a, int64_t b) {
  return a - b * dim_floordiv(a, b);
}

// The constant term sorts last.
static int compare_mono(const DimTab *t, Dim a, Dim b) {
  if (a == b) return 0;
  if (a == DIM_NONE) return 1;
  if (b == DIM_NONE) return -1;
  return compare(t, a, b);
}

static Term to_term(const DimTab *t, Dim d) {
  const DimExpr *e = expr(t, d);
  if (e->op == DIM_CONST) return (Term){e->value, DIM_NONE};
  int64_t c;
  if (e->op == DIM_MUL && !e->value && dim_is_const(t, e->b, &c))
    return (Term){c, e->a};
  return (Term){1, d};
}

static void to_poly(const DimTab *t, Dim d, Poly *p) {
  const DimExpr *e = expr(t, d);
  p->n = 0;
  // A sum is nested to the left: collect from the right, then turn around.
  Term rev[MAX_TERMS];
  uint32_t n = 0;
  for (; e->op == DIM_ADD && !e->value; e = expr(t, d)) {
    rev[n++] = to_term(t, e->b);
    d = e->a;
  }
  rev[n++] = to_term(t, d);
  while (n) {
    Term x = rev[--n];
    if (x.c) p->t[p->n++] = x;
  }
}

// Adds c * mono, keeping the order. False if it does not fit.
static bool poly_add(const DimTab *t, Poly *p, Term x) {
  if (x.c == 0) return true;
  uint32_t i = 0;
  while (i < p->n && compare_mono(t, p->t[i].mono, x.mono) < 0) i++;
  if (i < p->n && p->t[i].mono == x.mono) {
    if (!add_ok(p->t[i].c, x.c, &p->t[i].c)) return false;
    if (p->t[i].c) return true;
    memmove(&p->t[i], &p->t[i + 1], (p->n - i - 1) * sizeof(Term));
    p->n--;
    return true;
  }
  if (p->n == MAX_TERMS) return false;
  memmove(&p->t[i + 1], &p->t[i], (p->n - i) * sizeof(Term));
  p->t[i] = x;
  p->n++;
  return true;
}

// A term c * (y // k) as c / k * y, if k divides c and all that y can be.
static bool undo_quotient(DimTab *t, Poly *p, uint32_t i) {
  Term x = p->t[i];
  const DimExpr *e = x.mono == DIM_NONE ? NULL : expr(t, x.mono);
  int64_t k;
  if (!e || e->op != DIM_FLOORDIV || !dim_is_const(t, e->b, &k)) return false;
  if (k <= 0 || x.c % k || dim_divisor(t, e->a) % k) return false;
  Poly y, r = *p;
  to_poly(t, e->a, &y);
  r.n--;
  memmove(&r.t[i], &r.t[i + 1], (r.n - i) * sizeof(Term));
  for (uint32_t j = 0; j < y.n; j++) {
    Term z = y.t[j];
    if (!mul_ok(z.c, x.c / k, &z.c) || !poly_add(t, &r, z)) return false;
  }
  *p = r;
  return true;
}

// Terms b * y + c * (y // k) as (b * k + c) * (y // k), if k divides all that y
// can be: what is left behind a half is a half.
static bool join_quotient(const DimTab *t, Poly *p, uint32_t i) {
  Term x = p->t[i];
  const DimExpr *e = x.mono == DIM_NONE ? NULL : expr(t, x.mono);
  int64_t k;
  if (!e || e->op != DIM_FLOORDIV || !dim_is_const(t, e->b, &k)) return false;
  if (k <= 0 || dim_divisor(t, e->a) % k) return false;
  uint32_t j = 0;
  while (j < p->n && p->t[j].mono != e->a) j++;
  Poly r = *p;
  if (j == p->n || !mul_ok(r.t[j].c, k, &x.c)) return false;
  r.n--;
  memmove(&r.t[j], &r.t[j + 1], (r.n - j) * sizeof(Term));
  if (!poly_add(t, &r, x)) return false;
  *p = r;
  return true;
}

static Dim from_poly(DimTab *t, Poly *p) {
  for (uint32_t i = 0; i < p->n;)
    i = undo_quotient(t, p, i) || join_quotient(t, p, i) ? 0 : i + 1;
  Dim sum = DIM_NONE;
  for (uint32_t i = 0; i < p->n; i++) {
    Term x = p->t[i];
    Dim d = x.mono;
    if (d == DIM_NONE) {
      d = dim_const(t, x.c);
    } else if (x.c != 1) {
      d = intern_expr(t, (DimExpr){DIM_MUL, 0, d, dim_const(t, x.c)});
    }
    sum = sum ? intern_expr(t, (DimExpr){DIM_ADD, 0, sum, d}) : d;
  }
  return sum ? sum : dim_const(t, 0);
}

static uint32_t atoms(const DimTab *t, Dim mono, Dim *out, uint32_t n) {
  if (mono == DIM_NONE) return n;
  const DimExpr *e = expr(t, mono);
  for (; e->op == DIM_MUL && !e->value; e = expr(t, mono)) {
    if (n < 2 * MAX_ATOMS) out[n++] = e->b;
    mono = e->a;
  }
  if (n < 2 * MAX_ATOMS) out[n++] = mono;
  return n;
}

static void sort_dims(const DimTab *t, Dim *d, uint32_t n) {
  for (uint32_t i = 1; i < n; i++)
    for (uint32_t j = i; j && compare(t, d[j - 1], d[j]) > 0; j--) {
      Dim swap = d[j];
      d[j] = d[j - 1];
      d[j - 1] = swap;
    }
}

static Dim from_atoms(DimTab *t, Dim *a, uint32_t n) {
  sort_dims(t, a, n);
  Dim m = DIM_NONE;
  for (uint32_t i = 0; i < n; i++)
    m = m ? intern_expr(t, (DimExpr){DIM_MUL, 0, m, a[i]}) : a[i];
  return m;
}

static bool mono_mul(DimTab *t, Dim a, Dim b, Dim *r) {
  Dim list[2 * MAX_ATOMS];
  uint32_t n = atoms(t, b, list, atoms(t, a, list, 0));
  if (n > MAX_ATOMS) return false;
  *r = from_atoms(t, list, n);
  return true;
}

// Divides mono by each atom of b; false if one is missing.
static bool mono_div(DimTab *t, Dim a, Dim b, Dim *r) {
  Dim list[2 * MAX_ATOMS], by[2 * MAX_ATOMS];
  uint32_t n = atoms(t, a, list, 0), m = atoms(t, b, by, 0);
  for (uint32_t i = 0; i < m; i++) {
    uint32_t j = 0;
    while (j < n && list[j] != by[i]) j++;
    if (j == n) return false;
    list[j] = list[--n];
  }
  *r = from_atoms(t, list, n);
  return true;
}

// ---------------------------------------------------------------- facts
static int64_t gcd(int64_t a, int64_t b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b) {
    int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

// Whether the values listed are all that there are.
static bool is_closed(const DimSym *s) {
  return s->values.n && !s->open;
}

static int64_t spec_divisor(const DimSym *s) {
  if (!is_closed(s)) return s->divisor;
  int64_t g = 0;
  for (uint32_t i = 0; i < s->values.n; i++) g = gcd(g, s->values.at[i]);
  return g > 1 && g % s->divisor == 0 ? g : s->divisor;
}

int64_t dim_divisor(const DimTab *t, Dim d) {
  const DimExpr *e = expr(t, d);
  int64_t a, b, r;
  switch (e->op) {
  case DIM_CONST: return e->value ? gcd(e->value, 0) : MAX_CONST;
  case DIM_SYM: r = spec_divisor(&t->syms.at[e->value]); return r > 0 ? r : 1;
  case DIM_FLOORDIV: return 1;
  case DIM_MOD:
  case DIM_ADD:
  case DIM_MIN:
  case DIM_MAX: return gcd(dim_divisor(t, e->a), dim_divisor(t, e->b));
  case DIM_MUL:
    a = dim_divisor(t, e->a);
    b = dim_divisor(t, e->b);
    return mul_ok(a, b, &r) ? r : a > b ? a : b;
  }
  return 1;
}

static int64_t sat_add(int64_t a, int64_t b) {
  int64_t r;
  if (!__builtin_add_overflow(a, b, &r)) return r;
  return a > 0 ? INT64_MAX : INT64_MIN;
}

static int64_t sat_mul(int64_t a, int64_t b) {
  int64_t r;
  if (!__builtin_mul_overflow(a, b, &r)) return r;
  return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

static int64_t min2(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static int64_t max2(int64_t a, int64_t b) {
  return a > b ? a : b;
}

typedef struct Range {
  int64_t lo, hi;
} Range;

static Range hull4(int64_t a, int64_t b, int64_t c, int64_t d) {
  return (Range){min2(min2(a, b), min2(c, d)), max2(max2(a, b), max2(c, d))};
}

static Range range(const DimTab *t, Dim d);

static Range range_div(Range a, Range b) {
  if (b.lo < 1) b.lo = 1;
  if (b.hi < b.lo) b.hi = b.lo;
  return hull4(dim_floordiv(a.lo, b.lo), dim_floordiv(a.lo, b.hi),
               dim_floordiv(a.hi, b.lo), dim_floordiv(a.hi, b.hi));
}

static Range range_mod(Range a, Range b) {
  if (b.lo >= 1 && a.lo >= 0 && a.hi < b.lo) return a;
  Range r = {0, b.hi > 1 ? b.hi - 1 : 0};
  if (a.lo >= 0 && a.hi < r.hi) r.hi = a.hi;
  return r;
}

static Range range_bin(DimOp op, Range a, Range b) {
  switch (op) {
  case DIM_ADD: return (Range){sat_add(a.lo, b.lo), sat_add(a.hi, b.hi)};
  case DIM_MUL:
    return hull4(sat_mul(a.lo, b.lo), sat_mul(a.lo, b.hi), sat_mul(a.hi, b.lo),
                 sat_mul(a.hi, b.hi));
  case DIM_FLOORDIV: return range_div(a, b);
  case DIM_MOD: return range_mod(a, b);
  case DIM_MIN: return (Range){min2(a.lo, b.lo), min2(a.hi, b.hi)};
  case DIM_MAX: return (Range){max2(a.lo, b.lo), max2(a.hi, b.hi)};
  case DIM_CONST:
  case DIM_SYM: break;
  }
  return (Range){INT64_MIN, INT64_MAX};
}

static Range range(const DimTab *t, Dim d) {
  const DimExpr *e = expr(t, d);
  if (e->op == DIM_CONST) return (Range){e->value, e->value};
  if (e->op != DIM_SYM) return range_bin(e->op, range(t, e->a), range(t, e->b));
  const DimSym *s = &t->syms.at[e->value];
  if (!is_closed(s)) return (Range){s->lo, s->hi};
  return (Range){max2(s->lo, s->values.at[0]),
                 min2(s->hi, s->values.at[s->values.n - 1])};
}

void dim_bounds(const DimTab *t, Dim d, int64_t *lo, int64_t *hi) {
  Range r = range(t, d);
  *lo = r.lo;
  *hi = r.hi;
}

// ---------------------------------------------------------------- building
static Dim as_written(DimTab *t, DimOp op, Dim a, Dim b) {
  if (compare(t, a, b) > 0) {
    Dim swap = a;
    a = b;
    b = swap;
  }
  return intern_expr(t, (DimExpr){op, 1, a, b});
}

static Dim make_add(DimTab *t, Dim a, Dim b) {
  Poly p, q;
  to_poly(t, a, &p);
  to_poly(t, b, &q);
  for (uint32_t i = 0; i < q.n; i++)
    if (!poly_add(t, &p, q.t[i])) return as_written(t, DIM_ADD, a, b);
  return from_poly(t, &p);
}

static Dim make_mul(DimTab *t, Dim a, Dim b) {
  Poly p, q, r = {0};
  to_poly(t, a, &p);
  to_poly(t, b, &q);
  for (uint32_t i = 0; i < p.n; i++)
    for (uint32_t j = 0; j < q.n; j++) {
      Term x;
      if (!mul_ok(p.t[i].c, q.t[j].c, &x.c) ||
          !mono_mul(t, p.t[i].mono, q.t[j].mono, &x.mono) ||
          !poly_add(t, &r, x))
        return as_written(t, DIM_MUL, a, b);
    }
  return from_poly(t, &r);
}

static Dim raw_bin(DimTab *t, DimOp op, Dim a, Dim b) {
  return intern_expr(t, (DimExpr){op, 0, a, b});
}

// floor((c*x + y) / c) = x + floor(y / c), then a common factor is divided out
// of y and c.
static Dim div_const(DimTab *t, Dim a, int64_t c) {
  if (c == 1) return a;
  Poly p, whole = {0}, rest = {0};
  to_poly(t, a, &p);
  int64_t g = c;
  for (uint32_t i = 0; i < p.n; i++) {
    Term x = p.t[i];
    int64_t q = x.c % c == 0 || !x.mono ? dim_floordiv(x.c, c) : 0;
    if (q) poly_add(t, &whole, (Term){q, x.mono});
    x.c -= q * c;
    poly_add(t, &rest, x);
    if (x.mono && x.c) g = gcd(g, x.c);
  }
  for (uint32_t i = 0; i < rest.n; i++)
    rest.t[i].c = dim_floordiv(rest.t[i].c, g);
  if (rest.n && rest.t[rest.n - 1].c == 0) rest.n--;
  c /= g;
  Dim y = from_poly(t, &rest), w = from_poly(t, &whole);
  Range r = range(t, y);
  if (r.lo >= 0 && r.hi < c) return w;
  if (c == 1) return make_add(t, w, y);
  const DimExpr *e = expr(t, y);
  int64_t inner, both;
  if (e->op == DIM_FLOORDIV && dim_is_const(t, e->b, &inner) && inner > 0 &&
      mul_ok(inner, c, &both))
    return make_add(t, w, div_const(t, e->a, both));
  return make_add(t, w, raw_bin(t, DIM_FLOORDIV, y, dim_const(t, c)));
}

// All terms of a divided by the one term b, if all are multiples.
static bool div_exact(DimTab *t, Dim a, Dim b, Dim *out) {
  Poly p, q;
  to_poly(t, a, &p);
  to_poly(t, b, &q);
  if (q.n != 1 || q.t[0].c <= 0) return false;
  Poly r = {0};
  for (uint32_t i = 0; i < p.n; i++) {
    Term x;
    if (p.t[i].c % q.t[0].c) return false;
    x.c = p.t[i].c / q.t[0].c;
    if (!mono_div(t, p.t[i].mono, q.t[0].mono, &x.mono)) return false;
    if (!poly_add(t, &r, x)) return false;
  }
  *out = from_poly(t, &r);
  return true;
}

static Dim make_div(DimTab *t, Dim a, Dim b) {
  int64_t c;
  Dim d;
  bool known = dim_is_const(t, b, &c);
  if (known && c > 0) return div_const(t, a, c);
  if (!known && div_exact(t, a, b, &d)) return d;
  return raw_bin(t, DIM_FLOORDIV, a, b);
}

static Dim mod_const(DimTab *t, Dim a, int64_t c) {
  Poly p, rest = {0};
  to_poly(t, a, &p);
  for (uint32_t i = 0; i < p.n; i++) {
    Term x = p.t[i];
    int64_t by;
    if (x.mono && mul_ok(x.c, dim_divisor(t, x.mono), &by) && by % c == 0)
      continue;
    x.c = floormod(x.c, c);
    poly_add(t, &rest, x);
  }
  Dim y = from_poly(t, &rest);
  Range r = range(t, y);
  if (r.lo >= 0 && r.hi < c) return y;
  const DimExpr *e = expr(t, y);
  int64_t inner;
  if (e->op == DIM_MOD && dim_is_const(t, e->b, &inner) && inner > 0 &&
      inner % c == 0)
    return mod_const(t, e->a, c);
  return raw_bin(t, DIM_MOD, y, dim_const(t, c));
}

static Dim make_mod(DimTab *t, Dim a, Dim b) {
  int64_t c;
  Dim d;
  bool known = dim_is_const(t, b, &c);
  if (known && c > 0) return mod_const(t, a, c);
  if (!known && div_exact(t, a, b, &d)) return dim_const(t, 0);
  return raw_bin(t, DIM_MOD, a, b);
}

static uint32_t choices(const DimTab *t, DimOp op, Dim d, Dim *out,
                        uint32_t n) {
  for (const DimExpr *e = expr(t, d); e->op == op; e = expr(t, d)) {
    if (n < 2 * MAX_ATOMS) out[n++] = e->b;
    d = e->a;
  }
  if (n < 2 * MAX_ATOMS) out[n++] = d;
  return n;
}

// True if a <= b always.
static bool never_above(DimTab *t, Dim a, Dim b) {
  if (range(t, a).hi <= range(t, b).lo) return true;
  return range(t, dim_sub(t, b, a)).lo >= 0;
}

static Dim make_minmax(DimTab *t, DimOp op, Dim a, Dim b) {
  Dim list[2 * MAX_ATOMS];
  uint32_t n = choices(t, op, b, list, choices(t, op, a, list, 0)), kept = 0;
  if (n > MAX_ATOMS) return raw_bin(t, op, a, b);
  sort_dims(t, list, n);
  for (uint32_t i = 0; i < n; i++) {
    bool need = true;
    for (uint32_t j = 0; j < n && need; j++) {
      if (i == j || list[j] == DIM_NONE) continue;
      need = op == DIM_MIN ? !never_above(t, list[j], list[i])
                           : !never_above(t, list[i], list[j]);
    }
    if (!need) list[i] = DIM_NONE;
  }
  for (uint32_t i = 0; i < n; i++)
    if (list[i]) list[kept++] = list[i];
  Dim d = list[0];
  for (uint32_t i = 1; i < kept; i++) d = raw_bin(t, op, d, list[i]);
  return d;
}

Dim dim_bin(DimTab *t, DimOp op, Dim a, Dim b) {
  if (a == DIM_NONE || b == DIM_NONE) return DIM_NONE;
  switch (op) {
  case DIM_ADD: return make_add(t, a, b);
  case DIM_MUL: return make_mul(t, a, b);
  case DIM_FLOORDIV: return make_div(t, a, b);
  case DIM_MOD: return make_mod(t, a, b);
  case DIM_MIN:
  case DIM_MAX: return make_minmax(t, op, a, b);
  case DIM_CONST:
  case DIM_SYM: break;
  }
  assert(false && "not a binary dim operator");
  return DIM_NONE;
}

Dim dim_sub(DimTab *t, Dim a, Dim b) {
  if (a == DIM_NONE || b == DIM_NONE) return DIM_NONE;
  return make_add(t, a, make_mul(t, b, dim_const(t, -1)));
}

Dim dim_ceildiv(DimTab *t, Dim a, int64_t b) {
  assert(b > 0);
  return make_div(t, make_add(t, a, dim_const(t, b - 1)), dim_const(t, b));
}

// ---------------------------------------------------------------- using
static bool eval_bin(DimOp op, int64_t a, int64_t b, int64_t *v) {
  switch (op) {
  case DIM_ADD: return !__builtin_add_overflow(a, b, v);
  case DIM_MUL: return !__builtin_mul_overflow(a, b, v);
  case DIM_FLOORDIV:
    if (b <= 0) return false;
    *v = dim_floordiv(a, b);
    return true;
  case DIM_MOD:
    if (b <= 0) return false;
    *v = floormod(a, b);
    return true;
  case DIM_MIN: *v = min2(a, b); return true;
  case DIM_MAX: *v = max2(a, b); return true;
  case DIM_CONST:
  case DIM_SYM: break;
  }
  return false;
}

bool dim_eval(const DimTab *t, Dim d, const int64_t *sym, int64_t *v) {
  const DimExpr *e = expr(t, d);
  int64_t a, b;
  if (e->op == DIM_CONST || e->op == DIM_SYM) {
    *v = e->op == DIM_CONST ? e->value : sym[e->value];
    return true;
  }
  return dim_eval(t, e->a, sym, &a) && dim_eval(t, e->b, sym, &b) &&
         eval_bin(e->op, a, b, v);
}

static uint32_t copy_sym(const DimTab *from, DimTab *to, uint32_t sym) {
  const DimSym *s = &from->syms.at[sym];
  uint32_t had = to->syms.n, i = dim_add_sym(to, s->name, s->kind);
  if (i < had) return i;
  DimSym *n = &to->syms.at[i];
  n->lo = s->lo;
  n->hi = s->hi;
  n->divisor = s->divisor;
  n->open = s->open;
  n->by = s->by;
  for (uint32_t k = 0; k < s->values.n; k++)
    vec_push(to->arena, &n->values, s->values.at[k]);
  return i;
}

Dim dim_subst(const DimTab *from, DimTab *to, Dim d, const Dim *map) {
  if (d == DIM_NONE) return d;
  DimExpr e = *expr(from, d);  // by value: `to` may be `from`
  if (e.op == DIM_CONST) return dim_const(to, e.value);
  if (e.op == DIM_SYM) {
    uint32_t sym = (uint32_t)e.value;
    if (map && map[sym] != DIM_NONE) return map[sym];
    return dim_sym(to, from == to ? sym : copy_sym(from, to, sym));
  }
  Dim a = dim_subst(from, to, e.a, map);
  return dim_bin(to, e.op, a, dim_subst(from, to, e.b, map));
}

bool dim_uses(const DimTab *t, Dim d, uint32_t sym) {
  const DimExpr *e = expr(t, d);
  if (e->op == DIM_CONST) return false;
  if (e->op == DIM_SYM) return e->value == sym;
  return dim_uses(t, e->a, sym) || dim_uses(t, e->b, sym);
}

bool dim_is_fixed(const DimTab *t, Dim d) {
  for (uint32_t i = 0; i < t->syms.n; i++)
    if (t->syms.at[i].kind != DIM_SPEC && dim_uses(t, d, i)) return false;
  return true;
}
