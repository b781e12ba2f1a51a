// From modules of GPUs to the device variants of a program.
#include "tools/driver/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

// ---------------------------------------------------------------- kernels

// The product of the grid's extents in tiles.
CgExpr drv_tasks(Ctx *cx, const Module *m, const Func *f) {
  CgExpr all = cg_expr_const(cx, 1);
  for (uint32_t i = 0; i < f->grid.n; i++) {
    const GridDim *g = &f->grid.at[i];
    CgExpr n = cg_expr_dim(cx, &m->dims, f->axes.at[g->axis].extent);
    if (g->tile > 1) {
      n = cg_expr_bin(cx, n, ATTN_X_ADD, cg_expr_const(cx, g->tile - 1));
      n = cg_expr_bin(cx, n, ATTN_X_FLOORDIV, cg_expr_const(cx, g->tile));
    }
    all = i ? cg_expr_bin(cx, all, ATTN_X_MUL, n) : n;
  }
  return all;
}

// Bytes that the phases hand on, in front of parameter n of f, as code
// generation lays them out.
static CgExpr workspace(Ctx *cx, const Module *m, const Func *f, uint32_t to) {
  CgExpr all = {0};
  for (uint32_t i = 0; i < to; i++) {
    if (f->params.at[i].role != PR_SHARED) continue;
    const Type *t = ir_type(f, f->params.at[i].v);
    CgExpr n = cg_expr_const(cx, (int64_t)dtype_size(t->dtype));
    for (uint32_t k = 0; k < t->n; k++)
      n = cg_expr_bin(cx, n, ATTN_X_MUL,
                      cg_expr_dim(cx, &m->dims, t->size[k]));
    CgExpr align = cg_expr_const(cx, ATTN_ALIGN);
    n = cg_expr_bin(cx, n, ATTN_X_ADD, cg_expr_const(cx, ATTN_ALIGN - 1));
    n = cg_expr_bin(cx, n, ATTN_X_FLOORDIV, align);
    n = cg_expr_bin(cx, n, ATTN_X_MUL, align);
    all = all.n ? cg_expr_bin(cx, all, ATTN_X_ADD, n) : n;
  }
  return all;
}

// The last phase has all workspaces.
static CgExpr all_workspace(Ctx *cx, const Module *m) {
  const Func *f = m->funcs.n ? m->funcs.at[m->funcs.n - 1] : NULL;
  return f ? workspace(cx, m, f, f->params.n) : (CgExpr){0};
}

// The parameter that is tensor number n of f.
static uint32_t param_of(const Func *f, uint32_t n) {
  uint32_t i = 0;
  while (ir_type(f, f->params.at[i].v)->kind != TK_TENSOR || n-- > 0) i++;
  return i;
}

static const CgPlace *places(Ctx *cx, const Module *m, const CgKernelRecord *k,
                             attn_gpu_map *maps) {
  CgPlace *out = NEWN(&cx->session, CgPlace, k->maps.n + 1);
  for (uint32_t i = 0; i < k->maps.n; i++) {
    uint32_t at = param_of(k->func, maps[i].tensor);
    const Type *t = ir_type(k->func, k->func->params.at[at].v);
    if (k->func->params.at[at].role != PR_SHARED) continue;
    maps[i].tensor = ATTN_NONE;
    maps[i].dtype = (uint32_t)t->dtype;
    out[i].at = workspace(cx, m, k->func, at);
    if (!out[i].at.n) out[i].at = cg_expr_const(cx, 0);
    for (uint32_t a = 0; a < t->n && a < ATTN_MAP_RANK; a++)
      out[i].extent[a] = cg_expr_dim(cx, &m->dims, t->size[a]);
  }
  return out;
}

static attn_gpu_map *maps(Ctx *cx, const CgKernelRecord *k) {
  attn_gpu_map *out = NEWN(&cx->session, attn_gpu_map, k->maps.n + 1);
  for (uint32_t i = 0; i < k->maps.n; i++) {
    const CgMapRecord *r = &k->maps.at[i];
    out[i] = (attn_gpu_map){.tensor = r->tensor, .rank = (uint16_t)r->rank,
                            .swizzle = (uint16_t)r->swizzle};
    memcpy(out[i].axis, r->axis, sizeof r->axis);
    memcpy(out[i].box, r->box, sizeof r->box);
  }
  return out;
}

