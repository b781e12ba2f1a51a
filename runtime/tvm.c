// Calls by the convention of tvm-ffi, whose loaders find __tvm_ffi_NAME in a
// library: arguments are tagged values of 16 bytes, tensors are DLTensors.
// libtvm_ffi is neither linked nor opened: what a call needs of it is looked
// up in the process, where the loader has brought it.
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

// ---- facts of that ABI (0.1) and of DLPack (1)

enum {
  V_NONE = 0,
  V_INT = 1,
  V_BOOL = 2,
  V_FLOAT = 3,
  V_DLTENSOR = 7,
  V_TENSOR = 70
};

typedef struct Tagged {
  int32_t kind;
  uint32_t small;
  union {
    int64_t i;
    double f;
    void *p;
  } as;
} Tagged;

typedef struct DlTensor {
  void *data;
  int32_t device, ordinal, rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *stride;  // stride NULL: dense
  uint64_t offset;          // bytes
} DlTensor;

_Static_assert(sizeof(Tagged) == 16, "Tagged");
_Static_assert(sizeof(DlTensor) == 48, "DlTensor");

enum { DL_CPU = 1, DL_UINT = 1, OBJECT_HEAD = 24 };

static const struct {
  int8_t dl, kind;
} devices[] = {{DL_CPU, ATTN_CPU}, {2, ATTN_CUDA}, {3, ATTN_CPU},
               {10, ATTN_HIP},     {11, ATTN_CPU}, {13, ATTN_CUDA}};

static const struct {
  uint8_t code, bits, dtype;
} types[] = {{0, 64, ATTN_I64},    {0, 32, ATTN_I32},   {0, 16, ATTN_I16},
             {0, 8, ATTN_I8},      {1, 32, ATTN_U32},   {1, 16, ATTN_U16},
             {1, 8, ATTN_U8},      {2, 64, ATTN_F64},   {2, 32, ATTN_F32},
             {2, 16, ATTN_F16},    {4, 16, ATTN_BF16},  {6, 8, ATTN_BOOL},
             {10, 8, ATTN_F8E4M3}, {12, 8, ATTN_F8E5M2}};

static const char *const error_kinds[ATTN_E_COUNT] = {
    [ATTN_E_ARGUMENT] = "TypeError",
    [ATTN_E_NULL] = "ValueError",
    [ATTN_E_DTYPE] = "TypeError",
    [ATTN_E_RANK] = "ValueError",
    [ATTN_E_SHAPE] = "ValueError",
    [ATTN_E_STRIDE] = "ValueError",
    [ATTN_E_ALIGN] = "ValueError",
    [ATTN_E_DIM] = "ValueError",
    [ATTN_E_CONSTRAINT] = "ValueError",
    [ATTN_E_MEMORY] = "MemoryError",
    [ATTN_E_UNSUPPORTED] = "NotImplementedError",
};

// ---- the library

static bool find(const char *name, void *fn) {
  if (rt_symbol(RTLD_DEFAULT, name, fn)) return true;
  void *lib = dlopen("libtvm_ffi.so", RTLD_NOW | RTLD_NOLOAD);
  bool found = lib && rt_symbol(lib, name, fn);
  if (lib) dlclose(lib);
  return found;
}

// -1: the error is raised there. Where there is no such library nobody could
// take it: the code.
static int report(const attn_error *e) {
  void (*set)(const char *kind, const char *message);
  if (!find("TVMFFIErrorSetRaisedFromCStr", &set)) return e->code;
  bool known = e->code > 0 && e->code < ATTN_E_COUNT && error_kinds[e->code];
  set(known ? error_kinds[e->code] : "RuntimeError", e->text);
  return -1;
}

// ---- one call

typedef struct Call {
  const attn_program *prog;
  char *args;         // an S_P_args
  attn_stream where;  // of the first tensor
  int32_t device;     // the same, as DLPack has it
  uint32_t first;     // its parameter, ATTN_NONE: none yet
} Call;

static int wrong(const Call *c, uint32_t i, attn_error *err, int code,
                 const char *what) {
  return rt_fail_at(err, code, (Where){(int)i, -1, 0, 0}, "argument '%s': %s",
                    c->prog->params[i].name, what);
}

