// Running sums down the columns of a tile, where eight threads of a warp have
// eight rows, each also those eight below, and warps have sixteen rows each.
//
//   before  fscan(%x) {kind = sum, pos = 0}   columns in shared memory, one
//                                             thread each: 64 steps
//   after   of the eight rows: what threads in front have and what all have, by
//           three exchanges; of a warp's columns the sums go to shared memory,
//           and each warp adds those of the warps in front
//
// That is the layout `acc` of NVIDIA's products; another one goes through
// shared memory (shared.c), and so does a carry.
#include "codegen/gpu/gpu.h"

enum { QUAD = 4, PAIR = 2, EIGHT = 8, ROWS = 16, STEPS = 3, WARP = 32 };

static bool is_factor(const Factor *f, uint32_t axis, uint32_t size,
                      uint32_t stride) {
  return f->axis == axis && f->size == size && f->stride == stride;
}

bool gpu_scans_in_columns(const Func *f, const Op *op, uint32_t threads) {
  const Type *t = ir_type(f, op->args[0]);
  FragMap m;
  if (op->nargs > 1 || t->kind != TK_FRAG || t->slice || t->dtype != DT_F32 ||
      ir_attr_i(op, AT_POS, 0) || frag_map(t, threads, &m))
    return false;
  bool ok = m.nthr >= 2 && m.nthr <= 3 && m.nreg == 3 &&
            is_factor(&m.thr[0], AXIS_COL, QUAD, PAIR) &&
            is_factor(&m.thr[1], AXIS_ROW, EIGHT, 1) &&
            is_factor(&m.reg[0], AXIS_COL, PAIR, 1) &&
            is_factor(&m.reg[1], AXIS_ROW, PAIR, EIGHT) &&
            m.reg[2].axis == AXIS_COL;
  return ok &&
         (m.nthr == 2 || is_factor(&m.thr[2], AXIS_ROW, threads / WARP, ROWS));
}

uint32_t gpu_column_scan_bytes(const Type *t, uint32_t threads) {
  return threads / WARP * t->ext[1] * (uint32_t)sizeof(float);
}

typedef struct Scan {
  RKind kind;
  bool suffix, exclusive;
  V none, late[STEPS];  // kind's identity; does the other half stand in front?
  const FragMap *m;
  V sums;  // of warps: where they are
  uint32_t cols, warps;
} Scan;

static V join(Gpu *n, const Scan *c, V x, V y) {
  return gpu_join(n, c->kind, x, y);
}

// Of the eight rows that x is of: what stands in front of it, and all of them.
static V in_front(Gpu *n, const Scan *c, V x, V *all) {
  V before = c->none;
  *all = x;
  for (uint32_t i = 0; i < STEPS; i++) {
    V other = gpu_shuffle(n, *all, QUAD << i);
    V more = i ? join(n, c, before, other) : other;
    before = LLVMBuildSelect(n->g->b, c->late[i], more, before, "");
    *all = join(n, c, *all, other);
  }
  return before;
}

// The column of two registers, eight rows apart: what stands in front of each
// within the warp; returns what the warp has.
static V column(Gpu *n, const Scan *c, const V *x, V *before) {
  V first, second;
  uint32_t a = c->suffix ? PAIR : 0, b = PAIR - a;
  before[a] = in_front(n, c, x[a], &first);
  before[b] = join(n, c, first, in_front(n, c, x[b], &second));
  return join(n, c, first, second);
}

static V sum_at(Gpu *n, const Scan *c, V warp, uint32_t reg) {
  V row = gpu_mul(n, warp, c->cols);
  V at = gpu_add(n, row, gpu_coord(n, c->m, AXIS_COL, reg));
  at = gpu_mul(n, at, sizeof(float));
  return gpu_shared(n, gpu_add(n, c->sums, at));
}

static LLVMTypeRef two_sums(const Scan *c) {
  return LLVMVectorType(cg_of(c->none), PAIR);
}

