// .npy: damaged and hostile headers; with arguments, copies files (read, then
// written again) for a comparison with numpy.
#include "expect.h"
#include "tools/driver/run/npy.h"

#include <stdlib.h>

static bool parse(Ctx *cx, const void *p, size_t n, NpyArray *x,
                  const char **why) {
  char *copy = malloc(n ? n : 1);  // so that sanitizers see any overrun
  memcpy(copy, p, n);
  bool ok = npy_parse(&cx->session, copy, n, x, why);
  free(copy);
  return ok;
}

// A version 1 file of this dict and `have` bytes of data.
static size_t file(char *f, const char *dict, size_t have) {
  size_t len = strlen(dict);
  memcpy(f, "\x93NUMPY\x01", 8);
  f[8] = (char)(len & 255);
  f[9] = (char)(len >> 8);
  memcpy(f + 10, dict, len);
  memset(f + 10 + len, 1, have);
  return 10 + len + have;
}

static const char *refused(Ctx *cx, const char *dict, size_t have) {
  static char f[4096];
  NpyArray x;
  const char *why = "accepted";
  size_t n = file(f, dict, have);
  EXPECT(!parse(cx, f, n, &x, &why));
  return why;
}

#define DICT(d, f, s) "{'descr': " d ", 'fortran_order': " f ", 'shape': " s "}"
#define REFUSED(dict, have, part) \
  do { \
    const char *why_ = refused(cx, dict, have); \
    EXPECT(strstr(why_, part) != NULL); \
    if (!strstr(why_, part)) printf("  %s\n", why_); \
  } while (0)

static void hostile(Ctx *cx) {
  REFUSED(DICT("'<f4'", "False", "(2, 3)"), 20, "needs 24 bytes of data");
  REFUSED(DICT("'<f4'", "False", "(2, 3)"), 28, "the file has 28");
  REFUSED(DICT("'<f4'", "False", "(4294967296, 4294967296)"), 0, "too large");
  REFUSED(DICT("'<f4'", "False", "(9223372036854775807,)"), 0, "too large");
  REFUSED(DICT("'<f4'", "False", "(9223372036854775808,)"), 0, "too large");
  REFUSED(DICT("'<f4'", "True", "(0, 4294967296, 4294967296)"), 0, "too large");
  REFUSED(DICT("'<f4'", "False", "(-1,)"), 0, "expected an extent");
  REFUSED(DICT("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), 4, "than 8 axes");
  REFUSED(DICT("'<f4'", "False", "(2 3)"), 24, "expected ',' or ')'");
  REFUSED(DICT("'<c8'", "False", "()"), 8, "type '<c8' is not supported");
  REFUSED(DICT("'<u8'", "False", "()"), 8, "type '<u8' is not supported");
  REFUSED(DICT("'|O'", "False", "()"), 8, "pickled objects");
  REFUSED(DICT("[('a', '<f4')]", "False", "()"), 4, "structured");
  REFUSED(DICT("'<f4'", "None", "()"), 4, "expected True or False");
  REFUSED(DICT("'<f4\\'", "False", "()"), 4, "bad string");
  REFUSED("{'descr", 4, "expected '\''");
  REFUSED(DICT("'<f4'", "False", "()") " x", 4, "behind the dict");
  REFUSED("{'descr': '<f4', 'shape': ()}", 4, "'fortran_order' is missing");
  REFUSED("{'descr': '<f4', 'descr': '<f4'}", 4, "given twice");
  REFUSED("{'cmd': 'rm'}", 4, "unknown key 'cmd'");
  REFUSED("", 4, "expected '{'");
}

static void accepted(Ctx *cx) {
  char f[512];
  NpyArray x;
  const char *why;
  size_t n = file(f, DICT("\"<f4\"", "True", "(2L, 3L,)"), 24);
  EXPECT(parse(cx, f, n, &x, &why));
  EXPECT(x.rank == 2 && x.shape[0] == 2 && x.shape[1] == 3 && x.count == 6);
  EXPECT(x.dtype == DT_F32 && (uintptr_t)x.data % 64 == 0);
  n = file(f, DICT("'|b1'", "False", "(3,)"), 3);
  f[n - 1] = 77;
  f[n - 3] = 0;
  EXPECT(parse(cx, f, n, &x, &why) && memcmp(x.data, "\0\1\1", 3) == 0);
  n = file(f, DICT("'>i2'", "False", "()"), 2);
  f[n - 1] = 2;
  EXPECT(parse(cx, f, n, &x, &why) && *(int16_t *)x.data == 258);
  EXPECT(x.rank == 0 && x.count == 1);
  n = file(f, DICT("'<i8'", "True", "(4, 0, 9)"), 0);
  EXPECT(parse(cx, f, n, &x, &why) && x.count == 0);
  memcpy(f, "\x93NUMPY\x04", 7);
  EXPECT(!parse(cx, f, n, &x, &why) && strstr(why, "version 4.0"));
}

static void damage(Ctx *cx) {
  char f[512];
  NpyArray x;
  const char *why;
  size_t n = file(f, DICT("'<f4'", "True", "(2, 3, )"), 24);
  EXPECT(parse(cx, f, n, &x, &why));
  for (size_t k = 0; k < n; k++) EXPECT(!parse(cx, f, k, &x, &why));
  for (size_t i = 0; i < n - 24; i++)
    for (int v = 1; v < 256; v++) {  // must end; may be accepted
      f[i] = (char)(f[i] ^ v);
      if (parse(cx, f, n, &x, &why))
        EXPECT(x.count * dtype_size(x.dtype) <= (int64_t)n);
      f[i] = (char)(f[i] ^ v);
    }
}

static void copy(Ctx *cx, const char *from, const char *to) {
  NpyArray x;
  bool ok = npy_read(cx, &cx->session, from, &x) && npy_write(cx, to, &x);
  EXPECT(ok);
}

int main(int argc, char **argv) {
  Ctx cx;
  NpyArray x;
  ctx_init(&cx);
  for (int i = 1; i + 1 < argc; i += 2) copy(&cx, argv[i], argv[i + 1]);
  hostile(&cx);
  accepted(&cx);
  damage(&cx);
  EXPECT(cx.diags.n == 0);
  EXPECT(!npy_read(&cx, &cx.session, "/no/such", &x) && cx.diags.n == 1);
  EXPECT(!npy_read(&cx, &cx.session, "/", &x) && cx.diags.n == 2);
  x = (NpyArray){.dtype = DT_F32};
  EXPECT(!npy_write(&cx, "/no/such", &x) && cx.diags.n == 3);
  ctx_drop(&cx);
  return verdict();
}
