// Numbers of two distances: of quotients and of remainders by n.
//
//   z = y n + x,  0 <= x < n      e(z) = y (2 n - 1) + x = 2 z - x - y
//   e(q) - e(k) = (y(q) - y(k)) (2 n - 1) + (x(q) - x(k))
//
// Differences of x are in -(n - 1) .. n - 1, so that the difference of e tells
// both, and a pair's number is one subtraction of what row and key have. There
// are at most 2 (rows + keys) of them, and 2 n. Beyond the axes' ends n is as
// good as the first number behind them. A divisor -n has quotients
// -1 - (z - 1) // n: numbers are made of z - 1 and n, and the sign of the
// quotients' distance is turned; that of the remainders is what is left.
#include "passes/attn/bias_table.h"

#include "passes/support/cost.h"

static Dim sum(DimTab *d, Dim x, Dim y) {
  return dim_bin(d, DIM_ADD, x, y);
}

static Dim twice(DimTab *d, Dim x) {
  return dim_bin(d, DIM_MUL, x, dim_const(d, 2));
}

// Behind the last coordinate of a tile.
static Dim end(DimTab *d, Extents e) {
  return sum(d, dim_bin(d, DIM_MAX, e.rows, e.keys),
             dim_const(d, COST_GAPS_BEYOND));
}

Dim bias_digits_first(DimTab *d, Extents e) {
  Dim keys = sum(d, twice(d, e.keys), dim_const(d, 2 * COST_GAPS_BEYOND));
  return sum(d, keys, end(d, e));
}

Dim bias_digits_count(DimTab *d, Extents e) {
  Dim rows = sum(d, twice(d, e.rows), dim_const(d, 2 * COST_GAPS_BEYOND));
  return sum(d, bias_digits_first(d, e), sum(d, rows, end(d, e)));
}

// The divisor in size, and whether it is negative.
typedef struct Divisor {
  Value n, negative;
} Divisor;

static Divisor divisor(Builder *b, Value by, Extents e) {
  Value one = ir_const_i(b, DT_I64, 1);
  Value n = ir_2(b, OP_MAX, ir_1(b, OP_ABS, by), one);
  n = ir_2(b, OP_MIN, n, ir_dim(b, end(&b->fn->mod->dims, e)));
  return (Divisor){n, ir_2(b, OP_LT, by, ir_const_i(b, DT_I64, 0))};
}

Value bias_digits_of(Builder *b, Value coord, Value by, Extents e) {
  Divisor d = divisor(b, by, e);
  Value one = ir_const_i(b, DT_I64, 1), none = ir_const_i(b, DT_I64, 0);
  Value z = ir_2(b, OP_SUB, coord, ir_3(b, OP_SELECT, d.negative, one, none));
  Value y = ir_2(b, OP_FLOORDIV, z, d.n), x = ir_2(b, OP_MOD, z, d.n);
  z = ir_2(b, OP_MUL, z, ir_const_i(b, DT_I64, 2));
  return ir_2(b, OP_SUB, ir_2(b, OP_SUB, z, x), y);
}

Apart bias_digits_apart(Builder *b, Value number, Value by, Extents e) {
  Divisor d = divisor(b, by, e);
  Value one = ir_const_i(b, DT_I64, 1), none = ir_const_i(b, DT_I64, 0);
  Value most = ir_2(b, OP_SUB, d.n, one), x = ir_2(b, OP_ADD, number, most);
  Value all = ir_2(b, OP_ADD, d.n, most), y = ir_2(b, OP_FLOORDIV, x, all);
  x = ir_2(b, OP_SUB, ir_2(b, OP_MOD, x, all), most);
  Value z = ir_2(b, OP_ADD, ir_2(b, OP_MUL, y, d.n), x);
  y = ir_3(b, OP_SELECT, d.negative, ir_2(b, OP_SUB, none, y), y);
  x = ir_2(b, OP_SUB, z, ir_2(b, OP_MUL, y, by));
  return (Apart){{z, y, x}};
}
