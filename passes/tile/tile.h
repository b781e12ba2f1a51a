// State shared by the files of the pass `tile`.
#ifndef ATTNC_PASSES_TILE_TILE_H
#define ATTNC_PASSES_TILE_TILE_H

#include "passes/pass.h"
#include "passes/support/lane.h"

enum { MAX_TESTED = 4 };

// How one program is cut into tasks and key tiles.
typedef struct TilePlan {
  int lane;             // axis with a tile size > 1, or -1
  int64_t tile_q;       // coordinates of the lane axis a task covers
  int64_t tile_k;       // keys a loop iteration covers
  int64_t chunk;        // steps of a chunk of a recurrence, 0: choose
  int64_t least_chunk;  // GPU: shorter ones where that many do not fit
  int64_t most_chunk;
  const Op *split;  // the pass whose keys are split, or NULL
  Dim parts;        // into so many parts
  bool counted;     // at most: each sequence into what its own keys want
  bool own;         // and nothing else counts
  const Op *deals;  // a pass, or NULL: its keys are dealt to a group's warps
  const Op *joins;  // a pass, or NULL: its keys are split among a cluster
  int64_t cluster;  // of so many CTAs
  Dim gain;         // positive where that is better than parts
  uint32_t cut;     // of whose sums each has a part along this axis
  int by;           // axis of the sequences that a phase in front plans, or -1
  Dim planned;      // 1 if it has tasks, else 0
  int64_t places;   // tasks that run at a time
  uint32_t beside;  // the accumulator that has their numbers beside it
  Dim even;         // so many, if these are neither few nor very many
  const Op *walk;   // the recurrence whose steps are split, or NULL
  Dim part_keys;    // into parts of so many, a multiple of the chunk
  Dim pieces;       // whose first phase cuts each part into so many pieces
  Dim piece_keys;   // of so many steps, the last one of fewer
  bool linear;      // what a part makes of a state is a matrix
  const Op *tested[MAX_TESTED];  // passes whose bounds a phase before finds
  uint32_t ntested;
  int part;  // axis of a vector's parts, which groups of one task have, or -1
  int64_t own_rows;    // rows of a group that has bounds of its own, or 0
  uint64_t outer;      // key axes without a tile (outer.c)
  uint64_t serial;     // axes of which a task has all (adds.c)
  uint64_t pieces_of;  // axes of steps in a chunk (support/pieces.c)
  bool mats;           // a CPU has tile registers for its products
  bool alone;  // a GPU's task has one row, of which its loops know nothing
} TilePlan;

// What a function of a split program does.
typedef enum TileShare {
  SHARE_ALL,      // everything: the keys are not split
  SHARE_PART,     // one part of the keys; everything if there is one part
  SHARE_COMBINE,  // joins the parts, does the rest
  SHARE_ROWS,     // the same of few rows, which have a task each
  SHARE_STATES,   // what the steps of a part make of a state of zeros
  SHARE_JOINS,    // the states that parts begin with, of those
  SHARE_BOUNDS,   // finds the bounds of the keys for the tasks of SHARE_ALL
  SHARE_PLAN,     // lists the parts for the tasks of SHARE_PART
} TileShare;

