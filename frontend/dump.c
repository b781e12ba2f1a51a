// The tree as an S-expression, one declaration or statement a line:
//
//   (attention gqa
//     (generic D const 64 128)
//     (param Q bf16[B Hq])
//     (let (s) (* scale (call dot Q K))))
//
// Deterministic, and short enough to be read in tests. Checked expressions
// carry their type and the indices they vary with: (call exp s):f32{b,q,k}.
#include "frontend/frontend.h"

typedef struct Dump {
  Buf *out;
  const Decl *decl;
  int indent;
} Dump;

static void expr(Dump *d, const Expr *e);

const char *fe_binop_text(BinOp op) {
  static const char *const text[] = {"+",  "-",  "*", "/", "//", "%",
                                     "@@", "**", "<", ">", "<=", ">=",
                                     "==", "!=", "&", "|"};
  return text[op];
}

static void newline(Dump *d) {
  buf_char(d->out, '\n');
  for (int i = 0; i < d->indent; i++) buf_str(d->out, "  ");
}

// --- expressions -----------------------------------------------------------

static void put(Dump *d, const char *s) {
  buf_str(d->out, s);
}

static void exprs(Dump *d, Expr *const *at, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    buf_char(d->out, ' ');
    expr(d, at[i]);
  }
}

static void args(Dump *d, const Expr *e) {
  for (uint32_t i = 0; i < e->args.n; i++) {
    const Arg *a = &e->args.at[i];
    buf_char(d->out, ' ');
    if (a->kind == ARG_POS) {
      expr(d, a->value);
      continue;
    }
    buf_printf(d->out, "(%s %s ", a->kind == ARG_NAMED ? "=" : ":", a->name);
    expr(d, a->value);
    buf_char(d->out, ')');
  }
}

static void item(Dump *d, const Item *t) {
  buf_char(d->out, ' ');
  if (t->kind == ITEM_EXPR) {
    expr(d, t->lo);
    return;
  }
  put(d, "(slice ");
  if (t->lo) expr(d, t->lo);
  else put(d, "_");
  put(d, " ");
  if (t->hi) expr(d, t->hi);
  else put(d, "_");
  put(d, ")");
}

static void chain(Dump *d, const Expr *e) {
  put(d, "(chain ");
  expr(d, e->list.at[0]);
  for (uint32_t i = 0; i < e->ops.n; i++) {
    buf_printf(d->out, " %s ", fe_binop_text(e->ops.at[i]));
    expr(d, e->list.at[i + 1]);
  }
  put(d, ")");
}

static void leaf(Dump *d, const Expr *e) {
  switch (e->kind) {
  case EX_NAME: put(d, e->name); break;
  case EX_INT: buf_printf(d->out, "%lld", (long long)e->ival); break;
  case EX_FLOAT: buf_double(d->out, e->fval); break;
  case EX_STRING: buf_json(d->out, e->name, strlen(e->name)); break;
  case EX_BOOL: put(d, e->ival ? "true" : "false"); break;
  case EX_INF: put(d, "inf"); break;
  default: put(d, "(error)"); break;
  }
}

static void node(Dump *d, const Expr *e) {
  const char *head = NULL;
  switch (e->kind) {
  case EX_UNARY: head = e->op == UO_NEG ? "-" : "!"; break;
  case EX_BINARY: head = fe_binop_text((BinOp)e->op); break;
  case EX_CALL: head = "call"; break;
  case EX_PIPE: head = "pipe"; break;
  case EX_INDEX: head = "index"; break;
  case EX_MEMBER: head = "member"; break;
  case EX_CAST: head = e->ival ? "int" : dtype_name(e->dtype); break;
  case EX_IF: head = "if"; break;
  case EX_TUPLE: head = "tuple"; break;
  default: leaf(d, e); return;
  }
  buf_printf(d->out, "(%s", head);
  Expr *const kids[] = {e->a, e->b, e->c};
  for (int i = 0; i < 3; i++)
    if (kids[i]) exprs(d, &kids[i], 1);
  exprs(d, e->list.at, e->list.n);
  args(d, e);
  for (uint32_t i = 0; i < e->items.n; i++) item(d, &e->items.at[i]);
  if (e->kind == EX_MEMBER) buf_printf(d->out, " %s", e->name);
  put(d, ")");
}

static void type_of(Dump *d, const Ty *t) {
  if (t->kind == TY_TUPLE) {
    put(d, "(");
    for (uint32_t i = 0; i < t->nelems; i++) {
      if (i) put(d, ",");
      type_of(d, &t->elems[i]);
    }
    put(d, ")");
    return;
  }
  if (t->kind != TY_VALUE) {
    put(d, t->kind == TY_STRING ? "string" : t->kind == TY_AUTO ? "auto" : "?");
    return;
  }
  buf_printf(d->out, "%s%s", t->weak ? "~" : "", dtype_name(t->dtype));
  if (!t->rank) return;
  for (int i = 0; i < t->rank; i++) {
    put(d, i ? "," : "[");
    dim_print(d->decl->dims, t->shape[i], d->out);
  }
  put(d, "]");
}

