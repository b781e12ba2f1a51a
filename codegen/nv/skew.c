// skew: rows of an `acc` tile, each moved by its number.
//
// Four lanes have a row of a block of 8 columns, two beside each other each: a
// row moves within its lanes. What a lane wants lies in one block or in the
// next, and the lane that has it knows in which. A block is registers, and the
// first one is the warp's: there is code for each warp of a group.
//
//   columns 0..7 of row 3:   lane 12: 0 1   13: 2 3   14: 4 5   15: 6 7
//   as moved by 3:           lane 12: 3 4   13: 5 6   14: 7 8   15: 9 10
//
// Turned, rows become columns, and go through the group's scratch.
#include "codegen/gpu/gpu.h"

enum { BLOCK = 8, QUAD = 4, WORD = 4 };

// Register k of a tile in blocks of 8 columns: of block k / 4, columns 0 and 1,
// rows 0 and 8.
static uint32_t row_part(uint32_t k) {
  return k / 2 % 2 * BLOCK;
}

static uint32_t col_part(uint32_t k) {
  return k / 4 * BLOCK + k % 2;
}

// ---------------------------------------------------------------- lanes
// What becomes the lane's column e of a block, 0 or 1.
typedef struct Half {
  V from;   // lane that sends it
  V odd;    // what this lane sends is its column 1
  V wraps;  // and lies in the next block
} Half;

typedef struct Skew {
  Gpu *n;
  const Frag *x;
  uint32_t rows, cols;  // of the result
  uint32_t in_cols;     // of the operand
  uint32_t warps;
  int64_t pos;
  bool back;
  bool pads;  // some diagonals lie outside of the operand: 0
  Half half[2];
} Skew;

// Row r wants column 7 + r - c of its two blocks for column c, or 7 - r + c. So
// even rows want an odd column for an even one.
static Half half_of(const Skew *s, uint32_t e) {
  Gpu *n = s->n;
  Cg *g = n->g;
  V row = e_shr(g, n->grp.lane, 2);
  V first = gpu_mul(n, e_and(g, n->grp.lane, gpu_i32(n, QUAD - 1)), 2);
  V col = gpu_add(n, first, gpu_i32(n, e));
  V by = s->back ? e_isub(g, row, col) : e_isub(g, col, row);
  V want =
      e_and(g, gpu_add(n, by, gpu_i32(n, BLOCK - 1)), gpu_i32(n, BLOCK - 1));
  V lanes = e_and(g, n->grp.lane, gpu_i32(n, -QUAD));
  V other = e_and(g, e_xor(g, row, gpu_i32(n, 1 - e)), gpu_i32(n, 1));
  V sent = gpu_add(n, first, other);
  V less = s->back ? e_isub(g, row, gpu_i32(n, e))
                   : e_isub(g, gpu_i32(n, BLOCK - 1 + e), row);
  return (Half){.from = gpu_add(n, lanes, e_shr(g, want, 1)),
                .odd = e_icmp(g, LLVMIntNE, other, gpu_i32(n, 0)),
                .wraps = e_icmp(g, LLVMIntSLT, sent, less)};
}

// What the lane sends of a block of columns, for registers k and k + 1.
static V sent_of(const Skew *s, const Half *h, uint32_t k, int64_t block) {
  Gpu *n = s->n;
  if (block < 0 || block >= s->in_cols / BLOCK)
    return LLVMConstReal(LLVMFloatTypeInContext(n->g->lc), 0);
  uint32_t at = k + (uint32_t)block * 4;
  V first = gpu_elem(n, s->x, at), second = gpu_elem(n, s->x, at + 1);
  return e_sel(n->g, h->odd, second, first);
}

// Element k of the result, for the warp with this number.
static V moved(const Skew *s, uint32_t warp, uint32_t k) {
  Gpu *n = s->n;
  const Half *h = &s->half[k % 2];
  uint32_t regs = s->cols / 2, of = k / regs;  // block of rows
  int64_t row = (of * s->warps + warp) * SKEW_ROWS + row_part(k);
  int64_t col = k % regs / 4 * BLOCK;
  int64_t by = s->back ? row - col : col - row;
  int64_t block = (s->pos + 1 + by) / BLOCK - 1;
  uint32_t from = of * s->in_cols / 2 + k % 4 / 2 * 2;
  V near = sent_of(s, h, from, block), far = sent_of(s, h, from, block + 1);
  V a[4] = {gpu_i32(n, -1), e_sel(n->g, h->wraps, far, near), h->from,
            gpu_i32(n, 31)};
  return gpu_call(n, "llvm.nvvm.shfl.sync.idx.f32", a, 4);
}

// The elements, for the warps lo .. hi - 1.
static V *moved_by(const Skew *s, uint32_t lo, uint32_t hi, uint32_t regs) {
  Gpu *n = s->n;
  V *e = NEWN(&n->g->cx->scratch, V, regs);
  if (hi - lo == 1) {
    for (uint32_t k = 0; k < regs; k++) e[k] = moved(s, lo, k);
    return e;
  }
  uint32_t mid = (lo + hi) / 2;
  LLVMBasicBlockRef less = cg_block(n->g, "less"),
                    more = cg_block(n->g, "more");
  LLVMBasicBlockRef end = cg_block(n->g, "moved"), at[2];
  V low = e_icmp(n->g, LLVMIntULT, n->grp.warp, gpu_i32(n, mid));
  LLVMBuildCondBr(n->g->b, low, less, more);
  LLVMPositionBuilderAtEnd(n->g->b, less);
  V *a = moved_by(s, lo, mid, regs);
  at[0] = LLVMGetInsertBlock(n->g->b);
  LLVMBuildBr(n->g->b, end);
  LLVMPositionBuilderAtEnd(n->g->b, more);
  V *b = moved_by(s, mid, hi, regs);
  at[1] = LLVMGetInsertBlock(n->g->b);
  gpu_end(n, end);
  for (uint32_t k = 0; k < regs; k++) {
    e[k] = LLVMBuildPhi(n->g->b, cg_of(a[k]), "");
    LLVMAddIncoming(e[k], (V[]){a[k], b[k]}, at, 2);
  }
  return e;
}

