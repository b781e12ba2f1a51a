// join_loops: sums over the same axis, made of the same memory, are one loop.
//
//   %a = for(0, 64, 1, %x) ({               %a, %b = for(0, 64, 1, %x, %y) ({
//     ^(%i, %s): .. gload(%G, %i) ..          ^(%i, %s, %t):
//     yield(%p)                               .. gload(%G, %i) ..
//   })                                ->      .. gload(%G, %i) ..
//   gstore(%A, %a, ..)                        yield(%p, %q)
//   %b = for(0, 64, 1, %y) ({               })
//     ^(%i, %t): .. gload(%G, %i) ..        gstore(%A, %a, ..)
//     yield(%q)
//   })
//
// Memory is read once then. Loops of one block that only load and compute, in
// functions without products and steps; as many sums as a thread has registers
// for. Loops around such sums, which store them, are one in front of that: the
// gradients of matrices that multiply one vector. Run cse behind it. Level
// frag. Needs: lower_gpu. Tests: test/passes/join_loops.
#include "passes/pass.h"
#include "passes/support/cost.h"

#include <string.h>

static bool is_plain(const Func *f, const Op *loop) {
  if (loop->code != OP_FOR || !loop->nres || loop->nattrs) return false;
  for (const Op *op = loop->regions[0]->first; op; op = op->next) {
    bool load = op->code == OP_GLOAD && !ir_is_stored(f->body, op->args[0]);
    if (op->nregions || (!load && op->code != OP_YIELD &&
                         !(op_info(op->code)->flags & OPF_PURE)))
      return false;
  }
  return true;
}

// Elements of tiles that a loop carries.
static int64_t carried(const Func *f, const Op *loop) {
  int64_t all = 0;
  for (uint32_t i = 0; i < loop->nres; i++) {
    const Type *t = ir_type(f, loop->res[i]);
    if (t->kind == TK_FRAG) all += (int64_t)t->ext[0] * t->ext[1];
  }
  return all;
}

static bool reads(const Op *loop, Value tensor) {
  for (const Op *op = loop->regions[0]->first; op; op = op->next)
    if (op->code == OP_GLOAD && op->args[0] == tensor) return true;
  return false;
}

static bool share_memory(const Op *a, const Op *b) {
  for (const Op *op = a->regions[0]->first; op; op = op->next)
    if (op->code == OP_GLOAD && reads(b, op->args[0])) return true;
  return false;
}

// Is all that b is made of there in front of a?
static bool is_there(const Func *f, const Op *a, const Op *b, Value v) {
  const Op *def = ir_def(f, v);
  if (!def || def->parent == b->regions[0]) return true;
  for (const Op *op = a; op != b; op = op->next)
    if (op == def) return false;
  return true;
}

static bool can_rise(const Func *f, const Op *a, const Op *b) {
  for (uint32_t i = 0; i < b->nargs; i++)
    if (!is_there(f, a, b, b->args[i])) return false;
  for (const Op *op = b->regions[0]->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nargs; i++)
      if (!is_there(f, a, b, op->args[i])) return false;
  return true;
}

static bool same_steps(const Op *a, const Op *b) {
  return a->args[0] == b->args[0] && a->args[1] == b->args[1] &&
         a->args[2] == b->args[2];
}

// The loop behind a that goes into it, or NULL.
static Op *partner(const Func *f, const Op *a) {
  for (Op *b = a->next; b; b = b->next) {
    if (is_plain(f, b) && same_steps(a, b) && share_memory(a, b) &&
        carried(f, a) + carried(f, b) <= COST_JOINED_SUMS && can_rise(f, a, b))
      return b;
  }
  return NULL;
}

// The body of `from`, whose sums are number `first` and on of the new loop.
static void add_body(Func *f, Builder *b, const Op *from, const Op *to,
                     uint32_t first, Value *out) {
  const Region *r = from->regions[0];
  ValueMap m = {.arena = f->mod->arena};
  vmap_put(&m, r->params.at[0], to->regions[0]->params.at[0]);
  for (uint32_t i = 0; i < from->nres; i++)
    vmap_put(&m, r->params.at[1 + i], to->regions[0]->params.at[1 + first + i]);
  for (const Op *op = r->first; op != r->last; op = op->next)
    ir_clone(b, f, op, &m, NULL);
  for (uint32_t i = 0; i < from->nres; i++) {
    Value v = r->last->args[i], x = v < m.n ? m.to[v] : 0;
    out[first + i] = x ? x : v;
    ir_info(f, to->res[first + i])->hint = ir_info(f, from->res[i])->hint;
    ir_replace_uses(f, from->res[i], to->res[first + i]);
  }
}

