// What the compiler decides about a program, without code generation: a
// library that links no LLVM, shared by attnc and the language server.
#ifndef ATTNC_PLAN_PLAN_H
#define ATTNC_PLAN_PLAN_H

#include "tools/driver/driver.h"

// To level attn, without passes. The target (NULL: a CPU) chooses the phases of
// a gradient.
Module *drv_lower_attn(Ctx *cx, DrvSpec s, const Target *target);

// What pass grad leaves of m, at level attn: the program that `prog` stands
// for. m itself, where it is as written.
Module *plan_derive(Ctx *cx, const Decl *prog, Module *m, const Target *target,
                    bool ordered);

// To level mach. Where, on a GPU, the tiles need more shared memory than there
// is, with tiles that leave more of it free: opt->spare_smem says how much. Not
// where tiles were asked for.
Module *plan_fit(Ctx *cx, DrvSpec s, const Target *target, DrvOptions *opt);
// Did the last diagnostic come from too little room?
bool plan_no_room(const Ctx *cx);
// Opts for tiles that leave more shared memory free, told in a remark.
void plan_spare_smem(Ctx *cx, const char *name, const Target *target,
                     DrvOptions *opt);

// The length of the axis that f cuts into tiles longer than that.
Dim plan_tiled(const Func *f, int64_t than);
// The rows that f cuts into tiles, in dims of `to`; DIM_NONE if none.
Dim plan_rows(const Func *f, DimTab *to);
// Those that one group of warps of a GPU computes: of programs with keys, whose
// rows are no state's.
Dim plan_group_rows(const Module *m, const Decl *prog, const char *name,
                    DimTab *to);
// The keys that all sequences share, if a phase passes over them
// (passes/attn/share_keys.c), each counted twice where twice
// COST_SHARED_TASKS would have them, and so on; DIM_NONE if none does.
Dim plan_shared_keys(const Module *m, const char *name, DimTab *to);
// The extent d of an axis of f, in dims of `to`.
Dim plan_over(const Func *f, Dim d, DimTab *to);
// Do the CTAs of a cluster share keys of m, of level mach, and has a producer
// their tiles?
bool plan_is_clustered(const Module *mach);
// Positive in calls for which that is best; DIM_NONE where m has no cluster.
Dim plan_cluster_gain(const Module *m, DimTab *to);
// How many CTAs the best cluster has, with the options of a call and its dims;
// 0: parts that a second kernel joins are better.
int64_t plan_cluster_of(Ctx *cx, DrvSpec s, const Target *t,
                        const int64_t *dims, const DrvOptions *opt);
// Sets opt->few, opt->fewest, opt->together, opt->cluster where the target has
// code for as few rows, shared keys and tasks as there are with these values of
// the program's dims.
void plan_fit_few(Ctx *cx, DrvSpec s, const Target *t, const int64_t *dims,
                  DrvOptions *opt);

// Is m, that `passes` made with these options, valid? Codegen takes no module
// that was not asked.
typedef struct PassOpt PassOpt;
bool drv_verified(Ctx *cx, const Module *m, const char *passes,
                  const PassOpt *opt);

// @kernel(decode): calls mostly have few rows.
bool drv_for_decode(const Attr *a);
// The line in front of the text of a module of level `from`: attn-opt runs the
// passes that follow, as this compile would (pass.h).
void drv_print_options(const Decl *prog, const Target *target, Level from,
                       const DrvOptions *opt, Buf *out);
// Do the options or a schedule block say which tiles to take?
bool drv_tiles_asked(const Decl *prog, const Target *t, const DrvOptions *opt);

// Do they promise tensors that are dense, at multiples of 16 bytes? OFF: they
// say that others are as usual.
typedef enum DrvDense { DENSE_OPEN, DENSE_ON, DENSE_OFF } DrvDense;
DrvDense drv_dense_asked(const Decl *prog, const Target *t,
                         const DrvOptions *opt);

// What an op at level attn costs at each point of `axes`, which its operands
// have: floating-point operations of products, calls of exp and the like.
typedef struct PlanOp {
  uint64_t axes;
  int products, functions;
} PlanOp;
PlanOp plan_op(const Func *f, const Op *op);

// Operations and bytes of a program as expressions of its dims; every key
// counts, also those that a domain hides.
typedef struct PlanWork {
  const char *products;   // of dots: "4 * B * D * H * Sk * Sq"
  const char *functions;  // exp and the like
  const char *bytes;      // every array once
} PlanWork;
bool plan_work(Ctx *cx, Module *attn, const char *prog, PlanWork *out);

// "any 0 .. min(Sk, q_hi + 1), unmasked 0 .. q_lo + 1" of the first pass with
// a domain at level stream, NULL if it is not closed-form arithmetic.
const char *plan_bounds(Ctx *cx, Module *stream, const char *prog);

// The remarks from number `from` on, each once, without "online: @name:".
void plan_remarks(const Ctx *cx, uint32_t from, const char *prefix, Buf *out);
// "b:1 h:1 q:128, loop by 64": the grid and the steps of a tile module.
void plan_tiles(const Module *tile, const char *prog, Buf *out);

#endif
