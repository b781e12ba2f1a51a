// Commands: `attnc` runs as a child with limits on time and memory, so that
// nothing that LLVM does can end the server. The answer comes when it is done.
#include "tools/attn-ls/server.h"

#include "ir/core/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  SECONDS = 60,
  COMPILING = 50,             // of these: beyond them attnc says what it was at
  CPU_SECONDS = 4 * SECONDS,  // of all its threads
  MEMORY_MIB = 4096,
  MAX_OUTPUT = 8 << 20,
};

struct Child {
  pid_t pid;
  int fd;
  Arena a;
  Buf out;
  json_t *id, *token;  // of the request; of its progress
  const char *file;    // the copy of the text
  const char *view;    // where the output is kept, or NULL
  int64_t until;       // ms
  bool cancelled;
};

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// ---------------------------------------------------------------- progress
static void progress(Ls *ls, const Child *c, const char *kind,
                     const char *text) {
  if (!c->token) return;
  json_t *value = json_pack("{s:s}", "kind", kind);
  bool begin = strcmp(kind, "begin") == 0;
  json_object_set_new(value, begin ? "title" : "message", js_str(ls, text));
  if (begin) json_object_set_new(value, "cancellable", json_true());
  ls_notify(ls, "$/progress",
            json_pack("{s:O, s:o}", "token", c->token, "value", value));
}

static json_t *token_of(Ls *ls, const json_t *params) {
  json_t *given = json_object_get(params, "workDoneToken");
  if (json_is_string(given) || json_is_integer(given))
    return json_incref(given);
  if (!ls->client.progress) return NULL;
  json_t *t = json_sprintf("attn/%lld", (long long)ls->requests + 1);
  ls_request(ls, "window/workDoneProgress/create",
             json_pack("{s:O}", "token", t));
  return t;
}

// ---------------------------------------------------------------- files
static bool make_dir(Ls *ls, const char *name, const char **out) {
  *out = arena_printf(&ls->scratch, "%s/%s", ls->host.cache_dir, name);
  char *p = arena_strdup(&ls->scratch, *out);
  for (char *s = p + 1; *s; s++) {
    if (*s != '/') continue;
    *s = 0;
    mkdir(p, 0700);
    *s = '/';
  }
  return mkdir(*out, 0700) == 0 || errno == EEXIST;
}

