// How indices of a tile go on along registers.
#ifndef ATTNC_CODEGEN_GPU_RUNS_H
#define ATTNC_CODEGEN_GPU_RUNS_H

#include "codegen/gpu/gpu.h"

// Elements that may travel together.
enum { GPU_PIECE = 8 };

// How an index goes on along the registers of a piece.
typedef enum Going { GO_SAME, GO_NEXT, GO_CUT, GO_ANY } Going;

// Is v a multiple of k, but for a tile's own coordinates?
bool gpu_is_multiple(const Gpu *n, Value v, int64_t k);
// Consecutive numbers: the coordinate plus what is the same for all.
bool gpu_is_run(const Gpu *n, Value v);
Going gpu_going(const Gpu *n, Value v);
// Is v a multiple of GPU_PIECE where a piece of `lin` begins?
bool gpu_begins_pieces(const Gpu *n, Value v);
// Is a mask of a tile the same in all columns of a row?
bool gpu_is_of_rows(const Gpu *n, Value v);

#endif
