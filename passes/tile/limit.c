// Limits of a key loop's mask, of the pass `tile`: comparisons that a key can
// be brought out of are one limit from above and one from below, relative to
// the tile, so that a key is compared once for all of them.
//
//   k <= q & k < n                 k < min(q + 1, n)
//   k <= q | k < n           ->    k < max(q + 1, n)
//   q - k <= left                  q - left <= k
//
// What is made of arguments or memory may lie anywhere. Such a limit is moved
// to where keys are, which changes nothing that is compared with it, and makes
// it an integer of 32 bits. What a table tells that scores read is not
// compared. Tests: test/passes/tile/limits.tir, limits-far.tir.
#include "passes/support/hides.h"
#include "passes/tile/loop.h"

typedef struct Limits {
  Value above, below;  // first key that is too large; least key; or 0
  bool far[3];         // by side: made of what may be far from all keys
  Value rest;          // what else must hold, or 0
  const Op *told;      // the load of a table that tells what else, or NULL
  ValueMap *m;         // of the loop body
} Limits;

static bool has_key(const KeyLoop *l, Value v) {
  return type_has_axis(ir_type(l->t->from, v), l->axis);
}

// v is the key, plus or minus what does not vary with it.
static bool can_isolate(const KeyLoop *l, Value v) {
  const Op *op = ir_def(l->t->from, v);
  if (!op || ir_type(l->t->from, v)->dtype != DT_I64) return false;
  if (op->code == OP_INDEX) return has_key(l, v);
  if (op->code == OP_NEG) return can_isolate(l, op->args[0]);
  if (op->code != OP_ADD && op->code != OP_SUB) return false;
  bool x = has_key(l, op->args[0]), y = has_key(l, op->args[1]);
  return x != y && can_isolate(l, op->args[!x]);
}

static bool is_limit(const KeyLoop *l, const Op *op) {
  if (!op || (op->code != OP_LE && op->code != OP_LT)) return false;
  bool x = has_key(l, op->args[0]), y = has_key(l, op->args[1]);
  return x != y && ir_type(l->t->from, op->args[x])->dtype == DT_I64 &&
         can_isolate(l, op->args[!x]);
}

// Coordinates and extents, and what little is added to them.
static bool is_near(const KeyLoop *l, Value v) {
  enum { LITTLE = 1 << 24 };
  const Op *op = ir_def(l->t->from, v);
  if (!op) return false;
  switch (op->code) {
  case OP_INDEX:
  case OP_DIM: return true;
  case OP_CONST: {
    int64_t c = ir_attr_i(op, AT_IVALUE, LITTLE);
    return -LITTLE < c && c < LITTLE;
  }
  case OP_NEG:
  case OP_ADD:
  case OP_SUB:
  case OP_MIN:
  case OP_MAX:
    for (uint32_t i = 0; i < op->nargs; i++)
      if (!is_near(l, op->args[i])) return false;
    return true;
  default: return false;
  }
}

// ---------------------------------------------------------------- sides
// Whether v, which a key can be brought out of, grows with the key.
static bool grows(const KeyLoop *l, Value v) {
  const Op *op = ir_def(l->t->from, v);
  if (op->code == OP_INDEX) return true;
  if (op->code == OP_NEG) return !grows(l, op->args[0]);
  bool first = has_key(l, op->args[0]);
  return grows(l, op->args[!first]) == (first || op->code == OP_ADD);
}

typedef enum Side { SIDE_NONE, SIDE_ABOVE, SIDE_BELOW } Side;

// On which side p, limits of which one must hold, bounds the key.
static Side side_of(const KeyLoop *l, Value p) {
  const Op *op = ir_def(l->t->from, p);
  if (is_limit(l, op)) {
    bool less = has_key(l, op->args[0]);
    return grows(l, op->args[!less]) == less ? SIDE_ABOVE : SIDE_BELOW;
  }
  if (!op || op->code != OP_OR || op->parent != l->domain) return SIDE_NONE;
  Side x = side_of(l, op->args[0]);
  return x == side_of(l, op->args[1]) ? x : SIDE_NONE;
}

// ---------------------------------------------------------------- limits
static Value joined(Builder *b, OpCode code, Value x, Value y) {
  return x && y ? ir_2(b, code, x, y) : x ? x : y;
}

