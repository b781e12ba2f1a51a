// pair_turns: a loop whose steps take turns at two sides of a branch has two
// steps a turn, one of each side, and no branch.
//
//   %r = for(%lo, %hi, %s, %x) ({         %a = if(first step is of D) ({
//     ^(%i, %y):                              D(%hi - %s, %x)
//     %t = mod(floordiv(%i, %s), 2)         }, %x)
//     %c = ne(%t, %wg)                      %b = for(.., 2 * %s, %a) ({
//     %z = if(%c) ({ D }, { E })       ->     ^(%i, %y):
//     yield(%z)                               yield(D(%i, E(%i + %s, %y)))
//   }) {reverse}                            })
//                                           %r = if(a step is left) ({
//                                             E(%lo, %b)
//                                           }, %b)
//
// Code of its own for each side in a row is what an assembler orders as one:
// the end of a step beside the begin of the next one. Groups whose turns differ
// go through the same loop: one of them has done a step in front of it. Level
// frag; sm_90a. Needs: branch_turns. Tests: test/passes/pair_turns.
#include "passes/pass.h"

typedef struct Pair {
  Func *f;
  Op *loop;
  Region *body;
  Op *branch;  // the only op of the body with regions
  bool back;
  Value when;  // the branch's condition
} Pair;

static const Op *def_of(const Pair *p, Value v, OpCode code) {
  const Op *op = ir_def(p->f, v);
  while (op && op->code == OP_CAST) op = ir_def(p->f, op->args[0]);
  return op && op->code == code ? op : NULL;
}

static bool is_number(const Pair *p, Value v, int64_t n) {
  int64_t k;
  return ir_const_whole(p->f, v, &k) && k == n;
}

// Is v the number of the step, modulo 2?
static bool is_parity(const Pair *p, Value v) {
  const Op *mod = def_of(p, v, OP_MOD);
  const Op *div = mod ? def_of(p, mod->args[0], OP_FLOORDIV) : NULL;
  int64_t step;
  return div && is_number(p, mod->args[1], 2) &&
         div->args[0] == p->body->params.at[0] &&
         ir_const_whole(p->f, p->loop->args[2], &step) &&
         is_number(p, div->args[1], step);
}

static bool alternates(const Pair *p) {
  const Op *c = ir_def(p->f, p->when);
  if (!c || c->parent != p->body || (c->code != OP_NE && c->code != OP_EQ))
    return false;
  for (uint32_t i = 0; i < 2; i++)
    if (is_parity(p, c->args[i]) &&
        ir_defined_outside(p->f, c->args[1 - i], p->body))
      return true;
  return false;
}

// A loop whose body is scalars and such a branch.
static bool find(Pair *p) {
  for (Op *op = p->body->first; op; op = op->next) {
    if (!op->nregions) continue;
    if (p->branch || op->code != OP_IF) return false;
    p->branch = op;
  }
  if (!p->branch) return false;
  p->when = p->branch->args[0];
  p->back = ir_attr_i(p->loop, AT_REVERSE, 0) != 0;
  return alternates(p);
}

// A copy of op. In front of the loop sums begin with 0: a product that adds to
// it adds to nothing.
static void put(Pair *p, Builder *b, const Op *op, ValueMap *m) {
  double k;
  bool sum = op->code == OP_WGMMA && op->nargs == 3;
  Op *made = ir_clone(b, p->f, op, m, NULL);
  if (sum && ir_const_value(p->f, made->args[2], &k) && k == 0) made->nargs = 2;
}

// A step at %i; v: what the loop carries. `side` 0: where the branch is taken.
static void step(Pair *p, Builder *b, Value i, uint32_t side, Value *v) {
  ValueMap m = {.arena = p->f->mod->arena};
  const Op *yield = p->body->last;
  vmap_put(&m, p->body->params.at[0], i);
  for (uint32_t k = 0; k < yield->nargs; k++)
    vmap_put(&m, p->body->params.at[1 + k], v[k]);
  for (const Op *op = p->body->first; op != yield; op = op->next) {
    if (op != p->branch) {
      ir_clone(b, p->f, op, &m, NULL);
      continue;
    }
    const Region *r = op->regions[side];
    for (const Op *in = r->first; in != r->last; in = in->next)
      put(p, b, in, &m);
    for (uint32_t k = 0; k < op->nres; k++)
      vmap_put(&m, op->res[k], vmap_get(&m, r->last->args[k]));
  }
  for (uint32_t k = 0; k < yield->nargs; k++)
    v[k] = vmap_get(&m, yield->args[k]);
}

static Type *types_of(const Pair *p) {
  Type *t = NEWN(p->f->mod->arena, Type, p->loop->nres);
  for (uint32_t k = 0; k < p->loop->nres; k++)
    t[k] = *ir_type(p->f, p->loop->res[k]);
  return t;
}

