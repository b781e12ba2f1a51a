// stabilize: textbook exponentials become safe.
//
//   %e = exp(%s)                             %m = reduce(%s) {kind = max, ..}
//   %l = reduce(%e) {kind = sum, ..}   ->    %e = exp(sub(%s, %m))
//   %p = divk(%e, %l)                        %l, %p as before
//   %y = log(%l)                             %y = add(log(%l), %m)
//
// A weight exp(s) with unbounded s overflows for large scores. If the result is
// homogeneous of degree 0 in the weights of a row (multiplying them by a
// constant changes nothing), any reference may be subtracted from the scores.
// Whether it is, is tested at random points (probe.h); and along which other
// axes of the scores the reference may vary, as weights are summed over some in
// front of their normalizer. Exponentials of row values (a sink) join if they
// must, and logarithms of sums get the reference back. A row that subtracts
// something reduced over its keys is left alone.
//
// Needs: inline. Tests: test/passes/stabilize/.
#include "ir/deps.h"
#include "passes/support/cost.h"
#include "passes/support/order.h"
#include "passes/pass.h"
#include "passes/support/probe.h"
#include "passes/support/range.h"

#include <math.h>

// exp overflows f32 at 88; sums of many keys a little earlier.
static const double safe_bound = COST_SAFE_EXPONENT;

typedef Vec(Op *) Ops;

typedef struct Stab {
  Ctx *cx;
  Func *f;
  Arena *arena;
  Ranges ranges;
  uint32_t axis;
  Ops keyed, rows;  // exp ops: per key of `axis`, of row values
  Ops logs;         // log ops of row values
  DomainAxes domains;
  uint64_t apart;  // axes along which a test's weights vary
} Stab;

static bool has_key_axis(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  for (uint32_t i = 0; i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == AX_KEY) return true;
  return false;
}

// Whether v depends on a reduction over a key axis.
static bool reduced(const Func *f, Value v, Map *seen) {
  uint64_t known;
  if (map_get(seen, v, &known)) return known != 0;
  map_put(seen, v, 0);
  const Op *op = ir_def(f, v);
  bool r = false;
  const IrAttr *over = op ? ir_attr(op, AT_OVER) : NULL;
  for (uint32_t i = 0; over && i < over->n; i++)
    r = r || f->axes.at[over->list[i]].role == AX_KEY;
  if (op && op->code == OP_SCAN) r = true;
  for (uint32_t i = 0; op && i < op->nargs && !r; i++)
    r = reduced(f, op->args[i], seen);
  map_put(seen, v, r);
  return r;
}

// ---------------------------------------------------------------- collection
static void collect(Stab *s) {
  Map seen = {.arena = s->arena};
  for (Op *op = s->f->body->first; op; op = op->next) {
    bool exp = op->code == OP_EXP, log = op->code == OP_LOG;
    if (!exp && !log) continue;
    Value x = op->args[0];
    bool key = has_key_axis(s->f, x);
    if (log && !key) vec_push(s->arena, &s->logs, op);
    if (!exp || reduced(s->f, x, &seen)) continue;
    if (!key) vec_push(s->arena, &s->rows, op);
    else if (type_has_axis(ir_type(s->f, x), s->axis) &&
             range_of(&s->ranges, x).hi > safe_bound)
      vec_push(s->arena, &s->keyed, op);
  }
}

// ---------------------------------------------------------------- the test
// Trial i: in b, the weights of the set are multiplied by exp(t).
static double trial(Stab *s, const Ops *set, Probe *a, Probe *b, uint64_t i) {
  double t = probe_pair(a, b, s->f, s->arena, i);
  a->wide = b->wide = b->only = s->apart;
  for (uint32_t j = 0; j < set->n; j++)
    probe_put(&b->scale, set->at[j]->res[0], exp(t));
  return t;
}

// The logs that grow by t then.
static void find_logs(Stab *s, const Ops *set, Ops *out) {
  for (uint32_t i = 0; i < s->logs.n; i++) {
    bool grows = true;
    for (uint64_t k = 0; k < 4; k++) {
      Probe a, b;
      double t = trial(s, set, &a, &b, k);
      Value v = s->logs.at[i]->res[0];
      double d = probe_value(&b, v) - probe_value(&a, v) - t;
      grows = grows && fabs(d) < 1e-9;
    }
    if (grows) vec_push(s->arena, out, s->logs.at[i]);
  }
}

