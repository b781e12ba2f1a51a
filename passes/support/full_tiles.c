// The question whether a step of a key loop needs no mask, as pass tile puts
// it.
#include "passes/support/full_tiles.h"

#include "passes/support/balance.h"
#include "passes/support/cost.h"

static bool matches(const Func *f, const Op *loop, const Op *op,
                    FullTiles *out) {
  if (op->code != OP_AND || ir_type(f, op->res[0])->n) return false;
  const Region *r = loop->regions[0];
  Value i = r->params.at[0];
  for (uint32_t k = 0; k < 2; k++) {
    const Op *le = ir_def(f, op->args[k]), *lt = ir_def(f, op->args[1 - k]);
    if (!le || !lt || le->code != OP_LE || lt->code != OP_LT) continue;
    if (le->args[1] != i || lt->args[0] != i) continue;
    *out = (FullTiles){op->res[0], le->args[0], lt->args[1]};
    if (ir_defined_outside(f, out->from, r) &&
        ir_defined_outside(f, out->to, r))
      return true;
  }
  return false;
}

bool full_tiles(const Func *f, const Op *loop, FullTiles *out) {
  for (const Op *op = loop->regions[0]->first; op; op = op->next)
    if (matches(f, loop, op, out)) return true;
  return false;
}

bool full_tiles_branch(const Op *loop, Value full) {
  for (const Op *op = loop->regions[0]->first; op; op = op->next)
    if (op->code == OP_IF && op->args[0] == full) return true;
  return false;
}

bool full_tiles_short(const PassOpt *opt) {
  const Target *t = opt->target;
  bool nv = t && t->kind == TARGET_GPU && t->gpu.vendor != VENDOR_AMD;
  return nv && !t->gpu.hopper && opt->strided;
}

bool full_tiles_is(const Type *t) {
  return t->kind == TK_FRAG ? t->slice == SLICE_NONE : t->n > 1;
}

// The shape of masks in the loop, or NULL.
static const Type *mask_of(const Func *f, const Region *r) {
  for (const Op *op = r->first; op; op = op->next) {
    const Type *t = op->nres == 1 ? ir_type(f, op->res[0]) : NULL;
    if (t && full_tiles_is(t) && t->dtype == DT_BOOL) return t;
  }
  return NULL;
}

bool full_tiles_long_pairs(const Func *f, const Region *r) {
  const Type *mask = mask_of(f, r);
  return mask && balance_pairs(f, r, mask) > COST_PEEL_PAIRS;
}