static void varies(Dump *d, const Expr *e) {
  const char *before = "{";
  for (uint32_t i = 0; i < d->decl->indices.n; i++) {
    if (!(e->vary >> i & 1)) continue;
    buf_printf(d->out, "%s%s", before, d->decl->indices.at[i]->name);
    before = ",";
  }
  if (e->vary) put(d, "}");
}

static void expr(Dump *d, const Expr *e) {
  if (e->kind == EX_CHAIN) chain(d, e);
  else node(d, e);
  bool literal = e->kind >= EX_INT && e->kind <= EX_INF;
  if (e->ty.kind == TY_NONE || literal) return;
  put(d, ":");
  type_of(d, &e->ty);
  if (e->vary) varies(d, e);
}

// --- types and signatures --------------------------------------------------

static void type(Dump *d, const TypeExpr *t) {
  buf_printf(d->out, "%s%s", t->row ? "row " : "",
             t->is_int    ? "int"
             : t->generic ? t->generic
                          : dtype_name(t->dtype));
  if (!t->shape.n) return;
  put(d, "[");
  for (uint32_t i = 0; i < t->shape.n; i++) {
    if (i) put(d, " ");
    expr(d, t->shape.at[i]);
  }
  put(d, "]");
}

static void attr(Dump *d, const Attr *a) {
  newline(d);
  buf_printf(d->out, "(attr %s", a->name);
  Expr as_call = {.args = {.at = a->args.at, .n = a->args.n}};
  args(d, &as_call);
  put(d, ")");
}

static void generic(Dump *d, const Generic *g) {
  static const char *const kinds[] = {"dyn", "const", "ragged", "dtype"};
  newline(d);
  buf_printf(d->out, "(generic %s %s", g->name, kinds[g->kind]);
  if (g->by) buf_printf(d->out, " %s", g->by);
  if (g->has_range) {
    put(d, " (in");
    exprs(d, &g->lo, 1);
    exprs(d, &g->hi, 1);
    put(d, ")");
  }
  exprs(d, g->values.at, g->values.n);
  for (uint32_t i = 0; i < g->dtypes.n; i++)
    buf_printf(d->out, " %s", dtype_name(g->dtypes.at[i]));
  put(d, ")");
}

static void layout(Dump *d, const Layout *l) {
  static const char *const kinds[] = {"strided", "order", "paged", "ragged"};
  buf_printf(d->out, " (%s", kinds[l->kind]);
  for (uint32_t i = 0; i < l->order.n; i++)
    buf_printf(d->out, " %s", l->order.at[i].name);
  Expr as_call = {.args = {.at = l->args.at, .n = l->args.n}};
  args(d, &as_call);
  put(d, ")");
}

static void param(Dump *d, const char *head, const Param *p) {
  static const char *const quals[] = {"", "nograd ", "inout "};
  newline(d);
  buf_printf(d->out, "(%s %s%s", head, quals[p->qual], p->name);
  if (p->type) {
    put(d, " ");
    type(d, p->type);
  }
  if (p->deflt) {
    put(d, " =");
    exprs(d, &p->deflt, 1);
  }
  if (p->layout) layout(d, p->layout);
  put(d, ")");
}

// --- statements ------------------------------------------------------------

static void stmt(Dump *d, const Stmt *s);

static void block(Dump *d, Stmt *const *at, uint32_t n) {
  d->indent++;
  for (uint32_t i = 0; i < n; i++) stmt(d, at[i]);
  d->indent--;
}

static void names(Dump *d, const NameRef *at, uint32_t n) {
  put(d, " (");
  for (uint32_t i = 0; i < n; i++)
    buf_printf(d->out, i ? " %s" : "%s", at[i].name);
  put(d, ")");
}

static void index_stmt(Dump *d, const Stmt *s) {
  for (uint32_t i = 0; i < s->indices.n; i++) {
    const IndexDecl *x = &s->indices.at[i];
    buf_printf(d->out, " (%s", x->name.name);
    exprs(d, &x->extent, 1);
    if (x->domain) {
      put(d, " where");
      exprs(d, &x->domain, 1);
    }
    put(d, ")");
  }
}

