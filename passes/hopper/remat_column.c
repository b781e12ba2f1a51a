// remat_column: what grows with the column takes no registers.
//
//   %c = mul(cast(coord() {pos = 1}), splat(%a))     outside of the loop
//   %t = fma(%s, splat(%x), bcast(%c))
//   %e = fma(%t, splat(%k), bcast(%n))
// to, with %r = cast(coord_reg()), %l = cast(coord_thread()),
//   %m = fma(bcast(%r), splat(%a * %k), bcast(%n) + bcast(%l * (%a * %k)))
//   %e = fma(%s, splat(%x * %k), %m)
//
// A column's number is what a thread has in all of its registers and a constant
// for each register, so %m is one instruction with an immediate operand: as
// many as before, but no register for each column through the loop. Where a
// maximum is asked in between (steps that mask, branches), columns are made
// remat, of a scalar that LLVM does not know to be the same in all steps.
// Done where a loop has the first form. Level frag; sm_90a. Runs
// behind lazy_rescale. Run cse, dce afterwards. Tests:
// test/passes/remat_column/.
#include "passes/pass.h"

typedef struct Ramp {
  Func *f;
  Arena *arena;
  Vec(Op *) joins;  // the first form's last op
  Vec(Op *) reads;  // ops that read such columns
  bool pays;
} Ramp;

static Op *made_by(const Ramp *x, Value v, OpCode c) {
  Op *op = ir_def(x->f, v);
  return op && op->code == c ? op : NULL;
}

// ---------------------------------------------------------------- pattern
// Is v one scalar, or a constant, in all of its elements?
static bool is_common(const Ramp *x, Value v) {
  double k;
  return made_by(x, v, OP_SPLAT) || ir_const_value(x->f, v, &k);
}

static Value common(const Ramp *x, Builder *b, Value v) {
  const Op *op = made_by(x, v, OP_SPLAT);
  double k = 0;
  if (op) return op->args[0];
  ir_const_value(x->f, v, &k);
  return ir_const_f(b, DT_F32, k);
}

// v is the column's number times the result, a splat or constant; or 0.
static Value factor_of(const Ramp *x, Value v) {
  const Op *mul = made_by(x, v, OP_MUL);
  for (uint32_t i = 0; mul && i < 2; i++) {
    const Op *cast = made_by(x, mul->args[i], OP_CAST);
    const Op *at = cast ? made_by(x, cast->args[0], OP_COORD) : NULL;
    if (at && ir_attr_i(at, AT_POS, 0) == 1 && is_common(x, mul->args[1 - i]))
      return mul->args[1 - i];
  }
  return 0;
}

// The columns that the tile v is made of, or 0.
static Value columns_of(const Ramp *x, Value v) {
  const Op *b = made_by(x, v, OP_BCAST);
  return b && factor_of(x, b->args[0]) ? b->args[0] : 0;
}

// e = fma(fma(s, x, columns), k, row): the inner fma.
static Op *inner(const Ramp *x, const Op *e) {
  Op *t = e->code == OP_FMA ? made_by(x, e->args[0], OP_FMA) : NULL;
  const Op *n = t ? made_by(x, e->args[2], OP_BCAST) : NULL;
  bool row = n && ir_type(x->f, n->args[0])->slice == SLICE_ROW;
  return row && columns_of(x, t->args[2]) && is_common(x, t->args[1]) &&
                 is_common(x, e->args[1]) && ir_count_uses(x->f, t->res[0]) == 1
             ? t
             : NULL;
}

static void find_join(void *data, Op *op) {
  Ramp *x = data;
  if (!inner(x, op)) return;
  vec_push(x->arena, &x->joins, op);
  const Op *in = op->parent->parent;
  x->pays |= in && in->code == OP_FOR;
}

static void find_read(void *data, Op *op) {
  Ramp *x = data;
  bool reads = op->code == OP_FREDUCE && factor_of(x, op->args[0]);
  for (uint32_t i = 0; i < op->nargs; i++)
    reads |= columns_of(x, op->args[i]) != 0;
  if (reads) vec_push(x->arena, &x->reads, op);
}

// ---------------------------------------------------------------- rewriting
static Builder in_front(const Ramp *x, Op *op) {
  return (Builder){.fn = x->f,
                   .region = op->parent,
                   .before = op,
                   .span = op->span};
}

