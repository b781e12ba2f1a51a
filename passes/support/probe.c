// Numeric probing of the IR (see probe.h).
#include "passes/support/probe.h"

#include "ir/eval.h"
#include "passes/support/sym.h"
#include <math.h>

void probe_init(Probe *p, const Func *f, Arena *a, uint64_t seed) {
  *p = (Probe){.f = f, .seed = seed, .size = 1};
  p->memo.arena = p->force.arena = p->shift.arena = p->scale.arena = a;
  p->met.arena = a;
}

double probe_pair(Probe *a, Probe *b, const Func *f, Arena *arena, uint64_t i) {
  static const double sizes[] = {1, 0.3, 3, 1, 0.1, 1, 0.02, 3};
  static const double by[] = {0.3, -0.7, 2.1, -4.5, 9, -0.1, 0.01, 1, -2.5};
  probe_init(a, f, arena, 1000 + i);
  probe_init(b, f, arena, 1000 + i);
  a->size = b->size = sizes[i % (sizeof sizes / sizeof *sizes)];
  a->free = b->free = i % 2;
  return by[i % (sizeof by / sizeof *by)];
}

static uint64_t bits_of(double x) {
  uint64_t b;
  memcpy(&b, &x, sizeof b);
  return b;
}

static double from_bits(uint64_t b) {
  double x;
  memcpy(&x, &b, sizeof x);
  return x;
}

void probe_put(Map *m, Value v, double x) {
  map_put(m, v, bits_of(x));
}

double probe_random(const Probe *p, uint64_t a, uint64_t b) {
  uint64_t key[] = {a, b};
  uint64_t h = map_hash(key, sizeof key, p->seed);
  return (double)(h >> 11) * 0x1p-53 * 3 - 1.5;
}

// A random value fit for the dtype.
static double source(const Probe *p, uint64_t a, uint64_t b, DType t) {
  double x = probe_random(p, a, b);
  if (t == DT_BOOL) return x > 0;
  if (!dtype_is_float(t)) return floor(fabs(x) * 4);
  return x * p->size;
}

static bool has(uint64_t axes, uint32_t axis) {
  return axis < 64 && axes >> axis & 1;
}

static bool has_coordinates(const Probe *p, uint32_t axis) {
  return p->f->axes.at[axis].role == AX_KEY || has(p->wide, axis);
}

static uint64_t where(const Probe *p, const Type *t) {
  uint64_t w = 0;
  for (uint32_t i = 0; i < t->n; i++)
    if (has_coordinates(p, t->axis[i])) w = w * 8 + p->at[t->axis[i]] + 1;
  return w;
}

static double opaque(Probe *p, const Op *op, Value v) {
  uint64_t h = p->seed;
  for (uint32_t i = 0; i < op->nargs; i++) {
    const Type *t = ir_type(p->f, op->args[i]);
    uint64_t b = t->kind == TK_TENSOR ? op->args[i]
                                      : bits_of(probe_value(p, op->args[i]));
    h = map_hash(&b, sizeof b, h);
  }
  const Type *t = ir_type(p->f, v);
  bool named = op->nargs == 0 || op->nres != 1;
  return source(p, named ? v : op->code, map_hash(&h, sizeof h, where(p, t)),
                t->dtype);
}

static double combine(RKind k, double a, double b) {
  switch (k) {
  case RK_PROD: return a * b;
  case RK_MAX: return a > b || isnan(a) ? a : b;
  case RK_MIN: return a < b || isnan(a) ? a : b;
  case RK_ANY: return a != 0 || b != 0;
  case RK_ALL: return a != 0 && b != 0;
  default: return a + b;
  }
}

static double item(Probe *p, const Op *op) {
  double x = probe_value(p, op->args[0]);
  return op->code == OP_DOT ? x * probe_value(p, op->args[1]) : x;
}

static double reduce(Probe *p, const Op *op, const IrAttr *over, uint32_t i,
                     RKind k) {
  while (i < over->n && !has_coordinates(p, (uint32_t)over->list[i])) i++;
  if (i == over->n) return item(p, op);
  uint32_t axis = (uint32_t)over->list[i];
  uint8_t was = p->at[axis];
  double r = eval_identity(k, DT_F64);
  for (uint8_t c = 0; c < PROBE_KEYS; c++) {
    p->at[axis] = c;
    r = combine(k, r, reduce(p, op, over, i + 1, k));
  }
  p->at[axis] = was;
  return r;
}

