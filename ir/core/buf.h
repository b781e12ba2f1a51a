// String builder. The bytes live in the arena given at the start; `at` is
// always NUL terminated once anything was added.
#ifndef ATTNC_IR_CORE_BUF_H
#define ATTNC_IR_CORE_BUF_H

#include "ir/core/arena.h"

typedef struct Buf {
  Arena *arena;
  char *at;
  uint32_t n, cap;
} Buf;

// Makes room for n bytes more, and no more than that.
void buf_room(Buf *b, size_t n);
void buf_add(Buf *b, const char *s, size_t n);
void buf_str(Buf *b, const char *s);
void buf_char(Buf *b, char c);
void buf_printf(Buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// Shortest decimal that reads back to the same double; always has a '.', an
// 'e', or is inf, -inf, nan.
void buf_double(Buf *b, double v);
// strtod in the C locale, whatever the process has set; its inverse.
double buf_read_double(const char *s, char **end);
// s as a quoted JSON string.
void buf_json(Buf *b, const char *s, size_t n);

#endif
