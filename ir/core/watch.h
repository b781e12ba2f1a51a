// Who looks after sessions: what they are at (work.h), and since when.
//
// Ownership: a Watch outlives the Ctxs it is set in. Its lock guards what it
// holds, lines included.
#ifndef ATTNC_IR_CORE_WATCH_H
#define ATTNC_IR_CORE_WATCH_H

#include "ir/core/work.h"

#include <pthread.h>

struct Watch {
  pthread_mutex_t lock;
  pthread_cond_t begun;
  WorkLine *first;
  uint32_t depth;     // compilations in each other
  uint32_t variants;  // of the outer one, begun so far; at least 1
  int64_t start;      // ns, of the outer one
  int64_t memory;     // bytes that a tool may take; 0: any
  // The outer one begins, and ends; NULL: nobody asks. The lock is held.
  void (*edge)(struct Watch *w, bool begins);
};

void watch_init(Watch *w);
void watch_drop(Watch *w);
int64_t watch_now(void);  // ns
// The line that has been at the same for longest; NULL: none is at anything.
// The lock is held.
const WorkLine *watch_longest(const Watch *w);
// A line that was at something, whether it still is; NULL: none ever was. The
// lock is held.
const WorkLine *watch_last(const Watch *w);

#endif
