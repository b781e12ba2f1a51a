/** @file attn.h
 * libattn: the runtime of compiled attention programs. C11 and C++17.
 *
 * Ownership: the caller owns every tensor, stream and error. A context owns
 * its threads and its cached workspaces. Nothing here aborts or prints; every
 * failure is a code, and a text where an attn_error is given (NULL is allowed).
 *
 * Threads: every function may be called from any number of threads at once, on
 * one context too; only attn_ctx_destroy and attn_module_close must not run
 * beside a use of what they end.
 */
#ifndef ATTN_H
#define ATTN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

/** Axes of a tensor, at most. */
#define ATTN_MAX_RANK 8

/** Element types, in the order of the compiler's table. */
typedef enum attn_dtype {
  ATTN_F64,
  ATTN_F32,
  ATTN_TF32, /**< stored as f32 */
  ATTN_BF16,
  ATTN_F16,
  ATTN_F8E4M3,
  ATTN_F8E5M2,
  ATTN_I64,
  ATTN_I32,
  ATTN_I16,
  ATTN_I8,
  ATTN_U32,
  ATTN_U16,
  ATTN_U8,
  ATTN_BOOL,
  ATTN_DTYPE_COUNT
} attn_dtype;

/** A strided view of the caller's memory. NULL data of an output: not wanted
 * (its shape is then looked at only if rank is not 0). */
typedef struct attn_tensor {
  void *data;
  int64_t shape[ATTN_MAX_RANK];
  int64_t stride[ATTN_MAX_RANK]; /**< in elements; may be 0 or negative */
  int32_t rank;
  int32_t dtype; /**< attn_dtype */
} attn_tensor;

/** A tensor without gaps, its last axis innermost. A rank out of range gives
 * one that every launch refuses. */
ATTN_API attn_tensor attn_tensor_dense(void *data, int dtype, int rank,
                                       const int64_t *shape);

/** What went wrong. attn_code_text() has a phrase for each. */
typedef enum attn_code {
  ATTN_OK = 0,
  ATTN_E_ARGUMENT,    /**< the call itself is wrong: NULL, bad struct size */
  ATTN_E_ABI,         /**< code and runtime are of different ABI versions */
  ATTN_E_NULL,        /**< a tensor without data */
  ATTN_E_DTYPE,       /**< arg: expected, got are attn_dtype */
  ATTN_E_RANK,        /**< arg */
  ATTN_E_SHAPE,       /**< arg, dim = axis */
  ATTN_E_STRIDE,      /**< arg, dim = axis */
  ATTN_E_ALIGN,       /**< arg */
  ATTN_E_DIM,         /**< a dim out of its range, or not determined */
  ATTN_E_CONSTRAINT,  /**< a `where` of the program is false */
  ATTN_E_UNSUPPORTED, /**< no code for these dims, this CPU or this device */
  ATTN_E_MEMORY,      /**< out of memory, or the given workspace is too small */
  ATTN_E_DEVICE,      /**< a device or its driver failed, or is missing */
  ATTN_E_IO,          /**< a file cannot be read */
  ATTN_E_FORMAT,      /**< not a container, or a damaged one */
  ATTN_E_INTERNAL,    /**< the compiled program contradicts itself */
  ATTN_E_COUNT
} attn_code;

/** Filled by every call that takes one, also by those that succeed. */
typedef struct attn_error {
  int code;              /**< attn_code */
  int arg, dim;          /**< parameter and axis, counted from 0; -1: none */
  int64_t expected, got; /**< 0 where they say nothing */
  char text[256];        /**< one line, always terminated */
} attn_error;

/** "shape mismatch" and the like; never NULL. */
ATTN_API const char *attn_code_text(int code);
/** "bf16"; "?" if out of range. */
ATTN_API const char *attn_dtype_name(int dtype);
/** Bytes of an element, 0 if out of range. */
ATTN_API size_t attn_dtype_size(int dtype);

/* ---- context ---------------------------------------------------------- */

/** Threads, cached workspaces and loaded device code. */
typedef struct attn_ctx attn_ctx;

/** Replaces the thread pool: calls body(arg, i) for every i in [0, n), in any
 * order, on any threads, also one after the other; returns when all are done.
 * n is at most the context's thread count. */
typedef void attn_parallel_for(void *user, int64_t n,
                               void (*body)(void *arg, int64_t i), void *arg);

/** Begin with `attn_ctx_options o = {.size = sizeof o};`. */
typedef struct attn_ctx_options {
  uint32_t size;   /**< sizeof(attn_ctx_options) */
  int32_t threads; /**< 0: ATTN_THREADS, else the CPUs this process may use */
  int32_t isa;     /**< highest attn_isa to use; 0: what the CPU has */
  uint32_t reserved;
  attn_parallel_for *parallel_for; /**< NULL: the context's own pool */
  void *parallel_user;
  /** All host memory of the context; both NULL: the C library. align is a
   * power of 2. They are called from several threads at once: those that run
   * the launch's tasks take their scratch themselves. NULL from alloc makes the
   * call that needed it fail with ATTN_E_MEMORY; the context stays usable. */
  void *(*alloc)(void *user, size_t bytes, size_t align);
  void (*free)(void *user, void *p, size_t bytes);
  void *alloc_user;
} attn_ctx_options;

