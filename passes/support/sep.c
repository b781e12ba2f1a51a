// Separation: F(x, d) = sum_i G_i(x) * H_i(d), by structural rules.
//
//   exp(s - m)              ->  [exp(s)] * [exp(-m)]
//   relu(exp(s-m)-exp(-m))  ->  [relu(exp(s) - 1)] * [exp(-m)]
//   (s - mean) ** 2         ->  s^2 * 1  -  2 s * mean  +  1 * mean^2
//
// x varies with the key, d are the row values that still move; final row
// values may stand on either side. The rules are those of an algebra of
// homomorphisms: exp turns sums into products, log the other way round; abs,
// relu, max, min and rounding are positively homogeneous; sums and products
// distribute. Anything else that mixes x and d does not separate.
#include "passes/support/sym.h"

#include <math.h>

bool sep_nonneg(const Sym *s, Ex e) {
  return sym_has(s, e, EF_POS);
}

static Sep fail(Ex why) {
  return (Sep){.why = why};
}

static Sep one_term(Sym *s, Ex g, Ex h) {
  Sep r = {.ok = true, .n = 1, .at = NEWN(s->arena, SepTerm, 1)};
  r.at[0] = (SepTerm){g, h};
  return r;
}

// Merges terms with equal h (adding g), then terms with equal g (adding h).
static Sep collect(Sym *s, const SepTerm *t, uint32_t n) {
  Sep a = {.ok = true, .at = NEWN(s->arena, SepTerm, n + 1)};
  for (uint32_t i = 0; i < n; i++) {
    uint32_t j = 0;
    while (j < a.n && a.at[j].h != t[i].h) j++;
    if (j < a.n) a.at[j].g = sym_add2(s, a.at[j].g, t[i].g);
    else a.at[a.n++] = t[i];
  }
  Sep b = {.ok = true, .at = NEWN(s->arena, SepTerm, n + 1)};
  for (uint32_t i = 0; i < a.n; i++) {
    if (sym_is_const(s, a.at[i].g, 0)) continue;
    uint32_t j = 0;
    while (j < b.n && b.at[j].g != a.at[i].g) j++;
    if (j < b.n) b.at[j].h = sym_add2(s, b.at[j].h, a.at[i].h);
    else b.at[b.n++] = a.at[i];
  }
  return b;
}

static Sep product(Sym *s, Sep a, Sep b, Ex whole) {
  if (a.n * b.n > SEP_MAX) return fail(whole);
  SepTerm *t = NEWN(s->arena, SepTerm, a.n * b.n + 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < a.n; i++)
    for (uint32_t j = 0; j < b.n; j++)
      t[n++] = (SepTerm){sym_mul2(s, a.at[i].g, b.at[j].g),
                         sym_mul2(s, a.at[i].h, b.at[j].h)};
  return collect(s, t, n);
}

static Sep sep_add(Sym *s, Ex f) {
  Vec(SepTerm) all = {0};
  uint32_t n = sym_at(s, f)->n;
  for (uint32_t i = 0; i < n; i++) {
    Sep a = sep_of(s, sym_at(s, f)->kid[i]);
    if (!a.ok) return a;
    for (uint32_t j = 0; j < a.n; j++) vec_push(s->arena, &all, a.at[j]);
  }
  Sep r = collect(s, all.at, all.n);
  return r.n > SEP_MAX ? fail(f) : r;
}

static Sep sep_mul(Sym *s, Ex f) {
  Ex one = sym_const(s, 1);
  Sep r = one_term(s, one, one);
  uint32_t n = sym_at(s, f)->n;
  for (uint32_t i = 0; i < n && r.ok; i++) {
    Sep a = sep_of(s, sym_at(s, f)->kid[i]);
    if (!a.ok) return a;
    r = product(s, r, a, f);
  }
  return r;
}

// Each term of the argument must be x alone, or a constant times d alone.
static Sep sep_exp(Sym *s, Ex f) {
  Sep a = sep_of(s, sym_at(s, f)->kid[0]);
  if (!a.ok) return a;
  Ex x = sym_const(s, 0), d = x;
  for (uint32_t i = 0; i < a.n; i++) {
    SepTerm t = a.at[i];
    if (sym_is_const(s, t.h, 1)) x = sym_add2(s, x, t.g);
    else if (sym_at(s, t.g)->kind == EX_CONST)
      d = sym_add2(s, d, sym_mul2(s, t.g, t.h));
    else return fail(f);
  }
  d = sym_exp(s, d);
  return one_term(s, sym_exp(s, x), d);
}

