// attn-oracle: runs the programs of a .attn file twice on random inputs, by the
// oracle (the syntax tree in f64) and by the interpreter on the lowered module,
// and compares the outputs.
//
//   attn-oracle f.attn --dim=B=2,Sq=5 --in=cu=offsets(0,4) --passes=inline
//   attn-oracle f.attn --dim=T=bf16 --target=sm_80 --runs=5     by waves
//   attn-oracle f.attn --target=sm_80 --target=gfx942 --condition=0.002
//       each in a process of its own, beside one run of the oracle; tolerances
//       follow from what inputs that are wrong by 0.002 change
//   attn-oracle f.attn --grad=Q,K      gradients by dual numbers, printed
//   attn-oracle f.attn --grad=Q,K --fd       compared with differences
//   attn-oracle f.attn --grad=Q,K --target=sm_80   those of the compiled one
#include "tools/attn-oracle/run.h"

#include "ir/layout.h"
#include "passes/pass.h"
#include "passes/support/clusters.h"
#include "passes/support/cost.h"
#include "passes/support/relief.h"
#include "tools/driver/run/gen.h"
#include "tools/plan/plan.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PROGRAMS = 64, MAX_DRAWS = 8 };
// What inputs that are wrong by --condition change, times this, is allowed; and
// programs that would need more than the second number are not judged.
static const double CONDITION_MARGIN = 4, ILL = 0.1;

static const char usage[] =
    "usage: attn-oracle FILE.attn [options]\n"
    "  --fn=NAME          program (default: all)\n"
    "  --dim=A=1,T=f16    values of dims (default 3, const: the least)\n"
    "  --in=NAME=GEN(a,b) input generator (see attn-run)\n"
    "  --passes=a,b       after lowering (default inline,canon,cse,dce;\n"
    "                     with --target: its pipeline)\n"
    "  --target=NAME --tile-q=N --tile-k=N   for the passes; several targets:\n"
    "                     each runs in a process of its own\n"
    "  --relief=LEVEL     GPUs: all kernels as where ptxas would spill\n"
    "                     (passes/support/relief.h)\n"
    "  --few              GPUs: then the code that calls with few rows take, and\n"
    "                     that with clusters\n"
    "  --condition=U      also allow 4 times what inputs wrong by U change\n"
    "  --draws=N          of N draws of what is wrong, if not more\n"
    "  --limit=SECONDS    of the processor, for each of several targets\n"
    "  --strides=HOW      of tensors, which the code takes any of: gaps\n"
    "                     between all elements, back (gaps, and elements lie\n"
    "                     in front of the first), same (gaps, and along one\n"
    "                     axis of a float input all are one: stride 0)\n"
    "  --mutant           GPUs: fragments lie wrongly; that must be noticed\n"
    "  --grad[=Q,K]       print the oracle's gradients, all elements\n"
    "  --elements=N       with --grad: of N elements of each input\n"
    "  --fd               with --grad: compare some elements and a direction\n"
    "                     with central differences of the oracle; with\n"
    "                     --target or --passes: the gradient's code with it\n"
    "  --runs=N --seed=N --tol=X --round --print    as attn-run\n"
    "  -I DIR\n";

// ---------------------------------------------------------------- options
// PassOpt.relief with this level for every function.
static bool read_relief(const char *text, Options *o) {
  long level = strtol(text, NULL, 10);
  o->relief = 0;
  for (int i = 0; i < RELIEF_FUNCS; i++)
    o->relief |= (int64_t)level << (RELIEF_BITS * i);
  return level >= 0 && level < RELIEF_LEVELS;
}

static bool starts(const char *s, const char *p, const char **rest) {
  size_t n = strlen(p);
  *rest = s + n;
  return strncmp(s, p, n) == 0;
}

static bool read_strides(const char *how, Options *o) {
  bool back = !strcmp(how, "back");
  o->same = !strcmp(how, "same");
  o->strided = back || o->same || !strcmp(how, "gaps");
  o->step = back ? -3 : 3;
  return o->strided;
}

