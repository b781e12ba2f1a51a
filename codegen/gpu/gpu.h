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
  V var;   // i32 or NULL
  V flip;  // bits of a byte's address to change, or NULL
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

// Words of a tile that products of loops read of registers, since an op wrote
// it.
typedef struct RowsKept {
  Value tile;
  const Op *by;
  V *w;
} RowsKept;

typedef struct Gpu {
  Cg *g;
  const GpuVendor *vendor;
  const Func *f;
  GpuFacts gpu;
  CgKernelRecord *out;
  Frag *frag;   // by value
  Tile *tile;   // by value: smem, mbar, slices that stay
  bool *stays;  // by value: a slice that is read anew for each use
  Group grp;
  bool leanest;         // has the attribute GPU_LEAN
  bool multiplies;      // the kernel has products of matrices
  bool ahead;           // of kernels in front: nothing has waited for them yet
  V block;              // parameters
  V smem;               // shared memory, address space 3
  V desc0;              // its address as a matrix descriptor has it, i32
  V tid, warp, lane;    // in the CTA
  uint64_t *tensor_at;  // by value: offset of a tensor's record
  uint64_t scalars_at, given_at, dims_at, numbers_at, ntasks_at, workspace_at,
      counter_at, maps_at;
  Dim *number;  // that the host computes
  uint32_t nnumbers;
  uint32_t shared;   // bytes of the program's shared memory
  uint32_t scratch;  // code generation's own, behind it: of each group,
  uint32_t outside;  // and (1) of code outside of roles
  uint32_t scratch_at, pin_at, peers_at;  // the last: barriers of `peers`
  uint32_t stay_at;   // in a group's scratch: of the next slice that stays
  uint32_t barriers;  // named barriers given to groups
  bool dense;         // tensors are what the vendor's `dense` tells
  const Op *fenced;   // wgmma whose constant A passed through the fence, NULL
  V *fenced_words;    // its words
  const RowsKept *kept;  // or NULL
} Gpu;

typedef void GpuEmit(Gpu *n, const Op *op);

