// Semantic tokens: what each token is, in full, for a range, or as the
// difference to what was sent before.
#include "tools/attn-ls/server.h"

#include <stdio.h>
#include <stdlib.h>

typedef enum TokType {
#define TYPE(id, name) T_##id,
#include "tools/attn-ls/tokens.def"
} TokType;

typedef enum TokBit {
#define MODIFIER(id, name) B_##id,
#include "tools/attn-ls/tokens.def"
} TokBit;

typedef struct Tok {
  uint32_t lo, hi;
  TokType type;
  uint32_t mods;
} Tok;

typedef Vec(Tok) Toks;
typedef Vec(uint32_t) Data;

static uint32_t bit(TokBit b) {
  return 1u << b;
}

static TokType type_of_decl(const Decl *d) {
  switch (d->kind) {
  case DE_ATTENTION:
  case DE_RECURRENT: return T_PROGRAM;
  case DE_MASK: return T_MASK;
  default: return T_FUNCTION;
  }
}

static TokType type_of(const Sym *s) {
  switch (s->kind) {
  case SY_DIM: return T_DIM;
  case SY_DTYPE: return T_TYPE;
  case SY_PARAM:
  case SY_OUT: return T_PARAM;
  case SY_INDEX: return T_INDEX;
  case SY_LET:
  case SY_STATE: return T_VARIABLE;
  case SY_DECL: return type_of_decl(s->decl);
  case SY_BUILTIN: return T_FUNCTION;
  case SY_UNIT: return T_NAMESPACE;
  }
  return T_VARIABLE;
}

static uint32_t mods_of(const Analysis *an, const Occ *o) {
  uint32_t m = 0;
  const Sym *s = o->sym;
  if (o->kind == OCC_DEF) m |= bit(B_DECLARATION);
  if (o->kind == OCC_WRITE) m |= bit(B_MODIFICATION);
  if (!s) return m;
  if (s->kind == SY_INDEX && s->role == IX_KEY) m |= bit(B_REDUCED);
  if (s->kind == SY_INDEX && s->role == IX_PARALLEL) m |= bit(B_PARALLEL);
  if (s->kind == SY_LET || s->kind == SY_DIM) m |= bit(B_READONLY);
  const Source *src =
      s->decl ? s->decl->unit->source : ls_source_of(an, s->span);
  if (s->kind == SY_BUILTIN || (src && ls_is_library(src->path)))
    m |= bit(B_LIBRARY);
  return m;
}

static bool plain_type(FeTokenKind k, TokType *out) {
  static const int types[] = {[FE_OTHER] = -1,        [FE_NAME] = -1,
                              [FE_NUMBER] = T_NUMBER, [FE_STRING] = T_STRING,
                              [FE_TYPE] = T_TYPE,     [FE_WORD] = T_KEYWORD,
                              [FE_SOFT] = T_KEYWORD,  [FE_SIGN] = -1};
  if (types[k] >= 0) *out = (TokType)types[k];
  return types[k] >= 0;
}

static int by_place(const void *a, const void *b) {
  const Tok *x = a, *y = b;
  return (x->lo > y->lo) - (x->lo < y->lo);
}

static void comments(const Unit *u, Arena *a, Toks *out) {
  for (uint32_t i = 0; i < u->trivia.n; i++) {
    const Trivia *t = &u->trivia.at[i];
    if (t->kind != TR_COMMENT) continue;
    bool doc =
        t->span.hi - t->span.lo > 1 && u->source->text[t->span.lo + 1] == '#';
    Tok k = {t->span.lo, t->span.hi, T_COMMENT, doc ? bit(B_DOCUMENTATION) : 0};
    vec_push(a, out, k);
  }
}

static void collect(Ls *ls, Analysis *an, Toks *out) {
  Arena *a = &ls->scratch;
  FeTokens toks = {0};
  fe_tokens(&an->cx, an->unit->source, a, &toks);
  uint32_t at = 0;  // of occs
  for (uint32_t i = 0; i < toks.n; i++) {
    FeToken t = toks.at[i];
    while (at < an->occs.n && an->occs.at[at].lo < t.lo) at++;
    Tok k = {t.lo, t.hi, T_VARIABLE, 0};
    const Occ *o = at < an->occs.n ? &an->occs.at[at] : NULL;
    bool prop = i && an->unit->source->text[toks.at[i - 1].lo] == '@';
    if (o && o->lo == t.lo && o->hi == t.hi && (o->sym || o->unit)) {
      k.type = o->sym ? type_of(o->sym) : T_NAMESPACE;
      k.mods = mods_of(an, o);
    } else if (prop && t.kind != FE_SIGN) {
      k.type = T_MACRO;
    } else if (!plain_type(t.kind, &k.type)) {
      continue;
    }
    vec_push(a, out, k);
  }
  comments(an->unit, a, out);
  if (out->n) qsort(out->at, out->n, sizeof *out->at, by_place);
}

