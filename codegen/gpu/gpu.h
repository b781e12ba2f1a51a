// Private to codegen/gpu*.c (all GPUs), nv*.c and amd*.c: GPU mach as LLVM IR.
// A fragment is a list of scalar values of a thread; 16- and 8-bit elements are
// kept packed in 32-bit words, as the hardware's products and copies want them.
// What makers of GPUs differ in is a table of functions, GpuVendor.
#ifndef ATTNC_CODEGEN_GPU_GPU_H
#define ATTNC_CODEGEN_GPU_GPU_H

#include "codegen/codegen.h"
#include "codegen/math/emit.h"
#include "ir/layout.h"

#include <string.h>

enum { PTX_KERNEL = 71 };  // LLVM's calling convention

typedef struct Frag {
  FragMap map;
  DType dtype;
  uint32_t per;  // elements of a word: 1, 2 or 4
  uint32_t n;    // words
  V *w;
  uint32_t by;    // so many words each are of one load or product; 0: one
  V *bits;        // a mask's words, by rows of the thread; or NULL. Of
  Value against;  // columns: words of their comparison with these rows
} Frag;

// A slot of shared memory: constant bytes plus `var` units of 16 bytes.
typedef struct Tile {
  uint32_t base;
  V var;  // i32 or NULL
} Tile;

// The threads that execute an op together.
typedef struct Group {
  uint32_t threads;
  V tid, warp, lane;  // in the group; in the warp (i32)
  V instance;         // i32
  V first;            // i1: one thread of the group
  uint32_t team;      // 0: the CTA, else 1 + role
  uint32_t from;      // its first thread
  uint32_t instances;
  uint32_t barrier;  // named barrier of instance 0
} Group;

typedef struct GpuVendor GpuVendor;

typedef struct Nv {
  Cg *g;
  const GpuVendor *vendor;
  const Func *f;
  GpuFacts gpu;
  CgKernelRecord *out;
  Frag *frag;   // by value
  Tile *tile;   // by value: smem, mbar, slices that stay
  bool *stays;  // by value: a slice that is read anew for each use
  Group grp;
  bool leanest;         // has the attribute NV_LEAN
  bool multiplies;      // the kernel has products of matrices
  V block;              // parameters
  V smem;               // shared memory, address space 3
  V desc0;              // its address as a matrix descriptor has it, i64
  V tid, warp, lane;    // in the CTA
  uint64_t *tensor_at;  // by value: offset of a tensor's record
  uint64_t scalars_at, given_at, dims_at, ntasks_at, workspace_at, counter_at,
      maps_at;
  uint32_t shared;   // bytes of the program's shared memory
  uint32_t scratch;  // code generation's own, behind it
  uint32_t scratch_at, pin_at;
  uint32_t stay_at;   // in a group's scratch: of the next slice that stays
  uint32_t barriers;  // named barriers given to groups
  bool dense;         // tensors are what the vendor's `dense` tells
  const Op *fenced;   // wgmma whose constant A passed through the fence, NULL
  V *fenced_words;    // its words
} Nv;

typedef void NvEmit(Nv *n, const Op *op);

// The operands of a product: c {m, n} += a {m, k} b {n, k}, or transposed.
typedef struct Product {
  const Op *op;
  const Type *at, *bt, *ct;
  bool ta, tb;
  Tile a, b;
  const Frag *areg;  // NULL: A is the shared tile a
  uint32_t rows, k;  // rows of all warps together, k extent
} Product;

enum { MOST_SUMMED = 8 };  // products

// A piece of a shared tile that is copied from a tensor: `bytes` (0 to 16) of
// `from` (i64), zeros behind them.
typedef struct Chunk {
  V to, from, bytes;
} Chunk;

// A lane of this thread's warp: its number, which has the bits `own` of the
// thread's own lane, and of it the `rest`.
typedef struct FromLane {
  V at;
  uint32_t own, rest;
} FromLane;

