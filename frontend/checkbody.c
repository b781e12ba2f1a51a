// Bodies: statements, states and steps, output equations.
#include "frontend/checker.h"

Sym *ck_sym(Check *c, SymKind kind, const char *name, Span span) {
  Sym *s = NEW(c->a, Sym);
  *s = (Sym){.kind = kind, .name = name, .span = span, .owner = c->decl};
  return s;
}

bool ck_declare(Check *c, Sym *sym) {
  Sym *old = NULL;
  for (Scope *s = c->scope; s && s != c->top && !old; s = s->up)
    old = scope_here(s, sym->name);
  if (old) {
    Diag *d = diag_add(c->cx, DIAG_duplicate_name, sym->span, sym->name);
    diag_note(c->cx, d, old->span, "%s of that name is here", ck_kind(old));
    return false;
  }
  scope_add(c->a, c->scope, sym);
  return true;
}

Sym *ck_new_index(Check *c, NameRef *n, IndexRole role, Dim extent) {
  Sym *s = ck_sym(c, SY_INDEX, n->name, n->span);
  s->ty = ty_scalar(DT_I64, false);
  s->role = role;
  s->dim = extent;
  n->sym = s;
  if (c->decl->indices.n == MAX_INDICES) {
    diag_add(c->cx, DIAG_too_many_indices, n->span, MAX_INDICES);
    s->index_id = MAX_INDICES - 1;
    return s;
  }
  s->index_id = c->decl->indices.n;
  vec_push(c->a, &c->decl->indices, s);
  s->vary = index_bit(s);
  ck_declare(c, s);
  return s;
}

static void misplaced(Check *c, const Stmt *s, const char *what,
                      const char *where) {
  diag_add(c->cx, DIAG_stmt_place, s->span, what, where);
}

// --- let -------------------------------------------------------------------

static void declare_let(Check *c, NameRef *n, Expr *e, int at, Ty ty,
                        uint64_t vary) {
  if (!strcmp(n->name, "_")) return;
  Sym *s = ck_sym(c, SY_LET, n->name, n->span);
  s->ty = ty;
  s->ty.row = false;
  s->vary = vary;
  s->value = e;
  s->is_tuple = at >= 0;
  s->tuple_at = at >= 0 ? (uint32_t)at : 0;
  n->sym = s;
  if (!bad(&ty)) {
    if (at < 0) s->dim = fe_dim_of(c->decl, e);
    s->facts = ck_facts(e);
  }
  ck_declare(c, s);
}

static uint64_t element_vary(const Expr *e, uint32_t i) {
  if (e->kind == EX_TUPLE) return e->list.at[i]->vary;
  if (e->binder && !e->ty.elems[i].row) return e->vary & ~index_bit(e->binder);
  return e->vary;
}

// let p = softmax(s): the fix-it names one result and drops the others.
static void one_name_for_tuple(Check *c, Stmt *s) {
  NameRef *n = &s->names.at[0];
  Diag *d =
      diag_add(c->cx, DIAG_tuple_value, s->expr->span, s->expr->ty.nelems);
  Buf b = {.arena = c->a};
  buf_printf(&b, "(%s", n->name);
  for (uint32_t i = 1; i < s->expr->ty.nelems; i++) buf_str(&b, ", _");
  buf_char(&b, ')');
  diag_fix(c->cx, d, n->span, b.at, "take the first result: let %s =", b.at);
}

static void let(Check *c, Stmt *s) {
  Expr *e = s->expr;
  ck_expr(c, e);
  bool tuple = e->ty.kind == TY_TUPLE;
  bool fits = s->names.n == (tuple ? e->ty.nelems : 1);
  if (tuple && s->names.n == 1) one_name_for_tuple(c, s);
  else if (!bad(&e->ty) && !fits)
    diag_add(c->cx, DIAG_tuple_count, s->span, s->names.n,
             tuple ? e->ty.nelems : 1);
  else if (!tuple && !bad(&e->ty) && !ck_value(c, e)) fits = false;
  for (uint32_t i = 0; i < s->names.n; i++) {
    if (!fits || bad(&e->ty))
      declare_let(c, &s->names.at[i], e, -1, ty_error(), 0);
    else if (tuple)
      declare_let(c, &s->names.at[i], e, (int)i, e->ty.elems[i],
                  element_vary(e, i));
    else declare_let(c, &s->names.at[i], e, -1, e->ty, e->vary);
  }
}

