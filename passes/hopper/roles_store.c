// Stores of consumers as boxes: from registers through shared tiles.
#include "passes/hopper/roles.h"

enum { MAX_PANELS = 4 };

static Value i32(Builder *b, int64_t v) {
  return ir_const_i(b, DT_I32, v);
}

static Value sum_of(const Role *r, Builder *b, const Value *v, uint32_t n) {
  Value s = n ? hop_role_value(r, v[0]) : i32(b, 0);
  for (uint32_t i = 1; i < n; i++)
    s = ir_2(b, OP_ADD, s, hop_role_value(r, v[i]));
  return s;
}

// The box of tile `from`, which has the fragment's columns from `at` on, goes
// to the tensor, if that is wanted.
static void store_box(Role *r, Builder *b, const Drain *d, Value from,
                      uint32_t at, bool counted) {
  const Op *op = d->op;
  Type bit = type_scalar(DT_BOOL);
  Value args[MAX_AXES + 2] = {op->args[0], from};
  uint32_t n = op->nargs - 2;
  for (uint32_t i = 0; i < n; i++)
    args[2 + i] = hop_role_value(r, op->args[2 + i]);
  args[2 + d->row] = sum_of(r, b, d->rows, d->nrow);
  args[2 + d->col] = sum_of(r, b, d->cols, d->ncol);
  if (at) args[2 + d->col] = ir_2(b, OP_ADD, args[2 + d->col], i32(b, at));
  Value wanted = ir_op(b, OP_GIVEN, args, 1, NULL, 0, &bit, 1, 0)->res[0];
  Op *branch = ir_op(b, OP_IF, &wanted, 1, NULL, 0, NULL, 0, 2);
  Builder in = {.fn = r->w->f, .region = branch->regions[0], .span = b->span};
  int64_t axes[] = {d->trans ? d->col : d->row, d->trans ? d->row : d->col};
  IrAttr tile = attr_list(AT_TILE, axes, 2);
  ir_op(&in, OP_TMA_STORE, args, n + 2, &tile, 1, NULL, 0, 0);
  if (!counted) ir_bare(&in, OP_TMA_COMMIT);
  ir_yield(&in, NULL, 0);
  in.region = branch->regions[1];
  ir_yield(&in, NULL, 0);
  if (counted) ir_bare(b, OP_TMA_COMMIT);
}

// Registers to a shared tile that the store before has left.
static void put(Role *r, Builder *b, Value slot, Value x, bool trans,
                uint32_t pending) {
  Value args[] = {slot, x};
  IrAttr turned = attr_i(AT_TRANS, 1), left = attr_i(AT_PENDING, pending);
  ir_op(b, OP_TMA_WAIT, NULL, 0, &left, 1, NULL, 0, 0);
  ir_bare(b, OP_GSYNC);
  ir_op(b, OP_SSTORE, args, 2, &turned, trans, NULL, 0, 0);
  ir_bare(b, OP_FENCE_ASYNC);
  ir_bare(b, OP_GSYNC);
  r->drained = true;
}

// The columns from `at` on, as many as the shared tile has.
static Value columns(const Role *r, Builder *b, Value x, const Type *tile,
                     uint32_t at) {
  Type t = *ir_type(r->w->f, x);
  IrAttr pos = attr_i(AT_POS, at);
  if (t.ext[1] == tile->ext[1]) return x;
  t.ext[1] = tile->ext[1];
  return ir_op(b, OP_FCOLS, &x, 1, &pos, 1, &t, 1, 0)->res[0];
}

// Through the next piece. The store from it has left it when all but as many as
// there are others have; each store is counted, wanted or not.
static void drain_piece(Role *r, Builder *b, const Drain *d, uint32_t at) {
  const Type *tile = &r->w->piece;
  uint32_t pieces = r->w->pieces, pending = r->turn ? pieces - 1 : 0;
  Value n = i32(b, pieces), turn = i32(b, r->turn % pieces);
  Value args[] = {r->pieces,
                  ir_2(b, OP_ADD, ir_2(b, OP_MUL, r->group, n), turn)};
  Value slot = ir_op(b, OP_SLOT, args, 2, NULL, 0, tile, 1, 0)->res[0];
  Value x = hop_role_value(r, d->op->args[1]);
  put(r, b, slot, d->trans ? x : columns(r, b, x, tile, at), d->trans, pending);
  store_box(r, b, d, slot, at, true);
  r->turn++;
}

