// State shared by the files of the pass `materialize`.
#ifndef ATTNC_PASSES_ATTN_MATERIALIZE_H
#define ATTNC_PASSES_ATTN_MATERIALIZE_H

#include "ir/target.h"
#include "passes/pass.h"
#include "passes/support/outline.h"

// Copies of a program, and phases that make them: one is left for another pass.
enum { MAX_MADE = 16, MAX_MADE_PHASES = MAX_FRONT - 1 };

// What a value is made of: coordinates that are used as they are, and those of
// which only the quotient by a group's size is.
typedef struct From {
  uint64_t plain, grouped;  // bit per axis
  Value group[64];          // the quotient
  uint32_t rank;            // largest of the tensors that are read
} From;

typedef struct Made {
  Value v;
  From from;
  uint32_t row, vec;  // the axes of its tiles
  uint32_t phase;     // the first of Made with its axes
  bool table;         // functions that operands are made of
  Value tensor;
} Made;

typedef struct Ahead {
  Ctx *cx;
  Func *f;
  const GpuFacts *gpu;
  uint32_t lane;
  bool cleans;  // copies too are made, if only to clean or to
                // widen them
  bool once;    // each key is read once: only tables are made
  Made made[MAX_MADE];
  uint32_t n;
} Ahead;

// Would v, an operand of dot, be made ahead? Fills in the rest of m.
bool materialize_is_wanted(Ahead *a, const Op *dot, Made *m);

// Terms of scores that keys have become operands of products
// (materialize_terms.c).
void materialize_terms(Ahead *a);

#endif
