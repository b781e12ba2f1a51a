// Results against the oracle.
#include "tools/driver/driver.h"
#include "tools/driver/run/points.h"

// Marks elements that the oracle did not write: a NaN no arithmetic makes.
#define UNWRITTEN 0x7ff8a77e5ead0001u

double drv_unwritten(void) {
  uint64_t bits = UNWRITTEN;
  double v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

bool drv_is_written(double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits != UNWRITTEN;
}

// ---------------------------------------------------------------- inout
static bool is_inout(const DrvArg *a) {
  return !a->out && a->param->qual == PQ_INOUT;
}

static size_t bytes_of(const DrvArg *a) {
  return (size_t)a->array.count * (size_t)dtype_size(a->dtype);
}

DrvSaved drv_save(const DrvCall *c) {
  Arena *a = &c->cx->session;
  DrvSaved s = {NEWN(a, void *, c->nargs + 1)};
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *x = &c->args[i];
    if (!is_inout(x) || !x->array.data) continue;
    drv_room(c->cx, bytes_of(x) + 1);
    s.data[i] = arena_alloc(a, bytes_of(x) + 1);
    memcpy(s.data[i], x->array.data, bytes_of(x));
  }
  return s;
}

void drv_restore(DrvCall *c, const DrvSaved *s) {
  for (uint32_t i = 0; i < c->nargs; i++)
    if (s->data[i])
      memcpy(c->args[i].array.data, s->data[i], bytes_of(&c->args[i]));
}

// ---------------------------------------------------------------- running
// Outputs and inout arrays are f64 here: the reference is not rounded.
static void make_arg(DrvCall *c, uint32_t i, const DrvSaved *s, OracleArg *o,
                     double **want) {
  DrvArg *a = &c->args[i];
  *o = points_arg(a);
  if (a->scalar || (!a->out && !is_inout(a)) || !a->array.data) return;
  drv_room(c->cx, sizeof(double) * (size_t)(a->array.count + 1));
  double *d = NEWN(&c->cx->session, double, a->array.count + 1);
  const char *from = s->data[i];
  int size = dtype_size(a->dtype);
  for (int64_t k = 0; k < a->array.count; k++)
    d[k] = a->out ? drv_unwritten() : dtype_load(a->dtype, from + k * size);
  o->dtype = DT_F64;
  o->data = *want = d;
}

static bool has_inout(const DrvCall *c) {
  for (uint32_t i = 0; i < c->nargs; i++)
    if (is_inout(&c->args[i])) return true;
  return false;
}

static bool evaluate(Ctx *cx, const DrvCall *c, const OraclePoints *at,
                     void *args, int worker) {
  (void)worker;
  return oracle_run(cx, c->prog, args, c->dims, at);
}

bool drv_reference(DrvCall *c, const DrvSaved *s, double sample_above,
                   uint64_t seed, DrvReference *out) {
  Arena *a = &c->cx->session;
  if (c->prog->derived && c->prog->derived->tangent)
    return drv_tangent_reference(c, sample_above, seed, out);
  OracleArg *args = NEWN(a, OracleArg, c->nargs + 1);
  *out = (DrvReference){.want = NEWN(a, double *, c->nargs + 1)};
  for (uint32_t i = 0; i < c->nargs; i++)
    make_arg(c, i, s, &args[i], &out->want[i]);
  out->cost = oracle_cost(c->prog, c->dims);
  Points p;
  bool by_point =
      c->prog->kind == DE_ATTENTION && !has_inout(c) && points_all(c, &p);
  if (!by_point) return oracle_run(c->cx, c->prog, args, c->dims, NULL);
  out->sampled = out->cost > sample_above;
  if (out->sampled) points_sample(c, &p, seed);
  out->points = (uint64_t)p.n;
  return points_each(c, &p, evaluate, args);
}

DrvError drv_compare_written(Ctx *cx, const NpyArray *x, const double *want) {
  drv_room(cx, 2 * sizeof(double) * (size_t)(x->count + 1));
  ArenaMark mark = arena_mark(&cx->scratch);
  int64_t n = 0, *at = NEWN(&cx->scratch, int64_t, x->count + 1);
  double *ref = NEWN(&cx->scratch, double, x->count + 1);
  for (int64_t i = 0; i < x->count; i++) {
    if (!drv_is_written(want[i])) continue;
    at[n] = i;
    ref[n++] = want[i];
  }
  DrvError e = drv_compare(x, ref, at, n);
  arena_reset(&cx->scratch, mark);
  return e;
}

uint32_t drv_verdicts(const DrvCall *c, const DrvReference *r, DrvVerdict *out,
                      uint32_t max) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *a = &c->args[i];
    if (!r->want[i] || n == max) continue;
    out[n++] =
        (DrvVerdict){a, drv_compare_written(c->cx, &a->array, r->want[i])};
  }
  return n;
}
