// State shared by the files of the pass `grad`.
//
// The pass works on a graph of its own: values of the program and of its
// adjoints as functions of the program's axes, equal ones made once. Whether
// an axis is outside of a kernel or summed in it is decided when kernels are
// written. Ids of nodes ascend from operands to results.
#ifndef ATTNC_PASSES_ATTN_GRAD_H
#define ATTNC_PASSES_ATTN_GRAD_H

#include "passes/pass.h"

typedef uint32_t Gid;  // id in Grad.nodes; 0 = none

// Terms of a sum of products, factors of a product, gradients, kernels: more
// are left as they are, or refused.
enum {
  MAX_TERMS = 12,
  MAX_FACTORS = 10,
  MAX_GRADS = 64,
  MAX_KERNELS = 64,
  MAX_GRAD_AXES = 60,
  MAX_ITEMS = 64,  // of a walk
};

// Nodes that are no ops of the program. Of recurrences: a walk (GradWalk
// `attr`; its operands are all that the items have), and result `attr` of one:
// 0 is the last state, others are reads in their order, as functions of the
// step. From GRAD_WRITES on: what item `attr` - GRAD_WRITES writes. GRAD_FRONT:
// the state in front of each block of steps, in the order of the walk. Of walks
// of any step: from GRAD_STATES on state `attr` - GRAD_STATES in front of each
// step, from GRAD_LAST on the last one; GRAD_NEXT: the list of those behind it.
#define GRAD_WALK OP_RECUR
#define GRAD_RESULT OP_YIELD
enum {
  GRAD_WRITES = 1 << 16,
  GRAD_FRONT = 1 << 17,
  GRAD_STATES = 1 << 18,
  GRAD_LAST = 1 << 19,
  GRAD_NEXT = 1 << 20,
};
// Its operand, which a kernel of its own makes; `attr`: 1 + its GradView, or 0.
#define GRAD_MADE OP_ASSUME
// In place of a view: its vectors have 16 bits; its kernel makes nothing else;
// its last two coordinates lie the other way round; it is made in tiles of rows
// and keys (grad_pairs.c), or of bands of them (grad_gaps.c).
enum {
  GRAD_NARROW = -1,
  GRAD_ALONE = -2,
  GRAD_TURNED = -3,
  GRAD_PAIRED = -4,
  GRAD_BANDED = -5,
};

// Operands that are made in this order.
#define GRAD_LIST OP_FOR

// Attribute of a running sum (OP_SCAN), which kernels of its own make too.
enum { GRAD_SCAN_SUFFIX = 1, GRAD_SCAN_EXCLUSIVE = 2 };

typedef enum GradFrom {
  GF_INPUT,
  GF_OUTPUT,     // of the program, read by its gradient
  GF_COTANGENT,  // d_O
  GF_SAVED,      // what the program stores for its gradient
  GF_MADE,       // workspace
} GradFrom;

typedef struct GradTensor {
  const char *name;
  GradFrom from;
  Type type;    // a scalar's: TK_ELEM
  Value param;  // of the program, or 0
  bool wanted;  // its gradient is
  bool read;    // a kernel reads it
  bool inout;   // an output in place of an input: it is never read
} GradTensor;

// What a step of a walk does to its state S, in order.
typedef enum GradItemKind {
  GI_DECAY,  // S = 2 ** x S
  GI_READ,   // a result: the sum over `over` of x S
  GI_WRITE,  // S = S + the sum over `over` of x (w - result `less`)
  GI_MAX,    // S = max(S + x, w)
} GradItemKind;

typedef struct GradItem {
  GradItemKind kind;
  Gid x, w;       // w: 0: none
  uint32_t less;  // 0: none
  uint64_t over;
} GradItem;

// The running maximum m that keeps a walk's states in range, 2 ** (by m) times
// smaller than they are: before and behind each step, behind the last, in front
// of the first. by: 0: there is none.
typedef struct GradGauge {
  Gid before, after, last, first;
  double by;
} GradGauge;

