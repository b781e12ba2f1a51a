// Private to ir/: the verifier's parts. verify.c walks modules, regions and
// definitions; verify_op.c, verify_mach.c and verify_gpu.c have the rules of
// single ops.
#ifndef ATTNC_IR_VERIFY_VERIFY_H
#define ATTNC_IR_VERIFY_VERIFY_H

#include "ir/text/text.h"

typedef struct Verifier {
  Ctx *cx;
  const Module *m;
  const Func *f;
  uint8_t *state;  // by value: 0 not defined yet, 1 visible, 2 left behind
  uint32_t errors;
} Verifier;

// Adds A0650 about op (NULL: the function). Always false.
bool verify_fail(Verifier *v, const Op *op, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// Everything about op but its position, the values it uses being defined.
bool verify_op(Verifier *v, const Op *op);
// What level mach demands besides.
bool verify_mach_op(Verifier *v, const Op *op);
// Likewise, for modules of a GPU (besides elementwise ops).
bool verify_gpu_op(Verifier *v, const Op *op);
// The terminator of r, NULL if it has none.
const Op *verify_terminator(const Region *r);

#endif
