// Products on AMD's matrix units: MFMA 32 x 32 of CDNA, WMMA 16 x 16 of RDNA.
// The instruction gets b {n, k} as its A and a {m, k} as its B and gives the
// sums transposed: a row m, a query, is one lane's. So the sums' 16-bit form is
// an operand of the next product as it is. Products do not care for the order
// of k as long as both operands have the same; it is that of a's fragment: runs
// of `run` elements in a lane, one for each of the lanes of a row. Operands of
// 8 bits come from memory, as foperand made them.
#include "codegen/amd/amd.h"

#include <stdio.h>

typedef struct Shape {
  uint32_t k;  // elements of k that a lane has of an operand
  const char *f16, *bf16;
  bool bfloat, flags;  // the bf16 operand is of bfloat; takes cbsz abid blgp
  uint32_t k8;         // the same of 8-bit floats, 0: no such products
  const char *f8;      // with %s for the formats
  uint32_t mixed;      // b has so many registers in products of weights that
                       // mix with the arithmetic in front of them
} Shape;

static const struct {
  uint32_t cc;
  Shape shape;
} shapes[] = {
    {0x90a,
     {4, "llvm.amdgcn.mfma.f32.32x32x8f16",
      "llvm.amdgcn.mfma.f32.32x32x8bf16.1k", false, true, 0, NULL, 0}},
    {0x942,
     {4, "llvm.amdgcn.mfma.f32.32x32x8f16",
      "llvm.amdgcn.mfma.f32.32x32x8bf16.1k", false, true, 8,
      "llvm.amdgcn.mfma.f32.32x32x16.%s.%s", 0}},
    {0x950,
     {8, "llvm.amdgcn.mfma.f32.32x32x16.f16",
      "llvm.amdgcn.mfma.f32.32x32x16.bf16", true, true, 8,
      "llvm.amdgcn.mfma.f32.32x32x16.%s.%s", 64}},
    {0x1100,
     {16, "llvm.amdgcn.wmma.f32.16x16x16.f16",
      "llvm.amdgcn.wmma.f32.16x16x16.bf16", false, false, 0, NULL, 0}},
    {0x1201,
     {8, "llvm.amdgcn.wmma.f32.16x16x16.f16",
      "llvm.amdgcn.wmma.f32.16x16x16.bf16", false, false, 8,
      "llvm.amdgcn.wmma.f32.16x16x16.%s.%s", 0}},
};

// This lane's first run of a shared operand.
typedef struct Lane {
  LdsPlace at;
  bool trans;  // the tile is {k, row}
} Lane;

typedef struct Mma {
  Gpu *n;
  const Product *p;
  const Shape *shape;
  uint32_t rows;        // of an instruction, and columns
  uint32_t k, per;      // elements of k that a lane has; elements of a word
  uint32_t run, lanes;  // elements of a run; lanes that share a row
  uint32_t span;        // elements of k of a step: of one instruction or more
  V group;              // of this lane: which run of a row
  Lane a, b;
} Mma;

static const Shape *shape_of(const Gpu *n) {
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (shapes[i].cc == n->gpu.cc) return &shapes[i].shape;
  return NULL;
}

// ---------------------------------------------------------------- operands
static V pointer(Mma *m, const Lane *l, uint32_t row, uint32_t k) {
  return l->trans ? amd_at(m->n, &l->at, k, row) : amd_at(m->n, &l->at, row, k);
}

// Words at p.
static void load_words(Mma *m, V p, uint32_t count, V *out) {
  Gpu *n = m->n;
  LLVMTypeRef i32 = gpu_i32t(n),
              t = count > 1 ? LLVMVectorType(i32, count) : i32;
  V v = LLVMBuildLoad2(n->g->b, t, p, "");
  LLVMSetAlignment(v, 4 * count);
  amd_apart(n, v, "noalias");
  for (uint32_t i = 0; i < count; i++)
    out[i] =
        count > 1 ? LLVMBuildExtractElement(n->g->b, v, gpu_i32(n, i), "") : v;
}

// Four elements of a row of this lane, from a tile stored {k, row} by rows: the
// lanes of a group of 16 address 4 rows of 16 elements and get a column each.
static void load_turning(Mma *m, V p, V *out) {
  Gpu *n = m->n;
  Cg *g = n->g;
  LLVMTypeRef v4 = LLVMVectorType(LLVMInt16TypeInContext(g->lc), 4);
  V v = gpu_call_over(n, "llvm.amdgcn.ds.read.tr16.b64", v4, &p, 1);
  amd_apart(n, v, "noalias");
  v = LLVMBuildBitCast(g->b, v, LLVMVectorType(gpu_i32t(n), 2), "");
  for (uint32_t i = 0; i < 2; i++)
    out[i] = LLVMBuildExtractElement(g->b, v, gpu_i32(n, i), "");
}

