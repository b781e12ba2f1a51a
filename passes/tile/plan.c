// Tile sizes of a program: which parallel axis is cut into tiles (its lanes),
// and how many keys one iteration of a key loop covers.
// The lane axis is support/lane.c's. Sizes are the measured optimum of
// docs/cpu-schedule.md, shrunk to short extents.
#include "ir/facts.h"
#include "ir/layout.h"
#include "ir/target.h"
#include "passes/support/balance.h"
#include "passes/support/band.h"
#include "passes/support/bytes.h"
#include "passes/support/columns.h"
#include "passes/support/cost.h"
#include "passes/support/relief.h"
#include "passes/support/widened.h"
#include "passes/tile/copied.h"
#include "passes/tile/tile.h"

// Maxima alone: chunks of one head's steps are tiles where they are found at
// once (max.c).
static bool has_steps(const Func *f, const Target *tg) {
  bool maxima = false;
  for (const Op *op = f->body->first; op; op = op->next)
    maxima |= op->code == OP_MAXPLUS;
  return lane_walks(f->body) || (maxima && tg->gpu.hopper);
}

static int column_axis(const Func *f) {
  int best = -1;
  for (uint32_t a = 0; a < f->axes.n && a < 64; a++)
    if (lane_divides(f, a, true)) best = (int)a;
  return best;
}

enum { MAX_LOADS = 32 };

// Values that live through a key step, in f32 elements: per lane and per key.
// And its work in vector ops: the products of a key and a lane, what is made
// of a key's vectors before them.
typedef struct Footprint {
  const Func *f;
  int lane;
  int64_t per_lane, per_key;
  int64_t products, prologue;
  const Op *load[MAX_LOADS];  // counted
  uint32_t nloads;
} Footprint;

// Is the same tensor counted already, along the same axes?
static bool counted(Footprint *p, const Op *op) {
  for (uint32_t i = 0; i < p->nloads; i++)
    if (p->load[i]->args[0] == op->args[0] &&
        type_eq(ir_type(p->f, p->load[i]->res[0]), ir_type(p->f, op->res[0])))
      return true;
  if (p->nloads < MAX_LOADS) p->load[p->nloads++] = op;
  return false;
}

// As docs/cpu-schedule.md has it, roughly.
static int64_t op_cost(const Op *op) {
  return op_facts(op->code)->cost;
}

static void measure_work(Footprint *p, const Op *op) {
  if (op->nres != 1) return;
  const Type *t = ir_type(p->f, op->res[0]);
  if (t->kind != TK_ELEM) return;
  bool dot = op->code == OP_DOT;
  Type all = dot ? type_union(ir_type(p->f, op->args[0]),
                              ir_type(p->f, op->args[1]), DT_F32)
                 : *t;
  if (!lane_has_key(p->f, &all)) return;
  int64_t n = lane_elements(p->f, &all);
  if (dot && type_has_axis(&all, (uint32_t)p->lane)) p->products += n;
  if (!dot && n > 1 && !type_has_axis(&all, (uint32_t)p->lane))
    p->prologue += n * op_cost(op);
}

// Vectors that are loaded and accumulated: Q and O per lane, K and V per key.
static void measure(void *data, Op *op) {
  Footprint *p = data;
  measure_work(p, op);
  if (op->code != OP_LOAD && op->code != OP_KREDUCE) return;
  if (op->code == OP_LOAD && counted(p, op)) return;
  for (uint32_t i = 0; i < op->nres; i++) {
    const Type *t = ir_type(p->f, op->res[i]);
    int64_t n = lane_elements(p->f, t);
    if (n == 1) continue;
    if (op->code == OP_LOAD && lane_has_key(p->f, t)) p->per_key += n;
    else if (type_has_axis(t, (uint32_t)p->lane)) p->per_lane += n;
  }
}

static int64_t step_bytes(const Footprint *use, int64_t tile_q,
                          int64_t tile_k) {
  return 4 * (tile_q * (use->per_lane + tile_k) + tile_k * use->per_key);
}

// The target's tile, halved while what a step touches overflows three
// quarters of the second-level cache (the rest is for what streams by).
static void fit_cache(Ctx *cx, const Func *f, const Target *tg, TilePlan *p) {
  Footprint use = {.f = f, .lane = p->lane};
  ir_walk(f->body, measure, &use);
  int64_t room = (int64_t)tg->l2 * 1024 * COST_CACHE_NUM / COST_CACHE_DEN,
          lanes = tg->lanes;
  int64_t need;
  for (;;) {
    need = step_bytes(&use, p->tile_q, p->tile_k);
    if (need <= room) break;
    if (p->tile_k > COST_CACHE_KEYS &&
        use.per_key * p->tile_k > use.per_lane * p->tile_q)
      p->tile_k /= 2;
    else if (p->tile_q >= 4 * lanes) p->tile_q = p->tile_q / 2 / lanes * lanes;
    else if (p->tile_k > COST_CACHE_KEYS) p->tile_k /= 2;
    else break;
  }
  // What is made of the keys is made again for every tile of lanes: tiles
  // are longer where that would count.
  while (p->tile_q < COST_PROLOGUE_TILES * tg->tile_q &&
         use.prologue * COST_PROLOGUE_SHARE > use.products * p->tile_q &&
         step_bytes(&use, 2 * p->tile_q, p->tile_k) <= room) {
    p->tile_q *= 2;
    need = step_bytes(&use, p->tile_q, p->tile_k);
    ctx_remark(cx,
               "%s: tile %s:%lld, so that %lld vector ops on each key "
               "weigh less",
               f->name, f->axes.at[p->lane].name, (long long)p->tile_q,
               (long long)use.prologue);
  }
  ctx_remark(cx,
             "%s: a step of %s:%lld x %lld keys touches %lld KiB of a "
             "second-level cache of %u KiB",
             f->name, f->axes.at[p->lane].name, (long long)p->tile_q,
             (long long)p->tile_k, (long long)(need / 1024), tg->l2);
}

