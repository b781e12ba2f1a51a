// thin_columns: functions of columns are computed once, and handed round.
//
//   for(%c, %n, %g) ({                            %e = coord() {pos = 0} : frag<128xi32,lin.0:8>
//     %k = coord() {pos = 1}               ->     %p = pow(.., %e) : frag<128xf32,lin.0:8>
//            : frag<128xi32,lin.1:8>              for(%c, %n, %g) ({
//     %p = pow(.., %k) : frag<128xf32,lin.1:8>      %s = sin(mul(.., %p)) : frag<128xf32,lin.0:8>
//     %s = sin(mul(.., %p))                         %r = relayout(%s) : frag<128xf32,lin.1:8>
//
// In tiles that are not multiplied each row's threads have the columns: 8 of
// 128 each, which those of the other rows have again. A function of them costs
// more than two barriers: a thread makes it for one of them. What does not vary
// with the task is made in front of the loop over tasks. Only what is made of
// coordinates, constants and scalars. Level frag; functions without products
// and steps. Needs: tile_scheduler. Tests:
// test/passes/thin_columns.
#include "ir/deps.h"
#include "ir/facts.h"
#include "ir/layout.h"
#include "passes/pass.h"
#include "passes/support/cost.h"
#include "passes/support/thin.h"

enum { MAX_ROOTS = 16 };  // that are handed round together

typedef struct Thin {
  Func *f;
  uint32_t threads, known;  // values that the tables have
  Builder in, out;          // of the task; in front of the loop over tasks
  bool invariant;           // what is in front may be used
  Value *made;              // by value: as a thin slice, 0: not yet
  bool *fixed;              // by value: does not vary with the task
  bool *asked;              // by value: `fixed` is known
} Thin;

static bool is_elementwise(const Op *op) {
  return op_info(op->code)->flags & OPF_ELEM && op->nres == 1;
}

static bool is_column(const Type *t) {
  return t->kind == TK_FRAG && t->slice == SLICE_COL && t->layout == LY_LIN &&
         !t->partial;
}

// Made of coordinates, constants and scalars?
static bool can_make(const Thin *x, Value v) {
  const Op *op = ir_def(x->f, v);
  const Type *t = ir_type(x->f, v);
  Type thin;
  if (t->kind != TK_FRAG) return true;
  if (!op || !is_column(t) || !thin_type(t, x->threads, &thin)) return false;
  if (op->code == OP_COORD || op->code == OP_CONST || op->code == OP_SPLAT)
    return true;
  bool ok = is_elementwise(op) && op->code != OP_RANDOM;
  for (uint32_t i = 0; ok && i < op->nargs; i++) ok = can_make(x, op->args[i]);
  return ok;
}

static bool find_fixed(Thin *x, Value v) {
  const Op *op = ir_def(x->f, v);
  if (!x->invariant) return false;
  if (!op) return ir_info(x->f, v)->region != x->in.region;
  if (op->parent == x->out.region) return true;
  bool ok = is_elementwise(op) || op->code == OP_CONST || op->code == OP_DIM ||
            op->code == OP_GIVEN || op->code == OP_COORD ||
            op->code == OP_SPLAT;
  for (uint32_t i = 0; ok && i < op->nargs; i++) {
    Value a = op->args[i];
    ok = x->asked[a] ? x->fixed[a] : find_fixed(x, a);
  }
  return ok;
}

static bool is_fixed(Thin *x, Value v) {
  if (v >= x->known) return false;
  if (!x->asked[v]) x->fixed[v] = find_fixed(x, v);
  x->asked[v] = true;
  return x->fixed[v];
}

// v as a thin slice; a scalar, where it can be used in front of the loop.
static Value make(Thin *x, Value v) {
  const Op *op = ir_def(x->f, v);
  Type t = *ir_type(x->f, v);
  bool scalar = t.kind != TK_FRAG, fixed = is_fixed(x, v);
  if (scalar && (!op || !fixed || op->parent == x->out.region)) return v;
  if (x->made[v]) return x->made[v];
  Value args[ELEM_ARGS];
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = make(x, op->args[i]);
  if (!scalar) thin_type(ir_type(x->f, v), x->threads, &t);
  return x->made[v] = thin_op(fixed ? &x->out : &x->in, op, args, t);
}

