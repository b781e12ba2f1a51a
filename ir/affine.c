// Reads and makes the op `affine` (see affine.h). Operands: state[, decay]
// [, limit], then b, w[, a] of each write, then q of each read.
#include "ir/affine.h"

static bool versions(const Op *op, AttrId id, const IrAttr **list) {
  *list = ir_attr(op, id);
  return *list && (*list)->n <= AFFINE_MAX;
}

uint32_t affine_written_at(const Affine *a) {
  return 1 + a->nreads;
}

uint32_t affine_front_at(const Affine *a) {
  return 1 + a->nreads + a->written;
}

uint32_t affine_results(const Affine *a) {
  return 1 + a->nreads + a->written + (a->front != 0);
}

bool affine_parts(const Op *op, Affine *a) {
  const IrAttr *over = ir_attr(op, AT_OVER), *writes, *reads;
  if (!versions(op, AT_WRITES, &writes) || !versions(op, AT_READS, &reads) ||
      !over || over->n != 1)
    return false;
  *a = (Affine){.axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0),
                .row = (uint32_t)over->list[0]};
  a->falling = ir_attr_i(op, AT_FALLING, 0);
  a->reverse = ir_attr_i(op, AT_REVERSE, 0);
  a->written = ir_attr_i(op, AT_WRITTEN, 0);
  a->front = ir_attr_i(op, AT_FRONT, 0);
  a->nwrites = writes->n;
  a->nreads = reads->n;
  uint32_t need = 1, at = 0;
  need += ir_attr_i(op, AT_DECAY, 0) != 0;
  need += ir_attr_i(op, AT_LIMIT, 0) != 0;
  for (uint32_t i = 0; i < writes->n; i++)
    need += writes->list[i] == AFFINE_PLAIN ? 2 : 3;
  if (op->nargs != need + reads->n) return false;
  a->state = op->args[at++];
  if (ir_attr_i(op, AT_DECAY, 0)) a->decay = op->args[at++];
  if (ir_attr_i(op, AT_LIMIT, 0)) a->limit = op->args[at++];
  for (uint32_t i = 0; i < writes->n; i++) {
    int64_t from = writes->list[i];
    if (from < AFFINE_PLAIN || from > (int64_t)i) return false;
    AffineWrite *w = &a->write[i];
    *w = (AffineWrite){.b = op->args[at],
                       .w = op->args[at + 1],
                       .from = (int)from};
    at += 2;
    if (from != AFFINE_PLAIN) w->a = op->args[at++];
  }
  for (uint32_t i = 0; i < reads->n; i++) {
    int64_t from = reads->list[i];
    if (from < AFFINE_PRE || from > (int64_t)writes->n) return false;
    a->read[i] = (AffineRead){op->args[at++], (int)from};
  }
  return true;
}

Op *affine_op(Builder *b, const Affine *a, const Type *types) {
  Value args[3 + 4 * AFFINE_MAX];
  Arena *arena = b->fn->mod->arena;
  int64_t *writes = NEWN(arena, int64_t, a->nwrites + 1);
  int64_t *reads = NEWN(arena, int64_t, a->nreads + 1);
  uint32_t n = 0, na = 0;
  args[n++] = a->state;
  if (a->decay) args[n++] = a->decay;
  if (a->limit) args[n++] = a->limit;
  for (uint32_t i = 0; i < a->nwrites; i++) {
    const AffineWrite *w = &a->write[i];
    args[n++] = w->b;
    args[n++] = w->w;
    if (w->a) args[n++] = w->a;
    writes[i] = w->from;
  }
  for (uint32_t i = 0; i < a->nreads; i++) {
    args[n++] = a->read[i].q;
    reads[i] = a->read[i].from;
  }
  IrAttr at[10];
  at[na++] = attr_i(AT_AXIS, a->axis);
  at[na++] = attr_axes(arena, AT_OVER, &a->row, 1);
  at[na++] = attr_list(AT_WRITES, writes, a->nwrites);
  at[na++] = attr_list(AT_READS, reads, a->nreads);
  if (a->written) at[na++] = attr_i(AT_WRITTEN, 1);
  if (a->front) at[na++] = attr_i(AT_FRONT, a->front);
  if (a->decay) at[na++] = attr_i(AT_DECAY, 1);
  if (a->decay && a->falling) at[na++] = attr_i(AT_FALLING, 1);
  if (a->limit) at[na++] = attr_i(AT_LIMIT, 1);
  if (a->reverse) at[na++] = attr_i(AT_REVERSE, 1);
  return ir_op(b, OP_AFFINE, args, n, at, na, types, affine_results(a), 0);
}
