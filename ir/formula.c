// Reads the formulas of ops.def: recursive descent, a call of the reader for
// each number and op, names in a short list.
#include "ir/formula.h"

#include "ir/core/buf.h"

#include <assert.h>
#include <string.h>

enum { MAX_NAMES = 24, MAX_CALL = 3 };

typedef struct Name {
  const char *at;
  size_t n;
  uint32_t id;
} Name;

typedef struct Formula {
  const char *p;
  const FormulaTo *to;
  Name names[MAX_NAMES];
  uint32_t nnames;
} Formula;

// ---------------------------------------------------------------- tokens
static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static void skip_space(Formula *f) {
  while (*f->p == ' ') f->p++;
}

static bool take(Formula *f, const char *s) {
  skip_space(f);
  size_t n = strlen(s);
  if (strncmp(f->p, s, n) != 0) return false;
  f->p += n;
  return true;
}

static size_t name_length(const char *p) {
  size_t n = 0;
  while (is_letter(p[n]) || (n && is_digit(p[n]))) n++;
  return n;
}

// ---------------------------------------------------------------- expressions
static uint32_t expression(Formula *f);

static uint32_t one(Formula *f, OpCode c, uint32_t x) {
  return f->to->op(f->to->data, c, &x, 1);
}

static uint32_t two(Formula *f, OpCode c, uint32_t x, uint32_t y) {
  uint32_t args[2] = {x, y};
  return f->to->op(f->to->data, c, args, 2);
}

static uint32_t number(Formula *f, double sign) {
  char *end;
  double v = buf_read_double(f->p, &end);
  assert(end != f->p && "a number");
  f->p = end;
  return f->to->number(f->to->data, sign * v);
}

static uint32_t call(Formula *f, const char *name, size_t n) {
  uint32_t args[MAX_CALL], k = 0;
  OpCode c = OP_COUNT;
  bool known = op_by_name(name, n, &c);
  assert(known && "an op");
  (void)known;
  do {
    assert(k < MAX_CALL);
    args[k++] = expression(f);
  } while (take(f, ","));
  bool closed = take(f, ")");
  assert(closed && k == op_info(c)->min_args);
  (void)closed;
  return f->to->op(f->to->data, c, args, k);
}

static uint32_t named(const Formula *f, const char *name, size_t n) {
  for (uint32_t i = f->nnames; i-- > 0;)
    if (f->names[i].n == n && strncmp(f->names[i].at, name, n) == 0)
      return f->names[i].id;
  assert(!"a name of the formula");
  return 0;
}

static uint32_t primary(Formula *f) {
  if (take(f, "(")) {
    uint32_t v = expression(f);
    bool closed = take(f, ")");
    assert(closed);
    (void)closed;
    return v;
  }
  if (is_digit(*f->p)) return number(f, 1);
  const char *name = f->p;
  size_t n = name_length(name);
  assert(n && "a number, a name or a parenthesis");
  f->p += n;
  return take(f, "(") ? call(f, name, n) : named(f, name, n);
}

static uint32_t unary(Formula *f) {
  if (!take(f, "-")) return primary(f);
  skip_space(f);
  return is_digit(*f->p) ? number(f, -1) : one(f, OP_NEG, unary(f));
}

static uint32_t product(Formula *f) {
  uint32_t v = unary(f);
  for (;;) {
    if (take(f, "*")) v = two(f, OP_MUL, v, unary(f));
    else if (take(f, "/")) v = two(f, OP_DIV, v, unary(f));
    else return v;
  }
}

static uint32_t sum(Formula *f) {
  uint32_t v = product(f);
  for (;;) {
    if (take(f, "+")) v = two(f, OP_ADD, v, product(f));
    else if (take(f, "-")) v = two(f, OP_SUB, v, product(f));
    else return v;
  }
}

static uint32_t expression(Formula *f) {
  uint32_t v = sum(f);
  if (take(f, "<=")) return two(f, OP_LE, v, sum(f));
  if (take(f, "<")) return two(f, OP_LT, v, sum(f));
  if (take(f, "==")) return two(f, OP_EQ, v, sum(f));
  return v;
}

// ---------------------------------------------------------------- all
static void put_name(Formula *f, const char *at, size_t n, uint32_t id) {
  assert(f->nnames < MAX_NAMES);
  f->names[f->nnames++] = (Name){at, n, id};
}

// `name =`, not `name ==`: the length of the name, else 0.
static size_t definition(Formula *f) {
  skip_space(f);
  size_t n = name_length(f->p), at = n;
  while (n && f->p[at] == ' ') at++;
  return n && f->p[at] == '=' && f->p[at + 1] != '=' ? n : 0;
}

uint32_t formula_read(const char *text, const FormulaTo *to,
                      const uint32_t operands[3], uint32_t y,
                      uint32_t results[FORMULA_RESULTS]) {
  Formula f = {.p = text, .to = to};
  uint32_t count = 0;
  for (uint32_t i = 0; i < 3; i++) put_name(&f, &"abc"[i], 1, operands[i]);
  put_name(&f, "y", 1, y);
  do {
    size_t n = definition(&f);
    const char *name = f.p;
    f.p += n;
    if (n) take(&f, "=");
    uint32_t v = expression(&f);
    assert(n || count < FORMULA_RESULTS);
    if (n) put_name(&f, name, n, v);
    else results[count++] = v;
  } while (take(&f, ";"));
  assert(!*f.p && "the end of the formula");
  return count;
}

// ---------------------------------------------------------------- IR
typedef struct Build {
  Builder *b;
  DType t;
} Build;

static uint32_t build_number(void *data, double v) {
  Build *x = data;
  return ir_const_f(x->b, x->t, dtype_round(x->t, v));
}

static uint32_t build_op(void *data, OpCode c, const uint32_t *args,
                         uint32_t n) {
  Build *x = data;
  return ir_op(x->b, c, args, n, NULL, 0, NULL, 1, 0)->res[0];
}

uint32_t formula_build(Builder *b, const char *text, DType t,
                       const Value operands[3], Value y,
                       Value results[FORMULA_RESULTS]) {
  Build x = {b, t};
  FormulaTo to = {&x, build_number, build_op};
  return formula_read(text, &to, operands, y, results);
}
