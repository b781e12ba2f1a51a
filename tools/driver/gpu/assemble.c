// PTX to machine code, kernel by kernel. Each kernel of a variant is for ptxas
// a program of its own, and what it says of a text holds as long as the program
// is compiled: where a kernel spills, only that kernel is assembled again, as
// other code or at another level of register usage (remedy.c), and the best of
// its tries stays. Kernels are assembled at the same time.
//   variant  main, main_chunks, main_states     ptxas
//   round 1  three texts                        chunks spills 36 bytes
//   round 2  main_chunks, other code            nothing
#include "ir/layout.h"
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

struct Part {
  const Target *target;
  Span at;                // of the program
  CgBytes ptx;            // the kernel alone
  uint32_t level;         // of register usage
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
  Part **parts;  // the longest text first: nobody waits for it alone at the end
  uint32_t n;
  const DrvOptions *opt;
  atomic_uint next;
} Crew;

typedef struct Worker {
  Crew *crew;
  bool own;  // of the thread that compiles
  Ctx cx;
  pthread_t thread;
  bool started;
  bool full;  // memory ran out
} Worker;

static void take_parts(void *data) {
  Worker *w = data;
  for (;;) {
    uint32_t i = atomic_fetch_add(&w->crew->next, 1);
    if (i >= w->crew->n) return;
    if (w->own) drv_step(w->crew->opt, "kernel", i + 1, w->crew->n);
    Part *p = w->crew->parts[i];
    CgKernels one = {.at = &p->kernel, .n = 1};
    CgAssembled out = {&p->out, &one, &p->said};
    p->out = p->said = (Buf){.arena = &w->cx.session};
    work_place(&w->cx, p->at);
    p->ok = cg_ptxas(&w->cx, p->target, p->ptx, p->level, &out);
  }
}

static void *work(void *data) {
  Worker *w = data;
  w->full = !ctx_try(&w->cx, take_parts, w);
  work_rest(&w->cx);
  return NULL;
}

static uint32_t crew_size(const DrvOptions *opt, uint32_t n) {
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  uint32_t most = opt->jobs ? opt->jobs : cpus > 0 ? (uint32_t)cpus : 1;
  most = most > 64 ? 64 : most;
  return most < n ? most : n;
}

