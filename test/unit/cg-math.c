// Every function of math.c and math64.c, run through the JIT on every level of
// this machine, against libm in double (f32) or long double (f64).
//   unit-cg-math [stride]     every stride-th float (odd); default is quick
#include "codegen/codegen.h"
#include "test/unit/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef long double Ref1(long double);
typedef struct Fn {
  const char *name;
  Ref1 *ref;
  double ulp32, ulp64;  // bounds; without FMA 0.8 more
  double flush32;       // absolute error allowed near zero, in 2^-126
} Fn;

static long double sigmoidl(long double x) { return 1 / (1 + expl(-x)); }
static long double softplusl(long double x) {
  return fmaxl(x, 0) + log1pl(expl(-fabsl(x)));
}

static const Fn fns[] = {
    {"exp2", exp2l, 1.5, 2, 1},       {"exp", expl, 1, 2, 1},
    {"log2", log2l, 1.8, 2, 0},       {"log", logl, 1.3, 1.5, 0},
    {"tanh", tanhl, 5, 3.5, 0},       {"sigmoid", sigmoidl, 2.5, 3, 1},
    {"softplus", softplusl, 2.5, 3.5, 1}, {"erf", erfl, 5.2, 3, 0},
    {"sin", sinl, 1.6, 2.6, 0},       {"cos", cosl, 1.6, 2.6, 0}};
enum { NFN = sizeof fns / sizeof *fns, CHUNK = 4096 };

static const double special[] = {
    0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 0x1p-126, -0x1p-126, 0x1p-149,
    -0x1p-149, 0x1p127, -0x1p127, 0x1.fffffep127, 88.72283, 88.72284, -87.3365,
    -87.33654, -88.02, -103.97, -104, 127.99999, 128, -126, -126.00001, -127,
    -127.5, -149, -150, 0x1p-1022, 0x1p-1074, 709.78, 709.79, -708.39, -708.4,
    -709.08, -709.09, -745, 1023.9999, 1024, -1022, -1022.1, -1023, -1074, 20,
    -20, 19.99, 9.02, 3.925, 5.99, 6, 1e5, 4.2e6, -4.3e6, 8191, 8193, 1e10,
    1e22, -1e30, 1e38, 1048576.5, 1e15, 1.2e15, 1e300, -1e308, 0.5, 2, 4,
    16777215, 0.70710678, 0.99999994, 1.0000001};
enum { NSPECIAL = sizeof special / sizeof *special };

