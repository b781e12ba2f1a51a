// online, part 4: writes the pass op of a group, and what comes after it.
//
// Per-key values are cloned into the local region; values without the key axis
// stay outside and are captured. Row values that move are made from the
// region's arguments, with `ref` where a maximum may still be -inf.
#include "passes/stream/online.h"

#include <assert.h>
#include <math.h>

typedef enum Mode { EMIT_LOCAL, EMIT_CORRECT, EMIT_FINAL } Mode;

typedef struct Emit {
  Online *o;
  Group *g;
  Builder b;
  Mode mode;
  Map done;                // Ex -> Value
  Map ready;               // Value -> 0, 1: no reduction in it is still to come
  ValueMap keyed;          // clones of per-key values
  const Value *now, *old;  // accumulators as region arguments
} Emit;

static Value emit(Emit *e, Ex x);

// ---------------------------------------------------------------- helpers
static const Type *type_of(const Emit *e, Value v) {
  return ir_type(e->o->f, v);
}

// Floats narrower than f32 only carry values; arithmetic on them is in f32.
static Value wide(Emit *e, Value v) {
  DType t = type_of(e, v)->dtype;
  bool narrow = dtype_is_float(t) && dtype_size(t) < 4;
  return narrow || !dtype_is_float(t) ? ir_cast(&e->b, DT_F32, v) : v;
}

static Value const_like(Emit *e, double c, Value sibling) {
  DType t = sibling ? type_of(e, sibling)->dtype : DT_F32;
  return ir_const_f(&e->b, t == DT_F64 ? DT_F64 : DT_F32, c);
}

static Value const_typed(Builder *b, double c, Type t) {
  bool f = dtype_is_float(t.dtype);
  IrAttr a = f ? attr_f(AT_VALUE, c) : attr_i(AT_IVALUE, dtype_int(c));
  return ir_op(b, OP_CONST, NULL, 0, &a, 1, &t, 1, 0)->res[0];
}

// v with at least the axes of t.
static Value widen(Builder *b, Value v, const Type *t) {
  const Type *have = ir_type(b->fn, v);
  Type more = type_scalar(have->dtype);
  for (uint32_t i = 0; i < t->n; i++)
    if (!type_has_axis(have, t->axis[i]))
      more = type_with(more, t->axis[i], DIM_NONE);
  if (more.n == 0) return v;
  if (more.dtype == DT_BOOL) return ir_2(b, OP_AND, v, const_typed(b, 1, more));
  if (!dtype_is_float(more.dtype))
    return ir_2(b, OP_ADD, v, const_typed(b, 0, more));
  return ir_2(b, OP_MUL, v, const_typed(b, 1, more));
}

static Value known(Online *o, Value v, const char *hint) {
  ValueInfo *i = ir_info(o->f, v);
  if (!i->hint) i->hint = intern(&o->cx->names, hint);
  return v;
}

// ---------------------------------------------------------------- emptiness
static uint64_t some_key(uint32_t axis, uint64_t outer) {
  return axis | outer << 8;
}

// Whether the domain of the axis is not empty; 0 if that is certain, or if no
// pass has found out.
static Value some_of(Online *o, uint32_t axis, uint64_t outer) {
  uint64_t v = 0;
  map_get(&o->some, some_key(axis, outer), &v);
  return (Value)v;
}

// x where the domain is not empty, else 0.
static Value guard(Builder *b, Value x, Value some) {
  if (!some) return x;
  Value zero = ir_const_f(b, ir_type(b->fn, x)->dtype, 0);
  return ir_3(b, OP_SELECT, some, x, zero);
}

static uint64_t outer_of(const Func *f, const Type *t, uint32_t axis) {
  uint64_t m = 0;
  for (uint32_t i = 0; i < t->n; i++)
    if (t->axis[i] != axis && f->axes.at[t->axis[i]].role == AX_KEY)
      m |= 1ull << t->axis[i];
  return m;
}

// 1 / d, 0 where d is 0 and the domain of the axis is empty.
static Value guarded_inverse(Online *o, Builder *b, Value d, uint32_t axis) {
  const Type *t = ir_type(o->f, d);
  Value some = some_of(o, axis, outer_of(o->f, t, axis));
  Value one = ir_const_f(b, t->dtype, 1);
  Value inv = ir_2(b, OP_DIV, one, d);
  if (!some) return inv;
  Value zero = ir_const_f(b, t->dtype, 0);
  Value ok = ir_2(b, OP_OR, some, ir_2(b, OP_NE, d, zero));
  return ir_3(b, OP_SELECT, ok, inv, zero);
}

