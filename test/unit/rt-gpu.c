// Launches through a driver that records them: the parameter block byte for
// byte, the choice of the variant, every failure. argv: the mock library, one
// that lacks a function.
#include "codegen/codegen.h"
#include "expect.h"
#include "mock/cuda.h"
#include "runtime/rt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// f<N, M>(X: bf16[N, M], s: f32) -> (Y: bf16[N, M], T: f32[N])
typedef struct Args {
  attn_args head;
  attn_tensor x;
  float s;
  attn_tensor y, t;
} Args;

static const int64_t code[] = {ATTN_X_DIM, 0, ATTN_X_END,
                               ATTN_X_DIM, 1, ATTN_X_END};
static const attn_dim_desc dims[] = {{"N", 0, INT64_MAX, 1, ATTN_DIM_DYN,
                                      ATTN_NONE, ATTN_NONE, 0},
                                     {"M", 0, INT64_MAX, 1, ATTN_DIM_DYN,
                                      ATTN_NONE, ATTN_NONE, 0}};
static const attn_param_desc params[] = {
    {"X", ATTN_PARAM_IN, ATTN_BF16, 2, 0, offsetof(Args, x), {0}, {0, 3}},
    {"s",
     ATTN_PARAM_SCALAR,
     ATTN_F32,
     0,
     0,
     offsetof(Args, s),
     {.f32 = 2},
     {0}},
    {"Y", ATTN_PARAM_OUT, ATTN_BF16, 2, 0, offsetof(Args, y), {0}, {0, 3}},
    {"T", ATTN_PARAM_OUT, ATTN_F32, 1, 0, offsetof(Args, t), {0}, {0}}};

// Conditions over the program's dims, the rest over the module's (M, N).
static const int64_t row_major[] = {
    ATTN_X_STRIDE, 0, 1,         ATTN_X_CONST, 1, ATTN_X_EQ, ATTN_X_DIM, 0,
    ATTN_X_CONST,  7, ATTN_X_NE, ATTN_X_AND};
static const int64_t seven[] = {ATTN_X_DIM, 0, ATTN_X_CONST, 7, ATTN_X_EQ};
static const int64_t nine[] = {ATTN_X_DIM, 0, ATTN_X_CONST, 9, ATTN_X_EQ};
static const int64_t many[] = {ATTN_X_DIM, 0, ATTN_X_CONST, 500, ATTN_X_EQ};
static const int64_t columns[] = {ATTN_X_DIM, 0};
static const int64_t rows[] = {ATTN_X_DIM, 1};
static const int64_t area[] = {ATTN_X_DIM, 0, ATTN_X_DIM, 1, ATTN_X_MUL};
static const int64_t bytes[] = {ATTN_X_DIM, 1, ATTN_X_CONST, 8, ATTN_X_MUL};

static const attn_gpu_map maps[] = {
    {.tensor = 0, .rank = 2, .swizzle = 128, .axis = {1, 0}, .box = {64, 128}},
    {.tensor = 1, .rank = 2, .axis = {1, 0}, .box = {8, 16}}};
static const CgPhase fast = {.name = "fast",
                             .ntasks = {rows, 2},
                             .threads = 384,
                             .shared_bytes = 230000,
                             .ctas = ATTN_CTAS_PERSISTENT,
                             .flags = ATTN_GPU_COUNTER,
                             .maps = maps,
                             .nmaps = 2};
static const CgPhase over = {.name = "fast",
                             .ntasks = {rows, 2},
                             .threads = 384,
                             .shared_bytes = 230000,
                             .ctas = ATTN_CTAS_PERSISTENT,
                             .flags = ATTN_GPU_COUNTER | ATTN_GPU_COPIES,
                             .maps = maps,
                             .nmaps = 2};
