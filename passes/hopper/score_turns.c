// score_turns: of two groups that would make the same scores each makes those
// of every other step.
//
//   for(..) ({                               for(..) ({
//     ^(%i, %m, %l, %acc, %n):                 ^(%i, %m, %l, %acc, %n):
//     %s = wgmma(%q, %k), wait                 %m1, %l1, %a1 = if(%n % 2 == %wg) ({
//     %r = freduce(%s) {max}                     %s = wgmma(%q, %k), wait
//     %m1, %x = .. %m, %r                        %r = freduce(%s), sstore(%A, %r)
//     %p = cast(exp2(..))                        %m1, %x = .. %m, %r
//     %a1 = wgmma(%p, %k, %acc * %x,             %p = cast(exp2(..)), sstore(%B, %p)
//                 %wg * 256), wait        ->     bar_sync
//     %l1 = %l * %x + freduce(%p)                %a1 = wgmma(%p, %k, %acc * %x, ..)
//     yield(%m1, %l1, %a1, %n + 1)               yield(%m1, %l * %x + freduce(%p), %a1)
//   })                                         }, {
//                                                bar_sync
//                                                %r = sload(%A)
//                                                %m1, %x = .. %m, %r
//                                                %a1 = wgmma(%B, %k, %acc * %x, ..)
//                                                yield(%m1, %l * %x, %a1)
//                                              })
//                                              yield(%m1, %l1, %a1, %n + 1)
//                                            })
//
// Groups that have columns of the sums each need all weights. What of a step
// depends on the group are those columns alone: all else is made by the group
// whose turn it is. It hands over the weights, and of rows what was reduced of
// scores. Both come in halves of the keys: while the first one's weights are
// multiplied the second one's are made, of which the tensor cores would have
// nothing to do otherwise:
//
//   %p0 = cast(exp2(..fcols(%s) {pos = 0}))
//   sstore(%B0, %p0), bar_sync
//   %a0 = wgmma(%p0, %k, %acc * %x, ..) {pos = 0}
//   %p1 = cast(exp2(..fcols(%s) {pos = 32}))
//   sstore(%B1, %p1), bar_sync
//   %a1 = wgmma(%p1, %k, %a0, ..) {pos = 32}
//
// A group's sums of rows are those of its own steps, and are joined
// behind the loops. The weights' tile is read by the group that writes it next,
// so that no step waits for it to be free. Level frag; sm_90a. Needs:
// warp_specialize. Tests: test/passes/score_turns, test/wave/own-columns.test.
#include "passes/pass.h"

#include "ir/layout.h"
#include "ir/target.h"
#include "passes/support/cost.h"

enum { MAX_HANDED = 4, MAX_LOOPS = 8, MAX_YIELDED = 16 };
enum { HALVES = 2 };  // of the weights

typedef struct Team {
  Func *f;
  const Target *target;
  Arena *arena;
  Value wg;
  bool *own;                            // by value: not the same in all groups
  Value tile[HALVES], row[MAX_HANDED];  // what is handed over: memory
  Op *loop[MAX_LOOPS];
  uint32_t nloops, nrows;
  bool ok, halves;
} Team;

// One loop.
typedef struct Turns {
  Team *t;
  Op *loop,
      *start;  // what stands in front of `start` is in front of the branch
  Region *body;
  bool *late;    // by value: made of scores
  bool *needed;  // by value: by the group whose turn it is not
  bool *half;    // by value: made for each half of the keys
  Value count, weights, handed[MAX_HANDED];
  const Op *product;          // of the weights
  uint32_t counted, nhanded;  // number of the carried value `count`
} Turns;

// ---------------------------------------------------------------- analysis
static bool mark(Team *t, Value v, bool own) {
  bool more = own && !t->own[v];
  t->own[v] |= own;
  return more;
}

static bool mark_region(Team *t, const Region *r);

