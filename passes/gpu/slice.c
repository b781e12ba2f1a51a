// slice: no value keeps more than two axes of a tile, or an axis whose size is
// not known. What reduces such a value walks an axis in a loop, in which the
// value is made at one coordinate.
//
//   before  %r = load(%R, sub(%q, %k), %d) : bf16{q:128,k:64,d:64}
//           %s = dot(%x, %r) {over = [d]} : f32{q:128,k:64}
//   after   %s = for(0, 64, 1, %zero) ({
//             ^(%i: i64, %acc: f32{q:128,k:64}):
//             %xi = load(%Q, %q, %i) : bf16{q:128}
//             %ri = load(%R, sub(%q, %k), %i) : bf16{q:128,k:64}
//             yield(add(%acc, mul(%xi, %ri)))
//           }) : f32{q:128,k:64}
//
// `lower_gpu` has fragments of two axes. A value with more, a *wide* one, is
// pure and is not emitted: what reads it asks for it at coordinates of the axes
// that are walked. There the iota of an axis is the loop's number, constants
// lose the axis, loads and elementwise ops are made again; sums that are wide
// themselves are loops again, or by then have become products of matrices. What
// is made whole (results of products, loops, scans) is read at a coordinate, by
// `row`.
// What does not vary with a loop is made in front of it. Stores and votes of
// wide values are loops over one of their axes.
//
// Loops and branches hand on a wide value as narrow ones, a few, one for each
// coordinate of an axis. Sums of one axis are in its order, whatever is walked.
// Errors: more than a few of them, scans and inverses of wide values, wide
// loads of memory that the program writes. For GPUs; level tile. Run cse and
// dce behind it. Tests: test/passes/slice, test/wave/three-axes.test.
#include "ir/eval.h"
#include "passes/pass.h"
#include "passes/support/rebuild.h"

#include <assert.h>
#include <float.h>
#include <math.h>

typedef uint64_t AxisSet;

enum { MAX_PARTS = 32 };  // of a value that a loop hands on

// A wide value that a loop or branch hands on, as narrow ones: one for each
// coordinate of some of its axes, the last one's being the fastest.
typedef struct Parts {
  uint32_t n, count;  // axes, values
  uint32_t axis[MAX_AXES];
  Dim size[MAX_AXES];
  int64_t points[MAX_AXES];
  Type type;  // of each
  Value part[MAX_PARTS];
} Parts;

typedef struct Slice {
  Ctx *cx;
  Rebuild *r;
  Func *f;
  int lane;       // tiled grid axis, or -1
  Parts **parts;  // per value of f, or NULL
  bool failed;
} Slice;

// Where values are made: in front of all loops, or at a coordinate of an axis,
// which a loop counts or which is one number.
typedef struct At {
  struct At *up;  // NULL: in front of all loops
  uint32_t axis;
  Value i;         // the coordinate,
  int64_t number;  // and its number, -1: a loop counts it
  Builder *b, own;
  ValueMap made;  // values of the function, here
} At;

static Value value_at(Slice *s, At *at, Value v);

static AxisSet bit(uint32_t axis) {
  return (AxisSet)1 << axis;
}

// ---------------------------------------------------------------- wide
static bool is_known(const Func *f, Dim size) {
  int64_t n;
  return dim_is_const(&f->mod->dims, size, &n);
}

static bool is_wide(const Func *f, const Type *t) {
  bool wide = t->kind == TK_ELEM && t->n > 2;
  for (uint32_t i = 0; t->kind == TK_ELEM && i < t->n; i++)
    wide |= !is_known(f, t->size[i]);
  return wide;
}

static const At *loop_over(const At *at, uint32_t axis) {
  for (; at->up; at = at->up)
    if (at->axis == axis) return at;
  return NULL;
}

// The type that a value of type t has there.
static Type type_at(const At *at, Type t) {
  for (; t.kind == TK_ELEM && at->up; at = at->up)
    if (type_has_axis(&t, at->axis)) t = type_without(t, at->axis);
  return t;
}

// All axes of an op's operands from the first one on.
static Type axes_of(const Func *f, const At *at, const Op *op, uint32_t first) {
  Type all = type_scalar(DT_F32);
  for (uint32_t i = first; i < op->nargs; i++)
    all = type_union(&all, ir_type(f, op->args[i]), DT_F32);
  return at ? type_at(at, all) : all;
}

