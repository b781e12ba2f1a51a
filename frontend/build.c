// Constructors of the tree, one per grammar action.
#include "frontend/parse.h"

#include "frontend/parser.tab.h"

// --- expressions -----------------------------------------------------------

static Expr *new_expr(Parse *p, Loc at, ExprKind kind) {
  Expr *e = NEW(p->a, Expr);
  e->kind = kind;
  e->span = fe_span_of(p, at);
  e->id = p->unit->nexprs++;
  e->depth = 1;
  e->dtype = DT_NONE;
  return e;
}

// Makes `child` a part of e. A tree deeper than the limit is cut here, so that
// every walker may recurse.
static Expr *under(Parse *p, Expr *e, Expr *child) {
  if (!child) return NULL;
  if (child->depth < MAX_DEPTH) {
    if (e->depth <= child->depth) e->depth = child->depth + 1;
    return child;
  }
  fe_too_deep(p, (Loc){e->span.lo, e->span.hi});
  Expr *stub = new_expr(p, (Loc){child->span.lo, child->span.hi}, EX_ERROR);
  if (e->depth < 2) e->depth = 2;
  return stub;
}

NameRef fe_name_make(Parse *p, Token t) {
  return (NameRef){t.name, fe_span_of(p, t.at), NULL};
}

static Loc loc_of(Span s) {
  return (Loc){s.lo, s.hi};
}

Expr *ex_leaf(Parse *p, Loc at, ExprKind kind, Token t) {
  Expr *e = new_expr(p, at, kind);
  bool named = kind == EX_NAME || kind == EX_STRING;
  e->name = named ? t.name : NULL;
  e->dtype = t.kind == TK_INT ? DT_I64 : t.dtype;
  e->ival = kind == EX_INT ? t.ival : 0;
  e->fval = kind == EX_FLOAT ? t.fval : 0;
  return e;
}

Expr *ex_name(Parse *p, NameRef n) {
  Expr *e = new_expr(p, loc_of(n.span), EX_NAME);
  e->name = n.name;
  e->name_span = n.span;
  return e;
}

Expr *ex_unary(Parse *p, Loc at, UnOp op, Expr *a) {
  Expr *e = new_expr(p, at, EX_UNARY);
  e->op = (int)op;
  e->a = under(p, e, a);
  return e;
}

Expr *ex_binary(Parse *p, Loc at, BinOp op, Expr *a, Expr *b) {
  Expr *e = new_expr(p, at, EX_BINARY);
  e->op = (int)op;
  e->a = under(p, e, a);
  e->b = under(p, e, b);
  return e;
}

Expr *ex_relate(Parse *p, Loc at, BinOp op, Expr *chain, Expr *b) {
  if (chain->kind == EX_BINARY) {  // the second relation makes it a chain
    chain->kind = EX_CHAIN;
    PUSH(chain->list, chain->a);
    PUSH(chain->list, chain->b);
    PUSH(chain->ops, (BinOp)chain->op);
    chain->a = chain->b = NULL;
    chain->op = 0;
  }
  chain->span = fe_span_of(p, at);
  PUSH(chain->list, under(p, chain, b));
  PUSH(chain->ops, op);
  return chain;
}

Expr *ex_if(Parse *p, Loc at, Expr *c, Expr *t, Expr *other) {
  Expr *e = new_expr(p, at, EX_IF);
  e->a = under(p, e, c);
  e->b = under(p, e, t);
  e->c = under(p, e, other);
  return e;
}

static void set_args(Parse *p, Expr *e, ArgList args) {
  for (uint32_t i = 0; i < args.n; i++)
    args.at[i].value = under(p, e, args.at[i].value);
  VEC_MOVE(e->args, args);
}

Expr *ex_call(Parse *p, Loc at, Expr *callee, ArgList args) {
  Expr *e = new_expr(p, at, EX_CALL);
  e->a = under(p, e, callee);
  e->name_span = e->a->kind == EX_MEMBER ? e->a->name_span : e->a->span;
  set_args(p, e, args);
  return e;
}

Expr *ex_pipe(Parse *p, Loc at, Expr *value, Expr *callee, ArgList args) {
  Expr *e = new_expr(p, at, EX_PIPE);
  e->a = under(p, e, value);
  e->b = under(p, e, callee);
  e->name_span = e->b->kind == EX_MEMBER ? e->b->name_span : e->b->span;
  set_args(p, e, args);
  return e;
}

