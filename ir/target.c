// The target table.
#include "ir/target.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define LIST(...) {__VA_ARGS__}
static const Target targets[] = {
#define CPU(name, isa, lanes, regs, dpbf16, amx, l1, l2, tile_q, tile_k, rows, \
            cols, cpu, features) \
  {"cpu:" name, TARGET_CPU, #isa,      lanes,     regs, dpbf16,   amx, l1, l2, \
   tile_q,      tile_k,     LIST rows, LIST cols, cpu,  features, {0}},
#include "ir/targets.def"
};

static const Target gpus[] = {
#define AMD(target, number, w, r, c, sums, left, left8, eight, turned, lds, \
            registers, direct_bytes, at_once, cus, kib, gbs, tf, clock, \
            functions, sums_of_f32) \
  {.name = target, \
   .kind = TARGET_GPU, \
   .isa = target, \
   .cpu = target, \
   .features = "", \
   .gpu = {.vendor = VENDOR_AMD, \
           .wave = w, \
           .acc = LY_##sums, \
           .op = LY_##left, \
           .op8 = LY_##left8, \
           .f8 = F8_##eight, \
           .turn = turned, \
           .direct = direct_bytes, \
           .rows = r, \
           .cols = c, \
           .cc = number, \
           .smem = lds, \
           .regs = registers, \
           .threads = at_once, \
           .sms = cus, \
           .l2 = kib, \
           .bandwidth = gbs, \
           .tflops = tf, \
           .flops = clock, \
           .special = functions, \
           .lanes = sums_of_f32}},
#define GPU(target, number, is_hopper, eight, smem_bytes, own_bytes, \
            registers, at_once, multiprocessors, kib, gbs, tf, clock, \
            functions, sums_of_f32, llvm, llvm_features, any) \
  {.name = target, \
   .kind = TARGET_GPU, \
   .isa = target, \
   .cpu = llvm, \
   .features = llvm_features, \
   .gpu = {.vendor = VENDOR_NVIDIA, \
           .wave = 32, \
           .acc = LY_ACC, \
           .op = LY_ACC, \
           .op8 = LY_ACC, \
           .f8 = F8_##eight, \
           .rows = 16, \
           .cols = 16, \
           .cc = number, \
           .hopper = is_hopper, \
           .smem = smem_bytes, \
           .own = own_bytes, \
           .regs = registers, \
           .threads = at_once, \
           .sms = multiprocessors, \
           .l2 = kib, \
           .bandwidth = gbs, \
           .tflops = tf, \
           .flops = clock, \
           .special = functions, \
           .lanes = sums_of_f32, \
           .general = any}},
#include "ir/targets.def"
};

static const GpuTeam teams[] = {
#define TEAM(groups, level, loads, makes, computes) \
  {groups, level, loads, makes, computes},
#include "ir/targets.def"
};

enum {
  NTARGETS = sizeof targets / sizeof *targets,
  NGPUS = sizeof gpus / sizeof *gpus
};

const Target *target_list(uint32_t *n) {
  *n = NTARGETS;
  return targets;
}

const Target *target_gpus(uint32_t *n) {
  *n = NGPUS;
  return gpus;
}

const Target *target_by_name(const char *name) {
  if (strcmp(name, "cpu") == 0) return &targets[0];
  for (size_t i = 0; i < NTARGETS; i++)
    if (strcmp(targets[i].name, name) == 0) return &targets[i];
  for (size_t i = 0; i < NGPUS; i++)
    if (strcmp(gpus[i].name, name) == 0) return &gpus[i];
  return NULL;
}

const GpuTeam *target_team(uint32_t groups, uint32_t level) {
  for (size_t i = 0; i < sizeof teams / sizeof *teams; i++)
    if (teams[i].groups == groups && teams[i].level == level) return &teams[i];
  assert(!"a row of TEAM");
  return NULL;
}

bool target_is_gpu(const char *name) {
  const Target *t = name ? target_by_name(name) : NULL;
  return t && t->kind == TARGET_GPU;
}
