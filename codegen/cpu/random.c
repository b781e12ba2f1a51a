// Op `random` of a CPU: neighbours in a vector's lanes share their blocks.
#include "codegen/math/random.h"

#include "ir/multiple.h"

// Is v a multiple of 4 and what the lanes count, 0, 1, 2, ..?
static bool counts_lanes(const Cg *g, Value v) {
  const Op *op = ir_def(g->fn, v);
  if (!op) return false;
  if (op->code == OP_VIOTA) return true;
  for (uint32_t i = 0; op->code == OP_ADD && i < 2; i++) {
    const Op *other = ir_def(g->fn, op->args[i]);
    bool one = other && (other->code == OP_SPLAT || other->code == OP_CONST);
    if (one && ir_multiple(g->fn, op->args[i]) % 4 == 0)
      return counts_lanes(g, op->args[1 - i]);
  }
  return false;
}

static bool is_one_number(const Cg *g, Value v) {
  const Op *op = ir_def(g->fn, v);
  return op && (op->code == OP_SPLAT || op->code == OP_CONST);
}

static V first_lane(Cg *g, V x) {
  V v = LLVMBuildExtractElement(g->b, x, cg_i32(g, 0), "");
  return LLVMBuildTrunc(g->b, v, LLVMInt32TypeInContext(g->lc), "");
}

static V row(Cg *g, const Op *op, uint32_t lanes) {
  V x[ELEM_ARGS];
  for (uint32_t i = 0; i < ELEM_ARGS; i++)
    x[i] = first_lane(g, g->val[op->args[i]]);
  CgBlock b = {{x[0], x[1]}, {e_shr(g, x[5], 2), x[4], x[3], x[2]}, NULL, NULL};
  return cg_random_row(g, &b, lanes);
}

// All lanes of an i64 are counters.
static V each(Cg *g, const Op *op) {
  V x[ELEM_ARGS], words[4];
  for (uint32_t i = 0; i < ELEM_ARGS; i++) x[i] = g->val[op->args[i]];
  V n = e_and(g, x[5], e_i(g, x[5], UINT32_MAX));
  CgBlock b = {{x[0], x[1]}, {e_shr(g, n, 2), x[4], x[3], x[2]}, NULL, NULL};
  cg_random_words(g, &b, words);
  return cg_random_pick(g, n, words);
}

V cg_random(Cg *g, const Op *op) {
  const Type *t = ir_type(g->fn, op->res[0]);
  bool shared = t->kind == TK_VEC && t->n >= 4 &&
                counts_lanes(g, op->args[ELEM_ARGS - 1]);
  for (uint32_t i = 0; shared && i < ELEM_ARGS - 1; i++)
    shared = is_one_number(g, op->args[i]);
  return cg_random_fraction(g, shared ? row(g, op, t->n) : each(g, op));
}
