// Indices that are limited to the last of an axis (part of the pass `tile`).
//
//   before  %at = add(%origin, iota())           : i64{in:64}
//           %k = min(%at, Sk - 1)
//           %x = load(%K, %k, %d)                rows that are no box
//           store(%P, f(%x), %q, %at, lt(%at, Sk)) {masked}
//   after   %x = load(%K, %at, %d)
//
// Of a tile a load out of range gives 0 and a store does nothing, so an index
// needs no limit where all that is made of it is stored, element by element,
// inside of the axis alone: the gradient of a bias of pairs is
// (passes/attn/grad_pairs.c). GPUs, tasks without loops: steps have bounds.
#include "passes/tile/tile.h"

typedef struct Clamp {
  const Func *f;
  Value at, limited;  // the index without and with its limit
  Dim end;            // the axis ends there
  uint32_t axis;      // of the tile
  bool *made;         // by value: of the limited index
} Clamp;

static bool is_dim(const Func *f, Value v, Dim d) {
  const Op *op = ir_def(f, v);
  return op && op->code == OP_DIM && (Dim)ir_attr_i(op, AT_DIM, 0) == d;
}

// Is v the last coordinate of an axis that the store's mask ends by?
static bool is_last(Module *m, const Func *f, Value v, Dim end) {
  const Op *op = ir_def(f, v);
  double one;
  if (op && op->code == OP_SUB)
    return is_dim(f, op->args[0], end) &&
           ir_const_value(f, op->args[1], &one) && one == 1;
  return is_dim(f, v, dim_sub(&m->dims, end, dim_const(&m->dims, 1)));
}

static bool ends_inside(const Clamp *c, Value mask) {
  const Op *op = ir_def(c->f, mask);
  if (!op) return false;
  if (op->code == OP_AND)
    return ends_inside(c, op->args[0]) || ends_inside(c, op->args[1]);
  return op->code == OP_LT && op->args[0] == c->at &&
         is_dim(c->f, op->args[1], c->end);
}

// What op makes of the index: elements that have its place.
static bool keeps_place(const Clamp *c, const Op *op) {
  if (op->code == OP_STORE)
    return ir_attr_i(op, AT_MASKED, 0) &&
           ends_inside(c, op->args[op->nargs - 1]);
  if (op->code == OP_LOAD || op_info(op->code)->flags & OPF_ELEM) return true;
  const IrAttr *over = ir_attr(op, AT_OVER);
  if ((op->code != OP_DOT && op->code != OP_REDUCE) || !over || op->nargs > 2)
    return false;
  for (uint32_t i = 0; i < over->n; i++)
    if ((uint32_t)over->list[i] == c->axis) return false;
  return true;
}

static bool is_free(Clamp *c) {
  c->made[c->limited] = true;
  for (const Op *op = c->f->body->first; op; op = op->next) {
    bool of = false;
    if (op->nregions) return false;
    for (uint32_t i = 0; i < op->nargs; i++) of |= c->made[op->args[i]];
    if (!of) continue;
    if (!keeps_place(c, op)) return false;
    for (uint32_t i = 0; i < op->nres; i++) c->made[op->res[i]] = true;
  }
  return true;
}

// The end of the axis whose last coordinate op limits, by a mask of at.
static bool find_end(Module *m, Clamp *c, const Op *min, uint32_t of) {
  c->at = min->args[of];
  for (const Op *op = c->f->body->first; op; op = op->next) {
    const Op *end = op->code == OP_LT ? ir_def(c->f, op->args[1]) : NULL;
    if (!end || op->args[0] != c->at || end->code != OP_DIM) continue;
    c->end = (Dim)ir_attr_i(end, AT_DIM, 0);
    if (is_last(m, c->f, min->args[!of], c->end)) return true;
  }
  return false;
}

void tile_unclamp(Ctx *cx, Func *f) {
  for (Op *op = f->body->first, *next; op; op = next) {
    next = op->next;
    if (op->code != OP_MIN) continue;
    const Type *t = ir_type(f, op->res[0]);
    Clamp c = {.f = f, .limited = op->res[0]};
    if (t->kind != TK_ELEM || t->n != 1 ||
        (!find_end(f->mod, &c, op, 0) && !find_end(f->mod, &c, op, 1)))
      continue;
    c.axis = t->axis[0];
    c.made = NEWN(&cx->scratch, bool, f->values.n);
    if (!is_free(&c)) continue;
    ir_replace_uses(f, c.limited, c.at);
    ir_erase(op);
  }
}
