// The inverse of a triangular matrix (part of the pass `lower_gpu`).
//
//   before  %x = trinv(%l) {axes = [t, s]} : f32{t:64,s:64}
//   after   %d = ftrinv(%l)                     blocks of 16, by substitution
//           %b = select(%below, %l, 0)          below the diagonal of blocks
//           %y = mma(%d, %b)                    of 32: joins them
//           %d1 = sub(%d, mma(%y, %d))          and so on
//
// Two blocks A, C on the diagonal and B below are joined by -C^-1 B A^-1. With
// all pairs of blocks in one tile, D - (D B) D is that for each. Where keys
// repeat and each step turns the state over, rows of D have changing signs and
// their sums are small: with two 16-bit parts of D 1e-2 of what a chunk writes
// would be wrong. So D has three, B and D B two: 1e-5. Their first products
// read the parts of D in registers, the second ones in shared memory. B has
// rows in every other block, columns in the others; of D those blocks of the
// diagonal count that are columns of D B. Attribute `spans` leaves out the
// rest.
#include "ir/target.h"
#include "passes/gpu/gpu.h"

enum { MAX_BLOCKS = 16 };

// A coordinate of the tile, divided by n.
static Value block_of(Place *p, Builder *b, int axis, Role r, int64_t n,
                      Type t) {
  Value x = lower_coord(p, b, (uint32_t)axis, r);
  return lower_as(b, lower_2(b, OP_FLOORDIV, x, lower_int(b, n)), t);
}

// Where l joins two blocks of n of the diagonal.
static Value joins(Place *p, Builder *b, const View *v, bool upper, int64_t n) {
  Type t = lower_type(p, DT_I32, v);
  Value r = block_of(p, b, v->row, ROLE_ROW, n, t);
  Value c = block_of(p, b, v->col, ROLE_COL, n, t);
  Value col = block_of(p, b, v->col, ROLE_COL, 2 * n, t);
  Value row = block_of(p, b, v->row, ROLE_ROW, 2 * n, t);
  Value pair = ir_2(b, OP_EQ, row, col);
  return ir_2(b, OP_AND, pair, ir_2(b, OP_LT, upper ? r : c, upper ? c : r));
}

typedef struct Split {
  uint32_t n;
  Value part[HW_F32_PARTS];
} Split;

static Split split(Builder *b, Value x, uint32_t n, bool shared) {
  const Type t = *ir_type(b->fn, x);
  Split s = {.n = n};
  for (uint32_t i = 0; i < n; i++) {
    if (i) x = ir_2(b, OP_SUB, x, lower_cast(b, DT_F32, s.part[i - 1]));
    s.part[i] = lower_cast(b, DT_BF16, x);
  }
  Type st = lower_smem_type(DT_BF16, t.ext[0], t.ext[1]);
  for (uint32_t i = 0; shared && i < n; i++)
    s.part[i] = lower_op(b, OP_SPUT, &s.part[i], 1, st, NULL, 0);
  return s;
}

// Columns of the second operand of a product, by blocks of its rows: those of
// group g + to of n, if the rows are of a group g that is odd or not.
static IrAttr spans_of(uint32_t ext, int64_t n, bool odd, int64_t to,
                       int64_t *list) {
  for (int64_t k = 0; k < ext / HW_BLOCK; k++) {
    int64_t g = k * HW_BLOCK / n;
    bool some = g % 2 == odd;
    list[2 * k] = some ? (g + to) * n : 0;
    list[2 * k + 1] = some ? (g + to + 1) * n : 0;
  }
  return attr_list(AT_SPANS, list, 2 * ext / HW_BLOCK);
}

// x y, the smallest products first; those below 2^-24 are left out.
static Value product(Builder *b, Value x, uint32_t nx, Value y, uint32_t ny,
                     IrAttr spans) {
  const Type t = *ir_type(b->fn, x);
  Split l = split(b, x, nx, false), r = split(b, y, ny, true);
  IrAttr at[] = {attr_i(AT_TRANS, 1), spans};
  Value c = 0;
  for (uint32_t s = HW_F32_PARTS; s-- > 0;)
    for (uint32_t i = 0; i <= s; i++) {
      if (i >= l.n || s - i >= r.n) continue;
      Value args[] = {l.part[i], r.part[s - i], c};
      c = lower_op(b, OP_MMA, args, c ? 3 : 2, t, at, 2);
    }
  return c;
}

void lower_trinv(Place *p, const Op *op) {
  View v;
  const IrAttr *axes = ir_attr(op, AT_AXES);
  lower_view(p, ir_type(p->f, op->res[0]), NULL, &v);
  Value l = lower_eval(p, op->args[0], ROLE_ROW);
  if (p->failed) return;
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  const Type t = *ir_type(b->fn, l);
  if (t.ext[0] != t.ext[1] || t.ext[0] > MAX_BLOCKS * HW_BLOCK ||
      p->target->gpu.acc != LY_ACC) {
    lower_refuse(p, op, "an inverse of a tile that is no square of 64 rows");
    return;
  }
  bool upper = axes->list[0] != v.row;
  IrAttr at = attr_i(AT_TRANS, 1);
  Value d = lower_op(b, OP_FTRINV, &l, 1, t, &at, upper);
  for (int64_t n = HW_BLOCK; n < (int64_t)t.ext[0]; n *= 2) {
    Value zero = lower_like(b, l, 0);
    Value some = lower_select(b, joins(p, b, &v, upper, n), l, zero);
    int64_t list[2][2 * MAX_BLOCKS];
    IrAttr between = spans_of(t.ext[0], n, !upper, upper ? 1 : -1, list[0]);
    IrAttr within = spans_of(t.ext[0], n, upper, 0, list[1]);
    Value y = product(b, d, HW_F32_PARTS, some, HW_F32_PARTS - 1, between);
    d = ir_2(b, OP_SUB, d,
             product(b, y, HW_F32_PARTS - 1, d, HW_F32_PARTS, within));
  }
  p->memo[op->res[0]][0] = d;
}
