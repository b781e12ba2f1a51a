// An application: header and object of scale.tir, libattn.
#include "scale.h"

#include <stdio.h>
#include <string.h>

enum { N = 10 };

int main(void) {
  float x[N];
  double y[N];
  uint16_t m[N + 1] = {0};
  t_scale_args a;
  attn_error e;
  for (int i = 0; i < N; i++) x[i] = (float)i;
  t_scale_args_init(&a);
  printf("defaults %g %lld\n", (double)a.s, (long long)a.k);
  a.s = 0.5f;
  a.k = 3;
  attn_tensor tx = {x, {N}, {1}, 1, ATTN_F32};
  attn_tensor ty = {y, {N}, {1}, 1, ATTN_F64};
  attn_tensor tm = {m, {N + 1}, {1}, 1, ATTN_BF16};
  a.X = tx;
  a.Y = ty;
  a.M = tm;
  if (t_scale(&a, NULL, &e)) puts(e.text);
  printf("%g %g, workspace %d\n", y[1], y[9], (int)t_scale_workspace(&a));
  a.M.shape[0] = N;
  if (t_scale(&a, NULL, &e)) puts(e.text);
  a.X.shape[0] = 9;
  if (t_scale(&a, NULL, &e)) puts(e.text);
  return 0;
}
