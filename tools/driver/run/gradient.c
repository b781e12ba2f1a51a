// Gradients of a call: the programs of pass grad on its arrays, and what the
// oracle's dual numbers say.
#include "tools/driver/run/points.h"
#include "tools/driver/run/rng.h"

#include <math.h>

// Elements of an input that are evaluated where not all are, and directions;
// walks of a point that lanes of tangents cost beside one of values.
enum { SAMPLES = 256, FEWEST = 8, DIRECTIONS = 4, LANES_COST = 5 };

// ---------------------------------------------------------------- calls
static DrvArg *arg_named(DrvCall *c, const char *name) {
  for (uint32_t i = 0; i < c->nargs; i++)
    if (strcmp(c->args[i].param->name, name) == 0) return &c->args[i];
  return NULL;
}

// What is known of the call holds for prog, too: it has the same dims.
static bool like(const DrvCall *c, Decl *prog, DrvCall *out) {
  if (!drv_call(c->cx, prog, out)) return false;
  uint32_t n = prog->dims->syms.n;
  memcpy(out->dims, c->dims, sizeof *c->dims * n);
  memcpy(out->known, c->known, sizeof *c->known * n);
  memcpy(out->total, c->total, sizeof *c->total * n);
  memcpy((void *)out->from, c->from, sizeof *c->from * n);
  out->watch = c->watch;
  out->hollow = c->hollow;
  for (uint32_t i = 0; i < prog->generics.n; i++)
    if (c->types[i] != DT_NONE &&
        !drv_set_dtype(out, prog->generics.at[i].name, c->types[i]))
      return false;
  return true;
}

static void take(DrvArg *to, const DrvArg *from) {
  to->array = from->array;
  to->given = from->given;
  to->value = from->value;
  to->origin = from->origin;
}

// Cotangents of outputs that were not written are never used.
static bool cotangent(DrvCall *c, DrvArg *a, uint64_t seed) {
  Gen g = gen_default(GK_NORMAL);
  g.seed = seed;
  a->origin = gen_name(g.kind);
  if (!drv_alloc(c->cx, &a->array)) return false;
  if (c->hollow) return true;
  gen_fill(&c->cx->scratch, &g, a->param->name, a->dtype, a->array.count,
           a->array.data);
  return true;
}

// The program overwrites its `inout` arrays; its gradient reads what they were.
static bool take_copy(DrvCall *c, DrvArg *to, const DrvArg *from) {
  take(to, from);
  if (!drv_alloc(c->cx, &to->array)) return false;
  memcpy(to->array.data, from->array.data,
         (size_t)from->array.count * (size_t)dtype_size(from->dtype));
  return true;
}

// An input of the gradient: of the call, or one of the program's outputs.
static bool fill(DrvGrads *g, DrvArg *a, uint64_t seed) {
  const char *name = a->param->name;
  const DrvArg *from = arg_named(g->of, name);
  if (!from || from->out) from = arg_named(&g->forward, name);
  if (from && from->param->qual == PQ_INOUT)
    return take_copy(&g->backward, a, from);
  if (from) {
    take(a, from);
    return true;
  }
  from = strncmp(name, "d_", 2) ? NULL : arg_named(&g->forward, name + 2);
  if (!from) return false;
  a->array = from->array;
  return cotangent(&g->backward, a, seed);
}

// NaN, so that what is not written shows.
static void poison(DrvCall *c) {
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *a = &c->args[i];
    if (a->out && dtype_is_float(a->dtype))
      memset(a->array.data, 0xff,
             (size_t)a->array.count * (size_t)dtype_size(a->dtype));
  }
}

