// .npy files. A header is a Python dict literal,
//   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
// written by anybody: nothing in it is believed before the length of the file
// has confirmed it.
#include "tools/driver/run/npy.h"

#include "ir/core/outfile.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_HEADER = 1 << 16, DATA_ALIGN = 64 };

static const char magic[] = "\x93NUMPY";

// How numpy names a type. Reading takes the first row that fits.
static const struct {
  char kind, size;
  DType dtype;
} types[] = {
    {'f', 8, DT_F64},  {'f', 4, DT_F32},    {'f', 2, DT_F16},
    {'i', 8, DT_I64},  {'i', 4, DT_I32},    {'i', 2, DT_I16},
    {'i', 1, DT_I8},   {'u', 4, DT_U32},    {'u', 2, DT_U16},
    {'u', 1, DT_U8},   {'b', 1, DT_BOOL},   {'f', 4, DT_TF32},
    {'u', 2, DT_BF16}, {'u', 1, DT_F8E4M3}, {'u', 1, DT_F8E5M2},
};
enum { NTYPES = sizeof types / sizeof *types };

typedef struct Reader {
  Arena *arena;
  const char *at, *end;  // of the dict
  const char **why;
  NpyArray *out;
  bool swap, fortran;
  unsigned seen;  // a bit per key
} Reader;

static bool bad(Reader *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static bool bad(Reader *r, const char *fmt, ...) {
  char text[160];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  *r->why = arena_strdup(r->arena, text);
  return false;
}

// ---- the dict

static void blanks(Reader *r) {
  while (r->at < r->end && *r->at && strchr(" \t\n\r", *r->at)) r->at++;
}

static bool take(Reader *r, char c) {
  blanks(r);
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  return true;
}

static bool want(Reader *r, char c) {
  return take(r, c) || bad(r, "malformed header: expected '%c'", c);
}

static bool word(Reader *r, const char *w) {
  size_t n = strlen(w);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, w, n) != 0) return false;
  r->at += n;
  return true;
}

// A string without escapes, NUL terminated in buf.
static bool quoted(Reader *r, char *buf, size_t size) {
  size_t n = 0;
  char q = take(r, '\'') ? '\'' : '"';
  if (q == '"' && !take(r, '"'))
    return bad(r, "malformed header: expected a string");
  for (; r->at < r->end && *r->at != q; r->at++) {
    if (n + 1 == size || *r->at < ' ' || *r->at == '\\')
      return bad(r, "malformed header: bad string");
    buf[n++] = *r->at;
  }
  buf[n] = 0;
  return want(r, q);
}

static bool extent(Reader *r, int64_t *out) {
  int64_t v = 0;
  blanks(r);
  if (r->at == r->end || *r->at < '0' || *r->at > '9')
    return bad(r, "malformed header: expected an extent");
  for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
    if (__builtin_mul_overflow(v, 10, &v) ||
        __builtin_add_overflow(v, *r->at - '0', &v))
      return bad(r, "an extent is too large");
  if (r->at < r->end && *r->at == 'L') r->at++;  // Python 2
  *out = v;
  return true;
}

static bool read_descr(Reader *r) {
  char s[16];
  blanks(r);
  if (r->at < r->end && *r->at == '[')
    return bad(r, "structured element types are not supported");
  if (!quoted(r, s, sizeof s)) return false;
  if (s[0] == '|' && s[1] == 'O')
    return bad(r, "pickled objects are not supported");
  bool order = s[0] && strchr("<>|=", s[0]) != NULL;
  const char *t = order ? s + 1 : s;
  r->swap = s[0] == '>';
  for (int i = 0; i < NTYPES; i++) {
    const char want_text[] = {types[i].kind, (char)('0' + types[i].size), 0};
    if (strcmp(t, want_text) != 0) continue;
    r->out->dtype = types[i].dtype;
    return true;
  }
  return bad(r, "element type '%s' is not supported", s);
}

static bool read_order(Reader *r) {
  blanks(r);
  r->fortran = word(r, "True");
  return r->fortran || word(r, "False") ||
         bad(r, "malformed header: expected True or False");
}

