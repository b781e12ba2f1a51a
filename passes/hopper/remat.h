// What passes that keep fewer registers share. Register pressure is relieved in
// this order; `relief` of a launch is what the driver asks for
// (tools/driver/gpu/fit.c), for each kernel that ptxas spills in.
//
//   always          once     what is read twice is read once, where far more lives
//                            than a thread has (COST_READ_ONCE_PRESS)
//                   early    what joins loops' results goes in front of the next
//                   settle   what a chunk needs for a moment is made there
//                   lean     of recurrences, what costs whole chunks nothing
//   register usage  codegen/nv/ptxas.c: levels 3 and 7 of ptxas; of recurrences behind
//                   pass remat
//   relief = 1      lean     launch attribute `lean` alone: code generation's order
//   relief = 2      lean     recurrences: values live shorter, `leaner`; stow parts
//                   shelve   others: what a loop leaves alone waits in shared memory
//   relief = 3      stow     operands and slices too; tasks gives up a CTA of single
//                            steps, warps gives threads that compute the last ones
//   relief = 4      stow     states wait where no tiles are copied
//   relief = 5      lean     numbers of the task are found again, fetch leaves all;
//                   shelve   ptxas gets fewer registers (COST_SHELVED_REGS)
//   smaller tiles   tools/driver/gpu/fit.c: three groups for four, then fewer keys
#ifndef ATTNC_PASSES_HOPPER_REMAT_H
#define ATTNC_PASSES_HOPPER_REMAT_H

#include "ir/ir.h"

// How few registers a kernel keeps: the level (LEAN_FREE and more of pass.h)
// that its launch has as attribute `relief`, LEAN_NOT without one. Pass
// lower_gpu gives it by PassOpt.lean; of it alone the passes behind decide.
int64_t lean_level(const Func *f);
// Nothing where f has no launch, or level is LEAN_NOT.
void lean_set(Func *f, int64_t level);

// Coordinates of what is stored from op on are made anew, else they live
// through what is in front of it: of numbers made anew and, with `threads`,
// rows of the thread's number read again.
void lean_renew_stores(Func *f, Op *op, bool threads);

#endif
