// Launch: picks the variant of the code, gets its workspaces, runs its phases.
//
// A phase's tasks are handed out in chunks from one atomic counter to the
// lanes of a parallel-for. A task writes its own results only, so neither the
// chunks nor the number of lanes can change them.
#include "rt.h"

#include <stdio.h>
#include <string.h>

typedef struct Phase {
  attn_ctx *cx;
  attn_kernel *kernel;
  const attn_kargs *args;
  int64_t chunk;
  size_t scratch;
  atomic_llong next;  // first task not handed out
} Phase;

static void run_lane(void *arg, int64_t lane) {
  Phase *ph = arg;
  int64_t n = ph->args->ntasks, i;
  (void)lane;
  if (atomic_load(&ph->next) >= n) return;
  Buffer *b = ph->scratch ? rt_buffer_get(ph->cx, ph->scratch) : NULL;
  if (ph->scratch && !b) return;  // the other lanes do this one's work
  uint64_t fp = rt_fp_enter();
  while ((i = atomic_fetch_add(&ph->next, ph->chunk)) < n)
    ph->kernel(ph->args, i, n - i < ph->chunk ? n : i + ph->chunk,
               b ? b->p : NULL);
  rt_fp_leave(fp);
  rt_buffer_put(ph->cx, b);
}

static int64_t count(attn_count *f, const attn_kargs *a) {
  return f ? f(a) : 0;
}

static int run_phase(attn_ctx *cx, const attn_phase *d, const attn_kargs *base,
                     attn_error *err) {
  attn_kargs probe = *base;
  probe.shared = NULL;
  attn_kargs a = *base;
  a.ntasks = count(d->ntasks, &probe);
  int64_t scratch = a.ntasks > 0 ? count(d->scratch_bytes, &probe) : 0;
  if (a.ntasks < 0 || scratch < 0)
    return rt_fail(err, ATTN_E_MEMORY, "the problem is too large");
  if (a.ntasks == 0) return ATTN_OK;
  int64_t lanes = attn_ctx_threads(cx);
  lanes = lanes < a.ntasks ? lanes : a.ntasks;
  int64_t chunk = lanes > 1 ? a.ntasks / (lanes * 16) : a.ntasks;
  Phase ph = {.cx = cx,
              .kernel = d->kernel,
              .args = &a,
              .chunk = chunk < 1 ? 1 : chunk,
              .scratch = (size_t)scratch};
  cx->opt.parallel_for(cx->opt.parallel_user, lanes, run_lane, &ph);
  if (atomic_load(&ph.next) < a.ntasks)
    return rt_fail(err, ATTN_E_MEMORY, "no memory for %lld bytes of scratch",
                   (long long)scratch);
  return ATTN_OK;
}

// ---- choice of the variant

// 0: the level is not used.
static int rank_of(const attn_ctx *cx, const attn_spec *s) {
  int isa = (int)s->isa;
  return isa >> 8 == cx->isa >> 8 && isa <= cx->isa ? cx->rank[isa & 0xff] : 0;
}

static const attn_spec *pick(const attn_program *p, const Env *env,
                             const attn_ctx *cx) {
  const attn_spec *best = NULL;
  for (uint32_t i = 0; i < p->nspecs; i++) {
    const attn_spec *s = &p->specs[i];
    int64_t holds = 1;
    int rank = rank_of(cx, s);
    if (!rank || (best && rank <= rank_of(cx, best))) continue;
    if (s->when != ATTN_NONE &&
        (rt_expr_eval(env, s->when, &holds) != EX_OK || !holds))
      continue;
    best = s;
  }
  return best;
}

static int no_variant(const attn_program *p, const attn_ctx *cx,
                      attn_error *err) {
  for (uint32_t i = 0; i < p->nspecs; i++)
    if (rank_of(cx, &p->specs[i]))
      return rt_fail(err, ATTN_E_UNSUPPORTED,
                     "%s has no code for these dims and strides", p->name);
  return rt_fail(err, ATTN_E_UNSUPPORTED, "%s has no code for this CPU",
                 p->name);
}

// ---- one launch

typedef struct Request {
  const attn_program *prog;
  attn_tensor *const *tensors;
  const attn_scalar *scalars;
  void *workspace;  // NULL: from the context
  uint64_t workspace_bytes;
} Request;

// Shared workspace: the caller's if given, else one of the context's buffers.
static int get_shared(attn_ctx *cx, const Request *r, int64_t bytes,
                      attn_kargs *a, Buffer **b, attn_error *err) {
  *b = NULL;
  if (bytes < 0) return rt_fail(err, ATTN_E_MEMORY, "the problem is too large");
  if (bytes == 0) return ATTN_OK;
  if (r->workspace) {
    if (r->workspace_bytes < (uint64_t)bytes)
      return rt_fail_at(err, ATTN_E_MEMORY,
                        (Where){-1, -1, bytes, (int64_t)r->workspace_bytes},
                        "the workspace has %llu bytes, expected %lld",
                        (unsigned long long)r->workspace_bytes,
                        (long long)bytes);
    if ((uintptr_t)r->workspace % ATTN_ALIGN)
      return rt_fail(err, ATTN_E_ALIGN,
                     "the workspace is not aligned to %d bytes", ATTN_ALIGN);
    a->shared = r->workspace;
    return ATTN_OK;
  }
  *b = rt_buffer_get(cx, (size_t)bytes);
  if (!*b)
    return rt_fail(err, ATTN_E_MEMORY, "no memory for %lld bytes of workspace",
                   (long long)bytes);
  a->shared = (*b)->p;
  return ATTN_OK;
}