static const CgExpr numbers[] = {{bytes, 5}, {area, 5}};
static const CgPhase split[] = {{.name = "part",
                                 .ntasks = {area, 5},
                                 .threads = 128,
                                 .flags = ATTN_GPU_ONCE,
                                 .maps = maps,
                                 .nmaps = 1},
                                {.name = "join",
                                 .ntasks = {rows, 2},
                                 .threads = 256,
                                 .flags = ATTN_GPU_WAITS,
                                 .makes = 6,
                                 .numbers = numbers,
                                 .nnumbers = 2}};
// A map of f32[N, M] in workspace whose rows begin at multiples of 16 bytes.
static const attn_gpu_map in_workspace[] = {{.tensor = ATTN_NONE,
                                             .rank = 2,
                                             .axis = {1, 0},
                                             .box = {64, 1},
                                             .dtype = ATTN_F32}};
static const int64_t sixteen[] = {ATTN_X_CONST, 16};
static const CgPlace place = {.at = {sixteen, 2},
                              .extent = {{rows, 2}, {columns, 2}}};
static const CgPhase padded = {.name = "padded",
                               .ntasks = {rows, 2},
                               .threads = 128,
                               .flags = ATTN_GPU_PADDED,
                               .maps = in_workspace,
                               .places = &place,
                               .nmaps = 1};
static const CgPhase plain = {.name = "plain",
                              .ntasks = {rows, 2},
                              .threads = 64,
                              .flags = ATTN_GPU_LOCAL};

static attn_program prog;
static MockCuda *mock;
enum { OUT = 1 << 18 };  // where outputs lie
static char data[2 * OUT] __attribute__((aligned(128)));

// ---- the program

static const CgBytes pair[] = {{"part", 4}, {"join", 4}};

static CgDevice in_padded_rows(const DimTab *own) {
  return (CgDevice){.target = ATTN_TARGET_SM(90, 1),
                    .when = {many, 5},
                    .dims = own,
                    .phases = &padded,
                    .nphases = 1,
                    .workspace = {bytes, 5},
                    .binary = {"padded", 6}};
}

// copied: all there is takes dense tensors, and copies of others.
static void make(Ctx *cx, Buf *box, bool copied) {
  DimTab *own = NEW(&cx->session, DimTab), *mod = NEW(&cx->session, DimTab);
  DimSym n = {.name = intern(&cx->names, "N")},
         m = {.name = intern(&cx->names, "M")};
  vec_push(&cx->session, &own->syms, n);
  vec_push(&cx->session, &own->syms, m);
  vec_push(&cx->session, &mod->syms, m);
  vec_push(&cx->session, &mod->syms, n);
  CgParam p[4] = {{.name = "X", .type = {.kind = TK_TENSOR, .n = 2}},
                  {.name = "s", .role = PR_SCALAR},
                  {.name = "Y", .type = {.kind = TK_TENSOR, .n = 2}},
                  {.name = "T", .type = {.kind = TK_TENSOR, .n = 1}}};
  uint32_t hopper = ATTN_TARGET_SM(90, 1);
  CgDevice d[] = {{.target = hopper,
                   .when = {nine, 5},
                   .dims = mod,
                   .phases = split,
                   .nphases = 2,
                   .binary = {"split", 5}},
                  in_padded_rows(mod),
                  {.target = ATTN_TARGET_SM(80, 0),
                   .dims = mod,
                   .phases = &plain,
                   .nphases = 1,
                   .binary = {"sm80", 4},
                   .text = {".sm80", 6}},
                  {.target = hopper,
                   .when = {row_major, 12},
                   .dims = mod,
                   .phases = copied ? &over : &fast,
                   .nphases = 1,
                   .binary = {"sm90", 4},
                   .text = {".sm90", 6}},
                  {.target = hopper,
                   .when = {seven, 5},
                   .dims = mod,
                   .phases = split,
                   .nphases = 2,
                   .workspace = {bytes, 5},
                   .parts = pair}};
  CgProgram c = {.name = "f",
                 .prefix = "x",
                 .dims = own,
                 .params = p,
                 .nparams = 4,
                 .devices = copied ? &d[3] : d,
                 .ndevices = copied ? 1 : 5};
  EXPECT(cg_container(cx, &c, 1, box));
  prog = (attn_program){.abi = ATTN_ABI,
                        .size = sizeof prog,
                        .name = "f",
                        .nparams = 4,
                        .ndims = 2,
                        .params = params,
                        .dims = dims,
                        .code = code,
                        .ncode = sizeof code / sizeof *code,
                        .args_size = sizeof(Args),
                        .container = box->at};
}

