// State shared by the files of the pass `lower_cpu`.
//
// Words. A *root* is work that needs a loop: a reduction, a dot, a scan, a
// store, or putting a value in memory. A *stage* is the roots that share a
// loop over panels of one lane axis; a *nest* is the roots of a stage that
// share the loops inside. A *form* is a value in scratch. Everything else is
// *inline*: evaluated where it is used, at the current point of the loops.
//
// Files: lower_cpu.c entry, region.c regions and loops of the tile level,
// plan.c facts of values, sched.c stages and nests, nest.c
// their loops, dot.c register blocks, mat.c tile registers, solve.c triangular
// inverses, piece.c ranges of constant conditions, limit.c keys that no lane
// sees, band.c values by distance, direct.c operands in place,
// cross.c loads across the lanes, turn.c stores across them, walk.c rows that
// are walked, cmp.c comparisons of coordinates, eval.c values at a point,
// mem.c tensors, form.c scratch, emit.c ops.
// Ownership: all of it lives in Ctx.scratch until the pass ends; mach ops in
// the module's arena.
#ifndef ATTNC_PASSES_CPU_CPU_H
#define ATTNC_PASSES_CPU_CPU_H

#include "ir/target.h"
#include "passes/pass.h"

typedef uint64_t AxisSet;  // bit per axis of the function
enum { MAX_COLS = 8 };     // vectors of a panel

// A value in scratch: [outer axes][lane], the lane axis innermost and padded
// to whole panels; or, if `panel`, [panel][outer axes][lane in panel].
typedef struct Form {
  DType dt;    // element type in memory
  uint32_t n;  // outer axes, outermost first
  uint32_t axis[MAX_AXES];
  Dim size[MAX_AXES];
  int lane;  // innermost axis, -1: none
  Dim lane_size;
  int64_t width;  // of a panel, in lanes
  bool panel;
  bool local;     // holds one panel only
  int pair;       // axis of which two elements share one i32, or -1
  bool odd;       // the extent of `pair` may be odd: zero in the last
  Value base;     // mach pointer; 0 before the first use
  Value *stride;  // of the outer axes, if known at run time only
  const char *hint;
  struct Form *next;  // of Assign.pair_form, row_form
} Form;

typedef enum RootKind {
  ROOT_STORE,   // to a tensor
  ROOT_REDUCE,  // reduce, any_of, all_of, dot without register block
  ROOT_DOT,     // dot with register block
  ROOT_SCAN,
  ROOT_KEEP,  // puts v in memory
  ROOT_TURN,  // copies a form of bf16 pairs to one with other lanes
} RootKind;

typedef struct Root {
  RootKind kind;
  Op *op;         // NULL for ROOT_KEEP
  Value v;        // result, or the value to keep; 0 for ROOT_STORE
  Form *dst;      // where it goes; NULL: only registers
  AxisSet space;  // axes walked, reduced ones too
  AxisSet inner;  // reduced (scanned) ones
  int lane;       // -1: none
  Dim lane_size;
  bool last;      // must come after all other roots
  bool early;     // dst is the home of a carried value, written in passing
  Form *src;      // ROOT_KEEP: where v is read, NULL: anywhere
  bool direct;    // ROOT_KEEP: perhaps v can stay in its tensor
  bool across;    // ROOT_DOT: the lanes are what is summed
  bool seldom;    // not the usual case, code is to be short
  bool cross;     // ROOT_KEEP: v's tensor perhaps runs across the lanes
  bool external;  // result is used outside of these roots
  uint32_t stage, nest;
  Form *a, *b;  // ROOT_DOT: operands; a has the lanes. ROOT_TURN: from a
  Value va, vb;
  bool dp;               // ROOT_DOT: bf16 pairs
  Value part[MAX_COLS];  // accumulators while a nest is emitted
  Form *partial;         // reduced lanes, over all panels
} Root;

typedef Vec(Root *) Roots;