static size_t scalar_size(int dtype) {
  bool narrow = dtype > ATTN_F64 && dtype < ATTN_I64;  // a float field
  return narrow ? sizeof(float) : 8;
}

// Bit i: scalar i does not hold the mark of a default that the kernel computes.
static uint64_t given(const attn_program *p, const attn_scalar *scalars) {
  uint64_t bits = 0;
  uint32_t ns = 0;
  for (uint32_t i = 0; i < p->nparams; i++) {
    const attn_param_desc *d = &p->params[i];
    if (d->kind != ATTN_PARAM_SCALAR) continue;
    bool unset = (d->flags & ATTN_PARAM_COMPUTED) &&
                 !memcmp(&scalars[ns], &d->def, scalar_size(d->dtype));
    bits |= (uint64_t)!unset << ns++;
  }
  return bits;
}

static int run_spec(attn_ctx *cx, const attn_spec *s, const Request *r,
                    const Solved *v, attn_error *err) {
  attn_kargs a = {.tensors = v->tensors,
                  .scalars = r->scalars,
                  .dims = v->dims,
                  .given = given(r->prog, r->scalars)};
  Buffer *b;
  int rc = get_shared(cx, r, count(s->shared_bytes, &a), &a, &b, err);
  for (uint32_t i = 0; !rc && i < s->nphases; i++)
    rc = run_phase(cx, &s->phases[i], &a, err);
  rt_buffer_put(cx, b);
  return rc ? rc : rt_ok(err);
}

static int run_device(attn_ctx *cx, const attn_stream *stream, const Request *r,
                      const Solved *v, attn_error *err) {
  GpuCall c = {.solved = v,
               .scalars = r->scalars,
               .given = given(r->prog, r->scalars),
               .workspace = r->workspace,
               .workspace_bytes = r->workspace_bytes,
               .stream = stream->handle};
  return rt_gpu_launch(cx, stream->kind, stream->device, r->prog, &c, err);
}

// ---- ATTN_AUTO

int attn_stream_of(attn_ctx *ctx, const void *data, attn_stream *out,
                   attn_error *err) {
  attn_ctx *cx = ctx ? ctx : attn_ctx_default();
  attn_stream s = {.ctx = ctx};
  if (!cx || !out)
    return rt_fail(err, cx ? ATTN_E_ARGUMENT : ATTN_E_MEMORY,
                   cx ? "no stream" : "no memory for a context");
  int rc = rt_gpu_where(cx, data, &s.kind, &s.device, err);
  if (!rc) *out = s;
  return rc;
}

static const char *device_text(const attn_stream *s, char *buf, size_t n) {
  static const char *const names[] = {"the CPU", "CUDA device", "HIP device"};
  if (s->kind == ATTN_CPU) return names[0];
  snprintf(buf, n, "%s %d", names[s->kind], s->device);
  return buf;
}

static int apart(const attn_program *p, uint32_t i, uint32_t first,
                 const attn_stream *a, const attn_stream *b, attn_error *err) {
  char at[40], other[40];
  return rt_fail_at(err, ATTN_E_DEVICE, (Where){(int)i, -1, 0, 0},
                    "argument '%s' is in memory of %s, '%s' of %s",
                    p->params[i].name, device_text(a, at, sizeof at),
                    p->params[first].name, device_text(b, other, sizeof other));
}

// Where all tensors with data are; the CPU if none has any.
static int locate(const Request *r, attn_stream *s, attn_error *err) {
  attn_stream where = {.ctx = s->ctx}, x;
  uint32_t nt = 0, first = ATTN_NONE;
  uint32_t n = r->prog && r->tensors ? r->prog->nparams : 0;
  for (uint32_t i = 0; i < n; i++) {
    if (r->prog->params[i].kind == ATTN_PARAM_SCALAR) continue;
    const attn_tensor *t = r->tensors[nt++];
    if (!t || !t->data) continue;
    int rc = attn_stream_of(s->ctx, t->data, &x, err);
    if (rc) return rc;
    if (first == ATTN_NONE) {
      where = x;
      first = i;
    } else if (x.kind != where.kind || x.device != where.device) {
      return apart(r->prog, i, first, &x, &where, err);
    }
  }
  where.handle = s->handle;
  *s = where;
  return ATTN_OK;
}

