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
} DrvChecker;

// Evaluates s, an `expect` of the block. Never fails: what goes wrong is the
// outcome, with diagnostics in cx.
DrvExpect drv_expect(const DrvChecker *k, const Decl *block,
                     const CheckStmt *s);

#endif
