// Calls for which the CTAs of clusters share keys: the pass that splits these
// says when that is best (passes/tile/cluster.c).
#include "ir/ir.h"
#include "passes/support/clusters.h"
#include "tools/plan/plan.h"

typedef struct Found {
  Dim gain;
  bool peers, roles;
} Found;

static void look(void *data, Op *op) {
  Found *found = data;
  found->roles |= op->code == OP_ROLES;
  if (op->code != OP_PEERS) return;
  found->peers = true;
  found->gain = (Dim)ir_attr_i(op, AT_DIM, DIM_NONE);
}

// The function whose keys a cluster shares, or NULL.
static const Func *clustered(const Module *m, Found *found) {
  for (uint32_t i = 0; m && i < m->funcs.n; i++) {
    *found = (Found){0};
    ir_walk(m->funcs.at[i]->body, look, found);
    if (found->peers) return m->funcs.at[i];
  }
  return NULL;
}

bool plan_is_clustered(const Module *mach) {
  Found found;
  return clustered(mach, &found) && found.roles;
}

Dim plan_cluster_gain(const Module *m, DimTab *to) {
  Found found;
  const Func *f = clustered(m, &found);
  return f && found.gain ? plan_over(f, found.gain, to) : DIM_NONE;
}

int64_t plan_cluster_of(Ctx *cx, DrvSpec s, const Target *t,
                        const int64_t *dims, const DrvOptions *opt) {
  DrvOptions o = *opt;
  DimTab *to = s.prog->dims;
  DiagMark mark = diag_mark(cx);
  int64_t best = 0, gain;
  for (uint32_t i = 0; opt->fewest && !best && clusters_size(i); i++) {
    o.cluster = clusters_size(i);
    Dim d = plan_cluster_gain(drv_lower(cx, s, t, LV_TILE, &o), to);
    if (d && dim_eval(to, d, dims, &gain) && gain > 0) best = o.cluster;
  }
  if (best && !plan_is_clustered(plan_fit(cx, s, t, &o))) best = 0;
  diag_forget(cx, mark);
  return best;
}
