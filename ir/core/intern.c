// Interned strings: open addressing over the strings themselves.
#include "ir/core/intern.h"

#include "ir/core/map.h"
#include <string.h>

static const char **find(const char **slot, uint32_t cap, const char *s,
                         size_t n) {
  uint32_t i = (uint32_t)map_hash(s, n, 0) & (cap - 1);
  while (slot[i] && (strnlen(slot[i], n + 1) != n || memcmp(slot[i], s, n)))
    i = (i + 1) & (cap - 1);
  return &slot[i];
}

static void grow(Interner *in) {
  uint32_t cap = in->cap ? in->cap * 2 : 256;
  const char **slot = NEWN(in->arena, const char *, cap);
  for (uint32_t i = 0; i < in->cap; i++)
    if (in->slot[i])
      *find(slot, cap, in->slot[i], strlen(in->slot[i])) = in->slot[i];
  in->slot = slot;
  in->cap = cap;
}

const char *intern_n(Interner *in, const char *s, size_t n) {
  if ((in->n + 1) * 4ull > in->cap * 3ull) grow(in);
  const char **p = find(in->slot, in->cap, s, n);
  if (!*p) {
    *p = arena_strndup(in->arena, s, n);
    in->n++;
  }
  return *p;
}

const char *intern(Interner *in, const char *s) {
  return intern_n(in, s, strlen(s));
}
