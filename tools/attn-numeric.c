// attn-numeric: compiled programs against the oracle, on many random shapes.
// Each program is compiled once and runs in this process.
//
//   attn-numeric --list FILE        one line a program: FILE.attn and options
//   attn-numeric FILE.attn --dim=B=1..2,Hk=1..3,H=Hk*1..4,Sq=1..40 --runs=20
//
// A dim's value is a number, lo..hi, or those times another dim, or auto: the
// driver's choice, as for page counts. A dtype's value is its name.
#include "tools/driver/driver.h"
#include "tools/driver/run/rng.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_ITEMS = 64, MAX_SHOWN = 2000 };

static const char usage[] =
    "usage: attn-numeric FILE.attn [options] | --list FILE\n"
    "  --dim=A=1..9,T=f32  values of dims (default 1..9, const: the first)\n"
    "  --in=NAME=GEN(a,b)  input generator (default normal; integers 0..2)\n"
    "  --permute=DIM       then again with the axes of DIM permuted: the same\n"
    "  --poison=DIM        then again with inf and NaN for some coordinates of\n"
    "                      DIM: what the oracle finds finite must be right\n"
    "  --runs=N --seed=N   random shapes and inputs (default 10, 1)\n"
    "  --tol=X --rms=X     |x-ref| <= tol * (|ref|+rms(ref)); rms of that error\n"
    "  --chunk=N           steps of a chunk of recurrences (default: chosen)\n"
    "  --target=T          CPU level (default: the best)\n"
    "  --summary           counts only\n";

typedef struct Options {
  const char *file, *list, *target, *permute, *poison;
  const char *dims[MAX_ITEMS], *ins[MAX_ITEMS];
  uint32_t ndims, nins;
  int runs;
  int64_t chunk;
  uint64_t seed;
  double tol, rms;
  bool summary;
} Options;

typedef struct Totals {
  int cases, failed, programs, broken;
} Totals;

// One program and the random numbers of one of its runs.
typedef struct Work {
  Ctx *cx;
  const Options *o;
  Decl *prog;
  DrvGens gens;
  DrvCode *code;
  Rng rng;
  uint64_t drawn;
  int at;  // run
} Work;

// ---------------------------------------------------------------- options
static bool starts(const char *s, const char *p, const char **rest) {
  size_t n = strlen(p);
  if (strncmp(s, p, n)) return false;
  *rest = s + n;
  return true;
}

// "A=1..9,B=2" at commas.
static void add_dims(Ctx *cx, Options *o, const char *s) {
  while (*s && o->ndims < MAX_ITEMS) {
    size_t n = strcspn(s, ",");
    o->dims[o->ndims++] = arena_strndup(&cx->session, s, n);
    s += n + (s[n] == ',');
  }
}

static bool option(Ctx *cx, Options *o, const char *s) {
  const char *v;
  if (starts(s, "--dim=", &v)) add_dims(cx, o, v);
  else if (starts(s, "--in=", &v) && o->nins < MAX_ITEMS) o->ins[o->nins++] = v;
  else if (starts(s, "--permute=", &v)) o->permute = v;
  else if (starts(s, "--poison=", &v)) o->poison = v;
  else if (starts(s, "--runs=", &v)) o->runs = atoi(v);
  else if (starts(s, "--seed=", &v)) o->seed = strtoull(v, NULL, 10);
  else if (starts(s, "--tol=", &v)) o->tol = strtod(v, NULL);
  else if (starts(s, "--rms=", &v)) o->rms = strtod(v, NULL);
  else if (starts(s, "--target=", &v)) o->target = v;
  else if (starts(s, "--chunk=", &v)) o->chunk = atoll(v);
  else if (strcmp(s, "--summary") == 0) o->summary = true;
  else if (*s != '-' && !o->file) o->file = s;
  else return false;
  return true;
}

// ---------------------------------------------------------------- shapes
static int64_t draw(Work *w, int64_t lo, int64_t hi) {
  return rng_int(&w->rng, w->drawn++, lo, hi + 1);
}

static const char *spec_of(const Options *o, const char *name) {
  const char *rest;
  for (uint32_t i = 0; i < o->ndims; i++)
    if (starts(o->dims[i], name, &rest) && *rest == '=') return rest + 1;
  return NULL;
}

static int64_t dim_value(Work *w, DrvCall *c, const char *name, int depth);

// Half of all draws are at an end, or beside a power of two.
static int64_t in_range(Work *w, int64_t lo, int64_t hi) {
  int64_t kind = draw(w, 0, 5), v = draw(w, lo, hi);
  if (kind == 0) return lo;
  if (kind == 1) return hi;
  if (kind > 2) return v;
  int64_t p = 1;
  while (p * 2 <= v) p *= 2;
  p += draw(w, -1, 1);
  return p < lo ? lo : p > hi ? hi : p;
}