// v <= r, or r <= v, becomes a limit of the key.
static void isolate(KeyLoop *l, Builder *b, Value v, Value r, bool less,
                    Limits *n) {
  const Op *op = ir_def(l->t->from, v);
  if (op->code == OP_INDEX) {
    Value one = ir_const_i(b, DT_I64, 1);
    if (less) n->above = joined(b, OP_MIN, n->above, ir_2(b, OP_ADD, r, one));
    else n->below = joined(b, OP_MAX, n->below, r);
  } else if (op->code == OP_NEG) {
    r = ir_1(b, OP_NEG, r);
    isolate(l, b, op->args[0], r, !less, n);
  } else if (has_key(l, op->args[0])) {
    OpCode back = op->code == OP_ADD ? OP_SUB : OP_ADD;
    r = ir_2(b, back, r, tile_need(l, b, op->args[1], n->m));
    isolate(l, b, op->args[0], r, less, n);
  } else {
    Value x = tile_need(l, b, op->args[0], n->m);
    bool sub = op->code == OP_SUB;
    r = sub ? ir_2(b, OP_SUB, x, r) : ir_2(b, OP_SUB, r, x);
    isolate(l, b, op->args[1], r, less != sub, n);
  }
}

static bool far_from_keys(const KeyLoop *l, const Op *op) {
  return l->t->near && !(is_near(l, op->args[0]) && is_near(l, op->args[1]));
}

static void limit(KeyLoop *l, Builder *b, Value p, Limits *n);

// Either of two limits on one side: the one that lets more through.
static void either(KeyLoop *l, Builder *b, const Op *op, Limits *n) {
  Limits x = {.m = n->m}, y = {.m = n->m};
  limit(l, b, op->args[0], &x);
  limit(l, b, op->args[1], &y);
  if (x.above)
    n->above = joined(b, OP_MIN, n->above, ir_2(b, OP_MAX, x.above, y.above));
  else
    n->below = joined(b, OP_MAX, n->below, ir_2(b, OP_MIN, x.below, y.below));
  for (int i = 0; i < 3; i++) n->far[i] |= x.far[i] || y.far[i];
}

static void limit(KeyLoop *l, Builder *b, Value p, Limits *n) {
  const Op *op = ir_def(l->t->from, p);
  if (op && op->code == OP_AND && op->parent == l->domain) {
    limit(l, b, op->args[0], n);
    limit(l, b, op->args[1], n);
  } else if (is_limit(l, op)) {
    bool less = has_key(l, op->args[0]);
    Value r = tile_need(l, b, op->args[less], n->m),
          one = ir_const_i(b, DT_I64, 1);
    if (op->code == OP_LT) r = ir_2(b, less ? OP_SUB : OP_ADD, r, one);
    n->far[side_of(l, p)] |= far_from_keys(l, op);
    isolate(l, b, op->args[!less], r, less, n);
  } else if (l->t->near && side_of(l, p)) {
    either(l, b, op, n);
  } else if (tile_told(l, p)) {
    n->told = tile_told(l, p);
  } else {
    Value v = tile_need(l, b, p, n->m);
    n->rest = n->rest ? ir_2(b, OP_AND, n->rest, v) : v;
  }
}

// What limits hide has the table's number for it too, so that an element has
// one comparison.
static void tell(KeyLoop *l, Builder *b, const Op *load, ValueMap *m) {
  Value x = tile_need(l, b, load->res[0], m);
  Value hide = tile_const(b, type_scalar(DT_F32), HIDES_PAIR);
  x = ir_3(b, OP_SELECT, l->mask, x, hide);
  vmap_put(m, load->res[0], x);
  l->mask = ir_2(b, OP_NE, x, hide);
}

void tile_limits(KeyLoop *l, Builder *b, Value k0, Value iota, ValueMap *m) {
  Value extent = ir_dim(b, l->t->from->axes.at[l->axis].extent);
  Limits n = {.above = extent, .m = m};
  if (!l->whole) limit(l, b, tile_yield(l->domain)->args[0], &n);
  if (n.far[SIDE_ABOVE])
    n.above = ir_2(b, OP_MAX, n.above, ir_const_i(b, DT_I64, 0));
  if (n.far[SIDE_BELOW]) {
    Value zero = ir_const_i(b, DT_I64, 0);
    n.below = ir_2(b, OP_MAX, ir_2(b, OP_MIN, n.below, extent), zero);
  }
  Value at = ir_2(b, OP_SUB, n.above, k0);
  l->mask = ir_2(b, OP_LT, iota, at);
  if (n.below) {
    at = ir_2(b, OP_SUB, n.below, k0);
    l->mask = ir_2(b, OP_AND, l->mask, ir_2(b, OP_LE, at, iota));
  }
  if (n.told) tell(l, b, n.told, m);
  if (n.rest) l->mask = ir_2(b, OP_AND, l->mask, n.rest);
}