static bool read_options(Ctx *cx, int argc, char **argv, Options *o) {
  bool ok = true;
  *o = (Options){.runs = 1, .seed = 1, .tol = 1e-9, .step = 1};
  for (int i = 1; i < argc; i++) {
    const char *v;
    if (starts(argv[i], "--fn=", &v)) o->fn = v;
    else if (starts(argv[i], "--dim=", &v) && o->ndims < MAX_DIMS)
      o->dims[o->ndims++] = v;
    else if (starts(argv[i], "--in=", &v) && o->nins < MAX_ARGS)
      o->ins[o->nins++] = v;
    else if (starts(argv[i], "--passes=", &v)) o->passes = v;
    else if (starts(argv[i], "--target=", &v) && target_by_name(v) &&
             o->ntargets < MAX_TARGETS)
      o->target = o->targets[o->ntargets++] = target_by_name(v);
    else if (starts(argv[i], "--condition=", &v)) o->condition = atof(v);
    else if (starts(argv[i], "--draws=", &v)) o->draws = atoi(v);
    else if (starts(argv[i], "--limit=", &v)) o->limit = (uint32_t)atoi(v);
    else if (starts(argv[i], "--tile-q=", &v)) o->tile_q = atoll(v);
    else if (starts(argv[i], "--tile-k=", &v)) o->tile_k = atoll(v);
    else if (starts(argv[i], "--relief=", &v)) ok &= read_relief(v, o);
    else if (!strcmp(argv[i], "--few")) o->few = true;
    else if (!strcmp(argv[i], "--mutant")) o->mutant = true;
    else if (starts(argv[i], "--grad=", &v)) o->grad = v;
    else if (!strcmp(argv[i], "--grad")) o->grad = "";
    else if (starts(argv[i], "--elements=", &v)) o->elements = atoll(v);
    else if (!strcmp(argv[i], "--fd")) o->fd = true;
    else if (starts(argv[i], "--strides=", &v)) ok &= read_strides(v, o);
    else if (starts(argv[i], "--runs=", &v)) o->runs = atoi(v);
    else if (starts(argv[i], "--seed=", &v)) o->seed = strtoull(v, NULL, 0);
    else if (starts(argv[i], "--tol=", &v)) o->tol = atof(v);
    else if (!strcmp(argv[i], "--round")) o->round = true;
    else if (!strcmp(argv[i], "--print")) o->print = true;
    else if (!strcmp(argv[i], "-I") && i + 1 < argc)
      vec_push(&cx->session, &cx->include_dirs, argv[++i]);
    else if (argv[i][0] == '-') return false;
    else o->file = argv[i];
  }
  // Gradients are of dense tensors.
  return ok && o->file != NULL && !(o->grad && o->strided);
}

// What --dim says of name, or NULL.
static const char *dim_option(const Options *o, const char *name) {
  size_t n = strlen(name);
  for (uint32_t i = 0; i < o->ndims; i++)
    for (const char *p = o->dims[i]; p && *p; p = p ? p + 1 : NULL) {
      if (!strncmp(p, name, n) && p[n] == '=') return p + n + 1;
      p = strchr(p, ',');
      if (!p) break;
    }
  return NULL;
}

static Gen generator(const Run *r, const char *name, DType t) {
  Gen g = gen_default(dtype_is_float(t) ? GK_NORMAL : GK_RANDINT);
  size_t n = strlen(name);
  if (!dtype_is_float(t)) {
    g.arg[0] = 0;
    g.arg[1] = 3;
  }
  for (uint32_t i = 0; i < r->o->nins; i++) {
    const char *s = r->o->ins[i];
    if (strncmp(s, name, n) || s[n] != '=') continue;
    s += n + 1;
    GenKind k;
    if (!gen_by_name(s, (uint32_t)strcspn(s, "("), &k)) continue;
    g = gen_default(k);
    s = strchr(s, '(');
    for (int j = 0; s && j < 2 && *s && *s != ')'; j++) {
      char *end;
      g.arg[j] = strtod(s + 1, &end);
      s = end;
    }
  }
  g.seed = r->seed;
  return g;
}

// ---------------------------------------------------------------- binding
static void bind_dims(Run *r) {
  const DimTab *t = &r->f->mod->dims;
  for (uint32_t i = 0; i < t->syms.n && i < MAX_DIMS; i++) {
    const char *v = dim_option(r->o, t->syms.at[i].name);
    r->dims[i] = v                        ? atoll(v)
                 : t->syms.at[i].values.n ? t->syms.at[i].values.at[0]
                                          : 3;
  }
}

