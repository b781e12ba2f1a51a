// Private to the interpreter (interp.c, stream.c, affine.c,
// tile.c, mach.c).
#ifndef ATTNC_IR_INTERP_INTERP_H
#define ATTNC_IR_INTERP_INTERP_H

#include "ir/eval.h"
#include "ir/ir.h"

// All points of a value: a dense table over its axes, row-major in the order
// of the type. `known` marks points computed (attn and stream levels).
typedef struct Table {
  double *at;
  uint8_t *known;
  uint64_t n;
} Table;

typedef struct Interp {
  Ctx *cx;
  const Module *m;
  const Func *f;
  const InterpOpt *opt;
  const int64_t *dims;
  InterpTensor *args;
  int *arg_of;                     // parameter position of a value, or -1
  Table *table;                    // per value
  int64_t coord[64];               // current coordinate per axis
  int64_t extent[64];              // per axis
  int64_t key_lo[64], key_hi[64];  // part of a key axis that is visible
  Value *domain[64];               // predicates per axis
  uint32_t ndomain[64];
  Arena *arena;
  uint64_t steps, budget, rng;
  bool open[64];  // step axes of the recurrences around
  bool failed;
} Interp;

double interp_round(const Interp *in, DType t, double v);
// Value of v at the current coordinates.
double interp_eval(Interp *in, Value v);
// True if the current coordinate of the axis is in its domain.
bool interp_in_domain(Interp *in, uint32_t axis);
// Runs fn for every point of the axes of t (others as they are), within the
// domains of parallel axes.
typedef void PointFn(Interp *in, void *data);
void interp_points(Interp *in, const Type *t, PointFn *fn, void *data);
uint64_t interp_at(const Interp *in, const Type *t);  // index in a table
Table *interp_table(Interp *in, Value v);
void interp_forget(Interp *in, const Region *r);  // values defined in r
void interp_store(Interp *in, void *op);          // at the current point
bool interp_region(Interp *in, const Region *r);  // effects in order
bool interp_pass(Interp *in, const Op *op);
bool interp_affine(Interp *in, const Op *op);
bool interp_maxplus(Interp *in, const Op *op);
uint64_t interp_random(Interp *in, uint64_t below);
void interp_fail(Interp *in, const Op *op, const char *what);

// Tensor element access; false if out of range (tile: reads 0).
bool interp_offset(const InterpTensor *t, const int64_t *idx, int64_t *off,
                   int *bad_axis);
bool interp_tile(Interp *in);
bool interp_mach(Interp *in);
bool simt_interp(Interp *in);

#endif
