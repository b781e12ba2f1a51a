// State shared by the files of the pass `materialize`.
#ifndef ATTNC_PASSES_ATTN_MATERIALIZE_H
#define ATTNC_PASSES_ATTN_MATERIALIZE_H

#include "ir/target.h"
#include "passes/pass.h"
#include "passes/support/outline.h"

// Copies of a program, and those who read one.
enum { MAX_MADE = 16, MAX_READS = 8 };

// What a value is made of: coordinates that are used as they are, and those of
// which only the quotient by a group's size is.
typedef struct From {
  uint64_t plain, grouped;  // bit per axis
  Value group[64];          // the quotient
  uint32_t rank;            // largest of the tensors that are read
} From;

// A value of the program that is read of what is made: its row's axis, and how
// many columns it lies behind it.
typedef struct Read {
  Value v;
  uint32_t row;
  int64_t shift;
} Read;

// Rows of sequences that lie one behind the other (materialize_packed.c).
typedef struct Packed {
  Value place;     // where a row is in memory; 0: rows are not packed
  Value offsets;   // the tensor with each sequence's first row
  Dim total;       // rows of all sequences
  uint32_t batch;  // the axis of sequences
} Packed;

typedef struct Made {
  Value v;
  From from;
  uint32_t row, vec;  // the axes of its tiles
  Packed packed;
  uint32_t phase;  // the first of Made with its axes
  bool table;      // functions that operands are made of
  int64_t cols;    // columns of a table, read at the remainder; 0: all
  Read read[MAX_READS];
  uint32_t nreads;
  bool again;   // an operand in place: made again at each use
  double gain;  // seconds, by what is known of it here
  Value tensor;
  bool shared;  // a phase in front of another kernel makes it
} Made;

typedef struct Ahead {
  Ctx *cx;
  Func *f;
  const GpuFacts *gpu;
  uint32_t lane;
  bool lanes;    // there is one
  bool cleans;   // copies too are made, if only to clean or to
                 // widen them
  bool once;     // rows are few: each key is read once
  int64_t *sym;  // usual values of the dims' symbols
  double room;   // bytes that copies may take
  Made made[MAX_MADE];
  uint32_t n, phases;
} Ahead;

// Is op the sum of products of two vectors of one row?
bool materialize_is_inner(const Ahead *a, const Op *op);

// Would v, an operand of dot, be made ahead? Fills in the rest of m.
bool materialize_is_wanted(Ahead *a, const Op *dot, Made *m);

// What v is made of. False: of more than inputs and coordinates.
bool materialize_sources(const Ahead *a, Value v, From *from);
// What v is read of, and as which of its reads; NULL: it is not made.
const Made *materialize_made(const Ahead *a, Value v, const Read **read);
// False: there are too many.
bool materialize_add(Ahead *a, const Made *m);

// Are rows of its copy cleared that keys' conditions exclude?
bool materialize_cleans(Ahead *a, Made *m);

// Axes of the copy in memory: tasks, row, vector; and its type. False: it has
// too many.
uint32_t materialize_axes(const Ahead *a, const Made *m, uint32_t *out);
bool materialize_type(const Ahead *a, const Made *m, Type *t);

// Gives those their tensor that a phase in front makes too
// (materialize_share.c).
void materialize_share(Ahead *a);

// Tables for v, a part of an operand that is made (materialize_tables.c).
void materialize_tables(Ahead *a, const Made *of, Value v, Map *seen);

// Are m's rows those of packed sequences? Fills in m->packed. False: none or
// not all are where the sequence has them, so that there can be no copy.
bool materialize_packed(const Ahead *a, Made *m);
// Does cond say that m's packed rows end with their sequence, and no more?
bool materialize_ends(const Ahead *a, const Made *m, Value cond);
// Says in the phase, whose axes are those of `axis`, where a row of m is, if
// its rows are packed, and where its sequence ends.
void materialize_open(const Made *m, Builder *b, ValueMap *map,
                      const uint32_t *axis);
// A phase that clears what lies behind the last sequence in copies that phase
// `first` makes.
Func *materialize_rest(const Ahead *a, uint32_t first);

// The extent of that axis of m: the number of groups, where m is of groups.
Dim materialize_extent(const Ahead *a, const Made *m, uint32_t axis);

// What it costs (materialize_cost.c): usual sizes of what is open; bytes of m
// in memory; seconds of a launch; those that m saves where it is made ahead,
// and a table that `of` is made with, but for the launch; bytes that copies may
// take, percent of the program's tensors, 0: as many as is usual.
void materialize_sizes(Ahead *a);
double materialize_bytes(const Ahead *a, const Made *m);
double materialize_launch(void);
double materialize_gain(const Ahead *a, const Made *m);
double materialize_table_gain(const Ahead *a, const Made *m, const Made *of);
double materialize_room(const Ahead *a, int64_t percent);

// Terms of scores that keys have become operands of products
// (materialize_terms.c).
void materialize_terms(Ahead *a);

#endif
