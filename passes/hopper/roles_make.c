// The group that computes tiles of tiles that are copied (rings_made.c).
#include "passes/hopper/roles.h"

static Value i32(Builder *b, int64_t v) {
  return ir_const_i(b, DT_I32, v);
}

bool hop_role_makes(const Role *r, const Op *op) {
  return r->maker && hop_rings_made(r->w, op) &&
         r->w->maker[op->res[0]] == r->number;
}

const Op *hop_role_next_made(const Role *r, const Op *op) {
  const Op *put = op;
  while (put && !hop_role_makes(r, put)) put = put->next;
  return put ? put : op;
}

void hop_role_await_slot(Role *r, Builder *b, const Op *put) {
  if (put == r->awaited || !hop_role_makes(r, put)) return;
  uint32_t k = (uint32_t)hop_rings_of(r->w, put);
  Turn t = hop_role_turn(r, b, k);
  hop_role_wait(b, r->w->rings[k].empty, t.slot,
                ir_2(b, OP_SUB, i32(b, 1), t.parity));
  r->awaited = put;
}

void hop_role_make(Role *r, Builder *b, const Op *op) {
  uint32_t k = (uint32_t)hop_rings_of(r->w, op);
  Ring *ring = &r->w->rings[k];
  hop_role_await_slot(r, b, op);
  Turn t = hop_role_turn(r, b, k);
  Value put[] = {hop_rings_slot(r->w, b, ring, t.slot),
                 hop_role_value(r, op->args[0])};
  ir_op(b, OP_SSTORE, put, 2, NULL, 0, NULL, 0, 0);
  ir_bare(b, OP_FENCE_ASYNC);
  ir_bare(b, OP_GSYNC);
  hop_role_arrive(b, ring->full, t.slot, NULL);
  hop_role_filled(r, b, k, op);
  r->awaited = NULL;
}

static Value columns(Builder *b, Value x, uint32_t from, uint32_t n) {
  Type t = *ir_type(b->fn, x);
  IrAttr pos = attr_i(AT_POS, from);
  if (t.ext[1] == n) return x;
  t.ext[1] = n;
  return ir_op(b, OP_FCOLS, &x, 1, &pos, 1, &t, 1, 0)->res[0];
}

void hop_role_gather(Role *r, Builder *b, const Op *op) {
  uint32_t k = (uint32_t)hop_rings_of(r->w, op);
  const Ring *ring = &r->w->rings[k];
  Turn t = hop_role_turn(r, b, k);
  hop_role_wait(b, ring->empty, t.slot, ir_2(b, OP_SUB, i32(b, 1), t.parity));
  Value words = hop_role_value(r, op->args[0]);
  const Type *all = ir_type(b->fn, words), *cut = ir_type(b->fn, ring->cut);
  uint32_t panels = all->ext[1] / cut->ext[1];
  Value at = ir_2(b, OP_MUL, t.slot, i32(b, r->w->groups * panels));
  at = ir_2(b, OP_ADD, at, r->group);
  for (uint32_t i = 0; i < panels; i++) {
    Value part = ir_2(b, OP_ADD, at, i32(b, i * r->w->groups));
    Value put[] = {hop_rings_panel_of(b, ring->cut, i ? part : at),
                   columns(b, words, i * cut->ext[1], cut->ext[1])};
    ir_op(b, OP_SSTORE, put, 2, NULL, 0, NULL, 0, 0);
  }
  ir_bare(b, OP_FENCE_ASYNC);
  hop_role_arrive(b, ring->full, t.slot, NULL);
  hop_role_filled(r, b, k, op);
}

bool hop_role_reads(const Role *r, const Op *op) {
  const Ring *ring = &r->w->rings[hop_rings_of(r->w, op)];
  if (r->maker) return ring->raw && ring->maker == r->number;
  return !r->producer && !ring->raw;
}
