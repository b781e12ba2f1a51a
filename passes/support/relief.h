// Relief of register pressure: what is done for a kernel in which ptxas spills,
// each with what stands above it. `relief` of a launch is what the driver asks
// for (tools/driver/gpu/remedy.c); passes behind lower_gpu decide by it alone.
//
//   always        cse_smem         two reads are one, where far more lives than a
//                                  thread has (COST_READ_ONCE_PRESS)
//                 sched_pressure   what joins loops' results stands before the next
//                 sink_smem        what a chunk needs for a moment is made there
//                 remat            recurrences: what costs whole chunks nothing
//   RELIEF_FREE   remat            launch attribute `lean`: code generation's order
//   RELIEF_REMAT  remat            recurrences: values live shorter, `leaner`
//                 spill_chunks     and parts of operands wait in shared memory
//                 spill_smem       others: so does what a loop leaves alone
//                 tile_scheduler   single steps have a CTA less of a multiprocessor
//                 lower_gpu        so have tasks without products
//   RELIEF_LOADS  spill_chunks     operands and slices too
//                 tile_scheduler   single steps have two thirds of the CTAs
//                 lower_gpu        so have tasks without products
//                 warp_specialize  threads that compute have the last registers
//   RELIEF_STATE  spill_chunks     states wait where no tiles are copied
//                 tile_scheduler   single steps have half the CTAs
//                 lower_gpu        so have tasks without products
//   RELIEF_TASK   remat            numbers of the task are found again
//                 prefetch         nothing is loaded ahead
//                 spill_smem       ptxas gets fewer registers (COST_SHELVED_REGS)
//   tiles         tools/driver/gpu/fit.c: three groups for four, then fewer keys
#ifndef ATTNC_PASSES_SUPPORT_RELIEF_H
#define ATTNC_PASSES_SUPPORT_RELIEF_H

#include "ir/ir.h"
#include "passes/pass.h"

// PassOpt.relief has RELIEF_BITS for each function.
enum {
  RELIEF_NONE,
  RELIEF_FREE,
  RELIEF_REMAT,
  RELIEF_LOADS,
  RELIEF_STATE,
  RELIEF_TASK,
  RELIEF_LEVELS,
  RELIEF_BITS = 3,
  RELIEF_FUNCS = 20
};

// What PassOpt.relief asks for function number `func` of a module.
int64_t relief_asked(int64_t all, uint32_t func);
// What a text of PassOpt.spare_each asks for the function of that name, by what
// stands behind the program's name: ".keys:96,:24". Adds one to it.
int64_t relief_spare_named(const char *each, const char *name);
void relief_spare_put(Buf *each, const char *name, int64_t regs);
// What PassOpt.spare_each, or else spare_regs, asks of f.
int64_t relief_spare(const PassOpt *opt, const Func *f);
// RDNA: do operands wait in shared memory? What spare_regs is of a function.
bool relief_scarce(const PassOpt *opt);
// How often chunks of steps are to be halved for PassOpt.spare_smem; GPUs.
int64_t relief_halves(const PassOpt *opt);
// What the text of f says: RELIEF_NONE without a launch, or its attribute.
int64_t relief_of(const Func *f);
// Gives the launch of f the attribute; nothing where it has none, or level is
// RELIEF_NONE.
void relief_set(Func *f, int64_t level);
// Do operands wait in shared memory? States do not where tiles are copied for
// the threads that compute.
bool relief_stows(int64_t level, bool copied);
// Of n CTAs without products on a multiprocessor, those that share it.
int64_t relief_ctas(int64_t level, int64_t n);

#endif
