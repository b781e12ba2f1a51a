// The adjoint of a walk by chunks, in the pass `grad`: what its files share.
#ifndef ATTNC_PASSES_ATTN_GRAD_CHUNKS_H
#define ATTNC_PASSES_ATTN_GRAD_CHUNKS_H

#include "passes/attn/grad_walk.h"

// f v: a vector along the rows or columns, and what has neither; f: 0 is 1.
typedef struct Scaled {
  Gid v, f;
} Scaled;

typedef struct Chunks {
  Grad *g;
  GradAdjoint *a;
  const GradWalk *w;
  struct Chunks *beside;  // a normalizer of these states, or NULL
  bool decays, erases;
  bool rows;                            // each row has a decay of its own
  bool apart;                           // a kernel for each gradient
  bool by_step;                         // what sums rows is made by others
  uint32_t decay;                       // the item
  uint32_t chunk, at, use, write, sum;  // axes: of chunks; of steps in one
  uint32_t read_part, write_part, in_part, all_parts;  // of rows
  Gid state, cotangent;                                // S, D
  Scaled x[MAX_ITEMS], y[MAX_ITEMS];                   // by read
  Scaled b[MAX_ITEMS], e[MAX_ITEMS];                   // by write
  Gid from_state[MAX_ITEMS];  // by item: the first term
  Gid scaled[MAX_ITEMS];      // by write: its vector at the chunk's end, made
} Chunks;

// A value with a point for each step of a chunk, in the order of their stores.
typedef enum ChunkRank {
  OF_READ = 1,
  OF_WRITTEN,
  OF_DECAY,
  OF_ERASED,  // a read that a write takes off
  OF_WRITE
} ChunkRank;

typedef struct ChunkMade {
  Gid v, first;
  ChunkRank rank;
  bool alone;     // by a kernel of its own
  uint32_t side;  // by one that has what is on that side only, or 0
} ChunkMade;

// ---- grad_chunks.c
Gid grad_chunk_at(const Chunks *c, uint32_t axis);  // its coordinate
// Of two, one or none.
Gid grad_chunk_product(Grad *g, Gid v, Gid w);
Gid grad_chunk_plus(Grad *g, Gid v, Gid w);
Gid grad_chunk_as(Grad *g, DType t, Gid v);
Gid grad_chunk_narrowed(Grad *g, Gid v);  // as an operand of a product
Gid grad_chunk_decay(const Chunks *c, uint32_t local);  // of that step
// Is step i in front of k, in the order of the walk?
Gid grad_chunk_before(const Chunks *c, uint32_t i, uint32_t k);
// Does item i read what is in front of the step's decay?
bool grad_chunk_early(const Chunks *c, uint32_t i);
Gid grad_chunk_dot(const Chunks *c, Gid v, Gid w, uint64_t over);
// v at the steps of a chunk; with an end: 0 where there is no step.
Scaled grad_chunk_vector(const Chunks *c, Gid v, uint32_t local, bool ends);
Gid grad_chunk_written(const Chunks *c, uint32_t k);  // by item k
void grad_chunk_give(Chunks *c, Gid x, ChunkMade v);  // v flows to x
void grad_chunk_give_decay(Chunks *c, Gid phi, Gid first, uint32_t side);

// ---- grad_halves.c
// Where rows have decays of their own: those of the chunk up to a step, or in
// front of its own; those behind it; as factors.
Gid grad_halves_upto(const Chunks *c, uint32_t local, bool early);
Gid grad_halves_behind(const Chunks *c, uint32_t local);
void grad_halves(Chunks *c, bool gates);

#endif
