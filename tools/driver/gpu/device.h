// Private to the driver: code for GPUs. A variant's module becomes PTX, then,
// if there is a ptxas, machine code; all variants of a file are assembled at
// the same time.
#ifndef ATTNC_DRIVER_GPU_DEVICE_H
#define ATTNC_DRIVER_GPU_DEVICE_H

#include "passes/pass.h"
#include "passes/support/cost.h"
#include "passes/support/relief.h"
#include "tools/driver/compile/compile.h"

// Code that is known of a program's kernels (memo.c).
typedef struct DrvMemo DrvMemo;

// What a variant is made of.
typedef struct Recipe {
  DrvSpec spec;
  const Target *target;
  CgExpr when;  // it may be called
  DrvOptions opt;
  DrvMemo *memo;     // of its program
  bool spare;        // for tensors that what stands before it does not take
  bool text;         // without machine code: the driver's compiler makes it
  const Param *odd;  // why there is no faster code: its rows, or axes
} Recipe;

// Code of a kernel, how ptxas is asked for it, and what it left: spilled bytes,
// serialized products (cg_kernel_flaws).
typedef struct DrvTry {
  int64_t relief;
  uint32_t level, registers;  // registers: of a thread at most; 0: as it says
  int64_t room;  // that a thread has beyond those that live (ir/pressure.h)
  uint64_t flaws, cost;
} DrvTry;

// What was tried for a kernel of a body, the first code first (remedy.c). Code
// that is that of another try is known without a run.
typedef struct Course {
  DrvTry at[COST_PTXAS_CODES];
  uint32_t n;
  uint32_t runs;  // of ptxas, in whatever tiles, at most COST_PTXAS_RUNS
  bool last;      // there are no smaller tiles
  bool shares;    // drv_shares of the first code
  DrvTry from;    // levels that the first code has, where they are known
} Course;

// A kernel as text for ptxas, and what it makes of it (assemble.c).
typedef struct Part Part;

// What was made for a CgDevice of a program, in the same order.
typedef struct Built {
  Recipe recipe;
  const Module *mod;
  uint32_t program;     // whose variant it is, by number
  int64_t *freed;       // by function, what the last tiles tried left (fit.c)
  uint32_t nfreed;      // their number; 0: nothing was tried
  const Module *tried;  // what it made, or NULL
  CgKernels kernels;    // one for each phase
  Part **parts;         // of the kernels, or NULL
  Course *courses;      // of the kernels, or NULL
} Built;
typedef Vec(Built) Builts;

bool drv_is_amd(const Built *b);
bool drv_same_text(CgBytes a, CgBytes b);
// What needs no local memory says so.
void drv_note_local(const Built *b, CgPhase *phases);
// Whether there are tensors that the code of b does not take.
bool drv_needs_strided(const Built *b);
// On a target that has general code, whether there are tensors that no such
// code takes; a parameter of the program that m, made by r, never takes if it
// is dense, as its rows are no multiples of 16 bytes, or NULL.
bool drv_needs_general(const Built *b);
// May such tensors be copied at a call, so that they need no code of their own
// (ATTN_GPU_COPIES)?
bool drv_takes_copies(const Recipe *r);
const Param *drv_odd_rows(const Recipe *r, const Module *m);
// A tensor that has more axes than the copy engine takes, or NULL.
const Param *drv_many_axes(const Recipe *r);
// Appends a device made by the recipe of *b to p.
bool drv_add_device(Ctx *cx, CgProgram *p, Built *b);
// Puts d in front of the last device of p: it is taken where it holds.
void drv_prepend_device(Ctx *cx, CgProgram *p, CgDevice d);
// A body of the program of *whole, the last device of p, for few tasks, in
// front of it (waves.c). False if one is enough.
bool drv_few_tasks(Ctx *cx, CgProgram *p, const Built *whole, Built *few);
// The same for few tasks of many rows: their keys are split (brief.c).
bool drv_brief(Ctx *cx, CgProgram *p, const Built *whole, Built *brief);
// Has it a phase that finds bounds of keys? When calls of *whole are such.
bool drv_finds_bounds(const Built *b);
CgExpr drv_brief_calls(Ctx *cx, const CgProgram *p, const Built *whole);
// The tasks of f in dims of its module; e, in such dims, in those of p; both.
CgExpr drv_tasks(Ctx *cx, const Module *m, const Func *f);
CgExpr drv_over_program(Ctx *cx, const CgProgram *p, const DimTab *dims,
                        CgExpr e);
CgExpr drv_and(Ctx *cx, CgExpr a, CgExpr b);
// Code by the recipe of *b; the tiles fit into shared memory (fit.c).
bool drv_make_device(Ctx *cx, const CgProgram *p, Built *b, CgDevice *out);
// Tiles of the recipe of *b in which far too much would live at once become
// smaller (fit.c).
void drv_leave_too_large(Ctx *cx, const CgProgram *p, Built *b);
// Is code for tensors of any strides all that there is for r's program? Then r
// is its recipe.
bool drv_only_general(Ctx *cx, Recipe *r);
// Options of a lowering of which nobody is told.
DrvOptions drv_quietly(const DrvOptions *opt);
// Registers of a thread that compute's have, and what a loop over keys takes.
uint32_t drv_has_registers(const Func *f, const Target *t);
// May the n functions of a module by r have tiles by themselves?
bool drv_has_each(Ctx *cx, const Recipe *r, uint32_t n);
// Registers that tiles leave free, of the n functions of `names`: a number
// each. NULL: the most, for all.
void drv_set_spare(Ctx *cx, DrvOptions *opt, const int64_t *spare, uint32_t n,
                   const Module *names);
