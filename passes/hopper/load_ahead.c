// load_ahead: what a maker's step reads of memory is asked for a step ahead.
//
//   for(%lo, %hi, 64) ({                  %a = gload(%S, %lo)
//     ^(%k)                               for(%lo, %hi, 64, %a) ({
//     %s = gload(%S, %k)           ->       ^(%k, %s)
//     mbar_wait(..)                         %n = gload(%S, add(%k, 64))
//     sstore(%slot, %s)                     mbar_wait(..)
//   })                                      sstore(%slot, %s)
//                                           yield(%n)
//                                         })
//
// What a step says that it reads soon (gsoon) it says of the next one, whose
// indices are there as it begins. The first one's is said in front of the loop,
// unless masks have made three of it:
//
//   for(%lo, %hi, 64) ({                  gsoon(%C, %a)
//     ^(%k)                               for(%lo, %hi, 64, %a, %b) ({
//     %i = gload(%at, %k)           ->      ^(%k, %i, %n)
//     %x = gload(%C, %i)                    %far = gload(%at, add(%k, 128))
//     gsoon(%C, %i)                         %x = gload(%C, %i)
//     ..                                    gsoon(%C, %n)
//                                           yield(%n, %far)
//
// Else a step takes as long as memory does, however many slots there are. The
// last step asks for what is behind the loop's end: bounds keep it inside. Only
// loops in roles that wait for barriers, and put few registers of such loads
// into shared memory, or copy or widen what such loads tell (rings_told.c):
// beside two groups a producer that copies has no registers for them.
// Level frag; sm_90a. Needs: thin_strips. Tests: test/passes/load_ahead.
#include "ir/deps.h"
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/pass.h"
#include "passes/support/loops.h"

enum { MAX_AHEAD = 8, MAX_REGISTERS = 4 };

typedef struct Ahead {
  Func *f;
  Op *loop;
  bool *early;  // by value: made of the step's number and what is outside
  bool *read;   // by value: so made, of loads
  Value v[MAX_AHEAD];
  uint32_t n;
  bool alone;  // one group computes
  bool soon;   // the producer has registers for more: it widens rows
  bool first;  // no loop in front of it says what its first step reads
} Ahead;

static bool is_early(const Ahead *x, const Op *op) {
  bool load = op->code == OP_GLOAD && ir_is_input(x->f, op->args[0]) &&
              !ir_attr_i(op, AT_INBOUNDS, 0);
  bool pure = op_info(op->code)->flags & OPF_PURE && !op->nregions &&
              op->code != OP_SLOAD && op->code != OP_SGET;
  if ((!load && !pure) || op->nres != 1) return false;
  const Region *r = x->loop->regions[0];
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value a = op->args[i];
    if (a != r->params.at[0] && !x->early[a] && !ir_defined_outside(x->f, a, r))
      return false;
  }
  return true;
}

static bool is_frag(const Ahead *x, Value v) {
  return ir_type(x->f, v)->kind == TK_FRAG;
}

static bool is_told(const Ahead *x, const Op *op) {
  bool told = false;
  if (op->code != OP_CP_ASYNC && op->code != OP_GSOON) return false;
  for (uint32_t i = 0; i < op->nargs; i++) told |= x->read[op->args[i]];
  return told;
}

// Of what tells copies the loads themselves: what is computed of them would be
// waited for as they are asked for.
static bool find_loads(Ahead *x) {
  bool *tells = NEWN(x->f->mod->arena, bool, x->f->values.n);
  for (const Op *op = x->loop->regions[0]->last; op; op = op->prev) {
    bool asks = is_told(x, op);
    for (uint32_t i = 0; i < op->nres; i++)
      asks |= tells[op->res[i]] && x->early[op->res[i]];
    for (uint32_t i = 0; asks && i < op->nargs; i++) tells[op->args[i]] = true;
  }
  for (const Op *op = x->loop->regions[0]->first; op; op = op->next) {
    if (op->code != OP_GLOAD || !is_frag(x, op->res[0])) continue;
    if (!tells[op->res[0]]) continue;
    if (!x->early[op->res[0]] || x->n == MAX_AHEAD) return false;
    x->v[x->n++] = op->res[0];
  }
  return true;
}

