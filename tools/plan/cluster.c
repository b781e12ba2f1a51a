// Calls for which the CTAs of clusters share keys (passes/tile/cluster.c):
// those that take less time than parts of the keys that a second kernel joins.
//
//   1 sequence x 8 heads, 1024 keys      8 clusters of 8 CTAs, 128 keys each
//   16 sequences x 8 heads               parts: clusters would be 128
//
// A cluster has as many parts as CTAs, where tasks in parts are as many as fill
// the machine: of few tasks each reads more. The second kernel costs as much as
// some keys do.
#include "ir/ir.h"
#include "passes/support/cost.h"
#include "tools/plan/plan.h"

// CTAs that run at a time, by those of a cluster, largest first: more of them
// share the keys.
static const struct {
  int64_t size, places;
} clusters[] = {{COST_CLUSTER_SIZE, COST_CLUSTER_TASKS}};

int64_t plan_cluster_size(uint32_t i) {
  return i < sizeof clusters / sizeof *clusters ? clusters[i].size : 0;
}

static int64_t places_of(int64_t size) {
  uint32_t i = 0;
  while (plan_cluster_size(i) && clusters[i].size != size) i++;
  return plan_cluster_size(i) ? clusters[i].places : 0;
}

typedef struct Found {
  int64_t size;
  bool roles;
} Found;

static void look(void *data, Op *op) {
  Found *found = data;
  if (op->code == OP_PEERS) found->size = ir_attr_i(op, AT_CLUSTER, 0);
  found->roles |= op->code == OP_ROLES;
}

// The function whose keys a cluster shares, or NULL.
static const Func *clustered(const Module *m, Found *found) {
  for (uint32_t i = 0; m && i < m->funcs.n; i++) {
    *found = (Found){0};
    ir_walk(m->funcs.at[i]->body, look, found);
    if (found->size) return m->funcs.at[i];
  }
  return NULL;
}

bool plan_is_clustered(const Module *mach) {
  Found found;
  return clustered(mach, &found) && found.roles;
}

static Dim tasks_of(const Func *f, DimTab *to) {
  Dim all = dim_const(to, 1);
  for (uint32_t i = 0; i < f->grid.n; i++) {
    const GridDim *g = &f->grid.at[i];
    Dim n = plan_over(f, f->axes.at[g->axis].extent, to);
    if (g->tile > 1) n = dim_ceildiv(to, n, g->tile);
    all = dim_bin(to, DIM_MUL, all, n);
  }
  return all;
}

static Dim keys_of(const Func *f, DimTab *to) {
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_KEY)
      return plan_over(f, f->axes.at[i].extent, to);
  return dim_const(to, 0);
}

// What n leaves of `most`, of which it may have all: then it is positive.
static Dim left(DimTab *to, int64_t most, Dim n) {
  return dim_sub(to, dim_const(to, most + 1), n);
}

Dim plan_cluster_gain(const Module *m, DimTab *to) {
  Found found;
  const Func *f = clustered(m, &found);
  if (!f) return DIM_NONE;
  int64_t n = found.size;
  Dim tasks = tasks_of(f, to), keys = keys_of(f, to);
  Dim gain = left(to, places_of(n), tasks);
  Dim few = dim_const(to, COST_SPLIT_EVEN_KEYS);
  gain = dim_bin(to, DIM_MIN, gain, dim_sub(to, keys, few));
  gain = dim_bin(to, DIM_MIN, gain, left(to, n * COST_CLUSTER_KEYS, keys));
  // Keys of a part beside those that it would have if all memory were asked.
  Dim idle = dim_sub(to, dim_const(to, COST_CLUSTER_FULL), tasks);
  idle = dim_bin(to, DIM_MAX, idle, dim_const(to, 0));
  Dim more = dim_bin(to, DIM_MUL, keys, idle);
  int64_t worth = n * COST_CLUSTER_FULL * COST_CLUSTER_WORTH;
  return dim_bin(to, DIM_MIN, gain, left(to, worth - 1, more));
}

int64_t plan_cluster_of(Ctx *cx, DrvSpec s, const Target *t,
                        const int64_t *dims, const DrvOptions *opt) {
  DrvOptions o = *opt;
  DiagMark mark = diag_mark(cx);
  int64_t best = 0, gain;
  for (uint32_t i = 0; opt->fewest && !best && plan_cluster_size(i); i++) {
    o.cluster = plan_cluster_size(i);
    Dim d = plan_cluster_gain(drv_lower(cx, s, t, LV_TILE, &o), s.prog->dims);
    if (d && dim_eval(s.prog->dims, d, dims, &gain) && gain > 0)
      best = o.cluster;
  }
  if (best && !plan_is_clustered(plan_fit(cx, s, t, &o))) best = 0;
  diag_forget(cx, mark);
  return best;
}