// A state of a walk whose steps are any function: its values in front of and
// behind each step, behind the last.
typedef struct GradState {
  DType dtype;
  uint64_t axes;
  Gid init, front, next, last;
  const char *name;
} GradState;

// A recurrence along an axis.
typedef struct GradWalk {
  uint32_t axis;
  bool reverse;
  uint64_t state;     // axes of the state
  uint64_t row, col;  // of these: what the program's reads contract; others
  Gid init;           // before the first step; 0: zero
  Gid limit;          // steps at this coordinate and behind do nothing, or 0
  bool exact;         // its results are kept in f32
  bool falling;       // its decay is known to be <= 0
  double least;       // and this or more; or -INFINITY
  Gid beside;         // of states and their normalizer, which one kernel of
                      // chunks has: the other's node; or 0
  bool flows;         // a maximum, which decays or writes have gradients of
  GradGauge gauge;
  bool whole;    // it stores what is made of its results step by step
  DType narrow;  // operands of products are rounded to it; 0: they are not
  uint32_t n, nreads;
  GradItem item[MAX_ITEMS];
  Gid node;
  Gid *result;       // of the program's: by number
  uint32_t nstates;  // of any step; else 0, and it has items
  GradState *any;
  Gid mirror;  // of the program's: the walk of its cotangents
  const char *name;
  Span span;
} GradWalk;

typedef struct GradNode {
  OpCode code;
  DType dtype;
  uint64_t axes;    // it varies with these
  uint64_t over;    // reduce, scan: summed; divk: the key axis
  uint64_t points;  // reduce: the points' axes, with the domains'
  int64_t attr;     // const, dim, index, kind of reduce, of scan; select:
                    // grad_path
  double value;     // const
  uint32_t tensor;  // load, given
  uint32_t n;
  Gid *arg;
  const char *hint;
  Span span;
} GradNode;

// An output of the program, or a gradient: v at these indices.
typedef struct GradStore {
  uint32_t tensor;
  Gid v;
  Gid index[8];
  uint32_t n;
  Gid mask;        // where it is stored; 0: everywhere
  uint32_t rank;   // among those of a chunk: 1, ..; of others 0
  Gid first;       // made before v, or 0
  bool alone;      // its kernel stores nothing else
  uint32_t side;   // its kernel stores nothing of another side
  bool parts;      // that stores sums of parts of rows too
  bool physical;   // rows of sequences in one tensor, or pages: not all of it
  uint64_t outer;  // v is added up: the axes that its kernel has outside
  Gid scan;        // v is what it sums; what blocks have in front is stored
  Span span;
} GradStore;

// An axis of the program; grouped ones (`h // r`) are two here.
typedef struct GradAxis {
  Axis axis;
  uint32_t of;     // of the program's
  uint32_t saved;  // where it is in what the program stores
  Dim inner;       // of a group: its size; else DIM_NONE
  uint32_t other;  // of a group: the axis within it
} GradAxis;

typedef struct GradTerm {
  double c;
  uint32_t nrow, nkey;
  struct GradFactor {
    Gid node;
    int power;
  } row[MAX_FACTORS], key[MAX_FACTORS];
} GradTerm;

typedef struct GradTerms {
  uint32_t n;
  GradTerm at[MAX_TERMS];
} GradTerms;

// sum over `over` of the key factors = v * row factors / c
typedef struct GradKnown {
  GradTerm term;
  uint64_t over;
  Gid v;
} GradKnown;

typedef struct GradKernel {
  uint64_t outer, inner;  // axes of tasks, axes that are summed
  bool rows;              // it makes what others read alone
  bool alone;             // it stores one gradient only
  uint32_t side;          // of a chunk's gradients, or 0
  bool physical;          // what the domains exclude is not stored
  int64_t sums;           // registers of a thread for its sums, on GPUs
  Gid walk;               // it is that recurrence, or 0
  const char *name;
  uint32_t n;
  GradStore store[MAX_GRADS];
} GradKernel;

