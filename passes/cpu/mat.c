// Products of matrices in tile registers: 16 rows of 16 elements of 32 bits.
//
//   before  %s = dot(%q, %k) {over = [d]} : f32{q:128,k:64}
//   after   for k0 step 32 { s[2][2] = mat_zero();
//             for d step 32 { s[r][c] = mat_dpbf16(s[r][c],
//               mat_ld(K[k0 + 16 r][d]), mat_ld(Q[d / 2][q0 + 16 c])) }
//             mat_st }
//
// The lane operand lies in pairs along the sums, as for dpbf16: that is what
// the second operand of the instruction wants. The first one's rows run along
// the sums: where memory does not, squares of pairs are turned in registers.
#include "passes/cpu/cpu.h"

#include <assert.h>

// Registers: sums first, then those of rows and of lanes, two each.
enum { MAX_TILES = 4, MAX_ROWS = 2 };

typedef struct Mat {
  Assign *as;
  Root *r;
  uint32_t axis, over;  // of the rows, of the sums
  Value first;          // coordinate of the first row
  uint32_t rows;        // in tiles
  Value scaled;         // a factor of what the sums start from is not 1
  Value acc[MAX_TILES];
} Mat;

// ---------------------------------------------------------------- conditions
static int position(const Form *f, uint32_t axis) {
  for (uint32_t i = 0; i < f->n; i++)
    if (f->axis[i] == axis) return (int)i;
  return -1;
}

bool cpu_mat_possible(const Assign *as, const Root *r, uint32_t axis) {
  if (!r->dp || !as->target->amx || as->pt.cols > MAX_ROWS) return false;
  const Form *b = r->b, *a = r->a, *dst = r->dst;
  int over = (int)ir_attr(r->op, AT_OVER)->list[0];
  Dim n = cpu_axis_size_in(as, r->va, (uint32_t)over);
  if (over == as->par &&
      cpu_panel_cols(as, over, n) * as->lanes % (2 * HW_MAT_ROWS))
    return false;  // panels that are not made begin inside of a tile
  bool rows = b->pair == over && b->lane == over && !b->panel;
  bool lanes = a->pair == over && a->lane == r->lane && position(a, over) >= 0;
  return rows && lanes && position(b, axis) >= 0 && dst->dt == DT_F32 &&
         dst->lane == r->lane && position(dst, axis) >= 0;
}

uint32_t cpu_mat_rows(const Assign *as) {
  uint32_t most = MAX_TILES / as->pt.cols;
  return (most > MAX_ROWS ? MAX_ROWS : most) * HW_MAT_ROWS;
}

// ---------------------------------------------------------------- tiles
static Type tile_type(DType t) {
  return type_vec(t, HW_MAT_ROWS * HW_MAT_COLS);
}

// Bytes from one coordinate of the axis to the next.
static Value bytes(Assign *as, const Form *f, uint32_t axis, DType t) {
  Value n = cpu_form_stride(as, f, (uint32_t)position(f, axis));
  return cpu_2(as, OP_MUL, n, cpu_int(as, dtype_size(t)));
}

static void set_row(Mat *m, uint32_t row) {
  m->as->pt.idx[m->axis] = cpu_2(m->as, OP_ADD, m->first, cpu_int(m->as, row));
}

static Value load(Mat *m, uint32_t reg, const Value *args, DType t) {
  IrAttr at = attr_i(AT_POS, reg);
  return cpu_op(m->as, OP_MAT_LD, args, 3, tile_type(t), &at, 1);
}

static Value load_rows(Mat *m, uint32_t t) {
  Assign *as = m->as;
  Value i, step;
  set_row(m, t * HW_MAT_ROWS);
  Value p = cpu_form_pairs_at(as, m->r->b, 0, &i, &step);
  Value args[] = {p, i, bytes(as, m->r->b, m->axis, DT_BF16)};
  return load(m, MAX_TILES + t, args, DT_I32);
}

static Value load_lanes(Mat *m, uint32_t c) {
  Assign *as = m->as;
  Form *f = m->r->a;
  Value step, base = cpu_form_base(as, f), i = cpu_form_index(as, f, c, &step);
  Value args[] = {base, i, bytes(as, f, m->over, DT_I32)};
  return load(m, MAX_TILES + MAX_ROWS + c, args, DT_I32);
}

