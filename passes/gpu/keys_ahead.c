// keys_ahead: where keys are dealt to warps, what memory has of each key is
// asked for a step ahead, and what tells where that is two.
//
//   for(%lo, %hi, 64) ({                  %p0 = gload(%pt, %lo)  ..  %s0, %p1
//     ^(%k)                               for(%lo, %hi, 64, %s0, %p1) ({
//     %x = mma(%q, %t) {dealt}              ^(%k, %s, %p)
//     %p = gload(%pt, %k)          ->       %r = gload(%pt, add(add(%k, 64), 64))
//     %s = gload(%S, %p)                    %n = gload(%S, %p)
//     .. mul(%s, %x)                        %x = mma(%q, %t) {dealt}
//   })                                      .. mul(%s, %x)
//                                           yield(%n, %r)
//                                         })
//
// A warp has few of them, a page's scales, and nobody is there to bring them
// into shared memory (columns_made.c needs a maker, tma_columns a box). Loads
// of inputs at what is made of the step's number; what is asked for behind the
// last step reads as 0 or something, and is not used. Before `peel`, so that
// one step of a task waits for them. Level frag; sm_90a. Needs: deal_keys.
// Tests: test/passes/keys_ahead.
#include "ir/deps.h"
#include "passes/gpu/prefetch.h"
#include "passes/support/loops.h"

enum { MAX_LOADS = 8 };

typedef struct Keys {
  Func *f;
  Op *loop;
  Value load[MAX_LOADS];
  uint32_t n;
} Keys;

static bool deals(const Op *loop) {
  for (const Op *op = loop->regions[0]->first; op; op = op->next)
    if (op->code == OP_MMA && ir_attr_i(op, AT_DEALT, 0)) return true;
  return false;
}

static bool is_key_load(const Keys *x, const Op *op) {
  const Type *t = op->code == OP_GLOAD ? ir_type(x->f, op->res[0]) : NULL;
  return t && t->kind == TK_FRAG && t->layout == LY_ACC &&
         ir_is_input(x->f, op->args[0]) && !ir_attr_i(op, AT_INBOUNDS, 0);
}

// Is v made of the step's number and of what is there before the loop? Loads
// it is made of say where.
static bool is_early(const Keys *x, Value v) {
  const Region *body = x->loop->regions[0];
  const Op *op = ir_def(x->f, v);
  if (v == body->params.at[0] || ir_defined_outside(x->f, v, body)) return true;
  bool ok = op && op->parent == body &&
            (op_info(op->code)->flags & OPF_ELEM || is_key_load(x, op) ||
             op->code == OP_CONST || op->code == OP_SPLAT ||
             op->code == OP_COORD || op->code == OP_BCAST);
  for (uint32_t i = 0; ok && i < op->nargs; i++) ok = is_early(x, op->args[i]);
  return ok;
}

// Does a load that v is made of stand in the step?
static bool has_load(const Keys *x, Value v, Value load) {
  const Op *op = ir_def(x->f, v);
  if (v == load) return true;
  if (!op || op->parent != x->loop->regions[0]) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (has_load(x, op->args[i], load)) return true;
  return false;
}

static bool tells_another(const Keys *x, Value v) {
  for (const Op *op = x->loop->regions[0]->first; op; op = op->next)
    if (is_key_load(x, op) && op->res[0] != v && is_early(x, op->res[0]) &&
        has_load(x, op->res[0], v))
      return true;
  return false;
}

// Loads that tell others where they are, or those that do not.
static void find(Keys *x, bool telling) {
  x->n = 0;
  for (const Op *op = x->loop->regions[0]->first; op; op = op->next)
    if (x->n < MAX_LOADS && is_key_load(x, op) && is_early(x, op->res[0]) &&
        tells_another(x, op->res[0]) == telling)
      x->load[x->n++] = op->res[0];
}

static void copies(const Keys *x, Builder *b, Value at, Value *out) {
  ValueMap m = {.arena = x->f->mod->arena};
  vmap_put(&m, x->loop->regions[0]->params.at[0], at);
  for (uint32_t i = 0; i < x->n; i++)
    out[i] = prefetch_copy(b, x->loop, x->load[i], &m);
}

static void ahead(Keys *x) {
  Op *old = x->loop;
  Value start[MAX_LOADS], next[MAX_LOADS];
  Builder b = {.fn = x->f,
               .region = old->parent,
               .before = old,
               .span = old->span};
  copies(x, &b, prefetch_first(&b, old), start);
  Op *loop = loop_longer(x->f, old, start, x->n);
  Region *to = loop->regions[0];
  uint32_t own = old->regions[0]->params.n;
  Builder in = {.fn = x->f, .region = to, .span = old->span};
  copies(x, &in, prefetch_next(&in, old, to->params.at[0]), next);
  loop_replace(x->f, old, loop, next, x->n);
  for (uint32_t i = 0; i < x->n; i++)
    ir_replace_uses(x->f, x->load[i], to->params.at[own + i]);
  x->loop = loop;
  ir_sweep(x->f);
}

static void region(Func *f, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i]);
    if (op->code != OP_FOR || !deals(op)) continue;
    Keys x = {.f = f, .loop = op};
    find(&x, false);
    if (!x.n) continue;
    ahead(&x);
    find(&x, true);
    if (x.n) ahead(&x);
  }
}

bool pass_keys_ahead(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    region(m->funcs.at[i], m->funcs.at[i]->body);
  return true;
}