static int64_t range_of(Work *w, DrvCall *c, const char *s, int depth) {
  char *end;
  const char *star = strchr(s, '*');
  int64_t factor = 1;
  if (star) {
    char *name = arena_strndup(&w->cx->session, s, (size_t)(star - s));
    factor = dim_value(w, c, name, depth + 1);
    s = star + 1;
  }
  int64_t lo = strtoll(s, &end, 10), hi = lo;
  if (strncmp(end, "..", 2) == 0) hi = strtoll(end + 2, NULL, 10);
  return factor * (lo == hi ? lo : in_range(w, lo, hi));
}

static int find_sym(const DrvCall *c, const char *name) {
  const DimTab *t = c->prog->dims;
  for (uint32_t i = 0; i < t->syms.n; i++)
    if (strcmp(t->syms.at[i].name, name) == 0) return (int)i;
  return -1;
}

static int64_t dim_value(Work *w, DrvCall *c, const char *name, int depth) {
  int at = find_sym(c, name);
  if (at < 0 || depth > 8) return 1;
  if (c->known[at]) return c->dims[at];
  const DimSym *s = &c->prog->dims->syms.at[at];
  const char *spec = spec_of(w->o, name);
  if (spec && strcmp(spec, "auto") == 0) return 1;
  int64_t v = spec          ? range_of(w, c, spec, depth)
              : s->values.n ? s->values.at[0]
                            : in_range(w, 1, 9);
  drv_set_dim(c, name, v, "the test");
  return v;
}

static DType dtype_of(const Work *w, const Generic *g) {
  const char *s = spec_of(w->o, g->name);
  DType t = g->dtypes.at[0];
  if (s) dtype_by_name(s, (uint32_t)strlen(s), &t);
  return t;
}

static bool choose_shape(Work *w, DrvCall *c) {
  const DimTab *t = c->prog->dims;
  for (uint32_t i = 0; i < t->syms.n; i++)
    if (t->syms.at[i].kind != DIM_RAGGED)
      dim_value(w, c, t->syms.at[i].name, 0);
  for (uint32_t i = 0; i < c->prog->generics.n; i++) {
    const Generic *g = &c->prog->generics.at[i];
    if (g->kind == GEN_DTYPE && !drv_set_dtype(c, g->name, dtype_of(w, g)))
      return false;
  }
  return true;
}

static const char *shape_text(Work *w, const DrvCall *c) {
  Buf b = {.arena = &w->cx->session};
  for (uint32_t i = 0; i < c->prog->dims->syms.n; i++)
    buf_printf(&b, "%s%s=%lld", i ? "," : "", c->prog->dims->syms.at[i].name,
               (long long)c->dims[i]);
  buf_char(&b, 0);
  return b.at;
}

// ---------------------------------------------------------------- judging
static void complain(Work *w, const DrvCall *c, const char *what,
                     const DrvArg *a, const DrvError *e) {
  if (w->o->summary) return;
  printf("%s: %s: %s differs: %.3g (rms %.3g): element %lld is %.9g, not %.9g\n"
         "    --seed=%llu, run %d, --dim=%s\n",
         c->prog->name, what, a->param->name,
         e->nonfinite ? (double)INFINITY : e->rel, e->rms, (long long)e->at,
         e->got, e->want, (unsigned long long)w->o->seed, w->at,
         shape_text(w, c));
}

static double rms_of(const double *x, int64_t n) {
  double sq = 0;
  for (int64_t i = 0; i < n; i++)
    if (isfinite(x[i])) sq += x[i] * x[i];
  return n ? sqrt(sq / (double)n) : 0;
}

static bool judge(Work *w, DrvCall *c, const DrvReference *ref) {
  DrvVerdict v[MAX_ITEMS];
  uint32_t n = drv_verdicts(c, ref, v, MAX_ITEMS);
  bool ok = true;
  for (uint32_t i = 0; i < n; i++) {
    const DrvError *e = &v[i].error;
    double scale = rms_of(ref->want[v[i].arg - c->args], v[i].arg->array.count);
    bool rms_ok = w->o->rms == 0 || e->rms <= w->o->rms * scale;
    if (drv_within(e, w->o->tol) && rms_ok) continue;
    complain(w, c, "oracle", v[i].arg, e);
    ok = false;
  }
  return ok;
}

