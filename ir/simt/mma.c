// Matrix products in the wave interpreter. Instructions take registers of
// lanes; which element of an operand a register is, their manuals say. Those
// formulas stand here and owe nothing to layouts.def:
//
//   mma m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"), lane l:
//     A register e: row l / 4 + 8 * (e / 2 % 2), k 2 * (l % 4) + e % 2 + 8 * (e / 4)
//     B register e: column l / 4,                k 2 * (l % 4) + e % 2 + 8 * (e / 2)
//     C register e: row l / 4 + 8 * (e / 2),     column 2 * (l % 4) + e % 2
//
// wgmma is four such waves, 16 rows each, with B in shared memory.
//
// AMD (ISA documents of CDNA3, CDNA4, RDNA3, RDNA4), operands' row and k, D's
// row and column:
//
//   MFMA 32x32x8     l % 32, 4 * (l / 32) + e    8 * (e / 4) + 4 * (l / 32) + e % 4, l % 32
//   MFMA 32x32x16    l % 32, 8 * (l / 32) + e    the same
//   WMMA of RDNA3    l % 16, e                   2 * e + l / 16, l % 16
//   8 bits: 32x32x16 l % 32, 8 * (l / 32) + e    the same
//   8 bits: WMMA     l % 16, 8 * (l / 16) + e    as RDNA4
//   WMMA of RDNA4    l % 16, 8 * (e / 4) + 4 * (l / 16) + e % 4    8 * (l / 16) + e, l % 16
//
// There the program's b is the instruction's A, and its a, whose rows are
// lanes, is B. Which key a slot of k is, both operands agree on: runs of
// neighbours in a lane, as the fragment's.
#include "ir/simt/simt.h"

#include <math.h>
#include <string.h>

enum { MAX_M = 32, MAX_K = 16, MAX_SLOTS = 16, MAX_GROUPS = 4 };

// Row (or column) and k of register e of lane l; for a result row and column.
typedef void PlaceFn(uint32_t l, uint32_t e, uint32_t at[2]);

typedef struct Instr {
  uint32_t m, n, k;
  uint32_t a_regs, b_regs, c_regs;  // of a lane
  PlaceFn *a, *b, *c;
} Instr;

static void nv_a(uint32_t l, uint32_t e, uint32_t at[2]) {
  at[0] = l / 4 + 8 * (e / 2 % 2);
  at[1] = 2 * (l % 4) + e % 2 + 8 * (e / 4);
}
static void nv_b(uint32_t l, uint32_t e, uint32_t at[2]) {
  at[0] = l / 4;
  at[1] = 2 * (l % 4) + e % 2 + 8 * (e / 2);
}
static void nv_c(uint32_t l, uint32_t e, uint32_t at[2]) {
  at[0] = l / 4 + 8 * (e / 2);
  at[1] = 2 * (l % 4) + e % 2;
}
static const Instr m16n8k16 = {16, 8, 16, 8, 4, 4, nv_a, nv_b, nv_c};

