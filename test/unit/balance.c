// Facts of the targets agree with each other, and what bounds a step is what
// they say.
#include "passes/support/balance.h"
#include "passes/support/cost.h"
#include "test/unit/expect.h"

static const GpuFacts *facts(const char *name) {
  return &target_by_name(name)->gpu;
}

// Roles have no more registers than the launch and the multiprocessor.
static void teams(void) {
  const GpuFacts *g = facts("sm_90a");
  for (uint32_t n = 1; n <= HW_MOST_GROUPS; n++)
    for (uint32_t level = 0; level < (n == 1 ? 3u : 1u); level++) {
      const GpuTeam *t = target_team(n, level);
      int64_t ctas = level ? 2 : 1;
      int64_t each = t->loads + n * t->computes;
      EXPECT(t->loads % HW_REG_GRAIN == 0 && t->computes % HW_REG_GRAIN == 0);
      EXPECT(ctas * each * HW_GROUP_THREADS <= g->regs);
    }
  // Two groups that load beside two.
  enum { TWO = 2, WIDENED = 10 };
  const GpuTeam *t = target_team(TWO, WIDENED);
  EXPECT(TWO * (t->loads + t->computes) * HW_GROUP_THREADS <= g->regs);
}

static void rates(void) {
  uint32_t n;
  const Target *all = target_gpus(&n);
  for (uint32_t i = 0; i < n; i++) {
    const GpuFacts *g = &all[i].gpu;
    EXPECT(g->flops && g->special && g->lanes && g->threads && g->regs);
    EXPECT(g->threads % g->wave == 0);
    // The clock that the table's tflops are of.
    double clock = g->tflops * 1e12 / ((double)g->flops * g->sms);
    EXPECT(clock > 1e9 && clock < 4e9);
  }
}

// Two products of 64 elements each take as long as one exponential, two of 128
// twice as long.
static void pairs(void) {
  const GpuFacts *g = facts("sm_90a");
  Balance b = balance_pair(2 * 64), c = balance_pair(2 * 128);
  EXPECT(balance_clocks(&b, g, UNIT_PRODUCTS) ==
         balance_clocks(&b, g, UNIT_FUNCTIONS));
  EXPECT(balance_products(&b, g, 1));
  EXPECT(!balance_products(&b, g, COST_PRODUCTS_TWICE));
  EXPECT(balance_products(&c, g, COST_PRODUCTS_TWICE));
  EXPECT(!balance_products(&c, g, COST_PRODUCTS_HIDE));
  EXPECT(balance_bound(&c, g) == UNIT_PRODUCTS);
  Balance d = balance_pair(32);
  EXPECT(balance_bound(&d, g) == UNIT_FUNCTIONS);
  d.of[UNIT_MEMORY] = 1 << 20;
  EXPECT(balance_bound(&d, g) == UNIT_MEMORY);
}

int main(void) {
  teams();
  rates();
  pairs();
  return verdict();
}
