// A driver without a device: it checks and records what it is asked, and tells
// of launches if MOCK_CUDA_LOG is set.
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT MockCuda mock_cuda = {.major = 9,
                             .minor = 0,
                             .sms = 132,
                             .per_sm = 1,
                             .devices = 2,
                             .most_shared = 232448};
static int context[3], modules[8];  // contexts by device; [2]: another
static char symbols[64][64];
static unsigned nsymbols;

#define ENTER(name) \
  do { \
    if (mock_cuda.fail && !strcmp(mock_cuda.fail, #name)) \
      return mock_cuda.code; \
  } while (0)

typedef int R;
#define FN(name, ...) \
  EXPORT R name(__VA_ARGS__); \
  R name(__VA_ARGS__)

FN(cuInit, unsigned flags) {
  ENTER(cuInit);
  return flags != 0;
}

FN(cuGetErrorName, R e, const char **s) {
  *s = e == 1 ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OTHER";
  return 0;
}

FN(cuGetErrorString, R e, const char **s) {
  *s = e == 1 ? "invalid argument" : "something else";
  return 0;
}

FN(cuDeviceGetCount, int *n) {
  *n = mock_cuda.devices;
  return 0;
}

FN(cuDeviceGet, int *dev, int ordinal) {
  ENTER(cuDeviceGet);
  *dev = ordinal;
  return ordinal < 0 || ordinal >= mock_cuda.devices ? 101 : 0;
}

FN(cuDeviceGetAttribute, int *v, int what, int dev) {
  ENTER(cuDeviceGetAttribute);
  (void)dev;
  *v = what == 16   ? mock_cuda.sms
       : what == 75 ? mock_cuda.major
       : what == 76 ? mock_cuda.minor
                    : -1;
  return *v < 0;
}

FN(cuDevicePrimaryCtxRetain, void **ctx, int dev) {
  ENTER(cuDevicePrimaryCtxRetain);
  mock_cuda.retained++;
  *ctx = &context[dev];
  return 0;
}

FN(cuDevicePrimaryCtxRelease_v2, int dev) {
  (void)dev;
  mock_cuda.retained--;
  return 0;
}

FN(cuCtxGetCurrent, void **ctx) {
  ENTER(cuCtxGetCurrent);
  *ctx = mock_cuda.current;
  return 0;
}

FN(cuCtxSetCurrent, void *ctx) {
  mock_cuda.current = ctx;
  return 0;
}

FN(cuCtxGetDevice, int *dev) {
  ENTER(cuCtxGetDevice);
  *dev = mock_cuda.current == &context[1] ? 1 : 0;
  return mock_cuda.current ? 0 : 201;
}

static void *stack[8];
static int depth;

FN(cuCtxPushCurrent_v2, void *ctx) {
  ENTER(cuCtxPushCurrent_v2);
  stack[depth++] = mock_cuda.current;
  mock_cuda.current = ctx;
  return 0;
}

FN(cuCtxPopCurrent_v2, void **ctx) {
  *ctx = mock_cuda.current;
  if (!depth) return 201;
  mock_cuda.current = stack[--depth];
  return 0;
}

FN(cuCtxGetId, void *ctx, unsigned long long *id) {
  *id = (unsigned long long)((int *)ctx - context) + 1;
  return 0;
}

FN(cuModuleLoadDataEx, void **mod, const void *image, unsigned n, int *opts,
   void **vals) {
  int text = *(const char *)image == '.' || *(const char *)image == '/';
  if (n == 2 && opts[0] == 5 && mock_cuda.fail) strcpy(vals[0], "\n oops\nx");
  ENTER(cuModuleLoadDataEx);
  if (!text && mock_cuda.only_text) return 209;
  mock_cuda.texts += (unsigned)text;
  *mod = &modules[mock_cuda.loads++ % 8];
  return mock_cuda.current ? 0 : 201;
}

FN(cuModuleUnload, void *mod) {
  mock_cuda.unloads += mod != NULL;
  return 0;
}

FN(cuModuleGetFunction, void **f, void *mod, const char *name) {
  ENTER(cuModuleGetFunction);
  char *s = symbols[nsymbols++ % 64];
  strncpy(s, name, 63);
  *f = s;
  return mod == NULL;
}

FN(cuFuncGetAttribute, int *v, int what, void *f) {
  ENTER(cuFuncGetAttribute);
  *v = what == 3 ? mock_cuda.local : 0;
  return f == NULL;
}

FN(cuFuncSetAttribute, void *f, int what, int v) {
  ENTER(cuFuncSetAttribute);
  return f == NULL || what != 8 || v > mock_cuda.most_shared;
}

FN(cuFuncGetParamInfo, void *f, size_t i, size_t *offset, size_t *size) {
  *offset = 0;
  *size = mock_cuda.block_bytes;
  return f == NULL || i != 0 || !*size;
}

FN(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *n, void *f, int threads,
   size_t shared) {
  ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  *n = shared > 232448 || threads > 1024 ? 0 : mock_cuda.per_sm;
  return f == NULL;
}

// What the real one refuses.
static int wrong_map(const MockMap *m, unsigned size) {
  static const unsigned inner[] = {0, 32, 64, 128};
  int bad = (uintptr_t)m->data % 16 != 0 || m->rank < 1 || m->rank > 5;
  for (unsigned i = 0; i < m->rank; i++) {
    bad |= m->extent[i] == 0 || m->extent[i] > 1ull << 32;
    bad |= m->box[i] == 0 || m->box[i] > 256;
    if (i + 1 < m->rank)
      bad |= m->stride[i] % 16 != 0 || m->stride[i] >= 1ull << 40;
  }
  bad |= m->box[0] * size % 16 != 0;
  return bad || (m->swizzle && m->box[0] * size > inner[m->swizzle]);
}

FN(cuTensorMapEncodeTiled, void *map, int type, unsigned rank, void *data,
   const uint64_t *extents, const uint64_t *strides, const uint32_t *box,
   const uint32_t *step, int interleave, int swizzle, int promotion, int fill) {
  static const unsigned size[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  ENTER(cuTensorMapEncodeTiled);
  MockMap m = {.type = type,
               .swizzle = swizzle,
               .promotion = promotion,
               .rank = rank,
               .data = data};
  if ((uintptr_t)map % 64 || interleave || fill || rank > 5) return 1;
  memcpy(m.extent, extents, rank * 8);
  memcpy(m.stride, strides, (rank - 1) * 8);
  memcpy(m.box, box, rank * 4);
  for (unsigned i = 0; i < rank; i++)
    if (step[i] != 1) return 1;
  if (wrong_map(&m, size[type])) return 1;
  // A map's bytes: its number, so that blocks can be compared.
  mock_cuda.map[mock_cuda.encodes % 16] = m;
  memset(map, 0xa0 + (int)(mock_cuda.encodes++ % 16), 128);
  return 0;
}

// CUlaunchConfig with its attributes of 72 bytes each.
typedef struct MockConfig {
  unsigned grid[3], block[3], shared;
  void *stream;
  struct {
    int id, pad, value;
    char rest[60];
  } *attrs;
  unsigned nattrs;
} MockConfig;

FN(cuLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
   unsigned by, unsigned bz, unsigned shared, void *stream, void **params,
   void **extra) {
  ENTER(cuLaunchKernel);
  mock_cuda.launches++;
  if (mock_cuda.quick) return 0;
  if (!f || gy != 1 || gz != 1 || by != 1 || bz != 1 || extra || !gx ||
      (uintptr_t)params[0] % 64 || !mock_cuda.current)
    return 1;
  MockLaunch *l = &mock_cuda.last;
  strcpy(l->symbol, f);
  l->stream = stream;
  l->grid = gx;
  l->threads = bx;
  l->shared_bytes = shared;
  l->early = 0;
  if (getenv("MOCK_CUDA_LOG"))
    fprintf(stderr, "launch %s: %u x %u threads\n", l->symbol, gx, bx);
  l->ctx = (uint64_t)((int *)mock_cuda.current - context);
  size_t n = mock_cuda.block_bytes;
  memcpy(l->block, params[0], n ? n : mock_cuda.kept_bytes);
  return 0;
}

FN(cuLaunchKernelEx, const MockConfig *c, void *f, void **params,
   void **extra) {
  int r = cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0],
                         c->block[1], c->block[2], c->shared, c->stream, params,
                         extra);
  mock_cuda.last.early =
      c->nattrs == 1 && c->attrs->id == 6 && c->attrs->value == 1;
  return r;
}

FN(cuPointerGetAttribute, void *v, int what, uint64_t p) {
  uint64_t from = (uintptr_t)mock_cuda.device_memory;
  ENTER(cuPointerGetAttribute);
  if (p < from || p >= from + mock_cuda.device_bytes) return 1;
  *(int *)v = what == 2 ? 2 : 1;
  return what != 2 && what != 9;
}

FN(cuMemAlloc_v2, uint64_t *p, size_t n) {
  ENTER(cuMemAlloc_v2);
  mock_cuda.allocs++;
  *p = (uintptr_t)aligned_alloc(256, (n + 255) & ~(size_t)255);
  return *p == 0;
}

FN(cuMemFree_v2, uint64_t p) {
  mock_cuda.frees++;
  free((void *)(uintptr_t)p);
  return 0;
}

FN(cuMemsetD8Async, uint64_t p, unsigned char v, size_t n, void *stream) {
  ENTER(cuMemsetD8Async);
  memset((void *)(uintptr_t)p, v, n);
  return stream == NULL;
}

FN(cuMemcpyHtoD_v2, uint64_t p, const void *from, size_t n) {
  ENTER(cuMemcpyHtoD_v2);
  memcpy((void *)(uintptr_t)p, from, n);
  return 0;
}

FN(cuMemcpyDtoH_v2, void *to, uint64_t p, size_t n) {
  ENTER(cuMemcpyDtoH_v2);
  memcpy(to, (void *)(uintptr_t)p, n);
  return 0;
}

FN(cuStreamCreate, void **s, unsigned flags) {
  ENTER(cuStreamCreate);
  static int streams[1];
  *s = streams;
  return flags != 1;
}

FN(cuStreamSynchronize, void *s) {
  ENTER(cuStreamSynchronize);
  (void)s;
  return 0;
}

FN(cuStreamDestroy_v2, void *s) {
  return s == NULL;
}

FN(cuStreamIsCapturing, void *s, int *status) {
  (void)s;
  *status = mock_cuda.capturing;
  return 0;
}

#ifndef MOCK_OLD
FN(cuThreadExchangeStreamCaptureMode, int *mode) {
  static int now;
  int old = now;
  now = *mode;
  *mode = old;
  return 0;
}
#endif

FN(cuEventCreate, void **e, unsigned flags) {
  static int events[1];
  (void)flags;
  *e = events;
  return 0;
}
FN(cuEventRecord, void *e, void *s) {
  (void)e, (void)s;
  return 0;
}
FN(cuEventSynchronize, void *e) {
  (void)e;
  return 0;
}
FN(cuEventElapsedTime, float *ms, void *a, void *b) {
  (void)a, (void)b;
  *ms = 0.5f;
  if (getenv("MOCK_CUDA_BY_SHARED"))  // small tiles are fast
    *ms = (float)mock_cuda.last.shared_bytes * 1e-5f;
  return 0;
}
FN(cuEventDestroy_v2, void *e) {
  return e == NULL;
}
FN(cuDriverGetVersion, int *v) {
  *v = 13000;
  return 0;
}
FN(cuDeviceGetName, char *s, int n, int dev) {
  (void)dev;
  strncpy(s, "Mock H200", (size_t)n);
  return 0;
}