static void cdna3(uint32_t l, uint32_t e, uint32_t at[2]) {
  at[0] = l % 32;
  at[1] = 4 * (l / 32) + e;
}
static void cdna4(uint32_t l, uint32_t e, uint32_t at[2]) {
  at[0] = l % 32;
  at[1] = 8 * (l / 32) + e;
}
static void rdna4_bytes(uint32_t l, uint32_t e, uint32_t at[2]) {
  at[0] = l % 16;
  at[1] = 8 * (l / 16) + e;
}
static void cdna_d(uint32_t l, uint32_t e, uint32_t at[2]) {
  at[0] = 8 * (e / 4) + 4 * (l / 32) + e % 4;
  at[1] = l % 32;
}
static void rdna3(uint32_t l, uint32_t e, uint32_t at[2]) {
  at[0] = l % 16;
  at[1] = e;
}
static void rdna3_d(uint32_t l, uint32_t e, uint32_t at[2]) {
  at[0] = 2 * e + l / 16;
  at[1] = l % 16;
}
static void rdna4(uint32_t l, uint32_t e, uint32_t at[2]) {
  at[0] = l % 16;
  at[1] = 8 * (e / 4) + 4 * (l / 16) + e % 4;
}
static void rdna4_d(uint32_t l, uint32_t e, uint32_t at[2]) {
  at[0] = 8 * (l / 16) + e;
  at[1] = l % 16;
}
static const struct {
  uint32_t cc;
  Instr instr;
} amd_units[] = {
    {0x90a, {32, 32, 8, 4, 4, 16, cdna3, cdna3, cdna_d}},
    {0x942, {32, 32, 8, 4, 4, 16, cdna3, cdna3, cdna_d}},
    {0x950, {32, 32, 16, 8, 8, 16, cdna4, cdna4, cdna_d}},
    {0x1100, {16, 16, 16, 16, 16, 8, rdna3, rdna3, rdna3_d}},
    {0x1201, {16, 16, 16, 8, 8, 8, rdna4, rdna4, rdna4_d}},
};

// Products of 8-bit floats.
static const struct {
  uint32_t cc;
  Instr instr;
} amd_bytes[] = {
    {0x942, {32, 32, 16, 8, 8, 16, cdna4, cdna4, cdna_d}},
    {0x950, {32, 32, 16, 8, 8, 16, cdna4, cdna4, cdna_d}},
    {0x1201, {16, 16, 16, 8, 8, 8, rdna4_bytes, rdna4_bytes, rdna4_d}},
};

// What lanes have of an operand, by register.
typedef double Registers[MAX_LANES][MAX_SLOTS];

typedef uint8_t PlaceTable[MAX_LANES][MAX_SLOTS][2];

// What the formulas say, for all registers of all lanes.
struct Unit {
  const Instr *in;
  uint32_t lanes;
  PlaceTable a, b, c;
};

static void fill_places(PlaceFn *place, uint32_t lanes, uint32_t regs,
                        PlaceTable t) {
  uint32_t at[2];
  for (uint32_t l = 0; l < lanes; l++)
    for (uint32_t e = 0; e < regs; e++) {
      place(l, e, at);
      t[l][e][0] = (uint8_t)at[0];
      t[l][e][1] = (uint8_t)at[1];
    }
}

static const Unit *unit_of(WaveRun *x, const Instr *in) {
  for (uint32_t i = 0; i < x->units.n; i++)
    if (x->units.at[i]->in == in) return x->units.at[i];
  Unit *u = NEW(x->in->arena, Unit);
  u->in = in;
  u->lanes = x->lanes;
  fill_places(in->a, x->lanes, in->a_regs, u->a);
  fill_places(in->b, x->lanes, in->b_regs, u->b);
  fill_places(in->c, x->lanes, in->c_regs, u->c);
  vec_push(x->in->arena, &x->units, u);
  return u;
}

// The element of row i and k: at[i * by_row + k * by_k].
typedef struct Matrix {
  double at[MAX_M * MAX_M];
  uint32_t by_row, by_k;
} Matrix;

// An operand from registers. Lanes that hold the same element (RDNA3) must
// agree.
static void collect(const PlaceTable place, uint32_t regs, uint32_t lanes,
                    const Registers from, Matrix *to, bool shared) {
  bool seen[MAX_M * MAX_M];
  if (shared) memset(seen, 0, sizeof seen);
  for (uint32_t l = 0; l < lanes; l++)
    for (uint32_t e = 0; e < regs; e++) {
      uint32_t at = place[l][e][0] * to->by_row + place[l][e][1] * to->by_k;
      double v = from[l][e];
      if (shared && seen[at] && to->at[at] != v) v = NAN;
      if (shared) seen[at] = true;
      to->at[at] = v;
    }
}

