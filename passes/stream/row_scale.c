// row_scale: weights of any size are rounded to a narrow type relative to their
// row's largest.
//
//   before  %l, %o = kreduce() {kinds = [sum, sum]} (..
//             %x = dot(%w, %v) {over = [k], to = f16}
//             yield(%s, %x)
//           ..
//             yield(1, 1))
//   after   %m, %l, %p = kreduce() {kinds = [max, sum, sum], gauge = [0]} (..
//             %x = dot(cast(%w / base(%m1)), %v)
//             yield(abs(%w), %s, %x)
//           ..
//             yield(1, 1, base(%m2) / base(%m3)))
//           %o = mul(%p, base(%m))
//
//   base(m) = max(m * 2^-7, 2^-100)
//
// Where the division by a row's sum comes last, weights may be too large for
// f16 or too small, and pass online leaves them f32: then they are three parts,
// values two (passes/gpu/dot.c), five products for one, and tiles are small. A
// row's largest weight so far is a gauge: it stays while weights exceed it by
// no more than 2^8 (passes/tile/loop.c), so quotients are at most 2^15, and
// what is 2^-21 of the largest weight has all of its bits. Quotients are made
// by products with the special unit's reciprocal, a last bit or two away.
//
// For sm_90a; `to` is what pass online says weights were rounded to.
// Needs: online. Tests: test/passes/row_scale/.
#include "ir/target.h"
#include "passes/pass.h"

typedef struct Frame {
  Ctx *cx;
  Func *f;
  Op *pass;
  Value largest;  // |weights| of a pair
} Frame;

static DType narrow_of(const Op *op) {
  return (DType)ir_attr_i(op, AT_TO, DT_NONE);
}

static bool is_wide(const Op *op) {
  return op->code == OP_DOT && narrow_of(op) != DT_NONE;
}

// The operand of a wide product that is wider than it was.
static uint32_t weight_of(const Func *f, const Op *dot) {
  return ir_type(f, dot->args[0])->dtype == DT_F32 ? 0 : 1;
}

// Without a key %m is -inf.
static Value base(Builder *b, Value m) {
  Value part = ir_2(b, OP_MUL, m, ir_const_f(b, DT_F32, 0x1p-7));
  return ir_2(b, OP_MAX, part, ir_const_f(b, DT_F32, 0x1p-100));
}

// 1 / base(m), to the last bit but one.
static Value inverse(Builder *b, Value m) {
  Value one = ir_const_f(b, DT_F32, 1), args[] = {one, base(b, m)};
  IrAttr how = attr_i(AT_APPROX, HW_F32_BITS - 1);
  return ir_op(b, OP_DIV, args, 2, &how, 1, NULL, 1, 0)->res[0];
}

// ---------------------------------------------------------------- a pass
static const IrAttr *kinds_of(const Op *pass) {
  return ir_attr(pass, AT_KINDS);
}

// Accumulator i, if it is the sum of a wide product.
static Op *product(const Frame *x, uint32_t i) {
  const Region *local = x->pass->regions[1];
  Op *op = ir_def(x->f, local->last->args[i]);
  bool wide = op && op->parent == local && is_wide(op);
  return wide && kinds_of(x->pass)->list[i] == RK_SUM ? op : NULL;
}

static bool wants(Frame *x) {
  Op *pass = x->pass;
  bool any = false;
  if (pass->nregions != 3 || ir_attr(pass, AT_GAUGE) || ir_attr(pass, AT_SCANS))
    return false;
  for (uint32_t i = 0; i < pass->nres; i++) any |= product(x, i) != NULL;
  return any;
}

// What masked keys have is 0 once, before all that weights make; but not where
// the pass gives masked keys something else than a score that makes it 0.
static void note_weight(const Frame *x, Value w, uint32_t acc) {
  const IrAttr *guard = ir_attr(x->pass, AT_GUARD);
  bool own = ir_attr_i(x->pass, AT_FILL, FILL_SELECT) == FILL_SELECT;
  for (uint32_t i = 0; guard && i < guard->n; i++) own |= guard->list[i] == acc;
  Op *def = ir_def(x->f, w);
  if (own || !def || def->parent != x->pass->regions[1] ||
      ir_attr(def, AT_NOTE))
    return;
  ir_set_attr(x->f, def, attr_s(AT_NOTE, intern(&x->cx->names, "weight")));
}

static void note_largest(Frame *x, Builder *b) {
  for (uint32_t i = 0; i < x->pass->nres; i++) {
    Op *dot = product(x, i);
    if (!dot) continue;
    Value w = dot->args[weight_of(x->f, dot)], size = ir_1(b, OP_ABS, w);
    note_weight(x, w, i);
    x->largest = x->largest ? ir_2(b, OP_MAX, x->largest, size) : size;
  }
}

// A list of accumulators, all of which are one further.
static void shift(Frame *x, Op *to, const IrAttr *from) {
  int64_t *list = NEWN(x->f->mod->arena, int64_t, from->n);
  for (uint32_t i = 0; i < from->n; i++) list[i] = from->list[i] + 1;
  ir_set_attr(x->f, to, attr_list(from->id, list, from->n));
}