static bool invariant(Stab *s, const Ops *set, const Ops *logs) {
  ProbeSeen seen = {0};
  Value *changed = NEWN(s->arena, Value, set->n);
  for (uint32_t i = 0; i < set->n; i++) changed[i] = set->at[i]->res[0];
  for (uint64_t k = 0; k < PROBE_TRIALS; k++) {
    Probe a, b;
    double t = trial(s, set, &a, &b, k);
    for (uint32_t j = 0; j < logs->n; j++)
      probe_put(&b.shift, logs->at[j]->res[0], -t);
    if (!probe_same(&a, &b, s->f->body)) return false;
    probe_note(&seen, &a, &b);
  }
  return probe_shown(&seen, changed, set->n);
}

// Axes of v, but keys', that something is summed over.
static uint64_t summed_axes(const Stab *s, Value v) {
  const Type *t = ir_type(s->f, v);
  uint64_t all = 0, own = 0;
  for (uint32_t i = 0; i < t->n; i++)
    if (s->f->axes.at[t->axis[i]].role != AX_KEY && t->axis[i] < 64)
      own |= UINT64_C(1) << t->axis[i];
  for (const Op *op = s->f->body->first; op; op = op->next) {
    const IrAttr *over = ir_attr(op, AT_OVER);
    for (uint32_t i = 0; over && i < over->n; i++)
      if (over->list[i] < 64) all |= UINT64_C(1) << over->list[i];
  }
  return own & all;
}

// Along which of these axes all scores need one reference.
static uint64_t common_axes(Stab *s, const Ops *set, const Ops *logs) {
  uint64_t all = summed_axes(s, set->at[0]->args[0]), common = 0;
  for (uint32_t i = 0; i < 64; i++) {
    s->apart = all & UINT64_C(1) << i;
    if (s->apart && !invariant(s, set, logs)) common |= s->apart;
  }
  s->apart = all & ~common;
  if (s->apart & (s->apart - 1) && !invariant(s, set, logs)) common = all;
  s->apart = 0;
  return common;
}

// ---------------------------------------------------------------- rewriting
static Value largest(Stab *s, Builder *b, Value x, uint64_t axes) {
  const Type *t = ir_type(s->f, x);
  uint32_t over[MAX_AXES], n = 0;
  for (uint32_t i = 0; i < t->n; i++)
    if (t->axis[i] < 64 && axes >> t->axis[i] & 1) over[n++] = t->axis[i];
  return n ? ir_reduce(b, RK_MAX, x, over, n) : x;
}

static uint32_t key_axes(const Func *f, Value v, uint32_t *out) {
  const Type *t = ir_type(f, v);
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == AX_KEY) out[n++] = t->axis[i];
  return n;
}

// The reference: the largest exponent of the row, and along the axes `common`.
// That of a part of its keys would be no common factor.
static Value reference(Stab *s, Builder *b, const Ops *set, uint64_t common) {
  Value m = 0;
  for (uint32_t i = 0; i < set->n; i++) {
    Value x = set->at[i]->args[0];
    x = largest(s, b, x, common);
    uint32_t over[MAX_AXES], n = key_axes(s->f, x, over);
    for (uint32_t k = 0; k < n && over[k] < 64; k++)
      x = ir_cover(b, x, s->domains.of[over[k]]);
    if (n) x = ir_reduce(b, RK_MAX, x, over, n);
    m = m ? ir_2(b, OP_MAX, m, x) : x;
  }
  return m;
}

// New ops go to the end; the region is sorted afterwards.
static void rewrite(Stab *s, const Ops *set, const Ops *logs) {
  Builder b = {.fn = s->f, .region = s->f->body, .span = set->at[0]->span};
  uint64_t common = common_axes(s, set, logs);
  Value m = reference(s, &b, set, common);
  for (uint32_t i = 0; i < set->n; i++) {
    Value x = ir_2(&b, OP_SUB, set->at[i]->args[0], m);
    ir_replace_uses(s->f, set->at[i]->res[0], ir_1(&b, OP_EXP, x));
    ir_erase(set->at[i]);
  }
  for (uint32_t i = 0; i < logs->n; i++) {
    Value y = logs->at[i]->res[0], sum = ir_2(&b, OP_ADD, y, m);
    ir_replace_uses(s->f, y, sum);
    ir_def(s->f, sum)->args[0] = y;
  }
  order_region(s->f, s->f->body, s->arena);
  order_infer(s->f, s->f->body, s->arena);
  ctx_remark(s->cx,
             "stab: @%s: exponentials over %s get their maximum as "
             "reference",
             s->f->name, s->f->axes.at[s->axis].name);
}

