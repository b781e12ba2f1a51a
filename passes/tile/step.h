// Recurrences in chunks: shared by chunk.c (loops) and step.c (the
// equations of one chunk).
#ifndef ATTNC_PASSES_TILE_STEP_H
#define ATTNC_PASSES_TILE_STEP_H

#include "ir/affine.h"
#include "ir/target.h"
#include "passes/tile/tile.h"

enum {
  MAX_WALK = 8,     // states that one walk carries
  MAX_COURSES = 3,  // of a chunk: rows, cols, writes in front
};

// The steps of a chunk, or its writes, along an axis of their own. Steps that
// write n times have n elements in a row.
typedef struct Side {
  uint32_t axis;
  uint32_t each;  // elements per step
  Dim size;
  ValueMap map;          // values of the current chunk along the axis
  Value coord;           // steps they belong to, in the sequence
  Value at, step, slot;  // numbers in the chunk: element, its step in the walk,
                         // its write
  bool turned;           // elements are numbered against the walk
} Side;

// The decay of one state along a side of the chunk, as log2.
typedef struct Run {
  Value own;     // of each element
  Value upto;    // from the start of the chunk, inclusive
  Value before;  // without the element's own
  Value rest;    // from the element to the end of the chunk
} Run;

typedef struct Decay {
  bool has, fixed, vector;  // fixed: the same in every step
  bool columns;             // vector: each column has its own, not each row
  Value total;              // of the whole chunk
  Value anchor;             // vector: the middle of its course, per row
  bool halves;              // vector: by halves (halves.c)
  Value weak;               // of these: is all that the chunk decays?
  Run run[MAX_COURSES];     // by side, of the current chunk
  Value pair[3];            // fixed: 2 ** (from column to row), by Sees
} Decay;

typedef struct Steps {
  Tiler *t;
  const Op *first;  // the first affine
  uint32_t axis;    // of the steps
  int64_t chunk;
  bool reverse;
  bool turned;       // elements of a chunk lie as in memory, against the walk
  DType narrow;      // 16-bit type of operands that are computed, or none
  Value end;         // steps to do
  Value from, stop;  // those of the task
  int64_t front;     // what is in front of blocks of so many is stored, or 0
  Value pad;         // steps that the first chunk lacks, or 0
  bool whole;        // all chunks behind it are whole
  bool on_cols;      // what a write writes is along the columns' side
  Value base;        // maxima alone: the first of the chunk
  uint32_t nmax;     // running maxima, carried behind the n states
  const Op *max[MAX_WALK];
  uint32_t n;
  const Op *op[MAX_WALK];
  Affine affine[MAX_WALK];
  Type type[2 * MAX_WALK];  // of all that is carried
  Decay decay[MAX_WALK];
  Side rows, cols;         // the steps that read, and those that write
  Side front_writes;       // plain writes, of which another one erases
  Side sums;               // those whose decays are summed, if by a product
  Side wide[MAX_WALK][2];  // writes that erase, if there are several a step
} Steps;

Value tile_step_value(Steps *s, Builder *b, Value v, ValueMap *m);
// A value of the stream level along a side of the chunk.
Value tile_step_along(Steps *s, Builder *b, Side *side, Value v);
// The side's numbers; what it is in the current chunk.
Side tile_step_side(Steps *s, Builder *b, uint32_t axis, uint32_t each);
void tile_step_open(Steps *s, Builder *b, Side *side, Value base,
                    const ValueMap *pre);

// The number of step j of the walk in the sequence.
Value tile_step_coordinate(const Steps *s, Builder *b, Value j);
// A loop that carries values; its arguments go to `old`.
typedef struct StepLoop {
  Value lo, hi, step;
  const char *hint;  // of the number that it counts
  uint32_t n;        // values that it carries
  const Value *all;
  const Type *type;
} StepLoop;
Op *tile_step_loop(Builder *b, const StepLoop *l, Value *old);
// Maximum i before the step at hand; it is raised by it.
void tile_step_max(Steps *s, Builder *b, uint32_t i, Value *m_now, ValueMap *m);
// The running maxima before each step of the chunk, along every side; those
// behind it (max.c).
void tile_step_maxima(Steps *s, Builder *b, Value base, const ValueMap *pre,
                      Value *state);
