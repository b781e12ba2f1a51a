// Imports: `import a.b` is the file a/b.attn beside the importing file, else
// under an include directory, else of the embedded stdlib.
#include "frontend/checker.h"

static const char *relative_path(Check *c, const Decl *d) {
  Buf b = {.arena = c->a};
  for (uint32_t i = 0; i < d->path.n; i++)
    buf_printf(&b, i ? "/%s" : "%s", d->path.at[i].name);
  buf_str(&b, ".attn");
  return b.at;
}

static const char *join(Check *c, const char *dir, size_t n, const char *file) {
  if (!n) return arena_strdup(c->a, file);
  const char *slash = dir[n - 1] == '/' ? "" : "/";
  return arena_printf(c->a, "%.*s%s%s", (int)n, dir, slash, file);
}

static const char *beside(Check *c, const char *file) {
  const char *at = c->unit->source->path;
  const char *slash = strrchr(at, '/');
  return join(c, at, slash ? (size_t)(slash - at) + 1 : 0, file);
}

static Unit *loaded(const Session *s, const char *path) {
  for (uint32_t i = 0; i < s->units.n; i++)
    if (!strcmp(s->units.at[i].path, path)) return s->units.at[i].unit;
  return NULL;
}

// A source that exists at that path, without a diagnostic if it does not.
static Source *try_read(Check *c, const char *path) {
  Ctx *cx = c->cx;
  uint32_t len = 0;
  const char *text =
      cx->read_file(cx->read_file_data, &cx->session, path, &len);
  return text ? ctx_add_source(cx, path, text, len) : NULL;
}

typedef struct Found {
  const char *path;
  Unit *unit;  // already loaded
  Source *source;
  bool stdlib;  // embedded
} Found;

static bool try_path(Check *c, const char *path, Found *f) {
  f->path = path;
  f->unit = loaded(c->ses, path);
  f->source = f->unit ? NULL : try_read(c, path);
  return f->unit || f->source;
}

static bool try_stdlib(Check *c, const char *file, Found *f) {
  uint32_t len;
  f->path = file;
  f->stdlib = true;
  f->unit = loaded(c->ses, file);
  if (f->unit) return true;
  const char *text = fe_stdlib(file, &len);
  if (!text) return false;
  f->source = ctx_add_source(c->cx, file, text, len);
  return f->source != NULL;
}

static bool find(Check *c, const char *file, Found *f) {
  if (try_path(c, beside(c, file), f)) return true;
  for (uint32_t i = 0; i < c->cx->include_dirs.n; i++) {
    const char *dir = c->cx->include_dirs.at[i];
    if (try_path(c, join(c, dir, strlen(dir), file), f)) return true;
  }
  return try_stdlib(c, file, f);
}

// std/masks.attn as std.masks
const char *ck_module_of(Check *c, const char *path) {
  char *module = arena_strdup(c->a, path);
  *strrchr(module, '.') = 0;
  for (char *s = module; *s; s++)
    if (*s == '/') *s = '.';
  return module;
}

// A file of the library whose name is near.
static void offer_module(Check *c, Diag *g, const Decl *d, const char *file) {
  const char *near = fe_stdlib_near(c->a, file);
  if (!near) return;
  Span at = d->path.at[0].span;
  at.hi = d->path.at[d->path.n - 1].span.hi;
  const char *module = ck_module_of(c, near);
  diag_fix(c->cx, g, at, module, "did you mean '%s'?", module);
}

static void not_found(Check *c, const Decl *d, const char *file) {
  Diag *g = diag_add(c->cx, DIAG_import_missing, d->path.at[0].span, file);
  diag_note(c->cx, g, NOWHERE, "looked for '%s'", beside(c, file));
  for (uint32_t i = 0; i < c->cx->include_dirs.n; i++) {
    const char *dir = c->cx->include_dirs.at[i];
    diag_note(c->cx, g, NOWHERE, "looked for '%s'",
              join(c, dir, strlen(dir), file));
  }
  diag_note(c->cx, g, NOWHERE, "and in the standard library");
  offer_module(c, g, d, file);
}

// What is no error in an imported file is its own business: warnings of the
// stdlib and remarks of any module are dropped.
static void keep_errors(Ctx *cx, uint32_t from, bool warnings) {
  uint32_t n = from;
  for (uint32_t i = from; i < cx->diags.n; i++) {
    Severity sev = cx->diags.at[i]->sev;
    if (sev == SEV_ERROR || (warnings && sev == SEV_WARNING))
      cx->diags.at[n++] = cx->diags.at[i];
  }
  cx->diags.n = n;
}

static Unit *check_loaded(Check *c, const Decl *d, const Found *f) {
  Unit *u = f->unit;
  Session *s = c->ses;
  if (u && u->checking) {
    diag_add(c->cx, DIAG_import_cycle, d->path.at[0].span, f->path);
    return NULL;
  }
  if (u) return u;
  if (s->open.n >= MAX_IMPORTS) {
    diag_add(c->cx, DIAG_import_depth, d->path.at[0].span, MAX_IMPORTS);
    return NULL;
  }
  u = fe_parse(c->cx, f->source);
  Loaded entry = {f->path, u};
  vec_push(c->a, &s->units, entry);
  uint32_t diags = c->cx->diags.n;
  ck_unit(s, u);
  keep_errors(c->cx, diags, !f->stdlib);
  return u;
}

Unit *fe_import_unit(Check *c, const Decl *d) {
  Found f = {0};
  const char *file = relative_path(c, d);
  if (!find(c, file, &f)) {
    not_found(c, d, file);
    return NULL;
  }
  return check_loaded(c, d, &f);
}
