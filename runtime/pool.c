// The thread pool: a parallel-for whose caller always works too.
//
// A call puts a Job on its own stack, links it into the pool, and runs its
// indices together with whichever workers come by. It waits only for workers
// that took an index, so a call never depends on a worker being there: calls
// from several threads, nested calls and calls in a forked child (which has
// no workers) all end. Each worker has an index that it takes first, the same
// one in call after call: what a call left in a core's caches is there for the
// next one. Workers that sleep are woken by a tree, the caller a few of them
// and these the others, and need no lock for it.
#include "rt.h"

#include <semaphore.h>
#include <signal.h>
#include <string.h>

#define MAX_WORKERS 1023
#define SPIN_NS 20000  // about the cost of one sleep and wake

enum { BITS = 64, WORDS = (MAX_WORKERS + BITS) / BITS };

struct Job {
  Job *next;
  const OpenMp *openmp;  // whose team runs it, if one does
  void (*body)(void *arg, int64_t i);
  void *arg;
  int64_t n;
  atomic_llong taken;            // indices handed out
  atomic_int running;            // workers inside; raised under the pool's lock
  atomic_ullong claimed[WORDS];  // which indices
};

struct Worker {
  Pool *pool;
  pthread_t thread;
  sem_t wake;
  int number;
  bool asleep;   // under the pool's lock
  Worker *next;  // whom it wakes first, and how many of them
  int others;
};

// An index that nobody has, from `first` on; -1: there is none.
static int64_t claim(Job *j, int64_t first) {
  for (int64_t i = 0; i < j->n && atomic_load(&j->taken) < j->n; i++) {
    int64_t at = first + i < j->n ? first + i : first + i - j->n;
    unsigned long long bit = 1ull << at % BITS;
    atomic_ullong *word = &j->claimed[at / BITS];
    if (atomic_load(word) & bit || atomic_fetch_or(word, bit) & bit) continue;
    atomic_fetch_add(&j->taken, 1);
    return at;
  }
  return -1;
}

static void run_job(Job *j, int64_t first) {
  for (int64_t i = first % j->n; (i = claim(j, i)) >= 0;) j->body(j->arg, i);
}

static Job *open_job(const Pool *p) {
  for (Job *j = p->jobs; j; j = j->next)
    if (atomic_load(&j->taken) < j->n) return j;
  return NULL;
}

static void spin_until_post(Pool *p, unsigned seen) {
  int64_t end = rt_now_ns() + SPIN_NS;
  do {
    for (int i = 0; i < 32; i++) {
      if (atomic_load(&p->posted) != seen) return;
      rt_cpu_pause();
    }
  } while (rt_now_ns() < end);
}

// Half of them wake the other half of what is left, and so on.
static void wake(Worker *w, int n) {
  while (n > 0) {
    int half = (n + 1) / 2;
    Worker *rest = w;
    for (int i = 0; i < half; i++) rest = rest->next;
    w->others = half - 1;
    sem_post(&w->wake);
    w = rest;
    n -= half;
  }
}

// Called and returns with the lock held.
static void wait_for_post(Worker *w) {
  Pool *p = w->pool;
  unsigned seen = atomic_load(&p->posted);
  p->nspin++;
  pthread_mutex_unlock(&p->lock);
  spin_until_post(p, seen);
  pthread_mutex_lock(&p->lock);
  p->nspin--;
  if (p->stop || atomic_load(&p->posted) != seen) return;
  w->asleep = true;
  pthread_mutex_unlock(&p->lock);
  while (sem_wait(&w->wake) != 0) {}
  wake(w->next, w->others);
  pthread_mutex_lock(&p->lock);
}

// *j may be gone once `running` is lower.
static void leave(Pool *p, Job *j) {
  if (atomic_fetch_sub(&j->running, 1) != 1 || !atomic_load(&p->nwait)) return;
  pthread_mutex_lock(&p->lock);
  pthread_cond_broadcast(&p->done);
  pthread_mutex_unlock(&p->lock);
}

static void *worker(void *arg) {
  Worker *w = arg;
  Pool *p = w->pool;
  pthread_mutex_lock(&p->lock);
  while (!p->stop) {
    Job *j = open_job(p);
    if (!j) {
      wait_for_post(w);
      continue;
    }
    atomic_fetch_add(&j->running, 1);
    pthread_mutex_unlock(&p->lock);
    run_job(j, w->number + 1);
    leave(p, j);
    pthread_mutex_lock(&p->lock);
  }
  pthread_mutex_unlock(&p->lock);
  return NULL;
}

