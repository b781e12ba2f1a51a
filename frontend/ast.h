// The syntax tree of one .attn file, and the facts the checker writes into it.
//
// Ownership: every node lives in the session arena. Names are interned. The
// parser fills the syntactic fields; fields under "checker" are NULL/0 until
// fe_check. A tree with errors is still a tree: EX_ERROR and ST_ERROR stand
// where something could not be read.
#ifndef ATTNC_FRONTEND_AST_H
#define ATTNC_FRONTEND_AST_H

#include "ir/core/ctx.h"
#include "ir/core/dim.h"
#include "ir/core/dtype.h"

typedef struct Expr Expr;
typedef struct Stmt Stmt;
typedef struct Decl Decl;
typedef struct Sym Sym;
typedef struct Unit Unit;

// ---------------------------------------------------------------- types
#define MAX_RANK 8

typedef enum TyKind {
  TY_NONE,    // not checked yet
  TY_ERROR,   // already reported; silences follow-ups
  TY_VALUE,   // dtype + shape: scalar (rank 0), vector, matrix, tensor
  TY_TUPLE,   // several results of a row function
  TY_STRING,  // only in attributes and schedules
  TY_AUTO,    // the word `auto` and the like in schedules
} TyKind;

// Type of an expression. Its value is a function of its free indices (`vary`
// below); `shape` holds the axes that are left over, e.g. Q[b, h, q] has
// shape [D].
typedef struct Ty {
  TyKind kind;
  DType dtype;  // DT_I64 for `int`, dims and indices
  bool weak;    // literal or dim: converts to float implicitly
  uint8_t rank;
  Dim shape[MAX_RANK];  // dims of the enclosing Decl's DimTab
  bool row;             // Decl.results, tuple elements: varies with the key
  uint32_t nelems;      // TY_TUPLE
  struct Ty *elems;
} Ty;

// A written type: `bf16[B, Hq, Sq, D]`, `row f32`, `T[D]`, `int`.
typedef struct TypeExpr {
  Span span;
  bool row;             // `row T`
  DType dtype;          // DT_NONE if `generic` names it
  bool is_int;          // written `int`
  const char *generic;  // name of a dtype generic, or NULL
  Vec(Expr *) shape;
} TypeExpr;

// ---------------------------------------------------------------- expressions
typedef enum ExprKind {
  EX_ERROR,
  EX_NAME,    // name; dtype if it is a type: @p_type(f32), dims T = f32
  EX_INT,     // ival
  EX_FLOAT,   // fval
  EX_STRING,  // name (interned contents)
  EX_BOOL,    // ival
  EX_INF,
  EX_UNARY,   // op, a
  EX_BINARY,  // op, a, b
  EX_CHAIN,   // list = operands (n >= 3), ops = n-1 relations: 0 <= x < n
  EX_CALL,    // a = callee (EX_NAME or EX_MEMBER), args
  EX_PIPE,    // a = piped value, b = callee, args (b |> call)
  EX_INDEX,   // a = base, items
  EX_MEMBER,  // a . name
  EX_CAST,    // dtype(a); ival = 1 if written int(a)
  EX_IF,      // if a then b else c
  EX_TUPLE,   // list (n >= 2)
} ExprKind;

typedef enum BinOp {
  BO_ADD,
  BO_SUB,
  BO_MUL,
  BO_DIV,
  BO_FLOORDIV,
  BO_MOD,
  BO_MATMUL,
  BO_POW,
  BO_LT,
  BO_GT,
  BO_LE,
  BO_GE,
  BO_EQ,
  BO_NE,
  BO_AND,
  BO_OR,
} BinOp;
typedef enum UnOp { UO_NEG, UO_NOT } UnOp;
const char *fe_binop_text(BinOp op);  // "<="

typedef enum ArgKind {
  ARG_POS,     // expr
  ARG_NAMED,   // name = expr
  ARG_BINDER,  // name : expr       sum(k: e)
} ArgKind;
typedef struct Arg {
  ArgKind kind;
  Span span, name_span;
  const char *name;
  Expr *value;
} Arg;

typedef enum ItemKind {
  ITEM_EXPR,   // x[e]
  ITEM_SLICE,  // x[lo:hi], x[lo:], x[:hi], x[:]   (missing ends NULL)
} ItemKind;
typedef struct Item {  // in x[:, 1] of a *vector operand* a literal 1 adds an
  ItemKind kind;       // axis; the checker sets new_axis
  Span span;
  Expr *lo, *hi;  // ITEM_EXPR: lo
  bool new_axis;  // checker
  bool shifted;   // checker: t - 1 and the like in a step; reads 0
} Item;           // outside the sequence

// How a call argument reached a parameter (checker).
typedef struct Bound {
  Expr *value;   // argument or default; NULL if an index was bound
  Sym *index;    // index parameter bound to this index symbol, or NULL
  bool by_name;  // index parameter left out, bound by name from scope
} Bound;

