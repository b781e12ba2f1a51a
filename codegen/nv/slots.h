// Slots in shared memory for the registers of warps (slots.c).
#ifndef ATTNC_CODEGEN_NV_SLOTS_H
#define ATTNC_CODEGEN_NV_SLOTS_H

#include "codegen/gpu/gpu.h"

// Slots in which each lane of a warp has so many words.
typedef struct NvSlots {
  V base;
  uint32_t words;
} NvSlots;

// Bytes of a slot.
static inline uint32_t nv_slots_bytes(uint32_t words) {
  enum { WORD = 4, LANES = 32 };
  return words * WORD * LANES;
}

// So many of its words from `at` on travel together; the first of them is at
// this byte of shared memory.
uint32_t nv_slots_run(const NvSlots *s, uint32_t at);
V nv_slots_byte(Gpu *n, const NvSlots *s, V slot, uint32_t at);
// Of a tile that `fwarps` joins in parts: so many words are a part, which one
// warp has, 0: all warps have all. Who takes parts as they are, `peers`, finds
// those of a warp in the first words: turn c has part c * 4 + warp.
uint32_t nv_fwarps_part(Gpu *n, const Op *op);
// A word of a register.
V nv_slots_word(Gpu *n, V w);
void nv_slots_put(Gpu *n, const NvSlots *s, V slot, const V *w);
// As words of the type that those of a have.
void nv_slots_get(Gpu *n, const NvSlots *s, V slot, const V *a, V *w);

#endif