static void skew_lanes(Skew *s, const Op *op) {
  Gpu *n = s->n;
  Frag r = gpu_new(n, gpu_res_type(n, op));
  for (uint32_t e = 0; e < 2; e++) s->half[e] = half_of(s, e);
  V *e = moved_by(s, 0, s->warps, r.map.regs);
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}

// ---------------------------------------------------------------- turned
// Row j of the operand is column j of the result. All warps write where
// the numbers of their rows are in it, a row of 4 words more than a multiple of
// 32, and read their own rows.

// The thread's first row and column, of the whole tile.
typedef struct Turned {
  V row, col, at;  // byte of the scratch
  uint32_t pitch;  // words
} Turned;

static Turned turned_of(const Skew *s, const Op *op, const Type *t) {
  Gpu *n = s->n;
  V lane = n->grp.lane, in_warp = e_shr(n->g, lane, 2);
  V pair = e_and(n->g, lane, gpu_i32(n, QUAD - 1));
  return (Turned){.row =
                      gpu_add(n, in_warp, gpu_mul(n, n->grp.warp, SKEW_ROWS)),
                  .col = gpu_mul(n, pair, 2),
                  .at = gpu_scratch(n, smem_skew_bytes(op, t)),
                  .pitch = t->ext[1] + SKEW_MORE};
}

static void write_turned(const Skew *s, const Turned *t) {
  Gpu *n = s->n;
  for (uint32_t k = 0; k < s->x->map.regs; k++) {
    V j = gpu_add(n, t->row, gpu_i32(n, row_part(k)));
    V r = gpu_add(n, t->col, gpu_i32(n, col_part(k) - s->pos));
    V i = s->back ? e_isub(n->g, j, r) : gpu_add(n, j, r);
    V at = gpu_add(n, gpu_mul(n, i, t->pitch), j);
    V byte = gpu_add(n, t->at, gpu_mul(n, at, WORD));
    V inside = e_icmp(n->g, LLVMIntULT, i, gpu_i32(n, s->rows));
    LLVMBasicBlockRef end = gpu_if(n, inside);
    V to = gpu_shared(n, byte);
    LLVMBuildStore(n->g->b, gpu_elem(n, s->x, k), to);
    gpu_end(n, end);
  }
}

// Column of the operand that is wanted where the result's row is `by` more than
// its column.
static V diagonal(const Skew *s, V by) {
  V pos = gpu_i32(s->n, s->pos);
  return s->back ? e_isub(s->n->g, pos, by) : gpu_add(s->n, pos, by);
}

// 0 where the operand has no such column.
static V read_turned(const Skew *s, V byte, V r) {
  Gpu *n = s->n;
  LLVMTypeRef f32 = LLVMFloatTypeInContext(n->g->lc);
  V x = LLVMBuildLoad2(n->g->b, f32, gpu_shared(n, byte), "");
  V inside = e_icmp(n->g, LLVMIntULT, r, gpu_i32(n, s->in_cols));
  return s->pads ? e_sel(n->g, inside, x, LLVMConstReal(f32, 0)) : x;
}

static void skew_turned(const Skew *s, const Op *op) {
  Gpu *n = s->n;
  const Type *type = gpu_res_type(n, op);
  Turned t = turned_of(s, op, type);
  gpu_sync(n);
  write_turned(s, &t);
  gpu_sync(n);
  Frag r = gpu_new(n, type);
  V *e = NEWN(&n->g->cx->scratch, V, r.map.regs);
  V at = gpu_add(n, gpu_mul(n, t.row, t.pitch), t.col);
  at = gpu_add(n, t.at, gpu_mul(n, at, WORD));
  for (uint32_t k = 0; k < r.map.regs; k++) {
    int64_t i = row_part(k), j = col_part(k);
    V byte = gpu_add(n, at, gpu_i32(n, (i * t.pitch + j) * WORD));
    V by = e_isub(n->g, t.row, gpu_add(n, t.col, gpu_i32(n, j - i)));
    e[k] = read_turned(s, byte, diagonal(s, by));
  }
  gpu_pack(n, &r, e);
  gpu_define(n, op->res[0], r);
}

void nv_skew(Gpu *n, const Op *op) {
  const Type *t = gpu_res_type(n, op), *x = gpu_arg_type(n, op, 0);
  bool turned = ir_attr_i(op, AT_TRANS, 0) != 0;
  Skew s = {.n = n,
            .x = gpu_frag(n, op->args[0]),
            .rows = t->ext[0],
            .cols = t->ext[1],
            .in_cols = x->ext[1],
            .warps = n->grp.threads / 32,
            .pos = ir_attr_i(op, AT_POS, 0),
            .back = ir_attr_i(op, AT_REVERSE, 0) != 0};
  s.pads = !skew_inside(op, x->ext[0], t->ext[!turned], x->ext[1]);
  if (turned) skew_turned(&s, op);
  else skew_lanes(&s, op);
}
