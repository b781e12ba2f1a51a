// Programs out of a container, from bytes of anybody: every byte flipped, every
// prefix; damage under a right hash; every allocation failing in turn.
// argv: a container of attnc, the mock driver.
#include "expect.h"
#include "mock/cuda.h"
#include "runtime/rt.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct Bytes {
  unsigned char *at;
  size_t n;
} Bytes;

static MockCuda *mock;
static char memory[1 << 16] __attribute__((aligned(128)));

static Bytes read_file(const char *path) {
  Bytes b = {.at = malloc(1 << 22)};
  FILE *f = fopen(path, "rb");
  if (f) {
    b.n = fread(b.at, 1, 1 << 22, f);
    fclose(f);
  }
  return b;
}

// ---- using a program, whatever it says

// Arguments of extent n everywhere: inputs over one element, outputs dense, at
// addresses that nobody looks at.
static void fill_args(const attn_program *p, int64_t n, attn_tensor *tensors,
                      attn_tensor **at, attn_scalar *scalars) {
  uint32_t nt = 0, ns = 0;
  for (uint32_t i = 0; i < p->nparams; i++) {
    const attn_param_desc *d = &p->params[i];
    if (d->kind == ATTN_PARAM_SCALAR) {
      scalars[ns++] = d->def;
      continue;
    }
    attn_tensor *t = &tensors[nt];
    bool in = d->kind == ATTN_PARAM_IN;
    uintptr_t data = (uintptr_t)memory + (in ? 0 : (nt + 1ull) << 40);
    *t =
        (attn_tensor){.data = (void *)data, .rank = d->rank, .dtype = d->dtype};
    int64_t stride = 1;
    for (int k = d->rank; k-- > 0; stride *= n ? n : 1) {
      t->shape[k] = n;
      t->stride[k] = in ? 0 : stride;
    }
    at[nt++] = t;
  }
}

static void use(attn_ctx *cx, const attn_program *p) {
  attn_tensor tensors[ATTN_MAX_PARAMS], *at[ATTN_MAX_PARAMS] = {0};
  attn_scalar scalars[ATTN_MAX_PARAMS] = {0};
  int64_t dims[ATTN_MAX_DIMS];
  char text[300];
  attn_error e;
  attn_stream s = {cx, ATTN_CUDA, 0, &s}, cpu = {.ctx = cx};
  EXPECT(attn_signature(p, text, sizeof text) > 0);
  for (int64_t n = 0; n <= 64; n = n ? 2 * n : 1) {
    fill_args(p, n, tensors, at, scalars);
    attn_solve(p, at, scalars, dims, &e);
    EXPECT(attn_launch(p, at, scalars, &cpu, &e) != ATTN_OK);
    attn_launch(p, at, scalars, &s, &e);
  }
  void *args = calloc(1, p->args_size);
  attn_args_init(p, args);
  attn_args_workspace(p, args);
  EXPECT(attn_call(p, args, &cpu, &e) != ATTN_OK);
  free(args);
}

static int load(attn_ctx *cx, const void *bytes, size_t n) {
  attn_error e;
  attn_module *m = attn_module_load(cx, bytes, n, &e);
  EXPECT(!m == (e.code != ATTN_OK));
  for (uint32_t i = 0; m && i < attn_module_programs(m); i++)
    use(cx, attn_module_program(m, i));
  attn_module_close(m);
  return e.code;
}

// ---- damage

static int load_copy(attn_ctx *cx, const Bytes *b, size_t n) {
  unsigned char *copy = malloc(n ? n : 1);
  memcpy(copy, b->at, n);
  int code = load(cx, copy, n);
  free(copy);
  return code;
}

static void prefixes(attn_ctx *cx, const Bytes *b) {
  for (size_t n = 0; n < b->n; n++)
    EXPECT(load_copy(cx, b, n) == ATTN_E_FORMAT);
}

static void flips(attn_ctx *cx, const Bytes *b) {
  static const unsigned char with[] = {0xff, 0x01, 0x80};
  for (size_t i = 0; i < b->n; i++) {
    unsigned char x = with[i % 3];
    b->at[i] ^= x;
    int code = load(cx, b->at, b->n);
    EXPECT(code == ATTN_E_FORMAT || (code == ATTN_E_ABI && i / 2 == 2));
    b->at[i] ^= x;
  }
}