static void start(Ctx *cx, uint32_t threads, Crew *crew, Worker *w) {
  work_rest(cx);
  for (uint32_t i = 0; i < threads; i++) {
    w[i].crew = crew;
    w[i].own = i == 0;
    ctx_init_helper(&w[i].cx, cx);
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
  if (!p->ok) return cg_ptxas(cx, p->target, p->ptx, p->level, &out);
  p->cubin = keep(cx, &p->out);
  p->log = keep(cx, &p->said);
  p->done = true;
  return true;
}

static Part **longest_first(Arena *a, const Parts *parts) {
  Part **all = NEWN(a, Part *, parts->n + 1);
  for (uint32_t i = 0; i < parts->n; i++) {
    uint32_t k = i;
    for (; k && all[k - 1]->ptx.n < parts->at[i]->ptx.n; k--)
      all[k] = all[k - 1];
    all[k] = parts->at[i];
  }
  return all;
}

static bool run(Yard *y, const Parts *parts) {
  Part **order = longest_first(&y->cx->session, parts);
  Crew crew = {.parts = order, .n = parts->n, .opt = y->opt};
  uint32_t threads = crew_size(y->opt, parts->n);
  Worker *w = NEWN(&y->cx->session, Worker, threads + 1);
  bool full = false, ok;
  if (!parts->n) return true;
  start(y->cx, threads, &crew, w);
  for (uint32_t i = 0; i < threads; i++) full |= w[i].full;
  ok = !full;
  for (uint32_t i = 0; i < parts->n && ok; i++) ok = take(y->cx, parts->at[i]);
  for (uint32_t i = 0; i < threads; i++) ctx_drop(&w[i].cx);
  if (full) ctx_no_memory(y->cx);
  return ok;
}

// ---------------------------------------------------------------- parts
static Part *find_part(const Yard *y, const Part *as, CgBytes text) {
  for (uint32_t k = 0; k < y->all.n; k++) {
    Part *p = y->all.at[k];
    if (p->target == as->target && p->level == as->level &&
        drv_same_text(p->ptx, text))
      return p;
  }
  return NULL;
}

// The text of kernel i alone, as t says; empty: its registers are not one
// number.
static CgBytes text_of(Arena *a, const CgPtx *ptx, uint32_t i,
                       const DrvTry *t) {
  Buf alone = {.arena = a}, capped = {.arena = a};
  cg_ptx_alone(ptx, i, &alone);
  if (!t->registers) return (CgBytes){alone.at, alone.n};
  if (!cg_ptx_capped(alone.at, t->registers, &capped)) return (CgBytes){0};
  return (CgBytes){capped.at, capped.n};
}

// Kernel i of b, whose text is ptx, as t says; NULL: its registers are not one
// number.
static Part *part_of(Yard *y, const Built *b, const CgPtx *ptx, uint32_t i,
                     const DrvTry *t) {
  Arena *a = &y->cx->session;
  Part *p, new = {.target = b->recipe.target,
                  .at = b->recipe.spec.prog->name_span,
                  .level = t->level,
                  .kernel = b->kernels.at[i]};
  ArenaMark mark = arena_mark(&y->cx->scratch);
  CgBytes text = text_of(&y->cx->scratch, ptx, i, t);
  p = text.n ? find_part(y, &new, text) : NULL;
  if (text.n && !p) {
    p = NEW(a, Part);
    *p = new;
    p->ptx = (CgBytes){arena_strndup(a, text.at, text.n), text.n};
    vec_push(a, &y->all, p);
  }
  arena_reset(&y->cx->scratch, mark);
  return p;
}

static const char *remark_of(Ctx *cx, const Built *b, const CgKernelRecord *k) {
  const char *s =
      arena_printf(&cx->session,
                   "ptxas: %s for %s: %u threads, %u registers, %u bytes "
                   "spilled, %u bytes of shared memory",
                   k->symbol, b->recipe.target->name, k->threads, k->registers,
                   k->spill_bytes, k->shared_bytes);
  if (k->lacks)
    s = arena_printf(&cx->session,
                     "ptxas: no code for %s for %s: of %u registers %u more "
                     "than there are",
                     k->symbol, b->recipe.target->name, k->registers + k->lacks,
                     k->lacks);
  if (k->rare_bytes)
    s = arena_printf(&cx->session, "%s, %u of them where few steps go", s,
                     k->rare_bytes);
  if (k->level)
    s = arena_printf(&cx->session, "%s, register usage level %u", s, k->level);
  return s;
}

static void remark(Ctx *cx, const Built *b, Part *p) {
  vec_push(&cx->session, &cx->remarks, remark_of(cx, b, &p->kernel));
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
    if (!p || !p->done) continue;
    if (!p->told) remark(cx, b, p);
    k->registers = p->kernel.registers;
    k->spill_bytes = p->kernel.spill_bytes;
    k->rare_bytes = p->kernel.rare_bytes;
    k->serialized = p->kernel.serialized;
    k->warning = p->kernel.warning;
    k->lacks = p->kernel.lacks;
    k->level = p->kernel.level;
    k->runs = b->courses ? b->courses[i].runs : 1;
  }
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
  return drv_is_amd(b) || b->recipe.text || !cg_ptxas_path(cx);
}

// May p, a text of the kernel whose course is c, be asked for? A kernel that
// has had its runs has none more, whatever asks for one.
static bool may_want(const Part *p, const Course *c) {
  return !p || p->done || c->runs < COST_PTXAS_RUNS;
}

static void want(Yard *y, Parts *list, Part *p, Course *c) {
  bool listed = false;
  if (!p || p->done) return;
  c->runs++;
  for (uint32_t i = 0; i < list->n; i++) listed |= list->at[i] == p;
  if (!listed) vec_push(&y->cx->session, list, p);
}

// All kernels of b; false: none, as one may not.
static bool want_all(Yard *y, Parts *list, const Built *b) {
  for (uint32_t i = 0; i < b->kernels.n; i++)
    if (!may_want(b->parts[i], &b->courses[i])) return false;
  for (uint32_t i = 0; i < b->kernels.n; i++)
    want(y, list, b->parts[i], &b->courses[i]);
  return true;
}

