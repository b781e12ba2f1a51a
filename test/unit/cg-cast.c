// Every cast between dtypes, run through the JIT on every level of this
// machine, bit for bit against ir/core/dtype.h: all patterns of 8 and 16 bits,
// and a sweep with edges of the wider types.
#include "test/unit/cg-run.h"

#include <math.h>

enum { N = 1 << 16, TASK = 1024 };

#ifdef LINKED
enum { STEP = 17 };  // an emulator is slow
#else
enum { STEP = 1 };
#endif

static int count(DType from) {
  return dtype_size(from) == 1 ? TASK : dtype_size(from) == 2 ? N : 8 * TASK;
}

#ifdef LINKED
static void write(void *buf, const char *target) {
  (void)buf, (void)target;
}
#else
static void program(Buf *b, DType from, DType to, int lanes) {
  const char *f = dtype_name(from), *t = dtype_name(to), *v = lanes ? "v" : "";
  char pre[16] = "", post[4] = "";
  if (lanes) snprintf(pre, sizeof pre, "vec<%dx", lanes), strcpy(post, ">");
  buf_printf(b,
             "func program @%s_%s_%d(%%X: tensor<%s[N]> in, %%Y: tensor<%s[N]> "
             "out) axes(i par N) grid(i:%d) {\n"
             "  %%i = origin() {axis = i} : i64\n"
             "  %%x = tptr(%%X) : ptr<%s>\n  %%y = tptr(%%Y) : ptr<%s>\n"
             "  %%c = const() {ivalue = %d} : i64\n"
             "  %%hi = add(%%i, %%c) : i64\n"
             "  %%st = const() {ivalue = %d} : i64\n"
             "  for(%%i, %%hi, %%st) ({\n    ^(%%j: i64):\n"
             "    %%a = %sld(%%x, %%j) : %s%s%s\n"
             "    %%r = cast(%%a) {to = %s} : %s%s%s\n"
             "    %sst(%%y, %%j, %%r)\n    yield()\n  })\n}\n",
             f, t, lanes, f, t, TASK, f, t, TASK, lanes ? lanes : 1, v, pre, f,
             post, t, pre, t, post, v);
}

static void write(void *buf, const char *target) {
  (void)target;
  for (DType f = 0; f < DT_COUNT; f++)
    for (DType t = 0; t < DT_COUNT; t++)
      for (int l = 0; f != t && l <= 16; l += 16) program(buf, f, t, l);
}
#endif

// Floats around every power of two with ties of all narrower types, and noise.
static double sample(int i) {
  static const double tail[] = {0,
                                0x1p-24,
                                0x1p-23,
                                0x1p-11,
                                0x1p-11 + 0x1p-40,
                                0x1p-11 - 0x1p-40,
                                0x1p-8,
                                0x1p-8 + 0x1p-45,
                                0x1p-4,
                                0x3p-4,
                                0x1p-3,
                                0x1p-3 - 0x1p-50,
                                0x3p-3,
                                0x3p-8,
                                0x3p-11,
                                0x5p-9};
  if (i == 0) return INFINITY;
  if (i == 1) return -INFINITY;
  if (i == 2) return NAN;
  if (i == 3) return -0.0;
  uint64_t s = (uint64_t)i * 0x9e3779b97f4a7c15u;
  double m = i & 16 ? 1 + (double)(s >> 11) * 0x1p-53 : 1 + tail[i & 15];
  double v = ldexp(m, (i >> 6) % 320 - 160);
  return i & 32 ? -v : v;
}

static void fill(DType t, void *out) {
  char *p = out;
  int size = dtype_size(t);
  for (int i = 0; i < N; i++, p += size) {
    if (size <= 2) {
      uint16_t u = (uint16_t)(t == DT_BOOL ? i & 1 : i);
      memcpy(p, &u, (size_t)size);
      continue;
    }
    if (dtype_is_float(t)) {
      dtype_store(t, p, sample(i));
      continue;
    }
    int64_t k = (int64_t)((uint64_t)i * 0x9e3779b97f4a7c15u) >> (11 + i % 50);
    if (i < 64) k = i % 2 ? -(1ll << (i / 2)) : (1ll << (i / 2)) - 1;
    memcpy(p, &k, (size_t)size);
  }
}

// What a float becomes as an integer: toward zero, saturating, NaN is 0.
static double saturate(DType to, double v) {
  if (isnan(v)) return 0;
  int bits = 8 * dtype_size(to);
  bool sign = dtype_kind(to) == 'i';
  double hi = ldexp(1, sign ? bits - 1 : bits), lo = sign ? -hi : 0;
  if (v <= lo) return lo;
  return v >= hi ? NAN : trunc(v);  // NaN: the greatest, no double holds i64's
}

static bool same(DType from, DType to, const void *in, const void *out,
                 bool flush) {
  double v = dtype_load(from, in), got = dtype_load(to, out), want;
  if (dtype_is_float(to)) {
    want = dtype_round(to, v);
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (flush && fabs(v) < 0x1p-126) want = copysign(0, v);
    return want == got && !signbit(want) == !signbit(got);
  }
  if (to == DT_BOOL) return got == (v != 0) && *(const uint8_t *)out <= 1;
  if (!dtype_is_float(from)) {
    uint8_t b[8];
    dtype_store(to, b, v);
    return memcmp(b, out, (size_t)dtype_size(to)) == 0;
  }
  want = saturate(to, v);
  int bits = 8 * dtype_size(to);
  if (!isnan(want)) return want == got;
  uint64_t top =
      dtype_kind(to) == 'i' ? (1ull << (bits - 1)) - 1 : ~0ull >> (64 - bits);
  return memcmp(&top, out, (size_t)dtype_size(to)) == 0;
}

// What is converted: `in` to `out`, so many at a time.
typedef struct Cast {
  DType from, to;
  int lanes;
  void *in, *out;
} Cast;

static void check(const Code *c, const char *target, Cast x) {
  DType from = x.from, to = x.to;
  int lanes = x.lanes;
  void *in = x.in, *out = x.out;
  char name[48];
  snprintf(name, sizeof name, "%s_%s_%d", dtype_name(from), dtype_name(to),
           lanes);
  int n = count(from), wrong = 0, types[2] = {(int)from, (int)to};
  void *data[2] = {in, out};
  launch(find(c, name), data, types, 2, n);
  bool flush = lanes && to == DT_BF16 && strstr(target, "bf16");
  for (int i = 0; i < n; i += lanes ? STEP : 7 * STEP) {
    char *a = (char *)in + i * dtype_size(from);
    char *b = (char *)out + i * dtype_size(to);
    if (!same(from, to, a, b, flush) && wrong++ < 3)
      printf("%s %s: %a gives %a, want %a\n", target, name, dtype_load(from, a),
             dtype_load(to, b), dtype_round(to, dtype_load(from, a)));
  }
  EXPECT(wrong == 0);
}

static void test(const Code *c, const char *target) {
  void *in = calloc(N, 8), *out = calloc(N, 8);
  for (DType f = 0; f < DT_COUNT; f++) {
    fill(f, in);
    for (DType t = 0; t < DT_COUNT; t++)
      for (int l = 0; f != t && l <= 16; l += 16)
        check(c, target, (Cast){f, t, l, in, out});
  }
  free(in);
  free(out);
}

int main(int argc, char **argv) {
  return each_level(argc, argv, write, test);
}