static int take_type(const Call *c, uint32_t i, const DlTensor *d,
                     attn_tensor *t, attn_error *err) {
  char text[80];
  int want = c->prog->params[i].dtype, size = (int)attn_dtype_size(want);
  size_t k = 0, n = sizeof types / sizeof *types;
  while (k < n && (types[k].code != d->code || types[k].bits != d->bits)) k++;
  if (k == n || d->lanes != 1) {
    snprintf(text, sizeof text, "DLPack type %d of %d bits, %d lanes", d->code,
             d->bits, d->lanes);
    return wrong(c, i, err, ATTN_E_DTYPE, text);
  }
  t->dtype = types[k].dtype;
  // The bits of a small float as an integer, as in the Python package.
  bool small = want > ATTN_TF32 && want < ATTN_I64 && want != ATTN_F16;
  if ((small && d->code == DL_UINT && d->bits == 8 * size) ||
      (want == ATTN_TF32 && t->dtype == ATTN_F32))
    t->dtype = want;
  return ATTN_OK;
}

static int take_device(Call *c, uint32_t i, const DlTensor *d,
                       attn_error *err) {
  size_t k = 0, n = sizeof devices / sizeof *devices;
  while (k < n && devices[k].dl != d->device) k++;
  if (k == n)
    return wrong(c, i, err, ATTN_E_DEVICE, "memory of an unknown device");
  int kind = devices[k].kind, ordinal = kind == ATTN_CPU ? 0 : d->ordinal;
  if (c->first == ATTN_NONE) {
    c->first = i;
    c->device = d->device;
    c->where = (attn_stream){.kind = kind, .device = ordinal};
  }
  if (c->where.kind == kind && c->where.device == ordinal) return ATTN_OK;
  return rt_fail_at(err, ATTN_E_DEVICE, (Where){(int)i, -1, 0, 0},
                    "argument '%s' is on another device than '%s'",
                    c->prog->params[i].name, c->prog->params[c->first].name);
}

static int take_tensor(Call *c, uint32_t i, const Tagged *v, attn_error *err) {
  const attn_param_desc *p = &c->prog->params[i];
  if (v->kind == V_NONE) return ATTN_OK;
  if (v->kind != V_TENSOR && v->kind != V_DLTENSOR)
    return wrong(c, i, err, ATTN_E_ARGUMENT, "expected a tensor");
  DlTensor d;
  memcpy(&d, (char *)v->as.p + (v->kind == V_TENSOR ? OBJECT_HEAD : 0),
         sizeof d);
  attn_tensor t = attn_tensor_dense(NULL, 0, d.rank, d.shape);
  bool fits = d.rank >= 0 && d.rank <= ATTN_MAX_RANK, empty = false;
  for (int k = 0; fits && k < d.rank; k++) {
    if (d.stride) t.stride[k] = d.stride[k];
    empty |= d.shape[k] == 0;
  }
  // Without elements it may have no data; it is given all the same.
  t.data = d.data  ? (char *)d.data + d.offset
           : empty ? (char *)(uintptr_t)rt_zero
                   : NULL;
  memcpy(c->args + p->offset, &t, sizeof t);
  int rc = take_type(c, i, &d, &t, err);
  if (!rc) rc = take_device(c, i, &d, err);
  if (!rc) memcpy(c->args + p->offset, &t, sizeof t);
  return rc;
}

static bool in_range(int dtype, int64_t v) {
  int bits = 8 * (int)attn_dtype_size(dtype);
  if (dtype == ATTN_BOOL) return v == 0 || v == 1;
  if (dtype >= ATTN_U32) return v >= 0 && v >> bits == 0;
  return bits == 64 ||
         (v >= -(INT64_C(1) << (bits - 1)) && v < INT64_C(1) << (bits - 1));
}

