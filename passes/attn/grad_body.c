// grad, part 5: recurrences of any step.
//
//   before  s[t + 1] = f(s[t], x[t])    O[t] = h(s[t], x[t])
//   after   states:      s[t], in front of each step, is stored
//           cotangents:  l[t] = l[t + 1] df/ds + d_O[t] dh/ds, the other way
//           g_X[t] = l[t + 1] df/dx + d_O[t] dh/dx
//
// Where the states in front of steps are known, steps are points like any
// others: rules differentiate them, and sums over steps are made of what is
// stored. Both are recurrences whose steps are nodes of the graph; the second
// is linear in l. They go step by step, and keep each state of each step.
#include "passes/attn/grad_emit.h"
#include "passes/support/cost.h"

static bool is_body(const Grad *g, const GradNode *n) {
  return n->code == GRAD_WALK && g->walks.at[n->attr].nstates;
}

bool grad_has_steps(const Grad *g) {
  for (uint32_t i = 0; i < g->walks.n; i++)
    if (g->walks.at[i].nstates) return true;
  return false;
}

// False: kernels make what x needs.
static bool find_steps(const Grad *g, Gid x, Gid *walk, bool *seen) {
  const GradNode *n = grad_at(g, x);
  if (seen[x]) return true;
  seen[x] = true;
  if (n->code == GRAD_RESULT) {
    if (n->arg[0] > *walk) *walk = n->arg[0];
    return n->attr >= GRAD_STATES && n->attr < GRAD_LAST;
  }
  if (n->code == OP_LOAD) return g->tensors.at[n->tensor].from != GF_MADE;
  if (grad_is_made(n->code)) return false;
  if (n->code == OP_REDUCE && (n->over & ~grad_role(g, AX_VEC))) return false;
  for (uint32_t i = 0; i < n->n; i++)
    if (!find_steps(g, n->arg[i], walk, seen)) return false;
  return true;
}

Gid grad_steps_of(const Grad *g, Gid x) {
  Gid walk = 0;
  if (!grad_has_steps(g)) return 0;
  bool *seen = NEWN(g->arena, bool, g->nodes.n);
  return find_steps(g, x, &walk, seen) ? walk : 0;
}

const Gid *grad_operands(const Grad *g, Gid x, uint32_t *n) {
  const GradNode *node = grad_at(g, x);
  *n = node->n;
  if (!is_body(g, node)) return node->arg;
  const GradWalk *w = &g->walks.at[node->attr];
  Gid *all = NEWN(g->arena, Gid, 2 * w->nstates + 1);
  *n = 0;
  for (uint32_t i = 0; i < w->nstates; i++) {
    all[(*n)++] = w->any[i].init;
    all[(*n)++] = w->any[i].next;
  }
  return all;
}

// ---------------------------------------------------------------- walks
static Gid result(Grad *g, const GradWalk *w, uint32_t attr,
                  const GradState *s) {
  GradNode n = {.code = GRAD_RESULT,
                .dtype = s->dtype,
                .axes = s->axes,
                .attr = attr,
                .n = 1,
                .hint = s->name,
                .span = w->span};
  if (attr < GRAD_LAST) n.axes |= grad_bit(w->axis);
  return grad_put(g, n, &w->node);
}

// The walk, of states whose next ones are not known yet.
static void open_walk(Grad *g, GradWalk *w) {
  GradNode node = {.code = GRAD_WALK,
                   .dtype = DT_F32,
                   .axes = grad_bit(w->axis),
                   .attr = g->walks.n,
                   .span = w->span};
  for (uint32_t i = 0; i < w->nstates; i++) node.axes |= w->any[i].axes;
  w->exact = true;
  w->state = node.axes & ~grad_bit(w->axis);
  w->node = grad_put(g, node, NULL);
  for (uint32_t i = 0; i < w->nstates; i++)
    w->any[i].front = result(g, w, GRAD_STATES + i, &w->any[i]);
  vec_push(g->arena, &g->walks, *w);
}

static GradWalk *walk_of(const Grad *g, Gid node) {
  return &g->walks.at[grad_at(g, node)->attr];
}

// ---------------------------------------------------------------- import
static uint64_t axes_of_type(const Grad *g, const Type *t) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < t->n; i++) all |= grad_bits_of(g, t->axis[i]);
  return all;
}

void grad_open_body(Grad *g, const Op *op, const Gid *init) {
  GradWalk w = {.reverse = ir_attr_i(op, AT_REVERSE, 0),
                .name = "states",
                .span = op->span,
                .nstates = op->nargs};
  uint64_t axis = grad_bits_of(g, (uint32_t)ir_attr_i(op, AT_AXIS, 0));
  while (!(axis & grad_bit(w.axis))) w.axis++;
  w.any = NEWN(g->arena, GradState, op->nargs);
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Type *t = ir_type(g->f, op->regions[0]->params.at[i]);
    w.any[i] = (GradState){.dtype = t->dtype,
                           .axes = axes_of_type(g, t),
                           .init = init[i],
                           .name = ir_info(g->f, op->res[i])->hint};
  }
  open_walk(g, &w);
  // numbers of channels: neighbours of a tile are these, not steps
  if (!(w.state & grad_role(g, AX_VEC))) g->front |= grad_bit(w.axis);
  for (uint32_t i = 0; i < op->nargs; i++)
    g->node[op->regions[0]->params.at[i]] = w.any[i].front;
}