static Args arguments(int64_t n, int64_t m) {
  Args a;
  attn_args_init(&prog, &a);
  a.x = (attn_tensor){data, {n, m}, {m, 1}, 2, ATTN_BF16};
  a.y = (attn_tensor){data + OUT, {n, m}, {m, 1}, 2, ATTN_BF16};
  return a;
}

// In a context of its own, so that nothing is loaded yet.
static int once(const Args *a, attn_error *e) {
  attn_ctx *cx = attn_ctx_create(NULL, e);
  attn_stream s = {cx, ATTN_CUDA, 0, &s};
  mock->current = NULL;
  int rc = attn_call(&prog, a, &s, e);
  EXPECT(rc == e->code && mock->current == NULL);
  attn_ctx_destroy(cx);
  EXPECT(mock->allocs == mock->frees && mock->loads == mock->unloads);
  EXPECT(mock->retained == 0);
  return rc;
}

// ---- the block

static uint64_t word(size_t i) {
  uint64_t v;
  memcpy(&v, mock->last.block + 8 * i, 8);
  return v;
}

static void block(void) {
  attn_error e;
  Args a = arguments(300, 64);
  // X 5 words, Y 5, T 3, s, given, 2 dims, 3: 20 words = 160 -> 192; 2 maps.
  mock->block_bytes = 192 + 256;
  EXPECT(once(&a, &e) == ATTN_OK);
  const MockLaunch *l = &mock->last;
  EXPECT(!strcmp(l->symbol, "fast") && l->grid == 132 && l->threads == 384);
  EXPECT(l->shared_bytes == 230000 && l->ctx == 0 && l->stream);
  uint64_t x[] = {(uintptr_t)data, 300, 64, 64, 1};
  for (size_t i = 0; i < 5; i++) EXPECT(word(i) == x[i]);
  EXPECT(word(5) == (uintptr_t)data + OUT && word(9) == 1);
  EXPECT(word(10) == 0 && word(11) == 0 && word(12) == 0);  // T not wanted
  float s;
  memcpy(&s, l->block + 13 * 8, 4);
  EXPECT(s == 2 && word(14) == 1);            // given
  EXPECT(word(15) == 64 && word(16) == 300);  // M, N
  EXPECT(word(17) == 300 && word(18) == 0 && word(19) != 0);
  for (size_t i = 20; i < 24; i++) EXPECT(word(i) == 0);
  EXPECT(l->block[192] == 0xa0 && l->block[192 + 128] == 0xa1);
  const MockMap *m = &mock->map[0];
  EXPECT(m->type == 9 && m->rank == 2 && m->swizzle == 3 && m->data == data);
  EXPECT(m->extent[0] == 64 && m->extent[1] == 300 && m->stride[0] == 128);
  EXPECT(m->box[0] == 64 && m->box[1] == 128 && m->promotion == 3);
  EXPECT(mock->map[1].swizzle == 0 && mock->map[1].box[1] == 16);
  // What is read once is fetched by lines of 128 bytes.
  unsigned n = mock->encodes;
  a = arguments(9, 64);
  mock->block_bytes = 0;
  EXPECT(once(&a, &e) == ATTN_OK && mock->encodes == n + 1);
  EXPECT(mock->map[n % 16].promotion == 2);
}

// ---- choices

