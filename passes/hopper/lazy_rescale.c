// lazy_rescale: rows look for a new maximum only where a score exceeds what the
// old one allows.
//
//   %t = freduce(%s) {kind = max}        %l = add(%m, splat(8 / c))
//   %x = max(%m, %t)                     %any = exceeds(%s, %l)
//   %d = mul(sub(%m, %x), splat(c))      %n, %y = if(%any) ({
//   %k = le(splat(-8), %d)          ->     as before; yield(%n, %y)
//   %n = select(%k, %m, %x)              }, {
//   %y = exp2(.. %k, %n ..)                yield(%m, %y as it is for %k = true)
//   %p = fma(%s, .., bcast(%y))          })
//                                        %p = fma(%s, .., bcast(%y))
//
// The limit is lowered by what pass reassoc_bias took out of the row's scores.
// Where %s is %z * a + columns and functions are what is waited for, %z is
// asked: the limit less the largest of the columns, over a. A reference that is
// replaced only if it lags behind the maximum by more than a constant
// (passes/stream/online.c) mostly stays. Whether it may is asked of all scores
// of a warp at once: no exchange between threads, and half the instructions of
// a maximum. All that a row derives of the maximum goes into the branch. A row
// with several exponentials asks for the lag of each; the least counts.
// Level frag; sm_90a. Needs: fast_math; runs before warp_specialize. Run dce
// afterwards. Tests: test/passes/lazy_rescale/.
#include "ir/target.h"
#include "passes/support/balance.h"
#include "passes/support/cost.h"
#include "passes/pass.h"

#include <math.h>

enum { MAX_OUT = 16 };

typedef enum Known { UNKNOWN, FALSE_, TRUE_ } Known;

typedef struct Guard {
  Func *f;
  const GpuFacts *gpu;
  Arena *arena;
  Region *body;
  Op *reduce, *max, *keep;
  Op *raised;   // add(reduce, row), or NULL
  Value row;    // what pass reassoc_bias took out of the row's scores, or 0
  Value asked;  // what is compared with the limit: the scores, or
  Value times, columns;  // asked * times + columns are; or 0
  Value old;             // the reference of the steps before
  Value factor;          // that differences are multiplied by, or 0
  double lag;
  double least;    // of what other factors allow old to lag behind
  bool *in;        // by value: made of the maximum
  Vec(Op *) ops;   // those that are
  Vec(Value) out;  // of their results: what others use
} Guard;

// ---------------------------------------------------------------- pattern
static Op *own(const Guard *g, Value v, OpCode code) {
  Op *op = ir_def(g->f, v);
  return op && op->code == code && op->parent == g->body ? op : NULL;
}

static bool constant(const Func *f, Value v, double *k) {
  const Op *op = ir_def(f, v);
  if (op && op->code == OP_SPLAT) v = op->args[0];
  return ir_const_value(f, v, k);
}

// v = freduce, or freduce + row.
static Op *reduction(Guard *g, Value v) {
  Op *add = own(g, v, OP_ADD);
  for (uint32_t i = 0; add && i < 2; i++) {
    Op *r = own(g, add->args[i], OP_FREDUCE);
    if (!r || ir_count_uses(g->f, r->res[0]) > 1) continue;
    g->raised = add;
    g->row = add->args[1 - i];
    return r;
  }
  return own(g, v, OP_FREDUCE);
}

// d = (old - max) * factor, with max = max(old, reduction).
static bool is_lag(Guard *g, Value d) {
  Op *mul = own(g, d, OP_MUL);
  double k;
  for (uint32_t i = 0; mul && i < 2; i++) {
    const Op *c = ir_def(g->f, mul->args[i]);
    if (!c || (c->code != OP_SPLAT && !constant(g->f, mul->args[i], &k)))
      continue;
    g->factor = mul->args[i];
    d = mul->args[1 - i];
  }
  Op *sub = own(g, d, OP_SUB);
  if (!sub || (mul && !g->factor)) return false;
  g->old = sub->args[0];
  g->max = own(g, sub->args[1], OP_MAX);
  for (uint32_t i = 0; g->max && i < 2; i++)
    if (g->max->args[i] == g->old)
      g->reduce = reduction(g, g->max->args[1 - i]);
  return g->reduce != NULL;
}

