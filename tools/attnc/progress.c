// Progress on standard error: a line that is rewritten in place.
#include "tools/attnc/attnc.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

Progress progress_start(const Cli *cli, const char *what) {
  Progress p = {.on = !cli->quiet && isatty(STDERR_FILENO), .what = what};
  p.start = now_ns();
  return p;
}

// Nothing in the first second, then ten times a second.
void progress_at(Progress *p, int64_t done, int64_t of, const char *detail) {
  int64_t t = now_ns();
  if (!p->on || t - p->start < 1000000000 || t - p->shown < 100000000) return;
  double left = 0;
  if (done > 0)
    left = (double)(t - p->start) / 1e9 / (double)done * (double)(of - done);
  fprintf(stderr, "\r\033[K%s %lld/%lld, about %.0f s left  %s", p->what,
          (long long)done, (long long)of, left, detail ? detail : "");
  p->shown = t;
}

void progress_end(Progress *p) {
  if (p->on && p->shown) fputs("\r\033[K", stderr);
  p->shown = 0;
}

void progress_watch(void *progress, int64_t done, int64_t of) {
  progress_at(progress, done, of, NULL);
}

// ---------------------------------------------------------------- busy
struct Busy {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool done;
  const char *what;
};

static void *tick(void *data) {
  Busy *b = data;
  struct timespec t;
  int seconds = 0;
  clock_gettime(CLOCK_REALTIME, &t);
  pthread_mutex_lock(&b->lock);
  while (!b->done) {
    t.tv_sec++;
    while (!b->done && pthread_cond_timedwait(&b->wake, &b->lock, &t) == 0) {}
    if (b->done) break;
    fprintf(stderr, "\r\033[K%s, %d s", b->what, ++seconds);
  }
  pthread_mutex_unlock(&b->lock);
  if (seconds) fputs("\r\033[K", stderr);
  return NULL;
}

Busy *busy_start(const Cli *cli, const char *what) {
  if (cli->quiet || !isatty(STDERR_FILENO)) return NULL;
  Busy *b = calloc(1, sizeof *b);
  if (!b) return NULL;
  b->what = what;
  pthread_mutex_init(&b->lock, NULL);
  pthread_cond_init(&b->wake, NULL);
  if (pthread_create(&b->thread, NULL, tick, b) == 0) return b;
  free(b);
  return NULL;
}

void busy_end(Busy *b) {
  if (!b) return;
  pthread_mutex_lock(&b->lock);
  b->done = true;
  pthread_cond_signal(&b->wake);
  pthread_mutex_unlock(&b->lock);
  pthread_join(b->thread, NULL);
  pthread_mutex_destroy(&b->lock);
  pthread_cond_destroy(&b->wake);
  free(b);
}