// One step, if that holds.
static void step_if(Pair *p, Builder *b, Value when, Value i, uint32_t side,
                    Value *v) {
  uint32_t n = p->loop->nres;
  Op *op = ir_op(b, OP_IF, &when, 1, NULL, 0, types_of(p), n, 2);
  Builder in = {.fn = p->f, .region = op->regions[1], .span = b->span};
  ir_yield(&in, v, n);
  in.region = op->regions[0];
  step(p, &in, i, side, v);
  ir_yield(&in, v, n);
  for (uint32_t k = 0; k < n; k++) v[k] = op->res[k];
}

// Pairs of steps whose coordinates are in [lo, hi), of the branch's other side
// first.
static void pairs(Pair *p, Builder *b, Value lo, Value hi, Value *v) {
  uint32_t n = p->loop->nres;
  Value *args = NEWN(p->f->mod->arena, Value, 3 + n), s = p->loop->args[2];
  args[0] = lo;
  args[1] = hi;
  args[2] = ir_2(b, OP_ADD, s, s);
  for (uint32_t k = 0; k < n; k++) args[3 + k] = v[k];
  Op *loop = ir_op(b, OP_FOR, args, 3 + n, p->loop->attrs, p->loop->nattrs,
                   types_of(p), n, 1);
  Region *r = loop->regions[0];
  Value at = p->body->params.at[0];
  Value i = ir_region_param(r, *ir_type(p->f, at), ir_info(p->f, at)->hint);
  for (uint32_t k = 0; k < n; k++)
    v[k] = ir_region_param(r, *ir_type(p->f, loop->res[k]),
                           ir_info(p->f, p->body->params.at[1 + k])->hint);
  Builder in = {.fn = p->f, .region = r, .span = b->span};
  Value more = ir_2(&in, OP_ADD, i, s);
  step(p, &in, p->back ? more : i, 1, v);
  step(p, &in, p->back ? i : more, 0, v);
  ir_yield(&in, v, n);
  for (uint32_t k = 0; k < n; k++) v[k] = loop->res[k];
}

// v, made of the coordinate alone, at another one.
static Value at_other(Pair *p, Builder *b, ValueMap *m, Value v) {
  const Op *op = ir_def(p->f, v);
  if (vmap_get(m, v) != v || !op || op->parent != p->body)
    return vmap_get(m, v);
  for (uint32_t i = 0; i < op->nargs; i++) at_other(p, b, m, op->args[i]);
  ir_clone(b, p->f, op, m, NULL);
  return vmap_get(m, v);
}

// The condition at coordinate i.
static Value condition(Pair *p, Builder *b, Value i) {
  ValueMap m = {.arena = p->f->mod->arena};
  vmap_put(&m, p->body->params.at[0], i);
  return at_other(p, b, &m, p->when);
}

static void pair(Pair *p) {
  Op *loop = p->loop;
  Builder b = {.fn = p->f,
               .region = loop->parent,
               .before = loop,
               .span = loop->span};
  Value lo = loop->args[0], hi = loop->args[1], s = loop->args[2];
  DType t = ir_type(p->f, lo)->dtype;
  Value zero = ir_const_i(&b, t, 0), one = ir_const_i(&b, t, 1),
        two = ir_const_i(&b, t, 2);
  Value *v = NEWN(p->f->mod->arena, Value, loop->nres);
  for (uint32_t k = 0; k < loop->nres; k++) v[k] = loop->args[3 + k];
  Value n =
      ir_2(&b, OP_SUB, ir_2(&b, OP_ADD, ir_2(&b, OP_SUB, hi, lo), s), one);
  n = ir_2(&b, OP_MAX, ir_2(&b, OP_FLOORDIV, n, s), zero);
  Value last =
      ir_2(&b, OP_ADD, lo, ir_2(&b, OP_MUL, ir_2(&b, OP_SUB, n, one), s));
  Value first = p->back ? last : lo;
  Value odd = condition(p, &b, first), some = ir_2(&b, OP_LT, zero, n);
  odd = ir_2(&b, OP_AND, odd, some);
  step_if(p, &b, odd, first, 0, v);
  Value left = ir_2(&b, OP_SUB, n, ir_3(&b, OP_SELECT, odd, one, zero));
  Value two_of = ir_2(&b, OP_FLOORDIV, left, two);
  Value rest = ir_2(&b, OP_MOD, left, two);
  Value length = ir_2(&b, OP_MUL, ir_2(&b, OP_MUL, two_of, two), s);
  Value from =
      p->back ? ir_2(&b, OP_MUL, rest, s) : ir_3(&b, OP_SELECT, odd, s, zero);
  from = ir_2(&b, OP_ADD, lo, from);
  Value to = ir_2(&b, OP_ADD, from, length);
  pairs(p, &b, from, to, v);
  step_if(p, &b, ir_2(&b, OP_LT, zero, rest), p->back ? lo : to, 1, v);
  for (uint32_t k = 0; k < loop->nres; k++)
    ir_replace_uses(p->f, loop->res[k], v[k]);
  ir_erase(loop);
}

static void region(Func *f, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i]);
    if (op->code != OP_FOR) continue;
    Pair p = {.f = f, .loop = op, .body = op->regions[0]};
    if (find(&p)) pair(&p);
  }
}

bool pass_pair_turns(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx, (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    region(m->funcs.at[i], m->funcs.at[i]->body);
  return true;
}
