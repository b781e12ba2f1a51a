// Recurrences in the pass `grad`: a walk, and what its adjoint consists of.
#ifndef ATTNC_PASSES_ATTN_GRAD_WALK_H
#define ATTNC_PASSES_ATTN_GRAD_WALK_H

#include "passes/attn/grad.h"

typedef struct GradAdjoint {
  Grad *g;
  const GradWalk *of, *w;          // the program's; with what is made in front
  bool chunks;                     // it goes by chunks
  bool norms;                      // of more vectors than a kernel holds
  GradWalk mirror;                 // rows contracted, other direction
  GradWalk turned, turned_mirror;  // columns contracted
  uint32_t read[MAX_ITEMS];        // by item: its result
  uint32_t z[MAX_ITEMS];           // by write: that of `mirror`
  uint32_t eraser[MAX_ITEMS];      // by read: 1 + the write that takes it off
} GradAdjoint;

// ---- grad_walk.c
// A walk along the axis of another, with its kind of state.
GradWalk grad_walk_like(const GradWalk *w, bool reverse, Gid init);
bool grad_walk_put(GradWalk *w, GradItem item);  // false: there are too many
void grad_walk_close(Grad *g, GradWalk *w);
// Result k, with these axes and the walk's.
Gid grad_walk_read(Grad *g, const GradWalk *w, uint32_t k, uint64_t axes);
// The state behind the last step.
Gid grad_walk_last(Grad *g, const GradWalk *w);
// The state in front of each block of COST_GRAD_CHUNK steps.
Gid grad_walk_front(Grad *g, const GradWalk *w, uint32_t blocks);
// Do walks store that, and what their only write that erases writes?
bool grad_walk_stores(const GradAdjoint *a);
// What item i wrote: w, less what it erased.
Gid grad_written(const GradAdjoint *a, uint32_t i);
// The cotangent of all that comes of read i, or 0.
Gid grad_read_by(const GradAdjoint *a, uint32_t i);

// ---- grad_gauge.c
// Decays and writes of a walk that a maximum keeps in range, without what flows
// to that.
void grad_gauge(Grad *g, GradWalk *w);
// What reads of the walk, and its last state, have of it instead.
void grad_gauge_back(Grad *g, const GradWalk *w);
// c flows to the state before the first step.
bool grad_needs_init(const Grad *g, const GradWalk *w);
void grad_give_init(Grad *g, const GradWalk *w, Gid c);

// ---- grad_chunks.c
// The adjoint in chunks, of a walk that fits; but what the walk of cotangents
// gives where writes erase. Beside it: its normalizer's, or NULL.
bool grad_chunks_fit(const GradAdjoint *a);
// Are its vectors more than one kernel holds?
bool grad_chunks_long(const Grad *g, const GradWalk *w);
void grad_chunks(GradAdjoint *a, GradAdjoint *beside);
// A walk of scalars in chunks: what is in front of each step, and behind all.
bool grad_scalar_fits(const Grad *g, const GradWalk *w);
void grad_scalar_chunks(Grad *g, GradWalk *w, Gid *front, Gid *last);
// v, of which what varies along `local` is 0 where `in` does not hold: vectors
// of 16 bits as they are loaded.
Gid grad_masked(Grad *g, Gid v, uint32_t local, Gid in);

// ---- grad_front.c
// The same walk, with vectors and decays that are made in front of it.
void grad_make_front(GradAdjoint *a);

// ---- grad_gates.c
bool grad_gates(GradAdjoint *a);

#endif
