// sink_smem: what the chunks of a recurrence need for a moment is made at that
// moment.
//
//   %x = sload(%v)                        %h = uniform(%g)
//   %e = exp2(%g ..)                      if(%whole) ({
//   if(%whole) ({                  ->       ..
//     ..                                    %e = exp2(%h ..)
//     %p = mul(%s, %e)                      %p = mul(%s, %e)
//     %a = wgmma(%x, %k)                    %x = sload(%v)
//   }, { .. })                              %a = wgmma(%x, %k)
//                                         }, { .. })
//
// A state takes most of a thread's registers. Reads of shared tiles, slices and
// what is spread from them go in front of their first use, into the branch that
// alone needs them; what only one branch needs goes there, copies of tiles from
// memory too: they are given back in it, earlier. A number from outside
// of the loop that slices are computed from is made anew in each turn, else
// they would be hoisted by the hardware's compiler, and spilled. What a loop is
// given has arrived before it. Level frag; sm_90a, programs with steps. Needs:
// lower_gpu; runs before async_mma. Tests: test/passes/sink_smem.
#include "passes/hopper/rings.h"

typedef struct Settle {
  Func *f;
  uint32_t *uses;  // per value
} Settle;

static void count(void *data, Op *op) {
  Settle *s = data;
  for (uint32_t i = 0; i < op->nargs; i++) s->uses[op->args[i]]++;
}

// ---------------------------------------------------------------- moving
static bool is_pure(const Op *op) {
  return op->nres == 1 && !op->nregions &&
         (op->code == OP_SLOAD || op_info(op->code)->flags & OPF_PURE);
}

static bool is_tile(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

// A result that takes more registers than the operands.
static bool grows(const Func *f, const Op *op) {
  if (op->code == OP_SLOAD) return true;
  if (op->code == OP_FREDUCE || op->code == OP_FSCAN ||
      op->code == OP_RELAYOUT || ir_type(f, op->res[0])->kind != TK_FRAG)
    return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_tile(f, op->args[i])) return false;
  return true;
}

// The branch that has all uses of v, or NULL.
static Region *only_branch(const Settle *s, const Op *use, Value v) {
  if (!use || use->code != OP_IF) return NULL;
  for (uint32_t i = 0; i < use->nregions; i++)
    if (ir_uses_in(use->regions[i], v) == s->uses[v]) return use->regions[i];
  return NULL;
}

// A number that a producer of tiles knows: of coordinates and extents.
static bool is_known(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (ir_type(f, v)->kind != TK_ELEM) return false;
  if (!op) return true;
  if (op->nregions || !(op_info(op->code)->flags & OPF_PURE) ||
      op->code == OP_GLOAD)
    return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!is_known(f, op->args[i])) return false;
  return true;
}

// A tile that only one branch reads is loaded there, and given back there.
static void settle_fill(const Settle *s, Op *op) {
  Op *use = ir_first_use(op->next, op->res[0]);
  Region *branch = only_branch(s, use, op->res[0]);
  if (branch && is_known(s->f, use->args[0])) ir_move_before(op, branch->first);
}

static void settle(const Settle *s, Op *op) {
  if (op->code == OP_SFILL) {
    settle_fill(s, op);
    return;
  }
  if (!is_pure(op) || ir_type(s->f, op->res[0])->kind == TK_SMEM) return;
  Value v = op->res[0];
  Op *use = ir_first_use(op->next, v);
  Region *branch = only_branch(s, use, v);
  while (branch) {
    use = ir_first_use(branch->first, v);
    ir_move_before(op, use);
    branch = only_branch(s, use, v);
  }
  if (use && use != op->next && grows(s->f, op)) ir_move_before(op, use);
}

static void settle_all(const Settle *s, Region *r) {
  for (Op *op = r->last, *prev; op; op = prev) {
    prev = op->prev;
    settle(s, op);
    for (uint32_t i = 0; i < op->nregions; i++) settle_all(s, op->regions[i]);
  }
}

// v is of what the loop carries alone, one element of one.
static bool is_carried(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (!op || op->code == OP_CONST) return true;
  if (!(op_info(op->code)->flags & OPF_ELEM)) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!is_carried(f, op->args[i])) return false;
  return true;
}

