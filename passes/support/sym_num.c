// Symbolic expressions: their value in doubles and their text.
#include "passes/support/sym.h"

#include <math.h>

static double num_sigmoid(double x) {
  return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static double num_max(double a, double b) {
  return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

static bool num_binary(OpCode code, double a, double b, double *r) {
  switch (code) {
  case OP_ADD: *r = a + b; break;
  case OP_SUB: *r = a - b; break;
  case OP_MUL: *r = a * b; break;
  case OP_DIV:
  case OP_DIVK: *r = a / b; break;
  case OP_FLOORDIV: *r = floor(a / b); break;
  case OP_MOD: *r = a - b * floor(a / b); break;
  case OP_MIN: *r = -num_max(-a, -b); break;
  case OP_MAX: *r = num_max(a, b); break;
  case OP_POW: *r = pow(a, b); break;
  case OP_EQ: *r = a == b; break;
  case OP_NE: *r = a != b; break;
  case OP_LT: *r = a < b; break;
  case OP_LE: *r = a <= b; break;
  case OP_AND: *r = a != 0 && b != 0; break;
  case OP_OR: *r = a != 0 || b != 0; break;
  default: return false;
  }
  return true;
}

static bool num_unary(OpCode code, double a, double *r) {
  switch (code) {
  case OP_NEG: *r = -a; break;
  case OP_ABS: *r = fabs(a); break;
  case OP_NOT: *r = a == 0; break;
  case OP_EXP: *r = exp(a); break;
  case OP_EXP2: *r = exp2(a); break;
  case OP_LOG: *r = log(a); break;
  case OP_LOG2: *r = log2(a); break;
  case OP_SQRT: *r = sqrt(a); break;
  case OP_RSQRT: *r = 1 / sqrt(a); break;
  case OP_TANH: *r = tanh(a); break;
  case OP_SIGMOID: *r = num_sigmoid(a); break;
  case OP_SOFTPLUS: *r = num_max(a, 0) + log1p(exp(-fabs(a))); break;
  case OP_RELU: *r = num_max(a, 0); break;
  case OP_ERF: *r = erf(a); break;
  case OP_SIN: *r = sin(a); break;
  case OP_COS: *r = cos(a); break;
  case OP_FLOOR: *r = floor(a); break;
  case OP_REF: *r = a == -INFINITY ? 0 : a; break;
  case OP_STOP_GRAD:
  case OP_CAST: *r = a; break;
  default: return false;
  }
  return true;
}

bool num_op(OpCode code, const double *a, double *r) {
  const OpInfo *info = op_info(code);
  if (info->min_args == 1) return num_unary(code, a[0], r);
  if (info->min_args == 2 && num_binary(code, a[0], a[1], r)) return true;
  if (code == OP_FMA) return *r = fma(a[0], a[1], a[2]), true;
  if (code == OP_SELECT) return *r = a[0] != 0 ? a[1] : a[2], true;
  return false;
}

double sym_eval(const Sym *s, Ex e, SymLeafFn *fn, void *data) {
  const ExNode *n = sym_at(s, e);
  double r = 0, a[3] = {0};
  switch ((ExKind)n->kind) {
  case EX_CONST: return n->c;
  case EX_LEAF: return fn(data, n);
  case EX_ADD:
    for (uint32_t i = 0; i < n->n; i++) r += sym_eval(s, n->kid[i], fn, data);
    return r;
  case EX_MUL:
    r = 1;
    for (uint32_t i = 0; i < n->n; i++) r *= sym_eval(s, n->kid[i], fn, data);
    return r;
  case EX_POW: return pow(sym_eval(s, n->kid[0], fn, data), n->c);
  case EX_EXP: return exp(sym_eval(s, n->kid[0], fn, data));
  case EX_CAST: return sym_eval(s, n->kid[0], fn, data);
  case EX_OP:
    for (uint32_t i = 0; i < n->n && i < 3; i++)
      a[i] = sym_eval(s, n->kid[i], fn, data);
    return num_op((OpCode)n->code, a, &r) ? r : NAN;
  }
  return NAN;
}

// ---------------------------------------------------------------- text
static void print_leaf(const Func *f, const ExNode *n, Buf *out) {
  const char *hint = f ? ir_info(f, n->leaf)->hint : NULL;
  if (hint) buf_str(out, hint);
  else buf_printf(out, "%%%u", n->leaf);
  if (n->code == LEAF_OLD) buf_str(out, ".old");
}

static void print_sum(const Sym *s, const Func *f, const ExNode *n, Buf *out) {
  buf_char(out, '(');
  for (uint32_t i = 0; i < n->n; i++) {
    bool minus = sym_coef(s, n->kid[i]) < 0;
    if (i || minus) buf_str(out, !minus ? " + " : i ? " - " : "-");
    // Prints the kid without its sign: the table is not changed, so a
    // coefficient of -1 is skipped by hand.
    const ExNode *k = sym_at(s, n->kid[i]);
    if (!minus) {
      sym_print(s, f, n->kid[i], out);
    } else if (k->kind == EX_CONST) {
      buf_printf(out, "%g", -k->c);
    } else {
      double c = -sym_coef(s, n->kid[i]);
      if (c != 1) buf_printf(out, "%g*", c);
      for (uint32_t j = 1; j < k->n; j++) {
        if (j > 1) buf_char(out, '*');
        sym_print(s, f, k->kid[j], out);
      }
    }
  }
  buf_char(out, ')');
}

static void print_args(const Sym *s, const Func *f, const ExNode *n,
                       const char *name, const char *between, Buf *out) {
  if (name) buf_printf(out, "%s(", name);
  bool minus = n->kind == EX_MUL && sym_is_const(s, n->kid[0], -1);
  if (minus) buf_char(out, '-');
  for (uint32_t i = minus; i < n->n; i++) {
    if (i > minus) buf_str(out, between);
    sym_print(s, f, n->kid[i], out);
  }
  if (name) buf_char(out, ')');
}

void sym_print(const Sym *s, const Func *f, Ex e, Buf *out) {
  const ExNode *n = sym_at(s, e);
  switch ((ExKind)n->kind) {
  case EX_CONST: buf_printf(out, "%g", n->c); break;
  case EX_LEAF: print_leaf(f, n, out); break;
  case EX_ADD: print_sum(s, f, n, out); break;
  case EX_MUL: print_args(s, f, n, NULL, "*", out); break;
  case EX_POW:
    sym_print(s, f, n->kid[0], out);
    buf_printf(out, "^%g", n->c);
    break;
  case EX_EXP: print_args(s, f, n, "exp", ", ", out); break;
  case EX_CAST:
    print_args(s, f, n, dtype_name((DType)n->code), ", ", out);
    break;
  case EX_OP:
    print_args(s, f, n, op_info((OpCode)n->code)->name, ", ", out);
    break;
  }
}
