// Session state: arenas, sources, reading files.
#include "ir/core/ctx.h"

#include <assert.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MAX_SOURCE (64u << 20)  // bytes; flex and spans keep 32-bit offsets

// Reads to the end of file in pieces: the size of a pipe is not known ahead.
static const char *read_stream(FILE *f, Arena *a, uint32_t *len) {
  Buf b = {.arena = a};
  char piece[8192];
  size_t n;
  buf_str(&b, "");
  while ((n = fread(piece, 1, sizeof piece, f)) > 0) {
    buf_add(&b, piece, n);
    if (b.n > MAX_SOURCE) break;  // the caller reports the size
  }
  if (ferror(f)) return NULL;
  *len = b.n;
  return b.at;
}

static const char *read_file(void *data, Arena *a, const char *path,
                             uint32_t *len) {
  (void)data;
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  struct stat st;
  const char *text = NULL;
  int err = 0;
  if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode)) {
    err = EISDIR;
  } else {
    text = read_stream(f, a, len);
    err = errno;
  }
  fclose(f);
  errno = err;
  return text;
}

void ctx_init(Ctx *cx) {
  *cx = (Ctx){.max_errors = 20, .read_file = read_file};
  cx->names.arena = cx->home = &cx->session;
}

void ctx_init_helper(Ctx *cx, const Ctx *of) {
  ctx_init(cx);
  cx->session.limit = of->session.limit;
  cx->scratch.limit = of->scratch.limit;
  cx->session.pool = of->session.pool;
  cx->scratch.pool = of->scratch.pool;
  cx->sources = of->sources;
  cx->sources.cap = cx->sources.n;  // one that is added goes elsewhere
  cx->watch = of->watch;
}

void ctx_drop(Ctx *cx) {
  work_leave(cx);
  arena_drop(&cx->modules);
  arena_drop(&cx->kept);
  arena_drop(&cx->scratch);
  arena_drop(&cx->session);
  *cx = (Ctx){0};
}

// ---------------------------------------------------------------- memory
static void leave(void *border) {
  longjmp(*(jmp_buf *)border, 1);
}

bool ctx_try(Ctx *cx, void (*body)(void *data), void *data) {
  jmp_buf border;
  Arena *both[] = {&cx->session, &cx->scratch};
  struct {
    void (*oom)(void *);
    void *data;
  } was[2];
  for (int i = 0; i < 2; i++) {
    was[i].oom = both[i]->oom;
    was[i].data = both[i]->oom_data;
    both[i]->oom = leave;
    both[i]->oom_data = &border;
  }
  bool enough = setjmp(border) == 0;
  if (enough) body(data);
  for (int i = 0; i < 2; i++) {
    both[i]->oom = was[i].oom;
    both[i]->oom_data = was[i].data;
  }
  return enough;
}

void ctx_limit(const Ctx *cx, Arena *a) {
  const Arena *s = &cx->session;
  a->limit = s->limit;
  a->pool = s->pool;
  a->until = s->until;
  a->oom = s->oom;
  a->oom_data = s->oom_data;
}

CtxHome ctx_home(Ctx *cx) {
  Arena *a = &cx->modules;
  CtxHome h = {.was = cx->home, .mark = arena_mark(a)};
  ctx_limit(cx, a);
  cx->home = a;
  return h;
}

void ctx_leave(Ctx *cx, CtxHome h) {
  arena_reset(&cx->modules, h.mark);
  cx->home = h.was;
}

void ctx_no_memory(Ctx *cx) {
  if (cx->session.oom) cx->session.oom(cx->session.oom_data);
  __builtin_trap();
}

// ---------------------------------------------------------------- sources
static void index_lines(Arena *a, Source *s) {
  uint32_t n = 1;
  for (uint32_t i = 0; i < s->len; i++) n += s->text[i] == '\n';
  s->line = NEWN(a, uint32_t, n);
  s->nlines = n;
  n = 1;
  for (uint32_t i = 0; i < s->len; i++)
    if (s->text[i] == '\n') s->line[n++] = i + 1;
}

static Source *add_source(Ctx *cx, const char *path, const char *text,
                          uint32_t len) {
  Source *s = NEW(&cx->session, Source);
  *s = (Source){.path = arena_strdup(&cx->session, path),
                .text = text,
                .len = len,
                .id = cx->sources.n};
  index_lines(&cx->session, s);
  vec_push(&cx->session, &cx->sources, s);
  return s;
}

static bool small_enough(Ctx *cx, const char *path, size_t len, Span at) {
  if (len <= MAX_SOURCE) return true;
  diag_add(cx, DIAG_too_large, at, path, (unsigned long long)len,
           (unsigned long long)MAX_SOURCE);
  return false;
}

Source *ctx_add_source(Ctx *cx, const char *path, const char *text,
                       size_t len) {
  if (!small_enough(cx, path, len, NOWHERE)) return NULL;
  return add_source(cx, path, arena_strndup(&cx->session, text, len),
                    (uint32_t)len);
}

Source *ctx_read_source(Ctx *cx, const char *path, Span importer) {
  uint32_t len = 0;
  errno = 0;
  const char *text =
      cx->read_file(cx->read_file_data, &cx->session, path, &len);
  if (!text) {
    int err = errno ? errno : EIO;
    diag_add(cx, DIAG_cannot_read, importer, path, strerror(err));
    return NULL;
  }
  if (!small_enough(cx, path, len, importer)) return NULL;
  // A reader of the embedder need not terminate its text.
  return add_source(cx, path, arena_strndup(&cx->session, text, len), len);
}

void ctx_remark(Ctx *cx, const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  vec_push(&cx->session, &cx->remarks, arena_strdup(&cx->session, text));
}