static CgPhase phase(Ctx *cx, const Module *m, const CgKernelRecord *k) {
  attn_gpu_map *all = maps(cx, k);
  return (CgPhase){
    .name = k->symbol, .ntasks = drv_tasks(cx, m, k->func),
    .threads = k->threads, .shared_bytes = k->shared_bytes,
    .ctas = k->persistent ? ATTN_CTAS_PERSISTENT : ATTN_CTAS_TASKS,
    .flags = (k->counter ? ATTN_GPU_COUNTER : 0) |
             (k->waits ? ATTN_GPU_WAITS : 0) | ATTN_GPU_LOCAL,
    .maps = all, .places = places(cx, m, k, all), .nmaps = k->maps.n};
}

// Text in a container ends with a zero.
static CgBytes text_of(Buf *b) {
  buf_char(b, 0);
  return (CgBytes){b->at, b->n};
}

static void add(Ctx *cx, CgProgram *p, CgDevice d) {
  CgDevice *all = NEWN(&cx->session, CgDevice, p->ndevices + 1);
  if (p->ndevices) memcpy(all, p->devices, sizeof *all * p->ndevices);
  all[p->ndevices++] = d;
  p->devices = all;
}

void drv_prepend_device(Ctx *cx, CgProgram *p, CgDevice d) {
  add(cx, p, d);
  CgDevice *all = (CgDevice *)p->devices;
  all[p->ndevices - 1] = all[p->ndevices - 2];
  all[p->ndevices - 2] = d;
}

static bool same_blocks(Ctx *cx, const CgProgram *p, const Module *m,
                        const CgKernels *all) {
  for (uint32_t i = 0; i < all->n; i++) {
    const CgKernelRecord *k = &all->at[i];
    if (k->block_bytes == cg_block_bytes(p, m->dims.syms.n, k->maps.n))
      continue;
    diag_add(cx, DIAG_cg_input, NOWHERE, p->name,
             "its kernel's parameter block is not that of its signature");
    return false;
  }
  return true;
}

static bool is_amd(const Built *b) {
  return b->recipe.target->gpu.vendor == VENDOR_AMD;
}

// What needs no local memory says so.
static void note_local(const Built *b, CgPhase *phases) {
  for (uint32_t i = 0; i < b->kernels.n; i++)
    if (!b->kernels.at[i].spill_bytes)
      phases[i].flags &= ~(uint32_t)ATTN_GPU_LOCAL;
}

static bool link_code(Ctx *cx, const Buf *object, Built *b, CgPhase *phases,
                      CgDevice *d) {
  Buf out = {.arena = &cx->session};
  if (!cg_lld(cx, object->at, object->n, &out, &b->kernels)) return false;
  d->target = ATTN_TARGET_GFX(b->recipe.target->gpu.cc);
  d->binary = (CgBytes){out.at, out.n};
  d->text = (CgBytes){0};
  note_local(b, phases);
  return true;
}

// e, which counts the dims of a module, over those of its program.
CgExpr drv_over_program(Ctx *cx, const CgProgram *p, const DimTab *dims,
                        CgExpr e) {
  int64_t *w = NEWN(&cx->session, int64_t, e.n + 1);
  if (e.n) memcpy(w, e.at, e.n * sizeof *w);
  for (uint32_t i = 0; i < e.n; i++) {
    uint32_t at = 0;
    int64_t op = w[i];
    if (op == ATTN_X_DIM &&
        dim_find_sym(p->dims, dims->syms.at[w[i + 1]].name, &at))
      w[i + 1] = at;
    i += op == ATTN_X_SHAPE || op == ATTN_X_STRIDE ? 2
         : op >= ATTN_X_CONST && op <= ATTN_X_SCALAR ? 1 : 0;
  }
  return (CgExpr){w, e.n};
}

CgExpr drv_and(Ctx *cx, CgExpr a, CgExpr b) {
  return a.n ? cg_expr_bin(cx, a, ATTN_X_AND, b) : b;
}

// When all kernels of b can be run.
static CgExpr when(Ctx *cx, const CgProgram *p, const Built *b) {
  CgExpr all = b->recipe.when;
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    CgExpr own = drv_over_program(cx, p, &b->mod->dims, b->kernels.at[i].when);
    if (own.n) all = drv_and(cx, all, own);
  }
  return all;
}