static bool is_refused(Ctx *cx, const Built *b) {
  return !b->parts && !is_done(cx, b);
}

static DrvTry first_try(const Built *b, uint32_t i) {
  DrvTry t = b->courses[i].from;
  t.relief = relief_asked(b->recipe.opt.relief, i);
  if (!t.level) t.level = drv_first_level(&b->kernels.at[i]);
  return t;
}

// All kernels of b as its text has them.
static bool want_first(Yard *y, Built *b, const CgDevice *d, Parts *list) {
  uint32_t n = b->kernels.n;
  if (!b->courses) b->courses = NEWN(&y->cx->session, Course, n + 1);
  b->parts = NEWN(&y->cx->session, Part *, n + 1);
  CgPtx ptx = cg_ptx_split(y->cx, d->text.at);
  for (uint32_t i = 0; i < n; i++) {
    DrvTry t = first_try(b, i);
    b->parts[i] = part_of(y, b, &ptx, i, &t);
  }
  return want_all(y, list, b);
}

static void note_first(Ctx *cx, Built *b) {
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    DrvTry t = first_try(b, i);
    t.flaws = cg_kernel_flaws(&b->parts[i]->kernel);
    if (t.flaws)
      t.room = drv_registers_left(cx, b->kernels.at[i].func, b->recipe.target);
    t.cost = cg_kernel_cost(&b->parts[i]->kernel);
    Course *c = &b->courses[i];
    c->shares = drv_shares(b->kernels.at[i].func);
    c->runs += !c->runs;  // that of others with the same text
    drv_note_try(c, t);
  }
}

// Of the n variants of dev and built; those of which a kernel has no run left
// have no parts.
static bool assemble_first(Yard *y, CgDevice *dev, Built *built, uint32_t n) {
  Parts list = {0};
  for (uint32_t i = 0; i < n; i++)
    if (!is_done(y->cx, &built[i]) && !want_first(y, &built[i], &dev[i], &list))
      built[i].parts = NULL;
  if (!run(y, &list)) return false;
  for (uint32_t i = 0; i < n; i++) {
    Built *b = &built[i];
    if (!b->parts) continue;
    note_first(y->cx, b);
    note(y->cx, b);
    deliver(y->cx, b, &dev[i]);
  }
  return true;
}

// ---------------------------------------------------------------- tries
typedef struct Made {
  Built b;
  CgDevice d;
} Made;

// b, whose device is `of`, as its kernels' tries `now` say: other code where
// those with flaws want it.
static bool remake(Yard *y, const CgProgram *p, const Built *b,
                   const CgDevice *of, const DrvTry *now, Made *made) {
  Built *out = &made->b;
  CgDevice *dev = &made->d;
  uint32_t n = b->kernels.n;
  *out = *b;
  out->recipe.opt.relief = drv_relief_of(now, n);
  *dev = *of;
  if (out->recipe.opt.relief != b->recipe.opt.relief) {
    if (!drv_device_text(y->cx, p, out, dev)) return false;
  } else {
    out->kernels.at = NEWN(&y->cx->session, CgKernelRecord, n + 1);
    memcpy(out->kernels.at, b->kernels.at, n * sizeof *b->kernels.at);
  }
  out->parts = NEWN(&y->cx->session, Part *, n + 1);
  CgPtx ptx = cg_ptx_split(y->cx, dev->text.at);
  for (uint32_t i = 0; i < n; i++)
    out->parts[i] = part_of(y, out, &ptx, i, &now[i]);
  return true;
}

// What few steps of a loop over keys go through costs nothing, and hardly a try
// frees it.
static bool is_worth_tries(const Func *f, const DrvTry *best) {
  return ir_has_steps(f) ? best->flaws : best->cost;
}

// The tries of kernels that have one left, in `now`, and of the others the
// best. False: none has.
static bool next_tries(const Built *b, DrvTry *now) {
  bool any = false;
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    now[i] = *drv_best_try(&b->courses[i]);
    const Func *f = b->kernels.at[i].func;
    if (is_worth_tries(f, &now[i]))
      any |= drv_next_try(&b->courses[i], f, &now[i]);
  }
  return any;
}

