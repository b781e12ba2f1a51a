// PTX to machine code, kernel by kernel. Each kernel of a variant is for ptxas
// a program of its own, and what it says of a text holds as long as the program
// is compiled: where a kernel spills, only that kernel is assembled again, with
// fewer registers kept or with smaller tiles, and each has the level of
// register usage that is best for it. Kernels are assembled at the same time.
//   variant  main, main_chunks, main_states     ptxas
//   round 1  three texts                        chunks spills 36 bytes
//   round 2  main_chunks, other code            nothing
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

struct Part {
  const Target *target;
  CgBytes ptx;            // the kernel alone
  CgLevels levels;        // where others than ptxas's own may help
  CgKernelRecord kernel;  // registers, spills and warnings, once `done`
  CgBytes cubin, log;
  bool done, ok, told;
  Buf out, said;  // while it is made: the worker's
};

// All texts of a program.
typedef struct Yard {
  Ctx *cx;
  const DrvOptions *opt;
  Vec(Part *) all;
} Yard;

typedef Vec(Part *) Parts;

// ---------------------------------------------------------------- crew
typedef struct Crew {
  Parts *parts;
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
    if (i >= w->crew->parts->n) return NULL;
    Part *p = w->crew->parts->at[i];
    CgKernels one = {.at = &p->kernel, .n = 1};
    CgAssembled out = {&p->out, &one, &p->said};
    p->out = p->said = (Buf){.arena = &w->cx.session};
    p->ok = cg_ptxas(&w->cx, p->target, p->ptx, &p->levels, &out);
  }
}

static uint32_t crew_size(const DrvOptions *opt, uint32_t n) {
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  uint32_t most = opt->jobs ? opt->jobs : cpus > 0 ? (uint32_t)cpus : 1;
  most = most > 64 ? 64 : most;
  return most < n ? most : n;
}

static void start(uint32_t threads, Crew *crew, Worker *w) {
  for (uint32_t i = 0; i < threads; i++) {
    w[i].crew = crew;
    ctx_init(&w[i].cx);
    w[i].started = i && !pthread_create(&w[i].thread, NULL, work, &w[i]);
  }
  work(&w[0]);
  for (uint32_t i = 0; i < threads; i++)
    if (w[i].started) pthread_join(w[i].thread, NULL);
}

static CgBytes keep(Ctx *cx, const Buf *b) {
  char *at = arena_alloc(&cx->session, b->n + 16);
  if (b->n) memcpy(at, b->at, b->n);
  at[b->n] = 0;
  return (CgBytes){at, b->n};
}

// Diagnostics are those of the first that failed, made again.
static bool take(Ctx *cx, Part *p) {
  Buf unused = {.arena = &cx->session};
  CgAssembled out = {.cubin = &unused};
  if (!p->ok) return cg_ptxas(cx, p->target, p->ptx, NULL, &out);
  p->cubin = keep(cx, &p->out);
  p->log = keep(cx, &p->said);
  p->done = true;
  return true;
}

static bool run(Yard *y, Parts *parts) {
  Crew crew = {.parts = parts};
  uint32_t threads = crew_size(y->opt, parts->n);
  Worker *w = NEWN(&y->cx->session, Worker, threads + 1);
  bool ok = true;
  if (!parts->n) return true;
  start(threads, &crew, w);
  for (uint32_t i = 0; i < parts->n && ok; i++) ok = take(y->cx, parts->at[i]);
  for (uint32_t i = 0; i < threads; i++) ctx_drop(&w[i].cx);
  return ok;
}

// ---------------------------------------------------------------- parts
// Where a recurrence spills pass remat mostly helps, and ptxas's other levels
// mostly do not but for lean code with products
// (docs/lab/2026-11-registers.md): else they come last. Single steps give up a
// CTA for what is more than a few bytes. Of chunks that spilled more lean code
// mostly needs a lower level too; so does what few rows have whose sums leave
// no room for a second CTA.
static CgLevels levels(const Built *b, uint32_t i) {
  CgLevels l = drv_own_flaws(&b->leaning, i);
  const CgKernelRecord *k = &b->kernels.at[i];
  const Func *f = k->func;
  bool alone = k->once && k->counter && k->occupancy == 1;
  if (!ir_has_steps(f)) return (CgLevels){.below = UINT64_MAX, .lower = alone};
  bool walks = !ir_has_products(f), later = !l.nknown || walks;
  if (later && b->leaning.ntried < COST_LEAN_TRIES)
    l.below = walks ? COST_LEAN_STEP_BYTES : 0;
  if (l.nknown == 1 && !walks)
    l.lower = l.known[0] >= COST_LEAN_LOWER_LEAST &&
              l.known[0] <= COST_LEAN_LOWER_MOST;
  return l;
}

