// Loops of GPU programs at level frag (loops.h).
#include "passes/support/loops.h"

bool loop_has_fill(const Op *op) {
  if (op->code == OP_SFILL) return true;
  for (uint32_t i = 0; i < op->nregions; i++)
    for (const Op *o = op->regions[i]->first; o; o = o->next)
      if (loop_has_fill(o)) return true;
  return false;
}

Op *loop_chunk(const Op *loop) {
  for (Op *op = loop->regions[0]->first; op; op = op->next)
    for (const Op *in = op->code == OP_IF ? op->regions[1]->first : NULL; in;
         in = in->next)
      if (in->code == OP_FOR) return op;
  return NULL;
}

Op *loop_longer(Func *f, Op *old, const Value *start, uint32_t n) {
  Arena *a = f->mod->arena;
  uint32_t own = old->nres;
  Value *args = NEWN(a, Value, old->nargs + n);
  Type *types = NEWN(a, Type, own + n);
  for (uint32_t i = 0; i < old->nargs; i++) args[i] = old->args[i];
  for (uint32_t i = 0; i < own; i++) types[i] = *ir_type(f, old->res[i]);
  for (uint32_t i = 0; i < n; i++) {
    args[old->nargs + i] = start[i];
    types[own + i] = *ir_type(f, start[i]);
  }
  Builder b = {.fn = f,
               .region = old->parent,
               .before = old,
               .span = old->span};
  Op *loop = ir_op(&b, OP_FOR, args, old->nargs + n, old->attrs, old->nattrs,
                   types, own + n, 1);
  Region *from = old->regions[0], *to = loop->regions[0];
  for (uint32_t i = 0; i < from->params.n; i++) {
    const ValueInfo *p = ir_info(f, from->params.at[i]);
    ir_region_param(to, p->type, p->hint);
  }
  for (uint32_t i = 0; i < n; i++) ir_region_param(to, types[own + i], NULL);
  return loop;
}

void loop_replace(Func *f, Op *old, Op *loop, const Value *next, uint32_t n) {
  Region *from = old->regions[0], *to = loop->regions[0];
  Op *yield = from->last;
  uint32_t own = yield->nargs;
  Value *out = NEWN(f->mod->arena, Value, own + n);
  for (uint32_t i = 0; i < own; i++) out[i] = yield->args[i];
  for (uint32_t i = 0; i < n; i++) out[own + i] = next[i];
  Builder in = {.fn = f, .region = to, .span = old->span};
  ir_yield(&in, out, own + n);
  for (Op *op = from->first, *o; op != yield; op = o) {
    o = op->next;
    ir_move_before(op, to->last);
  }
  ir_erase(yield);
  for (uint32_t i = 0; i < from->params.n; i++)
    ir_replace_uses(f, from->params.at[i], to->params.at[i]);
  for (uint32_t i = 0; i < old->nres; i++)
    ir_replace_uses(f, old->res[i], loop->res[i]);
  ir_erase(old);
}
