// Launches through a HIP library that records them: the parameter block, the
// choice of the code by the device's name, every failure. argv: the mock, one
// that lacks a function.
#include "codegen/codegen.h"
#include "expect.h"
#include "mock/hip.h"
#include "runtime/rt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// f<N>(X: f16[N, 64], s: f32) -> (Y: f16[N, 64])
typedef struct Args {
  attn_args head;
  attn_tensor x;
  float s;
  attn_tensor y;
} Args;

static const int64_t code[] = {ATTN_X_DIM,   0,  ATTN_X_END,
                               ATTN_X_CONST, 64, ATTN_X_END};
static const attn_dim_desc dims[] = {
    {"N", 0, INT64_MAX, 1, ATTN_DIM_DYN, ATTN_NONE, ATTN_NONE, 0}};
static const attn_param_desc params[] = {
    {"X", ATTN_PARAM_IN, ATTN_F16, 2, 0, offsetof(Args, x), {0}, {0, 3}},
    {"s",
     ATTN_PARAM_SCALAR,
     ATTN_F32,
     0,
     0,
     offsetof(Args, s),
     {.f32 = 2},
     {0}},
    {"Y", ATTN_PARAM_OUT, ATTN_F16, 2, 0, offsetof(Args, y), {0}, {0, 3}}};
static const int64_t rows[] = {ATTN_X_DIM, 0};
static const CgPhase kernel = {.name = "k",
                               .ntasks = {rows, 2},
                               .threads = 256,
                               .shared_bytes = 65536,
                               .flags = ATTN_GPU_COUNTER};

static attn_program prog;
static MockHip *mock;
static char data[1 << 14] __attribute__((aligned(128)));

static void make(Ctx *cx, Buf *box) {
  DimTab *own = NEW(&cx->session, DimTab);
  DimSym n = {.name = intern(&cx->names, "N")};
  vec_push(&cx->session, &own->syms, n);
  CgParam p[3] = {{.name = "X", .type = {.kind = TK_TENSOR, .n = 2}},
                  {.name = "s", .role = PR_SCALAR},
                  {.name = "Y", .type = {.kind = TK_TENSOR, .n = 2}}};
  CgDevice d[] = {{.target = ATTN_TARGET_SM(90, 1),
                   .dims = own,
                   .phases = &kernel,
                   .nphases = 1,
                   .binary = {"sm90", 4}},
                  {.target = ATTN_TARGET_GFX(0x942),
                   .dims = own,
                   .phases = &kernel,
                   .nphases = 1,
                   .binary = {"g942", 4}},
                  {.target = ATTN_TARGET_GFX(0x90a),
                   .dims = own,
                   .phases = &kernel,
                   .nphases = 1,
                   .binary = {"g90a", 4}}};
  CgProgram c = {.name = "f",
                 .prefix = "x",
                 .dims = own,
                 .params = p,
                 .nparams = 3,
                 .devices = d,
                 .ndevices = 3};
  EXPECT(cg_container(cx, &c, 1, box));
  prog = (attn_program){.abi = ATTN_ABI,
                        .size = sizeof prog,
                        .name = "f",
                        .nparams = 3,
                        .ndims = 1,
                        .params = params,
                        .dims = dims,
                        .code = code,
                        .ncode = sizeof code / sizeof *code,
                        .args_size = sizeof(Args),
                        .container = box->at};
}

static Args arguments(int64_t n) {
  Args a;
  attn_args_init(&prog, &a);
  a.x = (attn_tensor){data, {n, 64}, {64, 1}, 2, ATTN_F16};
  a.y = (attn_tensor){data + 4096, {n, 64}, {64, 1}, 2, ATTN_F16};
  return a;
}

// In a context of its own, so that nothing is loaded yet.
static int once(const Args *a, int device, attn_error *e) {
  attn_ctx *cx = attn_ctx_create(NULL, e);
  attn_stream s = {cx, ATTN_HIP, device, &s};
  int rc = attn_call(&prog, a, &s, e);
  EXPECT(rc == e->code && mock->current == 0);
  attn_ctx_destroy(cx);
  EXPECT(mock->allocs == mock->frees && mock->loads == mock->unloads);
  return rc;
}

static uint64_t word(size_t i) {
  uint64_t v;
  memcpy(&v, mock->block + 8 * i, 8);
  return v;
}

