// Diagnostics, pushed or pulled, and what they offer to repair.
#include "tools/attn-ls/server.h"

#include <stdio.h>

// Does d hold text that could not be read?
static bool broken_stmts(Stmt *const *at, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (at[i]->kind == ST_ERROR || broken_stmts(at[i]->body.at, at[i]->body.n))
      return true;
  return false;
}

static bool is_syntax(DiagId id) {
  return strncmp(diag_code(id), "A00", 3) == 0;
}

// In a file with syntax errors, what follows from them is left out: warnings,
// and anything inside a declaration that is not whole.
bool ls_diag_shown(const Analysis *an, const Diag *g) {
  const Unit *u = an->unit;
  if (u->syntax_ok || is_syntax(g->id)) return true;
  if (g->sev != SEV_ERROR) return false;
  const Decl *d = ls_decl_at(u, g->span.lo);
  return d && d->kind != DE_ERROR && !broken_stmts(d->body.at, d->body.n);
}

// Where it is shown: errors of imported files stand at the import.
static Span span_shown(const Analysis *an, Span s) {
  uint32_t id = an->unit->source->id;
  if (s.src == id) return s;
  const Source *src = ls_source_of(an, s);
  for (uint32_t i = 0; src && i < an->unit->decls.n; i++) {
    const Decl *d = an->unit->decls.at[i];
    if (d->kind == DE_IMPORT && d->imported && d->imported->source == src)
      return d->path.at[d->path.n - 1].span;
  }
  return (Span){id, 0, 0};
}

static json_t *related(Ls *ls, Analysis *an, const Diag *g) {
  json_t *list = json_array();
  uint32_t id = an->unit->source->id;
  if (g->span.src != id) {
    json_t *at = js_location(ls, an, g->span);
    if (at)
      json_array_append_new(list, json_pack("{s:o, s:o}", "location", at,
                                            "message", js_str(ls, g->text)));
  }
  for (uint32_t i = 0; i < g->notes.n; i++) {
    json_t *at = js_location(ls, an, g->notes.at[i].span);
    if (!at) continue;
    json_array_append_new(list,
                          json_pack("{s:o, s:o}", "location", at, "message",
                                    js_str(ls, g->notes.at[i].text)));
  }
  return list;
}

// Notes without a place become lines of the message.
static const char *message(Ls *ls, const Analysis *an, const Diag *g) {
  Buf b = {.arena = &ls->scratch};
  buf_str(&b, g->text);
  for (uint32_t i = 0; i < g->notes.n; i++)
    if (!ls_source_of(an, g->notes.at[i].span))
      buf_printf(&b, "\n%s", g->notes.at[i].text);
  for (uint32_t i = 0; i < g->fixes.n; i++)
    if (strstr(g->fixes.at[i].title, "did you mean"))
      buf_printf(&b, "\n%s", g->fixes.at[i].title);
  return b.at;
}

static bool is_unused(const Diag *g) {
  return strncmp(diag_name(g->id), "unused", 6) == 0;
}

json_t *js_diag(Ls *ls, Analysis *an, const Diag *g) {
  static const int severity[] = {[SEV_ERROR] = 1,
                                 [SEV_WARNING] = 2,
                                 [SEV_INFO] = 3};
  Span s = span_shown(an, g->span);
  const Lines *l = ls_lines_of_source(an, s.src);
  json_t *d = json_pack("{s:o, s:i, s:s, s:s, s:o}", "range",
                        js_range(l, ls->enc, s.lo, s.hi), "severity",
                        severity[g->sev], "code", diag_code(g->id), "source",
                        "attn", "message", js_str(ls, message(ls, an, g)));
  json_t *more = related(ls, an, g);
  if (json_array_size(more)) json_object_set(d, "relatedInformation", more);
  json_decref(more);
  const char *page = ls_uri_of_page(ls, g->id);
  if (page)
    json_object_set_new(d, "codeDescription", json_pack("{s:s}", "href", page));
  if (is_unused(g)) json_object_set_new(d, "tags", json_pack("[i]", 1));
  return d;
}

json_t *ls_diagnostics_of(Ls *ls, Doc *d) {
  json_t *list = json_array();
  Analysis *an = ls_analysis_of(ls, d);
  for (uint32_t i = 0; an && i < an->cx.diags.n; i++) {
    const Diag *g = an->cx.diags.at[i];
    if (ls_diag_shown(an, g)) json_array_append_new(list, js_diag(ls, an, g));
  }
  return list;
}

// ---------------------------------------------------------------- push
static void publish(Ls *ls, Doc *d) {
  json_t *list = ls_diagnostics_of(ls, d);
  d->shown = d->an->serial;
  d->published = json_array_size(list) > 0;
  ls_notify(ls, "textDocument/publishDiagnostics",
            json_pack("{s:s, s:I, s:o}", "uri", d->uri, "version",
                      (json_int_t)d->version, "diagnostics", list));
}

// What changed, and the open files that import it.
void ls_publish_all(Ls *ls) {
  for (uint32_t i = 0; ls->changed && i < ls->docs.n; i++) {
    Doc *d = ls->docs.at[i];
    if (!d->open || ls->client.pull) continue;
    ls_analysis_of(ls, d);
    if (d->an->serial != d->shown) publish(ls, d);
  }
  ls->changed = false;
  ls_drop_retired(ls);
  ArenaMark none = {0};
  arena_reset(&ls->scratch, none);
}

// ---------------------------------------------------------------- pull
static json_t *report(Ls *ls, Doc *d, const char *previous) {
  json_t *items = ls_diagnostics_of(ls, d);
  char *text = json_dumps(items, JSON_COMPACT);
  char id[32];
  snprintf(id, sizeof id, "%016llx",
           (unsigned long long)map_hash(text ? text : "",
                                        text ? strlen(text) : 0, 1));
  free(text);
  if (previous && strcmp(previous, id) == 0) {
    json_decref(items);
    return json_pack("{s:s, s:s}", "kind", "unchanged", "resultId", id);
  }
  return json_pack("{s:s, s:s, s:o}", "kind", "full", "resultId", id, "items",
                   items);
}

json_t *ls_diagnostic(Ls *ls, const json_t *params, LsError *err) {
  Doc *d = ls_doc_of_params(ls, params, err);
  return d ? report(ls, d, js_get_str(params, "previousResultId")) : NULL;
}

static const char *previous_of(const json_t *params, const char *uri) {
  const json_t *ids = json_object_get(params, "previousResultIds");
  for (size_t i = 0; i < json_array_size(ids); i++) {
    const json_t *p = json_array_get(ids, i);
    const char *u = js_get_str(p, "uri");
    if (u && strcmp(u, uri) == 0) return js_get_str(p, "value");
  }
  return NULL;
}

json_t *ls_workspace_diagnostic(Ls *ls, const json_t *params, LsError *err) {
  DocList docs = {0};
  json_t *items = json_array();
  (void)err;
  ls_workspace_docs(ls, &docs);
  for (uint32_t i = 0; i < docs.n; i++) {
    Doc *d = docs.at[i];
    const char *uri = ls_uri_of_path(ls, d->path);
    if (!uri) continue;
    json_t *r = report(ls, d, previous_of(params, uri));
    json_object_set_new(r, "uri", js_str(ls, uri));
    json_object_set_new(r, "version",
                        d->open ? json_integer(d->version) : json_null());
    json_array_append_new(items, r);
  }
  return json_pack("{s:o}", "items", items);
}
