// Private to pass canon. Files: canon.c (the pass, constants, casts),
// canon_rule.c (rules.def), canon_int.c (integers, comparisons), canon_limit.c
// (comparisons of quotients), canon_sum.c (reductions and dots), canon_axes.c
// (axes that sums have of their own).
#ifndef ATTNC_PASSES_ATTN_CANON_H
#define ATTNC_PASSES_ATTN_CANON_H

#include "ir/deps.h"
#include "passes/pass.h"

typedef struct Pattern Pattern;
struct Pattern {
  enum { PAT_ANY, PAT_CONST, PAT_NUM, PAT_BOOL, PAT_OP } kind;
  char letter;  // ANY, CONST
  double num;   // NUM, BOOL
  OpCode op;    // OP
  uint32_t n;
  Pattern *kid[3];
  uint32_t turn;  // bit of a commutative op in the order mask
};

typedef struct Rule {
  Pattern *from, *to;
  char type;       // class of the pattern's first letter
  bool real;       // constants must stay finite and nonzero
  uint32_t turns;  // commutative ops in the pattern
} Rule;

typedef struct Canon {
  Ctx *cx;
  Module *m;
  Func *f;
  Builder *b;
  Vec(Rule) rules;
  Map known;  // hash of an op -> its result
  DomainAxes domains;
} Canon;

// The value of an op, simplified: an existing value or new ops.
Value canon_make(Canon *c, OpCode op, const Value *args, uint32_t n,
                 const IrAttr *attrs, uint32_t nattrs);
Value canon_1(Canon *c, OpCode op, Value x);
Value canon_2(Canon *c, OpCode op, Value x, Value y);
// An op that is to be: the fields of one.
typedef struct CanonOp {
  OpCode code;
  const Value *args;
  uint32_t nargs;
  const IrAttr *attrs;
  uint32_t nattrs;
  const Type *type;  // of GIVEN ops
} CanonOp;

// The op as it is, or an equal one from before.
Value canon_emit(Canon *c, CanonOp op);
Value canon_num(Canon *c, DType t, double v);  // any dtype
Value canon_int(Canon *c, int64_t v);
Value canon_bool(Canon *c, bool v);
Value canon_cast(Canon *c, Value x, DType t);
// x as the first operand of a reduction over that axis.
Value canon_spread(Canon *c, Value x, uint32_t axis);
bool canon_exact(DType from, DType to);  // every value survives the cast
bool canon_attr_same(const IrAttr *a, const IrAttr *b);
const IrAttr *canon_attr(const IrAttr *attrs, uint32_t n, AttrId id);

// A sum of integers: c1*v1 + .. + dim.
enum { MAX_TERMS = 8 };

typedef struct CanonTerm {
  Value v;
  int64_t c;
} CanonTerm;

typedef struct CanonLin {
  Dim dim;  // symbolic and constant part
  uint32_t n;
  CanonTerm t[MAX_TERMS];
} CanonLin;

// x - y, or x where y is 0; false if it is no such sum.
bool canon_lin(const Canon *c, Value x, Value y, CanonLin *out);
Value canon_lin_value(Canon *c, const CanonLin *l);
// What an integer can be, INT64_MIN and INT64_MAX where nothing is known.
void canon_bounds(const Canon *c, Value v, int64_t *lo, int64_t *hi);

// Each returns 0 where it has nothing to say.
bool canon_load_rules(Canon *c);
Value canon_rule(Canon *c, OpCode op, const Value *args, uint32_t n);
Value canon_integer(Canon *c, OpCode op, const Value *args, uint32_t n);
Value canon_limits(Canon *c, OpCode op, const Value *args);
Value canon_reduce(Canon *c, Value x, const IrAttr *attrs, uint32_t n);
Value canon_dot(Canon *c, const Value *args, const IrAttr *attrs, uint32_t n);

// Behind all that: sums of the function take axes that others have.
void canon_axes(Canon *c);

#endif