static const char *chosen(const Args *a, int want) {
  attn_error e;
  mock->block_bytes = 0;
  int rc = once(a, &e);
  EXPECT(rc == want);
  if (rc != want) printf("%s\n", e.text);
  return mock->last.symbol;
}

static void choices(void) {
  Args a = arguments(5, 64);
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "fast") && mock->last.grid == 5);
  // Rows of 65 elements: no map, so the code of the older target.
  a.x.stride[0] = 65;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "plain") && mock->last.grid == 5);
  a = arguments(5, 64);
  a.x.data = data + 2;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "plain"));
  a = arguments(64, 32);
  a.x.stride[0] = 1;
  a.x.stride[1] = 64;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "plain"));
  // The other way around, by rows and by columns; all columns one.
  a = arguments(5, 64);
  a.x.data = data + 4 * 128;
  a.x.stride[0] = -64;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "plain"));
  a = arguments(5, 64);
  a.x.data = data + 126;
  a.x.stride[1] = -1;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "plain"));
  a = arguments(5, 64);
  a.x.stride[1] = 0;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "plain"));
  // All rows one have a map if the driver makes it.
  a = arguments(5, 64);
  a.x.stride[0] = 0;
  unsigned n = mock->encodes;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "fast") &&
         mock->map[n % 16].stride[0] == 0);
  // Extents of 1 may have any stride; empty tensors have maps of a blank page.
  a = arguments(1, 64);
  a.x.stride[0] = 3;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "fast"));
  a = arguments(3, 0);
  n = mock->encodes;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "fast"));
  EXPECT(mock->map[n % 16].extent[0] == 1 && mock->map[n % 16].data != data);
  // No tasks, no launch.
  n = mock->launches;
  a = arguments(0, 64);
  chosen(&a, ATTN_OK);
  EXPECT(mock->launches == n);
  a = arguments((int64_t)1 << 31, 1);
  a.y.data = (void *)((uintptr_t)data + ((uint64_t)1 << 40));
  chosen(&a, ATTN_E_UNSUPPORTED);
}

static void devices(void) {
  Args a = arguments(5, 64);
  mock->texts = 0;
  mock->major = 8;
  mock->minor = 9;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "plain") && !mock->texts);
  mock->major = 10;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "plain") && mock->texts == 1);
  mock->major = 7;
  chosen(&a, ATTN_E_UNSUPPORTED);
  mock->major = 9;
  mock->minor = 0;
  mock->only_text = 1;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "fast") && mock->texts == 2);
  mock->local = 8;  // what the driver makes of text may spill
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "fast") && mock->texts == 3);
  mock->only_text = 0;  // machine code that spills is not what it says
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "fast") && mock->texts == 4);
  mock->local = 0;
  mock->most_shared = 100000;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "plain"));
  mock->most_shared = 232448;
}

static void workspace(void) {
  attn_error e;
  Args a = arguments(7, 64);
  mock->block_bytes = 0;
  EXPECT(once(&a, &e) == ATTN_E_MEMORY && e.expected == 56);
  EXPECT(attn_args_workspace(&prog, &a) == 56);
  a.head.workspace = data;
  a.head.workspace_bytes = 55;
  EXPECT(once(&a, &e) == ATTN_E_MEMORY && e.got == 55);
  a.head.workspace_bytes = 56;
  unsigned n = mock->launches;
  mock->kept_bytes = 176;
  EXPECT(once(&a, &e) == ATTN_OK && mock->launches == n + 2);
  mock->kept_bytes = 0;
  EXPECT(!strcmp(mock->last.symbol, "join") && mock->last.grid == 7 &&
         mock->last.early);
  // What it has of the shape stands behind the dims: N * 8, M * N.
  EXPECT(word(16) == 7 && word(17) == 56 && word(18) == 7 * 64);
  EXPECT(word(19) == 7 && word(20) == (uintptr_t)data && word(21) == 0);
  a.head.workspace = data + 1;
  EXPECT(once(&a, &e) == ATTN_E_ALIGN);
}

