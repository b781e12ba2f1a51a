// Arenas: memory by lifetime. Everything an arena hands out lives until the
// arena is reset to an earlier mark or dropped; nothing is freed singly.
#ifndef ATTNC_IR_CORE_ARENA_H
#define ATTNC_IR_CORE_ARENA_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ArenaBlock ArenaBlock;

// What the arenas of several threads take together.
typedef struct ArenaPool {
  atomic_size_t used;   // bytes of their blocks
  atomic_size_t limit;  // bytes allowed
} ArenaPool;

typedef struct Arena {
  ArenaBlock *top;      // newest block
  ArenaBlock *spare;    // of those that resets left, for the next; or NULL
  size_t used;          // bytes handed out over all blocks
  size_t limit;         // bytes allowed, 0 = no limit
  ArenaPool *pool;      // whose blocks are counted, NULL: nobody's
  int64_t until;        // no memory from then on, as watch_now counts; 0: ever
  uint32_t asked;       // how often there was some
  void (*oom)(void *);  // called when memory, the limit or the time runs out;
  void *oom_data;       // must not return (longjmp to the border)
} Arena;

typedef struct ArenaMark {
  ArenaBlock *block;
  size_t at, used;
} ArenaMark;

// n bytes, zeroed, aligned to 16. Never NULL.
void *arena_alloc(Arena *a, size_t n);
// Copies n bytes and adds a terminating NUL.
char *arena_strndup(Arena *a, const char *s, size_t n);
char *arena_strdup(Arena *a, const char *s);
char *arena_printf(Arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
ArenaMark arena_mark(const Arena *a);
void arena_reset(Arena *a, ArenaMark m);
void arena_drop(Arena *a);

#define NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define NEWN(a, T, n) ((T *)arena_alloc((a), sizeof(T) * (size_t)(n)))

#endif
