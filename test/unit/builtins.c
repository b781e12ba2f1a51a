// Every builtin function and every elementwise op, from the tables: a place
// that a new one was forgotten in fails here.
//   (no argument)      the facts of ops.def against the values they describe
//   --programs TYPE    a program for each builtin of one argument, on stdout
//   --named FILE..     does each file have the name of every builtin function?
#include "frontend/builtins.h"
#include "frontend/oracle.h"
#include "ir/eval.h"
#include "ir/facts.h"
#include "ir/formula.h"
#include "test/unit/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double sizes[] = {0,    1e-300, 1e-20, 1e-8,    1e-4,  0.01, 0.1,
                               0.24, 0.25,   0.26,  0.3,     0.41,  0.42, 0.49,
                               0.5,  0.7,    0.99,  1,       1.01,  1.5,  2,
                               2.4,  2.42,   3,     5,       10,    20,   50,
                               80,   87,     88.5,  89,      89.4,  89.5, 100,
                               500,  700,    709,   710,     710.4, 711,  1000,
                               1e10, 1e30,   1e300, INFINITY};
enum { SIZES = sizeof sizes / sizeof *sizes, SAMPLES = 2 * SIZES - 1 };

// Ascending, from -inf to inf.
static double sample(int i) {
  return i < SIZES - 1 ? -sizes[SIZES - 1 - i] : sizes[i - SIZES + 1];
}

static double value(OpCode c, double a) {
  return eval_op(c, &a);
}

static bool inside(const OpFacts *f, double x) {
  return f->domain.lo >= f->domain.hi ||
         (x >= f->domain.lo && x <= f->domain.hi);
}

static void complain(OpCode c, const char *what, double x) {
  printf("%s at %.17g: %s\n", op_info(c)->name, x, what);
  failures++;
}

// ---------------------------------------------------------------- formulas
// Numbers, or numbers that are rounded to f32 behind each op.
typedef struct Numbers {
  bool f32;
  uint32_t n;
  double at[256];
} Numbers;

static uint32_t put(void *data, double v) {
  Numbers *x = data;
  x->at[x->n] = x->f32 ? (double)(float)v : v;
  return x->n++;
}

static uint32_t apply(void *data, OpCode c, const uint32_t *args, uint32_t n) {
  Numbers *x = data;
  double a[3] = {0};
  for (uint32_t i = 0; i < n; i++) a[i] = x->at[args[i]];
  return put(x, eval_op(c, a));
}

static uint32_t numbers_of(const char *formula, bool f32, const double a[3],
                           double y, double *r) {
  Numbers x = {.f32 = f32};
  FormulaTo to = {&x, put, apply};
  uint32_t operands[3], results[FORMULA_RESULTS];
  for (int i = 0; i < 3; i++) operands[i] = put(&x, a[i]);
  uint32_t n = formula_read(formula, &to, operands, put(&x, y), results);
  for (uint32_t i = 0; i < n; i++) r[i] = x.at[results[i]];
  return n;
}

static bool near(double x, double want, double tol) {
  if (isnan(want) || isinf(want)) return isnan(want) ? isnan(x) : x == want;
  return fabs(x - want) <= tol;
}

// A formula is as good as the functions it is made of: a few units in the last
// place, relative to the larger of result and operand where these are close.
static void check_expand(OpCode c, const char *formula) {
  for (int i = 0; i < SAMPLES; i++)
    for (int f32 = 0; f32 < 2; f32++) {
      double x = sample(i), a[3] = {f32 ? (double)(float)x : x};
      double want = value(c, a[0]), got[FORMULA_RESULTS], least = 0;
      if (f32) want = (double)(float)want;
      if (c == OP_GELU && isfinite(a[0])) least = fabs(a[0]);
      double unit = f32 ? 0x1p-23 : 0x1p-52, tiny = f32 ? 0x1p-126 : 0x1p-1022;
      double tol = 6 * unit * fmax(fabs(want), fmax(least, tiny));
      EXPECT(numbers_of(formula, f32, a, 0, got) == 1);
      if (!near(got[0], want, tol)) {
        printf("%s: %.17g, not %.17g\n", f32 ? "f32" : "f64", got[0], want);
        complain(c, "its formula", a[0]);
      }
    }
}

