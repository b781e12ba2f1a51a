// Registers of warps in shared memory: a lane's are read by the same lane of
// another warp, or of another CTA, so where they lie there is of no account. A
// piece of 16 bytes of each lane is beside that of the next.
#include "codegen/nv/slots.h"

enum { WORD = 4, PIECE = 4, LANES = 32 };

uint32_t nv_slots_run(const NvSlots *s, uint32_t at) {
  uint32_t left = s->words - at;
  return left >= PIECE ? PIECE : left >= 2 ? 2 : 1;
}

static bool is_short(LLVMTypeRef t) {
  return LLVMGetTypeKind(t) == LLVMIntegerTypeKind &&
         LLVMGetIntTypeWidth(t) < 8 * WORD;
}

V nv_slots_word(Gpu *n, V w) {
  if (is_short(cg_of(w))) return LLVMBuildZExt(n->g->b, w, gpu_i32t(n), "");
  return LLVMBuildBitCast(n->g->b, w, gpu_i32t(n), "");
}

static V as_type(Gpu *n, V w, LLVMTypeRef t) {
  return is_short(t) ? LLVMBuildTrunc(n->g->b, w, t, "")
                     : LLVMBuildBitCast(n->g->b, w, t, "");
}

V nv_slots_byte(Gpu *n, const NvSlots *s, V slot, uint32_t at) {
  V lane = gpu_mul(n, n->grp.lane, nv_slots_run(s, at) * WORD);
  V byte = gpu_add(n, s->base, gpu_mul(n, slot, s->words * LANES * WORD));
  byte = gpu_add(n, byte, gpu_i32(n, at * LANES * WORD));
  return gpu_add(n, byte, lane);
}

static V address(Gpu *n, const NvSlots *s, V slot, uint32_t at) {
  return gpu_shared(n, nv_slots_byte(n, s, slot, at));
}

void nv_slots_put(Gpu *n, const NvSlots *s, V slot, const V *w) {
  Cg *g = n->g;
  for (uint32_t i = 0, run; i < s->words; i += run) {
    run = nv_slots_run(s, i);
    LLVMTypeRef t = LLVMVectorType(gpu_i32t(n), run);
    V v = LLVMGetPoison(t);
    for (uint32_t k = 0; k < run; k++)
      v = LLVMBuildInsertElement(g->b, v, nv_slots_word(n, w[i + k]),
                                 gpu_i32(n, k), "");
    LLVMSetAlignment(LLVMBuildStore(g->b, v, address(n, s, slot, i)),
                     run * WORD);
  }
}

void nv_slots_get(Gpu *n, const NvSlots *s, V slot, const V *a, V *w) {
  Cg *g = n->g;
  for (uint32_t i = 0, run; i < s->words; i += run) {
    run = nv_slots_run(s, i);
    LLVMTypeRef t = LLVMVectorType(gpu_i32t(n), run);
    V v = LLVMBuildLoad2(g->b, t, address(n, s, slot, i), "");
    LLVMSetAlignment(v, run * WORD);
    for (uint32_t k = 0; k < run; k++)
      w[i + k] = as_type(n, LLVMBuildExtractElement(g->b, v, gpu_i32(n, k), ""),
                         cg_of(a[i + k]));
  }
}
