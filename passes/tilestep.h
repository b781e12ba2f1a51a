// Recurrences in chunks: shared by tilechunk.c (loops) and tilestep.c (the
// equations of one chunk).
#ifndef ATTNC_PASSES_TILESTEP_H
#define ATTNC_PASSES_TILESTEP_H

#include "ir/affine.h"
#include "passes/tile.h"

enum { MAX_WALK = 8 };  // states that one walk carries

// The decay of one state over the current chunk, as log2.
typedef struct Decay {
  bool has, fixed, vector;  // fixed: the same in every step
  Value rows;          // from the start of the chunk to each row, inclusive
  Value before;        // the same, without the row's own step
  Value rest;          // from each column to the end of the chunk
  Value total;         // of the whole chunk
  Value pair[3];       // 2 ** (from column to row), 0 where it does not see:
                       // [0] inclusive, [1] strict, [2] strict, and without
                       // the row's own decay; 0 until it is wanted
  Value anchor;        // vector: the middle, per row of the state
} Decay;

typedef struct Steps {
  Tiler *t;
  const Op *first;     // the first affine
  uint32_t axis;       // of the steps; rows of a chunk
  uint32_t col_axis;   // the same steps as columns
  int64_t chunk;
  Dim size;            // of a chunk
  bool reverse;
  Value end;           // steps to do
  uint32_t n;
  const Op *op[MAX_WALK];
  Affine affine[MAX_WALK];
  Type type[MAX_WALK];      // of the states
  Decay decay[MAX_WALK];
  ValueMap rows, cols;      // values of the current chunk along its axes
  Value row_coord, col_coord, row_at, col_at;
} Steps;

Value step_value(Steps *s, Builder *b, Value v, ValueMap *m);
// A value of the stream level at the rows or the columns of the chunk.
Value step_row(Steps *s, Builder *b, Value v);
Value step_col(Steps *s, Builder *b, Value v);

// Steps of a chunk for these recurrences.
int64_t step_choose(const Steps *s);
// What is the same in all chunks, in front of the loop.
void step_constants(Steps *s, Builder *b, ValueMap *m);
// Decays of the chunk; a bool if it can only be done where that holds, or 0.
Value step_prepare(Steps *s, Builder *b, uint32_t i);
// The chunk of state i: the state after it; its reads go to read.
Value step_chunk(Steps *s, Builder *b, uint32_t i, Value state, Value *read);

#endif
