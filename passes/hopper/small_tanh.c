// small_tanh: capped scores are polynomials where they are small beside the
// cap.
//
//   %x = mul(%s, splat(%c))               %big = exceeds(%s, %hi, %lo)
//   %t = tanh(%x)                         %m, %r, .., %e = if(%big) ({
//   %any = exceeds(%t, %limit)              %t = tanh(mul(%s, splat(%c))) {mixed}
//   %m, %r, .. = if(%any) ({                ..
//     %n = freduce(%t) {kind = max}   ->    yield(%n, %r1, .., %t * %k + %r1)
//     yield(%n, %r1, ..)                  }, {
//   }, { yield(%old, %r2, ..) })            %p = (%a2 s^2 + %a1) s^2 + %a0
//   %e = fma(%t, splat(%k), bcast(%r))      yield(%old, %r2, .., %s * %p + %r2)
//   %w = exp2(%e)                         })
//
// A score is small beside the cap as a rule. There tanh is an odd polynomial
// whose coefficients take up the scale in front of it and the factor behind it,
// so that an element costs one multiplication and three fmas, the exponent's
// among them. tanh x <= x for x >= 0: a row needs no new maximum where c s is
// below the limit. Elements that are large, and maxima that are too old, are
// one question and one branch. Where a step masks, or finds its maximum always,
// the function alone is in the branch; in a window the step in front of the
// loops, which are three, has no branch. For weights that are rounded to 16
// bits and their sums: relative error of the function 2^-16.4, where it is
// small 2^-16.9 (bf16), or 2^-21.4 (f16). Coefficients that are no normal
// numbers (caps above 2^16) are not used: all elements are large. Level frag;
// sm_90a. Needs: lazy_rescale. Run cse and dce afterwards. Tests:
// test/passes/small_tanh/.
#include "ir/layout.h"
#include "ir/target.h"
#include "passes/support/cost.h"
#include "passes/pass.h"
#include "passes/support/range.h"

enum { MAX_TERMS = 4 };

// tanh x = x P(x^2) for |x| < SMALL, by the bits that are wanted.
#define SMALL 0.42
typedef struct Fit {
  uint32_t bits, n;
  double k[MAX_TERMS];
} Fit;
static const Fit fits[] = {
    {HW_BF16_BITS,
     3,
     {0x1.fffee9e935373p-1, -0x1.5475fc30caac0p-2, 0x1.ec144763ecf31p-4}},
    {HW_F16_BITS,
     4,
     {0x1.fffffb3357836p-1, -0x1.554e7f568bed6p-2, 0x1.0f883963f91d3p-3,
      -0x1.80ab90a77973bp-5}},
};

typedef struct Cap {
  Func *f;
  Arena *arena;
  uint32_t *bits;  // by value: what its use needs, 0: it has none
  Ranges *ranges;
  Op *tanh;
  Value s, c;  // tanh(s * c)
  const Fit *fit;
  Op *ask, *cond, *fma;  // the guard of its maximum, the exponent; or NULL
  Op *power, *sum;       // exp2(fma); its sum, or NULL
  Value k, row;          // fma(tanh, splat(k), bcast(row))
} Cap;

// ---------------------------------------------------------------- uses
static void want(Cap *x, Value v, uint32_t bits) {
  if (bits > x->bits[v]) x->bits[v] = bits;
}

static bool is_weight(const Cap *x, Value v) {
  const Op *op = ir_def(x->f, v);
  return op && (op->code == OP_EXP2 || op->code == OP_EXP);
}

static uint32_t bits_for(const Cap *x, const Op *op, uint32_t arg) {
  DType t = op->nres ? ir_type(x->f, op->res[0])->dtype : DT_F32;
  if (op->code == OP_CAST && t == DT_BF16) return HW_BF16_BITS;
  if (op->code == OP_CAST && t == DT_F16) return HW_F16_BITS;
  if (op->code == OP_EXCEEDS) return 0;
  if (op->code == OP_FREDUCE) {
    bool max = ir_attr_i(op, AT_KIND, RK_SUM) == RK_MAX;
    return max || is_weight(x, op->args[arg]) ? 0 : HW_F32_BITS;
  }
  bool same =
      op_info(op->code)->flags & OPF_ELEM && op->nres == 1 && t == DT_F32;
  return same ? x->bits[op->res[0]] : HW_F32_BITS;
}

static void find_bits(Cap *x, const Region *r) {
  for (const Op *op = r->last; op; op = op->prev) {
    for (uint32_t i = op->nregions; i-- > 0;) find_bits(x, op->regions[i]);
    for (uint32_t i = 0; i < op->nargs; i++)
      want(x, op->args[i], bits_for(x, op, i));
  }
}