// ---------------------------------------------------------------- per key
static Value clone_keyed(Emit *e, Value v);

static void clone_captures(Emit *e, const Op *owner, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nargs; i++)
      if (ir_defined_outside(e->o->f, op->args[i], owner->regions[0]) &&
          ir_info(e->o->f, op->args[i])->region == e->o->region)
        clone_keyed(e, op->args[i]);
    for (uint32_t i = 0; i < op->nregions; i++)
      clone_captures(e, owner, op->regions[i]);
  }
}

static Value clone_divk(Emit *e, const Op *op, Value a) {
  Online *o = e->o;
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  Value d = op->args[1];
  if (type_has_axis(type_of(e, d), e->g->axis))
    return ir_2(&e->b, OP_DIV, a, clone_keyed(e, d));
  uint64_t inv;
  if (!map_get(&o->inverse, d, &inv)) {  // final d that no reduction reads
    inv = guarded_inverse(o, &o->b, d, axis);
    map_put(&o->inverse, d, inv);
  }
  return ir_2(&e->b, OP_MUL, a, (Value)inv);
}

static Value clone_scan(Emit *e, const Op *op) {
  Value x = clone_keyed(e, op->args[0]);
  if (dtype_is_float(type_of(e, op->res[0])->dtype)) x = wide(e, x);
  uint32_t i = 0;
  while (i < e->g->scans.n && e->g->scans.at[i].red->op != op) i++;
  assert(i < e->g->scans.n && "the plan has every scan of the pass");
  Value args[] = {x, e->now[e->g->scans.at[i].acc]};
  return ir_op(&e->b, OP_SCAN, args, 2, op->attrs, op->nattrs, NULL, 1, 0)
      ->res[0];
}

static Value clone_keyed(Emit *e, Value v) {
  Online *o = e->o;
  const Op *op = ir_def(o->f, v);
  Value have = vmap_get(&e->keyed, v);
  if (have != v) return have;
  if (!op || !type_has_axis(type_of(e, v), e->g->axis)) return v;
  if (!(op_info(op->code)->flags & OPF_PURE) && op->code != OP_KREDUCE)
    return v;
  Value r;
  const Red *red = online_red(o, v);
  if (red && !red->scan) {
    assert(red->final && "passes nested in this one are already there");
    r = clone_keyed(e, red->final);
  } else if (red) {
    r = clone_scan(e, op);
  } else if (op->code == OP_DIVK) {
    r = clone_divk(e, op, clone_keyed(e, op->args[0]));
  } else {
    for (uint32_t i = 0; i < op->nargs; i++) clone_keyed(e, op->args[i]);
    for (uint32_t i = 0; i < op->nregions; i++)
      clone_captures(e, op, op->regions[i]);
    ir_clone(&e->b, o->f, op, &e->keyed, NULL);
    return vmap_get(&e->keyed, v);
  }
  ir_info(o->f, r)->hint = ir_info(o->f, v)->hint;
  vmap_put(&e->keyed, v, r);
  return r;
}

// ---------------------------------------------------------------- row values
// max: -inf (no key yet) becomes 0; min: +inf does.
static Value finite_ref(Emit *e, RKind k, Value v) {
  if (k == RK_MAX) return ir_1(&e->b, OP_REF, v);
  if (k != RK_MIN) return v;
  Value n = ir_1(&e->b, OP_NEG, v);
  return ir_1(&e->b, OP_NEG, ir_1(&e->b, OP_REF, n));
}

static Value scaled(Emit *e, Value acc, Ex factor) {
  Sym *s = &e->o->sym;
  if (sym_is_const(s, factor, 1)) return acc;
  return ir_2(&e->b, OP_MUL, acc, emit(e, factor));
}

// The value of a reduction that still moves, from the region's arguments.
static Value live_row(Emit *e, const Red *r, bool old) {
  Sym *s = &e->o->sym;
  const Value *p = old ? e->old : e->now;
  Value sum = 0;
  for (uint32_t i = 0; i < r->terms.n; i++) {
    Ex d = r->terms.at[i].late;
    Value acc = p[r->terms.at[i].acc];
    if (!old) acc = finite_ref(e, r->kind, acc);
    Value x = scaled(e, acc, old ? sym_old(s, d) : d);
    sum = sum ? ir_2(&e->b, OP_ADD, sum, x) : x;
  }
  if (!sum) return ir_const_f(&e->b, DT_F32, 0);
  if (r->plus)
    sum =
        ir_2(&e->b, OP_ADD, sum, emit(e, old ? sym_old(s, r->plus) : r->plus));
  return sum;
}

