// branch_arms: of a choice that a whole task makes only what is chosen is made.
//
//   %s = splat(%c)                             %y = if(%c) ({
//   %a = mma(%x, %t)                             %a = mma(%x, %t)
//   %b = mma(%x, %u)                  ->         yield(%a)
//   %y = select(%s, %a, %b)                    }, {
//                                                %b = mma(%x, %u)
//                                                yield(%b)
//                                              })
//
// Chunks whose decays are weak have a shorter way to their gradients
// (passes/attn/grad_halves.c). All choices by one condition are one branch,
// with all that nothing but one side of them needs; loads stay in front. Where
// a side has products. Level frag; sm_90a. Needs: reroll, so that a side may be
// a loop. Run dce behind it. Tests: test/passes/branch_arms.
#include "ir/layout.h"
#include "passes/pass.h"

enum { MAX_CHOICES = 16 };

// What needs a value: one of the sides, or both or anything else.
enum { BY_FIRST = 1, BY_SECOND = 2, BY_OTHERS = BY_FIRST | BY_SECOND };

typedef struct Choice {
  Func *f;
  Region *r;
  Value cond;
  Op *select[MAX_CHOICES];  // in their order
  uint32_t n;
  uint8_t *by;   // by value
  bool *in;      // by value: its op is one of a side's
  int64_t room;  // bytes of shared memory
} Choice;

// The number that decides for all elements; 0: there is none.
static Value decides(const Func *f, const Op *op) {
  if (op->code != OP_SELECT || ir_type(f, op->res[0])->kind != TK_FRAG)
    return 0;
  Value v = op->args[0];
  const Op *def = ir_def(f, v);
  while (def && (def->code == OP_SPLAT || def->code == OP_BCAST)) {
    v = def->args[0];
    def = ir_def(f, v);
  }
  return ir_type(f, v)->kind == TK_ELEM ? v : 0;
}

static int choice_of(const Choice *x, const Op *op) {
  for (uint32_t i = 0; i < x->n; i++)
    if (x->select[i] == op) return (int)i;
  return -1;
}

// ---------------------------------------------------------------- sides
static void see_pure(void *data, Op *op) {
  bool loads = op->code == OP_SFILL || op->code == OP_GLOAD;
  bool plain = op_info(op->code)->flags & OPF_PURE && !loads;
  *(bool *)data &= plain || op->code == OP_FOR || op->code == OP_YIELD;
}

static bool may_move(Op *op) {
  bool pure = op->code != OP_YIELD;
  see_pure(&pure, op);
  for (uint32_t i = 0; i < op->nregions; i++)
    ir_walk(op->regions[i], see_pure, &pure);
  return pure;
}

typedef struct Mark {
  Choice *x;
  uint8_t by;
} Mark;

static void mark(void *data, Op *op) {
  const Mark *m = data;
  for (uint32_t i = 0; i < op->nargs; i++) m->x->by[op->args[i]] |= m->by;
}

static void mark_all(Choice *x, Op *op, uint8_t by) {
  Mark m = {x, by};
  mark(&m, op);
  for (uint32_t i = 0; i < op->nregions; i++) ir_walk(op->regions[i], mark, &m);
}

// From the last op on: by what each value is needed.
static void find_sides(Choice *x) {
  for (Op *op = x->r->last; op; op = op->prev) {
    uint8_t by = op->nres ? 0 : BY_OTHERS;
    for (uint32_t i = 0; i < op->nres; i++) by |= x->by[op->res[i]];
    if (choice_of(x, op) >= 0) {
      x->by[op->args[0]] |= BY_OTHERS;
      x->by[op->args[1]] |= BY_FIRST;
      x->by[op->args[2]] |= BY_SECOND;
      continue;
    }
    bool one = by == BY_FIRST || by == BY_SECOND;
    if (by && !(one && may_move(op))) by = BY_OTHERS;
    for (uint32_t i = 0; i < op->nres; i++) {
      x->by[op->res[i]] = by;
      x->in[op->res[i]] = by && by != BY_OTHERS;
    }
    mark_all(x, op, by);
  }
}

static bool is_in(const Choice *x, const Op *op) {
  return op->nres && x->in[op->res[0]];
}

static void see_product(void *data, Op *op) {
  *(bool *)data |= op->code == OP_MMA;
}

static bool has_products(const Choice *x) {
  bool some = false;
  for (Op *op = x->r->first; op; op = op->next) {
    if (!is_in(x, op)) continue;
    see_product(&some, op);
    for (uint32_t i = 0; i < op->nregions; i++)
      ir_walk(op->regions[i], see_product, &some);
  }
  return some;
}

// ---------------------------------------------------------------- the branch
// Is what op makes needed by ops that the branch has, or that go in front of
// it?
static bool is_needed(const Choice *x, const Op *op, const bool *needed) {
  for (uint32_t i = 0; i < op->nres; i++)
    if (needed[op->res[i]]) return true;
  return is_in(x, op);
}

static void need(void *data, Op *op) {
  bool *needed = data;
  for (uint32_t i = 0; i < op->nargs; i++) needed[op->args[i]] = true;
}