// How what a kernel of chunks makes is a function of the step: at step `local`
// of a chunk, of so many.
typedef struct GradView {
  uint32_t axis, chunk, local;
  int64_t steps;
  uint32_t rank;   // stores are in this order
  Gid first;       // made before it, of what it adds to; or 0
  bool alone;      // nothing else is stored by its kernel
  uint32_t side;   // nothing of another side is
  uint64_t apart;  // vectors' axes that its kernel does without
  uint64_t few;    // of which its kernel has some coordinates only
  bool kept;       // it is stored as it is
  bool parts;      // where nothing sums the rows, a kernel has those at `in` of
                   // a part of so many
  uint32_t row, part, in;
} GradView;

// What is made of pairs of rows and keys, `made` its node: summed along bands.
typedef struct GradBand {
  Gid made;
  uint32_t of_row, of_key;     // axes of pairs
  uint32_t band, row, column;  // of what is made
} GradBand;

// A node that kernels read from a tensor.
typedef struct GradRead {
  Gid node;
  uint32_t tensor;
  bool asked;  // by a kernel; else only its tensor is known
  Gid index[8];
  uint32_t n;
} GradRead;

typedef struct Grad {
  Ctx *cx;
  Arena *arena;
  Module *m;
  Func *f;
  const PassOpt *opt;
  Vec(GradAxis) axes;
  Vec(GradTensor) tensors;  // [0] unused
  Vec(GradNode) nodes;      // [0] unused
  Map index;                // hash -> Gid
  Value *of;                // by Gid: the value of the program, or 0
  Gid *node;                // by Value of the program
  uint32_t forward;         // nodes of the program have smaller ids
  Gid domain[64];           // by axis
  Map values;               // what kernels store of OP_SCAN, GRAD_MADE
  Map fronts;               // OP_SCAN -> what blocks of it have in front
  Map scans;                // GRAD_MADE -> the OP_SCAN whose blocks those are
  Vec(GradStore) outs;
  Vec(GradStore) grads;
  Vec(GradStore) adds;  // to workspace, and what that begins with
  Gid *adjoint;         // by Gid
  bool *guarded;        // by Gid of the program: on sides of selects only
  bool *active;         // by Gid: an input with a gradient is in it
  Vec(GradKnown) known;
  Map folded;  // exp(a - (m + log l)) -> exp(a - m)
  Vec(GradRead) reads;
  Vec(GradWalk) walks;
  Vec(GradView) views;  // by attr - 1 of what is made
  Vec(GradBand) bands;
  uint64_t local;  // axes of steps in a chunk
  uint64_t front;  // axes in front of the others of their role
  uint64_t last;   // of these: those that nothing but sums have
  GradKernel kernel[MAX_KERNELS];
  uint32_t nkernels;
} Grad;

static inline uint64_t grad_bit(uint32_t axis) {
  return (uint64_t)1 << axis;
}
static inline const GradNode *grad_at(const Grad *g, Gid x) {
  return &g->nodes.at[x];
}
// That place, or the program's if it is not known.
static inline Span grad_span(const Grad *g, Span s) {
  return span_known(s) ? s : g->f->span;
}
// Does a kernel of its own make such nodes, or a recurrence?
static inline bool grad_is_made(OpCode c) {
  return c == GRAD_RESULT || c == GRAD_MADE || c == OP_SCAN;
}
uint64_t grad_role(const Grad *g, AxisRole r);  // the axes of that role