// --- index -----------------------------------------------------------------

static void domain_depends(Check *c, const Sym *s) {
  uint64_t rest = s->domain->vary & ~index_bit(s);
  for (uint32_t i = 0; i < c->decl->indices.n; i++) {
    const Sym *x = c->decl->indices.at[i];
    if (!(rest & index_bit(x)) || x->role == IX_PARALLEL) continue;
    if (c->roles_unsure) return;
    Diag *d =
        diag_add(c->cx, DIAG_domain_keys, s->domain->span, s->name, x->name);
    Span at = s->domain->span;
    const Source *src = c->cx->sources.at[at.src];
    diag_note(c->cx, d, NOWHERE,
              "without the domain, sum(%s: select(%.*s, .., 0.0)) is the same",
              s->name, (int)(at.hi - at.lo), src->text + at.lo);
    return;
  }
}

static void check_domain(Check *c, Sym *s) {
  Expr *e = s->domain;
  if (!ck_single(c, e)) return;
  if (!ty_is_bool(&e->ty) || e->ty.rank) {
    ck_wrong_type(c, e, "a bool");
    return;
  }
  const Expr *odd = ck_float_part(e);
  if (odd) {
    Diag *d = diag_add(c->cx, DIAG_domain_float, e->span, s->name);
    diag_note(c->cx, d, odd->span, "this is a float");
    return;
  }
  domain_depends(c, s);
  ck_empty_domain(c, s);
}

static void index_decl(Check *c, IndexDecl *x) {
  Dim extent = ck_dim(c, x->extent, false);
  IndexRole role = ck_role(c->decl, c->dims, x, extent);
  Sym *s = ck_new_index(c, &x->name, role, extent);
  if (x->domain && role == IX_VEC) {
    diag_add(c->cx, DIAG_vec_domain, x->domain->span, s->name);
    return;
  }
  s->domain = x->domain;
  c->declaring = s;
  if (s->domain) check_domain(c, s);
  c->declaring = NULL;
}

// Is the index's domain more than its extent, in a step? It holds for the whole
// program, and so stands before its steps.
static bool is_late_domain(const Check *c, const IndexDecl *x) {
  const DimTab *t = c->dims;
  const Sym *s = x->name.sym;
  if (!c->step || !s || s->dim == DIM_NONE) return false;
  for (uint32_t i = 0; i < t->syms.n; i++)
    if (t->syms.at[i].kind == DIM_RAGGED && dim_uses(t, s->dim, i)) return true;
  return x->domain != NULL;
}

static void index_stmt(Check *c, Stmt *s) {
  for (uint32_t i = 0; i < s->indices.n; i++) {
    index_decl(c, &s->indices.at[i]);
    if (is_late_domain(c, &s->indices.at[i]))
      misplaced(c, s, "an index with a domain", "before the step");
  }
}

// --- outputs ---------------------------------------------------------------

// An entry of a table, of an inout tensor's item: K[slot[n], h].
static bool is_entry(const Stmt *s, const Item *it) {
  return s->target.sym->kind == SY_PARAM && fe_names_place(it, true) &&
         it->lo->kind == EX_INDEX;
}

static bool entry(Check *c, Item *it, uint64_t *mask) {
  if (!ck_single(c, it->lo)) return false;
  if (it->lo->ty.rank || !ty_is_int(&it->lo->ty)) {
    ck_wrong_type(c, it->lo, "an integer");
    return false;
  }
  it->shifted = true;
  *mask |= it->lo->vary;
  return true;
}

