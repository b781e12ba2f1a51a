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
// (passes/attn/grad_pairs.c), in loops over what it sums, too. What is stored
// in workspace at places of a block, as parts of such sums, is of places, too,
// and nobody needs those behind the end. Nor does anybody need what a choice
// takes inside of the axis alone, as sums along bands (grad_gaps.c). GPUs.
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

// Is op a store in workspace that has places of whole blocks?
static bool is_padded(const Clamp *c, const Op *op) {
  const Func *f = c->f;
  bool shared = false, block = false;
  for (uint32_t i = 0; i < f->params.n; i++)
    shared |=
        f->params.at[i].v == op->args[0] && f->params.at[i].role == PR_SHARED;
  for (uint32_t i = 2; i < op->nargs; i++) {
    const Op *at = ir_def(f, op->args[i]);
    block |= at && at->code == OP_IOTA &&
             type_has_axis(ir_type(f, op->args[i]), c->axis);
  }
  return shared && block;
}

// Does op choose what is made of the index inside of the axis alone? What else
// it asks for may be made of it, too.
static bool chooses(const Clamp *c, const Op *op) {
  return op->code == OP_SELECT && !c->made[op->args[2]] &&
         ends_inside(c, op->args[0]);
}

// What op makes of the index: elements that have its place.
static bool keeps_place(const Clamp *c, const Op *op) {
  if (op->code == OP_STORE)
    return (ir_attr_i(op, AT_MASKED, 0) &&
            ends_inside(c, op->args[op->nargs - 1])) ||
           is_padded(c, op);
  if (op->code == OP_LOAD || op_info(op->code)->flags & OPF_ELEM) return true;
  const IrAttr *over = ir_attr(op, AT_OVER);
  if ((op->code != OP_DOT && op->code != OP_REDUCE) || !over || op->nargs > 2)
    return false;
  for (uint32_t i = 0; i < over->n; i++)
    if ((uint32_t)over->list[i] == c->axis) return false;
  return true;
}

static bool is_free(Clamp *c, const Region *r);

// What a loop hands on is made of the index where what it begins with is, or
// what a turn yields: the latter is known behind a turn.
static bool is_free_loop(Clamp *c, const Op *op) {
  const Region *r = op->regions[0];
  if (op->code != OP_FOR) return false;
  for (uint32_t i = 0; i < 3; i++)
    if (c->made[op->args[i]]) return false;
  for (bool more = true; more;) {
    more = false;
    if (!is_free(c, r)) return false;
    for (uint32_t i = 0; i < op->nres; i++) {
      bool made = c->made[op->args[i + 3]] || c->made[r->last->args[i]];
      more |= made && !c->made[r->params.at[i + 1]];
      c->made[r->params.at[i + 1]] |= made;
      c->made[op->res[i]] |= made;
    }
  }
  return true;
}

static bool is_free(Clamp *c, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    bool of = false;
    if (op->nregions && !is_free_loop(c, op)) return false;
    for (uint32_t i = 0; i < op->nargs; i++) of |= c->made[op->args[i]];
    if (!of || op->nregions || op->code == OP_YIELD || chooses(c, op)) continue;
    if (!keeps_place(c, op)) return false;
    for (uint32_t i = 0; i < op->nres; i++) c->made[op->res[i]] = true;
  }
  return true;
}

// The end of the axis whose last coordinate op limits, by a mask of at.
static bool find_end(Module *m, Clamp *c, const Op *min, uint32_t of) {
  c->at = min->args[of];
  for (const Op *op = min->parent->first; op; op = op->next) {
    const Op *end = op->code == OP_LT ? ir_def(c->f, op->args[1]) : NULL;
    if (!end || op->args[0] != c->at || end->code != OP_DIM) continue;
    c->end = (Dim)ir_attr_i(end, AT_DIM, 0);
    if (is_last(m, c->f, min->args[!of], c->end)) return true;
  }
  return false;
}

typedef struct Unclamp {
  Ctx *cx;
  Func *f;
} Unclamp;

static void visit(void *data, Op *op) {
  Unclamp *u = data;
  Func *f = u->f;
  if (op->code != OP_MIN) return;
  const Type *t = ir_type(f, op->res[0]);
  Clamp c = {.f = f, .limited = op->res[0]};
  if (t->kind != TK_ELEM || t->n != 1 ||
      (!find_end(f->mod, &c, op, 0) && !find_end(f->mod, &c, op, 1)))
    return;
  c.axis = t->axis[0];
  c.made = NEWN(&u->cx->scratch, bool, f->values.n);
  c.made[c.limited] = true;
  if (!is_free(&c, f->body)) return;
  ir_replace_uses(f, c.limited, c.at);
  ir_erase(op);
}

void tile_unclamp(Ctx *cx, Func *f) {
  Unclamp u = {cx, f};
  ir_walk(f->body, visit, &u);
}
