// Lookup in the embedded files.
#include "frontend/diagpages.h"
#include "frontend/embed.h"
#include "frontend/frontend.h"

const char *fe_stdlib(const char *path, uint32_t *len) {
  for (const EmbedFile *f = stdlib_files; f->path; f++) {
    if (strcmp(f->path, path) != 0) continue;
    if (len) *len = f->len;
    return f->text;
  }
  return NULL;
}

// Does a line of the text begin with `word name`?
static bool declares(const char *text, const char *word, const char *name) {
  size_t nw = strlen(word), nn = strlen(name);
  for (const char *s = text; s; s = strchr(s, '\n')) {
    s += *s == '\n';
    if (strncmp(s, word, nw) != 0 || s[nw] != ' ') continue;
    const char *end = s + nw + 1 + nn;
    if (strncmp(s + nw + 1, name, nn) == 0 && (*end == '(' || *end == '<'))
      return true;
  }
  return false;
}

const char *fe_stdlib_with(const char *name) {
  static const char *const words[] = {"row", "mask", "mod", "fn"};
  for (const EmbedFile *f = stdlib_files; f->path; f++) {
    const char *in = strchr(f->path, '/');
    if (!in || strchr(in + 1, '/')) continue;  // programs are in folders
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
      if (declares(f->text, words[i], name)) return f->path;
  }
  return NULL;
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
