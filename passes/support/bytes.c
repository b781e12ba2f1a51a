// Which products of 8-bit floats are left to the matrix units. See bytes.h.
//
// wgmma multiplies 8-bit floats exactly, twice as many in a clock as 16-bit
// ones, where the summed axis is the last one in memory of both. It aligns what
// it adds, 32 products and the sum so far, to the largest and keeps 13 bits
// behind its first: a score of D products is off by D * 2^-13 of the largest
// product at most. That is less than what its operands were rounded by. Sums
// over keys grow with their number: they are made of 16-bit copies.
#include "passes/support/bytes.h"

#include "passes/support/lane.h"

static bool is_eight(const Type *t) {
  return dtype_is_float(t->dtype) && dtype_size(t->dtype) == 1;
}

static bool varies(const Func *f, Value v, uint32_t axis) {
  const Type *t = ir_type(f, v);
  return t->kind == TK_ELEM && type_has_axis(t, axis);
}

// x, where v is x or, if a task's number says so, its negative.
static Value unflipped(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  int lane = lane_axis(f);
  if (!op || op->code != OP_SELECT) return v;
  const Op *neg = ir_def(f, op->args[1]);
  bool flip = neg && neg->code == OP_NEG && neg->args[0] == op->args[2] &&
              (lane < 0 || !varies(f, op->args[0], (uint32_t)lane));
  return flip ? op->args[2] : v;
}

// Has v rows whose elements follow one another in memory along the axis, and
// steps of a product?
static bool is_columns(const Func *f, Value v, uint32_t axis) {
  const Op *op = ir_def(f, unflipped(f, v));
  int64_t k = 0;
  if (!op || op->code != OP_LOAD || !is_eight(ir_type(f, v))) return false;
  for (uint32_t i = 1; i < op->nargs; i++)
    if (varies(f, op->args[i], axis) != (i + 1 == op->nargs)) return false;
  return dim_is_const(&f->mod->dims, f->axes.at[axis].extent, &k) &&
         k % HW_BYTE_STEP == 0;
}

static bool is_product(const Func *f, const Op *dot) {
  const IrAttr *over = ir_attr(dot, AT_OVER);
  if (dot->code != OP_DOT || dot->nargs > 2 || over->n != 1) return false;
  uint32_t axis = (uint32_t)over->list[0];
  return f->axes.at[axis].role == AX_VEC && is_columns(f, dot->args[0], axis) &&
         is_columns(f, dot->args[1], axis);
}

typedef struct Reads {
  const Func *f;
  const Op *dot;
  bool others;  // some product reads an operand in another way
} Reads;

static void find_others(void *data, Op *op) {
  Reads *r = data;
  if (op->code != OP_DOT || is_product(r->f, op)) return;
  for (uint32_t i = 0; i < op->nargs; i++)
    for (uint32_t k = 0; k < 2; k++)
      r->others |=
          unflipped(r->f, op->args[i]) == unflipped(r->f, r->dot->args[k]);
}

bool bytes_multiply(const Func *f, const Op *dot, const GpuFacts *gpu) {
  Reads r = {.f = f, .dot = dot};
  if (!gpu || !gpu->hopper || !is_product(f, dot)) return false;
  ir_walk(f->body, find_others, &r);
  return !r.others;
}

int64_t bytes_of_operand(const Func *f, const Op *dot, uint32_t side,
                         const GpuFacts *gpu) {
  DType t = ir_type(f, dot->args[side])->dtype;
  DType other = ir_type(f, dot->args[!side])->dtype;
  if (bytes_multiply(f, dot, gpu)) return 1;
  if (t == DT_F16 && other != DT_F16 && dtype_size(other) > 1) return 4;
  return dtype_size(t) <= 2 ? 2 : t == DT_TF32 ? 4 : 6;
}
