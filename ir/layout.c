// Arithmetic of layouts.def.
#include "ir/layout.h"

#include <string.h>

typedef struct LayoutInfo {
  const char *name;
  bool frag, other;
  uint32_t cols;          // FRAG
  uint32_t panel, shift;  // SMEM
  bool turned;
} LayoutInfo;

static const LayoutInfo infos[] = {
#define FRAG(name, id, cols, other, factors) \
  {name, true, other, cols, 0, 0, false},
#define SMEM(name, id, panel, shift) \
  {name, false, false, 0, panel, shift, false},
#define TURNED(name, id) {name, false, false, 0, 0, 0, true},
#include "ir/layouts.def"
};

bool layout_by_name(const char *name, size_t len, bool frag, LayoutId *id) {
  for (uint32_t i = 0; i < LY_COUNT; i++) {
    const char *s = infos[i].name;
    if (infos[i].frag != frag || strncmp(s, name, len) != 0 || s[len]) continue;
    *id = (LayoutId)i;
    return true;
  }
  return false;
}

const char *layout_name(LayoutId id) {
  return (uint32_t)id < LY_COUNT ? infos[id].name : "?";
}

// ---------------------------------------------------------------- fragments
static uint32_t part(uint32_t a, uint32_t b) {
  return b && a > b ? (a + b - 1) / b : 1;
}
static uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}
static uint32_t common(uint32_t a, uint32_t b) {
  while (a) {
    uint32_t r = b % a;
    b = a;
    a = r;
  }
  return b ? b : 1;
}

static bool has_axis(const Type *t, uint32_t axis) {
  return t->slice == SLICE_NONE || (t->slice == SLICE_COL) == axis;
}

static void put(Factor *list, uint32_t *n, uint32_t size, uint32_t axis,
                uint32_t stride) {
  if (size > 1) list[(*n)++] = (Factor){size, axis, stride};
}

// A register digit along an axis that the slice lacks does not exist; a thread
// digit does not matter.
static void put_reg(const Type *t, FragMap *m, uint32_t size, uint32_t axis,
                    uint32_t stride) {
  if (has_axis(t, axis)) put(m->reg, &m->nreg, size, axis, stride);
}
static void put_thr(const Type *t, FragMap *m, uint32_t size, uint32_t axis,
                    uint32_t stride) {
  bool mine = axis != AXIS_NONE && has_axis(t, axis);
  put(m->thr, &m->nthr, size, mine ? axis : AXIS_NONE, mine ? stride : 0);
}

static void extents(const Type *t, uint32_t *rows, uint32_t *cols) {
  *rows = t->slice == SLICE_COL ? t->ext[1] : t->ext[0];
  *cols = t->slice == SLICE_COL ? t->ext[0] : t->ext[1];
}

static void factors(const Type *t, uint32_t T, FragMap *m) {
  uint32_t R, C, W = T / 32, V = T / 64;
  extents(t, &R, &C);
#define ROW AXIS_ROW
#define COL AXIS_COL
#define NONE AXIS_NONE
#define REG(size, axis, stride) put_reg(t, m, size, axis, stride);
#define THR(size, axis, stride) put_thr(t, m, size, axis, stride);
#define FRAG(name, id, cols, other, factors) \
  if (t->layout == LY_##id) { \
    factors \
  }
#define SMEM(name, id, panel, shift)
#define TURNED(name, id)
#include "ir/layouts.def"
#undef ROW
#undef COL
#undef NONE
#undef REG
#undef THR
}

static uint32_t count(const Factor *f, uint32_t n) {
  uint32_t all = 1;
  for (uint32_t i = 0; i < n; i++) all *= f[i].size;
  return all;
}

static uint32_t covered(const FragMap *m, uint32_t axis) {
  uint32_t all = 1;
  for (uint32_t i = 0; i < m->nreg; i++)
    if (m->reg[i].axis == axis) all *= m->reg[i].size;
  for (uint32_t i = 0; i < m->nthr; i++)
    if (m->thr[i].axis == axis) all *= m->thr[i].size;
  return all;
}

const char *frag_map(const Type *t, uint32_t threads, FragMap *out) {
  uint32_t R, C;
  *out = (FragMap){.threads = threads};
  if (!threads || threads % 32) return "a group is whole warps";
  extents(t, &R, &C);
  const LayoutInfo *info = &infos[t->layout];
  if (info->other && !(R && C)) return "the slice lacks the other extent";
  if (C && C % info->cols) return "the columns are no multiple of 8 or 16";
  factors(t, threads, out);
  out->regs = count(out->reg, out->nreg);
  bool fits = count(out->thr, out->nthr) == threads &&
              (!has_axis(t, AXIS_ROW) || covered(out, AXIS_ROW) == R) &&
              (!has_axis(t, AXIS_COL) || covered(out, AXIS_COL) == C);
  return fits ? NULL : "the threads do not divide the rows evenly";
}

static void add_digits(const Factor *f, uint32_t n, uint32_t id,
                       uint32_t at[2]) {
  for (uint32_t i = 0; i < n; i++) {
    if (f[i].axis < AXIS_NONE) at[f[i].axis] += id % f[i].size * f[i].stride;
    id /= f[i].size;
  }
}

