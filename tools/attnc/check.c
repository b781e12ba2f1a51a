// attnc check: the check blocks of files, a line per expectation.
#include "tools/attnc/attnc.h"
#include "tools/attnc/files.h"
#include "tools/driver/run/checks.h"

#include "runtime/attn.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum {
  EXIT_INTERRUPTED = 130,  // as shells say it
  MAX_TITLES = 8,          // that are listed
};

typedef struct Checks {
  const char *path;
  uint32_t at, files;      // which of them
  atomic_uint outcome[3];  // by DrvOutcome
  uint32_t named;          // expectations of the file, for names
  bool mentioned;          // a file has the program of --fn
  Strings titles;          // of all blocks, with --filter
  attn_ctx *rt;
  Busy *busy;
} Checks;

static bool selected(const Cli *cli, const Decl *d) {
  return d->kind == DE_CHECK && (!cli->filter || strstr(d->name, cli->filter));
}

// --fn: only expectations that mention the program.
static bool mentions(const Cli *cli, const DrvExpect *e) {
  return !cli->fn || strstr(e->text, cli->fn);
}

static void print(const DrvExpect *e) {
  static const char *const words[] = {"ok  ", "FAIL", "skip"};
  printf("%s %s: %s (%s)\n", words[e->outcome], e->title, e->text, e->detail);
  fflush(stdout);
}

static void run_block(Session *s, const DrvChecker *k, const Decl *d,
                      Checks *c) {
  for (uint32_t i = 0; i < d->checks.n; i++) {
    const CheckStmt *x = &d->checks.at[i];
    if (x->kind != CK_EXPECT) continue;
    DrvExpect e = {.text = ""};
    if (s->cli->fn) {
      const Source *src = s->cx.sources.at[x->span.src];
      e.text = arena_strndup(&s->cx.session, src->text + x->span.lo,
                             x->span.hi - x->span.lo);
    }
    if (!mentions(s->cli, &e)) continue;
    DrvChecker own = *k;
    own.name = arena_printf(&s->cx.session, "%s-%u",
                            path_stem(&s->cx.session, c->path), ++c->named);
    e = drv_expect(&own, d, x);
    atomic_fetch_add(&c->outcome[e.outcome], 1);
    busy_hide(c->busy);
    print(&e);
  }
}

static uint32_t count_blocks(const Cli *cli, const Unit *u) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < u->decls.n; i++) n += selected(cli, u->decls.at[i]);
  return n;
}

static void run_blocks(Session *s, const DrvChecker *k, const Unit *u,
                       Checks *c) {
  uint32_t n = count_blocks(s->cli, u), done = 0;
  for (uint32_t i = 0; i < u->decls.n; i++) {
    const Decl *d = u->decls.at[i];
    if (d->kind == DE_CHECK && s->cli->filter)
      vec_push(&s->cli->arena, &c->titles,
               arena_strdup(&s->cli->arena, d->name));
    if (!selected(s->cli, d)) continue;
    busy_say(c->busy, "file %u of %u, check %u of %u: %s", c->at, c->files,
             ++done, n, d->name);
    run_block(s, k, d, c);
  }
}

static int check_file(Session *s, void *data) {
  Checks *c = data;
  DrvOptions opt;
  Unit *u = session_unit(s, c->path);
  const Target *t = u ? drv_host_target(&s->cx, s->cli->target) : NULL;
  if (!t || !session_options(s, &opt)) {
    atomic_fetch_add(&c->outcome[DRV_FAILED], 1);
    busy_hide(c->busy);
    return EXIT_OK;
  }
  if (s->cli->fn && fe_program(u, s->cli->fn)) c->mentioned = true;
  DrvChecker k = {.cx = &s->cx,
                  .target = t,
                  .opt = &opt,
                  .seed = s->cli->seed ? (uint64_t)s->cli->seed : 1,
                  .rt = c->rt,
                  .save = s->cli->save};
  run_blocks(s, &k, u, c);
  busy_hide(c->busy);
  return EXIT_OK;
}

