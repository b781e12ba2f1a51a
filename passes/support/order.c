// Topological order and types of a region (see order.h).
#include "passes/support/order.h"

typedef struct Order {
  Func *f;
  Region *r;
  Arena *arena;
  Map done;  // Op * -> 1
  Vec(Op *) ops;
} Order;

static void visit(Order *v, Op *op);

// The op of the sorted region in which x is defined.
static void visit_value(Order *v, Value x) {
  Op *def = ir_def(v->f, x);
  while (def && def->parent != v->r)
    def = def->parent ? def->parent->parent : NULL;
  if (def) visit(v, def);
}

static void visit_region(Order *v, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nargs; i++) visit_value(v, op->args[i]);
    for (uint32_t i = 0; i < op->nregions; i++) visit_region(v, op->regions[i]);
  }
}

static void visit(Order *v, Op *op) {
  uint64_t x;
  if (map_get(&v->done, (uintptr_t)op, &x)) return;
  map_put(&v->done, (uintptr_t)op, 1);
  for (uint32_t i = 0; i < op->nargs; i++) visit_value(v, op->args[i]);
  for (uint32_t i = 0; i < op->nregions; i++) visit_region(v, op->regions[i]);
  vec_push(v->arena, &v->ops, op);
}

void order_region(Func *f, Region *r, Arena *a) {
  Order v = {.f = f, .r = r, .arena = a, .done.arena = a};
  for (Op *op = r->first; op; op = op->next) visit(&v, op);
  r->first = r->last = NULL;
  for (uint32_t i = 0; i < v.ops.n; i++) {
    Op *op = v.ops.at[i];
    op->prev = r->last;
    op->next = NULL;
    *(r->last ? &r->last->next : &r->first) = op;
    r->last = op;
  }
}

void order_infer(Func *f, Region *r, Arena *a) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    if (op->nres != 1 || op_info(op->code)->infer == INF_GIVEN) continue;
    Builder b = {.fn = f, .region = r, .before = op, .span = op->span};
    ValueMap map = {.arena = a};
    Op *copy = ir_clone(&b, f, op, &map, NULL);
    bool same = type_eq(ir_type(f, copy->res[0]), ir_type(f, op->res[0]));
    if (!same) ir_replace_uses(f, op->res[0], copy->res[0]);
    ir_erase(same ? copy : op);
  }
}
