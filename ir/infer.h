// Private to ir/: result types by the `infer` column of ops.def, without
// asserts, so that the verifier can use it on hostile input.
#ifndef ATTNC_IR_INFER_H
#define ATTNC_IR_INFER_H

#include "ir/ir.h"

// The type of op's one result. NULL on success, else what is wrong. Only for
// ops whose infer column is neither GIVEN nor NONE.
const char *infer_type(const Func *f, const Op *op, Type *out);
// a with the axes of b. NULL, or what is wrong.
const char *infer_union(const Type *a, const Type *b, DType dtype, Type *out);
// The dtype that holds every value of both.
DType infer_widen(DType a, DType b);

// An op as given: no checks, no inference, nothing copied but the lists.
// Inserted before `before`, or at the end of r.
Op *op_make(Region *r, Op *before, OpCode c, const Value *args, uint32_t nargs,
            const IrAttr *attrs, uint32_t nattrs);
void op_add_results(Op *op, const Type *types, uint32_t n);
Region *op_add_region(Op *op);
void ir_set_hint(Func *f, Value v, const char *hint);

#endif
