// Layouts of tensors: order of axes, pages, ragged concatenation.
#include "frontend/checker.h"

// --- ragged dims -----------------------------------------------------------

static uint32_t ragged_sym(const DimTab *t, Dim extent) {
  for (uint32_t i = 0; i < t->syms.n; i++)
    if (t->syms.at[i].kind == DIM_RAGGED && dim_uses(t, extent, i)) return i;
  return UINT32_MAX;
}

static const Param *param_named(const Decl *d, const char *name) {
  for (uint32_t i = 0; i < d->params.n; i++)
    if (d->params.at[i].name == name) return &d->params.at[i];
  return NULL;
}

// The batch dim of a ragged dim's lengths (B) or offsets (B + 1).
static Dim batch_dim(const Decl *d, const Sym *by, bool *offsets) {
  Dim n = by->ty.shape[0];
  const DimExpr *x = &d->dims->exprs.at[n];
  int64_t one;
  *offsets = x->op == DIM_ADD && dim_is_const(d->dims, x->b, &one) && one == 1;
  return *offsets ? x->a : n;
}

Sym *fe_ragged_by(const Decl *d, Dim extent, bool *offsets) {
  bool ignored;
  if (extent == DIM_NONE || !d->dims) return NULL;
  uint32_t sym = ragged_sym(d->dims, extent);
  if (sym == UINT32_MAX) return NULL;
  const Param *p = param_named(d, d->dims->syms.at[sym].by);
  if (!p || !p->sym || p->sym->ty.kind != TY_VALUE || p->sym->ty.rank != 1)
    return NULL;
  batch_dim(d, p->sym, offsets ? offsets : &ignored);
  return p->sym;
}

Sym *fe_batch_index(const Decl *d, Dim extent) {
  bool offsets;
  Sym *by = fe_ragged_by(d, extent, &offsets);
  if (!by) return NULL;
  Dim batch = batch_dim(d, by, &offsets);
  for (uint32_t i = 0; i < d->indices.n; i++)
    if (d->indices.at[i]->dim == batch) return d->indices.at[i];
  return NULL;
}

void ck_ragged_index(Check *c, Dim extent, Span at) {
  Sym *by = fe_ragged_by(c->decl, extent, NULL);
  if (!by || fe_batch_index(c->decl, extent)) return;
  bool offsets;
  Diag *d = diag_add(c->cx, DIAG_ragged_index, at, dim_text(c, extent),
                     dim_text(c, batch_dim(c->decl, by, &offsets)));
  diag_note(c->cx, d, by->span, "its lengths are per batch entry");
}

static void ragged_generic(Check *c, Decl *d, Generic *g) {
  const Param *p = param_named(d, g->by);
  if (!p) {
    Diag *e = diag_add(c->cx, DIAG_unknown_name, g->by_span, g->by);
    Guess guess = guess_start(g->by);
    for (uint32_t i = 0; i < d->params.n; i++)
      guess_try(&guess, d->params.at[i].name);
    if (guess.best)
      diag_fix(c->cx, e, g->by_span, guess.best, "did you mean '%s'?",
               guess.best);
    return;
  }
  p->sym->nuses++;
  if (bad(&p->sym->ty)) return;
  if (!ty_is_int(&p->sym->ty) || p->sym->ty.rank != 1)
    diag_add(c->cx, DIAG_ragged_by, g->by_span, g->name);
}

// --- layouts ---------------------------------------------------------------

static Expr *arg_named(const Layout *l, const char *name) {
  for (uint32_t i = 0; i < l->args.n; i++)
    if (l->args.at[i].kind == ARG_NAMED && !strcmp(l->args.at[i].name, name))
      return l->args.at[i].value;
  return NULL;
}

static Expr *first_arg(const Layout *l) {
  return l->args.n && l->args.at[0].kind == ARG_POS ? l->args.at[0].value
                                                    : NULL;
}

