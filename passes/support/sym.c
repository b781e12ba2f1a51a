// Hash-consed symbolic expressions: canonical sums, products, powers.
#include "passes/support/sym.h"

#include "ir/facts.h"

#include <math.h>
#include <stdlib.h>

void sym_init(Sym *s, Arena *a) {
  *s = (Sym){.arena = a, .index = {.arena = a}};
  vec_push(a, &s->nodes, (ExNode){0});
}

// ---------------------------------------------------------------- interning
static uint64_t node_hash(const ExNode *n, uint64_t seed) {
  uint64_t h = seed + n->kind * 64ull + n->code * 1024ull;
  h = map_hash(&n->leaf, sizeof n->leaf, h);
  h = map_hash(&n->c, sizeof n->c, h);
  return map_hash(n->kid, n->n * sizeof *n->kid, h);
}

static bool node_eq(const ExNode *a, const ExNode *b) {
  return a->kind == b->kind && a->code == b->code && a->n == b->n &&
         a->leaf == b->leaf && memcmp(&a->c, &b->c, sizeof a->c) == 0 &&
         (a->n == 0 || memcmp(a->kid, b->kid, a->n * sizeof *a->kid) == 0);
}

static bool nonneg_node(const Sym *s, const ExNode *n);

static uint8_t node_flags(const Sym *s, const ExNode *n) {
  unsigned f = n->flags;
  for (uint32_t i = 0; i < n->n; i++)
    f |= sym_at(s, n->kid[i])->flags & ~(unsigned)EF_POS;
  if (n->kind == EX_EXP) f |= EF_EXP;
  if (nonneg_node(s, n)) f |= EF_POS;
  return (uint8_t)f;
}

static uint32_t tree_size(const Sym *s, const ExNode *n) {
  uint64_t size = 1;
  for (uint32_t i = 0; i < n->n; i++) size += sym_at(s, n->kid[i])->size;
  return size > UINT32_MAX ? UINT32_MAX : (uint32_t)size;
}

static Ex intern_node(Sym *s, ExNode n) {
  uint64_t id;
  uint64_t seed = 0;
  for (;; seed++) {
    if (!map_get(&s->index, node_hash(&n, seed), &id)) break;
    if (node_eq(sym_at(s, (Ex)id), &n)) return (Ex)id;
  }
  Ex *kid = NEWN(s->arena, Ex, n.n + 1);
  if (n.n) memcpy(kid, n.kid, n.n * sizeof *kid);
  n.kid = kid;
  n.flags = node_flags(s, &n);
  n.size = tree_size(s, &n);
  id = s->nodes.n;
  map_put(&s->index, node_hash(&n, seed), id);
  vec_push(s->arena, &s->nodes, n);
  return (Ex)id;
}

Ex sym_const(Sym *s, double v) {
  if (v == 0) v = 0;  // one zero
  return intern_node(s, (ExNode){.kind = EX_CONST, .c = v});
}

Ex sym_leaf(Sym *s, LeafTag tag, Value v, bool nonneg) {
  static const uint8_t flags[] = {
      [LEAF_KEY] = EF_X | EF_KEY,
      [LEAF_ROW] = EF_X,
      [LEAF_LIVE] = EF_D,
      [LEAF_OLD] = EF_D,
      [LEAF_OPAQUE] = EF_D | EF_OPAQUE,
      [LEAF_MIXED] = EF_X | EF_KEY | EF_D | EF_OPAQUE,
  };
  unsigned f = flags[tag] | (nonneg ? (unsigned)EF_POS : 0u);
  return intern_node(s, (ExNode){.kind = EX_LEAF,
                                 .code = (uint16_t)tag,
                                 .leaf = v,
                                 .flags = (uint8_t)f});
}

// ---------------------------------------------------------------- queries
bool sym_is_const(const Sym *s, Ex e, double v) {
  return sym_at(s, e)->kind == EX_CONST && sym_at(s, e)->c == v;
}

bool sym_has(const Sym *s, Ex e, unsigned flags) {
  return (sym_at(s, e)->flags & flags) != 0;
}

