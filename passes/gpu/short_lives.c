// short_lives: values live shorter where more live at once than a thread has
// registers for.
//
//   %q = sload(%s)                        %g = fscan(%x)
//   %p = mma(%q, %k)                      %p = mma(%s, %k)
//   %g = fscan(%x)                  ->    %n = freduce(mul(%p, %h))
//   %o = mul(%p, %g)                      %o = mul(%p, %g)
//   ..                                    ..
//   %n = freduce(mul(%p, %h))             %q = sload(%s)
//   %z = mul(%q, %n)                      %z = mul(%q, %n)
//
// A chunk of steps is straight code, whose ops stand in the order of the
// equations: what two of them read lives from the first to the last. Of the
// values that live where most do one is made where it is first needed, or what
// is left of its uses is done at once if that leaves less: a row's sums for a
// tile. Each such step is kept if fewer registers beyond what a thread has are
// taken, summed over all ops. Pure ops and reads of shared tiles; loads stay
// ahead of where they are needed. sm_90a's schedule keeps what it has put
// beside each other, but where far more lives than a thread has, and the most
// of it can be less: what lives later may hold shared memory for longer. Level
// frag; NVIDIA. Needs: remat.
// Tests: test/passes/short_lives/.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/pass.h"
#include "passes/support/cost.h"

// An op that has moved, and what it stood in front of.
typedef struct Moved {
  Op *op, *next;
} Moved;

typedef Vec(Moved) Moves;

typedef struct Lives {
  Func *f;
  Arena *a;
  uint32_t threads, has;  // registers that may live
  bool waits;             // products are started and waited for
  Press most;
  uint64_t over;  // squares of what is beyond `has`, of all ops
  Moves kept;     // in the module's arena
} Lives;

static bool may_move(const Op *op) {
  return op->nres == 1 && !op->nregions &&
         (op->code == OP_SLOAD || op_info(op->code)->flags & OPF_PURE);
}

static void move(const Lives *l, Moves *all, Op *op, Op *to) {
  Moved m = {op, op->next};
  if (op == to || op->next == to) return;
  vec_push(l->a, all, m);
  ir_move_before(op, to);
}

static void undo(const Moves *all) {
  for (uint32_t i = all->n; i-- > 0;)
    ir_move_before(all->at[i].op, all->at[i].next);
}

static uint64_t over(const Lives *l) {
  ArenaMark mark = arena_mark(l->a);
  uint64_t n = ir_pressure_over(l->f, l->has, l->a);
  arena_reset(l->a, mark);
  return n;
}

// Are the moves kept?
static bool settle(Lives *l, const Moves *all) {
  if (!all->n) return false;
  uint64_t now = over(l);
  bool better = now < l->over;
  if (better) l->over = now;
  else undo(all);
  for (uint32_t i = 0; better && i < all->n; i++)
    vec_push(l->f->mod->arena, &l->kept, all->at[i]);
  return better;
}

// ---------------------------------------------------------------- later
// The side of a branch that has all uses of v; or NULL.
static Region *side(const Lives *l, const Op *branch, Value v) {
  for (uint32_t i = 0; branch->code == OP_IF && i < branch->nregions; i++)
    if (ir_uses_in(branch->regions[i], v) == ir_count_uses(l->f, v))
      return branch->regions[i];
  return NULL;
}

static Op *first_use(const Lives *l, const Op *def, Value v) {
  Op *use = ir_first_use(def->next, v);
  for (Region *r = use ? side(l, use, v) : NULL; r; r = side(l, use, v))
    use = ir_first_use(r->first, v);
  return use;
}

// Makes v where it is needed.
static bool later(Lives *l, Value v) {
  Moves all = {0};
  Op *op = ir_def(l->f, v);
  Op *use = op && may_move(op) ? first_use(l, op, v) : NULL;
  if (use) move(l, &all, op, use);
  return settle(l, &all);
}

// ---------------------------------------------------------------- sooner
typedef struct Cone {
  const Lives *l;
  Op *to;  // in front of which it is to stand
  bool *in, *there;
  bool ok;
} Cone;

// Is v there in front of `to`? Ops behind it in its region are not yet.
static void see_there(Cone *c) {
  for (Value v = 1; v < c->l->f->values.n; v++) c->there[v] = true;
  for (const Op *op = c->to; op; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++) c->there[op->res[i]] = false;
}

static void reach(Cone *c, Value v) {
  const Op *op = ir_def(c->l->f, v);
  if (c->there[v] || c->in[v] || !c->ok) return;
  c->ok = op && op != c->to && op->parent == c->to->parent && may_move(op);
  c->in[v] = true;
  for (uint32_t i = 0; c->ok && i < op->nargs; i++) reach(c, op->args[i]);
}