// ---------------------------------------------------------------- pattern
static bool is_outside(const Cap *x, Value v) {
  const Op *loop = x->tanh->parent->parent;
  bool steps = loop && loop->code == OP_FOR;
  return !steps || ir_defined_outside(x->f, v, x->tanh->parent);
}

// Constants and what comes of scalars outside of the loop goes here.
static Builder outside(const Cap *x) {
  Op *op = x->tanh->parent->parent;
  if (!op || op->code != OP_FOR) op = x->tanh;
  return (Builder){.fn = x->f,
                   .region = op->parent,
                   .before = op,
                   .span = op->span};
}

// The scalar that all elements are; or 0.
static Value common(const Cap *x, Value v) {
  const Op *op = ir_def(x->f, v);
  Builder b = outside(x);
  double k;
  if (ir_const_value(x->f, v, &k)) return ir_const_f(&b, DT_F32, k);
  return op && op->code == OP_SPLAT && is_outside(x, op->args[0]) ? op->args[0]
                                                                  : 0;
}

static void find_scale(Cap *x) {
  const Op *mul = ir_def(x->f, x->tanh->args[0]);
  x->s = x->tanh->args[0];
  for (uint32_t i = 0; mul && mul->code == OP_MUL && !x->c && i < 2; i++) {
    x->c = common(x, mul->args[i]);
    if (x->c) x->s = mul->args[1 - i];
  }
}

static const Fit *fit_for(uint32_t bits) {
  for (size_t i = 0; i < sizeof fits / sizeof *fits; i++)
    if (bits && bits <= fits[i].bits) return &fits[i];
  return NULL;
}

// For maxima only, on the side where there is a new one.
static bool is_maximum(const Cap *x, const Op *cond) {
  Value t = x->tanh->res[0];
  for (const Op *op = cond->regions[0]->first; op; op = op->next) {
    if (ir_mentions(op, t) && op->code != OP_FREDUCE) return false;
  }
  for (const Op *op = cond->regions[1]->first; op; op = op->next)
    if (ir_mentions(op, t)) return false;
  return true;
}

static bool is_exponent(Cap *x, Op *op) {
  const Op *b = op->code == OP_FMA ? ir_def(x->f, op->args[2]) : NULL;
  if (!b || b->code != OP_BCAST ||
      ir_type(x->f, b->args[0])->slice != SLICE_ROW)
    return false;
  x->k = common(x, op->args[op->args[0] == x->tanh->res[0] ? 1 : 0]);
  x->row = b->args[0];
  x->fma = op;
  bool known = is_outside(x, x->row);
  for (uint32_t i = 0; i < x->cond->nres; i++)
    known |= x->cond->res[i] == x->row;
  return x->k && known;
}

// Its uses are what lazy_rescale leaves: a question, maxima in the branch, the
// exponent.
static bool is_guarded(Cap *x) {
  Value t = x->tanh->res[0];
  for (Op *op = x->tanh->next; op; op = op->next) {
    if (!ir_mentions(op, t)) continue;
    bool ok = false;
    if (op->code == OP_EXCEEDS && !x->ask && op->nargs == 2)
      ok = (x->ask = op) != NULL;
    else if (op->code == OP_IF && x->ask && !x->cond &&
             op->args[0] == x->ask->res[0])
      ok = is_maximum(x, x->cond = op);
    else if (x->cond && !x->fma) ok = is_exponent(x, op);
    if (!ok) return false;
  }
  if (!x->fma || ir_count_uses(x->f, x->ask->res[0]) > 1) return false;
  for (Op *op = x->fma->next; op; op = op->next)
    if (op->code == OP_EXP2 && op->args[0] == x->fma->res[0]) x->power = op;
  for (Op *op = x->power ? x->power->next : NULL; op; op = op->next)
    if (op->code == OP_FREDUCE && op->args[0] == x->power->res[0] &&
        ir_type(x->f, op->res[0])->partial)
      x->sum = op;
  return x->power && ir_count_uses(x->f, x->fma->res[0]) == 1;
}

// ---------------------------------------------------------------- numbers
typedef struct Numbers {
  Value c, k;            // scalars; k may be 0: 1
  Value a[MAX_TERMS];    // k tanh(c s) = s (a0 + a1 s^2 ..)
  Value least, per, lo;  // SMALL or -1, 1 / |c|, their product
  Value neg;             // c < 0, or 0: it is not
} Numbers;

static Value num(Builder *b, double v) {
  return ir_const_f(b, DT_F32, v);
}

