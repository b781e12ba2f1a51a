// The interface of codegen: variants and conditions, checks, defaults, two
// programs in one object, wrong input, and everything twice in one process.
#include "codegen/codegen.h"
#include "test/unit/expect.h"

#include <string.h>

// Writes `value` and the dims N, D; the symbols in the order given.
static const char text[] =
    "module mach %s\n%sfunc program @%s(%%X: tensor<f32[N, D]> in, "
    "%%s: f32 scalar, %%k: i64 scalar, %%Y: tensor<i64[4]> out) {\n"
    "  %%y = tptr(%%Y) : ptr<i64>\n"
    "  %%0 = const() {ivalue = 0} : i64\n  %%1 = const() {ivalue = 1} : i64\n"
    "  %%2 = const() {ivalue = 2} : i64\n  %%3 = const() {ivalue = 3} : i64\n"
    "  %%v = const() {ivalue = %d} : i64\n  %%n = dim() {dim = N} : i64\n"
    "  %%d = dim() {dim = D} : i64\n  %%f = cast(%%s) {to = i64} : i64\n"
    "  %%a = add(%%f, %%k) : i64\n"
    "  st(%%y, %%0, %%v)\n  st(%%y, %%1, %%n)\n  st(%%y, %%2, %%d)\n"
    "  st(%%y, %%3, %%a)\n}\n";

static const char nd[] = "dim N dyn\ndim D spec {64, 128}\n";
static const char dn[] = "dim D spec {64, 128}\ndim N dyn\n";

static Module *module(Ctx *cx, const char *dims, const char *name, int value) {
  const char *targets[8];
  uint32_t n = cg_host_targets(targets, 8);
  Buf b = {.arena = &cx->session};
  buf_printf(&b, text, targets[n - 1], dims, name, value);
  Module *m = ir_parse(cx, ctx_add_source(cx, "api.tir", b.at, b.n));
  EXPECT(m && ir_verify(cx, m));
  return m;
}

static CgExpr leaf(attn_xop op, const int64_t *word) {
  static int64_t words[8][2];
  static int n;
  int64_t *at = words[n++ % 8];
  at[0] = (int64_t)op;
  at[1] = *word;
  return (CgExpr){at, 2};
}

static CgExpr equals(Ctx *cx, int64_t dim, int64_t value) {
  return cg_expr_bin(cx, leaf(ATTN_X_DIM, &dim), ATTN_X_EQ,
                     leaf(ATTN_X_CONST, &value));
}

typedef struct Case {
  CgProgram prog;
  CgVariant variants[2];
  CgParam params[4];
  CgExpr checks[1];
} Case;

// Two variants, for D = 64 and D = 128, whose modules order dims differently;
// N must be even; s is 2.5 by default, k is 40.
static CgProgram *program(Ctx *cx, Case *c, const char *name) {
  Module *a = module(cx, nd, name, 64), *b = module(cx, dn, name, 128);
  c->prog = cg_program_of(cx, a, a->funcs.at[0], "api");
  c->variants[0] = (CgVariant){a, equals(cx, 1, 64)};
  c->variants[1] = (CgVariant){b, equals(cx, 1, 128)};
  int64_t n = 0, two = 2;
  CgExpr mod = cg_expr_bin(cx, leaf(ATTN_X_DIM, &n), ATTN_X_MOD,
                           leaf(ATTN_X_CONST, &two));
  c->checks[0] = cg_expr_bin(cx, mod, ATTN_X_NOT, (CgExpr){0});
  memcpy(c->params, c->prog.params, sizeof c->params);
  c->params[1].def = CG_VALUE;
  c->params[1].f = 2.5;
  c->params[2].def = CG_VALUE;
  c->params[2].i = 40;
  c->prog.params = c->params;
  c->prog.variants = c->variants;
  c->prog.nvariants = 2;
  c->prog.checks = c->checks;
  c->prog.nchecks = 1;
  return &c->prog;
}