// The operands of a product: c {m, n} += a {m, k} b {n, k}, or transposed.
typedef struct Product {
  const Op *op;
  const Type *at, *bt, *ct;
  bool ta, tb;
  bool dealt;  // warps have the same rows of A, and their own 16 rows of B
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
  // LLVM's features that the module needs; NULL: those of the target. May be
  // NULL.
  const char *(*features)(const Module *m);
  unsigned param_space;  // where parameters are loaded from
  GpuEmit *const *ops;   // its own ops; the others are common
  // Kernels: the function up to its first block, shared memory, threads, what
  // stands before the body, before what reads or writes memory (NULL: nothing)
  // and before the return.
  void (*declare)(Gpu *n, const char *symbol);
  V (*shared)(Gpu *n);
  void (*threads)(Gpu *n);
  void (*begin)(Gpu *n);
  void (*memory)(Gpu *n);
  // What tensors must be for a launch that is `dense`; NULL: the same code.
  CgExpr (*dense)(Gpu *n);
  void (*end)(Gpu *n);
  V (*step)(Gpu *n, V i);  // a loop's coordinate in its body; NULL: i
  V (*cta)(Gpu *n);
  V (*ctas)(Gpu *n);
  // Threads: the i32 of lane ^ lanes, of lane 0, of that lane (NULL: no such
  // instruction); x as a value known to be uniform; the warp's least or largest
  // i32 (NULL: no such instruction); any or all in the warp; the barrier of the
  // group.
  V (*exchange)(Gpu *n, V x, uint32_t lanes);
  V (*first_lane)(Gpu *n, V x);
  V (*from_lane)(Gpu *n, V x, FromLane from);
  V (*uniform)(Gpu *n, V x);
  V (*extreme)(Gpu *n, bool max, V x);
  V (*vote)(Gpu *n, bool any, V x);
  void (*sync)(Gpu *n);
  // Values: 16-bit floats of an f32 pair as a word, 8-bit ones as its lower
  // half, NULL: no instruction (`within`: none is too large); functions of f32;
  // max and min that give NaN if an operand is.
  V (*pair)(Gpu *n, DType to, V lo, V hi, bool within);
  // The four 8-bit floats of a word as words of f16 or bf16; false: no such
  // instructions. May be NULL.
  bool (*widen)(Gpu *n, DType from, V word, DType to, V out[2]);
  // a and b, of which code generation makes no two selections; may be NULL.
  V (*both)(Gpu *n, V a, V b);
  // The lowest `count` bits, all if there are 32 or more; NULL: no instruction.
  V (*low_bits)(Gpu *n, V count);
  // x >> by, made as it stands here; x of a lane that is not known before; the
  // lanes where x holds; that byte of lo and, above it, of hi, zeros above.
  V (*shifted)(Gpu *n, V x, uint32_t by);
  V (*found)(Gpu *n, V x);    // x, of which compilers know nothing; or NULL
  V (*thread_again)(Gpu *n);  // its number, read again; or NULL
  V (*cta_again)(Gpu *n);     // and the CTA's
  V (*lane_of)(Gpu *n, V x, V lane);
  V (*ballot)(Gpu *n, V x);
  V (*bytes)(Gpu *n, V lo, V hi, V byte);
  V (*ex2)(Gpu *n, V x);
  V (*rcp)(Gpu *n, V x);
  V (*rsqrt)(Gpu *n, V x);
  // Memory: the integer at an address where ok, else 0; a byte as 16 bits.
  V (*load)(Gpu *n, V address, V ok, uint32_t bytes);
  void (*store)(Gpu *n, V address, V ok, V x, uint32_t bytes);
  // `count` words at a multiple of their size, 2 or 4; or NULL.
  void (*store_words)(Gpu *n, V address, V ok, const V *x, uint32_t count);
  // Adds `count` f32 to those at an address, a multiple of their size, in any
  // order with other threads: 1, 2 or 4; ok: NULL, always. Or NULL.
  void (*add)(Gpu *n, V address, V ok, const V *x, uint32_t count);
  // Four words at a multiple of 16; or NULL.
  void (*load4)(Gpu *n, V address, V ok, V out[4]);
  void (*copy)(Gpu *n, const Chunk *c);
  // Where ok, the sector at an address is read soon; where programs say so.
  void (*soon)(Gpu *n, V address, V ok);
  // A tile by instructions of its own; false: by elements.
  bool (*store_tile)(Gpu *n, Tile s, const Type *t, const Frag *f);
  // The same where rows of the tile are columns of the fragment; may be NULL.
  bool (*store_turned)(Gpu *n, Tile s, const Type *t, const Frag *f);
  // The same i64 or i32 of a lane, of which nobody knows so.
  V (*anew)(Gpu *n, V x);
  // The same f32, which is made here and nowhere else; NULL: not needed.
  V (*hold)(Gpu *n, V x);
  // The whole tile as fragment f of that type, `trans`posed; NULL: never.
  bool (*load_tile)(Gpu *n, Tile s, const Type *t, bool trans, const Type *ft,
                    Frag *f);
  // In front of a loop; NULL: nothing.
  void (*enter)(Gpu *n, const Op *loop);
  // r.w += the product on matrix units; false: they do not take it.
  bool (*mma)(Gpu *n, const Product *p, Frag *r);
  bool repeats;  // with fewer rows than warps have, some do the same
  // The same for several that are added up and read tiles in common, of which
  // matrix units take each; `fresh`: r.w is 0. NULL: one after the other.
  void (*sum)(Gpu *n, const Product *p, uint32_t products, bool fresh, Frag *r);
};
extern const GpuVendor nv_vendor, amd_vendor;

// ---- small helpers (util.c)
V gpu_i32(Gpu *n, int64_t v);
V gpu_i64(Gpu *n, int64_t v);
LLVMTypeRef gpu_i32t(Gpu *n);
V gpu_call(Gpu *n, const char *name, V *args, uint32_t count);
V gpu_call_over(Gpu *n, const char *name, LLVMTypeRef over, V *args,
                uint32_t count);