// Does `end`, with what it is made of, in front of `to`.
static bool sooner(Lives *l, Op *end, Op *to) {
  uint32_t n = l->f->values.n;
  Moves all = {0};
  Cone c = {.l = l,
            .to = to,
            .in = NEWN(l->a, bool, n),
            .there = NEWN(l->a, bool, n),
            .ok = true};
  see_there(&c);
  reach(&c, end->res[0]);
  for (Op *op = to, *next; c.ok && op; op = next) {
    next = op->next;
    if (op->nres && c.in[op->res[0]]) move(l, &all, op, to);
    if (op == end) break;
  }
  return settle(l, &all);
}

static uint32_t size_of(const Lives *l, const Op *op) {
  return pressure_of(ir_type(l->f, op->res[0]), l->threads);
}

// The op in v's region that is or has the one where most live; or NULL.
static Op *peak_beside(const Lives *l, const Region *r) {
  const Op *op = l->most.at;
  while (op && op->parent != r) op = op->parent->parent;
  return (Op *)op;
}

// Ends, behind the peak, of what uses v: ops of a few registers.
static bool use_up(Lives *l, Value v) {
  Op *at = peak_beside(l, l->most.at->parent);
  uint32_t size = pressure_of(ir_type(l->f, v), l->threads);
  bool *of = NEWN(l->a, bool, l->f->values.n);
  of[v] = true;
  for (Op *op = at->next, *next; op; op = next) {
    bool uses = false;
    next = op->next;
    for (uint32_t i = 0; i < op->nargs; i++) uses |= of[op->args[i]];
    if (!uses || !may_move(op)) continue;
    of[op->res[0]] = true;
    if (pressure_free(l->f, op->res[0]) || 2 * size_of(l, op) > size) continue;
    if (sooner(l, op, at)) return true;
    const Op *def = ir_def(l->f, v);
    if (def && def->parent == at->parent && sooner(l, op, def->next))
      return true;
  }
  return false;
}

// ---------------------------------------------------------------- all
static bool improve(Lives *l) {
  l->most = ir_pressure(l->f, l->a);
  if (l->most.regs <= l->has || !l->most.at) return false;
  for (uint32_t i = l->most.live.n; i-- > 0;)
    if (later(l, l->most.live.at[i])) return true;
  for (uint32_t i = l->most.live.n; i-- > 0;)
    if (use_up(l, l->most.live.at[i])) return true;
  return false;
}

static uint32_t most(const Lives *l) {
  ArenaMark mark = arena_mark(l->a);
  uint32_t n = ir_pressure(l->f, l->a).regs;
  arena_reset(l->a, mark);
  return n;
}

typedef struct Movers {
  const Lives *l;
  Vec(Value) all;
} Movers;

static void see_mover(void *data, Op *op) {
  Movers *m = data;
  if (may_move(op) && size_of(m->l, op) && !pressure_free(m->l->f, op->res[0]))
    vec_push(m->l->a, &m->all, op->res[0]);
}

// Where the highest peak stays others may fall, as those of products that need
// not start yet: the last values first, so that those in front wait for less.
static void lower_others(Lives *l) {
  Movers m = {.l = l};
  ir_walk(l->f->body, see_mover, &m);
  for (uint32_t i = m.all.n; l->over && i-- > 0;) later(l, m.all.at[i]);
}

static void shorten(Lives *l) {
  bool more = true;
  uint32_t before = most(l);
  l->over = over(l);
  for (uint32_t i = 0; more && i < COST_SHORT_MOVES; i++) {
    ArenaMark mark = arena_mark(l->a);
    more = improve(l);
    arena_reset(l->a, mark);
  }
  if (!l->waits) return;
  // What spills at a peak that stays is spilled, and what was beside it is not
  // any more.
  if (most(l) < before) lower_others(l);
  else undo(&l->kept);
}

// Registers beyond those of fragments that a thread needs at least.
static int64_t least_room(const Target *t) {
  return t->gpu.hopper ? -COST_PTXAS_FAR : COST_SHORT_OTHER;
}

bool pass_short_lives(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    const Op *launch = ir_launch(f);
    if (!launch || !opt->target || !ir_has_steps(f)) continue;
    Lives l = {.f = f,
               .a = &cx->scratch,
               .threads = ir_group_threads(f, launch),
               .waits = opt->target->gpu.hopper};
    int64_t has = pressure_limit(f, opt->target);
    l.has = (uint32_t)(has > COST_SHORT_ROOM ? has - COST_SHORT_ROOM : 0);
    if (most(&l) > has - least_room(opt->target)) shorten(&l);
  }
  return true;
}