// v in all elements of a type, or along its other axis.
static Value over(Builder *b, OpCode c, Value v, const Type *like) {
  Type t = *like;
  t.dtype = DT_F32;
  return ir_op(b, c, &v, 1, NULL, 0, &t, 1, 0)->res[0];
}

static Value part(Builder *b, OpCode c, const Type *columns) {
  IrAttr at = attr_i(AT_POS, 1);
  Type t = *columns;
  t.dtype = DT_I32;
  return ir_cast(b, DT_F32, ir_op(b, c, NULL, 0, &at, 1, &t, 1, 0)->res[0]);
}

static void join(const Ramp *x, Op *e) {
  Builder b = in_front(x, e);
  Op *t = inner(x, e);
  Value c = columns_of(x, t->args[2]), k = common(x, &b, e->args[1]);
  Type tile = *ir_type(x->f, e->res[0]), col = *ir_type(x->f, c);
  Value a = ir_2(&b, OP_MUL, common(x, &b, factor_of(x, c)), k);
  Value factor = over(&b, OP_SPLAT, a, &col);
  Value own = ir_2(&b, OP_MUL, part(&b, OP_COORD_THREAD, &col), factor);
  Value row = ir_2(&b, OP_ADD, e->args[2], over(&b, OP_BCAST, own, &tile));
  Value reg = over(&b, OP_BCAST, part(&b, OP_COORD_REG, &col), &tile);
  Value m = ir_3(&b, OP_FMA, reg, over(&b, OP_SPLAT, a, &tile), row);
  Value by = ir_2(&b, OP_MUL, common(x, &b, t->args[1]), k);
  Value y = ir_3(&b, OP_FMA, t->args[0], over(&b, OP_SPLAT, by, &tile), m);
  ir_replace_uses(x->f, e->res[0], y);
  ir_erase(e);
  ir_erase(t);
}

static void make_anew(const Ramp *x, Op *op) {
  Builder b = in_front(x, op);
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value c = columns_of(x, op->args[i]);
    if (!c) continue;
    Type col = *ir_type(x->f, c), tile = *ir_type(x->f, op->args[i]);
    Value a = ir_1(&b, OP_UNIFORM, common(x, &b, factor_of(x, c)));
    a = over(&b, OP_SPLAT, a, &col);
    Value own = ir_2(&b, OP_MUL, part(&b, OP_COORD_THREAD, &col), a);
    Value v = ir_3(&b, OP_FMA, part(&b, OP_COORD_REG, &col), a, own);
    op->args[i] = over(&b, OP_BCAST, v, &tile);
  }
}

// The largest of a * 0, a * 1, .. is one of the ends.
static bool use_ends(const Ramp *x, Op *op) {
  int64_t kind = ir_attr_i(op, AT_KIND, RK_SUM);
  if (op->code != OP_FREDUCE || (kind != RK_MAX && kind != RK_MIN) ||
      ir_type(x->f, op->res[0])->kind == TK_FRAG)
    return false;
  Value by = factor_of(x, op->args[0]);
  if (!by) return false;
  Builder b = in_front(x, op);
  Value a = common(x, &b, by);
  double last = (double)ir_type(x->f, op->args[0])->ext[0] - 1;
  Value at_last = ir_2(&b, OP_MUL, a, ir_const_f(&b, DT_F32, last));
  Value at_first = ir_2(&b, OP_MUL, a, ir_const_f(&b, DT_F32, 0));
  Value v = ir_2(&b, kind == RK_MAX ? OP_MAX : OP_MIN, at_first, at_last);
  ir_replace_uses(x->f, op->res[0], v);
  return true;
}

static void body(Ctx *cx, Func *f) {
  Ramp x = {.f = f, .arena = &cx->scratch};
  ir_walk(f->body, find_join, &x);
  if (!x.pays) return;
  for (uint32_t i = 0; i < x.joins.n; i++) join(&x, x.joins.at[i]);
  ir_walk(f->body, find_read, &x);
  for (uint32_t i = 0; i < x.reads.n; i++)
    if (!use_ends(&x, x.reads.at[i])) make_anew(&x, x.reads.at[i]);
}

bool pass_remat_column(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) body(cx, m->funcs.at[i]);
  return true;
}
