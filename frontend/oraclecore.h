// Private to the oracle (oracle.c, oracleeval.c, oraclecall.c, oracledual.c,
// oraclenoise.c).
#ifndef ATTNC_FRONTEND_ORACLECORE_H
#define ATTNC_FRONTEND_ORACLECORE_H

#include "frontend/check.h"
#include "frontend/oracle.h"

// A number or a dense array of them, row-major. With them, where tangents are
// asked for, the derivatives of each in the directions of the walk:
// Oracle.lanes numbers. NULL, of one or of all: zero. Most are: a direction is
// often one element of an input.
typedef struct Val {
  uint32_t rank;
  int64_t shape[MAX_RANK];
  int64_t n;
  double *at, **dx;
} Val;

// An element of one.
typedef struct At {
  const Val *v;
  int64_t i;
} At;

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
  uint32_t lanes;                 // directions of this walk, 0: values only
  const uint64_t *seeds;          // the seed of each
  uint64_t seeded[ORACLE_LANES];  // its argument and element (oracle_seed)
  int64_t place[ORACLE_LANES];    // that element
  bool along;                     // one at least is a direction
  const OracleSlopes *dual;
  bool share_ties;   // @ties(all)
  uint64_t rounded;  // numbers that were
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
// Element of a tensor parameter of the program by logical coordinates, to
// element i of r.
void oracle_read(Oracle *o, const Sym *param, const int64_t *at, Span span,
                 Val *r, int64_t i);
// n neighbours along its last axis: how many it has read, all or none; where
// one is out of range and where its layout has them apart, none.
int64_t oracle_read_line(Oracle *o, const Sym *param, const int64_t *at,
                         int64_t n, Val *r, int64_t i);
bool oracle_place(Oracle *o, const Param *p, const OracleArg *a,
                  const int64_t *at, int64_t *off);
uint64_t oracle_key(const Frame *f, const void *node, uint64_t vary);
Frame *oracle_frame(Oracle *o, const Decl *d, Frame *caller, const Expr *call);
// Calls visit at the points, or at all if they are NULL, until one fails.
typedef void (*OracleVisit)(Oracle *, const int64_t *dims,
                            const int64_t *coord);
bool oracle_walk(Oracle *o, const int64_t *dims, const OraclePoints *points,
                 OracleVisit visit);
// Evaluates everything at one point of the parallel indices.
void oracle_point(Oracle *o, const int64_t *dims, const int64_t *coord);
Frame *oracle_at(Oracle *o, const int64_t *dims, const int64_t *coord);
bool oracle_inside(Oracle *o, Frame *f);  // of the domains of its indices

// --- tangents (oracledual.c); nothing where there are no lanes
// Adds slope times the tangents of x at xi to those of r at ri.
void oracle_flow(Oracle *o, Val *r, int64_t ri, const Val *x, int64_t xi,
                 double slope);
// Those of all x go to r from ri on.
void oracle_carry(Oracle *o, Val *r, int64_t ri, const Val *x);
// r[i] is op of a and b.
void oracle_flow_of2(Oracle *o, int op, Val *r, int64_t i, At a, At b);
static inline void oracle_flow2(Oracle *o, int op, Val *r, int64_t i, At a,
                                At b) {
  bool flows = (a.v->dx && a.v->dx[a.i]) || (b.v->dx && b.v->dx[b.i]);
  bool new = !r->dx && (a.v->dx || b.v->dx);
  if (flows || new) oracle_flow_of2(o, op, r, i, a, b);
}
// r is the largest or least of the n values x.
void oracle_flow_most(Oracle *o, Val *r, Val *const *x, int64_t n);
// r[i] is x or y, the larger or the less.
void oracle_flow_either(Oracle *o, Val *r, int64_t i, At x, At y);
// Elements of an argument: `first`, and n - 1 behind it, each `step` further.
typedef struct Line {
  uint32_t arg;
  int64_t first, step, n;
} Line;
// They were read to r[i] and what is behind it.
void oracle_seed(Oracle *o, Line from, Val *r, int64_t i);
// Element `off` of an output receives v[i].
void oracle_weigh(Oracle *o, uint32_t arg, int64_t off, const Val *v,
                  int64_t i);
double oracle_slope(int builtin, double x);

// --- roundings, as OracleSlopes.rounding says (oraclenoise.c)
double oracle_round(Oracle *o, double x);
// Those of v, which was just made for e.
void oracle_round_made(Oracle *o, const Expr *e, Val *v);

#endif
