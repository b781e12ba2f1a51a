// The facts of elementwise ops, expanded from ops.def.
#include "ir/facts.h"

#include <math.h>

#define INF INFINITY
static const OpFacts facts[OP_COUNT] = {
#define ELEM(name, id, levels, n, infer, flags, class_, value, doc, ...) \
  [OP_##id] = {.class = OC_##class_, __VA_ARGS__},
#include "ir/ops.def"
};

const OpFacts *op_facts(OpCode c) {
  return &facts[c];
}

bool op_is_function(OpCode c) {
  return facts[c].class == OC_POWER || facts[c].class == OC_FUNCTION;
}

bool op_folds(OpCode c) {
  return facts[c].class && !facts[c].asks;
}
