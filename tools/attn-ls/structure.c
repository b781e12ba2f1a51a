// The shape of a text: folds, growing selections, links of imports.
#include "tools/attn-ls/server.h"

// ---------------------------------------------------------------- folds
static void fold(Ls *ls, const Doc *d, uint32_t lo, uint32_t hi,
                 const char *kind, json_t *out) {
  Pos a = ls_pos_at(&d->text, ls->enc, lo),
      b = ls_pos_at(&d->text, ls->enc, hi);
  if (b.line <= a.line) return;
  json_t *f =
      json_pack("{s:i, s:i}", "startLine", (int)a.line, "endLine", (int)b.line);
  if (kind) json_object_set_new(f, "kind", json_string(kind));
  json_array_append_new(out, f);
}

static void fold_stmts(Ls *ls, const Doc *d, Stmt *const *at, uint32_t n,
                       json_t *out) {
  for (uint32_t i = 0; i < n; i++) {
    bool loop = at[i]->kind == ST_STEP || at[i]->kind == ST_REPEAT;
    if (loop) fold(ls, d, at[i]->span.lo, at[i]->span.hi, NULL, out);
    fold_stmts(ls, d, at[i]->body.at, at[i]->body.n, out);
  }
}

// Comments on lines that follow each other.
static void fold_comments(Ls *ls, const Doc *d, const Unit *u, json_t *out) {
  for (uint32_t i = 0; i < u->trivia.n;) {
    uint32_t j = i + 1;
    Pos p = ls_pos_at(&d->text, ls->enc, u->trivia.at[i].span.lo);
    for (uint32_t line = p.line + 1; j < u->trivia.n; j++, line++) {
      const Trivia *t = &u->trivia.at[j];
      if (t->kind != TR_COMMENT ||
          ls_pos_at(&d->text, ls->enc, t->span.lo).line != line)
        break;
    }
    if (u->trivia.at[i].kind == TR_COMMENT && j > i + 1)
      fold(ls, d, u->trivia.at[i].span.lo, u->trivia.at[j - 1].span.hi,
           "comment", out);
    i = j;
  }
}

static void fold_imports(Ls *ls, const Doc *d, const Unit *u, json_t *out) {
  for (uint32_t i = 0; i < u->decls.n;) {
    uint32_t j = i;
    while (j < u->decls.n && u->decls.at[j]->kind == DE_IMPORT) j++;
    if (j > i)
      fold(ls, d, u->decls.at[i]->span.lo, u->decls.at[j - 1]->span.hi,
           "imports", out);
    i = j > i ? j : i + 1;
  }
}

json_t *ls_folding(Ls *ls, const json_t *params, LsError *err) {
  Doc *d;
  Analysis *an = ls_analysis_of_params(ls, params, &d, err);
  if (!an) return NULL;
  json_t *out = json_array();
  for (uint32_t i = 0; i < an->unit->decls.n; i++) {
    const Decl *x = an->unit->decls.at[i];
    if (x->kind != DE_IMPORT && x->kind != DE_ERROR)
      fold(ls, d, x->name_span.lo, x->span.hi, NULL, out);
    fold_stmts(ls, d, x->body.at, x->body.n, out);
  }
  fold_imports(ls, d, an->unit, out);
  fold_comments(ls, d, an->unit, out);
  return out;
}

// ---------------------------------------------------------------- selection
typedef struct Grow {
  Arena *a;
  Vec(Span) at;  // outermost first
} Grow;

static void grow(Grow *g, Span s) {
  Span *last = g->at.n ? &g->at.at[g->at.n - 1] : NULL;
  if (last && (s.lo < last->lo || s.hi > last->hi)) return;
  if (last && s.lo == last->lo && s.hi == last->hi) return;
  vec_push(g->a, &g->at, s);
}

static void grow_stmts(Grow *g, Stmt *const *at, uint32_t n, uint32_t offset) {
  for (uint32_t i = 0; i < n; i++) {
    if (at[i]->span.lo > offset || offset > at[i]->span.hi) continue;
    grow(g, at[i]->span);
    grow_stmts(g, at[i]->body.at, at[i]->body.n, offset);
  }
}

static json_t *selection_at(Ls *ls, Doc *d, Analysis *an, uint32_t offset) {
  Grow g = {.a = &ls->scratch};
  ExprPath path = {0};
  grow(&g, (Span){0, 0, d->text.len});
  const Decl *x = ls_decl_at(an->unit, offset);
  if (x) {
    grow(&g, x->span);
    grow_stmts(&g, x->body.at, x->body.n, offset);
  }
  ls_exprs_at(an, &ls->scratch, offset, &path);
  for (uint32_t i = 0; i < path.n; i++) grow(&g, path.at[i]->span);
  const Occ *o = ls_occ_at(an, offset);
  if (o) grow(&g, (Span){0, o->lo, o->hi});
  json_t *out = NULL;
  for (uint32_t i = 0; i < g.at.n; i++) {
    json_t *r =
        json_pack("{s:o}", "range",
                  js_range(&d->text, ls->enc, g.at.at[i].lo, g.at.at[i].hi));
    if (out) json_object_set_new(r, "parent", out);
    out = r;
  }
  return out;
}

json_t *ls_selection(Ls *ls, const json_t *params, LsError *err) {
  Doc *d;
  Analysis *an = ls_analysis_of_params(ls, params, &d, err);
  const json_t *list = json_object_get(params, "positions");
  if (!an) return NULL;
  json_t *out = json_array();
  for (size_t i = 0; i < json_array_size(list); i++) {
    Pos p;
    if (!js_read_pos(json_array_get(list, i), &p)) {
      json_decref(out);
      return ls_fail(err, E_PARAMS, "no position");
    }
    json_array_append_new(out,
                          selection_at(ls, d, an,
                                       ls_offset_at(&d->text, ls->enc, p)));
  }
  return out;
}

// ---------------------------------------------------------------- links
json_t *ls_document_link(Ls *ls, const json_t *params, LsError *err) {
  Doc *d;
  Analysis *an = ls_analysis_of_params(ls, params, &d, err);
  if (!an) return NULL;
  json_t *out = json_array();
  for (uint32_t i = 0; i < an->unit->decls.n; i++) {
    const Decl *x = an->unit->decls.at[i];
    if (x->kind != DE_IMPORT || !x->imported || !x->path.n) continue;
    const char *path = intern(&ls->names, x->imported->source->path);
    const char *uri = ls_uri_of_path(ls, path);
    if (!uri) continue;
    json_array_append_new(
        out, json_pack("{s:o, s:o, s:o}", "range",
                       js_range(&d->text, ls->enc, x->path.at[0].span.lo,
                                x->path.at[x->path.n - 1].span.hi),
                       "target", js_str(ls, uri), "tooltip", js_str(ls, path)));
  }
  return out;
}
