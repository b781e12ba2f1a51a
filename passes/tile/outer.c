// Key axes without a tile: those of passes that have passes inside.
//
//   before  kreduce() {axis = j} ({domain}, {
//             %v = kreduce() {axis = q} (..)
//             yield(%v)
//           }, ..)
//   after   for(0, J, 1, zero) ({
//             ^(%j: i64, %old: f32{k:64,d:64}):
//             %new = for(0, Q, 64, %old) (..)
//             yield(%new)
//           })
//
// Tiles have the inner key and the rows, so a third tiled axis would make
// values of three. Keys are walked one by one: their coordinate is a scalar. A
// sum of sums (of heads that share keys) is one set of accumulators: the loop
// inside goes on with those of the loop around. Tests:
// test/passes/tile/outer-keys*.attn.
#include "ir/eval.h"
#include "passes/tile/loop.h"

enum { LOCAL = 1, CORRECT = 2 };  // regions of a pass

static void note_pass(void *found, Op *op) {
  *(bool *)found |= op->code == OP_KREDUCE;
}

static void note_outer(void *axes, Op *op) {
  bool nested = false;
  if (op->code != OP_KREDUCE) return;
  ir_walk(op->regions[LOCAL], note_pass, &nested);
  if (nested) *(uint64_t *)axes |= 1ull << ir_attr_i(op, AT_AXIS, 0);
}

uint64_t tile_outer_axes(Func *f) {
  uint64_t axes = 0;
  ir_walk(f->body, note_outer, &axes);
  for (uint32_t a = 0; a < f->axes.n; a++)
    if (axes >> a & 1) f->axes.at[a].role = AX_STEP;
  return axes;
}

// ---------------------------------------------------------------- sums of sums
static bool is_result(const Op *op, Value v, uint32_t *at) {
  for (*at = 0; *at < op->nres; ++*at)
    if (op->res[*at] == v) return true;
  return false;
}

// Nothing but the sum itself reads accumulator i, and no factor corrects it.
static bool is_plain(const Func *f, const Op *pass, uint32_t i) {
  Region *local = pass->regions[LOCAL], *correct = pass->regions[CORRECT];
  return !ir_uses_in(local, local->params.at[i]) &&
         !ir_uses_in(correct, correct->params.at[i]) &&
         !ir_uses_in(correct, correct->params.at[pass->nres + i]) &&
         tile_is_const(f, tile_yield(correct)->args[i], 1);
}

// The pass inside whose result is all that accumulator i gets, or NULL.
static const Op *goes_on(const KeyLoop *l, uint32_t i) {
  const Func *f = l->t->from;
  Value v = tile_yield(l->local)->args[i];
  const Op *in = ir_def(f, v);
  uint32_t at;
  if (!in || in->code != OP_KREDUCE || in->parent != l->local ||
      !is_result(in, v, &at))
    return NULL;
  Type type = tile_type(l->t, ir_type(f, v));
  bool same = ir_attr(in, AT_KINDS)->list[at] == l->kinds->list[i] &&
              type_eq(&type, &l->types[i]);
  bool once = ir_uses_in(l->op->regions[LOCAL], v) == 1;
  return same && once && is_plain(f, l->op, i) && is_plain(f, in, at) ? in
                                                                      : NULL;
}

void tile_outer_start(KeyLoop *l, const Value *old) {
  for (uint32_t i = 0; i < l->n; i++)
    if (goes_on(l, i))
      map_put(&l->t->start, tile_yield(l->local)->args[i], old[i]);
}

// ---------------------------------------------------------------- terms
static Value as_accumulated(KeyLoop *l, Builder *b, uint32_t i, Value v) {
  return ir_cast(b, l->types[i].dtype, v);
}

static Value product(KeyLoop *l, Builder *b, uint32_t i, const Op *dot,
                     ValueMap *m) {
  Value x = tile_need(l, b, dot->args[0], m);
  Value y = tile_need(l, b, dot->args[1], m);
  return ir_2(b, OP_MUL, as_accumulated(l, b, i, x),
              as_accumulated(l, b, i, y));
}

// Of a reduction over the key alone.
static bool of_key(const KeyLoop *l, const Op *def) {
  const IrAttr *over = def ? ir_attr(def, AT_OVER) : NULL;
  return over && def->parent == l->local && over->n == 1 &&
         over->list[0] == l->axis;
}

Value tile_outer_update(KeyLoop *l, Builder *b, uint32_t i, ValueMap *m,
                        Value acc, Value old) {
  Value from = tile_yield(l->local)->args[i], v;
  const Op *def = ir_def(l->t->from, from);
  if (goes_on(l, i)) {
    v = tile_need(l, b, from, m);
    return l->masked ? ir_3(b, OP_SELECT, l->mask, v, old) : v;
  }
  RKind k = (RKind)l->kinds->list[i];
  if (of_key(l, def) && def->code == OP_DOT) v = product(l, b, i, def, m);
  else if (of_key(l, def)) v = tile_need(l, b, def->args[0], m);
  else v = tile_need(l, b, from, m);
  v = as_accumulated(l, b, i, v);
  if (l->masked) {
    DType t = ir_type(b->fn, v)->dtype;
    Value none = tile_const(b, type_scalar(t), eval_identity(k, t));
    v = ir_3(b, OP_SELECT, l->mask, v, none);
  }
  return tile_combine(b, k, acc, v);
}

Value tile_outer_scan(Builder *b, const Op *op, const ValueMap *m) {
  Value start = vmap_get(m, op->args[1]), v = vmap_get(m, op->args[0]);
  if (ir_attr_i(op, AT_EXCLUSIVE, 0)) return start;
  return tile_combine(b, (RKind)ir_attr_i(op, AT_KIND, RK_SUM), start, v);
}
