// Symbolic expressions over IR values: the algebra of the online derivation.
//
// Nodes are hash-consed (equal expressions have equal ids), sums and products
// are flat, sorted and folded when made. Everything lives in sym->arena.
#ifndef ATTNC_PASSES_SUPPORT_SYM_H
#define ATTNC_PASSES_SUPPORT_SYM_H

#include "ir/ir.h"

typedef uint32_t Ex;  // id in Sym.nodes; 0 = none

typedef enum ExKind {
  EX_CONST,  // c
  EX_LEAF,   // an IR value; code = LeafTag
  EX_ADD,    // kids, at most one constant (last)
  EX_MUL,    // kids, at most one constant (first)
  EX_POW,    // kid ** c
  EX_EXP,    // e ** kid
  EX_CAST,   // code = DType, float to float
  EX_OP,     // elementwise op without attributes; code = OpCode
} ExKind;

typedef enum LeafTag {
  LEAF_KEY,     // varies with the key
  LEAF_ROW,     // does not vary with the key, final
  LEAF_LIVE,    // row value that still moves in this pass
  LEAF_OLD,     // the same before this tile
  LEAF_OPAQUE,  // row value made of live ones by an op we do not look into
  LEAF_MIXED,   // per-key value made of live ones by such an op
} LeafTag;

enum {
  EF_X = 1 << 0,    // contains KEY, ROW or MIXED leaves
  EF_KEY = 1 << 1,  // contains KEY or MIXED leaves
  EF_D = 1 << 2,    // contains live row values
  EF_EXP = 1 << 3,  // contains an exponential
  EF_POS = 1 << 4,  // known to be >= 0
  EF_OPAQUE = 1 << 5,
};

typedef struct ExNode {
  uint8_t kind, flags;
  uint16_t code;
  uint32_t n;
  Value leaf;
  uint32_t size;  // nodes of the tree that it stands for, saturating
  double c;
  const Ex *kid;
} ExNode;

typedef struct Sym {
  Arena *arena;
  Vec(ExNode) nodes;  // [0] unused
  Map index;          // hash -> id
} Sym;

void sym_init(Sym *s, Arena *a);
static inline const ExNode *sym_at(const Sym *s, Ex e) {
  return &s->nodes.at[e];
}

Ex sym_const(Sym *s, double v);
Ex sym_leaf(Sym *s, LeafTag tag, Value v, bool nonneg);
Ex sym_add(Sym *s, const Ex *e, uint32_t n);
Ex sym_mul(Sym *s, const Ex *e, uint32_t n);
Ex sym_add2(Sym *s, Ex a, Ex b);
Ex sym_mul2(Sym *s, Ex a, Ex b);
Ex sym_sub(Sym *s, Ex a, Ex b);
Ex sym_neg(Sym *s, Ex a);
Ex sym_scale(Sym *s, double c, Ex a);
Ex sym_pow(Sym *s, Ex a, double p);
Ex sym_exp(Sym *s, Ex a);
Ex sym_log(Sym *s, Ex a);
Ex sym_cast(Sym *s, DType t, Ex a);
Ex sym_op(Sym *s, OpCode code, const Ex *e, uint32_t n);

bool sym_is_const(const Sym *s, Ex e, double v);
bool sym_has(const Sym *s, Ex e, unsigned flags);
// The constant factor of a product, 1 if none.
double sym_coef(const Sym *s, Ex e);
// e / its constant factor.
Ex sym_uncoef(Sym *s, Ex e);
// e with every live leaf marked as old.
Ex sym_old(Sym *s, Ex e);

// Value of e at the leaves given by fn.
typedef double SymLeafFn(void *data, const ExNode *leaf);
double sym_eval(const Sym *s, Ex e, SymLeafFn *fn, void *data);
// "exp(s - m)"; leaves by their name, "%12" where that is NULL.
typedef struct SymNames {
  const char *(*name)(void *data, Value v);
  void *data;
} SymNames;
void sym_print(const Sym *s, const SymNames *f, Ex e, Buf *out);

// Value of an elementwise op in doubles; bools are 0 and 1. False for ops that
// are not elementwise.
bool sym_num_op(OpCode code, const double *a, double *out);

// ------------------------------------------------------- separation (sep.c)
// F = sum of g * h: no live row values in g, nothing per key in h.
typedef struct SepTerm {
  Ex g, h;
} SepTerm;

typedef struct Sep {
  bool ok;
  Ex why;  // !ok: the part that does not separate
  uint32_t n;
  SepTerm *at;
} Sep;

enum { SEP_MAX = 16 };  // more terms than any rank limit: gives up

Sep sep_of(Sym *s, Ex f);
bool sep_nonneg(const Sym *s, Ex e);
// h = rolling (exponentials) * late (the rest: late division).
void sep_split(Sym *s, Ex h, Ex *rolling, Ex *late);
// g * h written so that no part of it overflows where the whole does not.
Ex sep_fuse(Sym *s, Ex g, Ex h);
// g = inner * outer, outer a product of constants and row values.
void sep_strip(Sym *s, Ex g, Ex *inner, Ex *outer);

#endif
