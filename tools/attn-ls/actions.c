// Code actions: the fix-its of diagnostics, one by one and all at once.
#include "tools/attn-ls/server.h"

static bool wants(const json_t *params, const char *kind) {
  const json_t *only = js_path(params, "context.only");
  if (!only) return true;
  for (size_t i = 0; i < json_array_size(only); i++) {
    const char *k = json_string_value(json_array_get(only, i));
    size_t n = k ? strlen(k) : 0;
    if (k && strncmp(kind, k, n) == 0 && (!kind[n] || kind[n] == '.' || !n))
      return true;
  }
  return false;
}

static json_t *js_edit(Ls *ls, Analysis *an, const FixIt *f) {
  const Lines *l = ls_lines_of_source(an, f->span.src);
  return json_pack("{s:o, s:o}", "range",
                   js_range(l, ls->enc, f->span.lo, f->span.hi), "newText",
                   js_str(ls, f->text));
}

static json_t *workspace_edit(const Doc *d, json_t *edits) {
  json_t *changes = json_object();
  json_object_set_new(changes, d->uri ? d->uri : d->path, edits);
  return json_pack("{s:o}", "changes", changes);
}

static bool here(const Analysis *an, const FixIt *f) {
  return f->span.src == an->unit->source->id;
}

static void quick_fixes(Ls *ls, Analysis *an, const Doc *d, uint32_t lo,
                        uint32_t hi, json_t *out) {
  for (uint32_t i = 0; i < an->cx.diags.n; i++) {
    const Diag *g = an->cx.diags.at[i];
    bool touches = g->span.lo <= hi && lo <= g->span.hi;
    if (!touches || !ls_diag_shown(an, g)) continue;
    for (uint32_t k = 0; k < g->fixes.n; k++) {
      const FixIt *f = &g->fixes.at[k];
      if (!here(an, f)) continue;
      json_t *edits = json_pack("[o]", js_edit(ls, an, f));
      json_t *a = json_pack("{s:o, s:s, s:[o], s:b, s:o}", "title",
                            js_str(ls, f->title), "kind", "quickfix",
                            "diagnostics", js_diag(ls, an, g), "isPreferred",
                            f->sure, "edit", workspace_edit(d, edits));
      json_array_append_new(out, a);
    }
  }
}

// What is meant without doubt, where they do not overlap: nobody looks at each.
static void fix_all(Ls *ls, Analysis *an, const Doc *d, json_t *out) {
  json_t *edits = json_array();
  Vec(FixIt) taken = {0};
  for (uint32_t i = 0; i < an->cx.diags.n; i++) {
    const Diag *g = an->cx.diags.at[i];
    if (g->fixes.n != 1 || !g->fixes.at[0].sure || !ls_diag_shown(an, g))
      continue;
    const FixIt *f = &g->fixes.at[0];
    bool clash = !here(an, f);
    for (uint32_t k = 0; k < taken.n; k++)
      clash |= f->span.lo <= taken.at[k].span.hi &&
               taken.at[k].span.lo <= f->span.hi;
    if (clash) continue;
    vec_push(&ls->scratch, &taken, *f);
    json_array_append_new(edits, js_edit(ls, an, f));
  }
  if (!taken.n) {
    json_decref(edits);
    return;
  }
  json_array_append_new(out, json_pack("{s:s, s:s, s:o}", "title",
                                       "Fix what is certain", "kind",
                                       "source.fixAll", "edit",
                                       workspace_edit(d, edits)));
}

json_t *ls_code_action(Ls *ls, const json_t *params, LsError *err) {
  Doc *d = ls_doc_of_params(ls, params, err);
  Pos from, to;
  if (!d || !ls_range_of_params(params, &from, &to, err)) return NULL;
  Analysis *an = ls_analysis_of(ls, d);
  json_t *out = json_array();
  uint32_t lo = ls_offset_at(&d->text, ls->enc, from);
  uint32_t hi = ls_offset_at(&d->text, ls->enc, to);
  if (an && wants(params, "quickfix")) quick_fixes(ls, an, d, lo, hi, out);
  if (an && wants(params, "source.fixAll")) fix_all(ls, an, d, out);
  return out;
}