// Of a text that the lower level has made better than the first code is,
// ptxas's own makes no better.
static bool is_idle(const Yard *y, const Course *c, const Part *p) {
  Part lower = {.target = p->target, .level = COST_PTXAS_LOWER};
  const Part *low = find_part(y, &lower, p->ptx);
  return !p->done && !p->level && low && low->done &&
         cg_kernel_flaws(&low->kernel) < c->at[0].flaws;
}

// Notes the tries `now` of the kernels of `made`, whose courses are b's. False:
// some is still to be assembled. run: they were.
static bool note_tries(const Yard *y, const Built *b, const Built *made,
                       const DrvTry *now, bool run) {
  bool all = true;
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    const Part *p = made->parts[i];
    DrvTry t = now[i];
    if (drv_known_try(&b->courses[i], &t)) continue;
    bool none = !run && (!p || is_idle(y, &b->courses[i], p));
    t.flaws = none ? UINT64_MAX : cg_kernel_flaws(&p->kernel);
    t.cost = none ? UINT64_MAX : cg_kernel_cost(&p->kernel);
    if (none || p->done) drv_note_try(&b->courses[i], t);
    else all = false;
  }
  return all;
}

// What a round makes for a variant: `made` NULL, nothing is left to try.
typedef struct Pending {
  DrvTry *now;
  Made *made;
} Pending;

// A round for variant b: wants what its kernels' next tries need. Tries whose
// code is that of others are known at once.
static bool want_tries(Yard *y, const CgProgram *p, const Built *b,
                       const CgDevice *d, Pending *out, Parts *list) {
  DiagMark mark = diag_mark(y->cx);
  out->now = NEWN(&y->cx->session, DrvTry, b->kernels.n + 1);
  while (next_tries(b, out->now)) {
    if (!drv_judge_tries(y->cx, p, b, out->now)) continue;
    Made *made = NEW(&y->cx->session, Made);
    if (!remake(y, p, b, d, out->now, made)) break;
    y->cx->remarks.n = mark.remarks;
    if (note_tries(y, b, &made->b, out->now, false)) continue;
    for (uint32_t i = 0; i < b->kernels.n; i++)
      if (!drv_known_try(&b->courses[i], &out->now[i]))
        want(y, list, made->b.parts[i], &b->courses[i]);
    out->made = made;
    return true;
  }
  diag_forget(y->cx, mark);
  return false;
}

// Every variant's next tries at once. False: nothing is left, or it failed.
static bool try_round(Yard *y, const CgProgram *p, const CgDevice *dev,
                      Built *built, uint32_t n) {
  Pending *all = NEWN(&y->cx->session, Pending, n + 1);
  Parts list = {0};
  bool any = false;
  for (uint32_t i = 0; i < n; i++)
    if (built[i].parts && cg_flaws(&built[i].kernels))
      any |= want_tries(y, p, &built[i], &dev[i], &all[i], &list);
  if (!any || !run(y, &list)) return false;
  for (uint32_t i = 0; i < n; i++) {
    if (!all[i].made) continue;
    note_tries(y, &built[i], &all[i].made->b, all[i].now, true);
    note(y->cx, &all[i].made->b);
  }
  return true;
}

static bool same_try(const DrvTry *a, const DrvTry *b) {
  return a->relief == b->relief && a->level == b->level &&
         a->registers == b->registers;
}

// The best of each kernel's tries.
static bool take_best(Yard *y, const CgProgram *p, CgDevice *dev, Built *b) {
  DrvTry *now = NEWN(&y->cx->session, DrvTry, b->kernels.n + 1);
  Parts list = {0};
  Made made;
  bool other = false;
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    now[i] = *drv_best_try(&b->courses[i]);
    other |= b->courses[i].n && !same_try(&now[i], &b->courses[i].at[0]);
  }
  DiagMark mark = diag_mark(y->cx);
  if (!other || !remake(y, p, b, dev, now, &made)) return true;
  y->cx->remarks.n = mark.remarks;
  if (!want_all(y, &list, &made.b)) return true;
  if (!run(y, &list)) return false;
  note(y->cx, &made.b);
  deliver(y->cx, &made.b, &made.d);
  *b = made.b;
  *dev = made.d;
  return true;
}

