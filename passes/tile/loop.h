// A key loop being made: what loop.c and bounds.c share.
#ifndef ATTNC_PASSES_TILE_LOOP_H
#define ATTNC_PASSES_TILE_LOOP_H

#include "passes/tile/tile.h"

typedef struct KeyLoop {
  Tiler *t;
  const Op *op;                 // the pass
  const struct KeyLoop *outer;  // the loop around, or NULL
  uint32_t axis;                // its key axis
  int64_t step;  // keys of an iteration; 1: the axis has no tile (outer.c)
  uint32_t n;    // accumulators
  const IrAttr *kinds;
  FillKind fill;
  PassOrder order;
  const Region *domain, *local, *correct, *bounds, *classify;
  bool whole;    // the domain is `const true`
  bool sparse;   // tiles are tested one by one
  bool careful;  // see `visible`
  bool judged;   // tiles are only asked for the mask
  bool adds;     // it has stores that add up over the tiled axis
  Type *types;   // of the accumulators, as tiles
  // of the loop body being made
  const Value *old;  // the accumulators in front of it
  bool masked;
  Value full;  // bool: every key of the tile is seen; 0: unknown
  Value rows;  // bool{q}: the rows that see full tiles; 0: all
  bool by_rows;
  Value mask;        // bool over lanes and keys
  Value kmask;       // its part that does not vary with the lanes, or 0
  bool extent_only;  // kmask says `key < extent` only
  Value keep;        // bool: products that count, see `visible`; 0: all
  Value row;         // first row of a group in its tile, or 0
  Value finite;      // bool: what stores that add share is; 0: it need not be
} KeyLoop;

enum { MAX_RANGES = 4, MAX_OWN = 4 };

// Key tiles from `base` on, those from f0 up to f1 without a mask.
typedef struct Range {
  Value base, f0, f1, hi;
  bool no_full;  // [f0, f1) is empty
  bool covers;   // f1 is no more than hi
} Range;

KeyLoop tile_key_loop(Tiler *t, const Op *op);
// The intervals that the pass' bounds give; how many.
uint32_t tile_ranges(KeyLoop *l, Builder *b, const ValueMap *pre,
                     Range out[MAX_RANGES]);
// Maps the arguments of a bounds or classify region; how many it has mapped.
uint32_t tile_map_box(KeyLoop *l, Builder *b, const Region *r, ValueMap *m);
// v of the stream in the body being made, with all that it is made of.
Value tile_need(KeyLoop *l, Builder *b, Value v, ValueMap *m);
// v where the mask holds, else `other`.
Value tile_keep_if(Builder *b, Value mask, Value v, double other);
// Are keys behind the end of their axis out of the range of what a load or a
// store names? Then it reads 0 there, and stores nothing.
bool tile_ends_with_keys(const KeyLoop *l, const Op *op, const ValueMap *m);
// The load of a table that tells whether p, a part of the domain, holds
// (bias_table), or NULL.
const Op *tile_told(const KeyLoop *l, Value p);
// The mask of the keys k0 + iota, by limits where it can be (limit.c).
void tile_limits(KeyLoop *l, Builder *b, Value k0, Value iota, ValueMap *m);
// Coordinates and mask of the tile of keys from k0.
void tile_open(KeyLoop *l, Builder *b, Value k0, bool masked, ValueMap *m);
// The intervals that a phase before has found, if it has (bounds.c): the
// tiles are not tested then. How many, or 0. Where groups have their own
// bounds those of the executing one go to *mine.
uint32_t tile_bounds_read(KeyLoop *l, Builder *b, Range *out, Range *mine);
// Whether full tiles of l are those of which each row sees all keys or none.
bool tile_bounds_by_rows(KeyLoop *l);

// The mask, and which tiles are full, of rows inside of the tiled axis: what is
// added up over these has no others (adds.c).
void tile_live_rows(KeyLoop *l, Builder *b);
// Whether all elements are; axis: one that v has.
Value tile_is_finite(Builder *b, Value v, uint32_t axis);
// Whether what the rows of stores that add share is, in front of the loop; 0:
// it does not matter.
// v, of the value `from` of the stream, with 0 behind the end of the tiled axis
// where sums over it are added (GPU): others that multiply v take the same.
Value tile_adds_rows(const KeyLoop *l, Builder *b, Value from, Value v);
Value tile_adds_finite(KeyLoop *l, Builder *b, ValueMap *m);
// The stores of the pass, for the tile that is open, whose first key is k0.
void tile_adds(KeyLoop *l, Builder *b, Value k0, ValueMap *m);
// Groups of a tile's rows that have bounds of their own, or 0 (group_bounds.c).
uint32_t tile_own_groups(const TilePlan *p);
// The executing group's of n intervals.
Range tile_own_range(Builder *b, const Range *of, uint32_t n);
// `all` becomes what a group needs of it, whose own interval is `of`. Steps
// that are left to others: below the group's, above.
void tile_own_bounds(Builder *b, Range *all, const Range *of, int64_t step,
                     Value skipped[2]);
void tile_own_skip(Builder *b, Value n);

#endif
