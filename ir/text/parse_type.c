// The reader's lower half: characters, words, dims, types, attributes.
#include "ir/layout.h"
#include "ir/text/parse.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- errors
Span parse_span(const Parser *p, const char *lo, const char *hi) {
  return (Span){p->src->id, (uint32_t)(lo - p->src->text),
                (uint32_t)(hi - p->src->text)};
}

static bool is_name(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '.';
}

// The end of what a reader would call the next token.
static const char *token_end(const Parser *p, const char *s) {
  const char *end = p->src->text + p->src->len;
  const char *e = s;
  while (e < end && is_name(*e) && e - s < 40) e++;
  return e > s || s == end ? e : s + 1;
}

static const char *describe(Parser *p, const char *s) {
  Arena *a = &p->cx->session;
  if (s >= p->src->text + p->src->len) return "the end of the text";
  unsigned char c = (unsigned char)*s;
  if (c < 0x20 || c >= 0x7f) return arena_printf(a, "byte 0x%02x", c);
  int n = (int)(token_end(p, s) - s);
  return arena_printf(a, "'%.*s'", n, s);
}

bool parse_expected(Parser *p, const char *what) {
  if (p->failed) return false;
  parse_skip(p);
  p->failed = true;
  diag_add(p->cx, DIAG_ir_syntax, parse_span(p, p->p, token_end(p, p->p)), what,
           describe(p, p->p));
  return false;
}

static bool name_error(Parser *p, DiagId id, const char *kind, const char *lo,
                       size_t len) {
  if (p->failed) return false;
  p->failed = true;
  int shown = len > 80 ? 80 : (int)len;
  diag_add(p->cx, id, parse_span(p, lo, lo + len), kind,
           arena_printf(&p->cx->session, "%.*s", shown, lo));
  return false;
}

bool parse_undefined(Parser *p, const char *kind, const char *lo, size_t len) {
  return name_error(p, DIAG_ir_name, kind, lo, len);
}

bool parse_twice(Parser *p, const char *kind, const char *lo, size_t len) {
  return name_error(p, DIAG_ir_twice, kind, lo, len);
}

bool parse_error(Parser *p, const char *lo, const char *fmt, ...) {
  if (p->failed) return false;
  p->failed = true;
  char text[200];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  diag_add(p->cx, DIAG_ir_value, parse_span(p, lo, token_end(p, lo)), text);
  return false;
}

// ---------------------------------------------------------------- characters
void parse_skip(Parser *p) {
  for (;;) {
    char c = *p->p;
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      p->p++;
    } else if (c == '#') {
      while (*p->p && *p->p != '\n') p->p++;
    } else {
      return;
    }
  }
}

bool parse_accept(Parser *p, char c) {
  parse_skip(p);
  if (*p->p != c) return false;
  p->p++;
  return true;
}

bool parse_expect(Parser *p, char c) {
  if (parse_accept(p, c)) return true;
  return parse_expected(p, (char[]){'\'', c, '\'', 0});
}

bool parse_peek_name(Parser *p, size_t *len) {
  parse_skip(p);
  size_t n = 0;
  if (isalpha((unsigned char)*p->p) || *p->p == '_')
    while (is_name(p->p[n])) n++;
  *len = n;
  return n > 0;
}

bool parse_name(Parser *p, const char *what, const char **s, size_t *len) {
  if (!parse_peek_name(p, len)) return parse_expected(p, what);
  *s = p->p;
  p->p += *len;
  return true;
}

bool parse_keyword(Parser *p, const char *keyword) {
  size_t n;
  if (!parse_peek_name(p, &n) || strlen(keyword) != n ||
      strncmp(p->p, keyword, n) != 0)
    return false;
  p->p += n;
  return true;
}

bool parse_word(Parser *p, WordSet set, const char *what, uint32_t *i) {
  size_t n;
  if (parse_peek_name(p, &n) && word_find(set, p->p, n, i)) {
    p->p += n;
    return true;
  }
  Buf b = {.arena = &p->cx->session};
  buf_printf(&b, "%s (", what);
  word_list(set, &b);
  buf_char(&b, ')');
  return parse_expected(p, b.at);
}

