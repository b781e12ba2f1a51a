// attnc bench: time, speed over visible keys, share of what the machine can.
// With --grad: of the gradient.
#include "tools/attnc/report.h"

// Products of a gradient of attention, for those of its program: five for two.
// So rates compare with what others report, whatever is computed again.
static const double GRADIENT_WORK = 2.5;

static void print_text(Session *s, const Bench *b) {
  Arena *a = &s->cx.session;
  double rate = bench_rate(b);
  printf("%s\n", inputs_title(&b->call));
  printf("  code    %s, %d thread%s, %s, %s in %.0f ms\n", b->target->name,
         b->threads, b->threads == 1 ? "" : "s",
         drv_scaled(a, (double)b->code_bytes, "B"),
         b->found ? "found" : "compiled", (double)b->compile_ns / 1e6);
  printf("  time    median %.3f ms, min %.3f ms over %u runs\n", b->mid * 1e3,
         b->best * 1e3, b->runs);
  printf("  work    %s", drv_scaled(a, b->cost.products, "FLOP in products"));
  if (b->cost.updates > 0)
    printf(", %s", drv_scaled(a, b->cost.updates, "FLOP in states"));
  printf(", %s\n", drv_scaled(a, b->cost.bytes, "B of arrays"));
  bool parts = b->cost.touched > b->cost.products;
  if (parts)
    printf("  tiles   %s in touched tiles\n",
           drv_scaled(a, b->cost.touched, "FLOP"));
  printf("  speed   %s, %s\n", drv_scaled(a, rate, "FLOP/s"),
         drv_scaled(a, b->cost.bytes / b->mid, "B/s"));
  if (b->peak > 0)
    printf("  peak    %s of %s multiply-adds in registers: %.1f%% reached\n",
           drv_scaled(a, b->peak, "FLOP/s"), dtype_name(b->cost.product),
           100 * rate / b->peak);
  if (b->peak > 0 && parts)
    printf("          %.1f%% per FLOP of touched tiles\n",
           100 * bench_touched_rate(b) / b->peak);
  if (b->sgemm > 0)
    printf("  sgemm   %s with OpenBLAS: ratio %.2f\n",
           drv_scaled(a, b->sgemm, "FLOP/s"), rate / b->sgemm);
}

static void print_json(Session *s, const Bench *b) {
  Buf o = {.arena = &s->cx.session};
  const DimTab *t = b->call.prog->dims;
  buf_printf(&o, "{\"program\":\"%s\",\"dims\":{", b->call.prog->name);
  for (uint32_t i = 0; i < t->syms.n; i++)
    buf_printf(&o, "%s\"%s\":%lld", i ? "," : "", t->syms.at[i].name,
               (long long)b->call.dims[i]);
  buf_printf(&o,
             "},\"target\":\"%s\",\"threads\":%d,\"runs\":%u,"
             "\"median_s\":%.9g,\"min_s\":%.9g,\"cpu_s\":%.9g,"
             "\"compile_s\":%.6g,\"found\":%s,",
             b->target->name, b->threads, b->runs, b->mid, b->best, b->cpu,
             (double)b->compile_ns * 1e-9, b->found ? "true" : "false");
  buf_printf(
      &o,
      "\"product_flop\":%.17g,\"state_flop\":%.17g,\"bytes\":%.17g,"
      "\"touched_flop\":%.17g,\"product_type\":\"%s\",\"flop_per_s\":%.9g,"
      "\"bytes_per_s\":%.9g",
      b->cost.products, b->cost.updates, b->cost.bytes, b->cost.touched,
      dtype_name(b->cost.product), bench_rate(b), b->cost.bytes / b->mid);
  if (b->peak > 0)
    buf_printf(&o,
               ",\"peak_flop_per_s\":%.9g,\"fraction\":%.4g,"
               "\"touched_fraction\":%.4g",
               b->peak, bench_rate(b) / b->peak,
               bench_touched_rate(b) / b->peak);
  if (b->sgemm > 0)
    buf_printf(&o, ",\"sgemm_flop_per_s\":%.9g,\"sgemm_ratio\":%.4g", b->sgemm,
               bench_rate(b) / b->sgemm);
  buf_str(&o, "}\n");
  session_put(s, NULL, &o);
}

// What b measures from here on is the gradient, after one run of the program.
static bool turn_to_gradient(Session *s, Bench *b) {
  Arena *a = &s->cx.session;
  DrvCall *call = NEW(a, DrvCall);
  DrvGrads *g = NEW(a, DrvGrads);
  uint64_t seed = s->cli->seed ? (uint64_t)s->cli->seed : 1;
  *call = b->call;
  if (!drv_grads(call, s->cli->grad, seed, g) ||
      !inputs_cotangents(s, &g->backward))
    return false;
  DrvCode *code = drv_load(&g->forward, b->target, &b->opt);
  bool ok = code && drv_launch(&g->forward, code, b->rt);
  drv_unload(code);
  b->call = g->backward;
  b->cost.products *= GRADIENT_WORK;
  b->cost.updates *= GRADIENT_WORK;
  b->cost.touched *= GRADIENT_WORK;
  b->cost.bytes = 0;
  for (uint32_t i = 0; i < b->call.nargs; i++)
    b->cost.bytes +=
        (double)b->call.args[i].array.count * dtype_size(b->call.args[i].dtype);
  return ok;
}

static bool bench_one(Session *s, const Unit *u, Decl *prog, void *data) {
  (void)data;
  Bench b = {.threads = 1};
  bool ok = bench_prepare(s, &b, u, prog) &&
            drv_cost(&b.call, &b.opt, b.target, true, &b.cost) &&
            (!s->cli->grad || turn_to_gradient(s, &b)) && bench_run(s, &b);
  bench_done(&b);
  if (!ok) return false;
  b.peak = drv_peak(b.target, b.cost.product, b.threads);
  if (s->cli->sgemm) b.sgemm = drv_sgemm(b.threads);
  if (s->cli->sgemm && b.sgemm <= 0) {
    diag_add(&s->cx, DIAG_no_tool, NOWHERE, "libopenblas.so.0", "--sgemm");
    return false;
  }
  if (s->cli->json) print_json(s, &b);
  else print_text(s, &b);
  return true;
}

static int bench(Session *s, void *data) {
  session_each(s, bench_one, data);
  session_remarks(s);
  return EXIT_OK;
}

int command_bench(Cli *cli) {
  return session_run(cli, bench, NULL);
}