Expr *ex_index(Parse *p, Loc at, Expr *base, ItemList items) {
  Expr *e = new_expr(p, at, EX_INDEX);
  e->a = under(p, e, base);
  for (uint32_t i = 0; i < items.n; i++) {
    items.at[i].lo = under(p, e, items.at[i].lo);
    items.at[i].hi = under(p, e, items.at[i].hi);
  }
  VEC_MOVE(e->items, items);
  return e;
}

Expr *ex_member(Parse *p, Loc at, Expr *base, NameRef name) {
  Expr *e = new_expr(p, at, EX_MEMBER);
  e->a = under(p, e, base);
  e->name = name.name;
  e->name_span = name.span;
  return e;
}

Expr *ex_cast(Parse *p, Loc at, Token t, Expr *a) {
  Expr *e = new_expr(p, at, EX_CAST);
  e->dtype = t.kind == TK_INT ? DT_I64 : t.dtype;
  e->ival = t.kind == TK_INT;
  e->name_span = fe_span_of(p, t.at);
  e->a = under(p, e, a);
  return e;
}

Expr *ex_tuple(Parse *p, Loc at, Expr *first, ExprList rest) {
  Expr *e = new_expr(p, at, EX_TUPLE);
  PUSH(e->list, under(p, e, first));
  for (uint32_t i = 0; i < rest.n; i++) PUSH(e->list, under(p, e, rest.at[i]));
  return e;
}

Arg fe_arg_make(Parse *p, Loc at, ArgKind kind, NameRef *name, Expr *value) {
  Arg a = {.kind = kind, .span = fe_span_of(p, at), .name_span = NOWHERE};
  if (name) {
    a.name = name->name;
    a.name_span = name->span;
  }
  a.value = value;
  return a;
}

Item fe_item_make(Parse *p, Loc at, ItemKind kind, Expr *lo, Expr *hi) {
  return (Item){.kind = kind, .span = fe_span_of(p, at), .lo = lo, .hi = hi};
}

// --- statements ------------------------------------------------------------

Stmt *st_new(Parse *p, Loc at, StmtKind kind) {
  Stmt *s = NEW(p->a, Stmt);
  s->kind = kind;
  s->span = fe_span_of(p, at);
  return s;
}

Stmt *st_let(Parse *p, Loc at, NameList names, Expr *value) {
  Stmt *s = st_expr(p, at, ST_LET, value);
  VEC_MOVE(s->names, names);
  return s;
}

Stmt *st_index(Parse *p, Loc at, IndexList list) {
  Stmt *s = st_new(p, at, ST_INDEX);
  VEC_MOVE(s->indices, list);
  return s;
}

Stmt *st_return(Parse *p, Loc at, ExprList list) {
  Stmt *s = st_new(p, at, ST_RETURN);
  VEC_MOVE(s->list, list);
  return s;
}

Stmt *st_expr(Parse *p, Loc at, StmtKind kind, Expr *e) {
  Stmt *s = st_new(p, at, kind);
  s->expr = e;
  return s;
}

Stmt *st_assign(Parse *p, Loc at, NameRef target, ItemList *items, Expr *e) {
  Stmt *s = st_expr(p, at, ST_ASSIGN, e);
  s->target = target;
  s->has_items = items != NULL;
  if (items) VEC_MOVE(s->items, *items);
  return s;
}

Stmt *st_state(Parse *p, Loc at, NameRef name, TypeExpr *type, Expr *e) {
  Stmt *s = st_expr(p, at, ST_STATE, e);
  PUSH(s->names, name);
  s->type = type;
  return s;
}

Stmt *st_loop(Parse *p, Loc at, StmtKind kind, NameRef name, Expr *extent) {
  Stmt *s = st_new(p, at, kind);
  PUSH(s->names, name);
  s->extent = extent;
  return s;
}

// --- declarations ----------------------------------------------------------

TypeExpr *type_make(Parse *p, Loc at, Token elem, ExprList shape, bool row) {
  TypeExpr *t = NEW(p->a, TypeExpr);
  t->span = fe_span_of(p, at);
  t->row = row;
  t->is_int = elem.kind == TK_INT;
  t->dtype = elem.kind == TK_DTYPE ? elem.dtype : t->is_int ? DT_I64 : DT_NONE;
  t->generic = elem.kind == TK_IDENT ? elem.name : NULL;
  VEC_MOVE(t->shape, shape);
  return t;
}