static void need_choice(const Choice *x, bool *needed) {
  needed[x->cond] = true;
  for (uint32_t i = 0; i < x->n; i++)
    for (uint32_t k = 1; k < 3; k++) needed[x->select[i]->args[k]] = true;
}

typedef struct Use {
  Value v;
  bool some;
} Use;

static void see_use(void *data, Op *op) {
  Use *u = data;
  for (uint32_t i = 0; i < op->nargs; i++) u->some |= op->args[i] == u->v;
}

// Is v read in the branch or behind it?
static bool is_read(const Choice *x, Value v) {
  Use u = {.v = v};
  bool behind = false;
  for (Op *op = x->r->first; op && !u.some; op = op->next) {
    behind |= op == x->select[0];
    if (!behind && !is_in(x, op)) continue;
    see_use(&u, op);
    for (uint32_t i = 0; i < op->nregions; i++)
      ir_walk(op->regions[i], see_use, &u);
  }
  return u.some;
}

// Bytes of the shared tiles that live where the branch begins.
static int64_t tiles_there(const Choice *x, const bool *needed) {
  int64_t n = 0;
  bool behind = false;
  for (const Op *op = x->r->first; op; op = op->next) {
    behind |= op == x->select[0];
    if (op->code != OP_SFILL && op->code != OP_SPUT) continue;
    if (is_in(x, op) || (behind && !needed[op->res[0]])) continue;
    if (is_read(x, op->res[0])) n += smem_bytes(ir_type(x->f, op->res[0]));
  }
  return n;
}

// What the branch needs of what stands behind the first choice goes in front of
// that. False: it is made of a choice, does not move, or there is no room for
// all tiles.
static bool put_in_front(Choice *x, Arena *arena) {
  bool *needed = NEWN(arena, bool, x->f->values.n);
  Op *first = x->select[0];
  need_choice(x, needed);
  for (Op *op = x->r->last; op; op = op->prev) {
    if (!is_needed(x, op, needed)) continue;
    if (choice_of(x, op) >= 0) return false;
    need(needed, op);
    for (uint32_t i = 0; i < op->nregions; i++)
      ir_walk(op->regions[i], need, needed);
  }
  if (tiles_there(x, needed) > x->room) return false;
  bool behind = false;
  for (Op *op = x->r->first; op; op = op->next) {
    behind |= op == first;
    if (behind && is_needed(x, op, needed) && !may_move(op)) return false;
  }
  for (Op *op = first->next, *next; op; op = next) {
    next = op->next;
    if (is_needed(x, op, needed)) ir_move_before(op, first);
  }
  return true;
}

static void fill(Choice *x, Op *at, uint32_t side) {
  Region *r = at->regions[side];
  Builder b = {.fn = x->f, .region = r, .span = at->span};
  Value out[MAX_CHOICES];
  for (uint32_t i = 0; i < x->n; i++) out[i] = x->select[i]->args[1 + side];
  ir_yield(&b, out, x->n);
  uint8_t by = side ? BY_SECOND : BY_FIRST;
  for (Op *op = x->r->first, *next; op != at; op = next) {
    next = op->next;
    if (is_in(x, op) && x->by[op->res[0]] == by) ir_move_before(op, r->last);
  }
}

static bool branch(Choice *x, Arena *arena) {
  x->by = NEWN(arena, uint8_t, x->f->values.n);
  x->in = NEWN(arena, bool, x->f->values.n);
  find_sides(x);
  if (!has_products(x) || !put_in_front(x, arena)) return false;
  Op *first = x->select[0];
  Builder b = {.fn = x->f,
               .region = x->r,
               .before = first,
               .span = first->span};
  Type types[MAX_CHOICES];
  for (uint32_t i = 0; i < x->n; i++)
    types[i] = *ir_type(x->f, x->select[i]->res[0]);
  Op *at = ir_op(&b, OP_IF, &x->cond, 1, NULL, 0, types, x->n, 2);
  fill(x, at, 0);
  fill(x, at, 1);
  for (uint32_t i = 0; i < x->n; i++)
    ir_replace_from(at, x->select[i]->res[0], at->res[i]);
  return true;
}

// ---------------------------------------------------------------- all
// The choices by the condition of `first`.
static Choice choices_of(Func *f, Op *first, int64_t room) {
  Choice x = {.f = f,
              .r = first->parent,
              .cond = decides(f, first),
              .room = room};
  for (Op *op = first; op && x.n < MAX_CHOICES; op = op->next)
    if (decides(f, op) == x.cond) x.select[x.n++] = op;
  return x;
}

static bool function(Ctx *cx, Func *f, int64_t room) {
  for (Op *op = f->body->first; op; op = op->next) {
    if (!decides(f, op)) continue;
    Choice x = choices_of(f, op, room);
    if (!branch(&x, &cx->scratch)) continue;
    ctx_remark(cx, "%s: %u choices of a task are a branch", f->name, x.n);
    for (uint32_t i = 0; i < x.n; i++) ir_erase(x.select[i]);
    return true;
  }
  return false;
}

bool pass_branch_arms(Ctx *cx, Module *m, const PassOpt *opt) {
  // The other half is for what the sides make.
  int64_t room = opt->target->gpu.smem / 2;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    while (ir_launch(f) && function(cx, f, room)) {}
  }
  return true;
}
