// One thread: locks of a session that nobody looks after are never taken, and
// what is made once is made at the first call.
#ifndef ATTNC_PAGE_PTHREAD_H
#define ATTNC_PAGE_PTHREAD_H

#include <sys/types.h>  // names of types are there

static inline int pthread_mutex_lock(pthread_mutex_t *m) {
  (void)m;
  return 0;
}
static inline int pthread_mutex_unlock(pthread_mutex_t *m) {
  (void)m;
  return 0;
}
static inline int pthread_create(pthread_t *t, const void *a,
                                 void *(*f)(void *), void *data) {
  (void)t, (void)a, (void)f, (void)data;
  return 1;  // there is none
}
static inline int pthread_join(pthread_t t, void **r) {
  (void)t, (void)r;
  return 0;
}
static inline int pthread_cond_signal(pthread_cond_t *c) {
  (void)c;
  return 0;
}

#endif