bool parse_int(Parser *p, int64_t *v) {
  bool minus = parse_accept(p, '-');
  parse_skip(p);
  const char *lo = p->p;
  if (!isdigit((unsigned char)*lo)) return parse_expected(p, "an integer");
  *v = 0;  // counts down: the smallest integer has no positive twin
  for (; isdigit((unsigned char)*p->p); p->p++)
    if (__builtin_mul_overflow(*v, 10, v) ||
        __builtin_sub_overflow(*v, *p->p - '0', v))
      return parse_error(p, lo, "integer does not fit in 64 bits");
  if (minus) return true;
  if (*v == INT64_MIN)
    return parse_error(p, lo, "integer does not fit in 64 bits");
  *v = -*v;
  return true;
}

static bool parse_float(Parser *p, double *v) {
  parse_skip(p);
  const char *s = p->p + (*p->p == '-');
  if (!isdigit((unsigned char)*s) && strncmp(s, "inf", 3) != 0 &&
      strncmp(s, "nan", 3) != 0)
    return parse_expected(p, "a number");
  char *end;
  *v = strtod(p->p, &end);
  p->p = end;
  return true;
}

// ---------------------------------------------------------------- words
bool parse_dim(Parser *p, Dim *d) {
  parse_skip(p);
  const char *lo = p->p;
  *d = dim_parse(&p->m->dims, &p->p, false);
  if (*d != DIM_NONE) return true;
  size_t n;
  if (parse_peek_name(p, &n)) return parse_undefined(p, "dim", p->p, n);
  if (p->p == lo) return parse_expected(p, "a dim expression");
  return parse_error(p, lo, "malformed dim expression");
}

bool parse_axis(Parser *p, uint32_t *axis) {
  const char *s;
  size_t n;
  if (!parse_name(p, "an axis", &s, &n)) return false;
  const Func *f = p->f;
  for (uint32_t i = 0; i < f->axes.n; i++) {
    const char *name = f->axes.at[i].name;
    if (strncmp(name, s, n) != 0 || name[n]) continue;
    *axis = i;
    return true;
  }
  return parse_undefined(p, "axis", s, n);
}

bool parse_dtype(Parser *p, DType *t) {
  size_t n;
  if (!parse_peek_name(p, &n) || !dtype_by_name(p->p, (uint32_t)n, t))
    return parse_expected(p, "an element type");
  p->p += n;
  return true;
}

// ---------------------------------------------------------------- types
static bool parse_elem_axes(Parser *p, Type *t) {
  if (!parse_accept(p, '{')) return true;
  do {
    parse_skip(p);
    const char *lo = p->p;
    uint32_t axis;
    Dim size = DIM_NONE;
    if (!parse_axis(p, &axis)) return false;
    if (parse_accept(p, ':') && !parse_dim(p, &size)) return false;
    if (type_has_axis(t, axis))
      return parse_error(p, lo, "axis is listed twice");
    if (t->n == MAX_AXES)
      return parse_error(p, lo, "more than %d axes", MAX_AXES);
    *t = type_with(*t, axis, size);
  } while (parse_accept(p, ','));
  return parse_expect(p, '}');
}

static bool parse_tensor(Parser *p, Type *t) {
  t->kind = TK_TENSOR;
  if (!parse_expect(p, '<') || !parse_dtype(p, &t->dtype) ||
      !parse_expect(p, '['))
    return false;
  if (parse_accept(p, ']')) return parse_expect(p, '>');
  do {
    if (t->n == MAX_AXES)
      return parse_error(p, p->p, "more than %d axes", MAX_AXES);
    if (!parse_dim(p, &t->size[t->n++])) return false;
  } while (parse_accept(p, ','));
  if (!parse_expect(p, ']')) return false;
  if (!parse_accept(p, ',')) return parse_expect(p, '>');
  t->quads = parse_keyword(p, "quads");
  t->padded = !t->quads && parse_keyword(p, "padded");
  if (!t->quads && !t->padded) return parse_expected(p, "quads or padded");
  return parse_expect(p, '>');
}

static bool parse_vec(Parser *p, Type *t) {
  int64_t lanes;
  t->kind = TK_VEC;
  if (!parse_expect(p, '<')) return false;
  const char *lo = p->p;
  if (!parse_int(p, &lanes)) return false;
  if (lanes < 1 || lanes > 4096)
    return parse_error(p, lo, "lanes must be 1 to 4096");
  t->n = (uint32_t)lanes;
  return parse_expect(p, 'x') && parse_dtype(p, &t->dtype) &&
         parse_expect(p, '>');
}

