// From a name to its declaration, its uses, and the highlights of a file.
#include "tools/attn-ls/server.h"

static json_t *module_location(Ls *ls, const Unit *u) {
  const char *uri = ls_uri_of_path(ls, intern(&ls->names, u->source->path));
  if (!uri) return NULL;
  return json_pack("{s:o, s:{s:{s:i,s:i}, s:{s:i,s:i}}}", "uri",
                   js_str(ls, uri), "range", "start", "line", 0, "character", 0,
                   "end", "line", 0, "character", 0);
}

static Span declared(const Sym *s) {
  Span at = s->kind == SY_DECL && s->decl ? s->decl->name_span : s->span;
  at.hi = at.lo + (uint32_t)strlen(s->name);
  return at;
}

json_t *ls_definition(Ls *ls, const json_t *params, LsError *err) {
  At at;
  if (!ls_at_params(ls, params, &at, err)) return NULL;
  const Occ *o = ls_occ_at(at.an, at.offset);
  if (!o) return NULL;
  if (o->unit) return module_location(ls, o->unit);
  if (!o->sym || o->sym->kind == SY_BUILTIN) return NULL;
  if (o->sym->kind == SY_UNIT && o->sym->unit && o->kind != OCC_DEF)
    return module_location(ls, o->sym->unit);
  return js_location(ls, at.an, declared(o->sym));
}

// Of a value: the dims of its type lead to generics; here, the first one.
json_t *ls_type_definition(Ls *ls, const json_t *params, LsError *err) {
  At at;
  if (!ls_at_params(ls, params, &at, err)) return NULL;
  const Occ *o = ls_occ_at(at.an, at.offset);
  const Sym *s = o ? o->sym : NULL;
  const Decl *d = s ? s->owner : NULL;
  if (!d || !d->dims || s->kind == SY_DIM) return NULL;
  json_t *list = json_array();
  for (uint32_t i = 0; i < d->generics.n; i++) {
    const Generic *g = &d->generics.at[i];
    uint32_t id;
    bool used = false;
    if (!g->sym || !dim_find_sym(d->dims, g->name, &id)) continue;
    for (int k = 0; s->ty.kind == TY_VALUE && k < s->ty.rank; k++)
      used |= dim_uses(d->dims, s->ty.shape[k], id);
    if (s->kind == SY_INDEX && s->dim != DIM_NONE)
      used |= dim_uses(d->dims, s->dim, id);
    json_t *loc = used ? js_location(ls, at.an, declared(g->sym)) : NULL;
    if (loc) json_array_append_new(list, loc);
  }
  return list;
}

// ---------------------------------------------------------------- references
static bool same(Place a, Place b) {
  return a.path && a.path == b.path && a.lo == b.lo;
}

static bool mentions(const Lines *l, const char *name) {
  return memmem(l->text, l->len, name, strlen(name)) != NULL;
}

static void refs_in(Ls *ls, Doc *d, Place want, bool declaration, json_t *out) {
  Analysis *an = ls_analysis_of(ls, d);
  const char *uri = an ? ls_uri_of_path(ls, d->path) : NULL;
  for (uint32_t i = 0; uri && i < an->occs.n; i++) {
    const Occ *o = &an->occs.at[i];
    if (!o->sym || !same(ls_place_of(ls, an, o->sym), want)) continue;
    if (o->kind == OCC_DEF && !declaration) continue;
    json_array_append_new(out,
                          json_pack("{s:o, s:o}", "uri", js_str(ls, uri),
                                    "range",
                                    js_range(&d->text, ls->enc, o->lo, o->hi)));
  }
}

json_t *ls_references(Ls *ls, const json_t *params, LsError *err) {
  At at;
  if (!ls_at_params(ls, params, &at, err)) return NULL;
  const Occ *o = ls_occ_at(at.an, at.offset);
  json_t *out = json_array();
  if (!o || !o->sym) return out;
  Place want = ls_place_of(ls, at.an, o->sym);
  const char *name = arena_strdup(&ls->scratch, o->sym->name);
  bool local = ls_is_local(o->sym);
  bool all = json_is_true(js_path(params, "context.includeDeclaration"));
  DocList docs = {0};
  if (local) {
    vec_push(&ls->scratch, &docs, at.doc);
  } else {
    ls_workspace_docs(ls, &docs);
    ls_library_docs(ls, &docs);
  }
  for (uint32_t i = 0; want.path && i < docs.n; i++)
    if (mentions(&docs.at[i]->text, name))
      refs_in(ls, docs.at[i], want, all, out);
  return out;
}

json_t *ls_highlight(Ls *ls, const json_t *params, LsError *err) {
  At at;
  if (!ls_at_params(ls, params, &at, err)) return NULL;
  const Occ *o = ls_occ_at(at.an, at.offset);
  json_t *out = json_array();
  for (uint32_t i = 0; o && o->sym && i < at.an->occs.n; i++) {
    const Occ *x = &at.an->occs.at[i];
    if (x->sym != o->sym) continue;
    json_array_append_new(out, json_pack("{s:o, s:i}", "range",
                                         js_range(&at.doc->text, ls->enc, x->lo,
                                                  x->hi),
                                         "kind", x->kind == OCC_READ ? 2 : 3));
  }
  return out;
}
