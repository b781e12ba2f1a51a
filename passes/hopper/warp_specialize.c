// warp_specialize: warp specialization. One warp loads shared tiles by TMA into
// rings, the other warpgroups compute.
//
//   launch() {threads = 256}               launch() {threads = 384}
//   ..                                     %r = salloc() : smem<2x..>
//   for(..) ({                             %f = mbar() {count = 1} : mbar<2>
//     %k = sfill(%K, %i, ..)          ->   %e = mbar() {count = 8} : mbar<2>
//     %s = wgmma(%q, %k)                   roles() {threads = [128, 256]} ({
//     %s1 = wg_wait(%s)                      for(..): wait %e, expect, tma_load
//     ..                                   }, {
//   })                                       ^(%wg):
//                                            for(..): wait %f, wgmma, wg_wait,
//                                                     arrive %e, ..
//                                          })
//
// The producer runs the scalar part of the program that says which tiles are
// wanted: loops, their bounds, coordinates. sfills of one tensor with one box
// share a ring, so copies of a loop's body (peel, stage) go on where the last
// one stopped. A tile is given back right after its last reader: for a wgmma,
// after the wait for it. Tiles whose coordinates depend on group() have slots
// for each group. Quotients that say where a task is are made by the producer
// alone, while the consumers still work on the task before. The sign of a tile
// (attr flip) is the readers' work. A strip (passes/hopper/tma_columns.c) comes
// on the barrier of the tile filled in front of it, which expects its bytes
// too. Tiles that are filled again a step later (attr visit, pipeline_loop) are
// copied once; the last of both readers gives them back. Between the two roles
// there may be others, groups that compute tiles of copied ones
// (rings_made.c).
//
// A program whose tiles depend on computed fragments, or whose rings do not
// fit, stays as it is, but that no one claims tasks for all: its CTAs take
// every so many of them. Where tasks may be short, groups take their blocks of
// rows in turn, and what a task needs is waited for as late as can be. Register
// counts: FlashAttention-3 (arXiv 2407.08608).
// Level frag; sm_90a. Needs: lower_gpu. Tests: test/passes/warp_specialize/.
#include "ir/layout.h"
#include "passes/support/fill.h"
#include "passes/support/relief.h"
#include "passes/hopper/roles.h"

#include <assert.h>

static Value i32(Builder *b, int64_t v) {
  return ir_const_i(b, DT_I32, v);
}

typedef enum RoleKind { LOADS, MAKES, COMPUTES } RoleKind;

// ---------------------------------------------------------------- producer
// Word i of n in a slot.
static Value word_at(Builder *b, Value slot, uint32_t i, uint32_t n) {
  if (n == 1) return slot;
  Value index = i32(b, i);
  return ir_2(b, OP_ADD, ir_2(b, OP_MUL, slot, i32(b, n)), index);
}

// A group's own of what op, a `mine`, has. What the producer has handed over it
// reads again: it has few registers.
static Value mine_of_group(Role *r, Builder *b, const Op *op) {
  Rings *w = r->w;
  Value v = op->args[r->filled < op->nargs ? r->filled : 0];
  uint32_t i = 0;
  while (i < w->nfacts && w->fact[i] != v) i++;
  if (i == w->nfacts) return hop_role_value(r, v);
  const Ring *ring = &w->rings[w->facts];
  Value n = r->fills[ring->count];
  if (!r->known) n = ir_2(b, OP_SUB, n, i32(b, 1));
  Value slot = ir_2(b, OP_MOD, n, i32(b, ring->stages));
  Value at[] = {ring->smem, word_at(b, slot, i, w->nfacts)};
  Type word = type_scalar(DT_I32);
  return ir_op(b, OP_SGET, at, 2, NULL, 0, &word, 1, 0)->res[0];
}

// v for the group that the map says; ops that depend on it are cloned.
static Value part(Role *r, Builder *b, ValueMap *m, Value v) {
  const Op *op = ir_def(r->w->f, v);
  if (!r->w->grouped[v] || vmap_get(m, v) != v)
    return vmap_get(m, v) != v ? vmap_get(m, v) : hop_role_value(r, v);
  if (op->code == OP_GROUP_SELECT) return mine_of_group(r, b, op);
  Value *args = NEWN(r->w->arena, Value, op->nargs);
  for (uint32_t i = 0; i < op->nargs; i++) args[i] = part(r, b, m, op->args[i]);
  Op *made = ir_op(b, op->code, args, op->nargs, op->attrs, op->nattrs,
                   ir_type(r->w->f, v), 1, 0);
  vmap_put(m, v, made->res[0]);
  return made->res[0];
}

// Each panel of a tile has its barrier.
static void load_panels(Role *r, Builder *b, const Op *op, const Ring *ring,
                        Value *args, uint32_t n) {
  Value at = args[2];
  uint32_t col = 4 + (uint32_t)ir_attr(op, AT_TILE)->list[1];
  Value first = args[col];
  IrAttr how[FILL_ATTRS];
  uint32_t nhow = fill_attrs(op, how);
  int64_t all = smem_bytes(ir_type(r->w->f, op->res[0]));
  IrAttr bytes = attr_i(AT_BYTES, all / ring->panels);
  for (uint32_t i = 0; i < ring->panels; i++) {
    Value bar[] = {ring->full, hop_rings_panel(b, ring, at, i)};
    ir_op(b, OP_MBAR_EXPECT, bar, 2, &bytes, 1, NULL, 0, 0);
    args[0] = hop_rings_panel_of(b, ring->cut, bar[1]);
    args[2] = bar[1];
    args[col] = ir_2(b, OP_ADD, first, i32(b, (int64_t)i * HW_PANEL));
    ir_op(b, OP_TMA_LOAD, args, n + 3, how, nhow, NULL, 0, 0);
  }
}

static void produce_beside(Role *r, Builder *b, const Op *wide);

// Do groups take its blocks in turn?
static bool in_turn(const Role *r, const Ring *ring) {
  return ring->own && r->w->turns >= 0;
}

