// Operands of products that are 8-bit floats of memory times a scale: of their
// row, or of a block of its columns.
//
//   %x = load(%C, .., %d) : f8e4m3
//   %s = load(%S, .., floordiv(%d, 128)) : f32       or load(%S, ..)
//   %k = cast(mul(cast(%x), %s)) {to = bf16}
//
// Where rows are told one by one the group that copies them makes 16-bit ones
// on the way (passes/hopper/roles_told.c): a tile of %k is then a box like any
// other.
#include "passes/support/widened.h"

#include "ir/target.h"
#include "passes/support/lane.h"

// x of select(mask, x, 0), with one mask wherever there is one.
static const Op *seen(const Func *f, Value v, Widened *w) {
  const Op *op = ir_def(f, v);
  double zero;
  if (!op || op->code != OP_SELECT || !ir_const_value(f, op->args[2], &zero) ||
      zero != 0)
    return op;
  if (w->mask && w->mask != op->args[0]) return NULL;
  w->mask = op->args[0];
  return ir_def(f, op->args[1]);
}

static bool is_narrow(const Func *f, const Op *op) {
  if (!op || op->code != OP_LOAD) return false;
  DType t = ir_type(f, op->res[0])->dtype;
  return dtype_is_float(t) && dtype_size(t) == 1;
}

// A cast of 8-bit floats, or these themselves.
static const Op *narrow(const Func *f, Value v, Widened *w) {
  const Op *op = seen(f, v, w);
  if (op && op->code == OP_CAST) op = seen(f, op->args[0], w);
  return is_narrow(f, op) ? op : NULL;
}

// Scales lie as rows do: the same indices, then that of the block.
static bool scales(const Func *f, Widened *w) {
  const Op *x = w->load, *s = w->scale;
  uint32_t last = x->nargs - 1;
  double block;
  if (s->code != OP_LOAD || ir_type(f, s->res[0])->dtype != DT_F32 ||
      s->nargs > x->nargs || s->nargs + 1 < x->nargs)
    return false;
  for (uint32_t i = 1; i < last; i++)
    if (s->args[i] != x->args[i]) return false;
  if (s->nargs < x->nargs) return true;
  const Op *at = ir_def(f, s->args[last]);
  if (!at || at->code != OP_FLOORDIV || at->args[0] != x->args[last] ||
      !ir_const_value(f, at->args[1], &block))
    return false;
  w->block = (int64_t)block;
  return w->block > 0 && w->block % HW_PANEL == 0;
}

bool widened_of(const Func *f, Value v, Widened *w) {
  const Op *op = ir_def(f, v);
  *w = (Widened){.load = NULL};
  if (!op || op->code != OP_CAST || !dtype_is_float16(ir_type(f, v)->dtype))
    return false;
  const Op *x = seen(f, op->args[0], w);
  if (is_narrow(f, x)) w->load = x;
  if (w->load) return true;
  for (uint32_t i = 0; x && x->code == OP_MUL && i < 2; i++) {
    Widened own = {.mask = w->mask};
    own.load = narrow(f, x->args[i], &own);
    own.scale = own.load ? seen(f, x->args[!i], &own) : NULL;
    if (!own.scale || !scales(f, &own)) continue;
    *w = own;
    return true;
  }
  return false;
}

const Op *widened_load(const Func *f, const Op *op) {
  Widened w;
  if (!op || op->code == OP_LOAD) return op;
  return op->nres == 1 && widened_of(f, op->res[0], &w) ? w.load : NULL;
}

typedef struct Narrow {
  const Func *f;
  uint32_t axis;
  bool some;
} Narrow;

static void see_narrow(void *data, Op *op) {
  Narrow *w = data;
  if (op->code != OP_DOT || !lane_is_product(w->f, op)) return;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Widened own = {.load = NULL};
    const Op *x = narrow(w->f, op->args[i], &own);
    w->some |= x && type_has_axis(ir_type(w->f, x->res[0]), w->axis);
  }
}

bool widened_keys(const Func *f, uint32_t axis) {
  Narrow w = {f, axis, false};
  ir_walk(f->body, see_narrow, &w);
  return w.some;
}
