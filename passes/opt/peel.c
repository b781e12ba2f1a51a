// peel: a loop whose body asks whether its tile needs a mask becomes up to
// three loops, of which the middle one never asks.
//
//   for(%lo, %hi, %s, ..) ({              for(%lo, %a, %s, ..)   %full = false
//     ^(%i, ..):                          for(%a', %b', %s, ..)  %full = true
//     %1 = le(%a, %i)               ->    for(%b', %hi, %s, ..)  %full = false
//     %2 = lt(%i, %b)
//     %full = and(%1, %2)
//     ..
//
// %a and %b are made outside the loop. They are clamped to [%lo, %hi] and are
// multiples of the step from %lo (pass tile sees to that), so the three loops
// visit the same coordinates in the same order. A loop that is empty whatever
// the arguments is left out, one that branches on %full (pass mask_branch) is
// left alone, and one with long text, with a loop over elements inside, or that
// reads tiles as they lie in memory and multiplies nothing, stays one loop,
// whose steps all mask. Code whose text counts (full_tiles_short) is left to
// mask_branch at level tile. Works from level tile on. Needs: fold afterwards.
// Tests: test/passes/peel/.
#include "ir/layout.h"
#include "passes/support/balance.h"
#include "passes/support/cost.h"
#include "passes/support/full_tiles.h"
#include "passes/pass.h"

typedef struct Peel {
  Func *f;
  Builder b;  // before the loop
  Op *loop;
  FullTiles full;
  const PassOpt *opt;
} Peel;

static Value add2(Builder *b, OpCode c, Value x, Value y) {
  return x == y ? x : ir_2(b, c, x, y);
}

// The loop over [lo, hi) with %full = `full`; init[] is replaced by results.
static void copy(Peel *p, Value lo, Value hi, bool full, Value *init) {
  Op *loop = p->loop;
  Arena *a = p->f->mod->arena;
  if (lo == hi) return;
  Value *args = NEWN(a, Value, loop->nargs);
  Type *types = NEWN(a, Type, loop->nres);
  args[0] = lo;
  args[1] = hi;
  args[2] = loop->args[2];
  for (uint32_t i = 0; i < loop->nres; i++) {
    args[3 + i] = init[i];
    types[i] = *ir_type(p->f, loop->res[i]);
  }
  Op *made = ir_op(&p->b, OP_FOR, args, loop->nargs, loop->attrs, loop->nattrs,
                   types, loop->nres, 1);
  Region *from = loop->regions[0], *to = made->regions[0];
  ValueMap map = {.arena = a};
  for (uint32_t i = 0; i < from->params.n; i++) {
    const ValueInfo v = *ir_info(p->f, from->params.at[i]);
    vmap_put(&map, from->params.at[i], ir_region_param(to, v.type, v.hint));
  }
  Builder b = {.fn = p->f, .region = to, .span = loop->span};
  for (const Op *op = from->first; op; op = op->next) {
    if (op->nres && op->res[0] == p->full.value)
      vmap_put(&map, p->full.value, ir_const_i(&b, DT_BOOL, full));
    else ir_clone(&b, p->f, op, &map, NULL);
  }
  for (uint32_t i = 0; i < loop->nres; i++) {
    ir_info(p->f, made->res[i])->hint = ir_info(p->f, loop->res[i])->hint;
    init[i] = made->res[i];
  }
}

// Does a step add up a tile in a loop of its own, as slice makes it of what is
// no product of matrices? Then a mask is one tile more, of many.
static bool is_walked(const Func *f, const Region *r) {
  bool any = false;
  for (const Op *op = r->first; op && !any; op = op->next) {
    double from, to, step;
    if (op->code != OP_FOR || !ir_const_value(f, op->args[0], &from) ||
        !ir_const_value(f, op->args[1], &to) ||
        !ir_const_value(f, op->args[2], &step) || to - from < HW_BLOCK * step)
      continue;
    for (uint32_t i = 0; i < op->nres && !any; i++)
      any = full_tiles_is(ir_type(f, op->res[i]));
  }
  return any;
}

// Does a step read tiles of memory as they lie there, and multiply nothing? It
// waits for these, not for a mask.
static bool is_read(const Func *f, const Region *r) {
  bool reads = false;
  for (const Op *op = r->first; op; op = op->next) {
    if (op->nregions || op->code == OP_MMA || op->code == OP_WGMMA ||
        op->code == OP_SFILL)
      return false;
    const Type *t = op->code == OP_GLOAD ? ir_type(f, op->res[0]) : NULL;
    if (!t || !full_tiles_is(t)) continue;
    if (t->layout != LY_LIN) return false;
    reads = true;
  }
  return reads;
}

// Then a mask is little of a step, and two more copies are most of what an
// assembler has to do; sooner so of NVIDIA's code for tensors of any strides.
static bool is_long(const Peel *p) {
  const Region *r = p->loop->regions[0];
  const Target *t = p->opt->target;
  bool nv = t && t->kind == TARGET_GPU && t->gpu.vendor != VENDOR_AMD;
  bool any = full_tiles_short(p->opt);
  if (nv && (is_walked(p->f, r) || is_read(p->f, r))) return true;
  if (balance_text(p->f, r) > (any ? COST_PEEL_ANY : COST_PEEL_CODE))
    return true;
  return nv && t->gpu.hopper && full_tiles_long_pairs(p->f, r);
}

static void peel(Peel *p) {
  Op *loop = p->loop;
  Value lo = loop->args[0], hi = loop->args[1];
  p->b = (Builder){.fn = p->f,
                   .region = loop->parent,
                   .before = loop,
                   .span = loop->span};
  Value a = add2(&p->b, OP_MIN, add2(&p->b, OP_MAX, p->full.from, lo), hi);
  Value b = add2(&p->b, OP_MAX, add2(&p->b, OP_MIN, p->full.to, hi), a);
  Value *v = NEWN(p->f->mod->arena, Value, loop->nres);
  for (uint32_t i = 0; i < loop->nres; i++) v[i] = loop->args[3 + i];
  bool back = ir_attr_i(loop, AT_REVERSE, 0) != 0;
  if (is_long(p)) {
    copy(p, lo, hi, false, v);
  } else {
    copy(p, back ? b : lo, back ? hi : a, false, v);
    copy(p, a, b, true, v);
    copy(p, back ? lo : b, back ? a : hi, false, v);
  }
  for (uint32_t i = 0; i < loop->nres; i++)
    ir_replace_uses(p->f, loop->res[i], v[i]);
  ir_erase(loop);
}

// Inner loops first: copies of their parents then have them peeled.
static void region(Func *f, Region *r, const PassOpt *opt) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i], opt);
    Peel p = {.f = f, .loop = op, .opt = opt};
    if (op->code == OP_FOR && full_tiles(f, op, &p.full) &&
        !full_tiles_branch(op, p.full.value))
      peel(&p);
  }
}

bool pass_peel(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  if (m->level < LV_FRAG && full_tiles_short(opt)) return true;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    region(m->funcs.at[i], m->funcs.at[i]->body, opt);
  return true;
}