static AxisSet set_of(const Type *t) {
  AxisSet set = 0;
  for (uint32_t i = 0; i < t->n; i++) set |= bit(t->axis[i]);
  return set;
}

static AxisSet over_of(const At *at, const Op *op) {
  const IrAttr *over = ir_attr(op, AT_OVER);
  AxisSet set = 0;
  for (uint32_t i = 0; i < over->n; i++)
    if (!at || !loop_over(at, (uint32_t)over->list[i]))
      set |= bit((uint32_t)over->list[i]);
  return set;
}

// Would it be a product of matrices, if it were summed over `over` alone?
static bool is_product(const Slice *s, const At *at, const Op *op,
                       AxisSet over) {
  if (op->code != OP_DOT || !over || over & (over - 1) ||
      ir_type(s->f, op->res[0])->dtype != DT_F32)
    return false;
  AxisSet side[2];
  for (uint32_t i = 0; i < 2; i++) {
    Type t = *ir_type(s->f, op->args[i]);
    if (at) t = type_at(at, t);
    side[i] = set_of(&t);
    if (t.n != 2 || is_wide(s->f, &t)) return false;
  }
  return (side[0] & side[1]) == over;
}

// NULL: something was refused before.
static Diag *refused(Slice *s, const Op *op, const char *why) {
  if (s->failed) return NULL;
  s->failed = true;
  const char *text =
      arena_printf(&s->cx->session, "%s, which GPU targets do not take", why);
  return diag_add(s->cx, DIAG_pass_unsupported, op ? op->span : s->f->span,
                  text);
}

static Value refuse(Slice *s, const Op *op, const char *why) {
  refused(s, op, why);
  return 0;
}

// ---------------------------------------------------------------- which axis
static const AxisSet ALL = ~(AxisSet)0;

// Points of an axis; those that are not known are more than any others.
static double points(const Slice *s, Dim size) {
  int64_t n;
  return dim_is_const(&s->f->mod->dims, size, &n) ? (double)n : INFINITY;
}

// The axis of `from` that is walked, as a position in `all`, the axes of what
// op reads there: one that is not known has to be; the rest should be a product
// of matrices; else the one with the fewest points. Threads have the rows of a
// tile.
static uint32_t walked(const Slice *s, const At *at, const Op *op,
                       const Type *all, AxisSet from) {
  uint32_t best = 0;
  double least = INFINITY;
  for (uint32_t i = 0; i < all->n; i++) {
    if (!(from & bit(all->axis[i]))) continue;
    double n = points(s, all->size[i]);
    if (n == INFINITY) return i;
    At inner = {.up = (At *)at, .axis = all->axis[i]};
    bool sum = from != ALL;
    if (sum && is_product(s, &inner, op, from & ~bit(all->axis[i]))) return i;
    if ((int)all->axis[i] == s->lane) n = DBL_MAX;
    if (n <= least) least = n, best = i;
  }
  return best;
}

// ---------------------------------------------------------------- coordinates
static Value constant(Builder *b, Type t, double x) {
  IrAttr a = dtype_is_float(t.dtype) ? attr_f(AT_VALUE, x)
                                     : attr_i(AT_IVALUE, dtype_int(x));
  return ir_op(b, OP_CONST, NULL, 0, &a, 1, &t, 1, 0)->res[0];
}

static bool is_narrow_float(DType t) {
  return dtype_is_float(t) && dtype_size(t) < 4;
}

// x, a whole tile, at coordinate i of the axis.
static Value row(Builder *b, Value x, uint32_t axis, Value i) {
  const Type *t = ir_type(b->fn, x);
  if (!type_has_axis(t, axis)) return x;
  Type rest = type_without(*t, axis);
  Value args[] = {x, i};
  IrAttr at = attr_i(AT_AXIS, axis);
  return ir_op(b, OP_ROW, args, 2, &at, 1, &rest, 1, 0)->res[0];
}

static Value whole_at(Slice *s, At *at, Value v) {
  Value x = vmap_get(&s->r->map, v);
  for (const At *a = at; a->up; a = a->up) x = row(at->b, x, a->axis, a->i);
  return x;
}