double sym_coef(const Sym *s, Ex e) {
  const ExNode *n = sym_at(s, e);
  if (n->kind == EX_CONST) return n->c;
  if (n->kind == EX_MUL && sym_at(s, n->kid[0])->kind == EX_CONST)
    return sym_at(s, n->kid[0])->c;
  return 1;
}

Ex sym_uncoef(Sym *s, Ex e) {
  const ExNode *n = sym_at(s, e);
  if (n->kind == EX_CONST) return sym_const(s, 1);
  if (n->kind == EX_MUL && sym_at(s, n->kid[0])->kind == EX_CONST)
    return sym_mul(s, n->kid + 1, n->n - 1);
  return e;
}

static bool even(double p) {
  return p == floor(p) && fmod(p, 2) == 0;
}

static bool nonneg_op(OpCode c, const Sym *s, const ExNode *n) {
  bool a = n->n > 0 && sym_has(s, n->kid[0], EF_POS);
  bool b = n->n > 1 && sym_has(s, n->kid[1], EF_POS);
  OpSign sign = op_facts(c)->sign;
  switch (c) {
  case OP_MAX: return a || b;
  case OP_MIN: return a && b;
  case OP_SELECT: return b && sym_has(s, n->kid[2], EF_POS);
  default: return sign >= SG_NONNEG || (sign >= SG_WEAKLY && a);
  }
}

static bool nonneg_node(const Sym *s, const ExNode *n) {
  bool all = true;
  for (uint32_t i = 0; i < n->n; i++)
    all = all && sym_has(s, n->kid[i], EF_POS);
  switch ((ExKind)n->kind) {
  case EX_CONST: return n->c >= 0;
  case EX_LEAF: return (n->flags & EF_POS) != 0;
  case EX_EXP: return true;
  case EX_POW: return all || even(n->c);
  case EX_ADD:
  case EX_MUL:
  case EX_CAST: return all;
  case EX_OP: return nonneg_op((OpCode)n->code, s, n);
  }
  return false;
}

// ---------------------------------------------------------------- sums
// A list of base * k (sums) or base ** k (products).
typedef struct Part {
  Ex base;
  double k;
} Part;
typedef Vec(Part) Parts;

static void part_add(Sym *s, Parts *p, Ex base, double k) {
  for (uint32_t i = 0; i < p->n; i++)
    if (p->at[i].base == base) {
      p->at[i].k += k;
      return;
    }
  vec_push(s->arena, p, ((Part){base, k}));
}

static int by_id(const void *a, const void *b) {
  Ex x = *(const Ex *)a, y = *(const Ex *)b;
  return (x > y) - (x < y);
}

static void sum_parts(Sym *s, Parts *p, double *c, Ex e) {
  const ExNode *n = sym_at(s, e);
  if (n->kind == EX_CONST) {
    *c += n->c;
  } else if (n->kind == EX_ADD) {
    for (uint32_t i = 0; i < n->n; i++)
      sum_parts(s, p, c, sym_at(s, e)->kid[i]);
  } else {
    double k = sym_coef(s, e);
    part_add(s, p, sym_uncoef(s, e), k);
  }
}

Ex sym_add(Sym *s, const Ex *e, uint32_t n) {
  Parts p = {0};
  double c = 0;
  for (uint32_t i = 0; i < n; i++) sum_parts(s, &p, &c, e[i]);
  Ex *kid = NEWN(s->arena, Ex, p.n + 1);
  uint32_t nk = 0;
  for (uint32_t i = 0; i < p.n; i++)
    if (p.at[i].k != 0) kid[nk++] = sym_scale(s, p.at[i].k, p.at[i].base);
  qsort(kid, nk, sizeof *kid, by_id);
  if (c != 0 || nk == 0) kid[nk++] = sym_const(s, c);
  if (nk == 1) return kid[0];
  return intern_node(s, (ExNode){.kind = EX_ADD, .n = nk, .kid = kid});
}

// ---------------------------------------------------------------- products
static void product_parts(Sym *s, Parts *p, Ex *arg, double *c, Ex e) {
  const ExNode *n = sym_at(s, e);
  switch ((ExKind)n->kind) {
  case EX_CONST: *c *= n->c; break;
  case EX_MUL:
    for (uint32_t i = 0; i < n->n; i++)
      product_parts(s, p, arg, c, sym_at(s, e)->kid[i]);
    break;
  case EX_EXP: *arg = *arg ? sym_add2(s, *arg, n->kid[0]) : n->kid[0]; break;
  case EX_POW: part_add(s, p, n->kid[0], n->c); break;
  default: part_add(s, p, e, 1);
  }
}

