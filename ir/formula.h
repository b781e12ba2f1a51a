// The formulas of ops.def (columns grad and expand) as calls of a reader:
// one builds IR, one computes numbers. docs/ir.md has the syntax.
#ifndef ATTNC_IR_FORMULA_H
#define ATTNC_IR_FORMULA_H

#include "ir/ir.h"

enum { FORMULA_RESULTS = 3 };

// What is done with the parts of a formula; ids are the reader's own.
typedef struct FormulaTo {
  void *data;
  uint32_t (*number)(void *data, double v);
  uint32_t (*op)(void *data, OpCode c, const uint32_t *args, uint32_t n);
} FormulaTo;

// operands: what a, b and c are; y: the result of the op itself, if the
// formula may name it. Writes one id per expression; returns how many.
// A formula that cannot be read is a bug.
uint32_t formula_read(const char *text, const FormulaTo *to,
                      const uint32_t operands[3], uint32_t y,
                      uint32_t results[FORMULA_RESULTS]);

// The same as ops at b, numbers as constants of t.
uint32_t formula_build(Builder *b, const char *text, DType t,
                       const Value operands[3], Value y,
                       Value results[FORMULA_RESULTS]);

#endif
