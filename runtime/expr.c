// Expressions over dims: evaluation, affine form in one unknown, infix text.
#include "rt.h"

#include <stdio.h>
#include <string.h>

// Operand words, arguments on the stack, and how infix text writes it.
typedef struct OpInfo {
  int words, args, prec;
  const char *text;
} OpInfo;

static const OpInfo ops[ATTN_X_COUNT] = {
    [ATTN_X_END] = {0, 1, 0, ""},        [ATTN_X_CONST] = {1, 0, 9, ""},
    [ATTN_X_DIM] = {1, 0, 9, ""},        [ATTN_X_SCALAR] = {1, 0, 9, ""},
    [ATTN_X_SHAPE] = {2, 0, 9, "shape"}, [ATTN_X_STRIDE] = {2, 0, 9, "stride"},
    [ATTN_X_ADD] = {0, 2, 5, " + "},     [ATTN_X_SUB] = {0, 2, 5, " - "},
    [ATTN_X_MUL] = {0, 2, 6, " * "},     [ATTN_X_FLOORDIV] = {0, 2, 6, " // "},
    [ATTN_X_MOD] = {0, 2, 6, " % "},     [ATTN_X_MIN] = {0, 2, 9, "min"},
    [ATTN_X_MAX] = {0, 2, 9, "max"},     [ATTN_X_EQ] = {0, 2, 4, " == "},
    [ATTN_X_NE] = {0, 2, 4, " != "},     [ATTN_X_LT] = {0, 2, 4, " < "},
    [ATTN_X_LE] = {0, 2, 4, " <= "},     [ATTN_X_AND] = {0, 2, 3, " and "},
    [ATTN_X_OR] = {0, 2, 2, " or "},     [ATTN_X_NOT] = {0, 1, 8, "!"},
};

// The op at code[at] if it and its words are inside the code, else NULL.
static const OpInfo *op_at(const attn_program *p, uint32_t at) {
  if (at >= p->ncode || p->code[at] < 0 || p->code[at] >= ATTN_X_COUNT)
    return NULL;
  const OpInfo *op = &ops[p->code[at]];
  return (uint32_t)op->words < p->ncode - at ? op : NULL;
}

bool rt_expr_op(const attn_program *prog, uint32_t at, ExprOp *out) {
  const OpInfo *op = op_at(prog, at);
  if (op) *out = (ExprOp){op->words, op->args};
  return op != NULL;
}

// ---- evaluation

static ExprStatus tensor_word(const Env *env, const int64_t *w, bool stride,
                              int64_t *out) {
  int64_t t = w[0], axis = w[1];
  if (t < 0 || t >= env->ntensors || axis < 0 || axis >= ATTN_MAX_RANK)
    return EX_BAD;
  const attn_tensor *x = env->tensors[t];
  int64_t extent = axis < x->rank ? x->shape[axis] : 0;
  *out = !stride ? extent : extent <= 1 ? 1 : x->stride[axis];
  return EX_OK;
}

static ExprStatus dim_word(const Env *env, int64_t i, Affine *out) {
  if (i < 0 || i >= env->prog->ndims) return EX_BAD;
  if (!env->known[i]) *out = (Affine){.a = 1, .unknown = (uint32_t)i};
  else out->b = env->dims[i];
  return EX_OK;
}

ExprStatus rt_expr_leaf(const Env *env, const int64_t *w, Affine *out) {
  *out = (Affine){.unknown = ATTN_NONE};
  switch (w[0]) {
  case ATTN_X_CONST: out->b = w[1]; return EX_OK;
  case ATTN_X_DIM: return dim_word(env, w[1], out);
  case ATTN_X_SHAPE: return tensor_word(env, w + 1, false, &out->b);
  case ATTN_X_STRIDE: return tensor_word(env, w + 1, true, &out->b);
  case ATTN_X_SCALAR:
    if (w[1] < 0 || w[1] >= env->nscalars) return EX_BAD;
    out->b = env->scalars[w[1]].i64;
    return EX_OK;
  default: return EX_BAD;
  }
}

bool rt_expr_known(const Env *env, const int64_t *w, int64_t *out) {
  Affine v;
  bool dim = w[0] == ATTN_X_DIM && w[1] >= 0 && w[1] < env->prog->ndims;
  if (w[0] == ATTN_X_CONST) *out = w[1];
  else if (dim && env->known[w[1]]) *out = env->dims[w[1]];
  else if (rt_expr_leaf(env, w, &v) == EX_OK && !v.a) *out = v.b;
  else return false;
  return true;
}

