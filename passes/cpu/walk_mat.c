// Products of walked rows in tile registers, where more rows share a key than a
// block of vectors has.
//
//   before  %s = dot(%q, %k) {over = [d]} : f32{q:16,k:64}
//   after   pairs of Q [d / 2][row]; for k0 step 64 { s[4] = mat_zero();
//             for d step 32 { s[g] = mat_dpbf16(s[g], mat_ld(K[k0 + 16 g][d]),
//               mat_ld(Q[d / 2])) }; mat_st; squares of [k][row] are turned }
//
//   before  %a = dot(%w, %v, %acc) {over = [k]} : f32{q:16,e:128}
//   after   W in bf16 [row][k], pairs of V [k / 2][e]; for k step 32 {
//             o[c] = mat_dpbf16(o[c], mat_ld(W[0][k]), mat_ld(V[k / 2][c])) }
//
// A tile has 16 rows. Those behind the last one of the task hold anything: no
// row of a product depends on another, and the instruction takes denormals as
// zeros.
#include "passes/cpu/cpu.h"

#include <assert.h>

// Registers: sums first, then those of the two operands, two each.
enum { MAX_SUMS = 4, MAX_EACH = 2 };
enum { PAIRS = 2, LONG = PAIRS * HW_MAT_ROWS };  // elements of a tile's row

static bool is_bf16(const Assign *as, Value v) {
  return ir_type(as->f, v)->dtype == DT_BF16;
}

// The axis's known size in v, if it is a multiple of `unit`, else 0.
static int64_t whole(const Assign *as, Value v, uint32_t axis, int64_t unit) {
  Dim d = cpu_axis_size_in(as, v, axis);
  int64_t n;
  return d && dim_known(&as->m->dims, d, &n) && n % unit == 0 ? n : 0;
}

static bool has_tiles(const Assign *as, const Root *r) {
  return as->target->amx && as->lanes == HW_MAT_COLS && is_bf16(as, r->va) &&
         is_bf16(as, r->vb) &&
         whole(as, r->v, (uint32_t)as->walked, HW_MAT_ROWS) == HW_MAT_ROWS &&
         r->dst->dt == DT_F32;
}

static Value scratch(Assign *as, DType t, int64_t n, const char *hint) {
  IrAttr at = attr_i(AT_DIM, dim_const(&as->m->dims, n));
  Type p = type_ptr(t);
  Value v = ir_op(&as->top, OP_ALLOC, NULL, 0, &at, 1, &p, 1, 0)->res[0];
  ir_info(as->g, v)->hint = hint;
  return v;
}

static Value view(Assign *as, Value p, DType t) {
  return cpu_op(as, OP_PVIEW, &p, 1, type_ptr(t), NULL, 0);
}

static Type tile_type(DType t) {
  return type_vec(t, HW_MAT_ROWS * HW_MAT_COLS);
}

static Value load(Assign *as, uint32_t reg, Value p, Value i, Value bytes) {
  IrAttr at = attr_i(AT_POS, reg);
  DType t = mty(as, p)->dtype;
  return cpu_op(as, OP_MAT_LD, (Value[]){p, i, bytes}, 3, tile_type(t), &at, 1);
}

static Value zero(Assign *as, uint32_t reg) {
  IrAttr at = attr_i(AT_POS, reg);
  return cpu_op(as, OP_MAT_ZERO, NULL, 0, tile_type(DT_F32), &at, 1);
}

static Value add_product(Assign *as, Value acc, Value a, Value b) {
  return cpu_op(as, OP_MAT_DPBF16, (Value[]){acc, a, b}, 3, tile_type(DT_F32),
                NULL, 0);
}

// Bytes from one coordinate of the axis to the next.
static Value bytes(Assign *as, const Form *f, uint32_t axis) {
  uint32_t i = 0;
  while (f->axis[i] != axis) i++;
  Value n = cpu_form_stride(as, f, i);
  return cpu_2(as, OP_MUL, n, cpu_int(as, dtype_size(f->dt)));
}

static bool has_axis(const Form *f, uint32_t axis) {
  for (uint32_t i = 0; i < f->n; i++)
    if (f->axis[i] == axis) return true;
  return false;
}