bool drv_grads(DrvCall *c, const char *inputs, uint64_t seed, DrvGrads *out) {
  DrvGradient p;
  *out = (DrvGrads){.of = c};
  if (!drv_gradient(c->cx, c->prog, inputs, &p) ||
      !like(c, p.forward, &out->forward) ||
      !like(c, p.backward, &out->backward) || !drv_outputs(&out->forward) ||
      !drv_outputs(&out->backward))
    return false;
  for (uint32_t i = 0; i < c->nargs; i++) {
    DrvArg *a = arg_named(&out->forward, c->args[i].param->name);
    if (a) take(a, &c->args[i]);
  }
  poison(&out->backward);
  for (uint32_t i = 0; i < out->backward.nargs; i++) {
    DrvArg *a = &out->backward.args[i];
    if (!a->out && !fill(out, a, seed)) return false;
  }
  return true;
}

// ---------------------------------------------------------------- seeds
typedef struct Seeds {
  DrvGrads *g;
  DrvGradReference *out;
  OracleArg *args;
  const double **weights;  // by argument of the program
  Vec(OracleSeed) all;
  Vec(double *) to;  // by seed: where its slope goes
} Seeds;

static double load(const NpyArray *x, int64_t i) {
  return dtype_load(x->dtype, (const char *)x->data + i * dtype_size(x->dtype));
}

// The call's arguments as the oracle takes them; outputs are not stored.
static void oracle_args(Seeds *s) {
  DrvCall *c = s->g->of;
  Arena *a = &c->cx->session;
  s->args = NEWN(a, OracleArg, c->nargs + 1);
  s->weights = NEWN(a, const double *, c->nargs + 1);
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *x = &c->args[i];
    s->args[i] = points_arg(x);
    if (x->out) s->args[i].data = NULL;
    const DrvArg *old = x->param->qual == PQ_INOUT
                            ? arg_named(&s->g->backward, x->param->name)
                            : NULL;
    if (old) s->args[i] = points_arg(old);
    const char *name = arena_printf(a, "d_%s", x->param->name);
    bool out = x->out || x->param->qual == PQ_INOUT;
    const DrvArg *d = out ? arg_named(&s->g->backward, name) : NULL;
    if (!d || d->absent) continue;
    double *w = NEWN(a, double, d->array.count + 1);
    for (int64_t k = 0; k < d->array.count; k++) w[k] = load(&d->array, k);
    s->weights[i] = w;
  }
}

// The parameter whose gradient argument i of backward is, if it is made.
static int source_of(const DrvGrads *g, uint32_t i) {
  const DrvArg *a = &g->backward.args[i];
  for (uint32_t k = 0; a->out && !a->absent && k < g->of->nargs; k++)
    if (!strcmp(g->of->args[k].param->name, a->param->name + 2)) return (int)k;
  return -1;
}

static void add_element(Seeds *s, uint32_t arg, int64_t i, double *to) {
  Arena *a = &s->g->of->cx->session;
  OracleSeed seed = {.arg = arg};
  const OracleArg *x = &s->args[arg];
  *to = 0;
  for (uint32_t k = x->rank; k-- > 0;) {
    seed.at[k] = i % x->shape[k];
    i /= x->shape[k];
  }
  vec_push(a, &s->all, seed);
  vec_push(a, &s->to, to);
}

static void add_all(Seeds *s, uint32_t i, uint32_t arg) {
  double *want = s->out->want[i];
  for (int64_t k = 0; k < s->g->backward.args[i].array.count; k++)
    add_element(s, arg, k, &want[k]);
}

static void add_samples(Seeds *s, uint32_t i, uint32_t arg, uint64_t seed,
                        uint64_t samples) {
  double *want = s->out->want[i];
  const DrvArg *a = &s->g->backward.args[i];
  Rng r;
  rng_init(&r, seed, a->param->name);
  if (a->array.count <= (int64_t)samples) {
    add_all(s, i, arg);
    return;
  }
  for (uint64_t k = 0; k < samples; k++) {
    int64_t at = k == 0   ? 0
                 : k == 1 ? a->array.count - 1
                          : rng_int(&r, k, 0, a->array.count);
    if (!drv_is_written(want[at])) add_element(s, arg, at, &want[at]);
  }
}

