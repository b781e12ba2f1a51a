// Text of symbolic dimensions: "2 * Sk - Sq + 1", "min(n, (Sk + 15) // 16)".
#include "ir/core/dim.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

enum { MAX_DEPTH = 256, MAX_OPERATORS = 256, MAX_NAME = 255 };
#define MAX_CONST ((int64_t)1 << 62)

// ---------------------------------------------------------------- printing
typedef enum Prec { P_SUM, P_PRODUCT, P_FACTOR } Prec;

static void print(const DimTab *t, Dim d, Prec prec, Buf *out);

static const DimExpr *expr(const DimTab *t, Dim d) {
  return &t->exprs.at[d];
}

static bool is_sum(const DimExpr *e) {
  return e->op == DIM_ADD;
}

// The atoms of a product; `prec` binds the first.
static void print_atoms(const DimTab *t, Dim d, Prec prec, Buf *out) {
  const DimExpr *e = expr(t, d);
  if (e->op != DIM_MUL || e->value) {
    print(t, d, prec, out);
    return;
  }
  print_atoms(t, e->a, prec, out);
  buf_str(out, " * ");
  print(t, e->b, P_FACTOR, out);
}

// A product without its sign. A leading minus binds to the first atom only.
static void print_product(const DimTab *t, Dim d, bool leading, Buf *out) {
  const DimExpr *e = expr(t, d);
  if (e->value) {
    print(t, e->a, P_FACTOR, out);
    buf_str(out, " * ");
    print(t, e->b, P_FACTOR, out);
  } else if (expr(t, e->b)->op == DIM_CONST) {
    int64_t c = expr(t, e->b)->value;
    if (c != -1) buf_printf(out, "%lld * ", (long long)(c < 0 ? -c : c));
    print_atoms(t, e->a, c == -1 && !leading ? P_PRODUCT : P_FACTOR, out);
  } else {
    print_atoms(t, d, P_PRODUCT, out);
  }
}

static bool negative(const DimTab *t, Dim d) {
  const DimExpr *e = expr(t, d);
  if (e->op == DIM_MUL && !e->value) e = expr(t, e->b);
  return e->op == DIM_CONST && e->value < 0;
}

// A term without its sign.
static void print_term(const DimTab *t, Dim d, bool leading, Buf *out) {
  const DimExpr *e = expr(t, d);
  if (e->op == DIM_CONST) {
    buf_printf(out, "%lld", (long long)(e->value < 0 ? -e->value : e->value));
  } else if (e->op == DIM_MUL) {
    print_product(t, d, leading, out);
  } else {
    print(t, d, P_PRODUCT, out);
  }
}

// Terms to add first, those to subtract after them, the constant last.
static void print_sum(const DimTab *t, Dim d, Buf *out) {
  Dim term[MAX_OPERATORS];
  uint32_t n = 0;
  const DimExpr *e = expr(t, d);
  for (; is_sum(e) && !e->value && n < MAX_OPERATORS - 1; e = expr(t, d)) {
    term[n++] = e->b;
    d = e->a;
  }
  term[n++] = d;
  uint32_t start = out->n;
  for (int pass = 0; pass < 3; pass++) {
    for (uint32_t i = n; i-- > 0;) {
      bool minus = negative(t, term[i]);
      bool last = expr(t, term[i])->op == DIM_CONST;
      if ((last ? 2 : minus ? 1 : 0) != pass) continue;
      bool leading = out->n == start;
      if (!leading) buf_str(out, minus ? " - " : " + ");
      else if (minus) buf_char(out, '-');
      print_term(t, term[i], leading, out);
    }
  }
}

static void print_call(const DimTab *t, Dim d, Buf *out) {
  Dim arg[MAX_OPERATORS];
  uint32_t n = 0;
  DimOp op = expr(t, d)->op;
  for (; expr(t, d)->op == op && n < MAX_OPERATORS - 1; d = expr(t, d)->a)
    arg[n++] = expr(t, d)->b;
  arg[n++] = d;
  buf_str(out, op == DIM_MIN ? "min(" : "max(");
  while (n) {
    print(t, arg[--n], P_SUM, out);
    buf_str(out, n ? ", " : ")");
  }
}

static Prec prec_of(const DimTab *t, Dim d) {
  const DimExpr *e = expr(t, d);
  if (is_sum(e) || negative(t, d)) return P_SUM;
  if (e->op == DIM_MUL || e->op == DIM_FLOORDIV || e->op == DIM_MOD)
    return P_PRODUCT;
  return P_FACTOR;
}

static void print_plain(const DimTab *t, Dim d, Buf *out) {
  const DimExpr *e = expr(t, d);
  switch (e->op) {
  case DIM_SYM: buf_str(out, t->syms.at[e->value].name); break;
  case DIM_ADD:
    if (!e->value) {
      print_sum(t, d, out);
      break;
    }
    print(t, e->a, P_FACTOR, out);
    buf_str(out, " + ");
    print(t, e->b, P_FACTOR, out);
    break;
  case DIM_CONST:
  case DIM_MUL:
    if (negative(t, d)) buf_char(out, '-');
    print_term(t, d, true, out);
    break;
  case DIM_FLOORDIV:
  case DIM_MOD:
    print(t, e->a, P_PRODUCT, out);
    buf_str(out, e->op == DIM_MOD ? " % " : " // ");
    print(t, e->b, P_FACTOR, out);
    break;
  case DIM_MIN:
  case DIM_MAX: print_call(t, d, out); break;
  }
}

