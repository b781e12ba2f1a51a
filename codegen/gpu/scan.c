// Running sums along the rows of a tile, where four threads of a warp have a
// row, two columns of each eight: exchanges of registers.
//
//   before  fscan(%x) {kind = sum, pos = 1}   rows in shared memory, one thread
//                                             each: 64 steps, and all rows in
//                                             one bank
//   after   of each eight columns: the thread's two, what the threads before it
//           have, by two exchanges, and all eight columns before these
//
// Sums are over what lies between two columns here too, in another order. That
// is the layout `acc` of NVIDIA's products; columns are scanned by scan_rows.c,
// what lies otherwise through shared memory (shared.c).
#include "codegen/gpu/gpu.h"

enum { QUAD = 4, PAIR = 2, EIGHT = QUAD * PAIR };

static bool in_quads(const FragMap *m) {
  bool ok = m->nthr > 0 && m->nreg > 0;
  for (uint32_t i = 0; ok && i < m->nthr; i++) {
    const Factor *f = &m->thr[i];
    if (i == 0)
      ok = f->axis == AXIS_COL && f->size == QUAD && f->stride == PAIR;
    else ok = f->axis != AXIS_COL;
  }
  for (uint32_t i = 0; ok && i < m->nreg; i++) {
    const Factor *f = &m->reg[i];
    if (i == 0) ok = f->axis == AXIS_COL && f->size == PAIR && f->stride == 1;
    else ok = f->axis != AXIS_COL || f->stride == EIGHT;
  }
  return ok;
}

// What a line begins with is a number, or one a row.
static bool carry_suits(const Func *f, const Op *op) {
  const Type *t = op->nargs > 1 ? ir_type(f, op->args[1]) : NULL;
  return !t || t->kind != TK_FRAG ||
         (t->slice == SLICE_ROW && !t->partial &&
          t->layout == ir_type(f, op->args[0])->layout);
}

bool gpu_scans_in_quads(const Func *f, const Op *op, uint32_t threads) {
  const Type *t = ir_type(f, op->args[0]);
  FragMap m;
  return carry_suits(f, op) && t->kind == TK_FRAG && !t->slice &&
         ir_attr_i(op, AT_POS, 0) && !frag_map(t, threads, &m) && in_quads(&m);
}

typedef struct Scan {
  RKind kind;
  bool suffix, exclusive;
  V none, odd, high;  // kind's identity; the thread's place among the four
} Scan;

static V join(Gpu *n, const Scan *c, V x, V y) {
  return !x ? y : gpu_join(n, c->kind, x, y);
}

// Two columns of a thread, in the order of the scan; run: all before the eight.
static V two_columns(Gpu *n, const Scan *c, V run, V *x, V *y) {
  LLVMBuilderRef b = n->g->b;
  V both = join(n, c, *x, *y), next = gpu_shuffle(n, both, 1);
  V before = LLVMBuildSelect(b, c->odd, next, c->none, "");
  V pair = join(n, c, both, next), other = gpu_shuffle(n, pair, PAIR);
  before = LLVMBuildSelect(b, c->high, join(n, c, other, before), before, "");
  before = join(n, c, run, before);
  V first = join(n, c, before, *x), second = join(n, c, first, *y);
  *x = c->exclusive ? before : first;
  *y = c->exclusive ? first : second;
  return join(n, c, run, join(n, c, pair, other));
}

// The row of register `at`, its first one: registers of later columns are apart
// by the product of the digits in front.
static void scan_row(Gpu *n, const Scan *c, const FragMap *m, V *e, uint32_t at,
                     V run) {
  uint32_t unit = 1, groups = 1, step = 0;
  for (uint32_t i = 0; i < m->nreg; i++) {
    if (i && m->reg[i].axis == AXIS_COL) step = unit, groups = m->reg[i].size;
    unit *= m->reg[i].size;
  }
  for (uint32_t k = 0; k < groups; k++) {
    V *x = &e[at + (c->suffix ? groups - 1 - k : k) * step];
    run = two_columns(n, c, run, &x[c->suffix], &x[!c->suffix]);
  }
}

// Whether register i is the first of a row.
static bool begins_row(const FragMap *m, uint32_t i) {
  for (uint32_t k = 0; k < m->nreg; k++) {
    if (m->reg[k].axis == AXIS_COL && i % m->reg[k].size) return false;
    i /= m->reg[k].size;
  }
  return true;
}

static V place_bit(Gpu *n, const Scan *c, int64_t bit) {
  V mine = e_and(n->g, n->grp.tid, gpu_i32(n, bit));
  LLVMIntPredicate is = c->suffix ? LLVMIntEQ : LLVMIntNE;
  return e_icmp(n->g, is, mine, gpu_i32(n, 0));
}

// What the row of register i begins with, or NULL.
static V carry_of(Gpu *n, const Op *op, const FragMap *m, uint32_t i) {
  if (op->nargs == 1) return NULL;
  if (ir_type(n->f, op->args[1])->kind != TK_FRAG) return gpu_arg(n, op, 1);
  const Frag *c = gpu_frag(n, op->args[1]);
  return gpu_elem(n, c, frag_slice_reg(m, &c->map, AXIS_ROW, i));
}

void gpu_scan_in_quads(Gpu *n, const Op *op) {
  const Frag *x = gpu_frag(n, op->args[0]);
  Frag r = gpu_new(n, gpu_res_type(n, op));
  Scan c = {.kind = (RKind)ir_attr_i(op, AT_KIND, 0),
            .suffix = ir_attr_i(op, AT_DIR, 0) == DIR_SUFFIX,
            .exclusive = ir_attr_i(op, AT_EXCLUSIVE, 0)};
  c.none = gpu_identity(n, c.kind, x->dtype);
  c.odd = place_bit(n, &c, 1);
  c.high = place_bit(n, &c, PAIR);
  V *e = NEWN(&n->g->cx->scratch, V, x->map.regs);
  for (uint32_t i = 0; i < x->map.regs; i++) e[i] = gpu_elem(n, x, i);
  for (uint32_t i = 0; i < x->map.regs; i++)
    if (begins_row(&x->map, i))
      scan_row(n, &c, &x->map, e, i, carry_of(n, op, &x->map, i));
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}
