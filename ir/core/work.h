// What compilations are at, for a thread that looks after them and ends the
// process where one takes too long (tools/attnc/limit.c). Of a Ctx that nobody
// looks after all of this does nothing.
#ifndef ATTNC_IR_CORE_WORK_H
#define ATTNC_IR_CORE_WORK_H

#include "ir/core/src.h"

#include <stdbool.h>

typedef struct Ctx Ctx;
typedef struct Watch Watch;  // watch.h: who looks after sessions

// What one Ctx is at.
typedef struct WorkLine {
  struct WorkLine *next;
  bool there;            // in the list of its Watch
  int64_t since;         // ns; 0: nothing
  const Source *source;  // of the span; NULL: no place is known
  Span span;             // of the program
  int tool;              // the process that it waits for; 0: none
  char what[160];        // "pass online"
} WorkLine;

// A compilation begins, and ends. They may lie in each other.
void work_begin(Ctx *cx);
void work_end(Ctx *cx);
// One specialization for one target more.
void work_variant(Ctx *cx);
// What is worked at from now on is of this place.
void work_place(Ctx *cx, Span at);
void work_say(Ctx *cx, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// Waits for a process from now on; 0: no longer.
void work_tool(Ctx *cx, int pid);
// Nothing, until it says something: other threads go on.
void work_rest(Ctx *cx);
// Takes the Ctx's line out of the list.
void work_leave(Ctx *cx);

#endif