static int take_scalar(Call *c, uint32_t i, const Tagged *v, attn_error *err) {
  const attn_param_desc *p = &c->prog->params[i];
  bool whole = v->kind == V_INT || v->kind == V_BOOL;
  if (v->kind == V_NONE) return ATTN_OK;  // its default is there
  if (!whole && v->kind != V_FLOAT)
    return wrong(c, i, err, ATTN_E_ARGUMENT, "expected a number");
  if (p->dtype >= ATTN_I64) {
    if (!whole)
      return wrong(c, i, err, ATTN_E_ARGUMENT, "expected a whole number");
    if (!in_range(p->dtype, v->as.i))
      return wrong(c, i, err, ATTN_E_ARGUMENT, "it is out of its type's range");
    memcpy(c->args + p->offset, &v->as.i, sizeof v->as.i);
    return ATTN_OK;
  }
  double x = whole ? (double)v->as.i : v->as.f;
  float narrow = (float)x;
  if (p->dtype == ATTN_F64) memcpy(c->args + p->offset, &x, sizeof x);
  else memcpy(c->args + p->offset, &narrow, sizeof narrow);
  return ATTN_OK;
}

static int take_all(Call *c, const Tagged *v, int32_t n, attn_error *err) {
  char text[160];
  if (n != (int32_t)c->prog->nparams) {
    attn_signature(c->prog, text, sizeof text);
    return rt_fail(err, ATTN_E_ARGUMENT,
                   "expected %u arguments, got %d: inputs, then outputs of %s",
                   c->prog->nparams, n, text);
  }
  for (uint32_t i = 0; i < c->prog->nparams; i++) {
    bool scalar = c->prog->params[i].kind == ATTN_PARAM_SCALAR;
    int rc =
        scalar ? take_scalar(c, i, &v[i], err) : take_tensor(c, i, &v[i], err);
    if (rc) return rc;
  }
  return ATTN_OK;
}

// ---- devices

// Workspace by the allocator of the arrays' library, whose memory is that of
// the stream's order. *out: an object to be dropped, or NULL. -1: raised.
static int take_workspace(Call *c, void **out, attn_error *err) {
  int (*alloc)(DlTensor *, void **);
  int64_t n = (int64_t)attn_args_workspace(c->prog, c->args), one = 1;
  if (!n) return ATTN_OK;
  if (!find("TVMFFIEnvTensorAlloc", &alloc))
    return rt_fail(err, ATTN_E_MEMORY,
                   "no allocator for %lld bytes of "
                   "workspace",
                   (long long)n);
  DlTensor like = {.device = c->device,
                   .ordinal = c->where.device,
                   .rank = 1,
                   .code = DL_UINT,
                   .bits = 8,
                   .lanes = 1,
                   .shape = &n,
                   .stride = &one};
  if (alloc(&like, out)) return -1;
  DlTensor made;
  memcpy(&made, (char *)*out + OBJECT_HEAD, sizeof made);
  attn_args *a = (attn_args *)(void *)c->args;
  a->workspace = (char *)made.data + made.offset;
  a->workspace_bytes = (uint64_t)n;
  return ATTN_OK;
}

static int run_device(Call *c, attn_error *err) {
  void *(*stream)(int32_t device, int32_t ordinal), *room = NULL;
  int (*drop)(void *);
  if (!find("TVMFFIEnvGetStream", &stream) ||
      !find("TVMFFIObjectDecRef", &drop))
    return rt_fail(err, ATTN_E_DEVICE,
                   "libtvm_ffi is not in this process: "
                   "it knows the current stream");
  c->where.handle = stream(c->device, c->where.device);
  int rc = take_workspace(c, &room, err);
  if (!rc) rc = attn_call(c->prog, c->args, &c->where, err);
  if (room) drop(room);
  return rc;
}

// ---- entry

enum { MAX_ARGS = sizeof(attn_args) + ATTN_MAX_PARAMS * sizeof(attn_tensor) };

int attn_tvm_ffi(const attn_program *prog, const void *args, int32_t n,
                 void *result) {
  char room[MAX_ARGS] __attribute__((aligned(8)));
  attn_error err = {0};
  Call c = {.prog = prog, .args = room, .first = ATTN_NONE};
  int rc = prog->args_size <= sizeof room
               ? ATTN_OK
               : rt_fail(&err, ATTN_E_INTERNAL, "too many parameters");
  (void)result;  // the caller made it None
  if (!rc) attn_args_init(prog, room);
  if (!rc) rc = take_all(&c, args, n, &err);
  if (!rc)
    rc = c.where.kind == ATTN_CPU ? attn_call(prog, room, &c.where, &err)
                                  : run_device(&c, &err);
  return rc > 0 ? report(&err) : rc;
}
