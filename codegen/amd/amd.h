// Private to codegen/amd*.c: GPU mach as LLVM IR for AMDGCN.
#ifndef ATTNC_CODEGEN_AMD_AMD_H
#define ATTNC_CODEGEN_AMD_AMD_H

#include "codegen/gpu/gpu.h"

// An element of a shared tile, of this thread.
typedef struct LdsPlace {
  Tile s;
  const Type *t;
  V row, col, at;  // i32; byte in the slot
} LdsPlace;

// ---- lds.c
LdsPlace amd_place(Gpu *n, Tile s, const Type *t, V row, V col);
// Pointer to the element that many rows and columns behind; bits of the sums
// must not carry.
V amd_at(Gpu *n, const LdsPlace *p, uint32_t row, uint32_t col);
// Copies to shared memory and reads of it never are of the same slot without a
// barrier between: LLVM need not wait for those before these. kind: alias.scope
// of copies, noalias of reads.
void amd_apart(Gpu *n, V access, const char *kind);
bool amd_store_tile(Gpu *n, Tile s, const Type *t, const Frag *f);

// ---- mem.c, mma.c
CgExpr amd_dense(Gpu *n);
extern GpuEmit amd_gload, amd_gstore, amd_cp_async;
bool amd_mma(Gpu *n, const Product *p, Frag *r);

#endif
