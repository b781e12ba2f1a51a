// grad, part 3: sums over keys that the program has anyway. What flows to a row
// is a sum over its keys of products. A product's sum that the program has is
// taken from there; of a contraction in it, `sum over k of f * (a . b[k])`, the
// vector of the row is put in front: `a . (sum over k of f * b[k])`. So the
// gradient of softmax needs `dO . O` and no loop over keys.
#include "passes/attn/grad.h"

#include <math.h>
#include <stdlib.h>

typedef struct GradFactor Factor;

typedef struct Sums {
  Grad *g;
  uint64_t over;  // factors that vary with these are the key's
  uint32_t depth;
} Sums;

enum { MAX_DEPTH = 40 };

// ---------------------------------------------------------------- products
static bool put_factor(Factor *list, uint32_t *n, Factor f) {
  uint32_t i = 0;
  while (i < *n && list[i].node < f.node) i++;
  if (i < *n && list[i].node == f.node) {
    list[i].power += f.power;
    if (list[i].power) return true;
    for (--*n; i < *n; i++) list[i] = list[i + 1];
    return true;
  }
  if (*n == MAX_FACTORS) return false;
  for (uint32_t k = (*n)++; k > i; k--) list[k] = list[k - 1];
  list[i] = f;
  return true;
}

// t *= x ** power
static bool times(GradTerm *t, const GradTerm *x, int power) {
  bool ok = true;
  t->c *= power < 0 ? 1 / x->c : x->c;
  for (uint32_t i = 0; i < x->nrow; i++) {
    Factor f = {x->row[i].node, x->row[i].power * power};
    ok = ok && put_factor(t->row, &t->nrow, f);
  }
  for (uint32_t i = 0; i < x->nkey; i++) {
    Factor f = {x->key[i].node, x->key[i].power * power};
    ok = ok && put_factor(t->key, &t->nkey, f);
  }
  return ok;
}

static bool same_factors(const Factor *a, uint32_t n, const Factor *b,
                         uint32_t m) {
  if (n != m) return false;
  for (uint32_t i = 0; i < n; i++)
    if (a[i].node != b[i].node || a[i].power != b[i].power) return false;
  return true;
}

static bool add_term(GradTerms *s, const GradTerm *t) {
  if (t->c == 0) return true;
  for (uint32_t i = 0; i < s->n; i++) {
    GradTerm *x = &s->at[i];
    if (!same_factors(x->row, x->nrow, t->row, t->nrow) ||
        !same_factors(x->key, x->nkey, t->key, t->nkey))
      continue;
    double sum = x->c + t->c;
    if (fabs(sum) > 1e-14 * (fabs(x->c) + fabs(t->c))) x->c = sum;
    else *x = s->at[--s->n];
    return true;
  }
  if (s->n == MAX_TERMS) return false;
  s->at[s->n++] = *t;
  return true;
}

static bool product(const GradTerms *a, const GradTerms *b, GradTerms *out) {
  out->n = 0;
  for (uint32_t i = 0; i < a->n; i++)
    for (uint32_t k = 0; k < b->n; k++) {
      GradTerm t = a->at[i];
      if (!times(&t, &b->at[k], 1) || !add_term(out, &t)) return false;
    }
  return true;
}

static bool add_all(GradTerms *s, const GradTerms *x, double sign) {
  for (uint32_t i = 0; i < x->n; i++) {
    GradTerm t = x->at[i];
    t.c *= sign;
    if (!add_term(s, &t)) return false;
  }
  return true;
}

// ---------------------------------------------------------------- expansion
static bool expand(Sums *s, Gid x, GradTerms *out);

static void atom(const Sums *s, Gid x, GradTerms *out) {
  bool key = grad_at(s->g, x)->axes & s->over;
  GradTerm *t = &out->at[0];
  out->n = 1;
  *t = (GradTerm){.c = 1, .nkey = key, .nrow = !key};
  *(key ? t->key : t->row) = (Factor){x, 1};
}

static bool expand_product(Sums *s, Gid x, Gid y, GradTerms *out) {
  GradTerms *a = NEW(s->g->arena, GradTerms), *b = NEW(s->g->arena, GradTerms);
  return expand(s, x, a) && expand(s, y, b) && product(a, b, out);
}

