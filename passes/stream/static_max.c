// static_max: a constant reference instead of a maximum, where scores are
// bounded.
//
//   %m, %l, %o = kreduce() {kinds = [max, sum, sum],        %l, %o = kreduce()
//       gauge = [0]} (.., exp(sub(%s, ref(%m1))), ..) ->   (.., exp(sub(%s, 50.0)), ..)
//
// The result does not depend on the value of a gauge, so any number will do
// that keeps the exponentials in range. If every score lies in [lo, hi] and
// hi - lo is small enough for the type of the weights, a constant does: no
// maximum, no corrections, no dependence between tiles, and partial states
// add. Bounds come from the ops alone (softcap, tanh, sigmoid, clamp), never
// from `assume`: a violation could overflow. Powers of weights spread as many
// times as far.
//
// Weights are then not at most 1 by construction, so the sum of rounded
// weights is what o must be divided by: sums of a weight become sums of its
// rounded value.
//
// Needs: online. Tests: test/passes/static_max/.
#include "passes/support/order.h"
#include "passes/pass.h"
#include "passes/support/probe.h"
#include "passes/support/range.h"

#include <math.h>

// How far scores may spread, in nats, by the narrowest type that holds a
// weight: its exponent range less 11 nats (2**-16 of the largest weight of a
// row) below, less room for sums above. `down`: the reference lies at most
// this much above the smallest score.
typedef struct Room {
  DType type;
  double spread, down;
} Room;

static const Room rooms[] = {
    {DT_F64, 130, 76},  {DT_F32, 130, 76}, {DT_TF32, 130, 76},
    {DT_BF16, 130, 76}, {DT_F16, 9, -1},
};

typedef struct Gauge {
  Ctx *cx;
  Func *f;
  Arena *arena;
  Ranges ranges;
} Gauge;

static const Room *room_for(DType t) {
  for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
    if (rooms[i].type == t) return &rooms[i];
  return NULL;
}

// ---------------------------------------------------------------- conditions
typedef struct Casts {
  const Gauge *g;
  const Room *room;
  bool any;
} Casts;

// Every rounding in the local region counts as one of weights.
static void see_cast(void *data, Op *op) {
  Casts *c = data;
  if (op->code != OP_CAST || !c->room) return;
  DType from = ir_type(c->g->f, op->args[0])->dtype;
  DType to = ir_type(c->g->f, op->res[0])->dtype;
  if (!dtype_is_float(from) || !dtype_is_float(to)) return;
  if (dtype_size(to) >= dtype_size(from)) return;
  const Room *r = room_for(to);
  if (!r || r->spread < c->room->spread) c->room = r;
}

// The logarithm of factor j when gauge i goes from `old` to `now`.
static double log_factor(const Gauge *g, const Op *pass, uint32_t i, uint32_t j,
                         double old, double now) {
  const Region *r = pass->regions[2];
  Probe p;
  probe_init(&p, g->f, g->arena, 7);
  probe_put(&p.force, r->params.at[i], old);
  probe_put(&p.force, r->params.at[pass->nres + i], now);
  return log(probe_value(&p, r->last->args[j]));
}

// The largest a for which something accumulated goes as exp(-a m) with gauge m,
// at least 1: squares of weights spread twice as far as scores in r do, and so
// do those of their sum. NaN or inf if there is none.
static double most_power(const Gauge *g, const Op *pass, uint32_t i, Range r) {
  enum { STEPS = 8 };
  double most = 1, step = (r.hi - r.lo) / STEPS;
  for (uint32_t j = 0; step > 0 && j < pass->nres; j++) {
    if (j == i) continue;
    for (int k = 0; k < STEPS; k++) {
      double at = r.lo + k * step;
      double a = fabs(log_factor(g, pass, i, j, at, at + step)) / step;
      most = most >= a ? most : a;  // a NaN stays
    }
  }
  return rint(most * 1024) / 1024;  // no more exact than the probe
}

// The reference for scores in r, or NaN if there is none.
static double reference(const Gauge *g, Op *pass, uint32_t i, Range r) {
  Casts c = {.g = g, .room = room_for(DT_F32)};
  ir_walk(pass->regions[1], see_cast, &c);
  if (!c.room || !isfinite(r.lo) || !isfinite(r.hi)) return NAN;
  double a = most_power(g, pass, i, r);
  if (!(a * (r.hi - r.lo) <= c.room->spread)) return NAN;
  return fmin(r.hi, r.lo + c.room->down / a);
}

static bool lists(const Op *op, AttrId id, uint32_t i) {
  const IrAttr *a = ir_attr(op, id);
  for (uint32_t j = 0; a && j < a->n; j++)
    if (a->list[j] == i) return true;
  return false;
}

// ---------------------------------------------------------------- editing
static Value constant_in(Gauge *g, Region *r, double v, Value like) {
  Builder b = {.fn = g->f, .region = r, .before = r->first, .span = NOWHERE};
  return ir_const_f(&b, ir_type(g->f, like)->dtype, v);
}

// ref of a finite constant is the constant.
static void drop_refs(Gauge *g, Region *r, Value v) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) drop_refs(g, op->regions[i], v);
    if (op->code != OP_REF || op->args[0] != v) continue;
    ir_replace_uses(g->f, op->res[0], v);
    ir_erase(op);
  }
}

static void drop_param(Gauge *g, Region *r, uint32_t i, double v) {
  Value p = r->params.at[i];
  Value c = constant_in(g, r, v, p);
  ir_replace_uses(g->f, p, c);
  drop_refs(g, r, c);
  for (uint32_t j = i; j + 1 < r->params.n; j++)
    r->params.at[j] = r->params.at[j + 1];
  r->params.n--;
}

