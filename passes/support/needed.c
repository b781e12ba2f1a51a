// Parts of a loop's body, again: what a value needs, and no more.
#include "passes/support/needed.h"

Value needed_clone(Builder *b, const Region *body, ValueMap *m, Value v) {
  Op *op = ir_def(b->fn, v);
  if (vmap_get(m, v) != v || !op || op->parent != body) return vmap_get(m, v);
  for (uint32_t i = 0; i < op->nargs; i++)
    needed_clone(b, body, m, op->args[i]);
  ir_clone(b, b->fn, op, m, NULL);
  return vmap_get(m, v);
}
