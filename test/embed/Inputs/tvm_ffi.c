// A loader of tvm-ffi in small: finds the function of a library that contains
// libattn, calls it, and takes the error of a wrong call from libtvm_ffi.
// usage: tvm_ffi LIBRARY [LIBTVM_FFI]
#include "test/unit/mock/tvm.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { S = 3, D = 8 };

typedef struct Any {
  int32_t kind, small;
  void *p;
} Any;

typedef int Function(void *self, const Any *args, int32_t n, Any *result);

int main(int argc, char **argv) {
  double q[S * D] = {0}, v[S * D], o[S * D];
  int64_t shape[] = {1, S, D};
  for (int i = 0; i < S * D; i++) v[i] = i / D;
  void *ffi = argc > 2 ? dlopen(argv[2], RTLD_NOW) : NULL;
  void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!lib || (argc > 2 && !ffi)) return puts(dlerror()), 1;
  Function *f;
  void *at = dlsym(lib, "__tvm_ffi_f64_wide");
  memcpy(&f, &at, sizeof f);
  DlTensor in = {q, 1, 0, 3, 2, 64, 1, shape, NULL, 0}, value = in, out = in;
  value.data = v;
  out.data = o;
  Any args[] = {{7, 0, &in}, {7, 0, &in}, {7, 0, &value}, {7, 0, &out}};
  Any result = {0};
  int rc = f(NULL, args, 4, &result);
  // Of row q the mean of 0 .. q.
  printf("%d: %g %g %g\n", rc, o[0], o[D], o[2 * D]);
  out.bits = 32;
  rc = f(NULL, args, 4, &result);
  struct {
    int full;
    char kind[32], message[300];
  } *said = ffi ? dlsym(ffi, "mock_tvm") : NULL;
  printf("%d %s\n", rc, said ? said->message : "");
  return 0;
}
