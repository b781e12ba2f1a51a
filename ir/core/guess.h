// Guesses for misspelled words: the one list of candidates wins whose word is
// nearest, in letters that differ, and shares the longest beginning.
//
// A Guess owns nothing; words live as long as their caller wants `best`.
#ifndef ATTNC_IR_CORE_GUESS_H
#define ATTNC_IR_CORE_GUESS_H

#include <stdint.h>

typedef struct Guess {
  const char *want, *best;
  uint32_t dist;    // of the best; one more than may be wrong before
  uint32_t common;  // letters at the start that the best shares
} Guess;
Guess guess_start(const char *want);
// The word that was asked for is no guess.
void guess_try(Guess *g, const char *word);
// Words one after the other.
const char *guess_among(const char *want, const char *const *words, uint32_t n);

#endif