static Sep sep_pow(Sym *s, Ex f) {
  double p = sym_at(s, f)->c;
  Sep a = sep_of(s, sym_at(s, f)->kid[0]);
  if (!a.ok) return a;
  if (a.n == 1 && (p == floor(p) || sep_nonneg(s, a.at[0].h))) {
    Ex h = sym_pow(s, a.at[0].h, p);
    return one_term(s, sym_pow(s, a.at[0].g, p), h);
  }
  if (p != 2 && p != 3 && p != 4) return fail(f);
  Sep r = a;
  for (int i = 1; i < (int)p && r.ok; i++) r = product(s, r, a, f);
  return r;
}

static Sep sep_log(Sym *s, Ex f) {
  Sep a = sep_of(s, sym_at(s, f)->kid[0]);
  if (!a.ok) return a;
  if (a.n != 1 || !sep_nonneg(s, a.at[0].h)) return fail(f);
  SepTerm t[2] = {{sym_log(s, a.at[0].g), sym_const(s, 1)},
                  {sym_const(s, 1), sym_log(s, a.at[0].h)}};
  return collect(s, t, 2);
}

// Functions with f(a * h) = f(a) * h for h >= 0.
static Sep sep_homogeneous(Sym *s, Ex f) {
  OpCode code = (OpCode)sym_at(s, f)->code;
  Sep a = sep_of(s, sym_at(s, f)->kid[0]);
  if (!a.ok) return a;
  if (a.n != 1 || !sep_nonneg(s, a.at[0].h)) return fail(f);
  return one_term(s, sym_op(s, code, &a.at[0].g, 1), a.at[0].h);
}

static Sep sep_maxmin(Sym *s, Ex f) {
  OpCode code = (OpCode)sym_at(s, f)->code;
  Ex x = sym_at(s, f)->kid[0], y = sym_at(s, f)->kid[1];
  Sep a = sep_of(s, x), b = sep_of(s, y);
  if (!a.ok) return a;
  if (!b.ok) return b;
  if (a.n == 0) a = one_term(s, sym_const(s, 0), b.n ? b.at[0].h : 0);
  if (b.n == 0) b = one_term(s, sym_const(s, 0), a.at[0].h);
  if (sym_is_const(s, x, 0)) a.at[0].h = b.at[0].h;
  if (sym_is_const(s, y, 0)) b.at[0].h = a.at[0].h;
  if (a.n != 1 || b.n != 1 || a.at[0].h != b.at[0].h ||
      !sep_nonneg(s, a.at[0].h))
    return fail(f);
  return one_term(s, sym_op(s, code, (Ex[]){a.at[0].g, b.at[0].g}, 2),
                  a.at[0].h);
}

// select(c, a, b), c of x alone: terms with equal h share one select.
static Sep sep_select(Sym *s, Ex f) {
  Ex c = sym_at(s, f)->kid[0], zero = sym_const(s, 0);
  if (sym_has(s, c, EF_D)) return fail(f);
  Ex ka = sym_at(s, f)->kid[1], kb = sym_at(s, f)->kid[2];
  Sep a = sep_of(s, ka), b = sep_of(s, kb);
  if (!a.ok) return a;
  if (!b.ok) return b;
  SepTerm *t = NEWN(s->arena, SepTerm, a.n + b.n + 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < a.n; i++) {
    Ex other = zero;
    for (uint32_t j = 0; j < b.n; j++)
      if (b.at[j].h == a.at[i].h) {
        other = b.at[j].g;
        b.at[j].g = 0;
      }
    t[n++] = (SepTerm){sym_op(s, OP_SELECT, (Ex[]){c, a.at[i].g, other}, 3),
                       a.at[i].h};
  }
  for (uint32_t j = 0; j < b.n; j++)
    if (b.at[j].g)
      t[n++] = (SepTerm){sym_op(s, OP_SELECT, (Ex[]){c, zero, b.at[j].g}, 3),
                         b.at[j].h};
  return n > SEP_MAX ? fail(f) : collect(s, t, n);
}

// Rounding moves from g * h to g. Scaled by a gauge g is at most about 1, and
// so it may. Else g can leave the range of a narrow type where g * h does not,
// and a sum of several such terms can cancel: g stays exact then.
static bool may_round(Sym *s, const Sep *a, uint32_t i, DType t) {
  Ex rolling, late;
  sep_split(s, a->at[i].h, &rolling, &late);
  bool wide = t == DT_F64 || t == DT_F32 || t == DT_TF32 || t == DT_BF16;
  return !sym_is_const(s, rolling, 1) || (wide && a->n == 1);
}

// Linear maps: rounding (its error is that of any reordering) and stop_grad.
static Sep sep_linear(Sym *s, Ex f) {
  ExNode n = *sym_at(s, f);
  Sep a = sep_of(s, n.kid[0]);
  if (!a.ok) return a;
  for (uint32_t i = 0; i < a.n; i++) {
    Ex *g = &a.at[i].g;
    if (n.kind != EX_CAST) *g = sym_op(s, OP_STOP_GRAD, g, 1);
    else if (may_round(s, &a, i, (DType)n.code))
      *g = sym_cast(s, (DType)n.code, *g);
  }
  return collect(s, a.at, a.n);
}

