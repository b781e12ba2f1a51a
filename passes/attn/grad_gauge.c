// grad, part 5: stabilizers. A running maximum m keeps exponential gates in
// range: states are kept 2 ** (c m) times smaller than they are,
//
//   m' = max(m + a, b)                      a maximum
//   S' = 2 ** (c (m + a - m')) S + 2 ** (c (b - m')) x e^T
//
// so that S 2 ** (c m) does not depend on m. What flows to m through decays and
// writes is, summed over all steps, what reads of S have of it:
//
//   dm' = - c ln 2 S . dS    of a read of S', or of the last S, behind the step
//   dm  = + c ln 2 S . dS    of the state before the first step
//
// Decays and writes take m and m' as they are then (`stop_grad`): a decay gets
// what flows over it and no more. So products of these are rounded as those of
// any other recurrence, where they were terms of a difference that is about 0.
#include "passes/attn/grad_walk.h"

#include <math.h>

enum { MAX_ATOMS = 8 };

// The sum of c times an atom, and a number.
typedef struct Linear {
  bool ok;
  uint32_t n;
  double rest, c[MAX_ATOMS];
  Gid atom[MAX_ATOMS];
} Linear;

// ---------------------------------------------------------------- sums
static void add_atom(Linear *l, Gid x, double c) {
  uint32_t i = 0;
  while (i < l->n && l->atom[i] != x) i++;
  if (i == MAX_ATOMS) {
    l->ok = false;
    return;
  }
  if (i == l->n) l->atom[l->n++] = x, l->c[i] = 0;
  l->c[i] += c;
}

static void add(const Grad *g, Linear *l, Gid x, double c) {
  const GradNode *n = grad_at(g, x);
  switch (n->code) {
  case OP_CONST: l->rest += c * n->value; return;
  case OP_NEG: add(g, l, n->arg[0], -c); return;
  case OP_ADD:
  case OP_SUB:
    add(g, l, n->arg[0], c);
    add(g, l, n->arg[1], n->code == OP_ADD ? c : -c);
    return;
  case OP_MUL:
    for (uint32_t i = 0; i < 2; i++) {
      const GradNode *k = grad_at(g, n->arg[i]);
      if (k->code != OP_CONST) continue;
      add(g, l, n->arg[1 - i], c * k->value);
      return;
    }
    break;
  default: break;
  }
  add_atom(l, x, c);
}

static bool is_about(double x, double y) {
  return fabs(x - y) <= 1e-6 * fmax(fabs(x), fabs(y));
}

static double factor_of(const Linear *l, Gid x) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->atom[i] == x) return l->c[i];
  return 0;
}

static bool is_zero(const Linear *l) {
  for (uint32_t i = 0; i < l->n; i++)
    if (fabs(l->c[i]) > 1e-9) return false;
  return l->ok && fabs(l->rest) < 1e-9;
}

// ---------------------------------------------------------------- maxima
// Is x the sum of y and z, or of y alone?
static bool is_sum(const Grad *g, Gid x, Gid y, Gid z) {
  Linear l = {.ok = true};
  add(g, &l, x, 1);
  add(g, &l, y, -1);
  if (z) add(g, &l, z, -1);
  return is_zero(&l);
}

// Is x the maximum behind the step?
static bool is_after(const Grad *g, const GradWalk *m, Gid x) {
  const GradNode *n = grad_at(g, x);
  const GradItem *max = &m->item[1];
  for (uint32_t i = 0; n->code == OP_MAX && i < 2; i++)
    if (is_sum(g, n->arg[i], m->result[1], max->x) &&
        is_sum(g, n->arg[1 - i], max->w, 0))
      return true;
  return false;
}

// By Gid: is `of` in it?
static bool *all_with(const Grad *g, Gid of) {
  bool *with = NEWN(g->arena, bool, g->nodes.n);
  for (Gid x = 1; x < g->nodes.n; x++) {
    const GradNode *n = grad_at(g, x);
    with[x] = x == of;
    for (uint32_t i = 0; n->code != OP_STOP_GRAD && i < n->n; i++)
      with[x] |= with[n->arg[i]];
  }
  return with;
}

