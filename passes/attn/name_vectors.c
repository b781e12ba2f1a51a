// name_vectors: coordinates of a vector that an output names are a vector.
//
//   O[b, h, q, d] = sum(k: p * V[b, k, h, d]);   as   O[b, h, q] = sum(k: p * V[b, k, h]);
//
//   before  axes(b par B, q par S, d par 128, k key S, e vec 128)
//           %w = mul(%p, cast(load(%V, b, k, d))) : f32{b,q,d,k}
//           store(%O, reduce(%w) {kind = sum, over = [k]}, b, q, d)
//   after   axes(b par B, q par S, k key S, e vec 128)
//           %o = dot(cast(%p) {to = bf16}, load(%V, b, k, e)) {over = [k]}
//           store(%O, %o, b, q, e)
//
// A task for each coordinate would make the scores again. An axis is one of
// vectors if it is the last index of loads and stores and nothing else, and
// sums over keys have values with it of weights without. Where the program has
// vectors of that length beside which the axis does not stand it is theirs.
// Weights are rounded to the type of 16-bit vectors, as those of vectors are,
// unless the program says `@p_type`. All targets, in front of gradients. Level
// attn, behind inline. Tests: test/passes/name_vectors.
#include "ir/deps.h"
#include "passes/pass.h"
#include "passes/support/outline.h"
#include "passes/support/rebuild.h"

typedef struct Named {
  Func *f;
  uint32_t axis;    // it is one of vectors
  uint32_t with;    // which is this one; or `axis`: one of its own
  uint32_t to[64];  // per axis of f: that of the new function
  bool wide;        // weights are not rounded
  Func *out;
} Named;

static uint64_t bit(uint32_t axis) {
  return (uint64_t)1 << axis;
}

static uint64_t axes_of(const Func *f, const Op *op) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (ir_type(f, op->args[i])->kind == TK_ELEM)
      set |= ir_axes_of(f, op->args[i]);
  for (uint32_t i = 0; i < op->nres; i++)
    if (ir_type(f, op->res[i])->kind == TK_ELEM)
      set |= ir_axes_of(f, op->res[i]);
  return set;
}

static bool is_index(const Func *f, Value v, uint32_t axis) {
  return ir_index_axis(f, v) == (int)axis;
}

// Is the axis' coordinate the last index of op's tensor, or no operand?
static bool is_last(const Func *f, const Op *op, uint32_t axis) {
  uint32_t first = op->code == OP_LOAD ? 1 : op->code == OP_STORE ? 2 : 0;
  uint32_t rank = first ? ir_type(f, op->args[0])->n : 0;
  for (uint32_t i = 0; i < op->nargs; i++) {
    bool last = first && i == first + rank - 1;
    if (!is_index(f, op->args[i], axis)) {
      bool uses =
          first && i >= first && type_has_axis(ir_type(f, op->args[i]), axis);
      if (uses) return false;
    } else if (!last) return false;
  }
  return true;
}

// The values that are summed over keys have the axis: weights without it times
// what has it.
static const Op *weighed(const Func *f, const Op *op, uint32_t axis,
                         Value *weight, Value *vector) {
  const Op *mul = op->code == OP_REDUCE ? ir_def(f, op->args[0]) : NULL;
  const IrAttr *over = mul ? ir_attr(op, AT_OVER) : NULL;
  if (!mul || mul->code != OP_MUL || over->n != 1 ||
      ir_attr_i(op, AT_KIND, RK_SUM) != RK_SUM ||
      f->axes.at[over->list[0]].role != AX_KEY)
    return NULL;
  uint64_t both = bit(axis) | bit((uint32_t)over->list[0]);
  for (uint32_t i = 0; i < 2; i++) {
    uint64_t x = ir_axes_of(f, mul->args[i]), y = ir_axes_of(f, mul->args[!i]);
    *weight = mul->args[i], *vector = mul->args[!i];
    if ((y & both) == both && (x & both) == (both & ~bit(axis))) return mul;
  }
  return NULL;
}

