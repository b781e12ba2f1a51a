// Private to the driver: from programs to what codegen takes.
#ifndef ATTNC_DRIVER_COMPILE_COMPILE_H
#define ATTNC_DRIVER_COMPILE_COMPILE_H

#include "codegen/codegen.h"
#include "tools/driver/driver.h"

// The `where` of prog as checks of *out; `to` are the descriptor's dims.
bool drv_where(Ctx *cx, const Decl *prog, DimTab *to, CgProgram *out);

// Everything codegen needs for prog: the signature, checks, and one variant
// per specialization and target. One CgProgram per choice of dtype generics.
typedef Vec(CgProgram) CgPrograms;
bool drv_programs(Ctx *cx, Decl *prog, const DrvTargets *targets,
                  const DrvOptions *opt, CgPrograms *out);
// Is prog one of few queries a call, as its `for` says?
bool drv_is_decode(const Decl *prog);
// Kernels for few queries (docs/cpu-schedule.md).
// The dim that counts the queries of p's last variant, or NULL.
const char *drv_queries(const CgProgram *p);
// The rows of p's last variant as a dim of `to`; DIM_NONE: it has no rows.
Dim drv_rows(const CgProgram *p, DimTab *to);
// Are they more than the queries?
bool drv_grouped(const DimTab *t, Dim rows);
// The program for the shape of a call: sets opt->few or opt->group if it is
// one of those kernels (of a GPU's: plan_fit_few).
bool drv_fit(DrvCall *c, DrvSpec s, const Target *t, DrvOptions *opt,
             CgProgram *p);
// The same for one specialization and target.
bool drv_program(Ctx *cx, DrvSpec s, const Target *target,
                 const DrvOptions *opt, CgProgram *out);

// To level mach, with the program's functions called `name`; of opt->general,
// for the target that t names there.
Module *drv_lower_mach(Ctx *cx, DrvSpec s, const Target *t,
                       const DrvOptions *opt, const char *name);

#endif