static void await_empty(Builder *b, const Ring *ring, Turn t, int64_t g) {
  Value at = t.slot;
  if (g) at = ir_2(b, OP_ADD, at, i32(b, g * ring->stages));
  hop_role_wait(b, ring->empty, at, ir_2(b, OP_SUB, i32(b, 1), t.parity));
}

static void load_tile(Role *r, Builder *b, const Op *op, Turn t, int64_t g,
                      ValueMap *m) {
  Ring *ring = &r->w->rings[hop_rings_of(r->w, op)];
  Value at = t.slot;
  bool wide = fill_wide(r->w->f, op);
  if (g) at = ir_2(b, OP_ADD, at, i32(b, g * ring->stages));
  if (!ring->rides && !wide && !in_turn(r, ring)) await_empty(b, ring, t, g);
  IrAttr bytes = attr_i(AT_BYTES, hop_rings_bytes(r->w, op));
  Value bar[] = {ring->full, hop_role_barrier(r, b, ring, at, g)};
  if (ring->with < 0 && ring->panels == 1 && !ring->told)
    ir_op(b, OP_MBAR_EXPECT, bar, 2, &bytes, 1, NULL, 0, 0);
  uint32_t n = fill_args(op);
  Value *args = NEWN(r->w->arena, Value, n + 3);
  if (wide) {
    for (uint32_t i = 0; i < n; i++) args[i] = part(r, b, m, op->args[i]);
    WideRows x = hop_role_ask(r, b, op, args);
    produce_beside(r, b, op);
    hop_role_widen(r, &x, (Turn){at, t.parity});
    return;
  }
  args[0] = hop_rings_slot(r->w, b, ring, at);
  args[1] = bar[0];
  args[2] = bar[1];
  args[3] = op->args[0];
  for (uint32_t i = 1; i < n; i++) args[3 + i] = part(r, b, m, op->args[i]);
  if (ring->told) {
    for (uint32_t i = 0; i < n; i++) args[1 + i] = args[3 + i];
    hop_role_copy_told(r, b, op, at, args);
    return;
  }
  if (ring->panels > 1) {
    load_panels(r, b, op, ring, args, n);
    return;
  }
  IrAttr how[FILL_ATTRS];
  ir_op(b, OP_TMA_LOAD, args, n + 3, how, fill_attrs(op, how), NULL, 0, 0);
}

static void is_group(Role *r, Builder *b, const Region *body, ValueMap *m,
                     int64_t g) {
  for (const Op *op = body->first; op; op = op->next) {
    if (op->code == OP_GROUP) vmap_put(m, op->res[0], i32(b, g));
    for (uint32_t i = 0; i < op->nregions; i++)
      is_group(r, b, op->regions[i], m, g);
  }
}

static void produce(Role *r, Builder *b, const Op *op) {
  uint32_t k = (uint32_t)hop_rings_of(r->w, op);
  if (r->w->rings[k].visits >= 0) return;
  if (hop_role_value(r, op->res[0]) != op->res[0]) return;  // done beside
  Turn t = hop_role_turn(r, b, k);
  const Ring *ring = &r->w->rings[k];
  // A group's barrier begins its next phase when the group has seen the last:
  // when it has given back its block, which another has next.
  for (uint32_t g = 0; in_turn(r, ring) && g < r->w->groups; g++)
    await_empty(b, ring, t, g);
  for (uint32_t g = 0; g < (ring->own ? r->w->groups : 1); g++) {
    ValueMap m = {.arena = r->w->arena};
    r->filled = g;
    if (ring->own) is_group(r, b, r->w->body, &m, g);
    load_tile(r, b, op, t, g, &m);
  }
  hop_role_filled(r, b, k, op);
}

static bool has_args(const Op *fill, const Op *at, const Func *f) {
  for (uint32_t i = 0; i < fill->nargs; i++) {
    const Op *op = ir_def(f, fill->args[i]);
    for (const Op *o = at; op && o != fill; o = o->next)
      if (o == op) return false;
  }
  return true;
}

static void soon_beside(Role *r, Builder *b, const Op *fill) {
  const Type *t = ir_type(r->w->f, fill->res[0]);
  Value at[MAX_AXES];
  uint32_t n = fill_args(fill) - 1;
  if (ir_attr(fill, AT_TILE)->list[1] + 1 != n) return;
  for (uint32_t i = 0; i < n; i++) at[i] = hop_role_value(r, fill->args[1 + i]);
  hop_role_soon(b, fill->args[0], at, n,
                (int64_t)t->ext[1] * dtype_size(t->dtype));
}

// What else a step is told: memory brings it while rows are widened.
static void produce_beside(Role *r, Builder *b, const Op *wide) {
  const Func *f = r->w->f;
  for (const Op *op = wide->next; op; op = op->next) {
    if (!fill_told(f, op) || fill_wide(f, op) || !has_args(op, wide, f))
      continue;
    soon_beside(r, b, op);
    produce(r, b, op);
    vmap_put(&r->map, op->res[0], wide->res[0]);
  }
}

// A value that the producer hands over: number `at` of n.
static void publish(Role *r, Builder *b, uint32_t k, Value v, uint32_t at,
                    uint32_t n) {
  const Ring *ring = &r->w->rings[k];
  Turn t = hop_role_turn(r, b, k);
  if (!at)
    hop_role_wait(b, ring->empty, t.slot, ir_2(b, OP_SUB, i32(b, 1), t.parity));
  Value set[] = {ring->smem, word_at(b, t.slot, at, n), hop_role_value(r, v)};
  ir_op(b, OP_SSET, set, 3, NULL, 0, NULL, 0, 0);
  if (at + 1 < n) return;
  hop_role_arrive(b, ring->full, t.slot, NULL);
  hop_role_filled(r, b, k, NULL);
}