// Where one limit masks, steps that do are one or two of a task. Conditions of
// two sides, or of tables, mask many, and so do rows.
static bool masks_few(const Guard *g) {
  const Op *op = ir_def(g->f, g->reduce->args[0]);
  if (!op || op->code != OP_SELECT) return false;
  const Op *mask = ir_def(g->f, op->args[0]);
  return !mask || (mask->code != OP_AND && mask->code != OP_BCAST);
}

static bool is_row_maximum(const Guard *g) {
  const Type *x = ir_type(g->f, g->reduce->args[0]);
  const Type *t = ir_type(g->f, g->reduce->res[0]);
  return ir_attr_i(g->reduce, AT_KIND, 0) == RK_MAX && x->dtype == DT_F32 &&
         x->layout == LY_ACC && t->slice == SLICE_ROW && !t->partial;
}

static bool before(const Op *a, const Op *b) {
  for (; a; a = a->next)
    if (a == b) return true;
  return false;
}

// Known before the maximum is, and no constant.
static bool is_early(const Guard *g, Value v) {
  const Op *op = ir_def(g->f, v);
  double k;
  if (ir_const_value(g->f, v, &k)) return false;
  return !op || op->parent != g->body || before(op, g->reduce);
}

// ---------------------------------------------------------------- cost
static bool tasks_are_equal(const Guard *g) {
  for (const Region *r = g->body; r; r = r->parent ? r->parent->parent : NULL)
    if (r->parent && r->parent->code == OP_FOR && !r->parent->nres) return true;
  return false;
}

// Three groups fill each other's gaps, so that fewer instructions count; of two
// the exponentials begin later. Measured on an H200
// (docs/lab/2026-11-cycles.md).
static bool pays(const Guard *g) {
  const Op *launch = g->f->body->first;
  int64_t threads = ir_attr_i(launch, AT_THREADS, 0);
  return threads >= COST_FILLED_GAPS * HW_GROUP_THREADS || tasks_are_equal(g);
}

// The scalar of a splat from outside of the loop, or a constant's number in *k.
static bool scalar_of(const Guard *g, Value v) {
  const Op *op = ir_def(g->f, v);
  double k;
  return constant(g->f, v, &k) ||
         (op->code == OP_SPLAT &&
          ir_defined_outside(g->f, op->args[0], g->body));
}

static bool match(Guard *g, Op *le) {
  g->keep = le;
  g->factor = g->row = 0;
  g->reduce = g->max = g->raised = NULL;
  return le->code == OP_LE && constant(g->f, le->args[0], &g->lag) &&
         g->lag < 0 && is_lag(g, le->args[1]) && is_row_maximum(g) &&
         !masks_few(g) && is_early(g, g->old) &&
         ir_count_uses(g->f, g->reduce->res[0]) == 1 &&
         (!g->raised || ir_count_uses(g->f, g->raised->res[0]) == 1) &&
         (!g->factor || scalar_of(g, g->factor));
}

// ---------------------------------------------------------------- slice
static bool is_small(const Guard *g, const Op *op) {
  if (op->nres != 1 || op->nregions) return false;
  const Type *t = ir_type(g->f, op->res[0]);
  if (op->code == OP_VOTE) return ir_attr_i(op, AT_WARP, 0);
  return op_info(op->code)->flags & OPF_PURE && t->kind == TK_FRAG &&
         t->slice != SLICE_NONE;
}

// Stands in front of the maximum, or may go there.
static bool hoist(Guard *g, Value v) {
  Op *op = ir_def(g->f, v);
  if (!op || op->parent != g->body || before(op, g->reduce)) return true;
  if (g->in[v] || !is_small(g, op) || op->code == OP_VOTE) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!hoist(g, op->args[i])) return false;
  ir_move_before(op, g->reduce);
  return true;
}

static bool belongs(Guard *g, const Op *op) {
  bool made = op == g->reduce;
  for (uint32_t i = 0; i < op->nargs; i++) made |= g->in[op->args[i]];
  if (!made || !is_small(g, op)) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!g->in[op->args[i]] && !hoist(g, op->args[i])) return false;
  return true;
}