// ---------------------------------------------------------------- GPUs
// What a CTA holds: sums of rows in registers; operands of products that have
// vectors in shared memory, as 16-bit parts (passes/gpu/dot.c).
enum { BOUNDS = 3, NUMBERS = 4 };  // region of a pass; values an interval

typedef struct Tiles {
  const Func *f;
  const GpuFacts *gpu;
  Map seen;        // operands that are counted
  Vec(Op *) dots;  // products that are counted
  int64_t sums;    // f32 of a row
  int part;        // axis of parts whose sums groups have, or -1
  int64_t row_bytes, key_bytes;
  int64_t matrix_bytes;  // of matrices that all rows are multiplied by
  int64_t made;          // elements of a key that are computed
  int64_t scores;        // products that have a value per key
  int64_t weights;       // what keys are multiplied with, of one pass
  bool bias;             // scores have terms of the columns
  bool ramp;             // or such that grow with the column's number
  bool pairs;            // or such that a pair has in memory
  bool told;             // and that tells whether it is hidden
  bool even;             // or that distances tell
  int64_t scans, down;   // scores are summed along the columns; down them
  bool walked;           // a pair has a sum that is no product of matrices
  int64_t bands;         // products with a row of a table for each difference,
  int64_t band_bytes;    // and what these rows have
  bool of_keys;          // some are of the keys' vectors, or in blocks
  int64_t products;      // elements of vectors that a pair multiplies
  int64_t functions;     // of a pair: exponentials and the like
  bool drawn;            // pairs draw random numbers
  bool held;             // pairs have values of memory, or of pairs before
  int64_t adds;          // sums of rows that each step adds to memory
  int64_t block_bytes;   // of a key, of what is added to products
  int64_t page;          // keys lie in pages of so many, 0: they do not
  bool boxes;            // tiles lie in one page (passes/tile/page_tiles.c)
  bool mixed;            // pages and slots in them are one coordinate
  bool staged;           // what is copied goes through registers
  bool once;             // keys are read once: a group computes tiles of copies
                         // (passes/hopper/rings_made.c)
  bool strips;           // what columns have is read where it is needed
  int lane;
  bool narrow;  // both ends of the keys move with the rows
  OwnKind own;  // bounds that groups of rows would have
} Tiles;

static bool is_copied(void *data, Value idx) {
  Tiles *s = data;
  if (tile_steps_by_one(s->f, idx)) return true;
  int64_t page = tile_page_of(s->f, idx);
  if (!page) return false;
  s->mixed |= tile_has_slot(s->f, idx, false);
  s->page = tile_common(s->page, page);
  return s->boxes;
}

// Elements of a key that groups with columns of their own have in common: none
// where the columns are another operand's.
static int64_t all_columns(const Tiles *s, const Op *op, int64_t n) {
  Columns c;
  if (s->part < 0 || !op || !columns_of(s->f, op, &c)) return n;
  return columns_host(s->f, op, &c) ? 0 : columns_all(s->f, &c);
}

static int64_t *bytes_of(Tiles *s, const Type *t) {
  if (lane_has_key(s->f, t)) return &s->key_bytes;
  bool all = s->lane >= 0 && !type_has_axis(t, (uint32_t)s->lane);
  bool matrix = all && (!s->staged || lane_is_matrix(s->f, t));
  return matrix ? &s->matrix_bytes : &s->row_bytes;
}

static void measure_operand(Tiles *s, const Op *dot, uint32_t side) {
  Value v = dot->args[side];
  const Type *t = ir_type(s->f, v);
  const Op *op = ir_def(s->f, v);
  int64_t n = all_columns(s, op, lane_elements(s->f, t));
  uint64_t known;
  if (n == 1 || map_get(&s->seen, v, &known)) return;
  map_put(&s->seen, v, 1);
  bool key = lane_has_key(s->f, t);
  // AMD: rows in parts are never in shared memory (passes/gpu/dot.c).
  int64_t size = dtype_size(t->dtype);
  int64_t bytes = bytes_of_operand(s->f, dot, side, s->once ? NULL : s->gpu);
  bool parts = s->staged && !key && bytes != 2;
  if (!parts) *bytes_of(s, t) += n * bytes;
  bool copied = op && op->code == OP_LOAD && bytes <= 2 &&
                (size == bytes || (size == 1 && s->staged));
  bool told = widened_load(s->f, op) && bytes == 2 && size == 2 && s->once &&
              s->lane >= 0 &&
              tile_told_keys(s->f, op, (uint32_t)s->lane, s->boxes);
  copied |= told;
  for (uint32_t i = 1; copied && !told && i < op->nargs; i++)
    if (lane_has_key(s->f, ir_type(s->f, op->args[i])))
      copied = is_copied(s, op->args[i]);
  Copied of = {.f = s->f, .copied = is_copied, .data = s};
  int64_t raw = key && !copied && s->once ? tile_made_of(&of, v) : 0;
  s->key_bytes += raw;
  if (key && !copied && !raw && n > s->made) s->made = n;
}

static bool made_of(const Func *f, Value v, Value of, Map *seen) {
  const Op *op = ir_def(f, v);
  uint64_t known;
  if (v == of || map_get(seen, v, &known)) return v == of;
  map_put(seen, v, 1);
  bool any = false;
  for (uint32_t i = 0; op && i < op->nargs && !any; i++)
    any = made_of(f, op->args[i], of, seen);
  return any;
}

static bool moves(const Tiles *s, const Region *bounds, uint32_t box, Value v) {
  bool any = false;
  for (uint32_t end = 0; end < 2; end++) {
    Map seen = {.arena = s->seen.arena};
    any |= made_of(s->f, v, bounds->params.at[2 * box + end], &seen);
  }
  return any;
}

