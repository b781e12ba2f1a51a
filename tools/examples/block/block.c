/* A transformer block whose attention is compiled by attnc:
 *
 *   x += Wo attention(Wq n, Wk n, Wv n)   n = rmsnorm(x)
 *   x += Wd (silu(Wg n) * Wu n)           n = rmsnorm(x)
 *
 * Attention runs on the CPU and, if the machine has one, on an NVIDIA GPU; the
 * same binary serves both. Both results are compared with a plain f64
 * evaluation. usage: block [TOKENS] */
#include "attention.h"
#include "device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WIDTH = 256, HEADS = 4, GROUPS = 2, D = 64, HIDDEN = 512 };

/* ---- bf16 and random numbers */

static uint16_t to_bf16(float x) {
  union {
    float f;
    uint32_t u;
  } v = {x};
  return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t x) {
  union {
    uint32_t u;
    float f;
  } v = {(uint32_t)x << 16};
  return v.f;
}

static float random_unit(void) { /* in [-1, 1) */
  static uint64_t s = 88172645463325252u;
  s ^= s << 13, s ^= s >> 7, s ^= s << 17;
  return (float)((double)(s >> 11) / (double)(1ull << 52) - 1.0);
}

static void *need(void *p) {
  if (!p) {
    fputs("out of memory\n", stderr);
    exit(1);
  }
  return p;
}

static float *floats(size_t n) {
  return need(calloc(n, sizeof(float)));
}
static uint16_t *halves(size_t n) {
  return need(calloc(n, sizeof(uint16_t)));
}

static float *weights(size_t rows, size_t cols) {
  float *w = floats(rows * cols);
  for (size_t i = 0; i < rows * cols; i++)
    w[i] = 1.7f * random_unit() / sqrtf((float)cols);
  return w;
}

/* ---- the parts that are plain C */

static void rmsnorm(size_t n, const float *x, float *out) {
  for (size_t t = 0; t < n; t++) {
    float sum = 0;
    for (size_t i = 0; i < WIDTH; i++)
      sum += x[t * WIDTH + i] * x[t * WIDTH + i];
    float r = 1 / sqrtf(sum / WIDTH + 1e-6f);
    for (size_t i = 0; i < WIDTH; i++)
      out[t * WIDTH + i] = x[t * WIDTH + i] * r;
  }
}

/* out[n, rows] = x[n, cols] w^T */
static void linear(size_t n, size_t rows, size_t cols, const float *x,
                   const float *w, float *out) {
  for (size_t t = 0; t < n; t++)
    for (size_t r = 0; r < rows; r++) {
      float sum = 0;
      for (size_t c = 0; c < cols; c++)
        sum += x[t * cols + c] * w[r * cols + c];
      out[t * rows + r] = sum;
    }
}

/* The same, rounded: what attention reads. */
static uint16_t *project(size_t n, size_t rows, const float *x) {
  float *w = weights(rows, WIDTH), *y = floats(n * rows);
  uint16_t *out = halves(n * rows);
  linear(n, rows, WIDTH, x, w, y);
  for (size_t i = 0; i < n * rows; i++) out[i] = to_bf16(y[i]);
  free(w);
  free(y);
  return out;
}

/* x += Wd (silu(Wg n) * Wu n) */
static void mlp(size_t n, float *x) {
  float *g = weights(HIDDEN, WIDTH), *u = weights(HIDDEN, WIDTH);
  float *d = weights(WIDTH, HIDDEN), *y = floats(n * WIDTH);
  float *a = floats(n * HIDDEN), *b = floats(n * HIDDEN);
  rmsnorm(n, x, y);
  linear(n, HIDDEN, WIDTH, y, g, a);
  linear(n, HIDDEN, WIDTH, y, u, b);
  for (size_t i = 0; i < n * HIDDEN; i++)
    a[i] = a[i] / (1 + expf(-a[i])) * b[i];
  linear(n, WIDTH, HIDDEN, a, d, y);
  for (size_t i = 0; i < n * WIDTH; i++) x[i] += y[i];
  free(g), free(u), free(d), free(y), free(a), free(b);
}

/* ---- attention */

typedef struct Heads {
  size_t n; /* tokens */
  uint16_t *q, *k, *v, *o;
} Heads;

static attn_tensor view(uint16_t *data, size_t tokens, int64_t heads) {
  int64_t shape[] = {1, (int64_t)tokens, heads, D};
  return attn_tensor_dense(data, ATTN_BF16, 4, shape);
}

/* On whatever device the arrays are. */
static int attention(const Heads *h, attn_error *e) {
  attention_gqa_args a;
  attn_stream where = {.kind = ATTN_AUTO};
  attention_gqa_args_init(&a); /* scale = 1 / sqrt(D) */
  a.Q = view(h->q, h->n, HEADS);
  a.K = view(h->k, h->n, GROUPS);
  a.V = view(h->v, h->n, GROUPS);
  a.O = view(h->o, h->n, HEADS);
  a.workspace_bytes = attention_gqa_workspace(&a);
  if (a.workspace_bytes && !(a.workspace = device_scratch(a.workspace_bytes)))
    a.workspace_bytes = 0; /* the CPU's comes from the context */
  return attention_gqa(&a, &where, e);
}

