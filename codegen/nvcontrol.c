// Control flow of GPU programs: for, if, roles. Values that join are lists of
// words.
#include "codegen/nv.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

// ---------------------------------------------------------------- values
// The LLVM values of v: one, or the words of a fragment.
static V *words(Nv *n, Value v, uint32_t *count) {
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
static V *phis(Nv *n, Value v, Value like) {
  uint32_t count;
  V *w = words(n, like, &count);
  V *p = NEWN(&n->g->cx->scratch, V, count);
  for (uint32_t i = 0; i < count; i++)
    p[i] = LLVMBuildPhi(n->g->b, cg_of(w[i]), "");
  if (ir_type(n->f, v)->kind != TK_FRAG) {
    n->g->val[v] = p[0];
  } else {
    Frag f = nv_new(n, ir_type(n->f, v));
    assert(f.n == count);
    f.w = p;
    nv_define(n, v, f);
  }
  return p;
}

static void incoming(Nv *n, V *phi, Value from, LLVMBasicBlockRef block) {
  uint32_t count;
  V *w = words(n, from, &count);
  for (uint32_t i = 0; i < count; i++)
    LLVMAddIncoming(phi[i], &w[i], &block, 1);
}

static void same(Nv *n, Value to, Value from) {
  n->g->val[to] = n->g->val[from];
  n->frag[to] = n->frag[from];
}

// ---------------------------------------------------------------- loops
static void loop(Nv *n, const Op *op, V first, V bound, V step, bool down) {
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
  nv_region(n, r);
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

void nv_for(Nv *n, const Op *op) {
  Cg *g = n->g;
  V lo = nv_arg(n, op, 0), hi = nv_arg(n, op, 1), step = nv_arg(n, op, 2);
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

void nv_while(Nv *n, const Op *op) {
  Cg *g = n->g;
  const Region *r = op->regions[0];
  LLVMBasicBlockRef from = LLVMGetInsertBlock(g->b);
  LLVMBasicBlockRef head = cg_block(g, "while"), body = cg_block(g, "body");
  LLVMBasicBlockRef done = cg_block(g, "done");
  V **phi = NEWN(&g->cx->scratch, V *, op->nres), bound = nv_arg(n, op, 0);
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
  nv_region(n, r);
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(g->b);
  for (uint32_t k = 0; k < op->nres; k++)
    incoming(n, phi[k], r->last->args[k], latch);
  LLVMBuildBr(g->b, head);
  LLVMPositionBuilderAtEnd(g->b, done);
}

// ---------------------------------------------------------------- branches
void nv_branch(Nv *n, const Op *op) {
  Cg *g = n->g;
  LLVMBasicBlockRef side[2] = {cg_block(g, "then"), cg_block(g, "else")};
  LLVMBasicBlockRef done = cg_block(g, "endif"), end[2];
  LLVMBuildCondBr(g->b, nv_arg(n, op, 0), side[0], side[1]);
  for (int s = 0; s < 2; s++) {
    LLVMPositionBuilderAtEnd(g->b, side[s]);
    nv_region(n, op->regions[s]);
    end[s] = LLVMGetInsertBlock(g->b);
    LLVMBuildBr(g->b, done);
  }
  LLVMPositionBuilderAtEnd(g->b, done);
  for (uint32_t k = 0; k < op->nres; k++) {
    V *phi = phis(n, op->res[k], op->regions[0]->last->args[k]);
    for (int s = 0; s < 2; s++)
      incoming(n, phi, op->regions[s]->last->args[k], end[s]);
  }
}

// ---------------------------------------------------------------- roles
static void set_registers(Nv *n, const Op *op, uint32_t role) {
  const IrAttr *regs = ir_attr(op, AT_TEAMREGS);
  if (!regs || !n->gpu.arch) return;
  uint32_t at_start = n->gpu.regs / n->out->threads / 8 * 8;
  bool more = regs->list[role] > at_start;
  V count = nv_i32(n, regs->list[role]);
  nv_call(n, more ? "llvm.nvvm.setmaxnreg.inc.sync.aligned.u32"
                  : "llvm.nvvm.setmaxnreg.dec.sync.aligned.u32", &count, 1);
}

// The group of a role whose team begins at thread `from` of the CTA.
static Group group(Nv *n, const Op *op, uint32_t role, uint32_t from) {
  Cg *g = n->g;
  Group r = {.team = 1 + role, .lane = n->lane};
  r.threads = (uint32_t)ir_attr(op, AT_GROUPS)->list[role];
  uint32_t team = (uint32_t)ir_attr(op, AT_TEAMS)->list[role];
  r.instances = op->regions[role]->params.n ? team / r.threads : 1;
  V in_team = e_isub(g, n->tid, nv_i32(n, from));
  V warp = e_isub(g, n->warp, nv_i32(n, from / 32));
  if (r.threads == 1) {
    r.tid = r.warp = r.instance = nv_i32(n, 0);
    r.first = LLVMConstInt(LLVMInt1TypeInContext(g->lc), 1, 0);
    return r;
  }
  uint32_t warps = r.threads / 32;
  r.instance = LLVMBuildUDiv(g->b, warp, nv_i32(n, warps), "wg");
  r.warp = LLVMBuildURem(g->b, warp, nv_i32(n, warps), "");
  r.tid = LLVMBuildURem(g->b, in_team, nv_i32(n, r.threads), "");
  r.first = e_icmp(g, LLVMIntEQ, r.tid, nv_i32(n, 0));
  r.barrier = 8 + n->barriers;
  return r;
}

// Into the threads of the role that run its region; the others go to `out`.
static void admit(Nv *n, const Group *r, uint32_t from, LLVMBasicBlockRef out) {
  Cg *g = n->g;
  V mine = NULL;
  uint32_t warps = r->threads / 32;
  if (r->threads == 1) {
    V first = e_icmp(g, LLVMIntEQ, n->warp, nv_i32(n, from / 32));
    LLVMBasicBlockRef warp = cg_block(g, "warp");
    LLVMBuildCondBr(g->b, first, warp, out);
    LLVMPositionBuilderAtEnd(g->b, warp);
    V all = nv_i32(n, -1), e = nv_call(n, "llvm.nvvm.elect.sync", &all, 1);
    mine = LLVMBuildExtractValue(g->b, e, 1, "");
  } else if (r->instances == 1) {
    mine = e_icmp(g, LLVMIntULT, n->warp, nv_i32(n, from / 32 + warps));
  }
  if (!mine) return;
  LLVMBasicBlockRef in = cg_block(g, "run");
  LLVMBuildCondBr(g->b, mine, in, out);
  LLVMPositionBuilderAtEnd(g->b, in);
}

static void role(Nv *n, const Op *op, uint32_t i, uint32_t from,
                 LLVMBasicBlockRef out) {
  const Region *r = op->regions[i];
  Group saved = n->grp;
  set_registers(n, op, i);
  n->grp = group(n, op, i, from);
  admit(n, &n->grp, from, out);
  if (r->params.n) n->g->val[r->params.at[0]] = n->grp.instance;
  nv_region(n, r);
  LLVMBuildBr(n->g->b, out);
  if (n->grp.threads > 1) n->barriers += n->grp.instances;
  n->grp = saved;
}

void nv_roles(Nv *n, const Op *op) {
  Cg *g = n->g;
  const IrAttr *teams = ir_attr(op, AT_TEAMS);
  LLVMBasicBlockRef out = cg_block(g, "roles.end");
  uint32_t from = 0;
  for (uint32_t i = 0; i < op->nregions; i++) {
    uint32_t to = from + (uint32_t)teams->list[i];
    LLVMBasicBlockRef other = out;
    if (i + 1 < op->nregions) {
      LLVMBasicBlockRef mine = cg_block(g, "role");
      other = cg_block(g, "roles");
      V in = e_icmp(g, LLVMIntULT, n->warp, nv_i32(n, to / 32));
      LLVMBuildCondBr(g->b, in, mine, other);
      LLVMPositionBuilderAtEnd(g->b, mine);
    }
    role(n, op, i, from, out);
    LLVMPositionBuilderAtEnd(g->b, other);
    from = to;
  }
}
