// Cloning of ops with their regions, with types inferred again.
#include "ir/infer.h"

#include <assert.h>
#include <string.h>

Value vmap_get(const ValueMap *m, Value v) {
  return v < m->n && m->to[v] ? m->to[v] : v;
}

void vmap_put(ValueMap *m, Value from, Value to) {
  if (from >= m->n) {
    uint32_t n = from + 1 + from / 2 + 16;
    Value *more = NEWN(m->arena, Value, n);
    if (m->n) memcpy(more, m->to, m->n * sizeof *more);
    m->to = more;
    m->n = n;
  }
  m->to[from] = to;
}

typedef struct Cloner {
  const Func *from;
  ValueMap *map;
  const uint32_t *axis;  // NULL = identity
} Cloner;

static uint32_t map_axis(const Cloner *c, uint32_t axis) {
  return c->axis ? c->axis[axis] : axis;
}

static Type map_type(const Cloner *c, const Type *t) {
  if (t->kind != TK_ELEM || !c->axis) return *t;
  Type r = type_scalar(t->dtype);
  for (uint32_t i = 0; i < t->n; i++) {
    uint32_t axis = map_axis(c, t->axis[i]);
    if (!type_has_axis(&r, axis)) r = type_with(r, axis, t->size[i]);
  }
  return r;
}

// a with the axes of b that it lacks.
static Type add_axes(Type a, const Type *b) {
  if (a.kind != TK_ELEM || b->kind != TK_ELEM) return a;
  for (uint32_t i = 0; i < b->n; i++)
    if (!type_has_axis(&a, b->axis[i]))
      a = type_with(a, b->axis[i], b->size[i]);
  return a;
}

// Axes that the operands have gained over those of the original: a given
// result type gains them too.
static Type gained(const Cloner *c, const Builder *b, const Op *op,
                   const Value *args) {
  Type old = type_scalar(DT_BOOL), now = old, more = old;
  for (uint32_t i = 0; i < op->nargs; i++) {
    Type t = map_type(c, ir_type(c->from, op->args[i]));
    old = add_axes(old, &t);
    now = add_axes(now, ir_type(b->fn, args[i]));
  }
  for (uint32_t i = 0; i < now.n; i++)
    if (!type_has_axis(&old, now.axis[i]))
      more = type_with(more, now.axis[i], now.size[i]);
  return more;
}

static Type given_type(const Cloner *c, const Type *t, const Type *more) {
  return add_axes(map_type(c, t), more);
}

static IrAttr clone_attr(const Cloner *c, Arena *a, IrAttr attr) {
  AttrKind kind = attr_kind(attr.id);
  if (kind == AK_AXIS) attr.i = map_axis(c, (uint32_t)attr.i);
  if (kind != AK_AXES || !attr.n) return attr;
  int64_t *list = NEWN(a, int64_t, attr.n);
  for (uint32_t i = 0; i < attr.n; i++)
    list[i] = map_axis(c, (uint32_t)attr.list[i]);
  attr.list = list;
  return attr;
}

static Op *clone(Cloner *c, Builder *b, const Op *op);

static void clone_region(Cloner *c, Func *f, const Region *from, Region *to,
                         const Type *more) {
  for (uint32_t i = 0; i < from->params.n; i++) {
    const ValueInfo *p = ir_info(c->from, from->params.at[i]);
    Type t = given_type(c, &p->type, more);
    Value v = ir_region_param(to, t, p->hint);
    vmap_put(c->map, from->params.at[i], v);
  }
  Builder b = {.fn = f, .region = to};
  // The source may be a region that is growing while it is cloned.
  const Op *last = from->last;
  for (const Op *op = from->first; op; op = op == last ? NULL : op->next)
    clone(c, &b, op);
}

static Op *clone(Cloner *c, Builder *b, const Op *op) {
  Func *f = b->fn;
  Arena *a = f->mod->arena;
  Value *args = NEWN(a, Value, op->nargs);
  for (uint32_t i = 0; i < op->nargs; i++)
    args[i] = vmap_get(c->map, op->args[i]);
  IrAttr *attrs = NEWN(a, IrAttr, op->nattrs);
  for (uint32_t i = 0; i < op->nattrs; i++)
    attrs[i] = clone_attr(c, a, op->attrs[i]);
  Type more = gained(c, b, op, args);
  Type *types = NEWN(a, Type, op->nres);
  for (uint32_t i = 0; i < op->nres; i++)
    types[i] = given_type(c, ir_type(c->from, op->res[i]), &more);
  b->span = op->span;
  Op *copy = ir_op(b, op->code, args, op->nargs, attrs, op->nattrs, types,
                   op->nres, op->nregions);
  for (uint32_t i = 0; i < op->nres; i++) {
    ir_info(f, copy->res[i])->hint = ir_info(c->from, op->res[i])->hint;
    vmap_put(c->map, op->res[i], copy->res[i]);
  }
  for (uint32_t i = 0; i < op->nregions; i++)
    clone_region(c, f, op->regions[i], copy->regions[i], &more);
  return copy;
}

Op *ir_clone(Builder *b, const Func *from, const Op *op, ValueMap *m,
             const uint32_t *axis_map) {
  assert(from->mod == b->fn->mod);
  Cloner c = {.from = from, .map = m, .axis = axis_map};
  Span span = b->span;
  Op *copy = clone(&c, b, op);
  b->span = span;
  return copy;
}