static int launch(const Request *r, const attn_stream *given, attn_error *err) {
  Solved v;
  attn_stream cpu = {.kind = ATTN_CPU}, at = given ? *given : cpu;
  int rc = at.kind == ATTN_AUTO ? locate(r, &at, err) : ATTN_OK;
  bool device = at.kind != ATTN_CPU;
  if (!rc) rc = rt_solve(r->prog, r->tensors, r->scalars, device, &v, err);
  if (!rc) rc = rt_overlap(r->prog, v.tensors, err);
  if (rc) return rc;
  attn_ctx *cx = at.ctx ? at.ctx : attn_ctx_default();
  if (!cx) return rt_fail(err, ATTN_E_MEMORY, "no memory for a context");
  if (device) return run_device(cx, &at, r, &v, err);
  const attn_spec *s = pick(r->prog, &v.env, cx);
  return s ? run_spec(cx, s, r, &v, err) : no_variant(r->prog, cx, err);
}

int attn_launch(const attn_program *prog, attn_tensor *const *tensors,
                const attn_scalar *scalars, attn_stream *stream,
                attn_error *err) {
  Request r = {.prog = prog, .tensors = tensors, .scalars = scalars};
  return launch(&r, stream, err);
}

int attn_solve(const attn_program *prog, attn_tensor *const *tensors,
               const attn_scalar *scalars, int64_t *dims, attn_error *err) {
  Solved v;
  int rc = rt_solve(prog, tensors, scalars, false, &v, err);
  if (rc) return rc;
  memcpy(dims, v.dims, prog->ndims * sizeof *dims);
  return rt_ok(err);
}

// ---- argument structs

attn_tensor attn_tensor_dense(void *data, int dtype, int rank,
                              const int64_t *shape) {
  attn_tensor t = {.data = data, .rank = rank, .dtype = dtype};
  bool fits = rank >= 0 && rank <= ATTN_MAX_RANK && shape;
  int64_t stride = 1;
  if (!fits && rank) t.rank = -1;  // the rank of no parameter
  for (int i = fits ? rank : 0; i-- > 0;) {
    t.shape[i] = shape[i];
    t.stride[i] = stride;
    if (__builtin_mul_overflow(stride, shape[i] > 0 ? shape[i] : 1, &stride))
      stride = INT64_MAX;  // refused at the launch
  }
  return t;
}

typedef struct Unpacked {
  attn_tensor *tensors[ATTN_MAX_PARAMS];
  attn_scalar scalars[ATTN_MAX_PARAMS];
} Unpacked;

static int unpack(const attn_program *p, const void *args, Unpacked *u,
                  attn_error *err) {
  const attn_args *a = args;
  if (!p || !a) return rt_fail(err, ATTN_E_ARGUMENT, "no arguments");
  if (a->abi >> 16 != ATTN_ABI_MAJOR || a->size != p->args_size ||
      p->nparams > ATTN_MAX_PARAMS)
    return rt_fail(err, ATTN_E_ABI,
                   "%s: the arguments were not set up by its args_init, or "
                   "its header is of another version",
                   p->name);
  // A launch reads the structs only; the public type has no const variant.
  char *base = (char *)(uintptr_t)args;
  uint32_t nt = 0, ns = 0;
  for (uint32_t i = 0; i < p->nparams; i++) {
    const attn_param_desc *d = &p->params[i];
    if (d->kind == ATTN_PARAM_SCALAR)
      memcpy(&u->scalars[ns++], base + d->offset, scalar_size(d->dtype));
    else u->tensors[nt++] = (attn_tensor *)(void *)(base + d->offset);
  }
  return ATTN_OK;
}

int attn_call(const attn_program *prog, const void *args, attn_stream *stream,
              attn_error *err) {
  Unpacked u = {0};
  int rc = unpack(prog, args, &u, err);
  if (rc) return rc;
  const attn_args *a = args;
  Request r = {.prog = prog,
               .tensors = u.tensors,
               .scalars = u.scalars,
               .workspace = a->workspace,
               .workspace_bytes = a->workspace_bytes};
  return launch(&r, stream, err);
}

void attn_args_init(const attn_program *prog, void *args) {
  memset(args, 0, prog->args_size);
  attn_args head = {.size = prog->args_size, .abi = ATTN_ABI};
  memcpy(args, &head, sizeof head);
  for (uint32_t i = 0; i < prog->nparams; i++) {
    const attn_param_desc *d = &prog->params[i];
    if (d->kind == ATTN_PARAM_SCALAR)
      memcpy((char *)args + d->offset, &d->def, scalar_size(d->dtype));
  }
}

size_t attn_args_workspace(const attn_program *prog, const void *args) {
  Unpacked u = {0};
  Solved v;
  attn_ctx *cx = attn_ctx_default();
  if (!cx || unpack(prog, args, &u, NULL) ||
      rt_solve(prog, u.tensors, u.scalars, rt_gpu_code(prog), &v, NULL))
    return 0;
  const attn_spec *s = pick(prog, &v.env, cx);
  attn_kargs a = {.tensors = v.tensors, .scalars = u.scalars, .dims = v.dims};
  int64_t n = s ? count(s->shared_bytes, &a) : 0;
  int64_t gpu = rt_gpu_workspace(cx, prog, &v);
  n = gpu > n ? gpu : n;
  return n > 0 ? (size_t)n : 0;
}