static bool any_of(const GradWalk *w, const bool *with) {
  for (uint32_t i = 0; i < w->n; i++)
    if (w->item[i].kind != GI_READ &&
        (with[w->item[i].x] || with[w->item[i].w]))
      return true;
  return false;
}

// ---------------------------------------------------------------- the form
typedef struct Form {
  Grad *g;
  GradGauge to;
  const bool *with;  // by Gid: the maximum is in it
  Map done;          // by Gid: stopped()
} Form;

// The maximum behind the step in a decay that has both.
static bool find_after(Form *f, const GradWalk *m, const GradWalk *w) {
  Linear l = {.ok = true};
  Gid decay = 0;
  for (uint32_t i = 0; i < w->n; i++)
    if (w->item[i].kind == GI_DECAY) decay = w->item[i].x;
  if (!decay) return false;
  add(f->g, &l, decay, 1);
  f->to.by = factor_of(&l, f->to.before);
  for (uint32_t i = 0; l.ok && i < l.n; i++) {
    if (l.atom[i] == f->to.before || !f->with[l.atom[i]]) continue;
    if (f->to.after || !is_after(f->g, m, l.atom[i])) return false;
    f->to.after = l.atom[i];
    if (!is_about(l.c[i], -f->to.by)) return false;
  }
  return l.ok && f->to.after && f->to.by != 0;
}

// The power of 2 ** m' that x, a product, has as a factor; false: another
// function of m is in it.
static bool power(const Form *f, Gid x, double *sum) {
  const GradNode *n = grad_at(f->g, x);
  Linear l = {.ok = true};
  if (!f->with[x]) return true;
  if (n->code == OP_MUL)
    return power(f, n->arg[0], sum) && power(f, n->arg[1], sum);
  if (n->code == OP_NEG) return power(f, n->arg[0], sum);
  if (n->code != OP_EXP && n->code != OP_EXP2) return false;
  add(f->g, &l, n->arg[0], n->code == OP_EXP ? M_LOG2E : 1);
  *sum += factor_of(&l, f->to.after);
  for (uint32_t i = 0; i < l.n; i++)
    if (l.atom[i] != f->to.after && f->with[l.atom[i]]) return false;
  return l.ok;
}

static bool is_scaled(const Form *f, const GradItem *x) {
  double sum = 0;
  return !x->less && x->w && power(f, x->x, &sum) && power(f, x->w, &sum) &&
         is_about(sum, -f->to.by);
}

static Gid stopped(Form *f, Gid x) {
  Grad *g = f->g;
  uint64_t known;
  if (!x || !f->with[x]) return x;
  if (map_get(&f->done, x, &known)) return (Gid)known;
  GradNode n = *grad_at(g, x);
  Gid *arg = NEWN(g->arena, Gid, n.n + 1), y;
  bool here = x == f->to.before || x == f->to.after;
  for (uint32_t i = 0; i < n.n; i++)
    arg[i] = here ? n.arg[i] : stopped(f, n.arg[i]);
  if (here) {
    GradNode stop = {.code = OP_STOP_GRAD,
                     .dtype = n.dtype,
                     .axes = n.axes,
                     .n = 1};
    y = grad_put(g, stop, &x);
  } else y = grad_put(g, n, arg);
  map_put(&f->done, x, y);
  return y;
}

// Is m a stabilizer of w?
static bool put_gauge(Grad *g, const GradWalk *m, GradWalk *w,
                      const bool *with) {
  Form f = {.g = g, .with = with, .done.arena = g->arena};
  f.to = (GradGauge){.before = m->result[1],
                     .last = m->result[0],
                     .first = m->init};
  if (!find_after(&f, m, w)) return false;
  for (uint32_t i = 0; i < w->n; i++)
    if (w->item[i].kind == GI_WRITE && !is_scaled(&f, &w->item[i]))
      return false;
  for (uint32_t i = 0; i < w->n; i++) {
    if (w->item[i].kind == GI_READ) continue;
    w->item[i].x = stopped(&f, w->item[i].x);
    w->item[i].w = stopped(&f, w->item[i].w);
  }
  w->gauge = f.to;
  return true;
}

