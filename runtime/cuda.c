// NVIDIA's driver: opened at run time, so that programs start without one.
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the driver's interface, as far as it is used

typedef int CuResult;
enum { CU_OK = 0, CU_ATTR_SMS = 16, CU_ATTR_MAJOR = 75, CU_ATTR_MINOR = 76 };
enum { CU_FUNC_LOCAL = 3, CU_FUNC_SHARED = 8 };
enum { CU_JIT_ERROR_LOG = 5, CU_JIT_ERROR_LOG_SIZE = 6 };
enum { CU_POINTER_MEMORY = 2, CU_POINTER_DEVICE = 9, CU_MEMORY_HOST = 1 };
enum { CU_INVALID_VALUE = 1 };
enum { CU_STREAM_NON_BLOCKING = 1, CU_CAPTURE_RELAXED = 2 };

// CUlaunchAttribute, CUlaunchConfig.
typedef struct CuLaunchAttr {
  int what, pad;
  union {
    int flag;
    char bytes[64];
  } value;
} CuLaunchAttr;
typedef struct CuLaunch {
  unsigned grid[3], threads[3], shared_bytes;
  void *stream;
  CuLaunchAttr *attrs;
  unsigned nattrs;
} CuLaunch;
enum { CU_LAUNCH_EARLY = 6 };  // programmatic stream serialization

// SYMBOL(field, exported name, needed, parameters)
#define SYMBOLS(SYMBOL) \
  SYMBOL(init, "cuInit", 1, (unsigned flags)) \
  SYMBOL(error_name, "cuGetErrorName", 1, (CuResult e, const char **s)) \
  SYMBOL(error_text, "cuGetErrorString", 1, (CuResult e, const char **s)) \
  SYMBOL(device, "cuDeviceGet", 1, (int *dev, int ordinal)) \
  SYMBOL(attribute, "cuDeviceGetAttribute", 1, (int *v, int what, int dev)) \
  SYMBOL(retain, "cuDevicePrimaryCtxRetain", 1, (void **ctx, int dev)) \
  SYMBOL(release, "cuDevicePrimaryCtxRelease_v2", 1, (int dev)) \
  SYMBOL(current, "cuCtxGetCurrent", 1, (void **ctx)) \
  SYMBOL(current_device, "cuCtxGetDevice", 1, (int *dev)) \
  SYMBOL(push, "cuCtxPushCurrent_v2", 1, (void *ctx)) \
  SYMBOL(pop, "cuCtxPopCurrent_v2", 1, (void **ctx)) \
  SYMBOL(context_id, "cuCtxGetId", 0, (void *ctx, unsigned long long *id)) \
  SYMBOL(load, "cuModuleLoadDataEx", 1, \
         (void **mod, const void *image, unsigned n, int *opts, void **vals)) \
  SYMBOL(unload, "cuModuleUnload", 1, (void *mod)) \
  SYMBOL(function, "cuModuleGetFunction", 1, \
         (void **f, void *mod, const char *name)) \
  SYMBOL(func_get, "cuFuncGetAttribute", 1, (int *v, int what, void *f)) \
  SYMBOL(func_set, "cuFuncSetAttribute", 1, (void *f, int what, int v)) \
  SYMBOL(param_info, "cuFuncGetParamInfo", 0, \
         (void *f, size_t i, size_t *offset, size_t *size)) \
  SYMBOL(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 1, \
         (int *n, void *f, int threads, size_t shared_bytes)) \
  SYMBOL(encode, "cuTensorMapEncodeTiled", 1, \
         (void *map, int type, unsigned rank, void *data, \
          const uint64_t *extents, const uint64_t *strides, \
          const uint32_t *box, const uint32_t *step, int interleave, \
          int swizzle, int promotion, int fill)) \
  SYMBOL(launch, "cuLaunchKernel", 1, \
         (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, \
          unsigned by, unsigned bz, unsigned shared_bytes, void *stream, \
          void **params, void **extra)) \
  SYMBOL(launch_ex, "cuLaunchKernelEx", 0, \
         (const CuLaunch *l, void *f, void **params, void **extra)) \
  SYMBOL(alloc, "cuMemAlloc_v2", 1, (uint64_t *p, size_t n)) \
  SYMBOL(free, "cuMemFree_v2", 1, (uint64_t p)) \
  SYMBOL(fill, "cuMemsetD8Async", 1, \
         (uint64_t p, unsigned char v, size_t n, void *stream)) \
  SYMBOL(stream_create, "cuStreamCreate", 1, (void **s, unsigned flags)) \
  SYMBOL(stream_wait, "cuStreamSynchronize", 1, (void *s)) \
  SYMBOL(stream_destroy, "cuStreamDestroy_v2", 1, (void *s)) \
  SYMBOL(pointer_get, "cuPointerGetAttribute", 0, \
         (void *v, int what, uint64_t p)) \
  SYMBOL(capturing, "cuStreamIsCapturing", 1, (void *s, int *status)) \
  SYMBOL(capture_mode, "cuThreadExchangeStreamCaptureMode", 1, (int *mode))

