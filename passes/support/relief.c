// Relief of register pressure, as the text says it (relief.h).
#include "passes/support/relief.h"

#include "ir/layout.h"
#include "ir/target.h"
#include "passes/support/cost.h"

int64_t relief_asked(int64_t all, uint32_t func) {
  int64_t mask = (1 << RELIEF_BITS) - 1;
  return func < RELIEF_FUNCS ? (all >> (RELIEF_BITS * func)) & mask : 0;
}

int64_t relief_spare(const PassOpt *opt, const Func *f) {
  bool asked = !opt->spare_funcs;
  for (uint32_t i = 0; i < f->mod->funcs.n && i < 64; i++)
    if (f->mod->funcs.at[i]->name == f->name)
      asked |= (uint64_t)opt->spare_funcs >> i & 1;
  return asked ? opt->spare_regs : 0;
}

bool relief_scarce(const PassOpt *opt) {
  const GpuFacts *gpu = &opt->target->gpu;
  return gpu->vendor == VENDOR_AMD && gpu->wave == 32 &&
         opt->spare_regs >= COST_TILE_REGS;
}

int64_t relief_halves(const PassOpt *opt) {
  return opt->spare_smem * 8 / (int64_t)opt->target->gpu.smem;
}

int64_t relief_of(const Func *f) {
  const Op *launch = ir_launch(f);
  return launch ? ir_attr_i(launch, AT_RELIEF, RELIEF_NONE) : RELIEF_NONE;
}

void relief_set(Func *f, int64_t level) {
  if (level && ir_launch(f))
    ir_set_attr(f, f->body->first, attr_i(AT_RELIEF, level));
}

bool relief_stows(int64_t level, bool copied) {
  return level >= RELIEF_LOADS && (copied || level != RELIEF_STATE);
}