// The place of a tile of the result.
static void place(Mat *m, uint32_t t, uint32_t c, Value *out) {
  Assign *as = m->as;
  Value step;
  set_row(m, t * HW_MAT_ROWS);
  out[0] = cpu_form_base(as, m->r->dst);
  out[1] = cpu_form_index(as, m->r->dst, c, &step);
  out[2] = bytes(as, m->r->dst, m->axis, DT_F32);
}

// What the sums start from goes to their place, row by row.
static void put_addend(Mat *m) {
  Assign *as = m->as;
  Value add = m->r->op->args[2], first = m->first;
  Loop l = cpu_loop_upto(as, cpu_int(as, m->rows * HW_MAT_ROWS), 1,
                         as->f->axes.at[m->axis].name);
  as->pt.idx[m->axis] = cpu_2(as, OP_ADD, first, l.iv);
  for (uint32_t c = 0; c < as->pt.cols; c++)
    cpu_form_store(as, m->r->dst, c, cpu_eval_as(as, add, c, DT_F32));
  cpu_loop_close(as, &l, NULL);
}

// Where the sums start from `x * factor`, x is there and the factor is of the
// lanes: that; else 0.
static Value factor_of(const Mat *m) {
  const Assign *as = m->as;
  const Op *op = ir_def(as->f, m->r->op->args[2]);
  AxisSet lane = (AxisSet)1 << m->r->lane;
  for (uint32_t i = 0; op && op->code == OP_MUL && i < 2; i++) {
    Value x = op->args[i], factor = op->args[1 - i];
    if (as->forms[x] == m->r->dst && as->ready[x] &&
        !(cpu_axes_of(as, factor) & ~lane))
      return factor;
  }
  return 0;
}

// Factors are 1 in most steps (passes/tile/loop.c, lazy gauges): then there is
// nothing to do.
static void move_addend(Mat *m) {
  Assign *as = m->as;
  Value factor = factor_of(m);
  if (!factor) {
    put_addend(m);
    return;
  }
  Branch br = cpu_if_open(as, m->scaled, NULL, 0);
  put_addend(m);
  cpu_if_else(as, &br, NULL);
  cpu_if_close(as, &br, NULL, NULL);
}

// Is the factor of any lane not 1?
static Value any_factor(Mat *m) {
  Assign *as = m->as;
  Value factor = m->r->op->nargs >= 3 ? factor_of(m) : 0, all = 0;
  for (uint32_t c = 0; factor && c < as->pt.cols; c++) {
    Value x = cpu_vec(as, cpu_eval_as(as, factor, c, DT_F32));
    Value one = cpu_vec(as, cpu_float(as, DT_F32, 1));
    x = cpu_2(as, OP_NE, x, one);
    all = all ? cpu_2(as, OP_OR, all, x) : x;
  }
  return all ? cpu_vreduce(as, RK_ANY, all) : 0;
}

static void start(Mat *m) {
  Assign *as = m->as;
  Value at[3];
  uint32_t n = 0;
  bool adds = m->r->op->nargs >= 3;
  if (adds) move_addend(m);
  for (uint32_t t = 0; t < m->rows; t++)
    for (uint32_t c = 0; c < as->pt.cols; c++, n++) {
      IrAttr reg = attr_i(AT_POS, n);
      if (adds) place(m, t, c, at);
      m->acc[n] =
          adds ? load(m, n, at, DT_F32)
               : cpu_op(as, OP_MAT_ZERO, NULL, 0, tile_type(DT_F32), &reg, 1);
    }
}

static void finish(Mat *m) {
  Value *acc = m->acc, at[4];
  for (uint32_t t = 0; t < m->rows; t++)
    for (uint32_t c = 0; c < m->as->pt.cols; c++) {
      place(m, t, c, at);
      at[3] = *acc++;
      ir_op(&m->as->b, OP_MAT_ST, at, 4, NULL, 0, NULL, 0, 0);
    }
}

static void multiply(Mat *m) {
  Assign *as = m->as;
  Value rows[MAX_TILES], lanes[MAX_TILES], *acc = m->acc;
  for (uint32_t t = 0; t < m->rows; t++) rows[t] = load_rows(m, t);
  for (uint32_t c = 0; c < as->pt.cols; c++) lanes[c] = load_lanes(m, c);
  for (uint32_t t = 0; t < m->rows; t++)
    for (uint32_t c = 0; c < as->pt.cols; c++, acc++)
      *acc = cpu_op(as, OP_MAT_DPBF16, (Value[]){*acc, rows[t], lanes[c]}, 3,
                    tile_type(DT_F32), NULL, 0);
}