// Phases with code of their own are loaded one by one, others in one piece;
// where one of them cannot run all are unloaded.
static void pieces(void) {
  attn_error e;
  Args a = arguments(7, 64), whole = arguments(9, 64);
  a.head.workspace = data;
  a.head.workspace_bytes = 56;
  mock->block_bytes = 0;
  unsigned n = mock->loads, launches = mock->launches;
  EXPECT(once(&a, &e) == ATTN_OK && mock->loads == n + 2);
  EXPECT(once(&whole, &e) == ATTN_OK && mock->loads == n + 3);
  EXPECT(mock->launches == launches + 4);
  mock->local = 8;
  EXPECT(once(&a, &e) == ATTN_OK && !strcmp(mock->last.symbol, "plain"));
  EXPECT(mock->loads == n + 5);
  mock->local = 0;
}

// An input that counts as zeros is one zero of the device, with strides 0; a
// map shows it alone. Phases whose outputs nobody wants are left out.
static void absent(void) {
  attn_param_desc p[4];
  attn_program whole = prog;
  attn_error e;
  memcpy(p, params, sizeof p);
  p[0].flags = ATTN_PARAM_OPTIONAL;
  Args a = arguments(9, 64);
  a.x = (attn_tensor){0};
  mock->block_bytes = 0;
  EXPECT(once(&a, &e) == ATTN_E_NULL && e.arg == 0);
  prog.params = p;
  unsigned n = mock->encodes, launches = mock->launches;
  EXPECT(once(&a, &e) == ATTN_OK && mock->launches == launches + 2);
  const MockMap *m = &mock->map[n % 16];
  EXPECT(m->extent[0] == 1 && m->extent[1] == 1 && m->data);
  a = arguments(5, 64);
  a.x.data = NULL;  // its shape may be given; `fast` is for strides of 1
  mock->block_bytes = 192;
  EXPECT(once(&a, &e) == ATTN_OK && !strcmp(mock->last.symbol, "plain"));
  // A page of that context, which is gone.
  EXPECT(word(0) && word(0) != (uintptr_t)data);
  EXPECT(word(1) == 5 && word(2) == 64);
  EXPECT(word(3) == 0 && word(4) == 0);
  a = arguments(9, 64);
  a.y.data = NULL;
  launches = mock->launches;
  EXPECT(!strcmp(chosen(&a, ATTN_OK), "part"));
  EXPECT(mock->launches == launches + 1);
  prog = whole;
}

// ---- contexts, counters

static void counters(void) {
  attn_error e;
  attn_ctx *cx = attn_ctx_create(NULL, &e);
  attn_stream s = {cx, ATTN_CUDA, 1, NULL};
  Args a = arguments(5, 64);
  mock->block_bytes = 192 + 256;
  EXPECT(!attn_call(&prog, &a, &s, &e) && mock->last.ctx == 1);
  uint64_t first = word(19), graph = 0;
  EXPECT(!attn_call(&prog, &a, &s, &e) && word(19) == first + 4);
  mock->capturing = 1;
  for (int i = 0; i < 2; i++) EXPECT(!attn_call(&prog, &a, &s, &e));
  graph = word(19);
  EXPECT(graph == first + 4 * 65536 + 4);
  mock->quick = 1;
  for (int i = 2; i < 65536; i++) EXPECT(!attn_call(&prog, &a, &s, &e));
  EXPECT(attn_call(&prog, &a, &s, &e) == ATTN_E_MEMORY);
  mock->quick = mock->capturing = 0;
  EXPECT(!attn_call(&prog, &a, &s, &e) && word(19) == first + 8);
  EXPECT(mock->retained == 1 && mock->allocs == mock->frees + 1);
  attn_ctx_destroy(cx);
  s = (attn_stream){NULL, 7, 0, NULL};
  EXPECT(attn_call(&prog, &a, &s, &e) == ATTN_E_UNSUPPORTED);
}

