// A session: one Ctx, its diagnostics, its exit code.
#include "tools/attnc/cache.h"

#include "ir/core/guess.h"

#include "ir/core/outfile.h"

#include <ctype.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

// ---------------------------------------------------------------- diagnostics
static bool set(const char *name) {
  const char *v = getenv(name);
  return v && *v && strcmp(v, "0") != 0;
}

static bool use_color(const Cli *cli) {
  const char *c = cli->color, *term = getenv("TERM");
  if (c && strcmp(c, "auto") != 0) return strcmp(c, "always") == 0;
  if (set("CLICOLOR_FORCE")) return true;
  if (getenv("NO_COLOR") && *getenv("NO_COLOR")) return false;
  return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

static DiagStyle style_of(const Cli *cli) {
  struct winsize w;
  int width = 100;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col) width = w.ws_col;
  setlocale(LC_CTYPE, "");  // numbers stay in the C locale
  bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  return (DiagStyle){use_color(cli), !utf8, width};
}

static void put(FILE *f, const Buf *b) {
  if (b->n) fwrite(b->at, 1, b->n, f);
}

void session_print(const Session *s, Ctx *cx) {
  Buf b = {.arena = &cx->session};
  const char *format = s->cli->error_format;
  if (format && strcmp(format, "json") == 0) diag_render_json(cx, &b);
  else diag_render(cx, s->style, &b);
  put(stderr, &b);
}

// What other exit codes than that of a diagnostic stand for.
static const struct {
  DiagId id;
  int code;
} codes[] = {
    {DIAG_cannot_write, EXIT_ENV},  {DIAG_no_tool, EXIT_ENV},
    {DIAG_no_device, EXIT_ENV},     {DIAG_not_here, EXIT_ENV},
    {DIAG_bad_target, EXIT_USAGE},  {DIAG_no_code, EXIT_USAGE},
    {DIAG_no_stage, EXIT_USAGE},    {DIAG_many_kernels, EXIT_USAGE},
    {DIAG_no_program, EXIT_USAGE},  {DIAG_which_program, EXIT_USAGE},
    {DIAG_no_such_dim, EXIT_USAGE}, {DIAG_data_name, EXIT_USAGE},
    {DIAG_bad_pair, EXIT_USAGE},
};

static int code_of(const Diag *d) {
  if (d->id == DIAG_cannot_read && !span_known(d->span)) return EXIT_ENV;
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (codes[i].id == d->id) return codes[i].code;
  return EXIT_DIAG;
}

// The first error decides.
static int exit_code(const Session *s, int rc) {
  if (diag_has_bug(&s->cx)) return EXIT_INTERNAL;
  for (uint32_t i = 0; !rc && i < s->cx.diags.n; i++)
    if (s->cx.diags.at[i]->sev == SEV_ERROR) rc = code_of(s->cx.diags.at[i]);
  return rc || !s->cx.nerrors ? rc : EXIT_DIAG;
}

// ---------------------------------------------------------------- running
static void no_memory(void *data) {
  Session *s = data;
  longjmp(s->no_memory, 1);
}

static void open_session(Session *s) {
  atomic_store(&s->pool.limit, (size_t)limit_memory(s->cli) << 20);
  s->log.arena = &s->cx.session;
  Arena *arenas[] = {&s->cx.session, &s->cx.scratch};
  for (int i = 0; i < 2; i++) {
    arenas[i]->oom = no_memory;
    arenas[i]->oom_data = s;
    arenas[i]->pool = &s->pool;
  }
  Strings *dirs = &s->cli->include;
  for (uint32_t i = 0; i < dirs->n; i++)
    vec_push(&s->cx.session, &s->cx.include_dirs, dirs->at[i]);
  const char *std = getenv("ATTNC_STDLIB");
  if (std && *std) vec_push(&s->cx.session, &s->cx.include_dirs, std);
}

