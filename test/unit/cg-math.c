// Every function of codegen/math/f32.c and codegen/math/f64.c, run through the
// JIT on every level of this machine, against libm in double (f32) or long
// double (f64).
//   STRIDE=n: every n-th float (odd), default is quick; SHOW=1: the errors
#include "test/unit/cg-run.h"

#include <math.h>

typedef long double Ref1(long double);
typedef struct Fn {
  const char *name;
  Ref1 *ref;
  double ulp32, ulp64;  // bounds; without FMA 0.8 more
  double flush32;       // absolute error allowed near zero, in 2^-126
} Fn;

static long double sigmoidl(long double x) {
  return 1 / (1 + expl(-x));
}
static long double softplusl(long double x) {
  return fmaxl(x, 0) + log1pl(expl(-fabsl(x)));
}

static const Fn fns[] = {
    {"exp2", exp2l, 1.5, 2, 1},           {"exp", expl, 1, 2, 1},
    {"log2", log2l, 1.8, 2, 0},           {"log", logl, 1.3, 1.5, 0},
    {"tanh", tanhl, 5, 3.5, 0},           {"sigmoid", sigmoidl, 2.5, 3, 1},
    {"softplus", softplusl, 2.5, 3.5, 1}, {"erf", erfl, 5.2, 3, 0},
    {"sin", sinl, 1.6, 2.6, 0},           {"cos", cosl, 1.6, 2.6, 0}};
enum { NFN = sizeof fns / sizeof *fns, CHUNK = 4096 };
#ifdef LINKED
enum { STRIDE = 2400017 };  // an emulator is slow
#else
enum { STRIDE = 400009 };
#endif

static const double special[] = {
    0.0,        -0.0,      INFINITY,  -INFINITY,      NAN,
    1,          -1,        0x1p-126,  -0x1p-126,      0x1p-149,
    -0x1p-149,  0x1p127,   -0x1p127,  0x1.fffffep127, 88.72283,
    88.72284,   -87.3365,  -87.33654, -88.02,         -103.97,
    -104,       127.99999, 128,       -126,           -126.00001,
    -127,       -127.5,    -149,      -150,           0x1p-1022,
    0x1p-1074,  709.78,    709.79,    -708.39,        -708.4,
    -709.08,    -709.09,   -745,      1023.9999,      1024,
    -1022,      -1022.1,   -1023,     -1074,          20,
    -20,        19.99,     9.02,      3.925,          5.99,
    6,          1e5,       4.2e6,     -4.3e6,         8191,
    8193,       1e10,      1e22,      -1e30,          1e38,
    1048576.5,  1e15,      1.2e15,    1e300,          -1e308,
    0.5,        2,         4,         16777215,       0.70710678,
    0.99999994, 1.0000001};
enum { NSPECIAL = sizeof special / sizeof *special };

// ---------------------------------------------------------------- programs
static const char *const types[] = {"f32", "f64"};
static const int lanes_of[2][3] = {{32, 0, 4}, {8, 0, 2}};

#ifdef LINKED
static void write(void *buf, const char *target) {
  (void)buf, (void)target;
}
#else
static void program(Buf *b, const char *fn, const char *t, int lanes,
                    bool two) {
  buf_printf(b, "func program @%s_%s_%d(%%X: tensor<%s[N]> in, ", fn, t, lanes,
             t);
  if (two) buf_printf(b, "%%Z: tensor<%s[N]> in, ", t);
  buf_printf(b, "%%Y: tensor<%s[N]> out) axes(i par N) grid(i:%d) {\n", t,
             CHUNK);
  buf_printf(b,
             "  %%i = origin() {axis = i} : i64\n"
             "  %%x = tptr(%%X) : ptr<%s>\n  %%y = tptr(%%Y) : ptr<%s>\n",
             t, t);
  if (two) buf_printf(b, "  %%z = tptr(%%Z) : ptr<%s>\n", t);
  buf_printf(b,
             "  %%c = const() {ivalue = %d} : i64\n"
             "  %%hi = add(%%i, %%c) : i64\n"
             "  %%st = const() {ivalue = %d} : i64\n"
             "  for(%%i, %%hi, %%st) ({\n    ^(%%j: i64):\n",
             CHUNK, lanes ? lanes : 1);
  char type[32];
  if (lanes) snprintf(type, sizeof type, "vec<%dx%s>", lanes, t);
  else snprintf(type, sizeof type, "%s", t);
  const char *v = lanes ? "v" : "";
  buf_printf(b, "    %%a = %sld(%%x, %%j) : %s\n", v, type);
  if (two) buf_printf(b, "    %%b = %sld(%%z, %%j) : %s\n", v, type);
  buf_printf(b,
             "    %%r = %s(%%a%s) : %s\n    %sst(%%y, %%j, %%r)\n"
             "    yield()\n  })\n}\n",
             fn, two ? ", %b" : "", type, v);
}