static Value again(Slice *s, At *at, const Op *op) {
  Value *args = NEWN(s->f->mod->arena, Value, op->nargs + 1);
  for (uint32_t i = 0; i < op->nargs; i++) {
    args[i] = value_at(s, at, op->args[i]);
    if (s->failed) return 0;
  }
  at->b->span = op->span;
  return ir_op(at->b, op->code, args, op->nargs, op->attrs, op->nattrs, NULL, 1,
               0)
      ->res[0];
}

// ---------------------------------------------------------------- loops
// A loop at `at` over the axis, with one value or none: its body is *in.
static Op *open_loop(Slice *s, At *at, At *in, uint32_t axis, Dim size,
                     Value start) {
  Builder *b = at->b;
  int64_t end;
  bool known = dim_is_const(&s->f->mod->dims, size, &end);
  Value args[] = {ir_int(b, 0), known ? ir_int(b, end) : ir_dim(b, size),
                  ir_int(b, 1), start};
  uint32_t n = start != 0;
  Type t = start ? *ir_type(b->fn, start) : type_scalar(DT_I64);
  Op *loop = ir_op(b, OP_FOR, args, 3 + n, NULL, 0, &t, n, 1);
  Region *body = loop->regions[0];
  *in = (At){.up = at,
             .axis = axis,
             .number = -1,
             .own = {.fn = b->fn, .region = body, .span = b->span},
             .made = {.arena = s->f->mod->arena}};
  in->b = &in->own;
  in->i = ir_region_param(body, type_scalar(DT_I64), s->f->axes.at[axis].name);
  if (start) ir_region_param(body, t, "acc");
  b->before = loop;  // what does not vary with it
  return loop;
}

static void close_loop(At *at, At *in, const Op *loop, Op *before, Value next) {
  ir_yield(in->b, &next, loop->nres);
  at->b->before = before;
}

// The place at a coordinate that is a number.
static At *fixed(Slice *s, At *up, uint32_t axis, int64_t number) {
  At *at = NEW(s->f->mod->arena, At);
  *at = (At){.up = up,
             .axis = axis,
             .i = ir_int(up->b, number),
             .number = number,
             .b = up->b,
             .made = {.arena = s->f->mod->arena}};
  return at;
}

// ---------------------------------------------------------------- parts
// What a value of type t is handed on as; NULL: it cannot be.
static Parts *parts_of(Slice *s, const Type *t) {
  Parts *p = NEW(s->f->mod->arena, Parts);
  p->type = *t;
  p->count = 1;
  while (is_wide(s->f, &p->type)) {
    uint32_t w = walked(s, NULL, NULL, &p->type, ALL), k = p->n++;
    p->axis[k] = p->type.axis[w];
    p->size[k] = p->type.size[w];
    if (!dim_is_const(&s->f->mod->dims, p->size[k], &p->points[k]) ||
        p->points[k] > MAX_PARTS / p->count)
      return NULL;
    p->count *= (uint32_t)p->points[k];
    p->type = type_without(p->type, p->axis[k]);
  }
  return p;
}

// The coordinates of part number i, as a place.
static At *part_place(Slice *s, At *at, const Parts *p, uint32_t i) {
  int64_t each = p->count;
  for (uint32_t k = 0; k < p->n; k++) {
    each /= p->points[k];
    at = fixed(s, at, p->axis[k], i / each % p->points[k]);
  }
  return at;
}

// The value there that has these parts, of which axes in front of axis k have
// said that it is one from number i on.
static Value joined(At *at, const Parts *p, uint32_t k, int64_t i) {
  Builder *b = at->b;
  if (k == p->n) {
    Value x = p->part[i];
    for (const At *a = at; a->up; a = a->up) x = row(b, x, a->axis, a->i);
    return x;
  }
  const At *loop = loop_over(at, p->axis[k]);
  i *= p->points[k];
  if (loop && loop->number >= 0) return joined(at, p, k + 1, i + loop->number);
  Value c = loop ? loop->i : ir_iota(b, p->axis[k], p->size[k]);
  Value x = joined(at, p, k + 1, i);
  for (int64_t j = 1; j < p->points[k]; j++) {
    Value here = ir_2(b, OP_EQ, c, ir_int(b, j));
    x = ir_3(b, OP_SELECT, here, joined(at, p, k + 1, i + j), x);
  }
  return x;
}