typedef struct Cuda {
  void *lib;
#define FIELD(field, name, needed, params) CuResult(*field) params;
  SYMBOLS(FIELD)
#undef FIELD
} Cuda;

typedef struct CudaDevice {
  GpuDevice base;
  void *ctx;
  int dev;
  bool primary;  // retained by us
  uint64_t memory;
} CudaDevice;

static int failed(const Cuda *cu, CuResult r, const char *what,
                  attn_error *err) {
  const char *name = NULL, *text = NULL;
  if (cu->error_name(r, &name) != CU_OK || cu->error_text(r, &text) != CU_OK)
    name = text = "unknown error";
  return rt_fail_at(err, ATTN_E_DEVICE, (Where){-1, -1, 0, r}, "%s: %s (%s)",
                    what, text, name);
}

// ---- opening

const RtLibrary rt_cuda_library = {"ATTN_CUDA_DRIVER",
                                   {"libcuda.so.1", "libcuda.so"}};

static bool cuda_present(void) {
  return rt_library_present(&rt_cuda_library);
}

static const char *find_symbols(Cuda *cu) {
#define FIND(field, name, needed, params) \
  if (!rt_symbol(cu->lib, name, &cu->field) && needed) return name;
  SYMBOLS(FIND)
#undef FIND
  return NULL;
}

static int cuda_open(attn_ctx *cx, void *state, attn_error *err) {
  Cuda *cu = state;
  (void)cx;
  cu->lib = rt_library_open(&rt_cuda_library);
  if (!cu->lib)
    return rt_fail(err, ATTN_E_DEVICE, "no NVIDIA driver: %.180s", dlerror());
  const char *missing = find_symbols(cu);
  if (missing) {
    dlclose(cu->lib);
    return rt_fail(err, ATTN_E_DEVICE,
                   "the NVIDIA driver is too old: it lacks %s", missing);
  }
  CuResult r = cu->init(0);
  return r ? failed(cu, r, "cuInit", err) : ATTN_OK;
}

// The library itself stays: drivers do not like to be unloaded.
static void cuda_close(void *state) {
  ((Cuda *)state)->lib = NULL;
}

// ---- devices

static uint64_t context_id(const Cuda *cu, void *ctx) {
  unsigned long long id;
  bool known = cu->context_id && cu->context_id(ctx, &id) == CU_OK;
  return known ? id : (uintptr_t)ctx;
}

// Memory for counters and blank tensors, zeroed without touching streams of
// the application, which may be capturing.
static int blank_memory(const Cuda *cu, CudaDevice *d, attn_error *err) {
  void *stream = NULL;
  CuResult r = cu->alloc(&d->memory, GPU_MEMORY);
  if (r) return failed(cu, r, "cuMemAlloc", err);
  r = cu->stream_create(&stream, CU_STREAM_NON_BLOCKING);
  if (!r) r = cu->fill(d->memory, 0, GPU_MEMORY, stream);
  if (!r) r = cu->stream_wait(stream);
  if (stream) cu->stream_destroy(stream);
  if (r) {
    cu->free(d->memory);
    return failed(cu, r, "cuMemsetD8Async", err);
  }
  rt_gpu_memory(&d->base, (char *)(uintptr_t)d->memory);
  return ATTN_OK;
}