// Marks what op makes; false: nothing new.
static bool mark_op(Team *t, const Op *op) {
  bool more = false, own = false;
  for (uint32_t k = 0; k < op->nregions; k++)
    more |= mark_region(t, op->regions[k]);
  uint32_t first = op->code == OP_FOR ? 3 : op->code == OP_WHILE ? 1 : 0;
  for (uint32_t i = 0; i < op->nargs && !first; i++) own |= t->own[op->args[i]];
  for (uint32_t i = 0; i < op->nres; i++) {
    bool x = own || (first && t->own[op->args[first + i]]);
    for (uint32_t k = 0; k < op->nregions; k++) {
      const Op *y = op->regions[k]->last;
      x |= y && i < y->nargs && t->own[y->args[i]];
    }
    more |= mark(t, op->res[i], x);
    if (first)
      more |=
          mark(t, op->regions[0]->params.at[op->code == OP_FOR ? 1 + i : i], x);
  }
  return more;
}

static bool mark_region(Team *t, const Region *r) {
  bool more = false;
  for (const Op *op = r->first; op; op = op->next) more |= mark_op(t, op);
  return more;
}

static bool is_own(const Team *t, Value v) {
  return t->own[v];
}

// Scores: a product that is alike in both groups.
static bool is_score(const Turns *s, const Op *op) {
  return op->code == OP_WGMMA && !is_own(s->t, op->res[0]);
}

static bool any(const bool *of, const Value *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (of[v[i]]) return true;
  return false;
}

static bool mentions_late(const Turns *s, const Op *op) {
  if (any(s->late, op->args, op->nargs)) return true;
  for (uint32_t k = 0; k < op->nregions; k++)
    for (const Op *o = op->regions[k]->first; o; o = o->next)
      if (mentions_late(s, o)) return true;
  return false;
}

static void find_late(Turns *s) {
  s->late = NEWN(s->t->arena, bool, s->t->f->values.n);
  for (const Op *op = s->body->first; op; op = op->next) {
    bool late = is_score(s, op) || mentions_late(s, op);
    for (uint32_t i = 0; i < op->nres; i++) s->late[op->res[i]] = late;
  }
}

// Fences and commits of scores.
static bool is_of_score(const Turns *s, const Op *op) {
  if (op->code == OP_WG_COMMIT) {
    const Op *p = op->prev;
    return p && is_score(s, p);
  }
  if (op->code != OP_WG_FENCE) return false;
  for (op = op->next; op; op = op->next)
    if (op->code == OP_WGMMA) return is_score(s, op);
  return false;
}

// What is made for both, and by one: all else is each group's.
static bool is_made(Turns *s, const Op *op) {
  if (!op->nres || op->nregions || is_score(s, op)) return false;
  for (uint32_t i = 0; i < op->nres; i++)
    if (!s->late[op->res[i]] || is_own(s->t, op->res[i])) return false;
  return true;
}

// A row's sum of this step, in parts: the other group adds nothing.
static bool is_sum(const Turns *s, Value v) {
  const Op *op = ir_def(s->t->f, v);
  return op && op->code == OP_FREDUCE && s->late[v] &&
         ir_type(s->t->f, v)->partial &&
         (RKind)ir_attr_i(op, AT_KIND, RK_SUM) == RK_SUM;
}

static bool is_handed(Turns *s, Value v) {
  const Op *op = ir_def(s->t->f, v);
  return op && op->code == OP_FREDUCE && s->late[v] &&
         !ir_type(s->t->f, v)->partial && ir_type(s->t->f, v)->dtype == DT_F32;
}

static bool hand(Turns *s, Value v) {
  for (uint32_t i = 0; i < s->nhanded; i++)
    if (s->handed[i] == v) return true;
  if (s->nhanded == MAX_HANDED) return false;
  s->handed[s->nhanded++] = v;
  return true;
}

// The group whose turn it is not needs v: can it have that?
static bool need(Turns *s, Value v) {
  const Op *op = ir_def(s->t->f, v);
  if (s->needed[v] || !op || op->parent != s->body || !s->late[v]) return true;
  s->needed[v] = true;
  if (is_own(s->t, v)) return true;  // its operands are asked for themselves
  if (v == s->weights || is_sum(s, v)) return true;
  if (is_handed(s, v)) return hand(s, v);
  if (is_score(s, op) || op->code == OP_WG_WAIT || op->nregions) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!need(s, op->args[i])) return false;
  return true;
}

static bool need_all(Turns *s, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!need(s, op->args[i])) return false;
  for (uint32_t k = 0; k < op->nregions; k++)
    for (const Op *o = op->regions[k]->first; o; o = o->next)
      if (!need_all(s, o)) return false;
  return true;
}

