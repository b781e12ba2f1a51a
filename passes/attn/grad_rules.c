// grad, part 4: reverse mode on the graph. Each node, from the last to the
// first, hands its adjoint to its operands, by the derivatives of ops.def; what
// an operand does not vary with is summed, over the points of the domains.
#include "ir/facts.h"
#include "ir/formula.h"
#include "passes/attn/grad.h"
#include "passes/support/gauge.h"

#include <math.h>

typedef struct Reverse {
  Grad *g;
  uint64_t keys;
} Reverse;

// ---------------------------------------------------------------- activity
static bool carries(const Grad *g, const GradNode *n) {
  if (!dtype_is_float(n->dtype)) return false;
  if (n->code == OP_STOP_GRAD || n->code == OP_FLOOR) return false;
  if (n->code == OP_LOAD) return g->tensors.at[n->tensor].wanted;
  if (n->code == GRAD_RESULT && n->attr >= GRAD_STATES) return false;
  for (uint32_t i = 0; i < n->n; i++)
    if (g->active[n->arg[i]]) return true;
  return false;
}

static void find_active(Grad *g) {
  g->active = NEWN(g->arena, bool, g->forward);
  do {
    for (Gid x = 1; x < g->forward; x++)
      g->active[x] |= carries(g, grad_at(g, x));
  } while (grad_find_active_states(g));
}

// What outputs, domains and conditions need whatever the conditions are.
static void reach(Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  if (!g->guarded[x]) return;
  g->guarded[x] = false;
  uint32_t some;
  const Gid *arg = grad_operands(g, x, &some);
  if (n->code == OP_SELECT) some = 1;
  for (uint32_t i = 0; i < some; i++) reach(g, arg[i]);
}

static void find_guarded(Grad *g) {
  g->guarded = NEWN(g->arena, bool, g->forward);
  memset(g->guarded, true, g->forward);
  for (uint32_t i = 0; i < g->outs.n; i++) {
    reach(g, g->outs.at[i].v);
    if (g->outs.at[i].mask) reach(g, g->outs.at[i].mask);
    for (uint32_t k = 0; k < g->outs.at[i].n; k++)
      reach(g, g->outs.at[i].index[k]);
  }
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (g->domain[i]) reach(g, g->domain[i]);
  for (Gid x = 1; x < g->forward; x++)
    if (!grad_at(g, x)->n) g->guarded[x] = false;
}

// ---------------------------------------------------------------- sums
// Does x sum something that varies with these axes?
static bool sums_with(const Grad *g, Gid x, uint64_t axes, bool *seen) {
  const GradNode *n = grad_at(g, x);
  if (seen[x] || !(n->axes & axes)) return false;
  seen[x] = true;
  if (n->code == OP_REDUCE || grad_is_made(n->code)) return true;
  for (uint32_t i = 0; i < n->n; i++)
    if (sums_with(g, n->arg[i], axes, seen)) return true;
  return false;
}

// c, of which sums over these axes are made once.
static Gid sums_once(Grad *g, Gid c, uint64_t over) {
  const GradNode n = *grad_at(g, c);
  if (n.code == OP_MUL) {
    Gid x = sums_once(g, n.arg[0], over), y = sums_once(g, n.arg[1], over);
    return grad_2(g, OP_MUL, x, y);
  }
  bool *seen = NEWN(g->arena, bool, g->nodes.n);
  bool sum = c >= g->forward && n.code == OP_REDUCE && n.over == over &&
             !sums_with(g, n.arg[0], over, seen);
  return sum ? grad_made(g, c, n.axes, "pairs") : c;
}

// c flows to a number of each pair of a row and a key, which is looked up at
// some of the coordinates of other rows: of the N largest scores, the number
// that each is. All that flows on would sum these, with products for each.
static Gid looked_up(Grad *g, Gid x, Gid c, uint64_t over) {
  uint64_t axes = grad_at(g, x)->axes, keys = grad_role(g, AX_KEY);
  bool pairs = (axes & keys) && (axes & ~keys) &&
               !(axes & grad_role(g, AX_VEC)) && !g->walks.n;
  bool rows = over && !(over & ~grad_role(g, AX_PAR));
  return pairs && rows ? sums_once(g, c, over) : c;
}

