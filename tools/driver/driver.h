// The driver: the only library that sees all layers. Source text to checked
// units, to modules of any level, to object code, and to results of running
// it on host arrays.
//
// Ownership: everything lives in the session arena of the Ctx it was made
// with, unless a function says otherwise. Functions that return bool or a
// pointer give false or NULL with diagnostics.
#ifndef ATTNC_DRIVER_DRIVER_H
#define ATTNC_DRIVER_DRIVER_H

#include "frontend/frontend.h"
#include "ir/ir.h"
#include "ir/target.h"
#include "tools/driver/run/gen.h"
#include "tools/driver/run/npy.h"

#include <stdio.h>

enum { DRV_MAX_PROGRAMS = 256 };

// ---------------------------------------------------------------- units
// Parses and checks. NULL if there were errors.
Unit *drv_unit(Ctx *cx, Source *src);
const char *drv_version(void);  // "0.2.0"
void drv_print_version(FILE *f);

// ---------------------------------------------------------------- options
typedef Vec(FeBind) DrvBinds;

// Called now and then of what a compilation is made of: the done-th of `of`
// kernels, by the thread that compiles.
typedef struct DrvSteps {
  void (*at)(void *data, const char *what, uint32_t done, uint32_t of);
  void *data;
} DrvSteps;

// Where objects of calls are kept: bytes by key.
typedef struct DrvStore {
  bool (*get)(void *data, const Buf *key, Buf *out);
  void (*put)(void *data, const Buf *key, const Buf *bytes);
  void *data;
} DrvStore;

typedef struct DrvOptions {
  const char *targets;            // "cpu,cpu:x86-64-v3"; NULL: cpu
  DrvBinds fixed;                 // dims given by the user
  const char *prefix;             // of generated names
  int64_t tile_q, tile_k, chunk;  // 0: the schedule block's, else chosen
  bool group, few, walk;          // the kernels of groups of heads, of few rows
                                  // and fewer (docs/cpu-schedule.md)
  bool fewest;                    // a GPU's of rows that one warp has
  bool together;                  // and of few keys that sequences share
  bool brief;                     // a GPU's of few tasks
  int64_t cluster;                // CTAs of a cluster that share keys, or 0
  int64_t spare_regs, spare_smem;  // as of PassOpt
  const char *spare_each;          // the same
  int64_t most_groups, relief;     // the same
  int64_t workspace;               // the same
  bool strided;                    // the same
  bool general;   // code of the target's `general`, for any tensors
  bool dense;     // tensors are dense, at multiples of 16 bytes
  bool first;     // no other code for tensors that one does not take
  bool assembly;  // AMD: the text of it too
  uint32_t jobs;  // threads of the compiler, 0: one per CPU
  bool verify_each, print_after_all, time_passes;
  const char *dump_dir;
  Buf *log;               // what the passes print, or NULL
  const DrvSteps *steps;  // or NULL
  const DrvStore *store;  // of drv_load, or NULL
} DrvOptions;

static inline void drv_step(const DrvOptions *opt, const char *what,
                            uint32_t done, uint32_t of) {
  if (opt->steps) opt->steps->at(opt->steps->data, what, done, of);
}

// "D=128,B=1" or a single pair, appended.
bool drv_parse_dims(Ctx *cx, const char *text, DrvBinds *out);

typedef Vec(const Target *) DrvTargets;
// Every target of a list; `cpu` is all levels of this machine's family.
bool drv_targets(Ctx *cx, const char *list, DrvTargets *out);
// The one target that code for running here is made for: the highest level of
// this CPU, or the level named.
const Target *drv_host_target(Ctx *cx, const char *name);
// Which levels of this CPU's family are not taken, and why: "NAME: why; ..".
const char *drv_levels_left(Ctx *cx);

// ---------------------------------------------------------------- arguments
// Extent of an axis of the physical array.
typedef enum DrvAxisKind {
  DRV_DIM,     // a dim expression of the program
  DRV_TOTAL,   // all sequences of a ragged dim, end to end
  DRV_BLOCKS,  // blocks of a paged array
} DrvAxisKind;

