// Kernels of a call, launched; and again where a call comes with the arguments
// of an earlier one, byte for byte. Its dims, its variant, its blocks depend on
// nothing else: they are kept with the arguments, a few calls of each program,
// so that what a layer of a model does in each step is solved once.
//
// A kept call is taken by whoever launches it, and put back: another thread
// finds none meanwhile, and solves its own.
#include "gpu.h"

#include <string.h>

struct Again {
  size_t room;  // bytes behind this
  const char *args;
  size_t nargs;
  GpuVariant *v;
  Ready phase[ATTN_MAX_PHASES];
  _Alignas(64) char at[];  // blocks, then the arguments
};

// ---- launches

static int counter(Gpu *g, GpuDevice *d, void *stream, uint64_t *out,
                   attn_error *err) {
  bool graph = g->driver->capturing(g->state, stream);
  // A graph may run at any later time, so its counters are never shared.
  uint32_t i = atomic_fetch_add(graph ? &d->graph : &d->turn, 1);
  if (graph && i >= GPU_COUNTERS) {
    atomic_fetch_sub(&d->graph, 1);
    return rt_fail(err, ATTN_E_MEMORY, "more than %d launches in graphs",
                   GPU_COUNTERS);
  }
  i = i % GPU_COUNTERS + (graph ? GPU_COUNTERS : 0);
  *out = (uintptr_t)(d->counters + (size_t)4 * i);
  return ATTN_OK;
}

// Groups of threads of a kernel that walks its tasks.
static int64_t most_groups(const Site *s, uint32_t i) {
  int64_t units = s->dev->units, asked = attn_ctx_units(s->cx);
  if (asked && asked < units) units = asked;
  return s->v->func[i].per_unit * units;
}

static void put_tail(const Ready *r, void *workspace, uint64_t counter) {
  uint64_t w[GPU_TAIL] = {(uint64_t)r->ntasks, (uintptr_t)workspace, counter};
  memcpy(r->block + r->tail, w, sizeof w);
}

// behind: a phase of this call is in front of it.
static int run_phase(const Site *s, uint32_t i, const Ready *r, bool behind,
                     attn_error *err) {
  const attn_gpu_phase *p = &s->v->records->phases[s->v->rec->phase + i];
  uint64_t at = 0;
  int64_t most = most_groups(s, i), groups = r->ntasks;
  int rc = p->flags & ATTN_GPU_COUNTER
               ? counter(s->g, s->dev, s->call->stream, &at, err)
               : ATTN_OK;
  if (rc) return rc;
  if (p->ctas == ATTN_CTAS_PERSISTENT && groups > most) groups = most;
  put_tail(r, s->call->workspace, at);
  GpuLaunch l = {s->v->func[i],
                 (uint32_t)groups,
                 p->threads,
                 p->shared_bytes,
                 r->block,
                 p->block_bytes,
                 behind && p->flags & ATTN_GPU_WAITS};
  return s->g->driver->launch(s->g->state, &l, s->call->stream, err);
}

int rt_phases_run(const Site *s, const Ready *r, attn_error *err) {
  bool behind = false;
  int rc = ATTN_OK;
  for (uint32_t i = 0; !rc && i < s->v->rec->nphases; i++) {
    if (!r[i].ntasks) continue;
    rc = run_phase(s, i, &r[i], behind, err);
    behind = true;
  }
  return rc;
}

// ---- kept calls

enum { WAYS = 4 };  // places where a call may be kept

// Never 0.
static unsigned tag_of(const GpuCall *c) {
  uint64_t h = c->nargs;
  for (size_t i = 0; i + sizeof h <= c->nargs; i += sizeof h) {
    uint64_t x;
    memcpy(&x, (const char *)c->args + i, sizeof x);
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
  }
  return (unsigned)(h >> 32) | 1;
}

static KeptCall *ways_of(GpuProgram *p, unsigned tag) {
  return &p->again[tag / 2 % (GPU_AGAIN / WAYS) * WAYS];
}

// An empty place, or that of a call that was there.
static KeptCall *room_for(GpuProgram *p, unsigned tag) {
  KeptCall *k = ways_of(p, tag);
  for (uint32_t i = 0; i < WAYS; i++)
    if (!atomic_load(&k[i].tag)) return &k[i];
  return &k[atomic_fetch_add(&p->kept, 1) % WAYS];
}

static void drop(attn_ctx *cx, Again *a) {
  if (a) rt_free(cx, a, sizeof *a + a->room);
}

static void put_back(attn_ctx *cx, KeptCall *k, Again *a) {
  drop(cx, atomic_exchange(&k->call, a));
}

static Again *with_room(attn_ctx *cx, Again *a, size_t room) {
  if (a && a->room >= room) return a;
  drop(cx, a);
  a = rt_alloc(cx, sizeof *a + room);
  if (a) a->room = room;
  return a;
}

void rt_again_keep(const Site *s, GpuProgram *p, const Ready *r) {
  attn_ctx *cx = s->cx;
  const GpuCall *c = s->call;
  const attn_gpu_phase *ph = &s->v->records->phases[s->v->rec->phase];
  uint32_t n = s->v->rec->nphases;
  size_t room = c->nargs;
  if (!c->args) return;
  unsigned tag = tag_of(c);
  KeptCall *to = room_for(p, tag);
  for (uint32_t k = 0; k < n; k++) room += ph[k].block_bytes;
  Again *a = with_room(cx, atomic_exchange(&to->call, NULL), room);
  if (!a) return;
  char *at = a->at;
  for (uint32_t k = 0; k < n; k++) {
    a->phase[k] = (Ready){at, r[k].tail, r[k].ntasks};
    if (!r[k].ntasks) continue;
    memcpy(at, r[k].block, ph[k].block_bytes);
    at += ph[k].block_bytes;  // a multiple of 64
  }
  memcpy(at, c->args, c->nargs);
  a->nargs = c->nargs;
  a->v = s->v;
  a->args = at;
  atomic_store(&to->tag, tag);
  put_back(cx, to, a);
}

static bool is_of(const Again *a, const GpuCall *c) {
  return a && a->nargs == c->nargs && !memcmp(a->args, c->args, c->nargs);
}

int rt_again_run(Site *s, GpuProgram *p, attn_error *err) {
  unsigned tag = tag_of(s->call);
  KeptCall *k = ways_of(p, tag);
  int rc = RT_NOT_KEPT;
  for (uint32_t i = 0; i < WAYS && rc == RT_NOT_KEPT; i++, k++) {
    if (atomic_load(&k->tag) != tag) continue;
    Again *a = atomic_exchange(&k->call, NULL);
    if (is_of(a, s->call)) {
      s->v = a->v;
      rc = rt_phases_run(s, a->phase, err);
    }
    if (a) put_back(s->cx, k, a);
  }
  return rc ? rc : rt_ok(err);
}

void rt_again_free(attn_ctx *cx, GpuProgram *p) {
  for (uint32_t i = 0; i < GPU_AGAIN; i++) put_back(cx, &p->again[i], NULL);
}
