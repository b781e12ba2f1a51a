// Memory in the wave interpreter: tensors, and shared tiles as bytes.
#include "ir/simt/simt.h"

// ---------------------------------------------------------------- tensors
// Which register of index operand v goes with register reg of the value.
static uint32_t index_reg(Wave *w, Value v, const FragMap *m, uint32_t reg) {
  const Type *t = simt_type(w, v);
  uint32_t at[2], thread, r;
  if (t->kind != TK_FRAG) return 0;
  frag_at(m, reg, 0, at);
  if (t->slice == SLICE_ROW) at[1] = 0;
  if (t->slice == SLICE_COL) at[0] = 0;
  frag_find(simt_map(w, v, t), at, &thread, &r);
  return r;
}

static InterpTensor *tensor(const Wave *w, const Op *op) {
  const Interp *in = wave_in(w);
  return &in->args[in->arg_of[op->args[0]]];
}

// Element of tensor operand 0 whose indices are operands lo ..; NULL: none.
static void *element(Wave *w, const Op *op, uint32_t lo, const FragMap *m,
                     uint32_t reg, uint32_t lane) {
  InterpTensor *t = tensor(w, op);
  int64_t idx[8] = {0}, off;
  int bad = 0;
  for (uint32_t i = 0; i < t->rank; i++) {
    Value v = op->args[lo + i];
    const WaveVal *x = simt_val(w, v);
    uint32_t r = m ? index_reg(w, v, m, reg) : 0;
    idx[i] = (int64_t)x->at[x->regs ? r * w->cta->x->lanes + lane : 0];
  }
  bool in_range = interp_offset(t, idx, &off, &bad);
  if (!in_range && ir_attr_i(op, AT_INBOUNDS, 0) && t->data)
    simt_fail(w, op, "an index that is promised in range is not");
  if (!in_range || !t->data) return NULL;
  return (char *)t->data + off * dtype_size(t->dtype);
}

static bool gload(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->res[0]);
  const FragMap *m = t->kind == TK_FRAG ? simt_map(w, op->res[0], t) : NULL;
  WaveVal *r = simt_define(w, op->res[0]);
  uint32_t lanes = m ? w->cta->x->lanes : 1;
  DType from = tensor(w, op)->dtype;
  for (uint32_t i = 0; i < (m ? r->regs : 1); i++)
    for (uint32_t l = 0; l < lanes; l++) {
      const void *p = element(w, op, 1, m, i, l);
      r->at[i * lanes + l] = p ? dtype_round(t->dtype, dtype_load(from, p)) : 0;
    }
  return true;
}

static bool gstore(Wave *w, const Op *op) {
  const Type *t = simt_type(w, op->args[1]);
  const FragMap *m = t->kind == TK_FRAG ? simt_map(w, op->args[1], t) : NULL;
  const WaveVal *x = simt_val(w, op->args[1]), *mask = NULL;
  uint32_t lanes = m ? w->cta->x->lanes : 1;
  if (ir_attr_i(op, AT_MASKED, 0)) mask = simt_val(w, op->args[op->nargs - 1]);
  if (!m && !wave_first(w)) return true;  // one thread's
  for (uint32_t i = 0; i < (m ? x->regs : 1); i++)
    for (uint32_t l = 0; l < lanes; l++) {
      if (mask && !mask->at[mask->regs ? i * lanes + l : 0]) continue;
      void *p = element(w, op, 2, m, i, l);
      if (p) dtype_store(tensor(w, op)->dtype, p, x->at[i * lanes + l]);
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
  const FragMap *map;
  bool trans;
  uint32_t col;  // first one of the fragment's
} Tile;

static Tile tile_of(Wave *w, const Op *op, const FragMap *m) {
  return (Tile){.type = simt_type(w, op->args[0]),
                .base = w->val[op->args[0]].base,
                .map = m,
                .trans = ir_attr_i(op, AT_TRANS, 0)};
}

static uint32_t place(const Wave *w, const Tile *t, uint32_t reg,
                      uint32_t lane) {
  uint32_t at[2];
  frag_at(t->map, reg, wave_thread(w, lane), at);
  return t->base + smem_offset(t->type, at[t->trans], t->col + at[!t->trans]);
}

static bool sload(Wave *w, const Op *op) {
  const FragMap *m = simt_map(w, op->res[0], simt_type(w, op->res[0]));
  WaveVal *r = simt_define(w, op->res[0]);
  uint32_t lanes = w->cta->x->lanes;
  Tile t = tile_of(w, op, m);
  for (uint32_t i = 0; i < r->regs; i++)
    for (uint32_t l = 0; l < lanes; l++)
      r->at[i * lanes + l] =
          simt_read(w, op, t.type->dtype, place(w, &t, i, l), false);
  return true;
}

// Whether a thread before this one holds the same element: both store the same
// value, which is no race.
static bool is_copy(Wave *w, const FragMap *m, uint32_t reg, uint32_t lane) {
  uint32_t at[2], thread, r;
  frag_at(m, reg, wave_thread(w, lane), at);
  frag_find(m, at, &thread, &r);
  return thread != wave_thread(w, lane);
}

static bool sstore(Wave *w, const Op *op) {
  const FragMap *m = simt_map(w, op->args[1], simt_type(w, op->args[1]));
  const WaveVal *x = simt_val(w, op->args[1]);
  uint32_t lanes = w->cta->x->lanes;
  Tile t = tile_of(w, op, m);
  if (op->nargs > 2) t.col = (uint32_t)simt_scalar(w, op->args[2]);
  for (uint32_t i = 0; i < x->regs; i++)
    for (uint32_t l = 0; l < lanes; l++)
      if (!is_copy(w, m, i, l))
        simt_write(w, op, t.type->dtype, place(w, &t, i, l),
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