static void add_directions(Seeds *s, uint32_t i, uint32_t arg, uint64_t seed) {
  Arena *a = &s->g->of->cx->session;
  const DrvArg *x = &s->g->backward.args[i];
  for (int k = 0; k < DIRECTIONS; k++) {
    Rng r;
    DrvAlong *d = &s->out->along[s->out->nalong++];
    rng_init(&r, seed + (uint64_t)k, x->param->name);
    drv_room(s->g->of->cx, sizeof(double) * (size_t)(x->array.count + 1));
    double *t = NEWN(a, double, x->array.count + 1);
    for (int64_t e = 0; e < x->array.count; e++)
      t[e] = rng_normal(&r, (uint64_t)e);
    *d = (DrvAlong){.arg = i, .along = t};
    OracleSeed one = {.arg = arg, .along = t};
    vec_push(a, &s->all, one);
    vec_push(a, &s->to, &d->slope);
  }
}

// ---------------------------------------------------------------- slopes
typedef struct Work {
  const Seeds *s;
  double *slopes[POINTS_MAX_WORKERS];
  bool *read[POINTS_MAX_WORKERS];
} Work;

static bool evaluate(Ctx *cx, const DrvCall *c, const OraclePoints *at,
                     void *data, int worker) {
  Work *w = data;
  const Seeds *s = w->s;
  OracleSlopes want = {.weights = s->weights,
                       .seeds = s->all.at,
                       .n = s->all.n,
                       .slopes = w->slopes[worker],
                       .read = w->read[worker]};
  return oracle_slopes(cx, c->prog, s->args, c->dims, at, &want);
}

// Zero elements that no point of a tensor with padding reads are not judged:
// they may be anything.
static bool may_be_padding(const DrvCall *c, const DrvArg *a) {
  if (a->param->layout && a->param->layout->kind == LAY_PAGED) return true;
  const Ty *ty = &a->param->sym->ty;
  for (uint32_t i = 0; i < ty->rank; i++) {
    const DimExpr *e = &c->prog->dims->exprs.at[ty->shape[i]];
    if (e->op == DIM_SYM && c->prog->dims->syms.at[e->value].kind == DIM_RAGGED)
      return true;
  }
  return false;
}

static bool run(Seeds *s, const Points *p) {
  DrvCall *c = s->g->of;
  Work w = {.s = s};
  for (int i = 0; i < POINTS_MAX_WORKERS; i++) {
    w.slopes[i] = NEWN(&c->cx->session, double, s->all.n + 1);
    w.read[i] = NEWN(&c->cx->session, bool, s->all.n + 1);
  }
  if (!points_each(c, p, evaluate, &w)) return false;
  double unwritten = drv_unwritten();
  for (uint32_t k = 0; k < s->all.n; k++) {
    const OracleSeed *seed = &s->all.at[k];
    bool read = false;
    for (int i = 0; i < POINTS_MAX_WORKERS; i++) {
      *s->to.at[k] += w.slopes[i][k];
      read |= w.read[i][k];
    }
    if (!read && !seed->along && may_be_padding(c, &c->args[seed->arg]))
      *s->to.at[k] = unwritten;
  }
  return true;
}

// Operations of walks for the seeds, by what some points read.
static double work_of(const Seeds *s, const Points *all, uint64_t seed) {
  DrvCall *c = s->g->of;
  Points some = *all;
  points_sample(c, &some, seed);
  OraclePoints at = {some.at, (uint64_t)some.n};
  OracleSlopes want = {.seeds = s->all.at, .n = s->all.n};
  uint64_t reads = oracle_reads(c->cx, c->prog, s->args, c->dims, &at, &want);
  double walks = (double)reads / (double)some.n * LANES_COST / ORACLE_LANES;
  return walks * oracle_cost(c->prog, c->dims);
}

