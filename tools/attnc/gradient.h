// run and bench with --grad: a program and its gradient, one after the other.
#ifndef ATTNC_ATTNC_GRADIENT_H
#define ATTNC_ATTNC_GRADIENT_H

#include "tools/attnc/inputs.h"

typedef struct GradPair {
  DrvCall call;
  DrvGens gens;
  DrvOptions opt;
  DrvGrads grads;
  DrvCode *forward, *backward;
  struct attn_ctx *rt;  // NULL: the default one
  int64_t compile_ns;
} GradPair;

// Arrays for it, and code. What is not given of cotangents is normal(0, 1).
bool gradient_prepare(Session *s, Decl *prog, bool random, GradPair *p);
bool gradient_launch(GradPair *p);  // both
void gradient_done(GradPair *p);

SessionFn run_gradient;

// ---- run.c
void run_print_verdict(Session *s, const DrvVerdict *v, double tol);

#endif