typedef struct Tiler {
  Ctx *cx;
  const Func *from;  // stream level
  Func *to;          // tile level
  const Target *target;
  TilePlan plan;
  bool gpu;          // the target is one
  bool near;         // limits of keys are kept near them: 32 bits
  bool careful;      // masked keys may be inf or NaN; a GPU's later passes
                     // see to that themselves
  bool trusts;       // not those that another task's row sees (seen_keys.c)
  Value origin[64];  // per axis of `from`: scalar coordinate of this task
  Value coord[64];   // per axis: index tile (or scalar), 0 if none
  Value keep[64];    // per par axis: bool domain predicate, 0 if none
  Op *skip;          // the branch around tasks without rows, or NULL
  Value rows;        // a GPU's lane axis: rows that its domain keeps, or 0
  Value holds;       // a mask of `from` that no store needs, or 0
  bool walked[64];   // per step axis: its `affine` ops are done
  TileShare share;
  Value part;  // SHARE_PART: this task's
  uint32_t part_axis;
  Value whole;     // bool, SHARE_PART: there is one part; SHARE_COMBINE: there
                   // are several; 0: never, always
  bool beside;     // SHARE_COMBINE: a row's parts lie beside each other
  bool two;        // functions join parts (tile_split_in_two)
  bool alone;      // SHARE_COMBINE: where rows are few
  Value nparts;    // of this task's keys, or 0
  Value counts;    // workspace: as many for each row, if `counted`
  Value planned;   // workspace: the plan of the parts, or 0
  bool sliced;     // behind plan.joins: a task has some columns,
  uint32_t slice;  // along this axis of `to`, in place of plan.cut,
  Value first;     // bool: and what has no columns if this holds
  Value last;      // bool, the task has the last part of the steps; or 0
  Value *partial;  // workspace of each accumulator of the split pass
  Value tested[MAX_TESTED];      // workspace: bounds of the keys
  const struct KeyLoop *around;  // whose body is being made, or NULL
} Tiler;

// A function of level tile and the stream function that it was made of.
typedef struct Tiled {
  const Func *from;
  Func *to;
  Value *own;  // work.c: its workspaces that `from` has not
} Tiled;

// Gives the phases of a program, in their order, workspaces in one order
// (work.c).
void tile_work_share(Arena *a, Tiled *all, uint32_t n);

// Makes key axes that need no tile axes of steps, for this pass; which
// (outer.c).
uint64_t tile_outer(Func *f, const Target *tg);
// Chooses the lane axis and the tile sizes of f; remarks why.
// The plan of a chunk of steps; sums of products in place, masks that tiles
// need not (tidy.c).
bool tile_plan_chunk(Ctx *cx, const Func *f, const Target *tg, TilePlan *p);
void tile_tidy_chunks(const Func *from, Func *to);
// Is a made as b is, of the same? Sees some row the key, whatever it is, by
// condition p of the domain of that pass (seen_keys.c)?
bool tile_is_again(const Func *f, Value a, Value b);
bool tile_rows_see(const Func *f, const Op *pass, Value p);
// Indices limited to the last of an axis, where a store's mask says so
// (unclamp.c).
void tile_unclamp(Ctx *cx, Func *f);
// Rows of a GPU's tile of keys' products, and whether a product's keys are
// added to another's (rows.c).
int64_t tile_gpu_rows(Ctx *cx, const Func *f, const Target *tg, int lane);
// Is there but one row along the lane, and nothing in a loop over keys that
// varies with it? More rows of a tile would have the same sums.
bool tile_has_row_alone(const Func *f, int lane);
bool tile_joined(const Func *f, const Op *dot, int lane);
// Of a sum of two products of rows and keys the one that is added to the other
// by its product (bias_mma.c); NULL: op is none.
const Op *tile_added(const Func *f, const Op *add);
// Rows of a GPU's tile of a program that multiplies no matrices and has no
// keys, 0: it does (map.c).
int64_t tile_map_rows(const Func *f);
// Has each row of such a program a matrix that is summed along its last index,
// of elements side by side in memory?
bool tile_sums_matrices(const Func *f);
// The block of keys that op is of, 0: it has none (blocks.c).
int64_t tile_blocks_of(const Op *op, int lane);
// Is op of a block of keys, or a sum down the rows of one?
void tile_note_block(const Op *op, int lane, bool *keys, int64_t *down);
// What lies behind the end of the rows counts nothing in the block of op.
bool tile_end_block(const Tiler *t, Builder *b, const Op *op, ValueMap *m);
// Tiles have whole blocks.
void tile_whole_blocks(const Func *f, TilePlan *p);
// How many different weights a pass multiplies keys with (weights.c).
int64_t tile_weights(const Func *f, int lane, Op *pass, Arena *a);
TilePlan tile_plan(Ctx *cx, const Func *f, const PassOpt *opt);
// Of a program with products that a CPU has tile registers for, unless its rows
// are walked (mats.c).
void tile_mats_plan(const Func *f, const PassOpt *opt, TilePlan *p);