// Values of loads that go to shared memory, or say what does, and nowhere else.
static bool find(Ahead *x) {
  bool waits = false, tells = false;
  for (const Op *op = x->loop->regions[0]->first; op; op = op->next)
    x->soon |= op->code == OP_GSOON;
  for (const Op *op = x->loop->regions[0]->first; op; op = op->next) {
    bool early = is_early(x, op);
    waits |= op->code == OP_MBAR_WAIT;
    if (op->nregions && !x->soon) return false;
    for (uint32_t i = 0; early && i < op->nargs; i++)
      x->read[op->res[0]] |= x->read[op->args[i]];
    if (early) x->early[op->res[0]] = true;
    if (early && op->code == OP_GLOAD && is_frag(x, op->res[0]))
      x->read[op->res[0]] = true;
    for (uint32_t i = 0; !early && i < op->nargs; i++) {
      bool known = false;
      for (uint32_t k = 0; k < x->n; k++) known |= x->v[k] == op->args[i];
      if (known || !x->read[op->args[i]]) continue;
      if (op->code == OP_CP_ASYNC || op->code == OP_GSOON) tells = true;
      else if (x->soon) continue;
      else if (x->n == MAX_AHEAD || op->code != OP_SSTORE) return false;
      else x->v[x->n++] = op->args[i];
    }
  }
  if (tells && (x->n || !(x->alone || x->soon) || !find_loads(x))) return false;
  uint32_t threads = ir_group_threads(x->f, x->loop);
  for (uint32_t i = 0; i < x->n; i++)
    waits &= is_frag(x, x->v[i]) &&
             pressure_of(ir_type(x->f, x->v[i]), threads) <= MAX_REGISTERS;
  return waits && x->n;
}

// Value v of another step, whose number and loads are in the map.
static Value of_step(const Ahead *x, Builder *b, ValueMap *m, const Region *r,
                     Value v) {
  Op *op = ir_def(x->f, v);
  bool here = op && op->parent == r && x->early[v];
  if (vmap_get(m, v) != v || !here) return vmap_get(m, v);
  for (uint32_t i = 0; i < op->nargs; i++) of_step(x, b, m, r, op->args[i]);
  ir_clone(b, x->f, op, m, NULL);
  return vmap_get(m, v);
}

// Those values of step k.
static void clone(const Ahead *x, Builder *b, Value k, Value *out) {
  ValueMap map = {.arena = x->f->mod->arena};
  const Region *r = x->loop->regions[0];
  vmap_put(&map, r->params.at[0], k);
  for (uint32_t i = 0; i < x->n; i++) out[i] = of_step(x, b, &map, r, x->v[i]);
}

// The number of the first step.
static Value first_of(const Ahead *x, Builder *b) {
  Value lo = x->loop->args[0], hi = x->loop->args[1], by = x->loop->args[2];
  if (!ir_attr_i(x->loop, AT_REVERSE, 0)) return lo;
  Value one = ir_const_i(b, ir_type(x->f, lo)->dtype, 1);
  Value n = ir_2(b, OP_SUB, ir_2(b, OP_SUB, hi, lo), one);
  n = ir_2(b, OP_MUL, ir_2(b, OP_FLOORDIV, n, by), by);
  return ir_2(b, OP_ADD, lo, n);
}

// The map of a step: its number, its loads.
static ValueMap step_map(const Ahead *x, Value k, const Value *loads) {
  ValueMap m = {.arena = x->f->mod->arena};
  vmap_put(&m, x->loop->regions[0]->params.at[0], k);
  for (uint32_t i = 0; i < x->n; i++) vmap_put(&m, x->v[i], loads[i]);
  return m;
}

// What the first step reads is said in front of the loop.
static void begin(const Ahead *x, Builder *b, Value k, const Value *loads) {
  const Region *r = x->loop->regions[0];
  ValueMap m = step_map(x, k, loads);
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code != OP_GSOON) continue;
    for (uint32_t i = 0; i < op->nargs; i++) of_step(x, b, &m, r, op->args[i]);
    ir_clone(b, x->f, op, &m, NULL);
  }
}

// What a step says that it reads becomes what the next one, k, will read.
static void advance(Ahead *x, const Region *r, uint32_t own, Value k) {
  for (Op *op = r->first; op; op = op->next) {
    if (op->code != OP_GSOON) continue;
    ValueMap map = {.arena = x->f->mod->arena};
    Builder b = {.fn = x->f,
                 .region = op->parent,
                 .before = op,
                 .span = op->span};
    vmap_put(&map, r->params.at[0], k);
    for (uint32_t i = 0; i < x->n; i++)
      vmap_put(&map, r->params.at[own + i], r->params.at[own + x->n + i]);
    for (uint32_t i = 0; i < op->nargs; i++)
      op->args[i] = of_step(x, &b, &map, r, op->args[i]);
  }
}

