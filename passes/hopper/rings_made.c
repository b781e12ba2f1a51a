// Tiles that a group of their own computes of tiles that are copied.
//
//   %r = sfill(%K, %b, %i, %zero)      the producer: tma %r
//        : smem<64x128xf8e4m3>         the maker:    wait %r, sload, cast,
//   %x = cast(sload(%r))          ->                 sstore %t, give back %r
//   %t = sput(%x)                      consumers:    wait %t, mma, give back %t
//   mma(%q, %t)
//
// %r is a `raw` tile, which nobody else reads, %t a `made` one. Both are in
// rings, so that a step's tile is computed while others are multiplied. What
// may be between them: anything element by element, of boxes and of what else
// is in memory (scales, masks of rows), nothing that products have made.
// Programs that read keys once, by few rows (launch: once): others have such
// operands made ahead (passes/attn/materialize.c).
#include "ir/pressure.h"
#include "passes/hopper/rings.h"
#include "passes/support/cost.h"
#include "passes/support/fill.h"

// What sput op is computed of.
typedef struct MadeOf {
  const Rings *w;
  bool *seen;  // by value
  Value raw;   // the first tile that is read, or 0
  bool other;  // elements are others than those in memory, or zeros
} MadeOf;

static bool is_plain(const Op *op) {
  switch (op->code) {
  case OP_SPLAT:
  case OP_BCAST:
  case OP_COORD:
  case OP_COORD_THREAD:
  case OP_COORD_REG:
  case OP_UNIFORM:
  case OP_GLOAD:
  case OP_SLOAD:
  case OP_DIM:
  case OP_GIVEN:
  case OP_CTA:
  case OP_NCTAS:
  case OP_NTASKS:
  case OP_CLAIM: return true;
  default: return op_info(op->code)->flags & OPF_ELEM;
  }
}

static bool is_tile(const Func *f, Value v) {
  return ir_type(f, v)->kind != TK_ELEM && ir_type(f, v)->kind != TK_TENSOR;
}

// A mask alone leaves most tiles as they are, which products then read where
// they have been copied.
static bool changes(const Func *f, const Op *op) {
  const Type *t = ir_type(f, op->res[0]);
  return op_info(op->code)->flags & OPF_ELEM && op->code != OP_SELECT &&
         op->code != OP_CONST && t->kind == TK_FRAG && !t->slice &&
         t->dtype != DT_BOOL;
}

static bool is_made_of(MadeOf *s, Value v) {
  const Op *op = ir_def(s->w->f, v);
  if (s->w->grouped[v]) return false;
  if (!op || op->nregions) return !is_tile(s->w->f, v);
  if (s->seen[v]) return true;
  s->seen[v] = true;
  if (op->code == OP_SFILL) {
    if (!s->raw) s->raw = v;
    return !fill_mended(op);
  }
  if (!is_plain(op)) return false;
  s->other |= changes(s->w->f, op);
  for (uint32_t i = 0; i < op->nargs; i++)
    if (!is_made_of(s, op->args[i])) return false;
  return true;
}

typedef Vec(Value) Tensors;

// Columns that are a tile of one row (columns_made.c).
static bool is_strip(const Rings *w, const Op *put) {
  return ir_type(w->f, put->res[0])->ext[0] == 1;
}

// The tensor that a sput's tile is made of, 0: products have made it, or
// nothing is to be computed.
static Value made_of(const Rings *w, const Op *put) {
  MadeOf s = {.w = w, .seen = NEWN(w->arena, bool, w->f->values.n)};
  if (!is_made_of(&s, put->args[0])) return 0;
  if (is_strip(w, put)) return ir_def(w->f, put->args[0])->args[0];
  const Op *raw = s.other && s.raw ? ir_def(w->f, s.raw) : NULL;
  return raw && raw->parent == put->parent ? raw->args[0] : 0;
}

enum { TILES, STRIPS };

static void find_puts(Rings *w, const Region *r, Tensors seen[2]) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++)
      find_puts(w, op->regions[i], seen);
    Value from = op->code == OP_SPUT ? made_of(w, op) : 0;
    if (!from) continue;
    Tensors *all = &seen[is_strip(w, op) ? STRIPS : TILES];
    uint32_t i = 0;
    while (i < all->n && all->at[i] != from) i++;
    if (i == all->n) vec_push(w->arena, all, from);
    w->source[op->res[0]] = from;
    w->maker[op->res[0]] = i;
  }
}

// Of two makers of tiles each takes every other tensor; one more reads columns.
static void deal(Rings *w, const Region *r, uint32_t tiles) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++) deal(w, op->regions[i], tiles);
    if (op->code != OP_SPUT || !w->source[op->res[0]]) continue;
    uint32_t *m = &w->maker[op->res[0]];
    *m = w->makers == 1 ? 0 : is_strip(w, op) ? tiles : *m % tiles;
  }
}

