// An AMD driver without a device: it checks and records what it is asked. With
// MOCK_OLD properties are those of version 5, and hipMalloc is missing.
#include "hip.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT MockHip mock_hip = {.arch = "gfx942:sramecc+:xnack-",
                           .units = 304,
                           .per_unit = 2,
                           .devices = 2};
static int modules[8];
static char symbols[64][64];
static unsigned nsymbols;

#define ENTER(name) \
  do { \
    if (mock_hip.fail && !strcmp(mock_hip.fail, #name)) return mock_hip.code; \
  } while (0)

typedef int R;
#define FN(name, ...) \
  EXPORT R name(__VA_ARGS__); \
  R name(__VA_ARGS__)

EXPORT const char *hipGetErrorName(R e);
const char *hipGetErrorName(R e) {
  return e == 1 ? "hipErrorInvalidValue" : "hipErrorUnknown";
}
EXPORT const char *hipGetErrorString(R e);
const char *hipGetErrorString(R e) {
  return e == 1 ? "invalid argument" : "unknown error";
}

FN(hipInit, unsigned flags) {
  ENTER(hipInit);
  return flags != 0;
}
FN(hipGetDeviceCount, int *n) {
  ENTER(hipGetDeviceCount);
  *n = mock_hip.devices;
  return 0;
}
FN(hipGetDevice, int *dev) {
  ENTER(hipGetDevice);
  *dev = mock_hip.current;
  return 0;
}
FN(hipSetDevice, int dev) {
  ENTER(hipSetDevice);
  mock_hip.current = dev;
  return dev < 0 || dev >= mock_hip.devices ? 101 : 0;
}
FN(hipDeviceGetAttribute, int *v, int what, int dev) {
  ENTER(hipDeviceGetAttribute);
  *v = what == 23 ? 9 : what == 61 ? 4 : mock_hip.units;  // a gfx94x
  return (what != 63 && what != 23 && what != 61) || dev != mock_hip.current;
}
FN(hipDeviceGet, int *dev, int ordinal) {
  *dev = ordinal;
  return 0;
}
FN(hipDeviceGetName, char *s, int n, int dev) {
  strncpy(s, "Mock Instinct", (size_t)n);
  return dev != mock_hip.current;
}

// The name of the product looks like an architecture too.
static R properties(char *p, int dev, size_t at) {
  ENTER(hipGetDeviceProperties);
  strcpy(p, "gfx000 Accelerator");
  strcpy(p + at, mock_hip.arch);
  return dev != mock_hip.current;
}
#ifdef MOCK_OLD
FN(hipGetDeviceProperties, char *p, int dev) {
  return properties(p, dev, 396);
}
#else
FN(hipGetDevicePropertiesR0600, char *p, int dev) {
  return properties(p, dev, 1160);
}
FN(hipMalloc, void **p, size_t n) {
  ENTER(hipMalloc);
  mock_hip.allocs++;
  *p = aligned_alloc(256, (n + 255) & ~(size_t)255);
  return *p == NULL;
}
#endif
FN(hipFree, void *p) {
  mock_hip.frees++;
  free(p);
  return 0;
}

FN(hipModuleLoadData, void **mod, const void *image) {
  ENTER(hipModuleLoadData);
  memcpy(mock_hip.image, image, 4);
  *mod = &modules[mock_hip.loads++ % 8];
  return 0;
}
FN(hipModuleUnload, void *mod) {
  mock_hip.unloads += mod != NULL;
  return 0;
}
FN(hipModuleGetFunction, void **f, void *mod, const char *name) {
  ENTER(hipModuleGetFunction);
  char *s = symbols[nsymbols++ % 64];
  strncpy(s, name, 63);
  *f = s;
  return mod == NULL;
}
FN(hipFuncGetAttribute, int *v, int what, void *f) {
  ENTER(hipFuncGetAttribute);
  *v = mock_hip.local;
  return what != 3 || !f;
}
FN(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, int *n, void *f,
   int threads, size_t shared) {
  ENTER(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor);
  *n = threads > 1024 ? 0 : mock_hip.per_unit;
  return f == NULL || shared != 0;
}

FN(hipModuleLaunchKernel, void *f, unsigned gx, unsigned gy, unsigned gz,
   unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
   void **params, void **extra) {
  ENTER(hipModuleLaunchKernel);
  if (!f || gy != 1 || gz != 1 || by != 1 || bz != 1 || params || !gx ||
      extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)3)
    return 1;
  mock_hip.launches++;
  strcpy(mock_hip.symbol, f);
  memcpy(&mock_hip.block_bytes, extra[3], sizeof(size_t));
  if (mock_hip.block_bytes > sizeof mock_hip.block) return 1;
  memcpy(mock_hip.block, extra[1], mock_hip.block_bytes);
  mock_hip.grid = gx;
  mock_hip.threads = bx;
  mock_hip.shared_bytes = shared;
  mock_hip.stream = stream;
  mock_hip.device = mock_hip.current;
  return 0;
}

FN(hipPointerGetAttribute, void *v, int what, const char *p) {
  ENTER(hipPointerGetAttribute);
  uintptr_t at = (uintptr_t)p, from = (uintptr_t)mock_hip.device_memory;
  if (at < from || at >= from + mock_hip.device_bytes) return 1;
  *(int *)v = what == 2 ? 2 : 1;
  return what != 2 && what != 9;
}
FN(hipMemsetAsync, void *p, int v, size_t n, void *stream) {
  ENTER(hipMemsetAsync);
  memset(p, v, n);
  return stream == NULL;
}
FN(hipMemcpyHtoD, char *to, const void *from, size_t n) {
  memcpy(to, from, n);
  return 0;
}
FN(hipMemcpyDtoH, void *to, const char *from, size_t n) {
  memcpy(to, from, n);
  return 0;
}
FN(hipEventCreateWithFlags, void **e, unsigned flags) {
  static int events[1];
  *e = events;
  return flags != 0;
}
FN(hipEventRecord, void *e, const char *s) {
  return !e || !s;
}
FN(hipEventSynchronize, void *e) {
  return e == NULL;
}
FN(hipEventElapsedTime, float *ms, void *a, void *b) {
  *ms = 0.5f;
  return !a || !b;
}
FN(hipEventDestroy, void *e) {
  return e == NULL;
}
FN(hipStreamCreateWithFlags, void **s, unsigned flags) {
  ENTER(hipStreamCreateWithFlags);
  static int streams[1];
  *s = streams;
  return flags != 1;
}
FN(hipStreamSynchronize, void *s) {
  ENTER(hipStreamSynchronize);
  (void)s;
  return 0;
}
FN(hipStreamDestroy, void *s) {
  return s == NULL;
}
FN(hipStreamIsCapturing, void *s, int *status) {
  (void)s;
  *status = mock_hip.capturing;
  return 0;
}
FN(hipThreadExchangeStreamCaptureMode, int *mode) {
  static int now;
  int old = now;
  now = *mode;
  *mode = old;
  return 0;
}