// Weights of 16 bits that multiply a group's columns.
static bool find_weights(Turns *s) {
  for (const Op *op = s->body->first; op; op = op->next) {
    if (op->code != OP_WGMMA || is_score(s, op)) continue;
    Value p = op->args[0];
    const Op *def = ir_def(s->t->f, p);
    if ((s->weights && s->weights != p) || !def || def->code != OP_CAST ||
        !s->late[p] || is_own(s->t, p) || ir_type(s->t->f, p)->ext[1] != 64)
      return false;
    s->weights = p;
  }
  return s->weights != 0;
}

// The number of the step, which is counted from task to task.
static bool find_count(Turns *s) {
  const Op *y = s->body->last;
  for (uint32_t i = 0; i < y->nargs && !s->count; i++) {
    const Op *op = ir_def(s->t->f, y->args[i]);
    Value v = s->body->params.at[1 + i];
    double one;
    if (op && op->code == OP_ADD && op->args[0] == v &&
        ir_type(s->t->f, v)->dtype == DT_I32 &&
        ir_const_value(s->t->f, op->args[1], &one) && one == 1)
      s->count = v, s->counted = i;
  }
  return s->count != 0;
}

// ---------------------------------------------------------------- halves
// All columns of scores, in the accumulator's layout.
static bool is_all(const Turns *s, Value v) {
  const Type *t = ir_type(s->t->f, v), *p = ir_type(s->t->f, s->weights);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE &&
         t->layout == p->layout && t->ext[0] == p->ext[0] &&
         t->ext[1] == p->ext[1];
}

static bool is_by_element(const Op *op) {
  return op->nres == 1 && !op->nregions &&
         (op_info(op->code)->flags & OPF_ELEM || op->code == OP_BCAST ||
          op->code == OP_SPLAT || op->code == OP_CONST);
}

// Is v made of scores for the weights and for sums of rows alone?
static bool is_for_weights(const Turns *s, Value v) {
  if (v == s->weights) return true;
  for (const Op *op = s->body->first; op; op = op->next) {
    if (!ir_mentions(op, v)) continue;
    if (!op->nres || op->nregions) return false;
    if (!s->half[op->res[0]] && !is_sum(s, op->res[0])) return false;
  }
  return true;
}

// Sums of halves are there behind the product of the first one: does nothing in
// front of it read one?
static bool are_sums_late(const Turns *s) {
  for (const Op *op = s->body->first; op != s->product; op = op->next)
    for (const Op *o = op->next; o != s->product; o = o->next)
      if (op->nres == 1 && is_sum(s, op->res[0]) && ir_mentions(o, op->res[0]))
        return false;
  return true;
}

// Is a group's product one instruction for some keys? Of as many sums as a
// thread of the launch has registers it is two (codegen/nv/wgmma.c), and halves
// are four.
static bool is_one(const Turns *s) {
  const Func *f = s->t->f;
  int64_t threads = ir_attr_i(ir_launch(f), AT_THREADS, HW_GROUP_THREADS);
  return ir_type(f, s->product->res[0])->ext[1] / 2 <
         s->t->target->gpu.regs / threads;
}

// The weights of the first keys can be multiplied while those of the others are
// made: what they are made of by element is made for each half.
static void find_halves(Turns *s) {
  Func *f = s->t->f;
  for (const Op *op = s->body->first; op; op = op->next)
    if (op->code == OP_WGMMA && op->args[0] == s->weights) s->product = op;
  bool ok = ir_count_uses(f, s->weights) == 1 && s->product->nargs == 4 &&
            ir_attr_i(s->product, AT_TRANS, 0) && are_sums_late(s) && is_one(s);
  if (!ok) return;
  s->half = NEWN(s->t->arena, bool, f->values.n);
  for (const Op *op = s->body->last; op; op = op->prev)
    if (is_by_element(op) && is_all(s, op->res[0]) && s->late[op->res[0]] &&
        is_for_weights(s, op->res[0]))
      s->half[op->res[0]] = true;
}

static bool find(Turns *s) {
  s->body = s->loop->regions[0];
  find_late(s);
  for (Op *op = s->body->first; op && !s->start; op = op->next)
    if (is_of_score(s, op)) s->start = op;
  if (!s->start || !find_weights(s) || !find_count(s) ||
      s->body->last->nargs > MAX_YIELDED)
    return false;
  s->needed = NEWN(s->t->arena, bool, s->t->f->values.n);
  for (const Op *op = s->start; op; op = op->next)
    if (!is_made(s, op) && !is_score(s, op) && !need_all(s, op)) return false;
  return true;
}

