// attnc explain FILE: what the passes decided, operations, memory, tiles, and
// the time that the machine's limits allow. With --grad: of the program with
// what its gradient reads, and of the gradient.
#include "tools/attnc/report.h"
#include "tools/driver/compile/compile.h"
#include "tools/plan/plan.h"

#include <math.h>

static void print_keys(Session *s, const DrvCost *c) {
  for (uint32_t i = 0; i < c->nkeys; i++) {
    const DrvKeys *k = &c->keys[i];
    printf("  keys %-4s %.4g%% of %s visible%s\n", k->axis, 100 * k->visible,
           drv_scaled(&s->cx.session, k->pairs, "points"),
           k->exact ? "" : " (sampled)");
  }
}

static void print_arrays(Session *s, const DrvCall *c) {
  printf("  arrays   ");
  for (uint32_t i = 0, n = 0; i < c->nargs; i++) {
    const DrvArg *a = &c->args[i];
    if (a->scalar) continue;
    printf("%s%s %s", n++ ? ", " : "", a->param->name,
           drv_scaled(&s->cx.session,
                      (double)a->array.count * dtype_size(a->dtype), "B"));
  }
  printf("\n");
}

// The value of a symbol of t in this call, or -1: the call has neither it nor a
// ragged dim whose sequences are so many together.
static int64_t symbol_of(const DimTab *t, uint32_t i, const DrvCall *c) {
  const DimTab *own = c->prog->dims;
  uint32_t at;
  if (dim_find_sym(own, t->syms.at[i].name, &at)) return c->dims[at];
  for (at = 0; at < own->syms.n; at++)
    if (dim_is_total(&t->syms.at[i], &own->syms.at[at])) return c->total[at];
  return -1;
}

// The value of d in this call, or -1: it has a symbol that the call has not.
static double value_of(const DimTab *t, Dim d, const DrvCall *c, Arena *a) {
  int64_t *sym = NEWN(a, int64_t, t->syms.n + 1), v;
  for (uint32_t i = 0; i < t->syms.n; i++) {
    sym[i] = symbol_of(t, i, c);
    if (sym[i] < 0 && dim_uses(t, d, i)) return -1;
  }
  return dim_eval(t, d, sym, &v) ? (double)v : -1;
}

// What the phases hand on in p, or -1.
static double workspace_of(Session *s, const Module *m, const Func *f,
                           const FuncParam *p, const DrvCall *c) {
  const Type *t = ir_type(f, p->v);
  double bytes = dtype_size(t->dtype);
  for (uint32_t k = 0; k < t->n && bytes >= 0; k++) {
    double v = value_of(&m->dims, t->size[k], c, &s->cx.session);
    bytes = v < 0 ? v : bytes * v;
  }
  return bytes;
}

static const Func *last_phase(const Module *m) {
  return m->funcs.n ? m->funcs.at[m->funcs.n - 1] : NULL;
}

// What phases hand on: copies of operands, tables, bounds.
static void print_workspace(Session *s, const Module *m, const DrvCall *c) {
  const Func *f = last_phase(m);
  uint32_t n = 0;
  for (uint32_t i = 0; f && i < f->params.n; i++) {
    const FuncParam *p = &f->params.at[i];
    if (p->role != PR_SHARED) continue;
    double bytes = workspace_of(s, m, f, p, c);
    printf("%s%s %s", n++ ? ", " : "  workspace ", ir_info(f, p->v)->hint,
           bytes < 0 ? "unknown" : drv_scaled(&s->cx.session, bytes, "B"));
  }
  if (n) printf("\n");
}

typedef struct Stored {
  Value tensor;
  bool found;
} Stored;

static void find_store(void *data, Op *op) {
  Stored *s = data;
  s->found = s->found || (op->code == OP_STORE && op->args[0] == s->tensor);
}

static void print_stores(const Func *f) {
  const char *between = "; makes ";
  for (uint32_t i = 0; i < f->params.n; i++) {
    Stored s = {.tensor = f->params.at[i].v};
    ir_walk(f->body, find_store, &s);
    if (!s.found) continue;
    printf("%s%s", between, ir_info(f, s.tensor)->hint);
    between = " ";
  }
}

