// spill_smem: what a loop over keys does not need does not wait in registers,
// where the threads that compute load their tiles themselves.
//
//   %l = gload(%lam, %h)                  %s = sput(%y)
//   for(..) { .. }                        for(..) { .. }
//   %z = mul(%y, %l)                ->    %l = gload(%lam, %h)
//   gstore(%O, %z, %q)                    %z = mul(sload(%s), %l)
//                                         gstore(%O, %z, add(splat(%h'), coord()))
//
// A tile that a loop leaves alone waits in shared memory (results of the loops
// before, which are joined with its own), and a number is loaded behind it.
// Rows of what is stored are made remat, of numbers made anew and of the
// thread's number, which is read again (`anew`); columns are those of the loads
// between. At the last level threads may have a few registers less (launch,
// `registers`): ptxas then loads less ahead, and spills less. Level frag;
// sm_90a, programs without steps, where the driver asks for few registers
// (tools/driver/gpu/fit.c), and then without the attribute `lean`. Needs:
// lower_gpu, sched_pressure. Tests: test/passes/spill_smem.
#include "ir/layout.h"
#include "passes/support/cost.h"
#include "passes/hopper/remat.h"
#include "passes/gpu/gpu.h"
#include "passes/hopper/rings.h"

// Of 255: what retention with values of 256 takes least time with
// (docs/lab/2026-11-registers.md).

// ---------------------------------------------------------------- tiles
static bool is_tile(const Func *f, Value v) {
  const Type *t = ir_type(f, v);
  const Op *op = ir_def(f, v);
  return t->kind == TK_FRAG && t->slice == SLICE_NONE && t->dtype == DT_F32 &&
         t->layout == LY_ACC && !t->partial && op->code != OP_CONST;
}

static void shelve(Func *f, Op *loop, Op *use, Value v) {
  const Type t = *ir_type(f, v);
  const Type s = lower_smem_type(t.dtype, t.ext[0], t.ext[1]);
  Builder b = {.fn = f,
               .region = loop->parent,
               .before = loop,
               .span = loop->span};
  Value put = ir_op(&b, OP_SPUT, &v, 1, NULL, 0, &s, 1, 0)->res[0];
  b.before = use;
  Value got = ir_op(&b, OP_SLOAD, &put, 1, NULL, 0, &t, 1, 0)->res[0];
  ir_replace_from(use, v, got);
}

static void shelve_tiles(Func *f, Op *loop) {
  for (Op *op = f->body->first; op != loop; op = op->next)
    for (uint32_t i = 0; i < op->nres; i++) {
      Value v = op->res[i];
      if (!is_tile(f, v) || ir_mentions(loop, v)) continue;
      Op *use = ir_first_use(loop->next, v);
      if (use) shelve(f, loop, use, v);
    }
}

// ---------------------------------------------------------------- loads
static void loads_late(Func *f, Op *loop) {
  for (Op *op = loop->prev, *prev; op; op = prev) {
    prev = op->prev;
    if (op->code != OP_GLOAD || !ir_is_input(f, op->args[0])) continue;
    Op *use = ir_first_use(op->next, op->res[0]), *at = use;
    while (at && at != loop) at = at->prev;
    if (at && !use->nregions) ir_move_before(op, use);
  }
}

// ---------------------------------------------------------------- all
static bool has_fill(const Func *f) {
  for (const Op *op = f->body->first; op; op = op->next)
    if (loop_has_fill(op)) return true;
  return false;
}

static void loops(Func *f) {
  Op *last = NULL;
  for (Op *op = f->body->first; op; op = op->next) {
    if (op->code != OP_FOR || !op->nres) continue;
    loads_late(f, op);
    shelve_tiles(f, op);
    last = op;
  }
  if (last) hop_remat_stores(f, last->next, true);
}

bool pass_spill_smem(Ctx *cx, Module *m, const PassOpt *opt) {
  (void)opt;
  (void)cx;
  for (uint32_t i = 0; i < m->funcs.n; i++) {
    Func *f = m->funcs.at[i];
    int64_t level = relief_of(f);
    if (level <= RELIEF_FREE || !ir_launch(f) || ir_has_steps(f) || has_fill(f))
      continue;
    loops(f);
    if (level == RELIEF_TASK)
      ir_set_attr(f, f->body->first, attr_i(AT_REGISTERS, COST_SHELVED_REGS));
  }
  return true;
}