// EIGHT neighbours of a row of a b, summed in order of k.
enum { EIGHT = 8 };
static void row_sums(const double *a, const double *b, uint32_t k,
                     double *sum) {
  double x[EIGHT] = {0};
  for (uint32_t i = 0; i < k; i++, b += MAX_M)
    for (uint32_t c = 0; c < EIGHT; c++) x[c] += a[i] * b[c];
  memcpy(sum, x, sizeof x);
}

// c += a b, where c are the lanes' registers: c[reg * lanes + lane]. What an
// instruction adds is rounded to f32.
static void execute(const Unit *u, const Matrix *a, const Matrix *b,
                    double *c) {
  const Instr *i = u->in;
  double sum[MAX_M][MAX_M];
  for (uint32_t r = 0; r < i->m; r++)
    for (uint32_t n = 0; n < i->n; n += EIGHT)
      row_sums(&a->at[r * MAX_K], &b->at[n], i->k, &sum[r][n]);
  for (uint32_t e = 0; e < i->c_regs; e++)
    for (uint32_t l = 0; l < u->lanes; l++, c++)
      *c = (double)(float)(*c + sum[u->c[l][e][0]][u->c[l][e][1]]);
}

// ---------------------------------------------------------------- operands
typedef struct Product {
  const Op *op;
  const Type *at, *bt, *ct;
  bool ta, tb, async;
  Dense a, b;        // as stored; a.at NULL: registers
  uint32_t k, rows;  // rows of all waves together
  uint32_t from;     // of b: its first column, or row
  uint32_t from_a;   // of a: its first row
  uint32_t from_k;   // and the first that is summed
  bool dealt;        // waves have the same rows of a, and their own of b
  const IrAttr *spans;
} Product;

// All of a shared tile, read by this wave.
static Dense tile(Wave *w, const Op *op, Value v, bool async) {
  const Type *t = simt_type(w, v);
  Dense d = {t->ext[0], t->ext[1],
             NEWN(&wave_in(w)->cx->scratch, double, t->ext[0] * t->ext[1])};
  simt_read_tile(w, op, v, async, d.at);
  return d;
}

// The first of b's columns or rows, or of a's rows.
static uint32_t first_of(Wave *w, const Op *op) {
  return op->nargs > 3 ? (uint32_t)simt_scalar(w, op->args[3]) : 0;
}

static double stored(const Dense *d, bool turned, uint32_t i, uint32_t k) {
  return turned ? d->at[k * d->cols + i] : d->at[i * d->cols + k];
}

static Product product_of(Wave *w, const Op *op) {
  Product p = {.op = op,
               .at = simt_type(w, op->args[0]),
               .bt = simt_type(w, op->args[1]),
               .ct = simt_type(w, op->res[0]),
               .ta = ir_attr_i(op, AT_TRANSA, 0),
               .tb = ir_attr_i(op, AT_TRANS, 0),
               .async = op->code == OP_WGMMA};
  p.k = p.at->ext[p.ta ? 0 : 1];
  *(frag_takes_rows(wave_in(w)->f, op) ? &p.from_a : &p.from) = first_of(w, op);
  if (p.async) p.from_k = (uint32_t)ir_attr_i(op, AT_POS, 0);
  p.rows = 16 * w->grp->waves;
  p.dealt = ir_attr_i(op, AT_DEALT, 0);
  if (p.dealt) *(p.tb ? &p.from_k : &p.from) += 16 * (w->id - w->grp->first);
  p.spans = ir_attr(op, AT_SPANS);
  return p;
}

static void read_tiles(Wave *w, Product *p) {
  if (p->at->kind != TK_FRAG) p->a = tile(w, p->op, p->op->args[0], p->async);
  p->b = tile(w, p->op, p->op->args[1], p->async);
}