// LDS is read transposed by instructions for it.
static bool turns(const Gpu *n, const Type *t, bool trans) {
  return trans && n->gpu.cc == 0x950 && !smem_turned(t->layout);
}

// row: this lane's, of rows that an instruction has.
static Lane lane_of(Mma *m, Tile s, const Type *t, bool trans, V row) {
  Gpu *n = m->n;
  Cg *g = n->g;
  V k = gpu_mul(n, m->group, m->run);
  if (turns(n, t, trans)) {
    V in = e_and(g, n->grp.lane, gpu_i32(n, 15));
    k = gpu_add(n, k, e_shr(g, in, 2));
    V turned = e_shl(g, e_and(g, in, gpu_i32(n, 3)), 2);
    row = gpu_add(n, e_isub(g, row, in), turned);
  }
  return (Lane){amd_place(n, s, t, trans ? k : row, trans ? row : k), trans};
}

// Two elements as a word, from anywhere.
static V load_pair(Mma *m, const Lane *l, uint32_t row, uint32_t k) {
  Cg *g = m->n->g;
  V w = NULL;
  for (uint32_t i = 0; i < 2; i++) {
    V x = LLVMBuildLoad2(g->b, LLVMInt16TypeInContext(g->lc),
                         pointer(m, l, row, k + i), "");
    x = LLVMBuildZExt(g->b, x, gpu_i32t(m->n), "");
    w = w ? e_or(g, w, e_shl(g, x, 16)) : x;
  }
  return w;
}

// The run of rows row .. at k ..: of all lanes.
static void load_run(Mma *m, const Lane *l, uint32_t row, uint32_t k, V *out) {
  bool turned = smem_turned(l->at.t->layout);
  uint32_t most = 4 * m->per, piece = l->trans        ? 4
                                      : m->run < most ? m->run
                                                      : most;
  for (uint32_t i = 0; i < m->run; i += piece) {
    V *to = out + i / m->per;
    if (turns(m->n, l->at.t, l->trans)) {
      load_turning(m, pointer(m, l, row, k + i), to);
    } else if (!l->trans || turned) {
      load_words(m, pointer(m, l, row, k + i), piece / m->per, to);
    } else {
      to[0] = load_pair(m, l, row, k + i);
      to[1] = load_pair(m, l, row, k + i + 2);
    }
  }
}

// All runs of a step.
static void load_step(Mma *m, const Lane *l, uint32_t row, uint32_t step,
                      V *out) {
  uint32_t runs = m->span / m->run;
  for (uint32_t i = 0; i < runs; i++)
    load_run(m, l, row, (step * runs + i) * m->run * m->lanes,
             out + i * m->run / m->per);
}

// gfx11: sums hold every other k of a row, the other half of the wave the rest;
// operands want all of them, in both halves.
static void exchange_halves(Mma *m, const V *own, V *out) {
  Gpu *n = m->n;
  Cg *g = n->g;
  V odd = e_icmp(g, LLVMIntNE, e_and(g, n->grp.lane, gpu_i32(n, 16)),
                 gpu_i32(n, 0));
  V lo = e_sel(g, odd, gpu_i32(n, 0x05040100), gpu_i32(n, 0x01000504));
  V hi = e_sel(g, odd, gpu_i32(n, 0x07060302), gpu_i32(n, 0x03020706));
  for (uint32_t i = 0; i < 4; i++) {
    V other = n->vendor->exchange(n, own[i], 16);
    V a[3] = {own[i], other, lo}, b[3] = {own[i], other, hi};
    out[2 * i] = gpu_call(n, "llvm.amdgcn.perm", a, 3);
    out[2 * i + 1] = gpu_call(n, "llvm.amdgcn.perm", b, 3);
  }
}

// a's words of row block i, a step.
static void left(Mma *m, uint32_t i, uint32_t step, V *out) {
  const Product *p = m->p;
  uint32_t words = m->span / m->per;
  if (p->areg && p->at->layout == LY_WMMA11) {
    exchange_halves(m, p->areg->w + (i * (p->k / 16) + step) * 4, out);
    return;
  }
  if (p->areg) {
    uint32_t steps = p->k / (m->span * m->lanes);
    memcpy(out, p->areg->w + (i * steps + step) * words, words * sizeof *out);
    return;
  }
  // Row blocks are as far apart as all warps are high.
  load_step(m, &m->a, i * p->rows, step, out);
}