static bool floor_divide(int64_t op, int64_t x, int64_t y, int64_t *out) {
  if (y == 0 || (y == -1 && x == INT64_MIN)) return false;
  int64_t q = x / y, r = x % y;
  bool down = r != 0 && (r < 0) != (y < 0);
  *out = op == ATTN_X_FLOORDIV ? q - down : r + (down ? y : 0);
  return true;
}

bool rt_expr_apply(int64_t op, int64_t x, int64_t y, int64_t *out) {
  switch (op) {
  case ATTN_X_ADD: return !__builtin_add_overflow(x, y, out);
  case ATTN_X_SUB: return !__builtin_sub_overflow(x, y, out);
  case ATTN_X_MUL: return !__builtin_mul_overflow(x, y, out);
  case ATTN_X_FLOORDIV:
  case ATTN_X_MOD: return floor_divide(op, x, y, out);
  case ATTN_X_MIN: *out = x < y ? x : y; return true;
  case ATTN_X_MAX: *out = x > y ? x : y; return true;
  case ATTN_X_EQ: *out = x == y; return true;
  case ATTN_X_NE: *out = x != y; return true;
  case ATTN_X_LT: *out = x < y; return true;
  case ATTN_X_LE: *out = x <= y; return true;
  case ATTN_X_AND: *out = x && y; return true;
  case ATTN_X_OR: *out = x || y; return true;
  default: *out = !x; return true;  // NOT
  }
}

static ExprStatus combine(int64_t op, const Affine *x, const Affine *y,
                          Affine *out) {
  Affine r = {.unknown = x->a ? x->unknown : y->unknown};
  if (x->a && y->a && x->unknown != y->unknown) return EX_UNKNOWN;
  bool linear = op == ATTN_X_ADD || op == ATTN_X_SUB;
  if ((x->a || y->a) && !linear && (op != ATTN_X_MUL || (x->a && y->a)))
    return EX_UNKNOWN;
  bool ok = rt_expr_apply(op, x->b, y->b, &r.b);
  if (linear) ok = ok && rt_expr_apply(op, x->a, y->a, &r.a);
  else if (op == ATTN_X_MUL)
    ok = ok && rt_expr_apply(op, x->a ? x->a : x->b, y->a ? y->a : y->b, &r.a);
  if (op == ATTN_X_MUL && !x->a && !y->a) r.a = 0;
  if (!r.a) r.unknown = ATTN_NONE;
  *out = r;
  return ok ? EX_OK : EX_OVERFLOW;
}

ExprStatus rt_expr_affine(const Env *env, uint32_t at, Affine *out) {
  Affine stack[ATTN_X_DEPTH];
  int n = 0;
  for (const OpInfo *op; (op = op_at(env->prog, at)) != NULL;
       at += 1 + (uint32_t)op->words) {
    const int64_t *w = env->prog->code + at;
    if (n < op->args || (!op->args && n == ATTN_X_DEPTH)) return EX_BAD;
    if (w[0] == ATTN_X_END) {
      *out = stack[0];
      return n == 1 ? EX_OK : EX_BAD;
    }
    n -= op->args;
    const Affine *y = op->args == 2 ? &stack[n + 1] : &stack[n];
    ExprStatus st = op->args ? combine(w[0], &stack[n], y, &stack[n])
                             : rt_expr_leaf(env, w, &stack[n]);
    if (st != EX_OK) return st;
    n++;
  }
  return EX_BAD;
}

// The value of an expression all of whose dims are known, most of them one
// word. False: rt_expr_affine says what is wrong with it, if anything is.
static bool value_of(const Env *env, uint32_t at, int64_t *out) {
  int64_t stack[ATTN_X_DEPTH];
  int n = 0;
  for (const OpInfo *op; (op = op_at(env->prog, at)) != NULL;
       at += 1 + (uint32_t)op->words) {
    const int64_t *w = env->prog->code + at;
    if (n < op->args || (!op->args && n == ATTN_X_DEPTH)) return false;
    if (w[0] == ATTN_X_END) {
      *out = stack[0];
      return n == 1;
    }
    n -= op->args;
    int64_t y = stack[op->args == 2 ? n + 1 : n];
    if (!(op->args ? rt_expr_apply(w[0], stack[n], y, &stack[n])
                   : rt_expr_known(env, w, &stack[n])))
      return false;
    n++;
  }
  return false;
}

