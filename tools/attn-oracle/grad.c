// Gradients: dual numbers of the oracle, printed, compared with differences, or
// with what the passes make of the program. With --condition, what they may
// differ by follows from what inputs and cotangents that are wrong by as much
// change; and a gradient whose terms cancel, so that its reference is rounding,
// is judged beside those of other inputs.
#include "tools/attn-oracle/run.h"

#include "passes/pass.h"
#include "tools/driver/run/gen.h"
#include "tools/plan/plan.h"

#include <math.h>
#include <stdio.h>

enum { MAX_SEEDS = 1 << 16 };
static const double FD_STEP = 1e-5, FD_TOLERANCE = 1e-6;
// As for values, see attn-oracle.c.
static const double CONDITION_MARGIN = 4, ILL = 0.3;
// A value is rounded when it is made, and when it is an operand.
static const double ROUNDING_MARGIN = 2;
// Terms that cancel leave what each was rounded by, and code's are others than
// the oracle's, which may cancel twice: in a softmax and in its maximum, which
// has no gradient in code. Where code multiplies terms by a row's factors
// before they cancel, all keys of the row share what that rounds.
static const double CANCEL_MARGIN = 32;
// How often all is disturbed: a score that is so near a bend is beyond it in
// some.
enum { DRAWS = 6 };

// A run whose floats are f64, with weights of the outputs.
typedef struct Grad {
  Run *r;
  OracleArg args[MAX_ARGS];
  int64_t dims[MAX_DIMS];
  const double *weights[MAX_ARGS];
  uint64_t n;
  OracleSeed *seeds;
  double *slopes;
  bool *read;
  double rounding;  // of the values, in draw `draw`
  int draw;
  bool still;                               // maxima have no derivative
  double allow[MAX_ARGS], floor[MAX_ARGS];  // of each input's gradient
  double scale[MAX_ARGS];  // what elements would be if nothing cancelled
} Grad;

static double *random_like(const Run *r, const InterpTensor *t,
                           const char *name, uint64_t seed) {
  Gen g = gen_default(GK_NORMAL);
  g.seed = seed;
  double *x = run_storage((Run *)r, DT_F64, run_count(t));
  gen_fill(&r->cx->scratch, &g, name, DT_F64, run_count(t), x);
  return x;
}

// Each wrong by up to u of itself.
static double *disturbed(const Run *r, double *x, int64_t n, double u,
                         int draw) {
  double *by = NEWN(&r->cx->session, double, n + 1);
  Gen g = gen_default(GK_UNIFORM);
  g.seed = r->seed + 1000 * (uint64_t)draw;
  g.arg[0] = -u, g.arg[1] = u;
  gen_fill(&r->cx->scratch, &g, "weights", DT_F64, n, by);
  for (int64_t i = 0; i < n; i++) x[i] *= 1 + by[i];
  return x;
}

// The cotangent of output i, of its type: that which `attnc run` makes.
static double *cotangent(const Run *r, uint32_t i) {
  const ValueInfo *v = ir_info(r->f, r->f->params.at[i].v);
  const char *name = arena_printf(&r->cx->session, "d_%s", v->hint);
  double *x = random_like(r, &r->args[i], name, r->seed);
  for (int64_t k = 0; k < run_count(&r->args[i]); k++)
    x[k] = dtype_round(v->type.dtype, x[k]);
  return x;
}

static bool is_output(const Run *r, uint32_t i) {
  ParamRole role = r->f->params.at[i].role;
  return role == PR_OUT || role == PR_INOUT;
}

// The values of t as f64.
static double *as_f64(Run *r, const InterpTensor *t) {
  int64_t n = run_count(t);
  double *x = run_storage(r, DT_F64, n);
  for (int64_t k = 0; k < n; k++) x[k] = run_at(t->dtype, t->data, k);
  return x;
}