static void claim(Role *r, Builder *b, const Op *op) {
  if (hop_role_value(r, op->res[0]) != op->res[0]) return;  // done early
  ir_clone(b, r->w->f, op, &r->map, NULL);
  Role before = *r;
  publish(r, b, (uint32_t)r->w->claims, op->res[0], 0, 1);
  if (r->w->lists) vmap_put(&r->map, op->res[0], hop_role_claimed(&before, b));
}

static void claim_early(Role *r, Builder *b, const Op *fill) {
  const Op *op = fill;
  while (op->code != OP_CLAIM) op = op->next;
  claim(r, b, op);
}

// ---------------------------------------------------------------- consumers
static Value uniform(Builder *b, Value v) {
  Type i = type_scalar(DT_I32);
  return ir_op(b, OP_UNIFORM, &v, 1, NULL, 0, &i, 1, 0)->res[0];
}

// The facts v[0], v[1], .. are all operands of op, a `mine`, and of nothing
// else.
static bool takes_all(const Op *op, const Value *v, uint32_t n) {
  if (op->code != OP_GROUP_SELECT || op->nargs > n) return false;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (op->args[i] != v[i]) return false;
  for (const Op *o = op->parent->first; o; o = o->next)
    for (uint32_t i = 0; i < op->nargs && o != op; i++)
      if (ir_mentions(o, op->args[i])) return false;
  return true;
}

static const Op *mine_of(const Role *r, const Value *v, uint32_t n) {
  const Op *op = r->w->apart ? ir_def(r->w->f, v[0]) : NULL;
  while (op && !takes_all(op, v, n)) op = op->next;
  return op;
}

static void receive(Role *r, Builder *b, uint32_t k, const Value *v,
                    uint32_t n) {
  const Ring *ring = &r->w->rings[k];
  Turn t = hop_role_turn(r, b, k);
  Type word = type_scalar(DT_I32);
  hop_role_wait(b, ring->full, t.slot, t.parity);
  for (uint32_t i = 0; i < n; i++) {
    Value at[] = {ring->smem, word_at(b, t.slot, i, n)};
    const Op *mine = mine_of(r, v + i, n - i);
    uint32_t of = mine ? mine->nargs : 1;
    if (of > 1) at[1] = ir_2(b, OP_ADD, at[1], r->block);
    Value x = ir_op(b, OP_SGET, at, 2, NULL, 0, &word, 1, 0)->res[0];
    vmap_put(&r->map, mine ? mine->res[0] : v[i], uniform(b, x));
    i += of - 1;
  }
  // The words are the producer's again when every thread has read them.
  IrAttr each = attr_i(AT_EACH, 1);
  hop_role_arrive(b, ring->empty, t.slot, &each);
  hop_role_filled(r, b, k, NULL);
}

// What the group needs of op, if it has not been handed over.
static void take_mine(Role *r, Builder *b, const Op *op) {
  if (hop_role_value(r, op->res[0]) != op->res[0]) return;
  uint32_t end, i = hop_rings_own(r->w, op, &end);
  if (r->producer) i = 0, end = 1;
  Value x = hop_role_value(r, op->args[end - 1]);
  for (uint32_t k = end - 1; k-- > i;) {
    Value is = ir_2(b, OP_EQ, r->block, i32(b, k - i));
    x = ir_3(b, OP_SELECT, is, hop_role_value(r, op->args[k]), x);
  }
  vmap_put(&r->map, op->res[0], x);
}

static bool is_fact(const Role *r, const Op *op) {
  for (uint32_t i = 0; i < r->w->nfacts; i++)
    if (op->nres && r->w->fact[i] == op->res[0]) return true;
  return false;
}

// The producer hands over each as soon as it has it: it has few registers.
// Consumers take all where they need the first.
static void fact(Role *r, Builder *b, const Op *op) {
  uint32_t n = r->w->nfacts, k = (uint32_t)r->w->facts, at = r->known++;
  r->known %= n;
  if (r->producer) {
    ir_clone(b, r->w->f, op, &r->map, NULL);
    publish(r, b, k, op->res[0], at, n);
  } else if (!at) {
    receive(r, b, k, r->w->fact, n);
  }
}

// A tile being read in one region.
typedef struct Tile {
  const Op *fill;
  const Op *until;  // given back after this op
  uint32_t ring;
  Value slot, barrier;
  Value parity;  // of its turn, or 0: it has been waited for
  Value before;  // fills before it, if the slot lent before is to go back
  Value pinned;  // is finished before the tile goes back, or 0
} Tile;

// Tiles that are read in one region, and not given back.
typedef struct Live {
  Tile at[2 * MAX_RINGS];
  uint32_t n;
} Live;

static bool after(const Op *a, const Op *b) {
  for (const Op *op = b; op; op = op->next)
    if (op == a) return true;
  return false;
}

// Where what op, a load of a strip, has read has become tiles: until then its
// registers need not all be there at once.
static const Op *used_up(const Role *r, const Op *op) {
  const Op *last = op;
  if (!op->nres || op->nregions) return op;
  const Type *t = ir_type(r->w->f, op->res[0]);
  if (t->kind != TK_FRAG || (!t->slice && op->code != OP_BCAST)) return op;
  for (const Op *o = op->next; o; o = o->next)
    if (ir_mentions(o, op->res[0]) && after(used_up(r, o), last))
      last = used_up(r, o);
  return last;
}

static bool rides(const Role *r, Value v) {
  const Op *fill = ir_def(r->w->f, v);
  return fill && fill->code == OP_SFILL &&
         r->w->rings[hop_rings_of(r->w, fill)].rides;
}

// The last product that adds to this one what rides on its tile: the two are
// given back as one.
static const Op *with_riders(const Role *r, const Op *use) {
  for (const Op *op = use->next; op; op = op->next)
    if (op->code == OP_MMA && op->nargs > 2 && op->args[2] == use->res[0] &&
        rides(r, op->args[1]))
      use = op;
  return use;
}

