// Progress on standard error: a line that is rewritten in place.
#include "tools/attnc/attnc.h"

#include <pthread.h>
#include <stdarg.h>
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
  bool done, shown;
  const char *what;
  char at[96];  // "kernel 3 of 12"
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
    fprintf(stderr, "\r\033[K%s%s%s, %d s", b->what, b->at[0] ? ": " : "",
            b->at, ++seconds);
    b->shown = true;
  }
  pthread_mutex_unlock(&b->lock);
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

void busy_say(Busy *b, const char *fmt, ...) {
  va_list ap;
  if (!b) return;
  va_start(ap, fmt);
  pthread_mutex_lock(&b->lock);
  vsnprintf(b->at, sizeof b->at, fmt, ap);
  pthread_mutex_unlock(&b->lock);
  va_end(ap);
}

void busy_step(void *busy, const char *what, uint32_t done, uint32_t of) {
  busy_say(busy, "%s %u of %u", what, done, of);
}

void busy_hide(Busy *b) {
  if (!b) return;
  pthread_mutex_lock(&b->lock);
  if (b->shown) fputs("\r\033[K", stderr);
  b->shown = false;
  pthread_mutex_unlock(&b->lock);
}

void busy_end(Busy *b) {
  if (!b) return;
  pthread_mutex_lock(&b->lock);
  b->done = true;
  pthread_cond_signal(&b->wake);
  pthread_mutex_unlock(&b->lock);
  pthread_join(b->thread, NULL);
  busy_hide(b);
  pthread_mutex_destroy(&b->lock);
  pthread_cond_destroy(&b->wake);
  free(b);
}