// False: there is no such warning.
static bool set_warnings(const Cli *cli, const Strings *names, bool *flags) {
  for (uint32_t i = 0; i < names->n; i++) {
    const char *name = names->at[i];
    bool all = strcmp(name, "all") == 0, found = all;
    for (int id = 0; id < DIAG_COUNT; id++) {
      bool own = strcmp(diag_name((DiagId)id), name) == 0 ||
                 strcmp(diag_code((DiagId)id), name) == 0;
      if (diag_severity((DiagId)id) != SEV_WARNING || !(all || own)) continue;
      flags[id] = found = true;
    }
    if (found) continue;
    usage_error(cli, "no warning is named '%s'", name);
    return false;
  }
  return true;
}

// Memory ran out somewhere in the session.
static void tell_no_memory(Session *s) {
  pthread_mutex_lock(&s->watch.lock);
  limit_tell(s, DIAG_too_much_memory);
  pthread_mutex_unlock(&s->watch.lock);
}

int session_run(Cli *cli, SessionFn *body, void *data) {
  Session *s = NEW(&cli->arena, Session);
  volatile int rc = EXIT_ENV;
  s->cli = cli;
  s->style = style_of(cli);
  ctx_init(&s->cx);
  if (!limit_start(s)) {
    fprintf(stderr, "attnc: no thread can be made: %s\n", strerror(EAGAIN));
    limit_end(s);
    return EXIT_ENV;
  }
  if (setjmp(s->no_memory) == 0) {
    open_session(s);
    bool known = set_warnings(cli, &cli->werror, s->cx.strict) &&
                 set_warnings(cli, &cli->wno, s->cx.silent);
    int got = known ? body(s, data) : EXIT_USAGE;
    if (s->log.n) fwrite(s->log.at, 1, s->log.n, stderr);
    session_print(s, &s->cx);
    rc = exit_code(s, got);
  } else {
    tell_no_memory(s);
  }
  ctx_drop(&s->cx);
  limit_end(s);
  return rc;
}

// ---------------------------------------------------------------- input
Source *session_read(Session *s, const char *path) {
  Ctx *cx = &s->cx;
  if (strcmp(path, "-") != 0) return ctx_read_source(cx, path, NOWHERE);
  uint32_t n = 0;
  errno = 0;
  const char *text =
      cx->read_file(cx->read_file_data, &cx->session, "/dev/stdin", &n);
  if (text) return ctx_add_source(cx, "<stdin>", text, n);
  diag_add(cx, DIAG_cannot_read, NOWHERE, "standard input", strerror(errno));
  return NULL;
}

Unit *session_unit(Session *s, const char *path) {
  Source *src = session_read(s, path);
  return src ? drv_unit(&s->cx, src) : NULL;
}

static void list_programs(Session *s, Diag *d, Decl **progs, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    diag_note(&s->cx, d, progs[i]->name_span, "program '%s'", progs[i]->name);
}

static Diag *no_such_program(Session *s, Decl **progs, uint32_t n) {
  Ctx *cx = &s->cx;
  const char *words[DRV_MAX_PROGRAMS];
  for (uint32_t i = 0; i < n; i++) words[i] = progs[i]->name;
  Diag *d = diag_add(cx, DIAG_no_program, NOWHERE, s->cli->fn);
  const char *near = guess_among(s->cli->fn, words, n);
  if (near) diag_note(cx, d, NOWHERE, "did you mean '%s'?", near);
  return d;
}

// The program of whose name --fn is, with that end.
static Decl *without(Session *s, const Unit *unit, const char *end) {
  size_t n = strlen(s->cli->fn), less = strlen(end);
  if (n <= less || strcmp(s->cli->fn + n - less, end) != 0) return NULL;
  return fe_program(unit, arena_strndup(&s->cx.session, s->cli->fn,
                                        (uint32_t)(n - less)));
}

// The program whose derivative --fn names: NAME_grad with --grad, NAME_jvp with
// --jvp.
static Decl *of_derivative(Session *s, const Unit *unit) {
  Decl *d = s->cli->grad ? without(s, unit, "_grad") : NULL;
  return d || !s->cli->jvp ? d : without(s, unit, "_jvp");
}

