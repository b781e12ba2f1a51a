// Launch: picks the variant of the code, gets its workspaces, runs its phases.
//
// A phase's tasks are handed out in chunks to the lanes of a parallel-for. Each
// lane has a list of chunks, the same ones in each call of the same size, and
// when that is done it takes from those of others. A task writes its own
// results only, so neither the chunks nor the number of lanes can change them.
//
// Phases that follow are done within the same parallel-for, as long as few
// lanes had to wait for the end of the one before: that costs less than waking
// threads again.
#include "rt.h"

#include <stdio.h>
#include <string.h>

#define WAIT_NS 50000  // what waking the threads once more would take

enum { MOST_LISTS = 64, MOST_TOGETHER = 8, STARTS = 16 };

typedef struct Phase {
  attn_kernel *kernel;
  attn_kargs args;
  int64_t chunk, nchunks;  // tasks of a chunk
  atomic_llong undone;     // tasks
  atomic_int open;         // what lanes do behind it, or 0: not known yet
  int nlists;
  atomic_int taken[MOST_LISTS];  // chunks of each list
} Phase;

// What lanes do behind a phase: the next one too, or they return.
enum { GO_ON = 1, RETURN };

typedef struct Together {  // phases of one parallel-for
  attn_ctx *cx;
  Phase *phase;
  uint32_t n;
  size_t scratch;
  int lanes;
  atomic_int gone;  // lanes that waited long
} Together;

static bool take(Phase *ph, int *list, int64_t *chunk) {
  for (int i = 0; i < ph->nlists; i++) {
    int at = (*list + i) % ph->nlists;
    int64_t n = (ph->nchunks - at + ph->nlists - 1) / ph->nlists;
    if (atomic_load(&ph->taken[at]) >= n) continue;
    int64_t k = atomic_fetch_add(&ph->taken[at], 1);
    if (k >= n) continue;
    *list = at;
    *chunk = k * ph->nlists + at;
    return true;
  }
  return false;
}

static void run_tasks(Together *t, Phase *ph, int64_t lane, void *scratch) {
  int list = (int)(lane % ph->nlists);
  int64_t n = ph->args.ntasks, chunk, done = 0;
  while (take(ph, &list, &chunk)) {
    int64_t i = chunk * ph->chunk;
    int64_t end = n - i < ph->chunk ? n : i + ph->chunk;
    ph->kernel(&ph->args, i, end, scratch);
    done += end - i;
  }
  if (!done || atomic_fetch_sub(&ph->undone, done) != done) return;
  enum { FEW = 4 };
  bool few = atomic_load(&t->gone) * FEW <= t->lanes;
  atomic_store(&ph->open, few ? GO_ON : RETURN);
}

// Are all tasks of the phase done, and the next phase's to be begun?
static bool goes_on(Together *t, Phase *ph) {
  int64_t end = rt_now_ns() + WAIT_NS;
  int open;
  while (!(open = atomic_load(&ph->open)) && rt_now_ns() < end) rt_cpu_pause();
  if (!open) atomic_fetch_add(&t->gone, 1);
  return open == GO_ON;
}

static void run_lane(void *arg, int64_t lane) {
  Together *t = arg;
  if (atomic_load(&t->phase[t->n - 1].open)) return;
  Buffer *b = t->scratch ? rt_buffer_get(t->cx, t->scratch, lane) : NULL;
  if (t->scratch && !b) return;  // the other lanes do this one's work
  uint64_t fp = rt_fp_enter();
  for (uint32_t i = 0; i < t->n; i++) {
    if (i && !goes_on(t, &t->phase[i - 1])) break;
    run_tasks(t, &t->phase[i], lane, b ? b->p : NULL);
  }
  rt_fp_leave(fp);
  rt_buffer_put(t->cx, b, lane);
}

static int64_t count(attn_count *f, const attn_kargs *a) {
  return f ? f(a) : 0;
}