void frag_at(const FragMap *m, uint32_t reg, uint32_t thread, uint32_t at[2]) {
  at[0] = at[1] = 0;
  add_digits(m->reg, m->nreg, reg, at);
  add_digits(m->thr, m->nthr, thread, at);
}

// Strides of one axis are products of the sizes below: the digit is a quotient.
static uint32_t digits(const Factor *f, uint32_t n, const uint32_t at[2]) {
  uint32_t id = 0, unit = 1;
  for (uint32_t i = 0; i < n; i++) {
    if (f[i].axis < AXIS_NONE)
      id += at[f[i].axis] / f[i].stride % f[i].size * unit;
    unit *= f[i].size;
  }
  return id;
}

void frag_find(const FragMap *m, const uint32_t at[2], uint32_t *thread,
               uint32_t *reg) {
  *thread = digits(m->thr, m->nthr, at);
  *reg = digits(m->reg, m->nreg, at);
}

uint32_t frag_slice_reg(const FragMap *tile, const FragMap *slice,
                        uint32_t axis, uint32_t reg) {
  uint32_t at[2], thread, r;
  frag_at(tile, reg, 0, at);
  at[1 - axis] = 0;
  frag_find(slice, at, &thread, &r);
  return r;
}

bool frag_adds_in_parts(const Type *t, uint32_t threads, uint32_t pos) {
  FragMap m;
  if (frag_map(t, threads, &m)) return false;
  for (uint32_t i = 0; !pos && i < m.nthr; i++)
    if (m.thr[i].axis == AXIS_NONE) return false;
  return true;
}

Type frag_slice(const Type *t, uint32_t pos, bool partial) {
  Type s = *t;
  s.slice = pos ? SLICE_COL : SLICE_ROW;
  s.partial = partial;
  s.n = 1;
  s.ext[0] = t->ext[pos];
  s.ext[1] = infos[t->layout].other ? t->ext[1 - pos] : 0;
  return s;
}

Type frag_join(const Type *a, const Type *b, DType dtype) {
  Type x = *a, y = *b;
  x.dtype = y.dtype = dtype;
  x.partial = y.partial = a->partial || b->partial;
  return type_eq(&x, &y) ? x : (Type){.kind = TK_NONE};
}

// ---------------------------------------------------------------- shared tiles
bool smem_turned(LayoutId id) {
  return infos[id].turned;
}

// Units of 4 rows that a column of a turned tile XORs its own with.
static uint32_t turned_units(const Type *t) {
  uint32_t n = t->ext[0] / 4;
  return n % 16 == 0 ? 16 : common(n, 16);
}

uint32_t smem_turned_mask(const Type *t) {
  return turned_units(t) - 1;
}

uint32_t smem_panel_bytes(const Type *t) {
  uint32_t panel = infos[t->layout].panel;
  return panel ? panel : t->ext[1] * (uint32_t)dtype_size(t->dtype);
}

bool smem_has_whole_panels(const Type *t) {
  uint32_t row = t->ext[1] * (uint32_t)dtype_size(t->dtype);
  uint32_t panel = smem_panel_bytes(t);
  return row <= panel || row % panel == 0;
}

uint32_t smem_swizzle_shift(LayoutId id) {
  return infos[id].shift;
}

uint32_t smem_slot_bytes(const Type *t) {
  uint32_t panel = smem_panel_bytes(t);
  uint32_t row = t->ext[1] * (uint32_t)dtype_size(t->dtype);
  return panel ? t->ext[0] * part(row, panel) * panel : 0;
}

uint32_t smem_bytes(const Type *t) {
  return t->ext[2] * smem_slot_bytes(t);
}

// A copy engine writes boxes of rows at multiples of 128 bytes.
uint32_t smem_align(const Type *t) {
  enum { PATTERN = 1024, BOX = 128, ACCESS = 16 };
  if (t->layout != LY_ROW) return PATTERN;
  return smem_slot_bytes(t) % BOX ? ACCESS : BOX;
}

static uint32_t place_rows(const Func *f, bool rows, uint32_t end,
                           uint32_t *at) {
  for (const Op *op = f->body->first; op; op = op->next) {
    if (op->code != OP_SALLOC || op->nargs) continue;
    const Type *t = ir_type(f, op->res[0]);
    if ((t->layout == LY_ROW) != rows) continue;
    uint32_t align = smem_align(t);
    at[op->res[0]] = (end + align - 1) / align * align;
    end = at[op->res[0]] + smem_bytes(t);
  }
  return end;
}

uint32_t smem_place(const Func *f, uint32_t *at) {
  uint32_t end = place_rows(f, true, place_rows(f, false, 0, at), at);
  for (const Op *op = f->body->first; op; op = op->next)
    if (op->code == OP_SALLOC && op->nargs) at[op->res[0]] = at[op->args[0]];
  return end;
}