// The result's registers begin as the addend, or 0.
static WaveVal *begin(Wave *w, const Product *p) {
  const Op *op = p->op;
  const WaveVal *c = op->nargs > 2 ? &w->val[op->args[2]] : NULL;
  if (c && c->flying && !p->async) simt_val(w, op->args[2]);
  WaveVal *r = simt_define(w, op->res[0]);
  uint32_t n = r->regs * w->cta->x->lanes;
  if (c) memcpy(r->at, c->at, n * sizeof *r->at);
  else memset(r->at, 0, n * sizeof *r->at);
  return r;
}

// ---------------------------------------------------------------- 16 bits
// A of row block i, step s: the fragment's next registers, or rows of a tile.
static void load_a(Wave *w, const Unit *u, const Product *p, uint32_t i,
                   uint32_t s, Matrix *to) {
  const Instr *in = u->in;
  uint32_t row0 = p->from_a + i * p->rows;
  if (!p->dealt) row0 += in->m * (w->id - w->grp->first);
  for (uint32_t r = 0; r < in->m && p->a.at; r++)
    for (uint32_t k = 0; k < in->k; k++)
      to->at[r * MAX_K + k] = stored(&p->a, p->ta, row0 + r, s * in->k + k);
  if (p->a.at) return;
  uint32_t first = (i * (p->k / in->k) + s) * in->a_regs;
  const double *x = simt_val(w, p->op->args[0])->at + first * u->lanes;
  for (uint32_t e = 0; e < in->a_regs; e++)
    for (uint32_t l = 0; l < u->lanes; l++)
      to->at[u->a[l][e][0] * MAX_K + u->a[l][e][1]] = x[e * u->lanes + l];
}

static void load_b(const Instr *in, const Product *p, uint32_t n0, uint32_t s,
                   Matrix *to) {
  for (uint32_t k = 0; k < in->k; k++)
    for (uint32_t n = 0; n < in->n; n++)
      to->at[k * MAX_M + n] =
          stored(&p->b, p->tb, p->from + n0 + n, p->from_k + s * in->k + k);
}

// Outside of its columns a block of 16 is said to add zeros.
static bool counts(const Product *p, uint32_t col, uint32_t k) {
  const int64_t *span = p->spans ? p->spans->list + k / 16 * 2 : NULL;
  return !span || (span[0] <= col && col < span[1]);
}

static void by_instructions(Wave *w, const Instr *in, const Product *p,
                            WaveVal *r) {
  const Unit *u = unit_of(w->cta->x, in);
  uint32_t cols = p->ct->ext[1] / in->n, block = in->c_regs * u->lanes;
  Matrix a, b;
  for (uint32_t i = 0; i < p->ct->ext[0] / p->rows; i++)
    for (uint32_t s = 0; s < p->k / in->k; s++) {
      load_a(w, u, p, i, s, &a);
      for (uint32_t j = 0; j < cols; j++) {
        if (!counts(p, j * in->n, s * in->k)) continue;
        load_b(in, p, j * in->n, s, &b);
        execute(u, &a, &b, r->at + (i * cols + j) * block);
      }
    }
}

// ---------------------------------------------------------------- AMD
typedef struct Slots {
  uint32_t run, groups;  // neighbours in a lane; lanes that share a row
  uint32_t n;            // a lane's elements of a row
  uint32_t at;           // the first that an instruction takes,
  uint32_t key[MAX_GROUPS][MAX_SLOTS];  // and keys of those
  bool halves;  // sums of RDNA3: lane l ^ 16 has the others
} Slots;

// By name: how the fragments of these layouts are operands.
static const struct {
  const char *layout;
  uint32_t run;
  bool all, halves;  // all: each lane has all of k
} forms[] = {
    {"mfma32", 4, false, false}, {"mfmak", 8, false, false},
    {"wmma12", 8, false, false}, {"wmmak", 16, true, false},
    {"wmma11", 16, true, true},  {"mfma8", 16, false, false},
    {"wmma8", 16, false, false},
};