// Windows and documents: whatever the length, much of a task's keys is masked.
// With more rows and shorter steps that is more tiles, each with a mask's
// values in registers (docs/lab/2026-11-tiles.md), unless groups have bounds of
// their own.
static bool is_narrow(const Tiles *s, const Op *pass) {
  const Region *bounds = pass->nregions > BOUNDS ? pass->regions[BOUNDS] : NULL;
  const IrAttr *box = ir_attr(pass, AT_BOX);
  if (ir_attr_i(pass, AT_SPARSE, 0)) return true;
  for (uint32_t i = 0; bounds && i < bounds->last->nargs; i += NUMBERS)
    for (uint32_t a = 0; box && a < box->n; a++)
      if (box->list[a] == s->lane && moves(s, bounds, a, bounds->last->args[i]))
        return true;
  return false;
}

static bool has_product(const Tiles *s, Value v, Map *seen) {
  const Op *op = ir_def(s->f, v);
  uint64_t known;
  if (!op || op->nregions || map_get(seen, v, &known)) return false;
  map_put(seen, v, 1);
  bool any = op->code == OP_DOT;
  for (uint32_t i = 0; i < op->nargs && !any; i++)
    any = has_product(s, op->args[i], seen);
  return any;
}

// What keys have in a score without its product: a bias, a distance; or 0.
static Value bias_of(const Tiles *s, const Op *op) {
  if (op->code != OP_ADD && op->code != OP_SUB) return 0;
  const Type *t = ir_type(s->f, op->res[0]);
  if (t->kind != TK_ELEM || t->dtype != DT_F32) return 0;
  bool product[2];
  for (uint32_t i = 0; i < 2; i++) {
    Map seen = {.arena = s->seen.arena};
    if (!lane_has_key(s->f, ir_type(s->f, op->args[i]))) return 0;
    product[i] = has_product(s, op->args[i], &seen);
  }
  return product[0] != product[1] ? op->args[product[0]] : 0;
}

// Does v grow with the key's coordinate, in steps that all rows have in common?
static bool is_ramp(const Tiles *s, Value v) {
  const Op *op = ir_def(s->f, v);
  if (!lane_has_key(s->f, ir_type(s->f, v))) return true;
  switch (op ? op->code : OP_YIELD) {
  case OP_INDEX: return true;
  case OP_CAST: return is_ramp(s, op->args[0]);
  case OP_ADD:
  case OP_SUB: return is_ramp(s, op->args[0]) && is_ramp(s, op->args[1]);
  case OP_MUL:
    for (uint32_t i = 0; i < 2; i++) {
      const Type *by = ir_type(s->f, op->args[i]);
      if (!lane_has_key(s->f, by) && !type_has_axis(by, (uint32_t)s->lane))
        return is_ramp(s, op->args[1 - i]);
    }
    return false;
  default: return false;
  }
}

// What pairs have for their distance (passes/attn/bias_table.c), elements of a
// thread a constant apart.
static bool is_even(const Op *op) {
  return op->code == OP_LOAD && ir_attr_i(op, AT_LOOSE, 0) &&
         !ir_attr_i(op, AT_INBOUNDS, 0);
}

// Is all of v that keys have read of memory, elements one behind the other?
// Then steps read it where they need it (passes/hopper/tma_columns.c), as they
// do what is even.
static bool is_read(const Tiles *s, Value v) {
  const Op *op = ir_def(s->f, v);
  if (!lane_has_key(s->f, ir_type(s->f, v))) return true;
  if (!op || op->nregions || op->code == OP_INDEX) return false;
  if (is_even(op)) return true;
  if (op->code == OP_LOAD) {
    bool ok = s->strips && op->nargs > 2;
    for (uint32_t i = 1; i < op->nargs; i++)
      if (lane_has_key(s->f, ir_type(s->f, op->args[i])))
        ok &= tile_steps_by_one(s->f, op->args[i]);
    return ok;
  }
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!is_read(s, op->args[i])) return false;
  return true;
}

// Is a number of v itself read of memory, for its row and key?
static bool is_loaded(const Tiles *s, Value v) {
  const Op *op = ir_def(s->f, v);
  const Type *t = ir_type(s->f, v);
  if (!op || !lane_has_key(s->f, t) || !type_has_axis(t, (uint32_t)s->lane))
    return false;
  if (op->code == OP_LOAD) return !is_even(op);
  for (uint32_t i = 0; i < op->nargs && !op->nregions; i++)
    if (ir_type(s->f, op->args[i])->kind == TK_ELEM &&
        is_loaded(s, op->args[i]))
      return true;
  return false;
}

// Is v, or a number that it is made of, one that hides what a mask does?
static bool is_told(const Tiles *s, Value v) {
  const Op *op = ir_def(s->f, v);
  if (!op || op->nregions || !lane_has_key(s->f, ir_type(s->f, v)))
    return false;
  bool told = op->code == OP_LOAD && ir_attr_i(op, AT_HIDES, 0);
  for (uint32_t i = 0; i < op->nargs && !told; i++)
    told =
        ir_type(s->f, op->args[i])->kind == TK_ELEM && is_told(s, op->args[i]);
  return told;
}

// Is a number that distances tell in v?
static bool has_even(const Tiles *s, Value v) {
  const Op *op = ir_def(s->f, v);
  bool even = op && is_even(op);
  for (uint32_t i = 0; op && i < op->nargs && !op->nregions && !even; i++)
    even =
        ir_type(s->f, op->args[i])->kind == TK_ELEM && has_even(s, op->args[i]);
  return even;
}

static void note_bias(Tiles *s, const Op *op) {
  Value v = bias_of(s, op);
  if (v && type_has_axis(ir_type(s->f, v), (uint32_t)s->lane) &&
      is_loaded(s, v))
    s->pairs = true;
  s->told |= v && is_told(s, v);
  s->even |= v && has_even(s, v);
  if (!v || is_read(s, v)) return;
  if (is_ramp(s, v)) s->ramp = true;
  else s->bias = true;
}

