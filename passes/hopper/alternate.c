// alternate: two groups that multiply in each step begin their steps in turn.
//
//                                          %t = mbar() {count = 4} : mbar<2>
//   for(.., %c) ({                         for(.., %c) ({
//     mbar_wait(%full, mod(%c, 4), ..)       mbar_wait(%full, mod(%c, 4), ..)
//     wg_fence()                             mbar_wait(%t, %wg, parity of %c)
//     %s = wgmma(..)                         wg_fence()
//     wg_commit()                            %s = wgmma(..)
//     wg_fence()                    ->       wg_commit()
//     %o = wgmma(..)                         wg_fence()
//     wg_commit()                            %o = wgmma(..)
//     %s1 = wg_wait(%s) {pending = 1}        wg_commit()
//     ..                                     %s1 = wg_wait(%s) {pending = 1}
//   })                                       mbar_arrive(%t, sub(1, %wg))
//                                            ..
//                                          })
//
// Left alone, groups come to do the same at the same time: both wait for their
// last products, and nothing is multiplied until both have asked for new ones.
// A group that has its scores tells the other one to ask for its own; its
// products of the step before are still under way, and its arithmetic is done
// beside the other's products. The count of a ring that is filled once a step
// says whose turn it is. Where groups have products in turn (gradients added in
// any order), whose functions take as long as these: H200, D 64, 1.07 times as
// fast, with loops that masks divide 1.02; and where a step's products stand
// one behind the other (step_halves): D 128, 1.00 to 1.07, but not of 128 rows
// at a time: D 64, 0.97 to 0.99; gradients in two kernels 0.97 (D 128) to 1.02
// (docs/lab). Level frag; sm_90a. Needs: pipeline_loop, warp_specialize. Tests:
// test/passes/alternate/.
#include "ir/target.h"
#include "passes/pass.h"

enum { GROUPS = 2 };

typedef struct Alternate {
  Func *f;
  Value turn;   // a barrier for each group
  Value group;  // number of the group
  const Region *producer;
} Alternate;

static Value i32(Builder *b, int64_t v) {
  return ir_const_i(b, DT_I32, v);
}

static Builder at(Alternate *a, Op *op) {
  return (Builder){.fn = a->f,
                   .region = op->parent,
                   .before = op,
                   .span = op->span};
}

// Does region r copy tiles on that barrier?
static bool copies(const Region *r, Value barrier) {
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_MBAR_EXPECT && op->args[0] == barrier) return true;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (copies(op->regions[i], barrier)) return true;
  }
  return false;
}

// How many tiles the ring has had for whose next one op waits; 0: it waits for
// something else.
static Value count_of(const Alternate *a, const Op *op) {
  if (op->code != OP_MBAR_WAIT || !copies(a->producer, op->args[0])) return 0;
  const Op *slot = ir_def(a->f, op->args[1]);
  return slot && slot->code == OP_MOD ? slot->args[0] : 0;
}

// The first group's first step waits for nobody.
static void await(Alternate *a, Op *fence, Value count) {
  Builder b = at(a, fence);
  Value one = i32(&b, 1), two = i32(&b, GROUPS);
  Value mine = ir_2(&b, OP_SUB, one, a->group);
  Value n = ir_2(&b, OP_ADD, count, mine);
  Value args[] = {a->turn, a->group, ir_2(&b, OP_MOD, n, two)};
  ir_op(&b, OP_MBAR_WAIT, args, 3, NULL, 0, NULL, 0, 0);
}

static void tell(Alternate *a, Op *wait) {
  Builder b = at(a, wait->next);
  Value one = i32(&b, 1);
  Value args[] = {a->turn, ir_2(&b, OP_SUB, one, a->group)};
  ir_op(&b, OP_MBAR_ARRIVE, args, 2, NULL, 0, NULL, 0, 0);
}

static void region(Alternate *a, Region *r) {
  Value count = 0;
  bool open = false;
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(a, op->regions[i]);
    if (op->nregions) count = 0, open = false;
    Value n = open ? 0 : count_of(a, op);
    if (n) count = n;
    if (op->code == OP_WG_FENCE && count && !open) {
      await(a, op, count);
      open = true;
    }
    if (op->code == OP_WG_WAIT && open) {
      tell(a, op);
      open = false, count = 0;
    }
  }
}

static Op *find_roles(const Func *f) {
  for (Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_ROLES) return op;
  return NULL;
}

// Loops over steps, by what they do.
typedef struct Loops {
  uint32_t turn;   // products that the groups have in turn
  uint32_t alone;  // nothing beside a step's first products, of as many rows as
                   // a group has, and adds to memory
} Loops;

static void find_loops(const Func *f, Loops *l, const Region *r) {
  bool turns = false, adds = false, inner = true, brief = true;
  const Op *wait = NULL;
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++)
      find_loops(f, l, op->regions[i]);
    inner = inner && op->code != OP_FOR && op->code != OP_WHILE;
    turns = turns || (op->code == OP_WGMMA && ir_attr_i(op, AT_TURN, 0));
    adds = adds || (op->code == OP_GSTORE && ir_attr_i(op, AT_ADD, 0));
    bool first = op->code == OP_WGMMA && op->nargs == 2;
    brief =
        brief && (!first || ir_type(f, op->res[0])->ext[1] <= HW_GROUP_ROWS);
    if (op->code == OP_WG_WAIT && !wait) wait = op;
  }
  if (!inner || !wait || !r->parent || r->parent->code != OP_FOR) return;
  l->turn += turns;
  l->alone += !turns && adds && brief && !ir_attr_i(wait, AT_PENDING, 0);
}

static bool suits(const Func *f, const Region *r) {
  Loops l = {0};
  find_loops(f, &l, r);
  return l.turn || l.alone;
}

static void run(Func *f) {
  Op *roles = find_roles(f);
  if (!roles) return;
  const IrAttr *teams = ir_attr(roles, AT_TEAMS);
  const IrAttr *groups = ir_attr(roles, AT_GROUPS);
  uint32_t last = teams->n - 1;
  Region *computes = roles->regions[last];
  if (teams->list[last] != groups->list[last] * GROUPS || !suits(f, computes))
    return;
  Alternate a = {.f = f,
                 .producer = roles->regions[0],
                 .group = computes->params.at[0]};
  Builder b = at(&a, roles);
  IrAttr count = attr_i(AT_ARRIVALS, HW_GROUP_WARPS);
  Type t = type_mbar(GROUPS);
  a.turn = ir_op(&b, OP_MBAR, NULL, 0, &count, 1, &t, 1, 0)->res[0];
  region(&a, computes);
}

bool pass_alternate(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) run(m->funcs.at[i]);
  return true;
}