// Is a pass that holds another to be split, where rows are many?
bool tile_splits_outer(const Func *f, const PassOpt *opt, const TilePlan *p);
// Are rows elements of vectors, of which there are few? (split_plan.c)
bool tile_has_elements(const Func *f, int lane);
bool tile_counts_all(const DimTab *d, Dim of);
// Splitting the keys of a pass among tasks (split.c): decides about it,
// makes the workspace, cuts the keys, stores and joins partial accumulators.
void tile_split_plan(Ctx *cx, const Func *f, const PassOpt *opt, TilePlan *p);
void tile_split_params(Tiler *t);
// Tiles of the tasks that join.
// Builds where `yes` holds; to be ended by a yield.
Builder tile_if(Builder *b, Value yes);
void tile_split_joiners(Tiler *t);
// Are there two functions that join, one of them for few rows?
bool tile_split_in_two(const Func *f, const TilePlan *p, const Target *t);
void tile_split_open(Tiler *t, Builder *b);
// Do tasks go around what they do not store, results or sums? What groups with
// columns of their own store is then a box, without a mask.
bool tile_split_branches(const Tiler *t);
void tile_split_keys(Tiler *t, Builder *b, int64_t unit, Value *lo, Value *hi);
// Sums of warps that keys are dealt to (pass deal_keys) are joined first, if
// keys are split or not.
void tile_split_store(Tiler *t, Builder *b, const Op *op, ValueMap *m,
                      Value *acc);
void tile_split_join(Tiler *t, Builder *b, const Op *op, const ValueMap *m,
                     Value *acc);
// Splitting the keys of a pass among the CTAs of a cluster (cluster.c):
// decides about it; the axis of the parts; of each accumulator what each of the
// CTAs has; what stands behind is of some columns.
void tile_cluster_plan(Ctx *cx, const Func *f, const PassOpt *opt,
                       const Op *pass, TilePlan *p);
// Positive where so many tasks of those keys are better with clusters than by
// the other plan, in parts.
Dim tile_cluster_gain(DimTab *d, const TilePlan *parts, int64_t cluster,
                      Dim tasks, Dim keys);
void tile_cluster_open(Tiler *t, Builder *b);
Value *tile_cluster_parts(Tiler *t, Builder *b, const Value *acc, uint32_t n);
void tile_cluster_slice(Tiler *t, Builder *b, ValueMap *m);
// How many keys a tile of rows sees at most, whatever tables hold (width.c); 0:
// the bounds do not say.
int64_t tile_most_seen(const Func *f, const Op *pass, const TilePlan *p);
// Into how many parts n keys go that depend on nothing else.
Value tile_split_own(Builder *b, Value n);
// The phase that plans the parts (split_plan.c): the axis of the sequences that
// it can plan, or -1; its workspace; its body; how many parts it says a task's
// sequence has, `otherwise` if it has no tasks: those of SHARE_PART are its
// list's then.
int tile_plan_axis(const Func *f, const Op *pass, const TilePlan *p);
void tile_plan_params(Tiler *t);
void tile_plan_body(Tiler *t, Builder *b, const ValueMap *params);
Value tile_plan_parts(const Tiler *t, Builder *b, Value otherwise);
// Bounds of the keys that depend on tables (bounds.c): which passes have
// them found beforehand, the workspace, the phase that finds them.
bool tile_bounds_wanted(Ctx *cx, const Func *f, const Op *pass);
void tile_bounds_plan(Ctx *cx, const Func *f, TilePlan *p);
void tile_bounds_params(Tiler *t);
void tile_bounds_body(Tiler *t, Builder *b, uint32_t which, ValueMap *m);
// Whether each group of a tile's rows has its own bounds (group_bounds.c).
void tile_own_plan(Ctx *cx, const Func *f, const PassOpt *opt, TilePlan *p);
// What such bounds would be made of.
typedef enum OwnKind { OWN_NONE, OWN_ARITHMETIC, OWN_TABLES } OwnKind;
OwnKind tile_own_kind(Ctx *cx, const Func *f, int lane);
// Rows that an entry of the workspace of bounds is of.
int64_t tile_bounds_rows(const TilePlan *p);
// Which rows a store may write, where the tensor's own range does not tell
// (ends.c); 0: all of them.
Value tile_row_ends(Tiler *t, Builder *b, const Op *op);
// Splitting the steps of a recurrence (parts.c), in the same way.
void tile_parts_plan(Ctx *cx, const Func *f, const PassOpt *opt, TilePlan *p);
void tile_parts_params(Tiler *t);
void tile_parts_open(Tiler *t, Builder *b);
void tile_parts_bounds(const Tiler *t, Builder *b, Value end, Value *lo,
                       Value *stop);