// Through the group's panels of a tile that all groups have read.
static void drain_shared(Role *r, Builder *b, const Drain *d) {
  const Ring *ring = &r->w->rings[r->w->lent];
  uint32_t all = ir_type(r->w->f, ring->site->res[0])->ext[1] / HW_PANEL;
  uint32_t n = d->tile.ext[1] / HW_PANEL;
  IrAttr threads = attr_i(AT_THREADS, HW_GROUP_THREADS * r->w->groups);
  Value x = hop_role_value(r, d->op->args[1]), panel[MAX_PANELS];
  Value id = i32(b, HW_TASK_BARRIER), of = i32(b, all), each = i32(b, n);
  Value slot = ir_2(b, OP_MUL, r->lent, of);
  Value first = ir_2(b, OP_MUL, r->group, each);
  first = ir_2(b, OP_ADD, slot, first);
  ir_op(b, OP_BAR_SYNC, &id, 1, &threads, 1, NULL, 0, 0);
  for (uint32_t i = 0; i < n; i++) {
    Value at = i32(b, i);
    at = ir_2(b, OP_ADD, first, at);
    panel[i] = hop_rings_panel_of(b, ring->cut, at);
    const Type tile = *ir_type(b->fn, panel[i]);
    Value put[] = {panel[i], columns(r, b, x, &tile, i * HW_PANEL)};
    ir_op(b, OP_SSTORE, put, 2, NULL, 0, NULL, 0, 0);
  }
  ir_bare(b, OP_FENCE_ASYNC);
  ir_bare(b, OP_GSYNC);
  for (uint32_t i = 0; i < n; i++)
    store_box(r, b, d, panel[i], i * HW_PANEL, false);
  r->drained = true;
}

// Through the group's shared tile, when the store before has left it; part by
// part where that has fewer columns.
void hop_role_drain(Role *r, Builder *b, const Drain *d) {
  Value own[] = {r->drain, r->group};
  Value lent[] = {r->lent ? r->w->rings[r->w->lent].smem : 0, r->lent};
  Value *from = r->lent ? lent : own, x = hop_role_value(r, d->op->args[1]);
  Type tile = d->tile;
  if (r->w->shares) {
    drain_shared(r, b, d);
    return;
  }
  if (hop_rings_drains_piece(r->w, d)) {
    uint32_t step = r->w->piece.ext[1];
    for (uint32_t at = 0; at < d->tile.ext[1]; at += step)
      drain_piece(r, b, d, at);
    return;
  }
  if (!d->trans && tile.ext[1] > r->w->drain.ext[1])
    tile.ext[1] = r->w->drain.ext[1];
  for (uint32_t at = 0; at < d->tile.ext[1]; at += tile.ext[1]) {
    Value slot = ir_op(b, OP_SLOT, from, 2, NULL, 0, &tile, 1, 0)->res[0];
    put(r, b, slot, d->trans ? x : columns(r, b, x, &tile, at), d->trans, 0);
    store_box(r, b, d, slot, at, false);
  }
  r->turn = 0;
}

bool hop_role_can_drain(const Role *r, const Op *op, Drain *d) {
  return !r->producer && !r->maker && (r->drain || r->lent) &&
         hop_drain_of(r->w->f, op, d) &&
         (hop_rings_drains(r->w, d) ||
          (r->pieces && hop_rings_drains_piece(r->w, d)));
}

bool hop_role_has_drain(const Role *r, const Op *op) {
  Drain d;
  if (hop_role_can_drain(r, op, &d)) return true;
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next)
      if (hop_role_has_drain(r, o)) return true;
  return false;
}
