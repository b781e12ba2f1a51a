// Products of matrices: which operand gives the rows, where operands lie, and
// parts of operands that the matrix units do not take.
//
// Matrix units multiply 16-bit values exactly and add in f32. A wider operand
// is split: x = x0 + x1 + x2 with xi in bf16, x0 = bf16(x), x1 = bf16(x - x0),
// ..; three parts hold all 24 bits of an f32. Of the products of parts those
// with i + j < 3 count, smallest first: what is dropped is below 2^-24.
#include "passes/support/bytes.h"
#include "passes/support/cost.h"
#include "passes/gpu/gpu.h"

#include <assert.h>

// Parts of type t that hold a value of type v exactly (f32: all but).
static uint32_t parts_in(DType v, DType t) {
  switch (v) {
  case DT_BF16:
  case DT_F8E4M3:
  case DT_F8E5M2: return 1;
  case DT_F16: return t == DT_F16 ? 1 : 2;
  case DT_TF32: return 2;
  default: return 3;
  }
}

// Of f8e5m2 alone the least values are denormals in f16, which products of
// gfx90a take for zeros.
static DType common_type(DType a, DType b) {
  bool fa = a == DT_F16 || a == DT_F8E4M3, fb = b == DT_F16 || b == DT_F8E4M3;
  fa |= a == DT_F8E5M2 && b == DT_F16;
  fb |= b == DT_F8E5M2 && a == DT_F16;
  return fa && fb ? DT_F16 : DT_BF16;
}

typedef struct Product {
  Value a, b;        // of f; a gives the rows
  uint32_t m, n, r;  // axes; r is summed over
  DType t, u;        // of a's parts, of b's
  uint32_t na, nb;   // parts
} Product;

static int other_axis(const Type *t, uint32_t axis) {
  if (t->n != 2 || !type_has_axis(t, axis)) return -1;
  return (int)t->axis[t->axis[0] == axis];
}

// 8-bit floats that come from memory are multiplied as they are where the
// matrix units can: rows of both in the order of memory, nothing to add to; on
// sm_90a those that nobody has made 16-bit copies of (passes/support/bytes.c).
// What is not OCP's has no infinities, which f8e4m3 has not either.
static bool as_bytes(Place *p, const Op *op, const Product *d) {
  const GpuFacts *gpu = &p->target->gpu;
  Value v[] = {d->a, d->b};
  uint32_t rows[] = {d->m, d->n};
  bool there = bytes_multiply(p->f, op, gpu) && !p->once;
  if ((gpu->op8 == LY_ACC && !there) || op->nargs > 2) return false;
  for (uint32_t i = 0; i < 2; i++) {
    const Type *t = ir_type(p->f, v[i]);
    int64_t k = 0;
    if (!dtype_is_float(t->dtype) || dtype_size(t->dtype) != 1 ||
        (gpu->f8 == F8_FNUZ && t->dtype != DT_F8E4M3) ||
        p->order[rows[i]] > p->order[d->r] || !lower_is_box(p, v[i], t->dtype))
      return false;
    dim_is_const(&p->m->dims, t->size[type_axis_at(t, d->r)], &k);
    if (!k || k % HW_BYTE_STEP) return false;
  }
  return true;
}

bool lower_widens_as_read(const Place *p, Value v, DType other) {
  const GpuFacts *gpu = &p->target->gpu;
  const Type *t = ir_type(p->f, v);
  bool steps = true;
  for (uint32_t i = 0; i < t->n; i++) {
    int64_t n = 0;
    if (p->f->axes.at[t->axis[i]].role != AX_VEC) continue;
    dim_is_const(&p->m->dims, t->size[i], &n);
    steps &= n && n % (2 * HW_BLOCK) == 0;  // what a warp reads at once
  }
  return gpu->hopper && p->most == gpu->rows && dtype_is_float16(other) &&
         dtype_is_float(t->dtype) && dtype_size(t->dtype) == 1 && steps;
}

