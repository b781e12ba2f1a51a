// Sums of a recurrence's inputs over an axis as long as the rows of the state
// become sums over the rows (part of the pass `chunk`): an axis of a sum is
// chosen by its length, and one along the columns would need all of them in one
// task.
//
//   before  %x = load(%K, %t, %v) : f32{t,v}     %s = reduce(%x) {over = [v]}
//   after   %y = load(%K, %t, %d) : f32{t,d}     %s = reduce(%y) {over = [d]}
#include "passes/stream/chunk.h"

typedef struct Turn {
  Func *f;
  uint32_t from;
  uint32_t *axis;  // per axis: what it becomes
  ValueMap map;
} Turn;

// v can be made again along another axis; it does not have that one yet.
static bool can_turn(const Turn *t, Value v) {
  const Op *op = ir_def(t->f, v);
  const Type *type = ir_type(t->f, v);
  if (type->kind != TK_ELEM || !type_has_axis(type, t->from)) return true;
  if (!op || op->nregions || op->code == OP_AFFINE ||
      type_has_axis(type, t->axis[t->from]))
    return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!can_turn(t, op->args[i])) return false;
  return true;
}

static Value turned(Turn *t, Builder *b, Value v) {
  const Type *type = ir_type(t->f, v);
  if (type->kind != TK_ELEM || !type_has_axis(type, t->from)) return v;
  if (v < t->map.n && t->map.to[v]) return t->map.to[v];
  const Op *op = ir_def(t->f, v);
  for (uint32_t i = 0; i < op->nargs; i++) turned(t, b, op->args[i]);
  ir_clone(b, t->f, op, &t->map, t->axis);
  return t->map.to[v];
}

static void turn(Func *f, Op *op, uint32_t row) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  if ((op->code != OP_REDUCE && op->code != OP_DOT) || over->n != 1) return;
  uint32_t from = (uint32_t)over->list[0];
  const Axis *a = &f->axes.at[from], *r = &f->axes.at[row];
  if (from == row || a->role != r->role || a->extent != r->extent) return;
  Turn t = {.f = f, .from = from, .map = {.arena = f->mod->arena}};
  t.axis = NEWN(f->mod->arena, uint32_t, f->axes.n);
  for (uint32_t i = 0; i < f->axes.n; i++) t.axis[i] = i == from ? row : i;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!can_turn(&t, op->args[i])) return;
  Builder b = {.fn = f, .region = op->parent, .before = op, .span = op->span};
  for (uint32_t i = 0; i < op->nargs; i++) turned(&t, &b, op->args[i]);
  const Op *made = ir_clone(&b, f, op, &t.map, t.axis);
  ir_replace_uses(f, op->res[0], made->res[0]);
}

void chunk_sums(Func *f, uint32_t row) {
  for (Op *op = f->body->first, *next; op; op = next) {
    next = op->next;
    turn(f, op, row);
  }
}