// Indices of O[b, h, q]; the mask of their bits. False if reported.
static bool target_items(Check *c, Stmt *s, const Ty *out, uint64_t *mask) {
  bool ok = true;
  if (s->items.n > out->rank) {
    diag_add(c->cx, DIAG_too_many_items, s->target.span, s->target.name,
             out->rank, out->rank == 1 ? "is" : "es", s->items.n);
    return false;
  }
  for (uint32_t i = 0; i < s->items.n; i++) {
    Item *it = &s->items.at[i];
    if (is_entry(s, it)) {
      ok = entry(c, it, mask) && ok;
      continue;
    }
    Sym *x = it->kind == ITEM_EXPR ? ck_bare_index(c, it->lo) : NULL;
    bool fresh = x && !(*mask & index_bit(x));
    if (!fresh || (x->role != IX_PARALLEL && x->role != IX_STEP)) {
      ck_bad_target(c, it, s->target.name);
      ok = false;
      continue;
    }
    ck_single(c, it->lo);
    *mask |= index_bit(x);
    if (x->dim == DIM_NONE || fe_dims_equal(c->dims, x->dim, out->shape[i]))
      continue;
    diag_add(c->cx, DIAG_output_extent, it->span, x->name, dim_text(c, x->dim),
             i, s->target.name, dim_text(c, out->shape[i]));
    ok = false;
  }
  return ok;
}

static bool varies(const Expr *e, const Sym *x) {
  return e->vary & index_bit(x);
}

// The operand that is to be reduced over x: of sums, products and quotients the
// one side that varies with it.
//   p * V[b, k] / sum(k: p)    p * V[b, k]
static const Expr *to_reduce(const Expr *e, const Sym *x) {
  for (;;) {
    bool linear = e->kind == EX_BINARY &&
                  (e->op == BO_ADD || e->op == BO_SUB || e->op == BO_MUL);
    bool quotient = e->kind == EX_BINARY && e->op == BO_DIV;
    if (e->kind == EX_UNARY && e->op != UO_NOT) e = e->a;
    else if ((linear || quotient) && !varies(e->b, x)) e = e->a;
    else if (linear && !varies(e->a, x)) e = e->b;
    else return e;
  }
}

static void value_varies(Check *c, const Stmt *s, const Sym *x) {
  const Expr *at = to_reduce(s->expr, x);
  const char *f = x->role == IX_KEY ? "sum" : "vec";
  Diag *d =
      diag_add(c->cx, DIAG_value_varies, at->span, s->target.name, x->name);
  diag_note(c->cx, d, x->span, "index %s is declared here", x->name);
  diag_fix(c->cx, d, at->span,
           arena_printf(c->a, "%s(%s: %s)", f, x->name,
                        fe_span_text(c, at->span)),
           x->role == IX_KEY ? "reduce over %s" : "make a vector over %s",
           x->name);
}

// The value may vary with the indices of the target only.
static bool covered(Check *c, Stmt *s, uint64_t mask) {
  uint64_t rest = s->expr->vary & ~mask;
  if (c->step && s->target.sym->kind == SY_OUT)
    rest |= index_bit(c->step) & ~mask;
  for (uint32_t i = 0; i < c->decl->indices.n; i++) {
    const Sym *x = c->decl->indices.at[i];
    if (!(rest & index_bit(x))) continue;
    if (x->role == IX_KEY || x->role == IX_VEC) {
      value_varies(c, s, x);
    } else {
      diag_add(c->cx, DIAG_output_cover, s->target.span, s->target.name,
               x->name);
    }
    return false;
  }
  return true;
}

static bool assign_shape(Check *c, Stmt *s, const Ty *rest) {
  uint8_t map[MAX_RANK];
  if (s->expr->ty.rank == 0 || fe_align(c->dims, &s->expr->ty, rest, map))
    return true;
  diag_add(c->cx, DIAG_assign_shape, s->expr->span,
           fe_shape_text(c, &s->expr->ty), s->target.name,
           fe_shape_text(c, rest));
  return false;
}

