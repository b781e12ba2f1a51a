// Outlines: symbols of a document and of the workspace.
#include "tools/attn-ls/server.h"

enum {
  K_MODULE = 2,
  K_CLASS = 5,
  K_FIELD = 8,
  K_FUNCTION = 12,
  K_VARIABLE = 13,
  K_CONSTANT = 14,
  K_OBJECT = 19,
  K_EVENT = 24,
  K_OPERATOR = 25,
  K_TYPE = 26,
};

static int kind_of(const Decl *d) {
  static const uint8_t kinds[] = {
      [DE_LET] = K_CONSTANT,    [DE_FN] = K_FUNCTION,
      [DE_MASK] = K_OPERATOR,   [DE_MOD] = K_FUNCTION,
      [DE_ROW] = K_FUNCTION,    [DE_ATTENTION] = K_CLASS,
      [DE_RECURRENT] = K_CLASS, [DE_SCHEDULE] = K_OBJECT,
      [DE_CHECK] = K_EVENT};
  return (size_t)d->kind < sizeof kinds ? kinds[d->kind] : 0;
}

typedef struct Outline {
  Ls *ls;
  const Lines *l;
} Outline;

// A name, all that it stands for, and where it is itself.
typedef struct Named {
  const char *name;
  Span all, at;
} Named;

static json_t *symbol(const Outline *o, Named x, const char *detail, int kind,
                      json_t *children) {
  const char *name = x.name;
  Span all = x.all, at = x.at;
  if (at.lo < all.lo || at.hi > all.hi) at = all;
  json_t *s =
      json_pack("{s:o, s:i, s:o, s:o}", "name",
                js_str(o->ls, *name ? name : "?"), "kind", kind, "range",
                js_range(o->l, o->ls->enc, all.lo, all.hi), "selectionRange",
                js_range(o->l, o->ls->enc, at.lo, at.hi));
  if (detail) json_object_set_new(s, "detail", js_str(o->ls, detail));
  if (children && json_array_size(children))
    json_object_set(s, "children", children);
  json_decref(children);
  return s;
}

static void params(const Outline *o, const Decl *d, json_t *out) {
  for (uint32_t i = 0; i < d->params.n + d->outs.n; i++) {
    const Param *p =
        i < d->params.n ? &d->params.at[i] : &d->outs.at[i - d->params.n];
    Buf b = {.arena = &o->ls->scratch};
    buf_add(&b, o->l->text + p->span.lo, p->span.hi - p->span.lo);
    json_array_append_new(out,
                          symbol(o, (Named){p->name, p->span, p->name_span},
                                 b.at, K_FIELD, NULL));
  }
}

static void names(const Outline *o, Stmt *const *at, uint32_t n, json_t *out) {
  for (uint32_t i = 0; i < n; i++) {
    const Stmt *s = at[i];
    for (uint32_t k = 0; k < s->names.n; k++) {
      const NameRef *r = &s->names.at[k];
      if (!r->name || !strcmp(r->name, "_")) continue;
      int kind = s->kind == ST_STATE ? K_FIELD : K_VARIABLE;
      json_array_append_new(out, symbol(o, (Named){r->name, s->span, r->span},
                                        NULL, kind, NULL));
    }
    for (uint32_t k = 0; k < s->indices.n; k++) {
      const NameRef *r = &s->indices.at[k].name;
      json_array_append_new(out, symbol(o, (Named){r->name, r->span, r->span},
                                        "index", K_TYPE, NULL));
    }
    names(o, s->body.at, s->body.n, out);
  }
}

static json_t *outline(const Outline *o, const Decl *d) {
  json_t *children = json_array();
  params(o, d, children);
  names(o, d->body.at, d->body.n, children);
  const char *detail =
      d->kind == DE_SCHEDULE ? d->target : fe_decl_word(d->kind);
  Named x = {d->name ? d->name : "", d->span, d->name_span};
  return symbol(o, x, detail, kind_of(d), children);
}

// Clients that know no trees get the declarations alone.
static json_t *flat(Ls *ls, const Doc *d, const Decl *x) {
  return json_pack("{s:o, s:i, s:{s:s, s:o}}", "name",
                   js_str(ls, x->name ? x->name : "?"), "kind", kind_of(x),
                   "location", "uri", d->uri ? d->uri : d->path, "range",
                   js_range(&d->text, ls->enc, x->span.lo, x->span.hi));
}

json_t *ls_document_symbol(Ls *ls, const json_t *params, LsError *err) {
  Doc *d;
  Analysis *an = ls_analysis_of_params(ls, params, &d, err);
  json_t *out = json_array();
  Outline o = {ls, d ? &d->text : NULL};
  for (uint32_t i = 0; an && i < an->unit->decls.n; i++) {
    const Decl *x = an->unit->decls.at[i];
    if (!kind_of(x)) continue;
    json_array_append_new(out, ls->client.hierarchy ? outline(&o, x)
                                                    : flat(ls, d, x));
  }
  if (d) return out;
  json_decref(out);
  return NULL;
}

// ---------------------------------------------------------------- workspace
static char lower(char c) {
  return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

// The letters of the query in order: "sfx" finds softmax.
static bool matches(const char *name, const char *query) {
  for (; *name && *query; name++)
    if (lower(*name) == lower(*query)) query++;
  return !*query;
}

static void symbols_in(Ls *ls, Doc *d, const char *query, json_t *out) {
  Analysis *an = ls_analysis_of(ls, d);
  const char *uri = an ? ls_uri_of_path(ls, d->path) : NULL;
  for (uint32_t i = 0; uri && i < an->unit->decls.n; i++) {
    const Decl *x = an->unit->decls.at[i];
    if (!x->name || x->kind < DE_LET || x->kind > DE_RECURRENT ||
        !matches(x->name, query))
      continue;
    json_array_append_new(out,
                          json_pack("{s:s, s:i, s:s, s:{s:s, s:o}}", "name",
                                    x->name, "kind", kind_of(x),
                                    "containerName", d->path, "location", "uri",
                                    uri, "range",
                                    js_range(&d->text, ls->enc, x->name_span.lo,
                                             x->name_span.hi)));
  }
}

json_t *ls_workspace_symbol(Ls *ls, const json_t *params, LsError *err) {
  const char *query = js_get_str(params, "query");
  if (!query) return ls_fail(err, E_PARAMS, "no query");
  DocList docs = {0};
  ls_workspace_docs(ls, &docs);
  ls_library_docs(ls, &docs);
  json_t *out = json_array();
  for (uint32_t i = 0; i < docs.n; i++) symbols_in(ls, docs.at[i], query, out);
  return out;
}
