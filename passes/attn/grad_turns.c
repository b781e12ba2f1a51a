// grad, part 7: gradients of what is loaded by the turn of a step, where each
// turn is a step of the recurrence (pass join_turns).
//
//   before  g_K[t // 2, t % 2, d] = made[t, d]         t in S * 2
//           g_g[t // 2] = select(t % 2 == 0, x[t], 0)
//   after   g_K[u, j, d] = made[u * 2 + j, d]          u in S, j in 2
//           g_g[u] = x[u * 2 + 0]
//
// Each point of such a tensor is that of one step, or the sum of those of all
// turns: of these some are known to be nothing. What a walk stores as it goes
// has the step's own index.
#include "passes/attn/grad.h"

bool grad_turns_of(const Grad *g, const GradNode *n, uint32_t *axis,
                   int64_t *turns) {
  if (n->code != OP_FLOORDIV && n->code != OP_MOD) return false;
  const GradNode *at = grad_at(g, n->arg[0]), *by = grad_at(g, n->arg[1]);
  if (at->code != OP_INDEX || by->code != OP_CONST ||
      dtype_is_float(by->dtype) || by->attr < 2)
    return false;
  *axis = (uint32_t)at->attr, *turns = by->attr;
  return g->axes.at[*axis].axis.role == AX_STEP;
}

// Which steps, and has it the number of the turn?
static bool find(const Grad *g, const GradStore *s, uint32_t *axis,
                 int64_t *turns, bool *each) {
  bool found = false;
  for (uint32_t i = 0; i < s->n; i++) {
    const GradNode *n = grad_at(g, s->index[i]);
    if (!grad_turns_of(g, n, axis, turns)) continue;
    found = true;
    *each |= n->code == OP_MOD;
  }
  return found;
}

// Is x made of results of walks that store such, element by element?
static bool is_of_walk(const Grad *g, Gid x, bool *some) {
  const GradNode *n = grad_at(g, x);
  if (n->code == GRAD_RESULT) {
    *some = true;
    return g->walks.at[grad_at(g, n->arg[0])->attr].whole;
  }
  if (n->code == OP_LOAD) return g->tensors.at[n->tensor].from != GF_MADE;
  if (n->n && !(op_info(n->code)->flags & OPF_ELEM)) return false;
  for (uint32_t i = 0; i < n->n; i++)
    if (!is_of_walk(g, n->arg[i], some)) return false;
  return true;
}

static uint32_t axis_of(Grad *g, uint32_t axis, const char *what, Dim extent) {
  const char *of = g->axes.at[axis].axis.name;
  const char *name = arena_printf(&g->cx->scratch, "%s_%s", of, what);
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (!strcmp(g->axes.at[i].axis.name, name)) return i;
  return grad_axis(g, name, AX_PAR, extent);
}

void grad_by_turns(Grad *g, GradStore *s) {
  DimTab *d = &g->m->dims;
  uint32_t axis;
  GradTurn t;
  bool each = false, some = false;
  if (!find(g, s, &axis, &t.n, &each)) return;
  if (each && is_of_walk(g, s->v, &some) && some) return;
  Dim turns = dim_const(d, t.n);
  Dim steps = dim_bin(d, DIM_FLOORDIV, g->axes.at[axis].axis.extent, turns);
  t.step = grad_index(g, axis_of(g, axis, "step", steps));
  if (each) t.turn = grad_index(g, axis_of(g, axis, "turn", turns));
  else t.turn = grad_int(g, 0);
  for (uint32_t i = 0; i < s->n; i++)
    s->index[i] = grad_moved_turn(g, s->index[i], axis, &t);
  Gid of = s->v;
  s->v = grad_moved_turn(g, of, axis, &t);
  for (int64_t k = 1; k < t.n && !each; k++) {
    t.turn = grad_int(g, k);
    s->v = grad_2(g, OP_ADD, s->v, grad_moved_turn(g, of, axis, &t));
  }
}