// A line for each phase; what it makes, where there are several.
static void print_plan(Session *s, const Module *m, const char *name) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    n += ir_is_phase(m->funcs.at[i], name);
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    const Func *f = m->funcs.at[i];
    Buf b = {.arena = &s->cx.session};
    if (!ir_is_phase(f, name)) continue;
    plan_tiles(m, f->name, &b);
    printf("  tiles    %s", b.at ? b.at : "");
    if (n > 1) print_stores(f);
    printf("\n");
  }
}

static void print_remarks(Session *s, uint32_t from) {
  Buf b = {.arena = &s->cx.session};
  plan_remarks(&s->cx, from, "  - ", &b);
  fputs(b.at ? b.at : "", stdout);
}

static void print_bound(Session *s, const Bench *b) {
  Arena *a = &s->cx.session;
  double peak = drv_peak(b->target, b->cost.product, b->threads);
  double memory = drv_bandwidth(b->threads);
  double flop = b->cost.products + b->cost.updates;
  double compute = flop / peak, move = b->cost.bytes / memory;
  printf("  machine  %s of %s in registers, %s from memory (measured, %d "
         "threads)\n",
         drv_scaled(a, peak, "FLOP/s"), dtype_name(b->cost.product),
         drv_scaled(a, memory, "B/s"), b->threads);
  printf("  bound    %s: at least %.3g ms (%.3g ms of products, %.3g ms of "
         "memory)\n",
         compute > move ? "arithmetic" : "memory", fmax(compute, move) * 1e3,
         compute * 1e3, move * 1e3);
}

static void print_work(Session *s, const DrvCost *c) {
  Arena *a = &s->cx.session;
  printf("  work     %s", drv_scaled(a, c->products, "FLOP in products"));
  if (c->updates > 0)
    printf(", %s", drv_scaled(a, c->updates, "FLOP in states"));
  if (c->functions > 0)
    printf(", %s", drv_scaled(a, c->functions, "exp and the like"));
  printf("\n  memory   %s, %.3g FLOP per byte\n", drv_scaled(a, c->bytes, "B"),
         (c->products + c->updates) / c->bytes);
}

// ---------------------------------------------------------------- GPUs
enum { MAX_KERNELS = 16 };

typedef struct Device {
  DrvKernel kernel[MAX_KERNELS];
  uint32_t n;
} Device;

static void print_path(const DrvKernel *k) {
  const DrvClocks *c = &k->clocks;
  printf("  path     %s tensors: %s\n", k->body, k->path);
  if (c->products + c->functions + c->arithmetic <= 0) return;
  printf(
      "  step     %.4g clocks of products, %.4g of exp and the like, %.4g of "
      "other arithmetic, by the model\n",
      c->products, c->functions, c->arithmetic);
}

// On AMD a multiprocessor is a compute unit of 4 SIMDs, of 2 where waves have
// 32 lanes.
static void print_workgroup(Session *s, const GpuFacts *g, const DrvKernel *k) {
  Arena *a = &s->cx.session;
  uint32_t simds = g->wave == 64 ? 4 : 2;
  printf("  kernel   %s: %u threads: %s\n", k->symbol, k->threads, k->roles);
  printf("  LDS      %s%s%s\n", drv_scaled(a, k->shared_bytes, "B"),
         *k->tiles ? ": " : "", k->tiles);
  printf(
      "  device   %u workgroup%s a CU (%.3g waves a SIMD), one for each task; "
      "%s of machine code\n",
      k->per_sm, k->per_sm == 1 ? "" : "s",
      (double)k->per_sm * k->threads / g->wave / simds,
      drv_scaled(a, (double)k->code_bytes, "B"));
  printf("  lanes    %u registers each, ", k->registers);
  if (k->spill_bytes)
    printf("%s of scratch memory\n", drv_scaled(a, k->spill_bytes, "B"));
  else printf("no scratch memory\n");
}

