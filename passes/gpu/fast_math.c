// fast_math: functions of tiles cost what their use needs.
//
//   %x = div(mul(%s, splat(%a)), splat(%c))     %x = mul(%s, splat(%a * (1 / %c)))
//
//   %y = sigmoid(%x)                            %t = exp2(min(mul(%x, -log2 e), ..))
//   %p = cast(%y) {to = bf16}             ->    %y = div(1, add(%t, 1)) {approx = 11}
//                                               %p = cast(%y) {to = bf16}
//
// A division by what all elements have in common is a multiplication by its
// reciprocal, which is joined with other factors: 2 ulp. So is one by what a
// row or a column has in common, where the quotient is rounded to 16 bits, or
// to 8, with a step that rounds it as a division does. A sigmoid or an
// exponential that is rounded to 16 bits, and used for nothing else, is a power
// of two with log2 e joined with the factors before it; products, quotients,
// choices and sums of what is not negative may come between. Its error is below
// |x| 2^-24 of the value, |x| < 89; that of a division with `approx` below
// 2^-approx of the quotient: a fraction of the rounding (2^-9 bf16, 2^-12 f16).
// Where products leave the special units time, these do every fourth one (three
// warpgroups: 613 TFLOP/s for 580; two lose by it). A comparison of a power
// with a constant is one of its exponent. Level frag. Needs: lower_gpu. Run dce
// afterwards. Tests: test/passes/fast_math/.
#include "ir/target.h"
#include "passes/support/balance.h"
#include "passes/support/cost.h"
#include "passes/pass.h"
#include "passes/support/range.h"

#include <math.h>

static const double log2e = 1.4426950408889634;

// 2 ** this has a reciprocal below the least normal number: it becomes 0, as
// that of infinity. The quotient's first guess is positive up to 2 ** 127.
static const double top = 126.5;

#define MOST_E4M3 448
#define TINY 1e-30  // a 448th of it is a normal number

typedef struct Approx {
  Func *f;
  const GpuFacts *gpu;  // or NULL: quotients are all alike
  Builder b;
  Ranges ranges;
  uint32_t *narrow;  // by value: its uses that are rounded to 16-bit floats
  uint32_t *bits;    // by value: mantissa bits of the widest such cast
} Approx;

static const Type *type_of(const Approx *x, Value v) {
  return ir_type(x->f, v);
}

static bool is_tile(const Approx *x, Value v) {
  const Type *t = type_of(x, v);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE && t->dtype == DT_F32;
}

static bool is_const(const Approx *x, Value v, double *k) {
  const Op *op = ir_def(x->f, v);
  return op && op->code == OP_CONST && ir_const_value(x->f, v, k);
}

// The scalar that all elements of v are, or 0.
static Value common(Approx *x, Value v) {
  const Op *op = ir_def(x->f, v);
  double k;
  if (op && op->code == OP_SPLAT) return op->args[0];
  return is_const(x, v, &k) ? ir_const_f(&x->b, DT_F32, k) : 0;
}

static Value spread(Approx *x, Value v, Value like) {
  if (type_of(x, like)->kind != TK_FRAG) return v;
  return ir_op(&x->b, OP_SPLAT, &v, 1, NULL, 0, type_of(x, like), 1, 0)->res[0];
}

// ---------------------------------------------------------------- factors
static Value scaled(Approx *x, Value v, Value c);

// a * u with u common: a * (u * c).
static bool factor_of(Approx *x, Value v, Value *a, Value *u) {
  const Op *op = ir_def(x->f, v);
  for (uint32_t i = 0; op && op->code == OP_MUL && i < 2; i++) {
    *a = op->args[1 - i];
    *u = common(x, op->args[i]);
    if (*u) return true;
  }
  return false;
}

// a * u + w: a * (u * c) + (w * c).
static Value scaled_sum(Approx *x, const Op *op, Value c) {
  for (uint32_t i = 0; i < 2; i++) {
    Value a, u, w = common(x, op->args[1 - i]);
    if (!w || !factor_of(x, op->args[i], &a, &u)) continue;
    Value k = spread(x, ir_2(&x->b, OP_MUL, u, c), a);
    return ir_3(&x->b, OP_FMA, a, k, spread(x, ir_2(&x->b, OP_MUL, w, c), a));
  }
  return 0;
}

