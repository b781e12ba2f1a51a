// The threads of an OpenMP runtime that the process has, as PyTorch does, where
// ATTN_OPENMP=1 asks for them.
//
// Between its parallel regions these threads spin for a while, one on each CPU.
// Threads of a pool beside them wait for those CPUs, and so do the next
// region's for the pool's. A call that takes the same team has neither: its
// threads are awake, and there are no more of them than before. But it ends
// when all of them have come by, which is late where CPUs do other work, too.
#include "rt.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Object pointers do not convert to function pointers in C.
static bool symbol(void *lib, const char *name, void *fn) {
  void *p = dlsym(lib, name);
  memcpy(fn, &p, sizeof p);
  return p != NULL;
}

// LLVM's and Intel's runtimes have GNU's entry points too.
static bool find(OpenMp *o, void *lib) {
  return symbol(lib, "GOMP_parallel", &o->parallel) &&
         symbol(lib, "omp_get_max_threads", &o->max_threads) &&
         symbol(lib, "omp_get_thread_num", &o->number) &&
         symbol(lib, "omp_in_parallel", &o->inside);
}

static int look(struct dl_phdr_info *info, size_t size, void *out) {
  static const char *const names[] = {"libgomp", "libomp", "libiomp5"};
  const char *slash = strrchr(info->dlpi_name, '/');
  const char *file = slash ? slash + 1 : info->dlpi_name;
  (void)size;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strncmp(file, names[i], strlen(names[i])) == 0) {
      *(const char **)out = info->dlpi_name;
      return 1;
    }
  return 0;
}

void rt_openmp_find(OpenMp *o) {
  const char *wanted = getenv("ATTN_OPENMP"), *path = NULL;
  OpenMp found = {.process = getpid()};
  *o = (OpenMp){0};
  if (!wanted || strcmp(wanted, "1") != 0) return;
  bool ok = find(&found, RTLD_DEFAULT);
  if (!ok && dl_iterate_phdr(look, &path)) {
    void *lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD);  // stays open
    ok = lib && find(&found, lib);
  }
  if (ok) *o = found;
}

// A child of fork() has not the team's threads, and a runtime that waits for
// them. A team of another size would be made anew, and back.
bool rt_openmp_has(const OpenMp *o, int64_t n) {
  return o->parallel && o->max_threads() >= n && !o->inside() &&
         getpid() == o->process;
}