static bool assembly(Ctx *cx, const Module *m, const char *prefix,
                     CgDevice *out) {
  Buf text = {.arena = &cx->session};
  if (!cg_gpu(cx, m, prefix, CG_ASM, &text, NULL)) return false;
  out->text = text_of(&text);
  return true;
}

// Boxes of one row are strips (passes/strips.c), for which tensors must lie as
// the copy engine wants them: other code reads any.
static bool has_strips(const CgKernelRecord *k) {
  for (uint32_t i = 0; i < k->maps.n; i++)
    if (k->maps.at[i].box[1] == 1) return true;
  return false;
}

bool drv_needs_strided(const Built *b) {
  for (uint32_t i = 0; i < b->kernels.n; i++)
    if (b->kernels.at[i].when.n || has_strips(&b->kernels.at[i])) return true;
  return false;
}

bool drv_device_text(Ctx *cx, const CgProgram *p, Built *b, CgDevice *out) {
  const Recipe *r = &b->recipe;
  const Target *t = r->target;
  Buf code = {.arena = &cx->session};
  CgEmit what = is_amd(b) ? CG_OBJECT : CG_ASM;
  Module *m = drv_lower_mach(cx, r->prog, r->binds, r->n, t, &r->opt, p->name);
  b->mod = m;
  b->log = (Buf){.arena = &cx->session};
  b->kernels = (CgKernels){0};
  if (!m || !cg_gpu(cx, m, r->opt.prefix, what, &code, &b->kernels) ||
      !same_blocks(cx, p, m, &b->kernels))
    return false;
  CgPhase *phases = NEWN(&cx->session, CgPhase, b->kernels.n + 1);
  for (uint32_t i = 0; i < b->kernels.n; i++)
    phases[i] = phase(cx, m, &b->kernels.at[i]);
  *out = (CgDevice){.target = ATTN_TARGET_SM(t->gpu.cc, t->gpu.arch),
                    .when = when(cx, p, b), .strided = r->opt.strided,
                    .dims = &m->dims, .phases = phases,
                    .workspace = all_workspace(cx, m), .nphases = b->kernels.n};
  if (is_amd(b))
    return link_code(cx, &code, b, phases, out) &&
           (!r->opt.assembly || assembly(cx, m, r->opt.prefix, out));
  out->text = text_of(&code);
  return true;
}

bool drv_add_device(Ctx *cx, CgProgram *p, Built *b) {
  CgDevice d;
  if (!drv_make_device(cx, p, b, &d)) return false;
  add(cx, p, d);
  return true;
}

// ---------------------------------------------------------------- assembling
typedef struct Assembly {
  const Target *target;
  bool done;               // is machine code already, or stays PTX
  CgBytes ptx;
  CgKernels *kernels;
  const CgKernels *than;   // of the code that it is to be better than, or NULL
  Buf cubin, log;          // in the worker's arena; empty: it is not
  bool ok;
} Assembly;

typedef struct Crew {
  Assembly *tasks;
  uint32_t n;
  atomic_uint next;
} Crew;

typedef struct Worker {
  Crew *crew;
  Ctx cx;
  pthread_t thread;
  bool started;
} Worker;

static void *work(void *data) {
  Worker *w = data;
  for (;;) {
    uint32_t i = atomic_fetch_add(&w->crew->next, 1);
    if (i >= w->crew->n) return NULL;
    Assembly *t = &w->crew->tasks[i];
    t->cubin.arena = t->log.arena = &w->cx.session;
    t->ok = t->done;
    if (t->ok) continue;
    t->ok = t->than ? cg_ptxas_better(&w->cx, t->target, t->ptx.at, t->ptx.n - 1,
                                      t->than, &t->cubin, t->kernels, &t->log)
                    : cg_ptxas(&w->cx, t->target, t->ptx.at, t->ptx.n - 1,
                               &t->cubin, t->kernels, &t->log);
  }
}

static CgBytes keep(Ctx *cx, const Buf *b) {
  void *at = arena_alloc(&cx->session, b->n + 16);
  if (b->n) memcpy(at, b->at, b->n);
  return (CgBytes){at, b->n};
}