static bool improve(Yard *y, const CgProgram *p, CgDevice *dev, Built *built,
                    uint32_t n) {
  while (try_round(y, p, dev, built, n)) {}
  for (uint32_t i = 0; i < n && !y->cx->nerrors; i++)
    if (built[i].parts && cg_flaws(&built[i].kernels) &&
        !take_best(y, p, &dev[i], &built[i]))
      return false;
  return !y->cx->nerrors;
}

// ---------------------------------------------------------------- tiles
bool drv_may_run(const Built *b, uint32_t i) {
  const Course *c = b->parts ? &b->courses[i] : NULL;
  bool left = !c || c->runs < COST_PTXAS_RUNS;
  return (left || b->kernels.at[i].lacks) && cg_kernel_cost(&b->kernels.at[i]);
}

static bool has_runs(const Built *b) {
  bool any = false;
  for (uint32_t i = 0; i < b->kernels.n; i++) any |= drv_may_run(b, i);
  return any;
}

// Kernel i of two variants has the same text.
static bool same_kernel(Ctx *cx, const Built *a, const Built *b, uint32_t i) {
  Func *f = (Func *)a->kernels.at[i].func, *g = (Func *)b->kernels.at[i].func;
  ArenaMark mark = arena_mark(&cx->scratch);
  bool same = drv_same_text(drv_mach_of(&cx->scratch, a->mod, f),
                            drv_mach_of(&cx->scratch, b->mod, g));
  arena_reset(&cx->scratch, mark);
  return same;
}

// The kernel of b with the name of record k, or NULL.
static const Course *course_named(const Built *b, const CgKernelRecord *k) {
  for (uint32_t i = 0; i < b->kernels.n; i++)
    if (strcmp(b->kernels.at[i].symbol, k->symbol) == 0 &&
        !b->kernels.at[i].lacks)
      return &b->courses[i];
  return NULL;
}

// Other tiles have other kernels, for which ptxas has run as often; that it
// makes no code it says at once. Kernels that keep theirs are known; those of
// another order of sums are others.
static Course *courses_of(Ctx *cx, const Built *b, const Built *tiles) {
  Course *all = NEWN(&cx->session, Course, tiles->kernels.n + 1);
  bool other = b->recipe.spec.ordered != tiles->recipe.spec.ordered;
  for (uint32_t i = 0; b->courses && !other && i < tiles->kernels.n; i++) {
    const Course *had = course_named(b, &tiles->kernels.at[i]);
    if (had) all[i].runs = had->runs;
    if (i < b->kernels.n && same_kernel(cx, b, tiles, i))
      all[i].from = *drv_best_try(&b->courses[i]);
  }
  return all;
}

// Kernels of two variants with the same kernels, of which one's tiles are other
// ones: which of them is the better.
typedef struct Pair {
  const Built *of[2];
  bool *second;   // by kernel
  bool any, all;  // of the second is better; none is worse
} Pair;

static Pair compare(Ctx *cx, const Built *b, const Built *tiles) {
  uint32_t n = b->kernels.n;
  Pair x = {.of = {b, tiles}, .all = true};
  x.second = NEWN(&cx->session, bool, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    uint64_t had = cg_kernel_cost(&b->kernels.at[i]);
    uint64_t has = cg_kernel_cost(&tiles->kernels.at[i]);
    x.second[i] = has < had;
    x.any |= has < had;
    x.all &= has <= had;
  }
  return x;
}

