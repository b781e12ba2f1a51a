// Private to ir/: the reader shared by parse.c (modules, ops) and
// parse_type.c (types, attributes). It works on characters and stops at the
// first error.
#ifndef ATTNC_IR_TEXT_PARSE_H
#define ATTNC_IR_TEXT_PARSE_H

#include "ir/text/text.h"

typedef struct Parser {
  Ctx *cx;
  Source *src;
  const char *p;  // next character; the text ends with NUL
  Module *m;
  Func *f;
  Map values;  // interned name -> Value, of f
  int depth;   // nesting of regions
  bool failed;
} Parser;

enum {
  PARSE_DEPTH = 256,
  PARSE_DIMS = 1024,
  PARSE_FUNCS = 1024,
  PARSE_AXES = 1024,
  PARSE_LIST = 65536,
};

// Blanks, newlines, comments.
void parse_skip(Parser *p);
Span parse_span(const Parser *p, const char *lo, const char *hi);
// Each adds one diagnostic (the first wins) and returns false.
bool parse_expected(Parser *p, const char *what);
bool parse_undefined(Parser *p, const char *kind, const char *lo, size_t len);
bool parse_twice(Parser *p, const char *kind, const char *lo, size_t len);
bool parse_error(Parser *p, const char *lo, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

bool parse_accept(Parser *p, char c);  // skips blanks first
bool parse_expect(Parser *p, char c);
// A name [A-Za-z_][A-Za-z0-9_.]*, as a piece of the text.
bool parse_peek_name(Parser *p, size_t *len);
bool parse_name(Parser *p, const char *what, const char **s, size_t *len);
bool parse_keyword(Parser *p, const char *word);  // accepts it if next
bool parse_word(Parser *p, WordSet set, const char *what, uint32_t *i);
bool parse_int(Parser *p, int64_t *v);
bool parse_dim(Parser *p, Dim *d);
bool parse_axis(Parser *p, uint32_t *axis);
bool parse_dtype(Parser *p, DType *t);
bool parse_type(Parser *p, Type *t);
bool parse_attrs(Parser *p, const IrAttr **attrs, uint32_t *n);

#endif
