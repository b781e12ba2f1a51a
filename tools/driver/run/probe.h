// Where the domain of a key holds: its predicate alone, as a program that is
// given points and executed by the interpreter.
#ifndef ATTNC_DRIVER_RUN_PROBE_H
#define ATTNC_DRIVER_RUN_PROBE_H

#include "tools/driver/run/cost.h"

typedef struct Count {
  DrvCall *call;
  Module *m;
  Func *f;
  const int64_t *dims;
  double share[64];  // visible (touched) share of each axis
  uint32_t first;    // of out->keys: those of f
  uint32_t axis[DRV_MAX_KEYS];
  int lane;  // the axis that is tiled, -1: none
  int64_t tile_q, tile_k;
  DrvCost *out;
  double largest;
} Count;

// Values that a predicate depends on, operands first.
typedef struct Slice {
  Vec(const Op *) ops;
  uint64_t axes;
  bool odd;  // something that cannot be copied
} Slice;

// A program beside f: for each row of `at` (coordinates of the axes)
// whether p holds.
typedef struct Probe {
  Func *f;
  uint32_t axis[64], n;  // axes of the original
} Probe;

double probe_extent(const Count *c, uint32_t axis);
void probe_slice(const Func *f, Arena *a, Value v, Slice *s);
// For the given number of points.
void probe_build(Value p, const Slice *s, int64_t rows, const Count *c,
                 Probe *out);
// hit[i] is 1 where the predicate holds at point i, else 0.
bool probe_run(Count *c, const Probe *p, int64_t rows, int64_t *at,
               double *hit);
// The axis whose coordinates the pass `tile` makes lanes of, or -1.
int probe_lane(DrvCall *c, DrvSpec s, const DrvOptions *opt,
               const Target *target, const Func *f);
// The tiles of a target; those of GPUs vary.
void probe_tiles(Count *c, const Target *target);

#endif