// Lanes run along the axis, one vector at a time.
static void lanes_along(Assign *as, uint32_t axis, Dim size) {
  as->pt.lane = (int)axis;
  as->pt.lane_size = size;
  as->pt.cols = 1;
  as->pt.width = as->lanes;
  as->pt.bound = true;
  as->pt.panel = 0;
  as->pt.idx[axis] = 0;
}

// n rows of v, which runs along the axis, as bf16 one behind the other.
static void put_rows(Assign *as, Form *f, Value v, uint32_t axis, Value to) {
  const Type *t = ir_type(as->f, v);
  int64_t size = whole(as, v, axis, 1);
  Point saved = as->pt;
  Dim tile = cpu_axis_size_in(as, v, (uint32_t)as->walked);
  assert(t->n == 2);
  Loop row = cpu_loop_upto(as, cpu_rows_inside(as, tile), 1, "row");
  lanes_along(as, axis, cpu_axis_size_in(as, v, axis));
  as->pt.idx[as->walked] = row.iv;
  Value first = cpu_2(as, OP_MUL, row.iv, cpu_int(as, size));
  for (int64_t i = 0; i < size; i += as->lanes) {
    as->pt.x0 = cpu_int(as, i);
    Value x = cpu_vec(as, cpu_cast(as, DT_BF16, cpu_form_load(as, f, 0)));
    cpu_vst(as, to, cpu_2(as, OP_ADD, first, as->pt.x0), x, 0);
  }
  cpu_loop_close(as, &row, NULL);
  as->pt = saved;
  as->pt.idx[as->walked] = 0;
}

// ---------------------------------------------------------------- scores
typedef struct Scores {
  Assign *as;
  Root *r;
  uint32_t keys, over;
  int64_t size, tile;  // of the sums, of the keys
  Value pairs, sums;   // scratch: of the rows, [d / 2][row]; [k][row]
} Scores;

bool cpu_across_mats(const Assign *as, const Root *r) {
  const Type *t = ir_type(as->f, r->v);
  uint32_t over = (uint32_t)r->lane, keys = t->axis[1];
  return has_tiles(as, r) && whole(as, r->vb, over, LONG) &&
         whole(as, r->v, keys, HW_MAT_ROWS) && r->b->dt == DT_BF16 &&
         r->b->lane == r->lane && !r->b->panel && has_axis(r->b, keys);
}

static void make_pairs(Scores *s) {
  Assign *as = s->as;
  int64_t half = s->size / PAIRS;
  Value rows = scratch(as, DT_BF16, HW_MAT_ROWS * s->size, "rows"),
        v[HW_MAT_ROWS];
  put_rows(as, s->r->a, s->r->va, s->over, rows);
  Value from = view(as, rows, DT_I32);
  Loop l = cpu_loop_upto(as, cpu_int(as, half), HW_MAT_COLS, "d");
  for (uint32_t k = 0; k < HW_MAT_ROWS; k++)
    v[k] = cpu_vld(as, from, cpu_2(as, OP_ADD, l.iv, cpu_int(as, k * half)), 0);
  cpu_turn_square(as, v);
  Value at = cpu_2(as, OP_MUL, l.iv, cpu_int(as, HW_MAT_COLS));
  for (uint32_t k = 0; k < HW_MAT_ROWS; k++)
    cpu_vst(as, s->pairs, cpu_2(as, OP_ADD, at, cpu_int(as, k * HW_MAT_COLS)),
            v[k], 0);
  cpu_loop_close(as, &l, NULL);
}

// Products of so many tiles of keys, from k0 on, with all rows.
static void products(Scores *s, Value k0, uint32_t tiles) {
  Assign *as = s->as;
  Form *f = s->r->b;
  Value acc[MAX_SUMS], line = cpu_int(as, HW_MAT_COLS * 4), step;
  for (uint32_t g = 0; g < tiles; g++) acc[g] = zero(as, g);
  LoopCount count = {cpu_int(as, 0), cpu_int(as, s->size), LONG, "d"};
  Loop l = cpu_loop_open(as, count, acc, tiles);
  lanes_along(as, s->over, s->r->lane_size);
  as->pt.x0 = l.iv;
  Value at = cpu_2(as, OP_MUL, l.iv, cpu_int(as, HW_MAT_COLS / PAIRS));
  Value b = load(as, MAX_SUMS + MAX_EACH, s->pairs, at, line);
  for (uint32_t g = 0; g < tiles; g++) {
    as->pt.idx[s->keys] = cpu_2(as, OP_ADD, k0, cpu_int(as, g * HW_MAT_ROWS));
    Value i = cpu_form_index(as, f, 0, &step);
    Value p = view(as, cpu_padd(as, cpu_form_base(as, f), i), DT_I32);
    Value size = bytes(as, f, s->keys);
    Value a = load(as, MAX_SUMS + g % MAX_EACH, p, cpu_int(as, 0), size);
    acc[g] = add_product(as, acc[g], a, b);
  }
  cpu_loop_close(as, &l, acc);
  for (uint32_t g = 0; g < tiles; g++) {
    Value to = cpu_int(as, g * HW_MAT_ROWS * HW_MAT_COLS);
    ir_op(&as->b, OP_MAT_ST, (Value[]){s->sums, to, line, acc[g]}, 4, NULL, 0,
          NULL, 0, 0);
  }
}

