// fwarp: the registers of another warp, through the group's scratch. A lane's
// are those of the same lane, so where they lie there is of no account: a piece
// of 16 bytes of each lane beside that of the next.
#include "codegen/gpu/gpu.h"

enum { WORD = 4, PIECE = 4, LANES = 32 };

// So many words from `at` on travel together.
static uint32_t run_at(const Frag *x, uint32_t at) {
  return at + PIECE <= x->n ? PIECE : 1;
}

static bool is_short(LLVMTypeRef t) {
  return LLVMGetTypeKind(t) == LLVMIntegerTypeKind &&
         LLVMGetIntTypeWidth(t) < 8 * WORD;
}

static V as_word(Gpu *n, V w) {
  if (is_short(cg_of(w))) return LLVMBuildZExt(n->g->b, w, gpu_i32t(n), "");
  return LLVMBuildBitCast(n->g->b, w, gpu_i32t(n), "");
}

static V as_type(Gpu *n, V w, LLVMTypeRef t) {
  return is_short(t) ? LLVMBuildTrunc(n->g->b, w, t, "")
                     : LLVMBuildBitCast(n->g->b, w, t, "");
}

static V address(Gpu *n, V base, uint32_t at, uint32_t run) {
  V lane = gpu_mul(n, n->grp.lane, run * WORD);
  V byte = gpu_add(n, base, gpu_i32(n, at * LANES * WORD));
  return gpu_shared(n, gpu_add(n, byte, lane));
}

static void write(Gpu *n, V base, const Frag *x) {
  Cg *g = n->g;
  for (uint32_t i = 0, run; i < x->n; i += run) {
    run = run_at(x, i);
    LLVMTypeRef t = LLVMVectorType(gpu_i32t(n), run);
    V v = LLVMGetPoison(t);
    for (uint32_t k = 0; k < run; k++)
      v = LLVMBuildInsertElement(g->b, v, as_word(n, x->w[i + k]),
                                 gpu_i32(n, k), "");
    LLVMSetAlignment(LLVMBuildStore(g->b, v, address(n, base, i, run)),
                     run * WORD);
  }
}

static void read(Gpu *n, V base, const Frag *x, V *out) {
  Cg *g = n->g;
  for (uint32_t i = 0, run; i < x->n; i += run) {
    run = run_at(x, i);
    LLVMTypeRef t = LLVMVectorType(gpu_i32t(n), run);
    V v = LLVMBuildLoad2(g->b, t, address(n, base, i, run), "");
    LLVMSetAlignment(v, run * WORD);
    for (uint32_t k = 0; k < run; k++)
      out[i + k] =
          as_type(n, LLVMBuildExtractElement(g->b, v, gpu_i32(n, k), ""),
                  cg_of(x->w[i + k]));
  }
}

static V is_warp(Gpu *n, int64_t which) {
  return e_icmp(n->g, LLVMIntEQ, n->grp.warp, gpu_i32(n, which));
}

void nv_fwarp(Gpu *n, const Op *op) {
  Cg *g = n->g;
  const Frag *x = gpu_frag(n, op->args[0]);
  const Frag *none = gpu_frag(n, op->args[1]);
  Frag r = *x;
  V base = gpu_scratch(n, frag_warp_bytes(gpu_arg_type(n, op, 0)));
  r.w = NEWN(&g->cx->scratch, V, x->n);
  V *other = NEWN(&g->cx->scratch, V, x->n);
  gpu_sync(n);
  LLVMBasicBlockRef end = gpu_if(n, is_warp(n, ir_attr_i(op, AT_POS, 0)));
  write(n, base, x);
  gpu_end(n, end);
  gpu_sync(n);
  V first = is_warp(n, 0);
  LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(g->b)};
  end = gpu_if(n, first);
  read(n, base, x, other);
  from[1] = LLVMGetInsertBlock(g->b);
  gpu_end(n, end);
  for (uint32_t i = 0; i < x->n; i++) {
    V in[2] = {none->w[i], other[i]};
    r.w[i] = LLVMBuildPhi(g->b, cg_of(x->w[i]), "");
    LLVMAddIncoming(r.w[i], in, from, 2);
  }
  gpu_define(n, op->res[0], r);
}
