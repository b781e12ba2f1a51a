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
// more than two barriers: a thread makes it for one of them, with what is made
// of it for the column, such as products with weights that are loaded. What
// does not vary with the task is made in front of the loop over tasks. Only
// what is made of coordinates, constants, scalars and loads of inputs. Level
// frag; functions without products and steps. Needs: tile_scheduler. Tests:
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
  Builder in, out;          // of the roots; in front of the loop over tasks
  const Region *task;
  bool invariant;  // what is in front may be used
  Value *made;     // by value: as a thin slice, 0: not yet
  bool *fixed;     // by value: does not vary with the task
  bool *asked;     // by value: `fixed` is known
} Thin;

static bool is_elementwise(const Op *op) {
  return op_info(op->code)->flags & OPF_ELEM && op->nres == 1;
}

// Of its operands alone: loads of what nothing writes, too.
static bool is_made(const Thin *x, const Op *op) {
  return is_elementwise(op) ||
         (op->code == OP_GLOAD && ir_is_input(x->f, op->args[0]));
}

static bool is_column(const Type *t) {
  return t->kind == TK_FRAG && t->slice == SLICE_COL && t->layout == LY_LIN &&
         !t->partial;
}

// Made of coordinates, constants, scalars and what they tell to load?
static bool can_make(const Thin *x, Value v) {
  const Op *op = ir_def(x->f, v);
  const Type *t = ir_type(x->f, v);
  Type thin;
  if (t->kind != TK_FRAG) return true;
  if (!op || !is_column(t) || !thin_type(t, x->threads, &thin)) return false;
  if (op->code == OP_COORD || op->code == OP_CONST || op->code == OP_SPLAT)
    return true;
  bool ok = is_made(x, op) && op->code != OP_RANDOM;
  for (uint32_t i = 0; ok && i < op->nargs; i++) ok = can_make(x, op->args[i]);
  return ok;
}

static bool find_fixed(Thin *x, Value v) {
  const Op *op = ir_def(x->f, v);
  if (!x->invariant) return false;
  if (!op) return ir_defined_outside(x->f, v, x->task);
  if (op->parent == x->out.region) return true;
  bool ok = is_made(x, op) || op->code == OP_CONST || op->code == OP_DIM ||
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

// Is the op behind the first use of a root?
static bool is_behind(const Thin *x, const Op *op) {
  const Op *k = x->in.before;
  while (k && k != op) k = k->next;
  return k;
}

// v as a thin slice, made where v is or the first root is used; a scalar, where
// it can be used in front of the loop.
static Value make(Thin *x, Value v) {
  Op *op = ir_def(x->f, v);
  Type t = *ir_type(x->f, v);
  bool scalar = t.kind != TK_FRAG, fixed = is_fixed(x, v);
  if (scalar && (!op || !fixed || op->parent == x->out.region)) return v;
  if (x->made[v]) return x->made[v];
  Value args[ELEM_ARGS];
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = make(x, op->args[i]);
  if (!scalar) thin_type(ir_type(x->f, v), x->threads, &t);
  Builder here = {.fn = x->f,
                  .region = op->parent,
                  .before = is_behind(x, op) ? x->in.before : op,
                  .span = op->span};
  return x->made[v] = thin_op(fixed ? &x->out : &here, op, args, t);
}

// ---------------------------------------------------------------- roots
// Does v have a function that is worth it?
static bool is_dear(const Thin *x, Value v) {
  const Op *op = ir_def(x->f, v);
  if (!op || !is_column(ir_type(x->f, v)) || !is_elementwise(op)) return false;
  bool dear = op_is_function(op->code) && op->nattrs == 0 &&
              op_facts(op->code)->slots >= COST_HANDED_SLOTS;
  for (uint32_t i = 0; !dear && i < op->nargs; i++)
    dear = is_dear(x, op->args[i]);
  return dear;
}

static bool is_root(const Thin *x, const Op *op) {
  return op->nres == 1 && is_dear(x, op->res[0]) &&
         ir_type(x->f, op->res[0])->dtype == DT_F32 && can_make(x, op->res[0]);
}

typedef struct Need {
  const Thin *x;
  Value v;
  bool found;
} Need;

static void note_need(void *data, Op *op) {
  Need *n = data;
  bool uses = false;
  for (uint32_t i = 0; i < op->nargs; i++) uses |= op->args[i] == n->v;
  n->found |=
      uses && !(is_elementwise(op) && is_column(ir_type(n->x->f, op->res[0])) &&
                can_make(n->x, op->res[0]));
}

// Does something need v that is not made thin with it?
static bool is_needed(const Thin *x, const Op *op) {
  Need n = {x, op->res[0], false};
  ir_walk(x->f->body, note_need, &n);
  return n.found;
}

static Op *first_needed(const Thin *x, const Region *r) {
  Op *found = NULL;
  for (Op *op = r->first; op && !found; op = op->next) {
    if (is_root(x, op) && is_needed(x, op)) return op;
    for (uint32_t i = 0; i < op->nregions && !found; i++)
      found = first_needed(x, op->regions[i]);
  }
  return found;
}

// Is what v is made of there at the first use of a root?
static bool is_there(const Thin *x, Value v) {
  const Op *op = ir_def(x->f, v);
  if (!op || !is_behind(x, op)) return true;
  bool ok = ir_type(x->f, v)->kind == TK_FRAG;
  for (uint32_t i = 0; ok && i < op->nargs; i++) ok = is_there(x, op->args[i]);
  return ok;
}

// Roots of the region from `op` on whose operands are there: theirs share the
// barriers.
static void hand_round(Thin *x, Op *op) {
  Op *root[MAX_ROOTS];
  uint32_t n = 0;
  x->in = (Builder){.fn = x->f, .region = op->parent, .span = op->span};
  for (Op *o = op; o && n < MAX_ROOTS; o = o->next) {
    if (!is_root(x, o) || !is_needed(x, o) || !is_there(x, o->res[0])) continue;
    root[n++] = o;
    Op *use = ir_first_use(o->next, o->res[0]);
    if (!x->in.before || !is_behind(x, use)) x->in.before = use;
  }
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
    x.task = r;
    x.out = (Builder){.fn = f, .region = r, .span = op->span};
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