// Scores of 16 keys: a vector for each row.
static void put_scores(Scores *s, Value k0, uint32_t g) {
  Assign *as = s->as;
  Value v[HW_MAT_ROWS], step;
  for (uint32_t k = 0; k < HW_MAT_ROWS; k++)
    v[k] = cpu_vld(as, s->sums,
                   cpu_int(as, (g * HW_MAT_ROWS + k) * HW_MAT_COLS), 0);
  cpu_turn_square(as, v);
  lanes_along(as, s->keys, cpu_axis_size_in(as, s->r->v, s->keys));
  as->pt.x0 = cpu_2(as, OP_ADD, k0, cpu_int(as, g * HW_MAT_ROWS));
  for (uint32_t k = 0; k < HW_MAT_ROWS; k++) {
    as->pt.idx[as->walked] = cpu_int(as, k);
    Value at = cpu_form_index(as, s->r->dst, 0, &step);
    cpu_vst(as, cpu_form_base(as, s->r->dst), at, v[k], 0);
  }
}

void cpu_across_mats_emit(Assign *as, Root *r) {
  Scores s = {.as = as, .r = r, .over = (uint32_t)r->lane};
  uint32_t tiles = MAX_SUMS;
  s.keys = ir_type(as->f, r->v)->axis[1];
  s.size = whole(as, r->vb, s.over, LONG);
  s.tile = whole(as, r->v, s.keys, HW_MAT_ROWS);
  while (s.tile % (tiles * HW_MAT_ROWS)) tiles /= 2;
  s.pairs = scratch(as, DT_I32, s.size / PAIRS * HW_MAT_COLS, "pairs");
  s.sums = scratch(as, DT_F32, tiles * HW_MAT_ROWS * HW_MAT_COLS, "sums");
  make_pairs(&s);
  Loop l = cpu_loop_upto(as, cpu_int(as, s.tile), tiles * HW_MAT_ROWS,
                         as->f->axes.at[s.keys].name);
  cpu_across_ask(as, r, l.iv, tiles * HW_MAT_ROWS);
  products(&s, l.iv, tiles);
  for (uint32_t g = 0; g < tiles; g++) put_scores(&s, l.iv, g);
  cpu_loop_close(as, &l, NULL);
  as->pt.idx[s.keys] = as->pt.idx[s.over] = as->pt.idx[as->walked] = 0;
  as->pt.lane = -1;
  as->pt.bound = false;
}

// ---------------------------------------------------------------- values
bool cpu_weighted_mats(const Assign *as, const Root *r) {
  const IrAttr *over = ir_attr(r->op, AT_OVER);
  const Type *w = ir_type(as->f, r->vb);
  if (over->n != 1 || !has_tiles(as, r)) return false;
  uint32_t keys = (uint32_t)over->list[0];
  return w->n == 2 && (int)w->axis[0] == as->walked &&
         whole(as, r->vb, keys, LONG) && r->b->lane == (int)keys &&
         r->a->dt == DT_BF16 && r->a->lane == as->pt.lane &&
         r->dst->lane == as->pt.lane &&
         has_axis(r->dst, (uint32_t)as->walked) && as->pt.cols <= MAX_SUMS &&
         !as->pt.to[keys];
}