static bool parse_extent(Parser *p, uint32_t *n) {
  int64_t v;
  parse_skip(p);
  const char *lo = p->p;
  if (!parse_int(p, &v)) return false;
  if (v < 1 || v > 1 << 16)
    return parse_error(p, lo, "an extent must be 1 to 65536");
  *n = (uint32_t)v;
  return true;
}

// "64x128x" before the element type; returns the number of extents, 0: error.
static uint32_t parse_extents(Parser *p, uint32_t ext[3]) {
  uint32_t n = 0;
  do {
    if (!parse_extent(p, &ext[n++]) || !parse_expect(p, 'x')) return 0;
    parse_skip(p);
  } while (n < 3 && isdigit((unsigned char)*p->p));
  return n;
}

// ".0", ".1p", ".0:128" behind the layout's name; `s` is behind the dot.
static bool parse_slice(Parser *p, Type *t, const char *s, size_t n) {
  if ((n != 1 && !(n == 2 && s[1] == 'p')) || (*s != '0' && *s != '1'))
    return parse_error(p, s, "a slice is 0, 1, 0p or 1p");
  t->slice = *s == '0' ? SLICE_ROW : SLICE_COL;
  t->partial = n == 2;
  return !parse_accept(p, ':') || parse_extent(p, &t->ext[1]);
}

static bool parse_layout(Parser *p, Type *t) {
  const char *s;
  size_t n;
  if (!parse_name(p, "a layout", &s, &n)) return false;
  const char *dot = memchr(s, '.', n);
  size_t len = dot ? (size_t)(dot - s) : n;
  bool frag = t->kind == TK_FRAG;
  if (!layout_by_name(s, len, frag, &t->layout))
    return parse_undefined(p, "layout", s, len);
  if (dot && !frag) return parse_error(p, dot, "shared tiles have no slices");
  return !dot || parse_slice(p, t, dot + 1, n - len - 1);
}

static bool parse_frag(Parser *p, Type *t) {
  t->kind = TK_FRAG;
  parse_skip(p);
  const char *lo = p->p;
  if (!parse_expect(p, '<')) return false;
  t->n = parse_extents(p, t->ext);
  if (!t->n || !parse_dtype(p, &t->dtype) || !parse_expect(p, ',') ||
      !parse_layout(p, t) || !parse_expect(p, '>'))
    return false;
  if (t->n == (t->slice ? 1 : 2)) return true;
  return parse_error(p, lo, "a fragment has 2 extents, a slice 1");
}

static bool parse_smem(Parser *p, Type *t) {
  uint32_t ext[3] = {0};
  t->kind = TK_SMEM;
  parse_skip(p);
  const char *lo = p->p;
  if (!parse_expect(p, '<')) return false;
  uint32_t n = parse_extents(p, ext);
  if (!n) return false;
  if (n == 1) return parse_error(p, lo, "a shared tile has rows and columns");
  t->ext[0] = ext[n - 2], t->ext[1] = ext[n - 1];
  t->ext[2] = n == 3 ? ext[0] : 1;
  return parse_dtype(p, &t->dtype) && parse_expect(p, ',') &&
         parse_layout(p, t) && parse_expect(p, '>');
}

bool parse_type(Parser *p, Type *t) {
  *t = (Type){.kind = TK_ELEM};
  if (parse_keyword(p, "frag")) return parse_frag(p, t);
  if (parse_keyword(p, "smem")) return parse_smem(p, t);
  if (parse_keyword(p, "mbar")) {
    t->kind = TK_MBAR;
    return parse_expect(p, '<') && parse_extent(p, &t->n) &&
           parse_expect(p, '>');
  }
  if (parse_keyword(p, "tensor")) return parse_tensor(p, t);
  if (parse_keyword(p, "vec")) return parse_vec(p, t);
  if (parse_keyword(p, "ptr")) {
    t->kind = TK_PTR;
    return parse_expect(p, '<') && parse_dtype(p, &t->dtype) &&
           parse_expect(p, '>');
  }
  size_t n;
  if (!parse_peek_name(p, &n) || !dtype_by_name(p->p, (uint32_t)n, &t->dtype))
    return parse_expected(p, "a type");
  p->p += n;
  return parse_elem_axes(p, t);
}

// ---------------------------------------------------------------- attributes
static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The character after a backslash; -1 if there is no such escape.
static int escape(Parser *p) {
  char c = *p->p++;
  if (c == '"' || c == '\\') return c;
  if (c == 'n') return '\n';
  if (c == 't') return '\t';
  if (c != 'u') return -1;
  int v = 0;
  for (int i = 0; i < 4; i++) {
    int h = hex_digit(*p->p);
    if (h < 0) return -1;
    v = v * 16 + h;
    p->p++;
  }
  return v && v < 0x80 ? v : -1;
}