static void print_kernel(Session *s, const DrvKernel *k) {
  Arena *a = &s->cx.session;
  printf("  kernel   %s: %u threads: %s\n", k->symbol, k->threads, k->roles);
  printf("  shared   %s of shared memory%s%s\n",
         drv_scaled(a, k->shared_bytes, "B"), *k->tiles ? ": " : "", k->tiles);
  printf("  device   %u CTA%s a multiprocessor, %s; %s of PTX, ", k->per_sm,
         k->per_sm == 1 ? "" : "s",
         k->persistent ? "each does many tasks" : "one for each task",
         drv_scaled(a, (double)k->text_bytes, "B"));
  if (!k->code_bytes) {
    printf("no ptxas: the driver compiles it\n");
    return;
  }
  printf("%s of machine code\n", drv_scaled(a, (double)k->code_bytes, "B"));
  printf("  ptxas    %u registers a thread at launch, %s spilled%s%s, "
         "%u run%s\n",
         k->registers, drv_scaled(a, k->spill_bytes, "B"),
         k->serialized ? ", products serialized"
         : k->warning  ? arena_printf(a, ", warning C%u", k->warning)
                       : "",
         k->level ? arena_printf(a, ", register usage level %u", k->level) : "",
         k->runs, k->runs == 1 ? "" : "s");
}

// Functions (exp2, ..) a second, at the clock that tflops is of.
static double functions_peak(const GpuFacts *g) {
  return g->tflops * 1e12 / g->flops * g->special;
}

static void print_device_bound(Session *s, const Bench *b) {
  Arena *a = &s->cx.session;
  const GpuFacts *g = &b->target->gpu;
  double peak = drv_peak(b->target, b->cost.product, 1);
  double flop = b->cost.products + b->cost.updates;
  double move = b->cost.bytes / (g->bandwidth * 1e9);
  double compute = peak > 0 ? flop / peak : 0;
  double fn = b->cost.functions / functions_peak(g);
  double least = fmax(fmax(compute, move), fn);
  const char *bound = least == compute ? "products"
                      : least == fn    ? "functions"
                                       : "memory";
  printf("  machine  %u %s, %s/s of memory", g->sms,
         g->vendor == VENDOR_AMD ? "compute units" : "multiprocessors",
         drv_scaled(a, g->bandwidth * 1e9, "B"));
  if (peak > 0)
    printf(", %s of 16-bit products", drv_scaled(a, peak, "FLOP/s"));
  printf(", %s (the maker's figures)\n",
         drv_scaled(a, functions_peak(g), "exp and the like/s"));
  printf("  bound    %s: at least %.3g ms (%.3g ms of products, %.3g ms of exp "
         "and the like, %.3g ms of memory)",
         bound, least * 1e3, compute * 1e3, fn * 1e3, move * 1e3);
  if (least > 0 && flop > 0)
    printf(", at most %s", drv_scaled(a, flop / least, "FLOP/s"));
  printf("\n");
}

static void print_device(Session *s, const Bench *b, const Device *d) {
  const GpuFacts *g = &b->target->gpu;
  for (uint32_t i = 0; i < d->n; i++) {
    if (g->vendor == VENDOR_AMD) print_workgroup(s, g, &d->kernel[i]);
    else print_kernel(s, &d->kernel[i]);
    print_path(&d->kernel[i]);
  }
  print_device_bound(s, b);
}

static bool explain_code(Session *s, Bench *b) {
  DrvCode *code = drv_load(&b->call, b->target, &b->opt);
  if (!code) return false;
  printf("  code     %s, %s\n", b->target->name,
         drv_scaled(&s->cx.session, (double)drv_code_bytes(code),
                    "B of object"));
  const char *left = s->cli->target ? "" : drv_levels_left(&s->cx);
  if (*left) printf("  not      %s\n", left);
  printf("  scratch  %s a thread\n",
         drv_scaled(&s->cx.session, (double)drv_scratch(&b->call, code), "B"));
  drv_unload(code);
  print_bound(s, b);
  return true;
}

// ---------------------------------------------------------------- JSON
static void put_text(Buf *o, const char *key, const char *text) {
  buf_printf(o, ",\"%s\":", key);
  buf_json(o, text, strlen(text));
}