void grad_gauge(Grad *g, GradWalk *w) {
  for (uint32_t i = 0; i < g->walks.n; i++) {
    GradWalk *m = &g->walks.at[i];
    if (m->n != 2 || m->item[1].kind != GI_MAX) continue;
    bool *with = all_with(g, m->result[1]);
    if (any_of(w, with) && (w->gauge.by != 0 || !put_gauge(g, m, w, with)))
      m->flows = true;
  }
}

// ---------------------------------------------------------------- adjoints
// Item k reads the state behind the decay, whose maximum is that of the step.
static Gid maximum_of(const GradWalk *w, uint32_t k) {
  for (uint32_t i = 0; i < k; i++)
    if (w->item[i].kind == GI_DECAY) return w->gauge.after;
  return w->gauge.before;
}

// The sum of products of f32, as no product of matrices has them: others take
// the same off it.
static Gid sum(Grad *g, Gid x, Gid y, uint64_t over) {
  Gid v = grad_2(g, OP_MUL, x, y);
  GradNode f32 = {.code = OP_NEG, .dtype = DT_F32, .n = 1};
  f32.axes = grad_at(g, v)->axes;
  if (!over) return grad_1(g, OP_NEG, v);
  GradNode all = {.code = OP_REDUCE,
                  .dtype = DT_F32,
                  .axes = f32.axes & ~over,
                  .over = over,
                  .points = f32.axes,
                  .attr = RK_SUM,
                  .n = 1};
  v = grad_put(g, f32, &v);
  return grad_put(g, all, &v);
}

// Sums along the columns of whole states, made by tasks of rows.
static Gid by_rows(Grad *g, Gid y, uint64_t row) {
  uint32_t axis = 0;
  while (!(row >> axis & 1)) axis++;
  uint32_t of = grad_row_axis(g, axis);
  y = grad_moved(g, y, axis, grad_index(g, of));
  y = grad_made(g, y, grad_at(g, y)->axes, "product");
  return grad_moved(g, y, of, grad_index(g, axis));
}

static void give(Grad *g, const GradWalk *w, Gid m, Gid state, Gid c,
                 double by) {
  if (!c || !state || !g->active[m]) return;
  uint64_t axes = grad_at(g, state)->axes | grad_at(g, c)->axes;
  Gid f = grad_num(g, -by * w->gauge.by * M_LN2);
  uint64_t over = axes & ~grad_at(g, m)->axes, whole = w->row & over;
  Gid y = sum(g, state, c, over & ~whole);
  if (whole && (over & w->col)) y = by_rows(g, y, whole);
  if (whole) y = grad_sum_all(g, y, whole);
  grad_give(g, m, grad_2(g, OP_MUL, f, y), grad_at(g, y)->axes);
}

void grad_gauge_back(Grad *g, const GradWalk *w) {
  uint32_t read = 0;
  if (w->gauge.by == 0) return;
  give(g, w, w->gauge.last, w->result[0], g->adjoint[w->result[0]], -1);
  for (uint32_t i = 0; i < w->n; i++) {
    if (w->item[i].kind != GI_READ) continue;
    Gid x = w->result[++read];
    give(g, w, maximum_of(w, i), x, g->adjoint[x], -1);
  }
}

bool grad_needs_init(const Grad *g, const GradWalk *w) {
  return g->active[w->init] || (w->gauge.by != 0 && g->active[w->gauge.first]);
}

void grad_give_init(Grad *g, const GradWalk *w, Gid c) {
  grad_give(g, w->init, c, w->state);
  if (w->gauge.by != 0) give(g, w, w->gauge.first, w->init, c, 1);
}

bool grad_is_gauge(const Grad *g, Gid x) {
  for (uint32_t i = 0; i < g->walks.n; i++)
    if (g->walks.at[i].gauge.by != 0 && g->walks.at[i].gauge.after == x)
      return true;
  return false;
}
