// gpu-run: the launches, what they are compared with, and their times.
#include "tools/gpu-run/run.h"

#include "tools/driver/driver.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct Call {
  attn_tensor tensor[ATTN_MAX_PARAMS], *ptr[ATTN_MAX_PARAMS];
  char args[16384];  // of S_P_args
  void *workspace;
  size_t workspace_bytes;
} Call;

static attn_tensor view(const Array *a, void *data) {
  attn_tensor t = {.data = data, .rank = a->host.rank, .dtype = a->desc->dtype};
  int64_t stride = 1;
  for (int k = a->host.rank - 1; k >= 0; k--) {
    t.shape[k] = a->host.shape[k];
    t.stride[k] = stride;
    stride *= t.shape[k];
  }
  return t;
}

// ---------------------------------------------------------------- launches
static bool put_args(const Run *r, bool device, Call *c) {
  uint32_t nt = 0, ns = 0;
  if (r->prog->args_size > sizeof c->args)
    return run_error("too many parameters");
  attn_args_init(r->prog, c->args);
  for (uint32_t i = 0; i < r->prog->nparams; i++) {
    const attn_param_desc *d = &r->prog->params[i];
    bool narrow = d->dtype > ATTN_F64 && d->dtype < ATTN_I64;
    if (d->kind == ATTN_PARAM_SCALAR) {
      memcpy(c->args + d->offset, &r->scalar[ns++], narrow ? 4 : 8);
      continue;
    }
    const Array *a = &r->array[nt++];
    attn_tensor t = view(a, device ? a->device : a->host.data);
    memcpy(c->args + d->offset, &t, sizeof t);
  }
  return true;
}

static bool launch(Run *r, Call *c, attn_stream *s) {
  attn_error e;
  if (attn_call(r->prog, c->args, s, &e) == ATTN_OK) return true;
  return run_error("%s: %s", attn_code_text(e.code), e.text);
}

static bool gpu(Run *r, bool ok) {
  return ok || run_error("%s", r->gpu.error);
}

static bool to_device(Run *r, Call *c) {
  for (uint32_t t = 0; t < r->ntensors; t++) {
    Array *a = &r->array[t];
    if (!gpu(r, drv_gpu_alloc(&r->gpu, run_bytes(a), &a->device))) return false;
    if (a->desc->kind != ATTN_PARAM_OUT &&
        !gpu(r, drv_gpu_upload(&r->gpu, a->device, a->host.data, run_bytes(a))))
      return false;
  }
  if (!put_args(r, true, c)) return false;
  attn_args head;
  memcpy(&head, c->args, sizeof head);
  head.workspace_bytes = attn_args_workspace(r->prog, c->args);
  if (head.workspace_bytes &&
      !gpu(r, drv_gpu_alloc(&r->gpu, head.workspace_bytes, &head.workspace)))
    return false;
  memcpy(c->args, &head, sizeof head);
  c->workspace = head.workspace;
  c->workspace_bytes = head.workspace_bytes;
  return true;
}

static bool fetch(Run *r, const Array *a, void **out) {
  if (!*out) *out = malloc(run_bytes(a) + 1);
  return *out &&
         gpu(r, drv_gpu_download(&r->gpu, *out, a->device, run_bytes(a)));
}

// Inputs that a launch overwrites, as they were; outputs and workspace
// poisoned.
static bool reset(Run *r, const Call *c) {
  if (!gpu(r, drv_gpu_poison(&r->gpu, c->workspace, c->workspace_bytes)))
    return false;
  for (uint32_t t = 0; t < r->ntensors; t++) {
    Array *a = &r->array[t];
    bool ok =
        a->desc->kind == ATTN_PARAM_IN ||
        (a->desc->kind == ATTN_PARAM_OUT
             ? drv_gpu_poison(&r->gpu, a->device, run_bytes(a))
             : drv_gpu_upload(&r->gpu, a->device, a->host.data, run_bytes(a)));
    if (!gpu(r, ok)) return false;
  }
  return true;
}

static bool run_once(Run *r, Call *c, attn_stream *s) {
  return launch(r, c, s) && gpu(r, drv_gpu_wait(&r->gpu));
}