// Inline assembly with side effects that no pass may duplicate.
V gpu_asm(Gpu *n, LLVMTypeRef ret, const char *text, const char *constraints,
          V *args, uint32_t count);
// Pure inline assembly.
V gpu_asm_pure(Gpu *n, LLVMTypeRef ret, const char *text,
               const char *constraints, V *args, uint32_t count);
V gpu_add(Gpu *n, V a, V b);
// Few registers are to be kept, where all threads are one group. Where a load
// alone has most of them the kernel has this attribute (order.c).
#define GPU_LEAN "attn-lean"
#define GPU_FEW "attn-few-registers"
bool gpu_lean(const Gpu *n);
V gpu_mul(Gpu *n, V a, int64_t k);
V gpu_param(Gpu *n, uint64_t at, LLVMTypeRef t);
// Pointer to a byte of the parameter block.
V gpu_block_at(Gpu *n, uint64_t at);
// Word i of a tensor's record: address, shape, strides in elements (i64). The
// workspace's tensors have none: theirs are made of dims.
V gpu_tensor(Gpu *n, Value tensor, uint32_t i);
bool gpu_is_shared(const Gpu *n, Value tensor);  // in the workspace
V gpu_shuffle(Gpu *n, V x, uint32_t lanes);      // the value of lane ^ lanes
// Runs the code in between in one thread only: end = gpu_if(c); ..;
// gpu_end(end).
LLVMBasicBlockRef gpu_if(Gpu *n, V c);
void gpu_end(Gpu *n, LLVMBasicBlockRef end);

void gpu_order(Cg *g);  // order.c
const Type *gpu_arg_type(const Gpu *n, const Op *op, uint32_t i);
const Type *gpu_res_type(const Gpu *n, const Op *op);
V gpu_arg(const Gpu *n, const Op *op, uint32_t i);
Frag *gpu_frag(Gpu *n, Value v);
Tile gpu_tile(Gpu *n, Value v);

