// Code generation: programs at level mach -> LLVM text, assembly, or one
// relocatable object; the generated C header; loading an object into this
// process. The only public header of codegen; LLVM does not show.
//
//   Ctx *cx -> mach modules (one per specialization and CPU level)
//   CgProgram p = cg_program_of(cx, module, func, "stem");   // signature
//   p.variants = ..;                                         // all code
//   cg_compile(cx, &p, 1, CG_OBJECT, &bytes);
//   CgJit *j = cg_jit_load(cx, bytes.at, bytes.n);
//   const attn_program *prog = cg_jit_program(j, "stem", "name");
//
// Nothing here keeps references to its arguments. Output depends on the
// arguments only, byte for byte.
#ifndef ATTNC_CODEGEN_CODEGEN_H
#define ATTNC_CODEGEN_CODEGEN_H

#include "ir/ir.h"
#include "ir/target.h"
#include "runtime/attn_abi.h"

// Postfix code of attn_abi.h ("expressions"): words of enum attn_xop with
// their operands, less the final END. ATTN_X_DIM counts the program's dims,
// ATTN_X_SHAPE and ATTN_X_STRIDE its tensor parameters.
typedef struct CgExpr {
  const int64_t *at;
  uint32_t n;
} CgExpr;

typedef struct CgBytes {
  const void *at;
  size_t n;
} CgBytes;

typedef enum CgDefault {
  CG_NO_DEFAULT,  // 0 unless the caller sets it
  CG_VALUE,       // f or i
  CG_COMPUTED     // by the kernel, where `given` is false
} CgDefault;

typedef struct CgParam {
  const char *name;
  ParamRole role;   // IN OUT INOUT SCALAR
  Type type;        // tensor over the program's dims, or scalar
  bool optional;    // tensor IN that counts as zeros where it is missing
  CgDefault def;    // of a scalar
  double f;         // value of a float's default
  int64_t i;        // value of an integer's or bool's
  const char *doc;  // for the header, or NULL
} CgParam;

// The code for one CPU level (module->target) under one condition. Functions
// are looked up by the program's name: `@name`, and its further phases, if
// any, `@name.xyz` in module order. Dim symbols are matched by name; those the
// module has must be dims of the program.
typedef struct CgVariant {
  const Module *mod;  // level mach
  CgExpr when;        // n = 0: always
} CgVariant;

// What a kernel of a GPU module needs at a launch; `name` is its symbol.
// Expressions count the dims of `dims` of its CgDevice.
// Where a map's tensor lies in workspace; no extents: it is a parameter.
typedef struct CgPlace {
  CgExpr at, extent[6];
} CgPlace;

typedef struct CgPhase {
  const char *name;
  CgExpr ntasks;
  uint32_t threads, shared_bytes;
  attn_gpu_ctas ctas;
  uint32_t flags;  // attn_gpu_flag
  uint64_t makes;  // ir_made
  const attn_gpu_map *maps;
  const CgPlace *places;  // of the maps, or NULL
  uint32_t nmaps;
  const CgExpr *numbers;  // that the block has behind the dims
  uint32_t nnumbers;
} CgPhase;

// The code of one GPU target under one condition. The parameter block has the
// dims of `dims` in their order; all are dims of the program, by name.
typedef struct CgDevice {
  uint32_t target;     // ATTN_TARGET_*
  CgExpr when;         // over the program's dims; n = 0: always
  const DimTab *dims;  // of the module
  bool strided;        // for tensors that the one before does not take
  CgExpr workspace;    // bytes over the module's dims; n = 0: none
  const CgPhase *phases;
  uint32_t nphases;
  CgBytes binary, text;  // cubin and PTX; one may be missing
  const CgBytes *parts;  // a cubin for each phase in place of `binary`, or NULL
} CgDevice;

typedef struct CgProgram {
  const char *name, *prefix;  // symbols are <prefix>_<name>
  const char *doc;            // for the header, or NULL
  Span at;                    // in the source
  DimTab *dims;               // symbols in the order of the descriptor
  CgParam *params;            // tensors and scalars in declaration order
  uint32_t nparams;
  const CgExpr *checks;  // `where`: each must hold
  uint32_t nchecks;
  CgVariant *variants;  // of equal levels, the first that holds is taken
  uint32_t nvariants;
  CgDevice *devices;  // of a target, the first that holds is taken
  uint32_t ndevices;
} CgProgram;

