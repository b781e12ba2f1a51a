// Memory in the wave interpreter: tensors, and shared tiles as bytes.
#include "ir/simt/simt.h"

// ---------------------------------------------------------------- tensors
// Which register of index operand v goes with register reg of the value.
static uint32_t index_reg(Wave *w, Value v, const WaveMap *m, uint32_t reg) {
  const Type *t = simt_type(w, v);
  uint32_t thread, r;
  if (t->kind != TK_FRAG) return 0;
  uint32_t at[2] = {m->reg[reg][0], m->reg[reg][1]};
  if (t->slice == SLICE_ROW) at[1] = 0;
  if (t->slice == SLICE_COL) at[0] = 0;
  frag_find(&simt_map(w, v, t)->map, at, &thread, &r);
  return r;
}

static InterpTensor *tensor(const Wave *w, const Op *op) {
  const Interp *in = wave_in(w);
  return &in->args[in->arg_of[op->args[0]]];
}

// Indices of register reg of a value: of lane l at[i][l * step[i]].
typedef struct Index {
  const InterpTensor *tensor;
  bool promised;  // to be in range
  const double *at[8];
  uint32_t step[8];
} Index;

static Index indices(Wave *w, const Op *op, uint32_t lo, const WaveMap *m,
                     uint32_t reg) {
  Index x = {.tensor = tensor(w, op),
             .promised = ir_attr_i(op, AT_INBOUNDS, 0) != 0};
  for (uint32_t i = 0; i < x.tensor->rank; i++) {
    const WaveVal *v = simt_val(w, op->args[lo + i]);
    uint32_t r = m && v->regs ? index_reg(w, op->args[lo + i], m, reg) : 0;
    x.at[i] = v->at + r * w->cta->x->lanes;
    x.step[i] = v->regs != 0;
  }
  return x;
}

// Element of the tensor there; NULL: none.
static void *element(Wave *w, const Op *op, const Index *x, uint32_t lane) {
  const InterpTensor *t = x->tensor;
  int64_t off = 0;
  if (!t->data) return NULL;
  for (uint32_t i = 0; i < t->rank; i++) {
    int64_t at = (int64_t)x->at[i][lane * x->step[i]];
    if (at >= 0 && at < t->shape[i]) {
      off += at * t->stride[i];
      continue;
    }
    if (x->promised)
      simt_fail(w, op, "an index that is promised in range is not");
    return NULL;
  }
  return (char *)t->data + off * dtype_size(t->dtype);
}

static bool gload(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->res[0]);
  const WaveMap *m = t->kind == TK_FRAG ? simt_map(w, op->res[0], t) : NULL;
  WaveVal *r = simt_define(w, op->res[0]);
  uint32_t lanes = m ? w->cta->x->lanes : 1;
  DType from = tensor(w, op)->dtype;
  for (uint32_t i = 0; i < (m ? r->regs : 1); i++) {
    Index x = indices(w, op, 1, m, i);
    for (uint32_t l = 0; l < lanes; l++) {
      const void *p = element(w, op, &x, l);
      r->at[i * lanes + l] = p ? dtype_load(from, p) : 0;
    }
  }
  if (from != t->dtype)
    dtype_round_many(t->dtype, r->at, m ? r->regs * lanes : 1);
  return true;
}

static bool gstore(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[1]);
  const WaveMap *m = t->kind == TK_FRAG ? simt_map(w, op->args[1], t) : NULL;
  const WaveVal *x = simt_val(w, op->args[1]), *mask = NULL;
  uint32_t lanes = m ? w->cta->x->lanes : 1;
  if (ir_attr_i(op, AT_MASKED, 0)) mask = simt_val(w, op->args[op->nargs - 1]);
  bool add = ir_attr_i(op, AT_ADD, 0);
  DType to = tensor(w, op)->dtype;
  if (!m && !wave_first(w)) return true;  // one thread's
  for (uint32_t i = 0; i < (m ? x->regs : 1); i++) {
    Index at = indices(w, op, 2, m, i);
    for (uint32_t l = 0; l < lanes; l++) {
      if (mask && !mask->at[mask->regs ? i * lanes + l : 0]) continue;
      void *p = element(w, op, &at, l);
      double v = x->at[i * lanes + l];
      if (add && m && m->copy[wave_thread(w, l)]) continue;
      if (p && add) v += dtype_load(to, p);
      if (p) dtype_store(to, p, v);
    }
  }
  return true;
}

// ---------------------------------------------------------------- tiles
static bool slot(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[0]);
  double i = simt_scalar(w, op->args[1]);
  if (i < 0 || i >= t->ext[2]) simt_fail(w, op, "the ring has no such slot");
  else
    w->val[op->res[0]].base =
        w->val[op->args[0]].base + (uint32_t)i * smem_slot_bytes(t);
  return true;
}

// A tile that op moves, and the fragment whose elements it has.
typedef struct Tile {
  const Type *type;
  uint32_t base;
  const uint32_t *places;
  const WaveMap *map;
  bool trans;
  uint32_t col;  // first one of the fragment's
} Tile;

