// Text of symbolic dimensions: "2 * Sk - Sq + 1", "min(n, (Sk + 15) // 16)".
#include "ir/core/dim.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

enum { MAX_DEPTH = 256, MAX_OPERATORS = 256, MAX_NAME = 255 };
#define MAX_CONST ((int64_t)1 << 62)

// ---------------------------------------------------------------- printing
typedef struct Writer {
  const DimTab *t;
  DimNames *names;  // NULL: all in full
  Buf *out;
} Writer;

typedef enum Prec { P_SUM, P_PRODUCT, P_FACTOR } Prec;

static void print(const Writer *w, Dim d, Prec prec);

static const DimExpr *expr(const Writer *w, Dim d) {
  return &w->t->exprs.at[d];
}

static bool is_sum(const DimExpr *e) {
  return e->op == DIM_ADD;
}

// The atoms of a product; `prec` binds the first.
static void print_atoms(const Writer *w, Dim d, Prec prec) {
  const DimExpr *e = expr(w, d);
  if (e->op != DIM_MUL || e->value) {
    print(w, d, prec);
    return;
  }
  print_atoms(w, e->a, prec);
  buf_str(w->out, " * ");
  print(w, e->b, P_FACTOR);
}

// A product without its sign. A leading minus binds to the first atom only.
static void print_product(const Writer *w, Dim d, bool leading) {
  const DimExpr *e = expr(w, d);
  if (e->value) {
    print(w, e->a, P_FACTOR);
    buf_str(w->out, " * ");
    print(w, e->b, P_FACTOR);
  } else if (expr(w, e->b)->op == DIM_CONST) {
    int64_t c = expr(w, e->b)->value;
    if (c != -1) buf_printf(w->out, "%lld * ", (long long)(c < 0 ? -c : c));
    print_atoms(w, e->a, c == -1 && !leading ? P_PRODUCT : P_FACTOR);
  } else {
    print_atoms(w, d, P_PRODUCT);
  }
}

static bool negative(const Writer *w, Dim d) {
  const DimExpr *e = expr(w, d);
  if (e->op == DIM_MUL && !e->value) e = expr(w, e->b);
  return e->op == DIM_CONST && e->value < 0;
}

// A term without its sign.
static void print_term(const Writer *w, Dim d, bool leading) {
  const DimExpr *e = expr(w, d);
  if (e->op == DIM_CONST) {
    int64_t c = e->value < 0 ? -e->value : e->value;
    buf_printf(w->out, "%lld", (long long)c);
  } else if (e->op == DIM_MUL) {
    print_product(w, d, leading);
  } else {
    print(w, d, P_PRODUCT);
  }
}

// Terms to add first, those to subtract after them, the constant last.
static void print_sum(const Writer *w, Dim d) {
  Dim term[MAX_OPERATORS];
  uint32_t n = 0;
  const DimExpr *e = expr(w, d);
  for (; is_sum(e) && !e->value && n < MAX_OPERATORS - 1; e = expr(w, d)) {
    term[n++] = e->b;
    d = e->a;
  }
  term[n++] = d;
  uint32_t start = w->out->n;
  for (int pass = 0; pass < 3; pass++) {
    for (uint32_t i = n; i-- > 0;) {
      bool minus = negative(w, term[i]);
      bool last = expr(w, term[i])->op == DIM_CONST;
      if ((last ? 2 : minus ? 1 : 0) != pass) continue;
      bool leading = w->out->n == start;
      if (!leading) buf_str(w->out, minus ? " - " : " + ");
      else if (minus) buf_char(w->out, '-');
      print_term(w, term[i], leading);
    }
  }
}

static void print_call(const Writer *w, Dim d) {
  Dim arg[MAX_OPERATORS];
  uint32_t n = 0;
  DimOp op = expr(w, d)->op;
  for (; expr(w, d)->op == op && n < MAX_OPERATORS - 1; d = expr(w, d)->a)
    arg[n++] = expr(w, d)->b;
  arg[n++] = d;
  buf_str(w->out, op == DIM_MIN ? "min(" : "max(");
  while (n) {
    print(w, arg[--n], P_SUM);
    buf_str(w->out, n ? ", " : ")");
  }
}

static Prec prec_of(const Writer *w, Dim d) {
  const DimExpr *e = expr(w, d);
  if (is_sum(e) || negative(w, d)) return P_SUM;
  if (e->op == DIM_MUL || e->op == DIM_FLOORDIV || e->op == DIM_MOD)
    return P_PRODUCT;
  return P_FACTOR;
}