// ---- fragments (frag.c)
Frag gpu_new(Gpu *n, const Type *t);  // no words yet: n and w are set up
V gpu_elem(Gpu *n, const Frag *f, uint32_t reg);
// Makes the words of f of its elements.
void gpu_pack(Gpu *n, Frag *f, V *elems);
// The same of what was loaded one by one. Beside products it waits as words:
// LLVM would keep a register for each element of 16 bits until it is widened.
void gpu_pack_loaded(Gpu *n, Frag *f, V *elems);
void gpu_define(Gpu *n, Value v, Frag f);
// x joined with y by a reduction's kind.
V gpu_join(Gpu *n, RKind k, V x, V y);
// A scan along rows that four threads have (scan.c): whether it is one.
bool gpu_scans_in_quads(const Func *f, const Op *op, uint32_t threads);
void gpu_scan_in_quads(Gpu *n, const Op *op);
// A scan down columns whose rows lie in threads and warps (scan_rows.c), and
// the shared memory that a group needs for it.
bool gpu_scans_in_columns(const Func *f, const Op *op, uint32_t threads);
void gpu_scan_in_columns(Gpu *n, const Op *op);
uint32_t gpu_column_scan_bytes(const Type *t, uint32_t threads);
V gpu_identity(Gpu *n, RKind k, DType t);
// Coordinate along an axis of register reg (i32): the sum of what the thread
// has in all registers and of a constant.
V gpu_coord_thread(Gpu *n, const FragMap *m, uint32_t axis);
uint32_t gpu_coord_reg(const FragMap *m, uint32_t axis, uint32_t reg);
V gpu_coord(Gpu *n, const FragMap *m, uint32_t axis, uint32_t reg);
// The coordinates of op once more, of which LLVM does not know that they are.
Frag gpu_coordinates_again(Gpu *n, const Op *op);
// An index of op, made anew where it would live too long.
Frag gpu_index_of(Gpu *n, const Op *op, Value v);
// True in one of the threads that hold the same elements; NULL: each has its
// own.
V gpu_owner(Gpu *n, const FragMap *m);
void gpu_elementwise(Gpu *n, const Op *op);
// 8-bit floats as 16-bit ones, by words (byte.c). False: not by words.
bool gpu_widen(Gpu *n, const Frag *x, Frag *r);
extern GpuEmit gpu_foperand;
// The pair of f16 x, exact in bf16, as bf16; the same of two f32.
V gpu_halves_to_bf16(Gpu *n, V x);
V gpu_uppers(Gpu *n, V lo, V hi);
// tanh x for small |x|.
#define TANH_SMALL 0.42
V gpu_tanh_small(Gpu *n, V x);
V gpu_tanh_approx(Gpu *n, V x);
// 1 / x with a relative error below 2^-bits.
V gpu_reciprocal(Gpu *n, V x, int64_t bits);
// sin and cos of a tile (wave.c). False: none of both.
bool gpu_wave_tile(Gpu *n, const Op *op);
extern GpuEmit gpu_random;           // random.c
V gpu_math(Gpu *n, OpCode op, V x);  // math.c: NULL: the CPU's code
// Masks as words (bits.c). False: not by words. A comparison of coordinates
// of columns with a limit; of values of rows and columns; two masks.
bool gpu_bits_of_limit(Gpu *n, const Op *op, Frag *r);
bool gpu_bits_of_table(Gpu *n, const Op *op, Frag *r);
bool gpu_bits_of_both(Gpu *n, const Frag *a, const Frag *b, Frag *r);
// The values of rows that loaded columns are compared with, and with nothing
// else; 0: no. Then r is made of `count` words x, those of lane l columns
// l % 8 + 8 i of thread l / 8.
Value gpu_compared_rows(Gpu *n, const Op *load);
void gpu_bits_of_equal(Gpu *n, const V *x, uint32_t count, Value rows, Frag *r);
extern GpuEmit gpu_const, gpu_splat, gpu_coordinates, gpu_bcast, gpu_fcols,
    gpu_freduce, gpu_fcombine, gpu_fscan, gpu_relayout, gpu_vote, gpu_exceeds;

// ---- memory (mem.c, loose.c, shared.c, copy.c; codegen/nv/tma.c)
// A tile of distances; false: it is none.
bool gpu_load_loose(Gpu *n, const Op *op, const FragMap *m, V *e);
V gpu_shared(Gpu *n, V byte);  // pointer to shared memory
V gpu_tile_at(Gpu *n, Tile t, uint32_t byte);
// Pointer to the 16-byte chunk (c0 ^ bit) of a row; bit NULL: c0. c0 is even
// where bit is given.
V gpu_chunk(Gpu *n, Tile s, const Type *t, V row, uint32_t c0, V bit);
// Byte of element (row, col) in a tile's slot.
V gpu_offset(Gpu *n, const Type *t, V row, V col);
// Pointer to byte `byte` of a tile.
V gpu_tile_byte(Gpu *n, Tile s, V byte);
// Pointer to element (row, col) of a tile.
V gpu_element(Gpu *n, Tile s, const Type *t, V row, V col);
// Registers that are neighbours along the axis, in multiples of which the rest
// lies too: 1, 2, 4 or 8 of them, *step registers apart.
uint32_t gpu_run(const FragMap *m, uint32_t axis, uint32_t *step);
// Elements of one access of a tile, in registers *step apart.
uint32_t gpu_access(const FragMap *m, const Type *t, uint32_t *step);
void gpu_store_frag(Gpu *n, Tile s, const Type *t, const Frag *f);
Frag gpu_load_frag(Gpu *n, Tile s, const Type *t, const Type *want);
void gpu_sync(Gpu *n);  // the group's barrier
// The number of the tensor map that a tma_load or tma_store uses.
uint32_t nv_map_of(Gpu *n, const Op *op);
// Of an op on barriers: the address of the one that operands i and i + 1 tell.
V nv_mbar_at(Gpu *n, const Op *op, uint32_t i);
// All of v that must be there for v to be there, joined with `with` if that is
// not NULL: a word of each load.
V nv_joined(Gpu *n, Value v, V with);
// Shared memory of code generation for the executing group instance: byte
// offset in i32.
V gpu_scratch(Gpu *n, uint32_t bytes);
// Scratch that op and the relayouts right behind it need; that a relayout's
// slice has for itself where it stays there, 0: it does not.
uint32_t gpu_relayouts_bytes(const Func *f, const Op *op);
uint32_t gpu_stay_bytes(const Func *f, const Op *op);
Frag *gpu_stayed(Gpu *n, Value v);
// Pointer to device memory.
V gpu_global(Gpu *n, V address);
// The operands of a product in shared memory, where they begin.
Tile gpu_operand_a(Gpu *n, const Op *op);
Tile gpu_operand_b(Gpu *n, const Op *op);
extern GpuEmit gpu_gload, gpu_gstore, gpu_sget, gpu_sset, gpu_sload, gpu_sstore,
    gpu_sflip, gpu_sclean, gpu_slot, gpu_gsync, gpu_cp_async, gpu_copy_told,
    gpu_soon;
