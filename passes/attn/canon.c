// canon: algebraic simplification; sums of products become dots.
//
//   %c = const {ivalue = 16} : i64
//   %x = mul(%j, %c)      %y = add(%x, %r)     %z = floordiv(%y, %c)
//   %p = mul(%qf, %kf) : f32{q,k,d}     (casts of bf16 loads to f32)
//   %s = reduce(%p) {kind = sum, over = [d]} : f32{q,k}
// ->
//   %z = %j                             (0 <= r < 16)
//   %s = dot(%qv, %kv) {over = [d]} : f32{q,k}
//
// Why: passes after it see one form of equal things. The body is rebuilt op by
// op: each op is created from simplified operands, as a constant, an existing
// value, what a rule of rules.def says, or itself (equal pure ops once). Sums
// then take the axis along which what they add up is there (canon_axes.c).
// Reals: only what rules.def marks changes roundings; sums of products are
// exact products summed in f32 as before. Tests: test/passes/canon.
#include "passes/attn/canon.h"

#include "ir/eval.h"
#include "ir/facts.h"
#include "passes/support/rebuild.h"

#include <math.h>
#include <string.h>

// ---------------------------------------------------------------- emission
static uint64_t attr_hash(const IrAttr *a, uint64_t h) {
  uint64_t f;
  memcpy(&f, &a->f, sizeof f);
  uint64_t key[] = {a->id, (uint64_t)a->i, f, (uintptr_t)a->s, a->n};
  h = map_hash(key, sizeof key, h);
  return a->n ? map_hash(a->list, a->n * sizeof *a->list, h) : h;
}

bool canon_attr_same(const IrAttr *a, const IrAttr *b) {
  return a->id == b->id && a->i == b->i &&
         memcmp(&a->f, &b->f, sizeof a->f) == 0 && a->s == b->s &&
         a->n == b->n &&
         (!a->n || memcmp(a->list, b->list, a->n * sizeof *a->list) == 0);
}

// True if a value of region `r` may be used in region `in`.
static bool visible(const Region *r, const Region *in) {
  for (; in; in = in->parent ? in->parent->parent : NULL)
    if (in == r) return true;
  return false;
}

static bool same_op(const Canon *c, const Op *op, const CanonOp *x) {
  if (!op || op->code != x->code || op->nargs != x->nargs ||
      op->nattrs != x->nattrs)
    return false;
  if (x->nargs && memcmp(op->args, x->args, x->nargs * sizeof *x->args))
    return false;
  for (uint32_t i = 0; i < x->nattrs; i++) {
    const IrAttr *a = canon_attr(x->attrs, x->nattrs, op->attrs[i].id);
    if (!a || !canon_attr_same(&op->attrs[i], a)) return false;
  }
  return !x->type || type_eq(x->type, ir_type(c->f, op->res[0]));
}

Value canon_emit(Canon *c, CanonOp x) {
  uint64_t h = map_hash(x.args, x.nargs * sizeof *x.args, x.code), known;
  uint64_t all = 0;
  for (uint32_t i = 0; i < x.nattrs; i++) all += attr_hash(&x.attrs[i], 7);
  h += all;
  if (x.type) h = map_hash(&x.type->dtype, sizeof x.type->dtype, h);
  if (map_get(&c->known, h, &known)) {
    const ValueInfo *info = ir_info(c->f, (Value)known);
    if (same_op(c, info->def, &x) && visible(info->region, c->b->region))
      return (Value)known;
  }
  Value v =
      ir_op(c->b, x.code, x.args, x.nargs, x.attrs, x.nattrs, x.type, 1, 0)
          ->res[0];
  map_put(&c->known, h, v);
  return v;
}

const IrAttr *canon_attr(const IrAttr *attrs, uint32_t n, AttrId id) {
  for (uint32_t i = 0; i < n; i++)
    if (attrs[i].id == id) return &attrs[i];
  return NULL;
}

static Value constant(Canon *c, IrAttr attr, DType t) {
  Type type = type_scalar(t);
  return canon_emit(c, (CanonOp){OP_CONST, NULL, 0, &attr, 1, &type});
}

