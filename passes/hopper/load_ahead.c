// load_ahead: what a maker's step reads of memory is asked for three steps
// ahead, and what tells where that is one step before.
//
//   for(%lo, %hi, 64) ({                %p0, .. %p3 = gload(%T, ..)
//     ^(%k)                             %a, %b, %c = gload(%S, %p0 .. %p2)
//     %p = gload(%T, %k)                for(%lo, %hi, 64, %a, %b, %c, %p3) ({
//     %s = gload(%S, %p)         ->       ^(%k, %s, %b, %c, %p)
//     mbar_wait(..)                       %q = gload(%T, add(%k, 256))
//     sstore(%slot, %s)                   %d = gload(%S, %p)
//   })                                    mbar_wait(..)
//                                         sstore(%slot, %s)
//                                         yield(%b, %c, %d, %q)
//                                       })
//
// Else a step takes as long as memory does, however many slots there are: two
// waits one after the other where a table of pages tells where, and with all of
// memory's bandwidth in use each takes longer than a step (one step ahead, the
// table when it is needed: a cache of 8 bits with a scale for each token and
// head takes 511 us for 389). The last steps ask for what is behind the loop's
// end: bounds keep it inside. Only loops of one block in roles, that wait for
// barriers and put few registers of such loads into shared memory. Level frag;
// sm_90a. Needs: thin_strips. Tests: test/passes/load_ahead.
#include "ir/deps.h"
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/pass.h"
#include "passes/support/loops.h"

enum { MAX_AHEAD = 8, MAX_INDICES = 4, MAX_REGISTERS = 4, STEPS = 3 };
enum { MAX_CARRIED = MAX_AHEAD * STEPS + MAX_INDICES };