static Op *join(Func *f, Op *a, Op *c) {
  Builder b = {.fn = f, .region = a->parent, .before = a, .span = a->span};
  Arena *arena = f->mod->arena;
  uint32_t n = a->nres + c->nres;
  Value *args = NEWN(arena, Value, 3 + n), *out = NEWN(arena, Value, n);
  Type *types = NEWN(arena, Type, n);
  memcpy(args, a->args, a->nargs * sizeof *args);
  memcpy(args + a->nargs, c->args + 3, c->nres * sizeof *args);
  for (uint32_t i = 0; i < n; i++)
    types[i] = *ir_type(f, i < a->nres ? a->res[i] : c->res[i - a->nres]);
  Op *to = ir_op(&b, OP_FOR, args, 3 + n, NULL, 0, types, n, 1);
  Region *r = to->regions[0];
  ValueInfo at = *ir_info(f, a->regions[0]->params.at[0]);
  ir_region_param(r, at.type, at.hint);
  for (uint32_t i = 0; i < n; i++) ir_region_param(r, types[i], "acc");
  Builder in = {.fn = f, .region = r, .span = a->span};
  add_body(f, &in, a, to, 0, out);
  add_body(f, &in, c, to, a->nres, out);
  ir_yield(&in, out, n);
  ir_erase(a);
  ir_erase(c);
  return to;
}

// ---------------------------------------------------------------- around
// The first of the loops in the turns of one that only stores their sums, or
// NULL; how many elements they carry.
static const Op *sums_of(const Func *f, const Op *loop, int64_t *all) {
  const Op *sums = NULL;
  if (loop->code != OP_FOR || loop->nres || loop->nattrs) return NULL;
  for (const Op *op = loop->regions[0]->first; op; op = op->next) {
    bool store = op->code == OP_GSTORE && !ir_attr_i(op, AT_ADD, 0);
    bool load = op->code == OP_GLOAD && !ir_is_stored(f->body, op->args[0]);
    if (op->code == OP_FOR) {
      if (!is_plain(f, op)) return NULL;
      sums = sums ? sums : op;
      *all += carried(f, op);
    } else if (!store && !load && op->code != OP_YIELD &&
               !(op_info(op->code)->flags & OPF_PURE)) {
      return NULL;
    }
  }
  return sums;
}

static bool stores_same(const Op *a, const Op *b) {
  for (const Op *op = a->regions[0]->first; op; op = op->next)
    if (op->code == OP_GSTORE && ir_is_stored(b->regions[0], op->args[0]))
      return true;
  return false;
}

// The loop behind a, which a goes into, or NULL.
static Op *turns_behind(const Func *f, const Op *a) {
  int64_t all = 0;
  const Op *x = sums_of(f, a, &all), *y;
  Op *b = x ? a->next : NULL;
  while (b && !b->nregions && op_info(b->code)->flags & OPF_PURE) b = b->next;
  bool fits = b && (y = sums_of(f, b, &all)) && same_steps(a, b) &&
              same_steps(x, y) && share_memory(x, y) && all <= COST_JOINED_SUMS;
  return fits && !stores_same(a, b) ? b : NULL;
}

static Op *join_turns(Func *f, Op *a, Op *c) {
  Builder b = {.fn = f, .region = c->parent, .before = c, .span = a->span};
  Op *to = ir_op(&b, OP_FOR, a->args, 3, NULL, 0, NULL, 0, 1);
  Region *r = to->regions[0];
  ValueInfo at = *ir_info(f, a->regions[0]->params.at[0]);
  Value turn = ir_region_param(r, at.type, at.hint);
  Builder in = {.fn = f, .region = r, .span = a->span};
  const Op *from[] = {a, c};
  for (int i = 0; i < 2; i++) {
    const Region *body = from[i]->regions[0];
    ValueMap m = {.arena = f->mod->arena};
    vmap_put(&m, body->params.at[0], turn);
    for (const Op *op = body->first; op != body->last; op = op->next)
      ir_clone(&in, f, op, &m, NULL);
  }
  ir_yield(&in, NULL, 0);
  ir_erase(a);
  ir_erase(c);
  return to;
}

static void region(Func *f, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (Op *c; (c = turns_behind(f, op));) op = join_turns(f, op, c);
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i]);
    for (Op *c; is_plain(f, op) && (c = partner(f, op));) op = join(f, op, c);
  }
}

bool pass_join_loops(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx, (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (!ir_has_products(f) && !ir_has_steps(f)) region(f, f->body);
  }
  return true;
}
