// Formatting: fe_format, as edits of the lines that differ.
#include "tools/attn-ls/server.h"

typedef struct Row {
  const char *at;
  uint32_t n;
} Row;

typedef struct Rows {
  Row *at;
  uint32_t n;
} Rows;

// Lines with their ends; the last one may be empty.
static Rows rows_of(Arena *a, const Lines *l) {
  Rows r = {NEWN(a, Row, l->n), l->n};
  for (uint32_t i = 0; i < l->n; i++) {
    uint32_t end = i + 1 < l->n ? l->at[i + 1] : l->len;
    r.at[i] = (Row){l->text + l->at[i], end - l->at[i]};
  }
  return r;
}

static bool same(Row a, Row b) {
  return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

static json_t *edit(Ls *ls, const Lines *l, uint32_t first, uint32_t end,
                    const Row *to, uint32_t n) {
  uint32_t lo = first < l->n ? l->at[first] : l->len;
  uint32_t hi = end < l->n ? l->at[end] : l->len;
  Buf b = {.arena = &ls->scratch};
  buf_str(&b, "");
  for (uint32_t i = 0; i < n; i++) buf_add(&b, to[i].at, to[i].n);
  return json_pack("{s:o, s:o}", "range", js_range(l, ls->enc, lo, hi),
                   "newText", js_text(ls, b.at, b.n));
}

enum { LOOK = 200 };  // lines looked ahead for where the texts meet again

// Hunks of changed lines, by looking for the nearest lines that agree.
static json_t *edits(Ls *ls, const Lines *from, const Lines *to, uint32_t first,
                     uint32_t last) {
  Rows a = rows_of(&ls->scratch, from), b = rows_of(&ls->scratch, to);
  json_t *out = json_array();
  uint32_t i = 0, j = 0;
  while (i < a.n || j < b.n) {
    if (i < a.n && j < b.n && same(a.at[i], b.at[j])) {
      i++, j++;
      continue;
    }
    uint32_t di = a.n - i, dj = b.n - j;
    bool met = false;
    for (uint32_t s = 1; s < LOOK && !met; s++)
      for (uint32_t k = 0; k <= s && !met; k++)
        if (i + k < a.n && j + s - k < b.n &&
            same(a.at[i + k], b.at[j + s - k])) {
          di = k;
          dj = s - k;
          met = true;
        }
    bool inside = i <= last && i + di >= first;
    if (inside)
      json_array_append_new(out, edit(ls, from, i, i + di, b.at + j, dj));
    i += di;
    j += dj;
  }
  return out;
}

static json_t *format(Ls *ls, Doc *d, uint32_t first, uint32_t last,
                      LsError *err) {
  Analysis *an = ls_analysis_of(ls, d);
  Buf b = {.arena = &ls->scratch};
  buf_str(&b, "");
  if (!an || !an->unit->syntax_ok)
    return ls_fail(err, E_FAILED, "the text has syntax errors");
  if (!fe_format(&an->cx, an->unit, &b))
    return ls_fail(err, E_FAILED, "the text cannot be formatted");
  Lines to = ls_lines_of(&ls->scratch, b.at, b.n);
  return edits(ls, &d->text, &to, first, last);
}

json_t *ls_formatting(Ls *ls, const json_t *params, LsError *err) {
  Doc *d = ls_doc_of_params(ls, params, err);
  return d ? format(ls, d, 0, UINT32_MAX, err) : NULL;
}

json_t *ls_range_formatting(Ls *ls, const json_t *params, LsError *err) {
  Doc *d = ls_doc_of_params(ls, params, err);
  Pos from, to;
  if (!d || !ls_range_of_params(params, &from, &to, err)) return NULL;
  return format(ls, d, from.line, to.line, err);
}