// ---------------------------------------------------------------- sums
static bool is_sum(const Op *op) {
  return op->code == OP_DOT || op->code == OP_REDUCE;
}

static RKind kind_of(const Op *op) {
  return op->code == OP_DOT ? RK_SUM : (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
}

// What sums of type t are made in.
static DType wide_dtype(DType t) {
  return is_narrow_float(t) ? DT_F32 : t;
}

// The operands as one value, of type t: all axes it is summed over are walked.
static Value term(Slice *s, At *at, const Op *op, DType t) {
  Value x = value_at(s, at, op->args[0]);
  if (s->failed) return 0;
  Builder *b = at->b;
  x = ir_cast(b, t, x);
  if (op->code != OP_DOT) return x;
  Value y = value_at(s, at, op->args[1]);
  if (s->failed) return 0;
  x = ir_2(b, OP_MUL, x, ir_cast(b, t, y));
  if (op->nargs < 4) return x;
  Value in = value_at(s, at, op->args[3]);
  if (s->failed) return 0;
  return ir_3(b, OP_SELECT, in, x, constant(b, type_scalar(t), 0));
}

// The op itself, where its operands are not wide.
static Value narrow_sum(Slice *s, At *at, const Op *op, AxisSet over) {
  if (op->code == OP_DOT) return again(s, at, op);
  uint32_t axes[64], n = 0;
  for (; over; over &= over - 1) axes[n++] = (uint32_t)__builtin_ctzll(over);
  Value x = value_at(s, at, op->args[0]);
  if (s->failed) return 0;
  at->b->span = op->span;
  return ir_reduce(at->b, kind_of(op), x, axes, n);
}

static Value sum_at(Slice *s, At *at, const Op *op, bool start);

static Value first_value(Slice *s, At *at, const Op *op, Type t, bool start) {
  if (start && op->code == OP_DOT && op->nargs > 2) {
    Value x = value_at(s, at, op->args[2]);
    if (s->failed) return 0;
    x = ir_cast(at->b, t.dtype, x);
    if (type_eq(ir_type(at->b->fn, x), &t)) return x;
    return ir_2(at->b, OP_ADD, constant(at->b, t, 0), x);
  }
  return constant(at->b, t, eval_identity(kind_of(op), t.dtype));
}

// A loop over one of the axes of `over`.
static Value sum_loop(Slice *s, At *at, const Op *op, AxisSet over,
                      bool start) {
  Type all = axes_of(s->f, at, op, 0),
       t = type_at(at, *ir_type(s->f, *op->res));
  t.dtype = wide_dtype(t.dtype);
  Value first = first_value(s, at, op, t, start);
  if (s->failed) return 0;
  uint32_t w = walked(s, at, op, &all, over);
  Op *before = at->b->before;
  At in;
  Op *loop = open_loop(s, at, &in, all.axis[w], all.size[w], first);
  Value x = sum_at(s, &in, op, false);
  if (s->failed) return 0;
  Value acc = loop->regions[0]->params.at[1];
  Value next = ir_combine(in.b, kind_of(op), acc, ir_cast(in.b, t.dtype, x));
  close_loop(at, &in, loop, before, next);
  return loop->res[0];
}

// A reduction or product there; `start`: with what it is added to.
static Value sum_at(Slice *s, At *at, const Op *op, bool start) {
  AxisSet over = over_of(at, op);
  at->b->span = op->span;
  Type all = axes_of(s->f, at, op, 0);
  DType t = ir_type(s->f, op->res[0])->dtype;
  if (!over) return term(s, at, op, wide_dtype(t));
  bool plain = start || op->code != OP_DOT || op->nargs < 3;
  if (plain && (!is_wide(s->f, &all) || is_product(s, at, op, over)))
    return narrow_sum(s, at, op, over);
  return sum_loop(s, at, op, over, start);
}

// ---------------------------------------------------------------- values
static bool is_written(const Slice *s, const Op *op) {
  return op->code == OP_LOAD && ir_is_stored(s->f->body, op->args[0]);
}

static Value iota_at(At *at, const Type *t) {
  const At *loop = loop_over(at, t->axis[0]);
  return loop ? loop->i : ir_iota(at->b, t->axis[0], t->size[0]);
}

// The same place, without the loops over axes that type t has not: what sums
// over such an axis has all of it.
static At *loops_of(Slice *s, At *at, const Type *t) {
  if (!at->up) return at;
  At *up = loops_of(s, at->up, t);
  if (!type_has_axis(t, at->axis)) return up;
  if (up == at->up) return at;
  At *copy = NEW(s->f->mod->arena, At);
  *copy = *at;
  copy->up = up;
  copy->made = (ValueMap){.arena = s->f->mod->arena};
  return copy;
}

// A scan has all of its axis; what is asked for at a coordinate is a row of it.
static Value scan_at(Slice *s, At *at, const Op *op, Type t) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  Type others = type_without(t, axis);
  At *outer = loops_of(s, at, &others);
  Type whole = type_at(outer, t);
  if (is_wide(s->f, &whole))
    return refuse(s, op, "a scan with three tiled axes, none of them summed");
  Value x = again(s, outer, op);
  const At *loop = loop_over(at, axis);
  return s->failed || !loop ? x : row(at->b, x, axis, loop->i);
}