double run_at(DType t, const void *data, int64_t i) {
  return dtype_load(t, (const char *)data + i * dtype_size(t));
}

int64_t run_count(const InterpTensor *t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t->rank; i++) n *= t->shape[i];
  return n;
}

static size_t bytes_of(const Run *r, DType t, int64_t n) {
  int64_t step = r->o->step;
  return (size_t)(n * (step < 0 ? -step : step)) * (size_t)dtype_size(t);
}

// From the first byte of n elements to element 0.
static size_t start_of(const Run *r, DType t, int64_t n) {
  return r->o->step < 0 && n ? bytes_of(r, t, n - 1) : 0;
}

void *run_storage(Run *r, DType t, int64_t n) {
  char *data = arena_alloc(&r->cx->session, bytes_of(r, t, n) + 16);
  return data + start_of(r, t, n);
}

static void *copy_of(Run *r, DType t, int64_t n, const void *data) {
  char *to = run_storage(r, t, n);
  size_t start = start_of(r, t, n);
  memcpy(to - start, (const char *)data - start, bytes_of(r, t, n));
  return to;
}

// Puts dense values where they belong.
static void spread(const Run *r, const InterpTensor *t, int64_t n,
                   const char *dense) {
  int64_t size = dtype_size(t->dtype);
  for (int64_t i = 0; i < n; i++)
    memcpy((char *)t->data + i * r->o->step * size, dense + i * size,
           (size_t)size);
}

// Outputs are f64, so that only their values are compared.
static bool bind_arg(Run *r, uint32_t i) {
  const FuncParam *p = &r->f->params.at[i];
  const ValueInfo *v = ir_info(r->f, p->v);
  InterpTensor *t = &r->args[i];
  const char *name = v->hint;
  *t = (InterpTensor){.dtype = v->type.dtype, .given = true};
  Gen g = generator(r, name, t->dtype);
  if (v->type.kind != TK_TENSOR) {
    gen_fill(&r->cx->scratch, &g, name, DT_F64, 1, &t->scalar);
    t->scalar = dtype_round(t->dtype, t->scalar);
    return true;
  }
  t->rank = v->type.n;
  int64_t n = 1;
  for (uint32_t k = t->rank; k-- > 0;) {
    if (!dim_eval(&r->f->mod->dims, v->type.size[k], r->dims, &t->shape[k]))
      return false;
    t->stride[k] = n * r->o->step;
    n *= t->shape[k];
  }
  if (p->role == PR_OUT && dtype_is_float(t->dtype)) t->dtype = DT_F64;
  if (n < 0 || n > 1 << 24 || gen_check(&g, n)) return false;
  t->data = run_storage(r, t->dtype, n);
  if (p->role == PR_OUT) return true;
  char *dense =
      arena_alloc(&r->cx->session, (size_t)(n + 1) * dtype_size(t->dtype));
  gen_fill(&r->cx->scratch, &g, name, t->dtype, n, dense);
  spread(r, t, n, dense);
  if (r->o->same && p->role == PR_IN && t->rank && dtype_is_float(t->dtype))
    t->stride[i % t->rank] = 0;
  return true;
}

int run_find_arg(const Run *r, const char *name) {
  for (uint32_t i = 0; i < r->f->params.n; i++)
    if (strcmp(ir_info(r->f, r->f->params.at[i].v)->hint, name) == 0)
      return (int)i;
  return -1;
}

// Ragged dims and totals follow from the lengths or offsets.
static bool bind_ragged(Run *r) {
  const DimTab *t = &r->f->mod->dims;
  for (uint32_t i = 0; i < t->syms.n; i++) {
    const DimSym *s = &t->syms.at[i];
    int by = s->kind == DIM_RAGGED ? run_find_arg(r, s->by) : -1;
    if (by < 0) continue;
    if (!bind_arg(r, (uint32_t)by)) return false;
    InterpTensor *len = &r->args[by];
    uint32_t total;
    char *name = arena_printf(&r->cx->session, "%s_total", s->name);
    bool offsets = dim_find_sym(t, intern(&r->cx->names, name), &total);
    int64_t n = run_count(len), most = 0, step = r->o->step;
    for (int64_t k = 0; k + offsets < n; k++) {
      double l = run_at(len->dtype, len->data, (k + offsets) * step);
      if (offsets) l -= run_at(len->dtype, len->data, k * step);
      if ((int64_t)l > most) most = (int64_t)l;
    }
    if (!dim_option(r->o, s->name)) r->dims[i] = most;
    if (offsets)
      r->dims[total] = (int64_t)run_at(len->dtype, len->data, (n - 1) * step);
  }
  return true;
}

