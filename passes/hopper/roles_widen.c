// A producer that is a group widens 8-bit rows that are told one by one on
// their way to shared memory (passes/support/wide_rows.c).
//
//   %t = sfill(%C, %i, %zero, %S)      %x, %y = gload(%C, %i, coord())  (panels)
//     {tile = [0, 1], block = 128} ->  %s = gload(%S, %i, %block)
//                                      gsoon(%C, %i) ..
//                                      mbar_wait(%empty, ..)
//                                      for (%x, %y, %s)
//                                        those of the next pair: gload
//                                        sstore(%panel, cast(mul(cast(%x), %s)))
//                                        sstore(%panel2, cast(mul(cast(%y), %s)))
//                                        mbar_arrive(%full, ..) {each}
//
// The first panels are asked for before the slot is there. Where blocks of
// columns that have a scale are pairs of panels, the others are in a loop: a
// pair is asked for, then the one in front of it is widened. In one text ptxas
// would widen panels together, and so wait for one where the next is asked for.
// Else each panel is asked for as one in front of it has been widened. What
// steps say that they read (gsoon) is what the next one reads (load_ahead).
#include "passes/hopper/roles.h"
#include "passes/support/cost.h"
#include "passes/support/fill.h"
#include "passes/support/wide_rows.h"

static const Ring *ring_of(const Role *r, const WideRows *x) {
  return &r->w->rings[hop_rings_of(r->w, x->fill)];
}

static bool in_pairs(const Role *r, const WideRows *x) {
  return ring_of(r, x)->panels > 2 && x->n % 2 == 0 &&
         x->block % (2 * HW_PANEL) == 0;
}

// All that a step reads of memory: rows, and their scales.
static void soon(const WideRows *x) {
  uint32_t n = x->col;
  int64_t columns = (int64_t)x->n * HW_PANEL;
  if (n != ir_type(x->b->fn, x->args[0])->n) return;
  hop_role_soon(x->b, x->args[0], x->args + 1, n, columns);
  if (fill_args(x->fill) == n + 1 || !x->block) return;
  hop_role_soon(x->b, x->args[n + 1], x->args + 1, n,
                columns / x->block * dtype_size(DT_F32));
}

WideRows hop_role_ask(const Role *r, Builder *b, const Op *fill,
                      const Value *args) {
  WideRows x = wide_rows(b, fill, args);
  uint32_t n = in_pairs(r, &x) ? 2 : COST_PANELS_ASKED;
  for (uint32_t i = 0; i < n; i++) wide_rows_ask(&x, i);
  soon(&x);
  return x;
}

// ---------------------------------------------------------------- panels
static void put(const Role *r, const WideRows *x, uint32_t i, Value slot) {
  Builder *b = x->b;
  const Ring *ring = ring_of(r, x);
  bool cut = ring->panels > 1;
  Value at = cut ? hop_rings_panel(b, ring, slot, i) : slot;
  wide_rows_put(x, i,
                cut ? hop_rings_panel_of(b, ring->cut, at)
                    : hop_rings_slot(r->w, b, ring, slot));
  IrAttr each = attr_i(AT_EACH, 1);
  if (hop_rings_has_barrier(ring, cut ? i : 0) && (cut || i + 1 == x->n))
    hop_role_arrive(b, ring->full, at, &each);
}

static void by_panels(const Role *r, WideRows *x, Value slot) {
  for (uint32_t i = 0; i < x->n; i++) {
    put(r, x, i, slot);
    wide_rows_ask(x, i + COST_PANELS_ASKED);
  }
}

// ---------------------------------------------------------------- pairs
enum { MAX_PAIR = 3 };  // two panels, their scale: values, the last or 0

static Value i32(Builder *b, int64_t v) {
  return ir_const_i(b, DT_I32, v);
}

// Pair number p.
static void ask_pair(const WideRows *x, Value p, Value *out) {
  Value args[MAX_AXES + 2];
  WideRows y = *x;
  for (uint32_t i = 0; i < fill_args(x->fill); i++) args[i] = x->args[i];
  Value columns = ir_2(y.b, OP_MUL, p, i32(y.b, 2 * HW_PANEL));
  args[x->col] = ir_2(y.b, OP_ADD, args[x->col], columns);
  y.args = args;
  if (x->block) y.scale[0] = 0;
  wide_rows_ask(&y, 0);
  y.scale[1] = y.scale[0];
  wide_rows_ask(&y, 1);
  out[0] = y.x[0], out[1] = y.x[1], out[2] = y.scale[0];
}

static void put_pair(const Role *r, const WideRows *x, Value slot, Value p,
                     const Value *v) {
  WideRows y = *x;
  Builder *b = y.b;
  const Ring *ring = ring_of(r, x);
  IrAttr each = attr_i(AT_EACH, 1);
  Value at = hop_rings_panel(b, ring, slot, 0);
  at = ir_2(b, OP_ADD, at, ir_2(b, OP_MUL, p, i32(b, 2)));
  for (uint32_t k = 0; k < 2; k++) {
    if (k) at = ir_2(b, OP_ADD, at, i32(b, 1));
    y.x[k] = v[k], y.scale[k] = v[2];
    wide_rows_put(&y, k, hop_rings_panel_of(b, ring->cut, at));
  }
  hop_role_arrive(b, ring->full, at, &each);
}

static void by_pairs(const Role *r, const WideRows *x, Value slot) {
  Builder *b = x->b;
  uint32_t n = MAX_PAIR - !x->scale[0];
  Value one = i32(b, 1), last = i32(b, x->n / 2 - 1);
  Value args[3 + MAX_PAIR] = {i32(b, 0), last,    one,
                              x->x[0],   x->x[1], x->scale[0]};
  Value v[MAX_PAIR] = {0}, next[MAX_PAIR];
  Type types[MAX_PAIR];
  for (uint32_t i = 0; i < n; i++) types[i] = *ir_type(b->fn, args[3 + i]);
  Op *loop = ir_op(b, OP_FOR, args, 3 + n, NULL, 0, types, n, 1);
  Builder in = {.fn = b->fn, .region = loop->regions[0], .span = b->span};
  Value p = ir_region_param(in.region, type_scalar(DT_I32), "pair");
  for (uint32_t i = 0; i < n; i++)
    v[i] = ir_region_param(in.region, types[i], "ahead");
  WideRows y = *x;
  y.b = &in;
  ask_pair(&y, ir_2(&in, OP_ADD, p, one), next);
  put_pair(r, &y, slot, p, v);
  ir_yield(&in, next, n);
  for (uint32_t i = 0; i < n; i++) v[i] = loop->res[i];
  put_pair(r, x, slot, last, v);
}

void hop_role_widen(const Role *r, WideRows *x, Turn t) {
  hop_role_wait(x->b, ring_of(r, x)->empty, t.slot,
                ir_2(x->b, OP_SUB, i32(x->b, 1), t.parity));
  if (in_pairs(r, x)) by_pairs(r, x, t.slot);
  else by_panels(r, x, t.slot);
}