// A masked element is infinite, and stays so.
static Value scaled_fill(Approx *x, const Op *op, Value c, double sign) {
  double k;
  if (!is_const(x, op->args[2], &k) || !isinf(k)) return 0;
  Type t = *type_of(x, op->args[2]);
  IrAttr at = {.id = AT_VALUE, .f = k * sign};
  Value fill = ir_op(&x->b, OP_CONST, NULL, 0, &at, 1, &t, 1, 0)->res[0];
  return ir_3(&x->b, OP_SELECT, op->args[0], scaled(x, op->args[1], c), fill);
}

// v * c.
static Value scaled(Approx *x, Value v, Value c) {
  const Op *op = ir_def(x->f, v);
  Value a, u, r = 0;
  double k;
  if (factor_of(x, v, &a, &u))
    return ir_2(&x->b, OP_MUL, a, spread(x, ir_2(&x->b, OP_MUL, u, c), a));
  if (op && op->code == OP_ADD) r = scaled_sum(x, op, c);
  if (op && op->code == OP_SELECT && is_const(x, c, &k) && k != 0)
    r = scaled_fill(x, op, c, k < 0 ? -1 : 1);
  return r ? r : ir_2(&x->b, OP_MUL, v, spread(x, c, v));
}

// ---------------------------------------------------------------- functions
static Value constant(Approx *x, Value like, double k) {
  return spread(x, ir_const_f(&x->b, type_of(x, like)->dtype, k), like);
}

static bool is_narrow(const Approx *x, Value v) {
  return is_tile(x, v) && x->narrow[v] &&
         x->narrow[v] == ir_count_uses(x->f, v);
}

static Value number(Approx *x, Type t, double k) {
  IrAttr at = {.id = AT_VALUE, .f = k};
  return ir_op(&x->b, OP_CONST, NULL, 0, &at, 1, &t, 1, 0)->res[0];
}

static Value spread_slice(Approx *x, Value v, Value like) {
  return ir_op(&x->b, OP_BCAST, &v, 1, NULL, 0, type_of(x, like), 1, 0)->res[0];
}

// Quotients that become 8-bit floats without an infinity, and nothing else.
static bool is_eight(const Approx *x, const Op *div) {
  uint32_t n = 0;
  for (Op *u = ir_first_use(div->next, div->res[0]); u;
       u = ir_first_use(u->next, div->res[0]))
    n += u->code == OP_CAST && type_of(x, u->res[0])->dtype == DT_F8E4M3;
  return is_tile(x, div->res[0]) && n == ir_count_uses(x->f, div->res[0]);
}

// Is v the largest |a| of a row, or more, over at most 448, and not tiny?
static bool is_share_of_largest(const Approx *x, Value a, Value v) {
  const Op *div = ir_def(x->f, v);
  double k, least;
  if (!div || (div->code != OP_DIV && div->code != OP_MUL) ||
      !is_const(x, div->args[1], &k))
    return false;
  if (div->code == OP_MUL) k = 1 / k;
  const Op *max = ir_def(x->f, div->args[0]);
  if (!max || max->code != OP_MAX || !(k > 0) || k > MOST_E4M3) return false;
  for (uint32_t i = 0; i < 2; i++) {
    const Op *r = ir_def(x->f, max->args[i]);
    const Op *abs =
        r && r->code == OP_FREDUCE ? ir_def(x->f, r->args[0]) : NULL;
    if (abs && abs->code == OP_ABS && abs->args[0] == a &&
        ir_attr_i(r, AT_KIND, 0) == RK_MAX &&
        is_const(x, max->args[1 - i], &least) && least >= TINY)
      return true;
  }
  return false;
}

// Casts of a quotient that no number of the type is too small for.
static void mark_within(Approx *x, const Op *div) {
  for (Op *u = ir_first_use(div->next, div->res[0]); u;
       u = ir_first_use(u->next, div->res[0]))
    ir_set_attr(x->f, u, attr_i(AT_INBOUNDS, 1));
}

