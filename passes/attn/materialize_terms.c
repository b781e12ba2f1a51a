// Terms of a score that are read once a key (a gate, a bias of keys, a mask
// that is added) become an operand of one more product, which materialize
// makes:
//
//   before  %s = mul(%c, dot(%q, %k))
//           %x = sub(add(%s, %f), load(%F, %b, %h, %k))      %f of a row
//   after   %p = cast(parts of -load(..) / |%c|, by %part, else 0) : bf16{k,part}
//           %d = dot(select(%c < 0, -%q, %q), %k)
//           %x = mul(|%c|, add(add(%d, dot(1, %p)), %f / |%c|))
//
// Three bf16 numbers hold all 24 bits of an f32. They are copied as keys are
// and added by matrix units (passes/tile/bias_mma.c): steps load nothing for
// columns, have no registers for them and do what plain scores do. A term is
// rounded once more, by the division. |%c| is at least 2^-100, by which scores
// change by 2^-100 |q . k|; terms beyond 2^127 |%c| are taken for that.
// Infinite ones stay what they are, NaN too.
#include "ir/target.h"
#include "passes/attn/materialize.h"
#include "passes/support/balance.h"
#include "passes/support/cost.h"

#include <math.h>

enum { MAX_TERMS = 8 };

// A score as a sum.
typedef struct Sum {
  Value term[MAX_TERMS];
  bool minus[MAX_TERMS];
  uint32_t n;
  bool fails;
  uint32_t key;         // axis
  Op *dot;              // the product, among the terms
  Value scale;          // it is multiplied by, or 0
  bool negative;        // and subtracted
  Value columns, rows;  // what keys and what rows add, or 0
} Sum;

static bool has_lane(const Ahead *a, Value v) {
  return type_has_axis(ir_type(a->f, v), a->lane);
}

static int key_axis(const Ahead *a, Value v) {
  const Type *t = ir_type(a->f, v);
  for (uint32_t i = 0; i < t->n; i++)
    if (a->f->axes.at[t->axis[i]].role == AX_KEY) return (int)t->axis[i];
  return -1;
}

static bool is_tile(const Ahead *a, Value v) {
  const Type *t = ir_type(a->f, v);
  return t->kind == TK_ELEM && t->dtype == DT_F32 && has_lane(a, v) &&
         key_axis(a, v) >= 0;
}

static bool adds(const Op *op) {
  return op && (op->code == OP_ADD || op->code == OP_SUB);
}

// ---------------------------------------------------------------- pattern
static void add_term(const Ahead *a, Sum *s, Value v, bool minus, bool root) {
  const Op *op = ir_def(a->f, v);
  if (adds(op) && is_tile(a, v) && (root || ir_count_uses(a->f, v) == 1)) {
    add_term(a, s, op->args[0], minus, false);
    add_term(a, s, op->args[1], minus != (op->code == OP_SUB), false);
    return;
  }
  s->fails |= s->n == MAX_TERMS;
  if (s->fails) return;
  s->term[s->n] = v;
  s->minus[s->n++] = minus;
}

// A product over one vector of 16-bit queries and keys, used once.
static Op *product(const Ahead *a, Value v) {
  Op *op = ir_def(a->f, v);
  if (!op || op->code != OP_DOT || op->nargs != 2 ||
      ir_count_uses(a->f, v) != 1)
    return NULL;
  const IrAttr *axes = ir_attr(op, AT_OVER);
  bool ok = axes->n == 1 && a->f->axes.at[axes->list[0]].role == AX_VEC;
  for (uint32_t i = 0; i < 2; i++)
    ok &= dtype_is_float16(ir_type(a->f, op->args[i])->dtype);
  return ok && has_lane(a, op->args[0]) != has_lane(a, op->args[1]) ? op : NULL;
}

static bool is_factor(const Ahead *a, Value v) {
  const Type *t = ir_type(a->f, v);
  return t->dtype == DT_F32 && !t->n;
}