static void collect(Guard *g) {
  if (g->row && !hoist(g, g->row)) return;
  for (Op *op = g->reduce; op; op = op->next)
    if (belongs(g, op)) {
      g->in[op->res[0]] = true;
      vec_push(g->arena, &g->ops, op);
    }
  for (uint32_t i = 0; i < g->ops.n; i++) {
    Value v = g->ops.at[i]->res[0];
    uint32_t inside = 0;
    for (uint32_t k = 0; k < g->ops.n; k++)
      for (uint32_t a = 0; a < g->ops.at[k]->nargs; a++)
        inside += g->ops.at[k]->args[a] == v;
    if (ir_count_uses(g->f, v) > inside) vec_push(g->arena, &g->out, v);
  }
}

// ---------------------------------------------------------------- other lags
// v = old * k[0] + max * k[1].
static bool is_difference(const Guard *g, Value v, double k[2]) {
  const Op *op = ir_def(g->f, v);
  double c, x[2], y[2];
  k[0] = v == g->old;
  k[1] = op == g->max;
  if (k[0] || k[1]) return true;
  if (op && op->code == OP_REF) return is_difference(g, op->args[0], k);
  if (op && op->code == OP_SUB && is_difference(g, op->args[0], x) &&
      is_difference(g, op->args[1], y)) {
    for (uint32_t i = 0; i < 2; i++) k[i] = x[i] - y[i];
    return true;
  }
  for (uint32_t i = 0; op && op->code == OP_MUL && i < 2; i++) {
    if (!constant(g->f, op->args[i], &c) ||
        !is_difference(g, op->args[1 - i], x))
      continue;
    for (uint32_t j = 0; j < 2; j++) k[j] = c * x[j];
    return true;
  }
  return false;
}

// How far old may lag behind for op, le(lag, (old - max) * k), in *most.
static bool allows(const Guard *g, const Op *op, double *most) {
  double lag, k[2];
  bool ok = op->code == OP_LE && constant(g->f, op->args[0], &lag) && lag < 0 &&
            is_difference(g, op->args[1], k) && k[0] > 0 &&
            fabs(k[0] + k[1]) <= 1e-6 * k[0];
  if (ok) *most = -lag / k[0];
  return ok;
}

// All that compares the maximum asks for a lag.
static bool compares_lags(Guard *g) {
  g->least = INFINITY;
  for (uint32_t i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    bool compares = op->code == OP_LE || op->code == OP_LT ||
                    op->code == OP_EQ || op->code == OP_NE;
    double most;
    if (!compares || op == g->keep) continue;
    if (!allows(g, op, &most)) return false;
    g->least = fmin(g->least, most);
  }
  return true;
}

// ---------------------------------------------------------------- branches
static Value truth(Builder *b, const Type *t, bool value) {
  IrAttr at = attr_i(AT_IVALUE, value);
  return ir_op(b, OP_CONST, NULL, 0, &at, 1, t, 1, 0)->res[0];
}

// What decides an op of logic alone: false an `and`, true an `or`.
static Known deciding(const Op *op) {
  return op->code == OP_AND ? FALSE_ : op->code == OP_OR ? TRUE_ : UNKNOWN;
}

static Known known_of(const Op *op, const Known *known) {
  Known k = op->nargs ? known[op->args[0]] : UNKNOWN, decides = deciding(op);
  if (op->code == OP_LE) return TRUE_;  // a lag
  if (op->code == OP_NOT && k) return k == TRUE_ ? FALSE_ : TRUE_;
  if (op->code == OP_VOTE) return k;
  if (!decides) return UNKNOWN;
  Known other = known[op->args[1]];
  return k == decides || other == decides ? decides : k && other ? k : UNKNOWN;
}

// What op is where the reference stays, if that is one of its operands.
static Value stays(const Guard *g, const Op *op, const Known *known,
                   const ValueMap *map) {
  double one;
  if (op == g->max) return g->old;
  if (op->code == OP_SELECT && known[op->args[0]])
    return vmap_get(map, op->args[known[op->args[0]] == TRUE_ ? 1 : 2]);
  for (uint32_t i = 0; op->code == OP_MUL && i < 2; i++)
    if (constant(g->f, vmap_get(map, op->args[i]), &one) && one == 1)
      return vmap_get(map, op->args[1 - i]);
  for (uint32_t i = 0; deciding(op) && i < 2; i++)
    if (known[op->args[i]]) return vmap_get(map, op->args[1 - i]);
  return 0;
}

