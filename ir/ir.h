// The IR: one data model and one text form for the levels attn, stream, tile,
// frag and mach. docs/ir.md is its reference.
//
// Ownership: everything reachable from a Module lives in module->arena.
// Values are ids into Func.values; ops are doubly linked in their region.
#ifndef ATTNC_IR_IR_H
#define ATTNC_IR_IR_H

#include "ir/core/ctx.h"
#include "ir/core/dim.h"
#include "ir/core/dtype.h"

typedef uint32_t Value;  // id in Func.values; 0 = none
typedef struct Op Op;
typedef struct Region Region;
typedef struct Func Func;
typedef struct Module Module;

typedef enum Level { LV_ATTN, LV_STREAM, LV_TILE, LV_FRAG, LV_MACH } Level;

typedef enum OpCode {
#define OP(name, id, ...) OP_##id,
#include "ir/ops.def"
  OP_COUNT
} OpCode;

typedef enum AttrId {
#define ATTR(name, id, kind) AT_##id,
#include "ir/attrs.def"
  AT_COUNT
} AttrId;

typedef enum RKind {
  RK_SUM,
  RK_PROD,
  RK_MAX,
  RK_MIN,
  RK_ANY,
  RK_ALL,
  RK_COUNT
} RKind;
typedef enum ScanDir { DIR_PREFIX, DIR_SUFFIX } ScanDir;
typedef enum PassOrder { ORDER_ANY, ORDER_FORWARD, ORDER_REVERSE } PassOrder;
typedef enum FillKind { FILL_NEGINF, FILL_ZERO, FILL_SELECT } FillKind;

// ---------------------------------------------------------------- axes, types
typedef enum AxisRole {
  AX_PAR,   // parallel: one output point per coordinate
  AX_KEY,   // reduced key axis, may have a domain
  AX_VEC,   // axis of vectors (head dimension)
  AX_STEP,  // time of a recurrence, repeat counter
} AxisRole;

typedef struct Axis {
  const char *name;  // unique in the function
  AxisRole role;
  Dim extent;  // coordinates 0 .. extent-1
} Axis;

#define MAX_AXES 10

typedef enum TypeKind {
  TK_NONE,
  TK_ELEM,    // dtype over axes: f32{b,h,q,k}; a tile if sizes are given
  TK_TENSOR,  // memory of the caller: tensor<bf16[B, H, S, D]>
  TK_VEC,     // CPU mach: vec<16xf32>
  TK_PTR,     // CPU mach: ptr<f32>, scratch or tensor memory
  // frag and GPU mach (docs/gpu/ir.md):
  TK_FRAG,  // frag<64x128xf32,acc>: a tile over the threads of the group
  TK_SMEM,  // smem<2x128x64xbf16,sw128>: shared tiles
  TK_MBAR,  // mbar<2>: barriers in shared memory
} TypeKind;

typedef enum LayoutId {
#define FRAG(name, id, ...) LY_##id,
#define SMEM(name, id, ...) LY_##id,
#define TURNED(name, id) LY_##id,
#include "ir/layouts.def"
  LY_COUNT
} LayoutId;

// The part of a tile that a fragment holds: all of it, or what varies with one
// axis only.
typedef enum FragSlice { SLICE_NONE, SLICE_ROW, SLICE_COL } FragSlice;

typedef struct Type {
  TypeKind kind;
  DType dtype;
  uint32_t n;               // axes (ELEM), rank (TENSOR, FRAG), lanes (VEC),
                            // barriers (MBAR)
  uint32_t axis[MAX_AXES];  // ELEM: axis ids, ascending
  Dim size[MAX_AXES];       // ELEM: tile sizes, DIM_NONE before tile
                            // TENSOR: physical shape
  uint32_t ext[3];          // FRAG: rows, columns; a slice: its extent, the
                            // other one (0: does not matter); SMEM: rows,
                            // columns, slots
  LayoutId layout;          // FRAG, SMEM
  FragSlice slice;          // FRAG
  bool partial;             // FRAG: a reduction's parts, not yet combined
  bool quads;               // TENSOR: rows lie by 16, in fours of a thread
  bool padded;              // TENSOR: rows begin at multiples of 16 bytes
} Type;

bool type_eq(const Type *a, const Type *b);
Type type_scalar(DType t);
Type type_tensor(DType t, uint32_t rank, const Dim *shape);
Type type_vec(DType t, uint32_t lanes);
Type type_ptr(DType t);
Type type_frag(DType t, uint32_t rows, uint32_t cols, LayoutId layout);
Type type_smem(DType t, uint32_t slots, uint32_t rows, uint32_t cols,
               LayoutId layout);
