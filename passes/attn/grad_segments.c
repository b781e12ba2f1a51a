// grad, part 6: rows of sequences in one tensor, behind offsets.
//
//   before  g_K[x] += f(b, t) at x = cu[b] + t,  h(b, t) at x = cu[b] + t - 1
//   after   g_K[cu[b] + t] = f(b, t)
//                            + (t + 1 is in the sequence ? h(b, t + 1) : 0)
//
// Offsets of a ragged dim ascend, and its coordinates end where the next
// sequence begins: each row is of one sequence, and is stored by that. What a
// step reads of another step's row is of the same sequence, since an index
// beyond it reads 0; so it flows to that step. Of other sums of an entry and a
// coordinate rows may be anyone's.
#include "passes/attn/grad.h"

// An index, as the sum of a coordinate, an entry of memory and a number.
typedef struct Sum {
  Gid index, base;
  int64_t by;
} Sum;

static Gid without_casts(const Grad *g, Gid x) {
  while (grad_at(g, x)->code == OP_CAST) x = grad_at(g, x)->arg[0];
  return x;
}

// Adds x to s, or takes it off. False: it has something else.
static bool add_to(const Grad *g, Gid x, int sign, Sum *s) {
  const GradNode *n = grad_at(g, x);
  if (n->code == OP_ADD || n->code == OP_SUB)
    return add_to(g, n->arg[0], sign, s) &&
           add_to(g, n->arg[1], n->code == OP_SUB ? -sign : sign, s);
  if (n->code == OP_CONST) {
    s->by += sign * n->attr;
    return s->by > -DIM_UNBOUNDED && s->by < DIM_UNBOUNDED;
  }
  bool index = n->code == OP_INDEX;
  Gid *to = index ? &s->index : &s->base;
  if (sign < 0 || *to ||
      (!index && grad_at(g, without_casts(g, x))->code != OP_LOAD))
    return false;
  *to = x;
  return true;
}

// Is `base` the offset at which the coordinate's sequence begins, among those
// of a dim of that name, and is the tensor as long as they all are?
static bool begins(const Grad *g, const Sum *s, Dim size) {
  const DimTab *d = &g->m->dims;
  uint32_t axis = (uint32_t)grad_at(g, s->index)->attr;
  const GradNode *base = grad_at(g, without_casts(g, s->base));
  const DimExpr *e = &d->exprs.at[g->axes.at[axis].axis.extent],
                *whole = &d->exprs.at[size];
  if (e->op != DIM_SYM || whole->op != DIM_SYM || base->n != 1) return false;
  const DimSym *sym = &d->syms.at[e->value];
  if (!dim_is_total(&d->syms.at[whole->value], sym) || !sym->by ||
      !g->domain[axis])
    return false;
  return grad_at(g, base->arg[0])->code == OP_INDEX &&
         !(base->axes & ~grad_at(g, g->domain[axis])->axes) &&
         !strcmp(g->tensors.at[base->tensor].name, sym->by);
}

static bool find(const Grad *g, const GradStore *s, uint32_t i, Sum *sum) {
  *sum = (Sum){0};
  return add_to(g, s->index[i], 1, sum) && sum->index && sum->base &&
         begins(g, sum, g->tensors.at[s->tensor].type.size[i]);
}

// Is index i of s the only one with its axes?
static bool is_alone(const Grad *g, const GradStore *s, uint32_t i) {
  for (uint32_t k = 0; k < s->n; k++)
    if (k != i &&
        (grad_at(g, s->index[k])->axes & grad_at(g, s->index[i])->axes))
      return false;
  return true;
}

// Steps alone are as many as their rows: the coordinates of others may be
// excluded, or be in other tensors' order.
static bool moves(const Grad *g, const Sum *s) {
  uint32_t axis = (uint32_t)grad_at(g, s->index)->attr;
  return !s->by || (g->axes.at[axis].axis.role == AX_STEP && !g->views.n);
}

// All gradients of a tensor are stored by its rows, or none.
static bool are_all(const Grad *g, const GradStore *s, uint32_t i) {
  Sum sum;
  for (uint32_t k = 0; k < g->grads.n; k++) {
    const GradStore *o = &g->grads.at[k];
    if (o->tensor != s->tensor) continue;
    if (!find(g, o, i, &sum) || !moves(g, &sum) || !is_alone(g, o, i))
      return false;
  }
  return true;
}

bool grad_segment(Grad *g, GradStore *s, uint32_t i) {
  Sum sum;
  if (!are_all(g, s, i) || !find(g, s, i, &sum)) return false;
  s->physical = true;
  if (!sum.by) return true;
  uint32_t axis = (uint32_t)grad_at(g, sum.index)->attr;
  Gid to = grad_2(g, OP_ADD, sum.index, grad_int(g, -sum.by));
  Gid there = grad_moved(g, g->domain[axis], axis, to);
  Gid from = grad_2(g, OP_LE, grad_int(g, 0), to);
  Gid is = grad_2(g, OP_AND, from, there);
  Gid v = grad_moved(g, s->v, axis, to), zero = grad_num(g, 0);
  s->v = grad_path(g, is, v, zero);
  s->index[i] = grad_2(g, OP_ADD, sum.index, sum.base);
  return true;
}
