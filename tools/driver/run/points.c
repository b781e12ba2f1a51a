// Points of a program's parallel indices, walked by all threads.
#include "tools/driver/run/points.h"

#include "runtime/attn.h"
#include "tools/driver/run/rng.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SAMPLES = 256, MAX_CORNERS = 64 };

static int64_t count(const Points *p) {
  int64_t n = 1;
  for (uint32_t k = 0; k < p->width; k++)
    if (__builtin_mul_overflow(n, p->extent[k], &n)) return INT64_MAX;
  return n;
}

OracleArg points_arg(const DrvArg *a) {
  OracleArg o = {.dtype = a->dtype,
                 .rank = (uint32_t)a->array.rank,
                 .data = a->array.data,
                 .scalar = a->value,
                 .given = a->given};
  int64_t stride = 1;
  for (int k = a->array.rank - 1; k >= 0; k--) {
    o.shape[k] = a->array.shape[k];
    o.stride[k] = stride;
    stride *= a->array.shape[k];
  }
  return o;
}

bool points_all(const DrvCall *c, Points *out) {
  *out = (Points){0};
  for (uint32_t i = 0; i < c->prog->indices.n; i++) {
    const Sym *s = c->prog->indices.at[i];
    if (s->role != IX_PARALLEL) continue;
    int64_t *v = &out->extent[out->width++];
    if (!dim_eval(c->prog->dims, s->dim, c->dims, v) || *v <= 0) return false;
  }
  out->n = count(out);
  return out->width > 0;
}

void points_sample(const DrvCall *c, Points *p, uint64_t seed) {
  Rng r;
  rng_init(&r, seed, "points");
  uint32_t w = p->width, corners = 1u << (w < 6 ? w : 6);
  int64_t *at = NEWN(&c->cx->session, int64_t, (SAMPLES + MAX_CORNERS) * w);
  p->n = 0;
  for (uint32_t i = 0; i < corners; i++, p->n++)
    for (uint32_t k = 0; k < w; k++)
      at[p->n * w + k] = i >> (k & 31) & 1 ? p->extent[k] - 1 : 0;
  for (uint64_t i = 0; i < SAMPLES; i++, p->n++)
    for (uint32_t k = 0; k < w; k++)
      at[p->n * w + k] = rng_int(&r, i * w + k, 0, p->extent[k]);
  p->at = at;
}

// ---------------------------------------------------------------- threads
enum { CHUNK = 8 };

typedef struct Job {
  const DrvCall *call;
  const Points *points;
  PointsRun *run;
  void *data;
  atomic_llong next;
  atomic_bool failed;
} Job;

typedef struct Worker {
  Job *job;
  Ctx cx;
  pthread_t id;
  int number;
  bool full;              // memory ran out
  const DrvWatch *watch;  // of the calling thread only
} Worker;

static void chunk_points(const Job *j, int64_t first, int64_t n, int64_t *at) {
  uint32_t w = j->points->width;
  for (int64_t i = 0; i < n; i++) {
    int64_t left = first + i;
    for (uint32_t k = w; k-- > 0;) {
      int64_t extent = j->points->extent[k];
      at[i * w + k] =
          j->points->at ? j->points->at[(first + i) * w + k] : left % extent;
      left /= extent;
    }
  }
}

static void take_points(void *data) {
  Worker *w = data;
  Job *j = w->job;
  int64_t at[CHUNK * 64], all = j->points->n;
  while (!atomic_load(&j->failed)) {
    int64_t first = atomic_fetch_add(&j->next, CHUNK);
    if (first >= all) break;
    int64_t n = all - first < CHUNK ? all - first : CHUNK;
    chunk_points(j, first, n, at);
    OraclePoints p = {at, (uint64_t)n};
    if (!j->run(&w->cx, j->call, &p, j->data, w->number))
      atomic_store(&j->failed, true);
    if (w->watch) w->watch->at(w->watch->data, first, all);
  }
}

static void *run_worker(void *data) {
  Worker *w = data;
  w->full = !ctx_try(&w->cx, take_points, w);
  if (w->full) atomic_store(&w->job->failed, true);
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

bool points_each(const DrvCall *c, const Points *p, PointsRun *run,
                 void *data) {
  Job job = {.call = c, .points = p, .run = run, .data = data}, *j = &job;
  Ctx *cx = c->cx;
  int n = attn_ctx_threads(attn_ctx_default()), started = 1;
  if (n > POINTS_MAX_WORKERS) n = POINTS_MAX_WORKERS;
  Worker *w = NEWN(&cx->session, Worker, n);
  for (int i = 0; i < n; i++) {
    ctx_init_helper(&w[i].cx, cx);
    w[i].job = j;
    w[i].number = i;
  }
  while (started < n &&
         pthread_create(&w[started].id, NULL, run_worker, &w[started]) == 0)
    started++;
  w[0].watch = c->watch;
  run_worker(&w[0]);
  for (int i = 1; i < started; i++) pthread_join(w[i].id, NULL);
  bool ok = !atomic_load(&j->failed), full = false;
  for (int i = 0; i < n; i++) {
    full |= w[i].full;
    if (!ok && cx->nerrors == 0) report(cx, &w[i].cx);
    ctx_drop(&w[i].cx);
  }
  if (full) ctx_no_memory(cx);
  return ok;
}