// Where the program's sequences end: what all states and stores wait for.
static void put_end(Grad *g, const GradWalk *w) {
  Gid end = 0;
  for (uint32_t i = 0; i < w->nstates; i++) {
    const GradNode *n = grad_at(g, w->any[i].next);
    if (n->code != OP_SELECT || n->arg[2] != w->any[i].front) return;
    if (end && n->arg[0] != end) return;
    end = n->arg[0];
  }
  uint64_t step = grad_bit(w->axis);
  const GradNode *lt = grad_at(g, end);
  if (lt->code != OP_LT || (grad_at(g, lt->arg[1])->axes & step) ||
      lt->arg[0] != grad_index(g, w->axis))
    return;
  for (uint32_t i = 0; i < g->outs.n; i++)
    if ((grad_at(g, g->outs.at[i].v)->axes & step) && g->outs.at[i].mask != end)
      return;
  Gid *domain = &g->domain[w->axis];
  *domain = *domain ? grad_2(g, OP_AND, *domain, end) : end;
}

void grad_close_body(Grad *g, const Op *op, const Gid *next) {
  GradWalk *w =
      walk_of(g, grad_at(g, g->node[op->regions[0]->params.at[0]])->arg[0]);
  Gid *args = NEWN(g->arena, Gid, w->nstates + 1);
  args[0] = w->node;
  for (uint32_t i = 0; i < w->nstates; i++) {
    GradState *s = &w->any[i];
    args[i + 1] = s->next = next[i];
    s->last = result(g, w, GRAD_LAST + i, s);
    g->node[op->res[i]] = s->last;
  }
  GradNode end = {.code = GRAD_RESULT,
                  .dtype = DT_F32,
                  .axes = w->state | grad_bit(w->axis),
                  .attr = GRAD_NEXT,
                  .n = w->nstates + 1,
                  .span = w->span};
  grad_put(g, end, args);
  put_end(g, w);
}

// ---------------------------------------------------------------- adjoints
bool grad_find_active_states(Grad *g) {
  bool more = false;
  for (uint32_t i = 0; i < g->walks.n; i++) {
    const GradWalk *w = &g->walks.at[i];
    for (uint32_t k = 0; k < w->nstates; k++) {
      const GradState *s = &w->any[k];
      if (g->active[s->front] || !(g->active[s->init] || g->active[s->next]))
        continue;
      g->active[s->front] = g->active[s->last] = more = true;
    }
  }
  return more;
}

void grad_seed_bodies(Grad *g) {
  for (Gid x = 1; x < g->forward; x++) {
    const GradNode *n = grad_at(g, x);
    if (n->code == GRAD_RESULT && n->attr == GRAD_NEXT) g->adjoint[x] = x;
  }
}

// The cotangents of states behind each step are those in front of the mirror's.
void grad_reverse_step(Grad *g, const GradWalk *w) {
  GradWalk m = {.axis = w->axis,
                .reverse = !w->reverse,
                .name = "cotangents",
                .span = w->span};
  m.any = NEWN(g->arena, GradState, w->nstates);
  for (uint32_t i = 0; i < w->nstates; i++) {
    const GradState *s = &w->any[i];
    if (!g->active[s->front]) continue;
    Gid c = g->adjoint[s->last];
    GradState *d = &m.any[m.nstates++];
    *d = *s;
    d->init = c ? c : grad_num(g, 0);
    d->name = arena_printf(g->m->arena, "d_%s", s->name ? s->name : "state");
  }
  if (!m.nstates) return;
  open_walk(g, &m);
  walk_of(g, w->node)->mirror = m.node;
  g->adjoint[w->node] = w->node;  // so that its rule comes
  for (uint32_t i = 0, k = 0; i < w->nstates; i++) {
    const GradState *s = &w->any[i];
    if (g->active[s->front])
      grad_give(g, s->next, m.any[k++].front, s->axes | grad_bit(w->axis));
  }
}

void grad_reverse_body(Grad *g, const GradWalk *w) {
  GradWalk *m = w->mirror ? walk_of(g, w->mirror) : NULL;
  for (uint32_t i = 0, k = 0; i < w->nstates && m; i++) {
    const GradState *s = &w->any[i];
    if (!g->active[s->front]) continue;
    GradState *d = &m->any[k];
    Gid c = g->adjoint[s->front];
    d->next = c ? c : grad_num(g, 0);
    d->last = result(g, m, GRAD_LAST + k++, d);
    grad_give(g, s->init, d->last, s->axes);
  }
}