static bool fetch_first(Run *r) {
  for (uint32_t t = 0; t < r->ntensors; t++)
    if (run_is_output(&r->array[t]) &&
        !fetch(r, &r->array[t], &r->array[t].first))
      return false;
  return true;
}

// Says how many elements differ, and the first.
static bool differs(const Array *a, const void *again) {
  int size = dtype_size(a->host.dtype);
  int64_t n = 0, at = -1;
  for (int64_t i = 0; i < a->host.count; i++) {
    if (!memcmp((const char *)again + i * size,
                (const char *)a->first + i * size, (size_t)size))
      continue;
    if (at < 0) at = i;
    n++;
  }
  if (at < 0) return false;
  return !run_error("'%s' differs from the first launch: %lld elements, at "
                    "%lld %.9g and %.9g",
                    a->desc->name, (long long)n, (long long)at,
                    dtype_load(a->host.dtype,
                               (const char *)a->first + at * size),
                    dtype_load(a->host.dtype, (const char *)again + at * size));
}

static bool equal_again(Run *r) {
  bool equal = true;
  for (uint32_t t = 0; t < r->ntensors; t++) {
    const Array *a = &r->array[t];
    void *again = NULL;
    if (!run_is_output(a)) continue;
    equal &= fetch(r, a, &again) && !differs(a, again);
    free(again);
  }
  return equal;
}

static bool repeat(Run *r, Call *c, attn_stream *s) {
  for (long i = 0; i < r->repeat; i++)
    if (!reset(r, c) || !run_once(r, c, s) || !equal_again(r)) return false;
  if (r->repeat)
    printf("ok   %ld more launches are bitwise equal\n", r->repeat);
  return true;
}

// ---------------------------------------------------------------- comparing
static double default_tol(const Run *r) {
  double t = 1e-4;
  for (uint32_t i = 0; i < r->ntensors; i++) switch (r->array[i].desc->dtype) {
    case ATTN_BF16: t = fmax(t, 2e-2); break;
    case ATTN_F16:
    case ATTN_TF32: t = fmax(t, 4e-3); break;
    case ATTN_F8E4M3: t = fmax(t, 0.15); break;
    case ATTN_F8E5M2: t = fmax(t, 0.3); break;
    default: break;
    }
  return r->tol >= 0 ? r->tol : t;
}

// Elements of `want` that are compared: without `sparse` all.
static int64_t compared(const Run *r, double *want, int64_t *at, int64_t n) {
  int64_t k = 0;
  for (int64_t i = 0; i < n; i++) {
    if (r->sparse && isnan(want[i])) continue;
    at[k] = i;
    want[k++] = want[i];
  }
  return k;
}

static bool compare(const Run *r, const Array *a, const void *ref, DType type) {
  double *want = malloc(sizeof *want * (size_t)(a->host.count + 1));
  int64_t *at = malloc(sizeof *at * (size_t)(a->host.count + 1));
  NpyArray got = a->host;
  double tol = default_tol(r), norm = 0, diff = 0;
  int size = dtype_size(type), own = dtype_size(got.dtype);
  if (!want || !at) {
    free(want);
    free(at);
    return run_error("no memory");
  }
  got.data = a->first;
  for (int64_t i = 0; i < got.count; i++) {
    want[i] = dtype_load(type, (const char *)ref + i * size);
    double x = dtype_load(got.dtype, (const char *)a->first + i * own);
    if (!isfinite(want[i])) continue;
    norm += want[i] * want[i];
    diff += (x - want[i]) * (x - want[i]);
  }
  int64_t n = compared(r, want, at, got.count);
  DrvError e = drv_compare(&got, want, at, n);
  free(want);
  free(at);
  bool ok = drv_within(&e, tol);
  printf("%s %s: relative %.3g (tolerance %.3g), norm %.3g, max abs %.3g",
         ok ? "ok  " : "FAIL", a->desc->name, e.rel, tol,
         norm > 0 ? sqrt(diff / norm) : sqrt(diff), e.max_abs);
  if (!ok)
    printf("; at %lld: %.9g, expected %.9g", (long long)e.at, e.got, e.want);
  if (e.nonfinite)
    printf("; %lld differ in inf or NaN", (long long)e.nonfinite);
  printf("\n");
  return ok;
}