static Value made_at(Slice *s, At *at, Value v, const Type *t) {
  const Op *op = ir_def(s->f, v);
  bool wide = is_wide(s->f, t);
  if (!op || op->nregions)
    return wide ? joined(at, s->parts[v], 0, 0) : whole_at(s, at, v);
  if (op->code == OP_IOTA) return iota_at(at, t);
  if (op->code == OP_CONST) {
    Type u = type_at(at, *t);
    return ir_op(at->b, OP_CONST, NULL, 0, op->attrs, op->nattrs, &u, 1, 0)
        ->res[0];
  }
  if (is_written(s, op))
    return wide ? refuse(s, op, "three tiled axes of memory that is written")
                : whole_at(s, at, v);
  if (op->code == OP_LOAD || op_info(op->code)->flags & OPF_ELEM)
    return again(s, at, op);
  if (!wide) return whole_at(s, at, v);
  if (is_sum(op)) return sum_at(s, loops_of(s, at, t), op, true);
  if (op->code == OP_SCAN) return scan_at(s, at, op, *t);
  return refuse(s, op, "an inverse with three tiled axes");
}

// The value v of the function there, in the function as it will be.
static Value value_at(Slice *s, At *at, Value v) {
  if (s->failed) return 0;
  const Type *t = ir_type(s->f, v);
  if (!at->up || t->kind != TK_ELEM) {
    assert(!is_wide(s->f, t));
    return vmap_get(&s->r->map, v);
  }
  if (!type_has_axis(t, at->axis)) return value_at(s, at->up, v);
  if (v < at->made.n && at->made.to[v]) return at->made.to[v];
  Value x = made_at(s, at, v, t);
  if (!s->failed) vmap_put(&at->made, v, x);
  return x;
}

// ---------------------------------------------------------------- ops
static bool takes_wide(const Slice *s, const Op *op) {
  for (uint32_t i = 0; i < op->nargs; i++)
    if (is_wide(s->f, ir_type(s->f, op->args[i]))) return true;
  return false;
}

static bool is_vote(const Op *op) {
  return op->code == OP_ANY_OF || op->code == OP_ALL_OF;
}

// Is op to be made in loops?
static bool is_sliced(const Slice *s, const Op *op) {
  if (!is_sum(op) && !is_vote(op) && op->code != OP_STORE) return false;
  Type all = axes_of(s->f, NULL, op, op->code == OP_STORE);
  return is_wide(s->f, &all) &&
         !(is_sum(op) && is_product(s, NULL, op, over_of(NULL, op)));
}

static void store_at(Slice *s, At *at, const Op *op) {
  Type all = axes_of(s->f, at, op, 1);
  at->b->span = op->span;
  if (is_wide(s->f, &all)) {
    uint32_t w = walked(s, at, op, &all, ALL);
    Op *before = at->b->before;
    At in;
    Op *loop = open_loop(s, at, &in, all.axis[w], all.size[w], 0);
    store_at(s, &in, op);
    close_loop(at, &in, loop, before, 0);
    return;
  }
  Value *args = NEWN(s->f->mod->arena, Value, op->nargs);
  for (uint32_t i = 0; i < op->nargs && !s->failed; i++)
    args[i] = value_at(s, at, op->args[i]);
  if (!s->failed)
    ir_op(at->b, OP_STORE, args, op->nargs, op->attrs, op->nattrs, NULL, 0, 0);
}