// ---------------------------------------------------------------- running
// The module's dims as the program has them.
void run_dims(const Run *r, int64_t *dims) {
  const DimTab *t = r->d->dims, *m = &r->f->mod->dims;
  for (uint32_t i = 0; i < t->syms.n && i < MAX_DIMS; i++) {
    uint32_t s;
    const char *v = dim_option(r->o, t->syms.at[i].name);
    if (dim_find_sym(m, t->syms.at[i].name, &s)) dims[i] = r->dims[s];
    else if (v) dims[i] = atoll(v);
    else dims[i] = t->syms.at[i].values.n ? t->syms.at[i].values.at[0] : 3;
  }
}

static bool run_oracle(Run *r) {
  OracleArg *args = NEWN(&r->cx->session, OracleArg, MAX_ARGS);
  int64_t dims[MAX_DIMS] = {0};
  run_dims(r, dims);
  for (uint32_t i = 0; i < r->f->params.n; i++) {
    const InterpTensor *from = &r->args[i];
    int64_t n = run_count(from);
    args[i] = (OracleArg){.dtype = from->dtype,
                          .rank = from->rank,
                          .scalar = from->scalar,
                          .given = from->given};
    memcpy(args[i].shape, from->shape, sizeof args[i].shape);
    memcpy(args[i].stride, from->stride, sizeof args[i].stride);
    if (!from->data) continue;
    bool shared = r->f->params.at[i].role == PR_IN;
    args[i].data = shared ? from->data : copy_of(r, from->dtype, n, from->data);
    r->want[i] = args[i].data;
  }
  return oracle_run(r->cx, r->d, args, dims, NULL);
}

double run_error(const InterpTensor *x, const void *want, int64_t step) {
  int64_t n = run_count(x);
  double sq = 0, worst = 0;
  for (int64_t i = 0; i < n; i++) {
    double v = run_at(x->dtype, want, i * step);
    if (isfinite(v)) sq += v * v;
  }
  double rms = n ? sqrt(sq / (double)n) : 0;
  for (int64_t i = 0; i < n; i++) {
    double a = run_at(x->dtype, x->data, i * step);
    double b = run_at(x->dtype, want, i * step);
    if (a == b || (isnan(a) && isnan(b))) continue;
    if (!isfinite(a) || !isfinite(b)) return (double)INFINITY;
    double scale = fabs(b) + rms;
    worst = fmax(worst, fabs(a - b) / (scale > 0 ? scale : 1));
  }
  return worst;
}

static bool compare(const Run *r) {
  bool ok = true;
  for (uint32_t i = 0; i < r->f->params.n; i++) {
    ParamRole role = r->f->params.at[i].role;
    const InterpTensor *t = &r->args[i];
    const char *name = ir_info(r->f, r->f->params.at[i].v)->hint;
    if (role != PR_OUT && role != PR_INOUT) continue;
    if (r->o->print)
      for (int64_t k = 0; k < run_count(t); k++)
        printf("%s[%lld] %.9g %.9g\n", name, (long long)k,
               run_at(t->dtype, t->data, k * r->o->step),
               run_at(t->dtype, r->want[i], k * r->o->step));
    double e = run_error(t, r->want[i], r->o->step);
    double tol = fmax(r->o->tol, r->allow[i]);
    if (e <= tol) continue;
    printf("%s: %s differs: %.3g > %.3g\n", r->d->name, name, e, tol);
    ok = false;
  }
  return ok;
}

// The first two digits of the threads change places.
static const char *wrong_map(const Type *t, uint32_t threads, FragMap *out) {
  const char *err = frag_map(t, threads, out);
  Factor f = out->thr[0];
  if (!err && out->nthr > 1) out->thr[0] = out->thr[1], out->thr[1] = f;
  return err;
}

