// log2 of a decay, by structure: exp(x) -> x * log2(e), sigmoid(x) ->
// -softplus(-x) * log2(e), products -> sums. What is left must be positive by
// its range.
#include "passes/stream/chunk.h"

#include "passes/support/range.h"
#include <math.h>

static const double log2_e = 1.4426950408889634;

static Value scaled(Chunk *c, Value v, double by) {
  DType t = ir_type(c->f, v)->dtype;
  return ir_2(&c->b, OP_MUL, v, ir_const_f(&c->b, t, by));
}

// log2(sigmoid(x)); with `other`, of 1 - sigmoid(x).
static Value log_sigmoid(Chunk *c, Value x, bool other) {
  Value y = other ? x : ir_1(&c->b, OP_NEG, x);
  return scaled(c, ir_1(&c->b, OP_SOFTPLUS, y), -log2_e);
}

static Value log_const(Chunk *c, Value v, double k) {
  return k > 0 ? ir_const_f(&c->b, ir_type(c->f, v)->dtype, log2(k)) : 0;
}

static Value log_two(Chunk *c, const Op *op, OpCode join) {
  Value x = chunk_log_of(c, op->args[0]);
  Value y = x ? chunk_log_of(c, op->args[1]) : 0;
  return y ? ir_2(&c->b, join, x, y) : 0;
}

static Value log_sub(Chunk *c, const Op *op) {
  double one;
  const Op *s = ir_def(c->f, op->args[1]);
  bool flip = ir_const_value(c->f, op->args[0], &one) && one == 1 && s &&
              s->code == OP_SIGMOID;
  return flip ? log_sigmoid(c, s->args[0], true) : 0;
}

static Value log_select(Chunk *c, const Op *op) {
  Value x = chunk_log_of(c, op->args[1]);
  Value y = x ? chunk_log_of(c, op->args[2]) : 0;
  return y ? ir_3(&c->b, OP_SELECT, op->args[0], x, y) : 0;
}

static Value log_pow(Chunk *c, const Op *op) {
  Value x = chunk_log_of(c, op->args[0]);
  return x ? ir_2(&c->b, OP_MUL, x, op->args[1]) : 0;
}

static Value log_by_range(Chunk *c, Value v) {
  Ranges r;
  range_init(&r, c->f, c->arena);
  return range_of(&r, v).lo > 0 ? ir_1(&c->b, OP_LOG2, v) : 0;
}

static Value log_op(Chunk *c, const Op *op) {
  switch (op->code) {
  case OP_EXP: return scaled(c, op->args[0], log2_e);
  case OP_EXP2: return op->args[0];
  case OP_SIGMOID: return log_sigmoid(c, op->args[0], false);
  case OP_MUL: return log_two(c, op, OP_ADD);
  case OP_DIV: return log_two(c, op, OP_SUB);
  case OP_SUB: return log_sub(c, op);
  case OP_SELECT: return log_select(c, op);
  case OP_POW: return log_pow(c, op);
  default: return 0;
  }
}

Value chunk_log_of(Chunk *c, Value v) {
  double k;
  if (ir_const_value(c->f, v, &k)) return log_const(c, v, k);
  const Op *op = ir_def(c->f, v);
  Value g = op ? log_op(c, op) : 0;
  return g ? g : log_by_range(c, v);
}