// relu(x) and abs(x) are their slopes times x.
static Gid slope_of(Grad *g, Gid x) {
  OpCode c = grad_at(g, x)->code;
  Gid a = grad_at(g, x)->arg[0], zero = grad_num(g, 0), one = grad_num(g, 1);
  Gid below = zero;
  if (c != OP_RELU) {
    Gid minus = grad_num(g, -1);
    below = grad_3(g, OP_SELECT, grad_2(g, OP_LT, a, zero), minus, zero);
  }
  return grad_3(g, OP_SELECT, grad_2(g, OP_LT, zero, a), one, below);
}

static bool expand_quotient(Sums *s, Gid x, Gid y, GradTerms *out) {
  GradTerms *a = NEW(s->g->arena, GradTerms), *b = NEW(s->g->arena, GradTerms);
  if (!expand(s, y, b) || b->n != 1 || !expand(s, x, a)) return false;
  out->n = 0;
  for (uint32_t i = 0; i < a->n; i++) {
    GradTerm t = a->at[i];
    if (!times(&t, &b->at[0], -1) || !add_term(out, &t)) return false;
  }
  return true;
}

static bool expand_sum(Sums *s, const GradNode *n, GradTerms *out) {
  Gid x = n->arg[0], y = n->arg[1];
  double sign = n->code == OP_SUB ? -1 : 1;
  GradTerms *b = NEW(s->g->arena, GradTerms);
  return expand(s, x, out) && expand(s, y, b) && add_all(out, b, sign);
}

static bool expand_node(Sums *s, Gid x, GradTerms *out) {
  const GradNode n = *grad_at(s->g, x);
  bool key = n.axes & s->over;
  switch (n.code) {
  case OP_CAST:
    return dtype_is_float(grad_at(s->g, n.arg[0])->dtype) &&
           expand(s, n.arg[0], out);
  case OP_NEG: {
    GradTerms *a = NEW(s->g->arena, GradTerms);
    out->n = 0;
    return expand(s, n.arg[0], a) && add_all(out, a, -1);
  }
  case OP_ADD:
  case OP_SUB: return key && expand_sum(s, &n, out);
  case OP_MUL: return expand_product(s, n.arg[0], n.arg[1], out);
  case OP_DIV:
  case OP_DIVK: return expand_quotient(s, n.arg[0], n.arg[1], out);
  case OP_RELU:
  case OP_ABS:
    return key && expand_product(s, slope_of(s->g, x), n.arg[0], out);
  default: return false;
  }
}

// x as a sum of products; what it cannot be is a factor of its own.
static bool expand(Sums *s, Gid x, GradTerms *out) {
  const GradNode *n = grad_at(s->g, x);
  uint64_t known;
  if (!dtype_is_float(n->dtype)) return atom(s, x, out), true;
  if (n->code == OP_CONST) {
    out->n = 1;
    out->at[0] = (GradTerm){.c = n->value};
    return true;
  }
  if (s->depth == MAX_DEPTH) return atom(s, x, out), true;
  s->depth++;
  bool ok;
  if (map_get(&s->g->folded, x, &known))
    ok = expand_quotient(s, (Gid)(known >> 32), (Gid)known, out);
  else ok = expand_node(s, x, out);
  s->depth--;
  if (!ok) atom(s, x, out);
  return true;
}

// Terms of x that are 0 in sum leave none.
static GradTerms *terms_of(Grad *g, Gid x, uint64_t over) {
  Sums s = {.g = g, .over = over};
  GradTerms *t = NEW(g->arena, GradTerms);
  expand(&s, x, t);
  return t;
}

// ---------------------------------------------------------------- building
static Gid times_factors(Grad *g, Gid x, const Factor *f, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    for (int k = 0; k < f[i].power; k++)
      x = x ? grad_2(g, OP_MUL, x, f[i].node) : f[i].node;
  return x;
}

static Gid over_factors(Grad *g, Gid x, const Factor *f, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    for (int k = 0; k > f[i].power; k--) x = grad_ratio(g, x, f[i].node);
  return x;
}

static Gid build(Grad *g, const GradTerm *t) {
  Gid x = times_factors(g, 0, t->row, t->nrow);
  x = times_factors(g, x, t->key, t->nkey);
  if (!x) x = grad_num(g, t->c);
  else if (t->c == -1) x = grad_1(g, OP_NEG, x);
  else x = grad_2(g, OP_MUL, grad_num(g, t->c), x);
  x = over_factors(g, x, t->row, t->nrow);
  return over_factors(g, x, t->key, t->nkey);
}

