// split_channels: of a recurrence whose state has no columns the last axis of
// tasks is cut into vectors of 64 channels, which are its columns.
//
//   before  axes(b par B, c par C, t step S, n vec 16)
//           %h = recur(%h0) {axis = t} ({ ^(%s: f32{b,c,n}):
//             %x = load(%X, %b, %t, %c)  ..  store(%Y, dot(%C, %s), %b, %t, %c)
//   after   axes(b par B, c par ceil(C / 64), t step S, n vec 16, of vec 64)
//           %i = add(mul(index() {axis = c}, 64), index() {axis = of})
//           %h = recur(%h0) {axis = t} ({ ^(%s: f32{b,c,n,of}):
//             %x = load(%X, %b, %t, min(%i, C - 1))  ..
//             store(%Y, dot(%C, %s), %b, %t, .., lt(%i, C)) {masked}
//
// A task had one channel, a state of a few numbers, where a warp has 32 lanes,
// and read two bytes of each sector of memory. Where steps store a vector of
// the state that is its columns; where states have no axis of tasks in common
// that tensors have last, they stay. Level attn, behind inline and canon; GPUs.
// Tests: test/passes/split_channels/.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/cost.h"
#include "passes/support/lane.h"

typedef struct Channels {
  Func *f;
  const Op *recur;
  uint32_t axis, of;  // of channels, of those of a vector
  Dim all;            // their number
  Value end;          // which is a value of f
} Channels;

static uint32_t vectors(const Func *f, const Type *t) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->n; i++)
    n += f->axes.at[t->axis[i]].role == AX_VEC;
  return n;
}

static bool is_index(const Func *f, Value v, uint32_t axis) {
  const Op *op = ir_def(f, v);
  return op && op->code == OP_INDEX &&
         ir_attr_i(op, AT_AXIS, -1) == (int64_t)axis;
}

// Is the axis the last of a tensor that steps read, as neighbours lie?
static bool lies_last(const Channels *c, const Region *r) {
  uint32_t step = (uint32_t)ir_attr_i(c->recur, AT_AXIS, 0);
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code == OP_LOAD && op->nargs > 1 &&
        type_has_axis(ir_type(c->f, op->res[0]), step) &&
        is_index(c->f, op->args[op->nargs - 1], c->axis))
      return true;
    if (op->nregions && lies_last(c, op->regions[0])) return true;
  }
  return false;
}

static bool all_states_have(const Channels *c) {
  const Region *r = c->recur->regions[0];
  for (uint32_t i = 0; i < r->params.n; i++) {
    const Type *t = ir_type(c->f, r->params.at[i]);
    if (!type_has_axis(t, c->axis) || vectors(c->f, t) > 1) return false;
  }
  return r->params.n > 0;
}

// Of what steps store nothing is a vector: no state has columns.
static bool stores_numbers(const Channels *c) {
  for (const Op *op = c->recur->regions[0]->first; op; op = op->next) {
    if (op->code != OP_STORE) continue;
    if (vectors(c->f, ir_type(c->f, op->args[1])) ||
        ir_attr_i(op, AT_MASKED, 0) ||
        !is_index(c->f, op->args[op->nargs - 1], c->axis))
      return false;
  }
  return true;
}

// All that is stored has the axis, by its index.
static bool is_stored_so(const Channels *c, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    bool by = false;
    for (uint32_t i = 2; op->code == OP_STORE && i < op->nargs; i++)
      by |= is_index(c->f, op->args[i], c->axis);
    if (op->code == OP_STORE && (!by || ir_attr_i(op, AT_MASKED, 0)))
      return false;
    for (uint32_t i = 0; i < op->nregions; i++)
      if (!is_stored_so(c, op->regions[i])) return false;
  }
  return true;
}

static bool find_channels(Channels *c) {
  for (uint32_t a = c->f->axes.n; a-- > 0;) {
    if (c->f->axes.at[a].role != AX_PAR) continue;
    int64_t lo, hi;
    c->axis = a;
    c->all = c->f->axes.at[a].extent;
    dim_bounds(&c->f->mod->dims, c->all, &lo, &hi);
    return hi > 1 && all_states_have(c) && lies_last(c, c->f->body) &&
           stores_numbers(c) && is_stored_so(c, c->f->body);
  }
  return false;
}

// ---------------------------------------------------------------- the change
static void retype(const Channels *c, uint32_t values) {
  for (Value v = 1; v < values; v++) {
    Type *t = &ir_info(c->f, v)->type;
    if (t->kind == TK_ELEM && type_has_axis(t, c->axis))
      *t = type_with(*t, c->of, 0);
  }
}

static void mask_store(const Channels *c, Op *op, Value at) {
  Builder b = {.fn = c->f,
               .region = op->parent,
               .before = op,
               .span = op->span};
  ir_store_where(c->f, op, ir_2(&b, OP_LT, at, c->end));
}

static void replace(const Channels *c, const Region *r, Value at, Value safe) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++)
      replace(c, op->regions[i], at, safe);
    bool store = op->code == OP_STORE;
    for (uint32_t i = 0; i < op->nargs; i++)
      if (is_index(c->f, op->args[i], c->axis)) op->args[i] = store ? at : safe;
    if (store) mask_store(c, op, at);
  }
}

static void split(Ctx *cx, Channels *c) {
  Func *f = c->f;
  DimTab *d = &f->mod->dims;
  uint32_t values = f->values.n;
  Dim size = dim_const(d, COST_CHANNELS);
  f->axes.at[c->axis].extent = dim_ceildiv(d, c->all, COST_CHANNELS);
  c->of = ir_axis(f, "of", AX_VEC, size);
  retype(c, values);
  Builder b = {.fn = f,
               .region = f->body,
               .before = f->body->first,
               .span = f->span};
  Value number = ir_index(&b, c->axis), n = ir_dim(&b, size);
  Value first = ir_2(&b, OP_MUL, number, n);
  Value at = ir_2(&b, OP_ADD, first, ir_index(&b, c->of));
  c->end = ir_dim(&b, c->all);
  Value last = ir_dim(&b, dim_bin(d, DIM_ADD, c->all, dim_const(d, -1)));
  Value safe = ir_2(&b, OP_MIN, at, last);
  Region rest = *f->body;
  rest.first = b.before;
  replace(c, &rest, at, safe);
  ir_sweep(f);
  ctx_remark(cx, "%s: %s are columns of the states, %d a task", f->name,
             f->axes.at[c->axis].name, COST_CHANNELS);
}

bool pass_split_channels(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Channels c = {.f = m->funcs.at[i],
                  .recur = lane_recurrence(m->funcs.at[i])};
    if (c.recur && find_channels(&c)) split(cx, &c);
  }
  return true;
}
