// Asynchronous copies in the wave interpreter. cp.async: what a wave has
// copied is in shared memory when it has waited for it, and not before. The
// copy engine (TMA) fetches boxes in any order; its swizzles are written here
// as the hardware's, on address bits.
#include "ir/box.h"
#include "ir/simt/simt.h"

enum { CHUNK = 16 };  // bytes that a copy moves at once

// ---------------------------------------------------------------- boxes
// at: indices, then those of pieces behind the first along axis `along`.
typedef struct Box {
  InterpTensor *t;
  int64_t at[MOST_INDICES];
  uint32_t row, col;
  uint32_t pieces, along, rows;
  uint32_t turns;  // of a row, along axis `along`
} Box;

// Of a tile of so many rows.
static Box box_of(const Interp *in, const Op *op, Value tensor, uint32_t rows,
                  const int64_t *at) {
  const IrAttr *tile = ir_attr(op, AT_TILE), *pieces = ir_attr(op, AT_PIECES);
  Box b = {.t = &in->args[in->arg_of[tensor]],
           .row = (uint32_t)tile->list[0],
           .col = (uint32_t)tile->list[1],
           .pieces = ir_pieces(op)};
  b.rows = rows / b.pieces;
  if (pieces) b.along = (uint32_t)pieces->list[0];
  b.turns = box_turns(op);
  if (b.turns > 1) b.along = (uint32_t)tile->list[BOX_TURN];
  for (uint32_t i = 0; i < b.t->rank + b.pieces - 1; i++) b.at[i] = at[i];
  return b;
}

static void *box_element(const Box *b, uint32_t r, uint32_t c) {
  int64_t at[8], off;
  int bad = 0;
  for (uint32_t i = 0; i < b->t->rank; i++) at[i] = b->at[i];
  if (r >= b->rows) at[b->along] = b->at[b->t->rank + r / b->rows - 1];
  at[b->row] += r % b->rows / b->turns;
  if (b->turns > 1) at[b->along] += r % b->turns;
  at[b->col] += c;
  if (!b->t->data || !interp_offset(b->t, at, &off, &bad)) return NULL;
  return (char *)b->t->data + off * dtype_size(b->t->dtype);
}

static double box_value(const Box *b, uint32_t r, uint32_t c) {
  const void *p = box_element(b, r, c);
  return p ? dtype_load(b->t->dtype, p) : 0;
}

// Those that are slices: 0.
static void indices(Wave *w, const Op *op, uint32_t lo, uint32_t n,
                    int64_t *at) {
  n += ir_pieces(op) - 1;
  for (uint32_t i = 0; i < n; i++)
    at[i] = simt_type(w, op->args[lo + i])->kind == TK_FRAG
                ? 0
                : (int64_t)simt_scalar(w, op->args[lo + i]);
}

// Copies are of chunks of 16 bytes: those of an H100 end a kernel that asks for
// a box at other columns.
static void check_begin(Wave *w, const Op *op, DType t, const int64_t *at) {
  int64_t col = at[ir_attr(op, AT_TILE)->list[1]];
  if (col * dtype_size(t) % CHUNK != 0)
    simt_fail(w, op, "a box that begins inside 16 bytes of a row");
}

// The engine has boxes at multiples of 128 bytes (an H100 ends a kernel with
// "misaligned address"), and swizzles by bits of the address: 8 rows of a panel
// are its pattern.
static void check_box(Wave *w, const Op *op, Value tile) {
  enum { BOX = 128, ROWS = 8 };
  const Type *t = simt_type(w, tile);
  uint32_t panel = smem_panel_bytes(t), base = w->val[tile].base;
  uint32_t align =
      t->layout == LY_ROW || ROWS * panel < BOX ? BOX : ROWS * panel;
  if (base % align) simt_fail(w, op, "a box at no multiple of its alignment");
}