static bool is_behind(const Op *op, const Op *where) {
  while (where && where != op) where = where->next;
  return where == op;
}

// What op is made of, as far as it stands behind.
static void raise_operands(const Func *f, const Op *op, Op *where) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    Op *of = ir_def(f, op->args[i]);
    if (!of || !is_behind(of, where)) continue;
    raise_operands(f, of, where);
    ir_move_before(of, where);
  }
}

// Factors of steps that the loop carries are handed round together, while the
// products in front of the first are under way.
static void gather(const Settle *s, Region *r) {
  Op *first = NULL;
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) gather(s, op->regions[i]);
    if (op->code != OP_RELAYOUT || !is_carried(s->f, op->args[0])) continue;
    if (first) {
      raise_operands(s->f, op, first);
      ir_move_before(op, first->next);
    } else {
      first = op;
    }
  }
}

// ---------------------------------------------------------------- anew
static bool is_constant(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  return op && op->code == OP_CONST;
}

static Value renewed(Func *f, Op *at, Value v) {
  for (const Op *o = at->prev; o && !o->nregions; o = o->prev)
    if (o->code == OP_UNIFORM && o->args[0] == v) return o->res[0];
  Builder b = {.fn = f, .region = at->parent, .before = at, .span = at->span};
  return ir_1(&b, OP_UNIFORM, v);
}

// Spreads of numbers of f32 from outside of the loop's body: in front of op
// `at`, or where they stand, but not in a loop inside.
static void renew(Func *f, Region *body, Region *r, Op *at) {
  for (Op *op = r->first; op; op = op->next) {
    Op *in = at ? at : op->code == OP_FOR ? op : NULL;
    for (uint32_t i = 0; i < op->nregions; i++)
      renew(f, body, op->regions[i], in);
    if (op->code != OP_SPLAT || ir_type(f, op->res[0])->dtype != DT_F32)
      continue;
    Value v = op->args[0];
    if (is_constant(f, v) || !ir_defined_outside(f, v, body)) continue;
    op->args[0] = renewed(f, at ? at : op, v);
  }
}

// Where two CTAs share a multiprocessor a copy has no register for as long as
// the body takes.
static void renew_loops(Func *f, Region *r, bool late) {
  for (Op *op = r->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nregions; i++) {
      Region *body = op->regions[i];
      renew_loops(f, body, late);
      if (op->code == OP_FOR && op->nres && loop_has_fill(op))
        renew(f, body, body, late ? NULL : body->first);
    }
}

// ---------------------------------------------------------------- arrivals
// What a loop begins with has arrived before it: what waits for its loads, at
// the first use in the loop, would wait in each turn for all that are under
// way.
static void await(Func *f, Arena *a, Op *loop) {
  Builder b = {.fn = f,
               .region = loop->parent,
               .before = loop,
               .span = loop->span};
  Value *v = NEWN(a, Value, loop->nargs);
  bool state = false;
  uint32_t n = 0;
  for (uint32_t i = 3; i < loop->nargs; i++) {
    state = state || is_tile(f, loop->args[i]);
    if (ir_type(f, loop->args[i])->dtype == DT_F32 &&
        !is_constant(f, loop->args[i]))
      v[n++] = loop->args[i];
  }
  if (state && n) ir_op(&b, OP_PIN, v, n, NULL, 0, NULL, 0, 0);
}

static void await_loops(Func *f, Arena *a, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++)
      await_loops(f, a, op->regions[i]);
    if (op->code == OP_FOR && op->nres && loop_has_fill(op)) await(f, a, op);
  }
}

bool pass_sink_smem(Ctx *cx, Module *m, const PassOpt *opt) {
  const Target *t = opt->target;
  Rings rings;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (!ir_has_steps(f) || !hop_rings_plan(&rings, f, t)) continue;
    Settle s = {.f = f};
    renew_loops(f, f->body, rings.occupancy > 1);
    // Two CTAs wait in turn, and a thread has no registers to spare.
    if (rings.occupancy < 2) await_loops(f, m->arena, f->body);
    s.uses = NEWN(&cx->scratch, uint32_t, f->values.n);
    ir_walk(f->body, count, &s);
    settle_all(&s, f->body);
    gather(&s, f->body);
  }
  return true;
}