// Type of the decay of a part's steps.
Type tile_parts_decay(const Tiler *t);
void tile_parts_store(Tiler *t, Builder *b, Value state, Value decay);
Op *tile_parts_copy(Tiler *t, Builder *b);
void tile_parts_store_first(Tiler *t, Builder *b, Value first);
Op *tile_parts_join(Tiler *t, Builder *b, Type type);
// Where writes erase (linear.c): the parts, of those wanted; an axis of the
// states; where a task's steps stop; its first state; what is written, made of
// a vector; ..
Dim tile_linear_parts(DimTab *d, Dim tasks, Dim maps, Dim most, int64_t room);
Dim tile_linear_extent(const Tiler *t, uint32_t axis);
Value tile_linear_stop(const Tiler *t, Builder *b, Value lo, Value stop);
Value tile_linear_first(const Tiler *t, Builder *b, Value state);
Value tile_linear_written(const Tiler *t, Builder *b, Value w, Value vector);
void tile_linear_store(const Tiler *t, Builder *b, Value state);
// the phase that joins them, and what the program's tasks begin with.
void tile_linear_joins(Tiler *t, Builder *b);
Op *tile_linear_begin(const Tiler *t, Builder *b, Type type);
// An accumulator times its factor, which may be f64 where it is f32.
Value tile_scaled(Builder *b, Value acc, Value factor);

// Type of a stream value as a tile.
Type tile_type(const Tiler *t, const Type *s);
// Clones one op at b. The map goes from values of `from` to those of `to`.
bool tile_op(Tiler *t, Builder *b, const Op *op, ValueMap *m);
// The load reads what a phase before has made (pass `materialize`): zeros for
// keys that no row sees.
bool tile_is_made(const Func *f, const Op *load);
// Does v vary with a key or step axis whose loop is not open? Whoever opens it
// clones v on demand.
bool tile_waits(const Tiler *t, Value v);
// All ops of a region but its yield.
// Makes what op needs and stands in front of its loop: values that vary with
// the loop's axis had to wait for it.
bool tile_demand(Tiler *t, Builder *b, const Op *op, ValueMap *m);
bool tile_region(Tiler *t, Builder *b, const Region *r, ValueMap *m);
// Whether gauge i of a pass may be kept, where factors allow it, though it is
// -inf (lazy.c).
bool tile_keeps_empty(const Tiler *t, const Op *pass, uint32_t i);
// A `pass` as loops over key tiles (loop.c).
bool tile_pass(Tiler *t, Builder *b, const Op *op, ValueMap *m);

// An `affine`, those over the same axis behind it, and what is stored of
// their reads, as a loop over chunks (chunk.c).
bool tile_recur(Tiler *t, Builder *b, const Op *op, ValueMap *m);
bool tile_affine(Tiler *t, Builder *b, const Op *op, ValueMap *m);
ValueMap tile_map_copy(Tiler *t, const ValueMap *m);
Value tile_const(Builder *b, Type type, double v);
const Op *tile_yield(const Region *r);
bool tile_is_const(const Func *f, Value v, double want);

#endif
