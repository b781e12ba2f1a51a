// Random numbers: Philox of the IR and of the oracle against the vectors
// published with Random123, one against the other, and what they look like.
#include "expect.h"
#include "frontend/oracle.h"
#include "ir/core/philox.h"
#include "ir/eval.h"

#include <math.h>
#include <string.h>

typedef void Block(const uint32_t *, const uint32_t *, uint32_t *);

static void vectors(Block *block) {
  static const uint32_t known[3][10] = {
      // counter, key, output
      {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
      {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
       0x6d5451fd},
      {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
       0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
  for (int i = 0; i < 3; i++) {
    uint32_t out[4];
    block(known[i], known[i] + 4, out);
    EXPECT(memcmp(out, known[i] + 6, sizeof out) == 0);
  }
}

// Of the op: the words of the seed, then the indices.
static double by_op(const double *x, uint32_t n) {
  double in[ELEM_ARGS] = {x[0], floor(x[0] / 0x1p32)};
  for (uint32_t i = 1; i <= n; i++) in[ELEM_ARGS - 1 - n + i] = x[i];
  return eval_op(OP_RANDOM, in);
}

static void alike(void) {
  static const double some[] = {0,      1,         2,         3,      7,
                                -1,     -5,        0x1p31,    0x1p32, -0x1p40,
                                0x1p52, 123456789, 0x1p33 + 5};
  enum { SOME = sizeof some / sizeof *some };
  for (uint32_t i = 0; i < 1000; i++) {
    double x[5];
    for (uint32_t k = 0; k < 5; k++) x[k] = some[(i * 7 + k * (i + 3)) % SOME];
    uint32_t n = 1 + i % 4;
    double u = oracle_random(x, n);
    EXPECT(u == by_op(x, n) && u >= 0 && u < 1 && u == (double)(float)u);
  }
}

// Means, shares and neighbours of a million numbers, to five deviations.
static void looks(double seed) {
  enum { N = 1 << 20, BINS = 64 };
  double sum = 0, squares = 0, lag = 0, last = 0.5, kept = 0;
  static int count[BINS];
  memset(count, 0, sizeof count);
  for (int i = 0; i < N; i++) {
    double x[] = {seed, 2, i >> 10, i & 1023}, u = oracle_random(x, 3);
    sum += u - 0.5;
    squares += (u - 0.5) * (u - 0.5);
    lag += (u - 0.5) * (last - 0.5);
    kept += u >= 0.1;
    last = u;
    count[(int)(u * BINS)]++;
  }
  double chi = 0, each = (double)N / BINS;
  for (int i = 0; i < BINS; i++)
    chi += (count[i] - each) * (count[i] - each) / each;
  EXPECT(fabs(sum / N) < 5 / sqrt(12.0 * N));
  EXPECT(fabs(squares / N - 1 / 12.0) < 5 / sqrt(180.0 * N));
  EXPECT(fabs(lag / N) < 5 / (12 * sqrt((double)N)));
  EXPECT(fabs(kept / N - 0.9) < 5 * sqrt(0.09 / N));
  EXPECT(fabs(chi - (BINS - 1)) < 5 * sqrt(2.0 * (BINS - 1)));
}

int main(void) {
  vectors(philox);
  vectors(oracle_philox);
  alike();
  looks(0);
  looks(1);
  looks(-12345678901);
  return verdict();
}