// ---- grad_graph.c
// The type of 16-bit vectors among what x is made of. None where a running
// maximum is of which decays have gradients: what flows through that takes off
// most of what they get.
DType grad_vectors(const Grad *g, Gid x);
Gid grad_put(Grad *g, GradNode n, const Gid *args);
Gid grad_num(Grad *g, double v);  // f32
Gid grad_int(Grad *g, int64_t v);
Gid grad_index(Grad *g, uint32_t axis);
Gid grad_dim(Grad *g, Dim d);  // its value, i64
// Elementwise; floats of at least f32; 0, 1 and equal operands are folded.
Gid grad_op(Grad *g, OpCode c, const Gid *args, uint32_t n);
Gid grad_1(Grad *g, OpCode c, Gid x);
Gid grad_2(Grad *g, OpCode c, Gid x, Gid y);
Gid grad_3(Grad *g, OpCode c, Gid x, Gid y, Gid z);
// x / y, but 0 where y is.
Gid grad_ratio(Grad *g, Gid x, Gid y);
Gid grad_sum(Grad *g, Gid x, uint64_t over, uint64_t points);
// The sum of x at all its points along these axes.
Gid grad_sum_all(Grad *g, Gid x, uint64_t over);
// x where c holds, else 0.
Gid grad_or_0(Grad *g, Gid c, Gid x);
// x, made by a kernel of its own, at these axes.
Gid grad_made(Grad *g, Gid x, uint64_t axes, const char *name);
Gid grad_list(Grad *g, const Gid *args, uint32_t n);
Gid grad_load(Grad *g, uint32_t tensor, const Gid *index, uint32_t n);
// select(c, x, y), one of which is 0: what flows to a side of a select.
Gid grad_path(Grad *g, Gid c, Gid x, Gid y);
// Has x what is evaluated on one side of a select only?
bool grad_is_unsafe(const Grad *g, Gid x);
bool grad_is_number(const Grad *g, Gid x, double v);
uint32_t grad_tensor(Grad *g, GradTensor t);

// These axes and those that the domains of keys among them vary with.
uint64_t grad_points(const Grad *g, uint64_t axes);

// ---- grad_import.c
// The program as a graph. False: it has what has no gradient.
bool grad_import(Grad *g);
// The coordinates of memory with these axes, and its shape, as the program has
// them: groups are whole again. Without axes it has one element.
uint32_t grad_coordinates(Grad *g, uint64_t axes, Gid *index, Dim *shape);
// The same of what the program stores: in the order of its axes, whether their
// extents are known or not, since its caller laid it out before they were.
uint32_t grad_coordinates_saved(Grad *g, uint64_t axes, Gid *index, Dim *shape);

// Axes of the program's as axes of the graph.
uint64_t grad_bits_of(const Grad *g, uint32_t of);

// Is x, a value of a row, what others are seen from, as a maximum or the
// logarithm of a sum is? -inf of a row without keys is 0 then (op ref), so that
// differences are numbers. Of a threshold, which comparisons look at, it stays.
bool grad_is_reference(Grad *g, Gid x);
// How x, a result or what is made, is read from memory.
GradRead *grad_read(Grad *g, Gid x);
// x with `to` for the coordinate along an axis. What x sums over axes of `to`
// is summed over others like them.
Gid grad_moved(Grad *g, Gid x, uint32_t axis, Gid to);
// What a coordinate along an axis of steps is: turn `turn` of `n` of that step.
typedef struct GradTurn {
  Gid step, turn;
  int64_t n;
} GradTurn;
// x at that coordinate.
Gid grad_moved_turn(Grad *g, Gid x, uint32_t axis, const GradTurn *turn);
// A new axis of the gradient's.
uint32_t grad_axis(Grad *g, const char *name, AxisRole role, Dim extent);

// Another axis like this one, with its domain.
uint32_t grad_twin(Grad *g, uint32_t axis, const char *suffix);

// ---- grad_walk.c
// The op `affine` or `maxplus` as a walk; `node` gives the node of a value.
bool grad_import_walk(Grad *g, const Op *op, Gid (*node)(void *, Value),
                      void *data);
// The axes that its reads contract.
uint64_t grad_walk_contracts(const Grad *g, Gid walk);
// Adjoints of results become those of operands.
bool grad_reverse_walk(Grad *g, const GradWalk *w);

