// Lookup in the embedded files.
#include "frontend/diagpages.h"
#include "frontend/embed.h"
#include "frontend/frontend.h"
#include "ir/core/guess.h"

const char *fe_stdlib(const char *path, uint32_t *len) {
  for (const EmbedFile *f = stdlib_files; f->path; f++) {
    if (strcmp(f->path, path) != 0) continue;
    if (len) *len = f->len;
    return f->text;
  }
  return NULL;
}

// A declaration of functions at the start of a line: its name, NULL if it is
// none.
static const char *declared(const char *line, size_t *n) {
  static const char *const words[] = {"row ", "mask ", "mod ", "fn "};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t w = strlen(words[i]);
    if (strncmp(line, words[i], w) != 0) continue;
    *n = strcspn(line + w, "(<= \n");
    return line + w;
  }
  return NULL;
}

bool fe_stdlib_next(FeLibrary *at) {
  const EmbedFile *f = stdlib_files + at->file;
  const char *line = at->name ? strchr(at->name, '\n') : f->text;
  for (; f->path; f++, at->file++, line = f->text) {
    const char *in = strchr(f->path, '/');
    bool functions = in && !strchr(in + 1, '/');  // programs are in folders
    for (; functions && line; line = strchr(line, '\n')) {
      line += *line == '\n';
      at->name = declared(line, &at->n);
      at->path = f->path;
      if (at->name) return true;
    }
  }
  return false;
}

const char *fe_stdlib_with(const char *name) {
  for (FeLibrary at = {0}; fe_stdlib_next(&at);)
    if (strlen(name) == at.n && memcmp(at.name, name, at.n) == 0)
      return at.path;
  return NULL;
}

const char *fe_stdlib_path(uint32_t i) {
  return stdlib_files[i].path;
}

// attention/gqa.attn: gqa
static const char *last_name(Arena *a, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *dot = strrchr(name, '.');
  return arena_strndup(a, name, dot ? (size_t)(dot - name) : strlen(name));
}

const char *fe_stdlib_near(Arena *a, const char *path) {
  const char *alone = last_name(a, path), *found = NULL;
  Guess whole = guess_start(path), last = guess_start(alone);
  for (const EmbedFile *f = stdlib_files; f->path; f++) {
    const char *name = last_name(a, f->path), *before = last.best;
    if (strcmp(name, alone) == 0) return f->path;
    guess_try(&whole, f->path);
    guess_try(&last, name);
    if (last.best != before) found = f->path;
  }
  return whole.best ? whole.best : found;
}

const char *diag_page(DiagId id) {
  for (const EmbedFile *f = diag_pages; f->path; f++) {
    size_t n = strlen(diag_code(id));
    if (strncmp(f->path, diag_code(id), n) == 0 &&
        strcmp(f->path + n, ".md") == 0)
      return f->text;
  }
  return NULL;
}
