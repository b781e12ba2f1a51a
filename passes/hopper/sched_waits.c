// sched_waits: products stay in flight as long as nothing needs them.
//
//   %x = wgmma(%q, %k)  wg_commit()          %y = wgmma(%p, %v)  wg_commit()
//   %y = wgmma(%p, %v)  wg_commit()          %z = wgmma(%r, %v, %y)  wg_commit()
//   %y1 = wg_wait(%y) {pending = 0}     ->   %x = wgmma(%q, %k)  wg_commit()
//   %z = wgmma(%r, %v, %y1)  wg_commit()     %z1 = wg_wait(%z) {pending = 1}
//   %z1 = wg_wait(%z) {pending = 0}          %e = exp2(%z1)
//   %e = exp2(%z1)                           %x1 = wg_wait(%x) {pending = 0}
//   %x1 = wg_wait(%x) {pending = 0}
//
// * A product that only another one adds to is not waited for in between.
// * Of neighbours that which is needed first goes first.
// * A wait leaves in flight what was committed later.
// * What a turn of a loop has left is read before the next one's first product.
// * Where it makes room for another CTA on the multiprocessor, a product is
//   waited for in front of the next operand that is put in shared memory: that
//   takes the memory of the one before.
//
// async_mma makes the products asynchronous one by one; this looks at them
// together. Level frag; sm_90a, programs with steps. Needs: async_mma.
// Tests: test/passes/sched_waits/.
#include "passes/hopper/rings.h"

// ---------------------------------------------------------------- chains
static const Op *first_user(const Op *def, Value v) {
  const Op *op = def->next;
  while (op && !ir_mentions(op, v)) op = op->next;
  return op;
}

// The wait for an addend of one product goes; tight: but for one that stands in
// front of an operand.
static bool chain(Func *f, Op *wait, bool tight) {
  if (wait->nargs != 1 || (tight && wait->next->code == OP_SPUT)) return false;
  Value v = wait->res[0];
  const Op *user = first_user(wait, v);
  if (!user || ir_count_uses(f, v) != 1 || user->code != OP_WGMMA ||
      user->nargs < 3 || user->args[2] != v)
    return false;
  const Op *made = ir_def(f, wait->args[0]);
  if (!made || made->code != OP_WGMMA || made->parent != wait->parent)
    return false;
  ir_replace_uses(f, v, wait->args[0]);
  ir_erase(wait);
  return true;
}

// ---------------------------------------------------------------- order
static uint32_t distance(const Op *from, const Op *to) {
  uint32_t n = 0;
  for (const Op *op = from; op && op != to; op = op->next) n++;
  return n;
}

// Where v is needed: at its wait, or that of what adds to it.
static const Op *needed(const Op *product) {
  Value v = product->res[0];
  for (const Op *op = product->next; op; op = op->next) {
    if (!ir_mentions(op, v)) continue;
    if (op->code != OP_WGMMA || op->nargs < 3 || op->args[2] != v) return op;
    v = op->res[0];
  }
  return NULL;
}

// The product that is committed right behind this one's commit.
static Op *neighbour(const Op *product) {
  Op *op = product->next;
  if (!op || op->code != OP_WG_COMMIT) return NULL;
  for (op = op->next; op && op->code == OP_WG_FENCE;) op = op->next;
  bool ok = op && op->code == OP_WGMMA && op->next &&
            op->next->code == OP_WG_COMMIT && !ir_mentions(op, product->res[0]);
  return ok ? op : NULL;
}

// x and its neighbour y change places if y is needed first.
static bool exchange(Op *x) {
  Op *y = neighbour(x);
  const Op *a = y ? needed(x) : NULL, *b = y ? needed(y) : NULL;
  if (!a || !b || a->parent != b->parent || a == b ||
      distance(x, b) >= distance(x, a))
    return false;
  Op *commit = y->next;
  ir_move_before(y, x);
  ir_move_before(commit, x);
  return true;
}

// ---------------------------------------------------------------- reads
// ptxas knows of sums that were waited for in this turn of a loop, not of those
// that the turn before has left: they are read before the first product.
static bool is_sum(const Func *f, const Region *r, Value v) {
  const Type *t = ir_type(f, v);
  const Op *op = ir_def(f, v);
  if (t->kind != TK_FRAG || t->slice != SLICE_NONE || t->dtype != DT_F32)
    return false;
  if (!op || ir_defined_outside(f, v, r)) return true;
  return op->code == OP_MUL &&
         (is_sum(f, r, op->args[0]) || is_sum(f, r, op->args[1]));
}

static bool comes_before(const Op *op, const Op *other) {
  for (; op; op = op->next)
    if (op->next == other) return true;
  return false;
}