// Where there are no other states: they are found at once, what is left behind
// the last whole chunk too.
bool tile_max_fit(const Steps *s);
void tile_max_chunk(Steps *s, Builder *b, Value base, const ValueMap *pre,
                    Value *state);
// What the chunk makes of any maximum before it: the least that it is then, and
// what is added.
void tile_max_part(Steps *s, Builder *b, Value base, const ValueMap *pre,
                   Value *least, Value *sum);

bool tile_step_erases(const Affine *a);
// The axis of columns that decay each for itself, or -1.
int tile_step_column(const Steps *s, uint32_t i);
// Which writes a reading element sees. BEFORE: without its own step's decay.
typedef enum Sees { SEES_SELF, SEES_EARLIER, SEES_BEFORE } Sees;
// What elements of x, which read, see of y's, which are writes.
typedef struct Sight {
  Side *x, *y;
  Sees sees;
  // The version that is read, a constant or a value per element of x: writes of
  // its own step count to there; 0: as `sees` says.
  Value from;
  bool decayed;  // y's vectors have a factor 2 ** (their own step's decay),
                 // which is left to the sight
} Sight;

Value tile_step_spread(Builder *b, Value v, const Side *side);
Value tile_step_scan(Builder *b, Value v, uint32_t axis, ScanDir dir,
                     bool exclusive);
Value tile_step_dot(const Steps *s, Builder *b, Value x, Value y, Value plus,
                    uint32_t over);
// How far the decay's course may go up.
Value tile_step_growth(Steps *s, Builder *b, uint32_t i);
// The decay of each element of a side, as log2.
Value tile_step_own_decay(Steps *s, Builder *b, uint32_t i, Side *side);
Run tile_step_run(Steps *s, Builder *b, uint32_t i, Side *side);
// 2 ** (decay from a write to what reads), 0 where that does not see it.
Value tile_step_pair(Steps *s, Builder *b, uint32_t i, const Sight *at);
Value tile_step_sees(Builder *b, const Sight *at);
// What is stored of the state in front of blocks of steps (front.c), where
// chunks are walked: at the coordinates of step j, whose state is in front of
// it.
void tile_front_store(Steps *s, Builder *b, Value j, const ValueMap *pre,
                      const Value *state);
bool tile_front_takes(const Steps *s, const Op *store);
// What is in front of steps, for a step at hand.
void tile_front_step(const Steps *s, uint32_t i, Value state, ValueMap *m);
// Chunks of so many steps, but for those that cut blocks.
int64_t tile_front_chunk(Steps *s, int64_t chunk);

// Steps of a chunk for these recurrences.
int64_t tile_step_choose(const Steps *s);
// What is the same in all chunks, in front of the loop.
void tile_step_constants(Steps *s, Builder *b, ValueMap *m);
// Decays of the chunk; a bool if it can only be done where that holds, or 0.
Value tile_step_prepare(Steps *s, Builder *b, uint32_t i);
// The chunk of state i: the state after it; its reads go to read, and behind
// them what the write that erases writes, if that is asked for: along either
// side.
Value tile_step_chunk(Steps *s, Builder *b, uint32_t i, Value state,
                      Value *read);

// The same where the chunk's products suit matrix units (matrix.c).
bool tile_matrix_fits(const Steps *s, uint32_t i);
// A state without columns that has one decay a step and from which nothing is
// erased.
bool tile_matrix_bare(const Func *f, const Op *op);
// Is a recurrence's next state 2 ** g times the one before and a sum that does
// not know it (recur.c)? g: 0: none.
bool tile_recur_sums(const Func *f, const Op *op, Value *g);
Value tile_matrix_chunk(Steps *s, Builder *b, uint32_t i, Value state,
                        Value *read);