static void print(const DimTab *t, Dim d, Prec prec, Buf *out) {
  bool paren = prec_of(t, d) < prec;
  if (paren) buf_char(out, '(');
  print_plain(t, d, out);
  if (paren) buf_char(out, ')');
}

void dim_print(const DimTab *t, Dim d, Buf *out) {
  assert(d != DIM_NONE && d < t->exprs.n);
  print(t, d, P_SUM, out);
}

// ---------------------------------------------------------------- parsing
typedef struct Reader {
  DimTab *t;
  const char *p;
  bool add;
  int depth, left;  // nesting; operators still allowed
} Reader;

static Dim read_sum(Reader *r);

static void skip(Reader *r) {
  for (;;) {
    if (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r') {
      r->p++;
    } else if (*r->p == '#') {
      while (*r->p && *r->p != '\n') r->p++;
    } else {
      return;
    }
  }
}

static bool accept(Reader *r, const char *s) {
  skip(r);
  size_t n = strlen(s);
  if (strncmp(r->p, s, n) != 0) return false;
  r->p += n;
  return true;
}

static Dim read_number(Reader *r) {
  int64_t v = 0;
  for (; isdigit((unsigned char)*r->p); r->p++) {
    int digit = *r->p - '0';
    if (v > (MAX_CONST - digit) / 10) return DIM_NONE;
    v = v * 10 + digit;
  }
  return dim_const(r->t, v);
}

static Dim read_call(Reader *r, DimOp op) {
  Dim d = read_sum(r);
  while (d && accept(r, ",")) {
    Dim e = r->left-- > 0 ? read_sum(r) : DIM_NONE;
    d = e ? dim_bin(r->t, op, d, e) : DIM_NONE;
  }
  return d && accept(r, ")") ? d : DIM_NONE;
}

static bool name_char(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '.';
}

static Dim read_name(Reader *r) {
  char name[MAX_NAME + 1];
  size_t n = 0;
  while (name_char(r->p[n])) n++;
  if (n > MAX_NAME) return DIM_NONE;
  memcpy(name, r->p, n);
  name[n] = 0;
  const char *after = r->p + n;
  bool call = strcmp(name, "min") == 0 || strcmp(name, "max") == 0;
  if (call && *after == '(') {
    r->p = after + 1;
    return read_call(r, name[1] == 'i' ? DIM_MIN : DIM_MAX);
  }
  uint32_t sym;
  if (!dim_find_sym(r->t, name, &sym)) {
    if (!r->add) return DIM_NONE;
    sym = dim_add_sym(r->t, name, DIM_DYN);
  }
  r->p = after;
  return dim_sym(r->t, sym);
}

static Dim read_factor(Reader *r) {
  if (r->depth >= MAX_DEPTH) return DIM_NONE;
  r->depth++;
  Dim d = DIM_NONE;
  skip(r);
  if (isdigit((unsigned char)*r->p)) {
    d = read_number(r);
  } else if (isalpha((unsigned char)*r->p) || *r->p == '_') {
    d = read_name(r);
  } else if (accept(r, "(")) {
    d = read_sum(r);
    if (d && !accept(r, ")")) d = DIM_NONE;
  } else if (accept(r, "-")) {
    d = read_factor(r);
    if (d) d = dim_bin(r->t, DIM_MUL, d, dim_const(r->t, -1));
  }
  r->depth--;
  return d;
}

static Dim read_product(Reader *r) {
  Dim d = read_factor(r);
  while (d) {
    DimOp op;
    if (accept(r, "//")) op = DIM_FLOORDIV;
    else if (accept(r, "*")) op = DIM_MUL;
    else if (accept(r, "%")) op = DIM_MOD;
    else break;
    Dim e = r->left-- > 0 ? read_factor(r) : DIM_NONE;
    d = e ? dim_bin(r->t, op, d, e) : DIM_NONE;
  }
  return d;
}

static Dim read_sum(Reader *r) {
  Dim d = read_product(r);
  while (d) {
    bool minus;
    if (accept(r, "+")) minus = false;
    else if (accept(r, "-")) minus = true;
    else break;
    Dim e = r->left-- > 0 ? read_product(r) : DIM_NONE;
    if (!e) return DIM_NONE;
    d = minus ? dim_sub(r->t, d, e) : dim_bin(r->t, DIM_ADD, d, e);
  }
  return d;
}

Dim dim_parse(DimTab *t, const char **p, bool add) {
  Reader r = {.t = t, .p = *p, .add = add, .left = MAX_OPERATORS};
  Dim d = read_sum(&r);
  *p = r.p;
  return d;
}