static const char *base(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// ---------------------------------------------------------------- child
typedef Vec(const char *) Args;

static void arg(Ls *ls, Args *a, const char *s) {
  vec_push(&ls->scratch, a, s);
}

static void limits(void) {
  struct rlimit cpu = {CPU_SECONDS, CPU_SECONDS};
  struct rlimit mem = {(rlim_t)MEMORY_MIB << 20, (rlim_t)MEMORY_MIB << 20};
  setrlimit(RLIMIT_CPU, &cpu);
  setrlimit(RLIMIT_AS, &mem);
}

static pid_t start(const Args *args, int *fd) {
  int p[2];
  if (pipe2(p, O_CLOEXEC) != 0) return -1;
  pid_t pid = fork();
  if (pid == 0) {
    int none = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    if (none >= 0) dup2(none, 0);
    dup2(p[1], 1);
    dup2(p[1], 2);
    limits();
    execvp(args->at[0], (char *const *)args->at);
    _exit(127);
  }
  close(p[1]);
  if (pid < 0) close(p[0]);
  else fcntl(p[0], F_SETFL, O_NONBLOCK);
  *fd = p[0];
  return pid;
}

static void drop(Ls *ls, uint32_t i) {
  Child *c = ls->children.at[i];
  if (c->pid > 0) {
    kill(-c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
  }
  close(c->fd);
  unlink(c->file);
  json_decref(c->id);
  json_decref(c->token);
  Arena a = c->a;
  arena_drop(&a);
  ls->children.at[i] = ls->children.at[--ls->children.n];
}

void ls_children_free(Ls *ls) {
  while (ls->children.n) drop(ls, 0);
}

static void end_cancelled(Ls *ls, uint32_t i) {
  Child *c = ls->children.at[i];
  progress(ls, c, "end", "cancelled");
  ls_reply_error(ls, c->id, E_CANCELLED, "cancelled");
  drop(ls, i);
}

void ls_children_cancel(Ls *ls, const json_t *id) {
  for (uint32_t i = ls->children.n; i-- > 0;)
    if (json_equal(ls->children.at[i]->id, id)) end_cancelled(ls, i);
}

json_t *ls_cancel_progress(Ls *ls, const json_t *params, LsError *err) {
  const json_t *token = json_object_get(params, "token");
  (void)err;
  for (uint32_t i = ls->children.n; token && i-- > 0;)
    if (ls->children.at[i]->token &&
        json_equal(ls->children.at[i]->token, token))
      end_cancelled(ls, i);
  return NULL;
}

static void finish(Ls *ls, uint32_t i, const char *problem) {
  Child *c = ls->children.at[i];
  int status = 0;
  if (!problem && waitpid(c->pid, &status, 0) == c->pid) c->pid = 0;
  bool ok = !problem && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  const char *uri = NULL;
  buf_str(&c->out, "");
  if (ok && c->view && out_write(c->view, c->out.at, c->out.n))
    uri = ls_uri_of_path(ls, intern(&ls->names, c->view));
  progress(ls, c, "end", ok ? "done" : problem ? problem : "failed");
  if (uri && ls->client.show_document)
    ls_request(ls, "window/showDocument",
               json_pack("{s:s, s:b}", "uri", uri, "takeFocus", 1));
  if (problem) {
    ls_reply_error(ls, c->id, E_FAILED, problem);
  } else {
    json_t *r = json_pack("{s:b, s:o}", "ok", ok, "text",
                          js_text(ls, c->out.at, c->out.n));
    if (uri) json_object_set_new(r, "uri", json_string(uri));
    ls_reply(ls, c->id, r);
  }
  drop(ls, i);
}

int ls_child_fd(const Ls *ls, int *time_ms) {
  if (!ls->children.n) return -1;
  int64_t left = ls->children.at[0]->until - now_ms();
  *time_ms = left > 0 ? (int)left : 0;
  return ls->children.at[0]->fd;
}

void ls_child_ready(Ls *ls) {
  if (!ls->children.n) return;
  Child *c = ls->children.at[0];
  char piece[65536];
  ssize_t n = read(c->fd, piece, sizeof piece);
  if (n > 0 && c->out.n < MAX_OUTPUT) buf_add(&c->out, piece, (size_t)n);
  else if (n == 0) finish(ls, 0, NULL);
  if (n <= 0 && ls->children.n && ls->children.at[0] == c &&
      now_ms() >= c->until)
    finish(ls, 0, "it took too long");
  ArenaMark none = {0};
  arena_reset(&ls->scratch, none);
}

// ---------------------------------------------------------------- commands
typedef struct Row {
  const char *name, *verb, *pick;  // pick: the option that names the program
} Row;

static const Row rows[] = {
    {"attn.check", "check", "--filter"},
    {"attn.explain", "explain", "--fn"},
    {"attn.show", NULL, "--fn"},
};

static const Row *find_row(const char *name) {
  for (size_t i = 0; name && i < sizeof rows / sizeof *rows; i++)
    if (strcmp(rows[i].name, name) == 0) return &rows[i];
  return NULL;
}

// What attn.show shows; target: the one shown where a CPU has no such stage.
typedef struct Shown {
  const char *stage, *target;
} Shown;

static const Shown shown[] = {
    {"attn", NULL}, {"stream", NULL}, {"tile", NULL}, {"frag", "sm_90a"},
    {"mach", NULL}, {"llvm", NULL},   {"asm", NULL},  {"ptx", "sm_90a"},
};

static const Shown *find_stage(const char *s) {
  for (size_t i = 0; s && i < sizeof shown / sizeof *shown; i++)
    if (strcmp(shown[i].stage, s) == 0) return &shown[i];
  return NULL;
}

// --dim for the first specialization: a file of PTX has one.
static void first_variant(Ls *ls, Doc *d, const char *name, Args *a) {
  Analysis *an = ls_analysis_of(ls, d);
  const Decl *prog = an && an->unit ? fe_program(an->unit, name) : NULL;
  FeBind *binds;
  uint32_t width;
  if (!prog || an->cx.nerrors ||
      !fe_specializations(&an->cx, prog, NULL, 0, &binds, &width))
    return;
  for (uint32_t i = 0; i < width; i++) {
    const FeBind *b = &binds[i];
    arg(ls, a, "--dim");
    arg(ls, a,
        b->dtype != DT_NONE
            ? arena_printf(&ls->scratch, "%s=%s", b->name, dtype_name(b->dtype))
            : arena_printf(&ls->scratch, "%s=%lld", b->name,
                           (long long)b->value));
  }
}

// What is asked: of the program `name` of d, whose text is in `file`.
typedef struct Order {
  const Row *row;
  Doc *d;
  const char *file, *name, *stage;
} Order;

static void command_line(Ls *ls, const Order *o, Args *a) {
  const Row *row = o->row;
  const Doc *d = o->d;
  const char *stage = o->stage;
  arg(ls, a, ls->host.attnc);
  if (row->verb) arg(ls, a, row->verb);
  arg(ls, a, o->file);
  if (stage) {
    arg(ls, a, arena_printf(&ls->scratch, "--emit=%s", stage));
    arg(ls, a, "-o");
    arg(ls, a, "-");
    const char *target = find_stage(stage)->target;
    if (target) arg(ls, a, "--target");
    if (target) arg(ls, a, target);
    if (strcmp(stage, "ptx") == 0) first_variant(ls, o->d, o->name, a);
  }
  arg(ls, a, row->pick);
  arg(ls, a, o->name);
  arg(ls, a, arena_printf(&ls->scratch, "--max-seconds=%d", COMPILING));
  arg(ls, a, "--color=never");
  arg(ls, a, "-q");
  const char *slash = strrchr(d->path, '/');
  if (slash) {
    arg(ls, a, "-I");
    arg(ls, a,
        arena_strndup(&ls->scratch, d->path, (size_t)(slash - d->path) + 1));
  }
  for (uint32_t i = 0; i < ls->roots.n; i++) {
    arg(ls, a, "-I");
    arg(ls, a, ls->roots.at[i]);
  }
  arg(ls, a, NULL);
}

static Child *new_child(Ls *ls, const char *file, const char *view) {
  Arena a = ls_arena(ls);
  Child *c = NEW(&a, Child);
  c->id = json_incref((json_t *)ls->id);
  c->until = now_ms() + SECONDS * 1000;
  c->file = arena_strdup(&a, file);
  c->view = view ? arena_strdup(&a, view) : NULL;
  c->a = a;
  c->out.arena = &c->a;
  return c;
}

json_t *ls_execute(Ls *ls, const json_t *params, LsError *err) {
  const Row *row = find_row(js_get_str(params, "command"));
  const json_t *list = json_object_get(params, "arguments");
  const char *uri = json_string_value(json_array_get(list, 0));
  const char *name = json_string_value(json_array_get(list, 1));
  const char *stage = json_string_value(json_array_get(list, 2));
  const char *path = ls_path_of_uri(ls, uri), *dir;
  Doc *d = path ? ls_doc_of(ls, path) : NULL;
  if (!row || !d || !name || !ls->id) return ls_fail(err, E_PARAMS, "what?");
  if (!row->verb && !find_stage(stage))
    return ls_fail(err, E_PARAMS, "there is no such stage");
  if (row->verb) stage = NULL;
  if (!ls->host.attnc || ls->host.no_files || !ls->host.cache_dir)
    return ls_fail(err, E_FAILED, "attnc is not there");
  if (!make_dir(ls, "view", &dir))
    return ls_fail(err, E_FAILED, "the cache cannot be written");
  const char *file =
      arena_printf(&ls->scratch, "%s/%ld-%lld-%s", dir, (long)getpid(),
                   (long long)++ls->clock, base(path));
  const char *view = stage ? arena_printf(&ls->scratch, "%s/%s.%s", dir, name,
                                          strcmp(stage, "asm") == 0    ? "s"
                                          : strcmp(stage, "llvm") == 0 ? "ll"
                                                                       : stage)
                           : NULL;
  if (!out_write(file, d->text.text, d->text.len))
    return ls_fail(err, E_FAILED, "the cache cannot be written");
  Args args = {0};
  command_line(ls, &(Order){row, d, file, name, stage}, &args);
  Child *c = new_child(ls, file, view);
  c->pid = start(&args, &c->fd);
  vec_push(&ls->arena, &ls->children, c);
  if (c->pid < 0) {
    drop(ls, ls->children.n - 1);
    return ls_fail(err, E_FAILED, "attnc cannot be started");
  }
  c->token = token_of(ls, params);
  progress(ls, c, "begin",
           arena_printf(&ls->scratch, "attnc %s %s",
                        row->verb ? row->verb : stage, name));
  ls->later = true;
  return NULL;
}
