// Hover: what a name is, the type and role that were inferred, its docs; for
// functions and programs what the compiler derives from them.
#include "tools/attn-ls/server.h"

#include "tools/plan/facts.h"

typedef struct Card {
  Ls *ls;
  Analysis *an;
  Buf *out;
  bool markdown;
} Card;

static void code(Card *c, const char *text) {
  if (c->markdown) buf_printf(c->out, "```attn\n%s\n```\n", text);
  else buf_printf(c->out, "%s\n", text);
}

static void paragraph(Card *c, const char *text) {
  if (text && *text) buf_printf(c->out, "\n%s\n", text);
}

// ---------------------------------------------------------------- symbols
static void role(Card *c, const Sym *s) {
  Buf b = {.arena = &c->ls->scratch};
  if (s->kind == SY_INDEX) buf_str(&b, ls_role_text(s->role));
  if (s->kind == SY_LET || s->kind == SY_STATE) {
    Buf v = {.arena = &c->ls->scratch};
    ls_describe_vary(s->owner, s->vary, &v);
    if (v.n) buf_printf(&b, "varies with %s", v.at);
  }
  if (b.n) paragraph(c, b.at);
}

static void dim_facts(Card *c, const Sym *s) {
  const Decl *d = s->owner;
  uint32_t id;
  if (s->kind != SY_DIM || !d || !d->dims ||
      !dim_find_sym(d->dims, s->name, &id))
    return;
  const DimSym *x = &d->dims->syms.at[id];
  Buf b = {.arena = &c->ls->scratch};
  if (x->kind == DIM_SPEC) buf_str(&b, "one specialization for each value");
  else if (x->kind == DIM_RAGGED) buf_str(&b, "another length for each entry");
  else buf_str(&b, "known when the program runs");
  if ((x->kind != DIM_SPEC || x->open) && x->hi < DIM_UNBOUNDED)
    buf_printf(&b, ", %lld .. %lld", (long long)x->lo, (long long)x->hi);
  if (x->divisor > 1 && x->kind != DIM_SPEC)
    buf_printf(&b, ", a multiple of %lld", (long long)x->divisor);
  paragraph(c, b.at);
}

// What the compiler derives. The declaration is read again for that: lowering
// chooses types, which changes the tree.
static void derived(Card *c, const Decl *d) {
  const Source *src = d->unit->source;
  Buf b = {.arena = &c->ls->scratch};
  FactsReader r = {c->an->cx.include_dirs.at, c->an->cx.include_dirs.n,
                   ls_read_open, c->ls};
  facts_of(&r, src->path, src->text, src->len, d->name, &b);
  if (!b.n) return;
  if (c->markdown) buf_printf(c->out, "\n```text\n%s```\n", b.at);
  else buf_printf(c->out, "\n%s", b.at);
}

static void about_decl(Card *c, const Decl *d) {
  Buf head = {.arena = &c->ls->scratch};
  ls_describe_head(d->unit, d, &head);
  code(c, head.at ? head.at : d->name);
  paragraph(c, d->doc);
  if (ls_is_library(d->unit->source->path))
    paragraph(c, arena_printf(&c->ls->scratch, "From `%s`.",
                              d->unit->source->path));
  if (c->an->cx.nerrors == 0) derived(c, d);
}

static void about(Card *c, const Sym *s) {
  Buf b = {.arena = &c->ls->scratch};
  if (s->kind == SY_DECL && s->decl) {
    about_decl(c, s->decl);
    return;
  }
  ls_describe_sym(c->ls, c->an, s, &b);
  code(c, b.at ? b.at : s->name);
  role(c, s);
  dim_facts(c, s);
  if (s->kind == SY_BUILTIN) paragraph(c, fe_builtins[s->builtin].doc);
  if (s->kind == SY_LET && s->decl) paragraph(c, s->decl->doc);
}

