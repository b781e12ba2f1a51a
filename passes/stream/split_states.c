// split_states: states that others are made of, by more than sums, have a phase
// in front, if what is left then has the form that is computed in chunks.
//
//   before  %K, %V = recur(%k0, %v0) {axis = t} ({
//             ^(%Ks: f32{m,d}, %Vs: f32{m,d}):
//             %s = dot(%Q, %Ks1)  %e = f(%s)
//             store(%O, dot(%e, %Vs1), %t, %d)  yield(%Ks1, %Vs1) })
//   after   func @f.front  %K = recur(%k0) {axis = t} ({ ^(%Ks: f32{m,d}):
//                            %s = dot(%Q, %Ks1)  store(%s.made, %s, %t, %m)
//                            yield(%Ks1) })
//           func @f        %V = recur(%v0) {axis = t} ({ ^(%Vs: f32{m,d}):
//                            %e = f(load(%s.made, %t, %m))
//                            store(%O, dot(%e, %Vs1), %t, %d)  yield(%Vs1) })
//
// Of all states that need no others the phase has the fewest; what the others
// take of them is handed on for each step, in workspace: of products of vectors
// the vectors. A phase may be step by step itself, as one of angles that are
// added up. For GPUs, where steps that wait for each other cost most; level
// stream, in front of `chunk`. Tests: test/passes/split_states,
// test/wave/states.test.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/stream/chunk.h"
#include "passes/support/lane.h"
#include "passes/support/outline.h"
#include "passes/support/rebuild.h"

enum { MAX_CUTS = 8, MAX_PHASES = 3 };

typedef uint64_t States;

typedef struct Split {
  Arena *arena;
  Func *f;
  const Op *recur;
  States *dep;   // by value: the states that it is made of
  States front;  // those of the phase
  bool *again;   // by value: others make it of what they read
  Value cut[MAX_CUTS];
  uint32_t ncuts;
  Type type[MAX_CUTS];  // of their tensors
  const char *name[MAX_CUTS];
} Split;

static const Region *step_of(const Split *s) {
  return s->recur->regions[0];
}

static States bit(uint32_t i) {
  return (States)1 << i;
}

static States of_args(const Split *s, const Op *op) {
  States all = 0;
  for (uint32_t i = 0; i < op->nargs; i++) all |= s->dep[op->args[i]];
  return all;
}

// Is it of the phase's states alone?
static bool is_front(const Split *s, States x) {
  return x && !(x & ~s->front);
}

// ---------------------------------------------------------------- what to cut
// The one recurrence of f, if it has states to part; or NULL.
static const Op *recurrence(const Func *f) {
  const Op *r = lane_recurrence(f);
  return r && r->nargs >= 2 && r->nargs <= MAX_STATES ? r : NULL;
}

static void find_deps(Split *s, Arena *a) {
  const Region *r = step_of(s);
  s->dep = NEWN(a, States, s->f->values.n);
  for (uint32_t i = 0; i < s->recur->nargs; i++) {
    s->dep[r->params.at[i]] = bit(i);
    s->dep[s->recur->res[i]] = bit(i);
  }
  for (const Op *op = r->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++) s->dep[op->res[i]] = of_args(s, op);
  for (const Op *op = s->recur->next; op; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++) s->dep[op->res[i]] = of_args(s, op);
}

static const Op *yield_of(const Split *s) {
  return step_of(s)->last;
}

// State i and all that it is made of.
static States closed(const Split *s, uint32_t i) {
  States all = bit(i), before;
  do {
    before = all;
    for (uint32_t k = 0; k < s->recur->nargs; k++)
      if (all & bit(k)) all |= s->dep[yield_of(s)->args[k]];
  } while (all != before);
  return all;
}

static bool choose_front(Split *s) {
  uint32_t n = s->recur->nargs, least = n;
  for (uint32_t i = 0; i < n; i++) {
    States c = closed(s, i);
    uint32_t many = (uint32_t)__builtin_popcountll(c);
    if (many < least) s->front = c, least = many;
  }
  return least < n;
}