// Vectors that a pair of a row and a key multiplies.
static void note_products(Tiles *s, const Op *op) {
  Type all = type_union(ir_type(s->f, op->args[0]), ir_type(s->f, op->args[1]),
                        DT_F32);
  if (lane_has_key(s->f, &all) && type_has_axis(&all, (uint32_t)s->lane))
    s->products += lane_elements(s->f, &all);
}

// What a pair has besides its products.
static void note_pair(Tiles *s, const Op *op) {
  if (op->nres != 1 || s->lane < 0) return;
  const Type *t = ir_type(s->f, op->res[0]);
  bool pair = t->kind == TK_ELEM && t->dtype == DT_F32 &&
              lane_has_key(s->f, t) && type_has_axis(t, (uint32_t)s->lane) &&
              lane_elements(s->f, t) == 1;
  if (!pair) return;
  s->functions += op_is_function(op->code);
  s->held |= op->code == OP_LOAD || op->code == OP_SCAN;
}

static bool is_pair(const Tiles *s, Value v) {
  const Type *t = ir_type(s->f, v);
  return lane_has_key(s->f, t) && type_has_axis(t, (uint32_t)s->lane);
}

// Rows of a table for differences that are multiplied as a band of matrices
// (passes/tile/band_mma.c).
static bool is_band(const Tiles *s, const Op *op, Band *b) {
  return !s->staged && band_of(s->f, op, b) &&
         ((int)b->same == s->lane || (int)b->other == s->lane) &&
         dtype_is_float16(ir_type(s->f, op->args[0])->dtype) &&
         dtype_is_float16(ir_type(s->f, op->args[1])->dtype);
}

static void note_bands(Tiles *s, const Op *op) {
  Band b;
  if (!is_band(s, op, &b)) return;
  const Type *t = ir_type(s->f, op->args[b.table]);
  s->bands++;
  s->of_keys |= (int)b.same != s->lane;
  s->band_bytes += lane_elements(s->f, t) * dtype_size(t->dtype);
  map_put(&s->seen, op->args[b.table], 1);
}

// Sums for a row and a key of what has further axes: passes/gpu/slice.c walks
// one of them, and holds the sums, and a term for each.
static void note_walked(Tiles *s, const Op *op) {
  bool pass = op->code == OP_KREDUCE;
  if (s->lane < 0 || !op->nres ||
      (op->code != OP_DOT && op->code != OP_REDUCE && !pass))
    return;
  Band b;
  if (!is_pair(s, op->res[0]) || is_band(s, op, &b)) return;
  s->walked |= pass;
  for (uint32_t i = 0; i < op->nargs && i < 2; i++)
    s->walked |= is_pair(s, op->args[i]);
}

// Vectors that a pass adds up; those of a pass inside are the same (loop.c).
static int64_t sums_of(const Func *f, const Op *op) {
  int64_t all = 0;
  const Region *local = op->regions[1];
  for (uint32_t i = 0; i < op->nres; i++) {
    int64_t n = lane_elements(f, ir_type(f, op->res[i]));
    const Op *in = ir_def(f, local->last->args[i]);
    bool same = in && in->code == OP_KREDUCE && in->parent == local;
    if (n > 1 && !same) all += n;
  }
  return all;
}

// What the passes around have added up.
static int64_t sums_around(const Func *f, const Op *op) {
  int64_t all = 0;
  for (op = op->parent->parent; op; op = op->parent->parent)
    if (op->code == OP_KREDUCE) all += sums_of(f, op);
  return all;
}

static bool used_behind(const Op *op, Value v) {
  while ((op = op->next))
    if (ir_mentions(op, v)) return true;
  return false;
}

// Is op a pass, or does it make a vector of what one has left?
static bool of_pass(const Func *f, const Map *left, const Op *op) {
  uint64_t x;
  bool any = op->code == OP_KREDUCE;
  for (uint32_t i = 0; i < op->nargs && !op->nregions; i++)
    any |= map_get(left, op->args[i], &x);
  return any && (op->nres != 1 || lane_elements(f, ir_type(f, op->res[0])) > 1);
}

// What earlier passes have left is kept through this one
// (passes/gpu/sched_pressure.c).
static int64_t kept_through(const Func *f, const Op *pass, Arena *a) {
  Map left = {.arena = a};
  int64_t all = 0;
  for (const Op *op = pass->parent->first; op != pass; op = op->next)
    for (uint32_t i = 0; of_pass(f, &left, op) && i < op->nres; i++) {
      int64_t n = lane_elements(f, ir_type(f, op->res[i]));
      if (n <= 1) continue;
      map_put(&left, op->res[i], 1);
      if (used_behind(pass, op->res[i])) all += n;
    }
  return all;
}

// Is op a product that an earlier pass has, too? Scores that are made again do
// not live beside those, and their operands come through the same ring.
static bool made_again(Tiles *s, Op *op) {
  for (uint32_t i = 0; i < s->dots.n; i++)
    if (s->dots.at[i]->parent != op->parent &&
        tile_is_again(s->f, s->dots.at[i]->res[0], op->res[0]))
      return true;
  vec_push(s->seen.arena, &s->dots, op);
  return false;
}

// What keys add to another product (passes/tile/bias_mma.c), a block of 16-bit
// floats each.
enum { BLOCK_BYTES = 2 * HW_BLOCK };