// 1 / v of a tile that is a row's or a column's numbers, a constant, or a
// choice of such; or 0.
static Value inverse(Approx *x, Value v) {
  const Op *op = ir_def(x->f, v);
  double k;
  if (op && op->code == OP_BCAST) {
    Value one = number(x, *type_of(x, op->args[0]), 1);
    return spread_slice(x, ir_2(&x->b, OP_DIV, one, op->args[0]), v);
  }
  if (is_const(x, v, &k)) return number(x, *type_of(x, v), 1 / k);
  if (!op || op->code != OP_SELECT) return 0;
  Value yes = inverse(x, op->args[1]);
  Value no = yes ? inverse(x, op->args[2]) : 0;
  return no ? ir_3(&x->b, OP_SELECT, op->args[0], yes, no) : 0;
}

// Of a row or of a column, where the quotient is rounded. Half of the way
// between two 8-bit floats lie quotients of numbers of few bits: what the
// product left of the dividend is divided, too, which rounds as a quotient
// does. By infinity is 0.
static Value by_slice(Approx *x, const Op *op) {
  const Op *c = ir_def(x->f, op->args[1]);
  bool eight = is_eight(x, op) && c && c->code == OP_BCAST;
  if (!eight && !is_narrow(x, op->res[0])) return 0;
  Value a = op->args[0], rs = inverse(x, op->args[1]);
  if (!rs) return 0;
  Value q = ir_2(&x->b, OP_MUL, a, rs);
  if (!eight) return q;
  Value v = c->args[0], r = ir_def(x->f, rs)->args[0];
  Type t = *type_of(x, v);
  if (is_share_of_largest(x, a, v)) mark_within(x, op);
  Value zero = number(x, t, 0), none = ir_2(&x->b, OP_EQ, r, zero);
  v = ir_3(&x->b, OP_SELECT, none, zero, ir_1(&x->b, OP_NEG, v));
  Value rest = ir_3(&x->b, OP_FMA, q, spread_slice(x, v, c->res[0]), a);
  return ir_3(&x->b, OP_FMA, rest, rs, q);
}

static Value by_common(Approx *x, const Op *op) {
  Value c = is_tile(x, op->args[0]) ? common(x, op->args[1]) : 0;
  if (!c) return by_slice(x, op);
  Value one = ir_const_f(&x->b, DT_F32, 1);
  return scaled(x, op->args[0], ir_2(&x->b, OP_DIV, one, c));
}

static Value power(Approx *x, const Op *op) {
  if (!is_narrow(x, op->res[0])) return 0;
  Value t = scaled(x, op->args[0], ir_const_f(&x->b, DT_F32, log2e));
  return ir_1(&x->b, OP_EXP2, t);
}

// Do products leave the other units of the multiprocessor room, with groups of
// warps that wait for either?
static bool has_room(const Approx *x, const Region *step) {
  if (!x->gpu) return false;
  int64_t threads = ir_attr_i(x->f->body->first, AT_THREADS, 0);
  Balance b = balance_of(x->f, step);
  return threads >= COST_FILLED_GAPS * HW_GROUP_THREADS &&
         balance_products(&b, x->gpu, COST_PRODUCTS_TWICE);
}

static Value sigmoid(Approx *x, const Op *op) {
  Value y = op->res[0];
  if (!is_narrow(x, y)) return 0;
  uint32_t nattrs = has_room(x, op->parent) ? 2 : 1;
  Value t = scaled(x, op->args[0], ir_const_f(&x->b, DT_F32, -log2e));
  t = ir_2(&x->b, OP_MIN, t, constant(x, t, top));
  Value one = constant(x, t, 1);
  t = ir_2(&x->b, OP_ADD, ir_1(&x->b, OP_EXP2, t), one);
  Value args[] = {constant(x, t, 1), t};
  IrAttr at[] = {attr_i(AT_APPROX, x->bits[y] + COST_SIGMOID_GUARD),
                 attr_i(AT_EVERY, COST_SIGMOID_EVERY)};
  return ir_op(&x->b, OP_DIV, args, 2, at, nattrs, type_of(x, y), 1, 0)->res[0];
}

