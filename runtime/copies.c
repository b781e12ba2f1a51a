// Tensors that a variant's maps cannot be made of, as copies in workspace:
// where no variant takes a call's tensors as they lie, one that allows it
// (ATTN_GPU_COPIES) runs between copies of the tensors that it has maps of.
//   X bf16[S, 100], stride 100     copy X      to workspace, stride 104
//                                  phases      with the copies' places, strides
//   Y bf16[S, 100], inout          copy Y      from workspace
// Copies lie in the order of the map's axes, rows at multiples of 16 bytes; the
// variant's own workspace is behind them.
#include "gpu.h"

#include "copies_ptx.h"

#include <string.h>

enum {
  PLACE = 256,    // bytes: copies begin at multiples
  THREADS = 256,  // of a group
  PER_UNIT = 8,   // groups of a multiprocessor
  LANES = 32,     // of a warp
  SECTOR = 32,    // bytes
};

// The kernel's parameter (copies_ptx.h). Strides are bytes, the innermost axis
// first.
typedef struct CopyBlock {
  _Alignas(64) uint64_t n;  // rows
  uint64_t from, to;
  uint16_t size, shift;  // of an element; 1 << shift threads have a row
  uint32_t rank;
  uint32_t extent[ATTN_MAX_RANK];
  int64_t source[ATTN_MAX_RANK], target[ATTN_MAX_RANK];
} CopyBlock;

// ---- which, and where

static bool is_empty(const attn_tensor *t) {
  bool empty = !t->data || t->data == (const void *)rt_zero;
  for (int k = 0; k < t->rank; k++) empty |= t->shape[k] == 0;
  return empty;
}

// Whether any driver makes map r of t.
static bool is_plain(const attn_gpu_map *r, const attn_tensor *t) {
  int64_t size = (int64_t)attn_dtype_size(t->dtype);
  bool plain = (uintptr_t)t->data % ATTN_MAP_ROW == 0;
  for (uint32_t i = 0; i < r->rank; i++) {
    int64_t stride = t->stride[r->axis[i]];
    if (t->shape[r->axis[i]] <= 1) continue;
    plain &= i ? stride >= 0 && stride * size % ATTN_MAP_ROW == 0 : stride == 1;
  }
  return plain;
}

// The strides of t's copy; its bytes, 0: too many.
static uint64_t lay_out(const attn_gpu_map *r, attn_tensor *t) {
  uint64_t size = attn_dtype_size(t->dtype), most = (uint64_t)1 << 46;
  uint64_t n = (uint64_t)t->shape[r->axis[0]] * size;
  t->stride[r->axis[0]] = 1;
  n = (n + ATTN_MAP_ROW - 1) / ATTN_MAP_ROW * ATTN_MAP_ROW;
  for (uint32_t i = 1; i < r->rank; i++) {
    uint64_t extent = (uint64_t)t->shape[r->axis[i]];
    t->stride[r->axis[i]] = (int64_t)(n / size);
    if (extent > most / n) return 0;
    n *= extent;
  }
  return n;
}

static bool add(Copies *c, const attn_gpu_map *r, char *workspace) {
  const attn_tensor *t = c->solved.tensors[r->tensor];
  attn_tensor *copy = &c->dense[r->tensor];
  if (t->rank != r->rank || is_empty(t) || is_plain(r, t)) return true;
  *copy = *t;
  uint64_t n = lay_out(r, copy);
  copy->data = workspace + c->bytes;
  c->of[c->n++] = (Copy){r->tensor, r, t};
  c->solved.tensors[r->tensor] = copy;
  c->bytes += (n + PLACE - 1) / PLACE * PLACE;
  return n > 0;
}