static void drop_arg(Op *yield, uint32_t i) {
  for (uint32_t j = i; j + 1 < yield->nargs; j++)
    yield->args[j] = yield->args[j + 1];
  yield->nargs--;
}

static void drop_index(Gauge *g, Op *pass, AttrId id, uint32_t i) {
  const IrAttr *a = ir_attr(pass, id);
  if (!a) return;
  int64_t *list = NEWN(g->arena, int64_t, a->n);
  uint32_t n = 0;
  for (uint32_t j = 0; j < a->n; j++)
    if (a->list[j] != i) list[n++] = a->list[j] - (a->list[j] > i);
  if (n) ir_set_attr(g->f, pass, attr_list(id, list, n));
  else ir_del_attr(pass, id);
}

static void drop_kind(Gauge *g, Op *pass, uint32_t i) {
  const IrAttr *a = ir_attr(pass, AT_KINDS);
  int64_t *list = NEWN(g->arena, int64_t, a->n);
  uint32_t n = 0;
  for (uint32_t j = 0; j < a->n; j++)
    if (j != i) list[n++] = a->list[j];
  ir_set_attr(g->f, pass, attr_list(AT_KINDS, list, n));
}

static void drop_result(Gauge *g, Op *pass, uint32_t i, double v) {
  Value old = pass->res[i];
  if (ir_count_uses(g->f, old)) {
    Builder b = {.fn = g->f,
                 .region = pass->parent,
                 .before = pass->next,
                 .span = pass->span};
    IrAttr attr = attr_f(AT_VALUE, v);
    Type t = *ir_type(g->f, old);
    Value c = ir_op(&b, OP_CONST, NULL, 0, &attr, 1, &t, 1, 0)->res[0];
    ir_replace_uses(g->f, old, c);
  }
  for (uint32_t j = i; j + 1 < pass->nres; j++) pass->res[j] = pass->res[j + 1];
  pass->nres--;
}

// Factors in which nothing moves any more are 1.
static void fold_factors(Gauge *g, Op *pass) {
  Region *r = pass->regions[2];
  for (uint32_t i = 0; i < pass->nres; i++) {
    Value v = r->last->args[i];
    double x[2];
    for (uint64_t s = 0; s < 2; s++) {
      Probe p;
      probe_init(&p, g->f, g->arena, 40 + s);
      for (uint32_t j = 0; j < r->params.n; j++)
        probe_put(&p.force, r->params.at[j], (double)(j * 3 + s) - 7.5);
      x[s] = probe_value(&p, v);
    }
    if (x[0] != 1 || x[1] != 1) continue;
    r->last->args[i] = constant_in(g, r, 1, v);
  }
}

// Sums of a weight that a dot also uses rounded become sums of the rounded.
static void sum_rounded(Gauge *g, Op *pass) {
  Region *r = pass->regions[1];
  Op *yield = r->last;
  for (const Op *op = r->first; op; op = op->next) {
    if (op->code != OP_CAST) continue;
    DType from = ir_type(g->f, op->args[0])->dtype;
    DType to = ir_type(g->f, op->res[0])->dtype;
    if (!dtype_is_float(to) || dtype_size(to) >= dtype_size(from)) continue;
    for (uint32_t i = 0; i < yield->nargs; i++) {
      if (yield->args[i] != op->args[0]) continue;
      Builder b = {.fn = g->f, .region = r, .before = yield, .span = op->span};
      yield->args[i] = ir_cast(&b, from, op->res[0]);
    }
  }
}

static void fix(Gauge *g, Op *pass, uint32_t i, double v) {
  Region *local = pass->regions[1], *correct = pass->regions[2];
  const char *hint = ir_info(g->f, pass->res[i])->hint;
  ctx_remark(g->cx,
             "gauge: @%s: %s over %s is the constant %g: scores are "
             "bounded",
             g->f->name, hint ? hint : "maximum",
             g->f->axes.at[ir_attr_i(pass, AT_AXIS, 0)].name, v);
  uint32_t n = pass->nres;
  drop_param(g, local, i, v);
  drop_param(g, correct, n + i, v);
  drop_param(g, correct, i, v);
  drop_arg(local->last, i);
  drop_arg(correct->last, i);
  drop_result(g, pass, i, v);
  drop_kind(g, pass, i);
  drop_index(g, pass, AT_GAUGE, i);
  drop_index(g, pass, AT_SCANS, i);
  drop_index(g, pass, AT_GUARD, i);
  order_infer(g->f, local, g->arena);  // the constant has no axes
  order_infer(g->f, correct, g->arena);
  fold_factors(g, pass);
  sum_rounded(g, pass);
}

// ---------------------------------------------------------------- the pass
static void visit(void *data, Op *op) {
  Gauge *g = data;
  if (op->code != OP_KREDUCE) return;
  for (uint32_t i = op->nres; i-- > 0 && op->nres > 1;) {
    if (!lists(op, AT_GAUGE, i)) continue;
    if (ir_attr(op, AT_KINDS)->list[i] != RK_MAX) continue;
    Range r = range_of(&g->ranges, op->regions[1]->last->args[i]);
    double v = reference(g, op, i, r);
    if (!isnan(v)) fix(g, op, i, v);
  }
}

bool pass_static_max(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Gauge g = {.cx = cx, .f = m->funcs.at[i], .arena = &cx->scratch};
    range_init(&g.ranges, g.f, g.arena);
    ir_walk(g.f->body, visit, &g);
  }
  return true;
}