static void measure_tiles(void *data, Op *op) {
  Tiles *s = data;
  note_bias(s, op);
  bool keys = op->nres == 1 && lane_has_key(s->f, ir_type(s->f, op->res[0]));
  s->scans |= op->code == OP_SCAN && keys;
  tile_note_block(op, s->lane, &s->of_keys, &s->down);
  s->adds += op->code == OP_STORE && ir_attr_i(op, AT_ADD, 0);
  s->drawn |= op->code == OP_RANDOM && keys;
  if (op->code == OP_KREDUCE) {
    int64_t weights = tile_weights(s->f, s->lane, op, s->seen.arena);
    if (weights > s->weights) s->weights = weights;
    int64_t n = sums_of(s->f, op) + sums_around(s->f, op) +
                kept_through(s->f, op, s->seen.arena);
    // AMD's tiles are measured for what all streams take.
    if (s->staged) s->sums += sums_of(s->f, op);
    else if (n > s->sums) s->sums = n;
    s->narrow |= is_narrow(s, op);
  }
  if (op->code == OP_DOT) note_products(s, op);
  note_pair(s, op);
  note_walked(s, op);
  note_bands(s, op);
  if (op->code == OP_DOT && !s->staged && made_again(s, op)) return;
  if (op->code == OP_DOT && tile_joined(s->f, op, s->lane)) {
    s->block_bytes += BLOCK_BYTES;
    return;
  }
  if (s->once && tile_added(s->f, op)) s->scores--;
  if (op->code == OP_DOT)
    s->scores += lane_has_key(s->f, ir_type(s->f, op->res[0]));
  for (uint32_t i = 0; op->code == OP_DOT && i < 2; i++)
    measure_operand(s, op, i);
}

// Do products take so many times what a pair's exponential takes?
static bool has_products(const Tiles *s, uint32_t times) {
  Balance pair = balance_pair(s->products);
  return balance_products(&pair, s->gpu, times);
}

// Edges of masks are many steps, whose scores have another function than the
// exponential: both ends' masks live beside it.
static bool masks_beside_functions(const Tiles *s) {
  return s->narrow && s->functions > 1;
}

// Of a product's diagonals those beyond as many as keys.
static int64_t gaps_of(const Tiles *s) {
  return s->bands ? HW_GROUP_ROWS / 2 : 0;
}

// Registers of a thread with k keys: f32 scores, their sums along a row if
// there are such, 16-bit weights, sums, two columns of eight of what is added
// to them or half of what pairs add, which is read while products are made, or
// all of it, where the mask is made then, or where distances tell it and rows
// are summed twice; masks of two sides beside a cap; what
// was drawn, where weights of two products are multiplied by it.
static int64_t regs_of(const Tiles *s, int64_t k) {
  int64_t scores = s->scores > 1 ? s->scores : 1;
  int64_t weights = s->weights > 1 ? s->weights : 1;
  // Scores are asked behind a ramp, which stays (passes/hopper/lazy_rescale.c,
  // passes/hopper/remat_column.c).
  bool kept = s->bias || (s->ramp && has_products(s, COST_PRODUCTS_TWICE));
  bool all = s->told || (s->even && s->weights > 1);
  int64_t bias = all ? k / 2 : kept || s->pairs ? k / 4 : 0;
  int64_t edges = masks_beside_functions(s) ? k / 8 : 0;
  int64_t drawn = s->drawn && s->scores > 1 ? k / 4 : 0;
  scores += (s->scans > 0) + s->down;
  if (s->walked) scores += COST_WALKED_TILES;
  return gaps_of(s) + scores * k / 2 + weights * k / 4 + bias + edges + drawn +
         s->sums / 2 + k * s->made / 64 + COST_TILE_OTHER_REGS;
}

// Three warpgroups wait less, and ask less for maxima
// (passes/hopper/lazy_rescale.c). Shorter steps are not worth as much.
static int64_t worth(int64_t groups, int64_t k) {
  if (groups < 3) return COST_PAIR_WORTH;
  return k < HW_GROUP_ROWS ? COST_MORE_SHORT_WORTH : COST_MORE_WORTH;
}

// Queries twice, keys and values four times: groups with bounds of their own
// are some steps apart (passes/hopper/rings.c). 192 x 64 has 1.07 of the rate
// of 192 x 80 then at S 2048, 0.99 at S 16384 (D 128, causal).
static bool is_deep(const Tiles *s, const Target *tg, int64_t rows, int64_t k) {
  int64_t bytes = 2 * rows * s->row_bytes + 4 * k * s->key_bytes;
  return bytes + COST_STREAM_SMEM <= (int64_t)tg->gpu.smem;
}

// Registers of a thread of so many groups for tiles; a group alone need not
// leave others any, but code itself takes some.
static int64_t thread_regs(int64_t groups) {
  int64_t n = target_team((uint32_t)groups, 0)->computes;
  return groups > 1 ? n : n - COST_ONE_GROUP_REGS;
}

// Keys in pages are boxes of their tensor if a tile lies in one page, or, where
// the copy engine has them, has several whole ones (passes/tile/page_tiles.c).
static bool in_boxes(const Target *tg, const Tiles *s, int64_t keys) {
  bool pieces = tg->gpu.hopper && !s->mixed && s->page >= COST_PAGE_LEAST &&
                keys / s->page <= COST_PAGES_MOST;
  return s->page % keys == 0 || (pieces && keys % s->page == 0);
}

// Bytes of a group for rows of differences, and for diagonals that turn.
static int64_t bands_of(const Tiles *s, int64_t k) {
  const int64_t word = sizeof(float);
  int64_t moved = s->of_keys ? HW_GROUP_ROWS * (k + SKEW_MORE) * word : 0;
  return s->bands ? (HW_GROUP_ROWS + k) * s->band_bytes + moved : 0;
}

