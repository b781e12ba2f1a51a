// What descriptor and C header must say alike about a program's parameters.
#ifndef ATTNC_CODEGEN_OBJECT_LAYOUT_H
#define ATTNC_CODEGEN_OBJECT_LAYOUT_H

#include "codegen/codegen.h"

uint8_t cg_param_kind(const CgParam *p);   // attn_param_kind
uint8_t cg_param_flags(const CgParam *p);  // attn_param_flag
// "float", "double", "int64_t", "attn_tensor"
const char *cg_param_ctype(const CgParam *p);
// Offset of the field behind *end bytes; moves *end behind it.
uint32_t cg_place(const CgParam *p, uint32_t *end);

// Where the lengths of a ragged dim are.
typedef struct Lengths {
  uint32_t tensor;   // index among the tensor parameters, or ATTN_NONE
  uint32_t offsets;  // 1: B + 1 offsets, 0: B lengths
} Lengths;
Lengths cg_lengths(const CgProgram *p, const DimSym *s);

// A program's descriptor less its code for CPUs, as plain data in the scratch
// arena. Expressions and value lists are indexes in `code`.
typedef struct CgPlain {
  Arena *arena;
  attn_param_desc *params;
  attn_dim_desc *dims;
  uint32_t *checks;
  Vec(int64_t) code;
  uint32_t args_size;
  bool deep;  // an expression needs more than ATTN_X_DEPTH
} CgPlain;
CgPlain cg_plain(Ctx *cx, const CgProgram *p);
// Adds an expression; ATTN_NONE for an empty one.
uint32_t cg_plain_expr(CgPlain *d, CgExpr e);

// Appends the section ATTN_SEC_PROGRAM of p.
void cg_describe(Ctx *cx, const CgProgram *p, Buf *out);

#endif
