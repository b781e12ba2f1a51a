// Meaning of elementwise ops on single numbers, shared by constant folding and
// the interpreter.
#ifndef ATTNC_IR_EVAL_H
#define ATTNC_IR_EVAL_H

#include "ir/ir.h"

// Result of an elementwise op (flag E of ops.def, but not const, dim, cast) on
// numbers; integers and bools are exact in a double up to 2^53. `in` is the
// dtype of operand 0 (select: of operand 1).
double eval_op(OpCode c, DType in, const double *x);
// Identity of a reduction of elements of t, and one step of it. Integers are
// reduced as i64: max begins at its least number, min at its greatest (here
// the greatest that a double has).
double eval_identity(RKind k, DType t);
double eval_reduce(RKind k, double acc, double x);

#endif