static void stmt(Dump *d, const Stmt *s) {
  static const char *const heads[] = {"error",  "let",    "indices",
                                      "return", "assume", "=",
                                      "state",  "step",   "repeat"};
  newline(d);
  buf_printf(d->out, "(%s", heads[s->kind]);
  if (s->names.n) names(d, s->names.at, s->names.n);
  if (s->kind == ST_INDEX) index_stmt(d, s);
  if (s->kind == ST_ASSIGN) buf_printf(d->out, " (%s", s->target.name);
  for (uint32_t i = 0; i < s->items.n; i++) item(d, &s->items.at[i]);
  if (s->kind == ST_ASSIGN) put(d, ")");
  if (s->type) {
    put(d, " ");
    type(d, s->type);
  }
  if (s->extent) exprs(d, &s->extent, 1);
  if (s->reverse) put(d, " reverse");
  if (s->expr) exprs(d, &s->expr, 1);
  exprs(d, s->list.at, s->list.n);
  block(d, s->body.at, s->body.n);
  put(d, ")");
}

// --- declarations ----------------------------------------------------------

static void check(Dump *d, const CheckStmt *c) {
  static const char *const heads[] = {"dims", "input", "expect", "let"};
  newline(d);
  buf_printf(d->out, "(%s", heads[c->kind]);
  if (c->names.n) names(d, c->names.at, c->names.n);
  exprs(d, c->exprs.at, c->exprs.n);
  Expr *const parts[] = {c->got, c->want, c->tol};
  if (c->got) exprs(d, parts, 3);
  put(d, ")");
}

static void import(Dump *d, const Decl *t) {
  put(d, " ");
  for (uint32_t i = 0; i < t->path.n; i++)
    buf_printf(d->out, i ? ".%s" : "%s", t->path.at[i].name);
  if (t->names.n) names(d, t->names.at, t->names.n);
  if (t->alias.name) buf_printf(d->out, " as %s", t->alias.name);
}

static void signature(Dump *d, const Decl *t) {
  for (uint32_t i = 0; i < t->attrs.n; i++) attr(d, &t->attrs.at[i]);
  for (uint32_t i = 0; i < t->generics.n; i++) generic(d, &t->generics.at[i]);
  for (uint32_t i = 0; i < t->params.n; i++)
    param(d, "param", &t->params.at[i]);
  for (uint32_t i = 0; i < t->outs.n; i++) param(d, "out", &t->outs.at[i]);
  for (uint32_t i = 0; i < t->ret.n; i++) {
    newline(d);
    put(d, "(ret ");
    type(d, t->ret.at[i]);
    put(d, ")");
  }
  for (uint32_t i = 0; i < t->where.n; i++) {
    newline(d);
    put(d, "(where");
    exprs(d, &t->where.at[i], 1);
    put(d, ")");
  }
}

const char *fe_decl_word(DeclKind k) {
  static const char *const words[] = {[DE_ERROR] = "error",
                                      [DE_IMPORT] = "import",
                                      [DE_LET] = "let",
                                      [DE_FN] = "fn",
                                      [DE_MASK] = "mask",
                                      [DE_MOD] = "mod",
                                      [DE_ROW] = "row",
                                      [DE_ATTENTION] = "attention",
                                      [DE_RECURRENT] = "recurrent",
                                      [DE_SCHEDULE] = "schedule",
                                      [DE_CHECK] = "check"};
  return words[k];
}

static void decl(Dump *d, const Decl *t) {
  d->decl = t;
  buf_printf(d->out, "(%s", fe_decl_word(t->kind));
  if (t->kind == DE_IMPORT) import(d, t);
  else if (t->name && t->kind != DE_CHECK) buf_printf(d->out, " %s", t->name);
  if (t->kind == DE_CHECK) {
    put(d, " ");
    buf_json(d->out, t->name, strlen(t->name));
  }
  if (t->target) buf_printf(d->out, " for \"%s\"", t->target);
  d->indent++;
  if (t->doc) {
    newline(d);
    put(d, "(doc ");
    buf_json(d->out, t->doc, strlen(t->doc));
    put(d, ")");
  }
  signature(d, t);
  for (uint32_t i = 0; i < t->settings.n; i++) {
    newline(d);
    buf_printf(d->out, "(set %s", t->settings.at[i].name);
    exprs(d, &t->settings.at[i].value, 1);
    put(d, ")");
  }
  for (uint32_t i = 0; i < t->checks.n; i++) check(d, &t->checks.at[i]);
  if (t->value) {
    newline(d);
    expr(d, t->value);
  }
  d->indent--;
  block(d, t->body.at, t->body.n);
  put(d, ")\n");
}

void fe_dump(const Unit *unit, Buf *out) {
  Dump d = {.out = out};
  buf_str(out, "");
  for (uint32_t i = 0; i < unit->decls.n; i++) decl(&d, unit->decls.at[i]);
}