// asked * times + columns, other than in the fma behind the branch: LLVM would
// have both in front of the question.
static Value rounded_twice(const Guard *g, Builder *b) {
  const Op *fma = ir_def(g->f, g->reduce->args[0]);
  Value p = ir_2(b, OP_MUL, fma->args[0], fma->args[1]);
  return ir_2(b, OP_ADD, p, fma->args[2]);
}

// What is known is not computed there: a constant for who asks all the same.
static void known_operands(const Guard *g, Builder *b, const Op *op,
                           const Known *known, ValueMap *map) {
  for (uint32_t i = 0; i < op->nargs; i++) {
    Value v = op->args[i];
    if (known[v] && vmap_get(map, v) == v)
      vmap_put(map, v, truth(b, ir_type(g->f, v), known[v] == TRUE_));
  }
}

static void branch(const Guard *g, Region *r, bool stay) {
  Builder b = {.fn = g->f, .region = r, .span = g->reduce->span};
  ValueMap map = {.arena = g->arena};
  Known *known = NEWN(g->arena, Known, g->f->values.n);
  if (g->times && !stay)
    vmap_put(&map, g->reduce->args[0], rounded_twice(g, &b));
  for (uint32_t i = 0; i < g->ops.n; i++) {
    const Op *op = g->ops.at[i];
    Value same = 0;
    if (stay) {
      known[op->res[0]] = known_of(op, known);
      same = stays(g, op, known, &map);
      if (op == g->reduce || op == g->raised || known[op->res[0]]) continue;
    }
    if (!same) known_operands(g, &b, op, known, &map);
    if (same) vmap_put(&map, op->res[0], same);
    else ir_clone(&b, g->f, op, &map, NULL);
  }
  Value *out = NEWN(g->arena, Value, g->out.n);
  for (uint32_t i = 0; i < g->out.n; i++) {
    Value v = g->out.at[i];
    out[i] = stay && known[v] ? truth(&b, ir_type(g->f, v), known[v] == TRUE_)
                              : vmap_get(&map, v);
  }
  ir_yield(&b, out, g->out.n);
}

// Then what stands in front of functions counts, not the number of
// instructions.
static bool waits_for_functions(const Guard *g) {
  Balance b = balance_of(g->f, g->body);
  return !balance_products(&b, g->gpu, COST_PRODUCTS_TWICE);
}

// Scores s * a + c, with a > 0 and a c of columns from outside of the loop, are
// below a limit where s is below (limit - max c) / a: that waits for nothing.
static void find_columns(Guard *g) {
  g->asked = g->reduce->args[0];
  if (!waits_for_functions(g)) return;
  const Op *fma = own(g, g->asked, OP_FMA);
  const Op *c = fma ? ir_def(g->f, fma->args[2]) : NULL;
  if (!c || c->code != OP_BCAST ||
      ir_type(g->f, c->args[0])->slice != SLICE_COL ||
      !ir_defined_outside(g->f, c->args[0], g->body))
    return;
  for (uint32_t i = 0; i < 2; i++) {
    const Op *a = ir_def(g->f, fma->args[i]);
    if (!a || a->code != OP_SPLAT ||
        !ir_defined_outside(g->f, a->args[0], g->body))
      continue;
    g->times = a->args[0];
    g->columns = c->args[0];
    g->asked = fma->args[1 - i];
    return;
  }
}

// 1 / a, or NaN where a is not positive: then each step looks for a maximum.
static Value reciprocal(const Guard *g, Builder *b) {
  Value per = ir_2(b, OP_DIV, ir_const_f(b, DT_F32, 1), g->times);
  Value ok = ir_2(b, OP_LT, ir_const_f(b, DT_F32, 0), g->times);
  return ir_3(b, OP_SELECT, ok, per, ir_const_f(b, DT_F32, NAN));
}