static bool read_shape(Reader *r) {
  NpyArray *x = r->out;
  if (!want(r, '(')) return false;
  while (!take(r, ')')) {
    if (x->rank == NPY_MAX_RANK)
      return bad(r, "more than %d axes", NPY_MAX_RANK);
    if (!extent(r, &x->shape[x->rank++])) return false;
    if (!take(r, ',') && (r->at == r->end || *r->at != ')'))
      return bad(r, "malformed header: expected ',' or ')'");
  }
  return true;
}

static const struct {
  const char *key;
  bool (*read)(Reader *);
} keys[] = {
    {"descr", read_descr},
    {"fortran_order", read_order},
    {"shape", read_shape},
};
enum { NKEYS = sizeof keys / sizeof *keys };

static bool read_entry(Reader *r) {
  char key[32];
  if (!quoted(r, key, sizeof key) || !want(r, ':')) return false;
  for (int i = 0; i < NKEYS; i++) {
    if (strcmp(key, keys[i].key) != 0) continue;
    if (r->seen & 1u << i) return bad(r, "'%s' is given twice", key);
    r->seen |= 1u << i;
    return keys[i].read(r);
  }
  return bad(r, "unknown key '%s' in the header", key);
}

static bool read_dict(Reader *r) {
  if (!want(r, '{')) return false;
  while (!take(r, '}')) {
    if (!read_entry(r)) return false;
    if (!take(r, ',') && (r->at == r->end || *r->at != '}'))
      return bad(r, "malformed header: expected ',' or '}'");
  }
  blanks(r);
  if (r->at != r->end) return bad(r, "malformed header: text behind the dict");
  for (int i = 0; i < NKEYS; i++)
    if (!(r->seen & 1u << i))
      return bad(r, "'%s' is missing in the header", keys[i].key);
  return true;
}

// ---- the data

static void *aligned(Arena *a, size_t n) {
  uintptr_t p = (uintptr_t)arena_alloc(a, n + DATA_ALIGN);
  return (void *)((p + DATA_ALIGN - 1) & ~(uintptr_t)(DATA_ALIGN - 1));
}

// Python's order of axes: the first varies fastest -> ours: the last does.
static void from_fortran(const NpyArray *x, const char *src, char *dst) {
  size_t size = (size_t)dtype_size(x->dtype);
  int64_t at[NPY_MAX_RANK] = {0}, stride[NPY_MAX_RANK], from = 0, step = 1;
  for (int k = 0; k < x->rank; k++) {
    stride[k] = step;
    step *= x->shape[k];
  }
  for (int64_t i = 0; i < x->count; i++) {
    memcpy(dst + (size_t)i * size, src + (size_t)from * size, size);
    for (int k = x->rank - 1; k >= 0; k--) {
      from += stride[k];
      if (++at[k] < x->shape[k]) break;
      from -= stride[k] * x->shape[k];
      at[k] = 0;
    }
  }
}

static void swap_bytes(const NpyArray *x) {
  int size = dtype_size(x->dtype);
  unsigned char *p = x->data;
  for (int64_t i = 0; i < x->count; i++, p += size)
    for (int k = 0; k < size / 2; k++) {
      unsigned char t = p[k];
      p[k] = p[size - 1 - k];
      p[size - 1 - k] = t;
    }
}

// A bool is 0 or 1, whatever byte the file has.
static void clean_bools(const NpyArray *x) {
  unsigned char *p = x->data;
  for (int64_t i = 0; x->dtype == DT_BOOL && i < x->count; i++)
    p[i] = p[i] != 0;
}

// The extents but those of 0 fit as well: strides are products of them.
static bool count_elements(Reader *r, size_t have) {
  NpyArray *x = r->out;
  int64_t bytes = dtype_size(x->dtype);
  bool empty = false, fits = true;
  for (int k = 0; k < x->rank; k++) {
    empty |= x->shape[k] == 0;
    fits &= !x->shape[k] || !__builtin_mul_overflow(bytes, x->shape[k], &bytes);
  }
  if (!fits) return bad(r, "the shape is too large");
  if (empty) bytes = 0;
  x->count = bytes / dtype_size(x->dtype);
  if ((size_t)bytes == have) return true;
  return bad(r, "the shape needs %lld bytes of data, the file has %llu",
             (long long)bytes, (unsigned long long)have);
}

