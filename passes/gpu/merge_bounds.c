// merge_bounds: several bounds of one coordinate become one comparison.
//
//   %a = bcast(lt(%col, splat(%S)))             %n = sub(%S, 1)
//   %b = le(bcast(%col), bcast(%row))           %u = min(%row, splat(%n))
//   %c = and(%a, %b)                       ->   %v = select(splat(%full), max, %u)
//   %d = or(splat(%full), %c)                   %d = le(bcast(%col), bcast(%v))
//   %e = freduce(%d) {kind = any}               %e = le(splat(%k0), %v)
//
// A mask of a tile is then one comparison an element (two, if it has a lower
// and an upper bound); what is done to the bounds is done once a row. %full,
// the question whether the tile needs a mask, goes into the bounds too. Whether
// a row has any key, with %col = %k0 .. %k0 + n - 1, needs no element at all.
// Differences of a row's and a key's coordinate (windows) are bounds of the
// key. What could overflow is done in i64. Level frag. Needs: lower_gpu. Run
// dce afterwards. Tests: test/passes/merge_bounds/.
#include "passes/pass.h"

#include "ir/layout.h"
#include "ir/target.h"

typedef struct Bounds {
  Func *f;
  Builder b;
  bool near;  // see passes/tile/limit.c; columns are compared as they are
} Bounds;

// lo <= col <= hi, or col < hi; lo, hi: scalars, values of rows, or 0 for none.
typedef struct Test {
  Value col, lo, hi;
  bool less;  // col < hi
} Test;

static const Type *type_of(const Bounds *x, Value v) {
  return ir_type(x->f, v);
}

static bool is_i32(const Bounds *x, Value v) {
  return type_of(x, v)->dtype == DT_I32;
}

static bool is_slice(const Bounds *x, Value v, FragSlice slice) {
  const Type *t = type_of(x, v);
  return t->kind == TK_FRAG && t->slice == slice && !t->partial;
}

static bool is_scalar(const Bounds *x, Value v) {
  return type_of(x, v)->kind == TK_ELEM;
}

// What is broadcast to a tile: a scalar or a slice; of i32 if that was widened.
static Value stripped(Bounds *x, Value v) {
  for (const Op *op = ir_def(x->f, v); op; op = ir_def(x->f, v)) {
    if (op->code == OP_CONST && !is_scalar(x, v) && ir_attr(op, AT_IVALUE))
      return ir_const_i(&x->b, type_of(x, v)->dtype,
                        ir_attr_i(op, AT_IVALUE, 0));
    bool wider = op->code == OP_CAST && type_of(x, v)->dtype == DT_I64 &&
                 is_i32(x, op->args[0]);
    if (op->code != OP_BCAST && op->code != OP_SPLAT && !wider) break;
    v = op->args[0];
  }
  return v;
}

// ---------------------------------------------------------------- bounds
static Value joined(Bounds *x, OpCode op, Value a, Value b);

static Value moved(Bounds *x, Value v, int64_t by) {
  DType t = type_of(x, v)->dtype;
  return by ? joined(x, OP_ADD, v, ir_const_i(&x->b, t, by)) : v;
}

static Value converted(Bounds *x, Value v, DType to) {
  Type t = *type_of(x, v);
  if (t.dtype == to) return v;
  t.dtype = to;
  IrAttr at = {.id = AT_TO, .i = to};
  return ir_op(&x->b, OP_CAST, &v, 1, &at, 1, &t, 1, 0)->res[0];
}

static Value spread(Bounds *x, Value v, const Type *t) {
  if (!is_scalar(x, v) || t->kind == TK_ELEM) return v;
  Type r = *t;
  r.dtype = type_of(x, v)->dtype;
  return ir_op(&x->b, OP_SPLAT, &v, 1, NULL, 0, &r, 1, 0)->res[0];
}