bool run_bind(Run *r) {
  bind_dims(r);
  bool ok = r->f->params.n <= MAX_ARGS && bind_ragged(r);
  for (uint32_t i = 0; i < r->f->params.n && ok; i++)
    ok = r->args[i].data || bind_arg(r, i);
  if (!ok)
    fprintf(stderr, "attn-oracle: inputs of '%s' cannot be made\n", r->d->name);
  return ok;
}

// `known`: a run whose outputs of the oracle are these, or NULL.
bool run_interp(Run *r) {
  InterpOpt opt = {.round = r->o->round,
                   .seed = r->seed,
                   .poison = true,
                   .map = r->o->mutant ? wrong_map : NULL};
  return ir_interp(r->cx, r->f->mod, r->f->name, r->args, r->dims, &opt);
}

static bool run_once(Run *r, const Run *known) {
  if (!run_bind(r)) return false;
  if (known) {
    memcpy(r->want, known->want, sizeof r->want);
    memcpy(r->allow, known->allow, sizeof r->allow);
  } else if (!run_oracle(r)) {
    return false;
  }
  return run_interp(r) && compare(r);
}

// What --dim says of consts and types; of others the least, for a target, whose
// code needs all.
static DrvSpec bind(Ctx *cx, const Options *o, Decl *d, FeBind *binds) {
  DrvSpec s = {.prog = d, .binds = binds, .n = 0};
  for (uint32_t i = 0; i < d->generics.n && s.n < MAX_DIMS; i++) {
    const char *name = d->generics.at[i].name, *v = dim_option(o, name);
    FeBind *b = &binds[s.n];
    if (!v || (d->generics.at[i].kind != GEN_CONST &&
               d->generics.at[i].kind != GEN_DTYPE))
      continue;
    *b = (FeBind){.name = name, .value = atoll(v), .dtype = DT_NONE};
    dtype_by_name(v, (uint32_t)strcspn(v, ","), &b->dtype);
    s.n++;
  }
  FeBind *least;
  uint32_t width;
  if (o->target && fe_specializations(cx, d, binds, s.n, &least, &width))
    s = (DrvSpec){.prog = d, .binds = least, .n = width};
  return s;
}

Module *run_lower(Ctx *cx, const Options *o, Decl *d) {
  FeBind binds[MAX_DIMS];
  DrvSpec s = bind(cx, o, d, binds);
  DrvOptions opt = {.tile_q = o->tile_q,
                    .tile_k = o->tile_k,
                    .relief = o->relief,
                    .strided = o->strided,
                    .few = o->group,
                    .fewest = o->warp,
                    .cluster = o->cluster,
                    .verify_each = true};
  if (o->target && !o->passes) return plan_fit(cx, s, o->target, &opt);
  Module *m = drv_lower_attn(cx, s, o->target);
  PipelineOpt po = {.pass = {.target = o->target, .strided = o->strided},
                    .verify_each = true};
  const char *passes = o->passes ? o->passes : "inline,canon,cse,dce";
  if (!m || !ir_verify(cx, m)) return NULL;
  return pass_run(cx, m, passes, &po) ? m : NULL;
}

Run *run_new(Ctx *cx, const Options *o, Decl *d, Module *m, int i) {
  Run *r = NEW(&cx->session, Run);
  *r = (Run){.cx = cx, .o = o, .d = d, .f = ir_find(m, d->name)};
  r->seed = o->seed + (uint64_t)i;
  return r;
}

static bool run_module(Ctx *cx, const Options *o, Decl *d, Module *m,
                       Run *const *known) {
  for (int i = 0; m && i < o->runs; i++)
    if (!run_once(run_new(cx, o, d, m, i), known ? known[i] : NULL))
      return false;
  return m != NULL;
}

// The code for few rows, if m's first run has so few: options that lower it.
static bool has_few(Ctx *cx, const Options *o, Decl *d, Module *m,
                    Options *few) {
  FeBind binds[MAX_DIMS];
  DrvOptions opt = {.relief = o->relief, .strided = o->strided};
  int64_t dims[MAX_DIMS] = {0};
  Run *r = run_new(cx, o, d, m, 0);
  if (!o->few || !o->target || o->passes || !run_bind(r)) return false;
  run_dims(r, dims);
  plan_fit_few(cx, bind(cx, o, d, binds), o->target, dims, &opt);
  *few = *o;
  few->group = opt.few;
  few->warp = opt.fewest;
  return opt.few;
}

