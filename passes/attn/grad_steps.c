// grad, part 9: a kernel that is a recurrence: its walk as a `recur`, of which
// pass `chunk` finds the form that is computed in chunks.
#include "passes/attn/grad_emit.h"
#include "passes/support/cost.h"

typedef struct Steps {
  Emit *e;
  const GradWalk *w;
  Value read[MAX_ITEMS + 1];  // by result
  uint32_t nreads;
  Value written[MAX_ITEMS];  // by item
} Steps;

static Value as_f32(Emit *e, Value v) {
  return ir_cast(&e->b, DT_F32, v);
}

// The axes of the function for these of the graph.
static uint32_t axes_of(const Emit *e, uint64_t axes, uint32_t *out) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < e->g->axes.n; i++)
    if (axes & grad_bit(i)) out[n++] = e->at[i];
  return n;
}

static Type state_type(const Emit *e, uint64_t axes) {
  uint32_t at[64], n = axes_of(e, axes, at);
  Type t = type_scalar(DT_F32);
  for (uint32_t i = 0; i < n; i++) t = type_with(t, at[i], DIM_NONE);
  return t;
}

// Does x vary with what is left of a state y?
static bool is_each(const Emit *e, Value x, Value y, uint64_t over) {
  const Func *f = e->b.fn;
  const Type *t = ir_type(f, y);
  bool some = false;
  for (uint32_t i = 0; i < e->g->axes.n; i++)
    some |= !(over & grad_bit(i)) && f->axes.at[e->at[i]].role == AX_VEC &&
            type_has_axis(ir_type(f, x), e->at[i]) &&
            type_has_axis(t, e->at[i]);
  return some;
}

// The product of x and y, summed over these axes.
static Value product(const Steps *s, Value x, Value y, uint64_t over) {
  Emit *e = s->e;
  uint32_t at[64], n = axes_of(e, over, at);
  if (!n) {
    y = as_f32(e, y);
    return ir_2(&e->b, OP_MUL, as_f32(e, x), y);
  }
  if (is_each(e, x, y, over))
    return ir_reduce(&e->b, RK_SUM, ir_2(&e->b, OP_MUL, as_f32(e, x), y), at,
                     n);
  if (s->w->narrow) {
    x = ir_cast(&e->b, s->w->narrow, x);
    y = ir_cast(&e->b, s->w->narrow, y);
  }
  y = grad_widen(e, y, over);
  return ir_dot(&e->b, grad_widen(e, x, over), y, at, n);
}

static Value written(Steps *s, const GradItem *item) {
  Builder *b = &s->e->b;
  Value w = item->w ? as_f32(s->e, grad_emit(s->e, item->w)) : 0;
  if (!item->less) return w;
  Value old = s->read[item->less];
  return w ? ir_2(b, OP_SUB, w, old) : ir_1(b, OP_NEG, old);
}

static Value step(Steps *s, Value state, uint32_t i) {
  Emit *e = s->e;
  const GradItem *item = &s->w->item[i];
  Value x = grad_emit(e, item->x);
  switch (item->kind) {
  case GI_DECAY:
    x = ir_1(&e->b, OP_EXP2, as_f32(e, x));
    return ir_2(&e->b, OP_MUL, x, state);
  case GI_READ:
    s->read[++s->nreads] = product(s, x, state, item->over);
    return state;
  case GI_MAX:
    x = ir_2(&e->b, OP_ADD, state, as_f32(e, x));
    return ir_2(&e->b, OP_MAX, x, as_f32(e, grad_emit(e, item->w)));
  case GI_WRITE: break;
  }
  s->written[i] = written(s, item);
  Value add = product(s, x, s->written[i], item->over);
  return ir_2(&e->b, OP_ADD, state, add);
}

// What is made of results: none of them.
enum { MADE = -1 };

static int64_t result_of(const Emit *e, const GradStore *s) {
  const GradNode *n = grad_at(e->g, s->v);
  return n->code == GRAD_RESULT ? n->attr : MADE;
}

// Result k of a step.
static Value value_of(const Steps *s, int64_t k) {
  return k >= GRAD_WRITES ? s->written[k - GRAD_WRITES] : s->read[k];
}