typedef struct DrvAxis {
  DrvAxisKind kind;
  Dim dim;  // DRV_DIM; DRV_TOTAL: the ragged dim
} DrvAxis;

typedef struct DrvArg {
  const Param *param;
  bool out;  // an output; inout parameters are not
  bool scalar;
  bool absent;    // passed without data, whatever `array` has
  DType dtype;    // DT_NONE: an undecided dtype generic
  uint32_t rank;  // physical
  DrvAxis axis[NPY_MAX_RANK];
  NpyArray array;      // data NULL: none yet
  bool given;          // scalars: set, not the default
  double value;        // scalars
  const char *origin;  // "q.npy", "normal(0, 1)", for messages
} DrvArg;

// Called now and then while something long goes on.
typedef struct DrvWatch {
  void (*at)(void *data, int64_t done, int64_t of);
  void *data;
} DrvWatch;

// A program and its arguments.
typedef struct DrvCall {
  Ctx *cx;
  Decl *prog;
  DrvArg *args;  // parameters, then outputs
  uint32_t nargs;
  int64_t *dims;  // by symbol of prog->dims
  bool *known;
  const char **from;      // what said so, for messages
  int64_t *total;         // by symbol: all sequences together; -1 unknown
  DType *types;           // by generic of prog
  const DrvWatch *watch;  // of the oracle, or NULL
  bool hollow;  // floats that are made up have no values: no one computes
} DrvCall;

// What pass grad makes of a program, as programs that are compiled and called
// like others: the program with the outputs that its gradient reads more
// (save_lse), and its gradient: inputs, outputs, save_*, cotangents d_O, and
// gradients g_Q as outputs.
typedef struct DrvGradient {
  Decl *forward, *backward;
} DrvGradient;

// A program with dims and dtypes chosen.
typedef struct DrvSpec {
  Decl *prog;
  const FeBind *binds;
  uint32_t n;
  bool ordered;  // sums of a gradient, whatever the program allows
} DrvSpec;

// Programs of a unit that are compiled together.
typedef struct DrvProgs {
  Decl **at;
  uint32_t n;
} DrvProgs;

bool drv_call(Ctx *cx, Decl *prog, DrvCall *out);
// inputs: "Q,K" whose gradients; "": of all tensors of floats but nograd ones.
bool drv_gradient(Ctx *cx, Decl *prog, const char *inputs, DrvGradient *out);
// What pass jvp makes of a program: its inputs, tangents t_Q of those named;
// its outputs, and their tangents t_O. NULL: a diagnostic.
Decl *drv_jvp(Ctx *cx, Decl *prog, const char *inputs);
// Is the parameter of prog, what drv_jvp made, a tangent?
bool drv_is_tangent(const Decl *prog, const char *name);
// An input of prog that counts as zero where it is missing: the cotangent of an
// output, or a tangent.
bool drv_is_cotangent(const Decl *prog, const char *name);
DrvArg *drv_arg(DrvCall *c, const char *name);  // NULL: a diagnostic
bool drv_set_dim(DrvCall *c, const char *name, int64_t v, const char *from);
bool drv_set_dtype(DrvCall *c, const char *generic, DType t);
bool drv_has_dtype(const Decl *prog, const char *generic);
// Converts where that is exact, and f32 to bf16 and f8.
bool drv_set_array(DrvCall *c, DrvArg *a, const NpyArray *x,
                   const char *origin);