// ---------------------------------------------------------------- programs
static void program(Buf *b, const char *fn, const char *t, int lanes,
                    bool two) {
  buf_printf(b, "func program @%s_%s_%d(%%X: tensor<%s[N]> in, ", fn, t, lanes,
             t);
  if (two) buf_printf(b, "%%Z: tensor<%s[N]> in, ", t);
  buf_printf(b, "%%Y: tensor<%s[N]> out) axes(i par N) grid(i:%d) {\n", t,
             CHUNK);
  buf_printf(b, "  %%i = origin() {axis = i} : i64\n"
                "  %%x = tptr(%%X) : ptr<%s>\n  %%y = tptr(%%Y) : ptr<%s>\n",
             t, t);
  if (two) buf_printf(b, "  %%z = tptr(%%Z) : ptr<%s>\n", t);
  buf_printf(b, "  %%c = const() {ivalue = %d} : i64\n"
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
  buf_printf(b, "    %%r = %s(%%a%s) : %s\n    %sst(%%y, %%j, %%r)\n"
                "    yield()\n  })\n}\n",
             fn, two ? ", %b" : "", type, v);
}

static Module *module(Ctx *cx, const char *target) {
  Buf b = {.arena = &cx->session};
  buf_printf(&b, "module mach %s\ndim N dyn\n", target);
  static const char *const types[] = {"f32", "f64"};
  static const int lanes[2][3] = {{0, 4, 32}, {0, 2, 8}};
  for (int t = 0; t < 2; t++)
    for (int l = 0; l < 3; l++) {
      for (int i = 0; i < NFN; i++)
        program(&b, fns[i].name, types[t], lanes[t][l], false);
      program(&b, "pow", types[t], lanes[t][l], true);
    }
  return ir_parse(cx, ctx_add_source(cx, "math.tir", b.at, b.n));
}

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
  long double rounded = c->wide ? (long double)(double)ref
                                : (long double)(float)ref;
  double err;
  if (isnan(rounded) || isnan(got))
    err = isnan(rounded) && isnan(got) ? 0 : INFINITY;
  else if (isinf(got) && isinf(rounded)) err = got == rounded ? 0 : INFINITY;
  else if (fabsl((long double)got - ref) <= c->flush) err = 0;
  else err = (double)(fabsl((long double)got - ref) / ulp_of(ref, c->wide));
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

static void launch(const attn_program *p, void *x, void *z, void *y, int64_t n,
                   int dtype) {
  attn_tensor t[3];
  attn_tensor *at[3];
  void *data[3] = {x, z ? z : y, y};
  int m = z ? 3 : 2;
  for (int i = 0; i < m; i++) {
    t[i] = (attn_tensor){data[i], {n}, {1}, 1, dtype};
    at[i] = &t[i];
  }
  attn_scalar none = {.i64 = 0};
  attn_error e;
  EXPECT(attn_launch(p, at, &none, NULL, &e) == 0);
  if (e.code) printf("%s\n", e.text);
}

typedef struct Data {
  int64_t n;
  float *x32, *y32, *out32;
  double *x64, *y64, *out64;
} Data;

static int64_t round_up(int64_t n) { return (n + CHUNK - 1) / CHUNK * CHUNK; }

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

static void sweep(CgJit *j, const Data *d, const char *target, int fn,
                  bool wide, int lanes) {
  char name[32];
  bool two = fn == NFN, slow = !strcmp(target, "cpu:x86-64");
  const char *f = two ? "pow" : fns[fn].name;
  snprintf(name, sizeof name, "%s_%s_%d", f, wide ? "f64" : "f32", lanes);
  const attn_program *p = cg_jit_program(j, "m", name);
  EXPECT(p != NULL);
  if (!p) return;
  if (wide) launch(p, d->x64, two ? d->y64 : NULL, d->out64, d->n, ATTN_F64);
  else launch(p, d->x32, two ? d->y32 : NULL, d->out32, d->n, ATTN_F32);
  double b = two ? (wide ? 2 : 0.6) : wide ? fns[fn].ulp64 : fns[fn].ulp32;
  double flush = two ? (wide ? 0x1p-1022 : 0)
                     : fns[fn].flush32 * (wide ? 0x1p-1022 : 0x1p-126);
  // Without FMA pi is known to 49 bits only.
  if (slow && !wide && strstr("sin cos", f)) flush = 0x1p-36;
  Check c = {.name = name, .target = target, .wide = wide, .flush = flush,
             .bound = b + (slow ? 0.8 : 0)};
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

static void level(Ctx *cx, const char *target, const Data *d) {
  Module *m = module(cx, target);
  EXPECT(m != NULL);
  if (!m) return;
  CgProgram *p = NEWN(&cx->session, CgProgram, m->funcs.n);
  for (uint32_t i = 0; i < m->funcs.n; i++)
    p[i] = cg_program_of(cx, m, m->funcs.at[i], "m");
  Buf obj = {.arena = &cx->session};
  bool ok = cg_compile(cx, p, m->funcs.n, CG_OBJECT, &obj);
  EXPECT(ok);
  CgJit *j = ok ? cg_jit_load(cx, obj.at, obj.n) : NULL;
  EXPECT(j != NULL);
  for (int wide = 0; j && wide < 2; wide++)
    for (int i = 0; i <= NFN; i++) {
      sweep(j, d, target, i, wide, wide ? 8 : 32);
      if (d->n > 1000000) continue;
      sweep(j, d, target, i, wide, 0);
      sweep(j, d, target, i, wide, wide ? 2 : 4);
    }
  cg_jit_drop(j);
}

int main(int argc, char **argv) {
  Ctx cx;
  ctx_init(&cx);
  uint32_t stride = argc > 1 ? (uint32_t)atoi(argv[1]) : 140017;
  Data d = inputs(stride);
  const char *targets[8];
  uint32_t n = cg_host_targets(targets, 8);
  for (uint32_t i = 0; i < n; i++)
    if (argc < 3 || strstr(targets[i], argv[2])) level(&cx, targets[i], &d);
  if (cx.nerrors) {
    Buf err = {.arena = &cx.session};
    diag_render(&cx, (DiagStyle){.ascii = true}, &err);
    printf("%s", err.at);
  }
  free(d.x32), free(d.y32), free(d.out32);
  free(d.x64), free(d.y64), free(d.out64);
  ctx_drop(&cx);
  return verdict();
}