static Value vote_at(Slice *s, At *at, const Op *op) {
  Type all = axes_of(s->f, at, op, 0);
  at->b->span = op->span;
  bool any = op->code == OP_ANY_OF;
  Value x = 0;
  if (!is_wide(s->f, &all)) {
    Type t = type_scalar(DT_BOOL);
    x = value_at(s, at, op->args[0]);
    return s->failed ? 0
                     : ir_op(at->b, op->code, &x, 1, NULL, 0, &t, 1, 0)->res[0];
  }
  uint32_t w = walked(s, at, op, &all, ALL);
  Op *before = at->b->before;
  At in;
  Op *loop = open_loop(s, at, &in, all.axis[w], all.size[w],
                       ir_const_i(at->b, DT_BOOL, !any));
  x = vote_at(s, &in, op);
  if (s->failed) return 0;
  Value acc = loop->regions[0]->params.at[1];
  close_loop(at, &in, loop, before, ir_2(in.b, any ? OP_OR : OP_AND, acc, x));
  return loop->res[0];
}

// ---------------------------------------------------------------- loops of f
static At front(const Slice *s) {
  return (At){.own = s->r->b, .made = {.arena = s->f->mod->arena}};
}

typedef struct Carried {
  Value *v;  // operands, or of results
  Type *type;
  uint32_t n;
} Carried;

static Carried carried(Slice *s, uint32_t n) {
  Arena *a = s->f->mod->arena;
  n *= MAX_PARTS;
  return (Carried){NEWN(a, Value, n + 1), NEWN(a, Type, n + 1), 0};
}

static void carry(Slice *s, Carried *c, Value x) {
  c->type[c->n] = *ir_type(s->f, x);
  c->v[c->n++] = x;
}

// The operands of a loop, branch or yield, wide ones by their parts.
static Carried hand_on(Slice *s, const Op *op) {
  Carried c = carried(s, op->nargs);
  At at = front(s);
  at.b = &at.own;
  for (uint32_t i = 0; i < op->nargs && !s->failed; i++) {
    const Type *t = ir_type(s->f, op->args[i]);
    Parts *p = is_wide(s->f, t) ? parts_of(s, t) : NULL;
    if (!p) carry(s, &c, vmap_get(&s->r->map, op->args[i]));
    for (uint32_t k = 0; p && k < p->count && !s->failed; k++) {
      Value x = value_at(s, part_place(s, &at, p, k), op->args[i]);
      if (!s->failed) carry(s, &c, x);
    }
  }
  s->r->b = at.own;
  return c;
}

// Parts of v, the values from *next on; true: it is no wide one.
static bool is_one(Slice *s, Value v, const Value *next, uint32_t *n) {
  const Type *t = ir_type(s->f, v);
  if (!is_wide(s->f, t)) return true;
  Parts *p = parts_of(s, t);
  for (uint32_t k = 0; k < p->count; k++) p->part[k] = next[(*n)++];
  s->parts[v] = p;
  return false;
}

static void enter(Slice *s, const Region *from, Region *to) {
  Builder outer = s->r->b;
  s->r->b.region = to;
  s->r->b.before = NULL;
  Arena *a = s->f->mod->arena;
  Value *made = NEWN(a, Value, from->params.n * MAX_PARTS + 1);
  for (uint32_t i = 0, n = 0; i < from->params.n; i++) {
    Value v = from->params.at[i];
    const char *hint = ir_info(s->f, v)->hint;
    Type t = *ir_type(s->f, v);
    Parts *p = is_wide(s->f, &t) ? parts_of(s, &t) : NULL;
    uint32_t k = n;
    for (uint32_t j = 0; j < (p ? p->count : 1); j++)
      made[n++] = ir_region_param(to, p ? p->type : t, hint);
    if (is_one(s, v, made, &k)) vmap_put(&s->r->map, v, made[k]);
  }
  rebuild_ops(s->r, from);
  s->r->b = outer;
}

