// distribute: states that another state needs, or all columns of it, are walked
// in phases of their own.
//
//   before  func @p(.., %n0 inout, ..) axes(b, h, t step, d vec, v vec) {
//             %m, %mt = maxplus(%m0, ..)       : f32{b,h}, f32{b,h,t}
//             %n, %nt = affine(%n0, ..)        : f32{b,h,d}, f32{b,h,t}
//             %C, %ct = affine(%C0, ..)        : f32{b,h,d,v}, f32{b,h,t,v}
//             store(%O, %ct / %nt, ..)  store(%n0, %n, %b, %h, %d) .. }
//   after   func @p.maxima(.., %mt.aside: tensor<f32[B, H, S]> shared, ..)
//               axes(b, h, t step) {
//             %m, %mt = maxplus(%m0, ..)  store(%mt.aside, %mt, %b, %h, %t) .. }
//           func @p.aside(.., %mt.aside, %nt.aside: .. shared)
//               axes(b, h, t step, d vec) {
//             %n, %nt = affine(%n0, ..)   store(%nt.aside, %nt, %b, %h, %t)
//             store(%n0, %n, %b, %h, %d) .. }
//           func @p(.., %mt.aside, %nt.aside: .. shared) {
//             %mt = load(%mt.aside, %b, %h, %t)
//             %C, %ct = affine(%C0, ..)  store(%O, ..)  store(%C0, ..) }
//
// A normalizer is read and written where it lies, so that tasks which share it
// would race: a task had all columns of the state that it normalizes. Here its
// phase alone touches it, and what is left is a recurrence whose columns, and
// whose steps, are tasks. What is made of running maxima alone is a few numbers
// a step, and no other state has to wait for it: with a phase of their own the
// steps of the others are tasks too (passes/tile/parts.c). That is for 16-bit
// programs of sm_90a, whose maxima are found at once (passes/tile/max.c). Not
// for single steps, whose tasks are many already. Level stream, sm_90a and AMD.
// Needs: chunk. Tests: test/passes/distribute.
#include "ir/target.h"
#include "passes/support/outline.h"
#include "passes/support/rebuild.h"
#include "passes/pass.h"
#include "passes/support/lane.h"

enum { MAX_ASIDE = 8 };

typedef enum Which { MAXIMA, COLUMNS } Which;

typedef struct Aside {
  Ctx *cx;
  Func *f;
  Which which;
  uint32_t lane;  // COLUMNS: those that are to be divided
  bool *late;     // by value: varies with them, or is made of what does;
                  // MAXIMA: is made of another state
  bool *made;     // by value: of the states that go aside
  bool *kept;     // by value: the program still needs it
  uint32_t n;
  Value v[MAX_ASIDE], tensor[MAX_ASIDE];  // what crosses
} Aside;

// ---------------------------------------------------------------- which
static bool is_walk(const Op *op) {
  return op->code == OP_AFFINE || op->code == OP_MAXPLUS;
}

static bool goes_aside(const Aside *a, const Op *op) {
  return is_walk(op) && !a->late[op->res[0]];
}

static bool is_late(const Aside *a, const Op *op) {
  bool late = a->which == MAXIMA && op->code == OP_AFFINE;
  for (uint32_t i = 0; i < op->nres && a->which == COLUMNS; i++) {
    const Type *t = ir_type(a->f, op->res[i]);
    late |= t->kind == TK_ELEM && type_has_axis(t, a->lane);
  }
  return late;
}

static void find_late(Aside *a) {
  a->late = NEWN(&a->cx->scratch, bool, a->f->values.n);
  a->made = NEWN(&a->cx->scratch, bool, a->f->values.n);
  for (const Op *op = a->f->body->first; op; op = op->next) {
    bool late = is_late(a, op), made = false;
    for (uint32_t i = 0; i < op->nargs; i++) {
      late |= a->late[op->args[i]];
      made |= a->made[op->args[i]];
    }
    for (uint32_t i = 0; i < op->nres; i++) a->late[op->res[i]] = late;
    for (uint32_t i = 0; i < op->nres; i++)
      a->made[op->res[i]] = made || goes_aside(a, op);
  }
}

