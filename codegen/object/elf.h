// Merging relocatable objects (elf.c).
#ifndef ATTNC_CODEGEN_OBJECT_ELF_H
#define ATTNC_CODEGEN_OBJECT_ELF_H

#include "ir/core/ctx.h"

typedef struct CgPart {
  const void *at;
  size_t n;
} CgPart;

// Appends to *out the object that in[0..n) make together. Its bytes depend on
// theirs and their order only.
void cg_elf_merge(Arena *a, const CgPart *in, uint32_t n, Buf *out);

#endif