// Arguments that came before are not looked at again; what else a launch has
// is.
static void repeated(void) {
  attn_error e;
  attn_ctx *cx = attn_ctx_create(NULL, &e);
  attn_stream s = {cx, ATTN_CUDA, 0, NULL};
  Args a = arguments(5, 64), b = arguments(6, 64);
  EXPECT(!attn_call(&prog, &a, &s, &e) && !attn_call(&prog, &b, &s, &e));
  unsigned made = mock->encodes;
  MockLaunch last = mock->last;
  for (int i = 0; i < 3; i++) {
    s.handle = &s + i;
    EXPECT(!attn_call(&prog, &a, &s, &e) && mock->last.grid == 5);
    EXPECT(!attn_call(&prog, &b, &s, &e) && mock->last.grid == 6);
    EXPECT(mock->last.stream == s.handle && mock->current == NULL);
    last.block[8 * 19] += 8;  // another counter
    EXPECT(!memcmp(mock->last.block, last.block, 192));
  }
  EXPECT(mock->encodes == made);
  mock->fail = "cuLaunchKernel", mock->code = 1;
  EXPECT(attn_call(&prog, &a, &s, &e) == ATTN_E_DEVICE && e.code);
  mock->fail = NULL;
  EXPECT(!attn_call(&prog, &a, &s, &e) && mock->encodes == made);
  // Units are asked for at each launch; another place, another scalar.
  attn_ctx_set_units(cx, 3);
  EXPECT(!attn_call(&prog, &a, &s, &e) && mock->last.grid == 3);
  attn_ctx_set_units(cx, 0);
  a.s = 3;
  EXPECT(!attn_call(&prog, &a, &s, &e) && mock->encodes == made + 2);
  a.x.data = data + 256;
  EXPECT(!attn_call(&prog, &a, &s, &e) && mock->encodes == made + 4);
  EXPECT(word(0) == (uintptr_t)data + 256 && word(17) == 5);
  a.x.shape[0] = 4;
  EXPECT(attn_call(&prog, &a, &s, &e) == ATTN_E_SHAPE);
  // More calls than are kept, and larger ones where smaller ones were.
  for (int64_t n = 10; n < 400; n++) {
    a = arguments(n, 64);
    EXPECT(!attn_call(&prog, &a, &s, &e) && word(17) == (uint64_t)n);
  }
  attn_ctx_destroy(cx);
  EXPECT(mock->loads == mock->unloads);
}

// Kernels that walk their tasks leave multiprocessors to others, if asked to.
static void units(void) {
  attn_error e;
  attn_ctx *cx = attn_ctx_create(NULL, &e);
  attn_stream s = {cx, ATTN_CUDA, 0, NULL};
  Args a = arguments(300, 64);
  static const int asked[] = {0, 100, 1, 1000, -5};
  static const unsigned grid[] = {132, 100, 1, 132, 132};
  mock->block_bytes = 192 + 256;
  for (int i = 0; i < 5; i++) {
    attn_ctx_set_units(cx, asked[i]);
    EXPECT(attn_ctx_units(cx) == (asked[i] < 0 ? 0 : asked[i]));
    EXPECT(!attn_call(&prog, &a, &s, &e) && mock->last.grid == grid[i]);
  }
  attn_ctx_destroy(cx);
}

// ---- failures