// ---------------------------------------------------------------- permuting
// Moves slice i of the axis to place perm[i]; rows are the elements behind it.
static void permute_axis(Work *w, const NpyArray *x, int axis,
                         const int64_t *perm) {
  size_t row = (size_t)dtype_size(x->dtype);
  int64_t outer = 1, n = x->shape[axis];
  for (int i = 0; i < axis; i++) outer *= x->shape[i];
  for (int i = axis + 1; i < x->rank; i++) row *= (size_t)x->shape[i];
  char *old = arena_alloc(&w->cx->session, row * (size_t)n + 1), *at = x->data;
  for (int64_t i = 0; i < outer; i++, at += row * (size_t)n) {
    memcpy(old, at, row * (size_t)n);
    for (int64_t k = 0; k < n; k++)
      memcpy(at + row * (size_t)perm[k], old + row * (size_t)k, row);
  }
}

static int64_t *random_order(Work *w, int64_t n) {
  int64_t *p = NEWN(&w->cx->session, int64_t, n + 1);
  for (int64_t i = 0; i < n; i++) {
    int64_t j = draw(w, 0, i);
    p[i] = p[j];
    p[j] = i;
  }
  return p;
}

// The same result, whatever the order of the keys.
static bool permuted(Work *w, DrvCall *c, const DrvReference *ref) {
  int sym = find_sym(c, w->o->permute);
  if (sym < 0) return false;
  int64_t *perm = random_order(w, c->dims[sym]);
  for (uint32_t i = 0; i < c->nargs; i++) {
    DrvArg *a = &c->args[i];
    if (a->scalar || a->out) continue;
    for (uint32_t k = 0; k < a->rank; k++) {
      const DimExpr *e = &c->prog->dims->exprs.at[a->axis[k].dim];
      if (a->axis[k].kind == DRV_DIM && e->op == DIM_SYM && e->value == sym)
        permute_axis(w, &a->array, (int)k, perm);
    }
  }
  return drv_launch(c, w->code, NULL) && judge(w, c, ref);
}

// ---------------------------------------------------------------- poisoning
static void poison_axis(NpyArray *x, int axis, const bool *bad) {
  int64_t row = 1, n = x->shape[axis];
  for (int i = axis + 1; i < x->rank; i++) row *= x->shape[i];
  for (int64_t i = 0; i < x->count; i++) {
    int64_t k = i / row % n;
    if (bad[k])
      dtype_store(x->dtype, (char *)x->data + i * dtype_size(x->dtype),
                  k % 2 ? NAN : INFINITY);
  }
}

static double element(const NpyArray *x, int64_t i) {
  return dtype_load(x->dtype, (const char *)x->data + i * dtype_size(x->dtype));
}

// Where the oracle is finite: 0 if all is well, else the first wrong element.
static int64_t wrong_element(Work *w, const DrvArg *a, const double *want) {
  const NpyArray *x = &a->array;
  double rms = rms_of(want, x->count);
  for (int64_t i = 0; i < x->count; i++) {
    double tol = 4 * w->o->tol;  // few keys may be left
    bool ok = fabs(element(x, i) - want[i]) <= tol * (fabs(want[i]) + rms);
    if (isfinite(want[i]) && !ok) return i + 1;
  }
  return 0;
}

// What a row does not see does not matter, whatever it is.
static bool poisoned(Work *w, DrvCall *c) {
  DrvReference ref;
  int sym = find_sym(c, w->o->poison);
  if (sym < 0) return false;
  bool *bad = NEWN(&w->cx->session, bool, c->dims[sym] + 1);
  for (int64_t k = 0; k < c->dims[sym]; k++) bad[k] = draw(w, 0, 7) == 0;
  for (uint32_t i = 0; i < c->nargs; i++) {
    DrvArg *a = &c->args[i];
    if (a->scalar || a->out || !dtype_is_float(a->dtype)) continue;
    for (uint32_t k = 0; k < a->rank; k++) {
      const DimExpr *e = &c->prog->dims->exprs.at[a->axis[k].dim];
      if (a->axis[k].kind == DRV_DIM && e->op == DIM_SYM && e->value == sym)
        poison_axis(&a->array, (int)k, bad);
    }
  }
  DrvSaved saved = drv_save(c);
  if (!drv_launch(c, w->code, NULL) ||
      !drv_reference(c, &saved, 1e9, w->o->seed, &ref))
    return false;
  bool ok = true;
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *a = &c->args[i];
    int64_t at = a->out ? wrong_element(w, a, ref.want[i]) : 0;
    if (!at) continue;
    ok = false;
    if (!w->o->summary)
      printf("%s: poisoned: %s differs: element %lld is %.9g, not %.9g\n"
             "    --seed=%llu, run %d, --dim=%s\n",
             c->prog->name, a->param->name, (long long)at - 1,
             element(&a->array, at - 1), ref.want[i][at - 1],
             (unsigned long long)w->o->seed, w->at, shape_text(w, c));
  }
  return ok;
}

