// attn-run's state: what was asked, and a program with its arrays.
#ifndef ATTNC_ATTN_RUN_H
#define ATTNC_ATTN_RUN_H

#include "ir/ir.h"
#include "passes/pass.h"
#include "tools/driver/run/gen.h"

typedef struct Input {
  const char *name;
  Gen gen;
} Input;

typedef struct Options {
  const char *file, *other, *fn, *passes;
  const Target *target;
  const char *dims[64];
  uint32_t ndims, ninputs;
  Input inputs[64];
  uint64_t seed;
  int runs;
  double tol;
  bool round, print, jit, fd, unread;
  int64_t tile_q, tile_k, chunk;
  int split_k;
  bool few, walk;
} Options;

// One program with storage for its parameters.
typedef struct Bound {
  Module *m;
  const Func *f;
  InterpTensor args[64];
  int64_t dims[64];
} Bound;

// The program of that name; without one the first that is no phase of another.
const Func *run_pick(const Module *m, const char *name);
// Dims and arrays of b->f; with fd, floats are f64.
bool run_bind(Ctx *cx, Bound *b, const Options *o, uint64_t seed);
int64_t run_count(const InterpTensor *t);

// ---- fd.c
// Compares the gradient program of the program with differences of it.
bool run_fd(Ctx *cx, Module *m, const Options *o, uint64_t seed);

#endif