static void failures_of_calls(void) {
  static const char *const calls[] = {
      "cuInit",
      "cuDeviceGet",
      "cuDeviceGetAttribute",
      "cuDevicePrimaryCtxRetain",
      "cuCtxGetCurrent",
      "cuCtxPushCurrent_v2",
      "cuModuleLoadDataEx",
      "cuModuleGetFunction",
      "cuFuncGetAttribute",
      "cuOccupancyMaxActiveBlocksPerMultiprocessor",
      "cuLaunchKernel",
      "cuMemAlloc_v2",
      "cuMemsetD8Async",
      "cuStreamCreate",
      "cuStreamSynchronize"};
  attn_error e;
  Args a = arguments(5, 64);
  mock->block_bytes = 192 + 256;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    mock->fail = calls[i];
    mock->code = 1;
    EXPECT(once(&a, &e) == ATTN_E_DEVICE && e.got == 1);
    EXPECT(strstr(e.text, "invalid argument (CUDA_ERROR_INVALID_VALUE)"));
  }
  mock->fail = "cuModuleLoadDataEx";
  once(&a, &e);
  EXPECT(strstr(e.text, ": oops"));
  mock->fail = NULL;
  mock->block_bytes = 64;
  EXPECT(once(&a, &e) == ATTN_E_INTERNAL);
  mock->block_bytes = 192 + 256;
  EXPECT(once(&a, &e) == ATTN_OK);
}

// Words of the block of the kernel that copies.
static void is_copy(uint64_t n, const void *from, const void *to) {
  EXPECT(!strcmp(mock->last.symbol, "attn_copy"));
  EXPECT(word(0) == n && word(1) == (uintptr_t)from &&
         word(2) == (uintptr_t)to);
}

// Rows of what phases hand on begin where the driver can show them; of what is
// between nothing is seen.
static void padded_rows(void) {
  attn_error e;
  Args a = arguments(500, 61);
  a.head.workspace = data + OUT / 2;
  a.head.workspace_bytes = OUT / 2;
  mock->block_bytes = 0;
  unsigned map = mock->encodes;
  EXPECT(once(&a, &e) == ATTN_OK && !strcmp(mock->last.symbol, "padded"));
  const MockMap *m = &mock->map[map % 16];
  EXPECT(mock->encodes == map + 1 && m->data == data + OUT / 2 + 16);
  EXPECT(m->extent[0] == 61 && m->extent[1] == 500 && m->stride[0] == 256);
}

// What no variant takes lies in workspace, rows at multiples of 16 bytes: X is
// copied there, Y from there.
static void copies(void) {
  attn_error e;
  Args a = arguments(5, 60);
  a.x.stride[0] = 61;
  mock->block_bytes = 0;
  EXPECT(attn_args_workspace(&prog, &a) == 2 * 768);
  EXPECT(once(&a, &e) == ATTN_E_MEMORY && e.expected == 2 * 768);
  a.head.workspace = data + OUT / 2;
  a.head.workspace_bytes = 2 * 768 - 1;
  EXPECT(once(&a, &e) == ATTN_E_MEMORY && e.got == 2 * 768 - 1);
  a.head.workspace_bytes = 2 * 768;
  unsigned n = mock->launches, map = mock->encodes;
  mock->kept_bytes = 192;  // of which a copy's block has all
  EXPECT(once(&a, &e) == ATTN_OK && mock->launches == n + 3);
  const MockMap *m = &mock->map[map % 16];
  EXPECT(m->data == data + OUT / 2 && m->stride[0] == 128 &&
         m->extent[0] == 60);
  is_copy(5, data + OUT / 2 + 768, data + OUT);
  EXPECT((uint16_t)word(3) == 2 && word(3) >> 32 == 2);
  EXPECT((uint16_t)(word(3) >> 16) == 4);  // 16 threads have a row of 60
  EXPECT(word(8) == 2 && word(9) == 128 && word(16) == 2 && word(17) == 120);
  mock->kept_bytes = 0;
  // What has maps is not copied; no rows, no copies.
  a = arguments(5, 64);
  n = mock->launches;
  EXPECT(once(&a, &e) == ATTN_OK && mock->launches == n + 1);
  EXPECT(attn_args_workspace(&prog, &a) == 0);
  a.x.stride[0] = 65;
  EXPECT(attn_args_workspace(&prog, &a) == 768);
  a.head.workspace = data + OUT / 2;
  a.head.workspace_bytes = 768;
  EXPECT(once(&a, &e) == ATTN_OK && mock->launches == n + 3);
  EXPECT(!strcmp(mock->last.symbol, "fast"));
  mock->fail = "cuLaunchKernel";
  mock->code = 1;
  EXPECT(once(&a, &e) == ATTN_E_DEVICE);
  mock->fail = NULL;
}