// `inout` tensors of floats are f64 as inputs are.
static void widen_inouts(Run *r) {
  for (uint32_t i = 0; i < r->f->params.n; i++) {
    InterpTensor *t = &r->args[i];
    if (r->f->params.at[i].role != PR_INOUT || !dtype_is_float(t->dtype))
      continue;
    t->data = as_f64(r, t);
    t->dtype = DT_F64;
  }
}

// u: what inputs and weights are wrong by, in this draw.
static Grad *new_grad(Run *r, double u, int draw) {
  Grad *g = NEW(&r->cx->session, Grad);
  g->r = r;
  g->draw = draw;
  uint64_t seed = r->seed;
  run_dims(r, g->dims);
  r->seed += 1000 * (uint64_t)draw;
  run_disturb(r, u);
  r->seed = seed;
  widen_inouts(r);
  for (uint32_t i = 0; i < r->f->params.n; i++) {
    const InterpTensor *t = &r->args[i];
    OracleArg *a = &g->args[i];
    *a = (OracleArg){.dtype = t->dtype,
                     .rank = t->rank,
                     .data = t->data,
                     .scalar = t->scalar,
                     .given = t->given};
    memcpy(a->shape, t->shape, sizeof a->shape);
    memcpy(a->stride, t->stride, sizeof a->stride);
    if (is_output(r, i) && t->dtype == DT_F64)
      g->weights[i] = disturbed(r, cotangent(r, i), run_count(t), u, draw);
  }
  g->seeds = NEWN(&r->cx->session, OracleSeed, MAX_SEEDS);
  return g;
}

static void add_element(Grad *g, uint32_t arg, int64_t i) {
  const InterpTensor *t = &g->r->args[arg];
  if (g->n == MAX_SEEDS) return;
  OracleSeed *s = &g->seeds[g->n++];
  s->arg = arg;
  for (uint32_t k = t->rank; k-- > 0;) {
    s->at[k] = i % t->shape[k];
    i /= t->shape[k];
  }
}

// From one element that is looked at to the next.
static int64_t step_of(const Options *o, int64_t n) {
  int64_t most = o->fd ? 7 : o->elements;
  return most <= 0 || n <= most ? 1 : n / most;
}

// All elements; or the corners, some between them, and one direction.
static void add_seeds(Grad *g, uint32_t arg) {
  const InterpTensor *t = &g->r->args[arg];
  int64_t n = run_count(t), step = step_of(g->r->o, n);
  for (int64_t i = 0; i < n; i += step) add_element(g, arg, i);
  if (!g->r->o->fd || !t->rank) return;
  add_element(g, arg, n - 1);
  if (g->n == MAX_SEEDS) return;
  g->seeds[g->n++] =
      (OracleSeed){.arg = arg,
                   .along = random_like(g->r, t, "along", g->r->seed)};
}

// Whether the gradient of an input was asked for.
static bool wanted(const Run *r, uint32_t i) {
  const FuncParam *p = &r->f->params.at[i];
  const char *name = ir_info(r->f, p->v)->hint, *list = r->o->grad;
  size_t n = strlen(name);
  if ((p->role != PR_IN && p->role != PR_INOUT) || p->nograd ||
      !dtype_is_float(r->args[i].dtype))
    return false;
  for (const char *q = list; q; q = strchr(q, ',')) {
    q += *q == ',';
    if (!strncmp(q, name, n) && (q[n] == ',' || !q[n])) return true;
  }
  return !*list;
}

static void add_inputs(Grad *g) {
  for (uint32_t i = 0; i < g->r->f->params.n; i++)
    if (wanted(g->r, i)) add_seeds(g, i);
  g->slopes = NEWN(&g->r->cx->session, double, g->n + 1);
  g->read = NEWN(&g->r->cx->session, bool, g->n + 1);
}

static bool dual_slopes(Grad *g) {
  OracleSlopes want = {.weights = g->weights,
                       .seeds = g->seeds,
                       .n = g->n,
                       .slopes = g->slopes,
                       .read = g->read,
                       .rounding = g->rounding,
                       .draw = (uint64_t)g->draw};
  return oracle_slopes(g->r->cx, g->r->d, g->args, g->dims, NULL, &want);
}