// Moves op, and what it is made of, in front of `first`.
static bool read_early(Func *f, Op *op, Op *first) {
  bool pure = op_info(op->code)->flags & OPF_PURE;
  if (op->parent != first->parent || comes_before(op, first)) return true;
  if (!pure || op->nregions) return false;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Op *def = ir_def(f, op->args[i]);
    if (def && !read_early(f, def, first)) return false;
  }
  ir_move_before(op, first);
  return true;
}

static void read_sums(Func *f, Region *r) {
  Op *first = r->first;
  while (first && first->code != OP_WG_FENCE) first = first->next;
  for (Op *op = first, *next; op; op = next) {
    next = op->next;
    bool elem = op_info(op->code)->flags & OPF_ELEM, sum = false;
    for (uint32_t i = 0; elem && i < op->nargs; i++)
      sum |= is_sum(f, r, op->args[i]);
    if (sum) read_early(f, op, first);
  }
}

// ---------------------------------------------------------------- waits
// Groups committed behind the product's own and in front of the wait.
static int64_t later_groups(const Op *product, const Op *wait) {
  int64_t n = -1;
  for (const Op *op = product; op && op != wait; op = op->next) {
    if (op->nregions) return 0;
    n += op->code == OP_WG_COMMIT;
  }
  return n > 0 ? n : 0;
}

static void set_pending(Func *f, Op *wait) {
  const Op *made = wait->nargs == 1 ? ir_def(f, wait->args[0]) : NULL;
  if (!made || made->code != OP_WGMMA || made->parent != wait->parent) return;
  ir_set_attr(f, wait, attr_i(AT_PENDING, later_groups(made, wait)));
}

// ptxas serializes a kernel where a wait allows more groups in flight than
// there can be behind an earlier wait.
static void tighten(Func *f, Region *r) {
  int64_t flying = INT64_MAX;
  for (Op *op = r->first; op; op = op->next) {
    if (op->nregions) flying = INT64_MAX;
    if (op->code == OP_WG_COMMIT && flying < INT64_MAX) flying++;
    if (op->code != OP_WG_WAIT) continue;
    int64_t pending = ir_attr_i(op, AT_PENDING, 0);
    if (pending < flying) flying = pending;
    ir_set_attr(f, op, attr_i(AT_PENDING, flying));
  }
}

// ---------------------------------------------------------------- room
typedef struct Move {
  Op *wait, *next;  // where it stood
} Move;

typedef struct Moves {
  Vec(Move) all;
  Arena *arena;
} Moves;

// Has the product an operand that was put for it, and does `put` come behind
// it?
static bool has_put(const Func *f, const Op *product, Op *put) {
  bool some = false;
  for (uint32_t i = 0; i < 2; i++) {
    const Op *tile = ir_def(f, product->args[i]);
    some |=
        tile && tile->code == OP_SPUT && !ir_first_use(put, product->args[i]);
  }
  return some && comes_before(product, put);
}

// Waits behind `put` for products in front of it.
static void wait_before(Func *f, Moves *m, Op *put) {
  for (Op *op = put->next, *next; op; op = next) {
    next = op->next;
    const Op *made = op->code == OP_WG_WAIT && op->nargs == 1
                         ? ir_def(f, op->args[0])
                         : NULL;
    if (!made || made->code != OP_WGMMA || made->parent != put->parent ||
        !has_put(f, made, put))
      continue;
    vec_push(m->arena, &m->all, ((Move){op, next}));
    ir_move_before(op, put);
  }
}

static void wait_early(Func *f, Moves *m, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++)
      wait_early(f, m, op->regions[i]);
    if (op->code == OP_SPUT) wait_before(f, m, op);
  }
}

static bool has_room(Func *f, const Target *t) {
  Rings rings;
  return hop_rings_plan(&rings, f, t) && rings.occupancy > 1;
}

// Does that make room for another CTA? Else all stay where they are.
static bool makes_room(Func *f, const Target *t, Arena *a) {
  Moves m = {.arena = a};
  if (has_room(f, t)) return false;
  wait_early(f, &m, f->body);
  if (m.all.n && has_room(f, t)) return true;
  while (m.all.n) {
    const Move *at = &m.all.at[--m.all.n];
    ir_move_before(at->wait, at->next);
  }
  return false;
}

// ---------------------------------------------------------------- all
static void region(Func *f, Region *r, bool tight) {
  bool changed = true;
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++)
      region(f, op->regions[i], tight);
    if (op->code == OP_WG_WAIT) chain(f, op, tight);
  }
  read_sums(f, r);
  while (changed) {
    changed = false;
    for (Op *op = r->first; op; op = op->next)
      if (op->code == OP_WGMMA && exchange(op)) changed = true;
  }
  for (Op *op = r->first; op; op = op->next)
    if (op->code == OP_WG_WAIT) set_pending(f, op);
  tighten(f, r);
}

bool pass_sched_waits(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (ir_has_steps(f))
      region(f, f->body, makes_room(f, opt->target, &cx->scratch));
  }
  return true;
}