// ---------------------------------------------------------------- places
// Where the engine puts an element of a panel: row pitch is the panel, bits 4
// to 6 of the address are XORed with bits 7 to 9 (fewer for narrow panels).
static uint32_t engine_offset(const Type *t, uint32_t row, uint32_t col) {
  uint32_t size = (uint32_t)dtype_size(t->dtype);
  uint32_t panel = t->layout == LY_SW128  ? 128
                   : t->layout == LY_SW64 ? 64
                   : t->layout == LY_SW32 ? 32
                                          : t->ext[1] * size;
  uint32_t side = col * size / panel, in = col * size % panel;
  uint32_t at = side * panel * t->ext[0] + row * panel + in;
  uint32_t mask = t->layout == LY_ROW ? 0 : panel / 16 - 1;
  return at ^ ((at >> 7 & mask) << 4);
}

static Places *places_of(WaveRun *x, const Type *t, bool engine) {
  for (uint32_t i = 0; i < x->places.n; i++) {
    Places *p = x->places.at[i];
    if (p->engine == engine && type_eq(&p->type, t)) return p;
  }
  Places *p = NEW(x->in->arena, Places);
  *p = (Places){*t, engine,
                NEWN(x->in->arena, uint32_t, t->ext[0] * t->ext[1] + 1)};
  for (uint32_t r = 0; r < t->ext[0]; r++)
    for (uint32_t c = 0; c < t->ext[1]; c++)
      p->at[r * t->ext[1] + c] =
          engine ? engine_offset(t, r, c) : smem_offset(t, r, c);
  vec_push(x->in->arena, &x->places, p);
  return p;
}

const uint32_t *simt_places(WaveRun *x, Value v, bool engine) {
  Places **p = &x->place[engine][v];
  if (!*p) *p = places_of(x, ir_type(x->in->f, v), engine);
  return (*p)->at;
}

// ---------------------------------------------------------------- cp.async
// Which of two copies arrives last is not known.
static bool is_under_way(const Wave *w, uint32_t base, uint32_t bytes) {
  for (uint32_t i = 0; i < w->copies.n; i++)
    if (w->copies.at[i].byte - base < bytes) return true;
  return false;
}

static void begin_chunk(Wave *w, const Op *op, const Box *b, uint32_t from,
                        uint32_t row, uint32_t col) {
  const Type *t = simt_type(w, op->args[0]);
  const uint32_t *places = simt_places(w->cta->x, op->args[0], false);
  for (uint32_t k = 0; k < CHUNK / (uint32_t)dtype_size(t->dtype); k++) {
    Flight f = {.byte = w->val[op->args[0]].base +
                        places[row * t->ext[1] + col + k],
                .dtype = t->dtype,
                .group = w->copy_group,
                .v = box_value(b, from, col + k)};
    simt_begin(w, op, f.byte, false);
    vec_push(w->cta->x->arena, &w->copies, f);
  }
}

// The operand that tells each row, or 0.
static Value told_rows(Wave *w, const Op *op) {
  Value v = op->args[2 + ir_attr(op, AT_TILE)->list[0]];
  return simt_type(w, v)->kind == TK_FRAG ? v : 0;
}

// Eight threads have a row, and of each 128 bytes of it 16 each.
static void copy_told(Wave *w, const Op *op, const int64_t *at, Value told) {
  enum { EACH = 8 };
  const Type *t = simt_type(w, op->args[0]);
  const WaveMap *m = simt_map(w, told, simt_type(w, told));
  uint32_t lanes = w->cta->x->lanes, n = simt_type(w, op->args[1])->n;
  uint32_t elems = CHUNK / (uint32_t)dtype_size(t->dtype);
  for (uint32_t i = 0; i < m->regs * lanes; i++) {
    uint32_t thread = wave_thread(w, i % lanes), row[2];
    int64_t here[MOST_INDICES];
    for (uint32_t k = 0; k < n; k++) {
      bool slice = simt_type(w, op->args[2 + k])->kind == TK_FRAG;
      here[k] = slice ? (int64_t)simt_val(w, op->args[2 + k])->at[i] : at[k];
    }
    Box b = box_of(wave_in(w), op, op->args[1], t->ext[0], here);
    simt_at(m, i / lanes, thread, row);
    for (uint32_t c = thread % EACH * elems; c < t->ext[1]; c += EACH * elems)
      begin_chunk(w, op, &b, 0, row[0], c);
  }
}