// The pass with another result in front.
static Op *with_gauge(Frame *x, Type type) {
  Op *old = x->pass;
  Arena *a = x->f->mod->arena;
  uint32_t n = old->nres;
  int64_t *kinds = NEWN(a, int64_t, n + 1), *gauge = NEWN(a, int64_t, 1);
  Type *types = NEWN(a, Type, n + 1);
  kinds[0] = RK_MAX;
  types[0] = type;
  for (uint32_t i = 0; i < n; i++) {
    kinds[i + 1] = kinds_of(old)->list[i];
    types[i + 1] = *ir_type(x->f, old->res[i]);
  }
  Builder b = {.fn = x->f,
               .region = old->parent,
               .before = old,
               .span = old->span};
  Op *op =
      ir_op(&b, OP_KREDUCE, NULL, 0, old->attrs, old->nattrs, types, n + 1, 3);
  ir_set_attr(x->f, op, attr_list(AT_KINDS, kinds, n + 1));
  ir_set_attr(x->f, op, attr_list(AT_GAUGE, gauge, 1));
  if (ir_attr(old, AT_GUARD)) shift(x, op, ir_attr(old, AT_GUARD));
  for (uint32_t i = 0; i < 3; i++) {
    Region *r = old->regions[i];
    old->regions[i] = op->regions[i];
    op->regions[i] = r;
    r->parent = op;
    old->regions[i]->parent = old;
  }
  return op;
}

// A parameter in front of those from `at` on.
static Value add_param(Region *r, Type type, uint32_t at) {
  Value v = ir_region_param(r, type, "size");
  for (uint32_t i = r->params.n - 1; i > at; i--)
    r->params.at[i] = r->params.at[i - 1];
  return r->params.at[at] = v;
}

static void yield_first(Frame *x, Op *yield, Value v) {
  uint32_t n = yield->nargs;
  Value *args = NEWN(x->f->mod->arena, Value, n + 1);
  args[0] = v;
  for (uint32_t i = 0; i < n; i++) args[i + 1] = yield->args[i];
  yield->args = args;
  yield->nargs = n + 1;
}

static Builder before_end(const Frame *x, Region *r) {
  return (Builder){.fn = x->f,
                   .region = r,
                   .before = r->last,
                   .span = r->last->span};
}

// Products of weights in the frame of %m.
static void narrow(Frame *x, Value m) {
  Builder b = before_end(x, x->pass->regions[1]);
  Value i1 = 0;
  for (uint32_t i = 1; i < x->pass->nres; i++) {
    Op *dot = product(x, i);
    if (!dot) continue;
    uint32_t at = weight_of(x->f, dot);
    b.before = dot;
    if (!i1) i1 = inverse(&b, m);
    Value y = ir_2(&b, OP_MUL, dot->args[at], i1);
    dot->args[at] = ir_cast(&b, narrow_of(dot), y);
  }
}

static void correct(Frame *x, Value old, Value now) {
  Region *r = x->pass->regions[2];
  Builder b = before_end(x, r);
  Value was = base(&b, old), factor = ir_2(&b, OP_MUL, was, inverse(&b, now));
  for (uint32_t i = 1; i < x->pass->nres; i++)
    if (product(x, i)) r->last->args[i] = factor;
}

static void finish(Frame *x, Op *old) {
  Op *pass = x->pass;
  Builder b = {.fn = x->f,
               .region = pass->parent,
               .before = old,
               .span = pass->span};
  Value all = base(&b, pass->res[0]);
  for (uint32_t i = 0; i < old->nres; i++) {
    Value v = pass->res[i + 1];
    if (product(x, i + 1)) v = ir_2(&b, OP_MUL, v, all);
    ir_replace_uses(x->f, old->res[i], v);
  }
}

static void put_in_frame(Frame *x) {
  Region *local = x->pass->regions[1], *corr = x->pass->regions[2];
  uint32_t n = x->pass->nres, key = (uint32_t)ir_attr_i(x->pass, AT_AXIS, 0);
  Builder b = before_end(x, local);
  note_largest(x, &b);
  Type type = type_without(*ir_type(x->f, x->largest), key);
  Op *old = x->pass;
  x->pass = with_gauge(x, type);
  Value m = add_param(local, type, 0);
  Value now = add_param(corr, type, n), before = add_param(corr, type, 0);
  yield_first(x, local->last, x->largest);
  yield_first(x, corr->last,
              ir_const_f(&(Builder){.fn = x->f,
                                    .region = corr,
                                    .before = corr->last,
                                    .span = NOWHERE},
                         DT_F32, 1));
  narrow(x, m);
  correct(x, before, now);
  finish(x, old);
  ctx_remark(
      x->cx,
      "frame: @%s: weights over %s are rounded relative to their row's largest",
      x->f->name, x->f->axes.at[key].name);
  ir_erase(old);
}

static void forget(void *data, Op *op) {
  if (is_wide(op)) ir_del_attr(op, AT_TO);
  (void)data;
}

static void visit(Frame *x, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions && op->code != OP_KREDUCE; i++)
      visit(x, op->regions[i]);
    *x = (Frame){.cx = x->cx, .f = x->f, .pass = op};
    if (op->code == OP_KREDUCE && wants(x)) put_in_frame(x);
  }
}

bool pass_row_scale(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Frame x = {.cx = cx, .f = m->funcs.at[i]};
    visit(&x, x.f->body);
    ir_walk(x.f->body, forget, NULL);
  }
  return true;
}
