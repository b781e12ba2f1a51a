// Order in the wave interpreter: barriers, and who may touch an element of
// shared memory when.
//
//   wave 0: sstore(%t, %x)  gsync()              cell: written by 0 at clock 4
//   wave 1:                 gsync()  sload(%t)   knows 0 up to clock 4: ordered
//
// Each wave counts epochs and knows up to which epoch of each other wave
// everything comes before it. Barriers join what waves know. An access whose
// counterpart is not known to come before it is an error in every schedule.
#include "ir/simt/simt.h"

#include <string.h>

// ---------------------------------------------------------------- clocks
void simt_join(Clock *to, const Clock *from) {
  for (uint32_t i = 0; i < AGENTS; i++)
    if (from->at[i] > to->at[i]) to->at[i] = from->at[i];
}

void simt_release(Wave *w, Clock *to) {
  simt_join(to, &w->clock);
  w->clock.at[w->id]++;
}

// ---------------------------------------------------------------- cells
static Cell *cell_at(const Cta *c, uint32_t byte) {
  return &c->cell[byte >> c->shift];
}
static uint32_t *reads_of(const Cta *c, uint32_t byte) {
  return c->read + (size_t)(byte >> c->shift) * c->nwaves;
}

static bool inside(Wave *w, const Op *op, uint32_t byte, uint32_t size) {
  if (byte + size <= w->cta->bytes) return true;
  simt_fail(w, op, "access outside of shared memory");
  return false;
}

// Stored by a thread, and neither it nor this one has come by a fence since.
static bool unfenced(const Wave *w, const Cell *x) {
  return x->writer != ENGINE && x->tick >= w->fence &&
         x->tick >= w->cta->wave[x->writer].fence;
}

static void may_read(Wave *w, const Op *op, const Cell *x, bool async) {
  if (x->pending) simt_fail(w, op, "reads what a copy in flight writes");
  else if (!x->when) simt_fail(w, op, "reads shared memory never written");
  else if (w->clock.at[x->writer] < x->when)
    simt_fail(w, op, "reads what another wave writes, with no barrier between");
  if (async && unfenced(w, x))
    simt_fail(w, op, "reads asynchronously what is stored, without a fence");
}

static inline void read_cell(Wave *w, const Op *op, uint32_t byte, bool async) {
  Cta *c = w->cta;
  const Cell *x = cell_at(c, byte);
  if (x->pending || !x->when || w->clock.at[x->writer] < x->when ||
      (async && unfenced(w, x)))
    may_read(w, op, x, async);
  reads_of(c, byte)[w->id] = w->clock.at[w->id];
}

double simt_read(Wave *w, const Op *op, DType t, uint32_t byte, bool async) {
  if (!inside(w, op, byte, (uint32_t)dtype_size(t))) return 0;
  read_cell(w, op, byte, async);
  return dtype_load(t, w->cta->smem + byte);
}

void simt_read_tile(Wave *w, const Op *op, Value tile, bool async,
                    double *out) {
  const Type *t = simt_type(w, tile);
  const uint32_t *at = simt_places(w->cta->x, tile, async);
  uint32_t base = w->val[tile].base, n = t->ext[0] * t->ext[1];
  if (!inside(w, op, base, smem_slot_bytes(t))) return;
  for (uint32_t i = 0; i < n; i++) read_cell(w, op, base + at[i], async);
  dtype_gather(t->dtype, w->cta->smem + base, at, n, out);
}

static bool may_write(Wave *w, const Op *op, uint32_t byte) {
  Cta *c = w->cta;
  const Cell *x = cell_at(c, byte);
  const uint32_t *r = reads_of(c, byte);
  if (x->pending) simt_fail(w, op, "writes where a copy in flight writes");
  else if (x->readers) simt_fail(w, op, "writes what is read asynchronously");
  else if (x->when && w->clock.at[x->writer] < x->when)
    simt_fail(w, op,
              "writes what another wave writes, with no barrier between");
  bool unknown = false;
  for (uint32_t i = 0; i < c->nwaves; i++) unknown |= r[i] > w->clock.at[i];
  if (unknown)
    simt_fail(w, op, "writes what another wave reads, with no barrier between");
  return !wave_in(w)->failed;
}

void simt_write(Wave *w, const Op *op, DType t, uint32_t byte, double v) {
  Cta *c = w->cta;
  if (!inside(w, op, byte, (uint32_t)dtype_size(t)) || !may_write(w, op, byte))
    return;
  Cell *x = cell_at(c, byte);
  x->writer = (uint8_t)w->id;
  x->when = w->clock.at[w->id];
  x->tick = c->x->tick;
  dtype_store(t, c->smem + byte, v);
}

void simt_begin(Wave *w, const Op *op, uint32_t byte, bool engine) {
  if (!inside(w, op, byte, 1) || !may_write(w, op, byte)) return;
  cell_at(w->cta, byte)->pending = (uint8_t)(1 + (engine ? ENGINE : w->id));
}