// The group's threads share the tile's chunks of 16 bytes.
static bool cp_async(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[0]);
  Value told = told_rows(w, op);
  int64_t at[MOST_INDICES];
  indices(w, op, 2, simt_type(w, op->args[1])->n, at);
  Box b = box_of(wave_in(w), op, op->args[1], t->ext[0], at);
  uint32_t lanes = w->cta->x->lanes,
           elems = CHUNK / (uint32_t)dtype_size(t->dtype);
  check_begin(w, op, t->dtype, at);
  uint32_t per_row = t->ext[1] / elems, base = w->val[op->args[0]].base;
  if (is_under_way(w, base, smem_slot_bytes(t)))
    simt_fail(w, op, "another copy to the tile has not arrived");
  for (uint32_t i = 0; i < per_row * t->ext[0]; i++) {
    uint32_t thread = i % w->grp->threads;
    if (told || thread / lanes != w->id - w->grp->first) continue;
    begin_chunk(w, op, &b, i / per_row, i / per_row, i % per_row * elems);
  }
  if (told) copy_told(w, op, at, told);
  return true;
}

// Nothing that a program could see.
static bool soon(Wave *w, const Op *op) {
  (void)w, (void)op;
  return true;
}

static bool cp_commit(Wave *w, const Op *op) {
  (void)op;
  w->copy_group++;
  return true;
}

static bool cp_wait(Wave *w, const Op *op) {
  uint32_t keep = (uint32_t)ir_attr_i(op, AT_PENDING, 0), n = 0;
  for (uint32_t i = 0; i < w->copies.n; i++) {
    Flight f = w->copies.at[i];
    if (f.group + keep < w->copy_group)
      simt_arrive(w->cta, f.byte, f.dtype, f.v, w->id, w->clock.at[w->id]);
    else w->copies.at[n++] = f;
  }
  w->copies.n = n;
  return true;
}

// ---------------------------------------------------------------- TMA
static bool tma_load(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[0]), *bars = simt_type(w, op->args[1]);
  if (!wave_first(w)) return true;
  double slot = simt_scalar(w, op->args[2]);
  if (slot < 0 || slot >= bars->n) {
    simt_fail(w, op, "no such slot");
    return true;
  }
  Fetch f = {.op = op,
             .tensor = op->args[3],
             .base = w->val[op->args[0]].base,
             .bar = w->val[op->args[1]].base + (uint32_t)slot};
  indices(w, op, 4, simt_type(w, f.tensor)->n, f.at);
  check_begin(w, op, t->dtype, f.at);
  check_box(w, op, op->args[0]);
  const uint32_t *places = simt_places(w->cta->x, op->args[0], true);
  for (uint32_t i = 0; i < t->ext[0] * t->ext[1]; i++)
    simt_begin(w, op, f.base + places[i], true);
  vec_push(w->cta->x->arena, &w->cta->fetches, f);
  return true;
}

void simt_arrive_copied(Wave *w, const Op *op, uint32_t bar) {
  Fetch f = {.op = op,
             .bar = bar,
             .wave = w->id,
             .when = w->clock.at[w->id],
             .lanes = w->lanes};
  f.copies.at = w->copies.at, f.copies.n = w->copies.n;
  w->copies.at = NULL, w->copies.n = w->copies.cap = 0;
  simt_release(w, &f.clock);
  vec_push(w->cta->x->arena, &w->cta->fetches, f);
}

static void copied(Cta *c, const Fetch *f) {
  Mbar *bar = &c->mbar[f->bar];
  for (uint32_t i = 0; i < f->copies.n; i++) {
    const Flight *x = &f->copies.at[i];
    simt_arrive(c, x->byte, x->dtype, x->v, f->wave, f->when);
  }
  simt_join(&bar->next, &f->clock);
  bar->arrived += f->lanes;
  simt_count(&c->wave[f->wave], f->op, bar);
  simt_complete(bar);
}

