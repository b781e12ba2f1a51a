// late_values: what only the ops behind a loop need is made there, where more
// lives in the loop than a thread has registers for.
//
//   %w = gload(%u, %c) : frag<192xf32,acc.1>     %o = for(..) ({ .. })
//   %o = for(..) ({ .. })                     -> %w = gload(%u, %c)
//   %z = mul(%o, bcast(%w))                      %z = mul(%o, bcast(%w))
//
// Loads stand where their coordinates are known, so that they are there in
// time, and what is made of them too. Where too much lives in a loop these take
// registers, which are spilled, and are loaded again behind the loop: from
// local memory instead of memory. Loads of what nothing writes, and pure ops
// whose operands take fewer registers than they do. Level frag; NVIDIA. Needs:
// sched_pressure. Tests: test/passes/late_values.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/pass.h"

typedef struct Late {
  Func *f;
  uint32_t threads, has;
  Op *loop;
  Press most;  // in the loop
} Late;

static bool lives(const Late *l, Value v) {
  for (uint32_t i = 0; i < l->most.live.n; i++)
    if (l->most.live.at[i] == v) return true;
  return false;
}

// Registers of what op would keep alive there in place of its result.
static uint32_t kept(const Late *l, const Op *op) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value v = op->args[i];
    if (!lives(l, v) && !pressure_free(l->f, v))
      n += pressure_of(ir_type(l->f, v), l->threads);
  }
  return n;
}

// Coordinates and what they are compared with compilers make where they are
// needed.
static bool may_wait(const Late *l, const Op *op) {
  if (op->nres != 1 || op->nregions) return false;
  const Type *t = ir_type(l->f, op->res[0]);
  if (t->partial || !dtype_is_float(t->dtype)) return false;
  return op->code == OP_GLOAD ? !ir_is_stored(l->f->body, op->args[0])
                              : op_info(op->code)->flags & OPF_PURE;
}

// The op of r that has the loop in it, or is it; or NULL.
static Op *around(const Late *l, const Region *r) {
  Op *op = l->loop;
  while (op && op->parent != r) op = op->parent->parent;
  return op;
}

// The region of a branch that has the loop and all uses of v; or NULL.
static Region *inside(const Late *l, const Op *branch, Value v) {
  for (uint32_t i = 0; branch->code == OP_IF && i < branch->nregions; i++) {
    Region *r = branch->regions[i];
    if (around(l, r) && ir_uses_in(r, v) == ir_count_uses(l->f, v)) return r;
  }
  return NULL;
}

// The first op that needs v, if the loop is in front of it; or NULL.
static Op *behind(const Late *l, const Op *def, Value v) {
  Op *from = def->next, *use = ir_first_use(from, v);
  for (Region *r = use ? inside(l, use, v) : NULL; r; r = inside(l, use, v)) {
    from = r->first;
    use = ir_first_use(from, v);
  }
  const Op *in = use ? around(l, use->parent) : NULL;
  for (const Op *op = from; in && op != use; op = op->next)
    if (op == in) return use;
  return NULL;
}

static bool move_one(Late *l) {
  for (uint32_t i = l->most.live.n; i-- > 0;) {
    Value v = l->most.live.at[i];
    Op *op = ir_def(l->f, v);
    if (!op || !may_wait(l, op) ||
        kept(l, op) >= pressure_of(ir_type(l->f, v), l->threads))
      continue;
    Op *use = behind(l, op, v);
    if (use) ir_move_before(op, use);
    if (use) return true;
  }
  return false;
}

static void move_all(Late *l, Arena *a) {
  bool more = true;
  while (more) {
    ArenaMark mark = arena_mark(a);
    l->most = ir_pressure_in(l->f, l->loop, a);
    more = l->most.regs > l->has && move_one(l);
    arena_reset(a, mark);
  }
}

// Loops that carry sums.
static void loops(Late *l, Region *r, Arena *a) {
  for (Op *op = r->first; op; op = op->next) {
    l->loop = op;
    if (op->code == OP_FOR && op->nres) move_all(l, a);
    for (uint32_t i = 0; i < op->nregions; i++) loops(l, op->regions[i], a);
  }
}

bool pass_late_values(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    const Op *launch = ir_launch(f);
    if (!launch || !opt->target || ir_has_steps(f)) continue;
    Late l = {.f = f,
              .threads = ir_group_threads(f, launch),
              .has = pressure_limit(f, opt->target)};
    loops(&l, f->body, &cx->scratch);
  }
  return true;
}