// Where evaluation stands.
typedef struct Point {
  int lane;  // axis along the lanes, -1: scalar code
  Dim lane_size;
  uint32_t cols;     // vectors of a panel
  int64_t width;     // cols * lanes
  bool bound;        // x0 is set
  Value panel;       // number of the panel, 0: lanes stand where no panel does
  Value x0;          // its first coordinate
  Value *idx;        // per axis: coordinate, 0: loop not open
  Value *from, *to;  // per axis: what this panel needs of it, 0: all
  Value kept;        // mask that lies in memory for this panel, or 0
} Point;

// How many units of its tile the grid's lane axis still has in this task.
typedef struct End {
  int64_t unit;
  Value v;
} End;
enum { MAX_ENDS = 4 };

typedef struct Undo {
  Map *map;
  uint64_t key;
  Value old;
} Undo;

typedef struct Assign {
  Ctx *cx;
  Module *m;
  const Target *target;
  Arena *arena;
  Func *f;         // tile level
  Func *g;         // mach
  Builder b;       // where ops of g go
  Builder top;     // prologue of g
  uint32_t lanes;  // of every vector
  int par;         // grid axis along the lanes, or -1
  int walked;      // grid axis of few rows that are walked one by one, or -1
  Point pt;
  Vec(Op *) * uses;  // per value of f
  Form **forms;      // per value of f: where it lies, or NULL
  Form **vec_form;   // the same as lane operand of dots
  Form **row_form;   // .. of dots over the grid's lanes: a list, by lane
  Form **pair_form;  // the same as operand of bf16 dots: a list, by the
                     // axis of the pairs and the operand's side
  bool *ready;       // per value of f: its form is written
  bool *vec_ready;
  Root **root_of;      // per value of f: pending root that makes it
  bool *eager;         // per value of f: kept where it is defined
  Form **want;         // per result of an `if`: where it must end up, if
  Value *want_old;     // known, and what lies there before, or 0
  Value *band;         // per value of f: its band in this panel, or 0
  int64_t *band_last;  // and the last key of its tile
  Value diag;          // where the band that is filled is, or 0
  Map memo;            // (value, column) -> mach value
  Vec(Undo) undo;
  Map known;  // (op, operands) -> i64 or bool made in an open scope
  Map ints, floats, dims, facts;  // what the prologue has: f32 constants,
                                  // dims, tensor facts
  Value *seen;                    // per value: stamp of the last walk
  Value stamp;
  Roots pending;
  End ends[MAX_ENDS];
  uint32_t nends;
  const Region *region;  // whose ops are being emitted
  const Op *dense;       // a load with all in range and lanes that are
                         // neighbours, or NULL
  bool brief;            // f is a further phase: it has little to do
  Dim few;               // an axis as long as that is walked if it may be
} Assign;

// ---------------------------------------------------------------- emit
static inline const Type *mty(const Assign *as, Value v) {
  return ir_type(as->g, v);
}
static inline bool is_vec(const Assign *as, Value v) {
  return mty(as, v)->kind == TK_VEC;
}
Value cpu_int(Assign *as, int64_t v);
Value cpu_float(Assign *as, DType t, double v);
Value cpu_bool(Assign *as, bool v);
Value cpu_dim(Assign *as, Dim d);
bool cpu_is_int(const Assign *as, Value v, int64_t *n);
bool cpu_is_bool(const Assign *as, Value v, bool *b);
Value cpu_op(Assign *as, OpCode c, const Value *args, uint32_t n, Type t,
             const IrAttr *attrs, uint32_t nattrs);
