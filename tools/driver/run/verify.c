// Results against the oracle.
#include "frontend/oracle.h"
#include "runtime/attn.h"
#include "tools/driver/driver.h"
#include "tools/driver/run/rng.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

enum { SAMPLES = 256, MAX_CORNERS = 64 };

// Marks elements that the oracle did not write: a NaN no arithmetic makes.
#define UNWRITTEN 0x7ff8a77e5ead0001u

static double unwritten(void) {
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

// ---------------------------------------------------------------- points
typedef struct Points {
  Arena *a;
  Vec(int64_t) at;
  uint32_t width;
  int64_t extent[64];
} Points;

static bool parallel_extents(const DrvCall *c, Points *p) {
  for (uint32_t i = 0; i < c->prog->indices.n; i++) {
    const Sym *s = c->prog->indices.at[i];
    if (s->role != IX_PARALLEL) continue;
    int64_t *v = &p->extent[p->width++];
    if (!dim_eval(c->prog->dims, s->dim, c->dims, v) || *v <= 0) return false;
  }
  return p->width > 0;
}

static void corners(Points *p) {
  for (uint32_t i = 0; i < MAX_CORNERS && i < 1u << (p->width & 31); i++)
    for (uint32_t k = 0; k < p->width; k++)
      vec_push(p->a, &p->at, i >> k & 1 ? p->extent[k] - 1 : 0);
}

static void samples(Points *p, uint64_t seed) {
  Rng r;
  rng_init(&r, seed, "points");
  for (uint64_t i = 0; i < SAMPLES; i++)
    for (uint32_t k = 0; k < p->width; k++)
      vec_push(p->a, &p->at, rng_int(&r, i * p->width + k, 0, p->extent[k]));
}

// ---------------------------------------------------------------- running
// Outputs and inout arrays are f64 here: the reference is not rounded.
static void make_arg(DrvCall *c, uint32_t i, const DrvSaved *s, OracleArg *o,
                     double **want) {
  DrvArg *a = &c->args[i];
  *o = (OracleArg){.dtype = a->dtype,
                   .rank = (uint32_t)a->array.rank,
                   .data = a->array.data,
                   .scalar = a->value,
                   .given = a->given};
  int64_t stride = 1;
  for (int k = a->array.rank - 1; k >= 0; k--) {
    o->shape[k] = a->array.shape[k];
    o->stride[k] = stride;
    stride *= a->array.shape[k];
  }
  if (a->scalar || (!a->out && !is_inout(a)) || !a->array.data) return;
  drv_room(c->cx, sizeof(double) * (size_t)(a->array.count + 1));
  double *d = NEWN(&c->cx->session, double, a->array.count + 1);
  const char *from = s->data[i];
  int size = dtype_size(a->dtype);
  for (int64_t k = 0; k < a->array.count; k++)
    d[k] = a->out ? unwritten() : dtype_load(a->dtype, from + k * size);
  o->dtype = DT_F64;
  o->data = *want = d;
}

// ---------------------------------------------------------------- threads
enum { CHUNK = 8, MAX_WORKERS = 64 };

// Points are independent of each other; each worker has a session of its own
// for diagnostics and memory.
typedef struct Job {
  const DrvCall *call;
  OracleArg *args;
  const Points *points;
  bool sampled;  // points->at holds them; else all, by number
  int64_t n;     // points
  atomic_llong next;
  atomic_bool failed;
} Job;

typedef struct Worker {
  Job *job;
  Ctx cx;
  pthread_t id;
  const DrvWatch *watch;  // of the calling thread only
} Worker;

static void chunk_points(const Job *j, int64_t first, int64_t n, int64_t *at) {
  uint32_t w = j->points->width;
  for (int64_t i = 0; i < n; i++) {
    int64_t left = first + i;
    for (uint32_t k = w; k-- > 0;) {
      int64_t extent = j->points->extent[k];
      at[i * w + k] =
          j->sampled ? j->points->at.at[(first + i) * w + k] : left % extent;
      left /= extent;
    }
  }
}

static void *run_worker(void *data) {
  Worker *w = data;
  Job *j = w->job;
  int64_t at[CHUNK * 64];
  while (!atomic_load(&j->failed)) {
    int64_t first = atomic_fetch_add(&j->next, CHUNK);
    if (first >= j->n) break;
    int64_t n = j->n - first < CHUNK ? j->n - first : CHUNK;
    chunk_points(j, first, n, at);
    OraclePoints p = {at, (uint64_t)n};
    if (!oracle_run(&w->cx, j->call->prog, j->args, j->call->dims, &p))
      atomic_store(&j->failed, true);
    if (w->watch) w->watch->at(w->watch->data, first, j->n);
  }
  return NULL;
}

// The first diagnostic of a worker becomes one of the call's session.
static void report(Ctx *cx, const Ctx *from) {
  if (!from->diags.n) return;
  const Diag *d = from->diags.at[0];
  Diag *copy = NEW(&cx->session, Diag);
  *copy = (Diag){.id = d->id,
                 .sev = d->sev,
                 .span = d->span,
                 .text = arena_strdup(&cx->session, d->text)};
  vec_push(&cx->session, &cx->diags, copy);
  cx->nerrors++;
}

static bool run_job(Job *j, const DrvWatch *watch) {
  Ctx *cx = j->call->cx;
  int n = attn_ctx_threads(attn_ctx_default()), started = 1;
  if (n > MAX_WORKERS) n = MAX_WORKERS;
  Worker *w = NEWN(&cx->session, Worker, n);
  for (int i = 0; i < n; i++) {
    ctx_init(&w[i].cx);
    w[i].job = j;
  }
  while (started < n &&
         pthread_create(&w[started].id, NULL, run_worker, &w[started]) == 0)
    started++;
  w[0].watch = watch;
  run_worker(&w[0]);
  for (int i = 1; i < started; i++) pthread_join(w[i].id, NULL);
  bool ok = !atomic_load(&j->failed);
  for (int i = 0; i < n; i++) {
    if (!ok && cx->nerrors == 0) report(cx, &w[i].cx);
    ctx_drop(&w[i].cx);
  }
  return ok;
}

static bool has_inout(const DrvCall *c) {
  for (uint32_t i = 0; i < c->nargs; i++)
    if (is_inout(&c->args[i])) return true;
  return false;
}

static int64_t all_points(const Points *p) {
  int64_t n = 1;
  for (uint32_t k = 0; k < p->width; k++)
    if (__builtin_mul_overflow(n, p->extent[k], &n)) return INT64_MAX;
  return n;
}

bool drv_reference(DrvCall *c, const DrvSaved *s, double sample_above,
                   uint64_t seed, DrvReference *out) {
  Arena *a = &c->cx->session;
  OracleArg *args = NEWN(a, OracleArg, c->nargs + 1);
  *out = (DrvReference){.want = NEWN(a, double *, c->nargs + 1)};
  for (uint32_t i = 0; i < c->nargs; i++)
    make_arg(c, i, s, &args[i], &out->want[i]);
  out->cost = oracle_cost(c->prog, c->dims);
  Points p = {.a = a};
  bool by_point =
      c->prog->kind == DE_ATTENTION && !has_inout(c) && parallel_extents(c, &p);
  if (!by_point) return oracle_run(c->cx, c->prog, args, c->dims, NULL);
  Job j = {.call = c, .args = args, .points = &p, .n = all_points(&p)};
  out->sampled = j.sampled = out->cost > sample_above;
  if (j.sampled) {
    corners(&p);
    samples(&p, seed);
    j.n = p.at.n / p.width;
  }
  out->points = (uint64_t)j.n;
  return run_job(&j, c->watch);
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
