// Calls by the convention of tvm-ffi, on the CPU and on a recorded device, with
// and without its library in the process. argv: the mocks of it and of HIP.
#include "codegen/codegen.h"
#include "expect.h"
#include "mock/hip.h"
#include "mock/tvm.h"
#include "runtime/rt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// f<N>(X: bf16[N, 4], s: f32 = 2, n: i32) -> (Y: bf16[N, 4])
typedef struct Args {
  attn_args head;
  attn_tensor x;
  float s;
  int64_t n;
  attn_tensor y;
} Args;

static const int64_t code[] = {ATTN_X_DIM,   0, ATTN_X_END,
                               ATTN_X_CONST, 4, ATTN_X_END};
static const attn_dim_desc dims[] = {
    {"N", 0, INT64_MAX, 1, ATTN_DIM_DYN, ATTN_NONE, ATTN_NONE, 0}};
#define TENSOR(name, kind, at) \
  {name, kind, ATTN_BF16, 2, 0, offsetof(Args, at), {0}, {0, 3}}
static const attn_param_desc params[] = {
    TENSOR("X", ATTN_PARAM_IN, x),
    {"s",
     ATTN_PARAM_SCALAR,
     ATTN_F32,
     0,
     0,
     offsetof(Args, s),
     {.f32 = 2},
     {0}},
    {"n", ATTN_PARAM_SCALAR, ATTN_I32, 0, 0, offsetof(Args, n), {0}, {0}},
    TENSOR("Y", ATTN_PARAM_OUT, y)};

// The scalars that a call had, and the first element of X's last row.
static float got_s;
static int64_t got_n;
static uint16_t got_x;

static void kernel(const attn_kargs *a, int64_t begin, int64_t end,
                   void *scratch) {
  (void)begin, (void)end, (void)scratch;
  const attn_tensor *x = a->tensors[0];
  got_s = a->scalars[0].f32;
  got_n = a->scalars[1].i64;
  got_x = ((uint16_t *)x->data)[(x->shape[0] - 1) * x->stride[0]];
}

static int64_t one(const attn_kargs *a) {
  return a->dims[0] > 0;
}

static const attn_phase phase = {kernel, one, NULL};
static attn_spec spec = {.when = ATTN_NONE, .nphases = 1, .phases = &phase};
static attn_program prog = {.abi = ATTN_ABI,
                            .size = sizeof prog,
                            .name = "f",
                            .nparams = 4,
                            .ndims = 1,
                            .nspecs = 1,
                            .params = params,
                            .dims = dims,
                            .specs = &spec,
                            .code = code,
                            .ncode = sizeof code / sizeof *code,
                            .args_size = sizeof(Args)};

// ---- values as a loader makes them

typedef struct Tagged {
  int32_t kind, small;
  union {
    int64_t i;
    double f;
    void *p;
  } as;
} Tagged;

static uint16_t in[32], out[32];
static int64_t shape[] = {3, 4}, far[] = {8, 1};
static struct {
  char head[24];
  DlTensor dl;
} x;
static DlTensor y;
static Tagged v[4];

static void reset(void) {
  for (int i = 0; i < 32; i++) in[i] = (uint16_t)i;
  x.dl = (DlTensor){in, 1, 0, 2, 4, 16, 1, shape, far, 2};
  y = (DlTensor){out, 1, 0, 2, 4, 16, 1, shape, NULL, 0};
  v[0] = (Tagged){70, 0, {.p = &x}};
  v[1] = (Tagged){3, 0, {.f = 0.5}};
  v[2] = (Tagged){1, 0, {.i = 7}};
  v[3] = (Tagged){7, 0, {.p = &y}};
}

static int call(void) {
  Tagged result = {0};
  int rc = attn_tvm_ffi(&prog, v, 4, &result);
  EXPECT(result.kind == 0);
  return rc;
}

static void right(void) {
  reset();
  EXPECT(!call() && got_s == 0.5f && got_n == 7);
  EXPECT(got_x == 17);        // strides, and an offset of 2 bytes
  v[1] = v[3] = (Tagged){0};  // the default; an output that is not wanted
  v[2] = (Tagged){2, 0, {.i = 1}};
  EXPECT(!call() && got_s == 2 && got_n == 1);
  v[1] = (Tagged){1, 0, {.i = -3}};
  x.dl.code = 1;  // bits of bf16 as integers
  EXPECT(!call() && got_s == -3);
  int64_t none[] = {0, 4};
  x.dl.shape = none;
  x.dl.data = NULL;
  EXPECT(!call());
}

