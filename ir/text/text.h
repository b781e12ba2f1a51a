// Private to ir/: what printer, parser and verifier share.
#ifndef ATTNC_IR_TEXT_TEXT_H
#define ATTNC_IR_TEXT_TEXT_H

#include "ir/ir.h"

// The words of enumerations, in the order of their enums.
typedef enum WordSet {
  WS_LEVEL,
  WS_AXIS_ROLE,
  WS_FUNC_KIND,
  WS_PARAM_ROLE,
  WS_DIM_KIND,
  WS_RKIND,
  WS_DIR,
  WS_ORDER,
  WS_FILL,
} WordSet;

// NULL if i is out of range.
const char *word(WordSet set, uint32_t i);
bool word_find(WordSet set, const char *s, size_t len, uint32_t *i);
// "sum, prod, max, ..", for messages.
void word_list(WordSet set, Buf *out);

// Appends one op without the insides of its regions. Safe on invalid IR.
void print_op_line(const Func *f, const Op *op, Buf *out);
void print_type(const Func *f, const Type *t, Buf *out);

#endif
