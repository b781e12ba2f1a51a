// early_loads: what is not multiplied is loaded before anything waits.
//
//   %p = gload(%pos, %n)                   %p = gload(%pos, %n)
//   %s = relayout(sin(..%p..))             %x = gload(%X, %n, %r, %c)
//   if(%in) ({                             %y = if(%few) ({
//     %x = gload(%X, %n, %r, %c)             yield(gload(%Y, %n, %r, %c))
//     ..                            ->     }, {
//   })                                       yield(0)
//   if(%few) ({                            })
//     %y = gload(%Y, %n, %r, %c)           %s = relayout(sin(..%p..))
//     ..                                   if(%in) ({ .. })
//   })                                     if(%few) ({ .. })
//
// A load goes up in its block to where its coordinates are known, and tiles out
// of the first branch of a task, which most tasks take: bounds keep it inside.
// What others load is asked for behind those, under their condition, if that is
// made of coordinates and numbers. So all that a task reads is on its way at
// once, and sines and barriers take their time meanwhile. Level frag; functions
// without products, steps and loops, inputs only. Needs: thin_columns. Tests:
// test/passes/early_loads.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/pass.h"

enum { MAX_ASKED = 8, MAX_REGISTERS = 14 };  // of other branches

// Is it of a tensor that nothing writes?
static bool is_load(const Func *f, const Op *op) {
  return op->code == OP_GLOAD && ir_is_input(f, op->args[0]);
}

// A tile of one, or its columns or rows?
static bool is_tile(const Func *f, const Op *op) {
  return is_load(f, op) && ir_type(f, op->res[0])->kind == TK_FRAG;
}

// The op that v comes from in that region, or in a region inside.
static const Op *maker(const Func *f, Value v, const Region *r) {
  const Op *op = ir_def(f, v);
  while (op && op->parent != r) op = op->parent->parent;
  return op;
}

// The first op of its region that may stand behind it.
static Op *earliest(const Func *f, const Op *op, Region *r) {
  Op *at = r->first;
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

static void rise(Func *f, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    if (!is_load(f, op)) continue;
    Op *at = earliest(f, op, r);
    while (at != op && is_load(f, at)) at = at->next;
    if (at != op) ir_move_before(op, at);
  }
}

static void leave(Func *f, Op *branch) {
  Region *r = branch->regions[0];
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    if (is_tile(f, op) && is_inside(f, op, r)) ir_move_before(op, branch);
  }
}

// ---------------------------------------------------------------- other branches
static bool is_behind(const Op *op, const Op *at) {
  while (at && at != op) at = at->next;
  return at;
}

// Can v be there at `at`? Coordinates and numbers may move.
static bool can_lift(const Func *f, Value v, const Op *at) {
  const Op *op = ir_def(f, v);
  if (!op || op->parent != at->parent || !is_behind(op, at)) return true;
  const OpInfo *info = op_info(op->code);
  bool ok = !op->nregions && op->nres == 1 &&
            ((info->flags & OPF_ELEM && op->code != OP_RANDOM) ||
             op->code == OP_CONST || op->code == OP_DIM ||
             op->code == OP_COORD || op->code == OP_SPLAT);
  for (uint32_t i = 0; ok && i < op->nargs; i++)
    ok = can_lift(f, op->args[i], at);
  return ok;
}

static void lift(Func *f, Value v, Op *at) {
  Op *op = ir_def(f, v);
  if (!op || op->parent != at->parent || !is_behind(op, at)) return;
  for (uint32_t i = 0; i < op->nargs; i++) lift(f, op->args[i], at);
  ir_move_before(op, at);
}

static bool can_ask(const Func *f, const Op *load, const Op *at) {
  bool ok = is_load(f, load) && is_inside(f, load, load->parent);
  for (uint32_t i = 0; ok && i < load->nargs; i++)
    ok = can_lift(f, load->args[i], at);
  return ok;
}

// What the branch loads, as far as registers go.
static uint32_t find_asked(const Func *f, const Op *branch, const Op *at,
                           Value *now) {
  uint32_t n = 0, left = MAX_REGISTERS, threads = ir_group_threads(f, branch);
  const Op *op = branch->regions[0]->first;
  for (; op && n < MAX_ASKED; op = op->next) {
    if (!can_ask(f, op, at)) continue;
    uint32_t each = pressure_of(ir_type(f, op->res[0]), threads);
    if (each > left) continue;
    left -= each;
    now[n++] = op->res[0];
  }
  return can_lift(f, branch->args[0], at) ? n : 0;
}

// Under the branch's condition, at `at`.
static void ask(Func *f, Op *branch, Op *at) {
  Value now[MAX_ASKED], none[MAX_ASKED];
  Type types[MAX_ASKED];
  uint32_t n = find_asked(f, branch, at, now);
  if (!n) return;
  for (uint32_t i = 0; i < n; i++) types[i] = *ir_type(f, now[i]);
  Builder b = {.fn = f,
               .region = at->parent,
               .before = at,
               .span = branch->span};
  Op *made = ir_op(&b, OP_IF, branch->args, 1, NULL, 0, types, n, 2);
  lift(f, branch->args[0], made);
  for (uint32_t i = 0; i < n; i++) {
    const Op *load = ir_def(f, now[i]);
    for (uint32_t k = 0; k < load->nargs; k++) lift(f, load->args[k], made);
    ir_replace_uses(f, now[i], made->res[i]);
  }
  b.before = NULL;
  b.region = made->regions[0];
  ir_yield(&b, now, n);
  for (uint32_t i = 0; i < n; i++)
    ir_move_before(ir_def(f, now[i]), made->regions[0]->last);
  b.region = made->regions[1];
  for (uint32_t i = 0; i < n; i++) {
    IrAttr zero = {.id = AT_VALUE, .f = 0};
    if (!dtype_is_float(types[i].dtype)) zero = attr_i(AT_IVALUE, 0);
    none[i] = ir_op(&b, OP_CONST, NULL, 0, &zero, 1, &types[i], 1, 0)->res[0];
  }
  ir_yield(&b, none, n);
}

static bool is_branch(const Op *op) {
  return op->code == OP_IF && op->nres == 0;
}

// Behind the last load of a task that stands in front of its branches.
static Op *asked(const Func *f, const Region *r) {
  Op *at = NULL;
  for (Op *op = r->first; op && !is_branch(op); op = op->next)
    if (is_load(f, op)) at = op->next;
  return at;
}

static void task_region(Func *f, Region *r) {
  Op *first = r->first;
  while (first && !is_branch(first)) first = first->next;
  if (first) leave(f, first);
  rise(f, r);
  Op *at = first ? asked(f, r) : NULL;
  for (Op *op = at ? first->next : NULL; op; op = op->next)
    if (is_branch(op)) ask(f, op, at);
}

static void region(Func *f, Region *r, bool task) {
  for (Op *op = r->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nregions; i++)
      region(f, op->regions[i], op->code == OP_FOR && r == f->body);
  if (task) task_region(f, r);
  else rise(f, r);
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
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (is_plain(f)) region(f, f->body, true);
  }
  return true;
}
