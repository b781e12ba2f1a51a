// What drivers of all makers have in common: a library that is opened at run
// time, memory of a device, what a device holds of a kernel.
#include "gpu.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static void *open_library(const RtLibrary *l, int more) {
  const char *path = secure_getenv(l->variable);
  int flags = RTLD_NOW | RTLD_LOCAL | more;
  void *lib = NULL;
  if (path && *path) return dlopen(path, flags);
  for (size_t i = 0; !lib && i < RT_LIBRARY_NAMES && l->names[i]; i++)
    lib = dlopen(l->names[i], flags);
  return lib;
}

void *rt_library_open(const RtLibrary *l) {
  return open_library(l, 0);
}

bool rt_library_present(const RtLibrary *l) {
  void *lib = open_library(l, RTLD_NOLOAD);
  if (lib) dlclose(lib);
  return lib != NULL;
}

// Object pointers do not convert to function pointers in C.
bool rt_symbol(void *lib, const char *name, void *fn) {
  void *p = dlsym(lib, name);
  memcpy(fn, &p, sizeof p);
  return p != NULL;
}

void rt_gpu_memory(GpuDevice *d, char *memory) {
  d->counters = memory;
  d->blank = memory + 2 * 4 * GPU_COUNTERS;
}

int rt_gpu_resident(const char *name, const attn_gpu_phase *p, int n,
                    GpuFunc *out, attn_error *err) {
  if (n < 1)
    return rt_fail(err, ATTN_E_UNSUPPORTED,
                   "%s: %u threads with %u bytes of shared memory do not fit",
                   name, p->threads, p->shared_bytes);
  out->per_unit = (uint32_t)n;
  return ATTN_OK;
}