static Slots slots_of(const Instr *in, const Product *p, uint32_t lanes) {
  const char *name = layout_name(p->at->layout);
  bool wide = in->a_regs == 16;  // a shared tile: as from memory
  Slots s = {.run = wide ? 16 : 8, .groups = wide ? 1 : lanes / in->m};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (p->at->kind == TK_FRAG && strcmp(forms[i].layout, name) == 0)
      s = (Slots){.run = forms[i].run,
                  .halves = forms[i].halves,
                  .groups = forms[i].all ? 1 : lanes / in->m};
  s.n = p->k / s.groups;
  return s;
}

static uint32_t key_of(const Slots *s, uint32_t group, uint32_t slot) {
  group = s->groups > 1 ? group : 0;
  return s->run * (slot / s->run * s->groups + group) + slot % s->run;
}

static void find_keys(Slots *s, uint32_t groups, uint32_t regs) {
  for (uint32_t g = 0; g < groups; g++)
    for (uint32_t e = 0; e < regs; e++) s->key[g][e] = key_of(s, g, s->at + e);
}

// The program's a of row block i: the instruction's B.
static void load_left(Wave *w, const Unit *u, const Product *p, const Slots *s,
                      uint32_t i, Registers to) {
  const Instr *in = u->in;
  uint32_t lanes = u->lanes, at[2];
  const WaveMap *m = simt_map(w, p->op->res[0], p->ct);
  const WaveVal *x = p->a.at ? NULL : simt_val(w, p->op->args[0]);
  for (uint32_t l = 0; l < lanes; l++)
    for (uint32_t e = 0; e < in->b_regs; e++) {
      uint32_t key = s->key[l / in->n][e], from = l;
      uint32_t reg = i * s->n + s->at + e;
      if (s->halves) {
        reg = (i * p->k + key) / 2;
        from = l % 16 + 16 * (key % 2);
      }
      if (x) {
        to[l][e] = x->at[reg * lanes + from];
        continue;
      }
      simt_at(m, i * p->ct->ext[1] * in->n / lanes, wave_thread(w, l), at);
      to[l][e] = stored(&p->a, p->ta, at[0], key);
    }
}

static void load_right(const Unit *u, const Product *p, const Slots *s,
                       uint32_t n0, Registers to) {
  uint32_t m = u->in->m;
  for (uint32_t l = 0; l < u->lanes; l++)
    for (uint32_t e = 0; e < u->in->a_regs; e++)
      to[l][e] = stored(&p->b, p->tb, n0 + l % m, s->key[l / m][e]);
}

static void by_amd(Wave *w, const Instr *in, const Product *p, WaveVal *r) {
  const Unit *u = unit_of(w->cta->x, in);
  uint32_t lanes = u->lanes, cols = p->ct->ext[1] / in->m;
  uint32_t block = in->c_regs * lanes, rows = r->regs / in->c_regs / cols;
  uint32_t least = in->m < in->n ? in->m : in->n;
  bool left_twice = lanes * in->b_regs > in->n * in->k;
  bool right_twice = lanes * in->a_regs > in->m * in->k;
  Slots s = slots_of(in, p, lanes);
  Matrix a = {.by_row = MAX_K, .by_k = 1}, b = {.by_row = 1, .by_k = MAX_M};
  Registers regs;
  for (uint32_t i = 0; i < rows; i++)
    for (s.at = 0; s.at < s.n; s.at += in->a_regs) {
      find_keys(&s, lanes / least, in->a_regs);
      load_left(w, u, p, &s, i, regs);
      collect(u->b, in->b_regs, lanes, regs, &b, left_twice);
      for (uint32_t j = 0; j < cols; j++) {
        load_right(u, p, &s, j * in->m, regs);
        collect(u->a, in->a_regs, lanes, regs, &a, right_twice);
        execute(u, &a, &b, r->at + (i * cols + j) * block);
      }
    }
}

static bool is_bytes(const Product *p) {
  return dtype_is_float(p->at->dtype) && dtype_size(p->at->dtype) == 1;
}