static bool differentiable(OpCode c) {
  return op_facts(c)->grad && c != OP_FLOOR && c != OP_STOP_GRAD &&
         c != OP_CAST && c != OP_SELECT;
}

// Central differences, where no operand is at a step of its derivative.
static void check_grad(OpCode c) {
  static const double points[][3] = {{0.3, 0.7, 0.2},
                                     {1.4, 0.6, -0.5},
                                     {2.2, 3.1, 1.5},
                                     {0.8, 2.5, 0.1}};
  uint32_t n = op_info(c)->min_args;
  for (int p = 0; p < 4; p++)
    for (uint32_t i = 0; i < n; i++) {
      double a[3], up[3], down[3], g[FORMULA_RESULTS], h = 1e-5;
      memcpy(a, points[p], sizeof a);
      if (n == 1 && p == 3 && inside(op_facts(c), -a[0])) a[0] = -a[0];
      memcpy(up, a, sizeof a);
      memcpy(down, a, sizeof a);
      up[i] += h;
      down[i] -= h;
      double want = (eval_op(c, up) - eval_op(c, down)) / (2 * h);
      uint32_t count =
          numbers_of(op_facts(c)->grad, false, a, eval_op(c, a), g);
      EXPECT(count == n);
      if (count == n && !near(g[i], want, 1e-6 * fmax(1, fabs(want))))
        complain(c, "its derivative", a[i]);
    }
}

// ---------------------------------------------------------------- facts
static void check_sign(OpCode c, OpSign s, double x, double y) {
  bool pos = s == SG_POSITIVE || (s >= SG_KEEPS && x > 0);
  bool nonneg = s >= SG_NONNEG || (s >= SG_WEAKLY && x >= 0);
  if (fabs(x) > 1e-200 && fabs(x) < 30 && pos && !(y > 0))
    complain(c, "its sign is not positive", x);
  if (nonneg && !(y >= 0)) complain(c, "its sign", x);
}

static void check_shape(OpCode c, const OpFacts *f, double x, double next) {
  double y = value(c, x), z = value(c, next);
  bool up = f->shape == FS_RISES || (f->shape == FS_BOWL && x >= 0);
  bool down = f->shape == FS_FALLS || (f->shape == FS_BOWL && next <= 0);
  if ((up && z < y) || (down && z > y)) complain(c, "its shape", x);
}

static void check_function(OpCode c) {
  const OpFacts *f = op_facts(c);
  for (int i = 0; i < SAMPLES; i++) {
    double x = sample(i), y = value(c, x);
    if (!inside(f, x) || isnan(y)) continue;
    if (f->range.lo < f->range.hi && (y < f->range.lo || y > f->range.hi))
      complain(c, "its range", x);
    check_sign(c, f->sign, x, y);
    if (f->parity != FP_NONE && isfinite(x) &&
        value(c, -x) != (f->parity == FP_ODD ? -y : y))
      complain(c, "its parity", x);
    if (i + 1 < SAMPLES && inside(f, sample(i + 1)))
      check_shape(c, f, x, sample(i + 1));
  }
}

static void check_op(OpCode c) {
  const OpInfo *info = op_info(c);
  const OpFacts *f = op_facts(c);
  bool elem = info->flags & OPF_ELEM && info->min_args;
  if (!elem) return;
  if (!f->class || !f->cost) complain(c, "class or cost is missing", 0);
  if (op_is_function(c) && (!f->slots || !f->grad))
    complain(c, "slots or derivative are missing", 0);
  if (info->min_args == 1 && c != OP_REF) check_function(c);
  if (differentiable(c)) check_grad(c);
  if (f->expand) check_expand(c, f->expand);
  bool everywhere = info->levels == op_info(OP_ADD)->levels;
  if (op_is_function(c) && everywhere == (f->expand != NULL))
    complain(c, "either machines have it or it has a formula", 0);
}

