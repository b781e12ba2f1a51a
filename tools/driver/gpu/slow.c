// Warning slow_kernel: what keeps a GPU's code from the speed of its machine,
// once a program and target, with the place in the source and what would help.
// The body for tensors of any strides is not looked at: it is not what a call
// mostly takes.
#include "ir/pressure.h"
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"

#include <string.h>

typedef struct Cause {
  const char *what, *help;
  Span span;
} Cause;

// ---------------------------------------------------------------- ptxas
static bool is_spilled(Ctx *cx, const CgKernelRecord *k, Cause *out) {
  if (k->spill_bytes <= COST_SLOW_SPILLS) return false;
  Press most = ir_pressure(k->func, &cx->session);
  out->what = arena_printf(&cx->session,
                           "%u bytes of a thread's registers are spilled in %s",
                           k->spill_bytes, k->symbol);
  out->help = "shorter vectors, smaller tiles (`schedule`), or parts of the "
              "program as programs of their own need less registers";
  out->span = most.at ? most.at->span : k->func->span;
  return true;
}

static bool is_serial(Ctx *cx, const CgKernelRecord *k, Cause *out) {
  if (!k->serialized) return false;
  out->what = arena_printf(&cx->session,
                           "products wait for each other in %s (ptxas C%u)",
                           k->symbol, k->warning);
  out->help = "smaller tiles (`schedule`) leave registers for products that "
              "overlap";
  out->span = k->func->span;
  return true;
}

// ---------------------------------------------------------------- once
static bool is_silent(const Recipe *r) {
  const Decl *prog = r->spec.prog;
  for (uint32_t i = 0; i < prog->attrs.n; i++)
    if (strcmp(prog->attrs.at[i].name, "slow") == 0) return true;
  return r->spare;
}

static bool find_cause(Ctx *cx, const Built *b, Cause *out) {
  for (uint32_t i = 0; i < b->kernels.n; i++) {
    const CgKernelRecord *k = &b->kernels.at[i];
    if (is_spilled(cx, k, out) || is_serial(cx, k, out)) return true;
  }
  return false;
}

void drv_warn_slow(Ctx *cx, const CgProgram *p, const Built *built,
                   uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const Recipe *r = &built[i].recipe;
    Cause c;
    bool told = false;
    for (uint32_t k = 0; k < i; k++)
      told |= built[k].recipe.target == r->target &&
              !is_silent(&built[k].recipe) && find_cause(cx, &built[k], &c);
    if (told || is_silent(r) || !find_cause(cx, &built[i], &c)) continue;
    Diag *d = diag_add(cx, DIAG_slow_kernel, c.span, p->name, r->target->name,
                       c.what);
    diag_note(cx, d, NOWHERE, "%s", c.help);
    diag_note(cx, d, NOWHERE, "`@slow` on the program says that it may be");
  }
}
