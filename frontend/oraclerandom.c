// The oracle's random numbers: Philox4x32-10, written from its definition
// (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#include "frontend/oraclecore.h"

#include <math.h>

// A block is two pairs (L, R). A round multiplies the R of each by a constant,
// the high half of a product keeps the bits, and pairs change places.
typedef struct Pair {
  uint32_t l, r;
} Pair;

static Pair turn(Pair own, Pair other, uint64_t by, uint32_t key) {
  uint64_t product = by * other.r;
  return (Pair){.l = (uint32_t)product,
                .r = (uint32_t)(product / 4294967296u) ^ own.l ^ key};
}

void oracle_philox(const uint32_t counter[4], const uint32_t key[2],
                   uint32_t out[4]) {
  Pair a = {counter[1], counter[0]}, b = {counter[3], counter[2]};
  for (uint32_t i = 0; i < 10; i++) {
    Pair next = turn(a, b, 3449720151u, key[0] + i * 2654435769u);
    b = turn(b, a, 3528531795u, key[1] + i * 3144134277u);
    a = next;
  }
  out[0] = a.r, out[1] = a.l, out[2] = b.r, out[3] = b.l;
}

// x modulo 2^32.
static uint32_t word(double x) {
  return (uint32_t)(x - 4294967296.0 * floor(x / 4294967296.0));
}

// seed, then n indices, the last of which tells the word of a block.
double oracle_random(const double *x, uint32_t n) {
  uint32_t key[2] = {word(x[0]), word(floor(x[0] / 4294967296.0))};
  uint32_t last = word(x[n]), counter[4] = {last / 4}, out[4];
  for (uint32_t i = 1; i < n; i++) counter[i] = word(x[n - i]);
  oracle_philox(counter, key, out);
  return floor(out[last % 4] / 256.0) / 16777216.0;
}