void grad_give(Grad *g, Gid x, Gid c, uint64_t points) {
  if (!g->active[x] || grad_is_number(g, c, 0)) return;
  uint64_t over = points & ~grad_at(g, x)->axes;
  uint64_t keys = over & grad_role(g, AX_KEY);
  Gid y = keys ? grad_rewrite(g, c, keys, points) : 0;
  if (y) {
    c = y;
    over &= ~keys, points &= ~keys;
  } else if (keys) c = grad_factored(g, c);  // a loop: as few functions
  c = looked_up(g, x, grad_sum(g, c, over, points), over);
  g->adjoint[x] = g->adjoint[x] ? grad_2(g, OP_ADD, g->adjoint[x], c) : c;
}

static void give(Reverse *r, Gid x, Gid c, uint64_t points) {
  grad_give(r->g, x, c, points);
}

// ---------------------------------------------------------------- rules
static uint32_t read_number(void *data, double v) {
  return grad_num(data, v);
}

static uint32_t read_op(void *data, OpCode c, const uint32_t *args,
                        uint32_t n) {
  return grad_op(data, c, args, n);
}

static bool refuse(Reverse *r, const GradNode *n, const char *what) {
  Span at = grad_span(r->g, n->span);
  diag_add(r->g->cx, DIAG_grad_through, at, what, r->g->f->name);
  return false;
}

// By the row of ops.def: one derivative for each operand.
static bool rule_elementwise(Reverse *r, Gid x, const GradNode *n, Gid a) {
  Grad *g = r->g;
  const char *text = op_facts(n->code)->grad;
  if (!text) return refuse(r, n, op_info(n->code)->name);
  FormulaTo to = {g, read_number, read_op};
  Gid args[3] = {0}, d[FORMULA_RESULTS];
  for (uint32_t i = 0; i < n->n; i++) args[i] = n->arg[i];
  uint32_t count = formula_read(text, &to, args, x, d);
  for (uint32_t i = 0; i < count; i++)
    if (g->active[n->arg[i]])
      give(r, n->arg[i], grad_2(g, OP_MUL, a, d[i]), n->axes);
  return true;
}

static void rule_mul(Reverse *r, const GradNode *n, Gid a) {
  Grad *g = r->g;
  for (uint32_t i = 0; i < 2; i++)
    if (g->active[n->arg[i]]) {
      Gid other = grad_factored(g, n->arg[!i]);
      give(r, n->arg[i], grad_2(g, OP_MUL, a, other), n->axes);
    }
}

static void rule_div(Reverse *r, Gid x, const GradNode *n, Gid a) {
  Grad *g = r->g;
  Gid b = n->arg[1];
  Gid q = n->code == OP_DIV ? grad_2(g, OP_DIV, a, b) : grad_ratio(g, a, b);
  give(r, n->arg[0], q, n->axes);
  if (!g->active[b]) return;
  Gid y = grad_2(g, OP_MUL, a, x);
  q = n->code == OP_DIV ? grad_2(g, OP_DIV, y, b) : grad_ratio(g, y, b);
  give(r, b, grad_1(g, OP_NEG, q), n->axes);
}

static void rule_select(Reverse *r, const GradNode *n, Gid a) {
  Grad *g = r->g;
  Gid zero = grad_num(g, 0);
  give(r, n->arg[1], grad_path(g, n->arg[0], a, zero), n->axes);
  give(r, n->arg[2], grad_path(g, n->arg[0], zero, a), n->axes);
}

// ---------------------------------------------------------------- reductions
static bool is_gauge(Grad *g, Gid x) {
  return gauge_is(g->f, g->arena, g->of[x]);
}

