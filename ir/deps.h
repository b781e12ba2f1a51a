// Dependence of values on axes and on each other. A value depends on the key
// axes it varies with and on those some operand of it was reduced over.
#ifndef ATTNC_IR_DEPS_H
#define ATTNC_IR_DEPS_H

#include "ir/ir.h"

typedef struct KeyDeps {
  const Func *fn;
  Map memo;  // value -> set; values must not change once asked for
  Map last;  // value -> those of reductions that no other is behind
} KeyDeps;

KeyDeps ir_key_deps_of(const Func *f, Arena *a);
// Bit i: key axis i.
uint64_t ir_key_deps(KeyDeps *d, Value v);
// The key axis for which x / y = x / 0 is 0 where it has no keys: one that y
// was reduced over, or x, if y is not `fixed`; -1 if there is none. Of several
// it is that of a reduction with no other behind it, and one that x varies
// with.
int ir_quotient_key(KeyDeps *d, Value x, Value y, bool fixed);

// v as a value that varies with `axis`, so that it can be reduced over it: v
// plus a zero made of the coordinate.
Value ir_spread(Builder *b, Value v, uint32_t axis);
// v spread over every axis of the set (bit i: axis i) that it lacks.
Value ir_cover(Builder *b, Value v, uint64_t axes);
uint64_t ir_axes_of(const Func *f, Value v);
// Those that op sums or reduces over; 0: it does not.
uint64_t ir_axes_over(const Op *op);
// The first 64 of f's axes that have the role.
uint64_t ir_axes_with(const Func *f, AxisRole role);

// What the operand of a reduction over key axis i must vary with, because the
// axis' domain does.
typedef struct DomainAxes {
  uint64_t of[64];
} DomainAxes;
void ir_note_domain(const Func *f, DomainAxes *d, uint32_t axis, Value pred);

// Drops pure ops, and loads of inputs, without uses.
void ir_sweep(Func *f);

#endif
