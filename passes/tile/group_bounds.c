// Bounds of each group of warps. A tile of 128 or 192 rows is computed by two
// or three groups of 64, and a mask lets the rows of one see fewer keys.
//
//   before  for(%lo, %hi, 80, ..) {reverse} (..)
//   after   %a = group_bound(%lo, group_select(%lo0, %lo1, %lo2))
//           %b = group_bound(%hi, group_select(%hi0, %hi1, %hi2))
//           group_skip(%n)                           # steps behind those of a group
//           for(%a, %b, 80, ..) {reverse} (..)
//           group_skip(%m)                           # and in front of them
//
// Who copies tiles for all groups takes the first operands of `own`; a group
// takes its own, and gives back unread what others need (pass
// `warp_specialize`). Where groups are not on their own, `bufferize_gpu` takes
// the first operands for all. A group has at least one step if there is one.
// For one loop over keys in a program, one interval, bounds by arithmetic or by
// tables. Tests: test/passes/warp_specialize/own-bounds.test,
// test/wave/own-bounds.test.
#include "passes/tile/loop.h"

#include "ir/target.h"

#include <string.h>

typedef struct Loops {
  uint32_t n;
  bool steps;
  const Op *pass;
} Loops;

static void count(void *data, Op *op) {
  Loops *d = data;
  d->steps |= op->code == OP_AFFINE;
  if (op->code != OP_KREDUCE) return;
  d->n++;
  d->pass = op;
}

static bool varies(const IrAttr *box, int lane) {
  for (uint32_t i = 0; box && i < box->n; i++)
    if (box->list[i] == lane) return true;
  return false;
}

// Not inside of another loop.
static bool runs_once(const Op *pass) {
  for (const Op *op = pass->parent->parent; op; op = op->parent->parent)
    if (op->code != OP_IF) return false;
  return true;
}

// Nothing is read from memory.
static bool by_arithmetic(const Region *r) {
  for (const Op *op = r->first; op; op = op->next)
    if (!(op_info(op->code)->flags & (OPF_ELEM | OPF_TERM))) return false;
  return true;
}

OwnKind tile_own_kind(Ctx *cx, const Func *f, int lane) {
  Loops d = {0};
  ir_walk(f->body, count, &d);
  if (d.n != 1 || d.steps || lane < 0 || !runs_once(d.pass)) return OWN_NONE;
  const Region *bounds = d.pass->nregions > 3 ? d.pass->regions[3] : NULL;
  if (!bounds || !bounds->last || bounds->last->nargs != 4 ||
      !varies(ir_attr(d.pass, AT_BOX), lane))
    return OWN_NONE;
  if (tile_bounds_wanted(cx, f, d.pass)) return OWN_TABLES;
  return by_arithmetic(bounds) ? OWN_ARITHMETIC : OWN_NONE;
}

// By arithmetic it pays for three groups: two do the same steps at the same
// time, one's products beside the other's functions (an H200: causal, 128 x
// 128, -3 %; three groups of 80 keys +8 % at S 2048, +2 % at S 16384).
void tile_own_plan(Ctx *cx, const Func *f, const PassOpt *opt, TilePlan *p) {
  const Target *t = opt->target;
  if (!t->gpu.hopper || p->lane < 0 || p->split) return;
  int64_t rows = HW_GROUP_WARPS * t->gpu.rows, groups = p->tile_q / rows;
  if (p->split || p->tile_q % rows || groups < 2 || groups > MAX_OWN) return;
  OwnKind k = tile_own_kind(cx, f, p->lane);
  if (k == OWN_TABLES || (k == OWN_ARITHMETIC && groups > 2))
    p->own_rows = rows;
}

int64_t tile_bounds_rows(const TilePlan *p) {
  return p->own_rows ? p->own_rows : p->tile_q;
}

uint32_t tile_own_groups(const TilePlan *p) {
  return p->own_rows ? (uint32_t)(p->tile_q / p->own_rows) : 0;
}

// Steps from lo on that cover everything below hi.
static Value steps(Builder *b, Value lo, Value hi, int64_t step) {
  Value up = ir_int(b, step - 1);
  Value n = ir_2(b, OP_ADD, ir_2(b, OP_SUB, hi, lo), up);
  return ir_2(b, OP_FLOORDIV, n, ir_int(b, step));
}

static Value mine(Builder *b, const Value *v, uint32_t n) {
  return ir_op(b, OP_GROUP_SELECT, v, n, NULL, 0, NULL, 1, 0)->res[0];
}

static Value handed(Builder *b, Value v) {
  return mine(b, &v, 1);
}

Range tile_own_range(Builder *b, const Range *of, uint32_t n) {
  Value lo[MAX_OWN], hi[MAX_OWN], f0[MAX_OWN], f1[MAX_OWN];
  for (uint32_t g = 0; g < n; g++) {
    lo[g] = of[g].base;
    hi[g] = of[g].hi;
    f0[g] = of[g].f0;
    f1[g] = of[g].f1;
  }
  return (Range){.base = mine(b, lo, n),
                 .hi = mine(b, hi, n),
                 .f0 = mine(b, f0, n),
                 .f1 = mine(b, f1, n)};
}

// A group without a key has the first step: its rows find that out themselves.
void tile_own_bounds(Builder *b, Range *all, const Range *of, int64_t step,
                     Value skipped[2]) {
  if (!all->no_full) all->hi = ir_2(b, OP_MAX, all->hi, all->f1);
  all->covers = true;
  Value from = handed(b, all->base), to = handed(b, all->hi);
  Value lo = ir_2(b, OP_MAX, of->base, from);
  Value hi = all->no_full ? of->hi : ir_2(b, OP_MAX, of->hi, of->f1);
  hi = ir_2(b, OP_MIN, hi, to);
  Value none = ir_2(b, OP_LE, hi, lo);
  Value least = ir_2(b, OP_MIN, ir_2(b, OP_ADD, from, ir_int(b, step)), to);
  lo = ir_3(b, OP_SELECT, none, from, lo);
  hi = ir_3(b, OP_SELECT, none, least, hi);
  all->base = ir_2(b, OP_GROUP_BOUND, all->base, lo);
  all->hi = ir_2(b, OP_GROUP_BOUND, all->hi, hi);
  if (!all->no_full) {
    all->f0 = ir_2(b, OP_GROUP_BOUND, all->f0, of->f0);
    all->f1 = ir_2(b, OP_GROUP_BOUND, all->f1, of->f1);
  }
  skipped[0] = steps(b, from, lo, step);
  Value kept = steps(b, from, hi, step);
  skipped[1] = ir_2(b, OP_SUB, steps(b, from, to, step), kept);
}

void tile_own_skip(Builder *b, Value n) {
  ir_op(b, OP_GROUP_SKIP, &n, 1, NULL, 0, NULL, 0, 0);
}
