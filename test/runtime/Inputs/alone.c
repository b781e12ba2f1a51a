// Calls a program of an object for another CPU.
#include "f64.h"

#include <stdio.h>

int main(void) {
  enum { S = 2, D = 8 };
  double q[S * D] = {0}, v[S * D], o[S * D];
  int64_t shape[] = {1, S, D};
  for (int i = 0; i < S * D; i++) v[i] = i / D;
  f64_wide_args a;
  f64_wide_args_init(&a);
  a.Q = a.K = attn_tensor_dense(q, ATTN_F64, 3, shape);
  a.V = attn_tensor_dense(v, ATTN_F64, 3, shape);
  a.O = attn_tensor_dense(o, ATTN_F64, 3, shape);
  attn_error e;
  int rc = f64_wide(&a, NULL, &e);
  printf("f64_wide: %d, last %g\n", rc, o[S * D - 1]);
  return rc;
}
