// Private to the wave interpreter (wave*.c): level mach of GPUs, executed wave
// by wave. Each lane of a wave has its own registers, as layouts.def spreads
// fragments over them; shared memory is bytes. Which wave goes next is random.
//
// Besides values, the order of accesses is checked: a clock per wave, joined
// at barriers (vector clocks), tells whether an access to shared memory comes
// after what it conflicts with in every schedule, not only in this one.
#ifndef ATTNC_IR_SIMT_SIMT_H
#define ATTNC_IR_SIMT_SIMT_H

#include "ir/interp/interp.h"
#include "ir/layout.h"
#include "ir/target.h"
#include "ir/core/vec.h"

enum {
  MAX_LANES = 64,
  MAX_WAVES = 32,
  MAX_CTAS = 8,  // that run at a time
  MAX_DEPTH = 32,
  MAX_BARS = 16,
  ENGINE = MAX_WAVES,  // the copy engine's place among the clocks
  AGENTS = MAX_WAVES + 1,
};

typedef struct Wave Wave;
typedef struct Cta Cta;

typedef struct Clock {
  uint32_t at[AGENTS];
} Clock;

// Registers of a value in one wave: at[reg * lanes + lane], or one number for
// a uniform scalar. A shared tile: where it begins.
typedef struct WaveVal {
  double *at;
  uint32_t regs;    // 0: a scalar
  uint32_t base;    // SMEM: byte; MBAR: number of the first
  uint32_t flying;  // group of the asynchronous product that makes it, or 0
  uint64_t tick;    // when it was defined
} WaveVal;

// Order of accesses to one element of shared memory.
typedef struct Cell {
  uint64_t tick;     // of the last write by a wave's own store
  uint32_t when;     // clock of who has written; 0: nobody
  uint8_t writer;    // wave or ENGINE
  uint8_t pending;   // copy in flight: 1 + who started it
  uint16_t readers;  // asynchronous reads in flight
} Cell;

typedef struct Barrier {  // named, or a group's
  uint32_t threads;       // that have arrived
  Clock clock;
} Barrier;

typedef struct Mbar {
  uint32_t count, arrived, phase;
  int64_t bytes;     // expected and not yet there
  Clock next, done;  // of this phase's arrivals, of the last one's
} Mbar;

typedef struct Group {
  uint32_t first, waves, threads, instance;
  Barrier bar;
  const Op *op;  // collective op that waves wait for
  uint32_t arrived;
} Group;

// An element on its way to shared memory.
typedef struct Flight {
  uint32_t byte, size, group;
  double v;
  DType dtype;
} Flight;

enum { MOST_INDICES = 16 };

typedef struct Fetch {  // a box of the copy engine, or a wave's copies
  const Op *op;
  Value tensor;
  uint32_t base, bar;        // tile's first byte, barrier
  int64_t at[MOST_INDICES];  // indices, those of pieces too
  Vec(Flight) copies;        // which an arrival of theirs waits for,
  Clock clock;               // as the wave had it, by so many threads
  uint32_t wave, when, lanes;
} Fetch;

// A shared tile that is read asynchronously until its group is waited for.
typedef struct Hold {
  const Type *type;
  uint32_t base, group;
  const Op *op;  // tma_store: what to write when it is done
  int64_t at[8];
} Hold;

typedef struct Frame {
  const Op *op;  // owner; NULL: the function's body
  const Op *next;
  int64_t i, left;  // for: turns left after this one
} Frame;

typedef enum WaveState {
  WV_RUN,
  WV_BARRIER,
  WV_PHASE,
  WV_GROUP,
  WV_DONE
} WaveState;

struct Wave {
  Cta *cta;
  uint32_t id, lanes;  // lanes that run: 1 in a group of one thread
  Group *grp;
  WaveVal *val;
  Frame frame[MAX_DEPTH];
  uint32_t depth;
  WaveState state;
  const void *wait;  // Barrier or Mbar
  uint32_t parity;
  Clock clock;
  uint64_t fence, wg_fence;  // ticks of the last fences
  Vec(Flight) copies;
  Vec(Hold) holds, stores;
  uint32_t copy_group, wg_group, store_group;  // open ones, from 1
};

typedef struct WaveRun WaveRun;

struct Cta {
  WaveRun *x;
  uint32_t id, nwaves, left;
  Cta *cluster;  // the CTAs that run together, and how many
  uint32_t nctas;
  Wave *wave;
  Group all;
  uint8_t *smem;
  Cell *cell;             // one per `grain` bytes
  uint32_t *read;         // per cell and wave: clock of its last read
  uint32_t bytes, grain;  // grain: 1 << shift
  uint32_t shift;
  Mbar *mbar;
  uint32_t mbars;
  Barrier named[MAX_BARS];
  Vec(Fetch) fetches;
  uint32_t engine;  // its clock
};