// What the last state is written back to has the state's shape.
static void written_back(Check *c, Stmt *s, const Ty *state) {
  bool back = fe_state_inout(c->decl, s) != NULL;
  if (back && s->expr->ty.rank < state->rank)
    diag_add(c->cx, DIAG_assign_shape, s->expr->span,
             fe_shape_text(c, &s->expr->ty), s->target.name,
             fe_shape_text(c, state));
}

// An equation of an output, or of an inout tensor.
static void output(Check *c, Stmt *s, Sym *out) {
  uint64_t mask = 0;
  uint32_t number = out->param;
  if (out->kind == SY_PARAM) number += c->decl->outs.n;
  if (c->repeats) misplaced(c, s, "an output's equation", "outside repeat");
  Ty rest = out->ty;
  bool ok = !bad(&rest) && target_items(c, s, &out->ty, &mask);
  if (c->assigned[number]++) {
    Diag *d = diag_add(c->cx, DIAG_output_once, s->target.span, out->name);
    diag_note(c->cx, d, c->equation[number], "the first is here");
    ok = false;
  } else {
    c->equation[number] = s->target.span;
  }
  if (!ck_single(c, s->expr) || !ok) return;
  if (!covered(c, s, mask)) return;
  rest.rank = (uint8_t)(rest.rank - s->items.n);
  memmove(rest.shape, rest.shape + s->items.n, sizeof(Dim) * rest.rank);
  assign_shape(c, s, &rest);
  ck_fits(c, s->expr, &out->ty, true, out->name);
}

static void assign_state(Check *c, Stmt *s, Sym *state) {
  if (!c->step) misplaced(c, s, "an assignment to a state", "in a step");
  if (s->has_items) {
    diag_add(c->cx, DIAG_state_items, s->target.span, state->name);
    return;
  }
  if (!ck_single(c, s->expr) || bad(&state->ty)) return;
  uint64_t inside = 0;
  for (uint32_t i = 0; i < c->decl->indices.n; i++) {
    const Sym *x = c->decl->indices.at[i];
    if (x->role != IX_KEY && x->role != IX_VEC) inside |= index_bit(x);
  }
  if (!covered(c, s, inside)) return;
  assign_shape(c, s, &state->ty);
  ck_fits(c, s->expr, &state->ty, true, state->name);
}

static bool is_written(const Check *c, const Sym *s) {
  return s->kind == SY_PARAM && c->decl->kind == DE_ATTENTION &&
         c->decl->params.at[s->param].qual == PQ_INOUT;
}

// What an equation writes is not read: nothing says which is first.
static void written_are_unread(Check *c, const Decl *d) {
  for (uint32_t i = 0; i < d->params.n; i++) {
    const Param *p = &d->params.at[i];
    const Expr *at = NULL;
    if (!c->assigned[d->outs.n + i] || !(at = ck_read_of(d, p->name))) continue;
    Diag *g = diag_add(c->cx, DIAG_written_read, at->span, p->name);
    diag_note(c->cx, g, c->equation[d->outs.n + i], "it is written here");
  }
}

static void assign(Check *c, Stmt *s) {
  Sym *t = ck_lookup(c, s->target.name, s->target.span);
  s->target.sym = t;
  if (t && (t->kind == SY_OUT || is_written(c, t))) {
    output(c, s, t);
  } else if (t && t->kind == SY_STATE) {
    assign_state(c, s, t);
  } else {
    if (t) {
      Diag *d = diag_add(c->cx, DIAG_assign_target, s->target.span, t->name,
                         ck_kind(t));
      if (t->kind == SY_PARAM)
        diag_note(c->cx, d, NOWHERE,
                  "an inout parameter of a recurrence is written by `state M "
                  "= %s[..]`",
                  t->name);
    }
    ck_expr(c, s->expr);
  }
}

