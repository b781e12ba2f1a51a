// State shared by the files of the pass `lower_gpu`.
//
// Words. The axes of a function have one *order*: the tiled grid axis, keys,
// vectors. A value with two axes is a tile whose rows are the earlier axis and
// whose columns are the later one, so no fragment is ever transposed. A value
// with one axis is a slice: it varies with the rows or with the columns of a
// tile, its *role*, and is computed in each role in which it is needed. Values
// without axes are scalars. A *rooted* value (reduction, product, what a loop
// carries) is made once, where it stands; the others are made on demand, in
// the outermost loop that has their operands.
//
// Files: lower_gpu.c entry and regions, plan.c order, sizes, ranges,
// eval.c values, quotient.c quotients of tiles, clamp.c clamped sums, dot.c
// products, mem.c tensors and tiles in shared memory, emit.c types and ops,
// task.c where a task is, share.c tasks of several heads' rows. Ownership: all
// of it lives in Ctx.scratch until the pass ends; mach ops in the module's
// arena.
#ifndef ATTNC_PASSES_GPU_GPU_H
#define ATTNC_PASSES_GPU_GPU_H

#include "ir/target.h"
#include "passes/pass.h"
#include "passes/support/range.h"

// How a slice is held: bit 0 tells rows from columns, the rest is the number of
// the fragments it belongs to: 0 is `acc`, i is entry i - 1 of Place.lin.
typedef uint32_t Role;

enum { ROLE_ROW, ROLE_COL, MAX_LIN = 15, MAX_ROLES = 2 + 2 * MAX_LIN };

// Axes of tiles that are fragments of a layout of their own. `lin`: computed
// operands that come from memory and go to shared memory, in wide pieces; a
// target's `op`: left operands that come from memory.
typedef struct LinPair {
  uint32_t row, col;
  LayoutId layout;
  bool box;   // of loads that are boxes, and of nothing else
  bool told;  // of rows that are copied by lines of a panel (mem.c)
} LinPair;

// A region of the tile level whose ops are being emitted.
typedef struct Scope {
  const Region *from;
  Builder b;  // in front of the op that is being emitted
} Scope;

// Operand of a product: 16-bit parts whose sum is the value.
typedef struct Parts {
  uint32_t n;  // 0: not made
  Value part[HW_F32_PARTS];
  uint32_t row, col;  // axes of the tile in shared memory
  Value from;         // its first column that counts, 0: all do
} Parts;

// Groups that have blocks of rows of several heads (share.c).
typedef struct PlaceShare {
  bool on;
  uint32_t axis;          // of the heads
  Dim each;               // heads that share keys,
  Value by;               // in f, or 0: all
  uint32_t keys, blocks;  // axes of g: groups of such heads, their blocks
  Value shared;           // the first one's coordinate
  Value head[HW_MOST_GROUPS], row[HW_MOST_GROUPS];  // of each group
} PlaceShare;

typedef struct Place {
  Ctx *cx;
  Module *m;
  const Target *target;
  Arena *arena;
  Func *f;              // tile level
  Func *g;              // mach
  int lane;             // tiled grid axis, or -1
  int tall;             // of the rows of tiles that are not multiplied, or -1
  int part;             // axis of which each group has a coordinate, or -1
  uint32_t rows, cols;  // of a tile that all warps share; columns come in
                        // multiples of it
  bool map;             // there are no products: rows may be few
  bool straight;        // nor loops
  bool paired;          // two CTAs of this task are to fit
  bool scarce;          // registers: operands that may be elsewhere are
  bool alone;           // launch says so: one workgroup on a CU
  bool once;            // or that keys are read once, by few rows
  uint32_t most;        // rows that the body is for, 0: any
  Dim few;              // which: no more than `most`; or DIM_NONE
  bool dense;           // launch says so: rows of tensors are dense
  bool mixed;           // and that operations may mix, as tiles that are copied
                        // ahead need no registers
  uint32_t warps;       // of a group
  uint32_t groups;      // of these warps, that share the rows of `lane`
  uint32_t order[64];   // per axis: rank
  uint32_t wide[64][2];  // per axis: padded size as rows, as columns
  Role home[64];         // per axis: role of slices along it
  LinPair lin[MAX_LIN];
  uint32_t nlin;
  Ranges ranges;
  Value (*memo)[MAX_ROLES];  // per value of f: in each role; tiles and
                             // scalars: [0]
  Parts *smem;               // per value of f: in shared memory
  Parts *frag;               // per value of f: as fragments
  bool *boxed;       // per value of f: a load that products want as a box
  Value *taken;      // an operand: the load whose box has its columns, or 0
  Value *shown;      // such a load: the mask of its rows that are not 0, or 0
  int *depth;        // per value of f: scope it can be made in, -1: unknown
  Value *origin;     // per axis: first coordinate of the task
  int8_t moves[64];  // per axis: the group begins behind the task's first by
                     // the rows in front (1), by those behind (-1)
  Value group;       // group() * rows
  PlaceShare share;
  Vec(Scope) scopes;
  bool failed;  // a diagnostic was given
} Place;