Type type_mbar(uint32_t n);
bool type_has_axis(const Type *t, uint32_t axis);
int type_axis_at(const Type *t, uint32_t axis);  // position or -1
// t with one more axis (kept ascending); size DIM_NONE before tile.
Type type_with(Type t, uint32_t axis, Dim size);
Type type_without(Type t, uint32_t axis);
Type type_union(const Type *a, const Type *b, DType dtype);

// ---------------------------------------------------------------- ops
typedef enum AttrKind {
  AK_INT,
  AK_FLOAT,
  AK_BOOL,
  AK_STR,
  AK_SYM,
  AK_DIM,
  AK_DTYPE,
  AK_AXIS,
  AK_AXES,
  AK_INTS,
  AK_RKIND,
  AK_RKINDS,
  AK_DIR,
  AK_ORDER,
  AK_FILL,
} AttrKind;

typedef struct IrAttr {
  AttrId id;
  int64_t i;      // INT BOOL DIM DTYPE AXIS RKIND DIR ORDER FILL
  double f;       // FLOAT
  const char *s;  // STR SYM (interned)
  uint32_t n;     // AXES INTS RKINDS
  int64_t *list;
} IrAttr;

struct Op {
  OpCode code;
  uint32_t nargs, nres, nattrs, nregions;
  Value *args, *res;
  IrAttr *attrs;  // sorted by id
  Region **regions;
  Op *prev, *next;
  Region *parent;
  Span span;  // source position, or NOWHERE
};

struct Region {  // one block
  Op *parent;    // NULL: the function body
  Func *fn;
  Vec(Value) params;
  Op *first, *last;
};

typedef struct ValueInfo {
  Type type;
  Op *def;           // NULL: parameter of a function or region
  Region *region;    // where defined
  const char *hint;  // printed name, or NULL
} ValueInfo;

typedef enum FuncKind { FK_PROGRAM, FK_MASK, FK_MOD, FK_ROW, FK_FN } FuncKind;
typedef enum ParamRole {
  PR_IN,
  PR_OUT,
  PR_INOUT,   // tensors
  PR_SCALAR,  // scalar of a program, value of a fn
  PR_INDEX,   // index parameter (i64) of mask, mod, fn
  PR_SHARED,  // workspace of all phases, the last
} ParamRole;

typedef struct FuncParam {
  Value v;
  ParamRole role;
  bool nograd;
} FuncParam;

typedef struct GridDim {  // tile level: tasks along an axis
  uint32_t axis;
  int64_t tile;  // coordinates a task covers
  bool serial;   // one task, in order, covers all of them, a tile at a time
  bool repeats;  // a product of matrices does not vary with it: not printed
} GridDim;

struct Func {
  Module *mod;
  FuncKind kind;
  const char *name;
  Vec(FuncParam) params;
  Vec(Axis) axes;
  Vec(GridDim) grid;  // tile and mach
  int key;            // row functions: key axis, else -1
  Region *body;
  Vec(ValueInfo) values;  // [0] unused
  Span span;
};

struct Module {
  Ctx *cx;
  Arena *arena;
  Level level;
  DimTab dims;
  const char *target;  // tile and mach, else NULL
  Vec(Func *) funcs;
};

// ---------------------------------------------------------------- tables
typedef enum Infer {
  INF_SAME,
  INF_WIDE,
  INF_BOOL,
  INF_SEL,
  INF_CAST,
  INF_REAL,
  INF_RED,
  INF_DOT,
  INF_LOAD,
  INF_INDEX,
  INF_GIVEN,
  INF_NONE,
} Infer;
enum { OPF_PURE = 1, OPF_COMM = 2, OPF_ELEM = 4, OPF_TERM = 8 };
enum { ELEM_ARGS = 6 };  // most operands of an elementwise op

// Where an op may stand: a level, at level mach the kind of target, at level
// frag any function or one whose schedule is made.
enum {
  OPL_ATTN = 1,
  OPL_STREAM = 2,
  OPL_TILE = 4,
  OPL_FRAG = 8,
  OPL_SCHEDULE = 16,
  OPL_CPU = 32,
  OPL_GPU = 64,
};

typedef struct OpInfo {
  const char *name;
  uint8_t levels;  // OPL_*
  uint8_t min_args, max_args, nres, nregions;
  Infer infer;
  uint8_t flags;
  const char *doc;
} OpInfo;