// c * (a + b) = c * a + c * b
static Ex scale_sum(Sym *s, double c, Ex sum) {
  ExNode n = *sym_at(s, sum);
  Ex *kid = NEWN(s->arena, Ex, n.n);
  for (uint32_t i = 0; i < n.n; i++) kid[i] = sym_scale(s, c, n.kid[i]);
  return sym_add(s, kid, n.n);
}

Ex sym_mul(Sym *s, const Ex *e, uint32_t n) {
  Parts p = {0};
  double c = 1;
  Ex arg = 0;
  for (uint32_t i = 0; i < n; i++) product_parts(s, &p, &arg, &c, e[i]);
  if (c == 0) return sym_const(s, 0);
  Ex *kid = NEWN(s->arena, Ex, p.n + 2);
  uint32_t nk = 1;
  for (uint32_t i = 0; i < p.n; i++)
    if (p.at[i].k != 0) kid[nk++] = sym_pow(s, p.at[i].base, p.at[i].k);
  Ex x = arg ? sym_exp(s, arg) : 0;
  if (x && !sym_is_const(s, x, 1)) kid[nk++] = x;
  qsort(kid + 1, nk - 1, sizeof *kid, by_id);
  if (nk == 1) return sym_const(s, c);
  if (c == 1) {
    kid++;
    nk--;
  } else {
    kid[0] = sym_const(s, c);
  }
  if (nk == 1) return kid[0];
  if (nk == 2 && c != 1 && sym_at(s, kid[1])->kind == EX_ADD)
    return scale_sum(s, c, kid[1]);
  return intern_node(s, (ExNode){.kind = EX_MUL, .n = nk, .kid = kid});
}

Ex sym_add2(Sym *s, Ex a, Ex b) {
  return sym_add(s, (Ex[]){a, b}, 2);
}
Ex sym_mul2(Sym *s, Ex a, Ex b) {
  return sym_mul(s, (Ex[]){a, b}, 2);
}
Ex sym_scale(Sym *s, double c, Ex a) {
  return c == 1 ? a : sym_mul2(s, sym_const(s, c), a);
}
Ex sym_neg(Sym *s, Ex a) {
  return sym_scale(s, -1, a);
}
Ex sym_sub(Sym *s, Ex a, Ex b) {
  return sym_add2(s, a, sym_neg(s, b));
}

static bool all_positive(const Sym *s, const ExNode *n) {
  for (uint32_t i = 0; i < n->n; i++)
    if (!sym_has(s, n->kid[i], EF_POS)) return false;
  return true;
}

Ex sym_pow(Sym *s, Ex a, double p) {
  const ExNode *n = sym_at(s, a);
  if (p == 1) return a;
  if (p == 0) return sym_const(s, 1);
  if (n->kind == EX_CONST && isfinite(pow(n->c, p)))
    return sym_const(s, pow(n->c, p));
  if (n->kind == EX_POW && (p == floor(p) || sym_has(s, n->kid[0], EF_POS)))
    return sym_pow(s, n->kid[0], n->c * p);
  if (n->kind == EX_EXP) return sym_exp(s, sym_scale(s, p, n->kid[0]));
  if (n->kind == EX_MUL && (p == floor(p) || all_positive(s, n))) {
    Ex *kid = NEWN(s->arena, Ex, n->n);
    uint32_t nk = n->n;
    for (uint32_t i = 0; i < nk; i++)
      kid[i] = sym_pow(s, sym_at(s, a)->kid[i], p);
    return sym_mul(s, kid, nk);
  }
  return intern_node(s, (ExNode){.kind = EX_POW, .c = p, .n = 1, .kid = &a});
}

// c * log(b) of a sum's kid, b >= 0: exp turns it into b ** c.
static bool log_part(const Sym *s, Ex e, Ex *b, double *c) {
  *c = sym_coef(s, e);
  const ExNode *n = sym_at(s, e);
  if (n->kind == EX_MUL && n->n == 2 && *c != 1) n = sym_at(s, n->kid[1]);
  if (n->kind != EX_OP || n->code != OP_LOG) return false;
  *b = n->kid[0];
  return sym_has(s, *b, EF_POS);
}