static void append(Stab *s, Ops *to, const Ops *from) {
  for (uint32_t i = 0; i < from->n; i++) vec_push(s->arena, to, from->at[i]);
}

// Subtracts a reference from the exponents of the set if that changes nothing.
static bool try_set(Stab *s, const Ops *set) {
  Ops logs = {0};
  for (uint32_t i = 0; i < set->n; i++) {
    const Type *t = ir_type(s->f, set->at[i]->res[0]);
    const Type *first = ir_type(s->f, set->at[0]->res[0]);
    Type u = type_union(t, first, t->dtype);
    if (u.n != first->n) return false;  // other axes: no common reference
  }
  if (!invariant(s, set, &logs)) {
    find_logs(s, set, &logs);
    if (!logs.n || !invariant(s, set, &logs)) return false;
  }
  rewrite(s, set, &logs);
  return true;
}

// An exponential by itself, then all at once, each time with the row values in
// `rows`. True if a set found a reference: the ops are others then.
static bool try_all(Stab *s, const Ops *rows) {
  Ops all = {0};
  for (uint32_t i = 0; i < s->keyed.n; i++) {
    Ops set = {0};
    vec_push(s->arena, &set, s->keyed.at[i]);
    append(s, &set, rows);
    if (try_set(s, &set)) return true;
  }
  append(s, &all, &s->keyed);
  append(s, &all, rows);
  return s->keyed.n > 1 && try_set(s, &all);
}

// A positive constant that is added to a row value, as in 1 + sum(exp(s)), is
// the exponential of its logarithm.
static void constants_as_exps(Stab *s, Ops *rows, Ops *adds) {
  Map seen = {.arena = s->arena};
  for (Op *op = s->f->body->first; op; op = op->next) {
    double c;
    if (op->code != OP_ADD || has_key_axis(s->f, op->res[0])) continue;
    if (!ir_const_value(s->f, op->args[1], &c)) continue;
    DType t = ir_type(s->f, op->args[1])->dtype;
    if (!(c > 0) || !dtype_is_float(t)) continue;
    if (!reduced(s->f, op->args[0], &seen)) continue;
    Builder b = {.fn = s->f,
                 .region = s->f->body,
                 .before = op,
                 .span = op->span};
    Value e = ir_1(&b, OP_EXP, ir_const_f(&b, t, log(c)));
    vec_push(s->arena, rows, ir_def(s->f, e));
    vec_push(s->arena, adds, op);
    IrAttr was = attr_f(AT_VALUE, c);
    Type type = type_scalar(t);
    Op *old = ir_op(&b, OP_CONST, NULL, 0, &was, 1, &type, 1, 0);
    vec_push(s->arena, adds, old);
    op->args[1] = e;
  }
}

// One rewrite; false if there is none.
static bool run_once(Stab *s) {
  Ops none = {0}, adds = {0};
  s->keyed.n = s->rows.n = s->logs.n = 0;
  collect(s);
  if (!s->keyed.n) return false;
  Ops rows = s->rows;
  if (try_all(s, &none) || (rows.n && try_all(s, &rows))) return true;
  constants_as_exps(s, &rows, &adds);
  if (adds.n && try_all(s, &rows)) return true;
  for (uint32_t i = 0; i < adds.n; i += 2)  // they were of no use
    adds.at[i]->args[1] = adds.at[i + 1]->res[0];
  return false;
}

static void note_domains(Stab *s) {
  for (const Op *op = s->f->body->first; op; op = op->next)
    if (op->code == OP_DOMAIN)
      ir_note_domain(s->f, &s->domains, (uint32_t)ir_attr_i(op, AT_AXIS, 0),
                     op->args[0]);
}

static void run_axis(Stab *s) {
  while (run_once(s)) continue;
  for (uint32_t i = 0; i < s->keyed.n; i++)
    ctx_remark(s->cx,
               "stab: @%s: an exponential over %s has no reference and "
               "may overflow",
               s->f->name, s->f->axes.at[s->axis].name);
}

bool pass_stabilize(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (f->kind != FK_PROGRAM) continue;
    for (uint32_t a = 0; a < f->axes.n; a++) {
      if (f->axes.at[a].role != AX_KEY) continue;
      Stab s = {.cx = cx, .f = f, .arena = &cx->scratch, .axis = a};
      range_init(&s.ranges, f, s.arena);
      note_domains(&s);
      run_axis(&s);
    }
  }
  return true;
}