static Numbers numbers(const Cap *x, Builder *b) {
  Numbers n = {.c = x->c ? x->c : num(b, 1), .k = x->k};
  Value f = n.k ? ir_2(b, OP_MUL, n.k, n.c) : n.c,
        c2 = ir_2(b, OP_MUL, n.c, n.c);
  for (uint32_t i = 0; i < x->fit->n; i++) {
    n.a[i] = ir_2(b, OP_MUL, f, num(b, x->fit->k[i]));
    f = ir_2(b, OP_MUL, f, c2);
  }
  Value size = ir_1(b, OP_ABS, f);
  Value ok = ir_2(b, OP_LE, num(b, 0x1p-120), size);
  ok = ir_2(b, OP_AND, ok, ir_2(b, OP_LE, size, num(b, 0x1p120)));
  ok = ir_2(b, OP_AND, ok, ir_2(b, OP_LE, num(b, 0x1p-60), c2));
  Value never = num(b, -1);
  n.least = ir_3(b, OP_SELECT, ok, num(b, SMALL), never);
  Value most = ir_1(b, OP_ABS, n.c);
  n.per = ir_2(b, OP_DIV, num(b, 1), most);
  n.lo = ir_2(b, OP_MUL, n.least, n.per);
  bool positive = !x->c || range_of(x->ranges, x->c).lo >= 0;
  n.neg = positive ? 0 : ir_2(b, OP_LT, n.c, num(b, 0));
  return n;
}

static Value spread(const Cap *x, Builder *b, Value v, const Type *like) {
  Type t = *like;
  t.dtype = ir_type(x->f, v)->dtype;
  return ir_op(b, OP_SPLAT, &v, 1, NULL, 0, &t, 1, 0)->res[0];
}

static const Type *tile(const Cap *x) {
  return ir_type(x->f, x->tanh->res[0]);
}

static Value all(const Cap *x, Builder *b, Value v) {
  return spread(x, b, v, tile(x));
}

static Value large(const Cap *x, Builder *b, const Numbers *n) {
  Value t = ir_2(b, OP_MUL, x->s, all(x, b, n->c));
  IrAttr at[] = {attr_i(AT_MIXED, 1), attr_i(AT_APPROX, COST_CAP_BITS)};
  bool exact = x->fit->bits > HW_BF16_BITS;
  return ir_op(b, OP_TANH, &t, 1, at, exact ? 1 : 2, NULL, 1, 0)->res[0];
}

static Value polynomial(const Cap *x, Builder *b, const Numbers *n) {
  Value u = ir_2(b, OP_MUL, x->s, x->s), p = all(x, b, n->a[x->fit->n - 1]);
  for (uint32_t i = x->fit->n - 1; i-- > 0;)
    p = ir_3(b, OP_FMA, p, u, all(x, b, n->a[i]));
  return p;
}

static Value ask(const Cap *x, Builder *b, const Numbers *n, Value limit) {
  Type row;
  if (limit) row = *ir_type(x->f, limit);
  else row = frag_slice(tile(x), 0, false);
  Value args[] = {x->s, spread(x, b, n->lo, &row), spread(x, b, n->lo, &row)};
  if (limit) {
    Value hi = ir_2(b, OP_MIN, limit, spread(x, b, n->least, &row));
    args[1] = ir_2(b, OP_MUL, hi, spread(x, b, n->per, &row));
  }
  if (limit && n->neg) {
    Value bit = spread(x, b, n->neg, &row), hi = args[1], lo = args[2];
    args[1] = ir_3(b, OP_SELECT, bit, lo, hi);
    args[2] = ir_3(b, OP_SELECT, bit, hi, lo);
  }
  Type t = type_scalar(DT_BOOL);
  return ir_op(b, OP_EXCEEDS, args, 3, NULL, 0, &t, 1, 0)->res[0];
}

// ---------------------------------------------------------------- rewriting
static void replace(Cap *x, Value v) {
  ir_replace_uses(x->f, x->tanh->res[0], v);
  ir_erase(x->tanh);
}

// A step in front of three loops over keys is one of many: code is what it
// costs.
static bool is_rare(const Cap *x) {
  uint32_t loops = 0;
  for (const Op *op = x->tanh->next; op; op = op->next)
    loops += op->code == OP_FOR && ir_attr_i(op, AT_REVERSE, 0);
  return loops >= 3;
}

