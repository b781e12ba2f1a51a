// Limits of a session: a thread looks how long a compilation has been going on
// and how much memory the process took for it. LLVM cannot be asked to stop, so
// beyond a limit the thread says what was being done and ends the process:
// files are written elsewhere until they are whole (outfile.h), and tools that
// run end with it (codegen/object/tool.c). Arenas of all threads, which hold
// what is not compiled too, count what they take together (ArenaPool).
#include "tools/attnc/attnc.h"

#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

#define DEFAULT_SECONDS 60.0
#define DEFAULT_MIB 4096
#define LOOK_NS 20000000   // between two looks
#define LOOSE (5LL << 18)  // bytes of data for each MiB of --max-memory

int64_t limit_memory(const Cli *cli) {
  return cli->max_memory ? cli->max_memory : DEFAULT_MIB;
}

static double seconds(const Cli *cli) {
  return cli->max_seconds > 0 ? cli->max_seconds : DEFAULT_SECONDS;
}

// ---------------------------------------------------------------- the end
static void cannot_say(void *data) {
  static const char text[] = "attnc: out of memory\n";
  (void)data;
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  _exit(EXIT_ENV);
}

static Span place(Ctx *cx, const WorkLine *l) {
  if (!l || !l->source) return NOWHERE;
  Source *s = NEW(&cx->session, Source);
  *s = *l->source;
  s->id = 0;
  vec_push(&cx->session, &cx->sources, s);
  return (Span){0, l->span.lo, l->span.hi};
}

// Between two steps the one before is named: what it took is still there.
static void tell(Ctx *cx, const Session *s, DiagId id) {
  const WorkLine *l = watch_longest(&s->watch);
  if (!l) l = watch_last(&s->watch);
  const char *what = l ? l->what : "the beginning";
  Span at = place(cx, l);
  if (id == DIAG_too_long) {
    uint32_t n = s->watch.variants;
    Diag *d = diag_add(cx, id, at, seconds(s->cli) * (n > 1 ? n : 1), what);
    if (n > 1)
      diag_note(cx, d, NOWHERE,
                "that is %g s for each specialization and target, of which %u "
                "were begun; --max-seconds gives more",
                seconds(s->cli), n);
    else
      diag_note(cx, d, NOWHERE, "--max-seconds=%g gives twice the time",
                2 * seconds(s->cli));
  } else {
    Diag *d = diag_add(cx, id, at, (long long)limit_memory(s->cli), what);
    diag_note(cx, d, NOWHERE, "--max-memory=%lld gives twice as much",
              2 * (long long)limit_memory(s->cli));
  }
}

// No more bytes of data than these. AddressSanitizer takes its own.
static void bound_data(const struct rlimit *most) {
#if !defined(__SANITIZE_ADDRESS__)
  setrlimit(RLIMIT_DATA, most);
#else
  (void)most;
#endif
}

// In a session of its own: the other may be full, or in use. The lock is held.
void limit_tell(const Session *s, DiagId id) {
  Ctx cx;
  bound_data(&s->limit.data);
  ctx_init(&cx);
  cx.session.oom = cx.scratch.oom = cannot_say;
  tell(&cx, s, id);
  if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
  session_print(s, &cx);
  fflush(stderr);
  ctx_drop(&cx);
}

// ---------------------------------------------------------------- looking
// Pages of /proc/PID/statm: of memory that is there, or of data that there may
// be (private pages that can be written).
typedef struct Pages {
  long long resident, data;
} Pages;

static Pages pages_of(int fd) {
  char text[128];
  Pages p = {0};
  ssize_t n = pread(fd, text, sizeof text - 1, 0);
  if (n <= 0) return p;
  text[n] = 0;
  if (sscanf(text, "%*d %lld %*d %*d %*d %lld", &p.resident, &p.data) != 2)
    return (Pages){0};
  return p;
}

static int64_t bytes(long long pages) {
  return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

// What the tools take that are waited for. The lock is held.
static int64_t of_tools(const Watch *w) {
  int64_t all = 0;
  for (const WorkLine *l = w->first; l; l = l->next) {
    char name[64];
    if (!l->tool) continue;
    snprintf(name, sizeof name, "/proc/%d/statm", l->tool);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    all += bytes(pages_of(fd).resident);
    close(fd);
  }
  return all;
}

static Session *of_watch(Watch *w) {
  return (Session *)((char *)w - offsetof(Session, watch));
}

// A compilation has what there was before, whoever took it. Where it takes far
// more between two looks, allocations fail.
static void edge(Watch *w, bool begins) {
  Session *s = of_watch(w);
  Limit *l = &s->limit;
  Pages p = pages_of(l->fd);
  if (!begins) {
    l->left = bytes(p.resident);
    bound_data(&l->data);
    return;
  }
  l->had += bytes(p.resident) - l->left;
  if (getrlimit(RLIMIT_DATA, &l->data) != 0 || !p.data) return;
  rlim_t most = (rlim_t)bytes(p.data) + (rlim_t)limit_memory(s->cli) * LOOSE;
  if (most < l->data.rlim_cur)
    bound_data(&(struct rlimit){most, l->data.rlim_max});
}

// When the compilation has had its time.
static int64_t deadline(const Session *s) {
  const Watch *w = &s->watch;
  double most = seconds(s->cli) * (w->variants > 1 ? w->variants : 1);
  return most < 1e9 ? w->start + (int64_t)(most * 1e9) : INT64_MAX;
}

// DIAG_COUNT: within the limits.
static DiagId beyond(const Session *s) {
  const Limit *l = &s->limit;
  if (watch_now() >= deadline(s)) return DIAG_too_long;
  int64_t has = bytes(pages_of(l->fd).resident) + of_tools(&s->watch);
  if (has - l->had > limit_memory(s->cli) << 20) return DIAG_too_much_memory;
  return DIAG_COUNT;
}

static void until(Watch *w, int64_t ns) {
  struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
  pthread_cond_timedwait(&w->begun, &w->lock, &t);
}

static void *look(void *data) {
  Session *s = data;
  Watch *w = &s->watch;
  pthread_mutex_lock(&w->lock);
  while (!s->limit.done) {
    if (!w->depth) {
      pthread_cond_wait(&w->begun, &w->lock);
      continue;
    }
    DiagId id = beyond(s);
    if (id != DIAG_COUNT) {
      limit_tell(s, id);
      _exit(EXIT_ENV);
    }
    int64_t next = watch_now() + LOOK_NS, last = deadline(s);
    until(w, next < last ? next : last);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

// ---------------------------------------------------------------- border
bool limit_start(Session *s) {
  watch_init(&s->watch);
  s->watch.edge = edge;
  s->limit.fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  getrlimit(RLIMIT_DATA, &s->limit.data);
  s->cx.watch = &s->watch;
  s->watch.memory = limit_memory(s->cli) << 20;
  s->limit.on = pthread_create(&s->limit.thread, NULL, look, s) == 0;
  return s->limit.on;
}

void limit_end(Session *s) {
  if (s->limit.on) {
    pthread_mutex_lock(&s->watch.lock);
    s->limit.done = true;
    pthread_cond_signal(&s->watch.begun);
    pthread_mutex_unlock(&s->watch.lock);
    pthread_join(s->limit.thread, NULL);
  }
  if (s->limit.fd >= 0) close(s->limit.fd);
  watch_drop(&s->watch);
}