struct GpuVendor {
  const char *triple;
  void (*init)(void);     // makes LLVM know the target
  const char *pipeline;   // LLVM's passes
  void (*module)(Cg *g);  // flags of the module; NULL: none
  unsigned param_space;   // where parameters are loaded from
  NvEmit *const *ops;     // its own ops; the others are common
  // Kernels: the function up to its first block, shared memory, threads, what
  // stands before the body and before the return.
  void (*declare)(Nv *n, const char *symbol);
  V (*shared)(Nv *n);
  void (*threads)(Nv *n);
  void (*begin)(Nv *n);
  // What tensors must be for a launch that is `dense`; NULL: the same code.
  CgExpr (*dense)(Nv *n);
  void (*end)(Nv *n);
  V (*step)(Nv *n, V i);  // a loop's coordinate in its body; NULL: i
  V (*cta)(Nv *n);
  V (*ctas)(Nv *n);
  // Threads: the i32 of lane ^ lanes, of lane 0, of that lane (NULL: no such
  // instruction); x as a value known to be uniform; the warp's least or largest
  // i32 (NULL: no such instruction); any or all in the warp; the barrier of the
  // group.
  V (*exchange)(Nv *n, V x, uint32_t lanes);
  V (*first_lane)(Nv *n, V x);
  V (*from_lane)(Nv *n, V x, FromLane from);
  V (*uniform)(Nv *n, V x);
  V (*extreme)(Nv *n, bool max, V x);
  V (*vote)(Nv *n, bool any, V x);
  void (*sync)(Nv *n);
  // Values: 16-bit floats of an f32 pair as a word, NULL: no instruction;
  // functions of f32; max and min that give NaN if an operand is.
  V (*pair)(Nv *n, DType to, V lo, V hi);
  // The four 8-bit floats of a word as words of f16 or bf16; false: no such
  // instructions. May be NULL.
  bool (*widen)(Nv *n, DType from, V word, DType to, V out[2]);
  // a and b, of which code generation makes no two selections; may be NULL.
  V (*both)(Nv *n, V a, V b);
  // The lowest `count` bits, all if there are 32 or more; NULL: no instruction.
  V (*low_bits)(Nv *n, V count);
  // x >> by, made as it stands here; x of a lane that is not known before; the
  // lanes where x holds; that byte of lo and, above it, of hi, zeros above.
  V (*shifted)(Nv *n, V x, uint32_t by);
  V (*thread_again)(Nv *n);  // its number, read again; or NULL
  V (*cta_again)(Nv *n);     // and the CTA's
  V (*lane_of)(Nv *n, V x, V lane);
  V (*ballot)(Nv *n, V x);
  V (*bytes)(Nv *n, V lo, V hi, V byte);
  V (*ex2)(Nv *n, V x);
  V (*rcp)(Nv *n, V x);
  V (*rsqrt)(Nv *n, V x);
  // Memory: the integer at an address where ok, else 0; a byte as 16 bits.
  V (*load)(Nv *n, V address, V ok, uint32_t bytes);
  void (*store)(Nv *n, V address, V ok, V x, uint32_t bytes);
  // Four words at a multiple of 16; or NULL.
  void (*load4)(Nv *n, V address, V ok, V out[4]);
  void (*copy)(Nv *n, const Chunk *c);
  // A tile by instructions of its own; false: by elements.
  bool (*store_tile)(Nv *n, Tile s, const Type *t, const Frag *f);
  // The same where rows of the tile are columns of the fragment; may be NULL.
  bool (*store_turned)(Nv *n, Tile s, const Type *t, const Frag *f);
  // The same i64 or i32, of which nobody knows so; NULL: not needed.
  V (*anew)(Nv *n, V x);
  // The same f32, which is made here and nowhere else; NULL: not needed.
  V (*hold)(Nv *n, V x);
  // The whole tile as fragment f of that type, `trans`posed; NULL: never.
  bool (*load_tile)(Nv *n, Tile s, const Type *t, bool trans, const Type *ft,
                    Frag *f);
  // r.w += the product on matrix units; false: they do not take it.
  bool (*mma)(Nv *n, const Product *p, Frag *r);
  bool repeats;  // with fewer rows than warps have, some do the same
  // The same for several that are added up and read tiles in common, of which
  // matrix units take each; `fresh`: r.w is 0. NULL: one after the other.
  void (*sum)(Nv *n, const Product *p, uint32_t products, bool fresh, Frag *r);
};
extern const GpuVendor nv_vendor, amd_vendor;

// ---- small helpers (gpuutil.c)
V nv_i32(Nv *n, int64_t v);
V nv_i64(Nv *n, int64_t v);
LLVMTypeRef nv_i32t(Nv *n);
V nv_call(Nv *n, const char *name, V *args, uint32_t count);
V nv_call_over(Nv *n, const char *name, LLVMTypeRef over, V *args,
               uint32_t count);
// Inline assembly with side effects that no pass may duplicate.
V nv_asm(Nv *n, LLVMTypeRef ret, const char *text, const char *constraints,
         V *args, uint32_t count);