static void put_kernel(Buf *o, const DrvKernel *k) {
  const DrvClocks *c = &k->clocks;
  buf_str(o, "{\"symbol\":");
  buf_json(o, k->symbol, strlen(k->symbol));
  put_text(o, "tensors", k->body);
  put_text(o, "path", k->path);
  put_text(o, "roles", k->roles);
  put_text(o, "tiles", k->tiles);
  buf_printf(o,
             ",\"threads\":%u,\"shared_bytes\":%u,\"per_multiprocessor\":%u,"
             "\"registers\":%u,\"spill_bytes\":%u,\"serialized\":%s,"
             "\"warning\":%u,\"assembler_runs\":%u,\"code_bytes\":%zu",
             k->threads, k->shared_bytes, k->per_sm, k->registers,
             k->spill_bytes, k->serialized ? "true" : "false", k->warning,
             k->runs, k->code_bytes);
  buf_printf(o,
             ",\"step_clocks\":{\"products\":%.6g,\"functions\":%.6g,"
             "\"arithmetic\":%.6g}}",
             c->products, c->functions, c->arithmetic);
}

// ,"key":[{"name":"Q","bytes":64},..]: null where that is not known.
static void put_sized(Buf *o, uint32_t n, const char *name, double bytes) {
  buf_str(o, n ? "," : "");
  buf_str(o, "{\"name\":");
  buf_json(o, name, strlen(name));
  if (bytes < 0) buf_str(o, ",\"bytes\":null}");
  else buf_printf(o, ",\"bytes\":%.17g}", bytes);
}

static void put_memory(Session *s, const Module *m, const DrvCall *c, Buf *o) {
  const Func *f = last_phase(m);
  uint32_t n = 0;
  buf_str(o, ",\"arrays\":[");
  for (uint32_t i = 0; i < c->nargs; i++) {
    const DrvArg *a = &c->args[i];
    if (a->scalar) continue;
    put_sized(o, n++, a->param->name,
              (double)a->array.count * dtype_size(a->dtype));
  }
  buf_str(o, "],\"workspace\":[");
  n = 0;
  for (uint32_t i = 0; f && i < f->params.n; i++) {
    const FuncParam *p = &f->params.at[i];
    if (p->role != PR_SHARED) continue;
    put_sized(o, n++, ir_info(f, p->v)->hint, workspace_of(s, m, f, p, c));
  }
  buf_str(o, "]");
}

static void print_json(Session *s, const Bench *b, const Module *tiles,
                       const Device *d) {
  Buf o = {.arena = &s->cx.session};
  const DimTab *t = b->call.prog->dims;
  const DrvCost *c = &b->cost;
  buf_printf(&o, "{\"program\":\"%s\",\"dims\":{", b->call.prog->name);
  for (uint32_t i = 0; i < t->syms.n; i++)
    buf_printf(&o, "%s\"%s\":%lld", i ? "," : "", t->syms.at[i].name,
               (long long)b->call.dims[i]);
  buf_printf(&o,
             "},\"target\":\"%s\",\"product_flop\":%.17g,"
             "\"state_flop\":%.17g,\"functions\":%.17g,\"bytes\":%.17g",
             b->target->name, c->products, c->updates, c->functions, c->bytes);
  put_memory(s, tiles, &b->call, &o);
  buf_str(&o, ",\"kernels\":[");
  for (uint32_t i = 0; i < d->n; i++) {
    buf_str(&o, i ? ",\n " : "");
    put_kernel(&o, &d->kernel[i]);
  }
  buf_str(&o, "]}\n");
  session_put(s, NULL, &o);
}

static void print_text(Session *s, const Bench *b, const Module *tiles,
                       uint32_t remarks) {
  printf("%s\n", inputs_title(&b->call));
  print_remarks(s, remarks);
  print_keys(s, &b->cost);
  print_work(s, &b->cost);
  print_arrays(s, &b->call);
  print_workspace(s, tiles, &b->call);
  print_plan(s, tiles, b->call.prog->name);
  if (b->opt.few)
    printf("  kernel   that of few rows%s\n", b->opt.walk ? ", walked" : "");
  if (b->opt.group) printf("  kernel   that of groups of heads\n");
}