// ---------------------------------------------------------------- product
static V operand(Mma *m, const V *words) {
  Gpu *n = m->n;
  Cg *g = n->g;
  uint32_t count = m->k / m->per;
  bool f16 = m->p->at->dtype == DT_F16;
  LLVMTypeRef e = f16                ? LLVMHalfTypeInContext(g->lc)
                  : m->shape->bfloat ? LLVMBFloatTypeInContext(g->lc)
                                     : LLVMInt16TypeInContext(g->lc);
  V v = LLVMGetPoison(LLVMVectorType(gpu_i32t(n), count));
  for (uint32_t i = 0; i < count; i++)
    v = LLVMBuildInsertElement(g->b, v, words[i], gpu_i32(n, i), "");
  if (m->per == 2)
    return LLVMBuildBitCast(g->b, v, LLVMVectorType(e, 2 * count), "");
  bool mfma = n->gpu.wave == 64 && count == 2;
  return mfma ? LLVMBuildBitCast(g->b, v, LLVMInt64TypeInContext(g->lc), "")
              : v;
}

// A and B are the program's b and a.
static V multiply_bytes(Mma *m, V a, V b, V c) {
  Gpu *n = m->n;
  Cg *g = n->g;
  bool x = m->p->bt->dtype == DT_F8E5M2, y = m->p->at->dtype == DT_F8E5M2;
  LLVMTypeRef over[2] = {cg_of(c), cg_of(a)};
  V none = gpu_i32(n, 0), all[6] = {a, b, c, none, none, none};
  char name[64];
  snprintf(name, sizeof name, m->shape->f8, x ? "bf8" : "fp8",
           y ? "bf8" : "fp8");
  uint32_t args = m->shape->flags ? 6 : 3, types = 0;
  if (n->gpu.wave == 32) types = 2;
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  V f = LLVMGetIntrinsicDeclaration(g->mod, id, over, types);
  LLVMTypeRef t = LLVMIntrinsicGetType(g->lc, id, over, types);
  return LLVMBuildCall2(g->b, t, f, all, args, "");
}

static V multiply(Mma *m, V a, V b, V c) {
  if (m->per == 4) return multiply_bytes(m, a, b, c);
  Gpu *n = m->n;
  bool f16 = m->p->at->dtype == DT_F16;
  V x[6] = {a, b, c, gpu_i32(n, 0), gpu_i32(n, 0), gpu_i32(n, 0)};
  const char *name = f16 ? m->shape->f16 : m->shape->bf16;
  if (m->shape->flags) return gpu_call(n, name, x, 6);
  LLVMTypeRef over[2] = {cg_of(c), cg_of(a)};
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  V f = LLVMGetIntrinsicDeclaration(n->g->mod, id, over, 2);
  LLVMTypeRef t = LLVMIntrinsicGetType(n->g->lc, id, over, 2);
  return LLVMBuildCall2(n->g->b, t, f, x, 3, "");
}

static V gather(Gpu *n, const V *w, uint32_t count) {
  LLVMTypeRef f32 = LLVMFloatTypeInContext(n->g->lc);
  V v = LLVMGetPoison(LLVMVectorType(f32, count));
  for (uint32_t i = 0; i < count; i++)
    v = LLVMBuildInsertElement(n->g->b, v, w[i], gpu_i32(n, i), "");
  return v;
}

static void step_of(Mma *m, uint32_t s, V *sums, uint32_t rblocks,
                    uint32_t cblocks) {
  uint32_t words = m->span / m->per, one = m->k / m->per;
  V *a = NEWN(&m->n->g->cx->scratch, V, rblocks * words), b[8];
  for (uint32_t i = 0; i < rblocks; i++) left(m, i, s, a + i * words);
  for (uint32_t j = 0; j < cblocks; j++) {
    load_step(m, &m->b, j * m->rows, s, b);
    for (uint32_t i = 0; i < rblocks; i++)
      for (uint32_t k = 0; k < words; k += one) {
        V *sum = &sums[i * cblocks + j], y = operand(m, a + i * words + k);
        *sum = multiply(m, operand(m, b + k), y, *sum);
      }
  }
}

