#include "device.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

static struct {
  int (*init)(unsigned);
  int (*get)(int *, int);
  int (*retain)(void **, int);
  int (*current)(void *);
  int (*alloc)(uint64_t *, size_t);
  int (*put)(uint64_t, const void *, size_t);
  int (*fetch)(void *, uint64_t, size_t);
  int (*wait)(void);
} cu;

static int find(void *lib, const char *name, void *fn) {
  void *p = dlsym(lib, name);
  memcpy(fn, &p, sizeof p);
  return p != NULL;
}

const char *device_open(void) {
  void *lib = dlopen("libcuda.so.1", RTLD_NOW), *ctx;
  int dev;
  if (!lib) return "no driver";
  if (!find(lib, "cuInit", &cu.init) || !find(lib, "cuDeviceGet", &cu.get) ||
      !find(lib, "cuDevicePrimaryCtxRetain", &cu.retain) ||
      !find(lib, "cuCtxSetCurrent", &cu.current) ||
      !find(lib, "cuMemcpyHtoD_v2", &cu.put) ||
      !find(lib, "cuMemcpyDtoH_v2", &cu.fetch) ||
      !find(lib, "cuCtxSynchronize", &cu.wait))
    return "an old driver";
  if (cu.init(0) || cu.get(&dev, 0) || cu.retain(&ctx, dev) || cu.current(ctx))
    return "a driver without a device";
  return find(lib, "cuMemAlloc_v2", &cu.alloc) ? NULL : "an old driver";
}

void *device_scratch(size_t bytes) {
  uint64_t p = 0;
  return cu.alloc && cu.alloc(&p, bytes) == 0 ? (void *)(uintptr_t)p : NULL;
}

void *device_copy(const void *from, size_t bytes) {
  void *p = device_scratch(bytes);
  return p && cu.put((uintptr_t)p, from, bytes) == 0 ? p : NULL;
}

int device_fetch(void *to, const void *from, size_t bytes) {
  return cu.wait() == 0 && cu.fetch(to, (uintptr_t)from, bytes) == 0;
}
