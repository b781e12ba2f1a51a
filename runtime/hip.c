// AMD's driver, through HIP: opened at run time, so that programs start
// without one. What a GPU is, its name says: "gfx942:sramecc+:xnack-".
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the driver's interface, as far as it is used

typedef int HipResult;
enum { HIP_OK = 0, HIP_INVALID_VALUE = 1 };
enum { HIP_ATTR_UNITS = 63, HIP_FUNC_LOCAL = 3 };
enum { HIP_POINTER_MEMORY = 2, HIP_POINTER_DEVICE = 9 };
enum { HIP_STREAM_NON_BLOCKING = 1, HIP_CAPTURE_RELAXED = 2 };

// SYMBOL(field, exported name, needed, parameters)
#define SYMBOLS(SYMBOL) \
  SYMBOL(init, "hipInit", 1, (unsigned flags)) \
  SYMBOL(count, "hipGetDeviceCount", 1, (int *n)) \
  SYMBOL(current, "hipGetDevice", 1, (int *dev)) \
  SYMBOL(set, "hipSetDevice", 1, (int dev)) \
  SYMBOL(attribute, "hipDeviceGetAttribute", 1, (int *v, int what, int dev)) \
  SYMBOL(properties, "hipGetDevicePropertiesR0600", 0, (void *p, int dev)) \
  SYMBOL(properties5, "hipGetDeviceProperties", 0, (void *p, int dev)) \
  SYMBOL(load, "hipModuleLoadData", 1, (void **mod, const void *image)) \
  SYMBOL(unload, "hipModuleUnload", 1, (void *mod)) \
  SYMBOL(function, "hipModuleGetFunction", 1, \
         (void **f, void *mod, const char *name)) \
  SYMBOL(func_get, "hipFuncGetAttribute", 1, (int *v, int what, void *f)) \
  SYMBOL(occupancy, "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", 1, \
         (int *n, void *f, int threads, size_t shared_bytes)) \
  SYMBOL(launch, "hipModuleLaunchKernel", 1, \
         (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, \
          unsigned by, unsigned bz, unsigned shared_bytes, void *stream, \
          void **params, void **extra)) \
  SYMBOL(alloc, "hipMalloc", 1, (void **p, size_t n)) \
  SYMBOL(free, "hipFree", 1, (void *p)) \
  SYMBOL(fill, "hipMemsetAsync", 1, (void *p, int v, size_t n, void *stream)) \
  SYMBOL(stream_create, "hipStreamCreateWithFlags", 1, \
         (void **s, unsigned flags)) \
  SYMBOL(stream_wait, "hipStreamSynchronize", 1, (void *s)) \
  SYMBOL(stream_destroy, "hipStreamDestroy", 1, (void *s)) \
  SYMBOL(pointer_get, "hipPointerGetAttribute", 0, \
         (void *v, int what, void *p)) \
  SYMBOL(capturing, "hipStreamIsCapturing", 1, (void *s, int *status)) \
  SYMBOL(capture_mode, "hipThreadExchangeStreamCaptureMode", 0, (int *mode))

typedef struct Hip {
  void *lib;
  const char *(*error_name)(HipResult e);
  const char *(*error_text)(HipResult e);
#define FIELD(field, name, needed, params) HipResult(*field) params;
  SYMBOLS(FIELD)
#undef FIELD
} Hip;

typedef struct HipDevice {
  GpuDevice base;
  void *memory;
} HipDevice;

static int failed(const Hip *hip, HipResult r, const char *what,
                  attn_error *err) {
  const char *name = hip->error_name(r), *text = hip->error_text(r);
  return rt_fail_at(err, ATTN_E_DEVICE, (Where){-1, -1, 0, r}, "%s: %s (%s)",
                    what, text ? text : "unknown error",
                    name ? name : "unknown error");
}

// ---- opening

const RtLibrary rt_hip_library = {"ATTN_HIP_DRIVER",
                                  {"libamdhip64.so.7", "libamdhip64.so.6",
                                   "libamdhip64.so.5", "libamdhip64.so"}};

static bool hip_present(void) {
  return rt_library_present(&rt_hip_library);
}

static const char *find_symbols(Hip *hip) {
#define FIND(field, name, needed, params) \
  if (!rt_symbol(hip->lib, name, &hip->field) && needed) return name;
  SYMBOLS(FIND)
#undef FIND
  if (!rt_symbol(hip->lib, "hipGetErrorName", &hip->error_name))
    return "hipGetErrorName";
  if (!rt_symbol(hip->lib, "hipGetErrorString", &hip->error_text))
    return "hipGetErrorString";
  return hip->properties || hip->properties5 ? NULL : "hipGetDeviceProperties";
}

