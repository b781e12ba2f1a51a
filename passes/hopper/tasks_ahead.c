// tasks_ahead: what a task reads is asked for while the one before is done.
//
//   for(%lo, %hi, 1) ({                %h0 = mod(%lo, %t)
//     ^(%u):                           %n0 = floordiv(%lo, %t)
//     %h = mod(%u, %t)                 %x0 = gload(%X, %n0, %h0, %k)
//     %n = floordiv(%u, %t)      ->    for(%lo, %hi, 1, %h0, %n0, %x0) ({
//     %x = gload(%X, %n, %h, %k)         ^(%u, %h, %n, %x):
//     ..                                 %g = the next %h, %m = the next %n
//   })                                   %y = gload(%X, %m, %g, %k)
//                                        ..
//                                        yield(%g, %m, %y)
//                                      })
//
// In loops over neighbouring tasks. Else a task waits for memory as it begins,
// and few tasks have room on a multiprocessor. Only what every task reads, at
// places that nothing is read for. The numbers that a task's place is made of
// are counted up instead of divided. The last task asks for its own once more:
// that is in the cache. Functions of the last of these numbers, as sines of a
// token's place, are made where it is another one, and carried. Level frag;
// functions without products and steps. Needs: tile_scheduler, early_loads.
// Tests: test/passes/tasks_ahead.
#include "ir/deps.h"
#include "ir/facts.h"
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/pass.h"
#include "passes/support/cost.h"
#include "passes/support/loops.h"

enum { MAX_DIGITS = 4, MAX_LOADS = 6, MAX_REGISTERS = 12, MAX_KEPT = 4 };
enum { MAX_CARRIED = 2 * MAX_DIGITS + MAX_LOADS + MAX_KEPT };

// u or another one's quotient, by `by`: remainder and quotient.
typedef struct Digit {
  Value of, by, rest, times;
} Digit;

typedef struct Ahead {
  Func *f;
  Op *loop;
  bool *known;   // by value: made of the task's number, without loads
  bool *varies;  // by value: with the task
  bool *there;   // by value: defined before
  Digit digit[MAX_DIGITS];
  Value load[MAX_LOADS];
  Op *kept[MAX_KEPT];
  uint32_t digits, loads, keeps;
} Ahead;

// ---------------------------------------------------------------- what there is
static bool is_plain(const Op *op) {
  bool elem = op_info(op->code)->flags & OPF_ELEM && op->code != OP_RANDOM;
  return op->nres == 1 && op->nregions == 0 &&
         (elem || op->code == OP_CONST || op->code == OP_DIM ||
          op->code == OP_GIVEN || op->code == OP_COORD ||
          op->code == OP_SPLAT || op->code == OP_BCAST);
}

static bool are_known(Ahead *x, const Op *op) {
  const Region *r = x->loop->regions[0];
  bool varies = false;
  for (uint32_t i = 0; i < op->nargs; i++) {
    if (!x->known[op->args[i]] && !ir_defined_outside(x->f, op->args[i], r))
      return false;
    varies |= x->varies[op->args[i]];
  }
  x->varies[op->res[0]] = varies;
  return true;
}

static Digit *digit_of(Ahead *x, Value of, Value by) {
  for (uint32_t i = 0; i < x->digits; i++)
    if (x->digit[i].of == of && x->digit[i].by == by) return &x->digit[i];
  if (x->digits == MAX_DIGITS) return NULL;
  Digit *d = &x->digit[x->digits++];
  *d = (Digit){.of = of, .by = by};
  return d;
}

// Is v counted up from task to task?
static bool is_counted(const Ahead *x, Value v) {
  if (v == x->loop->regions[0]->params.at[0]) return true;
  for (uint32_t i = 0; i < x->digits; i++)
    if (x->digit[i].times == v) return true;
  return false;
}

static void note_digit(Ahead *x, const Op *op) {
  bool divides = op->code == OP_MOD || op->code == OP_FLOORDIV;
  if (!divides || !is_counted(x, op->args[0])) return;
  Digit *d = digit_of(x, op->args[0], op->args[1]);
  if (!d) return;
  if (op->code == OP_MOD) d->rest = op->res[0];
  else d->times = op->res[0];
}

static void find(Ahead *x) {
  uint32_t threads = ir_group_threads(x->f, x->loop), regs = 0;
  Value u = x->loop->regions[0]->params.at[0];
  x->known[u] = x->varies[u] = true;
  for (const Op *op = x->loop->regions[0]->first; op; op = op->next) {
    bool load = op->code == OP_GLOAD && ir_is_input(x->f, op->args[0]) &&
                !ir_attr_i(op, AT_INBOUNDS, 0);
    if ((!load && !is_plain(op)) || !are_known(x, op)) continue;
    if (!load) {
      x->known[op->res[0]] = true;
      note_digit(x, op);
      continue;
    }
    if (!x->varies[op->res[0]]) continue;
    uint32_t n = pressure_of(ir_type(x->f, op->res[0]), threads);
    if (x->loads == MAX_LOADS || regs + n > MAX_REGISTERS) continue;
    regs += n;
    x->load[x->loads++] = op->res[0];
  }
}

