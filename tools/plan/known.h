// Modules that a session has made of late (known.c).
#ifndef ATTNC_PLAN_KNOWN_H
#define ATTNC_PLAN_KNOWN_H

#include "passes/pass.h"
#include "tools/plan/plan.h"

typedef struct PlanAsked {
  DrvSpec s;
  const PassOpt *pass;  // what passes are asked
  Level to;
  const DrvOptions *opt;
} PlanAsked;

// What a module is known by; NULL: it is not kept.
const char *plan_known_key(Ctx *cx, const PlanAsked *asked);
// A copy of what is known by that, with its remarks, or NULL.
Module *plan_known(Ctx *cx, const char *key);
// m, whose remarks are those from number `remarks` on, is known by key.
void plan_known_put(Ctx *cx, const char *key, const Module *m,
                    uint32_t remarks);

#endif