// Where a product, or what adds to it, is waited for.
static const Op *done(const Role *r, const Op *use) {
  if (r->maker) return hop_role_next_made(r, use);
  if (use->code == OP_SLOAD) return used_up(r, use);
  if (use->code == OP_MMA) return with_riders(r, use);
  if (use->code != OP_WGMMA) return use;
  Value v = use->res[0];
  for (const Op *op = use->next; op; op = op->next) {
    if (!ir_mentions(op, v)) continue;
    if (op->code == OP_WG_WAIT) return op;
    if (op->code == OP_WGMMA && op->nargs > 2 && op->args[2] == v)
      v = op->res[0];
  }
  return use->parent->last;
}

// From op on; NULL if there is none.
static const Op *last_reader(const Role *r, const Op *fill, const Op *op) {
  const Op *last = NULL;
  for (; op; op = op->next)
    if (ir_mentions(op, fill->res[0]) && (!last || after(done(r, op), last)))
      last = done(r, op);
  return last;
}

// A slot that is lent to stores is given back by the next task: the stores have
// read it by then. Not where the producer has no other slot to go on with.
static bool is_late(const Role *r, const Op *fill) {
  const Op *around = fill->parent->parent;
  int k = hop_rings_of(r->w, fill);
  return k == r->w->lent && r->w->rings[k].stages > 1 &&
         r->w->rings[k].fills == 1 && around &&
         (around->code == OP_WHILE ||
          (around->code == OP_FOR && !around->nres));
}

static void give_back_late(Role *r, Builder *b, uint32_t k, Value n) {
  Ring *ring = &r->w->rings[k];
  Value some = ir_2(b, OP_LT, i32(b, 0), n);
  Op *branch = ir_op(b, OP_IF, &some, 1, NULL, 0, NULL, 0, 2);
  Builder in = {.fn = r->w->f, .region = branch->regions[0], .span = b->span};
  hop_role_stores_done(&in);
  ir_bare(&in, OP_GSYNC);
  Value before = ir_2(&in, OP_SUB, n, i32(&in, 1));
  Value block =
      (int)k == r->w->turns ? hop_role_block(r, &in, before) : r->group;
  before = ir_2(&in, OP_MOD, before, i32(&in, ring->stages));
  hop_role_arrive(&in, ring->empty, hop_role_slot(&in, ring, block, before),
                  NULL);
  ir_yield(&in, NULL, 0);
  in.region = branch->regions[1];
  ir_yield(&in, NULL, 0);
}

static void arrived(Role *r, Builder *b, Tile *t) {
  const Ring *ring = &r->w->rings[t->ring];
  for (uint32_t i = 0; t->parity && i < ring->panels; i++)
    if (hop_rings_has_barrier(ring, i))
      hop_role_wait(b, ring->full,
                    ring->panels > 1 ? hop_rings_panel(b, ring, t->slot, i)
                                     : t->barrier,
                    t->parity);
  if (t->parity && ring->told) ir_bare(b, OP_FENCE_ASYNC);
  t->parity = 0;
}

// A product of a tile that comes panel by panel: it begins with the first.
static void multiply_panels(Role *r, Builder *b, const Op *op, Tile *t) {
  const Ring *ring = &r->w->rings[t->ring];
  const Type type = *ir_type(r->w->f, op->res[0]);
  const Op *left = ir_def(r->w->f, hop_role_value(r, op->args[0]));
  const Ring *rows =
      &r->w->rings[hop_rings_of(r->w, ir_def(r->w->f, op->args[0]))];
  Value c = hop_role_value(r, op->args[2]);
  for (uint32_t i = 0; i < ring->panels; i++) {
    Value at = hop_rings_panel(b, ring, t->slot, i);
    if (ring->told) hop_role_await_told(b, ring, t->slot, t->parity, i);
    else hop_role_wait(b, ring->full, at, t->parity);
    Value x = ir_2(b, OP_MUL, left->args[1], i32(b, ring->panels));
    x = hop_rings_panel_of(b, rows->cut, ir_2(b, OP_ADD, x, i32(b, i)));
    Value args[] = {x, hop_rings_panel_of(b, ring->cut, at), c,
                    hop_role_value(r, op->args[3])};
    ir_bare(b, OP_WG_FENCE);
    c = ir_op(b, OP_WGMMA, args, 4, op->attrs, op->nattrs, &type, 1, 0)->res[0];
  }
  t->parity = 0;
  vmap_put(&r->map, op->res[0], c);
}

// The tile that op multiplies panel by panel, if it has not been waited for.
static Tile *by_panels(Role *r, Live *live, const Op *op) {
  for (uint32_t i = 0; op->code == OP_WGMMA && i < live->n; i++)
    if (live->at[i].parity && live->at[i].fill->res[0] == op->args[1] &&
        r->w->rings[live->at[i].ring].panels > 1)
      return &live->at[i];
  return NULL;
}

// What groups share is changed by the first of them.
static void mend(Role *r, Builder *b, const Op *fill) {
  if (!fill_mended(fill)) return;
  bool shared = r->w->groups > 1 && !r->w->rings[hop_rings_of(r->w, fill)].own;
  FillGroups all = {.group = shared ? r->group : 0,
                    .threads = HW_GROUP_THREADS * r->w->groups,
                    .proxies = true};
  fill_mend(b, fill, hop_role_value(r, fill->res[0]),
            hop_role_value(r, fill_by(fill)), &all);
}

static void returned(Role *r, Builder *b, Tile *t) {
  if (t->before) give_back_late(r, b, t->ring, t->before);
  t->before = 0;
}

// What a task needs first it waits for last: a tile of queries in front of the
// first keys, behind all that is read of memory. The slot that was lent goes
// back when the first product is on its way: the stores have had some time.
static void before_op(Role *r, Builder *b, Live *live, const Op *op) {
  bool end = op_info(op->code)->flags & OPF_TERM, fill = op->code == OP_SFILL;
  for (uint32_t i = 0; i < live->n; i++) {
    Tile *t = &live->at[i];
    bool now = end || fill || ir_mentions(op, t->fill->res[0]);
    if (t->parity && now && by_panels(r, live, op) != t) {
      arrived(r, b, t);
      mend(r, b, t->fill);
    }
    if (end || op->nregions || op->code == OP_WG_WAIT) returned(r, b, t);
  }
}

