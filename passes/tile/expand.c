// expand: functions that no machine has become the ops of their formula.
//
//   %y = cosh(%a) : f32{q:8}          %e = exp(mul(abs(%a), 0.5)) : f32{q:8}
//                              ->     %h = mul(mul(0.5, %e), %e) : f32{q:8}
//                                     %y = add(%h, div(0.25, %h)) : f32{q:8}
//
// The column `expand` of ops.def has the formulas: one for every target, f32
// and f64. Behind `tile`, so that derivations and tile sizes see one op, with
// its range and its cost. Run cse and dce afterwards. Level tile. Tests:
// test/passes/expand.
#include "ir/facts.h"
#include "ir/formula.h"
#include "passes/pass.h"

static void visit(void *data, Op *op) {
  Func *f = data;
  const char *formula = op_facts(op->code)->expand;
  if (!formula) return;
  Builder b = {.fn = f, .region = op->parent, .before = op, .span = op->span};
  Value operands[3] = {0}, r[FORMULA_RESULTS];
  for (uint32_t i = 0; i < op->nargs; i++) operands[i] = op->args[i];
  formula_build(&b, formula, ir_type(f, op->res[0])->dtype, operands, 0, r);
  ir_replace_uses(f, op->res[0], r[0]);
  ir_erase(op);
}

bool pass_expand(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)cx, (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++)
    ir_walk(m->funcs.at[i]->body, visit, m->funcs.at[i]);
  return true;
}
