// Vectors that count the steps of a chunk.
#ifndef ATTNC_PASSES_SUPPORT_PIECES_H
#define ATTNC_PASSES_SUPPORT_PIECES_H

#include "ir/ir.h"

// A bit for each axis of such a vector. Levels attn and stream.
uint64_t pieces_axes(const Func *f);
// Is each point of f a chunk, of which matrices are multiplied?
bool pieces_of_chunk(const Func *f);
// Bytes of the matrices that such a point loads, each once.
int64_t pieces_bytes(const Func *f);

#endif