// The oracle and the IR say the same of each builtin.
static void check_builtin(int id) {
  OpCode c = fe_builtin_op(id);
  if (fe_builtins[id].kind != BK_MATH || c == OP_COUNT) return;
  for (int i = 0; i < SAMPLES; i++) {
    double x = sample(i), want = oracle_function(id, x);
    if (!near(value(c, x), want, 1e-12 * fabs(want)))
      complain(c, "oracle and IR differ", x);
  }
}

// ---------------------------------------------------------------- programs
static bool is_function(int id) {
  return fe_builtins[id].kind == BK_MATH || id == BI_abs;
}

// Arguments from lo to hi, of x and y in [0, 1).
static void equation(const char *name, const char *out, double lo, double hi) {
  printf("  %s[q] = %s(%.17g + %.17g * X[q]) + %s(c + %.17g);\n", out, name, lo,
         hi - lo, name, lo);
  printf("  %sk[q] = sum(k: %s(%.17g + %.17g * X[q, 0] * X[k, 1])) + "
         "%s(%.17g);\n",
         out, name, lo, hi - lo, name, lo + 0.7 * (hi - lo));
}

static void program(int id, const char *type) {
  const char *name = fe_builtins[id].name;
  bool f64 = strcmp(type, "f64") == 0;
  OpCode c = fe_builtin_op(id);
  const OpFacts *f = c == OP_COUNT ? NULL : op_facts(c);
  bool positive = f && f->domain.lo < f->domain.hi;
  double least = positive ? f->domain.lo + 0.1 : -4, big = f64 ? 700 : 80;
  const char *out = f64 ? "f64" : "f32";
  printf("attention %s_%s<S, D: const {16}>(X: %s[S, D], c: %s = 0.7)\n"
         "  -> (A: %s[S, D], Ak: %s[S], B: %s[S, D], Bk: %s[S], C: %s[S, D], "
         "Ck: %s[S])\n{\n  index q in S;\n  index k in S;\n",
         name, type, type, out, out, out, out, out, out, out);
  equation(name, "A", least, 4);
  equation(name, "B", positive ? least : -0x1p-10, positive ? 0.5 : 0x1p-10);
  equation(name, "C", big, 1.1 * big);
  printf("}\n");
  printf("check \"%s\" {\n  dims S = 20, D = 16;\n  input X = uniform(0, 1);\n"
         "  expect %s_%s(X) ~= reference tol %s;\n}\n",
         name, name, type, f64 ? "1e-13" : "2e-5");
}

// ---------------------------------------------------------------- names
static bool has_word(const char *text, const char *name) {
  size_t n = strlen(name);
  for (const char *p = text; (p = strstr(p, name)); p += n) {
    bool front =
        p == text || !(strchr("_.", p[-1]) || (p[-1] >= 'a' && p[-1] <= 'z'));
    char behind = p[n];
    bool end = !(behind == '_' || (behind >= 'a' && behind <= 'z') ||
                 (behind >= '0' && behind <= '9'));
    if (front && end) return true;
  }
  return false;
}

static void check_named(const char *path) {
  static char text[1 << 20];
  FILE *f = fopen(path, "rb");
  EXPECT(f != NULL);
  if (!f) return;
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  for (int id = 0; id < BI_COUNT; id++)
    if (is_function(id) && !has_word(text, fe_builtins[id].name)) {
      printf("%s does not name %s\n", path, fe_builtins[id].name);
      failures++;
    }
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--programs") == 0) {
    for (int id = 0; id < BI_COUNT; id++)
      if (is_function(id)) program(id, argv[2]);
    return 0;
  }
  if (argc > 2 && strcmp(argv[1], "--named") == 0) {
    for (int i = 2; i < argc; i++) check_named(argv[i]);
    return verdict();
  }
  for (int c = 0; c < OP_COUNT; c++) check_op((OpCode)c);
  for (int id = 0; id < BI_COUNT; id++) check_builtin(id);
  return verdict();
}