static Value joined(Bounds *x, OpCode op, Value a, Value b) {
  const Type *t = is_scalar(x, a) ? type_of(x, b) : type_of(x, a);
  b = spread(x, b, t);
  return ir_2(&x->b, op, spread(x, a, t), b);
}

// op(a, b) of two bounds, either of which may be 0: the other one then.
static Value tighter(Bounds *x, OpCode op, Value a, Value b) {
  return a && b ? joined(x, op, a, b) : a ? a : b;
}

// No coordinate, and no difference of two, is beyond the limits.
static Value clamped(Bounds *x, Value v, int64_t limit) {
  v = joined(x, OP_MIN, v, ir_const_i(&x->b, DT_I64, limit));
  return joined(x, OP_MAX, v, ir_const_i(&x->b, DT_I64, -limit - 1));
}

// The bound v + by as i32.
static Value bound_of(Bounds *x, Value v, int64_t by) {
  const Op *op = ir_def(x->f, v);
  if (is_i32(x, v) && (!by || (op && op->code == OP_DIM)))
    return moved(x, v, by);
  v = clamped(x, converted(x, v, DT_I64), INT32_MAX);
  if (by) v = joined(x, OP_ADD, v, ir_const_i(&x->b, DT_I64, by));
  return converted(x, clamped(x, v, INT32_MAX), DT_I32);
}

// row + sign * v.
static Value offset_by(Bounds *x, Value row, int sign, Value v) {
  enum { FAR = 40 };
  Value far = clamped(x, converted(x, v, DT_I64), INT64_C(1) << FAR);
  return joined(x, sign < 0 ? OP_SUB : OP_ADD, converted(x, row, DT_I64), far);
}

// No bound where `free` holds.
static Value loosened(Bounds *x, Value free, Value bound, int64_t limit) {
  if (!bound) return 0;
  const Type t = *type_of(x, bound);
  Value most = spread(x, ir_const_i(&x->b, DT_I32, limit), &t);
  return ir_3(&x->b, OP_SELECT, spread(x, free, &t), most, bound);
}

// ---------------------------------------------------------------- tests
static bool is_bound(const Bounds *x, Value v) {
  DType t = type_of(x, v)->dtype;
  return (is_scalar(x, v) || is_slice(x, v, SLICE_ROW)) &&
         (t == DT_I32 || t == DT_I64);
}

static bool is_col(const Bounds *x, Value v) {
  DType t = type_of(x, v)->dtype;
  return is_slice(x, v, SLICE_COL) && (t == DT_I32 || t == DT_I64);
}

// le(a, b) or lt(a, b), one of them a coordinate.
static bool parse_simple(Bounds *x, Value a, Value b, bool strict, Test *t) {
  if (is_col(x, a) && is_bound(x, b)) {
    bool less = strict && x->near;
    *t = (Test){.col = a, .hi = bound_of(x, b, less - strict), .less = less};
  } else if (is_col(x, b) && is_bound(x, a)) {
    *t = (Test){.col = b, .lo = bound_of(x, a, strict)};
  } else {
    return false;
  }
  return true;
}

// The same of (p - q) and v, if `left`; of v and (p - q) else. One of p and q
// is a coordinate, the other one a value of rows.
static bool parse_difference(Bounds *x, const Op *sub, Value v, bool left,
                             bool strict, Test *t) {
  if (!sub || sub->code != OP_SUB || !is_bound(x, v)) return false;
  Value p = stripped(x, sub->args[0]), q = stripped(x, sub->args[1]);
  bool first = is_col(x, p);
  t->col = first ? p : q;
  Value row = first ? q : p;
  if (!is_col(x, t->col) || !is_slice(x, row, SLICE_ROW) || !is_bound(x, row))
    return false;
  Value bound = offset_by(x, row, first ? 1 : -1, v);
  bool upper = first == left;
  *(upper ? &t->hi : &t->lo) = bound_of(x, bound, upper ? -strict : strict);
  return true;
}

