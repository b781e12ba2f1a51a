// The clusters of thread blocks whose CTAs share keys, as `cost.def` has them.
#include "passes/support/clusters.h"

#include "passes/support/cost.h"

#include <stddef.h>

static const ClusterKind kinds[] = {{COST_CLUSTER_SIZE, COST_CLUSTER_TASKS,
                                     COST_CLUSTER_FULL, COST_CLUSTER_KEYS},
                                    {COST_CLUSTER_HALF, COST_CLUSTER_HALF_TASKS,
                                     COST_CLUSTER_FULL, COST_CLUSTER_KEYS},
                                    {COST_CLUSTER_PAIR, COST_CLUSTER_PAIR_TASKS,
                                     COST_CLUSTER_PAIR_FULL,
                                     COST_CLUSTER_PAIR_KEYS}};
enum { KINDS = sizeof kinds / sizeof *kinds };

const ClusterKind *clusters_kind(uint32_t i) {
  return i < KINDS ? &kinds[i] : NULL;
}

int64_t clusters_size(uint32_t i) {
  return i < KINDS ? kinds[i].size : 0;
}

const ClusterKind *clusters_of(int64_t size) {
  uint32_t i = 0;
  while (i + 1 < KINDS && kinds[i].size != size) i++;
  return &kinds[i];
}
