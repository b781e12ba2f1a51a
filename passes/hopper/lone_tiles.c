// lone_tiles: what only waits to be added is read of memory where it is added,
// if that makes room for another CTA.
//
//   %t = sfill(%W, %b, %c, %i, %j)        %r = add(splat(%i), coord())
//     {tile = [2, 3]}                ->   %s = add(splat(%j), coord())
//   %x = sload(%t) : frag<64x64>          %x = gload(%W, %b, %c, %r, %s)
//   %y = add(%x, %p)                      %y = add(%x, %p)
//
// Kernels of a chunk wait for products, for what they have spilled, and for
// tiles; another CTA fills these gaps (passes/hopper/reread.c). A tile that no
// product reads, of which one fragment is made as it lies in memory, needs no
// place in shared memory. Those that are needed last are read so, as few as
// make the room; all others are copied ahead. Straight code of one group. Level
// frag; sm_90a, programs with steps. Needs: lower_gpu; run dce behind it.
// Tests: test/passes/lone_tiles.
#include "ir/layout.h"
#include "passes/hopper/rings.h"
#include "passes/support/cost.h"

enum { MAX_LONE = 16 };

typedef struct Uses {
  Value v;
  Op *op;      // the last that has it
  uint32_t n;  // how many have it
} Uses;

static void note_use(void *data, Op *op) {
  Uses *u = data;
  for (uint32_t i = 0; i < op->nargs; i++)
    if (op->args[i] == u->v) u->op = op, u->n++;
}

// The only reader of a tile, which needs all of it as it lies in memory, or
// NULL.
static Op *reader(const Func *f, const Region *r, const Op *fill) {
  const IrAttr *tile = ir_attr(fill, AT_TILE);
  if (fill->code != OP_SFILL || fill->nattrs != 1 || !tile || tile->n != 2)
    return NULL;
  Uses u = {.v = fill->res[0]};
  ir_walk(f->body, note_use, &u);
  bool plain = u.n == 1 && u.op->code == OP_SLOAD && u.op->nargs == 1 &&
               !u.op->nattrs && u.op->parent == r;
  const Type *t = plain ? ir_type(f, u.op->res[0]) : NULL;
  return t && t->layout == LY_ACC && t->slice == SLICE_NONE ? u.op : NULL;
}

// What a task does: straight code, in a loop over tasks or without. NULL: it is
// another.
static const Region *task(const Func *f) {
  const Region *r = f->body;
  for (const Op *op = r->first; op; op = op->next)
    if (op->nregions) {
      if (r != f->body || !hop_rings_is_task_loop(f, op)) return NULL;
      r = op->regions[0];
    }
  for (const Op *op = r->first; op && r != f->body; op = op->next)
    if (op->nregions) return NULL;
  return r;
}

// The last first.
static uint32_t find(const Func *f, Op **all) {
  const Region *r = task(f);
  uint32_t n = 0;
  for (const Op *op = r ? r->last : NULL; op && n < MAX_LONE; op = op->prev) {
    Op *fill = op->code == OP_SLOAD ? ir_def(f, op->args[0]) : NULL;
    if (fill && fill->parent == r && reader(f, r, fill) == op) all[n++] = fill;
  }
  return n;
}

static Value indices(Builder *b, const Type *tile, uint32_t pos, Value first) {
  Type t = frag_slice(tile, pos, false);
  IrAttr at = attr_i(AT_POS, pos);
  t.dtype = DT_I32;
  Value x = ir_op(b, OP_SPLAT, &first, 1, NULL, 0, &t, 1, 0)->res[0];
  Value y = ir_op(b, OP_COORD, NULL, 0, &at, 1, &t, 1, 0)->res[0];
  return ir_2(b, OP_ADD, x, y);
}

static void read(Func *f, Op *fill) {
  Op *load = reader(f, fill->parent, fill);
  const IrAttr *tile = ir_attr(fill, AT_TILE);
  Builder b = {.fn = f,
               .region = load->parent,
               .before = load,
               .span = load->span};
  const Type t = *ir_type(f, load->res[0]);
  Value args[MAX_AXES + 1];
  for (uint32_t i = 0; i < fill->nargs; i++) args[i] = fill->args[i];
  for (uint32_t k = 0; k < 2; k++) {
    Value *at = &args[1 + tile->list[k]];
    *at = indices(&b, &t, k, *at);
  }
  Value x = ir_op(&b, OP_GLOAD, args, fill->nargs, NULL, 0, &t, 1, 0)->res[0];
  ir_replace_uses(f, load->res[0], x);
  ir_erase(load);
  ir_erase(fill);
}

// How many of them make room for another CTA; 0: none do. Tried with a copy.
static uint32_t enough(Ctx *cx, const Module *m, uint32_t i, const Target *t) {
  Func *f = ir_copy(m, &cx->scratch)->funcs.at[i];
  Op *all[MAX_LONE];
  Rings r;
  uint32_t n = find(f, all);
  if (!hop_rings_plan(&r, f, t) || r.occupancy != 1) return 0;
  for (uint32_t k = 0; k < n; k++) {
    read(f, all[k]);
    if (!hop_rings_plan(&r, f, t)) return 0;
    if (r.occupancy > 1) return k + 1;
  }
  return 0;
}

bool pass_lone_tiles(Ctx *cx, Module *m, const PassOpt *opt) {
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    Op *all[MAX_LONE];
    const Op *launch = ir_launch(f);
    if (!launch || ir_attr(launch, AT_GROUPS) || !ir_has_steps(f) ||
        ir_attr_i(launch, AT_THREADS, 0) != HW_GROUP_THREADS || !find(f, all))
      continue;
    uint32_t n = enough(cx, m, i, opt->target);
    for (uint32_t k = 0; k < n; k++) read(f, all[k]);
  }
  return true;
}
