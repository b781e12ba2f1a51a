// early_loads: tiles that are not multiplied are loaded before anything waits.
//
//   %p = gload(%pos, %n)                   %x = gload(%X, %n, %r, %c)
//   %s = relayout(sin(..%p..))             %p = gload(%pos, %n)
//   if(%in) ({                      ->     %s = relayout(sin(..%p..))
//     %x = gload(%X, %n, %r, %c)           if(%in) ({
//     ..                                     ..
//
// A load goes up in its block to where its coordinates are known, and out of
// the first branch of a task, which most tasks take: bounds keep it inside. So
// all that a task reads is on its way at once, and scalars, sines and barriers
// take their time meanwhile. Others' rows stay in their branch. Level frag;
// functions without products, steps and loops; on sm_90a what phases in front
// have made too. Needs: thin_columns. Tests: test/passes/early_loads.
#include "ir/layout.h"
#include "ir/target.h"
#include "passes/pass.h"

// Is it of a tensor that nothing writes? made: one of a phase in front too.
static bool is_load(const Func *f, const Op *op, bool made) {
  return op->code == OP_GLOAD &&
         (ir_is_input(f, op->args[0]) ||
          (made && !ir_is_stored(f->body, op->args[0])));
}

// A tile of one, or its columns or rows?
static bool is_tile(const Func *f, const Op *op, bool made) {
  return is_load(f, op, made) && ir_type(f, op->res[0])->kind == TK_FRAG;
}

// The op that v comes from in that region, or in a region inside.
static const Op *maker(const Func *f, Value v, const Region *r) {
  const Op *op = ir_def(f, v);
  while (op && op->parent != r) op = op->parent->parent;
  return op;
}

// The first op of its region that may stand behind it.
static Op *earliest(const Func *f, const Op *op, Region *r) {
  Op *at = r->first->code == OP_LAUNCH ? r->first->next : r->first;
  for (Op *o = r->first; o && o != op; o = o->next) {
    for (uint32_t i = 0; i < op->nargs; i++)
      if (maker(f, op->args[i], r) == o) at = o->next;
  }
  return at;
}

static bool is_inside(const Func *f, const Op *op, const Region *r) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Op *def = ir_def(f, op->args[i]);
    if (def && def->parent == r) return false;
  }
  return true;
}

static void rise(Func *f, Region *r, bool made) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    if (!is_load(f, op, made)) continue;
    Op *at = earliest(f, op, r);
    while (at != op && is_load(f, at, made)) at = at->next;
    if (at != op) ir_move_before(op, at);
  }
}

static void leave(Func *f, Op *branch, bool made) {
  Region *r = branch->regions[0];
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    if (is_tile(f, op, made) && is_inside(f, op, r)) ir_move_before(op, branch);
  }
}

static void region(Func *f, Region *r, bool task, bool made) {
  bool first = true;
  for (Op *op = r->first; op; op = op->next) {
    bool plain = op->code == OP_IF && op->nres == 0;
    if (plain && first && task) leave(f, op, made);
    first &= !plain;
    for (uint32_t i = 0; i < op->nregions; i++)
      region(f, op->regions[i], op->code == OP_FOR && r == f->body, made);
  }
  rise(f, r, made);
}

static void count_loops(void *loops, Op *op) {
  *(uint32_t *)loops += op->code == OP_FOR || op->code == OP_WHILE;
}

// Nothing is walked in a task.
static bool is_plain(Func *f) {
  uint32_t loops = 0;
  bool around = false;
  ir_walk(f->body, count_loops, &loops);
  for (const Op *op = f->body->first; op; op = op->next)
    around |= op->code == OP_FOR && op->nargs == 3;
  return loops == around && ir_launch(f) && !ir_has_steps(f) &&
         !ir_has_products(f);
}

bool pass_early_loads(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  bool made = opt->target && opt->target->gpu.hopper;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (is_plain(f)) region(f, f->body, true, made);
  }
  return true;
}
