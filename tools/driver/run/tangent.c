// What the oracle says of a program that pass jvp made: values of the program
// that it is of, and by dual numbers its derivative in the direction of all
// tangents.
#include "tools/driver/run/points.h"

typedef struct Tangents {
  OracleArg *args;
  OracleSeed *seeds;
  uint64_t n;
  double **to;  // by argument of the program
} Tangents;

static const DrvArg *arg_named(const DrvCall *c, const char *prefix,
                               const char *name) {
  name = arena_printf(&c->cx->session, "%s%s", prefix, name);
  for (uint32_t i = 0; i < c->nargs; i++)
    if (strcmp(c->args[i].param->name, name) == 0) return &c->args[i];
  return NULL;
}

// The call of the program that c's is made of, with the same arrays.
static bool plain(const DrvCall *c, DrvCall *out) {
  Decl *of = c->prog->derived->of;
  if (!drv_call(c->cx, of, out)) return false;
  uint32_t n = of->dims->syms.n;
  memcpy(out->dims, c->dims, sizeof *c->dims * n);
  memcpy(out->known, c->known, sizeof *c->known * n);
  memcpy(out->total, c->total, sizeof *c->total * n);
  out->watch = c->watch;
  for (uint32_t i = 0; i < out->nargs; i++) {
    const Param *p = out->args[i].param;
    bool is_out = out->args[i].out;
    out->args[i] = *arg_named(c, "", p->name);
    out->args[i].param = p, out->args[i].out = is_out;
  }
  return true;
}

// The tangent of argument i, as numbers.
static const double *along(const DrvCall *c, const DrvArg *t) {
  bool scalar = t->scalar;
  int64_t n = scalar ? 1 : t->array.count, size = dtype_size(t->dtype);
  double *x = NEWN(&c->cx->session, double, n + 1);
  if (scalar) x[0] = t->value;
  for (int64_t k = 0; !scalar && k < n; k++)
    x[k] = dtype_load(t->dtype, (const char *)t->array.data + k * size);
  return x;
}

static void prepare(const DrvCall *c, const DrvCall *of, Tangents *t) {
  Arena *a = &c->cx->session;
  t->args = NEWN(a, OracleArg, of->nargs + 1);
  t->seeds = NEWN(a, OracleSeed, of->nargs + 1);
  t->to = NEWN(a, double *, of->nargs + 1);
  for (uint32_t i = 0; i < of->nargs; i++) {
    const DrvArg *x = &of->args[i];
    const DrvArg *d = arg_named(c, "t_", x->param->name);
    t->args[i] = points_arg(x);
    if (x->out) t->args[i].data = NULL;
    if (x->out && d) t->to[i] = NEWN(a, double, x->array.count + 1);
    bool fixed = x->scalar && !x->given;  // its default has no tangent
    if (!x->out && d && !d->absent && !fixed)
      t->seeds[t->n++] = (OracleSeed){.arg = i, .along = along(c, d)};
  }
}

static bool evaluate(Ctx *cx, const DrvCall *c, const OraclePoints *at,
                     void *data, int worker) {
  const Tangents *t = data;
  OracleSlopes want = {.seeds = t->seeds, .n = t->n, .tangents = t->to};
  (void)worker;
  return oracle_slopes(cx, c->prog, t->args, c->dims, at, &want);
}

// What points add is added once.
static void drop_repeated(Points *p) {
  size_t size = p->width * sizeof *p->at;
  int64_t n = 0;
  for (int64_t i = 0; i < p->n; i++) {
    const int64_t *x = p->at + i * p->width;
    int64_t k = 0;
    while (k < n && memcmp(p->at + k * p->width, x, size) != 0) k++;
    if (k == n) memmove(p->at + n++ * p->width, x, size);
  }
  p->n = n;
}

// Elements of t_O are known where those of O are.
static double *known(const DrvCall *c, const double *of, const double *t,
                     int64_t n) {
  double *x = NEWN(&c->cx->session, double, n + 1);
  for (int64_t k = 0; k < n; k++)
    x[k] = drv_is_written(of[k]) ? t[k] : drv_unwritten();
  return x;
}

bool drv_tangent_reference(DrvCall *c, double sample_above, uint64_t seed,
                           DrvReference *out) {
  DrvCall of;
  DrvReference r;
  Points p;
  Tangents t = {0};
  if (!plain(c, &of)) return false;
  DrvSaved none = drv_save(&of);
  if (!drv_reference(&of, &none, sample_above, seed, &r)) return false;
  *out = r;
  out->want = NEWN(&c->cx->session, double *, c->nargs + 1);
  prepare(c, &of, &t);
  if (!points_all(&of, &p)) return true;
  if (r.sampled) points_sample(&of, &p, seed);
  if (r.sampled) drop_repeated(&p);
  if (!points_each(&of, &p, evaluate, &t)) return false;
  for (uint32_t i = 0; i < of.nargs; i++) {
    const DrvArg *x = &of.args[i];
    const DrvArg *o = arg_named(c, "", x->param->name);
    const DrvArg *d = arg_named(c, "t_", x->param->name);
    if (!x->out) continue;
    out->want[o - c->args] = r.want[i];
    if (d)
      out->want[d - c->args] = known(c, r.want[i], t.to[i], x->array.count);
  }
  return true;
}
