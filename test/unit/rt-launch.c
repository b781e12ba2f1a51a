// Launches of a hand-written program: phases, variants, workspaces, hooks,
// several threads on one context.
#include "expect.h"
#include "runtime/attn_abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 1000, COLS = 33 };

// Phase 1: Y[i, j] = X[i, j] * s, row sums to the shared workspace, by way of
// scratch. Phase 2 (one task): T = sum of the row sums, in order.
static void scale_rows(const attn_kargs *a, int64_t begin, int64_t end,
                       void *scratch) {
  const attn_tensor *x = a->tensors[0], *y = a->tensors[1];
  float *row = scratch, *sums = a->shared;
  int64_t n = a->dims[1];
  for (int64_t i = begin; i < end; i++) {
    float sum = 0;
    for (int64_t j = 0; j < n; j++) {
      const float *at = (const float *)x->data + i * x->stride[0];
      row[j] = at[j * x->stride[1]] * a->scalars[0].f32;
      sum += row[j];
    }
    for (int64_t j = 0; y->data && j < n; j++)
      ((float *)y->data)[i * y->stride[0] + j * y->stride[1]] = row[j];
    sums[i] = sum;
  }
}

// The same, whose first task takes longer than others wait for it.
static void scale_slowly(const attn_kargs *a, int64_t begin, int64_t end,
                         void *scratch) {
  if (begin == 0) usleep(2000);
  scale_rows(a, begin, end, scratch);
}

static void total(const attn_kargs *a, int64_t begin, int64_t end,
                  void *scratch) {
  (void)begin, (void)end, (void)scratch;
  const float *sums = a->shared;
  float t = 0;
  for (int64_t i = 0; i < a->dims[0]; i++) t += sums[i];
  if (a->tensors[2]->data) *(float *)a->tensors[2]->data = t;
}

static void wrong_variant(const attn_kargs *a, int64_t begin, int64_t end,
                          void *scratch) {
  (void)a, (void)begin, (void)end, (void)scratch;
  puts("a variant ran that must not");
  failures++;
}

static int64_t rows(const attn_kargs *a) {
  return a->dims[0];
}
static int64_t one(const attn_kargs *a) {
  (void)a;
  return 1;
}
static int64_t row_bytes(const attn_kargs *a) {
  return 4 * a->dims[1];
}
static int64_t sum_bytes(const attn_kargs *a) {
  return 4 * a->dims[0];
}
static int64_t huge(const attn_kargs *a) {
  (void)a;
  return INT64_MAX / 2;
}

static const attn_phase phases[] = {{scale_rows, rows, row_bytes},
                                    {total, one, NULL}};
static const attn_phase slow[] = {{scale_slowly, rows, row_bytes},
                                  {scale_rows, rows, row_bytes},
                                  {scale_slowly, rows, row_bytes},
                                  {total, one, NULL}};
static const attn_phase wrong[] = {{wrong_variant, one, NULL}};
static const attn_phase greedy[] = {{wrong_variant, one, huge}};

#if defined(__aarch64__)
enum { BASE = ATTN_ISA_AARCH64, FOREIGN = ATTN_ISA_X86_64 };
#else
enum { BASE = ATTN_ISA_X86_64, FOREIGN = ATTN_ISA_AARCH64 };
#endif

enum { X_N, X_M = 3, X_NARROW = 6 };
static const int64_t code[] = {ATTN_X_DIM, 0,         ATTN_X_END,
                               ATTN_X_DIM, 1,         ATTN_X_END,
                               ATTN_X_DIM, 1,         ATTN_X_CONST,
                               8,          ATTN_X_LE, ATTN_X_END};
static const attn_dim_desc dims[] = {{"N", 0, INT64_MAX, 1, ATTN_DIM_DYN,
                                      ATTN_NONE, ATTN_NONE, 0},
                                     {"M", 0, INT64_MAX, 1, ATTN_DIM_DYN,
                                      ATTN_NONE, ATTN_NONE, 0}};

typedef struct Args {  // as a generated header would have it
  attn_args head;
  attn_tensor x;
  float s;
  attn_tensor y, t;
} Args;