static void find_peers(void *data, Op *op) {
  *(bool *)data |= op->code == OP_PEERS;
}

// The same with clusters of so many CTAs, if the code for few rows has a body
// that has some.
static bool run_clusters(Ctx *cx, const Options *few, Decl *d, int64_t size,
                         Run *const *known) {
  Options o = *few;
  o.cluster = size;
  Module *m = run_lower(cx, &o, d);
  bool some = false;
  for (uint32_t i = 0; m && i < m->funcs.n; i++)
    ir_walk(m->funcs.at[i]->body, find_peers, &some);
  if (!some) return m != NULL;
  if (!run_module(cx, &o, d, m, known)) return false;
  printf("%s: same, of few rows in clusters of %lld\n", d->name,
         (long long)size);
  return true;
}

static bool run_program(Ctx *cx, const Options *o, Decl *d, Run *const *known) {
  Module *m = run_lower(cx, o, d);
  Options few;
  if (!run_module(cx, o, d, m, known)) return false;
  if (has_few(cx, o, d, m, &few)) {
    if (!run_module(cx, &few, d, run_lower(cx, &few, d), known)) return false;
    printf("%s: same, as of few rows\n", d->name);
    for (uint32_t i = 0; clusters_size(i); i++)
      if (!run_clusters(cx, &few, d, clusters_size(i), known)) return false;
  }
  printf("%s: same\n", d->name);
  return true;
}

// ---------------------------------------------------------------- several
// Floats of inputs become f64 and wrong by up to u of themselves.
void run_disturb(Run *r, double u) {
  for (uint32_t i = 0; i < r->f->params.n; i++) {
    InterpTensor *t = &r->args[i];
    ParamRole role = r->f->params.at[i].role;
    if (!t->data || role != PR_IN || !dtype_is_float(t->dtype)) continue;
    int64_t n = run_count(t);
    double *x = run_storage(r, DT_F64, n);
    double *by = NEWN(&r->cx->session, double, n + 1);
    Gen gen = gen_default(GK_UNIFORM);
    gen.seed = r->seed;
    gen.arg[0] = -u, gen.arg[1] = u;
    gen_fill(&r->cx->scratch, &gen, "condition", DT_F64, n, by);
    for (int64_t k = 0, g = r->o->step; k < n; k++)
      x[k * g] = run_at(t->dtype, t->data, k * g) * (1 + by[k]);
    t->data = x;
    t->dtype = DT_F64;
  }
}

// How often inputs are disturbed: one draw tells little of few outputs.
static int draws(const Run *r) {
  int64_t n = 0;
  for (uint32_t i = 0; i < r->f->params.n; i++)
    if (r->want[i] && r->f->params.at[i].role != PR_IN)
      n += run_count(&r->args[i]);
  int least = n > 64 ? 1 : n > 16 ? 3 : MAX_DRAWS;
  return r->o->draws > least ? r->o->draws : least;
}

// The largest differences that one more draw of disturbed inputs shows.
static bool disturbed(const Run *whole, int draw, double *most) {
  Run *r = NEW(&whole->cx->session, Run);
  *r = *whole;
  r->seed += 1000 * (uint64_t)draw;
  InterpOpt opt = {.seed = r->seed};
  run_disturb(r, r->o->condition);
  for (uint32_t i = 0; i < r->f->params.n; i++)
    if (r->f->params.at[i].role == PR_INOUT) {
      int64_t n = run_count(&r->args[i]);
      DType t = r->args[i].dtype;
      r->args[i].data = copy_of(r, t, n, r->args[i].data);
    }
  if (!ir_interp(r->cx, r->f->mod, r->f->name, r->args, r->dims, &opt))
    return false;
  for (uint32_t i = 0; i < r->f->params.n; i++)
    if (r->f->params.at[i].role != PR_IN && r->want[i])
      most[i] = fmax(most[i], run_error(&r->args[i], r->want[i], r->o->step));
  return true;
}

