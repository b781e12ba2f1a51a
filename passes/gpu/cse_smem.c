// cse_smem: what is read of a shared tile twice is read once, where far more
// lives at once than a thread has registers.
//
//   %x = sload(%k)                        %x = sload(%k)
//   %p = exp2(%x)                  ->     %p = exp2(%x)
//   %y = sload(%k)                        .. %p for %q
//   %q = exp2(%y)
//
// A chunk's vectors lie along the steps that read and along those that write:
// two axes, so that a program has two values of each, though their fragments
// are the same. Mostly two reads are better than one that is kept; not where
// what is made of both (norms, decays) lives at once, in more registers than
// ptxas makes one after the other. Level frag; sm_90a. Needs:
// lower_gpu; run cse and dce behind it. Tests: test/passes/cse_smem.
#include "ir/layout.h"
#include "ir/pressure.h"
#include "passes/support/cost.h"
#include "passes/pass.h"

// A shared tile that nothing writes again.
static bool is_value(const Func *f, Value tile) {
  const Op *op = ir_def(f, tile);
  return op && (op->code == OP_SFILL || op->code == OP_SPUT);
}

static bool same_read(const Func *f, const Op *a, const Op *b) {
  return a->code == OP_SLOAD && b->code == OP_SLOAD && a->nargs == b->nargs &&
         a->args[0] == b->args[0] &&
         (a->nargs == 1 || a->args[1] == b->args[1]) &&
         type_eq(ir_type(f, a->res[0]), ir_type(f, b->res[0])) &&
         ir_attr_i(a, AT_TRANS, 0) == ir_attr_i(b, AT_TRANS, 0);
}

static void region(Func *f, Region *r) {
  for (Op *op = r->first, *next; op; op = next) {
    next = op->next;
    for (uint32_t i = 0; i < op->nregions; i++) region(f, op->regions[i]);
    if (op->code != OP_SLOAD || !is_value(f, op->args[0])) continue;
    const Op *before = op->prev;
    while (before && !same_read(f, before, op)) before = before->prev;
    if (!before) continue;
    ir_replace_uses(f, op->res[0], before->res[0]);
    ir_erase(op);
  }
}

bool pass_cse_smem(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    if (ir_launch(f) &&
        ir_pressure(f, &cx->scratch).regs > COST_READ_ONCE_PRESS)
      region(f, f->body);
  }
  return true;
}