static int hip_open(attn_ctx *cx, void *state, attn_error *err) {
  Hip *hip = state;
  (void)cx;
  hip->lib = rt_library_open(&rt_hip_library);
  if (!hip->lib)
    return rt_fail(err, ATTN_E_DEVICE, "no AMD driver: %.180s", dlerror());
  const char *missing = find_symbols(hip);
  if (missing) {
    dlclose(hip->lib);
    return rt_fail(err, ATTN_E_DEVICE, "the AMD driver is too old: it lacks %s",
                   missing);
  }
  HipResult r = hip->init(0);
  return r ? failed(hip, r, "hipInit", err) : ATTN_OK;
}

// The library itself stays: drivers do not like to be unloaded.
static void hip_close(void *state) {
  ((Hip *)state)->lib = NULL;
}

// ---- devices

static int blank_memory(const Hip *hip, HipDevice *d, attn_error *err) {
  void *stream = NULL;
  HipResult r = hip->alloc(&d->memory, GPU_MEMORY);
  if (r) return failed(hip, r, "hipMalloc", err);
  r = hip->stream_create(&stream, HIP_STREAM_NON_BLOCKING);
  if (!r) r = hip->fill(d->memory, 0, GPU_MEMORY, stream);
  if (!r) r = hip->stream_wait(stream);
  if (stream) hip->stream_destroy(stream);
  if (r) {
    hip->free(d->memory);
    return failed(hip, r, "hipMemsetAsync", err);
  }
  rt_gpu_memory(&d->base, d->memory);
  return ATTN_OK;
}

enum { PROPERTIES = 4096, NAME_BYTES = 256 };

// Where the name of the architecture is in the properties depends on the
// driver's version; the marketing name, the first 256 bytes, may begin alike.
// 0: there is none. gfx90a: 0x90a.
static uint32_t find_arch(const char *p) {
  for (size_t i = NAME_BYTES; i + 16 < PROPERTIES; i++) {
    if (memcmp(p + i, "gfx", 3)) continue;
    char *end;
    unsigned long n = strtoul(p + i + 3, &end, 16);
    if (end > p + i + 3 && (!*end || *end == ':')) return (uint32_t)n;
  }
  return 0;
}

static int describe_device(const Hip *hip, HipDevice *d, attn_error *err) {
  char p[PROPERTIES] = {0};
  int units = 0, dev = d->base.ordinal;
  HipResult r = hip->attribute(&units, HIP_ATTR_UNITS, dev);
  if (r) return failed(hip, r, "hipDeviceGetAttribute", err);
  r = hip->properties ? hip->properties(p, dev) : hip->properties5(p, dev);
  if (r) return failed(hip, r, "hipGetDeviceProperties", err);
  d->base.units = (uint32_t)units;
  d->base.arch = find_arch(p);
  return d->base.arch ? ATTN_OK
                      : rt_fail(err, ATTN_E_DEVICE,
                                "HIP device %d does not say what it is", dev);
}

static int make_device(attn_ctx *cx, const Hip *hip, int ordinal,
                       GpuDevice **out, attn_error *err) {
  HipDevice *d = rt_alloc(cx, sizeof *d);
  int mode = HIP_CAPTURE_RELAXED;
  if (!d) return rt_fail(err, ATTN_E_MEMORY, "no memory for a device");
  memset(d, 0, sizeof *d);
  d->base.ordinal = ordinal;
  // What is made here belongs to no graph.
  if (hip->capture_mode) hip->capture_mode(&mode);
  int rc = describe_device(hip, d, err);
  if (!rc) rc = blank_memory(hip, d, err);
  if (hip->capture_mode) hip->capture_mode(&mode);
  if (rc) rt_free(cx, d, sizeof *d);
  else *out = &d->base;
  return rc;
}

static void hip_leave(void *state, GpuScope scope) {
  if (scope.pushed) ((const Hip *)state)->set(scope.before);
}

static int check_ordinal(const Hip *hip, int ordinal, attn_error *err) {
  int n = 0;
  HipResult r = hip->count(&n);
  if (r) return failed(hip, r, "hipGetDeviceCount", err);
  if (ordinal >= 0 && ordinal < n) return ATTN_OK;
  return rt_fail_at(err, ATTN_E_DEVICE, (Where){-1, -1, n, ordinal},
                    "there is no HIP device %d", ordinal);
}

// A thread has a current device; a device has one context.
static int hip_enter(attn_ctx *cx, void *state, GpuDevice *known, int ordinal,
                     GpuScope *scope, attn_error *err) {
  const Hip *hip = state;
  *scope = (GpuScope){0};
  while (known && known->ordinal != ordinal) known = known->next;
  int rc = known ? ATTN_OK : check_ordinal(hip, ordinal, err);
  if (rc) return rc;
  HipResult r = hip->current(&scope->before);
  if (r) return failed(hip, r, "hipGetDevice", err);
  if (scope->before != ordinal) {
    r = hip->set(ordinal);
    if (r) return failed(hip, r, "hipSetDevice", err);
    scope->pushed = true;
  }
  scope->dev = known;
  rc = known ? ATTN_OK : make_device(cx, hip, ordinal, &scope->dev, err);
  if (rc) hip_leave(state, *scope);
  return rc;
}

