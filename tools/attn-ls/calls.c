// Call hierarchy: who calls a function, and whom it calls.
#include "tools/attn-ls/server.h"

static json_t *item_of(Ls *ls, const Decl *d) {
  const Source *src = d->unit->source;
  const char *path = intern(&ls->names, src->path);
  const char *uri = ls_uri_of_path(ls, path);
  if (!uri) return NULL;
  Lines l = ls_lines_of(&ls->scratch, src->text, src->len);
  bool program = d->kind == DE_ATTENTION || d->kind == DE_RECURRENT;
  bool test = d->kind == DE_CHECK;
  Span at = d->name_span;
  if (at.lo < d->span.lo || at.hi > d->span.hi) at = d->span;
  return json_pack("{s:o, s:i, s:s, s:s, s:o, s:o, s:{s:s, s:i}}", "name",
                   js_str(ls, d->name && *d->name ? d->name : "?"), "kind",
                   program ? 5
                   : test  ? 24
                           : 12,
                   "detail", fe_decl_word(d->kind), "uri", uri, "range",
                   js_range(&l, ls->enc, d->span.lo, d->span.hi),
                   "selectionRange", js_range(&l, ls->enc, at.lo, at.hi),
                   "data", "path", path, "at", (int)d->name_span.lo);
}

json_t *ls_prepare_calls(Ls *ls, const json_t *params, LsError *err) {
  At at;
  if (!ls_at_params(ls, params, &at, err)) return NULL;
  const Occ *o = ls_occ_at(at.an, at.offset);
  if (!o || !o->sym || o->sym->kind != SY_DECL) return NULL;
  json_t *item = item_of(ls, o->sym->decl);
  return item ? json_pack("[o]", item) : NULL;
}

static bool read_item(Ls *ls, const json_t *params, Place *out, LsError *err) {
  const json_t *data = js_path(params, "item.data");
  const char *path = js_get_str(data, "path");
  const json_t *lo = json_object_get(data, "at");
  if (!path || !json_is_integer(lo)) {
    ls_fail(err, E_PARAMS, "no item");
    return false;
  }
  *out = (Place){intern(&ls->names, path), (uint32_t)json_integer_value(lo), 0};
  return true;
}

// Where the name of the callee stands in a call.
static Span callee_span(const Expr *e) {
  const Expr *f = e->kind == EX_PIPE ? e->b : e->kind == EX_CALL ? e->a : e;
  return f->kind == EX_MEMBER ? f->name_span : f->span;
}

static json_t *ranges(Ls *ls, const Analysis *an, const Lines *l,
                      const Decl *in, const Sym *callee) {
  json_t *out = json_array();
  for (uint32_t i = 0; i < an->calls.n; i++) {
    const Call *c = &an->calls.at[i];
    if (c->in != in || c->expr->sym != callee) continue;
    Span s = callee_span(c->expr);
    json_array_append_new(out, js_range(l, ls->enc, s.lo, s.hi));
  }
  return out;
}

static bool first_of(const Analysis *an, uint32_t i) {
  for (uint32_t k = 0; k < i; k++)
    if (an->calls.at[k].in == an->calls.at[i].in &&
        an->calls.at[k].expr->sym == an->calls.at[i].expr->sym)
      return false;
  return true;
}

json_t *ls_incoming_calls(Ls *ls, const json_t *params, LsError *err) {
  Place want;
  if (!read_item(ls, params, &want, err)) return NULL;
  DocList docs = {0};
  ls_workspace_docs(ls, &docs);
  ls_library_docs(ls, &docs);
  json_t *out = json_array();
  for (uint32_t i = 0; i < docs.n; i++) {
    Analysis *an = ls_analysis_of(ls, docs.at[i]);
    for (uint32_t k = 0; an && k < an->calls.n; k++) {
      const Call *c = &an->calls.at[k];
      Place p = ls_place_of(ls, an, c->expr->sym);
      if (p.path != want.path || p.lo != want.lo || !first_of(an, k)) continue;
      json_t *from = item_of(ls, c->in);
      if (from)
        json_array_append_new(out, json_pack("{s:o, s:o}", "from", from,
                                             "fromRanges",
                                             ranges(ls, an, &docs.at[i]->text,
                                                    c->in, c->expr->sym)));
    }
  }
  return out;
}

json_t *ls_outgoing_calls(Ls *ls, const json_t *params, LsError *err) {
  Place from;
  if (!read_item(ls, params, &from, err)) return NULL;
  Doc *d = ls_doc_of(ls, from.path);
  Analysis *an = d ? ls_analysis_of(ls, d) : NULL;
  json_t *out = json_array();
  for (uint32_t i = 0; an && i < an->calls.n; i++) {
    const Call *c = &an->calls.at[i];
    if (c->in->name_span.lo != from.lo || !first_of(an, i)) continue;
    json_t *to = item_of(ls, c->expr->sym->decl);
    if (to)
      json_array_append_new(out, json_pack("{s:o, s:o}", "to", to, "fromRanges",
                                           ranges(ls, an, &d->text, c->in,
                                                  c->expr->sym)));
  }
  return out;
}