// ---------------------------------------------------------------- known sums
void grad_learn(Grad *g) {
  uint64_t keys = grad_role(g, AX_KEY);
  for (Gid x = 1; x < g->forward; x++) {
    const GradNode n = *grad_at(g, x);
    if (n.code != OP_REDUCE || n.attr != RK_SUM || !(n.over & keys) ||
        (n.over & ~keys))
      continue;
    GradTerms *t = terms_of(g, n.arg[0], n.over);
    if (t->n != 1) continue;
    GradKnown k = {t->at[0], n.over, x};
    vec_push(g->arena, &g->known, k);
  }
}

static const GradKnown *look_up(const Grad *g, const GradTerm *t,
                                uint64_t over) {
  for (uint32_t i = 0; i < g->known.n; i++) {
    const GradKnown *k = &g->known.at[i];
    if (k->over == over &&
        same_factors(k->term.key, k->term.nkey, t->key, t->nkey))
      return k;
  }
  return NULL;
}

// Values that are 0 in rows without keys of `over`.
typedef struct Empty {
  const Grad *g;
  uint64_t over;
  uint8_t *known;  // by Gid: 1 no, 2 yes
} Empty;

static bool vanishes(const Empty *e, Gid x);

static bool vanishing(const Empty *e, const GradNode *n) {
  switch (n->code) {
  case OP_CONST: return n->value == 0;
  case OP_REDUCE:
    return n->attr == RK_SUM &&
           (n->over == e->over ||
            (!(n->over & e->over) && vanishes(e, n->arg[0])));
  case OP_MUL: return vanishes(e, n->arg[0]) || vanishes(e, n->arg[1]);
  case OP_ADD:
  case OP_SUB: return vanishes(e, n->arg[0]) && vanishes(e, n->arg[1]);
  case OP_SELECT: return vanishes(e, n->arg[1]) && vanishes(e, n->arg[2]);
  case OP_CAST:
  case OP_NEG:
  case OP_DIVK:
  case GRAD_MADE: return vanishes(e, n->arg[0]);
  default: return false;
  }
}

static bool vanishes(const Empty *e, Gid x) {
  if (!e->known[x]) e->known[x] = (uint8_t)(1 + vanishing(e, grad_at(e->g, x)));
  return e->known[x] == 2;
}

// Does v cancel to 1 in t, where it is 0 in rows without keys and nothing else
// of t is?
static bool counts_rows(const Grad *g, const GradTerm *t, uint64_t over,
                        Gid v) {
  bool divided = false;
  for (uint32_t i = 0; i < t->nrow; i++)
    divided |= t->row[i].node == v && t->row[i].power == -1;
  if (!divided) return false;
  Empty e = {g, over, NEWN(g->arena, uint8_t, g->nodes.n)};
  for (uint32_t i = 0; i < t->nrow; i++)
    if (t->row[i].power > 0 && vanishes(&e, t->row[i].node)) return false;
  return vanishes(&e, v);
}

// c * row factors of t, times the sum k, times vec.
static Gid from_known(Grad *g, const GradTerm *t, const GradKnown *k, Gid v) {
  GradTerm r = {.c = t->c / k->term.c};
  bool ok = true;
  for (uint32_t i = 0; i < t->nrow; i++)
    ok = ok && put_factor(r.row, &r.nrow, t->row[i]);
  for (uint32_t i = 0; i < k->term.nrow; i++) {
    Factor f = {k->term.row[i].node, -k->term.row[i].power};
    ok = ok && put_factor(r.row, &r.nrow, f);
  }
  bool counted = ok && counts_rows(g, &r, k->over, v);
  ok = ok && put_factor(r.row, &r.nrow, (Factor){v, 1});
  Gid x = ok ? build(g, &r) : 0;
  if (!counted || !ok) return x;
  Gid zero = grad_num(g, 0);
  return grad_or_0(g, grad_2(g, OP_NE, v, zero), x);
}