static Value emit_leaf(Emit *e, const ExNode *n) {
  const Red *r = online_red(e->o, n->leaf);
  switch ((LeafTag)n->code) {
  case LEAF_KEY: return clone_keyed(e, n->leaf);
  case LEAF_OPAQUE: return n->leaf;
  case LEAF_ROW: return r && r->final ? r->final : n->leaf;
  case LEAF_LIVE:
    return e->mode == EMIT_FINAL ? r->final : live_row(e, r, false);
  case LEAF_OLD: return live_row(e, r, true);
  case LEAF_MIXED: break;
  }
  assert(false && "does not separate");
  return 0;
}

// ---------------------------------------------------------------- expressions
static Value plus_or(Emit *e, OpCode code, Value a, Ex x) {
  const ExNode *n = sym_at(&e->o->sym, x);
  if (n->kind == EX_CONST) return ir_2(&e->b, code, a, const_like(e, n->c, a));
  return ir_2(&e->b, code, a, wide(e, emit(e, x)));
}

// Positive terms, then the constant, then what is subtracted.
static Value emit_add(Emit *e, const ExNode *n) {
  Sym *s = &e->o->sym;
  Ex last = n->kid[n->n - 1];
  bool has_const = sym_at(s, last)->kind == EX_CONST;
  uint32_t terms = n->n - has_const;
  Value r = 0;
  for (uint32_t i = 0; i < terms; i++) {
    if (sym_coef(s, n->kid[i]) < 0) continue;
    r = r ? plus_or(e, OP_ADD, r, n->kid[i]) : wide(e, emit(e, n->kid[i]));
  }
  if (has_const) {
    double c = sym_at(s, last)->c;
    if (r && c < 0) r = plus_or(e, OP_SUB, r, sym_const(s, -c));
    else if (r) r = plus_or(e, OP_ADD, r, last);
    else r = const_like(e, c, wide(e, emit(e, sym_neg(s, n->kid[0]))));
  }
  for (uint32_t i = 0; i < terms; i++) {
    if (sym_coef(s, n->kid[i]) >= 0) continue;
    r = r ? plus_or(e, OP_SUB, r, sym_neg(s, n->kid[i]))
          : wide(e, emit(e, n->kid[i]));
  }
  return r;
}

static Value emit_product(Emit *e, const ExNode *n, bool below) {
  Sym *s = &e->o->sym;
  Value r = 0;
  for (uint32_t i = 0; i < n->n; i++) {
    const ExNode *k = sym_at(s, n->kid[i]);
    bool inverse = k->kind == EX_POW && k->c < 0 && k->c != -0.5;
    if (k->kind == EX_CONST || inverse != below) continue;
    Ex x = below ? sym_pow(s, k->kid[0], -k->c) : n->kid[i];
    Value v = wide(e, emit(e, x));
    r = r ? ir_2(&e->b, OP_MUL, r, v) : v;
  }
  return r;
}

static Value emit_mul(Emit *e, const ExNode *n) {
  const ExNode *first = sym_at(&e->o->sym, n->kid[0]);
  double c = first->kind == EX_CONST ? first->c : 1;
  Value num = emit_product(e, n, false), den = emit_product(e, n, true);
  if (!num) num = const_like(e, c, den);
  else if (c == -1) num = ir_1(&e->b, OP_NEG, num);
  else if (c != 1) num = ir_2(&e->b, OP_MUL, num, const_like(e, c, num));
  return den ? ir_2(&e->b, OP_DIV, num, den) : num;
}

static Value emit_pow(Emit *e, const ExNode *n) {
  Value x = wide(e, emit(e, n->kid[0]));
  double p = n->c;
  if (p == 0.5) return ir_1(&e->b, OP_SQRT, x);
  if (p == -0.5) return ir_1(&e->b, OP_RSQRT, x);
  bool small = p == floor(p) && fabs(p) <= 4;
  if (!small) return ir_2(&e->b, OP_POW, x, const_like(e, p, x));
  Value r = x, sq = fabs(p) >= 2 ? ir_2(&e->b, OP_MUL, x, x) : x;
  if (fabs(p) == 2) r = sq;
  if (fabs(p) == 3) r = ir_2(&e->b, OP_MUL, sq, x);
  if (fabs(p) == 4) r = ir_2(&e->b, OP_MUL, sq, sq);
  return p < 0 ? ir_2(&e->b, OP_DIV, const_like(e, 1, r), r) : r;
}