typedef struct Ahead {
  Func *f;
  Op *loop;
  bool *early;  // by value: made of the step's number and what is outside
  bool *read;   // by value: so made, of loads
  Value v[MAX_AHEAD];
  Value at[MAX_INDICES];  // loads that tell where others are
  uint32_t n, indices;
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

// Values of loads that go to shared memory, and nowhere else.
static bool find(Ahead *x) {
  bool waits = false;
  for (const Op *op = x->loop->regions[0]->first; op; op = op->next) {
    bool early = is_early(x, op);
    waits |= op->code == OP_MBAR_WAIT;
    if (op->nregions) return false;
    for (uint32_t i = 0; early && i < op->nargs; i++)
      x->read[op->res[0]] |= x->read[op->args[i]];
    if (early) x->early[op->res[0]] = true;
    if (early && op->code == OP_GLOAD && is_frag(x, op->res[0]))
      x->read[op->res[0]] = true;
    for (uint32_t i = 0; !early && i < op->nargs; i++) {
      bool known = false;
      for (uint32_t k = 0; k < x->n; k++) known |= x->v[k] == op->args[i];
      if (known || !x->read[op->args[i]]) continue;
      if (x->n == MAX_AHEAD || op->code != OP_SSTORE) return false;
      x->v[x->n++] = op->args[i];
    }
  }
  uint32_t threads = ir_group_threads(x->f, x->loop);
  for (uint32_t i = 0; i < x->n; i++)
    waits &= is_frag(x, x->v[i]) &&
             pressure_of(ir_type(x->f, x->v[i]), threads) <= MAX_REGISTERS;
  return waits && x->n;
}

// ---------------------------------------------------------------- indices
static bool is_index(const Ahead *x, const Op *op) {
  for (uint32_t i = 0; i < x->indices; i++)
    if (x->at[i] == op->res[0]) return true;
  return false;
}

// Loads that v is made of; those are not to be made of others.
static bool note_indices(Ahead *x, Value v) {
  const Op *op = ir_def(x->f, v);
  if (ir_defined_outside(x->f, v, x->loop->regions[0]) || !x->read[v])
    return true;
  bool load = op->code == OP_GLOAD;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (load ? x->read[op->args[i]] : !note_indices(x, op->args[i]))
      return false;
  if (!load || is_index(x, op)) return true;
  if (x->indices == MAX_INDICES) return false;
  x->at[x->indices++] = v;
  return true;
}

// Tables that tell where loads are: what is read of them is carried as well, or
// not at all.
static void find_indices(Ahead *x) {
  bool ok = true;
  const Op *op = x->loop->regions[0]->first;
  for (; op && ok; op = op->next)
    for (uint32_t i = 0; op->code == OP_GLOAD && x->early[op->res[0]] &&
                         x->read[op->res[0]] && i < op->nargs;
         i++)
      ok &= note_indices(x, op->args[i]);
  if (!ok) x->indices = 0;
}

// ---------------------------------------------------------------- rewriting
// What step k is made of, where `at` tells what it has read of tables, or NULL.
static ValueMap clone(const Ahead *x, Builder *b, Value k, const Value *at) {
  ValueMap map = {.arena = x->f->mod->arena};
  const Region *r = x->loop->regions[0];
  vmap_put(&map, r->params.at[0], k);
  for (uint32_t i = 0; at && i < x->indices; i++)
    vmap_put(&map, x->at[i], at[i]);
  const Op *stop = r->last;
  for (const Op *op = r->first; op != stop; op = op->next)
    if (op->nres == 1 && x->early[op->res[0]] && !(at && is_index(x, op)))
      ir_clone(b, x->f, op, &map, NULL);
  return map;
}

static void values(const Ahead *x, Builder *b, Value k, const Value *at,
                   Value *out) {
  ValueMap map = clone(x, b, k, x->indices ? at : NULL);
  for (uint32_t i = 0; i < x->n; i++) out[i] = vmap_get(&map, x->v[i]);
}

static void indices(const Ahead *x, Builder *b, Value k, Value *out) {
  if (!x->indices) return;
  ValueMap map = clone(x, b, k, NULL);
  for (uint32_t i = 0; i < x->indices; i++) out[i] = vmap_get(&map, x->at[i]);
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

// The number of the step n behind k.
static Value behind(const Ahead *x, Builder *b, Value k, int64_t n) {
  if (!n) return k;
  Value by = x->loop->args[2];
  Value far = ir_2(b, OP_MUL, by, ir_const_i(b, ir_type(x->f, by)->dtype, n));
  bool back = ir_attr_i(x->loop, AT_REVERSE, 0);
  return ir_2(b, back ? OP_SUB : OP_ADD, k, far);
}

// All that tables tell is asked for first.
static void begin(const Ahead *x, Builder *b, Value *out) {
  Value k = first_of(x, b), at[STEPS + 1][MAX_INDICES];
  for (uint32_t i = 0; i <= STEPS; i++)
    indices(x, b, behind(x, b, k, i), at[i]);
  for (uint32_t i = 0; i < STEPS; i++)
    values(x, b, behind(x, b, k, i), at[i], out + i * x->n);
  for (uint32_t i = 0; i < x->indices; i++)
    out[STEPS * x->n + i] = at[STEPS][i];
}

static void ahead(Ahead *x) {
  Op *old = x->loop;
  Builder b = {.fn = x->f,
               .region = old->parent,
               .before = old,
               .span = old->span};
  Value start[MAX_CARRIED], next[MAX_CARRIED];
  uint32_t n = STEPS * x->n, own = old->regions[0]->params.n;
  begin(x, &b, start);
  Op *loop = loop_longer(x->f, old, start, n + x->indices);
  Region *to = loop->regions[0];
  Builder in = {.fn = x->f, .region = to, .span = old->span};
  const Value *now = to->params.at + own;
  Value k = to->params.at[0];
  indices(x, &in, behind(x, &in, k, STEPS + 1), next + n);
  values(x, &in, behind(x, &in, k, STEPS), now + n, next + n - x->n);
  for (uint32_t i = 0; i + x->n < n; i++) next[i] = now[i + x->n];
  loop_replace(x->f, old, loop, next, n + x->indices);
  for (uint32_t i = 0; i < x->n; i++) ir_replace_uses(x->f, x->v[i], now[i]);
}

static bool region(Ctx *cx, Func *f, Region *r) {
  bool changed = false;
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++)
      changed |= region(cx, f, op->regions[i]);
    if (op->code != OP_FOR) continue;
    Ahead x = {.f = f, .loop = op};
    x.early = NEWN(&cx->scratch, bool, f->values.n);
    x.read = NEWN(&cx->scratch, bool, f->values.n);
    if (!find(&x)) continue;
    find_indices(&x);
    ahead(&x);
    changed = true;
  }
  return changed;
}

bool pass_load_ahead(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    ArenaMark mark = arena_mark(&cx->scratch);
    Func *f = m->funcs.at[i];
    bool changed = false;
    for (Op *op = f->body->first; op; op = op->next)
      for (uint32_t k = 0; op->code == OP_ROLES && k < op->nregions; k++)
        changed |= region(cx, f, op->regions[k]);
    if (changed) ir_sweep(f);
    arena_reset(&cx->scratch, mark);
  }
  return true;
}