bool drv_set_scalar(DrvCall *c, DrvArg *a, double v);
// Chooses the dtype of a parameter with a dtype generic for data of `have`.
bool drv_decide(DrvCall *c, DrvArg *a, DType have);
// The first dtype of its generic.
void drv_first_dtype(DrvCall *c, DrvArg *a);
// Dims from the arrays, then every array against the dims.
bool drv_solve(DrvCall *c);
// Makes up what is not given: dims first (a sensible size for each), then
// arrays. `gens` are of parameters by name, others get a default.
typedef struct DrvGen {
  const char *name;  // of the parameter
  Gen gen;
  const char *stream;  // the stream's name, NULL: the parameter's
} DrvGen;
typedef Vec(DrvGen) DrvGens;
bool drv_fill(DrvCall *c, const DrvGens *gens, uint64_t seed);
// The same for what has a generator only; nothing else is made up.
bool drv_fill_given(DrvCall *c, const DrvGens *gens, uint64_t seed);
// "Q=normal(0, 1)"; false without a diagnostic if it is not of that form.
bool drv_parse_gen(Ctx *cx, const char *text, DrvGen *out);
// Lengths of ragged dims from the arrays that hold them: the longest becomes
// the dim's value where nothing else says it. Checks lengths and page tables.
bool drv_ragged(DrvCall *c);
// Allocates the outputs; every dim must be known.
bool drv_outputs(DrvCall *c);
// The const dims and dtypes of the call as one specialization.
bool drv_choose(DrvCall *c, DrvSpec *out);
// Physical extent, -1 if not known yet.
int64_t drv_extent(const DrvCall *c, const DrvArg *a, uint32_t axis);
void *drv_alloc(Ctx *cx, NpyArray *x);
// Data of the user's does not count against the limits of the arenas.
void drv_room(Ctx *cx, size_t bytes);

// ---------------------------------------------------------------- comparing
typedef struct DrvError {
  int64_t n;            // elements compared
  double max_abs, rms;  // of the difference
  double rel;           // largest |x - ref| / (|ref| + rms(ref))
  int64_t at;           // the element of `rel` or of the first mismatch
  int64_t nonfinite;    // elements where inf or NaN do not match
  double got, want;     // there
} DrvError;

// want[i] is the reference of element at[i] of x (at NULL: element i).
DrvError drv_compare(const NpyArray *x, const double *want, const int64_t *at,
                     int64_t n);
// Elements that the oracle wrote, against an array made by drv_reference.
DrvError drv_compare_written(Ctx *cx, const NpyArray *x, const double *want);
bool drv_within(const DrvError *e, double tol);
// The tolerance that fits the roundings of this program's types.
double drv_tolerance(const DrvCall *c);

// ---------------------------------------------------------------- compiling
// A program for one specialization at a level. target: a CPU row; NULL below
// LV_TILE.
Module *drv_lower(Ctx *cx, DrvSpec s, const Target *target, Level to,
                  const DrvOptions *opt);
// The text of programs at an IR level, separated by "# -----" lines.
bool drv_emit_ir(Ctx *cx, DrvProgs progs, Level to, const DrvOptions *opt,
                 Buf *out);

typedef enum DrvStage {
  DRV_LLVM,
  DRV_ASM,
  DRV_OBJECT,
  DRV_HEADER,
  DRV_PTX,
  DRV_CUBIN,
  DRV_AMDGCN,
  DRV_HSACO,
  DRV_CONTAINER,
} DrvStage;
// Code of all programs for all targets and specializations; of the stages of a
// GPU, that of the only one. `header` may be NULL; `out` is not touched for
// DRV_HEADER.
bool drv_compile(Ctx *cx, DrvProgs progs, DrvStage what, const DrvOptions *opt,
                 Buf *out, Buf *header);

// A number that needs no run: dims (NULL: none are known), constants, builtin
// functions. False if e is more than that.
bool drv_eval(const DimTab *t, const int64_t *dims, const Expr *e, double *v);

// ---------------------------------------------------------------- running
// Code of the one specialization that a call needs, in this process; lives
// until drv_unload.
typedef struct DrvCode DrvCode;
struct attn_ctx;
DrvCode *drv_load(DrvCall *c, const Target *t, const DrvOptions *opt);
void drv_unload(DrvCode *code);
const char *drv_code_target(const DrvCode *code);
size_t drv_code_bytes(const DrvCode *code);
bool drv_code_found(const DrvCode *code);  // compiled before
// Bytes of scratch a thread needs for this call.
int64_t drv_scratch(DrvCall *c, const DrvCode *code);
// Whether every input has a value.
bool drv_complete(const DrvCall *c);
// Clocks of a multiprocessor for a step of the loop that takes most, by unit
// (passes/support/balance.h): of the innermost loops those with products of
// matrices, else any. 0: there is none.
typedef struct DrvClocks {
  double products, functions, arithmetic;
} DrvClocks;