static Sep sep_op(Sym *s, Ex f) {
  switch ((OpCode)sym_at(s, f)->code) {
  case OP_ABS:
  case OP_RELU: return sep_homogeneous(s, f);
  case OP_MAX:
  case OP_MIN: return sep_maxmin(s, f);
  case OP_LOG: return sep_log(s, f);
  case OP_SELECT: return sep_select(s, f);
  case OP_STOP_GRAD: return sep_linear(s, f);
  default: return fail(f);
  }
}

Sep sep_of(Sym *s, Ex f) {
  Ex one = sym_const(s, 1);
  if (sym_is_const(s, f, 0)) return (Sep){.ok = true};
  if (!sym_has(s, f, EF_D)) return one_term(s, f, one);
  if (!sym_has(s, f, EF_KEY)) {
    // Constants go to the x side, so that equal h are found equal.
    double c = sym_coef(s, f);
    Ex h = sym_uncoef(s, f);
    return one_term(s, sym_const(s, c), h);
  }
  switch ((ExKind)sym_at(s, f)->kind) {
  case EX_ADD: return sep_add(s, f);
  case EX_MUL: return sep_mul(s, f);
  case EX_EXP: return sep_exp(s, f);
  case EX_POW: return sep_pow(s, f);
  case EX_CAST: return sep_linear(s, f);
  case EX_OP: return sep_op(s, f);
  default: return fail(f);
  }
}

// ---------------------------------------------------------------- factors
void sep_split(Sym *s, Ex h, Ex *rolling, Ex *late) {
  ExNode n = *sym_at(s, h);
  const Ex *kid = n.kind == EX_MUL ? n.kid : &h;
  uint32_t nk = n.kind == EX_MUL ? n.n : 1;
  *rolling = *late = sym_const(s, 1);
  for (uint32_t i = 0; i < nk; i++) {
    Ex *to = sym_at(s, kid[i])->kind == EX_EXP ? rolling : late;
    *to = sym_mul2(s, *to, kid[i]);
  }
}

static Ex fuse_kids(Sym *s, ExNode n, uint32_t from, Ex h) {
  Ex *kid = NEWN(s->arena, Ex, n.n);
  for (uint32_t i = 0; i < n.n; i++)
    kid[i] = i < from ? n.kid[i] : sep_fuse(s, n.kid[i], h);
  return n.kind == EX_ADD    ? sym_add(s, kid, n.n)
         : n.kind == EX_CAST ? sym_cast(s, (DType)n.code, kid[0])
                             : sym_op(s, (OpCode)n.code, kid, n.n);
}

Ex sep_fuse(Sym *s, Ex g, Ex h) {
  if (sym_is_const(s, h, 1) || sym_is_const(s, g, 0))
    return sym_is_const(s, g, 0) ? g : g;
  ExNode n = *sym_at(s, g);
  if (n.kind == EX_ADD || n.kind == EX_CAST) return fuse_kids(s, n, 0, h);
  if (n.kind == EX_OP) {
    switch ((OpCode)n.code) {
    case OP_ABS:
    case OP_RELU:
    case OP_MAX:
    case OP_MIN:
    case OP_STOP_GRAD: return fuse_kids(s, n, 0, h);
    case OP_SELECT: return fuse_kids(s, n, 1, h);
    default: return sym_mul2(s, g, h);
    }
  }
  if (n.kind != EX_MUL) return sym_mul2(s, g, h);
  for (uint32_t i = 0; i < n.n; i++) {
    if (!sym_has(s, n.kid[i], EF_EXP)) continue;
    Ex *kid = NEWN(s->arena, Ex, n.n);
    memcpy(kid, n.kid, n.n * sizeof *kid);
    kid[i] = sep_fuse(s, kid[i], h);
    return sym_mul(s, kid, n.n);
  }
  return sym_mul2(s, g, h);
}

void sep_strip(Sym *s, Ex g, Ex *inner, Ex *outer) {
  ExNode n = *sym_at(s, g);
  *inner = g;
  *outer = sym_const(s, 1);
  if (n.kind == EX_CAST) {
    sep_strip(s, n.kid[0], inner, outer);
    *inner = sym_cast(s, (DType)n.code, *inner);
    return;
  }
  if (!sym_has(s, g, EF_KEY)) {
    *outer = g;
    *inner = sym_const(s, 1);
    return;
  }
  if (n.kind != EX_MUL) return;
  *inner = sym_const(s, 1);
  for (uint32_t i = 0; i < n.n; i++) {
    Ex *to = sym_has(s, n.kid[i], EF_KEY) ? inner : outer;
    *to = sym_mul2(s, *to, n.kid[i]);
  }
}
