// merge_arms: functions of which either arm of a choice needs one are one.
//
//   %a = cos(%x) : f32{d}              %z = select(%c, %x, %y) : f32{d}
//   %b = cos(%y) : f32{d}        ->    %a = cos(%z) : f32{d}
//   %p = mul(%a, %u) : f32{d}          %p = mul(%a, %u) : f32{d}
//   %q = mul(%b, %v) : f32{d}          %q = mul(%a, %v) : f32{d}
//   %s = select(%c, %p, %q)            %s = select(%c, %p, %q)
//
// What matters only where %c holds, as all its uses lead to that arm of a
// choice by %c through elementwise ops, may be anything elsewhere. Both halves
// of a rotated vector have so one sine, one cosine and one power, in loops over
// steps too. Functions of one number (op_is_function), of the same operands or
// of chosen ones that do not get axes by the choice; and loads, where nothing
// is multiplied or walked: there a box of memory is copied, which chosen
// coordinates are not. Not where one number chooses between tiles of a program
// that multiplies. Any level of named axes. Run cse and dce afterwards. Tests:
// test/passes/merge_arms.
#include "ir/facts.h"
#include "passes/pass.h"

// Where a value matters: nowhere (0), everywhere, or where `c` is `yes`.
typedef struct Where {
  Value c;
  bool any, yes;
} Where;

typedef struct Arms {
  Func *f;
  Where *at;   // by value
  bool loads;  // those too
  bool dense;  // something is multiplied or walked
} Arms;

static void note(Arms *x, Value v, Where w) {
  Where *o = &x->at[v];
  if (!w.any && !w.c) return;
  if (!o->any && !o->c) *o = w;
  else if (w.any || o->c != w.c || o->yes != w.yes) *o = (Where){.any = true};
}

static bool is_elementwise(const Op *op) {
  return op_info(op->code)->flags & OPF_ELEM && op->nres == 1;
}

// Is it one number that chooses between tiles? That may become a branch
// (passes/gpu/branch_arms.c).
static bool is_of_task(const Arms *x, const Op *select) {
  const Type *c = ir_type(x->f, select->args[0]);
  const Type *t = ir_type(x->f, select->res[0]);
  return x->dense && c->kind == TK_ELEM && !c->n && t->n > 1;
}

// Uses come before what they use.
static void note_uses(Arms *x, const Region *r) {
  const Where all = {.any = true};
  for (const Op *op = r->last; op; op = op->prev) {
    for (uint32_t i = 0; i < op->nregions; i++) note_uses(x, op->regions[i]);
    bool choice = op->code == OP_SELECT && !is_of_task(x, op);
    for (uint32_t i = 0; i < op->nargs; i++) {
      Where w = is_elementwise(op) ? x->at[op->res[0]] : all;
      if (choice && i > 0) w = (Where){.c = op->args[0], .yes = i == 1};
      note(x, op->args[i], w);
    }
  }
}

// Are a and b the same, computed twice?
static bool is_same(const Arms *x, Value a, Value b) {
  const Op *p = ir_def(x->f, a), *q = ir_def(x->f, b);
  if (a == b) return true;
  if (!p || !q || p->code != q->code || !is_elementwise(p) || p->nattrs ||
      q->nattrs || p->nargs != q->nargs)
    return false;
  bool same = type_eq(ir_type(x->f, a), ir_type(x->f, b));
  for (uint32_t i = 0; same && i < p->nargs; i++)
    same = is_same(x, p->args[i], q->args[i]);
  return same;
}

static bool can_choose(const Arms *x, Value c, Value a, Value b) {
  const Type *t = ir_type(x->f, a);
  if (t->kind != TK_ELEM) return a == b;
  Type all = type_union(t, ir_type(x->f, c), t->dtype);
  return is_same(x, a, b) || (type_eq(t, ir_type(x->f, b)) && type_eq(t, &all));
}