// The outputs where the seed's input has moved by `by`.
static bool moved(const Grad *g, const OracleSeed *s, double by, double **out) {
  Run *r = g->r;
  OracleArg args[MAX_ARGS];
  memcpy(args, g->args, sizeof args);
  OracleArg *a = &args[s->arg];
  int64_t off = 0, n = run_count(&r->args[s->arg]);
  double *x = run_storage(r, DT_F64, n);
  if (a->rank) memcpy(x, a->data, sizeof(double) * (size_t)n);
  for (uint32_t k = 0; k < a->rank; k++) off += s->at[k] * a->stride[k];
  for (int64_t i = 0; i < n; i++)
    x[i] += by * (s->along ? s->along[i] : i == off);
  a->scalar += by;
  if (a->rank) a->data = x;
  for (uint32_t i = 0; i < r->f->params.n; i++) {
    if (!g->weights[i]) continue;
    int64_t count = run_count(&r->args[i]);
    out[i] = run_storage(r, DT_F64, count);
    memcpy(out[i], args[i].data, sizeof(double) * (size_t)count);
    args[i].data = out[i];
  }
  return oracle_run(r->cx, r->d, args, g->dims, NULL);
}

// By differences of fourth order.
static bool difference(const Grad *g, const OracleSeed *s, double *slope) {
  static const double at[4] = {1, -1, 2, -2},
                      by[4] = {8 / 12., -8 / 12., -1 / 12., 1 / 12.};
  double *out[4][MAX_ARGS];
  *slope = 0;
  for (int k = 0; k < 4; k++)
    if (!moved(g, s, at[k] * FD_STEP, out[k])) return false;
  for (uint32_t i = 0; i < g->r->f->params.n; i++)
    for (int64_t e = 0; g->weights[i] && e < run_count(&g->r->args[i]); e++) {
      double d = 0, first = out[0][i][e];
      if (isinf(first) && out[1][i][e] == first) continue;  // it stays there
      for (int k = 0; k < 4; k++) d += by[k] * out[k][i][e];
      *slope += g->weights[i][e] * d / FD_STEP;
    }
  return true;
}

static bool compare_slopes(const Grad *g) {
  double sq = 0, tol = fmax(g->r->o->tol, FD_TOLERANCE);
  bool ok = true;
  for (uint64_t i = 0; i < g->n; i++)
    if (isfinite(g->slopes[i])) sq += g->slopes[i] * g->slopes[i];
  double rms = sqrt(sq / (double)(g->n ? g->n : 1));
  for (uint64_t i = 0; i < g->n && ok; i++) {
    const OracleSeed *s = &g->seeds[i];
    double d;
    if (!difference(g, s, &d)) return false;
    ok = fabs(d - g->slopes[i]) <= tol * (fabs(d) + rms) ||
         (isnan(d) && isnan(g->slopes[i]));
    if (!ok)
      printf("%s: %s: dual %.9g, differences %.9g\n", g->r->d->name,
             ir_info(g->r->f, g->r->f->params.at[s->arg].v)->hint, g->slopes[i],
             d);
  }
  if (ok)
    printf("%s: %llu slopes agree, rms %.3g\n", g->r->d->name,
           (unsigned long long)g->n, rms);
  return ok;
}

static void print_slopes(const Grad *g) {
  for (uint64_t i = 0; i < g->n; i++) {
    const OracleSeed *s = &g->seeds[i];
    printf("g_%s[", ir_info(g->r->f, g->r->f->params.at[s->arg].v)->hint);
    for (uint32_t k = 0; k < g->args[s->arg].rank; k++)
      printf("%s%lld", k ? ", " : "", (long long)s->at[k]);
    printf("] %.9g\n", g->slopes[i]);
  }
}