// ---- grad_body.c
// A recurrence of any step: its states in front of each step become nodes, of
// which the step is imported, then what it yields closes it.
void grad_open_body(Grad *g, const Op *op, const Gid *init);
void grad_close_body(Grad *g, const Op *op, const Gid *next);
// What flows to states behind a step goes on; what has flowed to those in front
// of it is what flows to the step before.
void grad_reverse_step(Grad *g, const GradWalk *w);
void grad_reverse_body(Grad *g, const GradWalk *w);
// Adjoints of what ends a step, so that rules reach it.
void grad_seed_bodies(Grad *g);
// Which states have gradients. True: some more have.
bool grad_find_active_states(Grad *g);
// The last walk of whose states in front of steps, and of what the program has,
// x is made, but for sums along vectors; 0: others have what it needs.
Gid grad_steps_of(const Grad *g, Gid x);
// Is there one? What its steps have is made again of their states: the program
// stores nothing of them.
bool grad_has_steps(const Grad *g);
// Are states of the walk matrices, on a GPU? Its tasks are few then, and its
// steps long: gradients that sum such states are made by others.
bool grad_has_matrices(const Grad *g, Gid walk);
// Where there is such a walk: has kernel k room for the matrices that s sums,
// beside those that it has?
bool grad_has_room(const Grad *g, const GradKernel *k, const GradStore *s);
// What x is made of: of a walk of any step, what its steps need.
const Gid *grad_operands(const Grad *g, Gid x, uint32_t *n);

// ---- grad_gauge.c
// Is x the maximum behind a step that keeps a walk in range? What flows to it
// is made once: steps, and the walk of maxima, need it.
bool grad_is_gauge(const Grad *g, Gid x);

// ---- grad_scan.c
// The running sum of x along like.over, by like.attr.
Gid grad_scan(Grad *g, Gid x, GradNode like);
// The same of the other direction: what flows to the operand of `n`.
Gid grad_scan_back(Grad *g, Gid x, GradNode n);
// What the kernel that makes a running sum stores.
Gid grad_scan_value(Grad *g, Gid scan);
// Kernels make the running sum themselves, of what a kernel in front stores for
// each block. Before kernels are planned.
bool grad_scan_by_blocks(Grad *g, Gid scan);
// All running sums, as sums.
void grad_make_scans(Grad *g);
// What the block of a point has in front of it, 0: kernels make all of it.
Gid grad_scan_front(const Grad *g, Gid scan);
// Elements of a block.
int64_t grad_scan_block(void);
// The axis along which it runs.
uint32_t grad_scan_axis(const Grad *g, Gid scan);
// The blocks of x along `axis` are those of the coordinate `to`, of y.
void grad_scan_moved(Grad *g, Gid scan, Gid moved, uint32_t axis, Gid to);

// ---- grad_sums.c
void grad_learn(Grad *g);
// The sum of x over key axes without a loop over keys; 0: it needs one.
Gid grad_rewrite(Grad *g, Gid x, uint64_t over, uint64_t points);
// x with the factors of its terms in front, quotients in exponents.
Gid grad_factored(Grad *g, Gid x);
// Is x a sum of what the gradient sums over rows or keys, with parts that are
// no more than its rows, its keys, or a tensor of vectors that the program has?
bool grad_sums_sums(Grad *g, const GradNode *x);

// ---- grad_rules.c
bool grad_reverse(Grad *g);
// c, a function of these points, flows to x.
void grad_give(Grad *g, Gid x, Gid c, uint64_t points);

// ---- grad_flow.c
// What flows to vectors that are loaded at several coordinates is made apart,
// but of steps of any kind: walks store what their sums are of.
void grad_flow(Grad *g);
// An axis like this one, of rows.
uint32_t grad_row_axis(Grad *g, uint32_t axis);
// Of a matrix one axis counts rows, where what kernels read is known.
void grad_use_rows(Grad *g, GradStore *s);