// Pure inline assembly.
V nv_asm_pure(Nv *n, LLVMTypeRef ret, const char *text, const char *constraints,
              V *args, uint32_t count);
V nv_add(Nv *n, V a, V b);
// Few registers are to be kept, where all threads are one group. Where a load
// alone has most of them the kernel has this attribute (gpuorder.c).
#define NV_LEAN "attn-lean"
#define NV_FEW "attn-few-registers"
bool nv_lean(const Nv *n);
V nv_mul(Nv *n, V a, int64_t k);
V nv_param(Nv *n, uint64_t at, LLVMTypeRef t);
// Pointer to a byte of the parameter block.
V nv_block_at(Nv *n, uint64_t at);
// Word i of a tensor's record: address, shape, strides in elements (i64). The
// workspace's tensors have none: theirs are made of dims.
V nv_tensor(Nv *n, Value tensor, uint32_t i);
bool nv_is_shared(const Nv *n, Value tensor);  // in the workspace
V nv_shuffle(Nv *n, V x, uint32_t lanes);      // the value of lane ^ lanes
// Runs the code in between in one thread only: end = nv_if(c); ..; nv_end(end).
LLVMBasicBlockRef nv_if(Nv *n, V c);
void nv_end(Nv *n, LLVMBasicBlockRef end);

void nv_order(Cg *g);  // gpuorder.c
const Type *nv_arg_type(const Nv *n, const Op *op, uint32_t i);
const Type *nv_res_type(const Nv *n, const Op *op);
V nv_arg(const Nv *n, const Op *op, uint32_t i);
Frag *nv_frag(Nv *n, Value v);
Tile nv_tile(Nv *n, Value v);

// ---- fragments (gpufrag.c)
Frag nv_new(Nv *n, const Type *t);  // no words yet: n and w are set up
V nv_elem(Nv *n, const Frag *f, uint32_t reg);
// Makes the words of f of its elements.
void nv_pack(Nv *n, Frag *f, V *elems);
void nv_define(Nv *n, Value v, Frag f);
// x joined with y by a reduction's kind.
// The register of the slice that holds what register `reg` of the tile needs:
// in thread 0, and so in all.
uint32_t nv_slice_reg(const FragMap *tile, const FragMap *slice, uint32_t axis,
                      uint32_t reg);
V nv_join(Nv *n, RKind k, V x, V y);
// A scan along rows that four threads have (gpuscan.c): whether it is one.
bool nv_scans_in_quads(const Func *f, const Op *op, uint32_t threads);
void nv_scan_in_quads(Nv *n, const Op *op);
V nv_identity(Nv *n, RKind k, DType t);
// Coordinate along an axis of register reg (i32).
V nv_coord(Nv *n, const FragMap *m, uint32_t axis, uint32_t reg);
// The coordinates of op once more, of which LLVM does not know that they are.
Frag nv_coordinates_again(Nv *n, const Op *op);
void nv_elementwise(Nv *n, const Op *op);
// 8-bit floats as 16-bit ones, by words (gpubyte.c). False: not by words.
bool nv_widen(Nv *n, const Frag *x, Frag *r);
extern NvEmit nv_foperand;
// The pair of f16 x, exact in bf16, as bf16; the same of two f32.
V nv_halves_to_bf16(Nv *n, V x);
V nv_uppers(Nv *n, V lo, V hi);
// tanh x for small |x|.
#define TANH_SMALL 0.42
V nv_tanh_small(Nv *n, V x);
V nv_tanh_approx(Nv *n, V x);
// 1 / x with a relative error below 2^-bits.
V nv_reciprocal(Nv *n, V x, int64_t bits);
V nv_math(Nv *n, OpCode op, V x);  // gpumath.c: NULL: the CPU's code
// Masks as words (gpubits.c). False: not by words. A comparison of coordinates
// of columns with a limit; of values of rows and columns; two masks.
bool nv_bits_of_limit(Nv *n, const Op *op, Frag *r);
bool nv_bits_of_table(Nv *n, const Op *op, Frag *r);
bool nv_bits_of_both(Nv *n, const Frag *a, const Frag *b, Frag *r);
// The values of rows that loaded columns are compared with, and with nothing
// else; 0: no. Then r is made of `count` words x, those of lane l columns
// l % 8 + 8 i of thread l / 8.
Value nv_compared_rows(Nv *n, const Op *load);
void nv_bits_of_equal(Nv *n, const V *x, uint32_t count, Value rows, Frag *r);
extern NvEmit nv_const, nv_splat, nv_coordinates, nv_bcast, nv_fcols,
    nv_freduce, nv_fcombine, nv_fscan, nv_relayout, nv_vote, nv_exceeds;