static Part *part_of(Yard *y, const Built *b, const CgDevice *d, uint32_t i) {
  Arena *a = &y->cx->session;
  CgBytes text = {d->text.at, d->text.n - 1};
  if (b->kernels.n > 1)
    text = cg_ptx_kernel(y->cx, text, b->kernels.at[i].symbol);
  for (uint32_t k = 0; k < y->all.n; k++)
    if (y->all.at[k]->target == b->recipe.target &&
        drv_same_text(y->all.at[k]->ptx, text))
      return y->all.at[k];
  Part *p = NEW(a, Part);
  *p = (Part){.target = b->recipe.target,
              .ptx = text,
              .kernel = b->kernels.at[i],
              .levels = levels(b, i)};
  vec_push(a, &y->all, p);
  return p;
}

static void remark(Ctx *cx, const Built *b, Part *p) {
  const CgKernelRecord *k = &p->kernel;
  const char *s =
      arena_printf(&cx->session,
                   "ptxas: %s for %s: %u threads, %u registers, %u bytes "
                   "spilled, %u bytes of shared memory",
                   k->symbol, b->recipe.target->name, k->threads, k->registers,
                   k->spill_bytes, k->shared_bytes);
  if (k->level)
    s = arena_printf(&cx->session, "%s, register usage level %u", s, k->level);
  vec_push(&cx->session, &cx->remarks, s);
  // C75xx: products of matrices are serialized, or setmaxnreg is ignored.
  const char *c = strstr(p->log.at, "C75");
  if (c)
    vec_push(&cx->session, &cx->remarks,
             arena_printf(&cx->session, "ptxas: warning %.*s",
                          (int)strcspn(c, "\n"), c));
  p->told = true;
}

// What is known of its kernels.
static void note(Ctx *cx, Built *b) {
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    Part *p = b->parts[i];
    CgKernelRecord *k = &b->kernels.at[i];
    if (!p->done) continue;
    if (!p->told) remark(cx, b, p);
    k->registers = p->kernel.registers;
    k->spill_bytes = p->kernel.spill_bytes;
    k->serialized = p->kernel.serialized;
    k->warning = p->kernel.warning;
    k->level = p->kernel.level;
    k->own_flaws = p->kernel.own_flaws;
  }
}

static bool is_complete(const Built *b) {
  for (uint32_t i = 0; i < b->kernels.n; i++)
    if (!b->parts[i]->done) return false;
  return true;
}

static void deliver(Ctx *cx, const Built *b, CgDevice *d) {
  CgBytes *parts = NEWN(&cx->session, CgBytes, b->kernels.n + 1);
  for (uint32_t i = 0; i < b->kernels.n; i++) parts[i] = b->parts[i]->cubin;
  if (b->kernels.n == 1) d->binary = parts[0];
  else d->parts = parts;
  // What ptxas could keep in registers the driver's compiler can too.
  drv_note_local(b, (CgPhase *)d->phases);  // made by drv_device_text
}

// ---------------------------------------------------------------- variants
// AMD's is linked already; without a ptxas PTX is all there is.
static bool is_done(Ctx *cx, const Built *b) {
  return drv_is_amd(b) || !cg_ptxas_path(cx);
}

static bool has_flaw(const CgKernels *all, const char *symbol) {
  for (uint32_t i = 0; i < all->n; i++)
    if (strcmp(all->at[i].symbol, symbol) == 0 && cg_kernel_flaws(&all->at[i]))
      return true;
  return false;
}

static void want(Yard *y, Parts *list, Part *p) {
  for (uint32_t i = 0; i < list->n; i++)
    if (list->at[i] == p) return;
  if (!p->done) vec_push(&y->cx->session, list, p);
}

// The kernels of b that are still to be assembled. than: those of the code that
// b is to be better than, or NULL; first: only what has flaws there.
static void wanted(Yard *y, const Built *b, const CgKernels *than, bool first,
                   Parts *list) {
  if (than && !first && cg_flaws(&b->kernels) >= cg_flaws(than)) return;
  for (uint32_t i = 0; i < b->kernels.n; i++)
    if (!first || !than || has_flaw(than, b->kernels.at[i].symbol))
      want(y, list, b->parts[i]);
}

