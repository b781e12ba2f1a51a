// Files embedded in the compiler at build time; tables end with a NULL path.
#ifndef ATTNC_FRONTEND_EMBED_H
#define ATTNC_FRONTEND_EMBED_H

#include <stdint.h>

typedef struct EmbedFile {
  const char *path;  // "std/rows.attn", "A0006.md"
  const char *text;  // NUL terminated
  uint32_t len;
} EmbedFile;

extern const EmbedFile stdlib_files[];  // stdlib/**/*.attn as std/...
extern const EmbedFile diag_pages[];    // docs/diag/*.md

#endif
