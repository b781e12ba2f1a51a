// branch_stores: what a task would store nothing of is not computed.
//
//   %q = add(origin(), iota())                if(lt(origin(), %n)) ({
//   %k = exp(%x)                                %k = exp(%x)
//   store(%K, %k, %q, lt(%q, %n))        ->     store(%K, %k, %q, lt(%q, %n))
//                                               yield()
//                                             }, { yield() })
//
// A tile that begins behind the end of an output's rows, as that of a shorter
// of two joined axes (pass_join_axes), has none of it. All that only such
// stores need goes along. Programs without keys whose outputs nothing reads;
// not where every tile may begin inside. Level tile. Run cse and dce
// afterwards. Tests: test/passes/branch_stores.
#include "passes/pass.h"

typedef struct Branch {
  Func *f;
  Value origin, end;  // tasks whose first row is behind the end
  bool *in;           // by value: made in the branch
} Branch;

// The first of its coordinates, if v is a tile's along an axis; or 0.
static Value first_of(const Func *f, Value v) {
  const Op *sum = ir_def(f, v);
  for (uint32_t i = 0; sum && sum->code == OP_ADD && i < 2; i++) {
    const Op *o = ir_def(f, sum->args[i]), *n = ir_def(f, sum->args[1 - i]);
    if (o && n && o->code == OP_ORIGIN && n->code == OP_IOTA)
      return sum->args[i];
  }
  return 0;
}

// One of the mask's conditions that is a bound shorter than the tasks' axis.
static bool find_bound(Branch *x, Value mask) {
  const Op *op = ir_def(x->f, mask);
  if (op && op->code == OP_AND)
    return find_bound(x, op->args[0]) || find_bound(x, op->args[1]);
  Value first = op && op->code == OP_LT ? first_of(x->f, op->args[0]) : 0;
  const Op *end = first ? ir_def(x->f, op->args[1]) : NULL;
  if (!end || end->code != OP_DIM) return false;
  int64_t axis = ir_attr_i(ir_def(x->f, first), AT_AXIS, 0);
  if ((Dim)ir_attr_i(end, AT_DIM, 0) == x->f->axes.at[axis].extent)
    return false;
  x->origin = first;
  x->end = op->args[1];
  return true;
}

static bool is_same_store(const Branch *x, const Op *op) {
  Branch y = {.f = x->f};
  return op->code == OP_STORE && ir_attr_i(op, AT_MASKED, 0) &&
         find_bound(&y, op->args[op->nargs - 1]) && y.origin == x->origin &&
         y.end == x->end;
}

typedef struct Uses {
  const Branch *x;
  const Op *op;
  bool only;
} Uses;

static void see_use(void *data, Op *op) {
  Uses *u = data;
  bool inside = is_same_store(u->x, op);
  for (uint32_t i = 0; i < op->nres; i++) inside |= u->x->in[op->res[i]];
  for (uint32_t i = 0; i < op->nargs && !inside; i++)
    for (uint32_t k = 0; k < u->op->nres; k++)
      u->only &= op->args[i] != u->op->res[k];
}

// Users come first: they are behind it.
static bool belongs(const Branch *x, const Op *op) {
  Uses u = {.x = x, .op = op, .only = op->nres > 0};
  if (is_same_store(x, op)) return true;
  if (!(op_info(op->code)->flags & OPF_PURE) || op->nregions || !op->nargs)
    return false;
  ir_walk(x->f->body, see_use, &u);
  return u.only;
}

static void branch(Branch *x) {
  Op *last = NULL;
  for (Op *op = x->f->body->last; op; op = op->prev) {
    if (!belongs(x, op)) continue;
    if (!last) last = op;
    for (uint32_t i = 0; i < op->nres; i++) x->in[op->res[i]] = true;
  }
  Builder b = {.fn = x->f,
               .region = x->f->body,
               .before = last->next,
               .span = last->span};
  Value some = ir_2(&b, OP_LT, x->origin, x->end);
  Op *at = ir_op(&b, OP_IF, &some, 1, NULL, 0, NULL, 0, 2);
  Builder in = {.fn = x->f, .region = at->regions[1], .span = last->span};
  ir_yield(&in, NULL, 0);
  in.region = at->regions[0];
  ir_yield(&in, NULL, 0);
  for (Op *op = x->f->body->first, *next; op != at; op = next) {
    next = op->next;
    bool moves = is_same_store(x, op);
    for (uint32_t i = 0; i < op->nres; i++) moves |= x->in[op->res[i]];
    if (moves) ir_move_before(op, in.region->last);
  }
}

// Of one list of values, whose outputs nothing reads.
static bool is_plain(const Func *f) {
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role != AX_PAR && f->axes.at[i].role != AX_VEC)
      return false;
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_FOR || op->code == OP_WHILE ||
        (op->code == OP_LOAD && ir_is_stored(f->body, op->args[0])))
      return false;
  return true;
}

static bool branch_one(Ctx *cx, Func *f) {
  for (const Op *op = f->body->first; op; op = op->next) {
    Branch x = {.f = f};
    if (op->code != OP_STORE || !ir_attr_i(op, AT_MASKED, 0) ||
        !find_bound(&x, op->args[op->nargs - 1]))
      continue;
    // The condition has a value of its own.
    x.in = NEWN(&cx->scratch, bool, f->values.n + 1);
    branch(&x);
    return true;
  }
  return false;
}

bool pass_branch_stores(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    while (is_plain(m->funcs.at[i]) && branch_one(cx, m->funcs.at[i])) {}
  return true;
}
