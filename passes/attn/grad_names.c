// grad: the names of kernels and of tensors that the gradient makes, and the
// order of what the program saves for it.
#include "passes/attn/grad.h"

static const char *name_of(Grad *g, Gid x) {
  const GradNode *n = grad_at(g, x);
  if (n->hint) return n->hint;
  if (n->code == OP_REDUCE && x >= g->forward) return "delta";
  if (n->code == OP_ADD)
    for (uint32_t i = 0; i < 2; i++)
      if (grad_at(g, n->arg[i])->code == OP_LOG) return "lse";
  return "row";
}

const char *grad_tensor_name(Grad *g, Gid x, GradFrom from, uint32_t n) {
  uint32_t same = 0;
  const char *name = name_of(g, x);
  name = from == GF_SAVED ? arena_printf(g->m->arena, "save_%s", name)
                          : arena_printf(g->m->arena, "%s.made", name);
  for (uint32_t i = 1; i < n; i++)
    same += strncmp(g->tensors.at[i].name, name, strlen(name)) == 0;
  if (same) name = arena_printf(g->m->arena, "%s%u", name, same);
  return intern(&g->cx->names, name);
}

void grad_name_kernels(Grad *g) {
  for (uint32_t i = 0; i < g->nkernels; i++) {
    GradKernel *k = &g->kernel[i];
    bool keys = k->outer & grad_role(g, AX_KEY);
    bool points = !grad_role(g, AX_KEY);
    const char *name = k->walk   ? "steps"
                       : k->rows ? "rows"
                       : keys    ? "keys"
                       : points  ? "points"
                                 : "queries";
    uint32_t same = 0;
    for (uint32_t j = 0; j < i; j++)
      same += strncmp(g->kernel[j].name, name, strlen(name)) == 0;
    k->name = same ? arena_printf(g->m->arena, "%s%u", name, same) : name;
  }
}

static bool is_saved(const Grad *g, const GradRead *r) {
  return g->tensors.at[r->tensor].from == GF_SAVED;
}

// Exchanges the tensors of two saved rows. False: they are in order.
static bool turn_saved(Grad *g, GradRead *a, GradRead *b) {
  if (a->node >= b->node || a->tensor <= b->tensor) return false;
  if (!is_saved(g, a) || !is_saved(g, b)) return false;
  GradTensor *x = &g->tensors.at[a->tensor], *y = &g->tensors.at[b->tensor];
  GradTensor t = *x;
  uint32_t at = a->tensor;
  *x = *y, *y = t;
  a->tensor = b->tensor, b->tensor = at;
  return true;
}

void grad_order_saved(Grad *g) {
  for (bool turned = true; turned;) {
    turned = false;
    for (uint32_t i = 0; i < g->reads.n; i++)
      for (uint32_t j = 0; j < g->reads.n; j++)
        turned |= turn_saved(g, &g->reads.at[i], &g->reads.at[j]);
  }
  for (uint32_t i = 1; i < g->tensors.n; i++)
    for (uint32_t j = 0; j < g->reads.n; j++)
      if (g->reads.at[j].tensor == i && is_saved(g, &g->reads.at[j]))
        g->tensors.at[i].name =
            grad_tensor_name(g, g->reads.at[j].node, GF_SAVED, i);
}