// The results that x is made of are the step's.
static void know(Steps *s, Gid x) {
  Emit *e = s->e;
  const GradNode *n = grad_at(e->g, x);
  if (n->code == GRAD_RESULT) e->memo[x] = value_of(s, n->attr);
  else if (n->code != OP_LOAD)
    for (uint32_t i = 0; i < n->n; i++) know(s, n->arg[i]);
}

// The state in front of a step is stored where that begins a block.
static void at_border(const Steps *s, GradStore *to) {
  Grad *g = s->e->g;
  Gid t = grad_index(g, s->w->axis), size = grad_int(g, COST_GRAD_CHUNK);
  Gid end = grad_dim(g, g->axes.at[s->w->axis].axis.extent);
  Gid in = grad_2(g, OP_MOD, t, size), one = grad_int(g, 1);
  Gid first = grad_int(g, s->w->reverse ? COST_GRAD_CHUNK - 1 : 0);
  to->mask = grad_2(g, OP_EQ, in, first);
  if (s->w->reverse) {
    Gid last = grad_2(g, OP_EQ, t, grad_2(g, OP_SUB, end, one));
    to->mask = grad_2(g, OP_OR, to->mask, last);
  }
  for (uint32_t i = 0; i < to->n; i++)
    if (grad_at(g, to->index[i])->axes & ~s->w->state)
      to->index[i] = grad_2(g, OP_FLOORDIV, t, size);
}

// The stores of the last state, or of what a step makes of that in front of it.
static void stores(Steps *s, bool last, Value state) {
  Emit *e = s->e;
  for (uint32_t i = 0; i < e->k->n; i++) {
    GradStore to = e->k->store[i];
    int64_t k = result_of(e, &to);
    if (last != !k) continue;
    to.physical = true;  // behind the end nothing is stored
    if (k == GRAD_FRONT) at_border(s, &to);
    if (k == MADE) know(s, to.v);
    Value v = k == MADE               ? grad_emit(e, to.v)
              : !k || k == GRAD_FRONT ? state
                                      : value_of(s, k);
    grad_emit_store(e, &to, v);
  }
}

static void body(Steps *s, Value state) {
  Emit *e = s->e;
  const GradWalk *w = s->w;
  Value next = state, valid = 0;
  if (w->limit) {
    Value t = ir_index(&e->b, e->at[w->axis]);
    valid = ir_2(&e->b, OP_LT, t, grad_emit(e, w->limit));
  }
  for (uint32_t i = 0; i < w->n; i++) next = step(s, next, i);
  Value keep = e->keep;
  e->keep = valid;
  stores(s, false, state);
  e->keep = keep;
  if (valid) next = ir_3(&e->b, OP_SELECT, valid, next, state);
  ir_yield(&e->b, &next, 1);
}

void grad_emit_walk(Emit *e) {
  const GradWalk w = e->g->walks.at[grad_at(e->g, e->k->walk)->attr];
  Steps s = {.e = e, .w = &w};
  Builder outer = e->b;
  Type type = state_type(e, w.state);
  Value init =
      w.init ? as_f32(e, grad_emit(e, w.init)) : ir_const_f(&e->b, DT_F32, 0);
  for (uint32_t i = 0; i < e->k->n; i++)
    for (uint32_t k = 0; k < e->k->store[i].n; k++)
      if (!result_of(e, &e->k->store[i])) grad_emit(e, e->k->store[i].index[k]);
  IrAttr at[2] = {attr_i(AT_AXIS, e->at[w.axis]), attr_i(AT_REVERSE, 1)};
  Op *op = ir_op(&e->b, OP_RECUR, &init, 1, at, w.reverse ? 2 : 1, &type, 1, 1);
  Region *r = op->regions[0];
  ir_info(outer.fn, op->res[0])->hint = w.name;
  e->b = (Builder){.fn = outer.fn, .region = r, .span = outer.span};
  body(&s, ir_region_param(r, type, "state"));
  e->b = outer;
  stores(&s, true, op->res[0]);
}
