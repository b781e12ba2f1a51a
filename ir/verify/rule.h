// Private to the verifier: what the rules of levels frag and mach share.
#ifndef ATTNC_IR_VERIFY_RULE_H
#define ATTNC_IR_VERIFY_RULE_H

#include "ir/layout.h"
#include "ir/verify/verify.h"

static inline const Type *arg_type(const Verifier *v, const Op *op,
                                   uint32_t i) {
  return ir_type(v->f, op->args[i]);
}

static inline const Type *res_type(const Verifier *v, const Op *op) {
  return ir_type(v->f, op->res[0]);
}

static inline bool wrong_result(Verifier *v, const Op *op) {
  return verify_fail(v, op, "the result has the wrong type");
}

static inline bool wrong_operand(Verifier *v, const Op *op, uint32_t i) {
  return verify_fail(v, op, "operand %u has the wrong type", i);
}

static inline bool is_whole(const Type *t) {
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

static inline bool is_tile(const Type *t) {  // one slot of shared memory
  return t->kind == TK_SMEM && t->ext[2] == 1;
}

// The elements of fragment x fill the shared tile s; flip: its columns are
// x's rows.
static inline bool fills(const Type *x, const Type *s, bool flip) {
  return is_tile(s) && is_whole(x) && s->dtype == x->dtype &&
         s->ext[flip] == x->ext[0] && s->ext[!flip] == x->ext[1];
}

#endif
