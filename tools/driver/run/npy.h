// .npy files (format versions 1 to 3). Data is in C order with native bytes,
// aligned to 64 bytes, and lives in the arena given. bf16 travels as u16, f8
// as u8, tf32 as f32. Refused: structured and complex types, pickled objects,
// u64, more than 8 axes, bytes before or behind the array.
#ifndef ATTNC_DRIVER_RUN_NPY_H
#define ATTNC_DRIVER_RUN_NPY_H

#include "ir/core/ctx.h"
#include "ir/core/dtype.h"

enum { NPY_MAX_RANK = 8 };

typedef struct NpyArray {
  DType dtype;
  int rank;
  int64_t shape[NPY_MAX_RANK];
  int64_t count;  // elements
  void *data;
} NpyArray;

// The bytes of a file. False: *why says what is wrong with them (in `a`).
bool npy_parse(Arena *a, const void *bytes, size_t n, NpyArray *out,
               const char **why);
// Reads a file; false with a diagnostic.
bool npy_read(Ctx *cx, Arena *a, const char *path, NpyArray *out);
// Writes a file as numpy would; false with a diagnostic.
bool npy_write(Ctx *cx, const char *path, const NpyArray *x);

#endif