// Is op a copy of rows that are told one by one? (told.c)
bool gpu_is_told(const Gpu *n, const Op *op);
// A load of such rows, which are widened on their way: words of r. False: it is
// another.
bool gpu_load_told(Gpu *n, const Op *op, Frag *r);
extern GpuEmit nv_tma_load, nv_tma_store, nv_tma_commit, nv_tma_wait,
    nv_mbar_wait, nv_mbar_arrive, nv_mbar_expect, nv_bar_sync, nv_bar_arrive,
    nv_fence_async;

// ---- products (mma.c; codegen/nv/mma.c, codegen/nv/wgmma.c)
bool nv_mma_sync(Gpu *n, const Product *p, Frag *r);
// The same where b has 8-bit floats (narrow.c); row0: a's first row for a warp.
bool nv_mma_narrow(Gpu *n, const Product *p, V row0, Frag *r);
void nv_enter_loop(Gpu *n, const Op *loop);
// Four matrices of 8 x 8 16-bit elements; c {16, 8} += a {16, 16} b {16, 8}.
void nv_ldmatrix(Gpu *n, V at, bool trans, V out[4]);
void nv_mma16(Gpu *n, DType t, const V *a, V b0, V b1, V *c);
void nv_mma_sum(Gpu *n, const Product *p, uint32_t products, bool fresh,
                Frag *r);
bool nv_load_a(Gpu *n, Tile s, const Type *t, bool trans, const Type *ft,
               Frag *f);
extern GpuEmit gpu_mma, nv_wgmma, nv_wg_fence, nv_wg_commit, nv_wg_wait;

extern GpuEmit nv_ftrinv;  // codegen/nv/tri.c
extern GpuEmit nv_skew;    // codegen/nv/skew.c
extern GpuEmit nv_fwarps;  // codegen/nv/fwarps.c
extern GpuEmit nv_peers;   // codegen/nv/peers.c
// Their barriers, by one thread; by all, when these are there.
void nv_peers_init(Gpu *n);
void nv_peers_begin(Gpu *n);
extern GpuEmit nv_fdeal;  // codegen/nv/fdeal.c

// ---- kernels (kernel.c), control flow (control.c; codegen/nv/roles.c), dispatch
// (op.c)
void gpu_kernel(Gpu *n, const char *symbol);
void gpu_region(Gpu *n, const Region *r);
void gpu_string_attr(Gpu *n, unsigned at, const char *k, const char *v);
void gpu_op(Gpu *n, const Op *op);
// For what place and legal must not leave: adds a diagnostic.
void gpu_unsupported(Gpu *n, const Op *op, const char *what);
extern GpuEmit gpu_for, gpu_while, gpu_branch, nv_roles;

#endif
