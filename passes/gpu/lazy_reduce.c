// lazy_reduce: what a loop sums up stays in parts, one per thread, until it
// ends.
//
//   %l = for(.., %zero) ({                 %l' = for(.., %zero') ({
//     ^(.., %l1: f32{acc.0}):                ^(.., %l1: f32{acc.0p}):
//     %s = freduce(%p) {kind = sum}    ->    %s = freduce(%p) : f32{acc.0p}
//     %c = mul(%l1, %x)                      %c = mul(%l1, %x)
//     %l2 = add(%c, %s)                      %l2 = add(%c, %s)
//     yield(%l2)                             yield(%l2)
//   })                                     })
//                                          %l = fcombine(%l') {kind = sum}
//
// Saves the exchange between threads in each step; the factor %x is the same
// in all threads of a row. Sums, with or without a factor, and `any`; not where
// threads hold the same elements, as of tiles with fewer rows than warps have.
// Level frag. Needs: lower_gpu. Tests: test/passes/lazy_reduce/.
#include "passes/pass.h"

#include "ir/layout.h"
#include "ir/target.h"

typedef struct Parts {
  Func *f;
  Op *loop;
  uint32_t at;  // carried value
  RKind kind;
  Op *mul, *join;  // mul may be NULL
  Op *reduce;
} Parts;

static bool once(const Func *f, Value v) {
  return ir_count_uses(f, v) == 1;
}

static bool is_zero(const Func *f, Value v) {
  double k;
  const Op *op = ir_def(f, v);
  if (!op || op->code != OP_CONST) return false;
  return ir_attr(op, AT_IVALUE) ? ir_attr_i(op, AT_IVALUE, 1) == 0
                                : ir_const_value(f, v, &k) && k == 0;
}

static bool is_slice(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_FRAG && t->slice != SLICE_NONE && !t->partial;
}

// v = freduce of the join's kind, used here only.
static bool is_reduce(Parts *p, Value v) {
  Op *op = ir_def(p->f, v);
  if (!op || op->code != OP_FREDUCE || !once(p->f, v)) return false;
  if ((RKind)ir_attr_i(op, AT_KIND, RK_SUM) != p->kind) return false;
  p->reduce = op;
  return op->parent == p->join->parent &&
         frag_adds_in_parts(ir_type(p->f, op->args[0]),
                            ir_group_threads(p->f, op),
                            (uint32_t)ir_attr_i(op, AT_POS, 0));
}

// v is the carried value or that value times a factor.
static bool is_old(Parts *p, Value v) {
  Value param = p->loop->regions[0]->params.at[1 + p->at];
  Op *op = ir_def(p->f, v);
  p->mul = NULL;
  if (op && op->code == OP_MUL && p->kind == RK_SUM && once(p->f, v)) {
    p->mul = op;
    v = op->args[op->args[0] != param];
  }
  return v == param && once(p->f, param);
}

static bool matches(Parts *p) {
  const Region *r = p->loop->regions[0];
  Value next = r->last->args[p->at];
  p->join = ir_def(p->f, next);
  if (!is_slice(p->f, next) || !p->join || !once(p->f, next)) return false;
  if (p->join->code != OP_ADD && p->join->code != OP_OR) return false;
  p->kind = p->join->code == OP_ADD ? RK_SUM : RK_ANY;
  if (!is_zero(p->f, p->loop->args[3 + p->at])) return false;
  for (uint32_t i = 0; i < 2; i++)
    if (is_old(p, p->join->args[i]) && is_reduce(p, p->join->args[1 - i]))
      return true;
  return false;
}

static void make_partial(Func *f, Value v) {
  ir_info(f, v)->type.partial = true;
}

static void keep_parts(Parts *p) {
  Op *loop = p->loop;
  Func *f = p->f;
  Builder b = {.fn = f,
               .region = loop->parent,
               .before = loop,
               .span = loop->span};
  Op *zero = ir_def(f, loop->args[3 + p->at]);
  Type t = *ir_type(f, zero->res[0]);
  t.partial = true;
  loop->args[3 + p->at] =
      ir_op(&b, OP_CONST, NULL, 0, zero->attrs, zero->nattrs, &t, 1, 0)->res[0];
  make_partial(f, loop->regions[0]->params.at[1 + p->at]);
  make_partial(f, p->reduce->res[0]);
  if (p->mul) make_partial(f, p->mul->res[0]);
  make_partial(f, p->join->res[0]);
  Value whole = loop->res[p->at];
  b.before = loop->next;
  IrAttr kind = {.id = AT_KIND, .i = p->kind};
  Op *all =
      ir_op(&b, OP_FCOMBINE, &whole, 1, &kind, 1, ir_type(f, whole), 1, 0);
  ir_replace_uses(f, whole, all->res[0]);
  all->args[0] = whole;
  make_partial(f, whole);
}

static void region(Func *f, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i]);
    if (op->code != OP_FOR) continue;
    for (uint32_t i = 0; i < op->nres; i++) {
      Parts p = {.f = f, .loop = op, .at = i};
      if (is_slice(f, op->res[i]) && matches(&p)) keep_parts(&p);
    }
  }
}

bool pass_lazy_reduce(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    region(m->funcs.at[i], m->funcs.at[i]->body);
  return true;
}
