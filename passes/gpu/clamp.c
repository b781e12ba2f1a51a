// Clamped sums in 32 bits.
//
//   min(max(x + c, a), b)  ->  min(max(x, a - c), b - c) + c
//
// A coordinate within a table is a difference plus an offset, held between the
// table's ends. The difference fits 32 bits, and so does what is left of the
// sum, but the sum itself may not: two remainders of a number that is not known
// differ by less than it, and any offset may be added. A tile of 64-bit sums
// takes twice the registers and a multiple of the instructions. What is taken
// off the limits is taken of numbers.
// Tests: test/passes/lower_gpu/clamped-sums.tir.
#include "passes/gpu/gpu.h"

typedef struct Clamp {
  Place *p;
  const Op *op, *in;  // the outer limit; the inner one
  Value sum, x, by;   // sum = x + by
  Value limit[2];     // of in, of op
} Clamp;

static bool is_number(const Place *p, Value v) {
  return ir_type(p->f, v)->n == 0;
}

// Of op, a limit: its number, and what it limits.
static bool split_limit(const Place *p, const Op *op, Value *limit,
                        Value *rest) {
  if (!op || (op->code != OP_MIN && op->code != OP_MAX)) return false;
  uint32_t at = is_number(p, op->args[0]) ? 0 : 1;
  *limit = op->args[at];
  *rest = op->args[1 - at];
  return is_number(p, *limit) && !is_number(p, *rest);
}

static bool split_sum(Clamp *c) {
  const Op *op = ir_def(c->p->f, c->sum);
  if (!op || op->code != OP_ADD) return false;
  uint32_t at = is_number(c->p, op->args[0]) ? 0 : 1;
  c->by = op->args[at];
  c->x = op->args[1 - at];
  return is_number(c->p, c->by) && !is_number(c->p, c->x);
}

static bool find(Clamp *c) {
  Value inner;
  if (!split_limit(c->p, c->op, &c->limit[1], &inner)) return false;
  c->in = ir_def(c->p->f, inner);
  return c->in && c->in->code != c->op->code &&
         split_limit(c->p, c->in, &c->limit[0], &c->sum) && split_sum(c) &&
         lower_dtype_of(c->p, c->op->res[0]) == DT_I32 &&
         lower_dtype_of(c->p, c->sum) == DT_I64 &&
         lower_dtype_of(c->p, c->x) == DT_I32 &&
         lower_dtype_of(c->p, c->by) == DT_I32;
}

// The limit of x; where it does not fit, none that x reaches.
static Value limit_of_x(Clamp *c, uint32_t i) {
  Place *p = c->p;
  Value limit = lower_scalar(p, c->limit[i]), by = lower_scalar(p, c->by);
  if (p->failed) return 0;
  int d = lower_depth(p, c->limit[i]), e = lower_depth(p, c->by);
  Builder *b = lower_at(p, d > e ? d : e);
  by = lower_cast(b, DT_I64, by);
  return lower_index(b, ir_2(b, OP_SUB, lower_cast(b, DT_I64, limit), by));
}

bool lower_clamp(Place *p, const Op *op, const View *v, Role r, Value *y) {
  Clamp c = {.p = p, .op = op};
  if (!find(&c)) return false;
  *y = 0;
  Value limit[2] = {limit_of_x(&c, 0), limit_of_x(&c, 1)};
  const Type *t = ir_type(p->f, c.x);
  Value x = lower_eval(p, c.x, v->col < 0 ? r : lower_role(v, t));
  Value by = lower_scalar(p, c.by);
  if (p->failed) return true;
  Builder *b = lower_at(p, lower_depth(p, op->res[0]));
  b->span = op->span;
  x = lower_cast(b, DT_I32, x);
  x = lower_2(b, c.in->code, x, limit[0]);
  x = lower_2(b, op->code, x, limit[1]);
  *y = lower_2(b, OP_ADD, x, lower_cast(b, DT_I32, by));
  return true;
}
