// Lowering of recurrences: `state`, `step`, `repeat`. A step is a `recur` over
// its axis that carries every state declared before it.
#include "frontend/lower.h"

#include <assert.h>

enum { MAX_STATES = 32 };

static const Sym *state_sym(const Stmt *s) {
  return s->names.at[0].sym;
}

// v as a state: its dtype, with the canonical axes of its shape. tf32 says how
// products may be rounded: the state is f32.
static Val as_state(Fx *x, const Sym *s, Val v) {
  Val in[2] = {{.rank = s->ty.rank}, v}, shape;
  uint64_t used = 0;
  for (uint32_t i = 0; i < s->ty.rank; i++) {
    in[0].dim[i] = s->ty.shape[i];
    in[0].axis[i] = low_vec_axis(x, s->ty.shape[i], used);
    used |= (uint64_t)1 << in[0].axis[i];
  }
  in[0].v = v.v;
  val_align(x, in, 2, &shape);
  DType t = s->ty.dtype == DT_TF32 ? DT_F32 : s->ty.dtype;
  shape.v = val_cast(x, in[1], t).v;
  shape.weak = false;
  return shape;
}

void low_state(Fx *x, const Stmt *s) {
  const Sym *sym = state_sym(s);
  low_bind(x, sym, as_state(x, sym, low_expr(x, s->expr)));
  if (x->states.n >= MAX_STATES)
    low_error(x->low, s->span, "more than %d states", MAX_STATES);
  else vec_push(x->low->a, &x->states, s);
}

void low_set_state(Fx *x, const Stmt *s) {
  const Sym *sym = s->target.sym;
  low_bind(x, sym, as_state(x, sym, low_expr(x, s->expr)));
}

// A state varies with all parallel axes, its shape, and the steps around.
static Type state_type(const Fx *x, const Val *v) {
  Type t = type_scalar(low_dtype_of(x, *v));
  for (uint32_t i = 0; i < x->f->axes.n; i++)
    if (x->f->axes.at[i].role == AX_PAR) t = type_with(t, i, DIM_NONE);
  for (uint32_t i = 0; i < v->rank; i++) t = type_with(t, v->axis[i], DIM_NONE);
  for (uint32_t i = 0; i < x->steps.n; i++)
    t = type_with(t, x->steps.at[i], DIM_NONE);
  return t;
}

static Val current(const Fx *x, const Stmt *s) {
  Val v = {0};
  bool found = low_bound(x, state_sym(s), &v);
  assert(found);
  (void)found;
  return v;
}

static void set_value(Fx *x, const Stmt *s, Value v) {
  Val now = current(x, s);
  now.v = v;
  low_bind(x, state_sym(s), now);
}

static void walk(Fx *x, const Stmt *s, Region *r, uint32_t axis,
                 const Type *types) {
  uint32_t n = x->states.n;
  Value old[MAX_STATES], next[MAX_STATES];
  const Sym *index = s->names.at[0].sym;
  Builder outer = x->b;
  Value outer_valid = x->step_valid;
  x->b.region = r;
  x->b.before = NULL;
  vec_push(x->low->a, &x->steps, axis);
  for (uint32_t i = 0; i < n; i++) {
    old[i] = ir_region_param(r, types[i], state_sym(x->states.at[i])->name);
    set_value(x, x->states.at[i], old[i]);
  }
  if (low_ragged(x, index->dim)) {
    Value end = low_dim_value(x, index->dim, s->span).v;
    x->step_valid = ir_2(&x->b, OP_LT, low_coord(x, axis), end);
  }
  low_body(x, s->body.at, s->body.n);
  for (uint32_t i = 0; i < n; i++) {
    next[i] = current(x, x->states.at[i]).v;
    if (x->step_valid && x->step_valid != outer_valid && next[i] != old[i])
      next[i] = ir_3(&x->b, OP_SELECT, x->step_valid, next[i], old[i]);
  }
  ir_yield(&x->b, next, n);
  x->steps.n--;
  x->step_valid = outer_valid;
  x->b = outer;
}

void low_step(Fx *x, const Stmt *s) {
  uint32_t axis = low_axis(x, s->names.at[0].sym), n = x->states.n;
  Value init[MAX_STATES];
  Type types[MAX_STATES];
  for (uint32_t i = 0; i < n; i++) {
    Val v = current(x, x->states.at[i]);
    init[i] = v.v;
    types[i] = state_type(x, &v);
  }
  IrAttr attrs[2] = {attr_i(AT_AXIS, axis), attr_i(AT_REVERSE, 1)};
  Op *op =
      ir_op(&x->b, OP_RECUR, init, n, attrs, s->reverse ? 2 : 1, types, n, 1);
  walk(x, s, op->regions[0], axis, types);
  for (uint32_t i = 0; i < n; i++) {
    const Stmt *state = x->states.at[i];
    set_value(x, state, op->res[i]);
    ir_info(x->f, op->res[i])->hint = state_sym(state)->name;
  }
}

void low_write_back(Fx *x) {
  for (uint32_t i = 0; i < x->states.n; i++) {
    const Stmt *s = x->states.at[i];
    const Param *p = fe_state_inout(x->decl, s);
    if (!p) continue;
    const Expr *e = s->expr;
    bool indexed = e->kind == EX_INDEX;
    low_store(x, p->sym, indexed ? e->items.at : NULL, indexed ? e->items.n : 0,
              current(x, s), s->span);
  }
}
