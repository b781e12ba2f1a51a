// Addresses of shared tiles on AMD. A thread's first element is computed, the
// others are constants from it: an instruction or none. The offset is hidden
// from LLVM, which would hoist every address out of loops into registers of its
// own.
#include "codegen/amd/amd.h"

static uint32_t pitch_of(const Type *t) {
  return smem_turned(t->layout) ? 2 * t->ext[0] : smem_panel_bytes(t);
}

static bool by_bits(const Type *t) {
  uint32_t pitch = pitch_of(t);
  return t->layout == LY_ROW || (pitch & (pitch - 1)) == 0;
}

LdsPlace amd_place(Gpu *n, Tile s, const Type *t, V row, V col) {
  LdsPlace p = {s, t, row, col, gpu_offset(n, t, row, col)};
  if (s.var && by_bits(t)) {  // of whole panels: no bits of an offset in one
    p.at = gpu_add(n, p.at, gpu_mul(n, s.var, 16));
    p.s.var = NULL;
  }
  p.at = gpu_asm(n, gpu_i32t(n), "", "=v,0", &p.at, 1);
  return p;
}

// Swizzles are linear: the offset of (row + r, col + c) is that of (row, col),
// its low bits XORed with the constants' and the others added.
V amd_at(Gpu *n, const LdsPlace *p, uint32_t row, uint32_t col) {
  if (!by_bits(p->t)) {
    V c = gpu_add(n, p->col, gpu_i32(n, col));
    V r = gpu_add(n, p->row, gpu_i32(n, row));
    return gpu_element(n, p->s, p->t, r, c);
  }
  uint32_t c = smem_offset(p->t, row, col), low = c % pitch_of(p->t);
  V x = p->t->layout == LY_ROW ? gpu_add(n, p->at, gpu_i32(n, low))
                               : e_xor(n->g, p->at, gpu_i32(n, low));
  return gpu_tile_byte(n, p->s, gpu_add(n, x, gpu_i32(n, c - low)));
}

void amd_apart(Gpu *n, V access, const char *kind) {
  Cg *g = n->g;
  if (!n->gpu.direct) return;
  static const char domain[] = "shared", scope[] = "copies";
  LLVMMetadataRef name =
      LLVMMDStringInContext2(g->lc, domain, sizeof domain - 1);
  LLVMMetadataRef two[2] = {LLVMMDStringInContext2(g->lc, scope,
                                                   sizeof scope - 1),
                            LLVMMDNodeInContext2(g->lc, &name, 1)};
  LLVMMetadataRef one = LLVMMDNodeInContext2(g->lc, two, 2);
  unsigned id = LLVMGetMDKindIDInContext(g->lc, kind, (unsigned)strlen(kind));
  LLVMMetadataRef list = LLVMMDNodeInContext2(g->lc, &one, 1);
  LLVMSetMetadata(access, id, LLVMMetadataAsValue(g->lc, list));
}

// ---------------------------------------------------------------- fragments
static bool powers(const Factor *f, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (f[i].size & (f[i].size - 1)) return false;
  return true;
}

// Digits do not carry into each other if all sizes are powers of two.
bool amd_store_tile(Gpu *n, Tile s, const Type *t, const Frag *f) {
  Cg *g = n->g;
  const FragMap *m = &f->map;
  if (!powers(m->reg, m->nreg) || !powers(m->thr, m->nthr) || !by_bits(t) ||
      f->dtype == DT_BOOL)
    return false;
  uint32_t step, k = gpu_access(m, t, &step),
                 size = (uint32_t)dtype_size(f->dtype);
  bool words = f->per == 4 && step == 1 && k % 4 == 0;
  if (size < 2 && !words) return false;
  V col = gpu_coord(n, m, AXIS_COL, 0);
  LdsPlace p = amd_place(n, s, t, gpu_coord(n, m, AXIS_ROW, 0), col);
  LLVMTypeRef e = cg_memory(g, f->dtype);
  for (uint32_t i = 0; i < m->regs; i++) {
    uint32_t at[2];
    if (i / step % k) continue;
    frag_at(m, i, 0, at);
    V v = LLVMGetPoison(words ? LLVMVectorType(gpu_i32t(n), k / 4)
                              : LLVMVectorType(e, k));
    for (uint32_t j = 0; words && j < k / 4; j++)
      v = LLVMBuildInsertElement(g->b, v, f->w[i / 4 + j], gpu_i32(n, j), "");
    for (uint32_t j = 0; !words && j < k; j++)
      v = LLVMBuildInsertElement(g->b, v, gpu_elem(n, f, i + j * step),
                                 gpu_i32(n, j), "");
    V st = LLVMBuildStore(g->b, v, amd_at(n, &p, at[0], at[1]));
    LLVMSetAlignment(st, k * size);
  }
  return true;
}