struct Expr {
  ExprKind kind;
  Span span;
  uint32_t id;     // unique in the unit, dense from 0
  uint32_t depth;  // levels of the tree from here down, at most 256
  const char *name;
  int64_t ival;
  double fval;
  int op;       // BinOp or UnOp
  DType dtype;  // EX_CAST
  Expr *a, *b, *c;
  Vec(Expr *) list;
  Vec(BinOp) ops;
  Vec(Arg) args;
  Vec(Item) items;
  Span name_span;  // EX_MEMBER, EX_PIPE: the name itself

  // checker
  Ty ty;
  uint64_t vary;     // indices the value depends on, bit = Sym.index_id
  Sym *sym;          // EX_NAME, EX_MEMBER: what it names.
                     // EX_CALL, EX_PIPE: the callee
  Bound *bound;      // EX_CALL/EX_PIPE of a user function: one per
  uint32_t nbound;   // parameter, in order
  Dim *dims;         // with `bound`: symbol i of the callee's DimTab is
                     // dims[i] of the caller's
  Sym *binder;       // reductions and scans over an index: that index
  bool elementwise;  // max/min called with several arguments
};

// ---------------------------------------------------------------- statements
typedef enum StmtKind {
  ST_ERROR,
  ST_LET,     // names = expr    (n > 1: tuple destructuring)
  ST_INDEX,   // indices
  ST_RETURN,  // list
  ST_ASSUME,  // expr
  ST_ASSIGN,  // target [items] = expr      (output, or state)
  ST_STATE,   // names[0] : type = expr
  ST_STEP,    // step names[0] [in extent] [reverse] { body }
  ST_REPEAT,  // repeat names[0] in extent { body }
} StmtKind;

typedef struct NameRef {
  const char *name;
  Span span;
  Sym *sym;  // checker
} NameRef;

typedef struct IndexDecl {
  NameRef name;
  Expr *extent;
  Expr *domain;  // `where` predicate or NULL
} IndexDecl;

struct Stmt {
  StmtKind kind;
  Span span;
  Vec(NameRef) names;
  Vec(IndexDecl) indices;
  Vec(Expr *) list;
  NameRef target;
  Vec(Item) items;
  bool has_items;
  TypeExpr *type;
  Expr *expr;
  Expr *extent;  // ST_STEP (NULL if left out), ST_REPEAT
  bool reverse;
  Vec(Stmt *) body;
};

// ---------------------------------------------------------------- declarations
typedef enum DeclKind {
  DE_ERROR,
  DE_IMPORT,
  DE_LET,
  DE_FN,
  DE_MASK,
  DE_MOD,
  DE_ROW,
  DE_ATTENTION,
  DE_RECURRENT,
  DE_SCHEDULE,
  DE_CHECK,
} DeclKind;

typedef struct Attr {  // @name(args)
  Span span;
  const char *name;
  Vec(Arg) args;
} Attr;

typedef enum GenericKind {
  GEN_DYN,
  GEN_CONST,
  GEN_RAGGED,
  GEN_DTYPE
} GenericKind;
typedef struct Generic {  // D: const {64, 128}
  Span span;
  const char *name;
  GenericKind kind;
  bool has_range;  // `in lo .. hi`
  Expr *lo, *hi;
  Vec(Expr *) values;  // { .. }
  const char *by;      // ragged(by)
  Span by_span;
  Vec(DType) dtypes;
  Sym *sym;  // checker
} Generic;

typedef enum LayoutKind {
  LAY_STRIDED,
  LAY_ORDER,
  LAY_PAGED,
  LAY_RAGGED,
} LayoutKind;
typedef struct Layout {
  LayoutKind kind;
  Span span;
  Vec(NameRef) order;  // layout(b, s, h, d)
  Vec(Arg) args;       // paged(table = t, page = 64), ragged(S, by=c)
  // checker
  Sym *table;              // LAY_PAGED: page table parameter
  Dim page;                // LAY_PAGED: keys a page, of const dims
  Sym *by;                 // LAY_RAGGED: offsets (B + 1) or lengths (B)
  int axis;                // ragged or paged axis of the declared shape
  int batch_axis;          // axis the physical array drops / renames
  uint8_t perm[MAX_RANK];  // LAY_ORDER: declared axis of physical axis i
} Layout;

typedef enum ParamQual { PQ_NONE, PQ_NOGRAD, PQ_INOUT } ParamQual;
typedef struct Param {
  Span span;
  ParamQual qual;
  const char *name;
  Span name_span;
  TypeExpr *type;  // NULL: an index parameter
  Expr *deflt;
  Layout *layout;  // NULL: strided
  Sym *sym;        // checker
} Param;

typedef struct Setting {  // key = value in a schedule block
  Span span;
  const char *name;
  Expr *value;
} Setting;