static int call(const attn_program *p, int64_t n, int64_t d, int64_t *y,
                attn_error *e) {
  static float x[1];
  // An args struct as a header would declare it.
  struct {
    attn_args head;
    attn_tensor x;
    float s;
    int64_t k;
    attn_tensor y;
  } a;
  attn_args_init(p, &a);
  EXPECT(a.head.size == sizeof a && a.s == 2.5f && a.k == 40);
  a.x = (attn_tensor){x, {n, d}, {0, 0}, 2, ATTN_F32};
  a.y = (attn_tensor){y, {4}, {1}, 1, ATTN_I64};
  return attn_call(p, &a, NULL, e);
}

static void good(Ctx *cx, Buf *object) {
  Case c[2];
  CgProgram both[2] = {*program(cx, &c[0], "f"), *program(cx, &c[1], "g")};
  EXPECT(cg_compile(cx, both, 2, CG_OBJECT, object));
  CgJit *j = cg_jit_load(cx, object->at, object->n);
  EXPECT(j != NULL);
  if (!j) return;
  const attn_program *p = cg_jit_program(j, "api", "g");
  EXPECT(p && p != cg_jit_program(j, "api", "f"));
  int64_t y[4];
  attn_error e;
  EXPECT(call(p, 10, 64, y, &e) == 0);
  EXPECT(y[0] == 64 && y[1] == 10 && y[2] == 64 && y[3] == 42);
  EXPECT(call(p, 8, 128, y, &e) == 0);
  EXPECT(y[0] == 128 && y[1] == 8 && y[2] == 128);
  EXPECT(call(p, 9, 64, y, &e) == ATTN_E_CONSTRAINT);
  EXPECT(strstr(e.text, "N % 2") != NULL);
  EXPECT(call(p, 8, 32, y, &e) == ATTN_E_DIM);
  EXPECT(cx->nerrors == 0);
  EXPECT(!cg_jit_program(j, "api", "h") && cx->nerrors == 1);
  cg_jit_drop(j);
}

static void bad(Ctx *cx) {
  Case c;
  Buf out = {.arena = &cx->session};
  uint32_t before = cx->nerrors;
  CgProgram p = *program(cx, &c, "f");
  p.name = "other";
  EXPECT(!cg_compile(cx, &p, 1, CG_OBJECT, &out) && cx->nerrors == ++before);
  p.name = "f";
  CgExpr deep = {0};
  deep = equals(cx, 0, 1);
  for (int i = 0; i < 5; i++) deep = cg_expr_bin(cx, deep, ATTN_X_AND, deep);
  c.checks[0] = deep;
  EXPECT(cg_compile(cx, &p, 1, CG_OBJECT, &out) && cx->nerrors == before);
  Module m = *c.variants[0].mod;
  m.level = LV_TILE;
  c.variants[0].mod = &m;
  EXPECT(!cg_compile(cx, &p, 1, CG_OBJECT, &out) && cx->nerrors == ++before);
  EXPECT(!cg_jit_load(cx, "not an object", 13) && cx->nerrors > before);
  EXPECT(cx->diags.at[cx->diags.n - 1]->id == DIAG_cg_failed);
}

// Threads share the modules that they are given: compiling with a session of
// one's own leaves the memory of theirs as it is.
static void reads_only(Ctx *cx) {
  Case c[2];
  CgProgram both[2] = {*program(cx, &c[0], "f"), *program(cx, &c[1], "g")};
  Ctx own;
  ctx_init_helper(&own, cx);
  Buf out = {.arena = &own.session};
  size_t session = cx->session.used, scratch = cx->scratch.used;
  EXPECT(cg_compile(&own, both, 2, CG_OBJECT, &out) && out.n);
  EXPECT(cx->session.used == session && cx->scratch.used == scratch);
  ctx_drop(&own);
}

int main(void) {
  Buf first = {0};
  Ctx keep;
  ctx_init(&keep);
  first.arena = &keep.session;
  for (int i = 0; i < 2; i++) {
    Ctx cx;
    ctx_init(&cx);
    Buf object = {.arena = &cx.session};
    good(&cx, &object);
    bad(&cx);
    reads_only(&cx);
    if (i) EXPECT(object.n == first.n && !memcmp(object.at, first.at, first.n));
    else buf_add(&first, object.at, object.n);
    ctx_drop(&cx);
  }
  ctx_drop(&keep);
  return verdict();
}
