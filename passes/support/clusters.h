// The clusters of thread blocks whose CTAs share keys (passes/tile/cluster.c).
#ifndef ATTN_PASSES_SUPPORT_CLUSTERS_H
#define ATTN_PASSES_SUPPORT_CLUSTERS_H

#include <stdint.h>

// Of a size: so many CTAs run at a time, so many ask for all that memory gives,
// and a part has so many keys at most.
typedef struct ClusterKind {
  int64_t size, places, full, keys;
} ClusterKind;

// The i-th one, largest first: more of them share the keys. NULL behind the
// last.
const ClusterKind *clusters_kind(uint32_t i);

// Its CTAs, 0 behind the last.
int64_t clusters_size(uint32_t i);

// That of a size; the smallest where none has it.
const ClusterKind *clusters_of(int64_t size);

#endif