static void print_plain(const Writer *w, Dim d) {
  const DimExpr *e = expr(w, d);
  switch (e->op) {
  case DIM_SYM: buf_str(w->out, w->t->syms.at[e->value].name); break;
  case DIM_ADD:
    if (!e->value) {
      print_sum(w, d);
      break;
    }
    print(w, e->a, P_FACTOR);
    buf_str(w->out, " + ");
    print(w, e->b, P_FACTOR);
    break;
  case DIM_CONST:
  case DIM_MUL:
    if (negative(w, d)) buf_char(w->out, '-');
    print_term(w, d, true);
    break;
  case DIM_FLOORDIV:
  case DIM_MOD:
    print(w, e->a, P_PRODUCT);
    buf_str(w->out, e->op == DIM_MOD ? " % " : " // ");
    print(w, e->b, P_FACTOR);
    break;
  case DIM_MIN:
  case DIM_MAX: print_call(w, d); break;
  }
}

// The first time an expression is counted its parts are too.
static void count(const Writer *w, Dim d) {
  DimNames *n = w->names;
  if (n->uses[d]++) return;
  print_plain(w, d);
  vec_push(n->arena, &n->seen, d);
}

static void print(const Writer *w, Dim d, Prec prec) {
  if (w->names && w->names->counts) {
    count(w, d);
  } else if (w->names && w->names->name[d]) {
    buf_str(w->out, w->names->name[d]);
  } else {
    bool paren = prec_of(w, d) < prec;
    if (paren) buf_char(w->out, '(');
    print_plain(w, d);
    if (paren) buf_char(w->out, ')');
  }
}

void dim_print(const DimTab *t, Dim d, Buf *out) {
  dim_print_named(t, NULL, d, out);
}

void dim_print_named(const DimTab *t, DimNames *names, Dim d, Buf *out) {
  assert(d != DIM_NONE && d < t->exprs.n);
  print(&(Writer){t, names, out}, d, P_SUM);
}

// ---------------------------------------------------------------- names
// Characters of an expression that gets a name: of one that stands more than
// once; of any.
enum { LONG = 24, TOO_LONG = 64 };

void dim_names_init(DimNames *n, const DimTab *t, Arena *a) {
  *n = (DimNames){.arena = a, .counts = true};
  n->uses = NEWN(a, uint32_t, t->exprs.n);
  n->name = NEWN(a, const char *, t->exprs.n);
  n->hint = NEWN(a, const char *, t->exprs.n);
}

static bool taken(const DimTab *t, const DimNames *n, const char *name) {
  uint32_t sym;
  if (dim_find_sym(t, name, &sym)) return true;
  for (uint32_t i = 0; i < n->seen.n; i++) {
    const char *s = n->name[n->seen.at[i]];
    if (s && strcmp(s, name) == 0) return true;
  }
  return false;
}

// What is the extent of an axis `part` is called `parts`.
static const char *name_for(const DimTab *t, const DimNames *n, Dim d) {
  if (n->hint[d]) {
    const char *s = arena_printf(n->arena, "%ss", n->hint[d]);
    if (!taken(t, n, s)) return s;
  }
  for (uint32_t i = 0;; i++) {
    const char *s = arena_printf(n->arena, "size%u", i);
    if (!taken(t, n, s)) return s;
  }
}

void dim_names_choose(DimNames *n, const DimTab *t) {
  n->counts = false;
  for (uint32_t i = 0; i < n->seen.n; i++) {
    Dim d = n->seen.at[i];
    Buf text = {.arena = n->arena};
    print_plain(&(Writer){t, n, &text}, d);
    bool is_long = text.n > (n->uses[d] > 1 ? LONG : TOO_LONG);
    if (is_long && t->exprs.at[d].op != DIM_SYM) n->name[d] = name_for(t, n, d);
  }
}

void dim_names_print(DimNames *n, const DimTab *t, Buf *out) {
  for (uint32_t i = 0; i < n->seen.n; i++) {
    Dim d = n->seen.at[i];
    if (!n->name[d]) continue;
    buf_printf(out, "dim %s = ", n->name[d]);
    print_plain(&(Writer){t, n, out}, d);
    buf_char(out, '\n');
  }
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
  Dim d = dim_find_name(r->t, name);
  if (d != DIM_NONE) {
    r->p = after;
    return d;
  }
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

Dim dim_find_name(const DimTab *t, const char *name) {
  for (uint32_t i = 0; i < t->names.n; i++)
    if (strcmp(t->names.at[i].name, name) == 0) return t->names.at[i].d;
  return DIM_NONE;
}

void dim_add_name(DimTab *t, const char *name, Dim d) {
  DimName n = {.name = arena_strdup(t->arena, name), .d = d};
  vec_push(t->arena, &t->names, n);
}

Dim dim_parse(DimTab *t, const char **p, bool add) {
  Reader r = {.t = t, .p = *p, .add = add, .left = MAX_OPERATORS};
  Dim d = read_sum(&r);
  *p = r.p;
  return d;
}
