// attnc doc: the declarations of a file as Markdown, with their doc comments.
#include "tools/attnc/attnc.h"

static bool documented(const Decl *d) {
  switch (d->kind) {
  case DE_ERROR:
  case DE_IMPORT:
  case DE_SCHEDULE:
  case DE_CHECK: return false;
  default: return true;
  }
}

// Where a declaration's head ends: at its body or its '='.
static uint32_t head_end(const char *s, uint32_t lo, uint32_t hi) {
  int depth = 0, angle = 0;
  for (uint32_t i = lo; i < hi; i++) {
    char c = s[i], next = i + 1 < hi ? s[i + 1] : 0;
    bool outside = depth == 0 && angle == 0;
    if (c == '#')
      while (i + 1 < hi && s[i + 1] != '\n') i++;
    else if (strchr("([", c)) depth++;
    else if (strchr(")]", c)) depth--;
    else if (c == '-' && next == '>') i++;
    else if (strchr("=<>!", c) && next == '=') i++;
    else if (c == '{' && outside) return i;
    else if (c == '{') depth++;
    else if (c == '}') depth--;
    else if (c == '=' && outside) return i;
    else if (c == '<' && depth == 0) angle++;
    else if (c == '>' && depth == 0 && angle) angle--;
  }
  return hi;
}

// Generics and shapes keep their lines; what is around them goes.
static void head(const Unit *u, const Decl *d, Buf *out) {
  const char *s = u->source->text;
  uint32_t hi = head_end(s, d->span.lo, d->span.hi);
  while (hi > d->span.lo && strchr(" \t\r\n;", s[hi - 1])) hi--;
  buf_str(out, "```attn\n");
  buf_add(out, s + d->span.lo, hi - d->span.lo);
  buf_str(out, "\n```\n\n");
}

static void doc_text(const char *doc, Buf *out) {
  if (doc) buf_printf(out, "%s\n\n", doc);
}

static void text_of(const Unit *u, Span s, Buf *out) {
  if (s.src == u->source->id) buf_add(out, u->source->text + s.lo, s.hi - s.lo);
}

static void param_row(const Unit *u, const Param *p, const char *way,
                      Buf *out) {
  buf_printf(out, "| `%s` | %s | `", p->name,
             p->qual == PQ_INOUT ? "inout" : way);
  if (p->type) text_of(u, p->type->span, out);
  else buf_str(out, "index");
  buf_str(out, "` | ");
  if (p->deflt) {
    buf_char(out, '`');
    text_of(u, p->deflt->span, out);
    buf_char(out, '`');
  }
  buf_str(out, " |\n");
}

static void params(const Unit *u, const Decl *d, Buf *out) {
  if (!d->params.n && !d->outs.n) return;
  buf_str(out, "| parameter | | type | default |\n|---|---|---|---|\n");
  for (uint32_t i = 0; i < d->params.n; i++)
    param_row(u, &d->params.at[i], "in", out);
  for (uint32_t i = 0; i < d->outs.n; i++)
    param_row(u, &d->outs.at[i], "out", out);
  buf_char(out, '\n');
}

static void declaration(const Unit *u, const Decl *d, Buf *out) {
  buf_printf(out, "## %s `%s`\n\n", fe_decl_word(d->kind), d->name);
  doc_text(d->doc, out);
  head(u, d, out);
  params(u, d, out);
}

// The comment a file begins with, if it is not a declaration's own.
static void file_text(const Unit *u, Buf *out) {
  const char *s = u->source->text;
  uint32_t first = u->decls.n ? u->decls.at[0]->span.lo : u->source->len;
  for (uint32_t i = 0; i < u->trivia.n; i++) {
    const Trivia *t = &u->trivia.at[i];
    if (t->kind != TR_COMMENT || t->span.lo > first || s[t->span.lo + 1] == '#')
      break;
    uint32_t lo = t->span.lo + 1;
    while (lo < t->span.hi && s[lo] == ' ') lo++;
    buf_add(out, s + lo, t->span.hi - lo);
    buf_char(out, '\n');
    if (i + 1 == u->trivia.n || u->trivia.at[i + 1].kind != TR_COMMENT)
      buf_char(out, '\n');
    if (i + 1 < u->trivia.n && u->trivia.at[i + 1].kind == TR_BLANK) break;
  }
}