const OpInfo *op_info(OpCode c);
bool op_by_name(const char *name, size_t len, OpCode *c);
const char *attr_name(AttrId id);
AttrKind attr_kind(AttrId id);
bool attr_by_name(const char *name, size_t len, AttrId *id);
const char *level_name(Level lv);
// The OPL_* of a level's modules.
uint8_t level_ops(Level lv);
const char *rkind_name(RKind k);

// ---------------------------------------------------------------- building
Module *ir_module(Ctx *cx, Level level);  // in cx->home
Func *ir_func(Module *m, FuncKind kind, const char *name);
Func *ir_find(const Module *m, const char *name);
// Renames if the name is taken in f.
uint32_t ir_axis(Func *f, const char *name, AxisRole role, Dim extent);
Value ir_param(Func *f, const char *name, ParamRole role, Type t);
Value ir_value(Func *f, Type t, const char *hint);
Region *ir_region(Func *f, Op *parent);
Value ir_region_param(Region *r, Type t, const char *hint);

static inline ValueInfo *ir_info(const Func *f, Value v) {
  return &f->values.at[v];
}
static inline const Type *ir_type(const Func *f, Value v) {
  return &f->values.at[v].type;
}
static inline Op *ir_def(const Func *f, Value v) {
  return f->values.at[v].def;
}

typedef struct Builder {
  Func *fn;
  Region *region;
  Op *before;  // insertion point; NULL = at the end
  Span span;   // given to new ops
} Builder;

// The general constructor. `types` gives nres result types for GIVEN ops, NULL
// otherwise. attrs are copied and sorted.
Op *ir_op(Builder *b, OpCode c, const Value *args, uint32_t nargs,
          const IrAttr *attrs, uint32_t nattrs, const Type *types,
          uint32_t nres, uint32_t nregions);
// An op that is its code alone: a barrier, a fence.
Op *ir_bare(Builder *b, OpCode c);
// Ops with inferred type and no attributes.
Value ir_1(Builder *b, OpCode c, Value x);
Value ir_2(Builder *b, OpCode c, Value x, Value y);
Value ir_3(Builder *b, OpCode c, Value x, Value y, Value z);
// What a reduction of the kind does with two of its terms.
OpCode ir_combining(RKind k);
Value ir_combine(Builder *b, RKind k, Value x, Value y);
Value ir_const_f(Builder *b, DType t, double v);
Value ir_const_i(Builder *b, DType t, int64_t v);  // integers and bool
Value ir_int(Builder *b, int64_t v);               // of type i64
Value ir_dim(Builder *b, Dim d);
Value ir_index(Builder *b, uint32_t axis);
// Level tile: the first coordinate of the task's tile; 0 .. size - 1 along
// axis.
Value ir_origin(Builder *b, uint32_t axis);
Value ir_iota(Builder *b, uint32_t axis, Dim size);
Value ir_cast(Builder *b, DType to, Value x);  // x itself if equal
Value ir_load(Builder *b, Value tensor, const Value *idx, uint32_t n);
void ir_store(Builder *b, Value tensor, Value x, const Value *idx, uint32_t n);
// A store that stores also only where `when` holds, in place of that one.
void ir_store_where(Func *f, Op *store, Value when);
Value ir_reduce(Builder *b, RKind k, Value x, const uint32_t *over, uint32_t n);
Value ir_dot(Builder *b, Value x, Value y, const uint32_t *over, uint32_t n);
void ir_yield(Builder *b, const Value *v, uint32_t n);

const IrAttr *ir_attr(const Op *op, AttrId id);  // NULL if absent
int64_t ir_attr_i(const Op *op, AttrId id, int64_t absent);
// By bits: -0.0 is not 0.0, and a NaN equals itself.
bool ir_same_attr(const IrAttr *a, const IrAttr *b);
bool ir_same_attrs(const Op *a, const Op *b);  // all of them
void ir_set_attr(Func *f, Op *op, IrAttr a);
void ir_del_attr(Op *op, AttrId id);
IrAttr attr_i(AttrId id, int64_t v);
IrAttr attr_f(AttrId id, double v);
IrAttr attr_s(AttrId id, const char *s);
IrAttr attr_list(AttrId id, const int64_t *v, uint32_t n);
IrAttr attr_axes(Arena *a, AttrId id, const uint32_t *v, uint32_t n);
bool ir_const_value(const Func *f, Value v, double *out);  // const op, or false
// A constant that is a whole number of less than 2^53.
bool ir_const_whole(const Func *f, Value v, int64_t *out);