static bool fits(const Tiles *s, const Target *tg, const PassOpt *opt,
                 int64_t groups, int64_t k) {
  int64_t rows = groups * HW_GROUP_ROWS,
          key_bytes = s->key_bytes + s->block_bytes;
  int64_t bytes = rows * s->row_bytes + 2 * k * key_bytes + COST_STREAM_SMEM +
                  s->matrix_bytes + groups * bands_of(s, k);
  return bytes + opt->spare_smem <= (int64_t)tg->gpu.smem &&
         regs_of(s, k) + opt->spare_regs <= thread_regs(groups) &&
         (!s->page || in_boxes(tg, s, k)) &&
         (!s->of_keys || k == HW_GROUP_ROWS) &&
         (groups <= 2 || !s->own || is_deep(s, tg, rows, k));
}

// Steps that add sums of their rows to memory, and whose words have no room
// beside the next one's scores: products stand one behind the other
// (passes/hopper/step_halves.c). In shared memory the rows' tiles of all groups
// lie once more, and words that groups put together in two steps.
static bool fits_in_step(const Tiles *s, const Target *tg, const PassOpt *opt,
                         int64_t groups, int64_t k) {
  enum { PLACES = 2, WORD = 2 };
  PassOpt all = *opt;
  all.spare_regs = all.spare_smem = 0;
  if (!s->adds || groups != 2 || k % HW_GROUP_ROWS ||
      fits(s, tg, &all, groups, k))
    return false;
  int64_t rows = groups * HW_GROUP_ROWS, most = target_team(2, 6)->computes;
  int64_t bytes = rows * s->row_bytes + rows * s->row_bytes / 2 +
                  2 * k * s->key_bytes + PLACES * rows * k * WORD;
  int64_t scores = (s->scores - s->adds) * k / 2;
  int64_t regs = s->sums / 2 + scores + COST_TILE_OTHER_REGS;
  return bytes + COST_STREAM_SMEM + opt->spare_smem <= (int64_t)tg->gpu.smem &&
         regs + opt->spare_regs <= most;
}

// Do a pair's products take longer than its exponential?
static bool exceed_functions(const Tiles *s) {
  Balance pair = balance_pair(s->products);
  return balance_clocks(&pair, s->gpu, UNIT_PRODUCTS) >
         balance_clocks(&pair, s->gpu, UNIT_FUNCTIONS);
}

// Four groups wait less than three, whose steps are twice as long, where a
// pair's products take no longer than its exponential: else the products fill
// the time of three (D 64: 0.79 to 0.98 of the time of 192 x 128, causal, S
// 1024 to 8192). Their threads have no registers for values of pairs, nor for a
// second function beside masks at both ends. For few tasks, and where a step
// does more (biases, caps), three stay beside them: tools/driver/gpu/waves.c.
static bool is_for_four(const Tiles *s, const Target *tg, const PassOpt *opt) {
  enum { FOUR = HW_MOST_GROUPS };
  if (opt->most_groups && opt->most_groups < FOUR) return false;
  if (opt->tile_k > HW_GROUP_ROWS ||
      (opt->tile_q > 0 && opt->tile_q != FOUR * HW_GROUP_ROWS))
    return false;  // tiles asked for are others
  if (s->held || (s->narrow && !s->own) || masks_beside_functions(s))
    return false;
  return !exceed_functions(s) && !opt->spare_regs &&
         fits(s, tg, opt, FOUR, HW_GROUP_ROWS);
}

// Keys of a step at most. One group has as many as rows. Nor have three more
// where much of a step may be masked: tables bound a group's keys, whose rows
// may be short (8 documents of 2048, D 64: 192 x 64 has 1.09 to 1.12 of the
// rate of 192 x 128, of 16384 0.985), or edges stand beside a second function
// (caps in windows of 200 to 4096 keys, D 64: 192 x 64 takes 0.88 to 1.03 of
// the time of 192 x 96, and 0.7 to compile). Nor where pairs are read:
// registers for them are half the scores'.
static int64_t most_keys(const Tiles *s, int64_t groups) {
  bool masked = s->own == OWN_TABLES || masks_beside_functions(s);
  bool few = groups == 1 || (groups > 2 && (masked || s->pairs));
  return few ? HW_GROUP_ROWS : COST_GPU_KEYS;
}

// A tile's size by what is used of it: idle rows take time, and are none of it.
static int64_t used(const Tiles *s, int64_t rows) {
  int64_t all = lane_extent(s->f, (uint32_t)s->lane);
  if (all > COST_MOST_ROWS_COUNTED) return rows;
  int64_t mean = all / ((all + rows - 1) / rows);
  return mean * mean / rows;
}

// Rows and keys of the largest step that two or three warpgroups hold: keys
// and values twice, as they stream, queries once. False: not even the least.
static bool stream_plan(const Tiles *s, const Target *tg, const PassOpt *opt,
                        TilePlan *p) {
  int64_t best = 0, least = opt->few ? 1 : 2;
  int64_t most = opt->few ? 1 : opt->most_groups == 2 ? 2 : 3;
  for (int64_t groups = least; groups <= most; groups++)
    for (int64_t k = s->down || s->drawn ? HW_BLOCK : 2 * HW_BLOCK;
         k <= most_keys(s, groups); k += HW_BLOCK) {
      int64_t rows = groups * HW_GROUP_ROWS;
      if (!fits(s, tg, opt, groups, k) && !fits_in_step(s, tg, opt, groups, k))
        continue;
      int64_t gain = used(s, rows) * k * worth(groups, k);
      if (gain <= best) continue;
      if (groups > 2 && s->narrow && !s->own && best && k < p->tile_k) continue;
      best = gain;
      p->tile_q = rows;
      p->tile_k = k;
    }
  if (!opt->few && p->tile_q == most * HW_GROUP_ROWS &&
      is_for_four(s, tg, opt)) {
    p->tile_q += HW_GROUP_ROWS;
    p->tile_k = HW_GROUP_ROWS;
  }
  return best > 0;
}