// exp(2 a) is the square of an exp(a) that is already there.
static Value emit_exp(Emit *e, const ExNode *n) {
  Sym *s = &e->o->sym;
  Ex half = sym_exp(s, sym_scale(s, 0.5, n->kid[0]));
  uint64_t v;
  if (map_get(&e->done, half, &v))
    return ir_2(&e->b, OP_MUL, (Value)v, (Value)v);
  return ir_1(&e->b, OP_EXP, wide(e, emit(e, n->kid[0])));
}

static Value emit_op(Emit *e, const ExNode *n) {
  Value a[ELEM_ARGS] = {0}, sibling = 0;
  for (uint32_t i = 0; i < n->n; i++) {
    if (sym_at(&e->o->sym, n->kid[i])->kind == EX_CONST) continue;
    a[i] = emit(e, n->kid[i]);
    if (type_of(e, a[i])->dtype == DT_BOOL) continue;
    a[i] = wide(e, a[i]);
    sibling = a[i];
  }
  for (uint32_t i = 0; i < n->n; i++)
    if (!a[i]) a[i] = const_like(e, sym_at(&e->o->sym, n->kid[i])->c, sibling);
  return ir_op(&e->b, (OpCode)n->code, a, n->n, NULL, 0, NULL, 1, 0)->res[0];
}

static Value emit_node(Emit *e, Ex x) {
  const ExNode *n = sym_at(&e->o->sym, x);
  switch ((ExKind)n->kind) {
  case EX_CONST: return ir_const_f(&e->b, DT_F32, n->c);
  case EX_LEAF: return emit_leaf(e, n);
  case EX_ADD: return emit_add(e, n);
  case EX_MUL: return emit_mul(e, n);
  case EX_POW: return emit_pow(e, n);
  case EX_EXP: return emit_exp(e, n);
  case EX_CAST: return ir_cast(&e->b, (DType)n->code, emit(e, n->kid[0]));
  case EX_OP: return emit_op(e, n);
  }
  return 0;
}

// Whether v is there: an expression may be free of live row values where the
// value it was made from is not, because they cancel.
static bool ready(Emit *e, Value v) {
  uint64_t known;
  if (map_get(&e->ready, v, &known)) return known != 0;
  const Op *op = ir_def(e->o->f, v);
  const Red *r = online_red(e->o, v);
  bool ok = true;
  if (r && !r->scan) ok = r->final != 0;
  else
    for (uint32_t i = 0; op && i < op->nargs && ok; i++)
      ok = ready(e, op->args[i]);
  map_put(&e->ready, v, ok);
  return ok;
}

// The value that x was made from, if it can stand for it here; else 0.
static Value made_from(Emit *e, Ex x) {
  const ExNode *n = sym_at(&e->o->sym, x);
  uint64_t v;
  if (n->kind == EX_CONST || n->kind == EX_LEAF) return 0;
  if ((n->flags & EF_D) && e->mode != EMIT_FINAL) return 0;
  if (!map_get(&e->o->origin, x, &v) || !ready(e, (Value)v)) return 0;
  bool key = type_has_axis(type_of(e, (Value)v), e->g->axis);
  return key && !(n->flags & EF_KEY) ? 0 : (Value)v;
}

static Value emit(Emit *e, Ex x) {
  uint64_t v;
  if (map_get(&e->done, x, &v)) return (Value)v;
  Value from = made_from(e, x);
  Value r = from ? clone_keyed(e, from) : emit_node(e, x);
  map_put(&e->done, x, r);
  return r;
}

// ---------------------------------------------------------------- types
static void add_axes(Type *t, const Type *more) {
  for (uint32_t i = 0; i < more->n; i++)
    *t = type_with(*t, more->axis[i], DIM_NONE);
}

static void axes_of(Online *o, Ex x, Type *t) {
  const ExNode *n = sym_at(&o->sym, x);
  if (n->kind == EX_LEAF) add_axes(t, ir_type(o->f, n->leaf));
  for (uint32_t i = 0; i < n->n; i++) axes_of(o, n->kid[i], t);
}

// The axes of a term, with the key: those of its values and of the domain.
static Type term_axes(Online *o, const Group *g, const Acc *a) {
  Type t = type_with(type_scalar(DT_F32), g->axis, DIM_NONE);
  Value pred[16];
  uint32_t n = online_domain(o, g->axis, pred, 16);
  for (uint32_t i = 0; i < n; i++) add_axes(&t, ir_type(o->f, pred[i]));
  if (!a->local) return t;
  if (a->of) return term_axes(o, g, &g->accs.at[a->of - 1]);
  axes_of(o, a->local, &t);
  if (a->other) axes_of(o, a->other, &t);
  else if (sym_at(&o->sym, a->local)->kind == EX_CONST && a->src)
    add_axes(&t, ir_type(o->f, a->src->res[0]));
  return t;
}