static void block(Mat *m) {
  Assign *as = m->as;
  Dim n = cpu_axis_size_in(as, m->r->va, m->over);
  start(m);
  Value lanes = cpu_lanes_made(as, m->over, n, 1);
  LoopCount count = {cpu_limit_lo(as, m->over),
                     lanes ? lanes : cpu_limit_hi(as, m->over, n),
                     2 * HW_MAT_ROWS, as->f->axes.at[m->over].name};
  Loop l = cpu_loop_open(as, count, m->acc, m->rows * as->pt.cols);
  as->pt.idx[m->over] = l.iv;
  multiply(m);
  cpu_loop_close(as, &l, m->acc);
  as->pt.idx[m->over] = 0;
  finish(m);
  as->pt.idx[m->axis] = 0;
}

void cpu_mat_emit(Assign *as, Root *r, uint32_t axis, LoopCount rows) {
  Mat m = {.as = as, .r = r, .axis = axis};
  m.over = (uint32_t)ir_attr(r->op, AT_OVER)->list[0];
  m.rows = (uint32_t)rows.step / HW_MAT_ROWS;
  m.scaled = any_factor(&m);
  Loop l = cpu_loop_open(as, rows, NULL, 0);
  m.first = l.iv;
  block(&m);
  cpu_loop_close(as, &l, NULL);
}

// ---------------------------------------------------------------- turning
typedef struct Turn {
  Assign *as;
  Root *r;
  uint32_t pair, lane;  // axes of the pairs, of the lanes in front of it
} Turn;

static void square(Turn *t, Value pair, Value lane) {
  Assign *as = t->as;
  Form *from = t->r->a, *to = t->r->dst;
  Value v[HW_MAT_ROWS], step, i;
  assert(as->lanes == HW_MAT_ROWS);
  as->pt.idx[t->lane] = lane;
  for (uint32_t k = 0; k < HW_MAT_ROWS; k++) {
    as->pt.idx[t->pair] = cpu_2(as, OP_ADD, pair, cpu_int(as, 2 * k));
    i = cpu_form_index(as, from, 0, &step);
    v[k] = cpu_vld(as, cpu_form_base(as, from), i, 0);
  }
  cpu_turn_square(as, v);
  as->pt.idx[t->pair] = pair;
  for (uint32_t k = 0; k < HW_MAT_ROWS; k++) {
    as->pt.idx[t->lane] = cpu_2(as, OP_ADD, lane, cpu_int(as, k));
    Value p = cpu_form_pairs_at(as, to, 0, &i, &step);
    cpu_vst(as, p, i, v[k], 0);
  }
}

static Loop walk(Turn *t, uint32_t axis, int64_t step) {
  Assign *as = t->as;
  Value n = cpu_dim(as, cpu_axis_size_in(as, t->r->v, axis));
  Loop l = cpu_loop_upto(as, n, step, as->f->axes.at[axis].name);
  as->pt.idx[axis] = l.iv;
  return l;
}

static void squares(Turn *t) {
  Loop lane = walk(t, t->lane, HW_MAT_COLS);
  Loop pair = walk(t, t->pair, 2 * HW_MAT_ROWS);
  square(t, pair.iv, lane.iv);
  cpu_loop_close(t->as, &pair, NULL);
  cpu_loop_close(t->as, &lane, NULL);
  t->as->pt.idx[t->pair] = t->as->pt.idx[t->lane] = 0;
}

static void turn_outer(Turn *t, AxisSet rest) {
  if (!rest) {
    squares(t);
    return;
  }
  uint32_t a = (uint32_t)__builtin_ctzll(rest);
  Loop l = walk(t, a, 1);
  turn_outer(t, rest & (rest - 1));
  cpu_loop_close(t->as, &l, NULL);
  t->as->pt.idx[a] = 0;
}

void cpu_mat_turn(Assign *as, Root *r) {
  Turn t = {as, r, (uint32_t)r->dst->pair, (uint32_t)r->a->lane};
  AxisSet mine = (AxisSet)1 << t.pair | (AxisSet)1 << t.lane;
  turn_outer(&t, cpu_axes_of(as, r->v) & ~mine);
}
