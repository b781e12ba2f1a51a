// sched_pressure: what joins the results of loops is done as soon as they are
// there.
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
// fragments through it; loads of what nothing writes, and stores of what
// nothing reads, too. Level frag. Needs: lower_gpu. Tests:
// test/passes/sched_pressure/.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/support/cost.h"
#include "passes/pass.h"

#include <string.h>

typedef struct Moving {
  Op *op;
  bool here;  // goes in front of the loop
} Moving;

// An op behind the loop, or the loop, and what it takes from outside of it.
typedef struct Taker {
  const Op *op;
  uint32_t from, n;  // in Early.taken
} Taker;

typedef struct Early {
  Func *f;
  uint32_t threads;
  const Op *loop;
  bool steps;         // of a recurrence, whose stores wait but for triangles
  bool stores;        // some could move
  bool *ready;        // by value: there before the loop
  bool *kept;         // by value: counted
  bool *within;       // by value: the loop keeps it itself
  int32_t *size;      // by value: registers; SIZE_UNKNOWN, SIZE_FREE
  Vec(Moving) ops;    // that could move, in order
  Vec(Taker) takers;  // the loop, and what is behind it
  Vec(Value) taken;
} Early;

enum {
  SIZE_UNKNOWN = -2,
  SIZE_FREE = -1
};  // of values made where they are used

static bool is_loop(const Op *op) {
  return op->code == OP_FOR || op->code == OP_WHILE;
}

// Triangles take most of a thread's registers, where chunks have them.
static bool is_triangle(const Op *op) {
  return op->code == OP_FTRINV;
}

// Nothing reads what it writes, and nothing else writes it.
static bool is_result(const Op *op) {
  if (op->code != OP_GSTORE) return false;
  for (const Op *o = op->parent->first; o; o = o->next)
    if (o != op && ir_mentions(o, op->args[0])) return false;
  return true;
}

static bool can_move(const Early *e, const Op *op) {
  bool load = op->code == OP_GLOAD && !ir_is_stored(e->f->body, op->args[0]);
  bool tile = op->nres == 1 && ir_type(e->f, op->res[0])->kind == TK_SMEM;
  bool triangle = is_triangle(e->loop);
  bool pure = load || op_info(op->code)->flags & OPF_PURE ||
              (triangle && op->code == OP_SLOAD) ||
              ((triangle || !e->steps) && is_result(op));
  if (op->nregions || op->nres > 1 || !pure || (tile && !triangle))
    return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!e->ready[op->args[i]]) return false;
  return true;
}

// What regions have inside is theirs.
static void hide(Early *e, const Op *op) {
  for (uint32_t i = 0; i < op->nres; i++) e->ready[op->res[i]] = false;
  for (uint32_t i = 0; i < op->nregions; i++) {
    const Region *r = op->regions[i];
    for (uint32_t k = 0; k < r->params.n; k++)
      e->ready[r->params.at[k]] = false;
    for (const Op *o = r->first; o; o = o->next) hide(e, o);
  }
}

// Results of ops in front of the loop are there.
static void begin(Early *e) {
  for (Value v = 1; v < e->f->values.n; v++)
    e->ready[v] = true, e->kept[v] = false;
  for (const Op *op = e->loop; op; op = op->next) hide(e, op);
  e->ops.n = 0;
  e->stores = false;
}

static void set(Early *e, Moving *m, bool here) {
  m->here = here;
  if (m->op->nres) e->ready[m->op->res[0]] = here;
}

static void find(Early *e, Arena *a) {
  for (Op *op = e->loop->next; op; op = op->next) {
    if (!can_move(e, op)) continue;
    Moving m = {.op = op};
    set(e, &m, true);
    e->stores |= !e->steps && op->code == OP_GSTORE;
    vec_push(a, &e->ops, m);
  }
}

// ---------------------------------------------------------------- what it costs
// Coordinates are a thread's first one and constants, which stores need again
// wherever they stand.
static int32_t size_of(Early *e, Value v) {
  int32_t *n = &e->size[v];
  const Op *op = ir_def(e->f, v);
  if (e->stores && op && op->code == OP_COORD) return SIZE_FREE;
  if (*n == SIZE_UNKNOWN)
    *n = pressure_free(e->f, v)
             ? SIZE_FREE
             : (int32_t)pressure_of(ir_type(e->f, v), e->threads);
  return *n;
}

static uint32_t keep(Early *e, Value v) {
  uint32_t n = 0;
  const Op *op = ir_def(e->f, v);
  if (!e->ready[v] || e->kept[v]) return 0;
  e->kept[v] = true;
  int32_t size = size_of(e, v);
  if (size != SIZE_FREE) return (uint32_t)size;
  for (uint32_t i = 0; i < op->nargs; i++) n += keep(e, op->args[i]);
  return n;
}

static uint32_t keep_taken(Early *e, const Taker *t) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->n; i++) n += keep(e, e->taken.at[t->from + i]);
  return n;
}

// Values that are there, or could be, once each.
static void take(Early *e, const Op *op, Arena *a) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value v = op->args[i];
    if (!e->ready[v] || e->kept[v]) continue;
    e->kept[v] = true;
    vec_push(a, &e->taken, v);
  }
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next) take(e, o, a);
}