static DType acc_dtype(Online *o, const Acc *a) {
  if (a->kind == RK_ANY || a->kind == RK_ALL) return DT_BOOL;
  DType t = a->src ? ir_type(o->f, a->src->res[0])->dtype : DT_F32;
  bool narrow = dtype_is_float(t) && dtype_size(t) < 4;
  return narrow ? DT_F32 : t;
}

static Type acc_type(Online *o, const Group *g, const Acc *a) {
  Type t = term_axes(o, g, a);
  const IrAttr *over = a->src ? ir_attr(a->src, AT_OVER) : NULL;
  for (uint32_t i = 0; over && i < over->n; i++)
    t = type_without(t, (uint32_t)over->list[i]);
  t = type_without(t, g->axis);
  t.dtype = acc_dtype(o, a);
  return t;
}

// ---------------------------------------------------------------- regions
static Builder in_region(Online *o, Region *r) {
  return (Builder){.fn = o->f, .region = r, .span = NOWHERE};
}

static Emit emitter(Online *o, Group *g, Region *r, Mode mode) {
  return (Emit){.o = o,
                .g = g,
                .mode = mode,
                .done.arena = o->arena,
                .ready.arena = o->arena,
                .keyed.arena = o->arena,
                .b = r ? in_region(o, r) : o->b};
}

static void emit_domain(Online *o, Group *g) {
  Emit e = emitter(o, g, g->pass->regions[0], EMIT_LOCAL);
  Value pred[16], all = 0;
  uint32_t n = online_domain(o, g->axis, pred, 16);
  for (uint32_t i = 0; i < n; i++) {
    Value p = clone_keyed(&e, pred[i]);
    all = all ? ir_2(&e.b, OP_AND, all, p) : p;
  }
  if (!all) all = ir_const_i(&e.b, DT_BOOL, 1);
  ir_yield(&e.b, &all, 1);
}

static bool alone(const Group *g, const Acc *a) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->accs.n; i++) n += g->accs.at[i].src == a->src;
  return n == 1;
}

// Weights that are left unrounded since they may be of any size: pass row_scale
// may round them in another way. Of a sum of terms it may not, which can
// cancel.
static void note_wide(Emit *e, const Acc *a, Op *dot) {
  if (!e->o->frames || !alone(e->g, a)) return;
  DType was = type_of(e, a->src->args[0])->dtype;
  bool narrow =
      dtype_size(was) == 2 && type_of(e, a->src->args[1])->dtype == was;
  if (narrow && ir_type(e->o->f, dot->args[0])->dtype == DT_F32)
    ir_set_attr(e->o->f, dot, attr_i(AT_TO, was));
}

static Value emit_dot(Emit *e, const Acc *a, Type *axes) {
  const IrAttr *over = ir_attr(a->src, AT_OVER);
  Value x, y = emit(e, a->other);
  for (uint32_t i = 0; i < axes->n; i++)  // those of y alone stay there
    if (type_has_axis(type_of(e, y), axes->axis[i]) &&
        axes->axis[i] != e->g->axis)
      *axes = type_without(*axes, axes->axis[i]), i--;
  const ExNode *n = sym_at(&e->o->sym, a->local);
  if (n->kind == EX_CONST) {
    axes->dtype = type_of(e, a->src->args[0])->dtype;
    x = const_typed(&e->b, n->c, *axes);
  } else {
    x = emit(e, a->local);
    axes_of(e->o, a->local, axes);
    x = widen(&e->b, x, axes);
  }
  Op *dot = ir_op(&e->b, OP_DOT, (Value[]){x, y}, 2, over, 1, NULL, 1, 0);
  note_wide(e, a, dot);
  return dot->res[0];
}

static Value emit_first(Emit *e, const Acc *a) {
  const Acc *d = &e->g->accs.at[a->of - 1];
  Value x = ir_cast(&e->b, acc_dtype(e->o, d), emit(e, d->local));
  Value at = emit(e, a->local);
  return online_first_term(&e->b, x, e->now[a->of - 1], at);
}

static Value emit_term(Emit *e, const Acc *a) {
  Online *o = e->o;
  Type axes = term_axes(o, e->g, a);
  if (a->other) return emit_dot(e, a, &axes);
  if (a->of) return emit_first(e, a);
  axes.dtype = acc_dtype(o, a);
  if (!a->local) return const_typed(&e->b, 1, axes);
  const ExNode *n = sym_at(&o->sym, a->local);
  if (n->kind == EX_CONST) return const_typed(&e->b, n->c, axes);
  Value v = emit(e, a->local);
  if (dtype_is_float(axes.dtype)) v = ir_cast(&e->b, axes.dtype, v);
  Type key = type_with(type_scalar(DT_F32), e->g->axis, DIM_NONE);
  return widen(&e->b, v, &key);  // a term without it would count as reduced
}

