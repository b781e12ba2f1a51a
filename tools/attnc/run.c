// attnc run: one program on arrays.
#include "tools/attnc/gradient.h"

#include "runtime/attn.h"

#include <math.h>

// A few seconds of the oracle.
#define VERIFY_SAMPLE_ABOVE 1e8

typedef struct Run {
  DrvCall call;
  DrvGens gens;
  DrvOptions opt;
  DrvCode *code;
  attn_ctx *rt;  // NULL: the default one
  int64_t compile_ns;
} Run;

// ---------------------------------------------------------------- outputs
static bool write_outputs(Session *s, Run *r) {
  for (uint32_t i = 0; i < s->cli->out.n; i++) {
    const char *name, *file;
    if (!inputs_pair(s, s->cli->out.at[i], "NAME=FILE.npy", &name, &file))
      return false;
    DrvArg *a = drv_arg(&r->call, name);
    if (!a) return false;
    if (a->scalar || (!a->out && a->param->qual != PQ_INOUT)) {
      diag_add(&s->cx, DIAG_data_name, NOWHERE, name, "the outputs");
      return false;
    }
    if (!npy_write(&s->cx, file, &a->array)) return false;
  }
  return true;
}

// Names are checked before anything long is done.
static bool check_outputs(Session *s, Run *r) {
  for (uint32_t i = 0; i < s->cli->out.n; i++) {
    const char *pair = s->cli->out.at[i];
    char *name = arena_strndup(&s->cx.session, pair, strcspn(pair, "="));
    if (!drv_arg(&r->call, name)) return false;
  }
  return true;
}

// ---------------------------------------------------------------- timing
static bool print_time(Session *s, Run *r) {
  double first;
  Launch l = {&r->call, r->code, r->rt};
  if (!measure(s, l, &first, NULL, 1)) return false;
  uint32_t n = measure_runs(s->cli, first);
  double *t = NEWN(&s->cx.session, double, n);
  if (!measure(s, l, t, NULL, n)) return false;
  double mid = median(t, n);
  printf("time: median %.3f ms, min %.3f ms over %u runs (%s; %s in "
         "%.0f ms)\n",
         mid * 1e3, t[0] * 1e3, n, drv_code_target(r->code),
         drv_code_found(r->code) ? "found" : "compiled",
         (double)r->compile_ns / 1e6);
  return true;
}

// ---------------------------------------------------------------- verifying
static const char *place(Session *s, const DrvVerdict *v) {
  Buf b = {.arena = &s->cx.session};
  if (v->error.at < 0) return "a direction";
  int64_t at = v->error.at, index[NPY_MAX_RANK];
  const NpyArray *x = &v->arg->array;
  for (int i = x->rank - 1; i >= 0; i--) {
    index[i] = x->shape[i] ? at % x->shape[i] : 0;
    at /= x->shape[i] ? x->shape[i] : 1;
  }
  buf_char(&b, '[');
  for (int i = 0; i < x->rank; i++)
    buf_printf(&b, "%s%lld", i ? ", " : "", (long long)index[i]);
  buf_char(&b, ']');
  return b.at;
}

void run_print_verdict(Session *s, const DrvVerdict *v, double tol) {
  const DrvError *e = &v->error;
  bool ok = drv_within(e, tol);
  printf("%s %s: max abs error %.3g, rms %.3g, relative %.3g (tolerance %.3g)",
         ok ? "ok  " : "FAIL", v->arg->param->name, e->max_abs, e->rms, e->rel,
         tol);
  if (e->nonfinite)
    printf(", %lld elements differ in inf or NaN", (long long)e->nonfinite);
  if (!ok)
    printf("; worst at %s: %.9g, the oracle says %.9g", place(s, v), e->got,
           e->want);
  printf("\n");
}

static int verify(Session *s, Run *r, const DrvSaved *saved) {
  DrvReference ref;
  DrvVerdict v[64];
  double tol = s->cli->tol > 0 ? s->cli->tol : drv_tolerance(&r->call);
  double above = s->cli->verify_all ? INFINITY : VERIFY_SAMPLE_ABOVE;
  Progress p = progress_start(s->cli, "the oracle");
  DrvWatch watch = {progress_watch, &p};
  r->call.watch = &watch;
  bool ran = drv_reference(&r->call, saved, above, 1, &ref);
  r->call.watch = NULL;
  progress_end(&p);
  if (!ran) return EXIT_DIAG;
  uint32_t n = drv_verdicts(&r->call, &ref, v, 64);
  bool ok = true;
  if (ref.sampled)
    printf("the oracle evaluated %llu points of the output\n",
           (unsigned long long)ref.points);
  for (uint32_t i = 0; i < n; i++) {
    run_print_verdict(s, &v[i], tol);
    ok = ok && drv_within(&v[i].error, tol);
  }
  return ok ? EXIT_OK : EXIT_DIAG;
}

// ---------------------------------------------------------------- command
static bool prepare(Session *s, Run *r) {
  const Target *t = drv_host_target(&s->cx, s->cli->target);
  Unit *u = session_unit(s, s->cli->inputs.at[0]);
  Decl *prog = u && t ? session_program(s, u) : NULL;
  if (prog && s->cli->jvp) prog = drv_jvp(&s->cx, prog, s->cli->jvp);
  if (!prog || !session_options(s, &r->opt) ||
      !drv_call(&s->cx, prog, &r->call) || !check_outputs(s, r) ||
      !inputs_given(s, &r->call, &r->gens) ||
      !inputs_ready(s, &r->call, &r->gens, s->cli->random))
    return false;
  int64_t start = now_ns();
  r->code = drv_load(&r->call, t, &r->opt);
  r->compile_ns = now_ns() - start;
  session_remarks(s);
  return r->code != NULL;
}

static int execute(Session *s, Run *r) {
  DrvSaved saved = drv_save(&r->call);
  int rc = EXIT_OK;
  int64_t start = now_ns();
  if (!drv_launch(&r->call, r->code, r->rt)) return EXIT_DIAG;
  int64_t took = now_ns() - start;
  if (!write_outputs(s, r)) return rc;
  if (s->cli->verify || s->cli->verify_all) rc = verify(s, r, &saved);
  if (s->cli->time && !print_time(s, r)) return EXIT_DIAG;
  if (!s->cli->verify && !s->cli->verify_all && !s->cli->time &&
      !s->cli->out.n && !s->cli->quiet)
    fprintf(stderr,
            "ran %s in %.3g ms, %s in %.0f ms; --time measures more than "
            "a first call, --verify compares, --out writes\n",
            inputs_title(&r->call), (double)took / 1e6,
            drv_code_found(r->code) ? "found" : "compiled",
            (double)r->compile_ns / 1e6);
  return rc;
}

static int run(Session *s, void *data) {
  Run *r = data;
  attn_error e;
  attn_ctx_options o = {.size = sizeof o, .threads = (int32_t)s->cli->threads};
  if (s->cli->threads && !(r->rt = attn_ctx_create(&o, &e))) {
    diag_add(&s->cx, DIAG_launch, NOWHERE, "--threads", e.text);
    return EXIT_OK;
  }
  int rc = prepare(s, r) ? execute(s, r) : EXIT_OK;
  drv_unload(r->code);
  if (r->rt) attn_ctx_destroy(r->rt);
  return rc;
}

int command_run(Cli *cli) {
  if (cli->grad && cli->jvp)
    return usage_error(cli, "--grad and --jvp exclude each other");
  if (cli->grad) return session_run(cli, run_gradient, NULL);
  Run *r = NEW(&cli->arena, Run);
  return session_run(cli, run, r);
}
