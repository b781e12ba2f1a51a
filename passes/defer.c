// defer: a product starts when its operands are there, and is waited for where
// it is needed.
//
//   %r = freduce(%x)                      wg_fence()
//   %p = mma(%q, %k)                      %w = wgmma(%q, %k)
//   %e = exp2(%r)                  ->     wg_commit()
//   %y = mul(%p, %e)                      %r = freduce(%x)
//                                         %e = exp2(%r)
//                                         %p = wg_wait(%w) {pending = 0}
//                                         %y = mul(%p, %e)
//
// For chunks of recurrences, whose products stage leaves alone: they depend on
// each other, but not on all that stands between them. An accumulator that
// something else uses too stays synchronous. Level mach, value form; sm_90a,
// programs for which warps has rings. Needs: place. Tests: test/passes/defer/.
#include "passes/rings.h"

static bool is_swizzled(const Type *t) {
  return t->kind == TK_SMEM && t->layout != LY_ROW;
}

static bool suits(const Func *f, const Op *op) {
  const Type *a = ir_type(f, op->args[0]), *b = ir_type(f, op->args[1]);
  const Type *c = ir_type(f, op->res[0]);
  bool frag = a->kind == TK_FRAG && a->layout == LY_ACC;
  return (frag || is_swizzled(a)) && is_swizzled(b) &&
         dtype_size(a->dtype) == 2 && c->ext[0] % 64 == 0 &&
         !ir_attr_i(op, AT_TRANSA, 0) &&
         (op->nargs < 3 || ir_count_uses(f, op->args[2]) == 1);
}

// Behind the last of its operands in this region.
static void hoist(const Func *f, Op *op) {
  Op *at = op;
  for (Op *o = op->prev; o; o = o->prev) {
    if (o->nregions || o->code == OP_WG_FENCE) break;
    bool mine = false;
    for (uint32_t i = 0; i < op->nargs; i++)
      mine |= ir_def(f, op->args[i]) == o;
    if (mine) break;
    at = o;
  }
  if (at != op) ir_move_before(op, at);
}

static void start(Func *f, Op *op) {
  Builder b = {.fn = f, .region = op->parent, .before = op, .span = op->span};
  const Type t = *ir_type(f, op->res[0]);
  IrAttr none = attr_i(AT_PENDING, 0);
  ir_op(&b, OP_WG_FENCE, NULL, 0, NULL, 0, NULL, 0, 0);
  Value v = ir_op(&b, OP_WGMMA, op->args, op->nargs, op->attrs, op->nattrs, &t,
                  1, 0)->res[0];
  ir_op(&b, OP_WG_COMMIT, NULL, 0, NULL, 0, NULL, 0, 0);
  Op *user = op->next;
  while (user && user->next && !ir_mentions(user, op->res[0])) user = user->next;
  b.before = user;
  Value done = ir_op(&b, OP_WG_WAIT, &v, 1, &none, 1, &t, 1, 0)->res[0];
  ir_replace_uses(f, op->res[0], done);
  ir_erase(op);
}

static void region(Func *f, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i]);
    if (op->code != OP_MMA || !suits(f, op)) continue;
    hoist(f, op);
    start(f, op);
  }
}

static bool has_steps(const Func *f) {
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_STEP) return true;
  return false;
}

bool pass_defer(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  const Target *t = m->target ? target_by_name(m->target) : NULL;
  Rings rings;
  for (uint32_t i = 0; t && i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (has_steps(f) && rings_plan(&rings, f, t)) region(f, f->body);
  }
  return true;
}
