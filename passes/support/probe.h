// Values of the IR at random points, in doubles: tests whether two forms of a
// program agree. Key axes get PROBE_KEYS coordinates, all in their domains;
// every other axis gets one, so that a vector is a number, but for those that
// a test asks for. Loads and other sources are fixed random functions of the
// seed and of their operands; a row's float that is compared with the
// coordinate of a key is that of one of them. Coordinates are small: in every
// other trial of a test, which side a select of integers takes is a random
// function too, so that both are met.
#ifndef ATTNC_PASSES_SUPPORT_PROBE_H
#define ATTNC_PASSES_SUPPORT_PROBE_H

#include "ir/ir.h"

enum { PROBE_KEYS = 4, PROBE_TRIALS = 48 };

typedef struct Probe {
  const Func *f;
  uint64_t seed;
  double size;          // of float sources: they are in [-1.5, 1.5) * size
  bool free;            // conditions of integers are random
  uint64_t wide;        // axes that have coordinates as keys have, by bit
  uint64_t only;        // of those: `shift` and `scale` hold where all are 0
  Map memo;             // (value, coordinates) -> bits of the double
  Map force;            // Value -> bits: the value is this
  Map shift, scale;     // Value -> bits: added to, multiplied with its value
  Map met;              // of those, by Value: it was computed
  uint8_t at[64];       // coordinate by axis
  uint32_t compared;    // numbers that probe_same found equal
  uint32_t n;           // operands of effects that it saw
  uint64_t zero, told;  // by such an operand: it was 0 in both, another number
} Probe;

// What trials said of each operand of an effect.
typedef struct ProbeSeen {
  uint32_t trials;      // that said something
  uint64_t zero, told;  // operands that were 0, another number, in some
  Map met;              // values of b, changed there, that some computed
} ProbeSeen;

void probe_init(Probe *p, const Func *f, Arena *a, uint64_t seed);
// Two equal probes for trial i < PROBE_TRIALS of a test: seeds and sizes differ
// by trial, so that no function is saturated in all of them. The result is a
// number by which the test may change something in b.
double probe_pair(Probe *a, Probe *b, const Func *f, Arena *arena, uint64_t i);
void probe_put(Map *m, Value v, double x);
double probe_value(Probe *p, Value v);
// A number in [-1.5, 1.5) that depends on the seed and the two keys.
double probe_random(const Probe *p, uint64_t a, uint64_t b);

// What a region's effects see: operands of its ops without results. True if
// they are the same in a and b (one of them changed by force, shift, scale).
// NaN or the same infinity in both says nothing; a->compared counts the rest.
bool probe_same(Probe *a, Probe *b, const Region *r);
// Notes a trial. What is 0 in all trials was not tested: what it depends on was
// met at none of their points.
void probe_note(ProbeSeen *s, const Probe *a, const Probe *b);
// Have the trials shown that nothing depends on the n values that were changed
// in b? Of one that none of them computed they say nothing.
bool probe_shown(const ProbeSeen *s, const Value *changed, uint32_t n);

#endif