Value canon_int(Canon *c, int64_t v) {
  return constant(c, attr_i(AT_IVALUE, v), DT_I64);
}

Value canon_bool(Canon *c, bool v) {
  return constant(c, attr_i(AT_IVALUE, v), DT_BOOL);
}

Value canon_num(Canon *c, DType t, double v) {
  if (dtype_is_float(t)) return constant(c, attr_f(AT_VALUE, v), t);
  return constant(c, attr_i(AT_IVALUE, dtype_int(v)), t);
}

Value canon_1(Canon *c, OpCode op, Value x) {
  return canon_make(c, op, &x, 1, NULL, 0);
}

Value canon_2(Canon *c, OpCode op, Value x, Value y) {
  Value args[] = {x, y};
  return canon_make(c, op, args, 2, NULL, 0);
}

Value canon_cast(Canon *c, Value x, DType t) {
  IrAttr to = attr_i(AT_TO, t);
  return canon_make(c, OP_CAST, &x, 1, &to, 1);
}

Value canon_spread(Canon *c, Value x, uint32_t axis) {
  x = ir_spread(c->b, x, axis);
  return axis < 64 ? ir_cover(c->b, x, c->domains.of[axis]) : x;
}

// ---------------------------------------------------------------- constants
static Value fold(Canon *c, OpCode op, const Value *args, uint32_t n) {
  double v[2] = {0, 0};
  if (n == 0 || n > 2 || !op_folds(op)) return 0;
  DType t = ir_type(c->f, args[0])->dtype;
  for (uint32_t i = 0; i < n; i++)
    if (!ir_const_value(c->f, args[i], &v[i]) ||
        ir_type(c->f, args[i])->dtype != t)
      return 0;
  if (op_info(op)->infer == INF_BOOL) t = DT_BOOL;
  else if (!dtype_is_float(t)) return 0;  // sums of integers: canon_int.c
  double r = eval_op(op, v);
  return canon_num(c, t, dtype_is_float(t) ? dtype_round(t, r) : r);
}

// ---------------------------------------------------------------- casts
bool canon_exact(DType from, DType to) {
  char a = dtype_kind(from), b = dtype_kind(to);
  if (from == to) return true;
  if (a == 'f' && b == 'f')
    return (to == DT_F64) || (to == DT_F32 && dtype_size(from) <= 2) ||
           (to == DT_F32 && from == DT_TF32);
  if (b == 'f') return a == 'b' || (to == DT_F64 && dtype_size(from) <= 4);
  if (a == 'f') return false;
  if (a == 'b') return true;
  return dtype_size(from) < dtype_size(to) && (a == b || a == 'u');
}

static Value cast(Canon *c, Value x, DType to) {
  const Op *op = ir_def(c->f, x);
  DType now = ir_type(c->f, x)->dtype;
  double v;
  if (now == to) return x;
  if (ir_const_value(c->f, x, &v)) {
    bool whole = isfinite(v) && fabs(v) < 9e15;
    if (dtype_is_float(to)) return canon_num(c, to, dtype_round(to, v));
    if (to == DT_BOOL) return canon_bool(c, v != 0);
    return whole ? canon_num(c, to, dtype_round(to, trunc(v))) : 0;
  }
  if (op && op->code == OP_CAST) {
    Value from = op->args[0];
    if (canon_exact(ir_type(c->f, from)->dtype, now) && to != DT_BOOL)
      return canon_cast(c, from, to);
  }
  return 0;
}

// ---------------------------------------------------------------- division
// The reciprocal of a power of two is exact.
static Value divide(Canon *c, OpCode op, const Value *args) {
  double v;
  int e;
  DType t = ir_type(c->f, args[1])->dtype;
  if (!ir_const_value(c->f, args[1], &v) || v == 0 || isnan(v)) return 0;
  if (isfinite(v) && fabs(frexp(v, &e)) == 0.5 && e > -100 && e < 100)
    return canon_2(c, OP_MUL, args[0], canon_num(c, t, 1.0 / v));
  return op == OP_DIVK ? canon_2(c, OP_DIV, args[0], args[1]) : 0;
}

