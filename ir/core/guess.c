// Edit distance, and the nearest of several words.
#include "ir/core/guess.h"

#include <stdbool.h>
#include <string.h>

enum { LONGEST = 63 };

static uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

static char lower(char c) {
  return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same(char a, char b) {
  return lower(a) == lower(b);
}

// Edit distance in which two letters that changed places count as one edit; a
// change of case counts as nothing.
static uint32_t distance(const char *a, size_t n, const char *b, size_t m) {
  uint32_t rows[3][LONGEST + 1], *before = rows[0], *up = rows[1];
  uint32_t *row = rows[2];
  for (uint32_t j = 0; j <= m; j++) up[j] = j;
  for (uint32_t i = 1; i <= n; i++) {
    row[0] = i;
    for (uint32_t j = 1; j <= m; j++) {
      uint32_t change = up[j - 1] + !same(a[i - 1], b[j - 1]);
      row[j] = least(least(up[j] + 1, row[j - 1] + 1), change);
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) &&
          same(a[i - 2], b[j - 1]))
        row[j] = least(row[j], before[j - 2] + 1);
    }
    uint32_t *spare = before;
    before = up, up = row, row = spare;
  }
  return up[m];
}

static uint32_t beginning(const char *a, const char *b) {
  uint32_t n = 0;
  while (a[n] && a[n] == b[n]) n++;
  return n;
}

// A third of the letters may be wrong: one-letter names have no neighbours.
Guess guess_start(const char *want) {
  size_t n = strlen(want);
  return (Guess){want, NULL, (uint32_t)(n < 3 ? 0 : (n + 1) / 3) + 1, 0};
}

void guess_try(Guess *g, const char *word) {
  size_t n = strlen(g->want), m = strlen(word);
  if (n > LONGEST || m > LONGEST || strcmp(word, g->want) == 0) return;
  uint32_t d = distance(g->want, n, word, m);
  uint32_t common = beginning(g->want, word);
  bool tie = g->best && d == g->dist && common > g->common;
  if (d >= g->dist && !tie) return;
  g->dist = d;
  g->common = common;
  g->best = word;
}

const char *guess_among(const char *want, const char *const *words,
                        uint32_t n) {
  Guess g = guess_start(want);
  for (uint32_t i = 0; i < n; i++) guess_try(&g, words[i]);
  return g.best;
}