static bool add_cut(Split *s, Value v) {
  for (uint32_t i = 0; i < s->ncuts; i++)
    if (s->cut[i] == v) return true;
  if (s->ncuts == MAX_CUTS) return false;
  s->cut[s->ncuts++] = v;
  return true;
}

static int64_t elements(const Split *s, Value v) {
  return lane_elements(s->f, ir_type(s->f, v));
}

static uint32_t vectors(const Split *s, Value v) {
  const Type *t = ir_type(s->f, v);
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->n; i++)
    n += s->f->axes.at[t->axis[i]].role == AX_VEC;
  return n;
}

// Can others do op again, a function of vectors or a sum of one?
static bool can_repeat(const Split *s, const Op *op) {
  if (!op || op->code != OP_REDUCE) return op && outline_can_repeat(op);
  return vectors(s, op->args[0]) == 1 && vectors(s, op->res[0]) == 0;
}

// Elements of what v is made of that others cannot do again.
static int64_t leaves(const Split *s, Value v, bool *seen) {
  const Op *op = ir_def(s->f, v);
  if (!is_front(s, s->dep[v]) || seen[v]) return 0;
  seen[v] = true;
  if (!can_repeat(s, op)) return elements(s, v);
  int64_t n = 0;
  for (uint32_t i = 0; i < op->nargs; i++) n += leaves(s, op->args[i], seen);
  return n;
}

// Others read v, or what they make it of: of a matrix its vectors. all: down to
// its leaves.
static bool need(Split *s, Value v, bool all) {
  const Op *op = ir_def(s->f, v);
  if (!is_front(s, s->dep[v]) || s->again[v]) return true;
  if (!all && vectors(s, v) < 2) {
    bool *seen = NEWN(s->arena, bool, s->f->values.n);
    all = leaves(s, v, seen) <= elements(s, v);
    if (!all) return add_cut(s, v);
  }
  if (!can_repeat(s, op)) return add_cut(s, v);
  s->again[v] = true;
  bool ok = true;
  for (uint32_t i = 0; i < op->nargs; i++) ok &= need(s, op->args[i], all);
  return ok;
}

// What ops of the other states take of the phase's.
static bool find_cuts(Split *s) {
  bool ok = true;
  for (const Op *op = step_of(s)->first; op; op = op->next) {
    States all = of_args(s, op);
    for (uint32_t i = 0; i < op->nargs; i++) {
      bool other =
          op->code == OP_YIELD ? !(s->front & bit(i)) : all & ~s->front;
      if (other) ok &= need(s, op->args[i], false);
    }
  }
  for (const Op *op = s->recur->next; op; op = op->next) {
    States all = of_args(s, op);
    ok &= !(all & s->front) || is_front(s, all);
  }
  return ok && s->ncuts;
}

// The axes of v's tensor: a state has one for the steps too.
static uint32_t axes_of(const Split *s, Value v, uint32_t *axis) {
  const Type *t = ir_type(s->f, v);
  uint32_t step = (uint32_t)ir_attr_i(s->recur, AT_AXIS, 0), n = t->n;
  bool has = type_has_axis(t, step);
  for (uint32_t k = 0, at = 0; k < n; k++) {
    if (!has && t->axis[k] > step) axis[at++] = step, has = true;
    axis[at++] = t->axis[k];
  }
  if (!type_has_axis(t, step)) {
    if (!has) axis[n] = step;
    n++;
  }
  return n;
}

