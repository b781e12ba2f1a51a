// Loaded in front of a program (LD_PRELOAD): its FAIL_AT-th allocation fails,
// counted from when main first says what signals do; with FAIL_ON=1 those
// behind it too. FAIL_COUNT names a file for the number of all.
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static atomic_llong count;
static long long fail_at;  // 0: none
static bool fail_on, counting;

static bool fails(void) {
  if (!counting) return false;
  long long n = atomic_fetch_add(&count, 1) + 1;
  if (!fail_at || (fail_on ? n < fail_at : n != fail_at)) return false;
  errno = ENOMEM;
  return true;
}

void *malloc(size_t n) {
  return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
  return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
  return fails() ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n) {
  return fails() ? NULL : __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n) {
  if (fails()) return ENOMEM;
  *p = __libc_memalign(align, n);
  return *p ? 0 : ENOMEM;
}

// What main functions begin with.
sighandler_t signal(int sig, sighandler_t handler) {
  sighandler_t (*next)(int, sighandler_t);
  const char *at = getenv("FAIL_AT"), *on = getenv("FAIL_ON");
  *(void **)&next = dlsym(RTLD_NEXT, "signal");
  fail_at = at ? atoll(at) : 0;
  fail_on = on && *on == '1';
  counting = true;
  return next(sig, handler);
}

__attribute__((destructor)) static void tell(void) {
  const char *name = getenv("FAIL_COUNT");
  counting = false;
  FILE *f = name ? fopen(name, "w") : NULL;
  if (!f) return;
  fprintf(f, "%lld\n", atomic_load(&count));
  fclose(f);
}
