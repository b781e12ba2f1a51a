// Key axes without a tile, of the pass `tile`.
//
//   sum(j: sum(q: p * dO[b, h * r + j, q]))     heads that share keys
//
// A pass whose keys hold another pass goes through them one at a time, so that
// what the inner one has keeps two axes: its rows and its own keys. Its
// accumulators are the inner one's where it only adds them up (loop.c). But an
// axis that makes products of matrices, as keys of a softmax whose scores are
// sums, or along which sums run, has its tile; pass `slice` sees to the rest.
//
//   g[b, h // r, t, d] = sum(j: x[b, h * r + j, t, d])
//
// On GPUs so does a pass over few keys, a group's heads, where nothing is a
// product of matrices: a tile of them would be empty but for a few, and what
// has keys and vectors too wide. And one over batches of such products, as of a
// bias of pairs that batches share: a tile of them would be as many products.
// Tests: test/passes/tile/outer.tir, test/wave/grouped-gradients.test.
#include "passes/support/lane.h"
#include "passes/tile/tile.h"

typedef struct Outer {
  const Func *f;
  uint64_t holds;  // axes of passes that hold a pass
  uint64_t batch;  // axes that both operands of a product of matrices have
  uint64_t tiled;  // axes of sums of products of matrices, and of running sums
} Outer;

static bool has_own(const Type *x, const Type *y) {
  for (uint32_t i = 0; i < x->n; i++)
    if (!type_has_axis(y, x->axis[i])) return true;
  return false;
}

static void find_pass(void *data, Op *op) {
  bool *any = data;
  *any |= op->code == OP_KREDUCE;
}

static void note(void *data, Op *op) {
  Outer *o = data;
  bool inside = false;
  for (uint32_t i = 0; op->code == OP_KREDUCE && i < op->nregions; i++)
    ir_walk(op->regions[i], find_pass, &inside);
  if (inside) o->holds |= (uint64_t)1 << ir_attr_i(op, AT_AXIS, 0);
  if (op->code == OP_SCAN) o->tiled |= (uint64_t)1 << ir_attr_i(op, AT_AXIS, 0);
  if (op->code != OP_DOT) return;
  const Type *x = ir_type(o->f, op->args[0]), *y = ir_type(o->f, op->args[1]);
  const IrAttr *over = ir_attr(op, AT_OVER);
  if (!has_own(x, y) || !has_own(y, x)) return;
  for (uint32_t i = 0; i < over->n; i++)
    o->tiled |= (uint64_t)1 << over->list[i];
  for (uint32_t i = 0; i < x->n; i++)
    if (o->f->axes.at[x->axis[i]].role == AX_KEY &&
        type_has_axis(y, x->axis[i]))
      o->batch |= (uint64_t)1 << x->axis[i];
}

// Keys that GPUs have no tile for: few, and none of a product of matrices.
static uint64_t few_keys(const Func *f, const Target *tg) {
  uint64_t few = 0;
  if (tg->kind != TARGET_GPU || !lane_few_keys(f) || lane_multiplies(f))
    return 0;
  for (uint32_t a = 0; a < f->axes.n; a++)
    if (f->axes.at[a].role == AX_KEY) few |= (uint64_t)1 << a;
  return few;
}

uint64_t tile_outer(Func *f, const Target *tg) {
  Outer o = {.f = f};
  ir_walk(f->body, note, &o);
  uint64_t batch = tg->kind == TARGET_GPU ? o.batch : 0;
  uint64_t outer = (o.holds | few_keys(f, tg) | batch) & ~o.tiled;
  for (uint32_t a = 0; a < f->axes.n; a++)
    if (outer >> a & 1) f->axes.at[a].role = AX_STEP;
  return outer;
}