/** NULL options: all defaults. NULL on failure. */
ATTN_API attn_ctx *attn_ctx_create(const attn_ctx_options *options,
                                   attn_error *err);
/** No launch on ctx may be running. The default context is never destroyed. */
ATTN_API void attn_ctx_destroy(attn_ctx *ctx);
/** Made at first use; NULL only if memory ran out. */
ATTN_API attn_ctx *attn_ctx_default(void);
/** Results never depend on the thread count. */
ATTN_API int attn_ctx_threads(const attn_ctx *ctx);
ATTN_API void attn_ctx_set_threads(attn_ctx *ctx, int threads);
/** Multiprocessors (compute units) that a kernel of a launch takes at most, so
 * that others, as of communication beside it, have the rest; 0: all, as many as
 * there are. For kernels that walk their tasks; small ones have a group of
 * threads for each. Results never depend on it. */
ATTN_API int attn_ctx_units(const attn_ctx *ctx);
ATTN_API void attn_ctx_set_units(attn_ctx *ctx, int units);

/* ---- streams ---------------------------------------------------------- */

typedef enum attn_device_kind {
  ATTN_CPU,      /**< a launch returns when its results are there */
  ATTN_CUDA,     /**< handle is a CUstream */
  ATTN_HIP,      /**< handle is a hipStream_t */
  ATTN_AUTO = 15 /**< where the tensors are; device is not looked at */
} attn_device_kind;

/** Where a launch goes. A NULL stream is the CPU in the default context. */
typedef struct attn_stream {
  attn_ctx *ctx; /**< NULL: the default context */
  int kind;      /**< attn_device_kind */
  int device;    /**< ordinal */
  void *handle;  /**< NULL: the device's default stream */
} attn_stream;

/** Sets kind and device of *out to where `data` lies, its ctx to ctx, its
 * handle to NULL. Memory that no driver knows is the CPU's. Drivers that the
 * process has not opened are not asked: without one there is no such memory. */
ATTN_API int attn_stream_of(attn_ctx *ctx, const void *data, attn_stream *out,
                            attn_error *err);

/* ---- arguments of generated functions --------------------------------- */

/** Every S_P_args starts with these; S_P_args_init fills size and abi, sets
 * the scalars to their defaults and the rest to zero. */
typedef struct attn_args {
  uint32_t size;            /**< sizeof(S_P_args) */
  uint32_t abi;             /**< ATTN_ABI of the header it was compiled with */
  void *workspace;          /**< S_P_workspace() bytes, 64-byte aligned; NULL
                             * on the CPU: cached in the context */
  uint64_t workspace_bytes; /**< what workspace has */
} attn_args;

/* ---- containers ------------------------------------------------------- */

/** A checked container: device code and descriptions of its programs. */
typedef struct attn_module attn_module;

typedef struct attn_section_info {
  uint32_t kind, target; /**< attn_section_kind and target id, attn_abi.h */
  const void *data;      /**< lives as long as the module */
  size_t size;
} attn_section_info;

/** Checks everything and borrows the bytes until attn_module_close; they may
 * come from anybody. NULL on failure. */
ATTN_API attn_module *attn_module_load(attn_ctx *ctx, const void *bytes,
                                       size_t size, attn_error *err);
/** The same for a file, which is read as a whole. */
ATTN_API attn_module *attn_module_open(attn_ctx *ctx, const char *path,
                                       attn_error *err);
ATTN_API void attn_module_close(attn_module *m);
/** Sections of kinds this runtime does not know are not counted. */
ATTN_API uint32_t attn_module_count(const attn_module *m);
/** ATTN_E_ARGUMENT if i is out of range. */
ATTN_API int attn_module_section(const attn_module *m, uint32_t i,
                                 attn_section_info *out);
/** The first section of this kind and target; ATTN_E_UNSUPPORTED if none. */
ATTN_API int attn_module_find(const attn_module *m, uint32_t kind,
                              uint32_t target, attn_section_info *out);

/** A program's descriptor (attn_abi.h): what attn_call and attn_launch take. */
struct attn_program;

/** Programs that the container describes. They have no CPU code: that is in
 * the object or the shared library. */
ATTN_API uint32_t attn_module_programs(const attn_module *m);
/** The i-th of them; NULL if i is out of range. Lives as long as the module,
 * and so must what was launched. */
ATTN_API const struct attn_program *attn_module_program(const attn_module *m,
                                                        uint32_t i);
/** By its name in the source; NULL if there is none. */
ATTN_API const struct attn_program *
attn_module_program_named(const attn_module *m, const char *name);

#ifdef __cplusplus
}
#endif
#endif