// Can all that op hands on be parts?
static bool has_parts(Slice *s, const Op *op) {
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(s->f, op->res[i]);
    if (is_wide(s->f, t) && !parts_of(s, t)) return false;
  }
  return true;
}

static void split(Slice *s, const Op *op) {
  Carried in = hand_on(s, op), out = carried(s, op->nres);
  if (s->failed) return;
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(s->f, op->res[i]);
    Parts *p = is_wide(s->f, t) ? parts_of(s, t) : NULL;
    for (uint32_t k = 0; k < (p ? p->count : 1); k++)
      out.type[out.n++] = p ? p->type : *t;
  }
  Op *made = ir_op(&s->r->b, op->code, in.v, in.n, op->attrs, op->nattrs,
                   out.type, out.n, op->nregions);
  for (uint32_t i = 0; i < op->nregions && !s->failed; i++)
    enter(s, op->regions[i], made->regions[i]);
  for (uint32_t i = 0, n = 0; i < op->nres; i++)
    if (is_one(s, op->res[i], made->res, &n))
      rebuild_put(s->r, op->res[i], made->res[n++]);
}

static void yield(Slice *s, const Op *op) {
  Carried c = hand_on(s, op);
  if (!s->failed) ir_yield(&s->r->b, c.v, c.n);
}

static bool hands_on_wide(const Slice *s, const Op *op) {
  bool wide = false;
  for (uint32_t i = 0; i < op->nres; i++)
    wide |= is_wide(s->f, ir_type(s->f, op->res[i]));
  return wide || (op->code == OP_YIELD && takes_wide(s, op));
}

static void refuse_parts(Slice *s, const Op *op) {
  Diag *d = refused(s, op, "a loop that carries too many tiles of one value");
  if (!d) return;
  diag_note(s->cx, d, NOWHERE,
            "that is a matrix for each row or key, as the gradient of a matrix "
            "by which rows are multiplied is: multiply them in front of the "
            "program, and give it the products as a tensor");
}

static bool visit_regions(Slice *s, const Op *op) {
  if (!hands_on_wide(s, op)) return false;
  if (op->code == OP_YIELD) yield(s, op);
  else if (has_parts(s, op)) split(s, op);
  else refuse_parts(s, op);
  return true;
}

static bool visit(Rebuild *r, const Op *op) {
  Slice *s = r->data;
  s->r = r;
  if (s->failed) return false;
  if (op->nregions || op->code == OP_YIELD) return visit_regions(s, op);
  bool wide = op->nres == 1 && is_wide(s->f, ir_type(s->f, op->res[0]));
  if (wide && op_info(op->code)->flags & OPF_PURE) return true;
  if (!is_sliced(s, op)) {
    assert(!wide && !takes_wide(s, op));
    return false;
  }
  At at = front(s);
  at.b = &at.own;
  Value x = 0;
  if (op->code == OP_STORE) store_at(s, &at, op);
  else x = is_vote(op) ? vote_at(s, &at, op) : sum_at(s, &at, op, true);
  if (s->failed) return false;
  if (x) {
    x = ir_cast(at.b, ir_type(s->f, op->res[0])->dtype, x);
    rebuild_put(r, op->res[0], x);
  }
  r->b = at.own;
  return true;
}

// ---------------------------------------------------------------- pass
typedef struct Found {
  const Slice *s;
  bool some;
} Found;

static void look(void *data, Op *op) {
  Found *f = data;
  for (uint32_t i = 0; i < op->nres; i++)
    f->some |= is_wide(f->s->f, ir_type(f->s->f, op->res[i]));
  f->some |= is_sliced(f->s, op);
}

static int lane_of(const Func *f) {
  for (uint32_t i = 0; i < f->grid.n; i++)
    if (f->grid.at[i].tile > 1) return (int)f->grid.at[i].axis;
  return -1;
}

bool pass_slice(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Slice s = {.cx = cx, .f = m->funcs.at[i], .lane = lane_of(m->funcs.at[i])};
    Found found = {&s, false};
    ir_walk(s.f->body, look, &found);
    s.parts = NEWN(m->arena, Parts *, s.f->values.n);
    if (found.some) rebuild_func(s.f, visit, &s);
    if (s.failed) return false;
  }
  return true;
}