// Pairs of values, and those of the next key tile are asked for.
static void put_values(Assign *as, Root *r, uint32_t keys, Value to) {
  int64_t tile = whole(as, r->vb, keys, LONG);
  Form *f = r->a;
  Type pair = type_vec(DT_I32, as->lanes);
  Loop l =
      cpu_loop_upto(as, cpu_int(as, tile), PAIRS, as->f->axes.at[keys].name);
  Value at = cpu_2(as, OP_MUL, l.iv, cpu_int(as, as->pt.width / PAIRS));
  for (uint32_t i = 0; f->stride && i < PAIRS; i++) {
    as->pt.idx[keys] = cpu_2(as, OP_ADD, l.iv, cpu_int(as, tile + i));
    for (uint32_t c = 0; c < as->pt.cols; c++) {
      Value step, x = cpu_form_index(as, f, c, &step);
      if (c * as->lanes * dtype_size(f->dt) % HW_LINE == 0)
        cpu_ask_far(as, cpu_form_base(as, f), x);
    }
  }
  for (uint32_t c = 0; c < as->pt.cols; c++) {
    Value two[PAIRS];
    for (uint32_t i = 0; i < PAIRS; i++) {
      as->pt.idx[keys] = cpu_2(as, OP_ADD, l.iv, cpu_int(as, i));
      two[i] = cpu_vec(as, cpu_form_load(as, f, c));
    }
    Value x = cpu_op(as, OP_PACK2, two, PAIRS, pair, NULL, 0);
    cpu_vst(as, to, cpu_2(as, OP_ADD, at, cpu_int(as, c * as->lanes)), x, 0);
  }
  cpu_loop_close(as, &l, NULL);
  as->pt.idx[keys] = 0;
}

// What the sums start from goes to their place.
static void put_addend(Assign *as, Root *r) {
  Value n =
      cpu_rows_inside(as, cpu_axis_size_in(as, r->v, (uint32_t)as->walked));
  Loop l = cpu_loop_upto(as, n, 1, "row");
  as->pt.idx[as->walked] = l.iv;
  for (uint32_t c = 0; c < as->pt.cols; c++)
    cpu_form_store(as, r->dst, c, cpu_eval_as(as, r->op->args[2], c, DT_F32));
  cpu_loop_close(as, &l, NULL);
}

void cpu_weighted_mats_emit(Assign *as, Root *r) {
  uint32_t keys = (uint32_t)ir_attr(r->op, AT_OVER)->list[0],
           cols = as->pt.cols;
  int64_t tile = whole(as, r->vb, keys, LONG), width = as->pt.width;
  bool adds = r->op->nargs >= 3;
  Value rows = scratch(as, DT_BF16, HW_MAT_ROWS * tile, "weights"),
        pairs = scratch(as, DT_I32, tile / PAIRS * width, "pairs");
  if (adds) put_addend(as, r);  // first: tiles wait for what was just stored
  put_rows(as, r->b, r->vb, keys, rows);
  put_values(as, r, keys, pairs);
  as->pt.idx[as->walked] = cpu_int(as, 0);
  Value w = view(as, rows, DT_I32), acc[MAX_SUMS], step;
  Value line = bytes(as, r->dst, (uint32_t)as->walked);
  for (uint32_t c = 0; c < cols; c++) {
    Value at = adds ? cpu_form_index(as, r->dst, c, &step) : 0;
    acc[c] =
        adds ? load(as, c, cpu_form_base(as, r->dst), at, line) : zero(as, c);
  }
  LoopCount count = {cpu_int(as, 0), cpu_int(as, tile / PAIRS), HW_MAT_ROWS,
                     "k"};
  Loop l = cpu_loop_open(as, count, acc, cols);
  Value a = load(as, MAX_SUMS, w, l.iv, cpu_int(as, tile * 2));
  Value at = cpu_2(as, OP_MUL, l.iv, cpu_int(as, width));
  for (uint32_t c = 0; c < cols; c++) {
    Value i = cpu_2(as, OP_ADD, at, cpu_int(as, c * as->lanes));
    Value b = load(as, MAX_SUMS + MAX_EACH + c % MAX_EACH, pairs, i,
                   cpu_int(as, width * 4));
    acc[c] = add_product(as, acc[c], a, b);
  }
  cpu_loop_close(as, &l, acc);
  for (uint32_t c = 0; c < cols; c++) {
    Value i = cpu_form_index(as, r->dst, c, &step);
    ir_op(&as->b, OP_MAT_ST,
          (Value[]){cpu_form_base(as, r->dst), i, line, acc[c]}, 4, NULL, 0,
          NULL, 0, 0);
  }
  as->pt.idx[as->walked] = 0;
}