// ---------------------------------------------------------------- what stays
// Made of what tasks have in common until the last digit goes up?
static bool stays(const Ahead *x, Value v) {
  const Op *op = ir_def(x->f, v);
  const Region *r = x->loop->regions[0];
  if (v == x->digit[x->digits - 1].times || ir_defined_outside(x->f, v, r))
    return true;
  bool ok = op && op->parent == r && (is_plain(op) || op->code == OP_UNIFORM);
  for (uint32_t i = 0; op && !ok && i < x->loads; i++) ok = x->load[i] == v;
  for (uint32_t i = 0; ok && i < op->nargs; i++) ok = stays(x, op->args[i]);
  return ok;
}

// Are its operands there where the first one is made?
static bool is_there(const Ahead *x, const Op *op) {
  for (const Op *k = x->keeps ? x->kept[0] : op; k != op; k = k->next)
    for (uint32_t i = 0; i < op->nargs; i++)
      if (ir_def(x->f, op->args[i]) == k) return false;
  return true;
}

// Is each digit of what the one before leaves? Then the last goes up where all
// others begin anew.
static bool are_digits(const Ahead *x) {
  bool ok = x->digits > 0;
  for (uint32_t i = 1; ok && i < x->digits; i++)
    ok = x->digit[i].of == x->digit[i - 1].times;
  return ok;
}

// Functions that a thread has one of.
static void find_kept(Ahead *x) {
  if (!are_digits(x)) return;
  uint32_t threads = ir_group_threads(x->f, x->loop);
  for (Op *op = x->loop->regions[0]->first; op; op = op->next) {
    bool dear = op->nres == 1 && op_is_function(op->code) &&
                op_facts(op->code)->slots >= COST_HANDED_SLOTS;
    if (dear && x->keeps < MAX_KEPT && stays(x, op->res[0]) &&
        pressure_of(ir_type(x->f, op->res[0]), threads) == 1 && is_there(x, op))
      x->kept[x->keeps++] = op;
  }
}

// Does the task have another last digit than the one before?
static Value is_new(const Ahead *x, Builder *b, Value u, const Value *now) {
  Value all = 0, zero = ir_const_i(b, DT_I32, 0);
  for (uint32_t i = 0; i < x->digits; i++) {
    Value none = ir_2(b, OP_EQ, now[2 * i], zero);
    all = all ? ir_2(b, OP_AND, all, none) : none;
  }
  return ir_2(b, OP_OR, all, ir_2(b, OP_EQ, u, x->loop->args[0]));
}

// They are made where `fresh`, else they are what they were.
static void keep(Ahead *x, Value fresh, const Value *was, Value *out) {
  Value made[MAX_KEPT];
  Type types[MAX_KEPT];
  Op *first = x->kept[0];
  for (uint32_t i = 0; i < x->keeps; i++) {
    made[i] = x->kept[i]->res[0];
    types[i] = *ir_type(x->f, made[i]);
  }
  Builder b = {.fn = x->f,
               .region = first->parent,
               .before = first,
               .span = first->span};
  Op *branch = ir_op(&b, OP_IF, &fresh, 1, NULL, 0, types, x->keeps, 2);
  for (uint32_t i = 0; i < x->keeps; i++)
    ir_replace_uses(x->f, made[i], out[i] = branch->res[i]);
  b.before = NULL;
  for (uint32_t i = 0; i < 2; i++) {
    b.region = branch->regions[i];
    ir_yield(&b, i ? was : made, x->keeps);
  }
  for (uint32_t i = 0; i < x->keeps; i++)
    ir_move_before(x->kept[i], branch->regions[0]->last);
}

// ---------------------------------------------------------------- rewriting
// v, of another task: what `there` tells is there.
static Value copy(const Ahead *x, Builder *b, ValueMap *m, Value v) {
  const Op *op = ir_def(x->f, v);
  Value to = vmap_get(m, v);
  if (to != v || !op || x->there[v]) return to;
  for (uint32_t i = 0; i < op->nargs; i++) copy(x, b, m, op->args[i]);
  ir_clone(b, x->f, op, m, NULL);
  return vmap_get(m, v);
}

static uint32_t loads(const Ahead *x, Builder *b, ValueMap *m, Value *out) {
  for (uint32_t i = 0; i < x->loads; i++) out[i] = copy(x, b, m, x->load[i]);
  return x->loads;
}

// What the first task has: digits, what it reads, and nothing to keep.
static uint32_t first(Ahead *x, Builder *b, Value *out) {
  ValueMap m = {.arena = x->f->mod->arena};
  uint32_t n = 0;
  vmap_put(&m, x->loop->regions[0]->params.at[0], x->loop->args[0]);
  for (uint32_t i = 0; i < x->digits; i++) {
    const Digit *d = &x->digit[i];
    Value of = vmap_get(&m, d->of), by = copy(x, b, &m, d->by);
    out[n++] = ir_2(b, OP_MOD, of, by);
    out[n++] = ir_2(b, OP_FLOORDIV, of, by);
    if (d->rest) vmap_put(&m, d->rest, out[n - 2]);
    if (d->times) vmap_put(&m, d->times, out[n - 1]);
  }
  n += loads(x, b, &m, out + n);
  for (uint32_t i = 0; i < x->keeps; i++) {
    Type t = *ir_type(x->f, x->kept[i]->res[0]);
    IrAttr zero = {.id = AT_VALUE, .f = 0};
    out[n++] = ir_op(b, OP_CONST, NULL, 0, &zero, 1, &t, 1, 0)->res[0];
  }
  return n;
}

