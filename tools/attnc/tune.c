// attnc tune: tile sizes by measuring them; prints a schedule block.
#include "tools/attnc/report.h"

enum { MAX_SIZES = 10 };

// Rows and keys that are tried, ended by 0; keys first, at `rows` rows.
typedef struct Sizes {
  int64_t rows, q[MAX_SIZES], k[MAX_SIZES];
} Sizes;

static const Sizes cpu_sizes = {64,
                                {16, 32, 48, 96, 128, 192, 256},
                                {32, 64, 128, 256, 512}};
// One to three groups of warps.
static const Sizes gpu_sizes = {128,
                                {64, 192},
                                {32, 48, 64, 80, 96, 112, 128, 160, 192}};

typedef struct Trial {
  int64_t q, k;
  double seconds;  // of the median run; 0: it does not compile
} Trial;

// Diagnostics of a candidate that does not compile are no errors of tune's.
static void try_tiles(Session *s, Bench *b, Trial *t) {
  DiagMark mark = diag_mark(&s->cx);
  b->opt.tile_q = t->q;
  b->opt.tile_k = t->k;
  t->seconds = bench_run(s, b) ? b->mid : 0;
  mark.remarks = s->cx.remarks.n;
  diag_forget(&s->cx, mark);
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

static uint32_t count(const int64_t *sizes) {
  uint32_t n = 0;
  while (n < MAX_SIZES && sizes[n]) n++;
  return n;
}

// First the keys at the usual rows, then the rows at the best keys: some
// points of the grid.
static Trial search(Session *s, Bench *b, const Sizes *sizes) {
  uint32_t nk = count(sizes->k), nq = count(sizes->q);
  Trial best = {0, 0, 0};
  Progress p = progress_start(s->cli, "tune");
  for (uint32_t i = 0; i < nk + nq; i++) {
    Trial t = {sizes->rows, i < nk ? sizes->k[i] : best.k, 0};
    if (i >= nk) t.q = sizes->q[i - nk];
    if (!t.k) break;
    try_tiles(s, b, &t);
    progress_at(&p, i, nk + nq, NULL);
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
  bool gpu = b.target->kind == TARGET_GPU;
  Trial before = {0, 0, b.mid};
  Trial best = search(s, &b, gpu ? &gpu_sizes : &cpu_sizes);
  bench_done(&b);
  buf_printf(out, "# %s on %s%s: %.3f ms, ", inputs_title(&b.call),
             b.target->name,
             gpu ? "" : arena_printf(&s->cx.session, ", %d threads", b.threads),
             before.seconds * 1e3);
  if (!better(&best, &before)) {
    buf_str(out, "and no tiles were faster\n");
    return true;
  }
  buf_printf(out, "with these tiles %.3f ms\n", best.seconds * 1e3);
  buf_printf(out, "schedule %s for \"%s\" { tile_q = %lld; tile_k = %lld; }\n",
             prog->name, b.target->name, (long long)best.q, (long long)best.k);
  return true;
}

static int tune(Session *s, void *data) {
  (void)data;
  Buf out = {.arena = &s->cx.session};
  if (session_each(s, tune_one, &out)) session_put(s, s->cli->output, &out);
  return EXIT_OK;
}

int command_tune(Cli *cli) {
  return session_run(cli, tune, NULL);
}
