// Gradient programs against central differences of their programs, in f64.
#include "tools/attn-run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// Elements of a gradient that are compared, at most; the step is relative to
// inputs of size 1, at which the error of order 4 is of the size of rounding.
enum { MOST = 160 };
static const double STEP = 1e-3;

typedef struct Fd {
  Ctx *cx;
  const Options *o;
  Bound p, g;  // the program, its gradient
  // Of the program's `inout` tensors: before and behind its run.
  double *was[64], *last[64];
} Fd;

static InterpTensor *find(Bound *b, const char *name) {
  for (uint32_t i = 0; i < b->f->params.n; i++)
    if (!strcmp(ir_info(b->f, b->f->params.at[i].v)->hint, name))
      return &b->args[i];
  return NULL;
}

static bool execute(Fd *x, Bound *b) {
  InterpOpt opt = {.seed = x->o->seed, .poison = true};
  ArenaMark s = arena_mark(&x->cx->scratch), t = arena_mark(&x->cx->session);
  bool ok = ir_interp(x->cx, b->m, b->f->name, b->args, b->dims, &opt);
  arena_reset(&x->cx->scratch, s);
  if (ok) arena_reset(&x->cx->session, t);
  return ok;
}

static bool is_inout(const Fd *x, uint32_t i) {
  return x->p.f->params.at[i].role == PR_INOUT && x->p.args[i].data;
}

static void keep_inouts(Fd *x) {
  for (uint32_t i = 0; i < x->p.f->params.n; i++) {
    size_t n = (size_t)run_count(&x->p.args[i]);
    if (!is_inout(x, i)) continue;
    x->was[i] = NEWN(&x->cx->session, double, n + 1);
    x->last[i] = NEWN(&x->cx->session, double, n + 1);
  }
}

// The program, and back to the inputs that it had; what its `inout` tensors
// became is `last`.
static bool execute_program(Fd *x) {
  for (uint32_t i = 0; i < x->p.f->params.n; i++)
    if (is_inout(x, i))
      memcpy(x->was[i], x->p.args[i].data,
             sizeof(double) * (size_t)run_count(&x->p.args[i]));
  if (!execute(x, &x->p)) return false;
  for (uint32_t i = 0; i < x->p.f->params.n; i++) {
    if (!is_inout(x, i)) continue;
    size_t n = sizeof(double) * (size_t)run_count(&x->p.args[i]);
    memcpy(x->last[i], x->p.args[i].data, n);
    memcpy(x->p.args[i].data, x->was[i], n);
  }
  return true;
}

// Sum of the outputs times their cotangents.
static bool loss(Fd *x, double *out) {
  if (!execute_program(x)) return false;
  *out = 0;
  for (uint32_t i = 0; i < x->p.f->params.n; i++) {
    const FuncParam *q = &x->p.f->params.at[i];
    char name[256];
    snprintf(name, sizeof name, "d_%s", ir_info(x->p.f, q->v)->hint);
    const InterpTensor *d = find(&x->g, name), *y = &x->p.args[i];
    if ((q->role != PR_OUT && q->role != PR_INOUT) || !d) continue;
    const double *c = d->data, *v = is_inout(x, i) ? x->last[i] : y->data;
    for (int64_t k = 0; k < run_count(y); k++)
      if (isfinite(v[k])) *out += c[k] * v[k];
  }
  return true;
}

// The derivative of the loss by *at.
static bool difference(Fd *x, double *at, double *out) {
  static const double by[4] = {1, -1, 2, -2}, times[4] = {8, -8, -1, 1};
  double was = *at, f;
  *out = 0;
  for (int i = 0; i < 4; i++) {
    *at = was + by[i] * STEP;
    if (!loss(x, &f)) return false;
    *out += times[i] * f / (12 * STEP);
  }
  *at = was;
  return true;
}

static bool compare(Fd *x, const char *name, const InterpTensor *got,
                    InterpTensor *in) {
  int64_t n = run_count(got), step = n / MOST + 1;
  double sum = 0, *data = in->data ? in->data : &in->scalar;
  const double *g = got->data;
  for (int64_t i = 0; i < n; i++)
    if (isfinite(g[i])) sum += g[i] * g[i];
  double rms = sqrt(sum / (double)(n ? n : 1));
  for (int64_t i = 0; i < n; i += step) {
    double want;
    if (!difference(x, &data[i], &want)) return false;
    if (fabs(g[i] - want) <= x->o->tol * (1 + fabs(want) + rms)) continue;
    if (x->o->unread && isnan(g[i]) && want == 0) continue;
    printf("%s[%lld] differs: %.9g, differences say %.9g\n", name, (long long)i,
           g[i], want);
    return false;
  }
  return true;
}

// What the gradient reads of the program is in both.
static void share(Fd *x) {
  for (uint32_t i = 0; i < x->p.f->params.n; i++) {
    const char *name = ir_info(x->p.f, x->p.f->params.at[i].v)->hint;
    InterpTensor *t = find(&x->g, name);
    if (t) *t = x->p.args[i];
  }
}

bool run_fd(Ctx *cx, Module *m, const Options *o, uint64_t seed) {
  Fd x = {.cx = cx, .o = o};
  x.p = (Bound){.m = m, .f = run_pick(m, o->fn)};
  const char *name = x.p.f ? x.p.f->name : "";
  x.g = (Bound){.m = m};
  x.g.f = ir_find(m, arena_printf(&cx->session, "%s_grad", name));
  if (!run_bind(cx, &x.p, o, seed) || !run_bind(cx, &x.g, o, seed))
    return false;
  share(&x);
  keep_inouts(&x);
  if (!execute_program(&x) || !execute(&x, &x.g)) return false;
  for (uint32_t i = 0; i < x.g.f->params.n; i++) {
    const char *out = ir_info(x.g.f, x.g.f->params.at[i].v)->hint;
    bool of = x.g.f->params.at[i].role == PR_OUT && !strncmp(out, "g_", 2);
    InterpTensor *in = of ? find(&x.p, out + 2) : NULL;
    if (in && !compare(&x, out, &x.g.args[i], in)) return false;
  }
  return true;
}
