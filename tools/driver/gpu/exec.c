// Running a program on a GPU: arrays to the device, a launch by libattn on a
// stream of our own, results back.
#include "tools/driver/gpu/exec.h"

#include "tools/driver/gpu/gpu.h"

#include <stdlib.h>

struct OnGpu {
  DrvGpu gpu;
  void *data[ATTN_MAX_PARAMS];  // of the tensors
  size_t bytes[ATTN_MAX_PARAMS];
  uint32_t n;
  char *args;  // S_P_args of the last launch
  void *workspace;
};

// ---------------------------------------------------------------- devices
// 0x942: version 94, 0x1100: 110; steppings are the runtime's matter.
static int version_of(uint32_t gfx) {
  uint32_t digits = gfx >> 4;
  return (int)(digits >> 8) * 100 + (int)(digits >> 4 & 15) * 10 +
         (int)(digits & 15);
}

static bool runs(const DrvGpu *g, const Target *t) {
  int cc = (int)t->gpu.cc;
  if (g->amd) return g->version == version_of(t->gpu.cc);
  return t->gpu.hopper ? g->version == cc : g->version >= cc;
}

OnGpu *drv_on_gpu_open(Ctx *cx, const Target *t) {
  OnGpu *g = NEW(&cx->session, OnGpu);
  const char *why = NULL;
  if (!drv_gpu_open(&g->gpu, t->gpu.vendor == VENDOR_AMD, 0))
    why = arena_strdup(&cx->session, g->gpu.error);
  else if (!runs(&g->gpu, t))
    why = arena_printf(&cx->session, "%s is %s", g->gpu.name, g->gpu.arch);
  if (!why) return g;
  diag_add(cx, DIAG_no_device, NOWHERE, t->name, why);
  drv_gpu_close(&g->gpu);
  return NULL;
}

static void drop_data(OnGpu *g) {
  for (uint32_t i = 0; i < g->n; i++) drv_gpu_free(&g->gpu, g->data[i]);
  drv_gpu_free(&g->gpu, g->workspace);
  g->workspace = NULL;
  g->n = 0;
}

void drv_on_gpu_close(OnGpu *g) {
  if (!g) return;
  drop_data(g);
  drv_gpu_close(&g->gpu);
}

static bool failed(DrvCall *c, const char *why) {
  diag_add(c->cx, DIAG_launch, NOWHERE, c->prog->name, why);
  return false;
}

static bool device(DrvCall *c, OnGpu *g, bool ok) {
  return ok || failed(c, g->gpu.error);
}

// ---------------------------------------------------------------- arrays
static size_t bytes_of(const attn_tensor *t) {
  size_t n = attn_dtype_size(t->dtype);
  for (int k = 0; k < t->rank; k++) n *= (size_t)t->shape[k];
  return n;
}

static bool same_sizes(const OnGpu *g, const Packed *p) {
  bool same = g->n == p->n;
  for (uint32_t i = 0; same && i < p->n; i++)
    same = g->bytes[i] == bytes_of(&p->tensors[i]);
  return same;
}

static bool make_room(DrvCall *c, OnGpu *g, const Packed *p) {
  if (same_sizes(g, p)) return true;
  drop_data(g);
  for (uint32_t i = 0; i < p->n; i++) {
    g->bytes[i] = bytes_of(&p->tensors[i]);
    g->data[i] = NULL;
    g->n = i + 1;
    if (p->tensors[i].data &&
        !device(c, g, drv_gpu_alloc(&g->gpu, g->bytes[i], &g->data[i])))
      return false;
  }
  return true;
}

static bool upload(DrvCall *c, OnGpu *g, const Packed *p) {
  for (uint32_t i = 0; i < p->n; i++) {
    if (!g->data[i]) continue;
    bool ok = p->read[i] ? drv_gpu_upload(&g->gpu, g->data[i],
                                          p->tensors[i].data, g->bytes[i])
                         : drv_gpu_poison(&g->gpu, g->data[i], g->bytes[i]);
    if (!device(c, g, ok)) return false;
  }
  return true;
}

static bool download(DrvCall *c, OnGpu *g, const Packed *p) {
  for (uint32_t i = 0; i < p->n; i++)
    if (g->data[i] && p->written[i] &&
        !device(c, g,
                drv_gpu_download(&g->gpu, p->tensors[i].data, g->data[i],
                                 g->bytes[i])))
      return false;
  return true;
}

// ---------------------------------------------------------------- arguments
static void put_args(const OnGpu *g, const attn_program *prog,
                     const Packed *p) {
  uint32_t nt = 0, ns = 0;
  attn_args_init(prog, g->args);
  for (uint32_t i = 0; i < prog->nparams; i++) {
    const attn_param_desc *d = &prog->params[i];
    bool narrow = d->dtype > ATTN_F64 && d->dtype < ATTN_I64;
    if (d->kind == ATTN_PARAM_SCALAR) {
      memcpy(g->args + d->offset, &p->scalars[ns++], narrow ? 4 : 8);
      continue;
    }
    attn_tensor t = p->tensors[nt];
    t.data = g->data[nt++];
    memcpy(g->args + d->offset, &t, sizeof t);
  }
}

static bool add_workspace(DrvCall *c, OnGpu *g, const attn_program *prog) {
  attn_args head;
  memcpy(&head, g->args, sizeof head);
  head.workspace_bytes = attn_args_workspace(prog, g->args);
  drv_gpu_free(&g->gpu, g->workspace);
  g->workspace = NULL;
  if (head.workspace_bytes &&
      !device(c, g,
              drv_gpu_alloc(&g->gpu, head.workspace_bytes, &g->workspace)))
    return false;
  head.workspace = g->workspace;
  memcpy(g->args, &head, sizeof head);
  return true;
}

static bool call(DrvCall *c, OnGpu *g, const attn_program *prog) {
  attn_error e;
  attn_stream s = {.kind = g->gpu.amd ? ATTN_HIP : ATTN_CUDA,
                   .handle = g->gpu.stream};
  return attn_call(prog, g->args, &s, &e) == ATTN_OK || failed(c, e.text);
}

bool drv_on_gpu_launch(DrvCall *c, OnGpu *g, const attn_program *prog,
                       const Packed *p) {
  if (!g->args) g->args = arena_alloc(&c->cx->session, prog->args_size);
  if (!make_room(c, g, p) || !upload(c, g, p)) return false;
  put_args(g, prog, p);
  return add_workspace(c, g, prog) && call(c, g, prog) &&
         device(c, g, drv_gpu_wait(&g->gpu)) && download(c, g, p);
}

bool drv_on_gpu_time(DrvCall *c, OnGpu *g, const attn_program *prog,
                     double *s) {
  return device(c, g, drv_gpu_mark(&g->gpu, 0)) && call(c, g, prog) &&
         device(c, g, drv_gpu_mark(&g->gpu, 1)) &&
         device(c, g, drv_gpu_seconds(&g->gpu, s));
}
