// String builder.
#include "ir/core/buf.h"

#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void grow(Buf *b, size_t cap) {
  char *p = arena_alloc(b->arena, cap);
  if (b->n) memcpy(p, b->at, b->n);
  b->at = p;
  b->cap = (uint32_t)cap;
}

static void reserve(Buf *b, size_t more) {
  size_t need = (size_t)b->n + more + 1;
  if (need <= b->cap) return;
  size_t cap = b->cap ? (size_t)b->cap * 2 : 64;
  if (cap < need) cap = need;
  // Past 4 GiB nothing sensible can be built: let the arena report it.
  if (cap > UINT32_MAX) cap = need <= UINT32_MAX ? UINT32_MAX : SIZE_MAX / 2;
  grow(b, cap);
}

void buf_room(Buf *b, size_t n) {
  size_t need = (size_t)b->n + n + 1;
  if (need > b->cap && need <= UINT32_MAX) grow(b, need);
}

void buf_add(Buf *b, const char *s, size_t n) {
  reserve(b, n);
  if (n) memcpy(b->at + b->n, s, n);
  b->n += (uint32_t)n;
  b->at[b->n] = 0;
}

void buf_str(Buf *b, const char *s) {
  buf_add(b, s, strlen(s));
}

void buf_char(Buf *b, char c) {
  buf_add(b, &c, 1);
}

void buf_printf(Buf *b, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  if (n > 0) {
    reserve(b, (size_t)n);
    vsnprintf(b->at + b->n, (size_t)n + 1, fmt, again);
    b->n += (uint32_t)n;
  }
  va_end(again);
}

double buf_read_double(const char *s, char **end) {
  locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  double v = strtod_l(s, end, c);
  freelocale(c);
  return v;
}

// Embedders may have set a locale whose decimal point is not a point.
static void to_c_locale(char *s) {
  char *p = s + strspn(s, "0123456789+-eE");
  size_t n = strcspn(p, "0123456789+-eE");
  if (n == 0) return;
  *p = '.';
  memmove(p + 1, p + n, strlen(p + n) + 1);
}

void buf_double(Buf *b, double v) {
  if (isnan(v)) {
    buf_str(b, "nan");
    return;
  }
  if (isinf(v)) {
    buf_str(b, v < 0 ? "-inf" : "inf");
    return;
  }
  char s[48];
  int prec = 0;  // digits behind the first that it takes
  do snprintf(s, sizeof s, "%.*e", prec, v);
  while (strtod(s, NULL) != v && ++prec < 17);
  const char *e = strchr(s, 'e');
  int exp = atoi(e + 1);
  if (exp >= -5 && exp < 16) {
    int behind = prec > exp ? prec - exp : 1;
    snprintf(s, sizeof s, "%.*f", behind, v);
    to_c_locale(s);
    buf_str(b, s);
    return;
  }
  s[e - s] = 0;
  to_c_locale(s);
  buf_printf(b, "%se%d", s, exp);
}

void buf_json(Buf *b, const char *s, size_t n) {
  buf_char(b, '"');
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)s[i];
    if (c == '"' || c == '\\') {
      buf_char(b, '\\');
      buf_char(b, (char)c);
    } else if (c == '\n') {
      buf_str(b, "\\n");
    } else if (c == '\t') {
      buf_str(b, "\\t");
    } else if (c < 0x20 || c == 0x7f) {
      buf_printf(b, "\\u%04x", c);
    } else {
      buf_char(b, (char)c);
    }
  }
  buf_char(b, '"');
}
