// Ctx: the only home of compiler state. One per compilation session; two may
// live in one process and be used from two threads.
#ifndef ATTNC_IR_CORE_CTX_H
#define ATTNC_IR_CORE_CTX_H

#include "ir/core/arena.h"
#include "ir/core/diag.h"
#include "ir/core/intern.h"
#include "ir/core/map.h"
#include "ir/core/src.h"
#include "ir/core/vec.h"
#include "ir/core/work.h"

// How a session reads files. Returns malloc-free memory in `a`, or NULL with
// errno set. The default reads the file system.
typedef const char *ReadFileFn(void *data, Arena *a, const char *path,
                               uint32_t *len);

typedef struct PlanKnown PlanKnown;

struct Ctx {
  Arena session;     // sources, names, diagnostics, AST, IR of the session
  Arena scratch;     // one pass; reset by mark
  Arena modules;     // a module while passes change it (ctx_home)
  Arena *home;       // of modules that are made: `session`, or `modules`
  Arena kept;        // modules that may be asked for again (tools/plan/known.h)
  PlanKnown *known;  // which these are, or NULL
  Interner names;
  Vec(Source *) sources;
  Vec(Diag *) diags;
  uint32_t nerrors;
  uint32_t max_errors;  // further ones are counted, not kept (default 20)
  uint32_t nhidden;     // warnings beyond ten times as many, not kept
  bool strict[DIAG_COUNT], silent[DIAG_COUNT];  // warnings: errors; not kept

  Vec(const char *) include_dirs;  // -I, searched in order
  ReadFileFn *read_file;
  void *read_file_data;

  Vec(const char *) remarks;  // one-line explanations by passes (attnc explain)

  Watch *watch;   // who looks after this session; NULL: nobody
  WorkLine line;  // what it is at
};

// Every Ctx starts with ctx_init and ends with ctx_drop.
void ctx_init(Ctx *cx);
void ctx_drop(Ctx *cx);
// The same for a thread that helps `of`: its limits, and who looks after it.
void ctx_init_helper(Ctx *cx, const Ctx *of);
// Runs body. False: memory ran out in it, and what it made in cx is only there
// to be dropped. Arenas that had a hook have it again.
bool ctx_try(Ctx *cx, void (*body)(void *data), void *data);
// Where modules that are made live: from ctx_home on in an arena of their own,
// with the session's limits; until ctx_leave, which drops them.
typedef struct CtxHome {
  Arena *was;
  ArenaMark mark;
} CtxHome;
CtxHome ctx_home(Ctx *cx);
void ctx_leave(Ctx *cx, CtxHome h);
// Arena a has the session's limits from now on.
void ctx_limit(const Ctx *cx, Arena *a);
// What an arena does where memory runs out; for what a helper ran out of.
_Noreturn void ctx_no_memory(Ctx *cx);
// Adds text (copied) as a source file. NULL with a diagnostic if too large.
Source *ctx_add_source(Ctx *cx, const char *path, const char *text, size_t len);
// Reads a file through cx->read_file. NULL with a diagnostic if unreadable.
Source *ctx_read_source(Ctx *cx, const char *path, Span importer);
void ctx_remark(Ctx *cx, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
