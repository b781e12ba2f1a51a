// The names of a file: every place where one stands and what it means. Read
// off the checked tree once per analysis; all navigation is lookups in it.
#include "tools/attn-ls/server.h"

#include <stdlib.h>

typedef struct Walk {
  Analysis *an;
  Arena *a;
  uint32_t src;
  const Decl *in;
} Walk;

static void add(Walk *w, Span at, Sym *sym, OccKind kind, const Expr *e) {
  if (at.src != w->src || at.hi <= at.lo) return;
  Occ o = {at.lo, at.hi, kind, sym, NULL, e, w->in};
  vec_push(w->a, &w->an->occs, o);
}

static void name(Walk *w, const NameRef *n, OccKind kind) {
  if (n->name) add(w, n->span, n->sym, kind, NULL);
}

static void expr(Walk *w, const Expr *e);

// --- expressions -----------------------------------------------------------

static Sym *param_sym(const Decl *d, const char *arg) {
  for (uint32_t i = 0; i < d->params.n; i++)
    if (d->params.at[i].name == arg) return d->params.at[i].sym;
  return NULL;
}

static void args(Walk *w, const Expr *e) {
  const Sym *callee = e->sym;
  bool decl = callee && callee->kind == SY_DECL && callee->decl;
  for (uint32_t i = 0; i < e->args.n; i++) {
    const Arg *a = &e->args.at[i];
    Sym *s = NULL;
    if (a->kind == ARG_BINDER) s = e->binder;
    else if (a->kind == ARG_NAMED && decl) s = param_sym(callee->decl, a->name);
    if (a->kind != ARG_POS) add(w, a->name_span, s, OCC_READ, NULL);
    if (a->value) expr(w, a->value);
  }
}

static void items(Walk *w, const Item *at, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (at[i].lo) expr(w, at[i].lo);
    if (at[i].hi) expr(w, at[i].hi);
  }
}

static void expr(Walk *w, const Expr *e) {
  if (e->kind == EX_NAME) add(w, e->span, e->sym, OCC_READ, e);
  if (e->kind == EX_MEMBER) add(w, e->name_span, e->sym, OCC_READ, e);
  if (e->sym && e->sym->kind == SY_DECL && e->sym->decl &&
      (e->kind == EX_CALL || e->kind == EX_PIPE || e->bound)) {
    Call c = {e, w->in};
    vec_push(w->a, &w->an->calls, c);
  }
  const Expr *kids[] = {e->a, e->b, e->c};
  for (int i = 0; i < 3; i++)
    if (kids[i]) expr(w, kids[i]);
  for (uint32_t i = 0; i < e->list.n; i++) expr(w, e->list.at[i]);
  args(w, e);
  items(w, e->items.at, e->items.n);
}

// --- statements ------------------------------------------------------------

static Sym *generic_sym(const Decl *d, const char *dtype) {
  for (uint32_t i = 0; d && i < d->generics.n; i++)
    if (d->generics.at[i].name == dtype) return d->generics.at[i].sym;
  return NULL;
}

static void type(Walk *w, const TypeExpr *t) {
  if (!t) return;
  if (t->generic && !t->row) {
    Span s = t->span;
    s.hi = s.lo + (uint32_t)strlen(t->generic);
    add(w, s, generic_sym(w->in, t->generic), OCC_READ, NULL);
  }
  for (uint32_t i = 0; i < t->shape.n; i++) expr(w, t->shape.at[i]);
}

static void stmts(Walk *w, Stmt *const *at, uint32_t n);

static void stmt(Walk *w, const Stmt *s) {
  for (uint32_t i = 0; i < s->names.n; i++) name(w, &s->names.at[i], OCC_DEF);
  for (uint32_t i = 0; i < s->indices.n; i++) {
    const IndexDecl *x = &s->indices.at[i];
    name(w, &x->name, OCC_DEF);
    if (x->extent) expr(w, x->extent);
    if (x->domain) expr(w, x->domain);
  }
  for (uint32_t i = 0; i < s->list.n; i++) expr(w, s->list.at[i]);
  if (s->kind == ST_ASSIGN) name(w, &s->target, OCC_WRITE);
  items(w, s->items.at, s->items.n);
  type(w, s->type);
  if (s->expr) expr(w, s->expr);
  if (s->extent) expr(w, s->extent);
  stmts(w, s->body.at, s->body.n);
}

