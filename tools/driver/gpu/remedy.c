// What is tried for a kernel in which ptxas spills registers, or whose products
// it makes synchronous. A kernel has COST_PTXAS_RUNS runs of ptxas, so each try
// is the one that most often left nothing where the runs before left so much
// (docs/lab/2026-11-registers.md, "Three runs"): other code of the kernel
// (passes/support/relief.h), which frees registers by what it makes again or
// leaves in shared memory, another of ptxas's levels of register usage, or less
// registers, which keeps it from loading ahead. What no row helps gets smaller
// tiles (fit.c), and what has none the rows of LAST.
//   chunks     100 bytes     lean code at level 3
//                8 bytes     operands wait in shared memory
#include "ir/layout.h"
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"

// Kernels by what they loop over.
enum {
  ROLES = 1,  // no steps; threads that load keys, and threads that compute
  ALONE = 2,  // no steps; all threads do all
  KEYS = ROLES | ALONE,
  CHUNKS = ALONE << 1,  // steps, many at a time by products
  STEPS = CHUNKS << 1,  // one at a time, or none, and several CTAs share a
                        // multiprocessor
  LAST = STEPS << 1,    // loops over keys that have no smaller tiles
  ADDS = LAST << 1,     // that add to memory: two kernels are in their place
};

// What ptxas's lower level did of code that it has also seen at its own. IDLE:
// it has not made what is best.
typedef enum Lower { ANY, BETTER, WORSE, IDLE } Lower;

typedef struct Remedy {
  int kinds;
  uint32_t runs;         // had
  uint64_t least, most;  // flaws of the best of them
  Lower lower;
  int64_t relief;
  uint32_t level, registers;
} Remedy;

// ptxas's own level of register usage, and others; the relief of the best try;
// registers of a thread where it may have 255: ptxas then moves less ahead of
// where it is needed.
enum {
  OWN = 0,
  LOW = COST_PTXAS_LOWER,
  HIGH = COST_PTXAS_HIGHER,
  CAP = COST_PTXAS_CAP,
  BEST = -1,
};

// The first that holds, and is not known, is tried.
static const Remedy remedies[] = {
    {ALONE, 1, 1, 128, ANY, RELIEF_NONE, LOW, 0},
    {ROLES, 1, 1, 96, ANY, RELIEF_NONE, LOW, 0},
    {ADDS, 1, 97, 512, ANY, RELIEF_NONE, LOW, 0},
    {LAST, 1, 1, 256, ANY, RELIEF_NONE, LOW, 0},
    {KEYS, 1, 1, 256, ANY, RELIEF_NONE, OWN, 0},
    {LAST, 1, 257, UINT64_MAX, ANY, RELIEF_FREE, OWN, 0},
    {LAST, 2, 1, 64, ANY, BEST, OWN, CAP},
    {KEYS, 2, 1, UINT64_MAX, BETTER, RELIEF_REMAT, LOW, 0},
    {LAST, 2, 1, 64, WORSE, RELIEF_NONE, HIGH, 0},
    {KEYS, 2, 1, 256, ANY, RELIEF_REMAT, OWN, 0},
    {LAST, 2, 65, 256, ANY, BEST, OWN, CAP},
    {ROLES, 2, 1, 256, BETTER, RELIEF_FREE, OWN, 0},
    {LAST, 2, 1, 256, ANY, RELIEF_FREE, OWN, 0},
    {CHUNKS, 1, 1, 47, ANY, RELIEF_REMAT, OWN, 0},
    {CHUNKS, 1, 48, 700, ANY, RELIEF_REMAT, LOW, 0},
    {CHUNKS, 1, 701, UINT64_MAX, ANY, RELIEF_LOADS, LOW, 0},
    {CHUNKS, 2, 1, 128, ANY, BEST, LOW, 0},
    {CHUNKS, 2, 1, UINT64_MAX, ANY, RELIEF_LOADS, LOW, 0},
    {CHUNKS, 2, 1, 256, ANY, RELIEF_TASK, OWN, 0},
    {CHUNKS, 2, 257, UINT64_MAX, IDLE, RELIEF_TASK, OWN, 0},
    {STEPS, 1, 1, UINT64_MAX, ANY, RELIEF_REMAT, OWN, 0},
    {STEPS, 1, 1, UINT64_MAX, ANY, RELIEF_LOADS, OWN, 0},
    {STEPS, 1, 1, UINT64_MAX, ANY, RELIEF_STATE, OWN, 0},
    {STEPS, 2, 1, 32, ANY, BEST, LOW, 0},
    {STEPS, 2, 33, UINT64_MAX, ANY, RELIEF_LOADS, OWN, 0},
    {STEPS, 2, 33, UINT64_MAX, ANY, RELIEF_STATE, OWN, 0},
};