static int describe_device(const Cuda *cu, CudaDevice *d, attn_error *err) {
  int sms = 0, major = 0, minor = 0;
  CuResult r = cu->attribute(&sms, CU_ATTR_SMS, d->dev);
  if (!r) r = cu->attribute(&major, CU_ATTR_MAJOR, d->dev);
  if (!r) r = cu->attribute(&minor, CU_ATTR_MINOR, d->dev);
  if (r) return failed(cu, r, "cuDeviceGetAttribute", err);
  d->base.units = (uint32_t)sms;
  d->base.arch = (uint32_t)(10 * major + minor);
  return ATTN_OK;
}

// In whatever capture mode the thread is: what is made here belongs to no
// graph.
static int make_device(attn_ctx *cx, const Cuda *cu, CudaDevice proto,
                       GpuDevice **out, attn_error *err) {
  CudaDevice *d = rt_alloc(cx, sizeof *d);
  int mode = CU_CAPTURE_RELAXED;
  if (!d) return rt_fail(err, ATTN_E_MEMORY, "no memory for a device");
  *d = proto;
  cu->capture_mode(&mode);
  int rc = describe_device(cu, d, err);
  if (!rc) rc = blank_memory(cu, d, err);
  cu->capture_mode(&mode);
  if (rc) rt_free(cx, d, sizeof *d);
  else *out = &d->base;
  return rc;
}

static GpuDevice *known_context(GpuDevice *known, uint64_t id, int ordinal) {
  for (; known; known = known->next)
    if (known->id == id && known->ordinal == ordinal) return known;
  return NULL;
}

static CudaDevice *known_primary(GpuDevice *known, int ordinal) {
  for (; known; known = known->next) {
    CudaDevice *d = (CudaDevice *)known;
    if (d->primary && known->ordinal == ordinal) return d;
  }
  return NULL;
}

// Makes the device's primary context current; its first use retains it. d: the
// device but for its context.
static int enter_primary(attn_ctx *cx, const Cuda *cu, GpuDevice *known,
                         CudaDevice d, GpuScope *scope, attn_error *err) {
  CudaDevice *have = known_primary(known, d.base.ordinal);
  void *ctx = have ? have->ctx : NULL;
  CuResult r = have ? CU_OK : cu->retain(&ctx, d.dev);
  if (r) return failed(cu, r, "cuDevicePrimaryCtxRetain", err);
  r = cu->push(ctx);
  int rc = r ? failed(cu, r, "cuCtxPushCurrent", err) : ATTN_OK;
  scope->pushed = !r;
  if (have) {
    scope->dev = &have->base;
  } else if (!rc) {
    d.base.id = context_id(cu, ctx);
    d.ctx = ctx;
    d.primary = true;
    rc = make_device(cx, cu, d, &scope->dev, err);
  }
  if (rc && scope->pushed) cu->pop(&ctx);
  if (rc && !have) cu->release(d.dev);
  return rc;
}

// The calling thread's context if it is of this device, as a stream belongs to
// the context it was made in; else the device's primary one.
static int cuda_enter(attn_ctx *cx, void *state, GpuDevice *known, int ordinal,
                      GpuScope *scope, attn_error *err) {
  const Cuda *cu = state;
  void *ctx = NULL;
  int here = -1;
  CudaDevice d = {.base.ordinal = ordinal, .dev = -1};
  *scope = (GpuScope){0};
  CuResult r = cu->device(&d.dev, ordinal);
  if (r) return failed(cu, r, "cuDeviceGet", err);
  r = cu->current(&ctx);
  if (r) return failed(cu, r, "cuCtxGetCurrent", err);
  if (!ctx || cu->current_device(&here) != CU_OK || here != d.dev)
    return enter_primary(cx, cu, known, d, scope, err);
  d.base.id = context_id(cu, ctx);
  d.ctx = ctx;
  scope->dev = known_context(known, d.base.id, ordinal);
  return scope->dev ? ATTN_OK : make_device(cx, cu, d, &scope->dev, err);
}

static void cuda_leave(void *state, GpuScope scope) {
  void *ctx;
  if (scope.pushed) ((const Cuda *)state)->pop(&ctx);
}