static double scan(Probe *p, const Op *op) {
  uint32_t axis = (uint32_t)ir_attr_i(op, AT_AXIS, 0);
  bool prefix = ir_attr_i(op, AT_DIR, DIR_PREFIX) == DIR_PREFIX;
  bool open = ir_attr_i(op, AT_EXCLUSIVE, 0) != 0;
  RKind k = (RKind)ir_attr_i(op, AT_KIND, RK_SUM);
  uint8_t at = p->at[axis];
  double r = eval_identity(k, DT_F64);
  for (uint8_t c = 0; c < PROBE_KEYS; c++) {
    if (open && c == at) continue;
    if (prefix ? c > at : c < at) continue;
    p->at[axis] = c;
    r = combine(k, r, probe_value(p, op->args[0]));
  }
  p->at[axis] = at;
  return r;
}

static bool is_keyed(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  for (uint32_t i = 0; t->kind == TK_ELEM && i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == AX_KEY) return true;
  return false;
}

// A float that a row compares with a key's coordinate names a key, as any
// number in range would: which one is a function of it. x is that of the
// operand `key`, y the other's.
static bool names_key(const Probe *p, Value key, Value row, double x,
                      double y) {
  return is_keyed(p->f, key) && !is_keyed(p->f, row) && x == floor(x) &&
         isfinite(y) && y != floor(y);
}

static bool is_named(const Probe *p, Value key, double name) {
  const Type *t = ir_type(p->f, key);
  for (uint32_t i = 0; i < t->n; i++) {
    uint64_t b[] = {bits_of(name), i};
    if (p->f->axes.at[t->axis[i]].role == AX_KEY &&
        p->at[t->axis[i]] != map_hash(b, sizeof b, p->seed) % PROBE_KEYS)
      return false;
  }
  return true;
}

static bool probe_equal(const Probe *p, const Op *op, const double *a) {
  for (uint32_t i = 0; i < 2; i++)
    if (names_key(p, op->args[i], op->args[1 - i], a[i], a[1 - i]))
      return is_named(p, op->args[i], a[1 - i]);
  return a[0] == a[1];
}

// Is v made of integers and their comparisons, and of no float?
static bool is_discrete(const Func *f, Value v) {
  const Op *op = ir_def(f, v);
  if (!op || dtype_is_float(ir_type(f, v)->dtype)) return false;
  if (op->code == OP_LOAD) return true;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!ir_const_value(f, op->args[i], &(double){0}) &&
        dtype_is_float(ir_type(f, op->args[i])->dtype))
      return false;
  bool ok = true;
  for (uint32_t i = 0; i < op->nargs && op->code != OP_CAST; i++)
    if (ir_type(f, op->args[i])->dtype == DT_BOOL)
      ok = ok && is_discrete(f, op->args[i]);
  return ok;
}

// The side that a select takes.
static bool chosen(Probe *p, Value c) {
  double r;
  if (!p->free || ir_const_value(p->f, c, &r) || !is_discrete(p->f, c))
    return probe_value(p, c) != 0;
  return probe_random(p, c, where(p, ir_type(p->f, c))) > 0;
}

static double coordinate(const Probe *p, uint32_t axis) {
  const Axis *a = &p->f->axes.at[axis];
  if (has_coordinates(p, axis)) return p->at[axis];
  int64_t n;
  if (!dim_is_const(&p->f->mod->dims, a->extent, &n) || n < 1)
    return source(p, 77, axis, DT_I64);
  uint64_t b[] = {77, axis};
  return (double)(map_hash(b, sizeof b, p->seed) % (uint64_t)n);
}