Ex sym_exp(Sym *s, Ex a) {
  if (sym_is_const(s, a, 0)) return sym_const(s, 1);
  Ex one = a, b;
  const ExNode *n = sym_at(s, a);
  const Ex *kid = n->kind == EX_ADD ? n->kid : &one;
  uint32_t nk = n->kind == EX_ADD ? n->n : 1;
  double c;
  for (uint32_t i = 0; i < nk; i++) {
    if (!log_part(s, kid[i], &b, &c)) continue;
    Ex rest = sym_sub(s, a, kid[i]);
    Ex power = sym_pow(s, b, c);
    return sym_mul2(s, sym_exp(s, rest), power);
  }
  return intern_node(s, (ExNode){.kind = EX_EXP, .n = 1, .kid = &a});
}

Ex sym_log(Sym *s, Ex a) {
  if (sym_at(s, a)->kind == EX_EXP) return sym_at(s, a)->kid[0];
  return intern_node(
      s, (ExNode){.kind = EX_OP, .code = OP_LOG, .n = 1, .kid = &a});
}

Ex sym_cast(Sym *s, DType t, Ex a) {
  const ExNode *n = sym_at(s, a);
  if (n->kind == EX_CONST || (n->kind == EX_CAST && n->code == t)) return a;
  return intern_node(
      s, (ExNode){.kind = EX_CAST, .code = (uint16_t)t, .n = 1, .kid = &a});
}

Ex sym_op(Sym *s, OpCode code, const Ex *e, uint32_t n) {
  switch (code) {
  case OP_ADD: return sym_add(s, e, n);
  case OP_SUB: return sym_sub(s, e[0], e[1]);
  case OP_MUL: return sym_mul(s, e, n);
  case OP_DIV: return sym_mul2(s, e[0], sym_pow(s, e[1], -1));
  case OP_NEG: return sym_neg(s, e[0]);
  case OP_EXP: return sym_exp(s, e[0]);
  case OP_EXP2: return sym_exp(s, sym_scale(s, log(2), e[0]));
  case OP_LOG: return sym_log(s, e[0]);
  case OP_LOG2: return sym_scale(s, 1 / log(2), sym_log(s, e[0]));
  case OP_SQRT: return sym_pow(s, e[0], 0.5);
  case OP_RSQRT: return sym_pow(s, e[0], -0.5);
  case OP_POW:
    if (sym_at(s, e[1])->kind == EX_CONST)
      return sym_pow(s, e[0], sym_at(s, e[1])->c);
    if (sym_at(s, e[0])->kind == EX_CONST && sym_at(s, e[0])->c > 0)
      return sym_exp(s, sym_scale(s, log(sym_at(s, e[0])->c), e[1]));
    break;
  default: break;
  }
  return intern_node(
      s, (ExNode){.kind = EX_OP, .code = (uint16_t)code, .n = n, .kid = e});
}

// The node n with other kids.
static Ex rebuild(Sym *s, ExNode n, const Ex *kid) {
  switch ((ExKind)n.kind) {
  case EX_ADD: return sym_add(s, kid, n.n);
  case EX_MUL: return sym_mul(s, kid, n.n);
  case EX_POW: return sym_pow(s, kid[0], n.c);
  case EX_EXP: return sym_exp(s, kid[0]);
  case EX_CAST: return sym_cast(s, (DType)n.code, kid[0]);
  default: return sym_op(s, (OpCode)n.code, kid, n.n);
  }
}

Ex sym_old(Sym *s, Ex e) {
  ExNode n = *sym_at(s, e);
  if (!(n.flags & EF_D)) return e;
  if (n.kind == EX_LEAF)
    return n.code == LEAF_LIVE
               ? sym_leaf(s, LEAF_OLD, n.leaf, (n.flags & EF_POS) != 0)
               : e;
  Ex *kid = NEWN(s->arena, Ex, n.n);
  for (uint32_t i = 0; i < n.n; i++) kid[i] = sym_old(s, n.kid[i]);
  return rebuild(s, n, kid);
}