ExprStatus rt_expr_eval(const Env *env, uint32_t at, int64_t *out) {
  Affine v;
  if (value_of(env, at, out)) return EX_OK;
  ExprStatus st = rt_expr_affine(env, at, &v);
  if (st == EX_OK && v.a) return EX_UNKNOWN;
  if (st == EX_OK) *out = v.b;
  return st;
}

// ---- text

typedef struct Text {
  const attn_program *prog;
  char *buf;
  size_t n, len;
  struct Node {
    uint32_t at;
    int lhs, rhs;  // -1: none
  } nodes[64];
} Text;

static void put(Text *t, const char *s) {
  size_t k = strlen(s);
  if (k >= t->n - t->len) k = t->n - t->len - 1;
  memcpy(t->buf + t->len, s, k);
  t->len += k;
  t->buf[t->len] = 0;
}

static void put_int(Text *t, int64_t v) {
  char s[24];
  snprintf(s, sizeof s, "%lld", (long long)v);
  put(t, s);
}

static const char *tensor_name(const attn_program *p, int64_t i) {
  for (uint32_t k = 0; k < p->nparams; k++)
    if (p->params[k].kind != ATTN_PARAM_SCALAR && i-- == 0)
      return p->params[k].name;
  return "?";
}

static const char *scalar_name(const attn_program *p, int64_t i) {
  for (uint32_t k = 0; k < p->nparams; k++)
    if (p->params[k].kind == ATTN_PARAM_SCALAR && i-- == 0)
      return p->params[k].name;
  return "?";
}

static void put_leaf(Text *t, const int64_t *w) {
  const attn_program *p = t->prog;
  if (w[0] == ATTN_X_CONST) {
    put_int(t, w[1]);
  } else if (w[0] == ATTN_X_DIM) {
    put(t, w[1] >= 0 && w[1] < p->ndims ? p->dims[w[1]].name : "?");
  } else if (w[0] == ATTN_X_SCALAR) {
    put(t, scalar_name(p, w[1]));
  } else {
    put(t, ops[w[0]].text);
    put(t, "(");
    put(t, tensor_name(p, w[1]));
    put(t, ", ");
    put_int(t, w[2]);
    put(t, ")");
  }
}

// prec: below it the operand needs parentheses.
static void put_node(Text *t, int i, int prec) {
  const struct Node *nd = &t->nodes[i];
  const int64_t *w = t->prog->code + nd->at;
  const OpInfo *op = &ops[w[0]];
  bool call = w[0] == ATTN_X_MIN || w[0] == ATTN_X_MAX;
  bool paren = op->prec < prec || call;
  if (!op->args) {
    put_leaf(t, w);
    return;
  }
  put(t, call || op->args == 1 ? op->text : "");
  put(t, paren ? "(" : "");
  put_node(t, nd->lhs, call ? 0 : op->prec);
  put(t, call ? ", " : op->args == 2 ? op->text : "");
  if (op->args == 2) put_node(t, nd->rhs, call ? 0 : op->prec + 1);
  put(t, paren ? ")" : "");
}

// Builds the tree; its root or -1.
static int parse(Text *t, uint32_t at) {
  int stack[ATTN_X_DEPTH], n = 0, count = 0;
  for (const OpInfo *op; (op = op_at(t->prog, at)) != NULL;
       at += 1 + (uint32_t)op->words) {
    if (n < op->args || n == ATTN_X_DEPTH || count == 64) return -1;
    if (t->prog->code[at] == ATTN_X_END) return n == 1 ? stack[0] : -1;
    struct Node nd = {at, -1, -1};
    n -= op->args;
    if (op->args) nd.lhs = stack[n];
    if (op->args == 2) nd.rhs = stack[n + 1];
    t->nodes[count] = nd;
    stack[n++] = count++;
  }
  return -1;
}

void rt_expr_text(const attn_program *prog, uint32_t at, char *buf, size_t n) {
  Text t = {.prog = prog, .buf = buf, .n = n};
  buf[0] = 0;
  int root = parse(&t, at);
  if (root < 0) put(&t, "?");
  else put_node(&t, root, 0);
}
