// Hash map, open addressing with linear probing; never shrinks.
#include "ir/core/map.h"

#include <string.h>

static uint64_t mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

uint64_t map_hash(const void *p, size_t n, uint64_t seed) {
  const unsigned char *s = p;
  uint64_t h = mix(seed ^ (n * 0x9e3779b97f4a7c15ull));
  for (; n >= 8; n -= 8, s += 8) {
    uint64_t w;
    memcpy(&w, s, 8);
    h = mix(h ^ w);
  }
  uint64_t w = 0;
  if (n) memcpy(&w, s, n);
  return mix(h ^ w);
}

static uint32_t find(const Map *m, uint64_t key) {
  uint32_t i = (uint32_t)mix(key) & (m->cap - 1);
  while (m->used[i] && m->key[i] != key) i = (i + 1) & (m->cap - 1);
  return i;
}

static void grow(Map *m) {
  Map old = *m;
  m->cap = old.cap ? old.cap * 2 : 16;
  m->key = NEWN(m->arena, uint64_t, m->cap);
  m->val = NEWN(m->arena, uint64_t, m->cap);
  m->used = NEWN(m->arena, uint8_t, m->cap);
  for (uint32_t i = 0; i < old.cap; i++) {
    if (!old.used[i]) continue;
    uint32_t j = find(m, old.key[i]);
    m->used[j] = 1;
    m->key[j] = old.key[i];
    m->val[j] = old.val[i];
  }
}

void map_put(Map *m, uint64_t key, uint64_t val) {
  if ((m->n + 1) * 4ull > m->cap * 3ull) grow(m);
  uint32_t i = find(m, key);
  if (!m->used[i]) m->n++;
  m->used[i] = 1;
  m->key[i] = key;
  m->val[i] = val;
}

bool map_get(const Map *m, uint64_t key, uint64_t *val) {
  if (!m->cap) return false;
  uint32_t i = find(m, key);
  if (!m->used[i]) return false;
  if (val) *val = m->val[i];
  return true;
}