void simt_arrive(Cta *c, uint32_t byte, DType t, double v, uint32_t agent,
                 uint32_t when) {
  Cell *x = cell_at(c, byte);
  x->pending = 0;
  x->writer = (uint8_t)agent;
  x->when = when;
  x->tick = agent == ENGINE ? 0 : c->x->tick;
  dtype_store(t, c->smem + byte, v);
}

void simt_hold(Wave *w, const Type *tile, uint32_t base, int by) {
  Cta *c = w->cta;
  uint32_t end = base + smem_slot_bytes(tile), now = w->clock.at[w->id];
  for (uint32_t b = base; b < end; b += c->grain) {
    Cell *x = cell_at(c, b);
    x->readers = (uint16_t)(x->readers + by);
    if (by < 0) reads_of(c, b)[w->id] = now;
  }
}

// ---------------------------------------------------------------- barriers
// `mine` threads arrive at a barrier of `threads`; the last lets all go on.
bool simt_barrier(Wave *w, Barrier *b, uint32_t threads, uint32_t mine,
                  bool waits) {
  Cta *c = w->cta;
  simt_release(w, &b->clock);
  b->threads += mine;
  if (waits) {
    w->state = WV_BARRIER;
    w->wait = b;
  }
  if (b->threads < threads) return true;
  for (uint32_t i = 0; i < c->nwaves; i++) {
    Wave *o = &c->wave[i];
    if (o->state != WV_BARRIER || o->wait != b) continue;
    simt_join(&o->clock, &b->clock);
    o->state = WV_RUN;
  }
  *b = (Barrier){0};
  return true;
}

static bool gsync(Wave *w, const Op *op) {
  (void)op;
  Group *g = w->grp;
  return simt_barrier(w, &g->bar, g->waves, 1, true);
}

static bool named(Wave *w, const Op *op) {
  double id = simt_scalar(w, op->args[0]);
  uint32_t threads = (uint32_t)ir_attr_i(op, AT_THREADS, 0);
  if (id < 1 || id >= MAX_BARS) {
    simt_fail(w, op, "no such barrier");
    return true;
  }
  Barrier *b = &w->cta->named[(int)id];
  if (b->threads + w->cta->x->lanes > threads) {
    simt_fail(w, op, "more threads arrive than the barrier has");
    return true;
  }
  return simt_barrier(w, b, threads, w->cta->x->lanes, op->code == OP_BAR_SYNC);
}

// ---------------------------------------------------------------- phases
void simt_complete(Mbar *b) {
  if (b->arrived < b->count || b->bytes) return;
  b->done = b->next;
  b->arrived = 0;
  b->phase++;
}

static Mbar *mbar_of(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[0]);
  double slot = simt_scalar(w, op->args[1]);
  uint32_t base = simt_val(w, op->args[0])->base;
  if (slot >= 0 && slot < t->n) return &w->cta->mbar[base + (uint32_t)slot];
  simt_fail(w, op, "no such slot");
  return &w->cta->mbar[base];
}

static bool phase_done(const Mbar *b, uint32_t parity) {
  return (b->phase & 1) != parity;
}

static bool mbar_wait(Wave *w, const Op *op) {
  Mbar *b = mbar_of(w, op);
  uint32_t parity = (uint32_t)simt_scalar(w, op->args[2]) & 1;
  if (phase_done(b, parity)) {
    simt_join(&w->clock, &b->done);
    return true;
  }
  w->state = WV_PHASE;
  w->wait = b;
  w->parity = parity;
  return false;  // tried again
}

bool simt_ready(const Wave *w) {
  if (w->state == WV_PHASE) return phase_done(w->wait, w->parity);
  return w->state == WV_RUN;
}

void simt_count(const Wave *w, const Op *op, const Mbar *b) {
  if (b->arrived > b->count)
    simt_fail(w, op, "more arrivals than the barrier counts");
}

static bool arrive(Wave *w, const Op *op) {
  Mbar *b = mbar_of(w, op);
  if (ir_attr_i(op, AT_COPIES, 0)) {
    simt_arrive_copied(w, op, (uint32_t)(b - w->cta->mbar));
    return true;
  }
  if (op->code == OP_MBAR_EXPECT) {
    if (!wave_first(w)) return true;
    b->bytes += ir_attr_i(op, AT_BYTES, 0);
  }
  b->arrived += ir_attr_i(op, AT_EACH, 0) ? w->lanes : 1;
  simt_count(w, op, b);
  simt_release(w, &b->next);
  simt_complete(b);
  return true;
}

static bool fence(Wave *w, const Op *op) {
  uint64_t now = ++w->cta->x->tick;
  if (op->code == OP_WG_FENCE) w->wg_fence = now;
  else w->fence = now;
  return true;
}

WaveFn *simt_order_fn(OpCode c) {
  static WaveFn *const fn[OP_COUNT] = {
      [OP_GSYNC] = gsync,        [OP_BAR_SYNC] = named,
      [OP_BAR_ARRIVE] = named,   [OP_MBAR_WAIT] = mbar_wait,
      [OP_MBAR_ARRIVE] = arrive, [OP_MBAR_EXPECT] = arrive,
      [OP_FENCE_ASYNC] = fence,  [OP_WG_FENCE] = fence,
  };
  return fn[c];
}
