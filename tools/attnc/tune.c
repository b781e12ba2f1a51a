// attnc tune: tile sizes by measuring them; prints a schedule block.
#include "tools/attnc/report.h"

static const int64_t q_sizes[] = {16, 32, 48, 64, 96, 128, 192, 256};
static const int64_t k_sizes[] = {32, 64, 128, 256, 512};
enum {
  NQ = sizeof q_sizes / sizeof *q_sizes,
  NK = sizeof k_sizes / sizeof *k_sizes,
  TRIALS = NQ * NK,
};

typedef struct Trial {
  int64_t q, k;
  double seconds;        // of the median run; 0: it does not compile
} Trial;

// Diagnostics of a candidate that does not compile are no errors of tune's.
static void forget_errors(Ctx *cx, uint32_t diags, uint32_t errors) {
  cx->diags.n = diags;
  cx->nerrors = errors;
}

static void try_tiles(Session *s, Bench *b, Trial *t) {
  uint32_t diags = s->cx.diags.n, errors = s->cx.nerrors;
  b->opt.tile_q = t->q;
  b->opt.tile_k = t->k;
  t->seconds = bench_run(s, b) ? b->mid : 0;
  forget_errors(&s->cx, diags, errors);
}

static bool better(const Trial *a, const Trial *b) {
  return a->seconds > 0 && (b->seconds <= 0 || a->seconds < b->seconds);
}

static void note(const Cli *cli, const Trial *t) {
  if (cli->quiet) return;
  if (t->seconds > 0)
    fprintf(stderr, "tile_q = %lld, tile_k = %lld: %.3f ms\n", (long long)t->q,
            (long long)t->k, t->seconds * 1e3);
  else
    fprintf(stderr, "tile_q = %lld, tile_k = %lld: refused\n", (long long)t->q,
            (long long)t->k);
}

// First the keys at the chosen rows, then the rows at the best keys, then the
// neighbours of the best: a quarter of the grid.
static Trial search(Session *s, Bench *b) {
  Trial best = {0, 0, 0}, t;
  uint32_t done = 0;
  Progress p = progress_start(s->cli, "tune");
  for (int i = 0; i < NK; i++) {
    t = (Trial){64, k_sizes[i], 0};
    try_tiles(s, b, &t);
    progress_at(&p, done++, NK + NQ, NULL);
    note(s->cli, &t);
    if (better(&t, &best)) best = t;
  }
  int64_t k = best.k;
  for (int i = 0; i < NQ && k; i++) {
    if (q_sizes[i] == 64) continue;
    t = (Trial){q_sizes[i], k, 0};
    try_tiles(s, b, &t);
    progress_at(&p, done++, NK + NQ, NULL);
    note(s->cli, &t);
    if (better(&t, &best)) best = t;
  }
  progress_end(&p);
  return best;
}

static bool tune_one(Session *s, const Unit *u, Decl *prog, void *data) {
  Buf *out = data;
  Bench b = {.threads = 1};
  if (!bench_prepare(s, &b, u, prog) || !bench_run(s, &b)) {
    bench_done(&b);
    return false;
  }
  Trial before = {0, 0, b.mid}, best = search(s, &b);
  bench_done(&b);
  buf_printf(out, "# %s on %s, %d threads: %.3f ms, ", inputs_title(&b.call),
             b.target->name, b.threads, before.seconds * 1e3);
  if (!better(&best, &before)) {
    buf_str(out, "and no tiles were faster\n");
    return true;
  }
  buf_printf(out, "with these tiles %.3f ms\n", best.seconds * 1e3);
  buf_printf(out, "schedule %s for \"%s\" { tile_q = %lld; tile_k = %lld; }\n",
             prog->name, b.target->name, (long long)best.q,
             (long long)best.k);
  return true;
}

static int tune(Session *s, void *data) {
  (void)data;
  Buf out = {.arena = &s->cx.session};
  if (session_each(s, tune_one, &out)) session_put(s, s->cli->output, &out);
  return EXIT_OK;
}

int command_tune(Cli *cli) { return session_run(cli, tune, NULL); }
