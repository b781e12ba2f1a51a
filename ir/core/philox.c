// Philox4x32-10.
#include "ir/core/philox.h"

void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < PHILOX_ROUNDS; round++) {
    uint64_t p = (uint64_t)PHILOX_M0 * a, q = (uint64_t)PHILOX_M1 * c;
    a = (uint32_t)(q >> 32) ^ b ^ k0;
    b = (uint32_t)q;
    c = (uint32_t)(p >> 32) ^ d ^ k1;
    d = (uint32_t)p;
    k0 += PHILOX_W0;
    k1 += PHILOX_W1;
  }
  out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}