// ---------------------------------------------------------------- kernels
static Type state_type(const Emit *e, const GradState *s) {
  Type t = type_scalar(s->dtype);
  for (uint32_t i = 0; i < e->g->axes.n; i++)
    if (s->axes & grad_bit(i)) t = type_with(t, e->at[i], DIM_NONE);
  return t;
}

static bool is_last(const GradNode *n) {
  return n->code == GRAD_RESULT && n->attr >= GRAD_LAST;
}

// What the kernel stores of last states, or of each step.
static void stores(Emit *e, bool last) {
  for (uint32_t i = 0; i < e->k->n; i++) {
    GradStore to = e->k->store[i];
    if (is_last(grad_at(e->g, to.v)) != last) continue;
    to.physical = true;  // behind the end nothing is stored
    grad_emit_store(e, &to, grad_emit(e, to.v));
  }
}

// The state behind a step; behind the end of a sequence it is as it was.
static Value emit_next(Emit *e, const GradState *s, Gid end) {
  const GradNode *n = grad_at(e->g, s->next);
  Value v = ir_cast(&e->b, s->dtype, grad_emit(e, s->next));
  if (!end || (n->code == OP_SELECT && n->arg[0] == end)) return v;
  return ir_3(&e->b, OP_SELECT, grad_emit(e, end), v, e->memo[s->front]);
}

static void emit_step(Emit *e, const GradWalk *w, Region *r, const Type *type) {
  Value next[64], keep = e->keep;
  Gid end = e->g->domain[w->axis];
  for (uint32_t i = 0; i < w->nstates; i++)
    e->memo[w->any[i].front] = ir_region_param(r, type[i], w->any[i].name);
  for (uint32_t i = 0; i < w->nstates; i++)
    next[i] = emit_next(e, &w->any[i], end);
  if (end) e->keep = grad_emit(e, end);
  stores(e, false);
  e->keep = keep;
  ir_yield(&e->b, next, w->nstates);
}

void grad_emit_body(Emit *e) {
  const GradWalk w = *walk_of(e->g, e->k->walk);
  Builder outer = e->b;
  Value init[64];
  Type type[64];
  for (uint32_t i = 0; i < w.nstates; i++) {
    const GradState *s = &w.any[i];
    init[i] = ir_cast(&e->b, s->dtype, grad_emit(e, s->init));
    type[i] = state_type(e, s);
  }
  for (uint32_t i = 0; i < e->k->n; i++)
    for (uint32_t k = 0; k < e->k->store[i].n; k++)
      if (is_last(grad_at(e->g, e->k->store[i].v)))
        grad_emit(e, e->k->store[i].index[k]);
  IrAttr at[2] = {attr_i(AT_AXIS, e->at[w.axis]), attr_i(AT_REVERSE, 1)};
  Op *op = ir_op(&e->b, OP_RECUR, init, w.nstates, at, w.reverse ? 2 : 1, type,
                 w.nstates, 1);
  e->b =
      (Builder){.fn = outer.fn, .region = op->regions[0], .span = outer.span};
  emit_step(e, &w, op->regions[0], type);
  e->b = outer;
  for (uint32_t i = 0; i < w.nstates; i++) e->memo[w.any[i].last] = op->res[i];
  stores(e, true);
}

bool grad_has_matrices(const Grad *g, Gid walk) {
  const GradWalk *w = &g->walks.at[grad_at(g, walk)->attr];
  bool some = false;
  for (uint32_t i = 0; i < w->nstates; i++) {
    uint64_t vecs = w->any[i].axes & grad_role(g, AX_VEC);
    some |= (vecs & (vecs - 1)) != 0;
  }
  return some && g->opt->target->kind == TARGET_GPU;
}

// Matrices that x is made of, of nodes that were not seen.
static uint32_t matrices(const Grad *g, Gid x, bool *seen) {
  const GradNode *n = grad_at(g, x);
  uint64_t vecs = n->axes & grad_role(g, AX_VEC) & ~g->local;
  bool read = n->code == OP_LOAD || n->code == GRAD_RESULT;
  if (seen[x]) return 0;
  seen[x] = true;
  if (read || grad_is_made(n->code)) return read && (vecs & (vecs - 1));
  uint32_t all = 0;
  for (uint32_t i = 0; i < n->n; i++) all += matrices(g, n->arg[i], seen);
  return all;
}

bool grad_has_room(const Grad *g, const GradKernel *k, const GradStore *s) {
  bool *seen = NEWN(g->arena, bool, g->nodes.n);
  uint32_t own = grad_has_steps(g) ? matrices(g, s->v, seen) : 0, all = own;
  for (uint32_t i = 0; own && i < k->n; i++)
    all += matrices(g, k->store[i].v, seen);
  return all <= COST_GRAD_MATRICES || !own;
}