// ---------------------------------------------------------------- the branch
static Value memory(Team *t, Type type) {
  Builder b = {.fn = t->f,
               .region = t->f->body,
               .before = t->f->body->first->next,
               .span = t->f->span};
  return ir_op(&b, OP_SALLOC, NULL, 0, NULL, 0, &type, 1, 0)->res[0];
}

static void make_memory(Team *t, const Turns *s) {
  const Type *p = ir_type(t->f, s->weights);
  Type all = type_smem(p->dtype, 1, p->ext[0], p->ext[1], LY_SW128);
  if (t->halves)
    all = type_smem(p->dtype, 1, p->ext[0], p->ext[1] / HALVES, LY_SW64);
  for (uint32_t i = 0; i < (t->halves ? HALVES : 1); i++)
    if (!t->tile[i]) t->tile[i] = memory(t, all);
  for (; t->nrows < s->nhanded; t->nrows++)
    t->row[t->nrows] = memory(t, type_smem(DT_F32, 1, 1, p->ext[0], LY_ROW));
}

static void barrier(Builder *b, Value group) {
  IrAttr at = attr_i(AT_THREADS, (group ? 1 : 2) * HW_GROUP_THREADS);
  Value id = ir_const_i(b, DT_I32, HW_TASK_BARRIER + (group ? 1 : 0));
  if (group) id = ir_2(b, OP_ADD, id, group);
  ir_op(b, OP_BAR_SYNC, &id, 1, &at, 1, NULL, 0, 0);
}

static void store(Builder *b, Value to, Value x, bool row) {
  Value args[] = {to, x};
  IrAttr trans = attr_i(AT_TRANS, 1);
  ir_op(b, OP_SSTORE, args, 2, &trans, row, NULL, 0, 0);
}

// A group's copy of a step, written piece by piece.
typedef struct Side {
  Turns *s;
  Builder *b;
  ValueMap m;
  const Op *at;
  Value weights;  // of a half
  bool mine, taken;
} Side;

static Side side(Turns *s, Builder *b, bool mine, Value at) {
  Side x = {.s = s,
            .b = b,
            .m = {.arena = s->t->arena},
            .at = s->body->first,
            .mine = mine};
  vmap_put(&x.m, s->body->params.at[0], at);
  return x;
}

static void bind(Side *x, uint32_t i, Value v) {
  vmap_put(&x->m, x->s->body->params.at[1 + i], v);
}

static void yield_side(const Side *x) {
  const Op *y = x->s->body->last;
  Value v[MAX_YIELDED];
  for (uint32_t i = 0; i < y->nargs; i++) v[i] = vmap_get(&x->m, y->args[i]);
  ir_yield(x->b, v, y->nargs);
}

static void hand_over(Side *x, uint32_t half, Value weights) {
  store(x->b, x->s->t->tile[half], weights, false);
  ir_bare(x->b, OP_FENCE_ASYNC);
  barrier(x->b, 0);
}

// What v has of a half of the keys.
static Value of_half(Side *x, ValueMap *m, uint32_t half, Value v) {
  const Turns *s = x->s;
  if (s->half[v]) return vmap_get(m, v);
  Value all = vmap_get(&x->m, v);
  if (!is_all(s, v)) return all;
  Type t = *ir_type(s->t->f, v);
  t.ext[1] /= HALVES;
  IrAttr pos = attr_i(AT_POS, half * t.ext[1]);
  return ir_op(x->b, OP_FCOLS, &all, 1, &pos, 1, &t, 1, 0)->res[0];
}

static void put_sum(Side *x, uint32_t half, const Op *op, Value part) {
  Value sum = op->res[0];
  if (half) part = ir_2(x->b, OP_ADD, vmap_get(&x->m, sum), part);
  vmap_put(&x->m, sum, part);
}