static bool name_cuts(Split *s) {
  Module *m = s->f->mod;
  for (uint32_t i = 0; i < s->ncuts; i++) {
    const ValueInfo *v = ir_info(s->f, s->cut[i]);
    uint32_t axis[MAX_AXES + 1], n = axes_of(s, s->cut[i], axis);
    Dim shape[MAX_AXES + 1];
    if (n > MAX_AXES) return false;
    for (uint32_t k = 0; k < n; k++) shape[k] = s->f->axes.at[axis[k]].extent;
    s->type[i] = type_tensor(v->type.dtype, n, shape);
    const char *name =
        arena_printf(m->arena, "%s.made%u", v->hint ? v->hint : "row",
                     s->f->params.n + i);
    s->name[i] = intern(&m->cx->names, name);
  }
  return true;
}

// ---------------------------------------------------------------- copies
typedef struct Copy {
  const Split *s;
  bool front;  // of the phase
  Func *to;
  Builder b;
  ValueMap map;
  uint32_t axis[64];
} Copy;

static bool has_state(const Copy *c, uint32_t i) {
  return c->front == !!(c->s->front & bit(i));
}

static uint32_t coordinates(Copy *c, Value v, Value *at) {
  uint32_t axis[MAX_AXES + 1], n = axes_of(c->s, v, axis);
  for (uint32_t k = 0; k < n; k++) at[k] = ir_index(&c->b, axis[k]);
  return n;
}

static Value tensor_of(const Copy *c, uint32_t cut) {
  return c->to->params.at[c->s->f->params.n + cut].v;
}

// Of v: stored by the phase.
static void hand_on(Copy *c, Value v) {
  Value at[MAX_AXES];
  for (uint32_t i = 0; i < c->s->ncuts; i++) {
    if (c->s->cut[i] != v) continue;
    uint32_t n = coordinates(c, v, at);
    ir_store(&c->b, tensor_of(c, i), vmap_get(&c->map, v), at, n);
  }
}

static void read_cuts(Copy *c) {
  Value at[MAX_AXES];
  for (uint32_t i = 0; i < c->s->ncuts; i++) {
    uint32_t n = coordinates(c, c->s->cut[i], at);
    Value x = ir_load(&c->b, tensor_of(c, i), at, n);
    vmap_put(&c->map, c->s->cut[i], x);
  }
}

// Is op one of the copy's? What needs no state both have, but stores.
static bool wants(const Copy *c, const Op *op) {
  States all = of_args(c->s, op);
  if (!all) return op->code != OP_STORE || !c->front;
  bool again = !c->front && op->nres && c->s->again[op->res[0]];
  return again || c->front == is_front(c->s, all);
}

static void copy_op(Copy *c, const Op *op) {
  if (!wants(c, op)) return;
  c->b.span = op->span;
  ir_clone(&c->b, c->s->f, op, &c->map, c->axis);
  for (uint32_t i = 0; i < op->nres && c->front; i++) hand_on(c, op->res[i]);
}

static void copy_step(Copy *c, Op *made) {
  const Region *from = step_of(c->s);
  Builder outer = c->b;
  Value v[MAX_STATES];
  uint32_t n = 0;
  c->b.region = made->regions[0], c->b.before = NULL;
  for (uint32_t i = 0; i < from->params.n; i++) {
    if (!has_state(c, i)) continue;
    const ValueInfo *info = ir_info(c->s->f, from->params.at[i]);
    Value p = ir_region_param(made->regions[0], info->type, info->hint);
    vmap_put(&c->map, from->params.at[i], p);
  }
  if (!c->front) read_cuts(c);
  for (uint32_t i = 0; i < from->params.n && c->front; i++)
    if (has_state(c, i)) hand_on(c, from->params.at[i]);
  for (const Op *op = from->first; op->code != OP_YIELD; op = op->next)
    copy_op(c, op);
  for (uint32_t i = 0; i < from->params.n; i++)
    if (has_state(c, i)) v[n++] = vmap_get(&c->map, yield_of(c->s)->args[i]);
  ir_yield(&c->b, v, n);
  c->b = outer;
}