static const Op *find_behind(const Op *op, OpCode c) {
  while (op && op->code != c && !loop_has_fill(op)) op = op->next;
  return op && op->code == c ? op : NULL;
}

static const Op *find_row(const Role *r, const Op *op) {
  op = find_behind(op, OP_FREDUCE);
  while (op && ir_type(r->w->f, op->res[0])->slice != SLICE_ROW)
    op = find_behind(op->next, OP_FREDUCE);
  return op;
}

// An arrival waits for what has been read of a strip, at the price of
// instructions that join it, unless something made of all of it is pinned in
// front. Steps end with a pin, in front of their last wait; elsewhere a row's
// reduction is pinned.
static const Op *end_of_strip(const Role *r, Tile *t, const Op *last) {
  const Op *pin = find_behind(last, OP_PIN);
  const Op *wait = pin ? find_behind(pin, OP_WG_WAIT) : NULL;
  const Op *row = find_row(r, last);
  if (wait) return wait;
  if (pin) return pin;
  t->pinned = row ? row->res[0] : 0;
  return row ? row : last;
}

static Tile consume(Role *r, Builder *b, const Op *op) {
  uint32_t k = (uint32_t)hop_rings_of(r->w, op);
  Ring *ring = &r->w->rings[k];
  const Op *last = last_reader(r, op, op->next);
  Tile tile = {.fill = op, .ring = k};
  if (last && ir_type(r->w->f, op->res[0])->ext[0] == 1)
    last = end_of_strip(r, &tile, last);
  tile.until = last ? last : op;
  bool panels = ring->panels > 1 && fill_stays(r->w->f, op, fill_by(op));
  bool at_once = !panels && (ring->streams || !last || !r->w->brief);
  if (is_late(r, op)) tile.before = r->fills[ring->count];
  if (!r->w->brief) returned(r, b, &tile);
  Turn t = hop_role_turn(r, b, k);
  tile.slot = hop_role_slot(b, ring, r->block, t.slot);
  tile.barrier = hop_role_slot(b, ring, r->group, t.slot);
  bool again = ring->visits >= 0 && !ring->gathered;
  tile.parity = ring->with < 0 && !again ? t.parity : 0;
  if ((int)k == r->w->lent) r->lent = tile.slot;
  if (at_once) arrived(r, b, &tile);
  if (r->maker) hop_role_await_slot(r, b, hop_role_next_made(r, op));
  vmap_put(&r->map, op->res[0], hop_rings_slot(r->w, b, ring, tile.slot));
  if (at_once) mend(r, b, op);
  hop_role_filled(r, b, k, op);
  return tile;
}

static void give_back(const Role *r, Builder *b, const Tile *t) {
  if (r->w->rings[t->ring].rides || r->w->rings[t->ring].kept) return;
  Value done = t->pinned ? hop_role_value(r, t->pinned) : 0;
  if (done) ir_op(b, OP_PIN, &done, 1, NULL, 0, NULL, 0, 0);
  hop_role_arrive(b, r->w->rings[t->ring].empty, t->slot, NULL);
}

// ---------------------------------------------------------------- structure
static void copy_region(Role *r, const Region *from, Builder *b,
                        const Live *outer);

// The tiles that op reads last: its regions give them back.
static Live handed_to(const Role *r, Live *live, const Op *op) {
  Live in = {.n = 0};
  for (uint32_t i = 0; i < live->n;) {
    bool lent = (int)live->at[i].ring == r->w->lent;
    if (live->at[i].until != op || lent) {
      i++;
      continue;
    }
    in.at[in.n++] = live->at[i];
    live->at[i] = live->at[--live->n];
  }
  return in;
}

// Rings that are filled inside op.
static uint32_t rings_in(const Rings *w, const Op *op) {
  if (hop_rings_fills(w, op) || op->code == OP_CLAIM)
    return 1u << w->rings[hop_rings_of(w, op)].count;
  uint32_t set = 0;
  if (w->nfacts && op->nregions &&
      ir_def(w->f, w->fact[0])->parent->parent == op)
    set |= 1u << w->facts;
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next)
      set |= rings_in(w, o);
  return set;
}

static bool keeps(const Role *r, Value v) {
  if (r->maker) return r->w->making[r->number][v];
  return !r->producer || r->w->wanted[v];
}

// Has this role something to do with a ring? A producer fills what is copied,
// but not what is only found again.
static bool counts(const Role *r, const Ring *ring) {
  if (!ring->site) return true;
  if (r->producer) return !ring->made && !ring->gathered && ring->visits < 0;
  if (!r->maker) return !ring->raw;
  return (ring->raw || ring->made) && ring->maker == r->number;
}

// Counts that a role carries through op.
static uint32_t counts_in(const Role *r, const Op *op) {
  uint32_t set = rings_in(r->w, op);
  for (uint32_t k = 0; k < r->w->nrings; k++)
    if (!counts(r, &r->w->rings[k]) && r->w->rings[k].count == k)
      set &= ~(1u << k);
  return set;
}

// The values that a copy of op carries: kept ones of its own, then fills.
typedef struct Carried {
  uint32_t n, own, rings;
  uint32_t at[256];  // own: index among op's results
  Type types[256 + MAX_RINGS + 2];
} Carried;

static Carried carried_of(const Role *r, const Op *op) {
  Carried c = {.rings = counts_in(r, op)};
  for (uint32_t i = 0; i < op->nres; i++) {
    Value v = op->res[i];
    bool keep = keeps(r, v);
    if (op->code == OP_FOR)
      keep = keep || keeps(r, op->regions[0]->params.at[1 + i]);
    if (!keep) continue;
    c.types[c.own] = *ir_type(r->w->f, v);
    c.at[c.own++] = i;
  }
  c.n = c.own;
  for (uint32_t k = 0; k < r->w->nrings; k++)
    if (c.rings >> k & 1) c.types[c.n++] = type_scalar(DT_I32);
  return c;
}