// Weights of a half, and sums of rows.
static void put_half(Side *x, uint32_t half) {
  Turns *s = x->s;
  Func *f = s->t->f;
  ValueMap m = {.arena = s->t->arena};
  for (const Op *op = s->start; op; op = op->next) {
    bool made = op->nres == 1 && s->half[op->res[0]];
    bool sum = op->nres == 1 && is_sum(s, op->res[0]);
    if (!made && !(sum && s->half[op->args[0]])) continue;
    for (uint32_t i = 0; i < op->nargs; i++)
      vmap_put(&m, op->args[i], of_half(x, &m, half, op->args[i]));
    const Op *c = ir_clone(x->b, f, op, &m, NULL);
    if (sum) put_sum(x, half, op, c->res[0]);
    else
      ir_info(f, c->res[0])->type.ext[1] =
          ir_type(f, s->weights)->ext[1] / HALVES;
  }
  x->weights = vmap_get(&m, s->weights);
  hand_over(x, half, x->weights);
}

// Adds the product of a half's weights to `sum`.
static Value multiply(Side *x, uint32_t half, Value weights, Value sum) {
  const Turns *s = x->s;
  const Op *op = s->product;
  Value args[] = {weights, vmap_get(&x->m, op->args[1]), sum,
                  vmap_get(&x->m, op->args[3])};
  Op *c = ir_op(x->b, OP_WGMMA, args, 4, op->attrs, op->nattrs,
                ir_type(s->t->f, op->res[0]), 1, 0);
  int64_t keys = ir_type(s->t->f, s->weights)->ext[1] / HALVES;
  ir_set_attr(s->t->f, c, attr_i(AT_POS, half * keys));
  return c->res[0];
}

static void put_products(Side *x) {
  const Op *op = x->s->product;
  Value sum = vmap_get(&x->m, op->args[2]);
  for (uint32_t i = 0; i < HALVES; i++) {
    if (i && x->mine) {
      put_half(x, i);
      ir_bare(x->b, OP_WG_FENCE);
    } else if (i) {
      barrier(x->b, 0);
    }
    sum = multiply(x, i, x->mine ? x->weights : x->s->t->tile[i], sum);
  }
  vmap_put(&x->m, op->res[0], sum);
}

// Is op put where halves are? Their sums of rows, too.
static bool put_by_halves(Side *x, const Op *op) {
  Turns *s = x->s;
  if (!s->t->halves || op->nres != 1) return false;
  bool sum = is_sum(s, op->res[0]) && s->half[op->args[0]];
  if (op == s->product) put_products(x);
  else if (x->mine && op->res[0] == s->weights) put_half(x, 0);
  else if (!x->mine || (!sum && !s->half[op->res[0]])) return false;
  return true;
}

static void put_own(Side *x, const Op *op) {
  Turns *s = x->s;
  if (put_by_halves(x, op)) return;
  const Op *c = ir_clone(x->b, s->t->f, op, &x->m, NULL);
  for (uint32_t i = 0; i < s->nhanded; i++)
    if (op->nres && op->res[0] == s->handed[i])
      store(x->b, s->t->row[i], c->res[0], true);
  if (op->nres && op->res[0] == s->weights) hand_over(x, 0, c->res[0]);
}

static void take(Side *x) {
  const Turns *s = x->s;
  IrAttr trans = attr_i(AT_TRANS, 1);
  barrier(x->b, 0);
  for (uint32_t i = 0; i < s->nhanded; i++) {
    Type row = *ir_type(s->t->f, s->handed[i]);
    Op *r = ir_op(x->b, OP_SLOAD, &s->t->row[i], 1, &trans, 1, &row, 1, 0);
    vmap_put(&x->m, s->handed[i], r->res[0]);
  }
  vmap_put(&x->m, s->weights, s->t->tile[0]);
  x->taken = true;
}

// x + 0.
static bool adds_nothing(Side *x, const Op *op) {
  for (uint32_t i = 0; op->code == OP_ADD && i < 2; i++)
    if (is_sum(x->s, op->args[i])) {
      vmap_put(&x->m, op->res[0], vmap_get(&x->m, op->args[1 - i]));
      return true;
    }
  return false;
}

static void put_others(Side *x, const Op *op) {
  Turns *s = x->s;
  if (is_score(s, op) || is_of_score(s, op)) return;
  bool made = is_made(s, op);
  if (made && (!s->needed[op->res[0]] || is_sum(s, op->res[0]))) return;
  if (op->code == OP_WG_WAIT && is_score(s, ir_def(s->t->f, op->args[0])))
    return;
  if (!x->taken && mentions_late(s, op)) take(x);
  if (made && (is_handed(s, op->res[0]) || op->res[0] == s->weights)) return;
  if (put_by_halves(x, op)) return;
  if (!adds_nothing(x, op)) ir_clone(x->b, s->t->f, op, &x->m, NULL);
}