/* An element in f64, and the sum of its terms' sizes, which roundings are
 * measured by: weights and results have 8 bits, so 2^-9 for each of a weight,
 * the sum of weights and the result, and somewhat for the rest. */
#define BOUND 0.0078125
typedef struct Exact {
  double value, size;
} Exact;

/* Straight from the definition. */
static void reference(const Heads *h, Exact *out) {
  double *w = need(malloc(h->n * sizeof *w));
  for (size_t t = 0; t < h->n; t++)
    for (size_t a = 0; a < HEADS; a++) {
      size_t g = a / (HEADS / GROUPS);
      double most = -INFINITY, sum = 0;
      Exact *o = out + (t * HEADS + a) * D;
      for (size_t s = 0; s <= t; s++) {
        w[s] = 0;
        for (size_t d = 0; d < D; d++)
          w[s] += (double)from_bf16(h->q[(t * HEADS + a) * D + d]) *
                  (double)from_bf16(h->k[(s * GROUPS + g) * D + d]);
        w[s] /= sqrt(D);
        most = fmax(most, w[s]);
      }
      for (size_t d = 0; d < D; d++) o[d] = (Exact){0, 0};
      for (size_t s = 0; s <= t; s++) {
        w[s] = exp(w[s] - most);
        sum += w[s];
        for (size_t d = 0; d < D; d++) {
          double x = w[s] * (double)from_bf16(h->v[(s * GROUPS + g) * D + d]);
          o[d].value += x;
          o[d].size += fabs(x);
        }
      }
      for (size_t d = 0; d < D; d++)
        o[d] = (Exact){o[d].value / sum, o[d].size / sum};
    }
  free(w);
}

/* Greatest |x - value| / size. */
static double error(size_t n, const uint16_t *x, const Exact *ref) {
  double most = 0;
  for (size_t i = 0; i < n; i++) {
    double e = fabs((double)from_bf16(x[i]) - ref[i].value) / ref[i].size;
    most = e > most || e != e ? e : most;
  }
  return most;
}

static int report(const char *where, const Heads *h, const Exact *ref) {
  double e = error(h->n * HEADS * D, h->o, ref);
  printf("%s: largest error %.2g, bound %.2g: %s\n", where, e, BOUND,
         e <= BOUND ? "ok" : "WRONG");
  return !(e <= BOUND);
}

static double now_ms(void) {
  struct timespec t;
  timespec_get(&t, TIME_UTC);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int on_cpu(const Heads *h, const Exact *ref) {
  attn_error e;
  double start = now_ms();
  if (attention(h, &e)) {
    printf("CPU: %s\n", e.text);
    return 1;
  }
  printf("first call after %.2f ms\n", now_ms() - start);
  return report("CPU", h, ref);
}

/* Copies there and back. */
static int on_gpu(const Heads *h, const Exact *ref) {
  size_t nq = h->n * HEADS * D * 2, nk = h->n * GROUPS * D * 2;
  Heads d = {.n = h->n,
             .q = device_copy(h->q, nq),
             .k = device_copy(h->k, nk),
             .v = device_copy(h->v, nk),
             .o = device_copy(h->o, nq)};
  attn_error e;
  if (!d.q || !d.k || !d.v || !d.o) {
    puts("GPU: no memory");
    return 1;
  }
  if (attention(&d, &e)) {
    printf("GPU: %s\n", e.text);
    return 1;
  }
  if (!device_fetch(h->o, d.o, nq)) {
    puts("GPU: the launch failed");
    return 1;
  }
  return report("GPU", h, ref);
}

int main(int argc, char **argv) {
  size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 77;
  if (n < 1 || n > 100000) {
    fputs("usage: block [TOKENS]\n", stderr);
    return 2;
  }
  float *x = floats(n * WIDTH), *y = floats(n * WIDTH);
  Exact *ref = need(calloc(n * HEADS * D, sizeof *ref));
  for (size_t i = 0; i < n * WIDTH; i++) x[i] = random_unit();
  rmsnorm(n, x, y);
  Heads h = {n, project(n, HEADS * D, y), project(n, GROUPS * D, y),
             project(n, GROUPS * D, y), halves(n * HEADS * D)};
  reference(&h, ref);
  int bad = on_cpu(&h, ref);
  const char *missing = device_open();
  if (missing) printf("no GPU: %s\n", missing);
  else bad |= on_gpu(&h, ref);

  float *wo = weights(WIDTH, HEADS * D), *o = floats(n * HEADS * D);
  for (size_t i = 0; i < n * HEADS * D; i++) o[i] = from_bf16(h.o[i]);
  linear(n, WIDTH, HEADS * D, o, wo, y);
  for (size_t i = 0; i < n * WIDTH; i++) x[i] += y[i];
  mlp(n, x);
  printf("x[0] = %.6f %.6f ..\n", (double)x[0], (double)x[1]);
  free(x), free(y), free(ref), free(wo), free(o);
  free(h.q), free(h.k), free(h.v), free(h.o);
  return bad;
}
