// Random streams of Philox4x32-10 (ir/core/philox.h). Value i of a stream
// depends on (seed, name, i) only, and the arithmetic is the same on every
// host, so arrays made from it are too.
#ifndef ATTNC_DRIVER_RUN_RNG_H
#define ATTNC_DRIVER_RUN_RNG_H

#include <stdint.h>

enum { MAX_DRAWN = 256 };

typedef struct Rng {
  uint32_t key[2];   // seed
  uint32_t name[2];  // hash of the name: the counter's high half
  uint64_t block;    // whose words are in out
  uint32_t out[4];
} Rng;

void rng_init(Rng *r, uint64_t seed, const char *name);
uint64_t rng_bits(Rng *r, uint64_t i);   // 64 random bits
double rng_uniform(Rng *r, uint64_t i);  // in (0, 1), 52 bits
double rng_normal(Rng *r, uint64_t i);   // mean 0, deviation 1
// Values from .. from + MAX_DRAWN - 1, the same ones; from is even.
void rng_uniforms(const Rng *r, uint64_t from, double *out);
void rng_normals(const Rng *r, uint64_t from, double *out);
// In [lo, hi); lo < hi.
int64_t rng_int(Rng *r, uint64_t i, int64_t lo, int64_t hi);

#endif
