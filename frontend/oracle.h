// The oracle: what a checked program means, by direct evaluation of its syntax
// tree in f64. It shares nothing with the IR or the passes.
#ifndef ATTNC_FRONTEND_ORACLE_H
#define ATTNC_FRONTEND_ORACLE_H

#include "frontend/frontend.h"

// One parameter or output, in declaration order (params, then outs). Tensors
// have their physical shape (docs/lang.md, layouts); strides count elements.
typedef struct OracleArg {
  DType dtype;
  uint32_t rank;
  int64_t shape[MAX_RANK], stride[MAX_RANK];
  void *data;     // NULL for an output that is not wanted
  double scalar;  // rank 0
  bool given;     // rank 0: false takes the default
} OracleArg;

// Parallel coordinates to evaluate, n tuples of Decl.indices with role
// IX_PARALLEL in their order. Of a recurrent program each is a whole sequence.
typedef struct OraclePoints {
  const int64_t *at;
  uint64_t n;
} OraclePoints;

// Evaluates prog. dims[i] is the value of symbol i of prog->dims; a ragged
// one's is its padded extent and its lengths come from the tensor it names.
// points == NULL: everything. False with a diagnostic: a gather out of range.
bool oracle_run(Ctx *cx, const Decl *prog, OracleArg *args, const int64_t *dims,
                const OraclePoints *points);

// A direction in the space of the float inputs: element `at` (physical
// coordinates) of one, or the whole of it along a number for each element,
// laid out as the argument's data is.
typedef struct OracleSeed {
  uint32_t arg;
  int64_t at[MAX_RANK];
  const double *along;
} OracleSeed;

// The derivative of sum(weights * outputs) in each of n directions. What the
// evaluated points contribute is added to `slopes`.
typedef struct OracleSlopes {
  const double *const *weights;  // per argument, as its data lies; NULL: zero
  const OracleSeed *seeds;
  uint64_t n;
  double *slopes;
  bool *read;  // by seed: set where the program loads it; or NULL
  // Or, per argument, where the sum of the derivatives of each element in all
  // directions goes; weights and slopes are not used.
  double *const *tangents;
  // Every value, operand and contribution to a derivative is wrong by up to
  // this part of itself: other ones with each draw.
  double rounding;
  uint64_t draw;
} OracleSlopes;

// By dual numbers; outputs are not written (their data may be NULL). points as
// in oracle_run. Points at which no element of a seed is read are left out.
bool oracle_slopes(Ctx *cx, const Decl *prog, OracleArg *args,
                   const int64_t *dims, const OraclePoints *points,
                   const OracleSlopes *want);

// How often a seed may be read at the points: what oracle_slopes takes is about
// this many walks of a point, divided by ORACLE_LANES, and more for what lanes
// cost.
enum { ORACLE_LANES = 16 };
uint64_t oracle_reads(Ctx *cx, const Decl *prog, OracleArg *args,
                      const int64_t *dims, const OraclePoints *points,
                      const OracleSlopes *want);

// A builtin of kind MATH, or `abs`, at x (BuiltinId); an operator of two
// numbers (BinOp), NaN if it has none.
double oracle_function(int builtin, double x);
double oracle_binary(int op, double a, double b);

// Builtin `random` of a seed and n indices, x[0] to x[n]; a block of Philox.
double oracle_random(const double *x, uint32_t n);
void oracle_philox(const uint32_t counter[4], const uint32_t key[2],
                   uint32_t out[4]);

// Scalar operations that a full run takes, roughly (saturating).
double oracle_cost(const Decl *prog, const int64_t *dims);

#endif