// The sums of a warp's columns, by the threads of its first rows.
static void put_sums(Gpu *n, const Scan *c, V warp, const V *sum) {
  Cg *g = n->g;
  V lane = e_and(g, n->grp.tid, gpu_i32(n, WARP - 1));
  V puts = e_icmp(g, LLVMIntULT, lane, gpu_i32(n, QUAD));
  gpu_sync(n);
  LLVMBasicBlockRef end = gpu_if(n, puts);
  for (uint32_t i = 0; i < c->m->regs; i += PAIR * PAIR) {
    V two = LLVMGetUndef(two_sums(c));
    for (uint32_t k = 0; k < PAIR; k++)
      two = LLVMBuildInsertElement(g->b, two, sum[i + k], gpu_i32(n, k), "");
    LLVMSetAlignment(LLVMBuildStore(g->b, two, sum_at(n, c, warp, i)),
                     PAIR * sizeof(float));
  }
  gpu_end(n, end);
  gpu_sync(n);
}

// What warps in front have of two columns.
static void add_warps(Gpu *n, const Scan *c, V warp, uint32_t reg, V *x) {
  Cg *g = n->g;
  for (uint32_t k = 0; k < PAIR; k++) x[k] = c->none;
  for (uint32_t i = 0; i + 1 < c->warps; i++) {
    uint32_t of = c->suffix ? c->warps - 1 - i : i;
    V at = sum_at(n, c, gpu_i32(n, of), reg);
    V two = LLVMBuildLoad2(g->b, two_sums(c), at, "");
    LLVMSetAlignment(two, PAIR * sizeof(float));
    LLVMIntPredicate is = c->suffix ? LLVMIntULT : LLVMIntUGT;
    V front = e_icmp(g, is, warp, gpu_i32(n, of));
    for (uint32_t k = 0; k < PAIR; k++) {
      V y = LLVMBuildExtractElement(g->b, two, gpu_i32(n, k), "");
      x[k] = LLVMBuildSelect(g->b, front, join(n, c, x[k], y), x[k], "");
    }
  }
}

static void scan_all(Gpu *n, const Scan *c, V *e) {
  uint32_t regs = c->m->regs;
  V *before = NEWN(&n->g->cx->scratch, V, regs);
  V *sum = NEWN(&n->g->cx->scratch, V, regs);
  V warp = e_shr(n->g, n->grp.tid, STEPS + PAIR);
  for (uint32_t i = 0; i < regs; i++)
    if (!(i & PAIR)) sum[i] = column(n, c, &e[i], &before[i]);
  if (c->warps > 1) put_sums(n, c, warp, sum);
  for (uint32_t i = 0; i < regs; i += PAIR * PAIR) {
    V front[PAIR] = {c->none, c->none};
    if (c->warps > 1) add_warps(n, c, warp, i, front);
    for (uint32_t k = 0; k < PAIR * PAIR; k++) {
      V all = join(n, c, front[k % PAIR], before[i + k]);
      e[i + k] = c->exclusive ? all : join(n, c, all, e[i + k]);
    }
  }
}

void gpu_scan_in_columns(Gpu *n, const Op *op) {
  const Frag *x = gpu_frag(n, op->args[0]);
  const Type *t = gpu_arg_type(n, op, 0);
  Frag r = gpu_new(n, gpu_res_type(n, op));
  Scan c = {.kind = (RKind)ir_attr_i(op, AT_KIND, 0),
            .suffix = ir_attr_i(op, AT_DIR, 0) == DIR_SUFFIX,
            .exclusive = ir_attr_i(op, AT_EXCLUSIVE, 0),
            .m = &x->map,
            .cols = t->ext[1],
            .warps = n->grp.threads / WARP};
  c.none = gpu_identity(n, c.kind, x->dtype);
  if (c.warps > 1)
    c.sums = gpu_scratch(n, gpu_column_scan_bytes(t, n->grp.threads));
  for (uint32_t i = 0; i < STEPS; i++) {
    V mine = e_and(n->g, n->grp.tid, gpu_i32(n, QUAD << i));
    c.late[i] =
        e_icmp(n->g, c.suffix ? LLVMIntEQ : LLVMIntNE, mine, gpu_i32(n, 0));
  }
  V *e = NEWN(&n->g->cx->scratch, V, x->map.regs);
  for (uint32_t i = 0; i < x->map.regs; i++) e[i] = gpu_elem(n, x, i);
  scan_all(n, &c, e);
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}