// ---- memory (gpumem.c, gpuloose.c, gpushared.c, gpucopy.c; nvtma.c)
// A tile of distances; false: it is none.
bool nv_load_loose(Nv *n, const Op *op, const FragMap *m, V *e);
V nv_shared(Nv *n, V byte);  // pointer to shared memory
V nv_tile_at(Nv *n, Tile t, uint32_t byte);
// Pointer to the 16-byte chunk (c0 ^ bit) of a row; bit NULL: c0. c0 is even
// where bit is given.
V nv_chunk(Nv *n, Tile s, const Type *t, V row, uint32_t c0, V bit);
// Byte of element (row, col) in a tile's slot.
V nv_offset(Nv *n, const Type *t, V row, V col);
// Pointer to byte `byte` of a tile.
V nv_tile_byte(Nv *n, Tile s, V byte);
// Pointer to element (row, col) of a tile.
V nv_element(Nv *n, Tile s, const Type *t, V row, V col);
// Registers that are neighbours along the axis, in multiples of which the rest
// lies too: 1, 2, 4 or 8 of them, *step registers apart.
uint32_t nv_run(const FragMap *m, uint32_t axis, uint32_t *step);
// Elements of one access of a tile, in registers *step apart.
uint32_t nv_access(const FragMap *m, const Type *t, uint32_t *step);
void nv_store_frag(Nv *n, Tile s, const Type *t, const Frag *f);
Frag nv_load_frag(Nv *n, Tile s, const Type *t, const Type *want);
void nv_sync(Nv *n);  // the group's barrier
// The number of the tensor map that a tma_load or tma_store uses.
uint32_t nv_map_of(Nv *n, const Op *op);
// Of an op on barriers: the address of the one that operands i and i + 1 tell.
V nv_mbar_at(Nv *n, const Op *op, uint32_t i);
// All of v that must be there for v to be there, joined with `with` if that is
// not NULL: a word of each load.
V nv_joined(Nv *n, Value v, V with);
// Shared memory of code generation for the executing group instance: byte
// offset in i32.
V nv_scratch(Nv *n, uint32_t bytes);
// Scratch that op and the relayouts right behind it need; that a relayout's
// slice has for itself where it stays there, 0: it does not.
uint32_t nv_relayouts_bytes(const Func *f, const Op *op);
uint32_t nv_stay_bytes(const Func *f, const Op *op);
Frag *nv_stayed(Nv *n, Value v);
// Pointer to device memory.
V nv_global(Nv *n, V address);
// True in one of the threads that hold the same elements; NULL: each has its
// own.
V nv_owner(Nv *n, const FragMap *m);
extern NvEmit nv_gload, nv_gstore, nv_sget, nv_sset, nv_sload, nv_sstore,
    nv_sflip, nv_slot, nv_gsync, nv_cp_async;
extern NvEmit nv_tma_load, nv_tma_store, nv_tma_commit, nv_tma_wait,
    nv_mbar_wait, nv_mbar_arrive, nv_mbar_expect, nv_bar_sync, nv_bar_arrive,
    nv_fence_async;

// ---- products (gpumma.c; nvmma.c, nvwgmma.c)
bool nv_mma_sync(Nv *n, const Product *p, Frag *r);
void nv_mma_sum(Nv *n, const Product *p, uint32_t products, bool fresh,
                Frag *r);
bool nv_load_a(Nv *n, Tile s, const Type *t, bool trans, const Type *ft,
               Frag *f);
extern NvEmit nv_mma, nv_wgmma, nv_wg_fence, nv_wg_commit, nv_wg_wait;

extern NvEmit nv_ftrinv;  // nvtri.c

// ---- kernels (gpukernel.c), control flow (gpucontrol.c; nvroles.c), dispatch
// (gpuop.c)
void nv_kernel(Nv *n, const char *symbol);
void nv_region(Nv *n, const Region *r);
void nv_string_attr(Nv *n, unsigned at, const char *k, const char *v);
void nv_op(Nv *n, const Op *op);
// For what place and legal must not leave: adds a diagnostic.
void nv_unsupported(Nv *n, const Op *op, const char *what);
extern NvEmit nv_for, nv_while, nv_branch, nv_roles;

#endif