static void note_scores(Emit *e) {
  Online *o = e->o;
  const char *word = intern(&o->cx->names, "score");
  for (uint32_t i = 0; i < e->g->scores.n; i++) {
    Value v = clone_keyed(e, e->g->scores.at[i]);
    ir_set_attr(o->f, ir_def(o->f, v), attr_s(AT_NOTE, word));
  }
}

static const char *acc_hint(Online *o, const Acc *a) {
  if (!a->local) return "some";
  const char *h = a->src ? ir_info(o->f, a->src->res[0])->hint : NULL;
  return h ? h : "acc";
}

static Value *region_args(Online *o, Group *g, Region *r) {
  Value *v = NEWN(o->arena, Value, g->accs.n);
  for (uint32_t i = 0; i < g->accs.n; i++)
    v[i] = ir_region_param(r, *ir_type(o->f, g->pass->res[i]),
                           acc_hint(o, &g->accs.at[i]));
  return v;
}

static void keep_assumes(Emit *e) {
  Online *o = e->o;
  for (const Op *op = o->region->first; op; op = op->next) {
    if (op->code != OP_ASSUME) continue;
    const Op *p = ir_def(o->f, op->args[0]);
    if (!p || !type_has_axis(type_of(e, op->args[0]), e->g->axis)) continue;
    bool here = true;  // only facts about values of this pass
    for (uint32_t i = 0; i < p->nargs; i++)
      here = here && (vmap_get(&e->keyed, p->args[i]) != p->args[i] ||
                      !type_has_axis(type_of(e, p->args[i]), e->g->axis));
    if (!here) continue;
    Value v = clone_keyed(e, op->args[0]);
    ir_op(&e->b, OP_ASSUME, &v, 1, NULL, 0, NULL, 0, 0);
  }
}

// Is g the innermost pass that the operands of a store vary with?
static bool adds_here(const Online *o, const Group *g, const Op *op) {
  uint64_t keys = 0, all = g->outer | 1ull << g->axis;
  for (uint32_t i = 1; i < op->nargs; i++) {
    const Type *t = ir_type(o->f, op->args[i]);
    for (uint32_t k = 0; k < t->n; k++)
      if (o->f->axes.at[t->axis[k]].role == AX_KEY) keys |= 1ull << t->axis[k];
  }
  return (keys >> g->axis & 1) && !(keys & ~all);
}

// What a sum has in front of each block is stored by the pass that makes it.
static void emit_fronts(Emit *e) {
  Online *o = e->o;
  for (uint32_t f = 0; f < e->g->fronts.n; f++) {
    const Op *op = e->g->fronts.at[f].store;
    Value *args = NEWN(o->arena, Value, op->nargs);
    for (uint32_t i = 0; i < op->nargs; i++)
      args[i] =
          i == 1 ? e->now[e->g->fronts.at[f].acc] : clone_keyed(e, op->args[i]);
    ir_op(&e->b, OP_STORE, args, op->nargs, op->attrs, op->nattrs, NULL, 0, 0);
    ir_erase((Op *)(uintptr_t)op);
  }
}

// What each key adds to memory is added by the pass.
static void emit_adds(Emit *e) {
  Online *o = e->o;
  for (Op *op = o->region->first, *next; op; op = next) {
    next = op->next;
    if (op->code != OP_STORE || !ir_attr_i(op, AT_ADD, 0)) continue;
    if (!adds_here(o, e->g, op)) continue;
    Value *args = NEWN(o->arena, Value, op->nargs);
    for (uint32_t i = 0; i < op->nargs; i++)
      args[i] = clone_keyed(e, op->args[i]);
    ir_op(&e->b, OP_STORE, args, op->nargs, op->attrs, op->nattrs, NULL, 0, 0);
    ir_erase(op);
  }
}

static void emit_local(Online *o, Group *g) {
  Region *r = g->pass->regions[1];
  Emit e = emitter(o, g, r, EMIT_LOCAL);
  e.now = region_args(o, g, r);
  Value *term = NEWN(o->arena, Value, g->accs.n);
  for (uint32_t i = 0; i < g->accs.n; i++)
    term[i] = emit_term(&e, &g->accs.at[i]);
  note_scores(&e);
  keep_assumes(&e);
  emit_adds(&e);
  emit_fronts(&e);
  ir_yield(&e.b, term, g->accs.n);
}