static void put_until(Side *x, const Op *end) {
  for (; x->at != end; x->at = x->at->next) {
    x->b->span = x->at->span;
    if (x->mine) put_own(x, x->at);
    else put_others(x, x->at);
  }
}

// A step of the group's own or the other's.
static void step(Turns *s, Region *to, bool mine, Value at, const Value *in) {
  Builder b = {.fn = s->t->f, .region = to};
  Side x = side(s, &b, mine, at);
  for (uint32_t i = 0; i < s->loop->nres; i++) bind(&x, i, in[i]);
  put_until(&x, s->body->last);
  if (!mine) barrier(&b, s->t->wg);  // its warps write what all have read
  yield_side(&x);
}

// ---------------------------------------------------------------- pairs
// The wait for scores, or for a group's own sums.
static const Op *wait_of(const Turns *s, bool scores) {
  const Op *op = s->body->first;
  while (op && !(op->code == OP_WG_WAIT &&
                 is_score(s, ir_def(s->t->f, op->args[0])) == scores))
    op = op->next;
  return op;
}

// Scores can be asked for before the step in front has ended: of what is
// carried they need the step's number alone. Steps that clean tiles are few.
static bool is_straight(const Turns *s) {
  const Op *wait = wait_of(s, true);
  const Region *r = s->body;
  if (!wait || !wait_of(s, false)) return false;
  for (const Op *op = r->first; op; op = op->next)
    if (op->nregions && !op->nres) return false;
  for (const Op *op = r->first; op != wait; op = op->next)
    for (uint32_t i = 1; i < r->params.n; i++)
      if (op->nregions ||
          (r->params.at[i] != s->count && ir_mentions(op, r->params.at[i])))
        return false;
  return true;
}

// Behind `n` products that make scores, or their commit.
static const Op *behind_scores(const Turns *s, uint32_t n) {
  const Op *op = s->start;
  for (uint32_t i = 0; i < n && op->code != OP_WG_COMMIT; op = op->next)
    i += is_score(s, op);
  return op;
}

static void put_scores(Side *x, uint32_t n) {
  put_until(x, behind_scores(x->s, n));
  if (x->at->code != OP_WG_COMMIT) ir_bare(x->b, OP_WG_COMMIT);
  else put_until(x, x->at->next);
}

// What the other group's step yields is what one's own begins with: first the
// step's number, which it may count up behind its scores.
static void follow_count(const Side *o, Side *x) {
  Value one = ir_const_i(o->b, DT_I32, 1);
  bind(x, o->s->counted, ir_2(o->b, OP_ADD, vmap_get(&o->m, o->s->count), one));
}

static void follow(const Side *o, Side *x) {
  const Turns *s = o->s;
  const Op *y = s->body->last;
  for (uint32_t i = 0; i < y->nargs; i++)
    if (s->body->params.at[1 + i] != s->count)
      bind(x, i, vmap_get(&o->m, y->args[i]));
}

// Another's step, whose sums are waited for while one's own scores are made.
static void pair(Turns *s, Region *to, const Value *at) {
  Builder b = {.fn = s->t->f, .region = to};
  const Op *scores = wait_of(s, true), *sums = wait_of(s, false);
  Side o = side(s, &b, false, at[0]), x = side(s, &b, true, at[1]);
  for (uint32_t i = 0; i < s->loop->nres; i++)
    bind(&o, i, to->params.at[1 + i]);
  put_until(&o, s->start);
  follow_count(&o, &x);
  put_until(&x, s->start);
  put_until(&o, scores);
  put_until(&o, sums);
  put_scores(&x, COST_TURNS_BETWEEN);
  IrAttr pending = attr_i(AT_PENDING, 1);
  ir_set_attr(s->t->f, ir_clone(&b, s->t->f, sums, &o.m, NULL), pending);
  o.at = sums->next;
  put_until(&o, s->body->last);
  put_until(&x, scores);
  barrier(&b, s->t->wg);
  follow(&o, &x);
  put_until(&x, s->body->last);
  yield_side(&x);
}

