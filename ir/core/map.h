// Hash map from a 64-bit key to a 64-bit value (pointers cast through
// uintptr_t), on an arena. Key 0 is allowed.
#ifndef ATTNC_IR_CORE_MAP_H
#define ATTNC_IR_CORE_MAP_H

#include "ir/core/arena.h"
#include <stdbool.h>

typedef struct Map {
  Arena *arena;
  uint64_t *key, *val;
  uint8_t *used;
  uint32_t n, cap;
} Map;

void map_put(Map *m, uint64_t key, uint64_t val);  // replaces
bool map_get(const Map *m, uint64_t key, uint64_t *val);
uint64_t map_hash(const void *p, size_t n, uint64_t seed);

#endif