static double probe_op(Probe *p, const Op *op, Value v) {
  double a[ELEM_ARGS], r;
  switch (op->code) {
  case OP_CONST: return ir_const_value(p->f, v, &r) ? r : NAN;
  case OP_DIM:
    return 4 + floor(2 * fabs(probe_random(p, 99, ir_attr(op, AT_DIM)->i)));
  case OP_INDEX: {
    return coordinate(p, (uint32_t)ir_attr_i(op, AT_AXIS, 0));
  }
  case OP_REDUCE:
    return reduce(p, op, ir_attr(op, AT_OVER), 0,
                  (RKind)ir_attr_i(op, AT_KIND, RK_SUM));
  case OP_DOT: return reduce(p, op, ir_attr(op, AT_OVER), 0, RK_SUM);
  case OP_SCAN: return scan(p, op);
  default: break;
  }
  bool elem = (op_info(op->code)->flags & OPF_ELEM) != 0;
  if (!elem || op->nargs == 0) return opaque(p, op, v);
  if (op->code == OP_SELECT) {
    return probe_value(p, op->args[chosen(p, op->args[0]) ? 1 : 2]);
  }
  for (uint32_t i = 0; i < op->nargs; i++) a[i] = probe_value(p, op->args[i]);
  if (op->code == OP_EQ) return probe_equal(p, op, a);
  if (op->code == OP_NE) return !probe_equal(p, op, a);
  if (!sym_num_op(op->code, a, &r)) return opaque(p, op, v);
  if (op->code == OP_CAST && !dtype_is_float(ir_type(p->f, v)->dtype))
    r = trunc(r);
  return r;
}

// Do changes hold at v's coordinates?
static bool is_changed(const Probe *p, const Type *t) {
  for (uint32_t i = 0; i < t->n; i++)
    if (has(p->only, t->axis[i]) && p->at[t->axis[i]]) return false;
  return true;
}

double probe_value(Probe *p, Value v) {
  const ValueInfo *info = ir_info(p->f, v);
  uint64_t key = ((uint64_t)v << 32) | where(p, &info->type), b;
  if (map_get(&p->force, v, &b)) return from_bits(b);
  if (map_get(&p->memo, key, &b)) return from_bits(b);
  double r = info->def ? probe_op(p, info->def, v)
                       : source(p, v, where(p, &info->type), info->type.dtype);
  bool here = is_changed(p, &info->type);
  bool more = here && map_get(&p->shift, v, &b);
  if (more) r += from_bits(b);
  bool times = here && map_get(&p->scale, v, &b);
  if (times) r *= from_bits(b);
  if (more || times) map_put(&p->met, v, 1);
  map_put(&p->memo, key, bits_of(r));
  return r;
}

static bool close_enough(double a, double b) {
  return a == b || fabs(a - b) <= 1e-9 * fmax(1, fmax(fabs(a), fabs(b)));
}

bool probe_same(Probe *a, Probe *b, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    bool effect = !(op_info(op->code)->flags & OPF_PURE);
    if (op->code == OP_DOMAIN || op->code == OP_ASSUME) effect = false;
    for (uint32_t i = 0; effect && i < op->nargs; i++) {
      if (ir_type(a->f, op->args[i])->kind == TK_TENSOR) continue;
      if (is_keyed(a->f, op->args[i])) return false;
      double x = probe_value(a, op->args[i]), y = probe_value(b, op->args[i]);
      uint64_t bit = (uint64_t)1 << a->n++ % 64;
      if ((isnan(x) && isnan(y)) || (isinf(x) && x == y)) continue;
      if (!close_enough(x, y)) return false;
      if (op->code == OP_STORE && i != 1) continue;  // indices do not count
      double k;
      bool zero = x == 0 && y == 0 && !ir_const_value(a->f, op->args[i], &k);
      *(zero ? &a->zero : &a->told) |= bit;
      a->compared++;
    }
    for (uint32_t i = 0; i < op->nregions; i++)
      if (!probe_same(a, b, op->regions[i])) return false;
  }
  return true;
}

void probe_note(ProbeSeen *s, const Probe *a, const Probe *b) {
  s->trials += a->compared > 0;
  s->zero |= a->zero;
  s->told |= a->told;
  if (!a->compared) return;
  s->met.arena = b->met.arena;
  for (uint32_t i = 0; i < b->met.cap; i++)
    if (b->met.used[i]) map_put(&s->met, b->met.key[i], 1);
}

bool probe_shown(const ProbeSeen *s, const Value *changed, uint32_t n) {
  uint64_t met;
  for (uint32_t i = 0; i < n; i++)
    if (!s->met.arena || !map_get(&s->met, changed[i], &met)) return false;
  return s->trials >= PROBE_TRIALS / 2 && !(s->zero & ~s->told);
}
