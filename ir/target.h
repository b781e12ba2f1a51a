// Targets: what the rows of targets.def say.
#ifndef ATTNC_IR_TARGET_H
#define ATTNC_IR_TARGET_H

#include <stdbool.h>
#include <stdint.h>

typedef enum TargetKind { TARGET_CPU } TargetKind;

typedef struct Target {
  const char *name;        // "cpu:x86-64-v4"
  TargetKind kind;
  const char *isa;         // suffix of the attn_isa constant, "X86_64_V4"
  uint32_t lanes;          // f32 elements of a vector register
  uint32_t regs;           // vector registers
  bool dpbf16;             // adds products of bf16 pairs
  uint32_t l1, l2;         // data caches, KiB
  int64_t tile_q, tile_k;  // coordinates of the lane axis, keys of a step
  uint8_t rows[4];         // register block rows for 1 .. 4 vectors
  uint8_t cols[3];         // vectors of a panel, best first
  const char *cpu;         // LLVM's names
  const char *features;
} Target;

// The row of that name; "cpu" is the first (lowest) level of the CPU. NULL if
// there is none.
const Target *target_by_name(const char *name);
const Target *target_list(uint32_t *n);

#endif