// All that are largest get an equal part.
static void share(Reverse *r, Gid x, const GradNode *n, Gid a) {
  Grad *g = r->g;
  Gid y = n->arg[0], hit = grad_2(g, OP_EQ, y, x);
  Gid zero = grad_num(g, 0);
  Gid one = grad_3(g, OP_SELECT, hit, grad_num(g, 1), zero);
  Gid count = grad_sum(g, one, n->over, n->points);
  give(r, y, grad_2(g, OP_MUL, one, grad_ratio(g, a, count)), n->points);
}

// The index of an axis as a float, as rows are kept.
static Gid coordinate(Grad *g, uint32_t axis) {
  GradNode n = {.code = OP_CAST,
                .dtype = DT_F32,
                .axes = grad_bit(axis),
                .n = 1};
  Gid index = grad_index(g, axis);
  return grad_put(g, n, &index);
}

// The least of x over the axes that n sums.
static Gid least(Grad *g, Gid x, const GradNode *n) {
  GradNode min = {.code = OP_REDUCE,
                  .dtype = DT_F32,
                  .axes = n->points & ~n->over,
                  .over = n->over,
                  .points = n->points,
                  .attr = RK_MIN,
                  .n = 1,
                  .hint = "first"};
  return grad_put(g, min, &x);
}

// The first that is largest gets it. Where that is found whoever found the
// maximum: others, who make the values again, may round them differently.
static bool rule_extreme(Reverse *r, Gid x, const GradNode *n, Gid a) {
  Grad *g = r->g;
  Gid hit = grad_2(g, OP_EQ, n->arg[0], x), is = 0;
  if (g->opt->share_ties && (n->over & r->keys))
    return refuse(r, n, "a maximum with @ties(all) over the keys");
  if (g->opt->share_ties) return share(r, x, n, a), true;
  for (uint32_t i = 0; i < g->axes.n; i++) {
    if (!(n->over & grad_bit(i))) continue;
    Gid at = coordinate(g, i), none = grad_num(g, INFINITY);
    Gid first = least(g, grad_3(g, OP_SELECT, hit, at, none), n);
    if ((n->over & r->keys) && grad_has_steps(g))
      first = grad_made(g, first, grad_at(g, first)->axes, "first");
    Gid here = grad_2(g, OP_EQ, at, first);
    hit = grad_2(g, OP_AND, hit, here);
    is = is ? grad_2(g, OP_AND, is, here) : here;
  }
  Gid zero = grad_num(g, 0);
  give(r, n->arg[0], grad_path(g, is, a, zero), n->points);
  return true;
}

// Of a product over the points each factor gets the product of the others: the
// whole without it, or what is left without a factor that is 0.
static void rule_product(Reverse *r, Gid x, const GradNode *n, Gid a) {
  Grad *g = r->g;
  Gid v = n->arg[0], zero = grad_num(g, 0), one = grad_num(g, 1);
  Gid is = grad_2(g, OP_EQ, v, zero);
  GradNode rest = *n;
  Gid factor = grad_3(g, OP_SELECT, is, one, v);
  rest.hint = "product";
  Gid others = grad_put(g, rest, &factor);
  Gid none = grad_3(g, OP_SELECT, is, one, zero);
  Gid zeros = grad_sum(g, none, n->over, n->points);
  Gid only = grad_2(g, OP_LE, zeros, grad_num(g, 1.5));
  Gid where = grad_3(g, OP_SELECT, only, others, zero);
  Gid d = grad_3(g, OP_SELECT, is, where, grad_2(g, OP_DIV, x, factor));
  give(r, v, grad_2(g, OP_MUL, a, d), n->points);
}