static void best_recipe(Ctx *cx, const Pair *x, uint32_t n, Built *out) {
  int64_t *spare = NEWN(&cx->session, int64_t, n + 1);
  *out = *x->of[0];
  out->recipe.opt.relief = 0;
  out->courses = out->courses ? NEWN(&cx->session, Course, n + 1) : NULL;
  for (uint32_t i = 0; i < n; i++) {
    const Built *of = x->of[x->second[i]];
    spare[i] = drv_spare_of(&of->recipe.opt, of->mod->funcs.at[i]);
    if (!out->courses) continue;
    out->courses[i] = of->courses[i];
    if (i < RELIEF_FUNCS)
      out->recipe.opt.relief |= drv_best_try(&of->courses[i])->relief
                                << (RELIEF_BITS * i);
  }
  drv_set_spare(cx, &out->recipe.opt, spare, n, x->of[0]->mod);
}

// The better of the two for each kernel.
static bool mix(Yard *y, const CgProgram *p, const Pair *x, Built *b,
                CgDevice *d) {
  uint32_t n = b->kernels.n;
  Built best;
  CgDevice dev;
  Parts list = {0};
  best_recipe(y->cx, x, n, &best);
  if (!drv_device_text(y->cx, p, &best, &dev)) return false;
  if (best.kernels.n == n && best.courses && !is_done(y->cx, &best)) {
    best.parts = NEWN(&y->cx->session, Part *, n + 1);
    CgPtx ptx = cg_ptx_split(y->cx, dev.text.at);
    for (uint32_t i = 0; i < n; i++) {
      best.parts[i] =
          part_of(y, &best, &ptx, i, drv_best_try(&best.courses[i]));
    }
    if (!want_all(y, &list, &best)) return true;
    if (!run(y, &list)) return false;
    note(y->cx, &best);
    deliver(y->cx, &best, &dev);
  }
  if (best.kernels.n != n || cg_cost(&best.kernels) >= cg_cost(&b->kernels))
    return true;
  *b = best;
  *d = dev;
  return true;
}

// The better of b and what other tiles made.
static bool choose(Yard *y, const CgProgram *p, Built *b, CgDevice *d,
                   const Made *tiles) {
  const Built *t = &tiles->b;
  b->freed = t->freed;
  b->nfreed = t->nfreed;
  b->tried = t->mod;
  for (uint32_t i = 0; b->courses && i < b->kernels.n; i++)
    if (i < t->kernels.n) b->courses[i].runs = t->courses[i].runs;
  bool same = t->recipe.opt.spare_each && t->kernels.n == b->kernels.n &&
              t->mod->funcs.n == b->mod->funcs.n;
  Pair x = same ? compare(y->cx, b, t) : (Pair){0};
  if (x.any && !x.all) return mix(y, p, &x, b, d);
  if (cg_cost(&t->kernels) >= cg_cost(&b->kernels)) return true;
  *b = *t;
  *d = tiles->d;
  return true;
}

// Copies of some of the variants, one behind the other.
typedef struct Batch {
  uint32_t n, *of;  // their numbers
  Built *b;
  CgDevice *d;
} Batch;

static Batch batch(Ctx *cx, uint32_t most) {
  return (Batch){.of = NEWN(&cx->session, uint32_t, most + 1),
                 .b = NEWN(&cx->session, Built, most + 1),
                 .d = NEWN(&cx->session, CgDevice, most + 1)};
}

static void put(Batch *x, uint32_t of, const Built *b, const CgDevice *d) {
  x->of[x->n] = of;
  x->b[x->n] = *b;
  x->d[x->n++] = *d;
}

// What is for kernels that have no smaller tiles.
static bool last_tries(Yard *y, const CgProgram *p, const Batch *all,
                       const Batch *last) {
  for (uint32_t k = 0; k < last->n; k++)
    for (uint32_t i = 0; last->b[k].courses && i < last->b[k].kernels.n; i++)
      last->b[k].courses[i].last = true;
  if (!improve(y, p, last->d, last->b, last->n)) return false;
  for (uint32_t k = 0; k < last->n; k++) {
    all->b[last->of[k]] = last->b[k];
    all->d[last->of[k]] = last->d[k];
  }
  return true;
}

