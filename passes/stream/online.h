// Private to the online pass: what its parts share. online.c finds the
// reductions, online_plan.c separates them and groups them into passes,
// online_first.c knows the first key that has a maximum, online_fill.c proves
// gauges and fill values, online_emit.c writes stream IR.
#ifndef ATTNC_PASSES_STREAM_ONLINE_H
#define ATTNC_PASSES_STREAM_ONLINE_H

#include "passes/support/probe.h"
#include "passes/support/range.h"
#include "passes/support/sym.h"

// One accumulator of a pass.
typedef struct Acc {
  RKind kind;
  Ex local;       // per-key term; for a dot its first factor
  Ex other;       // second factor of a dot, or 0
  Ex rolling;     // the frame in which it is carried, 1 if none
  const Op *src;  // the reduction it first came from; NULL: any, scan
  bool scan;      // carries the running total of a scan
  bool gauge;
  bool guarded;  // needs its own select on the domain
  uint32_t of;   // 1 + the maximum whose first coordinate it is, or 0
} Acc;

// sum_i accumulator_i * late_i is one reduction's value.
typedef struct Term {
  uint32_t acc;  // in the group
  Ex late;       // late division: a factor; for max and min see Red.plus
} Term;

typedef struct Group Group;
typedef struct Red Red;

// A scan that a pass computes, and its accumulator.
typedef struct ScanIn {
  Red *red;
  uint32_t acc;
} ScanIn;

// A store of what a sum has in front of each block of keys.
typedef struct FrontIn {
  const Op *store;
  uint32_t acc;
} FrontIn;

// A reduction or scan over one key axis.
struct Red {
  Op *op;
  Value res;
  uint32_t axis;
  uint64_t outer;  // other key axes in its type: it is nested in them
  RKind kind;
  bool scan, dot;
  uint32_t level;
  Group *group;  // NULL for scans
  Vec(Term) terms;
  Ex plus;  // max, min: added to the accumulator, or 0
  Red *of;  // the maximum of which it is the first coordinate, or NULL
  Ex why;   // what did not separate from earlier reductions, or 0
  uint32_t why_level;
  Value final;  // its value after the pass
};

// The reductions of one pass.
struct Group {
  uint32_t axis, level;
  uint64_t outer;
  Vec(Red *) reds;
  Vec(Acc) accs;
  Vec(ScanIn) scans;
  Vec(FrontIn) fronts;
  int some;   // index of the `any` accumulator, or -1
  int order;  // PassOrder
  FillKind fill;
  Vec(Value) scores;
  Op *pass;
};

typedef struct Online {
  Ctx *cx;
  Arena *arena;
  Func *f;
  Region *region;
  Sym sym;
  Ranges ranges;
  Vec(Red *) reds;  // in program order
  Map by_value;     // result of a reduction -> Red *
  Vec(Group *) groups;
  Map origin;   // Ex -> Value it was made from
  Map some;     // axis | outer << 8 -> bool value: domain not empty
  Map inverse;  // Value -> its guarded inverse
  Map shown;    // Value without a name -> the letter it has in remarks
  bool frames;  // pass row_scale may follow
  Builder b;    // writes at the end of the region, before its end op
  bool failed;
} Online;

Red *online_red(const Online *o, Value v);
// The conjunction of the predicates that restrict the axis; n = 0: none.
uint32_t online_domain(const Online *o, uint32_t axis, Value *out,
                       uint32_t max);
// Every row sees a key of the axis: the one with its own coordinate.
bool online_own_key(const Online *o, uint32_t axis);
void online_fail(Online *o, const Op *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// online_plan.c: levels, terms and groups of all reductions.
bool online_plan(Online *o);
// online_first.c: the extreme whose first coordinate r is, and the coordinate;
// the term and the factor of such an accumulator.
Red *online_first_of(const Online *o, const Red *r, Value *at);
Value online_first_term(Builder *b, Value x, Value extreme, Value at);
Value online_first_factor(Builder *b, Value old, Value now);
// online_fill.c: gauges, scores, fill and guards of a group.
void online_gauges(Online *o);
void online_fill(Online *o, Group *g);
// online_emit.c: adds an accumulator that tells an empty domain, if needed;
// writes the pass of a group and its finalization.
void online_add_some(Online *o, Group *g);
bool online_emit(Online *o, Group *g);
// online_remark.c: what was decided for a group, in the program's words.
void online_remark(Online *o, const Group *g, uint32_t number);
// Expands what is left of divk, guarded by the emptiness of the domain.
void online_lower_divk(Online *o);

#endif