// ---------------------------------------------------------------- the end
static void summary(Checks *c) {
  printf("%u passed, %u failed", atomic_load(&c->outcome[DRV_PASSED]),
         atomic_load(&c->outcome[DRV_FAILED]));
  uint32_t skipped = atomic_load(&c->outcome[DRV_SKIPPED]);
  if (skipped) printf(", %u skipped", skipped);
}

// Ctrl-C: what was found until then.
static void *interrupted(void *data) {
  Checks *c = data;
  sigset_t set;
  int sig;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  if (sigwait(&set, &sig) != 0) return NULL;
  busy_hide(c->busy);
  summary(c);
  printf(", interrupted in file %u of %u\n", c->at, c->files);
  fflush(stdout);
  _exit(EXIT_INTERRUPTED);
}

// Threads made from now on leave Ctrl-C to the one that waits for it.
static void watch_keys(Checks *c) {
  pthread_t thread;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0) return;
  if (pthread_create(&thread, NULL, interrupted, c) == 0)
    pthread_detach(thread);
  else pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

// Nothing ran: is what was asked for not there?
static int no_checks(Session *s, void *data) {
  const Checks *c = data;
  const Cli *cli = s->cli;
  Arena *a = &s->cx.session;
  if (cli->fn && !c->mentioned) {
    diag_add(&s->cx, DIAG_no_program, NOWHERE, cli->fn);
    return EXIT_OK;
  }
  const char *why = c->files ? "the files have no check blocks"
                             : "the folders have no .attn file";
  if (c->files == 1) why = arena_printf(a, "'%s' has no check block", c->path);
  if (cli->fn) why = arena_printf(a, "no expectation mentions '%s'", cli->fn);
  if (cli->filter)
    why = arena_printf(a, "no check's title contains '%s'", cli->filter);
  Diag *d = diag_add(&s->cx, DIAG_no_checks, NOWHERE, why);
  Buf b = {.arena = a};
  for (uint32_t i = 0; i < c->titles.n && i < MAX_TITLES; i++)
    buf_printf(&b, "%s'%s'", i ? ", " : "", c->titles.at[i]);
  if (c->titles.n)
    diag_note(&s->cx, d, NOWHERE, "there are %s%s", b.at,
              c->titles.n > MAX_TITLES ? ", .." : "");
  return EXIT_OK;
}

static int finish(Cli *cli, Checks *c, int worst) {
  uint32_t ran = 0;
  for (int i = 0; i < 3; i++) ran += atomic_load(&c->outcome[i]);
  summary(c);
  printf("\n");
  if (worst) return worst;
  if (!ran) return session_run(cli, no_checks, c);
  return atomic_load(&c->outcome[DRV_FAILED]) ? EXIT_DIAG : EXIT_OK;
}

int command_check(Cli *cli) {
  Checks *all = NEW(&cli->arena, Checks);
  attn_ctx_options o = {.size = sizeof o, .threads = (int32_t)cli->threads};
  int worst = EXIT_OK;
  Strings files = {0};
  if (!files_of(cli, &files)) return EXIT_ENV;
  all->files = files.n;
  watch_keys(all);
  if (cli->threads) all->rt = attn_ctx_create(&o, NULL);
  all->busy = busy_start(cli, "check");
  for (uint32_t i = 0; i < files.n; i++) {
    all->path = files.at[i];
    all->at = i + 1;
    all->named = 0;
    busy_hide(all->busy);
    if (files.n > 1) printf("%s\n", all->path);
    int rc = session_run(cli, check_file, all);
    if (rc > worst) worst = rc;
  }
  busy_end(all->busy);
  all->busy = NULL;
  if (all->rt) attn_ctx_destroy(all->rt);
  return finish(cli, all, worst);
}
