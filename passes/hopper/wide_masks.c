// wide_masks: what is masked and rounded to 16 bits is masked before.
//
//   %w = cast(%x) {to = bf16}              %y = select(%c, %x, 0)
//   %v = select(%c, %w, 0)         ->      %v = cast(%y) {to = bf16}
//
// Elements of 16 bits are halves of words: to mask one takes a selection of its
// own and a part of putting both together, and conditions live until words are
// made, which is behind the wait for the product that reads those of the step
// before (pipeline_loop). Of an f32 it is one selection, as early as the
// condition is there. Conditions that are the same for a whole row or column
// stay: they mask words. Level frag; sm_90a. Run cse and dce afterwards.
// Tests: test/passes/wide_masks/.
#include "passes/pass.h"

static bool is_tile(const Type *t) {
  return t->kind == TK_FRAG && t->slice == SLICE_NONE;
}

// The cast to 16 bits that op masks with zeros, or NULL.
static const Op *masked_cast(const Func *f, const Op *op) {
  double zero;
  if (op->code != OP_SELECT || !ir_const_value(f, op->args[2], &zero) || zero)
    return NULL;
  const Op *how = ir_def(f, op->args[0]), *cast = ir_def(f, op->args[1]);
  if (!how || how->code == OP_BCAST || how->code == OP_SPLAT) return NULL;
  if (!is_tile(ir_type(f, op->args[0])) || !cast || cast->code != OP_CAST)
    return NULL;
  bool words = dtype_size(ir_type(f, cast->res[0])->dtype) == 2 &&
               ir_type(f, cast->args[0])->dtype == DT_F32;
  return words && ir_count_uses(f, cast->res[0]) == 1 ? cast : NULL;
}

static void region(Func *f, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i]);
    const Op *cast = masked_cast(f, op);
    if (!cast) continue;
    Builder b = {.fn = f, .region = r, .before = op, .span = op->span};
    Value wide = cast->args[0];
    Type t = *ir_type(f, wide);
    IrAttr value = attr_f(AT_VALUE, 0);
    Value zero = ir_op(&b, OP_CONST, NULL, 0, &value, 1, &t, 1, 0)->res[0];
    Value masked = ir_3(&b, OP_SELECT, op->args[0], wide, zero);
    Op *made = ir_op(&b, OP_CAST, &masked, 1, cast->attrs, cast->nattrs,
                     ir_type(f, op->res[0]), 1, 0);
    ir_replace_uses(f, op->res[0], made->res[0]);
    ir_erase(op);
  }
}

bool pass_wide_masks(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx;
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    region(m->funcs.at[i], m->funcs.at[i]->body);
  return true;
}
