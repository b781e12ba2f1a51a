// The generators of random numbers.
#include "expect.h"

#include "frontend/builtins.h"
#include "tools/driver/run/gen.h"
#include "tools/driver/run/rng.h"

#include <math.h>
#include <string.h>

static void streams(void) {
  Rng a, b, c;
  rng_init(&a, 1, "Q");
  rng_init(&b, 1, "K");
  rng_init(&c, 2, "Q");
  EXPECT(rng_bits(&a, 0) != rng_bits(&b, 0));
  EXPECT(rng_bits(&a, 0) != rng_bits(&c, 0));
  uint64_t x = rng_bits(&a, 5), y = rng_bits(&a, 4), z = rng_bits(&a, 100);
  EXPECT(x != y && z == rng_bits(&a, 100) && x == rng_bits(&a, 5));
  // These bits are promised: the same on every host and in every version.
  EXPECT(x == 0x36a71b74fc3490ceu);
  EXPECT(rng_normal(&a, 0) == 0x1.034d4a8af18b2p-2);
  // Tails, against another implementation of AS 241.
  EXPECT(fabs(rng_normal(&a, 13) - 0x1.88a602a1e9d5cp+0) < 1e-14);
  EXPECT(fabs(rng_normal(&a, 14845) - 0x1.2af6368a78a61p+2) < 1e-14);
}

// What is made many at a time is what is made one by one, tails too.
static void many(void) {
  double u[MAX_DRAWN], v[MAX_DRAWN];
  uint32_t wrong = 0, tails = 0;
  Rng r;
  rng_init(&r, 3, "many");
  for (uint64_t from = 0; from < (uint64_t)400 * MAX_DRAWN; from += MAX_DRAWN) {
    uint64_t at = from < 1000 ? from + 6 : from + ((uint64_t)1 << 40);
    rng_uniforms(&r, at, u);
    rng_normals(&r, at, v);
    for (uint64_t i = 0; i < MAX_DRAWN; i++) {
      wrong += u[i] != rng_uniform(&r, at + i);
      wrong += v[i] != rng_normal(&r, at + i);
      tails += fabs(v[i]) > 1.5;
    }
  }
  EXPECT(wrong == 0 && tails > 10000);
}

static void moments(void) {
  Rng r;
  rng_init(&r, 7, "x");
  double m1 = 0, m2 = 0, m4 = 0, u = 0;
  int n = 100000, tail = 0, hits[3] = {0};
  for (uint64_t i = 0; i < (uint64_t)n; i++) {
    double v = rng_normal(&r, i);
    m1 += v, m2 += v * v, m4 += v * v * v * v;
    tail += fabs(v) > 3;
    u += rng_uniform(&r, i);
    hits[rng_int(&r, i, -1, 2) + 1]++;
  }
  EXPECT(fabs(m1 / n) < 0.01 && fabs(m2 / n - 1) < 0.02);
  EXPECT(fabs(m4 / n - 3) < 0.15 && tail > 200 && tail < 340);
  EXPECT(fabs(u / n - 0.5) < 0.01);
  for (int i = 0; i < 3; i++) EXPECT(fabs(hits[i] / (double)n - 1 / 3.) < 0.01);
  EXPECT(rng_int(&r, 3, INT64_MIN, INT64_MIN + 1) == INT64_MIN);
  EXPECT(rng_int(&r, 3, INT64_MIN, INT64_MAX) < INT64_MAX);
}

// Shares and what is left of them: as of the one-by-one functions.
static void long_arrays(Arena *a) {
  enum { N = (1 << 17) + 3 };
  static float f[N];
  static uint16_t h[N];
  Gen g = {GK_NORMAL, {1, 0.5}, 4};
  Rng r;
  uint32_t wrong = 0;
  gen_fill(a, &g, "x", DT_F32, N, f);
  gen_fill(a, &g, "x", DT_BF16, N, h);
  rng_init(&r, 4, "x");
  for (uint64_t i = 0; i < N; i++) {
    double v = 1 + 0.5 * rng_normal(&r, i);
    wrong += f[i] != (float)v;
    wrong += dtype_load(DT_BF16, h + i) != dtype_round(DT_BF16, v);
  }
  EXPECT(wrong == 0);
}

static void fill(Arena *a, Gen g, DType t, int64_t n, void *out) {
  EXPECT(gen_check(&g, n) == NULL);
  gen_fill(a, &g, "x", t, n, out);
}

