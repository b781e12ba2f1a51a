// Symbolic expressions: their value in doubles and their text.
#include "passes/support/sym.h"

#include "ir/eval.h"
#include "ir/facts.h"

#include <math.h>

bool sym_num_op(OpCode code, const double *a, double *r) {
  if (!op_facts(code)->class) return false;
  *r = eval_op(code, a);
  return true;
}

double sym_eval(const Sym *s, Ex e, SymLeafFn *fn, void *data) {
  const ExNode *n = sym_at(s, e);
  double r = 0, a[ELEM_ARGS] = {0};
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
    for (uint32_t i = 0; i < n->n; i++) a[i] = sym_eval(s, n->kid[i], fn, data);
    return sym_num_op((OpCode)n->code, a, &r) ? r : NAN;
  }
  return NAN;
}

// ---------------------------------------------------------------- text
static void print_leaf(const SymNames *f, const ExNode *n, Buf *out) {
  const char *name = f ? f->name(f->data, n->leaf) : NULL;
  if (name) buf_str(out, name);
  else buf_printf(out, "%%%u", n->leaf);
  if (n->code == LEAF_OLD) buf_str(out, ".old");
}

static void print_sum(const Sym *s, const SymNames *f, const ExNode *n,
                      Buf *out) {
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

static void print_args(const Sym *s, const SymNames *f, const ExNode *n,
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

void sym_print(const Sym *s, const SymNames *f, Ex e, Buf *out) {
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
