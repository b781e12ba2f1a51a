// Sessions of the language server made from seeds: unit-ls-random [SEED
// [SESSIONS]]. What they must show stands in test/fuzz/fuzz_ls.c. A session
// is 600 bytes of script, about 70 edits and 60 requests and broken messages.
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern uint64_t fuzz_ls_steps[4];

static uint64_t next(uint64_t *s) {  // xorshift64*
  *s ^= *s >> 12;
  *s ^= *s << 25;
  *s ^= *s >> 27;
  return *s * 2685821657736338717u;
}

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  int sessions = argc > 2 ? atoi(argv[2]) : 20;
  uint8_t script[600];
  for (int i = 0; i < sessions; i++) {
    uint64_t s = (seed << 20) + (uint64_t)i + 1;
    next(&s);
    for (size_t k = 0; k < sizeof script; k++)
      script[k] = (uint8_t)(next(&s) >> 56);
    if (argc > 3) printf("session %d\n", i), fflush(stdout);
    LLVMFuzzerTestOneInput(script, sizeof script);
  }
  const uint64_t *n = fuzz_ls_steps;
  printf("%d sessions from seed %" PRIu64 ": %" PRIu64 " edits, %" PRIu64
         " requests, %" PRIu64 " broken messages, %" PRIu64 " comparisons\n",
         sessions, seed, n[0], n[1], n[2], n[3] + (uint64_t)sessions);
  return 0;
}