static void alone(Cap *x) {
  Builder o = outside(x), b = {.fn = x->f,
                               .region = x->tanh->parent,
                               .before = x->tanh,
                               .span = x->tanh->span};
  x->k = 0;
  Numbers n = numbers(x, &o);
  if (is_rare(x)) {
    replace(x, large(x, &b, &n));
    return;
  }
  Value big = ask(x, &b, &n, 0);
  Op *cond = ir_op(&b, OP_IF, &big, 1, NULL, 0, tile(x), 1, 2);
  Builder r = {.fn = x->f, .region = cond->regions[0], .span = b.span};
  Value v = large(x, &r, &n);
  ir_yield(&r, &v, 1);
  r.region = cond->regions[1];
  v = ir_2(&r, OP_MUL, x->s, polynomial(x, &r, &n));
  ir_yield(&r, &v, 1);
  replace(x, cond->res[0]);
}

// One side of the guard's branch, and the exponent.
static void side(Cap *x, Region *to, uint32_t i, const Numbers *n) {
  Builder b = {.fn = x->f, .region = to, .span = x->fma->span};
  const Region *from = x->cond->regions[i];
  ValueMap map = {.arena = x->arena};
  Value t = 0, row = x->row;
  if (i == 0) vmap_put(&map, x->tanh->res[0], t = large(x, &b, n));
  for (const Op *op = from->first; op != from->last; op = op->next)
    ir_clone(&b, x->f, op, &map, NULL);
  Value *out = NEWN(x->arena, Value, x->cond->nres + 2);
  for (uint32_t k = 0; k < x->cond->nres; k++) {
    out[k] = vmap_get(&map, from->last->args[k]);
    if (x->row == x->cond->res[k]) row = out[k];
  }
  row = ir_op(&b, OP_BCAST, &row, 1, NULL, 0, tile(x), 1, 0)->res[0];
  Value e = i == 0 ? ir_3(&b, OP_FMA, t, all(x, &b, x->k), row)
                   : ir_3(&b, OP_FMA, x->s, polynomial(x, &b, n), row);
  uint32_t last = x->cond->nres;
  out[last] = ir_1(&b, OP_EXP2, e);
  vmap_put(&map, x->power->res[0], out[last++]);
  if (x->sum) out[last++] = ir_clone(&b, x->f, x->sum, &map, NULL)->res[0];
  ir_yield(&b, out, last);
}

static void guarded(Cap *x) {
  Builder o = outside(x), b = {.fn = x->f,
                               .region = x->tanh->parent,
                               .before = x->cond,
                               .span = x->tanh->span};
  uint32_t n = x->cond->nres;
  Type *types = NEWN(x->arena, Type, n + 2);
  for (uint32_t i = 0; i < n; i++) types[i] = *ir_type(x->f, x->cond->res[i]);
  types[n] = *tile(x);
  if (x->sum) types[n + 1] = *ir_type(x->f, x->sum->res[0]);
  Numbers num = numbers(x, &o);
  Value big = ask(x, &b, &num, x->ask->args[1]);
  Op *cond =
      ir_op(&b, OP_IF, &big, 1, NULL, 0, types, x->sum ? n + 2 : n + 1, 2);
  for (uint32_t i = 0; i < 2; i++) side(x, cond->regions[i], i, &num);
  for (uint32_t i = 0; i < n; i++)
    ir_replace_uses(x->f, x->cond->res[i], cond->res[i]);
  ir_replace_uses(x->f, x->power->res[0], cond->res[n]);
  if (x->sum) ir_replace_uses(x->f, x->sum->res[0], cond->res[n + 1]);
  if (x->sum) ir_erase(x->sum);
  ir_erase(x->power);
  ir_erase(x->fma);
  ir_erase(x->cond);
  ir_erase(x->ask);
  ir_erase(x->tanh);
}

static void rewrite(Cap all, Op *op) {
  Cap x = all;
  x.tanh = op;
  x.fit = fit_for(x.bits[op->res[0]]);
  const Type *t = ir_type(x.f, op->res[0]);
  if (!x.fit || t->kind != TK_FRAG || t->slice || t->dtype != DT_F32 ||
      t->layout != LY_ACC)
    return;
  find_scale(&x);
  Value arg = op->args[0];
  if (is_guarded(&x)) guarded(&x);
  else alone(&x);
  if (arg != x.s && !ir_count_uses(x.f, arg)) ir_erase(ir_def(x.f, arg));
}

static void region(const Cap *x, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    for (uint32_t i = 0; i < op->nregions; i++) region(x, op->regions[i]);
    next = op->next;
    if (op->code == OP_TANH && !ir_attr_i(op, AT_MIXED, 0)) rewrite(*x, op);
  }
}

bool pass_small_tanh(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    Ranges ranges;
    Cap x = {.f = f, .arena = m->arena, .ranges = &ranges};
    range_init(&ranges, f, &cx->scratch);
    x.bits = NEWN(&cx->scratch, uint32_t, f->values.n);
    find_bits(&x, f->body);
    region(&x, f->body);
  }
  return true;
}