// ---------------------------------------------------------------- plan
void lower_plan(Place *p);
bool lower_rooted(const Place *p, const Op *op);
// The scope in which v can be made.
int lower_depth(Place *p, Value v);
// i32 if the integers v can be fit, else its own type.
DType lower_dtype_of(Place *p, Value v);
// Padded beyond its size: what lies there must be masked.
bool lower_padded(const Place *p, uint32_t axis, Dim size, Role r);
// Axes of a tile with the axes of both types, row first; false: more than 2.
typedef struct View {
  int row, col;  // -1: none
  Dim rsize, csize;
  uint32_t frag;  // as in a Role
} View;
bool lower_view(const Place *p, const Type *a, const Type *b, View *v);
Role lower_role(const View *v, const Type *t);
View lower_one(const View *v, Role r);
Role lower_home(const Place *p, const Type *t);

// ---------------------------------------------------------------- ops
Builder *lower_at(Place *p, int depth);
Value lower_op(Builder *b, OpCode c, const Value *args, uint32_t n, Type t,
               const IrAttr *attrs, uint32_t nattrs);
Value lower_2(Builder *b, OpCode c, Value x, Value y);
Value lower_int(Builder *b, int64_t n);
Value lower_dim(Builder *b, Dim d);
Value lower_like(Builder *b, Value x, double v);  // a constant of x's type
Value lower_cast(Builder *b, DType to, Value x);
Value lower_select(Builder *b, Value c, Value x, Value y);
bool lower_is_frag(const Builder *b, Value v);
DType lower_dtype(const Builder *b, Value v);
// Coordinate 0 of the group less that of the task along the axis; 0: the same.
Value lower_moved(Place *p, Builder *b, uint32_t axis);
// The type of a value with those axes: scalar, slice or tile.
Type lower_type(const Place *p, DType dt, const View *v);
Type lower_slice_type(const Place *p, DType dt, uint32_t axis, Role r);
Type lower_smem_type(DType dt, uint32_t rows, uint32_t cols);
// x as a value of type t: spread over the tile, cast.
Value lower_as(Builder *b, Value x, Type t);
Value lower_coord(Place *p, Builder *b, uint32_t axis, Role r);
// true where the coordinates of the view's padded axes are inside; 0: all.
Value lower_inside(Place *p, Builder *b, const View *v, bool row, bool col);

// ---------------------------------------------------------------- values
// Value v of f, in that role if it is a slice.
Value lower_eval(Place *p, Value v, Role r);
Value lower_scalar(Place *p, Value v);
// op, if it is a quotient or remainder that is better taken in parts: *y.
bool lower_quotient(Place *p, const Op *op, const View *v, Role r, Value *y);
// op, if it is a clamped sum that fits 32 bits where the sum does not: *y.
bool lower_clamp(Place *p, const Op *op, const View *v, Role r, Value *y);
// Does the body have few of d: of its rows, or of a factor of them?
bool lower_is_few(const Place *p, Dim d);
// Emits a rooted op at the innermost scope.
void lower_root(Place *p, Op *op);
void lower_set(Place *p, Value v, Value x);
Value lower_refuse(Place *p, const Op *op, const char *why);

