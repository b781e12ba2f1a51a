// The context: options, threads, and a cache of buffers that launches reuse,
// so that a launch allocates only until the sizes it needs have been seen.
#include "rt.h"

#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024

static void *libc_alloc(void *user, size_t bytes, size_t align) {
  (void)user;
  size_t rounded = (bytes + align - 1) & ~(align - 1);
  return rounded < bytes ? NULL : aligned_alloc(align, rounded);
}

static void libc_free(void *user, void *p, size_t bytes) {
  (void)user;
  (void)bytes;
  free(p);
}

void *rt_alloc(attn_ctx *cx, size_t bytes) {
  return cx->opt.alloc(cx->opt.alloc_user, bytes, ATTN_ALIGN);
}

void rt_free(attn_ctx *cx, void *p, size_t bytes) {
  if (p) cx->opt.free(cx->opt.alloc_user, p, bytes);
}

// ---- buffers

// Is x a better choice than y? The smallest that is large enough, else the
// largest.
static bool is_better(const Buffer *x, const Buffer *y, size_t bytes) {
  bool fits = x->size >= bytes;
  if (fits != (y->size >= bytes)) return fits;
  return fits == (x->size < y->size);
}

static Buffer *take_idle(attn_ctx *cx, size_t bytes) {
  pthread_mutex_lock(&cx->lock);
  Buffer **best = NULL;
  for (Buffer **at = &cx->idle; *at; at = &(*at)->next)
    if (!best || is_better(*at, *best, bytes)) best = at;
  Buffer *b = best ? *best : NULL;
  if (b) *best = b->next;
  pthread_mutex_unlock(&cx->lock);
  return b;
}

static _Atomic(Buffer *) *kept_by(attn_ctx *cx, int64_t lane) {
  return lane >= 0 && lane < RT_LANES ? &cx->kept[lane].buffer : NULL;
}

static bool grow(attn_ctx *cx, Buffer *b, size_t bytes) {
  rt_free(cx, b->p, b->size);
  b->size = 0;
  b->p = rt_alloc(cx, bytes);
  if (b->p) b->size = bytes;
  return b->p != NULL;
}

Buffer *rt_buffer_get(attn_ctx *cx, size_t bytes, int64_t lane) {
  _Atomic(Buffer *) *kept = kept_by(cx, lane);
  Buffer *b = kept ? atomic_exchange(kept, NULL) : NULL;
  if (!b) b = take_idle(cx, bytes);
  if (!b) {
    b = rt_alloc(cx, sizeof *b);
    if (!b) return NULL;
    *b = (Buffer){0};
  }
  if (b->size >= bytes || grow(cx, b, bytes)) return b;
  rt_free(cx, b, sizeof *b);
  return NULL;
}

void rt_buffer_put(attn_ctx *cx, Buffer *b, int64_t lane) {
  _Atomic(Buffer *) *kept = kept_by(cx, lane);
  Buffer *none = NULL;
  if (!b || (kept && atomic_compare_exchange_strong(kept, &none, b))) return;
  pthread_mutex_lock(&cx->lock);
  b->next = cx->idle;
  cx->idle = b;
  pthread_mutex_unlock(&cx->lock);
}

static void free_buffer(attn_ctx *cx, Buffer *b) {
  if (!b) return;
  rt_free(cx, b->p, b->size);
  rt_free(cx, b, sizeof *b);
}

// ---- life

static int default_threads(void) {
  const char *s = getenv("ATTN_THREADS");
  char *end;
  long n = s ? strtol(s, &end, 10) : 0;
  return n >= 1 && !*end ? (n > MAX_THREADS ? MAX_THREADS : (int)n)
                         : rt_cpu_count();
}

static int usable_isa(int wanted) {
  int host = attn_cpu_isa();
  bool same_family = wanted >> 8 == host >> 8;
  return same_family && wanted < host ? wanted : host;
}

static bool bad_options(const attn_ctx_options *o) {
  return !o->alloc != !o->free || o->threads < 0 || o->reserved;
}

static attn_ctx *new_ctx(const attn_ctx_options *o) {
  attn_ctx *cx = o->alloc(o->alloc_user, sizeof *cx, ATTN_ALIGN);
  if (!cx) return NULL;
  memset(cx, 0, sizeof *cx);
  cx->opt = *o;
  cx->isa = usable_isa(o->isa);
  for (int i = 0; i <= (cx->isa & 0xff) && i < RT_LEVELS; i++)
    cx->rank[i] = (uint8_t)attn_cpu_rank((cx->isa & ~0xff) + i);
  attn_ctx_set_threads(cx, o->threads ? o->threads : default_threads());
  if (pthread_mutex_init(&cx->lock, NULL) == 0) {
    if (rt_pool_init(&cx->pool, cx)) return cx;
    pthread_mutex_destroy(&cx->lock);
  }
  rt_free(cx, cx, sizeof *cx);
  return NULL;
}

attn_ctx *attn_ctx_create(const attn_ctx_options *options, attn_error *err) {
  attn_ctx_options o = {.size = sizeof o};
  if (options && (options->size < sizeof o || bad_options(options))) {
    rt_fail(err, ATTN_E_ARGUMENT, "invalid context options");
    return NULL;
  }
  if (options) o = *options;
  if (!o.alloc) {
    o.alloc = libc_alloc;
    o.free = libc_free;
  }
  attn_ctx *cx = new_ctx(&o);
  if (!cx) {
    rt_fail(err, ATTN_E_MEMORY, "no memory for a context");
    return NULL;
  }
  if (!o.parallel_for) {
    cx->opt.parallel_for = rt_pool_run;
    cx->opt.parallel_user = &cx->pool;
  }
  rt_ok(err);
  return cx;
}

void attn_ctx_destroy(attn_ctx *cx) {
  if (!cx) return;
  rt_gpu_close(cx);
  rt_pool_close(&cx->pool);
  for (int i = 0; i < RT_LANES; i++) free_buffer(cx, cx->kept[i].buffer);
  for (Buffer *b = cx->idle, *next; b; b = next) {
    next = b->next;
    free_buffer(cx, b);
  }
  pthread_mutex_destroy(&cx->lock);
  rt_free(cx, cx, sizeof *cx);
}

attn_ctx *attn_ctx_default(void) {
  static _Atomic(attn_ctx *) shared;  // the only writable global
  attn_ctx *cx = atomic_load(&shared);
  if (cx) return cx;
  attn_ctx *mine = attn_ctx_create(NULL, NULL);
  if (!mine || atomic_compare_exchange_strong(&shared, &cx, mine)) return mine;
  attn_ctx_destroy(mine);  // another thread was first
  return cx;
}

int attn_ctx_threads(const attn_ctx *cx) {
  return atomic_load(&cx->threads);
}

int attn_ctx_units(const attn_ctx *cx) {
  return atomic_load(&cx->units);
}

void attn_ctx_set_units(attn_ctx *cx, int units) {
  atomic_store(&cx->units, units < 0 ? 0 : units);
}

void attn_ctx_set_threads(attn_ctx *cx, int threads) {
  int n = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
  atomic_store(&cx->threads, n);
}
