// Symbolic dims: simplification, facts, text.
#include "ir/ctx.h"
#include "ir/dim.h"
#include <stdio.h>

static int failures;

#define EXPECT(c) \
  ((c) ? (void)0  \
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
  ctx_drop(&cx);
  return failures != 0;
}
