// grad, part 5: running sums along an axis. The adjoint of one is the running
// sum of the other direction. A kernel that has keys outside cannot run along
// them, so each running sum is made before whoever reads it, by blocks:
//
//   x.made[k]                                 what is summed; 0 outside of the
//                                             domain
//   block.made[j]  = sum over i of x[j n + i]
//   before.made[j] = sum over blocks in front of j
//   scan.made[k]   = before[k // n] + sum over i, up to k, of x[(k // n) n + i]
//
// Nothing is subtracted: what is small behind much is as exact as the first.
#include "passes/attn/grad.h"
#include "passes/support/cost.h"

typedef struct Scan {
  Grad *g;
  const GradNode *n;
  uint32_t axis;
  uint32_t block, other, in;  // axes: of blocks, of those in front, in one
  Gid x;                      // made
} Scan;

Gid grad_scan(Grad *g, Gid x, GradNode like) {
  uint64_t points = grad_points(g, like.over);
  GradNode n = {.code = OP_SCAN,
                .dtype = DT_F32,
                .axes = grad_at(g, x)->axes | points,
                .over = like.over,
                .attr = like.attr,
                .n = 1,
                .hint = "scan",
                .span = like.span};
  n.points = n.axes;
  return grad_put(g, n, &x);
}

Gid grad_scan_back(Grad *g, Gid x, GradNode n) {
  n.attr ^= GRAD_SCAN_SUFFIX;
  return grad_scan(g, x, n);
}

// ---------------------------------------------------------------- blocks
static uint32_t axis_of(Scan *s, const char *what, AxisRole role, Dim extent) {
  Grad *g = s->g;
  const char *of = g->axes.at[s->axis].axis.name;
  const char *name = arena_printf(&g->cx->scratch, "%s_%s", of, what);
  for (uint32_t i = 0; i < g->axes.n; i++)
    if (strcmp(g->axes.at[i].axis.name, name) == 0) return i;
  return grad_axis(g, name, role, extent);
}

static void put_axes(Scan *s) {
  DimTab *d = &s->g->m->dims;
  Dim size = dim_const(d, COST_GRAD_SCAN),
      last = dim_const(d, COST_GRAD_SCAN - 1);
  Dim up = dim_bin(d, DIM_ADD, s->g->axes.at[s->axis].axis.extent, last);
  Dim blocks = dim_bin(d, DIM_FLOORDIV, up, size);
  s->block = axis_of(s, "block", AX_PAR, blocks);
  s->other = axis_of(s, "before", AX_PAR, blocks);
  s->in = axis_of(s, "in", AX_VEC, size);
}

// Does the sum at coordinate `to` have what is at `from`?
static Gid is_summed(const Scan *s, Gid from, Gid to, bool open) {
  bool suffix = s->n->attr & GRAD_SCAN_SUFFIX;
  OpCode c = open ? OP_LT : OP_LE;
  return suffix ? grad_2(s->g, c, to, from) : grad_2(s->g, c, from, to);
}

// The sum of what is in a block from `first` on; of what `to` has, or of all.
static Gid sum_of_block(const Scan *s, Gid first, Gid to) {
  Grad *g = s->g;
  Gid at = grad_2(g, OP_ADD, first, grad_index(g, s->in));
  Gid end = grad_dim(g, g->axes.at[s->axis].axis.extent);
  Gid v = grad_moved(g, s->x, s->axis, at);
  Gid ok = grad_2(g, OP_LT, at, end);
  if (to) {
    bool open = s->n->attr & GRAD_SCAN_EXCLUSIVE;
    ok = grad_2(g, OP_AND, ok, is_summed(s, at, to, open));
  }
  return grad_sum_all(g, grad_or_0(g, ok, v), grad_bit(s->in));
}

Gid grad_scan_value(Grad *g, Gid scan) {
  const GradNode n = *grad_at(g, scan);
  Scan s = {.g = g, .n = &n};
  while (!(n.over & grad_bit(s.axis))) s.axis++;
  put_axes(&s);
  s.x = grad_made(g, n.arg[0], n.axes, "x");
  Gid size = grad_int(g, COST_GRAD_SCAN), k = grad_index(g, s.axis);
  Gid j = grad_index(g, s.block), front = grad_index(g, s.other);
  Gid block = sum_of_block(&s, grad_2(g, OP_MUL, j, size), 0);
  block = grad_made(g, block, grad_at(g, block)->axes, "block");
  Gid others = grad_moved(g, block, s.block, front);
  others = grad_or_0(g, is_summed(&s, front, j, true), others);
  Gid before = grad_sum_all(g, others, grad_bit(s.other));
  before = grad_made(g, before, grad_at(g, before)->axes, "before");
  Gid of = grad_2(g, OP_FLOORDIV, k, size);
  Gid here = sum_of_block(&s, grad_2(g, OP_MUL, of, size), k);
  return grad_2(g, OP_ADD, grad_moved(g, before, s.block, of), here);
}
