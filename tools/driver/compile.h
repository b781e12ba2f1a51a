// Private to the driver: from programs to what codegen takes.
#ifndef ATTNC_DRIVER_COMPILE_H
#define ATTNC_DRIVER_COMPILE_H

#include "codegen/codegen.h"
#include "tools/driver/driver.h"

// The `where` of prog as checks of *out; `to` are the descriptor's dims.
bool drv_where(Ctx *cx, const Decl *prog, DimTab *to, CgProgram *out);

// Everything codegen needs for prog: the signature, checks, and one variant
// per specialization and target. One CgProgram per choice of dtype generics.
typedef Vec(CgProgram) CgPrograms;
bool drv_programs(Ctx *cx, Decl *prog, const DrvTargets *targets,
                  const DrvOptions *opt, CgPrograms *out);
// The dim that counts the lanes of the tasks of p's last variant, or NULL.
const char *drv_lanes(const CgProgram *p);
// Are so many lanes better off with the kernel of few rows?
bool drv_is_few(int64_t lanes);
// The program for the shape of a call: opt->few is set if it is that of few
// rows.
bool drv_fit(DrvCall *c, const FeBind *binds, uint32_t n, const Target *t,
             DrvOptions *opt, CgProgram *p);
// The same for one specialization and target.
bool drv_program(Ctx *cx, Decl *prog, const FeBind *binds, uint32_t n,
                 const Target *target, const DrvOptions *opt, CgProgram *out);

// To level mach, with the program's functions called `name`.
Module *drv_lower_mach(Ctx *cx, Decl *prog, const FeBind *binds, uint32_t n,
                       const Target *t, const DrvOptions *opt,
                       const char *name);

#endif