static bool grow_table(Pool *p, int want) {
  if (want <= p->max) return true;
  Worker **t = rt_alloc(p->cx, (size_t)want * sizeof *t);
  if (!t) return false;
  if (p->nworkers) memcpy(t, p->workers, (size_t)p->nworkers * sizeof *t);
  rt_free(p->cx, p->workers, (size_t)p->max * sizeof *t);
  p->workers = t;
  p->max = want;
  return true;
}

static bool start_worker(Pool *p) {
  Worker *w = rt_alloc(p->cx, sizeof *w);
  if (!w) return false;
  *w = (Worker){.pool = p, .number = p->nworkers};
  if (sem_init(&w->wake, 0, 0) == 0) {
    if (pthread_create(&w->thread, NULL, worker, w) == 0) {
      p->workers[p->nworkers++] = w;
      return true;
    }
    sem_destroy(&w->wake);
  }
  rt_free(p->cx, w, sizeof *w);
  return false;
}

// Fewer threads than asked for is not an error.
static void start_workers(Pool *p, int want) {
  if (want > MAX_WORKERS) want = MAX_WORKERS;
  if (p->nworkers >= want || !grow_table(p, want)) return;
  sigset_t all, old;  // the application's signals are not for these threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  while (p->nworkers < want && start_worker(p)) {}
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

// Up to n that sleep, the first ones, as a list.
static int sleepers(Pool *p, int n, Worker **list) {
  int found = 0;
  for (int i = 0; i < p->nworkers && found < n; i++) {
    Worker *w = p->workers[i];
    if (!w->asleep) continue;
    w->asleep = false;
    *list = w;
    list = &w->next;
    found++;
  }
  *list = NULL;
  return found;
}

static void post(Pool *p, Job *j) {
  int helpers = j->n - 1 < MAX_WORKERS ? (int)(j->n - 1) : MAX_WORKERS;
  Worker *list;
  pthread_mutex_lock(&p->lock);
  start_workers(p, helpers);
  j->next = p->jobs;
  p->jobs = j;
  atomic_fetch_add(&p->posted, 1);
  int n = sleepers(p, helpers - p->nspin, &list);
  pthread_mutex_unlock(&p->lock);
  wake(list, n);
}

static void finish(Pool *p, Job *j) {
  int64_t end = rt_now_ns() + SPIN_NS;
  while (atomic_load(&j->running) && rt_now_ns() < end) rt_cpu_pause();
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add(&p->nwait, 1);
  while (atomic_load(&j->running)) pthread_cond_wait(&p->done, &p->lock);
  atomic_fetch_sub(&p->nwait, 1);
  Job **at = &p->jobs;
  while (*at != j) at = &(*at)->next;
  *at = j->next;
  pthread_mutex_unlock(&p->lock);
}

static void in_team(void *arg) {
  Job *j = arg;
  run_job(j, j->openmp->number());
}

void rt_pool_run(void *pool, int64_t n, void (*body)(void *arg, int64_t i),
                 void *arg) {
  Job j = {.body = body, .arg = arg, .n = n};
  if (n <= 1) {
    if (n == 1) body(arg, 0);
    return;
  }
  Pool *p = pool;
  if (rt_openmp_has(&p->openmp, n)) {
    j.openmp = &p->openmp;
    p->openmp.parallel(in_team, &j, 0, 0);
    return;
  }
  post(pool, &j);
  run_job(&j, 0);
  finish(pool, &j);
}

static bool init_lock(Pool *p) {
  pthread_mutexattr_t a;
  if (pthread_mutexattr_init(&a) != 0) return false;
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP  // held for an instant only
  pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
  bool ok = pthread_mutex_init(&p->lock, &a) == 0;
  pthread_mutexattr_destroy(&a);
  return ok;
}

bool rt_pool_init(Pool *p, attn_ctx *cx) {
  p->cx = cx;
  rt_openmp_find(&p->openmp);
  if (!init_lock(p)) return false;
  if (pthread_cond_init(&p->done, NULL) == 0) return true;
  pthread_mutex_destroy(&p->lock);
  return false;
}

void rt_pool_close(Pool *p) {
  Worker *list;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  atomic_fetch_add(&p->posted, 1);
  int n = sleepers(p, p->nworkers, &list);
  pthread_mutex_unlock(&p->lock);
  wake(list, n);
  for (int i = 0; i < p->nworkers; i++) {
    Worker *w = p->workers[i];
    pthread_join(w->thread, NULL);
    sem_destroy(&w->wake);
    rt_free(p->cx, w, sizeof *w);
  }
  rt_free(p->cx, p->workers, (size_t)p->max * sizeof *p->workers);
  pthread_cond_destroy(&p->done);
  pthread_mutex_destroy(&p->lock);
}