// The signature of f: no checks, no defaults, and, if f is at level mach, one
// variant. Lives in the session arena and refers to m.
CgProgram cg_program_of(Ctx *cx, Module *m, const Func *f, const char *prefix);
// d (of t) as an expression, in the session arena.
CgExpr cg_expr_dim(Ctx *cx, const DimTab *t, Dim d);
// a op b
CgExpr cg_expr_const(Ctx *cx, int64_t v);
// ATTN_X_SHAPE or ATTN_X_STRIDE of an axis of a tensor.
CgExpr cg_expr_axis(Ctx *cx, attn_xop op, uint32_t tensor, uint32_t axis);
CgExpr cg_expr_bin(Ctx *cx, CgExpr a, attn_xop op, CgExpr b);
// The sum of those of n that are not empty.
CgExpr cg_expr_sum(Ctx *cx, const CgExpr *of, uint32_t n);

// Bytes of a kernel's parameter block (attn_abi.h): its maps are the last
// nmaps * ATTN_MAP_BYTES of them. ndims: dims and numbers.
uint32_t cg_block_bytes(const CgProgram *p, uint32_t ndims, uint32_t nmaps);
// Appends the container of the device code of all programs. 16-byte alignment
// is up to where the bytes are put.
bool cg_container(Ctx *cx, const CgProgram *progs, uint32_t n, Buf *out);

// The bits of an attn_scalar that stands for the parameter's default.
uint64_t cg_default_bits(const CgParam *p);

typedef enum CgEmit {
  CG_LLVM_RAW,  // LLVM text, one to one with mach
  CG_LLVM,      // LLVM text as given to the code generator
  CG_ASM,
  CG_OBJECT,  // ELF, relocatable
} CgEmit;

// Appends to *out. All variants are of one CPU family; device code is put into
// the object as it is. False with diagnostics.
bool cg_compile(Ctx *cx, const CgProgram *progs, uint32_t n, CgEmit what,
                Buf *out);
// The same with at most that many threads, 0: one per CPU. The bytes do not
// depend on it.
bool cg_compile_on(Ctx *cx, uint32_t threads, const CgProgram *progs,
                   uint32_t n, CgEmit what, Buf *out);
// Appends a C11 and C++17 header with the args structs and prototypes.
// `guard` names the file: letters, digits and others that become _.
bool cg_header(Ctx *cx, const CgProgram *progs, uint32_t n, const char *guard,
               Buf *out);

// ---------------------------------------------------------------- GPU
// A tensor map that a kernel expects, as attn_gpu_map of attn_abi.h.
typedef struct CgMapRecord {
  uint32_t tensor, rank, swizzle;
  uint8_t axis[8];
  uint16_t box[8];
} CgMapRecord;

// What a launch must know of a kernel, and what ptxas said about it.
typedef struct CgKernelRecord {
  const Func *func;
  const char *symbol;
  uint32_t threads, occupancy, shared_bytes, block_bytes;
  bool persistent, counter;
  bool waits;  // for the kernels in front of it, by itself
  bool once;   // keys are read once
  Vec(CgMapRecord) maps;
  Vec(CgExpr) numbers;  // that the host computes, over the module's dims
  uint32_t registers, spill_bytes;  // of a thread; after cg_ptxas
  uint32_t rare_bytes;              // of these, where few steps go
  CgExpr when;       // what tensors must be, over the module's dims; n = 0: any
  bool serialized;   // ptxas made the products synchronous
  uint32_t warning;  // number of ptxas's first C75xx, or 0
  uint32_t lacks;    // registers of a thread without which ptxas makes no code
  uint32_t level;    // of register usage; 0: ptxas's own
  uint32_t runs;     // of ptxas, for this kernel
} CgKernelRecord;

typedef Vec(CgKernelRecord) CgKernels;

// What is wrong with the machine code of these kernels: 0 nothing, else bytes
// spilled; serialized products are worse than any spill, other warnings as bad
// as a few bytes. Where ptxas makes no code it is the worst, by the bytes of
// the registers that are lacking. Of a cost up to CG_RARE bytes that are
// spilled where few steps go are nothing: smaller tiles for all steps cost
// more. Nor are more of them in kernels that add to memory, in whose place
// there would be two (docs/lab/2026-11-fused-gradients.md).
enum {
  CG_NO_CODE = 1 << 28,
  CG_SERIAL = 1 << 24,
  CG_WARNING = 16,
  CG_RARE = 256
};
// Are sums added to memory, in any order?
bool cg_adds_to_memory(const Func *f);
uint64_t cg_flaws(const CgKernels *all);
uint64_t cg_kernel_flaws(const CgKernelRecord *k);
uint64_t cg_cost(const CgKernels *all);
uint64_t cg_kernel_cost(const CgKernelRecord *k);
// Bytes that k, whose machine code is in cubin, spills in loops of tiles that
// masks cut, and outside of loops, where it has such.
uint32_t cg_rare_spills(Ctx *cx, const CgKernelRecord *k, CgBytes cubin);

