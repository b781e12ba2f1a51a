// Private to the driver: code for GPUs. A variant's module becomes PTX, then,
// if there is a ptxas, machine code; all variants of a file are assembled at
// the same time.
#ifndef ATTNC_DRIVER_GPU_DEVICE_H
#define ATTNC_DRIVER_GPU_DEVICE_H

#include "passes/support/cost.h"
#include "passes/pass.h"
#include "passes/support/relief.h"
#include "tools/driver/compile/compile.h"

// What a variant is made of.
typedef struct Recipe {
  DrvSpec spec;
  const Target *target;
  CgExpr when;  // it may be called
  DrvOptions opt;
} Recipe;

// Code that keeps fewer registers: what each kernel spills at each level that
// was tried, and the recipes' options (fit.c).
typedef struct Leaning {
  uint64_t flaws[RELIEF_FUNCS][RELIEF_LEVELS];
  uint64_t own[RELIEF_FUNCS][RELIEF_LEVELS];  // at ptxas's own level
  bool known[RELIEF_FUNCS][RELIEF_LEVELS];
  int64_t tried[COST_LEAN_TRIES];
  uint32_t ntried;
} Leaning;

// A kernel as text for ptxas, and what it makes of it (assemble.c).
typedef struct Part Part;

// What was made for a CgDevice of a program, in the same order.
typedef struct Built {
  Recipe recipe;
  const Module *mod;
  uint32_t program;     // whose variant it is, by number
  int64_t freed;        // spare_regs of the last try (fit.c)
  const Module *tried;  // what it made, or NULL
  Leaning leaning;
  CgKernels kernels;  // one for each phase
  Part **parts;       // of the kernels, or NULL
} Built;
typedef Vec(Built) Builts;

// Code that better is looked for: its device, and the last text that was tried.
typedef struct Flawed {
  Built *built;
  CgDevice *device;
  CgBytes last;
} Flawed;

bool drv_is_amd(const Built *b);
bool drv_same_text(CgBytes a, CgBytes b);
// What needs no local memory says so.
void drv_note_local(const Built *b, CgPhase *phases);
// Whether there are tensors that the code of b does not take.
bool drv_needs_strided(const Built *b);
// Appends a device made by the recipe of *b to p.
bool drv_add_device(Ctx *cx, CgProgram *p, Built *b);
// Puts d in front of the last device of p: it is taken where it holds.
void drv_prepend_device(Ctx *cx, CgProgram *p, CgDevice d);
// A body of the program of *whole, the last device of p, for few tasks, in
// front of it (waves.c). False if one is enough.
bool drv_few_tasks(Ctx *cx, CgProgram *p, const Built *whole, Built *few);
// The tasks of f in dims of its module; e, in such dims, in those of p; both.
CgExpr drv_tasks(Ctx *cx, const Module *m, const Func *f);
CgExpr drv_over_program(Ctx *cx, const CgProgram *p, const DimTab *dims,
                        CgExpr e);
CgExpr drv_and(Ctx *cx, CgExpr a, CgExpr b);
// Code by the recipe of *b; the tiles fit into shared memory (fit.c).
bool drv_make_device(Ctx *cx, const CgProgram *p, Built *b, CgDevice *out);
// The same with the tiles that the recipe's options give.
bool drv_device_text(Ctx *cx, const CgProgram *p, Built *b, CgDevice *out);
// The same where only kernels that have flaws in `known`, whose device is `of`,
// are other code: theirs alone is made.
bool drv_flawed_text(Ctx *cx, const CgProgram *p, const Built *known,
                     const CgDevice *of, Built *b, CgDevice *out);
// The roles and tiles of a kernel as text (kernel.c).
void drv_describe(Ctx *cx, const CgKernelRecord *r, DrvKernel *out);
// A recipe like that of `of` for code that keeps fewer registers in kernels
// with flaws, and its code, unlike its own and the last that was tried; then
// with the best of all that was tried.
bool drv_leaner(Ctx *cx, const CgProgram *p, const Flawed *of, Built *out,
                CgDevice *dev);
// Notes what b, once assembled, spills.
void drv_note_lean(Leaning *all, const Built *b);
// The flaws of kernel i at ptxas's own level of register usage so far.
CgLevels drv_own_flaws(const Leaning *all, uint32_t i);
// The same with smaller tiles.
bool drv_smaller_tiles(Ctx *cx, const CgProgram *p, const Flawed *of,
                       Built *out, CgDevice *dev);
// Machine code for the last n devices of p; built are theirs (assemble.c).
// Without a ptxas nothing happens.
bool drv_assemble(Ctx *cx, const DrvOptions *opt, CgProgram *p, Built *built,
                  uint32_t n);

// drv_program for one specialization and a GPU, with what is known of its
// devices.
bool drv_device_program(Ctx *cx, DrvSpec s, const Target *target,
                        const DrvOptions *opt, CgProgram *out, Builts *built);

// Is the stage one of a GPU's code? llvm and asm are if all targets are GPUs.
bool drv_is_gpu_stage(const DrvTargets *targets, DrvStage what);
// Appends it, of the only variant; an error if there are several.
bool drv_emit_gpu(Ctx *cx, DrvProgs progs, const DrvTargets *targets,
                  DrvStage what, const DrvOptions *opt, Buf *out);

#endif