static uint32_t put_fills(const Role *r, const Carried *c, Value *v) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < r->w->nrings; k++)
    if (c->rings >> k & 1) v[n++] = r->fills[k];
  return n;
}

static void take_fills(Role *r, const Carried *c, const Value *v) {
  for (uint32_t k = 0; k < r->w->nrings; k++)
    if (c->rings >> k & 1) r->fills[k] = *v++;
}

// Consumers' slots and descriptors shall be in uniform registers: the
// hardware's compiler does not see that counts around a loop over tasks are
// uniform.
static void uniform_fills(Role *r, const Carried *c, Builder *b) {
  for (uint32_t k = 0; k < r->w->nrings && !r->producer; k++)
    if (c->rings >> k & 1) r->fills[k] = uniform(b, r->fills[k]);
}

static void yield_of(Role *r, const Carried *c, const Region *from,
                     Builder *b) {
  Value *v = NEWN(r->w->arena, Value, c->n);
  for (uint32_t i = 0; i < c->own; i++)
    v[i] = hop_role_value(r, from->last->args[c->at[i]]);
  put_fills(r, c, v + c->own);
  ir_yield(b, v, c->n);
}

static void results_of(Role *r, const Carried *c, const Op *op,
                       const Op *made) {
  for (uint32_t i = 0; i < c->own; i++) {
    Value old = op->res[c->at[i]];
    ir_info(r->w->f, made->res[i])->hint = ir_info(r->w->f, old)->hint;
    vmap_put(&r->map, old, made->res[i]);
  }
  take_fills(r, c, made->res + c->own);
}

static void copy_for(Role *r, const Op *op, Builder *b) {
  Carried c = carried_of(r, op);
  Func *f = r->w->f;
  Value *args = NEWN(r->w->arena, Value, 3 + c.n);
  for (uint32_t i = 0; i < 3; i++) args[i] = hop_role_value(r, op->args[i]);
  for (uint32_t i = 0; i < c.own; i++)
    args[3 + i] = hop_role_value(r, op->args[3 + c.at[i]]);
  put_fills(r, &c, args + 3 + c.own);
  Op *made =
      ir_op(b, OP_FOR, args, 3 + c.n, op->attrs, op->nattrs, c.types, c.n, 1);
  const Region *from = op->regions[0];
  Region *to = made->regions[0];
  Value *in = NEWN(r->w->arena, Value, c.n);
  const ValueInfo i = *ir_info(f, from->params.at[0]);
  vmap_put(&r->map, from->params.at[0], ir_region_param(to, i.type, i.hint));
  for (uint32_t k = 0; k < c.n; k++) {
    Value old = k < c.own ? from->params.at[1 + c.at[k]] : 0;
    in[k] = ir_region_param(to, c.types[k], old ? ir_info(f, old)->hint : NULL);
    if (old) vmap_put(&r->map, old, in[k]);
  }
  take_fills(r, &c, in + c.own);
  Builder inner = {.fn = f, .region = to, .span = op->span};
  if (!op->nres) uniform_fills(r, &c, &inner);
  copy_region(r, from, &inner, NULL);
  yield_of(r, &c, from, &inner);
  results_of(r, &c, op, made);
}

// Number i of the launch lies behind the facts of all slots.
static Value kept_at(Role *r, Builder *b, uint32_t i, Value *at) {
  const Ring *ring = &r->w->rings[r->w->facts];
  at[0] = ring->smem;
  return at[1] = i32(b, ring->stages * r->w->nfacts + i);
}

static void keep_numbers(Role *r, Builder *b) {
  for (uint32_t i = 0; i < r->w->nkept && r->producer; i++) {
    Value set[3] = {0, 0, hop_role_value(r, r->w->kept[i])};
    kept_at(r, b, i, set);
    ir_op(b, OP_SSET, set, 3, NULL, 0, NULL, 0, 0);
  }
}

static void read_numbers(Role *r, Builder *b) {
  Type word = type_scalar(DT_I32);
  for (uint32_t i = 0; i < r->w->nkept && r->producer; i++) {
    Value at[2];
    kept_at(r, b, i, at);
    Value x = ir_op(b, OP_SGET, at, 2, NULL, 0, &word, 1, 0)->res[0];
    vmap_put(&r->map, r->w->kept[i], x);
  }
}

// A loop over tasks carries nothing of its own.
static void copy_while(Role *r, const Op *op, Builder *b) {
  Carried c = {.rings = counts_in(r, op), .n = 1};
  Func *f = r->w->f;
  Value args[MAX_RINGS + 4] = {hop_role_value(r, op->args[0]),
                               hop_role_value(r, op->args[1])};
  uint32_t n = 1 + put_fills(r, &c, args + 2);
  for (uint32_t i = 0; i < n; i++) c.types[i] = type_scalar(DT_I32);
  keep_numbers(r, b);
  Op *made =
      ir_op(b, OP_WHILE, args, n + 1, op->attrs, op->nattrs, c.types, n, 1);
  Region *to = made->regions[0];
  Value in[MAX_RINGS + 3], next[MAX_RINGS + 3];
  for (uint32_t i = 0; i < n; i++)
    in[i] = ir_region_param(to, c.types[i], i ? NULL : "u");
  vmap_put(&r->map, op->regions[0]->params.at[0], in[0]);
  take_fills(r, &c, in + 1);
  Builder inner = {.fn = f, .region = to, .span = op->span};
  uniform_fills(r, &c, &inner);
  read_numbers(r, &inner);
  hop_role_take_turn(r, &inner);
  copy_region(r, op->regions[0], &inner, NULL);
  next[0] = hop_role_value(r, op->regions[0]->last->args[0]);
  put_fills(r, &c, next + 1);
  ir_yield(&inner, next, n);
  take_fills(r, &c, made->res + 1);
}