// --- recurrences -----------------------------------------------------------

static uint64_t parallel_bits(const Decl *d) {
  uint64_t v = 0;
  for (uint32_t i = 0; i < d->indices.n; i++)
    if (d->indices.at[i]->role == IX_PARALLEL) v |= index_bit(d->indices.at[i]);
  return v;
}

static void state(Check *c, Stmt *s) {
  if (c->decl->kind != DE_RECURRENT || c->step)
    misplaced(c, s, "state", "in a recurrence, before its step");
  Sym *sym = ck_sym(c, SY_STATE, s->names.at[0].name, s->names.at[0].span);
  s->names.at[0].sym = sym;
  s->target = s->names.at[0];
  sym->value = s->expr;
  sym->vary = parallel_bits(c->decl);
  if (!ck_type(c, s->type, &sym->ty)) sym->ty = ty_error();
  if (ck_single(c, s->expr) && !bad(&sym->ty) && covered(c, s, sym->vary)) {
    if (assign_shape(c, s, &sym->ty)) written_back(c, s, &sym->ty);
    ck_fits(c, s->expr, &sym->ty, true, sym->name);
  }
  ck_declare(c, sym);
}

static void statements(Check *c, Stmt *const *at, uint32_t n);

static void unused_lets(Check *c, const Scope *s) {
  if (c->cx->nerrors != c->errors) return;
  for (uint32_t i = 0; i < s->syms.n; i++) {
    const Sym *x = s->syms.at[i];
    if (x->nuses || x->name[0] == '_' || x->is_tuple) continue;
    if (x->kind == SY_LET || x->kind == SY_STATE)
      diag_add(c->cx, DIAG_unused_let, x->span, x->name);
    if (x->kind == SY_INDEX && x->role != IX_PARAM && x->role != IX_REPEAT &&
        x->role != IX_STEP)
      diag_add(c->cx, DIAG_unused_index, x->span, x->name);
  }
}

static void block(Check *c, Stmt *s) {
  statements(c, s->body.at, s->body.n);
  unused_lets(c, c->scope);
  c->scope = c->scope->up;
}

static void step(Check *c, Stmt *s) {
  bool again = c->stepped;
  if (c->decl->kind != DE_RECURRENT || c->step || again)
    misplaced(c, s, again && !c->step ? "a second step" : "step",
              "in a recurrence, once");
  Dim extent =
      s->extent ? ck_dim(c, s->extent, false) : ck_step_extent(c, c->decl, s);
  c->stepped = true;
  c->scope = scope_new(c->a, c->scope);
  Sym *outer = c->step;
  c->step = ck_new_index(c, &s->names.at[0], IX_STEP, extent);
  block(c, s);
  c->step = outer;
}

static void repeat(Check *c, Stmt *s) {
  if (!c->step) misplaced(c, s, "repeat", "in a step");
  Dim extent = ck_dim(c, s->extent, false);
  c->scope = scope_new(c->a, c->scope);
  ck_new_index(c, &s->names.at[0], IX_REPEAT, extent);
  c->repeats++;
  block(c, s);
  c->repeats--;
}

// --- all statements --------------------------------------------------------

static void assume(Check *c, Stmt *s) {
  if (ck_single(c, s->expr) && !ty_is_bool(&s->expr->ty))
    ck_wrong_type(c, s->expr, "a bool");
}

static void results(Check *c, Stmt *s, bool last) {
  if (!is_function(c->decl)) {
    misplaced(c, s, "return", "in a function");
    return;
  }
  if (!last) misplaced(c, s, "return", "at the end of a function");
  for (uint32_t i = 0; i < s->list.n; i++) ck_single(c, s->list.at[i]);
  c->returned = s;
}

