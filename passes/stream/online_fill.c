// online, part 3: proofs. Gauges: does the result depend on the value of a
// maximum (by probing)? Fill: which value of the scores makes the terms of a
// masked key the identities of their kinds (by abstract values)?
#include "ir/eval.h"
#include "passes/support/absval.h"
#include "passes/stream/online.h"

#include <math.h>

// ---------------------------------------------------------------- gauges
static bool is_gauge(Online *o, const Red *r) {
  ProbeSeen seen = {0};
  for (uint32_t i = 0; i < PROBE_TRIALS; i++) {
    Probe a, b;
    double by = probe_pair(&a, &b, o->f, o->arena, i);
    probe_put(&b.shift, r->res, by);
    if (!probe_same(&a, &b, o->region)) return false;
    probe_note(&seen, &a, &b);
  }
  return probe_shown(&seen, &r->res, 1);
}

void online_gauges(Online *o) {
  for (uint32_t i = 0; i < o->reds.n; i++) {
    Red *r = o->reds.at[i];
    bool extreme = r->kind == RK_MAX || r->kind == RK_MIN;
    if (r->scan || !extreme || r->plus) continue;
    if (!sym_is_const(&o->sym, r->terms.at[0].late, 1)) continue;
    r->group->accs.at[r->terms.at[0].acc].gauge = is_gauge(o, r);
  }
}

// ---------------------------------------------------------------- candidates
typedef struct Pool {
  Online *o;
  Group *g;
  Map seen;
  Vec(Value) all;  // outermost first
} Pool;

static bool is_score(const Pool *p, Value v) {
  const Func *f = p->o->f;
  const Type *t = ir_type(f, v);
  if (!dtype_is_float(t->dtype) || t->dtype == DT_F8E4M3) return false;
  for (uint32_t i = 0; i < t->n; i++)
    if (f->axes.at[t->axis[i]].role == AX_VEC) return false;
  return type_has_axis(t, p->g->axis) && ir_def(f, v) &&
         ir_def(f, v)->code != OP_CONST && !online_red(p->o, v);
}

static void pool_add(Pool *p, Value v) {
  uint64_t known;
  if (!is_score(p, v) || map_get(&p->seen, v, &known)) return;
  map_put(&p->seen, v, 1);
  vec_push(p->o->arena, &p->all, v);
}

static void pool_leaves(Pool *p, Ex e) {
  const ExNode *n = sym_at(&p->o->sym, e);
  if (n->kind == EX_LEAF) pool_add(p, n->leaf);
  for (uint32_t i = 0; i < n->n; i++) pool_leaves(p, n->kid[i]);
}

static void pool_fill(Pool *p) {
  for (uint32_t i = 0; i < p->g->accs.n; i++) {
    if (p->g->accs.at[i].of) continue;
    pool_leaves(p, p->g->accs.at[i].local);
    if (p->g->accs.at[i].other) pool_leaves(p, p->g->accs.at[i].other);
  }
  for (uint32_t i = 0; i < p->all.n; i++) {
    const Op *op = ir_def(p->o->f, p->all.at[i]);
    if (!(op_info(op->code)->flags & OPF_ELEM)) continue;
    for (uint32_t j = 0; j < op->nargs; j++) pool_add(p, op->args[j]);
  }
}

// ---------------------------------------------------------------- the test
static Abs of_leaf(AbsMap *m, const ExNode *n) {
  Abs a = absval_value(m, n->leaf);
  if (n->code == LEAF_LIVE) a.ninf = a.pinf = false;  // behind a reference
  return a;
}

