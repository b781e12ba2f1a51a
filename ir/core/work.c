// What sessions say that they are at.
#include "ir/core/ctx.h"
#include "ir/core/watch.h"

#include <stdarg.h>
#include <stdio.h>

// ---------------------------------------------------------------- the clock
void work_begin(Ctx *cx) {
  Watch *w = cx->watch;
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  if (w->depth++ == 0) {
    w->start = watch_now();
    w->variants = 0;
    if (w->edge) w->edge(w, true);
    pthread_cond_signal(&w->begun);
  }
  pthread_mutex_unlock(&w->lock);
}

void work_end(Ctx *cx) {
  Watch *w = cx->watch;
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  bool outer = w->depth == 1;
  if (w->depth) w->depth--;
  if (!w->depth) cx->line.since = 0;
  if (outer && w->edge) w->edge(w, false);
  pthread_mutex_unlock(&w->lock);
}

void work_variant(Ctx *cx) {
  Watch *w = cx->watch;
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  w->variants++;
  pthread_mutex_unlock(&w->lock);
}

// ---------------------------------------------------------------- lines
void work_place(Ctx *cx, Span at) {
  Watch *w = cx->watch;
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  bool known = span_known(at) && at.src < cx->sources.n;
  cx->line.source = known ? cx->sources.at[at.src] : NULL;
  cx->line.span = at;
  pthread_mutex_unlock(&w->lock);
}

void work_say(Ctx *cx, const char *fmt, ...) {
  Watch *w = cx->watch;
  WorkLine *l = &cx->line;
  va_list ap;
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  if (!l->there) {
    l->next = w->first;
    w->first = l;
    l->there = true;
  }
  l->since = watch_now();
  va_start(ap, fmt);
  vsnprintf(l->what, sizeof l->what, fmt, ap);
  va_end(ap);
  pthread_mutex_unlock(&w->lock);
}

void work_tool(Ctx *cx, int pid) {
  Watch *w = cx->watch;
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  cx->line.tool = pid;
  pthread_mutex_unlock(&w->lock);
}

void work_rest(Ctx *cx) {
  Watch *w = cx->watch;
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  cx->line.since = 0;
  pthread_mutex_unlock(&w->lock);
}

void work_leave(Ctx *cx) {
  Watch *w = cx->watch;
  if (!w) return;
  pthread_mutex_lock(&w->lock);
  for (WorkLine **l = &w->first; *l; l = &(*l)->next) {
    if (*l != &cx->line) continue;
    *l = cx->line.next;
    break;
  }
  cx->line = (WorkLine){0};
  pthread_mutex_unlock(&w->lock);
}