// ---------------------------------------------------------------- roots
static bool is_root(const Thin *x, const Op *op) {
  return op->nres == 1 && op_is_function(op->code) && op->nattrs == 0 &&
         op_facts(op->code)->slots >= COST_HANDED_SLOTS &&
         ir_type(x->f, op->res[0])->dtype == DT_F32 &&
         is_column(ir_type(x->f, op->res[0])) && can_make(x, op->res[0]);
}

// Does something need v that is not made thin with its functions?
static bool is_needed(const Thin *x, Op *op) {
  for (Op *u = ir_first_use(op->next, op->res[0]); u;
       u = ir_first_use(u->next, op->res[0])) {
    bool thin = is_elementwise(u) && is_column(ir_type(x->f, u->res[0])) &&
                can_make(x, u->res[0]);
    if (!thin || (!is_root(x, u) && is_needed(x, u))) return true;
  }
  return false;
}

static Op *first_needed(const Thin *x, const Region *r) {
  for (Op *op = r->first; op; op = op->next)
    if (is_root(x, op) && is_needed(x, op)) return op;
  return NULL;
}

// Roots of the region from `op` on whose operands are there: theirs share the
// barriers.
static void hand_round(Thin *x, Op *op) {
  Op *root[MAX_ROOTS], *use = NULL;
  uint32_t n = 0;
  for (Op *o = op; o && o != use && n < MAX_ROOTS; o = o->next) {
    if (!is_root(x, o) || !is_needed(x, o)) continue;
    root[n++] = o;
    Op *u = ir_first_use(o->next, o->res[0]);
    bool before = !use;
    for (Op *k = u; k && !before; k = k->next) before = k == use;
    if (before) use = u;
  }
  x->in.before = use;
  Value to[MAX_ROOTS];
  for (uint32_t i = 0; i < n; i++) to[i] = make(x, root[i]->res[0]);
  for (uint32_t i = 0; i < n; i++)
    to[i] = ir_op(is_fixed(x, root[i]->res[0]) ? &x->out : &x->in, OP_RELAYOUT,
                  &to[i], 1, NULL, 0, ir_type(x->f, root[i]->res[0]), 1, 0)
                ->res[0];
  for (uint32_t i = 0; i < n; i++) {
    ir_replace_uses(x->f, root[i]->res[0], to[i]);
    ir_erase(root[i]);
  }
}

// The region of a task: the body, or that of the loop over tasks.
static Region *task_region(Func *f, Op **loop) {
  *loop = NULL;
  for (Op *op = f->body->first; op; op = op->next) {
    if (op->code == OP_TASK) return f->body;
    if (op->code == OP_FOR && op->nargs == 3) *loop = op;
  }
  return *loop ? (*loop)->regions[0] : f->body;
}

static void thin(Ctx *cx, Func *f, uint32_t threads) {
  Op *loop;
  Region *r = task_region(f, &loop);
  bool changed = false;
  for (;;) {
    Thin x = {.f = f, .threads = threads, .known = f->values.n};
    Op *op = first_needed(&x, r);
    if (!op) break;
    x.made = NEWN(&cx->scratch, Value, x.known);
    x.fixed = NEWN(&cx->scratch, bool, x.known);
    x.asked = NEWN(&cx->scratch, bool, x.known);
    x.in = x.out = (Builder){.fn = f, .region = r, .span = op->span};
    x.invariant = loop && r != f->body;
    if (x.invariant) {
      x.out.region = f->body;
      x.out.before = loop;
    }
    hand_round(&x, op);
    changed = true;
  }
  if (changed) ir_sweep(f);
}

bool pass_thin_columns(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    const Op *launch = ir_launch(f);
    if (!launch || ir_has_steps(f) || ir_has_products(f)) continue;
    ArenaMark mark = arena_mark(&cx->scratch);
    thin(cx, f, (uint32_t)ir_attr_i(launch, AT_THREADS, 1));
    arena_reset(&cx->scratch, mark);
  }
  return true;
}
