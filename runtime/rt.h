// Private to libattn. Every struct here is the context's or lives on the
// stack of one launch; see attn.h for who owns what.
#ifndef ATTN_RT_H
#define ATTN_RT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE  // sched_getaffinity, clock_gettime
#endif

#include "attn_abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

// ---- error.c
// Fills *err (may be NULL) and returns code.
int rt_ok(attn_error *err);
int rt_fail(attn_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// The same for a parameter's axis (-1: none) with expected and got.
typedef struct Where {
  int arg, dim;
  int64_t expected, got;
} Where;
int rt_fail_at(attn_error *err, int code, Where w, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

// ---- cpu.c
int rt_cpu_count(void);      // CPUs this process may run on, at least 1
void rt_cpu_pause(void);     // inside a spin loop
uint64_t rt_fp_enter(void);  // default floating-point environment; the old one
void rt_fp_leave(uint64_t);  // back to it
int64_t rt_now_ns(void);     // monotonic

// ---- openmp.c: the runtime that the process has
typedef struct OpenMp {
  void (*parallel)(void (*body)(void *arg), void *arg, unsigned threads,
                   unsigned flags);  // NULL: there is none
  int (*max_threads)(void), (*number)(void), (*inside)(void);
  int process;  // getpid() of the one that looked
} OpenMp;

void rt_openmp_find(OpenMp *o);
// May n indices be run by the team of the calling thread?
bool rt_openmp_has(const OpenMp *o, int64_t n);

// ---- pool.c: a parallel-for over lazily started threads
typedef struct Job Job;
typedef struct Worker Worker;
enum { RT_SLOTS = 16, RT_LINE = 64 };  // calls at once; bytes of a cache line

typedef struct Slot {  // of a call's job, which is on the caller's stack
  _Alignas(RT_LINE) _Atomic(Job *) job;
  atomic_int inside;  // workers that may use it
  atomic_bool used;   // by a call
} Slot;

typedef struct Pool {
  attn_ctx *cx;   // whose memory it takes
  int process;    // getpid() of the one that has the workers
  OpenMp openmp;  // whose threads are taken instead where they are enough
  pthread_mutex_t lock;
  pthread_cond_t done;
  Slot slots[RT_SLOTS];
  atomic_uint posted;  // counts posts, so that spinning workers see one
  atomic_int nwait;    // callers that sleep until their workers are done
  atomic_int nspin;    // workers that spin until a post
  atomic_bool stop;
  int nworkers;      // threads started
  Worker **workers;  // capacity max
  int max;
} Pool;

bool rt_pool_init(Pool *p, attn_ctx *cx);
void rt_pool_close(Pool *p);  // joins; no job may be open
// An attn_parallel_for over `Pool *`, usable from several threads at once.
void rt_pool_run(void *pool, int64_t n, void (*body)(void *arg, int64_t i),
                 void *arg);

// ---- ctx.c
typedef struct Buffer {
  struct Buffer *next;
  void *p;  // ATTN_ALIGN aligned
  size_t size;
} Buffer;
enum { RT_NO_LANE = -1, RT_LANES = 64 };

typedef struct Kept {  // the buffer that a lane had last, if it is idle
  _Alignas(RT_LINE) _Atomic(Buffer *) buffer;
} Kept;

enum { RT_LEVELS = 8 };  // of a family of CPUs, at most

typedef struct GpuSet GpuSet;

struct attn_ctx {
  attn_ctx_options opt;     // alloc, free and parallel_for are set
  int isa;                  // the highest level to use
  uint8_t rank[RT_LEVELS];  // of the levels up to it: attn_cpu_rank
  atomic_int threads;
  atomic_int units;  // of a GPU that a launch takes at most; 0: all
  Pool pool;
  Kept kept[RT_LANES];     // lanes begin together: each its own, without a lock
  pthread_mutex_t lock;    // of idle
  Buffer *idle;            // cached buffers nobody uses and no lane keeps
  _Atomic(GpuSet *) gpus;  // made at the first launch on one
};

// A buffer of at least bytes > 0, or NULL. Contents are undefined. lane: whose
// last one it is, if that is idle, as its core may have it in its caches.
Buffer *rt_buffer_get(attn_ctx *cx, size_t bytes, int64_t lane);
void rt_buffer_put(attn_ctx *cx, Buffer *b, int64_t lane);  // b may be NULL
void *rt_alloc(attn_ctx *cx, size_t bytes);
void rt_free(attn_ctx *cx, void *p, size_t bytes);

// ---- load.c
// By the number in the container's table; NULL: none, or of an unknown kind.
const attn_section_info *rt_section(const attn_module *m, uint32_t number);

// The container alone: the descriptions of its programs are not read.
attn_module *rt_module_load(attn_ctx *cx, const void *bytes, size_t size,
                            attn_error *err);

// ---- program.c
// A checked copy of a section of kind ATTN_SEC_PROGRAM.
int rt_program_read(attn_ctx *cx, const attn_section_info *s,
                    const void *container, attn_program **out, attn_error *err);
void rt_program_free(attn_ctx *cx, attn_program *p);  // p may be NULL

// ---- kernels.c: the records of a section of kind ATTN_SEC_KERNELS
typedef struct Kernels {
  uint32_t target;
  attn_gpu_variant *variants;
  attn_gpu_phase *phases;
  attn_gpu_map *maps;
  int64_t *code;
  char *strings;  // ends with a zero
  uint32_t nvariants, nphases, nmaps, ncode, nstrings;
  void *owned;
  size_t owned_size;
} Kernels;

// A checked copy: every index is in range, every name ends, the code sections
// exist. Expressions are checked when they are evaluated.
int rt_kernels_read(attn_ctx *cx, const attn_module *m,
                    const attn_section_info *s, Kernels *out, attn_error *err);
void rt_kernels_free(attn_ctx *cx, Kernels *k);
// Whether v has machine code: in one piece, or its phases each have theirs.
bool rt_kernels_binary(const Kernels *k, const attn_gpu_variant *v);
// Whether a table of records of at least `least` bytes lies in a section.
bool rt_table_sound(size_t section, const attn_table *t, size_t least);

// ---- expr.c
typedef struct Env {
  const attn_program *prog;
  const attn_tensor *const *tensors;
  const attn_scalar *scalars;
  uint32_t ntensors, nscalars;
  const int64_t *dims;
  const bool *known;  // per dim
} Env;

typedef enum ExprStatus {
  EX_OK,
  EX_UNKNOWN,   // more than one unknown dim, or not affine in it
  EX_OVERFLOW,  // or a division by zero
  EX_BAD        // malformed code
} ExprStatus;

// a * dims[unknown] + b; a = 0 and unknown = ATTN_NONE if all dims are known.
typedef struct Affine {
  int64_t a, b;
  uint32_t unknown;
} Affine;

typedef struct ExprOp {
  int words, args;  // operand words, arguments on the stack
} ExprOp;

// False: there is no such operation, or its words are cut off.
bool rt_expr_op(const attn_program *prog, uint32_t at, ExprOp *out);
// w: an operation without arguments and its words.
ExprStatus rt_expr_leaf(const Env *env, const int64_t *w, Affine *out);
// The same of what is known. False: it is not, or malformed.
bool rt_expr_known(const Env *env, const int64_t *w, int64_t *out);
// False: overflow or division by zero.
bool rt_expr_apply(int64_t op, int64_t x, int64_t y, int64_t *out);
ExprStatus rt_expr_affine(const Env *env, uint32_t at, Affine *out);
// EX_UNKNOWN as soon as one dim is unknown.
ExprStatus rt_expr_eval(const Env *env, uint32_t at, int64_t *out);
// Infix text, for messages.
void rt_expr_text(const attn_program *prog, uint32_t at, char *buf, size_t n);

// ---- plan.c
enum { PLAN_OPS = 512, PLAN_ROOTS = 256 };

typedef struct PlanOp {  // its words, or the operations that are its arguments
  int64_t op, w[2];
  int args;
} PlanOp;

typedef struct PlanRoot {  // the operation that is an expression's value
  uint32_t at;
  uint16_t op;
} PlanRoot;

typedef struct Plan {
  uint32_t nops, nroots;
  PlanOp op[PLAN_OPS];
  PlanRoot root[PLAN_ROOTS];
} Plan;

typedef struct PlanValues {
  const Plan *plan;
  int64_t at[PLAN_OPS];
  bool ok[PLAN_OPS];  // else an overflow, a division by zero, an unknown dim in
                      // it
} PlanValues;

// Of a variant's workspace, tasks and places, as far as there is room. view:
// the program with k's code.
void rt_plan_make(const attn_program *view, const Kernels *k,
                  const attn_gpu_variant *v, Plan *out);
void rt_plan_eval(const Plan *p, const Env *env, PlanValues *out);
// False: this expression is not in the plan or has no value; rt_expr_eval
// knows.
bool rt_plan_value(const PlanValues *v, uint32_t at, int64_t *out);

// ---- ragged.c
// The greatest length of a ragged dim with `by`; no length may exceed limit.
int rt_ragged(const Env *env, uint32_t dim, int64_t limit, int64_t *max,
              attn_error *err);

// ---- solve.c
// Solves and checks; dims has ATTN_MAX_DIMS entries. A ragged dim without a
// padded axis becomes the greatest length, or -1, and stays unknown in known.
// Also fills tensors (ATTN_MAX_PARAMS): those given with NULL pointers
// replaced, absent ones that count as zeros by rt_zero with strides 0.
extern const char rt_zero[64];
typedef struct Solved {
  int64_t dims[ATTN_MAX_DIMS];
  bool known[ATTN_MAX_DIMS];
  const attn_tensor *tensors[ATTN_MAX_PARAMS];
  Env env;                             // over the above
  attn_tensor zeros[ATTN_MAX_PARAMS];  // those that tensors has for absent ones
} Solved;

// device: the data is not in host memory, so lengths are not read.
int rt_solve(const attn_program *prog, attn_tensor *const *tensors,
             const attn_scalar *scalars, bool device, Solved *out,
             attn_error *err);

// ---- overlap.c
// tensors: of a call that rt_solve took, in order.
int rt_overlap(const attn_program *p, const attn_tensor *const *tensors,
               attn_error *err);

// ---- gpu.c
typedef struct GpuCall {
  const Solved *solved;
  const attn_scalar *scalars;
  uint64_t given;
  void *workspace;
  uint64_t workspace_bytes;
  void *stream;
  const void *args;  // that tell all but the stream, or NULL
  size_t nargs;
} GpuCall;

int rt_gpu_launch(attn_ctx *cx, int kind, int ordinal, const attn_program *prog,
                  const GpuCall *c, attn_error *err);
// Launches a call whose arguments came before; of `c` only arguments, workspace
// and stream are read. RT_NOT_KEPT: they did not, or there is no device.
enum { RT_NOT_KEPT = -1 };
int rt_gpu_again(attn_ctx *cx, int kind, int ordinal, const attn_program *prog,
                 const GpuCall *c, attn_error *err);
// Bytes that a launch on some device may need.
int64_t rt_gpu_workspace(attn_ctx *cx, const attn_program *prog,
                         const Solved *s);
// Whether the object has device code at all.
bool rt_gpu_code(const attn_program *prog);
void rt_gpu_close(attn_ctx *cx);
// The device that `data` is memory of: kind and ordinal; the CPU if no driver
// that the process has opened knows it.
int rt_gpu_where(attn_ctx *cx, const void *data, int *kind, int *ordinal,
                 attn_error *err);

#endif