static bool can_merge(const Arms *x, const Op *a, const Op *b) {
  Where p = x->at[a->res[0]], q = x->at[b->res[0]];
  if (b->code != a->code || a->nattrs || b->nattrs || !p.c || p.c != q.c ||
      p.yes == q.yes || a->nargs != b->nargs ||
      !type_eq(ir_type(x->f, a->res[0]), ir_type(x->f, b->res[0])))
    return false;
  bool ok = true;
  for (uint32_t i = 0; ok && i < a->nargs; i++)
    ok = can_choose(x, p.c, a->args[i], b->args[i]);
  return ok;
}

static bool is_merged(const Arms *x, const Op *op) {
  bool loads =
      x->loads && op->code == OP_LOAD && ir_is_input(x->f, op->args[0]);
  return op->nres == 1 && (loads || op_is_function(op->code));
}

static void find_dense(void *found, Op *op) {
  *(bool *)found |= op->nregions > 0 || op->code == OP_DOT;
}

static bool is_behind(const Op *op, const Op *at) {
  for (; at; at = at->next)
    if (at == op) return true;
  return false;
}

// Can v be made in front of `at`, and is it then?
static bool bring(Arms *x, Value v, Op *at, bool move) {
  Op *op = ir_def(x->f, v);
  if (!op || op->parent != at->parent || !is_behind(op, at)) return true;
  bool pure = op_info(op->code)->flags & OPF_PURE && op->code != OP_LOAD;
  if (op == at || !pure || op->nregions) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!bring(x, op->args[i], at, move)) return false;
  if (move) ir_move_before(op, at);
  return true;
}

// Is v made in r, or around it?
static bool is_visible(const Func *f, Value v, const Region *r) {
  return ir_info(f, v)->region == r || ir_defined_outside(f, v, r);
}

// a is in front of b.
static bool merge(Arms *x, Op *a, Op *b) {
  Where w = x->at[a->res[0]];
  if (!is_visible(x->f, w.c, a->parent) || !bring(x, w.c, a, false))
    return false;
  for (uint32_t i = 0; i < b->nargs; i++)
    if (!bring(x, b->args[i], a, false)) return false;
  bring(x, w.c, a, true);
  for (uint32_t i = 0; i < b->nargs; i++) bring(x, b->args[i], a, true);
  Builder at = {.fn = x->f, .region = a->parent, .before = a, .span = a->span};
  for (uint32_t i = 0; i < a->nargs; i++) {
    Value yes = (w.yes ? a : b)->args[i], no = (w.yes ? b : a)->args[i];
    if (!is_same(x, yes, no)) a->args[i] = ir_3(&at, OP_SELECT, w.c, yes, no);
  }
  ir_replace_uses(x->f, b->res[0], a->res[0]);
  ir_erase(b);
  return true;
}

// One pair of r, or of what is in it.
static bool merge_in(Arms *x, Region *r) {
  for (Op *a = r->first; a; a = a->next) {
    for (uint32_t i = 0; i < a->nregions; i++)
      if (merge_in(x, a->regions[i])) return true;
    if (!is_merged(x, a)) continue;
    for (Op *b = a->next; b; b = b->next)
      if (is_merged(x, b) && can_merge(x, a, b) && merge(x, a, b)) return true;
  }
  return false;
}

// One pair: where values matter is another matter then.
static bool merge_one(Ctx *cx, Func *f) {
  Arms x = {.f = f, .at = NEWN(&cx->scratch, Where, f->values.n)};
  ir_walk(f->body, find_dense, &x.dense);
  x.loads = !x.dense;
  note_uses(&x, f->body);
  return merge_in(&x, f->body);
}

bool pass_merge_arms(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    bool more = true;
    while (more) {
      ArenaMark mark = arena_mark(&cx->scratch);
      more = merge_one(cx, m->funcs.at[i]);
      arena_reset(&cx->scratch, mark);
    }
  }
  return true;
}