// The loop's steps: how many, and the coordinate of number i.
typedef struct Steps {
  const Op *loop;
  Value n;
} Steps;

static Value steps_at(const Steps *t, Builder *b, Value i) {
  const Value *a = t->loop->args;
  Value one = ir_const_i(b, DT_I32, 1);
  if (ir_attr_i(t->loop, AT_REVERSE, 0))
    i = ir_2(b, OP_SUB, ir_2(b, OP_SUB, t->n, one), i);
  return ir_2(b, OP_ADD, a[0], ir_2(b, OP_MUL, i, a[2]));
}

static Op *maybe(Turns *s, Builder *b, Value when, bool mine, Value at,
                 const Value *in) {
  Type types[MAX_YIELDED];
  uint32_t n = s->loop->nres;
  for (uint32_t i = 0; i < n; i++)
    types[i] = *ir_type(s->t->f, s->loop->res[i]);
  Op *op = ir_op(b, OP_IF, &when, 1, NULL, 0, types, n, 2);
  step(s, op->regions[0], mine, at, in);
  Builder e = {.fn = s->t->f, .region = op->regions[1], .span = b->span};
  ir_yield(&e, in, n);
  return op;
}

// The loop over pairs behind the first `own` steps.
static Op *loop_of_pairs(Turns *s, Builder *b, const Steps *all, Value own,
                         Value n, const Value *in) {
  Value two = ir_const_i(b, DT_I32, 2), one = ir_const_i(b, DT_I32, 1);
  Value args[3 + MAX_YIELDED] = {ir_const_i(b, DT_I32, 0), n, one};
  Type types[MAX_YIELDED];
  uint32_t nres = s->loop->nres;
  for (uint32_t i = 0; i < nres; i++) {
    args[3 + i] = in[i];
    types[i] = *ir_type(s->t->f, in[i]);
  }
  Op *loop = ir_op(b, OP_FOR, args, 3 + nres, NULL, 0, types, nres, 1);
  Region *r = loop->regions[0];
  Value i = ir_region_param(r, type_scalar(DT_I32), "i");
  for (uint32_t k = 0; k < nres; k++)
    ir_region_param(r, types[k],
                    ir_info(s->t->f, s->body->params.at[1 + k])->hint);
  Builder in_loop = {.fn = s->t->f, .region = r, .span = b->span};
  i = ir_2(&in_loop, OP_ADD, ir_2(&in_loop, OP_MUL, i, two), own);
  Value at[] = {steps_at(all, &in_loop, i), 0};
  at[1] = steps_at(all, &in_loop, ir_2(&in_loop, OP_ADD, i, one));
  pair(s, r, at);
  return loop;
}

// Two steps at a time, another's and one's own; in front of them one's own if
// it is first, behind them another's that is left.
static void pairs(Turns *s) {
  Func *f = s->t->f;
  Op *old = s->loop;
  Builder b = {.fn = f,
               .region = old->parent,
               .before = old,
               .span = old->span};
  barrier(&b, 0);  // the tile has been read in the loop in front
  Value zero = ir_const_i(&b, DT_I32, 0), one = ir_const_i(&b, DT_I32, 1);
  Value two = ir_const_i(&b, DT_I32, 2), size = old->args[2];
  Value keys = ir_2(&b, OP_SUB, old->args[1], old->args[0]);
  Value n = ir_2(&b, OP_ADD, keys, ir_2(&b, OP_SUB, size, one));
  Steps all = {old, ir_2(&b, OP_MAX, ir_2(&b, OP_FLOORDIV, n, size), zero)};
  Value count = old->args[3 + s->counted];
  Value own = ir_2(&b, OP_EQ, ir_2(&b, OP_MOD, count, two), s->t->wg);
  own = ir_2(&b, OP_AND, own, ir_2(&b, OP_LT, zero, all.n));
  const Op *first =
      maybe(s, &b, own, true, steps_at(&all, &b, zero), old->args + 3);
  own = ir_cast(&b, DT_I32, own);
  n = ir_2(&b, OP_SUB, all.n, own);
  const Op *loop = loop_of_pairs(s, &b, &all, own,
                                 ir_2(&b, OP_FLOORDIV, n, two), first->res);
  Value odd = ir_2(&b, OP_EQ, ir_2(&b, OP_MOD, n, two), one);
  Value end = steps_at(&all, &b, ir_2(&b, OP_SUB, all.n, one));
  const Op *last = maybe(s, &b, odd, false, end, loop->res);
  for (uint32_t i = 0; i < old->nres; i++)
    ir_replace_uses(f, old->res[i], last->res[i]);
  ir_erase(old);
}

