// Objects of AMD's kernels. Each kernel goes through LLVM alone, by several
// threads, and what was made of a text of level mach is known as long as the
// program is compiled: bodies, and tiles that are tried, have most kernels in
// common.
//   first tiles   rows, keys, queries     LLVM: three kernels
//   other tiles   rows, keys, queries'    LLVM: queries'
// An object of all is made of theirs (codegen/object/notes.c), for one link.
#include "tools/driver/gpu/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

// A kernel that is made.
typedef struct Job {
  Func *f;
  CgBytes mach;
  const DrvObjectOf *known;  // NULL: to be made
  CgKernelRecord record;     // while it is made, the worker's
  Buf object;
  bool ok;
} Job;

typedef struct Crew {
  const Module *m;
  const char *prefix;
  Job *jobs;
  uint32_t n;
  atomic_uint next;
} Crew;

typedef struct Worker {
  Crew *crew;
  Ctx cx;
  pthread_t thread;
  bool started, full;
} Worker;

static void make_one(Ctx *cx, const Crew *c, Job *j) {
  Module one = *c->m;
  CgKernels all = {0};
  memset(&one.funcs, 0, sizeof one.funcs);
  vec_push(&cx->session, &one.funcs, j->f);
  j->object = (Buf){.arena = &cx->session};
  j->ok = cg_gpu(cx, &one, c->prefix, CG_OBJECT, &j->object, &all);
  if (j->ok) j->record = all.at[0];
}

static void take_jobs(void *data) {
  Worker *w = data;
  for (;;) {
    uint32_t i = atomic_fetch_add(&w->crew->next, 1);
    if (i >= w->crew->n) return;
    Job *j = &w->crew->jobs[i];
    if (!j->known) make_one(&w->cx, w->crew, j);
  }
}

static void *work(void *data) {
  Worker *w = data;
  w->full = !ctx_try(&w->cx, take_jobs, w);
  work_rest(&w->cx);
  return NULL;
}

static void start(Ctx *cx, Crew *crew, Worker *w, uint32_t threads) {
  work_rest(cx);
  for (uint32_t i = 0; i < threads; i++) {
    w[i].crew = crew;
    ctx_init_helper(&w[i].cx, cx);
    w[i].started = i && !pthread_create(&w[i].thread, NULL, work, &w[i]);
  }
  work(&w[0]);
  for (uint32_t i = 0; i < threads; i++)
    if (w[i].started) pthread_join(w[i].thread, NULL);
}

// ---------------------------------------------------------------- memo
static const DrvObjectOf *find(const DrvObjects *all, CgBytes mach) {
  for (uint32_t i = 0; i < all->n; i++)
    if (drv_same_text(all->at[i]->mach, mach)) return all->at[i];
  return NULL;
}

static void remember(Ctx *cx, DrvObjects *all, Job *j) {
  DrvObjectOf *k = NEW(&cx->session, DrvObjectOf);
  char *at = arena_alloc(&cx->session, j->object.n + 1);
  memcpy(at, j->object.at, j->object.n);
  *k = (DrvObjectOf){j->mach, drv_kept_record(cx, &j->record),
                     (CgBytes){at, j->object.n}};
  vec_push(&cx->session, all, k);
  j->known = k;
}

static uint32_t look_up(Ctx *cx, const DrvObjects *known, const Module *m,
                        Job *jobs) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (f->kind != FK_PROGRAM) continue;
    jobs[n] = (Job){.f = f, .mach = drv_mach_of(&cx->session, m, f)};
    jobs[n].known = find(known, jobs[n].mach);
    n++;
  }
  return n;
}

// Those of crew that are not known. False: one is an error.
static bool make_rest(Ctx *cx, Crew *crew, uint32_t most, DrvObjects *known) {
  uint32_t rest = 0;
  bool ok = true, full = false;
  for (uint32_t i = 0; i < crew->n; i++) rest += !crew->jobs[i].known;
  if (!rest) return true;
  uint32_t threads = most < rest ? most : rest;
  Worker *w = NEWN(&cx->session, Worker, threads + 1);
  start(cx, crew, w, threads);
  for (uint32_t i = 0; i < threads; i++) full |= w[i].full;
  for (uint32_t i = 0; i < crew->n && !full; i++) {
    Job *j = &crew->jobs[i];
    if (!j->known && j->ok) remember(cx, known, j);
    ok &= j->known != NULL;
  }
  for (uint32_t i = 0; i < threads; i++) ctx_drop(&w[i].cx);
  if (full) ctx_no_memory(cx);
  return ok;
}

// ---------------------------------------------------------------- border
static bool gather(Ctx *cx, const Crew *crew, Buf *out, CgKernels *all) {
  CgBytes *objects = NEWN(&cx->session, CgBytes, crew->n + 1);
  for (uint32_t i = 0; i < crew->n; i++) {
    CgKernelRecord r = crew->jobs[i].known->record;
    r.func = crew->jobs[i].f;
    vec_push(&cx->session, all, r);
    objects[i] = crew->jobs[i].known->object;
  }
  if (crew->n > 1) return cg_amd_merge(cx, objects, crew->n, out);
  buf_add(out, objects[0].at, objects[0].n);
  return true;
}

bool drv_memo_object(Ctx *cx, DrvMemo *memo, const Module *m,
                     const char *prefix, Buf *out, CgKernels *all) {
  DrvObjects *known = drv_memo_objects(memo);
  Job *jobs = NEWN(&cx->session, Job, m->funcs.n + 1);
  Crew crew = {.m = m, .prefix = prefix, .jobs = jobs};
  crew.n = look_up(cx, known, m, jobs);
  if (crew.n && cg_gpu_ready(cx, m) &&
      make_rest(cx, &crew, drv_memo_threads(memo), known) &&
      gather(cx, &crew, out, all))
    return true;
  *all = (CgKernels){0};
  out->n = 0;
  return cg_gpu(cx, m, prefix, CG_OBJECT, out, all);
}
