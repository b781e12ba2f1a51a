// Growth of typed vectors.
#include "ir/core/vec.h"

void *vec_grow(Arena *a, void *at, uint32_t *cap, uint32_t need, size_t size) {
  uint64_t next = *cap ? (uint64_t)*cap * 2 : 8;
  if (next < need) next = need;
  if (next > UINT32_MAX) next = UINT32_MAX;
  void *p = arena_alloc(a, (size_t)next * size);
  if (*cap) memcpy(p, at, (size_t)*cap * size);
  *cap = (uint32_t)next;
  return p;
}
