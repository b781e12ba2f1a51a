// NVIDIA's driver interface, as far as tools need it beside libattn.
#include "tools/driver/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CuResult;
typedef uint64_t Mem;

#define SYMBOLS(SYMBOL)                                                      \
  SYMBOL(init, "cuInit", (unsigned flags))                                   \
  SYMBOL(error_text, "cuGetErrorString", (CuResult e, const char **s))       \
  SYMBOL(device, "cuDeviceGet", (int *dev, int ordinal))                     \
  SYMBOL(device_name, "cuDeviceGetName", (char *s, int n, int dev))          \
  SYMBOL(attribute, "cuDeviceGetAttribute", (int *v, int what, int dev))     \
  SYMBOL(retain, "cuDevicePrimaryCtxRetain", (void **ctx, int dev))          \
  SYMBOL(release, "cuDevicePrimaryCtxRelease_v2", (int dev))                 \
  SYMBOL(set_current, "cuCtxSetCurrent", (void *ctx))                        \
  SYMBOL(alloc, "cuMemAlloc_v2", (Mem *p, size_t n))                         \
  SYMBOL(free, "cuMemFree_v2", (Mem p))                                      \
  SYMBOL(fill, "cuMemsetD8Async",                                            \
         (Mem p, unsigned char v, size_t n, void *stream))                   \
  SYMBOL(upload, "cuMemcpyHtoD_v2", (Mem to, const void *from, size_t n))    \
  SYMBOL(download, "cuMemcpyDtoH_v2", (void *to, Mem from, size_t n))        \
  SYMBOL(stream_create, "cuStreamCreate", (void **s, unsigned flags))        \
  SYMBOL(stream_wait, "cuStreamSynchronize", (void *s))                      \
  SYMBOL(stream_destroy, "cuStreamDestroy_v2", (void *s))                    \
  SYMBOL(event_create, "cuEventCreate", (void **e, unsigned flags))          \
  SYMBOL(event_record, "cuEventRecord", (void *e, void *stream))             \
  SYMBOL(event_wait, "cuEventSynchronize", (void *e))                        \
  SYMBOL(event_time, "cuEventElapsedTime", (float *ms, void *a, void *b))    \
  SYMBOL(event_destroy, "cuEventDestroy_v2", (void *e))

struct DrvGpuApi {
#define FIELD(field, name, params) CuResult (*field) params;
  SYMBOLS(FIELD)
#undef FIELD
};

enum { SMS = 16, MAJOR = 75, MINOR = 76, NON_BLOCKING = 1 };

static Mem mem(const void *p) { return (uintptr_t)p; }

static bool ok(DrvGpu *g, CuResult r, const char *what) {
  const char *text = NULL;
  if (!r) return true;
  if (g->api->error_text(r, &text) || !text) text = "unknown error";
  snprintf(g->error, sizeof g->error, "%s: %s", what, text);
  return false;
}

// ---------------------------------------------------------------- opening
static bool open_library(DrvGpu *g) {
  const char *path = getenv("ATTN_CUDA_DRIVER");
  const char *name = path && *path ? path : "libcuda.so.1";
  g->lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!g->lib)
    snprintf(g->error, sizeof g->error, "no NVIDIA driver: %.180s", dlerror());
  return g->lib != NULL;
}

// Object pointers do not convert to function pointers in C.
static bool find(DrvGpu *g, const char *name, void *fn) {
  void *p = dlsym(g->lib, name);
  memcpy(fn, &p, sizeof p);
  if (!p)
    snprintf(g->error, sizeof g->error, "the NVIDIA driver lacks %s", name);
  return p != NULL;
}

static bool find_all(DrvGpu *g) {
#define FIND(field, name, params) \
  if (!find(g, name, &g->api->field)) return false;
  SYMBOLS(FIND)
#undef FIND
  return true;
}