// What a step reads itself is not to be said.
static void drop(Op *op) {
  for (uint32_t i = 0; i < op->nregions; i++)
    for (Op *o = op->regions[i]->first, *next; o; o = next) {
      next = o->next;
      if (o->code == OP_GSOON) ir_erase(o);
    }
}

// The number of the step behind step k.
static Value next_of(const Ahead *x, Builder *b, Value k) {
  bool back = ir_attr_i(x->loop, AT_REVERSE, 0);
  return ir_2(b, back ? OP_SUB : OP_ADD, k, x->loop->args[2]);
}

// What tells the rows that are said is there a step before they are.
static void ahead(Ahead *x) {
  Op *old = x->loop;
  uint32_t far = x->soon ? 2 : 1, n = far * x->n;
  Builder b = {.fn = x->f,
               .region = old->parent,
               .before = old,
               .span = old->span};
  Value start[2 * MAX_AHEAD], next[2 * MAX_AHEAD];
  Value k = first_of(x, &b), behind = 0;
  clone(x, &b, k, start);
  if (x->soon) clone(x, &b, next_of(x, &b, k), start + x->n);
  if (x->soon && x->first) begin(x, &b, k, start);
  Op *loop = loop_longer(x->f, old, start, n);
  Region *to = loop->regions[0];
  uint32_t own = old->regions[0]->params.n;
  Builder in = {.fn = x->f, .region = to, .span = old->span};
  k = next_of(x, &in, to->params.at[0]);
  if (x->soon) behind = next_of(x, &in, k);
  for (uint32_t i = 0; x->soon && i < x->n; i++)
    next[i] = to->params.at[own + x->n + i];
  clone(x, &in, x->soon ? behind : k, next + (far - 1) * x->n);
  loop_replace(x->f, old, loop, next, n);
  for (uint32_t i = 0; i < x->n; i++)
    ir_replace_uses(x->f, x->v[i], to->params.at[own + i]);
  if (x->soon) advance(x, to, own, k);
}

// Loops of r whose steps say what they read.
static uint32_t count_soon(const Region *r) {
  uint32_t n = 0;
  for (const Op *op = r->first; op; op = op->next) {
    bool says = false;
    const Op *o = op->code == OP_FOR ? op->regions[0]->first : NULL;
    for (; o; o = o->next) says |= o->code == OP_GSOON;
    n += says;
  }
  return n;
}

static bool look(Ctx *cx, Func *f, Op *op, bool alone, Ahead *x) {
  *x = (Ahead){.f = f, .loop = op, .alone = alone};
  x->early = NEWN(&cx->scratch, bool, f->values.n);
  x->read = NEWN(&cx->scratch, bool, f->values.n);
  return op->code == OP_FOR && find(x);
}

static bool region(Ctx *cx, Func *f, Region *r, bool alone) {
  bool changed = false, sole = count_soon(r) == 1;
  for (Op *op = r->first, *next; op; op = next) {
    Ahead x;
    next = op->next;
    // Before loops inside of it say in front of them what they read.
    if (!look(cx, f, op, alone, &x)) drop(op);
    for (uint32_t i = 0; i < op->nregions; i++)
      changed |= region(cx, f, op->regions[i], alone);
    bool can = look(cx, f, op, alone, &x);
    x.first = sole;
    if (can) ahead(&x);
    changed |= can;
  }
  return changed;
}

// Beside two groups a producer has no registers for what it is told next.
static bool computes_alone(const Op *roles) {
  const IrAttr *teams = ir_attr(roles, AT_TEAMS);
  const IrAttr *groups = ir_attr(roles, AT_GROUPS);
  return teams->list[teams->n - 1] == groups->list[groups->n - 1];
}

bool pass_load_ahead(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    ArenaMark mark = arena_mark(&cx->scratch);
    Func *f = m->funcs.at[i];
    bool changed = false;
    for (Op *op = f->body->first; op; op = op->next)
      for (uint32_t k = 0; op->code == OP_ROLES && k < op->nregions; k++)
        changed |= region(cx, f, op->regions[k], computes_alone(op));
    if (changed) ir_sweep(f);
    arena_reset(&cx->scratch, mark);
  }
  return true;
}