static void emit_correct(Online *o, Group *g) {
  Region *r = g->pass->regions[2];
  Emit e = emitter(o, g, r, EMIT_CORRECT);
  Sym *s = &o->sym;
  e.old = region_args(o, g, r);
  e.now = region_args(o, g, r);
  Value *factor = NEWN(o->arena, Value, g->accs.n), one = 0;
  for (uint32_t i = 0; i < g->accs.n; i++) {
    Ex h = g->accs.at[i].rolling;
    uint32_t of = g->accs.at[i].of;
    if (of) {
      factor[i] = online_first_factor(&e.b, e.old[of - 1], e.now[of - 1]);
    } else if (!h || sym_is_const(s, h, 1)) {
      if (!one) one = known(o, ir_const_f(&e.b, DT_F32, 1), "one");
      factor[i] = one;
    } else {
      Ex ratio = sym_mul2(s, h, sym_pow(s, sym_old(s, h), -1));
      factor[i] = emit(&e, ratio);
    }
  }
  ir_yield(&e.b, factor, g->accs.n);
}

// ---------------------------------------------------------------- the pass
static bool late_may_fail(Online *o, const Group *g) {
  for (uint32_t i = 0; i < g->reds.n; i++) {
    const Red *r = g->reds.at[i];
    if (r->plus && !r->of) return true;
    for (uint32_t j = 0; j < r->terms.n; j++)
      if (sym_has(&o->sym, r->terms.at[j].late, EF_D)) return true;
  }
  return false;
}

typedef struct DivkUse {
  uint32_t axis;
  bool found;
} DivkUse;

static void find_divk(void *data, Op *op) {
  DivkUse *u = data;
  if (op->code == OP_DIVK && ir_attr_i(op, AT_AXIS, -1) == u->axis)
    u->found = true;
}

// The first pass over an axis finds out whether its domain is empty, if
// anything after it needs to know.
void online_add_some(Online *o, Group *g) {
  uint64_t v;
  if (map_get(&o->some, some_key(g->axis, g->outer), &v)) return;
  DivkUse u = {.axis = g->axis};
  ir_walk(o->region, find_divk, &u);
  bool needed = u.found;
  for (uint32_t i = 0; i < o->groups.n; i++)
    if (o->groups.at[i]->axis == g->axis && o->groups.at[i]->outer == g->outer)
      needed = needed || late_may_fail(o, o->groups.at[i]);
  Value pred[1];
  Dim extent = o->f->axes.at[g->axis].extent;
  int64_t lo, hi;
  dim_bounds(&o->f->mod->dims, extent, &lo, &hi);
  if (!needed) return;
  if (online_domain(o, g->axis, pred, 1) == 0) {  // the axis says it all
    if (lo >= 1) return;
    Value zero = ir_const_i(&o->b, DT_I64, 0), n = ir_dim(&o->b, extent);
    Value some = known(o, ir_2(&o->b, OP_LT, zero, n), "some");
    map_put(&o->some, some_key(g->axis, g->outer), some);
    return;
  }
  if (online_own_key(o, g->axis)) return;
  g->some = (int)g->accs.n;
  Acc a = {.kind = RK_ANY, .guarded = g->fill != FILL_SELECT};
  vec_push(o->arena, &g->accs, a);
}

static IrAttr int_list(Online *o, const Group *g, AttrId id) {
  int64_t *list = NEWN(o->arena, int64_t, g->accs.n);
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->accs.n; i++) {
    const Acc *a = &g->accs.at[i];
    if (id == AT_KINDS) list[n++] = a->kind;
    else if (id == AT_GAUGE ? a->gauge : id == AT_SCANS ? a->scan : a->guarded)
      list[n++] = i;
  }
  return attr_list(id, list, n);
}

static void make_pass(Online *o, Group *g) {
  static const AttrId lists[] = {AT_GAUGE, AT_SCANS, AT_GUARD};
  IrAttr attr[8] = {int_list(o, g, AT_KINDS), attr_i(AT_AXIS, g->axis)};
  uint32_t n = 2;
  for (uint32_t i = 0; i < 3; i++) {
    attr[n] = int_list(o, g, lists[i]);
    if (attr[n].n) n++;
  }
  attr[n++] = attr_i(AT_FILL, g->fill);
  if (g->order != ORDER_ANY) attr[n++] = attr_i(AT_ORDER, g->order);
  Type *types = NEWN(o->arena, Type, g->accs.n);
  for (uint32_t i = 0; i < g->accs.n; i++)
    types[i] = acc_type(o, g, &g->accs.at[i]);
  o->b.span = g->reds.n ? g->reds.at[0]->op->span : NOWHERE;
  g->pass = ir_op(&o->b, OP_KREDUCE, NULL, 0, attr, n, types, g->accs.n, 3);
  for (uint32_t i = 0; i < g->accs.n; i++)
    known(o, g->pass->res[i], acc_hint(o, &g->accs.at[i]));
}

