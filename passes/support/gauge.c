// Does no output depend on a value? See gauge.h.
#include "passes/support/gauge.h"

#include "passes/support/probe.h"

bool gauge_is(const Func *f, Arena *a, Value v) {
  const Type *t = ir_type(f, v);
  ProbeSeen seen = {0};
  for (uint32_t i = 0; i < t->n; i++) {
    AxisRole r = f->axes.at[t->axis[i]].role;
    if (r == AX_KEY || r == AX_VEC) return false;
  }
  for (uint32_t i = 0; i < PROBE_TRIALS; i++) {
    Probe x, y;
    double by = probe_pair(&x, &y, f, a, i);
    probe_put(&y.shift, v, by);
    if (!probe_same(&x, &y, f->body)) return false;
    probe_note(&seen, &x, &y);
  }
  return probe_shown(&seen, &v, 1);
}
