// What is tuned, by name: COST_x for each row of passes/support/cost.def.
#ifndef ATTNC_PASSES_SUPPORT_COST_H
#define ATTNC_PASSES_SUPPORT_COST_H

enum {
#define COST(name, value, unit, decides, from) COST_##name = value,
#include "passes/support/cost.def"
};

#endif
