// Arenas: a stack of blocks, each twice as large as the one before (up to a
// cap). A reset keeps a block: marks are often taken and left at a block's end,
// and the system's zeroed pages cost more than the pieces. Under
// AddressSanitizer unused bytes are poisoned, and every piece is followed by a
// red zone, so that overruns inside a block are found too.
#include "ir/core/arena.h"

#include "ir/core/watch.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#endif

#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define RED_ZONE 16
#define HIDE(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define SHOW(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define RED_ZONE 0
#define HIDE(p, n) ((void)(p), (void)(n))
#define SHOW(p, n) ((void)(p), (void)(n))
#endif

enum {
  ALIGN = 16,
  FIRST_BLOCK = 16 * 1024,
  LAST_BLOCK = 4 * 1024 * 1024,
  LOOK_EACH = 64,  // pieces handed out between two looks at the clock
};

struct ArenaBlock {
  ArenaBlock *below;
  ArenaPool *pool;  // that counts it
  size_t at, cap;   // bytes used and usable in `mem`
  _Alignas(ALIGN) char mem[];
};

static void out_of_memory(Arena *a) {
  if (a->oom) a->oom(a->oom_data);
  __builtin_trap();  // no hook, or a hook that returned
}

// Counts bytes of blocks, which are there and which are not.
static bool pool_take(ArenaPool *p, size_t n) {
  if (!p) return true;
  size_t had = atomic_fetch_add(&p->used, n), limit = atomic_load(&p->limit);
  if (n <= limit && had <= limit - n) return true;
  atomic_fetch_sub(&p->used, n);
  return false;
}

static void pool_give(ArenaPool *p, size_t n) {
  if (p) atomic_fetch_sub(&p->used, n);
}

static void free_block(ArenaBlock *b) {
  if (!b) return;
  SHOW(b->mem, b->cap);
  pool_give(b->pool, b->cap);
  free(b);
}

static void drop_spare(Arena *a) {
  free_block(a->spare);
  a->spare = NULL;
}

// The larger of the two stays; none is kept that one piece was too large for.
static void keep_spare(Arena *a, ArenaBlock *b) {
  if (b->cap > LAST_BLOCK || (a->spare && a->spare->cap > b->cap)) {
    free_block(b);
    return;
  }
  drop_spare(a);
  a->spare = b;
}

static ArenaBlock *new_block(Arena *a, size_t need) {
  size_t cap = a->top ? a->top->cap * 2 : FIRST_BLOCK;
  if (cap > LAST_BLOCK) cap = LAST_BLOCK;
  if (cap < need) cap = need;
  bool room = pool_take(a->pool, cap);
  if (!room && pool_take(a->pool, need)) cap = need, room = true;
  ArenaBlock *b = room ? malloc(sizeof *b + cap) : NULL;
  if (room && !b) pool_give(a->pool, cap);
  if (!b) out_of_memory(a);
  b->pool = a->pool;
  b->cap = cap;
  HIDE(b->mem, cap);
  return b;
}

static ArenaBlock *push_block(Arena *a, size_t need) {
  if (a->spare && a->spare->cap < need) drop_spare(a);
  ArenaBlock *b = a->spare;
  a->spare = NULL;
  if (!b) b = new_block(a, need);
  b->below = a->top;
  b->at = 0;
  a->top = b;
  return b;
}

void *arena_alloc(Arena *a, size_t n) {
  if (n > SIZE_MAX / 4) out_of_memory(a);
  size_t need = ((n + ALIGN - 1) & ~(size_t)(ALIGN - 1)) + RED_ZONE;
  if (need == 0) need = ALIGN;
  if (a->limit && need > a->limit - a->used) out_of_memory(a);
  if (a->until && ++a->asked % LOOK_EACH == 0 && watch_now() > a->until)
    out_of_memory(a);
  ArenaBlock *b = a->top;
  if (!b || b->cap - b->at < need) b = push_block(a, need);
  char *p = b->mem + b->at;
  b->at += need;
  a->used += need;
  SHOW(p, n);
  if (n) memset(p, 0, n);
  return p;
}

char *arena_strndup(Arena *a, const char *s, size_t n) {
  char *p = arena_alloc(a, n + 1);
  if (n) memcpy(p, s, n);
  return p;
}

char *arena_strdup(Arena *a, const char *s) {
  return arena_strndup(a, s, strlen(s));
}

char *arena_printf(Arena *a, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  size_t len = n < 0 ? 0 : (size_t)n;
  char *p = arena_alloc(a, len + 1);
  if (n > 0) vsnprintf(p, len + 1, fmt, again);
  va_end(again);
  return p;
}

ArenaMark arena_mark(const Arena *a) {
  return (ArenaMark){a->top, a->top ? a->top->at : 0, a->used};
}

void arena_reset(Arena *a, ArenaMark m) {
  while (a->top != m.block) {
    ArenaBlock *b = a->top;
    a->top = b->below;
    HIDE(b->mem, b->cap);
    keep_spare(a, b);
  }
  if (a->top) {
    a->top->at = m.at;
    HIDE(a->top->mem + m.at, a->top->cap - m.at);
  }
  a->used = m.used;
}

void arena_drop(Arena *a) {
  arena_reset(a, (ArenaMark){NULL, 0, 0});
  drop_spare(a);
}