Value cpu_1(Assign *as, OpCode c, Value x);
// Binary; folds constant integers and neutral elements. A scalar meets a
// vector as a splat.
Value cpu_2(Assign *as, OpCode c, Value x, Value y);
// The same of vectors of coordinates, if it is a comparison; 0: it is not.
Value cpu_compare_lanes(Assign *as, OpCode c, Value x, Value y);
Value cpu_3(Assign *as, OpCode c, Value x, Value y, Value z);
Value cpu_select(Assign *as, Value c, Value x, Value y);
Value cpu_cast(Assign *as, DType to, Value x);
Value cpu_vec(Assign *as, Value x);  // splat if scalar
Value cpu_iota(Assign *as);          // i64 lane numbers
Value cpu_padd(Assign *as, Value p, Value i);
Value cpu_vmask(Assign *as, Value n);
Value cpu_vreduce(Assign *as, RKind k, Value v);
Value cpu_ld(Assign *as, Value p, Value i);
void cpu_st(Assign *as, Value p, Value i, Value v);
Value cpu_vld(Assign *as, Value p, Value i, Value mask);
void cpu_vst(Assign *as, Value p, Value i, Value v, Value mask);
// The element is read soon, but not at once.
void cpu_ask_far(Assign *as, Value p, Value i);
Value cpu_gather(Assign *as, Value p, Value idx, Value mask);
void cpu_scatter(Assign *as, Value p, Value idx, Value v, Value mask);
Value cpu_combine(Assign *as, RKind k, Value x, Value y);
Value cpu_identity(Assign *as, RKind k, DType t);
Value cpu_tensor(Assign *as, OpCode c, Value tensor, int pos);

typedef struct Loop {
  Op *op;  // NULL: the body runs once, no loop was made
  Builder outer;
  Value iv;
  uint32_t mark;
  uint32_t n;
  Value *vals;  // carried: region arguments, then after the loop results
} Loop;
typedef struct LoopCount {
  Value lo, hi;
  int64_t step;
  const char *hint;  // the name of its variable
} LoopCount;
// vals: n initial values (scalars, vectors); replaced by the loop's arguments.
Loop cpu_loop_open(Assign *as, LoopCount c, Value *vals, uint32_t n);
// Of i = 0 up to n in steps.
Loop cpu_loop_upto(Assign *as, Value n, int64_t step, const char *hint);
// vals: what the body yields; replaced by the results.
void cpu_loop_close(Assign *as, Loop *l, Value *vals);

typedef struct Branch {
  Op *op;
  Builder outer;
  uint32_t mark;
} Branch;
Branch cpu_if_open(Assign *as, Value cond, const Type *t, uint32_t n);
void cpu_if_else(Assign *as, Branch *b, const Value *then);
void cpu_if_close(Assign *as, Branch *b, const Value *other, Value *res);

// Remembered values live until the scope that made them is left.
uint32_t cpu_scope_open(const Assign *as);
void cpu_scope_close(Assign *as, uint32_t mark);
Value cpu_memo_get(const Assign *as, Value v, uint32_t c);
void cpu_memo_put(Assign *as, Value v, uint32_t c, Value x);

// ---------------------------------------------------------------- plan
// The value of a dim if there is only one.
static inline bool dim_known(const DimTab *t, Dim d, int64_t *n) {
  int64_t hi;
  dim_bounds(t, d, n, &hi);
  return *n == hi;
}
void cpu_plan(Assign *as);
AxisSet cpu_axes_of(const Assign *as, Value v);
AxisSet cpu_type_axes(const Type *t);
Dim cpu_axis_size_in(const Assign *as, Value v, uint32_t axis);
bool cpu_is_inline(const Assign *as, Value v);  // no root makes it
bool cpu_is_scalar(const Assign *as, Value v);
bool cpu_is_memory(const Assign *as, Value v);  // a tensor parameter
bool cpu_is_shared(const Assign *as, Value v);  // .. of workspace
DType cpu_reg_dtype(DType t);                   // arithmetic is done in it
bool cpu_is_nonneg(const Assign *as, Value v);  // i64, provably >= 0
// What evaluating the value once more costs.
int cpu_value_cost(const Assign *as, Value v);
uint32_t cpu_panel_cols(const Assign *as, int lane, Dim size);
// Rows of a register block beside the vectors of the panel: of more vectors
// than targets have numbers for (keys of walked rows) as many registers as of
// the most.
uint32_t cpu_block_rows(const Assign *as);
bool cpu_dot_blocked(const Assign *as, const Op *op, int lane, uint32_t *vec);
bool cpu_feeds_block(const Assign *as, Value v, const Op *op);
bool cpu_is_turned(const Assign *as, Value v);
// Does a product sum v over the grid's lanes? Then it has all of them in
// memory.
bool cpu_is_summed(const Assign *as, Value v);
bool cpu_dot_pairs(const Assign *as, const Op *op, int lane);
int cpu_lane_of(const Assign *as, const Op *op, Dim *size);
int cpu_lane_of_value(const Assign *as, Value v, Dim *size);

