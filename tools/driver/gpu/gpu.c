// Drivers of GPUs, CUDA and HIP, as far as tools need them beside libattn.
#include "tools/driver/gpu/gpu.h"

#include "runtime/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int Result;
typedef uint64_t Mem;

// Functions of CUDA and of HIP; NULL: it has none. Device memory is an integer
// there and a pointer here, a byte is a char or an int: passed alike.
#define SYMBOLS(SYMBOL) \
  SYMBOL(init, "cuInit", "hipInit", Result, (unsigned flags)) \
  SYMBOL(cuda_text, "cuGetErrorString", NULL, Result, \
         (Result e, const char **s)) \
  SYMBOL(hip_text, NULL, "hipGetErrorString", const char *, (Result e)) \
  SYMBOL(device, "cuDeviceGet", "hipDeviceGet", Result, \
         (int *dev, int ordinal)) \
  SYMBOL(device_name, "cuDeviceGetName", "hipDeviceGetName", Result, \
         (char *s, int n, int dev)) \
  SYMBOL(attribute, "cuDeviceGetAttribute", "hipDeviceGetAttribute", Result, \
         (int *v, int what, int dev)) \
  SYMBOL(retain, "cuDevicePrimaryCtxRetain", NULL, Result, \
         (void **ctx, int dev)) \
  SYMBOL(release, "cuDevicePrimaryCtxRelease_v2", NULL, Result, (int dev)) \
  SYMBOL(set_context, "cuCtxSetCurrent", NULL, Result, (void *ctx)) \
  SYMBOL(set_device, NULL, "hipSetDevice", Result, (int dev)) \
  SYMBOL(alloc, "cuMemAlloc_v2", "hipMalloc", Result, (Mem * p, size_t n)) \
  SYMBOL(free, "cuMemFree_v2", "hipFree", Result, (Mem p)) \
  SYMBOL(fill, "cuMemsetD8Async", "hipMemsetAsync", Result, \
         (Mem p, int v, size_t n, void *stream)) \
  SYMBOL(upload, "cuMemcpyHtoD_v2", "hipMemcpyHtoD", Result, \
         (Mem to, const void *from, size_t n)) \
  SYMBOL(download, "cuMemcpyDtoH_v2", "hipMemcpyDtoH", Result, \
         (void *to, Mem from, size_t n)) \
  SYMBOL(stream_create, "cuStreamCreate", "hipStreamCreateWithFlags", Result, \
         (void **s, unsigned flags)) \
  SYMBOL(stream_wait, "cuStreamSynchronize", "hipStreamSynchronize", Result, \
         (void *s)) \
  SYMBOL(stream_destroy, "cuStreamDestroy_v2", "hipStreamDestroy", Result, \
         (void *s)) \
  SYMBOL(event_create, "cuEventCreate", "hipEventCreateWithFlags", Result, \
         (void **e, unsigned flags)) \
  SYMBOL(event_record, "cuEventRecord", "hipEventRecord", Result, \
         (void *e, void *stream)) \
  SYMBOL(event_wait, "cuEventSynchronize", "hipEventSynchronize", Result, \
         (void *e)) \
  SYMBOL(event_time, "cuEventElapsedTime", "hipEventElapsedTime", Result, \
         (float *ms, void *a, void *b)) \
  SYMBOL(event_destroy, "cuEventDestroy_v2", "hipEventDestroy", Result, \
         (void *e))

struct DrvGpuApi {
#define FIELD(field, cuda, hip, result, params) result(*field) params;
  SYMBOLS(FIELD)
#undef FIELD
};

enum {
#define INDEX(field, cuda, hip, result, params) S_##field,
  SYMBOLS(INDEX)
#undef INDEX
};

static const struct {
  size_t at;
  const char *name[2];
} symbols[] = {
#define ROW(field, cuda, hip, result, params) \
  {offsetof(struct DrvGpuApi, field), {cuda, hip}},
    SYMBOLS(ROW)
#undef ROW
};

// Attributes of a device: its multiprocessors and its version.
typedef struct Vendor {
  const char *name, *arch;
  const RtLibrary *library;
  int units, major, minor;
} Vendor;

static const Vendor vendors[] = {{"NVIDIA", "sm_%d%d", &rt_cuda_library, 16, 75,
                                  76},
                                 {"AMD", "gfx%d%dx", &rt_hip_library, 63, 23,
                                  61}};

enum { NON_BLOCKING = 1 };

static const Vendor *vendor(const DrvGpu *g) {
  return &vendors[g->amd];
}

static Mem mem(const void *p) {
  return (uintptr_t)p;
}