typedef enum CheckKind { CK_DIMS, CK_INPUT, CK_EXPECT, CK_LET } CheckKind;
typedef struct CheckStmt {
  CheckKind kind;
  Span span;
  Vec(NameRef) names;      // dims (parallel to exprs), inputs, let
  Vec(Expr *) exprs;       // CK_DIMS values; CK_INPUT, CK_LET: one
  Expr *got, *want, *tol;  // CK_EXPECT
} CheckStmt;

// A program that pass grad makes of another, its gradient or itself with
// outputs more; or that pass jvp makes, its derivative in a direction.
typedef struct Derived {
  Decl *of;
  const char *inputs;  // "Q,K" whose gradients, tangents; "": of all floats
  bool gradient;
  bool tangent;
  bool declared;  // it has the parameters of what is made
} Derived;

// In a function: an index that may pass the end of an axis, as far as dims
// tell. A call knows more.
typedef struct ExtentNeed {
  Span span;
  const char *index, *tensor;
  Dim extent, axis;  // of the function
} ExtentNeed;

struct Decl {
  DeclKind kind;
  Span span;
  const char *name;
  Span name_span;
  const char *doc;  // `##` lines before it, or NULL
  Vec(Attr) attrs;
  Vec(Generic) generics;
  Vec(Param) params, outs;  // outs: attention and recurrent
  Vec(TypeExpr *) ret;      // fn, row: written result types (may be empty)
  Vec(Expr *) where;
  Expr *value;       // `= expr;` bodies, DE_LET
  Vec(Stmt *) body;  // `{ .. }` bodies
  bool has_body;     // braces were written
  // DE_IMPORT
  Vec(NameRef) path;   // std . rows
  Vec(NameRef) names;  // { softmax, causal }
  NameRef alias;       // as rows
  Unit *imported;      // checker
  // DE_SCHEDULE (path = program), DE_CHECK (name = title)
  const char *target;  // schedule ... for "sm_90a"
  Vec(Setting) settings;
  Vec(CheckStmt) checks;

  // checker
  Unit *unit;  // the unit it stands in
  Sym *sym;
  DimTab *dims;           // dims of this declaration's generics
  Vec(Sym *) indices;     // index symbols in order, bit = index_id
  Sym *key;               // row functions: the implicit key index
  Vec(Ty) results;        // result types of fn, row, mod, mask
  Vec(ExtentNeed) needs;  // checker, of functions: tested at each call
  bool checked, failed;

  // driver
  const Derived *derived;  // made of another program; NULL: as written
};

// ---------------------------------------------------------------- symbols
typedef enum SymKind {
  SY_DIM,      // dim generic or implicitly generic dim: `dim`
  SY_DTYPE,    // dtype generic
  SY_PARAM,    // parameter of a program or function
  SY_OUT,      // output of a program
  SY_INDEX,    // index variable, index parameter, `vec` index, step, repeat
  SY_LET,      // let in a body or at top level
  SY_STATE,    // recurrent state
  SY_DECL,     // fn, mask, mod, row, attention, recurrent
  SY_BUILTIN,  // builtin function: `builtin`
  SY_UNIT,     // import alias
} SymKind;

typedef enum IndexRole {
  IX_PARALLEL,  // appears in an output
  IX_KEY,       // reduced
  IX_VEC,       // used by vec(d: e) and sum(d: e) over a vector axis
  IX_STEP,      // `t` of a step
  IX_REPEAT,
  IX_PARAM,  // index parameter of mask, mod, fn
} IndexRole;

struct Sym {
  SymKind kind;
  const char *name;
  Span span;    // where declared
  Decl *owner;  // enclosing declaration
  Ty ty;
  uint64_t vary;      // SY_LET: indices its value depends on
  Dim dim;            // SY_DIM: its dim; SY_INDEX: its extent;
                      // SY_LET: the dim it names, or DIM_NONE
  uint32_t param;     // SY_PARAM, SY_OUT: position
  IndexRole role;     // SY_INDEX
  uint32_t index_id;  // SY_INDEX: bit in Expr.vary (< 64)
  Expr *domain;       // SY_INDEX: `where` predicate or NULL
  Expr *value;        // SY_LET, SY_STATE (initial value)
  uint32_t tuple_at;  // SY_LET from `let (a, b) =`: which element
  bool is_tuple;      // SY_LET: value is a tuple, take tuple_at
  Decl *decl;         // SY_DECL
  Unit *unit;         // SY_UNIT
  int builtin;        // SY_BUILTIN: row of builtins.def
  uint32_t nuses;     // references found
  uint32_t facts;     // SY_LET, SY_DECL: private to the checker
};

// ---------------------------------------------------------------- files
typedef enum TriviaKind { TR_COMMENT, TR_BLANK } TriviaKind;
typedef struct Trivia {  // kept for the formatter and doc comments
  TriviaKind kind;
  Span span;
} Trivia;

struct Unit {
  Source *source;
  Vec(Decl *) decls;
  Vec(Trivia) trivia;  // in source order
  uint32_t nexprs;     // Expr.id bound
  bool syntax_ok;
  bool checking, checked;  // import cycle detection
};

#endif