// ---------------------------------------------------------------- scratch
// How v lies in memory; panel: [panel][..][lane].
Form *cpu_form_new(Assign *as, Value v, int lane, Dim lane_size, bool panel);
Form *cpu_form_pairs(Assign *as, Value v, int lane, Dim lane_size, bool panel,
                     uint32_t pair);
// v's form of pairs along an axis; panel: as the operand with the lanes. Or
// NULL.
Form *cpu_form_of_pairs(const Assign *as, Value v, uint32_t pair, bool panel);
// v's form with these lanes, of those that are not the grid's, or NULL.
Form *cpu_form_of_rows(const Assign *as, Value v, int lane);
Value cpu_form_base(Assign *as, Form *f);
Value cpu_form_stride(Assign *as, const Form *f, uint32_t i);
// Element index at the current point of vector c; *step: distance of lanes
// in elements, 0 if the form does not vary with them.
Value cpu_form_index(Assign *as, const Form *f, uint32_t c, Value *step);
// Rows of bf16 taken as pairs: a pointer to i32, the pair's index behind it.
Value cpu_form_pairs_at(Assign *as, Form *f, uint32_t c, Value *index,
                        Value *step);
// Lanes inside of the axis where the form has no padding for it; 0: all.
Value cpu_form_lane_mask(Assign *as, const Form *f, uint32_t c);
Value cpu_form_load(Assign *as, Form *f, uint32_t c);
// The same, the panel's or row's address apart: a loop inside does not change
// it.
Value cpu_form_load_apart(Assign *as, Form *f, uint32_t c);
void cpu_form_store(Assign *as, Form *f, uint32_t c, Value v);

// ---------------------------------------------------------------- evaluation
// Value v at the current point, vector c. A scalar if it is the same in all
// lanes; its dtype may be wider than v's.
Value cpu_eval(Assign *as, Value v, uint32_t c);
Value cpu_eval_as(Assign *as, Value v, uint32_t c, DType t);
// Evaluates what the value needs and is complete at the current point, so
// that inner loops find it.
void cpu_hoist(Assign *as, Value v);
void cpu_hoist_inputs(Assign *as, const Op *op);
Value cpu_switch_of(const Assign *as, Value v);
bool cpu_index_below(const Assign *as, Value v, Dim n);
bool cpu_affine_in_lane(const Assign *as, Value v);
Value cpu_tensor_load(Assign *as, const Op *op, uint32_t c);
void cpu_tensor_store(Assign *as, const Op *op);

// Of a `select` whose condition is known at vector c: the side taken, else 0.
Value cpu_side_taken(const Assign *as, const Op *op, uint32_t c);

// ---------------------------------------------------------------- pieces
enum { MAX_PIECES = 4, MAX_CONDS = 4 };

// Ranges at[i] .. at[i + 1] of an axis, in coordinates or, of the lanes, in
// panels, in which conditions are constant (0, 1; 2: not in this vector).
typedef struct Pieces {
  uint32_t n, nconds, cols;  // n == 1: one piece, whatever the extent
  int64_t size, at[MAX_PIECES + 1];
  Value cond[MAX_CONDS];
  uint8_t side[MAX_PIECES][MAX_CONDS * MAX_COLS];
} Pieces;
void cpu_pieces_find(Assign *as, Root *const *r, uint32_t n, uint32_t axis,
                     Dim size, Pieces *p);
// Inside of a loop over piece i: its conditions are known.
void cpu_pieces_set(Assign *as, const Pieces *p, uint32_t i);

