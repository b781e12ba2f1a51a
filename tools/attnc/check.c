// attnc check: the check blocks of files, a line per expectation.
#include "tools/attnc/attnc.h"
#include "tools/driver/run/checks.h"

#include "runtime/attn.h"

typedef struct Checks {
  const char *path;
  uint32_t count[3];  // by DrvOutcome
  uint32_t blocks;
  uint32_t named;  // expectations of the file, for names
  attn_ctx *rt;
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
  c->blocks++;
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
    c->count[e.outcome]++;
    print(&e);
  }
}

static uint32_t count_blocks(const Cli *cli, const Unit *u) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < u->decls.n; i++) n += selected(cli, u->decls.at[i]);
  return n;
}

static int check_file(Session *s, void *data) {
  Checks *c = data;
  DrvOptions opt;
  Unit *u = session_unit(s, c->path);
  const Target *t = u ? drv_host_target(&s->cx, s->cli->target) : NULL;
  if (!t || !session_options(s, &opt)) {
    c->count[DRV_FAILED]++;
    return EXIT_DIAG;
  }
  DrvChecker k = {.cx = &s->cx,
                  .target = t,
                  .opt = &opt,
                  .seed = s->cli->seed ? (uint64_t)s->cli->seed : 1,
                  .rt = c->rt,
                  .save = s->cli->save};
  Progress p = progress_start(s->cli, "check");
  uint32_t n = count_blocks(s->cli, u), done = 0;
  for (uint32_t i = 0; i < u->decls.n; i++) {
    if (!selected(s->cli, u->decls.at[i])) continue;
    progress_at(&p, done++, n, u->decls.at[i]->name);
    progress_end(&p);
    run_block(s, &k, u->decls.at[i], c);
  }
  return EXIT_OK;
}

int command_check(Cli *cli) {
  Checks all = {0};
  attn_ctx_options o = {.size = sizeof o, .threads = (int32_t)cli->threads};
  int worst = EXIT_OK;
  if (cli->threads) all.rt = attn_ctx_create(&o, NULL);
  for (uint32_t i = 0; i < cli->inputs.n; i++) {
    all.path = cli->inputs.at[i];
    all.named = 0;
    if (cli->inputs.n > 1) printf("%s\n", all.path);
    int rc = session_run(cli, check_file, &all);
    if (rc > worst) worst = rc;
  }
  if (all.rt) attn_ctx_destroy(all.rt);
  printf("%u passed, %u failed", all.count[DRV_PASSED], all.count[DRV_FAILED]);
  if (all.count[DRV_SKIPPED]) printf(", %u skipped", all.count[DRV_SKIPPED]);
  printf("\n");
  if (worst) return worst;
  return all.count[DRV_FAILED] ? EXIT_DIAG : EXIT_OK;
}
