// bias_mma: what a column adds to a product, itself a product with ones,
// becomes one more block of the first product's summed axis.
//
//   %s = dot(%q, %k) {over = [d]} : f32{q:64,k:64}
//   %p = load(%P, %b, %i, %c) : bf16{k:64,c:8}
//   %a = dot(1, %p) {over = [c]} : f32{k:64}
//   %x = add(%s, %a)
// to
//   %x = dot(1, %p, %s) {over = [c]}           1 : bf16{q:64,c:8}
//
// The copy engine brings %p beside the keys and matrix units add it, in f32 and
// last, so that the error is that of one sum. What is behind the numbers in
// memory, and behind the tensor, is zeros. Products like %a are made by
// passes/attn/materialize_terms.c. Where keys are read once, by few rows, a sum
// of two products of rows and keys (a latent vector's and a rotated one's) is
// one, too: the second adds to the first. Level tile; sm_90a. Run cse and dce
// afterwards. Tests: test/passes/bias_mma/.
#include "ir/target.h"
#include "passes/pass.h"
#include "passes/tile/tile.h"

static Op *product_of(const Func *f, Value v, uint32_t axes) {
  Op *op = ir_def(f, v);
  const Type *t = ir_type(f, v);
  bool ok = op && op->code == OP_DOT && op->nargs == 2 && t->n == axes &&
            t->dtype == DT_F32 && ir_attr(op, AT_OVER)->n == 1;
  return ok ? op : NULL;
}

// dot(c, load) with a constant c and a tile of 16-bit numbers in memory.
static Op *column_of(const Func *f, Value v, uint32_t *at) {
  Op *op = product_of(f, v, 1);
  double k;
  for (*at = 0; op && *at < 2; ++*at) {
    const Op *load = ir_def(f, op->args[1 - *at]);
    const Type *t = ir_type(f, op->args[1 - *at]);
    if (ir_const_value(f, op->args[*at], &k) && load && load->code == OP_LOAD &&
        t->n == 2 && dtype_is_float16(t->dtype))
      return op;
  }
  return NULL;
}

// A product of 16-bit rows with the columns' axis, made for op alone.
static Op *tile_of(const Func *f, Value v, const Op *op, const Op *columns) {
  Op *dot = product_of(f, v, 2);
  bool ok = dot && ir_count_uses(f, v) == 1 && dot->parent == op->parent &&
            dtype_is_float16(ir_type(f, dot->args[0])->dtype) &&
            dtype_is_float16(ir_type(f, dot->args[1])->dtype) &&
            type_has_axis(ir_type(f, v), ir_type(f, columns->res[0])->axis[0]);
  return ok ? dot : NULL;
}

// The constant as a tile of the rows and of the columns' summed axis.
static Value tile_of_ones(Builder *b, const Op *tile, const Op *columns,
                          uint32_t at) {
  const Func *f = b->fn;
  const Type *t = ir_type(f, tile->res[0]),
             *p = ir_type(f, columns->args[1 - at]);
  uint32_t row = t->axis[0] == ir_type(f, columns->res[0])->axis[0] ? 1 : 0;
  uint32_t over = (uint32_t)ir_attr(columns, AT_OVER)->list[0];
  Type ones = type_with(type_scalar(p->dtype), t->axis[row], t->size[row]);
  ones = type_with(ones, over, p->size[type_axis_at(p, over)]);
  const Op *one = ir_def(f, columns->args[at]);
  return ir_op(b, OP_CONST, NULL, 0, one->attrs, one->nattrs, &ones, 1, 0)
      ->res[0];
}

static void join(void *data, Op *op) {
  Func *f = data;
  uint32_t at;
  for (uint32_t i = 0; op->code == OP_ADD && i < 2; i++) {
    Op *columns = column_of(f, op->args[1 - i], &at);
    Op *tile = columns ? tile_of(f, op->args[i], op, columns) : NULL;
    if (!tile) continue;
    Builder b = {.fn = f, .region = op->parent, .before = op, .span = op->span};
    Value args[] = {tile_of_ones(&b, tile, columns, at), columns->args[1 - at],
                    tile->res[0]};
    Value x =
        ir_op(&b, OP_DOT, args, 3, columns->attrs, columns->nattrs, NULL, 1, 0)
            ->res[0];
    ir_replace_uses(f, op->res[0], x);
    return;
  }
}

static void add_up(void *data, Op *op) {
  Func *f = data;
  const Op *second = tile_added(f, op);
  if (!second) return;
  Value first = op->args[second->res[0] == op->args[0]];
  Builder b = {.fn = f, .region = op->parent, .before = op, .span = op->span};
  Value args[] = {second->args[0], second->args[1], first};
  Value x =
      ir_op(&b, OP_DOT, args, 3, second->attrs, second->nattrs, NULL, 1, 0)
          ->res[0];
  ir_replace_uses(f, op->res[0], x);
}

bool pass_bias_mma(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    ir_walk(m->funcs.at[i]->body, join, m->funcs.at[i]);
    if (opt->few || opt->decode)
      ir_walk(m->funcs.at[i]->body, add_up, m->funcs.at[i]);
  }
  return true;
}