// Its bounds are those of print_bound and print_device_bound.
static DrvRoof roof_of(const Bench *b) {
  bool gpu = b->target->kind == TARGET_GPU;
  double flop = b->cost.products + b->cost.updates;
  return (DrvRoof){.peak = drv_peak(b->target, b->cost.product,
                                    gpu ? 1 : b->threads),
                   .memory = gpu ? b->target->gpu.bandwidth * 1e9
                                 : drv_bandwidth(b->threads),
                   .work = flop / b->cost.bytes};
}

static bool draw(Session *s, Bench *b) {
  Arena *a = &s->cx.session;
  DrvMap *maps = NEWN(a, DrvMap, DRV_MAX_KEYS);
  Buf out = {.arena = a};
  uint32_t n = drv_maps(&b->call, &b->opt, b->target, maps, DRV_MAX_KEYS);
  if (s->cx.nerrors) return false;
  DrvRoof roof = roof_of(b);
  const char *title =
      arena_printf(a, "%s, %s", inputs_title(&b->call), b->target->name);
  drv_picture(a, title, maps, n, &roof, &out);
  return session_put(s, *s->cli->svg ? s->cli->svg : NULL, &out);
}

static bool explain_call(Session *s, Bench *b) {
  DrvSpec spec;
  uint32_t remarks = s->cx.remarks.n;
  if (!drv_cost(&b->call, &b->opt, b->target, false, &b->cost) ||
      !drv_choose(&b->call, &spec))
    return false;
  Device device = {.n = 0};
  bool gpu = b->target->kind == TARGET_GPU;
  if (gpu) {
    plan_fit_few(&s->cx, spec, b->target, b->call.dims, &b->opt);
    device.n =
        drv_kernels(&b->call, b->target, &b->opt, device.kernel, MAX_KERNELS);
    if (!device.n) return false;
  }
  if (s->cli->svg && !draw(s, b)) return false;
  if (s->cli->svg && !*s->cli->svg) return true;
  CgProgram fit;
  if (!gpu && !drv_fit(&b->call, spec, b->target, &b->opt, &fit)) return false;
  remarks = gpu ? remarks : s->cx.remarks.n;
  Module *tiles = drv_lower(&s->cx, spec, b->target, LV_TILE, &b->opt);
  if (!tiles) return false;
  if (s->cli->json) {
    print_json(s, b, tiles, &device);
    return true;
  }
  print_text(s, b, tiles, remarks);
  if (!gpu) return explain_code(s, b);
  print_device(s, b, &device);
  return true;
}

static bool explain_gradient(Session *s, Bench *b) {
  DrvGrads *g = NEW(&s->cx.session, DrvGrads);
  DrvCall call = b->call;
  DrvOptions opt = b->opt;
  if (!drv_grads(&call, s->cli->grad, 1, g)) return false;
  b->call = g->forward;
  if (!explain_call(s, b)) return false;
  b->call = g->backward;
  b->opt = opt;  // without what the program chose
  return explain_call(s, b);
}

static bool explain_one(Session *s, const Unit *u, Decl *prog, void *data) {
  (void)data;
  Bench b = {.threads = 1, .hollow = true};
  bool ok = bench_prepare(s, &b, u, prog);
  bench_done(&b);
  if (!ok) return false;
  return s->cli->grad ? explain_gradient(s, &b) : explain_call(s, &b);
}

// A picture is of one program.
static int draw_one(Session *s) {
  Unit *u = session_unit(s, s->cli->inputs.at[0]);
  Decl *prog = u ? session_program(s, u) : NULL;
  if (s->cli->grad && prog)
    usage_error(s->cli, "--svg and --grad exclude each other");
  if (s->cli->grad && prog) return EXIT_USAGE;
  if (prog) explain_one(s, u, prog, NULL);
  return EXIT_OK;
}

int explain_file(Session *s, void *data) {
  if (s->cli->svg) return draw_one(s);
  session_each(s, explain_one, data);
  return EXIT_OK;
}
