// PTX of kernels that LLVM has made before. A program's bodies, and what is
// tried where one spills, have most kernels in common: a kernel whose text of
// level mach is known at the same place of a module gets the PTX that was made
// of it.
//   dense    main, main.keys, main.rows      LLVM: three kernels
//   strided  main', main.keys, main.rows     LLVM: main'
// PTX names labels by a kernel's place, so a kernel is known there alone, and
// only beside the same declarations.
#include "tools/driver/gpu/device.h"

#include <unistd.h>

enum { MAX_THREADS = 64 };

typedef struct Known {
  uint32_t at;   // its place among a module's kernels
  CgBytes mach;  // of a module with this kernel alone
  CgKernelRecord record;
  CgBytes ptx;
  const CgPtx *of;
} Known;

bool drv_same_text(CgBytes a, CgBytes b) {
  return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

struct DrvMemo {
  Vec(Known) all;
  DrvObjects objects;  // AMD: of objects.c
  uint32_t threads;
};

DrvObjects *drv_memo_objects(DrvMemo *memo) {
  return &memo->objects;
}

uint32_t drv_memo_threads(const DrvMemo *memo) {
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  uint32_t most = memo->threads ? memo->threads : cpus > 0 ? (uint32_t)cpus : 1;
  return most > MAX_THREADS ? MAX_THREADS : most;
}

DrvMemo *drv_memo(Ctx *cx, uint32_t threads) {
  DrvMemo *memo = NEW(&cx->session, DrvMemo);
  memo->threads = threads;
  return memo;
}

// What is made of a module.
typedef struct Work {
  Ctx *cx;
  DrvMemo *memo;
  const Module *m;
  const char *prefix;
  CgBytes *mach;  // by kernel
  uint32_t n, found;
  const Known **known;  // by kernel, or NULL
} Work;

CgBytes drv_mach_of(Arena *a, const Module *m, Func *f) {
  Module one = *m;
  Buf text = {.arena = a};
  memset(&one.funcs, 0, sizeof one.funcs);
  vec_push(a, &one.funcs, f);
  ir_print(&one, &text);
  return (CgBytes){text.at, text.n};
}

static const Known *find(const DrvMemo *memo, uint32_t at, CgBytes mach) {
  for (uint32_t i = 0; i < memo->all.n; i++) {
    const Known *k = &memo->all.at[i];
    if (k->at == at && drv_same_text(k->mach, mach)) return k;
  }
  return NULL;
}

static void look_up(Work *w) {
  Arena *a = &w->cx->session;
  w->mach = NEWN(a, CgBytes, w->m->funcs.n + 1);
  w->known = NEWN(a, const Known *, w->m->funcs.n + 1);
  for (uint32_t i = 0; i < w->m->funcs.n; i++) {
    Func *f = w->m->funcs.at[i];
    if (f->kind != FK_PROGRAM) continue;
    uint32_t at = w->n++;
    w->mach[at] = drv_mach_of(a, w->m, f);
    w->known[at] = find(w->memo, at, w->mach[at]);
    w->found += w->known[at] != NULL;
  }
}

// The records of kernels that are all known.
static void have_all(const Work *w, CgKernels *all) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < w->m->funcs.n; i++) {
    if (w->m->funcs.at[i]->kind != FK_PROGRAM) continue;
    CgKernelRecord r = w->known[at++]->record;
    r.func = w->m->funcs.at[i];
    vec_push(&w->cx->session, all, r);
  }
}

// Text with all but the kernels that are known, in parts; NULL: an error.
static const CgPtx *make_rest(const Work *w, CgKernels *all) {
  Arena *a = &w->cx->session;
  Buf text = {.arena = a};
  if (w->found == w->n) {
    have_all(w, all);
    return w->known[0]->of;
  }
  const CgKernelRecord **records = NEWN(a, const CgKernelRecord *, w->n + 1);
  for (uint32_t i = 0; i < w->n; i++)
    if (w->known[i]) records[i] = &w->known[i]->record;
  DrvShares shares = {w->m,    w->prefix, records,
                      w->mach, w->n,      drv_memo_threads(w->memo),
                      all};
  const CgPtx *made = drv_ptx_shares(w->cx, &shares);
  if (made) return made;
  *all = (CgKernels){0};
  if (!cg_gpu_rest(w->cx, w->m, w->prefix, records, &text, all)) return NULL;
  buf_char(&text, 0);
  CgPtx *parts = NEW(a, CgPtx);
  *parts = cg_ptx_split(w->cx, text.at);
  return parts;
}

static bool same_around(const CgPtx *a, const CgPtx *b) {
  if (a == b) return true;
  bool same = a->n == b->n;
  for (uint32_t i = 0; same && i <= a->n; i++)
    same = drv_same_text(a->around[i], b->around[i]);
  return same;
}

static size_t length_of(const Work *w, const CgPtx *rest) {
  size_t n = rest->around[rest->n].n;
  for (uint32_t i = 0; i < rest->n; i++)
    n += rest->around[i].n +
         (w->known[i] ? w->known[i]->ptx.n : rest->kernel[i].n);
  return n + 1;  // text in a container ends with a zero
}

// rest with what is known; false: that stood beside something else.
static bool fill(const Work *w, const CgPtx *rest, Buf *out) {
  bool same = rest->n == w->n;
  for (uint32_t i = 0; i < w->n && same; i++)
    same = !w->known[i] || same_around(rest, w->known[i]->of);
  if (same) buf_room(out, length_of(w, rest));
  for (uint32_t i = 0; same && i <= rest->n; i++) {
    buf_add(out, rest->around[i].at, rest->around[i].n);
    if (i == rest->n) break;
    CgBytes ptx = w->known[i] ? w->known[i]->ptx : rest->kernel[i];
    buf_add(out, ptx.at, ptx.n);
  }
  return same;
}

static void remember(const Work *w, const Buf *text, const CgKernels *all) {
  Arena *a = &w->cx->session;
  CgPtx *parts = NEW(a, CgPtx);
  *parts = cg_ptx_split(w->cx, arena_strndup(a, text->at, text->n));
  for (uint32_t i = 0; parts->n == all->n && i < parts->n; i++) {
    if (find(w->memo, i, w->mach[i])) continue;
    Known k = {i, w->mach[i], all->at[i], parts->kernel[i], parts};
    vec_push(a, &w->memo->all, k);
  }
}

bool drv_memo_ptx(Ctx *cx, DrvMemo *memo, const Module *m, const char *prefix,
                  Buf *out, CgKernels *all) {
  Work w = {.cx = cx, .memo = memo, .m = m, .prefix = prefix};
  look_up(&w);
  const CgPtx *rest = w.n ? make_rest(&w, all) : NULL;
  if (w.n && !rest) return false;
  if (rest && fill(&w, rest, out)) {
    remember(&w, out, all);
    return true;
  }
  *all = (CgKernels){0};
  if (!cg_gpu(cx, m, prefix, CG_ASM, out, all)) return false;
  remember(&w, out, all);
  return true;
}
