// Roles of indices, read off the body before it is checked.
#include "frontend/checker.h"

// What is known of one index name from its uses.
typedef struct Uses {
  const char *name;
  const Decl *decl;
  bool output;     // item of an output's target
  bool vec;        // vec(d: ..)
  uint32_t last;   // plain item of a last axis, or of a computed vector
  uint32_t inner;  // plain item of another axis
  // the step's extent
  DimTab *dims;
  Dim extent;
  const Expr *clash;  // second, different extent
  const Expr *read;   // the name itself, as a value
} Uses;

static const Param *tensor(const Decl *d, const char *name) {
  for (uint32_t i = 0; i < d->params.n; i++)
    if (d->params.at[i].name == name) return &d->params.at[i];
  return NULL;
}

static bool plain(const Uses *u, const Item *it) {
  return it->kind == ITEM_EXPR && it->lo->kind == EX_NAME &&
         it->lo->name == u->name;
}

static void note_extent(Uses *u, const Param *p, uint32_t axis,
                        const Expr *at) {
  if (!u->dims || !p->sym || axis >= p->sym->ty.rank) return;
  Dim d = p->sym->ty.shape[axis];
  if (u->extent == DIM_NONE) u->extent = d;
  else if (!fe_dims_equal(u->dims, u->extent, d) && !u->clash) u->clash = at;
}

static void in_expr(Uses *u, const Expr *e);

static void in_items(Uses *u, const Expr *base, const Item *at, uint32_t n) {
  const Param *p =
      base && base->kind == EX_NAME ? tensor(u->decl, base->name) : NULL;
  for (uint32_t i = 0; i < n; i++) {
    const Item *it = &at[i];
    if (plain(u, it)) {
      bool last = !p || !p->type || i + 1 == p->type->shape.n;
      u->last += last;
      u->inner += !last;
      if (p) note_extent(u, p, i, it->lo);
      continue;
    }
    if (it->lo) in_expr(u, it->lo);
    if (it->hi) in_expr(u, it->hi);
  }
}

static void in_expr(Uses *u, const Expr *e) {
  if (e->kind == EX_NAME && e->name == u->name && !u->read) u->read = e;
  const Expr *kids[] = {e->a, e->b, e->c};
  for (int i = 0; i < 3; i++)
    if (kids[i]) in_expr(u, kids[i]);
  for (uint32_t i = 0; i < e->list.n; i++) in_expr(u, e->list.at[i]);
  for (uint32_t i = 0; i < e->args.n; i++) {
    const Arg *a = &e->args.at[i];
    if (a->kind == ARG_BINDER && a->name == u->name && e->kind == EX_CALL &&
        e->a->kind == EX_NAME && !strcmp(e->a->name, "vec"))
      u->vec = true;
    in_expr(u, a->value);
  }
  if (e->kind == EX_INDEX) in_items(u, e->a, e->items.at, e->items.n);
}

// An output, or an inout tensor with an equation.
static const Param *output(const Decl *d, const char *name) {
  for (uint32_t i = 0; i < d->outs.n; i++)
    if (d->outs.at[i].name == name) return &d->outs.at[i];
  const Param *p = tensor(d, name);
  return p && p->qual == PQ_INOUT ? p : NULL;
}

static void in_place(Uses *u, const Param *of, const Item *at, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const Expr *e = at[i].kind == ITEM_EXPR ? at[i].lo : NULL;
    const Expr *base = e && e->kind == EX_INDEX ? e->a : NULL;
    if (base && base->kind == EX_NAME && tensor(u->decl, base->name))
      in_place(u, tensor(u->decl, base->name), e->items.at, e->items.n);
    if (!plain(u, &at[i])) continue;
    u->output = true;
    note_extent(u, of, i, e);
  }
}

static void in_target(Uses *u, const Stmt *s) {
  const Param *out = output(u->decl, s->target.name);
  if (out) in_place(u, out, s->items.at, s->items.n);
}

static void in_stmts(Uses *u, Stmt *const *at, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const Stmt *s = at[i];
    if (s->kind == ST_ASSIGN) in_target(u, s);
    if (s->expr) in_expr(u, s->expr);
    for (uint32_t k = 0; k < s->list.n; k++) in_expr(u, s->list.at[k]);
    for (uint32_t k = 0; k < s->indices.n; k++)
      if (s->indices.at[k].domain) in_expr(u, s->indices.at[k].domain);
    in_stmts(u, s->body.at, s->body.n);
  }
}

static bool assigned(Stmt *const *at, uint32_t n, const char *out) {
  for (uint32_t i = 0; i < n; i++)
    if ((at[i]->kind == ST_ASSIGN && at[i]->target.name == out) ||
        assigned(at[i]->body.at, at[i]->body.n, out))
      return true;
  return false;
}

bool ck_outputs_assigned(const Decl *d) {
  for (uint32_t i = 0; i < d->outs.n; i++)
    if (!assigned(d->body.at, d->body.n, d->outs.at[i].name)) return false;
  return true;
}

const Expr *ck_read_of(const Decl *d, const char *name) {
  Uses u = {.name = name, .decl = d};
  in_stmts(&u, d->body.at, d->body.n);
  return u.read;
}

IndexRole ck_role(const Decl *d, const DimTab *t, const IndexDecl *x,
                  Dim extent) {
  Uses u = {.name = x->name.name, .decl = d};
  in_stmts(&u, d->body.at, d->body.n);
  if (is_function(d) || u.vec) return u.output ? IX_PARALLEL : IX_VEC;
  if (u.output) return IX_PARALLEL;
  bool vector = u.last && !u.inner && !x->domain && extent != DIM_NONE &&
                dim_is_fixed(t, extent);
  return vector ? IX_VEC : IX_KEY;
}

Dim ck_axis_of_name(Check *c, const char *name) {
  Uses u = {.name = name, .decl = c->decl, .dims = c->dims};
  in_stmts(&u, c->decl->body.at, c->decl->body.n);
  return u.extent;
}

Dim ck_step_extent(Check *c, const Decl *d, const Stmt *step) {
  Uses u = {.name = step->names.at[0].name, .decl = d, .dims = c->dims};
  in_stmts(&u, step->body.at, step->body.n);
  if (u.extent != DIM_NONE && !u.clash) return u.extent;
  Diag *g = diag_add(c->cx, DIAG_step_extent, step->names.at[0].span, u.name);
  if (u.clash)
    diag_note(c->cx, g, u.clash->span, "another axis than %s",
              dim_text(c, u.extent));
  return DIM_NONE;
}
