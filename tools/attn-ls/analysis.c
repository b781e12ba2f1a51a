// Analyses: a text parsed and checked, with its imports. They are made anew
// when a file that they read changes; nothing is patched, so that the result
// of an edit cannot differ from that of a fresh start.
#include "tools/attn-ls/server.h"

#include "ir/core/watch.h"

#include <errno.h>

enum { MEMORY = 1 << 30, SECONDS = 10, MAX_ERRORS = 1000 };

typedef struct Reader {
  Ls *ls;
  Analysis *an;
} Reader;

// Open documents come before files.
const char *ls_read_open(void *ls, Arena *a, const char *path, uint32_t *len) {
  Ls *s = ls;
  Doc *d = ls_doc_of(s, intern(&s->names, path));
  (void)a;
  if (!d) {
    errno = ENOENT;
    return NULL;
  }
  *len = d->text.len;
  return d->text.text;
}

// What was looked at is kept.
static const char *read_doc(void *data, Arena *a, const char *path,
                            uint32_t *len) {
  Reader *r = data;
  const char *key = intern(&r->ls->names, path);
  Dep dep = {key, ls_path_stamp(r->ls, key)};
  vec_push(&r->an->cx.session, &r->an->deps, dep);
  return ls_read_open(r->ls, a, key, len);
}

// ---------------------------------------------------------------- border
typedef struct Check {
  Analysis *an;
  const char *path, *text;
  uint32_t len;
  bool check;
} Check;

static void read_and_check(void *data) {
  Check *c = data;
  Ctx *cx = &c->an->cx;
  Source *src = ctx_add_source(cx, c->path, c->text, c->len);
  Unit *u = src ? fe_parse(cx, src) : NULL;
  if (u && c->check) fe_check(cx, u);
  c->an->unit = u;
  if (u) ls_index_unit(c->an);
}

static void set_limits(Ctx *cx, size_t memory, int64_t until) {
  Arena *both[] = {&cx->session, &cx->scratch};
  for (int i = 0; i < 2; i++) {
    both[i]->limit = memory;
    both[i]->until = until;
  }
}

// Without a tree, but with a diagnostic, of what is beyond the limits.
static void check_within(Check *c) {
  Ctx *cx = &c->an->cx;
  int64_t until = watch_now() + (int64_t)SECONDS * 1000000000;
  set_limits(cx, MEMORY, until);
  bool enough = ctx_try(cx, read_and_check, c);
  set_limits(cx, 0, 0);
  if (enough) return;
  c->an->unit = NULL;
  Span at = {0, 0, 0};
  if (!cx->sources.n) at = NOWHERE;
  if (watch_now() >= until)
    diag_add(cx, DIAG_too_long, at, (double)SECONDS, "checking the file");
  else
    diag_add(cx, DIAG_too_much_memory, at, (long long)MEMORY >> 20,
             "checking the file");
}

Analysis *ls_analysis_make(Ls *ls, const char *path, const char *text,
                           uint32_t len, bool check) {
  Ctx cx;
  ctx_init(&cx);
  cx.session = cx.scratch = ls_arena(ls);
  Analysis *an = NEW(&cx.session, Analysis);
  an->cx = cx;
  an->cx.names.arena = &an->cx.session;
  an->cx.max_errors = MAX_ERRORS;
  an->path = path;
  an->serial = ++ls->clock;
  Reader r = {ls, an};
  an->cx.read_file = read_doc;
  an->cx.read_file_data = &r;
  for (uint32_t i = 0; i < ls->roots.n; i++)
    vec_push(&an->cx.session, &an->cx.include_dirs, ls->roots.at[i]);
  check_within(&(Check){an, path, text, len, check});
  an->cx.read_file_data = NULL;
  return an;
}

// The analysis lives in an arena of its own.
void ls_analysis_free(Analysis *an) {
  Ctx cx = an->cx;
  ctx_drop(&cx);
}

void ls_drop_retired(Ls *ls) {
  for (uint32_t i = 0; i < ls->retired.n; i++)
    ls_analysis_free(ls->retired.at[i]);
  for (uint32_t i = 0; i < ls->old_texts.n; i++)
    arena_drop(&ls->old_texts.at[i]);
  ls->retired.n = ls->old_texts.n = 0;
}

bool ls_analysis_fresh(Ls *ls, const Analysis *an) {
  for (uint32_t i = 0; i < an->deps.n; i++)
    if (ls_path_stamp(ls, an->deps.at[i].path) != an->deps.at[i].stamp)
      return false;
  return true;
}

Analysis *ls_analysis_of(Ls *ls, Doc *d) {
  if (d->an && d->an->stamp == d->stamp && ls_analysis_fresh(ls, d->an))
    return d->an->unit ? d->an : NULL;
  if (d->an) vec_push(&ls->arena, &ls->retired, d->an);
  d->an = ls_analysis_make(ls, d->path, d->text.text, d->text.len, true);
  d->an->stamp = d->stamp;
  return d->an->unit ? d->an : NULL;
}

Analysis *ls_analysis_of_params(Ls *ls, const json_t *params, Doc **d,
                                LsError *err) {
  *d = ls_doc_of_params(ls, params, err);
  return *d ? ls_analysis_of(ls, *d) : NULL;
}

const Source *ls_source_of(const Analysis *an, Span s) {
  return s.src < an->cx.sources.n ? an->cx.sources.at[s.src] : NULL;
}

const Lines *ls_lines_of_source(Analysis *an, uint32_t id) {
  Arena *a = &an->cx.session;
  if (an->nlines < an->cx.sources.n) {
    Lines *all = NEWN(a, Lines, an->cx.sources.n);
    if (an->nlines) memcpy(all, an->lines, sizeof *all * an->nlines);
    an->lines = all;
    an->nlines = an->cx.sources.n;
  }
  Lines *l = &an->lines[id];
  const Source *s = an->cx.sources.at[id];
  if (!l->at) *l = ls_lines_of(a, s->text, s->len);
  return l;
}
