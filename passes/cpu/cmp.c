// Comparisons of coordinates along the lanes with what all lanes share, in 32
// bits: half the instructions of 64, a tenth where 64 have none.
//
//   before  le(splat(%k), add(splat(%x), viota)) : of vec<8xi64>
//   after   %d = min(max(%k - %x, -2^30), 2^30)
//           le(splat(cast(%d)), viota) : of vec<8xi32>
//
// The difference must not overflow: it is taken of dims, origins, counters of
// loops and 32-bit values, not of 64-bit data.
#include "passes/cpu/cpu.h"

// Sums of MAX_TERMS values below 2^(48 + MAX_DEPTH) do not overflow; -2^30 and
// 2^30 are beyond any lane of a vector whose first one is below 2^20.
enum { MAX_TERMS = 8, MAX_DEPTH = 8, FAR = 1 << 30, NEAR = 1 << 20 };

// first + the scalars + n * viota
typedef struct Sum {
  Value at[MAX_TERMS];
  bool minus[MAX_TERMS];
  uint32_t n;
  int64_t first, iotas;
} Sum;

static bool is_counter(const Assign *as, Value v) {
  const Region *r = ir_info(as->g, v)->region;
  return r && r->parent && r->parent->code == OP_FOR && r->params.n &&
         r->params.at[0] == v;
}

// |v| is less than 2^(48 + depth).
static bool bounded(const Assign *as, Value v, uint32_t depth) {
  const Op *op = ir_def(as->g, v);
  int64_t n;
  if (!op) return is_counter(as, v);
  if (cpu_is_int(as, v, &n)) return n > -DIM_UNBOUNDED && n < DIM_UNBOUNDED;
  switch (op->code) {
  case OP_ORIGIN:
  case OP_DIM: return true;
  case OP_CAST: return mty(as, op->args[0])->dtype == DT_I32;
  case OP_MUL:
    return cpu_is_int(as, op->args[1], &n) && n >= -64 && n <= 64 &&
           depth > 5 && bounded(as, op->args[0], depth - 6);
  case OP_ADD:
  case OP_SUB:
  case OP_MIN:
  case OP_MAX:
    return depth && bounded(as, op->args[0], depth - 1) &&
           bounded(as, op->args[1], depth - 1);
  case OP_FLOORDIV:
  case OP_MOD: return depth && bounded(as, op->args[0], depth - 1);
  default: return false;
  }
}

static bool collect(const Assign *as, Sum *s, Value v, bool minus) {
  const Op *op = ir_def(as->g, v);
  int64_t n;
  if (op && op->code == OP_SPLAT) return collect(as, s, op->args[0], minus);
  if (op && op->code == OP_VIOTA) {
    s->iotas += minus ? -1 : 1;
    return true;
  }
  if (cpu_is_int(as, v, &n) && n > -DIM_UNBOUNDED && n < DIM_UNBOUNDED) {
    s->first += minus ? -n : n;
    return true;
  }
  bool sum = op && (op->code == OP_ADD || op->code == OP_SUB);
  if (sum && (is_vec(as, v) || cpu_is_int(as, op->args[1], &n)))
    return collect(as, s, op->args[0], minus) &&
           collect(as, s, op->args[1], minus != (op->code == OP_SUB));
  if (is_vec(as, v) || s->n == MAX_TERMS || !bounded(as, v, MAX_DEPTH))
    return false;
  s->at[s->n] = v;
  s->minus[s->n++] = minus;
  return true;
}

// The scalars of s, negated if `minus`.
static Value total(Assign *as, const Sum *s, bool minus) {
  Value plus = 0, less = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    Value *to = s->minus[i] != minus ? &less : &plus;
    *to = *to ? cpu_2(as, OP_ADD, *to, s->at[i]) : s->at[i];
  }
  if (!plus) plus = cpu_int(as, 0);
  return less ? cpu_2(as, OP_SUB, plus, less) : plus;
}

static Value in_32(Assign *as, Value v) {
  return cpu_vec(as, cpu_cast(as, DT_I32, v));
}

// x op y of vectors, or 0: as it is.
Value cpu_compare_lanes(Assign *as, OpCode c, Value x, Value y) {
  bool compares = c == OP_LT || c == OP_LE || c == OP_EQ || c == OP_NE;
  Sum s = {.n = 0};  // y - x
  if (!compares || !collect(as, &s, y, false) || !collect(as, &s, x, true))
    return 0;
  if (s.iotas * s.iotas != 1 || s.first <= -NEAR || s.first >= NEAR) return 0;
  Value d = total(as, &s, s.iotas > 0);
  Value far = cpu_int(as, FAR);
  d = cpu_2(as, OP_MIN, cpu_2(as, OP_MAX, d, cpu_int(as, -FAR)), far);
  Value first = in_32(as, cpu_int(as, s.iotas > 0 ? s.first : -s.first));
  Value lane =
      cpu_op(as, OP_VIOTA, NULL, 0, type_vec(DT_I32, as->lanes), NULL, 0);
  if (s.first) lane = cpu_2(as, OP_ADD, lane, first);
  d = in_32(as, d);
  return s.iotas > 0 ? ir_2(&as->b, c, d, lane) : ir_2(&as->b, c, lane, d);
}