// What a GPU kernel takes; needs no device.
typedef struct DrvKernel {
  const char *symbol;
  uint32_t threads, shared_bytes;
  uint32_t registers, spill_bytes;  // of a thread; 0 without ptxas
  uint32_t per_sm;                  // CTAs a multiprocessor holds
  bool persistent;
  bool serialized;   // products wait for each other
  uint32_t warning;  // number of ptxas's first C75xx, or 0
  uint32_t level;    // of ptxas's register usage; 0: its own
  uint32_t runs;     // of ptxas for it
  size_t text_bytes, code_bytes;
  const char *roles, *tiles;  // as text
  const char *body;           // tensors that it takes: "dense" or "any"
  const char *path;           // how it multiplies, how it copies
  DrvClocks clocks;
} DrvKernel;
// Of the one specialization that a call needs. 0 with diagnostics. What was
// chosen for it goes to *opt.
uint32_t drv_kernels(DrvCall *c, const Target *t, DrvOptions *opt,
                     DrvKernel *out, uint32_t max);

// rt NULL: the default context of the runtime. On a GPU the arrays are copied
// there and the results back.
bool drv_launch(DrvCall *c, const DrvCode *code, struct attn_ctx *rt);
// The seconds of one more launch; on a GPU on the arrays of the launch before,
// by the device's own clock.
bool drv_time(DrvCall *c, const DrvCode *code, struct attn_ctx *rt, double *s);

// ---------------------------------------------------------------- verifying
// What the oracle says about one output or inout parameter.
typedef struct DrvVerdict {
  const DrvArg *arg;
  DrvError error;
} DrvVerdict;

typedef struct DrvReference {
  double **want;    // by argument; NULL for inputs
  bool sampled;     // only some points were evaluated
  uint64_t points;  // how many
  double cost;      // operations of a full evaluation
} DrvReference;

// Operations above which only 256 random points and the corners are evaluated.
#define DRV_SAMPLE_ABOVE 1e10

// Marks what the oracle did not evaluate or the program does not write.
double drv_unwritten(void);
bool drv_is_written(double want);

// Copies of the inout arrays, which a launch overwrites.
typedef struct DrvSaved {
  void **data;  // by argument
} DrvSaved;
DrvSaved drv_save(const DrvCall *c);
void drv_restore(DrvCall *c, const DrvSaved *s);

// Evaluates the call with the oracle, from the saved inout arrays.
bool drv_reference(DrvCall *c, const DrvSaved *s, double sample_above,
                   uint64_t seed, DrvReference *out);
// --- gradients
// A call of a program with those of what pass grad makes of it. Arrays of the
// same name are the same.
typedef struct DrvGrads {
  DrvCall *of;
  DrvCall forward, backward;
} DrvGrads;

// Cotangents are normal(0, 1) of the seed. Inputs as of drv_gradient.
bool drv_grads(DrvCall *c, const char *inputs, uint64_t seed, DrvGrads *out);

// A gradient along a random direction: the sum of its elements times `along`.
typedef struct DrvAlong {
  uint32_t arg;  // of backward
  const double *along;
  double slope;
} DrvAlong;

typedef struct DrvGradReference {
  double **want;  // by argument of backward; NULL for inputs
  bool sampled;   // some elements, and directions
  uint64_t elements;
  DrvAlong *along;
  uint32_t nalong;
} DrvGradReference;

// By the oracle's dual numbers. work: walks of a point times its operations
// above which elements are sampled.
#define DRV_GRAD_ABOVE 3e7
bool drv_grad_reference(DrvGrads *g, double work, uint64_t seed,
                        DrvGradReference *out);
// The array against the elements and directions of it that were evaluated.
DrvError drv_compare_grad(const DrvGrads *g, const DrvGradReference *r,
                          uint32_t arg);

// Compares the arrays of the call with it; one verdict per output. Returns
// their number.
uint32_t drv_verdicts(const DrvCall *c, const DrvReference *r, DrvVerdict *out,
                      uint32_t max);

#endif