// std/masks.attn: std.masks
static const char *module_of(Arena *a, const char *path) {
  char *module = arena_strndup(a, path, strlen(path) - strlen(".attn"));
  for (char *c = module; *c; c++)
    if (*c == '/') *c = '.';
  return module;
}

// The first sentence of the comment that a text begins with.
static void sentence(const char *text, Buf *out) {
  for (const char *line = text; *line == '#'; line += *line == '\n') {
    const char *end = line + strcspn(line, "\n"), *s = line + 1;
    if (line != text) buf_char(out, ' ');
    while (s < end && *s == ' ') s++;
    for (; s < end; s++) {
      buf_char(out, *s);
      if (*s == '.' && (s + 1 == end || s[1] == ' ')) return;
    }
    line = end;
  }
}

static void library(Arena *a, Buf *out) {
  uint32_t width = 0;
  for (uint32_t i = 0; fe_stdlib_path(i); i++) {
    uint32_t n = (uint32_t)strlen(module_of(a, fe_stdlib_path(i)));
    width = n > width ? n : width;
  }
  for (uint32_t i = 0; fe_stdlib_path(i); i++) {
    buf_printf(out, "%-*s  ", (int)width, module_of(a, fe_stdlib_path(i)));
    sentence(fe_stdlib(fe_stdlib_path(i), NULL), out);
    buf_char(out, '\n');
  }
}

static Source *no_module(Session *s, const char *name, const char *path) {
  const char *near = fe_stdlib_near(&s->cx.session, path);
  Source *src = session_read(s, name);
  if (src || !near || !s->cx.diags.n) return src;
  diag_note(&s->cx, s->cx.diags.at[s->cx.diags.n - 1], NOWHERE,
            "did you mean '%s'?", module_of(&s->cx.session, near));
  return NULL;
}

// A file, or a module of the standard library as it is imported: std.masks.
static Source *source_of(Session *s, const char *name) {
  size_t n = strlen(name), end = strlen(".attn");
  bool file = strchr(name, '/') || strcmp(name, "-") == 0 ||
              (n > end && strcmp(name + n - end, ".attn") == 0);
  if (file) return session_read(s, name);
  char *path = arena_printf(&s->cx.session, "%s.attn", name);
  for (size_t i = 0; i < n; i++)
    if (path[i] == '.') path[i] = '/';
  uint32_t len;
  const char *text = fe_stdlib(path, &len);
  return text ? ctx_add_source(&s->cx, path, text, len)
              : no_module(s, name, path);
}

static int document(Session *s, void *data) {
  (void)data;
  Buf out = {.arena = &s->cx.session};
  if (!s->cli->inputs.n) {
    library(&s->cx.session, &out);
    session_put(s, s->cli->output, &out);
    return EXIT_OK;
  }
  Source *src = source_of(s, s->cli->inputs.at[0]);
  Unit *u = src ? fe_parse(&s->cx, src) : NULL;
  if (!u || !u->syntax_ok) return EXIT_OK;
  buf_printf(&out, "# %s\n\n", path_stem(&s->cx.session, src->path));
  if (!s->cli->fn) file_text(u, &out);
  for (uint32_t i = 0; i < u->decls.n; i++) {
    const Decl *d = u->decls.at[i];
    if (s->cli->fn && (!d->name || strcmp(d->name, s->cli->fn))) continue;
    if (documented(d)) declaration(u, d, &out);
  }
  session_put(s, s->cli->output, &out);
  return EXIT_OK;
}

int command_doc(Cli *cli) {
  return session_run(cli, document, NULL);
}
