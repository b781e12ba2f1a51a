// What is known of an elementwise op in general: the facts of its row in
// ops.def. docs/ir.md, "What is known of elementwise ops", says how to read
// them. A pass asks here before it lists ops of its own.
#ifndef ATTNC_IR_FACTS_H
#define ATTNC_IR_FACTS_H

#include "ir/ir.h"

typedef enum OpClass {
  OC_NONE,   // not elementwise, or without operands
  OC_ARITH,  // an instruction or two, or a division
  OC_COMPARE,
  OC_LOGIC,
  OC_POWER,     // exponentials, powers, roots
  OC_FUNCTION,  // every other function that takes more than arithmetic
} OpClass;

// How an op of one operand moves with it, over its whole domain.
typedef enum OpShape {
  FS_NONE,
  FS_RISES,
  FS_FALLS,
  FS_BOWL,  // even, and rises from 0 on
} OpShape;
typedef enum OpParity { FP_NONE, FP_ODD, FP_EVEN } OpParity;

// The sign of the result of an op of one operand a.
typedef enum OpSign {
  SG_ANY,
  SG_WEAKLY,    // >= 0 where a >= 0
  SG_KEEPS,     // so, and > 0 where a > 0
  SG_NONNEG,    // >= 0 everywhere, > 0 where a > 0
  SG_POSITIVE,  // > 0 everywhere
} OpSign;

typedef struct OpFacts {
  OpClass class;
  uint8_t cost;     // of an element on a CPU; an addition is 1
  uint8_t slots;    // issue slots of an f32 element on a GPU
  uint8_t special;  // those of them that the special function unit takes
  bool asks;        // it reads an attribute or a domain too, so that
                    // constant operands do not give a constant
  bool exact;       // of narrow floats, it needs no rounding
  OpShape shape;
  OpParity parity;
  OpSign sign;
  struct {
    double lo, hi;
  } range, domain;     // {0, 0}: all numbers
  const char *grad;    // derivative by each operand, NULL: has none
  const char *expand;  // the op by others (pass expand), NULL: is emitted
} OpFacts;

const OpFacts *op_facts(OpCode c);
// Of class POWER or FUNCTION.
bool op_is_function(OpCode c);
// Whether constant operands give a constant: eval_op is its value.
bool op_folds(OpCode c);

#endif
