// Key axes without a tile, of the pass `tile`.
//
//   sum(j: sum(q: p * dO[b, h * r + j, q]))     heads that share keys
//
// A pass whose keys hold another pass goes through them one at a time, so that
// what the inner one has keeps two axes: its rows and its own keys. Its
// accumulators are the inner one's where it only adds them up (loop.c). But an
// axis that makes products of matrices, as keys of a softmax whose scores are
// sums, or along which sums run or are stored for each block (blocks.c), has
// its tile; pass `slice` sees to the rest.
//
//   g[b, h // r, t, d] = sum(j: x[b, h * r + j, t, d])
//
// On GPUs so does a pass over few keys, a group's heads, where nothing is a
// product of matrices: a tile of them would be empty but for a few, and what
// has keys and vectors too wide. And one over batches of such products, as of a
// bias of pairs that batches share: a tile of them would be as many products.
//
//   sum(i: w[b, q, i] * relu(dot(x[b, q, i], y[b, k])))     heads of an indexer
//
// Where a product of matrices has keys of two passes, of which one has a tile,
// the other goes a key at a time, if what is left multiplies matrices.
//
//   count(i: q // 2^i != k // 2^i)                          levels of a pair
//
// So does a pass, in one whose keys have a tile, over what has rows and keys.
// Tests: test/passes/tile/outer.tir, test/passes/tile/indexed.test,
// test/wave/grouped-gradients.test.
#include "ir/deps.h"
#include "passes/support/lane.h"
#include "passes/tile/tile.h"

typedef struct Outer {
  const Func *f;
  uint64_t holds;  // axes of passes that hold a pass
  uint64_t batch;  // axes that both operands of a product of matrices have
  uint64_t tiled;  // axes of sums of products of matrices, of running sums, and
                   // of blocks
  uint64_t own;    // axes that one operand of such products has
  uint64_t walked;  // axes that would be a third one beside rows and keys
} Outer;

static uint64_t axes_of(const Outer *o, Value v) {
  return ir_axes_of(o->f, v);
}

// Do both operands have axes of their own, leaving out some?
static bool is_matrix(const Outer *o, const Op *dot, uint64_t without) {
  uint64_t x = axes_of(o, dot->args[0]), y = axes_of(o, dot->args[1]);
  return x & ~y & ~without && y & ~x & ~without;
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
  if (op->code == OP_SCAN || ir_attr(op, AT_BLOCK))
    o->tiled |= (uint64_t)1 << ir_attr_i(op, AT_AXIS, 0);
  if (op->code != OP_DOT) return;
  const IrAttr *over = ir_attr(op, AT_OVER);
  if (!is_matrix(o, op, 0)) return;
  for (uint32_t i = 0; i < over->n; i++)
    o->tiled |= (uint64_t)1 << over->list[i];
  uint64_t x = axes_of(o, op->args[0]), y = axes_of(o, op->args[1]);
  o->batch |= x & y & ir_axes_with(o->f, AX_KEY);
  o->own |= x ^ y;
}

// Of the keys of a product those that are left: passes around it, the outermost
// first, go through theirs one at a time, if what is left multiplies matrices
// and has keys that have a tile anyway.
static uint64_t walk(Outer *o, const Op *dot, const Op *pass, uint64_t keys) {
  if (!pass) return keys & ~o->walked;
  uint64_t left = walk(o, dot, pass->parent->parent, keys), axis = 0;
  if (pass->code == OP_KREDUCE)
    axis = (uint64_t)1 << ir_attr_i(pass, AT_AXIS, 0);
  if (!(left & axis & ~o->tiled) || !(left & o->tiled) ||
      !is_matrix(o, dot, (keys & ~left) | axis))
    return left;
  o->walked |= axis;
  return left & ~axis;
}

// A pass of no products, over what has rows and the keys of a tile, too.
static void note_pass(const Op *pass, Outer *o) {
  uint64_t axis = (uint64_t)1 << ir_attr_i(pass, AT_AXIS, 0), has = 0;
  const Op *made = pass->regions[1]->last;
  for (uint32_t i = 0; i < made->nargs; i++) has |= axes_of(o, made->args[i]);
  if (has & o->tiled & ~axis & ir_axes_with(o->f, AX_KEY) &&
      has & ir_axes_with(o->f, AX_PAR))
    o->walked |= axis & ~o->own;
}

static void note_wide(void *data, Op *op) {
  Outer *o = data;
  if (op->code == OP_KREDUCE) note_pass(op, o);
  if (op->code != OP_DOT || !is_matrix(o, op, 0)) return;
  walk(o, op, op->parent->parent,
       axes_of(o, op->res[0]) & ir_axes_with(o->f, AX_KEY));
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
  if (tg->kind == TARGET_GPU) ir_walk(f->body, note_wide, &o);
  else o.batch = 0;
  uint64_t outer = (o.holds | o.walked | few_keys(f, tg) | o.batch) & ~o.tiled;
  for (uint32_t a = 0; a < f->axes.n; a++)
    if (outer >> a & 1) f->axes.at[a].role = AX_STEP;
  return outer;
}