// The factor at position i is a contraction: its vector of the row in front.
static Gid hoist(Grad *g, const GradTerm *t, uint32_t i, uint64_t over) {
  const GradNode z = *grad_at(g, t->key[i].node);
  GradTerm rest = *t;
  if (t->key[i].power != 1 || z.code != OP_REDUCE || z.attr != RK_SUM ||
      (z.over & ~grad_role(g, AX_VEC)))
    return 0;
  GradTerms *in = terms_of(g, z.arg[0], over);
  if (in->n != 1 ||
      !put_factor(rest.key, &rest.nkey, (Factor){t->key[i].node, -1}))
    return 0;
  for (uint32_t k = 0; k < in->at[0].nkey; k++)
    if (!put_factor(rest.key, &rest.nkey, in->at[0].key[k])) return 0;
  const GradKnown *known = look_up(g, &rest, over);
  if (!known) return 0;
  // the row's part of the contraction with the sum that is known
  GradTerm a = in->at[0];
  a.nkey = 0;
  a.c = 1;
  Gid v = grad_2(g, OP_MUL, build(g, &a), known->v);
  Gid dot = grad_sum(g, v, z.over, grad_at(g, v)->axes | z.over);
  rest.c = t->c * in->at[0].c;
  return from_known(g, &rest, known, dot);
}

static Gid without_loop(Grad *g, const GradTerm *t, uint64_t over) {
  const GradKnown *k = look_up(g, t, over);
  Gid x = k ? from_known(g, t, k, k->v) : 0;
  for (uint32_t i = 0; !x && i < t->nkey; i++) x = hoist(g, t, i, over);
  return x;
}

Gid grad_rewrite(Grad *g, Gid x, uint64_t over, uint64_t points) {
  if (!over || (over & (over - 1))) return 0;
  GradTerms *t = terms_of(g, x, over);
  GradTerms rest = {0};
  Gid total = grad_num(g, 0), left = grad_num(g, 0);
  for (uint32_t i = 0; i < t->n; i++) {
    Gid y = without_loop(g, &t->at[i], over);
    if (y) total = grad_2(g, OP_ADD, total, y);
    else rest.at[rest.n++] = t->at[i];
  }
  if (t->n && rest.n == t->n) return 0;
  for (uint32_t i = 0; i < rest.n; i++)
    left = grad_2(g, OP_ADD, left, build(g, &rest.at[i]));
  if (rest.n) total = grad_2(g, OP_ADD, total, grad_sum(g, left, over, points));
  return total;
}

// ---------------------------------------------------------------- factors
// Sums of rows, apart too, so that a divisor inside them is seen.
static bool unfold_rows(Grad *g, const GradTerm *t, GradTerms *out) {
  GradTerms *all = NEW(g->arena, GradTerms), *next = NEW(g->arena, GradTerms);
  GradTerm start = {.c = t->c, .nkey = t->nkey};
  memcpy(start.key, t->key, sizeof start.key);
  all->n = 1, all->at[0] = start;
  for (uint32_t i = 0; i < t->nrow; i++) {
    Gid z = t->row[i].node;
    Sums s = {.g = g, .over = grad_at(g, z)->axes};
    GradTerms *in = NEW(g->arena, GradTerms);
    if (t->row[i].power == 1) expand(&s, z, in);
    else {
      in->n = 1;
      in->at[0] = (GradTerm){.c = 1, .nrow = 1};
      in->at[0].row[0] = t->row[i];
    }
    for (uint32_t k = 0; k < in->n; k++) {
      GradTerm *x = &in->at[k];
      for (uint32_t j = 0; j < x->nkey; j++)
        if (!put_factor(x->row, &x->nrow, x->key[j])) return false;
      x->nkey = 0;
    }
    if (!product(all, in, next)) return false;
    GradTerms *swap = all;
    all = next, next = swap;
  }
  return add_all(out, all, 1);
}

// exp(a - m) / l is exp(a - (m + log l)): one value of the row to read.
static bool fold_divisor(Grad *g, GradTerm *t, uint64_t keys) {
  for (uint32_t i = 0; i < t->nkey; i++) {
    const GradNode z = *grad_at(g, t->key[i].node);
    const GradNode d = *grad_at(g, z.n ? z.arg[0] : t->key[i].node);
    if (z.code != OP_EXP || t->key[i].power < 1 || d.code != OP_SUB ||
        (grad_at(g, d.arg[1])->axes & keys))
      continue;
    for (uint32_t j = 0; j < t->nrow; j++) {
      OpCode c = grad_at(g, t->row[j].node)->code;
      if (t->row[j].power >= 0 || (c != OP_REDUCE && c != OP_ADD)) continue;
      Gid l = t->row[j].node, e = t->key[i].node;
      Gid ref = grad_2(g, OP_ADD, d.arg[1], grad_1(g, OP_LOG, l));
      Gid y = grad_1(g, OP_EXP, grad_2(g, OP_SUB, d.arg[0], ref));
      map_put(&g->folded, y, (uint64_t)e << 32 | l);
      return put_factor(t->row, &t->nrow, (Factor){l, 1}) &&
             put_factor(t->key, &t->nkey, (Factor){e, -1}) &&
             put_factor(t->key, &t->nkey, (Factor){y, 1});
    }
  }
  return false;
}