// Without the library nobody takes a text: the code is the answer.
static void alone(void) {
  reset();
  v[2] = (Tagged){3, 0, {.f = 1}};
  EXPECT(call() == ATTN_E_ARGUMENT);
  reset();
  x.dl.device = 10;
  v[3].kind = 0;
  EXPECT(call() == ATTN_E_DEVICE);
}

static const MockTvm *tvm;

static void wrong(const char *kind, const char *text) {
  int before = tvm->errors;
  EXPECT(call() == -1 && tvm->errors == before + 1);
  EXPECT(!strcmp(tvm->kind, kind) && strstr(tvm->message, text));
  reset();
}

static void failures_of_values(void) {
  reset();
  v[0].kind = 0;
  wrong("ValueError", "argument 'X' has no data");
  v[0].kind = 1;
  wrong("TypeError", "argument 'X': expected a tensor");
  v[1].kind = 11;
  wrong("TypeError", "argument 's': expected a number");
  v[2].kind = 3;
  wrong("TypeError", "argument 'n': expected a whole number");
  v[2].as.i = INT64_C(1) << 31;
  wrong("TypeError", "argument 'n': it is out of its type's range");
  x.dl.bits = 32;
  wrong("TypeError", "argument 'X': DLPack type 4 of 32 bits, 1 lanes");
  x.dl.code = 2;
  wrong("TypeError", "argument 'X': element type is f16, expected bf16");
  x.dl.rank = 1;
  wrong("ValueError", "argument 'X'");
  x.dl.rank = 99;
  wrong("ValueError", "argument 'X'");
  x.dl.device = 7;
  wrong("RuntimeError", "argument 'X': memory of an unknown device");
  y.device = 10;
  wrong("RuntimeError", "argument 'Y' is on another device than 'X'");
  Tagged few = {0};
  EXPECT(attn_tvm_ffi(&prog, &few, 1, &few) == -1);
  EXPECT(strstr(tvm->message, "expected 4 arguments, got 1: inputs, then "
                              "outputs of f(X: bf16[N, 4], s: f32 = 2, "));
}

// ---- a device

static void make(Ctx *cx, Buf *box) {
  static const int64_t words[] = {ATTN_X_CONST, 64};
  static const CgPhase k = {.name = "k",
                            .ntasks = {words, 2},
                            .threads = 64,
                            .shared_bytes = 64};
  DimTab *own = NEW(&cx->session, DimTab);
  DimSym n = {.name = intern(&cx->names, "N")};
  vec_push(&cx->session, &own->syms, n);
  CgParam p[4] = {{.name = "X", .type = {.kind = TK_TENSOR, .n = 2}},
                  {.name = "s", .role = PR_SCALAR},
                  {.name = "n", .role = PR_SCALAR},
                  {.name = "Y", .type = {.kind = TK_TENSOR, .n = 2}}};
  CgDevice d = {.target = ATTN_TARGET_GFX(0x942),
                .dims = own,
                .workspace = {words, 2},
                .phases = &k,
                .nphases = 1,
                .binary = {"g942", 4}};
  CgProgram c = {.name = "f",
                 .prefix = "x",
                 .dims = own,
                 .params = p,
                 .nparams = 4,
                 .devices = &d,
                 .ndevices = 1};
  EXPECT(cg_container(cx, &c, 1, box));
  prog.container = box->at;
}

static void device(MockTvm *m, const MockHip *hip) {
  Ctx cx;
  ctx_init(&cx);
  Buf box = {.arena = &cx.session};
  make(&cx, &box);
  reset();
  x.dl.device = y.device = 10;
  x.dl.ordinal = y.ordinal = 1;
  EXPECT(!call() && hip->launches == 1 && hip->device == 1);
  EXPECT(hip->stream == m && m->device == 10 && m->ordinal == 1);
  EXPECT(m->bytes == 64 && m->allocs == 1 && m->drops == 1);
  uint64_t workspace;  // behind X 5, s, n, Y 5, given, N and the tasks
  memcpy(&workspace, hip->block + 8 * 15, 8);
  EXPECT(workspace == (uintptr_t)m->room);
  m->full = 1;
  EXPECT(call() == -1 && !strcmp(m->message, "the allocator is empty"));
  EXPECT(hip->launches == 1 && m->drops == 1);
  ctx_drop(&cx);
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  spec.isa = (uint32_t)attn_cpu_isa();
  void *hip = dlopen(argv[2], RTLD_NOW);
  EXPECT(hip);
  if (!hip) return verdict();
  setenv("ATTN_HIP_DRIVER", argv[2], 1);
  right();
  alone();
  void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  MockTvm *m = lib ? dlsym(lib, "mock_tvm") : NULL;
  tvm = m;
  EXPECT(m);
  if (!m) return verdict();
  right();
  failures_of_values();
  device(m, dlsym(hip, "mock_hip"));
  return verdict();
}
