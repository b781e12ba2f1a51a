// The thread pool: a parallel-for whose caller always works too.
//
// A call puts a Job on its own stack, shows it in a slot of the pool, and runs
// its indices together with whichever workers come by. It waits only for
// workers that are inside, so a call never depends on a worker being there:
// calls from several threads, nested calls and calls in a forked child (which
// has no workers) all end. Each worker has an index that it takes first, the
// same one in call after call: what a call left in a core's caches is there for
// the next one. Workers that spin come and go without a lock; those that sleep
// are woken by a tree, the caller a few of them and these the others.
#include "rt.h"

#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define MAX_WORKERS 1023
#define SPIN_NS 20000  // about the cost of one sleep and wake

enum { BITS = 64, WORDS = (MAX_WORKERS + BITS) / BITS };

struct Job {
  const OpenMp *openmp;  // whose team runs it, if one does
  void (*body)(void *arg, int64_t i);
  void *arg;
  int64_t n;
  _Alignas(64) atomic_ullong taken[WORDS];  // which indices
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

// Indices of a word of `taken` that nobody has.
static unsigned long long open_of(const Job *j, int64_t word) {
  int64_t rest = j->n - word * BITS;
  unsigned long long all = rest < BITS ? (1ull << rest) - 1 : ~0ull;
  return all & ~atomic_load(&j->taken[word]);
}

static bool is_open(const Job *j) {
  for (int64_t i = 0; i * BITS < j->n; i++)
    if (open_of(j, i)) return true;
  return false;
}

// One of these bits, the first from `at` on if there is one.
static int pick(unsigned long long open, int64_t at) {
  unsigned long long behind = open & (~0ull << at);
  return __builtin_ctzll(behind ? behind : open);
}

// An index that nobody has, `first` or one behind it if there is; -1: none.
static int64_t claim(Job *j, int64_t first) {
  int64_t words = (j->n + BITS - 1) / BITS;
  for (int64_t i = 0; i < words; i++) {
    int64_t word = (first / BITS + i) % words;
    unsigned long long open;
    while ((open = open_of(j, word)) != 0) {
      int bit = pick(open, i ? 0 : first % BITS);
      if (!(atomic_fetch_or(&j->taken[word], 1ull << bit) & 1ull << bit))
        return word * BITS + bit;
    }
  }
  return -1;
}

static void run_job(Job *j, int64_t first) {
  for (int64_t i = first % j->n; (i = claim(j, i)) >= 0;) j->body(j->arg, i);
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

static void wait_for_post(Worker *w, unsigned seen) {
  Pool *p = w->pool;
  atomic_fetch_add(&p->nspin, 1);
  spin_until_post(p, seen);
  atomic_fetch_sub(&p->nspin, 1);
  if (atomic_load(&p->posted) != seen) return;
  pthread_mutex_lock(&p->lock);
  bool sleeps = atomic_load(&p->posted) == seen;
  w->asleep = sleeps;
  pthread_mutex_unlock(&p->lock);
  if (!sleeps) return;
  while (sem_wait(&w->wake) != 0) {}
  wake(w->next, w->others);
}

// Who is inside may use the job that the slot has; its caller takes the job
// away first and then waits until nobody is inside.
static bool help(Slot *s, const Worker *w) {
  if (!atomic_load(&s->job)) return false;
  atomic_fetch_add(&s->inside, 1);
  Job *j = atomic_load(&s->job);
  bool open = j && is_open(j);
  if (open) run_job(j, w->number + 1);
  Pool *p = w->pool;
  if (atomic_fetch_sub(&s->inside, 1) != 1 || !atomic_load(&p->nwait))
    return open;
  pthread_mutex_lock(&p->lock);
  pthread_cond_broadcast(&p->done);
  pthread_mutex_unlock(&p->lock);
  return open;
}

static void *worker(void *arg) {
  Worker *w = arg;
  Pool *p = w->pool;
  while (!atomic_load(&p->stop)) {
    unsigned seen = atomic_load(&p->posted);
    bool helped = false;
    for (int i = 0; i < RT_SLOTS && !helped; i++)
      helped = help(&p->slots[i], w);
    if (!helped) wait_for_post(w, seen);
  }
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

static Slot *free_slot(Pool *p) {
  for (int i = 0; i < RT_SLOTS; i++)
    if (!atomic_exchange(&p->slots[i].used, true)) return &p->slots[i];
  return NULL;
}

static void post(Pool *p, Slot *s, Job *j) {
  int helpers = j->n - 1 < MAX_WORKERS ? (int)(j->n - 1) : MAX_WORKERS;
  Worker *list;
  atomic_store(&s->job, j);
  pthread_mutex_lock(&p->lock);
  start_workers(p, helpers);
  atomic_fetch_add(&p->posted, 1);
  int n = sleepers(p, helpers - atomic_load(&p->nspin), &list);
  pthread_mutex_unlock(&p->lock);
  wake(list, n);
}

static void wait_for(Pool *p, Slot *s) {
  int64_t end = rt_now_ns() + SPIN_NS;
  while (atomic_load(&s->inside) && rt_now_ns() < end) rt_cpu_pause();
  if (!atomic_load(&s->inside)) return;
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add(&p->nwait, 1);
  while (atomic_load(&s->inside)) pthread_cond_wait(&p->done, &p->lock);
  atomic_fetch_sub(&p->nwait, 1);
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
  Slot *s = getpid() == p->process ? free_slot(p) : NULL;
  if (s) post(p, s, &j);
  run_job(&j, 0);
  if (!s) return;  // done alone: a child, or very many calls at once
  atomic_store(&s->job, NULL);
  wait_for(p, s);
  atomic_store(&s->used, false);
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
  p->process = getpid();
  rt_openmp_find(&p->openmp);
  if (!init_lock(p)) return false;
  if (pthread_cond_init(&p->done, NULL) == 0) return true;
  pthread_mutex_destroy(&p->lock);
  return false;
}

void rt_pool_close(Pool *p) {
  Worker *list;
  pthread_mutex_lock(&p->lock);
  atomic_store(&p->stop, true);
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