static bool suits(const Func *f, uint32_t axis) {
  const Axis *a = &f->axes.at[axis];
  bool sums = false, last = true;
  if (a->role != AX_PAR || !dim_is_fixed(&f->mod->dims, a->extent))
    return false;
  for (const Op *op = f->body->first; op; op = op->next) {
    Value x, y;
    bool has = axes_of(f, op) & bit(axis);
    sums |= weighed(f, op, axis, &x, &y) != NULL;
    last &= is_last(f, op, axis) && !op->nregions;
    last &= !has || (op->code != OP_DOMAIN && op->code != OP_SCAN);
    if (op->code == OP_STORE) last &= has;
  }
  return sums && last;
}

// Vectors of that length beside which the axis does not stand, or the axis.
static uint32_t vectors_like(const Func *f, uint32_t axis) {
  for (uint32_t i = 0; i < f->axes.n; i++) {
    bool apart = f->axes.at[i].role == AX_VEC &&
                 f->axes.at[i].extent == f->axes.at[axis].extent;
    uint64_t both = bit(i) | bit(axis);
    for (const Op *op = f->body->first; op && apart; op = op->next)
      apart = (axes_of(f, op) & both) != both;
    if (apart) return i;
  }
  return axis;
}

// Vectors are the last axes.
static void copy_axes(Named *n) {
  for (uint32_t i = 0; i < n->f->axes.n; i++) {
    const Axis *a = &n->f->axes.at[i];
    if (i == n->axis) continue;
    n->to[i] = ir_axis(n->out, a->name, a->role, a->extent);
  }
  const Axis *a = &n->f->axes.at[n->axis];
  n->to[n->axis] = n->with != n->axis
                       ? n->to[n->with]
                       : ir_axis(n->out, a->name, AX_VEC, a->extent);
}

// v without a cast to more digits.
static Value narrow(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  bool cast = op && op->code == OP_CAST;
  return cast && dtype_is_float16(ir_type(f, op->args[0])->dtype) ? op->args[0]
                                                                  : v;
}

static bool product(const Named *n, Builder *b, const Op *op, ValueMap *map) {
  Value x, y;
  if (n->wide || !weighed(n->f, op, n->axis, &x, &y)) return false;
  y = narrow(n->f, y);
  DType t = ir_type(n->f, y)->dtype;
  if (!dtype_is_float16(t)) return false;
  uint32_t over = n->to[ir_attr(op, AT_OVER)->list[0]];
  Value weight = ir_cast(b, t, vmap_get(map, x));
  vmap_put(map, op->res[0], ir_dot(b, weight, vmap_get(map, y), &over, 1));
  return true;
}

static Func *named(Named *n) {
  n->out = rebuild_params(n->f->mod, n->f);
  copy_axes(n);
  ValueMap map = {.arena = n->f->mod->arena};
  outline_params(&map, n->f, n->out);
  Builder b = {.fn = n->out, .region = n->out->body};
  for (const Op *op = n->f->body->first; op; op = op->next) {
    b.span = op->span;
    if (!product(n, &b, op, &map)) ir_clone(&b, n->f, op, &map, n->to);
  }
  return n->out;
}

static bool visit(Ctx *cx, Func **f, const PassOpt *opt) {
  for (uint32_t i = 0; i < (*f)->axes.n && (*f)->axes.n < 64; i++) {
    if (!suits(*f, i)) continue;
    Named n = {.f = *f,
               .axis = i,
               .with = vectors_like(*f, i),
               .wide = opt->wide_weights};
    ctx_remark(cx, "%s: %s is an axis of vectors", n.f->name,
               n.f->axes.at[i].name);
    *f = named(&n);
    return true;
  }
  return false;
}

bool pass_name_vectors(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++)
    while (m->funcs.at[i]->kind == FK_PROGRAM &&
           visit(cx, &m->funcs.at[i], opt))
      continue;
  return true;
}
