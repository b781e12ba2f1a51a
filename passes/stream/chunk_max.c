// Scalar states that are running maxima, m' = max(m + a, b), of values that
// depend on no state: they are walked for themselves, and are ordinary values
// to the other states. So the stabilizer of an exponential gate
//
//   top = max(m + f, i);  C = exp(m + f - top) C + ..;  m = top
//
// leaves a scalar decay.
#include "passes/stream/chunk.h"

typedef struct Running {  // max(m + a, b); 0: nothing
  bool ok;
  Value a, b;
} Running;

// Value v of the step where it depends on no state, in front of the
// recurrence; 0 if it does.
static Value outside(Chunk *c, Value v) {
  const ValueInfo *info = ir_info(c->f, v);
  const Region *r = c->recur->regions[0];
  if (info->region != r || vmap_get(&c->free, v) != v)
    return vmap_get(&c->free, v);
  const Op *op = info->def;
  if (!op || !(op_info(op->code)->flags & OPF_PURE) || op->nregions) return 0;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(c->f, op->args[i])->kind == TK_ELEM && !outside(c, op->args[i]))
      return 0;
  return ir_clone(&c->b, c->f, op, &c->free, NULL)->res[0];
}

static Value combined(Chunk *c, OpCode code, Value x, Value y) {
  return x ? ir_2(&c->b, code, x, y) : 0;
}

static Running running(Chunk *c, Value v, Value m);

static Running shifted(Chunk *c, const Op *op, Value m) {
  bool add = op->code == OP_ADD;
  Value by = outside(c, op->args[1]);
  Running r = running(c, by ? op->args[0] : op->args[1], m);
  if (!by && add) by = outside(c, op->args[0]);
  if (!r.ok || !by) return (Running){0};
  r.b = combined(c, op->code, r.b, by);
  if (r.a) r.a = combined(c, op->code, r.a, by);
  else r.a = add ? by : ir_1(&c->b, OP_NEG, by);
  return r;
}

static Running raised(Chunk *c, const Op *op, Value m) {
  Value to = outside(c, op->args[1]);
  Running r = running(c, to ? op->args[0] : op->args[1], m);
  if (!to) to = outside(c, op->args[0]);
  if (!r.ok || !to) return (Running){0};
  r.b = r.b ? ir_2(&c->b, OP_MAX, r.b, to) : to;
  return r;
}

static Running running(Chunk *c, Value v, Value m) {
  if (v == m) return (Running){.ok = true};
  const Op *op = ir_def(c->f, v);
  if (!op || op->parent != c->recur->regions[0]) return (Running){0};
  if (op->code == OP_ADD || op->code == OP_SUB) return shifted(c, op, m);
  if (op->code == OP_MAX) return raised(c, op, m);
  return (Running){0};
}

static Value next_of(const Chunk *c, uint32_t s) {
  Value y = c->recur->regions[0]->last->args[s];
  const Op *op = ir_def(c->f, y);
  bool limited =
      c->valid && op && op->code == OP_SELECT && op->args[0] == c->valid;
  return limited ? op->args[1] : y;
}

bool chunk_max_state(Chunk *c, uint32_t s) {
  Value m = c->recur->regions[0]->params.at[s];
  Running r = running(c, next_of(c, s), m);
  if (!r.ok)
    return chunk_fail(c, c->recur, "a scalar state is no running maximum");
  if (!r.a) r.a = ir_const_f(&c->b, DT_F32, 0);
  if (!r.b) r.b = ir_const_f(&c->b, DT_F32, -__builtin_inf());
  if (c->valid) c->limit = outside(c, ir_def(c->f, c->valid)->args[1]);
  IrAttr at[3] = {attr_i(AT_AXIS, c->axis)};
  uint32_t n = 1;
  if (c->limit) at[n++] = attr_i(AT_LIMIT, 1);
  if (ir_attr_i(c->recur, AT_REVERSE, 0)) at[n++] = attr_i(AT_REVERSE, 1);
  Type t[2] = {*ir_type(c->f, c->recur->res[s])};
  t[1] = type_with(t[0], c->axis, DIM_NONE);
  Value args[4] = {c->recur->args[s], r.a, r.b, c->limit};
  Op *op = ir_op(&c->b, OP_MAXPLUS, args, c->limit ? 4 : 3, at, n, t, 2, 0);
  ir_info(c->f, op->res[0])->hint = ir_info(c->f, c->recur->res[s])->hint;
  c->state[s].op = op;
  vmap_put(&c->free, m, op->res[1]);
  return true;
}