static Tile tile_of(Wave *w, const Op *op, const WaveMap *m) {
  return (Tile){.type = simt_type(w, op->args[0]),
                .base = w->val[op->args[0]].base,
                .places = simt_places(w->cta->x, op->args[0], false),
                .map = m,
                .trans = ir_attr_i(op, AT_TRANS, 0)};
}

static uint32_t place(const Tile *t, uint32_t reg, uint32_t thread) {
  uint32_t at[2];
  simt_at(t->map, reg, thread, at);
  uint32_t row = at[t->trans], col = t->col + at[!t->trans];
  if (row < t->type->ext[0] && col < t->type->ext[1])
    return t->base + t->places[row * t->type->ext[1] + col];
  return t->base + smem_offset(t->type, row, col);
}

static bool sload(Wave *w, const Op *op) {
  const WaveMap *m = simt_map(w, op->res[0], simt_type(w, op->res[0]));
  WaveVal *r = simt_define(w, op->res[0]);
  uint32_t lanes = w->cta->x->lanes, first = wave_thread(w, 0);
  Tile t = tile_of(w, op, m);
  if (op->nargs > 1) t.col = (uint32_t)simt_scalar(w, op->args[1]);
  for (uint32_t i = 0; i < r->regs; i++)
    for (uint32_t l = 0; l < lanes; l++)
      r->at[i * lanes + l] =
          simt_read(w, op, t.type->dtype, place(&t, i, first + l), false);
  return true;
}

// If a thread before this one holds the same element, both store the same
// value, which is no race.
static bool sstore(Wave *w, const Op *op) {
  const WaveMap *m = simt_map(w, op->args[1], simt_type(w, op->args[1]));
  const WaveVal *x = simt_val(w, op->args[1]);
  uint32_t lanes = w->cta->x->lanes, first = wave_thread(w, 0);
  Tile t = tile_of(w, op, m);
  if (op->nargs > 2) t.col = (uint32_t)simt_scalar(w, op->args[2]);
  for (uint32_t i = 0; i < x->regs; i++)
    for (uint32_t l = 0; l < lanes; l++)
      if (!m->copy[first + l])
        simt_write(w, op, t.type->dtype, place(&t, i, first + l),
                   x->at[i * lanes + l]);
  return true;
}

// Each thread takes chunks of 16 bytes, wherever the layout has put them.
static bool sflip(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[0]);
  uint32_t size = (uint32_t)dtype_size(t->dtype), lanes = w->cta->x->lanes;
  for (uint32_t b = 0; b < smem_slot_bytes(t); b += size) {
    uint32_t thread = b / 16 % w->grp->threads;
    if (thread / lanes != w->id - w->grp->first) continue;
    uint32_t at = w->val[op->args[0]].base + b;
    simt_write(w, op, t->dtype, at, -simt_read(w, op, t->dtype, at, false));
  }
  return true;
}

// Rows from operand 1 on, 16 bytes a thread.
static bool sclean(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[0]);
  double from = simt_scalar(w, op->args[1]);
  uint32_t lanes = w->cta->x->lanes, i = 0;
  uint32_t size = (uint32_t)dtype_size(t->dtype), most = 16 / size;
  for (uint32_t r = from > 0 ? (uint32_t)from : 0; r < t->ext[0]; r++)
    for (uint32_t c = 0; c < t->ext[1]; c++, i++) {
      if (i / most % w->grp->threads / lanes != w->id - w->grp->first) continue;
      simt_write(w, op, t->dtype,
                 w->val[op->args[0]].base + smem_offset(t, r, c), 0);
    }
  return true;
}

static uint32_t scalar_place(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[0]);
  double i = simt_scalar(w, op->args[1]);
  if (i < 0 || i >= t->ext[1]) {
    simt_fail(w, op, "the tile has no such element");
    i = 0;
  }
  return w->val[op->args[0]].base + smem_offset(t, 0, (uint32_t)i);
}

static bool sget(Wave *w, const Op *op) {
  DType t = simt_type(w, op->res[0])->dtype;
  simt_set(w, op->res[0], simt_read(w, op, t, scalar_place(w, op), false));
  return true;
}

static bool sset(Wave *w, const Op *op) {
  if (wave_first(w))
    simt_write(w, op, simt_type(w, op->args[2])->dtype, scalar_place(w, op),
               simt_scalar(w, op->args[2]));
  return true;
}

static bool placed(Wave *w, const Op *op) {  // before the CTA starts
  (void)w;
  (void)op;
  return true;
}

WaveFn *simt_mem_fn(OpCode c) {
  static WaveFn *const fn[OP_COUNT] = {
      [OP_GLOAD] = gload,   [OP_GSTORE] = gstore, [OP_SALLOC] = placed,
      [OP_MBAR] = placed,   [OP_SLOT] = slot,     [OP_SLOAD] = sload,
      [OP_SSTORE] = sstore, [OP_SFLIP] = sflip,   [OP_SCLEAN] = sclean,
      [OP_SGET] = sget,     [OP_SSET] = sset,
  };
  return fn[c];
}