static void copy_recurrence(Copy *c) {
  const Op *op = c->s->recur;
  Value v[MAX_STATES];
  Type type[MAX_STATES];
  uint32_t n = 0;
  for (uint32_t i = 0; i < op->nargs; i++) {
    if (!has_state(c, i)) continue;
    type[n] = *ir_type(c->s->f, op->res[i]);
    v[n++] = vmap_get(&c->map, op->args[i]);
  }
  c->b.span = op->span;
  Op *made = ir_op(&c->b, OP_RECUR, v, n, op->attrs, op->nattrs, type, n, 1);
  copy_step(c, made);
  for (uint32_t i = 0, k = 0; i < op->nres; i++) {
    if (!has_state(c, i)) continue;
    ir_info(c->to, made->res[k])->hint = ir_info(c->s->f, op->res[i])->hint;
    vmap_put(&c->map, op->res[i], made->res[k++]);
  }
}

static void fill(const Split *s, Func *to, bool front) {
  Copy c = {.s = s, .front = front, .to = to, .map.arena = s->f->mod->arena};
  c.b = (Builder){.fn = to, .region = to->body, .span = s->f->span};
  for (uint32_t i = 0; i < s->ncuts; i++)
    ir_param(to, s->name[i], PR_SHARED, s->type[i]);
  for (uint32_t i = 0; i < s->f->axes.n; i++) c.axis[i] = i;
  outline_params(&c.map, s->f, to);
  for (const Op *op = s->f->body->first; op; op = op->next) {
    if (op == s->recur) copy_recurrence(&c);
    else copy_op(&c, op);
  }
  ir_sweep(to);
}

// ---------------------------------------------------------------- pass
typedef struct Phases {
  Func *at[MAX_PHASES + 1];  // the last is the program
  uint32_t n;                // phases
} Phases;

// A phase of f's states, and what is left. False: none.
static bool take(Ctx *cx, Phases *p) {
  Func *f = p->at[p->n];
  Split s = {.f = f, .recur = recurrence(f)};
  if (!s.recur) return false;
  find_deps(&s, &cx->scratch);
  if (!choose_front(&s)) return false;
  s.arena = &cx->scratch;
  s.again = NEWN(s.arena, bool, f->values.n);
  if (!find_cuts(&s) || !name_cuts(&s)) return false;
  Func *g = outline_func(f, "front", p->n, true);
  Func *rest = rebuild_signature(f->mod, f);
  fill(&s, g, true);
  fill(&s, rest, false);
  p->at[p->n++] = g;
  p->at[p->n] = rest;
  return true;
}

static bool has_form(Ctx *cx, Func *f) {
  for (Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_RECUR) return chunk_has_form(cx, f, op);
  return false;
}

// The phases in front of f, in whose place what is left stands.
static void put(Phases *p, Func *f) {
  Module *m = f->mod;
  Func *rest = p->at[p->n];
  for (uint32_t i = f->params.n; i < rest->params.n; i++) {
    const ValueInfo *v = ir_info(rest, rest->params.at[i].v);
    outline_share(f, v->hint, v->type, i);
  }
  for (uint32_t i = 0; i < p->n; i++) outline_put(p->at[i], f);
  for (uint32_t i = 0; i < m->funcs.n; i++)
    if (m->funcs.at[i] == f) m->funcs.at[i] = rest;
}

static uint32_t split(Ctx *cx, Func *f) {
  Phases p = {.at = {f}};
  if (!recurrence(f) || has_form(cx, f)) return 0;
  bool ok = false;
  while (!ok && p.n < MAX_PHASES && outline_beside(f) + p.n < MAX_FRONT &&
         take(cx, &p))
    ok = has_form(cx, p.at[p.n]);
  if (!ok) return 0;
  put(&p, f);
  ctx_remark(cx, "%s: states in %u phases, one after the other", f->name,
             p.n + 1);
  return p.n;
}

bool pass_split_states(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n && opt->chunk != 1; i++)
    i += split(cx, m->funcs.at[i]);
  return true;
}
