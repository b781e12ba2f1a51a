// Operands of products that are computed of what a loop copies.
//
//   %k = load(%K, %b, %i, %d)              %r = sfill(%K, %b, %i0, %zero)
//        : f8e4m3{k:64,d:128}                   : smem<64x128xf8e4m3,sw128>
//   dot(%q, %k)                      ->    %x = sload(%r)
//                                          %k = sput(cast(%x))
//                                          mma(%q, %k)
//
// Where keys are read once, by few rows, nobody has made their 16-bit copies
// ahead (passes/attn/materialize.c): a step computes its tile. What it is
// computed of is a box in shared memory, that a producer copies some steps
// ahead, and a group of threads of its own computes (passes/hopper/rings.c).
#include "passes/gpu/gpu.h"

// Is v made element by element of boxes of the operand's axes, which are
// copied? What has one axis, or none, may be anything.
static bool is_made(Place *p, Value v, const Type *of, uint32_t *boxes) {
  const Type *t = ir_type(p->f, v);
  const Op *op = ir_def(p->f, v);
  if (t->n < 2) return true;
  if (!op || op->nregions || t->n != 2 || !type_has_axis(of, t->axis[0]) ||
      !type_has_axis(of, t->axis[1]))
    return false;
  if (op->code == OP_LOAD) {
    *boxes += lower_is_box(p, v, t->dtype);
    return true;
  }
  if (!(op_info(op->code)->flags & OPF_ELEM)) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!is_made(p, op->args[i], of, boxes)) return false;
  return true;
}

static void box_loads(Place *p, Value v) {
  const Type *t = ir_type(p->f, v);
  const Op *op = ir_def(p->f, v);
  if (t->n < 2) return;
  if (op->code == OP_LOAD) {
    p->boxed[v] |= lower_is_box(p, v, t->dtype);
    return;
  }
  for (uint32_t i = 0; i < op->nargs; i++) box_loads(p, op->args[i]);
}

void lower_plan_made(Place *p, Value v) {
  const Type *t = ir_type(p->f, v);
  uint32_t boxes = 0;
  bool keys = false;
  for (uint32_t i = 0; i < t->n; i++)
    keys |= p->f->axes.at[t->axis[i]].role == AX_KEY;
  if (!p->target->gpu.hopper || !p->once || !keys || ir_has_steps(p->f) ||
      !is_made(p, v, t, &boxes) || !boxes)
    return;
  box_loads(p, v);
}