// ---------------------------------------------------------------- ops
static Value special(Canon *c, OpCode op, const Value *args, uint32_t n,
                     const IrAttr *attrs, uint32_t nattrs) {
  const IrAttr *a;
  Value in;
  switch (op) {
  case OP_CAST:
    return cast(c, args[0], (DType)canon_attr(attrs, nattrs, AT_TO)->i);
  case OP_DIV:
  case OP_DIVK: return divide(c, op, args);
  case OP_REDUCE: return canon_reduce(c, args[0], attrs, nattrs);
  case OP_DOT: return n == 2 ? canon_dot(c, args, attrs, nattrs) : 0;
  case OP_SCAN:
    a = canon_attr(attrs, nattrs, AT_AXIS);
    in = canon_spread(c, args[0], (uint32_t)a->i);
    return in == args[0]
               ? 0
               : canon_emit(c, (CanonOp){op, &in, 1, attrs, nattrs, NULL});
  default: return 0;
  }
}

static bool is_const(const Canon *c, Value v) {
  double d;
  return ir_const_value(c->f, v, &d);
}

Value canon_make(Canon *c, OpCode op, const Value *args, uint32_t n,
                 const IrAttr *attrs, uint32_t nattrs) {
  Value in[2], r;
  if (n == 2 && op_info(op)->flags & OPF_COMM && is_const(c, args[0]) &&
      !is_const(c, args[1])) {
    in[0] = args[1];
    in[1] = args[0];
    args = in;
  }
  if ((r = fold(c, op, args, n))) return r;
  if ((r = canon_integer(c, op, args, n))) return r;
  if ((r = special(c, op, args, n, attrs, nattrs))) return r;
  if ((r = canon_rule(c, op, args, n))) return r;
  return canon_emit(c, (CanonOp){op, args, n, attrs, nattrs, NULL});
}

// A predicate that always holds says nothing.
static bool vacuous(Rebuild *r, const Op *op) {
  double v;
  return (op->code == OP_DOMAIN || op->code == OP_ASSUME) &&
         ir_const_value(r->f, vmap_get(&r->map, op->args[0]), &v) && v != 0;
}

// Has the dim one value, bound or the only one that the program allows?
static bool is_known_dim(const Canon *c, const Op *op, int64_t *k) {
  int64_t hi;
  if (op->code != OP_DIM) return false;
  dim_bounds(&c->m->dims, (Dim)ir_attr_i(op, AT_DIM, 0), k, &hi);
  return *k == hi;
}

static bool visit(Rebuild *r, const Op *op) {
  Canon *c = r->data;
  c->b = &r->b;
  const OpInfo *info = op_info(op->code);
  if (vacuous(r, op)) return true;
  if (op->code == OP_DOMAIN)
    ir_note_domain(c->f, &c->domains, (uint32_t)ir_attr_i(op, AT_AXIS, 0),
                   vmap_get(&r->map, op->args[0]));
  if (op->nres != 1 || op->nregions || !(info->flags & OPF_PURE)) return false;
  Value *args = rebuild_args(r, op), v;
  const Type *t = ir_type(r->f, op->res[0]);
  int64_t k;
  if (is_known_dim(c, op, &k)) v = canon_int(c, k);
  else if (op->code == OP_CONST || op->code == OP_DIM || op->code == OP_GIVEN)
    v = canon_emit(c, (CanonOp){op->code, args, op->nargs, op->attrs,
                                op->nattrs, t});
  else if (info->infer == INF_GIVEN) return false;
  else v = canon_make(c, op->code, args, op->nargs, op->attrs, op->nattrs);
  rebuild_put(r, op->res[0], v);
  return true;
}

bool pass_canon(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  Canon c = {.cx = cx, .m = m};
  canon_load_rules(&c);
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    c.f = m->funcs.at[i];
    c.known = (Map){.arena = m->arena};
    c.domains = (DomainAxes){0};
    rebuild_func(c.f, visit, &c);
    canon_axes(&c);
  }
  return true;
}