static bool verify_cpu(Run *r, Call *c) {
  bool ok = put_args(r, false, c) && launch(r, c, NULL);
  for (uint32_t t = 0; ok && t < r->ntensors; t++)
    if (run_is_output(&r->array[t]))
      ok &= compare(r, &r->array[t], r->array[t].host.data,
                    r->array[t].host.dtype);
  return ok;
}

static bool verify_files(Run *r) {
  bool ok = true;
  for (uint32_t t = 0; t < r->ntensors; t++) {
    Array *a = &r->array[t];
    const char *path = run_setting(r, 'r', a->desc->name);
    NpyArray ref;
    if (!path) continue;
    if (!npy_read(&r->cx, &r->cx.session, path, &ref)) return false;
    if (ref.count != a->host.count)
      return run_error("%s has %lld elements, '%s' %lld", path,
                       (long long)ref.count, a->desc->name,
                       (long long)a->host.count);
    bool bits = dtype_size(ref.dtype) == 2 && a->host.dtype == DT_BF16;
    ok &= compare(r, a, ref.data, bits ? DT_BF16 : ref.dtype);
  }
  return ok;
}

// ---------------------------------------------------------------- times
static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Host seconds of a launch while the device is behind.
static bool host_time(Run *r, Call *c, attn_stream *s, double *best) {
  enum { BATCHES = 10, N = 50 };
  struct timespec a, b;
  *best = 1;
  for (int k = 0; k < BATCHES; k++) {
    if (!gpu(r, drv_gpu_wait(&r->gpu))) return false;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < N; i++)
      if (!launch(r, c, s)) return false;
    clock_gettime(CLOCK_MONOTONIC, &b);
    double t =
        (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    *best = fmin(*best, t / N);
  }
  return gpu(r, drv_gpu_wait(&r->gpu));
}

static bool measure(Run *r, Call *c, attn_stream *s) {
  double *t = calloc((size_t)r->runs + 1, sizeof *t);
  bool ok = t != NULL;
  for (int i = 0; ok && i < 3; i++) ok = launch(r, c, s);
  for (long i = 0; ok && i < r->runs; i++)
    ok = gpu(r, drv_gpu_mark(&r->gpu, 0)) && launch(r, c, s) &&
         gpu(r, drv_gpu_mark(&r->gpu, 1)) &&
         gpu(r, drv_gpu_seconds(&r->gpu, &t[i]));
  double host = 0;
  ok = ok && host_time(r, c, s, &host);
  if (ok) {
    qsort(t, (size_t)r->runs, sizeof *t, by_value);
    printf("time: median %.4f ms, min %.4f ms over %ld launches (%s, %s); "
           "host %.2f us a launch\n",
           t[r->runs / 2] * 1e3, t[0] * 1e3, r->runs, r->gpu.name, r->gpu.arch,
           host * 1e6);
  }
  free(t);
  return ok;
}

// ---------------------------------------------------------------- all of it
static bool write_outputs(Run *r) {
  for (uint32_t t = 0; t < r->ntensors; t++) {
    NpyArray x = r->array[t].host;
    const char *path = run_setting(r, 'o', r->array[t].desc->name);
    if (r->array[t].first) x.data = r->array[t].first;
    if (path && !npy_write(&r->cx, path, &x)) return false;
  }
  return true;
}

static bool on_cpu(Run *r, Call *c) {
  if (!put_args(r, false, c) || !launch(r, c, NULL)) return false;
  for (uint32_t t = 0; t < r->ntensors; t++)
    r->array[t].first = r->array[t].host.data;
  return verify_files(r) && write_outputs(r);
}

bool run_launch(Run *r) {
  static Call c;
  attn_stream s = {.kind = r->amd ? ATTN_HIP : ATTN_CUDA,
                   .device = r->device,
                   .handle = r->gpu.stream};
  if (r->cpu) return on_cpu(r, &c);
  return to_device(r, &c) && run_once(r, &c, &s) && fetch_first(r) &&
         write_outputs(r) && verify_files(r) && repeat(r, &c, &s) &&
         (!r->runs || measure(r, &c, &s)) && (!r->verify || verify_cpu(r, &c));
}
