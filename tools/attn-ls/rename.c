// Rename, over the files of the workspace. Names of the library stay.
#include "tools/attn-ls/server.h"

#include <ctype.h>

static bool may_rename(Ls *ls, const At *at, const Occ *o, Place *out,
                       LsError *err) {
  if (!o || !o->sym) {
    ls_fail(err, E_FAILED, "there is no name here");
  } else if (o->sym->kind == SY_BUILTIN) {
    ls_fail(err, E_FAILED, "builtin functions cannot be renamed");
  } else {
    *out = ls_place_of(ls, at->an, o->sym);
    if (!out->path) ls_fail(err, E_FAILED, "there is no name here");
    else if (ls_is_library(out->path))
      ls_fail(err, E_FAILED, "names of the standard library cannot be renamed");
  }
  return err->code == 0;
}

json_t *ls_prepare_rename(Ls *ls, const json_t *params, LsError *err) {
  At at;
  Place place;
  if (!ls_at_params(ls, params, &at, err)) return NULL;
  const Occ *o = ls_occ_at(at.an, at.offset);
  if (!may_rename(ls, &at, o, &place, err)) return NULL;
  return json_pack("{s:o, s:o}", "range",
                   js_range(&at.doc->text, ls->enc, o->lo, o->hi),
                   "placeholder",
                   js_text(ls, at.doc->text.text + o->lo, o->hi - o->lo));
}

static bool is_name(Ls *ls, const char *s) {
  Ctx cx;
  FeTokens toks = {0};
  size_t n = strlen(s);
  if (!n || n > 1024) return false;
  ctx_init(&cx);
  cx.session = cx.scratch = ls_arena(ls);
  fe_tokens(&cx, ctx_add_source(&cx, "name", s, n), &ls->scratch, &toks);
  ctx_drop(&cx);
  return toks.n == 1 && toks.at[0].lo == 0 && toks.at[0].hi == n &&
         (toks.at[0].kind == FE_NAME || toks.at[0].kind == FE_SOFT);
}

// Another declaration of that name where this one is seen.
static bool clashes(const Analysis *an, const Sym *s, const char *name) {
  for (uint32_t i = 0; i < an->occs.n; i++) {
    const Occ *o = &an->occs.at[i];
    if (!o->sym || o->kind != OCC_DEF || o->sym == s ||
        strcmp(o->sym->name, name) != 0)
      continue;
    if (!s->owner || !o->sym->owner || s->owner == o->sym->owner) return true;
  }
  return false;
}

// Calls take index parameters that they leave out by their name.
static bool bound_by_name(const Analysis *an, const Sym *s) {
  for (uint32_t i = 0; s->kind == SY_INDEX && i < an->calls.n; i++) {
    const Expr *e = an->calls.at[i].expr;
    const Decl *callee = e->sym->decl;
    for (uint32_t k = 0; k < e->nbound && k < callee->params.n; k++)
      if (e->bound[k].by_name &&
          (e->bound[k].index == s || callee->params.at[k].sym == s))
        return true;
  }
  return false;
}

static bool edits_in(Ls *ls, Doc *d, Place want, const char *name,
                     json_t *changes, LsError *err) {
  Analysis *an = ls_analysis_of(ls, d);
  const char *uri = an ? ls_uri_of_path(ls, d->path) : NULL;
  json_t *edits = json_array();
  for (uint32_t i = 0; uri && i < an->occs.n; i++) {
    const Occ *o = &an->occs.at[i];
    Place p = o->sym ? ls_place_of(ls, an, o->sym) : (Place){0};
    if (!p.path || p.path != want.path || p.lo != want.lo) continue;
    // `import m as x`: uses of x keep it.
    if (o->hi - o->lo != want.hi - want.lo) continue;
    if (clashes(an, o->sym, name)) ls_fail(err, E_FAILED, "that name is taken");
    if (bound_by_name(an, o->sym))
      ls_fail(err, E_FAILED, "a call takes this index by its name");
    if (err->code) break;
    json_array_append_new(edits,
                          json_pack("{s:o, s:s}", "range",
                                    js_range(&d->text, ls->enc, o->lo, o->hi),
                                    "newText", name));
  }
  if (json_array_size(edits) && !err->code)
    json_object_set(changes, uri, edits);
  json_decref(edits);
  return err->code == 0;
}

static json_t *versioned(Ls *ls, json_t *changes) {
  json_t *list = json_array();
  const char *uri;
  json_t *edits;
  json_object_foreach(changes, uri, edits) {
    Doc *d = ls_doc_find(ls, ls_path_of_uri(ls, uri));
    json_t *id = json_pack("{s:s}", "uri", uri);
    json_object_set_new(id, "version",
                        d && d->open ? json_integer(d->version) : json_null());
    json_array_append_new(list, json_pack("{s:o, s:O}", "textDocument", id,
                                          "edits", edits));
  }
  json_decref(changes);
  return json_pack("{s:o}", "documentChanges", list);
}

json_t *ls_rename(Ls *ls, const json_t *params, LsError *err) {
  At at;
  Place place;
  const char *name = js_get_str(params, "newName");
  if (!ls_at_params(ls, params, &at, err)) return NULL;
  const Occ *o = ls_occ_at(at.an, at.offset);
  if (!may_rename(ls, &at, o, &place, err)) return NULL;
  if (!name || !is_name(ls, name))
    return ls_fail(err, E_PARAMS, "that is no name");
  bool local = ls_is_local(o->sym);
  json_t *changes = json_object();
  DocList docs = {0};
  if (local) vec_push(&ls->scratch, &docs, at.doc);
  else ls_workspace_docs(ls, &docs);
  Doc *own = ls_doc_of(ls, place.path);
  bool has_own = local;
  for (uint32_t i = 0; i < docs.n; i++) has_own |= docs.at[i] == own;
  if (own && !has_own) vec_push(&ls->scratch, &docs, own);
  for (uint32_t i = 0; i < docs.n; i++)
    if (!edits_in(ls, docs.at[i], place, name, changes, err)) break;
  if (err->code) {
    json_decref(changes);
    return NULL;
  }
  if (ls->client.changes_versioned) return versioned(ls, changes);
  return json_pack("{s:o}", "changes", changes);
}