// Chunks of a recurrence: shorter ones need fewer registers and less shared
// memory.
static void gpu_chunk(const Target *tg, const PassOpt *opt, TilePlan *p) {
  bool amd = tg->gpu.vendor == VENDOR_AMD;
  int64_t least = amd ? tg->gpu.cols : HW_BLOCK;
  int64_t halves = relief_halves(opt);
  if (amd) halves += (opt->spare_regs + COST_CHUNK_REGS - 1) / COST_CHUNK_REGS;
  p->most_chunk = COST_GPU_CHUNK;
  while (halves-- > 0 && p->most_chunk > least) p->most_chunk /= 2;
  p->least_chunk = amd ? least : p->most_chunk;
}

// Keys of a step beside the sums.
static int64_t keys_that_fit(const Tiles *s, const Target *tg,
                             const PassOpt *opt) {
  bool amd = tg->gpu.vendor == VENDOR_AMD;
  bool decode = tg->gpu.hopper && (opt->few || opt->decode);
  int64_t n = amd ? tg->gpu.wave : decode ? HW_GROUP_ROWS : COST_GPU_KEYS;
  // Scores, their 16-bit copy; a few values per element that is computed.
  bool more = opt->spare_regs || s->made || s->walked;
  int64_t least = more ? HW_BLOCK : 2 * HW_BLOCK;
  if (amd) least = tg->gpu.cols;
  int64_t walked = s->walked ? COST_WALKED_TILES_WAITED : 0;
  while (n > least && s->sums / 2 + n * (3 + 2 * walked) / 4 +
                              n * s->made / 64 + gaps_of(s) +
                              (s->bands ? n / 2 : 0) >
                          COST_TILE_REGS - opt->spare_regs)
    n /= 2;
  return n;
}

// streams: keys of a step are chosen to be boxes.
static Tiles measured(Ctx *cx, const Func *f, const PassOpt *opt,
                      const TilePlan *p, bool streams) {
  const Target *tg = opt->target;
  int lane = p->lane;
  bool amd = tg->gpu.vendor == VENDOR_AMD;
  for (bool boxes = !amd;; boxes = false) {
    Tiles s = {.f = f,
               .seen = {.arena = &cx->scratch},
               .staged = amd,
               .once = tg->gpu.hopper && (opt->few || opt->decode),
               .strips = tg->gpu.hopper && !opt->strided,
               .boxes = boxes,
               .lane = lane,
               .part = p->part,
               .gpu = &tg->gpu,
               .own = amd ? OWN_NONE : tile_own_kind(cx, f, lane)};
    ir_walk(f->body, measure_tiles, &s);
    bool chosen = streams && s.page % (2 * HW_BLOCK) == 0;
    if (!boxes || !s.page || chosen) return s;
    if (in_boxes(tg, &s, keys_that_fit(&s, tg, opt))) return s;
  }
}

// What groups tell each other of a step: weights, and a number of each row.
static int64_t exchanged(const TilePlan *p, int64_t groups) {
  const int64_t half = 2, word = sizeof(float);
  return p->tile_q * (p->tile_k * half + 2 * groups * word);
}

// Few rows whose sums are longer than a group's registers: each group of a task
// has the sums of some columns, and all have the keys' tiles in common. Tasks
// of some columns each would read the keys as often.
static bool columns_plan(Ctx *cx, const Func *f, const PassOpt *opt,
                         TilePlan *p) {
  const Target *tg = opt->target;
  bool few = tg->gpu.hopper && (opt->few || opt->decode) && p->lane >= 0;
  int64_t groups = 0;
  p->part = few && !opt->strided ? columns_part(f) : -1;
  if (p->part < 0) return false;
  dim_is_const(&f->mod->dims, f->axes.at[p->part].extent, &groups);
  Tiles s = measured(cx, f, opt, p, true);
  bool suits = columns_suit(f, (uint32_t)p->lane);
  int64_t regs = target_team((uint32_t)groups, 0)->computes;
  p->tile_q = HW_GROUP_ROWS;
  for (p->tile_k = HW_GROUP_ROWS;
       suits && !s.made && !s.walked && !s.bands && p->tile_k >= 2 * HW_BLOCK;
       p->tile_k /= 2) {
    int64_t need = p->tile_q * s.row_bytes + 2 * p->tile_k * s.key_bytes +
                   exchanged(p, groups);
    if (need + COST_STREAM_SMEM + opt->spare_smem > (int64_t)tg->gpu.smem ||
        regs_of(&s, p->tile_k) + opt->spare_regs > regs ||
        (s.page && !in_boxes(tg, &s, p->tile_k)))
      continue;
    ctx_remark(cx, "%s: %lld groups have columns of the sums each", f->name,
               (long long)groups);
    return true;
  }
  p->part = -1;
  p->tile_k = COST_GPU_KEYS;
  return false;
}

// Tiles that shared memory has room for: fewer keys, then fewer rows where
// those are in shared memory or, on NVIDIA, at the price of slow products.
static int64_t fit_smem(const Tiles *s, const PassOpt *opt, TilePlan *p) {
  const Target *tg = opt->target;
  bool amd = tg->gpu.vendor == VENDOR_AMD;
  bool alone = amd && s->row_bytes;
  int64_t room = tg->gpu.smem / (amd && !alone ? 2 : 1), need;
  int64_t keys = amd ? tg->gpu.cols : HW_BLOCK;
  int64_t rows = amd ? tg->gpu.rows : HW_BLOCK;
  int64_t spare = amd ? 0 : COST_SPARE_SMEM;
  for (;;) {
    int64_t groups = (p->tile_q + HW_GROUP_ROWS - 1) / HW_GROUP_ROWS;
    need = p->tile_q * s->row_bytes + p->tile_k * s->key_bytes +
           s->matrix_bytes + groups * bands_of(s, p->tile_k);
    if (need + spare + opt->spare_smem <= room) break;
    if (p->tile_k > keys) p->tile_k /= 2;
    else if (p->tile_q > rows && (!amd || alone)) p->tile_q /= 2;
    else break;
  }
  return need;
}