// The product, or a scalar times it.
static bool take_product(const Ahead *a, Sum *s, Value v, bool minus) {
  const Op *mul = ir_def(a->f, v);
  if (s->dot) return false;
  s->negative = minus;
  s->dot = product(a, v);
  for (uint32_t i = 0; !s->dot && mul && mul->code == OP_MUL && i < 2; i++) {
    if (!is_factor(a, mul->args[i]) || ir_count_uses(a->f, v) != 1) continue;
    s->dot = product(a, mul->args[1 - i]);
    s->scale = mul->args[i];
  }
  return s->dot;
}

// Is v made of something that each key has in memory?
static bool is_read(const Ahead *a, Value v) {
  const Op *op = ir_def(a->f, v);
  if (!op || key_axis(a, v) < 0) return false;
  if (op->code == OP_LOAD) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(a->f, op->args[i])->kind == TK_ELEM && is_read(a, op->args[i]))
      return true;
  return false;
}

static bool classify(const Ahead *a, Sum *s) {
  bool some = false;
  for (uint32_t i = 0; i < s->n; i++) {
    Value v = s->term[i];
    bool row = has_lane(a, v), key = key_axis(a, v) >= 0;
    if (ir_type(a->f, v)->dtype != DT_F32) return false;
    if (row && key && !take_product(a, s, v, s->minus[i])) return false;
    some |= key && !row && is_read(a, v);
  }
  return some && s->dot;
}

static int64_t products_of(const Ahead *a, const Op *dot) {
  Type t = type_union(ir_type(a->f, dot->args[0]), ir_type(a->f, dot->args[1]),
                      DT_F32);
  int64_t n = 1, of;
  bool lane = type_has_axis(&t, a->lane), key = false;
  for (uint32_t i = 0; i < t.n; i++) {
    const Axis *x = &a->f->axes.at[t.axis[i]];
    key |= x->role == AX_KEY;
    if (x->role == AX_VEC)
      n *= dim_is_const(&a->f->mod->dims, x->extent, &of) ? of
                                                          : COST_UNKNOWN_VEC;
  }
  return lane && key ? n : 0;
}

// One more block of a product is hidden where a pair's products do not take
// twice the time of its exponential: an eighth of those of D 64, but not the
// sixteenth of D 128's, which nothing hides (docs/lab/2026-11-biases.md).
static bool pays(const Ahead *a) {
  int64_t n = 0;
  for (const Op *op = a->f->body->first; op; op = op->next)
    if (op->code == OP_DOT) n += products_of(a, op);
  Balance pair = balance_pair(n);
  return !balance_products(&pair, a->gpu, COST_PRODUCTS_TWICE);
}

// ---------------------------------------------------------------- rewriting
static Value number(Builder *b, double v) {
  return ir_const_f(b, DT_F32, v);
}

// The sum of those terms that have keys, or of the others; 0: none.
static Value sum_of(const Ahead *a, Builder *b, const Sum *s, bool keys) {
  Value sum = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    Value v = s->term[i];
    bool row = has_lane(a, v), key = key_axis(a, v) >= 0;
    if ((row && key) || key != keys) continue;
    if (sum) sum = ir_2(b, s->minus[i] ? OP_SUB : OP_ADD, sum, v);
    else sum = s->minus[i] ? ir_1(b, OP_NEG, v) : v;
  }
  return sum;
}

// v / by, finite if v is.
static Value over(Builder *b, Value v, Value by, Value *finite) {
  const double most = 0x1.fep127;  // of bf16
  Value g = by ? ir_2(b, OP_DIV, v, by) : v;
  Value hi = number(b, most);
  Value c = ir_2(b, OP_MIN, ir_2(b, OP_MAX, g, number(b, -most)), hi);
  Value inf = number(b, INFINITY);
  *finite = ir_2(b, OP_LT, ir_1(b, OP_ABS, v), inf);
  return ir_3(b, OP_SELECT, *finite, c, g);
}

static Value rounded(Builder *b, Value v) {
  return ir_cast(b, DT_F32, ir_cast(b, DT_BF16, v));
}