// Of the loop and what is behind it; `ready` holds for all that could move.
static void find_takers(Early *e, Arena *a) {
  e->takers.n = e->taken.n = 0;
  for (const Op *op = e->loop; op; op = op->next) {
    Taker t = {.op = op, .from = e->taken.n};
    take(e, op, a);
    t.n = e->taken.n - t.from;
    for (uint32_t i = 0; i < t.n; i++) e->kept[e->taken.at[t.from + i]] = false;
    vec_push(a, &e->takers, t);
  }
  keep_taken(e, &e->takers.at[0]);
  memcpy(e->within, e->kept, sizeof *e->kept * e->f->values.n);
}

// Registers of what lives through the loop, whose own needs count anyway.
static uint32_t cost(Early *e) {
  uint32_t n = 0, next = 0;
  memcpy(e->kept, e->within, sizeof *e->kept * e->f->values.n);
  for (uint32_t i = 1; i < e->takers.n; i++) {
    const Op *op = e->takers.at[i].op;
    bool here =
        next < e->ops.n && e->ops.at[next].op == op && e->ops.at[next++].here;
    if (!here && !(op->nres && size_of(e, op->res[0]) == SIZE_FREE))
      n += keep_taken(e, &e->takers.at[i]);
  }
  return n;
}

static bool feeds(const Early *e, const Op *op) {
  for (uint32_t i = 0; op->nres && i < e->ops.n; i++)
    if (e->ops.at[i].here && ir_mentions(e->ops.at[i].op, op->res[0]))
      return true;
  return false;
}

// Those stay that would leave as much. From the last to the first, so that what
// only they need stays too.
static uint32_t thin_out(Early *e) {
  uint32_t now = cost(e);
  for (uint32_t i = e->ops.n; i-- > 0;) {
    Moving *m = &e->ops.at[i];
    if (feeds(e, m->op)) continue;
    set(e, m, false);
    uint32_t without = cost(e);
    if (without > now) set(e, m, true);
    else now = without;
  }
  return now;
}

// Op i, and what it is made of, in front of the loop; false: they were there.
static bool add(Early *e, uint32_t i, bool *added) {
  bool any = !e->ops.at[i].here;
  for (uint32_t k = 0; k <= i; k++) added[k] = false;
  added[i] = any;
  for (uint32_t k = i + 1; k-- > 0;) {
    const Op *op = e->ops.at[k].op;
    for (uint32_t j = k + 1; !added[k] && op->nres && j <= i; j++)
      added[k] = added[j] && !e->ops.at[k].here &&
                 ir_mentions(e->ops.at[j].op, op->res[0]);
    if (added[k]) set(e, &e->ops.at[k], true);
  }
  return any;
}

// One after the other, with what it is made of, as long as nothing more is
// left: two that need the same leave less only together.
static void choose(Early *e, Arena *a) {
  bool *added = NEWN(a, bool, e->ops.n + 1), changed = true;
  uint32_t now = cost(e);
  for (uint32_t sweep = 0; changed && sweep < COST_EARLY_SWEEPS; sweep++) {
    changed = false;
    for (uint32_t i = 0; i < e->ops.n; i++) {
      if (!add(e, i, added)) continue;
      uint32_t with = cost(e);
      if (with <= now) changed = true, now = with;
      for (uint32_t k = 0; with > now && k <= i; k++)
        if (added[k]) set(e, &e->ops.at[k], false);
    }
  }
}

static void visit(Early *e, Op *loop, Arena *a) {
  e->loop = loop;
  begin(e);
  find(e, a);
  find_takers(e, a);
  for (uint32_t i = 0; i < e->ops.n; i++) set(e, &e->ops.at[i], false);
  uint32_t before = cost(e);
  choose(e, a);
  if (!e->ops.n || thin_out(e) + COST_EARLY_LEAST > before) return;
  for (uint32_t i = 0; i < e->ops.n; i++)
    if (e->ops.at[i].here) ir_move_before(e->ops.at[i].op, loop);
}

// Loops that carry sums, in order: what has moved in front of one may go on.
static void region(Early *e, Region *r, Arena *a) {
  for (Op *op = r->last; op; op = op->prev) {
    for (uint32_t i = 0; i < op->nregions; i++) region(e, op->regions[i], a);
    if ((is_loop(op) && op->nres) || is_triangle(op)) visit(e, op, a);
  }
}

bool pass_sched_pressure(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    const Op *launch = ir_launch(f);
    if (!launch) continue;
    Early e = {.f = f,
               .threads = ir_group_threads(f, launch),
               .steps = ir_has_steps(f),
               .ready = NEWN(&cx->scratch, bool, f->values.n),
               .kept = NEWN(&cx->scratch, bool, f->values.n),
               .within = NEWN(&cx->scratch, bool, f->values.n),
               .size = NEWN(&cx->scratch, int32_t, f->values.n)};
    for (Value v = 0; v < f->values.n; v++) e.size[v] = SIZE_UNKNOWN;
    region(&e, f->body, &cx->scratch);
  }
  return true;
}
