// Meaning of elementwise ops on single numbers, shared by constant folding and
// the interpreter.
#ifndef ATTNC_IR_EVAL_H
#define ATTNC_IR_EVAL_H

#include "ir/ir.h"

// Value of an elementwise op of ops.def at the numbers x; NaN of other ops.
// Integers and bools are exact in a double up to 2^53. A cast is not rounded,
// divk is div.
double eval_op(OpCode op, const double *x);
// The same for n points: operand k of point i is x[k][i * step[k]].
void eval_many(OpCode op, const double *const *x, const uint32_t *step,
               uint32_t n, double *out);
// Identity of a reduction of elements of t, and one step of it. Integers are
// reduced as i64: max begins at its least number, min at its greatest (here
// the greatest that a double has).
double eval_identity(RKind k, DType t);
double eval_reduce(RKind k, double acc, double x);

#endif