// A store that all tasks of the columns would do, or one of maxima.
static bool is_shared(const Aside *a, const Op *op) {
  bool has = op->code != OP_STORE;
  if (a->which == MAXIMA)
    return !has && a->made[op->args[1]] && !a->late[op->args[1]];
  for (uint32_t i = 2; i < op->nargs && !has; i++)
    has = type_has_axis(ir_type(a->f, op->args[i]), a->lane);
  return !has;
}

// Reads of the states, and numbers of steps that are made of them: not vectors,
// which would be larger than what they are made of.
static bool crosses(const Aside *a, Value v) {
  const Type *t = ir_type(a->f, v);
  if (a->late[v] || !a->made[v]) return false;
  if (goes_aside(a, ir_def(a->f, v))) return true;
  for (uint32_t k = 0; k < t->n; k++)
    if (a->f->axes.at[t->axis[k]].role == AX_VEC) return false;
  return true;
}

static void keep(Aside *a, Value v) {
  const Op *op = ir_def(a->f, v);
  if (a->kept[v]) return;
  a->kept[v] = true;
  if (!op || crosses(a, v)) return;
  for (uint32_t i = 0; i < op->nargs; i++) keep(a, op->args[i]);
}

static bool is_written(const Aside *a, Value tensor) {
  for (const Op *op = a->f->body->first; op; op = op->next)
    if (is_shared(a, op) && op->args[0] == tensor) return true;
  return false;
}

static bool add(Aside *a, Value v) {
  if (!a->kept[v] || !crosses(a, v)) return true;
  if (a->n == MAX_ASIDE || ir_type(a->f, v)->n > MAX_AXES) return false;
  a->v[a->n++] = v;
  return true;
}

// Both halves are complete: what the columns share is made without them, and
// the program reads nothing of what the phase has written over.
static bool find_halves(Aside *a) {
  bool some = false, columns = false, ok = true;
  a->kept = NEWN(&a->cx->scratch, bool, a->f->values.n);
  find_late(a);
  for (const Op *op = a->f->body->first; op; op = op->next) {
    some |= goes_aside(a, op);
    columns |= is_walk(op) && !goes_aside(a, op);
    if (is_shared(a, op)) ok &= !a->late[op->args[1]];
    else if (op->code == OP_STORE)
      for (uint32_t i = 1; i < op->nargs; i++) keep(a, op->args[i]);
    ok &= !op->nregions;
  }
  for (const Op *op = a->f->body->first; op && ok; op = op->next) {
    for (uint32_t i = 0; i < op->nres; i++) ok &= add(a, op->res[i]);
    if (op->code == OP_LOAD && a->kept[op->res[0]])
      ok &= !is_written(a, op->args[0]);
  }
  return ok && some && columns;
}

// Maxima that a state of 16-bit vectors waits for.
static bool find_maxima(Aside *a, const PassOpt *opt) {
  bool narrow = false;
  for (const Op *op = a->f->body->first; op; op = op->next) {
    Affine x;
    if (op->code == OP_AFFINE && affine_parts(op, &x))
      narrow |= lane_narrow(a->f, &x) != DT_NONE;
  }
  return narrow && opt->target->gpu.hopper && find_halves(a);
}

// Columns that only such stores keep in one task.
static bool find_columns(Aside *a) {
  for (uint32_t i = 0; i < a->f->axes.n; i++)
    if (lane_divides(a->f, i, true)) return false;
  for (uint32_t i = a->f->axes.n; i-- > 0;) {
    a->lane = i;
    a->n = 0;
    if (lane_divides(a->f, i, false) && find_halves(a)) return true;
  }
  return false;
}

// ---------------------------------------------------------------- the phase
static void add_tensor(Aside *a, uint32_t i) {
  const Type *t = ir_type(a->f, a->v[i]);
  const char *hint = ir_info(a->f, a->v[i])->hint;
  Dim shape[MAX_AXES];
  for (uint32_t k = 0; k < t->n; k++)
    shape[k] = a->f->axes.at[t->axis[k]].extent;
  a->tensor[i] = outline_tensor(a->f, hint ? hint : "state", "aside",
                                type_tensor(t->dtype, t->n, shape));
}