static void seal(const Bytes *b) {
  attn_container_header h;
  memcpy(&h, b->at, sizeof h);
  h.hash = attn_container_hash(b->at, b->n);
  memcpy(b->at, &h, sizeof h);
}

// A hostile writer: any byte of the tables changed, under a right hash. Code
// itself is the driver's affair.
static void hostile(const Bytes *b, const unsigned char *from, size_t n) {
  static const unsigned char with[] = {0xff, 0x01, 0x80, 0x7f};
  size_t start = (size_t)(from - b->at);
  for (size_t i = start; i < start + n; i++)
    for (size_t k = 0; k < 4; k++) {
      attn_ctx *cx = attn_ctx_create(NULL, NULL);
      b->at[i] ^= with[k];
      seal(b);
      load(cx, b->at, b->n);
      b->at[i] ^= with[k];
      attn_ctx_destroy(cx);
    }
  seal(b);
}

static void hostile_tables(attn_ctx *cx, const Bytes *b) {
  attn_error e;
  attn_section_info s;
  attn_module *m = attn_module_load(cx, b->at, b->n, &e);
  for (uint32_t i = 0; m && i < attn_module_count(m); i++) {
    attn_module_section(m, i, &s);
    if (s.kind == ATTN_SEC_PROGRAM || s.kind == ATTN_SEC_KERNELS)
      hostile(b, s.data, s.size);
  }
  attn_module_close(m);
  hostile(b, b->at + 16, 2 * sizeof(attn_section));
}

// ---- allocation

// Lanes take their scratch in threads of the pool.
typedef struct Heap {
  atomic_llong left;  // allocations until one fails
  atomic_llong live;
} Heap;

static void *take(void *user, size_t bytes, size_t align) {
  Heap *h = user;
  if (atomic_fetch_sub(&h->left, 1) == 0) return NULL;
  atomic_fetch_add(&h->live, 1);
  return aligned_alloc(align, (bytes + align - 1) & ~(align - 1));
}

static void give(void *user, void *p, size_t bytes) {
  Heap *h = user;
  (void)bytes;
  atomic_fetch_sub(&h->live, 1);
  free(p);
}

static void body(const attn_kargs *a, int64_t begin, int64_t end, void *x) {
  char *to = a->tensors[0]->data;
  memset(x, 1, 64);
  for (int64_t i = begin; i < end; i++) to[i] = 7;
}
static int64_t tasks(const attn_kargs *a) {
  return a->dims[0];
}
static int64_t some(const attn_kargs *a) {
  return 64 + 0 * a->dims[0];
}

// f<N>() -> (Y: u8[N]) for every CPU
static attn_program on_cpu(void) {
  static const int64_t code[] = {ATTN_X_DIM, 0, ATTN_X_END};
  static const attn_dim_desc dims[] = {
      {"N", 0, INT64_MAX, 1, ATTN_DIM_DYN, ATTN_NONE, ATTN_NONE, 0}};
  static const attn_param_desc params[] = {
      {"Y", ATTN_PARAM_OUT, ATTN_U8, 1, 0, sizeof(attn_args), {0}, {0}}};
  static const attn_phase phase = {body, tasks, some};
  static const attn_spec specs[] = {{ATTN_ISA_X86_64, ATTN_NONE, 1, 0, &phase,
                                     some},
                                    {ATTN_ISA_AARCH64, ATTN_NONE, 1, 0, &phase,
                                     some}};
  return (attn_program){.abi = ATTN_ABI,
                        .size = sizeof(attn_program),
                        .name = "f",
                        .nparams = 1,
                        .ndims = 1,
                        .nspecs = 2,
                        .params = params,
                        .dims = dims,
                        .specs = specs,
                        .code = code,
                        .ncode = 3,
                        .args_size = sizeof(attn_args) + sizeof(attn_tensor)};
}

// Everything that allocates. Every code but success must be "out of memory";
// a second attempt must work.
static int work(attn_ctx *cx, const char *path, attn_error *e) {
  attn_program p = on_cpu();
  int64_t n = 100;
  attn_tensor y = attn_tensor_dense(memory, ATTN_U8, 1, &n), *at[] = {&y};
  attn_stream cpu = {.ctx = cx};
  int rc = attn_launch(&p, at, NULL, &cpu, e);
  if (rc) return rc;
  attn_module *m = attn_module_open(cx, path, e);
  if (!m) return e->code;
  attn_tensor tensors[ATTN_MAX_PARAMS], *all[ATTN_MAX_PARAMS] = {0};
  attn_scalar scalars[ATTN_MAX_PARAMS] = {0};
  const attn_program *q = attn_module_program(m, 0);
  attn_stream s = {cx, ATTN_CUDA, 0, &s};
  fill_args(q, 64, tensors, all, scalars);
  rc = attn_launch(q, all, scalars, &s, e);
  attn_module_close(m);
  return rc;
}

