// The oracle against formulas written out by hand.
#include "frontend/oracle.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char program[] =
    "import std.rows { softmax }\n"
    "import std.masks { causal }\n"
    "attention f<B, H, G, S, T, D, E>\n"
    "  (Q: f32[B, H, S, D], K: f32[B, G, T, D], V: f32[B, G, T, E],\n"
    "   scale: f32 = rsqrt(D)) -> (O: f32[B, H, S, E], L: f32[B, H, S])\n"
    "  where H % G == 0 {\n"
    "  index b in B, h in H, q in S;\n"
    "  index k in T where causal(off = T - S);\n"
    "  let g = h // (H // G);\n"
    "  let s = scale * dot(Q[b, h, q], K[b, g, k]);\n"
    "  let (p, lse) = softmax(s);\n"
    "  O[b, h, q] = sum(k: p * V[b, g, k]);\n"
    "  L[b, h, q] = lse;\n"
    "}\n"
    "recurrent r<T, D, E>(K: f32[T, D], V: f32[T, E], g: f32[T],\n"
    "                     inout S: f32[D, E]) -> (O: f32[T, E]) {\n"
    "  state M: f32[D, E] = S;\n"
    "  step t {\n"
    "    let w = exp(g[t]);\n"
    "    M = w * M + outer(K[t], V[t]);\n"
    "    O[t] = K[t] @@ M;\n"
    "  }\n"
    "}\n";

static double rnd(void) {
  return (double)rand() / RAND_MAX * 2 - 1;
}

static OracleArg tensor(uint32_t rank, const int64_t *shape, bool fill) {
  OracleArg a = {.dtype = DT_F64, .rank = rank};
  int64_t n = 1;
  for (uint32_t i = rank; i-- > 0;) {
    a.shape[i] = shape[i];
    a.stride[i] = n;
    n *= shape[i];
  }
  double *p = calloc((size_t)n, sizeof(double));
  for (int64_t i = 0; fill && i < n; i++) p[i] = rnd();
  a.data = p;
  return a;
}
#define T(fill, ...) \
  tensor(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
         (int64_t[]){__VA_ARGS__}, fill)

enum { B = 2, H = 4, G = 2, S = 5, TT = 7, D = 3, E = 4 };

static void close_to(double got, double want) {
  if (!(got == want || fabs(got - want) <= 1e-12 * (1 + fabs(want)))) {
    printf("got %.17g, want %.17g\n", got, want);
    abort();
  }
}

static void check_row(const OracleArg *a, int b, int h, int q, int s, int t) {
  const double *Q = a[0].data, *K = a[1].data, *V = a[2].data;
  const double *O = a[4].data, *L = a[5].data;
  int g = h / (H / G);
  double l = 0, o[E] = {0};
  for (int k = 0; k < t && k <= q + t - s; k++) {
    double x = 0;
    for (int d = 0; d < D; d++)
      x += Q[((b * H + h) * s + q) * D + d] * K[((b * G + g) * t + k) * D + d];
    double w = exp(x / sqrt(D));
    l += w;
    for (int e = 0; e < E; e++) o[e] += w * V[((b * G + g) * t + k) * E + e];
  }
  close_to(L[(b * H + h) * s + q], log(l));
  for (int e = 0; e < E; e++)
    close_to(O[((b * H + h) * s + q) * E + e], l > 0 ? o[e] / l : 0);
}

// s queries, t keys: with t < s the first rows see no key.
static void attention(Ctx *cx, const Unit *u, int s, int t) {
  OracleArg a[6] = {T(true, B, H, s, D),  T(true, B, G, t, D),
                    T(true, B, G, t, E),  {.dtype = DT_F32},
                    T(false, B, H, s, E), T(false, B, H, s)};
  int64_t dims[] = {B, H, G, s, t, D, E};
  bool ok = oracle_run(cx, fe_program(u, "f"), a, dims, NULL);
  assert(ok);
  (void)ok;
  for (int b = 0; b < B; b++)
    for (int h = 0; h < H; h++)
      for (int q = 0; q < s; q++) check_row(a, b, h, q, s, t);
}

static void recurrence(Ctx *cx, const Unit *u) {
  OracleArg a[5] = {T(true, S, D), T(true, S, E), T(true, S), T(true, D, E),
                    T(false, S, E)};
  const double *K = a[0].data, *V = a[1].data, *g = a[2].data;
  double M[D][E];
  memcpy(M, a[3].data, sizeof M);
  int64_t dims[] = {S, D, E};
  bool ok = oracle_run(cx, fe_program(u, "r"), a, dims, NULL);
  assert(ok);
  (void)ok;
  const double *O = a[4].data, *last = a[3].data;
  for (int t = 0; t < S; t++) {
    for (int e = 0; e < E; e++) {
      double o = 0;
      for (int d = 0; d < D; d++) {
        M[d][e] = exp(g[t]) * M[d][e] + K[t * D + d] * V[t * E + e];
        o += K[t * D + d] * M[d][e];
      }
      close_to(O[t * E + e], o);
    }
  }
  for (int i = 0; i < D * E; i++) close_to(last[i], M[i / E][i % E]);
}

int main(void) {
  Ctx cx;
  ctx_init(&cx);
  Source *src = ctx_add_source(&cx, "oracle.attn", program, strlen(program));
  Unit *u = fe_parse(&cx, src);
  bool ok = u->syntax_ok && fe_check(&cx, u);
  Buf out = {.arena = &cx.session};
  diag_render(&cx, (DiagStyle){0}, &out);
  if (!ok) printf("%s\n", out.at ? out.at : "");
  assert(ok);
  attention(&cx, u, S, TT);
  attention(&cx, u, TT, S);
  attention(&cx, u, 1, 1);
  recurrence(&cx, u);
  ctx_drop(&cx);
  puts("ok");
  return 0;
}
