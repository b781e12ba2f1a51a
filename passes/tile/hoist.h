// What chunks of a recurrence have that does not depend on the state: shared by
// outline_chunks.c (the phase that finds it) and hoist_join.c (recurrences that
// have the same phase).
#ifndef ATTNC_PASSES_TILE_HOIST_H
#define ATTNC_PASSES_TILE_HOIST_H

#include "ir/target.h"
#include "passes/pass.h"

enum { MAX_CUTS = 16, MAX_MAP = 5, MAX_USERS = 8 };

// A value that is handed over.
typedef struct Cut {
  Value v;
  Op *def;
  uint32_t parts;  // of an operand of f32 that is handed over in parts, or 1
  Value tensor[HW_F32_PARTS],
      there[HW_F32_PARTS];  // the workspace in both functions
  int same;                 // number of the cut of `first`, or -1
  const struct Cut *by;     // that of a recurrence that has joined, by the
                            // chunk's place in memory, or NULL
} Cut;

typedef struct Hoist {
  Ctx *cx;
  Module *m;
  const Target *target;
  Func *f, *g;
  Func *reads;  // a phase of what needs no inverse, or NULL
  bool apart;   // that has all such, of those that have joined too
  Op *loop;
  int lane;
  int64_t chunk;
  uint32_t axis;  // of the steps
  bool *late;     // by value: depends on the state or on the lane
  Cut cut[MAX_CUTS];
  uint32_t ncuts;
  uint32_t npar, par[MAX_AXES];
  const struct Hoist *first;  // of a phase: that of what it is a phase of
  bool joined;                // has another recurrence's phase
  const uint32_t *axes;       // those of f in that phase, or NULL: as they are
} Hoist;

// A phase being made of what f has.
typedef struct HoistCopy {
  Hoist *a;
  ValueMap map;
  Value c0;
} HoistCopy;

// The grid of a phase g: where its chunk begins.
Value tile_hoist_phase(Hoist *a, Func *g);
HoistCopy tile_hoist_copy(Hoist *a, Func *g, Value c0);
// v in the phase: what it is made of is copied too.
Value tile_hoist_copied(HoistCopy *c, Builder *b, Value v);

// Does b, another recurrence over the same steps, have the same triangular
// inverse in each of its chunks? It joins a's phase then.
bool tile_hoist_join(Hoist *a, Hoist *b);
// Does it walk against the order of the steps, as cotangents do?
bool tile_hoist_backward(const Hoist *a);
// Are x of a and y of b, which has joined, the same in each chunk?
bool tile_hoist_same(Hoist *a, Hoist *b, Value x, Value y);
// Where a chunk begins in memory.
Value tile_hoist_position(const Hoist *a);
// The only inverse that a chunk has, or NULL.
Op *tile_hoist_inverse(const Hoist *a);
// The chunk and the inverse of c, which has joined, are those of a.
void tile_hoist_join_copy(HoistCopy *a, Builder *b, HoistCopy *c);

#endif
