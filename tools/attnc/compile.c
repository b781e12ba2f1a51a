// attnc FILE: an object, a shared library, or one stage of the way there.
#include "tools/attnc/cache.h"

#include "ir/core/guess.h"
#include "tools/driver/compile/link.h"

#include <unistd.h>

typedef enum StageKind { ST_TREE, ST_IR, ST_CODE } StageKind;

static const struct Stage {
  const char *name;
  StageKind kind;
  int which;  // Level or DrvStage
} stages[] = {
    {"ast", ST_TREE, 0},
    {"attn", ST_IR, LV_ATTN},
    {"stream", ST_IR, LV_STREAM},
    {"tile", ST_IR, LV_TILE},
    {"frag", ST_IR, LV_FRAG},
    {"mach", ST_IR, LV_MACH},
    {"llvm", ST_CODE, DRV_LLVM},
    {"asm", ST_CODE, DRV_ASM},
    {"obj", ST_CODE, DRV_OBJECT},
    {"header", ST_CODE, DRV_HEADER},
    {"ptx", ST_CODE, DRV_PTX},
    {"cubin", ST_CODE, DRV_CUBIN},
    {"container", ST_CODE, DRV_CONTAINER},
    {"amdgcn", ST_CODE, DRV_AMDGCN},
    {"hsaco", ST_CODE, DRV_HSACO},
};
enum { NSTAGES = sizeof stages / sizeof *stages };

static const struct Stage *find_stage(const Cli *cli) {
  const char *words[NSTAGES];
  for (int i = 0; i < NSTAGES; i++) {
    words[i] = stages[i].name;
    if (strcmp(cli->emit, words[i]) == 0) return &stages[i];
  }
  const char *near = guess_among(cli->emit, words, NSTAGES);
  if (near)
    usage_error(cli, "no stage '%s', did you mean '%s'?", cli->emit, near);
  else usage_error(cli, "no stage '%s'", cli->emit);
  return NULL;
}

typedef struct Job {
  const struct Stage *stage;  // NULL: object or shared library
  Decl *progs[DRV_MAX_PROGRAMS];
  uint32_t n;
  DrvOptions opt;
} Job;

// ---------------------------------------------------------------- outputs
// Without -o: the input's stem beside the working directory.
static const char *output_path(Session *s) {
  const Cli *cli = s->cli;
  if (cli->output) return cli->output;
  return arena_printf(&s->cx.session, "%s%s",
                      path_stem(&s->cx.session, cli->inputs.at[0]),
                      cli->shared ? ".so" : ".o");
}

static void depend_path(Buf *out, const char *path) {
  for (; *path; path++) {
    if (strchr(" #$", *path)) buf_char(out, *path == '$' ? '$' : '\\');
    buf_char(out, *path);
  }
}

static bool write_depends(Session *s, const char *target) {
  Cli *cli = s->cli;
  if (!cli->depfile && !cli->depname) return true;
  Arena *a = &s->cx.session;
  Buf b = {.arena = a};
  depend_path(&b, target);
  buf_char(&b, ':');
  for (uint32_t i = 0; i < s->cx.sources.n; i++) {
    const char *path = s->cx.sources.at[i]->path;
    uint32_t len;
    if (path[0] == '<' || fe_stdlib(path, &len)) continue;
    buf_str(&b, " \\\n  ");
    depend_path(&b, path);
  }
  buf_char(&b, '\n');
  const char *name = cli->depname;
  if (!name) {
    char *stem = arena_strdup(a, target);
    char *dot = strrchr(stem, '.');
    if (dot && !strchr(dot, '/')) *dot = 0;
    name = arena_printf(a, "%s.d", stem);
  }
  return session_put(s, name, &b);
}

// ---------------------------------------------------------------- stages
static bool emit_ast(Session *s, const Unit *u) {
  Buf out = {.arena = &s->cx.session};
  fe_dump(u, &out);
  buf_char(&out, '\n');
  return session_put(s, s->cli->output, &out);
}

static bool emit_ir(Session *s, Job *j) {
  Buf out = {.arena = &s->cx.session};
  DrvProgs progs = {j->progs, j->n};
  Level to = (Level)j->stage->which;
  return drv_emit_ir(&s->cx, progs, to, &j->opt, &out) &&
         session_put(s, s->cli->output, &out);
}

// Compiles, or finds what was compiled of the same.
static bool made(Session *s, Job *j, DrvStage what, Buf *out, Buf *header) {
  Cache c = cache_open(s);
  if (cache_get(s, &c, out, header)) return true;
  if (!drv_compile(&s->cx, (DrvProgs){j->progs, j->n}, what, &j->opt, out,
                   header))
    return false;
  cache_put(s, &c, out, header);
  return true;
}

