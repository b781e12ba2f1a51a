// Targets: what the rows of targets.def say.
#ifndef ATTNC_IR_TARGET_H
#define ATTNC_IR_TARGET_H

#include "ir/ir.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum TargetKind { TARGET_CPU, TARGET_GPU } TargetKind;

// What bits of f8e4m3 and f8e5m2 mean to a GPU's instructions: nothing, other
// values than OCP's (no infinities, no -0, half the value), OCP's.
typedef enum F8Form { F8_NONE, F8_FNUZ, F8_OCP } F8Form;

typedef enum GpuMaker { VENDOR_NVIDIA, VENDOR_AMD } GpuMaker;

// Facts of a GPU; rows GPU(..) of targets.def.
typedef struct GpuFacts {
  GpuMaker vendor;
  uint32_t wave;     // threads of a warp
  LayoutId acc, op;  // of sums of matrix products; of their left operand
                     // from memory (LY_ACC: it is read as shared tile)
  LayoutId op8;      // the same of 8 bits; LY_ACC: no such products
  F8Form f8;
  uint32_t direct;      // bytes of a lane's load to shared memory, 0: none
  bool turn;            // transposed operands lie in shared memory by columns
  uint32_t rows, cols;  // of such a product: of a warp, multiples of
  uint32_t cc;          // 90
  bool hopper;          // tensor memory accelerator, wgmma, setmaxnreg
  uint32_t smem, own;   // bytes a CTA may use; that it takes beside
  uint32_t regs;        // 32-bit registers of a multiprocessor
  uint32_t threads;     // that it has at once
  uint32_t sms;         // multiprocessors (the run time reads the real one)
  uint32_t l2;          // KiB
  uint32_t bandwidth;   // GB/s of device memory
  uint32_t tflops;      // dense bf16 products, f32 sums
  uint32_t flops;       // of a multiprocessor in a clock: the same;
  uint32_t special, lanes;  // special functions, sums of f32
  const char *general;      // target whose code takes any tensor, or NULL
} GpuFacts;

typedef struct Target {
  const char *name;  // "cpu:x86-64-v4"
  TargetKind kind;
  const char *isa;         // suffix of the attn_isa constant, "X86_64_V4"
  uint32_t lanes;          // f32 elements of a vector register
  uint32_t regs;           // vector registers
  bool dpbf16;             // adds products of bf16 pairs
  bool amx;                // has tile registers, and such products of them
  uint32_t l1, l2;         // data caches, KiB
  int64_t tile_q, tile_k;  // coordinates of the lane axis, keys of a step
  uint8_t rows[4];         // register block rows for 1 .. 4 vectors
  uint8_t cols[3];         // vectors of a panel, best first
  const char *cpu;         // LLVM's names
  const char *features;
  GpuFacts gpu;  // TARGET_GPU; the fields above but LLVM's are 0
} Target;

// What GPUs have in common: HW_GROUP_ROWS and others, rows FACT(..).
enum {
#define FACT(name, value, what) HW_##name = value,
#include "ir/targets.def"
};

// Registers of a thread that loads, of one that makes tiles and of one that
// computes; rows TEAM(..).
typedef struct GpuTeam {
  uint32_t groups, level;
  int64_t loads, makes, computes;
} GpuTeam;

// The row of so many groups that compute, 1 .. HW_MOST_GROUPS, and that level.
const GpuTeam *target_team(uint32_t groups, uint32_t level);

// The row of that name; "cpu" is the first (lowest) level of the CPU. NULL if
// there is none.
const Target *target_by_name(const char *name);
// The rows of the CPU; those of GPUs.
const Target *target_list(uint32_t *n);
const Target *target_gpus(uint32_t *n);
// A module's target is a GPU.
bool target_is_gpu(const char *name);

#endif
