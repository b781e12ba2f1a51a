// The target table.
#include "ir/target.h"

#include <stddef.h>
#include <string.h>

#define LIST(...) {__VA_ARGS__}
static const Target targets[] = {
#define CPU(name, isa, lanes, regs, dpbf16, l1, l2, tile_q, tile_k, rows, \
            cols, cpu, features)                                          \
  {"cpu:" name, TARGET_CPU, #isa, lanes,  regs,      dpbf16, l1, l2,      \
   tile_q,      tile_k,     LIST rows, LIST cols, cpu,    features},
#include "ir/targets.def"
};

const Target *target_list(uint32_t *n) {
  *n = sizeof targets / sizeof *targets;
  return targets;
}

const Target *target_by_name(const char *name) {
  if (strcmp(name, "cpu") == 0) return &targets[0];
  for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
    if (strcmp(targets[i].name, name) == 0) return &targets[i];
  return NULL;
}
