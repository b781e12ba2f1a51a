// Private to attn-oracle: a program on random inputs.
#ifndef ATTNC_ATTN_ORACLE_RUN_H
#define ATTNC_ATTN_ORACLE_RUN_H

#include "frontend/oracle.h"
#include "ir/ir.h"
#include "ir/target.h"

enum { MAX_ARGS = 256, MAX_DIMS = 64, MAX_TARGETS = 16 };

typedef struct Options {
  const char *file, *fn, *passes, *grad;
  const Target *target, *targets[MAX_TARGETS];
  uint32_t ntargets, limit;
  int64_t tile_q, tile_k, relief;
  const char *dims[MAX_DIMS], *ins[MAX_ARGS];
  uint32_t ndims, nins;
  int runs, draws;
  uint64_t seed;
  double tol, condition;
  bool round, print, mutant, strided, same, fd;
  bool few;          // then also the code that calls with few rows take
  bool group, warp;  // the code to lower: for the rows of one of these
  int64_t cluster;   // CTAs of a cluster, or 0
  int64_t elements;  // of each gradient that are looked at, or 0: all
  int64_t step;      // elements from one of a tensor to the next
} Options;

typedef struct Run {
  Ctx *cx;
  const Options *o;
  const Decl *d;
  const Func *f;
  uint64_t seed;
  int64_t dims[MAX_DIMS];  // of the module
  InterpTensor args[MAX_ARGS];
  void *want[MAX_ARGS];    // outputs of the oracle
  double allow[MAX_ARGS];  // for each output, or 0: --tol
} Run;

double run_at(DType t, const void *data, int64_t i);
int64_t run_count(const InterpTensor *t);
void *run_storage(Run *r, DType t, int64_t n);
int run_find_arg(const Run *r, const char *name);
// Dims, inputs, storage for outputs. False with a message.
bool run_bind(Run *r);
// The module's dims as the program has them.
void run_dims(const Run *r, int64_t *dims);
// Floats of inputs become f64 and wrong by up to u of themselves.
void run_disturb(Run *r, double u);
// Largest |x - want| / (|want| + rms); inf where one is not finite.
// step: elements from one to the next.
double run_error(const InterpTensor *x, const void *want, int64_t step);
// To the level that the options' passes end at.
Module *run_lower(Ctx *cx, const Options *o, Decl *d);
Run *run_new(Ctx *cx, const Options *o, Decl *d, Module *m, int i);
// The interpreter, on the run's arguments.
bool run_interp(Run *r);
// One target in a process of its own, so that an assert that fails there ends
// nothing else.
bool run_apart(Ctx *cx, const Options *o, const Decl *d,
               bool (*f)(const Options *, void *), void *data);

// ---- grad.c
bool run_grad(Ctx *cx, const Options *o, Decl *d);

#endif
