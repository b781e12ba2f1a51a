// Values of a program that a phase in front makes and stores, and the program
// loads (outline.h).
#ifndef ATTNC_PASSES_SUPPORT_OUTLINED_H
#define ATTNC_PASSES_SUPPORT_OUTLINED_H

#include "ir/ir.h"

enum { MAX_OUTLINED = 8 };

typedef struct Outlined {
  Func *f;
  const char *phase;   // its name: "f.phase"
  const char *tensor;  // of what is stored: "value.tensor"
  const char *value;   // the name of a value without one
  Value cut[MAX_OUTLINED];
  uint32_t n;
  bool *wanted;   // by value: the phase makes it
  uint64_t has;   // axes of what it makes
  uint64_t rows;  // axes of vectors of which each element is a task's
} Outlined;

// Is op the domain of an axis of these?
bool outlined_domain(const Op *op, uint64_t axes);
// Marks, in `arena`, all that the cuts are made of, and what says which keys of
// these there are.
void outlined_close(Outlined *o, Arena *arena);
// A phase, the number-th of its name, in front of f. An axis of keys that what
// is stored varies with is one of its tasks, and each of `rows`.
void outlined_make(const Outlined *o, uint32_t number);

#endif