static bool parse_compare(Bounds *x, const Op *op, Test *t) {
  Value a = stripped(x, op->args[0]), b = stripped(x, op->args[1]);
  bool strict = op->code == OP_LT;
  return parse_simple(x, a, b, strict, t) ||
         parse_difference(x, ir_def(x->f, a), b, true, strict, t) ||
         parse_difference(x, ir_def(x->f, b), a, false, strict, t);
}

static bool parse(Bounds *x, Value v, Test *t);

// col < hi as col <= hi - 1. What has two bounds often has many masked steps.
static void close(Bounds *x, Test *t) {
  if (!t->less) return;
  t->less = false;
  if (!t->lo || !is_i32(x, t->hi)) {
    t->hi = bound_of(x, t->hi, -1);
    return;
  }
  Value least = ir_const_i(&x->b, DT_I32, INT32_MIN + 1);
  t->hi = moved(x, joined(x, OP_MAX, t->hi, least), -1);
}

static void joinable(Bounds *x, Test *t, Test *u) {
  if (t->less == u->less) return;
  close(x, t);
  close(x, u);
}

static bool parse_and(Bounds *x, const Op *op, Test *t) {
  Test u = {0};
  if (!parse(x, op->args[0], t) || !parse(x, op->args[1], &u)) return false;
  if (t->col != u.col) return false;
  if (t->hi && u.hi) joinable(x, t, &u);
  t->less |= u.less;
  t->lo = tighter(x, OP_MAX, t->lo, u.lo);
  t->hi = tighter(x, OP_MIN, t->hi, u.hi);
  return true;
}

// Either of two upper bounds, or no bound where a scalar holds.
static bool parse_or(Bounds *x, const Op *op, Test *t) {
  Test u = {0};
  for (uint32_t i = 0; i < 2; i++) {
    Value free = stripped(x, op->args[i]);
    if (!is_scalar(x, free)) continue;
    if (!parse(x, op->args[1 - i], t)) return false;
    close(x, t);
    t->lo = loosened(x, free, t->lo, INT32_MIN);
    t->hi = loosened(x, free, t->hi, INT32_MAX);
    return true;
  }
  if (!parse(x, op->args[0], t) || !parse(x, op->args[1], &u)) return false;
  if (t->col != u.col || t->lo || u.lo) return false;
  joinable(x, t, &u);
  t->hi = joined(x, OP_MAX, t->hi, u.hi);
  return true;
}

static bool parse(Bounds *x, Value v, Test *t) {
  const Op *op = ir_def(x->f, v);
  if (!op) return false;
  switch (op->code) {
  case OP_BCAST: return parse(x, op->args[0], t);
  case OP_LE:
  case OP_LT: return parse_compare(x, op, t);
  case OP_AND: return parse_and(x, op, t);
  case OP_OR: return parse_or(x, op, t);
  default: return false;
  }
}

// ---------------------------------------------------------------- rewriting
static Value as_tile(Bounds *x, Value v, const Type *t) {
  Type r = *t;
  r.dtype = DT_I32;
  if (type_eq(type_of(x, v), &r)) return v;
  OpCode c = is_scalar(x, v) ? OP_SPLAT : OP_BCAST;
  return ir_op(&x->b, c, &v, 1, NULL, 0, &r, 1, 0)->res[0];
}

// col = k0 + coord, with k0 and coord of i32.
typedef struct Column {
  Value k0, coord;
} Column;

static bool column_of(Bounds *x, Value col, Column *c) {
  const Op *op = ir_def(x->f, col);
  if (x->near && op && op->code == OP_COORD && is_i32(x, col)) {
    *c = (Column){ir_const_i(&x->b, DT_I32, 0), col};
    return true;
  }
  for (uint32_t i = 0; op && op->code == OP_ADD && i < 2; i++) {
    c->coord = stripped(x, op->args[i]);
    c->k0 = stripped(x, op->args[1 - i]);
    const Op *coord = ir_def(x->f, c->coord);
    if (!coord || coord->code != OP_COORD || !is_scalar(x, c->k0)) continue;
    c->k0 = bound_of(x, c->k0, 0);
    return true;
  }
  return false;
}

