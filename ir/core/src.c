// Positions: a byte offset becomes line and column only when shown.
#include "ir/core/src.h"

#include <string.h>

const char *src_line(const Source *s, uint32_t line, uint32_t *len) {
  if (line == 0 || line > s->nlines) {
    *len = 0;
    return s->text + s->len;
  }
  uint32_t lo = s->line[line - 1];
  uint32_t hi = line < s->nlines ? s->line[line] : s->len;
  if (hi > lo && s->text[hi - 1] == '\n') hi--;
  if (hi > lo && s->text[hi - 1] == '\r') hi--;
  *len = hi - lo;
  return s->text + lo;
}

// UTF-16 units of n bytes of UTF-8; a stray byte counts as one unit.
static uint32_t utf16_units(const char *p, uint32_t n) {
  uint32_t units = 0;
  for (uint32_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)p[i];
    if ((c & 0xc0) != 0x80) units += c >= 0xf0 ? 2 : 1;
  }
  return units;
}

LineCol src_linecol(const Source *s, uint32_t offset) {
  if (offset > s->len) offset = s->len;
  uint32_t lo = 0, hi = s->nlines;  // line[lo] <= offset < line[hi]
  while (hi - lo > 1) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (s->line[mid] <= offset) lo = mid;
    else hi = mid;
  }
  uint32_t col = offset - s->line[lo];
  return (LineCol){lo + 1, col + 1,
                   utf16_units(s->text + s->line[lo], col) + 1};
}
