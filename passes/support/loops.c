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