static void hip_drop(attn_ctx *cx, void *state, GpuDevice *dev) {
  HipDevice *d = (HipDevice *)dev;
  ((const Hip *)state)->free(d->memory);
  rt_free(cx, d, sizeof *d);
}

// Code is for one architecture.
static uint32_t hip_suits(const GpuDevice *dev, uint32_t target, bool text) {
  (void)text;
  return target == ATTN_TARGET_GFX(dev->arch);
}

// ---- code

static int hip_load(void *state, const void *code, size_t n, bool text,
                    void **module, attn_error *err) {
  const Hip *hip = state;
  int mode = HIP_CAPTURE_RELAXED;
  (void)n;
  (void)text;
  if (hip->capture_mode) hip->capture_mode(&mode);
  HipResult r = hip->load(module, code);
  if (hip->capture_mode) hip->capture_mode(&mode);
  if (!r) return ATTN_OK;
  *module = NULL;
  return failed(hip, r, "hipModuleLoadData", err);
}

static void hip_unload(void *state, void *module) {
  ((const Hip *)state)->unload(module);
}

static int hip_function(void *state, void *module, const char *name,
                        const attn_gpu_phase *p, GpuFunc *out,
                        attn_error *err) {
  const Hip *hip = state;
  int n = 0, local = 0;
  HipResult r = hip->function(&out->handle, module, name);
  if (r) return failed(hip, r, "hipModuleGetFunction", err);
  r = hip->func_get(&local, HIP_FUNC_LOCAL, out->handle);
  if (r) return failed(hip, r, "hipFuncGetAttribute", err);
  if (local > 0 && !(p->flags & ATTN_GPU_LOCAL))
    return rt_fail(err, ATTN_E_UNSUPPORTED, "%s: spills %d bytes a thread",
                   name, local);
  r = hip->occupancy(&n, out->handle, (int)p->threads, 0);
  if (r)
    return failed(hip, r, "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
                  err);
  return rt_gpu_resident(name, p, n, out, err);
}

// ---- launching

static bool hip_encode(void *state, const GpuMap *map, void *out) {
  (void)state;
  (void)map;
  (void)out;
  return false;  // there are no tensor maps
}

static bool hip_capturing(void *state, void *stream) {
  int status = 0;
  return ((const Hip *)state)->capturing(stream, &status) == HIP_OK && status;
}

// A launch counts threads in 32 bits. Shared memory is the code object's own.
static int hip_launch(void *state, const GpuLaunch *l, void *stream,
                      attn_error *err) {
  const Hip *hip = state;
  size_t n = l->block_bytes;
  void *extra[] = {(void *)1, l->block, (void *)2, &n, (void *)3};
  if ((uint64_t)l->groups * l->threads > UINT32_MAX)
    return rt_fail(err, ATTN_E_UNSUPPORTED, "more than 2^32 threads");
  HipResult r = hip->launch(l->func.handle, l->groups, 1, 1, l->threads, 1, 1,
                            0, stream, NULL, extra);
  return r ? failed(hip, r, "hipModuleLaunchKernel", err) : ATTN_OK;
}

// Kinds of memory: to version 5 host 0, device 1; since then unknown 0, host
// 1, device 2. Memory that the driver does not know is the host's.
static int hip_owns(void *state, const void *data, bool *mine, int *ordinal,
                    attn_error *err) {
  const Hip *hip = state;
  void *p = (void *)(uintptr_t)data;
  int kind = 0;
  *mine = false;
  if (!hip->pointer_get)
    return rt_fail(err, ATTN_E_DEVICE,
                   "the AMD driver is too old: it lacks "
                   "hipPointerGetAttribute");
  HipResult r = hip->pointer_get(&kind, HIP_POINTER_MEMORY, p);
  if (r == HIP_INVALID_VALUE || (!r && kind < (hip->properties ? 2 : 1)))
    return ATTN_OK;
  if (!r) r = hip->pointer_get(ordinal, HIP_POINTER_DEVICE, p);
  *mine = !r;
  return r ? failed(hip, r, "hipPointerGetAttribute", err) : ATTN_OK;
}

const GpuDriver rt_hip = {
    .name = "libamdhip64.so",
    .kind = ATTN_HIP,
    .size = sizeof(Hip),
    .open = hip_open,
    .close = hip_close,
    .enter = hip_enter,
    .leave = hip_leave,
    .drop = hip_drop,
    .suits = hip_suits,
    .load = hip_load,
    .unload = hip_unload,
    .function = hip_function,
    .encode = hip_encode,
    .capturing = hip_capturing,
    .launch = hip_launch,
    .present = hip_present,
    .owns = hip_owns,
};
