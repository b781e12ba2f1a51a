// run and bench with --grad: a program and its gradient, one after the other.
#include "tools/attnc/gradient.h"

#include "runtime/attn.h"

#include <math.h>

static bool open_runtime(Session *s, GradPair *p) {
  attn_error e;
  attn_ctx_options o = {.size = sizeof o, .threads = (int32_t)s->cli->threads};
  if (!s->cli->threads || (p->rt = attn_ctx_create(&o, &e))) return true;
  diag_add(&s->cx, DIAG_launch, NOWHERE, "--threads", e.text);
  return false;
}

bool gradient_prepare(Session *s, Decl *prog, bool random, GradPair *p) {
  const Target *t = drv_host_target(&s->cx, s->cli->target);
  uint64_t seed = s->cli->seed ? (uint64_t)s->cli->seed : 1;
  *p = (GradPair){0};
  if (!t || !open_runtime(s, p) || !session_options(s, &p->opt) ||
      !drv_call(&s->cx, prog, &p->call) ||
      !inputs_given(s, &p->call, &p->gens) ||
      !inputs_ready(s, &p->call, &p->gens, random) ||
      !drv_grads(&p->call, s->cli->grad, seed, &p->grads) ||
      !inputs_cotangents(s, &p->grads.backward))
    return false;
  int64_t start = now_ns();
  p->forward = drv_load(&p->grads.forward, t, &p->opt);
  p->backward = p->forward ? drv_load(&p->grads.backward, t, &p->opt) : NULL;
  p->compile_ns = now_ns() - start;
  session_remarks(s);
  return p->backward != NULL;
}

bool gradient_launch(GradPair *p) {
  return drv_launch(&p->grads.forward, p->forward, p->rt) &&
         drv_launch(&p->grads.backward, p->backward, p->rt);
}

void gradient_done(GradPair *p) {
  drv_unload(p->forward);
  drv_unload(p->backward);
  if (p->rt) attn_ctx_destroy(p->rt);
}

// ---------------------------------------------------------------- run
// An output of the program or a gradient. NULL: a diagnostic.
static DrvArg *output(GradPair *p, const char *name) {
  DrvCall *c = &p->grads.backward;
  for (uint32_t i = 0; i < c->nargs; i++)
    if (c->args[i].out && !strcmp(c->args[i].param->name, name))
      return &c->args[i];
  DrvArg *a = drv_arg(&p->grads.forward, name);
  if (a && a->out) return a;
  if (a) diag_add(c->cx, DIAG_data_name, NOWHERE, name, "the outputs");
  return NULL;
}

static bool write_outputs(Session *s, GradPair *p, bool write) {
  for (uint32_t i = 0; i < s->cli->out.n; i++) {
    const char *name, *file;
    if (!inputs_pair(s, s->cli->out.at[i], "NAME=FILE.npy", &name, &file))
      return false;
    DrvArg *a = output(p, name);
    if (!a || (write && !npy_write(&s->cx, file, &a->array))) return false;
  }
  return true;
}

static bool print_time(Session *s, GradPair *p, const char *what, DrvCall *c,
                       const DrvCode *code) {
  double first;
  Launch l = {c, code, p->rt};
  if (!measure(s, l, &first, NULL, 1)) return false;
  uint32_t n = measure_runs(s->cli, first);
  double *t = NEWN(&s->cx.session, double, n);
  if (!measure(s, l, t, NULL, n)) return false;
  double mid = median(t, n);
  printf("%s: median %.3f ms, min %.3f ms over %u runs (%s)\n", what, mid * 1e3,
         t[0] * 1e3, n, drv_code_target(code));
  return true;
}

static int verify(Session *s, GradPair *p) {
  DrvGradReference ref;
  double tol = s->cli->tol > 0 ? s->cli->tol : drv_tolerance(&p->call);
  double above = s->cli->verify_all ? (double)INFINITY : DRV_GRAD_ABOVE;
  Progress bar = progress_start(s->cli, "the oracle");
  DrvWatch watch = {progress_watch, &bar};
  p->call.watch = &watch;
  bool ran = drv_grad_reference(&p->grads, above, 1, &ref), ok = true;
  p->call.watch = NULL;
  progress_end(&bar);
  if (!ran) return EXIT_DIAG;
  if (ref.sampled)
    printf("the oracle evaluated %llu elements and %u directions\n",
           (unsigned long long)ref.elements, ref.nalong);
  for (uint32_t i = 0; i < p->grads.backward.nargs; i++) {
    if (!ref.want[i]) continue;
    DrvVerdict v = {&p->grads.backward.args[i],
                    drv_compare_grad(&p->grads, &ref, i)};
    run_print_verdict(s, &v, tol);
    ok = ok && drv_within(&v.error, tol);
  }
  return ok ? EXIT_OK : EXIT_DIAG;
}

static int execute(Session *s, GradPair *p) {
  Cli *cli = s->cli;
  bool check = cli->verify || cli->verify_all;
  if (!write_outputs(s, p, false) || !gradient_launch(p) ||
      !write_outputs(s, p, true))
    return EXIT_DIAG;
  int rc = check ? verify(s, p) : EXIT_OK;
  DrvCall *f = &p->grads.forward, *b = &p->grads.backward;
  if (cli->time && (!print_time(s, p, "program", f, p->forward) ||
                    !print_time(s, p, "gradient", b, p->backward)))
    return EXIT_DIAG;
  if (!check && !cli->time && !cli->out.n && !cli->quiet)
    fprintf(stderr, "ran %s (no --out, --time or --verify: nothing to show)\n",
            inputs_title(b));
  return rc;
}

int run_gradient(Session *s, void *data) {
  GradPair p = {0};
  (void)data;
  Unit *u = session_unit(s, s->cli->inputs.at[0]);
  Decl *prog = u ? session_program(s, u) : NULL;
  if (!prog) return EXIT_OK;
  int rc =
      gradient_prepare(s, prog, s->cli->random, &p) ? execute(s, &p) : EXIT_OK;
  gradient_done(&p);
  return rc;
}
