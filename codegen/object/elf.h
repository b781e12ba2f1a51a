// Merging relocatable objects (elf.c).
#ifndef ATTNC_CODEGEN_OBJECT_ELF_H
#define ATTNC_CODEGEN_OBJECT_ELF_H

#include "ir/core/ctx.h"

typedef struct CgPart {
  const void *at;
  size_t n;
} CgPart;

// Makes one of several notes, which lie end to end. False: it cannot.
typedef bool CgNotes(Arena *a, Buf *notes);

// Appends to *out the object that in[0..n) make together. Its bytes depend on
// theirs and their order only. notes: for sections of notes, or NULL: they lie
// end to end. False if it gives false.
bool cg_elf_merge(Arena *a, const CgPart *in, uint32_t n, CgNotes *notes,
                  Buf *out);

#endif
