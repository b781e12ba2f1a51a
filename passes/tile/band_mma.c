// band_mma: a product with a row of a table for each difference of a row and a
// key is one of matrices, with the rows of all differences that a tile has.
//
//   %r = load(%R, sub(%q, %k), %d) : bf16{q:128,k:64,d:64}
//   %s = dot(%x, %r) {over = [d]} : f32{q:128,k:64}
// to
//   %n = add(sub(sub(%q0, %k0), 63), iota()) : i64{gap:192}
//   %b = load(%R, %n, %d) : bf16{d:64,gap:192}
//   %g = dot(%x, %b) {over = [d]} : f32{q:128,gap:192}
//   %s = skew(%g) {pos = 63, reverse = true} : f32{q:128,k:64}
//
// Each group of 64 rows multiplies the diagonals of its own rows (lower_gpu),
// one and a half times as much as the product of scores for 128 keys, twice for
// 64. The vectors may be those of keys, of which a tile has 64 then. Where
// tiles are not whole groups' the product is left to slice, which multiplies
// element by element. Level tile; NVIDIA. Run cse and dce afterwards. Tests:
// test/passes/band_mma/.
#include "ir/target.h"
#include "passes/pass.h"
#include "passes/support/band.h"

typedef struct Gap {
  Func *f;
  Builder b;
  Op *dot;
  const Op *load;
  Band band;
  int64_t same, other;  // sizes of the axes
} Gap;

// The index where all coordinates of tiles are 0.
static Value first_of(Gap *g, Value v) {
  const Op *op = ir_def(g->f, v);
  if (!ir_type(g->f, v)->n) return v;
  if (op->code == OP_IOTA) return ir_const_i(&g->b, DT_I64, 0);
  Value y = first_of(g, op->args[1]);
  return ir_2(&g->b, op->code, first_of(g, op->args[0]), y);
}

static bool size_of(const Gap *g, const Type *t, uint32_t axis, int64_t *n) {
  int at = type_axis_at(t, axis);
  return at >= 0 && dim_is_const(&g->f->mod->dims, t->size[at], n);
}

static bool suits(Gap *g) {
  const Type *t = ir_type(g->f, g->dot->res[0]);
  const Type *x = ir_type(g->f, g->dot->args[1 - g->band.table]);
  const Type *r = ir_type(g->f, g->load->res[0]);
  bool of_rows = g->f->axes.at[g->band.other].role == AX_KEY;
  return t->n == 2 && t->dtype == DT_F32 && x->n == 2 && r->n == 3 &&
         ir_type(g->f, g->load->args[g->band.pos])->n == 2 &&
         dtype_is_float16(x->dtype) && dtype_is_float16(r->dtype) &&
         size_of(g, t, g->band.same, &g->same) &&
         size_of(g, t, g->band.other, &g->other) &&
         (of_rows ? g->same : g->other) % HW_GROUP_ROWS == 0 &&
         (of_rows ? g->other % HW_BLOCK == 0 : g->same == HW_GROUP_ROWS);
}

// The rows of the table from the least difference of the tile on.
static Value rows_of_table(Gap *g, uint32_t axis, int64_t pos, Dim size) {
  const Op *load = g->load;
  Builder *b = &g->b;
  Value first = first_of(g, load->args[g->band.pos]);
  first = ir_2(b, OP_SUB, first, ir_const_i(b, DT_I64, pos));
  Value args[MAX_AXES + 1];
  for (uint32_t i = 0; i < load->nargs; i++) args[i] = load->args[i];
  args[g->band.pos] = ir_2(b, OP_ADD, first, ir_iota(b, axis, size));
  return ir_load(b, args[0], args + 1, load->nargs - 1);
}

static void multiply(Gap *g) {
  DimTab *d = &g->f->mod->dims;
  Builder *b = &g->b;
  Dim size = dim_const(d, g->same + g->other);
  uint32_t axis = ir_axis(g->f, "gap", AX_KEY, size);
  int64_t pos = (g->band.back ? g->other : g->same) - 1;
  Value args[2];
  args[1 - g->band.table] = g->dot->args[1 - g->band.table];
  args[g->band.table] = rows_of_table(g, axis, pos, size);
  Value x = ir_op(b, OP_DOT, args, 2, g->dot->attrs, g->dot->nattrs, NULL, 1, 0)
                ->res[0];
  IrAttr at[] = {attr_i(AT_POS, pos), attr_i(AT_REVERSE, 1)};
  Value y = ir_op(b, OP_SKEW, &x, 1, at, 1 + g->band.back,
                  ir_type(g->f, g->dot->res[0]), 1, 0)
                ->res[0];
  ir_replace_uses(g->f, g->dot->res[0], y);
}

static void visit(void *data, Op *op) {
  Gap g = {.f = data, .dot = op};
  if (!band_of(g.f, op, &g.band)) return;
  g.load = ir_def(g.f, op->args[g.band.table]);
  g.b = (Builder){.fn = g.f,
                  .region = op->parent,
                  .before = op,
                  .span = op->span};
  if (suits(&g)) multiply(&g);
}

bool pass_band_mma(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    ir_walk(m->funcs.at[i]->body, visit, m->funcs.at[i]);
  return true;
}