static void stmts(Walk *w, Stmt *const *at, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) stmt(w, at[i]);
}

// --- declarations ----------------------------------------------------------

static void generic(Walk *w, const Decl *d, const Generic *g) {
  Span s = g->span;
  s.hi = s.lo + (g->name ? (uint32_t)strlen(g->name) : 0);
  add(w, s, g->sym, OCC_DEF, NULL);
  if (g->lo) expr(w, g->lo);
  if (g->hi) expr(w, g->hi);
  for (uint32_t i = 0; i < g->values.n; i++) expr(w, g->values.at[i]);
  if (g->by) add(w, g->by_span, param_sym(d, g->by), OCC_READ, NULL);
}

static Sym *dim_named(const Decl *d, const char *dim) {
  Sym *s = generic_sym(d, dim);
  return s && s->kind == SY_DIM ? s : NULL;
}

static void layout(Walk *w, const Decl *d, const Layout *l) {
  for (uint32_t i = 0; i < l->order.n; i++) {
    const NameRef *n = &l->order.at[i];
    add(w, n->span, n->sym ? n->sym : dim_named(d, n->name), OCC_READ, NULL);
  }
  for (uint32_t i = 0; i < l->args.n; i++)
    if (l->args.at[i].value) expr(w, l->args.at[i].value);
}

static void param(Walk *w, const Decl *d, const Param *p) {
  add(w, p->name_span, p->sym, OCC_DEF, NULL);
  type(w, p->type);
  if (p->deflt) expr(w, p->deflt);
  if (p->layout) layout(w, d, p->layout);
}

static void import(Walk *w, Decl *d) {
  for (uint32_t i = 0; i < d->path.n; i++) {
    Span s = d->path.at[i].span;
    if (s.src != w->src) continue;
    Occ o = {s.lo, s.hi, OCC_READ, NULL, d->imported, NULL, d};
    vec_push(w->a, &w->an->occs, o);
  }
  for (uint32_t i = 0; i < d->names.n; i++) name(w, &d->names.at[i], OCC_READ);
  if (d->alias.name) name(w, &d->alias, OCC_DEF);
}

static void check(Walk *w, const CheckStmt *c) {
  bool defines = c->kind == CK_LET;
  for (uint32_t i = 0; i < c->names.n; i++)
    name(w, &c->names.at[i], defines ? OCC_DEF : OCC_READ);
  for (uint32_t i = 0; i < c->exprs.n; i++) expr(w, c->exprs.at[i]);
  const Expr *rest[] = {c->got, c->want, c->tol};
  for (int i = 0; i < 3; i++)
    if (rest[i]) expr(w, rest[i]);
}

static void schedule_path(Walk *w, const Decl *d) {
  for (uint32_t i = 0; i < d->path.n; i++) name(w, &d->path.at[i], OCC_READ);
  for (uint32_t i = 0; i < d->settings.n; i++)
    if (d->settings.at[i].value) expr(w, d->settings.at[i].value);
}

static bool names_something(const Decl *d) {
  return d->kind >= DE_LET && d->kind <= DE_RECURRENT;
}

