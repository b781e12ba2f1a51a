// early: what joins the results of loops is done as soon as they are there.
//
//   %a = for(..) ({ .. })                  %a = for(..) ({ .. })
//   %b = for(..) ({ .. })                  %b = for(..) ({ .. })
//   %c = for(..) ({ .. })           ->     %x = mul(%a, %g)
//   %x = mul(%a, %g)                       %y = mul(%b, %h)
//   %y = mul(%b, %h)                       %s = add(%x, %y)
//   %s = add(%x, %y)                       %c = for(..) ({ .. })
//   ..                                     ..
//
// Several streams of keys have sums of their own; two sums in one take half of
// the registers while the next loop runs. Of the ops behind a loop that need
// nothing of it those go in front of it which leave less to be kept in
// fragments through it; loads of what nothing writes too. Level mach, value
// form; GPUs. Needs: place. Tests: test/passes/early/.
#include "ir/layout.h"
#include "ir/press.h"
#include "passes/pass.h"

enum { LEAST = 16 };       // registers of a thread that are worth it

typedef struct Early {
  Func *f;
  uint32_t threads;
  const Op *loop;
  bool *ready;             // by value: there before the loop
  bool *moved;             // by value: of an op that moves there
  bool *kept;              // by value: counted
  Vec(Op *) ops;           // that move
} Early;

static bool is_loop(const Op *op) {
  return op->code == OP_FOR || op->code == OP_WHILE;
}

static bool can_move(const Early *e, const Op *op) {
  bool load = op->code == OP_GLOAD && !ir_is_stored(e->f->body, op->args[0]);
  if (op->nres != 1 || op->nregions || op->code == OP_SFILL ||
      ir_type(e->f, op->res[0])->kind == TK_SMEM ||
      !(load || op_info(op->code)->flags & OPF_PURE))
    return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!e->ready[op->args[i]]) return false;
  return true;
}

// Results of ops in front of the loop are there, what regions have inside is
// not asked for.
static void begin(Early *e) {
  for (Value v = 1; v < e->f->values.n; v++) {
    e->ready[v] = true;
    e->moved[v] = false;
  }
  for (const Op *op = e->loop; op; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++) e->ready[op->res[i]] = false;
  e->ops.n = 0;
}

static void find(Early *e, Arena *a) {
  for (Op *op = e->loop->next; op; op = op->next) {
    if (!can_move(e, op)) continue;
    e->ready[op->res[0]] = e->moved[op->res[0]] = true;
    vec_push(a, &e->ops, op);
  }
}

// ---------------------------------------------------------------- what it costs
static uint32_t keep(Early *e, Value v) {
  uint32_t n = 0;
  const Op *op = ir_def(e->f, v);
  if (!e->ready[v] || e->kept[v]) return 0;
  e->kept[v] = true;
  if (!press_free(e->f, v)) return press_of(ir_type(e->f, v), e->threads);
  for (uint32_t i = 0; i < op->nargs; i++) n += keep(e, op->args[i]);
  return n;
}

static uint32_t keep_all(Early *e, const Op *op) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < op->nargs; i++) n += keep(e, op->args[i]);
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next)
      n += keep_all(e, o);
  return n;
}

// Registers of what lives through the loop, whose own needs count anyway.
static uint32_t cost(Early *e) {
  uint32_t n = 0;
  for (Value v = 1; v < e->f->values.n; v++) e->kept[v] = false;
  keep_all(e, e->loop);
  for (const Op *op = e->loop->next; op; op = op->next) {
    bool here = op->nres == 1 && e->moved[op->res[0]];
    if (!here && !(op->nres && press_free(e->f, op->res[0])))
      n += keep_all(e, op);
  }
  return n;
}

static void set(Early *e, const Op *op, bool here) {
  e->moved[op->res[0]] = e->ready[op->res[0]] = here;
}

static bool feeds(const Early *e, const Op *op) {
  for (uint32_t i = 0; i < e->ops.n; i++)
    if (e->moved[e->ops.at[i]->res[0]] && ir_mentions(e->ops.at[i], op->res[0]))
      return true;
  return false;
}

// Those stay that would leave as much. From the last to the first, so that what
// only they need stays too.
static uint32_t thin_out(Early *e) {
  uint32_t now = cost(e);
  for (uint32_t i = e->ops.n; i-- > 0;) {
    const Op *op = e->ops.at[i];
    if (feeds(e, op)) continue;
    set(e, op, false);
    uint32_t without = cost(e);
    if (without > now) set(e, op, true);
    else now = without;
  }
  return now;
}

static void visit(Early *e, Op *loop, Arena *a) {
  e->loop = loop;
  begin(e);
  uint32_t before = cost(e);
  find(e, a);
  if (!e->ops.n || thin_out(e) + LEAST > before) return;
  for (uint32_t i = 0; i < e->ops.n; i++)
    if (e->moved[e->ops.at[i]->res[0]]) ir_move_before(e->ops.at[i], loop);
}

// Loops that carry sums, in order: what has moved in front of one may go on.
static void region(Early *e, Region *r, Arena *a) {
  for (Op *op = r->last; op; op = op->prev) {
    for (uint32_t i = 0; i < op->nregions; i++) region(e, op->regions[i], a);
    if (is_loop(op) && op->nres) visit(e, op, a);
  }
}

bool pass_early(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    const Op *launch = ir_launch(f);
    if (!launch) continue;
    Early e = {.f = f, .threads = ir_group_threads(f, launch),
               .ready = NEWN(&cx->scratch, bool, f->values.n),
               .moved = NEWN(&cx->scratch, bool, f->values.n),
               .kept = NEWN(&cx->scratch, bool, f->values.n)};
    region(&e, f->body, &cx->scratch);
  }
  return true;
}