// The coordinates of v from at[0] on.
static uint32_t place(Builder *b, const Type *t, Value *at) {
  for (uint32_t k = 0; k < t->n; k++) at[k] = ir_index(b, t->axis[k]);
  return t->n;
}

static void need(const Aside *a, bool *needed, Value v) {
  const Op *op = ir_def(a->f, v);
  if (needed[v]) return;
  needed[v] = true;
  for (uint32_t i = 0; op && i < op->nargs; i++) need(a, needed, op->args[i]);
}

// What the phase does for its own sake: stores of its own, and domains.
static bool is_done(const Aside *a, const Op *op) {
  return op->code == OP_STORE ? is_shared(a, op) : !op->nres;
}

// By value: what the phase does is made of it.
static bool *find_needed(const Aside *a) {
  bool *needed = NEWN(&a->cx->scratch, bool, a->f->values.n);
  for (uint32_t i = 0; i < a->n; i++) need(a, needed, a->v[i]);
  for (const Op *op = a->f->body->first; op; op = op->next)
    for (uint32_t i = 0; is_done(a, op) && i < op->nargs; i++)
      need(a, needed, op->args[i]);
  return needed;
}

static bool in_phase(const Aside *a, const Op *op, const bool *needed) {
  bool some = is_done(a, op);
  for (uint32_t i = 0; i < op->nres; i++) some |= needed[op->res[i]];
  return some;
}

static Func *make_phase(const Aside *a) {
  const bool *needed = find_needed(a);
  const char *what = a->which == MAXIMA ? "maxima" : "aside";
  Func *g = outline_func(a->f, what, 0, true);
  ValueMap map = {.arena = g->mod->arena};
  Builder b = {.fn = g, .region = g->body, .span = a->f->span};
  outline_params(&map, a->f, g);
  for (const Op *op = a->f->body->first; op; op = op->next) {
    b.span = op->span;
    if (in_phase(a, op, needed)) ir_clone(&b, a->f, op, &map, NULL);
  }
  for (uint32_t i = 0; i < a->n; i++) {
    Value at[MAX_AXES];
    uint32_t n = place(&b, ir_type(a->f, a->v[i]), at);
    ir_store(&b, vmap_get(&map, a->tensor[i]), vmap_get(&map, a->v[i]), at, n);
  }
  rebuild_trim(g);
  return g;
}

// ---------------------------------------------------------------- the program
static bool in_program(Rebuild *r, const Op *op) {
  const Aside *a = r->data;
  if (is_shared(a, op)) return true;
  bool some = false;
  for (uint32_t i = 0; i < a->n; i++) {
    Value at[MAX_AXES];
    if (ir_def(a->f, a->v[i]) != op) continue;
    uint32_t n = place(&r->b, ir_type(a->f, a->v[i]), at);
    rebuild_put(r, a->v[i], ir_load(&r->b, a->tensor[i], at, n));
    some = true;
  }
  return some || goes_aside(a, op);
}

static void remark(const Aside *a) {
  if (a->which == MAXIMA)
    ctx_remark(a->cx, "%s: running maxima are found in a phase before",
               a->f->name);
  else
    ctx_remark(a->cx, "%s: states without %s are walked in a phase before",
               a->f->name, a->f->axes.at[a->lane].name);
}

// Returns whether it puts a phase in front of f.
static bool run(Ctx *cx, Func *f, Which w, const PassOpt *opt) {
  Aside a = {.cx = cx, .f = f, .which = w};
  if (f->axes.n > 64 ||
      !(w == MAXIMA ? find_maxima(&a, opt) : find_columns(&a)))
    return false;
  for (uint32_t k = 0; k < a.n; k++) add_tensor(&a, k);
  outline_put(make_phase(&a), f);
  rebuild_func(f, in_program, &a);
  remark(&a);
  return true;
}

bool pass_distribute(Ctx *cx, Module *m, const PassOpt *opt) {
  if (opt->chunk == 1) return true;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    for (Which w = MAXIMA; w <= COLUMNS; w++)
      i += run(cx, m->funcs.at[i], w, opt);
  return true;
}