// The coordinate as i32, which all coordinates of tiles that are visited are.
static Value narrow_col(Bounds *x, Value col) {
  Column c;
  if (is_i32(x, col)) return col;
  return column_of(x, col, &c) ? joined(x, OP_ADD, c.k0, c.coord) : 0;
}

static Value compared(Bounds *x, Test *t, const Type *type) {
  Value col = narrow_col(x, t->col), lo = 0, hi = 0;
  if (!col) return 0;
  if (!t->lo) close(x, t);
  col = as_tile(x, col, type);
  if (t->lo) lo = ir_2(&x->b, OP_LE, as_tile(x, t->lo, type), col);
  OpCode order = t->less ? OP_LT : OP_LE;
  if (t->hi) hi = ir_2(&x->b, order, col, as_tile(x, t->hi, type));
  return lo && hi ? ir_2(&x->b, OP_AND, lo, hi) : lo ? lo : hi;
}

static bool is_bool(Bounds *x, Value v, int64_t want) {
  const Op *op = ir_def(x->f, stripped(x, v));
  return op && op->code == OP_CONST && ir_attr(op, AT_IVALUE) &&
         ir_attr_i(op, AT_IVALUE, 0) == want;
}

// select(%c, true, false)
static Value condition(Bounds *x, Value v) {
  const Op *op = ir_def(x->f, v);
  bool same = op && op->code == OP_SELECT && is_bool(x, op->args[1], 1) &&
              is_bool(x, op->args[2], 0);
  return same ? op->args[0] : v;
}

// any(lo <= k0 + j <= hi) for j = 0 .. n - 1.
static Value any_of(Bounds *x, const Op *op) {
  Test t = {0};
  const Type *r = type_of(x, op->res[0]);
  if (ir_attr_i(op, AT_KIND, RK_SUM) != RK_ANY || r->slice != SLICE_ROW ||
      r->partial || !parse(x, condition(x, op->args[0]), &t))
    return 0;
  Column c;
  if (!column_of(x, t.col, &c)) return 0;
  close(x, &t);
  Value k0 = c.k0, lo = k0, hi = t.hi;
  if (t.lo) {
    int64_t n = type_of(x, t.col)->ext[0];
    lo = tighter(x, OP_MAX, k0, t.lo);
    hi = tighter(x, OP_MIN, moved(x, k0, n - 1), hi);
  }
  hi = spread(x, hi, r);
  return ir_2(&x->b, OP_LE, spread(x, lo, r), hi);
}

static bool is_mask(const Bounds *x, const Op *op) {
  if (op->code != OP_AND && op->code != OP_OR) return false;
  const Type *t = type_of(x, op->res[0]);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

static Value rewritten(Bounds *x, const Op *op) {
  Test t = {0};
  if (op->code == OP_FREDUCE) return any_of(x, op);
  if (!is_mask(x, op) || !ir_count_uses(x->f, op->res[0])) return 0;
  if (!parse(x, op->res[0], &t)) return 0;
  return compared(x, &t, type_of(x, op->res[0]));
}

// Last ops first: a whole mask before its parts, which nobody needs then.
static void region(Bounds *x, Region *r) {
  for (Op *op = r->last, *prev; op; op = prev) {
    prev = op->prev;
    for (uint32_t i = 0; i < op->nregions; i++) region(x, op->regions[i]);
    x->b = (Builder){.fn = x->f, .region = r, .before = op, .span = op->span};
    Value v = op->nres == 1 ? rewritten(x, op) : 0;
    if (!v) continue;
    ir_replace_uses(x->f, op->res[0], v);
    ir_erase(op);
  }
}

bool pass_merge_bounds(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  bool near = opt->target->gpu.hopper;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Bounds x = {.f = m->funcs.at[i], .near = near};
    region(&x, x.f->body);
  }
  return true;
}