static void find_scan(void *found, Op *op) {
  *(bool *)found |= op->code == OP_SCAN;
}

// Running sums of AMD's tiles go through shared memory, all rows at once: half
// of them where room is asked for, and so on.
static int64_t scanned_rows(const Func *f, const PassOpt *opt, int64_t rows) {
  const GpuFacts *g = &opt->target->gpu;
  int64_t spare = opt->spare_smem, step = g->smem / COST_FIT_SMEM_STEPS;
  bool scans = false;
  ir_walk(f->body, find_scan, &scans);
  for (; scans && spare > 0 && rows > g->rows; spare -= step) rows /= 2;
  return rows;
}

// Rows are those of one group of warps. Keys: while the scores and their 16-bit
// copy fit beside the sums in a thread's registers, and the tiles into shared
// memory. The driver asks for more room where registers are spilled
// (tools/driver/gpu/fit.c).
static TilePlan gpu_plan(Ctx *cx, const Func *f, const Target *tg,
                         const PassOpt *opt) {
  TilePlan p = {.lane = lane_axis(f), .part = -1, .tile_k = COST_GPU_KEYS};
  if (has_steps(f, tg)) {
    p.lane = column_axis(f);
    p.tile_q = p.lane < 0 ? 1 : HW_GROUP_ROWS;
    gpu_chunk(tg, opt, &p);
    ctx_remark(cx, "%s: %s", f->name,
               p.lane < 0 ? "a task has all columns of its states"
                          : "tasks have 64 columns of the states each");
    return p;
  }
  if (tile_sums_matrices(f)) {
    p.lane = -1;
    p.tile_q = p.tile_k = 1;
    ctx_remark(cx, "%s: a task has the matrices of one row", f->name);
    return p;
  }
  if (p.lane >= 0 && (p.tile_q = tile_map_rows(f))) {
    ctx_remark(cx, "%s: tiles of %lld rows", f->name, (long long)p.tile_q);
    return p;
  }
  if (columns_plan(cx, f, opt, &p)) return p;
  p.alone = tg->gpu.vendor != VENDOR_AMD && tile_has_row_alone(f, p.lane);
  if (p.alone) p.lane = -1;
  p.tile_q = tile_gpu_rows(cx, f, tg, p.lane);
  // AMD: two workgroups share a CU; K and V wait in registers too, as queries
  // do while there are enough.
  bool amd = tg->gpu.vendor == VENDOR_AMD;
  bool shared = !amd && p.tile_q > HW_GROUP_ROWS;
  Tiles s = measured(cx, f, opt, &p, shared);
  if (amd && !relief_scarce(opt)) s.row_bytes = 0;
  bool streams = shared && stream_plan(&s, tg, opt, &p);
  if (!amd && !streams && opt->spare_regs) p.tile_q = HW_GROUP_ROWS;
  if (!streams) p.tile_k = keys_that_fit(&s, tg, opt);
  int64_t need = fit_smem(&s, opt, &p);
  if (amd) p.tile_q = scanned_rows(f, opt, p.tile_q);
  if (p.lane < 0) p.tile_q = 1;
  ctx_remark(cx,
             "%s: tiles of %lld rows x %lld keys: %lld KiB of shared "
             "memory, %lld registers of sums",
             f->name, (long long)p.tile_q, (long long)p.tile_k,
             (long long)(need / 1024), (long long)(s.sums / 2));
  return p;
}

static void as_asked(Ctx *cx, const Func *f, const PassOpt *opt, TilePlan *p) {
  if (p->lane < 0 || (opt->tile_q <= 0 && opt->tile_k <= 0)) return;
  if (opt->tile_q > 0) p->tile_q = opt->tile_q;
  if (opt->tile_k > 0) p->tile_k = opt->tile_k;
  ctx_remark(cx, "%s: tile %s:%lld x %lld keys, as asked for", f->name,
             f->axes.at[p->lane].name, (long long)p->tile_q,
             (long long)p->tile_k);
}

TilePlan tile_plan(Ctx *cx, const Func *f, const PassOpt *opt) {
  const Target *tg = opt->target;
  if (tg->kind == TARGET_GPU) {
    PassOpt own = *opt;
    own.spare_regs = relief_spare(opt, f);
    TilePlan g = gpu_plan(cx, f, tg, &own);
    g.chunk = opt->chunk;
    as_asked(cx, f, opt, &g);
    tile_whole_blocks(f, &g);
    return g;
  }
  TilePlan p = {.lane = lane_axis(f),
                .part = -1,
                .tile_q = tg->tile_q,
                .tile_k = tg->tile_k,
                .chunk = opt->chunk};
  tile_mats_plan(f, opt, &p);
  if (p.lane < 0) {
    p.tile_q = 1;
    ctx_remark(cx,
               "%s: no parallel axis is tiled; one task per point of the "
               "parallel axes",
               f->name);
    return p;
  }
  fit_cache(cx, f, tg, &p);
  int64_t hi = lane_extent(f, (uint32_t)p.lane), lanes = tg->lanes;
  if (hi < p.tile_q) {
    p.tile_q = hi < lanes ? lanes : (hi + lanes - 1) / lanes * lanes;
    ctx_remark(cx, "%s: tile %s:%lld, the whole extent in full vectors",
               f->name, f->axes.at[p.lane].name, (long long)p.tile_q);
  }
  if (opt->few) {
    p.tile_q = tg->lanes > COST_SHORT_AXIS ? tg->lanes : COST_SHORT_AXIS;
    ctx_remark(cx, "%s: few rows, tile %s:%lld", f->name,
               f->axes.at[p.lane].name, (long long)p.tile_q);
  }
  as_asked(cx, f, opt, &p);
  tile_whole_blocks(f, &p);
  return p;
}