static const Instr *amd_unit(const Wave *w, const Product *p) {
  uint32_t cc = w->cta->x->target->gpu.cc;
  for (size_t i = 0; i < sizeof amd_bytes / sizeof *amd_bytes; i++)
    if (is_bytes(p) && amd_bytes[i].cc == cc) return &amd_bytes[i].instr;
  for (size_t i = 0; i < sizeof amd_units / sizeof *amd_units; i++)
    if (amd_units[i].cc == cc) return &amd_units[i].instr;
  return NULL;
}

// ---------------------------------------------------------------- others
// The sum of n numbers as wgmma makes it of 8-bit floats: all are aligned to
// the largest, of which 13 bits behind the first one stay.
static double add_aligned(const double *x, uint32_t n) {
  enum { KEPT = 13 };
  double most = 0, sum = 0;
  int e;
  for (uint32_t i = 0; i < n; i++) {
    if (!isfinite(x[i])) most = INFINITY;
    most = fmax(most, fabs(x[i]));
  }
  frexp(most, &e);
  double unit = ldexp(1, e - 1 - KEPT);
  for (uint32_t i = 0; i < n; i++)
    sum += isfinite(most) && most > 0 ? trunc(x[i] / unit) * unit : x[i];
  return (double)(float)sum;
}

// Steps of 32 bytes.
static double by_bytes(const double *a, const double *b, uint32_t k, double c) {
  enum { STEP = 32 };
  double x[STEP + 1];
  for (uint32_t s = 0; s < k; s += STEP) {
    for (uint32_t i = 0; i < STEP; i++) x[i] = a[s + i] * b[s + i];
    x[STEP] = c;
    c = add_aligned(x, STEP + 1);
  }
  return c;
}

// Fused multiply-adds, in f32.
static void by_elements(Wave *w, const Product *p, WaveVal *r) {
  const WaveMap *m = simt_map(w, p->op->res[0], p->ct);
  uint32_t lanes = w->cta->x->lanes, at[2];
  const double *a[MAX_LANES], *b[MAX_LANES];
  size_t a_step = p->ta ? p->a.cols : 1, b_step = p->tb ? p->b.cols : 1;
  for (uint32_t i = 0; i < r->regs; i++) {
    double *c = &r->at[i * lanes];
    for (uint32_t l = 0; l < lanes; l++) {
      simt_at(m, i, wave_thread(w, l), at);
      a[l] = &p->a.at[at[0] * (p->ta ? 1 : p->a.cols)];
      b[l] = &p->b.at[at[1] * (p->tb ? 1 : p->b.cols)];
    }
    bool bytes = p->async && is_bytes(p);
    for (uint32_t l = 0; l < lanes && bytes; l++)
      c[l] = by_bytes(a[l], b[l], p->k, c[l]);
    for (uint32_t k = 0; k < p->k && !bytes; k++)
      for (uint32_t l = 0; l < lanes; l++)
        c[l] = (double)(float)(c[l] + a[l][k * a_step] * b[l][k * b_step]);
  }
}

// A fragment that no instruction takes: through memory, by the whole group.
static void all_by_elements(Wave *w, uint32_t n, const Op *op) {
  Arena *a = &wave_in(w)->cx->scratch;
  ArenaMark mark = arena_mark(a);
  Dense dense = simt_dense(w, n, op->args[0]);
  for (uint32_t i = 0; i < n && !wave_in(w)->failed; i++) {
    Product p = product_of(&w[i], op);
    read_tiles(&w[i], &p);
    p.a = dense;
    by_elements(&w[i], &p, begin(&w[i], &p));
  }
  arena_reset(a, mark);
}

