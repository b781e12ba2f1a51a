// An OpenMP runtime with a team of three threads.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

void GOMP_parallel(void (*body)(void *), void *arg, unsigned threads,
                   unsigned flags);
int omp_get_max_threads(void);
int omp_get_thread_num(void);
int omp_in_parallel(void);

enum { TEAM = 3 };

static _Thread_local int number, inside;
static atomic_int regions;

typedef struct Member {
  pthread_t thread;
  void (*body)(void *);
  void *arg;
  int number;
} Member;

static void *run(void *arg) {
  const Member *m = arg;
  number = m->number;
  inside = 1;
  m->body(m->arg);
  inside = 0;
  return NULL;
}

void GOMP_parallel(void (*body)(void *), void *arg, unsigned threads,
                   unsigned flags) {
  Member m[TEAM];
  (void)threads, (void)flags;
  if (!atomic_fetch_add(&regions, 1)) puts("a team runs");
  for (int i = 0; i < TEAM; i++) {
    m[i] = (Member){.body = body, .arg = arg, .number = i};
    if (i) pthread_create(&m[i].thread, NULL, run, &m[i]);
  }
  run(&m[0]);
  for (int i = 1; i < TEAM; i++) pthread_join(m[i].thread, NULL);
}

int omp_get_max_threads(void) {
  return TEAM;
}

int omp_get_thread_num(void) {
  return number;
}

int omp_in_parallel(void) {
  return inside;
}