static const attn_param_desc params[] = {
    {"X", ATTN_PARAM_IN, ATTN_F32, 2, 0, offsetof(Args, x), {0}, {X_N, X_M}},
    {"s",
     ATTN_PARAM_SCALAR,
     ATTN_F32,
     0,
     0,
     offsetof(Args, s),
     {.f32 = 2},
     {0}},
    {"Y", ATTN_PARAM_OUT, ATTN_F32, 2, 0, offsetof(Args, y), {0}, {X_N, X_M}},
    {"T", ATTN_PARAM_OUT, ATTN_F32, 0, 0, offsetof(Args, t), {0}, {0}}};
static const attn_spec specs[] = {{FOREIGN, ATTN_NONE, 1, 0, wrong, NULL},
                                  {BASE | 0xff, ATTN_NONE, 1, 0, wrong,
                                   NULL},  // a CPU of the far future
                                  {BASE, X_NARROW, 1, 0, greedy, NULL},
                                  {BASE, ATTN_NONE, 2, 0, phases, sum_bytes},
                                  {BASE, ATTN_NONE, 1, 0, wrong, NULL}};
static const attn_program prog = {.abi = ATTN_ABI,
                                  .size = sizeof(attn_program),
                                  .name = "scale",
                                  .nparams = 4,
                                  .ndims = 2,
                                  .nspecs = 5,
                                  .params = params,
                                  .dims = dims,
                                  .specs = specs,
                                  .code = code,
                                  .ncode = sizeof code / sizeof *code,
                                  .args_size = sizeof(Args)};

static float in[ROWS * COLS];

typedef struct Out {
  float y[ROWS * COLS], t;
} Out;

static attn_tensor matrix(float *p, int64_t n, int64_t m) {
  return (attn_tensor){p, {n, m}, {m, 1}, 2, ATTN_F32};
}

static Args arguments(Out *o, int64_t n, int64_t m) {
  Args a;
  attn_args_init(&prog, &a);
  a.x = matrix(in, n, m);
  a.y = matrix(o->y, n, m);
  a.t = (attn_tensor){.data = &o->t, .dtype = ATTN_F32};
  return a;
}

static void fill(void) {
  for (int i = 0; i < ROWS * COLS; i++)
    in[i] = (float)(i * 7919 % 1000) * 0x1p-7f + 0.1f;
}

static bool right(const Out *o) {
  float t = 0;
  for (int i = 0; i < ROWS; i++) {
    float sum = 0;
    for (int j = 0; j < COLS; j++) {
      float v = in[i * COLS + j] * 2;
      sum += v;
      if (memcmp(&v, &o->y[i * COLS + j], sizeof v) != 0) return false;
    }
    t += sum;
  }
  return memcmp(&t, &o->t, sizeof t) == 0;
}

static attn_ctx *context(int threads) {
  attn_ctx_options o = {.size = sizeof o, .threads = threads};
  attn_error e;
  attn_ctx *cx = attn_ctx_create(&o, &e);
  EXPECT(cx && e.code == 0);
  return cx;
}

static void any_thread_count(void) {
  static const int counts[] = {1, 2, 3, 8};
  for (int i = 0; i < 4; i++) {
    attn_stream st = {.ctx = context(counts[i])};
    EXPECT(attn_ctx_threads(st.ctx) == counts[i]);
    for (int k = 0; k < 50; k++) {
      static Out o;
      memset(&o, 0, sizeof o);
      Args a = arguments(&o, ROWS, COLS);
      attn_error e;
      EXPECT(attn_call(&prog, &a, &st, &e) == ATTN_OK && e.code == 0);
      EXPECT(right(&o));
    }
    attn_ctx_destroy(st.ctx);
  }
}

// Threads that wait for the end of a phase, and threads that do not.
static void unlike_tasks(void) {
  attn_spec spec = {BASE, ATTN_NONE, 4, 0, slow, sum_bytes};
  attn_program p = prog;
  attn_stream st = {.ctx = context(6)};
  p.specs = &spec;
  p.nspecs = 1;
  for (int k = 0; k < 20; k++) {
    static Out o;
    memset(&o, 0, sizeof o);
    Args a = arguments(&o, ROWS, COLS);
    EXPECT(attn_call(&p, &a, &st, NULL) == ATTN_OK && right(&o));
  }
  attn_ctx_destroy(st.ctx);
}

typedef struct Client {
  pthread_t thread;
  attn_stream stream;
  Out out;
  bool ok;
} Client;

