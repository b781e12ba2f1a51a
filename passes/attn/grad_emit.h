// Kernels of the pass `grad` being written.
#ifndef ATTNC_PASSES_ATTN_GRAD_EMIT_H
#define ATTNC_PASSES_ATTN_GRAD_EMIT_H

#include "passes/attn/grad.h"

typedef struct EmitDomain {
  Gid c;
  uint32_t to;  // the axis whose keys it excludes, or one of what is stored
} EmitDomain;

typedef struct Emit {
  Grad *g;
  const GradKernel *k;  // NULL: the program itself
  Builder b;
  Value *memo;          // by Gid
  Value *tensor;        // by tensor
  Value *out;           // by tensor: its gradient
  uint32_t at[64];      // by axis: that of the function
  uint64_t used;        // axes that it has
  uint64_t stored;      // axes of what it stores and its sums, not of domains
  uint64_t need[64];    // by axis: those that its domain varies with
  Vec(Gid) fold;        // conditions on several key axes
  Vec(EmitDomain) put;  // the others
  Value keep;           // of points that are stored; 0: all
} Emit;

Value grad_emit(Emit *e, Gid x);
// v, made to vary with these axes.
Value grad_widen(Emit *e, Value v, uint64_t axes);
// v is what s stores.
void grad_emit_store(Emit *e, const GradStore *s, Value v);

// ---- grad_steps.c
void grad_emit_walk(Emit *e);

// ---- grad_body.c
void grad_emit_body(Emit *e);

#endif
