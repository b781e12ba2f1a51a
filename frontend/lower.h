// Private to the lowering of checked programs to IR level attn. Files:
//   lower.c      programs: dims, axes, parameters, statements, stores
//   lowerfn.c    functions: instances of mask, mod, row, fn; calls
//   lowerexpr.c  expressions: names, arithmetic, casts, choices
//   lowerval.c   values with vector axes: alignment, renaming
//   lowermem.c   tensors: layouts, loads, slices of computed vectors
//   lowerred.c   builtins, reductions, scans, division
//   lowerdot.c   contractions and their rounding
//   lowerstep.c  recurrences
//
// Everything lives in the module's arena.
#ifndef ATTNC_FRONTEND_LOWER_H
#define ATTNC_FRONTEND_LOWER_H

#include "frontend/check.h"
#include "ir/deps.h"

#define NO_AXIS UINT32_MAX

// A lowered expression: the value and the axes of its shape, outermost first.
// The value's type has these axes and those of the indices it varies with.
typedef struct Val {
  Value v;
  uint8_t rank;
  bool weak;                // literals, dims and what is made of them
  Dim dim[MAX_RANK];        // of the declaration's DimTab
  uint32_t axis[MAX_RANK];  // NO_AXIS: does not vary (x[:, 1])
} Val;

typedef struct Vals {
  Val *at;
  uint32_t n;
} Vals;

// A callee lowered for one choice of dims and dtypes.
typedef struct Instance {
  const Decl *decl;
  Dim *dims;     // module dim of each dim symbol of decl
  DType *types;  // dtype of each generic of decl
  Dim extent;    // rows: extent of the key axis
  Func *fn;
  Vals results;  // values of fn
  Vals params;   // values of fn, in order
} Instance;

typedef struct Low {
  Ctx *cx;
  Module *m;
  Arena *a;
  const FeBind *binds;
  uint32_t nbinds;
  Vec(Instance *) instances;
  uint32_t depth;  // of nested callees
  bool failed;
} Low;

typedef struct VecAxis {
  Dim dim;
  uint32_t axis;
} VecAxis;

// The function being lowered.
typedef struct Fx {
  Low *low;
  const Decl *decl;  // whose names and dims are in force
  Func *f;
  Builder b;
  Dim *dims;           // module dim of each dim symbol of decl
  DType *types;        // dtype of each generic of decl
  Map vals;            // Sym * -> Val *
  Map tensors;         // Sym * -> parameter of f
  Map axes;            // index Sym * -> axis
  Map coords;          // axis and region -> its coordinate
  Map explicit_casts;  // values the program itself cast
  Vec(VecAxis) vecs;   // vec axes by dim, in order of their making
  Vals results;        // callee: what it returns
  KeyDeps deps;
  DomainAxes domains;
  Vec(const Stmt *) states;  // declared so far
  Vec(uint32_t) steps;       // axes of the enclosing steps
  Value step_valid;          // inside a ragged step: t < length, else 0
} Fx;

// lower.c
void low_error(Low *w, Span at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
Fx low_fx(Low *w, const Decl *d, Func *f);
Dim low_dim(const Fx *x, Dim d);
DType low_dtype(const Fx *x, const TypeExpr *t);
void low_bind(Fx *x, const Sym *s, Val v);
bool low_bound(const Fx *x, const Sym *s, Val *v);
uint32_t low_axis(Fx *x, const Sym *index);
void low_indices(Fx *x);
void low_body(Fx *x, Stmt *const *body, uint32_t n);
// The value of a dim of the program; ragged ones are loaded.
Val low_dim_value(Fx *x, Dim d, Span at);
bool low_ragged(const Fx *x, Dim d);
const Attr *low_attr(const Fx *x, const char *name);

// lowerval.c
Val val_scalar(Value v);
Val val_fail(Fx *x);
uint64_t val_axes(const Fx *x, Value v);
Value low_coord(Fx *x, uint32_t axis);
uint32_t low_vec_axis(Fx *x, Dim d, uint64_t used);
Value low_at(Fx *x, Value v, uint32_t n, const uint32_t *axes, const Value *at);
// Axis i of v's shape becomes to[i], all at once.
Val val_rename(Fx *x, Val v, const uint32_t *to);
void val_align(Fx *x, Val *v, uint32_t n, Val *shape);
DType low_dtype_of(const Fx *x, Val v);
Val val_cast(Fx *x, Val v, DType t);
DType low_join(const Fx *x, const Val *v, uint32_t n);
// Elementwise op over operands of one dtype, aligned first.
Val val_op(Fx *x, OpCode c, const Val *v, uint32_t n);
Val val_float(Fx *x, Val v);     // widened so that it may be computed with
Val val_const(Fx *x, double v);  // weak float
Val val_int(Fx *x, int64_t v);   // weak int
Value low_i64(Fx *x, Val v);

// lowerexpr.c
Val low_expr(Fx *x, const Expr *e);
Vals low_exprs(Fx *x, const Expr *e);
Val low_binary(Fx *x, BinOp op, Val a, Val b);
Val low_compare(Fx *x, BinOp op, Val a, Val b);

// lowermem.c
Type low_param_type(Fx *x, const Param *p, DType t);
Val low_index(Fx *x, const Expr *e);
Val low_tensor(Fx *x, const Sym *s, const Item *items, uint32_t n, const Ty *ty,
               Span at);
void low_store(Fx *x, const Sym *s, const Item *items, uint32_t n, Val v,
               Span at);
// The extent of a ragged dim at the point of the batch index.
Value low_length(Fx *x, Dim ragged, Span at);

// lowerred.c
Val low_builtin(Fx *x, const Expr *e, const Sym *callee);
// v as the operand of a reduction: varying with axis and with its domain.
Value low_operand(Fx *x, Value v, uint32_t axis);
Val low_select(Fx *x, Val *v);  // c, a, b
// a / b with the rule for empty key domains.
Val low_divide(Fx *x, Val a, Val b);

// lowertop.c
Val low_topk(Fx *x, const Expr *e, const Expr *score, const Expr *n);

// lowerdot.c
Val low_matmul(Fx *x, Val a, Val b, Span at);
Val low_outer(Fx *x, Val a, Val b);
bool low_has_state(const Fx *x, Value v);  // a state of the recurrence
bool low_weighted_sum(Fx *x, Val *body, uint32_t axis);

// lowerfn.c
Vals low_call(Fx *x, const Expr *e, const Sym *callee);

// lowerstep.c
void low_step(Fx *x, const Stmt *s);
void low_state(Fx *x, const Stmt *s);
void low_set_state(Fx *x, const Stmt *s);
// Stores the states that are bound to an inout parameter.
void low_write_back(Fx *x);

#endif