static void *client(void *arg) {
  Client *c = arg;
  c->ok = true;
  for (int k = 0; k < 40; k++) {
    memset(&c->out, 0, sizeof c->out);
    Args a = arguments(&c->out, ROWS, COLS);
    c->ok &= attn_call(&prog, &a, &c->stream, NULL) == ATTN_OK;
    c->ok &= right(&c->out);
  }
  return NULL;
}

// ctx NULL: all of them make the default context at once.
static void many_clients(attn_ctx *cx) {
  static Client c[4];
  for (int i = 0; i < 4; i++) {
    c[i].stream = (attn_stream){.ctx = cx};
    EXPECT(!pthread_create(&c[i].thread, NULL, client, &c[i]));
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(c[i].thread, NULL);
    EXPECT(c[i].ok);
  }
}

// ---- hooks

typedef struct Hooks {
  int calls;
  atomic_llong live, fail_above;  // bytes held; larger requests fail
} Hooks;

static void backwards(void *user, int64_t n, void (*body)(void *, int64_t),
                      void *arg) {
  ((Hooks *)user)->calls++;
  while (n-- > 0) body(arg, n);
}

static void *counted_alloc(void *user, size_t bytes, size_t align) {
  Hooks *h = user;
  if ((long long)bytes > atomic_load(&h->fail_above)) return NULL;
  atomic_fetch_add(&h->live, (long long)bytes);
  return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void counted_free(void *user, void *p, size_t bytes) {
  atomic_fetch_sub(&((Hooks *)user)->live, (long long)bytes);
  free(p);
}

static void hooks(void) {
  Hooks h = {.fail_above = 1 << 20};
  attn_ctx_options opt = {.size = sizeof opt,
                          .threads = 4,
                          .parallel_for = backwards,
                          .parallel_user = &h,
                          .alloc = counted_alloc,
                          .free = counted_free,
                          .alloc_user = &h};
  attn_stream st = {.ctx = attn_ctx_create(&opt, NULL)};
  static Out o;
  Args a = arguments(&o, ROWS, COLS);
  attn_error e;
  EXPECT(attn_call(&prog, &a, &st, &e) == ATTN_OK && right(&o));
  EXPECT(h.calls == 1 && h.live > ROWS * 4);
  long long held = h.live;
  EXPECT(attn_call(&prog, &a, &st, &e) == ATTN_OK && h.live == held);
  a = arguments(&o, 4, 8);  // the variant that wants absurd scratch
  EXPECT(attn_call(&prog, &a, &st, &e) == ATTN_E_MEMORY);
  EXPECT(strstr(e.text, "bytes of scratch"));
  attn_ctx_destroy(st.ctx);
  EXPECT(h.live == 0);
  h.fail_above = 0;
  EXPECT(!attn_ctx_create(&opt, &e) && e.code == ATTN_E_MEMORY);
  opt.free = NULL;
  EXPECT(!attn_ctx_create(&opt, &e) && e.code == ATTN_E_ARGUMENT);
}

// ---- arguments

static void workspaces(void) {
  static Out o;
  static _Alignas(ATTN_ALIGN) char ws[ROWS * 4 + 1];
  Args a = arguments(&o, ROWS, COLS);
  EXPECT(attn_args_workspace(&prog, &a) == ROWS * 4);
  a.head.workspace = ws;
  a.head.workspace_bytes = sizeof ws - 2;
  attn_error e;
  EXPECT(attn_call(&prog, &a, NULL, &e) == ATTN_E_MEMORY);
  EXPECT(e.expected == ROWS * 4 && e.got == ROWS * 4 - 1);
  a.head.workspace_bytes = ROWS * 4;
  EXPECT(attn_call(&prog, &a, NULL, &e) == ATTN_OK && right(&o));
  a.head.workspace = ws + 1;
  EXPECT(attn_call(&prog, &a, NULL, &e) == ATTN_E_ALIGN);
}

static void edges(void) {
  static Out o;
  attn_error e;
  Args a = arguments(&o, 0, COLS);  // no rows: T is still written
  o.t = 5;
  EXPECT(attn_call(&prog, &a, NULL, &e) == ATTN_OK && o.t == 0);
  a = arguments(&o, ROWS, COLS);
  memset(&a.y, 0, sizeof a.y);  // not wanted
  memset(&o, 0, sizeof o);
  EXPECT(attn_call(&prog, &a, NULL, NULL) == ATTN_OK);
  EXPECT(o.t > 0 && o.y[0] == 0);
  attn_stream gpu = {.kind = ATTN_CUDA};
  EXPECT(attn_call(&prog, &a, &gpu, &e) == ATTN_E_UNSUPPORTED);
  a.head.size--;
  EXPECT(attn_call(&prog, &a, NULL, &e) == ATTN_E_ABI);
  EXPECT(attn_call(&prog, NULL, NULL, &e) == ATTN_E_ARGUMENT);
  attn_program none = prog;
  a = arguments(&o, ROWS, COLS);
  none.nspecs = 2;
  EXPECT(attn_call(&none, &a, NULL, &e) == ATTN_E_UNSUPPORTED);
  EXPECT(strstr(e.text, "no code for this CPU"));
  none.nspecs = 3;
  EXPECT(attn_call(&none, &a, NULL, &e) == ATTN_E_UNSUPPORTED);
  EXPECT(strstr(e.text, "these dims"));
}

// ---- outputs that share memory

static void refused(const Args *a, int code_, const char *part) {
  attn_error e;
  EXPECT(attn_call(&prog, a, NULL, &e) == code_ && e.arg == 2);
  EXPECT(strstr(e.text, part) != NULL);
}

static void overlaps(void) {
  static Out o;
  attn_error e;
  Args a = arguments(&o, ROWS, COLS);
  a.y.data = in;
  refused(&a, ATTN_E_ARGUMENT, "'Y', an output, lies in the memory of 'X'");
  a.y.data = in + ROWS * COLS - 1;
  refused(&a, ATTN_E_ARGUMENT, "'Y', an output, lies in the memory of 'X'");
  a = arguments(&o, ROWS, COLS);
  a.t.data = &o.y[5];
  refused(&a, ATTN_E_ARGUMENT, "'Y', an output, lies in the memory of 'T'");
  a = arguments(&o, 20, COLS);
  a.y.stride[0] = COLS - 1;
  refused(&a, ATTN_E_STRIDE, "in one place with those of axis 1");
  a.y.stride[0] = -1;
  refused(&a, ATTN_E_STRIDE, "in one place with those of axis 1");
  a.y.stride[0] = 0;
  refused(&a, ATTN_E_STRIDE, "stride 0");
  // Rows that lie between each other's, backwards; one beside the other.
  a = arguments(&o, 10, COLS);
  a.x.data = o.y;
  a.y.data = o.y + 19 * COLS;
  a.x.stride[0] = 2 * COLS;
  a.y.stride[0] = -2 * COLS;
  EXPECT(attn_call(&prog, &a, NULL, &e) == ATTN_OK);
  a = arguments(&o, 10, COLS);
  a.x.data = o.y;
  a.y.data = o.y + 10 * COLS;
  EXPECT(attn_call(&prog, &a, NULL, &e) == ATTN_OK);
}

// ---- where calls come from

static void *call_once(void *ok) {
  static Out o;
  attn_error e;
  Args a = arguments(&o, ROWS, COLS);
  *(bool *)ok = attn_call(&prog, &a, NULL, &e) == ATTN_OK && right(&o);
  return NULL;
}

// A thread whose stack is as small as some languages' are.
static void small_stack(void) {
  size_t most = 64 * 1024, least = (size_t)sysconf(_SC_THREAD_STACK_MIN);
  pthread_attr_t attr;
  pthread_t t;
  bool ok = false;
  pthread_attr_init(&attr);
  EXPECT(!pthread_attr_setstacksize(&attr, least > most ? least : most));
  EXPECT(!pthread_create(&t, &attr, call_once, &ok) && !pthread_join(t, NULL));
  EXPECT(ok);
  pthread_attr_destroy(&attr);
}

// Threads of the pool are not there in a child: its calls go without, or begin
// anew, but they end.
static void forked(void) {
  int status = 1;
  bool ok = false;
  call_once(&ok);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    call_once(&ok);
    _exit(!ok);
  }
  EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
  call_once(&ok);
  EXPECT(ok);
}

int main(void) {
  fill();
  any_thread_count();
  unlike_tasks();
  many_clients(NULL);
  attn_ctx *cx = context(3);
  many_clients(cx);
  attn_ctx_set_threads(cx, 2);
  many_clients(cx);
  attn_ctx_destroy(cx);
  hooks();
  workspaces();
  edges();
  overlaps();
  small_stack();
  forked();
  return verdict();
}