static void decl(Walk *w, Decl *d) {
  w->in = d;
  if (d->kind == DE_IMPORT) import(w, d);
  if (d->kind == DE_SCHEDULE) schedule_path(w, d);
  if (names_something(d)) add(w, d->name_span, d->sym, OCC_DEF, NULL);
  for (uint32_t i = 0; i < d->attrs.n; i++)
    for (uint32_t k = 0; k < d->attrs.at[i].args.n; k++)
      expr(w, d->attrs.at[i].args.at[k].value);
  for (uint32_t i = 0; i < d->generics.n; i++)
    generic(w, d, &d->generics.at[i]);
  for (uint32_t i = 0; i < d->params.n; i++) param(w, d, &d->params.at[i]);
  for (uint32_t i = 0; i < d->outs.n; i++) param(w, d, &d->outs.at[i]);
  for (uint32_t i = 0; i < d->ret.n; i++) type(w, d->ret.at[i]);
  for (uint32_t i = 0; i < d->where.n; i++) expr(w, d->where.at[i]);
  if (d->value) expr(w, d->value);
  stmts(w, d->body.at, d->body.n);
  for (uint32_t i = 0; i < d->checks.n; i++) check(w, &d->checks.at[i]);
}

static int by_place(const void *a, const void *b) {
  const Occ *x = a, *y = b;
  if (x->lo != y->lo) return x->lo < y->lo ? -1 : 1;
  return x->kind < y->kind ? 1 : x->kind > y->kind ? -1 : 0;
}

// The first place of a dim that only types name declares it.
static void mark_implicit(Analysis *an) {
  for (uint32_t i = 0; i < an->occs.n; i++) {
    Occ *o = &an->occs.at[i];
    if (o->sym && o->sym->span.src == an->unit->source->id &&
        o->sym->span.lo == o->lo && o->kind == OCC_READ)
      o->kind = OCC_DEF;
  }
}

void ls_index_unit(Analysis *an) {
  Walk w = {.an = an, .a = &an->cx.session, .src = an->unit->source->id};
  an->occs.n = an->calls.n = 0;
  for (uint32_t i = 0; i < an->unit->decls.n; i++)
    decl(&w, an->unit->decls.at[i]);
  if (an->occs.n) qsort(an->occs.at, an->occs.n, sizeof *an->occs.at, by_place);
  uint32_t n = 0;  // an expression that the parser shares is seen twice
  for (uint32_t i = 0; i < an->occs.n; i++)
    if (!n || an->occs.at[n - 1].lo != an->occs.at[i].lo ||
        an->occs.at[n - 1].hi != an->occs.at[i].hi)
      an->occs.at[n++] = an->occs.at[i];
  an->occs.n = n;
  mark_implicit(an);
}

// --- lookups ---------------------------------------------------------------

const Occ *ls_occ_at(const Analysis *an, uint32_t offset) {
  uint32_t lo = 0, hi = an->occs.n;  // first that begins after offset
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (an->occs.at[mid].lo <= offset) lo = mid + 1;
    else hi = mid;
  }
  for (uint32_t i = lo; i-- > 0 && lo - i < 4;) {
    const Occ *o = &an->occs.at[i];
    if (o->lo <= offset && offset <= o->hi) return o;
  }
  return NULL;
}

const Decl *ls_decl_at(const Unit *u, uint32_t offset) {
  for (uint32_t i = 0; i < u->decls.n; i++) {
    const Decl *d = u->decls.at[i];
    if (d->span.lo <= offset && offset <= d->span.hi) return d;
  }
  return NULL;
}

void ls_expr_parts(const Expr *e, ExprFn *fn, void *data) {
  const Expr *kids[] = {e->a, e->b, e->c};
  for (int i = 0; i < 3; i++)
    if (kids[i]) fn(data, kids[i]);
  for (uint32_t i = 0; i < e->list.n; i++) fn(data, e->list.at[i]);
  for (uint32_t i = 0; i < e->args.n; i++)
    if (e->args.at[i].value) fn(data, e->args.at[i].value);
  for (uint32_t i = 0; i < e->items.n; i++) {
    if (e->items.at[i].lo) fn(data, e->items.at[i].lo);
    if (e->items.at[i].hi) fn(data, e->items.at[i].hi);
  }
}

typedef struct Dig {
  Arena *a;
  uint32_t offset;
  ExprPath *out;
} Dig;