static void known_args(Check *c, const Layout *l, const char *const *names) {
  for (uint32_t i = 0; i < l->args.n; i++) {
    const Arg *a = &l->args.at[i];
    bool ok = a->kind == ARG_POS && l->kind == LAY_RAGGED && i == 0;
    for (int k = 0; names[k] && a->kind == ARG_NAMED; k++)
      ok |= !strcmp(a->name, names[k]);
    if (!ok)
      diag_add(c->cx, DIAG_layout_arg, a->span,
               l->kind == LAY_PAGED ? "table = and page ="
                                    : "a ragged dim and by =");
  }
}

// The parameter that e names.
static Sym *param_of(Check *c, Expr *e) {
  if (!ck_single(c, e)) return NULL;
  if (e->kind == EX_NAME && e->sym->kind == SY_PARAM) return e->sym;
  diag_add(c->cx, DIAG_layout_arg, e->span, "the name of a parameter");
  return NULL;
}

static int axis_of(const DimTab *t, const Ty *ty, Dim d) {
  for (int i = 0; i < ty->rank; i++)
    if (fe_dims_equal(t, ty->shape[i], d)) return i;
  return -1;
}

// Finds the one ragged axis and the batch axis it hangs on.
static bool ragged_axes(Check *c, const Decl *d, const Param *p) {
  Layout *l = p->layout;
  const Ty *t = &p->sym->ty;
  l->axis = l->batch_axis = -1;
  for (int i = 0; i < t->rank; i++) {
    if (ragged_sym(c->dims, t->shape[i]) == UINT32_MAX) continue;
    if (l->axis >= 0) l->axis = MAX_RANK;
    else l->axis = i;
  }
  bool offsets;
  Sym *by = l->axis >= 0 && l->axis < MAX_RANK
                ? fe_ragged_by(d, t->shape[l->axis], &offsets)
                : NULL;
  if (by) l->batch_axis = axis_of(c->dims, t, batch_dim(d, by, &offsets));
  if (by && l->batch_axis >= 0) {
    l->by = by;
    return true;
  }
  diag_add(c->cx, DIAG_layout_axes, l->span, p->name);
  return false;
}

// A number, or const dims: each specialization has one.
static Dim page_dim(Check *c, Expr *page) {
  Dim d = ck_dim(c, page, false);
  int64_t lo, hi;
  if (d == DIM_NONE) return d;
  if (!dim_is_fixed(c->dims, d)) {
    diag_add(c->cx, DIAG_not_constant, page->span);
    return DIM_NONE;
  }
  dim_bounds(c->dims, d, &lo, &hi);
  if (lo < 1) diag_add(c->cx, DIAG_dim_range, page->span, (long long)lo);
  return lo < 1 ? DIM_NONE : d;
}

static void paged(Check *c, const Decl *d, const Param *p) {
  static const char *const names[] = {"table", "page", NULL};
  Layout *l = p->layout;
  known_args(c, l, names);
  Expr *table = arg_named(l, "table"), *page = arg_named(l, "page");
  if (!table || !page) {
    diag_add(c->cx, DIAG_paged_table, l->span, table ? "page" : "table");
    return;
  }
  l->table = param_of(c, table);
  if (l->table && (!ty_is_int(&l->table->ty) || l->table->ty.rank != 2))
    diag_add(c->cx, DIAG_page_table, table->span, l->table->name,
             ty_text(c, &l->table->ty));
  l->page = page_dim(c, page);
  ragged_axes(c, d, p);
}

static void ragged(Check *c, const Decl *d, const Param *p) {
  static const char *const names[] = {"by", NULL};
  Layout *l = p->layout;
  known_args(c, l, names);
  Expr *dim = first_arg(l), *by = arg_named(l, "by");
  if (!dim || !by) {
    diag_add(c->cx, DIAG_layout_arg, l->span, "a ragged dim and by =");
    return;
  }
  Dim which = ck_dim(c, dim, false);
  Sym *offsets = param_of(c, by);
  if (which == DIM_NONE || !offsets || !ragged_axes(c, d, p)) return;
  bool are_offsets;
  fe_ragged_by(d, which, &are_offsets);
  if (!fe_dims_equal(c->dims, which, p->sym->ty.shape[l->axis]) ||
      offsets != l->by)
    diag_add(c->cx, DIAG_layout_axes, l->span, p->name);
  else if (!are_offsets)
    diag_add(c->cx, DIAG_ragged_offsets, by->span, offsets->name);
}

