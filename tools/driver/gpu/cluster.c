// Bodies of a GPU program for decoding whose keys are split among the CTAs of
// clusters (passes/tile/cluster.c): calls for which that takes less time than
// parts of the keys that a second kernel joins.
//
//   1 sequence x 8 heads, 1024 keys      8 clusters of 8 CTAs, 128 keys each
//   16 sequences x 8 heads               the other body: clusters would be 128
//
// A cluster has as many parts as CTAs, where tasks in parts are as many as fill
// the machine: of few tasks each reads more. The second kernel costs as much as
// some keys do.
#include "ir/layout.h"
#include "passes/support/cost.h"
#include "tools/driver/gpu/device.h"

typedef struct Found {
  bool peers, roles;
} Found;

static void look(void *data, Op *op) {
  Found *found = data;
  found->peers |= op->code == OP_PEERS;
  found->roles |= op->code == OP_ROLES;
}

// The function that joins in clusters, if a producer has its tiles; or NULL.
static const Func *clustered(const Module *m) {
  for (uint32_t i = 0; m && i < m->funcs.n; i++) {
    Found found = {0};
    ir_walk(m->funcs.at[i]->body, look, &found);
    if (found.peers && found.roles) return m->funcs.at[i];
  }
  return NULL;
}

bool drv_is_clustered(const Built *b) {
  return clustered(b->mod) != NULL;
}

static CgExpr less(Ctx *cx, CgExpr x, CgExpr y) {
  return cg_expr_bin(cx, x, ATTN_X_LT, y);
}

static CgExpr keys_of(Ctx *cx, const Module *m, const Func *f) {
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].role == AX_KEY)
      return cg_expr_dim(cx, &m->dims, f->axes.at[i].extent);
  return cg_expr_const(cx, 0);
}

CgExpr drv_cluster_calls(Ctx *cx, const CgProgram *p, const Built *b) {
  const Module *m = b->mod;
  const Func *f = clustered(m);
  int64_t n = ir_attr_i(ir_launch(f), AT_CLUSTER, 1);
  CgExpr places = cg_expr_const(cx, COST_CLUSTER_TASKS + 1);
  CgExpr tasks = drv_tasks(cx, m, f), keys = keys_of(cx, m, f);
  CgExpr all = less(cx, tasks, places);
  CgExpr few = cg_expr_const(cx, COST_SPLIT_EVEN_KEYS);
  CgExpr most = cg_expr_const(cx, n * COST_CLUSTER_KEYS + 1);
  all = drv_and(cx, all, less(cx, few, keys));
  all = drv_and(cx, all, less(cx, keys, most));
  // Keys of a part beside those that it would have if all memory were asked.
  CgExpr idle =
      cg_expr_bin(cx, cg_expr_const(cx, COST_CLUSTER_FULL), ATTN_X_SUB, tasks);
  CgExpr more = cg_expr_bin(cx, keys, ATTN_X_MUL, idle);
  int64_t worth = n * COST_CLUSTER_FULL * COST_CLUSTER_WORTH;
  all = drv_and(cx, all, less(cx, more, cg_expr_const(cx, worth)));
  return drv_over_program(cx, p, &m->dims, all);
}