static bool emit_code(Session *s, Job *j) {
  Buf out = {.arena = &s->cx.session}, header = out;
  DrvStage what = (DrvStage)j->stage->which;
  bool bytes = what == DRV_OBJECT || what == DRV_CUBIN || what == DRV_HSACO ||
               what == DRV_CONTAINER;
  bool binary = bytes && !s->cli->output;
  if (binary && isatty(STDOUT_FILENO)) {
    usage_error(s->cli, "an object does not go to a terminal; use -o");
    return false;
  }
  return made(s, j, what, &out, &header) &&
         session_put(s, s->cli->output, what == DRV_HEADER ? &header : &out);
}

static bool emit_stage(Session *s, Job *j) {
  return j->stage->kind == ST_IR ? emit_ir(s, j) : emit_code(s, j);
}

static bool emit_object(Session *s, Job *j) {
  Cli *cli = s->cli;
  Buf out = {.arena = &s->cx.session}, header = out;
  const char *path = output_path(s);
  if (!made(s, j, DRV_OBJECT, &out, cli->header ? &header : NULL)) return false;
  bool ok = cli->shared ? drv_link_shared(&s->cx, &out, path)
                        : session_put(s, path, &out);
  if (ok && cli->header) ok = session_put(s, cli->header, &header);
  return ok && write_depends(s, path);
}

// ---------------------------------------------------------------- command
// prog, as it is for its gradient, its gradient, and its derivative in a
// direction; one of them alone where --fn names it. 0: a diagnostic.
static uint32_t derivatives(Session *s, Decl *prog, Decl **out) {
  const Cli *cli = s->cli;
  DrvGradient g = {prog, NULL};
  uint32_t n = 0;
  if (cli->grad && !drv_gradient(&s->cx, prog, cli->grad, &g)) return 0;
  out[n++] = g.forward;
  if (cli->grad) out[n++] = g.backward;
  if (cli->jvp && !(out[n++] = drv_jvp(&s->cx, prog, cli->jvp))) return 0;
  for (uint32_t i = 1; cli->fn && i < n; i++)
    if (strcmp(cli->fn, out[i]->name) == 0) return out[0] = out[i], 1;
  return n;
}

// Each program with those that are derived of it.
static bool with_derivatives(Session *s, Job *j) {
  Decl *all[DRV_MAX_PROGRAMS];
  uint32_t n = 0;
  if (!s->cli->grad && !s->cli->jvp) return true;
  for (uint32_t i = 0; i < j->n && n + 3 <= DRV_MAX_PROGRAMS; i++) {
    uint32_t more = derivatives(s, j->progs[i], all + n);
    if (!more) return false;
    n += more;
  }
  memcpy(j->progs, all, sizeof *all * n);
  j->n = n;
  return true;
}

static int compile(Session *s, void *data) {
  Job *j = data;
  Source *src = session_read(s, s->cli->inputs.at[0]);
  if (!src) return EXIT_OK;
  bool tree = j->stage && j->stage->kind == ST_TREE;
  if (tree) {
    Unit *u = fe_parse(&s->cx, src);
    if (u->syntax_ok) fe_check(&s->cx, u);
    emit_ast(s, u);
    return EXIT_OK;
  }
  Unit *u = drv_unit(&s->cx, src);
  if (!u || !session_options(s, &j->opt)) return EXIT_OK;
  j->n = session_programs(s, u, j->progs, DRV_MAX_PROGRAMS);
  if (!j->n && !s->cli->fn)
    diag_add(&s->cx, DIAG_no_programs, NOWHERE, src->path);
  if (!j->n || !with_derivatives(s, j)) return EXIT_OK;
  Busy *busy = busy_start(s->cli, "compiling");
  DrvSteps steps = {busy_step, busy};
  j->opt.steps = &steps;
  if (j->stage) emit_stage(s, j);
  else emit_object(s, j);
  busy_end(busy);
  session_remarks(s);
  return EXIT_OK;
}

// A name that says what the file is: -o gqa.so is a shared library.
static bool names_shared(const Cli *cli) {
  size_t n = cli->output ? strlen(cli->output) : 0;
  return !cli->emit && n > 3 && strcmp(cli->output + n - 3, ".so") == 0;
}

int command_compile(Cli *cli) {
  Job *j = NEW(&cli->arena, Job);
  if (cli->emit && !(j->stage = find_stage(cli))) return EXIT_USAGE;
  if (cli->emit && cli->shared)
    return usage_error(cli, "--shared and --emit exclude each other");
  if (names_shared(cli)) cli->shared = true;
  return session_run(cli, compile, j);
}
