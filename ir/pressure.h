// Registers of a thread that values take where most of them live at once:
// levels frag and mach, before any assembler has seen the code.
#ifndef ATTNC_IR_PRESSURE_H
#define ATTNC_IR_PRESSURE_H

#include "ir/ir.h"
#include "ir/target.h"

typedef struct Press {
  uint32_t regs;    // of a thread, 32 bits each
  const Op *at;     // where; NULL: no fragments
  Vec(Value) live;  // what lives there
} Press;

// Registers of a thread of a group of that many for a value of type t.
uint32_t pressure_of(const Type *t, uint32_t threads);
// Code generation makes v where it is used; only its operands are kept.
bool pressure_free(const Func *f, Value v);
// The most of f, or of one of its roles. Lists are in `a`.
Press ir_pressure(const Func *f, Arena *a);
// The most where op, or what is in it, is executed.
Press ir_pressure_in(const Func *f, const Op *in, Arena *a);
// Registers beyond `most`, summed over the ops of f where more live.
uint64_t ir_pressure_over(const Func *f, uint32_t most, Arena *a);
// Registers of an NVIDIA thread that computes: its role's, or what its launch
// leaves it.
uint32_t pressure_limit(const Func *f, const Target *t);

#endif
