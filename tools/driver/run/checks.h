// Running `check` blocks: dims, inputs, expectations.
#ifndef ATTNC_DRIVER_RUN_CHECKS_H
#define ATTNC_DRIVER_RUN_CHECKS_H

#include "tools/driver/driver.h"

typedef enum DrvOutcome {
  DRV_PASSED,
  DRV_FAILED,
  DRV_SKIPPED,
} DrvOutcome;

typedef struct DrvExpect {
  const char *title;  // of the check block
  const char *text;   // the expectation as written
  DrvOutcome outcome;
  const char *detail;  // errors and tolerance, or the reason
} DrvExpect;

typedef struct DrvChecker {
  Ctx *cx;
  const Target *target;
  const DrvOptions *opt;
  uint64_t seed;  // of generators without a seed
  struct attn_ctx *rt;
  const char *save, *name;  // a folder, and what names of files in it begin
                            // with: nothing runs, what is compared with the
                            // reference is written there for gpu-run; or NULL
} DrvChecker;

// One side of an expectation.
typedef struct DrvSide {
  uint32_t n;
  const NpyArray *array;  // n results, f64 or as computed
  const char **name;
  double **want;  // set for a reference: values, unwritten left out
  const DrvReference *ref;
  const DrvCall *call;
  double scalar;          // n == 0
  const DrvGrads *grads;  // set for gradients, each that of argument arg[i],
  const uint32_t *arg;    // and where they are the oracle's:
  const DrvGradReference *grad_ref;
} DrvSide;

// Evaluates s, an `expect` of the block. Never fails: what goes wrong is the
// outcome, with diagnostics in cx.
DrvExpect drv_expect(const DrvChecker *k, const Decl *block,
                     const CheckStmt *s);

// Writes the call's code, inputs (of inout parameters those saved), the
// reference, and gpu-run's arguments as NAME.args (checksave.c).
bool drv_save_check(const DrvChecker *k, DrvCall *c, const DrvSaved *saved,
                    const DrvSide *want, double tol);

#endif