static bool parse_string(Parser *p, const char **out) {
  parse_skip(p);
  const char *lo = p->p;
  if (!parse_accept(p, '"')) return parse_expected(p, "a string");
  Buf b = {.arena = &p->cx->session};
  buf_str(&b, "");
  while (*p->p != '"') {
    int c = (unsigned char)*p->p;
    if (c == 0 || c == '\n')
      return parse_error(p, lo, "string is not closed on its line");
    p->p++;
    if (c == '\\' && (c = escape(p)) < 0)
      return parse_error(p, lo, "unknown escape in string");
    buf_char(&b, (char)c);
  }
  p->p++;
  *out = intern(&p->cx->names, b.at);
  return true;
}

static bool parse_bool(Parser *p, int64_t *v) {
  *v = parse_keyword(p, "true");
  if (*v || parse_keyword(p, "false")) return true;
  return parse_expected(p, "true or false");
}

static bool parse_sym(Parser *p, const char **out) {
  const char *s;
  size_t n;
  if (!parse_expect(p, '@') || !parse_name(p, "a function name", &s, &n))
    return false;
  *out = intern_n(&p->cx->names, s, n);
  return true;
}

static bool parse_id(Parser *p, AttrKind kind, int64_t *v) {
  uint32_t u = 0;
  DType t = DT_F32;
  bool ok;
  switch (kind) {
  case AK_DIM: ok = parse_dim(p, &u); break;
  case AK_DTYPE:
    ok = parse_dtype(p, &t);
    u = t;
    break;
  case AK_AXIS: ok = parse_axis(p, &u); break;
  case AK_RKIND: ok = parse_word(p, WS_RKIND, "a reduction", &u); break;
  case AK_DIR: ok = parse_word(p, WS_DIR, "a direction", &u); break;
  case AK_ORDER: ok = parse_word(p, WS_ORDER, "an order", &u); break;
  default: ok = parse_word(p, WS_FILL, "a fill", &u); break;
  }
  *v = u;
  return ok;
}

static bool parse_item(Parser *p, AttrKind kind, int64_t *v) {
  if (kind == AK_INTS) return parse_int(p, v);
  return parse_id(p, kind == AK_AXES ? AK_AXIS : AK_RKIND, v);
}

static bool parse_list(Parser *p, IrAttr *a) {
  Vec(int64_t) list = {0};
  if (!parse_expect(p, '[')) return false;
  if (parse_accept(p, ']')) return true;
  do {
    int64_t v;
    if (!parse_item(p, attr_kind(a->id), &v)) return false;
    if (list.n == PARSE_LIST) return parse_error(p, p->p, "list is too long");
    vec_push(&p->cx->session, &list, v);
  } while (parse_accept(p, ','));
  a->list = list.at;
  a->n = list.n;
  return parse_expect(p, ']');
}

static bool parse_attr_value(Parser *p, IrAttr *a) {
  AttrKind kind = attr_kind(a->id);
  switch (kind) {
  case AK_INT: return parse_int(p, &a->i);
  case AK_FLOAT: return parse_float(p, &a->f);
  case AK_BOOL: return parse_bool(p, &a->i);
  case AK_STR: return parse_string(p, &a->s);
  case AK_SYM: return parse_sym(p, &a->s);
  case AK_AXES:
  case AK_INTS:
  case AK_RKINDS: return parse_list(p, a);
  default: return parse_id(p, kind, &a->i);
  }
}

bool parse_attrs(Parser *p, const IrAttr **attrs, uint32_t *n) {
  Vec(IrAttr) all = {0};
  bool seen[AT_COUNT] = {0};
  if (!parse_accept(p, '{')) return true;
  do {
    const char *s;
    size_t len;
    IrAttr a = {0};
    if (!parse_name(p, "an attribute", &s, &len)) return false;
    if (!attr_by_name(s, len, &a.id))
      return parse_undefined(p, "attribute", s, len);
    if (seen[a.id]) return parse_twice(p, "attribute", s, len);
    seen[a.id] = true;
    if (!parse_expect(p, '=') || !parse_attr_value(p, &a)) return false;
    vec_push(&p->cx->session, &all, a);
  } while (parse_accept(p, ','));
  *attrs = all.at;
  *n = all.n;
  return parse_expect(p, '}');
}