static void copy_if(Role *r, const Op *op, Builder *b, Live *live) {
  Live in_it = handed_to(r, live, op);
  Carried c = carried_of(r, op);
  Value cond = hop_role_value(r, op->args[0]), start[MAX_RINGS + 2];
  Op *made = ir_op(b, OP_IF, &cond, 1, op->attrs, op->nattrs, c.types, c.n, 2);
  put_fills(r, &c, start);
  for (uint32_t i = 0; i < 2; i++) {
    Builder in = {.fn = r->w->f, .region = made->regions[i], .span = op->span};
    take_fills(r, &c, start);
    copy_region(r, op->regions[i], &in, &in_it);
    yield_of(r, &c, op->regions[i], &in);
  }
  results_of(r, &c, op, made);
}

// Tiles that other groups need are given back unread.
static void leave(Role *r, Builder *b, const Op *op) {
  Rings *w = r->w;
  Carried c = {.n = 0};
  Value args[3 + MAX_RINGS] = {i32(b, 0), hop_role_value(r, op->args[0]),
                               i32(b, 1)};
  for (uint32_t k = 0; k < w->nrings; k++)
    if (w->rings[k].streams) c.rings |= 1u << w->rings[k].count;
  uint32_t n = put_fills(r, &c, args + 3);
  for (uint32_t i = 0; i < n; i++) c.types[i] = type_scalar(DT_I32);
  Op *loop = ir_op(b, OP_FOR, args, 3 + n, NULL, 0, c.types, n, 1);
  Region *body = loop->regions[0];
  Builder in = {.fn = w->f, .region = body, .span = op->span};
  ir_region_param(body, c.types[0], "i");
  for (uint32_t i = 0; i < n; i++)
    args[i] = ir_region_param(body, c.types[i], NULL);
  take_fills(r, &c, args);
  for (uint32_t k = 0; k < w->nrings; k++) {
    if (!w->rings[k].streams) continue;
    if (w->rings[k].visits >= 0) continue;
    Turn t = hop_role_turn(r, &in, k);
    if (w->rings[k].with < 0)
      hop_role_wait(&in, w->rings[k].full, t.slot, t.parity);
    if (!w->rings[k].rides)
      hop_role_arrive(&in, w->rings[k].empty, t.slot, NULL);
  }
  for (uint32_t k = 0; k < w->nrings; k++)
    if (c.rings >> k & 1) hop_role_filled(r, &in, k, NULL);
  put_fills(r, &c, args);
  ir_yield(&in, args, n);
  take_fills(r, &c, loop->res);
}

// Where a task ends, behind its stores.
static bool leaves_at(const Role *r, const Op *op) {
  const Op *skip = r->producer ? NULL : r->w->behind;
  if (!skip || skip->parent != op->parent) return false;
  for (const Op *o = op; o->prev && !op->next; o = o->prev)
    if (o->prev->code == OP_CLAIM) return false;
  return op->code == OP_CLAIM || !op->next;
}

// What only the maker needs, or of all but the tasks only what it does.
static bool is_others(const Role *r, const Op *op) {
  if (r->producer || !r->w->makers) return false;
  if (!r->maker) return op->nres && r->w->only[op->res[0]];
  bool own = is_fact(r, op) || loop_has_fill(op);
  for (uint32_t i = 0; i < op->nres; i++)
    own |= r->w->making[r->number][op->res[i]];
  return !own;
}

static bool skipped(const Role *r, const Op *op) {
  if (op == r->w->behind) return true;
  if (op->code == OP_GROUP_SKIP) return r->producer || !r->w->apart;
  if (op->code == OP_GROUP_SELECT && r->producer) return true;
  if (op->code == OP_LAUNCH) return true;
  if (op->code == OP_CLAIM) return false;
  if (is_others(r, op)) return true;
  if (r->maker) return false;
  if (!r->producer) return op->nres && r->w->spare && r->w->spare[op->res[0]];
  return !hop_rings_wanted(r->w, op) && !loop_has_fill(op);
}

static void copy_op(Role *r, const Op *op, Builder *b, Live *live) {
  Drain d;
  Tile *panels = by_panels(r, live, op);
  bool all = r->producer || r->maker;
  b->span = op->span;
  if (panels) multiply_panels(r, b, op, panels);
  else if (op->code == OP_GROUP && !r->producer)
    vmap_put(&r->map, op->res[0], r->block);
  else if (op->code == OP_CLAIM && r->producer) claim(r, b, op);
  else if (op->code == OP_CLAIM)
    receive(r, b, (uint32_t)r->w->claims, op->res, 1);
  else if (is_fact(r, op)) fact(r, b, op);
  else if (op->code == OP_GROUP_BOUND || op->code == OP_GROUP_SELECT)
    take_mine(r, b, op);
  else if (op->code == OP_GROUP_SKIP) leave(r, b, op);
  else if (op->code == OP_WHILE) copy_while(r, op, b);
  else if (hop_role_can_drain(r, op, &d)) hop_role_drain(r, b, &d);
  else if (op->code == OP_FOR && (all || loop_has_fill(op))) copy_for(r, op, b);
  else if (op->code == OP_IF &&
           (all || loop_has_fill(op) || hop_role_has_drain(r, op)))
    copy_if(r, op, b, live);
  else ir_clone(b, r->w->f, op, &r->map, NULL);
}

// Are parts of a tile of all groups put here, and not found again?
static bool is_put(const Role *r, const Op *op) {
  return !r->producer && !r->maker && ir_attr_i(op, AT_VISIT, 0) == 1;
}