// ---------------------------------------------------------------- finalize
// Late division: what a reduction is divided by once, behind the keys.
static Value late_factor(Emit *e, Ex d, Value some) {
  Value v = wide(e, emit(e, d));
  return sym_has(&e->o->sym, d, EF_D) ? guard(&e->b, v, some) : v;
}

static Value final_value(Emit *e, const Red *r) {
  Online *o = e->o;
  Sym *s = &o->sym;
  Value sum = 0, some = some_of(o, e->g->axis, e->g->outer);
  for (uint32_t i = 0; i < r->terms.n; i++) {
    Value x = e->g->pass->res[r->terms.at[i].acc];
    Ex d = r->terms.at[i].late;
    if (!sym_is_const(s, d, 1))
      x = ir_2(&e->b, OP_MUL, x, late_factor(e, d, some));
    sum = sum ? ir_2(&e->b, OP_ADD, sum, x) : x;
  }
  if (!sum) sum = ir_const_f(&e->b, DT_F32, 0);
  Value acc = e->g->pass->res[r->terms.n ? r->terms.at[0].acc : 0];
  if (r->plus) sum = ir_2(&e->b, OP_ADD, sum, emit(e, r->plus));
  bool extreme = r->kind == RK_MAX || r->kind == RK_MIN;
  if (extreme && sum != acc && some)
    sum = ir_3(&e->b, OP_SELECT, some, sum, acc);
  const Type *t = ir_type(o->f, r->res);
  return widen(&e->b, ir_cast(&e->b, t->dtype, sum), t);
}

bool online_emit(Online *o, Group *g) {
  make_pass(o, g);
  emit_domain(o, g);
  emit_local(o, g);
  emit_correct(o, g);
  if (g->some >= 0)
    map_put(&o->some, some_key(g->axis, g->outer), g->pass->res[g->some]);
  Emit e = emitter(o, g, NULL, EMIT_FINAL);
  for (uint32_t i = 0; i < g->reds.n; i++) {
    Red *r = g->reds.at[i];
    e.ready = (Map){.arena = o->arena};
    r->final = final_value(&e, r);
    known(o, r->final, acc_hint(o, &(Acc){.src = r->op, .local = 1}));
    ir_replace_uses(o->f, r->res, r->final);
    if (!type_eq(ir_type(o->f, r->final), ir_type(o->f, r->res)))
      online_fail(o, r->op, "the reduction over '%s' lacks axes of the domain",
                  o->f->axes.at[g->axis].name);
  }
  return !o->failed;
}

// A vector over a scalar: one division, and a product for each element.
static bool many_over_one(const Func *f, const Type *n, const Type *d) {
  for (uint32_t i = 0; i < n->n; i++)
    if (f->axes.at[n->axis[i]].role == AX_VEC && !type_has_axis(d, n->axis[i]))
      return true;
  return false;
}

static void lower_divk(void *data, Op *op) {
  Online *o = data;
  if (op->code != OP_DIVK) return;
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  Builder b = {.fn = o->f,
               .region = op->parent,
               .before = op,
               .span = op->span};
  const Type *n = ir_type(o->f, op->args[0]), *d = ir_type(o->f, op->args[1]);
  Value r;
  if (type_has_axis(d, axis) || !some_of(o, axis, outer_of(o->f, d, axis))) {
    r = ir_2(&b, OP_DIV, op->args[0], op->args[1]);
  } else if (many_over_one(o->f, n, d)) {
    Value inv = guarded_inverse(o, &b, op->args[1], axis);
    r = ir_2(&b, OP_MUL, op->args[0], inv);
  } else {
    Value some = some_of(o, axis, outer_of(o->f, d, axis));
    Value q = ir_2(&b, OP_DIV, op->args[0], op->args[1]);
    Value zero = ir_const_f(&b, ir_type(o->f, q)->dtype, 0);
    Value ok = ir_2(&b, OP_OR, some, ir_2(&b, OP_NE, op->args[1], zero));
    r = ir_3(&b, OP_SELECT, ok, q, zero);
  }
  ir_replace_uses(o->f, op->res[0], r);
  ir_erase(op);
}

void online_lower_divk(Online *o) {
  ir_walk(o->region, lower_divk, o);
}