static void out_of_memory(const char *path) {
  int rounds = 0, failed = 1;
  for (; failed && rounds < 1000; rounds++) {
    Heap h = {.left = rounds};
    attn_ctx_options o = {.size = sizeof o,
                          .threads = 4,
                          .alloc = take,
                          .free = give,
                          .alloc_user = &h};
    attn_error e, again;
    attn_ctx *cx = attn_ctx_create(&o, &e);
    int rc = cx ? work(cx, path, &e) : e.code;
    failed = atomic_load(&h.left) < 0;
    EXPECT(rc == ATTN_OK || (failed && rc == ATTN_E_MEMORY));
    EXPECT(rc == e.code && (rc == ATTN_OK) == !e.text[0]);
    atomic_store(&h.left, -1);
    EXPECT(!cx || work(cx, path, &again) == ATTN_OK);
    attn_ctx_destroy(cx);
    EXPECT(atomic_load(&h.live) == 0);
    EXPECT(mock->allocs == mock->frees && mock->loads == mock->unloads);
  }
  EXPECT(rounds > 10 && rounds < 1000);
  printf("%d allocations\n", rounds - 1);
}

// ---- where memory lies

static void where(void) {
  attn_error e;
  attn_stream s;
  attn_ctx *cx = attn_ctx_create(NULL, NULL);
  EXPECT(attn_stream_of(cx, memory, &s, &e) == 0 && s.kind == ATTN_CPU);
  mock->device_memory = memory + 4096;
  mock->device_bytes = 4096;
  EXPECT(attn_stream_of(cx, memory + 4100, &s, &e) == 0);
  EXPECT(s.kind == ATTN_CUDA && s.device == 1 && s.ctx == cx && !s.handle);
  attn_program p = on_cpu();
  int64_t n = 100;
  attn_tensor y = attn_tensor_dense(memory, ATTN_U8, 1, &n), *at[] = {&y};
  attn_stream any = {cx, ATTN_AUTO, 9, NULL};
  memory[99] = 0;
  EXPECT(attn_launch(&p, at, NULL, &any, &e) == ATTN_OK && memory[99] == 7);
  y.data = memory + 4096;
  EXPECT(attn_launch(&p, at, NULL, &any, &e) == ATTN_E_UNSUPPORTED);
  attn_param_desc two[2] = {p.params[0], p.params[0]};
  attn_tensor z = attn_tensor_dense(memory, ATTN_U8, 1, &n), *both[] = {&y, &z};
  two[1].name = "Z";
  p.params = two;
  p.nparams = 2;
  EXPECT(attn_launch(&p, both, NULL, &any, &e) == ATTN_E_DEVICE && e.arg == 1);
  EXPECT(!strcmp(e.text, "argument 'Z' is in memory of the CPU, 'Y' of CUDA "
                         "device 1"));
  mock->device_bytes = 0;
  attn_ctx_destroy(cx);
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  setenv("ATTN_CUDA_DRIVER", argv[2], 1);
  Bytes b = read_file(argv[1]);
  attn_ctx *cx = attn_ctx_create(NULL, NULL);
  attn_stream s;
  // Nobody has opened the driver yet.
  EXPECT(attn_stream_of(cx, memory, &s, NULL) == 0 && s.kind == ATTN_CPU);
  void *lib = dlopen(argv[2], RTLD_NOW);
  mock = lib ? dlsym(lib, "mock_cuda") : NULL;
  if (!mock || b.n < sizeof(attn_container_header)) return 2;
  EXPECT(load(cx, b.at, b.n) == ATTN_OK && mock->launches > 0);
  printf("%zu bytes\n", b.n);
  where();
  prefixes(cx, &b);
  flips(cx, &b);
  hostile_tables(cx, &b);
  attn_ctx_destroy(cx);
  out_of_memory(argv[1]);
  free(b.at);
  return verdict();
}
