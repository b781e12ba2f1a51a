// column_factors: what columns multiply elements by is multiplied first.
//
//   %y = mul(%x, bcast(%w))                  %k = mul(%w, %c)
//   %a = mul(%y, bcast(%c))                  %q = mul(%v, %s)
//   %z = mul(%t, bcast(%v))                  %n = select(%low, neg(%q), %q)
//   %b = mul(%z, bcast(%s))           ->     %a = mul(%x, bcast(%k))
//   %r = select(bcast(%low),                 %r = fma(%t, bcast(%n), %a)
//               sub(%a, %b), add(%a, %b))
//
// Slices cost a row's share of what tiles cost, and thin_columns has a thread
// make them for one column. Of two factors one is in [-1, 1], a sine, so that
// nothing new overflows. Rounds less often, and at other places. Level frag;
// functions without products and steps. Run dce afterwards. Needs: lower_gpu.
// Tests: test/passes/column_factors.
#include "passes/pass.h"
#include "passes/support/range.h"

typedef struct Factors {
  Func *f;
  Builder b;
  Ranges ranges;
} Factors;

static Op *def(const Factors *x, Value v, OpCode c) {
  Op *op = ir_def(x->f, v);
  return op && op->code == c ? op : NULL;
}

static bool is_f32_tile(const Factors *x, Value v) {
  const Type *t = ir_type(x->f, v);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE && t->dtype == DT_F32;
}

static bool is_once(const Factors *x, Value v) {
  return ir_count_uses(x->f, v) == 1;
}

// v = of * bcast(by), by of columns.
typedef struct Product {
  Op *op;
  Value of, by;
} Product;

static bool by_columns(const Factors *x, Value v, Product *p) {
  p->op = def(x, v, OP_MUL);
  for (uint32_t i = 0; p->op && i < 2; i++) {
    const Op *b = def(x, p->op->args[1 - i], OP_BCAST);
    if (!b || ir_type(x->f, b->args[0])->slice != SLICE_COL) continue;
    p->of = p->op->args[i];
    p->by = b->args[0];
    return is_f32_tile(x, v);
  }
  return false;
}

static Value spread(Factors *x, Value v, Value like) {
  return ir_op(&x->b, OP_BCAST, &v, 1, NULL, 0, ir_type(x->f, like), 1, 0)
      ->res[0];
}

static bool is_fraction(Factors *x, Value v) {
  Range r = range_of(&x->ranges, v);
  return r.lo >= -1 && r.hi <= 1;
}

// t * c1 * .. * c2.
static Value product(Factors *x, const Op *op) {
  Product out = {0}, in = {0};
  if (!by_columns(x, op->res[0], &out)) return 0;
  Value v = out.of;
  while (is_once(x, v) && !by_columns(x, v, &in)) {
    const Op *mul = def(x, v, OP_MUL);
    if (!mul) return 0;
    v = def(x, mul->args[0], OP_MUL) ? mul->args[0] : mul->args[1];
  }
  if (!is_once(x, v) || (!is_fraction(x, in.by) && !is_fraction(x, out.by)))
    return 0;
  Value by = ir_2(&x->b, OP_MUL, in.by, out.by);
  Value of = out.of == v ? in.of : out.of;
  ir_replace_uses(x->f, v, in.of);
  return ir_2(&x->b, OP_MUL, of, spread(x, by, of));
}

// Of a sum and a difference of a and b, which columns choose from: a, b, and
// whether the sum is what is chosen.
static bool is_either(const Factors *x, const Op *op, Value *a, Value *b,
                      bool *sum) {
  const Op *yes = ir_def(x->f, op->args[1]), *no = ir_def(x->f, op->args[2]);
  if (!yes || !no) return false;
  *sum = yes->code == OP_ADD;
  const Op *add = *sum ? yes : no, *sub = *sum ? no : yes;
  if (add->code != OP_ADD || sub->code != OP_SUB) return false;
  *a = sub->args[0];
  *b = sub->args[1];
  return (add->args[0] == *a && add->args[1] == *b) ||
         (add->args[0] == *b && add->args[1] == *a);
}

static Value either(Factors *x, const Op *op) {
  Value a, b;
  bool sum;
  Product p;
  const Op *low = def(x, op->args[0], OP_BCAST);
  if (!low || !is_either(x, op, &a, &b, &sum) || !by_columns(x, b, &p) ||
      ir_type(x->f, low->args[0])->slice != SLICE_COL)
    return 0;
  Value neg = ir_1(&x->b, OP_NEG, p.by);
  Value by =
      ir_3(&x->b, OP_SELECT, low->args[0], sum ? p.by : neg, sum ? neg : p.by);
  return ir_3(&x->b, OP_FMA, p.of, spread(x, by, p.of), a);
}

typedef Value Rule(Factors *x, const Op *op);
static Rule *const rules[OP_COUNT] = {[OP_MUL] = product, [OP_SELECT] = either};

static void region(Factors *x, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(x, op->regions[i]);
    if (!rules[op->code] || !is_f32_tile(x, op->res[0])) continue;
    x->b = (Builder){.fn = x->f, .region = r, .before = op, .span = op->span};
    Value v = rules[op->code](x, op);
    if (!v) continue;
    ir_replace_uses(x->f, op->res[0], v);
    ir_erase(op);
  }
}

bool pass_column_factors(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (ir_has_steps(f) || ir_has_products(f)) continue;
    ArenaMark mark = arena_mark(&cx->scratch);
    Factors x = {.f = f};
    range_init(&x.ranges, f, &cx->scratch);
    region(&x, f->body);
    arena_reset(&cx->scratch, mark);
  }
  return true;
}
