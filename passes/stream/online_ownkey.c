// Rows that see at least one key, whatever the inputs: the key with the row's
// own coordinate.
//
//   %3 = le(%k, %q)                  with %k = %q all of it holds, so nobody
//   %6 = eq(load(%doc, %q),    ->    has to find out which rows see no key
//           load(%doc, %k))
//   domain(and(%3, %6)) {axis = k}
//
// Only by form: what is the same expression is equal.
#include "passes/stream/online.h"

typedef struct Own {
  const Func *f;
  uint32_t key, row;
} Own;

static bool same(const Own *o, Value x, Value y);

static bool same_args(const Own *o, const Op *a, const Op *b) {
  for (uint32_t i = 0; i < a->nargs; i++)
    if (!same(o, a->args[i], b->args[i])) return false;
  return true;
}

static bool same_coordinate(const Own *o, const Op *a, const Op *b) {
  int64_t x = ir_attr_i(a, AT_AXIS, -1), y = ir_attr_i(b, AT_AXIS, -1);
  if (x == o->key) x = o->row;
  if (y == o->key) y = o->row;
  return x == y;
}

// x and y are equal at the row's own key.
static bool same(const Own *o, Value x, Value y) {
  if (x == y) return true;
  const Op *a = ir_def(o->f, x), *b = ir_def(o->f, y);
  if (!a || !b || a->code != b->code || a->nargs != b->nargs || a->nregions)
    return false;
  if (ir_type(o->f, x)->dtype != ir_type(o->f, y)->dtype) return false;
  if (a->code == OP_INDEX) return same_coordinate(o, a, b);
  if (a->code == OP_LOAD || a->code == OP_CAST) return same_args(o, a, b);
  return !a->nattrs && !b->nattrs && op_info(a->code)->flags & OPF_ELEM &&
         same_args(o, a, b);
}

// NaN is not.
static bool equal(const Own *o, const Op *op) {
  return !dtype_is_float(ir_type(o->f, op->args[0])->dtype) &&
         same(o, op->args[0], op->args[1]);
}

// Predicate v is true at the row's own key.
static bool holds(const Own *o, Value v, bool want) {
  const Op *op = ir_def(o->f, v);
  if (!op) return false;
  bool both = op->code == (want ? OP_AND : OP_OR);
  switch (op->code) {
  case OP_AND:
  case OP_OR: {
    bool a = holds(o, op->args[0], want), b = holds(o, op->args[1], want);
    return both ? a && b : a || b;
  }
  case OP_NOT: return holds(o, op->args[0], !want);
  case OP_LE:
  case OP_EQ: return want && equal(o, op);
  case OP_LT:
  case OP_NE: return !want && equal(o, op);
  default: return false;
  }
}

static bool holds_for(const Online *on, uint32_t axis, uint32_t row) {
  enum { MAX_PRED = 16 };
  Value pred[MAX_PRED];
  uint32_t n = online_domain(on, axis, pred, MAX_PRED);
  Own o = {on->f, axis, row};
  for (uint32_t i = 0; i < n; i++)
    if (!holds(&o, pred[i], true)) return false;
  return n > 0 && n < MAX_PRED;
}

bool online_own_key(const Online *o, uint32_t axis) {
  const Func *f = o->f;
  for (uint32_t a = 0; a < f->axes.n; a++)
    if (f->axes.at[a].role == AX_PAR &&
        f->axes.at[a].extent == f->axes.at[axis].extent &&
        holds_for(o, axis, a))
      return true;
  return false;
}