static void generators(Arena *a) {
  int64_t v[100], seen[100] = {0};
  float f[100];
  fill(a, (Gen){GK_OFFSETS, {50, NAN}, 3}, DT_I64, 100, v);
  EXPECT(v[0] == 0 && v[99] == 50);
  for (int i = 1; i < 100; i++) EXPECT(v[i - 1] <= v[i]);
  fill(a, (Gen){GK_OFFSETS, {0, NAN}, 3}, DT_I64, 1, v);
  EXPECT(v[0] == 0);
  fill(a, (Gen){GK_OFFSETS, {2, 9}, 3}, DT_I64, 100, v);
  EXPECT(v[0] == 0 && v[1] == 9);
  for (int i = 1; i < 100; i++)
    EXPECT(v[i] - v[i - 1] >= 2 && v[i] - v[i - 1] <= 9);
  fill(a, (Gen){GK_DOCS, {4, 0}, 3}, DT_I64, 100, v);
  EXPECT(v[0] == 0 && v[99] >= 12 && v[99] < 99);
  for (int i = 1; i < 100; i++)
    EXPECT(v[i] == v[i - 1] || v[i] == v[i - 1] + 1);
  fill(a, (Gen){GK_PERM, {0, 0}, 3}, DT_I64, 100, v);
  for (int i = 0; i < 100; i++) seen[v[i]]++;
  for (int i = 0; i < 100; i++) EXPECT(seen[i] == 1);
  fill(a, (Gen){GK_LENGTHS, {0, 9}, 3}, DT_I64, 100, v);
  EXPECT(v[0] == 9);
  for (int i = 0; i < 100; i++) EXPECT(v[i] >= 0 && v[i] <= 9);
  fill(a, (Gen){GK_IOTA, {2, 0.5}, 3}, DT_F32, 100, f);
  EXPECT(f[0] == 2 && f[3] == 3.5f);
  fill(a, (Gen){GK_CONST, {INFINITY, 0}, 3}, DT_F32, 100, f);
  EXPECT(isinf(f[99]));
  fill(a, (Gen){GK_UNIFORM, {-1, 1}, 3}, DT_F32, 100, f);
  for (int i = 0; i < 100; i++) EXPECT(f[i] >= -1 && f[i] <= 1);
  fill(a, (Gen){GK_NORMAL, {0, 1}, 3}, DT_F32, 0, NULL);
  int whole = 0;
  fill(a, (Gen){GK_BROKEN, {5, 0}, 3}, DT_F32, 100, f);
  for (int i = 0; i < 100; i++) whole += isfinite(f[i]) != 0;
  EXPECT(whole >= 60 && whole < 95);
}

static void wrong(void) {
  static const Gen bad[] = {
      {GK_RANDINT, {3, 3}, 0},    {GK_RANDINT, {0, 1.5}, 0},
      {GK_RANDINT, {NAN, 1}, 0},  {GK_RANDINT, {0, INFINITY}, 0},
      {GK_LENGTHS, {-1, 4}, 0},   {GK_LENGTHS, {5, 4}, 0},
      {GK_OFFSETS, {-1, NAN}, 0}, {GK_OFFSETS, {4, NAN}, 0},
      {GK_OFFSETS, {4, 3}, 0},    {GK_DOCS, {0, 0}, 0},
      {GK_BROKEN, {0.5, 0}, 0}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    EXPECT(gen_check(&bad[i], 1) != NULL);
  for (int k = 0; k < GK_COUNT; k++) {
    GenKind got;
    const char *name = gen_name((GenKind)k);
    EXPECT(gen_by_name(name, (uint32_t)strlen(name), &got));
    EXPECT(got == (GenKind)k);
    EXPECT(gen_min_args(got) <= gen_max_args(got) && gen_max_args(got) <= 2);
  }
}

// `check` knows what --in knows, and nothing else.
static void in_checks(void) {
  int n = 0;
  for (int i = 0; i < BI_COUNT; i++) {
    const Builtin *b = &fe_builtins[i];
    GenKind got;
    if (b->kind != BK_GEN) continue;
    bool known = gen_by_name(b->name, (uint32_t)strlen(b->name), &got);
    EXPECT(known && b->max == gen_max_args(got));
    n++;
  }
  EXPECT(n == GK_COUNT);
}

int main(void) {
  Arena a = {0};
  streams();
  many();
  moments();
  long_arrays(&a);
  generators(&a);
  wrong();
  in_checks();
  arena_drop(&a);
  return verdict();
}