static void each_input(Seeds *s, uint64_t seed, uint64_t samples) {
  s->all.n = s->to.n = 0;
  for (uint32_t i = 0; i < s->g->backward.nargs; i++) {
    int arg = source_of(s->g, i);
    if (arg < 0) continue;
    int64_t n = s->g->backward.args[i].array.count;
    for (int64_t k = 0; k < n; k++) s->out->want[i][k] = drv_unwritten();
    if (samples) add_samples(s, i, (uint32_t)arg, seed, samples);
    else add_all(s, i, (uint32_t)arg);
  }
}

// All elements if that is little work, else some.
static void choose(Seeds *s, const Points *p, double work, uint64_t seed) {
  each_input(s, seed, SAMPLES);
  double cost = work_of(s, p, seed), all = 0;
  for (uint32_t i = 0; i < s->g->backward.nargs; i++)
    if (s->out->want[i]) all += (double)s->g->backward.args[i].array.count;
  double some = (double)(s->all.n ? s->all.n : 1);
  if (cost * all / some <= work) {
    each_input(s, seed, 0);
    return;
  }
  s->out->sampled = true;
  double fit = SAMPLES * work / (cost > 0 ? cost : 1);
  if (fit < SAMPLES) each_input(s, seed, fit < FEWEST ? FEWEST : (uint64_t)fit);
  if (oracle_cost(s->g->of->prog, s->g->of->dims) > work) return;
  for (uint32_t i = 0; i < s->g->backward.nargs; i++)
    if (s->out->want[i])
      add_directions(s, i, (uint32_t)source_of(s->g, i), seed);
}

bool drv_grad_reference(DrvGrads *g, double work, uint64_t seed,
                        DrvGradReference *out) {
  DrvCall *c = g->of;
  Arena *a = &c->cx->session;
  Seeds s = {.g = g, .out = out};
  Points p;
  *out = (DrvGradReference){.want = NEWN(a, double *, g->backward.nargs + 1)};
  out->along = NEWN(a, DrvAlong, g->backward.nargs * DIRECTIONS + 1);
  for (uint32_t i = 0; i < g->backward.nargs; i++) {
    int64_t n = g->backward.args[i].array.count + 1;
    if (source_of(g, i) < 0) continue;
    drv_room(c->cx, sizeof(double) * (size_t)n);
    out->want[i] = NEWN(a, double, n);
  }
  oracle_args(&s);
  if (!points_all(c, &p)) return true;
  choose(&s, &p, work, seed);
  out->elements = s.all.n - out->nalong;
  return run(&s, &p);
}

// ---------------------------------------------------------------- comparing
// Errors of elements are independent: along a direction they are as large as
// the gradient's norm, times the tolerance.
static void compare_along(const DrvArg *x, bool padding, const DrvAlong *d,
                          DrvError *e) {
  double sum = 0, sq = 0;
  for (int64_t i = 0; i < x->array.count; i++) {
    double v = load(&x->array, i);
    if (padding && isnan(v)) continue;
    sum += v * d->along[i];
    sq += v * v;
  }
  double base = fabs(d->slope) + sqrt(sq), diff = fabs(sum - d->slope);
  if (isnan(sum) && isnan(d->slope)) return;
  if (!isfinite(sum) || !isfinite(d->slope)) e->nonfinite++;
  double rel = diff == 0 ? 0 : base > 0 ? diff / base : (double)INFINITY;
  if (e->nonfinite || rel <= e->rel) return;
  *e = (DrvError){.n = e->n,
                  .rms = e->rms,
                  .max_abs = e->max_abs,
                  .rel = rel,
                  .at = -1,
                  .got = sum,
                  .want = d->slope};
}

DrvError drv_compare_grad(const DrvGrads *g, const DrvGradReference *r,
                          uint32_t arg) {
  DrvCall *c = g->of;
  const DrvArg *x = &g->backward.args[arg];
  DrvError e = drv_compare_written(c->cx, &x->array, r->want[arg]);
  bool padding = may_be_padding(c, &c->args[source_of(g, arg)]);
  for (uint32_t i = 0; i < r->nalong; i++)
    if (r->along[i].arg == arg) compare_along(x, padding, &r->along[i], &e);
  return e;
}
