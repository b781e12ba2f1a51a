// The op `affine`: a recurrence in normal form, taken apart.
//
//   S' = diag(2 ** decay) S, or S diag(2 ** decay);  for each write:  S' = S' + b (w - R^T a)^T
//   read = S'^T q
//
// `written`: what the only write that erases writes, w - R^T a, is a result
// too, behind the reads; `front`, behind that: so is the state in front of each
// step that begins a block of so many, in the order of the walk; blocks are
// counted from the first step of the sequence.
//
// R and the S' of a read are versions of the state: AFFINE_PRE is the state
// before the step, n >= 0 the decayed state after n writes.
#ifndef ATTNC_IR_AFFINE_H
#define ATTNC_IR_AFFINE_H

#include "ir/ir.h"

enum { AFFINE_PLAIN = -2, AFFINE_PRE = -1, AFFINE_MAX = 16 };

typedef struct AffineWrite {
  Value b, w;  // along the rows; along the columns
  Value a;     // what is erased, along the rows; 0 if AFFINE_PLAIN
  int from;    // version that `a` reads
} AffineWrite;

typedef struct AffineRead {
  Value q;
  int from;
} AffineRead;

typedef struct Affine {
  uint32_t axis, row;  // step axis, axis of the state that is contracted
  Value state;         // before the first step
  Value decay;         // log2 of the factor of each row or column, or 0
  Value limit;         // steps at this coordinate and behind do nothing, or 0
  bool falling;        // the decay is known to be <= 0
  bool reverse;
  bool written;
  int64_t front;  // 0: no result
  uint32_t nwrites, nreads;
  AffineWrite write[AFFINE_MAX];
  AffineRead read[AFFINE_MAX];
} Affine;

// False if the operands do not fit the attributes.
bool affine_parts(const Op *op, Affine *a);
// Numbers of results: those behind the state and the reads.
uint32_t affine_written_at(const Affine *a);
uint32_t affine_front_at(const Affine *a);
uint32_t affine_results(const Affine *a);
// The op: results are the last state, the reads, and what else is asked for.
Op *affine_op(Builder *b, const Affine *a, const Type *types);

#endif
