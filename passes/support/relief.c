// Relief of register pressure, as the text says it (relief.h).
#include "passes/support/relief.h"

#include "ir/layout.h"
#include "ir/target.h"
#include "passes/support/cost.h"

#include <stdlib.h>
#include <string.h>

int64_t relief_asked(int64_t all, uint32_t func) {
  int64_t mask = (1 << RELIEF_BITS) - 1;
  return func < RELIEF_FUNCS ? (all >> (RELIEF_BITS * func)) & mask : 0;
}

// What stands behind the program's name.
static const char *phase_of(const char *name) {
  const char *dot = strchr(name, '.');
  return dot ? dot : "";
}

int64_t relief_spare_named(const char *each, const char *name) {
  const char *phase = phase_of(name);
  size_t n = strlen(phase);
  while (each && *each) {
    const char *end = strchr(each, ':');
    if (!end) return 0;
    if ((size_t)(end - each) == n && strncmp(each, phase, n) == 0)
      return strtoll(end + 1, NULL, 10);
    each = strchr(end, ',');
    if (each) each++;
  }
  return 0;
}

void relief_spare_put(Buf *each, const char *name, int64_t regs) {
  buf_printf(each, "%s%s:%lld", each->n ? "," : "", phase_of(name),
             (long long)regs);
}

int64_t relief_spare(const PassOpt *opt, const Func *f) {
  return opt->spare_each ? relief_spare_named(opt->spare_each, f->name)
                         : opt->spare_regs;
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

int64_t relief_ctas(int64_t level, int64_t n) {
  int64_t left = level >= RELIEF_STATE   ? n / 2
                 : level >= RELIEF_LOADS ? n * 2 / 3
                 : level >= RELIEF_REMAT ? n - 1
                                         : n;
  return left > 1 ? left : 1;
}