// A fragment's map, and what frag_at gives as a sum: of what the register has
// and what the thread has.
typedef struct WaveMap {
  FragMap map;
  uint32_t regs;
  uint32_t (*reg)[2], (*thread)[2];
  bool *copy;  // a thread before this one holds the same elements
} WaveMap;

// Where elements of a shared tile lie, row by row; `engine`: as the copy engine
// and wgmma see it.
typedef struct Places {
  Type type;
  bool engine;
  uint32_t *at;
} Places;

typedef struct Unit Unit;  // of matrices: mma.c

typedef bool WaveFn(Wave *w, const Op *op);  // false: try again later

struct WaveRun {
  Interp *in;
  const Target *target;
  Arena *arena;  // of the CTAs that run
  uint32_t lanes, threads, ctas;
  int64_t tasks, claimed;
  uint64_t tick;
  WaveMap **map;  // per value
  Vec(Places *) places;
  Places **place[2];  // per value, by `engine`
  Vec(Unit *) units;
  WaveFn *fn[OP_COUNT];  // NULL: the interpreter has no such op
};

// simt.c: values
static inline Interp *wave_in(const Wave *w) {
  return w->cta->x->in;
}
const Type *simt_type(const Wave *w, Value v);
WaveVal *simt_val(Wave *w, Value v);  // fails if it is in flight
double simt_scalar(Wave *w, Value v);
WaveVal *simt_define(Wave *w, Value v);
void simt_set(Wave *w, Value v, double x);  // a scalar
const char *simt_frag_map(const Wave *w, const Type *t, FragMap *m);
const WaveMap *simt_map(Wave *w, Value v, const Type *t);
static inline void simt_at(const WaveMap *m, uint32_t reg, uint32_t thread,
                           uint32_t at[2]) {
  at[0] = m->reg[reg][0] + m->thread[thread][0];
  at[1] = m->reg[reg][1] + m->thread[thread][1];
}
void simt_fail(const Wave *w, const Op *op, const char *what);
// Thread of the group.
static inline uint32_t wave_thread(const Wave *w, uint32_t lane) {
  return (w->id - w->grp->first) * w->cta->x->lanes + lane;
}
static inline bool wave_first(const Wave *w) {
  return w->id == w->grp->first;
}

// frag.c: fn for all n waves of the group, when the last of them is here.
typedef void WaveAllFn(Wave *first, uint32_t n, const Op *op);
bool simt_together(Wave *w, const Op *op, WaveAllFn *fn);
// A fragment of n waves as a table, rows first; slices have one row or column.
typedef struct Dense {
  uint32_t rows, cols;
  double *at;
} Dense;
Dense simt_dense(Wave *w, uint32_t n, Value v);

// order.c: who may touch what. All take the byte of an element.
double simt_read(Wave *w, const Op *op, DType t, uint32_t byte, bool async);
void simt_write(Wave *w, const Op *op, DType t, uint32_t byte, double v);
// A whole tile, row by row.
void simt_read_tile(Wave *w, const Op *op, Value tile, bool async, double *out);
// A copy to that element starts; it arrives, written by `agent`.
void simt_begin(Wave *w, const Op *op, uint32_t byte, bool engine);
void simt_arrive(Cta *c, uint32_t byte, DType t, double v, uint32_t agent,
                 uint32_t when);
void simt_hold(Wave *w, const Type *tile, uint32_t base, int by);
void simt_join(Clock *to, const Clock *from);
void simt_release(Wave *w, Clock *to);  // to joins w's; w's next epoch
bool simt_barrier(Wave *w, Barrier *b, uint32_t threads, uint32_t mine,
                  bool waits);
bool simt_ready(const Wave *w);  // waits for nothing any more
void simt_complete(Mbar *b);     // the phase, if all are there
void simt_count(const Wave *w, const Op *op, const Mbar *b);

// copy.c: where the elements of a slot of tile v are, from its first byte on.
const uint32_t *simt_places(WaveRun *x, Value v, bool engine);
// The wave arrives at that barrier when all that it has copied is there.
void simt_arrive_copied(Wave *w, const Op *op, uint32_t bar);
// The copy engine does one of its fetches, or a wave's copies arrive.
void simt_engine(Cta *c, uint32_t i);
void simt_finish_stores(Wave *w, uint32_t keep);

// The functions of ops, by code; NULL: not of that file.
WaveFn *simt_frag_fn(OpCode c);
WaveFn *simt_mem_fn(OpCode c);
WaveFn *simt_copy_fn(OpCode c);
WaveFn *simt_order_fn(OpCode c);
WaveFn *simt_mma_fn(OpCode c);

#endif