uint32_t smem_offset(const Type *t, uint32_t row, uint32_t col) {
  uint32_t panel = smem_panel_bytes(t);
  if (smem_turned(t->layout)) {
    uint32_t swap = (col / 4 ^ col % 4 * 4) & smem_turned_mask(t);
    return col * t->ext[0] * 2 + (row / 4 ^ swap) * 8 + row % 4 * 2;
  }
  uint32_t at = col * (uint32_t)dtype_size(t->dtype), in = at % panel;
  uint32_t base = at / panel * t->ext[0] * panel + row * panel;
  if (!infos[t->layout].panel) return base + in;
  uint32_t mask = panel / 16 - 1;
  uint32_t chunk = (in / 16) ^ (row >> infos[t->layout].shift & mask);
  return base + chunk * 16 + in % 16;
}

const char *smem_error(const Type *t) {
  uint32_t panel = infos[t->layout].panel;
  uint32_t row = t->ext[1] * (uint32_t)dtype_size(t->dtype);
  if (!t->ext[0] || !t->ext[1] || !t->ext[2]) return "has an empty extent";
  if (panel && t->ext[0] % 8) return "has rows that are no multiple of 8";
  if (panel && row % panel) return "has rows that are no multiple of a panel";
  if (smem_turned(t->layout) && (dtype_size(t->dtype) != 2 || t->ext[0] % 4))
    return "is turned, but not of 16-bit elements in fours of rows";
  if (row % 16) return "has rows that are no multiple of 16 bytes";
  return NULL;
}

// Each warp joins a part of a tile, in four turns: of 32 columns or less at
// once.
uint32_t frag_warps_words(const Type *t) {
  enum { TURNS = 4, WARPS = 4, BLOCK = 8, WORDS = 4 };
  uint32_t words = t->slice ? 2 : t->ext[1] / BLOCK * WORDS;
  return !t->slice && words % (TURNS * WARPS) == 0 ? words / TURNS : words;
}

uint32_t frag_warps_bytes(const Type *t) {
  enum { THREADS = 128, WORD = 4 };
  return THREADS * frag_warps_words(t) * WORD;
}

uint32_t frag_peers_bytes(const Func *f, const Op *op) {
  enum { LANES = 32, WARPS = 4, BLOCK = 8, WORDS = 4, WORD = 4 };
  uint32_t words = 0;
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(f, op->res[i]);
    words += t->slice ? 2 : t->ext[1] / BLOCK * WORDS;
  }
  uint32_t warps = ir_attr_i(op, AT_DEALT, 0) ? 1 : WARPS;
  return words * warps * LANES * WORD;
}

typedef struct PeersBytes {
  const Func *f;
  int64_t n;
} PeersBytes;

static void add_peers(void *data, Op *op) {
  PeersBytes *all = data;
  if (op->code == OP_PEERS) all->n += frag_peers_bytes(all->f, op);
}

int64_t frag_peers_all(const Func *f) {
  PeersBytes all = {f, 0};
  ir_walk(f->body, add_peers, &all);
  return all.n;
}

uint32_t smem_skew_bytes(const Op *op, const Type *result) {
  if (!ir_attr_i(op, AT_TRANS, 0)) return 0;
  return result->ext[0] * (result->ext[1] + SKEW_MORE) *
         (uint32_t)dtype_size(result->dtype);
}

// ---------------------------------------------------------------- groups
const Op *ir_launch(const Func *f) {
  const Op *op = f->body->first;
  return op && op->code == OP_LAUNCH ? op : NULL;
}

static uint32_t region_at(const Op *parent, const Region *r) {
  uint32_t i = 0;
  while (i < parent->nregions && parent->regions[i] != r) i++;
  return i;
}

uint32_t ir_group_threads(const Func *f, const Op *op) {
  const Op *launch = ir_launch(f);
  uint32_t cta = launch ? (uint32_t)ir_attr_i(launch, AT_THREADS, 0) : 0;
  const IrAttr *size = launch ? ir_attr(launch, AT_GROUPS) : NULL;
  if (size && size->n) cta = (uint32_t)size->list[0];
  for (const Region *r = op->parent; r && r->parent; r = r->parent->parent) {
    if (r->parent->code != OP_ROLES) continue;
    const IrAttr *g = ir_attr(r->parent, AT_GROUPS);
    uint32_t i = region_at(r->parent, r);
    return g && i < g->n ? (uint32_t)g->list[i] : 0;
  }
  return cta;
}

bool frag_is_group_product(const Type *c, DType t, uint32_t depth) {
  return c->ext[0] % 64 == 0 && c->ext[1] % 8 == 0 &&
         depth * (uint32_t)dtype_size(t) % 32 == 0;
}

bool frag_takes_rows(const Func *f, const Op *op) {
  const Type *a = ir_type(f, op->args[0]), *c = ir_type(f, op->res[0]);
  return op->code == OP_WGMMA && op->nargs > 3 && a->kind == TK_SMEM &&
         ir_attr_i(op, AT_TRANSA, 0) && a->ext[1] > c->ext[0] &&
         a->ext[1] % c->ext[0] == 0 && smem_has_whole_panels(a) &&
         c->ext[0] * (uint32_t)dtype_size(a->dtype) % smem_panel_bytes(a) == 0;
}