// (a - ref(b)) * s as (a - b) * s, where b >= a: they differ if both are -inf
// only, and then no comparison with a constant holds, of -inf or of NaN.
static Value plain_difference(Approx *x, Value v) {
  const Op *mul = ir_def(x->f, v);
  const Op *sub =
      mul && mul->code == OP_MUL ? ir_def(x->f, mul->args[0]) : NULL;
  const Op *ref =
      sub && sub->code == OP_SUB ? ir_def(x->f, sub->args[1]) : NULL;
  const Op *max =
      ref && ref->code == OP_REF ? ir_def(x->f, ref->args[0]) : NULL;
  bool above = max && max->code == OP_MAX &&
               (max->args[0] == sub->args[0] || max->args[1] == sub->args[0]);
  if (!above) return v;
  return ir_2(&x->b, OP_MUL, ir_2(&x->b, OP_SUB, sub->args[0], max->res[0]),
              mul->args[1]);
}

// c <= 2^v: log2 c <= v, which need not wait for the function.
static Value compare(Approx *x, const Op *op) {
  double k;
  for (uint32_t i = 0; i < 2; i++) {
    const Op *fn = ir_def(x->f, op->args[1 - i]);
    if (!fn || (fn->code != OP_EXP2 && fn->code != OP_EXP)) continue;
    if (!is_const(x, op->args[i], &k) || !(k > 0) || isinf(k)) continue;
    Value c[2];
    c[1 - i] = i ? fn->args[0] : plain_difference(x, fn->args[0]);
    c[i] = constant(x, c[1 - i], fn->code == OP_EXP ? log(k) : log2(k));
    return ir_2(&x->b, op->code, c[0], c[1]);
  }
  return 0;
}

// The reference of what is selected: those that it is selected from are known
// before the condition is.
static Value reference(Approx *x, const Op *op) {
  const Op *sel = ir_def(x->f, op->args[0]);
  if (!sel || sel->code != OP_SELECT || sel->parent != op->parent) return 0;
  Value yes = ir_1(&x->b, OP_REF, sel->args[1]);
  Value no = ir_1(&x->b, OP_REF, sel->args[2]);
  return ir_3(&x->b, OP_SELECT, sel->args[0], yes, no);
}

typedef Value Rule(Approx *x, const Op *op);
static Rule *const rules[OP_COUNT] = {
    [OP_DIV] = by_common, [OP_EXP] = power,  [OP_SIGMOID] = sigmoid,
    [OP_LE] = compare,    [OP_LT] = compare, [OP_REF] = reference,
};

// ---------------------------------------------------------------- walks
static void note(Approx *x, Value v, uint32_t bits) {
  x->narrow[v]++;
  if (bits > x->bits[v]) x->bits[v] = bits;
}

// The result's relative error is at most the largest of its operands', about.
static bool keeps_error(Approx *x, const Op *op) {
  if (op->code == OP_MUL || op->code == OP_DIV || op->code == OP_SELECT)
    return true;
  return op->code == OP_ADD && range_of(&x->ranges, op->args[0]).lo >= 0 &&
         range_of(&x->ranges, op->args[1]).lo >= 0;
}

// Uses come before what they use.
static void note_casts(Approx *x, const Region *r) {
  for (const Op *op = r->last; op; op = op->prev) {
    for (uint32_t i = 0; i < op->nregions; i++) note_casts(x, op->regions[i]);
    if (op->nres != 1) continue;
    DType t = type_of(x, op->res[0])->dtype;
    if (op->code == OP_CAST && (t == DT_BF16 || t == DT_F16))
      note(x, op->args[0], t == DT_BF16 ? 8 : 11);
    else if (is_narrow(x, op->res[0]) && keeps_error(x, op))
      for (uint32_t i = 0; i < op->nargs; i++)
        note(x, op->args[i], x->bits[op->res[0]]);
  }
}

static void region(Approx *x, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(x, op->regions[i]);
    if (!rules[op->code]) continue;
    x->b = (Builder){.fn = x->f, .region = r, .before = op, .span = op->span};
    Value v = rules[op->code](x, op);
    if (!v) continue;
    ir_replace_uses(x->f, op->res[0], v);
    ir_erase(op);
  }
}

bool pass_fast_math(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Approx x = {.f = m->funcs.at[i],
                .gpu = opt->target->gpu.hopper ? &opt->target->gpu : NULL};
    x.narrow = NEWN(&cx->scratch, uint32_t, x.f->values.n);
    x.bits = NEWN(&cx->scratch, uint32_t, x.f->values.n);
    range_init(&x.ranges, x.f, &cx->scratch);
    note_casts(&x, x.f->body);
    region(&x, x.f->body);
  }
  return true;
}