static bool is_product(Place *p, const Op *op, Product *d) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  if (over->n != 1 || ir_type(p->f, op->res[0])->dtype != DT_F32) return false;
  d->r = (uint32_t)over->list[0];
  d->a = op->args[0];
  d->b = op->args[1];
  int m = other_axis(ir_type(p->f, d->a), d->r);
  int n = other_axis(ir_type(p->f, d->b), d->r);
  if (m < 0 || n < 0 || m == n) return false;
  d->m = (uint32_t)m;
  d->n = (uint32_t)n;
  if (p->order[d->n] < p->order[d->m]) {
    d->a = op->args[1];
    d->b = op->args[0];
    d->m = (uint32_t)n;
    d->n = (uint32_t)m;
  }
  DType ta = ir_type(p->f, d->a)->dtype;
  DType tb = ir_type(p->f, d->b)->dtype;
  if (as_bytes(p, op, d)) {
    d->t = ta;
    d->u = tb;
    d->na = d->nb = 1;
    return true;
  }
  d->t = d->u = common_type(ta, tb);
  d->na = parts_in(ta, d->t);
  d->nb = parts_in(tb, d->t);
  if (lower_widens_as_read(p, d->b, ta) && lower_is_box(p, d->b, tb)) d->u = tb;
  return true;
}

// Its parts lie in memory as products take them.
static bool comes_in_parts(Place *p, Value v, DType t, uint32_t parts) {
  Value part[HW_F32_PARTS];
  return parts == 1 ? lower_comes_as(p, v, t)
                    : parts == HW_F32_PARTS && lower_in_parts(p, v, t, part);
}

// A tile that is computed and put in shared memory has as many rows as
// fragments have.
static void widen_rows(Place *p, Value v, DType t, uint32_t parts) {
  View w;
  if (parts == 1 && lower_is_box(p, v, t) && !lower_staged(p)) return;
  lower_view(p, ir_type(p->f, v), NULL, &w);
  p->wide[w.row][ROLE_COL] = p->wide[w.row][ROLE_ROW];
}

// Columns of a left operand that lies turned are the product's rows.
static void widen_turned(Place *p, const Product *d) {
  View w;
  lower_view(p, ir_type(p->f, d->a), NULL, &w);
  if (w.row == (int)d->r) p->wide[d->m][ROLE_COL] = p->wide[d->m][ROLE_ROW];
}

// Keys of memory that are a product's rows, beside other keys, are as many as
// fragments have: their tile is one with those where they are columns.
static void widen_keys(Place *p, const Product *d) {
  if ((int)d->m == p->lane || d->na != 1 || !lower_is_box(p, d->a, d->t))
    return;
  p->wide[d->m][ROLE_COL] = p->wide[d->m][ROLE_ROW];
}

typedef struct Skewed {
  Value v;
  bool some;
} Skewed;

static void find_skew(void *data, Op *op) {
  Skewed *s = data;
  s->some |= op->code == OP_SKEW && op->args[0] == s->v;
}

// Columns of the product are diagonals, each group's own.
static bool is_skewed(const Place *p, const Op *op) {
  Skewed s = {.v = op->res[0]};
  ir_walk(p->f->body, find_skew, &s);
  return s.some;
}

// Rows times rows, each with its own, or times one vector: elements of a
// group's own tiles.
static bool is_of_rows(const Place *p, const Op *op) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  uint32_t vectors = 0;
  for (uint32_t i = 0; i < 2 && over->n == 1; i++) {
    const Type *t = ir_type(p->f, op->args[i]);
    if (t->n == 1) vectors++;
    else if (other_axis(t, (uint32_t)over->list[0]) != p->lane) return false;
  }
  return over->n == 1 && vectors < 2;
}

typedef struct Added {
  Value v;
  uint32_t uses, adds;
} Added;

static void find_adds(void *data, Op *op) {
  Added *a = data;
  for (uint32_t i = 0; i < op->nargs; i++) a->uses += op->args[i] == a->v;
  a->adds +=
      op->code == OP_STORE && ir_attr_i(op, AT_ADD, 0) && op->args[1] == a->v;
}

// Is a sum over the tiled rows only added to memory? Then each group adds what
// its own rows give.
static bool is_added(const Place *p, const Op *op, const Product *d) {
  Added a = {.v = op->res[0]};
  if ((int)d->r != p->lane || op->nargs > 2) return false;
  ir_walk(p->f->body, find_adds, &a);
  return a.uses && a.uses == a.adds;
}