// ---------------------------------------------------------------- places
static bool about_name(Card *c, uint32_t offset, uint32_t *lo, uint32_t *hi) {
  const Occ *o = ls_occ_at(c->an, offset);
  if (!o) return false;
  *lo = o->lo;
  *hi = o->hi;
  if (o->sym && o->sym->ty.kind != TY_ERROR) {
    about(c, o->sym);
    return true;
  }
  if (!o->unit) return false;
  code(c, arena_printf(&c->ls->scratch, "import %s", o->unit->source->path));
  for (uint32_t i = 0; i < o->unit->decls.n; i++) {
    const Decl *d = o->unit->decls.at[i];
    if (d->sym) buf_printf(c->out, "%s %s\n", i ? "\n*" : "\n*", d->name);
  }
  return true;
}

// Attributes and keys of schedules.
static bool about_table(Card *c, const char *word, bool attribute) {
  static const char *const attrs[][2] = {
#define ATTR(name, kind, words, doc) {#name, doc},
#include "frontend/attributes.def"
      {NULL, NULL}};
  static const char *const keys[][2] = {
#define KEY(name, kind, doc) {#name, doc},
#include "frontend/schedule.def"
      {NULL, NULL}};
  const char *const(*rows)[2] = attribute ? attrs : keys;
  for (; (*rows)[0]; rows++) {
    if (strcmp((*rows)[0], word) != 0) continue;
    code(c, arena_printf(&c->ls->scratch, "%s%s", attribute ? "@" : "", word));
    paragraph(c, (*rows)[1]);
    return true;
  }
  return false;
}

static bool about_word(Card *c, const Doc *d, uint32_t offset, uint32_t *lo,
                       uint32_t *hi) {
  FeTokens toks = {0};
  fe_tokens(&c->an->cx, c->an->unit->source, &c->ls->scratch, &toks);
  for (uint32_t i = 0; i < toks.n; i++) {
    FeToken t = toks.at[i];
    if (t.lo > offset || offset > t.hi) continue;
    if (t.kind == FE_SIGN && offset == t.hi) continue;
    const char *w = arena_strndup(&c->ls->scratch, d->text.text + t.lo,
                                  t.hi - t.lo),
               *doc;
    *lo = t.lo;
    *hi = t.hi;
    bool at = i && d->text.text[toks.at[i - 1].lo] == '@';
    const Decl *in = ls_decl_at(c->an->unit, t.lo);
    bool key = in && in->kind == DE_SCHEDULE;
    if ((at || key) && about_table(c, w, at)) return true;
    if (t.kind == FE_NAME || !ls_docs_of_word(w, &doc)) continue;
    code(c, w);
    paragraph(c, doc);
    return true;
  }
  return false;
}

static bool about_expr(Card *c, uint32_t offset, uint32_t *lo, uint32_t *hi) {
  ExprPath path = {0};
  ls_exprs_at(c->an, &c->ls->scratch, offset, &path);
  const Expr *e = path.n ? path.at[path.n - 1] : NULL;
  if (!e || e->ty.kind == TY_NONE || e->ty.kind == TY_ERROR) return false;
  const Decl *d = ls_decl_at(c->an->unit, offset);
  Buf b = {.arena = &c->ls->scratch}, v = b;
  ls_describe_type(d, &e->ty, &b);
  code(c, b.at);
  ls_describe_vary(d, e->vary, &v);
  if (v.n) paragraph(c, arena_printf(&c->ls->scratch, "varies with %s", v.at));
  *lo = e->span.lo;
  *hi = e->span.hi;
  return true;
}

json_t *ls_hover(Ls *ls, const json_t *params, LsError *err) {
  At at;
  if (!ls_at_params(ls, params, &at, err)) return NULL;
  Buf b = {.arena = &ls->scratch};
  Card c = {ls, at.an, &b, ls->client.markdown};
  uint32_t lo = at.offset, hi = at.offset;
  bool found = about_name(&c, at.offset, &lo, &hi) ||
               about_word(&c, at.doc, at.offset, &lo, &hi) ||
               about_expr(&c, at.offset, &lo, &hi);
  if (!found || !b.n) return NULL;
  return json_pack("{s:{s:s, s:o}, s:o}", "contents", "kind",
                   c.markdown ? "markdown" : "plaintext", "value",
                   js_text(ls, b.at, b.n), "range",
                   js_range(&at.doc->text, ls->enc, lo, hi));
}
