// The base layer: arenas, vectors, names, maps, positions, element types.
#include "ir/core/ctx.h"
#include "ir/core/watch.h"
#include "ir/core/dtype.h"
#include "ir/eval.h"
#include <math.h>
#include <stdio.h>

static int failures;

#define EXPECT(c) \
  ((c) ? (void)0 \
       : (void)(failures++, printf("%s:%d: %s\n", __FILE__, __LINE__, #c)))

static void containers(Ctx *cx) {
  Vec(int) v = {0};
  for (int i = 0; i < 1000; i++) vec_push(&cx->session, &v, i);
  EXPECT(v.n == 1000 && v.at[999] == 999);
  EXPECT(intern(&cx->names, "abc") == intern_n(&cx->names, "abcd", 3));
  EXPECT(intern(&cx->names, "abc") != intern(&cx->names, "abd"));
  // Bytes behind a NUL are compared too, and not read past a shorter string.
  EXPECT(strlen(intern_n(&cx->names, "abc\0de", 6)) == 3);
  Map m = {.arena = &cx->session};
  uint64_t got = 0;
  for (uint64_t i = 0; i < 5000; i++) map_put(&m, i * 7, i);
  EXPECT(map_get(&m, 0, &got) && got == 0);
  EXPECT(map_get(&m, 7 * 4999, &got) && got == 4999);
  EXPECT(!map_get(&m, 3, &got));
  ArenaMark mark = arena_mark(&cx->scratch);
  memset(arena_alloc(&cx->scratch, 1 << 20), 1, 1 << 20);
  arena_reset(&cx->scratch, mark);
  EXPECT(cx->scratch.used == mark.used);
}

static void text(Ctx *cx) {
  Buf b = {.arena = &cx->session};
  const double v[] = {0.1, 1, -3e300, INFINITY, 1e-7, 1000, 2.5e15, 1.0 / 3};
  for (int i = 0; i < 8; i++) {
    buf_double(&b, v[i]);
    buf_char(&b, ' ');
  }
  EXPECT(strcmp(b.at, "0.1 1.0 -3e300 inf 1e-7 1000.0 2500000000000000.0 "
                      "0.3333333333333333 ") == 0);
  Source *s = ctx_add_source(cx, "t", "a\nb\xf0\x9f\x98\x80x\n", 9);
  LineCol at = src_linecol(s, 7);
  EXPECT(at.line == 2 && at.col == 6 && at.col_utf16 == 4);
  uint32_t n;
  src_line(s, 2, &n);
  EXPECT(n == 6 && s->nlines == 3);
}

// Every pattern of a type of one or two bytes survives load and store.
static void round_trip(DType t) {
  for (uint32_t u = 0; u < (dtype_size(t) == 1 ? 256u : 65536u); u++) {
    unsigned char in[2] = {(unsigned char)u, (unsigned char)(u >> 8)}, out[2];
    double v = dtype_load(t, in);
    dtype_store(t, out, v);
    EXPECT(isnan(v) || memcmp(in, out, (size_t)dtype_size(t)) == 0);
    EXPECT(isnan(v) || dtype_round(t, v) == v);
    if (isnan(v)) EXPECT(isnan(dtype_load(t, out)));
  }
}

// Many stores are as many single ones: of numbers of the size around 2^e, which
// the type may have, or not, with ties.
static void together(DType t) {
  enum { N = 200 };
  uint64_t state = 1, out[N], one[N];
  double v[N];
  uint32_t wrong = 0;
  for (int e = -140; e < 140; e++) {
    for (int i = 0; i < N; i++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      double x = 1 + (double)(state >> 34 >> (i % 3 * 10)) * 0x1p-30;
      v[i] = ldexp(state >> 33 & 1 ? x : -x, e);
      dtype_store(t, (char *)one + i * dtype_size(t), v[i]);
    }
    dtype_store_many(t, out, v, N);
    wrong += memcmp(out, one, (size_t)(N * dtype_size(t))) != 0;
  }
  EXPECT(wrong == 0);
}

// Values of many points are those of each, -0 and NaN too; a step of 0 is one
// number for all.
static void points(void) {
  static const double a[] = {1.5, -0.0, 3, -7.25, NAN, INFINITY, 1e-3},
                      b[] = {2, -3, 0, 0.5, 1, -INFINITY, 1e-5};
  enum { N = sizeof a / sizeof *a };
  uint32_t wrong = 0;
  for (int op = 0; op < OP_COUNT; op++)
    for (uint32_t one = 0; one < 2; one++) {
      const double *x[ELEM_ARGS] = {a, b, a, b, a, b};
      uint32_t step[ELEM_ARGS] = {1, !one, 1, 1, 1, 1};
      double all[N];
      if (!(op_info((OpCode)op)->flags & OPF_ELEM)) continue;
      eval_many((OpCode)op, x, step, N, all);
      for (uint32_t i = 0; i < N; i++) {
        double in[ELEM_ARGS];
        for (int k = 0; k < ELEM_ARGS; k++) in[k] = x[k][i * step[k]];
        double v = eval_op((OpCode)op, in);
        wrong += memcmp(&v, &all[i], sizeof v) && !(isnan(v) && isnan(all[i]));
      }
    }
  EXPECT(wrong == 0);
  for (int t = 0; t < DT_COUNT; t++) {
    double all[N];
    memcpy(all, a, sizeof all);
    dtype_round_many((DType)t, all, N);
    for (uint32_t i = 0; i < N; i++) {
      double v = dtype_round((DType)t, a[i]);
      wrong += memcmp(&v, &all[i], sizeof v) && !(isnan(v) && isnan(all[i]));
    }
  }
  EXPECT(wrong == 0);
}

// Integers truncate and wrap, as numbers of any size.
static void integers(void) {
  EXPECT(dtype_round(DT_I32, 0x1p31) == -0x1p31);
  EXPECT(dtype_round(DT_I32, -0x1p31) == -0x1p31);
  EXPECT(dtype_round(DT_U32, 0x1p32 + 5) == 5);
  EXPECT(dtype_round(DT_I64, 0x1p62) == 0x1p62);
  EXPECT(dtype_round(DT_I64, 0x1p63) == -0x1p63);
  EXPECT(dtype_round(DT_I64, 0x1p70) == 0);
  EXPECT(dtype_round(DT_I64, NAN) == 0);
  EXPECT(!signbit(dtype_round(DT_I64, -0.5)));
}

static void dtypes(void) {
  points();
  integers();
  const DType many[] = {DT_F64, DT_F32, DT_BF16, DT_F16, DT_F8E4M3, DT_I16};
  for (int i = 0; i < 6; i++) together(many[i]);
  const DType all[] = {DT_BF16, DT_F16, DT_F8E4M3, DT_F8E5M2,
                       DT_I16,  DT_I8,  DT_U16,    DT_U8};
  for (int i = 0; i < 8; i++) round_trip(all[i]);
  EXPECT(dtype_round(DT_F8E4M3, 464) == 448);
  EXPECT(isnan(dtype_round(DT_F8E4M3, 464.5)));
  EXPECT(dtype_round(DT_F8E5M2, 1e9) == INFINITY);
  EXPECT(dtype_round(DT_F16, 65519) == 65504);
  EXPECT(dtype_round(DT_F16, 65520) == INFINITY);
  EXPECT(dtype_round(DT_F16, 0x1p-25) == 0);
  EXPECT(dtype_round(DT_F16, 0x1.8p-25) == 0x1p-24);
  EXPECT(dtype_round(DT_BF16, 1 + 0x1p-8) == 1);
  EXPECT(dtype_round(DT_BF16, 1 + 0x3p-8) == 1 + 0x1p-6);
  EXPECT(dtype_round(DT_TF32, 1 + 0x1p-10) == 1 + 0x1p-10);
  EXPECT(dtype_round(DT_I8, 200) == -56 && dtype_round(DT_I8, -1.9) == -1);
  EXPECT(dtype_round(DT_U8, -1) == 255 &&
         dtype_round(DT_U32, -1) == 0xffffffff);
  int64_t big = INT64_MIN;
  EXPECT(dtype_load(DT_I64, &big) == -0x1p63);
  DType t;
  EXPECT(dtype_by_name("bf16", 4, &t) && t == DT_BF16);
  EXPECT(!dtype_by_name("bf1", 3, &t));
}

// ---------------------------------------------------------------- limits
static void fill(void *cx) {
  for (;;) arena_alloc(&((Ctx *)cx)->session, 1 << 16);
}

static void some(void *cx) {
  arena_alloc(&((Ctx *)cx)->session, 500000);
}

static void nothing(void *cx) {
  (void)cx;
}

static void limits(void) {
  Ctx cx;
  ctx_init(&cx);
  cx.session.limit = 1 << 20;
  EXPECT(!ctx_try(&cx, fill, &cx) && ctx_try(&cx, nothing, &cx));
  EXPECT(!cx.session.oom);
  ArenaPool pool = {.limit = 1 << 20};
  cx.session.pool = cx.scratch.pool = &pool;
  cx.session.limit = 0;
  Ctx helper;
  ctx_init_helper(&helper, &cx);
  arena_alloc(&helper.scratch, 1000000);
  EXPECT(!ctx_try(&cx, fill, &cx));
  ctx_drop(&helper);
  EXPECT(ctx_try(&cx, some, &cx));
  cx.session.limit = 0;
  cx.session.until = watch_now() + 1000000;
  EXPECT(!ctx_try(&cx, fill, &cx));
  ctx_drop(&cx);
  EXPECT(!pool.used);
}

// Two sessions that one looks after.
static void lines(void) {
  Watch w;
  Ctx a, b;
  watch_init(&w);
  ctx_init(&a);
  a.watch = &w;
  Source *src = ctx_add_source(&a, "a", "text", 4);
  ctx_init_helper(&b, &a);
  work_begin(&a);
  work_variant(&a);
  work_begin(&a);
  work_variant(&a);
  work_end(&a);
  EXPECT(w.depth == 1 && w.variants == 2);
  EXPECT(!watch_longest(&w) && !watch_last(&w));
  work_place(&b, (Span){src->id, 1, 2});
  work_say(&b, "%s", "first");
  work_say(&a, "second");
  const WorkLine *l = watch_longest(&w);
  EXPECT(l == &b.line && l->source == src && strcmp(l->what, "first") == 0);
  work_rest(&b);
  EXPECT(watch_longest(&w) == &a.line);
  work_end(&a);
  EXPECT(!w.depth && !watch_longest(&w));
  EXPECT(watch_last(&w) == &a.line);  // said last
  ctx_drop(&a);
  EXPECT(w.first == &b.line);
  ctx_drop(&b);
  EXPECT(!w.first);
  watch_drop(&w);
}

int main(void) {
  Ctx cx;
  ctx_init(&cx);
  containers(&cx);
  text(&cx);
  dtypes();
  limits();
  lines();
  ctx_drop(&cx);
  puts(failures ? "FAILED" : "all good");
  return failures != 0;
}
