// Symbolic dimensions: interned affine/floordiv/mod/min/max expressions over
// dim symbols. Two dims of one table are equal iff their ids are equal.
#ifndef ATTNC_IR_CORE_DIM_H
#define ATTNC_IR_CORE_DIM_H

#include "ir/core/buf.h"
#include "ir/core/map.h"
#include "ir/core/vec.h"
#include <stdbool.h>

typedef uint32_t Dim;  // id in a DimTab; 0 is "none"
#define DIM_NONE 0u
#define DIM_UNBOUNDED ((int64_t)1 << 48)  // longest axis allowed

typedef enum DimOp {
  DIM_CONST,     // value
  DIM_SYM,       // symbol index
  DIM_ADD,       // a + b
  DIM_MUL,       // a * b
  DIM_FLOORDIV,  // floor(a / b), b > 0
  DIM_MOD,       // a - b * floor(a / b), b > 0
  DIM_MIN,
  DIM_MAX,
} DimOp;

typedef enum DimKind {
  DIM_DYN,     // known at run time
  DIM_SPEC,    // `const`: one compiled specialization per value
  DIM_RAGGED,  // per batch entry; `by` names the tensor that holds it
} DimKind;

typedef struct DimSym {
  const char *name;
  DimKind kind;
  int64_t lo, hi;       // inclusive bounds, default [0, DIM_UNBOUNDED]
  int64_t divisor;      // value % divisor == 0; default 1
  Vec(int64_t) values;  // DIM_SPEC: those compiled if none is asked for, sorted
  bool open;            // others of lo .. hi may be asked for
  const char *by;       // DIM_RAGGED: parameter with lengths or offsets
} DimSym;

typedef struct DimExpr {
  DimOp op;
  int64_t value;  // DIM_CONST; DIM_SYM: symbol index; ADD, MUL: 1 if
                  // kept as written (a coefficient would overflow)
  Dim a, b;
} DimExpr;

// A name that a text gives an expression; the expressions do not know it.
typedef struct DimName {
  const char *name;
  Dim d;
} DimName;

typedef struct DimTab {
  Arena *arena;
  Vec(DimSym) syms;
  Vec(DimName) names;  // of the text that was read
  Vec(DimExpr) exprs;  // [0] is DIM_NONE
  Map index;           // hash of an expression -> id
} DimTab;

void dim_init(DimTab *t, Arena *a);
// The symbol of that name, added with default bounds if new. Set its facts
// before building expressions of it: they are used to simplify.
uint32_t dim_add_sym(DimTab *t, const char *name, DimKind kind);
bool dim_find_sym(const DimTab *t, const char *name, uint32_t *sym);
// May the symbol have this value?
bool dim_takes(const DimSym *s, int64_t v);
// Is `all` the length of all sequences of a ragged dim, one behind the other,
// by the name that the front end gives it?
bool dim_is_total(const DimSym *all, const DimSym *ragged);
// DIM_NONE beyond 2^62, and so is what is made of DIM_NONE.
Dim dim_const(DimTab *t, int64_t v);
Dim dim_sym(DimTab *t, uint32_t sym);
// Simplifying constructor: sums and products are kept in one canonical order,
// constants folded, a - a = 0, (a * c) // c = a and a % c by divisors.
Dim dim_bin(DimTab *t, DimOp op, Dim a, Dim b);
Dim dim_sub(DimTab *t, Dim a, Dim b);
Dim dim_ceildiv(DimTab *t, Dim a, int64_t b);

// floor(a / b), b > 0: what DIM_FLOORDIV says of numbers.
static inline int64_t dim_floordiv(int64_t a, int64_t b) {
  return a / b - (a % b < 0);
}

bool dim_is_const(const DimTab *t, Dim d, int64_t *v);
void dim_bounds(const DimTab *t, Dim d, int64_t *lo, int64_t *hi);
// Largest known divisor of d (>= 1).
int64_t dim_divisor(const DimTab *t, Dim d);
// Value of d; sym[i] is the value of symbol i. Checked: false on overflow or
// division by zero.
bool dim_eval(const DimTab *t, Dim d, const int64_t *sym, int64_t *v);
// d with symbols replaced: map[i] is a dim of `to`, or DIM_NONE to keep the
// symbol (added to `to` by name with its facts).
Dim dim_subst(const DimTab *from, DimTab *to, Dim d, const Dim *map);
// True if d contains the symbol.
bool dim_uses(const DimTab *t, Dim d, uint32_t sym);
// Is it known when a specialization is compiled: a number, made of const dims?
bool dim_is_fixed(const DimTab *t, Dim d);
// "Sk - Sq + 1", minimal parentheses; reads back with dim_parse.
void dim_print(const DimTab *t, Dim d, Buf *out);
// Parses a dim expression at *p (advanced). Unknown names become symbols if
// `add`. DIM_NONE on a syntax error.
Dim dim_parse(DimTab *t, const char **p, bool add);
// The expression that dim_parse reads for a name beside the symbols'; DIM_NONE.
Dim dim_find_name(const DimTab *t, const char *name);
void dim_add_name(DimTab *t, const char *name, Dim d);

// Names for the long expressions of a text. First all that the text has is
// given to dim_print_named, which counts it and writes nothing; then
// dim_names_choose; then the text is written. All in `arena`.
typedef struct DimNames {
  Arena *arena;
  bool counts;        // as said
  uint32_t *uses;     // by Dim
  const char **name;  // by Dim; NULL: it is written in full
  const char **hint;  // by Dim: the axis whose extent it is, or NULL
  Vec(Dim) seen;      // in the order of the text, parts before the whole
} DimNames;

void dim_names_init(DimNames *n, const DimTab *t, Arena *a);
void dim_names_choose(DimNames *n, const DimTab *t);
// "dim parts = max(1, Sk // 512)" for each, in an order that can be read.
void dim_names_print(DimNames *n, const DimTab *t, Buf *out);
void dim_print_named(const DimTab *t, DimNames *names, Dim d, Buf *out);

#endif