// ---- where calls come from

static void *call_copied(void *ok) {
  attn_error e;
  Args a = arguments(5, 64);
  a.x.stride[0] = 65;
  a.head.workspace = data + OUT / 2;
  a.head.workspace_bytes = 768;
  *(bool *)ok = attn_args_workspace(&prog, &a) == 768 && !once(&a, &e);
  return NULL;
}

// A thread whose stack is as small as some languages' are: it has room for the
// longest way that a call goes.
static void small_stack(void) {
  pthread_attr_t attr;
  pthread_t t;
  bool ok = false;
  pthread_attr_init(&attr);
  EXPECT(!pthread_attr_setstacksize(&attr, 64 * 1024));
  EXPECT(!pthread_create(&t, &attr, call_copied, &ok) &&
         !pthread_join(t, NULL));
  EXPECT(ok);
  pthread_attr_destroy(&attr);
}

static void drivers(const char *old) {
  attn_error e;
  Args a = arguments(5, 64);
  setenv("ATTN_CUDA_DRIVER", "/nonexistent/libcuda.so.1", 1);
  EXPECT(once(&a, &e) == ATTN_E_DEVICE);
  EXPECT(strstr(e.text, "no NVIDIA driver"));
  setenv("ATTN_CUDA_DRIVER", old, 1);
  EXPECT(once(&a, &e) == ATTN_E_DEVICE);
  EXPECT(strstr(e.text, "cuThreadExchangeStreamCaptureMode"));
}

// Once a program runs, a call is its launch and nothing else that the driver
// allocates, loads or frees. Prints the nanoseconds that it spends outside the
// driver, in the best of some batches: the machine may be busy.
static void overhead(void) {
  enum { N = 2000, BATCHES = 20 };
  attn_error e;
  attn_stream s = {NULL, ATTN_CUDA, 0, NULL};
  Args a = arguments(5, 64);
  double best = 1e9;
  attn_call(&prog, &a, &s, &e);
  unsigned launches = mock->launches, allocs = mock->allocs,
           loads = mock->loads, frees = mock->frees;
  mock->quick = 1;
  for (int k = 0; k < BATCHES; k++) {
    int64_t start = rt_now_ns();
    for (int i = 0; i < N; i++) attn_call(&prog, &a, &s, &e);
    double ns = (double)(rt_now_ns() - start) / N;
    best = ns < best ? ns : best;
  }
  mock->quick = 0;
  printf("%.0f ns a launch\n", best);
  EXPECT(mock->launches == launches + N * BATCHES);
  EXPECT(mock->allocs == allocs && mock->loads == loads &&
         mock->frees == frees);
}

int main(int argc, char **argv) {
  Ctx cx;
  if (argc != 3) return 2;
  void *lib = dlopen(argv[1], RTLD_NOW);
  mock = lib ? dlsym(lib, "mock_cuda") : NULL;
  EXPECT(mock);
  if (!mock) return verdict();
  setenv("ATTN_CUDA_DRIVER", argv[1], 1);
  ctx_init(&cx);
  Buf box = {.arena = &cx.session};
  make(&cx, &box, false);
  block();
  units();
  choices();
  devices();
  padded_rows();
  workspace();
  pieces();
  absent();
  counters();
  repeated();
  failures_of_calls();
  Buf other = {.arena = &cx.session};
  make(&cx, &other, true);
  copies();
  small_stack();
  make(&cx, &box, false);
  drivers(argv[2]);
  setenv("ATTN_CUDA_DRIVER", argv[1], 1);
  overhead();
  ctx_drop(&cx);
  return verdict();
}