static void statement(Check *c, Stmt *s, bool last) {
  switch (s->kind) {
  case ST_ERROR: break;
  case ST_LET: let(c, s); break;
  case ST_INDEX: index_stmt(c, s); break;
  case ST_RETURN: results(c, s, last); break;
  case ST_ASSUME: assume(c, s); break;
  case ST_ASSIGN: assign(c, s); break;
  case ST_STATE: state(c, s); break;
  case ST_STEP: step(c, s); break;
  case ST_REPEAT: repeat(c, s); break;
  }
}

static void statements(Check *c, Stmt *const *at, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) statement(c, at[i], i + 1 == n);
}

void ck_program_body(Check *c, Decl *d) {
  c->in_body = true;
  uint32_t written = d->outs.n + d->params.n;
  c->assigned = NEWN(c->a, uint32_t, written + 1);
  c->equation = NEWN(c->a, Span, written + 1);
  c->roles_unsure = !ck_outputs_assigned(d);
  statements(c, d->body.at, d->body.n);
  if (d->kind == DE_RECURRENT && !c->stepped)
    diag_add(c->cx, DIAG_step_missing, d->name_span, d->name);
  for (uint32_t i = 0; c->unit->syntax_ok && i < d->outs.n; i++)
    if (!c->assigned[i])
      diag_add(c->cx, DIAG_output_missing, d->outs.at[i].name_span,
               d->outs.at[i].name);
  written_are_unread(c, d);
  unused_lets(c, c->scope);
}

// --- functions -------------------------------------------------------------

static void result(Check *c, Decl *d, Expr *e, uint32_t i) {
  if (!ck_value(c, e)) return;
  uint64_t key = d->key ? index_bit(d->key) : 0;
  Ty t = e->ty;
  t.row = (e->vary & key) != 0;
  if (i < d->ret.n) {
    Ty want;
    if (!ck_type(c, d->ret.at[i], &want)) return;
    if (t.row && !want.row) {
      diag_add(c->cx, DIAG_row_as_scalar, e->span, d->name);
      return;
    }
    if (!ck_fits(c, e, &want, false, "the result")) return;
    uint8_t map[MAX_RANK];
    if (t.rank && !fe_align(c->dims, &t, &want, map)) {
      diag_add(c->cx, DIAG_assign_shape, e->span, fe_shape_text(c, &t), d->name,
               fe_shape_text(c, &want));
      return;
    }
    t = want;
  }
  t.weak = false;
  vec_push(c->a, &d->results, t);
  uint64_t loose = e->vary & ~key;
  for (uint32_t k = 0; k < d->indices.n; k++) {
    const Sym *x = d->indices.at[k];
    if (x->role == IX_PARAM || !(loose & index_bit(x))) continue;
    diag_add(c->cx, DIAG_value_varies, e->span, d->name, x->name);
  }
}

static void mask_result(Check *c, const Decl *d, const Expr *e) {
  if (d->kind == DE_MASK && e->ty.kind == TY_VALUE &&
      (!ty_is_bool(&e->ty) || e->ty.rank))
    ck_wrong_type(c, e, "a bool");
}

void ck_function_body(Check *c, Decl *d) {
  Expr *one[] = {d->value};
  Expr *const *at = one;
  uint32_t n = 1;
  if (d->has_body) {
    statements(c, d->body.at, d->body.n);
    if (!c->returned) {
      if (c->unit->syntax_ok)
        diag_add(c->cx, DIAG_no_return, d->name_span, d->name);
      return;
    }
    at = c->returned->list.at;
    n = c->returned->list.n;
  } else {
    ck_expr(c, d->value);
  }
  if (d->ret.n && d->ret.n != n) {
    diag_add(c->cx, DIAG_tuple_count, d->name_span, d->ret.n, n);
    return;
  }
  if ((d->kind == DE_MASK || d->kind == DE_MOD) && n != 1) {
    diag_add(c->cx, DIAG_tuple_count, d->name_span, 1, n);
    return;
  }
  d->results.n = 0;
  for (uint32_t i = 0; i < n; i++) {
    mask_result(c, d, at[i]);
    result(c, d, at[i], i);
  }
  unused_lets(c, c->scope);
}