bool lower_plan_dot(Place *p, const Op *op) {
  Product d;
  if (is_of_rows(p, op)) return true;
  if (!is_product(p, op, &d)) return false;
  widen_turned(p, &d);
  widen_keys(p, &d);
  widen_rows(p, d.b, d.u, d.nb);
  widen_rows(p, d.a, d.t, d.na);
  return d.nb == 1 && lower_is_box(p, d.b, d.u) &&
         ((int)d.m == p->lane || is_skewed(p, op) || is_added(p, op, &d)) &&
         (d.na == 1 || !lower_is_box(p, d.a, ir_type(p->f, d.a)->dtype));
}

static void plan_box(Place *p, Value v, DType t) {
  // Hopper cleans hidden keys in the tile.
  Value mask, x = lower_uncleaned(p, v, &mask);
  if (p->target->gpu.hopper) v = x;
  if (lower_is_box(p, v, t)) p->boxed[v] = true;
}

void lower_plan_boxes(Place *p, const Op *op) {
  Product d;
  if (lower_staged(p) || !is_product(p, op, &d)) return;
  if (d.na == 1) plan_box(p, d.a, d.t);
  if (d.nb == 1) plan_box(p, d.b, d.u);
  if (d.nb == 1 && !lower_comes_as(p, d.b, d.u)) lower_plan_made(p, d.b);
}

// The left operand from memory stays in registers where the target has a
// layout for it, and enough of them.
static bool keeps_left(const Place *p, const Product *d) {
  const Type *t = ir_type(p->f, d->a);
  bool there = p->scarce && dtype_size(d->t) == 2;
  return p->target->gpu.op != LY_ACC && d->na == 1 && !there &&
         p->order[d->m] < p->order[d->r] && t->n == 2;
}

static LayoutId left_layout(const Place *p, const Product *d) {
  const GpuFacts *gpu = &p->target->gpu;
  return dtype_size(d->t) == 1 ? gpu->op8 : gpu->op;
}

static bool turned(const Place *p, const View *v, uint32_t over) {
  return p->target->gpu.turn && v->row == (int)over;
}

// Tiles that a product reads or makes in registers are `acc`.
void lower_plan_layout(Place *p, const Op *op, bool lin) {
  Product d;
  if (!is_product(p, op, &d)) return;
  Value v[] = {op->res[0], d.a, d.b};
  for (uint32_t i = 0; i < 3; i++) {
    View w;
    lower_view(p, ir_type(p->f, v[i]), NULL, &w);
    bool box = i == 1 ? comes_in_parts(p, v[i], d.t, d.na)
                      : i == 2 && comes_in_parts(p, v[i], d.u, d.nb);
    const GpuFacts *gpu = &p->target->gpu;
    if (box && lin && lower_staged(p))
      lower_add_box(p, &w,
                    i == 1 && keeps_left(p, &d) ? left_layout(p, &d)
                    : turned(p, &w, d.r)        ? LY_QUAD
                                                : LY_LIN);
    bool rows = i == 1 && d.na == 1 && lower_is_rows(p, v[i], d.t);
    if (rows && lin) lower_add_box(p, &w, LY_LIN);
    if (box || rows) continue;
    // Tiles of a chunk are needed along its other axes too.
    if (lin && w.row >= 0 && p->f->axes.at[w.row].role == AX_STEP) continue;
    if (lin == (i == 2)) lower_set_lin(p, &w, lin ? LY_LIN : gpu->acc);
  }
}

// A constant beside a box, whose padding is zeros: it needs none.
static bool is_constant(Place *p, const Product *d) {
  double k;
  return p->target->gpu.hopper && d->na == 1 && d->nb == 1 &&
         ir_const_value(p->f, d->a, &k) && lower_is_box(p, d->b, d->u);
}

static Parts constant_operand(Place *p, const Product *d) {
  View w;
  lower_view(p, ir_type(p->f, d->a), NULL, &w);
  const Op *op = ir_def(p->f, d->a);
  Value x = lower_op(lower_at(p, 0), OP_CONST, NULL, 0, lower_type(p, d->t, &w),
                     op->attrs, op->nattrs);
  return (Parts){.n = 1, .part = {x}, .row = d->m, .col = d->r};
}