static bool read_data(Reader *r, const char *data, size_t have) {
  NpyArray *x = r->out;
  if (!count_elements(r, have)) return false;
  x->data = aligned(r->arena, have);
  if (r->fortran && x->rank > 1) from_fortran(x, data, x->data);
  else if (have) memcpy(x->data, data, have);
  if (r->swap) swap_bytes(x);
  clean_bools(x);
  return true;
}

bool npy_parse(Arena *a, const void *bytes, size_t n, NpyArray *out,
               const char **why) {
  const unsigned char *p = bytes;
  Reader r = {.arena = a, .why = why, .out = out};
  *out = (NpyArray){0};
  if (n < 10 || memcmp(p, magic, 6) != 0) return bad(&r, "not a .npy file");
  if (p[6] < 1 || p[6] > 3)
    return bad(&r, ".npy version %d.%d is not supported", p[6], p[7]);
  size_t start = p[6] == 1 ? 10 : 12;
  if (n < start) return bad(&r, "the header is cut off");
  size_t len = p[8] | (size_t)p[9] << 8;
  if (p[6] > 1) len |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
  if (len > MAX_HEADER) return bad(&r, "the header is too long");
  if (len > n - start) return bad(&r, "the header is cut off");
  r.at = (const char *)p + start;
  r.end = r.at + len;
  return read_dict(&r) && read_data(&r, r.end, n - start - len);
}

// ---- files

static void *read_file(Arena *a, const char *path, size_t *n) {
  struct stat st;
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  void *p = NULL;
  errno = EINVAL;  // not a regular file
  if (fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode)) {
    *n = (size_t)st.st_size;
    p = arena_alloc(a, *n);
    errno = EIO;
    if (fread(p, 1, *n, f) != *n) p = NULL;
  }
  int saved = errno;
  fclose(f);
  errno = saved;
  return p;
}

bool npy_read(Ctx *cx, Arena *a, const char *path, NpyArray *out) {
  const char *why;
  size_t n;
  ArenaMark mark = arena_mark(&cx->scratch);
  void *bytes = read_file(&cx->scratch, path, &n);
  if (!bytes) {
    diag_add(cx, DIAG_cannot_read, NOWHERE, path, strerror(errno));
    return false;
  }
  bool ok = npy_parse(a, bytes, n, out, &why);
  arena_reset(&cx->scratch, mark);
  if (!ok) diag_add(cx, DIAG_cannot_read, NOWHERE, path, why);
  return ok;
}

// numpy's own text: padded with blanks so that the data starts at a multiple
// of 64 bytes.
static void header(const NpyArray *x, Buf *b) {
  int row = 0;
  while (types[row].dtype != x->dtype) row++;
  buf_printf(b, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
             types[row].size == 1 ? '|' : '<', types[row].kind,
             types[row].size);
  for (int k = 0; k < x->rank; k++)
    buf_printf(b, "%s%lld", k ? ", " : "", (long long)x->shape[k]);
  buf_str(b, x->rank == 1 ? ",), }" : "), }");
  while ((10 + b->n + 1) % 64) buf_char(b, ' ');
  buf_char(b, '\n');
}

bool npy_write(Ctx *cx, const char *path, const NpyArray *x) {
  ArenaMark mark = arena_mark(&cx->scratch);
  Buf b = {.arena = &cx->scratch};
  header(x, &b);
  char start[10] = "\x93NUMPY\x01";  // version 1.0
  start[8] = (char)(b.n & 255);
  start[9] = (char)(b.n >> 8);
  size_t bytes = (size_t)x->count * (size_t)dtype_size(x->dtype);
  OutFile f;
  bool ok =
      out_open(&f, path, 0666) &&
      out_close(&f, out_put(&f, start, sizeof start) &&
                        out_put(&f, b.at, b.n) && out_put(&f, x->data, bytes));
  if (!ok) diag_add(cx, DIAG_cannot_write, NOWHERE, path, strerror(errno));
  arena_reset(&cx->scratch, mark);
  return ok;
}