// *lanes: those of the phase. False: the numbers are too large.
static bool phase_init(const attn_phase *d, const attn_kargs *base, Phase *ph,
                       int *lanes, size_t *scratch) {
  attn_kargs probe = *base;
  probe.shared = NULL;
  int64_t n = count(d->ntasks, &probe);
  int64_t bytes = n > 0 ? count(d->scratch_bytes, &probe) : 0;
  if (n < 0 || bytes < 0) return false;
  if (n < *lanes) *lanes = (int)n;
  *scratch = (size_t)bytes;
  *ph = (Phase){.kernel = d->kernel, .args = *base, .undone = n};
  ph->args.ntasks = n;
  ph->chunk = *lanes > 1 ? n / (*lanes * STARTS) : n;
  if (ph->chunk < 1) ph->chunk = 1;
  ph->nchunks = n / ph->chunk + (n % ph->chunk != 0);
  ph->nlists = *lanes < MOST_LISTS ? *lanes : MOST_LISTS;
  return true;
}

static int too_large(attn_error *err) {
  return rt_fail(err, ATTN_E_MEMORY, "the problem is too large");
}

// Phases *at .. , as many as are done together; *at: the first that is not.
static int run_phases(attn_ctx *cx, const attn_spec *s, const attn_kargs *a,
                      uint32_t *at, attn_error *err) {
  Phase phase[MOST_TOGETHER];
  uint32_t number[MOST_TOGETHER];
  Together t = {.cx = cx, .phase = phase};
  uint32_t end = *at;
  for (; end < s->nphases && t.n < MOST_TOGETHER; end++) {
    int lanes = attn_ctx_threads(cx);
    size_t scratch;
    if (!phase_init(&s->phases[end], a, &phase[t.n], &lanes, &scratch))
      return too_large(err);
    if (!lanes) continue;
    if (t.n && lanes > t.lanes) break;
    if (!t.n) t.lanes = lanes;
    if (scratch > t.scratch) t.scratch = scratch;
    number[t.n++] = end;
  }
  if (t.n) cx->opt.parallel_for(cx->opt.parallel_user, t.lanes, run_lane, &t);
  for (uint32_t i = 0; i < t.n; i++) {
    if (!atomic_load(&phase[i].undone)) continue;
    if (!i)
      return rt_fail(err, ATTN_E_MEMORY, "no memory for %lld bytes of scratch",
                     (long long)t.scratch);
    end = number[i];
    break;
  }
  *at = end;
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
  const void *args;  // that the above is of, or NULL
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
  *b = rt_buffer_get(cx, (size_t)bytes, RT_NO_LANE);
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
  for (uint32_t i = 0; !rc && i < s->nphases;)
    rc = run_phases(cx, s, &a, &i, err);
  rt_buffer_put(cx, b, RT_NO_LANE);
  return rc ? rc : rt_ok(err);
}

static int run_device(attn_ctx *cx, const attn_stream *stream, const Request *r,
                      const Solved *v, attn_error *err) {
  GpuCall c = {.solved = v,
               .scalars = r->scalars,
               .given = given(r->prog, r->scalars),
               .workspace = r->workspace,
               .workspace_bytes = r->workspace_bytes,
               .stream = stream->handle,
               .args = r->args,
               .nargs = r->args ? r->prog->args_size : 0};
  return rt_gpu_launch(cx, stream->kind, stream->device, r->prog, &c, err);
}

static int again(attn_ctx *cx, const attn_stream *at, const Request *r,
                 attn_error *err) {
  if (!cx || at->kind == ATTN_CPU || !r->args) return RT_NOT_KEPT;
  GpuCall c = {.workspace = r->workspace,
               .stream = at->handle,
               .args = r->args,
               .nargs = r->prog->args_size};
  return rt_gpu_again(cx, at->kind, at->device, r->prog, &c, err);
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
  attn_ctx *cx = at.ctx ? at.ctx : attn_ctx_default();
  int done = rc ? RT_NOT_KEPT : again(cx, &at, r, err);
  if (done != RT_NOT_KEPT) return done;
  if (!rc) rc = rt_solve(r->prog, r->tensors, r->scalars, device, &v, err);
  if (!rc) rc = rt_overlap(r->prog, v.tensors, err);
  if (rc) return rc;
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
               .workspace_bytes = a->workspace_bytes,
               .args = args};
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