static void write(void *buf, const char *target) {
  (void)target;
  for (int t = 0; t < 2; t++)
    for (int l = 0; l < 3; l++) {
      for (int i = 0; i < NFN; i++)
        program(buf, fns[i].name, types[t], lanes_of[t][l], false);
      program(buf, "pow", types[t], lanes_of[t][l], true);
    }
}
#endif

// ---------------------------------------------------------------- checks
typedef struct Check {
  const char *name, *target;
  double bound, flush;  // ulps, absolute
  bool wide;            // f64
  double worst, at;
  int wrong;
} Check;

static long double ulp_of(long double ref, bool wide) {
  int low = wide ? -1022 : -126, bits = wide ? 52 : 23;
  int e = ref == 0 ? low : ilogbl(ref);
  return ldexpl(1, (e < low ? low : e) - bits);
}

static void one(Check *c, long double x, long double y, double got,
                long double ref) {
  long double rounded =
      c->wide ? (long double)(double)ref : (long double)(float)ref;
  double err;
  if (isnan(rounded) || isnan(got))
    err = isnan(rounded) && isnan(got) ? 0 : INFINITY;
  else if (isinf(got) && isinf(rounded)) err = got == rounded ? 0 : INFINITY;
  else if (fabsl((long double)got - ref) <= c->flush) err = 0;
  else err = (double)(fabsl((long double)got - ref) / ulp_of(ref, c->wide));
  if (isinf(x) && !isnan(rounded) && got != (double)rounded) err = INFINITY;
  // The last step to infinity may be taken early.
  if (isinf(got) != isinf(rounded) && err > c->bound &&
      fabsl(isinf(got) ? ref : (long double)got) >
          (c->wide ? 0x1.ffffffffffff0p1023L : 0x1.fffff0p127L))
    err = 0;
  if (err > c->worst) c->worst = err, c->at = (double)x;
  if (err > c->bound && c->wrong++ < 5)
    printf("%s %s: (%La, %La) gives %a, want %La: %.2f ulp\n", c->target,
           c->name, x, y, got, rounded, err);
}

typedef struct Data {
  int64_t n;
  float *x32, *y32, *out32;
  double *x64, *y64, *out64;
} Data;

static int64_t round_up(int64_t n) {
  return (n + CHUNK - 1) / CHUNK * CHUNK;
}

static double next_random(uint64_t *s) {
  *s = *s * 6364136223846793005u + 1442695040888963407u;
  return (double)(*s >> 11) * 0x1p-53;
}