// ---------------------------------------------------------------- work
Root *cpu_root_keep(Assign *as, Value v, Form *dst);
// Does a root that is planned read the memory of f?
bool cpu_is_read(Assign *as, const Form *f);
Root *cpu_root_turn(Assign *as, Value v, Form *from, Form *dst);
Root *cpu_root_op(Assign *as, Op *op);
// Emits the pending roots.
void cpu_flush(Assign *as);
void cpu_stage_emit(Assign *as, Root *const *roots, uint32_t n,
                    uint32_t nnests);
// How many units of a tile of the grid's lanes the axis still has; 0 if that is
// all of them. Lanes behind its end are computed for nobody.
Value cpu_inside_axis(Assign *as, Dim tile, int64_t unit);
Value cpu_lanes_made(Assign *as, uint32_t axis, Dim size, int64_t unit);
void cpu_dot_emit(Assign *as, Root *r);
void cpu_turn_emit(Assign *as, Root *r);
// Tile registers: can the dot, whose rows are along the axis, be done so?
bool cpu_mat_possible(const Assign *as, const Root *r, uint32_t axis);
// Rows lo .. hi of it, `rows` at a time, a multiple of HW_MAT_ROWS.
void cpu_mat_emit(Assign *as, Root *r, uint32_t axis, LoopCount rows);
uint32_t cpu_mat_rows(const Assign *as);     // at a time, at most
void cpu_mat_turn(Assign *as, Root *r);      // ROOT_TURN of such rows
void cpu_turn_square(Assign *as, Value *v);  // as many vectors as lanes
// What a store reads of other lanes than its own is turned in front of it.
void cpu_turn_stored(Assign *as, const Op *store);
void cpu_turn_panel(Assign *as, Root *r);  // ROOT_TURN of such
// Of as many vectors as lanes: v[0] has the sum of each in its lane.
void cpu_lane_sums(Assign *as, Value *v);
// Few rows that are walked: lanes run along the vectors.
void cpu_walk_plan(Assign *as);
bool cpu_dot_across(const Assign *as, const Op *op, uint32_t *rows);
void cpu_across_emit(Assign *as, Root *r);
void cpu_across_ask(Assign *as, Root *r, Value k0, int64_t n);
// Do n rows fill no tile to speak of?
Value cpu_few_walked(Assign *as, Value n);
// In tile registers: such products, and weights of rows times values, of a
// panel of these.
bool cpu_across_mats(const Assign *as, const Root *r);
void cpu_across_mats_emit(Assign *as, Root *r);
bool cpu_weighted_mats(const Assign *as, const Root *r);
void cpu_weighted_mats_emit(Assign *as, Root *r);
Value cpu_rows_inside(Assign *as, Dim tile);  // rows that are walked
// Where blocks of so many rows end, of those from .. n.
Value cpu_whole_blocks(Assign *as, Value from, Value n, uint32_t rows);
bool cpu_direct_possible(const Assign *as, Value v, const Form *f);
void cpu_direct_emit(Assign *as, Root *r);
// The axis along which index v counts one by one from a scalar; -1: it is a
// scalar, -2: neither. And the coordinate of its first element.
int cpu_direct_axis(const Assign *as, Value v);
Value cpu_direct_first(Assign *as, Value v);
bool cpu_cross_possible(const Assign *as, Value v, int lane);
DType cpu_cross_dtype(DType t);  // in scratch
Value cpu_cross_ok(Assign *as, const Root *r);
void cpu_cross_emit(Assign *as, Root *r);
void cpu_solve_emit(Assign *as, Op *op);
// Bounds of loops over an axis (..2: over pairs) for this panel.
void cpu_band_emit(Assign *as, Root *const *roots, uint32_t n);
void cpu_band_clear(Assign *as);
Value cpu_band_load(Assign *as, Value v, uint32_t c);
void cpu_limit_emit(Assign *as, Root *const *roots, uint32_t n);
void cpu_limit_clear(Assign *as);
Value cpu_limit_lo(Assign *as, uint32_t axis);
Value cpu_limit_hi(Assign *as, uint32_t axis, Dim size);
Value cpu_limit_lo2(Assign *as, uint32_t axis);
Value cpu_limit_hi2(Assign *as, uint32_t axis, Dim size);
void cpu_region_emit(Assign *as, Region *r);

#endif
