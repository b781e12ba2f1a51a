// What all roles do: values of their copy, slots, barriers, turns.
#include "passes/hopper/roles.h"

static Value i32(Builder *b, int64_t v) {
  return ir_const_i(b, DT_I32, v);
}

Value hop_role_value(const Role *r, Value v) {
  return vmap_get(&r->map, v);
}

Turn hop_role_turn(Role *r, Builder *b, uint32_t k) {
  int64_t stages = r->w->rings[k].stages;
  Value n = r->fills[r->w->rings[k].count], two = i32(b, 2);
  if (stages == 1) return (Turn){i32(b, 0), ir_2(b, OP_MOD, n, two)};
  Value s = i32(b, stages);
  return (Turn){ir_2(b, OP_MOD, n, s),
                ir_2(b, OP_MOD, ir_2(b, OP_FLOORDIV, n, s), two)};
}

void hop_role_filled(Role *r, Builder *b, uint32_t k, const Op *fill) {
  if (fill && !hop_rings_last(r->w, fill)) return;
  k = r->w->rings[k].count;
  r->fills[k] = ir_2(b, OP_ADD, r->fills[k], i32(b, 1));
}

void hop_role_wait(Builder *b, Value bar, Value slot, Value parity) {
  Value args[] = {bar, slot, parity};
  ir_op(b, OP_MBAR_WAIT, args, 3, NULL, 0, NULL, 0, 0);
}

void hop_role_arrive(Builder *b, Value bar, Value slot, const IrAttr *each) {
  Value args[] = {bar, slot};
  ir_op(b, OP_MBAR_ARRIVE, args, 2, each, each != NULL, NULL, 0, 0);
}

void hop_role_stores_done(Builder *b) {
  IrAttr none = attr_i(AT_PENDING, 0);
  ir_op(b, OP_TMA_WAIT, NULL, 0, &none, 1, NULL, 0, 0);
}

Value hop_role_block(const Role *r, Builder *b, Value n) {
  if (r->w->turns < 0) return r->group;
  Value groups = i32(b, r->w->groups);
  return ir_2(b, OP_MOD, ir_2(b, OP_ADD, r->group, n), groups);
}

void hop_role_take_turn(Role *r, Builder *b) {
  if (r->w->turns < 0) return;
  r->tasks = r->fills[r->w->rings[r->w->turns].count];
  if (!r->producer) r->block = hop_role_block(r, b, r->tasks);
}

Value hop_role_slot(Builder *b, const Ring *ring, Value block, Value at) {
  if (!ring->own) return at;
  Value base = ir_2(b, OP_MUL, block, i32(b, ring->stages));
  return ir_2(b, OP_ADD, base, at);
}

Value hop_role_barrier(const Role *r, Builder *b, const Ring *ring, Value at,
                       int64_t block) {
  if (!ring->own || r->w->turns < 0) return at;
  Value groups = i32(b, r->w->groups), back = i32(b, r->w->groups - 1);
  Value is = i32(b, block);
  Value group = ir_2(b, OP_MUL, r->tasks, back);
  group = ir_2(b, OP_ADD, is, group);
  group = ir_2(b, OP_MOD, group, groups);
  Value from = ir_2(b, OP_SUB, group, is), stages = i32(b, ring->stages);
  from = ir_2(b, OP_MUL, from, stages);
  return ir_2(b, OP_ADD, at, from);
}