// Maps values of one function to values of another (or the same).
typedef struct ValueMap {
  Arena *arena;
  Value *to;
  uint32_t n;
} ValueMap;
Value vmap_get(const ValueMap *m, Value v);  // v itself if unmapped
void vmap_put(ValueMap *m, Value from, Value to);

// Clones op (with regions) at the builder; operands go through the map, new
// results are added to it. Result types are inferred again where the table
// can (so a body may be cloned into more axes), else copied with axis ids
// mapped by axis_map (NULL = identity).
Op *ir_clone(Builder *b, const Func *from, const Op *op, ValueMap *m,
             const uint32_t *axis_map);

// m in another arena, with what it has and no more: values keep their numbers,
// those of ops that are gone have no place.
Module *ir_copy(const Module *m, Arena *to);

void ir_replace_uses(Func *f, Value from, Value to);
uint32_t ir_count_uses(const Func *f, Value v);
uint32_t ir_uses_in(Region *r, Value v);  // and in regions inside
void ir_erase(Op *op);                    // unlinks; no uses left
void ir_move_before(Op *op, Op *where);
// True if v is an operand of the op or of one in its regions.
bool ir_mentions(const Op *op, Value v);
// The first such op from op on in its region, or NULL.
Op *ir_first_use(Op *op, Value v);
// `to` in place of `from` in the op, in those behind it, and in their regions.
void ir_replace_from(Op *op, Value from, Value to);
// Is the tensor an input, which nothing writes?
bool ir_is_input(const Func *f, Value tensor);
// It is of a recurrence: it has an axis of steps.
bool ir_has_steps(const Func *f);
// The axis whose index v is, or -1.
int ir_index_axis(const Func *f, Value v);
// Has an op of r, or of what is inside of it, that flag?
bool ir_any_has(const Region *r, AttrId flag);
// Are there products of matrices, from level frag on?
bool ir_has_products(const Func *f);
// Does an op in r, or in a region inside, write the tensor?
bool ir_is_stored(const Region *r, Value tensor);
// Bit i: f, of level mach, makes tensor i (of its tensors), an output, or part
// of it, or what a phase behind it makes it of. 0: not known. f is only read,
// as threads share it.
uint64_t ir_made(Arena *scratch, const Func *f);
// Calls fn for each op of the region and the regions inside, in order. The op
// visited may be erased.
typedef void WalkFn(void *data, Op *op);
void ir_walk(Region *r, WalkFn *fn, void *data);
// True if v is defined outside region r (an enclosing region or parameter).
bool ir_defined_outside(const Func *f, Value v, const Region *r);

// ---------------------------------------------------------------- text
void ir_print(const Module *m, Buf *out);
// Parses a module. NULL with diagnostics (A06xx) on errors; never crashes.
Module *ir_parse(Ctx *cx, Source *src);
// Checks m against its level. False with diagnostics (A065x).
bool ir_verify(Ctx *cx, const Module *m);

// ---------------------------------------------------------------- meaning
struct FragMap;  // ir/layout.h

// Host data of one program parameter.
typedef struct InterpTensor {
  DType dtype;
  uint32_t rank;
  int64_t shape[8], stride[8];  // elements
  void *data;                   // dtype elements; NULL: output not wanted
  double scalar;                // PR_SCALAR
  bool given;                   // PR_SCALAR
} InterpTensor;

typedef struct InterpOpt {
  bool round;     // casts round to their dtype (else all is f64)
  uint64_t seed;  // chooses tile cuts and split points at stream level
  bool poison;    // outputs and tile memory start as NaN
  // GPU mach: where fragments lie, in place of frag_map; NULL: that. Tests
  // show with it that a wrong layout is noticed.
  const char *(*map)(const Type *t, uint32_t threads, struct FragMap *out);
} InterpOpt;

// f is program `name` or a further phase of it, `name`.xyz: phases run in the
// order of the module, and have the same parameters.
bool ir_is_phase(const Func *f, const char *name);
// Boxes that an sfill, cp_async or tma_load puts into its tile.
uint32_t ir_pieces(const Op *op);

// Executes program `name` of a module of any level (mach of a GPU: in buffer
// form, by waves; always rounded; the seed chooses the schedule). `args` are
// its parameters in order; `dims` the value of each dim symbol. False with a
// diagnostic (out-of-range gather at attn level, step budget, data races).
bool ir_interp(Ctx *cx, const Module *m, const char *name, InterpTensor *args,
               const int64_t *dims, const InterpOpt *opt);

#endif
