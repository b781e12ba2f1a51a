// OpenBLAS's sgemm as a yardstick, if the library is there.
#include "tools/driver/run/cost.h"

#include <dlfcn.h>
#include <time.h>

enum { SIZE = 768, RUNS = 5, ROW_MAJOR = 101, NO_TRANS = 111 };

typedef void Sgemm(int order, int ta, int tb, int m, int n, int k, float alpha,
                   const float *a, int lda, const float *b, int ldb, float beta,
                   float *c, int ldc);
typedef void SetThreads(int n);

static bool symbol(void *lib, const char *name, void *fn) {
  void *p = dlsym(lib, name);
  memcpy(fn, &p, sizeof p);  // C has no cast from objects to functions
  return p != NULL;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double best_time(Sgemm *sgemm, const float *a, const float *b,
                        float *c) {
  double best = 1e9;
  for (int i = 0; i < RUNS; i++) {
    double start = seconds();
    sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, SIZE, SIZE, SIZE, 1, a, SIZE, b, SIZE,
          0, c, SIZE);
    double spent = seconds() - start;
    if (i && spent < best) best = spent;  // the first starts threads
  }
  return best;
}

double drv_sgemm(int threads) {
  static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
  void *lib = NULL;
  for (int i = 0; i < 2 && !lib; i++) lib = dlopen(names[i], RTLD_NOW);
  Sgemm *sgemm;
  SetThreads *set;
  if (!lib || !symbol(lib, "cblas_sgemm", &sgemm)) return 0;
  if (symbol(lib, "openblas_set_num_threads", &set)) set(threads);
  Arena arena = {0};
  size_t n = (size_t)SIZE * SIZE;
  float *a = NEWN(&arena, float, n), *b = NEWN(&arena, float, n),
        *c = NEWN(&arena, float, n);
  for (size_t i = 0; i < n; i++) {
    a[i] = (float)(i % 7) - 3;
    b[i] = (float)(i % 5) - 2;
  }
  double best = best_time(sgemm, a, b, c);
  arena_drop(&arena);
  return 2.0 * SIZE * SIZE * SIZE / best;
}