static Data inputs(uint32_t stride) {
  int64_t sweep = (int64_t)(0x100000000 / stride), n = round_up(sweep + 8192);
  uint64_t seed = 1;
  Data d = {.n = n};
  d.x32 = calloc((size_t)n, 4), d.y32 = calloc((size_t)n, 4);
  d.out32 = calloc((size_t)n, 4);
  d.x64 = calloc((size_t)n, 8), d.y64 = calloc((size_t)n, 8);
  d.out64 = calloc((size_t)n, 8);
  for (int64_t i = 0; i < n; i++) {
    uint32_t u = (uint32_t)i * stride;
    memcpy(&d.x32[i], &u, 4);
    uint64_t w = (uint64_t)u << 32 | (u * 2654435761u);
    memcpy(&d.x64[i], &w, 8);
    if (i % 4 == 1) d.x64[i] = (next_random(&seed) - 0.5) * 80;
    if (i % 4 == 3) d.x64[i] = (next_random(&seed) - 0.5) * 1500;
    double y = (next_random(&seed) - 0.5) * (i % 3 ? 10 : 300);
    if (i % 5 == 0) y = floor(y);
    d.y32[i] = (float)y, d.y64[i] = y;
  }
  for (int i = 0; i < NSPECIAL * NSPECIAL; i++) {
    double x = special[i / NSPECIAL], y = special[i % NSPECIAL];
    d.x32[i] = (float)x, d.y32[i] = (float)y, d.x64[i] = x, d.y64[i] = y;
  }
  // NaNs with payloads.
  uint32_t nans[] = {0x7fffffff, 0xffffffff, 0x7fc001ff, 0x7f800001};
  memcpy(d.x32 + 3 * NSPECIAL, nans, sizeof nans);
  return d;
}

static void run(const Code *code, const char *name, const Data *d, bool wide,
                bool two) {
  int dtype = wide ? ATTN_F64 : ATTN_F32, dtypes[3] = {dtype, dtype, dtype};
  void *x = wide ? (void *)d->x64 : (void *)d->x32;
  void *y = wide ? (void *)d->y64 : (void *)d->y32;
  void *out = wide ? (void *)d->out64 : (void *)d->out32;
  void *data[3] = {x, two ? y : out, out};
  launch(find(code, name), data, dtypes, two ? 3 : 2, d->n);
}

static Check bounds(const char *target, const char *name, int fn, bool wide) {
  bool two = fn == NFN, slow = !strcmp(target, "cpu:x86-64");
  const char *f = two ? "pow" : fns[fn].name;
  double b = two ? (wide ? 2 : 0.6) : wide ? fns[fn].ulp64 : fns[fn].ulp32;
  double flush = two ? (wide ? 0x1p-1022 : 0)
                     : fns[fn].flush32 * (wide ? 0x1p-1022 : 0x1p-126);
  // Without FMA pi is known to 49 bits only.
  if (slow && !wide && strstr("sin cos", f)) flush = 0x1p-36;
  return (Check){.name = name,
                 .target = target,
                 .wide = wide,
                 .flush = flush,
                 .bound = b + (slow ? 0.8 : 0)};
}

static void sweep(const Code *code, const Data *d, const char *target, int fn,
                  bool wide, int lanes) {
  char name[32];
  bool two = fn == NFN;
  snprintf(name, sizeof name, "%s_%s_%d", two ? "pow" : fns[fn].name,
           types[wide], lanes);
  run(code, name, d, wide, two);
  Check c = bounds(target, name, fn, wide);
  for (int64_t i = 0; i < d->n; i++) {
    long double x = wide ? d->x64[i] : (double)d->x32[i];
    long double y = wide ? d->y64[i] : (double)d->y32[i];
    double got = wide ? d->out64[i] : (double)d->out32[i];
    one(&c, x, y, got, two ? powl(x, y) : fns[fn].ref(x));
  }
  if (getenv("SHOW"))
    printf("%s %s: %.2f ulp at %a\n", target, name, c.worst, c.at);
  EXPECT(c.wrong == 0);
}

static void test(const Code *code, const char *target) {
  const char *s = getenv("STRIDE");
  Data d = inputs(s ? (uint32_t)atoi(s) : STRIDE);
  bool quick = STRIDE > 1000000 || (s && d.n > 1000000);
  for (int wide = 0; wide < 2; wide++)
    for (int i = 0; i <= NFN; i++)
      for (int l = 0; l < (quick ? 1 : 3); l++)
        sweep(code, &d, target, i, wide, lanes_of[wide][l]);
  free(d.x32), free(d.y32), free(d.out32);
  free(d.x64), free(d.y64), free(d.out64);
}

int main(int argc, char **argv) {
  return each_level(argc, argv, write, test);
}
