// Layouts of fragments and shared tiles (layouts.def), as arithmetic: which
// element a register of a thread holds, where an element lies in shared memory.
// Used by the verifier, the passes and code generation.
#ifndef ATTNC_IR_LAYOUT_H
#define ATTNC_IR_LAYOUT_H

#include "ir/ir.h"

enum { AXIS_ROW, AXIS_COL, AXIS_NONE, MAX_FACTORS = 8 };

// A mixed-radix digit: `size` values, each worth `stride` along `axis`.
typedef struct Factor {
  uint32_t size, axis, stride;
} Factor;

// A fragment type over a group of threads. Axes that a slice does not have are
// left out: register factors are dropped, thread factors become AXIS_NONE.
typedef struct FragMap {
  Factor reg[MAX_FACTORS], thr[MAX_FACTORS];
  uint32_t nreg, nthr;
  uint32_t regs;  // registers (elements) of a thread
  uint32_t threads;
} FragMap;

// The layout of that name; `frag` tells which kind is meant.
bool layout_by_name(const char *name, size_t len, bool frag, LayoutId *id);
const char *layout_name(LayoutId id);

// NULL, or why fragments of type t cannot lie on that many threads.
const char *frag_map(const Type *t, uint32_t threads, FragMap *out);
// Row and column that register `reg` of thread `thread` holds (0 along an axis
// that a slice does not have).
void frag_at(const FragMap *m, uint32_t reg, uint32_t thread, uint32_t at[2]);
// The inverse: thread (the lowest of those that hold it) and register of an
// element.
void frag_find(const FragMap *m, const uint32_t at[2], uint32_t *thread,
               uint32_t *reg);
// The register of the slice of axis `axis` that holds what register `reg` of
// the tile needs: in thread 0, and so in all, as code is the same for all
// threads.
uint32_t frag_slice_reg(const FragMap *tile, const FragMap *slice,
                        uint32_t axis, uint32_t reg);

// May sums over that axis of such fragments stay in parts (freduce)? Threads
// that hold the same rows would count them twice.
bool frag_adds_in_parts(const Type *t, uint32_t threads, uint32_t pos);
// Can products of a warpgroup (wgmma) have sums of type c, of operands of type
// t, `depth` elements deep? Rows are 64s, columns 8s, steps 32 bytes.
bool frag_is_group_product(const Type *c, DType t, uint32_t depth);
// Is operand 3 of such a product the first of its rows of a shared tile that
// has more of them, or else of its columns?
bool frag_takes_rows(const Func *f, const Op *op);

// Type of the slice of t along axis `pos` (it varies with that axis).
Type frag_slice(const Type *t, uint32_t pos, bool partial);
// Result of an elementwise op on both: partial if one is; kind TK_NONE if the
// shapes differ.
Type frag_join(const Type *a, const Type *b, DType dtype);

// Shared tiles. Bytes of one slot, of all; bytes of an element's place in it.
uint32_t smem_slot_bytes(const Type *t);
uint32_t smem_bytes(const Type *t);
// What its first byte is a multiple of.
uint32_t smem_align(const Type *t);
// First bytes of the shared tiles that f begins with, by value; the bytes of
// all. One that is in the memory of another (salloc with an operand) lies
// there.
uint32_t smem_place(const Func *f, uint32_t *at);
uint32_t smem_offset(const Type *t, uint32_t row, uint32_t col);
// Bytes of a panel's row; the whole row for layout `row`.
uint32_t smem_panel_bytes(const Type *t);
bool smem_has_whole_panels(const Type *t);
uint32_t smem_swizzle_shift(LayoutId id);
// Stored by columns; what its units are XORed with is cut to the mask.
bool smem_turned(LayoutId id);
uint32_t smem_turned_mask(const Type *t);
// NULL, or what is wrong with the type.
const char *smem_error(const Type *t);

// Shared memory of a group for `fwarps`: of a tile a quarter of the registers
// of all its threads, of a slice all; and so many words of a thread at a time.
uint32_t frag_warps_bytes(const Type *t);
// Shared memory of a group for what the CTAs of a cluster send it to be joined
// by `peers`: of one, of all.
uint32_t frag_peers_bytes(const Func *f, const Op *op);
int64_t frag_peers_all(const Func *f);
uint32_t frag_warps_words(const Type *t);

// Shared memory of a group for a `skew` that turns: the result, each row of it
// with so many words more. The others stay in lanes. A warp has 16 rows.
enum { SKEW_ROWS = 16, SKEW_MORE = 4 };
uint32_t smem_skew_bytes(const Op *op, const Type *result);

// Do the diagonals that a skew asks for lie in the n columns of its operand?
// same: points of the axis that both have; other: of the result's own.
static inline bool skew_inside(const Op *op, int64_t same, int64_t other,
                               int64_t n) {
  bool back = ir_attr_i(op, AT_REVERSE, 0) != 0;
  int64_t pos = ir_attr_i(op, AT_POS, 0);
  return pos >= (back ? other : same) - 1 && pos + (back ? same : other) <= n;
}

// Threads that execute op together: an instance of its role, else the CTA.
// 0: the function has no launch.
uint32_t ir_group_threads(const Func *f, const Op *op);
// First op of the body if it is a launch, else NULL.
const Op *ir_launch(const Func *f);

#endif