// The same of a function, by its options.
int64_t drv_spare_of(const DrvOptions *opt, const Func *f);
// The same with the tiles that the recipe's options give.
bool drv_device_text(Ctx *cx, const CgProgram *p, Built *b, CgDevice *out);
// Text of a module with f of m alone, in a.
CgBytes drv_mach_of(Arena *a, const Module *m, Func *f);
// threads: of LLVM; 0: one per CPU.
DrvMemo *drv_memo(Ctx *cx, uint32_t threads);
// The n kernels of m, of which known[i], NULL: not, is the record, and mach[i]
// the text. Records go to *all.
typedef struct DrvShares {
  const Module *m;
  const char *prefix;
  const CgKernelRecord *const *known;
  const CgBytes *mach;
  uint32_t n, threads;
  CgKernels *all;
} DrvShares;
// The PTX of those that are not known, the others empty, made by several
// threads (shares.c). NULL: by one it is as fast, an error, or kernels whose
// text is not the same by itself.
const CgPtx *drv_ptx_shares(Ctx *cx, const DrvShares *of);
// PTX of m as cg_gpu makes it; kernels that are known are not made again.
bool drv_memo_ptx(Ctx *cx, DrvMemo *memo, const Module *m, const char *prefix,
                  Buf *out, CgKernels *all);
// AMD: what is known of a kernel (objects.c).
typedef struct DrvObjectOf {
  CgBytes mach;  // of a module with this kernel alone
  CgKernelRecord record;
  CgBytes object;
} DrvObjectOf;
typedef Vec(DrvObjectOf *) DrvObjects;
DrvObjects *drv_memo_objects(DrvMemo *memo);
// Threads that compile, at least 1.
uint32_t drv_memo_threads(const DrvMemo *memo);
// r of a thread that ends, in the session arena.
CgKernelRecord drv_kept_record(Ctx *cx, const CgKernelRecord *r);
// The object of m; kernels that are known are not made again.
bool drv_memo_object(Ctx *cx, DrvMemo *memo, const Module *m,
                     const char *prefix, Buf *out, CgKernels *all);
// The roles and tiles of a kernel as text (kernel.c).
void drv_describe(Ctx *cx, const CgKernelRecord *r, DrvKernel *out);
// The level of register usage of a kernel's first run.
uint32_t drv_first_level(const CgKernelRecord *k);
// The next try for a kernel, whose code f is; false: none is left, or worth it.
bool drv_next_try(const Course *c, const Func *f, DrvTry *next);
// The best; the one with code and levels of t, or NULL.
const DrvTry *drv_best_try(const Course *c);
const DrvTry *drv_known_try(const Course *c, const DrvTry *t);
void drv_note_try(Course *c, DrvTry t);
// Do several CTAs of f share a multiprocessor, without products? Then registers
// of a thread are a question of how many.
bool drv_shares(const Func *f);
// PassOpt.relief by the tries of n kernels.
int64_t drv_relief_of(const DrvTry *now, uint32_t n);
// Registers of a thread that live at once in f; those that it has beyond.
uint32_t drv_lives(Ctx *cx, const Func *f);
int64_t drv_registers_left(Ctx *cx, const Func *f, const Target *t);
// Whether the tries `now` of b's kernels are worth making, by what lives in
// their code (judge.c), which goes to `room`. Those that are not are noted, and
// false is returned.
bool drv_judge_tries(Ctx *cx, const CgProgram *p, const Built *b, DrvTry *now);
// Has kernel i of b flaws, and runs of ptxas left?
bool drv_may_run(const Built *b, uint32_t i);
// A recipe like that of b with smaller tiles for what has flaws, and its code
// (tiles.c).
bool drv_smaller_tiles(Ctx *cx, const CgProgram *p, const Built *b, Built *out,
                       CgDevice *dev);
// What the slowest step of a kernel does beside its products and functions, in
// times of the clocks that the longer of these takes (pace.c).
typedef struct DrvPace {
  double times;
  bool loads;       // most of it are elements that threads read of memory
  const Op *loop;   // or NULL: there are no products
  uint32_t passes;  // loops with products, one behind the other
} DrvPace;
DrvPace drv_pace(const Func *f);
// Tells the user of kernels that are slow (slow.c).
void drv_warn_slow(Ctx *cx, const CgProgram *p, const Built *built, uint32_t n);
// Machine code for the last n devices of p; built are theirs (assemble.c).
// Without a ptxas nothing happens.
bool drv_assemble(Ctx *cx, const DrvOptions *opt, CgProgram *p, Built *built,
                  uint32_t n);

// drv_program for one specialization and a GPU, with what is known of its
// devices.
bool drv_device_program(Ctx *cx, DrvSpec s, const Target *target,
                        const DrvOptions *opt, CgProgram *out, Builts *built);

// *opt becomes what the code of s for the GPU *t is lowered with, and *t whose
// passes make it (choice.c). False: there is no code, of which nothing is said.
bool drv_code_options(Ctx *cx, DrvSpec s, const Target **t, DrvOptions *opt);
// Is the stage one of a GPU's code? llvm and asm are if all targets are GPUs.
bool drv_is_gpu_stage(const DrvTargets *targets, DrvStage what);
// Appends it, of the only variant; an error if there are several.
bool drv_emit_gpu(Ctx *cx, DrvProgs progs, const DrvTargets *targets,
                  DrvStage what, const DrvOptions *opt, Buf *out);

#endif