static void remark(Ctx *cx, const Built *b) {
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    const CgKernelRecord *k = &b->kernels.at[i];
    const char *s = arena_printf(
        &cx->session, "ptxas: %s for %s: %u threads, %u registers, %u bytes "
        "spilled, %u bytes of shared memory", k->symbol, b->recipe.target->name,
        k->threads, k->registers, k->spill_bytes, k->shared_bytes);
    if (k->level)
      s = arena_printf(&cx->session, "%s, register usage level %u", s, k->level);
    vec_push(&cx->session, &cx->remarks, s);
  }
  // C75xx: products of matrices are serialized, or setmaxnreg is ignored.
  const char *p = b->log.n ? strstr(b->log.at, "C75") : NULL;
  if (p)
    vec_push(&cx->session, &cx->remarks,
             arena_printf(&cx->session, "ptxas: warning %.*s",
                          (int)strcspn(p, "\n"), p));
}

// Diagnostics are those of the first that failed, made again in cx.
static bool take(Ctx *cx, const DrvOptions *opt, Assembly *t, CgDevice *d,
                 Built *b) {
  Buf unused = {.arena = &cx->session};
  (void)opt;
  if (!t->ok)
    return cg_ptxas(cx, t->target, t->ptx.at, t->ptx.n - 1, &unused, NULL,
                    NULL);
  if (!t->cubin.n) return true;
  d->binary = keep(cx, &t->cubin);
  if (t->log.n) buf_add(&b->log, t->log.at, t->log.n);
  buf_char(&b->log, 0);
  remark(cx, b);
  // What ptxas could keep in registers the driver's compiler can too.
  note_local(b, (CgPhase *)d->phases);  // made by drv_device_text
  return true;
}

static uint32_t crew_size(const DrvOptions *opt, uint32_t n) {
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  uint32_t most = opt->jobs ? opt->jobs : cpus > 0 ? (uint32_t)cpus : 1;
  most = most > 64 ? 64 : most;
  return most < n ? most : n;
}

static void run(Ctx *cx, uint32_t threads, Crew *crew, Worker *w) {
  (void)cx;
  for (uint32_t i = 0; i < threads; i++) {
    w[i].crew = crew;
    ctx_init(&w[i].cx);
    w[i].started = i && !pthread_create(&w[i].thread, NULL, work, &w[i]);
  }
  work(&w[0]);
  for (uint32_t i = 0; i < threads; i++)
    if (w[i].started) pthread_join(w[i].thread, NULL);
}

// AMD's is linked already; without a ptxas PTX is all there is.
static bool is_done(Ctx *cx, const Built *b) {
  return is_amd(b) || !cg_ptxas_path(cx);
}

// than[i]: kernels of the code that built[i] is to be better than.
static bool assemble(Ctx *cx, const DrvOptions *opt, CgDevice *dev,
                     Built *built, const CgKernels *const *than, uint32_t n) {
  Assembly *tasks_of = NEWN(&cx->session, Assembly, n);
  for (uint32_t i = 0; i < n; i++)
    tasks_of[i] = (Assembly){.target = built[i].recipe.target,
                             .done = is_done(cx, &built[i]),
                             .ptx = dev[i].text, .kernels = &built[i].kernels,
                             .than = than ? than[i] : NULL};
  Crew crew = {.tasks = tasks_of, .n = n};
  uint32_t threads = crew_size(opt, n);
  Worker *w = NEWN(&cx->session, Worker, threads);
  run(cx, threads, &crew, w);
  bool ok = true;
  for (uint32_t i = 0; i < n && ok; i++)
    ok = tasks_of[i].done ||
         take(cx, opt, &tasks_of[i], &dev[i], &built[i]);
  for (uint32_t i = 0; i < threads; i++) ctx_drop(&w[i].cx);
  return ok;
}

static CgBytes code_of(const CgDevice *d) {
  return d->text.n ? d->text : d->binary;
}