static bool has_roles(const Func *f) {
  return f->body->last && f->body->last->code == OP_ROLES;
}

static int kind_of(const Course *c, const Func *f) {
  if (c->shares) return STEPS;
  if (ir_has_steps(f)) return CHUNKS;
  return (has_roles(f) ? ROLES : ALONE) | (c->last ? LAST : 0) |
         (cg_adds_to_memory(f) ? ADDS : 0);
}

// Few rows whose sums leave no room for a second CTA mostly need the lower
// level.
uint32_t drv_first_level(const CgKernelRecord *k) {
  bool alone = k->once && k->counter && k->occupancy == 1;
  return alone && !ir_has_steps(k->func) ? LOW : OWN;
}

const DrvTry *drv_known_try(const Course *c, const DrvTry *t) {
  for (uint32_t i = 0; i < c->n; i++)
    if (c->at[i].relief == t->relief && c->at[i].level == t->level &&
        c->at[i].registers == t->registers)
      return &c->at[i];
  return NULL;
}

static Lower lower_of(const Course *c) {
  for (uint32_t i = 0; i < c->n; i++) {
    const DrvTry *own = &c->at[i];
    DrvTry t = {.relief = own->relief, .level = LOW};
    const DrvTry *low = drv_known_try(c, &t);
    if (!own->level && low) return low->flaws < own->flaws ? BETTER : WORSE;
  }
  return ANY;
}

// What costs less, or as much with fewer flaws.
static bool is_better(const DrvTry *a, const DrvTry *b) {
  return a->cost < b->cost || (a->cost == b->cost && a->flaws < b->flaws);
}

const DrvTry *drv_best_try(const Course *c) {
  const DrvTry *best = &c->at[0];
  for (uint32_t i = 1; i < c->n; i++)
    if (is_better(&c->at[i], best)) best = &c->at[i];
  return best;
}

static bool lower_holds(Lower want, const Course *c) {
  if (want == IDLE) return drv_best_try(c)->level != LOW;
  return want == ANY || want == lower_of(c);
}

static bool holds(const Remedy *r, const Course *c, int kind, uint64_t flaws) {
  return (r->kinds & kind) && r->runs == c->runs && flaws >= r->least &&
         flaws <= r->most && lower_holds(r->lower, c);
}

bool drv_next_try(const Course *c, const Func *f, DrvTry *next) {
  const DrvTry *best = drv_best_try(c);
  if (c->runs >= COST_PTXAS_RUNS || c->n == COST_PTXAS_CODES) return false;
  for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++) {
    const Remedy *r = &remedies[i];
    DrvTry t = {.relief = r->relief == BEST ? best->relief : r->relief,
                .level = r->level,
                .registers = r->registers};
    if (!holds(r, c, kind_of(c, f), best->flaws) || drv_known_try(c, &t))
      continue;
    *next = t;
    return true;
  }
  return false;
}

void drv_note_try(Course *c, DrvTry t) {
  if (c->n < COST_PTXAS_CODES) c->at[c->n++] = t;
}