Layout *layout_make(Parse *p, Loc at, LayoutKind kind) {
  Layout *l = NEW(p->a, Layout);
  l->kind = kind;
  l->span = fe_span_of(p, at);
  return l;
}

Generic fe_generic_make(Parse *p, Loc at, GenericKind kind) {
  return (Generic){.span = fe_span_of(p, at), .kind = kind};
}

Param fe_param_make(Parse *p, Loc at, int qual, NameRef name, TypeExpr *type) {
  return (Param){.span = fe_span_of(p, at),
                 .qual = (ParamQual)qual,
                 .name = name.name,
                 .name_span = name.span,
                 .type = type};
}

CheckStmt fe_check_make(Parse *p, Loc at, CheckKind kind, NameList names,
                        ExprList exprs) {
  CheckStmt c = {.kind = kind, .span = fe_span_of(p, at)};
  VEC_MOVE(c.names, names);
  VEC_MOVE(c.exprs, exprs);
  return c;
}

Decl *de_new(Parse *p, Loc at, DeclKind kind, NameRef name) {
  Decl *d = NEW(p->a, Decl);
  d->kind = kind;
  d->span = fe_span_of(p, at);
  d->name = name.name;
  d->name_span = name.name ? name.span : d->span;
  d->unit = p->unit;
  return d;
}

Decl *de_code(Parse *p, Loc at, DeclKind kind, NameRef name, Sig sig,
              Body body) {
  Decl *d = de_new(p, at, kind, name);
  VEC_MOVE(d->generics, sig.generics);
  VEC_MOVE(d->params, sig.params);
  VEC_MOVE(d->outs, sig.outs);
  VEC_MOVE(d->ret, sig.ret);
  VEC_MOVE(d->where, sig.where);
  VEC_MOVE(d->body, body.stmts);
  d->value = body.value;
  d->has_body = body.braces;
  return d;
}

Decl *de_import(Parse *p, Loc at, NameList path, NameList names) {
  Decl *d = de_new(p, at, DE_IMPORT, path.at[path.n - 1]);
  VEC_MOVE(d->path, path);
  VEC_MOVE(d->names, names);
  return d;
}

void fe_unit_add(Parse *p, AttrList attrs, Decl *d) {
  if (attrs.n) d->span.lo = attrs.at[0].span.lo;
  VEC_MOVE(d->attrs, attrs);
  PUSH(p->unit->decls, d);
}

// --- doc comments ----------------------------------------------------------

static bool is_doc(const Parse *p, const Trivia *t) {
  return t->kind == TR_COMMENT && t->span.hi - t->span.lo >= 2 &&
         p->src->text[t->span.lo + 1] == '#';
}

static bool only_space(const Parse *p, uint32_t lo, uint32_t hi) {
  for (; lo < hi; lo++)
    if (!strchr(" \t\r\n\f", p->src->text[lo]) || !p->src->text[lo])
      return false;
  return true;
}

// The doc lines that end at trivia `n` (exclusive) right above offset `at`.
static const char *doc_above(Parse *p, uint32_t n, uint32_t at) {
  const Trivia *t = p->unit->trivia.at;
  uint32_t first = n;
  while (first > 0 && is_doc(p, &t[first - 1]) &&
         fe_begins_line(p, t[first - 1].span.lo) &&
         only_space(p, t[first - 1].span.hi, at)) {
    first--;
    at = t[first].span.lo;
  }
  if (first == n) return NULL;
  Buf b = {.arena = p->a};
  for (; first < n; first++) {
    uint32_t lo = t[first].span.lo + 2, hi = t[first].span.hi;
    if (lo < hi && p->src->text[lo] == ' ') lo++;
    while (hi > lo && strchr(" \t\r\f", p->src->text[hi - 1])) hi--;
    if (b.n) buf_char(&b, '\n');
    buf_add(&b, p->src->text + lo, hi - lo);
  }
  return b.at;
}

void fe_unit_docs(Parse *p) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->unit->decls.n; i++) {
    Decl *d = p->unit->decls.at[i];
    while (n < p->unit->trivia.n && p->unit->trivia.at[n].span.lo < d->span.lo)
      n++;
    d->doc = doc_above(p, n, d->span.lo);
  }
}