// Only the state after it.
Value tile_matrix_state(Steps *s, Builder *b, uint32_t i, Value state);
// f * v: what varies with the vector's axis, and what does not (0: 1).
typedef struct Vector {
  Value v, f;
} Vector;

// What v is times factors.
Value tile_matrix_base(const Steps *s, Value v, uint32_t axis);
// A chunk begins.
void tile_matrix_open(Steps *s, uint32_t i);

typedef struct Course {
  Value upto, before, rest;  // as in Run
  Value above, below;  // of elements against the walk: the sum of those in
                       // front of it in memory, with its own and without; or 0
} Course;

Vector tile_matrix_vector(Steps *s, Builder *b, Side *side, Value v,
                          uint32_t axis);
// Is it 2 ** (the decay of a step)?
bool tile_matrix_is_decay(const Steps *s, uint32_t i, Value f);
// The same but for a factor 2 ** (the decay of its step), if it has that one.
Vector tile_matrix_undecayed(Steps *s, Builder *b, uint32_t i, Side *side,
                             Value v, bool *decayed);
Course tile_matrix_course(Steps *s, Builder *b, uint32_t i, Side *side);
// What vectors v along x see of vectors w along y, but for v's factor.
Value tile_matrix_seen(Steps *s, Builder *b, uint32_t i, const Sight *at,
                       Vector v, Vector w);
// A decay per row: vectors that read, scaled relative to the middle of the
// chunk's decay; vectors that are written, with both factors; half of the
// chunk's decay of a state.
// With a decay per column what is written and what was read are scaled so.
Value tile_matrix_read_scaled(Steps *s, Builder *b, uint32_t i, Side *side,
                              Value q, bool before);
Value tile_matrix_write_scaled(Steps *s, Builder *b, uint32_t i, Side *side,
                               Vector x, Value f);
Value tile_matrix_half_decayed(Steps *s, Builder *b, uint32_t i, Value state);

// The same where writes erase (erase.c).
bool tile_erase_fits(const Steps *s, uint32_t i);
// It writes nothing in place of what it erases.
bool tile_erase_only(const Func *f, const AffineWrite *w);
bool tile_erase_suits(const Func *f, const Affine *a, const TilePlan *p,
                      const Target *tg);
// Two values of the narrow type whose sum has twice its bits.
typedef struct Pair {
  Value hi, lo;
} Pair;

Pair tile_erase_split(const Steps *s, Builder *b, Value x);
// Which operands of products with the state have two values, and why.
const char *tile_erase_parts(const Steps *s);
// read is NULL: only the state after it.
Value tile_erase_chunk(Steps *s, Builder *b, uint32_t i, Value state,
                       Value *read);

// A decay per row of a chunk that erases, of any strength (halves.c).
bool tile_halves_fit(const Steps *s, uint32_t i);
// Such a decay that no chunk's gates make strong: no chunk goes step by step.
bool tile_halves_never(const Steps *s, uint32_t i);
Value tile_halves_total(Steps *s, Builder *b, uint32_t i);
// Is the chunk's decay weak enough to scale vectors by all of it?
Value tile_halves_weak(Steps *s, Builder *b, uint32_t i);
// v, decayed since the start of the chunk; x and its factor, to its end.
Value tile_halves_since(Steps *s, Builder *b, uint32_t i, Side *side, Value v,
                        bool before);
Value tile_halves_until(Steps *s, Builder *b, uint32_t i, Side *side, Vector x);
// What reads along x see of writes along y, but for factors of those that read.
Value tile_halves_seen(Steps *s, Builder *b, uint32_t i, const Sight *at,
                       Value read, Value write);

// A decay that sums of 16-bit programs take.
Value tile_matrix_decay(Builder *b, Value g);

#endif
