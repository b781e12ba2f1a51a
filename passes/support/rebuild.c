// Rebuilding of function bodies.
#include "passes/support/rebuild.h"

#include "ir/deps.h"

Value *rebuild_args(Rebuild *r, const Op *op) {
  Value *args = NEWN(r->f->mod->arena, Value, op->nargs);
  for (uint32_t i = 0; i < op->nargs; i++)
    args[i] = vmap_get(&r->map, op->args[i]);
  return args;
}

void rebuild_put(Rebuild *r, Value from, Value to) {
  ValueInfo *info = ir_info(r->f, to);
  if (!info->hint && info->def) info->hint = ir_info(r->f, from)->hint;
  vmap_put(&r->map, from, to);
}

static void region(Rebuild *r, const Region *from, Region *to);

static void again(Rebuild *r, const Op *op) {
  Arena *a = r->f->mod->arena;
  Type *types = NEWN(a, Type, op->nres);
  for (uint32_t i = 0; i < op->nres; i++) types[i] = *ir_type(r->f, op->res[i]);
  Value *args = rebuild_args(r, op);
  Op *made = ir_op(&r->b, op->code, args, op->nargs, op->attrs, op->nattrs,
                   types, op->nres, op->nregions);
  for (uint32_t i = 0; i < op->nres; i++)
    rebuild_put(r, op->res[i], made->res[i]);
  for (uint32_t i = 0; i < op->nregions; i++)
    region(r, op->regions[i], made->regions[i]);
}

static void region(Rebuild *r, const Region *from, Region *to) {
  Builder outer = r->b;
  r->b.region = to;
  r->b.before = NULL;
  for (uint32_t i = 0; i < from->params.n; i++) {
    Value old = from->params.at[i];
    const char *hint = ir_info(r->f, old)->hint;
    Value v = ir_region_param(to, *ir_type(r->f, old), hint);
    vmap_put(&r->map, old, v);
  }
  rebuild_ops(r, from);
  r->b = outer;
}

void rebuild_ops(Rebuild *r, const Region *from) {
  for (const Op *op = from->first; op; op = op->next) {
    r->b.span = op->span;
    if (!r->visit(r, op)) again(r, op);
  }
}

void rebuild_func(Func *f, RebuildFn *visit, void *data) {
  Region *old = f->body;
  Rebuild r = {.f = f, .visit = visit, .data = data};
  r.map.arena = f->mod->arena;
  r.b = (Builder){.fn = f, .span = NOWHERE};
  f->body = ir_region(f, NULL);
  for (uint32_t i = 0; i < f->params.n; i++)
    ir_info(f, f->params.at[i].v)->region = f->body;
  region(&r, old, f->body);
  ir_sweep(f);
}

// ---------------------------------------------------------------- axes
typedef struct Last {
  const Func *f;
  int64_t axis;  // the largest in use
} Last;

static void see(Last *l, int64_t axis) {
  if (axis > l->axis) l->axis = axis;
}

static void see_value(Last *l, Value v) {
  const Type *t = ir_type(l->f, v);
  if (t->kind == TK_ELEM && t->n) see(l, t->axis[t->n - 1]);
}

static void see_op(void *data, Op *op) {
  Last *l = data;
  for (uint32_t i = 0; i < op->nres; i++) see_value(l, op->res[i]);
  for (uint32_t i = 0; i < op->nattrs; i++) {
    const IrAttr *a = &op->attrs[i];
    if (attr_kind(a->id) == AK_AXIS) see(l, a->i);
    if (attr_kind(a->id) != AK_AXES) continue;
    for (uint32_t j = 0; j < a->n; j++) see(l, a->list[j]);
  }
}

void rebuild_trim(Func *f) {
  Last l = {f, f->key};
  for (uint32_t i = 0; i < f->params.n; i++) see_value(&l, f->params.at[i].v);
  ir_walk(f->body, see_op, &l);
  for (; f->axes.n > l.axis + 1; f->axes.n--)
    if (f->axes.at[f->axes.n - 1].role != AX_VEC) break;
}

// ---------------------------------------------------------------- signatures
Func *rebuild_params(Module *m, const Func *f) {
  Func *g = ir_func(m, f->kind, f->name);
  m->funcs.n--;
  g->span = f->span;
  for (uint32_t i = 0; i < f->params.n; i++) {
    const FuncParam *p = &f->params.at[i];
    const ValueInfo *v = ir_info(f, p->v);
    ir_param(g, v->hint, p->role, v->type);
    g->params.at[i].nograd = p->nograd;
  }
  return g;
}

Func *rebuild_signature(Module *m, const Func *f) {
  Func *g = rebuild_params(m, f);
  for (uint32_t i = 0; i < f->axes.n; i++)
    ir_axis(g, f->axes.at[i].name, f->axes.at[i].role, f->axes.at[i].extent);
  for (uint32_t i = 0; i < f->grid.n; i++)
    vec_push(m->arena, &g->grid, f->grid.at[i]);
  return g;
}

bool rebuild_one_tiled(Ctx *cx, const Func *f, const char *who) {
  uint32_t tiled = 0;
  for (uint32_t i = 0; i < f->grid.n; i++) tiled += f->grid.at[i].tile > 1;
  if (f->axes.n <= 64 && tiled <= 1) return true;
  diag_add(cx, DIAG_pass_unsupported, f->span,
           tiled > 1 ? arena_printf(&cx->session, "%s one tiled axis", who)
                     : "a program may have at most 64 axes");
  return false;
}