// What outputs may differ by. False for a program that is ill conditioned.
static bool condition(Run *r) {
  double most[MAX_ARGS] = {0};
  for (int k = 0, n = draws(r); k < n; k++)
    if (!disturbed(r, k, most)) return false;
  for (uint32_t i = 0; i < r->f->params.n; i++) {
    ParamRole role = r->f->params.at[i].role;
    const char *name = ir_info(r->f, r->f->params.at[i].v)->hint;
    if (role != PR_OUT && role != PR_INOUT) continue;
    r->allow[i] = CONDITION_MARGIN * most[i];
    printf("%s: %s may differ by %.3g\n", r->d->name, name,
           fmax(r->o->tol, r->allow[i]));
    if (!(r->allow[i] > ILL)) continue;
    printf("%s: ill conditioned\n", r->d->name);
    return false;
  }
  return true;
}

// Runs of the oracle, with tolerances.
static Run **references(Ctx *cx, const Options *o, Decl *d) {
  Options plain = *o;
  plain.target = NULL;
  plain.passes = NULL;
  Module *m = run_lower(cx, &plain, d);
  Run **all = NEWN(&cx->session, Run *, (size_t)o->runs + 1);
  for (int i = 0; m && i < o->runs; i++) {
    all[i] = run_new(cx, o, d, m, i);
    if (!run_bind(all[i]) || !run_oracle(all[i]) ||
        (o->condition > 0 && !condition(all[i])))
      return NULL;
  }
  return m ? all : NULL;
}

static int show_errors(Ctx *cx) {
  Buf out = {.arena = &cx->session};
  if (cx->nerrors) diag_render(cx, (DiagStyle){.ascii = true}, &out);
  if (out.n) fputs(out.at, stdout);
  return cx->nerrors ? 1 : 0;
}

bool run_apart(Ctx *cx, const Options *o, const Decl *d,
               bool (*f)(const Options *, void *), void *data) {
  int status = 0;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    struct rlimit seconds = {o->limit, o->limit + 1};
    if (o->limit) setrlimit(RLIMIT_CPU, &seconds);
    bool ok = f(o, data);
    ok = show_errors(cx) == 0 && ok;
    fflush(NULL);
    _exit(ok ? 0 : 1);
  }
  if (child < 0 || waitpid(child, &status, 0) < 0) return false;
  bool ended = WIFSIGNALED(status), ok = !ended && WEXITSTATUS(status) == 0;
  if (ended)
    printf("%s: %s\n", d->name,
           WTERMSIG(status) == SIGXCPU ? "takes too long" : "crashed");
  printf("%s for %s: %s\n", d->name, o->target->name, ok ? "right" : "fails");
  return ok;
}

typedef struct Known {
  Ctx *cx;
  Decl *d;
  Run **runs;
} Known;

static bool beside(const Options *o, void *data) {
  const Known *k = data;
  return run_program(k->cx, o, k->d, k->runs);
}

static bool run_all(Ctx *cx, const Options *o, Decl *d) {
  if (o->grad) return run_grad(cx, o, d);
  if (o->ntargets < 2 && o->condition == 0) return run_program(cx, o, d, NULL);
  Known known = {cx, d, references(cx, o, d)};
  bool ok = known.runs != NULL;
  for (uint32_t i = 0; known.runs && i < o->ntargets; i++) {
    Options one = *o;
    one.target = o->targets[i];
    ok = run_apart(cx, &one, d, beside, &known) && ok;
  }
  return ok;
}

static int run(Ctx *cx, const Options *o) {
  Source *src = ctx_read_source(cx, o->file, NOWHERE);
  Unit *unit = src ? fe_parse(cx, src) : NULL;
  Decl *all[MAX_PROGRAMS];
  bool ok = unit && fe_check(cx, unit);
  uint32_t n = ok ? fe_programs(unit, all, MAX_PROGRAMS) : 0;
  for (uint32_t i = 0; i < n; i++)
    if (!o->fn || strcmp(o->fn, all[i]->name) == 0)
      ok = run_all(cx, o, all[i]) && ok;
  return ok ? 0 : 1;
}

int main(int argc, char **argv) {
  Ctx cx;
  Options o;
  int rc = 2;
  ctx_init(&cx);
  if (read_options(&cx, argc, argv, &o)) rc = run(&cx, &o);
  else fputs(usage, stderr);
  Buf out = {.arena = &cx.session};
  if (cx.nerrors) diag_render(&cx, (DiagStyle){.ascii = true}, &out);
  if (out.n) fputs(out.at, stderr);
  ctx_drop(&cx);
  return rc;
}