// ---------------------------------------------------------------- running
static bool load(Work *w, DrvCall *c) {
  DrvOptions opt = {.prefix = "test",
                    .verify_each = true,
                    .chunk = w->o->chunk};
  const Target *t = drv_host_target(w->cx, w->o->target);
  w->code = t ? drv_load(c, t, &opt) : NULL;
  return w->code != NULL;
}

// False: it could not run; *same tells whether the results fit.
static bool run_once(Work *w, bool *same) {
  DrvCall c;
  DrvReference ref;
  rng_init(&w->rng, w->o->seed + (uint64_t)w->at, "shape");
  w->drawn = 0;
  if (!drv_call(w->cx, w->prog, &c) || !choose_shape(w, &c) ||
      !drv_fill(&c, &w->gens, w->o->seed + (uint64_t)w->at) || !drv_solve(&c) ||
      !drv_outputs(&c) || (!w->code && !load(w, &c)))
    return false;
  DrvSaved saved = drv_save(&c);
  if (!drv_launch(&c, w->code, NULL) ||
      !drv_reference(&c, &saved, 1e9, w->o->seed, &ref))
    return false;
  *same = judge(w, &c, &ref);
  if (*same && w->o->permute) *same = permuted(w, &c, &ref);
  if (*same && w->o->poison) *same = poisoned(w, &c);
  return true;
}

static bool run_program(Ctx *cx, const Options *o, Decl *prog, Totals *t) {
  Work w = {.cx = cx, .o = o, .prog = prog};
  for (uint32_t i = 0; i < o->nins; i++) {
    DrvGen g;
    if (!drv_parse_gen(cx, o->ins[i], &g)) return false;
    vec_push(&cx->session, &w.gens, g);
  }
  bool ok = true, same;
  t->programs++;
  for (w.at = 0; w.at < o->runs && ok; w.at++) {
    ok = run_once(&w, &same);
    if (!ok) break;
    t->cases++;
    t->failed += !same;
  }
  drv_unload(w.code);
  return ok;
}

static void run_file(Ctx *cx, const Options *o, Totals *t) {
  Decl *all[DRV_MAX_PROGRAMS];
  Source *src = ctx_read_source(cx, o->file, NOWHERE);
  Unit *unit = src ? drv_unit(cx, src) : NULL;
  uint32_t n = unit ? fe_programs(unit, all, DRV_MAX_PROGRAMS) : 0;
  bool ok = unit != NULL;
  for (uint32_t i = 0; i < n; i++) ok = run_program(cx, o, all[i], t) && ok;
  if (ok) return;
  t->broken++;
  Buf err = {.arena = &cx->session};
  diag_render(cx, (DiagStyle){.ascii = true, .width = 100}, &err);
  printf("%s: cannot run\n%.*s", o->file, (int)(err.n < 1000 ? err.n : 1000),
         err.at);
}

static void run_line(const char *line, const Options *common, Totals *t) {
  Ctx cx;
  ctx_init(&cx);
  Options o = *common;
  bool ok = true;
  char *s = arena_strndup(&cx.session, line, strcspn(line, "\n"));
  for (char *word = strtok(s, " "); word && ok; word = strtok(NULL, " "))
    ok = option(&cx, &o, word);
  if (ok && o.file) run_file(&cx, &o, t);
  else if (o.file || !ok) t->broken++, printf("cannot read: %s\n", line);
  ctx_drop(&cx);
}

static bool run_list(const Options *o, Totals *t) {
  char line[4096];
  FILE *f = fopen(o->list, "r");
  if (!f) return false;
  while (fgets(line, sizeof line, f) && t->failed + t->broken < MAX_SHOWN)
    run_line(line, o, t);
  fclose(f);
  return true;
}

int main(int argc, char **argv) {
  Ctx cx;
  ctx_init(&cx);
  Options o = {.runs = 10, .seed = 1, .tol = 1e-5};
  Totals t = {0};
  bool ok = argc > 1;
  for (int i = 1; i < argc && ok; i++) {
    if (strcmp(argv[i], "--list") == 0 && i + 1 < argc) o.list = argv[++i];
    else ok = option(&cx, &o, argv[i]);
  }
  if (ok && o.list) ok = run_list(&o, &t);
  else if (ok && o.file) run_file(&cx, &o, &t);
  if (!ok) fputs(usage, stderr);
  else
    printf("%d programs, %d cases, %d failed, %d programs cannot run\n",
           t.programs, t.cases, t.failed, t.broken);
  ctx_drop(&cx);
  return !ok ? 2 : t.failed || t.broken;
}