bool rt_copies_plan(const GpuVariant *v, const Solved *s, char *workspace,
                    Copies *out) {
  const Kernels *k = v->records;
  const attn_gpu_phase *p = &k->phases[v->rec->phase];
  if (!(p->flags & ATTN_GPU_COPIES)) return false;
  out->solved = *s;
  out->solved.env.tensors = out->solved.tensors;
  out->solved.env.dims = out->solved.dims;
  out->solved.env.known = out->solved.known;
  out->n = 0;
  out->bytes = 0;
  for (uint32_t i = 0; i < v->rec->nphases; i++)
    for (uint32_t m = 0; m < p[i].nmaps; m++) {
      const attn_gpu_map *r = &k->maps[p[i].map + m];
      if (r->tensor < s->env.ntensors && !add(out, r, workspace)) return false;
    }
  return out->n > 0;
}

// ---- copying

int rt_copies_ready(Copies *c, Gpu *g, GpuDevice *d, attn_error *err) {
  static const attn_gpu_phase kernel = {.threads = THREADS,
                                        .flags = ATTN_GPU_LOCAL,
                                        .block_bytes = sizeof(CopyBlock)};
  c->gpu = g;
  c->dev = d;
  pthread_mutex_lock(&g->lock);
  int rc = d->copies ? ATTN_OK
                     : g->driver->load(g->state, copies_ptx, sizeof copies_ptx,
                                       true, &d->copies, err);
  if (!rc && !d->copy.handle)
    rc = g->driver->function(g->state, d->copies, "attn_copy", &kernel,
                             &d->copy, err);
  pthread_mutex_unlock(&g->lock);
  return rc;
}

// Threads of a row, as a power of two: few, so that each has four elements to
// be on their way, but what they touch at once is no less than a sector.
static uint16_t threads_of(uint32_t width, uint32_t size) {
  uint16_t n = 0;
  while (1u << n < LANES && 1u << n < width &&
         (4u << n < width || size << n < SECTOR))
    n++;
  return n;
}

static CopyBlock block_of(const attn_gpu_map *r, const attn_tensor *from,
                          const attn_tensor *to) {
  int64_t size = (int64_t)attn_dtype_size(from->dtype);
  CopyBlock b = {.n = 1,
                 .from = (uintptr_t)from->data,
                 .to = (uintptr_t)to->data,
                 .size = (uint16_t)size,
                 .rank = r->rank};
  for (uint32_t i = 0; i < r->rank; i++) {
    uint32_t k = r->axis[i];
    b.extent[i] = (uint32_t)from->shape[k];
    if (i) b.n *= b.extent[i];
    b.source[i] = from->stride[k] * size;
    b.target[i] = to->stride[k] * size;
  }
  b.shift = threads_of(b.extent[0], b.size);
  return b;
}

static int copy(Gpu *g, GpuDevice *d, CopyBlock *b, void *stream,
                attn_error *err) {
  uint64_t rows = THREADS >> b->shift;  // of a group at once
  uint64_t groups = (b->n + rows - 1) / rows;
  uint64_t most = (uint64_t)d->units * PER_UNIT;
  GpuLaunch l = {.func = d->copy,
                 .groups = (uint32_t)(groups < most ? groups : most),
                 .threads = THREADS,
                 .block = b,
                 .block_bytes = sizeof *b};
  return g->driver->launch(g->state, &l, stream, err);
}

int rt_copies_run(const Copies *c, const attn_program *p, bool back,
                  void *stream, attn_error *err) {
  int rc = ATTN_OK;
  uint32_t nt = 0;
  for (uint32_t i = 0; i < p->nparams && !rc; i++) {
    uint32_t kind = p->params[i].kind;
    if (kind == ATTN_PARAM_SCALAR) continue;
    bool wanted = kind != (back ? ATTN_PARAM_IN : ATTN_PARAM_OUT);
    for (uint32_t k = 0; k < c->n && !rc; k++) {
      if (c->of[k].tensor != nt || !wanted) continue;
      const attn_tensor *own = c->of[k].own, *dense = &c->dense[nt];
      CopyBlock b = back ? block_of(c->of[k].map, dense, own)
                         : block_of(c->of[k].map, own, dense);
      rc = copy(c->gpu, c->dev, &b, stream, err);
    }
    nt++;
  }
  return rc;
}
