// Source files, kept whole, and positions in them.
#ifndef ATTNC_IR_CORE_SRC_H
#define ATTNC_IR_CORE_SRC_H

#include "ir/core/arena.h"

typedef struct Source {
  const char *path;  // as given by the user; "std/rows.attn" for the stdlib
  const char *text;  // NUL terminated
  uint32_t len;      // bytes; at most 64 MiB
  uint32_t *line;    // byte offset of each line's first byte
  uint32_t nlines;
  uint32_t id;  // index in Ctx.sources
} Source;

// Half-open byte range in one source. src == 0 && lo == hi == 0 is "nowhere"
// only when Ctx has no source 0; test with span_known.
typedef struct Span {
  uint32_t src, lo, hi;
} Span;
#define NOWHERE ((Span){UINT32_MAX, 0, 0})
static inline int span_known(Span s) {
  return s.src != UINT32_MAX;
}

typedef struct LineCol {
  uint32_t line, col;  // 1-based; col in bytes
  uint32_t col_utf16;  // 1-based, in UTF-16 code units (editors)
} LineCol;

LineCol src_linecol(const Source *s, uint32_t offset);
// Text of a 1-based line without its newline.
const char *src_line(const Source *s, uint32_t line, uint32_t *len);

#endif