static Builder outside_of(const Guard *g) {
  return (Builder){.fn = g->f,
                   .region = g->body->parent->parent,
                   .before = g->body->parent,
                   .span = g->reduce->span};
}

static Value spread(const Guard *g, Builder *b, Value v) {
  return ir_op(b, OP_SPLAT, &v, 1, NULL, 0, ir_type(g->f, g->old), 1, 0)
      ->res[0];
}

static Value largest_column(const Guard *g, Builder *b) {
  IrAttr at[] = {attr_i(AT_KIND, RK_MAX), attr_i(AT_POS, 1)};
  Type t = type_scalar(DT_F32);
  return ir_op(b, OP_FREDUCE, &g->columns, 1, at, 2, &t, 1, 0)->res[0];
}

// old + lag / factor - row, beyond which old must be replaced.
static Value limit(const Guard *g, Builder *b) {
  Builder outside = outside_of(g);
  double k = 1;
  bool known = !g->factor || constant(g->f, g->factor, &k);
  double lag = -g->lag / k;
  if (known && k > 0) lag = fmin(lag, g->least);
  Value by = ir_const_f(&outside, DT_F32, lag);
  if (!known) {
    by = ir_2(&outside, OP_DIV, by, ir_def(g->f, g->factor)->args[0]);
    if (g->least < INFINITY)
      by = ir_2(&outside, OP_MIN, by, ir_const_f(&outside, DT_F32, g->least));
  }
  if (g->times) by = ir_2(&outside, OP_SUB, by, largest_column(g, &outside));
  Value step = spread(g, b, by);
  Value from = g->row ? ir_2(b, OP_SUB, g->old, g->row) : g->old;
  Value most = ir_2(b, OP_ADD, from, step);
  if (!g->times) return most;
  return ir_2(b, OP_MUL, most, spread(g, b, reciprocal(g, &outside)));
}

static void rewrite(Guard *g) {
  Builder b = {.fn = g->f,
               .region = g->body,
               .before = g->reduce,
               .span = g->reduce->span};
  Value args[] = {g->asked, limit(g, &b)};
  Type bit = type_scalar(DT_BOOL), *types = NEWN(g->arena, Type, g->out.n);
  Value any = ir_op(&b, OP_EXCEEDS, args, 2, NULL, 0, &bit, 1, 0)->res[0];
  for (uint32_t i = 0; i < g->out.n; i++)
    types[i] = *ir_type(g->f, g->out.at[i]);
  Op *cond = ir_op(&b, OP_IF, &any, 1, NULL, 0, types, g->out.n, 2);
  branch(g, cond->regions[0], false);
  branch(g, cond->regions[1], true);
  for (uint32_t i = 0; i < g->out.n; i++)
    ir_replace_uses(g->f, g->out.at[i], cond->res[i]);
  if (g->times) ir_move_before(ir_def(g->f, g->reduce->args[0]), cond->next);
  for (uint32_t i = g->ops.n; i-- > 0;) ir_erase(g->ops.at[i]);
}

static void body(Ctx *cx, Func *f, const GpuFacts *gpu, Region *r) {
  for (Op *op = r->first; op; op = op->next) {
    Guard g = {.f = f, .gpu = gpu, .arena = f->mod->arena, .body = r};
    if (!match(&g, op) || !pays(&g)) continue;
    g.in = NEWN(&cx->scratch, bool, f->values.n);
    find_columns(&g);
    collect(&g);
    if (!g.in[g.keep->res[0]] || g.out.n > MAX_OUT || !compares_lags(&g))
      continue;
    rewrite(&g);
    return;
  }
}

static void loops(Ctx *cx, Func *f, const GpuFacts *gpu, Region *r) {
  for (Op *op = r->first; op; op = op->next)
    for (uint32_t i = 0; i < op->nregions; i++) {
      loops(cx, f, gpu, op->regions[i]);
      if (op->code == OP_FOR && op->nres) body(cx, f, gpu, op->regions[i]);
    }
}

bool pass_lazy_rescale(Ctx *cx, Module *m, const PassOpt *opt) {
  const Target *t = opt->target;
  for (uint32_t i = 0; t && i < m->funcs.n; i++)
    loops(cx, m->funcs.at[i], &t->gpu, m->funcs.at[i]->body);
  return true;
}
