// Symbolic dims: simplification, facts, text.
#include "ir/core/ctx.h"
#include "ir/core/dim.h"
#include <stdio.h>

static int failures;

#define EXPECT(c) \
  ((c) ? (void)0 \
       : (void)(failures++, printf("%s:%d: %s\n", __FILE__, __LINE__, #c)))

static Dim parse(DimTab *t, const char *s) {
  const char *p = s;
  Dim d = dim_parse(t, &p, true);
  return *p ? DIM_NONE : d;
}

// Reads s; expects it to print as `want`, and that to read back as the same.
static void reads(DimTab *t, const char *s, const char *want) {
  Buf b = {.arena = t->arena};
  Dim d = parse(t, s);
  if (d) dim_print(t, d, &b);
  else buf_str(&b, "error");
  if (strcmp(b.at, want) != 0 || (d && parse(t, b.at) != d)) {
    failures++;
    printf("%s: printed '%s', expected '%s'\n", s, b.at, want);
  }
}

static void algebra(DimTab *t) {
  reads(t, "Sk - Sq + 1", "Sk - Sq + 1");
  reads(t, "1 - Sq + Sk", "Sk - Sq + 1");
  reads(t, "Sq - Sq", "0");
  reads(t, "-Sq", "-Sq");
  reads(t, "5 - Sq", "-Sq + 5");
  reads(t, "(Sq + 1) * (Sk - 1)", "Sk + Sk * Sq - Sq - 1");
  reads(t, "Sq * 4 // 4", "Sq");
  reads(t, "Sq * Sk // Sq", "Sk");
  reads(t, "Sq * Sk % Sk", "0");
  reads(t, "(4 * Sq + 7) // 4", "Sq + 1");
  reads(t, "(4 * Sq + 6) // 8", "(Sq + 1) // 2");
  reads(t, "Sq // 4 // 8", "Sq // 32");
  reads(t, "Sq % 8 % 4", "Sq % 4");
  reads(t, "Sk + Sq - (Sk + Sq) // 2", "Sk + Sq - (Sk + Sq) // 2");
  reads(t, "-(Sq // 2) * Sk", "-Sk * (Sq // 2)");
  reads(t, "2 * (Sq // 2) * Sk", "2 * Sk * (Sq // 2)");
  reads(t, "(Sq // 2) % 3 // 2", "Sq // 2 % 3 // 2");
  reads(t, "Sq // (Sk + 1)", "Sq // (Sk + 1)");
  reads(t, "min(Sq, Sk, Sq)", "min(Sk, Sq)");
  reads(t, "min(Sq, Sq + 1)", "Sq");
  reads(t, "max(Sq, -3, 2)", "max(Sq, 2)");
  reads(t, "min(Sq, 0)", "0");
}

static void hostile(DimTab *t) {
  reads(t, "", "error");
  reads(t, "Sq +", "error");
  reads(t, "(Sq", "error");
  reads(t, "4611686018427387905", "error");
  reads(t, "4611686018427387904 * 4", "4 * 4611686018427387904");
  reads(t, "min(Sq", "error");
  reads(t, "Sq // 0", "Sq // 0");
  Buf b = {.arena = t->arena};
  for (int i = 0; i < 5000; i++) buf_char(&b, '(');
  reads(t, b.at, "error");
  b.n = 0;
  for (int i = 0; i < 5000; i++) buf_str(&b, "Sq*Sq+");
  reads(t, b.at, "error");
}

static void facts(DimTab *t) {
  uint32_t d = dim_add_sym(t, "D", DIM_SPEC);
  t->syms.at[d].divisor = 16;
  t->syms.at[d].lo = 16;
  t->syms.at[d].hi = 256;
  reads(t, "(D + 3) % 8", "3");
  reads(t, "D // 512", "0");
  reads(t, "2 * (D // 2)", "D");
  reads(t, "D // 4 + Sq + 3 * (D // 4)", "Sq + D");
  reads(t, "D - D // 2", "D // 2");
  reads(t, "D - D // 4 + Sq", "Sq + 3 * (D // 4)");
  reads(t, "D // 2 + D", "3 * (D // 2)");
  reads(t, "D - D // 32", "D - D // 32");
  reads(t, "2 * ((D + 2 * Sq) // 2) - D", "2 * Sq");
  reads(t, "32 * (D // 32)", "32 * (D // 32)");
  int64_t lo, hi, v;
  Dim e = parse(t, "2 * D - 1");
  dim_bounds(t, e, &lo, &hi);
  EXPECT(lo == 31 && hi == 511);
  EXPECT(dim_divisor(t, parse(t, "3 * D + 8")) == 8);
  int64_t sym[8] = {0};
  sym[d] = 64;
  EXPECT(dim_eval(t, e, sym, &v) && v == 127);
  EXPECT(!dim_eval(t, parse(t, "D // Sq"), sym, &v));
  EXPECT(dim_uses(t, e, d) && !dim_uses(t, e, d - 1));
  Dim map[8] = {0};
  map[d] = dim_const(t, 32);
  EXPECT(dim_subst(t, t, e, map) == dim_const(t, 63));
  EXPECT(dim_ceildiv(t, parse(t, "16 * Sq"), 16) == parse(t, "Sq"));
}

// ---- random expressions: same value as the plain tree, same text anywhere
static uint32_t rnd(uint64_t *s, uint32_t n) {
  *s = *s * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*s >> 33) % n;
}

typedef struct Made {
  Dim d;
  bool ok;  // has a value
  int64_t v;
} Made;

static int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static Made leaf(DimTab *t, uint64_t *s, const int64_t *sym) {
  static const int64_t odd[] = {
      0, 1, -1, 7, 64, (int64_t)1 << 40, (int64_t)1 << 61};
  uint32_t i = rnd(s, 4);
  if (i < 3) return (Made){dim_sym(t, i), true, sym[i]};
  int64_t v = rnd(s, 2) ? odd[rnd(s, 7)] : (int64_t)rnd(s, 20) - 4;
  return (Made){dim_const(t, v), true, v};
}

static Made make(DimTab *t, uint64_t *s, const int64_t *sym, int depth) {
  if (depth == 0 || rnd(s, 8) == 0) return leaf(t, s, sym);
  Made a = make(t, s, sym, depth - 1), b = make(t, s, sym, depth - 1), r;
  DimOp op = (DimOp)(DIM_ADD + rnd(s, 6));
  r = (Made){dim_bin(t, op, a.d, b.d), a.ok && b.ok, 0};
  if (op == DIM_ADD) r.ok &= !__builtin_add_overflow(a.v, b.v, &r.v);
  if (op == DIM_MUL) r.ok &= !__builtin_mul_overflow(a.v, b.v, &r.v);
  if (op == DIM_MIN) r.v = a.v < b.v ? a.v : b.v;
  if (op == DIM_MAX) r.v = a.v > b.v ? a.v : b.v;
  if (op != DIM_FLOORDIV && op != DIM_MOD) return r;
  r.ok = r.ok && b.v > 0;
  r.ok = r.ok && b.v < (int64_t)1 << 61;
  if (!r.ok) return r;
  r.v = floor_div(a.v, b.v);
  if (op == DIM_MOD) r.v = (a.v % b.v + b.v) % b.v;
  return r;
}

static void symbols(DimTab *t, Arena *a) {
  dim_init(t, a);
  for (uint32_t i = 0; i < 3; i++) {
    dim_add_sym(t, (const char *[]){"x", "y", "z"}[i], DIM_DYN);
    t->syms.at[i].lo = i;
    t->syms.at[i].divisor = i + 1;
    t->syms.at[i].hi = 1000;
  }
}

static void random_one(Ctx *cx, uint64_t seed) {
  DimTab t, u;
  symbols(&t, &cx->scratch);
  symbols(&u, &cx->scratch);
  int64_t sym[3], v, lo, hi;
  for (uint32_t i = 0; i < 3; i++)
    sym[i] = (int64_t)((i > 0) + rnd(&seed, 40)) * (i + 1);
  Made m = make(&t, &seed, sym, 5);
  Buf b = {.arena = &cx->scratch}, c = b;
  dim_print(&t, m.d, &b);
  const char *p = b.at;
  Dim d = dim_parse(&u, &p, false);
  if (d) dim_print(&u, d, &c);
  bool ok = d && strcmp(b.at, c.at) == 0 && parse(&t, b.at) == m.d;
  // Where the plain tree has no value (overflow, division by 0) the simplified
  // one may have one.
  if (m.ok && dim_eval(&t, m.d, sym, &v)) {
    dim_bounds(&t, m.d, &lo, &hi);
    ok = ok && v == m.v && lo <= v && v <= hi && v % dim_divisor(&t, m.d) == 0;
  }
  if (ok) return;
  failures++;
  printf("seed %llu: %s / %s\n", (unsigned long long)seed, b.at, c.at);
}

static void random_many(Ctx *cx) {
  for (uint64_t seed = 0; seed < 20000; seed++) {
    ArenaMark mark = arena_mark(&cx->scratch);
    random_one(cx, seed);
    arena_reset(&cx->scratch, mark);
  }
}

int main(void) {
  Ctx cx;
  ctx_init(&cx);
  DimTab t;
  dim_init(&t, &cx.session);
  dim_add_sym(&t, "Sk", DIM_DYN);
  dim_add_sym(&t, "Sq", DIM_DYN);
  algebra(&t);
  hostile(&t);
  facts(&t);
  random_many(&cx);
  ctx_drop(&cx);
  return failures != 0;
}