// ---------------------------------------------------------------- code
// "Q,K": tensors whose elements are seeds.
static const char *seeded(const Grad *g) {
  Buf b = {.arena = &g->r->cx->session};
  int last = -1;
  for (uint64_t i = 0; i < g->n; i++) {
    const OracleSeed *s = &g->seeds[i];
    if ((int)s->arg == last || !g->args[s->arg].rank) continue;
    last = (int)s->arg;
    buf_printf(&b, "%s%s", b.n ? "," : "",
               ir_info(g->r->f, g->r->f->params.at[s->arg].v)->hint);
  }
  return b.n ? b.at : "";
}

static Run *part(const Grad *g, bool gradient) {
  Ctx *cx = g->r->cx;
  Decl *d = NEW(&cx->session, Decl);
  Derived *how = NEW(&cx->session, Derived);
  *d = *g->r->d;
  *how = (Derived){.of = (Decl *)g->r->d,
                   .inputs = seeded(g),
                   .gradient = gradient};
  d->derived = how;
  if (gradient)
    d->name =
        intern(&cx->names, arena_printf(&cx->session, "%s_grad", d->name));
  Module *m = run_lower(cx, g->r->o, d);
  Run *r = m ? run_new(cx, g->r->o, d, m, 0) : NULL;
  if (r) r->seed = g->r->seed;
  return r && r->f && run_bind(r) ? r : NULL;
}

static void copy(InterpTensor *to, DType t, const void *from) {
  for (int64_t i = 0; i < run_count(to); i++)
    dtype_store(to->dtype, (char *)to->data + i * dtype_size(to->dtype),
                run_at(t, from, i));
}

// What the gradient reads beside inputs, which are the same by their names.
static void connect(const Grad *g, const Run *f, Run *b) {
  for (uint32_t i = 0; i < b->f->params.n; i++) {
    const char *name = ir_info(b->f, b->f->params.at[i].v)->hint;
    int out = run_find_arg(f, name), cot = -1;
    if (out < 0 && !strncmp(name, "d_", 2)) cot = run_find_arg(g->r, name + 2);
    if (out >= 0 && f->f->params.at[out].role == PR_OUT)
      copy(&b->args[i], f->args[out].dtype, f->args[out].data);
    if (cot >= 0 && g->weights[cot]) copy(&b->args[i], DT_F64, g->weights[cot]);
  }
}

// Where lengths or pages leave a part of a tensor unused, no gradient is
// written there.
static bool may_be_padding(const Run *r, uint32_t arg) {
  const Param *p = &r->d->params.at[arg];
  if (p->layout && p->layout->kind == LAY_PAGED) return true;
  for (uint32_t i = 0; i < p->sym->ty.rank; i++) {
    const DimExpr *e = &r->d->dims->exprs.at[p->sym->ty.shape[i]];
    if (e->op == DIM_SYM && r->d->dims->syms.at[e->value].kind == DIM_RAGGED)
      return true;
  }
  return false;
}

// What a gradient of input `arg` is compared with: elements at the seeds.
typedef struct Reference {
  int64_t *at;
  double *want;
  int64_t n;
  double rms;
} Reference;

static Reference reference(const Grad *g, uint32_t arg) {
  const InterpTensor *t = &g->r->args[arg];
  Arena *a = &g->r->cx->session;
  Reference ref = {NEWN(a, int64_t, g->n + 1), NEWN(a, double, g->n + 1), 0, 0};
  bool padding = may_be_padding(g->r, arg);
  double sq = 0;
  for (uint64_t i = 0; i < g->n; i++) {
    const OracleSeed *s = &g->seeds[i];
    if (s->arg != arg || s->along || (padding && !g->read[i])) continue;
    int64_t at = 0;
    for (uint32_t k = 0; k < t->rank; k++) at = at * t->shape[k] + s->at[k];
    ref.at[ref.n] = at;
    ref.want[ref.n++] = g->slopes[i];
    if (isfinite(g->slopes[i])) sq += g->slopes[i] * g->slopes[i];
  }
  ref.rms = ref.n ? sqrt(sq / (double)ref.n) : 0;
  return ref;
}