// Code of smaller tiles for those of the variants that are open, have flaws and
// tries left, goes to *tiles; those that have none to *last.
static bool want_tiles(Yard *y, const CgProgram *p, const Batch *all,
                       const bool *open, Batch *tiles, Batch *last) {
  for (uint32_t i = 0; i < all->n; i++) {
    Made m;
    if (!open[i] || !has_runs(&all->b[i])) continue;
    if (drv_smaller_tiles(y->cx, p, &all->b[i], &m.b, &m.d)) {
      m.b.courses = courses_of(y->cx, &all->b[i], &m.b);
      put(tiles, i, &m.b, &m.d);
    } else if (y->cx->nerrors) {
      return false;
    } else {
      put(last, i, &all->b[i], &all->d[i]);
    }
  }
  return true;
}

// A round for all variants, as ptxas runs for them side by side. open: is there
// more to try?
static bool tiles_round(Yard *y, const CgProgram *p, const Batch *all,
                        bool *open) {
  Batch tiles = batch(y->cx, all->n), last = batch(y->cx, all->n);
  if (!want_tiles(y, p, all, open, &tiles, &last) ||
      !assemble_first(y, tiles.d, tiles.b, tiles.n) ||
      !improve(y, p, tiles.d, tiles.b, tiles.n))
    return false;
  memset(open, 0, all->n * sizeof *open);
  for (uint32_t k = 0; k < tiles.n; k++) {
    uint32_t i = tiles.of[k];
    Made m = {tiles.b[k], tiles.d[k]};
    open[i] = !is_refused(y->cx, &m.b);
    if (!open[i]) put(&last, i, &all->b[i], &all->d[i]);
    else if (!choose(y, p, &all->b[i], &all->d[i], &m)) return false;
  }
  return last_tries(y, p, all, &last);
}

// While variants have flaws, and there are tries left.
static bool smaller_tiles(Yard *y, const CgProgram *p, const Batch *all) {
  bool *open = NEWN(&y->cx->session, bool, all->n + 1);
  for (uint32_t i = 0; i < all->n; i++) open[i] = true;
  for (uint32_t t = 0; t < COST_ASSEMBLE_ROUNDS; t++)
    if (!tiles_round(y, p, all, open)) return false;
  return true;
}

// How often ptxas was asked for a kernel of b in all.
static void remark_runs(Ctx *cx, const Built *b) {
  for (uint32_t i = 0; b->parts && i < b->kernels.n; i++)
    if (b->courses[i].runs > 1)
      ctx_remark(cx, "ptxas: %u runs for %s for %s", b->courses[i].runs,
                 b->kernels.at[i].symbol, b->recipe.target->name);
}

// What no try has brought to nothing.
static void remark_flaws(Ctx *cx, const Built *b) {
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    const CgKernelRecord *k = &b->kernels.at[i];
    const char *more = k->serialized ? ", products are serialized" : "";
    if (k->warning)
      more = arena_printf(&cx->session, ", warning C%u", k->warning);
    if (cg_kernel_cost(k))
      ctx_remark(cx, "%s for %s: %u bytes stay spilled%s: it is slower",
                 k->symbol, b->recipe.target->name, k->spill_bytes, more);
  }
}

// The kernels that no try made code of are errors.
static bool has_code(Ctx *cx, const Built *b) {
  for (uint32_t i = 0; b->parts && i < b->kernels.n; i++) {
    const CgKernelRecord *k = &b->kernels.at[i];
    if (!k->lacks) continue;
    diag_add(cx, DIAG_no_registers, b->recipe.spec.prog->name_span,
             b->recipe.spec.prog->name, b->recipe.target->name, k->symbol,
             k->registers + k->lacks, k->registers);
    return false;
  }
  return true;
}

bool drv_assemble(Ctx *cx, const DrvOptions *opt, CgProgram *p, Built *built,
                  uint32_t n) {
  Yard y = {.cx = cx, .opt = opt};
  if (!n) return true;
  CgDevice *dev = p->devices + (p->ndevices - n);
  if (!assemble_first(&y, dev, built, n) || !improve(&y, p, dev, built, n))
    return false;
  Batch all = {.n = n, .b = built, .d = dev};
  if (!smaller_tiles(&y, p, &all)) return false;
  for (uint32_t i = 0; i < n; i++) {
    if (!has_code(cx, &built[i])) return false;
    remark_runs(cx, &built[i]);
    remark_flaws(cx, &built[i]);
  }
  return cx->nerrors == 0;
}