// All ops of a region but its yield.
static void copy_region(Role *r, const Region *from, Builder *b,
                        const Live *outer) {
  Live live = {.n = 0};
  r->turn = 0;
  for (uint32_t i = 0; outer && i < outer->n; i++) {
    Tile t = outer->at[i];
    t.until = last_reader(r, t.fill, from->first);
    if (t.until) live.at[live.n++] = t;
    else give_back(r, b, &t);
  }
  for (const Op *op = from->first; op; op = op->next) {
    bool end = op_info(op->code)->flags & OPF_TERM;
    if (r->producer && op == r->w->early) claim_early(r, b, op);
    if (leaves_at(r, op)) leave(r, b, r->w->behind);
    before_op(r, b, &live, op);
    if (!end && op->code == OP_SFILL && r->producer) produce(r, b, op);
    else if (!end && op->code == OP_GTILE && is_put(r, op))
      hop_role_gather(r, b, op);
    else if (!end && hop_rings_fills(r->w, op) && hop_role_reads(r, op))
      live.at[live.n++] = consume(r, b, op);
    else if (!end && hop_role_makes(r, op)) hop_role_make(r, b, op);
    else if (!end && !hop_rings_fills(r->w, op) && !skipped(r, op))
      copy_op(r, op, b, &live);
    assert(live.n < 2 * MAX_RINGS);
    Live done = handed_to(r, &live, op);
    for (uint32_t i = 0; i < done.n; i++) give_back(r, b, &done.at[i]);
  }
  r->turn = 0;
  // What was lent to stores, once they have read it.
  for (uint32_t i = 0; i < live.n; i++) {
    r->lent = 0;
    if (is_late(r, live.at[i].fill)) continue;
    if (r->drained) hop_role_stores_done(b);
    if (r->drained) ir_bare(b, OP_GSYNC);
    give_back(r, b, &live.at[i]);
  }
}

static void role(Role *r, Region *to, RoleKind kind) {
  Rings *w = r->w;
  if (kind == COMPUTES)
    r->block = r->group = ir_region_param(to, type_scalar(DT_I32), "wg");
  Builder b = {.fn = w->f, .region = to, .span = NOWHERE};
  for (uint32_t k = 0; k < w->nrings; k++) r->fills[k] = i32(&b, 0);
  copy_region(r, w->body, &b, NULL);
  if (r->drained) hop_role_stores_done(&b);
  ir_yield(&b, NULL, 0);
}

typedef struct Team {
  RoleKind kind;
  int64_t threads, group, regs;
} Team;

static void roles(Rings *w, Builder *b, bool leanest, Value tiles,
                  Value pieces) {
  const int64_t group = HW_GROUP_THREADS, all = group * w->groups;
  uint32_t level = w->occupancy > 1 ? 1 + leanest : 0, n = 0;
  if (w->occupancy > 2) level = 11;
  if (w->makers) level = 2 + w->makers;
  if (w->lists) level = w->occupancy > 1 ? 8 : 6 + 2 * w->widens + w->loaders;
  for (uint32_t i = 0; i < w->nrings; i++)
    if (w->rings[i].gathered) level = 6;
  const GpuTeam *regs = target_team(w->groups, level);
  Team t[2 + MAX_MAKERS];
  int64_t loads = group * w->loaders;
  t[n++] = (Team){LOADS, loads, w->lists ? loads : 1, regs->loads};
  for (uint32_t i = 0; i < w->makers; i++)
    t[n++] = (Team){MAKES, group, group, regs->makes};
  t[n++] = (Team){COMPUTES, all, group, regs->computes};
  int64_t teams[2 + MAX_MAKERS], groups[2 + MAX_MAKERS], each[2 + MAX_MAKERS];
  for (uint32_t i = 0; i < n; i++)
    teams[i] = t[i].threads, groups[i] = t[i].group, each[i] = t[i].regs;
  IrAttr list[] = {attr_list(AT_TEAMS, teams, n),
                   attr_list(AT_GROUPS, groups, n),
                   attr_list(AT_TEAMREGS, each, n)};
  Op *op = ir_op(b, OP_ROLES, NULL, 0, list, 3, NULL, 0, n);
  for (uint32_t i = 0; i < n; i++) {
    Role r = {.w = w,
              .producer = t[i].kind == LOADS,
              .maker = t[i].kind == MAKES,
              .number = i - 1,
              .drain = t[i].kind == COMPUTES ? tiles : 0,
              .pieces = t[i].kind == COMPUTES ? pieces : 0,
              .map = {.arena = w->arena}};
    role(&r, op->regions[i], t[i].kind);
  }
}

static void specialize(Rings *w, bool leanest) {
  const Op *launch = w->body->first;
  w->f->body = ir_region(w->f, NULL);
  for (uint32_t i = 0; i < w->f->params.n; i++)
    ir_info(w->f, w->f->params.at[i].v)->region = w->f->body;
  Builder b = {.fn = w->f, .region = w->f->body, .span = launch->span};
  int64_t all = HW_GROUP_THREADS * (w->loaders + w->makers + w->groups);
  Op *made =
      ir_op(&b, OP_LAUNCH, NULL, 0, launch->attrs, launch->nattrs, NULL, 0, 0);
  ir_set_attr(w->f, made, attr_i(AT_THREADS, all));
  if (w->occupancy > 1)
    ir_set_attr(w->f, made, attr_i(AT_OCCUPANCY, w->occupancy));
  ir_del_attr(made, AT_GROUPS);
  if (w->apart) ir_set_attr(w->f, made, attr_i(AT_GROUP_BOUNDS, 1));
  for (uint32_t i = 0; i < w->nrings; i++) hop_rings_make(w, &b, &w->rings[i]);
  Value tiles = w->drains && w->lent < 0 ? hop_rings_drain_tile(w, &b) : 0;
  Value pieces = w->pieces > 1 ? hop_rings_drain_pieces(w, &b, tiles) : 0;
  roles(w, &b, leanest, tiles, pieces);
}

bool pass_warp_specialize(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  (void)cx;
  const Target *t = opt->target;
  Rings w;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    if (hop_rings_plan(&w, m->funcs.at[i], t))
      specialize(&w, relief_of(m->funcs.at[i]) >= RELIEF_LOADS);
    else hop_rings_take_turns(m->funcs.at[i], m->funcs.at[i]->body);
  return true;
}