static bool open_device(DrvGpu *g) {
  const struct DrvGpuApi *a = g->api;
  int major = 0, minor = 0, sms = 0;
  bool good = ok(g, a->init(0), "cuInit") &&
              ok(g, a->device(&g->dev, g->ordinal), "cuDeviceGet") &&
              ok(g, a->device_name(g->name, sizeof g->name, g->dev),
                 "cuDeviceGetName") &&
              ok(g, a->attribute(&major, MAJOR, g->dev), "cuDeviceGet") &&
              ok(g, a->attribute(&minor, MINOR, g->dev), "cuDeviceGet") &&
              ok(g, a->attribute(&sms, SMS, g->dev), "cuDeviceGet") &&
              ok(g, a->retain(&g->ctx, g->dev), "cuDevicePrimaryCtxRetain");
  g->arch = 10 * major + minor;
  g->sms = (uint32_t)sms;
  return good;
}

bool drv_gpu_open(DrvGpu *g, int ordinal) {
  *g = (DrvGpu){.ordinal = ordinal};
  g->api = calloc(1, sizeof *g->api);
  if (!g->api || !open_library(g) || !find_all(g) || !open_device(g))
    return false;
  const struct DrvGpuApi *a = g->api;
  return ok(g, a->set_current(g->ctx), "cuCtxSetCurrent") &&
         ok(g, a->stream_create(&g->stream, NON_BLOCKING), "cuStreamCreate") &&
         ok(g, a->event_create(&g->event[0], 0), "cuEventCreate") &&
         ok(g, a->event_create(&g->event[1], 0), "cuEventCreate");
}

void drv_gpu_close(DrvGpu *g) {
  for (int i = 0; i < 2; i++)
    if (g->event[i]) g->api->event_destroy(g->event[i]);
  if (g->stream) g->api->stream_destroy(g->stream);
  if (g->ctx) g->api->release(g->dev);
  free(g->api);
  *g = (DrvGpu){.ordinal = g->ordinal};
}

// ---------------------------------------------------------------- memory
bool drv_gpu_alloc(DrvGpu *g, size_t n, void **p) {
  Mem m = 0;
  if (!ok(g, g->api->alloc(&m, n ? n : 1), "cuMemAlloc")) return false;
  *p = (void *)(uintptr_t)m;
  return drv_gpu_poison(g, *p, n);
}

bool drv_gpu_poison(DrvGpu *g, void *p, size_t n) {
  return !n || (ok(g, g->api->fill(mem(p), 0xff, n, g->stream),
                   "cuMemsetD8Async") &&
                drv_gpu_wait(g));
}

void drv_gpu_free(DrvGpu *g, void *p) {
  if (p) g->api->free(mem(p));
}

// The copy may return when the data are staged, and launches go to a stream
// that does not wait for the default one.
bool drv_gpu_upload(DrvGpu *g, void *to, const void *from, size_t n) {
  return !n || (ok(g, g->api->upload(mem(to), from, n), "cuMemcpyHtoD") &&
                ok(g, g->api->stream_wait(NULL), "cuStreamSynchronize"));
}

bool drv_gpu_download(DrvGpu *g, void *to, const void *from, size_t n) {
  return !n || ok(g, g->api->download(to, mem(from), n), "cuMemcpyDtoH");
}

// ---------------------------------------------------------------- time
bool drv_gpu_wait(DrvGpu *g) {
  return ok(g, g->api->stream_wait(g->stream), "cuStreamSynchronize");
}

bool drv_gpu_mark(DrvGpu *g, int which) {
  return ok(g, g->api->event_record(g->event[which], g->stream),
            "cuEventRecord");
}

bool drv_gpu_seconds(DrvGpu *g, double *s) {
  float ms = 0;
  bool good = ok(g, g->api->event_wait(g->event[1]), "the kernel") &&
              ok(g, g->api->event_time(&ms, g->event[0], g->event[1]),
                 "cuEventElapsedTime");
  *s = (double)ms * 1e-3;
  return good;
}
