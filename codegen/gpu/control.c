// Control flow of GPU programs: for, while, if. Values that join are lists of
// words.
#include "codegen/gpu/gpu.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

// ---------------------------------------------------------------- values
// The LLVM values of v: one, or the words of a fragment.
static V *words(Gpu *n, Value v, uint32_t *count) {
  TypeKind kind = ir_type(n->f, v)->kind;
  assert(kind != TK_SMEM && kind != TK_MBAR && "memory is not joined");
  if (kind != TK_FRAG) {
    *count = 1;
    return &n->g->val[v];
  }
  *count = n->frag[v].n;
  return n->frag[v].w;
}

// New phis stand for v, as many as `like` has words.
static V *phis(Gpu *n, Value v, Value like) {
  uint32_t count;
  V *w = words(n, like, &count);
  V *p = NEWN(&n->g->cx->scratch, V, count);
  for (uint32_t i = 0; i < count; i++)
    p[i] = LLVMBuildPhi(n->g->b, cg_of(w[i]), "");
  if (ir_type(n->f, v)->kind != TK_FRAG) {
    n->g->val[v] = p[0];
  } else {
    Frag f = gpu_new(n, ir_type(n->f, v));
    assert(f.n == count);
    f.w = p;
    gpu_define(n, v, f);
  }
  return p;
}

static void incoming(Gpu *n, V *phi, Value from, LLVMBasicBlockRef block) {
  uint32_t count;
  V *w = words(n, from, &count);
  for (uint32_t i = 0; i < count; i++)
    LLVMAddIncoming(phi[i], &w[i], &block, 1);
}

static void same(Gpu *n, Value to, Value from) {
  n->g->val[to] = n->g->val[from];
  n->frag[to] = n->frag[from];
}

// ---------------------------------------------------------------- loops
static void loop(Gpu *n, const Op *op, V first, V bound, V step, bool down) {
  Cg *g = n->g;
  const Region *r = op->regions[0];
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b), head = cg_block(g, "for");
  LLVMBasicBlockRef body = cg_block(g, "body"), done = cg_block(g, "done");
  V **phi = NEWN(&g->cx->scratch, V *, op->nres + 1);
  LLVMBuildBr(g->b, head);
  LLVMPositionBuilderAtEnd(g->b, head);
  V i = LLVMBuildPhi(g->b, cg_of(first), "i");
  LLVMAddIncoming(i, &first, &from, 1);
  g->val[r->params.at[0]] = i;
  for (uint32_t k = 0; k < op->nres; k++) {
    phi[k] = phis(n, r->params.at[k + 1], op->args[k + 3]);
    incoming(n, phi[k], op->args[k + 3], from);
  }
  V go = e_icmp(g, down ? LLVMIntSGE : LLVMIntSLT, i, bound);
  LLVMBuildCondBr(g->b, go, body, done);
  LLVMPositionBuilderAtEnd(g->b, body);
  if (n->vendor->step) g->val[r->params.at[0]] = n->vendor->step(n, i);
  gpu_region(n, r);
  V next = down ? LLVMBuildNSWSub(g->b, i, step, "")
                : LLVMBuildNSWAdd(g->b, i, step, "");
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
  LLVMAddIncoming(i, &next, &latch, 1);
  for (uint32_t k = 0; k < op->nres; k++) {
    incoming(n, phi[k], r->last->args[k], latch);
    same(n, op->res[k], r->params.at[k + 1]);
  }
  LLVMBuildBr(g->b, head);
  LLVMPositionBuilderAtEnd(g->b, done);
}

static bool used_behind(const Op *loop, Value v) {
  for (const Op *op = loop->next; op; op = op->next)
    if (ir_mentions(op, v)) return true;
  return false;
}