static void dig(void *data, const Expr *e) {
  Dig *d = data;
  if (e->span.lo > d->offset || d->offset > e->span.hi) return;
  vec_push(d->a, d->out, e);
  ls_expr_parts(e, dig, d);
}

static void dig_stmts(Dig *d, Stmt *const *at, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const Stmt *s = at[i];
    if (s->span.lo > d->offset || d->offset > s->span.hi) continue;
    if (s->expr) dig(d, s->expr);
    if (s->extent) dig(d, s->extent);
    for (uint32_t k = 0; k < s->list.n; k++) dig(d, s->list.at[k]);
    for (uint32_t k = 0; k < s->items.n; k++)
      if (s->items.at[k].lo) dig(d, s->items.at[k].lo);
    for (uint32_t k = 0; k < s->indices.n; k++) {
      if (s->indices.at[k].extent) dig(d, s->indices.at[k].extent);
      if (s->indices.at[k].domain) dig(d, s->indices.at[k].domain);
    }
    dig_stmts(d, s->body.at, s->body.n);
  }
}

void ls_exprs_at(const Analysis *an, Arena *a, uint32_t offset, ExprPath *out) {
  const Decl *d = ls_decl_at(an->unit, offset);
  Dig g = {a, offset, out};
  if (!d) return;
  for (uint32_t i = 0; i < d->params.n; i++)
    if (d->params.at[i].deflt) dig(&g, d->params.at[i].deflt);
  for (uint32_t i = 0; i < d->where.n; i++) dig(&g, d->where.at[i]);
  if (d->value) dig(&g, d->value);
  dig_stmts(&g, d->body.at, d->body.n);
  for (uint32_t i = 0; i < d->checks.n; i++) {
    const CheckStmt *c = &d->checks.at[i];
    for (uint32_t k = 0; k < c->exprs.n; k++) dig(&g, c->exprs.at[k]);
    const Expr *rest[] = {c->got, c->want, c->tol};
    for (int k = 0; k < 3; k++)
      if (rest[k]) dig(&g, rest[k]);
  }
}

Place ls_place_of(Ls *ls, const Analysis *an, const Sym *s) {
  Place none = {0};
  Span at = s ? s->span : NOWHERE;
  if (s && s->kind == SY_DECL && s->decl) at = s->decl->name_span;
  const Source *src = ls_source_of(an, at);
  if (!s || s->kind == SY_BUILTIN || !src || at.hi <= at.lo) return none;
  return (Place){intern(&ls->names, src->path), at.lo,
                 at.lo + (uint32_t)strlen(s->name)};
}

bool ls_is_local(const Sym *s) {
  bool param = s->kind == SY_PARAM || s->kind == SY_OUT ||
               (s->kind == SY_INDEX && s->role == IX_PARAM);
  return s->kind != SY_DECL && !s->decl && !param;
}

json_t *js_location(Ls *ls, Analysis *an, Span s) {
  const Source *src = ls_source_of(an, s);
  const char *uri =
      src ? ls_uri_of_path(ls, intern(&ls->names, src->path)) : NULL;
  if (!uri) return NULL;
  const Lines *l = ls_lines_of_source(an, s.src);
  return json_pack("{s:o, s:o}", "uri", js_str(ls, uri), "range",
                   js_range(l, ls->enc, s.lo, s.hi));
}

bool ls_at_params(Ls *ls, const json_t *params, At *out, LsError *err) {
  Pos p;
  *out = (At){.doc = ls_doc_of_params(ls, params, err)};
  if (!out->doc) return false;
  if (!js_read_pos(json_object_get(params, "position"), &p)) {
    ls_fail(err, E_PARAMS, "no position");
    return false;
  }
  out->offset = ls_offset_at(&out->doc->text, ls->enc, p);
  out->an = ls_analysis_of(ls, out->doc);
  if (!out->an) ls_fail(err, E_FAILED, "out of memory");
  return out->an != NULL;
}
