/* What generated code and the runtime share: the container, the kernel calling
 * convention, the program descriptor. 64-bit hosts (pointers of 8 bytes).
 *
 * For a program P of file S an object has
 *   const attn_program S_P_program            the descriptor, .data.rel.ro
 *   int S_P(const S_P_args *a, attn_stream *s, attn_error *e)
 *       { return attn_call(&S_P_program, a, s, e); }
 *   void S_P_args_init(S_P_args *a) { attn_args_init(&S_P_program, a); }
 *   size_t S_P_workspace(const S_P_args *a)
 *       { return attn_args_workspace(&S_P_program, a); }
 *   int __tvm_ffi_S_P(void *self, const void *v, int32_t n, void *r)
 *       { return attn_tvm_ffi(&S_P_program, v, n, r); }
 * An S_P_args is the fields of attn_args, then one field per parameter in
 * declaration order: an attn_tensor by value, or for a scalar `float` (floats
 * up to 32 bits), `double` (f64) or `int64_t` (integers, bool).
 */
#ifndef ATTN_ABI_H
#define ATTN_ABI_H

#include "attn.h"

#ifdef __cplusplus
extern "C" {
#define ATTN_ASSERT_(c, text) static_assert(c, text)
#else
#define ATTN_ASSERT_(c, text) _Static_assert(c, text)
#endif

/* Version of everything in this file. Same major: works together. */
#define ATTN_ABI_MAJOR 1
#define ATTN_ABI_MINOR 0
#define ATTN_ABI ((ATTN_ABI_MAJOR << 16) | ATTN_ABI_MINOR)

#define ATTN_MAX_DIMS 64   /* dim symbols of a program */
#define ATTN_MAX_PARAMS 64 /* parameters of a program */
#define ATTN_ALIGN 64      /* of scratch and shared workspace */
#define ATTN_NONE UINT32_MAX

/* ---- container --------------------------------------------------------
 * Little-endian, offsets only. header, section table, payloads. Offsets count
 * from the header's first byte, are multiples of 16 and lie behind the table.
 * hash is XXH3-64 (seed 0) of the whole container with the hash field zero. */

#define ATTN_MAGIC \
  "\x7f" \
  "ATN" /* 4 bytes */
#define ATTN_CONTAINER_MAJOR 1
/* 1: ATTN_SEC_PROGRAM; 2: ATTN_GPU_OWN; 3: attn_gpu_phase.makes;
 * 4: attn_gpu_phase.numbers; 5: ATTN_GPU_COPIES;
 * 6: ATTN_GPU_PADDED */
#define ATTN_CONTAINER_MINOR 6

typedef struct attn_container_header {
  uint8_t magic[4];
  uint16_t major, minor; /* an unknown major is refused */
  uint64_t length;       /* of the whole container */
  uint64_t hash;
  uint32_t nsections;
  uint32_t section_size; /* stride of the table, >= sizeof(attn_section) */
} attn_container_header;

typedef struct attn_section {
  uint32_t kind;   /* attn_section_kind; an unknown one is skipped */
  uint32_t target; /* ATTN_TARGET_*, 0: none */
  uint64_t offset, length;
} attn_section;

typedef enum attn_section_kind {
  ATTN_SEC_META = 1, /* JSON text about the programs */
  ATTN_SEC_STRINGS,  /* zero-terminated names */
  ATTN_SEC_ENTRIES,  /* attn_entry records */
  ATTN_SEC_PTX,
  ATTN_SEC_CUBIN,
  ATTN_SEC_HSACO,
  ATTN_SEC_KERNELS, /* attn_kernels_header, of one target */
  ATTN_SEC_PROGRAM, /* attn_program_record, of one program */
  ATTN_SEC_COUNT
} attn_section_kind;

/* What a device kernel is for; reserved from the start. */
typedef enum attn_entry_kind {
  ATTN_ENTRY_FWD = 1,
  ATTN_ENTRY_BWD,
  ATTN_ENTRY_COMBINE,
  ATTN_ENTRY_PREP,
  ATTN_ENTRY_DECODE
} attn_entry_kind;

typedef struct attn_entry {
  uint32_t kind;    /* attn_entry_kind */
  uint32_t target;  /* as in attn_section */
  uint32_t program; /* offset of its name in ATTN_SEC_STRINGS */
  uint32_t symbol;  /* likewise: the kernel's name in the code section */
} attn_entry;

/* sm_90a: ATTN_TARGET_SM(90, 1); gfx942: ATTN_TARGET_GFX(0x942). */
#define ATTN_TARGET_SM(cc, a) (0x10000u | ((uint32_t)(cc) << 1) | (a))
#define ATTN_TARGET_GFX(hex) (0x20000u | (uint32_t)(hex))

/* The hash field's value for these bytes (n >= the header's size). */
ATTN_API uint64_t attn_container_hash(const void *bytes, size_t n);

/* ---- device kernels ----------------------------------------------------
 * A section of kind ATTN_SEC_KERNELS: the header, then the tables it names.
 * Names are offsets in `strings`, expressions (see below) and word lists are
 * indexes in `code`. ATTN_NONE stands for a missing one.
 *
 * A kernel has one parameter, a block in parameter space of 64-byte alignment:
 *   per tensor parameter, in order: u64 data, i64 shape[rank],
 *                                   i64 stride[rank] (elements)
 *   per scalar parameter: attn_scalar
 *   u64 given; i64 dims[]; i64 numbers[]; i64 ntasks; u64 workspace;
 *   u64 counter
 *   zeros up to a multiple of 64, then the maps of the phase, 128 bytes each
 * data is 0 for what is not wanted or not given; such a tensor's shape and
 * strides are 0, and so is its map. counter points to a u32 that is 0 when the
 * kernel starts and that the kernel must leave at 0. */

#define ATTN_MAX_BLOCK 4096 /* bytes of a parameter block */
#define ATTN_MAX_MAPS 16    /* maps of a phase */
#define ATTN_MAX_PHASES 48  /* phases of a variant */
#define ATTN_MAX_NUMBERS 24 /* that the host computes for a phase */
#define ATTN_MAP_RANK 5     /* axes of a map */
#define ATTN_MAP_BYTES 128  /* a CUtensorMap */
#define ATTN_MAP_ROW 16     /* bytes: its strides are multiples */

typedef struct attn_table {
  uint32_t at;   /* bytes from the section's first; a multiple of 8 */
  uint32_t n;    /* records */
  uint32_t size; /* of one record, >= that of the struct here */
} attn_table;

typedef struct attn_kernels_header {
  attn_table variants; /* attn_gpu_variant */
  attn_table phases;   /* attn_gpu_phase */
  attn_table maps;     /* attn_gpu_map */
  attn_table code;     /* int64_t */
  attn_table strings;  /* char */
  uint32_t reserved;   /* 0 */
} attn_kernels_header;

/* The code of one specialization. Of a program's variants for the device's
 * target the first whose `when` holds and whose maps can be made is run. */
typedef struct attn_gpu_variant {
  uint32_t program;        /* name */
  uint32_t when;           /* expression */
  uint32_t dims;           /* {n, i1 .. in}: the block's dims; NONE: all */
  uint32_t workspace;      /* expression: bytes, kept over the phases */
  uint32_t phase, nphases; /* run in order */
  uint32_t code[2];        /* section numbers: machine code, then text that the
                            * driver compiles. No machine code: its phases may
                            * each have their own */
} attn_gpu_variant;

typedef enum attn_gpu_ctas {
  ATTN_CTAS_TASKS,     /* a group of threads for each task */
  ATTN_CTAS_PERSISTENT /* min(ntasks, what fits on the device) */
} attn_gpu_ctas;

typedef enum attn_gpu_flag {
  ATTN_GPU_COUNTER = 1, /* the kernel uses `counter` */
  ATTN_GPU_LOCAL = 2,   /* it may use local memory (spills, arrays) */
  ATTN_GPU_WAITS = 4,   /* before it touches memory it waits for the kernels in
                         * front of it: it may start while those of its call
                         * end */
  ATTN_GPU_OWN = 8,     /* it has machine code of its own, in section `code` */
  ATTN_GPU_ONCE = 16,   /* what its maps copy is read once: lines of 128 bytes
                         * are fetched, not pairs (others: 256) */
  ATTN_GPU_COPIES = 32, /* of a variant's first phase: where no variant takes a
                         * call's tensors, this one may run over copies, in
                         * workspace in front of its own, of those that it has
                         * maps of */
  ATTN_GPU_PADDED = 64  /* rows of what its maps show in workspace begin at
                         * multiples of 16 bytes: what is between is nobody's */
} attn_gpu_flag;

typedef struct attn_gpu_phase {
  uint32_t symbol;       /* name in the code */
  uint32_t ntasks;       /* expression; 0: the phase is left out */
  uint32_t threads;      /* of a group */
  uint32_t shared_bytes; /* dynamic shared memory of a group */
  uint16_t ctas, flags;  /* attn_gpu_ctas, attn_gpu_flag */
  uint32_t block_bytes;  /* of the parameter block: a check */
  uint32_t map, nmaps;
  uint32_t code; /* section number, if ATTN_GPU_OWN; else 0 */
  /* Bit i of the two: it writes tensor i, and no more than such tensors. It is
   * left out where all have NULL data; 0: it always runs. */
  uint32_t makes[2];
  /* {n, e1 .. en}: expressions whose values the block has behind the dims, in
   * that order; 0: none. */
  uint32_t numbers;
} attn_gpu_phase;

/* How boxes of a tensor are copied to and from shared memory. Axis i of the
 * map is axis[i] of the tensor, the innermost first, whose stride is 1. */
typedef struct attn_gpu_map {
  uint32_t tensor;  /* counted among the tensors; ATTN_NONE: in workspace */
  uint16_t rank;    /* that of the tensor, at most ATTN_MAP_RANK */
  uint16_t swizzle; /* 0, 32, 64 or 128 bytes */
  uint8_t axis[8];
  uint16_t box[8]; /* elements, 1 .. 256 */
  /* Of a tensor in workspace, which lies densely but for ATTN_GPU_PADDED: */
  uint32_t place; /* expression: bytes from the workspace's first */
  uint32_t dtype;
  uint32_t extent[6]; /* expressions, in the tensor's order */
} attn_gpu_map;

/* ---- CPU levels -------------------------------------------------------
 * Family in bits 8.., level below; a CPU runs its family's lower levels. */

typedef enum attn_isa {
  ATTN_ISA_X86_64 = 0x100,
  ATTN_ISA_X86_64_V3,
  ATTN_ISA_X86_64_V4,
  ATTN_ISA_X86_64_V4_BF16, /* + avx512_bf16 */
  ATTN_ISA_X86_64_V4_AMX,  /* + avx512_bf16, amx_tile, amx_bf16 */
  ATTN_ISA_AARCH64 = 0x200,
  ATTN_ISA_AARCH64_BF16 /* + bf16 (BFDOT, BFCVT) */
} attn_isa;

/* The highest level of this CPU (and of the operating system's support). */
ATTN_API int attn_cpu_isa(void);
/* Of levels that this CPU runs the highest rank gives most; 0: it does not. */
ATTN_API int attn_cpu_rank(int isa);
/* Why a level gives less here than one below it, or is not run; "" if so. */
ATTN_API const char *attn_cpu_why(int isa);

/* ---- kernels ---------------------------------------------------------- */

typedef union attn_scalar {
  float f32; /* floats of up to 32 bits */
  double f64;
  int64_t i64; /* integers and bool */
} attn_scalar;

typedef struct attn_kargs {
  /* The tensor parameters in declaration order (inputs, then outputs). No
   * pointer is NULL; data is NULL for an output that is not wanted, whose
   * shape and strides then mean nothing. */
  const attn_tensor *const *tensors;
  const attn_scalar *scalars; /* the scalar parameters in declaration order */
  /* The program's dims in module order. A ragged dim bounds the lengths of
   * all sequences: the extent of its padded axis, else the greatest length; -1
   * if neither is known. */
  const int64_t *dims;
  int64_t ntasks; /* of the phase that runs */
  void *shared;   /* shared_bytes() bytes, uninitialized, kept over phases */
  uint64_t given; /* bit i: scalar i was passed (see ATTN_PARAM_COMPUTED) */
} attn_kargs;

/* Does the tasks [begin, end) of one phase. How [0, ntasks) is cut, by whom
 * and in which order it is run must not change a bit of the result. scratch
 * is this thread's scratch_bytes(), uninitialized. The floating-point
 * environment is the default one (nearest even, denormals kept). */
typedef void attn_kernel(const attn_kargs *a, int64_t begin, int64_t end,
                         void *scratch);
/* A count computed from the arguments; negative: cannot be represented. Called
 * with ntasks = 0 and shared = NULL. A NULL pointer counts as 0. */
typedef int64_t attn_count(const attn_kargs *a);

/* Phases run in order with a barrier between them. */
typedef struct attn_phase {
  attn_kernel *kernel;
  attn_count *ntasks;        /* 0: the phase is left out */
  attn_count *scratch_bytes; /* per thread */
} attn_phase;

/* ---- expressions ------------------------------------------------------
 * Postfix code of int64 words in attn_program.code; an expression is the index
 * of its first word. Operands and booleans (0, 1) are int64 on a stack of
 * ATTN_X_DEPTH; an overflow or a division by 0 makes the launch fail.
 * `B + 1`:        DIM 0  CONST 1  ADD  END
 * `Hq % Hk == 0`: DIM 1  DIM 2  MOD  CONST 0  EQ  END
 */
#define ATTN_X_DEPTH 32

typedef enum attn_xop {
  ATTN_X_END,
  ATTN_X_CONST,  /* next word: value */
  ATTN_X_DIM,    /* next word: dim index */
  ATTN_X_SCALAR, /* next word: scalar index; integer scalars only */
  ATTN_X_SHAPE,  /* next words: tensor index, axis */
  ATTN_X_STRIDE, /* next words: tensor index, axis; 1 if the extent is <= 1 */
  ATTN_X_ADD,    /* a b -> a + b */
  ATTN_X_SUB,
  ATTN_X_MUL,
  ATTN_X_FLOORDIV, /* rounds down */
  ATTN_X_MOD,      /* sign of the divisor */
  ATTN_X_MIN,
  ATTN_X_MAX,
  ATTN_X_EQ,
  ATTN_X_NE,
  ATTN_X_LT,
  ATTN_X_LE,
  ATTN_X_AND, /* both operands are evaluated */
  ATTN_X_OR,
  ATTN_X_NOT, /* a -> a == 0 */
  ATTN_X_COUNT
} attn_xop;

/* ---- descriptor ------------------------------------------------------- */

typedef enum attn_dim_kind {
  ATTN_DIM_DYN,   /* any value in [lo, hi] that divisor divides */
  ATTN_DIM_CONST, /* one of a list */
  ATTN_DIM_RAGGED /* a value per sequence; the dim bounds them all */
} attn_dim_kind;

typedef struct attn_dim_desc {
  const char *name;
  int64_t lo, hi;  /* inclusive; hi = INT64_MAX: no bound */
  int64_t divisor; /* >= 1 */
  uint32_t kind;   /* attn_dim_kind */
  uint32_t values; /* CONST: index in code of the words {n, v1 .. vn}, or
                    * ATTN_NONE: any */
  /* RAGGED: the tensor (counted among the tensors) whose one axis holds the
   * lengths of B sequences, or, if by_offsets is 1, their B + 1 offsets; or
   * ATTN_NONE. The dim is then its padded axis's extent, which no length may
   * exceed, or the greatest length if there is no such axis. On a device
   * lengths are not read: it is the dim NAME_total if there is one (the extent
   * of the axis where all sequences lie end to end), else the slots of the
   * largest paged array (dim ARRAY_blocks times its fixed extents). */
  uint32_t by, by_offsets;
} attn_dim_desc;

typedef enum attn_param_kind {
  ATTN_PARAM_IN,
  ATTN_PARAM_OUT, /* NULL data: not wanted */
  ATTN_PARAM_INOUT,
  ATTN_PARAM_SCALAR
} attn_param_kind;

typedef enum attn_param_flag {
  /* The default is computed by the kernel: a scalar that holds the bits of
   * `def` counts as not given. */
  ATTN_PARAM_COMPUTED = 2,
  /* An IN tensor that counts as zeros where its data is NULL: kernels then get
   * one zero with strides 0. Runtimes from before it refuse NULL. */
  ATTN_PARAM_OPTIONAL = 4
} attn_param_flag;

typedef struct attn_param_desc {
  const char *name;
  uint8_t kind;    /* attn_param_kind */
  uint8_t dtype;   /* attn_dtype */
  uint8_t rank;    /* of the physical array; 0 for a scalar */
  uint8_t flags;   /* attn_param_flag */
  uint32_t offset; /* of its field in S_P_args */
  attn_scalar def; /* a scalar's default, else 0 */
  /* Expressions of the extents of the *physical* array: a ragged layout has no
   * batch axis and one concatenated axis; a paged one has the block number for
   * the batch axis and the page size for the ragged one. ATTN_NONE: any extent
   * (>= 0). A plain ragged dim here is a padded axis. */
  uint32_t axis[ATTN_MAX_RANK];
} attn_param_desc;

/* One variant of the code. Of those whose isa the CPU has and whose `when`
 * holds, the highest attn_cpu_rank wins, then the first in the table. */
typedef struct attn_spec {
  uint32_t isa;  /* attn_isa */
  uint32_t when; /* expression, e.g. `D == 64 and stride(Q, 3) == 1`, or
                  * ATTN_NONE: always */
  uint32_t nphases;
  uint32_t reserved; /* 0 */
  const attn_phase *phases;
  attn_count *shared_bytes;
} attn_spec;

typedef struct attn_program {
  uint32_t abi;  /* ATTN_ABI */
  uint32_t size; /* sizeof(attn_program) */
  const char *name;
  uint32_t nparams, ndims, nchecks, nspecs;
  const attn_param_desc *params; /* in declaration order, outputs last */
  const attn_dim_desc *dims;     /* in module order */
  const uint32_t *checks;        /* expressions that must hold: `where` */
  const attn_spec *specs;
  const int64_t *code;   /* every expression and value list */
  uint32_t ncode;        /* words in code */
  uint32_t args_size;    /* sizeof(S_P_args) */
  const void *container; /* device code of this object, or NULL */
} attn_program;

/* ---- descriptors in containers -----------------------------------------
 * A section of kind ATTN_SEC_PROGRAM: the record, then its tables. It says what
 * an attn_program says, less the code for CPUs. Names are offsets in
 * `strings`. */

typedef struct attn_program_record {
  uint32_t abi, args_size;
  uint32_t name;
  attn_table params;  /* attn_param_record */
  attn_table dims;    /* attn_dim_record */
  attn_table checks;  /* uint32_t */
  attn_table code;    /* int64_t */
  attn_table strings; /* char */
} attn_program_record;

typedef struct attn_param_record {
  attn_scalar def;
  uint32_t name;
  uint8_t kind, dtype, rank, flags;
  uint32_t offset;
  uint32_t reserved; /* 0 */
  uint32_t axis[ATTN_MAX_RANK];
} attn_param_record;

typedef struct attn_dim_record {
  int64_t lo, hi, divisor;
  uint32_t name, kind, values, by, by_offsets;
  uint32_t reserved; /* 0 */
} attn_dim_record;

/* ---- launch -----------------------------------------------------------
 * Solves the dims from the tensors' shapes (plain occurrences first, then
 * affine ones with one unknown), checks everything, runs. tensors and scalars
 * as in attn_kargs, but a NULL pointer stands for a tensor with NULL data.
 * 0 or an attn_code; *err is written in both cases. */
ATTN_API int attn_launch(const attn_program *prog, attn_tensor *const *tensors,
                         const attn_scalar *scalars, attn_stream *stream,
                         attn_error *err);
/* Checks only, and writes the ndims values that a launch would use. */
ATTN_API int attn_solve(const attn_program *prog, attn_tensor *const *tensors,
                        const attn_scalar *scalars, int64_t *dims,
                        attn_error *err);

/* The same, over an S_P_args. */
ATTN_API int attn_call(const attn_program *prog, const void *args,
                       attn_stream *stream, attn_error *err);
ATTN_API void attn_args_init(const attn_program *prog, void *args);
/* Bytes of workspace that a launch may need on any device; 0 also if the
 * arguments are wrong, which the launch then reports. */
ATTN_API size_t attn_args_workspace(const attn_program *prog, const void *args);
/* The same by the calling convention of tvm-ffi: args are n of its values, one
 * for each parameter in declaration order, outputs last. A tensor is a DLTensor
 * or one of its objects, None an output that is not wanted, a default, or what
 * counts as zeros. On a device it runs on tvm-ffi's current stream, with
 * workspace of its allocator. result stays None. -1: the error is raised there;
 * an attn_code where the process has no libtvm_ffi. */
ATTN_API int attn_tvm_ffi(const attn_program *prog, const void *args, int32_t n,
                          void *result);
/* "gqa(Q: bf16[B, H, Sq, D], .., scale: f32) -> (O: bf16[B, H, Sq, D])
 * where H % Hk == 0", cut to n bytes with the zero that ends it; returns its
 * whole length. */
ATTN_API size_t attn_signature(const attn_program *prog, char *buf, size_t n);

#define ATTN_SIZE_(type, n) ATTN_ASSERT_(sizeof(type) == (n), #type)
ATTN_SIZE_(void *, 8);
ATTN_SIZE_(attn_tensor, 144);
ATTN_SIZE_(attn_args, 24);
ATTN_SIZE_(attn_stream, 24);
ATTN_SIZE_(attn_error, 288);
ATTN_SIZE_(attn_container_header, 32);
ATTN_SIZE_(attn_section, 24);
ATTN_SIZE_(attn_entry, 16);
ATTN_SIZE_(attn_kernels_header, 64);
ATTN_SIZE_(attn_gpu_variant, 32);
ATTN_SIZE_(attn_gpu_phase, 48);
ATTN_SIZE_(attn_gpu_map, 64);
ATTN_SIZE_(attn_scalar, 8);
ATTN_SIZE_(attn_kargs, 48);
ATTN_SIZE_(attn_phase, 24);
ATTN_SIZE_(attn_dim_desc, 48);
ATTN_SIZE_(attn_param_desc, 56);
ATTN_SIZE_(attn_spec, 32);
ATTN_SIZE_(attn_program, 88);
ATTN_SIZE_(attn_program_record, 72);
ATTN_SIZE_(attn_param_record, 56);
ATTN_SIZE_(attn_dim_record, 48);
#undef ATTN_SIZE_

#ifdef __cplusplus
}
#endif
#endif