// |x - want| of one element, beside what it may be.
static double error_of(double x, double want, double rms, double floor) {
  if (x == want || (isnan(x) && isnan(want))) return 0;
  if (!isfinite(x) || !isfinite(want)) return (double)INFINITY;
  double scale = fabs(want) + rms, d = fmax(fabs(x - want) - floor, 0);
  return d == 0 ? 0 : d / (scale > 0 ? scale : 1);
}

// The gradient of input `arg` in b.
static bool compare_gradient(const Grad *g, const Run *b, uint32_t arg) {
  const Run *r = g->r;
  const char *name = ir_info(r->f, r->f->params.at[arg].v)->hint;
  int at = run_find_arg(b, arena_printf(&r->cx->session, "g_%s", name));
  if (at < 0) return true;
  const InterpTensor *t = &b->args[at];
  Reference ref = reference(g, arg);
  double e = 0, tol = fmax(r->o->tol, g->allow[arg]);
  for (int64_t k = 0; k < ref.n; k++) {
    double x = run_at(t->dtype, t->data, ref.at[k]);
    e = fmax(e, error_of(x, ref.want[k], ref.rms, g->floor[arg]));
    if (r->o->print)
      printf("g_%s[%lld] %.9g %.9g\n", name, (long long)ref.at[k], x,
             ref.want[k]);
  }
  if (e <= tol) return true;
  printf("%s: g_%s differs: %.3g > %.3g\n", r->d->name, name, e, tol);
  return false;
}

// ---------------------------------------------------------------- condition
static double norm_of(const InterpTensor *t) {
  double sq = 0;
  for (int64_t i = 0; i < run_count(t); i++) {
    double x = run_at(t->dtype, t->data, i);
    if (isfinite(x)) sq += x * x;
  }
  return sqrt(sq);
}

// The part of an input's elements that the program reads, of those looked at.
static double share_read(const Grad *g, uint32_t arg) {
  double n = 0, all = 0;
  for (uint64_t i = 0; i < g->n; i++) {
    if (g->seeds[i].arg != arg || g->seeds[i].along) continue;
    all++;
    n += g->read[i];
  }
  return n > 0 ? n / all : 1;
}

// What the values that cotangents weigh come to, divided among the elements of
// each input that are read: so large would a gradient's elements be whose terms
// did not cancel.
static bool set_scales(Grad *g) {
  double *out[MAX_ARGS] = {0}, most = 0;
  if (!g->n || !moved(g, &g->seeds[0], 0, out)) return g->n == 0;
  for (uint32_t i = 0; i < g->r->f->params.n; i++) {
    int64_t n = out[i] ? run_count(&g->r->args[i]) : 0;
    double sq = 0, w = 0;
    for (int64_t e = 0; e < n; e++) {
      if (isfinite(out[i][e])) sq += out[i][e] * out[i][e];
      w += g->weights[i][e] * g->weights[i][e];
    }
    most = fmax(most, sqrt(sq * w));
  }
  for (uint32_t i = 0; i < g->r->f->params.n; i++) {
    if (!wanted(g->r, i) || !g->args[i].rank) continue;
    double n = (double)run_count(&g->r->args[i]);
    double norm = norm_of(&g->r->args[i]);
    double part = share_read(g, i);
    g->scale[i] = most / (norm > 0 ? norm : 1) / sqrt(part * (n * part + 1));
  }
  return true;
}

// The most that a gradient differs by in gradients of disturbed inputs, beside
// what it is, and as it is.
static double most_of(const Grad *g, Grad *const *wrong, uint32_t arg,
                      double *floor) {
  Reference a = reference(g, arg);
  double e = *floor = 0;
  for (int k = 0; k < DRAWS; k++) {
    Reference b = reference(wrong[k], arg);
    for (int64_t i = 0; i < a.n; i++) {
      double d = fabs(b.want[i] - a.want[i]);
      e = fmax(e, error_of(b.want[i], a.want[i], a.rms, 0));
      if (isfinite(d)) *floor = fmax(*floor, d);
    }
  }
  return e;
}