// Whether the quotient v goes up by one for the next task.
static Value goes_up(const Ahead *x, const Value *up, Value v) {
  for (uint32_t i = 0; i < x->digits; i++)
    if (x->digit[i].times == v) return up[i + 1];
  return up[0];
}

// What the next task has; `now`: what this one has.
static uint32_t next(Ahead *x, Builder *b, Value u, const Value *now,
                     Value *out) {
  ValueMap m = {.arena = x->f->mod->arena};
  Value one = ir_const_i(b, DT_I32, 1), zero = ir_const_i(b, DT_I32, 0);
  Value up[MAX_DIGITS + 1], v = ir_2(b, OP_ADD, u, one);
  uint32_t n = 0;
  up[0] = ir_2(b, OP_LT, v, x->loop->args[1]);
  vmap_put(&m, x->loop->regions[0]->params.at[0],
           ir_3(b, OP_SELECT, up[0], v, u));
  for (uint32_t i = 0; i < x->digits; i++, n += 2) {
    const Digit *d = &x->digit[i];
    Value on = goes_up(x, up, d->of), more = ir_2(b, OP_ADD, now[n], one);
    Value full = ir_2(b, OP_EQ, more, copy(x, b, &m, d->by));
    more = ir_3(b, OP_SELECT, full, zero, more);
    out[n] = ir_3(b, OP_SELECT, on, more, now[n]);
    up[i + 1] = ir_2(b, OP_AND, on, full);
    out[n + 1] = ir_2(b, OP_ADD, now[n + 1], ir_cast(b, DT_I32, up[i + 1]));
    if (d->rest) vmap_put(&m, d->rest, out[n]);
    if (d->times) vmap_put(&m, d->times, out[n + 1]);
  }
  return n + loads(x, b, &m, out + n);
}

static void note_results(const Ahead *x, const Op *op) {
  for (uint32_t i = 0; i < op->nres; i++) x->there[op->res[i]] = true;
}

// Where the loop's bounds are known.
static Op *bounded(const Ahead *x) {
  Op *op = x->f->body->first;
  for (uint32_t i = 0; i < x->f->params.n; i++)
    x->there[x->f->params.at[i].v] = true;
  for (uint32_t i = 0; i < 3; op = op->next) {
    note_results(x, op);
    while (i < 3 && x->there[x->loop->args[i]]) i++;
  }
  return op;
}

static void ahead(Ahead *x) {
  Op *old = x->loop, *at = bounded(x);
  Builder b = {.fn = x->f,
               .region = old->parent,
               .before = at,
               .span = old->span};
  Value start[MAX_CARRIED], then[MAX_CARRIED];
  uint32_t n = first(x, &b, start), own = old->regions[0]->params.n;
  for (; at != old; at = at->next) note_results(x, at);
  Op *loop = loop_longer(x->f, old, start, n);
  Region *to = loop->regions[0];
  const Value *now = to->params.at + own;
  Builder in = {.fn = x->f, .region = to, .span = old->span};
  uint32_t had = next(x, &in, to->params.at[0], now, then);
  if (x->keeps)
    keep(x, is_new(x, &in, to->params.at[0], now), now + had, then + had);
  loop_replace(x->f, old, loop, then, n);
  for (uint32_t i = 0; i < x->digits; i++, now += 2) {
    if (x->digit[i].rest) ir_replace_uses(x->f, x->digit[i].rest, now[0]);
    if (x->digit[i].times) ir_replace_uses(x->f, x->digit[i].times, now[1]);
  }
  for (uint32_t i = 0; i < x->loads; i++)
    ir_replace_uses(x->f, x->load[i], now[i]);
}

// The loop over neighbouring tasks.
static Op *neighbours(Func *f) {
  double by;
  for (Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_FOR && op->nargs == 3 && op->nres == 0 &&
        ir_const_value(f, op->args[2], &by) && by == 1)
      return op;
  return NULL;
}

bool pass_tasks_ahead(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    const Op *launch = ir_launch(f);
    if (!launch || ir_has_steps(f) || ir_has_products(f)) continue;
    ArenaMark mark = arena_mark(&cx->scratch);
    Ahead x = {.f = f, .loop = neighbours(f)};
    x.known = NEWN(&cx->scratch, bool, f->values.n);
    x.varies = NEWN(&cx->scratch, bool, f->values.n);
    x.there = NEWN(&cx->scratch, bool, f->values.n);
    if (x.loop) find(&x);
    if (x.loads) {
      find_kept(&x);
      ahead(&x);
      ir_sweep(f);
    }
    arena_reset(&cx->scratch, mark);
  }
  return true;
}