// Both groups make the scores, and one of them adds to the rows' sums.
static void both(Turns *s) {
  Func *f = s->t->f;
  for (Op *op = s->body->first, *next; op; op = next) {
    next = op->next;
    if (op->nres != 1 || !is_sum(s, op->res[0])) continue;
    Value v = op->res[0];
    Type type = *ir_type(f, v);
    Builder b = {.fn = f, .region = s->body, .before = next, .span = op->span};
    Value mine = ir_2(&b, OP_EQ, s->t->wg, ir_const_i(&b, DT_I32, 0));
    Op *branch = ir_op(&b, OP_IF, &mine, 1, NULL, 0, &type, 1, 2);
    ir_replace_from(next, v, branch->res[0]);
    Builder in = {.fn = f, .region = branch->regions[0], .span = op->span};
    ir_yield(&in, &v, 1);
    in.region = branch->regions[1];
    IrAttr zero = attr_f(AT_VALUE, 0);
    Value z = ir_op(&in, OP_CONST, NULL, 0, &zero, 1, &type, 1, 0)->res[0];
    ir_yield(&in, &z, 1);
  }
}

// ---------------------------------------------------------------- all loops
static bool has_score(const Turns *s) {
  for (const Op *op = s->loop->regions[0]->first; op; op = op->next)
    if (is_score(s, op)) return true;
  return false;
}

static void find_loops(Team *t, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) find_loops(t, op->regions[i]);
    Turns s = {.t = t, .loop = op};
    if (op->code != OP_FOR || !has_score(&s)) continue;
    t->ok &= t->nloops < MAX_LOOPS;
    if (t->ok) t->loop[t->nloops++] = op;
  }
}

// Sums of each group's steps are joined.
static void join(Team *t, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) join(t, op->regions[i]);
    const Op *def = op->code == OP_FCOMBINE ? ir_def(t->f, op->args[0]) : NULL;
    if ((RKind)ir_attr_i(op, AT_KIND, RK_SUM) != RK_SUM) continue;
    if (!def || (def->code != OP_FOR && def->code != OP_IF)) continue;
    Builder b = {.fn = t->f, .region = r, .before = op->next, .span = op->span};
    IrAttr kind = {.id = AT_KIND, .i = RK_SUM};
    Type row = *ir_type(t->f, op->res[0]);
    Op *all = ir_op(&b, OP_GJOIN, op->res, 1, &kind, 1, &row, 1, 0);
    ir_replace_from(all->next, op->res[0], all->res[0]);
  }
}

static void team(Func *f, const Target *target, Region *r) {
  Team t = {.f = f,
            .target = target,
            .arena = f->mod->arena,
            .wg = r->params.at[0],
            .ok = true};
  Turns s[MAX_LOOPS] = {{0}};
  t.own = NEWN(t.arena, bool, f->values.n);
  t.own[t.wg] = true;
  while (mark_region(&t, r)) continue;
  find_loops(&t, r);
  t.halves = true;
  for (uint32_t i = 0; i < t.nloops && t.ok; i++) {
    s[i] = (Turns){.t = &t, .loop = t.loop[i]};
    t.ok = find(&s[i]);
    if (t.ok && is_straight(&s[i])) find_halves(&s[i]);
    t.halves &= !t.ok || !is_straight(&s[i]) || s[i].half;
  }
  if (!t.ok || !t.nloops) return;
  for (uint32_t i = 0; i < t.nloops; i++) {
    make_memory(&t, &s[i]);
    if (is_straight(&s[i])) pairs(&s[i]);
    else both(&s[i]);
  }
  join(&t, r);
}

bool pass_score_turns(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    for (Op *op = f->body->first; op; op = op->next) {
      const IrAttr *teams = op->code == OP_ROLES ? ir_attr(op, AT_TEAMS) : NULL;
      for (uint32_t k = 0; teams && k < op->nregions; k++)
        if (op->regions[k]->params.n && teams->list[k] == 2 * HW_GROUP_THREADS)
          team(f, opt->target, op->regions[k]);
    }
  }
  return true;
}