static void meet(Factor *a, uint32_t *n, const Factor *b, uint32_t m) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < *n; i++) {
    int p = 0;
    for (uint32_t k = 0; k < m; k++)
      if (b[k].node == a[i].node) p = b[k].power;
    if (p * a[i].power <= 0) continue;
    if (abs(p) < abs(a[i].power)) a[i].power = p;
    a[kept++] = a[i];
  }
  *n = kept;
}

static GradTerm common_of(const GradTerms *t) {
  GradTerm c = t->at[0];
  c.c = 1;
  for (uint32_t i = 1; i < t->n; i++) {
    meet(c.row, &c.nrow, t->at[i].row, t->at[i].nrow);
    meet(c.key, &c.nkey, t->at[i].key, t->at[i].nkey);
  }
  return c;
}

Gid grad_factored(Grad *g, Gid x) {
  uint64_t keys = grad_at(g, x)->axes & grad_role(g, AX_KEY);
  if (!keys || (grad_at(g, x)->axes & grad_role(g, AX_VEC))) return x;
  const GradNode n = *grad_at(g, x);
  if (n.code == OP_SELECT && n.attr) {
    Gid other = grad_factored(g, n.arg[2]);
    return grad_path(g, n.arg[0], grad_factored(g, n.arg[1]), other);
  }
  GradTerms *t = terms_of(g, x, keys), *flat = NEW(g->arena, GradTerms);
  for (uint32_t i = 0; i < t->n; i++)
    if (!unfold_rows(g, &t->at[i], flat)) return x;
  if (!flat->n) return grad_num(g, 0);
  for (uint32_t i = 0; i < flat->n; i++)
    while (fold_divisor(g, &flat->at[i], keys)) {}
  GradTerm common = common_of(flat);
  Gid sum[2] = {grad_num(g, 0), grad_num(g, 0)};  // of rows, of keys
  for (uint32_t i = 0; i < flat->n; i++) {
    GradTerm one = flat->at[i];
    if (!times(&one, &common, -1)) return x;
    Gid *to = &sum[one.nkey > 0];
    *to = grad_2(g, OP_ADD, *to, build(g, &one));
  }
  Gid rest = grad_2(g, OP_ADD, sum[1], sum[0]);
  return grad_2(g, OP_MUL, build(g, &common), rest);
}

// ---------------------------------------------------------------- nested
static uint64_t summed(const Grad *g, Gid x, Gid from, bool *seen) {
  const GradNode *n = grad_at(g, x);
  if (x < from || seen[x]) return 0;
  seen[x] = true;
  uint64_t all = n->code == OP_REDUCE ? n->over : 0;
  for (uint32_t i = 0; i < n->n && !grad_is_made(n->code); i++)
    all |= summed(g, n->arg[i], from, seen);
  return all & ~grad_role(g, AX_VEC);
}

// Does the program load vectors at the points of these axes?
static bool has_vectors(const Grad *g, uint64_t axes) {
  uint64_t vecs = grad_role(g, AX_VEC);
  for (Gid x = 1; x < g->forward; x++) {
    const GradNode *n = grad_at(g, x);
    bool vector = n->code == OP_LOAD && (n->axes & vecs);
    if (vector && (n->axes & ~vecs) == axes) return true;
  }
  return false;
}

bool grad_sums_sums(Grad *g, const GradNode *x) {
  uint64_t keys = grad_role(g, AX_KEY), over = x->over & ~grad_role(g, AX_VEC);
  bool *seen = NEWN(g->arena, bool, g->nodes.n);
  if (!summed(g, x->arg[0], g->forward, seen)) return false;
  return !(over & keys) || !(over & ~keys) || has_vectors(g, over);
}