static bool rule_reduce(Reverse *r, Gid x, const GradNode *n, Gid a) {
  bool extreme = n->attr == RK_MAX || n->attr == RK_MIN;
  if (n->attr == RK_SUM) give(r, n->arg[0], a, n->points);
  else if (extreme && is_gauge(r->g, x)) return true;
  else if (extreme) return rule_extreme(r, x, n, a);
  else if (n->attr == RK_PROD) rule_product(r, x, n, a);
  else
    return refuse(r, n,
                  arena_printf(&r->g->cx->session, "`%s`",
                               rkind_name((RKind)n->attr)));
  return true;
}

static void rule_load(Reverse *r, const GradNode *n, Gid a) {
  Grad *g = r->g;
  GradStore s = {.tensor = n->tensor, .v = a, .n = n->n, .span = n->span};
  for (uint32_t i = 0; i < n->n; i++) s.index[i] = n->arg[i];
  vec_push(g->arena, &g->grads, s);
}

// Of a walk's results nothing is done before all have their adjoints.
static bool rule_walk(Reverse *r, Gid x, const GradNode *n) {
  Grad *g = r->g;
  if (n->code == GRAD_WALK) {
    const GradWalk w = g->walks.at[n->attr];
    if (w.nstates) return grad_reverse_body(g, &w), true;
    return grad_reverse_walk(g, &w);
  }
  if (n->attr == GRAD_NEXT) {
    const GradWalk w = g->walks.at[grad_at(g, n->arg[0])->attr];
    return grad_reverse_step(g, &w), true;
  }
  g->adjoint[n->arg[0]] = x;
  return true;
}

static bool rule(Reverse *r, Gid x) {
  const GradNode n = *grad_at(r->g, x);
  if (n.code == GRAD_WALK || n.code == GRAD_RESULT) return rule_walk(r, x, &n);
  Gid a = grad_factored(r->g, r->g->adjoint[x]);
  if (grad_is_gauge(r->g, x)) a = grad_made(r->g, a, n.axes, "maximum");
  switch (n.code) {
  case OP_LOAD: return rule_load(r, &n, a), true;
  case OP_MUL: return rule_mul(r, &n, a), true;
  case OP_DIV:
  case OP_DIVK: return rule_div(r, x, &n, a), true;
  case OP_SELECT: return rule_select(r, &n, a), true;
  case OP_REDUCE: return rule_reduce(r, x, &n, a);
  case OP_SCAN:
    return give(r, n.arg[0], grad_scan_back(r->g, a, n), n.points), true;
  default: return rule_elementwise(r, x, &n, a);
  }
}

// ---------------------------------------------------------------- all
// Does a domain leave out what the mask does?
static bool excludes(const Grad *g, Gid mask) {
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (g->domain[i] == mask) return true;
  return false;
}

// The cotangent of an output, as a tensor of the gradient.
static void seed(Reverse *r, const GradStore *s) {
  Grad *g = r->g;
  const GradTensor o = g->tensors.at[s->tensor];
  if (!g->active[s->v]) return;
  const char *name = arena_printf(g->m->arena, "d_%s", o.name);
  GradTensor d = {.name = intern(&g->cx->names, name),
                  .from = GF_COTANGENT,
                  .read = true,
                  .type = o.type};
  uint64_t points = 0;
  for (uint32_t i = 0; i < s->n; i++) points |= grad_at(g, s->index[i])->axes;
  if (s->mask) points |= grad_at(g, s->mask)->axes;
  Gid c = grad_load(g, grad_tensor(g, d), s->index, s->n);
  if (s->mask && !excludes(g, s->mask))
    c = grad_path(g, s->mask, c, grad_num(g, 0));
  give(r, s->v, c, points);
}

bool grad_reverse(Grad *g) {
  Reverse r = {.g = g, .keys = grad_role(g, AX_KEY)};
  find_active(g);
  find_guarded(g);
  g->adjoint = NEWN(g->arena, Gid, g->forward);
  for (uint32_t i = 0; i < g->outs.n; i++) seed(&r, &g->outs.at[i]);
  grad_seed_bodies(g);
  for (Gid x = g->forward; x-- > 1;)
    if (g->adjoint[x] && !rule(&r, x)) return false;
  return true;
}