// Five numbers a token: distance in lines and columns, length, type, bits.
// No token of the language goes over a line end.
static void encode(Ls *ls, Analysis *an, const Doc *d, uint32_t lo, uint32_t hi,
                   Data *out) {
  Toks toks = {0};
  Pos last = {0};
  collect(ls, an, &toks);
  for (uint32_t i = 0; i < toks.n; i++) {
    const Tok *t = &toks.at[i];
    if (t->hi <= lo || t->lo >= hi) continue;
    Pos p = ls_pos_at(&d->text, ls->enc, t->lo);
    Pos e = ls_pos_at(&d->text, ls->enc, t->hi);
    if (e.line != p.line || e.col <= p.col) continue;
    uint32_t five[] = {p.line - last.line,
                       p.line == last.line ? p.col - last.col : p.col,
                       e.col - p.col, t->type, t->mods};
    for (int k = 0; k < 5; k++) vec_push(&ls->scratch, out, five[k]);
    last = p;
  }
}

static json_t *numbers(const uint32_t *at, uint32_t n) {
  json_t *a = json_array();
  for (uint32_t i = 0; i < n; i++)
    json_array_append_new(a, json_integer(at[i]));
  return a;
}

static void keep(Ls *ls, Doc *d, const Data *data) {
  arena_drop(&d->tokens_store);
  d->tokens.at = NEWN(&d->tokens_store, uint32_t, data->n + 1);
  if (data->n) memcpy(d->tokens.at, data->at, data->n * sizeof *data->at);
  d->tokens.n = data->n;
  d->result = ++ls->results;
}

static const char *result_id(Ls *ls, const Doc *d) {
  return arena_printf(&ls->scratch, "%u", d->result);
}

static json_t *whole(Ls *ls, Doc *d, const Data *data) {
  keep(ls, d, data);
  return json_pack("{s:s, s:o}", "resultId", result_id(ls, d), "data",
                   numbers(data->at, data->n));
}

json_t *ls_tokens_full(Ls *ls, const json_t *params, LsError *err) {
  Doc *d;
  Analysis *an = ls_analysis_of_params(ls, params, &d, err);
  Data data = {0};
  if (!an) return NULL;
  encode(ls, an, d, 0, d->text.len, &data);
  return whole(ls, d, &data);
}

json_t *ls_tokens_range(Ls *ls, const json_t *params, LsError *err) {
  Doc *d;
  Analysis *an = ls_analysis_of_params(ls, params, &d, err);
  Data data = {0};
  Pos from, to;
  if (!an || !ls_range_of_params(params, &from, &to, err)) return NULL;
  encode(ls, an, d, ls_offset_at(&d->text, ls->enc, from),
         ls_offset_at(&d->text, ls->enc, to), &data);
  return json_pack("{s:o}", "data", numbers(data.at, data.n));
}

// One edit: what lies between the common start and the common end.
static json_t *difference(Ls *ls, Doc *d, const Data *data) {
  uint32_t lo = 0, n = d->tokens.n, m = data->n, end = 0;
  while (lo < n && lo < m && d->tokens.at[lo] == data->at[lo]) lo++;
  while (end < n - lo && end < m - lo &&
         d->tokens.at[n - 1 - end] == data->at[m - 1 - end])
    end++;
  json_t *edits = json_array();
  if (n - lo - end || m - lo - end)
    json_array_append_new(edits,
                          json_pack("{s:i, s:i, s:o}", "start", (int)lo,
                                    "deleteCount", (int)(n - lo - end), "data",
                                    numbers(data->at + lo, m - lo - end)));
  keep(ls, d, data);
  return json_pack("{s:s, s:o}", "resultId", result_id(ls, d), "edits", edits);
}

json_t *ls_tokens_delta(Ls *ls, const json_t *params, LsError *err) {
  Doc *d;
  Analysis *an = ls_analysis_of_params(ls, params, &d, err);
  const char *id = js_get_str(params, "previousResultId");
  Data data = {0};
  if (!an) return NULL;
  encode(ls, an, d, 0, d->text.len, &data);
  bool known = id && d->result && strcmp(id, result_id(ls, d)) == 0;
  return known ? difference(ls, d, &data) : whole(ls, d, &data);
}