// The bf16 parts of v, by number along a new axis.
static Value parts_of(Builder *b, Value v, Value finite, uint32_t axis) {
  Value at = ir_index(b, axis), zero = number(b, 0), y = zero,
        rest[HW_F32_PARTS] = {v};
  for (uint32_t i = 1; i < HW_F32_PARTS; i++) {
    Value less = ir_2(b, OP_SUB, rest[i - 1], rounded(b, rest[i - 1]));
    rest[i] = ir_3(b, OP_SELECT, finite, less, zero);
  }
  for (uint32_t i = HW_F32_PARTS; i-- > 0;) {
    Value is = ir_2(b, OP_EQ, at, ir_const_i(b, DT_I64, i));
    y = ir_3(b, OP_SELECT, is, rest[i], y);
  }
  return ir_cast(b, DT_BF16, y);
}

static bool is_positive(const Ahead *a, Value v) {
  double k;
  return !v || (ir_const_value(a->f, v, &k) && k >= 0x1p-100 && k < INFINITY);
}

static Value size_of(Builder *b, Value c) {
  Value least = number(b, 0x1p-100);
  return ir_2(b, OP_MAX, ir_1(b, OP_ABS, c), least);
}

// The product with queries negated where the factor c is negative.
static Value flipped(const Ahead *a, Builder *b, const Op *dot, Value c) {
  uint32_t at = has_lane(a, dot->args[0]) ? 0 : 1;
  Value q = dot->args[at], args[2] = {dot->args[0], dot->args[1]};
  Value minus = ir_2(b, OP_LT, c, number(b, 0));
  args[at] = ir_3(b, OP_SELECT, minus, ir_1(b, OP_NEG, q), q);
  uint32_t axis = (uint32_t)ir_attr(dot, AT_OVER)->list[0];
  return ir_dot(b, args[0], args[1], &axis, 1);
}

static void undo(Ahead *a, Op *last, const Op *before) {
  while (last != before) {
    Op *op = last;
    last = op->prev;
    ir_erase(op);
  }
  a->f->axes.n--;
}

static void rewrite(Ahead *a, Op *root, Sum *s) {
  Builder b = {.fn = a->f,
               .region = a->f->body,
               .before = root,
               .span = root->span};
  Op *before = root->prev;
  Dim eight = dim_const(&a->f->mod->dims, COST_AHEAD_COLUMNS);
  uint32_t axis = ir_axis(a->f, "part", AX_VEC, eight);
  Value c = s->scale, size = c, finite;
  if (s->negative) c = c ? ir_1(&b, OP_NEG, c) : number(&b, -1);
  bool flip = !is_positive(a, c);
  if (flip) size = size_of(&b, c);
  Value col = over(&b, sum_of(a, &b, s, true), size, &finite);
  Value p = parts_of(&b, col, finite, axis);
  ir_info(a->f, p)->hint = intern(&a->cx->names, "terms");
  Value added = ir_dot(&b, ir_const_f(&b, DT_BF16, 1), p, &axis, 1);
  Made m = {.v = p};
  if (!materialize_is_wanted(a, ir_def(a->f, added), &m) ||
      m.gain < materialize_launch()) {
    undo(a, root->prev, before);
    return;
  }
  Value x = flip ? flipped(a, &b, s->dot, c) : s->dot->res[0];
  x = ir_2(&b, OP_ADD, x, added);
  Value row = sum_of(a, &b, s, false);
  if (row) x = ir_2(&b, OP_ADD, x, over(&b, row, size, &finite));
  if (size) x = ir_2(&b, OP_MUL, size, x);
  ir_replace_uses(a->f, root->res[0], x);
}

// The whole sum that op is part of is taken at its last op.
static bool is_root(const Ahead *a, const Op *op) {
  if (!adds(op) || !is_tile(a, op->res[0])) return false;
  if (ir_count_uses(a->f, op->res[0]) != 1) return true;
  for (const Op *o = op->next; o; o = o->next)
    if (ir_mentions(o, op->res[0])) return !adds(o) || !is_tile(a, o->res[0]);
  return true;
}

void materialize_terms(Ahead *a) {
  for (Op *op = a->f->body->first; op; op = op->next)
    if (op->nregions) return;
  if (!pays(a)) return;
  for (Op *op = a->f->body->first, *next; op; op = next) {
    next = op->next;
    Sum s = {0};
    if (!is_root(a, op)) continue;
    add_term(a, &s, op->res[0], false, true);
    if (!s.fails && classify(a, &s)) rewrite(a, op, &s);
  }
}
