// Roles: teams of warps of a CTA that run different regions.
#include "codegen/gpu/gpu.h"

static void set_registers(Gpu *n, const Op *op, uint32_t role) {
  const IrAttr *regs = ir_attr(op, AT_TEAMREGS);
  if (!regs || !n->gpu.hopper) return;
  uint32_t at_start = n->gpu.regs / n->out->threads / n->out->occupancy / 8 * 8;
  if (regs->list[role] == at_start) return;
  bool more = regs->list[role] > at_start;
  V count = gpu_i32(n, regs->list[role]);
  gpu_call(n,
           more ? "llvm.nvvm.setmaxnreg.inc.sync.aligned.u32"
                : "llvm.nvvm.setmaxnreg.dec.sync.aligned.u32",
           &count, 1);
}

// The group of a role whose team begins at thread `from` of the CTA.
static Group group(Gpu *n, const Op *op, uint32_t role, uint32_t from) {
  Cg *g = n->g;
  Group r = {.team = 1 + role, .from = from, .lane = n->lane};
  r.threads = (uint32_t)ir_attr(op, AT_GROUPS)->list[role];
  uint32_t team = (uint32_t)ir_attr(op, AT_TEAMS)->list[role];
  r.instances = op->regions[role]->params.n ? team / r.threads : 1;
  V in_team = e_isub(g, n->tid, gpu_i32(n, from));
  V warp = e_isub(g, n->warp, gpu_i32(n, from / 32));
  if (r.threads == 1) {
    r.tid = r.warp = r.instance = gpu_i32(n, 0);
    r.first = LLVMConstInt(LLVMInt1TypeInContext(g->lc), 1, 0);
    return r;
  }
  uint32_t warps = r.threads / 32;
  r.instance = LLVMBuildUDiv(g->b, warp, gpu_i32(n, warps), "wg");
  r.warp = LLVMBuildURem(g->b, warp, gpu_i32(n, warps), "");
  r.tid = LLVMBuildURem(g->b, in_team, gpu_i32(n, r.threads), "");
  r.first = e_icmp(g, LLVMIntEQ, r.tid, gpu_i32(n, 0));
  r.barrier = 8 + n->barriers;
  return r;
}

// Into the threads of the role that run its region; the others go to `out`.
static void admit(Gpu *n, const Group *r, uint32_t from,
                  LLVMBasicBlockRef out) {
  Cg *g = n->g;
  V mine = NULL;
  uint32_t warps = r->threads / 32;
  if (r->threads == 1) {
    V first = e_icmp(g, LLVMIntEQ, n->warp, gpu_i32(n, from / 32));
    LLVMBasicBlockRef warp = cg_block(g, "warp");
    LLVMBuildCondBr(g->b, first, warp, out);
    LLVMPositionBuilderAtEnd(g->b, warp);
    V all = gpu_i32(n, -1), e = gpu_call(n, "llvm.nvvm.elect.sync", &all, 1);
    mine = LLVMBuildExtractValue(g->b, e, 1, "");
  } else if (r->instances == 1) {
    mine = e_icmp(g, LLVMIntULT, n->warp, gpu_i32(n, from / 32 + warps));
  }
  if (!mine) return;
  LLVMBasicBlockRef in = cg_block(g, "run");
  LLVMBuildCondBr(g->b, mine, in, out);
  LLVMPositionBuilderAtEnd(g->b, in);
}

static void role(Gpu *n, const Op *op, uint32_t i, uint32_t from,
                 LLVMBasicBlockRef out) {
  const Region *r = op->regions[i];
  Group saved = n->grp;
  set_registers(n, op, i);
  n->grp = group(n, op, i, from);
  admit(n, &n->grp, from, out);
  if (r->params.n) n->g->val[r->params.at[0]] = n->grp.instance;
  gpu_region(n, r);
  LLVMBuildBr(n->g->b, out);
  if (n->grp.threads > 1) n->barriers += n->grp.instances;
  n->grp = saved;
}

void nv_roles(Gpu *n, const Op *op) {
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
      V in = e_icmp(g, LLVMIntULT, n->warp, gpu_i32(n, to / 32));
      LLVMBuildCondBr(g->b, in, mine, other);
      LLVMPositionBuilderAtEnd(g->b, mine);
    }
    role(n, op, i, from, out);
    LLVMPositionBuilderAtEnd(g->b, other);
    from = to;
  }
}
