// Boxes of which products take columns.
//
//   %k = load(%C, %b, %i, %d)          %k = sfill(%C, %b, %i0, %zero, %n) {clean}
//   %v = load(%C, %b, %i, %d512)         : smem<64x576xbf16,sw128>
//   %w = select(%seen, %v, 0)     ->   mma(%q, %k)
//   dot(%q, %k) .. dot(%p, %w)         mma(%p, %k, %c, %first) {trans}
//
// Where an operand has columns of a tile that another operand copies, the same
// rows of the same tensor, one tile serves both. Where groups have parts of the
// columns of sums, one tile has those of all of them. Rows that a mask hides
// from all rows of scores are zeros in the tile, if they are its last, or if
// each row is told by an index.
#include "passes/support/columns.h"
#include "passes/support/widened.h"
#include "passes/gpu/gpu.h"

Value lower_uncleaned(const Place *p, Value v, Value *mask) {
  const Op *op = ir_def(p->f, v);
  double zero;
  bool clean = op && op->code == OP_SELECT &&
               ir_const_value(p->f, op->args[2], &zero) && zero == 0;
  *mask = clean ? op->args[0] : 0;
  return clean ? op->args[1] : v;
}

// Does the mask show the first rows only, of any number?
static bool shows_first(Place *p, Value mask) {
  const Op *op = ir_def(p->f, mask);
  const Type *t = ir_type(p->f, mask);
  double one;
  Value o;
  if (ir_const_value(p->f, mask, &one)) return one != 0;
  if (!op || t->n != 1) return false;
  if (op->code == OP_AND)
    return shows_first(p, op->args[0]) && shows_first(p, op->args[1]);
  if (op->code == OP_OR)
    return !ir_type(p->f, op->args[0])->n && shows_first(p, op->args[1]);
  return (op->code == OP_LT || op->code == OP_LE) &&
         !ir_type(p->f, op->args[1])->n &&
         lower_unit_steps(p, op->args[0], t->axis[0], &o, false);
}

static Value wide(Builder *b, Value x) {
  return lower_cast(b, DT_I64, x);
}

static Value shown(Place *p, Builder *b, Value mask, Value all) {
  const Op *op = ir_def(p->f, mask);
  if (ir_const_value(p->f, mask, &(double){0})) return all;
  if (op->code == OP_OR) {
    Value is = lower_scalar(p, op->args[0]);
    Value n = p->failed ? 0 : shown(p, b, op->args[1], all);
    return p->failed ? 0 : ir_3(b, OP_SELECT, is, all, n);
  }
  if (op->code == OP_AND) {
    Value x = shown(p, b, op->args[0], all);
    Value y = p->failed ? 0 : shown(p, b, op->args[1], all);
    return p->failed ? 0 : ir_2(b, OP_MIN, x, y);
  }
  Value end = lower_scalar(p, op->args[1]), first = 0;
  if (p->failed) return 0;
  lower_unit_steps(p, op->args[0], ir_type(p->f, mask)->axis[0], &first, true);
  if (p->failed) return 0;
  Value n = wide(b, end);
  if (first) n = ir_2(b, OP_SUB, n, wide(b, first));
  if (op->code == OP_LE) n = ir_2(b, OP_ADD, n, ir_const_i(b, DT_I64, 1));
  return n;
}

Value lower_rows_shown(Place *p, Value mask, uint32_t rows) {
  Builder *b = lower_at(p, lower_depth(p, mask));
  Value all = ir_const_i(b, DT_I64, rows), n = shown(p, b, mask, all);
  if (p->failed) return 0;
  Value zero = ir_const_i(b, DT_I64, 0);
  n = ir_2(b, OP_MAX, ir_2(b, OP_MIN, n, all), zero);
  return lower_cast(b, DT_I32, n);
}

// Of rows that are told one by one any may be none.
static bool can_clean(Place *p, Value box, Value mask) {
  return shows_first(p, mask) ||
         (ir_type(p->f, mask)->n == 1 && lower_is_told(p, box));
}

static void plan_operand(Place *p, Value v, uint32_t key) {
  Value mask, x = lower_uncleaned(p, v, &mask);
  const Op *load = ir_def(p->f, x);
  Columns c;
  Widened w;
  if (!load || !columns_of(p->f, load, &c) ||
      (widened_of(p->f, x, &w) && w.mask && w.mask != mask))
    return;
  const Op *host = columns_host(p->f, load, &c);
  bool parts = p->part >= 0 && c.part == p->part;
  if (!host && parts && c.step % HW_PANEL == 0) host = load;
  DType t = ir_type(p->f, x)->dtype;
  if (!host || dtype_size(t) != 2 || !type_has_axis(ir_type(p->f, x), key) ||
      !lower_is_box(p, host->res[0], t) ||
      (mask && !can_clean(p, host->res[0], mask)))
    return;
  p->taken[v] = host->res[0];
  if (mask) p->shown[host->res[0]] = mask;
}

// A box that is its operand, less the rows that a mask hides.
static void plan_cleaned(Place *p, Value v, DType other, uint32_t key) {
  Value mask, x = lower_uncleaned(p, v, &mask);
  const Type *t = ir_type(p->f, x);
  bool whole = dtype_size(t->dtype) == 2 || lower_widens_as_read(p, x, other);
  if (!mask || !whole || !type_has_axis(t, key) ||
      !lower_is_box(p, x, t->dtype) || !can_clean(p, x, mask))
    return;
  p->taken[v] = x;
  p->shown[x] = mask;
}

// Sums over keys, of few rows: others have a ring of tiles each
// (passes/hopper/pipeline_loop.c).
void lower_plan_taken(Place *p, const Op *dot) {
  const IrAttr *over = ir_attr(dot, AT_OVER);
  if ((p->part < 0 && !p->most) || over->n != 1) return;
  uint32_t key = (uint32_t)over->list[0];
  if (p->lane < 0 || p->f->axes.at[key].role != AX_KEY) return;
  for (uint32_t i = 0; i < 2; i++) {
    Value v = dot->args[i];
    if (type_has_axis(ir_type(p->f, v), (uint32_t)p->lane)) continue;
    if (p->part >= 0) plan_operand(p, v, key);
    else plan_cleaned(p, v, ir_type(p->f, dot->args[!i])->dtype, key);
  }
}

Value lower_first_column(Place *p, Value v) {
  Value mask;
  const Op *load = ir_def(p->f, lower_uncleaned(p, v, &mask));
  const Op *host = ir_def(p->f, p->taken[v] ? p->taken[v] : load->res[0]);
  Columns c, h = {0};
  columns_of(p->f, load, &c);
  if (host != load) columns_of(p->f, host, &h);
  Builder *b = lower_at(p, 0);
  Value at = lower_int(b, host == load ? 0 : c.at - h.at);
  if (c.part < 0) return at;
  Value step = lower_int(b, c.step);
  return ir_2(b, OP_ADD, ir_2(b, OP_MUL, p->origin[c.part], step), at);
}