// The value of a term, with scores replaced in m.
static Abs of_ex(const Sym *s, AbsMap *m, Ex e) {
  const ExNode *n = sym_at(s, e);
  if (n->kind == EX_CONST) return absval_exactly(n->c);
  if (n->kind == EX_LEAF) return of_leaf(m, n);
  Abs r = of_ex(s, m, n->kid[0]), a[ELEM_ARGS] = {r};
  if (n->kind == EX_CAST) return r;
  if (n->kind == EX_EXP) return absval_op(OP_EXP, a, 1);
  if (n->kind == EX_POW) {
    a[1] = absval_exactly(n->c);
    if (n->c == -1) return absval_op(OP_DIV, (Abs[]){absval_exactly(1), r}, 2);
    return absval_op(n->c == 0.5 ? OP_SQRT : OP_POW, a, n->c == 0.5 ? 1 : 2);
  }
  OpCode fold = n->kind == EX_MUL ? OP_MUL : OP_ADD;
  for (uint32_t i = 1; i < n->n; i++) {
    Abs x = of_ex(s, m, n->kid[i]);
    if (n->kind == EX_OP) a[i] = x;
    else r = absval_op(fold, (Abs[]){r, x}, 2);
  }
  return n->kind == EX_OP ? absval_op((OpCode)n->code, a, n->n) : r;
}

// Accumulators (as bits) whose terms are identities when each of the n scores
// is `fill`, whatever the other values are.
static uint64_t covered(Online *o, const Group *g, const Value *score,
                        uint32_t n, double fill) {
  uint64_t ok = 0;
  AbsMap m = {.f = o->f,
              .arena = o->arena,
              .ranges = &o->ranges,
              .axis = g->axis,
              .index.arena = o->arena};
  for (uint32_t i = 0; i < n; i++)
    absval_put(&m, score[i], absval_exactly(fill));
  for (uint32_t i = 0; i < g->accs.n && i < 64; i++) {
    const Acc *a = &g->accs.at[i];
    if (a->of) continue;  // a hidden key may have the fill that all have
    Abs x = of_ex(&o->sym, &m, a->local);
    if (absval_is(x, eval_identity(a->kind, DT_F64))) ok |= 1ull << i;
  }
  return ok;
}

static uint32_t bits(uint64_t x) {
  uint32_t n = 0;
  for (; x; x &= x - 1) n++;
  return n;
}

// ---------------------------------------------------------------- choice
typedef struct Choice {
  FillKind kind;
  Vec(Value) scores;
  uint64_t covers;
} Choice;

// Takes the candidate that covers most of what is left, until none helps.
static Choice greedy(Online *o, Group *g, const Pool *p, FillKind kind) {
  double fill = kind == FILL_NEGINF ? -INFINITY : 0;
  Choice c = {.kind = kind};
  for (;;) {
    uint64_t best = 0;
    Value pick = 0;
    for (uint32_t i = 0; i < p->all.n && i < 64; i++) {
      uint64_t m = covered(o, g, &p->all.at[i], 1, fill) & ~c.covers;
      if (bits(m) <= bits(best)) continue;
      best = m;
      pick = p->all.at[i];
    }
    if (!pick) break;
    vec_push(o->arena, &c.scores, pick);
    c.covers |= best;
  }
  // Together they may disturb each other.
  c.covers &= covered(o, g, c.scores.at, c.scores.n, fill);
  return c;
}

static uint32_t cost(const Group *g, const Choice *c) {
  return c->scores.n + g->accs.n - bits(c->covers);
}

void online_fill(Online *o, Group *g) {
  Pool p = {.o = o, .g = g, .seen.arena = o->arena};
  pool_fill(&p);
  Choice a = greedy(o, g, &p, FILL_NEGINF), b = greedy(o, g, &p, FILL_ZERO);
  Choice c = a.covers && cost(g, &a) <= cost(g, &b) ? a : b;
  if (!c.covers || (g->accs.n > 1 && cost(g, &c) >= g->accs.n)) {
    c = (Choice){.kind = FILL_SELECT};
  }
  g->fill = c.kind;
  for (uint32_t i = 0; i < c.scores.n; i++)
    vec_push(o->arena, &g->scores, c.scores.at[i]);
  for (uint32_t i = 0; i < g->accs.n; i++)
    g->accs.at[i].guarded =
        c.kind != FILL_SELECT && !(i < 64 && (c.covers >> i & 1));
}
