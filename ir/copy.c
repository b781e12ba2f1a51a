// A module in another arena. What passes leave behind (ops that are gone, lists
// that have grown) stays where it was.
#include "ir/ir.h"

#include <string.h>

typedef struct Copier {
  Arena *a;
  Ctx *cx;
  Func *to;
} Copier;

static void *copied(Arena *a, const void *at, size_t n, size_t size) {
  void *p = arena_alloc(a, n * size);
  if (n) memcpy(p, at, n * size);
  return p;
}

// The list v points to, in arena a, as long as it is.
#define COPY_VEC(a, v) \
  ((v)->at = copied((a), (v)->at, (v)->n, sizeof *(v)->at), (v)->cap = (v)->n)

// A name that is interned stays the same.
static const char *name_of(const Copier *c, const char *s) {
  return s ? intern(&c->cx->names, s) : NULL;
}

static void copy_attrs(const Copier *c, Op *op) {
  op->attrs = copied(c->a, op->attrs, op->nattrs, sizeof *op->attrs);
  for (uint32_t i = 0; i < op->nattrs; i++) {
    IrAttr *x = &op->attrs[i];
    x->s = name_of(c, x->s);
    if (x->list) x->list = copied(c->a, x->list, x->n, sizeof *x->list);
  }
}

static Region *copy_region(Copier *c, const Region *from, Op *parent);

static Op *copy_op(Copier *c, const Op *from, Region *in) {
  Op *op = copied(c->a, from, 1, sizeof *from);
  op->args = copied(c->a, op->args, op->nargs, sizeof *op->args);
  op->res = copied(c->a, op->res, op->nres, sizeof *op->res);
  op->regions = NEWN(c->a, Region *, op->nregions);
  op->parent = in;
  copy_attrs(c, op);
  for (uint32_t i = 0; i < op->nres; i++) {
    ir_info(c->to, op->res[i])->def = op;
    ir_info(c->to, op->res[i])->region = in;
  }
  for (uint32_t i = 0; i < op->nregions; i++)
    op->regions[i] = copy_region(c, from->regions[i], op);
  return op;
}

static Region *copy_region(Copier *c, const Region *from, Op *parent) {
  Region *r = copied(c->a, from, 1, sizeof *from);
  r->parent = parent;
  r->fn = c->to;
  r->first = r->last = NULL;
  COPY_VEC(c->a, &r->params);
  for (uint32_t i = 0; i < r->params.n; i++)
    ir_info(c->to, r->params.at[i])->region = r;
  for (const Op *op = from->first; op; op = op->next) {
    Op *copy = copy_op(c, op, r);
    copy->prev = r->last;
    copy->next = NULL;
    *(r->last ? &r->last->next : &r->first) = copy;
    r->last = copy;
  }
  return r;
}

static Func *copy_func(Copier *c, const Func *from, Module *m) {
  Func *f = copied(c->a, from, 1, sizeof *from);
  c->to = f;
  f->mod = m;
  COPY_VEC(c->a, &f->params);
  COPY_VEC(c->a, &f->axes);
  COPY_VEC(c->a, &f->grid);
  COPY_VEC(c->a, &f->values);
  for (Value v = 0; v < f->values.n; v++) {
    f->values.at[v].def = NULL;
    f->values.at[v].region = NULL;
  }
  for (uint32_t i = 0; i < f->axes.n; i++)
    f->axes.at[i].name = name_of(c, f->axes.at[i].name);
  f->body = copy_region(c, from->body, NULL);
  for (uint32_t i = 0; i < f->params.n; i++)
    ir_info(f, f->params.at[i].v)->region = f->body;
  return f;
}

static void copy_dims(const Copier *c, DimTab *t) {
  t->arena = t->index.arena = c->a;
  COPY_VEC(c->a, &t->syms);
  COPY_VEC(c->a, &t->names);
  COPY_VEC(c->a, &t->exprs);
  for (uint32_t i = 0; i < t->syms.n; i++) {
    DimSym *s = &t->syms.at[i];
    s->name = name_of(c, s->name);
    s->by = name_of(c, s->by);
    COPY_VEC(c->a, &s->values);
  }
  for (uint32_t i = 0; i < t->names.n; i++)
    t->names.at[i].name = name_of(c, t->names.at[i].name);
  Map *m = &t->index;
  m->key = copied(c->a, m->key, m->cap, sizeof *m->key);
  m->val = copied(c->a, m->val, m->cap, sizeof *m->val);
  m->used = copied(c->a, m->used, m->cap, sizeof *m->used);
}

Module *ir_copy(const Module *m, Arena *to) {
  Copier c = {.a = to, .cx = m->cx};
  Module *out = copied(to, m, 1, sizeof *m);
  out->arena = to;
  out->target = name_of(&c, m->target);
  copy_dims(&c, &out->dims);
  COPY_VEC(to, &out->funcs);
  for (uint32_t i = 0; i < out->funcs.n; i++)
    out->funcs.at[i] = copy_func(&c, m->funcs.at[i], out);
  return out;
}
