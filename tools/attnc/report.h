// One measured or explained program: what bench, tune and explain print.
#ifndef ATTNC_ATTNC_REPORT_H
#define ATTNC_ATTNC_REPORT_H

#include "tools/attnc/inputs.h"
#include "tools/driver/run/cost.h"
#include "tools/driver/run/picture.h"

#include "runtime/attn.h"

typedef struct Bench {
  DrvCall call;
  DrvGens gens;
  DrvOptions opt;
  DrvCost cost;
  const Target *target;
  attn_ctx *rt;  // NULL: the default one
  int threads;
  double best, mid;  // seconds
  double cpu;        // the least of all threads together in a run
  uint32_t runs;
  int64_t compile_ns;
  bool found;  // compiled before
  size_t code_bytes;
  double peak, sgemm;  // operations a second; 0: not measured
  bool hollow;         // no one computes: what domains read has values alone
} Bench;

// The program with arrays for it.
bool bench_prepare(Session *s, Bench *b, const Unit *u, Decl *prog);
// Compiles with b->opt and measures.
bool bench_run(Session *s, Bench *b);
void bench_done(Bench *b);
// "products", "updates" together, per second
double bench_rate(const Bench *b);
// The same where every pair of a touched tile counts.
double bench_touched_rate(const Bench *b);

SessionFn explain_file;

#endif