bool hop_rings_made(const Rings *w, const Op *op) {
  return op->code == OP_SPUT && w->makers && w->source[op->res[0]];
}

bool hop_rings_fills(const Rings *w, const Op *op) {
  bool gathered = op->code == OP_GTILE && ir_attr_i(op, AT_VISIT, 0);
  return op->code == OP_SFILL || gathered || hop_rings_made(w, op);
}

static bool is_making(const Rings *w, Value v) {
  bool some = false;
  for (uint32_t i = 0; i < w->makers; i++) some |= w->making[i][v];
  return some;
}

// Do all of what op gives serve makers alone?
static bool serves_makers(const Rings *w, const Op *op, const bool *used) {
  bool all = op->nres && !op->nregions;
  for (uint32_t i = 0; i < op->nres; i++)
    all = all && is_making(w, op->res[i]) && !used[op->res[i]];
  return all;
}

// Backwards: what consumers read, then what only makers do.
static void find_only(Rings *w, bool *used, const Region *r) {
  for (const Op *op = r->last; op; op = op->prev) {
    for (uint32_t i = 0; i < op->nregions; i++)
      find_only(w, used, op->regions[i]);
    if (hop_rings_made(w, op)) continue;
    if (serves_makers(w, op, used)) {
      w->only[op->res[0]] = true;
      continue;
    }
    for (uint32_t i = 0; i < op->nargs; i++) used[op->args[i]] = true;
  }
}

// A tile that makers read is one maker's alone.
static bool are_apart(Rings *w, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    for (uint32_t i = 0; i < op->nregions; i++)
      if (!are_apart(w, op->regions[i])) return false;
    if (op->code != OP_SFILL || !is_making(w, op->res[0])) continue;
    uint32_t readers = 0;
    for (uint32_t i = 0; i < w->makers; i++)
      if (w->making[i][op->res[0]]) w->maker[op->res[0]] = i, readers++;
    if (!w->only[op->res[0]] || readers > 1) return false;
  }
  return true;
}

static bool look(Rings *w) {
  uint32_t n = w->f->values.n;
  w->only = NEWN(w->arena, bool, n);
  for (uint32_t i = 0; i < w->makers; i++) hop_rings_want_made(w, i);
  find_only(w, NEWN(w->arena, bool, n), w->f->body);
  bool ok = !w->fails && are_apart(w, w->f->body);
  w->fails = false;
  return ok;
}

// Registers of a thread for the sums of the widest product.
static int64_t widest(const Rings *w, const Region *r) {
  int64_t most = 0;
  for (const Op *op = r->first; op; op = op->next) {
    bool product = op->code == OP_MMA || op->code == OP_WGMMA;
    int64_t n =
        product ? pressure_of(ir_type(w->f, op->res[0]), HW_GROUP_THREADS) : 0;
    for (uint32_t i = 0; i < op->nregions; i++) {
      int64_t in = widest(w, op->regions[i]);
      n = in > n ? in : n;
    }
    most = n > most ? n : most;
  }
  return most;
}

// At launch threads have as many registers as such a product takes: ptxas
// makes none of it otherwise, whatever a group gets later.
static bool leave_registers(const Rings *w) {
  int64_t threads = HW_GROUP_THREADS * (1 + w->makers + w->groups);
  int64_t each = w->target->gpu.regs / threads / HW_REG_GRAIN * HW_REG_GRAIN;
  return widest(w, w->f->body) + COST_PRODUCT_REGS <= each;
}

// Several makers where there is a group that multiplies: with one the time of a
// step is what that takes for all. Columns alone are none's. Where a group
// copies rows (rings_told.c) there are no registers for another. Makers go from
// task to task, where CTAs of a cluster have one.
void hop_rings_making(Rings *w) {
  uint32_t n = w->f->values.n;
  Tensors seen[2] = {{0}};
  w->source = NEWN(w->arena, Value, n);
  w->maker = NEWN(w->arena, uint32_t, n);
  bool once = ir_attr_i(w->f->body->first, AT_ONCE, 0);
  if (!once || w->groups > 2 || w->lists) return;
  find_puts(w, w->f->body, seen);
  if (!seen[TILES].n) return;
  w->fails = ir_attr_i(w->f->body->first, AT_CLUSTER, 0) != 0;
  if (w->fails) return;
  uint32_t tiles = seen[TILES].n > 1 ? 2 : 1;
  w->makers = w->groups == 1 ? tiles + (seen[STRIPS].n > 0) : 1;
  for (; w->makers; w->makers = w->makers > 1) {
    deal(w, w->f->body, tiles);
    if (leave_registers(w) && look(w)) return;
  }
}
