// Private to ir/: the verifier's parts. verify.c walks modules, regions and
// definitions; op.c has the rules of single ops, for levels frag and
// mach with mach.c (the CPU), frag.c (values of GPUs) and
// gpu.c (their memory and order).
#ifndef ATTNC_IR_VERIFY_VERIFY_H
#define ATTNC_IR_VERIFY_VERIFY_H

#include "ir/text/text.h"

typedef struct Verifier {
  Ctx *cx;
  const Module *m;
  const Func *f;
  uint8_t *state;  // by value: 0 not defined yet, 1 visible, 2 left behind
  uint32_t errors;
  uint8_t ops;        // OPL_* of what the module may have
  bool roles, rings;  // what f has of a schedule, at level frag
} Verifier;

// Adds A0650 about op (NULL: the function). Always false.
bool verify_fail(Verifier *v, const Op *op, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// Whether the module may have op at all.
bool verify_level(Verifier *v, const Op *op);
// Everything else about op but its position, the values it uses being defined.
bool verify_op(Verifier *v, const Op *op);
// What levels frag and mach demand besides.
bool verify_machine_op(Verifier *v, const Op *op);
// Likewise, for modules of a GPU (besides elementwise ops), and of these those
// that are about values.
bool verify_gpu_op(Verifier *v, const Op *op);
bool verify_frag_op(Verifier *v, const Op *op);
// A box of tensor operand `at` (indices follow) and a shared tile.
bool verify_box(Verifier *v, const Op *op, uint32_t at, const Type *tile);
// Looks for the schedule of v->f; whether op, which is of schedules, has one.
void verify_schedule(Verifier *v);
bool verify_scheduled(Verifier *v, const Op *op);
// The terminator of r, NULL if it has none.
const Op *verify_terminator(const Region *r);

#endif
