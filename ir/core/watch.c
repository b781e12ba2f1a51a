// Who looks after sessions, and the time.
#include "ir/core/watch.h"

#include <time.h>

int64_t watch_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void watch_init(Watch *w) {
  pthread_condattr_t a;
  *w = (Watch){0};
  pthread_mutex_init(&w->lock, NULL);
  pthread_condattr_init(&a);
  pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
  pthread_cond_init(&w->begun, &a);
  pthread_condattr_destroy(&a);
}

void watch_drop(Watch *w) {
  pthread_cond_destroy(&w->begun);
  pthread_mutex_destroy(&w->lock);
}

const WorkLine *watch_longest(const Watch *w) {
  const WorkLine *found = NULL;
  for (const WorkLine *l = w->first; l; l = l->next)
    if (l->since && (!found || l->since < found->since)) found = l;
  return found;
}

const WorkLine *watch_last(const Watch *w) {
  for (const WorkLine *l = w->first; l; l = l->next)
    if (l->what[0]) return l;
  return NULL;
}