// The left operand: what was made before the loop, or comes from memory, is
// read from shared memory, as is what lies there anyway; what is made in it
// stays in registers.
static Parts left_operand(Place *p, const Product *d) {
  int here = (int)p->scopes.n - 1;
  const Parts *put = &p->smem[d->a];
  if (p->target->gpu.hopper && put->n == d->na &&
      ir_type(p->g, put->part[0])->dtype == d->t)
    return *put;
  View w;
  lower_view(p, ir_type(p->f, d->a), NULL, &w);
  bool box = comes_in_parts(p, d->a, d->t, d->na);
  if (is_constant(p, d)) return constant_operand(p, d);
  bool early = lower_depth(p, d->a) < here;
  if (keeps_left(p, d) && box) {
    Parts *f = &p->frag[d->a];
    if (f->n && lower_dtype(lower_at(p, 0), f->part[0]) == d->t) return *f;
    Value x = lower_box(p, d->a, d->t, left_layout(p, d));
    return *f = (Parts){.n = 1, .part = {x}, .row = d->m, .col = d->r};
  }
  if (p->target->gpu.op != LY_ACC && w.row == (int)d->m && !(p->scarce && box))
    return lower_frag(p, d->a, d->t, d->na);
  // More would not lie in registers beside accumulators.
  uint32_t rows = p->wide[w.row][ROLE_ROW], threads = 32 * p->warps;
  uint32_t words = rows * p->wide[w.col][ROLE_COL] / 2 / threads;
  uint32_t sums = rows * p->wide[d->n][ROLE_COL] / threads;
  // A state is beside them in a recurrence, or another operand's three parts.
  bool steps = ir_has_steps(p->f);
  early |= words > COST_OPERAND_WORDS &&
           (words + sums > COST_OPERAND_AND_SUMS || steps);
  early |= steps && words * d->na > COST_OPERAND_PARTS;
  // Beside what comes in parts there is room for those of a state.
  bool state = steps && !ir_def(p->f, d->a) && d->nb > 1;
  if (state && comes_in_parts(p, d->b, d->u, d->nb))
    early = words > COST_OPERAND_WORDS;
  if (box || early || w.row != (int)d->m)
    return lower_smem(p, d->a, d->t, d->na, d->r);
  return lower_frag(p, d->a, d->t, d->na);
}

// What the product is added to, 0: nothing.
static Value start(Place *p, const Op *op, Type *t) {
  View v;
  lower_view(p, ir_type(p->f, op->res[0]), NULL, &v);
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  *t = lower_type(p, DT_F32, &v);
  if (op->nargs < 3) return 0;
  Value c =
      lower_eval(p, op->args[2], lower_role(&v, ir_type(p->f, op->args[2])));
  return p->failed ? 0 : lower_as(b, c, *t);
}

static Value zeros(Builder *b, Type t) {
  IrAttr zero = attr_f(AT_VALUE, 0);
  return lower_op(b, OP_CONST, NULL, 0, t, &zero, 1);
}

void lower_dot(Place *p, const Op *op) {
  Product d;
  if (!is_product(p, op, &d)) {
    lower_slow_dot(p, op);
    return;
  }
  Parts x = left_operand(p, &d);
  if (p->failed) return;
  Parts y = lower_smem(p, d.b, d.u, d.nb, d.r);
  if (p->failed) return;
  Type t;
  Value c = start(p, op, &t);
  if (p->failed) return;
  Builder *b = lower_at(p, (int)p->scopes.n - 1);
  b->span = op->span;
  // Columns of which a group has some, or else all: by panels as they come.
  if (p->part >= 0 && !y.from) y.from = lower_int(b, 0);
  IrAttr at[2];
  uint32_t n = 0;
  if (y.row == d.r) at[n++] = attr_i(AT_TRANS, 1);
  if (x.row == d.r) at[n++] = attr_i(AT_TRANSA, 1);
  // Each part of the right operand is read by products that stand together.
  for (uint32_t k = d.nb; k-- > 0;)
    for (uint32_t i = d.na; i-- > 0;) {
      if (i + k >= HW_F32_PARTS) continue;
      if (y.from && !c) c = zeros(b, t);
      Value args[] = {x.part[i], y.part[k], c, y.from};
      c = lower_op(b, OP_MMA, args, y.from ? 4 : c ? 3 : 2, t, at, n);
    }
  p->memo[op->res[0]][0] = c;
}