// What is done in front of a loop is done there: LLVM sinks arithmetic to where
// it is used, behind loops, through which its operands then live
// (passes/gpu/sched_pressure.c).
static void hold(Gpu *n, const Op *loop) {
  if (!n->vendor->hold || !gpu_lean(n)) return;
  for (const Op *op = loop->parent->first; op != loop; op = op->next) {
    if (op->nres != 1 || !(op_info(op->code)->flags & OPF_ELEM)) continue;
    const Type *t = gpu_res_type(n, op);
    if (t->kind != TK_FRAG || t->slice || t->dtype != DT_F32 ||
        !used_behind(loop, op->res[0]))
      continue;
    Frag f = gpu_new(n, t), *old = &n->frag[op->res[0]];
    for (uint32_t i = 0; i < f.n; i++) f.w[i] = n->vendor->hold(n, old->w[i]);
    gpu_define(n, op->res[0], f);
  }
}

void gpu_for(Gpu *n, const Op *op) {
  Cg *g = n->g;
  hold(n, op);
  if (n->vendor->enter) n->vendor->enter(n, op);
  V lo = gpu_arg(n, op, 0), hi = gpu_arg(n, op, 1), step = gpu_arg(n, op, 2);
  if (!ir_attr_i(op, AT_REVERSE, 0)) {
    loop(n, op, lo, hi, step, false);
    return;
  }
  V one = e_i(g, lo, 1);
  V steps = LLVMBuildSDiv(g->b, e_isub(g, e_isub(g, hi, lo), one), step, "");
  V last = e_iadd(g, lo, LLVMBuildMul(g->b, steps, step, ""));
  V none = e_isub(g, lo, step);
  V empty = e_icmp(g, LLVMIntSGE, lo, hi);
  loop(n, op, e_sel(g, empty, none, last), lo, step, true);
}

void gpu_while(Gpu *n, const Op *op) {
  Cg *g = n->g;
  const Region *r = op->regions[0];
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b);
  LLVMBasicBlockRef head = cg_block(g, "while"), body = cg_block(g, "body");
  LLVMBasicBlockRef done = cg_block(g, "done");
  V **phi = NEWN(&g->cx->scratch, V *, op->nres), bound = gpu_arg(n, op, 0);
  LLVMBuildBr(g->b, head);
  LLVMPositionBuilderAtEnd(g->b, head);
  for (uint32_t k = 0; k < op->nres; k++) {
    phi[k] = phis(n, r->params.at[k], op->args[k + 1]);
    incoming(n, phi[k], op->args[k + 1], from);
    same(n, op->res[k], r->params.at[k]);
  }
  V go = e_icmp(g, LLVMIntSLT, phi[0][0], bound);
  LLVMBuildCondBr(g->b, go, body, done);
  LLVMPositionBuilderAtEnd(g->b, body);
  gpu_region(n, r);
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
  for (uint32_t k = 0; k < op->nres; k++)
    incoming(n, phi[k], r->last->args[k], latch);
  LLVMBuildBr(g->b, head);
  LLVMPositionBuilderAtEnd(g->b, done);
}

// ---------------------------------------------------------------- branches
// A condition that an element exceeds its limit, or derived of one.
static bool is_rare(Gpu *n, const Op *op) {
  const Op *why = ir_def(n->f, op->args[0]);
  if (why && why->code == OP_IF) why = ir_def(n->f, why->args[0]);
  return why && why->code == OP_EXCEEDS;
}

// What is rarely done lies behind all else.
void gpu_branch(Gpu *n, const Op *op) {
  Cg *g = n->g;
  LLVMBasicBlockRef side[2] = {cg_block(g, "then"), cg_block(g, "else")};
  LLVMBasicBlockRef done = cg_block(g, "endif"), end[2];
  LLVMBuildCondBr(g->b, gpu_arg(n, op, 0), side[0], side[1]);
  for (int s = 0; s < 2; s++) {
    LLVMPositionBuilderAtEnd(g->b, side[s]);
    gpu_region(n, op->regions[s]);
    end[s] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, done);
  }
  if (is_rare(n, op)) {
    V fn = LLVMGetBasicBlockParent(done);
    LLVMMoveBasicBlockAfter(side[0], LLVMGetLastBasicBlock(fn));
  }
  LLVMPositionBuilderAtEnd(g->b, done);
  for (uint32_t k = 0; k < op->nres; k++) {
    V *phi = phis(n, op->res[k], op->regions[0]->last->args[k]);
    for (int s = 0; s < 2; s++)
      incoming(n, phi, op->regions[s]->last->args[k], end[s]);
  }
}