// A context that the application made may be gone, and its memory with it.
static void cuda_drop(attn_ctx *cx, void *state, GpuDevice *dev) {
  const Cuda *cu = state;
  CudaDevice *d = (CudaDevice *)dev;
  void *ctx;
  if (d->primary && cu->push(d->ctx) == CU_OK) {
    cu->free(d->memory);
    cu->pop(&ctx);
  }
  if (d->primary) cu->release(d->dev);
  rt_free(cx, d, sizeof *d);
}

// sm_90a runs on 9.0 only; other machine code on later minors of its major,
// other text on everything later.
static uint32_t cuda_suits(const GpuDevice *dev, uint32_t target, bool text) {
  uint32_t cc = (target & 0xffff) >> 1, exact = target & 1;
  if (target >> 16 != 1 || cc > dev->arch || (exact && cc != dev->arch))
    return 0;
  return text || cc / 10 == dev->arch / 10 ? 2 * cc + exact : 0;
}

// ---- code

// The compiler's first line of complaint, without its ends.
static const char *first_line(char *log) {
  char *s = log + strspn(log, " \n\t");
  s[strcspn(s, "\n")] = 0;
  return s;
}

static int cuda_load(void *state, const void *code, size_t n, bool text,
                     void **module, attn_error *err) {
  const Cuda *cu = state;
  char log[1024] = "";
  int opts[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_SIZE};
  void *vals[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
  int mode = CU_CAPTURE_RELAXED;
  (void)n;
  cu->capture_mode(&mode);
  CuResult r = cu->load(module, code, text ? 2 : 0, opts, vals);
  cu->capture_mode(&mode);
  if (!r) return ATTN_OK;
  *module = NULL;
  int rc = failed(cu, r, "cuModuleLoadDataEx", err);
  if (log[0] && err) {
    size_t at = strlen(err->text);
    snprintf(err->text + at, sizeof err->text - at, ": %s", first_line(log));
  }
  return rc;
}

static void cuda_unload(void *state, void *module) {
  ((const Cuda *)state)->unload(module);
}

// Spilled registers where there were none, in machine code: it is not what it
// says that it is. Other code, or an error, is better than that.
static int check_local(const Cuda *cu, void *f, const char *name,
                       const attn_gpu_phase *p, attn_error *err) {
  int local = 0;
  CuResult r = cu->func_get(&local, CU_FUNC_LOCAL, f);
  if (r) return failed(cu, r, "cuFuncGetAttribute", err);
  if (local > 0 && !(p->flags & ATTN_GPU_LOCAL))
    return rt_fail(err, ATTN_E_UNSUPPORTED,
                   "%s: its code spills %d bytes a thread", name, local);
  return ATTN_OK;
}

static int check_block(const Cuda *cu, void *f, const char *name,
                       const attn_gpu_phase *p, attn_error *err) {
  size_t offset, size;
  if (!cu->param_info || cu->param_info(f, 0, &offset, &size) != CU_OK ||
      size == p->block_bytes)
    return ATTN_OK;
  return rt_fail(err, ATTN_E_INTERNAL,
                 "%s: its parameter block has %zu bytes, the record says %u",
                 name, size, p->block_bytes);
}

static int cuda_function(void *state, void *module, const char *name,
                         const attn_gpu_phase *p, GpuFunc *out,
                         attn_error *err) {
  const Cuda *cu = state;
  int n = 0;
  CuResult r = cu->function(&out->handle, module, name);
  if (r) return failed(cu, r, "cuModuleGetFunction", err);
  int rc = check_local(cu, out->handle, name, p, err);
  if (!rc) rc = check_block(cu, out->handle, name, p, err);
  if (rc) return rc;
  r = cu->func_set(out->handle, CU_FUNC_SHARED, (int)p->shared_bytes);
  if (r)
    return rt_fail(err, ATTN_E_UNSUPPORTED,
                   "%s: the device does not give a group %u bytes of shared "
                   "memory",
                   name, p->shared_bytes);
  r = cu->occupancy(&n, out->handle, (int)p->threads, p->shared_bytes);
  if (r)
    return failed(cu, r, "cuOccupancyMaxActiveBlocksPerMultiprocessor", err);
  return rt_gpu_resident(name, p, n, out, err);
}

// ---- launching

// CUtensorMapDataType by attn_dtype. Bytes stand for 8-bit floats: copies do
// not look at values.
static const int map_types[ATTN_DTYPE_COUNT] = {
    [ATTN_F64] = 8, [ATTN_F32] = 7,    [ATTN_TF32] = 7,   [ATTN_BF16] = 9,
    [ATTN_F16] = 6, [ATTN_F8E4M3] = 0, [ATTN_F8E5M2] = 0, [ATTN_I64] = 5,
    [ATTN_I32] = 3, [ATTN_I16] = 1,    [ATTN_I8] = 0,     [ATTN_U32] = 2,
    [ATTN_U16] = 1, [ATTN_U8] = 0,     [ATTN_BOOL] = 0};

static int swizzle_mode(uint32_t bytes) {
  return bytes == 128 ? 3 : bytes == 64 ? 2 : bytes == 32 ? 1 : 0;
}

static bool cuda_encode(void *state, const GpuMap *m, void *out) {
  static const uint32_t step[ATTN_MAP_RANK] = {1, 1, 1, 1, 1};
  const Cuda *cu = state;
  enum { PROMOTE_128 = 2, PROMOTE_256 = 3 };
  // The driver's pointer is to memory it does not write here.
  return cu->encode(out, map_types[m->dtype], m->rank,
                    (void *)(uintptr_t)m->data, m->extent, m->stride + 1,
                    m->box, step, 0, swizzle_mode(m->swizzle),
                    m->once ? PROMOTE_128 : PROMOTE_256, 0) == CU_OK;
}

static bool cuda_capturing(void *state, void *stream) {
  int status = 0;
  return ((const Cuda *)state)->capturing(stream, &status) == CU_OK && status;
}

// The kernel waits by itself for what is in front of it in the stream.
static CuResult launch_early(const Cuda *cu, const GpuLaunch *l, void *stream,
                             void **params) {
  CuLaunchAttr early = {.what = CU_LAUNCH_EARLY, .value = {.flag = 1}};
  CuLaunch x = {{l->groups, 1, 1},
                {l->threads, 1, 1},
                l->shared_bytes,
                stream,
                &early,
                1};
  return cu->launch_ex(&x, l->func.handle, params, NULL);
}

static int cuda_launch(void *state, const GpuLaunch *l, void *stream,
                       attn_error *err) {
  const Cuda *cu = state;
  void *params[] = {l->block};
  if (l->early && cu->launch_ex) {
    CuResult r = launch_early(cu, l, stream, params);
    return r ? failed(cu, r, "cuLaunchKernelEx", err) : ATTN_OK;
  }
  CuResult r = cu->launch(l->func.handle, l->groups, 1, 1, l->threads, 1, 1,
                          l->shared_bytes, stream, params, NULL);
  return r ? failed(cu, r, "cuLaunchKernel", err) : ATTN_OK;
}

// Memory that the driver does not know is the host's.
static int cuda_owns(void *state, const void *data, bool *mine, int *ordinal,
                     attn_error *err) {
  const Cuda *cu = state;
  uint64_t p = (uintptr_t)data;
  unsigned kind = CU_MEMORY_HOST;
  *mine = false;
  if (!cu->pointer_get)
    return rt_fail(err, ATTN_E_DEVICE,
                   "the NVIDIA driver is too old: it "
                   "lacks cuPointerGetAttribute");
  CuResult r = cu->pointer_get(&kind, CU_POINTER_MEMORY, p);
  if (r == CU_INVALID_VALUE || (!r && kind == CU_MEMORY_HOST)) return ATTN_OK;
  if (!r) r = cu->pointer_get(ordinal, CU_POINTER_DEVICE, p);
  *mine = !r;
  return r ? failed(cu, r, "cuPointerGetAttribute", err) : ATTN_OK;
}

const GpuDriver rt_cuda = {
    .name = "libcuda.so.1",
    .kind = ATTN_CUDA,
    .size = sizeof(Cuda),
    .open = cuda_open,
    .close = cuda_close,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .drop = cuda_drop,
    .suits = cuda_suits,
    .load = cuda_load,
    .unload = cuda_unload,
    .function = cuda_function,
    .encode = cuda_encode,
    .capturing = cuda_capturing,
    .launch = cuda_launch,
    .present = cuda_present,
    .owns = cuda_owns,
};
