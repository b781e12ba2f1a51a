// Kernels of a module through LLVM by several threads, a share each: a thread's
// module has all kernels, but those of other shares are empty (cg_gpu_rest), so
// that labels are the same whoever makes a kernel.
//   thread 0  main, -, -, rows       text  around main around keys around ..
//   thread 1  -, keys, states, -
#include "tools/driver/gpu/device.h"

#include <pthread.h>
#include <string.h>

typedef struct Sharer {
  const DrvShares *of;
  Ctx cx;
  pthread_t thread;
  bool started, full, ok;
  const CgKernelRecord **known;  // by kernel: NULL, of its share
  uint64_t bytes;                // of these
  Buf text;
  CgKernels all;
  const CgPtx *parts;
} Sharer;

// Stands for a kernel of another share.
static const CgKernelRecord others = {0};

static void make_share(void *data) {
  Sharer *s = data;
  s->text.arena = &s->cx.session;
  s->ok =
      cg_gpu_rest(&s->cx, s->of->m, s->of->prefix, s->known, &s->text, &s->all);
  buf_char(&s->text, 0);
}

static void *work(void *data) {
  Sharer *s = data;
  s->full = !ctx_try(&s->cx, make_share, s);
  work_rest(&s->cx);
  return NULL;
}

static uint32_t threads_for(const DrvShares *of) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < of->n; i++) n += !of->known[i];
  return of->threads < n ? of->threads : n;
}

// The longest kernel first, each to who has least.
static void share_out(const DrvShares *of, Sharer *all, uint32_t n,
                      uint32_t *maker) {
  for (;;) {
    uint32_t longest = of->n, least = 0;
    for (uint32_t i = 0; i < of->n; i++)
      if (!of->known[i] && maker[i] == n &&
          (longest == of->n || of->mach[i].n > of->mach[longest].n))
        longest = i;
    if (longest == of->n) return;
    for (uint32_t i = 1; i < n; i++)
      if (all[i].bytes < all[least].bytes) least = i;
    maker[longest] = least;
    all[least].bytes += of->mach[longest].n;
    all[least].known[longest] = NULL;
  }
}

static void start(Ctx *cx, Sharer *all, uint32_t n) {
  work_rest(cx);
  for (uint32_t i = 0; i < n; i++) {
    ctx_init_helper(&all[i].cx, cx);
    all[i].started = i && !pthread_create(&all[i].thread, NULL, work, &all[i]);
  }
  work(&all[0]);
  for (uint32_t i = 1; i < n; i++) {
    if (all[i].started) pthread_join(all[i].thread, NULL);
    else work(&all[i]);
  }
}

static CgExpr kept_expr(Arena *a, CgExpr e) {
  int64_t *at = NEWN(a, int64_t, e.n + 1);
  if (e.n) memcpy(at, e.at, e.n * sizeof *at);
  return (CgExpr){at, e.n};
}

CgKernelRecord drv_kept_record(Ctx *cx, const CgKernelRecord *r) {
  Arena *a = &cx->session;
  CgKernelRecord k = *r;
  k.symbol = arena_strndup(a, r->symbol, strlen(r->symbol));
  k.maps.at = NEWN(a, CgMapRecord, r->maps.n + 1);
  k.maps.cap = r->maps.n + 1;
  if (r->maps.n) memcpy(k.maps.at, r->maps.at, r->maps.n * sizeof *r->maps.at);
  k.when = kept_expr(a, r->when);
  k.numbers.at = NEWN(a, CgExpr, r->numbers.n + 1);
  k.numbers.cap = r->numbers.n + 1;
  for (uint32_t i = 0; i < r->numbers.n; i++)
    k.numbers.at[i] = kept_expr(a, r->numbers.at[i]);
  return k;
}

static bool fits_together(const DrvShares *of, const Sharer *all, uint32_t n) {
  const CgPtx *a = all[0].parts;
  for (uint32_t i = 0; i < n; i++) {
    const CgPtx *b = all[i].parts;
    if (b->n != of->n || all[i].all.n != of->n) return false;
    for (uint32_t k = 0; k <= b->n; k++)
      if (!drv_same_text(a->around[k], b->around[k])) return false;
  }
  return true;
}

static CgPtx *gather(Ctx *cx, const DrvShares *of, Sharer *all, uint32_t n,
                     const uint32_t *maker) {
  Arena *a = &cx->session;
  for (uint32_t i = 0; i < n; i++) {
    CgPtx *parts = NEW(a, CgPtx);
    const char *text = arena_strndup(a, all[i].text.at, all[i].text.n - 1);
    *parts = cg_ptx_split(cx, text);
    all[i].parts = parts;
  }
  if (!fits_together(of, all, n)) return NULL;
  CgPtx *out = NEW(a, CgPtx);
  *out = *all[0].parts;
  for (uint32_t i = 0; i < of->n; i++) {
    bool made = !of->known[i];
    if (made) out->kernel[i] = all[maker[i]].parts->kernel[i];
    const CgKernelRecord *r = &all[made ? maker[i] : 0].all.at[i];
    vec_push(a, of->all, drv_kept_record(cx, r));
  }
  return out;
}

const CgPtx *drv_ptx_shares(Ctx *cx, const DrvShares *of) {
  uint32_t n = threads_for(of);
  CgPtx *out = NULL;
  bool full = false, ok = n > 1 && cg_gpu_ready(cx, of->m);
  if (!ok) return NULL;
  Sharer *all = NEWN(&cx->session, Sharer, n);
  uint32_t *maker = NEWN(&cx->session, uint32_t, of->n + 1);
  for (uint32_t i = 0; i < n; i++) {
    all[i].of = of;
    all[i].known = NEWN(&cx->session, const CgKernelRecord *, of->n + 1);
    for (uint32_t k = 0; k < of->n; k++)
      all[i].known[k] = of->known[k] ? of->known[k] : &others;
  }
  for (uint32_t k = 0; k < of->n; k++) maker[k] = n;
  share_out(of, all, n, maker);
  start(cx, all, n);
  for (uint32_t i = 0; i < n; i++) full |= all[i].full, ok &= all[i].ok;
  if (ok && !full) out = gather(cx, of, all, n, maker);
  for (uint32_t i = 0; i < n; i++) ctx_drop(&all[i].cx);
  if (full) ctx_no_memory(cx);
  return out;
}