// than[i]: kernels of the code that built[i] is to be better than. Those with
// flaws come first: they may have as many again.
static bool assemble(Yard *y, CgDevice *dev, Built *built,
                     const CgKernels *const *than, uint32_t n) {
  Ctx *cx = y->cx;
  for (uint32_t i = 0; i < n; i++) {
    Built *b = &built[i];
    b->parts = NULL;
    if (is_done(cx, b)) continue;
    b->parts = NEWN(&cx->session, Part *, b->kernels.n + 1);
    for (uint32_t k = 0; k < b->kernels.n; k++)
      b->parts[k] = part_of(y, b, &dev[i], k);
  }
  for (int first = 1; first >= 0; first--) {
    Parts list = {0};
    for (uint32_t i = 0; i < n; i++)
      if (built[i].parts)
        wanted(y, &built[i], than ? than[i] : NULL, first, &list);
    if (!run(y, &list)) return false;
    for (uint32_t i = 0; i < n; i++)
      if (built[i].parts) note(cx, &built[i]);
  }
  for (uint32_t i = 0; i < n; i++)
    if (built[i].parts && is_complete(&built[i]))
      deliver(cx, &built[i], &dev[i]);
  return true;
}

// ---------------------------------------------------------------- rounds
static CgBytes code_of(const CgDevice *d) {
  return d->text.n ? d->text : d->binary;
}

// b once more, with ptxas's other levels where these were left for later.
static bool other_levels(Yard *y, const Built *b, Built *out) {
  bool any = false;
  for (uint32_t i = 0; b->parts && i < b->kernels.n; i++) {
    Part *p = b->parts[i];
    if (p->levels.below == UINT64_MAX || !cg_kernel_flaws(&p->kernel)) continue;
    p->levels.below = UINT64_MAX;
    p->done = p->told = false;
    any = true;
  }
  if (!any) return false;
  *out = *b;
  out->kernels.at = NEWN(&y->cx->session, CgKernelRecord, b->kernels.n);
  memcpy(out->kernels.at, b->kernels.at, b->kernels.n * sizeof *b->kernels.at);
  return true;
}

// A try with fewer registers, other levels or smaller tiles; false: none is
// left.
static bool next_try(Yard *y, const CgProgram *p, const Flawed *of, Built *b,
                     CgDevice *d) {
  if (drv_leaner(y->cx, p, of, b, d)) return true;
  *d = *of->device;
  return other_levels(y, of->built, b) || drv_smaller_tiles(y->cx, p, of, b, d);
}

// Those with flaws once more; the better code stays. False if nothing is left
// to try.
static bool improve(Yard *y, const CgProgram *p, CgDevice *dev, Built *built,
                    CgBytes *tried, uint32_t n) {
  Ctx *cx = y->cx;
  Built *b = NEWN(&cx->session, Built, n);
  CgDevice *d = NEWN(&cx->session, CgDevice, n);
  const CgKernels **than = NEWN(&cx->session, const CgKernels *, n);
  uint32_t *which = NEWN(&cx->session, uint32_t, n), m = 0;
  for (uint32_t i = 0; i < n; i++) {
    Flawed of = {&built[i], &dev[i], tried[i]};
    if (tried[i].n && cg_flaws(&built[i].kernels) &&
        next_try(y, p, &of, &b[m], &d[m]))
      than[m] = &built[i].kernels, which[m++] = i;
    else tried[i].n = 0;
  }
  if (!m || !assemble(y, d, b, than, m)) return false;
  for (uint32_t k = 0; k < m; k++) {
    uint32_t i = which[k];
    bool better = cg_flaws(&b[k].kernels) < cg_flaws(&built[i].kernels);
    // What other tiles spill says nothing of these.
    bool tiles = b[k].freed != built[i].freed ||
                 b[k].recipe.opt.most_groups != built[i].recipe.opt.most_groups;
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

// What no try has brought to nothing.
static void remark_flaws(Ctx *cx, const Built *b) {
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    const CgKernelRecord *k = &b->kernels.at[i];
    const char *more = k->serialized ? ", products are serialized" : "";
    if (k->warning)
      more = arena_printf(&cx->session, ", warning C%u", k->warning);
    if (cg_kernel_flaws(k))
      ctx_remark(cx, "%s for %s: %u bytes stay spilled%s: it is slower",
                 k->symbol, b->recipe.target->name, k->spill_bytes, more);
  }
}

bool drv_assemble(Ctx *cx, const DrvOptions *opt, CgProgram *p, Built *built,
                  uint32_t n) {
  Yard y = {.cx = cx, .opt = opt};
  if (!n) return true;
  CgDevice *dev = p->devices + (p->ndevices - n);
  if (!assemble(&y, dev, built, NULL, n)) return false;
  CgBytes *tried = NEWN(&cx->session, CgBytes, n);
  for (uint32_t i = 0; i < n; i++) tried[i] = code_of(&dev[i]);
  for (uint32_t i = 0; i < n; i++) drv_note_lean(&built[i].leaning, &built[i]);
  for (int round = 0; round < COST_ASSEMBLE_ROUNDS && cx->nerrors == 0; round++)
    if (!improve(&y, p, dev, built, tried, n)) break;
  for (uint32_t i = 0; i < n; i++) remark_flaws(cx, &built[i]);
  return cx->nerrors == 0;
}