uint32_t session_programs(Session *s, const Unit *unit, Decl **out,
                          uint32_t max) {
  uint32_t n = fe_programs(unit, out, max);
  if (n > max) n = max;
  if (!s->cli->fn) return n;
  Decl *d = fe_program(unit, s->cli->fn);
  if (!d) d = of_derivative(s, unit);
  if (!d) {
    no_such_program(s, out, n);
    return 0;
  }
  out[0] = d;
  return 1;
}

bool session_each(Session *s, SessionProgram *fn, void *data) {
  Decl *progs[DRV_MAX_PROGRAMS];
  Unit *u = session_unit(s, s->cli->inputs.at[0]);
  if (!u) return false;
  uint32_t n = session_programs(s, u, progs, DRV_MAX_PROGRAMS);
  if (!n && !s->cli->fn)
    diag_add(&s->cx, DIAG_no_programs, NOWHERE, u->source->path);
  for (uint32_t i = 0; i < n; i++)
    if (!fn(s, u, progs[i], data)) return false;
  return n > 0;
}

Decl *session_program(Session *s, const Unit *unit) {
  Decl *progs[DRV_MAX_PROGRAMS];
  uint32_t n = session_programs(s, unit, progs, DRV_MAX_PROGRAMS);
  if (n == 1) return progs[0];
  if (n > 1)
    list_programs(s, diag_add(&s->cx, DIAG_which_program, NOWHERE), progs, n);
  else if (!s->cli->fn)
    diag_add(&s->cx, DIAG_no_programs, NOWHERE, unit->source->path);
  return NULL;
}

// ---------------------------------------------------------------- output
static bool print(const void *bytes, size_t n) {
  return (!n || fwrite(bytes, 1, n, stdout) == n) && fflush(stdout) == 0;
}

bool session_write(Session *s, const char *path, const void *bytes, size_t n) {
  bool to_stdout = !path || strcmp(path, "-") == 0;
  errno = 0;
  bool ok = to_stdout ? print(bytes, n) : out_write(path, bytes, n);
  if (!ok && (!to_stdout || errno != EPIPE))
    diag_add(&s->cx, DIAG_cannot_write, NOWHERE,
             to_stdout ? "standard output" : path, strerror(errno));
  return ok;
}

bool session_put(Session *s, const char *path, const Buf *b) {
  return session_write(s, path, b->at, b->n);
}

void session_remarks(Session *s) {
  if (!s->cli->remarks) return;
  for (uint32_t i = 0; i < s->cx.remarks.n; i++)
    fprintf(stderr, "remark: %s\n", s->cx.remarks.at[i]);
}

const char *path_stem(Arena *a, const char *path) {
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  if (strcmp(name, "-") == 0 || !*name) name = "stdin";
  char *stem = arena_strdup(a, name);
  char *dot = strrchr(stem, '.');
  if (dot && dot != stem) *dot = 0;
  return stem;
}

// Stems become the first part of C names.
static const char *identifier(Arena *a, const char *stem) {
  bool digit = *stem >= '0' && *stem <= '9';
  char *s = arena_printf(a, "%s%s", digit ? "_" : "", stem);
  for (char *p = s; *p; p++)
    if (!isalnum((unsigned char)*p)) *p = '_';
  return s;
}

bool session_options(Session *s, DrvOptions *out) {
  const Cli *c = s->cli;
  Arena *a = &s->cx.session;
  const char *stem = c->prefix ? c->prefix : path_stem(a, c->inputs.at[0]);
  *out = (DrvOptions){.targets = c->target,
                      .prefix = identifier(a, stem),
                      .tile_q = c->tile_q,
                      .tile_k = c->tile_k,
                      .chunk = c->chunk,
                      .workspace = c->workspace,
                      .jobs = (uint32_t)c->jobs,
                      .verify_each = c->verify_each,
                      .print_after_all = c->print_after_all,
                      .time_passes = c->time_passes,
                      .dump_dir = c->dump_dir,
                      .log = &s->log,
                      .store = cache_store(s)};
  for (uint32_t i = 0; i < c->dims.n; i++)
    if (!drv_parse_dims(&s->cx, c->dims.at[i], &out->fixed)) return false;
  return true;
}
