// Philox4x32-10 (Salmon et al., SC 2011): a counter-based generator. A block
// depends on its counter and key only, and the arithmetic is the same on every
// host.
#ifndef ATTNC_IR_CORE_PHILOX_H
#define ATTNC_IR_CORE_PHILOX_H

#include <stdint.h>

// Multipliers, and what the key grows by in each round.
enum { PHILOX_ROUNDS = 10 };
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

// One block: counter and key to four random words.
void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