// Assembly (CG_ASM: PTX; AMD: also CG_OBJECT, which cg_lld links) or LLVM text
// (CG_LLVM_RAW, CG_LLVM) of all programs of m, a
// module of level mach of a GPU: one kernel each, <prefix>_<name>. Appends to
// *out; *kernels (may be NULL) gets a record each, in the session arena.
bool cg_gpu(Ctx *cx, const Module *m, const char *prefix, CgEmit what, Buf *out,
            CgKernels *kernels);
// The PTX of m, where program number i is empty if known[i] is not NULL, its
// record: its code is known already, and stands in other text of the same
// parts.
bool cg_gpu_rest(Ctx *cx, const Module *m, const char *prefix,
                 const CgKernelRecord *const *known, Buf *out,
                 CgKernels *kernels);

// Registers the target of m, which threads may make code for from then on.
bool cg_gpu_ready(Ctx *cx, const Module *m);

// PTX in parts: around[0] kernel[0] around[1] .. kernel[n - 1] around[n].
typedef struct CgPtx {
  CgBytes *around, *kernel;
  uint32_t n;
} CgPtx;
// Parts of a text that ends with a zero; they lie in it.
CgPtx cg_ptx_split(Ctx *cx, const char *ptx);

// The assembler: $ATTNC_PTXAS, else `ptxas` of PATH, else that of
// /usr/local/cuda. NULL if there is none.
const char *cg_ptxas_path(Ctx *cx);
// What ptxas makes and says.
typedef struct CgAssembled {
  Buf *cubin;
  CgKernels *kernels;
  Buf *log;
} CgAssembled;
// Assembles PTX for target t and appends the cubin. level: of register usage;
// 0: ptxas's own, which is one of 5. Below 5 it finds cheap values again rather
// than keep them, above it keeps more; what lies on the same side makes the
// same code. Registers and spills of the kernels (may be NULL) are filled in;
// `log` (may be NULL) gets what ptxas wrote. False with a diagnostic if there
// is no ptxas or it fails.
bool cg_ptxas(Ctx *cx, const Target *t, CgBytes ptx, uint32_t level,
              const CgAssembled *out);
// Appends ptx with at most so many registers of a thread where a kernel may
// have all, in place of the CTAs that are to fit. False: there is none.
bool cg_ptx_capped(const char *ptx, uint32_t registers, Buf *out);
// Appends PTX of several kernels with number i of them alone, for ptxas a
// program of its own: it compiles each kernel as if there were no others. A
// zero stands behind it.
void cg_ptx_alone(const CgPtx *ptx, uint32_t i, Buf *out);

// One object of several for AMD, in order: as cg_gpu makes it of their kernels
// together, but for what fills gaps. False: their metadata has another form.
bool cg_amd_merge(Ctx *cx, const CgBytes *in, uint32_t n, Buf *out);
// The linker: $ATTNC_LLD, else `ld.lld-22` of PATH, else usual places. NULL:
// none.
const char *cg_lld_path(Ctx *cx);
// Links an object made by cg_gpu for AMD and appends the code object. Registers
// and bytes of scratch of the kernels (may be NULL) are filled in. False with a
// diagnostic if there is no linker or it fails.
bool cg_lld(Ctx *cx, const char *object, size_t n, Buf *out, CgKernels *all);

// An object made by cg_compile for this machine, loaded. NULL with
// diagnostics.
typedef struct CgJit CgJit;
CgJit *cg_jit_load(Ctx *cx, const void *object, size_t n);
// NULL with a diagnostic if there is no such program.
const attn_program *cg_jit_program(CgJit *j, const char *prefix,
                                   const char *name);
void cg_jit_drop(CgJit *j);

// Tells LLVM whom to call before it ends the process (a bug of LLVM or of
// ours: exhausted registers in inline code and the like). For main functions;
// fn must not return if the process shall not exit with code 1.
void cg_on_fatal(void (*fn)(const char *reason));
// Whom LLVM calls, from whatever it is in, where memory runs out; must not
// return.
void cg_on_no_memory(void (*fn)(void));
// The names of the rows of targets.def that this machine can run, the best
// first.
uint32_t cg_host_targets(const char **names, uint32_t max);

#endif
