// Preparing and measuring a program, for bench, tune and explain.
#include "tools/attnc/report.h"

double bench_rate(const Bench *b) {
  return b->mid > 0 ? (b->cost.products + b->cost.updates) / b->mid : 0;
}

double bench_touched_rate(const Bench *b) {
  return b->mid > 0 ? (b->cost.touched + b->cost.updates) / b->mid : 0;
}

static bool open_runtime(Session *s, Bench *b) {
  attn_error e;
  attn_ctx_options o = {.size = sizeof o, .threads = (int32_t)s->cli->threads};
  if (s->cli->threads && !(b->rt = attn_ctx_create(&o, &e))) {
    diag_add(&s->cx, DIAG_launch, NOWHERE, "--threads", e.text);
    return false;
  }
  attn_ctx *rt = b->rt ? b->rt : attn_ctx_default();
  b->threads = rt ? attn_ctx_threads(rt) : 1;
  return true;
}

bool bench_prepare(Session *s, Bench *b, const Unit *u, Decl *prog) {
  (void)u;
  return open_runtime(s, b) &&
         (b->target = drv_host_target(&s->cx, s->cli->target)) &&
         session_options(s, &b->opt) && drv_call(&s->cx, prog, &b->call) &&
         (b->call.hollow = b->hollow, inputs_given(s, &b->call, &b->gens)) &&
         inputs_ready(s, &b->call, &b->gens, true);
}

bool bench_run(Session *s, Bench *b) {
  int64_t start = now_ns();
  DrvCode *code = drv_load(&b->call, b->target, &b->opt);
  b->compile_ns = now_ns() - start;
  if (!code) return false;
  b->code_bytes = drv_code_bytes(code);
  b->found = drv_code_found(code);
  // Warm-up: threads start, caches and clocks settle.
  double first = 0, spent = 0;
  Launch l = {&b->call, code, b->rt};
  bool ok = drv_launch(&b->call, code, b->rt);
  for (int i = 0; i < 50 && ok && spent < 0.05; i++) {
    ok = measure(s, l, &first, NULL, 1);
    spent += first;
  }
  b->runs = measure_runs(s->cli, first);
  double *t = NEWN(&s->cx.session, double, b->runs);
  ok = ok && measure(s, l, t, &b->cpu, b->runs);
  drv_unload(code);
  if (!ok) return false;
  b->mid = median(t, b->runs);
  b->best = t[0];
  return true;
}

void bench_done(Bench *b) {
  if (b->rt) attn_ctx_destroy(b->rt);
  b->rt = NULL;
}
