// Symbolic expressions: canonical forms and separation, by their text.
#include "ir/core/ctx.h"
#include "passes/support/sym.h"

#include <stdio.h>
#include <string.h>

static int failures;

static void is(Sym *s, Ex e, const char *want) {
  Buf b = {.arena = s->arena};
  sym_print(s, NULL, e, &b);
  if (strcmp(b.at, want) == 0) return;
  printf("have %s\nwant %s\n", b.at, want);
  failures++;
}

static void is_sep(Sym *s, Ex f, const char *want) {
  Buf b = {.arena = s->arena};
  Sep r = sep_of(s, f);
  if (!r.ok) buf_str(&b, "no");
  for (uint32_t i = 0; i < r.n; i++) {
    if (i) buf_str(&b, " + ");
    sym_print(s, NULL, r.at[i].g, &b);
    buf_str(&b, " | ");
    sym_print(s, NULL, r.at[i].h, &b);
  }
  if (strcmp(b.at ? b.at : "", want) == 0) return;
  printf("have %s\nwant %s\n", b.at ? b.at : "", want);
  failures++;
}

static void test_forms(Sym *s, Ex x, Ex y) {
  Ex two = sym_const(s, 2);
  is(s, sym_add2(s, x, x), "2*%1");
  is(s, sym_sub(s, x, x), "0");
  is(s, sym_sub(s, x, y), "(%1 - %2)");
  is(s, sym_mul2(s, x, x), "%1^2");
  is(s, sym_mul2(s, sym_pow(s, x, -1), x), "1");
  is(s, sym_mul2(s, two, sym_add2(s, x, y)), "(2*%1 + 2*%2)");
  is(s, sym_mul2(s, sym_exp(s, x), sym_exp(s, sym_neg(s, y))),
     "exp((%1 - %2))");
  is(s, sym_pow(s, sym_exp(s, x), 2), "exp(2*%1)");
  is(s, sym_log(s, sym_exp(s, x)), "%1");
  Ex a = sym_op(s, OP_ABS, &y, 1);
  is(s, sym_exp(s, sym_sub(s, x, sym_log(s, a))), "exp(%1)*abs(%2)^-1");
  is(s, sym_pow(s, sym_pow(s, x, 2), 0.5), "%1^2^0.5");
  is(s, sym_op(s, OP_POW, (Ex[]){sym_const(s, 1), x}, 2), "1");
}

static void test_sep(Sym *s, Ex x, Ex m, Ex l) {
  Ex e = sym_exp(s, sym_sub(s, x, m)), q = sym_exp(s, sym_neg(s, m));
  is_sep(s, e, "exp(%1) | exp(-%5)");
  is_sep(s, sym_mul2(s, e, sym_pow(s, l, -1)), "exp(%1) | exp(-%5)*%6^-1");
  Ex d = sym_sub(s, e, q);
  is_sep(s, d, "(exp(%1) - 1) | exp(-%5)");
  is_sep(s, sym_op(s, OP_RELU, &d, 1), "relu((exp(%1) - 1)) | exp(-%5)");
  is_sep(s, sym_cast(s, DT_BF16, e), "bf16(exp(%1)) | exp(-%5)");
  Ex dev = sym_sub(s, x, m);
  is_sep(s, sym_mul2(s, dev, dev), "%1^2 | 1 + -2*%1 | %5 + 1 | %5^2");
  is_sep(s, sym_op(s, OP_TANH, &dev, 1), "no");
  is_sep(s, sym_op(s, OP_RELU, &dev, 1), "no");
  is_sep(s, sym_exp(s, sym_mul2(s, x, m)), "no");
  is_sep(s, sym_log(s, sym_mul2(s, x, l)), "log(%1) | 1 + 1 | log(%6)");
  is_sep(s, sym_const(s, 0), "");
}

static void test_factors(Sym *s, Ex x, Ex m, Ex l) {
  Ex h = sym_mul2(s, sym_exp(s, sym_neg(s, m)), sym_pow(s, l, -1)), r, d;
  sep_split(s, h, &r, &d);
  is(s, r, "exp(-%5)");
  is(s, d, "%6^-1");
  Ex g = sym_sub(s, sym_exp(s, x), sym_const(s, 1));
  is(s, sep_fuse(s, sym_op(s, OP_ABS, &g, 1), r),
     "abs((exp((%1 - %5)) - exp(-%5)))");
  is(s, sym_old(s, r), "exp(-%5.old)");
}

int main(void) {
  Ctx cx;
  ctx_init(&cx);
  Sym s;
  sym_init(&s, &cx.session);
  Ex x = sym_leaf(&s, LEAF_KEY, 1, false), y = sym_leaf(&s, LEAF_KEY, 2, false);
  Ex m = sym_leaf(&s, LEAF_LIVE, 5, false),
     l = sym_leaf(&s, LEAF_LIVE, 6, true);
  test_forms(&s, x, y);
  test_sep(&s, x, m, l);
  test_factors(&s, x, m, l);
  ctx_drop(&cx);
  return failures != 0;
}
