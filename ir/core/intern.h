// Interned strings: equal strings have equal pointers.
#ifndef ATTNC_IR_CORE_INTERN_H
#define ATTNC_IR_CORE_INTERN_H

#include "ir/core/arena.h"

typedef struct Interner {
  Arena *arena;
  const char **slot;  // open addressing, power-of-two size
  uint32_t n, cap;
} Interner;

// The one copy of s[0..n), NUL terminated.
const char *intern_n(Interner *in, const char *s, size_t n);
const char *intern(Interner *in, const char *s);

#endif
