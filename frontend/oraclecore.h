// Private to the oracle (oracle.c, oracleeval.c, oraclecall.c).
#ifndef ATTNC_FRONTEND_ORACLECORE_H
#define ATTNC_FRONTEND_ORACLECORE_H

#include "frontend/check.h"
#include "frontend/oracle.h"

// A number or a dense array of them, row-major.
typedef struct Val {
  uint32_t rank;
  int64_t shape[MAX_RANK];
  int64_t n;
  double *at;
} Val;

typedef struct Oracle Oracle;

// One activation of a program or function.
typedef struct Frame {
  const Decl *d;
  struct Frame *caller;  // NULL: the program
  const Expr *call;      // in the caller
  int64_t *dims;         // per symbol of d->dims
  int64_t *idx;          // coordinate per index of d
  Val *state;            // recurrent: per state, by Sym.index_id of its slot
  Map memo;              // (node, coordinates) -> Val *, Frame * or Keys *
} Frame;

// The keys of a domain at a point, ascending.
typedef struct Keys {
  int64_t n;
  int64_t *at;
} Keys;

struct Oracle {
  Ctx *cx;
  Arena arena;      // of the point being evaluated
  OracleArg *args;  // of the program
  const Decl *prog;
  Map states;  // SY_STATE symbol -> Val *
  bool failed;
  uint32_t depth;
};

Val *oracle_scalar(Oracle *o, double v);
// After an error: a value of e's rank with one element, NaN.
Val *oracle_nothing(Oracle *o, const Expr *e);
Val *oracle_array(Oracle *o, uint32_t rank, const int64_t *shape);
double oracle_num(const Val *v);
// e at the frame's coordinates. Never NULL; after a failure anything.
Val *oracle_eval(Oracle *o, Frame *f, const Expr *e);
// Result `which` of a call of a user function.
Val *oracle_call(Oracle *o, Frame *f, const Expr *e, uint32_t which);
Val *oracle_param(Oracle *o, Frame *f, const Sym *s);
Val *oracle_let(Oracle *o, Frame *f, const Sym *s);
int64_t oracle_dim(Oracle *o, Frame *f, Dim d, const Sym *batch);
const Keys *oracle_keys(Oracle *o, Frame *f, const Sym *index);
// Element of a tensor parameter of the program by logical coordinates.
double oracle_read(Oracle *o, Frame *f, const Sym *param, const int64_t *at,
                   Span span);
bool oracle_place(Oracle *o, const Param *p, const OracleArg *a,
                  const int64_t *at, int64_t *off);
uint64_t oracle_key(const Frame *f, const void *node, uint64_t vary);
Frame *oracle_frame(Oracle *o, const Decl *d, Frame *caller, const Expr *call);

#endif
