// What descriptor and C header must say alike about a program's parameters.
#ifndef ATTNC_CODEGEN_LAYOUT_H
#define ATTNC_CODEGEN_LAYOUT_H

#include "codegen/codegen.h"

uint8_t cg_param_kind(const CgParam *p);    // attn_param_kind
uint8_t cg_param_flags(const CgParam *p);   // attn_param_flag
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

#endif