// Those with flaws once more, with fewer registers or smaller tiles; the better
// code stays. False if nothing is left to try.
static bool improve(Ctx *cx, const DrvOptions *opt, const CgProgram *p,
                    CgDevice *dev, Built *built, CgBytes *tried, uint32_t n) {
  Built *b = NEWN(&cx->session, Built, n);
  CgDevice *d = NEWN(&cx->session, CgDevice, n);
  const CgKernels **than = NEWN(&cx->session, const CgKernels *, n);
  uint32_t *which = NEWN(&cx->session, uint32_t, n), m = 0;
  for (uint32_t i = 0; i < n; i++)
    if (tried[i].n && cg_flaws(&built[i].kernels) &&
        (drv_leaner(cx, p, &built[i], code_of(&dev[i]), tried[i], &b[m], &d[m]) ||
         drv_smaller_tiles(cx, p, &built[i], tried[i], &b[m], &d[m])))
      than[m] = &built[i].kernels, which[m++] = i;
    else tried[i].n = 0;
  if (!m || !assemble(cx, opt, d, b, than, m)) return false;
  for (uint32_t k = 0; k < m; k++) {
    uint32_t i = which[k];
    bool better = cg_flaws(&b[k].kernels) < cg_flaws(&built[i].kernels);
    // What other tiles spill says nothing of these.
    bool tiles = b[k].freed != built[i].freed;
    Leaning leaning = tiles && !better ? built[i].leaning : b[k].leaning;
    if (!tiles || better) drv_note_lean(&leaning, &b[k]);
    tried[i] = code_of(&d[k]);
    built[i].freed = b[k].freed;
    if (tiles) built[i].tried = b[k].mod;
    if (better) dev[i] = d[k];
    if (better) built[i] = b[k];
    built[i].leaning = leaning;
  }
  return true;
}

bool drv_assemble(Ctx *cx, const DrvOptions *opt, CgProgram *p, Built *built,
                  uint32_t n) {
  enum { ROUNDS = 8 };
  if (!n) return true;
  CgDevice *dev = (CgDevice *)p->devices + (p->ndevices - n);
  if (!assemble(cx, opt, dev, built, NULL, n)) return false;
  CgBytes *tried = NEWN(&cx->session, CgBytes, n);
  for (uint32_t i = 0; i < n; i++) tried[i] = code_of(&dev[i]);
  for (uint32_t i = 0; i < n; i++) drv_note_lean(&built[i].leaning, &built[i]);
  for (int round = 0; round < ROUNDS && cx->nerrors == 0; round++)
    if (!improve(cx, opt, p, dev, built, tried, n)) break;
  return cx->nerrors == 0;
}

// ---------------------------------------------------------------- facts
// CTAs of a multiprocessor by threads, registers and shared memory, of which
// each CTA takes 1 KiB more than it asks for.
static uint32_t residency(const Target *t, const CgKernelRecord *k) {
  enum { THREADS = 2048, CTAS = 32, OWN = 1024, GRAIN = 8 };
  uint32_t n = THREADS / k->threads, regs = (k->registers + GRAIN - 1) / GRAIN;
  uint32_t own = t->gpu.vendor == VENDOR_NVIDIA ? OWN : 0;
  uint32_t by_smem = k->shared_bytes
                         ? (t->gpu.smem + own) / (k->shared_bytes + own) : n;
  uint32_t by_regs = regs ? t->gpu.regs / (regs * GRAIN * k->threads) : n;
  n = n < by_smem ? n : by_smem;
  n = n < by_regs ? n : by_regs;
  return n < CTAS ? n : CTAS;
}

uint32_t drv_kernels(DrvCall *c, const Target *t, DrvOptions *opt,
                     DrvKernel *out, uint32_t max) {
  FeBind *binds;
  uint32_t n;
  CgProgram p;
  Builts all = {0};
  DrvOptions first = *opt;
  first.first = true;
  if (!drv_choose(c, &binds, &n) ||
      !drv_device_program(c->cx, c->prog, binds, n, t, &first, &p, &all))
    return 0;
  Built b = all.at[0];
  for (uint32_t i = 0; i < b.kernels.n && i < max; i++) {
    const CgKernelRecord *k = &b.kernels.at[i];
    out[i] = (DrvKernel){
      .symbol = k->symbol, .threads = k->threads,
      .shared_bytes = k->shared_bytes, .registers = k->registers,
      .spill_bytes = k->spill_bytes, .per_sm = residency(t, k),
      .persistent = k->persistent, .serialized = k->serialized,
      .warning = k->warning, .level = k->level,
      .text_bytes = p.devices[0].text.n, .code_bytes = p.devices[0].binary.n};
    drv_describe(c->cx, k, &out[i]);
  }
  // The remark about a second body.
  Built few;
  drv_few_tasks(c->cx, &p, &b, &few);
  *opt = b.recipe.opt;
  return b.kernels.n < max ? b.kernels.n : max;
}
