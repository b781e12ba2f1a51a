// What the points of a tile add to memory (part of the pass `tile`).
//
//   before  axes(k par Sk, q key Sq)
//           pass { store(%A, dot(%x, %y) {over = [k]}, %q, %d) {add} }
//   after   grid(.., k:128 serial)
//           %old = load(%A, %q, %d)
//           %new = dot(select(%seen, %x, 0), %y, %old) {over = [k]}
//           store(%A, %new, %q, %d)
//
// Tasks along the axis that is summed would add to the same elements in any
// order: one task has all of the axis, a tile after the other. On a GPU any
// order will do (`--any-order`), and tasks add what their own rows are summed
// to:
//
//   after   grid(.., k:128)
//           %sum = dot(select(%rows, %x, 0), %y) {over = [k]}
//           store(%A, %sum, %q, %d) {add}
//
// And what a sum has in front of each block of keys is stored by the tile that
// is the block, as what the loop hands on:
//
//   before  store(%A, %sum, %q, k // 64) {axis = k, dir = suffix, block = 64}
//   after   for(%lo, %hi, 64, ..) { ^(%k0, %sum): store(%A, %sum, %q, %k0 / 64)
//
// Tests: test/passes/tile/adds.tir, adds-gpu.tir, fronts.tir.
#include "passes/tile/loop.h"

// Which rows of a tile along this axis are inside of it, and whether all are;
// 0: always.
static Value live_rows(const Tiler *t, Builder *b, uint32_t axis, Value *all) {
  Dim extent = t->from->axes.at[axis].extent;
  int64_t tile = (int)axis == t->plan.lane ? t->plan.tile_q : 1;
  if (dim_divisor(&t->to->mod->dims, extent) % tile == 0) return 0;
  Value n = ir_dim(b, extent);
  Value end = ir_2(b, OP_ADD, t->origin[axis], ir_const_i(b, DT_I64, tile));
  *all = ir_2(b, OP_LE, end, n);
  return ir_2(b, OP_LT, t->coord[axis], n);
}

void tile_live_rows(KeyLoop *l, Builder *b) {
  Value all, live = live_rows(l->t, b, (uint32_t)l->t->plan.lane, &all);
  if (!live) return;
  l->mask = ir_2(b, OP_AND, l->mask, live);
  if (l->full) l->full = ir_2(b, OP_AND, l->full, all);
}

// Which points of the tile count, of the loops around too. 0: all.
static Value counted(const KeyLoop *l, Builder *b, uint32_t axis) {
  Value all = l->full, live = l->mask;
  if (!l->masked) live = live_rows(l->t, b, axis, &all);
  bool full = !l->masked || l->full, more = !l->masked && live;
  for (const KeyLoop *o = l->outer; o; o = o->outer) {
    if (!o->masked) continue;
    more = true;
    full &= o->full != 0;
    if (o->full) all = all && live ? ir_2(b, OP_AND, all, o->full) : o->full;
    live = live ? ir_2(b, OP_AND, live, o->mask) : o->mask;
  }
  return more && full ? ir_2(b, OP_OR, all, live) : live;
}

static Value or_0(Builder *b, Value counts, Value v) {
  return counts ? tile_keep_if(b, counts, v, 0) : v;
}

// The operand of a product that all keys share, as far as the tiled axis is
// summed; 0: there is none.
static Value shared_operand(const KeyLoop *l, const Op *sum) {
  const IrAttr *over = sum ? ir_attr(sum, AT_OVER) : NULL;
  if (!over || sum->code != OP_DOT || over->list[0] != l->t->plan.lane)
    return 0;
  for (uint32_t i = 0; i < 2; i++) {
    const Type *t = ir_type(l->t->from, sum->args[i]);
    if (!type_has_axis(t, l->axis) && !tile_waits(l->t, sum->args[i]))
      return sum->args[i];
  }
  return 0;
}

Value tile_is_finite(Builder *b, Value v, uint32_t first) {
  DType dt = ir_type(b->fn, v)->dtype == DT_F64 ? DT_F64 : DT_F32;
  Value zero = ir_const_f(b, dt, 0);
  v = ir_2(b, OP_MUL, ir_cast(b, dt, v), zero);
  v = ir_reduce(b, RK_SUM, v, &first, 1);  // lanes along the vectors
  Type t = *ir_type(b->fn, v);
  if (t.n) v = ir_reduce(b, RK_SUM, v, t.axis, t.n);
  return ir_2(b, OP_EQ, v, zero);
}

Value tile_adds_finite(KeyLoop *l, Builder *b, ValueMap *m) {
  Value ok = 0;
  for (const Op *op = l->local->first; op; op = op->next) {
    if (op->code != OP_STORE || !l->t->careful) continue;
    Value from = shared_operand(l, ir_def(l->t->from, op->args[1]));
    if (!from || !dtype_is_float(ir_type(l->t->from, from)->dtype)) continue;
    Value v = tile_need(l, b, from, m);
    v = tile_is_finite(b, v, (uint32_t)l->t->plan.lane);
    ok = ok ? ir_2(b, OP_AND, ok, v) : v;
  }
  return ok;
}