// ---------------------------------------------------------------- products
void lower_dot(Place *p, const Op *op);
// Makes room for its operands. True if groups of warps can share its rows: the
// other operand is copied from memory.
bool lower_plan_dot(Place *p, const Op *op);
void lower_plan_boxes(Place *p, const Op *op);
// Marks the boxes that a right operand is computed of (made.c).
void lower_plan_made(Place *p, Value v);
// First with `lin`, for all products, then without.
void lower_plan_layout(Place *p, const Op *op, bool lin);
void lower_set_lin(Place *p, const View *v, LayoutId l);
// Makes room for boxes along these axes in layout l.
void lower_add_box(Place *p, const View *v, LayoutId l);
// The layout of the fragments that a role or view belongs to.
LayoutId lower_layout(const Place *p, uint32_t frag);
void lower_slow_dot(Place *p, const Op *op);  // multiplies and adds up
void lower_trinv(Place *p, const Op *op);

// ---------------------------------------------------------------- memory
// x as an index of a tensor: i32.
Value lower_index(Builder *b, Value x);
// The load as a value of type t.
Value lower_load(Place *p, Builder *b, const Op *op, const View *v, Type t,
                 Role r);
Value lower_reload(Place *p, Value v, const View *w, Type t);
// The axes of a store's value, its indices and its mask.
Type lower_stored(const Place *p, const Op *op);
void lower_store(Place *p, const Op *op);
// A box of its tensor that becomes an operand of type t: it is of that type or,
// where copies go through registers, of 8-bit floats.
bool lower_comes_as(Place *p, Value v, DType t);
// The load v, a box, in layout l, as type t.
Value lower_box(Place *p, Value v, DType t, LayoutId l);
// The operand v as shared tiles of 16-bit type t; `parts` of them.
// Summed over axis `over` by the product that wants it.
Parts lower_smem(Place *p, Value v, DType t, uint32_t parts, uint32_t over);
// Copies to shared memory go through registers, for what comes from memory too.
bool lower_staged(const Place *p);
// The same as fragments.
Parts lower_frag(Place *p, Value v, DType t, uint32_t parts);
// A load that is a box of its tensor: can be copied to shared memory as it is.
bool lower_is_box(Place *p, Value v, DType t);
// Such a box, of whose rows each is where indices say.
bool lower_is_told(Place *p, Value v);
// Few rows, which each warp multiplies by keys of its own (deal_keys): 8-bit
// floats from memory are widened as a warp reads them, once.
bool lower_widens_as_read(const Place *p, Value v, DType other);
// A load of a task's rows that are no box, as heads and queries of one axis
// are: of each a stretch of a vector, which threads load in wide pieces.
bool lower_is_rows(Place *p, Value v, DType t);
// v is the sum of HW_F32_PARTS such loads, the largest first.
bool lower_in_parts(Place *p, Value v, DType t, Value *part);

// Scalars are loaded as soon as their indices are known, all together.
void lower_early(Place *p, Region *r);
// Finds operands that are columns of a box which others read too, or which
// groups have parts of (boxes.c).
void lower_plan_taken(Place *p, const Op *dot);
// The first of the operand's columns in that box.
Value lower_first_column(Place *p, Value v);
// x of select(mask, x, 0), where hidden keys are cleaned; else v and no mask.
Value lower_uncleaned(const Place *p, Value v, Value *mask);
// How many of a box's first rows the mask shows, an i32.
Value lower_rows_shown(Place *p, Value mask, uint32_t rows);
// v is the axis' coordinate plus scalars: their sum goes to *origin (0: none).
bool lower_unit_steps(Place *p, Value v, uint32_t axis, Value *origin,
                      bool emit);
// Slices of columns that only a loop reads are loaded there, each time.
void lower_late(Place *p, Region *r);
// Stores right behind what they store, so that it does not wait in registers.
void lower_stores(Place *p, Region *r);

void lower_region(Place *p, const Region *r);

// ---------------------------------------------------------------- tasks
// The coordinates of task(); sets Place.origin and may change the grid of g.
void lower_origins(Place *p, Builder *b);
// Decides whether groups have rows of several heads; changes the grid of g.
void lower_plan_share(Place *p);
// Groups of heads that share keys.
Value lower_share_count(Place *p, Builder *b);
// Their coordinates: group number `keys` of those heads, and the first of the
// task's blocks.
void lower_share(Place *p, Builder *b, Value keys, Value first);
// The coordinate that op, an `origin`, says.
Value lower_origin(Place *p, const Op *op);

#endif
