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

const char *diag_page(DiagId id) {
  for (const EmbedFile *f = diag_pages; f->path; f++) {
    size_t n = strlen(diag_code(id));
    if (strncmp(f->path, diag_code(id), n) == 0 &&
        strcmp(f->path + n, ".md") == 0)
      return f->text;
  }
  return NULL;
}