void simt_engine(Cta *c, uint32_t i) {
  const Interp *in = c->x->in;
  Fetch f = c->fetches.at[i];
  if (f.op->code == OP_MBAR_ARRIVE) {
    c->fetches.at[i] = c->fetches.at[--c->fetches.n];
    copied(c, &f);
    return;
  }
  const Type *t = ir_type(in->f, f.op->args[0]);
  Box b = box_of(in, f.op, f.tensor, t->ext[0], f.at);
  Mbar *bar = &c->mbar[f.bar];
  const uint32_t *places = simt_places(c->x, f.op->args[0], true);
  c->fetches.at[i] = c->fetches.at[--c->fetches.n];
  c->engine++;
  for (uint32_t r = 0; r < t->ext[0]; r++)
    for (uint32_t k = 0; k < t->ext[1]; k++)
      simt_arrive(c, f.base + places[r * t->ext[1] + k], t->dtype,
                  box_value(&b, r, k), ENGINE, c->engine);
  bar->next.at[ENGINE] = c->engine;
  bar->bytes -= t->ext[0] * t->ext[1] * (uint32_t)dtype_size(t->dtype);
  simt_complete(bar);
}

static bool tma_store(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[1]);
  if (!wave_first(w)) return true;
  Hold h = {.type = t,
            .base = w->val[op->args[1]].base,
            .op = op,
            .group = w->store_group};
  indices(w, op, 2, simt_type(w, op->args[0])->n, h.at);
  check_begin(w, op, t->dtype, h.at);
  check_box(w, op, op->args[1]);
  const uint32_t *places = simt_places(w->cta->x, op->args[1], true);
  for (uint32_t i = 0; i < t->ext[0] * t->ext[1]; i++)
    simt_read(w, op, t->dtype, h.base + places[i], true);
  simt_hold(w, t, h.base, 1);
  vec_push(w->cta->x->arena, &w->stores, h);
  return true;
}

static void write_box(Wave *w, const Hold *h) {
  const Type *t = h->type;
  Box b = box_of(wave_in(w), h->op, h->op->args[0], t->ext[0], h->at);
  const uint32_t *places = simt_places(w->cta->x, h->op->args[1], true);
  for (uint32_t r = 0; r < t->ext[0]; r++)
    for (uint32_t c = 0; c < t->ext[1]; c++) {
      void *to = box_element(&b, r, c);
      const uint8_t *from = w->cta->smem + h->base + places[r * t->ext[1] + c];
      if (to) dtype_store(b.t->dtype, to, dtype_load(t->dtype, from));
    }
}

void simt_finish_stores(Wave *w, uint32_t keep) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < w->stores.n; i++) {
    Hold h = w->stores.at[i];
    if (keep && h.group + keep >= w->store_group) {
      w->stores.at[n++] = h;
      continue;
    }
    write_box(w, &h);
    simt_hold(w, h.type, h.base, -1);
  }
  w->stores.n = n;
}

static bool tma_commit(Wave *w, const Op *op) {
  (void)op;
  w->store_group++;
  return true;
}

static bool tma_wait(Wave *w, const Op *op) {
  simt_finish_stores(w, (uint32_t)ir_attr_i(op, AT_PENDING, 0));
  return true;
}

WaveFn *simt_copy_fn(OpCode c) {
  static WaveFn *const fn[OP_COUNT] = {
      [OP_CP_ASYNC] = cp_async,   [OP_CP_COMMIT] = cp_commit,
      [OP_CP_WAIT] = cp_wait,     [OP_TMA_LOAD] = tma_load,
      [OP_TMA_STORE] = tma_store, [OP_TMA_COMMIT] = tma_commit,
      [OP_TMA_WAIT] = tma_wait,   [OP_GSOON] = soon,
  };
  return fn[c];
}
