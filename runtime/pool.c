// The thread pool: a parallel-for whose caller always works too.
//
// A call puts a Job on its own stack, links it into the pool, and runs its
// indices together with whichever workers come by. It waits only for workers
// that took an index, so a call never depends on a worker being there: calls
// from several threads, nested calls and calls in a forked child (which has
// no workers) all end.
#include "rt.h"

#include <signal.h>
#include <string.h>

#define MAX_WORKERS 1023
#define SPIN_NS 20000  // about the cost of one sleep and wake

struct Job {
  Job *next;
  void (*body)(void *arg, int64_t i);
  void *arg;
  int64_t n;
  atomic_llong taken;  // indices handed out
  atomic_int running;  // workers inside; changed under the pool's lock
};

static void run_job(Job *j) {
  int64_t i;
  while ((i = atomic_fetch_add(&j->taken, 1)) < j->n) j->body(j->arg, i);
}

static Job *open_job(const Pool *p) {
  for (Job *j = p->jobs; j; j = j->next)
    if (atomic_load(&j->taken) < j->n) return j;
  return NULL;
}

static bool spin_until_post(Pool *p, unsigned seen) {
  int64_t end = rt_now_ns() + SPIN_NS;
  do {
    for (int i = 0; i < 32; i++) {
      if (atomic_load(&p->posted) != seen) return true;
      rt_cpu_pause();
    }
  } while (rt_now_ns() < end);
  return false;
}

// Called and returns with the lock held.
static void wait_for_post(Pool *p) {
  unsigned seen = atomic_load(&p->posted);
  pthread_mutex_unlock(&p->lock);
  spin_until_post(p, seen);
  pthread_mutex_lock(&p->lock);
  while (!p->stop && atomic_load(&p->posted) == seen) {
    p->nsleep++;
    pthread_cond_wait(&p->wake, &p->lock);
    p->nsleep--;
  }
}

static void *worker(void *arg) {
  Pool *p = arg;
  pthread_mutex_lock(&p->lock);
  while (!p->stop) {
    Job *j = open_job(p);
    if (!j) {
      wait_for_post(p);
      continue;
    }
    atomic_fetch_add(&j->running, 1);
    pthread_mutex_unlock(&p->lock);
    run_job(j);
    pthread_mutex_lock(&p->lock);
    if (atomic_fetch_sub(&j->running, 1) == 1)  // *j may be gone after this
      pthread_cond_broadcast(&p->done);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

static bool grow_table(Pool *p, int want) {
  if (want <= p->max) return true;
  pthread_t *t = rt_alloc(p->cx, (size_t)want * sizeof *t);
  if (!t) return false;
  if (p->nworkers) memcpy(t, p->threads, (size_t)p->nworkers * sizeof *t);
  rt_free(p->cx, p->threads, (size_t)p->max * sizeof *t);
  p->threads = t;
  p->max = want;
  return true;
}

// Fewer threads than asked for is not an error.
static void start_workers(Pool *p, int want) {
  if (want > MAX_WORKERS) want = MAX_WORKERS;
  if (p->nworkers >= want || !grow_table(p, want)) return;
  sigset_t all, old;  // the application's signals are not for these threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  while (p->nworkers < want &&
         pthread_create(&p->threads[p->nworkers], NULL, worker, p) == 0)
    p->nworkers++;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void post(Pool *p, Job *j) {
  int helpers = j->n - 1 < MAX_WORKERS ? (int)(j->n - 1) : MAX_WORKERS;
  pthread_mutex_lock(&p->lock);
  start_workers(p, helpers);
  j->next = p->jobs;
  p->jobs = j;
  atomic_fetch_add(&p->posted, 1);
  if (helpers >= p->nsleep) pthread_cond_broadcast(&p->wake);
  else
    for (int i = 0; i < helpers; i++) pthread_cond_signal(&p->wake);
  pthread_mutex_unlock(&p->lock);
}

static void finish(Pool *p, Job *j) {
  int64_t end = rt_now_ns() + SPIN_NS;
  while (atomic_load(&j->running) && rt_now_ns() < end) rt_cpu_pause();
  pthread_mutex_lock(&p->lock);
  while (atomic_load(&j->running)) pthread_cond_wait(&p->done, &p->lock);
  Job **at = &p->jobs;
  while (*at != j) at = &(*at)->next;
  *at = j->next;
  pthread_mutex_unlock(&p->lock);
}

void rt_pool_run(void *pool, int64_t n, void (*body)(void *arg, int64_t i),
                 void *arg) {
  Job j = {.body = body, .arg = arg, .n = n};
  if (n <= 1) {
    run_job(&j);
    return;
  }
  post(pool, &j);
  run_job(&j);
  finish(pool, &j);
}

bool rt_pool_init(Pool *p, attn_ctx *cx) {
  p->cx = cx;
  if (pthread_mutex_init(&p->lock, NULL) != 0) return false;
  if (pthread_cond_init(&p->wake, NULL) == 0) {
    if (pthread_cond_init(&p->done, NULL) == 0) return true;
    pthread_cond_destroy(&p->wake);
  }
  pthread_mutex_destroy(&p->lock);
  return false;
}

void rt_pool_close(Pool *p) {
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  atomic_fetch_add(&p->posted, 1);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
  for (int i = 0; i < p->nworkers; i++) pthread_join(p->threads[i], NULL);
  rt_free(p->cx, p->threads, (size_t)p->max * sizeof *p->threads);
  pthread_cond_destroy(&p->done);
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->lock);
}