// Elements of a run, and whether both lanes of a row hold all of k.
static uint32_t run_of(const Product *p, uint32_t cc, bool *copies) {
  LayoutId l = p->areg ? p->at->layout : cc == 0x1100 ? LY_WMMAK : LY_MFMAK;
  *copies = l == LY_WMMAK || l == LY_WMMA11;
  if (l == LY_MFMA8 || l == LY_WMMA8) return 16;
  return *copies ? 16 : l == LY_MFMA32 ? 4 : 8;
}

// Bytes that are multiplied mean halves: what they lack, and what was there.
static void make_whole(Mma *m, Frag *r, const V *was) {
  Cg *g = m->n->g;
  for (uint32_t i = 0; i < r->map.regs; i++) {
    V four = cg_fconst(g, cg_of(r->w[i]), 4);
    r->w[i] = m->p->op->nargs > 2 ? cg_mad(g, r->w[i], four, was[i])
                                  : e_mul(g, r->w[i], four);
  }
}

static bool takes(const Gpu *n, const Product *p, Mma *m) {
  DType t = p->at->dtype;
  m->shape = shape_of(n);
  if (!m->shape) return false;
  bool bytes = dtype_is_float(t) && dtype_size(t) == 1;
  m->per = bytes ? 4 : 2;
  m->k = bytes ? m->shape->k8 : m->shape->k;
  return m->k && (bytes ? p->areg && !p->tb : t == DT_BF16 || t == DT_F16);
}

// Operands read before arithmetic in front of the product would fill the
// registers. Weights and their products may mix where they just fit: smaller
// ones would take the registers of a third wave.
static void order(const Mma *m) {
  enum { NONE = 0, NO_MEMORY = 0x78f };  // what may pass
  Gpu *n = m->n;
  const Product *p = m->p;
  uint32_t words = p->ct->ext[1] * p->k / m->per / n->gpu.wave;
  bool mixes = ir_attr_i(ir_launch(n->f), AT_MIXED, 0) && p->areg &&
               p->op->nargs > 2 && words == m->shape->mixed;
  V mask = gpu_i32(n, mixes ? NO_MEMORY : NONE);
  gpu_call(n, "llvm.amdgcn.sched.barrier", &mask, 1);
}

bool amd_mma(Gpu *n, const Product *p, Frag *r) {
  bool copies;
  Mma m = {.n = n, .p = p, .rows = n->gpu.rows};
  if (!takes(n, p, &m)) return false;
  m.run = run_of(p, n->gpu.cc, &copies);
  m.lanes = copies ? 1 : n->gpu.wave / m.rows;
  m.span = m.run > m.k ? m.run : m.k;
  if (p->k % (m.span * m.lanes)) return false;
  m.group = copies
                ? gpu_i32(n, 0)
                : LLVMBuildUDiv(n->g->b, n->grp.lane, gpu_i32(n, m.rows), "");
  order(&m);
  V row = e_and(n->g, n->grp.lane, gpu_i32(n, m.rows - 1));
  m.b = lane_of(&m, p->b, p->bt, p->tb, row);
  if (!p->areg)
    m.a = lane_of(&m, p->a, p->at, p->ta, gpu_coord(n, &r->map, AXIS_ROW, 0));
  uint32_t regs = m.rows * m.rows / n->gpu.wave,
           cblocks = p->ct->ext[1] / m.rows;
  uint32_t rblocks = r->map.regs / (regs * cblocks);
  V *sums = NEWN(&n->g->cx->scratch, V, rblocks * cblocks);
  V *was = NEWN(&n->g->cx->scratch, V, r->map.regs);
  bool halves = m.per == 4 && n->gpu.f8 == F8_FNUZ;
  memcpy(was, r->w, r->map.regs * sizeof *was);
  for (uint32_t i = 0; halves && i < r->map.regs; i++)
    r->w[i] = cg_fconst(n->g, cg_of(was[i]), 0);
  for (uint32_t i = 0; i < rblocks * cblocks; i++)
    sums[i] = gather(n, r->w + i * regs, regs);
  for (uint32_t s = 0; s < p->k / (m.span * m.lanes); s++)
    step_of(&m, s, sums, rblocks, cblocks);
  for (uint32_t i = 0; i < r->map.regs; i++)
    r->w[i] = LLVMBuildExtractElement(n->g->b, sums[i / regs],
                                      gpu_i32(n, i % regs), "");
  if (halves) make_whole(&m, r, was);
  return true;
}
