// State shared by the files of the pass `chunk`.
//
// The step is executed symbolically: what does not depend on the state is
// cloned in front of the recurrence (FREE), the state is a matrix
//
//   diag(2 ** g) S + sum_i b_i e_i^T                          (Mat)
//
// and what is read of it is a linear form  w + sum_j c_j a_j^T S_j  (Lin).
// Everything else that depends on a state (LATE) may be stored, but cannot
// flow back. Ownership: Ctx.scratch until the pass ends.
#ifndef ATTNC_PASSES_STREAM_CHUNK_H
#define ATTNC_PASSES_STREAM_CHUNK_H

#include "ir/affine.h"
#include "passes/pass.h"

typedef struct Mat Mat;

typedef struct Term {  // k * c * (a^T of)
  double k;
  Value c;  // 0: 1; varies with no axis of the state
  Value a;  // along the rows
  const Mat *of;
} Term;

typedef struct Lin {
  Value w;  // 0: none
  uint32_t n;
  const Term *term;
} Lin;

typedef struct Write {  // b e^T; equal iff the pointers are
  Value b;              // along the rows
  const Lin *e;
} Write;

struct Mat {
  int state;  // its number, -1: none
  Value g;    // log2 of the decay, 0: none
  uint32_t n;
  const Write *const *write;
};

typedef enum SymKind { SY_NONE, SY_FREE, SY_LIN, SY_MAT, SY_LATE } SymKind;

typedef struct SymValue {
  SymKind kind;
  Value v;  // FREE: outside of the recurrence
  const Lin *lin;
  const Mat *mat;
  const Op *why;  // LATE: where the form was lost
  const char *reason;
} SymValue;

enum { MAX_STATES = 32, MAX_UNROLL = 8 };

typedef struct State {
  bool scalar;      // no axes: a running maximum
  int row, col;     // axes, -1: none
  bool read;        // which of them is the row axis is known
  const Mat *last;  // after the step
  Affine affine;    // being made
  Op *op;           // made
} State;

typedef struct Want {  // a read that is wanted: the affine's number `at`
  Value a;
  const Mat *of;
  uint32_t at;
  uint32_t skip;  // writes of `of` that the read does not contain
} Want;

typedef struct Chunk {
  Ctx *cx;
  Arena *arena;
  Func *f;
  Op *recur;
  uint32_t axis;  // the step's
  Builder b;      // in front of the recurrence
  ValueMap free;  // FREE values
  uint32_t n;     // states
  State state[MAX_STATES];
  Vec(SymValue) value;  // per value of the region
  Vec(Want) wants;
  Value *fixed;  // per axis: coordinate of an unrolled loop, or 0
  Value valid;   // predicate in the region: t < limit; or 0
  Value limit;
  bool reads_alone;  // what writes write is found of reads
  const Op *why;     // why the recurrence stays as it is
  const char *reason;
} Chunk;

// Can f's recurrence op be brought into the normal form?
bool chunk_has_form(Ctx *cx, Func *f, Op *op);
// Fails with a reason; false.
bool chunk_fail(Chunk *c, const Op *at, const char *reason);

// ------------------------------------------------------------- chunk_alg.c
// The state whose axes are row and col of the value, or of all states.
bool chunk_is_row(const Chunk *c, uint32_t axis);
bool chunk_is_col(const Chunk *c, uint32_t axis);
const Lin *chunk_lin(Chunk *c, Value w, const Term *t, uint32_t n);
const Mat *chunk_mat(Chunk *c, int state, Value g, const Write *const *w,
                     uint32_t n);
// The meaning of op for operands of which at least one is no FREE.
SymValue chunk_op(Chunk *c, const Op *op, const SymValue *x);

// ------------------------------------------------------------- chunk_log.c
// log2 of v > 0, 0 if v is not known to be positive.
Value chunk_log_of(Chunk *c, Value v);

// ------------------------------------------------------------- chunk_max.c
// Walks scalar state s for itself.
bool chunk_max_state(Chunk *c, uint32_t s);

// ------------------------------------------------------------ chunk_sums.c
// Sums over an axis as long as `row` become sums over that.
void chunk_sums(Func *f, uint32_t row);

// ----------------------------------------------------------- chunk_norm.c
// Brings the states' matrices into the normal form.
bool chunk_norm_states(Chunk *c);
// Makes sure that materializing l will find its reads.
bool chunk_norm_want(Chunk *c, const Lin *l);
// l as a value, after the ops are made.
Value chunk_norm_value(Chunk *c, Builder *b, const Lin *l);

// ---------------------------------------------------------- chunk_result.c
// What a state's only write that erases writes, times f (0: 1), or less that.
typedef struct ChunkWritten {
  uint32_t state;
  bool turned;
  Value f;
} ChunkWritten;

// Is l that? Of which state, times what?
bool chunk_written(const Chunk *c, const Lin *l, ChunkWritten *found);
// Does the store take the state m in front of steps that begin a block of so
// many? Then the affine has it.
bool chunk_front(Chunk *c, const Mat *m, const Op *store);

#endif