static void block(void) {
  attn_error e;
  Args a = arguments(5);
  EXPECT(once(&a, 1, &e) == ATTN_OK);
  EXPECT(!strcmp(mock->symbol, "k") && mock->grid == 5 && mock->stream);
  EXPECT(mock->threads == 256 && mock->shared_bytes == 0 && mock->device == 1);
  // X 5 words, Y 5, s, given, N, 3: 16 words.
  EXPECT(mock->block_bytes == 128 && word(0) == (uintptr_t)data);
  EXPECT(word(1) == 5 && word(2) == 64 && word(3) == 64 && word(4) == 1);
  EXPECT(word(5) == (uintptr_t)data + 4096 && word(12) == 5 && word(13) == 5);
  EXPECT(word(15) != 0);
}

static void architectures(void) {
  attn_error e;
  Args a = arguments(5);
  EXPECT(once(&a, 0, &e) == ATTN_OK && !memcmp(mock->image, "g942", 4));
  mock->arch = "gfx90a:sramecc+:xnack-";
  EXPECT(once(&a, 0, &e) == ATTN_OK && !memcmp(mock->image, "g90a", 4));
  mock->arch = "gfx1100";
  EXPECT(once(&a, 0, &e) == ATTN_E_UNSUPPORTED);
  EXPECT(strstr(e.text, "no code for this device"));
  mock->arch = "";
  EXPECT(once(&a, 0, &e) == ATTN_E_DEVICE);
  mock->arch = "gfx942";
  EXPECT(once(&a, 2, &e) == ATTN_E_DEVICE && e.expected == 2 && e.got == 2);
  mock->local = 8;
  EXPECT(once(&a, 0, &e) == ATTN_E_UNSUPPORTED && strstr(e.text, "spills 8"));
  mock->local = 0;
}

// Memory of a device tells where a launch goes.
static void automatic(void) {
  attn_error e;
  attn_ctx *cx = attn_ctx_create(NULL, &e);
  attn_stream s;
  mock->device_memory = data;
  mock->device_bytes = sizeof data;
  EXPECT(!attn_stream_of(cx, data, &s, &e));
  EXPECT(s.kind == ATTN_HIP && s.device == 1);
  mock->device_bytes = 0;
  EXPECT(!attn_stream_of(cx, data, &s, &e) && s.kind == ATTN_CPU);
  attn_ctx_destroy(cx);
}

static void failures_of_calls(void) {
  static const char *const calls[] = {
      "hipInit",
      "hipGetDeviceCount",
      "hipGetDevice",
      "hipSetDevice",
      "hipDeviceGetAttribute",
      "hipGetDeviceProperties",
      "hipModuleLoadData",
      "hipModuleGetFunction",
      "hipFuncGetAttribute",
      "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
      "hipModuleLaunchKernel",
      "hipMalloc",
      "hipMemsetAsync",
      "hipStreamCreateWithFlags",
      "hipStreamSynchronize"};
  attn_error e;
  Args a = arguments(5);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    mock->fail = calls[i];
    mock->code = 1;
    mock->current = 0;
    attn_ctx *cx = attn_ctx_create(NULL, &e);
    attn_stream s = {cx, ATTN_HIP, 1, NULL};
    EXPECT(attn_call(&prog, &a, &s, &e) == ATTN_E_DEVICE && e.got == 1);
    EXPECT(strstr(e.text, "invalid argument (hipErrorInvalidValue)"));
    attn_ctx_destroy(cx);
    EXPECT(mock->allocs == mock->frees && mock->loads == mock->unloads);
  }
  mock->fail = NULL;
  EXPECT(once(&a, 0, &e) == ATTN_OK);
}

static void drivers(const char *old) {
  attn_error e;
  Args a = arguments(5);
  setenv("ATTN_HIP_DRIVER", "/nonexistent/libamdhip64.so", 1);
  EXPECT(once(&a, 0, &e) == ATTN_E_DEVICE && strstr(e.text, "no AMD driver"));
  setenv("ATTN_HIP_DRIVER", old, 1);
  EXPECT(once(&a, 0, &e) == ATTN_E_DEVICE && strstr(e.text, "hipMalloc"));
}

int main(int argc, char **argv) {
  Ctx cx;
  if (argc != 3) return 2;
  void *lib = dlopen(argv[1], RTLD_NOW);
  mock = lib ? dlsym(lib, "mock_hip") : NULL;
  EXPECT(mock);
  if (!mock) return verdict();
  setenv("ATTN_HIP_DRIVER", argv[1], 1);
  ctx_init(&cx);
  Buf box = {.arena = &cx.session};
  make(&cx, &box);
  block();
  architectures();
  automatic();
  failures_of_calls();
  drivers(argv[2]);
  ctx_drop(&cx);
  return verdict();
}