static bool fast(const Wave *w, const Product *p) {
  bool half = p->at->dtype == DT_BF16 || p->at->dtype == DT_F16 ||
              (is_bytes(p) && p->at->kind == TK_FRAG);
  const Instr *amd = amd_unit(w, p);
  if (amd) {
    Slots s = slots_of(amd, p, w->cta->x->lanes);
    uint32_t span = s.run > amd->a_regs ? s.run : amd->a_regs;
    return half && s.n % span == 0 && p->ct->ext[1] % amd->m == 0;
  }
  return half && !is_bytes(p) && p->k % 16 == 0 &&
         p->ct->ext[0] % p->rows == 0 && (p->async || p->ct->ext[1] % 16 == 0);
}

static void run(Wave *w, Product *p) {
  Arena *a = &wave_in(w)->cx->scratch;
  ArenaMark mark = arena_mark(a);
  read_tiles(w, p);
  WaveVal *r = begin(w, p);
  if (wave_in(w)->failed) return;
  if (fast(w, p) && amd_unit(w, p)) by_amd(w, amd_unit(w, p), p, r);
  else if (fast(w, p)) by_instructions(w, &m16n8k16, p, r);
  else by_elements(w, p, r);
  arena_reset(a, mark);
}

static bool mma(Wave *w, const Op *op) {
  Product p = product_of(w, op);
  if (p.at->kind == TK_FRAG && !fast(w, &p))
    return simt_together(w, op, all_by_elements);
  run(w, &p);
  return true;
}

// ---------------------------------------------------------------- wgmma
static void hold(Wave *w, Value v) {
  const Type *t = simt_type(w, v);
  if (t->kind != TK_SMEM) return;
  Hold h = {.type = t, .base = w->val[v].base, .group = w->wg_group};
  simt_hold(w, t, h.base, 1);
  vec_push(w->cta->x->arena, &w->holds, h);
}

// The registers that the product takes were written before the last fence,
// but for sums that another product of the chain makes.
static void check_fence(Wave *w, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i += 2) {
    const WaveVal *x = &w->val[op->args[i]];
    if (simt_type(w, op->args[i])->kind != TK_FRAG) continue;
    if (i == 0 && x->flying) simt_val(w, op->args[i]);
    if (!x->flying && x->tick >= w->wg_fence)
      simt_fail(w, op, "takes registers that are written after wg_fence");
  }
  if (!w->wg_fence) simt_fail(w, op, "comes before any wg_fence");
}

static bool wgmma(Wave *w, const Op *op) {
  Product p = product_of(w, op);
  check_fence(w, op);
  run(w, &p);
  w->val[op->res[0]].flying = w->wg_group;
  hold(w, op->args[0]);
  hold(w, op->args[1]);
  return true;
}

static bool wg_commit(Wave *w, const Op *op) {
  (void)op;
  w->wg_group++;
  return true;
}

static bool wg_wait(Wave *w, const Op *op) {
  uint32_t keep = (uint32_t)ir_attr_i(op, AT_PENDING, 0), n = 0;
  for (uint32_t i = 0; i < w->holds.n; i++) {
    Hold h = w->holds.at[i];
    if (h.group + keep < w->wg_group) simt_hold(w, h.type, h.base, -1);
    else w->holds.at[n++] = h;
  }
  w->holds.n = n;
  for (uint32_t i = 0; i < op->nres; i++) {
    const WaveVal *x = &w->val[op->args[i]];
    if (x->flying && x->flying + keep >= w->wg_group)
      simt_fail(w, op, "a result is of a product that may not be done");
    uint64_t tick = x->tick;
    WaveVal *r = simt_define(w, op->res[i]);
    memcpy(r->at, x->at, r->regs * w->cta->x->lanes * sizeof *r->at);
    r->tick = tick;
  }
  return true;
}

WaveFn *simt_mma_fn(OpCode c) {
  static WaveFn *const fn[OP_COUNT] = {
      [OP_MMA] = mma,
      [OP_WGMMA] = wgmma,
      [OP_WG_COMMIT] = wg_commit,
      [OP_WG_WAIT] = wg_wait,
  };
  return fn[c];
}
