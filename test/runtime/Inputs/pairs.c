// Calls a causal program in bf16, groups of two heads, with the code of each
// level that this CPU has, and compares with sums in double.
#include "pairs.h"
#include "runtime/attn_abi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 2, H = 4, G = 2, SQ = 37, SK = 53, D = 64 };

static uint16_t bf16(double x) {
  float f = (float)x;
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static double real(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}

static uint16_t q[B * H * SQ * D], k[B * G * SK * D], v[B * G * SK * D],
    o[B * H * SQ * D];

static void draw(uint16_t *at, int n) {
  for (int i = 0; i < n; i++) at[i] = bf16(2.0 * rand() / RAND_MAX - 1);
}

// The largest difference of a row of the output.
static double row_error(int b, int h, int i) {
  const uint16_t *kk = k + (b * G + h / (H / G)) * SK * D,
                 *vv = v + (b * G + h / (H / G)) * SK * D,
                 *qq = q + ((b * H + h) * SQ + i) * D,
                 *oo = o + ((b * H + h) * SQ + i) * D;
  double sum = 0, out[D] = {0}, worst = 0;
  for (int j = 0; j <= i + SK - SQ; j++) {
    double s = 0;
    for (int d = 0; d < D; d++) s += real(qq[d]) * real(kk[j * D + d]);
    double e = exp(s / sqrt(D));
    sum += e;
    for (int d = 0; d < D; d++) out[d] += e * real(vv[j * D + d]);
  }
  for (int d = 0; d < D; d++) {
    double x = fabs(out[d] / sum - real(oo[d]));
    worst = x > worst || x != x ? x : worst;
  }
  return worst;
}

int main(void) {
  draw(q, B * H * SQ * D);
  draw(k, B * G * SK * D);
  draw(v, B * G * SK * D);
  int64_t qs[] = {B, H, SQ, D}, ks[] = {B, G, SK, D};
  pairs_gqa_args a;
  pairs_gqa_args_init(&a);
  a.Q = attn_tensor_dense(q, ATTN_BF16, 4, qs);
  a.K = attn_tensor_dense(k, ATTN_BF16, 4, ks);
  a.V = attn_tensor_dense(v, ATTN_BF16, 4, ks);
  a.O = attn_tensor_dense(o, ATTN_BF16, 4, qs);
  attn_error e;
  int rc = pairs_gqa(&a, NULL, &e);
  double worst = 0;
  for (int i = 0; i < B * H * SQ; i++) {
    double x = row_error(i / SQ / H, i / SQ % H, i % SQ);
    worst = x > worst || x != x ? x : worst;
  }
  printf("isa %#x rc %d error %s\n", attn_cpu_isa(), rc,
         rc             ? e.text
         : worst < 1e-2 ? "small"
                        : "LARGE");
  return rc;
}