// ---- grad_maps.c
// The axes of the store's indices.
uint64_t grad_store_axes(const Grad *g, const GradStore *s);
// Are a and b gradients of one tensor, at coordinates that may be the same?
bool grad_same_part(const Grad *g, const GradStore *a, const GradStore *b);
// Is x made of a load?
bool grad_reads_memory(const Grad *g, Gid x);
// Every index of a gradient becomes an axis; one store for each index map.
bool grad_maps(Grad *g);

// ---- grad_segments.c
// Index i of s is a row of a sequence, behind the offset of that: so are those
// of the tensor's other gradients, and s is stored at its rows.
bool grad_segment(Grad *g, GradStore *s, uint32_t i);

// ---- grad_lists.c
// The keys that indices of lists have become: the index, their axis, and how
// often a row's list has each.
typedef struct GradLists {
  uint32_t n;
  struct GradListed {
    Gid x, times;
    uint32_t key;
  } at[8];
} GradLists;
// Index i of s, which a list gives, becomes an axis of keys.
bool grad_list_keys(Grad *g, GradLists *all, GradStore *s, uint32_t i);

// ---- grad_views.c
// Gradients that have a point for each step become stores by chunks.
void grad_store_chunks(Grad *g);

// ---- grad_turns.c
// Is n the step that a turn is of, or the number of that turn?
bool grad_turns_of(const Grad *g, const GradNode *n, uint32_t *axis,
                   int64_t *turns);
// A gradient whose index has steps of several turns is one of steps.
void grad_by_turns(Grad *g, GradStore *s);

// ---- grad_places.c
// Those of the axes that no tensor of scores has: a place in a table, which an
// index map finds.
uint64_t grad_places_of(const Grad *g, uint64_t axes);
// The index x of a table, made by a kernel of its own where that pays.
Gid grad_place_once(Grad *g, Gid x);
// Is a running sum in x?
bool grad_runs(const Grad *g, Gid x);
// x of a sum of the points where `same` holds: the sum along those of the axes
// `over` that the condition does not vary with, made by a kernel of its own, or
// x. Those are taken from `over` and from the sum's points.
Gid grad_sum_first(Grad *g, Gid x, Gid same, uint64_t *over, uint64_t *points);

// ---- grad_gaps.c
// The sum of x, at these points, where `same` holds, a condition on distances
// of rows and keys: those of each distance first, made by kernels of their own.
// 0: it is none.
Gid grad_gaps(Grad *g, Gid x, Gid same, uint64_t over, uint64_t points);
// s stores such a node, in tiles.
void grad_bands(Grad *g, Gid node, GradStore *s);

// ---- grad_pairs.c
// What pairs of rows and keys have is made in tiles.
void grad_pairs(Grad *g, GradStore *s);

// ---- grad_fuse.c
// Sums over keys are added up by the kernel that has the keys outside.
void grad_fuse(Grad *g);

// ---- grad_names.c
// The name of a tensor of rows for x behind the first n; equal names are
// numbered.
const char *grad_tensor_name(Grad *g, Gid x, GradFrom from, uint32_t n);
// Saved rows are in the order of the program, whatever asks for them first:
// what is known of dims changes neither the program's outputs nor their names.
void grad_order_saved(Grad *g);
void grad_name_kernels(Grad *g);

// ---- grad_reads.c
// How x is kept in workspace: f64 in f64, places in i32, all else in f32.
DType grad_kept(const Grad *g, Gid x);
GradRead *grad_read_of(Grad *g, Gid x);  // NULL: no kernel reads it
// 1 + the output that has the value x, and nothing else's coordinates; or 0.
uint32_t grad_output_of(const Grad *g, Gid x);
// Where x is in a tensor of rows, and a new one for it.
uint32_t grad_row_index(Grad *g, Gid x, GradFrom from, Gid *index, Dim *shape);
void grad_step_first(Grad *g, Gid walk, Gid *index, Dim *shape, uint32_t n);
uint32_t grad_row_tensor(Grad *g, Gid x, GradFrom from);

// ---- grad_kernels.c
bool grad_plan(Grad *g);

// ---- grad_emit.c
void grad_save(Grad *g);
void grad_write(Grad *g);

#endif