// old + the sum of the operands over the axis. A row's weight of a key that it
// does not see is 0, but 0 * NaN is not: it is left out where there is one, and
// where both operands are the key's own both are 0.
static Value sum_of(KeyLoop *l, Builder *b, const Op *sum, ValueMap *m,
                    Value old) {
  const IrAttr *over = ir_attr(sum, AT_OVER);
  uint32_t axis = (uint32_t)over->list[0];
  Value counts = counted(l, b, axis), x = tile_need(l, b, sum->args[0], m);
  bool tiled = (int)axis == l->t->plan.lane;
  if (sum->code != OP_DOT) {
    x = or_0(b, counts, x);
    return ir_2(b, OP_ADD, old, tiled ? ir_reduce(b, RK_SUM, x, &axis, 1) : x);
  }
  Value y = tile_need(l, b, sum->args[1], m);
  bool keyed = type_has_axis(ir_type(b->fn, x), l->axis);
  if (!keyed || type_has_axis(ir_type(b->fn, y), l->axis))
    y = or_0(b, counts, y);
  if (keyed) x = or_0(b, counts, x);
  Value args[4] = {x, y, old};
  bool keep = counts && l->finite;
  if (keep) args[3] = ir_2(b, OP_OR, l->finite, counts);
  if (tiled)
    return ir_op(b, OP_DOT, args, 3 + keep, over, 1, NULL, 1, 0)->res[0];
  DType t = ir_type(b->fn, old)->dtype;
  y = ir_cast(b, t, y);
  x = ir_2(b, OP_MUL, ir_cast(b, t, x), y);
  return ir_2(b, OP_ADD, old, or_0(b, counts, x));
}

Value tile_adds_rows(const KeyLoop *l, Builder *b, Value from, Value v) {
  const Func *f = l->t->from;
  for (const Op *op = l->local->first; op; op = op->next) {
    const Op *sum = op->code == OP_STORE ? ir_def(f, op->args[1]) : NULL;
    if (!sum || !l->t->gpu || !ir_mentions(sum, from)) continue;
    uint32_t axis = (uint32_t)ir_attr(sum, AT_OVER)->list[0];
    Value all, live = live_rows(l->t, b, axis, &all);
    return live ? or_0(b, ir_2(b, OP_OR, all, live), v) : v;
  }
  return v;
}

// The same of this task's rows alone. A GPU's products have 0 where one of
// their operands does, but for what is behind the end of the tiled axis.
static Value part_of(KeyLoop *l, Builder *b, const Op *sum, ValueMap *m) {
  const IrAttr *over = ir_attr(sum, AT_OVER);
  uint32_t axis = (uint32_t)over->list[0];
  Value v[2];
  bool tiled = (int)axis == l->t->plan.lane, done = false;
  for (uint32_t i = 0; i < 2; i++) {
    v[i] = tile_need(l, b, sum->args[i], m);
    if (done || !type_has_axis(ir_type(b->fn, v[i]), l->axis)) continue;
    for (const KeyLoop *o = l; o; o = o->outer)
      if (o->masked) v[i] = or_0(b, o->mask, v[i]);
    v[i] = tile_adds_rows(l, b, sum->args[i], v[i]);
    done = true;
  }
  if (tiled) return ir_dot(b, v[0], v[1], &axis, 1);
  DType t = ir_type(l->t->from, sum->res[0])->dtype;
  for (uint32_t i = 0; i < 2; i++) v[i] = ir_cast(b, t, v[i]);
  return ir_2(b, OP_MUL, v[0], v[1]);
}

// All keys of the tile have the same block.
static void put_front(KeyLoop *l, Builder *b, const Op *op, Value k0,
                      ValueMap *m) {
  Value args[MAX_AXES + 3] = {vmap_get(m, op->args[0])};
  for (uint32_t i = 1; i < op->nargs; i++) {
    bool keyed = type_has_axis(ir_type(l->t->from, op->args[i]), l->axis);
    if (keyed) {
      Value block = ir_const_i(b, DT_I64, ir_attr_i(op, AT_BLOCK, 1));
      args[i] = ir_2(b, OP_FLOORDIV, k0, block);
    } else args[i] = tile_need(l, b, op->args[i], m);
  }
  ir_op(b, OP_STORE, args, op->nargs, NULL, 0, NULL, 0, 0);
}

static void add(KeyLoop *l, Builder *b, const Op *op, ValueMap *m) {
  Value args[MAX_AXES + 3] = {vmap_get(m, op->args[0])}, *at = args + 2;
  const Op *sum = ir_def(l->t->from, op->args[1]);
  uint32_t n = op->nargs - 2, nattrs = 0;
  for (uint32_t i = 0; i < n; i++) at[i] = tile_need(l, b, op->args[i + 2], m);
  if (l->t->gpu) {
    args[1] = part_of(l, b, sum, m);
  } else {
    Value old = ir_load(b, args[0], at, n);
    args[1] = sum_of(l, b, sum, m, old);
  }
  // Of masked keys a GPU adds zeros.
  bool masked = l->masked && !l->t->gpu && !tile_ends_with_keys(l, op, m);
  if (masked) at[n] = l->kmask;
  IrAttr attrs[2];
  if (masked) attrs[nattrs++] = attr_i(AT_MASKED, 1);
  if (l->t->gpu) attrs[nattrs++] = attr_i(AT_ADD, 1);
  ir_op(b, OP_STORE, args, n + 2 + masked, attrs, nattrs, NULL, 0, 0);
}

void tile_adds(KeyLoop *l, Builder *b, Value k0, ValueMap *m) {
  for (const Op *op = l->local->first; op; op = op->next)
    if (op->code == OP_STORE && ir_attr(op, AT_BLOCK))
      put_front(l, b, op, k0, m);
    else if (op->code == OP_STORE) add(l, b, op, m);
}