// --- layout(b, s, h, d) ----------------------------------------------------

static char low(char ch) {
  return ch >= 'A' && ch <= 'Z' ? (char)(ch + 32) : ch;
}

static bool starts(const char *text, const char *head) {
  while (*head && low(*text) == low(*head)) text++, head++;
  return !*head;
}

// The dim that an index of the body runs over.
static const char *dim_of_index(const Decl *d, const char *name) {
  for (uint32_t i = 0; i < d->body.n; i++) {
    const Stmt *s = d->body.at[i];
    for (uint32_t k = 0; k < s->indices.n; k++) {
      const IndexDecl *x = &s->indices.at[k];
      if (x->name.name == name && x->extent->kind == EX_NAME)
        return x->extent->name;
    }
  }
  return name;
}

// The axis that a name stands for: that dim, the dim of that index, or the
// dim that begins so.
static int named_axis(Check *c, const Ty *t, const char *name) {
  int found = -1, n = 0;
  name = dim_of_index(c->decl, name);
  for (int i = 0; i < t->rank; i++) {
    const char *dim = dim_text(c, t->shape[i]);
    if (!strcmp(dim, name)) return i;
    if (!starts(dim, name)) continue;
    found = i;
    n++;
  }
  return n == 1 ? found : -1;
}

static void order(Check *c, const Param *p) {
  Layout *l = p->layout;
  const Ty *t = &p->sym->ty;
  uint32_t seen = 0;
  for (uint32_t i = 0; i < l->order.n && i < MAX_RANK; i++) {
    int axis = named_axis(c, t, l->order.at[i].name);
    if (axis < 0 || seen >> axis & 1) {
      diag_add(c->cx, DIAG_layout_order, l->order.at[i].span,
               l->order.at[i].name, p->name, fe_shape_text(c, t));
      return;
    }
    seen |= 1u << axis;
    l->perm[i] = (uint8_t)axis;
  }
  if (l->order.n != t->rank)
    diag_add(c->cx, DIAG_layout_order, l->span, "the list", p->name,
             fe_shape_text(c, t));
}

static void layout(Check *c, const Decl *d, Param *p) {
  if (!p->layout || !p->sym || bad(&p->sym->ty)) return;
  if (!is_program(d)) {
    diag_add(c->cx, DIAG_param_qual, p->layout->span, "a layout");
    return;
  }
  switch (p->layout->kind) {
  case LAY_STRIDED: break;
  case LAY_ORDER: order(c, p); break;
  case LAY_PAGED: paged(c, d, p); break;
  case LAY_RAGGED: ragged(c, d, p); break;
  }
}

void ck_layouts(Check *c, Decl *d) {
  for (uint32_t i = 0; i < d->generics.n; i++)
    if (d->generics.at[i].kind == GEN_RAGGED && is_program(d))
      ragged_generic(c, d, &d->generics.at[i]);
  for (uint32_t i = 0; i < d->params.n; i++) layout(c, d, &d->params.at[i]);
  for (uint32_t i = 0; i < d->outs.n; i++) layout(c, d, &d->outs.at[i]);
}

bool fe_names_place(const Item *it, bool table) {
  if (it->kind != ITEM_EXPR || it->new_axis) return false;
  const Expr *e = it->lo;
  if (e->kind == EX_NAME) return true;
  if (!table || e->kind != EX_INDEX || e->a->kind != EX_NAME) return false;
  for (uint32_t i = 0; i < e->items.n; i++)
    if (!fe_names_place(&e->items.at[i], false)) return false;
  return true;
}

const Param *fe_state_inout(const Decl *d, const Stmt *s) {
  const Expr *e = s->expr;
  const Expr *base = e->kind == EX_INDEX ? e->a : e;
  if (base->kind != EX_NAME || !base->sym || base->sym->kind != SY_PARAM)
    return NULL;
  for (uint32_t i = 0; i < e->items.n; i++)
    if (!fe_names_place(&e->items.at[i], true)) return NULL;
  const Param *p = &d->params.at[base->sym->param];
  return p->qual == PQ_INOUT ? p : NULL;
}