// What gradients may differ by. False for a program that is ill conditioned.
static bool set_condition(Grad *g, Grad *const *wrong) {
  bool ok = true;
  for (uint32_t i = 0; i < g->r->f->params.n; i++) {
    if (!wanted(g->r, i) || !g->args[i].rank) continue;
    g->allow[i] = most_of(g, wrong, i, &g->floor[i]);
    bool cancels = g->allow[i] > ILL || reference(g, i).rms == 0;
    if (cancels) {
      double least = ROUNDING_MARGIN * g->r->o->condition * g->scale[i];
      g->allow[i] = 0;
      g->floor[i] = CANCEL_MARGIN * fmax(g->floor[i], least);
    }
    printf("%s: g_%s may differ by %.3g, or %.3g\n", g->r->d->name,
           ir_info(g->r->f, g->r->f->params.at[i].v)->hint,
           fmax(g->r->o->tol, g->allow[i]), g->floor[i]);
    ok &= !cancels || g->floor[i] <= ILL * g->scale[i];
  }
  if (!ok) printf("%s: ill conditioned\n", g->r->d->name);
  return ok;
}

static bool compare_code(const Grad *g) {
  Run *f = part(g, false), *b = f && run_interp(f) ? part(g, true) : NULL;
  if (!b) return false;
  connect(g, f, b);
  if (!run_interp(b)) return false;
  bool ok = true;
  for (uint32_t i = 0; i < g->r->f->params.n; i++)
    if (wanted(g->r, i) && g->args[i].rank)
      ok = compare_gradient(g, b, i) && ok;
  if (ok) printf("%s: same gradients\n", g->r->d->name);
  return ok;
}

// The oracle's gradients of run i; of a draw inputs, weights and values are
// wrong.
static Grad *slopes_of(Ctx *cx, const Options *o, Decl *d, int i, int draw) {
  double u = draw ? CONDITION_MARGIN * o->condition : 0;
  Options plain = *o;
  plain.target = NULL;
  plain.passes = NULL;
  Module *m = run_lower(cx, &plain, d);
  Run *r = m ? run_new(cx, o, d, m, i) : NULL;
  Grad *g = r && run_bind(r) ? new_grad(r, u, draw) : NULL;
  if (!g) return NULL;
  add_inputs(g);
  if (draw) g->rounding = ROUNDING_MARGIN * o->condition;
  return dual_slopes(g) ? g : NULL;
}

// What the gradients g of run i may differ by.
static bool condition(Ctx *cx, const Options *o, Decl *d, int i, Grad *g) {
  Grad *wrong[DRAWS];
  if (!set_scales(g)) return false;
  for (int k = 0; k < DRAWS; k++)
    if (!(wrong[k] = slopes_of(cx, o, d, i, k + 1))) return false;
  return set_condition(g, wrong);
}

static bool on_target(const Options *o, void *data) {
  Grad *g = data;
  g->r->o = o;
  return compare_code(g);
}

static bool on_targets(Ctx *cx, Grad *g) {
  const Options *o = g->r->o;
  bool ok = true;
  for (uint32_t i = 0; i < o->ntargets; i++) {
    Options one = *o;
    one.target = o->targets[i];
    ok = run_apart(cx, &one, g->r->d, on_target, g) && ok;
  }
  g->r->o = o;
  return ok;
}

bool run_grad(Ctx *cx, const Options *o, Decl *d) {
  for (int i = 0; i < o->runs; i++) {
    Grad *g = slopes_of(cx, o, d, i, 0);
    if (!g || (o->fd && !compare_slopes(g))) return false;
    if (o->condition > 0 && !condition(cx, o, d, i, g)) return false;
    bool apart = o->ntargets > 1 || o->condition > 0;
    bool code = o->target || o->passes;
    if (apart && !on_targets(cx, g)) return false;
    if ((!apart || o->passes) && code && !compare_code(g)) return false;
    if (!o->fd && !code && !apart) print_slopes(g);
  }
  return true;
}