static const char *text_of(const DrvGpu *g, Result r) {
  const char *text = NULL;
  if (g->amd) return g->api->hip_text(r);
  return g->api->cuda_text(r, &text) || !text ? "unknown error" : text;
}

static bool ok(DrvGpu *g, Result r, int symbol) {
  if (r)
    snprintf(g->error, sizeof g->error, "%s: %s", symbols[symbol].name[g->amd],
             text_of(g, r));
  return !r;
}

#define CALL(g, f, ...) ok(g, (g)->api->f(__VA_ARGS__), S_##f)

// ---------------------------------------------------------------- opening
static bool open_library(DrvGpu *g) {
  g->lib = rt_library_open(vendor(g)->library);
  if (!g->lib)
    snprintf(g->error, sizeof g->error, "no %s driver: %.180s", vendor(g)->name,
             dlerror());
  return g->lib != NULL;
}

static bool find_all(DrvGpu *g) {
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    const char *name = symbols[i].name[g->amd];
    if (!name || rt_symbol(g->lib, name, (char *)g->api + symbols[i].at))
      continue;
    snprintf(g->error, sizeof g->error, "the %s driver lacks %s",
             vendor(g)->name, name);
    return false;
  }
  return true;
}

static bool make_current(DrvGpu *g) {
  if (g->amd) return CALL(g, set_device, g->dev);
  return CALL(g, retain, &g->ctx, g->dev) && CALL(g, set_context, g->ctx);
}

static bool open_device(DrvGpu *g) {
  const Vendor *v = vendor(g);
  int major = 0, minor = 0, units = 0;
  bool good = CALL(g, init, 0) && CALL(g, device, &g->dev, g->ordinal) &&
              CALL(g, device_name, g->name, sizeof g->name, g->dev) &&
              CALL(g, attribute, &major, v->major, g->dev) &&
              CALL(g, attribute, &minor, v->minor, g->dev) &&
              CALL(g, attribute, &units, v->units, g->dev);
  g->version = 10 * major + minor;
  g->units = (uint32_t)units;
  snprintf(g->arch, sizeof g->arch, v->arch, major, minor);
  return good;
}

bool drv_gpu_open(DrvGpu *g, bool amd, int ordinal) {
  *g = (DrvGpu){.ordinal = ordinal, .amd = amd};
  g->api = calloc(1, sizeof *g->api);
  return g->api && open_library(g) && find_all(g) && open_device(g) &&
         make_current(g) && CALL(g, stream_create, &g->stream, NON_BLOCKING) &&
         CALL(g, event_create, &g->event[0], 0) &&
         CALL(g, event_create, &g->event[1], 0);
}

void drv_gpu_close(DrvGpu *g) {
  for (int i = 0; i < 2; i++)
    if (g->event[i]) g->api->event_destroy(g->event[i]);
  if (g->stream) g->api->stream_destroy(g->stream);
  if (g->ctx) g->api->release(g->dev);
  free(g->api);
  *g = (DrvGpu){.ordinal = g->ordinal, .amd = g->amd};
}

// ---------------------------------------------------------------- memory
bool drv_gpu_alloc(DrvGpu *g, size_t n, void **p) {
  Mem m = 0;
  if (!CALL(g, alloc, &m, n ? n : 1)) return false;
  *p = (void *)(uintptr_t)m;
  return drv_gpu_poison(g, *p, n);
}

bool drv_gpu_poison(DrvGpu *g, void *p, size_t n) {
  return !n || (CALL(g, fill, mem(p), 0xff, n, g->stream) && drv_gpu_wait(g));
}

void drv_gpu_free(DrvGpu *g, void *p) {
  if (p) g->api->free(mem(p));
}

// The copy may return when the data are staged, and launches go to a stream
// that does not wait for the default one.
bool drv_gpu_upload(DrvGpu *g, void *to, const void *from, size_t n) {
  return !n ||
         (CALL(g, upload, mem(to), from, n) && CALL(g, stream_wait, NULL));
}

bool drv_gpu_download(DrvGpu *g, void *to, const void *from, size_t n) {
  return !n || CALL(g, download, to, mem(from), n);
}

// ---------------------------------------------------------------- time
bool drv_gpu_wait(DrvGpu *g) {
  return CALL(g, stream_wait, g->stream);
}

bool drv_gpu_mark(DrvGpu *g, int which) {
  return CALL(g, event_record, g->event[which], g->stream);
}

bool drv_gpu_seconds(DrvGpu *g, double *s) {
  float ms = 0;
  bool good = CALL(g, event_wait, g->event[1]) &&
              CALL(g, event_time, &ms, g->event[0], g->event[1]);
  *s = (double)ms * 1e-3;
  return good;
}
